/* sim_play.c - a simulated replica's turns: its trainer's, as run.c and driver.c but for time and
 * threads, and its exchange's, which carries out what the machine asks for. */
#include "exchange/exec_parts.h"
#include "sim.h"

#include <math.h>
#include <string.h>

enum { PULLS = 24 };
static const double PATIENCE = 30, P_PAUSE = 0.0005, P_BOAST = 0.2;

static float pull(const replica *r, uint64_t sample, size_t i)
{
    uint32_t block[4];
    const uint64_t shard = r->sim->kind.assigned ? 0 : r->data.shard;
    dl_philox(block, r->sim->seed, DL_STREAM(DL_STREAM_TEST, shard), sample * PULLS + i);
    return (float)block[0] / 4294967296.0f - 0.5f;
}

/* ---- the trainer: as run.c and driver.c, but for time and threads */

static void train_a_step(replica *r)
{
    float pulls[PULLS];
    for (size_t i = 0; i < PULLS; i++)
        pulls[i] = pull(r, r->data.next_sample, i);
    for (size_t i = 0; i < N_FLOATS; i++)
        r->model.w[i] -= 0.01f * (r->model.w[i] + pulls[i % PULLS]);
    if (r->kind.byzantine && r->sim->kind.checks && sim_chance(r->sim, P_BOAST)) {
        r->model.w[0] += 1e4f;
        sim_count(SIM_BOAST, true);
    }
    r->pace.position++;
    r->data.next_sample++;
    r->data.step++;
    sim_count(SIM_TRAINED_BESIDE, r->pace.next_adopt < r->pace.n_captured);
    for (size_t f = 0; f < r->sim->n_fragments; f++) {
        dl_train_stats *w = &r->work[f];
        w->steps++;
        w->samples++;
        w->tokens += 3;
        w->end_sample = r->data.next_sample;
        w->step = r->data.step;
        w->position = r->pace.position;
    }
    sim_loss_step(r);
}

/* A malicious replica names a state that never existed (P3). */
static void forge_base(replica *r, uint64_t entry)
{
    dl_capture *c = dl_exec_captured(r->exec, entry);
    if (!c || !sim_chance(r->sim, 0.2)) return;
    c->base.bytes[0] ^= 1;
    sim_count(SIM_LIE_BASE, true);
}

/* A malicious replica claims more steps than there are since its base (P9.16). */
static void forge_steps(replica *r, uint64_t entry)
{
    dl_capture *c = dl_exec_captured(r->exec, entry);
    if (!c || c->stats.steps == c->stats.position || entry % 4 != 3) return;
    c->stats.steps = c->stats.position;
    sim_count(SIM_LIE_STEPS, true);
}

/* As in driver_save.c. */
static bool save_is_due(const sim *s, uint64_t entry)
{
    const uint64_t every = (uint64_t)s->config.save_every;
    if (s->schedule.async || (every == 1 && s->config.error_feedback > 0)) return true;
    return entry % (s->n_fragments * every) == 0;
}

/* False: it crashed. */
static bool capture(replica *r, dl_stops *stops, uint64_t entry)
{
    sim *s = r->sim;
    if (save_is_due(s, entry)) sim_save(r);
    if (sim_chance(s, s->p_crash)) return sim_crash(r), false;
    dl_hash began[MAX_FRAGMENTS];
    memcpy(began, r->model.rests_on, sizeof began);
    if (dl_stop_capture(stops, entry)) DIE(s, "%s: %s", r->name, diloco_error_text());
    s->calm.taken_at = s->now;
    const dl_pace_capture *t = dl_pace_in_flight(&r->pace, entry);
    sim_count(SIM_MUTE, t && t->mute);
    if (t) sim_loss_capture(r, t);
    if (t && !t->mute) sim_check_base(r, entry, began[t->fragment]);
    if (t && !t->mute && r->kind.byzantine) forge_base(r, entry);
    if (t && !t->mute && r->kind.byzantine) forge_steps(r, entry);
    if (r->request.kind == DL_REQUEST_TRAIN) r->time.at->exchange = s->now;
    return true;
}

