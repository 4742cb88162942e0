/* outer_step.h - the central pure function: state(e+1) of one fragment from state(e), the checked
 * contributions and the entry's numbers. It walks memory once (twice, where the combiner measures
 * the members before).
 *
 * For each piece of 1 MiB, on some thread, for each block of 4096 in it: decode every member,
 * combine, outer step, adopt, measure, hash. Equal bits on every machine, at any number of
 * threads. Allocates nothing. */
#ifndef DL_OUTER_OUTER_STEP_H
#define DL_OUTER_OUTER_STEP_H

#include "base/arena.h"
#include "base/thread.h"
#include "codec/codec.h"
#include "combine/combine.h"
#include "outer/outer.h"
#include "tensor/manifest.h"

/* The state of a fragment (PROTOCOL P1, P3). Its arrays are owned by the caller that laid it
 * out. */
typedef struct dl_fragment_state {
    float *theta;                     /* f32[n_trained + n_averaged] */
    float *outer[DL_OUTER_MAX_STATE]; /* f32[n_trained] each */
    int64_t *integers;
    uint8_t *booleans;
    uint64_t n_commits;
    dl_hash digest;
    dl_hash before; /* digest of the state that the last commit changed; at first `digest` */
} dl_fragment_state;

/* Takes a state's arrays from an arena, which zeroes them. They are valid as long as the arena is.
 * digest and before are zero: the caller sets them. */
void dl_state_layout(dl_fragment_state *state, dl_arena *arena, dl_fragment_shape shape,
                     const dl_outer *outer);

/* The digest of a state: hash of the concatenated 16-byte digests of theta, each outer vector,
 * integers, booleans (dl_digest_bytes of each region) and the 8 bytes of n_commits, little-endian.
 */
dl_hash dl_state_digest(const dl_fragment_state *state, dl_fragment_shape shape,
                        const dl_outer *outer, dl_pool *pool);

/* Where a fragment's tensors live in the trainer; adopt writes there. In fragment order: one
 * region after the other, each in manifest order (a bug otherwise). */
typedef struct dl_local_tensor {
    void *data;   /* f32, i64 or u8 as the region says */
    size_t begin; /* first element, from the region's start (f32: from theta's) */
    size_t count;
    dl_region region;
} dl_local_tensor;

/* One contribution: the payload of its codec for theta's n_trained + n_averaged elements, then
 * the values after training of its integers (i64, little-endian) and booleans. Checked before. */
typedef struct dl_contribution_data {
    const unsigned char *payload;
    size_t len;
    const unsigned char *integers;
    const unsigned char *booleans;
    double norm2; /* of the decoded vector, from dl_codec_check */
    void *mapped; /* the payload is in a file, of which this is the mapping, that is let go of
                   * again as it was read; NULL: in memory */
    size_t mapped_len;
} dl_contribution_data;

/* The members' combined result, before the outer optimizer: G, and the new values of tensors that
 * are not f32. */
typedef struct dl_combined {
    float *g;                /* f32[n_trained + n_averaged] */
    unsigned char *integers; /* i64, little-endian, not aligned */
    unsigned char *booleans;
} dl_combined;

/* The inputs of one step. Everything is borrowed for the call alone. */
typedef struct dl_outer_step_args {
    const dl_manifest *manifest;
    int fragment;              /* index into manifest->fragments */
    const dl_codec_form *form; /* of the payloads */
    const dl_outer *outer;
    float scalars[DL_OUTER_MAX_SCALARS];

    const dl_combined *combined; /* NULL: the members are combined on the way */
    size_t n_members;
    size_t n_rejected; /* members beside these that count against the rule's f */
    const dl_contribution_data *members;
    size_t own;             /* 1 + the index of the caller's own member; 0: it has none */
    const float *weight;    /* [n_members], of the f32 mean; their sum is 1 up to rounding */
    const uint64_t *raw;    /* [n_members] before normalization, for integers and booleans */
    size_t first, count;    /* elements that dl_outer_combine combines; count 0: all. first is a
                             * multiple of DL_BLOCK. With first 0 it also combines integers and
                             * booleans */
    const double *measured; /* results of dl_outer_measure for all slices of form (cut.h), one after
                             * the other; NULL: measured here, or not at all */

    const dl_local_tensor *local; /* NULL: adopt nothing */
    size_t n_local;
    float local_mix; /* share of the local value that adopt keeps: 0 replaces, 1 changes nothing.
                      * Integers and booleans are copied unless it is 1 */

    bool no_digest; /* for benchmarks: leaves out->digest zero */
} dl_outer_step_args;

