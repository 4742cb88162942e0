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
    diloco_tensor at; /* the trainer's tensor, as it was registered; a private piece is of bytes */
    const diloco_device *device;
    size_t count;
    void *data;                  /* owned; of the stored type */
    const diloco_device *lender; /* of `data`; NULL: it is the heap's */
    /* owned: copied to and from the device; equal to `data` if the types are equal */
    unsigned char *raw;
} mirror;

/* The first failure is kept until the end, since a copy to a device returns no status to its
 * caller. */
struct dl_mirrors {
    const char *of; /* before a mirror's name in errors */
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
 * copy, and `data` for the converted values. Returns false if there is too little memory; `unmake`
 * releases what exists. */
static bool make(mirror *m, const diloco_tensor *tensor, const diloco_device *device, size_t count)
{
    *m = (mirror){.at = *tensor, .device = device, .count = count};
    const bool through = device && is_narrow(m);
    m->lender = through ? NULL : device; /* NULL: a conversion copies, not the device */
    m->data = take(m->lender, count * dl_dtype_size(dl_dtype_stored(tensor->dtype)));
    if (device) m->raw = through ? take(device, raw_len(m)) : m->data;
    return m->data && (m->raw || !device);
}

static void unmake(mirror *m)
{
    give_back(m->lender, m->data);
    if (m->raw && m->raw != m->data) give_back(m->device, m->raw);
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
        if (!make(&m->all[m->n++], &tensors[i], devices[i], manifest->tensors[i].count))
            return dl_fail(DILOCO_ENOMEM, "no host memory for %s %s", m->of, tensors[i].name);
    }
    return DILOCO_OK;
}

/* The manifest is made only to check the tensors and to count their elements. The tensors' data
 * changes at the end, so that nothing has changed after an error. */
static diloco_status create(dl_mirrors **out, const char *of, diloco_tensor *tensors,
                            const diloco_device *const *devices, size_t n)
{
    dl_manifest manifest;
    *out = NULL;
    DL_TRY(dl_manifest_init(&manifest, tensors, n, false));
    dl_mirrors *m = calloc(1, sizeof *m);
    if (m) *m = (dl_mirrors){.of = of, .all = calloc(n, sizeof *m->all)};
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

diloco_status dl_mirrors_create(dl_mirrors **out, diloco_tensor *tensors,
                                const diloco_device *const *devices, size_t n)
{
    return create(out, "tensor", tensors, devices, n);
}

/* A gradient has its tensor's name, shape and fragment. */
diloco_status dl_mirrors_create_gradients(dl_mirrors **out, const float **gradients,
                                          const diloco_tensor *tensors,
                                          const diloco_device *const *devices, size_t n)
{
    *out = NULL;
    diloco_tensor *all = calloc(n, sizeof *all);
    if (!all) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu gradients", n);
    for (size_t i = 0; i < n; i++) {
        all[i] = tensors[i];
        all[i].dtype = DILOCO_F32;
        all[i].data = (void *)(uintptr_t)gradients[i]; /* only read: it is never pushed */
    }
    const diloco_status status = create(out, "the gradient of tensor", all, devices, n);
    for (size_t i = 0; i < n && !status; i++)
        gradients[i] = all[i].data;
    free(all);
    return status;
}

/* Memory of the device's own would be in use from the beginning, and most saves read a piece to
 * elsewhere. */
diloco_status dl_mirrors_add_private(dl_mirrors **out, size_t *index, void **host, const char *name,
                                     void *data, size_t len, const diloco_device *device)
{
    DL_ASSERT(len > 0 && device);
    if (!*out) *out = calloc(1, sizeof **out);
    dl_mirrors *m = *out;
    mirror *all = m ? realloc(m->all, (m->n + 1) * sizeof *all) : NULL;
    if (all) m->all = all;
    void *bytes = all ? calloc(len, 1) : NULL;
    if (!bytes) return dl_fail(DILOCO_ENOMEM, "no host memory for private piece %s", name);
    m->of = "private piece";
    m->all[m->n] = (mirror){.at = {.name = name, .data = data, .dtype = DILOCO_BOOL},
                            .device = device,
                            .count = len,
                            .data = bytes,
                            .raw = bytes};
    *index = m->n++;
    *host = bytes;
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
    const char *reason = diloco_error_text(), *card = one->device->name;
    const bool is_new = strncmp(reason, m->before, sizeof m->before - 1) != 0;
    const bool named = card && *card;
    if (m->failed) return;
    m->failed = status;
    snprintf(m->text, sizeof m->text, "the device of %s %s%s%.150s%s failed to %s%s%.500s", m->of,
             one->at.name, named ? " (" : "", named ? card : "", named ? ")" : "", what,
             is_new ? ": " : "", is_new ? reason : "");
}

static void queue_in(dl_mirrors *m, const mirror *one, void *to)
{
    const diloco_device *d = one->device;
    note_text(m);
    const diloco_status status = d->copy_in(d->user, d->stream, to, one->at.data, raw_len(one));
    if (status) fail(m, one, "copy to the host", status);
}

static void wait_for(dl_mirrors *m, const mirror *one)
{
    const diloco_device *d = one->device;
    note_text(m);
    const diloco_status status = d->synchronise(d->user, d->stream);
    if (status) fail(m, one, "synchronise", status);
}

/* Waits once for each stream with queued copies; tensors of one device are adjacent. It also waits
 * after a failure, since earlier copies still write. */
static void wait_for_all(dl_mirrors *m, int fragment)
{
    const diloco_device *waited = NULL;
    for (size_t i = 0; i < m->n; i++) {
        const mirror *one = &m->all[i];
        if (!concerns(one, fragment) || !one->device || one->device == waited) continue;
        wait_for(m, one);
        waited = one->device;
    }
}

diloco_status dl_mirrors_read(dl_mirrors *m, size_t index, void *to)
{
    const mirror *one = &m->all[index];
    DL_ASSERT(index < m->n && one->device && !is_narrow(one));
    if (!m->failed) queue_in(m, one, to);
    wait_for(m, one);
    return dl_mirrors_check(m);
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
        if (one->device && concerns(one, fragment)) queue_in(m, one, one->raw);
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
