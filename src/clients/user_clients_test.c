/* user_clients_test.c - clients of a caller's own: the shared model follows the worked trace of
 * federated_worker_test.c. Each client gets its own private state back. A result that does not fit
 * the run is refused by the client's name. */
#include <diloco/clients.h>

#include "check.h"
#include "log/entry.h"
#include "scratch.h"
#include "trap_device.h"
#include <diloco/inspect.h>

#include <math.h>
#include <string.h>

enum { CLIENTS = 4, ROUNDS = 4 };

typedef struct scene {
    diloco_run *run;
    float w[3];
    uint64_t count;             /* private: how often the client was trained */
    uint64_t seen[CLIENTS + 1]; /* by the log's numbers */
    double shared[ROUNDS];      /* w after each round */
    uint64_t steps, holds;      /* that a client reports */
    size_t stop_after, n_fits, n_rounds;
    diloco_fill_fn fill;         /* of `count`; NULL: an array */
    const diloco_device *device; /* of `count`; NULL: host memory */
    char text[1024];             /* of the error */
} scene;

static const char *new_folder(void)
{
    static int n;
    char name[16];
    snprintf(name, sizeof name, "%d", n++);
    return scratch_path(name);
}

/* Each client moves w by -1, so its movement is 1. */
static diloco_status fit(void *user, const diloco_client_turn *turn, diloco_client_report *r)
{
    scene *s = user;
    CHECK(turn->client >= 1 && turn->client <= CLIENTS);
    CHECK_INT(s->seen[turn->client], s->count); /* its own, whichever clients came between */
    CHECK(turn->fresh == (s->count == 0));
    CHECK_INT(s->count * 2, turn->steps);
    CHECK_INT(s->count * 6, turn->next_sample);
    s->seen[turn->client] = ++s->count;
    for (int i = 0; i < 3; i++)
        s->w[i] -= 1;
    *r = (diloco_client_report){
        .holds = s->holds, .steps = s->steps, .samples = s->steps * 3, .tokens = 1, .loss = 0.5};
    if (++s->n_fits == s->stop_after) diloco_run_interrupt(s->run);
    return DILOCO_OK;
}

static diloco_status see_round(void *user, uint64_t entry)
{
    scene *s = user;
    s->shared[entry] = (double)s->w[0];
    s->w[0] = 1e6F; /* may be changed */
    s->n_rounds++;
    return DILOCO_OK;
}

static diloco_status live(scene *s, const char *dir, const char *const (*more)[2])
{
    char store[512];
    diloco_config *c = diloco_config_create();
    static const char *const settings[][2] = {
        {"clients.total_clients", "4"}, {"clients.per_round", "2"},
        {"trainer.rounds", "4"},        {"trainer.local_steps_per_round", "2"},
        {"run.threads", "1"},           {"run.heartbeat", "0.05"},
        {"run.retain", "all"}};
    CHECK(c != NULL);
    snprintf(store, sizeof store, "%s/run", dir);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        CHECK_OK(diloco_config_set(c, settings[i][0], settings[i][1], "test"));
    CHECK_OK(diloco_config_set(c, "run.store", store, "test"));
    for (; more && (*more)[0]; more++)
        CHECK_OK(diloco_config_set(c, (*more)[0], (*more)[1], "test"));
    CHECK_OK(diloco_run_open(&s->run, c, "r0"));
    diloco_config_destroy(c);
    const diloco_tensor w = {.name = "w", .data = s->w, .n_dims = 1, .shape = {3}};
    memset(s->w, 0, sizeof s->w);
    CHECK_OK(diloco_run_tensor(s->run, &w));
    if (s->device) CHECK_OK(diloco_run_device(s->run, s->device));
    CHECK_OK(diloco_run_private_by(s->run, "count", &s->count, sizeof s->count, s->fill, s));
    const diloco_clients clients = {.user = s, .fit = fit, .round = see_round};
    const diloco_status status = diloco_clients_run(s->run, &clients);
    snprintf(s->text, sizeof s->text, "%s", status ? diloco_error_text() : "");
    diloco_run_close(s->run);
    return status;
}

static scene a_scene(void)
{
    return (scene){.steps = 2, .holds = 7};
}

TEST(shared_model_follows_the_worked_trace_and_each_client_keeps_its_state)
{
    static const double expected[ROUNDS] = {-1.33, -3.227, -5.6343, -8.50087};
    const char *dir = new_folder();
    scene s = a_scene();
    CHECK_OK(live(&s, dir, NULL));
    CHECK_INT(ROUNDS, s.n_rounds);
    CHECK_INT(2 * ROUNDS, s.n_fits);
    for (int e = 0; e < ROUNDS; e++)
        CHECK_NEAR(expected[e], s.shared[e], 2e-6);
    CHECK_NEAR(expected[ROUNDS - 1], (double)s.w[1], 2e-6);
    uint64_t all = 0;
    for (int i = 1; i <= CLIENTS; i++)
        all += s.seen[i];
    CHECK_INT(2 * ROUNDS, all);
}

TEST(interrupted_run_resumes_to_the_same_model)
{
    for (size_t stop = 1; stop < 2 * ROUNDS; stop++) {
        const char *dir = new_folder();
        scene s = a_scene();
        s.stop_after = stop;
        CHECK_STATUS(DILOCO_EINTERRUPTED, live(&s, dir, NULL));
        CHECK_OK(live(&s, dir, NULL));
        CHECK_INT(2 * ROUNDS, s.n_fits);
        CHECK_NEAR(-8.50087, (double)s.w[0], 2e-6);
    }
}

