/* cmd_launch.c - create a run unless it is there, start its replicas elsewhere, and follow them.
 *
 * Begin with launch(). It turns the settings into a spec (launch/executor.h): the program, its
 * arguments, its environment and its secrets. The book in the store records what was started, so
 * another call of the command takes over. */
#include "cli/display/units.h"
#include "cli/launch/launched.h"
#include "cli/onward.h"
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include "fetch/fetch_data.h"
#include <diloco/train.h>

#include <stdlib.h>
#include <string.h>

/* Arguments of a replica, names in one list, bytes of one option's text. */
enum { WORDS_MAX = 2 * DL_CONFIG_MAX_OPTIONS + 16, NAMES_MAX = 64, TEXT_MAX = 1 << 20 };

/* One call of the command. It is large, so it is on the heap; the lists own their texts. */
typedef struct launching {
    dl_config *config; /* owned by cmd_launch */
    const dl_args *args;
    dl_launch_spec spec;                /* points into the rest */
    const dl_executor *executor;        /* a row of the table */
    dl_book book;                       /* open from create_and_run on */
    uint32_t min, max;                  /* replicas: wanted at least, at most */
    double most_machine_s;              /* seconds that the budget buys; 0: no limit */
    char run[33];                       /* its id */
    bool done;                          /* the run is complete */
    dl_config_path dir, store, program; /* as the replicas see them */
    char *words[WORDS_MAX + 1], *env[NAMES_MAX + 1], *secrets[NAMES_MAX + 1]; /* owned */
} launching;

/* ---- lists of text that the launching owns */

/* Append a copy to a list that ends with NULL. */
static diloco_status add(char **list, size_t most, const char *text, size_t len)
{
    size_t n = 0;
    while (list[n])
        n++;
    if (n == most) return dl_fail(DILOCO_EINVAL, "a replica gets at most %zu of these", most);
    list[n] = strndup(text, len);
    return list[n] ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "out of memory for a replica's arguments");
}

static diloco_status add_word(launching *l, const char *text)
{
    return add(l->words, WORDS_MAX, text, strlen(text));
}

static void free_list(char **list)
{
    while (*list)
        free(*list++);
}

/* ---- paths */

/* Write run.store as any process can open it. A folder of this machine is refused for replicas
 * that run in an image, since they cannot see it. */
static diloco_status place_store(launching *l)
{
    const char *store = l->config->store;
    if (strncmp(store, "mem://", 6) == 0)
        return dl_fail(DILOCO_EREFUSED,
                       "run.store = \"%s\": a mem:// store exists in one "
                       "process only",
                       store);
    /* "file://" is the same as a path. */
    if (strncmp(store, "file://", 7) == 0) store += 7;
    if (!strstr(store, "://") && l->executor->caps.in_image)
        return dl_fail(DILOCO_EREFUSED,
                       "run.store = \"%s\": replicas of %s run in an image and see no folder of "
                       "this machine; serve it with diloco serve, or use s3://, gs:// or az://",
                       store, l->executor->name);
    /* A URL means the same on every machine. */
    if (strstr(store, "://")) {
        memcpy(l->store, store, sizeof l->store);
        return DILOCO_OK;
    }
    return dl_launched_path(l->store, store);
}

/* Choose the folder for files of the replicas: "<store>.launch"; for a URL one below runs/. On
 * machines with other files it is below the login folder. */
static diloco_status place_dir(launching *l)
{
    const dl_config *config = l->config;
    const char *given = config->launch_dir;
    char below[64];
    /* A path on other machines is theirs, so it is not made absolute here. */
    if (*given && !l->executor->caps.same_files) {
        memcpy(l->dir, given, sizeof l->dir);
        return DILOCO_OK;
    }
    if (*given) return dl_launched_path(l->dir, given);
    snprintf(below, sizeof below, "%s/%.8s",
             l->executor->caps.same_files ? "runs/launch" : ".diloco/launch", l->run);
    if (!l->executor->caps.same_files) {
        strcpy(l->dir, below);
        return DILOCO_OK;
    }
    /* The store has no folder here, so the files get one below runs/. */
    if (l->store[0] != '/') return dl_launched_path(l->dir, below);
    const int n = snprintf(l->dir, sizeof l->dir, "%.1000s.launch", l->store);
    return (size_t)n < sizeof l->dir ? DILOCO_OK : dl_fail(DILOCO_EINVAL, "set launch.dir");
}

