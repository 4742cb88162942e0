/* launch_world.h - an executor that is a table in memory, and a launch of it. Header only. */
#ifndef DL_TESTS_LAUNCH_WORLD_H
#define DL_TESTS_LAUNCH_WORLD_H

#include "launch/launch_control.h"

#include "check.h"
#include "scratch.h"

#include <string.h>

static const char *const none[] = {NULL};
static const char run[] = "1f0c2ab9000000000000000000000000";

/* ---- a fake executor: the end of rank r in generation g is written beforehand */

enum { RANKS = 4, GENERATIONS = 6 };
static dl_job_state fate[RANKS][GENERATIONS];
static int codes[RANKS][GENERATIONS];
static bool silent[RANKS];     /* generation 0 until generation 1 is launched */
static bool comes_back[RANKS]; /* silent only until it is asked to stop */
static bool stopped[RANKS][GENERATIONS];
static int launches[RANKS][GENERATIONS], cancels[RANKS];
static int unanswered[RANKS]; /* requests to stop that did not arrive */
static bool loses_output;     /* of a replica that is stopped */
static diloco_status launch_fails;
static uint32_t granted;      /* the backend refuses the ranks from here on */
static int outage;            /* looks that the backend does not answer */
static int run_is_done_after; /* looks; < 0: never */
static volatile int stop;
static void (*during_poll)(void), (*during_launch)(void); /* another launcher's actions */

static inline diloco_status fake_check(const dl_launch_spec *spec)
{
    (void)spec;
    return DILOCO_OK;
}

static inline diloco_status fake_launch(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    (void)spec;
    if (launch_fails) {
        const diloco_status status = launch_fails;
        return dl_fail(status, "the fake has no machine");
    }
    if (during_launch) during_launch();
    during_launch = NULL;
    for (size_t i = 0; i < n; i++) {
        if (jobs[i].rank >= granted) return dl_fail(DILOCO_EREFUSED, "the fake's quota is used up");
        launches[jobs[i].rank][jobs[i].generation]++;
        snprintf(jobs[i].id, sizeof jobs[i].id, "id-%s", jobs[i].name);
    }
    return DILOCO_OK;
}

/* The fake has the replicas that were launched. */
static inline diloco_status fake_find(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    (void)spec;
    for (size_t i = 0; i < n; i++)
        if (launches[jobs[i].rank][jobs[i].generation])
            snprintf(jobs[i].id, sizeof jobs[i].id, "id-%s", jobs[i].name);
    return DILOCO_OK;
}

static inline bool is_silent(const dl_job *job)
{
    const uint32_t r = job->rank;
    return silent[r] && !launches[r][1] && !(comes_back[r] && unanswered[r]);
}

static inline diloco_status fake_poll(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    (void)spec;
    if (during_poll) during_poll();
    during_poll = NULL;
    if (outage > 0) {
        outage--;
        return dl_fail(DILOCO_EUNREACHABLE, "the fake answered 500");
    }
    for (size_t i = 0; i < n; i++) {
        dl_job *j = &jobs[i];
        j->silent = is_silent(j);
        if (j->silent) continue;
        if (stopped[j->rank][j->generation])
            dl_job_set(j, DL_JOB_CANCELLED, -1, "stopped on request");
        else
            dl_job_set(j, fate[j->rank][j->generation], codes[j->rank][j->generation], "fate");
    }
    return DILOCO_OK;
}

static inline bool fake_is_id(const dl_job *job)
{
    return strncmp(job->id, "id-", 3) == 0 && strcmp(job->id + 3, job->name) == 0;
}

static int finishes;
static inline void fake_finish(const dl_launch_spec *spec)
{
    (void)spec;
    finishes++;
}

static inline diloco_status fake_logs(const dl_launch_spec *spec, const dl_job *job, bool follow,
                                      dl_job_line_fn fn, void *user)
{
    (void)spec, (void)job, (void)follow, (void)fn, (void)user;
    return DILOCO_OK;
}

