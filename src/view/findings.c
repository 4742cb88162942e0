/* findings.c - a run's problems and their causes, in sentences: for the page, the terminal, the
 * report and run.notify.
 *
 * Each find_… function looks for one kind of problem, and dl_view_findings calls all of them. They
 * read the newest status of the replicas and the model of the view; none reads the store. A
 * replica's speed is compared with the median of the others over the newest entries, so that one
 * slow replica does not hide another. */
#include "base/run_kind.h"
#include "view/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Thresholds, chosen so that ordinary jitter of a shared machine gives no finding. RECENT is in
 * entries. */
enum { RECENT = 8 };
#define SLOW        1.5  /* times the median of the others' training */
#define SLOW_UPLOAD 3.0  /* times the median of the others' uploads */
#define WORTH       0.15 /* of a round: less is not worth a word */
#define WORTH_S     0.5 /* seconds an entry: nor is this, which a busy machine may lose by chance */
#define ROSE        1.5 /* times the lowest loss: the run diverges */

/* The findings so far. A find_… function gets it with the kind of its own findings set. */
typedef struct findings {
    dl_finding *out;
    size_t n;
    const dl_view *view;
    dl_finding_kind kind; /* of the next ones */
} findings;

/* Add a finding about a replica, or about the run with "". It is left out if there are
 * DL_FINDINGS. */
static void add_finding(findings *f, dl_level level, const char *replica, const char *format, ...)
    DL_PRINTF(4, 5);
static void add_finding(findings *f, dl_level level, const char *replica, const char *format, ...)
{
    va_list args;
    if (f->n == DL_FINDINGS) return;
    dl_finding *one = &f->out[f->n++];
    one->level = level;
    one->kind = f->kind;
    snprintf(one->replica, sizeof one->replica, "%s", replica);
    va_start(args, format);
    vsnprintf(one->text, sizeof one->text, format, args);
    va_end(args);
}

static const dl_config *config_of(const dl_view *view)
{
    return &dl_follower_run(view->follower)->config;
}

/* "9.3 s", "4 min", "2.5 h" */
static const char *time_text(char out[32], double s)
{
    if (s < 0.1)
        snprintf(out, 32, "%.3g ms", 1e3 * s);
    else if (s < 120)
        snprintf(out, 32, "%.3g s", s);
    else if (s < 7200)
        snprintf(out, 32, "%.0f min", s / 60);
    else
        snprintf(out, 32, "%.3g h", s / 3600);
    return out;
}

/* ---- missing replicas */

/* The status names a bounded number of missing replicas. Those beyond it are not found here. */
static bool is_missing(const diloco_run_wait *w, const char *replica)
{
    const size_t n_named = sizeof w->missing / sizeof w->missing[0];
    for (size_t i = 0; i < w->n_missing && i < n_named; i++)
        if (!strcmp(w->missing[i], replica)) return true;
    return false;
}

/* The run's reaction to a missing replica. */
static void rule_text(char *out, size_t cap, const dl_config *config)
{
    char patience[32];
    time_text(patience, config->patience_s);
    if (dl_run_kind_of(config)->one_by_one)
        snprintf(out, cap, "The others continue without it.");
    else if (config->on_missing == DL_MISSING_WAIT)
        snprintf(out, cap,
                 "The others wait for it until its heartbeat is %s old (run.patience), and then "
                 "continue "
                 "without it.",
                 patience);
    else if (config->on_missing == DL_MISSING_COMMIT_PARTIAL)
        snprintf(out, cap,
                 "After the deadline the entry is committed without it if %.3g of the replicas are "
                 "there (run.quorum).",
                 config->quorum);
    else
        snprintf(out, cap, "After the deadline the entry is aborted (run.on_missing = abort).");
}

/* Replicas without heartbeats. One that the open entry waits for is BAD, because it delays the
 * others. One that was never seen is no loss: it may be starting. */
