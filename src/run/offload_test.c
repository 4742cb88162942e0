/* offload_test.c - run.offload = "disk": fragments that are not being exchanged are not in memory,
 * by the system's count of this process. Every bit of the run is the same. */
#include "check.h"
#include "scratch.h"

#include "run/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { P = 8, N = 1 << 18, H = 16 }; /* 8 fragments of 1 MiB */
static const size_t FRAGMENT = N * sizeof(float);

/* Returns the bytes of that kind in this process's memory: "VmRSS:", "RssAnon:". */
static size_t in_memory(const char *kind)
{
    char line[256];
    size_t kilobytes = 0;
    FILE *f = fopen("/proc/self/status", "r");
    CHECK(f);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, kind, strlen(kind))) kilobytes = strtoul(line + strlen(kind), NULL, 10);
    fclose(f);
    CHECK(kilobytes > 0);
    return kilobytes << 10;
}

static diloco_run *open_run(const char *folder, const char *offload, float *w)
{
    char store[256], state[256], name[8];
    const char *const options[][2] = {{"run.store", store},
                                      {"run.state_dir", state},
                                      {"run.offload", offload},
                                      {"run.heartbeat", "5"},
                                      {"trainer.rounds", "3"},
                                      {"trainer.local_steps_per_round", "16"},
                                      {"server.diloco.fragments", "8"},
                                      {"server.diloco.overlap_steps", "1"},
                                      {"server.diloco.local_mix", "0.5"}};
    snprintf(store, sizeof store, "file://%s/%s", folder, offload);
    snprintf(state, sizeof state, "%s/%s.local", folder, offload);
    diloco_config *config = diloco_config_create();
    diloco_run *run;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        CHECK_OK(diloco_config_set(config, options[i][0], options[i][1], "test"));
    CHECK_OK(diloco_run_open(&run, config, "r0"));
    diloco_config_destroy(config);
    for (int f = 0; f < P; f++) {
        snprintf(name, sizeof name, "w%d", f);
        const diloco_tensor t = {
            .name = name, .data = w + f * N, .n_dims = 1, .shape = {N}, .fragment = f};
        CHECK_OK(diloco_run_tensor(run, &t));
    }
    CHECK_OK(diloco_run_join(run));
    return run;
}

/* Trains a run to its end. *most: the largest mean over a rotation of its memory between steps,
 * beyond the memory before it. */
static dl_hash train(const char *folder, const char *offload, size_t *most)
{
    static float w[P * N];
    size_t sum = 0, n = 0;
    *most = 0;
    for (size_t i = 0; i < P * N; i++)
        w[i] = (float)(i % 1000) / 1000;
    const size_t before = in_memory("VmRSS:");
    diloco_run *run = open_run(folder, offload, w);
    while (!diloco_run_done(run)) {
        for (size_t i = 0; i < P * N; i++)
            w[i] -= 1e-3f * w[i];
        CHECK_OK(diloco_step(run, &(diloco_step_report){.loss = 1, .samples = 1, .tokens = 1}));
        sum += in_memory("VmRSS:") - before;
        if (++n % H) continue;
        if (sum / H > *most) *most = sum / H;
        sum = 0;
    }
    const dl_hash digest = dl_state_digest_all(dl_exec_state(run->exec));
    diloco_run_close(run);
    return digest;
}

TEST(alg_26_on_disk_outer_state_is_in_memory_only_while_its_fragment_is_exchanged)
{
    char *folder = scratch_folder("offload");
    size_t kept, offloaded;
    const dl_hash want = train(folder, "none", &kept), got = train(folder, "disk", &offloaded);
    CHECK(dl_hash_equal(want, got));
    /* theta and momentum, each twice, of all but two of the fragments */
    const size_t gone = 4 * (P - 2) * FRAGMENT;
    if (offloaded + gone > kept + FRAGMENT)
        CHECK_FAIL("%.1f MiB in memory with the state on disk, %.1f without; %.1f may be gone",
                   (double)offloaded / (1 << 20), (double)kept / (1 << 20),
                   (double)gone / (1 << 20));
}

TEST(offload_to_memory_is_refused_on_every_device)
{
    static const char *const devices[] = {"cpu", "cuda"};
    for (size_t i = 0; i < 2; i++) {
        diloco_config *config = diloco_config_create();
        diloco_run *run;
        CHECK_OK(diloco_config_set(config, "run.store", "mem://offload", "test"));
        CHECK_OK(diloco_config_set(config, "trainer.device", devices[i], "test"));
        CHECK_OK(diloco_config_set(config, "run.offload", "memory", "test"));
        CHECK_STATUS(DILOCO_EREFUSED, diloco_run_open(&run, config, "r0"));
        CHECK_CONTAINS("outer state is in host memory with every trainer.device",
                       diloco_error_text());
        diloco_config_destroy(config);
    }
}

TEST_MAIN(alg_26_on_disk_outer_state_is_in_memory_only_while_its_fragment_is_exchanged,
          offload_to_memory_is_refused_on_every_device)
