/* streaming_test.c - fragments, overlap and local_mix: whole runs of two replicas are compared with
 * a reference that follows Streaming DiLoCo (2501.18512; docs/architecture.md section 2) in plain
 * loops, with both replicas in one. Every bit of every step has to be the same, also if replicas
 * are stopped and resumed at any step, or the store is slow. */
#include "toy_run.h"

#include "log/layout.h"
#include "run/handle.h"
#include "store/kind.h"

enum { CREW = 2, H = 6, MAX_STEPS = 64, MAX_FLIGHTS = 8, NEVER = -1 };

typedef struct shape {
    const char *schedule, *tau, *mix, *rounds;
    int P;
    int aborted;           /* this entry is an abort, or NEVER */
    const char *own[CREW]; /* tau of each replica; NULL: tau */
} shape;

static int tau_of(const shape *s)
{
    return atoi(s->tau);
}

static int own_tau(const shape *s, int m)
{
    return s->own[m] ? atoi(s->own[m]) : tau_of(s);
}

static uint64_t entries_of(const shape *s)
{
    return (uint64_t)(atoi(s->rounds) * s->P);
}

static bool is_torchft(const shape *s)
{
    return !strcmp(s->schedule, "torchft");
}

/* w before each step, and at the end. */
typedef struct trace {
    float w[MAX_STEPS][TOY_N], end[TOY_N];
    int steps;
} trace;

/* ---- the reference ---------------------------------------------------------------------- */

/* A fragment's movements between their due point and their adoption. */
typedef struct flight {
    int fragment, adopt[CREW];
    bool aborted, decided;
    float g[CREW][TOY_N];
} flight;

typedef struct reference {
    const shape *s;
    toy side[CREW];
    float theta[TOY_N], momentum[TOY_N];
    flight flights[MAX_FLIGHTS];
    int first, n_flights; /* in the air: flights[first .. n_flights), modulo */
    int captured, commits;
} reference;

/* Returns the fragment that is due after step t, or -1. */
static int due(const reference *r, int t)
{
    const int P = r->s->P;
    if (is_torchft(r->s)) return (t + tau_of(r->s)) % (H / P) == 0 ? r->commits % P : -1;
    for (int p = 0; p < P; p++) /* t = t_p + k H, k >= 1 */
        if (t >= H && (t - p * H / P) % H == 0) return p;
    return -1;
}

static void snapshot(reference *r, int fragment, int t)
{
    flight *f = &r->flights[r->n_flights++ % MAX_FLIGHTS];
    *f = (flight){.fragment = fragment};
    f->aborted = r->captured++ == r->s->aborted;
    for (int m = 0; m < CREW; m++) {
        f->adopt[m] = t + own_tau(r->s, m);
        for (int i = 0; i < TOY_N; i++)
            f->g[m][i] = r->theta[i] - r->side[m].w[i];
    }
}

/* Takes an outer Nesterov step on the global fragment, from the mean. */
static void decide(reference *r, flight *f)
{
    const float lr = 0.7f, mu = 0.9f;
    f->decided = true;
    if (f->aborted) return;
    r->commits++;
    for (int i = toy_begin(f->fragment, r->s->P); i < toy_begin(f->fragment + 1, r->s->P); i++) {
        const float G = fmaf(0.5f, f->g[1][i], 0.5f * f->g[0][i]);
        r->momentum[i] = fmaf(mu, r->momentum[i], G);
        r->theta[i] = fmaf(-lr, fmaf(mu, r->momentum[i], G), r->theta[i]);
    }
}

static void adopt(reference *r, const flight *f, int m)
{
    const float mix = (float)atof(r->s->mix);
    if (f->aborted || mix == 1) return;
    for (int i = toy_begin(f->fragment, r->s->P); i < toy_begin(f->fragment + 1, r->s->P); i++) {
        float *local = &r->side[m].w[i];
        *local = mix == 0 ? r->theta[i] : fmaf(mix, *local - r->theta[i], r->theta[i]);
    }
}

/* Adopts a movement in each replica that is due; at the end of the run all adopt. Returns true if
 * all have adopted it. */
static bool land(reference *r, flight *f, int t, bool last)
{
    bool all = true;
    for (int m = 0; m < CREW; m++) {
        if (f->adopt[m] != t && !(last && f->adopt[m] > t)) {
            all &= f->adopt[m] < t;
            continue;
        }
        if (!f->decided) decide(r, f);
        adopt(r, f, m);
    }
    return all;
}

