/* view_json.c - a view as JSON, for the page.
 *
 * Columns are arrays of equal length, and a number that is not known is null. Names of members are
 * an interface within one version only: the page comes from the same program. An answer has a
 * bounded size, whatever the length of the run: curves, lanes and events have a largest number of
 * points, and a request for more gets that. */
#include "view/parts.h"

#include "base/config.h"
#include "base/option.h"

#include <math.h>
#include <string.h>

/* Defaults and largest values of a request's numbers. MOST_CELLS bounds the product of lanes and
 * bins. */
enum { POINTS = 400, BINS = 64, MOST_POINTS = 4000, MOST_BINS = 400, MOST_CELLS = 8192 };
/* Entries of the lanes that a page shows at first, and events. */
enum { WINDOW = 24, MOST_HAPPENINGS = 100 };

/* A replica's state in one word, for the page. "ended" comes first: a replica that has left
 * properly sends no heartbeats either. */
static const char *state_of(const diloco_replica_status *r)
{
    return r->ended ? "ended" : r->alive ? "alive" : r->seen ? "silent" : "not seen";
}

/* Three digits after the point are enough for seconds, and are short. */
static void add_ms(dl_json *j, double s)
{
    if (isfinite(s) && s < 1e12)
        dl_json_i64(j, NULL, (int64_t)llround(1e3 * s));
    else
        dl_json_null(j, NULL);
}

/* ---- the summary */

static void add_findings(dl_json *j, const dl_view *view)
{
    dl_finding all[DL_FINDINGS];
    static const char *const levels[] = {"info", "warn", "bad"};
    const size_t n = dl_view_findings(all, view);
    dl_json_array(j, "findings");
    for (size_t i = 0; i < n; i++) {
        dl_json_object(j, NULL);
        dl_json_str(j, "level", levels[all[i].level]);
        dl_json_str(j, "replica", all[i].replica);
        dl_json_str(j, "text", all[i].text);
        dl_json_end(j);
    }
    dl_json_end(j);
}

/* The open entry and the replicas that it waits for. The names are a bounded list; n_missing counts
 * all. */
static void add_wait(dl_json *j, const diloco_run_wait *w)
{
    const size_t n_named = sizeof w->missing / sizeof w->missing[0];
    dl_json_object(j, "wait");
    dl_json_u64(j, "entry", w->entry);
    dl_json_u64(j, "position", w->position);
    dl_json_u64(j, "awaited", w->n_awaited);
    dl_json_u64(j, "there", w->n_there);
    dl_json_array(j, "missing");
    for (size_t i = 0; i < w->n_missing && i < n_named; i++)
        dl_json_str(j, NULL, w->missing[i]);
    dl_json_end(j);
    dl_json_end(j);
}

static void add_replica(dl_json *j, const dl_view *view, const diloco_replica_status *r)
{
    const dl_lane *lane = dl_model_lane(&view->model, r->replica);
    dl_json_object(j, NULL);
    dl_json_str(j, "replica", r->replica);
    dl_json_u64(j, "generation", r->generation);
    dl_json_str(j, "state", state_of(r));
    dl_json_str(j, "host", r->host);
    dl_json_u64(j, "step", r->step);
    dl_json_u64(j, "entry", r->entry);
    dl_json_u64(j, "position", r->position);
    dl_json_f64(j, "steps_per_s", r->steps_per_s);
    dl_json_f64(j, "deadline_s", r->deadline_s);
    dl_json_f64(j, "up_bps", r->up_bps);
    dl_json_f64(j, "down_bps", r->down_bps);
    dl_json_f64(j, "request_s", r->request_s);
    dl_json_u64(j, "rejected", r->rejected.n);
    dl_json_u64(j, "banned_until", r->banned_until);
    dl_json_f64(j, "sent", lane ? lane->sent : 0);
    dl_json_f64(j, "received", lane ? lane->received : 0);
    dl_json_f64(j, "writes", lane ? lane->writes : 0);
    dl_json_f64(j, "reads", lane ? lane->reads : 0);
    dl_json_f64(j, "tokens_per_s",
                lane && lane->trained_s > 0 ? lane->tokens / lane->trained_s : NAN);
    dl_json_end(j);
}

