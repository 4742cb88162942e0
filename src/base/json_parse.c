/* json_parse.c - a recursive descent over the grammar, once; afterwards values are found
 * by skipping.
 *
 * Invariants:
 * 1. dl_json_parse reads no byte at or after `end`, and leaves a text of which every
 *    other function may assume the grammar: those need no bounds, because a checked
 *    value ends inside the text.
 * 2. The recursion is at most DL_JSON_DEPTH deep.
 * 3. The search for duplicate keys has no memory but a table on the stack, and walks at
 *    most WORK_PER_BYTE times the length of the text. */
#include "base/json_parse.h"

#include "base/text.h"

#include <string.h>

/* ---- the grammar */

typedef struct parser {
    const char *at, *end;
    int depth;
    size_t len, work;  /* of the text; bytes walked in search of duplicate keys */
    const char *wrong; /* the error at `at`; NULL so far */
} parser;

/* The first error counts, since it is at the place that `at` shows. */
static bool fail(parser *p, const char *wrong)
{
    if (!p->wrong) p->wrong = wrong;
    return false;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void skip_space(parser *p)
{
    while (p->at < p->end && is_space(*p->at))
        p->at++;
}

static bool next_is(parser *p, char c)
{
    skip_space(p);
    if (p->at == p->end || *p->at != c) return false;
    p->at++;
    return true;
}

static bool hex4(uint32_t *out, const char *s)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

/* At a backslash. A surrogate must be the high one of a pair of escapes. A pair of escapes encodes
 * one character above 0xFFFF. Half of a pair has no UTF-8 form, so it is refused. */
static bool parse_escape(parser *p)
{
    size_t left = (size_t)(p->end - p->at);
    uint32_t high, low;
    if (left < 2) return fail(p, "the text ends in a string");
    if (p->at[1] != 'u') {
        if (!memchr("\"\\/bfnrt", p->at[1], 8)) return fail(p, "unknown escape");
        p->at += 2;
        return true;
    }
    if (left < 6 || !hex4(&high, p->at + 2)) return fail(p, "\\u wants four hex digits");
    if (high < 0xD800 || high > 0xDFFF) {
        p->at += 6;
        return true;
    }
    if (high > 0xDBFF || left < 12 || p->at[6] != '\\' || p->at[7] != 'u' ||
        !hex4(&low, p->at + 8) || low < 0xDC00 || low > 0xDFFF)
        return fail(p, "half a surrogate pair");
    p->at += 12;
    return true;
}

/* Checks escapes and UTF-8, so that later functions may decode without checks. */
static bool parse_string(parser *p)
{
    uint32_t code;
    p->at++;
    while (p->at < p->end && *p->at != '"') {
        if (*p->at == '\\') {
            if (!parse_escape(p)) return false;
            continue;
        }
        size_t n = dl_utf8_char(&code, p->at, (size_t)(p->end - p->at));
        if (n == 0) return fail(p, "a string is not UTF-8");
        if (code < 0x20) return fail(p, "a control character in a string");
        p->at += n;
    }
    if (p->at == p->end) return fail(p, "the text ends in a string");
    p->at++;
    return true;
}

static bool parse_value(parser *p);

static bool parse_array(parser *p)
{
    if (next_is(p, ']')) return true;
    do
        if (!parse_value(p)) return false;
    while (next_is(p, ','));
    return next_is(p, ']') || fail(p, "expected , or ]");
}

/* The number of members is limited here, and their keys are compared once the object is
 * complete. */
static bool parse_members(parser *p)
{
    if (next_is(p, '}')) return true;
    size_t n = 0;
    do {
        skip_space(p);
        if (p->at == p->end || *p->at != '"') return fail(p, "expected a key");
        if (++n > DL_JSON_MEMBERS) return fail(p, "too many members in one object");
        if (!parse_string(p)) return false;
        if (!next_is(p, ':')) return fail(p, "expected :");
        if (!parse_value(p)) return false;
    } while (next_is(p, ','));
    return next_is(p, '}') || fail(p, "expected , or }");
}

static bool keys_differ(parser *p, const char *object);

/* The depth limits the recursion, and so the stack. */
static bool parse_container(parser *p)
{
    const char *at = p->at;
    p->at++;
    if (++p->depth > DL_JSON_DEPTH) return fail(p, "nested too deep");
    if (!(*at == '[' ? parse_array(p) : parse_members(p))) return false;
    p->depth--;
    return *at == '[' || keys_differ(p, at);
}

static bool parse_word(parser *p, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(p->end - p->at) < len || memcmp(p->at, word, len) != 0)
        return fail(p, "expected a value");
    p->at += len;
    return true;
}

