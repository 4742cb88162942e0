/* emulated_test.c - the emulated device finds the mistakes that it is for, and the backend of a GPU
 * works on it whatever the order of its work is. */
#include "emulated_backend.h"

#include "faulty_kernels.h"
#include "sanitized.h"
#include "tensor/cuda/cuda_api.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 300 }; /* two blocks of threads, and not all of the second */

/* ---- the backend */

static void check_copies(const emulated_setup *setup)
{
    enum { LARGE = (9 << 20) + 5 }; /* more than the pinned stage */
    dl_backend *b;
    void *x, *y;
    unsigned char *in = malloc(LARGE), *out = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i++)
        in[i] = (unsigned char)(i * 31 + i / 251);
    CHECK_OK(emulated_open(&b, setup));
    CHECK_STR("emulated", b->ops->name);
    CHECK(!b->ops->in_host_memory);
    CHECK_OK(dl_backend_alloc(b, &x, LARGE));
    CHECK_OK(dl_backend_alloc(b, &y, LARGE));
    dl_backend_copy_out(b, out, y, LARGE);
    for (size_t i = 0; i < LARGE; i++)
        CHECK(out[i] == 0); /* the device gives poison */
    dl_backend_copy_in(b, x, in, LARGE);
    memset(in, 0, 1000); /* the caller's bytes may be reused at once */
    dl_backend_copy_within(b, y, (char *)x + 1, LARGE - 1);
    dl_backend_zero(b, x, LARGE);
    dl_backend_copy_out(b, out, y, LARGE - 1);
    for (size_t i = 1; i < LARGE; i++)
        CHECK(out[i - 1] == (unsigned char)(i * 31 + i / 251));
    CHECK_OK(dl_backend_sync(b));
    dl_backend_release(b, x);
    dl_backend_release(b, y);
    dl_backend_destroy(b);
    CHECK_INT(0, emulated_leaked());
    free(in), free(out);
}

TEST(copies_keep_their_order_however_the_stream_works)
{
    for (size_t i = 0; i < 2 * EMULATED_WAYS; i++)
        check_copies(
            &(emulated_setup){.seed = emulated_first_seed() + i, .when = (emulated_when)(i % 3)});
}

TEST(host_cannot_touch_memory_of_the_device)
{
    dl_backend *b;
    void *x;
    CHECK_OK(emulated_open(&b, &(emulated_setup){.seed = 1}));
    CHECK_OK(dl_backend_alloc(b, &x, 4));
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(*(const volatile unsigned char *)x);
    }
    int status;
    CHECK_INT(child, waitpid(child, &status, 0));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    dl_backend_release(b, x);
    dl_backend_destroy(b);
}

TEST(an_allocation_beyond_the_device_is_refused_and_the_backend_continues)
{
    dl_backend *b;
    void *x;
    CHECK_OK(emulated_open(&b, &(emulated_setup){.seed = 1, .memory = 1 << 20}));
    CHECK_STATUS(DILOCO_ENOMEM, dl_backend_alloc(b, &x, 2 << 20));
    CHECK_CONTAINS("backend emulated", diloco_error_text());
    CHECK_OK(dl_backend_alloc(b, &x, 1 << 19));
    CHECK_OK(dl_backend_sync(b));
    dl_backend_release(b, x);
    dl_backend_destroy(b);
}

TEST(memory_left_is_that_of_the_card_without_allocations)
{
    enum { CARD = 1 << 20, ARRAY = 3 << 16 };
    dl_backend *b;
    void *memory;
    uint64_t left;
    CHECK_OK(emulated_open(&b, &(emulated_setup){.seed = 1, .memory = CARD}));
    CHECK_OK(dl_backend_cuda_memory_left(&left, b));
    CHECK_INT(CARD, left);
    CHECK_OK(dl_backend_alloc(b, &memory, ARRAY));
    CHECK_OK(dl_backend_cuda_memory_left(&left, b));
    CHECK_INT(CARD - ARRAY, left);
    dl_backend_release(b, memory);
    CHECK_OK(dl_backend_cuda_memory_left(&left, b));
    CHECK_INT(CARD, left);
    dl_backend_destroy(b);
}

