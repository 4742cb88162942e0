/* scale_log.c - make a run's log long, faster than training would.
 *
 *     scale_log URL ENTRIES
 *
 * The program has created the run (bench/scale.md). One replica, r0, has the
 * library's own state machine and exchange. It reads every contribution from the store, judges and
 * combines them, and creates the entries. It writes snapshots and collects as a replica does. The
 * contributions of all the others are captured, encoded, digested and put by the library's writer
 * of logical clients, under claimed generations of their own.
 *
 * Three things are not real. A replica's movement comes from a hash and not from training. Time is
 * counted, SECONDS an entry, so that snapshots come as often as in a run of that pace. A heartbeat
 * has the members that readers need and no others. Started again, the replicas begin new
 * generations at the newest snapshot and continue to ENTRIES. */
#include "exchange/exec.h"
#include "exchange/generations.h"
#include "log/layout.h"
#include "protocol/logical_clients.h"
#include "run/due_points.h"
#include "run/open.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double SECONDS = 0.15, HEARTBEAT = 5;

typedef struct bench {
    const char *url;
    dl_store *store;
    dl_runfile file;
    dl_hash digest;
    dl_schedule schedule;
    uint64_t n_entries; /* of the whole run */
    dl_time now, beat;
    dl_generation *generations; /* [n] */
    size_t n;
    /* r0's */
    dl_exec *exec;
    dl_machine *machine;
    dl_request request;
    dl_arena arena;
    dl_pace pace;
    diloco_tensor *tensors;
    dl_train_stats work;
    uint64_t step, others_put; /* 1 + the entry that the others have contributed to */
} bench;

static void need_ok(diloco_status status, const char *what)
{
    if (!status) return;
    fprintf(stderr, "scale_log: %s: %s\n", what, diloco_error_text());
    exit(1);
}

static void *need(size_t n, size_t size)
{
    void *p = calloc(n, size);
    if (p) return p;
    fprintf(stderr, "scale_log: out of memory\n");
    exit(1);
}

static uint64_t open_entry(const bench *b)
{
    return dl_exec_state(b->exec)->control.entry;
}

/* ---- training ---- */

static void fresh(void *user, uint32_t fragment)
{
    bench *b = user;
    (void)fragment;
    b->work = (dl_train_stats){.step = b->step, .first_sample = b->step, .end_sample = b->step};
}

/* Each parameter moves a little towards a point of the replica's own. */
static void move(bench *b, size_t replica)
{
    const dl_manifest *m = &b->file.manifest;
    const uint64_t key[2] = {replica, b->step};
    const dl_hash draw = dl_hash_bytes(key, sizeof key);
    for (size_t t = 0; t < m->n_tensors; t++) {
        float *w = b->tensors[t].data;
        for (size_t i = 0; i < m->tensors[t].count; i++)
            w[i] -= 0.01f * (w[i] + (float)draw.bytes[i % sizeof draw.bytes] / 2560.0f);
    }
}

static void train_a_step(bench *b)
{
    move(b, 0);
    b->step++;
    b->pace.position++;
    const dl_train_stats *w = &b->work;
    b->work = (dl_train_stats){.step = b->step,
                               .steps = w->steps + 1,
                               .samples = w->samples + 1,
                               .tokens = w->tokens + 1,
                               .first_sample = w->first_sample,
                               .end_sample = b->step,
                               .position = b->pace.position,
                               .loss = 1};
}

static diloco_status keep_nothing(void *user, dl_hash body)
{
    (void)user, (void)body;
    return DILOCO_OK;
}

/* The other replicas contribute to the open entry, each from the shared model. */
static void contribute_others(bench *b)
{
    const uint64_t position = dl_schedule_capture(&b->schedule, open_entry(b));
    for (size_t i = 1; i < b->n; i++) {
        bool first;
        const dl_train_stats work = {.step = position,
                                     .steps = 1,
                                     .samples = 1,
                                     .tokens = 1,
                                     .shard = i,
                                     .first_sample = position - 1,
                                     .end_sample = position,
                                     .position = position,
                                     .loss = 1};
        const dl_exec_client client = {
            .generation = b->generations[i], .stats = &work, .keep = keep_nothing};
        dl_exec_adopt(b->exec, 0, 0);
        move(b, i);
        need_ok(dl_exec_put_client(b->exec, &first, &client, DL_NEVER), client.generation.replica);
    }
    dl_exec_adopt(b->exec, 0, 0);
    b->others_put = 1 + open_entry(b);
}

