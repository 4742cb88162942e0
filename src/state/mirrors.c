/* mirrors.c - see mirrors.h. A narrow tensor on a device has a third copy in between, `raw`, with
 * its own width. Copies are queued for a whole fragment, and waited for once. */
#include "state/mirrors.h"

#include "base/size.h"
#include "tensor/isa.h"
#include "tensor/manifest.h"
#include "tensor/widths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct mirror {
    diloco_tensor at; /* the trainer's tensor, as it was registered */
    const diloco_device *device;
    size_t count;
    void *data; /* owned; of the stored type */
    /* owned: copied to and from the device; equal to `data` if the types are equal */
    unsigned char *raw;
} mirror;

/* The first failure is kept until the end, since a copy to a device returns no status to its
 * caller. */
struct dl_mirrors {
    mirror *all;
    size_t n;
    diloco_status failed;
    char text[1024];
    char before[256]; /* the thread's text before the last call of a device */
};

static bool is_narrow(const mirror *m)
{
    return dl_dtype_stored(m->at.dtype) != m->at.dtype;
}

static size_t raw_len(const mirror *m)
{
    return m->count * dl_dtype_size(m->at.dtype);
}

/* ---- memory ----------------------------------------------------------------------------- */

/* A device may provide host memory from which it copies faster, for example pinned memory. */
static void *take(const diloco_device *device, size_t len)
{
    return device && device->alloc ? device->alloc(device->user, len) : calloc(len, 1);
}

static void give_back(const diloco_device *device, void *memory)
{
    if (device && device->alloc && memory)
        device->release(device->user, memory);
    else
        free(memory);
}

/* Allocates the copies of one tensor. A narrow device tensor needs two: `raw` for the device's
 * copy, and `data` for the converted values. After an error `unmake` releases what exists. */
static diloco_status make(mirror *m, const diloco_tensor *tensor, const diloco_device *device,
                          size_t count)
{
    *m = (mirror){.at = *tensor, .device = device, .count = count};
    const bool through = device && is_narrow(m);
    /* NULL: a conversion copies, not the device */
    const diloco_device *where = through ? NULL : device;
    m->data = take(where, count * dl_dtype_size(dl_dtype_stored(tensor->dtype)));
    if (device) m->raw = through ? take(device, raw_len(m)) : m->data;
    if (m->data && (m->raw || !device)) return DILOCO_OK;
    return dl_fail(DILOCO_ENOMEM, "no host memory for tensor %s", tensor->name);
}

static void unmake(mirror *m)
{
    const bool through = m->raw && m->raw != m->data;
    give_back(through ? NULL : m->device, m->data);
    if (through) give_back(m->device, m->raw);
}

void dl_mirrors_destroy(dl_mirrors *m)
{
    if (!m) return;
    for (size_t i = 0; i < m->n; i++)
        unmake(&m->all[i]);
    free(m->all);
    free(m);
}

static diloco_status make_all(dl_mirrors *m, const diloco_tensor *tensors,
                              const diloco_device *const *devices, const dl_manifest *manifest)
{
    for (size_t i = 0; i < manifest->n_tensors; i++) {
        const bool narrow = dl_dtype_stored(tensors[i].dtype) != tensors[i].dtype;
        if (!narrow && !devices[i]) continue;
        DL_TRY(make(&m->all[m->n++], &tensors[i], devices[i], manifest->tensors[i].count));
    }
    return DILOCO_OK;
}

/* The manifest is made only to check the tensors and to count their elements. The tensors' data
 * changes at the end, so that nothing has changed after an error. */
diloco_status dl_mirrors_create(dl_mirrors **out, diloco_tensor *tensors,
                                const diloco_device *const *devices, size_t n)
{
    dl_manifest manifest;
    *out = NULL;
    DL_TRY(dl_manifest_init(&manifest, tensors, n, false));
    dl_mirrors *m = calloc(1, sizeof *m);
    if (m) m->all = calloc(n, sizeof *m->all);
    diloco_status status = m && m->all ? make_all(m, tensors, devices, &manifest)
                                       : dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", n);
    dl_manifest_deinit(&manifest);
    if (status || m->n == 0) {
        dl_mirrors_destroy(m);
        return status;
    }
    for (size_t i = 0, k = 0; i < n && k < m->n; i++)
        if (!strcmp(tensors[i].name, m->all[k].at.name)) tensors[i].data = m->all[k++].data;
    *out = m;
    return DILOCO_OK;
}

/* ---- copying ---------------------------------------------------------------------------- */

static bool concerns(const mirror *one, int fragment)
{
    return fragment == DL_ALL_FRAGMENTS || one->at.fragment == fragment;
}

/* Precedes each call of a device. A device of the program sets the thread's error text, and one of
 * another program does not. */
static void note_text(dl_mirrors *m)
{
    snprintf(m->before, sizeof m->before, "%s", diloco_error_text());
}

