/* cluster_sim.c - a whole cluster in one thread: many machines, one store, virtual time.
 *
 *     cluster_sim [FIRST_SEED [N_SEEDS [N_REPLICAS [EXCHANGE]]]]     (--help)
 *
 * Each replica is the real machine on the real formats over a mem:// store behind a faulty
 * wrapper; only time, training and the process are played. From the seed come: speeds, slow
 * spells, delays, unreachable calls (before or after their effect), bytes flipped on the way
 * in, crashes and stops before or after any ask, lost local state, late joiners, close rules, and a
 * liar who commits a wrong result; and how many fragments, which schedule, how much overlap. After
 * QUIET virtual seconds the faults stop.
 *
 * Held, every seed:
 *   I1  equal states at equal entries, rosters included, in all lives of all replicas but a liar's
 *   I2  an entry that was read never reads otherwise later, and the log has no gap
 *   I3  no sample of a shard counts twice (one fragment, tau = 0); of dealt data none counts twice
 *       in any shape, and with one fragment, tau = 0 every one below the cursor that is neither
 *       returned nor held has counted
 *   I4  when faults stop, the run goes on to its end
 *   I5  an audit from theta0 (retain = all) or the oldest snapshot gives the same last digest
 *   I6  what a replica sends began from the state that it names (but for on_uncounted = keep,
 *       and a liar's), and what counts from the state before its entry (but async's)
 *   I7  who has seen a later life of itself does nothing more
 *   I8  what a live heartbeat needs is not collected
 *   I9  what a replica sends is what it took
 * A failing seed is printed; it replays exactly. And a check that cannot fail is a defect: over
 * many seeds every kind of fault in sim.h must have happened. */
#include "run/exec_parts.h"
#include "run/open.h"
#include "sim.h"
#include "store/kind.h"

#include <math.h>
#include <string.h>

enum { MAX_EVENTS = 1000000, ENOUGH_SEEDS = 100, SMALL = 3 };
static const double QUIET = 2000, GIVE_UP = 20000, HEARTBEAT = 5, PATIENCE = 30, P_PAUSE = 0.0005;

double sim_uniform(sim *s, double a, double b)
{
    return a + (b - a) * dl_rng_f64(&s->rng);
}
bool sim_chance(sim *s, double p)
{
    return s->now < QUIET && dl_rng_f64(&s->rng) < p;
}

/* A life's clock begins anywhere and goes a little fast or slow. */
static void set_clock(replica *r)
{
    sim *s = r->sim;
    const bool far = sim_chance(s, 0.3);
    r->clock_began = far ? sim_uniform(s, 0, 6 * 3600) : 1;
    r->clock_rate = far ? sim_uniform(s, 0.95, 1.05) : 1;
    sim_happened[SIM_SKEWED] += r->clock_began > 3600;
}
static dl_time clock_of(const replica *r)
{
    return dl_time_from_seconds(r->clock_began + r->clock_rate * r->sim->now);
}
static double moment_of(const replica *r, dl_time clock)
{
    return (dl_seconds(clock) - r->clock_began) / r->clock_rate;
}

/* An object is new: who waits for it and can be told looks soon. */
void sim_tell(sim *s, const char *key)
{
    s->recent[s->n_recent++ % SIM_RECENT] =
        (sim_recent){.at = s->now, .key = dl_hash_bytes(key, strlen(key))};
    if (strncmp(key, "c/", 2) != 0 && strncmp(key, "log/", 4) != 0) return;
    for (size_t i = 0; i < s->n_slots; i++) {
        replica *r = &s->replicas[i];
        if (!r->alive || !r->told || r->ask.kind != DL_ASK_WAIT || r->paused_until > s->now)
            continue;
        r->next = fmin(r->next, s->now + sim_uniform(s, 0.001, 0.05));
    }
}

/* ---- what happened ----------------------------------------------------------------------- */

static void count(sim_happening what, bool happened)
{
    sim_happened[what] += happened;
}

static bool is_partial(const sim *s, const dl_control *control, const dl_entry *entry)
{
    if (control->entry <= control->n_later) return false;
    if (strcmp(s->config.on_missing, "commit_partial") != 0) return false;
    for (size_t i = 0; i < control->roster.n; i++) {
        bool there = false;
        for (size_t k = 0; k < entry->n_members; k++)
            there |= !strcmp(entry->members[k].life.replica, control->roster.names[i]);
        if (!there) return true;
    }
    return false;
}

