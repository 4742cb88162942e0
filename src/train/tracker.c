/* tracker.c - see tracker.h. The format of event files is TensorFlow's (core/lib/io/record_writer,
 * event.proto, summary.proto); only what is written here of it is known. Fields of a protocol
 * buffer:
 *
 *     Event    1 wall_time double   2 step int64   3 file_version string   5 summary Summary
 *     Summary  1 value, repeated    Value  1 tag string   2 simple_value float   5 histo
 *     histo    1 min  2 max  3 num  4 sum  5 sum_squares  double; 6 bucket_limit  7 bucket, packed
 */
#include "train/tracker.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    OUT_MAX = 1 << 20,
    OUT_ENOUGH = 64 << 10,
    EVENT_MAX = 1 << 16,
    NORMS_MAX = 4096,
    BUCKETS = 30
};
#define FLUSH_S 5.0

/* ---- checksums */

uint32_t dl_tracker_crc(const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < len; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- protocol buffers: `ok` is false after a failure */

typedef struct writer {
    dl_buf *out;
    bool ok;
} writer;

static void put(writer *w, const void *bytes, size_t len)
{
    if (w->ok) w->ok = dl_buf_add(w->out, bytes, len) == DILOCO_OK;
}

static void put_little(writer *w, uint64_t value, int bytes)
{
    unsigned char text[8];
    for (int i = 0; i < bytes; i++)
        text[i] = (unsigned char)(value >> 8 * i);
    put(w, text, (size_t)bytes);
}

static void put_varint(writer *w, uint64_t value)
{
    do {
        const unsigned char byte = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put(w, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_double(writer *w, unsigned field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_varint(w, field << 3 | 1);
    put_little(w, bits, 8);
}

static void put_bytes(writer *w, unsigned field, const void *bytes, size_t len)
{
    put_varint(w, field << 3 | 2);
    put_varint(w, len);
    put(w, bytes, len);
}

static void put_doubles(writer *w, unsigned field, const double *values, size_t n)
{
    put_varint(w, field << 3 | 2);
    put_varint(w, 8 * n);
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        put_little(w, bits, 8);
    }
}

/* ---- files */

static void give_up(dl_tracker *t, const char *why)
{
    if (!t->told) dl_log(DILOCO_LOG_WARN, "run.track: cannot write: %s; training goes on", why);
    t->told = true;
    dl_buf_clear(&t->out);
}

static void flush(dl_tracker *t)
{
    if (t->out.len && !t->told &&
        dl_fd_write(t->fd, &(dl_span){t->out.data, t->out.len}, 1, "run.track"))
        give_up(t, diloco_error_text());
    dl_buf_clear(&t->out);
    t->flushed = dl_clock_wall();
}

static void add_record(dl_tracker *t)
{
    writer w = {&t->out, true};
    unsigned char len[8];
    for (int i = 0; i < 8; i++)
        len[i] = (unsigned char)((uint64_t)t->event.len >> 8 * i);
    if (t->out.len + t->event.len + 16 > OUT_ENOUGH) flush(t);
    put(&w, len, 8);
    put_little(&w, dl_tracker_crc(len, 8), 4);
    put(&w, t->event.data, t->event.len);
    put_little(&w, dl_tracker_crc(t->event.data, t->event.len), 4);
    if (!w.ok) give_up(t, "no memory");
}

/* An event of one value: `inner` is the field of Value behind its tag. */
static void add_event(dl_tracker *t, const char *tag, uint64_t step, const void *inner, size_t len)
{
    writer v = {&t->value, true}, s = {&t->summary, true}, e = {&t->event, true};
    dl_buf_clear(&t->value);
    dl_buf_clear(&t->summary);
    put_bytes(&v, 1, tag, strlen(tag));
    put(&v, inner, len);
    put_bytes(&s, 1, t->value.data, t->value.len);
    dl_buf_clear(&t->event);
    put_double(&e, 1, dl_clock_wall());
    put_varint(&e, 2 << 3);
    put_varint(&e, step);
    put_bytes(&e, 5, t->summary.data, t->summary.len);
    if (v.ok && s.ok && e.ok)
        add_record(t);
    else
        give_up(t, "no memory");
}

static void add_csv(dl_tracker *t, const char *tag, uint64_t step, double value)
{
    char line[256];
    const int len = snprintf(line, sizeof line, "%.3f,%s,%s,%llu,%.9g\n", dl_clock_wall(),
                             t->replica, tag, (unsigned long long)step, value);
    if (t->out.len + sizeof line > OUT_ENOUGH) flush(t);
    if (dl_buf_add(&t->out, line, (size_t)len)) give_up(t, "no memory");
}

static void add_scalar(dl_tracker *t, const char *tag, uint64_t step, double value)
{
    unsigned char inner[5] = {2 << 3 | 5};
    const float number = (float)value;
    uint32_t bits;
    if (!isfinite(value)) return;
    if (t->csv) {
        add_csv(t, tag, step, value);
        return;
    }
    memcpy(&bits, &number, sizeof bits);
    for (int i = 0; i < 4; i++)
        inner[1 + i] = (unsigned char)(bits >> 8 * i);
    add_event(t, tag, step, inner, sizeof inner);
}

/* Equal buckets from the smallest to the largest. */
static void add_histogram(dl_tracker *t, const char *tag, uint64_t step, const double *x, size_t n)
{
    double low = INFINITY, high = -INFINITY, sum = 0, squares = 0;
    double limits[BUCKETS], counts[BUCKETS] = {0};
    for (size_t i = 0; i < n; i++) {
        low = fmin(low, x[i]), high = fmax(high, x[i]);
        sum += x[i], squares += x[i] * x[i];
    }
    const double width = fmax((high - low) / BUCKETS, 1e-12);
    for (int b = 0; b < BUCKETS; b++)
        limits[b] = b + 1 == BUCKETS ? high : low + width * (b + 1);
    for (size_t i = 0; i < n; i++)
        counts[(int)fmin((x[i] - low) / width, BUCKETS - 1)]++;
    writer h = {&t->histogram, true}, in = {&t->inner, true};
    dl_buf_clear(&t->histogram);
    dl_buf_clear(&t->inner);
    put_double(&h, 1, low);
    put_double(&h, 2, high);
    put_double(&h, 3, (double)n);
    put_double(&h, 4, sum);
    put_double(&h, 5, squares);
    put_doubles(&h, 6, limits, BUCKETS);
    put_doubles(&h, 7, counts, BUCKETS);
    put_bytes(&in, 5, t->histogram.data, t->histogram.len);
    if (h.ok && in.ok) add_event(t, tag, step, t->inner.data, t->inner.len);
}

/* ---- lines of the record */

static double number(dl_json_value event, const char *key)
{
    double value;
    return dl_json_as_f64(&value, dl_json_get(event, key)) ? NAN : value;
}

static void take(dl_tracker *t, dl_json_value event, const char *key, const char *tag,
                 uint64_t step)
{
    add_scalar(t, tag, step, number(event, key));
}

static void take_step(dl_tracker *t, dl_json_value event)
{
    uint64_t step;
    if (dl_json_read_u64(&step, event, "step", INT64_MAX)) return;
    take(t, event, "loss", "loss/step", step);
    take(t, event, "lr", "inner/learning_rate", step);
    take(t, event, "grad_norm", "inner/gradient_norm", step);
    take(t, event, "tokens_per_s", "speed/tokens_per_s", step);
}

static void take_norms(dl_tracker *t, dl_json_value event, uint64_t entry)
{
    double *norms = t->norms;
    size_t n = 0;
    dl_json_iter it = dl_json_each(dl_json_get(event, "norms"));
    while (norms && dl_json_next(&it) && n < NORMS_MAX)
        if (!dl_json_as_f64(&norms[n], it.value) && isfinite(norms[n])) n++;
    if (n) add_histogram(t, "entry/member_norms", entry, norms, n);
}

static void take_commit(dl_tracker *t, dl_json_value event)
{
    uint64_t entry;
    if (dl_json_read_u64(&entry, event, "entry", INT64_MAX)) return;
    take(t, event, "inner_loss", "loss/entry", entry);
    take(t, event, "aggregated_grad_norm", "entry/update_norm", entry);
    take(t, event, "peer_grad_similarity", "entry/similarity", entry);
    take(t, event, "weight_divergence", "entry/weight_divergence", entry);
    take(t, event, "outer_lr", "entry/outer_learning_rate", entry);
    take(t, event, "bytes_sent", "traffic/bytes_sent", entry);
    take(t, event, "bytes_received", "traffic/bytes_received", entry);
    take(t, event, "wait_s", "time/wait_s", entry);
    take(t, event, "exchange_s", "time/exchange_s", entry);
    add_scalar(t, "entry/members", entry, (double)dl_json_count(dl_json_get(event, "members")));
    take_norms(t, event, entry);
}

static void take_eval(dl_tracker *t, dl_json_value event)
{
    uint64_t step;
    if (dl_json_read_u64(&step, event, "step", INT64_MAX)) return;
    take(t, event, "loss", "loss/validation", step);
    take(t, event, "loss_after_sync", "loss/validation_after_sync", step);
    take(t, event, "perplexity", "validation/perplexity", step);
    take(t, event, "accuracy", "validation/accuracy", step);
}

void dl_tracker_line(dl_tracker *t, const char *line, size_t len)
{
    dl_json_value event;
    if (t->fd < 0 || t->told || dl_json_parse(&event, line, len)) return;
    const dl_json_value kind = dl_json_get(event, "event");
    if (dl_json_is(kind, "step")) take_step(t, event);
    if (dl_json_is(kind, "commit")) take_commit(t, event);
    if (dl_json_is(kind, "eval")) take_eval(t, event);
    if (dl_clock_wall() - t->flushed >= FLUSH_S) flush(t);
}

/* ---- opening */

static const char *after(const char *where, const char *kind)
{
    const size_t len = strlen(kind);
    return !strncmp(where, kind, len) && where[len] ? where + len : NULL;
}

static diloco_status open_events(dl_tracker *t, const char *dir)
{
    static atomic_uint n;
    char path[5000], folder[4600], host[65] = "host";
    snprintf(folder, sizeof folder, "%s/%s", dir, t->replica);
    DL_TRY(dl_dir_make(folder));
    (void)!gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '_';
    snprintf(path, sizeof path, "%s/events.out.tfevents.%lld.%s.%ld.%u", folder,
             (long long)dl_clock_wall(), host, (long)getpid(), atomic_fetch_add(&n, 1u));
    t->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (t->fd < 0) return dl_fail_errno(errno, "create", path);
    t->norms = malloc(NORMS_MAX * sizeof *t->norms);
    if (!t->norms) return dl_fail(DILOCO_ENOMEM, "no memory for run.track");
    writer e = {&t->event, true};
    put_double(&e, 1, dl_clock_wall());
    put_bytes(&e, 3, "brain.Event:2", 13);
    add_record(t);
    flush(t);
    return DILOCO_OK;
}

static diloco_status open_csv(dl_tracker *t, const char *path)
{
    static const char head[] = "seconds,replica,tag,step,value\n";
    struct stat st;
    t->csv = true;
    t->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (t->fd < 0) return dl_fail_errno(errno, "open", path);
    /* Of several replicas that begin at once, two may write it: it is a comment to any process that
     * reads.
     */
    if (!fstat(t->fd, &st) && st.st_size == 0 && !strcmp(t->replica, "r0"))
        return dl_buf_add(&t->out, head, sizeof head - 1);
    return DILOCO_OK;
}

diloco_status dl_tracker_open(dl_tracker *t, const char *where, const char *replica)
{
    *t = (dl_tracker){.fd = -1, .flushed = dl_clock_wall()};
    snprintf(t->replica, sizeof t->replica, "%s", replica);
    dl_buf_init(&t->out, OUT_MAX);
    dl_buf_init(&t->event, EVENT_MAX);
    dl_buf_init(&t->summary, EVENT_MAX);
    dl_buf_init(&t->value, EVENT_MAX);
    dl_buf_init(&t->inner, EVENT_MAX);
    dl_buf_init(&t->histogram, EVENT_MAX);
    if (!*where) return DILOCO_OK;
    const char *dir = after(where, "tensorboard:"), *csv = after(where, "csv:");
    if (!dir && !csv)
        return dl_fail(DILOCO_EINVAL, "run.track: \"%.200s\" names no tracker", where);
    return dir ? open_events(t, dir) : open_csv(t, csv);
}

void dl_tracker_close(dl_tracker *t)
{
    if (t->fd >= 0) {
        flush(t);
        close(t->fd);
    }
    dl_buf_deinit(&t->out);
    dl_buf_deinit(&t->event);
    dl_buf_deinit(&t->summary);
    dl_buf_deinit(&t->value);
    dl_buf_deinit(&t->inner);
    dl_buf_deinit(&t->histogram);
    free(t->norms);
    t->norms = NULL;
    t->fd = -1;
}