static void take_step(reference *r, trace out[CREW], int t)
{
    for (int m = 0; m < CREW; m++) {
        const diloco_run_info now = {.shard = m, .sample = (uint64_t)t - 1};
        memcpy(out[m].w[t - 1], r->side[m].w, sizeof out[m].w[0]);
        toy_step(&r->side[m], &now);
    }
}

static void follow(trace out[CREW], float theta[TOY_N], const shape *s)
{
    static reference r;
    memset(&r, 0, sizeof r);
    memset(out, 0, CREW * sizeof out[0]);
    r.s = s;
    for (int m = 0; m < CREW; m++)
        r.side[m] = toy_of("", "");
    int t = 0;
    while (r.captured < (int)entries_of(s)) {
        take_step(&r, out, ++t);
        const int p = due(&r, t);
        if (p >= 0) snapshot(&r, p, t);
        const bool last = r.captured == (int)entries_of(s); /* nothing to train for */
        for (int f = r.first; f < r.n_flights; f++)
            if (land(&r, &r.flights[f % MAX_FLIGHTS], t, last) && f == r.first) r.first++;
    }
    for (int m = 0; m < CREW; m++) {
        memcpy(out[m].end, r.side[m].w, sizeof out[m].end);
        out[m].steps = t;
    }
    memcpy(theta, r.theta, sizeof r.theta);
}

/* ---- whole runs ------------------------------------------------------------------------- */

static double step_and_trace(toy *t, const diloco_run_info *now)
{
    trace *out = t->user;
    if (now->position < MAX_STEPS) memcpy(out->w[now->position], t->w, sizeof t->w);
    out->steps++;
    return toy_step(t, now);
}

static void crew_of(toy *all, trace *traces, const shape *s, const char *store, const char *state)
{
    memset(traces, 0, CREW * sizeof *traces);
    toy_keep(store);
    toy_crew(all, CREW, store, state);
    toy_set_all(all, CREW, "trainer.local_steps_per_round", "6");
    toy_set_all(all, CREW, "trainer.rounds", s->rounds);
    toy_set_all(all, CREW, "server.diloco.schedule", s->schedule);
    toy_set_all(all, CREW, "server.diloco.overlap_steps", s->tau);
    toy_set_all(all, CREW, "server.diloco.local_mix", s->mix);
    toy_set_all(all, CREW, "run.retain", "all");
    for (int m = 0; m < CREW; m++) {
        if (s->own[m]) toy_set(&all[m], "server.diloco.own_overlap_steps", s->own[m]);
        all[m].fragments = s->P;
        all[m].step = step_and_trace;
        all[m].user = &traces[m];
    }
}

static void check_bits(const char *what, const shape *s, int m, int t, const float *want,
                       const float *got)
{
    for (int i = 0; i < TOY_N; i++)
        if (memcmp(&want[i], &got[i], sizeof want[i]) != 0)
            CHECK_FAIL("%s, P = %d, tau = %s, local_mix %s: r%d %s %d: w[%d] is %.9g, not %.9g",
                       s->schedule, s->P, s->tau, s->mix, m, what, t, i, (double)got[i],
                       (double)want[i]);
}

static void check_against_reference(const toy *all, const trace *traces, const shape *s)
{
    static trace want[CREW];
    float theta[TOY_N];
    follow(want, theta, s);
    for (int m = 0; m < CREW; m++) {
        TOY_OK(all[m]);
        CHECK_INT(want[m].steps, all[m].end.step);
        for (int t = 0; t < want[m].steps; t++)
            check_bits("before step", s, m, t + 1, want[m].w[t], traces[m].w[t]);
        check_bits("at the end, step", s, m, want[m].steps, want[m].end, all[m].w);
        if (!all[m].prepare) /* else the toy did not ask for theta */
            check_bits("theta, step", s, m, want[m].steps, theta, all[m].theta);
    }
}

static const char *fresh_store(void)
{
    static char url[32];
    static int n;
    snprintf(url, sizeof url, "mem://streaming-%d", n++);
    return url;
}

static void check_shape(const shape *s)
{
    static trace traces[CREW];
    toy all[CREW];
    crew_of(all, traces, s, fresh_store(), "none");
    toy_live_all(all, CREW);
    check_against_reference(all, traces, s);
}

static const char *const mixes[] = {"0", "0.5", "1"};

