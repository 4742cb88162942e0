/* spool_test.c - contributions that wait in files yield the same bits as those in memory. A
 * process's memory for them does not grow with their number.
 *
 * Each measurement is a process of its own, whose peak memory the kernel reports. */
#include "base/file.h"
#include "base/rng.h"
#include "check.h"
#include "high_water.h"
#include "log/contribution.h"
#include "outer/outer_step.h"
#include "sanitized.h"
#include "scratch.h"

#include <sys/wait.h>
#include <unistd.h>

enum { N = 1 << 18, FEW = 8, MANY = 72 }; /* a contribution is 1 MiB */

typedef struct outcome {
    dl_hash digest;
    uint64_t bytes; /* more than before the first contribution */
} outcome;

/* Places a contribution in its slot as a fetch does. */
static dl_contribution_data arrive(dl_slot *slot, size_t member, bool in_file)
{
    float *values = (void *)dl_slot_bytes(slot);
    dl_rng rng;
    dl_rng_init(&rng, 1, DL_STREAM(DL_STREAM_TEST, member), 0);
    for (size_t i = 0; i < N; i++)
        values[i] = dl_rng_f32(&rng) - 0.5f;
    dl_contribution_data data = {
        .payload = dl_slot_bytes(slot), .len = N * sizeof(float), .norm2 = 1};
    if (!in_file) return data;
    dl_map_let_go(values, N * sizeof(float));
    data.mapped = values;
    data.mapped_len = N * sizeof(float);
    return data;
}

static void take_step(outcome *out, size_t n_members, const char *folder, const char *combiner)
{
    static const diloco_tensor tensor = {"w", NULL, DILOCO_F32, DILOCO_PARAMETER, 1, {N}, 0};
    dl_config config;
    dl_manifest manifest;
    dl_codec_form form;
    dl_combine_rule rule;
    dl_outer_scratch *scratch;
    dl_pool *pool;
    dl_fragment_state state;
    dl_arena arena, measure = {0};
    dl_slot *slots[MANY];
    dl_contribution_data members[MANY];
    float weight[MANY];
    uint64_t raw[MANY];
    dl_outer_step_facts facts;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "server.diloco.combiner", combiner, "test"));
    CHECK_OK(dl_config_set(&config, "server.diloco.byzantine", "1", "test"));
    CHECK_OK(dl_manifest_init(&manifest, &tensor, 1, false));
    CHECK_OK(dl_codec_form_init(&form, &config, &manifest, 0));
    CHECK_OK(dl_combine_rule_of(&rule, &config));
    CHECK_OK(dl_pool_create(&pool, 2));
    CHECK_OK(dl_outer_scratch_create(&scratch, &manifest, &rule, n_members, 2));
    dl_outer_step_args args = {.manifest = &manifest,
                               .form = &form,
                               .outer = dl_outer_of(&config),
                               .scalars = {0.7f, 0.9f},
                               .n_members = n_members,
                               .members = members,
                               .weight = weight,
                               .raw = raw};
    dl_state_layout(&state, &measure, manifest.fragments[0], args.outer);
    CHECK_OK(dl_arena_init(&arena, measure.used));
    dl_state_layout(&state, &arena, manifest.fragments[0], args.outer);
    const uint64_t before = high_water();
    for (size_t m = 0; m < n_members; m++) {
        CHECK_OK(dl_slot_create(&slots[m], N * sizeof(float), folder));
        members[m] = arrive(slots[m], m, folder != NULL);
        weight[m] = 1.0f / (float)n_members;
        raw[m] = 1;
    }
    CHECK_OK(dl_outer_step(&state, &state, &args, &facts, scratch, pool));
    out->digest = state.digest;
    out->bytes = high_water() - before;
}

static outcome in_child(size_t n_members, const char *folder, const char *combiner)
{
    int ends[2];
    outcome out = {.bytes = 0};
    CHECK_INT(0, pipe(ends));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        take_step(&out, n_members, folder, combiner);
        _exit(write(ends[1], &out, sizeof out) == sizeof out ? 0 : 1);
    }
    close(ends[1]);
    CHECK_INT(sizeof out, read(ends[0], &out, sizeof out));
    close(ends[0]);
    CHECK_INT(child, waitpid(child, NULL, 0));
    return out;
}

static void check_combiner(const char *combiner, const char *folder)
{
    const outcome memory = in_child(MANY, NULL, combiner), file = in_child(MANY, folder, combiner),
                  few = in_child(FEW, folder, combiner);
    CHECK_BYTES(&memory.digest, &file.digest, sizeof file.digest);
#if !SANITIZED
    CHECK(memory.bytes >= (uint64_t)MANY << 20);
    /* A block of each is decoded, 16 KiB on each of two threads, and some is mapped meanwhile. */
    if (file.bytes > few.bytes + (12 << 20))
        CHECK_FAIL("%s: %d contributions in files took %.1f MB, %d of them %.1f MB", combiner, FEW,
                   (double)few.bytes * 1e-6, MANY, (double)file.bytes * 1e-6);
#else
    (void)few;
#endif
}

TEST(contributions_in_files_take_no_memory_and_change_no_bit)
{
    char *folder = scratch_folder("spool");
    check_combiner("mean", folder);
    check_combiner("krum", folder); /* which measures them before it combines them */
}

TEST_MAIN(contributions_in_files_take_no_memory_and_change_no_bit)
