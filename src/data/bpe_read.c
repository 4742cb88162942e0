/* bpe_read.c - reads tokenizer.json and tiktoken's ranks into a table. Both are untrusted input:
 *
 * 1. A number of a token is below DL_BPE_MAX_TOKENS; text takes no more bytes than the file has.
 * 2. Every byte has a token, so that any text can be encoded.
 * 3. A request of a tokenizer.json beyond this project's algorithm is refused by name.
 *
 * Ranks give no pairs. Any two tokens merge whose bytes together are a token, with its number as
 * the rank. So the pairs are all cuts of all tokens in two. */
#include "base/file.h"
#include "base/json_parse.h"
#include "base/text.h"
#include "data/bpe_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FILE_MAX, MERGE_MAX: bytes of a file, and of a merge. MAX_GPT2, MAX_CL100K: ranks; GPT-2 has
 * 50,257 and cl100k 100,256. RANK_MAX: bytes of a token in a file of ranks. The time to find a
 * token's pairs grows with the square of its bytes. The longest tokens of GPT-2, cl100k and Llama 3
 * have 128. */
enum {
    FILE_MAX = 256 << 20,
    MERGE_MAX = 1 << 16,
    MAX_GPT2 = 60000,
    MAX_CL100K = 150000,
    RANK_MAX = 256
};

/* ---- tables */

/* Places of a hash table of n rows: a power of two, so that at most half of them are used. */
static size_t room_for(size_t n)
{
    size_t room = 64;
    while (room < 2 * n)
        room *= 2;
    return room;
}

static diloco_status no_memory(void)
{
    return dl_fail(DILOCO_ENOMEM, "out of memory for a tokenizer");
}

/* Takes the memory for tokens 0 … n-1 without text, for at most n_bytes bytes of text in all and
 * for n_pairs merges. */
static diloco_status take_tables(dl_bpe *b, size_t n, size_t n_bytes, size_t n_pairs)
{
    b->n = (int32_t)n;
    b->text_mask = room_for(n) - 1;
    b->pair_mask = room_for(n_pairs) - 1;
    b->bytes = malloc(dl_size_max(n_bytes, 1));
    b->offset = calloc(n + 1, sizeof *b->offset);
    b->by_text = malloc((b->text_mask + 1) * sizeof *b->by_text);
    b->pairs = calloc(b->pair_mask + 1, sizeof *b->pairs);
    if (!b->bytes || !b->offset || !b->by_text || !b->pairs) return no_memory();
    memset(b->by_text, -1, (b->text_mask + 1) * sizeof *b->by_text);
    return DILOCO_OK;
}

/* Adds a token to the table that dl_bpe_find() searches. Of equal texts the first one stays. */
static void note_text(dl_bpe *b, int32_t token)
{
    size_t len, at;
    const char *text = dl_bpe_token(b, token, &len);
    dl_hash hash = dl_hash_bytes(text, len);
    if (dl_bpe_find(b, text, len) >= 0) return;
    memcpy(&at, hash.bytes, sizeof at);
    for (at &= b->text_mask; b->by_text[at] >= 0;)
        at = (at + 1) & b->text_mask;
    b->by_text[at] = token;
    if (len == 1) b->of_byte[(unsigned char)text[0]] = token;
}

/* Adds a pair. A pair that is there already gets the later rank. */
static void note_pair(dl_bpe *b, int32_t left, int32_t right, int32_t token, int32_t rank)
{
    uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    size_t at = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & b->pair_mask;
    while (b->pairs[at].key && b->pairs[at].key != key)
        at = (at + 1) & b->pair_mask;
    b->n_pairs += b->pairs[at].key == 0;
    b->pairs[at] = (dl_bpe_pair){key, token, rank};
}

/* Rule 2. */
static diloco_status check_bytes(const dl_bpe *b)
{
    for (int i = 0; i < 256; i++)
        if (b->of_byte[i] < 0)
            return dl_fail(DILOCO_EREFUSED,
                           "byte %d has no token, so text with that byte could not be encoded", i);
    return DILOCO_OK;
}

/* ---- strings of a tokenizer.json */

/* Writes a JSON string as UTF-8. It has at most as many bytes as in the file, since no escape is
 * shorter than its character. Returns their number. */
