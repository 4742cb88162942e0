/* codec.h - how the f32 pseudo-gradient of a fragment is written on the wire.
 *
 * One file and one row of codec.c a codec. A payload is self-contained for its form. Every
 * reader, the sender included, uses decode(payload), the same bits everywhere. The input
 * never holds a NaN or an infinity (the sender has checked).
 *
 * A form is a codec with its options and the tensors of one fragment. No block or chunk of
 * a codec crosses a tensor. The form holds, for each tensor, the sizes before it in the payload, so
 * any piece is found at once. It is made once for each fragment and then only read, by any thread.
 *
 *     dl_codec_form form;
 *     DL_TRY(dl_codec_form_init(&form, &config, &manifest, fragment));
 *     unsigned char *payload = ... form.room bytes
 *     form.codec->encode(&form, payload, &len, g);
 *     DL_TRY(dl_codec_check(&form, payload, len, bound, &index, &norm2));
 *     form.codec->decode(&form, out, payload, len, first, n);
 *     dl_codec_form_deinit(&form); */
#ifndef DL_CODEC_CODEC_H
#define DL_CODEC_CODEC_H

#include "base/config.h"
#include "base/size.h"
#include "base/thread.h"
#include "tensor/cut.h"
#include "tensor/manifest.h"

typedef struct dl_codec dl_codec;

/* One tensor of the fragment's f32 array, in its order: trained, then averaged. */
typedef struct dl_codec_tensor {
    size_t begin, count; /* elements [begin, begin + count) of the array */
    size_t rows, cols;   /* rows * cols = count; 0-d and 1-d: one row; else shape[0] rows */
    size_t units;        /* the codec's: blocks or chunks of the tensors before it */
    size_t at;           /* the codec's: bytes or values of the tensors before it */
} dl_codec_tensor;

/* A codec's options; each is an AGREE row of config.c. */
typedef struct dl_codec_options {
    double keep;  /* server.diloco.codec_keep: topk, fraction of a chunk that is sent */
    double prune; /* server.diloco.codec_prune: prune, fraction of a row that is not */
    dl_codec_values_choice values; /* server.diloco.codec_values, of topk */
} dl_codec_options;

/* Bytes [begin, end) of a payload. */
typedef struct dl_codec_range {
    size_t begin, end;
} dl_codec_range;
enum { DL_CODEC_RANGES = 2 };

typedef struct dl_codec_form {
    const dl_codec *codec;
    dl_codec_options options;
    size_t n;      /* elements */
    size_t slices; /* sums over them are taken slice by slice, then added (cut.h) */
    size_t bound;  /* bytes of a payload, at most */
    size_t room;   /* bytes that encode needs to work in: bound or more */
    size_t n_tensors;
    dl_codec_tensor *tensors; /* owned, [n_tensors] */
    size_t n_units, end;      /* units and at, after the last tensor */
} dl_codec_form;

/* Compute the layout of config's codec for one fragment. DILOCO_EINVAL: there is no such codec, or
 * an option does not fit it; DILOCO_ENOMEM. *out is zeroed on error. */
DL_MUST_CHECK diloco_status dl_codec_form_init(dl_codec_form *out, const dl_config *config,
                                               const dl_manifest *manifest, int fragment);
void dl_codec_form_deinit(dl_codec_form *form); /* zeroed is fine */

/* The tensor that holds element i of the array. */
const dl_codec_tensor *dl_codec_tensor_of(const dl_codec_form *form, size_t i);

struct dl_codec {
    const char *name;
    const char *summary;        /* for --help: "4 bytes an element, exact" */
    const char *const *options; /* names of the options that it heeds, then NULL; NULL: none */
    bool lossy;
    const struct dl_block_kind *blocks; /* of a codec of fixed blocks (blocks.h), else NULL */
    bool sparse;  /* many elements decode to 0: no combiner that sorts elements takes it */
    size_t width; /* bytes of most of the numbers in a payload, for compression */

    /* Set form's bound, room and, where the codec needs them, units and at of each tensor and their
     * ends; the rest is set. DILOCO_EINVAL: an option does not fit. */
    diloco_status (*lay_out)(dl_codec_form *form);

