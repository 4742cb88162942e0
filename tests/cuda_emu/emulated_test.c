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
    check_found("faulty_half_sum", "partial mask, 0000ffff");
    check_found("faulty_half_barrier", "partial mask, 0000ffff");
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

/* ---- rules of recording */

typedef struct recorder {
    dl_cuda cuda;
    void *context, *stream, *other, *event, *function, *another, *pinned;
    uint64_t memory;
    void *executable; /* a graph of one launch */
} recorder;

static int launch_on(const recorder *r, void *stream)
{
    faulty_arguments a = {.values = (float *)(uintptr_t)r->memory, .n = N};
    size_t size = sizeof a;
    void *extra[] = {DL_CUDA_EXTRA_POINTER, &a, DL_CUDA_EXTRA_SIZE, &size, DL_CUDA_EXTRA_END};
    return r->cuda.launch(r->function, 2, 1, 1, 256, 1, 1, 0, stream, NULL, extra);
}

static int begin_capture(const recorder *r)
{
    return r->cuda.capture_begin(r->stream, DL_CUDA_CAPTURE_RELAXED);
}

/* Records one launch. */
static void *record_one(const recorder *r)
{
    void *graph;
    CHECK_INT(0, begin_capture(r));
    CHECK_INT(0, launch_on(r, r->stream));
    CHECK_INT(0, r->cuda.capture_end(r->stream, &graph));
    CHECK(graph != NULL);
    return graph;
}

static void open_recorder(recorder *r)
{
    void *module;
    *r = (recorder){.memory = 0};
    emulated_configure(&(emulated_setup){.seed = 1, .when = EMULATED_LAZY});
    CHECK_OK(dl_cuda_load(&r->cuda, EMULATED_LIBRARY));
    CHECK_INT(0, r->cuda.context_retain(&r->context, 0));
    CHECK_INT(0, r->cuda.context_set(r->context));
    CHECK_INT(0, r->cuda.stream_create(&r->stream, DL_CUDA_STREAM_NON_BLOCKING));
    CHECK_INT(0, r->cuda.stream_create(&r->other, DL_CUDA_STREAM_NON_BLOCKING));
    CHECK_INT(0, r->cuda.event_create(&r->event, DL_CUDA_EVENT_DISABLE_TIMING));
    CHECK_INT(0, r->cuda.event_record(r->event, r->other));
    CHECK_INT(0, r->cuda.alloc(&r->memory, N * sizeof(float)));
    CHECK_INT(0, r->cuda.host_alloc(&r->pinned, N * sizeof(float), 0));
    CHECK_INT(0, r->cuda.module_load(&module, ""));
    CHECK_INT(0, r->cuda.function(&r->function, module, "faulty_good"));
    CHECK_INT(0, r->cuda.function(&r->another, module, "faulty_warp_sum"));
    void *graph = record_one(r);
    CHECK_INT(0, r->cuda.graph_instantiate(&r->executable, graph, 0));
    CHECK_INT(0, r->cuda.graph_destroy(graph));
}

static void close_recorder(recorder *r)
{
    CHECK_INT(0, r->cuda.stream_wait(r->stream));
    CHECK_INT(0, r->cuda.stream_destroy(r->stream));
    CHECK_INT(0, r->cuda.stream_destroy(r->other));
    CHECK_INT(0, r->cuda.event_destroy(r->event));
    CHECK_INT(0, r->cuda.release(r->memory));
    CHECK_INT(0, r->cuda.host_release(r->pinned));
    if (r->executable) CHECK_INT(0, r->cuda.graph_exec_destroy(r->executable));
    CHECK_INT(0, r->cuda.context_release(0));
    CHECK_INT(0, emulated_leaked());
    dl_cuda_unload(&r->cuda);
}

static int copy_in(const recorder *r)
{
    return r->cuda.copy_in(r->memory, r->pinned, 4, r->stream);
}
static int copy_out(const recorder *r)
{
    return r->cuda.copy_out(r->pinned, r->memory, 4, r->stream);
}
static int copy_within(const recorder *r)
{
    return r->cuda.copy_within(r->memory, r->memory + 4, 4, r->stream);
}
static int fill(const recorder *r)
{
    return r->cuda.fill(r->memory, 0, 4, r->stream);
}
static int wait_for(const recorder *r)
{
    return r->cuda.stream_wait(r->stream);
}
static int query(const recorder *r)
{
    return r->cuda.stream_query(r->stream);
}
static int record_event(const recorder *r)
{
    return r->cuda.event_record(r->event, r->stream);
}
static int await_event(const recorder *r)
{
    return r->cuda.stream_await(r->stream, r->event, 0);
}
static int launch_graph(const recorder *r)
{
    return r->cuda.graph_launch(r->executable, r->stream);
}
static int destroy_stream(const recorder *r)
{
    return r->cuda.stream_destroy(r->stream);
}

