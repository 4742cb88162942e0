/* emulated_group_test.c - collectives between emulated devices (tensor/group.h). */
#include "tensor/group.h"

#include "emulated_backend.h"
#include "emulated_nccl.h"
#include "nn/cuda/kernel_arguments.h"

/* A sum has several pieces, and a last one that not all ranks share. */
enum { N = 3, COUNT = 1000, PIECE = 325 };

static diloco_status open_at(dl_backend **out, int index, const char *collectives)
{
    static const char image[] = "the kernels are in the device program";
    static const dl_span images[] = {{image, sizeof image}};
    const dl_cuda_source source = {.name = "emulated",
                                   .library = EMULATED_LIBRARY,
                                   .images = images,
                                   .n_images = 1,
                                   .poisons = true,
                                   .collectives = collectives};
    return dl_backend_cuda(out, &source, index);
}

/* The kernel of nn/cuda/add_cuda.c, of which this test has the arguments alone. */
static void add_beside(dl_backend *backend, float *to, const float *from, size_t n)
{
    const dl_cuda_blend_arguments a = {.y = to, .x = from, .n = n, .a = 1, .b = 1};
    dl_backend_cuda_launch_beside(backend, &(dl_cuda_launch){"dl_muon_blend", n, &a, sizeof a});
}
static const dl_group_options options = {.add = add_beside, .piece = PIECE};

typedef struct cards {
    dl_backend *backends[N];
    float *arrays[N];
    dl_group *group;
} cards;

/* Element k of rank i. Sums of three are exact, so their order does not matter. */
static float value_of(size_t i, size_t k)
{
    return (float)((i + 1) * 1000 + k);
}

static diloco_status fill(cards *c, size_t i)
{
    float values[COUNT];
    void *memory;
    for (size_t k = 0; k < COUNT; k++)
        values[k] = value_of(i, k);
    DL_TRY(dl_backend_alloc(c->backends[i], &memory, sizeof values));
    c->arrays[i] = memory;
    dl_backend_copy_in(c->backends[i], memory, values, sizeof values);
    return DILOCO_OK;
}

static diloco_status open_cards(cards *c)
{
    for (size_t i = 0; i < N; i++) {
        DL_TRY(open_at(&c->backends[i], (int)i, EMULATED_NCCL));
        DL_TRY(fill(c, i));
    }
    return dl_group_create(&c->group, c->backends, N, &options);
}

static void close_cards(cards *c)
{
    dl_group_destroy(c->group);
    for (size_t i = 0; i < N; i++) {
        if (c->arrays[i]) dl_backend_release(c->backends[i], c->arrays[i]);
        dl_backend_destroy(c->backends[i]);
    }
    CHECK_INT(0, emulated_communicators());
    CHECK_INT(0, emulated_leaked());
}

static void check_array(const cards *c, size_t i, float factor, float offset)
{
    float values[COUNT];
    dl_backend_copy_out(c->backends[i], values, c->arrays[i], sizeof values);
    for (size_t k = 0; k < COUNT; k++)
        CHECK(values[k] == factor * (float)k + offset);
}

TEST(sum_goes_to_the_first_device_and_a_broadcast_comes_from_it)
{
    for (size_t way = 0; way < EMULATED_WAYS * emulated_seeds(2); way++) {
        cards c = {0};
        emulated_setup setup = emulated_way(way);
        setup.devices = N;
        emulated_configure(&setup);
        CHECK_OK(open_cards(&c));
        dl_group_sum(c.group, c.arrays, COUNT);
        check_array(&c, 0, 3, 6000);
        check_array(&c, 1, 1, 2000);
        check_array(&c, 2, 1, 3000);
        dl_backend_copy_within(c.backends[0], c.arrays[0], c.arrays[0] + COUNT / 2,
                               COUNT / 2 * sizeof(float)); /* before the broadcast reads it */
        dl_group_broadcast(c.group, c.arrays, COUNT / 2);
        dl_backend_zero(c.backends[0], c.arrays[0], COUNT * sizeof(float)); /* after it */
        CHECK_OK(dl_group_wait(c.group));
        check_array(&c, 0, 0, 0);
        for (size_t i = 1; i < N; i++) {
            float values[COUNT / 2];
            dl_backend_copy_out(c.backends[i], values, c.arrays[i], sizeof values);
            for (size_t k = 0; k < COUNT / 2; k++)
                CHECK(values[k] == 3 * (float)(k + COUNT / 2) + 6000);
        }
        close_cards(&c);
    }
}

