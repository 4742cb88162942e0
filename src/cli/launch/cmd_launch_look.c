/* cmd_launch_look.c - the subcommands of launch that work on what was launched before. Each
 * opens the book of the run (launched.h) and needs no configuration.
 *
 * status asks the executor for the state of each replica. logs, cancel and collect act through the
 * executor, and scale changes the book. None of them starts a replica: only launch does. */
#include "cli/display/units.h"
#include "cli/launch/launch_forecast.h"
#include "cli/launch/store_bill.h"
#include "cli/plan/plan_pages.h"
#include "launch/orphans.h"
#include "launch/output.h"

#include <inttypes.h>
#include <string.h>

/* Bytes of one answer, with room for DL_JOBS_MAX replicas. */
enum { JSON_MAX = 1 << 20 };

/* ---- status */

/* Messages and ids come from a backend, so they are made printable. */
static void print_job(const dl_job *job)
{
    char message[DL_JOB_MESSAGE_MAX + 1], id[DL_JOB_ID_MAX + 1];
    dl_printable_line(message, sizeof message, job->message);
    dl_printable_line(id, sizeof id, *job->id ? job->id : "-");
    printf("r%-4" PRIu32 " %-9s  %-28s %s%s%s%s\n", job->rank, dl_job_state_name(job->state),
           job->name, id, *message ? "  " : "", message, job->silent ? "  (no answer)" : "");
}

/* A lost replica that may run and cost, also after the next generation was started. */
static void print_orphan(const dl_book_rank *r)
{
    char id[DL_JOB_ID_MAX + 1];
    if (!*r->orphan.id) return;
    dl_printable_line(id, sizeof id, r->orphan.id);
    printf("r%-4" PRIu32 " %-9s  %-28s %s  lost, %s: diloco launch cancel stops it\n",
           r->orphan.rank, "ORPHAN", r->orphan.name, id,
           r->orphan_runs ? "and runs" : "and may run (no answer)");
}

/* The money of a launch, as far as it is known here. */
typedef struct money {
    dl_prices table;
    const dl_prices *prices; /* the table; NULL: none */
    dl_store_bill bill;
    bool has_bill; /* the records were read, for a store with a price */
    double budget; /* 0: none */
} money;

/* The run whose store costs; "": none, or it is not read. */
static const char *metered_url(const dl_launched *l)
{
    if (!l->is_batch) return l->config->store;
    return l->is_far ? "" : l->trained;
}

/* Make the bill of the store. It reads all records, so only a table with prices of a store asks for
 * it. After an error of the store there is no bill. */
static void read_bill(money *m, const dl_launched *l)
{
    dl_store_meter *meter;
    const char *url = metered_url(l);
    if (!m->prices || !*url || !dl_store_is_priced(m->prices)) return;
    if (dl_store_meter_create(&meter, url, m->prices)) return;
    m->has_bill = !dl_store_meter_read(meter);
    if (m->has_bill) dl_store_meter_bill(&m->bill, meter, &l->book);
    dl_store_meter_destroy(meter);
}

static void read_money(money *m, const dl_launched *l)
{
    *m = (money){.budget = l->options->launch_budget};
    m->prices = dl_launched_prices(&m->table, l->options) ? &m->table : NULL;
    read_bill(m, l);
}

/* The cost so far. Without a bill it is that of machine time. */
static double cost_of(const money *m, const dl_launched *l)
{
    const double hours = dl_book_machine_seconds(&l->book) / 3600;
    return hours * m->prices->machine_hour + m->bill.recorded + m->bill.estimated;
}

static void print_money(const money *m, const dl_launched *l)
{
    char text[DL_STORE_UNPRICED];
    char bill[DL_STORE_BILL_TEXT];
    const char *url = metered_url(l);
    if (!m->prices) return;
    if (m->has_bill) printf("store: %s\n", dl_store_bill_text(bill, &m->bill, m->prices));
    if (!m->has_bill && *url && dl_store_is_priced(m->prices))
        printf("store: its cost is not known: %s\n", diloco_error_text());
    if (*url && *dl_store_unpriced_text(text, m->prices, l->options->launch_prices, url))
        printf("store: %s\n", text);
    if (m->budget > 0)
        printf("budget: %.2f of %.2f %s\n", cost_of(m, l), m->budget, m->prices->currency);
}

