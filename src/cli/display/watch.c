/* watch.c - see watch.h. Texts of a run come from outside: every line is made printable.
 *
 * Begin with dl_watch_draw. The frame has a head, the curve, findings, and the replicas; each
 * part takes at most the room that is left. */
#include "cli/display/watch.h"

#include "base/run_kind.h"
#include "cli/cli.h"
#include "cli/display/units.h"
#include "view/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Sizes in columns. WINDOW is in entries, PARTS in the newest of them. */
enum {
    LEAST_COLUMNS = 40,
    MOST_COLUMNS = 80,
    WINDOW = 24,
    BAR = 18,
    PARTS = 8,
    PARTS_NARROW = 4,
    WIDE = 78,
    FINDINGS_SHOWN = 4
};

/* Add one line, cut to the frame's columns. Characters are counted, and not bytes; a newline
 * becomes a space. */
static void add(dl_watch_frame *f, const char *format, ...) DL_PRINTF(2, 3);
/* `format` is ours; its arguments may be texts of the run. */
static void add(dl_watch_frame *f, const char *format, ...)
{
    char text[1024];
    va_list args;
    if (f->n == DL_SCREEN_MAX_LINES) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    dl_printable(f->lines[f->n], sizeof f->lines[0], text);
    int columns = 0;
    /* A continuation byte of UTF-8 (10xxxxxx) takes no column. */
    for (char *c = f->lines[f->n]; *c; c++) {
        if (*c == '\n') *c = ' ';
        columns += ((unsigned char)*c & 0xC0) != 0x80;
        if (columns > f->columns) *c = 0;
        if (!*c) break;
    }
    f->n++;
}

/* Add a text in lines of at most `columns`. The second and later lines are indented. Lines are
 * cut at a space where one is near. */
static void add_wrapped(dl_watch_frame *f, const char *text, int columns)
{
    const char *indent = "";
    while (*text) {
        const int room = columns - (int)strlen(indent);
        int len = (int)strlen(text);
        if (len > room) {
            len = room;
            while (len > room / 2 && text[len] != ' ')
                len--;
            while (len > 0 &&
                   ((unsigned char)text[len] & 0xC0) == 0x80) /* not within a character */
                len--;
        }
        add(f, "%s%.*s", indent, len, text);
        text += len;
        while (*text == ' ')
            text++;
        indent = "  ";
    }
}

/* ---- the curve */

/* The mean loss of entries [from, to) that have one; NAN if none of them has. */
static double loss_between(const dl_model *m, size_t from, size_t to)
{
    double sum = 0;
    size_t n = 0;
    for (size_t e = from; e < to; e++)
        if (!isnan(m->marks[e].loss)) sum += m->marks[e].loss, n++;
    return n ? sum / (double)n : NAN;
}

/* One character for an equal part of the entries: its mean loss, in eight heights between the
 * least and the greatest. */
static void add_curve(dl_watch_frame *f, const dl_model *m, int columns, bool utf8)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[] = {"_", ".", ",", "-", "=", "+", "*", "#"};
    const char *const *heights = utf8 ? blocks : plain;
    const size_t room = (size_t)columns - 5, n = m->n_entries < room ? m->n_entries : room;
    double at[MOST_COLUMNS], low = INFINITY, high = -INFINITY;
    char text[4 * MOST_COLUMNS] = "";
    /* Entries are divided evenly among the columns, so a long run is averaged. */
    for (size_t i = 0; i < n; i++) {
        at[i] = loss_between(m, i * m->n_entries / n, (i + 1) * m->n_entries / n);
        if (isnan(at[i])) continue;
        low = fmin(low, at[i]), high = fmax(high, at[i]);
    }
    if (n == 0 || low > high) return;
    for (size_t i = 0; i < n; i++) {
        /* All losses equal: the middle height. */
        const double place = high > low ? (at[i] - low) / (high - low) : 0.5;
        strcat(text, isnan(at[i]) ? " " : heights[(int)fmin(place * 8, 7)]);
    }
    add(f, "loss %s", text);
}

/* ---- replicas */

/* A replica that was never seen is listed with the lost ones, as it may need a look too. */
static bool is_lost(const diloco_replica_status *r)
{
    return !r->alive && !r->ended;
}

/* Write the shares of the time as a bar: # train, ^ encode and upload, . wait, = read and apply.
 * Sums are rounded, not parts, so the bar is always full. */
static void bar_of(char out[BAR + 1], const dl_cell *c)
{
    const double rest = fmax((double)c->rest_s - (double)c->encode_s - (double)c->put_s, 0);
    const double parts[] = {(double)c->train_s, (double)c->encode_s + (double)c->put_s,
                            (double)c->wait_s, rest};
    const double all = parts[0] + parts[1] + parts[2] + parts[3];
    double sum = 0;
    int n = 0;
    /* A part ends where the rounded sum up to it ends. */
    for (int p = 0; p < 4 && all > 0; p++) {
        sum += parts[p];
        while (n < (int)lround(BAR * sum / all))
            out[n++] = "#^.="[p];
    }
    while (n < BAR)
        out[n++] = ' ';
    out[BAR] = 0;
}

