/* option.c - one parser and one printer for each type of option; the rest walks the table.
 *
 * Invariant: a field holds only what its row allows, from dl_options_defaults on; a text
 * that does not parse changes nothing. */
#include "base/option.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEAR_MAX = 64, CUT_MIN = 3, DIGEST_MAX = 1 << 20 };

static void *field_of(void *values, const dl_option *row)
{
    return (char *)values + row->offset;
}

static const void *const_field_of(const void *values, const dl_option *row)
{
    return (const char *)values + row->offset;
}

/* ---- from text: each puts the value into the field, or says what was expected */

typedef struct expected {
    char text[160];
} expected;

static bool set_bool(void *field, const char *text, expected *want)
{
    bool is_true = strcmp(text, "true") == 0;
    if (!is_true && strcmp(text, "false") != 0) {
        snprintf(want->text, sizeof want->text, "true or false");
        return false;
    }
    *(bool *)field = is_true;
    return true;
}

/* A number's text without the _ between its digits and a leading +, as TOML has them; its length,
 * or 0. TOML allows "1_000" and "+5", and JSON does not. The result is checked by the number's own
 * parser. */
static size_t plain_number(char out[DL_NUMBER_MAX + 1], const char *text)
{
    size_t n = 0;
    if (*text == '+' && text[1] != '-') text++;
    for (const char *c = text; *c; c++) {
        bool between = c > text && c[-1] >= '0' && c[-1] <= '9' && c[1] >= '0' && c[1] <= '9';
        if (*c == '_' && between) continue;
        if (n == DL_NUMBER_MAX) return 0;
        out[n++] = *c;
    }
    return n;
}

static void want_range(expected *want, const dl_option *row, const char *kind)
{
    char min[32], max[32];
    dl_text_from_f64(min, row->min);
    dl_text_from_f64(max, row->max);
    snprintf(want->text, sizeof want->text, "%s from %s to %s%s%s", kind, min, max,
             *row->unit ? " " : "", row->unit);
}

/* "it" and "ep" are Plato's units, allowed for steps and epochs. The range is compared as double,
 * which is exact for the limits in the table. */
static bool set_int(void *field, const dl_option *row, const char *text, expected *want)
{
    char plain[DL_NUMBER_MAX + 1];
    int64_t value;
    size_t n = plain_number(plain, text);
    if (n > 2 && strcmp(row->unit, "steps") == 0 && memcmp(plain + n - 2, "it", 2) == 0) n -= 2;
    if (n > 2 && strcmp(row->unit, "epochs") == 0 && memcmp(plain + n - 2, "ep", 2) == 0) n -= 2;
    if (!dl_text_to_i64(&value, plain, n) || (double)value < row->min || (double)value > row->max) {
        want_range(want, row, "a whole number");
        return false;
    }
    *(int64_t *)field = value;
    return true;
}

/* A value that is not finite has no text that passes, so no option is NaN. */
static bool set_real(void *field, const dl_option *row, const char *text, expected *want)
{
    char plain[DL_NUMBER_MAX + 1];
    double value;
    if (!dl_text_to_real(&value, plain, plain_number(plain, text)) || value < row->min ||
        value > row->max) {
        want_range(want, row, "a number");
        return false;
    }
    *(double *)field = value;
    return true;
}

/* Control characters of both sets are refused: a value may be shown on a terminal. */
static bool is_plain_text(const char *text, size_t len)
{
    uint32_t code;
    for (size_t at = 0, n; at < len; at += n) {
        n = dl_utf8_char(&code, text + at, len - at);
        if (n == 0 || code < 0x20 || (code >= 0x7F && code < 0xA0)) return false;
    }
    return true;
}

/* The field has row->max + 1 bytes, so a text of at most that many fits with its zero byte. */
static bool set_text(void *field, const dl_option *row, const char *text, expected *want)
{
    size_t len = strlen(text), max = (size_t)row->max;
    if (len > max || !is_plain_text(text, len)) {
        snprintf(want->text, sizeof want->text,
                 "at most %zu bytes of UTF-8 without control characters", max);
        return false;
    }
    memcpy(field, text, len + 1);
    return true;
}

