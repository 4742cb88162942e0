/* graph_target.h - the machine and the batch that a graph is planned for, and its reports. */
#ifndef DL_NN_GRAPH_TARGET_H
#define DL_NN_GRAPH_TARGET_H

#include "tensor/backend.h"
#include <diloco/tensor.h>

/* Operations shape their values by it: a GPU cannot write a gradient over data that another of its
 * threads still reads. */
typedef struct dl_graph_target {
    size_t max_rows;      /* samples of the largest batch */
    dl_device device;     /* of the backend that will run it */
    int n_threads;        /* of the pool that will run it */
    diloco_dtype element; /* of values: F32, or BF16 where the device has such operations */
} dl_graph_target;

/* Parts of a gradient. Backward runs the last nodes first, and weights are in the order of the
 * nodes. So the gradients of the last weights are complete first, and devices can add them while
 * the rest is computed. A part is the gradients of whole weights, complete after the backward
 * function of a node. */
typedef struct dl_gradient_part {
    size_t begin, end; /* elements of the gradient array */
    int node;
} dl_gradient_part;

/* Reports of a pass, which calls done() after it has queued all work on part i. The parts are in
 * the order of dl_graph_parts. */
typedef struct dl_gradient_watch {
    const dl_gradient_part *parts; /* [n] borrowed */
    size_t n;
    void (*done)(void *context, size_t i);
    void *context;
} dl_gradient_watch;

#endif
