/* crew.c - names, threads, settings; then processes.c runs the processes and report.c prints.
 *
 * Begin with run_named. The process here trains nothing: it starts the replicas, reads their
 * events, and reports the end. Everything that can be refused is refused in dl_crew_check,
 * before the run is created. */
#include "cli/crew/crew.h"

#include "base/host_port.h"
#include "base/run_kind.h"
#include "cli/crew/names.h"
#include "cli/crew/processes.h"
#include "cli/display/onward.h"
#include "cli/display/report.h"
#include "cli/display/units.h"
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include "fetch/fetch_early.h"
#include "notify/notify.h"
#include <diloco/inspect.h>
#include <diloco/train.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

/* Bytes of the settings, bytes of the line about creating, and how often the report is drawn: on
 * a terminal, and elsewhere. */
enum { SETTINGS_MAX = 1 << 20, CREATED_MAX = 1 << 16, TICK_MS = 100, LOOK_MS = 1000 };

/* One call of dl_crew_run. `config` and `args` are borrowed; the rest is owned. */
typedef struct crew {
    dl_config *config;      /* the caller's; run.local_replicas and run.threads are filled in */
    const dl_args *args;    /* borrowed */
    size_t n;               /* replicas here */
    dl_replica_name *names; /* [n], owned */
    bool *is_new;           /* [n], owned: the run has never had the name */
    dl_buf settings;        /* for the replicas, as text; owned */
    const dl_buf *created;  /* the line with the traffic of creating the run; NULL: no such line */
    dl_report report;
    bool complete; /* the run was, before anything was started */
    bool is_first; /* this command found no run, so no name that the run has is of this machine */
} crew;

/* Values that the program chooses have the origin "chosen", so they do not count as a person's. */
static diloco_status set_number(dl_config *config, const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return dl_config_set(config, name, text, "chosen");
}

/* Return how many replicas this machine runs, before or after it is filled in. With logical
 * clients a machine needs one worker. */
static int64_t local_replicas(const dl_config *config)
{
    if (config->local_replicas > 0) return config->local_replicas;
    return dl_run_kind_of(config)->processes ? config->replicas : 1;
}

/* The cores are divided evenly. Threads are at least 1, also with more replicas than cores. */
diloco_status dl_crew_fill_in(dl_config *config)
{
    if (config->local_replicas == 0)
        DL_TRY(set_number(config, "run.local_replicas", local_replicas(config)));
    if (config->threads > 0) return DILOCO_OK;
    int64_t threads = diloco_cores() / config->local_replicas;
    return set_number(config, "run.threads", threads > 1 ? threads : 1);
}

/* ---- the first line */

/* Report the run and its progress so far, and the share of this machine. A run that is complete
 * already is noticed here. */
static diloco_status print_start(crew *c)
{
    char line[DL_PATH_MAX + 512];
    dl_config_path room;
    dl_unit_text parameters;
    const dl_config *config = c->config;
    const char *place = dl_onward_place(room, config, c->args->target);
    const bool federated = dl_config_federated(config);
    diloco_run_status run;
    diloco_status status = diloco_run_status_read(&run, config->store, 0);
    /* A run whose status cannot be read cannot be joined either, so the error ends the command. */
    if (!status) {
        snprintf(line, sizeof line,
                 "run %.8s in %s: preset %s, %s parameters, %" PRIu64 " of %" PRIu64
                 " entries done",
                 run.run, place, run.preset, dl_count_text(parameters, run.parameters), run.entries,
                 run.entries_total);
        /* Without a log a run has rounds, and no entries that count for all. */
        if (dl_swarm_is(config))
            snprintf(line, sizeof line,
                     "run %.8s in %s: preset %s, %s parameters, %" PRId64
                     " rounds, no consensus: each node keeps a model of its own",
                     run.run, place, run.preset, dl_count_text(parameters, run.parameters),
                     config->rounds);
        dl_report_print(&c->report, line);
        snprintf(line, sizeof line,
                 "%zu %s%s here %s %" PRId64 "%s, %" PRId64 " thread%s each on %d core%s (%s)",
                 c->n, federated ? config->role == DL_ROLE_SERVER ? "server" : "worker" : "replica",
                 dl_plural(c->n), federated ? "for" : "of",
                 federated ? config->total_clients : config->replicas, federated ? " clients" : "",
                 config->threads, dl_plural((uint64_t)config->threads), diloco_cores(),
                 dl_plural((uint64_t)diloco_cores()), diloco_isa());
        dl_report_print(&c->report, line);
        /* The replicas are started all the same: they find the run complete, and end. */
        c->complete = run.done;
    }
    diloco_run_status_free(&run);
    return status;
}