static void jump(replica *r, dl_stops *stops)
{
    const uint64_t from = r->pace.position;
    sim_loss_jump(r);
    dl_stop_jump(stops);
    r->data.next_sample += r->pace.position - from; /* skipped steps (P13) */
    for (size_t f = 0; f < r->sim->n_fragments; f++)
        if (r->work[f].steps == 0)
            r->work[f].first_sample = r->work[f].end_sample = r->data.next_sample;
}

/* Without overlap the exchange finishes an entry before the trainer continues. */
static bool may_stop(const replica *r, dl_stop stop)
{
    const bool beside = r->sim->schedule.delay > 0;
    const bool idle = r->request.kind == DL_REQUEST_TRAIN || r->request.kind == DL_REQUEST_DONE;
    if (stop.kind != DL_STOP_CAPTURE && !beside && !idle) return false;
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
                      .fresh = sim_fresh,
                      .user = r};
    dl_adopted adopted;
    r->time.at->trainer = INFINITY;
    for (;;) {
        const dl_stop stop = dl_pace_next(&r->pace);
        if (stop.kind == DL_STOP_NONE) break;
        if (!may_stop(r, stop)) return;
        if (stop.kind == DL_STOP_JUMP)
            jump(r, &stops);
        else if (stop.kind == DL_STOP_CAPTURE && !capture(r, &stops, stop.entry))
            return;
        else if (stop.kind == DL_STOP_ADOPT && dl_stop_adopt(&stops, stop.entry, &adopted))
            sim_loss_adopt(r, &adopted);
        if (stop.kind == DL_STOP_ADOPT && r->request.kind == DL_REQUEST_TRAIN)
            r->time.at->exchange = s->now;
        if (stop.kind == DL_STOP_ADOPT)
            s->calm.slowest = fmax(s->calm.slowest, s->now - s->calm.taken_at);
    }
    const dl_ledger *ledger = dl_exec_state(r->exec)->control.ledger;
    if (ledger)
        (void)dl_ledger_sample(ledger, r->pace.n_captured, r->name, r->pace.position,
                               &r->data.next_sample);
    r->trainer.until = dl_pace_train_until(&r->pace);
    if (r->trainer.until == UINT64_MAX) return; /* all is done, but for the log's end */
    const double steps = (double)(r->trainer.until - r->pace.position);
    r->trainer.active = true;
    sim_loss_begin(r, SIM_SPENT_TRAINING);
    sim_count(SIM_LATE_JOINER, !r->now.has_trained && r->pace.applied > 0);
    r->now.has_trained = true;
    /* One that sleeps that long finds the objects that it missed collected (P25). */
    const bool sleeps = r->kind.sleeper && r->pace.applied > 0 && sim_chance(s, 0.3);
    const double pace = sim_chance(s, 0.03) ? sim_uniform(s, 5, 60) : sim_uniform(s, 0.9, 1.2);
    const double took = s->calm.request_s > 0 ? steps * s->calm.step_s
                        : sleeps              ? sim_uniform(s, 200, 900)
                                              : steps * r->time.speed * pace;
    r->time.at->trainer = s->now + took;
    sim_count(SIM_SLOW, took > PATIENCE);
}

static void trainer_turn(replica *r)
{
    if (r->trainer.active && sim_chance(r->sim, r->sim->p_crash)) return sim_crash(r);
    while (r->trainer.active && r->pace.position < r->trainer.until)
        train_a_step(r);
    if (r->trainer.active) sim_loss_begin(r, SIM_SPENT_WAITING);
    r->trainer.active = false;
    make_stops(r);
}

/* After every answer: does the trainer wait for something? */
static void wake_trainer(replica *r)
{
    if (r->pace.reading || r->trainer.active || r->time.at->trainer <= r->sim->now) return;
    r->time.at->trainer = r->sim->now;
}

/* ---- asks of the exchange */

