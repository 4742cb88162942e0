/* cluster_sim.c - a whole cluster in one thread: many machines, one store, virtual time.
 *
 *     cluster_sim [FIRST_SEED [N_SEEDS [N_REPLICAS [EXCHANGE]]]]     (--help)
 *     cluster_sim calm N_REPLICAS EXCHANGE
 *     cluster_goodput goodput CHIPS LEARNERS [WANTED_PERCENT [REPAIR_S [STEP_S [SEED]]]]
 *                             [NAME=VALUE...]
 *     cluster_few slow REPLICAS REQUEST_S [WANTED_ENTRIES [late] | MOST_SECONDS mute]
 *
 * Each replica is the real machine on the real formats over a mem:// store inside a faulty
 * wrapper; only time, training and the process are simulated. From the seed come: speeds, slow
 * spells, delays, unreachable calls (before or after their effect), bytes flipped on the way
 * in, crashes and stops before or after any request, lost local state, late joiners, close rules,
 * and a malicious replica that commits a wrong result; and how many fragments, which schedule, how
 * much overlap. After SIM_QUIET virtual seconds the faults stop.
 *
 * Held, every seed:
 *   I1   equal states at equal entries, rosters included, in all generations of all replicas but a
 *        malicious one's
 *   I2   an entry that was read never reads otherwise later, and the log has no gap
 *   I3   no sample of a shard counts twice (one fragment, tau = 0). Of dealt data none counts twice
 *        in any shape; with one fragment, tau = 0, every one below the cursor that is neither
 *        returned nor held has counted
 *   I4   when faults stop, the run continues to its end; where it is asynchronous no replica whose
 *        own contribution has counted waits for an entry
 *   I5   an audit from theta0 (retain = all) or the oldest snapshot gives the same last digest
 *   I6   a contribution began from the state that it names (but for on_uncounted = keep, and a
 *        malicious one's), and a counted one from the state before its entry (but async's)
 *   I7   a process that has seen a later generation of itself does nothing more
 *   I8   what a live heartbeat needs is not collected
 *   I9   a replica sends its own capture
 *   I10  a replica that was rejected too often counts in no entry until its ban is over
 *   I11  no member has more steps than the positions since its base (but for on_uncounted = keep)
 *   I12  no contribution of an honest replica is refused as one that belongs elsewhere
 * In every tenth seed members have keys, and a writer without one creates objects of any kind under
 * any names (sim_intruder.c): no replica may stop for it. In another tenth a writer announces
 * replicas and stops that do not exist (sim_announcer.c). Calm, nothing fails and every request
 * takes 0.1 s: the time of an exchange is compared with the formula of docs/protocol.md,
 * "Requests". A failing seed is printed; it replays exactly (sim_random.c). And a check that cannot
 * fail is a defect: over many seeds every kind of fault in sim.h must have happened.
 */
#include "protocol/logical_clients.h"
#include "run/open.h"
#include "sim.h"

#include <math.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    MAX_EVENTS = 1000000,
    MAX_EVENTS_OF = 64,
    PROGRESS_EVENTS = 1000000,
    ENOUGH_SEEDS = 100,
    SMALL = 3,
    KEYED = DL_CRYPTO ? 2 : 10,
    COMMITTERS = 3, /* of an open roster */
    ANNOUNCER = 7
};
static const double GIVE_UP = 20000;

double sim_uniform(sim *s, double a, double b)
{
    return a + (b - a) * dl_rng_f64(&s->rng);
}

bool sim_chance(sim *s, double p)
{
    return s->now < SIM_QUIET && dl_rng_f64(&s->rng) < p;
}

/* An object is new: a replica that waits for it and can be notified looks soon. */
void sim_notify(sim *s, const char *key)
{
    if (strncmp(key, "log/", 4) == 0 && !s->calm.is_over) {
        s->calm.grew_at = s->now;
        if (strtoull(key + 4, NULL, 10) + 1 == ENTRIES) sim_loss_end(s);
    }
    s->net.recent[s->net.n_recent++ % SIM_RECENT] =
        (sim_recent){.at = s->now, .key = dl_hash_bytes(key, strlen(key))};
    if (strncmp(key, "c/", 2) != 0 && strncmp(key, "log/", 4) != 0 && strncmp(key, "x/", 2) != 0)
        return;
    for (size_t i = 0; i < s->n_slots; i++) {
        replica *r = &s->replicas[i];
        r->calm.missed |= s->calm.request_s > 0 && r->request.kind != DL_REQUEST_WAIT;
        if (!r->now.alive || !r->wait.told || r->request.kind != DL_REQUEST_WAIT ||
            r->fault.paused_until > s->now)
            continue;
        r->time.at->exchange =
            fmin(r->time.at->exchange,
                 s->now + (s->calm.request_s > 0 ? sim_request_s(r) : sim_uniform(s, 0.001, 0.05)));
    }
}