/* Keeps the device's own reason, if the call has set one. */
static void fail(dl_mirrors *m, const mirror *one, const char *what, diloco_status status)
{
    const char *reason = diloco_error_text();
    const bool is_new = strncmp(reason, m->before, sizeof m->before - 1) != 0;
    if (m->failed) return;
    m->failed = status;
    snprintf(m->text, sizeof m->text, "the device of tensor %s failed to %s%s%.700s", one->at.name,
             what, is_new ? ": " : "", is_new ? reason : "");
}

/* Waits once for each stream with queued copies; tensors of one device are adjacent. It also waits
 * after a failure, since earlier copies still write. */
static void wait_for_all(dl_mirrors *m, int fragment)
{
    const diloco_device *waited = NULL;
    for (size_t i = 0; i < m->n; i++) {
        const mirror *one = &m->all[i];
        if (!concerns(one, fragment) || !one->device || one->device == waited) continue;
        note_text(m);
        const diloco_status status =
            one->device->synchronise(one->device->user, one->device->stream);
        if (status) fail(m, one, "synchronise", status);
        waited = one->device;
    }
}

void dl_mirrors_settle(dl_mirrors *m, int fragment)
{
    if (m) wait_for_all(m, fragment);
}

diloco_status dl_mirrors_check(const dl_mirrors *m)
{
    return m && m->failed ? dl_fail(m->failed, "%s", m->text) : DILOCO_OK;
}

/* ---- converting --------------------------------------------------------------------------- */

typedef struct conversion {
    const dl_mirrors *m;
    int fragment;
    bool widens; /* else it narrows */
    size_t count;
} conversion;

static bool is_converted(const mirror *one, int fragment)
{
    return is_narrow(one) && concerns(one, fragment);
}

static void convert(const mirror *one, size_t first, size_t n, bool widens)
{
    unsigned char *narrow = one->device ? one->raw : one->at.data;
    float *wide = (float *)one->data + first;
    narrow += first * dl_dtype_size(one->at.dtype);
    if (widens)
        dl_widen(wide, narrow, n, dl_dtype_name(one->at.dtype));
    else
        dl_narrow(narrow, wide, n, dl_dtype_name(one->at.dtype));
}

/* Rounding uses the fixed floating-point environment (B1), since the trainer may have set another.
 * Every thread has its own. */
static void convert_part(void *context, int part, int n_parts)
{
    enum { GRAIN = 4096 };
    const conversion *c = context;
    const dl_fp_state fp = dl_fp_enter();
    size_t begin, end, at = 0; /* at: elements of the tensors before */
    dl_part_range(&begin, &end, c->count, GRAIN, part, n_parts);
    for (size_t i = 0; i < c->m->n && at < end; i++) {
        const mirror *one = &c->m->all[i];
        if (!is_converted(one, c->fragment)) continue;
        const size_t first = dl_size_max(begin, at), last = dl_size_min(end, at + one->count);
        if (first < last) convert(one, first - at, last - first, c->widens);
        at += one->count;
    }
    dl_fp_leave(fp);
}

static void convert_all(const dl_mirrors *m, int fragment, bool widens, dl_pool *pool)
{
    conversion c = {.m = m, .fragment = fragment, .widens = widens};
    if (m->failed) return;
    for (size_t i = 0; i < m->n; i++)
        if (is_converted(&m->all[i], fragment)) c.count += m->all[i].count;
    if (c.count) dl_pool_run(pool, convert_part, &c);
}

/* ---- both directions ---------------------------------------------------------------------- */

/* All copies are queued, then waited for, then converted. One wait for a fragment is cheaper than
 * one for each tensor. Values may be in the mirrors after an error, and must not be used. */
diloco_status dl_mirrors_pull(dl_mirrors *m, int fragment, dl_pool *pool)
{
    if (!m) return DILOCO_OK;
    for (size_t i = 0; i < m->n && !m->failed; i++) {
        const mirror *one = &m->all[i];
        const diloco_device *d = one->device;
        if (!d || !concerns(one, fragment)) continue;
        note_text(m);
        const diloco_status status =
            d->copy_in(d->user, d->stream, one->raw, one->at.data, raw_len(one));
        if (status) fail(m, one, "copy to the host", status);
    }
    wait_for_all(m, fragment);
    convert_all(m, fragment, true, pool);
    return dl_mirrors_check(m);
}

/* Conversion comes first here. */
void dl_mirrors_push(dl_mirrors *m, int fragment, dl_pool *pool)
{
    if (!m) return;
    convert_all(m, fragment, false, pool);
    for (size_t i = 0; i < m->n && !m->failed; i++) {
        const mirror *one = &m->all[i];
        const diloco_device *d = one->device;
        if (!d || !concerns(one, fragment)) continue;
        note_text(m);
        const diloco_status status =
            d->copy_out(d->user, d->stream, one->at.data, one->raw, raw_len(one));
        if (status) fail(m, one, "copy from the host", status);
    }
    wait_for_all(m, fragment);
}
