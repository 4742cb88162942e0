/* cmd_doctor.c - look before training: the machine and its card; a store; the memory a run will
 * take.
 *
 * A section is a plain struct of numbers, gathered first and then printed as lines or as JSON. A
 * card is compared with the CPU, kernel by kernel, and its speed is measured. A store is probed for
 * the property that a run needs: of several concurrent creates of one name exactly one may win
 * (P26). */
#include "base/link.h"
#include "cli/crew/crew.h"
#include "cli/display/units.h"
#include "cli/settings/settings.h"
#include <diloco/inspect.h>
#include <diloco/train.h>

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* All that was gathered. A store or a plan is present only where its flag is true. */
typedef struct checkup {
    uint64_t memory, memory_free; /* bytes; of the machine */
    bool has_store, store_is_refused, has_plan, without_data;
    diloco_store_report store;
    diloco_memory_plan plan;
    int64_t local_replicas; /* that the plan is multiplied by */
    bool has_card;          /* which agrees with the CPU */
    diloco_device_report card;
    double tokens_per_s; /* of a replica on the card; 0: there is no card or no plan */
    char no_card[512];   /* why not */
} checkup;

/* Read the machine's physical memory. `memory_free` excludes the page cache, so it is a low
 * estimate. */
static void look_at_machine(checkup *c)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    c->memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
    c->memory_free = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
}

/* A machine without a card is no error, unless its configuration wants one. */
static diloco_status look_at_card(checkup *c, const char *device)
{
    const diloco_status status = diloco_device_check(&c->card, device);
    c->has_card = !status;
    if (status) snprintf(c->no_card, sizeof c->no_card, "%s", diloco_error_text());
    return status;
}

/* Estimates the tokens a second of one replica that has the card for itself. A step takes the time
 * of its matrix products, and the time to move its arrays through the card's memory. Parameters,
 * gradients and moments are read and written once. Activations are written and read in both
 * directions. A kernel that is slower than the card's memory is not in the estimate. */
static double expected_tokens_per_s(const checkup *c, const dl_config *config)
{
    const diloco_memory_plan *p = &c->plan;
    const double batch = (double)config->batch_size * (double)config->context;
    const double tokens = batch * (double)config->accumulation;
    const double model = 2 * (double)(p->local + p->gradient + p->moments);
    const double moved = model / tokens + 4 * (double)p->activations / batch;
    const double flops =
        config->precision == DL_PRECISION_BF16 ? c->card.bf16_product_flops : c->card.product_flops;
    return 1 / (p->flops_per_token / flops + moved / c->card.copy_bytes);
}

/* Put the simulated link in front of the store. A loss of 100 % is refused: no request would
 * end. */
static diloco_status slow_down(const char *text)
{
    dl_link link;
    DL_TRY(dl_link_parse(&link, "--link", text));
    if (link.loss >= 1)
        return dl_fail(DILOCO_EINVAL,
                       "--link %s: over a link that loses everything there is nothing to measure; "
                       "give a loss below 100%%",
                       text);
    return diloco_store_link(text);
}

/* Look at the target: a configuration, or a store's URL. A store that lets two writers create
 * one name is refused (P26), and its numbers are kept for the report. */
static diloco_status look(checkup *c, const dl_args *args, dl_config *config)
{
    /* --link slows down the store that is probed; a configuration has run.link for that. */
    const char *link = args->flags[DL_FLAG_RUN_LINK];
    if (link && (!args->target || dl_is_config_file(args->target)))
        return dl_fail(DILOCO_EINVAL, "doctor takes --link with a store's URL");
    if (!args->target) {
        (void)!look_at_card(c, "cuda");
        return DILOCO_OK;
    }
    if (!dl_is_config_file(args->target)) {
        if (args->n_sets)
            return dl_fail(DILOCO_EINVAL, "doctor takes --set with a CONFIG, not with a store");
        if (link) DL_TRY(slow_down(link));
        const diloco_status status = diloco_store_check(&c->store, args->target);
        c->store_is_refused = status == DILOCO_EREFUSED && c->store.winners > 1;
        c->has_store = !status || c->store_is_refused;
        return status;
    }
    DL_TRY(dl_settings_load(config, args));
    DL_TRY(dl_crew_fill_in(config));
    /* Memory can be estimated without the data, which may be on another machine. */
    if (*config->train_path) DL_TRY(diloco_train_check(config));
    c->without_data = !*config->train_path;
    c->has_plan = true;
    c->local_replicas = config->local_replicas;
    DL_TRY(diloco_train_plan(&c->plan, config));
    if (strcmp(config->device, "cpu") == 0) return DILOCO_OK;
    DL_TRY(look_at_card(c, config->device));
    c->tokens_per_s = expected_tokens_per_s(c, config);
    return DILOCO_OK;
}

