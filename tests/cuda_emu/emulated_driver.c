/* emulated_driver.c - the functions of a GPU's driver for the emulated device (emulated.h).
 *
 * One device process serves all threads of this one; a lock is around each request. It is started
 * by the first call after emulated_configure or after its end, and ends with its socket. */
#include "emulated_parts.h"

#include <pthread.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_PINNED = 64, EMULATED_MEMORY = 1 << 30 };

static struct {
    pthread_mutex_t lock; /* of all below */
    emulated_setup setup;
    uint64_t calls;
    int code; /* of the first failure of the device, returned from then on */
    char text[EMULATED_TEXT];
    pid_t process; /* 0: none */
    int socket;
    bool mapped;
    int file; /* of pinned memory */
    uint64_t device_bytes, contexts[EMULATED_MOST_DEVICES], collectives;
    struct {
        uint64_t at, bytes, device;
    } pieces[1024]; /* of the device */
    size_t n_pieces;
    bool is_lost[EMULATED_MOST_DEVICES];
    uint64_t pinned[N_PINNED]; /* sizes of the pieces, in order of their addresses */
} emu = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local uint64_t context; /* its device + 1; 0: none */

/* ---- the process */

static bool map_all(void)
{
    if (emu.mapped) return true;
    const int fixed = MAP_FIXED_NOREPLACE;
    void *device = (void *)(uintptr_t)EMULATED_BASE, *pinned = (void *)(uintptr_t)EMULATED_PINNED;
    emu.file = memfd_create("pinned", 0);
    if (emu.file < 0 || ftruncate(emu.file, (off_t)EMULATED_PINNED_BYTES)) return false;
    if (mmap(device, EMULATED_DEVICE_BYTES, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0) != device)
        return false;
    emu.mapped = mmap(pinned, EMULATED_PINNED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | fixed,
                      emu.file, 0) == pinned;
    return emu.mapped;
}

static char *last_words(void)
{
    return ((emulated_last_words *)(uintptr_t)EMULATED_PINNED)->text;
}

