/* metrics.c - see metrics.h. Only what was counted is written: a row for each kind and status
 * that occurred. */
#include "hub/metrics.h"

#include <inttypes.h>

static const char *const kinds[DL_N_KINDS] = {
    [DL_KIND_OTHER] = "other",   [DL_KIND_GET] = "get",
    [DL_KIND_HEAD] = "head",     [DL_KIND_CREATE] = "create",
    [DL_KIND_PUT] = "put",       [DL_KIND_DELETE] = "delete",
    [DL_KIND_LIST] = "list",     [DL_KIND_MULTIPART] = "multipart",
    [DL_KIND_BUCKET] = "bucket", [DL_KIND_EVENTS] = "events",
    [DL_KIND_STATUS] = "status", [DL_KIND_METRICS] = "metrics",
    [DL_KIND_HEALTH] = "health", [DL_KIND_PAGE] = "page"};

/* The statuses that the hub replies with; the last one, 0, is for any other. A new status is one
 * more number here and in DL_N_CODES. */
static const unsigned codes[DL_N_CODES] = {200, 201, 204, 206, 304, 400, 401, 403,
                                           404, 405, 408, 409, 411, 412, 413, 414,
                                           416, 421, 500, 501, 503, 507, 0};

void dl_metrics_count(dl_metrics *metrics, dl_kind kind, unsigned status)
{
    size_t i = 0;
    while (codes[i] && codes[i] != status)
        i++;
    atomic_fetch_add(&metrics->requests[kind][i], 1);
}

/* Counters that are 0 are left out, as most pairs of kind and status never occur. */
static diloco_status write_requests(dl_buf *out, dl_metrics *m)
{
    DL_TRY(dl_buf_addf(out, "# HELP diloco_hub_requests_total Requests answered.\n"
                            "# TYPE diloco_hub_requests_total counter\n"));
    for (size_t k = 0; k < DL_N_KINDS; k++)
        for (size_t c = 0; c < DL_N_CODES; c++) {
            uint64_t n = atomic_load(&m->requests[k][c]);
            if (n)
                DL_TRY(dl_buf_addf(
                    out, "diloco_hub_requests_total{kind=\"%s\",code=\"%u\"} %" PRIu64 "\n",
                    kinds[k], codes[c], n));
        }
    return DILOCO_OK;
}

/* Write all counters. A row of `rows` is one metric without labels: its name after
 * "diloco_hub_", its type, its help and its value. */
diloco_status dl_metrics_write(dl_buf *out, dl_metrics *m, size_t n_streams)
{
    const struct {
        const char *name, *type, *help;
        uint64_t value;
    } rows[] = {
        {"received_bytes_total", "counter", "Bytes of request bodies.", atomic_load(&m->bytes_in)},
        {"sent_bytes_total", "counter", "Object bytes in answers that went out whole.",
         atomic_load(&m->bytes_out)},
        {"cut_requests_total", "counter", "Requests whose connection ended first.",
         atomic_load(&m->cut)},
        {"connections", "gauge", "Open connections.", atomic_load(&m->connections)},
        {"event_streams", "gauge", "Connections that follow events.", n_streams},
        {"held_reads", "gauge", "Reads that wait for their object.", atomic_load(&m->held)},
    };
    DL_TRY(write_requests(out, m));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        DL_TRY(dl_buf_addf(out,
                           "# HELP diloco_hub_%s %s\n# TYPE diloco_hub_%s %s\n"
                           "diloco_hub_%s %" PRIu64 "\n",
                           rows[i].name, rows[i].help, rows[i].name, rows[i].type, rows[i].name,
                           rows[i].value));
    return DILOCO_OK;
}