/* The newest value of one member of the marks, given by its offset; NAN if no mark has one. */
static double newest(const dl_model *m, size_t offset)
{
    for (size_t e = m->n_entries; e > 0; e--) {
        const double value =
            *(const double *)(const void *)((const char *)&m->marks[e - 1] + offset);
        if (!isnan(value)) return value;
    }
    return NAN;
}

/* The members of a run's row in the list of runs. They are also the begin of the summary. Tokens of
 * the whole run follow from its samples, by the ratio of tokens to samples in the step lines. */
static void add_row(dl_json *j, const dl_view *view)
{
    const diloco_run_status *run = dl_follower_status(view->follower);
    const dl_model *m = &view->model;
    const dl_config *config = &dl_follower_run(view->follower)->config;
    size_t alive = 0;
    for (size_t i = 0; i < run->n_replicas; i++)
        alive += run->replicas[i]->alive;
    dl_json_str(j, "name", view->name);
    dl_json_str(j, "id", run->run);
    dl_json_str(j, "preset", run->preset);
    dl_json_str(j, "model", run->model);
    dl_json_u64(j, "parameters", run->parameters);
    dl_json_str(j, "state", dl_view_state(view));
    dl_json_bool(j, "loading", view->in_log);
    dl_json_bool(j, "reading", view->more);
    dl_json_u64(j, "entries", m->n_entries);
    dl_json_u64(j, "entries_total", run->entries_total);
    dl_json_u64(j, "aborts", m->total.n_aborts);
    dl_json_u64(j, "alive", alive);
    dl_json_u64(j, "n_replicas", run->n_replicas);
    dl_json_i64(j, "expected", config->replicas);
    dl_json_f64(j, "loss", newest(m, offsetof(dl_mark, loss)));
    dl_json_f64(j, "eval_loss", newest(m, offsetof(dl_mark, eval_loss)));
    dl_json_f64(j, "now", dl_clock_wall());
    dl_json_f64(j, "last", dl_view_last(view));
    dl_json_f64(j, "began", m->began);
    dl_json_f64(j, "round_s", dl_view_round_s(view));
    dl_json_f64(j, "left_s", run->done ? 0 : dl_view_left_s(view));
    dl_json_f64(j, "bytes", m->total.bytes);
    dl_json_f64(j, "data_parallel_bytes", dl_view_data_parallel(view));
    dl_json_f64(j, "steps", m->total.n_steps_all);
    dl_json_f64(j, "samples", m->total.samples);
    dl_json_f64(j, "tokens",
                m->step_samples > 0 ? m->total.samples * m->tokens / m->step_samples : NAN);
}

/* The row's members come first, so that the page reads a run and a list of runs with the same
 * code. */
static void add_summary(dl_json *j, const dl_view *view)
{
    const diloco_run_status *run = dl_follower_status(view->follower);
    const dl_model *m = &view->model;
    add_row(j, view);
    dl_json_str(j, "program", run->program);
    dl_json_str(j, "config_digest", run->config_digest);
    dl_json_str(j, "exchange", run->exchange);
    dl_json_u64(j, "snapshot", run->snapshot);
    dl_json_f64(j, "utilization",
                m->n_utilization ? m->utilization / (double)m->n_utilization : NAN);
    dl_json_object(j, "verification");
    dl_json_u64(j, "chained", m->n_entries - m->total.n_unchained);
    dl_json_u64(j, "unchained", m->total.n_unchained);
    dl_json_u64(j, "disputes", m->total.n_disputes);
    dl_json_end(j);
    add_findings(j, view);
    if (run->wait && !view->in_log) add_wait(j, run->wait);
    dl_json_array(j, "replicas");
    for (size_t i = 0; i < run->n_replicas; i++)
        add_replica(j, view, run->replicas[i]);
    dl_json_end(j);
}

/* ---- curves */

/* The sums of a bin of entries. */
typedef struct bin {
    dl_mark last;
    uint64_t entry;
    double loss, low, high, similarity, norm, eval, eval_after, time;
    double bytes, samples; /* of all entries up to its end */
    unsigned n_loss, n_similarity, n_norm, aborts, rejected, fewest;
} bin;

/* Add an entry to its bin. Values at the end of a bin, such as the position, are those of its last
 * entry; the number of members is the smallest. */
