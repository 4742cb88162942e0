/* graph.h - a static graph of operations over memory that is taken once.
 *
 * A model adds weights and nodes in the order they run; dl_graph_allocate plans the place of every
 * activation and allocates the memory. After that a pass allocates nothing.
 *
 *   value   element[rows][length][width], what one node makes and at most one other uses. Its
 *           gradient has the same shape and type: the graph's, or f32 for sums.
 *   weight  a named tensor; all weights together are one f32 array, all gradients another. If
 *           values are bf16, each pass begins with a copy of the weights rounded to bf16.
 *           A counter is a weight too: one i64, in an array of their own, without a gradient.
 *   node    one use of an operation (a row of op.h): inputs, outputs, a weight, attributes.
 *
 * A graph is planned for max_rows sequences of max_length positions; a pass works on
 * rows <= max_rows and length <= max_length. Data is row-major. A row may be an image: then
 * max_length is 1, and planes.h describes the order within a value's width. A backend that wants
 * another layout of a weight keeps it in its operation's own memory. It converts where the
 * parameter array is copied in or out: that array has the manifest's layout and keeps it. */
#ifndef DL_NN_GRAPH_H
#define DL_NN_GRAPH_H

#include "base/arena.h"
#include "base/thread.h"
#include "nn/graph_target.h"
#include <diloco/tensor.h>
#include <stdbool.h>

typedef struct dl_op dl_op;

enum { DL_NODE_MAX_IN = 2, DL_NODE_MAX_OUT = 2, DL_NO_VALUE = -1, DL_NO_WEIGHT = -1 };

/* Memory of one or several values that are never alive together, or are meant to be one. */
typedef struct dl_buffer {
    size_t bytes;
    int first, last; /* moments of the pass in which it is alive; first > last: never */
    size_t offset;   /* in the activation memory */
} dl_buffer;

typedef struct dl_value {
    size_t width;           /* elements of a position */
    diloco_dtype element;   /* type of the data and of the gradient */
    int data, grad;         /* buffers, by index; an operation may merge them (op.h) */
    int producer, consumer; /* nodes; -1: none */
    bool constant;          /* nothing that trains made it: it has no gradient */
} dl_value;

typedef enum dl_initial {
    DL_INITIAL_ZEROS,
    DL_INITIAL_ONES,
    DL_INITIAL_NORMAL, /* deviation `spread` */
    DL_INITIAL_UNIFORM /* in [-spread, spread) */
} dl_initial;

typedef struct dl_weight {
    char name[DILOCO_NAME_MAX + 1];
    diloco_dtype dtype;   /* F32, or I64 for a counter */
    size_t offset;        /* elements into the parameter array, or into the counters */
    size_t rows, columns; /* shape[0] and the product of the others; of a vector 1 and shape[0] */
    int n_dims;
    size_t shape[DILOCO_MAX_DIMS];
    diloco_role role; /* of others than PARAMETER the gradient is zero */
    bool end;         /* takes tokens in or gives the answer: not a matrix between others */
    dl_initial initial;
    float spread;
    int n_users, last_user; /* nodes that begin with it, and the last of them */
} dl_weight;

typedef struct dl_node {
    const dl_op *op;
    int in[DL_NODE_MAX_IN], out[DL_NODE_MAX_OUT]; /* values or DL_NO_VALUE */
    int saved;             /* value kept from forward to backward, without a gradient, or none */
    int weight;            /* first of n_weights adjacent weights, or DL_NO_WEIGHT */
    int n_weights;         /* seen by the operation as one matrix of all their rows */
    bool grad_adds;        /* a node before it in the backward pass wrote the same gradient */
    size_t constant_bytes; /* filled by op->prepare */
    void *constant;        /* backend memory */
    /* The operation's own struct, copied by dl_graph_add. */
    _Alignas(16) unsigned char attributes[80];
} dl_node;

typedef enum dl_mode {
    DL_TRAIN,  /* loss and gradients */
    DL_EVAL,   /* loss */
    DL_PREDICT /* logits of the last position */
} dl_mode;

/* The data of one pass; its inputs and targets are already in the graph's `pass`. */
typedef struct dl_batch {
    size_t rows, length;
    dl_mode mode;
    float gain;      /* factor of the gradients: 1 / number of targets for the mean loss */
    bool accumulate; /* add to the weights' gradients */
} dl_batch;

/* Sums of the losses, in backend memory. The host zeroes it and reads it. */
typedef struct dl_tally {
    double loss;        /* over all counted targets, nats */
    uint64_t n_correct; /* targets that were the likeliest; of equals the first counts */
} dl_tally;

/* Seconds by operation, forward and backward: for benchmarks. */
enum { DL_MAX_OPS = 32 };
typedef struct dl_profile {
    double seconds[DL_MAX_OPS][2]; /* by row of dl_op_at */
} dl_profile;

