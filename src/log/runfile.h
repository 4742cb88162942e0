/* runfile.h - run.json: the definition of a run, created once (docs/formats.md has the fields).
 *
 * It holds everything that must agree: the AGREE options as text, the model's manifest, and the
 * digest and key of the first state. A replica takes all of it from here. */
#ifndef DL_LOG_RUNFILE_H
#define DL_LOG_RUNFILE_H

#include "base/config.h"
#include "log/base.h"
#include "log/entry.h"
#include "log/identity.h"
#include "log/layout.h"
#include "tensor/manifest.h"

enum { DL_RUNFILE_MAX = 64 << 20 };

typedef struct dl_runfile {
    char id[33];                      /* 128 random bits in hex: the run's id */
    char program[32];                 /* version that created it */
    char creator[DL_REPLICA_MAX + 1]; /* replica that created it; "": not known */
    dl_config config;                 /* AGREE options set; the others have their defaults */
    dl_hash config_digest;
    dl_manifest manifest; /* owned */
    dl_hash theta0;       /* state digests of all fragments, combined by dl_hash_bytes */
    dl_hash theta0_file;  /* dl_digest_bytes of the theta0 object, whose key has it */
    char data_digest[DL_HASH_HEX + 1]; /* "" if the creator gave none */
    dl_identity identity;              /* owned; agrees with config.roster */
    dl_base base; /* owned; tensors that are not exchanged: empty in most runs */
} dl_runfile;

void dl_runfile_deinit(dl_runfile *file);

/* Returns the statement that run.json's signature signs. */
dl_statement dl_runfile_statement(const dl_runfile *file);

/* Returns the place of an entry in the run's log. It borrows from the file. */
dl_entry_place dl_runfile_place(const dl_runfile *file, uint64_t entry);
DL_MUST_CHECK diloco_status dl_runfile_write(dl_buf *out, const dl_runfile *file);
/* Reads run.json. Returns DILOCO_EPROTO if it is no run.json or its owner did not sign it, and
 * DILOCO_EDIFFERS if it has another format version, which the text names. */
DL_MUST_CHECK diloco_status dl_runfile_read(dl_runfile *out, const void *text, size_t len);

/* Checks that this configuration and manifest belong to the run. Options that were not given
 * (origin "default") are taken from the run silently. DILOCO_EDIFFERS lists each option that
 * differs ("trainer.local_steps_per_round is 50 in the run, 40 here (--set)"), a program of another
 * series (0.1 and 0.2), then the first tensor that differs; at most 8 lines. `replica`: the name
 * of this replica in the text, or NULL. */
DL_MUST_CHECK diloco_status dl_runfile_matches(const dl_runfile *file, const dl_config *config,
                                               const dl_manifest *manifest, const char *replica);
/* Sets config's AGREE options to the run's (origin "run"). */
void dl_runfile_take(dl_config *config, const dl_runfile *file);

#endif
