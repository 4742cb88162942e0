/* emulated_nccl.c - the functions of NCCL that groups of cards call, for the emulated device.
 *
 * A group of calls is one collective of all ranks of a communicator. The library refuses what would
 * leave ranks waiting: another number of calls, another size, or another operation. */
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

/* The calls of the group that has begun. */
static struct {
    bool begun;
    int n;
    const communicator *of[EMULATED_MOST_DEVICES];
    emulated_request requests[EMULATED_MOST_DEVICES];
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

int ncclCommDestroy(void *of)
{
    n_open--;
    free(of);
    return DL_NCCL_SUCCESS;
}

int ncclCommAbort(void *of)
{
    return ncclCommDestroy(of);
}

int ncclCommGetAsyncError(void *of, int *result)
{
    *result = DL_NCCL_SUCCESS;
    return of ? DL_NCCL_SUCCESS : DL_NCCL_INVALID_ARGUMENT;
}

int ncclGroupStart(void)
{
    if (calls.begun) return DL_NCCL_INVALID_USAGE; /* the library nests them; we do not */
    memset(&calls, 0, sizeof calls);
    calls.begun = true;
    return DL_NCCL_SUCCESS;
}

/* Adds a call to the group, in the place of its rank. */
static int add(const communicator *c, const emulated_request *request)
{
    if (!calls.begun || calls.n >= c->n || calls.of[c->rank]) return DL_NCCL_INVALID_USAGE;
    calls.of[c->rank] = c;
    calls.requests[c->rank] = *request;
    calls.requests[c->rank].device = (uint64_t)c->card;
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

int ncclReduce(const void *from, void *to, size_t count, int type, int operation, int root,
               void *of, void *stream)
{
    if (type != DL_NCCL_FLOAT32 || operation != DL_NCCL_SUM || root != 0)
        return DL_NCCL_INVALID_ARGUMENT;
    return add(of, &(emulated_request){.size = EMULATED_SUM,
                                       .to = (uintptr_t)to,
                                       .from = (uintptr_t)from,
                                       .n = count * sizeof(float),
                                       .stream = (uintptr_t)stream});
}

int ncclGroupEnd(void)
{
    if (!calls.begun) return DL_NCCL_INVALID_USAGE;
    calls.begun = false;
    if (calls.n == 0) return DL_NCCL_SUCCESS;
    for (int i = 0; i < calls.n; i++) /* with a rank too few, a place is empty */
        if (!calls.of[i] || calls.of[i]->n != calls.n ||
            calls.of[i]->clique != calls.of[0]->clique ||
            calls.requests[i].n != calls.requests[0].n ||
            calls.requests[i].size != calls.requests[0].size)
            return DL_NCCL_INVALID_USAGE;
    return emulated_collective(calls.requests, (size_t)calls.n) ? DL_NCCL_DRIVER_FAILED
                                                                : DL_NCCL_SUCCESS;
}