/* ---- the arguments of a replica */

/* Return true for options of a machine that a replica elsewhere gets by itself, or must not
 * have. Keys and invitations are of one member each. */
static bool stays_here(const char *name)
{
    static const char *const names[] = {"run.store",     "run.local_replicas", "run.record",
                                        "run.members",   "run.committers",     "run.key",
                                        "run.invitation"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return strncmp(name, "launch.", 7) == 0 || strncmp(name, "results.", 8) == 0;
}

/* Options whose unit is a path are made absolute where the replica sees the same files. */
static bool is_path(const dl_option *row)
{
    return strcmp(row->unit, "path") == 0 || strcmp(row->unit, "paths") == 0;
}

/* Add paths, with commas between them, for a replica that sees the same files from another
 * folder. URLs and "none" stay as they are. */
static diloco_status add_paths(dl_buf *out, const char *paths)
{
    dl_config_path one, whole;
    /* One path after the other; blanks after a comma are the list's, not the path's. */
    for (bool first = true; *paths; first = false) {
        const size_t len = strcspn(paths, ",");
        const size_t blank = strspn(paths, " ");
        snprintf(one, sizeof one, "%.*s", (int)(len - dl_size_min(blank, len)),
                 paths + dl_size_min(blank, len));
        if (!first) DL_TRY(dl_buf_add(out, ",", 1));
        if (strstr(one, "://") || strcmp(one, "none") == 0)
            memcpy(whole, one, sizeof whole);
        else
            DL_TRY(dl_launched_path(whole, one));
        DL_TRY(dl_buf_add(out, whole, strlen(whole)));
        paths += len + (paths[len] == ',');
    }
    return DILOCO_OK;
}

/* Add "--set name=value" for one option. */
static diloco_status add_option(launching *l, const dl_option *row)
{
    dl_buf text;
    dl_buf_init(&text, TEXT_MAX);
    const char *value = dl_option_string(row, l->config);
    diloco_status status = dl_buf_addf(&text, "%s=", row->name);
    /* Only where the replica sees the same files does an absolute path mean anything. */
    if (!status && value && is_path(row) && l->executor->caps.same_files)
        status = add_paths(&text, value);
    else if (!status && value)
        status = dl_buf_add(&text, value, strlen(value));
    else if (!status)
        status = dl_option_text(&text, row, l->config);
    /* The text ends with a zero byte; without memory it is NULL. */
    const char *all = status ? NULL : dl_buf_str(&text);
    if (!status) status = add_word(l, "--set");
    if (!status) status = all ? add_word(l, all) : dl_fail(DILOCO_ENOMEM, "no memory");
    dl_buf_deinit(&text);
    return status;
}

/* The replica joins by its rank, which the executor puts in the place of {rank}. Only values
 * that a person gave are passed on; the rest follows from the run. */
static diloco_status make_words(launching *l)
{
    DL_TRY(add_word(l, "join"));
    DL_TRY(add_word(l, l->store));
    DL_TRY(add_word(l, "--rank"));
    DL_TRY(add_word(l, "{rank}"));
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        const char *origin = dl_config_origin(l->config, row->name);
        if (row->flags & DL_OPTION_AGREE || stays_here(row->name)) continue;
        if (strcmp(origin, "default") && strcmp(origin, "chosen") && strncmp(origin, "preset ", 7))
            DL_TRY(add_option(l, row));
    }
    return DILOCO_OK;
}

/* Add each item of a list with commas, without blanks around it. */
static diloco_status add_list(char **list, const char *text)
{
    while (*text) {
        text += strspn(text, ", ");
        size_t len = strcspn(text, ",");
        const size_t next = len;
        while (len && text[len - 1] == ' ')
            len--;
        if (len) DL_TRY(add(list, NAMES_MAX, text, len));
        text += next;
    }
    return DILOCO_OK;
}

