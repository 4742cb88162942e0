/* memory_copies_test.c - the plan of a replica's memory has the host copies of what is on a device:
 * none on the CPU. Moments are copied from a device when they are saved. */
#include "train_fixture.h"

#include <stdatomic.h>

/* The same file is compiled twice more, and its backends are then trap backends or on the emulated
 * device. */
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

/* Bytes that tests/trap_backend.c or on_emulated.c has copied to the host. The first program has
 * neither. */
extern atomic_size_t device_copied_out __attribute__((weak));

/* Trains two entries, and returns the bytes that were copied to the host. */
static size_t copied_out(const char *option, const char *value)
{
    fixture_record record = {0};
    dl_config *config = fixture_config("diloco");
    set(config, option, value);
    const size_t before = on_a_device() ? atomic_load(&device_copied_out) : 0;
    fixture_train(config, &record, 1);
    const size_t after = on_a_device() ? atomic_load(&device_copied_out) : 0;
    CHECK_INT(2, fixture_count(&record, "commit"));
    fixture_record_free(&record);
    free(config);
    return after - before;
}

TEST(moments_are_copied_from_a_device_only_when_they_are_saved)
{
    diloco_memory_plan p;
    dl_config *config = fixture_config("diloco");
    CHECK_OK(diloco_train_plan(&p, config));
    free(config);
    const size_t twice = copied_out("run.save_every", "1");
    const size_t once = copied_out("run.save_every", "2");
    const size_t never = copied_out("run.state_dir", "none");
    const size_t moments = on_a_device() ? (size_t)p.moments : 0;
    CHECK(twice >= once + moments);
    CHECK(once >= never + moments);
}

TEST_MAIN(host_copies_of_a_device_are_planned,
          moments_are_copied_from_a_device_only_when_they_are_saved)
