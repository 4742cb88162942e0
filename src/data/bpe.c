/* bpe.c - encoding.
 *
 * Most words of a text occur many times. Each encoder keeps a table of short ones with one place
 * for each hash; a newer word displaces the older. A word that is not in the table is merged with a
 * heap of the pairs that may merge, lowest rank first and leftmost of equal ones. A pair whose
 * tokens have changed since is dropped when it is popped. So n bytes take O(n log n) steps,
 * whatever they are. */
#include "data/bpe.h"

#include "data/bpe_table.h"

#include <stdlib.h>
#include <string.h>

uint32_t dl_bpe_char_of(unsigned char byte)
{
    uint32_t n = 256;
    if ((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad)) return byte;
    for (int b = 0; b < byte; b++)
        n += !((b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad));
    return n;
}

int dl_bpe_byte_of(uint32_t code)
{
    if ((code >= 0x21 && code <= 0x7e) || (code >= 0xa1 && code <= 0xff && code != 0xad))
        return (int)code;
    if (code < 0x100 || code >= 0x100 + 68) return -1;
    uint32_t k = code - 0x100; /* 33 before '!', 34 from delete on, and the soft hyphen */
    return (int)(k < 33 ? k : k < 67 ? 0x7f + k - 33 : 0xad);
}

void dl_bpe_close(dl_bpe *bpe)
{
    if (!bpe) return;
    free(bpe->bytes);
    free(bpe->offset);
    free(bpe->by_text);
    free(bpe->pairs);
    for (size_t i = 0; i < bpe->n_added; i++)
        free((void *)(uintptr_t)bpe->added[i].text);
    free(bpe->added);
    free(bpe);
}

int32_t dl_bpe_n(const dl_bpe *bpe)
{
    return bpe->n;
}

const char *dl_bpe_token(const dl_bpe *bpe, int32_t token, size_t *len)
{
    DL_ASSERT(token >= 0 && token < bpe->n);
    *len = bpe->offset[token + 1] - bpe->offset[token];
    return bpe->bytes + bpe->offset[token];
}

int32_t dl_bpe_end_token(const dl_bpe *bpe)
{
    return bpe->end_token;
}

int32_t dl_bpe_begin_token(const dl_bpe *bpe)
{
    return bpe->begin_token;
}

bool dl_bpe_may_cut(const dl_bpe *bpe)
{
    return bpe->may_cut;
}

dl_word_rule dl_bpe_word_rule(const dl_bpe *bpe)
{
    return bpe->how;
}

bool dl_bpe_whole_words(const dl_bpe *bpe)
{
    return bpe->whole_words;
}

/* Linear in the added tokens; it is for writers of files. */
dl_bpe_kind dl_bpe_kind_of(const dl_bpe *bpe, int32_t token)
{
    size_t len;
    for (size_t i = 0; i < bpe->n_added; i++)
        if (bpe->added[i].token == token)
            return bpe->added[i].special ? DL_BPE_SPECIAL : DL_BPE_ADDED;
    dl_bpe_token(bpe, token, &len);
    return len ? DL_BPE_BYTES : DL_BPE_NONE;
}