/* Quotes and backslashes are excluded, so a name needs no escaping anywhere. */
static bool is_name(const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~' || text[i] == '"' || text[i] == '\\') return false;
    return len > 0 && len <= DL_OPTION_NAME_MAX;
}

static bool set_name(void *field, const char *text, expected *want)
{
    if (!is_name(text)) {
        snprintf(want->text, sizeof want->text,
                 "a name of 1 to %d letters, digits and signs, without spaces and quotes",
                 DL_OPTION_NAME_MAX);
        return false;
    }
    memcpy(field, text, strlen(text) + 1);
    return true;
}

/* The index in the list is the enum's value (choice.h). */
static bool set_choice(void *field, const dl_option *row, const char *text, expected *want)
{
    size_t len = 0;
    for (int i = 0; row->choices[i]; i++) {
        if (strcmp(row->choices[i], text) != 0) continue;
        *(int *)field = i;
        return true;
    }
    for (size_t i = 0; row->choices[i] && len < sizeof want->text; i++)
        len += (size_t)snprintf(want->text + len, sizeof want->text - len, "%s%s",
                                i ? "|" : "one of ", row->choices[i]);
    return false;
}

/* The field has the type that its row says; the table and the struct come from one list. A new type
 * needs a case here and in the functions below. */
static bool set_field(void *field, const dl_option *row, const char *text, expected *want)
{
    switch (row->type) {
    case DL_OPTION_BOOL:
        return set_bool(field, text, want);
    case DL_OPTION_INT:
        return set_int(field, row, text, want);
    case DL_OPTION_REAL:
        return set_real(field, row, text, want);
    case DL_OPTION_TEXT:
        return set_text(field, row, text, want);
    case DL_OPTION_NAME:
        return set_name(field, text, want);
    case DL_OPTION_CHOICE:
        return set_choice(field, row, text, want);
    }
    DL_ASSERT(!"an option type");
    return false;
}

/* ---- the table */

/* An alias is another name of the same row, such as torchft's. */
static bool answers_to(const dl_option *row, const char *name)
{
    return strcmp(row->name, name) == 0 || (row->alias && strcmp(row->alias, name) == 0);
}

/* A linear search: the table has a few hundred rows, and lookups are rare. */
const dl_option *dl_option_find(dl_option_table table, const char *name)
{
    for (size_t i = 0; i < table.n; i++)
        if (answers_to(&table.rows[i], name)) return &table.rows[i];
    return NULL;
}

/* The nearest name is offered, because most unknown names are misspelt. */
static diloco_status no_such_option(dl_option_table table, const char *name, const char *origin)
{
    const char *nearest = dl_option_nearest(table, name);
    if (!nearest)
        return dl_fail(DILOCO_EINVAL, "%s: there is no option %.100s; diloco options lists all",
                       origin, name);
    return dl_fail(DILOCO_EINVAL, "%s: there is no option %.100s; did you mean %s?", origin, name,
                   nearest);
}

/* A secret's value is not repeated in the error. The origin is recorded only on success. */
static diloco_status set_row(const dl_option *row, void *values, dl_origin *from, const char *text,
                             const char *origin)
{
    expected want;
    if (!set_field(field_of(values, row), row, text, &want))
        return dl_fail(DILOCO_EINVAL, "%s: %s = \"%.200s\" is not %s", origin, row->name,
                       row->flags & DL_OPTION_SECRET ? "***" : text, want.text);
    snprintf(from->text, sizeof from->text, "%s", origin);
    return DILOCO_OK;
}