static void rejoin(replica *r)
{
    dl_reply reply = {.kind = r->request.kind, .now = sim_clock(r)};
    r->time.at->exchange = r->sim->now + 1;
    dl_exec_do(r->exec, &r->request, &reply, DL_NEVER);
    if (reply.status) return; /* asked again */
    dl_pace_restart(&r->pace);
    sim_begin_machine(r, false);
}

/* Of more than 64 replicas each looks less often. Otherwise most of the simulation's time is for
 * looks at a store where nothing has changed. */
static double stretched(const sim *s, double pause)
{
    return pause * fmax(1, fmin((double)s->n / 64, 4));
}

/* Until a change event, or, with a store without these, until it looks again: less and less often
 * while nothing comes. The machine wants to look at least twice a second; a driver that is late may
 * cost time, and nothing else. */
static double waiting(replica *r)
{
    sim *s = r->sim;
    const double until = sim_moment_of(r, r->request.wait.until) - s->now;
    if (r->wait.until_n != r->request.entry) r->wait.n = 0;
    r->wait.until_n = r->request.entry;
    const double pause = fmin(0.05 * (double)(1 << (r->wait.n < 6 ? r->wait.n++ : 6)), 2);
    const double longest =
        stretched(s, r->wait.told ? sim_uniform(s, 1, 6) : pause * sim_uniform(s, 0.5, 1.5));
    return until < 0.49 ? fmin(until, longest) : longest;
}

/* Nothing but requests takes time, and of contributions run.fetchers are read in that of one. */
static double calm_duration(replica *r)
{
    sim *s = r->sim;
    const double request = sim_request_s(r);
    const uint64_t fetched = r->calm.n_fetched;
    r->calm.n_fetched = r->request.kind == DL_REQUEST_FETCH ? fetched + 1 : 0;
    switch (r->request.kind) {
    case DL_REQUEST_WAIT:
        if (r->calm.missed) return request; /* changes before it waited */
        return fmax(0.001, sim_moment_of(r, r->request.wait.until) - s->now);
    case DL_REQUEST_FETCH:
        return fetched % (uint64_t)s->config.fetchers ? 0 : request;
    case DL_REQUEST_READ:
    case DL_REQUEST_EXTENT:
    case DL_REQUEST_CONTRIBUTE:
    case DL_REQUEST_LIST:
    case DL_REQUEST_COMBINE:
    case DL_REQUEST_FETCH_COMBINED:
    case DL_REQUEST_CREATE:
        return request;
    default:
        return 0;
    }
}

/* How long a request takes, in virtual seconds. */
static double duration(replica *r)
{
    sim *s = r->sim;
    if (s->calm.request_s > 0 && r->request.kind != DL_REQUEST_TRAIN) return calm_duration(r);
    switch (r->request.kind) {
    case DL_REQUEST_TRAIN:
        return dl_pace_participates(&r->pace, r->pace.applied) ? 0.001 : INFINITY;
    case DL_REQUEST_WAIT:
        return fmax(0.001, waiting(r));
    default:
        if (r->kind.byzantine)
            return 0.001; /* so that it creates more than its share of the entries */
        return sim_chance(s, 0.01) ? sim_uniform(s, 1, 40) : sim_uniform(s, 0.001, 0.05);
    }
}

/* A leader that leaves a member out without saying so (P19). */
static void combine_wrongly(replica *r, dl_reply *reply)
{
    static dl_member members[MAX_REPLICAS];
    dl_request request = r->request;
    dl_entry draft = *request.step.draft;
    memcpy(members, draft.members, draft.n_members * sizeof *members);
    members[0].weight = 0;
    draft.members = members;
    request.step.draft = &draft;
    dl_exec_do(r->exec, &request, reply, DL_NEVER);
    sim *s = r->sim;
    s->lies.bodies[s->lies.n_told++ % MAX_LIES] = reply->combined.result;
}

/* The combined update is lost once it is named: the members give it again, unless a malicious one
 * has damaged its own part. */