/* ---- while they run */

/* An event of a replica, on the thread of dl_launch_run. All of these callbacks are, so the
 * report needs no lock. */
static void on_event(void *user, size_t replica, dl_json_value event)
{
    crew *c = user;
    dl_report_event(&c->report, replica, event);
}

/* A sentence for a person, such as "r1 was killed by signal 9 (Killed); …". */
static void on_notice(void *user, const char *line)
{
    crew *c = user;
    dl_report_print(&c->report, line);
}

/* Called at each tick. Replicas elsewhere are counted, so a wait for them is explained. */
static void on_tick(void *user)
{
    crew *c = user;
    const uint64_t all = (uint64_t)c->config->replicas;
    dl_report_draw(&c->report);
    dl_report_wait(&c->report, c->config->store,
                   dl_run_kind_of(c->config)->processes && all > c->n ? all - c->n : 0);
}

/* Another machine has taken the new name of this replica; it gets another one. */
static diloco_status on_taken(void *user, size_t replica)
{
    crew *c = user;
    return dl_names_choose_another(c->names, c->n, replica, c->config);
}

/* /proc/self/exe is this program, also if its file was replaced meanwhile. */
static diloco_status launch(crew *c)
{
    static const char *const command[] = {"/proc/self/exe", "replica", NULL};
    const dl_launch plan = {
        .command = command,
        .names = c->names,
        .is_new = c->is_new,
        .n = c->n,
        .settings = &c->settings,
        .restarts = c->config->restarts,
        /* Drawing needs a quick tick; without a screen the tick only looks for waits. */
        .tick_ms = c->report.screen.live ? TICK_MS : LOOK_MS,
        .user = c,
        .on_event = on_event,
        .on_notice = on_notice,
        .on_tick = on_tick,
        .on_taken = on_taken,
    };
    return dl_launch_run(&plan);
}

/* A run that was complete before would otherwise end without a word about how to train on. */
static void print_complete(crew *c)
{
    static dl_config settings; /* too large for some stacks */
    char words[DL_ONWARD_MAX], line[DL_ONWARD_MAX + 64];
    if (!c->complete || dl_swarm_is(c->config)) return;
    dl_config_init(&settings);
    if (diloco_run_config(&settings, c->config->store)) return; /* unreachable since it was read */
    dl_onward_continue(words, c->config, &settings);
    snprintf(line, sizeof line, "the run was complete already; %s", words);
    dl_report_print(&c->report, line);
}

/* The status that decides the exit code of a run's replicas. A full disk may have space later, as a
 * store that does not answer may answer later, so both have one exit code. A launcher starts the
 * replica again then (dl_job_may_be_restarted). */
static diloco_status status_to_exit(diloco_status status)
{
    return status == DILOCO_EFULL ? DILOCO_EUNREACHABLE : status;
}

/* The screen is cleared first. The error's text is kept, and --json is printed for failures as
 * well. */
static diloco_status finish(crew *c, diloco_status status)
{
    char again[1024];
    /* The live lines end here; later lines stay on the terminal. */
    dl_screen_draw(&c->report.screen, NULL, 0);
    if (status == DILOCO_EINTERRUPTED) {
        dl_args_again(again, sizeof again, c->args);
        dl_fail(status, "stopped; nothing is lost, and the same command resumes: %s", again);
    }
    if (!status) dl_report_summary(&c->report, c->config->store);
    if (!status) print_complete(c);
    if (dl_args_has(c->args, DL_FLAG_JSON)) {
        diloco_status printed = dl_report_json(&c->report, c->config->store, status);
        if (!status) status = printed;
    }
    return status_to_exit(status);
}

/* Count the traffic of creating the run. Nothing is drawn yet: before the launch a Ctrl-C ends
 * the process, also within a frame. */
static void count_creation(crew *c)
{
    dl_json_value traffic;
    if (!c->created || !c->created->len) return;
    if (!dl_json_parse(&traffic, c->created->data, c->created->len) &&
        dl_json_is(dl_json_get(traffic, "event"), "traffic"))
        dl_kinds_add(&c->report.kinds, traffic);
}