static void add_to(bin *b, const dl_mark *m, uint64_t e)
{
    b->entry = e;
    b->last = *m;
    b->aborts += !m->commit;
    b->rejected += m->n_rejected;
    if (m->n_members < b->fewest) b->fewest = m->n_members;
    if (!isnan(m->loss)) {
        b->loss += m->loss, b->n_loss++;
        b->low = fmin(b->low, m->loss);
        b->high = fmax(b->high, m->loss);
    }
    if (!isnan(m->similarity)) b->similarity += m->similarity, b->n_similarity++;
    if (!isnan(m->norm)) b->norm += m->norm, b->n_norm++;
    if (!isnan(m->eval_loss)) b->eval = m->eval_loss, b->eval_after = m->eval_loss_after;
    if (!isnan(m->time)) b->time = m->time;
    b->bytes += m->bytes;
    b->samples += m->samples;
}

/* One column of all bins: the walk is cheap, and one pass a column needs no memory. */
typedef double (*column_fn)(const bin *b, const dl_model *m);
/* A mean; NAN without values, which JSON shows as null. */
static double of(double sum, unsigned n)
{
    return n ? sum / n : NAN;
}
static double c_entry(const bin *b, const dl_model *m)
{
    return (void)m, (double)b->entry;
}
static double c_position(const bin *b, const dl_model *m)
{
    return (void)m, (double)b->last.position;
}
static double c_time(const bin *b, const dl_model *m)
{
    return round(1e3 * (b->time - m->began)) / 1e3; /* since the run began */
}
static double c_loss(const bin *b, const dl_model *m)
{
    return (void)m, of(b->loss, b->n_loss);
}
static double c_low(const bin *b, const dl_model *m)
{
    return (void)m, b->n_loss ? b->low : NAN;
}
static double c_high(const bin *b, const dl_model *m)
{
    return (void)m, b->n_loss ? b->high : NAN;
}
static double c_eval(const bin *b, const dl_model *m)
{
    return (void)m, b->eval;
}
static double c_eval_after(const bin *b, const dl_model *m)
{
    return (void)m, b->eval_after;
}
static double c_bytes(const bin *b, const dl_model *m)
{
    return (void)m, b->bytes;
}
static double c_tokens(const bin *b, const dl_model *m)
{
    return m->step_samples > 0 ? b->samples * m->tokens / m->step_samples : NAN;
}
static double c_similarity(const bin *b, const dl_model *m)
{
    return (void)m, of(b->similarity, b->n_similarity);
}
static double c_norm(const bin *b, const dl_model *m)
{
    return (void)m, of(b->norm, b->n_norm);
}
static double c_members(const bin *b, const dl_model *m)
{
    return (void)m, (double)b->fewest;
}
static double c_aborts(const bin *b, const dl_model *m)
{
    return (void)m, (double)b->aborts;
}
static double c_rejected(const bin *b, const dl_model *m)
{
    return (void)m, (double)b->rejected;
}

static const struct column {
    const char *name;
    column_fn value;
} columns[] = {{"entry", c_entry},
               {"position", c_position},
               {"time", c_time},
               {"loss", c_loss},
               {"low", c_low},
               {"high", c_high},
               {"eval", c_eval},
               {"eval_after", c_eval_after},
               {"bytes", c_bytes},
               {"tokens", c_tokens},
               {"similarity", c_similarity},
               {"norm", c_norm},
               {"members", c_members},
               {"aborts", c_aborts},
               {"rejected", c_rejected}};

/* Six digits are more than a picture shows, and half of what the bytes of a double would be. */
static double short_of(double value)
{
    if (!isfinite(value) || value == 0 || (fabs(value) < 1e9 && value == floor(value)))
        return value;
    const double scale = pow(10, 5 - floor(log10(fabs(value))));
    return isfinite(scale) && scale > 0 ? round(value * scale) / scale : value;
}

/* Walk all entries, and write one value for each bin of per_bin entries. Sums of bytes and samples
 * continue from bin to bin. */
