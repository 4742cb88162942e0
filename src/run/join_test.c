/* join_test.c - processes that end and resume, as threads and as real processes over a folder:
 * killed, interrupted, started twice, of another run. Where PROTOCOL P16 promises the same bits,
 * the digest of the whole state is compared with that of an undisturbed run. */
#include "toy_run.h"

#include "base/file.h"
#include "log/layout.h"
#include "run/handle.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { CREW = 3 };

/* Settings of every run here: six entries of four steps. */
static void crew_of(toy *all, const char *store, const char *state)
{
    toy_crew(all, CREW, store, state);
    toy_set_all(all, CREW, "trainer.rounds", "6");
    toy_set_all(all, CREW, "trainer.local_steps_per_round", "4");
    toy_set_all(all, CREW, "run.retain", "all");
}

static diloco_verify_report verified(const char *store)
{
    diloco_verify_report report;
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
    CHECK(report.complete);
    return report;
}

/* Returns the digest after an undisturbed run. */
static const char *undisturbed(void)
{
    static char digest[33];
    if (!digest[0]) {
        toy all[CREW];
        toy_keep("mem://undisturbed");
        crew_of(all, "mem://undisturbed", "none");
        toy_live_all(all, CREW);
        for (int r = 0; r < CREW; r++)
            TOY_OK(all[r]);
        memcpy(digest, verified("mem://undisturbed").digest, sizeof digest);
    }
    return digest;
}

/* ---- kill -9 ---------------------------------------------------------------------------- */

static pid_t spawn(toy *t)
{
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid > 0) return pid;
    toy_live(t);
    if (t->status) fprintf(stderr, "%s: %s\n", t->name, t->text);
    _exit(t->status ? 1 : 0);
}

/* Returns whether the process has ended. It must have ended well or by our own signal. */
static bool ended(pid_t *pid, int flags)
{
    int how;
    const pid_t got = waitpid(*pid, &how, flags);
    if (got == 0) return false;
    CHECK(got == *pid);
    *pid = 0;
    if (WIFSIGNALED(how))
        CHECK_INT(SIGKILL, WTERMSIG(how));
    else
        CHECK_INT(0, WEXITSTATUS(how));
    return !WIFSIGNALED(how);
}

static void kill_and_resume(uint64_t seed)
{
    char name[32], state[40];
    toy all[CREW];
    pid_t pids[CREW];
    bool done[CREW] = {false};
    size_t n_done = 0, n_killed = 0;
    dl_rng rng;
    snprintf(name, sizeof name, "kill-%llu", (unsigned long long)seed);
    snprintf(state, sizeof state, "%s.state", name);
    const char *store = scratch_path(name);
    crew_of(all, store, scratch_path(state));
    dl_rng_init(&rng, seed, DL_STREAM(DL_STREAM_TEST, 0), 0);
    for (int r = 0; r < CREW; r++) {
        all[r].step_us = 500;
        pids[r] = spawn(&all[r]);
    }
    for (int round = 0; n_done < CREW; round++) {
        const bool kills = round < 12;
        const uint64_t whom = 1 + dl_rng_below(&rng, (1 << CREW) - 1);
        usleep((useconds_t)(1000 + dl_rng_below(&rng, 40000)));
        for (int r = 0; r < CREW; r++)
            if (kills && !done[r] && whom >> r & 1) n_killed += !kill(pids[r], SIGKILL);
        for (int r = 0; r < CREW; r++) {
            if (done[r]) continue;
            const bool killed = kills && whom >> r & 1;
            if (ended(&pids[r], killed || !kills ? 0 : WNOHANG))
                n_done += done[r] = true;
            else if (!pids[r])
                pids[r] = spawn(&all[r]); /* the same command as before */
        }
    }
    if (n_killed == 0) print_message("seed %llu: nobody was killed\n", (unsigned long long)seed);
    const diloco_verify_report report = verified(store);
    if (strcmp(undisturbed(), report.digest) != 0)
        CHECK_FAIL("seed %llu: %zu kills, another state than without", (unsigned long long)seed,
                   n_killed);
    CHECK_INT(6, report.commits);
}

