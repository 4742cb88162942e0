/* cluster_sim.c - a whole cluster in one thread: many machines, one store, virtual time.
 *
 *     cluster_sim [FIRST_SEED [N_SEEDS [N_REPLICAS]]]     (--help)
 *
 * Each replica is the real machine on the real formats over a mem:// store behind a faulty
 * wrapper; only time, training and the process are played. From the seed come: speeds, slow
 * spells, delays, unreachable calls (before or after their effect), bytes flipped on the way
 * in, crashes before or after any ask, lost local state, late joiners, close rules, and a
 * liar who commits a wrong result. After QUIET virtual seconds the faults stop.
 *
 * Held, every seed:
 *   I1  equal digests at equal entries, in all lives of all replicas but a liar's
 *   I2  an entry that was read never reads otherwise later, and the log has no gap
 *   I3  no sample of a shard counts twice
 *   I4  when faults stop, the run goes on to its end
 *   I5  an audit from theta0 (retain = all) or the oldest snapshot gives the same last digest
 * A failing seed is printed; it replays exactly. And a check that cannot fail is a defect: over
 * many seeds every kind of fault in sim.h must have happened. */
#include "run/open.h"
#include "sim.h"
#include "store/kind.h"

#include <math.h>
#include <string.h>

enum { MAX_EVENTS = 1000000, ENOUGH_SEEDS = 100, SMALL = 3 };
static const double QUIET = 2000, GIVE_UP = 20000, HEARTBEAT = 5;

static double uniform(sim *s, double a, double b)
{
    return a + (b - a) * dl_rng_f64(&s->rng);
}
static bool chance(sim *s, double p)
{
    return s->now < QUIET && dl_rng_f64(&s->rng) < p;
}
static dl_time clock_of(const sim *s)
{
    return dl_time_from_seconds(1 + s->now);
}

/* ---- what happened ----------------------------------------------------------------------- */

static void count(sim_happening what, bool happened)
{
    sim_happened[what] += happened;
}

static bool is_partial(const sim *s, const dl_control *control, const dl_entry *entry)
{
    if (control->entry == 0) return false;
    if (strcmp(s->config.on_missing, "commit_partial") != 0) return false;
    for (size_t i = 0; i < control->roster.n; i++) {
        bool there = false;
        for (size_t k = 0; k < entry->n_members; k++)
            there |= !strcmp(entry->members[k].life.replica, control->roster.names[i]);
        if (!there) return true;
    }
    return false;
}

static void count_commit(const replica *r, const dl_entry *entry)
{
    count(SIM_EARLY_START, entry->entry == 0 && entry->n_members < r->sim->n);
    count(SIM_PARTIAL, is_partial(r->sim, &dl_exec_state(r->exec)->control, entry));
    r->sim->commits++;
}

static void count_abort(sim *s, const dl_entry *entry)
{
    count(SIM_NO_QUORUM, strstr(entry->reason, "no quorum") != NULL);
    count(SIM_ABORT_RULE, strstr(entry->reason, "not all") != NULL);
    count(SIM_SILENT, strstr(entry->reason, "silent:") != NULL);
    s->aborts++;
}

static void on_note(void *user, const dl_note *n)
{
    replica *r = user;
    sim *s = r->sim;
    const bool keep = strcmp(s->config.on_uncounted, "keep") == 0;
    switch (n->kind) {
    case DL_NOTE_COMMIT:
        count_commit(r, n->entry);
        break;
    case DL_NOTE_ABORT:
        count_abort(s, n->entry);
        break;
    case DL_NOTE_VOID:
        count(SIM_VOID, true);
        break;
    case DL_NOTE_REJECT:
        count(SIM_REJECT, true);
        break;
    case DL_NOTE_DISPUTE:
        count(SIM_DISPUTE, true);
        break;
    case DL_NOTE_LATE:
        count(keep ? SIM_LATE_KEEP : SIM_LATE_ADOPT, true);
        break;
    case DL_NOTE_DEADLINE:
    case DL_NOTE_SILENT:
        break;
    }
}

/* Of an ask that was carried out, and of its answer. */
static void count_answer(const dl_ask *a, const dl_event *event)
{
    count(SIM_UNREACHABLE, event->status == DILOCO_EUNREACHABLE);
    count(SIM_READ_AFRESH, a->kind == DL_ASK_FETCH && a->fresh);
    if (event->status) return;
    count(SIM_TAKEOVER, a->kind == DL_ASK_CONTRIBUTE && event->taken);
    count(SIM_LOST_RACE, a->kind == DL_ASK_CREATE && event->taken);
}

