/* emulated_graphs.c - graphs of the emulated driver: kernels that one call starts.
 *
 * A launch takes the nodes in an order that their dependencies allow, ascending, descending or by
 * seed as emulated_order says, so a dependency that is missing changes results. Handles are looked
 * up: one that was destroyed is refused. An executable graph keeps its own arguments, and a node of
 * it may get others but not another kernel. */
#include "emulated_parts.h"

#include <stdlib.h>
#include <string.h>

typedef struct node {
    emulated_request launch;
    struct node **dependencies;
    size_t n_dependencies;
    size_t place; /* in its graph */
} node;

/* A graph, or an executable copy of one. The nodes of a copy have the places of the original's. */
typedef struct graph {
    struct graph *next;
    const struct graph *original; /* of a copy; else NULL */
    const void *stream;           /* of a copy's launches; NULL: none yet */
    node **nodes;
    size_t n;
} graph;
static graph *graphs;      /* all that are not destroyed; under the lock of the driver */
static uint64_t capturing; /* stream; 0: none */
static graph *captured;
static bool capture_is_invalid; /* refused work was called in it */

uint64_t emulated_graphs(void)
{
    uint64_t n = 0;
    for (const graph *g = graphs; g; g = g->next)
        n++;
    return n;
}

static graph *graph_of(const void *handle, bool executable)
{
    graph *g = graphs;
    while (g && (g != handle || (g->original != NULL) != executable))
        g = g->next;
    return g;
}

static node *node_in(const graph *g, const void *handle)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->nodes[i] == handle) return g->nodes[i];
    return NULL;
}

static graph *new_graph(const graph *original)
{
    graph *g = calloc(1, sizeof *g);
    if (!g) abort();
    g->original = original;
    g->next = graphs;
    graphs = g;
    return g;
}

static node *new_node(graph *g, const emulated_request *launch, size_t n_dependencies)
{
    node *x = calloc(1, sizeof *x);
    g->nodes = realloc(g->nodes, (g->n + 1) * sizeof(node *));
    if (!x || !g->nodes) abort();
    x->launch = *launch;
    x->dependencies = calloc(n_dependencies + 1, sizeof(node *));
    if (!x->dependencies) abort();
    x->n_dependencies = n_dependencies;
    x->place = g->n;
    g->nodes[g->n++] = x;
    return x;
}

static void free_graph(graph *g)
{
    graph **at = &graphs;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    for (size_t i = 0; i < g->n; i++) {
        free(g->nodes[i]->dependencies);
        free(g->nodes[i]);
    }
    free(g->nodes);
    free(g);
}

void emulated_forget_graphs(void)
{
    while (graphs)
        free_graph(graphs);
    capturing = 0;
}

static int destroy(void *handle, bool executable)
{
    const int code = emulated_enter(true);
    graph *g = graph_of(handle, executable);
    if (g) free_graph(g);
    return emulated_leave(code || g ? code : DL_CUDA_INVALID_VALUE);
}

/* ---- the functions */

int cuGraphCreate(void **to, unsigned flags)
{
    const int code = emulated_enter(true);
    *to = code || flags ? NULL : new_graph(NULL);
    return emulated_leave(code || *to ? code : DL_CUDA_INVALID_VALUE);
}

int cuGraphDestroy(void *handle)
{
    return destroy(handle, false);
}

int cuGraphExecDestroy(void *handle)
{
    return destroy(handle, true);
}

static bool request_of(emulated_request *out, const dl_cuda_kernel_node *k)
{
    return emulated_launch_request(
        out, &(emulated_launch_call){.function = k->function,
                                     .grid = {k->grid_x, k->grid_y, k->grid_z},
                                     .block = {k->block_x, k->block_y, k->block_z},
                                     .shared_bytes = k->shared_bytes,
                                     .parameters = k->parameters,
                                     .extra = k->extra});
}

int cuGraphAddKernelNode_v2(void **to, void *handle, void *const *dependencies, size_t n,
                            const dl_cuda_kernel_node *kernel)
{
    emulated_request launch;
    const int code = emulated_enter(true);
    graph *g = graph_of(handle, false);
    bool ok = g && request_of(&launch, kernel);
    for (size_t i = 0; ok && i < n; i++)
        ok = node_in(g, dependencies[i]) != NULL;
    if (code || !ok) return emulated_leave(code ? code : DL_CUDA_INVALID_VALUE);
    node *x = new_node(g, &launch, n);
    for (size_t i = 0; i < n; i++)
        x->dependencies[i] = dependencies[i];
    *to = x;
    return emulated_leave(0);
}

int cuGraphInstantiateWithFlags(void **to, void *handle, unsigned long long flags)
{
    const int code = emulated_enter(true);
    const graph *g = graph_of(handle, false);
    if (code || !g || flags) return emulated_leave(code ? code : DL_CUDA_INVALID_VALUE);
    graph *copy = new_graph(g);
    for (size_t i = 0; i < g->n; i++) {
        const node *x = g->nodes[i];
        node *y = new_node(copy, &x->launch, x->n_dependencies);
        for (size_t k = 0; k < x->n_dependencies; k++)
            y->dependencies[k] = copy->nodes[x->dependencies[k]->place];
    }
    *to = copy;
    return emulated_leave(0);
}