/* "traffic" is null if the traffic or its price is not known. "unpriced" has the prices that the
 * table lacks. */
static void json_money(dl_json *j, const money *m, const dl_launched *l)
{
    const dl_billed *moved = &m->bill.exchanges;
    const char *name;
    if (m->has_bill) {
        dl_json_object(j, "traffic");
        dl_json_f64(j, "bytes_sent", moved->written);
        dl_json_f64(j, "bytes_received", moved->read);
        dl_json_f64(j, "requests_write", moved->writes);
        dl_json_f64(j, "requests_read", moved->reads);
        dl_json_f64(j, "cost", m->bill.recorded);
        dl_json_f64(j, "estimated_cost_of_rest", m->bill.estimated);
        dl_json_end(j);
    } else {
        dl_json_null(j, "traffic");
    }
    dl_json_array(j, "unpriced");
    for (int store = 0; m->prices && store < 2; store++)
        for (size_t k = 0; (name = dl_plan_missing_price(m->prices, store, k)); k++)
            dl_json_str(j, NULL, name);
    dl_json_end(j);
    if (!m->prices || !(m->budget > 0)) {
        dl_json_null(j, "budget");
        return;
    }
    dl_json_object(j, "budget");
    dl_json_f64(j, "cost", cost_of(m, l));
    dl_json_f64(j, "limit", m->budget);
    dl_json_end(j);
}

/* The time and cost from now to the end, for a run with a known speed. A store that does not
 * answer, or a run that is over, gives none: the status is shown without it. */
static dl_launch_forecast look_ahead(const money *m, const dl_launched *l)
{
    dl_launch_forecast f = {.known = false};
    dl_launch_left left = {.replicas = l->book.max};
    if (l->is_batch || l->done || l->book.cancelled) return f;
    if (dl_launch_forecast_now(&f, l->config->store, &left, m->prices)) f.known = f.waits = false;
    return f;
}

static void print_forecast(const money *m, const dl_launched *l)
{
    char text[DL_LAUNCH_FORECAST_TEXT];
    const dl_launch_forecast f = look_ahead(m, l);
    const bool more =
        m->prices && m->budget > 0 && f.known && cost_of(m, l) + f.machine + f.store > m->budget;
    if (f.known)
        printf("forecast: %s%s\n", dl_launch_forecast_text(text, &f, m->prices),
               more ? "; more than launch.budget" : "");
    if (f.waits) printf("forecast: unknown before a replica has applied an entry of the log\n");
}

/* The machine time counts all replicas, also those that are over. */
static void print_status(const dl_launched *l)
{
    char cost[DL_LAUNCHED_COST], found[DL_FOUND_MAX + 1];
    money m;
    dl_unit_text time;
    const char *what = l->is_batch ? "batch" : "run";
    dl_printable_line(found, sizeof found, l->book.found);
    printf("%s %.8s on %s%s%s%s: %" PRIu32, what, l->book.run, l->book.executor, *found ? " (" : "",
           found, *found ? ")" : "", l->book.min);
    if (l->book.max != l->book.min) printf(" to %" PRIu32, l->book.max);
    printf(" replica%s wanted%s", dl_plural(l->book.max), l->book.cancelled ? ", cancelled" : "");
    if (l->done) printf(", the %s is complete", what);
    putchar('\n');
    for (size_t i = 0; i < DL_JOBS_MAX; i++)
        if (l->book.ranks[i].started) print_job(&l->book.ranks[i].job);
    for (size_t i = 0; i < DL_JOBS_MAX; i++)
        print_orphan(&l->book.ranks[i]);
    printf("machine time: %s%s\n", dl_time_text(time, dl_book_machine_seconds(&l->book)),
           dl_launched_cost_text(cost, l->options, dl_book_machine_seconds(&l->book)));
    read_money(&m, l);
    print_money(&m, l);
    print_forecast(&m, l);
    if (l->is_far)
        printf("the run of this batch is in another place, and only exit codes were judged: name "
               "the configuration of the batch, or add --set job.run=URL\n");
}

