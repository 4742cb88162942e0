/* toy_run.h - a small trainer on the public API, for tests of whole runs: replicas as threads
 * or processes, over a folder or memory.
 *
 *     toy t = toy_of("r0", store);
 *     toy_set(&t, "trainer.rounds", "4");
 *     status = toy_live(&t);            // open, join, train to the end, close
 *
 * A replica fits w to targets that follow from its shard and the sample's number, by gradient
 * descent with momentum: so its inner state matters, and any two runs with the same samples
 * in the same order have the same bits. A failure is kept in the toy: CHECKs are for the main
 * thread. */
#ifndef DL_TESTS_TOY_RUN_H
#define DL_TESTS_TOY_RUN_H

#include "base/rng.h"
#include "check.h"
#include "scratch.h"
#include "store/store.h"
#include <diloco/inspect.h>
#include <diloco/run.h>

#include <pthread.h>
#include <unistd.h>

enum { TOY_N = 37, TOY_SETTINGS = 24, TOY_RECORD = 1 << 20 };

typedef struct toy {
    char name[32];
    const char *settings[TOY_SETTINGS][2];
    size_t n_settings;
    float w[TOY_N], moment[TOY_N];
    float inner_lr, mu;       /* of the inner optimizer */
    unsigned step_us;         /* sleep in each step */
    uint64_t samples;         /* reported by each step; 0: 1 */
    uint64_t stop_after;      /* leave the loop, saved, after this many steps of this generation; 0:
                               * never */
    bool gradients;           /* contribute gradients instead of steps */
    int fragments;            /* number of pieces of w, each a tensor and a fragment; 0: whole */
    bool has_empty;           /* tensors of no elements, too */
    unsigned char secret[64]; /* private bytes; len 0 when secret[0] is 0 */

    /* More tensors, or another w: called before join. */
    diloco_status (*prepare)(struct toy *t, diloco_run *run);
    /* Another way to train: one step on w. */
    double (*step)(struct toy *t, const diloco_run_info *now);
    /* Hears each line of the record, on the replica's thread. */
    void (*heard)(struct toy *t, diloco_run *run, const char *line);
    void *user;
    diloco_user_parts parts; /* of its own */

    diloco_run *run;
    char *record; /* all lines, each with its newline */
    size_t record_len;
    diloco_run_info end; /* at the end of the generation */
    float theta[TOY_N];
    diloco_status status;
    char text[1024];
    pthread_t thread;
} toy;

static inline void toy_set(toy *t, const char *name, const char *value)
{
    if (t->n_settings == TOY_SETTINGS) abort();
    t->settings[t->n_settings][0] = name;
    t->settings[t->n_settings++][1] = value;
}

static inline toy toy_of(const char *name, const char *store)
{
    toy t = {.inner_lr = 0.05f, .mu = 0.9f};
    snprintf(t.name, sizeof t.name, "%s", name);
    toy_set(&t, "run.store", store);
    toy_set(&t, "run.heartbeat", "0.05");
    toy_set(&t, "run.threads", "1");
    toy_set(&t, "trainer.rounds", "4");
    toy_set(&t, "trainer.local_steps_per_round", "3");
    toy_set(&t, "trainer.batch_size", "1");
    return t;
}

/* A store in memory lasts as long as a handle is open: to the end of the program. */
static inline void toy_keep(const char *url)
{
    static dl_store *kept[128];
    static size_t n;
    if (n == sizeof kept / sizeof kept[0] || dl_store_open(&kept[n++], url, true)) abort();
}

/* Element i of sample k of a shard, in [-1, 1). */
static inline float toy_target(uint64_t shard, uint64_t k, int i)
{
    uint64_t x = (shard * 1000003 + k) * 1000003 + (uint64_t)i;
    x ^= x >> 31;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return (float)(x >> 40) / 8388608.0f - 1.0f;
}

static inline double toy_step(toy *t, const diloco_run_info *now)
{
    double loss = 0;
    for (int i = 0; i < TOY_N; i++) {
        const float g = t->w[i] - toy_target((uint64_t)now->shard, now->sample, i);
        loss += (double)g * (double)g;
        t->moment[i] = t->mu * t->moment[i] + g;
        if (!t->gradients) t->w[i] -= t->inner_lr * t->moment[i];
    }
    return loss / TOY_N;
}

static inline void toy_hear(void *user, const char *line, size_t len)
{
    toy *t = user;
    if (t->record && t->record_len + len + 2 <= TOY_RECORD) {
        memcpy(t->record + t->record_len, line, len);
        t->record[t->record_len + len] = '\n';
        t->record_len += len + 1;
        t->record[t->record_len] = 0;
    }
    if (t->heard) {
        char *copy = strndup(line, len);
        t->heard(t, t->run, copy);
        free(copy);
    }
}

/* Where fragment f of `fragments` begins in w. */
static inline int toy_begin(int f, int fragments)
{
    return TOY_N * f / fragments;
}

/* Tensors of no elements, among the others: torch modules may have such. */
static inline diloco_status toy_register_empty(toy *t)
{
    diloco_tensor none[] = {{.name = "a", .data = t->w, .n_dims = 2, .shape = {0, 3}},
                            {.name = "x", .data = t->w, .n_dims = 1, .role = DILOCO_BUFFER},
                            {.name = "y", .data = t->w, .n_dims = 3, .shape = {4, 0, 2}},
                            {.name = "z", .data = t->w, .n_dims = 1, .dtype = DILOCO_I64}};
    diloco_status status = DILOCO_OK;
    for (size_t i = 0; i < sizeof none / sizeof *none && !status; i++) {
        if (none[i].dtype == DILOCO_I64) none[i].role = DILOCO_BUFFER;
        status = diloco_run_tensor(t->run, &none[i]);
    }
    return status;
}

