/* safetensors.h - named tensors in one block of bytes, as Hugging Face's safetensors has
 * them (github.com/huggingface/safetensors, README "Format"):
 *
 *     u64 little-endian n | n bytes of JSON, padded with spaces | the tensors' data
 *
 *     {"__metadata__": {"key": "text", …},
 *      "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}
 *
 * Offsets count from the first byte after the header. The tensors cover the data without
 * holes or overlap, in any order. A file written here begins its data at a multiple of 64
 * bytes. A file that is read need not, nor need a tensor be aligned to its type. */
#ifndef DL_BASE_SAFETENSORS_H
#define DL_BASE_SAFETENSORS_H

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"

enum { DL_ST_DIMS = 8, DL_ST_HEADER_MAX = 100000000 /* as the reference reader's */ };

typedef struct dl_st_tensor {
    const char *name;  /* UTF-8 */
    const char *dtype; /* "F32", "I64", "BOOL", "BF16", … */
    int n_dims;
    size_t shape[DL_ST_DIMS];
    size_t begin, end; /* of its bytes in the data */
} dl_st_tensor;

typedef struct dl_st_meta {
    const char *key, *value;
} dl_st_meta;

/* Bytes of an element: BOOL U8 I8 F8_E4M3 F8_E5M2 1; I16 U16 F16 BF16 2; I32 U32 F32 4;
 * I64 U64 F64 8. Of any other name: 0. */
size_t dl_st_dtype_size(const char *dtype);

/* ---- writing */

/* Append the header of n tensors whose data follow each other in the order given; their
 * begin and end are set. So the object is the spans [header, data of tensor 0, …].
 * DILOCO_EINVAL: a dtype that is not known, n_dims out of range, a size that overflows,
 * text that is not UTF-8, a name twice, or "__metadata__" as one. DILOCO_ENOMEM, and
 * DILOCO_EPROTO beyond out->max: `out` is as it was. Allocates nothing but in `out`. */
DL_MUST_CHECK diloco_status dl_st_header(dl_buf *out, dl_st_tensor *tensors, size_t n,
                                         const dl_st_meta *meta, size_t n_meta);

/* Write a whole file in the manner, and with the errors, of dl_file_write.
 *
 *   header  cleared, and holds the header afterwards
 *   spans   [n + 1]; [0] is set to the header, [1 + i] are the bytes of tensor i,
 *           DILOCO_EINVAL when their number is not what its shape says */
DL_MUST_CHECK diloco_status dl_st_write(const char *path, dl_buf *header, dl_span *spans,
                                        dl_st_tensor *tensors, size_t n, const dl_st_meta *meta,
                                        size_t n_meta);

/* ---- reading */

typedef struct dl_st {
    dl_st_tensor *tensors; /* by place: begin ascends, each begins where the last ended */
    size_t n;
    const unsigned char *data; /* borrowed, as is `metadata` */
    size_t data_len;
    dl_json_value metadata; /* object of strings, for dl_json_read_str; or MISSING */
    dl_arena arena;         /* the table and the names */
} dl_st;

/* Check a block of memory (mapped or read) and list its tensors, also those of types that
 * this library does not compute with. `bytes` is borrowed until dl_st_close. DILOCO_EPROTO:
 * it is not safetensors, or damaged: nothing needs to be closed then. DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_st_open(dl_st *out, const void *bytes, size_t len);
void dl_st_close(dl_st *st); /* zeroed is fine */

/* A whole file, mapped while fn looks at it; its errors, and those of dl_map_open. */
typedef diloco_status (*dl_st_fn)(void *context, const dl_st *st);
DL_MUST_CHECK diloco_status dl_st_with_file(const char *path, dl_st_fn fn, void *context);

const dl_st_tensor *dl_st_find(const dl_st *st, const char *name); /* NULL: not there */

#endif
