/* variants_test.c - whole runs of DiLoCo's variants compared with their papers. They test which
 * replica waits for which, the model that a round begins from, and the number of members with which
 * an entry closes. */
#include "protocol/async/async.h"
#include "protocol/proposal.h"
#include "toy_run.h"

#include <stdatomic.h>

/* ---- vanilla (2311.08105) ------------------------------------------------------------------ */

enum { VANILLA_H = 3, VANILLA_ENTRIES = 4 };

/* w at the beginning of each interval. */
typedef struct beginnings {
    float w[VANILLA_ENTRIES][TOY_N];
    int n_steps;
} beginnings;

static double step_and_look(toy *t, const diloco_run_info *now)
{
    beginnings *b = t->user;
    if (b->n_steps % VANILLA_H == 0) memcpy(b->w[b->n_steps / VANILLA_H], t->w, sizeof t->w);
    b->n_steps++;
    return toy_step(t, now);
}

TEST(alg_2_after_every_entry_all_replicas_have_the_global_parameters)
{
    toy all[3];
    static beginnings b[3];
    toy_crew(all, 3, "mem://vanilla", "none");
    for (int m = 0; m < 3; m++)
        all[m].step = step_and_look, all[m].user = &b[m];
    toy_live_all(all, 3);
    for (int m = 0; m < 3; m++) {
        TOY_OK(all[m]);
        CHECK_INT(VANILLA_H * VANILLA_ENTRIES, b[m].n_steps);
        CHECK_BYTES(b[0].w, b[m].w, sizeof b[0].w);
        CHECK_BYTES(all[0].theta, all[m].theta, sizeof all[0].theta);
        CHECK_BYTES(all[m].theta, all[m].w, sizeof all[m].w);
    }
    CHECK(memcmp(b[0].w[1], b[0].w[2], sizeof b[0].w[1]) != 0);
}

/* ---- eager (2502.12996) ------------------------------------------------------------------ */

enum { ROUNDS = 6 };

/* Round t moves every element of replica m by -(m + 1) (t + 1)^2, so fresh movements differ from
 * those one round old. */
typedef struct faller {
    int m, t;
    double began[ROUNDS]; /* where each round began */
} faller;

/* Tensors without elements change no bit of the others, whatever the codec. */
TEST(tensors_without_elements_are_taken_and_change_nothing)
{
    static const char *const codecs[] = {"f32", "bf16", "int8", "int4", "sign", "topk", "prune"};
    static const char *const combiners[] = {"rda", "mean", "clipped_mean", "mean"};
    diloco_verify_report report;
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        toy all[2][2];
        for (int empty = 0; empty < 2; empty++) {
            char url[64];
            snprintf(url, sizeof url, "mem://%s%d", codecs[c], empty);
            toy_keep(url);
            toy_crew(all[empty], 2, url, "none");
            toy_set_all(all[empty], 2, "server.diloco.codec", codecs[c]);
            toy_set_all(all[empty], 2, "server.diloco.combiner", combiners[c % 4]);
            for (int r = 0; r < 2; r++)
                all[empty][r].has_empty = empty;
            toy_live_all(all[empty], 2);
            TOY_OK(all[empty][0]);
            TOY_OK(all[empty][1]);
            CHECK_OK(diloco_verify(&report, url, 1, NULL, NULL));
        }
        CHECK_BYTES(all[0][0].w, all[1][0].w, sizeof all[0][0].w);
    }
}

static double pull_of(int m, int t)
{
    return (m + 1) * (t + 1) * (t + 1);
}

static double fall(toy *t, const diloco_run_info *now)
{
    faller *f = t->user;
    (void)now;
    f->began[f->t] = (double)t->w[0];
    for (int i = 0; i < TOY_N; i++)
        t->w[i] -= (float)pull_of(f->m, f->t);
    f->t++;
    return 0;
}

/* Computes the paper's form: a replica keeps its own model and momentum. It steps them with the
 * average of the round before, in which its fresh share replaces its stale one. */
static void follow_paper(double began[ROUNDS], int m, double lr, double mu)
{
    double theta = 0, buf = 0;
    for (int t = 0; t < ROUNDS; t++) {
        const double fresh = pull_of(m, t), stale = t ? pull_of(m, t - 1) : 0;
        const double before = t ? (pull_of(0, t - 1) + pull_of(1, t - 1)) / 2 : 0;
        const double G = before + (fresh - stale) / 2;
        began[t] = theta;
        buf = mu * buf + G;
        theta -= lr * (G + mu * buf);
    }
}

