/* export_peft_test.c - the LoRA adapter of a run as a PEFT folder. python/tests/adapter_test.py has
 * PEFT itself load such a folder. */
#include "base/file.h"
#include "base/safetensors.h"
#include "check.h"
#include "scratch.h"
#include <diloco/run.h>
#include <diloco/train.h>

#include <stdlib.h>

static const char a_of_q[] = "base_model.model.layers.0.q_proj.lora_A.default.weight",
                  b_of_q[] = "base_model.model.layers.0.q_proj.lora_B.default.weight",
                  a_of_embed[] = "base_model.model.embed.lora_embedding_A.default";
static float values[] = {1, 2, 3, 4, 5, 6};

/* Makes a run whose base has the facts, and exports it. */
static diloco_status exported(const char *name, const char *facts, const char *const *tensors,
                              char folder[PATH_MAX])
{
    diloco_run *run;
    diloco_export_report report;
    diloco_config *config = diloco_config_create();
    char store[PATH_MAX];
    snprintf(store, sizeof store, "%s", scratch_path(name));
    snprintf(folder, PATH_MAX, "%s.adapter", store);
    CHECK_OK(diloco_config_set(config, "run.store", store, NULL));
    CHECK_OK(diloco_run_open(&run, config, "r0"));
    for (; *tensors; tensors++)
        CHECK_OK(diloco_run_tensor(
            run, &(diloco_tensor){.name = *tensors, .data = values, .n_dims = 2, .shape = {2, 3}}));
    if (facts) CHECK_OK(diloco_run_base(run, "peft_config.default", facts, facts, strlen(facts)));
    CHECK_OK(diloco_run_create(run));
    diloco_run_close(run);
    const diloco_status status = diloco_export(&report, config, "peft", "f32", folder);
    if (!status) CHECK_INT(3, report.tensors);
    diloco_config_destroy(config);
    return status;
}

TEST(adapter_becomes_a_config_and_its_tensors_without_the_adapters_name)
{
    static const char *const tensors[] = {a_of_q, b_of_q, a_of_embed, NULL};
    char folder[PATH_MAX], path[PATH_MAX + 64];
    dl_buf text;
    dl_map map;
    dl_st st;
    CHECK_OK(
        exported("whole", "peft_type LORA, r 2, lora_alpha 6, use_rslora True", tensors, folder));
    dl_buf_init(&text, 1 << 16);
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    CHECK_OK(dl_file_read(&text, path));
    CHECK_STR("{\"peft_type\":\"LORA\",\"base_model_name_or_path\":null,\"task_type\":null,"
              "\"inference_mode\":true,\"r\":2,\"lora_alpha\":6,\"use_rslora\":true,"
              "\"bias\":\"none\",\"target_modules\":[\"layers.0.q_proj\",\"embed\"]}",
              dl_buf_str(&text));
    dl_buf_deinit(&text);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    CHECK_OK(dl_map_open(&map, path));
    CHECK_OK(dl_st_open(&st, map.data, map.len));
    CHECK_INT(3, st.n);
    const dl_st_tensor *a = dl_st_find(&st, "base_model.model.layers.0.q_proj.lora_A.weight");
    CHECK(a != NULL && dl_st_find(&st, "base_model.model.layers.0.q_proj.lora_B.weight"));
    CHECK(dl_st_find(&st, "base_model.model.embed.lora_embedding_A"));
    CHECK_BYTES(values, st.data + a->begin, sizeof values);
    dl_st_close(&st);
    dl_map_close(&map);
}

static void check_refused(const char *name, const char *facts, const char *second,
                          const char *words)
{
    const char *const tensors[] = {a_of_q, second, NULL};
    char folder[PATH_MAX];
    CHECK_STATUS(DILOCO_EREFUSED, exported(name, facts, tensors, folder));
    CHECK_CONTAINS(words, diloco_error_text());
    CHECK(access(folder, F_OK) != 0);
}

TEST(adapter_that_the_run_does_not_determine_is_refused_by_name)
{
    static const char sound[] = "peft_type LORA, r 2, lora_alpha 6";
    char cut[128];
    memset(cut, 'x', sizeof cut - 1);
    cut[sizeof cut - 1] = 0;
    check_refused("none", NULL, b_of_q, "the run has no adapter of PEFT");
    check_refused("ia3", "peft_type IA3", b_of_q, "peft_type IA3");
    check_refused("dora", "peft_type LORA, r 2, use_dora True", b_of_q, "use_dora True");
    check_refused("ranks", "peft_type LORA, r 2, rank_pattern {'q': 4, 'v': 2}", b_of_q,
                  "rank_pattern {'q': 4");
    check_refused("cut", cut, b_of_q, "xxx");
    check_refused("number", "peft_type LORA, r two", b_of_q, "r two");
    check_refused("head", sound, "base_model.model.head.weight",
                  "base_model.model.head.weight is no LoRA matrix of adapter default");
    check_refused("other", sound, "base_model.model.q.lora_B.other.weight", "of adapter default");
    check_refused("module", sound, "base_model.model..lora_B.default.weight",
                  "is no LoRA matrix of adapter default");
}

TEST_MAIN(adapter_becomes_a_config_and_its_tensors_without_the_adapters_name,
          adapter_that_the_run_does_not_determine_is_refused_by_name)
