/* settings.c - values in their order: defaults, the preset, the file, --set, the other flags.
 *
 * The preset is named by a flag or in the file, or it follows from the file (plato.h). It is
 * applied before the file, so its name is looked for first. Begin with load(). */
#include "cli/settings/settings.h"

#include "base/log.h"
#include "base/run_kind.h"
#include "cli/settings/plato.h"
#include "cli/settings/settings_file.h"
#include "fetch/fetch_data.h"
#include <diloco/inspect.h>
#include <diloco/train.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALL_MAX = 1 << 20 };

/* ---- one value */

/* Return true if the text begins with this prefix. */
static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* ---- the flags */

/* Return the value after "key=" if the text sets that key, else NULL. */
static const char *value_of(const char *text, const char *key)
{
    size_t len = strlen(key);
    return begins(text, key) && text[len] == '=' ? text + len + 1 : NULL;
}

/* Apply one --set. Where the run decides, only options of this machine may be set. args.c has
 * made sure of the '='. */
static diloco_status take_set(dl_config *config, dl_plato *plato, const char *text, dl_sets sets)
{
    char room[128];
    size_t len = strcspn(text, "=");
    diloco_status status;
    snprintf(room, sizeof room, "%.*s", (int)dl_size_min(len, sizeof room - 1), text);
    const char *name = room, *value = text + len + 1;
    if (dl_plato_takes(&status, plato, name, value, "--set")) return status;
    dl_plato_translate(&name, &value);
    const dl_option *row = dl_option_find(dl_config_table, name);
    if (row && sets == DL_SETS_MACHINE && row->flags & DL_OPTION_AGREE)
        return dl_fail(DILOCO_EINVAL,
                       "--set: %s is the run's, equal on every replica; only options of this "
                       "machine can be set here (see --help)",
                       row->name);
    return dl_config_set(config, name, value, "--set");
}

/* Apply a flag that is short for an option. It wins over the file, but not over a different
 * --set of the same option, which is a contradiction. */
static diloco_status take_flag(dl_config *config, const dl_args *args, dl_flag flag)
{
    const dl_flag_row *row = &dl_flag_rows[flag];
    dl_config before = *config;
    if (!dl_args_has(args, flag)) return DILOCO_OK;
    DL_TRY(dl_config_set(config, row->option, args->flags[flag], row->name));

    const dl_option *option = dl_option_find(dl_config_table, row->option);
    if (strcmp(dl_config_origin(&before, row->option), "--set") ||
        dl_option_equal(option, &before, config))
        return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s and --set %s contradict each other", row->name, row->option);
}

/* Refuse an empty place on the command line, which an unset variable of a shell leaves. The default
 * place would be another run. */
static diloco_status refuse_empty_store(const dl_config *config)
{
    const char *origin = dl_config_origin(config, "run.store");
    if (*config->store || *origin != '-') return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s: store \"\" names no place", origin);
}

/* A new flag that is short for an option is one more name in the list. */
static diloco_status take_flags(dl_config *config, dl_plato *plato, const dl_args *args)
{
    static const dl_flag shorthands[] = {DL_FLAG_PRESET,  DL_FLAG_STORE, DL_FLAG_COORD,
                                         DL_FLAG_ROLE,    DL_FLAG_SEED,  DL_FLAG_RECORD,
                                         DL_FLAG_RUN_LINK};
    for (size_t i = 0; i < args->n_sets; i++)
        DL_TRY(take_set(config, plato, args->sets[i], args->command->sets));
    for (size_t i = 0; i < sizeof shorthands / sizeof *shorthands; i++)
        DL_TRY(take_flag(config, args, shorthands[i]));
    return refuse_empty_store(config);
}

/* Compose the error for more replicas here than the run has by --set. */
static diloco_status contradicts_replicas(const dl_config *config, long long n)
{
    return dl_fail(DILOCO_EINVAL,
                   "--replicas %lld and run.replicas = %lld (%s) contradict each other: a machine "
                   "runs at most as many as the run has",
                   n, (long long)config->replicas, dl_config_origin(config, "run.replicas"));
}

