/* bpe_train.c - learns a vocabulary (arXiv:1508.07909). It counts the distinct words of a text.
 * Then it repeatedly makes the most frequent pair of neighbours a token, in all words.
 *
 * Counts of pairs are kept up to date word by word, since each pair has a list of the words it was
 * ever seen in. A heap has the pairs by count. An entry whose count has fallen since is pushed
 * again with the new count when it is popped. Counts only rise for pairs of the newest token, which
 * are pushed then. So the time of a merge is that of the words that it changes.
 *
 * The first tokens are the end token and the bytes. The bytes are in the order of the characters
 * that represent them, as in Hugging Face's trainer. */
#include "base/json.h"
#include "base/text.h"
#include "data/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Token of the first byte; tokens of the smallest vocabulary; an argument of change_pair(). */
enum { FIRST_BYTE = 1, SMALLEST = 257, NO_WORD = -1 };
static const char end_token[] = "<|endoftext|>";

/* A list of numbers that grows. */
typedef struct list {
    uint32_t *at; /* owned */
    size_t n, cap;
} list;

/* A distinct word. */
typedef struct word {
    const char *text; /* in the caller's text */
    uint32_t len, n;  /* bytes; symbols left */
    uint64_t count;   /* how often the texts have it */
    size_t first;     /* index of its first symbol */
} word;

/* Two neighbouring tokens. */
typedef struct pair {
    int32_t left, right; /* left < 0: free */
    int64_t count;       /* in all texts now */
    list words;          /* indices of words it was ever seen in, some of them twice */
} pair;

/* An entry of the heap; stale if `count` is not the pair's any more. */
typedef struct ranked {
    int64_t count;
    int32_t left, right;
} ranked;

/* The parts of a token. */
typedef struct token {
    int32_t left, right; /* of a byte: -1 and the byte */
} token;

typedef struct trainer {
    dl_word_rule how; /* the rule that cuts text into words */
    word *words;      /* owned, by hash: len 0 is free */
    size_t n_words, word_room;
    int32_t *symbols; /* owned; of all words */
    pair *pairs;      /* owned, by hash */
    size_t n_pairs, pair_room;
    ranked *heap; /* owned */
    size_t n_heap, heap_cap;
    token *tokens; /* owned; [vocab] */
    int32_t n_tokens;
    list fresh;     /* right and left of pairs that the last merge made */
    uint64_t total; /* words in the texts, repeated ones included */
} trainer;

static diloco_status no_memory(void)
{
    return dl_fail(DILOCO_ENOMEM, "not enough memory to learn a tokenizer");
}

static diloco_status add_number(list *l, uint32_t value)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 4;
        uint32_t *at = reallocarray(l->at, cap, sizeof *at);
        if (!at) return no_memory();
        l->at = at;
        l->cap = cap;
    }
    l->at[l->n++] = value;
    return DILOCO_OK;
}

/* ---- words */

/* Returns the place of a word, or the free one for it. */
static size_t word_place(const word *words, size_t room, const char *text, size_t len)
{
    dl_hash hash = dl_hash_bytes(text, len);
    size_t at;
    memcpy(&at, hash.bytes, sizeof at);
    for (at &= room - 1; words[at].len; at = (at + 1) & (room - 1))
        if (words[at].len == len && memcmp(words[at].text, text, len) == 0) break;
    return at;
}

static diloco_status grow_words(trainer *t)
{
    size_t room = t->word_room ? 2 * t->word_room : 1 << 14;
    word *words = calloc(room, sizeof *words);
    if (!words) return no_memory();
    for (size_t i = 0; i < t->word_room; i++)
        if (t->words[i].len)
            words[word_place(words, room, t->words[i].text, t->words[i].len)] = t->words[i];
    free(t->words);
    t->words = words;
    t->word_room = room;
    return DILOCO_OK;
}

