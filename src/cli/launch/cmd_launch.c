/* cmd_launch.c - create a run unless it is there, start its replicas elsewhere, and follow them.
 *
 * Begin with launch(). It turns the settings into a spec (launch/executor.h): the program, its
 * arguments, its environment and its secrets. The book in the store records what was started, so
 * another call of the command takes over. */
#include "base/log.h"
#include "cli/launch/launch_forecast.h"
#include "cli/launch/launch_numbers.h"
#include "cli/launch/launching.h"
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include "fetch/fetch_data.h"
#include "launch/mask.h"
#include "launch/output.h"
#include <diloco/inspect.h>
#include <diloco/train.h>

#include <stdlib.h>
#include <string.h>

/* ---- the program */

/* Returns true if the program is a wheel at an address, which each machine fetches. */
static bool is_fetched(const char *binary)
{
    return strncmp(binary, "https://", 8) == 0 || strncmp(binary, "http://", 7) == 0;
}

/* The end of a replica whose wheel was not installed: the cause is in its output. */
#define NOT_INSTALLED                                                                              \
    "{ echo \"diloco: pip did not install $0, see the words above: the image needs python3 with "  \
    "pip, a network to that address, room on its disk, and the wheel's architecture and glibc\" "  \
    ">&2; exit 3; }; "

/* In the image pip installs the wheel into a folder of its own, and its program becomes the
 * replica. pip itself compares the bytes with the digest of the address, and the platform with the
 * image's, and refuses others. $0 is the address. */
static diloco_status install_in_image(dl_launching *l, const char *address)
{
    static const char script[] =
        "d=$(mktemp -d) && python3 -m pip install --quiet --no-input --disable-pip-version-check "
        "--no-deps --target \"$d\" \"diloco @ $0\" || " NOT_INSTALLED
        "PYTHONPATH=$d; export PYTHONPATH; exec \"$d/diloco/_lib/diloco\" \"$@\"";
    static const char mark[] = ".whl#sha256=";
    const char *digest = strstr(address, mark);
    digest = digest ? digest + strlen(mark) : "";
    if (strlen(digest) != 64 || strspn(digest, "0123456789abcdef") != 64)
        return dl_fail(DILOCO_EINVAL,
                       "launch.binary = \"%.300s\": a wheel that machines fetch needs its digest: "
                       "https://…/NAME.whl#sha256=<64 hex digits>",
                       address);
    snprintf(l->program, sizeof l->program, "sh");
    DL_TRY(dl_launching_add_word(l, "-c"));
    DL_TRY(dl_launching_add_word(l, script));
    return dl_launching_add_word(l, address);
}