static size_t put_text(char *to, dl_json_value string)
{
    const char *at = string.at + 1;
    size_t len = 0;
    for (uint32_t code; dl_json_char(&code, &at);)
        len += dl_utf8_put(to + len, code);
    return len;
}

/* Writes the bytes that a token's characters represent. Returns false if one represents none. */
static bool put_bytes(char *to, size_t *len, dl_json_value string)
{
    const char *at = string.at + 1;
    *len = 0;
    for (uint32_t code; dl_json_char(&code, &at);) {
        int byte = dl_bpe_byte_of(code);
        if (byte < 0) return false;
        to[(*len)++] = (char)byte;
    }
    return true;
}

/* ---- the vocabulary */

/* One line of the vocabulary or of the added tokens. */
typedef struct entry {
    int32_t token;
    dl_json_value text; /* in the file's text */
    bool added;         /* the text is UTF-8, and not characters that represent bytes */
} entry;

static int by_token(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->token != y->token) return x->token < y->token ? -1 : 1;
    return x->added - y->added;
}

static diloco_status read_number(int32_t *out, dl_json_value value)
{
    uint64_t number;
    DL_TRY(dl_json_as_u64(&number, value, DL_BPE_MAX_TOKENS - 1));
    *out = (int32_t)number;
    return DILOCO_OK;
}

/* Lists the tokens of the model and the added ones, in order of their numbers. A token that is both
 * is in the list twice, first as the model's. */
static diloco_status list_entries(entry *entries, size_t *n, dl_json_value vocab,
                                  dl_json_value added)
{
    *n = 0;
    for (dl_json_iter it = dl_json_each(vocab); dl_json_next(&it); (*n)++) {
        entries[*n] = (entry){.text = it.key};
        DL_TRY(read_number(&entries[*n].token, it.value));
    }
    for (dl_json_iter it = dl_json_each(added); dl_json_next(&it); (*n)++) {
        entries[*n] = (entry){.text = dl_json_get(it.value, "content"), .added = true};
        if (entries[*n].text.type != DL_JSON_STRING)
            return dl_fail(DILOCO_EPROTO, "an added token has no \"content\"");
        DL_TRY(read_number(&entries[*n].token, dl_json_get(it.value, "id")));
    }
    qsort(entries, *n, sizeof *entries, by_token);
    return DILOCO_OK;
}

/* Checks that an added token has the same text in the vocabulary. The text is written after all
 * others for a moment. There is room, because both are counted in n_bytes of take_tables(). */
static diloco_status check_same(const dl_bpe *b, const entry *e)
{
    size_t len, added = put_text(b->bytes + b->n_bytes, e->text);
    const char *text = dl_bpe_token(b, e->token, &len);
    if (len == added && memcmp(text, b->bytes + b->n_bytes, len) == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "token %d is not %.*s in the vocabulary", e->token,
                   (int)dl_size_min(added, 60), b->bytes + b->n_bytes);
}

/* Writes the texts in order of their numbers. Numbers between them get an empty text. */
static diloco_status fill_texts(dl_bpe *b, const entry *entries, size_t n)
{
    int32_t next = 0;
    for (size_t i = 0; i < n; i++) {
        const entry *e = &entries[i];
        size_t len;
        if (i > 0 && e->token == entries[i - 1].token) {
            if (e->added && !entries[i - 1].added) {
                DL_TRY(check_same(b, e));
                continue;
            }
            return dl_fail(DILOCO_EPROTO, "token %d occurs twice", e->token);
        }
        while (next <= e->token)
            b->offset[next++] = b->n_bytes;
        bool bytes = !e->added && put_bytes(b->bytes + b->n_bytes, &len, e->text);
        if (!bytes) len = put_text(b->bytes + b->n_bytes, e->text);
        b->n_bytes += len;
        b->offset[next] = b->n_bytes;
        if (bytes && len) note_text(b, e->token);
    }
    return DILOCO_OK;
}

static diloco_status read_vocab(dl_bpe *b, dl_json_value vocab, dl_json_value added,
                                size_t n_merges)
{
    size_t n = dl_json_count(vocab) + dl_json_count(added), len = 0;
    if (vocab.type != DL_JSON_OBJECT || n == 0)
        return dl_fail(DILOCO_EPROTO, "\"model.vocab\" is not an object of tokens");
    entry *entries = calloc(n, sizeof *entries);
    if (!entries) return no_memory();
    diloco_status status = list_entries(entries, &n, vocab, added);
    for (size_t i = 0; i < n && !status; i++)
        len += (size_t)(entries[i].text.end - entries[i].text.at);
    if (!status) status = take_tables(b, (size_t)entries[n - 1].token + 1, len, n_merges);
    if (!status) status = fill_texts(b, entries, n);
    free(entries);
    return status;
}

