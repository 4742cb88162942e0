/* import_test.c - models of Hugging Face's in: their logits are those of transformers
 * (tests/goldens/hf_logits.py). Their values come through to the bit whatever their width and their
 * files. An unsupported model is refused by name.
 *
 * The logits' tolerance is the sum of a few hundred float32 products in another order. */
#include "goldens/hf_logits.h"
#include "model/hf.h"
#include "tensor/widths.h"
#include "train/weights.h"
#include "train_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- a folder */

static char *new_folder(void)
{
    static int n;
    char name[32];
    snprintf(name, sizeof name, "hf%d", n++);
    char *path = strdup(scratch_path(name));
    CHECK_INT(0, mkdir(path, 0777));
    return path;
}

static void write_in(const char *folder, const char *file, const void *data, size_t len)
{
    char path[DL_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    CHECK_OK(dl_file_write(path, &(dl_span){data, len}, 1));
}

static void write_config(const char *folder, const char *text)
{
    write_in(folder, "config.json", text, strlen(text));
}

/* Element k of the golden models' tensors. */
static void wave(float *to, size_t n, const char *name, int n_dims)
{
    int sum = 0;
    for (const char *c = name; *c; c++)
        sum += (unsigned char)*c;
    for (size_t k = 0; k < n; k++) {
        double x = sin((double)k * 0.7 + sum * 1.3);
        to[k] = (float)(n_dims == 1 ? 1 + 0.1 * x : 0.2 * x);
    }
}

enum { MAX_TENSORS = 64 };

/* The tensors of a configuration, filled with waves of a width. */
typedef struct weights {
    dl_st_tensor tensors[MAX_TENSORS + 1];
    dl_span spans[MAX_TENSORS + 2]; /* spans[1 + i]: owned */
    size_t n;
} weights;

static weights make_weights(const char *config_text, const char *dtype)
{
    weights w = {.n = 0};
    dl_config config;
    dl_hf_facts facts;
    dl_model *model;
    dl_config_init(&config);
    CHECK_OK(dl_hf_config_read(&config, &facts, config_text, strlen(config_text)));
    const dl_sample sample = dl_sample_tokens(1, 1);
    CHECK_OK(dl_model_sketch(&model, &config, &sample));
    const diloco_tensor *own = dl_model_tensors(model, &w.n);
    CHECK(w.n <= MAX_TENSORS);
    for (size_t i = 0; i < w.n; i++) {
        size_t count = own[i].shape[0] * (own[i].n_dims == 2 ? own[i].shape[1] : 1);
        size_t bytes = count * dl_st_dtype_size(dtype);
        float *wide = malloc(count * sizeof *wide);
        unsigned char *data = malloc(bytes);
        wave(wide, count, own[i].name, own[i].n_dims);
        dl_narrow(data, wide, count, dtype);
        free(wide);
        w.tensors[i] =
            (dl_st_tensor){.name = strdup(own[i].name), .dtype = dtype, .n_dims = own[i].n_dims};
        memcpy(w.tensors[i].shape, own[i].shape, sizeof own[i].shape);
        w.spans[1 + i] = (dl_span){data, bytes};
    }
    dl_model_destroy(model);
    return w;
}

static void free_weights(weights *w)
{
    for (size_t i = 0; i < w->n; i++) {
        free((void *)(uintptr_t)w->tensors[i].name);
        free((void *)(uintptr_t)w->spans[1 + i].data);
    }
}

/* Tensors first … first + n - 1 into a file. */
static void write_part(const char *folder, const char *file, weights *w, size_t first, size_t n)
{
    dl_buf header;
    dl_span spans[MAX_TENSORS + 2];
    char path[DL_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    for (size_t i = 0; i < n; i++)
        spans[1 + i] = w->spans[1 + first + i];
    dl_buf_init(&header, 1 << 20);
    CHECK_OK(dl_st_write(path, &header, spans, w->tensors + first, n, NULL, 0));
    dl_buf_deinit(&header);
}

/* A whole folder in one file of weights; the caller frees its name. */
static char *folder_of(const char *config, const char *dtype)
{
    char *folder = new_folder();
    weights w = make_weights(config, dtype);
    write_config(folder, config);
    write_part(folder, "model.safetensors", &w, 0, w.n);
    free_weights(&w);
    return folder;
}

/* ---- logits */

/* A setup of the imported model, its weights loaded. */
static void open_imported(dl_setup *s, const char *folder, const char *to)
{
    diloco_import_report report;
    dl_config config;
    dl_hf_facts facts;
    dl_buf text;
    char path[DL_PATH_MAX + 64];
    CHECK_OK(diloco_import(&report, folder, to));
    dl_config_init(&config);
    snprintf(path, sizeof path, "%s/config.json", folder);
    dl_buf_init(&text, 1 << 20);
    CHECK_OK(dl_file_read(&text, path));
    CHECK_OK(dl_hf_config_read(&config, &facts, text.data, text.len));
    dl_buf_deinit(&text);
    set(&config, "run.threads", "1");
    set(&config, "parameters.model.context", "40");
    set(&config, "data.datasource", "tokens");
    CHECK_OK(dl_setup_open(s, &config, 0, 1));
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    CHECK_OK(dl_weights_init(s, path));
}

static void check_logits(const hf_model *golden, const char *folder, const char *to)
{
    dl_setup s;
    int32_t tokens[64];
    float logits[HF_VOCAB];
    open_imported(&s, folder, to);
    for (int t = 0; t < 64; t++)
        tokens[t] = t * t % HF_VOCAB;
    for (int i = 0; i < HF_LENGTHS; i++) {
        CHECK_OK(dl_model_logits(s.model, logits, tokens, hf_lengths[i]));
        for (int v = 0; v < HF_VOCAB; v++)
            CHECK_NEAR(golden->logits[i][v], logits[v], 1e-4);
    }
    dl_setup_close(&s);
}

enum { N_MODELS = sizeof hf_models / sizeof hf_models[0] };

TEST(logits_are_those_of_transformers)
{
    for (size_t i = 0; i < N_MODELS; i++) {
        char *folder = folder_of(hf_models[i].config, "F32"), *to = new_folder();
        check_logits(&hf_models[i], folder, to);
        free(folder), free(to);
    }
}

/* ---- values */

/* Every tensor of the imported file is the exact widening of what the folder had. */
static void check_values(const weights *w, const char *to)
{
    dl_map map;
    dl_st st;
    char path[DL_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    CHECK_OK(dl_map_open(&map, path));
    CHECK_OK(dl_st_open(&st, map.data, map.len));
    CHECK_INT(w->n, st.n);
    for (size_t i = 0; i < w->n; i++) {
        const dl_st_tensor *t = dl_st_find(&st, w->tensors[i].name);
        CHECK(t != NULL);
        CHECK_STR("F32", t->dtype);
        size_t count = (t->end - t->begin) / sizeof(float);
        float *wide = malloc(count * sizeof *wide);
        dl_widen(wide, w->spans[1 + i].data, count, w->tensors[i].dtype);
        CHECK_BYTES(wide, st.data + t->begin, count * sizeof *wide);
        free(wide);
    }
    dl_st_close(&st);
    dl_map_close(&map);
}

TEST(values_of_every_width_come_through_exactly)
{
    static const char *const dtypes[] = {"F32", "BF16", "F16"};
    for (int i = 0; i < 3; i++) {
        diloco_import_report report;
        char *folder = folder_of(hf_models[1].config, dtypes[i]), *to = new_folder();
        weights w = make_weights(hf_models[1].config, dtypes[i]);
        CHECK_OK(diloco_import(&report, folder, to));
        CHECK_INT(w.n, report.tensors);
        CHECK_INT(1, report.files);
        CHECK_INT(64, report.positions);
        check_values(&w, to);
        free_weights(&w);
        free(folder), free(to);
    }
}

/* The index of a folder whose first three tensors are in one file and the rest in another.
 * The last tensor has `wrong` in place of the second file's name. */
static void write_index(const char *folder, const weights *w, const char *wrong)
{
    dl_buf text;
    dl_buf_init(&text, 1 << 20);
    CHECK_OK(dl_buf_addf(&text, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {"));
    for (size_t i = 0; i < w->n; i++) {
        const char *file =
            i < 3 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
        if (i + 1 == w->n && wrong) file = wrong;
        CHECK_OK(dl_buf_addf(&text, "%s\"%s\": \"%s\"", i ? ", " : "", w->tensors[i].name, file));
    }
    CHECK_OK(dl_buf_addf(&text, "}}"));
    write_in(folder, "model.safetensors.index.json", text.data, text.len);
    dl_buf_deinit(&text);
}

static char *sharded_folder(weights *w, const char *wrong)
{
    char *folder = new_folder();
    write_config(folder, hf_models[0].config);
    write_part(folder, "model-00001-of-00002.safetensors", w, 0, 3);
    write_part(folder, "model-00002-of-00002.safetensors", w, 3, w->n - 3);
    write_index(folder, w, wrong);
    return folder;
}

TEST(a_model_may_be_cut_into_several_files)
{
    weights w = make_weights(hf_models[0].config, "BF16");
    diloco_import_report report;
    char *folder = sharded_folder(&w, NULL), *to = new_folder();
    CHECK_OK(diloco_import(&report, folder, to));
    CHECK_INT(2, report.files);
    check_values(&w, to);
    free_weights(&w);
    free(folder), free(to);
}

/* ---- refusals */

static void refused(diloco_status status, const char *part, const char *folder)
{
    diloco_import_report report;
    char to[DL_PATH_MAX + 64];
    snprintf(to, sizeof to, "%s/out", folder);
    CHECK_STATUS(status, diloco_import(&report, folder, to));
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK(!dl_file_exists(to)); /* nothing was made */
}

TEST(index_with_forged_sizes_or_paths_out_of_its_folder_is_refused)
{
    static const struct {
        const char *file, *says;
        diloco_status status;
    } wrongs[] = {
        {"../hf0/model.safetensors", "is not the name of a file in the folder", DILOCO_EPROTO},
        {"/etc/passwd", "is not the name of a file in the folder", DILOCO_EPROTO},
        {"..", "is not the name of a file in the folder", DILOCO_EPROTO},
        {".hidden", "is not the name of a file in the folder", DILOCO_EPROTO},
        {"a\\\\b", "is not the name of a file in the folder", DILOCO_EPROTO},
        {"", "is not the name of a file in the folder", DILOCO_EPROTO},
        {"model-00001-of-00002.safetensors", "which does not have it", DILOCO_EPROTO},
        {"none.safetensors", "none.safetensors", DILOCO_ENOENT},
    };
    weights w = make_weights(hf_models[0].config, "F32");
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        char *folder = sharded_folder(&w, wrongs[i].file);
        refused(wrongs[i].status, wrongs[i].says, folder);
        free(folder);
    }
    free_weights(&w);
}

TEST(a_tensor_in_two_files_is_refused)
{
    weights w = make_weights(hf_models[0].config, "F32");
    char *folder = sharded_folder(&w, NULL);
    write_part(folder, "model-00001-of-00002.safetensors", &w, 0, 4);
    refused(DILOCO_EPROTO, "is in model-0000", folder);
    free_weights(&w);
    free(folder);
}

TEST(tensors_must_be_those_that_the_configuration_says)
{
    enum { MISSING, MISSHAPED, MISTYPED, SURPLUS, N };
    static const char *const says[N] = {
        "there is no tensor model.layers.0.self_attn.q_proj.weight",
        "does not have the shape 24 x 24 of config.json", "is I16; F32, BF16 and F16 can be read",
        "tensor model.layers.0.self_attn.q_proj.bias is not one of the model's"};
    for (int k = 0; k < N; k++) {
        weights own = make_weights(hf_models[0].config, k == MISTYPED ? "F16" : "F32"), w = own;
        char *folder = new_folder();
        write_config(folder, hf_models[0].config);
        if (k == MISSHAPED) w.tensors[1].shape[0] = 12, w.tensors[1].shape[1] = 48;
        if (k == MISTYPED) w.tensors[1].dtype = "I16";
        if (k == MISSING) w.tensors[1].name = w.tensors[w.n - 1].name;
        if (k == SURPLUS) {
            static const float bias[2] = {0};
            w.tensors[w.n] = (dl_st_tensor){.name = "model.layers.0.self_attn.q_proj.bias",
                                            .dtype = "F32",
                                            .n_dims = 1,
                                            .shape = {2}};
            w.spans[1 + w.n] = (dl_span){bias, sizeof bias};
        }
        write_part(folder, "model.safetensors", &w, 0, w.n + (k == SURPLUS) - (k == MISSING));
        refused(DILOCO_EPROTO, says[k], folder);
        free_weights(&own);
        free(folder);
    }
}

TEST(a_tied_head_that_is_another_matrix_is_refused)
{
    weights w = make_weights(hf_models[1].config, "F32"); /* tied */
    char *folder = new_folder(), *to = new_folder();
    diloco_import_report report;
    write_config(folder, hf_models[1].config);
    w.tensors[w.n] = w.tensors[0];
    w.tensors[w.n].name = "lm_head.weight";
    w.spans[1 + w.n] = w.spans[1];
    write_part(folder, "model.safetensors", &w, 0, w.n + 1);
    CHECK_OK(diloco_import(&report, folder, to)); /* the same a second time */
    float *other = malloc(w.spans[1].len);
    memcpy(other, w.spans[1].data, w.spans[1].len);
    other[5] += 1;
    w.spans[1 + w.n].data = other;
    write_part(folder, "model.safetensors", &w, 0, w.n + 1);
    refused(DILOCO_EPROTO, "lm_head.weight is another matrix", folder);
    free_weights(&w);
    free(other), free(folder), free(to);
}

TEST(a_folder_that_lacks_something_is_refused)
{
    char *empty = new_folder(), *no_weights = new_folder();
    refused(DILOCO_ENOENT, "config.json", empty);
    write_config(no_weights, hf_models[0].config);
    refused(DILOCO_ENOENT, "has neither model.safetensors nor model.safetensors.index.json",
            no_weights);
    write_in(no_weights, "model.safetensors", "nonsense", 8);
    refused(DILOCO_EPROTO, "model.safetensors", no_weights);
    write_config(no_weights, "{");
    refused(DILOCO_EPROTO, "config.json", no_weights);
    free(empty), free(no_weights);
}

TEST(values_that_are_not_finite_are_refused_by_the_tensor_name)
{
    static const float bad[] = {NAN, INFINITY};
    static const char *const dtypes[] = {"F32", "BF16"};
    for (size_t k = 0; k < 4; k++) {
        weights w = make_weights(hf_models[0].config, dtypes[k % 2]);
        char *folder = new_folder();
        const size_t width = dl_st_dtype_size(dtypes[k % 2]);
        write_config(folder, hf_models[0].config);
        dl_narrow((unsigned char *)(uintptr_t)w.spans[2].data + 7 * width, &bad[k / 2], 1,
                  dtypes[k % 2]);
        char says[160];
        snprintf(says, sizeof says, "tensor %s is not finite: element 7 of ", w.tensors[1].name);
        write_part(folder, "model.safetensors", &w, 0, w.n);
        refused(DILOCO_ENUMERIC, says, folder);
        free_weights(&w);
        free(folder);
    }
}

TEST(imported_configuration_names_its_weights_from_any_folder)
{
    diloco_import_report report;
    dl_buf text;
    char path[DL_PATH_MAX + 64], *folder = folder_of(hf_models[0].config, "F32"),
                                 *to = new_folder(), *back = getcwd(NULL, 0);
    const char *name = strrchr(to, '/');
    CHECK_INT(0, chdir(scratch_path("")));
    CHECK_OK(diloco_import(&report, folder, name + 1));
    CHECK_INT(0, chdir(back));
    snprintf(path, sizeof path, "%s/model.toml", to);
    dl_buf_init(&text, 1 << 20);
    CHECK_OK(dl_file_read(&text, path));
    CHECK_OK(dl_buf_add(&text, "", 1));
    CHECK_CONTAINS("init_from = \"/", (const char *)text.data);
    dl_buf_deinit(&text);
    free(folder), free(to), free(back);
}

TEST_MAIN(logits_are_those_of_transformers, values_of_every_width_come_through_exactly,
          a_model_may_be_cut_into_several_files,
          index_with_forged_sizes_or_paths_out_of_its_folder_is_refused,
          a_tensor_in_two_files_is_refused, tensors_must_be_those_that_the_configuration_says,
          a_tied_head_that_is_another_matrix_is_refused, a_folder_that_lacks_something_is_refused,
          values_that_are_not_finite_are_refused_by_the_tensor_name,
          imported_configuration_names_its_weights_from_any_folder)