/* The rule for run.replicas: a given value stays where it is large enough. A smaller one in the
 * file gives way; in --set it is a contradiction. */
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
    if (!dl_run_kind_of(config)->processes)
        return DILOCO_OK; /* members are clients, not processes */
    bool too_few = config->replicas < config->local_replicas;
    if (by_set && too_few) return contradicts_replicas(config, config->local_replicas);
    if ((by_set || by_file) && !too_few) return DILOCO_OK;
    return dl_config_set(config, "run.replicas", text, "--replicas");
}

/* ---- defaults */

/* The name follows from the configuration file's, so the same command finds the same run. */
static diloco_status default_store(dl_config *config, const char *path)
{
    dl_config_path store;
    const char *slash = path ? strrchr(path, '/') : NULL;
    const char *name = slash ? slash + 1 : path ? path : "run";
    /* "exp.v2.toml" is the run "exp". A name that begins with a dot has no such part: it is
     * "run". */
    size_t len = strcspn(name, ".");
    if (*config->store) return DILOCO_OK;
    if (len == 0) name = "run", len = 3;
    int n = snprintf(store, sizeof store, "%s/%.*s", *config->base_path ? config->base_path : ".",
                     (int)len, name);
    if (n < 0 || (size_t)n >= sizeof store)
        return dl_fail(DILOCO_EINVAL, "general.base_path is too long a path; set run.store");
    return dl_config_set(config, "run.store", store, "chosen");
}

/* Write the place of private state. It is beside a folder; for a store elsewhere it is under
 * runs/, by the name that its URL makes. Threads of one process (mem://) have none. */
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
    /* Characters that a folder's name may not have become '-'. */
    for (char *at = out + strlen("runs/"); elsewhere && *at; at++)
        if (!strchr(fine, *at)) *at = '-';
    return DILOCO_OK;
}

/* Choose the state folder: for each machine its own, <place>.local/<host>. Machines that share a
 * file system then keep their state apart. */
static diloco_status default_state_dir(dl_config *config)
{
    dl_config_path place, dir;
    char host[64] = "";
    if (*config->state_dir || begins(config->store, "mem://")) return DILOCO_OK;
    DL_TRY(state_place(place, config->store));
    /* A machine without a name still needs a folder. */
    if (gethostname(host, sizeof host - 1) || !*host) strcpy(host, "host");
    int n = snprintf(dir, sizeof dir, "%s.local/%s", place, host);
    if (n < 0 || (size_t)n >= sizeof dir)
        return dl_fail(DILOCO_EINVAL, "run.store is too long a path; set run.state_dir");
    return dl_config_set(config, "run.state_dir", dir, "chosen");
}

/* ---- all together */

/* A preset or a server type that is given by a flag counts before the file's. */
static void name_by_flags(dl_settings_names *n, const dl_args *args)
{
    for (size_t i = 0; i < args->n_sets; i++) {
        const char *preset = value_of(args->sets[i], "preset");
        const char *type = value_of(args->sets[i], "server.type");
        if (preset) snprintf(n->preset, sizeof n->preset, "%s", preset);
        if (preset) snprintf(n->at, sizeof n->at, "--set");
        if (type) snprintf(n->server_type, sizeof n->server_type, "%s", type);
        n->clients |= value_of(args->sets[i], "clients.total_clients") != NULL;
    }
    if (!dl_args_has(args, DL_FLAG_PRESET)) return;
    snprintf(n->preset, sizeof n->preset, "%s", args->flags[DL_FLAG_PRESET]);
    snprintf(n->at, sizeof n->at, "--preset");
}

/* Return true for a preset of the federated family, which says what differs from preset
 * federated. */
static bool varies_federated(const char *preset)
{
    return begins(preset, "fed") && strcmp(preset, "federated") != 0;
}

