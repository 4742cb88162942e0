/* cmd_import.c - a model of Hugging Face's as what a run can begin from.
 *
 * diloco_import reads Hugging Face's config.json and safetensors, and writes the same values under
 * this project's names. This file reads the flags and prints the command that trains the result. */
#include "base/config.h"
#include "cli/cli.h"
#include "cli/display/units.h"
#include "fetch/fetch_data.h"
#include <diloco/train.h>

#include <inttypes.h>
#include <string.h>

/* Print one object. `positions` is the longest text, in tokens, that the model was made for. */
static diloco_status print_json(const diloco_import_report *r, const char *to)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, 1 << 20);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    dl_json_str(&json, "folder", to);
    dl_json_u64(&json, "parameters", r->parameters);
    dl_json_u64(&json, "tensors", r->tensors);
    dl_json_u64(&json, "files", r->files);
    dl_json_u64(&json, "positions", r->positions);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* Set `from` to the folder of the model, which is fetched into the cache if it is at an address. */
static diloco_status find_model(dl_config_path from, const char *target)
{
    static dl_config config; /* too large for some stacks */
    if (strstr(target, "://")) {
        dl_config_init(&config);
        return dl_fetch_import(from, target, &config);
    }
    if (strlen(target) >= sizeof(dl_config_path))
        return dl_fail(DILOCO_EINVAL, "%.200s…: the path is too long", target);
    strcpy(from, target);
    return DILOCO_OK;
}

/* The printed command names model.toml, which sets the architecture and trainer.init_from. Only the
 * path of the training data is missing in it. */
static diloco_status cmd_import(const dl_args *args)
{
    diloco_import_report r;
    dl_unit_text parameters;
    dl_config_path path, from;
    char word[DL_PATH_MAX + 8];
    const char *to = args->flags[DL_FLAG_TO_PATH];
    if (!to) return dl_fail(DILOCO_EINVAL, "import needs --out DIR, a folder for what it makes");
    DL_TRY(find_model(from, args->target));
    DL_TRY(diloco_import(&r, from, to));
    if (dl_args_has(args, DL_FLAG_JSON)) return print_json(&r, to);
    printf("%s parameters in %" PRIu64 " tensors of %" PRIu64 " file%s\n",
           dl_count_text(parameters, r.parameters), r.tensors, r.files, r.files == 1 ? "" : "s");
    snprintf(path, sizeof path, "%s/model.toml", to);
    printf("train it: diloco train %s --set data.train_path=FILE\n",
           dl_shell_word(word, sizeof word, path));
    return DILOCO_OK;
}

const dl_command dl_command_import = {
    .name = "import",
    .target = "DIR|URL",
    .summary = "convert a Hugging Face model, for a run to start from",
    .details =
        "DIR has config.json and safetensors, of Llama or Qwen3. The folder of --out then has\n"
        "model.safetensors, for trainer.init_from, and model.toml, a CONFIG that begins from it.\n"
        "A URL is fetched first:  diloco import hf://models/OWNER/NAME@COMMIT/ --out DIR",
    .flags = DL_FLAGS(DL_FLAG_TO_PATH, DL_FLAG_JSON),
    .run = cmd_import,
};