/* ---- merges: "a b", or ["a", "b"] */

/* Writes the bytes of both parts, one after the other; *left is the length of the first. */
static diloco_status merge_parts(char *text, size_t *left, size_t *len, dl_json_value merge)
{
    const char *at = merge.at + 1;
    size_t n_parts = 0;
    *left = *len = 0;
    if ((size_t)(merge.end - merge.at) > MERGE_MAX) return dl_fail(DILOCO_EPROTO, "it is too long");
    if (merge.type == DL_JSON_ARRAY) {
        for (dl_json_iter it = dl_json_each(merge); dl_json_next(&it); n_parts++) {
            size_t part;
            if (it.value.type != DL_JSON_STRING || !put_bytes(text + *len, &part, it.value))
                return dl_fail(DILOCO_EPROTO, "it has a character that represents no byte");
            *len += part;
            if (n_parts == 0) *left = part;
        }
        return n_parts == 2 ? DILOCO_OK : dl_fail(DILOCO_EPROTO, "it is not a pair");
    }
    if (merge.type != DL_JSON_STRING) return dl_fail(DILOCO_EPROTO, "it is not a string");
    for (uint32_t code; dl_json_char(&code, &at);) {
        int byte = dl_bpe_byte_of(code);
        if (code == ' ' && n_parts++ == 0)
            *left = *len;
        else if (byte < 0)
            return dl_fail(DILOCO_EPROTO, "it has a character that represents no byte");
        else
            text[(*len)++] = (char)byte;
    }
    return n_parts == 1 ? DILOCO_OK : dl_fail(DILOCO_EPROTO, "it is not a pair");
}

/* `rank` is the merge's number in the list. */
static diloco_status read_merge(dl_bpe *b, char *text, dl_json_value merge, size_t rank)
{
    size_t left, len;
    DL_TRY(merge_parts(text, &left, &len, merge));
    int32_t x = dl_bpe_find(b, text, left), y = dl_bpe_find(b, text + left, len - left),
            token = dl_bpe_find(b, text, len);
    if (x < 0 || y < 0 || token < 0)
        return dl_fail(DILOCO_EPROTO, "its parts or their concatenation are not in the vocabulary");
    note_pair(b, x, y, token, (int32_t)rank);
    return DILOCO_OK;
}

static diloco_status read_merges(dl_bpe *b, dl_json_value merges)
{
    char *text = malloc(MERGE_MAX);
    if (!text) return no_memory();
    diloco_status status = DILOCO_OK;
    for (dl_json_iter it = dl_json_each(merges); !status && dl_json_next(&it);) {
        status = read_merge(b, text, it.value, it.index);
        if (status) status = dl_fail_context(status, "merge %zu", it.index);
    }
    free(text);
    return status;
}

/* ---- added tokens */

static bool is_true(dl_json_value value)
{
    return value.type == DL_JSON_BOOL && *value.at == 't';
}

static int longest_first(const void *a, const void *b)
{
    const dl_bpe_added *x = a, *y = b;
    return x->len < y->len ? 1 : x->len > y->len ? -1 : 0;
}

/* These flags change which text around a token belongs to it. */
static diloco_status check_added(dl_json_value token, const char *text)
{
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    for (size_t i = 0; i < 3; i++)
        if (is_true(dl_json_get(token, flags[i])))
            return dl_fail(DILOCO_EREFUSED, "the added token %s has %s", text, flags[i]);
    return DILOCO_OK;
}

static bool is_end_token(const char *text)
{
    return strcmp(text, "<|endoftext|>") == 0 || strcmp(text, "<|end_of_text|>") == 0;
}

/* Reads an added token. b->n_added is raised before anything can fail, so that dl_bpe_close() frees
 * the text. A token with a line break before its last byte, or one that begins with a letter, may
 * cross a border of dl_word_border(). */
