/* self_test_rows.h - the kernels of the self-test. A new kernel dl_<name> is a line here and a
 * function dl_probe_<name> in a file of this folder; dl_<name>_bf16 is a second line. */
#ifndef DL_NN_SELF_TEST_ROWS_H
#define DL_NN_SELF_TEST_ROWS_H

#include "nn/cuda/self_test/kernel_probe.h"

// clang-format off
#define DL_SELF_TESTS(X) \
    X(squares) \
    X(judge) \
    X(scale) \
    X(pull) \
    X(form_movement) \
    X(adopt_theta) \
    X(encode_integers) \
    X(hyper_of_step) \
    X(adamw) \
    X(qhadamw) \
    X(sgd) \
    X(rmsprop) \
    X(muon_momentum) \
    X(muon_inverse) \
    X(muon_blend) \
    X(muon_apply) \
    X(product) \
    X(bias_gradient) \
    X(embedding_forward) \
    X(embedding_backward) \
    X(norm_forward) \
    X(norm_backward) \
    X(norm_partial) \
    X(norm_weight) \
    X(qk_norm_forward) \
    X(qk_norm_roots) \
    X(qk_norm_partial) \
    X(qk_norm_backward) \
    X(swiglu_forward) \
    X(swiglu_backward) \
    X(attention_forward) \
    X(attention_delta) \
    X(attention_queries) \
    X(attention_keys) \
    X(softmax_of_logits) \
    X(add_to_tally) \
    X(round_weights) \
    X(product_bf16_to_f32)

/* Kernels dl_<name>_bf16. The function is that of dl_<name>, which must be in the list above. */
#define DL_SELF_TESTS_BF16(X) \
    X(product) \
    X(bias_gradient) \
    X(embedding_forward) \
    X(embedding_backward) \
    X(norm_forward) \
    X(norm_backward) \
    X(norm_partial) \
    X(qk_norm_forward) \
    X(qk_norm_roots) \
    X(qk_norm_partial) \
    X(qk_norm_backward) \
    X(swiglu_forward) \
    X(swiglu_backward) \
    X(attention_forward) \
    X(attention_delta) \
    X(attention_queries) \
    X(attention_keys) \
    X(softmax_of_logits)
// clang-format on

#define DL_DECLARE(name) diloco_status dl_probe_##name(dl_probe *probe);
DL_SELF_TESTS(DL_DECLARE)
#undef DL_DECLARE

/* A sequence of one of these kernels, as a graph of the driver. The probe's kernel is
 * dl_muon_blend. */
diloco_status dl_probe_recorded(dl_probe *probe);
/* A product by the library of products, as cublasLtMatmul. */
diloco_status dl_probe_library(dl_probe *probe);

#endif