static bool is_out_of_turn(const dl_control *control, const dl_entry *entry)
{
    const dl_roster *roster = &control->roster;
    if (control->entry <= control->n_later || !entry->combined.there || !roster->n) return false;
    return strcmp(roster->names[entry->entry % roster->n], entry->committer.replica) != 0;
}

static void count_commit(const replica *r, const dl_entry *entry)
{
    sim_count_shared_seat(r, entry);
    count(SIM_OUT_OF_TURN, is_out_of_turn(&dl_exec_state(r->exec)->control, entry));
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
static void count_answer(const replica *r, const dl_event *event)
{
    const dl_ask *a = &r->ask;
    count(SIM_UNREACHABLE, event->status == DILOCO_EUNREACHABLE);
    count(SIM_READ_AFRESH, a->kind == DL_ASK_FETCH && a->fresh);
    if (event->status) return;
    const bool combine = a->kind == DL_ASK_COMBINE, took = a->kind == DL_ASK_FETCH_COMBINED;
    count(SIM_COMBINED, combine && a->put);
    count(SIM_RECOMBINED, combine && !a->put);
    count(SIM_TOOK_COMBINED, took && !dl_life_equal(&a->draft->combined.life, &r->life));
    const bool put = a->kind == DL_ASK_CONTRIBUTE;
    count(SIM_TAKEOVER, put && event->taken);
    const dl_capture *taken = put ? dl_exec_captured(r->exec, a->entry) : NULL;
    count(SIM_HELD, taken && taken->dealt.n > 1);
    count(SIM_AHEAD, put && a->entry > dl_exec_state(r->exec)->control.entry);
    count(SIM_LOST_RACE, a->kind == DL_ASK_CREATE && event->taken);
}

/* Of what a machine asks for next. */
static void count_ask(const replica *r)
{
    const dl_ask *a = &r->ask;
    count(SIM_REJOIN_GONE, a->kind == DL_ASK_REJOIN && a->entry == UINT64_MAX);
    count(SIM_REJOIN_BASE, a->kind == DL_ASK_REJOIN && a->entry != UINT64_MAX);
}

/* ---- a replica's life ------------------------------------------------------------------- */

static void bury(replica *r)
{
    dl_machine_destroy(r->machine);
    dl_exec_destroy(r->exec);
    dl_store_close(r->store);
    dl_arena_deinit(&r->arena);
    r->machine = NULL;
    r->exec = NULL;
    r->store = NULL;
    r->alive = false;
}

/* Also in an order that no driver has: what is saved is right at any moment. */
static void save(replica *r)
{
    r->disk.there = true;
    r->disk.pace.takes = r->disk.takes;
    r->disk.pace.fragments = r->disk.fragments;
    (void)dl_pace_save(&r->pace, &r->disk.pace);
    for (size_t f = 0; f < r->sim->n_fragments; f++) {
        r->disk.bases[f] = dl_exec_state(r->exec)->now[f].digest;
        count(SIM_SAVED_BEHIND, r->pace.fragments[f].behind);
    }
    r->disk.step = r->step;
    r->disk.next_sample = r->next_sample;
    memcpy(r->disk.w, r->w, sizeof r->w);
    memcpy(r->disk.rests_on, r->rests_on, sizeof r->rests_on);
    memcpy(r->disk.work, r->work, sizeof r->work);
    dl_exec_pack_under_way(r->exec);
    const dl_exec_private *p;
    for (size_t i = 0; (p = dl_exec_private_at(r->exec, i)); i++) {
        if (p->len > sizeof r->disk.own[i]) DIE(r->sim, "%s is too long to save", p->name);
        memcpy(r->disk.own[i], p->data, p->len);
    }
}

static void crash(replica *r)
{
    sim *s = r->sim;
    if (r->has_trained && sim_chance(s, 0.3)) {
        count(SIM_STOPPED, true);
        save(r);
    }
    bury(r);
    s->crashes++;
    r->n_crashes++;
    if (sim_chance(s, 0.15)) {
        count(SIM_LOST_STATE, r->disk.there);
        r->disk.there = false;
    }
    r->next = s->now + sim_uniform(s, 0.1, sim_chance(s, 0.2) ? 400 : 20);
    r->train_at = INFINITY;
}

static diloco_status open_faulty(replica *r)
{
    sim *s = r->sim;
    dl_store *plain, *damaging;
    char url[64];
    const dl_faults faults = {.seed = dl_rng_u64(&s->rng), .p_flip = s->now < QUIET ? 0.003 : 0};
    snprintf(url, sizeof url, "mem://sim%llu", (unsigned long long)s->seed);
    DL_TRY(dl_store_open(&plain, url, false));
    DL_TRY(dl_store_faulty(&damaging, plain, faults));
    return sim_net(&r->store, damaging, r);
}

static void begin_machine(replica *r, bool resumed)
{
    const dl_machine_start start = {.fragments = dl_exec_state(r->exec)->now,
                                    .bases = resumed ? r->disk.bases : NULL,
                                    .now = clock_of(r)};
    r->ask = dl_machine_begin(r->machine, &start);
}

static diloco_status make_pace(replica *r)
{
    dl_arena measure = {0};
    dl_pace_layout(&r->pace, &measure, &r->sim->schedule);
    DL_TRY(dl_arena_init(&r->arena, measure.used));
    dl_pace_layout(&r->pace, &r->arena, &r->sim->schedule);
    dl_pace_begin(&r->pace, &r->sim->config, ENTRIES, 0);
    return DILOCO_OK;
}

static diloco_status make_machine(replica *r)
{
    sim *s = r->sim;
    const dl_state *state = dl_exec_state(r->exec);
    const dl_machine_args args = {.config = &s->file.config,
                                  .run = s->file.id,
                                  .self = r->life,
                                  .control = &dl_exec_state(r->exec)->control,
                                  .pace = &r->pace,
                                  .outer = state->outer,
                                  .weighting = dl_weighting_find("uniform"),
                                  .combiner = dl_combiner_find("mean"),
                                  .way = dl_exec_way(r->exec),
                                  .max_members = state->control.roster.cap,
                                  .snapshot_bytes = 1000,
                                  .note = on_note,
                                  .note_user = r};
    return dl_machine_create(&r->machine, &args);
}

static void fresh(void *user, uint32_t fragment)
{
    replica *r = user;
    r->work[fragment] = (dl_exec_work){.shard = r->shard,
                                       .step = r->step,
                                       .first_sample = r->next_sample,
                                       .end_sample = r->next_sample};
    r->rests_on[fragment] = dl_exec_state(r->exec)->now[fragment].digest;
}

/* What the disk holds, if there is something. */
static void take_up(replica *r)
{
    r->step = r->next_sample = 0;
    for (uint32_t f = 0; f < r->sim->n_fragments; f++)
        fresh(r, f);
    if (!r->disk.there) return;
    r->disk.pace.takes = r->disk.takes;
    r->disk.pace.fragments = r->disk.fragments;
    dl_pace_resume(&r->pace, &r->disk.pace);
    count(SIM_RESUMED_UNDER_WAY, r->disk.pace.n_taken > r->disk.pace.next_adopt);
    memcpy(r->w, r->disk.w, sizeof r->w);
    memcpy(r->rests_on, r->disk.rests_on, sizeof r->rests_on);
    memcpy(r->work, r->disk.work, sizeof r->work);
    const dl_exec_private *p;
    for (size_t i = 0; (p = dl_exec_private_at(r->exec, i)); i++)
        memcpy(p->data, r->disk.own[i], p->len);
    if (dl_exec_state(r->exec)->control.entry <= r->disk.pace.folded &&
        dl_exec_unpack_under_way(r->exec))
        DIE(r->sim, "%s: %s", r->name, diloco_error_text());
    r->step = r->disk.step;
    r->next_sample = r->disk.next_sample;
}

static diloco_status load_state(replica *r)
{
    dl_event event = {.status = DILOCO_OK};
    const dl_ask ask = {.kind = DL_ASK_REJOIN,
                        .entry = r->disk.there ? r->disk.pace.folded : UINT64_MAX};
    dl_exec_do(r->exec, &ask, &event, DL_NEVER);
    return event.status;
}

/* As diloco_run_join. */
static diloco_status live(replica *r)
{
    sim *s = r->sim;
    memcpy(r->tensors, s->tensors, sizeof r->tensors);
    for (size_t f = 0; f < s->n_fragments; f++)
        r->tensors[f].data = r->w + f * (N_FLOATS / s->n_fragments);
    dl_exec_args args = {.run = &s->file,
                         .run_digest = s->file_digest,
                         .tensors = r->tensors,
                         .n_tensors = s->n_fragments,
                         .max_members = dl_run_max_members(&s->config),
                         .beside = s->schedule.delay > 0,
                         .n_copies = 2};
    set_clock(r);
    DL_TRY(open_faulty(r));
    DL_TRY(dl_run_claim_life(&r->life, r->store, r->name, &s->file));
    args.store = r->store;
    args.self = r->life;
    DL_TRY(dl_exec_create(&r->exec, &args));
    DL_TRY(load_state(r));
    count(SIM_FROM_SNAPSHOT, dl_exec_state(r->exec)->control.entry > 0);
    DL_TRY(make_pace(r));
    DL_TRY(make_machine(r));
    take_up(r);
    begin_machine(r, r->disk.there);
    r->alive = true;
    r->training = r->saw_later = false;
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
        r->next = s->now + sim_uniform(s, 1, 5);
        return;
    }
    r->next = s->now;
    r->train_at = INFINITY; /* once the log is read */
    r->beat = s->now;
}

