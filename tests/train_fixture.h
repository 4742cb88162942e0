/* train_fixture.h - a tiny run for tests of src/train: text, settings, replicas as threads, and
 * their results. */
#ifndef DL_TESTS_TRAIN_FIXTURE_H
#define DL_TESTS_TRAIN_FIXTURE_H

#include "base/json.h"
#include "base/rng.h"
#include "check.h"
#include "scratch.h"
#include "train/setup.h"
#include <diloco/train.h>

#include <pthread.h>

enum { FIXTURE_MAX_REPLICAS = 4 };

/* Words in a seeded order: something can be learnt, and shards differ. */
static inline const char *fixture_text(void)
{
    static char *path;
    static const char *const words[] = {"the ", "run ",  "of ",    "a ",     "log ", "is ",
                                        "and ", "step ", "moves ", "model ", "by ",  "its "};
    if (path) return path;
    char text[20000];
    size_t len = 0;
    for (uint64_t i = 0; len + 8 < sizeof text; i++) {
        uint32_t draw[4];
        dl_philox(draw, 7, DL_STREAM(DL_STREAM_TEST, 0), i);
        const char *word = words[draw[0] % 12];
        memcpy(text + len, word, strlen(word));
        len += strlen(word);
    }
    return path = scratch_write("text.txt", text, len);
}

static inline void set(dl_config *config, const char *name, const char *value)
{
    CHECK_OK(dl_config_set(config, name, value, "test"));
}

/* A model of a few thousand parameters, 2 entries of 4 steps, a store of its own. It is not freed:
 * a test program is short. */
static inline dl_config *fixture_config(const char *preset)
{
    static int n_stores;
    char name[32];
    dl_config *config = malloc(sizeof *config);
    CHECK(config != NULL);
    dl_config_init(config);
    CHECK_OK(diloco_preset_apply(config, preset));
    snprintf(name, sizeof name, "run%d", n_stores++);
    set(config, "run.store", scratch_path(name));
    set(config, "run.threads", "1");
    set(config, "trainer.rounds", "2");
    if (strcmp(preset, "data_parallel") != 0) set(config, "trainer.local_steps_per_round", "4");
    set(config, "trainer.batch_size", "2");
    set(config, "parameters.optimizer.lr", "1e-3");
    set(config, "parameters.model.layers", "1");
    set(config, "parameters.model.heads", "2");
    set(config, "parameters.model.channels", "16");
    set(config, "parameters.model.context", "16");
    set(config, "data.train_path", fixture_text());
    return config;
}

/* ---- the record of a replica */

typedef struct fixture_record {
    char **lines;
    size_t n;
    uint64_t stop_at; /* position after which the replica is asked to stop; 0: never */
    volatile int stop;
} fixture_record;

static inline void fixture_on_record(void *user, const char *line, size_t len)
{
    fixture_record *record = user;
    record->lines = realloc(record->lines, (record->n + 1) * sizeof *record->lines);
    record->lines[record->n++] = strndup(line, len);
}

static inline void fixture_on_progress(void *user, const diloco_progress *progress)
{
    fixture_record *record = user;
    bool stepped = strcmp(progress->phase, "join") != 0;
    if (stepped && progress->position + 1 == record->stop_at)
        __atomic_store_n(&record->stop, 1, __ATOMIC_RELAXED);
}

static inline void fixture_record_free(fixture_record *record)
{
    for (size_t i = 0; i < record->n; i++)
        free(record->lines[i]);
    free(record->lines);
    *record = (fixture_record){0};
}

/* Line i when it is of this event; MISSING otherwise. */
static inline dl_json_value fixture_event(const fixture_record *record, size_t i, const char *event)
{
    dl_json_value value;
    CHECK_OK(dl_json_parse(&value, record->lines[i], strlen(record->lines[i])));
    return dl_json_is(dl_json_get(value, "event"), event) ? value : (dl_json_value){0};
}

static inline size_t fixture_count(const fixture_record *record, const char *event)
{
    size_t n = 0;
    for (size_t i = 0; i < record->n; i++)
        n += fixture_event(record, i, event).type == DL_JSON_OBJECT;
    return n;
}

