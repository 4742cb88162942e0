/* model.h - a trainable model as train/ sees it: parameters in a row, batches in, loss out.
 *
 * One file and one row of model.c a model; a model's file builds a graph of nn operations
 * from the options. Parameters and gradients are each one contiguous f32 array in the order
 * of the tensors, so the outer step and the optimizer walk plain vectors.
 *
 * A model: one thread at a time. After create nothing allocates. */
#ifndef DL_MODEL_MODEL_H
#define DL_MODEL_MODEL_H

#include "base/config.h"
#include "base/sample.h"
#include "base/thread.h"
#include "nn/graph_target.h"
#include "nn/inner.h"
#include "tensor/backend.h"
#include <diloco/tensor.h>

typedef struct dl_model dl_model;

/* Creates the model of trainer.model_name. sample is the data's kind, from which options with the
 * value 0, parameters.model.vocab for example, get their size. max_rows is the largest number of
 * samples in a batch. Returns DILOCO_EINVAL with the option that is wrong: heads that do not divide
 * channels, or a model of images with data of tokens. Also returns the errors of dl_graph_allocate.
 * The pool and the backend are borrowed until destroy. */
DL_MUST_CHECK diloco_status dl_model_create(dl_model **out, const dl_config *config,
                                            const dl_sample *sample, size_t max_rows,
                                            dl_backend *backend, dl_pool *pool);
/* Creates a model without memory, for its tensors' names and shapes. Only destroy,
 * dl_model_tensors, dl_model_hidden, dl_model_n_parameters and dl_model_initial accept it. */
DL_MUST_CHECK diloco_status dl_model_sketch(dl_model **out, const dl_config *config,
                                            const dl_sample *sample);
void dl_model_destroy(dl_model *model); /* NULL is fine */
const char *dl_model_name_at(size_t i); /* known models; NULL after the last */

/* The bytes that dl_model_create would allocate, for the planner and doctor. */
typedef struct dl_model_plan {
    size_t n_parameters;                    /* without buffers */
    size_t n_floats;                        /* with float buffers */
    size_t parameter_bytes, gradient_bytes; /* 4 x n_floats each */
    size_t activation_bytes;                /* everything else of the graph */
    dl_inner_sizes inner;                   /* for dl_inner_plan */
    double flops_per_token; /* matrix products of forward and backward; of an image as well */
} dl_model_plan;

/* Returns the type of values on a device by trainer.precision. On the CPU it is F32 in any case: a
 * command that evaluates or samples opens the CPU, whatever the trainer's device is. */
diloco_dtype dl_model_element(const dl_config *config, dl_device device);

DL_MUST_CHECK diloco_status dl_model_plan_for(dl_model_plan *out, const dl_config *config,
                                              const dl_sample *sample,
                                              const dl_graph_target *target);

/* The tensors in order; data is the tensor's place on the backend. Names as in Hugging
 * Face's Llama ("model.layers.0.self_attn.q_proj.weight") or as in PyTorch's state_dict. Those of
 * type I64 (counters) do not are in the array of parameters. */
const diloco_tensor *dl_model_tensors(const dl_model *model, size_t *n);
/* Returns [n] flags: true for a matrix that is neither the model's first nor its last. Muon updates
 * these (nn/inner_muon.c). */
const bool *dl_model_hidden(const dl_model *model);
/* Float buffers are among the parameters and are counted here; they have a gradient of zero. */
size_t dl_model_n_parameters(const dl_model *model);
float *dl_model_parameters(dl_model *model); /* backend memory, f32[n_parameters] */
float *dl_model_gradients(dl_model *model);  /* likewise; the next dl_model_train writes it */

/* Writes the initial values to host memory, f32[n_parameters]. They follow from the seed, and from
 * the order and shapes of the tensors. Counters are not among them, and begin at 0. */
void dl_model_initial(const dl_model *model, float *host, uint64_t seed);

/* Queues forward and backward of a batch: `rows` samples (base/sample.h) in host memory, rows <=
 * max_rows. A target < 0 is not counted. The gradients become `scale` times the gradient of the
 * *mean* loss over this batch's counted targets; with accumulate that is added to them. The loss
 * stays on the backend, added up until dl_model_take_loss. Running statistics move. Returns
 * DILOCO_EINVAL if rows, a token or a target is out of range. */
DL_MUST_CHECK diloco_status dl_model_train(dl_model *model, const void *inputs,
                                           const int32_t *targets, size_t rows, float scale,
                                           bool accumulate);

/* dl_model_train_watched is dl_model_train, and calls watch->done as soon as a part of the
 * gradients has been queued. dl_model_parts makes the parts, as dl_graph_parts does. */
DL_MUST_CHECK diloco_status dl_model_train_watched(dl_model *model, const void *inputs,
                                                   const int32_t *targets, size_t rows, float scale,
                                                   bool accumulate, const dl_gradient_watch *watch);
size_t dl_model_parts(const dl_model *model, dl_gradient_part *out, size_t cap, size_t least);

/* Returns the bytes that a batch of `rows` samples copies to the backend. */
size_t dl_model_batch_bytes(const dl_model *model, size_t rows);

/* Adds a batch's losses without gradients. Running statistics are used, and stay as they are. */
DL_MUST_CHECK diloco_status dl_model_eval(dl_model *model, const void *inputs,
                                          const int32_t *targets, size_t rows);

/* The sums of all passes since the last take. */
typedef struct dl_model_loss {
    double sum; /* of the losses, nats */
    uint64_t n_targets, n_correct;
} dl_model_loss;
/* Waits for the backend, moves the sums to *out, and begins at zero. Returns DILOCO_EIO if the
 * device has failed; then *out is unchanged. */
DL_MUST_CHECK diloco_status dl_model_take_loss(dl_model *model, dl_model_loss *out);

/* Writes f32[vocab] to host memory: the logits of the token that follows tokens[n], n <= T. Of a
 * classifier they are those of the classes, for one image (n is 1). Returns DILOCO_EINVAL if n or a
 * token is out of range. */
DL_MUST_CHECK diloco_status dl_model_logits(dl_model *model, float *logits, const void *input,
                                            size_t n);

/* Adds the seconds of every operation to *profile (nn/graph.h) from now on; NULL stops it. *profile
 * is borrowed until then. */
struct dl_profile;
void dl_model_profile(dl_model *model, struct dl_profile *profile);

#endif