TEST(killed_replicas_started_again_end_in_the_same_bits)
{
    (void)undisturbed();
    for (uint64_t seed = 1; seed <= 4; seed++)
        kill_and_resume(seed);
}

/* ---- interrupts ------------------------------------------------------------------------- */

/* Runs until the run is done, with a clean stop after stop_after steps of each generation. */
static void *run_in_parts(void *context)
{
    toy *t = context;
    do
        toy_live(t);
    while (!t->status && t->end.entry < t->end.entries);
    return NULL;
}

TEST(replicas_stopped_cleanly_at_any_step_and_resumed_end_in_the_same_bits)
{
    toy all[CREW];
    const char *store = scratch_path("stops");
    crew_of(all, store, scratch_path("stops.state"));
    for (int r = 0; r < CREW; r++) {
        all[r].stop_after =
            (uint64_t)(3 + 2 * r); /* 3: within; 7: within; 5: often at a due point */
        CHECK_INT(0, pthread_create(&all[r].thread, NULL, run_in_parts, &all[r]));
    }
    for (int r = 0; r < CREW; r++)
        pthread_join(all[r].thread, NULL);
    for (int r = 0; r < CREW; r++) {
        TOY_OK(all[r]);
        CHECK_INT(24, all[r].end.step); /* in all its generations */
        CHECK(all[r].end.generation > 0);
        CHECK(all[r].end.resumed);
    }
    CHECK_STR(undisturbed(), verified(store).digest);
}

/* Waits for an object of a run. The test's own time limit is the bound. */
static void wait_for(const char *store, const char *key)
{
    char *path;
    CHECK(asprintf(&path, "%s/%s", store, key) > 0);
    while (access(path, F_OK))
        usleep(1000);
    free(path);
}

/* r0 reaches its first exchange alone and is interrupted there. */
static void interrupt_first(toy *all, const char *store)
{
    CHECK_OK(toy_open(&all[0]));
    CHECK_OK(diloco_run_join(all[0].run));
    diloco_run *run = all[0].run;
    CHECK_INT(0, pthread_create(&all[1].thread, NULL, toy_thread, &all[1])); /* will wait too */
    for (int k = 0; k < 3; k++) {
        const diloco_run_info now = diloco_run_now(run);
        toy_step(&all[0], &now);
        CHECK_OK(diloco_step(run, &(diloco_step_report){.samples = 1, .tokens = 10}));
    }
    const diloco_run_info now = diloco_run_now(run);
    toy_step(&all[0], &now);
    diloco_run_interrupt(run);
    CHECK_STATUS(DILOCO_EINTERRUPTED,
                 diloco_step(run, &(diloco_step_report){.samples = 1, .tokens = 10}));
    CHECK_CONTAINS("entry 0", diloco_error_text());
    CHECK(diloco_run_now(run).interrupted);
    wait_for(store, "c/0000000000/r0.0000");
    CHECK_STATUS(DILOCO_EINVAL, diloco_step(run, &(diloco_step_report){.samples = 1}));
    CHECK_CONTAINS("NULL", diloco_error_text());
}

typedef struct told {
    diloco_run *run;
    uint64_t entry[3];
    double waited_s[3];
    int n;
} told;

/* The third call ends the wait. */
static void note_wait(void *user, uint64_t entry, double waited_s)
{
    told *t = user;
    if (t->n == 3) return;
    t->entry[t->n] = entry;
    t->waited_s[t->n] = waited_s;
    if (++t->n == 3) diloco_run_interrupt(t->run);
}