/* Apply the preset with the place that names it. With logical clients, preset federated is
 * applied first, as it has Plato's defaults. A preset that follows from server.type, or is of
 * the federated family, is applied after it. So members of the family have the same inner
 * trainer. */
static diloco_status apply_preset(dl_config *config, const dl_settings_names *n)
{
    const char *follows = dl_plato_preset(n->server_type, n->clients);
    const char *name = *n->preset ? n->preset : follows;
    DL_TRY(dl_plato_server(n->server_type));
    if (!name) return DILOCO_OK; /* the defaults are preset diloco's values: settings_test.c */
    if (n->clients && (!*n->preset || varies_federated(name)))
        DL_TRY(diloco_preset_apply(config, "federated"));
    diloco_status status = diloco_preset_apply(config, name);
    if (!*n->preset) return status ? dl_fail_context(status, "server.type") : DILOCO_OK;
    if (status) return dl_fail_context(status, "%s", n->at);
    return dl_config_set(config, "preset", name, n->at);
}

/* The file is read twice: for the names that the preset needs, and then for its values. */
static diloco_status take_file(dl_config *config, dl_plato *plato, const dl_args *args)
{
    dl_settings_file *file = NULL;
    dl_settings_names names = {.preset = ""};
    diloco_status status = DILOCO_OK;
    if (args->target) status = dl_settings_file_open(&file, args->target);
    if (!status && file) status = dl_settings_file_names(&names, file);
    if (!status) {
        name_by_flags(&names, args);
        status = apply_preset(config, &names);
    }
    if (!status && file) status = dl_settings_file_take(config, plato, file);
    dl_settings_file_close(file);
    return status;
}

/* Offer this machine's key to hubs. A hub may ask for it before the run's settings are read from
 * it. */
static diloco_status show_key(const dl_config *config)
{
    if (!config->key[0] || !setenv("DILOCO_KEY", config->key, 1)) return DILOCO_OK;
    return dl_fail(DILOCO_ENOMEM, "out of memory for run.key");
}

/* Allow the coordination store. One that the user has named may be used, also by a process that
 * finds it in the run; others in a run.json are not trusted. */
static diloco_status list_coord(const dl_config *config)
{
    const char *before = getenv("DILOCO_COORDS");
    const size_t len = strlen(config->coord);
    char *all;
    if (!len) return DILOCO_OK;
    if (before && !strncmp(before, config->coord, len) && before[len] == ',') return DILOCO_OK;
    if (asprintf(&all, "%s,%s", config->coord, before ? before : "") < 0)
        return dl_fail(DILOCO_ENOMEM, "out of memory for run.coord");
    const int failed = setenv("DILOCO_COORDS", all, 1);
    free(all);
    return failed ? dl_fail(DILOCO_ENOMEM, "out of memory for run.coord") : DILOCO_OK;
}

/* Load all settings. Accepted keys without use are listed once, and only by commands that train. */
static diloco_status load(dl_config *out, const dl_args *args, bool tell)
{
    dl_plato plato = {.torchvision = false};
    dl_config_init(out);
    DL_TRY(take_file(out, &plato, args));
    DL_TRY(take_flags(out, &plato, args));
    DL_TRY(dl_plato_finish(out, &plato));
    if (tell && plato.unused[0])
        dl_log(DILOCO_LOG_WARN, "not used here, and of no effect on the result: %s", plato.unused);
    if (dl_args_has(args, DL_FLAG_REPLICAS))
        DL_TRY(dl_settings_replicas(out, args->flags[DL_FLAG_REPLICAS]));
    DL_TRY(show_key(out));
    DL_TRY(list_coord(out));
    DL_TRY(default_store(out, args->target));
    return default_state_dir(out);
}

/* Only this entry warns of Plato's keys without effect, since its caller trains or checks a run. */
diloco_status dl_settings_load(dl_config *out, const dl_args *args)
{
    return load(out, args, true);
}