static diloco_status count_word(trainer *t, const char *text, size_t len)
{
    if (2 * t->n_words >= t->word_room) DL_TRY(grow_words(t));
    if (len > UINT32_MAX) return dl_fail(DILOCO_EINVAL, "a word of %zu bytes", len);
    word *w = &t->words[word_place(t->words, t->word_room, text, len)];
    if (!w->len) {
        *w = (word){.text = text, .len = (uint32_t)len};
        t->n_words++;
    }
    w->count++;
    t->total++;
    return DILOCO_OK;
}

static diloco_status count_words(trainer *t, const dl_text *texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t at = 0, len; at < texts[i].len; at += len) {
            len = dl_word(t->how, texts[i].data, texts[i].len, at);
            DL_TRY(count_word(t, texts[i].data + at, len));
        }
    return DILOCO_OK;
}

/* Orders words by count, then by text, so that the order does not depend on their hashes. */
static int by_count(const void *a, const void *b)
{
    const word *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    int order = memcmp(x->text, y->text, dl_size_min(x->len, y->len));
    return order ? order : x->len < y->len ? -1 : x->len > y->len;
}

/* Turns the table into an array of words, each with the symbols of its bytes. Words are not looked
 * up afterwards, so that their index can be their name. */
static diloco_status spell_words(trainer *t)
{
    size_t n = 0, n_symbols = 0;
    int32_t of_byte[256];
    for (int32_t i = FIRST_BYTE; i < SMALLEST; i++)
        of_byte[t->tokens[i].right] = i;
    for (size_t i = 0; i < t->word_room; i++)
        if (t->words[i].len) t->words[n++] = t->words[i];
    qsort(t->words, n, sizeof *t->words, by_count);
    for (size_t i = 0; i < n; i++)
        n_symbols += t->words[i].len;
    t->symbols = malloc(dl_size_max(n_symbols, 1) * sizeof *t->symbols);
    if (!t->symbols) return no_memory();
    for (size_t i = 0, at = 0; i < n; i++) {
        word *w = &t->words[i];
        w->first = at;
        w->n = w->len;
        for (uint32_t k = 0; k < w->len; k++)
            t->symbols[at++] = of_byte[(unsigned char)w->text[k]];
    }
    return DILOCO_OK;
}

/* ---- pairs */

/* Returns the place of a pair, or the free one for it. */
static size_t pair_place(const pair *pairs, size_t room, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (room - 1);
    while (pairs[at].left >= 0 && (pairs[at].left != left || pairs[at].right != right))
        at = (at + 1) & (room - 1);
    return at;
}

static diloco_status grow_pairs(trainer *t)
{
    size_t room = t->pair_room ? 2 * t->pair_room : 1 << 14;
    pair *pairs = malloc(room * sizeof *pairs);
    if (!pairs) return no_memory();
    for (size_t i = 0; i < room; i++)
        pairs[i] = (pair){.left = -1};
    for (size_t i = 0; i < t->pair_room; i++)
        if (t->pairs[i].left >= 0)
            pairs[pair_place(pairs, room, t->pairs[i].left, t->pairs[i].right)] = t->pairs[i];
    free(t->pairs);
    t->pairs = pairs;
    t->pair_room = room;
    return DILOCO_OK;
}

/* Changes a pair's count by `by`, and adds the word `where` to its list; NO_WORD: none. */
static diloco_status change_pair(trainer *t, int32_t left, int32_t right, int64_t by, int64_t where)
{
    if (2 * t->n_pairs >= t->pair_room) DL_TRY(grow_pairs(t));
    pair *p = &t->pairs[pair_place(t->pairs, t->pair_room, left, right)];
    if (p->left < 0) {
        *p = (pair){.left = left, .right = right};
        t->n_pairs++;
    }
    p->count += by;
    return where == NO_WORD ? DILOCO_OK : add_number(&p->words, (uint32_t)where);
}

/* ---- the heap: most often first, then the smallest tokens */