static void add_column(dl_json *j, const dl_model *m, const struct column *c, size_t per_bin)
{
    double bytes = 0, samples = 0;
    dl_json_array(j, c->name);
    for (size_t e = 0; e < m->n_entries;) {
        bin b = {.low = INFINITY,
                 .high = -INFINITY,
                 .eval = NAN,
                 .eval_after = NAN,
                 .time = NAN,
                 .bytes = bytes,
                 .samples = samples,
                 .fewest = UINT32_MAX};
        for (size_t k = 0; k < per_bin && e < m->n_entries; k++, e++)
            add_to(&b, &m->marks[e], e);
        bytes = b.bytes, samples = b.samples;
        dl_json_f64(j, NULL, short_of(c->value(&b, m)));
    }
    dl_json_end(j);
}

/* At most `points` bins, all of equal length except the last. */
static void add_curves(dl_json *j, const dl_model *m, size_t points)
{
    const size_t per_bin = m->n_entries / points + (m->n_entries % points > 0);
    dl_json_object(j, "curves");
    dl_json_u64(j, "per_point", per_bin ? per_bin : 1);
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
        add_column(j, m, &columns[c], per_bin ? per_bin : 1);
    dl_json_end(j);
}

/* The loss of single steps, of all replicas, by position. */
static void add_steps(dl_json *j, const dl_model *m, size_t points)
{
    const size_t per = m->n_steps / points + 1;
    dl_json_object(j, "inner");
    dl_json_u64(j, "width", per * m->step_width);
    dl_json_array(j, "loss");
    for (size_t i = 0; i < m->n_steps;) {
        double sum = 0;
        uint64_t n = 0;
        for (size_t k = 0; k < per && i < m->n_steps; k++, i++)
            sum += m->steps[i].sum, n += m->steps[i].n;
        dl_json_f64(j, NULL, n ? short_of(sum / (double)n) : NAN);
    }
    dl_json_end(j);
    dl_json_end(j);
}

/* ---- lanes */

/* [end, train, encode, upload, wait, rest (milliseconds), parts, norm, stale, generation,
 *  cosine] */
static void add_cell(dl_json *j, const dl_cell *c, double origin)
{
    dl_json_array(j, NULL);
    add_ms(j, c->end > 0 ? c->end - origin : NAN);
    add_ms(j, (double)c->train_s);
    add_ms(j, (double)c->encode_s);
    add_ms(j, (double)c->put_s);
    add_ms(j, (double)c->wait_s);
    add_ms(j, fmax((double)c->rest_s - (double)c->encode_s - (double)c->put_s, 0));
    dl_json_u64(j, NULL, c->parts);
    dl_json_f64(j, NULL, short_of((double)c->norm));
    dl_json_u64(j, NULL, c->stale);
    dl_json_u64(j, NULL, c->generation);
    dl_json_f64(j, NULL, short_of((double)c->cosine));
    dl_json_end(j);
}

/* A bin is a whole number of cells, and begins at a cell's border: otherwise neighbouring bins
 * would count a cell twice. So the range of the answer may be wider than the requested one. */
static void add_lanes(dl_json *j, const dl_view *view, const dl_view_part *part)
{
    const dl_model *m = &view->model;
    uint64_t to = part->to && part->to < m->n_entries ? part->to : m->n_entries;
    uint64_t from = part->to ? part->from : to > WINDOW ? to - WINDOW : 0;
    size_t bins = part->bins ? part->bins : BINS;
    if (bins > MOST_BINS) bins = MOST_BINS;
    if (m->n_lanes && bins > MOST_CELLS / m->n_lanes) bins = MOST_CELLS / m->n_lanes;
    if (from > to) from = to;
    uint64_t per_bin = (to - from) / bins + ((to - from) % bins > 0);
    const uint64_t least = (uint64_t)1 << m->shift;
    per_bin = per_bin < least ? least : (per_bin + least - 1) / least * least;
    from = from / least * least;
    dl_json_object(j, "lanes");
    dl_json_u64(j, "from", from);
    dl_json_u64(j, "to", to);
    dl_json_u64(j, "per_bin", per_bin);
    dl_json_f64(j, "origin", m->began);
    dl_json_array(j, "rows");
    for (size_t l = 0; l < m->n_lanes; l++) {
        dl_json_object(j, NULL);
        dl_json_str(j, "replica", m->lanes[l].replica);
        dl_json_array(j, "cells");
        for (uint64_t e = from; e < to; e += per_bin) {
            const uint64_t end = e + per_bin < to ? e + per_bin : to;
            const dl_cell sum = dl_lane_sum(&m->lanes[l], m->shift, e, end);
            add_cell(j, &sum, m->began);
        }
        dl_json_end(j);
        dl_json_end(j);
    }
    dl_json_end(j);
    dl_json_end(j);
}

