/* cmd_verify.c - replay a log and compare every digest.
 *
 * diloco_verify recomputes each entry from its contributions on all cores, and stops at the first
 * digest that differs. This file draws its progress on stderr, so stdout has the result alone. */
#include "base/clock.h"
#include "cli/display/screen.h"
#include "cli/display/units.h"
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include <diloco/inspect.h>
#include <diloco/train.h>

#include <inttypes.h>

/* Between lines where they cannot be drawn over. */
#define LINE_EVERY (5 * DL_SECOND)
#define DRAW_EVERY (100 * DL_MILLISECOND)

/* The progress of one verification: where it is drawn, and when. */
typedef struct watch {
    dl_screen screen;
    dl_time begun, reported; /* when the replay began; when a line was last written */
    uint64_t first;          /* 1 + the first entry of the replay; 0: it has not begun */
} watch;

/* On a terminal the line is drawn again; elsewhere it is a new line now and then. The rate is that
 * of the replay alone, which may begin late in the log. */
static void on_progress(void *user, uint64_t done, uint64_t total)
{
    watch *w = user;
    char lines[1][DL_SCREEN_LINE];
    dl_unit_text rate, left;
    dl_time now = dl_clock_now();
    if (!w->first || done < w->first) /* a second replay may be earlier */
        w->begun = w->reported = now, w->first = done;
    if (now - w->reported < (w->screen.live ? DRAW_EVERY : LINE_EVERY)) return;
    w->reported = now;
    double seconds = dl_seconds(now - w->begun);
    double per_s = seconds > 0 ? (double)(done - w->first) / seconds : 0;
    snprintf(lines[0], sizeof lines[0],
             "verify: %" PRIu64 " of %" PRIu64 " entries, %s entries/s, %s left", done, total,
             dl_rate_text(rate, per_s),
             dl_time_text(left, per_s > 0 ? (double)(total - done) / per_s : -1));
    if (w->screen.live)
        dl_screen_draw(&w->screen, (const char(*)[DL_SCREEN_LINE])lines, 1);
    else
        dl_screen_print(&w->screen, lines[0]);
}

/* Print one object. `status` is always "verified": a digest that differs is an error instead. */
static diloco_status print_json(const diloco_verify_report *r, const char *store)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, 1 << 20);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    dl_json_str(&json, "status", "verified");
    dl_json_str(&json, "store", store);
    dl_json_u64(&json, "entries", r->entries);
    dl_json_u64(&json, "chained", r->chained);
    dl_json_u64(&json, "first_chained", r->first_chained);
    dl_json_u64(&json, "first_replayed", r->first_replayed);
    dl_json_u64(&json, "replayed", r->replayed);
    dl_json_u64(&json, "commits", r->commits);
    dl_json_u64(&json, "aborts", r->aborts);
    dl_json_u64(&json, "voids", r->voids);
    dl_json_bool(&json, "complete", r->complete);
    dl_json_str(&json, "digest", r->digest);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* Print the counts and the final digest. Entries that were not read, or whose contributions are no
 * longer kept, are not verified, and the text says so. */
static void print_report(const diloco_verify_report *r)
{
    printf("verified: %" PRIu64 " entries chained", r->chained);
    if (r->first_chained) printf(" from entry %" PRIu64, r->first_chained);
    printf(", %" PRIu64 " replayed from entry %" PRIu64 " (%" PRIu64 " commits, %" PRIu64
           " aborts, %" PRIu64 " void)%s\n",
           r->replayed, r->first_replayed, r->commits, r->aborts, r->voids,
           r->complete ? "; the run is complete" : "");
    if (r->voids)
        printf("A void entry moves nothing. The replicas that wrote the entries after it saw the "
               "same bytes.\n");
    if (r->first_chained)
        printf("entries before %" PRIu64 " were not read, so the snapshot of entry %" PRIu64
               " is trusted; without --from-snapshot their chain is checked, too\n",
               r->first_chained, r->first_chained);
    if (r->first_replayed > r->first_chained)
        printf("entries before %" PRIu64
               " were checked by their chain alone: theta0 or contributions to them are no longer "
               "kept; a run created with run.retain = \"all\" keeps them\n",
               r->first_replayed);
    printf("state after entry %" PRIu64 ": %s\n", r->entries ? r->entries - 1 : 0, r->digest);
}

/* The progress line is removed before the result or the error is printed. */
static diloco_status cmd_verify(const dl_args *args)
{
    dl_config_path store;
    diloco_verify_report report;
    watch w = {.first = 0};
    DL_TRY(dl_settings_store(store, args->target));
    DL_TRY(dl_swarm_refuse(store, "verify"));
    dl_screen_open(&w.screen, stderr);
    const bool from_snapshot = dl_args_has(args, DL_FLAG_FROM_SNAPSHOT);
    const diloco_status status =
        from_snapshot ? diloco_verify_from_snapshot(&report, store, diloco_cores(), on_progress, &w)
                      : diloco_verify(&report, store, diloco_cores(), on_progress, &w);
    dl_screen_draw(&w.screen, NULL, 0);
    if (status) return status;
    if (dl_args_has(args, DL_FLAG_JSON)) return print_json(&report, store);
    print_report(&report);
    return DILOCO_OK;
}

const dl_command dl_command_verify = {
    .name = "verify",
    .target = "URL",
    .summary = "replay a run's log and compare every digest",
    .details =
        "It checks the chain of all entries, and replays those since the oldest snapshot "
        "that is kept, or\n"
        "all. With --from-snapshot it does not read the entries before that snapshot, so its "
        "time does not\n"
        "grow with the log. The state of the snapshot is then trusted. If no entry follows it, the "
        "whole log\n"
        "is verified.",
    .flags = DL_FLAGS(DL_FLAG_JSON, DL_FLAG_FROM_SNAPSHOT, DL_FLAG_VERBOSE),
    .run = cmd_verify,
};
