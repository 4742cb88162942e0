/* inner_rows.h - the row of each optimizer's file in the table of inner.c.
 *
 * A rule updates tensors and says what state it keeps. An optimizer is two of them: one for
 * hidden matrices, one for everything else; often the same. */
#ifndef DL_NN_INNER_ROWS_H
#define DL_NN_INNER_ROWS_H

#include "nn/inner.h"
#include "nn/verdict.h"

enum { DL_RULE_VECTORS = 3 }; /* the most that a rule keeps: those of a centered rmsprop */

/* A matrix f32[rows][columns] for a rule that takes it as a whole, on all threads. Pointers but
 * sizes, backend and pool are to backend memory. */
typedef struct dl_inner_matrix {
    float *p;
    const float *g;
    float *vectors[DL_RULE_VECTORS];
    size_t rows, columns;
    const dl_hyper *hyper;
    const dl_verdict *verdict;   /* as in dl_inner_part */
    int muon_steps;              /* hyper's, for a host that cannot read it */
    const dl_inner_sizes *sizes; /* scratch is for these */
    dl_backend *backend;
    void *scratch; /* rule->scratch bytes, anything in it */
    dl_pool *pool;
} dl_inner_matrix;

/* n elements of p and of their gradient; vectors[] begin at the same element (NULL beyond
 * n_vectors). */
typedef struct dl_inner_part {
    float *p;
    const float *g;
    float *vectors[DL_RULE_VECTORS];
    size_t n;
    const dl_hyper *hyper;     /* in backend memory, written by a pass before: a function for the */
    const dl_verdict *verdict; /* CPU reads them, one for another device hands their address on */
    bool decays;               /* hyper->keep applies */
    dl_backend *backend;
} dl_inner_part;

typedef struct dl_rule {
    /* Returns how many vectors the rule keeps with these options, at most DL_RULE_VECTORS. */
    size_t (*n_vectors)(const dl_config *config);
    const char *vectors[DL_RULE_VECTORS]; /* named as in torch.optim */

    /* One function for each kind of device, as in op.h. On the CPU it runs on one thread, with a
     * part of a tensor, and never after a verdict that skips the step. On a GPU it starts a kernel
     * over a whole tensor, which reads the verdict. */
    void (*update[DL_N_DEVICES])(const dl_inner_part *part);

    /* Instead of update, where a matrix is more than its elements. Allocates nothing. */
    void (*matrix[DL_N_DEVICES])(const dl_inner_matrix *m);
    /* Returns the bytes of a matrix's scratch. NULL: none. */
    size_t (*scratch)(const dl_inner_sizes *sizes, int n_threads);
} dl_rule;

/* dl_rule_check returns DILOCO_EREFUSED, with the optimizer's name, if the rule lacks a function
 * for the backend's device that it has for the CPU. */
DL_MUST_CHECK diloco_status dl_rule_check(const dl_rule *rule, const char *optimizer,
                                          const dl_backend *backend);

/* The list of optimizers: the name, its rule of hidden matrices and that of everything else. A new
 * one is a file that defines dl_rule_<rule>, and its line here. */
// clang-format off
#define DL_INNERS(X) \
    X(adamw, adamw, adamw) \
    X(qhadamw, qhadamw, qhadamw) \
    X(sgd, sgd, sgd) \
    X(rmsprop, rmsprop, rmsprop) \
    X(muon, muon, adamw)
// clang-format on

#define DL_DECLARE(name, hidden, rest) extern const dl_rule dl_rule_##hidden, dl_rule_##rest;
DL_INNERS(DL_DECLARE)
#undef DL_DECLARE

#endif
