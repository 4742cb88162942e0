/* export_gguf.h - functions that add a value to a GGUF file, for the model and for the tokenizer. A
 * value's key is "GROUP.KEY". The first error is kept in the pieces. */
#ifndef DL_INTEROP_EXPORT_GGUF_H
#define DL_INTEROP_EXPORT_GGUF_H

#include "interop/export.h"

typedef struct dl_gguf {
    dl_pieces pieces;  /* the file so far */
    uint64_t n_values; /* counted while they are added; an array is one */
} dl_gguf;

/* Types of values (enum gguf_type); the numbers are in the file. */
typedef enum dl_gguf_type {
    DL_GGUF_U32 = 4,
    DL_GGUF_I32 = 5,
    DL_GGUF_F32 = 6,
    DL_GGUF_BOOL = 7,
    DL_GGUF_STRING = 8,
    DL_GGUF_ARRAY = 9
} dl_gguf_type;

/* `value` must fit into 32 bits. */
void dl_gguf_u32(dl_gguf *gguf, const char *group, const char *key, uint64_t value);
void dl_gguf_bool(dl_gguf *gguf, const char *group, const char *key, bool value);
void dl_gguf_text(dl_gguf *gguf, const char *group, const char *key, const char *value);
/* Begins an array. The caller adds n elements next: strings with dl_gguf_string, or numbers with
 * dl_pieces_u. */
void dl_gguf_array(dl_gguf *gguf, const char *group, const char *key, dl_gguf_type type, size_t n);
void dl_gguf_string(dl_gguf *gguf, const char *text, size_t len); /* an element */

/* Adds the run's tokenizer, for a model of `vocab` tokens (export_gguf_tokens.c). Returns the
 * errors of dl_export_tokenizer, and DILOCO_EREFUSED if llama.cpp would cut text differently. */
DL_MUST_CHECK diloco_status dl_gguf_tokenizer(dl_gguf *gguf, const dl_export *export, size_t vocab);

#endif
