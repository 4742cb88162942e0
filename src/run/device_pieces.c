/* device_pieces.c - tensors, gradients and private pieces of the caller on devices.
 *
 * A tensor and a gradient have a mirror, which is read and written in their place. A private piece
 * has a place in host memory from which it is restored. A save reads it from its device to where
 * the save needs the bytes (dl_private.fill), so that it is copied once. */
#include "run/handle.h"

#include <stdlib.h>

diloco_status dl_run_make_mirrors(diloco_run *run)
{
    dl_run_model *m = &run->model;
    if (!m->mirrors) DL_TRY(dl_mirrors_create(&m->mirrors, m->tensors, m->devices, m->n_tensors));
    if (m->gradient_mirrors || !m->has_gradients) return DILOCO_OK;
    return dl_mirrors_create_gradients(&m->gradient_mirrors, m->gradients, m->tensors,
                                       m->gradient_devices, m->n_tensors);
}

static diloco_status read_piece(void *user, void *to)
{
    const dl_run_piece *piece = user;
    return dl_mirrors_read(piece->mirrors, piece->index, to);
}

/* A piece with a fill of the caller's own is only restored on its device. */
diloco_status dl_run_place_private(diloco_run *run, size_t i)
{
    dl_run_model *m = &run->model;
    dl_private *p = &m->privates[i];
    dl_run_piece *piece = &m->pieces[i];
    if (!m->device || p->len == 0) return DILOCO_OK;
    DL_TRY(dl_mirrors_add_private(&m->private_mirrors, &piece->index, &p->data, p->name, p->data,
                                  p->len, m->device));
    piece->mirrors = m->private_mirrors;
    if (p->fill) return DILOCO_OK;
    p->fill = read_piece;
    p->user = piece;
    return DILOCO_OK;
}

diloco_status dl_run_push_restored(diloco_run *run)
{
    dl_mirrors_push(run->model.mirrors, DL_ALL_FRAGMENTS, run->pools.trainer);
    dl_mirrors_push(run->model.private_mirrors, DL_ALL_FRAGMENTS, run->pools.trainer);
    return dl_run_check_devices(run);
}

diloco_status dl_run_check_devices(const diloco_run *run)
{
    DL_TRY(dl_mirrors_check(run->model.mirrors));
    DL_TRY(dl_mirrors_check(run->model.gradient_mirrors));
    return dl_mirrors_check(run->model.private_mirrors);
}

void dl_run_release_devices(diloco_run *run)
{
    dl_run_model *m = &run->model;
    dl_mirrors_destroy(m->mirrors);
    dl_mirrors_destroy(m->gradient_mirrors);
    dl_mirrors_destroy(m->private_mirrors);
    for (size_t i = 0; i < m->n_devices; i++)
        free(m->known_devices[i]);
    free(m->devices);
    free(m->gradient_devices);
}
