/* machine_world.h - one machine in a small made-up world, for machine_test.c and others.
 *
 * The world answers every request as a healthy store and trainer would; a test begins it, changes
 * what it wants changed, and runs to the next request of some kind. Contributions are names, and a
 * result is a hash of the base and the members' bodies: every party that computes it gets the same.
 */
#ifndef DL_TESTS_MACHINE_WORLD_H
#define DL_TESTS_MACHINE_WORLD_H

#include "protocol/machine.h"

#include "check.h"

#define RUN "0123456789abcdef0123456789abcdef"

enum {
    WORLD_MEMBERS = 8,
    WORLD_ENTRIES = 6, /* of a run; a test may set its pace to a longer one: */
    WORLD_ROOM = 40,
    WORLD_H = 5,
    WORLD_PUT = 40,
    WORLD_BYTES = 100 /* of a contribution */
};

typedef struct world_put { /* an object under c/ */
    uint64_t entry;
    dl_generation generation;
    int n_bad;       /* readings that will be refused; -1: all */
    const char *why; /* NULL: "checksum" */
    uint64_t samples;
    double norm2;
} world_put;

typedef struct world {
    dl_config config;
    dl_control control;
    dl_entry owner; /* of control's roster */
    dl_machine_args args;
    dl_arena arena;
    dl_pace pace;
    dl_fragment_state fragment;
    dl_machine *machine;
    dl_request request;
    dl_time now;

    dl_buf log[WORLD_ROOM];
    dl_hash digest[WORLD_ROOM + 1]; /* of the state after i entries */
    world_put put[WORLD_PUT];
    size_t n_put;
    const char *beating; /* names in spaces: " r1 r2 " have changing heartbeats */
    double speed[2];     /* steps_per_s in the heartbeats of r0 and r1 */
    double train_s, upload_s;
    int n_damaged_reads;  /* readings of log/ that come cut short */
    const double *gram;   /* of JUDGE */
    const double *probed; /* of JUDGE, where it asks for that */
    bool numeric;         /* COMPUTE is not finite */
    bool lossy;           /* CREATE keeps nothing */
    int n_lost_combined;  /* readings of x/ that find nothing */
    bool lies;            /* COMBINE by us gives another update than the members' */
    bool taken;           /* CONTRIBUTE: a former generation's counts */
    uint64_t newest;      /* entries of the newest snapshot; 0: no snapshot */
    struct {
        diloco_status status; /* OK: no request fails */
        dl_request_kind kind;
    } failing;

    unsigned asked[DL_REQUEST_FAIL + 1], noted[DL_NOTE_LATE + 1];
    unsigned n_fresh, n_jumps, n_adopted; /* n_adopted: stops that took theta, or a mix of it */
    dl_adoption how;                      /* of the last ADOPT */
    char said[128];                       /* text of the last note that had one */
    double deadline_s;
    bool counted;
} world;

static inline dl_generation generation_of(const char *replica, uint32_t number)
{
    dl_generation generation = {.number = number};
    snprintf(generation.replica, sizeof generation.replica, "%s", replica);
    return generation;
}

static inline dl_hash body_of(uint64_t entry, const dl_generation *generation)
{
    char text[DL_GENERATION_TEXT + 32];
    const int len = snprintf(text, sizeof text, "%llu/%s.%u", (unsigned long long)entry,
                             generation->replica, generation->number);
    return dl_hash_bytes(text, (size_t)len);
}

static inline dl_hash result_of(const dl_entry *e)
{
    dl_hash all[WORLD_MEMBERS + 1] = {e->base};
    for (size_t i = 0; i < e->n_members; i++)
        all[i + 1] = e->members[i].body;
    return dl_hash_bytes(all, (e->n_members + 1) * sizeof all[0]);
}

/* The combined update of the members. */
static inline dl_hash update_of(const dl_entry *e)
{
    dl_hash all[WORLD_MEMBERS];
    for (size_t i = 0; i < e->n_members; i++)
        all[i] = e->members[i].body;
    return dl_hash_bytes(all, e->n_members * sizeof all[0]);
}

static inline void world_note(void *user, const dl_note *n)
{
    world *w = user;
    w->noted[n->kind]++;
    if (n->text) snprintf(w->said, sizeof w->said, "%s", n->text);
    if (n->kind == DL_NOTE_DEADLINE) w->deadline_s = n->seconds;
    if (n->kind == DL_NOTE_COMMIT) w->counted = n->counted;
}

/* A contribution of another replica appears. */
static inline world_put *put(world *w, uint64_t entry, const char *replica, uint32_t generation)
{
    CHECK(w->n_put < WORLD_PUT);
    world_put *p = &w->put[w->n_put++];
    *p = (world_put){
        .entry = entry, .generation = generation_of(replica, generation), .samples = 5, .norm2 = 1};
    return p;
}