static void check_waits(const char *store, const char *state, void (*change)(diloco_run *run))
{
    toy all[CREW];
    told t = {.n = 0};
    crew_of(all, store, state);
    CHECK_OK(toy_open(&all[0]));
    t.run = all[0].run;
    if (change) change(t.run);
    diloco_run_on_wait(t.run, .01, note_wait, &t);
    CHECK_OK(diloco_run_join(t.run));
    diloco_status status = DILOCO_OK;
    for (int k = 0; k < 4 && !status; k++) {
        const diloco_run_info now = diloco_run_now(t.run);
        toy_step(&all[0], &now);
        status = diloco_step(t.run, &(diloco_step_report){.samples = 1, .tokens = 10});
    }
    CHECK_STATUS(DILOCO_EINTERRUPTED, status);
    CHECK_INT(3, t.n);
    for (int k = 0; k < 3; k++) {
        CHECK_INT(0, t.entry[k]);
        CHECK(t.waited_s[k] >= (k ? 2 * t.waited_s[k - 1] : .01));
    }
    diloco_run_close(t.run);
}

static void split(diloco_run *run)
{
    CHECK_OK(diloco_run_split(run));
}

TEST(a_long_wait_is_told_each_time_it_has_doubled)
{
    check_waits(scratch_path("told"), scratch_path("told.state"), NULL);
    check_waits(scratch_path("beside"), scratch_path("beside.state"), split);
}

static void end_of_interrupted(toy *all, const char *store)
{
    pthread_join(all[1].thread, NULL);
    pthread_join(all[2].thread, NULL);
    for (int r = 0; r < CREW; r++)
        TOY_OK(all[r]);
    CHECK_STR(undisturbed(), verified(store).digest);
}

TEST(interrupted_exchange_continues_when_called_again)
{
    toy all[CREW];
    const char *store = scratch_path("again");
    crew_of(all, store, scratch_path("again.state"));
    interrupt_first(all, store);
    CHECK_INT(0, pthread_create(&all[2].thread, NULL, toy_thread, &all[2]));
    CHECK_OK(diloco_step(all[0].run, NULL)); /* waits: the interrupt was reset */
    CHECK_INT(1, diloco_run_now(all[0].run).entry);
    all[0].status = toy_train(&all[0]);
    toy_close(&all[0]);
    end_of_interrupted(all, store);
}

TEST(an_interrupted_exchange_can_be_closed_and_resumed)
{
    toy all[CREW];
    const char *store = scratch_path("resumed");
    crew_of(all, store, scratch_path("resumed.state"));
    interrupt_first(all, store);
    CHECK_OK(diloco_run_save(all[0].run));
    toy_close(&all[0]);
    CHECK_INT(0, pthread_create(&all[2].thread, NULL, toy_thread, &all[2]));
    toy_live(&all[0]);
    CHECK_INT(1, all[0].end.generation);
    end_of_interrupted(all, store);
}

TEST(a_finished_run_is_joined_and_found_done)
{
    toy t = toy_of("r0", scratch_path("finished"));
    toy_set(&t, "run.state_dir", scratch_path("finished.state"));
    toy_live(&t);
    TOY_OK(t);
    float w[TOY_N];
    memcpy(w, t.w, sizeof w);
    memset(t.w, 0, sizeof t.w);
    toy_live(&t);
    TOY_OK(t);
    CHECK_INT(12, t.end.step);
    CHECK_BYTES(w, t.w, sizeof w);
}

/* ---- processes that do not belong to the run -------------------------------------------- */

TEST(another_run_in_the_same_store_is_refused_and_each_difference_is_named)
{
    toy t = toy_of("r0", scratch_path("two-runs"));
    toy_set(&t, "run.state_dir", "none");
    toy_live(&t);
    TOY_OK(t);
    toy other = t;
    toy_set(&other, "trainer.local_steps_per_round", "5");
    toy_set(&other, "server.diloco.outer_optimizer", "sgd");
    toy_live(&other);
    CHECK_INT(DILOCO_EDIFFERS, other.status);
    CHECK_CONTAINS("another run", other.text);
    CHECK_CONTAINS("trainer.local_steps_per_round is 3 in the run, 5 here", other.text);
    CHECK_CONTAINS("server.diloco.outer_optimizer is nesterov in the run, sgd here", other.text);
}

static float other_tensor[3];

