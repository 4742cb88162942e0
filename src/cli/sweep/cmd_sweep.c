/* cmd_sweep.c - the trials of a sweep one after the other, seed by seed, then a table of its arms.
 *
 * All settings are checked before the first trial. Nothing is kept here that a later call would
 * miss, because each trial's folder holds its result. */
#include "base/clock.h"
#include "cli/display/units.h"
#include "cli/settings/settings.h"
#include "cli/sweep/sweep.h"
#include "cli/sweep/trial.h"
#include <diloco/log.h>
#include <diloco/train.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ARM_TEXT = 160 };

/* One call of the command, on the heap because the plan is large. `results` is owned. */
typedef struct sweep {
    const dl_args *args;
    dl_sweep plan;            /* arms and seeds */
    dl_config_path out;       /* folder of all */
    dl_trial_result *results; /* [n_seeds][n_arms] */
    FILE *lines;              /* for people */
    double seconds;           /* of the trials that were run by this call */
    size_t n_done, n_run;     /* finished; trained by this call */
} sweep;

/* At most DL_SWEEP_TRIALS, as dl_sweep_read has checked. */
static size_t n_trials(const sweep *s)
{
    return s->plan.n_arms * (size_t)s->plan.n_seeds;
}

/* Return the place of a trial's result, whether it has been filled or not. */
static dl_trial_result *result_of(const sweep *s, size_t arm, uint64_t seed)
{
    return &s->results[(size_t)(seed - s->plan.first_seed) * s->plan.n_arms + arm];
}

/* Return a replica's mean time in the run: steps, waiting for others, and exchange. */
static double seconds_of(const dl_trial_result *r)
{
    return r->train_s + r->wait_s + r->exchange_s;
}

/* ---- before */

/* Choose the folder of all trials: --out, or sweeps/ with the configuration's name. */
static diloco_status choose_out(sweep *s)
{
    const char *given = s->args->flags[DL_FLAG_OUT], *slash = strrchr(s->args->target, '/');
    const char *name = slash ? slash + 1 : s->args->target;
    int n = given ? snprintf(s->out, sizeof s->out, "%s", given)
                  : snprintf(s->out, sizeof s->out, "sweeps/%.*s", (int)strcspn(name, "."), name);
    if (n > 0 && (size_t)n < sizeof s->out) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "--out needs the name of a folder, not a longer one than %zu",
                   sizeof s->out - 1);
}

/* The folder's name is made of the values, so the same command finds the same trials. */
static diloco_status folder_of(dl_config_path path, const sweep *s, size_t arm, uint64_t seed)
{
    char name[256];
    DL_TRY(dl_sweep_folder(name, sizeof name, &s->plan, arm, seed));
    int n = snprintf(path, sizeof(dl_config_path), "%s/%s", s->out, name);
    if (n > 0 && (size_t)n < sizeof(dl_config_path)) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "--out: the path of a run in it is too long");
}

/* Check the settings of every arm. A mistake in the last arm ends the command before hours of
 * training the others. The trials themselves print their warnings. */
static diloco_status check_all(const sweep *s)
{
    diloco_status status = DILOCO_OK;
    diloco_log_set(NULL, NULL, DILOCO_LOG_ERROR);
    for (size_t arm = 0; arm < s->plan.n_arms && !status; arm++) {
        char text[ARM_TEXT];
        dl_config config;
        dl_config_path folder;
        status = dl_sweep_config(&config, &s->plan, s->args, arm, s->plan.first_seed);
        if (!status) status = diloco_train_check(&config);
        if (!status) status = folder_of(folder, s, arm, s->plan.first_seed + s->plan.n_seeds - 1);
        dl_sweep_arm_text(text, sizeof text, &s->plan, arm);
        if (status && *text) status = dl_fail_context(status, "%s", text);
    }
    dl_log_to_stderr(s->args);
    return status;
}

/* ---- the trials */

/* The time left follows from trials of this call; those that were found done say nothing about
 * it. */
static void print_trial(const sweep *s, const char *text, uint64_t seed, const dl_trial_result *r,
                        bool found)
{
    dl_unit_text sent, time, left;
    double rest = s->n_run ? s->seconds / (double)s->n_run * (double)(n_trials(s) - s->n_done) : -1;
    if (dl_args_has(s->args, DL_FLAG_QUIET)) return;
    fprintf(s->lines, "%zu of %zu: %s%sseed %" PRIu64 ": loss %.4f, %s sent, %s%s", s->n_done,
            n_trials(s), text, *text ? ", " : "", seed, r->loss,
            dl_bytes_text(sent, (double)r->bytes_sent), dl_time_text(time, seconds_of(r)),
            found ? " (was done)" : "");
    if (rest > 0) fprintf(s->lines, "; about %s left", dl_time_text(left, rest));
    fputc('\n', s->lines);
    fflush(s->lines);
}