/* The first character decides the type. A number's grammar is dl_number_len's. */
static bool parse_value(parser *p)
{
    skip_space(p);
    if (p->at == p->end) return fail(p, "the text ends where a value is expected");
    switch (*p->at) {
    case '{':
    case '[':
        return parse_container(p);
    case '"':
        return parse_string(p);
    case 't':
        return parse_word(p, "true");
    case 'f':
        return parse_word(p, "false");
    case 'n':
        return parse_word(p, "null");
    }
    size_t n = dl_number_len(p->at, (size_t)(p->end - p->at));
    p->at += n;
    return n > 0 || fail(p, "expected a value");
}

static dl_json_type type_of(char first)
{
    switch (first) {
    case '{':
        return DL_JSON_OBJECT;
    case '[':
        return DL_JSON_ARRAY;
    case '"':
        return DL_JSON_STRING;
    case 't':
    case 'f':
        return DL_JSON_BOOL;
    case 'n':
        return DL_JSON_NULL;
    }
    return DL_JSON_NUMBER;
}

/* Line and column are counted only for an error. */
static diloco_status fail_at(const char *start, const parser *p)
{
    size_t line = 1, column = 1;
    for (const char *c = start; c < p->at; c++, column++)
        if (*c == '\n') line++, column = 0;
    return dl_fail(DILOCO_EPROTO, "JSON, line %zu, column %zu: %s", line, column, p->wrong);
}

diloco_status dl_json_parse(dl_json_value *out, const void *text, size_t len)
{
    const char *start = len ? text : "";
    parser p = {.at = start, .end = start + len, .len = len};
    *out = (dl_json_value){0};
    skip_space(&p);
    const char *value = p.at, *value_end = NULL;
    if (parse_value(&p)) {
        value_end = p.at;
        skip_space(&p);
        if (p.at < p.end) fail(&p, "something follows the value");
    }
    if (p.wrong) return fail_at(start, &p);
    *out = (dl_json_value){.at = value, .end = value_end, .type = type_of(*value)};
    return DILOCO_OK;
}

/* ---- places in a checked text, inside a container: its bracket ends every scan */

/* Most strings are short names and numbers. In a longer one the C library finds a quote 16 or more
 * bytes at a time. A quote after an odd number of backslashes is part of the string. */
static const char *string_end(const char *at)
{
    enum { SHORT = 16 };
    at++;
    for (int i = 0; i < SHORT && *at != '\\'; i++)
        if (*at++ == '"') return at;
    for (const char *from = at;;) {
        const char *quote = rawmemchr(from, '"'), *slash = quote;
        while (slash > from && slash[-1] == '\\')
            slash--;
        if ((quote - slash) % 2 == 0) return quote + 1;
        from = quote + 1;
    }
}

/* Brackets inside strings do not count, so strings are skipped whole. */
static const char *container_end(const char *at)
{
    int depth = 0;
    do {
        if (*at == '"') {
            at = string_end(at);
            continue;
        }
        if (*at == '{' || *at == '[') depth++;
        if (*at == '}' || *at == ']') depth--;
        at++;
    } while (depth > 0);
    return at;
}

static const char *word_end(const char *at)
{
    while (!is_space(*at) && *at != ',' && *at != ']' && *at != '}')
        at++;
    return at;
}

static dl_json_value value_at(const char *at)
{
    dl_json_type type = type_of(*at);
    if (type == DL_JSON_STRING)
        return (dl_json_value){.at = at, .end = string_end(at), .type = type};
    if (type >= DL_JSON_ARRAY)
        return (dl_json_value){.at = at, .end = container_end(at), .type = type};
    return (dl_json_value){.at = at, .end = word_end(at), .type = type};
}

dl_json_iter dl_json_each(dl_json_value container)
{
    dl_json_iter it = {.object = container.type == DL_JSON_OBJECT};
    if (container.type < DL_JSON_ARRAY) return it;
    it.next = container.at + 1;
    it.end = container.end;
    return it;
}

/* Sets key and value to the next member or element. The text was checked, so separators need no
 * check. */
bool dl_json_next(dl_json_iter *it)
{
    if (it->next == it->end) return false;
    const char *at = it->next;
    while (is_space(*at) || *at == ',')
        at++;
    if (*at == ']' || *at == '}') {
        it->next = it->end;
        return false;
    }
    if (it->object) {
        it->key = value_at(at);
        at = it->key.end;
        while (is_space(*at) || *at == ':')
            at++;
    }
    it->value = value_at(at);
    it->next = it->value.end;
    if (it->started) it->index++;
    it->started = true;
    return true;
}

size_t dl_json_count(dl_json_value container)
{
    size_t n = 0;
    for (dl_json_iter it = dl_json_each(container); dl_json_next(&it);)
        n++;
    return n;
}

/* ---- strings */

/* Decodes one character of a checked string, and moves *at past it. Returns false at the closing
 * quote. */