static void beat(replica *r)
{
    char text[160];
    dl_key key;
    snprintf(text, sizeof text, "{\"beat\":%llu,\"entry\":%llu}", (unsigned long long)r->beats++,
             (unsigned long long)dl_exec_state(r->exec)->control.entry);
    dl_key_heartbeat(key, &r->life);
    if (!dl_store_put(r->store, key, text, strlen(text), DL_NEVER)) {
        if (!dl_life_equal(&r->beat_life, &r->life)) r->first_beat = r->sim->now;
        r->beat_life = r->life;
        r->beat_entry = dl_exec_state(r->exec)->control.entry;
        r->last_beat = r->sim->now;
    }
    r->beat = r->sim->now + HEARTBEAT;
}

/* Heartbeats are due all the time; they are put when somebody looks at them. */
static void beat_all(sim *s)
{
    for (size_t i = 0; i < s->n_slots; i++) {
        replica *r = &s->replicas[i];
        if (r->alive && s->now >= r->beat && s->now >= r->paused_until) beat(r);
    }
}

/* ---- asks ------------------------------------------------------------------------------- */

static float pull(const replica *r, uint64_t sample, size_t i)
{
    uint32_t block[4];
    const uint64_t shard = r->sim->dealt ? 0 : r->shard;
    dl_philox(block, r->sim->seed, DL_STREAM(DL_STREAM_TEST, shard), sample * N_FLOATS + i);
    return (float)block[0] / 4294967296.0f - 0.5f;
}

