/* leader_test.c - runs where one replica combines for all. They have the states of an allgather at
 * every entry. Further tests: their traffic, a killed leader, and a malicious one. */
#include "volume.h"

#include "base/json.h"
#include "log/entry.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { CREW = 4, RESULTS = 64 };

typedef struct results {
    size_t n, n_combined;
    char digest[RESULTS][33], combined_by[RESULTS][48];
} results;

static diloco_status on_entry(void *user, const diloco_log_entry *e)
{
    results *r = user;
    CHECK(r->n < RESULTS && e->commit);
    CHECK_INT(CREW, e->n_members);
    snprintf(r->combined_by[r->n], sizeof r->combined_by[0], "%s", e->combined_by);
    r->n_combined += e->combined_by[0] != 0;
    strcpy(r->digest[r->n++], e->result);
    return DILOCO_OK;
}

/* The log of a verified run. */
static results log_of(const char *store)
{
    results r = {.n = 0};
    diloco_verify_report report;
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
    CHECK(report.complete);
    CHECK_OK(diloco_log_walk(store, 0, on_entry, &r));
    return r;
}

/* ---- the same states --------------------------------------------------------------------- */

typedef struct variant {
    const char *name;
    const char *settings[8][2];
    int fragments;
} variant;

static results run_of(const variant *v, const char *topology)
{
    toy all[CREW];
    char store[96], name[64];
    snprintf(name, sizeof name, "%s.%s", v->name, topology);
    snprintf(store, sizeof store, "mem://%s", name);
    toy_keep(store);
    toy_crew(all, CREW, store, "none");
    toy_set_all(all, CREW, "run.retain", "all");
    toy_set_all(all, CREW, "server.diloco.exchange", topology);
    for (size_t k = 0; v->settings[k][0]; k++)
        toy_set_all(all, CREW, v->settings[k][0], v->settings[k][1]);
    for (int i = 0; i < CREW; i++)
        all[i].fragments = v->fragments;
    toy_live_all(all, CREW);
    for (int i = 0; i < CREW; i++)
        TOY_OK(all[i]);
    return log_of(store);
}

TEST(p19_leader_run_has_the_states_of_an_allgather)
{
    static const variant variants[] = {
        {"f32", {{"run.on_missing", "wait"}}, 0},
        {"int4", {{"server.diloco.codec", "int4"}}, 0},
        {"topk",
         {{"server.diloco.codec", "topk"},
          {"server.diloco.codec_keep", "0.1"},
          {"server.diloco.error_feedback", "0.95"}},
         0},
        {"zstd", {{"server.diloco.compression", "zstd"}}, 0},
        {"median", {{"server.diloco.combiner", "median"}, {"run.min_replicas", "4"}}, 0},
        {"krum",
         {{"server.diloco.combiner", "krum"},
          {"server.diloco.byzantine", "0"},
          {"run.min_replicas", "4"}},
         0},
        {"adam", {{"server.diloco.outer_optimizer", "fedadam"}}, 0},
        {"partial", {{"run.on_missing", "commit_partial"}}, 0},
        {"streaming",
         {{"trainer.local_steps_per_round", "8"},
          {"server.diloco.overlap_steps", "1"},
          {"server.diloco.local_mix", "0.5"},
          {"run.on_missing", "wait"}},
         4},
        {"abort", {{"run.on_missing", "abort"}}, 2}};
    for (size_t k = 0; k < sizeof variants / sizeof variants[0]; k++) {
        const results want = run_of(&variants[k], "allgather"),
                      got = run_of(&variants[k], "leader");
        CHECK_INT(want.n, got.n);
        CHECK_INT(0, want.n_combined);
        CHECK_INT(got.n, got.n_combined);
        for (size_t e = 0; e < want.n; e++)
            if (strcmp(want.digest[e], got.digest[e]) != 0)
                CHECK_FAIL("%s: entry %zu is another", variants[k].name, e);
    }
}

/* ---- traffic ----------------------------------------------------------------------------- */

TEST(p19_leader_run_moves_the_bytes_of_the_formulas)
{
    check_volume(scratch_path("allgather"), DL_TOPOLOGY_ALLGATHER, "f32");
    check_volume(scratch_path("leader"), DL_TOPOLOGY_LEADER, "f32");
    check_volume(scratch_path("leader4"), DL_TOPOLOGY_LEADER, "int4");
}

