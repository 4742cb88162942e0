/* report.c - events into a small model, and the model into lines. Begin with dl_report_event. */
#include "cli/display/report.h"

#include "cli/cli.h"
#include "cli/crew/processes.h"
#include "cli/display/units.h"
#include <diloco/log.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DRAW_EVERY (100 * DL_MILLISECOND)
#define WAIT_TOLD  (10 * DL_SECOND)
#define SHORT_S    10 /* so little time left is not worth a line */

/* MANY_ENTRIES: from here on not every entry has a line. The last three are rows and columns of
 * the screen. */
enum { TEXT_MAX = 1024, MANY_ENTRIES = 100 };
enum { WATCH_COLUMNS = 72, WATCH_ROWS = 18, LINES_BELOW = 4 };

/* Numbers are NAN until they are known, and are then printed as "-". */
diloco_status dl_report_open(dl_report *report, const dl_replica_name *names, size_t n, FILE *out,
                             bool quiet, bool verbose)
{
    *report = (dl_report){.quiet = quiet, .verbose = verbose, .names = names, .n = n};
    report->loss = report->eval_loss = report->perplexity = report->accuracy =
        report->loss_after_sync = NAN;
    report->begun = report->heard = dl_clock_now();
    dl_screen_open(&report->screen, out);
    /* --quiet draws nothing, on a terminal as well. */
    if (quiet) report->screen.live = false;
    report->views = calloc(n, sizeof *report->views);
    if (!report->views) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu replicas' lines", n);
    for (size_t i = 0; i < n; i++) {
        report->views[i] = (dl_replica_view){.loss = NAN, .eta_s = -1};
        strcpy(report->views[i].phase, "start");
    }
    return DILOCO_OK;
}

/* Stops the thread of the screen before the views are freed. */
void dl_report_close(dl_report *report)
{
    dl_report_unwatch(report);
    free(report->views);
    report->views = NULL;
}

void dl_report_watch(dl_report *report, const char *store)
{
    const char *slash = strrchr(store, '/'), *name = slash && slash[1] ? slash + 1 : store;
    if (report->screen.live && !report->watch) report->watch = dl_live_watch_start(store, name);
}

void dl_report_unwatch(dl_report *report)
{
    dl_live_watch_stop(report->watch);
    report->watch = NULL;
}

/* ---- the live lines: as much as fits of what is known */

/* A field's text, or "-" for a number that is not known yet. */
static const char *known(char out[32], int digits, double value)
{
    if (isfinite(value))
        snprintf(out, 32, "%.*f", digits, value);
    else
        strcpy(out, "-");
    return out;
}

/* For a narrow terminal: the steps, the loss, and what still fits of the time left or the phase. */
static void narrow_line(char out[DL_SCREEN_LINE], const char *name, const dl_replica_view *view,
                        const char *steps, int columns)
{
    dl_unit_text eta;
    char loss[32];
    const bool known_left = view->eta_s >= 0;
    const int used =
        snprintf(out, DL_SCREEN_LINE, "%s %s loss %s", name, steps, known(loss, 3, view->loss));
    const char *tail = known_left ? dl_time_text(eta, ceil(view->eta_s)) : view->phase;
    const int size = (int)strlen(tail) + 2;
    if (used + size >= columns) return;
    snprintf(out + used, DL_SCREEN_LINE - (size_t)used, "  %s%s", tail,
             known_left && used + size + 5 < columns ? " left" : "");
}