static void set(dl_config *c, const char *name, const char *value)
{
    if (dl_config_set(c, name, value, "sim")) {
        fprintf(stderr, "%s\n", diloco_error_text());
        exit(1);
    }
}

/* Every third seed deals its data. A step is of one sample. */
static void choose_deal(sim *s)
{
    s->kind.assigned = s->seed % 3 == 0 && !s->schedule.async;
    s->kind.exact = s->kind.assigned && s->n_fragments == 1 && s->schedule.delay == 0;
    if (s->kind.assigned) set(&s->config, "data.deal", "log");
    set(&s->config, "trainer.batch_size", "1");
    if (s->kind.exact) set(&s->config, "run.on_uncounted", "adopt");
    if (s->kind.exact) set(&s->config, "server.diloco.local_mix", "0");
}

/* In every other seed, where there is more than one contribution to an entry; sharded, in half of
 * the seeds with several owners of a slice. A banned replica owns no slice to forge. */
static void choose_checks(sim *s)
{
    const bool sharded = !strcmp(s->kind.topology, "sharded");
    s->kind.checks = s->seed % (sharded ? 4 : 2) == (sharded ? 2 : 0) && !s->schedule.async;
    if (!s->kind.checks) return;
    set(&s->config, "check.norm", "100");
    set(&s->config, "check.cosine", "-0.99");
    set(&s->config, "check.repeat", "2");
    set(&s->config, "check.ban_after", SIM_BAN_AFTER);
    set(&s->config, "check.ban_entries", SIM_BAN_ENTRIES);
    if (s->seed % 4 == 0 && s->schedule.delay == 0 && !sharded) set(&s->config, "check.probe", "2");
}

/* Where each combines a slice, in two of three seeds by a rule that measures whole members; in half
 * of these three combine each. */
static void choose_rule(sim *s)
{
    static const char *const rules[] = {"krum", "geometric_median", "centered_clip",
                                        "rda",  "clipped_mean",     "bulyan"};
    if (strcmp(s->kind.topology, "sharded") != 0 || s->schedule.async || s->seed % 3 == 0) return;
    set(&s->config, "server.diloco.combiner",
        rules[dl_rng_below(&s->rng, sizeof rules / sizeof *rules)]);
    set(&s->config, "server.diloco.robust_fallback", "mean");
    set(&s->config, "server.diloco.slice_owners", s->seed % 4 < 2 ? "1" : "3");
}

/* Fragments, schedule and overlap; every other seed is vanilla. */
static void choose_shape(sim *s)
{
    static const struct {
        size_t n_fragments;
        const char *steps, *delay, *schedule, *rounds, *overlap;
    } shapes[] = {{1, "5", "0", "offset", "8", "steps"},  {1, "5", "0", "offset", "8", "steps"},
                  {2, "5", "0", "offset", "4", "steps"},  {4, "8", "3", "offset", "2", "steps"},
                  {1, "5", "0", "offset", "8", "steps"},  {4, "3", "2", "offset", "2", "steps"},
                  {2, "6", "2", "torchft", "4", "steps"}, {1, "5", "4", "offset", "8", "steps"},
                  {1, "5", "0", "offset", "8", "eager"},  {1, "5", "0", "async", "1", "steps"},
                  {2, "5", "0", "offset", "4", "delayed"}};
    const size_t shape = s->seed % (sizeof shapes / sizeof shapes[0]);
    const size_t i = s->seed % 6 == 0 ? 0 : shape; /* half of those that deal: exactly once */
    s->n_fragments = shapes[i].n_fragments;
    set(&s->config, "trainer.rounds", shapes[i].rounds);
    set(&s->config, "trainer.local_steps_per_round", shapes[i].steps);
    set(&s->config, "server.diloco.overlap_steps", shapes[i].delay);
    set(&s->config, "server.diloco.schedule", shapes[i].schedule);
    set(&s->config, "server.diloco.overlap", shapes[i].overlap);
    set(&s->config, "run.close_at", s->seed % 7 == 3 ? "3" : "0");
    set(&s->config, "server.diloco.local_mix", dl_rng_below(&s->rng, 2) ? "0" : "0.5");
    if (dl_schedule_of(&s->schedule, &s->config, (int)s->n_fragments))
        DIE(s, "%s", diloco_error_text());
    choose_deal(s);
    choose_checks(s);
    choose_rule(s);
}