TEST(p19_each_replica_combines_in_its_turn)
{
    const variant v = {"turns", {{"trainer.rounds", "9"}, {"run.on_missing", "wait"}}, 0};
    const results r = run_of(&v, "leader");
    CHECK_INT(9, r.n);
    for (size_t e = 1; e < r.n; e++) {
        char want[16];
        snprintf(want, sizeof want, "r%zu.0000", e % CREW);
        CHECK_STR(want, r.combined_by[e]);
    }
}

/* ---- a leader that is killed ------------------------------------------------------------- */

typedef struct victim {
    const char *store;
    toy *toy;
} victim;

/* Dies between x/ and log/, after which this process can create no entry. */
static void *watch_and_die(void *context)
{
    const victim *v = context;
    char x[300];
    struct stat s;
    snprintf(x, sizeof x, "%s/x/0000000001/r1.0000", v->store);
    while (stat(x, &s))
        usleep(50);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* Waits after entry 1 for the kill: watch_and_die's thread may be scheduled late. */
static double step_until_killed(toy *t, const diloco_run_info *now)
{
    while (now->entry >= 2)
        pause();
    return toy_step(t, now);
}

static void live_as(const char *store, const char *name, bool dies)
{
    toy all[2];
    pthread_t thread;
    toy_crew(all, 2, store, "none");
    toy *t = &all[name[1] - '0'];
    toy_set(t, "server.diloco.exchange", "leader");
    toy_set(t, "run.deadline", "1");
    toy_set(t, "run.patience", "1");
    toy_set(t, "run.on_missing", "wait");
    victim v = {.store = store, .toy = t};
    if (dies) t->step = step_until_killed;
    if (dies && pthread_create(&thread, NULL, watch_and_die, &v)) _exit(2);
    _exit(toy_live(t) ? 1 : 0);
}

static pid_t start(const char *store, const char *name, bool dies)
{
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) live_as(store, name, dies);
    return pid;
}

TEST(p19_leader_killed_after_its_update_only_delays_the_run)
{
    const char *store = scratch_path("killed");
    diloco_verify_report report;
    int status;
    const pid_t r0 = start(store, "r0", false), r1 = start(store, "r1", true);
    CHECK_INT(r1, waitpid(r1, &status, 0));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    const pid_t again = start(store, "r1", false);
    CHECK_INT(r0, waitpid(r0, &status, 0));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_INT(again, waitpid(again, &status, 0));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
    CHECK(report.complete);
    CHECK_INT(0, report.voids);
}

/* ---- a malicious leader ------------------------------------------------------------------ */

/* Gives the last entry other weights than those of its update. */
static void give_other_weights(const char *store)
{
    char path[300];
    dl_entry e;
    dl_buf text, changed;
    const dl_outer *outer = dl_outer_find("nesterov");
    snprintf(path, sizeof path, "%s/log/0000000003.json", store);
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    dl_buf_init(&changed, DL_ENTRY_TEXT_MAX);
    CHECK_OK(dl_file_read(&text, path));
    CHECK_OK(dl_entry_init(&e, CREW));
    CHECK_OK(dl_entry_read(&e, text.data, text.len, outer));
    CHECK(e.combined.there);
    e.members[0].weight = 0.75f;
    CHECK_OK(dl_entry_write(&changed, &e, outer));
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(changed.data, 1, changed.len, f) == changed.len && fclose(f) == 0);
    dl_entry_deinit(&e);
    dl_buf_deinit(&text);
    dl_buf_deinit(&changed);
}

TEST(p19_verify_finds_an_update_that_its_members_do_not_give)
{
    toy all[2];
    const char *store = scratch_path("lying");
    diloco_verify_report report;
    void *theta;
    size_t len;
    uint64_t entry;
    toy_crew(all, 2, store, "none");
    toy_set_all(all, 2, "server.diloco.exchange", "leader");
    toy_set_all(all, 2, "run.retain", "all");
    toy_live_all(all, 2);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
    give_other_weights(store);
    CHECK_STATUS(DILOCO_EPROTO, diloco_verify(&report, store, 1, NULL, NULL));
    CHECK_CONTAINS("entry 3 does not follow from its contributions", diloco_error_text());
    CHECK_INT(4, report.commits); /* the run continued after it, and so does the replay */
    CHECK_OK(diloco_theta_read(&theta, &len, &entry, store, 4));
    CHECK_INT(4, entry);
    diloco_free(theta);
}

TEST_MAIN(p19_leader_run_has_the_states_of_an_allgather,
          p19_leader_run_moves_the_bytes_of_the_formulas, p19_each_replica_combines_in_its_turn,
          p19_leader_killed_after_its_update_only_delays_the_run,
          p19_verify_finds_an_update_that_its_members_do_not_give)