static diloco_status one_more(toy *t, diloco_run *run)
{
    (void)t;
    return diloco_run_tensor(
        run, &(diloco_tensor){.name = "bias", .data = other_tensor, .n_dims = 1, .shape = {3}});
}

TEST(a_replica_of_another_model_is_refused_with_the_names_of_both_replicas)
{
    toy t = toy_of("r0", scratch_path("model"));
    toy_set(&t, "run.state_dir", "none");
    toy_live(&t);
    TOY_OK(t);
    t.prepare = one_more;
    strcpy(t.name, "r1");
    toy_live(&t);
    CHECK_INT(DILOCO_EDIFFERS, t.status);
    CHECK_CONTAINS("the model in the run that replica r0 created has 1 tensors, the model on "
                   "replica r1 has 2",
                   t.text);
}

static void change_file(const char *path, size_t at, const char *bytes, size_t len)
{
    FILE *f = fopen(path, "r+b");
    CHECK(f != NULL);
    CHECK(fseek(f, (long)at, SEEK_SET) == 0 && fwrite(bytes, 1, len, f) == len);
    CHECK_INT(0, fclose(f));
}

static char *read_whole(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    CHECK(f != NULL);
    char *bytes = calloc(1, 1 << 20);
    *len = fread(bytes, 1, (1 << 20) - 1, f);
    fclose(f);
    return bytes;
}

/* Writes run.json with `from` replaced by `to`, and seals it. */
static void edit_run(const char *path, const char *text, const char *from, const char *to)
{
    dl_buf edited;
    char hex[DL_HASH_HEX + 1];
    const char *at = strstr(text, from), *seal = strstr(text, ",\"check\"");
    CHECK(at && seal && at < seal);
    dl_buf_init(&edited, 1 << 20);
    CHECK_OK(dl_buf_addf(&edited, "%.*s%s%.*s", (int)(at - text), text, to,
                         (int)(seal - at - (ptrdiff_t)strlen(from)), at + strlen(from)));
    dl_hash_to_hex(hex, dl_hash_bytes(edited.data, edited.len));
    CHECK_OK(dl_buf_addf(&edited, ",\"check\":\"%s\"}\n", hex));
    CHECK_INT(0, truncate(path, 0));
    change_file(path, 0, (const char *)edited.data, edited.len);
    dl_buf_deinit(&edited);
}

TEST(a_replica_of_another_format_or_series_is_refused_at_joining_by_a_sentence)
{
    static const struct {
        const char *from, *to, *said;
    } others[] = {
        {"\"version\":1", "\"version\":2",
         "format version 2, this program (" DILOCO_VERSION
         ") reads version 1: use the program that"},
        {"\"program\":\"" DILOCO_VERSION, "\"program\":\"77.1.0",
         "the run was begun by diloco 77.1.0, this program is " DILOCO_VERSION},
    };
    const char *store = scratch_path("versions");
    char *path;
    size_t len;
    toy t = toy_of("r0", store);
    toy_set(&t, "run.state_dir", "none");
    t.stop_after = 1;
    toy_live(&t);
    TOY_OK(t);
    CHECK(asprintf(&path, "%s/run.json", store) > 0);
    char *text = read_whole(path, &len);
    for (size_t i = 0; i < 2; i++) {
        edit_run(path, text, others[i].from, others[i].to);
        toy_live(&t);
        CHECK_INT(DILOCO_EDIFFERS, t.status);
        CHECK_CONTAINS(others[i].said, t.text);
    }
    edit_run(path, text, "\"program\":\"" DILOCO_VERSION, "\"program\":\"" DILOCO_VERSION "7");
    toy_live(&t); /* a later patch of the same series */
    TOY_OK(t);
    free(path), free(text);
}

