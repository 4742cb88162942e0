/* backend_cuda.c - a GPU by its driver's functions (cuda_api.h).
 *
 * All work goes to one stream, so it is done in the order of the calls; only groups use a second
 * stream, beside it, and events order the two. Kernels are held back until other work is queued or
 * awaited; then they start as one sequence (cuda_launches.h). Copies go through pinned memory,
 * `stage`. A copy in takes its next free bytes and does not wait; if too few are free, it waits
 * until the stream is done, and all are free again. A copy out waits. A wait of one card of a group
 * may be endless, so dl_group_make_room or dl_group_wait precedes it.
 *
 * Invariants: bytes of `stage` below `used` may still be read by the device; after the first
 * failure (`code`) no function of the driver is called but those that release. */
#include "tensor/cuda/backend_cuda.h"

#include "tensor/cuda/cuda_api.h"
#include "tensor/cuda/cuda_kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* STAGE bounds pinned memory, which the system cannot page out. MAX_KERNELS bounds a cache alone:
 * a kernel beyond it is found by the driver each time. */
enum { STAGE = 8 << 20, MAX_KERNELS = 128 };

typedef struct kernel {
    const char *name;
    void *function;
} kernel;

typedef struct gpu {
    dl_backend head;
    dl_backend_ops ops; /* the name is the source's; card is the second array below */
    char card[128];
    char shown[160]; /* the card and the library of products, which both decide bits */
    dl_cuda cuda;
    const char *collectives; /* library; NULL: none */
    int capability;          /* of the card */
    int index, device;       /* the card's number, and the driver's handle for it */
    void *context, *stream;
    void *beside;                    /* the second stream, for groups; NULL until it is used */
    void *events[DL_CUDA_MARKS + 1]; /* of marks, and of the join; NULL until they are used */
    void *modules[DL_CUDA_MAX_IMAGES];
    size_t n_modules;
    kernel kernels[MAX_KERNELS]; /* found so far */
    size_t n_kernels;
    dl_cuda_blas *blas; /* NULL: products are our kernels' */
    dl_cuda_launches *launches;
    unsigned char *stage; /* pinned, STAGE bytes */
    size_t used;
    int code;         /* of the first failure, or DL_CUDA_BLAS_FAILED; 0: none */
    const char *what; /* failed then */
} gpu;

/* ---- errors */

static const char *text_of(const gpu *g, int code)
{
    const char *text = NULL;
    if (g->cuda.error_text(code, &text) || !text) return "unknown error";
    return text;
}

/* Keeps the first failure. Returns false if there is one. */
static bool check(gpu *g, int code, const char *what)
{
    if (code && !g->code) {
        g->code = code;
        g->what = what;
    }
    return !g->code;
}

/* The context belongs to a thread, and the exchange copies from a thread of its own. Returns false
 * after a failure. */
static bool enter(gpu *g)
{
    return !g->code && check(g, g->cuda.context_set(g->context), "cuCtxSetCurrent");
}

/* Precedes each work other than a kernel: it starts the kernels that were held back. */
static bool begin(gpu *g)
{
    const char *what = NULL;
    if (!enter(g)) return false;
    const int code = dl_cuda_launches_submit(g->launches, &what);
    return check(g, code, what);
}

/* Names the card, since a replica may have several. */
static diloco_status failure(const gpu *g)
{
    char card[sizeof g->card + 32] = "";
    if (g->card[0]) snprintf(card, sizeof card, " (card %d, %.127s)", g->index, g->card);
    if (g->code == DL_CUDA_BLAS_FAILED) {
        const dl_cuda_blas_failure f = dl_cuda_blas_failed(g->blas);
        return dl_fail(DILOCO_EIO, "the %s device failed: %s: cuBLASLt status %d%s", g->ops.name,
                       f.function, f.status, card);
    }
    return dl_fail(DILOCO_EIO, "the %s device failed: %s: error %d, %s%s", g->ops.name, g->what,
                   g->code, text_of(g, g->code), card);
}

/* ---- memory and copies */

/* Returns false after a failure. Once the stream is done, the device reads no byte of the stage. */
static bool wait_for_stream(gpu *g)
{
    if (!begin(g) || !check(g, g->cuda.stream_wait(g->stream), "cuStreamSynchronize")) return false;
    g->used = 0;
    return true;
}

static diloco_status sync(dl_backend *self)
{
    gpu *g = (gpu *)self;
    return wait_for_stream(g) ? DILOCO_OK : failure(g);
}