/* The k-th line of an event, k from 0. */
static inline dl_json_value fixture_nth(const fixture_record *record, const char *event, size_t k)
{
    for (size_t i = 0; i < record->n; i++) {
        dl_json_value value = fixture_event(record, i, event);
        if (value.type == DL_JSON_OBJECT && k-- == 0) return value;
    }
    CHECK_FAIL("the record has not so many \"%s\" lines", event);
    return (dl_json_value){0};
}

static inline double fixture_number(dl_json_value event, const char *key)
{
    double value = NAN;
    CHECK_OK(dl_json_read_f64(&value, event, key));
    return value;
}

static inline uint64_t fixture_whole(dl_json_value event, const char *key)
{
    uint64_t value = 0;
    CHECK_OK(dl_json_read_u64(&value, event, key, UINT64_MAX));
    return value;
}

/* ---- replicas as threads */

typedef struct fixture_replica {
    const dl_config *config;
    char name[8];
    fixture_record *record;
    diloco_status status;
    char text[512];
    pthread_t thread;
} fixture_replica;

static inline void *fixture_run(void *user)
{
    fixture_replica *replica = user;
    diloco_train_hooks hooks = {.on_progress = fixture_on_progress,
                                .on_record = fixture_on_record,
                                .user = replica->record,
                                .stop = &replica->record->stop};
    replica->status = diloco_train(replica->config, replica->name, &hooks);
    snprintf(replica->text, sizeof replica->text, "%s", replica->status ? diloco_error_text() : "");
    return NULL;
}

/* Run replicas r0 … to the end, each with its outcome; records[n] are filled. */
static inline fixture_replica *fixture_run_all(const dl_config *config, fixture_record *records,
                                               size_t n)
{
    static fixture_replica replicas[FIXTURE_MAX_REPLICAS];
    for (size_t i = 0; i < n; i++) {
        replicas[i] = (fixture_replica){.config = config, .record = &records[i]};
        snprintf(replicas[i].name, sizeof replicas[i].name, "r%zu", i);
        CHECK_INT(0, pthread_create(&replicas[i].thread, NULL, fixture_run, &replicas[i]));
    }
    for (size_t i = 0; i < n; i++)
        pthread_join(replicas[i].thread, NULL);
    return replicas;
}

/* The same, and every replica has to succeed. */
static inline void fixture_train(const dl_config *config, fixture_record *records, size_t n)
{
    const fixture_replica *replicas = fixture_run_all(config, records, n);
    for (size_t i = 0; i < n; i++)
        if (replicas[i].status) CHECK_FAIL("%s: %s", replicas[i].name, replicas[i].text);
}

/* ---- parameters */

/* A model's parameters on the host; the caller frees them. */
static inline float *fixture_parameters(const dl_setup *setup)
{
    size_t n = dl_model_n_parameters(setup->model);
    float *out = malloc(n * sizeof *out);
    CHECK(out != NULL);
    dl_backend_copy_out(setup->backend, out, dl_model_parameters(setup->model), n * sizeof *out);
    return out;
}

static inline void fixture_set_parameters(const dl_setup *setup, const float *from)
{
    size_t n = dl_model_n_parameters(setup->model);
    dl_backend_copy_in(setup->backend, dl_model_parameters(setup->model), from, n * sizeof *from);
}

/* The model's initial parameters by the configuration's seed. */
static inline void fixture_initial(const dl_setup *setup)
{
    float *values = fixture_parameters(setup);
    dl_model_initial(setup->model, values, (uint64_t)setup->config.seed);
    fixture_set_parameters(setup, values);
    free(values);
}

/* A model's gradients on the host; the caller frees them. */
static inline float *fixture_gradients(const dl_setup *setup)
{
    size_t n = dl_model_n_parameters(setup->model);
    float *out = malloc(n * sizeof *out);
    CHECK(out != NULL);
    dl_backend_copy_out(setup->backend, out, dl_model_gradients(setup->model), n * sizeof *out);
    return out;
}

/* theta after the run's last entry. */
static inline float *fixture_theta(const dl_config *config, size_t *n)
{
    dl_setup setup;
    uint64_t entry;
    CHECK_OK(dl_setup_open_run(&setup, &entry, config, 1, 1));
    *n = dl_model_n_parameters(setup.model);
    float *theta = fixture_parameters(&setup);
    dl_setup_close(&setup);
    return theta;
}

static inline double fixture_distance(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

#endif
