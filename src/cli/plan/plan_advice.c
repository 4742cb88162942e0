/* plan_advice.c - `diloco plan --advice`: loss, inner learning rate and batch by the scaling laws
 * of 2503.09799, its idealised wall clock, and what is known about the outer learning rate.
 *
 * The fits are power laws of the number of parameters (src/plan/fits.h). They are of the paper's
 * own setting, so they are printed beside a plan and do not enter its recommendation. */
#include "cli/display/units.h"
#include "cli/plan/plan_pages.h"
#include "plan/fits.h"

#include <math.h>

/* The rows that the paper fitted by themselves; another number of replicas is one more row. */
static const uint32_t fitted[] = {0, 1, 2, 4, 8}; /* replicas; 0: data-parallel */
enum { N_FITTED = sizeof fitted / sizeof fitted[0] };

/* The networks between replicas that the paper compares. */
static const struct {
    double gbit, latency_s; /* of one request */
} networks[] = {{400, 1e-4}, {100, 1e-3}, {10, 1e-2}};
enum { N_NETWORKS = sizeof networks / sizeof networks[0] };

/* The paper has no formula for it, so this is a text. */
static const char outer_lr[] =
    "the best outer learning rate does not depend on the model's size and grows with replicas "
    "and H. Try .2 .4 .6 .8 1.0 at a small size and keep the best (2503.09799). Published: .7 "
    "with 8 replicas and H 500 (2311.08105), .4 with 2 replicas, fragments and H 100 "
    "(2501.18512)";

/* Return a Chinchilla run of this model with the best batch. It is on as many of the paper's
 * chips as give the step its time, at least one a replica. */
static dl_ideal ideal_of(const dl_plan_task *task, uint32_t sync_every, uint32_t replicas)
{
    dl_ideal i = {.parameters = task->parameters,
                  .tokens = 20 * task->parameters,
                  .batch_tokens = dl_fit_for(task->parameters, replicas).batch_tokens,
                  .replicas = replicas,
                  .sync_every = sync_every};
    /* 6 FLOPs a parameter and token, 300 TFLOP/s a chip (fits.h). */
    i.chips = ceil(6 * i.parameters * i.batch_tokens / (task->step_s * 300e12));
    i.chips = fmax(i.chips, fmax(2, task->replicas));
    return i;
}

/* Total seconds over one network, with nothing overlapped. */
static double seconds_on(dl_ideal i, size_t network)
{
    i.gbit = networks[network].gbit;
    i.latency_s = networks[network].latency_s;
    dl_ideal_time t = dl_ideal_wall_clock(&i);
    return t.compute_s + t.inner_s + t.outer_s;
}

/* ---- lines */

/* Write the name of a row: the number of replicas, or "data-parallel" for 0. */
static void name_of(char out[32], uint32_t replicas)
{
    if (replicas)
        snprintf(out, 32, "%u", replicas);
    else
        snprintf(out, 32, "data-parallel");
}

/* One number of replicas: the fit, and the ideal time over each network. */
static void print_row(const dl_plan_task *task, uint32_t sync_every, uint32_t replicas)
{
    dl_fit f = dl_fit_for(task->parameters, replicas);
    dl_ideal i = ideal_of(task, sync_every, replicas);
    dl_unit_text batch, time;
    char name[32];
    name_of(name, replicas);
    printf("  %-13s %7.3f %10.2e %8s %7.0f", name, f.loss, f.inner_lr,
           dl_rate_text(batch, f.batch_tokens), i.chips);
    for (size_t n = 0; n < N_NETWORKS; n++)
        printf(" %13s", dl_time_text(time, seconds_on(i, n)));
    putchar('\n');
}

/* The advice is of the literature and not measured here; the text says so. */
void dl_plan_print_advice(const dl_plan_task *task, uint32_t sync_every)
{
    printf("\n"
           "scaling laws of 2503.09799: 20 tokens a parameter, fitted at H = 30 with AdamW; batch "
           "in tokens. Its idealised wall clock with H = %u is on as many chips of 300 TFLOP/s as "
           "give this step time, over 400, 100 and 10 Gbit/s between replicas\n",
           sync_every);
    printf("  %-13s %7s %10s %8s %7s %13s %13s %13s\n", "replicas", "loss", "inner lr", "batch",
           "chips", "on 400", "100", "10");
    /* The task's own number of replicas is shown once, also if it is among the fitted ones. */
    bool shown = false;
    for (size_t i = 0; i < N_FITTED; i++) {
        print_row(task, sync_every, fitted[i]);
        shown = shown || fitted[i] == task->replicas;
    }
    if (!shown) print_row(task, sync_every, task->replicas);
    printf("%s\n", outer_lr);
}

/* ---- JSON */

/* Add one number of replicas as an object, with a time for each network. */
static void add_row(dl_json *json, const dl_plan_task *task, uint32_t sync_every, uint32_t replicas)
{
    dl_fit f = dl_fit_for(task->parameters, replicas);
    dl_ideal ideal = ideal_of(task, sync_every, replicas);
    dl_json_object(json, NULL);
    dl_json_u64(json, "replicas", replicas);
    dl_json_bool(json, "data_parallel", replicas == 0);
    dl_json_f64(json, "loss", f.loss);
    dl_json_f64(json, "inner_lr", f.inner_lr);
    dl_json_f64(json, "batch_tokens", f.batch_tokens);
    dl_json_f64(json, "chips", ideal.chips);
    dl_json_array(json, "ideal_wall_s");
    for (size_t n = 0; n < N_NETWORKS; n++)
        dl_json_f64(json, NULL, seconds_on(ideal, n));
    dl_json_end(json);
    dl_json_end(json);
}

/* The rows are those of the printed table, with the networks beside them. */
void dl_plan_add_advice(dl_json *json, const dl_plan_task *task, uint32_t sync_every)
{
    bool shown = false;
    dl_json_object(json, "advice");
    dl_json_str(json, "citation", "Charles et al. 2025, arXiv:2503.09799");
    dl_json_array(json, "fits");
    for (size_t i = 0; i < N_FITTED; i++) {
        add_row(json, task, sync_every, fitted[i]);
        shown = shown || fitted[i] == task->replicas;
    }
    if (!shown) add_row(json, task, sync_every, task->replicas);
    dl_json_end(json);
    dl_json_array(json, "network_gbit");
    for (size_t n = 0; n < N_NETWORKS; n++)
        dl_json_f64(json, NULL, networks[n].gbit);
    dl_json_end(json);
    dl_json_str(json, "outer_lr", outer_lr);
    dl_json_end(json);
}
