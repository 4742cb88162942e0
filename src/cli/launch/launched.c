/* launched.c - see launched.h.
 *
 * The book in the store (launch/book.h) records which replicas were launched, with which executor
 * and options. Subcommands work from it, so they run on any machine that reaches the store. */
#include "cli/launch/launched.h"

#include "base/host_port.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/launch/store_bill.h"
#include "cli/plan/plan_pages.h"
#include "cli/settings/settings.h"
#include "launch/batch.h"
#include <diloco/inspect.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An empty list of arguments, variables or secrets: looking starts nothing. */
static const char *const nothing[] = {NULL};

/* `id` stays as it was if there is no run. */
diloco_status dl_launched_run(char id[33], bool *done, const char *store)
{
    diloco_run_status run;
    const diloco_status status = diloco_run_status_read(&run, store, 0);
    if (!status) {
        snprintf(id, 33, "%s", run.run);
        *done = run.done;
    }
    diloco_run_status_free(&run);
    return status;
}

diloco_status dl_launched_batch(bool *done, const dl_book *book, const char *trained)
{
    char run[33];
    *done = dl_batch_is_complete(book);
    if (!*done || !*trained) return DILOCO_OK;
    *done = false;
    const diloco_status status = dl_launched_run(run, done, trained);
    return status == DILOCO_ENOENT ? DILOCO_OK : status;
}

/* A replica of launch is called r<rank>. Its generations are numbered from 0. */
diloco_status dl_launched_count(dl_book *book, bool *done, const char *store)
{
    enum { LISTED = 256 }; /* of diloco_run_status */
    diloco_run_status run;
    const diloco_status status = diloco_run_status_read(&run, store, 0);
    if (!status) *done = run.done;
    const bool all = !status && run.n_replicas < LISTED;
    for (size_t i = 0; all && i < DL_JOBS_MAX; i++)
        book->ranks[i].processes = 0;
    for (size_t i = 0; all && i < run.n_replicas; i++) {
        const char *name = run.replicas[i]->replica;
        uint64_t rank;
        if (name[0] == 'r' && dl_text_to_u64(&rank, name + 1, strlen(name + 1)) &&
            rank < DL_JOBS_MAX)
            book->ranks[rank].processes = (int64_t)run.replicas[i]->generation + 1;
    }
    diloco_run_status_free(&run);
    return status;
}

/* 1 to DL_JOBS_MAX. */
static bool read_number(uint32_t *out, const char *text, size_t len)
{
    uint64_t n;
    if (!dl_text_to_u64(&n, text, len) || n < 1 || n > DL_JOBS_MAX) return false;
    *out = (uint32_t)n;
    return true;
}

/* "4..16" or "4", which means both ends. */
diloco_status dl_launched_numbers(uint32_t *min, uint32_t *max, const char *text)
{
    const char *dots = strstr(text, "..");
    const size_t len = dots ? (size_t)(dots - text) : strlen(text);
    const char *last = dots ? dots + 2 : text;
    if (read_number(min, text, len) && read_number(max, last, strlen(last)) && *min <= *max)
        return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "--replicas %.40s is neither a number from 1 to %d nor A..B",
                   text, DL_JOBS_MAX);
}

/* `option` of the book is trusted on this machine, or replaced. */
static diloco_status trust(dl_config *book, const char *option, const char *theirs,
                           const char *ours, bool harmless, const char *danger)
{
    if (*ours) return dl_config_set(book, option, ours, "this machine");
    if (!*theirs || harmless) return DILOCO_OK;
    return dl_fail(
        DILOCO_EREFUSED,
        "the book of launches names %s = \"%.200s\", which %s: add --set %s=%.200s if you "
        "trust it",
        option, theirs, danger, option, theirs);
}

/* The options of [launch] that a subcommand takes from this machine, and the subcommands that have
 * a use for it; NULL: each one that asks the backend, hence all. launch.dir is taken by
 * dl_launched_dir. */