static bool has(char *const *list, const char *name)
{
    for (; *list; list++)
        if (strcmp(*list, name) == 0) return true;
    return false;
}

/* Pass on a hub's token and pin, which came with the join line. The token is a secret and needs
 * a channel for secrets; the pin is public. */
static diloco_status add_hub(launching *l)
{
    const char *pin = getenv("DILOCO_HUB_PIN"), *token = getenv("DILOCO_HUB_TOKEN");
    char *text;
    if (strncmp(l->store, "http", 4) != 0) return DILOCO_OK;
    if (token && !l->executor->caps.secrets)
        return dl_fail(DILOCO_EREFUSED,
                       "run.store: a hub's token is a secret, and %s has no channel for secrets: "
                       "use a store that its machines reach by their role, such as s3:// or gs://",
                       l->executor->name);
    if (token && !has(l->secrets, "DILOCO_HUB_TOKEN"))
        DL_TRY(add(l->secrets, NAMES_MAX, "DILOCO_HUB_TOKEN", 16));
    if (!pin) return DILOCO_OK;
    /* It may be a list of pins, of any length. */
    if (asprintf(&text, "DILOCO_HUB_PIN=%s", pin) < 0)
        return dl_fail(DILOCO_ENOMEM, "out of memory for a replica's variables");
    const diloco_status status = add(l->env, NAMES_MAX, text, strlen(text));
    free(text);
    return status;
}

/* A secret's value is never an option, as options are in records. So launch.secrets has names,
 * and the environment the values. */
static diloco_status check_lists(const launching *l)
{
    /* Environment: a name and a value, both in the open. */
    for (char *const *e = l->env; *e; e++) {
        const char *equals = strchr(*e, '=');
        if (!equals || equals == *e)
            return dl_fail(DILOCO_EINVAL, "launch.env: %.40s: write it as NAME=VALUE", *e);
    }
    /* Secrets: names only. The values come from this process's environment. */
    for (char *const *s = l->secrets; *s; s++) {
        if (strchr(*s, '='))
            return dl_fail(DILOCO_EINVAL,
                           "launch.secrets holds names, and no values: give the name %.*s and set "
                           "the variable in the environment",
                           (int)strcspn(*s, "="), *s);
        if (!getenv(*s))
            return dl_fail(DILOCO_EINVAL, "launch.secrets: the environment has no %.60s", *s);
    }
    return DILOCO_OK;
}

static diloco_status make_lists(launching *l)
{
    DL_TRY(add_list(l->env, l->config->launch_env));
    DL_TRY(add_list(l->secrets, l->config->launch_secrets));
    DL_TRY(check_lists(l));
    return add_hub(l);
}

/* Every executor checks the spec itself, before anything is created. */
static diloco_status make_spec(launching *l)
{
    DL_TRY(dl_launched_program(l->program, l->executor, l->config));
    DL_TRY(make_words(l));
    DL_TRY(make_lists(l));
    l->spec.run = l->run;
    l->spec.config = l->config;
    l->spec.dir = l->dir;
    l->spec.program = l->program;
    l->spec.argv = (const char *const *)(uintptr_t)l->words;
    l->spec.env = (const char *const *)(uintptr_t)l->env;
    l->spec.secrets = (const char *const *)(uintptr_t)l->secrets;
    return l->executor->check(&l->spec);
}

/* ---- configurations that cannot be launched, each refused by name */

/* Replicas get no keys: a key is a member's own and must not travel. So only rosters that need
 * no key of the owner's choice are launched. */