static uint64_t address(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

static void zero(dl_backend *self, void *to, size_t n)
{
    gpu *g = (gpu *)self;
    if (n && begin(g)) check(g, g->cuda.fill(address(to), 0, n, g->stream), "cuMemsetD8Async");
}

/* All bits are set: NaN in each floating-point type, and -1. */
static void poison(dl_backend *self, void *memory, size_t n)
{
    gpu *g = (gpu *)self;
    if (begin(g)) check(g, g->cuda.fill(address(memory), 0xff, n, g->stream), "cuMemsetD8Async");
}

/* Running out of memory is the caller's to handle, so it is not kept. */
static void *alloc(dl_backend *self, size_t n)
{
    gpu *g = (gpu *)self;
    uint64_t at = 0;
    if (!begin(g)) return NULL;
    const int code = g->cuda.alloc(&at, n);
    if (code == DL_CUDA_OUT_OF_MEMORY || !check(g, code, "cuMemAlloc")) return NULL;
    void *memory = (void *)(uintptr_t)at;
    zero(self, memory, n);
    return memory;
}

/* Works after a failure as well, so that no memory of the card is lost. */
static void release(dl_backend *self, void *memory)
{
    gpu *g = (gpu *)self;
    if (!begin(g) && g->cuda.context_set(g->context)) return;
    check(g, g->cuda.release(address(memory)), "cuMemFree");
}

/* n free bytes of the stage, n <= STAGE. Returns NULL after a failure. */
static unsigned char *take_stage(gpu *g, size_t n)
{
    if (g->used + n > STAGE && !wait_for_stream(g)) return NULL;
    unsigned char *at = g->stage + g->used;
    g->used += n;
    return at;
}

static void copy_in(dl_backend *self, void *to, const void *host, size_t n)
{
    gpu *g = (gpu *)self;
    for (size_t at = 0, part; at < n && begin(g); at += part) {
        part = dl_size_min(n - at, STAGE);
        unsigned char *stage = take_stage(g, part);
        if (!stage) return;
        memcpy(stage, (const char *)host + at, part);
        check(g, g->cuda.copy_in(address(to) + at, stage, part, g->stream), "cuMemcpyHtoDAsync");
    }
}

static bool copy_part_out(gpu *g, void *host, uint64_t from, size_t n)
{
    unsigned char *stage = begin(g) ? take_stage(g, n) : NULL;
    if (!stage) return false;
    if (!check(g, g->cuda.copy_out(stage, from, n, g->stream), "cuMemcpyDtoHAsync")) return false;
    if (!wait_for_stream(g)) return false;
    memcpy(host, stage, n);
    return true;
}

/* After a failure the host gets zeros, and the next sync reports it. */
static void copy_out(dl_backend *self, void *host, const void *from, size_t n)
{
    gpu *g = (gpu *)self;
    for (size_t at = 0, part; at < n; at += part) {
        part = dl_size_min(n - at, STAGE);
        if (!copy_part_out(g, (char *)host + at, address(from) + at, part))
            memset((char *)host + at, 0, part);
    }
}

static void copy_within(dl_backend *self, void *to, const void *from, size_t n)
{
    gpu *g = (gpu *)self;
    if (n && begin(g))
        check(g, g->cuda.copy_within(address(to), address(from), n, g->stream),
              "cuMemcpyDtoDAsync");
}

/* ---- kernels */

/* Asks the driver. A missing kernel is a failure of the device, reported by the next sync. */
static void *find_in_modules(gpu *g, const char *name)
{
    void *function = NULL;
    for (size_t i = 0; i < g->n_modules; i++)
        if (g->cuda.function(&function, g->modules[i], name) == DL_CUDA_SUCCESS) return function;
    check(g, DL_CUDA_NOT_FOUND, name);
    return NULL;
}

static void *find_kernel(gpu *g, const char *name)
{
    for (size_t i = 0; i < g->n_kernels; i++)
        if (strcmp(g->kernels[i].name, name) == 0) return g->kernels[i].function;
    void *function = enter(g) ? find_in_modules(g, name) : NULL;
    if (function && g->n_kernels < MAX_KERNELS)
        g->kernels[g->n_kernels++] = (kernel){name, function};
    return function;
}

void dl_backend_cuda_launch(dl_backend *backend, const dl_cuda_launch *launch)
{
    gpu *g = (gpu *)backend;
    const size_t blocks = launch->n / DL_GPU_THREADS + (launch->n % DL_GPU_THREADS != 0);
    DL_ASSERT(backend->ops->device == DL_DEVICE_CUDA && blocks <= INT32_MAX);
    if (blocks == 0 || g->code) return;
    void *function = find_kernel(g, launch->kernel);
    const dl_cuda_call call = {.function = function,
                               .name = launch->kernel,
                               .blocks = (unsigned)blocks,
                               .arguments = launch->arguments,
                               .size = launch->size};
    if (!function || dl_cuda_launches_add(g->launches, &call)) return;
    if (begin(g)) dl_cuda_launches_add(g->launches, &call); /* the full sequence has been started */
}

bool dl_backend_cuda_product(dl_backend *backend, const dl_cuda_multiplication *product)
{
    gpu *g = (gpu *)backend;
    DL_ASSERT(backend->ops->device == DL_DEVICE_CUDA);
    if (!g->blas || !enter(g)) return false;
    const int plan = dl_cuda_blas_plan(g->blas, product);
    if (plan == DL_CUDA_BLAS_FAILED) check(g, DL_CUDA_BLAS_FAILED, "cuBLASLt");
    if (plan < 0) return false;
    if (!dl_cuda_launches_add_product(g->launches, plan, product) && begin(g))
        dl_cuda_launches_add_product(g->launches, plan, product);
    return true;
}

dl_cuda_counts dl_backend_cuda_counts(const dl_backend *backend)
{
    DL_ASSERT(backend->ops->device == DL_DEVICE_CUDA);
    return dl_cuda_launches_counts(((const gpu *)backend)->launches);
}

static void submit(dl_backend *self)
{
    (void)begin((gpu *)self);
}

/* ---- groups */

void *dl_backend_cuda_stream(dl_backend *backend)
{
    gpu *g = (gpu *)backend;
    DL_ASSERT(backend->ops->device == DL_DEVICE_CUDA);
    return begin(g) ? g->stream : NULL;
}

static bool make_beside(gpu *g)
{
    return enter(g) &&
           (g->beside || check(g, g->cuda.stream_create(&g->beside, DL_CUDA_STREAM_NON_BLOCKING),
                               "cuStreamCreate"));
}

static bool record(gpu *g, size_t i, void *stream)
{
    if (!g->events[i] &&
        !check(g, g->cuda.event_create(&g->events[i], DL_CUDA_EVENT_DISABLE_TIMING),
               "cuEventCreate"))
        return false;
    return check(g, g->cuda.event_record(g->events[i], stream), "cuEventRecord");
}

void dl_backend_cuda_mark(dl_backend *backend, size_t mark)
{
    gpu *g = (gpu *)backend;
    DL_ASSERT(backend->ops->device == DL_DEVICE_CUDA && mark < DL_CUDA_MARKS);
    if (begin(g)) record(g, mark, g->stream);
}

void *dl_backend_cuda_beside(dl_backend *backend, size_t mark)
{
    gpu *g = (gpu *)backend;
    DL_ASSERT(backend->ops->device == DL_DEVICE_CUDA && mark < DL_CUDA_MARKS);
    if (!make_beside(g)) return NULL;
    DL_ASSERT(g->events[mark]);
    return check(g, g->cuda.stream_await(g->beside, g->events[mark], 0), "cuStreamWaitEvent")
               ? g->beside
               : NULL;
}

void dl_backend_cuda_launch_beside(dl_backend *backend, const dl_cuda_launch *launch)
{
    gpu *g = (gpu *)backend;
    size_t size = launch->size;
    void *extra[] = {DL_CUDA_EXTRA_POINTER, (void *)(uintptr_t)launch->arguments,
                     DL_CUDA_EXTRA_SIZE, &size, DL_CUDA_EXTRA_END};
    const size_t blocks = launch->n / DL_GPU_THREADS + (launch->n % DL_GPU_THREADS != 0);
    DL_ASSERT(backend->ops->device == DL_DEVICE_CUDA && blocks <= INT32_MAX);
    if (blocks == 0 || !make_beside(g)) return;
    void *function = find_kernel(g, launch->kernel);
    if (function)
        check(g,
              g->cuda.launch(function, (unsigned)blocks, 1, 1, DL_GPU_THREADS, 1, 1, 0, g->beside,
                             NULL, extra),
              launch->kernel);
}

void dl_backend_cuda_join(dl_backend *backend)
{
    gpu *g = (gpu *)backend;
    DL_ASSERT(backend->ops->device == DL_DEVICE_CUDA);
    if (make_beside(g) && record(g, DL_CUDA_MARKS, g->beside) && begin(g))
        check(g, g->cuda.stream_await(g->stream, g->events[DL_CUDA_MARKS], 0), "cuStreamWaitEvent");
}

int dl_backend_cuda_index(const dl_backend *backend)
{
    DL_ASSERT(backend->ops->device == DL_DEVICE_CUDA);
    return ((const gpu *)backend)->index;
}

const char *dl_backend_cuda_collectives(const dl_backend *backend)
{
    DL_ASSERT(backend->ops->device == DL_DEVICE_CUDA);
    return ((const gpu *)backend)->collectives;
}

size_t dl_backend_cuda_room(const dl_backend *backend)
{
    DL_ASSERT(backend->ops->device == DL_DEVICE_CUDA);
    return STAGE - ((const gpu *)backend)->used;
}

dl_cuda_state dl_backend_cuda_poll(dl_backend *backend)
{
    gpu *g = (gpu *)backend;
    if (!begin(g)) return DL_CUDA_FAILED;
    int code = g->cuda.stream_query(g->stream);
    if (!code && g->beside) code = g->cuda.stream_query(g->beside);
    if (code == DL_CUDA_NOT_READY) return DL_CUDA_WORKS;
    return check(g, code, "cuStreamQuery") ? DL_CUDA_IDLE : DL_CUDA_FAILED;
}

diloco_status dl_backend_cuda_card(dl_cuda_card *out, dl_backend *backend)
{
    gpu *g = (gpu *)backend;
    size_t memory = 0;
    *out = (dl_cuda_card){.driver = 0};
    if (!enter(g) || !check(g, g->cuda.driver_version(&out->driver), "cuDriverGetVersion") ||
        !check(g, g->cuda.device_uuid(out->uuid, g->device), "cuDeviceGetUuid") ||
        !check(g, g->cuda.device_memory(&memory, g->device), "cuDeviceTotalMem"))
        return failure(g);
    memcpy(out->name, g->card, sizeof out->name);
    out->memory = memory;
    out->capability = g->capability;
    out->products = dl_cuda_blas_version(g->blas);
    return DILOCO_OK;
}

diloco_status dl_backend_cuda_memory_left(uint64_t *out, dl_backend *backend)
{
    gpu *g = (gpu *)backend;
    size_t left = 0, all = 0;
    DL_ASSERT(backend->ops->device == DL_DEVICE_CUDA);
    *out = 0;
    if (!begin(g) || !check(g, g->cuda.memory_left(&left, &all), "cuMemGetInfo")) return failure(g);
    *out = left;
    return DILOCO_OK;
}

static void nothing(dl_backend *self)
{
    (void)self;
}

/* ---- opening and closing */

/* Also closes a backend that open_gpu left half open; members that it did not reach are zero. */
static void destroy(dl_backend *self)
{
    gpu *g = (gpu *)self;
    if (g->context && g->cuda.context_set(g->context) == DL_CUDA_SUCCESS) {
        if (g->stream) (void)g->cuda.stream_wait(g->stream); /* it may still read the stage */
        if (g->beside) (void)g->cuda.stream_wait(g->beside);
        for (size_t i = 0; i <= DL_CUDA_MARKS; i++)
            if (g->events[i]) (void)g->cuda.event_destroy(g->events[i]);
        for (size_t i = 0; i < g->n_modules; i++)
            (void)g->cuda.module_unload(g->modules[i]);
        dl_cuda_blas_close(g->blas);
        g->blas = NULL;
        if (g->stage) (void)g->cuda.host_release(g->stage);
        if (g->beside) (void)g->cuda.stream_destroy(g->beside);
        if (g->stream) (void)g->cuda.stream_destroy(g->stream);
    }
    dl_cuda_launches_destroy(g->launches);
    dl_cuda_blas_close(g->blas); /* without a context the library frees what it can */
    if (g->context) (void)g->cuda.context_release(g->device);
    dl_cuda_unload(&g->cuda);
    free(g);
}

static const dl_backend_ops ops = {
    .device = DL_DEVICE_CUDA,
    .alloc = alloc,
    .release = release,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy_within = copy_within,
    .zero = zero,
    .enter = nothing,
    .leave = nothing,
    .submit = submit,
    .sync = sync,
    .destroy = destroy,
};

/* The driver would name an older card as a failure to load the images. */
static diloco_status check_capability(gpu *g, int oldest)
{
    int major = 0, minor = 0;
    const dl_cuda *cuda = &g->cuda;
    if (!check(g, cuda->device_attribute(&major, DL_CUDA_CAPABILITY_MAJOR, g->device),
               "cuDeviceGetAttribute") ||
        !check(g, cuda->device_attribute(&minor, DL_CUDA_CAPABILITY_MINOR, g->device),
               "cuDeviceGetAttribute"))
        return failure(g);
    g->capability = 10 * major + minor;
    if (g->capability >= oldest) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "%s has compute capability %d.%d, and the kernels need %d.%d or later: use a"
                   " newer card, or train on the CPU (trainer.device = \"cpu\")",
                   g->card, major, minor, oldest / 10, oldest % 10);
}

