/* export_peft.c - a folder that peft.PeftModel.from_pretrained loads: the LoRA adapter that a run
 * trains, as adapter_config.json and adapter_model.safetensors.
 *
 * The run's base has the facts of the adapter as "peft_config.NAME", and the names of the tensors
 * have its modules. PEFT's file leaves out the adapter's own name:
 *
 *     base_model.model.MODULE.lora_A.default.weight -> base_model.model.MODULE.lora_A.weight
 *
 * Adapters whose tensors or facts do not determine the folder are refused. adapter_config.json is
 * written last: a folder with one is whole. */
#include "interop/export.h"

#include <diloco/inspect.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_CUT = 127 }; /* a text of this length may have been longer */

static const char fact_prefix[] = "peft_config.", model_prefix[] = "base_model.model.";
static const char instead[] = "write it in Python with diloco.peft.save";

typedef char tensor_name[DILOCO_NAME_MAX + 1];

/* The run's adapter. */
typedef struct adapter {
    tensor_name name;         /* PEFT's; "default" unless the user chose another */
    char facts[KIND_CUT + 1]; /* "peft_type LORA, r 4, lora_alpha 8" */
    size_t n;                 /* adapters of the run; the facts are the last one's */
    uint64_t rank;            /* "r"; 0: the facts do not have it */
    double alpha;
    bool rslora; /* scaled by alpha / sqrt(r) and not alpha / r (arXiv:2312.03732) */
} adapter;

/* ---- the facts */

/* A diloco_base_fn: counts the adapters and notes the facts. */
static diloco_status take_fact(void *user, const char *name, const char *kind)
{
    adapter *a = user;
    if (strncmp(name, fact_prefix, sizeof fact_prefix - 1) != 0) return DILOCO_OK;
    a->n++;
    snprintf(a->name, sizeof a->name, "%s", name + sizeof fact_prefix - 1);
    snprintf(a->facts, sizeof a->facts, "%s", kind);
    return DILOCO_OK;
}

static diloco_status refuse_fact(const char *fact)
{
    return dl_fail(DILOCO_EREFUSED,
                   "the adapter has \"%.100s\", which export does not write to a PEFT folder: %s",
                   fact, instead);
}

/* Reads one fact "NAME VALUE". A fact that is not understood is refused: adapter_config.json would
 * be silent about it, and PEFT would compute another model. */
static diloco_status read_fact(adapter *a, const char *fact)
{
    char *end = NULL;
    if (strcmp(fact, "peft_type LORA") == 0) return DILOCO_OK;
    a->rslora = a->rslora || strcmp(fact, "use_rslora True") == 0;
    if (strcmp(fact, "use_rslora True") == 0) return DILOCO_OK;
    if (strncmp(fact, "r ", 2) == 0) a->rank = strtoull(fact + 2, &end, 10);
    if (strncmp(fact, "lora_alpha ", 11) == 0) a->alpha = strtod(fact + 11, &end);
    return end && !*end ? DILOCO_OK : refuse_fact(fact);
}

/* Reads all facts. A text that may have been cut is refused, because its end is not known. */
static diloco_status read_facts(adapter *a)
{
    char text[sizeof a->facts], *rest = NULL;
    if (strlen(a->facts) >= KIND_CUT) return refuse_fact(a->facts);
    memcpy(text, a->facts, sizeof text);
    for (char *fact = strtok_r(text, ",", &rest); fact; fact = strtok_r(NULL, ",", &rest))
        DL_TRY(read_fact(a, fact + strspn(fact, " ")));
    return a->rank ? DILOCO_OK : refuse_fact(a->facts);
}

/* Finds the run's one adapter and its facts. */
static diloco_status find_adapter(adapter *a, const dl_export *e)
{
    DL_TRY(diloco_base_walk(e->config->store, take_fact, a));
    if (a->n == 1) return read_facts(a);
    if (a->n)
        return dl_fail(DILOCO_EREFUSED, "the run has %zu adapters, and a PEFT folder has one: %s",
                       a->n, instead);
    return dl_fail(DILOCO_EREFUSED, "the run has no adapter of PEFT: its replicas register one "
                                    "with a model of peft.get_peft_model (docs/python.md)");
}

/* ---- the tensors */

static bool ends_with(const char *text, size_t len, const char *end)
{
    const size_t n = strlen(end);
    return len >= n && memcmp(text + len - n, end, n) == 0;
}

