/* alloc_test.c - after the first synchronisation nothing is taken from the heap. */
#include "count_alloc.h"
#include "loop_world.h"

static void steps(world_member *m, int n)
{
    for (int s = 0; s < n; s++) {
        for (int i = 0; i < 37; i++)
            m->w[i] += 0.01f * (float)(i % 11 - 5);
        m->refuse = s % 5 == 4;
        CHECK_OK(diloco_loop_step(m->loop));
    }
}

TEST(a_synchronisation_allocates_nothing_once_one_was_made)
{
    if (!count_alloc_works()) {
        print_message("left out: calls of malloc are not counted under a sanitizer\n");
        skip();
    }
    static world w;
    diloco_loop_options options = {.size = sizeof options,
                                   .fragments = 2,
                                   .sync_every = 4,
                                   .fragment_sync_delay = 1,
                                   .fragment_update_alpha = 0.5,
                                   .bucket_bytes = 40,
                                   .n_threads = 2};
    world_begin(&w, 1, &options);
    world_member *m = &w.members[0];
    world_tensor(m, "a", 0, 25, 0);
    world_tensor(m, "b", 25, 12, 1);
    CHECK_OK(diloco_loop_start(m->loop));
    steps(m, 2);
    size_t before = count_alloc();
    steps(m, 40);
    CHECK_INT(before, count_alloc());
    CHECK(m->commits > 10);
    world_end(&w);
}

TEST_MAIN(a_synchronisation_allocates_nothing_once_one_was_made)
