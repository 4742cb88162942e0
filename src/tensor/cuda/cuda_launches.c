/* cuda_launches.c - see cuda_launches.h.
 *
 * A graph is a chain: each kernel depends on the one before, as on a stream. Graphs are found by
 * their kernels and sizes. A sequence that comes once, such as a sample's of one length, is not
 * worth a graph, so only its fingerprint is kept. */
#include "tensor/cuda/cuda_launches.h"

#include "tensor/cuda/cuda_kernel.h"

#include <stdlib.h>
#include <string.h>

/* MOST bounds memory, FEWEST is where one call begins to cost less than several. GRAPHS exceeds the
 * sequences of a step, which a gradient in parts divides. */
enum { MOST = 4096, FEWEST = 8, GRAPHS = 32, FINGERPRINTS = 64 };

typedef struct call {
    void *function; /* NULL: a product, of which `arguments` is the dl_cuda_multiplication */
    const char *name;
    unsigned blocks; /* of a product: its plan */
    size_t size;
    _Alignas(16) unsigned char arguments[DL_CUDA_CALL_ARGUMENTS];
} call;

typedef struct recording {
    call *calls; /* with the arguments that the graph has now */
    void **nodes;
    size_t n; /* 0: no recording */
    void *graph, *executable;
    uint64_t used; /* when it was started last */
} recording;

struct dl_cuda_launches {
    const dl_cuda *cuda;
    dl_cuda_blas *blas; /* NULL: no product is added */
    void *stream;
    bool records;
    size_t n;
    recording recordings[GRAPHS];
    uint64_t now; /* submits so far */
    dl_cuda_counts counts;
    uint64_t fingerprints[FINGERPRINTS];
    size_t next_fingerprint;
    call calls[MOST]; /* the sequence: n of them */
};

dl_cuda_launches *dl_cuda_launches_create(const dl_cuda *cuda, dl_cuda_blas *blas, void *stream,
                                          bool records)
{
    dl_cuda_launches *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->cuda = cuda;
    r->blas = blas;
    r->stream = stream;
    r->records = records;
    return r;
}

bool dl_cuda_launches_add(dl_cuda_launches *r, const dl_cuda_call *launch)
{
    DL_ASSERT(launch->size <= DL_CUDA_CALL_ARGUMENTS);
    if (r->n == MOST) return false;
    call *c = &r->calls[r->n++];
    *c = (call){.function = launch->function,
                .name = launch->name,
                .blocks = launch->blocks,
                .size = launch->size};
    memcpy(c->arguments, launch->arguments, launch->size);
    return true;
}

_Static_assert(sizeof(dl_cuda_multiplication) <= DL_CUDA_CALL_ARGUMENTS,
               "a product is an argument");

bool dl_cuda_launches_add_product(dl_cuda_launches *r, int plan,
                                  const dl_cuda_multiplication *product)
{
    return dl_cuda_launches_add(r, &(dl_cuda_call){.name = "cublasLtMatmul",
                                                   .blocks = (unsigned)plan,
                                                   .arguments = product,
                                                   .size = sizeof *product});
}

static const dl_cuda_multiplication *product_of(const call *c)
{
    return (const void *)c->arguments;
}

/* ---- single launches */

static int start_one(const dl_cuda_launches *r, const call *c)
{
    size_t size = c->size;
    void *extra[] = {DL_CUDA_EXTRA_POINTER, (void *)(uintptr_t)c->arguments, DL_CUDA_EXTRA_SIZE,
                     &size, DL_CUDA_EXTRA_END};
    if (!c->function) return dl_cuda_blas_start(r->blas, (int)c->blocks, product_of(c), r->stream);
    return r->cuda->launch(c->function, c->blocks, 1, 1, DL_GPU_THREADS, 1, 1, 0, r->stream, NULL,
                           extra);
}

static int start_each(dl_cuda_launches *r, const char **what)
{
    for (size_t i = 0; i < r->n; i++, r->counts.kernels++) {
        const int code = start_one(r, &r->calls[i]);
        *what = r->calls[i].name;
        if (code) return code;
    }
    return DL_CUDA_SUCCESS;
}

/* ---- graphs */

/* The arrays of a product are part of the graph of its kernels. */
static bool same_call(const call *a, const call *b)
{
    return a->function == b->function && a->blocks == b->blocks && a->size == b->size &&
           (a->function || memcmp(a->arguments, b->arguments, a->size) == 0);
}

static bool same_kernels(const recording *g, const dl_cuda_launches *r)
{
    if (g->n != r->n) return false;
    for (size_t i = 0; i < g->n; i++)
        if (!same_call(&g->calls[i], &r->calls[i])) return false;
    return true;
}

static recording *find(dl_cuda_launches *r)
{
    for (size_t i = 0; i < GRAPHS; i++)
        if (same_kernels(&r->recordings[i], r)) return &r->recordings[i];
    return NULL;
}

/* A node's parameters. `extra` and *size are the caller's, until the driver has copied them. */
static dl_cuda_kernel_node node_of(const call *c, void *extra[5], size_t *size)
{
    *size = c->size;
    extra[0] = DL_CUDA_EXTRA_POINTER;
    extra[1] = (void *)(uintptr_t)c->arguments;
    extra[2] = DL_CUDA_EXTRA_SIZE;
    extra[3] = size;
    extra[4] = DL_CUDA_EXTRA_END;
    return (dl_cuda_kernel_node){.function = c->function,
                                 .grid_x = c->blocks,
                                 .grid_y = 1,
                                 .grid_z = 1,
                                 .block_x = DL_GPU_THREADS,
                                 .block_y = 1,
                                 .block_z = 1,
                                 .extra = extra};
}