TEST(missing_driver_card_or_device_code_is_refused_by_name)
{
    dl_backend *b;
    static const dl_span images[] = {{"", 1}};
    dl_cuda_source source = {.name = "emulated", .library = "libnosuchdriver.so.1"};
    CHECK_STATUS(DILOCO_EREFUSED, dl_backend_cuda(&b, &source, 0));
    CHECK(b == NULL);
    CHECK_CONTAINS("without device code", diloco_error_text());
    source.images = images;
    source.n_images = 1;
    CHECK_STATUS(DILOCO_EREFUSED, dl_backend_cuda(&b, &source, 0));
    CHECK_CONTAINS("libnosuchdriver.so.1", diloco_error_text());
    source.library = "libm.so.6";
    CHECK_STATUS(DILOCO_EREFUSED, dl_backend_cuda(&b, &source, 0));
    CHECK_CONTAINS("cuInit", diloco_error_text());
    source.library = EMULATED_LIBRARY;
    emulated_configure(&(emulated_setup){.seed = 1});
    CHECK_STATUS(DILOCO_EREFUSED, dl_backend_cuda(&b, &source, 1));
    CHECK_CONTAINS("no emulated device 1", diloco_error_text());
    source.oldest = 80;
    emulated_configure(&(emulated_setup){.seed = 1, .capability = 75});
    CHECK_STATUS(DILOCO_EREFUSED, dl_backend_cuda(&b, &source, 0));
    CHECK_CONTAINS("has compute capability 7.5, and the kernels need 8.0 or later",
                   diloco_error_text());
    emulated_configure(&(emulated_setup){.seed = 1, .capability = 80});
    CHECK_OK(dl_backend_cuda(&b, &source, 0));
    dl_backend_destroy(b);
    CHECK_INT(0, emulated_leaked());
}

/* ---- mistakes of kernels */

