/* log_traffic.c - the "commit" lines of all replicas' records, added up by entry.
 *
 * A replica's line has what it moved since the line before: bytes over the wire, requests as a
 * provider bills them (docs/architecture.md section 9). A sum is over the records that have reached
 * the store. A replica that was started again may have two lines of an entry, and has then moved it
 * twice. Traffic without an entry (the probe, the first model, heartbeats, records, snapshots) is
 * in the "traffic" lines, which a process writes when it ends; they are summed by kind. */
#include "cli/display/log_traffic.h"

#include "cli/display/kinds.h"
#include "cli/display/units.h"
#include <diloco/inspect.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Sums of one entry, over the records of all replicas. */
typedef struct sum {
    uint64_t entry, records; /* records: lines that were added */
    dl_billed moved;
    double seconds; /* the longest that a replica was at it, waiting for others left out */
} sum;

/* All entries that were asked for, and the traffic of the whole run by kind. */
typedef struct sums {
    dl_buf all; /* sum[], ascending */
    dl_kinds kinds;
    uint64_t from; /* the first entry that is shown */
} sums;

/* Find the sum of an entry, or make it in its place. Records come replica by replica, each in
 * order, so it is usually the next, or the last. */
static diloco_status find(sum **out, sums *s, uint64_t entry)
{
    const size_t n = s->all.len / sizeof(sum);
    sum *at = (sum *)(void *)s->all.data;
    /* A binary search: the sums are in ascending order. */
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (at[middle].entry < entry)
            low = middle + 1;
        else
            high = middle;
    }
    /* A new entry: make room in its place. The buffer may move. */
    if (low == n || at[low].entry != entry) {
        const sum none = {.entry = entry};
        DL_TRY(dl_buf_add(&s->all, &none, sizeof none));
        at = (sum *)(void *)s->all.data;
        memmove(at + low + 1, at + low, (n - low) * sizeof *at);
        at[low] = none;
    }
    *out = at + low;
    return DILOCO_OK;
}

/* Add a line of a record. A damaged line, or one of another kind, is skipped. */
static diloco_status take_line(void *user, const char *line, size_t len)
{
    sums *s = user;
    dl_json_value event;
    uint64_t entry;
    double seconds;
    sum *to;
    if (dl_json_parse(&event, line, len)) return DILOCO_OK;
    if (dl_json_is(dl_json_get(event, "event"), "traffic")) dl_kinds_add(&s->kinds, event);
    if (!dl_json_is(dl_json_get(event, "event"), "commit")) return DILOCO_OK;
    if (dl_json_read_u64(&entry, event, "entry", INT64_MAX) || entry < s->from) return DILOCO_OK;
    DL_TRY(find(&to, s, entry));
    to->records++;
    dl_billed_add(&to->moved, event);
    const bool is = !dl_json_as_f64(&seconds, dl_json_get(event, "exchange_s"));
    if (is && isfinite(seconds)) to->seconds = fmax(to->seconds, seconds);
    return DILOCO_OK;
}

double dl_traffic_cost(const dl_billed *t, const dl_prices *p)
{
    return t->read / 1e9 * p->egress_per_gb + t->written / 1e9 * p->ingress_per_gb +
           t->writes / 1000 * p->put_per_1000 + t->reads / 1000 * p->get_per_1000;
}

/* All bytes over the longest time that a replica was at it. */
static double rate_of(const sum *s)
{
    return s->seconds > 0 ? (s->moved.written + s->moved.read) / s->seconds : 0;
}

/* Print one entry. The rate is over the longest exchange that a replica had, so waiting is not in
 * it. */
static void print_line(const sum *s, const dl_prices *prices)
{
    dl_unit_text written, read, rate;
    printf("%6" PRIu64 " %7" PRIu64 " %10s %10s %8.0f %8.0f %10s/s", s->entry, s->records,
           dl_bytes_text(written, s->moved.written), dl_bytes_text(read, s->moved.read),
           s->moved.writes, s->moved.reads, dl_bytes_text(rate, rate_of(s)));
    if (prices) printf(" %12.6f %s", dl_traffic_cost(&s->moved, prices), prices->currency);
    putchar('\n');
}

/* Print one entry as an object. "cost" is absent without prices. */
static diloco_status print_json(const sum *s, const dl_prices *prices)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, 1 << 12);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    dl_json_u64(&json, "entry", s->entry);
    dl_json_u64(&json, "records", s->records);
    dl_json_f64(&json, "bytes_sent", s->moved.written);
    dl_json_f64(&json, "bytes_received", s->moved.read);
    dl_json_f64(&json, "requests_write", s->moved.writes);
    dl_json_f64(&json, "requests_read", s->moved.reads);
    dl_json_f64(&json, "seconds", s->seconds);
    dl_json_f64(&json, "bytes_per_s", rate_of(s));
    if (prices) dl_json_f64(&json, "cost", dl_traffic_cost(&s->moved, prices));
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* Print the traffic by kind. It is of the whole run, so it is not printed where only some
 * entries are asked for. */
static diloco_status print_kinds(const sums *s, bool json)
{
    char text[DL_KINDS_TEXT];
    dl_unit_text sent, received;
    dl_buf out;
    dl_json j;
    if (s->from || !s->kinds.lines) return DILOCO_OK;
    if (!json) {
        printf("all replicas, %zu process%s that ended: %s sent, %s received: %s\n", s->kinds.lines,
               s->kinds.lines == 1 ? "" : "es",
               dl_bytes_text(sent, (double)dl_kinds_sent(&s->kinds)),
               dl_bytes_text(received, (double)dl_kinds_received(&s->kinds)),
               dl_kinds_text(text, &s->kinds));
        return DILOCO_OK;
    }
    dl_buf_init(&out, 1 << 12);
    dl_json_init(&j, &out);
    dl_json_object(&j, NULL);
    dl_json_object(&j, "traffic");
    dl_json_u64(&j, "processes", s->kinds.lines);
    dl_kinds_json(&j, &s->kinds);
    dl_json_end(&j);
    dl_json_end(&j);
    return dl_print_json(&j, &out);
}

/* A table for people, or one object a line; the kinds come last in both. */
static diloco_status print(const sums *s, const dl_prices *prices, bool json)
{
    const sum *at = (const sum *)(const void *)s->all.data;
    if (!json)
        printf("%6s %7s %10s %10s %8s %8s %12s%s\n", "entry", "records", "written", "read",
               "writes", "reads", "bytes", prices ? "         cost" : "");
    for (size_t i = 0; i < s->all.len / sizeof *at; i++) {
        if (json) DL_TRY(print_json(at + i, prices));
        if (!json) print_line(at + i, prices);
    }
    return print_kinds(s, json);
}

/* The price table is read first: a mistake in it shows before the records are read. */
diloco_status dl_log_traffic(const dl_args *args, const char *store, uint64_t from)
{
    dl_prices prices;
    const bool priced = dl_args_has(args, DL_FLAG_COST);
    sums s = {.from = from};
    if (priced) DL_TRY(dl_plan_prices(&prices, args->flags[DL_FLAG_COST]));
    dl_buf_init(&s.all, (size_t)1 << 30);
    diloco_status status = diloco_record_walk(store, take_line, &s);
    if (!status) status = print(&s, priced ? &prices : NULL, dl_args_has(args, DL_FLAG_JSON));
    dl_buf_deinit(&s.all);
    return status;
}