/* Of what a machine asks for next. */
static void count_ask(replica *r)
{
    const dl_ask *a = &r->ask;
    count(SIM_REJOIN_GONE, a->kind == DL_ASK_REJOIN && a->entry == UINT64_MAX);
    count(SIM_REJOIN_BASE, a->kind == DL_ASK_REJOIN && a->entry != UINT64_MAX);
    if (a->kind != DL_ASK_TRAIN) return;
    count(SIM_LATE_JOINER, !r->has_trained && a->entry > 0);
    r->has_trained = true;
}

/* ---- a replica's life ------------------------------------------------------------------- */

static void bury(replica *r)
{
    dl_machine_destroy(r->machine);
    dl_exec_destroy(r->exec);
    dl_store_close(r->store);
    r->machine = NULL;
    r->exec = NULL;
    r->store = NULL;
    r->alive = false;
}

static void crash(replica *r)
{
    sim *s = r->sim;
    bury(r);
    s->crashes++;
    r->n_crashes++;
    if (chance(s, 0.15)) {
        count(SIM_LOST_STATE, r->disk.there);
        r->disk.there = false;
    }
    r->next = s->now + uniform(s, 0.1, chance(s, 0.2) ? 400 : 20);
}

static diloco_status open_faulty(replica *r)
{
    sim *s = r->sim;
    dl_store *plain;
    char url[64];
    const dl_faults faults = {.seed = dl_rng_u64(&s->rng),
                              .p_unreachable_before = s->now < QUIET ? 0.02 : 0,
                              .p_unreachable_after = s->now < QUIET ? 0.02 : 0,
                              .p_flip = s->now < QUIET ? 0.003 : 0};
    snprintf(url, sizeof url, "mem://sim%llu", (unsigned long long)s->seed);
    DL_TRY(dl_store_open(&plain, url, false));
    return dl_store_faulty(&r->store, plain, faults);
}

static void begin_machine(replica *r, bool resumed)
{
    const dl_state *state = dl_exec_state(r->exec);
    const dl_machine_start start = {.digest = state->now[0].digest,
                                    .n_commits = state->now[0].n_commits,
                                    .resumed = resumed,
                                    .due = resumed && r->disk.due,
                                    .resumed_entry = r->disk.entry,
                                    .resumed_position = r->disk.position,
                                    .resumed_base = r->disk.base,
                                    .now = clock_of(r->sim)};
    r->ask = dl_machine_begin(r->machine, &start);
}

static diloco_status make_machine(replica *r)
{
    sim *s = r->sim;
    const dl_state *state = dl_exec_state(r->exec);
    const dl_machine_args args = {.config = &s->file.config,
                                  .run = s->file.id,
                                  .self = r->life,
                                  .control = &dl_exec_state(r->exec)->control,
                                  .outer = state->outer,
                                  .weighting = dl_weighting_find("uniform"),
                                  .combiner = dl_combiner_find("mean"),
                                  .max_members = state->control.roster.cap,
                                  .snapshot_bytes = 1000,
                                  .entries = ENTRIES,
                                  .interval = H,
                                  .note = on_note,
                                  .note_user = r};
    return dl_machine_create(&r->machine, &args);
}

/* As diloco_run_join. */
static diloco_status live(replica *r)
{
    sim *s = r->sim;
    s->tensor.data = r->w;
    dl_exec_args args = {.run = &s->file,
                         .run_digest = s->file_digest,
                         .tensors = &s->tensor,
                         .n_tensors = 1,
                         .max_members = MAX_REPLICAS,
                         .n_copies = 2};
    DL_TRY(open_faulty(r));
    DL_TRY(dl_run_claim_life(&r->life, r->store, r->name, &s->file));
    args.store = r->store;
    args.self = r->life;
    DL_TRY(dl_exec_create(&r->exec, &args));
    DL_TRY(dl_snapshot_read_newest(dl_exec_state(r->exec), r->store, &s->file, s->file_digest,
                                   UINT64_MAX, NULL, DL_NEVER));
    count(SIM_FROM_SNAPSHOT, dl_exec_state(r->exec)->control.entry > 0);
    DL_TRY(make_machine(r));
    r->work = (dl_exec_work){.shard = (uint64_t)(r - s->replicas)};
    r->position = r->next_sample = 0;
    if (r->disk.there) {
        memcpy(r->w, r->disk.w, sizeof r->w);
        r->work = r->disk.work;
        r->next_sample = r->disk.next_sample;
        r->position = r->disk.position;
    }
    begin_machine(r, r->disk.there);
    r->alive = true;
    return DILOCO_OK;
}