static bool transfer(bool out, void *data, size_t n)
{
    for (size_t done = 0; done < n;) {
        char *at = (char *)data + done;
        const ssize_t got =
            out ? send(emu.socket, at, n - done, MSG_NOSIGNAL) : recv(emu.socket, at, n - done, 0);
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

static void stop(void)
{
    if (!emu.process) return;
    close(emu.socket);
    waitpid(emu.process, NULL, 0);
    emu.process = 0;
}

static bool start(void)
{
    int ends[2];
    char program[] = EMULATED_PROGRAM;
    char *const argv[] = {program, NULL}, *const env[] = {NULL};
    posix_spawn_file_actions_t actions;
    if (emu.process) return true;
    if (!map_all() || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) return false;
    posix_spawn_file_actions_init(&actions);
    /* The new numbers may be those of the old ones: go by way of two that are surely free. */
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1000);
    posix_spawn_file_actions_adddup2(&actions, emu.file, 1001);
    posix_spawn_file_actions_adddup2(&actions, 1000, EMULATED_SOCKET);
    posix_spawn_file_actions_adddup2(&actions, 1001, EMULATED_FILE);
    posix_spawn_file_actions_addclose(&actions, 1000);
    posix_spawn_file_actions_addclose(&actions, 1001);
    const int failed = posix_spawn(&emu.process, program, &actions, NULL, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    emu.socket = ends[0];
    last_words()[0] = '\0';
    if (failed) {
        fprintf(stderr, "emulated device: %s: %s\n", program, strerror(failed));
        close(ends[0]);
        emu.process = 0;
    }
    return !failed;
}

/* A program that was not written for the emulated device: the kernel that loses its last block. */
static void configure_by_environment(void)
{
    const char *kernel = getenv("EMULATED_FAULT");
    if (!kernel || emu.setup.fault) return;
    emu.setup.fault = EMULATED_BLOCK_LOST;
    snprintf(emu.setup.fault_in, sizeof emu.setup.fault_in, "%s", kernel);
}

int emulated_exchange_request(emulated_request *request, uint64_t *value)
{
    emulated_reply reply;
    const bool names_device = request->op == EMULATED_COLLECTIVE || request->op == EMULATED_ABORT ||
                              request->op == EMULATED_CLOSE;
    if (!names_device) request->device = context ? context - 1 : 0;
    if (emu.code) return emu.code;
    if (!emu.process) {
        configure_by_environment();
        emulated_request first = {.op = EMULATED_CONFIGURE, .setup = emu.setup};
        if (!start() || !transfer(true, &first, sizeof first) ||
            !transfer(false, &reply, sizeof reply)) {
            emu.code = DL_CUDA_LAUNCH_FAILED;
            return emu.code;
        }
    }
    if (!transfer(true, request, sizeof *request) || !transfer(false, &reply, sizeof reply)) {
        snprintf(emu.text, sizeof emu.text, "%s",
                 last_words()[0] ? last_words() : "the device process ended");
        emu.code = DL_CUDA_LAUNCH_FAILED;
        stop();
        return emu.code;
    }
    if (value) *value = reply.value;
    return reply.result;
}

const emulated_setup *emulated_setup_now(void)
{
    return &emu.setup;
}

static void end_at_exit(void)
{
    stop();
}

SHOWN void emulated_configure(const emulated_setup *setup)
{
    static bool registered;
    pthread_mutex_lock(&emu.lock);
    stop();
    if (!registered) atexit(end_at_exit);
    registered = true;
    emu.setup = *setup;
    emu.calls = emu.device_bytes = emu.n_pieces = 0;
    memset(emu.contexts, 0, sizeof emu.contexts);
    memset(emu.is_lost, 0, sizeof emu.is_lost);
    emu.code = 0;
    emu.text[0] = '\0';
    emulated_forget_graphs();
    emulated_forget_events();
    memset(emu.pinned, 0, sizeof emu.pinned);
    pthread_mutex_unlock(&emu.lock);
}

SHOWN uint64_t emulated_calls(void)
{
    return emu.calls;
}

SHOWN int emulated_has_ended(void)
{
    return emu.code != 0;
}

SHOWN uint64_t emulated_leaked(void)
{
    uint64_t bytes = emu.device_bytes + emulated_graphs() + emulated_events(); /* a byte for each */
    for (size_t i = 0; i < N_PINNED; i++)
        bytes += emu.pinned[i];
    return bytes;
}

/* ---- a call */

static void lose_device(void)
{
    emulated_request r = {.op = EMULATED_LOSE};
    emu.is_lost[context - 1] = true;
    if (emu.process) (void)emulated_exchange_request(&r, NULL);
}

int emulated_enter(bool needs_context)
{
    pthread_mutex_lock(&emu.lock);
    const bool fails = ++emu.calls == emu.setup.fail_at;
    if (fails && emu.setup.loses_device && needs_context && context) lose_device();
    if (fails) return emu.setup.fail_with;
    if (needs_context && !context) return DL_CUDA_INVALID_CONTEXT;
    if (needs_context && emu.is_lost[context - 1]) return emu.setup.fail_with;
    return emu.code;
}

int emulated_leave(int code)
{
    pthread_mutex_unlock(&emu.lock);
    return code;
}

int emulated_ask(emulated_request *request, uint64_t *value)
{
    int code = emulated_enter(true);
    if (!code) code = emulated_capture_refuses(request->stream, request->op == EMULATED_LAUNCH);
    if (!code && !(request->op == EMULATED_LAUNCH && emulated_capture(request)))
        code = emulated_exchange_request(request, value);
    return emulated_leave(code);
}

SHOWN int emulated_collective(emulated_request *requests, size_t n)
{
    int code = emulated_enter(false);
    const int injected = emu.code ? 0 : code;
    emu.collectives++;
    if (injected) code = 0;
    for (size_t i = 0; !code && i < (injected ? n / 2 : n); i++) {
        requests[i].op = EMULATED_COLLECTIVE;
        requests[i].grid = (uint32_t)n;
        requests[i].block = (uint32_t)i;
        requests[i].kernel = emu.collectives;
        code = emulated_exchange_request(&requests[i], NULL);
    }
    return emulated_leave(injected ? injected : code);
}

SHOWN void emulated_close(uint64_t clique, uint64_t device, int is_aborted)
{
    emulated_request r = {
        .op = is_aborted ? EMULATED_ABORT : EMULATED_CLOSE, .clique = clique, .device = device};
    pthread_mutex_lock(&emu.lock);
    if (emu.process) (void)emulated_exchange_request(&r, NULL);
    pthread_mutex_unlock(&emu.lock);
}

SHOWN int emulated_library_call(void)
{
    pthread_mutex_lock(&emu.lock);
    return emulated_leave(++emu.calls == emu.setup.fail_at);
}

SHOWN int emulated_kernel_name(char *out, size_t size, size_t i)
{
    emulated_request r = {.op = EMULATED_NAME, .n = i};
    pthread_mutex_lock(&emu.lock);
    const int code = emulated_exchange_request(&r, NULL);
    snprintf(out, size, "%s", code ? "" : last_words());
    return emulated_leave(code) == 0;
}

/* ---- the device */

int cuInit(unsigned flags)
{
    (void)flags;
    return emulated_leave(emulated_enter(false));
}

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return emulated_leave(emulated_enter(false));
}

int cuDeviceGetCount(int *n)
{
    const char *given = getenv("EMULATED_DEVICES");
    *n = emu.setup.devices ? (int)emu.setup.devices : given ? atoi(given) : 1;
    return emulated_leave(emulated_enter(false));
}

int cuDeviceGet(int *device, int index)
{
    *device = index;
    return emulated_leave(emulated_enter(false));
}

int cuDeviceGetName(char *name, int len, int device)
{
    (void)device;
    snprintf(name, (size_t)len, "emulated device");
    return emulated_leave(emulated_enter(false));
}

int cuDeviceGetUuid_v2(unsigned char uuid[16], int device)
{
    memset(uuid, device, 16);
    return emulated_leave(emulated_enter(false));
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = emu.setup.memory ? emu.setup.memory : EMULATED_MEMORY;
    return emulated_leave(emulated_enter(false));
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    const int capability = emu.setup.capability ? emu.setup.capability : 90;
    int code = emulated_enter(false);
    if (attribute == DL_CUDA_CAPABILITY_MAJOR)
        *value = capability / 10;
    else if (attribute == DL_CUDA_CAPABILITY_MINOR)
        *value = capability % 10;
    else if (!code)
        code = DL_CUDA_INVALID_VALUE;
    return emulated_leave(code);
}

int cuDevicePrimaryCtxRetain(void **out, int device)
{
    const int code = emulated_enter(false);
    *out = &emu.contexts[device];
    emu.contexts[device] += code == 0;
    return emulated_leave(code);
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    const int code = emulated_enter(false);
    emu.contexts[device] -= emu.contexts[device] > 0;
    return emulated_leave(code);
}

int cuCtxSetCurrent(void *given)
{
    const int code = emulated_enter(false);
    context = 0;
    for (uint64_t i = 0; !code && i < EMULATED_MOST_DEVICES; i++)
        if (given == &emu.contexts[i] && emu.contexts[i] > 0) context = i + 1;
    return emulated_leave(code);
}

int cuGetErrorString(int code, const char **text)
{
    *text = emu.text[0]                     ? emu.text
            : code == DL_CUDA_OUT_OF_MEMORY ? "out of memory"
            : code == DL_CUDA_INVALID_VALUE ? "invalid value"
                                            : "injected, or of another call";
    return 0;
}

/* ---- memory */

int cuMemAlloc_v2(uint64_t *at, size_t n)
{
    emulated_request r = {.op = EMULATED_ALLOC, .n = n};
    int code = emulated_enter(true);
    if (!code) code = emulated_exchange_request(&r, at);
    if (!code && emu.n_pieces < sizeof emu.pieces / sizeof emu.pieces[0]) {
        emu.pieces[emu.n_pieces].at = *at;
        emu.pieces[emu.n_pieces].device = context - 1;
        emu.pieces[emu.n_pieces++].bytes = n;
        emu.device_bytes += n;
    }
    return emulated_leave(code);
}

int cuMemFree_v2(uint64_t at)
{
    emulated_request r = {.op = EMULATED_RELEASE, .to = at};
    int code = emulated_enter(true);
    if (!code) code = emulated_exchange_request(&r, NULL);
    for (size_t i = 0; i < emu.n_pieces; i++)
        if (emu.pieces[i].at == at) {
            emu.device_bytes -= emu.pieces[i].bytes;
            emu.pieces[i] = emu.pieces[--emu.n_pieces];
            break;
        }
    return emulated_leave(code);
}

/* Pieces that are not noted are few, and are not counted. */
int cuMemGetInfo_v2(size_t *left, size_t *all)
{
    const int code = emulated_enter(true);
    *left = *all = emu.setup.memory ? emu.setup.memory : EMULATED_MEMORY;
    for (size_t i = 0; !code && i < emu.n_pieces; i++)
        if (emu.pieces[i].device == context - 1) *left -= emu.pieces[i].bytes;
    return emulated_leave(code);
}

/* Slots of equal size after the page of last words. */
enum { PINNED_SLOT = (256 << 20) / N_PINNED };

static void *slot_at(size_t i)
{
    return (char *)(uintptr_t)EMULATED_PINNED + i * PINNED_SLOT + (i ? 0 : EMULATED_PAGE);
}

/* Pinned memory begins poisoned, too. Pieces longer than a slot take the next ones. */
int cuMemHostAlloc(void **at, size_t n, unsigned flags)
{
    (void)flags;
    const size_t slots = (n + EMULATED_PAGE + PINNED_SLOT - 1) / PINNED_SLOT;
    int code = emulated_enter(true);
    size_t i = 0, free_slots = 0;
    for (; !code && i < N_PINNED && free_slots < slots; i++)
        free_slots = emu.pinned[i] ? 0 : free_slots + 1;
    if (!code && (free_slots < slots || !map_all())) code = DL_CUDA_OUT_OF_MEMORY;
    if (code) return emulated_leave(code);
    const size_t first = i - slots;
    for (size_t k = first; k < i; k++)
        emu.pinned[k] = 1;
    emu.pinned[first] = n;
    *at = slot_at(first);
    memset(*at, 0xff, n);
    return emulated_leave(0);
}

int cuMemFreeHost(void *at)
{
    int code = emulated_enter(true);
    for (size_t i = 0; i < N_PINNED; i++)
        if (emu.pinned[i] && slot_at(i) == at) {
            const size_t n = (size_t)emu.pinned[i];
            const size_t slots = (n + EMULATED_PAGE + PINNED_SLOT - 1) / PINNED_SLOT;
            memset(at, 0xff, n); /* a copy that still reads it moves poison */
            memset(&emu.pinned[i], 0, slots * sizeof emu.pinned[0]);
            return emulated_leave(code);
        }
    return emulated_leave(code ? code : DL_CUDA_INVALID_VALUE);
}

/* ---- work */

static int copy(uint64_t to, uint64_t from, size_t n, void *stream)
{
    emulated_request r = {
        .op = EMULATED_COPY, .to = to, .from = from, .n = n, .stream = (uintptr_t)stream};
    return emulated_ask(&r, NULL);
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *stream)
{
    return copy(to, (uintptr_t)from, n, stream);
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *stream)
{
    return copy((uintptr_t)to, from, n, stream);
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *stream)
{
    return copy(to, from, n, stream);
}

int cuMemsetD8Async(uint64_t at, unsigned char value, size_t n, void *stream)
{
    emulated_request r = {
        .op = EMULATED_FILL, .to = at, .from = value, .n = n, .stream = (uintptr_t)stream};
    return emulated_ask(&r, NULL);
}

int cuStreamCreate(void **stream, unsigned flags)
{
    (void)flags;
    uint64_t value = 0;
    emulated_request r = {.op = EMULATED_STREAM_CREATE};
    const int code = emulated_ask(&r, &value);
    *stream = (void *)(uintptr_t)value;
    return code;
}

int cuStreamDestroy_v2(void *stream)
{
    emulated_request r = {.op = EMULATED_STREAM_DESTROY, .stream = (uintptr_t)stream};
    return emulated_ask(&r, NULL);
}

int cuStreamSynchronize(void *stream)
{
    emulated_request r = {.op = EMULATED_WAIT, .stream = (uintptr_t)stream};
    return emulated_ask(&r, NULL);
}

int cuStreamQuery(void *stream)
{
    emulated_request r = {.op = EMULATED_QUERY, .stream = (uintptr_t)stream};
    return emulated_ask(&r, NULL);
}

/* The kernels are the device program's own; the image is not read. */
int cuModuleLoadData(void **module, const void *image)
{
    const int code = emulated_enter(true);
    *module = &emu;
    return emulated_leave(code || image ? code : DL_CUDA_INVALID_VALUE);
}

int cuModuleUnload(void *module)
{
    (void)module;
    return emulated_leave(emulated_enter(true));
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    (void)module;
    uint64_t value = 0;
    emulated_request r = {.op = EMULATED_FIND};
    snprintf((char *)r.arguments, sizeof r.arguments, "%s", name);
    const int code = emulated_ask(&r, &value);
    *function = (void *)(uintptr_t)value;
    return code;
}

bool emulated_launch_request(emulated_request *out, const emulated_launch_call *c)
{
    void **const extra = c->extra;
    const bool flat = c->grid[1] == 1 && c->grid[2] == 1 && c->block[1] == 1 && c->block[2] == 1;
    const bool as_bytes = !c->parameters && extra && extra[0] == DL_CUDA_EXTRA_POINTER &&
                          extra[2] == DL_CUDA_EXTRA_SIZE && extra[4] == DL_CUDA_EXTRA_END;
    const size_t size = as_bytes ? *(const size_t *)extra[3] : 0;
    if (!flat || c->shared_bytes || !as_bytes || size > EMULATED_ARGUMENTS) return false;
    *out = (emulated_request){.op = EMULATED_LAUNCH,
                              .grid = c->grid[0],
                              .block = c->block[0],
                              .size = (uint32_t)size,
                              .kernel = (uintptr_t)c->function};
    memcpy(out->arguments, extra[1], size);
    return true;
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void *stream, void **parameters, void **extra)
{
    emulated_request r;
    const emulated_launch_call call = {.function = function,
                                       .grid = {grid_x, grid_y, grid_z},
                                       .block = {block_x, block_y, block_z},
                                       .shared_bytes = shared_bytes,
                                       .parameters = parameters,
                                       .extra = extra};
    if (!emulated_launch_request(&r, &call)) return DL_CUDA_INVALID_VALUE;
    r.stream = (uintptr_t)stream;
    return emulated_ask(&r, NULL);
}
