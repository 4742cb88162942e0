/* graph_target.h - the machine and the batch that a graph is planned for. */
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

#endif