static void come_alive(replica *r)
{
    sim *s = r->sim;
    const diloco_status status = live(r);
    if (status && s->now >= QUIET + 500)
        DIE(s, "I4: %s cannot join: %s", r->name, diloco_error_text());
    if (status) { /* the store did not answer: the launcher starts it again */
        bury(r);
        r->next = s->now + uniform(s, 1, 5);
        return;
    }
    r->next = s->now;
    r->beat = s->now;
}

static void beat(replica *r)
{
    char text[160];
    dl_key key;
    snprintf(text, sizeof text, "{\"beat\":%llu,\"entry\":%llu}", (unsigned long long)r->beats++,
             (unsigned long long)dl_exec_state(r->exec)->control.entry);
    dl_key_heartbeat(key, &r->life);
    (void)!dl_store_put(r->store, key, text, strlen(text), DL_NEVER);
    r->beat = r->sim->now + HEARTBEAT;
}

/* ---- asks ------------------------------------------------------------------------------- */

static float pull(const replica *r, uint64_t sample, size_t i)
{
    uint32_t block[4];
    dl_philox(block, r->sim->seed, DL_STREAM(DL_STREAM_TEST, r->work.shard), sample * N_FLOATS + i);
    return (float)block[0] / 4294967296.0f - 0.5f;
}

static void train_to(replica *r, uint64_t position)
{
    const uint64_t from = dl_machine_position(r->machine);
    if (from > r->position) r->next_sample += from - r->position; /* skipped steps (P13) */
    for (r->position = from; r->position < position; r->position++, r->next_sample++) {
        for (size_t i = 0; i < N_FLOATS; i++)
            r->w[i] -= 0.01f * (r->w[i] + pull(r, r->next_sample, i));
        if (r->work.steps++ == 0) r->work.first_sample = r->next_sample;
        r->work.samples++;
        r->work.tokens += 3;
        r->work.end_sample = r->next_sample + 1;
        r->work.step++;
    }
    r->work.position = r->position;
}

static void save(replica *r, const dl_ask *ask)
{
    r->disk = (local_state){.there = true,
                            .due = true,
                            .base = dl_exec_state(r->exec)->now[0].digest,
                            .entry = ask->entry,
                            .position = ask->position,
                            .next_sample = r->next_sample,
                            .work = r->work};
    memcpy(r->disk.w, r->w, sizeof r->w);
}

static void after_adopting(replica *r, const dl_ask *ask)
{
    if (!ask->to_local) return;
    const uint64_t shard = r->work.shard, step = r->work.step;
    r->work = (dl_exec_work){.shard = shard, .step = step};
}

static void rejoin(replica *r)
{
    dl_event event = {.now = clock_of(r->sim)};
    r->next = r->sim->now + 1;
    dl_exec_do(r->exec, &r->ask, &event, DL_NEVER);
    if (event.status) return; /* asked again */
    begin_machine(r, false);
}

/* How long an ask takes, in virtual seconds. */
static double duration(replica *r)
{
    sim *s = r->sim;
    switch (r->ask.kind) {
    case DL_ASK_TRAIN: {
        /* A machine that sleeps for so long finds what it missed collected (P25). */
        if (r->sleeper && r->ask.entry > 0 && chance(s, 0.3)) return uniform(s, 200, 900);
        const double steps = (double)(r->ask.position - dl_machine_position(r->machine));
        return steps * r->speed * (chance(s, 0.03) ? uniform(s, 5, 60) : uniform(s, 0.9, 1.2));
    }
    case DL_ASK_WAIT: {
        const double until = dl_seconds(r->ask.until) - 1 - s->now;
        return fmax(0.001, fmin(until, uniform(s, 0.05, 0.5)));
    }
    default:
        return chance(s, 0.01) ? uniform(s, 1, 40) : uniform(s, 0.001, 0.05);
    }
}

