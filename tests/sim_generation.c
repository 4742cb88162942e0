/* sim_generation.c - a simulated replica's generation, as diloco_run_join begins it: its clock, its
 * store, its disk, its heartbeats, its end. */
#include "exchange/exec_parts.h"
#include "exchange/generations.h"
#include "log/signed_beat.h"
#include "protocol/logical_clients.h"
#include "sim.h"
#include "store/kind.h"

#include <math.h>
#include <string.h>

static const double HEARTBEAT = 5;
enum { RENAMES = 4 }; /* the most of one replica */

/* A generation's clock begins anywhere and goes a little fast or slow. */
static void set_clock(replica *r)
{
    sim *s = r->sim;
    const bool far = sim_chance(s, 0.3);
    r->time.clock.began = far ? sim_uniform(s, 0, 6 * 3600) : 1;
    r->time.clock.rate = far ? sim_uniform(s, 0.95, 1.05) : 1;
    sim_happened[SIM_SKEWED] += r->time.clock.began > 3600;
}

dl_time sim_clock(const replica *r)
{
    return dl_time_from_seconds(r->time.clock.began + r->time.clock.rate * r->sim->now);
}

double sim_moment_of(const replica *r, dl_time clock)
{
    return (dl_seconds(clock) - r->time.clock.began) / r->time.clock.rate;
}

void sim_bury(replica *r)
{
    dl_machine_destroy(r->machine);
    dl_exec_destroy(r->exec);
    dl_store_close(r->store);
    dl_arena_deinit(&r->model.arena);
    r->machine = NULL;
    r->exec = NULL;
    r->store = NULL;
    r->now.alive = false;
    r->upload.sending = r->upload.sent = 0;
    r->time.at->upload = INFINITY;
}

/* Also in an order that no driver has: the saved state is right at any moment. */
void sim_save(replica *r)
{
    r->disk.there = true;
    sim_loss_save(r);
    r->disk.pace.captures = r->disk.captures;
    r->disk.pace.fragments = r->disk.fragments;
    (void)dl_pace_save(&r->pace, &r->disk.pace);
    for (size_t f = 0; f < r->sim->n_fragments; f++) {
        r->disk.bases[f] = dl_exec_state(r->exec)->now[f].digest;
        sim_count(SIM_SAVED_BEHIND, r->pace.fragments[f].behind);
    }
    r->disk.step = r->data.step;
    r->disk.next_sample = r->data.next_sample;
    memcpy(r->disk.w, r->model.w, sizeof r->model.w);
    memcpy(r->disk.rests_on, r->model.rests_on, sizeof r->model.rests_on);
    memcpy(r->disk.work, r->work, sizeof r->work);
    if (dl_exec_pack_in_flight(r->exec, r->disk.pace.next_adopt))
        DIE(r->sim, "%s", diloco_error_text());
    const dl_exec_private *p;
    for (size_t i = 0; (p = dl_exec_private_at(r->exec, i)); i++) {
        if (p->len > sizeof r->disk.own[i]) DIE(r->sim, "%s is too long to save", p->name);
        memcpy(r->disk.own[i], p->data, p->len);
    }
}

/* Others may wait for what it would combine. */
static bool has_only_measured(const dl_exec *x)
{
    const dl_served *m = &x->combine.measured;
    if (!m->planner.replica[0] || m->entry != x->state.control.entry) return false;
    for (size_t i = 0; i < DL_SERVED_MAX && i < x->combine.n_served; i++)
        if (x->combine.served[i].entry == m->entry &&
            dl_generation_equal(&x->combine.served[i].planner, &m->planner))
            return false;
    return true;
}

/* As diloco_run_leave. An intruder may have taken the name. */
static void announce_stop(const replica *r)
{
    unsigned char bytes[1024];
    dl_buf text = {.data = bytes, .cap = sizeof bytes, .max = sizeof bytes};
    dl_heartbeat_writer w;
    dl_key key;
    dl_key_end(key, &r->generation);
    dl_heartbeat_begin(&w, &text, &dl_heartbeat_ended, r->signer, r->sim->file.id, &r->generation);
    if (dl_heartbeat_end(&w)) DIE(r->sim, "%s", diloco_error_text());
    const dl_span span = {text.data, text.len};
    const diloco_status status = dl_store_create(r->sim->store, key, &span, 1, NULL, DL_NEVER);
    if (status && status != DILOCO_EEXIST) DIE(r->sim, "%s: %s", r->name, diloco_error_text());
}

