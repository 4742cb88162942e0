/* tracker.c - see tracker.h: turns the lines of the record into tags and values, for the tracker
 * that run.track names. A kind puts its bytes into t->out, which is written when it is large enough
 * or five seconds old. */
#include "train/tracker_kinds.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes: of `out` at most, of `out` when it is written, of a message. Members in a histogram. */
enum { OUT_MAX = 1 << 20, OUT_ENOUGH = 64 << 10, EVENT_MAX = 1 << 16, NORMS_MAX = 4096 };
#define FLUSH_S 5.0

#define ADDRESS(name, place) &dl_tracker_##name,
static const dl_tracker_kind *const kinds[] = {DL_TRACKERS(ADDRESS)};

/* ---- files */

void dl_tracker_give_up(dl_tracker *t, const char *why)
{
    if (!t->failed) dl_log(DILOCO_LOG_WARN, "run.track: cannot write: %s; training continues", why);
    t->failed = true;
    dl_buf_clear(&t->out);
}

void dl_tracker_flush(dl_tracker *t)
{
    if (t->out.len && !t->failed &&
        dl_fd_write(t->fd, &(dl_span){t->out.data, t->out.len}, 1, "run.track"))
        dl_tracker_give_up(t, diloco_error_text());
    dl_buf_clear(&t->out);
    t->flushed = dl_clock_wall();
}

void dl_tracker_make_room(dl_tracker *t, size_t n)
{
    if (t->out.len + n > OUT_ENOUGH) dl_tracker_flush(t);
}

/* Values that are not finite are left out: they cannot be drawn. */
static void add_scalar(dl_tracker *t, const char *tag, uint64_t step, double value)
{
    if (isfinite(value)) t->kind->number(t, tag, step, value);
}

/* ---- lines of the record */

/* Returns NaN if the event does not have the number. */
static double number(dl_json_value event, const char *key)
{
    double value;
    return dl_json_as_f64(&value, dl_json_get(event, key)) ? NAN : value;
}

static void take(dl_tracker *t, dl_json_value event, const char *key, const char *tag,
                 uint64_t step)
{
    add_scalar(t, tag, step, number(event, key));
}

static void take_step(dl_tracker *t, dl_json_value event)
{
    uint64_t step;
    if (dl_json_read_u64(&step, event, "step", INT64_MAX)) return;
    take(t, event, "loss", "loss/step", step);
    take(t, event, "lr", "inner/learning_rate", step);
    take(t, event, "grad_norm", "inner/gradient_norm", step);
    take(t, event, "tokens_per_s", "speed/tokens_per_s", step);
}

/* A kind without histograms has no `norms`. */
static void take_norms(dl_tracker *t, dl_json_value event, uint64_t entry)
{
    double *norms = t->norms;
    size_t n = 0;
    dl_json_iter it = dl_json_each(dl_json_get(event, "norms"));
    while (norms && dl_json_next(&it) && n < NORMS_MAX)
        if (!dl_json_as_f64(&norms[n], it.value) && isfinite(norms[n])) n++;
    if (n) t->kind->histogram(t, "entry/member_norms", entry, norms, n);
}

static void take_commit(dl_tracker *t, dl_json_value event)
{
    uint64_t entry;
    if (dl_json_read_u64(&entry, event, "entry", INT64_MAX)) return;
    take(t, event, "inner_loss", "loss/entry", entry);
    take(t, event, "aggregated_grad_norm", "entry/update_norm", entry);
    take(t, event, "peer_grad_similarity", "entry/similarity", entry);
    take(t, event, "weight_divergence", "entry/weight_divergence", entry);
    take(t, event, "outer_lr", "entry/outer_learning_rate", entry);
    take(t, event, "bytes_sent", "traffic/bytes_sent", entry);
    take(t, event, "bytes_received", "traffic/bytes_received", entry);
    take(t, event, "wait_s", "time/wait_s", entry);
    take(t, event, "exchange_s", "time/exchange_s", entry);
    add_scalar(t, "entry/members", entry, (double)dl_json_count(dl_json_get(event, "members")));
    take_norms(t, event, entry);
}

static void take_eval(dl_tracker *t, dl_json_value event)
{
    uint64_t step;
    if (dl_json_read_u64(&step, event, "step", INT64_MAX)) return;
    take(t, event, "loss", "loss/validation", step);
    take(t, event, "loss_after_sync", "loss/validation_after_sync", step);
    take(t, event, "perplexity", "validation/perplexity", step);
    take(t, event, "accuracy", "validation/accuracy", step);
}

void dl_tracker_line(dl_tracker *t, const char *line, size_t len)
{
    dl_json_value event;
    if (t->fd < 0 || t->failed || dl_json_parse(&event, line, len)) return;
    const dl_json_value kind = dl_json_get(event, "event");
    if (dl_json_is(kind, "step")) take_step(t, event);
    if (dl_json_is(kind, "commit")) take_commit(t, event);
    if (dl_json_is(kind, "eval")) take_eval(t, event);
    if (dl_clock_wall() - t->flushed >= FLUSH_S) dl_tracker_flush(t);
}

/* ---- opening */

/* Return the kind of "name:place", and the place; NULL if no kind has the name, or without a
 * place. */
static const dl_tracker_kind *find(const char **place, const char *where)
{
    const size_t len = strcspn(where, ":");
    if (!where[len] || !where[len + 1]) return NULL;
    *place = where + len + 1;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strlen(kinds[i]->name) == len && strncmp(kinds[i]->name, where, len) == 0)
            return kinds[i];
    return NULL;
}

diloco_status dl_tracker_open(dl_tracker *t, const char *where, const char *replica)
{
    *t = (dl_tracker){.fd = -1, .flushed = dl_clock_wall()};
    snprintf(t->replica, sizeof t->replica, "%s", replica);
    dl_buf_init(&t->out, OUT_MAX);
    dl_buf_init(&t->event, EVENT_MAX);
    dl_buf_init(&t->summary, EVENT_MAX);
    dl_buf_init(&t->value, EVENT_MAX);
    dl_buf_init(&t->inner, EVENT_MAX);
    dl_buf_init(&t->histogram, EVENT_MAX);
    if (!*where) return DILOCO_OK;
    const char *place;
    t->kind = find(&place, where);
    if (!t->kind) return dl_fail(DILOCO_EINVAL, "run.track: \"%.200s\" names no tracker", where);
    if (t->kind->histogram && !(t->norms = malloc(NORMS_MAX * sizeof *t->norms)))
        return dl_fail(DILOCO_ENOMEM, "out of memory for run.track");
    return t->kind->open(t, place);
}

bool dl_tracker_has_setting(const dl_option *row, const dl_config *config)
{
    return row->flags & DL_OPTION_AGREE && !(row->flags & DL_OPTION_SECRET) &&
           (!strcmp(row->name, "preset") || !dl_option_reads(row, config, row->fallback));
}

void dl_tracker_settings(dl_tracker *t, const dl_config *config)
{
    if (t->fd >= 0 && t->kind->settings) t->kind->settings(t, config);
}

void dl_tracker_close(dl_tracker *t)
{
    if (t->fd >= 0) {
        dl_tracker_flush(t);
        close(t->fd);
    }
    dl_buf_deinit(&t->out);
    dl_buf_deinit(&t->event);
    dl_buf_deinit(&t->summary);
    dl_buf_deinit(&t->value);
    dl_buf_deinit(&t->inner);
    dl_buf_deinit(&t->histogram);
    free(t->norms);
    t->norms = NULL;
    t->fd = -1;
}