static void carry_out(replica *r, dl_event *event)
{
    const dl_ask *a = &r->ask;
    event->now = clock_of(r->sim);
    switch (a->kind) {
    case DL_ASK_TRAIN:
        train_to(r, a->position);
        break;
    case DL_ASK_SAVE:
        save(r, a);
        break;
    case DL_ASK_WAIT:
        break;
    case DL_ASK_SNAPSHOT: /* a joiner has to trust snapshots that fit the log: the liar's too */
        if (!r->liar) dl_exec_do(r->exec, a, event, DL_NEVER);
        break;
    case DL_ASK_CONTRIBUTE:
        dl_exec_tell(r->exec, &r->work); /* fall through */
    default:
        dl_exec_do(r->exec, a, event, DL_NEVER);
    }
    if (a->kind == DL_ASK_READ && event->text && !event->status) {
        sim *s = r->sim; /* a flipped read is damaged, not changed: its check does not fit */
        if (!dl_entry_read(&s->entry, event->text, event->text_len, dl_exec_state(r->exec)->outer))
            sim_check_text(s, a->entry, event->text, event->text_len);
    }
    if (a->kind == DL_ASK_COMPUTE && r->liar && !event->status && chance(r->sim, 0.3))
        event->result.bytes[3] ^= 0x10; /* a committer that flips a bit (P7) */
}

static void act(replica *r)
{
    sim *s = r->sim;
    if (chance(s, s->p_crash)) return crash(r);
    dl_event event = {.status = DILOCO_OK};
    carry_out(r, &event);
    count_answer(&r->ask, &event);
    if (chance(s, s->p_crash)) return crash(r);
    if (event.status == DILOCO_EUNREACHABLE) {
        r->next = s->now + uniform(s, 0.1, 2);
        return;
    }
    const dl_ask done = r->ask;
    r->ask = dl_machine_next(r->machine, &event);
    count_ask(r);
    if (done.kind == DL_ASK_ADOPT) {
        after_adopting(r, &done);
        sim_check_digest(r);
    }
}

static void turn(replica *r)
{
    sim *s = r->sim;
    if (!r->alive) return come_alive(r);
    if (s->now >= r->beat) beat(r);
    if (r->ask.kind == DL_ASK_REJOIN) return rejoin(r);
    act(r);
    if (!r->alive || r->next > s->now) return;
    switch (r->ask.kind) {
    case DL_ASK_DONE:
        r->done = true;
        if (dl_exec_state(r->exec)->control.entry != ENTRIES) DIE(s, "%s ended early", r->name);
        sim_check_digest(r);
        bury(r);
        r->next = INFINITY;
        return;
    case DL_ASK_FAIL:
        if (r->ask.status == DILOCO_EPROTO || r->ask.status == DILOCO_EFENCED ||
            r->ask.status == DILOCO_EDIFFERS)
            DIE(s, "%s stops: %s", r->name, diloco_error_text());
        return crash(r);
    default:
        break;
    }
    if (r->next <= s->now) r->next = s->now + duration(r);
}

/* ---- a run ------------------------------------------------------------------------------ */

static void set(dl_config *c, const char *name, const char *value)
{
    if (dl_config_set(c, name, value, "sim")) {
        fprintf(stderr, "%s\n", diloco_error_text());
        exit(1);
    }
}

static void configure(sim *s)
{
    static const char *const rules[] = {"wait", "commit_partial", "abort"};
    char n[16];
    dl_config_init(&s->config);
    snprintf(n, sizeof n, "%zu", s->n);
    set(&s->config, "run.replicas", n);
    set(&s->config, "run.min_replicas", "1");
    set(&s->config, "run.start_timeout", "60");
    set(&s->config, "run.patience", "30");
    set(&s->config, "run.on_missing", rules[dl_rng_below(&s->rng, 3)]);
    set(&s->config, "run.on_uncounted", dl_rng_below(&s->rng, 4) ? "adopt" : "keep");
    set(&s->config, "run.retain", dl_rng_below(&s->rng, 2) ? "all" : "recent");
    set(&s->config, "run.snapshot_every", "5");
    set(&s->config, "run.state_dir", "none");
    set(&s->config, "trainer.rounds", "8");
    set(&s->config, "trainer.local_steps_per_round", "5");
}