/* r0 does what is due at its position, and trains to the next due point. */
static void train(bench *b)
{
    dl_stops stops = {.exec = b->exec,
                      .pace = &b->pace,
                      .config = &b->file.config,
                      .replica = b->generations[0].replica,
                      .work = &b->work,
                      .fresh = fresh,
                      .user = b};
    dl_adopted adopted;
    for (;;) {
        const dl_stop stop = dl_pace_next(&b->pace);
        if (stop.kind != DL_STOP_NONE && !dl_pace_ready(&b->pace, stop)) return;
        if (stop.kind == DL_STOP_JUMP) dl_stop_jump(&stops);
        if (stop.kind == DL_STOP_ADOPT) dl_stop_adopt(&stops, stop.entry, &adopted);
        if (stop.kind == DL_STOP_CAPTURE)
            return need_ok(dl_stop_capture(&stops, stop.entry), "capture");
        if (stop.kind != DL_STOP_NONE) continue;
        if (dl_pace_train_until(&b->pace) == UINT64_MAX) return;
        if (b->others_put != 1 + open_entry(b)) contribute_others(b);
        train_a_step(b);
    }
}

/* ---- joining, as diloco_run_join does ---- */

static void beat_all(bench *b)
{
    for (size_t i = 0; i < b->n; i++) {
        char text[256];
        dl_key key;
        const int n =
            snprintf(text, sizeof text,
                     "{\"replica\":\"%s\",\"generation\":%u,\"beat\":%" PRIu64 ",\"step\":%" PRIu64
                     ",\"position\":%" PRIu64 ",\"entry\":%" PRIu64 ",\"steps_per_s\":%g}",
                     b->generations[i].replica, (unsigned)b->generations[i].number,
                     (uint64_t)b->now, b->step, b->pace.position, open_entry(b), 1 / SECONDS);
        dl_key_heartbeat(key, &b->generations[i]);
        need_ok(dl_store_put(b->store, key, text, (size_t)n, DL_NEVER), key);
    }
    b->beat = dl_time_after(b->now, dl_time_from_seconds(HEARTBEAT));
}

static void begin_machine(bench *b)
{
    const dl_machine_start start = {.fragments = dl_exec_state(b->exec)->now, .now = b->now};
    b->request = dl_machine_begin(b->machine, &start);
}

static void make_machine(bench *b)
{
    dl_state *state = dl_exec_state(b->exec);
    const dl_machine_args args = {.config = &b->file.config,
                                  .run = b->file.id,
                                  .identity = &b->file.identity,
                                  .self = b->generations[0],
                                  .control = &state->control,
                                  .pace = &b->pace,
                                  .outer = state->outer,
                                  .weighting = dl_weighting_find(b->file.config.weighting),
                                  .combiner = dl_combiner_find(b->file.config.combiner),
                                  .topology = dl_exec_topology_kind(b->exec),
                                  .max_members = state->control.roster.cap,
                                  .snapshot_bytes = 8 * b->file.manifest.n_parameters};
    need_ok(dl_machine_create(&b->machine, &args), b->url);
}

static void make_tensors(bench *b)
{
    const dl_manifest *m = &b->file.manifest;
    b->tensors = need(m->n_tensors, sizeof *b->tensors);
    for (size_t i = 0; i < m->n_tensors; i++) {
        const dl_manifest_tensor *from = &m->tensors[i];
        diloco_tensor *t = &b->tensors[i];
        *t = (diloco_tensor){.name = from->name,
                             .data = need(from->count, sizeof(float)),
                             .dtype = from->dtype,
                             .role = from->role,
                             .n_dims = from->n_dims,
                             .fragment = from->fragment};
        memcpy(t->shape, from->shape, sizeof t->shape);
    }
}