TEST(the_offset_schedule_follows_the_paper_to_the_bit)
{
    static const char *const taus[] = {"0", "1", "3"};
    for (int P = 1; P <= 3; P++)
        for (int tau = 0; tau < 3; tau++)
            for (int mix = 0; mix < 3; mix++)
                check_shape(&(shape){"offset", taus[tau], mixes[mix], "3", P, NEVER, {0}});
}

/* Three fragments of two steps each and tau = 5: up to three contributions are in flight, and the
 * last are adopted early. */
TEST(several_contributions_in_flight_follow_the_reference)
{
    for (int mix = 0; mix < 3; mix++)
        check_shape(&(shape){"offset", "5", mixes[mix], "3", 3, NEVER, {0}});
}

TEST(alg_19_each_replica_adopts_at_its_own_delay_a_capture_of_one_step)
{
    for (int P = 1; P <= 3; P++)
        for (int mix = 0; mix < 3; mix++) {
            check_shape(&(shape){"offset", "5", mixes[mix], "3", P, NEVER, {"2", NULL}});
            check_shape(&(shape){"offset", "4", mixes[mix], "3", P, NEVER, {"3", "0"}});
        }
}

TEST(the_torchft_schedule_follows_its_rule_to_the_bit_first_firing_included)
{
    static const struct {
        int P;
        const char *tau;
    } fits[] = {{1, "0"}, {1, "1"}, {1, "3"}, {2, "0"}, {2, "1"}, {3, "0"}, {3, "1"}};
    for (size_t i = 0; i < sizeof fits / sizeof fits[0]; i++)
        for (int mix = 0; mix < 3; mix++)
            check_shape(&(shape){"torchft", fits[i].tau, mixes[mix], "3", fits[i].P, NEVER, {0}});
}

TEST(one_fragment_without_overlap_is_vanilla_to_the_bit)
{
    static trace traces[CREW];
    const shape one = {"offset", "0", "0", "3", 1, NEVER, {0}};
    toy all[CREW], vanilla[CREW];
    crew_of(all, traces, &one, fresh_store(), "none");
    toy_live_all(all, CREW);
    toy_crew(vanilla, CREW, fresh_store(), "none");
    toy_set_all(vanilla, CREW, "trainer.local_steps_per_round", "6");
    toy_set_all(vanilla, CREW, "trainer.rounds", "3");
    toy_live_all(vanilla, CREW);
    for (int m = 0; m < CREW; m++) {
        TOY_OK(all[m]);
        TOY_OK(vanilla[m]);
        CHECK_BYTES(vanilla[m].w, all[m].w, sizeof all[m].w);
        CHECK_BYTES(vanilla[m].moment, all[m].moment, sizeof all[m].moment);
    }
}

/* The residual of an exact codec is zero. */
TEST(error_feedback_changes_nothing_where_the_codec_is_exact)
{
    static trace traces[CREW];
    const shape s = {"offset", "3", "0.5", "3", 3, NEVER, {0}};
    toy all[CREW];
    crew_of(all, traces, &s, fresh_store(), "none");
    toy_set_all(all, CREW, "server.diloco.error_feedback", "0.95");
    toy_live_all(all, CREW);
    check_against_reference(all, traces, &s);
}

/* ---- an entry that aborts ---------------------------------------------------------------- */

static dl_buf wait_and_read(dl_store *store, const char *key)
{
    dl_buf bytes;
    dl_buf_init(&bytes, DL_ENTRY_TEXT_MAX);
    for (int i = 0; dl_store_get(store, &bytes, key, DL_NEVER); i++) {
        if (i == 60000) abort();
        usleep(1000);
    }
    return bytes;
}

/* Writes log/<entry> as an abort, after r0's contribution to it. */
static void write_abort(const char *url, uint64_t entry)
{
    dl_store *store;
    dl_entry e;
    dl_contribution c;
    dl_key key;
    const dl_generation r0 = {.replica = "r0"};
    if (dl_store_open(&store, url, false) || dl_entry_init(&e, 8)) abort();
    dl_key_contribution(key, entry, &r0);
    dl_buf theirs = wait_and_read(store, key);
    dl_key_entry(key, entry - 1);
    dl_buf text = wait_and_read(store, key);
    if (dl_contribution_read_header(&c, theirs.data, theirs.len) ||
        dl_entry_read(&e, text.data, text.len, dl_outer_find("nesterov")))
        abort();
    e.prev = dl_hash_bytes(text.data, text.len);
    e.entry = entry;
    e.fragment = c.fragment;
    e.position = c.stats.position;
    e.base = e.result = c.base;
    e.committer = (dl_generation){.replica = "r9"};
    e.commit = false;
    e.n_members = 0;
    snprintf(e.abort.reason, sizeof e.abort.reason, "a test of the one after it");
    dl_buf_clear(&text);
    dl_key_entry(key, entry);
    if (dl_entry_write(&text, &e, dl_outer_find("nesterov"))) abort();
    const dl_span span = {text.data, text.len};
    if (dl_store_create(store, key, &span, 1, NULL, DL_NEVER)) abort();
    dl_buf_deinit(&theirs);
    dl_buf_deinit(&text);
    dl_entry_deinit(&e);
    dl_store_close(store);
}