void sim_crash(replica *r)
{
    sim *s = r->sim;
    sim_count(SIM_DIED_BETWEEN, has_only_measured(r->exec));
    if (r->now.has_trained && sim_chance(s, 0.3)) {
        sim_count(SIM_STOPPED, true);
        sim_save(r);
        announce_stop(r);
    }
    sim_bury(r);
    s->count.crashes++;
    r->count.crashes++;
    if (sim_chance(s, 0.15)) {
        sim_count(SIM_LOST_STATE, r->disk.there);
        r->disk.there = false;
    }
    r->time.at->exchange = s->now + sim_uniform(s, 0.1, sim_chance(s, 0.2) ? 400 : 20);
    r->time.at->trainer = INFINITY;
}

static diloco_status open_faulty(replica *r)
{
    sim *s = r->sim;
    dl_store *plain, *damaging;
    char url[64];
    const dl_faults faults = {.seed = dl_rng_u64(&s->rng),
                              .p_flip = s->now < SIM_QUIET ? 0.003 : 0};
    snprintf(url, sizeof url, "mem://sim%llu", (unsigned long long)s->seed);
    DL_TRY(dl_store_open(&plain, url, false));
    DL_TRY(dl_store_faulty(&damaging, plain, faults));
    return sim_net(&r->store, damaging, r);
}

void sim_begin_machine(replica *r, bool resumed)
{
    const dl_machine_start start = {.fragments = dl_exec_state(r->exec)->now,
                                    .bases = resumed ? r->disk.bases : NULL,
                                    .now = sim_clock(r)};
    r->request = dl_machine_begin(r->machine, &start);
}

static diloco_status make_pace(replica *r)
{
    dl_arena measure = {0};
    dl_pace_layout(&r->pace, &measure, &r->sim->schedule);
    DL_TRY(dl_arena_init(&r->model.arena, measure.used));
    dl_pace_layout(&r->pace, &r->model.arena, &r->sim->schedule);
    dl_pace_begin(&r->pace, &r->sim->config, ENTRIES, 0);
    return DILOCO_OK;
}

static diloco_status make_machine(replica *r)
{
    sim *s = r->sim;
    const dl_state *state = dl_exec_state(r->exec);
    const dl_machine_args args = {
        .config = &s->file.config,
        .run = s->file.id,
        .identity = &s->file.identity,
        .self = r->generation,
        .control = &dl_exec_state(r->exec)->control,
        .pace = &r->pace,
        .outer = state->outer,
        .weighting = dl_weighting_find("uniform"),
        .combiner = dl_combiner_find("mean"),
        .topology = dl_exec_topology_kind(r->exec),
        .sends_beside = dl_exec_puts_ahead(r->exec),
        .slices = dl_exec_slices(r->exec),
        .max_members = state->control.roster.cap,
        .snapshot_bytes = 1000,
        .listener = {.note = sim_on_note, .note_user = r, .trace = sim_on_move, .trace_user = r}};
    return dl_machine_create(&r->machine, &args);
}

void sim_fresh(void *user, uint32_t fragment)
{
    replica *r = user;
    r->work[fragment] = (dl_train_stats){.shard = r->data.shard,
                                         .step = r->data.step,
                                         .first_sample = r->data.next_sample,
                                         .end_sample = r->data.next_sample};
    r->model.rests_on[fragment] = dl_exec_state(r->exec)->now[fragment].digest;
}

/* The disk's contents, if there are any. */
static void take_up(replica *r)
{
    r->data.step = r->data.next_sample = 0;
    for (uint32_t f = 0; f < r->sim->n_fragments; f++)
        sim_fresh(r, f);
    if (!r->disk.there) return;
    r->disk.pace.captures = r->disk.captures;
    r->disk.pace.fragments = r->disk.fragments;
    dl_pace_resume(&r->pace, &r->disk.pace);
    sim_count(SIM_RESUMED_IN_FLIGHT, r->disk.pace.n_captured > r->disk.pace.next_adopt);
    memcpy(r->model.w, r->disk.w, sizeof r->model.w);
    memcpy(r->model.rests_on, r->disk.rests_on, sizeof r->model.rests_on);
    memcpy(r->work, r->disk.work, sizeof r->work);
    const dl_exec_private *p;
    for (size_t i = 0; (p = dl_exec_private_at(r->exec, i)); i++)
        memcpy(p->data, r->disk.own[i], p->len);
    if (dl_exec_state(r->exec)->control.entry <= r->disk.pace.applied &&
        dl_exec_unpack_in_flight(r->exec))
        DIE(r->sim, "%s: %s", r->name, diloco_error_text());
    r->data.step = r->disk.step;
    r->data.next_sample = r->disk.next_sample;
}

static diloco_status load_state(replica *r)
{
    dl_reply reply = {.status = DILOCO_OK};
    const dl_request request = {.kind = DL_REQUEST_REJOIN,
                                .entry = r->disk.there ? r->disk.pace.applied : UINT64_MAX};
    dl_exec_do(r->exec, &request, &reply, DL_NEVER);
    return reply.status;
}