/* Ranks of pairs are equal only in tiktoken's files; the order is then by the two tokens. */
static int by_rank(const void *a, const void *b)
{
    const dl_bpe_merge *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

diloco_status dl_bpe_merges(dl_bpe_merge **out, size_t *n, const dl_bpe *bpe)
{
    dl_bpe_merge *merges = *out = calloc(dl_size_max(bpe->n_pairs, 1), sizeof *merges);
    *n = 0;
    if (!merges) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu merges", bpe->n_pairs);
    for (size_t i = 0; i <= bpe->pair_mask; i++) {
        uint64_t key = bpe->pairs[i].key - 1;
        if (bpe->pairs[i].key)
            merges[(*n)++] =
                (dl_bpe_merge){bpe->pairs[i].rank, (int32_t)(key >> 32), (int32_t)(uint32_t)key};
    }
    qsort(merges, *n, sizeof *merges, by_rank);
    return DILOCO_OK;
}

dl_hash dl_bpe_digest(const dl_bpe *bpe)
{
    return bpe->digest;
}

/* ---- the tables */

int32_t dl_bpe_find(const dl_bpe *bpe, const char *text, size_t len)
{
    dl_hash hash = dl_hash_bytes(text, len);
    size_t at;
    memcpy(&at, hash.bytes, sizeof at);
    for (at &= bpe->text_mask; bpe->by_text[at] >= 0; at = (at + 1) & bpe->text_mask) {
        size_t n;
        const char *token = dl_bpe_token(bpe, bpe->by_text[at], &n);
        if (n == len && memcmp(token, text, n) == 0) return bpe->by_text[at];
    }
    return -1;
}

const dl_bpe_pair *dl_bpe_find_pair(const dl_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    size_t at = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & bpe->pair_mask;
    for (; bpe->pairs[at].key; at = (at + 1) & bpe->pair_mask)
        if (bpe->pairs[at].key == key) return &bpe->pairs[at];
    return NULL;
}

/* ---- an encoder */

enum { KEY_WORDS = 3, KEY_BYTES = 8 * KEY_WORDS - 1, KEPT_TOKENS = 9, KEPT = 1 << 15 };

/* A word that was encoded before, in 64 bytes, a cache line. The key is its bytes, zeros, and its
 * length as the last byte. */
typedef struct kept {
    uint64_t key[KEY_WORDS];
    uint32_t n;
    int32_t tokens[KEPT_TOKENS];
} kept;

/* A pair that may merge. It is stale if the symbols are not left and right any more. */
typedef struct candidate {
    int32_t rank;
    uint32_t at; /* index of its left symbol */
    int32_t left, right, token;
} candidate;

/* A part of the word; a list whose first symbol is always index 0. */
typedef struct symbol {
    int32_t token;       /* -1: merged into the one before it */
    uint32_t prev, next; /* the word's length: none */
} symbol;

struct dl_bpe_encoder {
    const dl_bpe *bpe;
    kept *words; /* [KEPT] */
    symbol *symbols;
    candidate *heap;
    size_t cap, n_heap; /* symbols, with three candidates for each; candidates in the heap */
};

diloco_status dl_bpe_encoder_create(dl_bpe_encoder **out, const dl_bpe *bpe)
{
    dl_bpe_encoder *e = *out = calloc(1, sizeof *e);
    if (e) e->words = aligned_alloc(sizeof(kept), KEPT * sizeof(kept));
    if (!e || !e->words) {
        dl_bpe_encoder_destroy(e);
        *out = NULL;
        return dl_fail(DILOCO_ENOMEM, "not enough memory to encode text");
    }
    memset(e->words, 0, KEPT * sizeof(kept)); /* a word has a length, so none is all zeros */
    e->bpe = bpe;
    return DILOCO_OK;
}

void dl_bpe_encoder_destroy(dl_bpe_encoder *e)
{
    if (!e) return;
    free(e->words);
    free(e->symbols);
    free(e->heap);
    free(e);
}

/* Makes room for a word of `len` bytes. A merge removes one symbol and adds at most two pairs to
 * the len - 1 of the beginning, so 3 len candidates are enough. */
static diloco_status reserve(dl_bpe_encoder *e, size_t len)
{
    if (len <= e->cap) return DILOCO_OK;
    size_t cap = dl_size_max(2 * e->cap, dl_size_max(len, 256));
    if (len > UINT32_MAX / 4) return dl_fail(DILOCO_EINVAL, "a word of %zu bytes", len);
    symbol *symbols = reallocarray(e->symbols, cap, sizeof *symbols);
    if (symbols) e->symbols = symbols;
    candidate *heap = reallocarray(e->heap, 3 * cap, sizeof *heap);
    if (heap) e->heap = heap;
    if (!symbols || !heap)
        return dl_fail(DILOCO_ENOMEM, "out of memory for a word of %zu bytes", len);
    e->cap = cap;
    return DILOCO_OK;
}

/* ---- the heap */

static inline bool before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(dl_bpe_encoder *e, candidate c)
{
    size_t i = e->n_heap++;
    for (; i > 0 && before(&c, &e->heap[(i - 1) / 2]); i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = c;
}

static candidate pop(dl_bpe_encoder *e)
{
    candidate top = e->heap[0], last = e->heap[--e->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < e->n_heap; i = child) {
        if (child + 1 < e->n_heap && before(&e->heap[child + 1], &e->heap[child])) child++;
        if (!before(&e->heap[child], &last)) break;
        e->heap[i] = e->heap[child];
    }
    e->heap[i] = last;
    return top;
}

/* Adds the pair of the symbols at `at` and after it to the heap, if they may merge. */
static void propose(dl_bpe_encoder *e, uint32_t at, uint32_t len)
{
    const symbol *s = &e->symbols[at];
    if (s->next >= len) return;
    int32_t left = s->token, right = e->symbols[s->next].token;
    const dl_bpe_pair *pair = dl_bpe_find_pair(e->bpe, left, right);
    if (pair) push(e, (candidate){pair->rank, at, left, right, pair->token});
}

/* Merges a pair unless it is stale, and proposes the two pairs of the new symbol. */
static void merge(dl_bpe_encoder *e, const candidate *c, uint32_t len)
{
    symbol *s = &e->symbols[c->at];
    if (s->token != c->left || s->next >= len || e->symbols[s->next].token != c->right) return;
    symbol *gone = &e->symbols[s->next];
    s->token = c->token;
    s->next = gone->next;
    gone->token = -1;
    if (s->next < len) e->symbols[s->next].prev = c->at;
    if (s->prev < len) propose(e, s->prev, len);
    propose(e, c->at, len);
}

/* Encodes a word by merging its bytes. */
static diloco_status merge_all(dl_bpe_encoder *e, int32_t *tokens, size_t *n, const char *word,
                               size_t length)
{
    DL_TRY(reserve(e, length));
    uint32_t len = (uint32_t)length;
    for (uint32_t i = 0; i < len; i++)
        e->symbols[i] =
            (symbol){e->bpe->of_byte[(unsigned char)word[i]], i ? i - 1 : UINT32_MAX, i + 1};
    e->n_heap = 0;
    for (uint32_t i = 0; i + 1 < len; i++)
        propose(e, i, len);
    while (e->n_heap > 0) {
        candidate c = pop(e);
        merge(e, &c, len);
    }
    *n = 0;
    for (uint32_t i = 0; i < len; i = e->symbols[i].next)
        tokens[(*n)++] = e->symbols[i].token;
    return DILOCO_OK;
}

/* ---- words */

/* Encodes a word that is not in the encoder's table. */
static diloco_status encode_word(dl_bpe_encoder *e, int32_t *tokens, size_t *n, const char *word,
                                 size_t len)
{
    int32_t whole = e->bpe->whole_words ? dl_bpe_find(e->bpe, word, len) : -1;
    if (whole < 0) return merge_all(e, tokens, n, word, len);
    tokens[0] = whole;
    *n = 1;
    return DILOCO_OK;
}

static inline uint64_t load(const char *from, size_t n)
{
    uint64_t x = 0;
    memcpy(&x, from, n);
    return x;
}

/* Makes the key of a word of at most KEY_BYTES bytes. `left` bytes may be read from the word on;
 * eight at once are read if there are as many, which is faster than a copy of a varying length. */
static inline void make_key(uint64_t key[KEY_WORDS], const char *word, size_t len, size_t left)
{
    for (size_t k = 0; k < KEY_WORDS; k++) {
        size_t n = len > 8 * k ? dl_size_min(len - 8 * k, 8) : 0;
        if (n == 0)
            key[k] = 0;
        else if (left >= 8 * k + 8)
            key[k] = load(word + 8 * k, 8) & (UINT64_MAX >> (64 - 8 * n));
        else
            key[k] = load(word + 8 * k, n);
    }
    key[KEY_WORDS - 1] |= (uint64_t)len << 56;
}

/* Returns the one place of a key. The hash multiplies and shifts as splitmix64 does. */
static inline kept *place_of(const dl_bpe_encoder *e, const uint64_t key[KEY_WORDS])
{
    uint64_t hash = key[0] * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 29 ^ key[1]) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ hash >> 32 ^ key[2]) * UINT64_C(0x94d049bb133111eb);
    return &e->words[hash >> 49];
}
_Static_assert(KEPT == 1 << (64 - 49), "the hash's upper bits are a place");

