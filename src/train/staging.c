/* staging.c - see staging.h. */
#include "train/staging.h"

#include <stdlib.h>

bool dl_staged_is_shared(const dl_staged *p)
{
    return p->n_slices == 1 && p->host == p->slices[0].memory;
}

diloco_status dl_staging_add_slices(dl_staging *s, void **host, const dl_slice *slices, size_t n)
{
    dl_staged staged = {.n_slices = n};
    const bool shared = n == 1 && slices[0].backend->ops->in_host_memory;
    *host = NULL;
    DL_ASSERT(n >= 1 && n <= DL_MAX_CARDS);
    for (size_t i = 0; i < n; i++) {
        staged.slices[i] = slices[i];
        staged.bytes += slices[i].bytes;
    }
    dl_staged *all = realloc(s->all, (s->n + 1) * sizeof *all);
    if (all) s->all = all;
    staged.host = shared ? slices[0].memory : calloc(dl_size_max(staged.bytes, 1), 1);
    if (all && staged.host) {
        s->all[s->n++] = staged;
        *host = staged.host;
        return DILOCO_OK;
    }
    if (!shared) free(staged.host);
    return dl_fail(DILOCO_ENOMEM, "no host memory for %zu bytes of the %s backend", staged.bytes,
                   slices[0].backend->ops->name);
}

diloco_status dl_staging_add(dl_staging *s, void **host, void *memory, size_t bytes)
{
    const dl_slice slice = {s->backend, memory, bytes};
    return dl_staging_add_slices(s, host, &slice, 1);
}

void dl_staging_deinit(dl_staging *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (!dl_staged_is_shared(&s->all[i])) free(s->all[i].host);
    free(s->all);
    *s = (dl_staging){.backend = s->backend};
}

/* Copies all slices of a place to `to`. A copy may fail, too, so a sync is after it. */
static diloco_status copy_out(const dl_staged *p, void *to)
{
    size_t at = 0;
    for (size_t i = 0; i < p->n_slices; i++) {
        const dl_slice *x = &p->slices[i];
        dl_backend_copy_out(x->backend, (char *)to + at, x->memory, x->bytes);
        DL_TRY(dl_backend_sync(x->backend));
        at += x->bytes;
    }
    return DILOCO_OK;
}

diloco_status dl_staging_pull(const dl_staging *s)
{
    if (s->n == 0) return DILOCO_OK;
    DL_TRY(dl_backend_sync(s->backend));
    for (size_t i = 0; i < s->n; i++)
        if (!dl_staged_is_shared(&s->all[i])) DL_TRY(copy_out(&s->all[i], s->all[i].host));
    return DILOCO_OK;
}

void dl_staging_push(const dl_staging *s)
{
    for (size_t i = 0; i < s->n; i++) {
        const dl_staged *p = &s->all[i];
        size_t at = 0;
        for (size_t k = 0; !dl_staged_is_shared(p) && k < p->n_slices; k++) {
            dl_backend_copy_in(p->slices[k].backend, p->slices[k].memory, (char *)p->host + at,
                               p->slices[k].bytes);
            at += p->slices[k].bytes;
        }
    }
}

diloco_status dl_staging_fill(void *staged, void *to)
{
    const dl_staged *p = staged;
    DL_TRY(dl_backend_sync(p->slices[0].backend));
    return copy_out(p, to);
}

/* ---- a device for the run */

/* Copies go through the backend's own queue, so the run's `stream` is not used. */
static diloco_status to_host(void *user, void *stream, void *host, const void *device, size_t len)
{
    (void)stream;
    dl_backend_copy_out(user, host, device, len);
    return DILOCO_OK;
}

static diloco_status to_device(void *user, void *stream, void *device, const void *host, size_t len)
{
    (void)stream;
    dl_backend_copy_in(user, device, host, len);
    return DILOCO_OK;
}

static diloco_status wait_for(void *user, void *stream)
{
    (void)stream;
    return dl_backend_sync(user);
}

bool dl_staging_device(diloco_device *out, dl_backend *backend)
{
    if (backend->ops->in_host_memory) return false;
    *out = (diloco_device){.user = backend,
                           .copy_in = to_host,
                           .copy_out = to_device,
                           .synchronise = wait_for,
                           .name = dl_backend_card(backend)};
    return true;
}
