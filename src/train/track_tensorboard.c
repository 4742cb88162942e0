/* track_tensorboard.c - run.track = "tensorboard:DIR": an event file of TensorBoard for each
 * process of a replica. The format is TensorFlow's (core/lib/io/record_writer, event.proto,
 * summary.proto), of which this file knows only what it writes. Fields of a protocol buffer:
 *
 *     Event    1 wall_time double   2 step int64   3 file_version string   5 summary Summary
 *     Summary  1 value, repeated    Value  1 tag string   2 simple_value float   5 histo
 *              9 metadata           metadata  1 plugin: 1 name string, 2 content HParamsPluginData
 *     HParamsPluginData  3 session_start_info: 1 hparams, a map of string to Value; 5 start double
 *                        (Value here is google.protobuf.Value: 2 number, 3 string, 4 bool)
 *     histo    1 min  2 max  3 num  4 sum  5 sum_squares  double; 6 bucket_limit  7 bucket, packed
 */
#include "train/tracker_kinds.h"

#include "base/clock.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUCKETS = 30 }; /* TensorBoard's DEFAULT_BUCKET_COUNT */

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

/* Appends to a message. A failure is looked for once, after the last field. */
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

/* A varint: seven bits a byte, the lowest first; the top bit says that another byte follows. A
 * field begins with number << 3 | wire type: 0 varint, 1 eight bytes, 2 a length and bytes, 5 four
 * bytes. */
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

/* ---- events */

/* Adds t->event as a record of the file. */
static void add_record(dl_tracker *t)
{
    writer w = {&t->out, true};
    unsigned char len[8];
    for (int i = 0; i < 8; i++)
        len[i] = (unsigned char)((uint64_t)t->event.len >> 8 * i);
    dl_tracker_make_room(t, t->event.len + 16);
    put(&w, len, 8);
    put_little(&w, dl_tracker_crc(len, 8), 4);
    put(&w, t->event.data, t->event.len);
    put_little(&w, dl_tracker_crc(t->event.data, t->event.len), 4);
    if (!w.ok) dl_tracker_give_up(t, "no memory");
}

/* Adds an event of one value: `inner` is the field of Value after its tag. */
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
        dl_tracker_give_up(t, "no memory");
}

static void add_number(dl_tracker *t, const char *tag, uint64_t step, double value)
{
    unsigned char inner[5] = {2 << 3 | 5};
    const float number = (float)value;
    uint32_t bits;
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

/* ---- settings */

/* Append a google.protobuf.Value: a number or a boolean where the text is one, else a string. */
static void put_setting_value(writer *w, const char *text)
{
    char *end;
    const double number = strtod(text, &end);
    const bool yes = !strcmp(text, "true");
    if (*text && !*end && isfinite(number)) {
        put_double(w, 2, number);
    } else if (yes || !strcmp(text, "false")) {
        put_varint(w, 4 << 3);
        put_varint(w, yes);
    } else {
        put_bytes(w, 3, text, strlen(text));
    }
}

/* Append an item of the map: its name and its value. `value` and `item` are room. */
static bool put_setting(writer *info, dl_buf *item, dl_buf *value, const dl_option *row,
                        const dl_config *config)
{
    dl_buf text;
    writer i = {item, true}, v = {value, true};
    dl_buf_init(&text, 1 << 14);
    dl_buf_clear(item);
    dl_buf_clear(value);
    bool ok = !dl_option_text(&text, row, config);
    if (ok) put_setting_value(&v, dl_buf_str(&text));
    put_bytes(&i, 1, row->name, strlen(row->name));
    put_bytes(&i, 2, value->data, value->len);
    put_bytes(info, 1, item->data, item->len);
    ok = ok && v.ok && i.ok && info->ok;
    dl_buf_deinit(&text);
    return ok;
}

/* Adds the settings as TensorBoard's plugin hparams reads them. Messages are built from the inside,
 * so the tracker's buffers are used for several of them in turn. */
static void add_settings(dl_tracker *t, const dl_config *config)
{
    static const char plugin[] = "hparams", tag[] = "_hparams_/session_start_info";
    writer info = {&t->inner, true}, data = {&t->histogram, true}, out = {&t->summary, true};
    bool ok = true;
    dl_buf_clear(&t->inner);
    for (size_t i = 0; i < dl_config_table.n && ok; i++)
        if (dl_tracker_has_setting(&dl_config_table.rows[i], config))
            ok = put_setting(&info, &t->event, &t->value, &dl_config_table.rows[i], config);
    put_double(&info, 5, dl_clock_wall());
    dl_buf_clear(&t->histogram);
    put_bytes(&data, 3, t->inner.data, t->inner.len);
    dl_buf_clear(&t->summary);
    put_bytes(&out, 1, plugin, sizeof plugin - 1);
    put_bytes(&out, 2, t->histogram.data, t->histogram.len);
    dl_buf_clear(&t->inner); /* now the plugin's data, as a field of the metadata */
    put_bytes(&info, 1, t->summary.data, t->summary.len);
    dl_buf_clear(&t->histogram);
    put_bytes(&data, 9, t->inner.data, t->inner.len);
    if (ok && info.ok && data.ok && out.ok)
        add_event(t, tag, 0, t->histogram.data, t->histogram.len);
    else
        dl_tracker_give_up(t, "no memory");
}

/* Opens a new file for each process, since an event file has one writer. TensorBoard joins the
 * files of a folder. */
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
    writer e = {&t->event, true};
    put_double(&e, 1, dl_clock_wall());
    put_bytes(&e, 3, "brain.Event:2", 13);
    add_record(t);
    dl_tracker_flush(t);
    return DILOCO_OK;
}

const dl_tracker_kind dl_tracker_tensorboard = {
    .name = "tensorboard",
    .open = open_events,
    .number = add_number,
    .histogram = add_histogram,
    .settings = add_settings,
};
