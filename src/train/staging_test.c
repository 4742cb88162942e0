/* staging_test.c - host places of backend memory: the memory itself, or copies. */
#include "train/staging.h"

#include "check.h"

static void check_round_trip(const char *name)
{
    dl_backend *b;
    void *memory, *host, *more;
    unsigned char out[100];
    CHECK_OK(dl_backend_create(&b, name));
    CHECK_OK(dl_backend_alloc(b, &memory, 100));
    dl_staging s = {.backend = b};
    CHECK_OK(dl_staging_add(&s, &host, memory, 60));
    CHECK_OK(dl_staging_add(&s, &more, (char *)memory + 60, 40));
    CHECK((host == memory) == b->ops->in_host_memory);
    for (int i = 0; i < 100; i++)
        out[i] = (unsigned char)(i + 1);
    dl_backend_copy_in(b, memory, out, 100);
    CHECK_OK(dl_staging_pull(&s));
    CHECK_BYTES(out, host, 60);
    CHECK_BYTES(out + 60, more, 40);
    ((unsigned char *)host)[59] = 200;
    ((unsigned char *)more)[0] = 201;
    dl_staging_push(&s);
    dl_backend_copy_out(b, out, memory, 100);
    CHECK_INT(59, out[58]);
    CHECK_INT(200, out[59]);
    CHECK_INT(201, out[60]);
    CHECK_INT(62, out[61]);
    dl_staging_deinit(&s);
    dl_backend_release(b, memory);
    dl_backend_destroy(b);
}

TEST(host_places_follow_backend_memory_and_bring_changes_back)
{
    for (size_t i = 0; dl_backend_name_at(i); i++)
        check_round_trip(dl_backend_name_at(i));
}

TEST(place_of_slices_on_two_backends_has_one_after_the_other)
{
    dl_backend *backends[2];
    dl_slice slices[2];
    void *host;
    char out[4];
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(dl_backend_create(&backends[i], i ? "trap" : "cpu"));
        slices[i] = (dl_slice){.backend = backends[i], .bytes = i ? 4 : 3};
        CHECK_OK(dl_backend_alloc(backends[i], &slices[i].memory, slices[i].bytes));
        dl_backend_copy_in(backends[i], slices[i].memory, i ? "defg" : "abc", slices[i].bytes);
    }
    dl_staging s = {.backend = backends[0]};
    CHECK_OK(dl_staging_add_slices(&s, &host, slices, 2));
    CHECK(host != slices[0].memory && !dl_staged_is_shared(&s.all[0]));
    CHECK_OK(dl_staging_pull(&s));
    CHECK_BYTES("abcdefg", host, 7);
    memcpy(host, "ABCDEFG", 7);
    dl_staging_push(&s);
    dl_backend_copy_out(backends[1], out, slices[1].memory, 4);
    CHECK_BYTES("DEFG", out, 4);
    char filled[7];
    CHECK_OK(dl_staging_fill(&s.all[0], filled));
    CHECK_BYTES("ABCDEFG", filled, 7);
    dl_staging_deinit(&s);
    for (size_t i = 0; i < 2; i++) {
        dl_backend_release(backends[i], slices[i].memory);
        dl_backend_destroy(backends[i]);
    }
}

TEST(a_device_for_the_run_is_there_where_the_host_may_not_touch_the_memory)
{
    dl_backend *b;
    diloco_device device;
    void *memory;
    unsigned char in[4] = {1, 2, 3, 4}, out[4] = {0};
    CHECK_OK(dl_backend_create(&b, "cpu"));
    CHECK(!dl_staging_device(&device, b));
    dl_backend_destroy(b);
    CHECK_OK(dl_backend_create(&b, "trap"));
    CHECK_OK(dl_backend_alloc(b, &memory, 4));
    CHECK(dl_staging_device(&device, b));
    CHECK_STR("trap", device.name);
    CHECK_OK(device.copy_out(device.user, device.stream, memory, in, 4));
    CHECK_OK(device.copy_in(device.user, device.stream, out, memory, 4));
    CHECK_OK(device.synchronise(device.user, device.stream));
    CHECK_BYTES(in, out, 4);
    dl_backend_release(b, memory);
    dl_backend_destroy(b);
}

/* A backend whose device has failed. */
static diloco_status failed(dl_backend *self)
{
    (void)self;
    return dl_fail(DILOCO_EIO, "the device failed");
}

TEST(a_pull_from_a_failed_device_returns_its_error)
{
    dl_backend *b;
    void *memory, *host;
    CHECK_OK(dl_backend_create(&b, "trap"));
    CHECK_OK(dl_backend_alloc(b, &memory, 4));
    dl_staging s = {.backend = b};
    CHECK_OK(dl_staging_add(&s, &host, memory, 4));
    const dl_backend_ops *own = b->ops;
    dl_backend_ops broken = *own;
    broken.sync = failed;
    b->ops = &broken;
    CHECK_STATUS(DILOCO_EIO, dl_staging_pull(&s));
    CHECK_CONTAINS("the device failed", diloco_error_text());
    b->ops = own;
    dl_staging_deinit(&s);
    dl_backend_release(b, memory);
    dl_backend_destroy(b);
}

TEST_MAIN(host_places_follow_backend_memory_and_bring_changes_back,
          place_of_slices_on_two_backends_has_one_after_the_other,
          a_device_for_the_run_is_there_where_the_host_may_not_touch_the_memory,
          a_pull_from_a_failed_device_returns_its_error)