/* ---- the trainer: as run.c and driver.c, but for time and threads */

static void train_a_step(replica *r)
{
    for (size_t i = 0; i < N_FLOATS; i++)
        r->w[i] -= 0.01f * (r->w[i] + pull(r, r->next_sample, i));
    r->pace.position++;
    r->next_sample++;
    r->step++;
    count(SIM_TRAINED_BESIDE, r->pace.next_adopt < r->pace.n_taken);
    for (size_t f = 0; f < r->sim->n_fragments; f++) {
        dl_exec_work *w = &r->work[f];
        w->steps++;
        w->samples++;
        w->tokens += 3;
        w->end_sample = r->next_sample;
        w->step = r->step;
        w->position = r->pace.position;
    }
}

/* A liar names a state that there never was (P3). */
static void lie_about_base(replica *r, uint64_t entry)
{
    dl_capture *c = dl_exec_captured(r->exec, entry);
    if (!c || !sim_chance(r->sim, 0.2)) return;
    c->base.bytes[0] ^= 1;
    count(SIM_LIE_BASE, true);
}

/* False: it crashed. */
static bool take(replica *r, dl_stops *stops, uint64_t entry)
{
    sim *s = r->sim;
    if (entry % s->n_fragments == 0 || s->schedule.async) save(r);
    if (sim_chance(s, s->p_crash)) return crash(r), false;
    dl_hash began[MAX_FRAGMENTS];
    memcpy(began, r->rests_on, sizeof began);
    if (dl_stop_take(stops, entry)) DIE(s, "%s: %s", r->name, diloco_error_text());
    const dl_take *t = dl_pace_take(&r->pace, entry);
    count(SIM_MUTE, t && t->mute);
    if (t && !t->mute) sim_check_base(r, entry, began[t->fragment]);
    if (t && !t->mute && r->liar) lie_about_base(r, entry);
    if (r->ask.kind == DL_ASK_TRAIN) r->next = s->now;
    return true;
}

