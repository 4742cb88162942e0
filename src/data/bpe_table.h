/* bpe_table.h - a tokenizer in memory: for bpe.c, which encodes with it, and bpe_read.c,
 * which fills it. */
#ifndef DL_DATA_BPE_TABLE_H
#define DL_DATA_BPE_TABLE_H

#include "data/bpe.h"

enum { DL_BPE_MAX_TOKENS = 1 << 22, DL_BPE_MAX_ADDED = 4096 };

typedef struct dl_bpe_pair {
    uint64_t key; /* left << 32 | right, + 1; 0: free */
    int32_t token, rank;
} dl_bpe_pair;

typedef struct dl_bpe_added {
    const char *text; /* in bytes */
    size_t len;
    int32_t token;
    bool special;
} dl_bpe_added;

struct dl_bpe {
    dl_words how;
    bool whole_words; /* a word that is a token is that token, however its bytes would merge */
    int32_t n, begin_token, end_token;
    char *bytes; /* owned; all tokens' */
    size_t n_bytes;
    size_t *offset; /* [n + 1], owned */
    int32_t of_byte[256];
    int32_t *by_text; /* owned; hash of a token's bytes; -1: free */
    size_t text_mask;
    dl_bpe_pair *pairs; /* owned; hash of a pair */
    size_t pair_mask, n_pairs;
    dl_bpe_added *added; /* owned; longest first */
    size_t n_added;
    bool added_first[256], may_cut;
    dl_hash digest;
};

int32_t dl_bpe_find(const dl_bpe *bpe, const char *text, size_t len); /* -1: no such token */
/* The pair's row; NULL: it does not merge. */
const dl_bpe_pair *dl_bpe_find_pair(const dl_bpe *bpe, int32_t left, int32_t right);

#endif