/* A file that does not exist counts by its name, so the error is about a configuration file. */
bool dl_is_config_file(const char *target)
{
    struct stat info;
    size_t len = strlen(target);
    bool named_so = len > 5 && strcmp(target + len - 5, ".toml") == 0;
    return stat(target, &info) == 0 ? S_ISREG(info.st_mode) : named_so;
}

/* Load a file with what --set says of it (run.store among others), or take the target as a store
 * itself. */
static diloco_status load_target(dl_config *out, const dl_args *args)
{
    if (dl_is_config_file(args->target)) return load(out, args, false);
    dl_config_init(out);
    DL_TRY(dl_config_set(out, "run.store", args->target, "given"));
    return default_state_dir(out);
}

/* Commands that only look need the place of a run, and not its other settings. */
diloco_status dl_settings_of_target(dl_config *out, const dl_args *args)
{
    dl_plato plato = {.torchvision = false};
    if (!*args->target)
        return dl_fail(DILOCO_EINVAL, "%s needs a %s, and an empty one is given",
                       args->command->name, args->command->target);
    DL_TRY(load_target(out, args));
    DL_TRY(take_flags(out, &plato, args));
    DL_TRY(show_key(out));
    return list_coord(out);
}

/* Only the place of the run is needed, so a target is loaded as if for train. */
diloco_status dl_settings_store(dl_config_path out, const char *target)
{
    dl_config config;
    const dl_args args = {.command = dl_command_find("train"), .target = target};
    DL_TRY(load_target(&config, &args));
    memcpy(out, config.store, sizeof config.store);
    return DILOCO_OK;
}

/* One line on stderr for one option. The texts of both values are bounded. */
static diloco_status describe_difference(const dl_option *row, const dl_config *file,
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

/* Report where the file's values differ from the run's. Values that must agree give way to the
 * run's. */
static diloco_status describe_differences(const dl_config *file, const dl_config *run)
{
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (row->flags & DL_OPTION_AGREE && dl_config_given(file, row->name) &&
            !dl_option_equal(row, file, run))
            DL_TRY(describe_difference(row, file, run));
    }
    return DILOCO_OK;
}

/* Take the values of the file and the flags that are needed before the run's settings are read:
 * the key and the coordination store. */
static diloco_status prepare_to_read(const dl_config *file, const dl_args *args)
{
    dl_plato plato = {.torchvision = false};
    dl_config *all = malloc(sizeof *all);
    if (!all) return dl_fail(DILOCO_ENOMEM, "out of memory for the settings");
    *all = *file;
    diloco_status status = take_flags(all, &plato, args);
    if (!status) status = show_key(all);
    if (!status) status = list_coord(all);
    free(all);
    return status;
}

/* Order: the place from the target, the run's settings over it, then the flags of this machine.
 * A flag that names another store is refused. */
diloco_status dl_settings_of_run(dl_config *out, const dl_args *args)
{
    dl_args place = *args; /* flags come last, over what the run says */
    memset(place.flags, 0, sizeof place.flags);
    DL_TRY(load_target(out, &place));
    /* The file's values are kept: diloco_run_config overwrites those that must agree. */
    dl_config file = *out;
    DL_TRY(prepare_to_read(&file, args));
    DL_TRY(diloco_run_config(out, file.store));
    DL_TRY(describe_differences(&file, out));
    dl_plato plato = {.torchvision = false};
    DL_TRY(take_flags(out, &plato, args));
    if (strcmp(out->store, file.store) == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "the run is %s, and --set run.store names %s: keep one",
                   file.store, out->store);
}

/* A resume must not need the address of the model again, which may have expired. */
diloco_status dl_settings_fetch(dl_config *config)
{
    static dl_config run; /* too large for some stacks */
    DL_TRY(dl_fetch_data(config));
    if (!strstr(config->init_from, "://")) return DILOCO_OK;
    dl_config_init(&run);
    return diloco_run_config(&run, config->store) ? dl_fetch_model(config) : DILOCO_OK;
}
