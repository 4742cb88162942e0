/* cmd_status.c - describe a run, its progress and its participants.
 *
 * The run's status, its roster and its settings are read from the store. Nothing is
 * written there. A replica counts as alive only if its heartbeat changes while this command
 * watches, so the command may take some seconds. With --watch it repeats until the run is
 * complete. */
#include "base/clock.h"
#include "base/run_kind.h"
#include "cli/display/units.h"
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include "cli/why.h"
#include "hub/status_json.h"
#include <diloco/inspect.h>

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* Seconds: of the first look at heartbeats, and between two statuses of --watch. */
#define LOOK_S  0.3 /* to see whether there is anything to watch for */
#define AGAIN_S 2.0

/* Print one line for each replica, by its newest generation. A worker of a federated run takes no
 * steps of its own, so it has none to show. Hosts come from other machines, so they are made
 * printable. */
static void print_replicas(const diloco_run_status *run, bool steps)
{
    if (run->n_replicas == 0) return;
    printf("\n%-12s %-4s %-9s %10s %10s %8s  %s\n", "replica", "gen", "state", "step", "entry",
           "steps/s", "host");
    for (size_t i = 0; i < run->n_replicas; i++) {
        const diloco_replica_status *r = run->replicas[i];
        char host[64], step[24] = "-", pace[24] = "-";
        dl_printable_line(host, sizeof host, r->host);
        if (steps) snprintf(step, sizeof step, "%" PRIu64, r->step);
        if (steps) snprintf(pace, sizeof pace, "%.2f", r->steps_per_s);
        printf("%-12s %-4u %-9s %10s %10" PRIu64 " %8s  %s\n", r->replica, (unsigned)r->generation,
               dl_replica_state(r), step, r->entry, pace, host);
    }
    if (run->n_left_out)
        printf("and %zu more names in gen/, which the log has not named lately\n", run->n_left_out);
}

/* Print the reasons of rejections: " norm 3, cosine 1". */
static void print_reasons(const diloco_rejections *r)
{
    for (size_t i = 0; i < r->n_reasons; i++)
        printf("%s %s %" PRIu64, i ? "," : "", r->reasons[i].reason, r->reasons[i].n);
    putchar('\n');
}

/* Print the replicas whose contributions the log rejects (check.*), and the banned ones. */
static void print_rejected(const diloco_run_status *run)
{
    if (run->rejected.n == 0) return;
    printf("rejected  ");
    print_reasons(&run->rejected);
    for (size_t i = 0; i < run->n_replicas; i++) {
        const diloco_replica_status *r = run->replicas[i];
        if (r->rejected.n == 0) continue;
        printf("           %-12s", r->replica);
        if (r->banned_until) printf(" banned until entry %" PRIu64 ":", r->banned_until);
        print_reasons(&r->rejected);
    }
}

/* Print the address of each replica that serves its contributions directly (run.peers), and the
 * bytes that it read from members and from the store. Without such a replica nothing is printed. */
static void print_peers(const diloco_run_status *run)
{
    bool any = false;
    for (size_t i = 0; i < run->n_replicas; i++) {
        const diloco_replica_status *r = run->replicas[i];
        dl_unit_text peers, store;
        char address[sizeof r->address];
        if (!r->address[0]) continue;
        if (!any) printf("\n%-12s %-28s %s\n", "replica", "serves at", "has read");
        any = true;
        dl_printable_line(address, sizeof address, r->address);
        printf("%-12s %-28s %s of contributions from members, %s from the store\n", r->replica,
               address, dl_bytes_text(peers, (double)r->from_peers),
               dl_bytes_text(store, (double)r->from_store));
    }
}

/* A trusted run has no owner, and nothing is printed. */
static void print_roster(const dl_roster_view *r)
{
    if (!r->owner[0]) return;
    printf("roster     %s; owner %s\n", r->roster, r->owner);
    for (size_t i = 0; i < r->n_keys; i++)
        printf("           %-12s %s\n", r->keys[i].replica, r->keys[i].key);
}

/* Print a line if the store has lost an entry after the newest snapshot, where the status then took
 * it for the log's end. Earlier entries are counted by the snapshot and not read. */
static void print_gap(const diloco_run_status *run, const char *store)
{
    if (!run->done && diloco_log_check_gap(store, run->entries) == DILOCO_EPROTO)
        printf("log        %s\n", diloco_error_text());
}

/* Print the run, its progress and its participants. The volume of the newest commit is computed by
 * the formulas of P19, so it is of all replicas together and needs no record. */
