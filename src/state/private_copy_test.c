/* private_copy_test.c - the memory of the copies for saves beside training. */
#include "state/private_state.h"

#include "base/file.h"
#include "check.h"
#include "sanitized.h"
#include "scratch.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGE = 64 << 20 };

static atomic_size_t available_kb; /* 0: the machine's */

/* Replaces the C library's function. */
__attribute__((visibility("default"))) FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*_Atomic real)(const char *, const char *);
    static char meminfo[64];
    if (!real) real = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
    if (!atomic_load(&available_kb) || strcmp(path, "/proc/meminfo")) return real(path, mode);
    snprintf(meminfo, sizeof meminfo, "MemAvailable: %zu kB\n", atomic_load(&available_kb));
    return fmemopen(meminfo, strlen(meminfo), "r");
}

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
        CHECK(dl_local_has_room(s.local, 0, 0, 0, s.pool));
        const size_t grown = resident() - before;
        CHECK(grown >= LARGE / 4 && (grown >= LARGE) == in_flight);
        CHECK(dl_local_has_room(s.local, 0, SIZE_MAX, 0, s.pool)); /* it is taken already */
        scene_end(&s);
    }
}

TEST(a_copy_of_more_than_the_share_of_the_free_memory_is_refused)
{
    scene s;
    scene_begin(&s, "share", SIZE_MAX / 2, false);
    CHECK(!dl_local_has_room(s.local, 0, 0, 0, s.pool));
    CHECK_CONTAINS("out of memory for a copy of", diloco_error_text());
    scene_end(&s);
}

TEST(a_copy_that_leaves_too_little_memory_for_what_the_process_takes_later_is_refused)
{
    scene s;
    scene_begin(&s, "later", 1, false);
    const size_t before = resident();
    CHECK(!dl_local_has_room(s.local, 0, SIZE_MAX, 0, s.pool));
    CHECK(SANITIZED || resident() - before < LARGE / 8);
    CHECK(dl_local_has_room(s.local, 0, 0, 0, s.pool));
    scene_end(&s);
}

static diloco_status fill_with_numbers(void *user, void *to)
{
    memset(to, *(int *)user, LARGE / 4);
    return DILOCO_OK;
}

/* The largest private piece is in the borrowed memory, and the tensor is not. */
TEST(a_copy_with_borrowed_memory_gives_the_file_of_a_save)
{
    enum { LEN = LARGE / 4, N = 1000 };
    static float w[N];
    unsigned char small[100] = {5}; /* it must not take the place of the large one */
    static dl_local_facts facts = {.run = "0123456789abcdef0123456789abcdef", .replica = "r0"};
    int number = 7;
    scene s;
    dl_map saved, copied;
    char path[PATH_MAX];
    s.memory = calloc(1, LARGE);
    unsigned char *lent = aligned_alloc(64, LEN);
    CHECK(s.memory && lent);
    const diloco_tensor tensor = {"w", w, DILOCO_F32, DILOCO_PARAMETER, 1, {N}, 0};
    const dl_private pieces[] = {
        {.name = "a", .data = s.memory, .len = LEN, .fill = fill_with_numbers, .user = &number},
        {.name = "b", .data = small, .len = sizeof small},
        {.name = "c", .data = s.memory, .len = LARGE, .in_use = &unused}};
    const dl_local_copied_parts parts = {
        .tensors = &tensor, .n_tensors = 1, .privates = pieces, .n_privates = 3, .n_sharing = 1};
    snprintf(path, sizeof path, "%s/r0/local.safetensors", scratch_path("borrowed"));
    CHECK_OK(dl_local_open(&s.local, scratch_path("borrowed"), "r0"));
    CHECK_OK(dl_pool_create(&s.pool, 2));
    CHECK_OK(dl_local_fill_in_place(pieces, 3));
    CHECK_OK(dl_local_save(s.local, &facts, &tensor, 1, pieces, 3));
    CHECK_OK(dl_map_open(&saved, path));
    CHECK_OK(dl_local_prepare_copies(s.local, &parts));
    atomic_store(&available_kb, LEN >> 10); /* its half is too little for a whole copy */
    CHECK(!dl_local_has_room(s.local, 0, 0, 0, s.pool));
    CHECK(!dl_local_has_room(s.local, 1, 0, LEN, s.pool));
    CHECK(dl_local_has_room(s.local, 0, 0, LEN, s.pool));
    CHECK(dl_local_borrows(s.local, 0) && !dl_local_borrows(s.local, 1));
    atomic_store(&available_kb, 0);
    void *places[1] = {&s};
    const dl_local_copying args = {.facts = &facts,
                                   .tensors = &tensor,
                                   .n_tensors = 1,
                                   .privates = pieces,
                                   .n_privates = 3,
                                   .places = places,
                                   .pool = s.pool};
    dl_local_lend(s.local, 0, lent);
    CHECK_OK(dl_local_fill(s.local, 0, &args));
    CHECK_OK(dl_local_copy(s.local, 0, &args));
    dl_local_copy_rest(s.local, 0, &args);
    CHECK_INT(7, lent[LEN - 1]);
    memset(s.memory, 1, LARGE);
    w[0] = 1; /* the next step */
    small[0] = 1;
    CHECK_OK(dl_local_write(s.local, 0));
    CHECK_OK(dl_map_open(&copied, path));
    CHECK_INT(saved.len, copied.len);
    CHECK_BYTES(saved.data, copied.data, saved.len);
    dl_map_close(&saved);
    dl_map_close(&copied);
    scene_end(&s);
    free(lent);
}

/* Ranks that do not lead have such pieces. */
static diloco_status note_place(void *user, void *to)
{
    *(void **)user = to;
    return DILOCO_OK;
}

TEST(a_piece_without_bytes_has_a_place_in_the_copy)
{
    void *place = NULL;
    scene s = {.memory = NULL};
    const dl_private empty = {.name = "empty", .fill = note_place, .user = &place};
    const dl_local_copied_parts parts = {.privates = &empty, .n_privates = 1, .n_sharing = 1};
    const dl_local_copying args = {.privates = &empty, .n_privates = 1};
    CHECK_OK(dl_local_open(&s.local, scratch_path("empty"), "r0"));
    CHECK_OK(dl_pool_create(&s.pool, 1));
    CHECK_OK(dl_local_prepare_copies(s.local, &parts));
    CHECK(dl_local_has_room(s.local, 0, 0, LARGE, s.pool));
    CHECK(!dl_local_borrows(s.local, 0));
    CHECK_OK(dl_local_fill(s.local, 0, &args));
    CHECK(place != NULL);
    scene_end(&s);
}

TEST_MAIN(a_copy_takes_no_memory_for_privates_that_most_saves_leave_out,
          a_copy_of_more_than_the_share_of_the_free_memory_is_refused,
          a_copy_that_leaves_too_little_memory_for_what_the_process_takes_later_is_refused,
          a_copy_with_borrowed_memory_gives_the_file_of_a_save,
          a_piece_without_bytes_has_a_place_in_the_copy)