/* The replicas read data that is still arriving from its address. */
static diloco_status write_settings(crew *c)
{
    dl_config *own = malloc(sizeof *own);
    if (!own) return dl_fail(DILOCO_ENOMEM, "out of memory for the settings");
    *own = *c->config;
    dl_early_addresses(own);
    const diloco_status status = dl_settings_write(&c->settings, own);
    free(own);
    return status;
}

/* Names first, since the report shows them; then notifications and the screen, which follow the
 * run. After the launch they are stopped before the last lines. */
static diloco_status run_named(crew *c, bool join)
{
    const dl_args *args = c->args;
    FILE *out = dl_args_has(args, DL_FLAG_JSON) ? stderr : stdout;
    if (dl_args_has(args, DL_FLAG_RANK))
        DL_TRY(dl_names_of_rank(c->names, args));
    else if (join && dl_swarm_is(c->config))
        dl_swarm_names(c->names, c->n, c->config);
    else
        DL_TRY(dl_names_choose(c->names, c->is_new, c->n, c->config, join || c->is_first));
    DL_TRY(write_settings(c));
    DL_TRY(dl_report_open(&c->report, (const dl_replica_name *)c->names, c->n, out,
                          dl_args_has(args, DL_FLAG_QUIET),
                          dl_args_has(args, DL_FLAG_VERBOSE) || c->config->trace_protocol));
    count_creation(c);
    DL_TRY(print_start(c));
    dl_notify *notify;
    if (!c->complete && !dl_swarm_is(c->config)) dl_report_watch(&c->report, c->config->store);
    DL_TRY(dl_notify_start(&notify, c->complete ? "" : c->config->notify, c->config->store));
    diloco_status status = launch(c);
    char why[1024];
    /* The text of the error is saved: stopping the others may replace it. */
    snprintf(why, sizeof why, "%s", status ? diloco_error_text() : "");
    dl_report_unwatch(&c->report);
    dl_notify_stop(notify);
    if (status) status = dl_fail(status, "%s", why);
    return finish(c, status);
}

/* Keep the state of nodes in the folder of their run. Nodes of a run without a log keep all that
 * is theirs in one folder. */
static diloco_status keep_with_the_nodes(dl_config *config)
{
    dl_config_path nodes;
    const char *store = strncmp(config->store, "file://", 7) ? config->store : config->store + 7;
    const int len = snprintf(nodes, sizeof nodes, "%s/nodes", store);
    if (len < 0 || (size_t)len >= sizeof nodes)
        return dl_fail(DILOCO_EINVAL, "run.store is too long a path");
    return dl_config_set(config, "run.state_dir", nodes, "chosen");
}

/* Name, start and watch the replicas, then free all. Everything is allocated before the first
 * process starts, so a lack of memory stops nothing half-way. */
static diloco_status run(dl_config *config, const dl_args *args, bool join, bool is_first,
                         const dl_buf *created)
{
    if (dl_swarm_is(config)) DL_TRY(keep_with_the_nodes(config));
    DL_TRY(dl_crew_fill_in(config));
    crew c = {.config = config,
              .args = args,
              .n = (size_t)config->local_replicas,
              .is_first = is_first,
              .created = created};
    if (c.n > DL_LAUNCH_MAX)
        return dl_fail(DILOCO_EINVAL, "%zu replicas on one machine are more than %d", c.n,
                       DL_LAUNCH_MAX);
    c.names = calloc(c.n, sizeof *c.names);
    c.is_new = calloc(c.n, sizeof *c.is_new);
    dl_buf_init(&c.settings, SETTINGS_MAX);
    /* dl_report_close accepts a zeroed report, so an early error needs no case of its own. */
    diloco_status status = c.names && c.is_new
                               ? run_named(&c, join)
                               : dl_fail(DILOCO_ENOMEM, "out of memory for %zu names", c.n);
    dl_report_close(&c.report);
    dl_buf_deinit(&c.settings);
    free(c.names);
    free(c.is_new);
    return status;
}

/* run.notify reads the log, which a run without consensus lacks. */
static diloco_status check_notify(const dl_config *config)
{
    if (*config->notify && dl_swarm_is(config))
        return dl_fail(DILOCO_EREFUSED, "run.notify follows the log of a run, and a run without "
                                        "consensus has none: omit it");
    return dl_notify_check(config->notify);
}

