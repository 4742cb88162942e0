/* cmd_presets.c - named algorithms: where they come from, and every value.
 *
 * A preset is a name, a citation and a list of option values (src/presets). Without a name this
 * command prints those lists. With a name it prints a whole configuration, which can be saved as a
 * file and trained from. */
#include "cli/settings/settings.h"
#include <diloco/train.h>

#include <string.h>

/* Room for the names that a misspelt one is compared with; more presets would not be suggested. */
enum { MAX_PRESETS = 32 };

/* Add one preset as an object; values are texts, as a configuration file has them. */
static void add_preset(dl_json *json, const diloco_preset *preset)
{
    dl_json_object(json, NULL);
    dl_json_str(json, "name", preset->name);
    dl_json_str(json, "summary", preset->summary);
    dl_json_str(json, "citation", preset->citation);
    dl_json_object(json, "values");
    for (const diloco_preset_value *v = preset->values; v->name; v++)
        dl_json_str(json, v->name, v->value);
    dl_json_end(json);
    dl_json_end(json);
}

/* One preset as an object, or all of them as an array. */
static diloco_status print_json(const diloco_preset *one)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, 1 << 20);
    dl_json_init(&json, &out);
    if (one) {
        add_preset(&json, one);
    } else {
        dl_json_array(&json, NULL);
        for (size_t i = 0; diloco_preset_at(i); i++)
            add_preset(&json, diloco_preset_at(i));
        dl_json_end(&json);
    }
    return dl_print_json(&json, &out);
}

/* Print one preset with its citation and only the values that it sets. */
static void print_preset(const diloco_preset *preset)
{
    printf("%s - %s\n    %s\n", preset->name, preset->summary, preset->citation);
    for (const diloco_preset_value *v = preset->values; v->name; v++)
        printf("    %s = %s\n", v->name, v->value);
}

/* Find a preset by its name. Returns DILOCO_EINVAL for an unknown name, with the nearest one. */
static diloco_status find(const diloco_preset **out, const char *name)
{
    const char *names[MAX_PRESETS];
    size_t n = 0;
    for (const diloco_preset *p; n < MAX_PRESETS && (p = diloco_preset_at(n)); n++) {
        names[n] = p->name;
        *out = p;
        if (strcmp(p->name, name) == 0) return DILOCO_OK;
    }
    const char *nearest = dl_nearest(names, n, name);
    return dl_fail(DILOCO_EINVAL, "there is no preset %.60s%s%s; see diloco presets", name,
                   nearest ? "; did you mean " : "", nearest ? nearest : "");
}

static diloco_status cmd_presets(const dl_args *args)
{
    const diloco_preset *one = NULL;
    if (args->target) DL_TRY(find(&one, args->target));
    if (dl_args_has(args, DL_FLAG_JSON)) return print_json(one);
    if (!one) {
        for (size_t i = 0; diloco_preset_at(i); i++)
            print_preset(diloco_preset_at(i));
        return DILOCO_OK;
    }
    /* With a name: every option as it then is. */
    dl_config config;
    dl_config_init(&config);
    DL_TRY(diloco_preset_apply(&config, one->name));
    printf("# %s - %s\n# %s\n", one->name, one->summary, one->citation);
    return dl_settings_print(&config, false);
}

const dl_command dl_command_presets = {
    .name = "presets",
    .target = "[NAME]",
    .words = DL_COMPLETE_PRESETS,
    .summary = "named algorithms: citation and values",
    .flags = DL_FLAGS(DL_FLAG_JSON),
    .run = cmd_presets,
};