static void lose_combined(const replica *r)
{
    const dl_combined_at *combined = &r->request.step.draft->combined;
    dl_key key;
    if (r->kind.byzantine) return;
    dl_key_combined(key, r->request.entry, &combined->generation);
    const dl_entry *e = r->request.step.draft;
    for (size_t i = 0; i < e->n_members; i++)
        if (!sim_is_honest(r->sim, e->members[i].generation.replica)) return;
    if (combined->slices)
        dl_key_combined_slice(key, e->entry, 0,
                              &e->members[dl_slice_owner(0, 0, e->entry, e->n_members)].generation,
                              &combined->generation);
    if (dl_store_delete(r->sim->store, key, DL_NEVER)) DIE(r->sim, "%s", diloco_error_text());
}

/* check.probe: a committer's measurements are its own, so here they are drawn. */
static void probe(replica *r, dl_reply *reply)
{
    static double loss[SIM_SLOTS + 1];
    for (size_t i = 0; i <= r->request.judge.n_slots; i++)
        loss[i] = i && sim_chance(r->sim, 0.1) ? 3 : 1;
    reply->judge.probed = loss;
}

/* ---- the pipelined upload: as by a thread of its own */

static void begin_sending(replica *r, uint64_t sending)
{
    sim *s = r->sim;
    if (r->upload.sending) DIE(s, "%s puts two ahead at a time", r->name);
    r->upload.sending = sending;
    r->time.at->upload = s->now + (s->calm.request_s > 0 ? sim_request_s(r)
                                   : sim_chance(s, 0.3)  ? sim_uniform(s, 1, 20)
                                                         : sim_uniform(s, 0.001, 0.05));
}

/* A replica that has seen a newer generation since it began (I7) does not call it back. */
static void sending_turn(replica *r)
{
    sim *s = r->sim;
    if (sim_chance(s, s->p_crash)) return sim_crash(r);
    const diloco_status status = dl_exec_send(r->exec, r->store, DL_NEVER);
    if (sim_chance(s, s->p_crash)) return sim_crash(r);
    if (status == DILOCO_EUNREACHABLE) {
        r->time.at->upload = s->now + sim_uniform(s, 0.1, r->fault.cut_until > s->now ? 8 : 2);
        return;
    }
    const bool in_vain = status == DILOCO_EEXIST; /* its name holds junk */
    if (!status) sim_check_sent(r, r->upload.sending - 1, &r->exec->upload.sent.generation);
    if (in_vain) r->upload.unsent = r->upload.sending;
    r->upload.sent = in_vain ? 0 : r->upload.sending;
    r->upload.sending = 0;
    r->time.at->upload = INFINITY;
    if (status && !in_vain)
        r->request = (dl_request){.kind = DL_REQUEST_FAIL, .fail.status = status};
    if ((status && !in_vain) || r->request.kind == DL_REQUEST_WAIT)
        r->time.at->exchange = fmin(r->time.at->exchange, s->now + 0.001);
}

/* The open entry's upload is pipelined, and is not there yet: that is not answered. */
static bool waits_for_sending(replica *r)
{
    const dl_request *a = &r->request;
    if (a->kind != DL_REQUEST_CONTRIBUTE || !r->upload.sending || r->upload.sending != 1 + a->entry)
        return false;
    r->time.at->exchange = r->time.at->upload + 0.001;
    return true;
}

/* Confirmed: it was there when this was asked, or is since. */
static bool is_confirmed(const replica *r)
{
    const dl_request *a = &r->request;
    return a->kind == DL_REQUEST_CONTRIBUTE && !a->contribute.pipelined &&
           r->upload.sent == 1 + a->entry;
}

