/* toml.h - a TOML 1.0 file as a row of flat options.
 *
 * The one C++ file of the project implements this header (toml.cc over toml++), so that the
 * rest is C. Tables and dotted keys are joined by dots:
 *
 *     [trainer]
 *     batch_size = 8          ->  "trainer.batch_size", "8", DL_TOML_INTEGER, line 2
 *
 * An array of strings comes as one text, joined by commas (DL_TOML_LIST), and as JSON. Dates,
 * infinities, other arrays, and text with a zero byte are refused with their place. */
#ifndef DL_CLI_SETTINGS_TOML_H
#define DL_CLI_SETTINGS_TOML_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The types that an option may have. A value's text is without quotes in each of them. */
typedef enum dl_toml_type {
    DL_TOML_STRING,
    DL_TOML_INTEGER,
    DL_TOML_FLOAT,
    DL_TOML_BOOL,
    DL_TOML_LIST
} dl_toml_type;

/* A place in the text, for errors. */
typedef struct dl_toml_place {
    unsigned line, column; /* from 1; the column in characters */
} dl_toml_place;

/* Texts are valid during the call. */
typedef struct dl_toml_value {
    const char *key;  /* joined by dots */
    const char *text; /* of the value, without quotes */
    dl_toml_type type;
    dl_toml_place key_at, at; /* of the key; of the value */
    const char *json;         /* of a list: its strings as a JSON array; else NULL */
    dl_toml_place comma_at;   /* of the first string of a list that has a comma; line 0: none has */
} dl_toml_value;

/* false stops the walk. */
typedef bool (*dl_toml_fn)(void *user, const dl_toml_value *value);

/* Why a text was refused, and where. Filled in by the function that returns false. */
typedef struct dl_toml_error {
    char text[256]; /* without the place */
    dl_toml_place at;
} dl_toml_error;

/* dl_toml_walk calls fn for every value, in the order of the text, until fn returns false. Returns
 * false if the text is not as described above, or if there is no memory; *error has the reason, and
 * fn was not called. A walk that fn has stopped returns true. */
bool dl_toml_walk(const char *text, size_t len, dl_toml_fn fn, void *user, dl_toml_error *error);

#ifdef __cplusplus
}
#endif
#endif
