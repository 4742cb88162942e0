/* plan_answer.c - the planner's answer. It has every method on this link, the volumes of an
 * exchange, the recommended method and its flags for `diloco train`. It is printed as lines or as
 * one JSON object.
 *
 * Begin with dl_plan_answer: the rows are computed first, then one is recommended, then all is
 * printed. */
#include "cli/display/units.h"
#include "cli/plan/plan_pages.h"
#include "plan/published.h"
#include "plan/recommend.h"
#include <diloco/train.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Methods of the table with CONFIG's row, and options of a recommendation; add_option asserts the
 * latter. */
enum { MAX_ROWS = 16, MAX_OPTIONS = 8 };

/* One method on this link. */
typedef struct row {
    const char *name, *codec, *summary; /* constants, or of CONFIG */
    bool offered;                       /* by this program */
    dl_plan_choice choice;
    dl_forecast forecast;
} row;

/* The whole answer. It is static, as it is too large for some stacks. */
typedef struct answer {
    const dl_plan_question *q; /* borrowed */
    row rows[MAX_ROWS];        /* in the order of the table */
    size_t n;
    dl_recommendation best;        /* with its reason */
    char options[MAX_OPTIONS][96]; /* of best, for `diloco train` */
    size_t n_options;
} answer;

/* Return the price table, or NULL: a forecast without prices has a cost of 0. */
static const dl_prices *prices_of(const dl_plan_question *q)
{
    return q->has_prices ? &q->prices : NULL;
}

/* Return true if this program has such a preset or codec, so only what can be run is
 * recommended. */
static bool offered(void *user, const char *kind, const char *name)
{
    const char *option = strcmp(kind, "codec") == 0 ? "server.diloco.codec" : kind, *value;
    (void)user;
    for (size_t i = 0; (value = diloco_choice_at(option, i)); i++)
        if (strcmp(value, name) == 0) return true;
    return false;
}

/* ---- the rows */

/* The rule of the schedule (P21): tau below H, or a whole round for methods that are made for
 * it. */
static diloco_status check_choice(const char *name, const dl_plan_choice *c, bool round_late)
{
    if (c->tau < c->sync_every || (round_late && c->tau == c->sync_every)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "%s: --tau %u with an exchange every %u step%s: a fragment would be sent again "
                   "before it was adopted; take a tau below %u",
                   name, c->tau, c->sync_every, c->sync_every == 1 ? "" : "s", c->sync_every);
}

/* Bound the interval by the length of the run. A method's own interval is of runs longer than
 * some. */
static void bound_by_length(dl_plan_choice *c, const dl_plan_task *task)
{
    const uint32_t most = dl_plan_most_interval(task);
    if (c->sync_every <= most) return;
    c->sync_every = most;
    if (c->tau >= most) c->tau = most - 1;
}

/* Put the command line over the method's values: all of it where the method is named. Otherwise
 * only what the method has a use for, so the rows stay comparable. */
static diloco_status choose(dl_plan_choice *c, const dl_plan_question *q, const dl_plan_method *m)
{
    bool named = q->method != NULL, every_step = m->sync_every == 1;
    *c = dl_plan_default(m, q->layers, q->fragment_layers);
    bound_by_length(c, &q->task);
    if (q->sync_every > 0 && (named || !every_step)) c->sync_every = (uint32_t)q->sync_every;
    if (m->delayed) c->tau = c->sync_every;
    if (q->tau >= 0 && (named || m->tau)) c->tau = (uint32_t)q->tau;
    if (q->bits > 0 && (named || (!every_step && strcmp(m->codec, "topk") != 0))) c->bits = q->bits;
    if (c->fragments > c->sync_every) c->fragments = c->sync_every;
    c->exchange = q->exchange;
    return check_choice(m->name, c, m->delayed);
}

/* A row whose bits are not its codec's is marked "--bits". */
static diloco_status add_method(answer *a, const dl_plan_method *m)
{
    row *r = &a->rows[a->n++];
    *r = (row){.name = m->name,
               .summary = m->summary,
               .codec = m->codec,
               .offered = offered(NULL, "preset", m->preset)};
    DL_TRY(choose(&r->choice, a->q, m));
    if (r->choice.bits != dl_plan_codec_find(m->codec)->bits) r->codec = "--bits";
    r->forecast = dl_plan_forecast(&a->q->task, &r->choice, prices_of(a->q));
    return DILOCO_OK;
}

/* Write the bits of a value with CONFIG's codec and its options. */
static diloco_status config_bits(double *out, const dl_config *config)
{
    const dl_plan_codec *codec = dl_plan_codec_find(config->codec);
    if (!codec)
        return dl_fail(DILOCO_EREFUSED,
                       "plan does not know how many bits codec %s takes; --method NAME leaves "
                       "CONFIG's own choice out",
                       config->codec);
    *out = codec->bits_with ? codec->bits_with(config) : codec->bits;
    return DILOCO_OK;
}