static void carry_out(replica *r, dl_reply *reply)
{
    const dl_request *a = &r->request;
    reply->now = sim_clock(r);
    if (a->kind == DL_REQUEST_WATCH || a->kind == DL_REQUEST_SNAPSHOT) sim_beat_all(r->sim);
    switch (a->kind) {
    case DL_REQUEST_TRAIN:
    case DL_REQUEST_WAIT:
        break;
    case DL_REQUEST_CONTRIBUTE:
    case DL_REQUEST_CREATE:
        sim_check_generation(r);
        if (is_confirmed(r) || sim_slow_is_mute(r)) break;
        dl_exec_do(r->exec, a, reply, DL_NEVER);
        if (a->kind == DL_REQUEST_CREATE && !reply->status && a->step.draft->combined.there &&
            sim_chance(r->sim, 0.03))
            lose_combined(r);
        break;
    case DL_REQUEST_SNAPSHOT: /* a joiner has to trust snapshots that fit the log: the malicious
                               * replica's, too */
        if (!r->kind.byzantine) dl_exec_do(r->exec, a, reply, DL_NEVER);
        break;
    case DL_REQUEST_SERVE: {
        const size_t before = r->exec->combine.n_served;
        dl_exec_do(r->exec, a, reply, DL_NEVER);
        sim_count(SIM_SERVED, r->exec->combine.n_served > before);
        break;
    }
    case DL_REQUEST_COMBINE:
        if (r->kind.byzantine && a->step.put &&
            dl_exec_topology_kind(r->exec) == DL_TOPOLOGY_LEADER && r->sim->now < SIM_QUIET &&
            (a->entry + r->generation.number) % 3 == 0)
            combine_wrongly(r, reply);
        else
            dl_exec_do(r->exec, a, reply, DL_NEVER);
        break;
    default:
        dl_exec_do(r->exec, a, reply, DL_NEVER);
    }
    if (reply->sending) begin_sending(r, reply->sending);
    reply->sending = r->upload.sending;
    if (a->kind == DL_REQUEST_JUDGE && a->judge.probe) probe(r, reply);
    if (a->kind == DL_REQUEST_LIST && !reply->status) sim_see_generations(r, reply);
    if (a->kind == DL_REQUEST_FETCH) sim_check_refused(r, reply);
    if (a->kind == DL_REQUEST_READ && reply->read.text && !reply->status)
        sim_check_text(r->sim, a->entry, reply->read.text, reply->read.text_len);
    if (a->kind == DL_REQUEST_COMPUTE && r->kind.byzantine && !reply->status &&
        sim_chance(r->sim, 0.3))
        reply->compute.result.bytes[3] ^= 0x10; /* a committer that flips a bit (P7) */
}

/* The machine gets it with every answer: one that was lost may have been the first
 * (driver_exchange.c). */
static void take_generation(replica *r, dl_reply *reply)
{
    const dl_generation now = dl_exec_self(r->exec);
    sim_count(SIM_RENEWED, now.number > r->generation.number);
    reply->generation = now.number;
    r->generation = now;
}

static void act(replica *r)
{
    sim *s = r->sim;
    if (waits_for_sending(r)) return;
    if (sim_chance(s, s->p_crash)) return sim_crash(r);
    dl_reply reply = {.kind = r->request.kind};
    carry_out(r, &reply);
    take_generation(r, &reply);
    sim_count_answer(r, &reply);
    const bool sends = reply.sending == 1 + r->request.entry;
    if (r->request.kind == DL_REQUEST_CONTRIBUTE && !reply.status && !reply.contribute.taken &&
        !sends && !sim_slow_is_mute(r))
        sim_check_sent(r, r->request.entry, &r->generation);
    if (sim_chance(s, s->p_crash)) return sim_crash(r);
    if (reply.status == DILOCO_EUNREACHABLE) {
        r->time.at->exchange = s->now + sim_uniform(s, 0.1, r->fault.cut_until > s->now ? 8 : 2);
        return;
    }
    reply.unsent = r->upload.unsent;
    reply.renewed = reply.generation > 0;
    r->upload.unsent = 0;
    const dl_request done = r->request;
    if (done.kind == DL_REQUEST_WAIT || done.kind == DL_REQUEST_LIST) r->calm.missed = false;
    sim_slow_announce(r);
    r->request = dl_machine_next(r->machine, &reply);
    sim_count_request(r);
    sim_check_wait(r);
    if (done.kind == DL_REQUEST_SWAP) sim_check_moved(r, &done);
    wake_trainer(r);
}

static void stop_for_good(replica *r)
{
    sim_bury(r);
    r->now.done = true;
    r->time.at->exchange = r->time.at->trainer = r->time.at->upload = r->time.at->failure =
        INFINITY;
}