/* A graph that still runs is freed by the driver when it is done. */
static void forget(const dl_cuda_launches *r, recording *g)
{
    if (g->executable) (void)r->cuda->graph_exec_destroy(g->executable);
    if (g->graph) (void)r->cuda->graph_destroy(g->graph);
    free(g->calls);
    free(g->nodes);
    *g = (recording){.n = 0};
}

/* The driver copies the graph of a product's kernels. */
static int add_product(void **node, const dl_cuda_launches *r, const recording *g, size_t i)
{
    void *child;
    const call *c = &g->calls[i];
    int code = dl_cuda_blas_capture(&child, r->blas, (int)c->blocks, product_of(c));
    if (code) return code;
    code = r->cuda->graph_add_child(node, g->graph, i ? &g->nodes[i - 1] : NULL, i > 0, child);
    (void)r->cuda->graph_destroy(child);
    return code;
}

static int add_kernel(void **node, const dl_cuda_launches *r, const recording *g, size_t i)
{
    void *extra[5];
    size_t size;
    const dl_cuda_kernel_node kernel = node_of(&g->calls[i], extra, &size);
    return r->cuda->graph_add_kernel(node, g->graph, i ? &g->nodes[i - 1] : NULL, i > 0, &kernel);
}

static int add_nodes(const dl_cuda_launches *r, recording *g, const char **what)
{
    for (size_t i = 0; i < g->n; i++) {
        const int code = g->calls[i].function ? add_kernel(&g->nodes[i], r, g, i)
                                              : add_product(&g->nodes[i], r, g, i);
        *what = g->calls[i].name;
        if (code) return code;
    }
    return DL_CUDA_SUCCESS;
}

/* Records the sequence. Without memory *out is NULL, which is no failure. */
static int record(recording **out, dl_cuda_launches *r, const char **what)
{
    recording *g = &r->recordings[0];
    for (size_t i = 1; i < GRAPHS; i++)
        if (r->recordings[i].used < g->used) g = &r->recordings[i];
    forget(r, g);
    *out = NULL;
    g->calls = malloc(r->n * sizeof *g->calls);
    g->nodes = calloc(r->n, sizeof *g->nodes);
    if (!g->calls || !g->nodes) {
        forget(r, g);
        return DL_CUDA_SUCCESS;
    }
    memcpy(g->calls, r->calls, r->n * sizeof *g->calls);
    g->n = r->n;
    *what = "cuGraphCreate";
    int code = r->cuda->graph_create(&g->graph, 0);
    if (!code) code = add_nodes(r, g, what);
    if (!code) {
        *what = "cuGraphInstantiateWithFlags";
        code = r->cuda->graph_instantiate(&g->executable, g->graph, 0);
    }
    if (code)
        forget(r, g);
    else
        *out = g;
    return code == DL_CUDA_OUT_OF_MEMORY ? DL_CUDA_SUCCESS : code;
}

/* Sets the arguments that differ, and starts the graph. One that runs keeps its own. */
static int start(dl_cuda_launches *r, recording *g, const char **what)
{
    for (size_t i = 0; i < g->n; i++) {
        void *extra[5];
        size_t size;
        if (memcmp(g->calls[i].arguments, r->calls[i].arguments, r->calls[i].size) == 0) continue;
        const dl_cuda_kernel_node node = node_of(&r->calls[i], extra, &size);
        const int code = r->cuda->graph_set_kernel(g->executable, g->nodes[i], &node);
        *what = r->calls[i].name;
        if (code) return code;
        memcpy(g->calls[i].arguments, r->calls[i].arguments, r->calls[i].size);
    }
    g->used = r->now;
    r->counts.graphs++;
    *what = "cuGraphLaunch";
    return r->cuda->graph_launch(g->executable, r->stream);
}

/* FNV-1a over the numbers that same_kernels compares. */
static uint64_t fingerprint(const dl_cuda_launches *r)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < r->n; i++) {
        const uint64_t numbers[] = {(uintptr_t)r->calls[i].function, r->calls[i].blocks,
                                    r->calls[i].size};
        for (size_t k = 0; k < 3; k++)
            hash = (hash ^ numbers[k]) * 0x100000001b3ull;
    }
    return hash;
}

/* Returns true if this sequence has come before. */
static bool came_before(dl_cuda_launches *r)
{
    const uint64_t print = fingerprint(r);
    for (size_t i = 0; i < FINGERPRINTS; i++)
        if (r->fingerprints[i] == print) return true;
    r->fingerprints[r->next_fingerprint] = print;
    r->next_fingerprint = (r->next_fingerprint + 1) % FINGERPRINTS;
    return false;
}

static int start_all(dl_cuda_launches *r, const char **what)
{
    recording *g = NULL;
    if (r->records && r->n >= FEWEST) {
        g = find(r);
        if (!g && came_before(r)) {
            const int code = record(&g, r, what);
            if (code) return code;
        }
    }
    return g ? start(r, g, what) : start_each(r, what);
}

int dl_cuda_launches_submit(dl_cuda_launches *r, const char **what)
{
    if (r->n == 0) return DL_CUDA_SUCCESS;
    r->now++;
    const int code = start_all(r, what);
    r->n = 0;
    return code;
}

dl_cuda_counts dl_cuda_launches_counts(const dl_cuda_launches *r)
{
    return r->counts;
}

void dl_cuda_launches_destroy(dl_cuda_launches *r)
{
    if (!r) return;
    for (size_t i = 0; i < GRAPHS; i++)
        forget(r, &r->recordings[i]);
    free(r);
}
