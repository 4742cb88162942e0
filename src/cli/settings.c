/* settings.c - values in their order: defaults, the preset, the file, --set, the other flags.
 *
 * The preset is named by a flag or in the file, so the file is walked twice: for the preset's
 * name, and, when that is applied, for the values. */
#include "cli/settings.h"

#include "base/file.h"
#include "cli/toml.h"
#include <diloco/inspect.h>
#include <diloco/train.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 20, ALL_MAX = 1 << 20, PLACE_MAX = DL_PATH_MAX + 32 };

/* ---- one value */

static const void *field(const dl_config *config, const dl_option *row)
{
    return (const char *)config + row->offset;
}

static bool equal(const dl_option *row, const dl_config *a, const dl_config *b)
{
    const void *x = field(a, row), *y = field(b, row);
    switch (row->type) {
    case DL_OPTION_BOOL:
        return *(const bool *)x == *(const bool *)y;
    case DL_OPTION_INT:
        return *(const int64_t *)x == *(const int64_t *)y;
    case DL_OPTION_REAL:
        return *(const double *)x == *(const double *)y;
    case DL_OPTION_TEXT:
    case DL_OPTION_NAME:
        break;
    }
    return strcmp(x, y) == 0;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* ---- the file */

typedef struct source {
    const char *path;
    dl_buf text;
    const char *shown; /* of path: short enough for an origin */
    dl_config *config;
    char preset[DL_OPTION_NAME_MAX + 1], preset_at[PLACE_MAX];
    diloco_status status;
} source;

static void place(char out[PLACE_MAX], const source *f, dl_toml_place at)
{
    snprintf(out, PLACE_MAX, "%s:%u:%u", f->shown, at.line, at.column);
}

static const char *kind_of(const dl_option *row)
{
    switch (row->type) {
    case DL_OPTION_BOOL:
        return "true or false, without quotes";
    case DL_OPTION_INT:
        return "a whole number, without quotes";
    case DL_OPTION_REAL:
        return "a number, without quotes";
    case DL_OPTION_TEXT:
    case DL_OPTION_NAME:
        break;
    }
    return strcmp(row->unit, "paths") ? "text in quotes" : "text in quotes, or a list of such";
}

static bool fits(const dl_option *row, dl_toml_type type)
{
    switch (row->type) {
    case DL_OPTION_BOOL:
        return type == DL_TOML_BOOL;
    case DL_OPTION_INT: /* steps may be Plato's "1000it" */
        return type == DL_TOML_INTEGER ||
               (type == DL_TOML_STRING && strcmp(row->unit, "steps") == 0);
    case DL_OPTION_REAL:
        return type == DL_TOML_INTEGER || type == DL_TOML_FLOAT;
    case DL_OPTION_TEXT:
    case DL_OPTION_NAME:
        break;
    }
    return type == DL_TOML_STRING || (type == DL_TOML_LIST && strcmp(row->unit, "paths") == 0);
}

static diloco_status take_value(source *f, const dl_toml_value *value)
{
    char at[PLACE_MAX];
    const dl_option *row = dl_option_find(dl_config_table, value->key);
    place(at, f, row ? value->at : value->key_at);
    if (row && !fits(row, value->type))
        return dl_fail(DILOCO_EINVAL, "%s: %s is %s", at, row->name, kind_of(row));
    if (row) { /* a second name of the same option is not a second key to TOML */
        const char *before = dl_config_origin(f->config, row->name);
        if (begins(before, f->shown) && before[strlen(f->shown)] == ':')
            return dl_fail(DILOCO_EINVAL, "%s: %s is given already as %s at %s; keep one", at,
                           value->key, row->name, before);
    }
    return dl_config_set(f->config, value->key, value->text, at);
}

static bool is_preset(const dl_toml_value *value)
{
    return strcmp(value->key, "preset") == 0 && value->type == DL_TOML_STRING;
}

static bool on_value(void *user, const dl_toml_value *value)
{
    source *f = user;
    if (!is_preset(value)) f->status = take_value(f, value);
    return !f->status;
}

static bool on_preset(void *user, const dl_toml_value *value)
{
    source *f = user;
    if (!is_preset(value)) return true;
    snprintf(f->preset, sizeof f->preset, "%s", value->text);
    place(f->preset_at, f, value->at);
    return false;
}

static diloco_status walk(source *f, dl_toml_fn fn)
{
    dl_toml_error error;
    f->status = DILOCO_OK;
    if (!dl_toml_walk((const char *)f->text.data, f->text.len, fn, f, &error))
        return dl_fail(DILOCO_EINVAL, "%s:%u:%u: %s", f->path, error.at.line, error.at.column,
                       error.text);
    return f->status;
}

/* Origins hold 95 characters: of a long path only its last component is shown. */
static const char *short_enough(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strlen(path) > 72 && slash ? slash + 1 : path;
}

static diloco_status open_file(source *f, dl_config *config, const char *path)
{
    *f = (source){.path = path, .shown = path ? short_enough(path) : "", .config = config};
    dl_buf_init(&f->text, FILE_MAX);
    if (!path) return DILOCO_OK;
    diloco_status status = dl_file_read(&f->text, path);
    return status == DILOCO_ENOENT
               ? dl_fail(DILOCO_EINVAL, "%s: there is no such configuration file", path)
               : status;
}

/* ---- the flags */

/* The value behind "key=" if that is what the text sets, else NULL. */
static const char *value_of(const char *text, const char *key)
{
    size_t len = strlen(key);
    return begins(text, key) && text[len] == '=' ? text + len + 1 : NULL;
}

static diloco_status take_set(dl_config *config, const char *text, dl_sets sets)
{
    char name[128];
    size_t len = strcspn(text, "=");
    snprintf(name, sizeof name, "%.*s", (int)dl_size_min(len, sizeof name - 1), text);
    const dl_option *row = dl_option_find(dl_config_table, name);
    if (row && sets == DL_SETS_MACHINE && row->flags & DL_OPTION_AGREE)
        return dl_fail(DILOCO_EINVAL,
                       "--set: %s is the run's, equal on every replica; only options of this "
                       "machine can be set here (see --help)",
                       row->name);
    return dl_config_set(config, name, text + len + 1, "--set");
}

/* A flag that is short for an option. */
static diloco_status take_flag(dl_config *config, const dl_args *args, dl_flag flag)
{
    const dl_flag_row *row = &dl_flag_rows[flag];
    dl_config before = *config;
    if (!dl_args_has(args, flag)) return DILOCO_OK;
    DL_TRY(dl_config_set(config, row->option, args->flags[flag], row->name));

    const dl_option *option = dl_option_find(dl_config_table, row->option);
    if (strcmp(dl_config_origin(&before, row->option), "--set") || equal(option, &before, config))
        return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s and --set %s contradict each other", row->name, row->option);
}

static diloco_status take_flags(dl_config *config, const dl_args *args)
{
    static const dl_flag shorthands[] = {DL_FLAG_PRESET,  DL_FLAG_STORE, DL_FLAG_COORD,
                                         DL_FLAG_ROLE,    DL_FLAG_SEED,  DL_FLAG_RECORD,
                                         DL_FLAG_RUN_LINK};
    for (size_t i = 0; i < args->n_sets; i++)
        DL_TRY(take_set(config, args->sets[i], args->command->sets));
    for (size_t i = 0; i < sizeof shorthands / sizeof *shorthands; i++)
        DL_TRY(take_flag(config, args, shorthands[i]));
    return DILOCO_OK;
}

static diloco_status contradicts_replicas(const dl_config *config, long long n)
{
    return dl_fail(DILOCO_EINVAL,
                   "--replicas %lld and run.replicas = %lld (%s) contradict each other: a machine "
                   "runs at most as many as the run has",
                   n, (long long)config->replicas, dl_config_origin(config, "run.replicas"));
}

diloco_status dl_settings_replicas(dl_config *config, const char *text)
{
    const char *origin = dl_config_origin(config, "run.replicas");
    bool by_set = strcmp(origin, "--set") == 0;
    bool by_file = !by_set && strcmp(origin, "default") != 0 && !begins(origin, "preset ");
    const char *local = dl_config_origin(config, "run.local_replicas");
    int64_t before = config->local_replicas;
    bool local_by_set = strcmp(local, "--set") == 0;

    DL_TRY(dl_config_set(config, "run.local_replicas", text, "--replicas"));
    if (config->local_replicas < 1)
        return dl_fail(DILOCO_EINVAL, "--replicas %.20s: at least one is needed", text);
    if (local_by_set && before != config->local_replicas)
        return dl_fail(DILOCO_EINVAL, "--replicas and --set run.local_replicas contradict each "
                                      "other");
    if (dl_config_federated(config)) return DILOCO_OK; /* members are clients, not processes */
    bool too_few = config->replicas < config->local_replicas;
    if (by_set && too_few) return contradicts_replicas(config, config->local_replicas);
    if ((by_set || by_file) && !too_few) return DILOCO_OK;
    return dl_config_set(config, "run.replicas", text, "--replicas");
}

/* ---- what nobody gave */

static diloco_status default_store(dl_config *config, const char *path)
{
    dl_config_path store;
    const char *slash = path ? strrchr(path, '/') : NULL;
    const char *name = slash ? slash + 1 : path ? path : "run";
    size_t len = strcspn(name, ".");
    if (*config->store) return DILOCO_OK;
    if (len == 0) name = "run", len = 3;
    int n = snprintf(store, sizeof store, "%s/%.*s", *config->base_path ? config->base_path : ".",
                     (int)len, name);
    if (n < 0 || (size_t)n >= sizeof store)
        return dl_fail(DILOCO_EINVAL, "general.base_path is too long a path; set run.store");
    return dl_config_set(config, "run.store", store, "chosen");
}

/* Where private state lives: beside a folder; of a store elsewhere, under runs/ by the name its
 * url makes. Threads of one process (mem://) have none. */
static diloco_status state_place(dl_config_path out, const char *store)
{
    static const char fine[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._=-";
    const char *place = strstr(store, "://");
    bool elsewhere = place && !begins(store, "file://");
    place = place ? place + 3 : store;
    int n = snprintf(out, sizeof(dl_config_path), "%s%s", elsewhere ? "runs/" : "", place);
    if (n < 0 || (size_t)n >= sizeof(dl_config_path))
        return dl_fail(DILOCO_EINVAL, "run.store is too long a path; set run.state_dir");
    while (n > 1 && out[n - 1] == '/')
        out[--n] = '\0';
    for (char *at = out + strlen("runs/"); elsewhere && *at; at++)
        if (!strchr(fine, *at)) *at = '-';
    return DILOCO_OK;
}

/* For each machine its own: <place>.local/<host>. */
static diloco_status default_state_dir(dl_config *config)
{
    dl_config_path place, dir;
    char host[64] = "";
    if (*config->state_dir || begins(config->store, "mem://")) return DILOCO_OK;
    DL_TRY(state_place(place, config->store));
    if (gethostname(host, sizeof host - 1) || !*host) strcpy(host, "host");
    int n = snprintf(dir, sizeof dir, "%s.local/%s", place, host);
    if (n < 0 || (size_t)n >= sizeof dir)
        return dl_fail(DILOCO_EINVAL, "run.store is too long a path; set run.state_dir");
    return dl_config_set(config, "run.state_dir", dir, "chosen");
}

/* ---- all together */

/* Applies a preset that somebody names, with the place that names it. */
static diloco_status apply_preset(dl_config *config, const dl_args *args, const source *f)
{
    const char *name = *f->preset ? f->preset : NULL, *at = f->preset_at;
    for (size_t i = 0; i < args->n_sets; i++) {
        const char *text = value_of(args->sets[i], "preset");
        if (text) name = text, at = "--set";
    }
    if (dl_args_has(args, DL_FLAG_PRESET)) name = args->flags[DL_FLAG_PRESET], at = "--preset";
    if (!name) return DILOCO_OK; /* the defaults are preset diloco's values: settings_test.c */
    diloco_status status = diloco_preset_apply(config, name);
    if (status) return dl_fail_context(status, "%s", at);
    return dl_config_set(config, "preset", name, at);
}

static diloco_status load_file(dl_config *config, const dl_args *args, const char *path)
{
    source f;
    diloco_status status = open_file(&f, config, path);
    if (!status && path) status = walk(&f, on_preset);
    if (!status) status = apply_preset(config, args, &f);
    if (!status && path) status = walk(&f, on_value);
    dl_buf_deinit(&f.text);
    return status;
}

diloco_status dl_settings_load(dl_config *out, const dl_args *args)
{
    dl_config_init(out);
    DL_TRY(load_file(out, args, args->target));
    DL_TRY(take_flags(out, args));
    if (dl_args_has(args, DL_FLAG_REPLICAS))
        DL_TRY(dl_settings_replicas(out, args->flags[DL_FLAG_REPLICAS]));
    DL_TRY(default_store(out, args->target));
    return default_state_dir(out);
}

bool dl_is_config_file(const char *target)
{
    struct stat info;
    size_t len = strlen(target);
    bool named_so = len > 5 && strcmp(target + len - 5, ".toml") == 0;
    return stat(target, &info) == 0 ? S_ISREG(info.st_mode) : named_so;
}

static diloco_status load_target(dl_config *out, const char *target)
{
    const dl_args args = {.command = dl_command_find("train"), .target = target};
    if (dl_is_config_file(target)) return dl_settings_load(out, &args);
    dl_config_init(out);
    DL_TRY(dl_config_set(out, "run.store", target, "given"));
    return default_state_dir(out);
}

diloco_status dl_settings_store(dl_config_path out, const char *target)
{
    dl_config config;
    DL_TRY(load_target(&config, target));
    memcpy(out, config.store, sizeof config.store);
    return DILOCO_OK;
}

static diloco_status tell_difference(const dl_option *row, const dl_config *file,
                                     const dl_config *run)
{
    dl_buf line;
    dl_buf_init(&line, ALL_MAX);
    diloco_status status = dl_buf_addf(&line, "note: %s is ", row->name);
    if (!status) status = dl_option_text(&line, row, run);
    if (!status) status = dl_buf_addf(&line, " in the run, ");
    if (!status) status = dl_option_text(&line, row, file);
    if (!status)
        fprintf(stderr, "diloco: %.*s at %s; the run's value counts\n", (int)line.len,
                (const char *)line.data, dl_config_origin(file, row->name));
    dl_buf_deinit(&line);
    return status;
}

/* The file's values that must agree give way to the run's; say so where they differ. */
static diloco_status tell_differences(const dl_config *file, const dl_config *run)
{
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (row->flags & DL_OPTION_AGREE && dl_config_given(file, row->name) &&
            !equal(row, file, run))
            DL_TRY(tell_difference(row, file, run));
    }
    return DILOCO_OK;
}

diloco_status dl_settings_of_run(dl_config *out, const dl_args *args)
{
    DL_TRY(load_target(out, args->target));
    dl_config file = *out;
    DL_TRY(diloco_run_config(out, file.store));
    DL_TRY(tell_differences(&file, out));
    return take_flags(out, args);
}
