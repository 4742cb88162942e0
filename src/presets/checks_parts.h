/* checks_parts.h - shared by the files of refusals and warnings: their tables, and the macros that
 * their rows are written in. */
#ifndef DL_PRESETS_CHECKS_PARTS_H
#define DL_PRESETS_CHECKS_PARTS_H

#include "base/config.h"
#include "presets/checks.h"
#include "presets/presets.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A refusal returns DILOCO_OK, or the error that stops the program. The first one that fails is
 * the one that is reported. */
typedef diloco_status (*refusal)(const dl_config *config);

/* The sentence of one warning. A check writes it, or nothing where there is no cause. Longer
 * ones are cut. */
typedef struct warning {
    char text[512]; /* "": there is no cause */
} warning;
/* A warning: its code in the record, which programs read and which is never renamed, and its
 * check. */
typedef struct warning_row {
    const char *code; /* "eager"; NULL ends a table */
    void (*check)(warning *out, const dl_config *config);
} warning_row;

/* refusals.c: of every configuration; contract.c: of runs with clients. They end with NULL. */
extern const refusal dl_refusals[];
extern const refusal dl_contract_refusals[];
extern const warning_row dl_contract_warnings[];
/* row_checks.c: of rows whose conditions do not hold. DILOCO_EREFUSED. */
DL_MUST_CHECK diloco_status dl_check_needs(const dl_config *config);
void dl_warn_unused(const dl_config *config, dl_warn_fn fn, void *user);
/* swarm_checks.c: of runs without a log; likewise. */
extern const refusal dl_swarm_refusals[];
extern const warning_row dl_swarm_warnings[];

/* Write the sentence of a warning; it is cut to the size of `out`. */
static inline void say(warning *out, const char *format, ...) DL_PRINTF(2, 3);
static inline void say(warning *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out->text, sizeof out->text, format, args);
    va_end(args);
}

/* Compare a value of the configuration with a name. */
static inline bool is(const char *value, const char *name)
{
    return strcmp(value, name) == 0;
}

/* Returns true if training continues while an exchange is in flight, or if the model is exchanged
 * in fragments. */
static inline bool overlaps(const dl_config *config)
{
    return config->fragments != 1 || config->overlap_steps > 0 ||
           config->overlap != DL_OVERLAP_STEPS;
}

/* Return true if a person wrote the option. Defaults, a preset's row, what the run has, and what
 * the program chose do not count. */
static inline bool written(const dl_config *config, const char *option)
{
    const char *origin = dl_config_origin(config, option);
    return !is(origin, "default") && !is(origin, "run") && !is(origin, "chosen") &&
           strncmp(origin, "preset ", 7) != 0;
}

/* Return true if a person wrote another value than the option would have had anyhow. A file of
 * --print-config has all of them, and none of its lines is a wish. */
static inline bool by_hand(const dl_config *config, const char *option)
{
    return written(config, option) && !dl_option_reads(dl_option_find(dl_config_table, option),
                                                       config, dl_preset_gives(config, option));
}

/* Names of options, with commas. A list that is too long is cut. */
typedef struct option_names {
    char text[384]; /* cut where there are too many */
} option_names;
static inline void add_name(option_names *to, const char *option)
{
    const size_t used = strlen(to->text);
    snprintf(to->text + used, sizeof to->text - used, "%s%s", used ? ", " : "", option);
}

/* The options of the n that are there by hand. */
static inline option_names given(const dl_config *config, const char *const *options, size_t n)
{
    option_names names = {""};
    for (size_t i = 0; i < n; i++)
        if (by_hand(config, options[i])) add_name(&names, options[i]);
    return names;
}

#endif