static diloco_status find_card(gpu *g, int index, int oldest)
{
    int n = 0;
    if (!check(g, g->cuda.init(0), "cuInit") ||
        !check(g, g->cuda.device_count(&n), "cuDeviceGetCount"))
        return failure(g);
    if (index < 0 || index >= n)
        return dl_fail(DILOCO_EREFUSED,
                       "there is no %s device %d: this machine has %d, numbered from 0",
                       g->ops.name, index, n);
    if (!check(g, g->cuda.device_get(&g->device, index), "cuDeviceGet") ||
        !check(g, g->cuda.device_name(g->card, sizeof g->card, g->device), "cuDeviceGetName"))
        return failure(g);
    g->card[sizeof g->card - 1] = '\0';
    return check_capability(g, oldest);
}

/* For example "NVIDIA H100, cuBLASLt 13.1.0". The library's version is 10000 major + 100 minor +
 * patch. */
static void name_device(gpu *g)
{
    const unsigned long long v = dl_cuda_blas_version(g->blas);
    snprintf(g->shown, sizeof g->shown, "%.120s", g->card);
    const size_t n = strlen(g->shown);
    if (v)
        snprintf(g->shown + n, sizeof g->shown - n, ", cuBLASLt %llu.%llu.%llu", v / 10000,
                 v / 100 % 100, v % 100);
}

