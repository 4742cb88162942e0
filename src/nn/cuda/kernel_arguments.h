/* kernel_arguments.h - the one argument of each kernel, a struct. C and the kernels' language
 * compile the same definition, so both see one layout. Pointers are to device memory, sizes are in
 * elements, and a flag is an int. Launches are whole blocks: threads without work return. Arguments
 * that have the same values should have the same bytes (tensor/cuda/cuda_launches.h), so structs
 * of many launches end with `zero` in place of padding. */
#ifndef DL_NN_CUDA_KERNEL_ARGUMENTS_H
#define DL_NN_CUDA_KERNEL_ARGUMENTS_H

#include "nn/verdict.h"

/* squares[b]: sum of squares of block b. PROTOCOL B3 fixes the order of the additions. */
enum { DL_CUDA_LANES = 16, DL_CUDA_BLOCK = 4096 };
typedef struct dl_cuda_squares_arguments {
    const float *values;
    uint64_t n;
    double *squares;
} dl_cuda_squares_arguments;

/* Writes *verdict from the sums of dl_squares. `clip` and `margin` are those of dl_gradient. */
typedef struct dl_cuda_judge_arguments {
    const float *values;
    uint64_t n;
    const double *squares;
    uint64_t n_squares;
    dl_verdict *verdict;
    double clip, margin;
} dl_cuda_judge_arguments;

/* values *= clip_factor, or 0 after a verdict that skips the step. */
typedef struct dl_cuda_scale_arguments {
    float *values;
    uint64_t n;
    const dl_verdict *verdict;
} dl_cuda_scale_arguments;

/* values += mu (parameters - anchor) */
typedef struct dl_cuda_pull_arguments {
    float *values;
    const float *parameters, *anchor;
    uint64_t n;
    float mu;
} dl_cuda_pull_arguments;

/* g = before - after; a thread for each element. */
typedef struct dl_cuda_form_arguments {
    float *g;
    const float *before, *after;
    uint64_t n;
} dl_cuda_form_arguments;

/* local = theta + mix (local - theta), or theta with mix 0. */
typedef struct dl_cuda_adopt_arguments {
    float *local;
    const float *theta;
    uint64_t n;
    float mix;
    int zero;
} dl_cuda_adopt_arguments;

/* The codes of x (codec/integers.h), and a scale for each block of threads' elements. Both have
 * the layout of codec/blocks.h. */
typedef struct dl_cuda_encode_arguments {
    uint32_t *codes;
    float *scales;
    const float *x;
    uint64_t n;
    int bits, zero;
} dl_cuda_encode_arguments;

/* One thread fills *hyper, unless the verdict skips the step. */
typedef struct dl_cuda_hyper_arguments {
    dl_hyper *hyper;
    const dl_verdict *verdict;
    dl_hyper_options options;
} dl_cuda_hyper_arguments;

/* Of dl_adamw and dl_qhadamw: a thread for each element of a tensor. m and v are its moments. */
typedef struct dl_cuda_adamw_arguments {
    float *p, *m, *v;
    const float *g;
    uint64_t n;
    const dl_hyper *hyper;
    const dl_verdict *verdict;
    int decays, zero;
} dl_cuda_adamw_arguments;

/* A thread for each element of a tensor. */
typedef struct dl_cuda_sgd_arguments {
    float *p, *momentum; /* NULL: without */
    const float *g;
    uint64_t n;
    const dl_hyper *hyper;
    const dl_verdict *verdict;
    int decays, zero;
} dl_cuda_sgd_arguments;

/* A thread for each element of a tensor. mean is kept with momentum only. */
typedef struct dl_cuda_rmsprop_arguments {
    float *p, *squares;
    float *momentum, *mean; /* NULL: without */
    const float *g;
    uint64_t n;
    const dl_hyper *hyper;
    const dl_verdict *verdict;
    int decays, zero;
} dl_cuda_rmsprop_arguments;

/* u is the update before it is made orthogonal. */
typedef struct dl_cuda_muon_arguments {
    float *u, *momentum;
    const float *g;
    uint64_t n;
    const dl_hyper *hyper;
    const dl_verdict *verdict;
} dl_cuda_muon_arguments;

/* *out: 1 / max(root of the sum, eps) */
typedef struct dl_cuda_inverse_arguments {
    const double *squares;
    uint64_t n;
    float *out;
    float eps;
} dl_cuda_inverse_arguments;

/* y = a x + b y, or a x where b is 0; a is multiplied by *factor unless that is NULL. x may be y.
 */
typedef struct dl_cuda_blend_arguments {
    float *y;
    const float *x, *factor;
    uint64_t n;
    float a, b;
} dl_cuda_blend_arguments;

