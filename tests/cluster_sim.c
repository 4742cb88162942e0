/* cluster_sim.c - a whole cluster in one thread: many machines, one store, virtual time.
 *
 *     cluster_sim [FIRST_SEED [N_SEEDS [N_REPLICAS]]]
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
 * A failing seed is printed; it replays exactly. */
#include "base/rng.h"
#include "run/exec.h"
#include "run/open.h"
#include "run/replay.h"
#include "store/kind.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_FLOATS = 24, ENTRIES = 8, H = 5, MAX_REPLICAS = 64, MAX_EVENTS = 1000000 };
static const double QUIET = 2000, GIVE_UP = 20000, HEARTBEAT = 5;

typedef struct local_state { /* what a replica's disk holds */
    bool         there, due;
    float        w[N_FLOATS];
    uint64_t     entry, position, next_sample, first_sample;
    dl_exec_work work;
} local_state;

typedef struct replica {
    char         name[DL_REPLICA_MAX + 1];
    bool         alive, done, liar;
    double       next, beat, speed; /* virtual seconds; seconds a step */
    dl_life      life;
    dl_store    *store;
    dl_exec     *exec;
    dl_machine  *machine;
    dl_ask       ask;
    float        w[N_FLOATS];
    uint64_t     position, next_sample, beats, n_crashes;
    dl_exec_work work;
    local_state  disk;
    struct sim  *sim;
} replica;

typedef struct sim {
    uint64_t      seed;
    dl_rng        rng;
    double        now, p_crash;
    dl_config     config;
    dl_store     *store; /* without faults: for the referee */
    dl_runfile    file;
    dl_hash       file_digest;
    replica       replicas[MAX_REPLICAS];
    size_t        n;
    diloco_tensor tensor; /* of the template; each replica has its own data */
    dl_hash       digest[ENTRIES + 1]; /* I1: after so many entries */
    bool          known[ENTRIES + 1];
    dl_hash       text[ENTRIES]; /* I2 */
    bool          read[ENTRIES];
    uint64_t      commits, aborts, voids, crashes, rejects;
} sim;

#define DIE(s, ...)                                                                                \
    do {                                                                                           \
        fprintf(stderr, "seed %llu at %.3f s: ", (unsigned long long)(s)->seed, (s)->now);         \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fprintf(stderr, "\nreplay: cluster_sim %llu 1 %zu\n", (unsigned long long)(s)->seed,       \
                (s)->n);                                                                           \
        exit(1);                                                                                   \
    } while (0)

static double  uniform(sim *s, double a, double b) { return a + (b - a) * dl_rng_f64(&s->rng); }
static bool    chance(sim *s, double p) { return s->now < QUIET && dl_rng_f64(&s->rng) < p; }
static dl_time clock_of(const sim *s) { return dl_time_from_seconds(1 + s->now); }

/* ---- the referee ------------------------------------------------------------------------ */

static void check_digest(replica *r)
{
    sim           *s     = r->sim;
    const dl_state *state = dl_exec_state(r->exec);
    const uint64_t e     = state->control.entry;
    if (r->liar || e > ENTRIES) return;
    if (s->known[e] && !dl_hash_equal(s->digest[e], state->now[0].digest))
        DIE(s, "I1: %s has another state after %llu entries", r->name, (unsigned long long)e);
    s->known[e]  = true;
    s->digest[e] = state->now[0].digest;
}

static void check_text(sim *s, uint64_t e, const void *text, size_t len)
{
    const dl_hash digest = dl_hash_bytes(text, len);
    if (e >= ENTRIES) return;
    if (s->read[e] && !dl_hash_equal(s->text[e], digest))
        DIE(s, "I2: entry %llu changed", (unsigned long long)e);
    s->read[e] = true;
    s->text[e] = digest;
}

static void on_note(void *user, const dl_note *n)
{
    sim *s = ((replica *)user)->sim;
    switch (n->kind) {
    case DL_NOTE_COMMIT: s->commits++; break;
    case DL_NOTE_ABORT: s->aborts++; break;
    case DL_NOTE_VOID: s->voids++; break;
    case DL_NOTE_REJECT: s->rejects++; break;
    default: break;
    }
}

/* ---- a replica's life ------------------------------------------------------------------- */

static void bury(replica *r)
{
    dl_machine_destroy(r->machine);
    dl_exec_destroy(r->exec);
    dl_store_close(r->store);
    r->machine = NULL;
    r->exec    = NULL;
    r->store   = NULL;
    r->alive   = false;
}

