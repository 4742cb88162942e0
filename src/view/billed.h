/* billed.h - bytes and requests of a run's store as a provider bills them, by the records of its
 * replicas (docs/architecture.md section 9). */
#ifndef DL_VIEW_BILLED_H
#define DL_VIEW_BILLED_H

#include "base/json.h"
#include "base/status.h"

/* Sums. Lists count as writes, because they are sold as such. */
typedef struct dl_billed {
    double written, read; /* bytes */
    double writes, reads; /* requests */
} dl_billed;

/* dl_billed_add adds a record's line "commit": the traffic of its replica since its line before. A
 * member that is missing, negative or not finite counts as 0, since records are untrusted. */
void dl_billed_add(dl_billed *sum, dl_json_value commit);

/* The records of a run, read again and again, each part of them once. One thread at a time. */
typedef struct dl_billed_run dl_billed_run;

/* dl_billed_open opens the store at `url`, which need not have a run yet. The caller closes *out.
 * Returns DILOCO_ENOMEM and errors of the store. */
DL_MUST_CHECK diloco_status dl_billed_open(dl_billed_run **out, const char *url);
void dl_billed_close(dl_billed_run *run); /* NULL is fine */

/* dl_billed_read reads the parts that are new. It makes about one listing request for each process
 * that has a record, and one request for each new part. A damaged part is left out, with a warning.
 * Returns errors of the store; the next call then continues with the part that failed. */
DL_MUST_CHECK diloco_status dl_billed_read(dl_billed_run *run);

/* The sums of all parts that were read. *exchanges: the lines "commit" of all replicas. *records:
 * the uploads of the parts themselves. */
void dl_billed_sums(dl_billed *exchanges, dl_billed *records, const dl_billed_run *run);

#endif