/* Otherwise a test of several devices would prove little. */
TEST(device_cannot_use_the_memory_of_another)
{
    cards c = {0};
    emulated_configure(&(emulated_setup){.seed = 1, .devices = N});
    CHECK_OK(open_cards(&c));
    dl_backend_copy_within(c.backends[1], c.arrays[1], c.arrays[0], 4);
    CHECK_STATUS(DILOCO_EIO, dl_backend_sync(c.backends[1]));
    CHECK_OK(dl_backend_sync(c.backends[0]));

    /* The other devices must not wait for the one that failed. */
    dl_group_sum(c.group, c.arrays, COUNT);
    CHECK_STATUS(DILOCO_EIO, dl_group_wait(c.group));
    CHECK_CONTAINS("the emulated device failed: cuMemcpyDtoDAsync", diloco_error_text());
    CHECK_INT(0, emulated_communicators());
    CHECK_OK(dl_backend_sync(c.backends[0]));
    check_array(&c, 0, 1, 1000);
    close_cards(&c);
}

/* A look at a lazy device does one piece of its work, so it is not idle after the next look. */
static void queue_pieces(cards *c, size_t i)
{
    for (size_t k = 0; k < 3; k++)
        dl_backend_zero(c->backends[i], c->arrays[i], sizeof(float));
}

/* Fills the pinned memory of a device with a copy to new memory, which the caller releases. */
static void *fill_stage(dl_backend *backend)
{
    const size_t n = dl_backend_cuda_room(backend);
    void *memory, *host = calloc(1, n);
    CHECK(host != NULL);
    CHECK_OK(dl_backend_alloc(backend, &memory, n));
    dl_backend_copy_in(backend, memory, host, n);
    CHECK_INT(0, dl_backend_cuda_room(backend));
    free(host);
    return memory;
}

TEST(copy_that_would_wait_for_one_device_waits_for_all_after_a_collective)
{
    cards c = {0};
    emulated_configure(&(emulated_setup){.seed = 1, .devices = N});
    CHECK_OK(open_cards(&c));
    dl_group_broadcast(c.group, c.arrays, COUNT);
    queue_pieces(&c, 2);
    CHECK_OK(dl_group_make_room(c.group, 1, dl_backend_cuda_room(c.backends[1])));
    CHECK_INT(DL_CUDA_WORKS, dl_backend_cuda_poll(c.backends[2]));
    void *memory = fill_stage(c.backends[1]);
    CHECK_OK(dl_group_make_room(c.group, 1, 1));
    for (size_t i = 0; i < N; i++)
        CHECK_INT(DL_CUDA_IDLE, dl_backend_cuda_poll(c.backends[i]));

    /* Without a collective in flight no other device matters. */
    queue_pieces(&c, 2);
    CHECK_OK(dl_group_make_room(c.group, 1, 1));
    CHECK_INT(DL_CUDA_WORKS, dl_backend_cuda_poll(c.backends[2]));

    dl_group_broadcast(c.group, c.arrays, COUNT);
    dl_backend_copy_within(c.backends[0], c.arrays[0], c.arrays[1], 4); /* another device's */
    CHECK_STATUS(DILOCO_EIO, dl_group_make_room(c.group, 1, 1));
    CHECK_CONTAINS("the emulated device failed: cuMemcpyDtoDAsync", diloco_error_text());
    CHECK_INT(0, emulated_communicators());
    dl_backend_release(c.backends[1], memory);
    close_cards(&c);
}