static void jump(replica *r, dl_stops *stops)
{
    const uint64_t from = r->pace.position;
    dl_stop_jump(stops);
    r->next_sample += r->pace.position - from; /* skipped steps (P13) */
    for (size_t f = 0; f < r->sim->n_fragments; f++)
        if (r->work[f].steps == 0) r->work[f].first_sample = r->work[f].end_sample = r->next_sample;
}

/* Without overlap the exchange does all that is left of an entry before the trainer goes on. */
static bool may_stop(const replica *r, dl_stop stop)
{
    const bool beside = r->sim->schedule.delay > 0;
    const bool idle = r->ask.kind == DL_ASK_TRAIN || r->ask.kind == DL_ASK_DONE;
    if (stop.kind != DL_STOP_TAKE && !beside && !idle) return false;
    return dl_pace_ready(&r->pace, stop);
}

/* All that can be done at this position; then it trains on, or waits for an entry. */
static void make_stops(replica *r)
{
    sim *s = r->sim;
    dl_stops stops = {.exec = r->exec,
                      .pace = &r->pace,
                      .config = &s->config,
                      .replica = r->name,
                      .work = r->work,
                      .fresh = fresh,
                      .user = r};
    dl_adopted adopted;
    r->train_at = INFINITY;
    for (;;) {
        const dl_stop stop = dl_pace_next(&r->pace);
        if (stop.kind == DL_STOP_NONE) break;
        if (!may_stop(r, stop)) return;
        if (stop.kind == DL_STOP_JUMP)
            jump(r, &stops);
        else if (stop.kind == DL_STOP_TAKE && !take(r, &stops, stop.entry))
            return;
        else if (stop.kind == DL_STOP_ADOPT)
            dl_stop_adopt(&stops, stop.entry, &adopted);
        if (stop.kind == DL_STOP_ADOPT && r->ask.kind == DL_ASK_TRAIN) r->next = s->now;
    }
    const dl_ledger *ledger = dl_exec_state(r->exec)->control.ledger;
    if (ledger)
        (void)dl_ledger_sample(ledger, r->pace.n_taken, r->name, r->pace.position, &r->next_sample);
    r->train_until = dl_pace_train_until(&r->pace);
    if (r->train_until == UINT64_MAX) return; /* all is done, but for the log's end */
    const double steps = (double)(r->train_until - r->pace.position);
    r->training = true;
    count(SIM_LATE_JOINER, !r->has_trained && r->pace.folded > 0);
    r->has_trained = true;
    /* One that sleeps for so long finds what it missed collected (P25). */
    const bool sleeps = r->sleeper && r->pace.folded > 0 && sim_chance(s, 0.3);
    const double pace = sim_chance(s, 0.03) ? sim_uniform(s, 5, 60) : sim_uniform(s, 0.9, 1.2);
    const double took = sleeps ? sim_uniform(s, 200, 900) : steps * r->speed * pace;
    r->train_at = s->now + took;
    count(SIM_SLOW, took > PATIENCE);
}

static void trainer_turn(replica *r)
{
    if (r->training && sim_chance(r->sim, r->sim->p_crash)) return crash(r);
    while (r->training && r->pace.position < r->train_until)
        train_a_step(r);
    r->training = false;
    make_stops(r);
}

/* Behind every answer: is there something that the trainer waits for? */
static void wake_trainer(replica *r)
{
    if (r->pace.reading || r->training || r->train_at <= r->sim->now) return;
    r->train_at = r->sim->now;
}

/* ---- asks of the exchange */

static void rejoin(replica *r)
{
    dl_event event = {.now = clock_of(r)};
    r->next = r->sim->now + 1;
    dl_exec_do(r->exec, &r->ask, &event, DL_NEVER);
    if (event.status) return; /* asked again */
    dl_pace_restart(&r->pace);
    begin_machine(r, false);
}

/* Until it is told, or, with a store that cannot tell, until it looks again: less and less often
 * while nothing comes. The machine wants to look at least twice a second; a driver that is late
 * may cost time, and nothing else. */