/* A lost generation that may run, as an object; null: none. */
static void json_orphan(dl_json *j, const dl_book_rank *r)
{
    if (!*r->orphan.id) {
        dl_json_null(j, "orphan");
        return;
    }
    dl_json_object(j, "orphan");
    dl_json_u64(j, "generation", r->orphan.generation);
    dl_json_str(j, "name", r->orphan.name);
    dl_json_str(j, "id", r->orphan.id);
    dl_json_bool(j, "runs", r->orphan_runs);
    dl_json_end(j);
}

/* The members are a promise to programs. */
static void json_rank(dl_json *j, const dl_book_rank *r)
{
    const dl_job *job = &r->job;
    dl_json_object(j, NULL);
    dl_json_u64(j, "rank", job->rank);
    dl_json_u64(j, "generation", job->generation);
    dl_json_str(j, "name", job->name);
    dl_json_str(j, "id", job->id);
    dl_json_str(j, "state", dl_job_state_name(job->state));
    if (job->exit_code >= 0)
        dl_json_i64(j, "exit_code", job->exit_code);
    else
        dl_json_null(j, "exit_code");
    dl_json_str(j, "message", job->message);
    dl_json_bool(j, "answers", !job->silent);
    json_orphan(j, r);
    dl_json_end(j);
}

/* "found" is null where no program of the backend is known. */
static void json_found(dl_json *j, const char *found)
{
    if (*found)
        dl_json_str(j, "found", found);
    else
        dl_json_null(j, "found");
}

/* `complete` is null if every rank of a batch has succeeded and its run was not read: exit codes
 * alone complete no such batch. */
static void json_complete(dl_json *j, const dl_launched *l)
{
    if (l->done && l->is_far)
        dl_json_null(j, "complete");
    else
        dl_json_bool(j, "complete", l->done);
}

/* Print the book as one object. Ranks that were never started are left out. */
static diloco_status print_status_json(const dl_launched *l)
{
    dl_buf buf;
    dl_json j;
    money m;
    read_money(&m, l);
    const dl_launch_forecast f = look_ahead(&m, l);
    dl_buf_init(&buf, JSON_MAX);
    dl_json_init(&j, &buf);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "run", l->book.run);
    dl_json_str(&j, "executor", l->book.executor);
    json_found(&j, l->book.found);
    dl_json_u64(&j, "min", l->book.min);
    dl_json_u64(&j, "max", l->book.max);
    dl_json_bool(&j, "cancelled", l->book.cancelled);
    json_complete(&j, l);
    dl_json_f64(&j, "machine_s", dl_book_machine_seconds(&l->book));
    json_money(&j, &m, l);
    dl_launch_forecast_json(&j, &f, m.prices);
    dl_json_array(&j, "replicas");
    for (size_t i = 0; i < DL_JOBS_MAX; i++)
        if (l->book.ranks[i].started) json_rank(&j, &l->book.ranks[i]);
    dl_json_end(&j);
    dl_json_end(&j);
    return dl_print_json(&j, &buf);
}

/* Print the book, as lines or as JSON. */
static diloco_status show(const dl_launched *l, const dl_args *args)
{
    if (dl_args_has(args, DL_FLAG_JSON)) return print_status_json(l);
    print_status(l);
    return DILOCO_OK;
}

/* The backend is asked first, so the states are of now. */
static diloco_status cmd_launch_status(const dl_args *args)
{
    dl_launched l;
    DL_TRY(dl_launched_open(&l, args));
    const dl_control control = dl_launched_control(&l);
    diloco_status status = dl_control_poll(&control);
    if (!status) status = dl_orphans_poll(&control);
    /* The book's contents are shown even if the backend does not answer. */
    const bool silent = status == DILOCO_EUNREACHABLE;
    if (silent) fprintf(stderr, "diloco: warning: %s\n", diloco_error_text());
    if (!status && l.is_batch) status = dl_launched_look(&l);
    if (!status || silent) status = show(&l, args);
    dl_launched_close(&l);
    return status;
}

const dl_command dl_command_launch_status = {
    .name = "launch status",
    .target = "URL|CONFIG",
    .summary = "launched replicas: state, exit code, machine time",
    .flags = DL_FLAGS(DL_FLAG_SET, DL_FLAG_JSON),
    .sets = DL_SETS_MACHINE,
    .run = cmd_launch_status,
};