typedef struct dl_graph {
    dl_graph_target target;
    size_t max_length;

    dl_node *nodes;     /* owned, in the order they run */
    dl_value *values;   /* owned */
    dl_buffer *buffers; /* owned */
    dl_weight *weights; /* owned, in the order of the manifest */
    int n_nodes, n_values, n_buffers, n_weights;
    struct { /* the most that the arrays have room for */
        int nodes, values, weights;
    } room;
    size_t n_parameters, n_counters; /* elements of both arrays */
    size_t n_logits;                 /* width of what DL_PREDICT gives */
    size_t image_bytes;              /* of one row, where rows are images; else 0 */

    /* Set by dl_graph_allocate; backend memory but for the first two, which are borrowed. */
    dl_backend *backend;
    dl_pool *pool;
    void *memory;
    float *parameters, *gradients;
    uint16_t *rounded; /* the parameters in bf16, for products; NULL: values are f32 */
    int64_t *counters;
    struct { /* memory of one pass: both arrays are adjacent, and forgotten before each */
        unsigned char *activations, *scratch;
        size_t bytes; /* of both */
    } work;
    struct {                            /* inputs and results of a pass */
        int32_t *inputs, *targets;      /* i32[max_rows][max_length] */
        uint8_t *images;                /* u8[max_rows][image_bytes] */
        float *logits;                  /* f32[n_logits], of DL_PREDICT */
        dl_tally *tally;                /* since it was zeroed */
        dl_profile *profile;            /* NULL: not measured */
        const dl_gradient_watch *watch; /* of a DL_TRAIN; NULL: none */
    } pass;
} dl_graph;

/* dl_graph_create makes a graph without nodes, with room for max_nodes and max_weights. Returns
 * DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_graph_create(dl_graph **out, int max_nodes, int max_weights,
                                            size_t max_length, const dl_graph_target *target);
void dl_graph_destroy(dl_graph *graph); /* NULL is fine */

/* Adds the next weight, f32[rows][columns], or f32[columns] if rows is 0. Returns its index. The
 * name is a printf format, and has at most DILOCO_NAME_MAX characters. */
DL_PRINTF(6, 7)
int dl_graph_weight(dl_graph *graph, size_t rows, size_t columns, dl_initial initial, float spread,
                    const char *name, ...);
/* Adds the next weight, f32[shape[0]]…[shape[3]]. Returns its index. */
DL_PRINTF(5, 6)
int dl_graph_weight4(dl_graph *graph, const size_t shape[DILOCO_MAX_DIMS], dl_initial initial,
                     float spread, const char *name, ...);
/* Adds the next weight, an i64 without dimensions: a BUFFER that begins at 0. Returns its index. */
DL_PRINTF(2, 3) int dl_graph_counter(dl_graph *graph, const char *name, ...);

/* Sets the role of a weight that does not train (FROZEN), or that its operation writes (BUFFER). A
 * new weight is a PARAMETER. Operations may write any gradient, and dl_graph_run clears those of
 * other roles. */
void dl_graph_set_role(dl_graph *graph, int weight, diloco_role role);

/* Marks a weight at either end of the model. The operations embedding and head_loss mark theirs
 * themselves. */
void dl_graph_set_end(dl_graph *graph, int weight);

/* Adds the next node, whose outputs op->shape makes. It uses n_weights adjacent weights from
 * `weight` on. The attributes are copied. A value that another node consumes is a bug of the model.
 * The pointer is valid until the graph is destroyed. */
dl_node *dl_graph_add(dl_graph *graph, const dl_op *op, int in0, int in1, int weight, int n_weights,
                      const void *attributes, size_t attributes_size);
/* For op->shape: makes a value and its two buffers, and returns its index. The second function's
 * value is f32 whatever the graph's type is: for sums that backward reads. */
int dl_graph_value(dl_graph *graph, size_t width);
int dl_graph_value_f32(dl_graph *graph, size_t width);

/* Sets *bytes to all that dl_graph_allocate would take, and *activation_bytes to the activations'
 * part. Returns DILOCO_EINVAL if no address space has that many, or DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_graph_plan(dl_graph *graph, size_t *bytes, size_t *activation_bytes);
/* Plans and allocates the memory, once. Backend and pool fit the target, and are borrowed until
 * destroy. Returns DILOCO_ENOMEM. Returns DILOCO_EREFUSED if the backend's device lacks a function
 * that an operation has for the CPU, or operations on values of the target's type; the text names
 * both. */
DL_MUST_CHECK diloco_status dl_graph_allocate(dl_graph *graph, dl_backend *backend, dl_pool *pool);

/* Queues all nodes forward, and for DL_TRAIN then backward. The batch's inputs and targets have
 * been copied to the graph's pass. Errors of a device come out of the next sync. */
void dl_graph_run(dl_graph *graph, const dl_batch *batch);

#endif
