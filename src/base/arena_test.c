/* arena_test.c - measuring and laying out give the same sizes. */
#include "base/arena.h"

#include "check.h"
#include "scratch.h"

typedef struct thing {
    float *x;
    int64_t *y;
    char *empty;
} thing;

static void layout(thing *t, dl_arena *arena)
{
    t->x = DL_ARENA_ARRAY(arena, float, 1000);
    t->y = DL_ARENA_ARRAY(arena, int64_t, 3);
    t->empty = DL_ARENA_ARRAY(arena, char, 0);
}

TEST(a_measured_layout_fits_exactly)
{
    thing t;
    dl_arena measure = {0}, arena;
    layout(&t, &measure);
    CHECK(!t.x && !t.y && !t.empty);
    CHECK_INT(4032 + 64, measure.used);

    CHECK_OK(dl_arena_init(&arena, measure.used));
    layout(&t, &arena);
    CHECK_INT(measure.used, arena.used);
    CHECK_INT(arena.size, arena.used);
    CHECK(t.x && t.y && t.empty);
    CHECK_INT(0, (uintptr_t)t.x % DL_ARENA_ALIGN);
    CHECK_INT(0, (uintptr_t)t.y % DL_ARENA_ALIGN);
    CHECK_INT(4032, (char *)t.y - (char *)t.x);
    dl_arena_deinit(&arena);
}

static void check_zeroed(size_t size)
{
    dl_arena arena;
    CHECK_OK(dl_arena_init(&arena, size));
    unsigned char *bytes = dl_arena_take(&arena, size);
    for (size_t i = 0; i < size; i++)
        if (bytes[i]) CHECK_FAIL("size %zu: byte %zu is %u", size, i, bytes[i]);
    memset(bytes, 0xFF, size);
    dl_arena_deinit(&arena);
    CHECK(!arena.base && arena.size == 0 && arena.used == 0);
}

TEST(memory_is_zeroed_on_both_sides_of_the_mmap_border)
{
    check_zeroed(1);
    check_zeroed((1 << 20) - 64);
    check_zeroed(1 << 20);
    check_zeroed((1 << 20) + 1);
    check_zeroed(3 << 20);
}

TEST(pages_that_are_let_go_are_zero_and_their_neighbours_stay)
{
    enum { SIZE = 3 << 20, BEGIN = 100, LEN = 2 << 20, PAGES_MAX = 1 << 16 };
    dl_arena arena;
    CHECK_OK(dl_arena_init(&arena, SIZE));
    unsigned char *bytes = dl_arena_take(&arena, SIZE);
    memset(bytes, 0xAB, SIZE);
    dl_arena_let_go(bytes + BEGIN, LEN);
    for (size_t i = 0; i < SIZE; i++) {
        const bool inside = i >= BEGIN && i < BEGIN + LEN;
        const bool deep = i >= BEGIN + PAGES_MAX && i < BEGIN + LEN - PAGES_MAX;
        if (!inside) CHECK_INT(0xAB, bytes[i]);
        if (deep) CHECK_INT(0, bytes[i]);
    }
    dl_arena_let_go(bytes + 10, 20); /* no whole page */
    CHECK_INT(0xAB, bytes[10]);
    dl_arena_deinit(&arena);
}

TEST(an_arena_in_a_file_is_zeroed_and_keeps_offloaded_values)
{
    enum { SIZE = (1 << 20) + 100 };
    dl_arena arena;
    CHECK_OK(dl_arena_init_file(&arena, SIZE, scratch_folder("arena"), "test"));
    unsigned char *bytes = dl_arena_take(&arena, SIZE);
    for (size_t i = 0; i < SIZE; i++) {
        if (bytes[i]) CHECK_FAIL("byte %zu is %u", i, bytes[i]);
        bytes[i] = (unsigned char)(i % 251);
    }
    dl_arena_put_out(bytes + 1, SIZE - 1);
    dl_arena_put_out(bytes + 1, 10); /* no whole page */
    for (size_t i = 0; i < SIZE; i++)
        if (bytes[i] != i % 251) CHECK_FAIL("byte %zu is %u", i, bytes[i]);
    dl_arena_deinit(&arena);
    CHECK_STATUS(DILOCO_ENOENT, dl_arena_init_file(&arena, SIZE, scratch_path("none"), "test"));
    CHECK_CONTAINS("create a file for the test in", diloco_error_text());
    dl_arena_deinit(&arena); /* nothing */
}

TEST(an_arena_of_nothing_gives_pointers_to_nothing)
{
    dl_arena arena;
    CHECK_OK(dl_arena_init(&arena, 0));
    CHECK(dl_arena_take(&arena, 0) != NULL);
    dl_arena_deinit(&arena);
}

TEST(sizes_that_overflow_are_refused_as_no_memory)
{
    dl_arena measure = {0}, arena;
    CHECK(!dl_arena_take_array(&measure, SIZE_MAX / 4, 8));
    CHECK(!dl_arena_take(&measure, 64));
    CHECK(measure.used == SIZE_MAX);
    CHECK_STATUS(DILOCO_ENOMEM, dl_arena_init(&arena, measure.used));
    CHECK(!arena.base);
    CHECK_STATUS(DILOCO_ENOMEM, dl_arena_init(&arena, SIZE_MAX / 2));
    dl_arena_deinit(&arena);
}

TEST_MAIN(a_measured_layout_fits_exactly, an_arena_in_a_file_is_zeroed_and_keeps_offloaded_values,
          memory_is_zeroed_on_both_sides_of_the_mmap_border,
          pages_that_are_let_go_are_zero_and_their_neighbours_stay,
          an_arena_of_nothing_gives_pointers_to_nothing,
          sizes_that_overflow_are_refused_as_no_memory)
