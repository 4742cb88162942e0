/* private_copy_test.c - the memory of the copies for saves beside training. */
#include "state/private_state.h"

#include "check.h"
#include "sanitized.h"
#include "scratch.h"

#include <stdio.h>
#include <unistd.h>

enum { LARGE = 64 << 20 };

/* Bytes of this process in memory now. */
static size_t resident(void)
{
    size_t total = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%zu %zu", &total, &pages) == 2);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static const bool unused = false;

typedef struct scene {
    dl_local *local;
    dl_private privates[2]; /* the second one may be left out */
    void *memory;
    dl_pool *pool;
} scene;

static void scene_begin(scene *s, const char *name, size_t n_sharing, bool in_flight)
{
    *s = (scene){.memory = calloc(1, LARGE)};
    CHECK(s->memory != NULL);
    s->privates[0] = (dl_private){.name = "always", .data = s->memory, .len = LARGE / 4};
    s->privates[1] =
        (dl_private){.name = "rarely", .data = s->memory, .len = LARGE, .in_use = &unused};
    const dl_local_copied_parts parts = {
        .privates = s->privates, .n_privates = 2, .n_sharing = n_sharing, .in_flight = in_flight};
    CHECK_OK(dl_local_open(&s->local, scratch_path(name), "r0"));
    CHECK_OK(dl_local_prepare_copies(s->local, &parts));
    CHECK_OK(dl_pool_create(&s->pool, 1));
}

static void scene_end(scene *s)
{
    dl_pool_destroy(s->pool);
    dl_local_close(s->local);
    free(s->memory);
}

TEST(a_copy_takes_no_memory_for_privates_that_most_saves_leave_out)
{
    if (SANITIZED) {
        print_message("left out: a sanitizer takes memory of its own\n");
        skip();
    }
    for (int in_flight = 0; in_flight < 2; in_flight++) {
        scene s;
        scene_begin(&s, in_flight ? "in_flight" : "left_out", 1, in_flight);
        const size_t before = resident();
        CHECK(dl_local_has_room(s.local, 0, 0, s.pool));
        const size_t grown = resident() - before;
        CHECK(grown >= LARGE / 4 && (grown >= LARGE) == in_flight);
        CHECK(dl_local_has_room(s.local, 0, SIZE_MAX, s.pool)); /* it is taken already */
        scene_end(&s);
    }
}

TEST(a_copy_of_more_than_the_share_of_the_free_memory_is_refused)
{
    scene s;
    scene_begin(&s, "share", SIZE_MAX / 2, false);
    CHECK(!dl_local_has_room(s.local, 0, 0, s.pool));
    CHECK_CONTAINS("out of memory for a copy of", diloco_error_text());
    scene_end(&s);
}

TEST(a_copy_that_leaves_too_little_memory_for_what_the_process_takes_later_is_refused)
{
    scene s;
    scene_begin(&s, "later", 1, false);
    const size_t before = resident();
    CHECK(!dl_local_has_room(s.local, 0, SIZE_MAX, s.pool));
    CHECK(SANITIZED || resident() - before < LARGE / 8);
    CHECK(dl_local_has_room(s.local, 0, 0, s.pool));
    scene_end(&s);
}

TEST_MAIN(a_copy_takes_no_memory_for_privates_that_most_saves_leave_out,
          a_copy_of_more_than_the_share_of_the_free_memory_is_refused,
          a_copy_that_leaves_too_little_memory_for_what_the_process_takes_later_is_refused)
