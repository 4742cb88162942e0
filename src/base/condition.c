/* condition.c - see condition.h. */
#include "base/condition.h"

#include <stdio.h>
#include <string.h>

enum { NAME_MAX = 128, VALUE_MAX = 64 };

/* Copy the first of "a|b"; its length. A value that does not fit is a bug of the table. */
static size_t first_value(char out[VALUE_MAX], const char *values)
{
    const size_t len = strcspn(values, "|");
    DL_ASSERT(len < VALUE_MAX);
    snprintf(out, VALUE_MAX, "%.*s", (int)len, values);
    return len;
}

/* The text is part of the option table, so a mistake in it is a bug. It refers to the row's text,
 * which is static. */
dl_condition dl_condition_read(dl_option_table table, const char *text)
{
    char name[NAME_MAX];
    const size_t len = strcspn(text, " ");
    dl_condition c = {.kind = DL_IS_SET, .values = ""};
    DL_ASSERT(len < NAME_MAX);
    snprintf(name, sizeof name, "%.*s", (int)len, text);
    c.row = dl_option_find(table, name);
    DL_ASSERT(c.row);
    if (strncmp(text + len, " = ", 3) == 0) {
        c.kind = DL_IS_ONE_OF;
        c.values = text + len + 3;
    } else if (strncmp(text + len, " != ", 4) == 0) {
        c.kind = DL_IS_NONE_OF;
        c.values = text + len + 4;
    } else {
        DL_ASSERT(!text[len]);
    }
    return c;
}

/* Values are compared as the option's type reads them, so "1" and "1.0" are equal for a REAL. */
bool dl_condition_holds(const dl_condition *c, const void *values)
{
    char value[VALUE_MAX];
    if (c->kind == DL_IS_SET) return !dl_option_reads(c->row, values, c->row->fallback);
    for (const char *at = c->values;; at++) {
        at += first_value(value, at);
        if (dl_option_reads(c->row, values, value)) return c->kind == DL_IS_ONE_OF;
        if (!*at) return c->kind == DL_IS_NONE_OF;
    }
}

/* Appends the condition for people: "a = x, y or z". */
diloco_status dl_condition_text(dl_buf *out, const dl_condition *c)
{
    char value[VALUE_MAX];
    const char *before = c->kind == DL_IS_NONE_OF ? " other than " : " = ";
    DL_TRY(dl_buf_addf(out, "%s", c->row->name));
    for (const char *at = c->values; *at; at += *at == '|') {
        at += first_value(value, at);
        DL_TRY(dl_buf_addf(out, "%s%s", before, value));
        before = at[0] && strchr(at + 1, '|') ? ", " : " or ";
    }
    return DILOCO_OK;
}
