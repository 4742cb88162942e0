/* config_public.c - include/diloco/config.h over the option table. */
#include "base/config.h"

#include <stdlib.h>
#include <string.h>

/* Returns NULL without memory; no error text is set. Every option has its default. */
diloco_config *diloco_config_create(void)
{
    dl_config *config = malloc(sizeof *config);
    if (config) dl_config_init(config);
    return config;
}

void diloco_config_destroy(diloco_config *config)
{
    free(config);
}

/* `origin` is shown in errors and by diloco_config_origin; NULL means "program". */
diloco_status diloco_config_set(diloco_config *config, const char *name, const char *value,
                                const char *origin)
{
    return dl_config_set(config, name, value, origin ? origin : "program");
}

/* The value is written as canonical text, which diloco_config_set reads back. A text that does not
 * fit is an error, and out is unchanged. */
diloco_status diloco_config_get(const diloco_config *config, const char *name, char *out,
                                size_t cap)
{
    const dl_option *row = dl_option_find(dl_config_table, name);
    if (!row) return dl_fail(DILOCO_EINVAL, "there is no option %s", name);
    dl_buf text;
    dl_buf_init(&text, 65536);
    diloco_status status = dl_option_text(&text, row, config);
    if (!status && text.len >= cap)
        status =
            dl_fail(DILOCO_EINVAL, "%s has %zu bytes, there is room for %zu", name, text.len, cap);
    if (!status) {
        memcpy(out, text.data, text.len);
        out[text.len] = 0;
    }
    dl_buf_deinit(&text);
    return status;
}

const char *diloco_config_origin(const diloco_config *config, const char *name)
{
    return dl_config_origin(config, name);
}