static double waiting(replica *r)
{
    sim *s = r->sim;
    const double until = moment_of(r, r->ask.until) - s->now;
    if (r->waits_for != r->ask.entry) r->n_waits = 0;
    r->waits_for = r->ask.entry;
    const double pause = fmin(0.05 * (double)(1 << (r->n_waits < 6 ? r->n_waits++ : 6)), 2);
    const double longest = r->told ? sim_uniform(s, 1, 6) : pause * sim_uniform(s, 0.5, 1.5);
    return until < 0.49 ? fmin(until, longest) : longest;
}

/* How long an ask takes, in virtual seconds. */
static double duration(replica *r)
{
    sim *s = r->sim;
    switch (r->ask.kind) {
    case DL_ASK_TRAIN:
        return dl_pace_takes_part(&r->pace, r->pace.folded) ? 0.001 : INFINITY;
    case DL_ASK_WAIT:
        return fmax(0.001, waiting(r));
    default:
        return sim_chance(s, 0.01) ? sim_uniform(s, 1, 40) : sim_uniform(s, 0.001, 0.05);
    }
}

/* A leader who leaves somebody out, and says nothing of it (P19). */
static void combine_wrongly(replica *r, dl_event *event)
{
    static dl_member members[MAX_REPLICAS];
    dl_ask ask = r->ask;
    dl_entry draft = *ask.draft;
    memcpy(members, draft.members, draft.n_members * sizeof *members);
    members[0].weight = 0;
    draft.members = members;
    ask.draft = &draft;
    dl_exec_do(r->exec, &ask, event, DL_NEVER);
    sim *s = r->sim;
    s->lies[s->n_told++ % MAX_LIES] = event->result;
}

/* What was combined for all is lost once it is named: the members tell what it was. */
static void lose_combined(const replica *r)
{
    const dl_combined_at *combined = &r->ask.draft->combined;
    dl_key key;
    if (r->liar) return;
    dl_key_combined(key, r->ask.entry, &combined->life);
    if (dl_store_delete(r->sim->store, key, DL_NEVER)) DIE(r->sim, "%s", diloco_error_text());
}

static void carry_out(replica *r, dl_event *event)
{
    const dl_ask *a = &r->ask;
    event->now = clock_of(r);
    if (a->kind == DL_ASK_WATCH || a->kind == DL_ASK_SNAPSHOT) beat_all(r->sim);
    switch (a->kind) {
    case DL_ASK_TRAIN:
    case DL_ASK_WAIT:
        break;
    case DL_ASK_CONTRIBUTE:
    case DL_ASK_CREATE:
        sim_check_life(r);
        dl_exec_do(r->exec, a, event, DL_NEVER);
        if (a->kind == DL_ASK_CREATE && !event->status && a->draft->combined.there &&
            sim_chance(r->sim, 0.03))
            lose_combined(r);
        break;
    case DL_ASK_SNAPSHOT: /* a joiner has to trust snapshots that fit the log: the liar's too */
        if (!r->liar) dl_exec_do(r->exec, a, event, DL_NEVER);
        break;
    case DL_ASK_COMBINE:
        if (r->liar && a->put && r->sim->now < QUIET && (a->entry + r->life.generation) % 3 == 0)
            combine_wrongly(r, event);
        else
            dl_exec_do(r->exec, a, event, DL_NEVER);
        break;
    default:
        dl_exec_do(r->exec, a, event, DL_NEVER);
    }
    if (a->kind == DL_ASK_LIST && !event->status) sim_see_lives(r, event);
    if (a->kind == DL_ASK_READ && event->text && !event->status)
        sim_check_text(r->sim, a->entry, event->text, event->text_len);
    if (a->kind == DL_ASK_COMPUTE && r->liar && !event->status && sim_chance(r->sim, 0.3))
        event->result.bytes[3] ^= 0x10; /* a committer that flips a bit (P7) */
}

static void act(replica *r)
{
    sim *s = r->sim;
    if (sim_chance(s, s->p_crash)) return crash(r);
    dl_event event = {.status = DILOCO_OK};
    carry_out(r, &event);
    count_answer(r, &event);
    if (r->ask.kind == DL_ASK_CONTRIBUTE && !event.status && !event.taken)
        sim_check_sent(r, r->ask.entry);
    if (sim_chance(s, s->p_crash)) return crash(r);
    if (event.status == DILOCO_EUNREACHABLE) {
        r->next = s->now + sim_uniform(s, 0.1, r->cut_until > s->now ? 8 : 2);
        return;
    }
    const dl_ask done = r->ask;
    r->ask = dl_machine_next(r->machine, &event);
    count_ask(r);
    if (done.kind == DL_ASK_SWAP) sim_check_moved(r, &done);
    wake_trainer(r);
}

