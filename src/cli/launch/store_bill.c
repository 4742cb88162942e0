/* store_bill.c - see store_bill.h. */
#include "cli/launch/store_bill.h"

#include "base/text.h"
#include "cli/display/log_traffic.h"
#include "cli/display/units.h"
#include "cli/plan/plan_pages.h"
#include <diloco/inspect.h>
#include <diloco/train.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a parameter in the first model. */
#define MODEL_BYTES 4.0

/* ---- the bill */

/* Snapshots and heartbeats that belong to these exchanges and this time, then the uploads of the
 * records, then the first models. */
static dl_billed rest_of(const dl_store_use *use)
{
    dl_billed rest = use->records;
    const dl_plan_task task = {.parameters = use->parameters,
                               .replicas = (uint32_t)use->replicas,
                               .heartbeat_s = use->heartbeat_s,
                               .snapshot_s = use->snapshot_s};
    dl_forecast f = {.wall_s = use->replicas > 0 ? use->machine_s / use->replicas : 0,
                     .bytes_written = use->exchanges.written};
    /* A store without a run has no size of a model. */
    if (!(use->parameters > 0)) return rest;
    dl_plan_add_background(&f, &task);
    rest.written += f.bytes_written - use->exchanges.written;
    rest.writes += f.n_put;
    rest.read += use->processes * MODEL_BYTES * use->parameters;
    rest.reads += use->processes;
    return rest;
}

void dl_store_bill_of(dl_store_bill *out, const dl_store_use *use, const dl_prices *prices)
{
    const dl_billed rest = rest_of(use);
    *out = (dl_store_bill){.exchanges = use->exchanges,
                           .recorded = dl_traffic_cost(&use->exchanges, prices),
                           .estimated = dl_traffic_cost(&rest, prices)};
}

bool dl_store_is_priced(const dl_prices *p)
{
    return p->egress_per_gb > 0 || p->ingress_per_gb > 0 || p->put_per_1000 > 0 ||
           p->get_per_1000 > 0;
}

/* ---- the meter */

struct dl_store_meter {
    dl_config_path url;
    dl_prices prices;
    dl_billed_run *run; /* owned; NULL: not open yet */
    bool has_facts;     /* the next four are those of the run */
    double parameters, heartbeat_s, snapshot_s, replicas;
};

diloco_status dl_store_meter_create(dl_store_meter **out, const char *url, const dl_prices *prices)
{
    dl_store_meter *m = *out = calloc(1, sizeof *m);
    if (!m) return dl_fail(DILOCO_ENOMEM, "out of memory for the cost of the store");
    snprintf(m->url, sizeof m->url, "%s", url);
    m->prices = *prices;
    return DILOCO_OK;
}

void dl_store_meter_destroy(dl_store_meter *m)
{
    if (!m) return;
    dl_billed_close(m->run);
    free(m);
}

/* The run's own configuration, as that of this machine may differ. */
static diloco_status read_config(dl_store_meter *m)
{
    dl_config *config = calloc(1, sizeof *config);
    if (!config) return dl_fail(DILOCO_ENOMEM, "out of memory for the cost of the store");
    dl_config_init(config);
    diloco_status status = dl_config_set(config, "run.store", m->url, "given");
    if (!status) status = diloco_run_config(config, m->url);
    m->heartbeat_s = config->heartbeat_s;
    m->snapshot_s = config->snapshot_s;
    m->replicas = (double)config->replicas;
    free(config);
    return status;
}

static diloco_status read_facts(dl_store_meter *m)
{
    diloco_run_status run;
    DL_TRY(diloco_run_status_read(&run, m->url, 0));
    m->parameters = (double)run.parameters;
    diloco_run_status_free(&run);
    DL_TRY(read_config(m));
    m->has_facts = true;
    return DILOCO_OK;
}

static diloco_status read_all(dl_store_meter *m)
{
    if (!m->has_facts) DL_TRY(read_facts(m));
    if (!m->run) DL_TRY(dl_billed_open(&m->run, m->url));
    return dl_billed_read(m->run);
}

diloco_status dl_store_meter_read(dl_store_meter *m)
{
    const diloco_status status = read_all(m);
    return status == DILOCO_ENOENT ? DILOCO_OK : status;
}

/* Each generation of a rank was one process, as far as the book knows. */
static double processes_of(const dl_book *book)
{
    double n = 0;
    for (size_t i = 0; i < DL_JOBS_MAX; i++)
        if (book->ranks[i].started) n += book->ranks[i].job.generation + 1.0;
    return n;
}

void dl_store_meter_bill(dl_store_bill *out, const dl_store_meter *m, const dl_book *book)
{
    dl_store_use use = {.parameters = m->has_facts ? m->parameters : 0,
                        .heartbeat_s = m->heartbeat_s,
                        .snapshot_s = m->snapshot_s,
                        .machine_s = dl_book_machine_seconds(book),
                        .replicas = m->replicas,
                        .processes = processes_of(book)};
    if (m->run) dl_billed_sums(&use.exchanges, &use.records, m->run);
    dl_store_bill_of(out, &use, &m->prices);
}

/* ---- output */

const char *dl_store_bill_text(char out[DL_STORE_BILL_TEXT], const dl_store_bill *b,
                               const dl_prices *prices)
{
    dl_unit_text bytes;
    snprintf(out, DL_STORE_BILL_TEXT,
             "%s and %.0f requests of exchanges recorded so far, %.2f %s; other requests and "
             "bytes: about %.2f %s (estimate)",
             dl_bytes_text(bytes, b->exchanges.written + b->exchanges.read),
             b->exchanges.writes + b->exchanges.reads, b->recorded, prices->currency, b->estimated,
             prices->currency);
    return out;
}

static bool is_folder(const char *url)
{
    return !strstr(url, "://") || strncmp(url, "file://", 7) == 0;
}

const char *dl_store_unpriced_text(char out[DL_STORE_UNPRICED], const dl_prices *prices,
                                   const char *path, const char *url)
{
    char names[DL_PLAN_MISSING];
    out[0] = '\0';
    if (is_folder(url) || !*dl_plan_missing_prices(names, prices, true)) return out;
    const char *end = strchr(names, ',') ? "counted without them" : "counted without it";
    snprintf(out, DL_STORE_UNPRICED, "%.200s has no %s: the cost of the store is %s", path, names,
             dl_store_is_priced(prices) ? end : "not counted");
    return out;
}
