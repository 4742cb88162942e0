/* option_rows.h - how a module lists its options (base/options).
 *
 * A list has one X(KIND, field, "name", "default", "unit", FLAGS, "help", …) for each option. KIND
 * is the type of the field, with the range that the option allows:
 *
 *     BOOL              bool
 *     INT(min, max)     int64_t
 *     REAL(min, max)    double
 *     TEXT(type, max)   type, a char array for at most `max` bytes of text
 *     PATH              dl_config_path
 *     NAME              dl_config_name, a row of a table of another folder
 *     CHOICE(type)      type, an enum of choice.h
 *
 * FLAGS are those of option.h, or 0. Further members of dl_option may follow the help: .alias,
 * .example, .applies_when, .needs, .why. DL_OPTION_STRUCT declares the module's struct. config.c
 * makes the rows of the table. */
#ifndef DL_BASE_OPTION_ROWS_H
#define DL_BASE_OPTION_ROWS_H

#include "base/choice.h"
#include "base/option.h"

enum { DL_PATH_MAX = 1023 };
#define DL_BIG 1e15

typedef char dl_config_path[DL_PATH_MAX + 1];
typedef char dl_config_name[DL_OPTION_NAME_MAX + 1];
typedef char dl_config_digest[33];

/* ---- the field of a row */

#define DL_FIELD_BOOL            bool
#define DL_FIELD_INT(min, max)   int64_t
#define DL_FIELD_REAL(min, max)  double
#define DL_FIELD_TEXT(type, max) type
#define DL_FIELD_PATH            dl_config_path
#define DL_FIELD_NAME            dl_config_name
#define DL_FIELD_CHOICE(type)    type

#define DL_OPTION_FIELD(kind, field, ...) DL_FIELD_##kind field;
#define DL_OPTION_STRUCT(module, rows)                                                             \
    typedef struct dl_##module##_options {                                                         \
        rows(DL_OPTION_FIELD)                                                                      \
    } dl_##module##_options;

/* ---- the members of dl_option that a kind sets */

#define DL_ROW_BOOL            .type = DL_OPTION_BOOL
#define DL_ROW_INT(low, high)  .type = DL_OPTION_INT, .min = low, .max = high
#define DL_ROW_REAL(low, high) .type = DL_OPTION_REAL, .min = low, .max = high
#define DL_ROW_TEXT(t, high)   .type = DL_OPTION_TEXT, .max = high
#define DL_ROW_PATH            .type = DL_OPTION_TEXT, .max = DL_PATH_MAX
#define DL_ROW_NAME            .type = DL_OPTION_NAME
#define DL_ROW_CHOICE(t)       .type = DL_OPTION_CHOICE, .choices = t##_names

#endif