static void configure(sim *s)
{
    static const char *const rules[] = {"wait", "commit_partial", "abort"};
    char n[16];
    dl_config_init(&s->config);
    snprintf(n, sizeof n, "%zu", s->n);
    set(&s->config, "run.replicas", n);
    set(&s->config, "run.min_replicas", s->seed % 5 ? "1" : n);
    set(&s->config, "run.start_timeout", "60");
    set(&s->config, "run.patience", "30");
    set(&s->config, "run.on_missing", rules[dl_rng_below(&s->rng, 3)]);
    if (sim_loses_one(s)) set(&s->config, "run.on_missing", "wait");
    set(&s->config, "run.on_uncounted", dl_rng_below(&s->rng, 4) ? "adopt" : "keep");
    set(&s->config, "run.retain", dl_rng_below(&s->rng, 2) ? "all" : "recent");
    set(&s->config, "run.snapshot_every", "5");
    set(&s->config, "run.state_dir", "none");
    set(&s->config, "server.diloco.exchange", s->kind.topology);
    choose_shape(s);
}

static void name_of(const sim *s, size_t i, char *out, size_t cap)
{
    const bool twin = s->kind.assigned && s->seed % 9 == 0 && i == 2; /* sits where r1 sits */
    snprintf(out, cap, twin ? "q1" : "r%zu", i);
}

/* In every tenth seed the members have keys. A closed roster lists all of them. An open one lists
 * only the COMMITTERS first ones, which may close entries. */
static void make_members(sim *s, char *path, int fd)
{
    FILE *list = fdopen(fd, "w");
    for (size_t i = 0; list && i < (s->kind.open ? COMMITTERS : s->n); i++) {
        char key[DL_PUBLIC_TEXT], name[DL_REPLICA_MAX + 1];
        dl_public_text(key, dl_signer_public(sim_signer(i)));
        name_of(s, i, name, sizeof name);
        if (!s->kind.open) fprintf(list, "%s ", name);
        fprintf(list, "%s\n", key);
    }
    if (!list || fclose(list)) DIE(s, "%s is not written", path);
    set(&s->config, "run.roster", s->kind.open ? "open" : "closed");
    set(&s->config, s->kind.open ? "run.committers" : "run.members", path);
    dl_rng_init(&s->intruder.rng, s->seed, DL_STREAM(DL_STREAM_TEST, 1001), 0);
}

/* The settings that all seeds share. */
typedef struct setting {
    double calm;                    /* seconds of a request where nothing fails; 0: a storm */
    double step_s, chips, repair_s; /* calm: sim_goodput.c */
    char **options;                 /* the same; NULL: none */
    double slow_s;                  /* calm: sim_slow.c */
    bool mute, late;
} setting;