/* The devices have work left on other elements, which the sum of a part does not wait for. */
TEST(part_is_added_after_its_mark_and_before_later_work)
{
    for (size_t way = 0; way < EMULATED_WAYS * emulated_seeds(2); way++) {
        cards c = {0};
        emulated_setup setup = emulated_way(way);
        setup.devices = N;
        emulated_configure(&setup);
        CHECK_OK(open_cards(&c));
        for (size_t i = 0; i < N; i++) {
            dl_backend_copy_within(c.backends[i], c.arrays[i], c.arrays[i] + COUNT / 2,
                                   COUNT / 2 * sizeof(float));
            dl_group_mark(c.group, i, 7);
            for (size_t k = 0; k < 3; k++)
                dl_backend_zero(c.backends[i], c.arrays[i] + COUNT / 2, sizeof(float));
        }
        dl_group_sum_part(c.group, c.arrays, COUNT / 2, 7);
        dl_group_join(c.group);
        float values[COUNT / 2];
        dl_backend_copy_out(c.backends[0], values, c.arrays[0], sizeof values);
        for (size_t k = 0; k < COUNT / 2; k++)
            CHECK(values[k] == 3 * (float)(k + COUNT / 2) + 6000);
        if (setup.when == EMULATED_LAZY)
            CHECK_INT(DL_CUDA_WORKS, dl_backend_cuda_poll(c.backends[N - 1]));
        CHECK_OK(dl_group_wait(c.group));
        close_cards(&c);
    }
}

/* Bounds leave rank 1 nothing. */
TEST(scatter_gives_each_rank_its_elements_and_a_gather_brings_them_back)
{
    static const size_t bounds[N + 1] = {0, 400, 400, COUNT};
    for (size_t way = 0; way < EMULATED_WAYS; way++) {
        cards c = {0};
        float values[COUNT];
        emulated_setup setup = emulated_way(way);
        setup.devices = N;
        emulated_configure(&setup);
        CHECK_OK(open_cards(&c));
        dl_group_scatter(c.group, c.arrays, bounds);
        dl_backend_zero(c.backends[0], c.arrays[0], COUNT * sizeof(float));
        dl_backend_copy_out(c.backends[2], values, c.arrays[2], sizeof values);
        for (size_t k = 0; k < COUNT; k++)
            CHECK(values[k] == value_of(k < 400 ? 2 : 0, k));
        dl_group_gather(c.group, c.arrays, bounds);
        dl_backend_copy_out(c.backends[0], values, c.arrays[0], sizeof values);
        for (size_t k = 0; k < COUNT; k++)
            CHECK(values[k] == (k < 400 ? 0 : value_of(0, k)));
        check_array(&c, 1, 1, 2000);
        CHECK_OK(dl_group_wait(c.group));
        close_cards(&c);
    }
}

TEST(group_is_refused_without_the_library_and_with_one_card_twice)
{
    cards c = {0};
    dl_backend *two[2];
    emulated_configure(&(emulated_setup){.seed = 1, .devices = N});
    CHECK_OK(open_cards(&c));
    CHECK_OK(open_at(&two[0], 0, "libno_such_library.so"));
    CHECK_OK(open_at(&two[1], 1, NULL));
    dl_group *group;
    CHECK_STATUS(DILOCO_EREFUSED, dl_group_create(&group, two, 2, &options));
    CHECK(group == NULL);
    CHECK_CONTAINS("by NCCL, which cannot be loaded: libno_such_library.so", diloco_error_text());
    CHECK_CONTAINS("name one card in trainer.device", diloco_error_text());
    dl_backend *same[] = {c.backends[0], two[0]};
    CHECK_STATUS(DILOCO_EREFUSED, dl_group_create(&group, same, 2, &options));
    CHECK_CONTAINS("NCCL refuses these cards", diloco_error_text());
    dl_backend_destroy(two[0]), dl_backend_destroy(two[1]);
    close_cards(&c);
}