/* Write the participation at the newest entries: + counted, - missing, x rejected. */
static void parts_of(char *out, const dl_lane *lane, const dl_model *m, size_t n)
{
    const uint64_t to = m->n_entries, from = to > n ? to - n : 0;
    size_t k = 0;
    for (uint64_t e = from; e < to; e++) {
        const size_t at = (size_t)(e >> m->shift);
        const unsigned parts = lane && at < lane->n ? lane->cells[at].parts : 0;
        out[k++] = parts & DL_PART_REJECTED  ? 'x'
                   : parts & DL_PART_MEMBER  ? '+'
                   : parts & DL_PART_MISSING ? '-'
                   : m->marks[e].commit      ? '-'
                                             : ' ';
    }
    out[k] = 0;
}

/* Write the norm of the replica's newest contribution, and its cosine with the combined update. */
static void agreement_of(char *out, size_t cap, const dl_cell *c)
{
    char norm[16] = "-", cosine[16] = "-";
    if (c->norm > 0) snprintf(norm, sizeof norm, "%.2g", (double)c->norm);
    if (c->cosine != 0) snprintf(cosine, sizeof cosine, "%.2f", (double)c->cosine);
    snprintf(out, cap, " %7s %5s", norm, cosine);
}

/* Return false for workers of a federated run. The members of its entries are logical clients, so a
 * worker has no steps and no contributions of its own. */
static bool replicas_are_members(const dl_view *view)
{
    return dl_run_kind_of(&dl_follower_run(view->follower)->config)->processes;
}

/* One line for a worker: its state and its time. */
static void add_worker(dl_watch_frame *f, const char *name, const char *state, const char *bar)
{
    add(f, "%-9.9s %-8s [%s] %8s %8s", name, state, bar, "-", "-");
}

/* One line for a replica; the last two columns are left out on a narrow terminal. */
static void add_replica(dl_watch_frame *f, const dl_view *view, const diloco_replica_status *r,
                        int columns)
{
    const dl_model *m = &view->model;
    const dl_lane *lane = dl_model_lane(m, r->replica);
    const uint64_t to = m->n_entries, from = to > WINDOW ? to - WINDOW : 0;
    const dl_cell none = {.end = 0};
    const dl_cell sum = lane ? dl_lane_sum(lane, m->shift, from, to) : none;
    char bar[BAR + 1], parts[PARTS + 1], numbers[48], agrees[32] = "";
    const char *state = r->ended ? "ended" : r->alive ? "alive" : r->seen ? "LOST" : "not seen";
    bar_of(bar, &sum);
    if (!replicas_are_members(view)) {
        add_worker(f, r->replica, state, bar);
        return;
    }
    parts_of(parts, lane, m, columns >= WIDE ? PARTS : PARTS_NARROW);
    if (columns >= WIDE) agreement_of(agrees, sizeof agrees, &sum);
    snprintf(numbers, sizeof numbers, "%8" PRIu64 " %6.3g/s", r->step, r->steps_per_s);
    add(f, "%-9.9s %-8s [%s] %s%s %s", r->replica, state, bar, numbers, agrees, parts);
}

/* Add the replicas that fit. The lost come first, as they are looked for. */
static void add_replicas(dl_watch_frame *f, const dl_view *view, int columns, int room)
{
    const diloco_run_status *run = dl_follower_status(view->follower);
    size_t shown = 0;
    if (run->n_replicas == 0 || room < 2) return;
    add(f, "%-9s %-8s  %-*s  %8s %8s%s", "replica", "state", BAR, "time, newest 24", "step",
        "steps", columns >= WIDE && replicas_are_members(view) ? "    norm   cos counted" : "");
    room--;
    /* One line is kept for the number of those that do not fit. */
    const size_t fits = run->n_replicas <= (size_t)room ? run->n_replicas : (size_t)room - 1;
    /* The lost in the first pass, all others in the second. */
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < run->n_replicas && shown < fits; i++) {
            const diloco_replica_status *r = run->replicas[i];
            if (is_lost(r) == (pass == 0)) add_replica(f, view, r, columns), shown++;
        }
    if (shown < run->n_replicas) add(f, "and %zu more replicas", run->n_replicas - shown);
}

/* ---- the frame */

/* State, progress, pace and time left. The time left is the mean round times the entries that
 * are left. */