static diloco_status check_kind(const dl_config *config)
{
    if (dl_swarm_is(config))
        return dl_fail(DILOCO_EREFUSED, "swarm.consensus = \"none\": launch starts replicas of a "
                                        "run with a log; start nodes with diloco join --peer");
    if (dl_config_federated(config))
        return dl_fail(DILOCO_EREFUSED, "clients.total_clients: launch starts replicas; start the "
                                        "server and workers of logical clients with diloco train");
    if (config->roster != DL_CLOSED && config->roster != DL_INVITED) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "run.roster = \"%s\": each member joins with a key of its own, "
                   "which launch cannot give it",
                   dl_policy_names[config->roster]);
}

/* ---- the numbers */

/* DL_JOBS_MAX bounds the book, which has a slot for each rank. */
static diloco_status choose_numbers(launching *l)
{
    const char *text = l->args->flags[DL_FLAG_LAUNCH_REPLICAS];
    if (text) return dl_launched_numbers(&l->min, &l->max, text);
    if (l->config->replicas > DL_JOBS_MAX)
        return dl_fail(DILOCO_EINVAL, "run.replicas = %lld: launch starts at most %d",
                       (long long)l->config->replicas, DL_JOBS_MAX);
    l->min = l->max = (uint32_t)l->config->replicas;
    return DILOCO_OK;
}

/* Let a new run wait for as many replicas as are launched. With A..B it may begin with A
 * (run.min_replicas). */
static diloco_status fit_run(launching *l)
{
    char text[24];
    if (!dl_args_has(l->args, DL_FLAG_LAUNCH_REPLICAS)) return DILOCO_OK;
    if (!dl_config_given(l->config, "run.replicas")) {
        snprintf(text, sizeof text, "%u", l->max);
        DL_TRY(dl_config_set(l->config, "run.replicas", text, "--replicas"));
    }
    if (l->min == l->max || dl_config_given(l->config, "run.min_replicas")) return DILOCO_OK;
    snprintf(text, sizeof text, "%u", l->min);
    return dl_config_set(l->config, "run.min_replicas", text, "--replicas");
}

/* ---- running */

/* Progress goes to stdout, as launch has no other output. */
static void on_notice(void *user, const char *line)
{
    const launching *l = user;
    if (dl_args_has(l->args, DL_FLAG_QUIET)) return;
    dl_print_foreign(line, strlen(line)); /* it may quote a backend */
    putchar('\n');
    (void)!dl_flush_output();
}

/* Asked by the control loop: the run itself says when it is complete. */
static diloco_status is_done(void *user, bool *done)
{
    launching *l = user;
    return dl_launched_count(&l->book, done, l->config->store);
}

/* The control loop borrows all of it (launch/control.h). */
static dl_control control_of(launching *l)
{
    return (dl_control){.spec = &l->spec,
                        .executor = l->executor,
                        .book = &l->book,
                        .most_machine_s = l->most_machine_s,
                        .stop = dl_launched_stop(),
                        .user = l,
                        .is_done = is_done,
                        .on_notice = on_notice};
}

/* Refuse another executor while replicas run. Replicas that run with one executor are not found
 * by another one. */
static diloco_status check_executor(const launching *l)
{
    for (size_t i = 0; i < DL_JOBS_MAX; i++) {
        const dl_book_rank *r = &l->book.ranks[i];
        if (!r->started || dl_job_is_over(r->job.state) ||
            strcmp(l->book.executor, l->config->launch_executor) == 0)
            continue;
        return dl_fail(DILOCO_EREFUSED,
                       "replicas of this run were launched on %.200s and are not over: name the "
                       "same executor, or stop them with  diloco launch cancel",
                       l->book.executor);
    }
    return DILOCO_OK;
}

/* Begin or continue the book. EEXIST: another launcher was quicker, so its book is read and
 * compared again. */
static diloco_status begin(launching *l, const dl_control *control)
{
    for (;;) {
        if (l->book.begun && !dl_args_has(l->args, DL_FLAG_LAUNCH_REPLICAS))
            l->min = l->book.min, l->max = l->book.max;
        DL_TRY(check_executor(l));
        if (dl_book_agrees(&l->book, &l->spec, l->config->launch_executor, l->min, l->max) &&
            !dl_control_is_stuck(control))
            return DILOCO_OK;
        const diloco_status status =
            dl_book_begin(&l->book, &l->spec, l->config->launch_executor, l->min, l->max);
        if (status != DILOCO_EEXIST) return status;
    }
}

