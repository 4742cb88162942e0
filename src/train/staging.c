/* staging.c - see staging.h. */
#include "train/staging.h"

#include <stdlib.h>

diloco_status dl_staging_add(dl_staging *s, void **host, void *memory, size_t bytes)
{
    *host = NULL;
    dl_staged *all = realloc(s->all, (s->n + 1) * sizeof *all);
    if (all) s->all = all;
    void *place = s->backend->ops->in_host_memory ? memory : calloc(dl_size_max(bytes, 1), 1);
    if (all && place) {
        s->all[s->n++] = (dl_staged){place, memory, bytes, s->backend};
        *host = place;
        return DILOCO_OK;
    }
    if (place != memory) free(place);
    return dl_fail(DILOCO_ENOMEM, "no host memory for %zu bytes of the %s backend", bytes,
                   s->backend->ops->name);
}

void dl_staging_deinit(dl_staging *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->all[i].host != s->all[i].memory) free(s->all[i].host);
    free(s->all);
    *s = (dl_staging){.backend = s->backend};
}

diloco_status dl_staging_pull(const dl_staging *s)
{
    if (s->n == 0) return DILOCO_OK;
    DL_TRY(dl_backend_sync(s->backend));
    for (size_t i = 0; i < s->n; i++)
        if (s->all[i].host != s->all[i].memory)
            dl_backend_copy_out(s->backend, s->all[i].host, s->all[i].memory, s->all[i].bytes);
    return dl_backend_sync(s->backend); /* a copy may have failed, too */
}

void dl_staging_push(const dl_staging *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->all[i].host != s->all[i].memory)
            dl_backend_copy_in(s->backend, s->all[i].memory, s->all[i].host, s->all[i].bytes);
}

diloco_status dl_staging_fill(void *staged, void *to)
{
    const dl_staged *s = staged;
    DL_TRY(dl_backend_sync(s->backend));
    dl_backend_copy_out(s->backend, to, s->memory, s->bytes);
    return dl_backend_sync(s->backend); /* a copy may have failed, too */
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