/* An entry of another replica appears. */
static inline void write_entry(world *w, const dl_entry *e)
{
    CHECK_OK(dl_entry_write(&w->log[e->entry], e, w->args.outer));
    w->digest[e->entry + 1] = e->result;
}

/* A correct entry on top of what the log has; its arrays are static: one at a time. */
static inline dl_entry entry_by(world *w, uint64_t number, const char *committer, bool commit,
                                const char *const *members, size_t n)
{
    static dl_entry e;
    dl_entry_deinit(&e);
    CHECK_OK(dl_entry_init(&e, WORLD_MEMBERS));
    e.commit = commit;
    e.entry = number;
    e.position = (number + 1) * WORLD_H;
    e.committer = generation_of(committer, 0);
    e.prev = w->args.control->prev;
    if (number && w->log[number - 1].len)
        e.prev = dl_hash_bytes(w->log[number - 1].data, w->log[number - 1].len);
    e.base = w->digest[number];
    strcpy(e.run, RUN);
    for (; e.n_members < n; e.n_members++) {
        dl_member *m = &e.members[e.n_members];
        *m = (dl_member){.generation = generation_of(members[e.n_members], 0),
                         .entry = number,
                         .raw = 1,
                         .weight = 1.0f / (float)n,
                         .bytes = WORLD_BYTES};
        m->body = body_of(number, &m->generation);
        CHECK(dl_roster_add(&e.roster, m->generation.replica, 0));
    }
    for (int i = 0; i < w->args.outer->n_scalars; i++)
        e.scalars.value[i] = 0.5f;
    e.next.lr = 0.7f;
    e.next.mu = 0.9f;
    e.result = commit ? result_of(&e) : e.base;
    if (!commit) strcpy(e.abort.reason, "silent");
    return e;
}

/* A commit of one other replica, which has contributed. */
static inline void others_commit(world *w, uint64_t number, const char *replica)
{
    put(w, number, replica, 0);
    const dl_entry e = entry_by(w, number, replica, true, &replica, 1);
    write_entry(w, &e);
}

/* A run of r0 (self, generation 0) and r1 at `entry`; options are set between this and begin. */
static inline void make_world(world *w, uint64_t entry)
{
    memset(w, 0, sizeof *w);
    dl_config_init(&w->config);
    CHECK_OK(dl_config_set(&w->config, "run.replicas", "2", "test"));
    CHECK_OK(dl_config_set(&w->config, "run.deadline", "100", "test"));
    CHECK_OK(dl_config_set(&w->config, "run.patience", "30", "test"));
    CHECK_OK(dl_entry_init(&w->owner, WORLD_MEMBERS));
    w->control = (dl_control){.entry = entry,
                              .prev = dl_hash_bytes("run", 3),
                              .roster = w->owner.roster,
                              .lr = 0.7f,
                              .mu = 0.9f};
    if (entry) CHECK(dl_roster_add(&w->control.roster, "r0", 0));
    if (entry) CHECK(dl_roster_add(&w->control.roster, "r1", 0));
    for (int i = 0; i < WORLD_ROOM; i++)
        dl_buf_init(&w->log[i], DL_ENTRY_TEXT_MAX);
    w->digest[entry] = dl_hash_bytes("state", 5);
    const dl_schedule schedule = {
        .interval = WORLD_H, .n_fragments = 1, .replicas = (uint64_t)w->config.replicas};
    dl_arena measure = {0};
    dl_pace_layout(&w->pace, &measure, &schedule);
    CHECK_OK(dl_arena_init(&w->arena, measure.used));
    dl_pace_layout(&w->pace, &w->arena, &schedule);
    w->train_s = w->upload_s = 1;
    w->beating = " r0 r1 ";
    w->args = (dl_machine_args){.config = &w->config,
                                .run = RUN,
                                .self = generation_of("r0", 0),
                                .control = &w->control,
                                .pace = &w->pace,
                                .outer = dl_outer_find("nesterov"),
                                .weighting = dl_weighting_find("uniform"),
                                .combiner = dl_combiner_find("mean"),
                                .max_members = WORLD_MEMBERS,
                                .snapshot_bytes = 1 << 20,
                                .listener = {.note = world_note, .note_user = w}};
}

static inline void option(world *w, const char *name, const char *value)
{
    CHECK_OK(dl_config_set(&w->config, name, value, "test"));
}

static inline void begin_machine(world *w, const dl_hash *base)
{
    if (!w->machine) CHECK_OK(dl_machine_create(&w->machine, &w->args));
    w->fragment = (dl_fragment_state){.digest = w->digest[w->control.entry]};
    const dl_machine_start start = {.fragments = &w->fragment, .bases = base, .now = w->now};
    w->request = dl_machine_begin(w->machine, &start);
    w->asked[w->request.kind]++;
}