static uint64_t taken_at(const toy *t, uint64_t entry)
{
    dl_schedule s;
    if (dl_schedule_of(&s, &t->run->config, t->fragments)) abort();
    return dl_schedule_capture(&s, entry);
}

/* r1 makes the entry abort before its last step to entry 1. */
static double step_and_abort(toy *t, const diloco_run_info *now)
{
    if (now->position + 1 == taken_at(t, 1)) write_abort(t->run->config.store, 1);
    return step_and_trace(t, now);
}

static void check_abort(const char *schedule, const char *tau, int P)
{
    static trace traces[CREW];
    const shape s = {schedule, tau, "0.5", "3", P, 1, {0}};
    toy all[CREW];
    crew_of(all, traces, &s, fresh_store(), "none");
    all[1].step = step_and_abort;
    toy_live_all(all, CREW);
    check_against_reference(all, traces, &s);
}

/* The reference tries the same fragment again with torchft's schedule, and a rotation later with
 * the other. Its movement continues and is sent then. */
TEST(an_aborted_entry_moves_no_replica_and_its_fragment_is_exchanged_again)
{
    check_abort("torchft", "0", 2);
    check_abort("torchft", "1", 2);
    check_abort("torchft", "1", 3);
    check_abort("offset", "0", 3);
    check_abort("offset", "3", 3);
}

/* ---- stopped and resumed ---------------------------------------------------------------- */

/* Runs until the run is done, with a clean stop after stop_after steps of each generation. */
static void *run_in_parts(void *context)
{
    toy *t = context;
    do
        toy_live(t);
    while (!t->status && t->end.entry < t->end.entries);
    return NULL;
}

static void check_stops(const shape *s, const char *feedback, uint64_t after0, uint64_t after1)
{
    static trace traces[CREW];
    static int n;
    char state[32];
    toy all[CREW];
    snprintf(state, sizeof state, "stops-%d", n++);
    crew_of(all, traces, s, fresh_store(), scratch_path(state));
    toy_set_all(all, CREW, "server.diloco.error_feedback", feedback);
    toy_set_all(all, CREW, "run.snapshot_every", "0.001"); /* newer than the state of the resume */
    for (int m = 0; m < CREW; m++) {
        all[m].stop_after = m ? after1 : after0;
        CHECK_INT(0, pthread_create(&all[m].thread, NULL, run_in_parts, &all[m]));
    }
    for (int m = 0; m < CREW; m++)
        pthread_join(all[m].thread, NULL);
    CHECK(all[0].end.generation > 0 && all[0].end.resumed);
    check_against_reference(all, traces, s);
}

TEST(replicas_stopped_at_any_step_and_resumed_train_the_same_bits)
{
    for (uint64_t after = 1; after <= 7; after += 2)
        for (int P = 1; P <= 3; P += 2) {
            check_stops(&(shape){"offset", "0", "0.5", "2", P, NEVER, {0}}, "0", after, 5);
            check_stops(&(shape){"offset", "3", "0.5", "2", P, NEVER, {0}}, "0", 4, after);
        }
    check_stops(&(shape){"offset", "5", "0", "3", 3, NEVER, {0}}, "0", 1, 2);
    check_stops(&(shape){"offset", "4", "0.5", "2", 3, NEVER, {"2", "0"}}, "0", 2, 3);
    check_stops(&(shape){"torchft", "1", "0.5", "2", 3, NEVER, {0}}, "0", 1, 3);
    check_stops(&(shape){"offset", "3", "0.5", "2", 3, NEVER, {0}}, "0.95", 2, 3); /* exact: zero */
}

/* A save does not stop the run. */
static double save_and_step(toy *t, const diloco_run_info *now)
{
    if (diloco_run_save(t->run)) abort();
    return step_and_trace(t, now);
}