static void begin(sim *s, uint64_t seed, size_t n, const char *topology, const setting *set_to)
{
    char url[64];
    static float first[N_FLOATS];
    const double calm = set_to->calm;
    memset(s, 0, sizeof *s);
    s->calm.request_s = calm;
    s->calm.step_s = set_to->step_s;
    s->calm.chips = set_to->chips;
    s->calm.repair_s = set_to->repair_s;
    s->calm.options = set_to->options;
    s->calm.slow_s = set_to->slow_s;
    s->calm.mute = set_to->mute;
    s->calm.late = set_to->late;
    if (calm > 0) s->now = SIM_QUIET; /* the faults are over */
    s->seed = seed;
    s->kind.topology = topology;
    s->kind.keyed = seed % 10 == KEYED && calm <= 0 && strcmp(topology, "sharded") != 0;
    s->kind.open = s->kind.keyed && seed / 10 % 2 && !strcmp(topology, "allgather");
    s->kind.announcer = seed % 10 == ANNOUNCER && calm <= 0;
    dl_rng_init(&s->announcer.rng, seed, DL_STREAM(DL_STREAM_TEST, 1002), 0);
    s->n = seed % 4 == 0 && n > SMALL && !s->calm.chips ? SMALL : n;
    dl_rng_init(&s->rng, seed, DL_STREAM(DL_STREAM_TEST, 1000), 0);
    sim_seed_random(seed);
    s->p_crash = dl_rng_below(&s->rng, 2) ? 0.006 : 0.001;
    if (s->calm.chips)
        sim_goodput_configure(s);
    else if (s->calm.slow_s > 0)
        sim_slow_configure(s);
    else
        configure(s);
    snprintf(url, sizeof url, "mem://sim%llu", (unsigned long long)seed);
    set(&s->config, "run.store", url);
    for (size_t i = 0; i < N_FLOATS; i++)
        first[i] = dl_rng_f32(&s->rng);
    static char names[MAX_FRAGMENTS][16];
    const size_t part = N_FLOATS / s->n_fragments;
    for (size_t f = 0; f < s->n_fragments; f++) {
        snprintf(names[f], sizeof names[f], "w%zu", f);
        s->tensors[f] = (diloco_tensor){.name = names[f],
                                        .data = first + f * part,
                                        .n_dims = 1,
                                        .shape = {part},
                                        .fragment = (int)f};
    }
    const dl_run_creation what = {.config = &s->config,
                                  .tensors = s->tensors,
                                  .n_tensors = s->n_fragments,
                                  .data_digest = "",
                                  .signer = s->kind.keyed ? sim_signer(0) : NULL};
    char members[] = "/tmp/diloco-members-XXXXXX";
    const int fd = s->kind.keyed ? mkstemp(members) : -1;
    if (s->kind.keyed) make_members(s, members, fd);
    if (dl_entry_init(&s->truth.entry, dl_clients_max_members(&s->config)) ||
        dl_store_open(&s->store, url, true) ||
        dl_run_create_or_read(&s->file, &s->file_digest, s->store, &what))
        DIE(s, "%s", diloco_error_text());
    if (s->kind.keyed) unlink(members);
    /* An entry seldom takes an update that one of them has combined for all. */
    const uint64_t in_four = strcmp(topology, "allgather") ? 2 : 1;
    const bool byzantine = dl_rng_below(&s->rng, 4) < in_four && calm <= 0;
    s->n_slots = s->n;
    sim_choose_loss(s);
    for (size_t i = 0; i < s->n; i++) {
        replica *r = sim_replica(s, i);
        name_of(s, i, r->name, sizeof r->name);
        r->signer = s->kind.keyed ? sim_signer(i) : NULL;
        r->time.speed = sim_uniform(s, 0.5, 2);
        r->data.shard = i;
        /* some join late */
        r->time.at->exchange = sim_uniform(s, 0, dl_rng_below(&s->rng, 6) ? 20 : 300);
        r->kind.byzantine = byzantine && i == s->n - 1;
        r->kind.sleeper = i == 0 && s->n <= SMALL;
        r->wait.told = dl_rng_below(&s->rng, 2) || r->kind.byzantine;
        if (calm > 0) r->wait.told = true, r->time.at->exchange = s->now;
        if (s->calm.slow_s > 0 && i == s->n - 1)
            r->time.at->exchange = s->now + sim_slow_joins_after(s);
        sim_goodput_plan_failure(r);
    }
}

/* These run for each replica at each event, and fmin is a call. */
static double sooner(double a, double b)
{
    return a < b ? a : b;
}

static double soonest_of(const sim_moments *m)
{
    return sooner(sooner(m->failure, m->upload), sooner(m->exchange, m->trainer));
}

static replica *soonest(sim *s)
{
    size_t first = 0;
    double earliest = INFINITY;
    for (size_t i = 0; i < s->n_slots; i++) {
        const double at = soonest_of(&s->moments[i]);
        if (at >= earliest) continue;
        first = i;
        earliest = at;
    }
    return earliest < INFINITY ? &s->replicas[first] : NULL;
}

/* Each replica reads the contribution of each other one, so events grow with the square of their
 * number: seed 6 has 22,000 with 16, 220,000 with 64. A run that stops in virtual time exceeds
 * any budget; another one reaches GIVE_UP. */
