/* sharded_publish.c - an own contribution in slices: their digests, and the slices themselves. */
#include "exchange/exec_parts.h"

dl_slicing dl_exec_slicing(const dl_exec *x, uint32_t fragment)
{
    const dl_exec_topology *topology = x->combine.topology;
    return topology->slicing ? topology->slicing(x, fragment) : (dl_slicing){.n = 0};
}

size_t dl_exec_make_table(dl_exec *x, uint32_t fragment, unsigned char *discrete)
{
    const dl_slicing s = dl_exec_slicing(x, fragment);
    dl_slice_part parts[DL_SLICE_SPANS];
    for (size_t i = 0; i < s.n; i++) {
        const size_t n = dl_slice_parts(parts, &s, i, x->upload.payload, discrete);
        x->upload.table[i] = dl_slice_digest(parts, n);
    }
    return s.n * sizeof *x->upload.table;
}

/* A slice has no header; the table has its digest. A name with other bytes means another process of
 * this replica. */
static diloco_status put_slice(void *context, dl_store *store, size_t i)
{
    dl_slices_put *p = context;
    dl_slice_part parts[DL_SLICE_SPANS];
    dl_span spans[DL_SLICE_SPANS];
    dl_key key;
    const size_t n = dl_slice_parts(parts, &p->slicing, i, p->payload, p->discrete);
    for (size_t k = 0; k < n; k++)
        spans[k] = (dl_span){parts[k].data, parts[k].len};
    dl_key_slice(key, p->entry, i, &p->generation);
    diloco_status status = dl_store_create(store, key, spans, n, NULL, p->until);
    if (status == DILOCO_EEXIST) /* the bytes read back for the comparison may have been damaged */
        status = dl_store_create(store, key, spans, n, NULL, p->until);
    if (status == DILOCO_EEXIST)
        return dl_fail(DILOCO_EFENCED, "%s holds other bytes: another process runs as %s; stop one",
                       key, p->generation.replica);
    p->confirmed[i] = !status && dl_store_vouches(store);
    return status;
}

/* One after the other on the uploading thread, since the fetchers belong to the exchange. */
diloco_status dl_slices_send(dl_slices_put *p, dl_store *store)
{
    for (size_t i = 0; i < p->slicing.n; i++)
        DL_TRY(put_slice(p, store, i));
    return DILOCO_OK;
}

bool dl_slices_are_confirmed(const dl_slices_put *p)
{
    for (size_t i = 0; i < p->slicing.n; i++)
        if (!p->confirmed[i]) return false;
    return true;
}

diloco_status dl_exec_put_slices(dl_exec *x, dl_slices_put *p)
{
    return dl_fetchers_run(x, p->slicing.n, put_slice, p);
}