/* A process without any saved state. */
static inline void join_run(world *w)
{
    dl_pace_begin(&w->pace, &w->config, WORLD_ENTRIES, w->control.entry);
    begin_machine(w, NULL);
}

/* A process whose former one had read `folded` entries, and was at `position` on that state. */
static inline void resume_on(world *w, uint64_t applied, uint64_t position, dl_hash base)
{
    dl_pace_fragment fragment = {.since = 0};
    const dl_pace_saved saved = {.position = position,
                                 .applied = applied,
                                 .next_adopt = applied,
                                 .n_captured = applied,
                                 .fragments = &fragment};
    dl_pace_begin(&w->pace, &w->config, WORLD_ENTRIES, w->control.entry);
    dl_pace_resume(&w->pace, &saved);
    begin_machine(w, &base);
}

static inline void resume_run(world *w, uint64_t applied, uint64_t position)
{
    resume_on(w, applied, position, w->digest[applied]);
}

/* The answer to REJOIN: the same state again. */
static inline void rejoin(world *w)
{
    dl_pace_restart(&w->pace);
    begin_machine(w, NULL);
}

static inline void end_world(world *w)
{
    dl_machine_destroy(w->machine);
    dl_arena_deinit(&w->arena);
    dl_entry_deinit(&w->owner);
    for (int i = 0; i < WORLD_ROOM; i++)
        dl_buf_deinit(&w->log[i]);
}

/* ---- answers ---------------------------------------------------------------------------- */

static inline void answer_read(world *w, dl_reply *reply)
{
    const dl_buf *text = &w->log[w->request.entry];
    if (!text->len) return;
    reply->read.text = text->data;
    reply->read.text_len = text->len;
    if (w->n_damaged_reads == 0) return;
    w->n_damaged_reads--;
    reply->read.text_len = text->len / 2;
}

static inline void answer_extent(world *w, dl_reply *reply)
{
    uint64_t e = w->request.entry;
    for (; e < WORLD_ROOM && w->log[e].len && reply->extent.n < w->request.extent.most; e++)
        reply->extent.n++;
    reply->extent.newest = w->newest > w->request.entry ? w->newest : 0;
}

static inline void answer_list(world *w, dl_reply *reply)
{
    static dl_listed listed[WORLD_PUT];
    reply->list.listed = listed;
    for (size_t i = 0; i < w->n_put; i++)
        if (w->pace.schedule.async || w->put[i].entry == w->request.entry)
            listed[reply->list.n_listed++] = (dl_listed){
                .entry = w->put[i].entry, .generation = w->put[i].generation, .len = WORLD_BYTES};
}

static inline void answer_fetch(world *w, dl_reply *reply)
{
    static dl_contribution facts;
    reply->status = DILOCO_ENOENT;
    for (size_t i = 0; i < w->n_put; i++) {
        world_put *p = &w->put[i];
        if (p->entry != w->request.entry ||
            !dl_generation_equal(&p->generation, &w->request.fetch.generation))
            continue;
        reply->status = p->n_bad ? DILOCO_EPROTO : DILOCO_OK;
        reply->fetch.reason = p->why ? p->why : "checksum";
        if (p->n_bad > 0) p->n_bad--;
        facts = (dl_contribution){.body = body_of(p->entry, &p->generation),
                                  .stats.samples = p->samples,
                                  .stats.steps = WORLD_H};
        reply->fetch.facts = &facts;
        reply->fetch.norm2 = p->norm2;
    }
    w->n_fresh += w->request.fetch.fresh;
}

static inline void answer_create(world *w, dl_reply *reply)
{
    reply->create.taken = w->log[w->request.entry].len > 0;
    if (!reply->create.taken && !w->lossy) write_entry(w, w->request.step.draft);
}

static inline void answer_watch(world *w, dl_reply *reply)
{
    static dl_seen seen[2];
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "r1" : "r0", *padded = i ? " r1 " : " r0 ";
        const dl_time beat = strstr(w->beating, padded) ? w->now : 0;
        seen[i] = (dl_seen){.generation = generation_of(name, 0),
                            .content = dl_hash_bytes(&beat, sizeof beat),
                            .steps_per_s = w->speed[i]};
    }
    reply->watch.seen = seen;
    reply->watch.n_seen = 2;
}

static inline void answer_combine(world *w, dl_reply *reply)
{
    reply->combined.result = update_of(w->request.step.draft);
    reply->combined.len = WORLD_BYTES;
    reply->combined.n_slices = w->args.slices ? w->args.slices[0] : 0;
    if (w->lies) reply->combined.result.bytes[0] ^= 1;
}