/* H is the mean, where trainer.local_steps_phases gives rounds of several lengths. */
diloco_status dl_plan_of_config(dl_plan_choice *out, const dl_config *config, double steps,
                                uint32_t layers, dl_exchange exchange)
{
    double bits = 0;
    DL_TRY(config_bits(&bits, config));
    const double mean = ceil(steps / fmax(1, (double)config->rounds));
    if (mean > DL_PLAN_MAX_SYNC)
        return dl_fail(DILOCO_EINVAL, "plan takes trainer.local_steps_per_round up to %d",
                       DL_PLAN_MAX_SYNC);
    uint32_t H = (uint32_t)mean, blocks = (uint32_t)config->fragment_layers;
    bool round_late = config->overlap != DL_OVERLAP_STEPS; /* delayed, eager */
    *out = (dl_plan_choice){.sync_every = H,
                            .fragments = (uint32_t)config->fragments,
                            .tau = round_late ? H : (uint32_t)config->overlap_steps,
                            .bits = bits,
                            .exchange = exchange};
    /* The number of fragments follows from the layers, as in plan/methods.c. */
    if (!out->fragments) out->fragments = blocks ? (layers + blocks - 1) / blocks + 1 : 1;
    if (out->fragments > H) out->fragments = H;
    return check_choice("CONFIG", out, round_late);
}

/* The configuration is one more row, so it can be compared with the methods. */
static diloco_status add_config(answer *a)
{
    const dl_config *config = &a->q->config;
    if (!a->q->has_config || a->q->method) return DILOCO_OK;
    row *r = &a->rows[a->n++];
    *r = (row){
        .name = "CONFIG", .summary = "as CONFIG says", .codec = config->codec, .offered = true};
    DL_TRY(dl_plan_of_config(&r->choice, config, a->q->task.steps, a->q->layers, a->q->exchange));
    r->forecast = dl_plan_forecast(&a->q->task, &r->choice, prices_of(a->q));
    return DILOCO_OK;
}

/* Compute all rows, or the row of --method alone. CONFIG's own row is the last. */
static diloco_status add_rows(answer *a)
{
    const dl_plan_method *m;
    for (size_t i = 0; (m = dl_plan_method_at(i)) && a->n + 1 < MAX_ROWS; i++)
        if (!a->q->method || a->q->method == m) DL_TRY(add_method(a, m));
    return add_config(a);
}

/* ---- what to say to train */

/* "name=value", for --set. */
static void add_option(answer *a, const char *name, const char *value)
{
    DL_ASSERT(a->n_options < MAX_OPTIONS);
    snprintf(a->options[a->n_options++], sizeof a->options[0], "%s=%s", name, value);
}

/* Add an option with a whole number as its value. */
static void add_number(answer *a, const char *name, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.0f", value);
    add_option(a, name, text);
}

/* The flags that make `diloco train` do what is recommended. */
static void fill_options(answer *a)
{
    const dl_plan_choice *c = &a->best.choice;
    add_option(a, "preset", a->best.method->preset);
    add_number(a, "sync_every", c->sync_every);
    add_number(a, "trainer.rounds", fmax(1, ceil(a->q->task.steps / c->sync_every)));
    if (!a->best.method->fragments)
        add_number(a, "server.diloco.fragment_layers", a->q->fragment_layers);
    if (c->tau) add_number(a, "server.diloco.overlap_steps", c->tau);
    add_option(a, "codec", a->best.codec);
}

/* ---- lines */

/* The assumptions, so a reader sees from what the numbers follow. */
static void print_task(const answer *a)
{
    const dl_plan_task *t = &a->q->task;
    dl_unit_text n, step, compute, up, down, latency, steps;
    /* Measured step times are marked, as they are of this machine. */
    printf("model   %s parameters, %u layers; %s a step%s\n",
           dl_count_text(n, (uint64_t)t->parameters), a->q->layers, dl_time_text(step, t->step_s),
           a->q->measured_step ? ", measured here with one replica" : "");
    printf("run     %u replica%s, %s steps each: %s of compute\n", t->replicas,
           dl_plural(t->replicas), dl_count_text(steps, (uint64_t)t->steps),
           dl_time_text(compute, t->steps * t->step_s));
    printf("link    %sbit/s up, %sbit/s down, %s a request; exchange %s\n",
           dl_rate_text(up, t->link.up_bps), dl_rate_text(down, t->link.down_bps),
           dl_time_text(latency, t->link.latency_s), dl_exchange_names[a->q->exchange]);
    if (a->q->has_prices)
        printf("prices  of %s: %g a GB read, %g a GB written, %g per 1000 puts, %g per 1000 gets, "
               "%g a "
               "machine hour%s%s\n",
               a->q->prices.date, a->q->prices.egress_per_gb, a->q->prices.ingress_per_gb,
               a->q->prices.put_per_1000, a->q->prices.get_per_1000, a->q->prices.machine_hour,
               *a->q->prices.currency ? ", in " : "", a->q->prices.currency);
}