/* After an error value and origin are as before. */
diloco_status dl_option_set(dl_option_table table, void *values, dl_origin *origins,
                            const char *name, const char *text, const char *origin)
{
    const dl_option *row = dl_option_find(table, name);
    if (!row) return no_such_option(table, name, origin);
    return set_row(row, values, &origins[row - table.rows], text, origin);
}

/* A default goes through the same parser as any text, so a wrong default is found at the first
 * start. */
void dl_options_defaults(dl_option_table table, void *values, dl_origin *origins)
{
    for (size_t i = 0; i < table.n; i++) {
        const dl_option *row = &table.rows[i];
        const diloco_status status = set_row(row, values, &origins[i], row->fallback, "default");
        DL_ASSERT(!status);
    }
}

/* A CHOICE gives the name of its value, from the list of the enum. */
const char *dl_option_string(const dl_option *row, const void *values)
{
    const void *field = const_field_of(values, row);
    if (row->type == DL_OPTION_CHOICE) return row->choices[*(const int *)field];
    return row->type == DL_OPTION_TEXT || row->type == DL_OPTION_NAME ? field : NULL;
}

/* Texts are compared up to their zero byte, whatever follows it. */
bool dl_option_equal(const dl_option *row, const void *a, const void *b)
{
    const void *x = const_field_of(a, row), *y = const_field_of(b, row);
    switch (row->type) {
    case DL_OPTION_BOOL:
        return *(const bool *)x == *(const bool *)y;
    case DL_OPTION_INT:
        return *(const int64_t *)x == *(const int64_t *)y;
    case DL_OPTION_REAL:
        return *(const double *)x == *(const double *)y;
    case DL_OPTION_CHOICE:
        return *(const int *)x == *(const int *)y;
    case DL_OPTION_TEXT:
    case DL_OPTION_NAME:
        break;
    }
    return strcmp(x, y) == 0;
}

/* The text is parsed as the option's type, so "1e3" equals 1000 for a REAL. */
bool dl_option_reads(const dl_option *row, const void *values, const char *text)
{
    const void *is = const_field_of(values, row);
    const char *string = dl_option_string(row, values);
    union {
        bool yes;
        int64_t whole;
        double real;
    } given;
    expected want;
    if (string) return strcmp(string, text) == 0;
    if (!set_field(&given, row, text, &want)) return false;
    if (row->type == DL_OPTION_BOOL) return *(const bool *)is == given.yes;
    if (row->type == DL_OPTION_INT) return *(const int64_t *)is == given.whole;
    return *(const double *)is == given.real;
}

/* ---- to text */

static diloco_status add_real(dl_buf *out, double value)
{
    char text[32];
    dl_text_from_f64(text, value);
    return dl_buf_addf(out, "%s", text);
}

/* The text reads back to the same bits. A secret never becomes text. */
diloco_status dl_option_text(dl_buf *out, const dl_option *row, const void *values)
{
    const void *field = const_field_of(values, row);
    const char *string = dl_option_string(row, values);
    if (row->flags & DL_OPTION_SECRET)
        return dl_buf_addf(out, "%s", string && !*string ? "" : "***");
    switch (row->type) {
    case DL_OPTION_BOOL:
        return dl_buf_addf(out, "%s", *(const bool *)field ? "true" : "false");
    case DL_OPTION_INT:
        return dl_buf_addf(out, "%lld", (long long)*(const int64_t *)field);
    case DL_OPTION_REAL:
        return add_real(out, *(const double *)field);
    case DL_OPTION_TEXT:
    case DL_OPTION_NAME:
    case DL_OPTION_CHOICE:
        return dl_buf_addf(out, "%s", string);
    }
    DL_ASSERT(!"an option type");
    return DILOCO_OK;
}

/* The AGREE row whose name follows `after` in byte order; NULL after the last. Rows are taken in
 * the order of their names, so the order of the table does not change the digest. */