static void find_dead(findings *f)
{
    const diloco_run_status *run = dl_follower_status(f->view->follower);
    char rule[256];
    size_t alive = 0;
    rule_text(rule, sizeof rule, config_of(f->view));
    for (size_t i = 0; i < run->n_replicas; i++)
        alive += run->replicas[i]->alive;
    for (size_t i = 0; i < run->n_replicas; i++) {
        const diloco_replica_status *r = run->replicas[i];
        if (r->alive || r->ended || run->done) continue;
        const bool awaited = run->wait && is_missing(run->wait, r->replica);
        f->kind = r->seen ? DL_FINDING_LOST : DL_FINDING_OTHER;
        if (!r->seen)
            add_finding(f, DL_LEVEL_WARN, r->replica, "%s has sent no heartbeat yet.", r->replica);
        else
            add_finding(
                f, awaited ? DL_LEVEL_BAD : DL_LEVEL_WARN, r->replica,
                "%s is lost: no new heartbeat for %.0f s or more; its last was at step %" PRIu64
                ", entry %" PRIu64 ".%s%s",
                r->replica, run->alive_s, r->step, r->entry, awaited ? " " : "",
                awaited ? rule
                : alive ? " The run continues without it."
                        : "");
    }
}

/* Live replicas that the open entry waits for: they train, or their upload is in flight. Nothing is
 * said while the log is being read, since the open entry is not known then. */
static void find_missing(findings *f)
{
    const diloco_run_status *run = dl_follower_status(f->view->follower);
    const diloco_run_wait *w = run->wait;
    if (!w || !w->n_missing || f->view->in_log) return;
    for (size_t i = 0; i < run->n_replicas; i++) {
        const diloco_replica_status *r = run->replicas[i];
        char left[32];
        if (!r->alive || !is_missing(w, r->replica)) continue;
        if (r->position < w->position && r->steps_per_s > 0)
            add_finding(f, DL_LEVEL_INFO, r->replica,
                        "%s trains: %" PRIu64 " steps to go, about %s.", r->replica,
                        w->position - r->position,
                        time_text(left, (double)(w->position - r->position) / r->steps_per_s));
        else if (r->position >= w->position)
            add_finding(f, DL_LEVEL_INFO, r->replica,
                        "%s has trained; its contribution is in flight.", r->replica);
    }
}

/* ---- slow replicas */

/* A replica's sums over the newest entries. */
typedef struct recent {
    const char *replica;
    dl_cell sum;
    unsigned n; /* entries */
} recent;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of all but `but`, of one kind of seconds. */
static double median(const recent *all, size_t n, size_t but, size_t offset)
{
    double values[256];
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (i != but)
            values[k++] =
                (double)*(const float *)(const void *)((const char *)&all[i].sum + offset);
    if (k == 0) return NAN;
    qsort(values, k, sizeof *values, by_value);
    return k % 2 ? values[k / 2] : (values[k / 2 - 1] + values[k / 2]) / 2;
}

/* The sums of all replicas that are alive or have ended properly, and that have trained within the
 * entries [from, to). */
static size_t gather(recent *all, size_t cap, const dl_view *view, uint64_t from, uint64_t to)
{
    const diloco_run_status *run = dl_follower_status(view->follower);
    size_t n = 0;
    for (size_t i = 0; i < run->n_replicas && n < cap; i++) {
        const diloco_replica_status *r = run->replicas[i];
        const dl_lane *lane = dl_model_lane(&view->model, r->replica);
        if (!lane || (!r->alive && !r->ended)) continue;
        const dl_cell sum = dl_lane_sum(lane, view->model.shift, from, to);
        if (sum.train_s > 0 && sum.end > 0) all[n++] = (recent){r->replica, sum, 0};
    }
    return n;
}

/* Training and upload are judged apart, each against the median of the others. A difference below
 * WORTH of a round, or below WORTH_S an entry, is not reported. `entries` is the length of the
 * range. */
static void judge_speed(findings *f, const recent *all, size_t n, size_t i, double entries)
{
    const recent *r = &all[i];
    const double train = median(all, n, i, offsetof(dl_cell, train_s)),
                 put = median(all, n, i, offsetof(dl_cell, put_s)),
                 wait = median(all, n, i, offsetof(dl_cell, wait_s)),
                 rest = median(all, n, i, offsetof(dl_cell, rest_s)), own = (double)r->sum.train_s,
                 up = (double)r->sum.put_s,
                 round = own + (double)r->sum.wait_s + (double)r->sum.rest_s;
    char a[32], b[32], cost[120] = "";
    const double share = wait / fmax(train + wait + rest, 1e-9);
    if (share > 0.05)
        snprintf(cost, sizeof cost, " The others wait %.0f %% of their time.", 100 * share);
    if (own > SLOW * train && own - train > fmax(WORTH * round, WORTH_S * entries))
        add_finding(
            f, DL_LEVEL_WARN, r->replica,
            "%s is slow: it trains %s for an entry, %.3g times as long as the others (%s).%s",
            r->replica, time_text(a, own / entries), own / fmax(train, 1e-9),
            time_text(b, train / entries), cost);
    if (up > SLOW_UPLOAD * put && up - put > fmax(WORTH * round, WORTH_S * entries))
        add_finding(
            f, DL_LEVEL_WARN, r->replica,
            "%s has a slow upload: %s for an entry, %.3g times as long as the others (%s).%s",
            r->replica, time_text(a, up / entries), up / fmax(put, 1e-9),
            time_text(b, put / entries), cost);
}