/* '*' marks a method that this program does not have. */
static void print_row(const answer *a, const row *r)
{
    const dl_forecast *f = &r->forecast;
    dl_unit_text wall, sent, peak, written, read, requests;
    printf("%-18s%c %4u %4u %4u %-6s %5.1f %% %13s %8s %8s %8s %8s %8s", r->name,
           r->offered ? ' ' : '*', r->choice.sync_every, r->choice.fragments, r->choice.tau,
           r->codec, 100 * f->utilization, dl_time_text(wall, f->wall_s),
           dl_bytes_text(sent, f->bits_sent / 8), dl_bytes_text(peak, f->peak_bits / 8),
           dl_bytes_text(written, f->bytes_written), dl_bytes_text(read, f->bytes_read),
           dl_rate_text(requests, f->n_put + f->n_get));
    if (a->q->has_prices) printf(" %9.2f", f->cost);
    putchar('\n');
}

/* The legend is below the table, as its words are too long for the columns. */
static void print_rows(const answer *a)
{
    bool all_offered = true;
    printf("\n%-19s %4s %4s %4s %-6s %7s %13s %8s %8s %8s %8s %8s%s\n", "method", "H", "P", "tau",
           "codec", "busy", "wall clock", "sent", "a sync", "written", "read", "requests",
           a->q->has_prices ? "      cost" : "");
    for (size_t i = 0; i < a->n; i++) {
        print_row(a, &a->rows[i]);
        all_offered = all_offered && a->rows[i].offered;
    }
    puts("sent: by a replica in the run; a sync: by a replica in one exchange; written, read, "
         "requests: of\nthe store, snapshots and heartbeats included");
    if (!all_offered) puts("* not in this program");
}

/* All exchanges of the recommended method, since the best one depends on the number of replicas. */
static void print_volumes(const answer *a)
{
    dl_plan_choice c = a->best.choice;
    dl_unit_text written, read;
    dl_exchange least = dl_plan_cheapest(&a->q->task, c);
    puts("\none exchange of what is recommended    written      read");
    for (int e = 0; e < DL_N_EXCHANGES; e++) {
        c.exchange = (dl_exchange)e;
        dl_plan_exchange x = dl_plan_exchange_of(&a->q->task, &c);
        printf("  %-32s %10s %10s%s\n", dl_exchange_names[e], dl_bytes_text(written, x.written),
               dl_bytes_text(read, x.read), c.exchange == least ? "  moves least" : "");
    }
}

/* Print the assumptions, the table, the exchanges, and the recommendation with its flags. */
static void print_lines(const answer *a)
{
    print_task(a);
    print_rows(a);
    print_volumes(a);
    printf("\nrecommended: %s\n ", a->best.reason);
    for (size_t i = 0; i < a->n_options; i++)
        printf(" --set %s", a->options[i]);
    putchar('\n');
}

/* ---- JSON: the same numbers, with a unit in each name */

/* Add the assumptions as the member "task". */
static void add_task_json(dl_json *json, const answer *a)
{
    const dl_plan_task *t = &a->q->task;
    dl_json_object(json, "task");
    dl_json_f64(json, "params", t->parameters);
    dl_json_u64(json, "layers", a->q->layers);
    dl_json_f64(json, "step_seconds", t->step_s);
    dl_json_bool(json, "step_measured", a->q->measured_step);
    dl_json_f64(json, "steps", t->steps);
    dl_json_u64(json, "replicas", t->replicas);
    dl_json_f64(json, "up_bps", t->link.up_bps);
    dl_json_f64(json, "down_bps", t->link.down_bps);
    dl_json_f64(json, "latency_s", t->link.latency_s);
    dl_json_str(json, "exchange", dl_exchange_names[a->q->exchange]);
    dl_json_end(json);
}

/* Add the values of a method to the open object. */
static void add_choice_json(dl_json *json, const dl_plan_choice *c, const char *codec)
{
    dl_json_u64(json, "sync_every", c->sync_every);
    dl_json_u64(json, "fragments", c->fragments);
    dl_json_u64(json, "tau", c->tau);
    dl_json_str(json, "codec", codec);
    dl_json_f64(json, "bits", c->bits);
}