/* A finished trial is read; any other is trained from where it was stopped. */
static diloco_status run_one(sweep *s, size_t arm, uint64_t seed)
{
    char text[ARM_TEXT];
    dl_config config;
    dl_config_path folder;
    dl_trial_result *r = result_of(s, arm, seed);
    const dl_args inner = dl_trial_args(s->args);
    const dl_time begin = dl_clock_now();
    DL_TRY(dl_sweep_config(&config, &s->plan, s->args, arm, seed));
    DL_TRY(folder_of(folder, s, arm, seed));
    diloco_status status = dl_trial_read(r, &config, folder);
    const bool found = !status;
    if (status == DILOCO_ENOENT) status = dl_trial_run(r, &config, folder, &inner);
    if (status == DILOCO_EINTERRUPTED) return status; /* the text is what to do */
    if (status) return dl_fail_context(status, "%s", folder);
    s->n_done++;
    if (!found) s->n_run++, s->seconds += dl_seconds(dl_clock_now() - begin);
    dl_sweep_arm_text(text, sizeof text, &s->plan, arm);
    print_trial(s, text, seed, r, found);
    return DILOCO_OK;
}

/* Seeds are the outer loop, so all arms have one result before any has two. */
static diloco_status run_all(sweep *s)
{
    for (uint64_t k = 0; k < s->plan.n_seeds; k++)
        for (size_t arm = 0; arm < s->plan.n_arms; arm++)
            DL_TRY(run_one(s, arm, s->plan.first_seed + k));
    return DILOCO_OK;
}

/* ---- the table */

/* Mean and sample standard deviation over the seeds. */
typedef struct spread {
    double mean, deviation; /* of a sample; 0 for one seed */
} spread;

/* Return the spread of the seeds' losses, or of their differences from the first arm's. Pairs of
 * one seed have the same data and initial parameters, so differences vary less than losses. */
static spread loss_of(const sweep *s, size_t arm, bool above_first)
{
    double n = (double)s->plan.n_seeds, sum = 0, squares = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint64_t k = 0; k < s->plan.n_seeds; k++) {
            uint64_t seed = s->plan.first_seed + k;
            double x = result_of(s, arm, seed)->loss;
            if (above_first) x -= result_of(s, 0, seed)->loss;
            if (pass == 0) sum += x / n;
            if (pass == 1) squares += (x - sum) * (x - sum);
        }
    return (spread){sum, n > 1 ? sqrt(squares / (n - 1)) : 0};
}

/* Write the means over the seeds: bytes of all replicas, and a replica's seconds. */
static void means_of(const sweep *s, size_t arm, double *sent, double *seconds)
{
    *sent = *seconds = 0;
    for (uint64_t k = 0; k < s->plan.n_seeds; k++) {
        const dl_trial_result *r = result_of(s, arm, s->plan.first_seed + k);
        *sent += (double)r->bytes_sent / (double)s->plan.n_seeds;
        *seconds += seconds_of(r) / (double)s->plan.n_seeds;
    }
}

/* "±" is two bytes in UTF-8 and one column, hence the width. */
static void print_spread(const sweep *s, spread x, const char *sign)
{
    char text[48];
    if (s->plan.n_seeds > 1)
        snprintf(text, sizeof text, "%s%.4f ± %.4f", sign, x.mean, x.deviation);
    else
        snprintf(text, sizeof text, "%s%.4f", sign, x.mean);
    printf("  %-*s", s->plan.n_seeds > 1 ? 18 : 8, text); /* the sign is two bytes, one column */
}

/* Print one line for each arm. Differences are from the first arm, paired by seed. */
static void print_table(const sweep *s)
{
    int width = 4, number = s->plan.n_seeds > 1 ? 17 : 8;
    char text[ARM_TEXT];
    for (size_t arm = 0; arm < s->plan.n_arms; arm++) {
        dl_sweep_arm_text(text, sizeof text, &s->plan, arm);
        width = (int)dl_size_max((size_t)width, strlen(text));
    }
    printf("\n%-*s  %-*s  %-*s  %-9s  time\n", width, "run", number, "loss", number,
           s->plan.n_arms > 1 ? "- first" : "", "sent");
    for (size_t arm = 0; arm < s->plan.n_arms; arm++) {
        dl_unit_text bytes, time;
        double sent, seconds;
        means_of(s, arm, &sent, &seconds);
        spread above = loss_of(s, arm, true);
        dl_sweep_arm_text(text, sizeof text, &s->plan, arm);
        printf("%-*s", width, *text ? text : "-");
        print_spread(s, loss_of(s, arm, false), "");
        if (arm)
            print_spread(s, above, above.mean > 0 ? "+" : "");
        else
            printf("  %-*s", number, "");
        printf("  %-9s  %s\n", dl_bytes_text(bytes, sent), dl_time_text(time, seconds));
    }
    printf(
        "\nvalidation loss%s, bytes of all replicas, time in steps and exchange; each run in %s\n",
        s->plan.n_seeds > 1 ? ": mean ± standard deviation over the seeds" : "", s->out);
}

