/* cmd_eval.c - the loss of a run's model on its validation data, or on any text.
 *
 * Settings that must agree come from the run; the data is a copy on this machine. diloco_eval reads
 * the newest shared model from the store and computes the mean loss of its targets. With --text the
 * data of the run is not needed. */
#include "cli/display/units.h"
#include "cli/settings/settings.h"
#include "fetch/fetch_data.h"
#include <diloco/train.h>

#include <inttypes.h>

/* The common beginning of evaluations on the run's data and on any text. */
static void begin_json(dl_json *json, dl_buf *out, const char *store, uint64_t entry,
                       uint64_t targets)
{
    dl_buf_init(out, 1 << 20);
    dl_json_init(json, out);
    dl_json_object(json, NULL);
    dl_json_str(json, "store", store);
    dl_json_u64(json, "entries", entry);
    dl_json_u64(json, "targets", targets);
}

/* Print one object. Images have no perplexity, because their targets are classes. */
static diloco_status print_json(const diloco_eval_result *r, const char *store)
{
    dl_buf out;
    dl_json json;
    begin_json(&json, &out, store, r->entry, r->targets);
    dl_json_f64(&json, "loss", r->loss);
    if (!r->images) dl_json_f64(&json, "perplexity", r->perplexity);
    dl_json_f64(&json, "accuracy", r->accuracy);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* Print one object for a text, with its bytes: they are the denominator of bits per byte. */
static diloco_status print_text_json(const diloco_text_result *r, const char *store)
{
    dl_buf out;
    dl_json json;
    begin_json(&json, &out, store, r->entry, r->targets);
    dl_json_u64(&json, "bytes", r->bytes);
    dl_json_f64(&json, "loss", r->loss);
    dl_json_f64(&json, "perplexity", r->perplexity);
    dl_json_f64(&json, "bits_per_byte", r->bits_per_byte);
    dl_json_f64(&json, "accuracy", r->accuracy);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* A text of the user's own, with the run's tokenizer. Bits per byte compare models with
 * different tokenizers. */
static diloco_status eval_text(const dl_args *args, const dl_config *config)
{
    diloco_text_result r;
    dl_unit_text targets;
    DL_TRY(diloco_eval_text(&r, config, args->flags[DL_FLAG_TEXT]));
    if (dl_args_has(args, DL_FLAG_JSON)) return print_text_json(&r, config->store);
    printf("after %" PRIu64 " entries: loss %.4f, perplexity %.3f, %.4f bits per byte, over %s "
           "tokens\n",
           r.entry, r.loss, r.perplexity, r.bits_per_byte, dl_count_text(targets, r.targets));
    return DILOCO_OK;
}

/* Data at an address such as s3:// is downloaded to this machine first (fetch/fetch_data.h). */
static diloco_status cmd_eval(const dl_args *args)
{
    dl_config config;
    diloco_eval_result result;
    dl_unit_text targets;
    DL_TRY(dl_settings_of_run(&config, args));
    if (dl_args_has(args, DL_FLAG_TEXT)) return eval_text(args, &config);
    if (!*config.train_path && !*config.test_path)
        return dl_fail(DILOCO_EINVAL,
                       "the run does not hold its data: add --set data.train_path=FILE (or "
                       "data.test_path)");
    DL_TRY(dl_fetch_data(&config));
    DL_TRY(diloco_eval(&result, &config));
    if (dl_args_has(args, DL_FLAG_JSON)) return print_json(&result, config.store);
    dl_count_text(targets, result.targets);
    printf("after %" PRIu64 " entries: validation loss %.4f, ", result.entry, result.loss);
    if (result.images)
        printf("accuracy %.2f %%, over %s images\n", 100 * result.accuracy, targets);
    else
        printf("perplexity %.3f, over %s tokens\n", result.perplexity, targets);
    return DILOCO_OK;
}

const dl_command dl_command_eval = {
    .name = "eval",
    .target = "URL|CONFIG",
    .summary = "loss of a run's model on its validation data, or on any text",
    .details = "With a CONFIG, its run.store names the run and its data.* the data. --text\n"
               "reports the loss of a text by tokens and by bytes.",
    .flags = DL_FLAGS(DL_FLAG_TEXT, DL_FLAG_SET, DL_FLAG_JSON),
    .sets = DL_SETS_MACHINE,
    .run = cmd_eval,
};