static diloco_status read_added_one(dl_bpe *b, dl_json_value token)
{
    dl_json_value content = dl_json_get(token, "content");
    dl_bpe_added *a = &b->added[b->n_added];
    char *text = calloc(1, (size_t)(content.end - content.at) + 1);
    if (!text) return no_memory();
    *a = (dl_bpe_added){.text = text, .len = put_text(text, content)};
    b->n_added++;
    DL_TRY(read_number(&a->token, dl_json_get(token, "id")));
    if (a->len == 0 || strlen(text) != a->len)
        return dl_fail(DILOCO_EPROTO, "an added token is empty or has a zero byte");
    DL_TRY(check_added(token, text));
    a->special = is_true(dl_json_get(token, "special"));
    b->added_first[(unsigned char)text[0]] = true;
    if (memchr(text, '\n', a->len - 1) ||
        dl_char_class_of((unsigned char)text[0]) == DL_CHAR_LETTER)
        b->may_cut = false;
    if (is_end_token(text)) b->end_token = a->token;
    return DILOCO_OK;
}

static diloco_status read_added(dl_bpe *b, dl_json_value added)
{
    size_t n = dl_json_count(added);
    if (n > DL_BPE_MAX_ADDED)
        return dl_fail(DILOCO_EREFUSED, "%zu added tokens; at most %d are known", n,
                       DL_BPE_MAX_ADDED);
    b->added = calloc(dl_size_max(n, 1), sizeof *b->added);
    if (!b->added) return no_memory();
    for (dl_json_iter it = dl_json_each(added); dl_json_next(&it);)
        DL_TRY(read_added_one(b, it.value));
    qsort(b->added, b->n_added, sizeof *b->added, longest_first);
    return DILOCO_OK;
}

/* Finds the token that a template puts before a text, which is the first step of
 * {"single": [{"SpecialToken": {"id": …}}, …], …}. */
static void read_template(dl_bpe *b, dl_json_value step)
{
    dl_json_iter it = dl_json_each(dl_json_get(step, "single"));
    if (!dl_json_is(dl_json_get(step, "type"), "TemplateProcessing") || !dl_json_next(&it)) return;
    dl_json_value id = dl_json_get(dl_json_get(it.value, "SpecialToken"), "id");
    for (size_t i = 0; i < b->n_added; i++)
        if (dl_json_is(id, b->added[i].text)) b->begin_token = b->added[i].token;
}

/* A post_processor is one step or a Sequence of steps. */
static void read_begin(dl_bpe *b, dl_json_value post)
{
    read_template(b, post);
    for (dl_json_iter it = dl_json_each(dl_json_get(post, "processors")); dl_json_next(&it);)
        read_template(b, it.value);
}

/* ---- supported keys */

/* Rule 3. */
static diloco_status refuse(const char *what)
{
    return dl_fail(DILOCO_EREFUSED,
                   "%s is unknown to this program, and ignoring it would give other tokens", what);
}

static bool is_empty(dl_json_value value)
{
    return value.type == DL_JSON_MISSING || value.type == DL_JSON_NULL ||
           (value.type == DL_JSON_BOOL && *value.at == 'f') || dl_json_is(value, "");
}

/* Checks the options of "model" that would change tokens; they must be missing or empty. */
static diloco_status check_model(dl_bpe *b, dl_json_value model)
{
    static const char *const nothing[] = {"dropout", "unk_token", "continuing_subword_prefix",
                                          "end_of_word_suffix", "byte_fallback"};
    dl_json_value type = dl_json_get(model, "type");
    if (type.type != DL_JSON_MISSING && !dl_json_is(type, "BPE"))
        return refuse("a model.type other than BPE");
    for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++)
        if (!is_empty(dl_json_get(model, nothing[i]))) {
            char what[64];
            snprintf(what, sizeof what, "model.%s", nothing[i]);
            return refuse(what);
        }
    b->whole_words = is_true(dl_json_get(model, "ignore_merges"));
    return DILOCO_OK;
}

/* Checks a ByteLevel step. *cuts: it also cuts text into GPT-2's words. */
static diloco_status check_byte_level(bool *cuts, dl_json_value step)
{
    dl_json_value regex = dl_json_get(step, "use_regex");
    if (!dl_json_is(dl_json_get(step, "type"), "ByteLevel"))
        return refuse("a pre_tokenizer other than ByteLevel, or Split and ByteLevel");
    if (is_true(dl_json_get(step, "add_prefix_space")))
        return refuse("pre_tokenizer.add_prefix_space");
    *cuts = regex.type == DL_JSON_MISSING || is_true(regex);
    return DILOCO_OK;
}