TEST(a_replica_that_saves_before_each_step_trains_the_same_bits)
{
    static trace traces[CREW];
    const shape s = {"offset", "3", "0.5", "2", 3, NEVER, {0}};
    toy all[CREW];
    crew_of(all, traces, &s, fresh_store(), scratch_path("saves"));
    toy_set_all(all, CREW, "server.diloco.error_feedback", "0.95"); /* saved too; it stays zero */
    all[0].step = save_and_step;
    toy_live_all(all, CREW);
    check_against_reference(all, traces, &s);
}

/* ---- during training ------------------------------------------------------------------- */

/* A store whose uploads take the whole overlap: the upload for an entry does not end before its
 * replica has taken tau more steps. If training waited for it, it would wait for ever (here: a
 * minute). */
typedef struct gate {
    dl_store *inner; /* owned */
    toy *t;
} gate;

typedef struct gated {
    trace trace;           /* first: it is step_and_trace's */
    atomic_ullong n_steps; /* that this replica has taken */
} gated;

static diloco_status wait_for_steps(const gate *g, const char *key, uint64_t n)
{
    const gated *at = g->t->user;
    for (int i = 0; atomic_load(&at->n_steps) < n; i++) {
        if (i == 60000) return dl_fail(DILOCO_EREFUSED, "training waits for %s", key);
        usleep(1000);
    }
    return DILOCO_OK;
}

static diloco_status gate_create(void *self, const char *key, const dl_span *spans, size_t n_spans,
                                 bool *captured, dl_time until)
{
    const gate *g = self;
    const dl_config *config = &g->t->run->config;
    dl_generation generation;
    uint64_t entry;
    if (dl_key_parse_contribution(&entry, &generation, key)) {
        dl_schedule s;
        DL_TRY(dl_schedule_of(&s, config, g->t->fragments));
        const uint64_t n = (uint64_t)config->rounds * s.n_fragments;
        const uint64_t end = dl_schedule_end(&s, n), adopt = dl_schedule_adopt(&s, entry);
        DL_TRY(wait_for_steps(g, key, adopt < end ? adopt : end));
    }
    return dl_store_create(g->inner, key, spans, n_spans, captured, until);
}

static diloco_status gate_put(void *self, const char *key, const void *data, size_t len,
                              dl_time until)
{
    return dl_store_put(((gate *)self)->inner, key, data, len, until);
}
static diloco_status gate_read(void *self, const char *key, dl_sink sink, dl_time until)
{
    return dl_store_read(((gate *)self)->inner, key, sink, until);
}
static diloco_status gate_list(void *self, const char *prefix, const char *after, dl_found_fn found,
                               void *context, dl_time until)
{
    return dl_store_list(((gate *)self)->inner, prefix, after, found, context, until);
}
static diloco_status gate_remove(void *self, const char *key, dl_time until)
{
    return dl_store_delete(((gate *)self)->inner, key, until);
}
static void gate_close(void *self)
{
    dl_store_close(((gate *)self)->inner);
}

static const dl_store_kind gate_kind = {.scheme = "gate",
                                        .size = sizeof(gate),
                                        .close = gate_close,
                                        .create = gate_create,
                                        .put = gate_put,
                                        .read = gate_read,
                                        .list = gate_list,
                                        .remove = gate_remove};

/* Opens the exchange's handle with the gate. */
static diloco_status put_a_gate(toy *t, diloco_run *run)
{
    dl_store *inner;
    void *self;
    const atomic_bool *aborted;
    DL_TRY(dl_store_open(&inner, run->config.store, true));
    DL_TRY(dl_store_wrap(&run->store, &gate_kind, run->config.store, &self, &aborted));
    *(gate *)self = (gate){.inner = inner, .t = t};
    return DILOCO_OK;
}

static double step_and_tell(toy *t, const diloco_run_info *now)
{
    gated *at = t->user;
    char line[64];
    const double loss = step_and_trace(t, now);
    const int len = snprintf(line, sizeof line, "{\"event\":\"step\",\"position\":%llu}",
                             (unsigned long long)now->position + 1);
    diloco_run_record(t->run, line, (size_t)len);
    atomic_store(&at->n_steps, now->position + 1);
    return loss;
}

static const char *line_with(const char *record, const char *part)
{
    const char *at = strstr(record, part);
    if (!at) CHECK_FAIL("the record has no %s", part);
    return at;
}

