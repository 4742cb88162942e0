/* step_args.h - the inputs of an outer step (outer_step.h), its measurements and its scratch. */
#ifndef DL_OUTER_STEP_ARGS_H
#define DL_OUTER_STEP_ARGS_H

#include "codec/codec.h"
#include "combine/combine.h"
#include "outer/fragment_state.h"

/* The place of a fragment's tensor in the trainer, which adopt writes. In fragment order: one
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
/* Takes memory for an optimizer that steps whole fragments (outer.h), which its step needs; none
 * for others. dl_outer_whole_bytes returns how much. */
size_t dl_outer_whole_bytes(const dl_manifest *manifest, const dl_outer *outer, int n_threads);
DL_MUST_CHECK diloco_status dl_outer_scratch_reserve(dl_outer_scratch *scratch,
                                                     const dl_manifest *manifest,
                                                     const dl_outer *outer);
/* Frees the scratch. NULL is allowed. */
void dl_outer_scratch_destroy(dl_outer_scratch *scratch);
/* Bytes of the scratch; a codec with views does not touch the buffers that members are decoded
 * to. */
size_t dl_outer_scratch_bytes(const dl_manifest *manifest, const dl_combine_rule *rule,
                              size_t max_members, int n_threads);

#endif
