/* remove_test.c - a removed run leaves nothing of its own, and takes nothing else. */
#include "toy_run.h"

#include "store/store.h"

#include <sys/stat.h>

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

TEST_MAIN(removed_run_leaves_only_the_objects_of_others,
          removed_run_leaves_nothing_in_its_coordination_store)
