/* graph_parts_test.c - parts of a gradient: together they are all of it, in the order in which they
 * become complete. */
#include "check.h"
#include "nn/graph_parts.h"
#include "nn/ops.h"

enum { LAYERS = 6, WIDTH = 16, CAP = 8 };

/* Returns a chain of layers whose table both ends share, as with tied embeddings. Weights are in
 * the order of their first node. */
static dl_graph *tied(void)
{
    dl_graph *g;
    CHECK_OK(dl_graph_create(&g, 2 * LAYERS + 2, 2 * LAYERS + 1, 10,
                             &(dl_graph_target){.max_rows = 1, .n_threads = 1}));
    const int table = dl_graph_weight(g, 5, WIDTH, DL_INITIAL_NORMAL, 1, "table");
    int x = dl_embedding(g, table), delta = DL_NO_VALUE;
    for (int i = 0; i < LAYERS; i++) {
        const int norm = dl_graph_weight(g, 0, WIDTH, DL_INITIAL_ONES, 0, "norm%d", i);
        const int w = dl_graph_weight(g, WIDTH, WIDTH, DL_INITIAL_NORMAL, 1, "w%d", i);
        delta = dl_linear(g, dl_add_norm(g, &x, x, delta, norm, 1e-5f), w, 1);
    }
    dl_head_loss(g, delta, table, 0);
    return g;
}

/* Returns whether a node that runs backward after `node` writes the gradient of weight i. */
static bool is_written_later(const dl_graph *g, int i, int node)
{
    for (int k = 0; k < node; k++)
        if (i >= g->nodes[k].weight && i < g->nodes[k].weight + g->nodes[k].n_weights) return true;
    return false;
}

static void check_part(const dl_graph *g, const dl_gradient_part *p)
{
    CHECK(p->begin < p->end && p->node >= 0 && p->node < g->n_nodes);
    for (int i = 0; i < g->n_weights; i++) {
        const dl_weight *w = &g->weights[i];
        const size_t end = w->offset + w->rows * w->columns;
        if (end <= p->begin || w->offset >= p->end) continue;
        CHECK(w->offset >= p->begin && end <= p->end); /* whole */
        CHECK(!is_written_later(g, i, p->node));
    }
}

TEST(parts_of_any_size_are_the_whole_gradient_and_complete_in_order)
{
    static const size_t sizes[] = {1, WIDTH, 100, 300, 1000, SIZE_MAX / 8};
    dl_graph *g = tied();
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        dl_gradient_part parts[CAP];
        const size_t n = dl_graph_parts(g, parts, CAP, sizes[k]);
        CHECK(n >= 1 && n <= CAP);
        CHECK_INT(g->n_parameters, parts[0].end);
        CHECK_INT(0, parts[n - 1].begin);
        for (size_t i = 0; i < n; i++) {
            check_part(g, &parts[i]);
            if (i + 1 < n) CHECK(parts[i].end - parts[i].begin >= sizes[k]);
            if (i > 0) CHECK_INT(parts[i - 1].begin, parts[i].end);
            if (i > 0) CHECK(parts[i].node <= parts[i - 1].node);
        }
        CHECK_INT(0, parts[n - 1].node); /* the table, which the embedding completes */
    }
    dl_graph_destroy(g);
}

TEST(small_parts_are_complete_long_before_the_end)
{
    dl_graph *g = tied();
    dl_gradient_part parts[CAP];
    const size_t n = dl_graph_parts(g, parts, CAP, 1);
    CHECK(n > CAP / 2);
    CHECK_INT(g->n_nodes - 2, parts[0].node); /* the last linear; before it the head has run */
    dl_graph_destroy(g);
}

TEST_MAIN(parts_of_any_size_are_the_whole_gradient_and_complete_in_order,
          small_parts_are_complete_long_before_the_end)
