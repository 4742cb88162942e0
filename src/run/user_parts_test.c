/* user_parts_test.c - the caller's own parts in whole runs. A part that computes the same as one of
 * the library's gives the same bits, and it is called when it should be. A replica without the part
 * is refused by name, and so is an invalid part. */
#include "toy_run.h"
#include "toy_store.h"

#include <stdatomic.h>

enum { CREW = 3, ROUNDS = 4 };

/* ---- parts that do what the library's do ------------------------------------------------- */

typedef struct calls {
    atomic_int n;
    uint64_t commits[64]; /* as reported to each call, of fragment 0 */
    diloco_status say;    /* 0: the step is taken */
    int fail_at;          /* the call that returns it; 0: every call */
} calls;

static diloco_status nesterov(void *user, const diloco_user_step *s)
{
    calls *c = user;
    const int n = atomic_fetch_add(&c->n, 1);
    if (n < 64) c->commits[n] = s->commits;
    if (c->say && (c->fail_at == 0 || c->fail_at == n + 1)) return c->say;
    float *v = s->vectors[0];
    for (size_t i = 0; i < s->n; i++) {
        v[i] = fmaf(s->momentum, v[i], s->g[i]);
        s->theta[i] = fmaf(-s->learning_rate, fmaf(s->momentum, v[i], s->g[i]), s->theta[i]);
    }
    return DILOCO_OK;
}

static diloco_user_outer my_nesterov(calls *c)
{
    return (diloco_user_outer){.size = sizeof(diloco_user_outer),
                               .name = "my-nesterov",
                               .user = c,
                               .n_vectors = 1,
                               .vector_names = {"momentum"},
                               .step = nesterov};
}

static void weighted(void *user, double *c, const diloco_user_members *m)
{
    (void)user;
    for (size_t i = 0; i < m->n; i++)
        c[i] = (double)m->weights[i];
}

static void middle_of_three(void *user, float *G, const float *const *x, size_t n_members, size_t n)
{
    (void)user;
    for (size_t i = 0; i < n; i++) {
        float a = x[0][i], b = x[1][i], c = x[n_members - 1][i];
        G[i] = fmaxf(fminf(a, b), fminf(fmaxf(a, b), c));
    }
}

/* Krum's choice of one among three with f = 0: the member whose nearest other member is nearest. */
static void nearest(void *user, double *c, const diloco_user_members *m)
{
    (void)user;
    size_t best = 0;
    double least = (double)INFINITY;
    for (size_t i = 0; i < m->n; i++) {
        double near = (double)INFINITY;
        for (size_t j = 0; j < m->n; j++)
            if (j != i)
                near = fmin(near, m->dots[i * m->n + i] + m->dots[j * m->n + j] -
                                      2 * m->dots[i * m->n + j]);
        c[i] = 0;
        if (near < least) least = near, best = i;
    }
    c[best] = 1;
}

static size_t bound4(void *user, size_t n)
{
    (void)user;
    return 4 * n;
}

static size_t encode4(void *user, unsigned char *out, const float *g, size_t n)
{
    (void)user;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 4; k++) { /* bytes in another order */
            uint32_t bits;
            memcpy(&bits, &g[i], 4);
            out[k * n + i] = (unsigned char)(bits >> 8 * k);
        }
    return 4 * n;
}

static bool check4(void *user, const unsigned char *payload, size_t len, size_t n)
{
    (void)user, (void)payload;
    return len == 4 * n;
}

static void decode4(void *user, float *out, const unsigned char *payload, size_t len, size_t n,
                    size_t first, size_t count)
{
    (void)user, (void)len;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++)
            bits |= (uint32_t)payload[k * n + first + i] << 8 * k;
        memcpy(&out[i], &bits, 4);
    }
}

static diloco_user_codec planes(void)
{
    return (diloco_user_codec){.size = sizeof(diloco_user_codec),
                               .name = "planes",
                               .bound = bound4,
                               .encode = encode4,
                               .check = check4,
                               .decode = decode4};
}

/* ---- runs --------------------------------------------------------------------------------- */