static void print_status(const diloco_run_status *run, const dl_roster_view *roster,
                         const dl_config *config, const char *store)
{
    dl_unit_text parameters, written, read;
    char program[sizeof run->program];
    dl_printable_line(program, sizeof program, run->program);
    printf("run        %s in %s\n", run->run, store);
    printf("preset     %s, model %s, %s parameters, made by diloco %s\n", run->preset, run->model,
           dl_count_text(parameters, run->parameters), program);
    printf("config     %s\n", run->config_digest);
    printf("entries    %" PRIu64 " of %" PRIu64 " (%" PRIu64 " commits, %" PRIu64
           " aborts); newest snapshot: %" PRIu64 "%s\n",
           run->entries, run->entries_total, run->commits, run->aborts, run->snapshot,
           run->done ? "; the run is complete" : "");
    print_gap(run, store);
    if (run->commits)
        printf(
            "exchange   %s; the newest commit: about %s written and at most %s read, all replicas "
            "together\n",
            run->exchange, dl_bytes_text(written, (double)run->entry_written),
            dl_bytes_text(read, (double)run->entry_read));
    else
        printf("exchange   %s\n", run->exchange);
    print_roster(roster);
    print_rejected(run);
    print_replicas(run, dl_run_kind_of(config)->processes);
    print_peers(run);
}

/* Print the same facts as one object on one line, which the hub serves as /status.json, too. */
static diloco_status print_json(const diloco_run_status *run, const dl_roster_view *roster,
                                const char *store)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, 4 << 20);
    dl_json_init(&json, &out);
    dl_status_json(&json, run, roster, store);
    return dl_print_json(&json, &out);
}

/* Return true if there is a replica that may be alive, and is not known to be. */
static bool worth_watching(const diloco_run_status *run)
{
    for (size_t i = 0; i < run->n_replicas; i++)
        if (!run->replicas[i]->ended && !run->replicas[i]->alive) return !run->done;
    return false;
}

/* A short look is enough where all replicas have shown themselves. Otherwise heartbeats are
 * watched for as long as a live replica needs (P11). */
static diloco_status read_status(diloco_run_status *run, const char *store, bool again)
{
    DL_TRY(diloco_run_status_read(run, store, LOOK_S));
    if (!worth_watching(run)) return DILOCO_OK;
    const double watch_s = run->alive_s;
    if (!again) fprintf(stderr, "watching heartbeats for %.0f s …\n", watch_s);
    diloco_run_status_free(run);
    return diloco_run_status_read(run, store, watch_s);
}

/* One call of the command: where to read, what to print, and in which form. */
typedef struct shown {
    const char *store;      /* of the run */
    dl_config *config;      /* the run's; not read with --json */
    dl_roster_view *roster; /* room for it */
    bool json, why, again, terminal;
} shown;

/* With --watch a terminal is cleared first; other outputs get one status after the other. */
static diloco_status show(const shown *s, bool *done)
{
    diloco_run_status run;
    diloco_status status = DILOCO_OK;
    DL_TRY(dl_roster_view_read(s->roster, s->store));
    DL_TRY(read_status(&run, s->store, s->again));
    *done = run.done;
    if (s->json) {
        status = print_json(&run, s->roster, s->store);
    } else {
        if (s->again && s->terminal) fputs("\033[H\033[2J", stdout);
        print_status(&run, s->roster, s->config, s->store);
        if (s->why) putchar('\n'), dl_print_why(&run, s->config);
        status = dl_flush_output();
    }
    diloco_run_status_free(&run);
    return status;
}

/* Show the status once, or every AGAIN_S seconds until the run is complete or an error occurs. */
static diloco_status show_all(const shown *s)
{
    bool done;
    diloco_status status = show(s, &done);
    while (!status && s->again && !done) {
        dl_clock_sleep(dl_time_from_seconds(AGAIN_S));
        if (!s->json && !s->terminal) putchar('\n');
        status = show(s, &done);
    }
    return status;
}

/* A node's address, or a folder of nodes, has no log; its nodes are listed instead. */
static diloco_status cmd_status(const dl_args *args)
{
    dl_config_path store;
    dl_roster_view roster;
    DL_TRY(dl_settings_store(store, args->target));
    dl_swarm_place(store);
    if (dl_swarm_is_at(store)) return dl_swarm_status(store, dl_args_has(args, DL_FLAG_JSON));
    shown s = {.store = store,
               .roster = &roster,
               .config = malloc(sizeof *s.config),
               .json = dl_args_has(args, DL_FLAG_JSON),
               .why = dl_args_has(args, DL_FLAG_WHY),
               .again = dl_args_has(args, DL_FLAG_WATCH),
               .terminal = isatty(STDOUT_FILENO) == 1};
    if (!s.config) return dl_fail(DILOCO_ENOMEM, "out of memory for the run's settings");
    dl_config_init(s.config);
    diloco_status status = s.json ? DILOCO_OK : diloco_run_config(s.config, store);
    if (!status) status = show_all(&s);
    free(s.config);
    return status;
}

const dl_command dl_command_status = {
    .name = "status",
    .target = "URL",
    .summary = "show a run's model, progress, replicas, and what it waits for",
    .details =
        "It only reads. With --watch a terminal shows the newest; elsewhere each is printed, with\n"
        "--json as one line.",
    .flags = DL_FLAGS(DL_FLAG_JSON, DL_FLAG_WHY, DL_FLAG_WATCH),
    .run = cmd_status,
};
