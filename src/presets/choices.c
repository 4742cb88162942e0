/* choices.c - one row for each option whose values are rows of a table elsewhere.
 *
 * Begin with choices[]. A new codec, combiner or model needs no change here, since the tables
 * are asked for their names. */
#include "presets/choices.h"

#include "base/own.h"
#include "codec/codec.h"
#include "combine/combine.h"
#include "data/data.h"
#include "data/partition.h"
#include "model/model.h"
#include "nn/inner.h"
#include "outer/outer.h"

#include <stdio.h>
#include <string.h>

/* Names of one table that are searched for the nearest. */
enum { MAX_NAMES = 64 };

static const char *preset_at(size_t i)
{
    const diloco_preset *preset = diloco_preset_at(i);
    return preset ? preset->name : NULL;
}

static const char *outer_at(size_t i)
{
    const dl_outer *row = dl_outer_at(i);
    return row ? row->name : NULL;
}

static const char *weighting_at(size_t i)
{
    const dl_weighting *row = dl_weighting_at(i);
    return row ? row->name : NULL;
}

static const char *combiner_at(size_t i)
{
    const dl_combiner *row = dl_combiner_at(i);
    return row ? row->name : NULL;
}

static const char *codec_at(size_t i)
{
    const dl_codec *row = dl_codec_at(i);
    return row ? row->name : NULL;
}

/* The option, its values, and the place of its text in dl_config. A new option of this kind is
 * one row. */
static const struct {
    const char *option;
    dl_name_at name_at; /* of its table */
    size_t offset;      /* of a text in dl_config */
} choices[] = {
    {"preset", preset_at, offsetof(dl_config, preset)},
    {"server.diloco.outer_optimizer", outer_at, offsetof(dl_config, outer_optimizer)},
    {"server.diloco.aggregation_weighting", weighting_at, offsetof(dl_config, weighting)},
    {"server.diloco.combiner", combiner_at, offsetof(dl_config, combiner)},
    {"server.diloco.codec", codec_at, offsetof(dl_config, codec)},
    {"trainer.model_name", dl_model_name_at, offsetof(dl_config, model)},
    {"trainer.optimizer", dl_inner_name_at, offsetof(dl_config, optimizer)},
    {"trainer.lr_scheduler", dl_schedule_name_at, offsetof(dl_config, lr_scheduler)},
    {"data.datasource", dl_datasource_name_at, offsetof(dl_config, datasource)},
    {"data.sampler", dl_sampler_name_at, offsetof(dl_config, sampler)},
    {"data.tokenizer", dl_tokenizer_name_at, offsetof(dl_config, tokenizer)},
};
enum { N_CHOICES = sizeof choices / sizeof choices[0] };

/* Return value number i of the option, NULL after the last. The option may be an alias: the name
 * in its row counts. */
const char *diloco_choice_at(const char *option, size_t i)
{
    const dl_option *row = dl_option_find(dl_config_table, option);
    for (size_t k = 0; row && k < N_CHOICES; k++)
        if (strcmp(row->name, choices[k].option) == 0) return choices[k].name_at(i);
    return NULL;
}

/* Return the value that is nearest to a misspelt one, or NULL. The search for a misspelt
 * option's name serves for values as well. */
static const char *nearest(dl_name_at name_at, const char *name)
{
    dl_option rows[MAX_NAMES] = {{0}};
    dl_option_table table = {rows, 0};
    for (; table.n < MAX_NAMES && name_at(table.n); table.n++)
        rows[table.n].name = name_at(table.n);
    return dl_option_nearest(table, name);
}

/* The error lists all values, since a reader of it has no table. */
diloco_status dl_choice_in(dl_name_at name_at, const char *option, const char *name)
{
    char known[512] = "";
    for (size_t i = 0, len = 0; name_at(i); i++, len = strlen(known)) {
        if (strcmp(name_at(i), name) == 0) return DILOCO_OK;
        snprintf(known + len, sizeof known - len, "%s%s", i ? ", " : "", name_at(i));
    }
    const char *near = nearest(name_at, name);
    return dl_fail(DILOCO_EINVAL, "%s: \"%s\" is unknown%s%s; there is: %s", option, name,
                   near ? "; did you mean " : "", near ? near : "", known);
}

/* Return true for a part that a program supplies itself (include/diloco/user.h). This program
 * has no such part. */
static bool is_callers_own(const char *option, const char *name)
{
    return !strncmp(option, "server.diloco.", 14) &&
           !strncmp(name, DL_OWN_MARK, strlen(DL_OWN_MARK));
}

/* The error begins with the place where the value was written, a file and line or a flag. */
diloco_status dl_choices_check(const dl_config *config)
{
    for (size_t k = 0; k < N_CHOICES; k++) {
        const char *option = choices[k].option;
        const char *name = (const char *)config + choices[k].offset;
        diloco_status status = is_callers_own(option, name)
                                   ? dl_no_row(option, name)
                                   : dl_choice_in(choices[k].name_at, option, name);
        if (status) return dl_fail_context(status, "%s", dl_config_origin(config, option));
    }
    return DILOCO_OK;
}