/* Write the command line as it was, quoted for a shell. */
static void command_again(char *out, size_t cap, const dl_args *args)
{
    char word[DL_PATH_MAX + 8];
    size_t used = 0;
    *out = '\0';
    for (int i = 0; i < args->argc && used < cap; i++)
        used += (size_t)snprintf(out + used, cap - used, "%s%s", i ? " " : "",
                                 dl_shell_word(word, sizeof word, args->argv[i]));
}

/* Ctrl-C leaves the replicas running, and the text says how to find and how to stop them. */
static diloco_status print_onward(const launching *l, diloco_status status)
{
    char again[1024], store[DL_PATH_MAX + 8];
    if (status != DILOCO_EINTERRUPTED || l->book.cancelled) return status;
    command_again(again, sizeof again, l->args);
    dl_shell_word(store, sizeof store, l->config->store);
    return dl_fail(status,
                   "no longer following; the replicas run on. The same command follows them again: "
                   "%s; diloco launch cancel %s stops them",
                   again, store);
}

static diloco_status print_end(launching *l)
{
    char line[320], cost[DL_LAUNCHED_COST];
    dl_unit_text time;
    snprintf(line, sizeof line, "the run is complete; %s of machine time%s",
             dl_time_text(time, l->book.machine_s),
             dl_launched_cost_text(cost, l->config, l->book.machine_s));
    on_notice(l, line);
    return DILOCO_OK;
}

/* With --detach the replicas are started once, and no process restarts those that are lost. */
static diloco_status run_book(launching *l)
{
    const dl_control control = control_of(l);
    DL_TRY(begin(l, &control));
    if (dl_args_has(l->args, DL_FLAG_DETACH)) {
        DL_TRY(dl_control_poll(&control));
        return l->done ? DILOCO_OK : dl_control_start(&control);
    }
    DL_TRY(print_onward(l, dl_control_follow(&control)));
    return print_end(l);
}

/* The run exists before the first replica, which joins it. */
static diloco_status create_and_run(launching *l)
{
    DL_TRY(diloco_train_create(l->config));
    DL_TRY(dl_launched_run(l->run, &l->done, l->config->store));
    DL_TRY(place_dir(l));
    DL_TRY(dl_book_open(&l->book, l->config->store, l->run, l->executor));
    return run_book(l);
}

/* Print the requests that would be sent now, and send nothing. A run that does not exist has no
 * id to name its replicas by, so an invented id is used. */
static diloco_status dry_run(launching *l)
{
    dl_job *jobs = calloc(l->max, sizeof *jobs);
    if (!jobs) return dl_fail(DILOCO_ENOMEM, "out of memory for the replicas");
    diloco_status status = dl_launched_run(l->run, &l->done, l->config->store);
    /* The invented id appears in the names of the replicas only. */
    if (status == DILOCO_ENOENT) {
        strcpy(l->run, "newrunid");
        printf("# %s holds no run: it would be created, and its id would replace newrunid\n",
               l->config->store);
        status = DILOCO_OK;
    }
    if (!status) status = place_dir(l);
    /* With `dry` set an executor prints its requests, with "***" for secrets. */
    l->spec.dry = stdout;
    for (uint32_t i = 0; i < l->max; i++)
        dl_job_init(&jobs[i], l->run, i, 0);
    if (!status) status = l->executor->launch(&l->spec, jobs, l->max);
    free(jobs);
    return status;
}

static void json_list(dl_json *j, const char *key, char *const *list)
{
    dl_json_array(j, key);
    for (; *list; list++)
        dl_json_str(j, NULL, *list);
    dl_json_end(j);
}