static size_t max_events(size_t n)
{
    const size_t times = n > MAX_EVENTS_OF ? (n + MAX_EVENTS_OF - 1) / MAX_EVENTS_OF : 1;
    return times * times * MAX_EVENTS;
}

/* Does it never end? A log that is to grow for long is given ten times that long. */
static bool is_stuck(const sim *s, size_t events)
{
    if (s->calm.chips) return s->now > SIM_QUIET + 10 * 24 * ENTRIES * s->calm.step_s;
    return s->now > GIVE_UP || events > max_events(s->n);
}

/* A line in some minutes, where a seed of hundreds of replicas takes longer than that. */
static void print_progress(sim *s, size_t events)
{
    if (s->n <= MAX_EVENTS_OF || events % PROGRESS_EVENTS) return;
    fprintf(stderr, "seed %llu at %.0f s: %zu million events, entry %llu is open, %llu crashes\n",
            (unsigned long long)s->seed, s->now, events / 1000000,
            (unsigned long long)sim_open_entry(s), (unsigned long long)s->count.crashes);
}

static void run(sim *s, uint64_t seed, size_t n, const char *topology, const setting *set_to)
{
    begin(s, seed, n, topology, set_to);
    size_t events = 0;
    for (replica *r; (r = soonest(s));) {
        s->now = fmax(s->now, soonest_of(r->time.at));
        sim_cut(s);
        sim_intrude(s);
        sim_announce(s);
        sim_deliver(s);
        print_progress(s, ++events);
        if (is_stuck(s, events))
            DIE(s, "I4: %s does not come to an end: %zu events in %.0f s", r->name, events, s->now);
        sim_turn(r);
    }
    sim_drop_late(s);
    for (int i = 0; i < 2; i++)
        dl_buf_deinit(&s->loss.beats[i]);
    sim_check_ends(s);
    sim_check_log(s);
    sim_audit(s);
    if (s->calm.chips) sim_goodput_measure(s);
    if (s->calm.slow_s > 0) sim_slow_measure(s);
    dl_entry_deinit(&s->truth.entry);
    dl_runfile_deinit(&s->file);
    dl_store_close(s->store);
}

/* SWM-16: of each entry, for the replica that waits longest. */
static int run_calm(sim *s, size_t n, const char *topology)
{
    const double request = 0.1;
    const bool leader = !strcmp(topology, "leader");
    if (!leader && strcmp(topology, "allgather") != 0)
        return fputs("allgather or leader\n", stderr), 2;
    run(s, 1, n, topology, &(setting){.calm = request, .step_s = 1});
    const size_t k = (size_t)s->config.fetchers, reads = (n + k - 1) / k;
    const double bound = request * (double)(leader ? 12 + reads : 6 + reads);
    printf("%zu replicas, %s, %.1f s a request: an exchange takes %.1f s, at most %.1f s\n", n,
           topology, request, s->calm.slowest, bound);
    return s->count.commits != ENTRIES * n || s->calm.slowest <= 0 ||
           s->calm.slowest > bound * 1.0001;
}

static const char usage[] =
    "usage: cluster_sim [FIRST_SEED [N_SEEDS [N_REPLICAS [EXCHANGE]]]]      (1 200 16 allgather)\n"
    "       cluster_sim calm N_REPLICAS EXCHANGE\n"
    "       cluster_goodput goodput CHIPS LEARNERS [WANTED_PERCENT [REPAIR_S [STEP_S [SEED]]]] "
    "[NAME=VALUE...]\n"
    "       cluster_few slow REPLICAS REQUEST_S [WANTED_ENTRIES [late] | MOST_SECONDS mute]\n"
    "\n"
    "Plays N_SEEDS clusters in virtual time, one after the other, and stops at the first that\n"
    "breaks an invariant, with the line that replays it. Every fourth has 3 replicas, of which "
    "one\n"
    "sleeps through collections. From 100 seeds on it also fails when\n"
    "a kind of fault never happened.\n"
    "exit: 0 all held, 1 an invariant broke or a fault never happened, 2 wrong usage\n";

static double amount(int argc, char **argv, int i, double otherwise)
{
    return argc > i ? strtod(argv[i], NULL) : otherwise;
}

