/* local_facts.h - the facts of the local state, and their JSON text (docs/formats.md). The
 * functions are private to state. One thread at a time. */
#ifndef DL_STATE_LOCAL_FACTS_H
#define DL_STATE_LOCAL_FACTS_H

#include "base/buf.h"
#include "base/hash.h"
#include "log/layout.h"
#include "log/train_stats.h"
#include "protocol/pace.h"

typedef struct dl_local_fragment {
    dl_train_stats stats;
    double loss_sum; /* over the steps since the base */
    dl_hash base;    /* digest of its base state, at entry `pace.folded` */
} dl_local_fragment;

typedef struct dl_local_facts {
    char run[33];
    char replica[DL_REPLICA_MAX + 1];
    dl_pace_saved pace;
    uint32_t generation; /* of the generation that saved it; DL_GENERATION_ANY: not recorded */
    dl_former_generations
        formers; /* that it found ended: one of them may be the single committer (P26) */
    uint64_t step, shard, next_sample;
    dl_local_fragment *fragments; /* [n_fragments], the caller's */
    size_t n_fragments;
    dl_hash manifest;
    char isa[16];
    char device[128]; /* "cpu", or the device's name; empty: it has none */
    uint32_t threads;
    char program[32];
} dl_local_facts;

/* Writes the facts into `out`, which it clears first. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_local_facts_write(dl_buf *out, const dl_local_facts *facts);

/* Reads `text`. The caller sets the pointers and n_fragments, as for dl_local_load. Returns
 * DILOCO_EPROTO if the text is damaged, or DILOCO_EDIFFERS if its fragments are of another number.
 */
DL_MUST_CHECK diloco_status dl_local_facts_read(dl_local_facts *facts, const char *text,
                                                size_t len);

#endif
