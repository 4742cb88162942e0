/* graph_parts.h - divides the gradient of a graph into parts (dl_gradient_part). */
#ifndef DL_NN_GRAPH_PARTS_H
#define DL_NN_GRAPH_PARTS_H

#include "nn/graph.h"

/* dl_graph_parts divides the gradients into parts of at least `least` elements, but for the last
 * one. They are in the order in which they become complete, and together all gradients. Returns
 * their number, at most cap >= 2: if there were more, the parts are larger. Returns 0 if there is
 * no memory. */
size_t dl_graph_parts(const dl_graph *graph, dl_gradient_part *out, size_t cap, size_t least);

#endif
