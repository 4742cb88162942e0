/* group_cuda.c - groups of cards by NCCL, found by dlopen (tensor/group.h).
 *
 * One thread drives all cards, as NCCL's groups of calls allow. A thread for each card would only
 * queue the same work, and could stop between two collectives while the others wait in the second
 * one. The calls of a collective are made on all cards or on none: once one device has failed, no
 * collective is queued.
 *
 * A sum takes pieces of the arrays. Of a piece each rank adds one share:
 *
 *     1. all ranks send rank r share r, to its memory `shares`
 *     2. rank r adds them in the order of the ranks
 *     3. rank r sends rank 0 the sum
 *
 * Rank 0 adds in its own array. The others add over rank 0's share, so they keep their arrays. This
 * fixes the order of the additions. The order of the library's own sums depends on its version, on
 * the cards' connections and on the count.
 *
 * Invariant: after the first failure (`failed`) no communicator exists. */
#include "tensor/group.h"

#include "base/clock.h"
#include "tensor/cuda/backend_cuda.h"
#include "tensor/cuda/nccl_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The pause between two looks at the cards. It is short against a step, and leaves the processor to
 * other work. */
#define PAUSE (DL_MILLISECOND / 50)

typedef struct member {
    dl_backend *backend; /* borrowed */
    void *communicator;  /* owned; NULL after a failure */
    void *stream;        /* the backend's, for the collective that is being queued */
    float *shares;       /* owned, of the backend: f32[n - 1][most elements of a share] */
} member;

struct dl_group {
    dl_nccl api;
    dl_group_options options;
    size_t n;
    bool failed;
    bool in_flight; /* a collective may be, since no wait has followed it */
    char why[256];  /* of a failure of the library; empty: a device has failed */
    member members[DL_MAX_CARDS];
};

/* ---- the library */

