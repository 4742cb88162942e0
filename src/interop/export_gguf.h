/* export_gguf.h - the values of a GGUF file, for the files that put them. A value's key is its
 * group and its own name with a point between; the first error sticks to the pieces. */
#ifndef DL_INTEROP_EXPORT_GGUF_H
#define DL_INTEROP_EXPORT_GGUF_H

#include "interop/export.h"

typedef struct dl_gguf {
    dl_pieces pieces;
    uint64_t n_values;
} dl_gguf;

typedef enum dl_gguf_type {
    DL_GGUF_U32 = 4,
    DL_GGUF_I32 = 5,
    DL_GGUF_F32 = 6,
    DL_GGUF_BOOL = 7,
    DL_GGUF_STRING = 8,
    DL_GGUF_ARRAY = 9
} dl_gguf_type;

void dl_gguf_u32(dl_gguf *gguf, const char *group, const char *key, uint64_t value);
void dl_gguf_bool(dl_gguf *gguf, const char *group, const char *key, bool value);
void dl_gguf_text(dl_gguf *gguf, const char *group, const char *key, const char *value);
/* n elements must follow: strings, or numbers with dl_pieces_u. */
void dl_gguf_array(dl_gguf *gguf, const char *group, const char *key, dl_gguf_type type, size_t n);
void dl_gguf_string(dl_gguf *gguf, const char *text, size_t len); /* an element */

/* The run's tokenizer, for a model of `vocab` tokens (export_gguf_tokens.c). As
 * dl_export_tokenizer; DILOCO_EREFUSED: one that llama.cpp would read as another. */
DL_MUST_CHECK diloco_status dl_gguf_tokenizer(dl_gguf *gguf, const dl_export *export, size_t vocab);

#endif
