/* trial.c - train, evaluate, add up the record, write the result.
 *
 * Everything in a result but the loss is read from the record, which all processes of all replicas
 * append to. So a trial that was stopped and resumed has the numbers of one that was not:
 *
 *     step      tokens; seconds as tokens / tokens_per_s
 *     commit    bytes of the entry, seconds waited and exchanged
 *     end       the digest                                                                  */
#include "cli/sweep/trial.h"

#include "base/file.h"
#include "base/hash.h"
#include "cli/crew/crew.h"
#include <diloco/inspect.h>
#include <diloco/train.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes of result.json. */
enum { RESULT_MAX = 1 << 16 };

/* Join the trial's folder and a name. Returns DILOCO_EINVAL if the path is too long. */
static diloco_status path_in(dl_config_path out, const char *folder, const char *name)
{
    int n = snprintf(out, sizeof(dl_config_path), "%s/%s", folder, name);
    if (n > 0 && (size_t)n < sizeof(dl_config_path)) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "the path of %s is too long", name);
}

/* ---- the result's file */

/* Write the digest of the settings that are equal on every replica. A result counts only for the
 * same settings. */
static diloco_status digest_of(char hex[DL_HASH_HEX + 1], const dl_config *config)
{
    dl_hash digest;
    DL_TRY(dl_options_digest(&digest, dl_config_table, config));
    dl_hash_to_hex(hex, digest);
    return DILOCO_OK;
}

/* result.json, sweep --json and tune.json have these same members. */
void dl_trial_json(dl_json *j, const dl_trial_result *r)
{
    dl_json_u64(j, "entries", r->entries);
    dl_json_u64(j, "parameters", r->parameters);
    dl_json_u64(j, "steps", r->steps);
    dl_json_u64(j, "tokens", r->tokens);
    dl_json_u64(j, "bytes_sent", r->bytes_sent);
    dl_json_u64(j, "bytes_received", r->bytes_received);
    dl_json_f64(j, "data_parallel_bytes", r->data_parallel_bytes);
    dl_json_f64(j, "train_s", r->train_s);
    dl_json_f64(j, "wait_s", r->wait_s);
    dl_json_f64(j, "exchange_s", r->exchange_s);
    dl_json_f64(j, "loss", r->loss);
    dl_json_f64(j, "perplexity", r->perplexity);
    dl_json_str(j, "digest", r->digest);
}

/* dl_file_write replaces the file as a whole, so a result is whole or missing. */
static diloco_status write_result(const char *folder, const char *config_hex,
                                  const dl_trial_result *r)
{
    dl_config_path path;
    dl_buf out;
    dl_json j;
    DL_TRY(path_in(path, folder, "result.json"));
    dl_buf_init(&out, RESULT_MAX);
    dl_json_init(&j, &out);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "config_digest", config_hex);
    dl_trial_json(&j, r);
    dl_json_end(&j);
    diloco_status status = dl_json_done(&j);
    const dl_span spans[] = {{out.data, out.len}, {"\n", 1}};
    if (!status) status = dl_file_write(path, spans, 2);
    dl_buf_deinit(&out);
    return status;
}

/* A member that is missing makes the result damaged (DILOCO_EPROTO). */
static diloco_status take_result(dl_trial_result *r, char config_hex[DL_HASH_HEX + 1],
                                 dl_json_value v)
{
    DL_TRY(dl_json_read_str(config_hex, DL_HASH_HEX + 1, v, "config_digest"));
    DL_TRY(dl_json_read_u64(&r->entries, v, "entries", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&r->parameters, v, "parameters", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&r->steps, v, "steps", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&r->tokens, v, "tokens", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&r->bytes_sent, v, "bytes_sent", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&r->bytes_received, v, "bytes_received", UINT64_MAX));
    DL_TRY(dl_json_read_f64(&r->data_parallel_bytes, v, "data_parallel_bytes"));
    DL_TRY(dl_json_read_f64(&r->train_s, v, "train_s"));
    DL_TRY(dl_json_read_f64(&r->wait_s, v, "wait_s"));
    DL_TRY(dl_json_read_f64(&r->exchange_s, v, "exchange_s"));
    DL_TRY(dl_json_read_f64(&r->loss, v, "loss"));
    DL_TRY(dl_json_read_f64(&r->perplexity, v, "perplexity"));
    return dl_json_read_str(r->digest, sizeof r->digest, v, "digest");
}

/* Settings that differ are an error, and not a reason to train again: the folder is someone's
 * result. */
diloco_status dl_trial_read(dl_trial_result *out, const dl_config *config, const char *folder)
{
    char wanted[DL_HASH_HEX + 1], found[DL_HASH_HEX + 1];
    dl_config_path path;
    dl_buf text;
    dl_json_value value;
    DL_TRY(path_in(path, folder, "result.json"));
    DL_TRY(digest_of(wanted, config));
    dl_buf_init(&text, RESULT_MAX);
    diloco_status status = dl_file_read(&text, path);
    if (!status) status = dl_json_parse(&value, text.data, text.len);
    if (!status) status = take_result(out, found, value);
    dl_buf_deinit(&text);
    if (status) return status == DILOCO_EPROTO ? dl_fail_context(status, "%s", path) : status;
    if (strcmp(wanted, found) == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EDIFFERS,
                   "%s is the result of other settings: take another folder, or move it away",
                   path);
}

