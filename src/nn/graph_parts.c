/* graph_parts.c - see graph_parts.h. */
#include "nn/graph_parts.h"

#include <stdlib.h>

/* Fills last[i]: the node that runs backward last of those that use weight i. */
static void find_last(int *last, const dl_graph *g)
{
    for (int i = 0; i < g->n_weights; i++)
        last[i] = g->n_nodes - 1; /* an unused one has no gradient to wait for */
    for (int i = g->n_nodes - 1; i >= 0; i--)
        for (int k = 0; g->nodes[i].weight != DL_NO_WEIGHT && k < g->nodes[i].n_weights; k++)
            last[g->nodes[i].weight + k] = i;
}

/* Cuts from the last weight to the first. A part is not complete before the one that precedes it in
 * the list, so that devices add them in one order. */
static size_t cut(const dl_graph *g, const int *last, dl_gradient_part *out, size_t least)
{
    size_t n = 0;
    dl_gradient_part part = {g->n_parameters, g->n_parameters, g->n_nodes - 1};
    for (int i = g->n_weights - 1; i >= 0; i--) {
        if (g->weights[i].dtype != DILOCO_F32) continue;
        part.begin = g->weights[i].offset;
        if (last[i] < part.node) part.node = last[i];
        if (part.end - part.begin < least && part.begin > 0) continue;
        out[n++] = part;
        part.end = part.begin;
    }
    return n;
}

size_t dl_graph_parts(const dl_graph *g, dl_gradient_part *out, size_t cap, size_t least)
{
    int *last = malloc(((size_t)g->n_weights + 1) * sizeof *last);
    if (!last) return 0;
    const size_t fewest = g->n_parameters / (cap - 1) + 1; /* so all but one are cap - 1 at most */
    find_last(last, g);
    const size_t n = cut(g, last, out, least > fewest ? least : fewest);
    free(last);
    DL_ASSERT(n <= cap);
    return n;
}
