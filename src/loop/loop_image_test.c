/* loop_image_test.c - the outer state saved, loaded, and damaged. */
#include "loop_world.h"
#include "scratch.h"

enum { N = 20 };

/* Fragments "a" and "c" of 12 elements, "b" of 8, alpha 1/4, one step into a run of them. */
static void begin(world *w, diloco_loop_options options, diloco_config *config)
{
    options.size = sizeof options;
    options.fragments = 2;
    if (!options.sync_every) options.sync_every = 4;
    options.fragment_update_alpha = 0.25;
    options.config = config;
    world_begin(w, 1, &options);
    world_member *m = &w->members[0];
    world_tensor(m, "a", 0, 6, 0);
    world_tensor(m, "b", 6, 8, 1);
    world_tensor(m, "c", 14, 6, 0);
    CHECK_OK(diloco_loop_start(m->loop));
}

static void train(world_member *m, int from, int to)
{
    for (int step = from; step < to; step++) {
        for (int i = 0; i < N; i++)
            m->w[i] += 0.01f * (float)((i * 7 + step * 5) % 11 - 5);
        CHECK_OK(diloco_loop_step(m->loop));
    }
}

TEST(lib_13_a_saved_and_loaded_loop_resumes_to_the_bit)
{
    const char *rows[] = {"nesterov", "adam", "delayed_nesterov", "sgd"};
    for (int k = 0; k < 4; k++) {
        const char *path = scratch_path("loop.safetensors");
        diloco_config *config = world_outer(rows[k], "0.5");
        world whole, before, after;
        begin(&whole, (diloco_loop_options){0}, config);
        begin(&before, (diloco_loop_options){0}, config);
        begin(&after, (diloco_loop_options){0}, config);
        train(&whole.members[0], 0, 23);
        train(&before.members[0], 0, 11);
        CHECK_OK(diloco_loop_save(before.members[0].loop, path));
        CHECK_OK(diloco_loop_load(after.members[0].loop, path));
        memcpy(after.members[0].w, before.members[0].w, sizeof before.members[0].w);
        after.members[0].commits = before.members[0].commits; /* the communicator's own */
        train(&after.members[0], 11, 23);
        CHECK_BYTES(whole.members[0].w, after.members[0].w, N * sizeof(float));
        diloco_loop_info now = {.size = sizeof now};
        diloco_loop_now(after.members[0].loop, &now);
        CHECK_INT(11, now.commits);
        CHECK_INT(1, now.step);
        world_end(&whole), world_end(&before), world_end(&after);
        diloco_config_destroy(config);
    }
}

static void check_not_loaded(diloco_status expected, const char *words, diloco_loop *loop,
                             const char *path)
{
    char before[33], after[33];
    CHECK_OK(diloco_loop_digest(loop, before));
    CHECK_STATUS(expected, diloco_loop_load(loop, path));
    CHECK_CONTAINS(words, diloco_error_text());
    CHECK_OK(diloco_loop_digest(loop, after));
    CHECK_STR(before, after);
}

static void check_other(const char *words, const char *path, diloco_loop_options options,
                        const char *row)
{
    world w;
    diloco_config *config = world_outer(row, "0.5");
    begin(&w, options, config);
    check_not_loaded(DILOCO_EDIFFERS, words, w.members[0].loop, path);
    world_end(&w);
    diloco_config_destroy(config);
}

TEST(a_state_of_another_training_is_refused_and_the_difference_named)
{
    world w, other;
    const char *path = scratch_path("loop.safetensors");
    begin(&w, (diloco_loop_options){0}, NULL);
    CHECK_OK(diloco_loop_save(w.members[0].loop, path));
    check_other("outer optimizer nesterov", path, (diloco_loop_options){0}, "momentum");
    check_other("sync_every 4", path, (diloco_loop_options){.sync_every = 6}, "nesterov");
    diloco_loop_options options = {.size = sizeof options, .fragments = 2, .sync_every = 4};
    world_begin(&other, 1, &options);
    world_member *m = &other.members[0];
    world_tensor(m, "a", 0, 5, 0); /* one less */
    world_tensor(m, "b", 6, 8, 1);
    world_tensor(m, "c", 14, 6, 0);
    CHECK_OK(diloco_loop_start(m->loop));
    check_not_loaded(DILOCO_EDIFFERS, "theta.a has another type or shape", m->loop, path);
    world_end(&other);
    world_begin(&other, 1, &options);
    world_tensor(m, "a", 0, 6, 0);
    world_tensor(m, "B", 6, 8, 1);
    world_tensor(m, "c", 14, 6, 0);
    CHECK_OK(diloco_loop_start(m->loop));
    check_not_loaded(DILOCO_EDIFFERS, "there is no theta.B", m->loop, path);
    world_end(&other);
    check_not_loaded(DILOCO_ENOENT, "none", w.members[0].loop, scratch_path("none"));
    world_end(&w);
}

TEST(no_damaged_byte_gets_in)
{
    static unsigned char bytes[8192];
    world w;
    const char *path = scratch_path("loop.safetensors"), *bad = scratch_path("bad");
    begin(&w, (diloco_loop_options){0}, NULL);
    train(&w.members[0], 0, 5);
    CHECK_OK(diloco_loop_save(w.members[0].loop, path));
    FILE *f = fopen(path, "rb");
    CHECK(f != NULL);
    size_t len = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    CHECK(len > 200 && len < sizeof bytes);
    for (size_t i = 0; i < len; i++) { /* header padding is the only thing without a meaning */
        char before[33], after[33];
        CHECK_OK(diloco_loop_digest(w.members[0].loop, before));
        bytes[i] ^= 1;
        CHECK((f = fopen(bad, "wb")) != NULL);
        CHECK_INT(len, fwrite(bytes, 1, len, f));
        fclose(f);
        diloco_status status = diloco_loop_load(w.members[0].loop, bad);
        if (bytes[i] != (' ' ^ 1)) CHECK(status == DILOCO_EPROTO || status == DILOCO_EDIFFERS);
        CHECK_OK(diloco_loop_digest(w.members[0].loop, after));
        CHECK_STR(before, after);
        bytes[i] ^= 1;
    }
    CHECK((f = fopen(bad, "wb")) != NULL);
    CHECK_INT(len - 1, fwrite(bytes, 1, len - 1, f));
    fclose(f);
    check_not_loaded(DILOCO_EPROTO, "bad", w.members[0].loop, bad);
    CHECK_OK(diloco_loop_load(w.members[0].loop, path));
    world_end(&w);
}

TEST_MAIN(lib_13_a_saved_and_loaded_loop_resumes_to_the_bit,
          a_state_of_another_training_is_refused_and_the_difference_named, no_damaged_byte_gets_in)
