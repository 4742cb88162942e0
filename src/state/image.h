/* image.h - reads a state's safetensors image while it arrives.
 *
 *     dl_image_reader r;
 *     dl_image_reader_init(&r, state);
 *     status = dl_store_read(store, key, dl_image_sink(&r), until);
 *     if (!status) status = dl_image_reader_end(&r, &digest);
 *     dl_image_reader_deinit(&r);
 *
 * Data goes from each piece directly to its tensor. Only the header is kept, and its length is
 * checked first. After an error the state's tensors are unspecified. */
#ifndef DL_STATE_IMAGE_H
#define DL_STATE_IMAGE_H

#include "base/safetensors.h"
#include "base/signature.h"
#include "state/state.h"

/* A place for bytes of the image. */
typedef struct dl_image_target {
    unsigned char *to;
    size_t len;
} dl_image_target;

typedef struct dl_image_reader {
    dl_state *state;
    dl_buf header;
    size_t total, received;       /* bytes of the image */
    size_t header_len;            /* with its 8 bytes of length; 0: not known yet */
    dl_image_target *targets;     /* owned; by place; NULL until the header is read */
    size_t n_targets, target, at; /* the next byte goes to targets[target].to[at] */
    dl_digest_stream digest;
    dl_strong_stream *strong; /* owned; a caller that needs it begins it after init */
} dl_image_reader;

void dl_image_reader_init(dl_image_reader *r, dl_state *state);
void dl_image_reader_deinit(dl_image_reader *r);
dl_sink dl_image_sink(dl_image_reader *r);

/* Checks that the image is complete, floats are finite, and booleans are 0 or 1. *digest:
 * dl_digest_bytes of the image. Digests of the state are not recomputed. Returns DILOCO_EPROTO if a
 * check fails. */
DL_MUST_CHECK diloco_status dl_image_reader_end(dl_image_reader *r, dl_hash *digest);

#endif
