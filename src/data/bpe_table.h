/* bpe_table.h - a tokenizer in memory, shared by bpe.c, which encodes with it, and bpe_read.c,
 * which fills it. Both hash tables are open-addressed, at most half full, and never shrink. */
#ifndef DL_DATA_BPE_TABLE_H
#define DL_DATA_BPE_TABLE_H

#include "data/bpe.h"

/* Bounds on a file from outside. Real vocabularies have at most 300,000 tokens, and a few hundred
 * added ones; these are compared with the text one after the other. */
enum { DL_BPE_MAX_TOKENS = 1 << 22, DL_BPE_MAX_ADDED = 4096 };

/* Two tokens that merge. */
typedef struct dl_bpe_pair {
    uint64_t key;        /* left << 32 | right, + 1; 0: free */
    int32_t token, rank; /* the result; the lowest rank merges first */
} dl_bpe_pair;

/* A token that is found in a text literally, before the text is cut into words. */
typedef struct dl_bpe_added {
    const char *text; /* owned; ended by a zero */
    size_t len;       /* bytes without the zero, at least 1 */
    int32_t token;
    bool special;
} dl_bpe_added;

struct dl_bpe {
    dl_word_rule how; /* the rule that cuts text into words */
    bool whole_words; /* a word that is a token is that token, however its bytes would merge */
    int32_t n, begin_token, end_token; /* tokens; -1: there is no such token */
    char *bytes;                       /* owned; all tokens' bytes, one after the other */
    size_t n_bytes;
    size_t *offset;       /* [n + 1], owned; token i is bytes[offset[i] … offset[i + 1]) */
    int32_t of_byte[256]; /* the token of each byte; all exist once it is open */
    int32_t *by_text;     /* owned; hash of a token's bytes; -1: free */
    size_t text_mask;
    dl_bpe_pair *pairs; /* owned; hash of a pair */
    size_t pair_mask, n_pairs;
    dl_bpe_added *added; /* owned; longest first */
    size_t n_added;
    bool added_first[256], may_cut; /* bytes that an added token begins with; dl_bpe_may_cut */
    dl_hash digest;
};

int32_t dl_bpe_find(const dl_bpe *bpe, const char *text, size_t len); /* -1: no such token */
/* Returns the pair's row, or NULL if the two tokens do not merge. */
const dl_bpe_pair *dl_bpe_find_pair(const dl_bpe *bpe, int32_t left, int32_t right);

#endif