/* Machines with an image may fetch a wheel; all others get what dl_launched_program says. */
static diloco_status place_program(dl_launching *l)
{
    const char *named = l->config->launch_binary;
    if (l->executor->caps.in_image && is_fetched(named)) return install_in_image(l, named);
    return dl_launched_program(l->program, l->executor, l->config);
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
static diloco_status add_option(dl_launching *l, const dl_option *row)
{
    dl_buf text;
    dl_buf_init(&text, DL_LAUNCHING_TEXT);
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
    if (!status) status = dl_launching_add_word(l, "--set");
    if (!status) status = all ? dl_launching_add_word(l, all) : dl_fail(DILOCO_ENOMEM, "no memory");
    dl_buf_deinit(&text);
    return status;
}

/* Names that `ship` would refuse on each machine are refused before machines cost money. */
static diloco_status check_hidden(const dl_launching *l)
{
    _Static_assert((int)DL_LAUNCHING_NAMES <= (int)DL_MASK_VALUES,
                   "ship hides all secrets of a replica");
    for (char *const *s = l->secrets; *s; s++)
        if (strlen(*s) > DL_MASK_NAME_MAX)
            return dl_fail(DILOCO_EINVAL,
                           "launch.secrets: the name %.60s… has more than %d bytes: give the "
                           "variable a shorter name",
                           *s, DL_MASK_NAME_MAX);
    return DILOCO_OK;
}

/* Where the backend has no log, the replica is started by `ship`, which uploads its output to the
 * store and masks the secrets in it. */
static diloco_status add_shipping(dl_launching *l)
{
    dl_buf names;
    if (!dl_output_is_shipped(l->executor)) return DILOCO_OK;
    DL_TRY(check_hidden(l));
    DL_TRY(dl_launching_add_word(l, "ship"));
    DL_TRY(dl_launching_add_word(l, l->store));
    dl_buf_init(&names, DL_LAUNCHING_TEXT);
    diloco_status status = DILOCO_OK;
    for (char *const *s = l->secrets; !status && *s; s++)
        status = dl_buf_addf(&names, "%s%s", names.len ? "," : "", *s);
    if (!status && names.len) status = dl_launching_add_word(l, "--hide");
    if (!status && names.len) status = dl_launching_add_word(l, dl_buf_str(&names));
    dl_buf_deinit(&names);
    if (!status) status = dl_launching_add_word(l, "--");
    return status;
}

/* The replica joins by its rank, which the executor puts in the place of {rank}. Only values
 * that a person gave are passed on; the rest follows from the run. */
static diloco_status make_words(dl_launching *l)
{
    DL_TRY(add_shipping(l));
    DL_TRY(dl_launching_add_word(l, "join"));
    DL_TRY(dl_launching_add_word(l, l->store));
    DL_TRY(dl_launching_add_word(l, "--rank"));
    DL_TRY(dl_launching_add_word(l, "{rank}"));
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        const char *origin = dl_config_origin(l->config, row->name);
        if (row->flags & DL_OPTION_AGREE || stays_here(row->name)) continue;
        if (strcmp(origin, "default") && strcmp(origin, "chosen") && strncmp(origin, "preset ", 7))
            DL_TRY(add_option(l, row));
    }
    return DILOCO_OK;
}

/* A replica sees no others on its machine, so with run.threads = 0 each would take all cores. */
static diloco_status share_cores(const dl_launching *l)
{
    char text[24];
    if (!l->executor->caps.same_machine || l->config->threads > 0) return DILOCO_OK;
    const int each = diloco_cores() / (int)l->max;
    snprintf(text, sizeof text, "%d", each > 1 ? each : 1);
    return dl_config_set(l->config, "run.threads", text, "launch");
}

static bool has(char *const *list, const char *name)
{
    for (; *list; list++)
        if (strcmp(*list, name) == 0) return true;
    return false;
}

/* Pass on a hub's token and pin, which came with the join line. The token is a secret and needs
 * a channel for secrets; the pin is public. */
static diloco_status add_hub(dl_launching *l)
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
        DL_TRY(dl_launching_add(l->secrets, DL_LAUNCHING_NAMES, "DILOCO_HUB_TOKEN", 16));
    if (!pin) return DILOCO_OK;
    /* It may be a list of pins, of any length. */
    if (asprintf(&text, "DILOCO_HUB_PIN=%s", pin) < 0)
        return dl_fail(DILOCO_ENOMEM, "out of memory for a replica's variables");
    const diloco_status status = dl_launching_add(l->env, DL_LAUNCHING_NAMES, text, strlen(text));
    free(text);
    return status;
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
static diloco_status choose_numbers(dl_launching *l)
{
    const char *text = l->args->flags[DL_FLAG_LAUNCH_REPLICAS];
    if (text) return dl_launched_numbers(&l->min, &l->max, text);
    if (l->config->replicas > DL_JOBS_MAX)
        return dl_fail(DILOCO_EINVAL, "run.replicas = %lld: launch starts at most %d",
                       (long long)l->config->replicas, DL_JOBS_MAX);
    l->min = l->max = (uint32_t)l->config->replicas;
    return DILOCO_OK;
}