void dl_report_line(char out[DL_SCREEN_LINE], const char *name, const dl_replica_view *view,
                    const char *unit, int columns)
{
    dl_unit_text position, positions, rate, eta;
    char loss[32], steps[80], left[64];
    dl_count_text(position, view->position);
    dl_count_text(positions, view->positions);
    snprintf(steps, sizeof steps, "%s/%s", position, positions);
    int used = snprintf(out, DL_SCREEN_LINE,
                        "%-4s step %-13s loss %-6s %6s %s/s  entry %*" PRIu64 "/%" PRIu64, name,
                        view->positions ? steps : "-", known(loss, 3, view->loss),
                        dl_rate_text(rate, view->tokens_per_s), unit,
                        snprintf(NULL, 0, "%" PRIu64, view->entries), view->entry, view->entries);
    if (used >= columns) {
        narrow_line(out, name, view, view->positions ? steps : "-", columns);
        return;
    }
    const int size = snprintf(left, sizeof left, "  %s left", dl_time_text(eta, ceil(view->eta_s)));
    const bool known_left = view->eta_s >= 0 && used + size < columns;
    if (!known_left || used + 10 + size < columns) /* there is room for the phase as well */
        used += snprintf(out + used, DL_SCREEN_LINE - (size_t)used, "  %-8s", view->phase);
    if (known_left) snprintf(out + used, DL_SCREEN_LINE - (size_t)used, "%s", left);
}

/* The view to draw. In an exchange that has been silent for a while, the time left is unknown and
 * the time waited is shown instead. */
static dl_replica_view drawn_view(const dl_report *report, size_t replica, dl_time now)
{
    dl_replica_view view = report->views[replica];
    dl_unit_text so_far;
    const dl_time past = now - report->heard;
    if (past < WAIT_TOLD || strcmp(view.phase, "exchange") != 0) return view;
    view.eta_s = -1;
    snprintf(view.phase, sizeof view.phase, "waits %.20s",
             dl_time_text(so_far, round(dl_seconds(past))));
    return view;
}

typedef struct live_lines {
    char at[DL_SCREEN_MAX_LINES][DL_SCREEN_LINE];
    int n; /* lines in use */
} live_lines;

/* Add the screen of `diloco watch`, if there is one and the terminal has room for it. */
static void add_watch(live_lines *lines, const dl_report *report, int columns, int rows)
{
    dl_watch_frame frame;
    const int below = report->n < LINES_BELOW ? (int)report->n : LINES_BELOW;
    if (columns < WATCH_COLUMNS || rows < WATCH_ROWS) return;
    if (!dl_live_watch_frame(&frame, report->watch, columns - 1, rows - 2 - below)) return;
    const int room = rows - 2 - below; /* the frame may be of a terminal that had more */
    for (int i = 0; i < frame.n && i < room && lines->n < DL_SCREEN_MAX_LINES - below; i++)
        strcpy(lines->at[lines->n++], frame.lines[i]);
}

/* Lines of the replicas that fit; the last one counts the rest. */
static void add_replicas(live_lines *lines, const dl_report *report, int columns, int room)
{
    const dl_time now = dl_clock_now();
    size_t i = 0;
    for (; lines->n < room && i < report->n; i++) {
        const dl_replica_view view = drawn_view(report, i, now);
        dl_report_line(lines->at[lines->n++], report->names[i], &view,
                       report->images ? "img" : "tok", columns);
    }
    if (i < report->n && i > 0)
        snprintf(lines->at[lines->n - 1], DL_SCREEN_LINE, "… and %zu more", report->n - i + 1);
}

/* Draw the screen and the replicas' lines, at most ten times a second. The lower lines are for
 * the replicas; the screen of the run gets the rest. */
void dl_report_draw(dl_report *report)
{
    live_lines lines = {.n = 0};
    int columns, rows;
    dl_time now = dl_clock_now();
    if (!report->screen.live || now - report->drawn < DRAW_EVERY) return;
    report->drawn = now;
    dl_screen_size(&report->screen, &columns, &rows);
    const int room = rows - 2 < DL_SCREEN_MAX_LINES ? rows - 2 : DL_SCREEN_MAX_LINES;
    add_watch(&lines, report, columns, rows);
    const int most = lines.n ? lines.n + LINES_BELOW : room;
    add_replicas(&lines, report, columns, most < room ? most : room);
    dl_screen_draw(&report->screen, (const char(*)[DL_SCREEN_LINE])lines.at, lines.n);
}