/* A run that is complete is judged over all of its entries. */
static void find_slow(findings *f)
{
    recent all[256];
    const uint64_t end = f->view->model.n_entries;
    const bool done = dl_follower_status(f->view->follower)->done;
    /* The record of the newest entries may not have come: look where there is one. */
    uint64_t to = end;
    while (to > 0 && !isfinite(f->view->model.marks[to - 1].time))
        to--;
    const uint64_t from = done || to < RECENT ? 0 : to - RECENT;
    if (to == 0) return;
    const size_t n = gather(all, sizeof all / sizeof *all, f->view, from, to);
    for (size_t i = 0; i < n && n > 1; i++)
        judge_speed(f, all, n, i, (double)(to - from));
}

/* ---- the log */

/* The counts are those of the log, so they cover the whole run. */
static void find_rejected(findings *f)
{
    const diloco_run_status *run = dl_follower_status(f->view->follower);
    for (size_t i = 0; i < run->n_replicas; i++) {
        const diloco_replica_status *r = run->replicas[i];
        char why[200] = "";
        size_t len = 0;
        if (r->rejected.n == 0) continue;
        for (size_t k = 0; k < r->rejected.n_reasons && len < sizeof why; k++)
            len += (size_t)snprintf(why + len, sizeof why - len, "%s%s %" PRIu64, k ? ", " : "",
                                    r->rejected.reasons[k].reason, r->rejected.reasons[k].n);
        if (r->banned_until)
            add_finding(f, DL_LEVEL_BAD, r->replica,
                        "%s is banned until entry %" PRIu64 ": %" PRIu64
                        " contributions were rejected (%s).",
                        r->replica, r->banned_until, r->rejected.n, why);
        else
            add_finding(f, DL_LEVEL_WARN, r->replica,
                        "%s: %" PRIu64 " contributions were rejected (%s).", r->replica,
                        r->rejected.n, why);
    }
}

/* The text of the newest event of this kind; "" if the ring has none. */
static const char *newest_text(const dl_model *m, const char *kind)
{
    for (uint64_t i = m->n_happenings; i > 0 && m->n_happenings - i < DL_MODEL_EVENTS; i--) {
        const dl_happening *h = &m->happenings[(i - 1) % DL_MODEL_EVENTS];
        if (!strcmp(h->kind, kind)) return h->text;
    }
    return "";
}

/* One abort may be chance; two of the newest RECENT entries are a finding. */
static void find_aborts(findings *f)
{
    const dl_model *m = &f->view->model;
    unsigned n = 0, of = 0;
    for (size_t e = m->n_entries; e > 0 && of < RECENT; e--, of++)
        n += !m->marks[e - 1].commit;
    if (n > 1 && of > 1)
        add_finding(f, DL_LEVEL_BAD, "",
                    "%u of the newest %u entries were aborted. The last reason: %s", n, of,
                    newest_text(m, "abort"));
}

/* The last loss is compared with the lowest of all entries. Losses at or below 0 have no ratio. */
static void find_divergence(findings *f)
{
    const dl_model *m = &f->view->model;
    double lowest = INFINITY, last = NAN;
    size_t at = 0, e;
    for (e = 0; e < m->n_entries; e++) {
        const dl_mark *mark = &m->marks[e];
        if (!mark->commit || isnan(mark->loss)) continue;
        last = mark->loss;
        if (last < lowest) lowest = last, at = e;
    }
    if (isfinite(last) && last > ROSE * lowest && lowest > 0)
        add_finding(f, DL_LEVEL_BAD, "",
                    "The loss rises: %.4g, after its lowest value of %.4g at entry %zu.", last,
                    lowest, at);
}

