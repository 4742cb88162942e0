/* emulated_nccl.c - the functions of NCCL that groups of cards call, for the emulated device.
 *
 * Each call is counted with those of the driver, so each can be the one that fails. A group of
 * calls is one collective of all ranks of a communicator, or an exchange of any of them. The
 * library refuses what would leave ranks waiting: another number of calls, another size, another
 * operation, or a send that no rank receives. */
#include "emulated_nccl.h"

#include "emulated.h"
#include "tensor/cuda/cuda_api.h"
#include "tensor/cuda/nccl_api.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN                            __attribute__((visibility("default")))
#define DECLARE(name, symbol, arguments) SHOWN int symbol arguments;
DL_NCCL_FUNCTIONS(DECLARE)
DL_CUDA_FUNCTIONS(DECLARE)
#undef DECLARE
SHOWN const char *ncclGetErrorString(int error);
SHOWN uint64_t emulated_communicators(void);

typedef struct communicator {
    uint64_t clique; /* of ncclCommInitAll */
    int rank, n, card;
} communicator;

static uint64_t n_cliques, n_open;

/* A call of ncclSend or ncclRecv. */
typedef struct transfer {
    const communicator *of;
    uint64_t memory, bytes;
    int peer;
    bool is_matched;
} transfer;
enum { MOST_TRANSFERS = 2 * EMULATED_MOST_DEVICES * EMULATED_MOST_DEVICES };

/* The calls of the group that has begun: a broadcast of all ranks, or an exchange of some. */
static struct {
    bool begun, failed; /* failed: one of the calls has */
    int n;              /* ranks */
    const communicator *of[EMULATED_MOST_DEVICES];
    emulated_request requests[EMULATED_MOST_DEVICES];
    size_t n_sends, n_receives;
    transfer sends[MOST_TRANSFERS], receives[MOST_TRANSFERS];
} calls;

uint64_t emulated_communicators(void)
{
    return n_open;
}

const char *ncclGetErrorString(int error)
{
    return error == DL_NCCL_INVALID_USAGE ? "invalid usage" : "of the emulated library";
}

int ncclCommInitAll(void **communicators, int n, const int *cards)
{
    int n_cards = 0;
    if (emulated_library_call()) return DL_NCCL_DRIVER_FAILED;
    if (cuDeviceGetCount(&n_cards)) return DL_NCCL_DRIVER_FAILED;
    if (n < 1 || n > EMULATED_MOST_DEVICES) return DL_NCCL_INVALID_ARGUMENT;
    for (int i = 0; i < n; i++)
        for (int k = 0; k <= i; k++)
            if (cards[i] >= n_cards || (k < i && cards[k] == cards[i]))
                return DL_NCCL_INVALID_USAGE;
    n_cliques++;
    for (int i = 0; i < n; i++) {
        communicator *c = calloc(1, sizeof *c);
        if (!c) abort();
        *c = (communicator){.clique = n_cliques, .rank = i, .n = n, .card = cards[i]};
        communicators[i] = c;
        n_open++;
    }
    return DL_NCCL_SUCCESS;
}

/* A call that fails closes the communicator, too. */
static int close_one(communicator *c, bool is_aborted)
{
    emulated_close(c->clique, (uint64_t)c->card, is_aborted);
    n_open--;
    free(c);
    return emulated_library_call() ? DL_NCCL_DRIVER_FAILED : DL_NCCL_SUCCESS;
}

int ncclCommDestroy(void *of)
{
    return close_one(of, false);
}

int ncclCommAbort(void *of)
{
    return close_one(of, true);
}

/* If this call is to fail, a collective has. */
int ncclCommGetAsyncError(void *of, int *result)
{
    *result = emulated_library_call() ? DL_NCCL_DRIVER_FAILED : DL_NCCL_SUCCESS;
    return of ? DL_NCCL_SUCCESS : DL_NCCL_INVALID_ARGUMENT;
}

int ncclGroupStart(void)
{
    if (calls.begun) return DL_NCCL_INVALID_USAGE; /* the library nests them; we do not */
    if (emulated_library_call()) return DL_NCCL_DRIVER_FAILED;
    memset(&calls, 0, sizeof calls);
    calls.begun = true;
    return DL_NCCL_SUCCESS;
}

/* Counts a call of the group. Returns whether it fails, and the group with it. */
static bool call_fails(void)
{
    if (!emulated_library_call()) return false;
    calls.failed = true;
    return true;
}

/* Adds a call to the group, in the place of its rank. */
static int add(const communicator *c, const emulated_request *request)
{
    if (!calls.begun || calls.n >= c->n || calls.of[c->rank]) return DL_NCCL_INVALID_USAGE;
    if (call_fails()) return DL_NCCL_DRIVER_FAILED;
    calls.of[c->rank] = c;
    calls.requests[c->rank] = *request;
    calls.requests[c->rank].device = (uint64_t)c->card;
    calls.requests[c->rank].clique = c->clique;
    calls.n++;
    return DL_NCCL_SUCCESS;
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *of,
                  void *stream)
{
    if (type != DL_NCCL_FLOAT32 || root != 0) return DL_NCCL_INVALID_ARGUMENT;
    return add(of, &(emulated_request){.size = EMULATED_BROADCAST,
                                       .to = (uintptr_t)to,
                                       .from = (uintptr_t)from,
                                       .n = count * sizeof(float),
                                       .stream = (uintptr_t)stream});
}