/* ---- logs */

/* The text in front of each line; "" for a single replica. */
typedef struct printer {
    const char *before;
} printer;

/* Called for each line of output, which ends without a newline. A closed pipe ends the reading. */
static diloco_status print_line(void *user, const char *line, size_t len)
{
    const printer *p = user;
    fputs(p->before, stdout);
    dl_print_foreign(line, len);
    putchar('\n');
    return dl_flush_output();
}

/* Without --rank the outputs are printed one after the other, each line with its replica. A
 * replica without an id was never started by its backend. */
static diloco_status print_logs(const dl_launched *l, const dl_args *args)
{
    uint64_t rank;
    const bool one = dl_args_has(args, DL_FLAG_RANK);
    bool any = false;
    DL_TRY(dl_args_u64(&rank, args, DL_FLAG_RANK, 0, DL_JOBS_MAX - 1));
    for (uint32_t i = 0; i < DL_JOBS_MAX; i++) {
        char before[24] = "";
        const dl_job *job = &l->book.ranks[i].job;
        if (!l->book.ranks[i].started || (one && i != rank)) continue;
        /* A rank that was asked for by number deserves a reason. */
        if (one && !*job->id)
            return dl_fail(DILOCO_ENOENT, "r%u has no output: it was not started (%s)", i,
                           *job->message ? job->message : "a launcher is about to");
        /* Of all ranks, those without output are left out. */
        if (!*job->id) continue;
        if (!one) snprintf(before, sizeof before, "r%u: ", i);
        printer p = {before};
        any = true;
        DL_TRY(dl_output_read(l->executor, &l->spec, l->book.store, job,
                              dl_args_has(args, DL_FLAG_FOLLOW), print_line, &p));
    }
    if (any) return DILOCO_OK;
    if (one) return dl_fail(DILOCO_ENOENT, "no replica r%" PRIu64 " was launched", rank);
    return dl_fail(DILOCO_ENOENT, "no replica was started");
}

/* --follow does not end by itself, so it reads one replica only. */
static diloco_status cmd_launch_logs(const dl_args *args)
{
    dl_launched l;
    if (dl_args_has(args, DL_FLAG_FOLLOW) && !dl_args_has(args, DL_FLAG_RANK))
        return dl_fail(DILOCO_EINVAL, "--follow reads one replica: add --rank N");
    DL_TRY(dl_launched_open(&l, args));
    const diloco_status status = print_logs(&l, args);
    dl_launched_close(&l);
    return status;
}

const dl_command dl_command_launch_logs = {
    .name = "launch logs",
    .target = "URL|CONFIG",
    .summary = "output of launched replicas",
    .flags = DL_FLAGS(DL_FLAG_RANK, DL_FLAG_FOLLOW, DL_FLAG_SET),
    .sets = DL_SETS_MACHINE,
    .run = cmd_launch_logs,
};

/* ---- cancel, collect, scale */

/* A lost replica that does not answer is a warning, and no error: its machine may be gone. */
static void warn(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "diloco: %s\n", line);
}

/* Returns true if no replica runs, and none may run. The book alone decides, except for a complete
 * run: its replicas end by themselves, so the executor is asked. */
static bool is_over(const dl_launched *l, const dl_control *control)
{
    if (l->done && (dl_control_poll(control) || dl_orphans_poll(control))) return false;
    for (size_t i = 0; i < DL_JOBS_MAX; i++) {
        const dl_book_rank *r = &l->book.ranks[i];
        if (r->started && (!dl_job_is_over(r->job.state) || *r->orphan.id)) return false;
    }
    return true;
}

/* The book is marked as cancelled, so no launcher starts the replicas again. A complete run needs
 * no mark. */
static diloco_status cancel(dl_launched *l)
{
    dl_control control = dl_launched_control(l);
    if (l->done && is_over(l, &control)) {
        printf("the %s is complete, and no replica runs: nothing was stopped\n", control.what);
        return DILOCO_OK;
    }
    control.on_notice = warn;
    DL_TRY(dl_control_cancel(&control));
    if (!l->done && is_over(l, &control))
        printf("no replica was running, and none is started before the next diloco launch\n");
    else
        printf("every replica was asked to stop; diloco launch collect waits for them\n");
    return DILOCO_OK;
}