static bool before(const ranked *a, const ranked *b)
{
    if (a->count != b->count) return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static diloco_status push(trainer *t, ranked r)
{
    if (t->n_heap == t->heap_cap) {
        size_t cap = t->heap_cap ? 2 * t->heap_cap : 1 << 14;
        ranked *heap = reallocarray(t->heap, cap, sizeof *heap);
        if (!heap) return no_memory();
        t->heap = heap;
        t->heap_cap = cap;
    }
    size_t i = t->n_heap++;
    for (; i > 0 && before(&r, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = r;
    return DILOCO_OK;
}

static ranked pop(trainer *t)
{
    ranked top = t->heap[0], last = t->heap[--t->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < t->n_heap; i = child) {
        if (child + 1 < t->n_heap && before(&t->heap[child + 1], &t->heap[child])) child++;
        if (!before(&t->heap[child], &last)) break;
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = last;
    return top;
}

/* ---- merging */

/* Adds a word's pairs to their counts (sign 1), or subtracts them (-1). Pairs with the token `made`
 * are new, so the word and the pair are noted; with made < 0 and sign 1 all are. */
static diloco_status count_pairs(trainer *t, size_t where, int sign, int32_t made)
{
    const word *w = &t->words[where];
    const int32_t *s = t->symbols + w->first;
    for (uint32_t k = 0; k + 1 < w->n; k++) {
        bool fresh = sign > 0 && (made < 0 || s[k] == made || s[k + 1] == made);
        DL_TRY(change_pair(t, s[k], s[k + 1], sign * (int64_t)w->count,
                           fresh ? (int64_t)where : NO_WORD));
        if (fresh && made >= 0) {
            DL_TRY(add_number(&t->fresh, (uint32_t)s[k]));
            DL_TRY(add_number(&t->fresh, (uint32_t)s[k + 1]));
        }
    }
    return DILOCO_OK;
}

/* A word is in a pair's list for ever, also after other merges have removed the pair from it. */
static bool has_pair(const trainer *t, const word *w, int32_t left, int32_t right)
{
    const int32_t *s = t->symbols + w->first;
    for (uint32_t k = 0; k + 1 < w->n; k++)
        if (s[k] == left && s[k + 1] == right) return true;
    return false;
}

/* Replaces each pair in a word by `made`, from the left: of "aaa" the first two are merged. */
static void merge_word(trainer *t, word *w, int32_t left, int32_t right, int32_t made)
{
    int32_t *s = t->symbols + w->first;
    uint32_t to = 0;
    for (uint32_t k = 0; k < w->n; k++) {
        bool both = k + 1 < w->n && s[k] == left && s[k + 1] == right;
        s[to++] = both ? made : s[k];
        k += both;
    }
    w->n = to;
}

/* Pushes the pairs of the newest token, with their final counts. */
static diloco_status push_fresh(trainer *t)
{
    for (size_t i = 0; i < t->fresh.n; i += 2) {
        int32_t left = (int32_t)t->fresh.at[i], right = (int32_t)t->fresh.at[i + 1];
        const pair *p = &t->pairs[pair_place(t->pairs, t->pair_room, left, right)];
        DL_TRY(push(t, (ranked){p->count, left, right}));
    }
    t->fresh.n = 0;
    return DILOCO_OK;
}

/* Makes a pair a token. Its list is taken out first: the pair's count falls to 0. */
static diloco_status merge_pair(trainer *t, int32_t left, int32_t right)
{
    pair *p = &t->pairs[pair_place(t->pairs, t->pair_room, left, right)];
    list words = p->words; /* the table may move */
    p->words = (list){NULL, 0, 0};
    int32_t made = t->n_tokens++;
    t->tokens[made] = (token){left, right};
    diloco_status status = DILOCO_OK;
    for (size_t i = 0; i < words.n && !status; i++) {
        word *w = &t->words[words.at[i]];
        if (!has_pair(t, w, left, right)) continue;
        status = count_pairs(t, words.at[i], -1, -1);
        merge_word(t, w, left, right, made);
        if (!status) status = count_pairs(t, words.at[i], 1, made);
    }
    free(words.at);
    return status ? status : push_fresh(t);
}

/* Merges until the vocabulary is full or no pair is there twice. */
static diloco_status learn(trainer *t, int32_t vocab)
{
    for (size_t i = 0; i < t->n_words; i++)
        DL_TRY(count_pairs(t, i, 1, -1));
    for (size_t i = 0; i < t->pair_room; i++)
        if (t->pairs[i].left >= 0)
            DL_TRY(push(t, (ranked){t->pairs[i].count, t->pairs[i].left, t->pairs[i].right}));
    while (t->n_tokens < vocab && t->n_heap > 0) {
        ranked top = pop(t);
        const pair *p = &t->pairs[pair_place(t->pairs, t->pair_room, top.left, top.right)];
        if (p->count != top.count) {
            if (p->count >= 2 && p->count < top.count)
                DL_TRY(push(t, (ranked){p->count, top.left, top.right}));
            continue;
        }
        if (top.count < 2) break;
        DL_TRY(merge_pair(t, top.left, top.right));
    }
    return DILOCO_OK;
}

/* ---- the file */

/* Appends a token in the characters that represent its bytes. The depth of the recursion is at most
 * the token's length. */
static diloco_status spell(const trainer *t, dl_buf *out, int32_t i)
{
    char utf8[4];
    const token *k = &t->tokens[i];
    if (k->left < 0)
        return dl_buf_add(out, utf8, dl_utf8_put(utf8, dl_bpe_char_of((unsigned char)k->right)));
    DL_TRY(spell(t, out, k->left));
    return spell(t, out, k->right);
}

static void put_added(dl_json *j)
{
    static const char *const no[] = {"single_word", "lstrip", "rstrip", "normalized"};
    dl_json_array(j, "added_tokens");
    dl_json_object(j, NULL);
    dl_json_i64(j, "id", 0);
    dl_json_str(j, "content", end_token);
    for (size_t i = 0; i < 4; i++)
        dl_json_bool(j, no[i], false);
    dl_json_bool(j, "special", true);
    dl_json_end(j);
    dl_json_end(j);
}

static void put_byte_level(dl_json *j, const char *key, bool use_regex)
{
    dl_json_object(j, key);
    dl_json_str(j, "type", "ByteLevel");
    dl_json_bool(j, "add_prefix_space", false);
    dl_json_bool(j, "trim_offsets", true);
    dl_json_bool(j, "use_regex", use_regex);
    dl_json_end(j);
}

/* The pre_tokenizer that cuts text by the rule `how`, in the form that bpe_read.c reads. */
static void put_words(dl_json *j, dl_word_rule how)
{
    if (how == DL_WORD_RULE_GPT2) {
        put_byte_level(j, "pre_tokenizer", true);
        return;
    }
    dl_json_object(j, "pre_tokenizer");
    dl_json_str(j, "type", "Sequence");
    dl_json_array(j, "pretokenizers");
    dl_json_object(j, NULL);
    dl_json_str(j, "type", "Split");
    dl_json_object(j, "pattern");
    dl_json_str(j, "Regex", dl_word_rule_pattern(how));
    dl_json_end(j);
    dl_json_str(j, "behavior", "Isolated");
    dl_json_bool(j, "invert", false);
    dl_json_end(j);
    put_byte_level(j, NULL, false);
    dl_json_end(j);
    dl_json_end(j);
}

/* `text` is room for one token. */
static diloco_status put_vocab(const trainer *t, dl_json *j, dl_buf *text)
{
    dl_json_object(j, "vocab");
    dl_json_i64(j, end_token, 0);
    for (int32_t i = FIRST_BYTE; i < t->n_tokens; i++) {
        dl_buf_clear(text);
        DL_TRY(spell(t, text, i));
        const char *name = dl_buf_str(text);
        if (!name) return no_memory();
        dl_json_i64(j, name, i);
    }
    dl_json_end(j);
    dl_json_array(j, "merges");
    for (int32_t i = SMALLEST; i < t->n_tokens; i++) {
        dl_json_array(j, NULL);
        for (int side = 0; side < 2; side++) {
            dl_buf_clear(text);
            DL_TRY(spell(t, text, side ? t->tokens[i].right : t->tokens[i].left));
            dl_json_strn(j, NULL, (const char *)text->data, text->len);
        }
        dl_json_end(j);
    }
    dl_json_end(j);
    return DILOCO_OK;
}

/* Writes a tokenizer.json that Hugging Face's tokenizers and bpe_read.c read. */
static diloco_status put_file(const trainer *t, dl_buf *out)
{
    static const char *const nothing[] = {"dropout", "unk_token", "continuing_subword_prefix",
                                          "end_of_word_suffix"};
    dl_json j;
    dl_buf text;
    dl_buf_init(&text, 1 << 24);
    dl_json_init(&j, out);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "version", "1.0");
    dl_json_null(&j, "truncation");
    dl_json_null(&j, "padding");
    put_added(&j);
    dl_json_null(&j, "normalizer");
    put_words(&j, t->how);
    dl_json_null(&j, "post_processor");
    put_byte_level(&j, "decoder", true);
    dl_json_object(&j, "model");
    dl_json_str(&j, "type", "BPE");
    for (size_t i = 0; i < 4; i++)
        dl_json_null(&j, nothing[i]);
    dl_json_bool(&j, "fuse_unk", false);
    dl_json_bool(&j, "byte_fallback", false);
    dl_json_bool(&j, "ignore_merges", false);
    diloco_status status = put_vocab(t, &j, &text);
    dl_json_end(&j);
    dl_json_end(&j);
    dl_buf_deinit(&text);
    if (!status) status = dl_json_done(&j);
    return status ? status : dl_buf_add(out, "\n", 1);
}

/* ---- all of it */

static void first_tokens(trainer *t)
{
    t->tokens[t->n_tokens++] = (token){-1, 0}; /* the end token; its number is never looked up */
    for (uint32_t code = 0; t->n_tokens < SMALLEST; code++) {
        int byte = dl_bpe_byte_of(code);
        if (byte >= 0) t->tokens[t->n_tokens++] = (token){-1, byte};
    }
}

/* The end token is number 0 and the bytes follow, so that a token's number shows its kind. */
static diloco_status train(trainer *t, dl_buf *out, const dl_text *texts, size_t n, int32_t vocab)
{
    t->tokens = calloc((size_t)vocab, sizeof *t->tokens);
    if (!t->tokens) return no_memory();
    first_tokens(t);
    DL_TRY(count_words(t, texts, n));
    DL_TRY(spell_words(t));
    DL_TRY(learn(t, vocab));
    return put_file(t, out);
}

diloco_status dl_bpe_train(dl_buf *out, dl_bpe_trained *report, const dl_text *texts,
                           size_t n_texts, dl_word_rule how, int32_t vocab)
{
    trainer t = {.how = how};
    *report = (dl_bpe_trained){0};
    if (vocab < SMALLEST || vocab > DL_JSON_MEMBERS)
        return dl_fail(DILOCO_EINVAL, "a vocabulary of %d tokens: give %d to %d", vocab, SMALLEST,
                       DL_JSON_MEMBERS);
    diloco_status status = grow_pairs(&t);
    if (!status) status = train(&t, out, texts, n_texts, vocab);
    *report = (dl_bpe_trained){t.total, t.n_words, t.n_tokens};
    for (size_t i = 0; i < t.pair_room; i++)
        free(t.pairs[i].words.at);
    free(t.words), free(t.symbols), free(t.pairs), free(t.heap), free(t.tokens), free(t.fresh.at);
    return status;
}
