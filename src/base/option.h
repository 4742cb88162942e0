/* option.h - options are one table. A row gives the parser, the range check, --help, the
 * documentation page and the agreement digest. The rows themselves are in options/.
 *
 * Values arrive as text from three places, later ones winning: the preset, the file, the
 * command line. Every value remembers where it came from. */
#ifndef DL_BASE_OPTION_H
#define DL_BASE_OPTION_H

#include "base/buf.h"
#include "base/hash.h"

typedef enum dl_option_type {
    DL_OPTION_BOOL,  /* bool;     true, false */
    DL_OPTION_INT,   /* int64_t;  min … max; digits, with _ between them as in TOML; of steps also
                        with Plato's "it" after them */
    DL_OPTION_REAL,  /* double;   min … max */
    DL_OPTION_TEXT,  /* char[max + 1]; UTF-8 without control characters */
    DL_OPTION_NAME,  /* char[DL_OPTION_NAME_MAX + 1]; one of a registry that the layer above checks
                      */
    DL_OPTION_CHOICE /* an enum of choice.h: the index of one of `choices` */
} dl_option_type;

enum { DL_OPTION_NAME_MAX = 31, DL_OPTION_LIST_MAX = 8 };

typedef enum dl_option_flags {
    DL_OPTION_AGREE = 1,  /* the same on every replica: in run.json and the config digest */
    DL_OPTION_LIVE = 2,   /* may change while the run continues, through an entry */
    DL_OPTION_SECRET = 4, /* never printed, logged or stored */
    /* accepts one value, or the program sets it: read from files, and not in --help=all */
    DL_OPTION_FIXED = 8,
    /* only the program's own trainer reads it: of no effect where a caller trains by itself */
    DL_OPTION_TRAINER = 16
} dl_option_flags;

typedef struct dl_option {
    const char *name;  /* dotted TOML key: "server.diloco.outer_learning_rate" */
    const char *alias; /* another name it answers to, or NULL */
    dl_option_type type;
    size_t offset;              /* of the field in the struct that holds the values */
    const char *fallback;       /* the default, as text */
    double min, max;            /* range of a number; longest TEXT in bytes */
    const char *unit;           /* "steps", "seconds", …, or "" */
    const char *const *choices; /* names of a CHOICE's values, NULL after the last; else NULL */
    unsigned flags;
    const char *help;    /* a noun phrase for the value, then the default's meaning */
    const char *example; /* value of a basic option, which most runs set; NULL: advanced */
    /* Conditions on other options (condition.h); NULL: none. */
    const char *applies_when; /* the option has an effect only if this holds */
    const char *needs;        /* a value other than the default is refused unless this holds */
    const char *why;          /* reason for the condition, for a warning; NULL: it is plain */
} dl_option;

typedef struct dl_option_table {
    const dl_option *rows;
    size_t n;
} dl_option_table;

/* Where a value came from: "default", "preset diloco", "run.toml:3:1", "--set", … */
typedef struct dl_origin {
    char text[96];
} dl_origin;

/* Fill `values` (the struct the offsets are of) with the defaults. A default that does
 * not parse is a bug. */
void dl_options_defaults(dl_option_table table, void *values, dl_origin *origins);

/* Row by name or alias; NULL when no row has it. */
const dl_option *dl_option_find(dl_option_table table, const char *name);

/* Return the row's name nearest to a misspelt one by edit distance (dots and the last component
 * count), or NULL when none is near. A name that begins with it, or has its words, is near. */
const char *dl_option_nearest(dl_option_table table, const char *name);

/* Set one value from text. DILOCO_EINVAL, worded with origin, name, value, range or
 * choices, and for an unknown name the nearest one: nothing is changed then. */
DL_MUST_CHECK diloco_status dl_option_set(dl_option_table table, void *values, dl_origin *origins,
                                          const char *name, const char *text, const char *origin);

/* The value as canonical text (what dl_option_set reads back to equal bits). A secret
 * that is set reads "***". */
DL_MUST_CHECK diloco_status dl_option_text(dl_buf *out, const dl_option *row, const void *values);

/* The value of a TEXT, NAME or CHOICE, which is written in quotes; NULL for a row of another type.
 * Borrowed until the value changes. */
const char *dl_option_string(const dl_option *row, const void *values);

/* Have both the same value of this row? */
bool dl_option_equal(const dl_option *row, const void *a, const void *b);

/* Is the row's value what this text gives? */
bool dl_option_reads(const dl_option *row, const void *values, const char *text);

/* Hash of "name=value\n" over all AGREE rows in order of their names. */
DL_MUST_CHECK diloco_status dl_options_digest(dl_hash *out, dl_option_table table,
                                              const void *values);

#endif
