/* remove_test.c - a removed run leaves nothing of its own, and takes nothing else. */
#include "toy_run.h"

#include "base/config.h"
#include "store/store.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>

static uint64_t deletions_left = UINT64_MAX;

/* Replaces the C library's function, so that a removal can be interrupted after any object. */
__attribute__((visibility("default"))) int unlinkat(int folder, const char *name, int flags)
{
    static int (*real)(int, const char *, int);
    if (!real) real = (int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat");
    if (flags || deletions_left == UINT64_MAX) return real(folder, name, flags);
    if (deletions_left) return deletions_left--, real(folder, name, flags);
    errno = EIO;
    return -1;
}

static diloco_status count(void *context, const char *key, size_t len)
{
    (void)key, (void)len;
    ++*(uint64_t *)context;
    return DILOCO_OK;
}

static uint64_t objects_in(const char *url)
{
    dl_store *store;
    uint64_t n = 0;
    CHECK_OK(dl_store_open(&store, url, false));
    CHECK_OK(dl_store_list(store, "", NULL, count, &n, DL_NEVER));
    dl_store_close(store);
    return n;
}

static void put(const char *url, const char *key)
{
    dl_store *store;
    CHECK_OK(dl_store_open(&store, url, false));
    CHECK_OK(dl_store_put(store, key, "mine", 4, DL_NEVER));
    dl_store_close(store);
}

static void train(toy crew[2], const char *url, const char *coord)
{
    toy_crew(crew, 2, url, "none");
    toy_set_all(crew, 2, "run.coord", coord);
    toy_set_all(crew, 2, "run.retain", "all");
    toy_live_all(crew, 2);
    TOY_OK(crew[0]);
    TOY_OK(crew[1]);
}

TEST(removed_run_leaves_only_the_objects_of_others)
{
    static const char *const others[] = {"notes.txt",     "log/notes.txt", "c/notes",
                                         "gen/notes",     "rec/notes",     "snap/x/y",
                                         "model/weights", "out/notes",     "out/job/1-1.zst"};
    enum { N_OTHERS = sizeof others / sizeof *others };
    static toy crew[2];
    uint64_t n;
    const char *url = scratch_path("run");
    train(crew, url, "");
    put(url, "out/diloco-1f0c2ab9-r3-g0/0000000001-0000000000.zst");
    const uint64_t of_the_run = objects_in(url);
    CHECK(of_the_run > 10);
    for (size_t i = 0; i < N_OTHERS; i++)
        put(url, others[i]);
    CHECK_OK(diloco_run_remove(&n, url));
    CHECK_INT(of_the_run, n);
    CHECK_INT(N_OTHERS, objects_in(url));
    CHECK_STATUS(DILOCO_ENOENT, diloco_run_remove(&n, url));
    CHECK_INT(N_OTHERS, objects_in(url));
}

TEST(removed_run_leaves_nothing_in_its_coordination_store)
{
    static toy crew[2];
    uint64_t n;
    const char *bulk = scratch_path("bulk"), *coord = scratch_path("coord");
    train(crew, bulk, coord);
    const uint64_t of_the_run = objects_in(bulk) + objects_in(coord);
    CHECK_OK(diloco_run_remove(&n, bulk));
    CHECK_INT(of_the_run, n);
    CHECK_INT(0, objects_in(bulk) + objects_in(coord));
}

static void drop(const char *url, const char *key)
{
    dl_store *store;
    CHECK_OK(dl_store_open(&store, url, false));
    CHECK_OK(dl_store_delete(store, key, DL_NEVER));
    dl_store_close(store);
}

TEST(run_that_lost_its_run_json_is_removed_and_not_trained_in)
{
    static toy crew[2];
    uint64_t n;
    const char *url = scratch_path("lost");
    train(crew, url, "");
    drop(url, "run.json");
    const uint64_t rest = objects_in(url);
    static toy late;
    late = toy_of("r7", url);
    toy_set(&late, "run.state_dir", "none");
    CHECK_STATUS(DILOCO_EDIFFERS, toy_live(&late));
    CHECK_CONTAINS("has a log but no run.json", late.text);
    CHECK_INT(rest, objects_in(url));
    CHECK_OK(diloco_run_remove(&n, url));
    CHECK_INT(rest, n);
    CHECK_INT(0, objects_in(url));
}

static diloco_status run_in(const char *url)
{
    static dl_config config; /* too large for some stacks */
    dl_config_init(&config);
    return diloco_run_config(&config, url);
}

/* Each call removes one object and is interrupted at the next. Until the last one is gone the store
 * has a log without run.json, in which no run is created. */
TEST(interrupted_removal_leaves_a_log_without_run_json_and_continues)
{
    static toy crew[2];
    uint64_t n;
    const char *url = scratch_path("interrupted");
    train(crew, url, "");
    uint64_t left = objects_in(url);
    CHECK(left > 10);
    for (deletions_left = 1; --left; deletions_left = 1) {
        CHECK_STATUS(DILOCO_EIO, diloco_run_remove(&n, url));
        CHECK_INT(1, n);
        CHECK_INT(left, objects_in(url));
        CHECK_STATUS(DILOCO_EDIFFERS, run_in(url));
    }
    deletions_left = 1;
    CHECK_OK(diloco_run_remove(&n, url));
    CHECK_STATUS(DILOCO_ENOENT, run_in(url));
    deletions_left = UINT64_MAX;
}

TEST(interrupted_removal_of_two_stores_continues)
{
    static toy crew[2];
    uint64_t n, calls = 0;
    diloco_status status = DILOCO_EIO;
    const char *bulk = scratch_path("bulk2"), *coord = scratch_path("coord2");
    train(crew, bulk, coord);
    for (; status == DILOCO_EIO && calls < 1000; calls++) {
        deletions_left = 3;
        status = diloco_run_remove(&n, bulk);
    }
    deletions_left = UINT64_MAX;
    CHECK_OK(status);
    CHECK(calls > 3);
    CHECK_INT(0, objects_in(bulk) + objects_in(coord));
}

TEST_MAIN(removed_run_leaves_only_the_objects_of_others,
          removed_run_leaves_nothing_in_its_coordination_store,
          run_that_lost_its_run_json_is_removed_and_not_trained_in,
          interrupted_removal_leaves_a_log_without_run_json_and_continues,
          interrupted_removal_of_two_stores_continues)
