/* kernel_arguments.h - the one argument of each kernel. Pointers are to device memory. Common part
 * of C and of the kernels' language. */
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

typedef struct dl_cuda_judge_arguments {
    const float *values;
    uint64_t n;
    const double *squares;
    uint64_t n_squares;
    dl_verdict *verdict;
    double clip, margin;
} dl_cuda_judge_arguments;

typedef struct dl_cuda_scale_arguments {
    float *values;
    uint64_t n;
    const dl_verdict *verdict;
} dl_cuda_scale_arguments;

typedef struct dl_cuda_pull_arguments {
    float *values;
    const float *parameters, *anchor;
    uint64_t n;
    float mu;
} dl_cuda_pull_arguments;

typedef struct dl_cuda_hyper_arguments {
    dl_hyper *hyper;
    const dl_verdict *verdict;
    dl_hyper_options options;
} dl_cuda_hyper_arguments;

typedef struct dl_cuda_adamw_arguments {
    float *p, *m, *v;
    const float *g;
    uint64_t n;
    const dl_hyper *hyper;
    const dl_verdict *verdict;
    int decays;
} dl_cuda_adamw_arguments;

typedef struct dl_cuda_sgd_arguments {
    float *p, *momentum; /* NULL: without */
    const float *g;
    uint64_t n;
    const dl_hyper *hyper;
    const dl_verdict *verdict;
    int decays;
} dl_cuda_sgd_arguments;

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

/* ---- operations of a model */

typedef struct dl_cuda_product_arguments {
    float *c;
    const float *a, *b, *bias;
    uint64_t m, n, k;
    uint64_t a_row, a_column, b_row, b_column;
    int add;
} dl_cuda_product_arguments;

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
    int ds_adds, dw_adds;
} dl_cuda_norm_arguments;

/* A warp for each head of each position. w f32[2][dim]: scales of queries and of keys. r
 * f32[positions][heads + kv_heads]. Backward writes the gradient to dx, which may be x. */
typedef struct dl_cuda_qk_norm_arguments {
    const float *x, *w, *dy;
    float *y, *r, *dx, *partial;
    uint64_t positions, heads, kv_heads, dim;
    float eps;
} dl_cuda_qk_norm_arguments;

typedef struct dl_cuda_swiglu_arguments {
    float *x; /* [positions][2][width]; backward writes the gradient over it */
    float *y;
    const float *dy;
    uint64_t positions, width;
} dl_cuda_swiglu_arguments;

/* A warp for each query or key. `turned` f32[positions][heads + kv_heads][dim]: queries, scaled,
 * and keys, both rotated. */
typedef struct dl_cuda_attention_arguments {
    const float *qkv, *cosine, *sine, *dout;
    float *turned, *out, *lse, *dqkv;
    uint64_t rows, length, heads, kv_heads, dim;
    float scale;
} dl_cuda_attention_arguments;

typedef struct dl_cuda_loss {
    float loss;
    int32_t correct;
} dl_cuda_loss;

typedef struct dl_cuda_loss_arguments {
    float *logits; /* [n][vocab], later their gradient */
    const int32_t *targets;
    dl_cuda_loss *losses;
    uint64_t n, vocab;
    float gain, z_loss;
} dl_cuda_loss_arguments;

typedef struct dl_cuda_tally_arguments {
    double *loss;
    uint64_t *n_correct;
    const dl_cuda_loss *losses;
    uint64_t n;
} dl_cuda_tally_arguments;

#endif