/* Encodes a word, from the table if it is there. At most len tokens; `left` as of make_key(). */
static inline diloco_status add_word(dl_bpe_encoder *e, int32_t *tokens, size_t *n,
                                     const char *word, size_t len, size_t left)
{
    uint64_t key[KEY_WORDS];
    if (len > KEY_BYTES) return encode_word(e, tokens, n, word, len);
    make_key(key, word, len, left);
    kept *k = place_of(e, key);
    if (memcmp(k->key, key, sizeof key) != 0) {
        DL_TRY(encode_word(e, tokens, n, word, len));
        if (*n > KEPT_TOKENS) return DILOCO_OK;
        memcpy(k->key, key, sizeof key);
        k->n = (uint32_t)*n;
        memcpy(k->tokens, tokens, *n * sizeof *tokens);
        return DILOCO_OK;
    }
    *n = k->n;
    for (size_t i = 0; i < k->n; i++)
        tokens[i] = k->tokens[i];
    return DILOCO_OK;
}

/* ---- text */

/* Encodes text[begin … end), which has no added token. Bytes of [end … len) only decide where the
 * last word ends. */
static diloco_status add_plain(dl_bpe_encoder *e, int32_t *tokens, size_t *n, const char *text,
                               size_t begin, size_t end, size_t len)
{
    for (size_t word; begin < end; begin += word) {
        size_t more;
        word = dl_word(e->bpe->how, text, len, begin);
        DL_ASSERT(word <= end - begin);
        DL_TRY(add_word(e, tokens + *n, &more, text + begin, word, len - begin));
        *n += more;
    }
    return DILOCO_OK;
}

/* Finds the first place from `at` on with an added token, and the longest one there. Returns `end`
 * if no added token follows. */
static size_t find_added(const dl_bpe_added **out, const dl_bpe *bpe, const char *text, size_t at,
                         size_t end)
{
    *out = NULL;
    for (; at < end && bpe->n_added; at++) {
        if (!bpe->added_first[(unsigned char)text[at]]) continue;
        for (size_t i = 0; i < bpe->n_added; i++) {
            const dl_bpe_added *a = &bpe->added[i];
            if (a->len <= end - at && memcmp(a->text, text + at, a->len) == 0) {
                *out = a;
                return at;
            }
        }
    }
    return end;
}

diloco_status dl_bpe_encode(dl_bpe_encoder *e, int32_t *tokens, size_t *n, const char *text,
                            size_t begin, size_t end, size_t len)
{
    *n = 0;
    while (begin < end) {
        const dl_bpe_added *added;
        size_t at = find_added(&added, e->bpe, text, begin, end);
        DL_TRY(add_plain(e, tokens, n, text, begin, at, added ? at : len));
        if (!added) break;
        tokens[(*n)++] = added->token;
        begin = at + added->len;
    }
    return DILOCO_OK;
}