/* Returns the request of a rank of the exchange, which its first call makes. */
static emulated_request *request_of(const communicator *c, void *stream)
{
    emulated_request *r = &calls.requests[c->rank];
    if (!calls.of[c->rank]) {
        calls.of[c->rank] = c;
        *r = (emulated_request){.size = EMULATED_EXCHANGE,
                                .device = (uint64_t)c->card,
                                .clique = c->clique,
                                .stream = (uintptr_t)stream};
        calls.n++;
    }
    return r;
}

static int add_transfer(transfer *list, size_t *n, const transfer *call, int type, void *stream)
{
    const communicator *c = call->of;
    if (type != DL_NCCL_FLOAT32 || call->peer < 0 || call->peer >= c->n || call->peer == c->rank)
        return DL_NCCL_INVALID_ARGUMENT;
    if (!calls.begun || *n == MOST_TRANSFERS) return DL_NCCL_INVALID_USAGE;
    if (call_fails()) return DL_NCCL_DRIVER_FAILED;
    const emulated_request *r = request_of(c, stream);
    if (calls.of[c->rank] != c || r->size != EMULATED_EXCHANGE || r->stream != (uintptr_t)stream)
        return DL_NCCL_INVALID_USAGE; /* the library allows more; we do not use it */
    list[(*n)++] = *call;
    return DL_NCCL_SUCCESS;
}

int ncclSend(const void *from, size_t count, int type, int rank, void *of, void *stream)
{
    return add_transfer(
        calls.sends, &calls.n_sends,
        &(transfer){
            .of = of, .memory = (uintptr_t)from, .bytes = count * sizeof(float), .peer = rank},
        type, stream);
}

int ncclRecv(void *to, size_t count, int type, int rank, void *of, void *stream)
{
    return add_transfer(
        calls.receives, &calls.n_receives,
        &(transfer){
            .of = of, .memory = (uintptr_t)to, .bytes = count * sizeof(float), .peer = rank},
        type, stream);
}

/* Returns the first send that no earlier call receives. */
static transfer *send_to(const transfer *receive)
{
    for (size_t i = 0; i < calls.n_sends; i++) {
        transfer *s = &calls.sends[i];
        if (!s->is_matched && s->of->rank == receive->peer && s->peer == receive->of->rank)
            return s;
    }
    return NULL;
}

/* Adds each receive to the request of its rank. Returns false if a call has no counterpart. */
static bool match_transfers(void)
{
    if (calls.n_sends != calls.n_receives) return false;
    for (size_t i = 0; i < calls.n_receives; i++) {
        const transfer *x = &calls.receives[i];
        emulated_request *r = &calls.requests[x->of->rank];
        transfer *s = send_to(x);
        if (!s || s->bytes != x->bytes || s->of->clique != x->of->clique) return false;
        if (r->n == EMULATED_MOST_RECEIVES) return false;
        s->is_matched = true;
        ((emulated_receive *)(void *)r->arguments)[r->n++] = (emulated_receive){
            .to = x->memory, .from = s->memory, .bytes = x->bytes, .device = (uint64_t)s->of->card};
    }
    return true;
}

/* The requests of the ranks that take part, in order. */
static int exchange(void)
{
    emulated_request requests[EMULATED_MOST_DEVICES];
    size_t n = 0;
    if (!match_transfers()) return DL_NCCL_INVALID_USAGE;
    for (size_t i = 0; i < EMULATED_MOST_DEVICES; i++)
        if (calls.of[i]) requests[n++] = calls.requests[i];
    return emulated_collective(requests, n) ? DL_NCCL_DRIVER_FAILED : DL_NCCL_SUCCESS;
}

static int broadcast(void)
{
    for (int i = 0; i < calls.n; i++) /* with a rank too few, a place is empty */
        if (!calls.of[i] || calls.of[i]->n != calls.n ||
            calls.of[i]->clique != calls.of[0]->clique ||
            calls.requests[i].n != calls.requests[0].n ||
            calls.requests[i].size != calls.requests[0].size)
            return DL_NCCL_INVALID_USAGE;
    return emulated_collective(calls.requests, (size_t)calls.n) ? DL_NCCL_DRIVER_FAILED
                                                                : DL_NCCL_SUCCESS;
}

int ncclGroupEnd(void)
{
    if (!calls.begun) return DL_NCCL_INVALID_USAGE;
    calls.begun = false;
    if (calls.failed) return DL_NCCL_DRIVER_FAILED;
    if (calls.n == 0) return DL_NCCL_SUCCESS;
    return calls.n_sends + calls.n_receives ? exchange() : broadcast();
}