static inline void answer_fetch_combined(world *w, dl_reply *reply)
{
    reply->combined.reason = "";
    reply->combined.result = update_of(w->request.step.draft);
    reply->combined.len = WORLD_BYTES;
    if (w->n_lost_combined == 0) return;
    w->n_lost_combined--;
    reply->status = DILOCO_ENOENT;
}

static inline void answer_compute(world *w, dl_reply *reply)
{
    reply->status = w->numeric ? dl_fail(DILOCO_ENUMERIC, "theta[3] is inf") : DILOCO_OK;
    reply->compute.result = result_of(w->request.step.draft);
}

/* The trainer at its present position: its stops without waiting. */
static inline void make_stops(world *w)
{
    for (;;) {
        const dl_stop stop = dl_pace_next(&w->pace);
        if (stop.kind == DL_STOP_JUMP) {
            dl_pace_jumped(&w->pace);
            w->n_jumps++;
        } else if (stop.kind == DL_STOP_ADOPT && dl_pace_ready(&w->pace, stop)) {
            const dl_pace_capture *capture = dl_pace_in_flight(&w->pace, stop.entry);
            w->how = dl_pace_adoption(&w->pace, capture);
            w->n_adopted += w->how != DL_ADOPT_NOTHING;
            dl_pace_adopted(&w->pace, capture, w->how);
        } else {
            return;
        }
    }
}

/* It trains to its next due point. */
static inline void answer_train(world *w)
{
    make_stops(w);
    w->pace.position = dl_pace_train_until(&w->pace);
    w->now += dl_time_from_seconds(w->train_s);
    if (dl_pace_next(&w->pace).kind != DL_STOP_CAPTURE) return;
    const dl_pace_capture due = dl_pace_due_capture(&w->pace, 0, true);
    dl_pace_captured(&w->pace, &due);
}

/* Answer the open request. */
static inline void step(world *w)
{
    dl_reply reply = {.kind = w->request.kind};
    switch (w->request.kind) {
    case DL_REQUEST_TRAIN:
        answer_train(w);
        break;
    case DL_REQUEST_CONTRIBUTE:
        w->now += dl_time_from_seconds(w->upload_s);
        reply.contribute.taken = w->taken;
        if (!w->taken) put(w, w->request.entry, w->args.self.replica, w->args.self.number);
        break;
    case DL_REQUEST_WAIT:
        w->now += w->request.wait.until - w->now < DL_SECOND / 2 ? w->request.wait.until - w->now
                                                                 : DL_SECOND / 2;
        break;
    case DL_REQUEST_READ:
        answer_read(w, &reply);
        break;
    case DL_REQUEST_EXTENT:
        answer_extent(w, &reply);
        break;
    case DL_REQUEST_LIST:
        answer_list(w, &reply);
        break;
    case DL_REQUEST_FETCH:
        answer_fetch(w, &reply);
        break;
    case DL_REQUEST_JUDGE:
        reply.judge.gram = w->gram;
        if (w->request.judge.probe) reply.judge.probed = w->probed;
        break;
    case DL_REQUEST_COMBINE:
        answer_combine(w, &reply);
        break;
    case DL_REQUEST_FETCH_COMBINED:
        answer_fetch_combined(w, &reply);
        break;
    case DL_REQUEST_SERVE:
        break;
    case DL_REQUEST_COMPUTE:
        answer_compute(w, &reply);
        break;
    case DL_REQUEST_CREATE:
        answer_create(w, &reply);
        break;
    case DL_REQUEST_WATCH:
        answer_watch(w, &reply);
        break;
    case DL_REQUEST_SWAP:
    case DL_REQUEST_SNAPSHOT:
        break;
    case DL_REQUEST_REJOIN:
    case DL_REQUEST_DONE:
    case DL_REQUEST_FAIL:
        CHECK_FAIL("request %d has no answer: %s", (int)w->request.kind, diloco_error_text());
    }
    if (w->failing.status && w->request.kind == w->failing.kind) reply.status = w->failing.status;
    reply.now = w->now;
    w->request = dl_machine_next(w->machine, &reply);
    w->asked[w->request.kind]++;
}

/* Train to the due point, and look whether the entry exists already. */
static inline void capture(world *w)
{
    while (w->request.kind != DL_REQUEST_TRAIN)
        step(w);
    step(w);
}

/* Answer until a request of that kind is open, one that is open already included. */
static inline const dl_request *until(world *w, dl_request_kind kind)
{
    for (int i = 0; w->request.kind != kind; i++) {
        if (i == 100000) CHECK_FAIL("request %d does not come", (int)kind);
        step(w);
    }
    if (kind == DL_REQUEST_TRAIN || kind == DL_REQUEST_DONE) make_stops(w);
    return &w->request;
}

/* Answer the open one, and on. */
static inline const dl_request *next(world *w, dl_request_kind kind)
{
    step(w);
    return until(w, kind);
}

#endif