static void check_eager(const char *outer, const char *lr, const char *mu)
{
    toy all[2];
    faller f[2] = {{.m = 0}, {.m = 1}};
    char store[64];
    snprintf(store, sizeof store, "mem://eager.%s", outer);
    toy_crew(all, 2, store, "none");
    toy_set_all(all, 2, "trainer.local_steps_per_round", "1");
    toy_set_all(all, 2, "trainer.rounds", "6");
    toy_set_all(all, 2, "server.diloco.overlap", "eager");
    toy_set_all(all, 2, "server.diloco.outer_optimizer", outer);
    toy_set_all(all, 2, "server.diloco.outer_learning_rate", lr);
    toy_set_all(all, 2, "server.diloco.outer_momentum", mu);
    for (int m = 0; m < 2; m++)
        all[m].step = fall, all[m].user = &f[m];
    toy_live_all(all, 2);
    for (int m = 0; m < 2; m++) {
        double want[ROUNDS];
        TOY_OK(all[m]);
        follow_paper(want, m, atof(lr), strcmp(outer, "sgd") ? atof(mu) : 0);
        for (int t = 0; t < ROUNDS; t++)
            if (fabs(want[t] - f[m].began[t]) > 1e-5 * (1 + fabs(want[t])))
                CHECK_FAIL("%s, r%d: round %d begins at %g, by hand at %g", outer, m, t,
                           f[m].began[t], want[t]);
    }
}

/* lr 1 and no momentum: 0, -.5, -3.5 … for r0, whose own movements are 1, 4, 9; r1's are 2, 8, 18.
 */
TEST(alg_32_eager_replaces_a_replicas_own_stale_share_by_its_fresh_one)
{
    double began[ROUNDS];
    follow_paper(began, 0, 1, 0);
    CHECK_NEAR(-0.5, began[1], 1e-12);
    CHECK_NEAR(-0.5 - (1.5 + 1.5), began[2], 1e-12);
    check_eager("sgd", "1", "0");
    check_eager("nesterov", "0.7", "0.9");
}

/* ---- async (2401.09135) ------------------------------------------------------------------ */

TEST(alg_33_a_slower_replica_takes_steps_in_proportion_to_its_speed)
{
    CHECK_INT(50, dl_async_interval(50, 4, 4));
    CHECK_INT(25, dl_async_interval(50, 2, 4));
    CHECK_INT(16, dl_async_interval(50, 1, 3)); /* floor(50 / 3) */
    CHECK_INT(1, dl_async_interval(50, 1, 1000));
    CHECK_INT(50, dl_async_interval(50, 0, 4)); /* not measured yet */
}

/* ---- which replica waits for which ------------------------------------------------------ */

/* One replica is three times as slow as another, without a clock: its k-th step begins once the
 * other has taken 3 k, unless that one has to wait for it. */
typedef struct race {
    _Atomic int steps[2];
    _Atomic bool over;     /* the fast one's run has ended */
    const char *staleness; /* NULL: any; else the exchange has a thread of its own, too */
    int most_ahead;        /* entries that the fast one began before the slow one had ended them */
} race;

static double step_fast(toy *t, const diloco_run_info *now)
{
    race *r = t->user;
    const int ahead = r->steps[0] - r->steps[1];
    if (ahead > r->most_ahead) r->most_ahead = ahead;
    r->steps[0]++;
    return toy_step(t, now);
}

static double step_slowly(toy *t, const diloco_run_info *now)
{
    race *r = t->user;
    while (!r->over && r->steps[0] < 3 * (r->steps[1] + 1))
        usleep(100);
    r->steps[1]++;
    return toy_step(t, now);
}

static double step_second(toy *t, const diloco_run_info *now)
{
    race *r = t->user;
    while (r->steps[0] <= r->steps[1]) /* the other one is always first */
        usleep(100);
    const double loss = toy_step(t, now);
    r->steps[1]++;
    return loss;
}

static void *live_fast(void *t)
{
    toy *fast = t;
    race *r = fast->user;
    toy_live(fast);
    r->over = true;
    return NULL;
}

