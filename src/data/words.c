/* words.c - matches the two regular expressions by hand. The first character decides which
 * alternative matches, and the second one where an alternative begins with an optional character.
 * The rest of a word is runs of one class. ASCII is classified by a table, other characters by
 * bisection in the runs of unicode_table.h. A word of n bytes takes O(n) steps. */
#include "data/words.h"

#include "base/text.h"
#include "data/unicode_table.h"

enum { N_RUNS = sizeof unicode_runs / sizeof unicode_runs[0] };

const char *dl_word_rule_pattern(dl_word_rule how)
{
    static const char *const patterns[DL_N_WORD_RULES] = {
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"};
    return patterns[how];
}

/* ---- characters */

dl_char_class dl_char_class_of(uint32_t code)
{
    size_t low = 0, high = N_RUNS; /* runs[low].first <= code < runs[high].first */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (unicode_runs[middle].first <= code)
            low = middle;
        else
            high = middle;
    }
    return (dl_char_class)unicode_runs[low].is;
}

/* The classes of ASCII, as unicode_runs has them, 32 characters a line. */
/* clang-format off */
static const unsigned char ascii[128] = {
    O, O, O, O, O, O, O, O, O, S, S, S, S, S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, N, N, N, N, N, N, N, N, N, N, O, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O};
/* clang-format on */

/* A text to match in. */
typedef struct place {
    const char *text;
    size_t len;
} place;

/* Returns the class of the character at `at` < len, and the number of its bytes. */
static inline dl_char_class look(size_t *n, const place *p, size_t at)
{
    unsigned char c = (unsigned char)p->text[at];
    uint32_t code;
    *n = 1;
    if (c < 128) return (dl_char_class)ascii[c];
    size_t bytes = dl_utf8_char(&code, p->text + at, p->len - at);
    if (bytes == 0) return DL_CHAR_OTHER;
    *n = bytes;
    return dl_char_class_of(code);
}

/* Returns the end of the run of a class that continues at `at`, after at most `most` characters. */
static inline size_t run_end(const place *p, size_t at, dl_char_class is, size_t most)
{
    size_t n;
    for (; most > 0 && at < p->len && look(&n, p, at) == is; most--)
        at += n;
    return at;
}

/* [\r\n]; false at the end of the text. */
static inline bool is_newline(const place *p, size_t at)
{
    return at < p->len && (p->text[at] == '\n' || p->text[at] == '\r');
}

/* ---- alternatives */

/* 's 't 're 've 'm 'll 'd; with `fold` in either case, where the long s is an s too. 0: none. */
static size_t contraction(const place *p, size_t at, bool fold)
{
    char a = at + 1 < p->len ? p->text[at + 1] : 0, b = at + 2 < p->len ? p->text[at + 2] : 0;
    if (fold && a == '\xc5' && b == '\xbf') return 3;
    if (fold && a >= 'A' && a <= 'Z') a = (char)(a + 32);
    if (fold && b >= 'A' && b <= 'Z') b = (char)(b + 32);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' || a == 'v') && b == 'e') return 3;
    return a == 'l' && b == 'l' ? 3 : 0;
}

/* \s+(?!\S)|\s+: all of a run at the end of the text; otherwise all but its last character, which
 * may belong to the next word; but never nothing. */
static size_t space(const place *p, size_t at)
{
    size_t end = at, last = at, n;
    while (end < p->len && look(&n, p, end) == DL_CHAR_SPACE) {
        last = end;
        end += n;
    }
    return end == p->len || last == at ? end : last;
}

/* Returns the end of the word at `at`. */
static size_t gpt2(const place *p, size_t at)
{
    size_t n, after;
    dl_char_class is = look(&n, p, at);
    if (p->text[at] == '\'') {
        size_t bytes = contraction(p, at, false);
        if (bytes) return at + bytes;
    }
    if (is != DL_CHAR_SPACE) return run_end(p, at, is, SIZE_MAX);
    if (p->text[at] == ' ' && at + 1 < p->len) {
        is = look(&after, p, at + 1);
        if (is != DL_CHAR_SPACE) return run_end(p, at + 1, is, SIZE_MAX);
    }
    return space(p, at);
}

/*  ?[^\s\p{L}\p{N}]+[\r\n]*, of which the first character of the run is at `at`. */
static size_t signs(const place *p, size_t at)
{
    at = run_end(p, at, DL_CHAR_OTHER, SIZE_MAX);
    while (is_newline(p, at))
        at++;
    return at;
}

/* \s*[\r\n]+: up to the last end of line in a run; `at` without one. */
static size_t lines(const place *p, size_t at)
{
    size_t end = at, n;
    for (; at < p->len && look(&n, p, at) == DL_CHAR_SPACE; at += n)
        if (is_newline(p, at)) end = at + 1;
    return end;
}

/* Returns the end of the word at `at`. The order of the tests is that of the alternatives, except
 * that a letter or a number can match one alternative alone. */
static size_t cl100k(const place *p, size_t at)
{
    size_t n, after;
    dl_char_class is = look(&n, p, at), next = DL_CHAR_SPACE;
    if (is == DL_CHAR_LETTER) return run_end(p, at, is, SIZE_MAX);
    if (is == DL_CHAR_NUMBER) return run_end(p, at, is, 3);
    if (p->text[at] == '\'') {
        size_t bytes = contraction(p, at, true);
        if (bytes) return at + bytes;
    }
    if (at + n < p->len) next = look(&after, p, at + n);
    if (next == DL_CHAR_LETTER && !is_newline(p, at)) return run_end(p, at + n, next, SIZE_MAX);
    if (is == DL_CHAR_OTHER) return signs(p, at);
    if (p->text[at] == ' ' && next == DL_CHAR_OTHER && at + 1 < p->len) return signs(p, at + 1);
    size_t end = lines(p, at);
    return end > at ? end : space(p, at);
}

size_t dl_word(dl_word_rule how, const char *text, size_t len, size_t at)
{
    const place p = {text, len};
    return (how == DL_WORD_RULE_GPT2 ? gpt2(&p, at) : cl100k(&p, at)) - at;
}

/* White space that ends a line ends a word of either kind, and a letter after it begins one. */
bool dl_word_border(const char *text, size_t at)
{
    unsigned char c = (unsigned char)text[at];
    return text[at - 1] == '\n' && c < 128 && ascii[c] == DL_CHAR_LETTER;
}