static void check_report(uint64_t steps, uint64_t holds, const char *part)
{
    const char *dir = new_folder();
    scene s = a_scene();
    s.steps = steps;
    s.holds = holds;
    CHECK_STATUS(DILOCO_EINVAL, live(&s, dir, NULL));
    CHECK_CONTAINS(part, s.text);
    CHECK_CONTAINS("client", s.text);
}

TEST(reports_that_do_not_fit_the_run_are_refused_by_the_clients_name)
{
    check_report(3, 7, "took 3 steps, and trainer.local_steps_per_round = 2");
    check_report(2, 0, "holds none");
    check_report(0, 7, "holds 7 samples and reports 0 steps");
}

TEST(clients_without_samples_skip_and_the_round_aborts)
{
    const char *dir = new_folder();
    scene s = {.steps = 0, .holds = 0};
    const char *const more[][2] = {{"trainer.rounds", "1"}, {NULL, NULL}};
    CHECK_OK(live(&s, dir, more));
    CHECK_NEAR(0, (double)s.w[1], 0);
}

TEST(runs_that_have_no_clients_or_cannot_be_faithful_are_refused)
{
    const char *const none[][2] = {
        {"clients.total_clients", "0"}, {"clients.per_round", "0"}, {NULL, NULL}};
    const char *const many[][2] = {{"clients.per_round", "5"}, {NULL, NULL}};
    const char *const nowhere[][2] = {{"run.state_dir", "none"}, {NULL, NULL}};
    scene s = a_scene();
    CHECK_STATUS(DILOCO_EINVAL, live(&s, new_folder(), none));
    CHECK_CONTAINS("clients.total_clients", s.text);
    CHECK_STATUS(DILOCO_EINVAL, live(&s, new_folder(), many));
    CHECK_CONTAINS("clients.per_round = 5", s.text);
    CHECK_STATUS(DILOCO_EREFUSED, live(&s, new_folder(), nowhere));
    CHECK_CONTAINS("run.state_dir", s.text);
    CHECK_INT(0, s.n_fits);
}

static diloco_status fill_nothing(void *user, void *to)
{
    (void)user, (void)to;
    return DILOCO_OK;
}

TEST(private_piece_that_is_filled_at_a_save_is_refused)
{
    scene s = a_scene();
    s.fill = fill_nothing;
    CHECK_STATUS(DILOCO_EREFUSED, live(&s, new_folder(), NULL));
    CHECK_CONTAINS("count: a client's private piece is an array in host memory", s.text);
    CHECK_INT(0, s.n_fits);
}

TEST(private_piece_on_a_device_is_refused)
{
    trap d;
    scene s = a_scene();
    trap_open(&d);
    s.device = &d.device;
    CHECK_STATUS(DILOCO_EREFUSED, live(&s, new_folder(), NULL));
    CHECK_CONTAINS("count: a client's private piece is an array in host memory", s.text);
    CHECK_INT(0, s.n_fits);
    CHECK_INT(0, d.n_calls);
    trap_close(&d);
}

/* ---- an object at log/1 that is no entry (P7.9, P24) ---------------------------------------- */

/* Puts a copy of log/0 there, or the beginning of one. */
static void put_object(const char *dir, bool copy)
{
    dl_store *store;
    dl_buf text;
    char url[512];
    snprintf(url, sizeof url, "%s/run", dir);
    CHECK_OK(dl_store_open(&store, url, false));
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    CHECK_OK(dl_entry_get(&text, store, 0, DL_NEVER));
    CHECK_OK(dl_store_put(store, "log/0000000001.json", text.data, copy ? text.len : 10, DL_NEVER));
    dl_buf_deinit(&text);
    dl_store_close(store);
}

/* The process ends after one client of entry 1, and again in entry 2. The run resumes with such an
 * object, and then with another one. Every client is trained once in each of entries 2 and 3, from
 * its state after entry 0. */
static void resume_with(bool first_copy, bool then_copy)
{
    const char *const every[][2] = {{"clients.per_round", "0"}, {NULL, NULL}};
    const char *dir = new_folder();
    char url[512];
    diloco_verify_report report;
    scene s = a_scene();
    snprintf(url, sizeof url, "%s/run", dir);
    s.stop_after = CLIENTS + 1;
    CHECK_STATUS(DILOCO_EINTERRUPTED, live(&s, dir, every));
    put_object(dir, first_copy);
    for (int i = 1; i <= CLIENTS; i++)
        s.seen[i] = 1; /* a result that entry 1 does not count has no effect */
    s.stop_after = CLIENTS + 3;
    CHECK_STATUS(DILOCO_EINTERRUPTED, live(&s, dir, every));
    put_object(dir, then_copy);
    CHECK_OK(live(&s, dir, every));
    CHECK_INT(3 * CLIENTS + 1, s.n_fits);
    for (int i = 1; i <= CLIENTS; i++)
        CHECK_INT(3, s.seen[i]);
    CHECK_OK(diloco_verify(&report, url, 1, NULL, NULL));
    CHECK_INT(1, report.voids);
    CHECK_INT(ROUNDS - 1, report.commits);
}

TEST(p24_unreadable_entry_counts_no_client)
{
    resume_with(false, false);
    resume_with(false, true);
    resume_with(true, false);
}

TEST_MAIN(p24_unreadable_entry_counts_no_client, private_piece_that_is_filled_at_a_save_is_refused,
          private_piece_on_a_device_is_refused,
          shared_model_follows_the_worked_trace_and_each_client_keeps_its_state,
          interrupted_run_resumes_to_the_same_model,
          reports_that_do_not_fit_the_run_are_refused_by_the_clients_name,
          clients_without_samples_skip_and_the_round_aborts,
          runs_that_have_no_clients_or_cannot_be_faithful_are_refused)