TEST(a_damaged_run_json_and_a_damaged_first_state_are_refused_and_left_alone)
{
    const char *store = scratch_path("damaged");
    char *path;
    size_t len;
    toy t = toy_of("r0", store);
    toy_set(&t, "run.state_dir", "none");
    t.stop_after = 1;
    toy_live(&t);
    TOY_OK(t);

    CHECK(asprintf(&path, "%s/run.json", store) > 0);
    char *text = read_whole(path, &len);
    CHECK_INT(0, truncate(path, (off_t)len / 2));
    toy_live(&t);
    CHECK_INT(DILOCO_EPROTO, t.status);
    CHECK_CONTAINS("run.json", t.text);
    diloco_verify_report report;
    CHECK_STATUS(DILOCO_EPROTO, diloco_verify(&report, store, 1, NULL, NULL));
    CHECK_CONTAINS("run.json", diloco_error_text());
    change_file(path, 0, text, len);
    char *where = strstr(text, "\"theta0_file\"");
    CHECK(where != NULL);
    char hex[33] = "";
    CHECK(sscanf(where, "\"theta0_file\": \"%32[0-9a-f]", hex) == 1 ||
          sscanf(where, "\"theta0_file\":\"%32[0-9a-f]", hex) == 1);
    free(path), free(text);

    CHECK(asprintf(&path, "%s/theta0/%s.safetensors", store, hex) > 0);
    text = read_whole(path, &len);
    char flipped = (char)(text[len - 3] ^ 4);
    change_file(path, len - 3, &flipped, 1);
    toy_live(&t);
    CHECK_INT(DILOCO_EPROTO, t.status);
    CHECK_CONTAINS("theta0", t.text);
    CHECK_STATUS(DILOCO_EPROTO, diloco_verify(&report, store, 1, NULL, NULL));
    CHECK_CONTAINS("theta0", diloco_error_text());
    change_file(path, 0, text, len);
    free(path), free(text);

    t.stop_after = 0;
    toy_live(&t);
    TOY_OK(t);
    (void)verified(store);
}

TEST(damaged_or_foreign_local_state_is_refused_with_the_way_out_and_nothing_is_lost)
{
    const char *store = scratch_path("local"), *state = scratch_path("local.state");
    char *path, *text;
    size_t len;
    toy t = toy_of("r0", store);
    toy_set(&t, "run.state_dir", state);
    t.stop_after = 4;
    toy_live(&t);
    TOY_OK(t);
    t.stop_after = 0;
    CHECK(asprintf(&path, "%s/r0/local.safetensors", state) > 0);
    text = read_whole(path, &len);
    char flipped = (char)(text[len - 1] ^ 1);
    change_file(path, len - 1, &flipped, 1);
    toy_live(&t);
    CHECK_INT(DILOCO_EPROTO, t.status);
    CHECK_CONTAINS("move ", t.text);
    CHECK_CONTAINS("/r0 away", t.text);
    CHECK_INT(0, truncate(path, (off_t)len / 2));
    toy_live(&t);
    CHECK_INT(DILOCO_EPROTO, t.status);
    CHECK_INT(0, truncate(path, 0));
    change_file(path, 0, text, len);

    toy foreign = toy_of("r0", scratch_path("local-other"));
    toy_set(&foreign, "run.state_dir", state);
    toy_live(&foreign);
    CHECK_INT(DILOCO_EDIFFERS, foreign.status);
    CHECK_CONTAINS("belongs to run", foreign.text);
    toy_live(&t); /* the state itself is unchanged */
    TOY_OK(t);
    CHECK(t.end.resumed);
    free(path), free(text);
}

TEST(replica_without_its_local_state_warns_that_moments_restart)
{
    const char *state = scratch_path("gone.state");
    char *path;
    toy t = toy_of("r0", scratch_path("gone"));
    toy_set(&t, "run.state_dir", state);
    t.record = calloc(1, TOY_RECORD);
    t.stop_after = 4;
    toy_live(&t);
    TOY_OK(t);
    toy_live(&t);
    TOY_OK(t);
    CHECK(t.end.resumed && !strstr(t.record, "no_state"));
    CHECK(asprintf(&path, "%s/r0/local.safetensors", state) > 0);
    CHECK_INT(0, unlink(path));
    t.stop_after = 0;
    toy_live(&t);
    TOY_OK(t);
    CHECK(!t.end.resumed);
    CHECK_CONTAINS("\"code\":\"no_state\"", t.record);
    CHECK_CONTAINS("its inner moments are reset", t.record);
    free(path), free(t.record);
}

