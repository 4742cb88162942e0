/* launching.c - see launching.h. */
#include "cli/launch/launching.h"

#include "cli/display/onward.h"
#include "cli/display/units.h"
#include "cli/plan/plan_pages.h"
#include "cli/settings/settings.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists of text that the call owns */

/* Append a copy to a list that ends with NULL. */
diloco_status dl_launching_add(char **list, size_t most, const char *text, size_t len)
{
    size_t n = 0;
    while (list[n])
        n++;
    if (n == most)
        return dl_fail(DILOCO_EINVAL, "\"%.*s\": a replica gets at most %zu of these",
                       (int)dl_size_min(len, 60), text, most);
    list[n] = strndup(text, len);
    return list[n] ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "out of memory for a replica's arguments");
}

diloco_status dl_launching_add_word(dl_launching *l, const char *text)
{
    return dl_launching_add(l->words, DL_LAUNCHING_WORDS, text, strlen(text));
}

static void free_list(char **list)
{
    while (*list)
        free(*list++);
}

/* ---- the call */

/* The settings are large, hence the heap. All that was opened is closed after any error. */
diloco_status dl_launching_call(const dl_args *args, const char *what, dl_launching_fn fn)
{
    dl_launching *l = calloc(1, sizeof *l);
    dl_config *config = calloc(1, sizeof *config);
    diloco_status status =
        l && config ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "out of memory for the settings");
    if (!status) {
        l->config = config;
        l->args = args;
        l->what = what;
        /* fn may end at any point; these accept what was not opened. */
        status = fn(l);
        dl_book_close(&l->book);
        dl_store_meter_destroy(l->money.meter);
        free_list(l->words);
        free_list(l->env);
        free_list(l->secrets);
    }
    free(config);
    free(l);
    return status;
}

diloco_status dl_launching_settings(dl_launching *l)
{
    DL_TRY(dl_settings_load(l->config, l->args));
    if (dl_args_has(l->args, DL_FLAG_ON))
        DL_TRY(dl_config_set(l->config, "launch.executor", l->args->flags[DL_FLAG_ON], "--on"));
    /* The executor decides which options and places are possible, so it comes before them. */
    DL_TRY(dl_executor_find(&l->executor, &l->spec.on, l->config->launch_executor));
    DL_TRY(dl_executor_check_options(l->executor, l->config));
    if (dl_args_has(l->args, DL_FLAG_BUDGET))
        DL_TRY(
            dl_config_set(l->config, "launch.budget", l->args->flags[DL_FLAG_BUDGET], "--budget"));
    /* Prices are read before anything is started. A batch has no traffic of its own. */
    return dl_launched_budget(&l->money.prices, &l->money.priced, l->config,
                              strcmp(l->what, "run") == 0 || l->config->job_run[0]);
}

/* ---- money */

/* Between two readings of the records: replicas write them twice a minute. */
#define METER_EVERY (60 * DL_SECOND)

/* The run whose store costs: that of a batch is the one that its ranks train, if any. */
static const char *metered_url(const dl_launching *l)
{
    return strcmp(l->what, "run") == 0 ? l->config->store : l->trained;
}

static bool is_metered(const dl_launching *l)
{
    return l->money.priced && *metered_url(l) && dl_store_is_priced(&l->money.prices);
}

/* Read the records that are new. A failed reading ends no launch, and is reported once: the cost is
 * then that of the readings before. */
static void read_meter(dl_launching *l)
{
    char line[700];
    dl_launching_money *m = &l->money;
    diloco_status status = DILOCO_OK;
    if (!m->meter) status = dl_store_meter_create(&m->meter, metered_url(l), &m->prices);
    if (!status) status = dl_store_meter_read(m->meter);
    m->read_at = dl_clock_now();
    if (status && !m->failed) {
        snprintf(line, sizeof line,
                 "the cost of the store so far is not up to date: %.500s; trying again",
                 diloco_error_text());
        dl_launching_notice(l, line);
    }
    m->failed = status != DILOCO_OK;
}

