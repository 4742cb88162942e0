/* points.c - see points.h. One row of `curves` is one curve. A bit of dl_points.known is the number
 * of its row, so that there are at most 32 rows. */
#include "view/points.h"

#include "view/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums over all entries up to the current one. Curves of traffic and progress need them. */
typedef struct sums {
    double bytes, samples; /* of all entries up to this one */
} sums;

/* The value of a curve at the entry of mark `m`; not finite if it is not known. `began` is the time
 * of the run's first line, in seconds since 1970, 0 if unknown. */
typedef double (*value_fn)(const dl_mark *m, const sums *s, double began);

static double v_loss(const dl_mark *m, const sums *s, double began)
{
    return (void)s, (void)began, m->loss;
}
static double v_eval(const dl_mark *m, const sums *s, double began)
{
    return (void)s, (void)began, m->eval_loss;
}
static double v_eval_after(const dl_mark *m, const sums *s, double began)
{
    return (void)s, (void)began, m->eval_loss_after;
}
static double v_norm(const dl_mark *m, const sums *s, double began)
{
    return (void)s, (void)began, m->norm;
}
static double v_similarity(const dl_mark *m, const sums *s, double began)
{
    return (void)s, (void)began, m->similarity;
}
static double v_divergence(const dl_mark *m, const sums *s, double began)
{
    return (void)s, (void)began, m->divergence;
}
static double v_members(const dl_mark *m, const sums *s, double began)
{
    return (void)s, (void)began, m->n_members;
}
static double v_rejected(const dl_mark *m, const sums *s, double began)
{
    return (void)s, (void)began, m->n_rejected;
}
static double v_step(const dl_mark *m, const sums *s, double began)
{
    return (void)s, (void)began, (double)m->position;
}
static double v_samples(const dl_mark *m, const sums *s, double began)
{
    return (void)m, (void)began, s->samples;
}
static double v_bytes(const dl_mark *m, const sums *s, double began)
{
    return (void)m, (void)began, s->bytes;
}
static double v_seconds(const dl_mark *m, const sums *s, double began)
{
    return (void)s, began > 0 ? m->time - began : NAN;
}

/* Names are those of run.track where both have the number (train/tracker.c). */
static const struct curve {
    const char *name;
    value_fn value;
} curves[] = {{"loss/entry", v_loss},
              {"loss/validation", v_eval},
              {"loss/validation_after_sync", v_eval_after},
              {"entry/update_norm", v_norm},
              {"entry/similarity", v_similarity},
              {"entry/weight_divergence", v_divergence},
              {"entry/members", v_members},
              {"entry/rejected", v_rejected},
              {"progress/step", v_step},
              {"progress/samples", v_samples},
              {"progress/seconds", v_seconds},
              {"traffic/bytes", v_bytes}};

enum { CURVES = sizeof curves / sizeof *curves };

/* The struct is empty afterwards and may be used again. */
void dl_points_deinit(dl_points *p)
{
    free(p->known);
    *p = (dl_points){.known = NULL};
}

/* Have a word for each of n entries. The array grows to twice the size, so that a run of n entries
 * costs O(n) copies. */
static diloco_status reserve(dl_points *p, size_t n)
{
    if (n <= p->cap) return DILOCO_OK;
    const size_t cap = 2 * n + 64;
    uint32_t *more = realloc(p->known, cap * sizeof *more);
    if (!more) return dl_fail(DILOCO_ENOMEM, "out of memory for the curves of %zu entries", n);
    memset(more + p->cap, 0, (cap - p->cap) * sizeof *more);
    p->known = more;
    p->cap = cap;
    return DILOCO_OK;
}

/* Append a line with the values of one entry that are known now and were not before. An entry
 * without such values gets no line. `known` is updated only after the line is complete. */
static diloco_status add_line(dl_buf *out, uint32_t *known, const dl_view *view, size_t entry,
                              const sums *s)
{
    const dl_mark *mark = &view->model.marks[entry];
    double values[CURVES];
    uint32_t new = 0;
    for (size_t c = 0; c < CURVES; c++) {
        values[c] = curves[c].value(mark, s, view->model.began);
        if (isfinite(values[c]) && !(*known >> c & 1)) new |= 1u << c;
    }
    if (!new) return DILOCO_OK;
    dl_json j;
    dl_json_init(&j, out);
    dl_json_object(&j, NULL);
    dl_json_u64(&j, "entry", entry);
    if (isfinite(mark->time)) dl_json_f64(&j, "time", mark->time);
    dl_json_object(&j, "values");
    for (size_t c = 0; c < CURVES; c++)
        if (new >> c & 1) dl_json_f64(&j, curves[c].name, values[c]);
    dl_json_end(&j);
    dl_json_end(&j);
    DL_TRY(dl_json_done(&j));
    *known |= new;
    return dl_buf_add(out, "\n", 1);
}

/* All entries are visited each time, since a late record may belong to any of them. A visit without
 * new values is cheap. */
static diloco_status add_lines(dl_buf *out, size_t *n, dl_points *p, const dl_view *view)
{
    const dl_model *m = &view->model;
    sums s = {0};
    *n = 0;
    DL_TRY(reserve(p, m->n_entries));
    for (size_t e = 0; e < m->n_entries && *n < DL_POINTS_AT_ONCE; e++) {
        const size_t before = out->len;
        s.bytes += m->marks[e].bytes;
        s.samples += m->marks[e].samples;
        DL_TRY(add_line(out, &p->known[e], view, e, &s));
        *n += out->len > before;
    }
    return DILOCO_OK;
}

diloco_status dl_points_add(dl_buf *out, size_t *n, dl_points *points, dl_view *view)
{
    pthread_mutex_lock(&view->lock);
    const diloco_status status = add_lines(out, n, points, view);
    pthread_mutex_unlock(&view->lock);
    return status;
}
