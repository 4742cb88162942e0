/* ops.h - the operations that a model builds its graph from. Values and weights are indices of the
 * graph. A function adds a node and returns its output. A value may be the input of one later node
 * only; dl_fork makes two of one. Widths that do not fit are a bug of the model, and abort. */
#ifndef DL_NN_OPS_H
#define DL_NN_OPS_H

#include "base/sample.h"
#include "nn/graph.h"
#include "nn/planes.h"
#include "nn/rope.h"

/* x[position] = table[token] of the pass's inputs; the weight is f32[vocab][channels]. */
int dl_embedding(dl_graph *graph, int table);

/* y = x W^T, W the n_weights adjacent weights f32[.][in] seen as one. */
int dl_linear(dl_graph *graph, int x, int weight, int n_weights);
/* y = x W^T + bias, f32[out], the weight after W. */
int dl_linear_bias(dl_graph *graph, int x, int weight);

/* sum = x + delta (delta DL_NO_VALUE: x itself), y = sum / sqrt(mean(sum^2) + eps) * w.
 * Zhang, Sennrich 2019 (arXiv:1910.07467). Gives y; *sum is for the next residual. */
int dl_add_norm(dl_graph *graph, int *sum, int x, int delta, int weight, float eps);

/* Causal attention of each sequence over a projection qkv[heads + 2 kv_heads][head_dim], with
 * rotary positions (rope.h). Every heads / kv_heads query heads share one head of keys and values
 * (arXiv:2305.13245). */
int dl_attention(dl_graph *graph, int qkv, size_t heads, size_t kv_heads, const dl_rope *rope);

/* Between a projection qkv[heads + 2 kv_heads][head_dim] and its attention. Divides each head of
 * queries and of keys by the root of its mean square, and scales it, as a whole vector of head_dim.
 * Sources: Henry et al. 2020, arXiv:2010.04245; Dehghani et al. 2023, arXiv:2302.05442. weight: two
 * adjacent f32[head_dim], of queries and of keys. */
int dl_qk_norm(dl_graph *graph, int qkv, int weight, size_t heads, size_t kv_heads, float eps);

/* y = silu(gate) * up of gate_up[2][width]. Shazeer 2020 (arXiv:2002.05202). */
int dl_swiglu(dl_graph *graph, int gate_up);

/* ---- images (planes.h) */

/* The input: a row's bytes as numbers. The taps of a window are side by side as channels: those of
 * the first convolution, which then has size 1, or size 1, stride 1, pad 0 for the pixels. */
dl_planes dl_image(dl_graph *graph, const dl_sample *sample, size_t size, size_t stride,
                   size_t pad);

/* y = x * W (+ bias, the weight after W), W f32[out][in][size][size], as torch.nn.Conv2d. */
dl_planes dl_conv2d(dl_graph *graph, dl_planes x, int weight, bool bias, size_t size, size_t stride,
                    size_t pad);

/* torch.nn.BatchNorm2d, over its five weights: "name.weight" … "name.num_batches_tracked". The
 * first function adds them and returns the first one's index. The second one adds the node. */
int dl_batch_norm_weights(dl_graph *graph, size_t channels, const char *name);
dl_planes dl_batch_norm(dl_graph *graph, dl_planes x, int weights, float momentum, float eps);

/* torch.nn.MaxPool2d and AvgPool2d with count_include_pad. */
dl_planes dl_max_pool(dl_graph *graph, dl_planes x, size_t size, size_t stride, size_t pad);
dl_planes dl_average_pool(dl_graph *graph, dl_planes x, size_t size, size_t stride, size_t pad);

/* max(x, 0), in place: x is gone, and nothing before may need it (dl_may_overwrite). */
int dl_relu(dl_graph *graph, int x);
/* a + b, over a. */
int dl_add(dl_graph *graph, int a, int b);
/* Makes two values of one, because a value has a single consumer. */
void dl_fork(dl_graph *graph, int x, int *first, int *second);
/* To [rows][channels][height][width], for a linear layer. */
int dl_flatten(dl_graph *graph, dl_planes x);

/* The end of a classifier: softmax cross-entropy of logits f32[classes]. */
void dl_class_loss(dl_graph *graph, int logits);

/* ---- the end of a language model */

/* logits = x W^T, loss = sum over counted targets of logsumexp(logits) -
 * logits[target]. Logits exist a block of positions at a time. The gradient is that of the loss
 * + z_loss logsumexp(logits)^2 (Chowdhery et al. 2022, arXiv:2204.02311, section 5), which the
 * loss itself, to stay comparable, does not show. */
void dl_head_loss(dl_graph *graph, int x, int weight, float z_loss);

#endif