/* Update the cost of the store by the book `b`. */
static void look_at_store(dl_launching *l, const dl_book *b)
{
    dl_store_bill bill;
    dl_launching_money *m = &l->money;
    if (!is_metered(l)) return;
    if (!m->read_at || dl_clock_now() - m->read_at >= METER_EVERY) read_meter(l);
    if (!m->meter) return;
    dl_store_meter_bill(&bill, m->meter, b);
    m->store = bill.recorded + bill.estimated;
}

/* Called at each look of the control loop. Only a budget needs the cost of the store meanwhile. */
static diloco_status look_at_run(void *user, bool *done)
{
    dl_launching *l = user;
    if (l->config->launch_budget > 0) look_at_store(l, &l->book);
    return l->is_done(l, done);
}

diloco_status dl_launching_spent(double *cost, dl_launching *l)
{
    dl_book book;
    *cost = 0;
    if (!l->money.priced) return DILOCO_OK;
    DL_TRY(dl_book_open(&book, l->config->store, l->run, l->executor));
    look_at_store(l, &book);
    *cost = dl_book_machine_seconds(&book) / 3600 * l->money.prices.machine_hour + l->money.store;
    dl_book_close(&book);
    return DILOCO_OK;
}

/* Name the prices that a budget does without. */
static void report_unpriced(const dl_launching *l)
{
    char line[DL_STORE_UNPRICED + 32], text[DL_STORE_UNPRICED];
    const char *table = l->config->launch_prices, *url = metered_url(l);
    if (!(l->config->launch_budget > 0)) return;
    if (dl_plan_missing_price(&l->money.prices, false, 0)) {
        snprintf(line, sizeof line,
                 "launch.budget: %.200s has no machine_hour: machine time is not counted", table);
        dl_launching_notice(l, line);
    }
    if (!*url || !*dl_store_unpriced_text(text, &l->money.prices, table, url)) return;
    snprintf(line, sizeof line, "launch.budget: %s", text);
    dl_launching_notice(l, line);
}

/* ---- paths */

/* Choose the folder for files of the replicas: "<store>.launch"; for a URL one below runs/. On
 * machines with other files it is below the login folder. */
static diloco_status place_dir(dl_launching *l)
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

/* A folder of this machine is refused for replicas that run in an image, since they cannot see it.
 * A URL means the same on every machine, and "file://" is the same as a path. */
diloco_status dl_launching_place(dl_config_path out, const dl_launching *l, const char *option,
                                 const char *url)
{
    if (strncmp(url, "mem://", 6) == 0)
        return dl_fail(DILOCO_EREFUSED, "%s = \"%s\": a mem:// store exists in one process only",
                       option, url);
    if (strncmp(url, "file://", 7) == 0) url += 7;
    if (!strstr(url, "://") && l->executor->caps.in_image)
        return dl_fail(DILOCO_EREFUSED,
                       "%s = \"%s\": replicas of %s run in an image and see no folder of this "
                       "machine; serve it with diloco serve, or use s3://, gs:// or az://",
                       option, url, l->executor->name);
    if (!strstr(url, "://")) return dl_launched_path(out, url);
    snprintf(out, sizeof(dl_config_path), "%s", url);
    return DILOCO_OK;
}

/* ---- the spec */

/* Add each item of the option's list with commas, without blanks around it. */
static diloco_status add_list(char **list, const char *option, const char *text)
{
    for (size_t n = 0; *text;) {
        text += strspn(text, ", ");
        size_t len = strcspn(text, ",");
        const size_t next = len;
        while (len && text[len - 1] == ' ')
            len--;
        if (len && n++ == DL_LAUNCHING_NAMES)
            return dl_fail(DILOCO_EINVAL, "%s has more than %d names: name fewer", option,
                           DL_LAUNCHING_NAMES);
        if (len) DL_TRY(dl_launching_add(list, DL_LAUNCHING_NAMES, text, len));
        text += next;
    }
    return DILOCO_OK;
}