/* Let a new run wait for as many replicas as are launched. */
static diloco_status fit_run(dl_launching *l)
{
    if (!dl_args_has(l->args, DL_FLAG_LAUNCH_REPLICAS)) return DILOCO_OK;
    return dl_launch_numbers_fit(l->config, l->min, l->max);
}

/* Without --replicas the book of an earlier launch has the number (launching.h). */
static diloco_status wanted_of_run(uint32_t *n, const dl_launching *l, const char *run)
{
    dl_book book;
    *n = l->max;
    if (dl_args_has(l->args, DL_FLAG_LAUNCH_REPLICAS)) return DILOCO_OK;
    DL_TRY(dl_book_open(&book, l->config->store, run, l->executor));
    if (book.begun) *n = book.max;
    dl_book_close(&book);
    return DILOCO_OK;
}

/* Compare the numbers with those of the run, before anything costs money. Replicas would wait for
 * others that no launch starts. */
static diloco_status check_numbers(const dl_launching *l)
{
    char warning[DL_LAUNCH_NUMBERS_TEXT] = "";
    diloco_run_status run;
    uint32_t n;
    const diloco_status status = diloco_run_status_read(&run, l->config->store, 0);
    if (status == DILOCO_ENOENT) {
        DL_TRY(dl_launch_numbers_new(warning, l->config, l->min, l->max));
    } else {
        DL_TRY(status);
        const diloco_status counted = wanted_of_run(&n, l, run.run);
        if (!counted) dl_launch_numbers_existing(warning, &run, n);
        diloco_run_status_free(&run);
        DL_TRY(counted);
    }
    /* Not on stdout, where --prepare prints JSON. */
    if (*warning) dl_log(DILOCO_LOG_WARN, "%s", warning);
    return DILOCO_OK;
}

/* Asked by the control loop: the run itself says when it is complete. */
static diloco_status is_done(void *user, bool *done)
{
    dl_launching *l = user;
    return dl_launched_count(&l->book, done, l->config->store);
}

/* ---- the forecast */

/* --step-seconds and --link: the speed of machines that do not run yet. */
static diloco_status read_speed(dl_launch_left *left, const dl_args *args)
{
    DL_TRY(dl_args_f64(&left->step_s, args, DL_FLAG_LAUNCH_STEP, 0, 1e9));
    if (dl_args_has(args, DL_FLAG_LAUNCH_STEP) && !(left->step_s > 0))
        return dl_fail(DILOCO_EINVAL, "--step-seconds 0: more than 0");
    if (!dl_args_has(args, DL_FLAG_LAUNCH_LINK)) return DILOCO_OK;
    return dl_plan_link_parse(&left->link, "--link", args->flags[DL_FLAG_LAUNCH_LINK]);
}

/* Report time and cost to the end before anything is started; `exists`: the run is in the store.
 * Without prices and a speed the user has not asked for it. */
static diloco_status print_forecast(dl_launching *l, bool exists)
{
    char line[DL_LAUNCH_FORECAST_TEXT + 200], text[DL_LAUNCH_FORECAST_TEXT];
    double spent = 0;
    dl_launch_forecast f;
    dl_launch_left left = {.part = 1, .replicas = l->max};
    const dl_prices *prices = l->money.priced ? &l->money.prices : NULL;
    const char *mark = dl_args_has(l->args, DL_FLAG_DRY_RUN) ? "# " : "";
    DL_TRY(read_speed(&left, l->args));
    if (l->done || (!prices && !(left.step_s > 0))) return DILOCO_OK;
    DL_TRY(exists ? dl_launch_forecast_now(&f, l->config->store, &left, prices)
                  : dl_launch_forecast_of(&f, l->config, &left, prices));
    const double budget = l->config->launch_budget;
    if (exists && budget > 0) DL_TRY(dl_launching_spent(&spent, l));
    if (!f.known)
        snprintf(line, sizeof line,
                 "%sno forecast of the cost: the speed of the machines is not known yet; add "
                 "--step-seconds S, which diloco plan measures",
                 mark);
    else
        snprintf(
            line, sizeof line, "%sforecast: %s%s", mark, dl_launch_forecast_text(text, &f, prices),
            budget > 0 && spent + f.machine + f.store > budget ? "; more than launch.budget" : "");
    dl_launching_notice(l, line);
    return DILOCO_OK;
}