static void claim_generations(bench *b)
{
    b->generations = need(b->n, sizeof *b->generations);
    for (size_t i = 0; i < b->n; i++) {
        char name[DL_REPLICA_MAX + 1];
        snprintf(name, sizeof name, "r%zu", i);
        need_ok(dl_run_claim_generation(&b->generations[i], b->store, name, &b->file,
                                        &b->file.config, NULL),
                name);
    }
}

static void begin_pace(bench *b)
{
    dl_arena measure = {0};
    dl_pace_layout(&b->pace, &measure, &b->schedule);
    need_ok(dl_arena_init(&b->arena, measure.used), b->url);
    dl_pace_layout(&b->pace, &b->arena, &b->schedule);
    dl_pace_begin(&b->pace, &b->file.config, b->n_entries, open_entry(b));
}

static void join(bench *b)
{
    make_tensors(b);
    claim_generations(b);
    const dl_exec_args args = {.store = b->store,
                               .run = &b->file,
                               .run_digest = b->digest,
                               .self = b->generations[0],
                               .tensors = b->tensors,
                               .n_tensors = b->file.manifest.n_tensors,
                               .max_members = dl_clients_max_members(&b->file.config),
                               .n_copies = 2};
    need_ok(dl_exec_create(&b->exec, &args), b->url);
    dl_reply reply = {.status = DILOCO_OK};
    const dl_request newest = {.kind = DL_REQUEST_REJOIN, .entry = UINT64_MAX};
    dl_exec_do(b->exec, &newest, &reply, DL_NEVER);
    need_ok(reply.status, "snapshot");
    begin_pace(b);
    make_machine(b);
    b->step = open_entry(b);
    fresh(b, 0);
    begin_machine(b);
    beat_all(b);
}

/* ---- the exchange ---- */

static void entry_created(bench *b, uint64_t entry)
{
    b->now = dl_time_after(b->now, dl_time_from_seconds(SECONDS));
    if (b->now >= b->beat) beat_all(b);
    if (entry % 1000 == 999) fprintf(stderr, "scale_log: %" PRIu64 " entries\n", entry + 1);
}

/* Carries out r0's request. False: the run is over. */
static bool act(bench *b)
{
    const dl_request_kind kind = b->request.kind;
    const uint64_t entry = b->request.entry;
    dl_reply reply = {.kind = kind};
    if (kind == DL_REQUEST_FAIL) need_ok(b->request.fail.status, "r0");
    if (kind == DL_REQUEST_DONE) return false;
    if (kind == DL_REQUEST_SNAPSHOT) beat_all(b);
    if (kind == DL_REQUEST_WAIT) b->now = dl_time_after(b->now, DL_SECOND);
    reply.now = b->now;
    if (kind != DL_REQUEST_WAIT && kind != DL_REQUEST_TRAIN)
        dl_exec_do(b->exec, &b->request, &reply, DL_NEVER);
    if (kind == DL_REQUEST_REJOIN) {
        need_ok(reply.status, "rejoin");
        dl_pace_restart(&b->pace);
        return begin_machine(b), true;
    }
    if (kind == DL_REQUEST_CREATE && !reply.create.taken) entry_created(b, entry);
    b->request = dl_machine_next(b->machine, &reply);
    return true;
}

int main(int argc, char **argv)
{
    static bench b;
    if (argc != 3) {
        fprintf(stderr, "usage: scale_log URL ENTRIES   (bench/scale.md)\n");
        return 2;
    }
    const uint64_t wanted = strtoull(argv[2], NULL, 10);
    b.url = argv[1];
    need_ok(dl_store_open(&b.store, b.url, false), b.url);
    need_ok(dl_run_read(&b.file, &b.digest, b.store), b.url);
    need_ok(dl_schedule_of(&b.schedule, &b.file.config, b.file.manifest.n_fragments), b.url);
    b.n_entries = dl_schedule_entries(&b.schedule, (uint64_t)b.file.config.rounds);
    b.n = (size_t)b.file.config.replicas;
    b.now = DL_SECOND;
    if (b.file.manifest.n_fragments != 1) {
        fprintf(stderr, "scale_log: the run has to have one fragment\n");
        return 2;
    }
    join(&b);
    do
        train(&b);
    while (open_entry(&b) < wanted && act(&b));
    printf("%" PRIu64 " entries\n", open_entry(&b));
    return 0;
}