static void crew_of(toy *all, const char *store)
{
    toy_keep(store);
    toy_crew(all, CREW, store, "none");
    toy_set_all(all, CREW, "run.min_replicas", "3");
}

static void live(toy *all)
{
    toy_live_all(all, CREW);
    for (int i = 0; i < CREW; i++)
        TOY_OK(all[i]);
    for (int i = 1; i < CREW; i++)
        CHECK(!memcmp(all[0].theta, all[i].theta, sizeof all[0].theta));
}

static void give(toy *all, const diloco_user_parts *parts)
{
    for (int i = 0; i < CREW; i++)
        all[i].parts = *parts;
}

/* Compares theta after a run with the library's option with theta after a run with the parts.
 * `both`: an option of both, or NULL. */
static void check_same_with(const char *const both[2], const char *option, const char *value,
                            const diloco_user_parts *parts, const char *exchange)
{
    static int n;
    char store[64];
    toy ours[CREW], theirs[CREW];
    snprintf(store, sizeof store, "mem://same-ours-%d", ++n);
    crew_of(ours, store);
    if (option) toy_set_all(ours, CREW, option, value);
    if (both) toy_set_all(ours, CREW, both[0], both[1]);
    toy_set_all(ours, CREW, "server.diloco.exchange", exchange);
    live(ours);

    char other[64];
    snprintf(other, sizeof other, "mem://same-theirs-%d", n);
    crew_of(theirs, other);
    if (both) toy_set_all(theirs, CREW, both[0], both[1]);
    toy_set_all(theirs, CREW, "server.diloco.exchange", exchange);
    give(theirs, parts);
    live(theirs);
    CHECK(!memcmp(ours[0].theta, theirs[0].theta, sizeof ours[0].theta));
    CHECK(ours[0].theta[0] != 0);
}

static void check_same(const char *option, const char *value, const diloco_user_parts *parts,
                       const char *exchange)
{
    check_same_with(NULL, option, value, parts, exchange);
}

TEST(a_caller_s_outer_optimizer_that_is_nesterov_gives_the_bits_of_nesterov)
{
    calls c = {.n = 0};
    const diloco_user_outer outer = my_nesterov(&c);
    const diloco_user_parts parts = {.outer = &outer};
    check_same(NULL, NULL, &parts, "allgather");
    check_same(NULL, NULL, &parts, "leader");
    check_same(NULL, NULL, &parts, "sharded");
    check_same_with((const char *[]){"server.diloco.overlap_steps", "2"}, NULL, NULL, &parts,
                    "allgather"); /* called by the exchange's thread */
    CHECK_INT(0, c.commits[0]);
}

TEST(a_caller_s_combiner_that_is_one_of_ours_gives_its_bits)
{
    diloco_user_combiner mean = {.size = sizeof mean, .name = "m", .coefficients = weighted};
    check_same("server.diloco.combiner", "mean", &(diloco_user_parts){.combiner = &mean},
               "allgather");
    check_same("server.diloco.combiner", "mean", &(diloco_user_parts){.combiner = &mean},
               "sharded");
    diloco_user_combiner median = {
        .size = sizeof median, .name = "middle", .needed = 3, .elements = middle_of_three};
    check_same("server.diloco.combiner", "median", &(diloco_user_parts){.combiner = &median},
               "allgather");
    check_same("server.diloco.combiner", "median", &(diloco_user_parts){.combiner = &median},
               "sharded");
}

TEST(a_caller_s_codec_that_loses_nothing_gives_the_bits_of_f32)
{
    const diloco_user_codec codec = planes();
    check_same(NULL, NULL, &(diloco_user_parts){.codec = &codec}, "allgather");
}

/* bfloat16, to nearest even; the part that it leaves out is sent the next time. */
static size_t bound2(void *user, size_t n)
{
    (void)user;
    return 2 * n;
}

static size_t encode2(void *user, unsigned char *out, const float *g, size_t n)
{
    (void)user;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &g[i], 4);
        bits += 0x7fff + (bits >> 16 & 1);
        out[2 * i] = (unsigned char)(bits >> 16);
        out[2 * i + 1] = (unsigned char)(bits >> 24);
    }
    return 2 * n;
}