/* The stream takes all of it again after the end of the capture, but for its own. */
TEST(work_that_a_capture_cannot_have_is_refused_and_invalidates_it)
{
    static int (*const refused[])(const recorder *) = {
        copy_in, copy_out,     copy_within, fill,         wait_for,
        query,   record_event, await_event, launch_graph, destroy_stream};
    recorder r;
    open_recorder(&r);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        void *graph = &r;
        CHECK_INT(0, begin_capture(&r));
        CHECK_INT(0, launch_on(&r, r.stream));
        CHECK_INT(0, r.cuda.fill(r.memory, 0, 4, r.other)); /* another stream may work */
        CHECK_INT(DL_CUDA_CAPTURE_UNSUPPORTED, refused[i](&r));
        CHECK_INT(DL_CUDA_CAPTURE_INVALIDATED, refused[i](&r));
        CHECK_INT(DL_CUDA_CAPTURE_INVALIDATED, launch_on(&r, r.stream));
        CHECK_INT(DL_CUDA_CAPTURE_INVALIDATED, r.cuda.capture_end(r.stream, &graph));
        CHECK(graph == NULL);
        if (refused[i] == query) CHECK_INT(0, r.cuda.stream_wait(r.stream));
        if (refused[i] != destroy_stream) CHECK_INT(0, refused[i](&r));
    }
    CHECK_INT(0, launch_on(&r, r.stream));
    CHECK_INT(0, r.cuda.graph_destroy(record_one(&r))); /* the next capture is sound */
    close_recorder(&r);
}

TEST(captures_of_other_modes_or_inside_of_another_are_refused)
{
    recorder r;
    void *graph;
    open_recorder(&r);
    for (int mode = -1; mode < 4; mode++)
        if (mode != DL_CUDA_CAPTURE_RELAXED)
            CHECK_INT(DL_CUDA_INVALID_VALUE, r.cuda.capture_begin(r.stream, mode));
    CHECK_INT(DL_CUDA_INVALID_VALUE, r.cuda.capture_end(r.stream, &graph));
    CHECK_INT(0, begin_capture(&r));
    CHECK_INT(DL_CUDA_INVALID_VALUE, begin_capture(&r));
    CHECK_INT(DL_CUDA_INVALID_VALUE, r.cuda.capture_end(r.other, &graph));
    CHECK_INT(0, r.cuda.capture_end(r.stream, &graph));
    CHECK_INT(0, r.cuda.graph_destroy(graph));
    close_recorder(&r);
}

/* Adds a node to a graph, or sets the one of an executable graph. It writes n values. */
static int put_kernel(const recorder *r, void *graph, void *executable, void **node, void *function,
                      uint64_t n)
{
    faulty_arguments a = {.values = (float *)(uintptr_t)r->memory, .n = n};
    size_t size = sizeof a;
    void *extra[] = {DL_CUDA_EXTRA_POINTER, &a, DL_CUDA_EXTRA_SIZE, &size, DL_CUDA_EXTRA_END};
    const dl_cuda_kernel_node kernel = {.function = function,
                                        .grid_x = 2,
                                        .grid_y = 1,
                                        .grid_z = 1,
                                        .block_x = 256,
                                        .block_y = 1,
                                        .block_z = 1,
                                        .extra = extra};
    if (executable) return r->cuda.graph_set_kernel(executable, *node, &kernel);
    return r->cuda.graph_add_kernel(node, graph, NULL, 0, &kernel);
}

/* The stream is lazy, so the first launch runs after all of these calls. */
TEST(a_graph_that_runs_keeps_its_arguments_its_kernel_and_its_stream)
{
    recorder r;
    void *graph, *node, *executable;
    open_recorder(&r);
    CHECK_INT(0, r.cuda.graph_create(&graph, 0));
    CHECK_INT(0, put_kernel(&r, graph, NULL, &node, r.function, 3));
    CHECK_INT(0, r.cuda.graph_instantiate(&executable, graph, 0));
    CHECK_INT(0, r.cuda.fill(r.memory, 0, N * sizeof(float), r.stream));
    CHECK_INT(0, r.cuda.graph_launch(executable, r.stream));
    CHECK_INT(DL_CUDA_INVALID_VALUE, r.cuda.graph_launch(executable, r.other));
    CHECK_INT(0, put_kernel(&r, graph, executable, &node, r.function, 5));
    CHECK_INT(DL_CUDA_INVALID_VALUE, put_kernel(&r, graph, executable, &node, r.another, 5));
    CHECK_INT(0, r.cuda.copy_out(r.pinned, r.memory, N * sizeof(float), r.stream));
    CHECK_INT(0, r.cuda.stream_wait(r.stream));
    CHECK(((const float *)r.pinned)[2] == 2 && ((const float *)r.pinned)[3] == 0);
    CHECK_INT(0, r.cuda.graph_launch(executable, r.stream));
    CHECK_INT(0, r.cuda.copy_out(r.pinned, r.memory, N * sizeof(float), r.stream));
    CHECK_INT(0, r.cuda.graph_exec_destroy(executable)); /* it runs to its end */
    CHECK_INT(DL_CUDA_INVALID_VALUE, r.cuda.graph_launch(executable, r.stream));
    CHECK_INT(0, r.cuda.stream_wait(r.stream));
    CHECK(((const float *)r.pinned)[4] == 4 && ((const float *)r.pinned)[5] == 0);
    CHECK_INT(0, r.cuda.graph_destroy(graph));
    close_recorder(&r);
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
          work_that_a_capture_cannot_have_is_refused_and_invalidates_it,
          captures_of_other_modes_or_inside_of_another_are_refused,
          a_graph_that_runs_keeps_its_arguments_its_kernel_and_its_stream,
          fault_of_any_call_is_reported_once_and_nothing_hangs)