static void stop_for_good(replica *r)
{
    bury(r);
    r->done = true;
    r->next = r->train_at = INFINITY;
}

static void end_if_done(replica *r)
{
    sim *s = r->sim;
    if (!r->alive || r->ask.kind != DL_ASK_DONE || !dl_pace_done(&r->pace)) return;
    if (dl_exec_state(r->exec)->control.entry != ENTRIES) DIE(s, "%s ended early", r->name);
    sim_check_digest(r);
    r->ended = true;
    stop_for_good(r);
}

/* A liar may find its own damage under its name, and be fenced by it (P6); of two lives of one
 * replica at a time the older is, and is not started again. */
static void fail(replica *r)
{
    const diloco_status why = r->ask.status;
    const bool fenced = why == DILOCO_EFENCED;
    if ((fenced && !r->liar && !r->has_twin) || why == DILOCO_EPROTO || why == DILOCO_EDIFFERS)
        DIE(r->sim, "%s stops: %s", r->name, diloco_error_text());
    count(SIM_FENCED, fenced && r->has_twin);
    if (fenced && r->has_twin)
        stop_for_good(r);
    else
        crash(r);
}

static void exchange_turn(replica *r)
{
    sim *s = r->sim;
    switch (r->ask.kind) {
    case DL_ASK_REJOIN:
        rejoin(r);
        break;
    case DL_ASK_DONE:
        r->next = INFINITY; /* the trainer has the last word */
        wake_trainer(r);
        return;
    case DL_ASK_FAIL:
        return fail(r);
    default:
        act(r);
    }
    if (r->alive && r->next <= s->now) r->next = s->now + duration(r);
}

/* Somebody takes a paused replica for dead and starts it again elsewhere, without its disk. */
static void start_twin(replica *r)
{
    sim *s = r->sim;
    if (r->has_twin || r->liar || s->n_slots == SIM_SLOTS) return;
    replica *twin = &s->replicas[s->n_slots++];
    memset(twin, 0, sizeof *twin);
    memcpy(twin->name, r->name, sizeof twin->name);
    twin->sim = s;
    twin->speed = r->speed;
    twin->shard = r->shard;
    twin->told = r->told;
    twin->train_at = INFINITY;
    twin->next = s->now + sim_uniform(s, 1, 60);
    r->has_twin = twin->has_twin = true;
    count(SIM_TWIN, true);
}

/* As by SIGSTOP: the answer that it has is old when it goes on. */
static void pause(replica *r)
{
    sim *s = r->sim;
    const double pause = sim_uniform(s, 1, sim_chance(s, 0.5) ? 20 : 400);
    r->paused_until = s->now + pause;
    r->next = fmax(r->next, r->paused_until);
    r->train_at += pause;
    count(SIM_PAUSED, pause > PATIENCE);
    if (pause > PATIENCE && sim_chance(s, 0.5)) start_twin(r);
}

static void turn(replica *r)
{
    sim *s = r->sim;
    if (!r->alive) return come_alive(r);
    if (sim_chance(s, P_PAUSE)) return pause(r);
    if (r->train_at <= s->now)
        trainer_turn(r);
    else
        exchange_turn(r);
    end_if_done(r);
}

/* ---- a run ------------------------------------------------------------------------------ */

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
    s->dealt = s->seed % 3 == 0 && !s->schedule.async;
    s->exact = s->dealt && s->n_fragments == 1 && s->schedule.delay == 0;
    if (s->dealt) set(&s->config, "data.deal", "log");
    set(&s->config, "trainer.batch_size", "1");
    if (s->exact) set(&s->config, "run.on_uncounted", "adopt");
    if (s->exact) set(&s->config, "server.diloco.local_mix", "0");
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
    set(&s->config, "run.on_uncounted", dl_rng_below(&s->rng, 4) ? "adopt" : "keep");
    set(&s->config, "run.retain", dl_rng_below(&s->rng, 2) ? "all" : "recent");
    set(&s->config, "run.snapshot_every", "5");
    set(&s->config, "run.state_dir", "none");
    set(&s->config, "server.diloco.exchange", s->way);
    choose_shape(s);
}

