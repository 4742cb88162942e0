/* partition.h - which samples of a data set each client has, by data.sampler.
 *
 * A partition is a pure function of the settings, the classes of the samples and the number of
 * clients. So every machine that deals the same data set deals it alike (base/draw.h). It holds
 * nothing that grows with clients x samples. A sample's place is computed when it is asked for, or
 * a client's list is drawn when the client is taken (dl_sampler.list).
 *
 *     iid                    one shuffle, cut to partition_size x clients (another after it where
 *                            the data is short); client c of C takes every C-th from c on
 *     noniid                 partition_size samples without repetition, by class weights drawn
 *                            from a Dirichlet distribution of data.concentration
 *     mixed                  the clients of data.non_iid_clients so, the others evenly by class
 *     orthogonal             client c is of silo c mod total_silos, and draws from its classes
 *     label_quantity_noniid  per_client_classes_size classes each; a class's samples are cut into
 *                            one part for each client that has it
 *     sample_quantity_noniid one shuffle cut by sizes that are a Dirichlet draw, beside
 *                            min_partition_size for every client
 *     distribution_noniid    such sizes, filled as noniid with data.label_concentration
 *
 * Clients of noniid, mixed, distribution_noniid and of one silo may have samples in common, and of
 * iid where it starts again; else they are disjoint. contiguous and whole (all_inclusive in Plato)
 * are cut by data.c itself.
 *
 * Like Plato's samplers in what they mean, not in their random numbers. */
#ifndef DL_DATA_PARTITION_H
#define DL_DATA_PARTITION_H

#include "base/config.h"

typedef struct dl_partition dl_partition;

/* The data to divide. The classes are read while the partition is made. */
typedef struct dl_partition_data {
    uint64_t n;       /* samples */
    size_t n_classes; /* 0: they have none */
    int32_t (*class_of)(const void *user, uint64_t sample);
    const void *user; /* borrowed until create returns */
} dl_partition_data;

/* Plans the division for n_clients clients; `config` is copied. *out is NULL for contiguous and
 * whole. Returns DILOCO_EINVAL, and names the option, for fewer samples or classes than it asks
 * for, data without classes, an unknown sampler, and clients without any sample. Returns
 * DILOCO_EREFUSED for more than 2^32 samples, or more than 1024 classes, and DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_partition_create(dl_partition **out, const dl_config *config,
                                                const dl_partition_data *data, size_t n_clients);
void dl_partition_destroy(dl_partition *partition); /* NULL is fine */

uint64_t dl_partition_size(const dl_partition *partition, size_t client); /* > 0 */

/* Returns sample i < size of a client; not if it is listed. Any thread. Allocates nothing. */
uint64_t dl_partition_at(const dl_partition *partition, size_t client, uint64_t i);

/* A partition is listed if a client's samples can only be drawn all together. dl_partition_list
 * then writes them to u32[size]. Any thread. */
bool dl_partition_listed(const dl_partition *partition);
void dl_partition_list(uint32_t *out, const dl_partition *partition, size_t client);

const char *dl_sampler_name_at(size_t i); /* contiguous, whole, iid, …; NULL after the last */
/* Returns true if two clients may have a sample in common, and for an unknown sampler. */
bool dl_sampler_overlaps(const char *name);
/* Returns true if each client has all samples. */
bool dl_sampler_gives_all(const char *name);

#endif
