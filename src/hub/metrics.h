/* metrics.h - counters of a hub's work since it started. Any thread. */
#ifndef DL_HUB_METRICS_H
#define DL_HUB_METRICS_H

#include "base/buf.h"
#include <stdatomic.h>

/* The kinds of requests, as the label `kind` says them. */
typedef enum dl_kind {
    DL_KIND_OTHER, /* refused before it was known what it is */
    DL_KIND_GET,
    DL_KIND_HEAD,
    DL_KIND_CREATE, /* PUT that must not replace */
    DL_KIND_PUT,
    DL_KIND_DELETE,
    DL_KIND_LIST,
    DL_KIND_MULTIPART,
    DL_KIND_BUCKET,
    DL_KIND_EVENTS,
    DL_KIND_STATUS,
    DL_KIND_METRICS,
    DL_KIND_HEALTH,
    DL_KIND_PAGE,
    DL_N_KINDS
} dl_kind;

/* Columns of `requests`: codes[] in metrics.c. */
enum { DL_N_CODES = 24 };

/* Counters are atomic and only rise, `connections` and `held` apart. So a scrape takes no lock and
 * never holds up a request. */
typedef struct dl_metrics {
    atomic_uint_least64_t requests[DL_N_KINDS][DL_N_CODES]; /* by kind and by place in codes[] */
    atomic_uint_least64_t bytes_in, bytes_out;              /* bodies */
    atomic_uint_least64_t cut; /* requests whose connection ended first */
    atomic_uint connections;
    atomic_uint held; /* reads that wait for their object */
} dl_metrics;

void dl_metrics_count(dl_metrics *metrics, dl_kind kind, unsigned status);

/* The counters in the text format of Prometheus 0.0.4. */
DL_MUST_CHECK diloco_status dl_metrics_write(dl_buf *out, dl_metrics *metrics, size_t n_streams);

#endif
