/* capture_threads_test.c - the threads of a pool share a pass over a fragment. Their number does
 * not show in the bits of a capture with its copy, the beginning of an eager round, or an adoption.
 */
#include "exchange/exec_parts.h"

#include "base/rng.h"
#include "check.h"
#include "exchange/generations.h"
#include "run/open.h"

#include <stdlib.h>

enum { N_A = 3 * DL_BLOCK + 5, N_B = DL_BLOCK - 1, N = N_A + N_B };

/* The results of the passes. */
typedef struct result {
    float g[N], copy[N], start[N], local[N], momentum[N], mixed[N];
    double norm;
} result;

typedef struct world {
    dl_config config;
    dl_store *store;
    dl_runfile file;
    dl_exec *exec;
    float local[N];
    diloco_tensor tensors[2];
} world;

static void fill(float *values, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        values[i] = (float)(int32_t)(seed >> 32) / 4e9f;
    }
}

static void begin(world *w, dl_pool *pool, const char *overlap)
{
    static int n;
    char url[32];
    dl_hash digest;
    memset(w, 0, sizeof *w);
    dl_config_init(&w->config);
    snprintf(url, sizeof url, "mem://threads-%d", n++);
    const char *const options[][2] = {{"run.store", url},
                                      {"run.state_dir", "none"},
                                      {"trainer.local_steps_per_round", "4"},
                                      {"server.diloco.overlap", overlap},
                                      {"server.diloco.codec", "int8"}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        CHECK_OK(dl_config_set(&w->config, options[i][0], options[i][1], "test"));
    fill(w->local, N, 1);
    w->tensors[0] = (diloco_tensor){.name = "a", .data = w->local, .n_dims = 1, .shape = {N_A}};
    w->tensors[1] =
        (diloco_tensor){.name = "b", .data = w->local + N_A, .n_dims = 1, .shape = {N_B}};
    const dl_run_creation what = {
        .config = &w->config, .tensors = w->tensors, .n_tensors = 2, .data_digest = ""};
    CHECK_OK(dl_store_open(&w->store, url, true));
    CHECK_OK(dl_run_create_or_read(&w->file, &digest, w->store, &what));
    dl_exec_args args = {.store = w->store,
                         .run = &w->file,
                         .tensors = w->tensors,
                         .n_tensors = 2,
                         .max_members = 2,
                         .beside = true,
                         .trainer_pool = pool,
                         .n_copies = 2};
    CHECK_OK(dl_run_claim_generation(&args.self, w->store, "r0", &w->file, &w->file.config, NULL));
    CHECK_OK(dl_exec_create(&w->exec, &args));
    CHECK_OK(dl_snapshot_read_newest(dl_exec_state(w->exec), w->store, &w->file, digest, UINT64_MAX,
                                     NULL, DL_NEVER));
}

static void end(world *w)
{
    dl_exec_destroy(w->exec);
    dl_runfile_deinit(&w->file);
    dl_store_close(w->store);
}

static void capture(world *w, result *out)
{
    const dl_train_stats work = {.steps = 4, .samples = 4, .end_sample = 4, .position = 4};
    void *places[2] = {out->copy, out->copy + N_A};
    dl_exec_copy_to(w->exec, places);
    fill(w->local, N, 2); /* training */
    CHECK_OK(dl_exec_capture(w->exec, 0, 0, &work));
    CHECK_BYTES(w->local, out->copy, sizeof w->local);
    const dl_capture *c = dl_exec_captured(w->exec, 0);
    memcpy(out->g, c->g, sizeof out->g);
    out->norm = c->norm;
}

static void live(result *out, int threads)
{
    static world w;
    dl_pool *pool;
    CHECK_OK(dl_pool_create(&pool, threads));
    begin(&w, pool, "eager");
    dl_exec_begin_round(w.exec, 0, DL_NO_ENTRY, 0);
    capture(&w, out);
    dl_exec_decided(w.exec, 0, 0, true, true);
    dl_exec_begin_round(w.exec, 0, 0, 0.5f);
    memcpy(out->start, w.exec->capture.start, sizeof out->start);
    memcpy(out->local, w.local, sizeof out->local);
    memcpy(out->momentum, w.exec->capture.own_momentum, sizeof out->momentum);
    end(&w);
    begin(&w, pool, "steps");
    fill(w.local, N, 3);
    dl_exec_adopt(w.exec, 0, 0.25f);
    memcpy(out->mixed, w.local, sizeof out->mixed);
    end(&w);
    dl_pool_destroy(pool);
}

TEST(number_of_threads_does_not_show_in_the_bits)
{
    result *one = calloc(1, sizeof *one), *many = calloc(1, sizeof *many);
    CHECK(one && many);
    live(one, 1);
    CHECK(one->momentum[0] != 0 && one->momentum[N - 1] != 0);
    CHECK(one->start[0] == one->local[0] && one->start[0] != one->copy[0]);
    for (int threads = 2; threads < 5; threads++) {
        memset(many, 0, sizeof *many);
        live(many, threads);
        CHECK_BYTES(one, many, sizeof *one);
    }
    free(one), free(many);
}

TEST_MAIN(number_of_threads_does_not_show_in_the_bits)