static diloco_status split(toy *t, diloco_run *run)
{
    (void)t;
    return diloco_run_split(run);
}

static void run_race(race *r, const char *store, const char *schedule,
                     double (*slow)(toy *, const diloco_run_info *))
{
    toy all[2];
    toy_keep(store);
    toy_crew(all, 2, store, "none");
    toy_set_all(all, 2, "trainer.local_steps_per_round", "1");
    toy_set_all(all, 2, "trainer.rounds", "8");
    toy_set_all(all, 2, "server.diloco.schedule", schedule);
    if (r->staleness) toy_set_all(all, 2, "server.diloco.max_staleness", r->staleness);
    if (r->staleness) all[0].prepare = all[1].prepare = split;
    all[0].step = step_fast, all[1].step = slow;
    all[0].user = all[1].user = r;
    CHECK_INT(0, pthread_create(&all[0].thread, NULL, live_fast, &all[0]));
    CHECK_INT(0, pthread_create(&all[1].thread, NULL, toy_thread, &all[1]));
    for (int i = 0; i < 2; i++)
        pthread_join(all[i].thread, NULL);
    for (int i = 0; i < 2; i++)
        TOY_OK(all[i]);
}

typedef struct members {
    size_t entries, of[3], most;
} members;

static diloco_status count(void *user, const diloco_log_entry *e)
{
    members *m = user;
    if (!e->commit) return DILOCO_OK;
    m->entries++;
    if (e->n_members > m->most) m->most = e->n_members;
    for (size_t i = 0; i < e->n_members; i++)
        m->of[e->members[i][1] - '0']++; /* "r0.0000" */
    return DILOCO_OK;
}

TEST(alg_12_synchronous_replicas_wait_for_the_slow_one)
{
    race r = {.most_ahead = 0};
    members m = {.entries = 0};
    run_race(&r, "mem://wait", "offset", step_second);
    CHECK_OK(diloco_log_walk("mem://wait", 0, count, &m));
    CHECK_INT(8, m.entries);
    CHECK_INT(8, m.of[0]);
    CHECK_INT(8, m.of[1]);
    CHECK_INT(0, r.most_ahead); /* no replica begins a round before all have ended theirs */
}

TEST(alg_12_asynchronous_replicas_do_not_wait_for_the_slow_one)
{
    race r = {.most_ahead = 0};
    members m = {.entries = 0};
    run_race(&r, "mem://nowait", "async", step_slowly);
    CHECK_OK(diloco_log_walk("mem://nowait", 0, count, &m));
    CHECK_INT(1, m.most); /* each contribution is an entry */
    CHECK(m.of[0] >= 2 * m.of[1]);
    CHECK(r.most_ahead >= 2);
}

TEST(p20_stale_replica_continues_with_an_exchange_thread)
{
    race r = {.staleness = "1"};
    members m = {.entries = 0};
    run_race(&r, "mem://stale", "async", step_slowly);
    CHECK_OK(diloco_log_walk("mem://stale", 0, count, &m));
    CHECK_INT(16, m.entries);
}

/* The only replica of several that joined an asynchronous run. */
static toy alone(const char *url, const char *replicas, const char *rounds)
{
    toy t = toy_of("r0", url);
    toy_keep(url);
    toy_set(&t, "run.replicas", replicas);
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "trainer.local_steps_per_round", "1");
    toy_set(&t, "trainer.rounds", rounds);
    toy_set(&t, "server.diloco.schedule", "async");
    return t;
}

TEST(p20_asynchronous_run_does_not_need_absent_replicas)
{
    toy t = alone("mem://alone", "2", "100");
    members m = {.entries = 0};
    toy_live(&t);
    TOY_OK(t);
    CHECK_OK(diloco_log_walk("mem://alone", 0, count, &m));
    CHECK_INT(200, m.entries);
}

/* It has as many entries as replicas times rounds. The last one has the end of the cosine, and none
 * before it. */