    /* Write the payload of g[form->n] to the begin of out[form->room]; *len is its length, which
     * dl_codec_encode compares with the bound. Sets the floating-point control word itself
     * (dl_fp_enter). */
    void (*encode)(const dl_codec_form *form, unsigned char *out, size_t *len, const float *g);

    /* Optional: encode's work for elements [first, first + n), first a multiple
     * of DL_BLOCK. Parts that together have all elements write the same bytes, each its own, of
     * bound in all. */
    void (*encode_part)(const dl_codec_form *form, unsigned char *out, const float *g, size_t first,
                        size_t n);

    /* Can decode read it? Lengths, indices, order, codes that no encoder makes; values are
     * dl_codec_check's. The bytes are an untrusted peer's. DILOCO_EPROTO. */
    diloco_status (*check)(const dl_codec_form *form, const unsigned char *payload, size_t len);

    /* Decode elements [first, first + n) of a payload that passed check into out, ending with
     * + 0.0f (PROTOCOL B2); first is a multiple of DL_BLOCK and n at most DL_BLOCK. Leaves the
     * control word to the pass that it runs in. */
    void (*decode)(const dl_codec_form *form, float *out, const unsigned char *payload, size_t len,
                   size_t first, size_t n);

    /* Optional (NULL: no payload can): the elements from `first` on where the payload
     * holds them as floats. So the pass need not copy them. NULL for one that is not aligned.
     * They may be negative zeros, where decode gives positive ones: combiners read x + 0.0f. */
    const float *(*view)(const unsigned char *payload, size_t first);

    /* Optional (NULL: a payload cannot be cut): the bytes that decode reads for
     * elements [first, first + n). Returns the number of ranges; first is a multiple of DL_BLOCK, n
     * > 0. A function of the form alone. Neighbours may share a few. */
    size_t (*ranges)(const dl_codec_form *form, dl_codec_range out[DL_CODEC_RANGES], size_t first,
                     size_t n);

    const void *context; /* the row's own */
};

const dl_codec *dl_codec_find(const char *name);      /* NULL */
const dl_codec *dl_codec_of(const dl_config *config); /* of a run, the caller's own too; NULL */
const dl_codec *dl_codec_at(size_t i);                /* NULL after the last */

/* Returns whether a payload holds blocks of integers (integers.h), which a card can write, too
 * (nn/movement.h). */
bool dl_codec_has_integers(const dl_codec *codec);

/* The codec's encode, on the threads of a pool where it has parts and there is enough to do; the
 * same bytes. NULL: this thread alone. DILOCO_EINVAL: a caller's own codec says that it wrote more
 * than its bound. */
DL_MUST_CHECK diloco_status dl_codec_encode(const dl_codec_form *form, unsigned char *out,
                                            size_t *len, const float *g, dl_pool *pool);

/* Is this a payload of the form whose every value decodes to a finite number of size at most
 * `bound`? The bytes are an untrusted peer's. DILOCO_EPROTO: wrong length or form; DILOCO_ENUMERIC:
 * *index is the first offending element. Also gives the sum of squares of the decoded values
 * (PROTOCOL B3 order, slice by slice) in *norm2. After an error *norm2 is unspecified. Sets the
 * control word. */
DL_MUST_CHECK diloco_status dl_codec_check(const dl_codec_form *form, const unsigned char *payload,
                                           size_t len, float bound, size_t *index, double *norm2);

/* The same of elements [first, first + n) alone, first a multiple of DL_BLOCK. The
 * payload has only the bytes that `ranges` names. The codec's own check is left out, and every code
 * decodes to something. The whole's norm2 is the slices', added in order. */
DL_MUST_CHECK diloco_status dl_codec_check_part(const dl_codec_form *form,
                                                const unsigned char *payload, float bound,
                                                size_t first, size_t n, double *norm2);

/* out[form->n] = decode(payload), which passed dl_codec_check or is our own: with out for
 * decode(encode(a)) the residual of error feedback is a - out. Sets the control word. */
void dl_codec_round_trip(const dl_codec_form *form, float *out, const unsigned char *payload,
                         size_t len);

#endif