static void begin(sim *s, uint64_t seed, size_t n, const char *way)
{
    char url[64];
    static float first[N_FLOATS];
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->way = way;
    s->n = seed % 4 == 0 && n > SMALL ? SMALL : n;
    dl_rng_init(&s->rng, seed, DL_STREAM(DL_STREAM_TEST, 1000), 0);
    s->p_crash = dl_rng_below(&s->rng, 2) ? 0.006 : 0.001;
    configure(s);
    snprintf(url, sizeof url, "mem://sim%llu", (unsigned long long)seed);
    set(&s->config, "run.store", url);
    for (size_t i = 0; i < N_FLOATS; i++)
        first[i] = dl_rng_f32(&s->rng);
    static const char *const names[MAX_FRAGMENTS] = {"w0", "w1", "w2", "w3"};
    const size_t part = N_FLOATS / s->n_fragments;
    for (size_t f = 0; f < s->n_fragments; f++)
        s->tensors[f] = (diloco_tensor){.name = names[f],
                                        .data = first + f * part,
                                        .n_dims = 1,
                                        .shape = {part},
                                        .fragment = (int)f};
    const dl_run_creation what = {.config = &s->config,
                                  .tensors = s->tensors,
                                  .n_tensors = s->n_fragments,
                                  .data_digest = ""};
    if (dl_entry_init(&s->entry, dl_run_max_members(&s->config)) ||
        dl_store_open(&s->store, url, true) ||
        dl_run_create_or_read(&s->file, &s->file_digest, s->store, &what))
        DIE(s, "%s", diloco_error_text());
    const bool liar = dl_rng_below(&s->rng, 4) == 0;
    s->n_slots = s->n;
    for (size_t i = 0; i < s->n; i++) {
        replica *r = &s->replicas[i];
        const bool twin = s->dealt && seed % 9 == 0 && i == 2; /* sits where r1 sits */
        snprintf(r->name, sizeof r->name, twin ? "q1" : "r%zu", i);
        r->sim = s;
        r->speed = sim_uniform(s, 0.5, 2);
        r->shard = i;
        r->train_at = INFINITY;
        r->next = sim_uniform(s, 0, dl_rng_below(&s->rng, 6) ? 20 : 300); /* some join late */
        r->liar = liar && i == s->n - 1;
        r->sleeper = i == 0 && s->n <= SMALL;
        r->told = dl_rng_below(&s->rng, 2);
    }
}

static double moment(const replica *r)
{
    return fmin(r->next, r->train_at);
}

static replica *soonest(sim *s)
{
    replica *first = NULL;
    for (size_t i = 0; i < s->n_slots; i++)
        if (!s->replicas[i].done && (!first || moment(&s->replicas[i]) < moment(first)))
            first = &s->replicas[i];
    return first;
}

static void run(sim *s, uint64_t seed, size_t n, const char *way)
{
    begin(s, seed, n, way);
    size_t events = 0;
    for (replica *r; (r = soonest(s));) {
        s->now = fmax(s->now, moment(r));
        sim_cut(s);
        sim_deliver(s);
        if (s->now > GIVE_UP || ++events > MAX_EVENTS)
            DIE(s, "I4: %s does not come to an end", r->name);
        turn(r);
    }
    sim_drop_late(s);
    sim_check_ends(s);
    sim_check_log(s);
    sim_audit(s);
    dl_entry_deinit(&s->entry);
    dl_runfile_deinit(&s->file);
    dl_store_close(s->store);
}

static const char usage[] =
    "usage: cluster_sim [FIRST_SEED [N_SEEDS [N_REPLICAS [EXCHANGE]]]]      (1 200 16 allgather)\n"
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
    const char *way = argc > 4 ? argv[4] : "allgather";
    static sim s;
    uint64_t commits = 0, aborts = 0, crashes = 0;
    if (!first || !many || !n || argc > 5) return fputs(usage, stderr), 2;
    for (uint64_t seed = first; seed < first + many; seed++) {
        run(&s, seed, (size_t)n, way);
        commits += s.commits, aborts += s.aborts, crashes += s.crashes;
    }
    printf("seeds %llu to %llu, %llu replicas: %llu commits and %llu aborts folded, %llu crashes\n",
           (unsigned long long)first, (unsigned long long)(first + many - 1), (unsigned long long)n,
           (unsigned long long)commits, (unsigned long long)aborts, (unsigned long long)crashes);
    sim_print_happenings();
    return many >= ENOUGH_SEEDS && !sim_all_happened(way);
}