TEST(a_second_process_of_the_same_replica_here_is_refused_by_the_lock)
{
    char path[PATH_MAX], other[64];
    toy t = toy_of("r0", scratch_path("lock")), second = t;
    snprintf(path, sizeof path, "%s/r0/lock", scratch_path("lock.state"));
    toy_set(&t, "run.state_dir", scratch_path("lock.state"));
    second = t;
    CHECK_OK(toy_open(&t));
    CHECK_OK(diloco_run_join(t.run));
    toy_live(&second);
    CHECK_INT(DILOCO_EINVAL, second.status);
    CHECK_CONTAINS("already runs in this process", second.text);
    CHECK_CONTAINS("close it first", second.text);
    FILE *lock = fopen(path, "w");
    CHECK(lock && fprintf(lock, "%d\n", (int)getppid()) > 0 && !fclose(lock));
    snprintf(other, sizeof other, "already runs here as process %d (", (int)getppid());
    toy_live(&second);
    CHECK_INT(DILOCO_EINVAL, second.status);
    CHECK_CONTAINS(other, second.text);
    /* One that has stopped meanwhile, as after a kill of its `diloco train`, is waited for. */
    second.status = DILOCO_OK;
    CHECK_INT(0, pthread_create(&second.thread, NULL, toy_thread, &second));
    usleep(50000);
    CHECK_OK(diloco_run_save(t.run));
    toy_close(&t);
    pthread_join(second.thread, NULL);
    TOY_OK(second);
}

/* Claims a name that was free a moment ago. */
static diloco_status claim_new(toy *t)
{
    CHECK_OK(toy_open(t));
    t->run->config.first_generation = true;
    const diloco_status status = diloco_run_join(t->run);
    toy_close(t);
    return status;
}

TEST(the_loser_of_a_race_for_a_name_notes_that_the_name_is_not_its_own)
{
    const char *state = scratch_path("race.state");
    char *lost;
    toy winner = toy_of("r0", scratch_path("race")), loser = winner;
    toy_set(&winner, "run.state_dir", scratch_path("race.winner"));
    toy_set(&loser, "run.state_dir", state);
    CHECK(asprintf(&lost, "%s/r0/lost", state) > 0);
    CHECK_OK(toy_open(&winner));
    CHECK_OK(diloco_run_join(winner.run));
    CHECK_STATUS(DILOCO_EFENCED, claim_new(&loser));
    CHECK_INT(0, access(lost, F_OK));
    toy_close(&winner);
    toy_live(&loser); /* it is asked to use the name nevertheless */
    TOY_OK(loser);
    CHECK(access(lost, F_OK) != 0);
    free(lost);
}

TEST(a_later_generation_elsewhere_fences_the_earlier_one)
{
    toy all[2];
    const char *store = scratch_path("fence");
    toy_crew(all, 2, store, "none"); /* no lock: as on another machine */
    toy first = all[0], later = all[0];
    CHECK_OK(toy_open(&first));
    CHECK_OK(diloco_run_join(first.run));
    CHECK_INT(0, pthread_create(&later.thread, NULL, toy_thread, &later));
    wait_for(store, "c/0000000000/r0.0001");
    CHECK_STATUS(DILOCO_EFENCED, toy_train(&first));
    CHECK_CONTAINS("newer generation", diloco_error_text());
    CHECK_STATUS(DILOCO_EFENCED, diloco_step(first.run, NULL)); /* for good */
    CHECK_CONTAINS("newer generation", diloco_error_text());
    toy_close(&first);
    toy_live(&all[1]);
    pthread_join(later.thread, NULL);
    TOY_OK(all[1]);
    TOY_OK(later);
    (void)verified(store);
}

/* Two machines use one name. The second uploads the same bytes as the first, so no contribution
 * shows it. */