/* A sum, a broadcast and a wait. */
static diloco_status use(cards *c)
{
    float value;
    DL_TRY(open_cards(c));
    dl_group_sum(c->group, c->arrays, COUNT);
    dl_group_broadcast(c->group, c->arrays, COUNT);
    DL_TRY(dl_group_wait(c->group));
    dl_backend_copy_out(c->backends[N - 1], &value, c->arrays[N - 1], sizeof value);
    DL_TRY(dl_backend_sync(c->backends[N - 1]));
    CHECK(value == 6000);
    return DILOCO_OK;
}

/* Of the driver and of the library. A collective that fails has begun on some devices. */
static void check_each_failing_call(int loses_device)
{
    diloco_status status = DILOCO_EIO;
    uint64_t at = 0;
    while (status) {
        cards c = {0};
        emulated_configure(&(emulated_setup){.seed = 1,
                                             .devices = N,
                                             .fail_at = ++at,
                                             .fail_with = DL_CUDA_LAUNCH_FAILED,
                                             .loses_device = loses_device});
        status = use(&c);
        const bool ran_out = emulated_calls() < at;
        CHECK(ran_out == !status);
        dl_group_destroy(c.group);
        CHECK_INT(0, emulated_communicators());
        for (size_t i = 0; i < N; i++) {
            if (c.arrays[i]) dl_backend_release(c.backends[i], c.arrays[i]);
            dl_backend_destroy(c.backends[i]);
        }
        CHECK(!emulated_has_ended());
    }
    CHECK(at > 100);
}

/* A lost device leaves the others in a collective until that is aborted. */
TEST(each_failing_call_ends_the_collectives_of_all_devices)
{
    check_each_failing_call(0);
    check_each_failing_call(1);
}

/* Opens all devices, queues a broadcast, and zeroes an array of the second one. */
static void broadcast_and_zero(cards *c, uint64_t fail_at)
{
    emulated_configure(&(emulated_setup){.seed = 1,
                                         .devices = N,
                                         .fail_at = fail_at,
                                         .fail_with = DL_CUDA_LAUNCH_FAILED,
                                         .loses_device = 1});
    *c = (cards){0};
    CHECK_OK(open_cards(c));
    dl_group_broadcast(c->group, c->arrays, COUNT);
    dl_backend_zero(c->backends[1], c->arrays[1], sizeof(float));
}

/* As after a step that fails for another reason. The work of the lost device is not done yet. */
TEST(group_that_is_closed_in_a_collective_does_not_wait_for_a_lost_device)
{
    cards c;
    broadcast_and_zero(&c, 0);
    const uint64_t calls = emulated_calls(); /* the last one is cuMemsetD8Async */
    close_cards(&c);
    broadcast_and_zero(&c, calls);
    dl_group_destroy(c.group);
    CHECK_INT(0, emulated_communicators());
    CHECK(!emulated_has_ended());
    check_array(&c, 0, 1, 1000);
    for (size_t i = 0; i < N; i++) {
        dl_backend_release(c.backends[i], c.arrays[i]);
        dl_backend_destroy(c.backends[i]);
    }
    CHECK(!emulated_has_ended());
}

TEST_MAIN(sum_goes_to_the_first_device_and_a_broadcast_comes_from_it,
          device_cannot_use_the_memory_of_another,
          copy_that_would_wait_for_one_device_waits_for_all_after_a_collective,
          part_is_added_after_its_mark_and_before_later_work,
          scatter_gives_each_rank_its_elements_and_a_gather_brings_them_back,
          group_is_refused_without_the_library_and_with_one_card_twice,
          each_failing_call_ends_the_collectives_of_all_devices,
          group_that_is_closed_in_a_collective_does_not_wait_for_a_lost_device)