bool dl_json_char(uint32_t *code, const char **at)
{
    const char *s = *at;
    if (*s == '"') return false;
    if (*s != '\\') {
        *at += dl_utf8_char(code, s, 4); /* checked: it needs no more than it has */
        return true;
    }
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (s[1] != 'u') {
        *code = (unsigned char)meant[strchr(letters, s[1]) - letters];
        *at += 2;
        return true;
    }
    uint32_t low;
    hex4(code, s + 2);
    *at += 6;
    if (*code < 0xD800 || *code > 0xDFFF) return true;
    hex4(&low, s + 8);
    *code = 0x10000 + ((*code & 0x3FF) << 10 | (low & 0x3FF));
    *at += 6;
    return true;
}

/* Compares decoded characters, so an escaped key equals its plain form. */
bool dl_json_is(dl_json_value string, const char *text)
{
    if (string.type != DL_JSON_STRING) return false;
    const char *at = string.at + 1;
    const size_t len = (size_t)(string.end - 1 - at);
    if (!memchr(at, '\\', len)) return strlen(text) == len && !memcmp(at, text, len);
    uint32_t code;
    while (dl_json_char(&code, &at)) {
        char utf8[4];
        size_t n = dl_utf8_put(utf8, code);
        if (strncmp(text, utf8, n) != 0 || code == 0) return false;
        text += n;
    }
    return *text == 0;
}

dl_json_value dl_json_indexed(dl_json_index *index, dl_json_value object)
{
    if (object.type != DL_JSON_OBJECT) return object;
    dl_json_iter it = dl_json_each(object);
    for (index->n = 0; dl_json_next(&it); index->n++) {
        if (index->n == DL_JSON_INDEX_MAX) return object;
        index->key[index->n] = it.key;
        index->value[index->n] = it.value;
    }
    object.index = index;
    return object;
}

dl_json_value dl_json_get(dl_json_value object, const char *key)
{
    if (object.index) {
        for (size_t i = 0; i < object.index->n; i++)
            if (dl_json_is(object.index->key[i], key)) return object.index->value[i];
        return (dl_json_value){0};
    }
    if (object.type == DL_JSON_OBJECT)
        for (dl_json_iter it = dl_json_each(object); dl_json_next(&it);)
            if (dl_json_is(it.key, key)) return it.value;
    return (dl_json_value){0};
}

/* ---- duplicate keys
 *
 * A hash table on the stack holds the keys of one pass; an object of many members is
 * walked several times, each pass taking its share of the hashes. */

enum { SLOTS = 16384, PER_PASS = SLOTS / 4 };

/* Bytes walked for each byte of the text. DL_JSON_MEMBERS in the outermost object take 65;
 * more is a text made to be slow: such objects nested in each other. */
enum { WORK_PER_BYTE = 128 };

/* Over decoded characters, so two spellings of a key have one hash. */
static uint32_t key_hash(const char *key) /* FNV-1a, over characters */
{
    uint32_t hash = 2166136261u, code;
    for (key++; dl_json_char(&code, &key);)
        hash = (hash ^ code) * 16777619u;
    return hash ^ hash >> 15;
}

static bool same_string(parser *p, const char *a, const char *b)
{
    uint32_t x, y;
    a++, b++;
    for (;; p->work++) {
        bool more = dl_json_char(&x, &a);
        if (more != dl_json_char(&y, &b)) return false;
        if (!more || x != y) return !more;
    }
}

/* The bound is a multiple of the text's length, so parsing stays linear in it for any input. */
static bool is_too_much_work(const parser *p)
{
    return p->work / WORK_PER_BYTE > p->len;
}

/* Put the key into its slot or the next free one; with keys that were made to collide it is far. */
static bool place_key(parser *p, const char **slots, size_t n_slots, size_t first, const char *key)
{
    for (size_t i = 0; i < n_slots; i++) {
        const char **slot = &slots[(first + i) % n_slots];
        if (!*slot) {
            *slot = key;
            return true;
        }
        if (same_string(p, *slot, key)) {
            p->at = key;
            return fail(p, "this key occurs twice");
        }
        p->work++;
        if (is_too_much_work(p)) break;
    }
    return fail(p, "too many members in one object");
}

/* An attacker can choose keys with equal hashes. Such keys make searches long, and the work limit
 * ends them. */
static bool keys_differ(parser *p, const char *object)
{
    const char *slots[SLOTS];
    dl_json_value value = {.at = object, .end = p->at, .type = DL_JSON_OBJECT};
    size_t n = dl_json_count(value);
    size_t n_passes = n / PER_PASS + 1, n_slots = dl_size_min(4 * n, SLOTS);
    p->work += n_passes * (size_t)(p->at - object);
    if (is_too_much_work(p)) return fail(p, "too many members in nested objects");
    for (size_t pass = 0; pass < n_passes && n > 1; pass++) {
        memset(slots, 0, n_slots * sizeof *slots);
        for (dl_json_iter it = dl_json_each(value); dl_json_next(&it);) {
            uint32_t hash = key_hash(it.key.at);
            if (hash % n_passes == pass &&
                !place_key(p, slots, n_slots, hash / n_passes, it.key.at))
                return false;
        }
    }
    return true;
}
