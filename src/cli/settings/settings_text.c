/* settings_text.c - a configuration as text: for people, for programs, and for a process that
 * this one starts.
 *
 * Three forms have one source, the option table. dl_settings_print writes TOML or JSON with the
 * origin of each value. dl_settings_write and dl_settings_read carry a configuration to a replica's
 * process. */
#include "cli/settings/settings.h"

#include "base/own.h"
#include <diloco/train.h>

#include <string.h>

/* Bytes of all settings as text. */
enum { ALL_MAX = 1 << 20 };

/* Return the place of an option's value in the configuration; its type is that of the row. */
static const void *field(const dl_config *config, const dl_option *row)
{
    return (const char *)config + row->offset;
}

/* An object for each option, with its value and its origin. Numbers and booleans keep their
 * types. */
static diloco_status print_json(const dl_config *config)
{
    dl_buf out, value;
    dl_json json;
    diloco_status status = DILOCO_OK;
    dl_buf_init(&out, ALL_MAX), dl_buf_init(&value, ALL_MAX);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    for (size_t i = 0; i < dl_config_table.n && !status; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        const bool text = dl_option_string(row, config) != NULL;
        dl_buf_clear(&value);
        status = dl_option_text(&value, row, config);
        dl_json_object(&json, row->name);
        if (text)
            dl_json_strn(&json, "value", (const char *)value.data, value.len);
        else if (row->type == DL_OPTION_BOOL)
            dl_json_bool(&json, "value", *(const bool *)field(config, row));
        else if (row->type == DL_OPTION_INT)
            dl_json_i64(&json, "value", *(const int64_t *)field(config, row));
        else
            dl_json_f64(&json, "value", *(const double *)field(config, row));
        dl_json_str(&json, "origin", config->origins[i].text);
        dl_json_end(&json);
    }
    dl_json_end(&json);
    dl_buf_deinit(&value);
    if (!status) return dl_print_json(&json, &out);
    dl_buf_deinit(&out);
    return status;
}

/* Add a value as TOML writes it: text as a JSON string, which is a basic string of TOML. */
static diloco_status add_toml(dl_buf *out, const dl_option *row, const dl_config *config)
{
    dl_buf value;
    dl_json json;
    const bool text = dl_option_string(row, config) != NULL;
    if (!text) return dl_option_text(out, row, config);
    dl_buf_init(&value, ALL_MAX);
    diloco_status status = dl_option_text(&value, row, config);
    if (!status) {
        dl_json_init(&json, out);
        dl_json_strn(&json, NULL, (const char *)value.data, value.len);
        status = dl_json_done(&json);
    }
    dl_buf_deinit(&value);
    return status;
}

/* On an error `out` may have a part of the line. */
diloco_status dl_settings_line(dl_buf *out, const dl_option *row, const dl_config *config)
{
    DL_TRY(dl_buf_addf(out, "%s = ", row->name));
    DL_TRY(add_toml(out, row, config));
    return dl_buf_addf(out, "\n");
}

/* Return "# " for defaults that ask for something as soon as a person writes them: which preset
 * it is, to wait for members, a share of the data for each. Their lines are comments, so that
 * what is printed can be trained from. */
static const char *default_mark(const dl_option *row, const char *origin)
{
    static const char *const options[] = {"server.type", "server.synchronous", "data.sampler"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (strcmp(row->name, options[i]) == 0 && strcmp(origin, "default") == 0) return "# ";
    return "";
}

/* Refuse a misspelt choice here as in training. A run's own parts are not this program's, so any
 * name of theirs is accepted. */
static diloco_status check_choice(const dl_option *row, const dl_config *config)
{
    const char *value = (const char *)config + row->offset, *name = NULL;
    if (!diloco_choice_at(row->name, 0) || !strncmp(value, DL_OWN_MARK, strlen(DL_OWN_MARK)))
        return DILOCO_OK;
    for (size_t i = 0; (name = diloco_choice_at(row->name, i)); i++)
        if (!strcmp(name, value)) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s: %s: \"%s\" is unknown; diloco options names the values",
                   dl_config_origin(config, row->name), row->name, value);
}

/* The output is a configuration file; each line ends with its origin as a comment. */
diloco_status dl_settings_print(const dl_config *config, bool json)
{
    for (size_t i = 0; i < dl_config_table.n; i++)
        DL_TRY(check_choice(&dl_config_table.rows[i], config));
    if (json) return print_json(config);
    dl_buf line;
    diloco_status status = DILOCO_OK;
    dl_buf_init(&line, ALL_MAX);
    for (size_t i = 0; i < dl_config_table.n && !status; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        dl_buf_clear(&line);
        status =
            dl_buf_addf(&line, "%s%s = ", default_mark(row, config->origins[i].text), row->name);
        if (!status) status = add_toml(&line, row, config);
        if (!status)
            printf("%-48.*s # %s\n", (int)line.len, (const char *)line.data,
                   config->origins[i].text);
    }
    dl_buf_deinit(&line);
    return status;
}

/* Write an array of [name, value, origin]. The assertion makes sure that no option is a secret,
 * which would not be passed on this way. */
diloco_status dl_settings_write(dl_buf *out, const dl_config *config)
{
    dl_buf value;
    dl_json json;
    diloco_status status = DILOCO_OK;
    dl_buf_init(&value, ALL_MAX);
    dl_json_init(&json, out);
    dl_json_array(&json, NULL);
    for (size_t i = 0; i < dl_config_table.n && !status; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        DL_ASSERT(!(row->flags & DL_OPTION_SECRET));
        dl_buf_clear(&value);
        status = dl_option_text(&value, row, config);
        dl_json_array(&json, NULL);
        dl_json_str(&json, NULL, row->name);
        dl_json_strn(&json, NULL, (const char *)value.data, value.len);
        dl_json_str(&json, NULL, config->origins[i].text);
        dl_json_end(&json);
    }
    dl_json_end(&json);
    dl_buf_deinit(&value);
    return status ? status : dl_json_done(&json);
}

/* Read one row. More than three texts are ignored; fewer leave "", which the option table
 * refuses. */
static diloco_status read_setting(dl_config *config, dl_json_value row)
{
    char text[3][DL_PATH_MAX + 1] = {"", "", ""};
    for (dl_json_iter it = dl_json_each(row); dl_json_next(&it) && it.index < 3;)
        DL_TRY(dl_json_as_str(text[it.index], sizeof text[0], it.value));
    return dl_config_set(config, text[0], text[1], text[2]);
}

/* The text comes from this program, and is checked all the same: the descriptor may be another
 * file. */
diloco_status dl_settings_read(dl_config *out, const void *text, size_t len)
{
    dl_json_value all;
    /* Every option is in the text, so no default of this process remains. */
    dl_config_init(out);
    DL_TRY(dl_json_parse(&all, text, len));
    for (dl_json_iter it = dl_json_each(all); dl_json_next(&it);)
        DL_TRY(read_setting(out, it.value));
    return DILOCO_OK;
}