/* Refuse several replicas with one fixed port. Only one process of a machine can listen at a
 * port. */
static diloco_status check_port(const dl_config *config)
{
    dl_address listen;
    const int64_t here = local_replicas(config);
    if (!config->peers || here < 2) return DILOCO_OK;
    DL_TRY(dl_address_parse(&listen, config->peers_listen));
    if (strcmp(listen.port, "0") == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "run.peers_listen = \"%s\" (%s): %" PRId64
                   " replicas of this machine cannot share port %s: set port 0, which takes any "
                   "free port for each, or run one replica here (--replicas 1)",
                   config->peers_listen, dl_config_origin(config, "run.peers_listen"), here,
                   listen.port);
}

/* Both checks read the configuration alone, so they cost nothing. */
diloco_status dl_crew_check(const dl_config *config)
{
    DL_TRY(check_notify(config));
    return check_port(config);
}

/* The run exists already: join has read its settings from it. */
diloco_status dl_crew_run(dl_config *config, const dl_args *args, bool join)
{
    DL_TRY(dl_crew_check(config));
    return run(config, args, join, false, NULL);
}

/* Keep the last line of the record, which is the traffic of creating the run. Without memory it
 * is left out. */
static void keep_line(void *user, const char *line, size_t len)
{
    dl_buf *kept = user;
    dl_buf_clear(kept);
    if (dl_buf_add(kept, line, len)) dl_buf_clear(kept);
}

/* Is there no run in the store? Any other error is found when the run is created. Nodes of a run
 * without a log have random names. */
static bool has_no_run(const dl_config *config)
{
    static dl_config run; /* too large for some stacks */
    dl_config_init(&run);
    return !dl_swarm_is(config) && diloco_run_config(&run, config->store) == DILOCO_ENOENT;
}

/* Returns the way to need less memory: the option of the largest part. */
static const char *smaller(const diloco_memory_plan *p)
{
    const uint64_t rest = p->local + p->gradient + p->moments + p->theta + p->momentum + p->staging;
    if (p->activations > p->contributions && p->activations > rest)
        return "lower trainer.batch_size";
    return p->contributions > rest ? "set run.spool = \"disk\""
                                   : "take a smaller model (parameters.model)";
}

/* Refuse a run of which one replica certainly does not fit this machine's memory and swap. Created
 * anyway, it would refuse the corrected value. Mapped data may be dropped from memory, and `other`
 * is an estimate, so neither counts. A card's memory is not this machine's, and a server trains
 * nothing. A plan that fails is no reason: creating the run reports what is wrong. */
static diloco_status check_memory(const dl_config *config)
{
    struct sysinfo machine;
    diloco_memory_plan plan;
    dl_unit_text needed, had;
    if (strcmp(config->device, "cpu") != 0 || config->role == DL_ROLE_SERVER) return DILOCO_OK;
    if (sysinfo(&machine) || diloco_train_plan(&plan, config)) return DILOCO_OK;
    const uint64_t bytes = plan.total - plan.data - plan.other;
    const uint64_t has = ((uint64_t)machine.totalram + machine.totalswap) * machine.mem_unit;
    if (bytes <= has) return DILOCO_OK;
    return dl_fail(
        DILOCO_EREFUSED,
        "a replica needs %s of memory, and this machine has %s with its swap: %s (diloco "
        "doctor shows the parts)",
        dl_bytes_text(needed, (double)bytes), dl_bytes_text(had, (double)has), smaller(&plan));
}

/* The run is created in this process, so an error of the store is reported before any replica
 * starts. A replica that joins from now on may have a name before those here have theirs. */
diloco_status dl_crew_create_and_run(dl_config *config, const dl_args *args)
{
    dl_buf created;
    DL_TRY(dl_crew_check(config));
    const bool is_first = has_no_run(config);
    if (is_first) DL_TRY(check_memory(config));
    dl_buf_init(&created, CREATED_MAX);
    const diloco_train_hooks hooks = {.on_record = keep_line, .user = &created};
    diloco_status status = diloco_train_create_with(config, &hooks);
    if (!status) status = run(config, args, false, is_first, &created);
    dl_buf_deinit(&created);
    return status;
}