static void add_head(dl_watch_frame *f, const dl_view *view, int columns)
{
    const diloco_run_status *run = dl_follower_status(view->follower);
    const dl_model *m = &view->model;
    const double round = dl_view_round_s(view);
    size_t alive = 0;
    dl_unit_text pace, left, sent;
    char bar[MOST_COLUMNS], times[64] = "";
    for (size_t i = 0; i < run->n_replicas; i++)
        alive += run->replicas[i]->alive;
    add(f, "%s: %s, %zu of %zu replicas alive%s", view->name, dl_view_state(view), alive,
        run->n_replicas, view->more ? " (reading …)" : "");
    const int room = columns - 2;
    const uint64_t total = run->entries_total ? run->entries_total : 1;
    /* A complete run fills the bar exactly, since both numbers are then equal. */
    const int full = (int)((double)room * (double)m->n_entries / (double)total);
    for (int i = 0; i < room; i++)
        bar[i] = i < full ? '=' : ' ';
    bar[room] = 0;
    add(f, "[%s]", bar);
    if (isfinite(round) && !run->done)
        snprintf(times, sizeof times, ", one every %s, %s left", dl_time_text(pace, round),
                 dl_time_text(left, dl_view_left_s(view)));
    add(f, "%zu of %" PRIu64 " entries (%" PRIu64 " aborted)%s; %s sent", m->n_entries,
        run->entries_total, m->total.n_aborts, times, dl_bytes_text(sent, m->total.bytes));
}

/* The newest entry that has such a loss; NAN: no entry has. */
static double newest_loss(const dl_model *m, bool eval)
{
    for (size_t e = m->n_entries; e > 0; e--) {
        const double loss = eval ? m->marks[e - 1].eval_loss : m->marks[e - 1].loss;
        if (!isnan(loss)) return loss;
    }
    return NAN;
}

/* The curve, then the newest numbers. */
static void add_loss(dl_watch_frame *f, const dl_view *view, int columns, bool utf8)
{
    const double loss = newest_loss(&view->model, false), eval = newest_loss(&view->model, true);
    add_curve(f, &view->model, columns, utf8);
    if (isnan(loss)) return;
    if (isnan(eval))
        add(f, "loss %.4f", loss);
    else
        add(f, "loss %.4f, validation loss %.4f", loss, eval);
}

/* Write the last line of a run without findings. The loss of a replica is no finding any more once
 * the run is complete, but its row says LOST. */
static void add_no_findings(dl_watch_frame *f, const dl_view *view)
{
    const diloco_run_status *run = dl_follower_status(view->follower);
    size_t lost = 0;
    for (size_t i = 0; i < run->n_replicas; i++)
        lost += is_lost(run->replicas[i]) && run->replicas[i]->seen;
    if (lost)
        add(f, "complete; %zu replica%s lost before the end", lost, lost == 1 ? " was" : "s were");
    else
        add(f, "well: no replica is lost, slow or rejected");
}

/* The most important findings come first (view.h); a run without one is said to be well. */
static void add_findings(dl_watch_frame *f, const dl_view *view, int columns, int room)
{
    static const char *const words[] = {"", "attention: ", "WRONG: "};
    dl_finding all[DL_FINDINGS];
    const size_t n = dl_view_findings(all, view);
    const int end = f->n + room;
    for (size_t i = 0; i < n && i < FINDINGS_SHOWN && f->n < end; i++) {
        char text[DL_FINDING_TEXT + 16];
        snprintf(text, sizeof text, "%s%s", words[all[i].level], all[i].text);
        add_wrapped(f, text, columns);
    }
    if (n == 0 && !view->more) add_no_findings(f, view);
    if (f->n > end) f->n = end;
}

/* The view is locked for the whole frame, so all of it is of one moment. */
diloco_status dl_watch_draw(dl_watch_frame *f, dl_view *view, int columns, int lines, bool utf8)
{
    /* Narrower terminals get lines that wrap; wider ones get no longer lines. */
    if (columns > MOST_COLUMNS) columns = MOST_COLUMNS;
    if (columns < LEAST_COLUMNS) columns = LEAST_COLUMNS;
    if (lines > DL_SCREEN_MAX_LINES) lines = DL_SCREEN_MAX_LINES;
    *f = (dl_watch_frame){.columns = columns};
    pthread_mutex_lock(&view->lock);
    const diloco_status status = dl_view_bring_up(view);
    if (!status) {
        f->done = dl_follower_status(view->follower)->done;
        f->idle = !strcmp(dl_view_state(view), "empty") || !strcmp(dl_view_state(view), "stopped");
        /* More of the log is to be read, so the caller draws again at once. */
        f->reading = view->more;
        add_head(f, view, columns);
        add_loss(f, view, columns, utf8);
        add_findings(f, view, columns, 8);
        /* One line is for the legend, and one stays free. */
        add_replicas(f, view, columns, lines - 1 - f->n - 1);
        if (f->n < lines)
            add(f, "# train  ^ upload  . wait  = apply%s",
                replicas_are_members(view) ? ";  + counted  - missing  x rejected" : "");
    }
    pthread_mutex_unlock(&view->lock);
    return status;
}