static bool find_all(dl_nccl *api)
{
    void *at;
#define FIND(name, symbol, arguments)                                                              \
    if (!(at = dlsym(api->library, #symbol))) return false;                                        \
    memcpy(&api->name, &at, sizeof at);
    FIND(text, ncclGetErrorString, )
    DL_NCCL_FUNCTIONS(FIND)
#undef FIND
    return true;
}

static diloco_status load(dl_nccl *api, const char *path)
{
    /* It stays loaded, since it has threads of its own. */
    api->library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : NULL;
    if (api->library && find_all(api)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "several cards train one replica by NCCL, which cannot be loaded: %s. Install "
                   "it, or name one card in trainer.device",
                   !path          ? "this backend has no such library"
                   : api->library ? "it lacks a function, so it is too old"
                                  : dlerror());
}

/* ---- failures */

/* Ends all communicators. This also ends collectives that wait for a failed device, so that streams
 * and memory can be released. */
static void give_up(dl_group *g)
{
    g->failed = true;
    for (size_t i = 0; i < g->n; i++) {
        if (g->members[i].communicator) (void)g->api.abort(g->members[i].communicator);
        g->members[i].communicator = NULL;
    }
}

/* Keeps the first failure of the library. Returns false if the group has failed. */
static bool check(dl_group *g, int result, const char *what)
{
    if (g->failed || result == DL_NCCL_SUCCESS || result == DL_NCCL_IN_PROGRESS) return !g->failed;
    snprintf(g->why, sizeof g->why, "%s: error %d, %s", what, result, g->api.text(result));
    give_up(g);
    return false;
}

static diloco_status failure(const dl_group *g)
{
    for (size_t i = 0; !g->why[0] && i < g->n; i++)
        if (dl_backend_cuda_poll(g->members[i].backend) == DL_CUDA_FAILED)
            return dl_backend_sync(g->members[i].backend); /* its text, without a wait */
    return dl_fail(DILOCO_EIO, "the collectives between the cards failed: %s", g->why);
}

/* ---- collectives */

/* Starts what the devices hold back, and gets their streams. Returns false if one has failed. */
static bool prepare(dl_group *g)
{
    for (size_t i = 0; !g->failed && i < g->n; i++) {
        g->members[i].stream = dl_backend_cuda_stream(g->members[i].backend);
        if (!g->members[i].stream) give_up(g);
    }
    g->in_flight = true;
    return !g->failed;
}

void dl_group_broadcast(dl_group *g, float *const *arrays, size_t count)
{
    if (!prepare(g) || !check(g, g->api.begin(), "ncclGroupStart")) return;
    int result = DL_NCCL_SUCCESS;
    for (size_t i = 0; !result && i < g->n; i++)
        result = g->api.broadcast(arrays[i], arrays[i], count, DL_NCCL_FLOAT32, 0,
                                  g->members[i].communicator, g->members[i].stream);
    const int ended = g->api.end();
    check(g, result ? result : ended, "ncclBroadcast");
}

/* ---- sums */

/* The elements of a piece that rank r adds: whole cache lines, but for the last. */
typedef struct share {
    size_t begin, n;
} share;

enum { LINE = 32 }; /* elements */
_Static_assert((int)DL_GROUP_MARKS == (int)DL_CUDA_MARKS, "a mark of a group is one of each card");

static size_t largest_share(size_t count, size_t n_ranks)
{
    return dl_size_round_up((count + n_ranks - 1) / n_ranks, LINE);
}

static share share_of(size_t count, size_t n_ranks, size_t r)
{
    const size_t most = largest_share(count, n_ranks), begin = dl_size_min(r * most, count);
    return (share){begin, dl_size_min(count - begin, most)};
}

/* Where rank r receives share r of rank `from`, another one. */
static float *place_of(const dl_group *g, size_t r, size_t from)
{
    return g->members[r].shares +
           (from < r ? from : from - 1) * largest_share(g->options.piece, g->n);
}

/* Queues a copy from one rank to another, within a group of calls. */
static int move(const dl_group *g, size_t to, float *array, size_t from, const float *values,
                size_t n)
{
    const member *a = &g->members[from], *b = &g->members[to];
    if (n == 0) return DL_NCCL_SUCCESS;
    const int result = g->api.send(values, n, DL_NCCL_FLOAT32, (int)to, a->communicator, a->stream);
    return result
               ? result
               : g->api.receive(array, n, DL_NCCL_FLOAT32, (int)from, b->communicator, b->stream);
}

/* Sends the shares of piece arrays[i] + at, f32[count], to the ranks that add them. */
static bool spread_shares(dl_group *g, float *const *arrays, size_t at, size_t count)
{
    int result = DL_NCCL_SUCCESS;
    if (!check(g, g->api.begin(), "ncclGroupStart")) return false;
    for (size_t r = 0; r < g->n; r++) {
        const share s = share_of(count, g->n, r);
        for (size_t from = 0; !result && from < g->n; from++)
            if (from != r)
                result = move(g, r, place_of(g, r, from), from, arrays[from] + at + s.begin, s.n);
    }
    const int ended = g->api.end();
    return check(g, result ? result : ended, "ncclSend");
}

/* Each rank adds its share. Returns with the sums of rank r >= 1 in its place of rank 0. */
static void add_shares(const dl_group *g, float *const *arrays, size_t at, size_t count)
{
    for (size_t r = 0; r < g->n; r++) {
        const share s = share_of(count, g->n, r);
        float *own = arrays[r] + at + s.begin, *sum = r ? place_of(g, r, 0) : own;
        for (size_t from = 1; from < g->n; from++)
            g->options.add(g->members[r].backend, sum, from == r ? own : place_of(g, r, from), s.n);
    }
}

static bool collect_sums(dl_group *g, float *to, size_t count)
{
    int result = DL_NCCL_SUCCESS;
    if (!check(g, g->api.begin(), "ncclGroupStart")) return false;
    for (size_t r = 1; !result && r < g->n; r++) {
        const share s = share_of(count, g->n, r);
        result = move(g, 0, to + s.begin, r, place_of(g, r, 0), s.n);
    }
    const int ended = g->api.end();
    return check(g, result ? result : ended, "ncclSend");
}

/* Lets the second stream of each device wait for a mark. Returns false if one has failed. */
static bool prepare_beside(dl_group *g, size_t mark)
{
    for (size_t i = 0; !g->failed && i < g->n; i++) {
        g->members[i].stream = dl_backend_cuda_beside(g->members[i].backend, mark);
        if (!g->members[i].stream) give_up(g);
    }
    g->in_flight = true;
    return !g->failed;
}

/* Queues the copies of scatter, or of gather, which go the other way. */
static void divide(dl_group *g, float *const *arrays, const size_t *bounds, bool gathers)
{
    int result = DL_NCCL_SUCCESS;
    if (!prepare(g) || !check(g, g->api.begin(), "ncclGroupStart")) return;
    for (size_t i = 1; !result && i < g->n; i++) {
        float *first = arrays[0] + bounds[i], *other = arrays[i] + bounds[i];
        const size_t n = bounds[i + 1] - bounds[i];
        result = gathers ? move(g, 0, first, i, other, n) : move(g, i, other, 0, first, n);
    }
    const int ended = g->api.end();
    check(g, result ? result : ended, "ncclSend");
}

void dl_group_scatter(dl_group *g, float *const *arrays, const size_t *bounds)
{
    divide(g, arrays, bounds, false);
}

void dl_group_gather(dl_group *g, float *const *arrays, const size_t *bounds)
{
    divide(g, arrays, bounds, true);
}

void dl_group_mark(dl_group *g, size_t i, size_t mark)
{
    DL_ASSERT(mark < DL_GROUP_MARKS);
    if (!g->failed) dl_backend_cuda_mark(g->members[i].backend, mark);
}

void dl_group_sum_part(dl_group *g, float *const *arrays, size_t count, size_t mark)
{
    if (g->failed || !prepare_beside(g, mark)) return;
    for (size_t at = 0, n; at < count; at += n) {
        n = dl_size_min(count - at, g->options.piece);
        if (!spread_shares(g, arrays, at, n)) return;
        add_shares(g, arrays, at, n);
        if (!collect_sums(g, arrays[0] + at, n)) return;
    }
}

void dl_group_join(dl_group *g)
{
    for (size_t i = 0; !g->failed && i < g->n; i++)
        dl_backend_cuda_join(g->members[i].backend);
}

void dl_group_sum(dl_group *g, float *const *arrays, size_t count)
{
    for (size_t i = 0; i < g->n; i++)
        dl_group_mark(g, i, 0);
    dl_group_sum_part(g, arrays, count, 0);
    dl_group_join(g);
}

/* ---- waiting */

/* Looks at all cards. Returns true if one still works; after a failure false. */
static bool any_works(dl_group *g)
{
    bool works = false;
    for (size_t i = 0; !g->failed && i < g->n; i++) {
        int result = DL_NCCL_SUCCESS;
        const dl_cuda_state state = dl_backend_cuda_poll(g->members[i].backend);
        if (state == DL_CUDA_FAILED) give_up(g);
        if (g->failed) break;
        check(g, g->api.failure(g->members[i].communicator, &result), "ncclCommGetAsyncError");
        check(g, result, "a collective");
        works |= state == DL_CUDA_WORKS;
    }
    return works && !g->failed;
}

diloco_status dl_group_wait(dl_group *g)
{
    while (any_works(g))
        dl_clock_sleep(PAUSE);
    if (g->failed) return failure(g);
    g->in_flight = false;
    return DILOCO_OK;
}

diloco_status dl_group_make_room(dl_group *g, size_t i, size_t bytes)
{
    const bool fits = bytes <= dl_backend_cuda_room(g->members[i].backend);
    return g->in_flight && !fits ? dl_group_wait(g) : DILOCO_OK;
}

/* ---- opening and closing */

/* All are taken before a step, which allocates nothing. */
static diloco_status take_shares(dl_group *g)
{
    const size_t n = (g->n - 1) * largest_share(g->options.piece, g->n);
    for (size_t i = 0; i < g->n; i++) {
        void *memory;
        DL_TRY(dl_backend_alloc(g->members[i].backend, &memory, n * sizeof(float)));
        g->members[i].shares = memory;
    }
    return DILOCO_OK;
}

static diloco_status open_group(dl_group *g, dl_backend *const *backends, size_t n)
{
    int cards[DL_MAX_CARDS];
    void *communicators[DL_MAX_CARDS] = {NULL};
    for (size_t i = 0; i < n; i++) {
        g->members[i].backend = backends[i];
        cards[i] = dl_backend_cuda_index(backends[i]);
    }
    DL_TRY(load(&g->api, dl_backend_cuda_collectives(backends[0])));
    const int result = g->api.open_all(communicators, (int)n, cards);
    if (result == DL_NCCL_INVALID_USAGE)
        return dl_fail(DILOCO_EREFUSED, "NCCL refuses these cards for one replica: %s",
                       g->api.text(result));
    if (result)
        return dl_fail(DILOCO_EIO, "NCCL cannot connect the cards: error %d, %s", result,
                       g->api.text(result));
    for (size_t i = 0; i < n; i++)
        g->members[i].communicator = communicators[i];
    g->n = n;
    return take_shares(g);
}

diloco_status dl_group_create(dl_group **out, dl_backend *const *backends, size_t n,
                              const dl_group_options *options)
{
    *out = NULL;
    DL_ASSERT(n >= 2 && n <= DL_MAX_CARDS && options->piece > 0);
    dl_group *g = calloc(1, sizeof *g);
    if (!g) return dl_fail(DILOCO_ENOMEM, "out of memory for a group of %zu devices", n);
    g->options = *options;
    const diloco_status status = open_group(g, backends, n);
    if (status)
        dl_group_destroy(g);
    else
        *out = g;
    return status;
}

void dl_group_destroy(dl_group *g)
{
    if (!g) return;
    /* Else to close a communicator could wait for a device that has failed since. */
    while (g->in_flight && any_works(g))
        dl_clock_sleep(PAUSE);
    for (size_t i = 0; i < g->n; i++)
        if (g->members[i].communicator) (void)g->api.close(g->members[i].communicator);
    for (size_t i = 0; i < g->n; i++)
        if (g->members[i].shares) dl_backend_release(g->members[i].backend, g->members[i].shares);
    if (g->api.library) dlclose(g->api.library);
    free(g);
}