TEST(p20_an_asynchronous_runs_outer_learning_rate_falls_over_all_of_its_entries)
{
    toy t = alone("mem://falls", "4", "5");
    dl_store *store;
    dl_buf text;
    toy_set(&t, "server.diloco.outer_lr_schedule", "cosine");
    toy_set(&t, "server.diloco.outer_learning_rate", "0.5");
    toy_live(&t);
    TOY_OK(t);
    CHECK_OK(dl_store_open(&store, "mem://falls", false));
    dl_buf_init(&text, 1 << 20);
    CHECK_OK(dl_store_get(store, &text, "log/0000000007.json", DL_NEVER)); /* holds entry 8's */
    CHECK_OK(dl_buf_add(&text, "", 1));
    CHECK_CONTAINS("\"next_lr\":\"3e8ccccd\"", (const char *)text.data); /* .5 (.1 + .9 / 2) */
    dl_buf_deinit(&text);
    dl_store_close(store);
}

/* ---- replicas come and go -------------------------------------------------------------------- */

enum { GUESTS = 3, GUEST_STEPS = 12, LONG = 30 };
static _Atomic int n_left;
static _Atomic bool begun;

static diloco_status count_key(void *context, const char *key, size_t len)
{
    (void)key, (void)len;
    ++*(int *)context;
    return DILOCO_OK;
}

/* The next entry waits for a guest that has announced itself to entry 1. */
static void await_announcements(void)
{
    dl_store *store;
    CHECK_OK(dl_store_open(&store, "mem://guests", false));
    for (int n = 0; n < GUESTS; usleep(100)) {
        n = 0;
        CHECK_OK(dl_store_list(store, "c/0000000001/", NULL, count_key, &n, DL_NEVER));
    }
    dl_store_close(store);
}

/* Commits entry 0 alone, waits for the guests before entry 1, and for their end before the last ten
 * entries. */
static double step_as_host(toy *t, const diloco_run_info *now)
{
    if (now->entry == 1 && !begun) {
        begun = true;
        await_announcements();
    }
    while (now->entry >= LONG - 10 && n_left < GUESTS)
        usleep(100);
    return toy_step(t, now);
}

static void *visit(void *context)
{
    toy *t = context;
    t->status = toy_open(t);
    if (!t->status) t->status = diloco_run_join(t->run);
    for (int i = 0; i < GUEST_STEPS && !t->status; i++) {
        const diloco_run_info now = diloco_run_now(t->run);
        t->status = diloco_step(
            t->run, &(diloco_step_report){.loss = toy_step(t, &now), .samples = 1, .tokens = 10});
    }
    if (!t->status) t->status = diloco_run_leave(t->run);
    if (t->status) snprintf(t->text, sizeof t->text, "%s", diloco_error_text());
    toy_close(t);
    n_left++;
    return NULL;
}

typedef struct presence {
    uint64_t steps, entries;
    size_t first, last, most; /* members */
} presence;

static diloco_status see_members(void *user, const diloco_log_entry *e)
{
    presence *p = user;
    if (!e->commit) return DILOCO_OK;
    if (!p->entries++) p->first = e->n_members;
    p->last = e->n_members;
    if (e->n_members > p->most) p->most = e->n_members;
    p->steps += e->steps;
    return DILOCO_OK;
}

TEST(alg_10_a_run_grows_from_1_replica_to_4_and_shrinks_to_1_again)
{
    toy all[1 + GUESTS];
    presence seen = {.entries = 0};
    diloco_verify_report report;
    toy_keep("mem://guests");
    for (int i = 0; i <= GUESTS; i++) {
        char name[8];
        snprintf(name, sizeof name, "r%d", i);
        all[i] = toy_of(name, "mem://guests");
        toy_set(&all[i], "run.state_dir", "none");
        toy_set(&all[i], "run.patience", "60"); /* no guest is dropped for a slow machine */
        toy_set(&all[i], "run.deadline", "0.3");
        toy_set(&all[i], "trainer.local_steps_per_round", "2");
        toy_set(&all[i], "trainer.rounds", "30");
    }
    all[0].step = step_as_host;
    CHECK_INT(0, pthread_create(&all[0].thread, NULL, toy_thread, &all[0]));
    while (!begun) /* it creates the run, and its first entry */
        usleep(1000);
    for (int i = 1; i <= GUESTS; i++)
        CHECK_INT(0, pthread_create(&all[i].thread, NULL, visit, &all[i]));
    for (int i = 0; i <= GUESTS; i++)
        pthread_join(all[i].thread, NULL);
    for (int i = 0; i <= GUESTS; i++)
        TOY_OK(all[i]);
    CHECK_OK(diloco_log_walk("mem://guests", 0, see_members, &seen));
    CHECK_OK(diloco_verify(&report, "mem://guests", 1, NULL, NULL));
    CHECK(report.complete); /* a replay gives the theta that the log names */
    CHECK_INT(0, report.voids);
    CHECK_INT(1, seen.first);
    CHECK_INT(1, seen.last);
    CHECK(seen.most > 1);
    CHECK(seen.steps > 2 * seen.entries); /* the log records the steps of all replicas */
    CHECK_BYTES(all[0].theta, all[0].w, sizeof all[0].w);
}

