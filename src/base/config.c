/* config.c - the option table: the rows of all modules, in the order of config.h.
 *
 * Values that must agree between replicas go into run.json and its digest; a replica
 * takes them from there. Rows without AGREE belong to a machine or to a moment. Rows with an
 * .example are the basic options, which `--help` shows; `--help=all` shows every row. */
#include "base/config.h"

#include <string.h>

#define NAMES_OF(module, choices, list) choices(DL_CHOICE_NAMES)
DL_OPTION_MODULES(NAMES_OF)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* most rows leave members out */
/* One row of the table from one X(…) of a module's list. The kind sets type and range
 * (option_rows.h); further members may follow the help. */
#define ROW(kind, field_, name_, fallback_, unit_, flags_, ...)                                    \
    {.name = name_,                                                                                \
     .offset = offsetof(dl_config, field_),                                                        \
     .fallback = fallback_,                                                                        \
     .unit = unit_,                                                                                \
     .flags = flags_,                                                                              \
     DL_ROW_##kind,                                                                                \
     .help = __VA_ARGS__},
#define ROWS_OF(module, choices, list) list(ROW)
static const dl_option rows[] = {DL_OPTION_MODULES(ROWS_OF)};
#pragma GCC diagnostic pop

_Static_assert(sizeof rows / sizeof rows[0] <= DL_CONFIG_MAX_OPTIONS, "grow origins");

const dl_option_table dl_config_table = {rows, sizeof rows / sizeof rows[0]};

/* The struct is zeroed first, so that padding and unused bytes of texts are equal everywhere. */
void dl_config_init(dl_config *config)
{
    memset(config, 0, sizeof *config);
    dl_options_defaults(dl_config_table, config, config->origins);
}

diloco_status dl_config_set(dl_config *config, const char *name, const char *text,
                            const char *origin)
{
    return dl_option_set(dl_config_table, config, config->origins, name, text, origin);
}

const char *dl_config_origin(const dl_config *config, const char *name)
{
    const dl_option *row = dl_option_find(dl_config_table, name);
    return row ? config->origins[row - rows].text : "";
}

bool dl_config_given(const dl_config *config, const char *name)
{
    return strcmp(dl_config_origin(config, name), "default") != 0;
}