/* ---- lines */

/* Print one part of the plan; with `parameters` not 0 also its size per parameter. */
static void print_bytes(const char *name, uint64_t bytes, uint64_t parameters)
{
    dl_unit_text text;
    printf("  %-14s %10s", name, dl_bytes_text(text, (double)bytes));
    if (parameters) printf("  %5.1f bytes a parameter", (double)bytes / (double)parameters);
    putchar('\n');
}

/* Print the memory of one replica by its parts, then that of all replicas here. The parts are those
 * of diloco_memory_plan, in bytes. */
static void print_plan(const checkup *c)
{
    const diloco_memory_plan *p = &c->plan;
    dl_unit_text n, all, memory;
    printf("\na replica: %s parameters, %d thread%s, %.3g flops a token\n",
           dl_count_text(n, p->parameters), p->threads, p->threads == 1 ? "" : "s",
           p->flops_per_token);
    print_bytes("local", p->local, p->parameters);
    print_bytes("gradient", p->gradient, p->parameters);
    print_bytes("moments", p->moments, p->parameters);
    print_bytes("theta", p->theta, p->parameters);
    print_bytes("momentum", p->momentum, p->parameters);
    print_bytes("activations", p->activations, 0);
    print_bytes("staging", p->staging, 0);
    print_bytes("contributions", p->contributions, 0);
    printf("                 (moved by %s)\n", p->exchange);
    if (p->copies) print_bytes("copies", p->copies, p->parameters);
    print_bytes("data", p->data, 0);
    if (c->without_data) puts("                 (of batches only: data.train_path is not set)");
    print_bytes("other", p->other, 0);
    print_bytes("total", p->total, p->parameters);
    uint64_t together = p->total * (uint64_t)c->local_replicas;
    printf("%" PRId64 " here: %s of %s%s\n", c->local_replicas,
           dl_bytes_text(all, (double)together), dl_bytes_text(memory, (double)c->memory),
           together > c->memory ? ": MORE THAN THIS MACHINE HAS" : "");
    if (c->tokens_per_s > 0)
        printf("expected on the card: %s tokens a second, for one replica alone on it\n",
               dl_count_text(n, (uint64_t)c->tokens_per_s));
}

/* Print the accelerator, whether its kernels give the results of the CPU, and its speed. */
static void print_card(const checkup *c)
{
    const diloco_device_report *r = &c->card;
    dl_unit_text memory, copies;
    if (r->card[0])
        printf("  card           %s, %s, compute capability %d.%d, driver for CUDA %d.%d\n",
               r->card, dl_bytes_text(memory, (double)r->memory), r->capability / 10,
               r->capability % 10, r->driver / 1000, r->driver % 1000 / 10);
    if (c->has_card)
        printf("  kernels        all %d give the CPU's results, compared in %.3g s\n"
               "  card's speed   products %.3g GFLOP/s in float32 and %.3g in bfloat16,"
               " copies in its memory %s/s\n",
               r->kernels, r->self_test_seconds, r->product_flops * 1e-9,
               r->bf16_product_flops * 1e-9, dl_bytes_text(copies, r->copy_bytes));
    else
        printf("  %-14s %s%s\n", r->card[0] ? "kernels" : "card",
               r->card[0] ? "" : "none: ", c->no_card);
}

/* Print the result of the probe. Speeds are of this machine's link and of this moment. */
static void print_store(const checkup *c, const char *url)
{
    const diloco_store_report *s = &c->store;
    printf("\nstore %s\n", url);
    printf("  create-once    %d of 8 concurrent creates of one name won: %s\n", s->winners,
           c->store_is_refused ? "WRONG, it cannot hold a run" : "right");
    if (c->store_is_refused) return; /* its speed was not measured */
    printf("  latency        create %.3g ms, read %.3g ms\n", s->create_ms, s->read_ms);
    printf("  throughput     write %.3g MB/s, read %.3g MB/s\n", s->write_mb_per_s,
           s->read_mb_per_s);
}

/* Print the facts that need no store and no configuration. */
static void print_machine(const checkup *c)
{
    dl_unit_text memory, left;
    printf("diloco %s\n", diloco_version());
    printf("  cores          %d that this process may use\n", diloco_cores());
    printf("  vector kernels %s\n", diloco_isa());
    printf("  memory         %s, %s free\n", dl_bytes_text(memory, (double)c->memory),
           dl_bytes_text(left, (double)c->memory_free));
}

/* ---- JSON */