static bool check2(void *user, const unsigned char *payload, size_t len, size_t n)
{
    (void)user, (void)payload;
    return len == 2 * n;
}

static void decode2(void *user, float *out, const unsigned char *payload, size_t len, size_t n,
                    size_t first, size_t count)
{
    (void)user, (void)len, (void)n;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *p = payload + 2 * (first + i);
        const uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
        memcpy(&out[i], &bits, 4);
    }
}

TEST(a_caller_s_codec_that_loses_something_has_error_feedback_as_ours)
{
    const diloco_user_codec codec = {.size = sizeof codec,
                                     .name = "halves",
                                     .lossy = true,
                                     .bound = bound2,
                                     .encode = encode2,
                                     .check = check2,
                                     .decode = decode2};
    check_same_with((const char *[]){"server.diloco.error_feedback", "0.9"}, "server.diloco.codec",
                    "bf16", &(diloco_user_parts){.codec = &codec}, "allgather");
}

/* All three at once, with dot products, compressed. */
TEST(a_caller_s_parts_go_together_and_the_log_is_verified_where_they_are)
{
    calls c = {.n = 0};
    toy all[CREW];
    const diloco_user_outer outer = my_nesterov(&c);
    const diloco_user_codec codec = planes();
    const diloco_user_combiner krum = {.size = sizeof krum,
                                       .name = "nearest",
                                       .measures = true,
                                       .needed = 2,
                                       .coefficients = nearest};
    crew_of(all, "mem://together");
    give(all, &(diloco_user_parts){.outer = &outer, .combiner = &krum, .codec = &codec});
    toy_set_all(all, CREW, "server.diloco.compression", "zstd");
    live(all);

    diloco_verify_report report;
    CHECK_OK(toy_open(&all[0]));
    CHECK_OK(diloco_run_verify(all[0].run, &report, 1));
    CHECK_INT(ROUNDS, (int)report.replayed);
    CHECK_INT(0, (int)report.voids);
    CHECK(report.complete);
    diloco_run_close(all[0].run);
}

/* ---- more than one vector of parameters ----------------------------------------------------- */

enum { BUFFER = 5000 }; /* more than a block */

typedef struct extras {
    float mean[BUFFER];
    int64_t counts[3];
    bool flags[2];
} extras;