/* n_modules counts loaded modules only, for destroy. */
static diloco_status load_images(gpu *g, const dl_cuda_source *source)
{
    for (size_t i = 0; i < source->n_images; i++) {
        if (!check(g, g->cuda.module_load(&g->modules[i], source->images[i].data),
                   "cuModuleLoadData"))
            return failure(g);
        g->n_modules++;
    }
    return DILOCO_OK;
}

static diloco_status open_gpu(gpu *g, const dl_cuda_source *source, int index)
{
    void *stage = NULL;
    if (source->n_images == 0)
        return dl_fail(DILOCO_EREFUSED,
                       "this program was built without device code for the %s backend: build it"
                       " where nvcc is, or train on the CPU (trainer.device = \"cpu\")",
                       g->ops.name);
    DL_ASSERT(source->n_images <= DL_CUDA_MAX_IMAGES);
    DL_TRY(dl_cuda_load(&g->cuda, source->library));
    DL_TRY(find_card(g, index, source->oldest));
    if (!check(g, g->cuda.context_retain(&g->context, g->device), "cuDevicePrimaryCtxRetain") ||
        !enter(g) ||
        !check(g, g->cuda.stream_create(&g->stream, DL_CUDA_STREAM_NON_BLOCKING),
               "cuStreamCreate") ||
        !check(g, g->cuda.host_alloc(&stage, STAGE, 0), "cuMemHostAlloc"))
        return failure(g);
    g->stage = stage;
    if (source->products) g->blas = dl_cuda_blas_open(&g->cuda, source->products);
    name_device(g);
    g->launches = dl_cuda_launches_create(&g->cuda, g->blas, g->stream, !source->unrecorded);
    if (!g->launches) return dl_fail(DILOCO_ENOMEM, "out of memory for a backend");
    return load_images(g, source);
}

diloco_status dl_backend_cuda(dl_backend **out, const dl_cuda_source *source, int index)
{
    *out = NULL;
    gpu *g = calloc(1, sizeof *g);
    if (!g) return dl_fail(DILOCO_ENOMEM, "out of memory for a backend");
    g->index = index;
    g->collectives = source->collectives;
    g->ops = ops;
    g->ops.name = source->name;
    g->ops.card = g->shown;
    if (source->poisons) g->ops.forget = poison;
    g->head.ops = &g->ops;
    const diloco_status status = open_gpu(g, source, index);
    if (status) {
        destroy(&g->head);
        return status;
    }
    *out = &g->head;
    return DILOCO_OK;
}