TEST(later_generation_without_uploads_fences_at_a_heartbeat)
{
    toy all[2];
    const char *store = scratch_path("twins");
    toy_crew(all, 2, store, "none");
    toy first = all[0], later = all[0];
    CHECK_INT(0, pthread_create(&first.thread, NULL, toy_thread, &first));
    wait_for(store, "c/0000000000/r0.0000");
    CHECK_INT(0, pthread_create(&later.thread, NULL, toy_thread, &later));
    pthread_join(first.thread, NULL);
    CHECK_STATUS(DILOCO_EFENCED, first.status);
    CHECK_CONTAINS("newer generation", first.text);
    toy_live(&all[1]);
    pthread_join(later.thread, NULL);
    TOY_OK(all[1]);
    TOY_OK(later);
    (void)verified(store);
}

/* ---- a store that fails while run.json is read -------------------------------------------- */

typedef struct blocked {
    const char *store, *away;
} blocked;

/* Opening the folder of the store is an I/O error (ELOOP). */
static void block(const blocked *b)
{
    CHECK_INT(0, rename(b->store, b->away));
    CHECK_INT(0, symlink(b->store, b->store));
}

static void unblock(const blocked *b)
{
    CHECK_INT(0, unlink(b->store));
    CHECK_INT(0, rename(b->away, b->store));
}

static void unblock_once_it_waits(toy *t, diloco_run *run, const char *line)
{
    (void)run;
    if (strstr(line, "\"code\":\"unreachable\"")) unblock(t->user);
}

TEST(restarted_replica_waits_for_a_store_that_fails_when_run_json_is_read)
{
    blocked b = {.store = scratch_path("blocked"), .away = scratch_path("blocked-away")};
    toy t = toy_of("r0", b.store);
    toy_set(&t, "run.state_dir", scratch_path("blocked.state"));
    toy_set(&t, "run.store_timeout", "100000");
    t.stop_after = 4;
    CHECK_OK(toy_live(&t));
    block(&b);
    t.stop_after = 0;
    t.heard = unblock_once_it_waits;
    t.user = &b;
    toy_live(&t);
    TOY_OK(t);
    CHECK(t.end.resumed);
}

/* Its store may have been misspelled. */
TEST(first_process_of_a_replica_does_not_wait_for_a_store_that_fails)
{
    blocked b = {.store = scratch_path("first"), .away = scratch_path("first-away")};
    toy t = toy_of("r0", b.store);
    toy_set(&t, "run.state_dir", scratch_path("first.state"));
    toy_set(&t, "run.store_timeout", "100000");
    CHECK_INT(0, mkdir(b.store, 0777));
    block(&b);
    CHECK_STATUS(DILOCO_EIO, toy_live(&t));
    unblock(&b);
}

TEST_MAIN(restarted_replica_waits_for_a_store_that_fails_when_run_json_is_read,
          first_process_of_a_replica_does_not_wait_for_a_store_that_fails,
          killed_replicas_started_again_end_in_the_same_bits,
          replicas_stopped_cleanly_at_any_step_and_resumed_end_in_the_same_bits,
          interrupted_exchange_continues_when_called_again,
          a_long_wait_is_told_each_time_it_has_doubled,
          an_interrupted_exchange_can_be_closed_and_resumed,
          a_finished_run_is_joined_and_found_done,
          another_run_in_the_same_store_is_refused_and_each_difference_is_named,
          a_replica_of_another_model_is_refused_with_the_names_of_both_replicas,
          a_replica_of_another_format_or_series_is_refused_at_joining_by_a_sentence,
          a_damaged_run_json_and_a_damaged_first_state_are_refused_and_left_alone,
          damaged_or_foreign_local_state_is_refused_with_the_way_out_and_nothing_is_lost,
          replica_without_its_local_state_warns_that_moments_restart,
          a_second_process_of_the_same_replica_here_is_refused_by_the_lock,
          the_loser_of_a_race_for_a_name_notes_that_the_name_is_not_its_own,
          a_later_generation_elsewhere_fences_the_earlier_one,
          later_generation_without_uploads_fences_at_a_heartbeat)