static void crash(replica *r)
{
    sim *s = r->sim;
    bury(r);
    s->crashes++;
    r->n_crashes++;
    if (chance(s, 0.15)) r->disk.there = false;
    r->next = s->now + uniform(s, 0.1, chance(s, 0.2) ? 400 : 20);
}

static diloco_status open_faulty(replica *r)
{
    sim            *s = r->sim;
    dl_store       *plain;
    char            url[64];
    const dl_faults faults = {.seed                 = dl_rng_u64(&s->rng),
                              .p_unreachable_before = s->now < QUIET ? 0.02 : 0,
                              .p_unreachable_after  = s->now < QUIET ? 0.02 : 0,
                              .p_flip               = s->now < QUIET ? 0.003 : 0};
    snprintf(url, sizeof url, "mem://sim%llu", (unsigned long long)s->seed);
    DL_TRY(dl_store_open(&plain, url, false));
    return dl_store_faulty(&r->store, plain, faults);
}

static void begin_machine(replica *r, bool resumed)
{
    const dl_state        *state = dl_exec_state(r->exec);
    const dl_machine_start start = {.digest           = state->now[0].digest,
                                    .n_commits        = state->now[0].n_commits,
                                    .resumed          = resumed,
                                    .due              = resumed && r->disk.due,
                                    .resumed_entry    = r->disk.entry,
                                    .resumed_position = r->disk.position,
                                    .now              = clock_of(r->sim)};
    r->ask = dl_machine_begin(r->machine, &start);
}

static diloco_status make_machine(replica *r)
{
    sim                  *s     = r->sim;
    const dl_state       *state = dl_exec_state(r->exec);
    const dl_machine_args args  = {.config         = &s->file.config,
                                   .run            = s->file.id,
                                   .self           = r->life,
                                   .control        = &dl_exec_state(r->exec)->control,
                                   .outer          = state->outer,
                                   .weighting      = dl_weighting_find("uniform"),
                                   .combiner       = dl_combiner_find("mean"),
                                   .max_members    = state->control.roster.cap,
                                   .snapshot_bytes = 1000,
                                   .entries        = ENTRIES,
                                   .interval       = H,
                                   .note           = on_note,
                                   .note_user      = r};
    return dl_machine_create(&r->machine, &args);
}

/* As diloco_run_join. */
static diloco_status live(replica *r)
{
    sim *s             = r->sim;
    s->tensor.data     = r->w;
    dl_exec_args args  = {.run         = &s->file,
                          .run_digest  = s->file_digest,
                          .tensors     = &s->tensor,
                          .n_tensors   = 1,
                          .max_members = MAX_REPLICAS,
                          .n_copies    = 2};
    DL_TRY(open_faulty(r));
    DL_TRY(dl_run_claim_life(&r->life, r->store, r->name, &s->file));
    args.store = r->store;
    args.self  = r->life;
    DL_TRY(dl_exec_create(&r->exec, &args));
    DL_TRY(dl_snapshot_read_newest(dl_exec_state(r->exec), r->store, &s->file, s->file_digest,
                                   UINT64_MAX, NULL, DL_NEVER));
    DL_TRY(make_machine(r));
    r->work = (dl_exec_work){.shard = (uint64_t)(r - s->replicas)};
    r->position = r->next_sample = 0;
    if (r->disk.there) {
        memcpy(r->w, r->disk.w, sizeof r->w);
        r->work        = r->disk.work;
        r->next_sample = r->disk.next_sample;
        r->position    = r->disk.position;
    }
    begin_machine(r, r->disk.there);
    r->alive = true;
    return DILOCO_OK;
}

static void come_alive(replica *r)
{
    sim *s = r->sim;
    const diloco_status status = live(r);
    if (status && s->now >= QUIET + 500) DIE(s, "I4: %s cannot join: %s", r->name, diloco_error_text());
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
    char   text[160];
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
    r->disk = (local_state){.there       = true,
                            .due         = true,
                            .entry       = ask->entry,
                            .position    = ask->position,
                            .next_sample = r->next_sample,
                            .work        = r->work};
    memcpy(r->disk.w, r->w, sizeof r->w);
}

static void after_adopting(replica *r, const dl_ask *ask)
{
    if (!ask->to_local) return;
    const uint64_t shard = r->work.shard, step = r->work.step;
    r->work              = (dl_exec_work){.shard = shard, .step = step};
}