/* ---- --json */

/* Add the member "values": the swept options of this arm, as texts. */
static void add_values(dl_json *j, const sweep *s, size_t arm)
{
    dl_json_object(j, "values");
    for (size_t k = 0; k < s->plan.n_keys; k++)
        dl_json_str(j, s->plan.keys[k].name, dl_sweep_value(&s->plan, arm, k));
    dl_json_end(j);
}

/* Add every trial with its folder, in the order in which they were run. */
static diloco_status add_trials(dl_json *j, const sweep *s)
{
    dl_json_array(j, "trials");
    for (uint64_t k = 0; k < s->plan.n_seeds; k++)
        for (size_t arm = 0; arm < s->plan.n_arms; arm++) {
            dl_config_path folder;
            uint64_t seed = s->plan.first_seed + k;
            DL_TRY(folder_of(folder, s, arm, seed));
            dl_json_object(j, NULL);
            add_values(j, s, arm);
            dl_json_u64(j, "seed", seed);
            dl_json_str(j, "folder", folder);
            dl_trial_json(j, result_of(s, arm, seed));
            dl_json_end(j);
        }
    dl_json_end(j);
    return DILOCO_OK;
}

/* Add the means and sample deviations of each arm, as the table has them. */
static void add_arms(dl_json *j, const sweep *s)
{
    dl_json_array(j, "arms");
    for (size_t arm = 0; arm < s->plan.n_arms; arm++) {
        double sent, seconds;
        spread loss = loss_of(s, arm, false), above = loss_of(s, arm, true);
        means_of(s, arm, &sent, &seconds);
        dl_json_object(j, NULL);
        add_values(j, s, arm);
        dl_json_f64(j, "loss_mean", loss.mean);
        dl_json_f64(j, "loss_deviation", loss.deviation);
        dl_json_f64(j, "above_first_mean", above.mean);
        dl_json_f64(j, "above_first_deviation", above.deviation);
        dl_json_f64(j, "bytes_sent_mean", sent);
        dl_json_f64(j, "seconds_mean", seconds);
        dl_json_end(j);
    }
    dl_json_end(j);
}

/* Print the trials and the arms as one object. */
static diloco_status print_json(const sweep *s)
{
    dl_buf out;
    dl_json j;
    dl_buf_init(&out, (size_t)64 << 20);
    dl_json_init(&j, &out);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "out", s->out);
    dl_json_u64(&j, "seeds", s->plan.n_seeds);
    diloco_status status = add_trials(&j, s);
    add_arms(&j, s);
    dl_json_end(&j);
    if (!status) return dl_print_json(&j, &out);
    dl_buf_deinit(&out);
    return status;
}

/* The order is: read the flags, check every arm, train, print. Results of finished trials stay in
 * their folders after any error. */
static diloco_status cmd_sweep(const dl_args *args)
{
    sweep *s = calloc(1, sizeof *s);
    if (!s) return dl_fail(DILOCO_ENOMEM, "out of memory for a sweep");
    *s = (sweep){.args = args, .lines = dl_args_has(args, DL_FLAG_JSON) ? stderr : stdout};
    diloco_status status = dl_sweep_read(&s->plan, args);
    if (!status) status = choose_out(s);
    if (!status) status = check_all(s);
    if (!status) {
        s->results = calloc(n_trials(s), sizeof *s->results);
        status = s->results ? run_all(s) : dl_fail(DILOCO_ENOMEM, "out of memory for the results");
    }
    if (!status && dl_args_has(args, DL_FLAG_JSON))
        status = print_json(s);
    else if (!status)
        print_table(s);
    free(s->results);
    free(s);
    return status;
}

const dl_command dl_command_sweep = {
    .name = "sweep",
    .target = "CONFIG",
    .summary = "train one configuration with several values of an option, and compare",
    .details =
        "Every combination of the values is a run of its own, in its own folder under --out.\n"
        "Finished runs there are not run again, and stopped ones resume. All runs take equally\n"
        "many steps (trainer.rounds follows from H) unless trainer.rounds is swept. With\n"
        "--seeds, runs of one seed are compared with each other. run.store and run.record of\n"
        "CONFIG are not used.",
    .flags = DL_FLAGS(DL_FLAG_SET_VALUES, DL_FLAG_SEEDS, DL_FLAG_EQUAL_STEPS, DL_FLAG_OUT,
                      DL_FLAG_REPLICAS, DL_FLAG_SEED, DL_FLAG_PRESET, DL_FLAG_SET, DL_FLAG_JSON,
                      DL_FLAG_QUIET, DL_FLAG_VERBOSE),
    .sets = DL_SETS_ALL,
    .run = cmd_sweep,
};
