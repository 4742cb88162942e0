/* memory_copies_test.c - the plan of a replica's memory has the host copies of what is on a device:
 * none on the CPU. */
#include "train_fixture.h"

/* The same file is compiled a second time, and its backends are then trap backends. */
static bool on_a_device(void)
{
    dl_backend *b;
    CHECK_OK(dl_backend_create(&b, "cpu"));
    const bool apart = !b->ops->in_host_memory;
    dl_backend_destroy(b);
    return apart;
}

TEST(host_copies_of_a_device_are_planned)
{
    diloco_memory_plan p;
    const uint64_t some = on_a_device();
    dl_config *config = fixture_config("diloco");
    CHECK_OK(diloco_train_plan(&p, config));
    CHECK_INT(some * (2 * p.local + p.moments), p.copies);
    free(config);
    config = fixture_config("data_parallel");
    CHECK_OK(diloco_train_plan(&p, config));
    CHECK_INT(some * (2 * p.local + p.gradient), p.copies);
    free(config);
}

TEST_MAIN(host_copies_of_a_device_are_planned)
