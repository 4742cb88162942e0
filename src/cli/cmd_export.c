/* cmd_export.c - a run's model in a form that others read.
 *
 * diloco_export writes hf, npz, gguf and peft. The checkpoint of torch.distributed ("dcp") is
 * written by torch itself, in a Python process (export_dcp.h). Both read the newest state of the
 * run from its store, so no replica has to run. */
#include "cli/export_dcp.h"
#include "cli/settings/settings.h"
#include <diloco/train.h>

#include <inttypes.h>
#include <string.h>

/* Print one object. `entries` is the number of entries that the exported state has applied. */
static diloco_status print_json(const diloco_export_report *r, const char *format, const char *path)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, 1 << 20);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    dl_json_str(&json, "format", format);
    dl_json_str(&json, "path", path);
    dl_json_u64(&json, "entries", r->entry);
    dl_json_u64(&json, "tensors", r->tensors);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* Refuse an unknown format. The library lists its own formats, which are all but dcp. */
static diloco_status check_format(const char *format)
{
    const char *name;
    for (size_t i = 0; (name = diloco_export_format_at(i)); i++)
        if (!strcmp(name, format)) return DILOCO_OK;
    if (!strcmp(format, "dcp")) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "there is no format %.60s to export to: take hf, npz, gguf, peft or dcp",
                   format);
}

/* The flags are checked before the store is read, since a large model may take minutes to read.
 * --adapter is a second spelling of --to peft. */
static diloco_status cmd_export(const dl_args *args)
{
    dl_config config;
    diloco_export_report r;
    const char *format = args->flags[DL_FLAG_TO], *path = args->flags[DL_FLAG_TO_PATH];
    const char *dtype = dl_args_has(args, DL_FLAG_DTYPE) ? args->flags[DL_FLAG_DTYPE] : "f32";
    if (dl_args_has(args, DL_FLAG_ADAPTER) && !format) format = "peft";
    if (!format || !path)
        return dl_fail(DILOCO_EINVAL,
                       "export needs --to hf, npz, gguf, peft or dcp, and --out PATH");
    DL_TRY(check_format(format));
    if (dl_args_has(args, DL_FLAG_ADAPTER) && strcmp(format, "peft") != 0)
        return dl_fail(DILOCO_EINVAL, "--adapter is --to peft, and --to %.60s is another format",
                       format);
    DL_TRY(dl_settings_of_run(&config, args));
    if (strcmp(format, "dcp") == 0)
        DL_TRY(dl_export_dcp(&r, &config, dtype, path));
    else
        DL_TRY(diloco_export(&r, &config, format, dtype, path));
    if (dl_args_has(args, DL_FLAG_JSON)) return print_json(&r, format, path);
    printf("after %" PRIu64 " entries: %" PRIu64 " tensors as %s in %s\n", r.entry, r.tensors,
           dtype, path);
    return DILOCO_OK;
}

const dl_command dl_command_export = {
    .name = "export",
    .target = "URL|CONFIG",
    .summary = "a run's model as a Hugging Face or PEFT folder, npz, gguf or DCP",
    .details =
        "npz is for numpy, gguf for llama.cpp. --to peft writes the LoRA adapter of a run of\n"
        "PyTorch. --to dcp writes a checkpoint of torch.distributed: the model, and the state of "
        "the\n"
        "outer optimizer, with which diloco.dcp begins another run. It needs torch in the Python\n"
        "that DILOCO_PYTHON names (default: that of the wheel, or python3).\n"
        "  diloco export runs/demo --to hf --out model --dtype bf16",
    .flags = DL_FLAGS(DL_FLAG_TO, DL_FLAG_TO_PATH, DL_FLAG_DTYPE, DL_FLAG_ADAPTER, DL_FLAG_SET,
                      DL_FLAG_JSON),
    .sets = DL_SETS_MACHINE,
    .run = cmd_export,
};