/* `handle` is of a node of the graph that was instantiated, which must not be destroyed yet. */
int cuGraphExecKernelNodeSetParams_v2(void *executable, void *handle,
                                      const dl_cuda_kernel_node *kernel)
{
    emulated_request launch;
    const int code = emulated_enter(true);
    graph *copy = graph_of(executable, true);
    const graph *g = copy ? graph_of(copy->original, false) : NULL;
    const node *x = g ? node_in(g, handle) : NULL;
    if (code || !x || !request_of(&launch, kernel) || launch.kernel != x->launch.kernel)
        return emulated_leave(code ? code : DL_CUDA_INVALID_VALUE);
    copy->nodes[x->place]->launch = launch;
    return emulated_leave(0);
}

/* ---- captures: launches on a stream become a chain of nodes
 *
 * As the real driver's, a capture in which a call was refused is invalid until its end, which gives
 * no graph. */

static bool is_capturing(uint64_t stream)
{
    return capturing && capturing == stream;
}

int emulated_capture_refuses(uint64_t stream, bool is_kernel)
{
    if (!is_capturing(stream)) return 0;
    if (capture_is_invalid) return DL_CUDA_CAPTURE_INVALIDATED;
    capture_is_invalid = !is_kernel;
    return is_kernel ? 0 : DL_CUDA_CAPTURE_UNSUPPORTED;
}

bool emulated_capture(const emulated_request *launch)
{
    if (!is_capturing(launch->stream)) return false;
    node *before = captured->n ? captured->nodes[captured->n - 1] : NULL;
    node *x = new_node(captured, launch, before != NULL);
    if (before) x->dependencies[0] = before;
    return true;
}

/* The other modes refuse calls that do not concern the stream, which is not emulated. */
int cuStreamBeginCapture_v2(void *stream, int mode)
{
    int code = emulated_enter(true);
    if (!code && (capturing || mode != DL_CUDA_CAPTURE_RELAXED)) code = DL_CUDA_INVALID_VALUE;
    if (!code) {
        captured = new_graph(NULL);
        capturing = (uintptr_t)stream;
        capture_is_invalid = false;
    }
    return emulated_leave(code);
}

/* After an injected failure the stream captures no more either. */
int cuStreamEndCapture(void *stream, void **to)
{
    int code = emulated_enter(true);
    const bool ok = is_capturing((uintptr_t)stream);
    if (!code && ok && capture_is_invalid) code = DL_CUDA_CAPTURE_INVALIDATED;
    *to = !code && ok ? captured : NULL;
    if (code && ok) free_graph(captured);
    if (ok) capturing = 0;
    return emulated_leave(code || ok ? code : DL_CUDA_INVALID_VALUE);
}

/* The child's nodes are copied. Its roots get the dependencies, and *to is its last node, on which
 * all others of a captured chain depend. */
int cuGraphAddChildGraphNode(void **to, void *handle, void *const *dependencies, size_t n,
                             void *child)
{
    const int code = emulated_enter(true);
    graph *g = graph_of(handle, false);
    const graph *c = graph_of(child, false);
    bool ok = g && c && c->n > 0;
    for (size_t i = 0; ok && i < n; i++)
        ok = node_in(g, dependencies[i]) != NULL;
    if (code || !ok) return emulated_leave(code ? code : DL_CUDA_INVALID_VALUE);
    const size_t first = g->n;
    for (size_t i = 0; i < c->n; i++) {
        const node *x = c->nodes[i];
        const bool root = x->n_dependencies == 0;
        node *y = new_node(g, &x->launch, root ? n : x->n_dependencies);
        for (size_t k = 0; k < y->n_dependencies; k++)
            y->dependencies[k] =
                root ? dependencies[k] : g->nodes[first + x->dependencies[k]->place];
        *to = y;
    }
    return emulated_leave(0);
}

/* ---- a launch */

static bool is_ready(const node *x, const bool *done)
{
    for (size_t i = 0; i < x->n_dependencies; i++)
        if (!done[x->dependencies[i]->place]) return false;
    return !done[x->place];
}

/* A node that may be next. Each node comes after those that it depends on, so there is one. */
static size_t next_of(const graph *g, const bool *done, emulated_order order, uint64_t *state)
{
    size_t chosen = g->n, n_ready = 0;
    for (size_t i = 0; i < g->n; i++) {
        if (!is_ready(g->nodes[i], done)) continue;
        n_ready++;
        *state = *state * 6364136223846793005ull + 1442695040888963407ull;
        if (chosen == g->n || order == EMULATED_DESCENDING ||
            (order == EMULATED_SHUFFLED && (*state >> 33) % n_ready == 0))
            chosen = i;
    }
    return chosen;
}

/* The driver lets a graph wait for its own earlier launch, also on another stream. That wait is not
 * emulated, so a graph keeps to one stream. */
int cuGraphLaunch(void *executable, void *stream)
{
    int code = emulated_enter(true);
    graph *g = graph_of(executable, true);
    if (!code) code = emulated_capture_refuses((uintptr_t)stream, false);
    if (!code && (!g || (g->stream && g->stream != stream))) code = DL_CUDA_INVALID_VALUE;
    if (!code) g->stream = stream;
    bool *done = g ? calloc(g->n + 1, sizeof *done) : NULL;
    const emulated_setup *setup = emulated_setup_now();
    uint64_t state = setup->seed;
    for (size_t i = 0; !code && i < g->n; i++) {
        const size_t next = next_of(g, done, setup->order, &state);
        emulated_request r = g->nodes[next]->launch;
        done[next] = true;
        r.stream = (uintptr_t)stream;
        code = emulated_exchange_request(&r, NULL);
    }
    free(done);
    return emulated_leave(code);
}