void dl_report_print(dl_report *report, const char *line)
{
    if (!report->quiet) dl_screen_print(&report->screen, line);
}

/* Only a wait of all replicas here is reported: while one trains, the run makes progress. */
void dl_report_wait(dl_report *report, const char *store, uint64_t others)
{
    char line[DL_SCREEN_LINE + 1024], elsewhere[64] = "", word[1024];
    dl_unit_text so_far;
    uint64_t entry = UINT64_MAX;
    const dl_time past = dl_clock_now() - report->heard;
    if (past < (report->wait_reported ? 2 * report->wait_reported : WAIT_TOLD)) return;
    /* One replica that trains is enough to say nothing. */
    for (size_t i = 0; i < report->n; i++) {
        const dl_replica_view *view = &report->views[i];
        if (strcmp(view->phase, "exchange") != 0) return;
        if (view->entry < entry) entry = view->entry;
    }
    report->wait_reported = past;
    if (others)
        snprintf(elsewhere, sizeof elsewhere, ", with %" PRIu64 " replica%s elsewhere", others,
                 dl_plural(others));
    snprintf(line, sizeof line,
             "waiting for entry %" PRIu64 "%s, %s so far; to see which replicas are missing: "
             "diloco status %s --why",
             entry, elsewhere, dl_time_text(so_far, round(dl_seconds(past))),
             dl_shell_word(word, sizeof word, store));
    dl_report_print(report, line);
}

/* ---- events */

/* Return a member of an event; an absent one or null reads as 0, NAN or "". */
static uint64_t u64(dl_json_value event, const char *key)
{
    uint64_t value = 0;
    return dl_json_as_u64(&value, dl_json_get(event, key), UINT64_MAX) ? 0 : value;
}

static double f64(dl_json_value event, const char *key)
{
    double value = NAN;
    return dl_json_as_f64(&value, dl_json_get(event, key)) ? NAN : value;
}

static void text(char *out, size_t cap, dl_json_value event, const char *key)
{
    char whole[TEXT_MAX] = "";
    if (dl_json_as_str(whole, sizeof whole, dl_json_get(event, key))) whole[0] = '\0';
    dl_printable(out, cap, whole);
}

/* Lines about the time left come at doubling intervals, so a long run does not fill a log. */
static void report_time_left(dl_report *report, const dl_replica_view *view)
{
    char line[256];
    dl_unit_text position, positions, left;
    const dl_time past = dl_clock_now() - report->begun;
    const dl_time next = report->left_reported ? 2 * report->left_reported : 10 * DL_SECOND;
    if (report->screen.live || past < next || !(view->eta_s >= SHORT_S)) return;
    report->left_reported = past;
    const bool rounds = view->entries > 0 && view->positions == view->entries;
    snprintf(line, sizeof line, "about %s left, at %s %s of %s",
             dl_time_text(left, ceil(view->eta_s)), rounds ? "round" : "step",
             dl_count_text(position, view->position), dl_count_text(positions, view->positions));
    dl_report_print(report, line);
}

/* Progress changes the model only; the next drawing shows it. */
static void on_progress(dl_report *report, size_t replica, dl_json_value e)
{
    dl_replica_view *view = &report->views[replica];
    view->step = u64(e, "step");
    view->position = u64(e, "position");
    view->positions = u64(e, "positions");
    view->entry = u64(e, "entry");
    view->entries = u64(e, "entries");
    view->loss = f64(e, "loss");
    view->tokens_per_s = f64(e, "tokens_per_s");
    view->eta_s = f64(e, "eta_s");
    text(view->phase, sizeof view->phase, e, "phase");
    report_time_left(report, view);
}

/* Return true if the entry gets a line. A long run has entries faster than a person reads: then
 * at most one a second is printed. */