/* ---- the record */

/* A number that is missing or not finite counts as 0. */
static double number(dl_json_value event, const char *key)
{
    double value = 0;
    return dl_json_as_f64(&value, dl_json_get(event, key)) || !isfinite(value) ? 0 : value;
}

/* Numbers that a count cannot have count as 0: a cast of them is undefined. */
static uint64_t count(dl_json_value event, const char *key)
{
    const double value = number(event, key);
    return value > 0 && value < (double)UINT64_MAX ? (uint64_t)value : 0;
}

/* The digest is that of the last "end" line. */
static void add_event(dl_trial_result *r, dl_json_value event)
{
    dl_json_value kind = dl_json_get(event, "event");
    if (dl_json_is(kind, "step")) {
        double rate = number(event, "tokens_per_s");
        r->steps++;
        r->tokens += count(event, "tokens");
        if (rate > 0) r->train_s += (double)count(event, "tokens") / rate;
    } else if (dl_json_is(kind, "commit")) {
        r->bytes_sent += count(event, "bytes_sent");
        r->bytes_received += count(event, "bytes_received");
        r->wait_s += number(event, "wait_s");
        r->exchange_s += number(event, "exchange_s");
    } else if (dl_json_is(kind, "end")) {
        if (dl_json_read_str(r->digest, sizeof r->digest, event, "digest")) r->digest[0] = '\0';
    }
}

/* A line that is not whole is where a replica was killed. */
diloco_status dl_trial_add_record(dl_trial_result *r, const char *path, double replicas)
{
    dl_map map;
    DL_TRY(dl_map_open(&map, path));
    const char *at = (const char *)map.data, *end = at + map.len, *newline;
    /* A last line without a newline is left out: its process was killed while it wrote. */
    for (; at < end && (newline = memchr(at, '\n', (size_t)(end - at))); at = newline + 1) {
        dl_json_value event;
        if (!dl_json_parse(&event, at, (size_t)(newline - at))) add_event(r, event);
    }
    dl_map_close(&map);
    r->train_s /= replicas;
    r->wait_s /= replicas;
    r->exchange_s /= replicas;
    return DILOCO_OK;
}

/* ---- a trial */

/* On a terminal a trial shows its progress; elsewhere the lines of many trials would hide the
 * results. */
dl_args dl_trial_args(const dl_args *args)
{
    dl_args inner = *args;
    bool shown = isatty(STDOUT_FILENO) && !dl_args_has(args, DL_FLAG_JSON);
    if (!shown && !dl_args_has(args, DL_FLAG_VERBOSE)) inner.flags[DL_FLAG_QUIET] = "";
    return inner;
}

/* The three options that make a trial independent of others. */
static diloco_status set_folder(dl_config *config, const char *folder)
{
    static const char *const options[][2] = {
        {"run.store", "store"}, {"run.state_dir", "state"}, {"run.record", "record.jsonl"}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        dl_config_path path;
        DL_TRY(path_in(path, folder, options[i][1]));
        DL_TRY(dl_config_set(config, options[i][0], path, "trial"));
    }
    return dl_dir_make(folder);
}

/* Check that there is data to evaluate on. It is needed before hours of training, not after. */
static diloco_status check_can_evaluate(const dl_config *config)
{
    diloco_data_report data;
    DL_TRY(diloco_data_check(&data, config));
    if (data.test_tokens > 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "there is no validation data to compare by: set data.test_path, "
                                  "or data.test_fraction above 0");
}

/* The trial's own JSON would mix with that of the command. */
static diloco_status train(dl_config *config, const dl_args *args)
{
    dl_args inner = *args;
    inner.flags[DL_FLAG_JSON] = NULL;
    DL_TRY(diloco_train_check(config));
    DL_TRY(check_can_evaluate(config));
    return dl_crew_create_and_run(config, &inner);
}

/* The loss is of all validation data, by the shared model after the last entry. */
static diloco_status measure(dl_trial_result *r, const dl_config *config)
{
    diloco_eval_result eval;
    DL_TRY(diloco_eval(&eval, config));
    diloco_run_status run;
    diloco_status status = diloco_run_status_read(&run, config->store, 0);
    *r = (dl_trial_result){.entries = eval.entry,
                           .parameters = run.parameters,
                           .loss = eval.loss,
                           .perplexity = eval.perplexity};
    diloco_run_status_free(&run);
    if (!status) status = dl_trial_add_record(r, config->record, (double)config->replicas);
    /* One float32 for each parameter and step, which is what a replica sends in an ideal
     * all-reduce. */
    r->data_parallel_bytes = (double)sizeof(float) * (double)r->parameters * (double)r->steps;
    return status;
}

/* Read the result, or train on from where an earlier call was stopped, then write it last. */
diloco_status dl_trial_run(dl_trial_result *out, dl_config *config, const char *folder,
                           const dl_args *args)
{
    char hex[DL_HASH_HEX + 1];
    diloco_status status = dl_trial_read(out, config, folder);
    if (status != DILOCO_ENOENT) return status;
    DL_TRY(set_folder(config, folder));
    DL_TRY(digest_of(hex, config)); /* before training resolves anything */
    DL_TRY(train(config, args));
    DL_TRY(measure(out, config));
    return write_result(folder, hex, out);
}