static void begin(sim *s, uint64_t seed, size_t n)
{
    char url[64];
    static float first[N_FLOATS];
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->n = seed % 4 == 0 && n > SMALL ? SMALL : n;
    dl_rng_init(&s->rng, seed, DL_STREAM(DL_STREAM_TEST, 1000), 0);
    s->p_crash = dl_rng_below(&s->rng, 2) ? 0.003 : 0.0005;
    configure(s);
    snprintf(url, sizeof url, "mem://sim%llu", (unsigned long long)seed);
    set(&s->config, "run.store", url);
    for (size_t i = 0; i < N_FLOATS; i++)
        first[i] = dl_rng_f32(&s->rng);
    s->tensor = (diloco_tensor){.name = "w", .data = first, .n_dims = 1, .shape = {N_FLOATS}};
    const dl_run_creation what = {
        .config = &s->config, .tensors = &s->tensor, .n_tensors = 1, .data_digest = ""};
    if (dl_entry_init(&s->entry, MAX_REPLICAS) || dl_store_open(&s->store, url, true) ||
        dl_run_create_or_read(&s->file, &s->file_digest, s->store, &what))
        DIE(s, "%s", diloco_error_text());
    const bool liar = dl_rng_below(&s->rng, 4) == 0;
    for (size_t i = 0; i < s->n; i++) {
        replica *r = &s->replicas[i];
        snprintf(r->name, sizeof r->name, "r%zu", i);
        r->sim = s;
        r->speed = uniform(s, 0.5, 2);
        r->next = uniform(s, 0, dl_rng_below(&s->rng, 6) ? 20 : 300); /* some join late */
        r->liar = liar && i == s->n - 1;
        r->sleeper = i == 0 && s->n <= SMALL;
    }
}

static replica *soonest(sim *s)
{
    replica *first = NULL;
    for (size_t i = 0; i < s->n; i++)
        if (!s->replicas[i].done && (!first || s->replicas[i].next < first->next))
            first = &s->replicas[i];
    return first;
}

static void run(sim *s, uint64_t seed, size_t n)
{
    begin(s, seed, n);
    size_t events = 0;
    for (replica *r; (r = soonest(s));) {
        s->now = fmax(s->now, r->next);
        if (s->now > GIVE_UP || ++events > MAX_EVENTS)
            DIE(s, "I4: %s does not come to an end", r->name);
        turn(r);
    }
    sim_check_log(s);
    sim_audit(s);
    dl_entry_deinit(&s->entry);
    dl_runfile_deinit(&s->file);
    dl_store_close(s->store);
}

static const char usage[] =
    "usage: cluster_sim [FIRST_SEED [N_SEEDS [N_REPLICAS]]]      (1 200 16)\n"
    "\n"
    "Plays N_SEEDS clusters in virtual time, one after the other, and stops at the first that\n"
    "breaks an invariant, with the line that replays it. Every fourth has 3 replicas, of which "
    "one\n"
    "sleeps through collections. From 100 seeds on it also fails when\n"
    "a kind of fault never happened.\n"
    "exit: 0 all held, 1 an invariant broke or a fault never happened, 2 wrong usage\n";

/* A whole number from 1 to max; 0: it is none. */
static uint64_t number(const char *text, uint64_t max)
{
    char *end;
    const unsigned long long n = strtoull(text, &end, 10);
    return *end || text[0] == '-' || n > max ? 0 : n;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--help")) return fputs(usage, stdout) < 0;
    const uint64_t first = argc > 1 ? number(argv[1], UINT32_MAX) : 1;
    const uint64_t many = argc > 2 ? number(argv[2], UINT32_MAX) : 200;
    const uint64_t n = argc > 3 ? number(argv[3], MAX_REPLICAS) : 16;
    static sim s;
    uint64_t commits = 0, aborts = 0, crashes = 0;
    if (!first || !many || !n || argc > 4) return fputs(usage, stderr), 2;
    for (uint64_t seed = first; seed < first + many; seed++) {
        run(&s, seed, (size_t)n);
        commits += s.commits, aborts += s.aborts, crashes += s.crashes;
    }
    printf("seeds %llu to %llu, %llu replicas: %llu commits and %llu aborts folded, %llu crashes\n",
           (unsigned long long)first, (unsigned long long)(first + many - 1), (unsigned long long)n,
           (unsigned long long)commits, (unsigned long long)aborts, (unsigned long long)crashes);
    sim_print_happenings();
    return many >= ENOUGH_SEEDS && !sim_all_happened();
}
