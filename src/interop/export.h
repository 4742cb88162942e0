/* export.h - the interface between export.c and the files of the formats.
 *
 * A format's file defines one dl_export_format. Its function gets the model's tensors in the type
 * that the user chose, and writes a file or a folder. It may use the functions below for the files
 * of a folder, the tokenizer, and a file that is put together from pieces. */
#ifndef DL_INTEROP_EXPORT_H
#define DL_INTEROP_EXPORT_H

#include "base/config.h"
#include "base/safetensors.h"
#include "data/bpe.h"

/* A model to write. All of it is borrowed from export.c during the call of `write`. */
typedef struct dl_export {
    const char *to;          /* path of the file, or of the folder for a format that writes one */
    const char *dtype;       /* of its floats: "F32", "BF16", "F16" */
    const dl_config *config; /* the run's settings */
    dl_st_tensor *tensors;   /* [n], in the types that they are written in; only the model's */
    dl_span *data;           /* [n]: their bytes, little-endian, in row-major order */
    size_t n;
} dl_export;

/* One format. */
typedef struct dl_export_format {
    const char *name;  /* of the command line */
    bool has_bf16;     /* false: BF16 is refused */
    bool any_model;    /* false: only gpt, whose tensors have Hugging Face's names */
    bool wide_vectors; /* tensors of one dimension stay F32 */
    /* Writes the model. After an error a folder may be incomplete. */
    diloco_status (*write)(const dl_export *export);
} dl_export_format;

/* Opens the run's tokenizer of byte pairs from data.tokenizer_path. *out is owned by the caller,
 * and NULL if the run has none. Returns DILOCO_EINVAL if no path is set, DILOCO_EDIFFERS if the
 * file is not the run's tokenizer, and the errors of dl_bpe_open. */
DL_MUST_CHECK diloco_status dl_export_tokenizer(dl_bpe **out, const dl_export *export);

/* These two write one file of the folder e->to, which exists. dl_export_weights writes all tensors
 * as safetensors. Errors are those of dl_file_write; also DILOCO_EINVAL for a path that is too
 * long, and DILOCO_ENOMEM. */
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

/* ---- a file in pieces
 *
 * Headers and tables are small and are copied; tensors are large and are borrowed. So a file needs
 * little memory beside the model. The first error is kept in `status`, later calls add nothing, and
 * dl_pieces_write returns it. */

typedef struct dl_pieces {
    dl_buf small;                /* the copied pieces, one after the other; at most 1 GiB */
    dl_span *spans;              /* owned; one without data is the next bytes of `small` */
    size_t n, cap, bytes, noted; /* noted: bytes of `small` that have a span */
    diloco_status status;        /* the first error */
} dl_pieces;

void dl_pieces_init(dl_pieces *pieces);
void dl_pieces_deinit(dl_pieces *pieces);
/* These append. `bytes` is the length of the file so far. Bytes that dl_pieces_put borrows must
 * remain unchanged until dl_pieces_write. */
void dl_pieces_add(dl_pieces *pieces, const void *data, size_t len); /* copied */
void dl_pieces_put(dl_pieces *pieces, dl_span borrowed);
void dl_pieces_u(dl_pieces *pieces, uint64_t value, int n_bytes); /* little-endian */
void dl_pieces_pad(dl_pieces *pieces, size_t to); /* zeros up to a multiple of `to` */
/* Writes the file as dl_file_write does, or returns the first error. Call it once. */
DL_MUST_CHECK diloco_status dl_pieces_write(dl_pieces *pieces, const char *path);

#endif