/* Create the run, and print what a replica runs, for an executor outside this program. */
static diloco_status prepare(launching *l)
{
    dl_buf buf;
    dl_json j;
    DL_TRY(diloco_train_create(l->config));
    DL_TRY(dl_launched_run(l->run, &l->done, l->config->store));
    dl_buf_init(&buf, TEXT_MAX);
    dl_json_init(&j, &buf);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "run", l->run);
    dl_json_str(&j, "store", l->store);
    dl_json_u64(&j, "min", l->min);
    dl_json_u64(&j, "max", l->max);
    dl_json_str(&j, "program", l->program);
    json_list(&j, "argv", l->words);
    json_list(&j, "env", l->env);
    json_list(&j, "secrets", l->secrets);
    dl_json_i64(&j, "restarts", l->config->launch_restarts);
    dl_json_end(&j);
    return dl_print_json(&j, &buf);
}

/* The order: settings, executor, money, kind, numbers, places, checks. A mistake is reported
 * before anything costs money. */
static diloco_status launch(launching *l)
{
    const bool is_dry = dl_args_has(l->args, DL_FLAG_DRY_RUN);
    DL_TRY(dl_settings_load(l->config, l->args));
    if (dl_args_has(l->args, DL_FLAG_ON))
        DL_TRY(dl_config_set(l->config, "launch.executor", l->args->flags[DL_FLAG_ON], "--on"));
    /* The executor decides which options and places are possible, so it comes before them. */
    DL_TRY(dl_executor_find(&l->executor, &l->spec.on, l->config->launch_executor));
    DL_TRY(dl_executor_check_options(l->executor, l->config));
    if (dl_args_has(l->args, DL_FLAG_BUDGET))
        DL_TRY(
            dl_config_set(l->config, "launch.budget", l->args->flags[DL_FLAG_BUDGET], "--budget"));
    /* Prices are read before anything is started. */
    DL_TRY(dl_launched_limit(&l->most_machine_s, l->config));
    DL_TRY(check_kind(l->config));
    DL_TRY(choose_numbers(l));
    DL_TRY(fit_run(l));
    DL_TRY(place_store(l));
    DL_TRY(make_spec(l));
    if (is_dry && dl_fetch_is_needed(l->config)) return dry_run(l);
    DL_TRY(dl_fetch_data(l->config)); /* the run records its digest; replicas fetch their own */
    DL_TRY(diloco_train_check(l->config));
    if (dl_args_has(l->args, DL_FLAG_PREPARE)) return prepare(l);
    return is_dry ? dry_run(l) : create_and_run(l);
}

/* The settings are large, hence the heap. All that was opened is closed after any error. */
static diloco_status cmd_launch(const dl_args *args)
{
    launching *l = calloc(1, sizeof *l);
    dl_config *config = calloc(1, sizeof *config);
    diloco_status status =
        l && config ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "out of memory for the settings");
    if (!status) {
        l->config = config;
        l->args = args;
        /* launch() may end at any point; these accept what was not opened. */
        status = launch(l);
        dl_book_close(&l->book);
        free_list(l->words);
        free_list(l->env);
        free_list(l->secrets);
    }
    free(config);
    free(l);
    return status;
}

const dl_command dl_command_launch = {
    .name = "launch",
    .target = "CONFIG",
    .summary = "start a run's replicas on other machines, and keep them running",
    .details = "Creates the run if it does not exist, starts its replicas with the executor --on, "
               "restarts\n"
               "those that are lost, and ends when the run is complete. Ctrl-C leaves the replicas "
               "running;\n"
               "the same command finds them again. docs/launch.md describes each executor.\n"
               "  diloco launch run.toml --on ssh://alice@a,alice@b --replicas 2",
    .flags = DL_FLAGS(DL_FLAG_ON, DL_FLAG_LAUNCH_REPLICAS, DL_FLAG_STORE, DL_FLAG_COORD,
                      DL_FLAG_SEED, DL_FLAG_PRESET, DL_FLAG_BUDGET, DL_FLAG_DRY_RUN, DL_FLAG_DETACH,
                      DL_FLAG_PREPARE, DL_FLAG_SET, DL_FLAG_QUIET, DL_FLAG_VERBOSE),
    .sets = DL_SETS_ALL,
    .run = cmd_launch,
};