static diloco_status cmd_launch_cancel(const dl_args *args)
{
    dl_launched l;
    DL_TRY(dl_launched_open(&l, args));
    const diloco_status status = cancel(&l);
    dl_launched_close(&l);
    return status;
}

const dl_command dl_command_launch_cancel = {
    .name = "launch cancel",
    .target = "URL|CONFIG",
    .summary = "stop all launched replicas; launch starts them again",
    .flags = DL_FLAGS(DL_FLAG_SET),
    .sets = DL_SETS_MACHINE,
    .run = cmd_launch_cancel,
};

static diloco_status is_done(void *user, bool *done)
{
    dl_launched *l = user;
    DL_TRY(dl_launched_look(l));
    *done = l->done;
    return DILOCO_OK;
}

/* Ends when every replica is over, or after --timeout. */
static diloco_status cmd_launch_collect(const dl_args *args)
{
    dl_launched l;
    double timeout_s;
    DL_TRY(dl_args_f64(&timeout_s, args, DL_FLAG_TIMEOUT, 0, 1e9));
    DL_TRY(dl_launched_open(&l, args));
    dl_control control = dl_launched_control(&l);
    /* Ctrl-C ends the waiting, and not the replicas. */
    control.stop = dl_launched_stop();
    control.user = &l;
    control.is_done = is_done;
    diloco_status status = dl_control_collect(&control, timeout_s);
    /* It may have become complete while we waited. */
    if (!status) status = dl_launched_look(&l);
    if (!status) status = show(&l, args);
    dl_launched_close(&l);
    return status;
}

const dl_command dl_command_launch_collect = {
    .name = "launch collect",
    .target = "URL|CONFIG",
    .summary = "wait until every launched replica is over",
    .flags = DL_FLAGS(DL_FLAG_TIMEOUT, DL_FLAG_SET, DL_FLAG_JSON),
    .sets = DL_SETS_MACHINE,
    .run = cmd_launch_collect,
};

/* The new numbers are in the book first, so a launcher that follows the run sees them; surplus
 * replicas are stopped here. A complete run needs no replica, and those that run end by
 * themselves. */
static diloco_status scale(dl_launched *l, const char *text)
{
    uint32_t min, max;
    const dl_control control = dl_launched_control(l);
    DL_TRY(dl_launched_numbers(&min, &max, text));
    if (l->is_batch)
        return dl_fail(DILOCO_EREFUSED,
                       "%s holds a batch, whose ranks divide its work, so their number is fixed: "
                       "launch another batch in another store",
                       l->config->store);
    if (l->done) {
        printf("the %s is complete, so no replica is started: nothing was changed\n", control.what);
        return DILOCO_OK;
    }
    DL_TRY(dl_book_scale(&l->book, min, max));
    DL_TRY(dl_control_stop_surplus(&control));
    printf("%u to %u replicas are wanted; a diloco launch that follows the run starts what is "
           "missing\n",
           min, max);
    return DILOCO_OK;
}

/* Without --replicas nothing is opened, since there is no number to change to. */
static diloco_status cmd_launch_scale(const dl_args *args)
{
    dl_launched l;
    const char *text = args->flags[DL_FLAG_LAUNCH_REPLICAS];
    if (!text) return dl_fail(DILOCO_EINVAL, "launch scale needs a number of replicas: N or A..B");
    DL_TRY(dl_launched_open(&l, args));
    const diloco_status status = scale(&l, text);
    dl_launched_close(&l);
    return status;
}

const dl_command dl_command_launch_scale = {
    .name = "launch scale",
    .target = "URL|CONFIG",
    .second = DL_FLAG_LAUNCH_REPLICAS,
    .summary = "change the number of launched replicas",
    .details =
        "A `diloco launch` that follows the run starts what is missing. Replicas above the number\n"
        "are stopped at once.",
    .flags = DL_FLAGS(DL_FLAG_LAUNCH_REPLICAS, DL_FLAG_SET),
    .sets = DL_SETS_MACHINE,
    .run = cmd_launch_scale,
};
