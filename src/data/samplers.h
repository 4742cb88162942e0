/* samplers.h - the interface between partition.c and the files of the samplers, and the functions
 * that samplers share. */
#ifndef DL_DATA_SAMPLERS_H
#define DL_DATA_SAMPLERS_H

#include "base/rng.h"
#include "data/partition.h"

enum { DL_SAMPLER_MAX_CLASSES = 1024 }; /* a draw has an array of them on the stack */

/* One sampler. One without `size` is handled by data.c alone. */
typedef struct dl_sampler {
    const char *name;       /* of data.sampler */
    bool classes, overlaps; /* it needs samples' classes; two clients may have one sample */

    /* Checks the options, and fills the members of `p` that the functions below read. */
    diloco_status (*plan)(dl_partition *p);
    /* Returns the number of a client's samples. */
    uint64_t (*size)(const dl_partition *p, size_t client);
    /* A sampler has either `at`, for one sample, or `list`, for all of a client's. */
    uint64_t (*at)(const dl_partition *p, size_t client, uint64_t i);
    void (*list)(uint32_t *out, const dl_partition *p, size_t client);
} dl_sampler;

/* The list of samplers. A new one is a file that defines dl_sampler_<name>, and its line here. */
// clang-format off
#define DL_SAMPLERS(X) \
    X(contiguous) \
    X(whole) \
    X(all_inclusive) \
    X(iid) \
    X(noniid) \
    X(mixed) \
    X(orthogonal) \
    X(label_quantity) \
    X(sample_quantity) \
    X(distribution)
// clang-format on

#define DL_DECLARE(name) extern const dl_sampler dl_sampler_##name;
DL_SAMPLERS(DL_DECLARE)
#undef DL_DECLARE

/* A class that a client has, and how many clients before it have that class. */
typedef struct dl_owned {
    uint32_t class, before;
} dl_owned;

/* Nothing changes after the plan, so any thread may read. */
struct dl_partition {
    const dl_sampler *sampler;
    dl_config config; /* for data.* and algorithm.* */
    uint64_t n, seed; /* samples; data.random_seed */
    size_t n_clients, n_classes;

    /* Samples in order of their classes; class k is [class_begin[k], class_begin[k + 1]). Both are
     * owned, and NULL for a sampler that does not need classes. */
    uint32_t *by_class;
    uint64_t *class_begin;

    /* Owned; each is made by the sampler that needs it, and NULL with the others. */
    uint64_t *cut;    /* [n_clients + 1] where each client's part of a shuffle begins */
    dl_owned *owned;  /* [n_clients][per_client_classes] */
    uint32_t *owners; /* [n_classes] clients that have a class */
    size_t n_silos;
    bool *silo_has; /* [n_silos][n_classes] */
    bool *drawn;    /* [n_clients] mixed: by a Dirichlet draw */
};

/* Returns the number of samples of class k. */
uint64_t dl_class_size(const dl_partition *p, size_t k);

/* Returns data.partition_size, or an equal part of all samples if it is 0. */
uint64_t dl_equal_size(const dl_partition *p, size_t client);
/* Returns DILOCO_EINVAL if that size is 0 or more than `most`. */
DL_MUST_CHECK diloco_status dl_check_size(const dl_partition *p, uint64_t most);

/* Returns a generator for the draws of one client, which do not depend on other clients. */
dl_rng dl_client_rng(const dl_partition *p, size_t client);

/* Draws n samples without repetition. A sample of class k has a weight in proportion to weights[k],
 * f64[n_classes]; a weight below 0 excludes the class. The other classes must have at least n
 * samples. Time: O(n n_classes). */
void dl_draw_samples(uint32_t *out, uint64_t n, const dl_partition *p, const double *weights,
                     dl_rng *rng);

/* Reads a list as "0, 1; 2, 3" number by number. *number is the next one from *text on, and *after
 * is the divider before it (',' or ';', 0 for the first). Returns false at the end. *wrong is set
 * if the text has another form, for example a divider with nothing after it. */
bool dl_next_number(const char **text, uint64_t *number, char *after, bool *wrong);

#endif