/* Both mean that a replica or the store does not do what the protocol says. */
static void find_damage(findings *f)
{
    const dl_model *m = &f->view->model;
    if (m->total.n_unchained)
        add_finding(f, DL_LEVEL_BAD, "",
                    "Entry %" PRIu64
                    " does not follow from the entry before it, which was changed since. "
                    "\"diloco verify\" says what is affected.",
                    m->total.first_unchained);
    if (m->total.n_disputes)
        add_finding(f, DL_LEVEL_BAD, "",
                    "%" PRIu64
                    " times a replica computed another result than the committer claims.",
                    m->total.n_disputes);
}

/* No replica has joined, or every one has left a run that is not complete. */
static void find_none(findings *f)
{
    const diloco_run_status *run = dl_follower_status(f->view->follower);
    if (run->n_replicas == 0 && !run->done) {
        f->kind = DL_FINDING_OTHER;
        add_finding(f, DL_LEVEL_WARN, "", "No replica has joined yet.");
    }
    for (size_t i = 0; i < run->n_replicas; i++)
        if (run->replicas[i]->alive || !run->replicas[i]->ended) return;
    if (run->n_replicas && !run->done)
        add_finding(
            f, DL_LEVEL_WARN, "",
            "Every replica has left. To resume the run, repeat on each machine the command that "
            "started its replicas.");
}

/* qsort is not stable: within a level the order is not defined. */
static int by_level(const void *a, const void *b)
{
    const dl_finding *x = a, *y = b;
    return (int)y->level - (int)x->level;
}

/* The order of the table decides which findings are left out if there are too many. */
size_t dl_view_findings(dl_finding out[DL_FINDINGS], const dl_view *view)
{
    static const struct {
        void (*find)(findings *f);
        dl_finding_kind kind;
    } all[] = {{find_none, DL_FINDING_STOPPED},
               {find_dead, DL_FINDING_LOST},
               {find_damage, DL_FINDING_OTHER},
               {find_aborts, DL_FINDING_OTHER},
               {find_divergence, DL_FINDING_DIVERGENCE},
               {find_rejected, DL_FINDING_OTHER},
               {find_slow, DL_FINDING_OTHER},
               {find_missing, DL_FINDING_OTHER}};
    findings f = {.out = out, .view = view};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        f.kind = all[i].kind;
        all[i].find(&f);
    }
    qsort(out, f.n, sizeof *out, by_level);
    return f.n;
}

/* ---- in one word, and in numbers */

const char *dl_view_state(const dl_view *view)
{
    const diloco_run_status *run = dl_follower_status(view->follower);
    size_t alive = 0;
    if (run->done) return "complete";
    if (run->n_replicas == 0) return "empty";
    for (size_t i = 0; i < run->n_replicas; i++) {
        const diloco_replica_status *r = run->replicas[i];
        alive += r->alive;
    }
    if (alive == 0) return "stopped";
    for (size_t i = 0; i < run->n_replicas; i++) {
        const diloco_replica_status *r = run->replicas[i];
        if (!r->alive && !r->ended && run->wait && is_missing(run->wait, r->replica))
            return "waiting";
    }
    return "running";
}

/* The newest entries may not be dated yet, so the range ends at the newest dated one, and begins
 * where an undated one precedes. */
double dl_view_round_s(const dl_view *view)
{
    const dl_model *m = &view->model;
    size_t last = m->n_entries, first, n = 0;
    while (last > 0 && !isfinite(m->marks[last - 1].time))
        last--;
    for (first = last; first > 1 && isfinite(m->marks[first - 2].time) && n < 32; n++)
        first--;
    return n ? (m->marks[last - 1].time - m->marks[first - 1].time) / (double)n : NAN;
}

/* A log may have more entries than the total of run.json, which another process has written. */
double dl_view_left_s(const dl_view *view)
{
    const uint64_t total = dl_follower_status(view->follower)->entries_total,
                   entries = view->model.n_entries;
    return (double)(total > entries ? total - entries : 0) * dl_view_round_s(view);
}

/* The record's time of the newest entry, or else the time at which this process first saw it. */
double dl_view_last(const dl_view *view)
{
    const dl_model *m = &view->model;
    const double recorded = m->n_entries ? m->marks[m->n_entries - 1].time : NAN;
    if (isfinite(recorded)) return recorded;
    return view->grown;
}

double dl_view_data_parallel(const dl_view *view)
{
    const diloco_run_status *run = dl_follower_status(view->follower);
    return 4 * (double)run->parameters * view->model.total.n_steps_all;
}