static bool worth_a_line(dl_report *report, size_t replica)
{
    dl_time now = dl_clock_now();
    bool many = report->views[replica].entries > MANY_ENTRIES;
    if (many && report->entry_reported && now - report->entry_reported < DL_SECOND) return false;
    report->entry_reported = now;
    return true;
}

/* Every replica reports every entry; only the first report counts. */
static bool is_new(uint64_t *printed, uint64_t entry)
{
    if (entry < *printed) return false;
    *printed = entry + 1;
    return true;
}

/* Entries count also where they get no line. */
static void on_commit(dl_report *report, size_t replica, dl_json_value e)
{
    char line[256], missing[64] = "", loss[32];
    dl_unit_text sent, wait;
    uint64_t entry = u64(e, "entry");
    size_t n_missing = dl_json_count(dl_json_get(e, "missing"));
    if (!is_new(&report->printed.entries_printed, entry)) return;
    report->commits++;
    report->loss = f64(e, "inner_loss");
    text(report->digest, sizeof report->digest, e, "digest");
    const size_t n_members = dl_json_count(dl_json_get(e, "members"));
    /* Counted above, also where no line is printed. */
    if (!worth_a_line(report, replica)) return;
    if (n_missing) snprintf(missing, sizeof missing, " (%zu missing)", n_missing);
    snprintf(line, sizeof line, "entry %" PRIu64 ": %zu replica%s%s, loss %s, %s sent by %s, %s",
             entry, n_members, dl_plural(n_members), missing, known(loss, 4, report->loss),
             dl_bytes_text(sent, f64(e, "bytes_sent")), report->names[replica],
             dl_time_text(wait, f64(e, "exchange_s") + f64(e, "wait_s")));
    dl_report_print(report, line);
}

/* Report a round of a run without a log: the first node's. Participants may differ from node to
 * node. */
static void on_round(dl_report *report, size_t replica, dl_json_value e, const char *what)
{
    char line[256], missing[64] = "", loss[32], apart[32];
    const uint64_t round = u64(e, "round");
    const size_t n_missing = dl_json_count(dl_json_get(e, "missing"));
    const size_t n_members = dl_json_count(dl_json_get(e, "members"));
    bool stepped = false;
    if (dl_json_read_bool(&stepped, e, "stepped")) stepped = false;
    /* Rounds and agreements have numbers of their own. */
    uint64_t *printed =
        *what == 'r' ? &report->printed.entries_printed : &report->printed.agreements_printed;
    if (!is_new(printed, round)) return;
    if (*what == 'r') report->loss = f64(e, "inner_loss");
    report->commits += stepped;
    report->aborts += !stepped;
    if (!worth_a_line(report, replica)) return;
    if (n_missing) snprintf(missing, sizeof missing, " (%zu missing)", n_missing);
    snprintf(line, sizeof line,
             "%s %" PRIu64 " at %s: %zu node%s%s%s, loss %s, weight divergence %s", what, round,
             report->names[replica], n_members, dl_plural(n_members), missing,
             stepped ? "" : ", too few to move the model", known(loss, 4, f64(e, "inner_loss")),
             known(apart, 4, f64(e, "weight_divergence")));
    dl_report_print(report, line);
}

/* An abort is reported by every replica, and printed once. */
static void on_abort(dl_report *report, dl_json_value e)
{
    char line[256], reason[128];
    uint64_t entry = u64(e, "entry");
    if (!is_new(&report->printed.entries_printed, entry)) return;
    report->aborts++;
    text(reason, sizeof reason, e, "reason");
    snprintf(line, sizeof line, "entry %" PRIu64 ": aborted, %s; %zu replicas had contributed",
             entry, reason, dl_json_count(dl_json_get(e, "present")));
    dl_report_print(report, line);
}

/* Return true for an evaluation that was not printed yet. Replicas evaluate in turns, so a slower
 * one's may be read after a later one. The last 64 are kept as bits. */