static diloco_status register_extras(toy *t, diloco_run *run)
{
    extras *e = t->user;
    const diloco_tensor all[] = {
        {"mean", e->mean, DILOCO_F32, DILOCO_BUFFER, 1, {BUFFER}, 0},
        {"counts", e->counts, DILOCO_I64, DILOCO_BUFFER, 1, {3}, 0},
        {"flags", e->flags, DILOCO_BOOL, DILOCO_BUFFER, 1, {2}, 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        DL_TRY(diloco_run_tensor(run, &all[i]));
    return DILOCO_OK;
}

static double step_all(toy *t, const diloco_run_info *now)
{
    extras *e = t->user;
    for (size_t i = 0; i < BUFFER; i++)
        e->mean[i] += (float)(i % 7) * (1 + (float)now->shard);
    e->counts[now->step % 3] += 1 + now->shard;
    e->flags[now->step % 2] = now->shard == 1;
    return toy_step(t, now);
}

static void live_with_extras(toy *all, extras *rest, const char *store,
                             const diloco_user_parts *parts)
{
    crew_of(all, store);
    toy_set_all(all, CREW, "server.diloco.combiner", "centered_clip"); /* keeps the last update */
    toy_set_all(all, CREW, "run.threads", "2");
    give(all, parts);
    memset(rest, 0, CREW * sizeof *rest);
    for (int i = 0; i < CREW; i++) {
        all[i].user = &rest[i];
        all[i].prepare = register_extras;
        all[i].step = step_all;
    }
    live(all);
}

TEST(tensor_that_the_callers_optimizer_does_not_move_takes_the_mean)
{
    static extras ours[CREW], theirs[CREW];
    toy a[CREW], b[CREW];
    calls c = {.n = 0};
    const diloco_user_outer outer = my_nesterov(&c);
    live_with_extras(a, ours, "mem://extras-ours", &(diloco_user_parts){.outer = NULL});
    live_with_extras(b, theirs, "mem://extras-theirs", &(diloco_user_parts){.outer = &outer});
    CHECK(atomic_load(&c.n) >= ROUNDS);
    CHECK(ours[0].mean[1] != 0 && ours[0].counts[0] != 0);
    for (int i = 0; i < CREW; i++) {
        CHECK(!memcmp(a[i].w, b[i].w, sizeof a[i].w));
        CHECK(!memcmp(&ours[i], &theirs[i], sizeof ours[i]));
    }
}

/* ---- a store of its own -------------------------------------------------------------------- */

TEST(run_in_a_callers_store_is_readable_while_the_store_is_known)
{
    const diloco_user_store s = user_store();
    diloco_verify_report report;
    dl_store *kept;
    toy plain[CREW], all[CREW];
    crew_of(plain, "mem://as-ever");
    live(plain);

    CHECK_OK(dl_store_open(&kept, "mem://user.a", true)); /* which lasts as long as this */
    toy_crew(all, CREW, "user://mine/a", "none");
    toy_set_all(all, CREW, "run.min_replicas", "3");
    give(all, &(diloco_user_parts){.store = &s});
    live(all);
    CHECK(!memcmp(plain[0].theta, all[0].theta, sizeof plain[0].theta));

    CHECK_STATUS(DILOCO_EREFUSED, diloco_verify(&report, "user://mine/a", 1, NULL, NULL));
    CHECK_CONTAINS("user://mine/a is a store that a program supplies", diloco_error_text());
    CHECK_OK(toy_open(&all[0]));
    CHECK_OK(diloco_verify(&report, "user://mine/a", 1, NULL, NULL));
    CHECK(report.complete);
    diloco_run_close(all[0].run);
    CHECK_INT(0, atomic_load(&user_store_handles));
    dl_store_close(kept);
}

static diloco_status create_sometimes(void *user, void *handle, const char *key,
                                      const diloco_user_bytes *bytes, size_t n, bool *taken,
                                      double timeout_s)
{
    static atomic_int n_calls;
    if (!strncmp(key, "log/", 4) && atomic_fetch_add(&n_calls, 1) % 2 == 0)
        return DILOCO_EUNREACHABLE;
    return user_store_create(user, handle, key, bytes, n, taken, timeout_s);
}

TEST(a_caller_s_store_that_cannot_be_reached_is_asked_again)
{
    diloco_user_store s = user_store();
    toy t = toy_of("r0", "user://mine/flaky");
    s.create = create_sometimes;
    toy_set(&t, "run.state_dir", "none");
    t.parts.store = &s;
    toy_live(&t);
    TOY_OK(t);
    CHECK_INT(ROUNDS, (int)t.end.entry);
}

TEST(a_caller_s_store_is_where_the_run_is_unless_run_store_names_a_place_in_it)
{
    const diloco_user_store s = user_store();
    diloco_config *config = diloco_config_create();
    diloco_run *run;
    CHECK_OK(diloco_run_open_with(&run, config, "r0", &(diloco_user_parts){.store = &s}));
    diloco_run_close(run);
    CHECK_OK(diloco_config_set(config, "run.store", "user://minebut/a", NULL));
    CHECK_STATUS(DILOCO_EINVAL,
                 diloco_run_open_with(&run, config, "r0", &(diloco_user_parts){.store = &s}));
    CHECK_CONTAINS("which is user://mine or a place in it", diloco_error_text());
    diloco_config_destroy(config);
}

TEST(no_parts_at_all_are_refused)
{
    diloco_config *config = diloco_config_create();
    diloco_run *run;
    CHECK_STATUS(DILOCO_EINVAL,
                 diloco_run_open_with_sized(&run, config, "r0", NULL, sizeof(diloco_user_parts)));
    CHECK_CONTAINS("take diloco_run_open", diloco_error_text());
    CHECK(!run);
    diloco_config_destroy(config);
}

/* ---- how often ---------------------------------------------------------------------------- */

/* One replica proposes every entry, so none is proposed in vain. */
TEST(lib_10_a_run_calls_the_caller_s_outer_optimizer_once_per_committed_fragment)
{
    calls c = {.n = 0};
    const diloco_user_outer outer = my_nesterov(&c);
    toy t = toy_of("r0", "mem://once");
    toy_keep("mem://once");
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "server.diloco.fragments", "2");
    t.fragments = 2;
    t.parts.outer = &outer;
    toy_live(&t);
    TOY_OK(t);
    CHECK_INT(2 * ROUNDS, (int)t.end.entry);
    CHECK_INT(2 * ROUNDS, atomic_load(&c.n));
    for (int i = 0; i < 2 * ROUNDS; i++)
        CHECK_INT(i / 2, (int)c.commits[i]);
}

TEST(an_outer_optimizer_that_meets_a_number_gone_wrong_aborts_the_entry)
{
    calls c = {.say = DILOCO_ENUMERIC, .fail_at = 2};
    const diloco_user_outer outer = my_nesterov(&c);
    toy t = toy_of("r0", "mem://gone-wrong");
    toy_keep("mem://gone-wrong");
    toy_keep_record(&t);
    toy_set(&t, "run.state_dir", "none");
    t.parts.outer = &outer;
    toy_live(&t);
    TOY_OK(t);
    CHECK_CONTAINS("\"event\":\"abort\",\"replica\":\"r0\",\"entry\":1", t.record);
    CHECK_CONTAINS("user:my-nesterov failed on fragment 0", t.record);
    CHECK_INT(1, (int)c.commits[2]); /* an abort does not count */
    free(t.record);
}

TEST(any_other_failure_of_an_outer_optimizer_ends_the_step_with_it)
{
    calls c = {.say = DILOCO_EIO};
    const diloco_user_outer outer = my_nesterov(&c);
    toy t = toy_of("r0", scratch_path("failing"));
    toy_set(&t, "run.state_dir", "none");
    t.parts.outer = &outer;
    CHECK_INT(DILOCO_EIO, toy_live(&t));
    CHECK_CONTAINS("outer optimizer user:my-nesterov failed on fragment 0", t.text);

    static const diloco_status none[] = {DILOCO_EUNREACHABLE, (diloco_status)77}; /* of its own */
    for (int i = 0; i < 2; i++) {
        calls once = {.say = none[i], .fail_at = 1};
        const diloco_user_outer fails = my_nesterov(&once);
        toy u = toy_of("r0", i ? "mem://odd" : "mem://no-store");
        toy_set(&u, "run.state_dir", "none");
        u.parts.outer = &fails;
        CHECK_INT(DILOCO_EIO, toy_live(&u));
        CHECK_INT(1, atomic_load(&once.n)); /* it is not retried, as a store would be */
    }
}

/* ---- stop and resume --------------------------------------------------------------------- */

/* LIB-13: stopped, saved and resumed, with the vector in the snapshot and the log. */
TEST(lib_13_a_run_with_a_caller_s_outer_optimizer_resumes_to_the_bit)
{
    calls c = {.n = 0};
    const diloco_user_outer outer = my_nesterov(&c);
    toy whole = toy_of("r0", "mem://unbroken");
    toy_keep("mem://unbroken");
    toy_set(&whole, "run.state_dir", "none");
    whole.parts.outer = &outer;
    toy_live(&whole);
    TOY_OK(whole);

    toy part = toy_of("r0", scratch_path("run"));
    toy_set(&part, "run.state_dir", scratch_path("state"));
    part.parts.outer = &outer;
    part.stop_after = 7; /* in the third interval */
    toy_live(&part);
    TOY_OK(part);
    part.stop_after = 0;
    memset(part.w, 1, sizeof part.w);
    memset(part.moment, 1, sizeof part.moment);
    toy_live(&part);
    TOY_OK(part);
    CHECK(part.end.resumed);
    CHECK(!memcmp(whole.theta, part.theta, sizeof whole.theta));
}

/* ---- refused parts and replicas ------------------------------------------------------------ */

TEST(replica_without_a_part_of_the_run_is_refused_by_name)
{
    calls c = {.n = 0};
    const diloco_user_outer outer = my_nesterov(&c);
    diloco_user_outer other = outer;
    toy first = toy_of("r0", "mem://lacking"), second = toy_of("r1", "mem://lacking");
    diloco_verify_report report;
    diloco_run_status status;
    toy_keep("mem://lacking");
    toy_set(&first, "run.state_dir", "none");
    toy_set(&second, "run.state_dir", "none");
    first.parts.outer = &outer;
    toy_live(&first);
    TOY_OK(first);

    CHECK_INT(DILOCO_EREFUSED, toy_live(&second)); /* has none */
    CHECK_CONTAINS("outer optimizer user:my-nesterov is supplied by a program", second.text);
    other.name = "other";
    second.parts.outer = &other; /* has another one */
    CHECK_INT(DILOCO_EDIFFERS, toy_live(&second));
    CHECK_CONTAINS("server.diloco.outer_optimizer is user:my-nesterov in the run, user:other here",
                   second.text);
    CHECK_STATUS(DILOCO_EREFUSED, diloco_verify(&report, "mem://lacking", 1, NULL, NULL));
    CHECK_CONTAINS("user:my-nesterov", diloco_error_text());
    CHECK_OK(diloco_run_status_read(&status, "mem://lacking", 0)); /* reading needs no part */
    CHECK_INT(ROUNDS, (int)status.commits);
    diloco_run_status_free(&status);
}

TEST(unknown_part_name_is_refused_at_open)
{
    static const char *const rows[][2] = {
        {"server.diloco.outer_optimizer", "outer optimizer user:nobody-s"},
        {"server.diloco.combiner", "combiner user:nobody-s"},
        {"server.diloco.codec", "codec user:nobody-s"}};
    for (size_t i = 0; i < 3; i++) {
        toy t = toy_of("r0", "mem://nobody");
        toy_set(&t, rows[i][0], "user:nobody-s");
        CHECK_INT(DILOCO_EREFUSED, toy_live(&t));
        CHECK_CONTAINS(rows[i][1], t.text);
    }
}

static size_t no_bound(void *user, size_t n)
{
    (void)user, (void)n;
    return SIZE_MAX; /* for example -1 */
}

static void check_open(diloco_status expected, const char *says, const diloco_user_parts *parts,
                       const char *option, const char *value)
{
    toy t = toy_of("r0", "mem://open");
    toy_set(&t, "run.replicas", "3");
    toy_set(&t, "run.min_replicas", "3");
    if (option) toy_set(&t, option, value);
    t.parts = *parts;
    CHECK_INT(expected, toy_live(&t));
    CHECK_CONTAINS(says, t.text);
}

/* Says that it wrote more than bound4 allows. It did not, or the test would have no memory to
 * report from. */
static size_t encode_too_much(void *user, unsigned char *out, const float *g, size_t n)
{
    return encode4(user, out, g, n) + 1;
}

TEST(a_codec_that_writes_beyond_its_bound_ends_the_run_with_its_name)
{
    toy t = toy_of("r0", "mem://beyond");
    diloco_user_codec k = planes();
    k.encode = encode_too_much;
    t.parts.codec = &k;
    toy_set(&t, "run.state_dir", "none");
    CHECK_INT(DILOCO_EINVAL, toy_live(&t));
    CHECK_CONTAINS("codec user:planes wrote ", t.text);
    CHECK_CONTAINS("beyond its bound of ", t.text);
}

TEST(parts_that_cannot_be_are_refused_by_name)
{
    calls c = {.n = 0};
    diloco_user_outer o = my_nesterov(&c);
    const diloco_user_parts outer = {.outer = &o};
    check_open(DILOCO_EINVAL, "server.diloco.outer_optimizer is \"sgd\"", &outer,
               "server.diloco.outer_optimizer", "sgd");
    check_open(DILOCO_EREFUSED, "here it is user:my-nesterov", &outer, "server.diloco.overlap",
               "eager");
    o.n_vectors = 3;
    check_open(DILOCO_EINVAL, "3 vectors", &outer, NULL, NULL);
    o = my_nesterov(&c);
    o.vector_names[0] = "update";
    check_open(DILOCO_EINVAL, "vector update is taken", &outer, NULL, NULL);
    o.step = NULL;
    check_open(DILOCO_EINVAL, "user:my-nesterov has no step", &outer, NULL, NULL);
    o.name = "a b";
    check_open(DILOCO_EINVAL, "outer optimizer of the caller's: \"a b\" is not a valid name",
               &outer, NULL, NULL);
    o.size = sizeof o + 8;
    struct {
        diloco_user_outer o;
        uint64_t more;
    } later = {o, 1};
    check_open(DILOCO_EINVAL, "diloco_user_outer", &(diloco_user_parts){.outer = &later.o}, NULL,
               NULL);

    diloco_user_combiner m = {.size = sizeof m, .name = "m", .coefficients = weighted};
    const diloco_user_parts combiner = {.combiner = &m};
    check_open(DILOCO_EREFUSED, "combiner user:m", &combiner, "server.diloco.schedule", "async");
    m.needed = 4;
    check_open(DILOCO_EREFUSED, "combiner user:m needs 4 members", &combiner, NULL, NULL);
    m.needed = 5000;
    check_open(DILOCO_EINVAL, "user:m needs 5000 members", &combiner, NULL, NULL);
    m.elements = middle_of_three;
    check_open(DILOCO_EINVAL, "one of coefficients and elements", &combiner, NULL, NULL);

    diloco_user_codec k = planes();
    const diloco_user_parts codec = {.codec = &k};
    check_open(DILOCO_EREFUSED, "codec user:planes cannot be cut", &codec, "server.diloco.exchange",
               "sharded");
    k.bound = no_bound;
    check_open(DILOCO_EINVAL, "codec user:planes: bound is", &codec, "run.state_dir", "none");
    k = planes();
    k.sparse = true;
    check_open(DILOCO_EREFUSED, "codec user:planes sends many", &codec, "server.diloco.combiner",
               "median");
    k.decode = NULL;
    check_open(DILOCO_EINVAL, "user:planes needs bound, encode, check and decode", &codec, NULL,
               NULL);
    diloco_user_store s = {.size = sizeof s, .name = "s"};
    check_open(DILOCO_EINVAL, "store s needs open", &(diloco_user_parts){.store = &s}, NULL, NULL);
}

TEST_MAIN(a_caller_s_outer_optimizer_that_is_nesterov_gives_the_bits_of_nesterov,
          a_caller_s_combiner_that_is_one_of_ours_gives_its_bits,
          a_caller_s_codec_that_loses_nothing_gives_the_bits_of_f32,
          a_caller_s_codec_that_loses_something_has_error_feedback_as_ours,
          a_caller_s_parts_go_together_and_the_log_is_verified_where_they_are,
          tensor_that_the_callers_optimizer_does_not_move_takes_the_mean,
          run_in_a_callers_store_is_readable_while_the_store_is_known,
          a_caller_s_store_that_cannot_be_reached_is_asked_again,
          a_caller_s_store_is_where_the_run_is_unless_run_store_names_a_place_in_it,
          lib_10_a_run_calls_the_caller_s_outer_optimizer_once_per_committed_fragment,
          an_outer_optimizer_that_meets_a_number_gone_wrong_aborts_the_entry,
          any_other_failure_of_an_outer_optimizer_ends_the_step_with_it,
          lib_13_a_run_with_a_caller_s_outer_optimizer_resumes_to_the_bit,
          replica_without_a_part_of_the_run_is_refused_by_name, no_parts_at_all_are_refused,
          a_codec_that_writes_beyond_its_bound_ends_the_run_with_its_name,
          unknown_part_name_is_refused_at_open, parts_that_cannot_be_are_refused_by_name)