/* Measurements of the pass (for the record; docs/architecture.md section 9). */
typedef struct dl_outer_step_facts {
    double aggregated_norm; /* ||G|| over the f32 array */
    double similarity;      /* mean pairwise cosine of the members; NaN with one member */
    double divergence;      /* root mean square over members of ||g_m - mean g||; both NaN if the
                             * members were not read */
    double own_cosine;      /* of the own member with G, which includes it; NaN if G was not
                             * combined here */
    const char *combiner;   /* that was applied */
    size_t tolerated;       /* how many hostile members it bears, of those there were */
    bool fell_back;         /* there were too few for the rule's combiner */
} dl_outer_step_facts;

/* Scratch for one step at a time with at most max_members, combined by `rule` (copied). */
typedef struct dl_outer_scratch dl_outer_scratch;
DL_MUST_CHECK diloco_status dl_outer_scratch_create(dl_outer_scratch **out,
                                                    const dl_manifest *manifest,
                                                    const dl_combine_rule *rule, size_t max_members,
                                                    int n_threads);
/* Room for an optimizer that steps whole fragments (outer.h); for others, none. Before its step. */
DL_MUST_CHECK diloco_status dl_outer_scratch_reserve(dl_outer_scratch *scratch,
                                                     const dl_manifest *manifest,
                                                     const dl_outer *outer);
/* Frees the scratch. NULL is allowed. */
void dl_outer_scratch_destroy(dl_outer_scratch *scratch);
/* Bytes of the scratch; a codec with views does not touch the buffers that members are decoded
 * to. */
size_t dl_outer_scratch_bytes(const dl_manifest *manifest, const dl_combine_rule *rule,
                              size_t max_members, int n_threads);

/* Computes out = step(in); out and in may be the same state. Returns DILOCO_ENUMERIC if a result is
 * not finite (the text names tensor and element), or if the rule refuses that few members. Such an
 * entry is aborted, and a committed one is void. Also returns the status of a caller's own
 * optimizer. `in` is intact when out is another state. A replica that wants to create an entry
 * computes into another state, without `local`, and adopts when the entry is committed. A replica
 * that reads a committed entry (its result is finite, or it is void) gives `local` and walks memory
 * once. */
DL_MUST_CHECK diloco_status dl_outer_step(dl_fragment_state *out, const dl_fragment_state *in,
                                          const dl_outer_step_args *args,
                                          dl_outer_step_facts *facts, dl_outer_scratch *scratch,
                                          dl_pool *pool);

/* Whether a range of elements can be combined by itself. ALONE: yes. MEASURED: after every range
 * has been measured. NO: the rule also needs the norm of the whole result. */
typedef enum dl_cutting { DL_CUT_NO, DL_CUT_ALONE, DL_CUT_MEASURED } dl_cutting;
dl_cutting dl_outer_cutting(const dl_combine_rule *rule);

/* Measures the members in one slice, as the rule needs it: each one's norm2, which args->members
 * have of the slice, and the dot products. args: members, form, fragment, and the slice's first and
 * count. Writes dl_outer_n_measures numbers, a function of the rule, the form and n_members.
 * Returns DILOCO_ENUMERIC if the rule refuses that few members. */
size_t dl_outer_n_measures(const dl_outer_step_args *args, dl_outer_scratch *scratch, size_t slice);
DL_MUST_CHECK diloco_status dl_outer_measure(double *out, const dl_fragment_state *in,
                                             const dl_outer_step_args *args,
                                             dl_outer_scratch *scratch, dl_pool *pool);

/* Runs the first half of the step: combines the members, or a part of the elements (args.count).
 * Facts are of that part alone. A step with args.combined set to the result gives the same bits as
 * one with the members. Returns DILOCO_ENUMERIC if the rule refuses that few members. */
DL_MUST_CHECK diloco_status dl_outer_combine(dl_combined *out, const dl_fragment_state *in,
                                             const dl_outer_step_args *args,
                                             dl_outer_step_facts *facts, dl_outer_scratch *scratch,
                                             dl_pool *pool);

/* The dot products of the members alone: [n_members^2], in the scratch until its next use, whose
 * rule says that it is checked. Of args the members, their form and where they belong count. */
const double *dl_outer_gram(const dl_outer_step_args *args, dl_outer_scratch *scratch,
                            dl_pool *pool);

/* The same slice by slice, as dl_outer_measure does for the rule: each member's norm2, and the dot
 * products where the rule says that it is checked. dl_outer_compared makes *norm2 and the dot
 * products, or NULL, from args->measured of all slices in order. They have the same bits as a
 * measurement of the whole. */
size_t dl_outer_n_compared(const dl_outer_step_args *args, dl_outer_scratch *scratch, size_t slice);
void dl_outer_compare(double *out, const dl_outer_step_args *args, dl_outer_scratch *scratch,
                      dl_pool *pool);
const double *dl_outer_compared(const double **norm2, const dl_outer_step_args *args,
                                dl_outer_scratch *scratch);

#endif
