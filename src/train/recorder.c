/* recorder.c - every line passes `sink`, whether the trainer or the run wrote it.
 *
 *     trainer: dl_recorder_end --> diloco_run_record --+--> rec/<replica>.<g>/<k>.jsonl.zst
 *                                                      |
 *     run: commit, abort, contribution, … -------------+--> sink --> run.record, hook
 *
 * A line goes to the file with one write on a descriptor opened O_APPEND, so replicas of one
 * machine share a file without mixing lines. A record that cannot be written does not stop
 * training. One warning reports it, and the lines are in the store, too. */
#include "train/recorder.h"

#include "base/file.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Bytes of a line at most. MAX_UNAPPLIED: steps without a finite gradient after which a replica
 * gives up; a single one may be a defect of one batch. */
enum { LINE_MAX_BYTES = 1 << 20, MAX_UNAPPLIED = 100 };

/* Writes a line to run.record. The text and its line break are one write, as no other replica may
 * write between them; a short write is not repeated for the same reason. */
static void write_line(dl_recorder *recorder, const char *line, size_t len)
{
    char newline = '\n';
    struct iovec parts[2] = {{(void *)(uintptr_t)line, len}, {&newline, 1}};
    ssize_t written;
    do
        written = writev(recorder->fd, parts, 2);
    while (written < 0 && errno == EINTR);
    if (written == (ssize_t)len + 1 || recorder->failed) return;
    recorder->failed = true;
    dl_log(DILOCO_LOG_WARN, "cannot write to the record %s: %s; the run's rec/ has all lines",
           recorder->path, written < 0 ? strerror(errno) : "no space left");
}

/* Every line of the record passes here, in its order. */
static void sink(void *user, const char *line, size_t len)
{
    dl_recorder *recorder = user;
    const diloco_train_hooks *hooks = recorder->hooks;
    if (recorder->fd >= 0) write_line(recorder, line, len);
    dl_tracker_line(&recorder->tracker, line, len);
    if (hooks && hooks->on_record) hooks->on_record(hooks->user, line, len);
}

diloco_status dl_recorder_open(dl_recorder *out, const dl_config *config, const char *replica,
                               diloco_run *run, const diloco_train_hooks *hooks)
{
    *out = (dl_recorder){
        .fd = -1, .path = config->record, .replica = replica, .run = run, .hooks = hooks};
    out->tracker.fd = -1;
    dl_buf_init(&out->line, LINE_MAX_BYTES);
    if (config->record[0]) {
        out->fd = open(config->record, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (out->fd < 0) return dl_fail_errno(errno, "open the record", config->record);
    }
    DL_TRY(dl_tracker_open(&out->tracker, config->track, replica));
    dl_tracker_settings(&out->tracker, config);
    if (run) diloco_run_on_record(run, sink, out);
    return DILOCO_OK;
}

void dl_recorder_close(dl_recorder *recorder)
{
    if (!recorder->replica) return;
    if (recorder->run) diloco_run_on_record(recorder->run, NULL, NULL);
    if (recorder->fd >= 0) close(recorder->fd);
    dl_tracker_close(&recorder->tracker);
    dl_buf_deinit(&recorder->line);
    *recorder = (dl_recorder){.fd = -1, .tracker = {.fd = -1}};
}

dl_json *dl_recorder_begin(dl_recorder *recorder, const char *event)
{
    dl_buf_clear(&recorder->line);
    dl_json_init(&recorder->json, &recorder->line);
    dl_json_object(&recorder->json, NULL);
    dl_json_str(&recorder->json, "event", event);
    dl_json_str(&recorder->json, "replica", recorder->replica);
    return &recorder->json;
}

diloco_status dl_recorder_end(dl_recorder *recorder)
{
    dl_json_end(&recorder->json);
    DL_TRY(dl_json_done(&recorder->json));
    const char *line = (const char *)recorder->line.data;
    if (recorder->run)
        diloco_run_record(recorder->run, line, recorder->line.len);
    else
        sink(recorder, line, recorder->line.len);
    return DILOCO_OK;
}

void dl_recorder_put_inner(dl_json *j, const dl_config *config)
{
    dl_json_str(j, "optimizer", config->optimizer);
    dl_json_f64(j, "learning_rate", config->lr);
    dl_json_i64(j, "batch_size", config->batch_size);
    dl_json_i64(j, "gradient_accumulation_steps", config->accumulation);
}

diloco_status dl_recorder_warn(dl_recorder *recorder, const char *code, const char *text)
{
    dl_json *j = dl_recorder_begin(recorder, "warn");
    dl_json_str(j, "code", code);
    dl_json_str(j, "text", text);
    return dl_recorder_end(recorder);
}

diloco_status dl_recorder_step(dl_recorder *recorder, const dl_step_facts *facts, double lr,
                               uint64_t step, uint64_t position, uint64_t entry)
{
    dl_json *j = dl_recorder_begin(recorder, "step");
    dl_json_u64(j, "step", step);
    dl_json_u64(j, "position", position);
    dl_json_u64(j, "entry", entry);
    dl_json_u64(j, "tokens", facts->tokens);
    dl_json_u64(j, "samples", facts->samples);
    dl_json_f64(j, "loss", facts->loss);
    dl_json_f64(j, "lr", lr);
    dl_json_f64(j, "grad_norm", facts->grad_norm);
    dl_json_f64(j, "tokens_per_s", (double)facts->tokens / fmax(facts->seconds, 1e-9));
    return dl_recorder_end(recorder);
}

diloco_status dl_recorder_check_step(dl_recorder *recorder, const dl_step_facts *facts,
                                     uint64_t step, int64_t client)
{
    char whose[48] = "", text[512];
    recorder->n_unapplied = facts->applied ? 0 : recorder->n_unapplied + 1;
    if (facts->applied) return DILOCO_OK;
    if (client >= 0) snprintf(whose, sizeof whose, " of client%" PRId64, client);
    snprintf(text, sizeof text, "step %" PRIu64 "%s changed nothing: %s", step, whose,
             diloco_error_text());
    dl_log(DILOCO_LOG_WARN, "%s: %s", recorder->replica, text);
    DL_TRY(dl_recorder_warn(recorder, "gradient", text));
    if (recorder->n_unapplied < MAX_UNAPPLIED) return DILOCO_OK;
    return dl_fail(DILOCO_ENUMERIC,
                   "%d steps in a row had no finite gradient, the last: %s; lower "
                   "parameters.optimizer.lr or look at the data",
                   MAX_UNAPPLIED, text);
}
