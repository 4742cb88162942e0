/* table.h - rules.txt: which settings there are to combine, and what is said to combinations. */
#ifndef DL_TESTS_MATRIX_TABLE_H
#define DL_TESTS_MATRIX_TABLE_H

#include "base/config.h"

enum { MAX_SETTINGS = 24, MAX_VALUES = 32, MAX_AXES = 24, MAX_CONDITIONS = 6, MAX_RULES = 288 };
enum { VALUE_TEXT = 64, LINE_TEXT = 512 };

typedef struct setting {
    const dl_option *row;
    char text[VALUE_TEXT];
} setting;

/* Settings that are tried together. */
typedef struct value {
    setting settings[MAX_SETTINGS];
    size_t n;
} value;

typedef struct axis {
    value values[MAX_VALUES]; /* beside the preset's own */
    size_t n;
    bool beside;
} axis;

/* The subject of a condition or of its right side. */
typedef struct quantity {
    enum { OF_NOTHING, OF_OPTION, OF_P, OF_H_MOD_P, OF_H_BY_P } kind;
    const dl_option *row;
} quantity;

typedef struct condition {
    quantity what;
    enum { ONE_OF, NONE_OF, ABOVE, AT_LEAST, BELOW, WAS_SET } is;
    char list[LINE_TEXT]; /* of ONE_OF and NONE_OF: ",a,b," */
    quantity than;        /* of the others, or */
    double number;
} condition;

typedef struct rule {
    enum { REFUSED, INVALID, WARNED } verb;
    char code[VALUE_TEXT], words[LINE_TEXT], way_out[LINE_TEXT];
    char when[LINE_TEXT]; /* as written */
    condition conditions[MAX_CONDITIONS];
    size_t n_conditions;
    value example;
} rule;

typedef struct table {
    axis axes[MAX_AXES];
    size_t n_axes;
    rule rules[MAX_RULES];
    size_t n_rules;
} table;

/* Read rules.txt. A mistake in it is reported on stderr with its line, and ends the program. */
void table_read(table *out, const char *path);

/* The option of a short or full name; NULL: no such option. */
const dl_option *table_option(const char *name);

/* A whole combination, "SHORT=TEXT …" divided by blanks. */
void table_read_value(value *out, const char *text);

/* Do the rule's conditions hold for the settings? `given` are those that were set, beside what the
 * preset has. Never, for a rule without any. */
bool table_holds(const rule *r, const dl_config *config, const value *const *given, size_t n);

#endif