/* A listing that does not show the claim is repeated, as a process does for run.store_timeout. */
static diloco_status claim(replica *r)
{
    enum { LISTINGS = 8 };
    const dl_runfile *file = &r->sim->file;
    DL_TRY(
        dl_run_claim_generation(&r->generation, r->store, r->name, file, &file->config, r->signer));
    diloco_status status = DILOCO_EUNREACHABLE;
    for (int n = 0; n < LISTINGS && status == DILOCO_EUNREACHABLE; n++)
        status = dl_run_confirm_claim(&r->generation, r->store, file, r->signer);
    return status;
}

/* As diloco_run_join. */
static diloco_status live(replica *r)
{
    sim *s = r->sim;
    memcpy(r->model.tensors, s->tensors, sizeof r->model.tensors);
    for (size_t f = 0; f < s->n_fragments; f++)
        r->model.tensors[f].data = r->model.w + f * (N_FLOATS / s->n_fragments);
    dl_exec_args args = {.run = &s->file,
                         .run_digest = s->file_digest,
                         .tensors = r->model.tensors,
                         .n_tensors = s->n_fragments,
                         .max_members = dl_clients_max_members(&s->config),
                         .beside = s->schedule.delay > 0,
                         .signer = r->signer,
                         .n_copies = 2};
    set_clock(r);
    DL_TRY(open_faulty(r));
    DL_TRY(claim(r));
    args.store = r->store;
    args.self = r->generation;
    DL_TRY(dl_exec_create(&r->exec, &args));
    DL_TRY(load_state(r));
    sim_count(SIM_FROM_SNAPSHOT, dl_exec_state(r->exec)->control.entry > 0);
    DL_TRY(make_pace(r));
    DL_TRY(make_machine(r));
    take_up(r);
    sim_begin_machine(r, r->disk.there);
    r->now.alive = true;
    r->trainer.active = r->now.saw_later = false;
    return DILOCO_OK;
}

/* In an open roster the first key at a name keeps it (docs/security.md). */
static void take_another_name(replica *r)
{
    char name[sizeof r->name];
    if (++r->count.renames > RENAMES)
        DIE(r->sim, "I4: %s took %d names, and none is its own: %s", r->name, RENAMES,
            diloco_error_text());
    snprintf(name, sizeof name, "%.*sb", (int)sizeof name - 2, r->name);
    memcpy(r->name, name, sizeof name);
    sim_count(SIM_RENAMED, true);
}

void sim_come_alive(replica *r)
{
    sim *s = r->sim;
    const diloco_status status = live(r);
    if (status == DILOCO_EREFUSED && s->kind.open)
        take_another_name(r);
    else if (status && s->now >= SIM_QUIET + 500)
        DIE(s, "I4: %s cannot join: %s", r->name, diloco_error_text());
    if (status) { /* the store did not answer: the launcher starts it again */
        sim_bury(r);
        r->time.at->exchange = s->now + sim_uniform(s, 1, 5);
        return;
    }
    sim_loss_begin(r, SIM_SPENT_RETURN);
    r->time.at->exchange = s->now;
    r->time.at->trainer = INFINITY; /* once the log is read */
    r->time.at->beat = s->now;
}

static void beat(replica *r)
{
    unsigned char bytes[1024];
    dl_buf text = {.data = bytes, .cap = sizeof bytes, .max = sizeof bytes};
    dl_heartbeat_writer w;
    dl_key key;
    dl_heartbeat_begin(&w, &text, &dl_heartbeat_alive, r->signer, r->sim->file.id, &r->generation);
    dl_json_u64(&w.json, "beat", r->beat.n++);
    dl_json_u64(&w.json, "entry", dl_exec_state(r->exec)->control.entry);
    if (dl_heartbeat_end(&w)) DIE(r->sim, "%s", diloco_error_text());
    dl_key_heartbeat(key, &r->generation);
    if (!dl_store_put(r->store, key, text.data, text.len, DL_NEVER)) {
        if (!dl_generation_equal(&r->beat.generation, &r->generation)) r->beat.first = r->sim->now;
        r->beat.generation = r->generation;
        r->beat.entry = dl_exec_state(r->exec)->control.entry;
        r->beat.last = r->sim->now;
    }
    r->time.at->beat = r->sim->now + HEARTBEAT;
}

replica *sim_replica(sim *s, size_t i)
{
    replica *r = &s->replicas[i];
    r->sim = s;
    r->time.at = &s->moments[i];
    *r->time.at = (sim_moments){INFINITY, INFINITY, INFINITY, INFINITY, 0};
    return r;
}

/* Heartbeats are due all the time; they are put when a reader looks at them. */
void sim_beat_all(sim *s)
{
    for (size_t i = 0; i < s->n_slots; i++) {
        if (s->now < s->moments[i].beat) continue;
        replica *r = &s->replicas[i];
        if (r->now.alive && s->now >= r->fault.paused_until) beat(r);
    }
}