/* ---- running */

/* The run exists before the first replica, which joins it. */
static diloco_status create_and_run(dl_launching *l)
{
    DL_TRY(diloco_train_create(l->config));
    DL_TRY(dl_launched_run(l->run, &l->done, l->config->store));
    DL_TRY(print_forecast(l, true));
    return dl_launching_follow(l);
}

/* A run that does not exist has no id to name its replicas by, so an invented id is used. It
 * appears in the names of the replicas only. */
static diloco_status dry_run(dl_launching *l)
{
    const diloco_status status = dl_launched_run(l->run, &l->done, l->config->store);
    if (status && status != DILOCO_ENOENT) return status;
    if (status) {
        strcpy(l->run, "newrunid");
        printf("# %s holds no run: it would be created, and its id would replace newrunid\n",
               l->config->store);
    }
    DL_TRY(print_forecast(l, !status));
    return dl_launching_print(l);
}

/* Create the run before its replicas are described. */
static diloco_status prepare(dl_launching *l)
{
    DL_TRY(diloco_train_create(l->config));
    DL_TRY(dl_launched_run(l->run, &l->done, l->config->store));
    return dl_launching_prepare(l);
}

/* The order: settings, executor, money, kind, numbers, places, checks. A mistake is reported
 * before anything costs money. */
static diloco_status launch(dl_launching *l)
{
    const bool is_dry = dl_args_has(l->args, DL_FLAG_DRY_RUN);
    l->is_done = is_done;
    DL_TRY(dl_launching_settings(l));
    DL_TRY(check_kind(l->config));
    DL_TRY(choose_numbers(l));
    DL_TRY(fit_run(l));
    DL_TRY(dl_launching_place(l->store, l, "run.store", l->config->store));
    DL_TRY(place_program(l));
    DL_TRY(dl_launching_lists(l));
    DL_TRY(add_hub(l)); /* before the words, which may name the secrets */
    DL_TRY(share_cores(l));
    DL_TRY(make_words(l));
    DL_TRY(dl_launching_spec(l));
    DL_TRY(check_numbers(l));
    if (is_dry && dl_fetch_is_needed(l->config)) return dry_run(l);
    DL_TRY(dl_settings_fetch(l->config)); /* the run records its digest; replicas fetch their own */
    DL_TRY(diloco_train_check(l->config));
    if (dl_args_has(l->args, DL_FLAG_PREPARE)) return prepare(l);
    return is_dry ? dry_run(l) : create_and_run(l);
}

static diloco_status cmd_launch(const dl_args *args)
{
    return dl_launching_call(args, "run", launch);
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
               "launch status, logs, cancel, collect and scale work on what was started. launch\n"
               "executors lists the executors, and launch job runs any command.\n"
               "  diloco launch run.toml --on ssh://alice@a,alice@b --replicas 2",
    .flags = DL_FLAGS(DL_FLAG_ON, DL_FLAG_LAUNCH_REPLICAS, DL_FLAG_STORE, DL_FLAG_COORD,
                      DL_FLAG_SEED, DL_FLAG_PRESET, DL_FLAG_BUDGET, DL_FLAG_LAUNCH_STEP,
                      DL_FLAG_LAUNCH_LINK, DL_FLAG_DRY_RUN, DL_FLAG_DETACH, DL_FLAG_PREPARE,
                      DL_FLAG_SET, DL_FLAG_QUIET, DL_FLAG_VERBOSE),
    .sets = DL_SETS_ALL,
    .run = cmd_launch,
};
