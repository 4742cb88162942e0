/* mix.h - the arithmetic of a node without a log: its contribution, its outer step with those of
 * others, and agreement.
 *
 *     all     x_j = g_j = theta_j - local_j, encoded by the run's codec: how far node j moved. The
 *             run's combiner and outer optimizer make the step.
 *     pairs   x_j = theta_i - local_j: node j sends its trained parameters. Then
 *             mean x = mean g + theta_i - mean theta, and heavy ball with it
 *
 *                 v <- a v + mean x;   theta <- theta - b v
 *
 *             is, with m = -b v, NoLoCo's rule (arXiv:2506.10911) as its authors' code has it, the
 *             sign of the paper's equation 2 corrected and gamma = b:
 *
 *                 m <- a m - b mean g + b (mean theta - theta_i);   theta <- theta + m
 *
 *     agree   every node sends its theta, buffers and outer vectors. Each of them is replaced by
 *             the result of the run's combiner, element by element and with equal weights. Nodes
 *             that received the same models end with the same bits.
 *
 * Members are combined in the order of their names, so equal inputs give equal bits. One thread at
 * a time; allocates when it is made. */
#ifndef DL_GOSSIP_MIX_H
#define DL_GOSSIP_MIX_H

#include "gossip/node.h"
#include "log/contribution.h"
#include "state/state.h"

#define DL_MIX_BOUND 1e18f /* as of a log's contributions: no sum or product overflows */

typedef struct dl_mix dl_mix;

/* One member's object. Both are borrowed: from a line (wire.h), or from dl_mix_own. */
typedef struct dl_mix_input {
    const dl_contribution *facts;
    dl_contribution_data data;
} dl_mix_input;

typedef struct dl_mix_facts {
    dl_outer_step_facts outer;
    size_t n_alike; /* inputs whose model was bitwise this node's, itself included */
} dl_mix_facts;

/* Makes the arithmetic and all of its memory. config, manifest (of one fragment) and pool are
 * borrowed. Returns DILOCO_ENOMEM, and the errors of the codec and the combiner. */
DL_MUST_CHECK diloco_status dl_mix_create(dl_mix **out, const dl_config *config,
                                          const dl_manifest *manifest, dl_pool *pool);
void dl_mix_destroy(dl_mix *mix);

/* Returns the header that an object of another node must have, except for run, entry and
 * generation, which the caller sets. Any base is accepted, since each node trains from a model of
 * its own. */
dl_contribution_expect dl_mix_expect(const dl_mix *mix, dl_object object);

/* Makes this node's own object. A contribution is made from its tensors (data: [n_tensors] in the
 * manifest's order, on the host) and its state, a model from the state alone. `facts` gets numbers,
 * sizes and digests. *input is the argument for dl_mix_step; spans[3] are the bytes after the
 * header. Both are valid until the next call. Returns DILOCO_ENUMERIC, with the tensor's name, if a
 * value is not finite or beyond DL_MIX_BOUND. */
DL_MUST_CHECK diloco_status dl_mix_own(dl_mix *mix, dl_object object, const dl_state *state,
                                       void *const *data, dl_contribution *facts,
                                       dl_mix_input *input, dl_span spans[3], size_t *n_spans);

/* Makes the outer step of `round` with inputs of n members, this node among them, by name.
 * n_rejected others were struck (node.h) and count against the combiner's f. The result is in
 * state->next, which then becomes state->now. Returns DILOCO_ENUMERIC or DILOCO_EINVAL if it cannot
 * be made; the state is as it was. */
DL_MUST_CHECK diloco_status dl_mix_step(dl_mix *mix, dl_state *state, const dl_mix_input *inputs,
                                        size_t n, size_t n_rejected, uint64_t round,
                                        dl_mix_facts *facts);
/* Replaces the state by the agreed model of n models, after the step. Arguments and errors are
 * those of dl_mix_step. */
DL_MUST_CHECK diloco_status dl_mix_agree(dl_mix *mix, dl_state *state, const dl_mix_input *inputs,
                                         size_t n, size_t n_rejected, uint64_t round,
                                         dl_mix_facts *facts);

/* dl_mix_adopt copies theta and buffers into the tensors. dl_mix_begin copies the tensors into
 * theta and buffers of a node's first state. */
void dl_mix_adopt(const dl_state *state, void *const *data);
void dl_mix_begin(dl_state *state, void *const *data);

#endif