/* Checks a Split step: its pattern must be one of the two that words.c matches. */
static diloco_status check_split(dl_bpe *b, dl_json_value step)
{
    dl_json_value regex = dl_json_get(dl_json_get(step, "pattern"), "Regex");
    if (!dl_json_is(dl_json_get(step, "type"), "Split") || is_true(dl_json_get(step, "invert")) ||
        !dl_json_is(dl_json_get(step, "behavior"), "Isolated"))
        return refuse("a pre_tokenizer other than ByteLevel, or Split (Isolated) and ByteLevel");
    for (int how = 0; how < DL_N_WORD_RULES; how++)
        if (dl_json_is(regex, dl_word_rule_pattern((dl_word_rule)how))) {
            b->how = (dl_word_rule)how;
            return DILOCO_OK;
        }
    return refuse("the pre_tokenizer's regular expression (neither GPT-2's nor cl100k's)");
}

/* Either ByteLevel alone cuts words, or a Split does and ByteLevel after it does not. */
static diloco_status check_words(dl_bpe *b, dl_json_value root)
{
    dl_json_value pre = dl_json_get(root, "pre_tokenizer"), steps[2];
    size_t n = 0;
    bool cuts;
    b->how = DL_WORD_RULE_GPT2;
    if (!dl_json_is(dl_json_get(pre, "type"), "Sequence")) {
        DL_TRY(check_byte_level(&cuts, pre));
        return cuts ? DILOCO_OK : refuse("a pre_tokenizer that does not cut words");
    }
    dl_json_value list = dl_json_get(pre, "pretokenizers");
    for (dl_json_iter it = dl_json_each(list); dl_json_next(&it) && n < 2;)
        steps[n++] = it.value;
    if (n != 2 || dl_json_count(list) != 2)
        return refuse("a pre_tokenizer other than ByteLevel, or Split and ByteLevel");
    DL_TRY(check_split(b, steps[0]));
    DL_TRY(check_byte_level(&cuts, steps[1]));
    return cuts ? refuse("a pre_tokenizer that cuts words twice") : DILOCO_OK;
}

/* The unknown parts are refused before the vocabulary is read. Merges need the vocabulary. */
static diloco_status read_json(dl_bpe *b, const void *text, size_t len)
{
    dl_json_value root;
    DL_TRY(dl_json_parse(&root, text, len));
    dl_json_value model = dl_json_get(root, "model"), added = dl_json_get(root, "added_tokens"),
                  merges = dl_json_get(model, "merges");
    if (model.type != DL_JSON_OBJECT) return dl_fail(DILOCO_EPROTO, "\"model\" is not an object");
    if (!is_empty(dl_json_get(root, "normalizer"))) return refuse("a normalizer");
    DL_TRY(check_model(b, model));
    DL_TRY(check_words(b, root));
    DL_TRY(read_vocab(b, dl_json_get(model, "vocab"), added, dl_json_count(merges)));
    DL_TRY(check_bytes(b));
    DL_TRY(read_merges(b, merges));
    DL_TRY(read_added(b, added));
    read_begin(b, dl_json_get(root, "post_processor"));
    return DILOCO_OK;
}

/* ---- ranks: lines of base64, a blank, a number */

static int sextet(char c)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(letters, c) : NULL;
    return at ? (int)(at - letters) : -1;
}

/* Decodes `len` characters of base64 (RFC 4648, section 4). Returns false if they are invalid, or
 * if the result is empty. */
static bool put_base64(char *to, size_t *n, const char *from, size_t len)
{
    uint32_t bits = 0;
    int have = 0;
    *n = 0;
    if (len == 0 || len % 4) return false;
    while (len > 0 && from[len - 1] == '=' && have++ < 2)
        len--;
    have = 0;
    for (size_t i = 0; i < len; i++) {
        int six = sextet(from[i]);
        if (six < 0) return false;
        bits = bits << 6 | (uint32_t)six;
        have += 6;
        if (have >= 8) to[(*n)++] = (char)(bits >> (have -= 8));
    }
    return *n > 0;
}

/* Finds the line that begins at *at, without its line break, and moves *at after it. Returns false
 * at the end of the text. */