/* A secret's value is never an option, as options are in records. So launch.secrets has names,
 * and the environment the values. */
static diloco_status check_lists(const dl_launching *l)
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

diloco_status dl_launching_lists(dl_launching *l)
{
    DL_TRY(add_list(l->env, "launch.env", l->config->launch_env));
    DL_TRY(add_list(l->secrets, "launch.secrets", l->config->launch_secrets));
    return check_lists(l);
}

diloco_status dl_launching_spec(dl_launching *l)
{
    l->spec.run = l->run;
    l->spec.config = l->config;
    l->spec.dir = l->dir;
    l->spec.program = l->program;
    l->spec.argv = (const char *const *)(uintptr_t)l->words;
    l->spec.env = (const char *const *)(uintptr_t)l->env;
    l->spec.secrets = (const char *const *)(uintptr_t)l->secrets;
    return l->executor->check(&l->spec);
}

/* ---- running */

/* Progress goes to stdout, as launch has no other output. */
void dl_launching_notice(const dl_launching *l, const char *line)
{
    if (dl_args_has(l->args, DL_FLAG_QUIET)) return;
    dl_print_foreign(line, strlen(line)); /* it may quote a backend */
    putchar('\n');
    (void)!dl_flush_output();
}

static void on_notice(void *user, const char *line)
{
    dl_launching_notice(user, line);
}

/* The control loop borrows all of it (launch/launch_control.h). */
static dl_control control_of(dl_launching *l)
{
    return (dl_control){.spec = &l->spec,
                        .executor = l->executor,
                        .what = l->what,
                        .book = &l->book,
                        .budget = l->config->launch_budget,
                        .machine_hour = l->money.prices.machine_hour,
                        .store_cost = is_metered(l) ? &l->money.store : NULL,
                        .stop = dl_launched_stop(),
                        .user = l,
                        .is_done = look_at_run,
                        .on_notice = on_notice};
}

/* Refuse another executor while replicas run. Replicas that run with one executor are not found
 * by another one. */
static diloco_status check_executor(const dl_launching *l)
{
    for (size_t i = 0; i < DL_JOBS_MAX; i++) {
        const dl_book_rank *r = &l->book.ranks[i];
        if (!r->started || dl_job_is_over(r->job.state) ||
            strcmp(l->book.executor, l->config->launch_executor) == 0)
            continue;
        return dl_fail(DILOCO_EREFUSED,
                       "replicas of this %s were launched on %.200s and are not over: name the "
                       "same executor, or stop them with  diloco launch cancel",
                       l->what, l->book.executor);
    }
    return DILOCO_OK;
}

/* Begin or continue the book. EEXIST: another launcher was quicker, so its book is read and
 * compared again. */
static diloco_status begin(dl_launching *l, const dl_control *control)
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

/* Ctrl-C and errors leave the replicas running, and the text says how to find and how to stop them.
 * Those of a run that another executor continues are not this launcher's. */
static diloco_status print_onward(const dl_launching *l, diloco_status status)
{
    char again[1024], store[DL_PATH_MAX + 8], why[512] = "no longer following";
    const bool stops = status == DILOCO_EINTERRUPTED;
    if (!status || l->book.cancelled || (!stops && !dl_book_alive(&l->book)) ||
        strcmp(l->book.executor, l->config->launch_executor) != 0)
        return status;
    if (!stops) snprintf(why, sizeof why, "%s", diloco_error_text());
    dl_args_again(again, sizeof again, l->args);
    dl_shell_word(store, sizeof store, l->config->store);
    return dl_fail(status,
                   "%s; %s run on. The same command follows them again: %s; diloco launch cancel "
                   "%s stops them",
                   why, stops ? "the replicas" : "replicas that were started", again, store);
}

