/* ops.h - the operations a model builds its graph from. Values and weights are indices. */
#ifndef DL_NN_OPS_H
#define DL_NN_OPS_H

#include "nn/graph.h"

/* x[position] = table[token]; the weight is f32[vocab][channels]. */
int dl_embedding(dl_graph *graph, int table);

/* y = x W^T, W the n_weights adjacent weights f32[.][in] seen as one. */
int dl_linear(dl_graph *graph, int x, int weight, int n_weights);

/* sum = x + delta (delta DL_NO_VALUE: x itself), y = sum / sqrt(mean(sum^2) + eps) * w.
 * Zhang, Sennrich 2019 (arXiv:1910.07467). Gives y; *sum is for the next residual. */
int dl_add_norm(dl_graph *graph, int *sum, int x, int delta, int weight, float eps);

/* Causal attention of each sequence over a projection qkv[heads + 2 kv_heads][head_dim], with
 * rotary positions (Su et al. 2021, arXiv:2104.09864; halves rotated as in Llama). Every
 * heads / kv_heads query heads share one head of keys and values (arXiv:2305.13245). */
int dl_attention(dl_graph *graph, int qkv, size_t heads, size_t kv_heads, double rope_theta);

/* Between a projection qkv[heads + 2 kv_heads][head_dim] and its attention: each head of queries
 * and of keys divided by the root of its mean square and scaled, as a whole vector of head_dim
 * (Henry et al. 2020, arXiv:2010.04245; Dehghani et al. 2023, arXiv:2302.05442). weight: two
 * adjacent f32[head_dim], of queries and of keys. */
int dl_qk_norm(dl_graph *graph, int qkv, int weight, size_t heads, size_t kv_heads, float eps);

/* y = silu(gate) * up of gate_up[2][width]. Shazeer 2020 (arXiv:2002.05202). */
int dl_swiglu(dl_graph *graph, int gate_up);

/* The end: logits = x W^T, loss = sum over counted targets of logsumexp(logits) -
 * logits[target]. Logits exist a block of positions at a time. The gradient is that of the loss
 * + z_loss logsumexp(logits)^2 (Chowdhery et al. 2022, arXiv:2204.02311, section 5), which the
 * loss itself, to stay comparable, does not show. */
void dl_head_loss(dl_graph *graph, int x, int weight, float z_loss);

#endif