static const char *line_of_entry(const char *record, const char *event, int entry)
{
    char part[96];
    snprintf(part, sizeof part, "\"%s\",\"replica\":\"r0\",\"entry\":%d,", event, entry);
    return line_with(record, part);
}

static const char *line_of_step(const char *record, int position)
{
    char part[96];
    snprintf(part, sizeof part, "{\"event\":\"step\",\"position\":%d}", position);
    return line_with(record, part);
}

static void line_says(const char *line, const char *key, int a, int b)
{
    char part[96];
    snprintf(part, sizeof part, "%s%d,\"position\":%d,", key, a, b);
    const char *at = strstr(line, part);
    if (!at || at > strchr(line, '\n')) CHECK_FAIL("%s is not in %.200s", part, line);
}

/* The capture is at step t. After tau steps the bytes have arrived, the outer step is computed, and
 * theta is adopted at t + tau. */
static void check_order(const char *record, int entry, int t, int tau)
{
    const char *put = line_of_entry(record, "contribution", entry);
    const char *commit = line_of_entry(record, "commit", entry);
    const char *adopt = line_of_entry(record, "adopt", entry);
    for (int k = 1; k <= tau; k++)
        CHECK(line_of_step(record, t + k) < put);
    CHECK(put < commit && commit < adopt);
    CHECK(adopt < line_of_step(record, t + tau + 1));
    line_says(put, "\"step\":", t, t); /* nothing was skipped */
    line_says(adopt, "\"taken_at\":", t, t + tau);
}

TEST(training_continues_while_bytes_move_and_the_record_shows_it)
{
    static gated at[CREW];
    static trace traces[CREW];
    const shape s = {"offset", "2", "0.5", "3", 2, NEVER, {0}};
    toy all[CREW];
    crew_of(all, traces, &s, fresh_store(), "none");
    for (int m = 0; m < CREW; m++) {
        all[m].prepare = put_a_gate;
        all[m].step = step_and_tell;
        all[m].user = &at[m];
        toy_keep_record(&all[m]);
    }
    toy_live_all(all, CREW);
    for (int m = 0; m < CREW; m++)
        traces[m] = at[m].trace;
    check_against_reference(all, traces, &s);
    for (int e = 0; e < 5; e++) /* the last one is adopted at the end of the run */
        check_order(all[0].record, e, 6 + 3 * e, 2);
    for (int m = 0; m < CREW; m++)
        free(all[m].record);
}

/* ---- traffic ------------------------------------------------------------------------------ */

static diloco_status check_size(void *context, const char *key, size_t len)
{
    dl_generation generation;
    uint64_t entry;
    int *n = context;
    if (!dl_key_parse_contribution(&entry, &generation, key)) return DILOCO_EINVAL;
    const int f = (int)entry % 4;
    CHECK_INT(DL_CONTRIBUTION_HEADER + 4 * (toy_begin(f + 1, 4) - toy_begin(f, 4)), len);
    ++*n;
    return DILOCO_OK;
}

TEST(each_exchange_moves_one_fragment_and_no_more)
{
    static trace traces[CREW];
    const shape s = {"offset", "0", "0", "2", 4, NEVER, {0}};
    toy all[CREW];
    dl_store *store;
    int n = 0;
    const char *url = fresh_store();
    crew_of(all, traces, &s, url, "none");
    toy_live_all(all, CREW);
    check_against_reference(all, traces, &s);
    CHECK_OK(dl_store_open(&store, url, false));
    CHECK_OK(dl_store_list(store, "c/", NULL, check_size, &n, DL_NEVER));
    CHECK_INT(CREW * 8, n);
    dl_store_close(store);
}

TEST_MAIN(the_offset_schedule_follows_the_paper_to_the_bit,
          several_contributions_in_flight_follow_the_reference,
          alg_19_each_replica_adopts_at_its_own_delay_a_capture_of_one_step,
          the_torchft_schedule_follows_its_rule_to_the_bit_first_firing_included,
          one_fragment_without_overlap_is_vanilla_to_the_bit,
          error_feedback_changes_nothing_where_the_codec_is_exact,
          an_aborted_entry_moves_no_replica_and_its_fragment_is_exchanged_again,
          replicas_stopped_at_any_step_and_resumed_train_the_same_bits,
          a_replica_that_saves_before_each_step_trains_the_same_bits,
          training_continues_while_bytes_move_and_the_record_shows_it,
          each_exchange_moves_one_fragment_and_no_more)