static void rejoin(replica *r)
{
    dl_event event = {.now = clock_of(r->sim)};
    r->next        = r->sim->now + 1;
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
        const double steps = (double)(r->ask.position - dl_machine_position(r->machine));
        return steps * r->speed * (chance(s, 0.03) ? uniform(s, 5, 60) : uniform(s, 0.9, 1.2));
    }
    case DL_ASK_WAIT: {
        const double until = dl_seconds(r->ask.until) - 1 - s->now;
        return fmax(0.001, fmin(until, uniform(s, 0.05, 0.5)));
    }
    default: return chance(s, 0.01) ? uniform(s, 1, 40) : uniform(s, 0.001, 0.05);
    }
}

static void carry_out(replica *r, dl_event *event)
{
    const dl_ask *a = &r->ask;
    event->now      = clock_of(r->sim);
    switch (a->kind) {
    case DL_ASK_TRAIN: train_to(r, a->position); break;
    case DL_ASK_SAVE: save(r, a); break;
    case DL_ASK_WAIT: break;
    case DL_ASK_SNAPSHOT: /* a joiner has to trust snapshots that fit the log: the liar's too */
        if (!r->liar) dl_exec_do(r->exec, a, event, DL_NEVER);
        break;
    case DL_ASK_CONTRIBUTE: dl_exec_tell(r->exec, &r->work); /* fall through */
    default: dl_exec_do(r->exec, a, event, DL_NEVER);
    }
    if (a->kind == DL_ASK_READ && event->text && !event->status) {
        dl_json_value json; /* a flipped read is damaged, not changed */
        if (!dl_json_parse(&json, event->text, event->text_len) && r->sim->now >= QUIET)
            check_text(r->sim, a->entry, event->text, event->text_len);
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
    if (chance(s, s->p_crash)) return crash(r);
    if (event.status == DILOCO_EUNREACHABLE) {
        r->next = s->now + uniform(s, 0.1, 2);
        return;
    }
    const dl_ask done = r->ask;
    r->ask            = dl_machine_next(r->machine, &event);
    if (done.kind == DL_ASK_ADOPT) {
        after_adopting(r, &done);
        check_digest(r);
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
        check_digest(r);
        bury(r);
        r->next = INFINITY;
        return;
    case DL_ASK_FAIL:
        if (r->ask.status == DILOCO_EPROTO || r->ask.status == DILOCO_EFENCED ||
            r->ask.status == DILOCO_EDIFFERS)
            DIE(s, "%s stops: %s", r->name, diloco_error_text());
        return crash(r);
    default: break;
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
    char                     n[16];
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

static void audit(sim *s)
{
    dl_exec            *exec;
    dl_replay_report    report;
    const dl_exec_args  args = {.store       = s->store,
                                .run         = &s->file,
                                .run_digest  = s->file_digest,
                                .max_members = MAX_REPLICAS,
                                .n_copies    = 2};
    const bool all = strcmp(s->file.config.retain, "all") == 0;
    if (dl_exec_create(&exec, &args)) DIE(s, "I5: %s", diloco_error_text());
    dl_state     *state = dl_exec_state(exec);
    diloco_status got   = all ? dl_snapshot_read_newest(state, s->store, &s->file, s->file_digest, 0, NULL, DL_NEVER)
                              : dl_snapshot_read_oldest(state, s->store, &s->file, s->file_digest, NULL, DL_NEVER);
    if (!got) got = dl_replay(&report, exec, &s->file, ENTRIES, NULL, NULL);
    if (got) DIE(s, "I5: the audit stops: %s", diloco_error_text());
    if (state->control.entry != ENTRIES) DIE(s, "I5: the audit ends at %llu", (unsigned long long)state->control.entry);
    if (!dl_hash_equal(state->now[0].digest, s->digest[ENTRIES])) DIE(s, "I5: the audit gives another state");
    dl_exec_destroy(exec);
}

/* I3: ranges of samples that counted, by shard, do not overlap. */
typedef struct ranges {
    sim     *s;
    uint64_t end[MAX_REPLICAS];
} ranges;

static void check_member(ranges *r, uint64_t e, const dl_life *life)
{
    sim            *s = r->s;
    dl_key          key;
    dl_buf          bytes;
    dl_contribution c;
    dl_key_contribution(key, e, life);
    dl_buf_init(&bytes, 1 << 20);
    const diloco_status got = dl_store_get(s->store, &bytes, key, DL_NEVER);
    if (got == DILOCO_OK) {
        if (dl_contribution_read_header(&c, bytes.data, bytes.len)) DIE(s, "I3: %s", diloco_error_text());
        if (c.first_sample < r->end[c.shard])
            DIE(s, "I3: samples of shard %llu count twice: entry %llu has [%llu, %llu), counted before %llu",
                (unsigned long long)c.shard, (unsigned long long)e,
                (unsigned long long)c.first_sample, (unsigned long long)c.end_sample,
                (unsigned long long)r->end[c.shard]);
        r->end[c.shard] = c.end_sample;
    }
    dl_buf_deinit(&bytes);
}

static void check_log(sim *s)
{
    dl_entry        entry;
    dl_buf          text;
    ranges          r     = {.s = s};
    const dl_outer *outer = dl_outer_find("nesterov");
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    if (dl_entry_init(&entry, MAX_REPLICAS)) DIE(s, "%s", diloco_error_text());
    for (uint64_t e = 0; e < ENTRIES; e++) {
        dl_key key;
        dl_key_entry(key, e);
        dl_buf_clear(&text);
        if (dl_store_get(s->store, &text, key, DL_NEVER)) DIE(s, "I2: the log has a gap at %llu", (unsigned long long)e);
        check_text(s, e, text.data, text.len);
        if (dl_entry_read(&entry, text.data, text.len, outer)) DIE(s, "I2: %s", diloco_error_text());
        const bool valid = entry.commit && dl_hash_equal(entry.result, s->digest[e + 1]); /* not void */
        for (size_t i = 0; valid && i < entry.n_members; i++)
            check_member(&r, e, &entry.members[i].life);
    }
    dl_entry_deinit(&entry);
    dl_buf_deinit(&text);
}

static void begin(sim *s, uint64_t seed, size_t n)
{
    char         url[64];
    static float first[N_FLOATS];
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->n    = n;
    dl_rng_init(&s->rng, seed, DL_STREAM(DL_STREAM_TEST, 1000), 0);
    s->p_crash = dl_rng_below(&s->rng, 2) ? 0.003 : 0.0005;
    configure(s);
    snprintf(url, sizeof url, "mem://sim%llu", (unsigned long long)seed);
    set(&s->config, "run.store", url);
    for (size_t i = 0; i < N_FLOATS; i++)
        first[i] = dl_rng_f32(&s->rng);
    s->tensor = (diloco_tensor){.name = "w", .data = first, .n_dims = 1, .shape = {N_FLOATS}};
    const dl_run_creation what = {.config = &s->config, .tensors = &s->tensor, .n_tensors = 1, .data_digest = ""};
    if (dl_store_open(&s->store, url, true) ||
        dl_run_create_or_read(&s->file, &s->file_digest, s->store, &what))
        DIE(s, "%s", diloco_error_text());
    const bool liar = dl_rng_below(&s->rng, 4) == 0;
    for (size_t i = 0; i < n; i++) {
        replica *r = &s->replicas[i];
        snprintf(r->name, sizeof r->name, "r%zu", i);
        r->sim   = s;
        r->speed = uniform(s, 0.5, 2);
        r->next  = uniform(s, 0, dl_rng_below(&s->rng, 6) ? 20 : 300); /* some join late */
        r->liar  = liar && i == n - 1;
    }
}

static replica *soonest(sim *s)
{
    replica *first = NULL;
    for (size_t i = 0; i < s->n; i++)
        if (!s->replicas[i].done && (!first || s->replicas[i].next < first->next)) first = &s->replicas[i];
    return first;
}

static void run(sim *s, uint64_t seed, size_t n)
{
    begin(s, seed, n);
    size_t events = 0;
    for (replica *r; (r = soonest(s));) {
        s->now = fmax(s->now, r->next);
        if (s->now > GIVE_UP || ++events > MAX_EVENTS) DIE(s, "I4: %s does not come to an end", r->name);
        turn(r);
    }
    check_log(s);
    audit(s);
    dl_runfile_deinit(&s->file);
    dl_store_close(s->store);
}

int main(int argc, char **argv)
{
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const uint64_t many  = argc > 2 ? strtoull(argv[2], NULL, 10) : 200;
    const size_t   n     = argc > 3 ? strtoull(argv[3], NULL, 10) : 16;
    static sim     s;
    uint64_t       commits = 0, aborts = 0, voids = 0, crashes = 0, rejects = 0;
    if (n < 1 || n > MAX_REPLICAS) return 2;
    for (uint64_t seed = first; seed < first + many; seed++) {
        run(&s, seed, n);
        commits += s.commits, aborts += s.aborts, voids += s.voids;
        crashes += s.crashes, rejects += s.rejects;
    }
    printf("%llu seeds, %zu replicas: %llu commits and %llu aborts folded, %llu voids, %llu crashes, "
           "%llu contributions refused\n",
           (unsigned long long)many, n, (unsigned long long)commits, (unsigned long long)aborts,
           (unsigned long long)voids, (unsigned long long)crashes, (unsigned long long)rejects);
    return 0;
}