/* A page of this process at an address that the device process surely does not use. */
static const float *host_memory(void)
{
    static const float *page;
    void *const hint = (void *)(uintptr_t)(EMULATED_BASE - (1 << 20));
    if (!page)
        page = mmap(hint, 4096, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK((const void *)page == hint);
    return page;
}

static diloco_status run_kernel(const char *kernel, const emulated_setup *setup, float out[N])
{
    dl_backend *b;
    void *x;
    CHECK_OK(emulated_open(&b, setup));
    CHECK_OK(dl_backend_alloc(b, &x, N * sizeof *out));
    const faulty_arguments a = {.values = x, .n = N, .host = host_memory()};
    dl_backend_cuda_launch(b, &(dl_cuda_launch){kernel, N, &a, sizeof a});
    dl_backend_copy_out(b, out, x, N * sizeof *out);
    const diloco_status status = dl_backend_sync(b);
    dl_backend_release(b, x);
    dl_backend_destroy(b);
    return status;
}

static void check_found(const char *kernel, const char *what)
{
    static float out[N];
    for (size_t i = 0; i < EMULATED_WAYS; i++) {
        const emulated_setup setup = emulated_way(i);
        CHECK_STATUS(DILOCO_EIO, run_kernel(kernel, &setup, out));
        CHECK_CONTAINS("the emulated device failed", diloco_error_text());
        CHECK_CONTAINS("(card 0, emulated device)", diloco_error_text());
        CHECK_CONTAINS(what, diloco_error_text());
    }
}

TEST(kernel_that_is_right_runs_in_every_order)
{
    static float out[N];
    for (size_t i = 0; i < EMULATED_WAYS; i++) {
        const emulated_setup setup = emulated_way(i);
        CHECK_OK(run_kernel("faulty_good", &setup, out));
        for (size_t k = 0; k < N; k++)
            CHECK(out[k] == (float)k);
        CHECK_OK(run_kernel("faulty_warp_sum", &setup, out));
        for (size_t k = 0; k < N; k++)
            CHECK(out[k] == 32 * (float)(k % 256 / 32 * 32) + 31 * 16);
    }
}

TEST(mistakes_of_kernels_are_found_and_named)
{
    check_found("faulty_bound", "byte 1 after the end");
    check_found("faulty_far", "kernel faulty_far, block 0, thread 3");
    check_found("faulty_host", "kernel faulty_host, block 0, thread 0");
    check_found("faulty_barrier", "kernel faulty_barrier");
    check_found("faulty_barrier", "unequal barriers");
    check_found("faulty_lines", "unequal barriers: lines");
    check_found("faulty_shared", "kernel faulty_shared");
    check_found("no_such_kernel", "no_such_kernel");
}

static void check_race(const char *kernel)
{
    static float up[N], down[N];
    CHECK_OK(run_kernel(kernel, &(emulated_setup){.order = EMULATED_ASCENDING}, up));
    CHECK_OK(run_kernel(kernel, &(emulated_setup){.order = EMULATED_DESCENDING}, down));
    CHECK(memcmp(up, down, sizeof up) != 0);
}

TEST(missing_barrier_gives_other_results_in_another_order)
{
    check_race("faulty_race");
}

TEST(warp_that_runs_ahead_gives_other_results_in_another_order)
{
    check_race("faulty_ahead");
}

/* ---- faults of the driver */

/* Returns the number of calls of a run without a fault. A run with one returns an error or ends
 * as without one. */
static uint64_t run_with_fault(uint64_t at, int code)
{
    dl_backend *b;
    void *x = NULL;
    uint64_t left;
    float out[N];
    const emulated_setup setup = {.seed = at, .fail_at = at, .fail_with = code};
    diloco_status status = emulated_open(&b, &setup);
    if (!status) {
        status = dl_backend_alloc(b, &x, sizeof out);
        const faulty_arguments a = {.values = x, .n = N};
        if (!status) dl_backend_cuda_launch(b, &(dl_cuda_launch){"faulty_good", N, &a, sizeof a});
        if (!status) dl_backend_copy_in(b, x, out, 4);
        if (!status) dl_backend_copy_within(b, (char *)x + 4, x, 4);
        if (!status) dl_backend_copy_out(b, out, x, sizeof out);
        if (!status) status = dl_backend_sync(b);
        if (!status) status = dl_backend_cuda_memory_left(&left, b);
        if (x) dl_backend_release(b, x);
        dl_backend_destroy(b);
    }
    const uint64_t calls = emulated_calls();
    if (at > 0 && at <= calls && status) CHECK(diloco_error_text()[0]);
    return calls;
}

TEST(fault_of_any_call_is_reported_once_and_nothing_hangs)
{
    static const int codes[] = {DL_CUDA_OUT_OF_MEMORY, DL_CUDA_LAUNCH_FAILED};
    const uint64_t calls = run_with_fault(0, 0);
    CHECK(calls > 15);
    for (int k = 0; k < 2; k++)
        for (uint64_t at = 1; at <= calls; at++)
            run_with_fault(at, codes[k]);
}

TEST_MAIN(copies_keep_their_order_however_the_stream_works, host_cannot_touch_memory_of_the_device,
          an_allocation_beyond_the_device_is_refused_and_the_backend_continues,
          memory_left_is_that_of_the_card_without_allocations,
          missing_driver_card_or_device_code_is_refused_by_name,
          kernel_that_is_right_runs_in_every_order, mistakes_of_kernels_are_found_and_named,
          missing_barrier_gives_other_results_in_another_order,
          warp_that_runs_ahead_gives_other_results_in_another_order,
          fault_of_any_call_is_reported_once_and_nothing_hangs)