static inline diloco_status fake_cancel(const dl_launch_spec *spec, dl_job *jobs, size_t n)
{
    diloco_status status = DILOCO_OK;
    (void)spec;
    for (size_t i = 0; i < n; i++) {
        if (is_silent(&jobs[i])) {
            unanswered[jobs[i].rank]++;
            status = dl_fail(DILOCO_EUNREACHABLE, "the fake's machine does not answer");
            continue;
        }
        cancels[jobs[i].rank]++;
        stopped[jobs[i].rank][jobs[i].generation] = true;
        if (!loses_output) continue;
        dl_job_set(&jobs[i], DL_JOB_CANCELLED, -1, "stopped");
        status = dl_fail(DILOCO_EUNREACHABLE, "stopped, but its output is not kept");
    }
    return status;
}

static const dl_executor fake = {.name = "fake",
                                 .needs = "",
                                 .tested = "",
                                 .options = "|",
                                 .caps = {.exactly_once = true},
                                 .poll_s = 1e-6,
                                 .check = fake_check,
                                 .launch = fake_launch,
                                 .find = fake_find,
                                 .is_id = fake_is_id,
                                 .poll = fake_poll,
                                 .logs = fake_logs,
                                 .cancel = fake_cancel,
                                 .finish = fake_finish};

/* ---- a launch of it */

typedef struct fixture {
    dl_config config;
    dl_book book;
    dl_launch_spec spec;
    dl_control control;
} fixture;

static inline diloco_status is_done(void *user, bool *done)
{
    (void)user;
    *done = run_is_done_after == 0;
    if (run_is_done_after > 0) run_is_done_after--;
    return DILOCO_OK;
}

static inline fixture *begin(const char *name, uint32_t n, const char *restarts)
{
    static fixture f;
    dl_store *store;
    const char *path = scratch_path(name);
    memset(fate, 0, sizeof fate);
    memset(codes, 0, sizeof codes);
    memset(silent, 0, sizeof silent);
    memset(comes_back, 0, sizeof comes_back);
    memset(unanswered, 0, sizeof unanswered);
    memset(launches, 0, sizeof launches);
    memset(cancels, 0, sizeof cancels);
    memset(stopped, 0, sizeof stopped);
    launch_fails = DILOCO_OK;
    granted = RANKS;
    loses_output = false;
    outage = 0;
    finishes = 0;
    run_is_done_after = -1;
    stop = 0;
    dl_config_init(&f.config);
    CHECK_OK(dl_config_set(&f.config, "launch.restarts", restarts, "test"));
    CHECK_OK(dl_store_open(&store, path, true));
    dl_store_close(store);
    CHECK_OK(dl_book_open(&f.book, path, run, &fake));
    f.spec = (dl_launch_spec){.run = run,
                              .config = &f.config,
                              .on = "",
                              .dir = "/",
                              .program = "",
                              .argv = none,
                              .env = none,
                              .secrets = none};
    CHECK_OK(dl_book_begin(&f.book, &f.spec, "fake", n, n));
    f.control = (dl_control){.spec = &f.spec,
                             .executor = &fake,
                             .what = "run",
                             .book = &f.book,
                             .stop = &stop,
                             .is_done = is_done};
    return &f;
}

/* Write a record as another launcher would have. */
static inline void add_record(const dl_book *book, const char *text)
{
    char key[40];
    bool taken;
    const dl_span span = {text, strlen(text)};
    snprintf(key, sizeof key, "launch/%010llu.json", (unsigned long long)book->next);
    CHECK_OK(dl_store_create(book->store, key, &span, 1, &taken, DL_NEVER));
}

/* Read the book as a command that has just begun. */
static inline void open_again(fixture *f, const char *name)
{
    dl_book_close(&f->book);
    CHECK_OK(dl_book_open(&f->book, scratch_path(name), run, &fake));
}

#endif