static const dl_option *next_agreed(dl_option_table table, const char *after)
{
    const dl_option *next = NULL;
    for (size_t i = 0; i < table.n; i++) {
        const dl_option *row = &table.rows[i];
        if (row->flags & DL_OPTION_AGREE && strcmp(row->name, after) > 0 &&
            (!next || strcmp(row->name, next->name) < 0))
            next = row;
    }
    return next;
}

static diloco_status add_agreed(dl_buf *out, dl_option_table table, const void *values)
{
    const char *after = "";
    for (const dl_option *row; (row = next_agreed(table, after)); after = row->name) {
        DL_ASSERT(!(row->flags & DL_OPTION_SECRET));
        DL_TRY(dl_buf_addf(out, "%s=", row->name));
        DL_TRY(dl_option_text(out, row, values));
        DL_TRY(dl_buf_addf(out, "\n"));
    }
    return DILOCO_OK;
}

/* Replicas with equal values have equal digests, however the values were given. */
diloco_status dl_options_digest(dl_hash *out, dl_option_table table, const void *values)
{
    dl_buf lines;
    dl_buf_init(&lines, DIGEST_MAX);
    diloco_status status = add_agreed(&lines, table, values);
    if (!status) *out = dl_hash_bytes(lines.data, lines.len);
    dl_buf_deinit(&lines);
    return status;
}

/* ---- misspelt names */

/* Edits between two names: a letter put in, left out, changed, or swapped with its neighbour
 * (optimal string alignment), row by row; NEAR_MAX for names that are longer. Three rows of the
 * matrix suffice, since a swap looks two rows back. */
static size_t distance(const char *a, const char *b)
{
    size_t rows[3][NEAR_MAX + 1], *above = rows[0], *last = rows[1], *row = rows[2];
    size_t n = strlen(b);
    if (strlen(a) >= NEAR_MAX || n >= NEAR_MAX) return NEAR_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t *spare = above;
        above = last, last = row, row = spare;
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t change = last[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = dl_size_min(change, 1 + dl_size_min(last[j], row[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = dl_size_min(row[j], above[j - 2] + 1);
        }
    }
    return row[n];
}

static const char *last_component(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Of words with _ between them, is it one, or some that follow each other? */
static bool has_words(const char *text, const char *words)
{
    const size_t len = strlen(words);
    for (const char *at = text; (at = strstr(at, words)); at++)
        if ((at == text || at[-1] == '_') && (at[len] == '_' || !at[len])) return true;
    return false;
}

/* Of a name in the right section half the letters may be wrong, else a third. */
static size_t farthest(const char *name, const char *nearest)
{
    const char *last = last_component(name);
    const size_t section = (size_t)(last - name), len = strlen(last);
    const bool right = section > 0 && strncmp(nearest, name, section) == 0 &&
                       last_component(nearest) == nearest + section;
    return dl_size_max(len / (right ? 2 : 3), 1);
}

/* Each row gets the smallest of several distances: of the whole name, of the last component, of the
 * alias. A beginning or a word of the name counts as near. */
const char *dl_option_nearest(dl_option_table table, const char *name)
{
    const char *last = last_component(name), *nearest = NULL;
    const bool may_be_cut = strlen(last) >= CUT_MIN;
    size_t best = NEAR_MAX;
    for (size_t i = 0; i < table.n; i++) {
        const dl_option *row = &table.rows[i];
        /* The right last component in the wrong section is one mistake. */
        size_t d =
            dl_size_min(distance(name, row->name), distance(last, last_component(row->name)) + 1);
        if (row->alias) d = dl_size_min(d, distance(name, row->alias));
        if (row->alias && last != name) d = dl_size_min(d, distance(last, row->alias) + 1);
        if (may_be_cut && (begins(row->name, name) || begins(last_component(row->name), name)))
            d = dl_size_min(d, 1);
        if (may_be_cut && has_words(last_component(row->name), last)) d = dl_size_min(d, 2);
        if (d < best) best = d, nearest = row->name;
    }
    return nearest && best <= farthest(name, nearest) ? nearest : NULL;
}