static void end_if_done(replica *r)
{
    sim *s = r->sim;
    if (!r->now.alive || r->request.kind != DL_REQUEST_DONE || !dl_pace_done(&r->pace)) return;
    if (dl_exec_state(r->exec)->control.entry != ENTRIES) DIE(s, "%s ended early", r->name);
    sim_check_digest(r);
    r->now.ended = true;
    stop_for_good(r);
}

/* A malicious replica may find its own damage under its name, and be fenced by it (P6). Of two
 * generations of one replica at a time the older is fenced, and is not started again. */
static void fail(replica *r)
{
    const diloco_status why = r->request.fail.status;
    const bool fenced = why == DILOCO_EFENCED;
    const bool stops = why == DILOCO_EPROTO || why == DILOCO_EDIFFERS;
    /* One that had accepted its own result finds in its saved state that all others are wrong. */
    if (r->kind.byzantine && stops) r->disk.there = false;
    if ((fenced && !r->kind.byzantine && !r->kind.has_twin) || (stops && !r->kind.byzantine))
        DIE(r->sim, "%s stops: %s", r->name, diloco_error_text());
    sim_count(SIM_FENCED, fenced && r->kind.has_twin);
    if (fenced && r->kind.has_twin)
        stop_for_good(r);
    else
        sim_crash(r);
}

static void exchange_turn(replica *r)
{
    sim *s = r->sim;
    switch (r->request.kind) {
    case DL_REQUEST_REJOIN:
        rejoin(r);
        break;
    case DL_REQUEST_DONE:
        r->time.at->exchange = INFINITY; /* the trainer has the last word */
        wake_trainer(r);
        return;
    case DL_REQUEST_FAIL:
        return fail(r);
    default:
        act(r);
    }
    if (r->now.alive && r->time.at->exchange <= s->now) r->time.at->exchange = s->now + duration(r);
}

/* A paused replica is taken for dead and started again elsewhere, without its disk. */
static void start_twin(replica *r)
{
    sim *s = r->sim;
    if (r->kind.has_twin || r->kind.byzantine || s->n_slots == SIM_SLOTS) return;
    replica *twin = sim_replica(s, s->n_slots++);
    memcpy(twin->name, r->name, sizeof twin->name);
    twin->signer = r->signer;
    twin->time.speed = r->time.speed;
    twin->data.shard = r->data.shard;
    twin->wait.told = r->wait.told;
    twin->time.at->exchange = s->now + sim_uniform(s, 1, 60);
    r->kind.has_twin = twin->kind.has_twin = true;
    sim_count(SIM_TWIN, true);
}

/* As by SIGSTOP: the answer that it has is old when it continues. */
static void pause(replica *r)
{
    sim *s = r->sim;
    const double pause = sim_uniform(s, 1, sim_chance(s, 0.5) ? 20 : 400);
    r->fault.paused_until = s->now + pause;
    r->time.at->exchange = fmax(r->time.at->exchange, r->fault.paused_until);
    r->time.at->trainer += pause;
    r->time.at->upload += pause;
    sim_count(SIM_PAUSED, pause > PATIENCE);
    if (pause > PATIENCE && sim_chance(s, 0.5)) start_twin(r);
}

/* It has no twin that could do without it. */
static bool is_lost(const replica *r)
{
    return r == r->sim->loss.of && r->sim->now >= r->sim->loss.at && !r->kind.has_twin;
}

static void lose(replica *r)
{
    stop_for_good(r);
    r->now.lost = true;
}

void sim_turn(replica *r)
{
    sim *s = r->sim;
    if (r->time.at->failure <= s->now) return sim_goodput_fail(r);
    if (!r->now.alive) return sim_come_alive(r);
    if (is_lost(r)) return lose(r);
    if (sim_chance(s, P_PAUSE)) return pause(r);
    if (r->time.at->upload <= s->now)
        sending_turn(r);
    else if (r->time.at->trainer <= s->now)
        trainer_turn(r);
    else
        exchange_turn(r);
    end_if_done(r);
}
