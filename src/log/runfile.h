/* runfile.h - run.json: what a run is, created once (docs/formats.md has the fields).
 *
 * Everything that must agree stands here: the AGREE options as text, the model's manifest, the
 * digest of the first state and where it lies. A replica takes all of it from here. */
#ifndef DL_LOG_RUNFILE_H
#define DL_LOG_RUNFILE_H

#include "base/config.h"
#include "log/base.h"
#include "log/identity.h"
#include "log/layout.h"
#include "tensor/manifest.h"

enum { DL_RUNFILE_MAX = 64 << 20 };

typedef struct dl_runfile {
    char id[33];      /* 128 random bits in hex: names the run */
    char program[32]; /* version that created it */
    dl_config config; /* AGREE options set; the others at their defaults */
    dl_hash config_digest;
    dl_manifest manifest; /* owned */
    dl_hash theta0;       /* state digest of fragment 0 … folded: dl_hash_bytes of all digests */
    dl_hash theta0_file;  /* dl_digest_bytes of the theta0 object, which its key names */
    char data_digest[DL_HASH_HEX + 1]; /* "" when nobody gave one */
    dl_identity identity;              /* owned; config.roster says the same */
    dl_base base; /* owned; tensors that are not exchanged: empty in most runs */
} dl_runfile;

void dl_runfile_deinit(dl_runfile *file);

/* What run.json's signature says it is. */
dl_statement dl_runfile_statement(const dl_runfile *file);

DL_MUST_CHECK diloco_status dl_runfile_write(dl_buf *out, const dl_runfile *file);
/* DILOCO_EPROTO: not a run.json, or its owner did not sign it; DILOCO_EDIFFERS: of another format
 * version (which is named). */
DL_MUST_CHECK diloco_status dl_runfile_read(dl_runfile *out, const void *text, size_t len);

/* Does this configuration and manifest belong to this run? Options that were not given (origin
 * "default") are taken from the run silently. DILOCO_EDIFFERS lists each option that differs
 * ("trainer.local_steps_per_round is 50 in the run, 40 here (--set)"), a program of another series
 * (0.1 and 0.2), then the first tensor that differs; at most 8 lines. */
DL_MUST_CHECK diloco_status dl_runfile_matches(const dl_runfile *file, const dl_config *config,
                                               const dl_manifest *manifest);
/* config's AGREE options become the run's (origin "run"). */
void dl_runfile_take(dl_config *config, const dl_runfile *file);

#endif