/* The newest event first. */
static void add_happenings(dl_json *j, const dl_model *m)
{
    dl_json_array(j, "happenings");
    for (uint64_t i = m->n_happenings; i > 0 && m->n_happenings - i < MOST_HAPPENINGS; i--) {
        const dl_happening *h = &m->happenings[(i - 1) % DL_MODEL_EVENTS];
        dl_json_object(j, NULL);
        dl_json_f64(j, "time", h->time > 0 ? h->time : NAN);
        if (h->entry != UINT64_MAX) dl_json_u64(j, "entry", h->entry);
        dl_json_str(j, "kind", h->kind);
        dl_json_str(j, "replica", h->replica);
        dl_json_str(j, "text", h->text);
        dl_json_end(j);
    }
    dl_json_end(j);
}

/* ---- answers */

/* An answer is one object: begin opens it and end closes it. Errors are kept in the writer until
 * end. */
static dl_json begin(dl_buf *out)
{
    dl_json j;
    dl_json_init(&j, out);
    dl_json_object(&j, NULL);
    return j;
}

static diloco_status end(dl_json *j)
{
    dl_json_end(j);
    return dl_json_done(j);
}

diloco_status dl_view_run_json(dl_buf *out, dl_view *view, const dl_view_part *part)
{
    size_t points = part->points ? part->points : POINTS;
    if (points > MOST_POINTS) points = MOST_POINTS;
    pthread_mutex_lock(&view->lock);
    diloco_status status = dl_view_bring_up(view);
    if (!status) {
        dl_json j = begin(out);
        add_summary(&j, view);
        add_curves(&j, &view->model, points);
        add_steps(&j, &view->model, points);
        add_lanes(&j, view, part);
        add_happenings(&j, &view->model);
        status = end(&j);
    }
    pthread_mutex_unlock(&view->lock);
    return status;
}

diloco_status dl_view_row_json(dl_buf *out, dl_view *view)
{
    pthread_mutex_lock(&view->lock);
    diloco_status status = dl_view_bring_up(view);
    if (!status) {
        dl_finding all[DL_FINDINGS];
        dl_json j = begin(out);
        add_row(&j, view);
        const size_t n = dl_view_findings(all, view);
        if (n && all[0].level > DL_LEVEL_INFO) dl_json_str(&j, "finding", all[0].text);
        status = end(&j);
    }
    pthread_mutex_unlock(&view->lock);
    return status;
}

static diloco_status add_setting(dl_json *j, const dl_option *row, const dl_config *config)
{
    dl_buf text;
    dl_buf_init(&text, 1 << 16);
    diloco_status status = dl_option_text(&text, row, config);
    if (!status) {
        dl_json_object(j, NULL);
        dl_json_str(j, "name", row->name);
        dl_json_strn(j, "value", (const char *)text.data, text.len);
        dl_json_str(j, "default", row->fallback);
        dl_json_str(j, "unit", row->unit);
        dl_json_str(j, "help", row->help);
        dl_json_str(j, "origin",
                    dl_option_reads(row, config, row->fallback) ? "default" : "run.json");
        dl_json_end(j);
    }
    dl_buf_deinit(&text);
    return status;
}

/* Options on which all replicas agree, without secrets. */
diloco_status dl_view_settings_json(dl_buf *out, dl_view *view)
{
    pthread_mutex_lock(&view->lock);
    const dl_config *config = &dl_follower_run(view->follower)->config;
    diloco_status status = DILOCO_OK;
    dl_json j = begin(out);
    dl_json_array(&j, "settings");
    for (size_t i = 0; i < dl_config_table.n && !status; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (row->flags & DL_OPTION_AGREE && !(row->flags & DL_OPTION_SECRET))
            status = add_setting(&j, row, config);
    }
    dl_json_end(&j);
    if (!status) status = end(&j);
    pthread_mutex_unlock(&view->lock);
    return status;
}