static bool is_new_eval(dl_report *r, uint64_t entry)
{
    enum { KEPT = 64 };
    if (entry >= r->printed.evals_next) {
        const uint64_t ahead = entry + 1 - r->printed.evals_next;
        r->printed.evals_behind = (ahead < KEPT ? r->printed.evals_behind << ahead : 0) | 1;
        r->printed.evals_next = entry + 1;
        return true;
    }
    const uint64_t behind = r->printed.evals_next - 1 - entry;
    if (behind >= KEPT || r->printed.evals_behind >> behind & 1) return false;
    r->printed.evals_behind |= UINT64_C(1) << behind;
    return true;
}

/* Only the newest evaluation enters the summary, but each gets a line. */
static void on_eval(dl_report *report, dl_json_value e)
{
    char line[256], loss[32], second[48];
    const uint64_t entry = u64(e, "entry");
    const double perplexity = f64(e, "perplexity"), accuracy = f64(e, "accuracy");
    if (!is_new_eval(report, entry)) return;
    /* A later evaluation than any before it: it is the one of the summary. */
    if (entry + 1 == report->printed.evals_next) {
        report->eval_loss = f64(e, "loss");
        report->perplexity = perplexity;
        report->accuracy = accuracy;
        report->loss_after_sync = f64(e, "loss_after_sync");
    }
    if (report->images)
        snprintf(second, sizeof second, "accuracy %.2f %%", 100 * accuracy);
    else
        snprintf(second, sizeof second, "perplexity %.3f", perplexity);
    snprintf(line, sizeof line, "after %" PRIu64 " entr%s: validation loss %s, %s", entry,
             entry == 1 ? "y" : "ies", known(loss, 4, f64(e, "loss")), second);
    dl_report_print(report, line);
}

/* Return true if the line was printed before, and remember it. The memory is a ring of hashes. */
static bool was_printed(dl_report *report, const char *line)
{
    dl_hash hash = dl_hash_bytes(line, strlen(line));
    enum { MAX = sizeof report->printed.warned / sizeof *report->printed.warned };
    size_t kept = report->printed.n_warned < MAX ? report->printed.n_warned : MAX;
    for (size_t i = 0; i < kept; i++)
        if (dl_hash_equal(report->printed.warned[i], hash)) return true;
    report->printed.warned[report->printed.n_warned++ % MAX] = hash;
    return false;
}

/* A line of a replica's log: printed once, whichever replica reports it. Quiet leaves errors only;
 * warnings are in the record. A notice has its own level, and is always printed. */
static void on_log(dl_report *report, dl_json_value e, uint64_t level)
{
    char line[TEXT_MAX], printed[TEXT_MAX + 16];
    bool warning = level <= 1;
    text(line, sizeof line, e, "text");
    if (!warning && !report->verbose && level != DL_NOTICE_LEVEL) return;
    if (was_printed(report, line)) return;
    snprintf(printed, sizeof printed, "%s%s", warning ? "warning: " : "", line);
    if (level == DILOCO_LOG_ERROR && report->quiet)
        fprintf(stderr, "diloco: %s\n", line);
    else
        dl_report_print(report, printed);
}

static void on_reject(dl_report *report, dl_json_value e)
{
    char line[TEXT_MAX], who[64], reason[512];
    text(who, sizeof who, e, "replica");
    text(reason, sizeof reason, e, "reason");
    snprintf(line, sizeof line, "entry %" PRIu64 ": contribution of %s rejected: %s",
             u64(e, "entry"), who, reason);
    if (!was_printed(report, line)) dl_report_print(report, line);
}

static void on_dispute(dl_report *report, dl_json_value e)
{
    char line[256], claimed[40], computed[40];
    text(claimed, sizeof claimed, e, "claimed");
    text(computed, sizeof computed, e, "computed");
    snprintf(line, sizeof line,
             "entry %" PRIu64 ": void, its committer claims the digest %s; it is %s",
             u64(e, "entry"), claimed, computed);
    if (!was_printed(report, line)) dl_report_print(report, line);
}