static const struct {
    const char *name, *users;
} of_here[] = {{"launch.endpoint", NULL},
               {"launch.ssh_config", NULL},
               {"launch.context", NULL},
               {"launch.dir", "|launch logs|launch cancel|launch scale|"},
               {"launch.prices", "|launch status|launch collect|"},
               {"launch.poll", "|launch logs|launch collect|"}};

enum { N_OF_HERE = sizeof of_here / sizeof *of_here };

/* Does the command line give this option? One of CONFIG is that of the next launch. */
static bool is_set_here(const dl_config *own, const char *name)
{
    return strcmp(dl_config_origin(own, name), "--set") == 0;
}

static diloco_status refuse_kept(const char *name)
{
    return dl_fail(DILOCO_EREFUSED,
                   "%s (--set) has no effect here, because the launch keeps its own value: "
                   "give it to diloco launch",
                   name);
}

/* Does this option of another section lead to the run, or to that of a batch? The replicas keep the
 * others that they were started with. */
static bool leads_to_run(const char *name)
{
    static const char names[] = "|run.store|run.coord|run.key|job.run|general.base_path|";
    char word[64];
    snprintf(word, sizeof word, "|%.60s|", name);
    return strstr(names, word) != NULL;
}

/* Refuse an option that the command line gives and that has no effect, since the launch has a value
 * of its own. */
diloco_status dl_launched_check(const dl_config *own, const char *command)
{
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const char *name = dl_config_table.rows[i].name;
        size_t k = 0;
        if (!is_set_here(own, name) || leads_to_run(name)) continue;
        if (strncmp(name, "launch.", 7) != 0)
            return dl_fail(DILOCO_EREFUSED, "%s (--set) has no effect on %s: omit it", name,
                           command);
        while (k < N_OF_HERE && strcmp(of_here[k].name, name) != 0)
            k++;
        if (k == N_OF_HERE) return refuse_kept(name);
    }
    return DILOCO_OK;
}

/* Has the subcommand, such as "launch status", a use for this option? */
static bool is_used(const char *users, const char *command)
{
    char word[64];
    snprintf(word, sizeof word, "|%.60s|", command);
    return !users || strstr(users, word);
}

/* Only replicas in an image have no folder of the launch, see dl_launched_dir. */
diloco_status dl_launched_check_for(const dl_config *own, const dl_executor *executor,
                                    const char *command)
{
    for (size_t i = 0; i < N_OF_HERE; i++) {
        const char *name = of_here[i].name;
        if (!is_set_here(own, name)) continue;
        if (!dl_executor_uses(executor, name + strlen("launch.")))
            return dl_executor_refuse_option(executor, name, "--set");
        if (strcmp(name, "launch.dir") == 0 && !executor->caps.in_image) return refuse_kept(name);
        if (!is_used(of_here[i].users, command))
            return dl_fail(DILOCO_EREFUSED, "%s (--set) has no effect on %s: omit it", name,
                           command);
    }
    return DILOCO_OK;
}

diloco_status dl_launched_trust(dl_config *book, const dl_config *own)
{
    if (dl_config_given(own, "launch.prices"))
        DL_TRY(dl_config_set(book, "launch.prices", own->launch_prices, "this machine"));
    /* A context of CONFIG may be that of another cluster, for the next launch. */
    if (strcmp(dl_config_origin(own, "launch.context"), "--set") == 0)
        DL_TRY(dl_config_set(book, "launch.context", own->launch_context, "this machine"));
    if (dl_config_given(own, "launch.poll")) book->launch_poll_s = own->launch_poll_s;
    DL_TRY(trust(book, "launch.endpoint", book->launch_endpoint, own->launch_endpoint,
                 dl_url_is_loopback(book->launch_endpoint),
                 "would get this machine's credentials"));
    return trust(book, "launch.ssh_config", book->launch_ssh_config, own->launch_ssh_config, false,
                 "can run commands on this machine");
}

void dl_launched_dir(dl_config_path out, const dl_executor *executor, const char *theirs,
                     const dl_config *own, const char *run)
{
    if (!executor->caps.in_image)
        snprintf(out, sizeof(dl_config_path), "%s", theirs);
    else if (own->launch_dir[0])
        snprintf(out, sizeof(dl_config_path), "%s", own->launch_dir);
    else
        snprintf(out, sizeof(dl_config_path), ".diloco/launch/%.8s", run);
}

