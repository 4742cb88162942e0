/* export.h - the entries of each format's file in the table of export.c, and shared functions. */
#ifndef DL_INTEROP_EXPORT_H
#define DL_INTEROP_EXPORT_H

#include "base/config.h"
#include "base/safetensors.h"
#include "data/bpe.h"

/* A model that leaves. */
typedef struct dl_export {
    const char *to;
    const char *dtype; /* of its floats: "F32", "BF16", "F16" */
    const dl_config *config;
    dl_st_tensor *tensors; /* [n], of the types they are written in */
    dl_span *data;         /* [n]: their bytes */
    size_t n;
} dl_export;

typedef struct dl_export_format {
    const char *name;
    bool has_bf16;
    bool any_model;    /* not only gpt */
    bool wide_vectors; /* tensors of one dimension stay F32 */
    diloco_status (*write)(const dl_export *export);
} dl_export_format;

/* The run's own tokenizer of byte pairs, from data.tokenizer_path; NULL: it has none.
 * DILOCO_EINVAL: no path. DILOCO_EDIFFERS: another's file. */
DL_MUST_CHECK diloco_status dl_export_tokenizer(dl_bpe **out, const dl_export *export);

/* Write one file of the folder `e->to`. dl_export_weights writes all tensors, as safetensors. */
DL_MUST_CHECK diloco_status dl_export_text(const dl_export *e, const char *file,
                                           const dl_buf *text);
DL_MUST_CHECK diloco_status dl_export_weights(const dl_export *e, const char *file);

/* The list of formats. A new one is a file that defines dl_export_<name>, and its line here. */
// clang-format off
#define DL_EXPORT_FORMATS(X) \
    X(hf) \
    X(npz) \
    X(gguf) \
    X(peft)
// clang-format on

#define DL_DECLARE(name) extern const dl_export_format dl_export_##name;
DL_EXPORT_FORMATS(DL_DECLARE)
#undef DL_DECLARE

/* ---- a file in pieces: small ones that are made, large ones in other memory */

typedef struct dl_pieces {
    dl_buf small;                /* those that are made, one after the other */
    dl_span *spans;              /* owned; one without data is the next bytes of `small` */
    size_t n, cap, bytes, noted; /* noted: bytes of `small` that have a span */
    diloco_status status;
} dl_pieces;

void dl_pieces_init(dl_pieces *pieces);
void dl_pieces_deinit(dl_pieces *pieces);
/* Append; the first error sticks. */
void dl_pieces_add(dl_pieces *pieces, const void *data, size_t len); /* copied */
void dl_pieces_put(dl_pieces *pieces, dl_span borrowed);
void dl_pieces_u(dl_pieces *pieces, uint64_t value, int n_bytes); /* little-endian */
void dl_pieces_pad(dl_pieces *pieces, size_t to); /* zeros up to a multiple of `to` */
/* Write the file, as dl_file_write; or the first error. */
DL_MUST_CHECK diloco_status dl_pieces_write(dl_pieces *pieces, const char *path);

#endif
