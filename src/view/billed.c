/* billed.c - see billed.h. A process numbers the parts of its record, so their names ascend. The
 * last name of each process that was read is remembered, and a listing skips to it. */
#include "view/billed.h"

#include "base/log.h"
#include "log/layout.h"
#include "log/zstd_text.h"
#include "store/store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of one part, packed and unpacked, bytes of all new names, and processes with a record. The
 * store is untrusted, so all of them are bounded. */
enum { PART_MAX = 64 << 20, NAMES_MAX = 64 << 20, PROCESSES_MAX = 65536 };

/* For one request to the store. */
#define PATIENCE (60 * DL_SECOND)

/* The name of the last part that was read of one process. */
typedef struct process {
    dl_key last;
} process;

struct dl_billed_run {
    dl_store *store;    /* owned */
    process *processes; /* owned, [n], by name */
    size_t n, cap;
    dl_billed exchanges, records;
    dl_buf names, frame, part; /* kept between reads */
};

static dl_time soon(void)
{
    return dl_time_after(dl_clock_now(), PATIENCE);
}

/* ---- one line */

static double number(dl_json_value event, const char *key)
{
    double value = 0;
    const bool is = !dl_json_as_f64(&value, dl_json_get(event, key));
    return is && isfinite(value) && value > 0 ? value : 0;
}

void dl_billed_add(dl_billed *sum, dl_json_value commit)
{
    sum->written += number(commit, "bytes_sent");
    sum->read += number(commit, "bytes_received");
    sum->writes += number(commit, "requests_write");
    sum->reads += number(commit, "requests_read");
}

/* ---- the store */

diloco_status dl_billed_open(dl_billed_run **out, const char *url)
{
    dl_billed_run *run = *out = calloc(1, sizeof *run);
    if (!run) return dl_fail(DILOCO_ENOMEM, "out of memory for the traffic of %s", url);
    dl_buf_init(&run->names, NAMES_MAX);
    dl_buf_init(&run->frame, PART_MAX);
    dl_buf_init(&run->part, PART_MAX);
    const diloco_status status = dl_store_open(&run->store, url, false);
    if (!status) return DILOCO_OK;
    dl_billed_close(run);
    *out = NULL;
    return status;
}

void dl_billed_close(dl_billed_run *run)
{
    if (!run) return;
    dl_store_close(run->store);
    dl_buf_deinit(&run->names);
    dl_buf_deinit(&run->frame);
    dl_buf_deinit(&run->part);
    free(run->processes);
    free(run);
}

void dl_billed_sums(dl_billed *exchanges, dl_billed *records, const dl_billed_run *run)
{
    *exchanges = run->exchanges;
    *records = run->records;
}

/* ---- the names of new parts */

/* Compare two names of parts by their process alone: "rec/r0.0000/". */
static int compare_process(const char *a, const char *b)
{
    const size_t n = (size_t)(strrchr(a, '/') - a) + 1, m = (size_t)(strrchr(b, '/') - b) + 1;
    const int order = memcmp(a, b, n < m ? n : m);
    return order ? order : (n > m) - (n < m);
}

/* A walk over the names of all parts. Both names and processes ascend, so they are merged. */
typedef struct walk {
    dl_billed_run *run;
    size_t at;    /* the first process that is not before the name */
    dl_key after; /* where the walk continues; "": not yet */
    bool skips;   /* it was stopped, to continue at `after` */
} walk;

/* Keep the name of a new part. A name that was read ends this listing, and the next one begins
 * after the last name of its process. */
static diloco_status found(void *context, const char *name, size_t len)
{
    walk *w = context;
    dl_billed_run *run = w->run;
    dl_generation generation;
    uint64_t part;
    (void)len;
    if (!dl_key_parse_record(&generation, &part, name)) return DILOCO_OK;
    while (w->at < run->n && compare_process(run->processes[w->at].last, name) < 0)
        w->at++;
    const char *last = w->at < run->n ? run->processes[w->at].last : "";
    if (!*last || compare_process(last, name) != 0 || strcmp(name, last) > 0)
        return dl_buf_add(&run->names, name, strlen(name) + 1);
    /* A listing that ignores where it is to begin must not be repeated for ever. */
    if (strcmp(last, w->after) <= 0) return DILOCO_OK;
    snprintf(w->after, sizeof w->after, "%s", last);
    w->skips = true;
    return DILOCO_ECLOSED;
}

static diloco_status list(dl_billed_run *run)
{
    walk w = {.run = run};
    dl_buf_clear(&run->names);
    do {
        w.skips = false;
        const diloco_status status =
            dl_store_list(run->store, "rec/", *w.after ? w.after : NULL, found, &w, soon());
        if (status && !w.skips) return status;
    } while (w.skips);
    return DILOCO_OK;
}

/* ---- their lines */

static void take_line(dl_billed_run *run, const char *line, size_t len)
{
    dl_json_value event;
    if (dl_json_parse(&event, line, len)) return;
    if (dl_json_is(dl_json_get(event, "event"), "commit")) dl_billed_add(&run->exchanges, event);
}

/* The last line may lack its newline. */
static void take_lines(dl_billed_run *run)
{
    const char *at = (const char *)run->part.data, *end = at + run->part.len;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        take_line(run, at, (size_t)(stop - at));
        at = newline ? newline + 1 : end;
    }
}

/* Remember that the part was read. *at is the place of its process, or the one to insert it. */
static diloco_status remember(dl_billed_run *run, size_t *at, const char *name)
{
    while (*at < run->n && compare_process(run->processes[*at].last, name) < 0)
        ++*at;
    if (*at == run->n || compare_process(run->processes[*at].last, name) != 0) {
        if (run->n == PROCESSES_MAX)
            return dl_fail(DILOCO_EPROTO, "the run has records of more than %d processes",
                           PROCESSES_MAX);
        if (run->n == run->cap) {
            const size_t cap = run->cap ? 2 * run->cap : 16;
            process *more = realloc(run->processes, cap * sizeof *more);
            if (!more) return dl_fail(DILOCO_ENOMEM, "out of memory for the records of a run");
            run->processes = more;
            run->cap = cap;
        }
        memmove(run->processes + *at + 1, run->processes + *at,
                (run->n - *at) * sizeof *run->processes);
        run->n++;
    }
    snprintf(run->processes[*at].last, sizeof run->processes[*at].last, "%s", name);
    return DILOCO_OK;
}

/* A part is remembered before its lines are added, so that none counts twice. */
static diloco_status read_part(dl_billed_run *run, size_t *at, const char *name)
{
    dl_buf_clear(&run->frame);
    dl_buf_clear(&run->part);
    diloco_status status = dl_store_get(run->store, &run->frame, name, soon());
    if (!status) status = dl_unzip(&run->part, run->frame.data, run->frame.len);
    if (status && status != DILOCO_EPROTO) return status;
    if (status) dl_log(DILOCO_LOG_WARN, "%s: %s", name, diloco_error_text());
    DL_TRY(remember(run, at, name));
    if (status) return DILOCO_OK;
    run->records.writes++;
    run->records.written += (double)run->frame.len;
    take_lines(run);
    return DILOCO_OK;
}

diloco_status dl_billed_read(dl_billed_run *run)
{
    DL_TRY(list(run));
    const char *names = (const char *)run->names.data; /* NULL if it is empty */
    size_t at = 0;
    for (size_t i = 0; i < run->names.len; i += strlen(names + i) + 1)
        DL_TRY(read_part(run, &at, names + i));
    return DILOCO_OK;
}