/* Elsewhere than in an image all replicas run one version. */
diloco_status dl_launched_program(dl_config_path out, const dl_executor *executor,
                                  const dl_config *config)
{
    const char *named = config->launch_binary;
    if (executor->caps.in_image) {
        snprintf(out, sizeof(dl_config_path), "%s", *named ? named : "diloco");
        return DILOCO_OK;
    }
    if (*named) return dl_launched_path(out, named);
    const ssize_t n = readlink("/proc/self/exe", out, sizeof(dl_config_path) - 1);
    if (n <= 0)
        return dl_fail(DILOCO_EIO, "this program's own file is not known: set launch.binary");
    out[n] = '\0';
    return DILOCO_OK;
}

/* Set the run that the ranks train. That of this machine's settings is preferred. One that only the
 * record names is read if it is in the same place as the record. */
static void set_trained(dl_launched *l, const dl_batch *batch)
{
    const char *own = l->config->job_run;
    l->is_far = !*own && *batch->run && !dl_batch_run_is_near(batch->run, l->config->store);
    if (!l->is_far) snprintf(l->trained, sizeof l->trained, "%s", *own ? own : batch->run);
}

/* Find the id that names the book. A store without a run may have a batch. Without either, the
 * error is that about the run. */
static diloco_status find_id(dl_launched *l, char id[33])
{
    char why[1024];
    dl_batch batch;
    const diloco_status status = dl_launched_run(id, &l->done, l->config->store);
    if (status != DILOCO_ENOENT) return status;
    snprintf(why, sizeof why, "%s", diloco_error_text());
    const diloco_status found = dl_batch_read(&batch, l->config->store);
    if (found) return found == DILOCO_ENOENT ? dl_fail(status, "%s", why) : found;
    memcpy(id, batch.id, sizeof batch.id);
    l->is_batch = true;
    set_trained(l, &batch);
    return DILOCO_OK;
}

diloco_status dl_launched_look(dl_launched *l)
{
    char run[33];
    if (!l->is_batch) return dl_launched_run(run, &l->done, l->config->store);
    return dl_launched_batch(&l->done, &l->book, l->trained);
}

/* The executor and its options come from the book, so a subcommand needs no configuration file. */
static diloco_status open_book(dl_launched *l)
{
    char id[33];
    const char *store = l->config->store;
    DL_TRY(find_id(l, id));
    DL_TRY(dl_book_open(&l->book, store, id, NULL));
    if (!l->book.begun)
        return dl_fail(DILOCO_ENOENT,
                       "nothing was launched for the %s in %s: diloco launch %sCONFIG starts its "
                       "replicas",
                       l->is_batch ? "batch" : "run", store, l->is_batch ? "job " : "");
    if (l->is_batch) DL_TRY(dl_launched_look(l));
    /* A copy, since a record that is read later replaces the book's. */
    *l->options = *l->book.options;
    DL_TRY(dl_launched_trust(l->options, l->config));
    /* To look at jobs needs no arguments. */
    l->spec = (dl_launch_spec){.run = l->book.run,
                               .config = l->options,
                               .dir = l->dir,
                               .program = l->program,
                               .argv = nothing,
                               .env = nothing,
                               .secrets = nothing};
    DL_TRY(dl_executor_find(&l->executor, &l->spec.on, l->book.executor));
    dl_book_bind(&l->book, l->executor);
    dl_launched_dir(l->dir, l->executor, l->book.dir, l->config, l->book.run);
    return dl_launched_program(l->program, l->executor, l->options);
}

/* Pass on the status of a check of options, except that of a cancel: it only warns, since the
 * machines cost meanwhile. */
static diloco_status unless_cancel(diloco_status status, const dl_args *args)
{
    if (!status || strcmp(args->command->name, "launch cancel") != 0) return status;
    dl_log(DILOCO_LOG_WARN, "%s", diloco_error_text());
    return DILOCO_OK;
}