static int run_goodput(sim *s, int argc, char **argv)
{
    while (argc > 4 && strchr(argv[argc - 1], '='))
        argc--;
    if (argc > 8) return fputs(usage, stderr), 2;
    const double wanted = amount(argc, argv, 4, 0), learners = amount(argc, argv, 3, 0);
    const uint64_t seed = (uint64_t)amount(argc, argv, 7, 1);
    const setting set_to = {.calm = 0.1,
                            .options = argv + argc,
                            .chips = amount(argc, argv, 2, 0),
                            .repair_s = amount(argc, argv, 5, 30),
                            .step_s = amount(argc, argv, 6, 2)};
    if (!(learners >= 1 && learners <= MAX_REPLICAS && set_to.chips >= learners) ||
        !(set_to.repair_s >= 0 && set_to.step_s > 0) || ENTRIES % 4 != 0)
        return fputs("CHIPS and LEARNERS, at most 1 learner a chip\n", stderr), 2;
    run(s, seed, (size_t)learners, "allgather", &set_to);
    if (100 * s->calm.goodput >= wanted) return 0;
    return fprintf(stderr, "goodput is less than %g %%\n", wanted), 1;
}

static int run_slow(sim *s, int argc, char **argv)
{
    const double replicas = amount(argc, argv, 2, 0), wanted = amount(argc, argv, 4, 0);
    const bool mute = argc > 5 && !strcmp(argv[5], "mute");
    const bool late = argc > 5 && !strcmp(argv[5], "late");
    const setting set_to = {.calm = 0.001,
                            .step_s = 0.016,
                            .slow_s = amount(argc, argv, 3, 0),
                            .mute = mute,
                            .late = late};
    if (!(replicas >= 2 && replicas <= MAX_REPLICAS && set_to.slow_s > 0) ||
        (argc > 5 && !mute && !late))
        return fputs("REPLICAS, at least 2, and SECONDS\n", stderr), 2;
    run(s, 1, (size_t)replicas, "allgather", &set_to);
    const double took = s->calm.grew_at - SIM_QUIET;
    if (mute && took > wanted) return fprintf(stderr, "more than %g s\n", wanted), 1;
    if (mute || (double)s->calm.counted >= wanted) return 0;
    return fprintf(stderr, "less than %g entries count it\n", wanted), 1;
}

/* A whole number from 1 to max; 0: it is no number. */
static uint64_t number(const char *text, uint64_t max)
{
    char *end;
    const unsigned long long n = strtoull(text, &end, 10);
    return *end || text[0] == '-' || n > max ? 0 : n;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--help")) return fputs(usage, stdout) < 0;
    static sim s;
    /* A replica's arenas are large, and a small run uses little of them: huge pages would be most
     * of the memory of thousands. */
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    if (argc == 4 && !strcmp(argv[1], "calm") && number(argv[2], MAX_REPLICAS))
        return run_calm(&s, (size_t)number(argv[2], MAX_REPLICAS), argv[3]);
    if (argc > 3 && !strcmp(argv[1], "goodput")) return run_goodput(&s, argc, argv);
    if (argc > 3 && argc < 7 && !strcmp(argv[1], "slow")) return run_slow(&s, argc, argv);
    const uint64_t first = argc > 1 ? number(argv[1], UINT32_MAX) : 1;
    const uint64_t many = argc > 2 ? number(argv[2], UINT32_MAX) : 200;
    const uint64_t n = argc > 3 ? number(argv[3], MAX_REPLICAS) : 16;
    const char *topology = argc > 4 ? argv[4] : "allgather";
    uint64_t commits = 0, aborts = 0, crashes = 0;
    if (!first || !many || !n || argc > 5) return fputs(usage, stderr), 2;
    for (uint64_t seed = first; seed < first + many; seed++) {
        run(&s, seed, (size_t)n, topology, &(setting){.calm = 0});
        commits += s.count.commits, aborts += s.count.aborts, crashes += s.count.crashes;
    }
    printf("seeds %llu to %llu, %llu replicas: %llu commits and %llu aborts folded, %llu crashes\n",
           (unsigned long long)first, (unsigned long long)(first + many - 1), (unsigned long long)n,
           (unsigned long long)commits, (unsigned long long)aborts, (unsigned long long)crashes);
    sim_print_happenings();
    return many >= ENOUGH_SEEDS && !sim_all_happened(topology);
}