/* Add the member "store". A refused store has no speeds, as they were not measured. */
static void add_store(dl_json *json, const checkup *c)
{
    const diloco_store_report *s = &c->store;
    dl_json_object(json, "store");
    dl_json_i64(json, "winners", s->winners);
    dl_json_bool(json, "create_once", !c->store_is_refused);
    if (c->store_is_refused) {
        dl_json_end(json);
        return;
    }
    dl_json_f64(json, "create_ms", s->create_ms);
    dl_json_f64(json, "read_ms", s->read_ms);
    dl_json_f64(json, "write_mb_per_s", s->write_mb_per_s);
    dl_json_f64(json, "read_mb_per_s", s->read_mb_per_s);
    dl_json_end(json);
}

/* Add the member "gpu". `problem` is "" for a usable card. */
static void add_card(dl_json *json, const checkup *c)
{
    const diloco_device_report *r = &c->card;
    dl_json_object(json, "gpu");
    dl_json_str(json, "card", r->card);
    dl_json_u64(json, "memory", r->memory);
    dl_json_i64(json, "driver", r->driver);
    dl_json_i64(json, "kernels", r->kernels);
    dl_json_f64(json, "product_flops_per_s", r->product_flops);
    dl_json_f64(json, "bf16_product_flops_per_s", r->bf16_product_flops);
    dl_json_f64(json, "copy_bytes_per_s", r->copy_bytes);
    dl_json_i64(json, "capability", r->capability);
    dl_json_f64(json, "self_test_seconds", r->self_test_seconds);
    dl_json_bool(json, "usable", c->has_card);
    dl_json_str(json, "problem", c->no_card);
    dl_json_end(json);
}

/* Add the member "plan": bytes of one replica, by part. */
static void add_plan(dl_json *json, const checkup *c)
{
    const diloco_memory_plan *p = &c->plan;
    dl_json_object(json, "plan");
    dl_json_u64(json, "parameters", p->parameters);
    dl_json_u64(json, "local", p->local);
    dl_json_u64(json, "gradient", p->gradient);
    dl_json_u64(json, "moments", p->moments);
    dl_json_u64(json, "theta", p->theta);
    dl_json_u64(json, "momentum", p->momentum);
    dl_json_u64(json, "activations", p->activations);
    dl_json_u64(json, "staging", p->staging);
    dl_json_u64(json, "contributions", p->contributions);
    dl_json_str(json, "exchange", p->exchange);
    dl_json_u64(json, "copies", p->copies);
    dl_json_u64(json, "data", p->data);
    dl_json_u64(json, "other", p->other);
    dl_json_u64(json, "total", p->total);
    dl_json_i64(json, "threads", p->threads);
    dl_json_i64(json, "local_replicas", c->local_replicas);
    dl_json_f64(json, "flops_per_token", p->flops_per_token);
    if (c->tokens_per_s > 0) dl_json_f64(json, "expected_tokens_per_s", c->tokens_per_s);
    dl_json_end(json);
}

/* Print one object. A member that was not looked at is absent. */
static diloco_status print_json(const checkup *c)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, 1 << 20);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    dl_json_str(&json, "version", diloco_version());
    dl_json_i64(&json, "cores", diloco_cores());
    dl_json_str(&json, "isa", diloco_isa());
    dl_json_u64(&json, "memory", c->memory);
    dl_json_u64(&json, "memory_free", c->memory_free);
    if (c->has_card || c->no_card[0]) add_card(&json, c);
    if (c->has_store) add_store(&json, c);
    if (c->has_plan) add_plan(&json, c);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* The machine is printed before the store is tried, as that may take two minutes. A refused
 * store is reported first and returned as the error afterwards. */
static diloco_status cmd_doctor(const dl_args *args)
{
    dl_config config;
    checkup c = {.has_store = false};
    char why[512];
    const bool json = dl_args_has(args, DL_FLAG_JSON);
    look_at_machine(&c);
    if (!json) print_machine(&c);
    fflush(stdout); /* a store may take its time */
    diloco_status status = look(&c, args, &config);
    /* Printing calls the library, which may replace the text of the error. */
    snprintf(why, sizeof why, "%s", diloco_error_text());
    if (json) {
        if (status && !c.store_is_refused) return status;
        DL_TRY(print_json(&c));
    } else {
        if (c.has_card || c.no_card[0]) print_card(&c);
        if (c.has_store) print_store(&c, args->target);
        if (c.has_plan && (!status || c.no_card[0])) print_plan(&c);
    }
    return status ? dl_fail(status, "%s", why) : DILOCO_OK;
}

const dl_command dl_command_doctor = {
    .name = "doctor",
    .target = "[CONFIG|URL]",
    .summary = "check this machine, a store, or the memory that a run needs",
    .flags = DL_FLAGS(DL_FLAG_RUN_LINK, DL_FLAG_SET, DL_FLAG_JSON),
    .sets = DL_SETS_ALL,
    .run = cmd_doctor,
};
