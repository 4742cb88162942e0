/* store_bill.h - the cost of a run's store so far, for launches of the run.
 *
 * The exchanges are counted as the replicas have recorded them in the store, about half a minute
 * late. The rest has no such record while a replica runs, so it is estimated: heartbeats and
 * snapshots as by `diloco plan`, and one model for each process. The requests of this machine,
 * which follows the run, are not counted. */
#ifndef DL_CLI_LAUNCH_STORE_BILL_H
#define DL_CLI_LAUNCH_STORE_BILL_H

#include "launch/book.h"
#include "plan/forecast.h"
#include "view/billed.h"

/* Costs are in the currency of the price table. */
typedef struct dl_store_bill {
    dl_billed exchanges; /* as recorded */
    double recorded;     /* the cost of it */
    double estimated;    /* the cost of the rest */
} dl_store_bill;

/* The use of a store, of which a bill is made. */
typedef struct dl_store_use {
    dl_billed exchanges, records;   /* as dl_billed_sums has them */
    double parameters;              /* of the model */
    double heartbeat_s, snapshot_s; /* between two of them; 0: none */
    double machine_s;               /* of all replicas together */
    double replicas;                /* of the run */
    double processes;               /* that were started */
} dl_store_use;

void dl_store_bill_of(dl_store_bill *out, const dl_store_use *use, const dl_prices *prices);

/* Returns true if the table has a price of the store above 0. */
bool dl_store_is_priced(const dl_prices *prices);

/* The bill of one run, kept up to date. */
typedef struct dl_store_meter dl_store_meter;

/* dl_store_meter_create returns DILOCO_ENOMEM only: the store at `url` is opened by the first read.
 * The caller destroys *out. */
DL_MUST_CHECK diloco_status dl_store_meter_create(dl_store_meter **out, const char *url,
                                                  const dl_prices *prices);
void dl_store_meter_destroy(dl_store_meter *meter); /* NULL is fine */

/* dl_store_meter_read reads the records that are new. A store without a run is no error.
 * Returns errors of the store, and the bill is then that of the reads before. */
DL_MUST_CHECK diloco_status dl_store_meter_read(dl_store_meter *meter);

/* dl_store_meter_bill makes the bill of what was read, for the machine time and the processes of
 * the book. */
void dl_store_meter_bill(dl_store_bill *out, const dl_store_meter *meter, const dl_book *book);

/* dl_store_bill_text writes "1.2 MB and 40 requests of exchanges recorded so far, 1.20 EUR; other
 * requests and bytes: about 0.02 EUR (estimate)". Returns out. */
enum { DL_STORE_BILL_TEXT = 256 };
const char *dl_store_bill_text(char out[DL_STORE_BILL_TEXT], const dl_store_bill *bill,
                               const dl_prices *prices);

/* dl_store_unpriced_text writes which prices of the store the table at `path` lacks, as
 * "prices.toml has no egress_per_gb: the cost of the store is counted without it". Writes "" if it
 * lacks none, and for a folder, which has no provider. Returns out. */
enum { DL_STORE_UNPRICED = 400 };
const char *dl_store_unpriced_text(char out[DL_STORE_UNPRICED], const dl_prices *prices,
                                   const char *path, const char *url);

#endif