/* Numbers of an "end" line are of the replica's process; untrusted sizes are bounded before the
 * conversion. */
static void on_end(dl_report *report, size_t replica, dl_json_value e)
{
    dl_replica_view *view = &report->views[replica];
    double parallel = f64(e, "data_parallel_bytes");
    view->steps = u64(e, "steps");
    view->tokens = u64(e, "tokens");
    view->bytes_sent = u64(e, "bytes_sent");
    view->bytes_received = u64(e, "bytes_received");
    view->data_parallel_bytes = parallel >= 0 && parallel < 1e18 ? (uint64_t)parallel : 0;
    text(report->digest, sizeof report->digest, e, "digest");
}

static void on_trainer(dl_report *report, size_t replica, dl_json_value e)
{
    report->views[replica].first_step = u64(e, "step");
    report->images = dl_json_is(dl_json_get(e, "data"), "images");
}

/* Any event but a log line shows that the replica is at work, so the time of a wait is counted
 * from here. Unknown kinds are ignored: later versions may add some. */
void dl_report_event(dl_report *report, size_t replica, dl_json_value event)
{
    dl_json_value kind = dl_json_get(event, "event");
    if (!dl_json_is(kind, "log")) {
        report->heard = dl_clock_now();
        report->wait_reported = 0;
    }
    if (dl_json_is(kind, "progress"))
        on_progress(report, replica, event);
    else if (dl_json_is(kind, "commit"))
        on_commit(report, replica, event);
    else if (dl_json_is(kind, "round"))
        on_round(report, replica, event, "round");
    else if (dl_json_is(kind, "agreement"))
        on_round(report, replica, event, "agreement after round");
    else if (dl_json_is(kind, "abort"))
        on_abort(report, event);
    else if (dl_json_is(kind, "eval"))
        on_eval(report, event);
    else if (dl_json_is(kind, "log"))
        on_log(report, event, u64(event, "level"));
    else if (dl_json_is(kind, "reject"))
        on_reject(report, event);
    else if (dl_json_is(kind, "dispute"))
        on_dispute(report, event);
    else if (dl_json_is(kind, "trainer"))
        on_trainer(report, replica, event);
    else if (dl_json_is(kind, "end"))
        on_end(report, replica, event);
    else if (dl_json_is(kind, "traffic"))
        dl_kinds_add(&report->kinds, event);
    dl_report_draw(report);
}

/* ---- the end */

/* Return sums over the replicas, of this process only. Otherwise bytes_sent would be compared
 * with the steps of processes that sent other bytes. */
static dl_replica_view sum(const dl_report *report)
{
    dl_replica_view all = {.step = 0};
    for (size_t i = 0; i < report->n; i++) {
        const dl_replica_view *view = &report->views[i];
        uint64_t here = view->steps > view->first_step ? view->steps - view->first_step : 0;
        all.steps += here;
        all.tokens += view->tokens;
        all.bytes_sent += view->bytes_sent;
        all.bytes_received += view->bytes_received;
        if (here) all.data_parallel_bytes += view->data_parallel_bytes / view->steps * here;
        if (view->entry > all.entry) all.entry = view->entry;
        if (view->entries > all.entries) all.entries = view->entries;
    }
    return all;
}

/* Print everything that the processes here have moved. A process that was killed leaves no
 * count, and a node without a log counts its exchanges elsewhere. The sum is then not shown. */
static void print_kinds(dl_report *report, uint64_t exchanged)
{
    char kinds[DL_KINDS_TEXT], line[DL_KINDS_TEXT + 128];
    dl_unit_text sent, received;
    const dl_kinds *k = &report->kinds;
    if (!dl_kinds_sent(k) && !dl_kinds_received(k)) return;
    if (dl_kinds_sent(k) < exchanged) return;
    snprintf(line, sizeof line, "all traffic: sent %s, received %s (%s)",
             dl_bytes_text(sent, (double)dl_kinds_sent(k)),
             dl_bytes_text(received, (double)dl_kinds_received(k)), dl_kinds_text(kinds, k));
    dl_report_print(report, line);
}