static bool next_line(dl_text *line, size_t *at, const char *text, size_t len)
{
    if (*at >= len) return false;
    const char *end = memchr(text + *at, '\n', len - *at);
    size_t n = end ? (size_t)(end - text) - *at : len - *at;
    *line = (dl_text){text + *at, n};
    *at += n + 1;
    return true;
}

/* Reads a line of a file of ranks. Ranks must be consecutive, so that the rank is the token. */
static diloco_status read_rank(dl_bpe *b, dl_text line, int32_t rank)
{
    const char *blank = memchr(line.data, ' ', line.len);
    uint64_t number;
    size_t len, n = blank ? (size_t)(blank - line.data) : 0;
    if (!blank || !put_base64(b->bytes + b->n_bytes, &len, line.data, n) ||
        !dl_text_to_u64(&number, blank + 1, line.len - n - 1))
        return dl_fail(DILOCO_EPROTO, "line %d is not base64 and a number", rank + 1);
    if (number != (uint64_t)rank)
        return dl_fail(DILOCO_EPROTO, "line %d has rank %llu: ranks ascend from 0 by one", rank + 1,
                       (unsigned long long)number);
    if (len > RANK_MAX)
        return dl_fail(DILOCO_EREFUSED, "line %d is a token of %zu bytes; at most %d are known",
                       rank + 1, len, RANK_MAX);
    b->offset[rank] = b->n_bytes;
    b->n_bytes += len;
    b->offset[rank + 1] = b->n_bytes;
    note_text(b, rank);
    return DILOCO_OK;
}

/* Counts the cuts of all tokens into two tokens; with `note` it also adds them as pairs. It is
 * called twice, because the table is taken once for their number. */
static size_t cut_all(dl_bpe *b, bool note)
{
    size_t n = 0;
    for (int32_t token = 0; token < b->n; token++) {
        size_t len;
        const char *text = dl_bpe_token(b, token, &len);
        for (size_t cut = 1; cut < len; cut++) {
            int32_t left = dl_bpe_find(b, text, cut),
                    right = left < 0 ? -1 : dl_bpe_find(b, text + cut, len - cut);
            if (right < 0) continue;
            n++;
            if (note) note_pair(b, left, right, token, token);
        }
    }
    return n;
}

/* `whole_words` is set since tiktoken takes a word that is a token as it is. */
static diloco_status read_ranks(dl_bpe *b, const char *text, size_t len)
{
    dl_text line;
    size_t n = 0, at = 0, lines = 0;
    while (next_line(&line, &at, text, len))
        n++;
    if (n > MAX_CL100K)
        return dl_fail(DILOCO_EREFUSED,
                       "%zu ranks: the rule that splits text into words is unknown for this number",
                       n);
    DL_TRY(take_tables(b, n, len, 0));
    b->how = n <= MAX_GPT2 ? DL_WORD_RULE_GPT2 : DL_WORD_RULE_CL100K;
    b->whole_words = true;
    for (at = 0; next_line(&line, &at, text, len); lines++)
        DL_TRY(read_rank(b, line, (int32_t)lines));
    DL_TRY(check_bytes(b));
    free(b->pairs);
    b->pair_mask = room_for(cut_all(b, false)) - 1;
    b->pairs = calloc(b->pair_mask + 1, sizeof *b->pairs);
    if (!b->pairs) return no_memory();
    cut_all(b, true);
    return DILOCO_OK;
}

/* ---- opening */

diloco_status dl_bpe_read(dl_bpe **out, const void *text, size_t len)
{
    const char *first = text;
    dl_bpe *b = *out = calloc(1, sizeof *b);
    if (!b) return no_memory();
    b->begin_token = b->end_token = -1;
    b->may_cut = true;
    memset(b->of_byte, -1, sizeof b->of_byte);
    b->digest = dl_digest_bytes(text, len);
    diloco_status status =
        len && *first == '{' ? read_json(b, text, len) : read_ranks(b, text, len);
    if (!status) return DILOCO_OK;
    dl_bpe_close(b);
    *out = NULL;
    return status;
}

diloco_status dl_bpe_open(dl_bpe **out, const char *path)
{
    dl_buf text;
    *out = NULL;
    dl_buf_init(&text, FILE_MAX);
    DL_TRY(dl_file_read(&text, path));
    diloco_status status = dl_bpe_read(out, text.data, text.len);
    dl_buf_deinit(&text);
    return status ? dl_fail_context(status, "tokenizer %s", path) : DILOCO_OK;
}