static inline diloco_status toy_register(toy *t)
{
    if (t->has_empty) {
        const diloco_status status = toy_register_empty(t);
        if (status) return status;
    }
    diloco_tensor w = {.name = "w", .data = t->w, .n_dims = 1, .shape = {TOY_N}};
    if (!t->fragments) return diloco_run_tensor(t->run, &w);
    diloco_status status = DILOCO_OK;
    for (int f = 0; f < t->fragments && !status; f++) {
        char name[16];
        const int begin = toy_begin(f, t->fragments), end = toy_begin(f + 1, t->fragments);
        snprintf(name, sizeof name, "w.%d", f);
        w = (diloco_tensor){.name = name,
                            .data = t->w + begin,
                            .n_dims = 1,
                            .shape = {(size_t)(end - begin)},
                            .fragment = f};
        status = diloco_run_tensor(t->run, &w);
    }
    return status;
}

static inline diloco_status toy_open(toy *t)
{
    diloco_config *config = diloco_config_create();
    diloco_status status = config ? DILOCO_OK : DILOCO_ENOMEM;
    for (size_t i = 0; i < t->n_settings && !status; i++)
        status = diloco_config_set(config, t->settings[i][0], t->settings[i][1], NULL);
    if (!status) status = diloco_run_open_with(&t->run, config, t->name, &t->parts);
    diloco_config_destroy(config);
    if (status) return status;
    diloco_run_on_record(t->run, toy_hear, t);
    if (!status) status = toy_register(t);
    if (!status && t->gradients) status = diloco_run_gradient(t->run, "w", t->moment);
    if (!status && !t->gradients)
        status = diloco_run_private(t->run, "moment", t->moment, sizeof t->moment);
    if (!status && t->secret[0])
        status = diloco_run_private(t->run, "secret", t->secret, sizeof t->secret);
    if (!status && t->prepare) status = t->prepare(t, t->run);
    return status;
}

/* From join to the end, or to stop_after. */
static inline diloco_status toy_train(toy *t)
{
    uint64_t n = 0;
    diloco_status status = DILOCO_OK;
    while (!status && !diloco_run_done(t->run)) {
        const diloco_run_info now = diloco_run_now(t->run);
        const double loss = t->step ? t->step(t, &now) : toy_step(t, &now);
        const diloco_step_report report = {
            .loss = loss, .samples = t->samples ? t->samples : 1, .tokens = 10};
        if (t->step_us) usleep(t->step_us);
        status = diloco_step(t->run, &report);
        if (!status && ++n == t->stop_after) return diloco_run_save(t->run);
    }
    return status;
}

static inline void toy_close(toy *t)
{
    void *places[TOY_N];
    const int n = t->fragments ? t->fragments : 1;
    for (int f = 0; f < n; f++)
        places[f] = t->theta + toy_begin(f, n);
    if (t->run) {
        t->end = diloco_run_now(t->run);
        if (!t->prepare) (void)!diloco_run_theta(t->run, places, (size_t)n);
    }
    diloco_run_close(t->run);
    t->run = NULL;
}

static inline diloco_status toy_live(toy *t)
{
    t->record_len = 0;
    t->status = toy_open(t);
    if (!t->status) t->status = diloco_run_join(t->run);
    if (!t->status) t->status = toy_train(t);
    if (t->status == DILOCO_EINTERRUPTED) (void)!diloco_run_save(t->run);
    if (t->status) snprintf(t->text, sizeof t->text, "%s", diloco_error_text());
    toy_close(t);
    return t->status;
}

static inline void *toy_thread(void *t)
{
    toy_live(t);
    return NULL;
}

/* All of them at once, each in a thread. */
static inline void toy_live_all(toy *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pthread_create(&all[i].thread, NULL, toy_thread, &all[i])) abort();
    for (size_t i = 0; i < n; i++)
        pthread_join(all[i].thread, NULL);
}

#define TOY_OK(t)                                                                                  \
    do {                                                                                           \
        if ((t).status)                                                                            \
            CHECK_FAIL("%s: %s: %s", (t).name, diloco_status_name((t).status), (t).text);          \
    } while (0)

/* r0, r1, … of one run, with `settings` and a state folder for all. */
static inline void toy_crew(toy *all, size_t n, const char *store, const char *state)
{
    static char count[8];
    snprintf(count, sizeof count, "%zu", n);
    for (size_t i = 0; i < n; i++) {
        char name[24];
        snprintf(name, sizeof name, "r%zu", i);
        all[i] = toy_of(name, store);
        toy_set(&all[i], "run.replicas", count);
        toy_set(&all[i], "run.state_dir", state);
    }
}

static inline void toy_set_all(toy *all, size_t n, const char *name, const char *value)
{
    for (size_t i = 0; i < n; i++)
        toy_set(&all[i], name, value);
}

static inline void toy_keep_record(toy *t)
{
    t->record = calloc(1, TOY_RECORD);
    t->record[0] = 0;
}

#endif
