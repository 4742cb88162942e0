/* codec.h - how the f32 pseudo-gradient of a fragment is written on the wire.
 *
 * One file and one row of codec.c a codec. A payload is self-contained for its element
 * count; what every reader decodes, the sender included, is decode(payload), the same bits
 * everywhere. The input never holds a NaN or an infinity (the sender has checked). */
#ifndef DL_CODEC_CODEC_H
#define DL_CODEC_CODEC_H

#include "base/size.h"
#include "tensor/kernels.h"

typedef struct dl_codec {
    const char *name;
    const char *summary; /* for --help: "4 bytes an element, exact" */
    bool lossy;

    /* Bytes of the payload of n elements, at most; n is at most 2^40. */
    size_t (*bound)(size_t n);
    /* Write the payload of g[n] into out[bound(n)]; *len is what was used. encode and check
     * set the floating-point control word themselves (dl_fp_enter); decode leaves it to the
     * pass that it runs in. */
    void (*encode)(unsigned char *out, size_t *len, const float *g, size_t n);

    /* Is this a payload of n elements whose every value will decode to a finite number of
     * size at most `bound`? The bytes are a stranger's. DILOCO_EPROTO: wrong length or form;
     * DILOCO_ENUMERIC: *index is the first offending element. Also gives sum of squares of
     * the decoded values (PROTOCOL B3 order) in *norm2. After an error *norm2 is unspecified. */
    diloco_status (*check)(const unsigned char *payload, size_t len, size_t n, float bound,
                           size_t *index, double *norm2);

    /* Decode elements [first, first + n) of a checked payload of n_all into out, ending with + 0.0f
     * (PROTOCOL B2); first is a multiple of DL_BLOCK and n at most DL_BLOCK. */
    void (*decode)(float *out, const unsigned char *payload, size_t len, size_t n_all, size_t first,
                   size_t n);

    /* Optional (NULL: no payload can): the elements from `first` on where the payload holds
     * them as floats, so that the pass need not copy them; NULL for one that is not aligned.
     * They may be negative zeros, where decode gives positive ones: combiners read x + 0.0f. */
    const float *(*view)(const unsigned char *payload, size_t first);
} dl_codec;

const dl_codec *dl_codec_find(const char *name); /* NULL */
const dl_codec *dl_codec_at(size_t i);           /* NULL behind the last */

#endif