/* p = keep p - lr scale x */
typedef struct dl_cuda_apply_arguments {
    float *p;
    const float *x;
    uint64_t n;
    float scale;
    const dl_hyper *hyper;
    const dl_verdict *verdict;
} dl_cuda_apply_arguments;

/* to bf16[n]: each element of `from` rounded to nearest, ties to even. */
typedef struct dl_cuda_round_arguments {
    uint16_t *to;
    const float *from;
    uint64_t n;
} dl_cuda_round_arguments;

/* ---- operations of a model. Values and their gradients have the element type of the kernel:
 * bf16 where its name ends with _bf16, although the pointers are to float. Parameters, their
 * gradients and sums are f32. */

/* C[m][n] = A[m][k] B[k][n] + bias[n], or added to C; a block for each square of C with a side of
 * DL_CUDA_SIDE. A(i, l) is a[i * a_row + l * a_column], and B alike, so each may be transposed.
 * bias may be NULL. dl_product_bf16 has A, B and C in bf16, and
 * dl_product_bf16_to_f32 only A and B. */
enum { DL_CUDA_SIDE = 64 };
typedef struct dl_cuda_product_arguments {
    float *c;
    const float *a, *b, *bias;
    uint64_t m, n, k;
    uint64_t a_row, a_column, b_row, b_column;
    int add, zero;
} dl_cuda_product_arguments;

/* db = sum over positions of dy, or added to db; a thread for each channel. */
typedef struct dl_cuda_bias_arguments {
    float *db; /* f32[width] */
    const float *dy;
    uint64_t positions, width;
    int add;
} dl_cuda_bias_arguments;

enum { DL_CUDA_ROWS = 64 }; /* of the table, whose gradient is a block of threads' */
typedef struct dl_cuda_embedding_arguments {
    float *table, *x; /* of a gradient in the backward pass */
    const int32_t *tokens;
    uint64_t positions, width, rows;
    int add;
} dl_cuda_embedding_arguments;

enum { DL_CUDA_CHUNK = 128 }; /* positions that one thread adds up */
typedef struct dl_cuda_norm_arguments {
    float *s, *y, *r;       /* forward writes them */
    const float *x, *delta; /* delta NULL: s is x */
    const float *weight;
    const float *dy; /* backward */
    float *ds, *partial, *dw;
    uint64_t positions, width;
    float eps;
    int ds_adds, dw_adds, zero;
} dl_cuda_norm_arguments;

/* A warp for each head of each position. w f32[2][dim]: scales of queries and of keys. r
 * f32[positions][heads + kv_heads]. Backward writes the gradient to dx, which may be x. */
typedef struct dl_cuda_qk_norm_arguments {
    const float *x, *w, *dy;
    float *y, *r, *dx, *partial;
    uint64_t positions, heads, kv_heads, dim;
    float eps;
} dl_cuda_qk_norm_arguments;

/* A thread for each element of y. */
typedef struct dl_cuda_swiglu_arguments {
    float *x; /* [positions][2][width]; backward writes the gradient over it */
    float *y;
    const float *dy;
    uint64_t positions, width;
} dl_cuda_swiglu_arguments;

/* A block for each head, each piece of its rows and each slice of its elements. Rows are queries,
 * or keys in dl_attention_keys; a slice has DL_CUDA_PAIRS pairs of elements. Of dl_attention_delta:
 * a warp for each query and head. lse and delta are f32[rows][heads][length], kept and passed from
 * one kernel to the next. */
enum { DL_CUDA_FORWARD_ROWS = 32, DL_CUDA_BACKWARD_ROWS = 16, DL_CUDA_PAIRS = 64 };
typedef struct dl_cuda_attention_arguments {
    const float *qkv, *cosine, *sine, *dout;
    float *out, *lse, *delta, *dqkv;
    uint64_t rows, length, heads, kv_heads, dim;
    float scale;
    int zero;
} dl_cuda_attention_arguments;

/* dl_target_loss (nn/softmax.h) of one position. */
typedef struct dl_cuda_loss {
    float loss;
    int32_t correct;
} dl_cuda_loss;

/* A warp for each position. A target < 0 is not counted. */
typedef struct dl_cuda_loss_arguments {
    const float *logits; /* f32[n][vocab] */
    float *gradient;     /* [n][vocab]; may be the logits in f32 */
    const int32_t *targets;
    dl_cuda_loss *losses;
    uint64_t n, vocab;
    float gain, z_loss;
} dl_cuda_loss_arguments;

/* One block adds n losses to the graph's tally. */
typedef struct dl_cuda_tally_arguments {
    double *loss;
    uint64_t *n_correct;
    const dl_cuda_loss *losses;
    uint64_t n;
} dl_cuda_tally_arguments;

#endif