/* ---- contributions that are dropped --------------------------------------------------------- */

TEST(alg_11_drops_are_drawn_by_seed_entry_and_replica)
{
    enum { N = 4000 };
    static dl_config config;
    int n[3] = {0};
    dl_config_init(&config);
    CHECK(!dl_draft_drops(&config, 0, "r0"));
    config.drop = 0.5;
    for (uint64_t e = 0; e < N; e++) {
        const bool r0 = dl_draft_drops(&config, e, "r0"), r1 = dl_draft_drops(&config, e, "r1");
        n[0] += r0;
        n[1] += r1;
        n[2] += r0 && r1;
    }
    for (int i = 0; i < 3; i++) /* six standard deviations */
        CHECK_NEAR(i < 2 ? N / 2 : N / 4, n[i], 190);
}

/* ---- decoupled (2604.21428): entries close with a quorum ----------------------------------- */

static _Atomic int quorum_entries;

static void hear_commits(toy *t, diloco_run *run, const char *line)
{
    (void)t, (void)run;
    if (strstr(line, "\"event\":\"commit\"")) quorum_entries++;
}

/* Takes its first step after others have closed four entries without it. */
static double step_late(toy *t, const diloco_run_info *now)
{
    while (quorum_entries < 4)
        usleep(100);
    return toy_step(t, now);
}

TEST(alg_34_with_a_quorum_of_2_of_3_entries_commit_with_2_contributions)
{
    toy all[3];
    members m = {.entries = 0};
    toy_keep("mem://quorum");
    toy_crew(all, 3, "mem://quorum", "none");
    toy_set_all(all, 3, "trainer.rounds", "8");
    toy_set_all(all, 3, "trainer.local_steps_per_round", "6");
    toy_set_all(all, 3, "server.diloco.overlap_steps", "2");
    toy_set_all(all, 3, "run.close_at", "2");
    toy_set_all(all, 3, "run.min_replicas", "2");
    toy_set_all(all, 3, "run.start_timeout", "0.1");
    all[0].heard = hear_commits;
    all[2].step = step_late;
    toy_live_all(all, 3);
    for (int i = 0; i < 3; i++)
        TOY_OK(all[i]);
    CHECK_OK(diloco_log_walk("mem://quorum", 0, count, &m));
    CHECK_INT(8, m.entries);
    CHECK(m.of[0] + m.of[1] >= 8 && m.of[2] <= 4);
    CHECK(!memcmp(all[0].theta, all[1].theta, sizeof all[0].theta));
    CHECK(!memcmp(all[0].theta, all[2].theta, sizeof all[0].theta));
}

TEST_MAIN(tensors_without_elements_are_taken_and_change_nothing,
          alg_2_after_every_entry_all_replicas_have_the_global_parameters,
          alg_10_a_run_grows_from_1_replica_to_4_and_shrinks_to_1_again,
          alg_32_eager_replaces_a_replicas_own_stale_share_by_its_fresh_one,
          alg_33_a_slower_replica_takes_steps_in_proportion_to_its_speed,
          alg_12_synchronous_replicas_wait_for_the_slow_one,
          alg_12_asynchronous_replicas_do_not_wait_for_the_slow_one,
          p20_stale_replica_continues_with_an_exchange_thread,
          p20_asynchronous_run_does_not_need_absent_replicas,
          p20_an_asynchronous_runs_outer_learning_rate_falls_over_all_of_its_entries,
          alg_11_drops_are_drawn_by_seed_entry_and_replica,
          alg_34_with_a_quorum_of_2_of_3_entries_commit_with_2_contributions)