/* The comparison with data-parallel training is printed only where it is clearly larger. */
static void print_traffic(dl_report *report, const dl_replica_view *all)
{
    char line[256];
    dl_unit_text sent, received, parallel;
    print_kinds(report, all->bytes_sent);
    if (!all->bytes_sent || !all->steps) return;
    double ratio = (double)all->data_parallel_bytes / (double)all->bytes_sent;
    int used =
        snprintf(line, sizeof line, "exchanged by %zu replica%s here: sent %s, received %s",
                 report->n, dl_plural(report->n), dl_bytes_text(sent, (double)all->bytes_sent),
                 dl_bytes_text(received, (double)all->bytes_received));
    if (ratio > 1.5)
        snprintf(line + used, sizeof line - (size_t)used,
                 "; a data-parallel run sends %s for as many steps, %.3g times as much",
                 dl_bytes_text(parallel, (double)all->data_parallel_bytes), ratio);
    dl_report_print(report, line);
}

/* The digest is printed with the command that checks it. */
void dl_report_summary(dl_report *report, const char *store)
{
    char line[DL_SCREEN_LINE + 1024], word[1024];
    dl_unit_text steps, tokens, wall;
    const dl_replica_view all = sum(report);
    dl_screen_draw(&report->screen, NULL, 0);
    snprintf(line, sizeof line, "done: %" PRIu64 " entries, %s steps and %s %s here, %s", all.entry,
             dl_count_text(steps, all.steps), dl_count_text(tokens, all.tokens),
             report->images ? "images" : "tokens",
             dl_time_text(wall, dl_seconds(dl_clock_now() - report->begun)));
    dl_report_print(report, line);
    print_traffic(report, &all);
    if (*report->digest) {
        snprintf(line, sizeof line, "state %s; check it: diloco verify %s", report->digest,
                 dl_shell_word(word, sizeof word, store));
        dl_report_print(report, line);
    }
}

diloco_status dl_report_json(const dl_report *report, const char *store, diloco_status status)
{
    dl_buf out;
    dl_json json;
    const dl_replica_view all = sum(report);
    dl_buf_init(&out, 1 << 20);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    dl_json_str(&json, "status", status ? diloco_status_name(status) : "done");
    dl_json_str(&json, "store", store);
    dl_json_array(&json, "replicas");
    for (size_t i = 0; i < report->n; i++)
        dl_json_str(&json, NULL, report->names[i]);
    dl_json_end(&json);
    dl_json_u64(&json, "entries", all.entry);
    dl_json_u64(&json, "entries_total", all.entries);
    dl_json_u64(&json, "commits", report->commits);
    dl_json_u64(&json, "aborts", report->aborts);
    dl_json_u64(&json, "steps", all.steps);
    dl_json_u64(&json, "tokens", all.tokens);
    dl_json_f64(&json, "loss", report->loss);
    dl_json_f64(&json, "validation_loss", report->eval_loss);
    dl_json_f64(&json, "perplexity", report->perplexity);
    dl_json_f64(&json, "accuracy", report->accuracy);
    dl_json_f64(&json, "loss_after_sync", report->loss_after_sync);
    dl_json_u64(&json, "bytes_sent", all.bytes_sent);
    dl_json_u64(&json, "bytes_received", all.bytes_received);
    dl_json_u64(&json, "data_parallel_bytes", all.data_parallel_bytes);
    dl_json_object(&json, "traffic");
    dl_kinds_json(&json, &report->kinds);
    dl_json_end(&json);
    dl_json_f64(&json, "wall_s", dl_seconds(dl_clock_now() - report->begun));
    dl_json_str(&json, "digest", report->digest);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}