/* Add a forecast to the open object. Sizes are bits for one replica and bytes for the store. */
static void add_forecast_json(dl_json *json, const dl_forecast *f, bool priced)
{
    dl_json_f64(json, "utilization", f->utilization);
    dl_json_f64(json, "wall_s", f->wall_s);
    dl_json_f64(json, "bits_per_replica", f->bits_sent);
    dl_json_f64(json, "bits_received_per_replica", f->bits_received);
    dl_json_f64(json, "peak_bits_per_sync", f->peak_bits);
    dl_json_f64(json, "bytes_written", f->bytes_written);
    dl_json_f64(json, "bytes_read", f->bytes_read);
    dl_json_f64(json, "puts", f->n_put);
    dl_json_f64(json, "gets", f->n_get);
    if (priced) dl_json_f64(json, "cost", f->cost);
}

/* Add the table as the member "methods". */
static void add_rows_json(dl_json *json, const answer *a)
{
    dl_json_array(json, "methods");
    for (size_t i = 0; i < a->n; i++) {
        const row *r = &a->rows[i];
        dl_json_object(json, NULL);
        dl_json_str(json, "name", r->name);
        dl_json_str(json, "summary", r->summary);
        dl_json_bool(json, "available", r->offered);
        add_choice_json(json, &r->choice, r->codec);
        add_forecast_json(json, &r->forecast, a->q->has_prices);
        dl_json_end(json);
    }
    dl_json_end(json);
}

/* The recommended values are given twice: as numbers, and as --set for `diloco train`. */
static void add_best_json(dl_json *json, const answer *a)
{
    const dl_recommendation *b = &a->best;
    dl_plan_choice c = b->choice;
    dl_json_object(json, "recommended");
    dl_json_str(json, "preset", b->method->preset);
    add_choice_json(json, &c, b->codec);
    dl_json_bool(json, "reaches_target", b->reached);
    dl_json_str(json, "reason", b->reason);
    dl_json_array(json, "set");
    for (size_t i = 0; i < a->n_options; i++)
        dl_json_str(json, NULL, a->options[i]);
    dl_json_end(json);
    add_forecast_json(json, &b->forecast, a->q->has_prices);
    dl_json_object(json, "exchanges");
    for (int e = 0; e < DL_N_EXCHANGES; e++) {
        c.exchange = (dl_exchange)e;
        dl_plan_exchange x = dl_plan_exchange_of(&a->q->task, &c);
        dl_json_object(json, dl_exchange_names[e]);
        dl_json_f64(json, "bytes_written", x.written);
        dl_json_f64(json, "bytes_read", x.read);
        dl_json_end(json);
    }
    dl_json_end(json);
    dl_json_str(json, "cheapest_exchange", dl_exchange_names[dl_plan_cheapest(&a->q->task, c)]);
    dl_json_end(json);
}

/* Add the price table with its date, as a cost is worth nothing without it. */
static void add_prices_json(dl_json *json, const dl_prices *p)
{
    dl_json_object(json, "prices");
    dl_json_str(json, "date", p->date);
    dl_json_str(json, "currency", p->currency);
    dl_json_f64(json, "egress_per_gb", p->egress_per_gb);
    dl_json_f64(json, "ingress_per_gb", p->ingress_per_gb);
    dl_json_f64(json, "put_per_1000", p->put_per_1000);
    dl_json_f64(json, "get_per_1000", p->get_per_1000);
    dl_json_f64(json, "machine_hour", p->machine_hour);
    dl_json_end(json);
}

/* Print the whole answer as one object. */
static diloco_status print_json(const answer *a, bool advice)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, 1 << 20);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    add_task_json(&json, a);
    add_rows_json(&json, a);
    add_best_json(&json, a);
    if (a->q->has_prices) add_prices_json(&json, &a->q->prices);
    if (advice) dl_plan_add_advice(&json, &a->q->task, a->best.choice.sync_every);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* The recommendation needs the rows' question, not the rows themselves. */
diloco_status dl_plan_answer(const dl_plan_question *q, const dl_args *args)
{
    static answer a; /* large */
    bool advice = dl_args_has(args, DL_FLAG_ADVICE);
    a = (answer){.q = q};
    DL_TRY(add_rows(&a));
    DL_TRY(dl_plan_recommend(&a.best, &q->task, q->layers, q->fragment_layers, q->exchange,
                             q->target, prices_of(q), offered, NULL));
    fill_options(&a);
    if (dl_args_has(args, DL_FLAG_JSON)) return print_json(&a, advice);
    print_lines(&a);
    if (advice) dl_plan_print_advice(&q->task, a.best.choice.sync_every);
    return DILOCO_OK;
}
