/* plan_prices.c - the price table that the user supplies: a flat TOML file, every key a row, or a
 * CSV file of lines "name,value". This program holds no prices, because they change.
 *
 * Keys are written straight into dl_prices by their offsets. A misspelt key is an error, since a
 * price of 0 in its place would make a plan look cheap. */
#include "base/file.h"
#include "base/text.h"
#include "cli/plan/plan_pages.h"
#include "cli/settings/toml.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Bytes of the file. */
enum { FILE_MAX = 1 << 16 };

#define AT(field) offsetof(dl_prices, field)
/* A new price is a row here and a member of dl_prices. */
static const struct {
    const char *key;
    size_t offset, cap; /* cap: of a text; 0: a number */
    bool store;         /* a price of the store */
} rows[] = {
    {"date", AT(date), sizeof(((dl_prices *)0)->date), false},
    {"currency", AT(currency), sizeof(((dl_prices *)0)->currency), false},
    {"egress_per_gb", AT(egress_per_gb), 0, true},
    {"ingress_per_gb", AT(ingress_per_gb), 0, true},
    {"put_per_1000", AT(put_per_1000), 0, true},
    {"get_per_1000", AT(get_per_1000), 0, true},
    {"machine_hour", AT(machine_hour), 0, false},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

/* The walk's result; the first mistake ends it. */
typedef struct table {
    dl_prices *out;       /* of the caller */
    const char *path;     /* for errors */
    diloco_status status; /* the first mistake */
} table;

/* The place is that of the key, as its name is wrong. */
static diloco_status unknown_key(const table *t, const dl_toml_value *v)
{
    const char *names[N_ROWS];
    for (size_t i = 0; i < N_ROWS; i++)
        names[i] = rows[i].key;
    const char *nearest = dl_nearest(names, N_ROWS, v->key);
    return dl_fail(DILOCO_EINVAL, "%s:%u:%u: there is no price %.60s; did you mean %s?", t->path,
                   v->key_at.line, v->key_at.column, v->key, nearest ? nearest : "egress_per_gb");
}

/* Texts are made printable, since they are printed beside the cost. */
static diloco_status take(const table *t, const dl_toml_value *v)
{
    size_t i = 0;
    double number;
    while (i < N_ROWS && strcmp(rows[i].key, v->key) != 0)
        i++;
    if (i == N_ROWS) return unknown_key(t, v);
    char *field = (char *)t->out + rows[i].offset;
    /* Text: a date or a currency. */
    if (rows[i].cap) {
        if (v->type != DL_TOML_STRING || !*v->text || strlen(v->text) >= rows[i].cap)
            return dl_fail(DILOCO_EINVAL, "%s:%u:%u: %s is text in quotes, below %zu bytes",
                           t->path, v->at.line, v->at.column, v->key, rows[i].cap);
        dl_printable(field, rows[i].cap, v->text);
        return DILOCO_OK;
    }
    /* A number of either of TOML's kinds. NAN fails the comparison, too. */
    bool is_number = v->type == DL_TOML_INTEGER || v->type == DL_TOML_FLOAT;
    if (!is_number || !dl_text_to_f64(&number, v->text, strlen(v->text)) || !(number >= 0))
        return dl_fail(DILOCO_EINVAL, "%s:%u:%u: %s is a number, at least 0", t->path, v->at.line,
                       v->at.column, v->key);
    memcpy(field, &number, sizeof number);
    t->out->missing &= ~(1u << i);
    return DILOCO_OK;
}

/* The first mistake ends the walk. */
static bool on_value(void *user, const dl_toml_value *value)
{
    table *t = user;
    t->status = take(t, value);
    return !t->status;
}

/* ---- CSV */

/* Cut blanks, the end of the line and then quotes from both sides of a cell. */
static char *trim(char *cell)
{
    static const char blanks[] = " \t\r\n";
    cell += strspn(cell, blanks);
    size_t len = strlen(cell);
    while (len && strchr(blanks, cell[len - 1]))
        len--;
    const bool quoted = len > 1 && cell[0] == '"' && cell[len - 1] == '"';
    cell[len - quoted] = '\0';
    return cell + quoted;
}

/* A cell of CSV has no type, so the row decides. */
static diloco_status take_cells(table *t, char *line, unsigned number, bool seen[N_ROWS])
{
    char *comma = strchr(line, ',');
    if (!comma)
        return dl_fail(DILOCO_EINVAL, "%s:%u: a line of a CSV price table is name,value", t->path,
                       number);
    *comma = '\0';
    char *next = strchr(comma + 1, ',');
    if (next) *next++ = '\0';
    if (next && next[strspn(next, ", \t\r")])
        return dl_fail(DILOCO_EINVAL, "%s:%u: a line of a CSV price table has two cells", t->path,
                       number);
    const dl_toml_place at = {.line = number, .column = 1};
    dl_toml_value value = {
        .key = trim(line), .text = trim(comma + 1), .type = DL_TOML_FLOAT, .key_at = at, .at = at};
    if (number == 1 && !strcmp(value.key, "name") && !strcmp(value.text, "value")) return DILOCO_OK;
    for (size_t i = 0; i < N_ROWS; i++) {
        if (strcmp(rows[i].key, value.key) != 0) continue;
        if (seen[i])
            return dl_fail(DILOCO_EINVAL, "%s:%u: %s has a value already", t->path, number,
                           value.key);
        seen[i] = true;
        if (rows[i].cap) value.type = DL_TOML_STRING;
    }
    return take(t, &value);
}

/* Spreadsheets write a byte order mark in front of the first cell. */
static diloco_status walk_csv(table *t, dl_buf *text)
{
    bool seen[N_ROWS] = {false};
    if (!dl_buf_str(text)) return dl_fail(DILOCO_ENOMEM, "out of memory for the price table");
    char *rest = (char *)text->data;
    if (strlen(rest) != text->len)
        return dl_fail(DILOCO_EINVAL, "%s: a price table has no zero bytes", t->path);
    if (strncmp(rest, "\xef\xbb\xbf", 3) == 0) rest += 3;
    for (unsigned number = 1; rest; number++) {
        char *line = strsep(&rest, "\n");
        if (line[strspn(line, " \t\r")]) DL_TRY(take_cells(t, line, number, seen));
    }
    return DILOCO_OK;
}

/* ---- a file */

static diloco_status walk_toml(table *t, const dl_buf *text)
{
    dl_toml_error error;
    if (!dl_toml_walk((const char *)text->data, text->len, on_value, t, &error))
        return dl_fail(DILOCO_EINVAL, "%s:%u:%u: %s", t->path, error.at.line, error.at.column,
                       error.text);
    return t->status;
}

/* The date is required: a cost without the day of its prices misleads later. */
static diloco_status walk(table *t, dl_buf *text)
{
    const size_t len = strlen(t->path);
    if (len > 4 && strcasecmp(t->path + len - 4, ".csv") == 0)
        DL_TRY(walk_csv(t, text));
    else
        DL_TRY(walk_toml(t, text));
    if (!*t->out->date)
        return dl_fail(DILOCO_EINVAL,
                       "%s: prices need the day they were looked up, such as date = \"2026-01-31\"",
                       t->path);
    return DILOCO_OK;
}

/* All members are 0 or "" unless the file gives them, so a table of egress prices alone is
 * allowed. */
diloco_status dl_plan_prices(dl_prices *out, const char *path)
{
    dl_buf text;
    table t = {.out = out, .path = path};
    *out = (dl_prices){.currency = ""};
    for (size_t i = 0; i < N_ROWS; i++)
        if (!rows[i].cap) out->missing |= 1u << i;
    dl_buf_init(&text, FILE_MAX);
    diloco_status status = dl_file_read(&text, path);
    if (status == DILOCO_ENOENT)
        status = dl_fail(DILOCO_EINVAL, "%s: there is no such price table", path);
    if (!status) status = walk(&t, &text);
    dl_buf_deinit(&text);
    return status;
}

const char *dl_plan_missing_price(const dl_prices *prices, bool store, size_t k)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (!rows[i].cap && rows[i].store == store && prices->missing >> i & 1 && k-- == 0)
            return rows[i].key;
    return NULL;
}

const char *dl_plan_missing_prices(char out[DL_PLAN_MISSING], const dl_prices *prices, bool store)
{
    size_t len = 0;
    const char *name;
    out[0] = '\0';
    for (size_t k = 0; (name = dl_plan_missing_price(prices, store, k)); k++)
        len += (size_t)snprintf(out + len, DL_PLAN_MISSING - len, "%s%s", k ? ", " : "", name);
    return out;
}