static diloco_status print_end(dl_launching *l)
{
    char line[512], cost[DL_LAUNCHED_COST], text[DL_STORE_BILL_TEXT];
    dl_store_bill bill;
    dl_unit_text time;
    snprintf(line, sizeof line, "the %s is complete; %s of machine time%s", l->what,
             dl_time_text(time, l->book.machine_s),
             dl_launched_cost_text(cost, l->config, l->book.machine_s));
    dl_launching_notice(l, line);
    l->money.read_at = 0; /* the last entries, too */
    look_at_store(l, &l->book);
    if (!l->money.meter) return DILOCO_OK;
    dl_store_meter_bill(&bill, l->money.meter, &l->book);
    snprintf(line, sizeof line, "store: %s", dl_store_bill_text(text, &bill, &l->money.prices));
    dl_launching_notice(l, line);
    return DILOCO_OK;
}

/* With --detach the replicas are started once, and no process restarts those that are lost. */
diloco_status dl_launching_follow(dl_launching *l)
{
    DL_TRY(place_dir(l));
    DL_TRY(dl_book_open(&l->book, l->config->store, l->run, l->executor));
    const dl_control control = control_of(l);
    DL_TRY(begin(l, &control));
    report_unpriced(l);
    if (dl_args_has(l->args, DL_FLAG_DETACH)) {
        DL_TRY(dl_control_poll(&control));
        if (l->done) return DILOCO_OK;
        if (control.budget > 0) look_at_store(l, &l->book);
        return print_onward(l, dl_control_start(&control));
    }
    DL_TRY(print_onward(l, dl_control_follow(&control)));
    return print_end(l);
}

static void json_list(dl_json *j, const char *key, char *const *list)
{
    dl_json_array(j, key);
    for (; *list; list++)
        dl_json_str(j, NULL, *list);
    dl_json_end(j);
}

/* The names of the options of [launch] that were given. An executor outside of this program refuses
 * those that it does not use. */
static void json_given(dl_json *j, const dl_config *config)
{
    dl_json_array(j, "given");
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const char *name = dl_config_table.rows[i].name;
        if (strncmp(name, "launch.", 7) == 0 && dl_config_given(config, name))
            dl_json_str(j, NULL, name);
    }
    dl_json_end(j);
}

diloco_status dl_launching_prepare(const dl_launching *l)
{
    dl_buf buf;
    dl_json j;
    dl_buf_init(&buf, DL_LAUNCHING_TEXT);
    dl_json_init(&j, &buf);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "run", l->run);
    dl_json_str(&j, "store", l->store);
    if (l->trained[0]) dl_json_str(&j, "trained", l->trained);
    dl_json_u64(&j, "min", l->min);
    dl_json_u64(&j, "max", l->max);
    dl_json_str(&j, "program", l->program);
    json_list(&j, "argv", l->words);
    json_list(&j, "env", l->env);
    json_list(&j, "secrets", l->secrets);
    dl_json_i64(&j, "restarts", l->config->launch_restarts);
    dl_json_f64(&j, "timeout", l->config->launch_timeout_s);
    dl_json_f64(&j, "lost_after", l->config->launch_lost_after_s);
    dl_json_f64(&j, "poll", l->config->launch_poll_s);
    json_given(&j, l->config);
    dl_json_end(&j);
    return dl_print_json(&j, &buf);
}

/* With `dry` set an executor prints its requests, with "***" for secrets. */
diloco_status dl_launching_print(dl_launching *l)
{
    dl_job *jobs = calloc(l->max, sizeof *jobs);
    if (!jobs) return dl_fail(DILOCO_ENOMEM, "out of memory for the replicas");
    diloco_status status = place_dir(l);
    l->spec.dry = stdout;
    for (uint32_t i = 0; i < l->max; i++)
        dl_job_init(&jobs[i], l->run, i, 0);
    if (!status) status = l->executor->launch(&l->spec, jobs, l->max);
    free(jobs);
    return status;
}