/* After an error nothing is to be closed. */
diloco_status dl_launched_open(dl_launched *out, const dl_args *args)
{
    *out = (dl_launched){.config = calloc(1, sizeof *out->config),
                         .options = calloc(1, sizeof *out->options)};
    diloco_status status = out->config && out->options
                               ? dl_settings_of_target(out->config, args)
                               : dl_fail(DILOCO_ENOMEM, "out of memory for the settings");
    if (!status) status = unless_cancel(dl_launched_check(out->config, args->command->name), args);
    if (!status) status = open_book(out);
    if (!status)
        status = unless_cancel(
            dl_launched_check_for(out->config, out->executor, args->command->name), args);
    if (status) dl_launched_close(out);
    return status;
}

/* Accepts a structure that was opened in part. */
void dl_launched_close(dl_launched *launched)
{
    dl_book_close(&launched->book);
    free(launched->config), free(launched->options);
    launched->config = launched->options = NULL;
}

/* The control has no callbacks: only `diloco launch` prints notices while it follows the replicas.
 * The caller may still set `stop`. */
dl_control dl_launched_control(dl_launched *launched)
{
    return (dl_control){.spec = &launched->spec,
                        .executor = launched->executor,
                        .what = launched->is_batch ? "batch" : "run",
                        .book = &launched->book};
}

/* ---- money */

diloco_status dl_launched_budget(dl_prices *out, bool *priced, const dl_config *options,
                                 bool has_store)
{
    *priced = options->launch_prices[0] != '\0';
    if (*priced) DL_TRY(dl_plan_prices(out, options->launch_prices));
    if (options->launch_budget <= 0) return DILOCO_OK;
    if (*priced && (out->machine_hour > 0 || (has_store && dl_store_is_priced(out))))
        return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "launch.budget needs launch.prices, a table with machine_hour, the price of a "
                   "replica's machine%s",
                   has_store ? ", or with prices of the store" : "");
}

bool dl_launched_prices(dl_prices *out, const dl_config *options)
{
    return options->launch_prices[0] && !dl_plan_prices(out, options->launch_prices);
}

/* A missing price table gives "", because the cost is an addition to the text. */
const char *dl_launched_cost_text(char out[DL_LAUNCHED_COST], const dl_config *options,
                                  double machine_s)
{
    dl_prices prices;
    out[0] = '\0';
    if (!dl_launched_prices(&prices, options)) return out;
    if (dl_plan_missing_price(&prices, false, 0)) {
        snprintf(out, DL_LAUNCHED_COST, ", without a price: %.120s has no machine_hour",
                 options->launch_prices);
        return out;
    }
    snprintf(out, DL_LAUNCHED_COST, ", %.2f %s (%.2f %s an hour and replica, prices of %s)",
             machine_s / 3600 * prices.machine_hour, prices.currency, prices.machine_hour,
             prices.currency, prices.date);
    return out;
}

/* ---- signals */

static volatile int stop;

/* A second signal ends the process at once; the replicas run on. */
static void on_signal(int signal)
{
    (void)signal;
    if (stop) _Exit(130);
    stop = 1;
}

/* The handlers stay in place until the process ends. Replicas are other processes elsewhere, so
 * a signal here reaches none of them. */
const volatile int *dl_launched_stop(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    return &stop;
}

/* "./" at the beginning is dropped; other dots stay, since a symbolic link may be among them. */
diloco_status dl_launched_path(dl_config_path out, const char *path)
{
    dl_config_path here;
    int n;
    if (path[0] == '/')
        n = snprintf(out, sizeof(dl_config_path), "%s", path);
    else if (!getcwd(here, sizeof here))
        return dl_fail(DILOCO_EIO, "the working folder has no path");
    else
        n = snprintf(out, sizeof(dl_config_path), "%s/%s", here,
                     strncmp(path, "./", 2) ? path : path + 2);
    return n > 0 && (size_t)n < sizeof(dl_config_path)
               ? DILOCO_OK
               : dl_fail(DILOCO_EINVAL, "%.60s…: the path is too long", path);
}