/* Sets `out` to the name that PEFT's file gives a tensor of the adapter. Returns the length of
 * base_model.model.MODULE in `name`, or 0 if the name has another form. */
static size_t module_of(tensor_name out, const char *name, const adapter *a)
{
    static const char *const parts[][2] = {{".lora_A.", ".weight"},
                                           {".lora_B.", ".weight"},
                                           {".lora_embedding_A.", ""},
                                           {".lora_embedding_B.", ""}};
    if (strncmp(name, model_prefix, sizeof model_prefix - 1) != 0) return 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char end[2 * sizeof(tensor_name)];
        snprintf(end, sizeof end, "%s%s%s", parts[i][0], a->name, parts[i][1]);
        const size_t len = strlen(name), n = strlen(end);
        if (len <= sizeof model_prefix - 1 + n || !ends_with(name, len, end)) continue;
        snprintf(out, sizeof(tensor_name), "%.*s%.*s%s", (int)(len - n), name,
                 (int)strlen(parts[i][0]) - 1, parts[i][0], parts[i][1]);
        return len - n;
    }
    return 0;
}

/* Adds a module to the array of target_modules. A module has two tensors, one directly after the
 * other, so it is added with the first of them. `before` is the previous tensor's name, or NULL. */
static void put_module(dl_json *modules, const char *name, size_t len, const char *before)
{
    if (before && strncmp(name, before, len) == 0 && strncmp(before + len, ".lora_", 6) == 0)
        return;
    dl_json_strn(modules, NULL, name + sizeof model_prefix - 1, len - (sizeof model_prefix - 1));
}

/* Renames all tensors in `e`; their new names are stored in `names`. Fails at the first tensor that
 * is no LoRA matrix of the adapter, since the folder could not restore it. */
static diloco_status name_tensors(dl_json *modules, dl_export *e, tensor_name *names,
                                  const adapter *a)
{
    const char *before = NULL;
    for (size_t i = 0; i < e->n; i++) {
        const char *name = e->tensors[i].name;
        const size_t len = module_of(names[i], name, a);
        if (!len)
            return dl_fail(DILOCO_EREFUSED,
                           "tensor %s is no LoRA matrix of adapter %s, which is all that export "
                           "writes to a PEFT folder: %s",
                           name, a->name, instead);
        put_module(modules, name, len, before);
        before = name;
        e->tensors[i].name = names[i];
    }
    return DILOCO_OK;
}

/* ---- the folder */

/* Writes both files. `e` has the tensors under the run's names, `renamed` those of PEFT. The base
 * model is not named, because the run does not record where it came from. */
static diloco_status write_config(const dl_export *e, dl_export *renamed, tensor_name *names,
                                  const adapter *a, dl_buf *text)
{
    dl_json j;
    dl_json_init(&j, text);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "peft_type", "LORA");
    dl_json_str(&j, "base_model_name_or_path", NULL);
    dl_json_str(&j, "task_type", NULL);
    dl_json_bool(&j, "inference_mode", true);
    dl_json_u64(&j, "r", a->rank);
    dl_json_f64(&j, "lora_alpha", a->alpha);
    dl_json_bool(&j, "use_rslora", a->rslora);
    dl_json_str(&j, "bias", "none");
    dl_json_array(&j, "target_modules");
    DL_TRY(name_tensors(&j, renamed, names, a));
    dl_json_end(&j);
    dl_json_end(&j);
    DL_TRY(dl_json_done(&j));
    DL_TRY(dl_dir_make(e->to));
    DL_TRY(dl_export_weights(renamed, "adapter_model.safetensors"));
    return dl_export_text(e, "adapter_config.json", text);
}

static diloco_status write_peft(const dl_export *e)
{
    adapter a = {.n = 0};
    dl_buf text;
    DL_TRY(find_adapter(&a, e));
    dl_export renamed = *e;
    renamed.tensors = malloc(dl_size_max(e->n, 1) * sizeof *e->tensors);
    tensor_name *names = calloc(dl_size_max(e->n, 1), sizeof *names);
    dl_buf_init(&text, DL_ST_HEADER_MAX);
    diloco_status status = dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", e->n);
    if (renamed.tensors && names) {
        memcpy(renamed.tensors, e->tensors, e->n * sizeof *e->tensors);
        status = write_config(e, &renamed, names, &a, &text);
    }
    dl_buf_deinit(&text);
    free(renamed.tensors);
    free(names);
    return status;
}

const dl_export_format dl_export_peft = {"peft", true, true, false, write_peft};
