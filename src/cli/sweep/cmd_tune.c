/* cmd_tune.c - the rungs of a search, one trial after the other, then the settings that won.
 *
 * Begin with run_all. As with a sweep, each trial's folder holds its result, so a later call of
 * the same command finds what an earlier one has done. */
#include "base/clock.h"
#include "base/file.h"
#include "cli/display/units.h"
#include "cli/settings/settings.h"
#include "cli/sweep/trial.h"
#include "cli/sweep/tune.h"
#include <diloco/log.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ARM_TEXT = 400, FILE_MAX = 64 << 20 };

/* One arm of the grid that is still in the search. Each rung overwrites the numbers. `results`
 * points into the room of the search. */
typedef struct candidate {
    size_t arm;                    /* of the plan's grid */
    double loss, loss_deviation;   /* over the seeds of the rung */
    double above, above_deviation; /* the configuration's own loss, paired by seed */
    double whole_sent;             /* bytes of a replica in a run of the configuration's length */
    dl_trial_result *results;      /* one for each seed of the rung */
} candidate;

/* One call of the command. plan, candidates and results are owned; cmd_tune frees them. */
typedef struct tuning {
    const dl_args *args;
    dl_tune *plan;
    dl_config_path out;    /* folder of the whole search */
    candidate *candidates; /* those of the rung, the configuration's own among them */
    size_t n;
    dl_trial_result *results; /* room for a rung: [n][n_seeds] */
    dl_buf evidence;          /* tune.json in the making */
    dl_json json;             /* writes into evidence */
    FILE *lines;              /* for people */
    size_t n_done, n_over;    /* trials of this rung; candidates that send too much */
    double seconds, worked;   /* of the trials that this call has run; steps in them */
} tuning;

/* Write the values of an arm, "lr=1e-3 sync_every=50". Returns text. */
static const char *arm_text(char text[ARM_TEXT], const tuning *t, size_t arm)
{
    dl_sweep_arm_text(text, ARM_TEXT, &t->plan->grid, arm);
    return text;
}

/* Unknown volumes are 0 and count as affordable. */
static bool affordable(const tuning *t, const candidate *c)
{
    return t->plan->max_sent <= 0 || c->whole_sent <= t->plan->max_sent;
}

/* The configuration's own candidate is in every rung, so this loop ends. */
static const candidate *own_of(const tuning *t)
{
    size_t i = 0;
    while (t->candidates[i].arm)
        i++;
    return &t->candidates[i];
}

/* ---- before */

/* Choose the folder of the search: --out, or tuned/ with the configuration's name. */
static diloco_status choose_out(tuning *t)
{
    const char *given = t->args->flags[DL_FLAG_TUNE_OUT], *slash = strrchr(t->args->target, '/');
    const char *name = slash ? slash + 1 : t->args->target;
    int n = given ? snprintf(t->out, sizeof t->out, "%s", given)
                  : snprintf(t->out, sizeof t->out, "tuned/%.*s", (int)strcspn(name, "."), name);
    if (n > 0 && (size_t)n < sizeof t->out) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "--out needs the name of a folder of at most %zu bytes",
                   sizeof t->out - 1);
}

/* Join the folder of the search and a name. Returns DILOCO_EINVAL if the path is too long. */
static diloco_status path_in(dl_config_path path, const tuning *t, const char *name)
{
    int n = snprintf(path, sizeof(dl_config_path), "%s/%s", t->out, name);
    if (n > 0 && (size_t)n < sizeof(dl_config_path)) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "--out: the path of %s in it is too long", name);
}

/* A folder for each number of steps: a shorter trial is no beginning of a longer one
 * (halving.h). */
static diloco_status folder_of(dl_config_path path, const tuning *t, uint64_t steps, size_t arm,
                               uint64_t seed)
{
    char name[256], both[300];
    DL_TRY(dl_sweep_folder(name, sizeof name, &t->plan->grid, arm, seed));
    snprintf(both, sizeof both, "%" PRIu64 "-steps/%s", steps, name);
    return path_in(path, t, both);
}

/* ---- a trial */

/* Return the bytes that a replica would send in the whole run: those of the trial for each
 * entry, times the entries of the whole run. */
static double whole_sent(const tuning *t, const dl_trial_result *r, const dl_config *config)
{
    if (r->entries == 0 || config->replicas == 0) return 0;
    return (double)r->bytes_sent / (double)r->entries / (double)config->replicas *
           (double)dl_tune_whole_rounds(t->plan, config->local_steps);
}

/* One object for each trial in tune.json. It is written once the search is over. */
static void add_evidence(tuning *t, size_t rung, uint64_t seed, const char *folder,
                         const candidate *c, const dl_trial_result *r)
{
    dl_json_object(&t->json, NULL);
    dl_json_u64(&t->json, "rung", rung + 1);
    dl_json_object(&t->json, "values");
    for (size_t k = 0; k < t->plan->grid.n_keys; k++)
        dl_json_str(&t->json, t->plan->grid.keys[k].name,
                    dl_sweep_value(&t->plan->grid, c->arm, k));
    dl_json_end(&t->json);
    dl_json_u64(&t->json, "seed", seed);
    dl_json_str(&t->json, "folder", folder);
    dl_json_f64(&t->json, "bytes_sent_whole_run", c->whole_sent);
    dl_trial_json(&t->json, r);
    dl_json_end(&t->json);
}

/* Only the last rung decides, so only it has several seeds. */
static size_t seeds_of(const tuning *t, size_t rung)
{
    return rung + 1 == t->plan->halving.n ? (size_t)t->plan->n_seeds : 1;
}

/* Return the steps in all trials that are left, or somewhat more. Later rungs may have the
 * configuration's own beside their candidates. */
static double work_left(const tuning *t, size_t rung)
{
    const dl_halving *h = &t->plan->halving;
    double steps = (double)(t->n * seeds_of(t, rung) - t->n_done) * (double)h->rungs[rung].steps;
    for (size_t r = rung + 1; r < h->n; r++)
        steps +=
            (double)((h->rungs[r].candidates + 1) * seeds_of(t, r)) * (double)h->rungs[r].steps;
    return steps;
}

/* Print the result of a trial with an estimate of the time left, unless --quiet. */
static void print_trial(const tuning *t, size_t rung, const candidate *c, uint64_t seed,
                        const dl_trial_result *r, bool found)
{
    char text[ARM_TEXT];
    dl_unit_text sent, left;
    const double steps = work_left(t, rung);
    if (dl_args_has(t->args, DL_FLAG_QUIET)) return;
    fprintf(t->lines, "  %zu: %s, seed %" PRIu64 ": loss %.4f, %s sent in a whole run%s", t->n_done,
            arm_text(text, t, c->arm), seed, r->loss, dl_bytes_text(sent, c->whole_sent),
            found ? " (was done)" : "");
    if (t->worked > 0 && steps > 0)
        fprintf(t->lines, "; about %s left", dl_time_text(left, t->seconds / t->worked * steps));
    fputc('\n', t->lines);
    fflush(t->lines);
}

/* Read or train one trial, and note it. Its steps give the time left, as trials of one rung
 * differ little. */
static diloco_status run_one(tuning *t, size_t rung, candidate *c, uint64_t seed,
                             dl_trial_result *r)
{
    dl_config config;
    dl_config_path folder;
    const dl_args inner = dl_trial_args(t->args);
    const uint64_t steps = t->plan->halving.rungs[rung].steps;
    const dl_time start = dl_clock_now();
    DL_TRY(dl_tune_config(&config, t->plan, t->args, c->arm, steps, seed));
    DL_TRY(folder_of(folder, t, steps, c->arm, seed));
    diloco_status status = dl_trial_read(r, &config, folder);
    const bool found = !status;
    if (status == DILOCO_ENOENT) status = dl_trial_run(r, &config, folder, &inner);
    if (status == DILOCO_EINTERRUPTED) return status; /* the text is what to do */
    if (status) return dl_fail_context(status, "%s", folder);
    c->whole_sent = whole_sent(t, r, &config);
    t->n_done++;
    if (!found) t->worked += (double)steps, t->seconds += dl_seconds(dl_clock_now() - start);
    add_evidence(t, rung, seed, folder, c, r);
    print_trial(t, rung, c, seed, r, found);
    return DILOCO_OK;
}

/* ---- a rung */

/* Leave out candidates that send too much, as far as that is known. The configuration's own
 * stays, because all others are compared with it. */
static void leave_out(tuning *t)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (t->candidates[i].arm == 0 || affordable(t, &t->candidates[i]))
            t->candidates[kept++] = t->candidates[i];
        else
            t->n_over++;
    }
    t->n = kept;
}

/* Compose the error for a limit that no candidate keeps. */
static diloco_status too_much(const tuning *t)
{
    dl_unit_text least, most;
    return dl_fail(DILOCO_EREFUSED,
                   "--max-sent: no candidate sends at most %s in the whole run; CONFIG's own sends "
                   "%s. Look among greater values of trainer.local_steps_per_round, or codecs of "
                   "fewer bits",
                   dl_bytes_text(most, t->plan->max_sent),
                   dl_bytes_text(least, own_of(t)->whole_sent));
}

/* Compute the volume of all candidates from the first trial. Rates and momentum do not change
 * how much an exchange sends, and H does not either. So no hours go into what is too expensive.
 * Any other swept option may change the volume, and then nothing is foreseen. */
static diloco_status foresee(tuning *t)
{
    static const char *const keys[] = {"parameters.optimizer.lr", "trainer.local_steps_per_round",
                                       "server.diloco.outer_learning_rate",
                                       "server.diloco.outer_momentum"};
    dl_config config;
    DL_TRY(dl_tune_config(&config, t->plan, t->args, 0, 0, t->plan->seed));
    const double entry =
        t->candidates[0].whole_sent / (double)dl_tune_whole_rounds(t->plan, config.local_steps);
    for (size_t k = 0; k < t->plan->grid.n_keys; k++) {
        bool known = false;
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
            known = known || dl_option_find(dl_config_table, keys[i]) ==
                                 dl_option_find(dl_config_table, t->plan->grid.keys[k].name);
        if (!known) return DILOCO_OK;
    }
    for (size_t i = 1; i < t->n; i++) {
        DL_TRY(dl_tune_config(&config, t->plan, t->args, t->candidates[i].arm, 0, t->plan->seed));
        t->candidates[i].whole_sent =
            entry * (double)dl_tune_whole_rounds(t->plan, config.local_steps);
    }
    leave_out(t);
    return t->n > 1 || affordable(t, own_of(t)) ? DILOCO_OK : too_much(t);
}

/* Mean and sample deviation of the losses, or of their differences from `than`, paired by seed. */
static void mean_of(double *mean, double *deviation, const candidate *c, const candidate *than,
                    size_t n)
{
    double squares = 0;
    *mean = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t k = 0; k < n; k++) {
            const double x = c->results[k].loss - (than ? than->results[k].loss : 0);
            if (pass == 0) *mean += x / (double)n;
            if (pass == 1) squares += (x - *mean) * (x - *mean);
        }
    *deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
}

/* Losses that are not finite come last. Equal ones are ordered by arm. */
static int by_loss(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    const bool bad_x = !isfinite(x->loss), bad_y = !isfinite(y->loss);
    if (bad_x != bad_y) return bad_x - bad_y;
    if (!bad_x && x->loss != y->loss) return x->loss < y->loss ? -1 : 1;
    return x->arm < y->arm ? -1 : x->arm > y->arm; /* equal on every machine */
}

/* Compute the means over the seeds of the rung, and sort the candidates, the best first. */
static void rank(tuning *t, size_t n_seeds)
{
    for (size_t i = 0; i < t->n; i++) {
        candidate *c = &t->candidates[i];
        mean_of(&c->loss, &c->loss_deviation, c, NULL, n_seeds);
        mean_of(&c->above, &c->above_deviation, c, own_of(t), n_seeds);
    }
    qsort(t->candidates, t->n, sizeof *t->candidates, by_loss);
}

/* Seeds are the outer loop, so every candidate has a result before any has two. The first trial
 * of the search is followed by foresee(). */
static diloco_status run_rung(tuning *t, size_t rung)
{
    const dl_rung *row = &t->plan->halving.rungs[rung];
    const bool last = rung + 1 == t->plan->halving.n;
    const size_t n_seeds = seeds_of(t, rung);
    t->n_done = 0;
    if (!dl_args_has(t->args, DL_FLAG_QUIET))
        fprintf(t->lines,
                "rung %zu of %zu: %zu candidates, %" PRIu64 " steps of each replica, %zu seed%s\n",
                rung + 1, t->plan->halving.n, t->n, row->steps, n_seeds, dl_plural(n_seeds));
    for (size_t k = 0; k < n_seeds; k++)
        for (size_t i = 0; i < t->n; i++) {
            candidate *c = &t->candidates[i];
            if (k == 0) c->results = &t->results[i * n_seeds];
            /* Earlier rungs use one seed, the last one others: so the choice of candidates does
             * not favour their seeds. */
            DL_TRY(run_one(t, rung, c, t->plan->seed + last * (k + 1), &c->results[k]));
            if (rung == 0 && k == 0 && i == 0) DL_TRY(foresee(t));
        }
    leave_out(t);
    rank(t, n_seeds);
    return DILOCO_OK;
}

/* Keep the better third, and the configuration's own after them where it is not among them. */
static void promote(tuning *t, size_t most)
{
    const candidate own = *own_of(t);
    bool among = false;
    t->n = dl_size_min(t->n, most);
    for (size_t i = 0; i < t->n; i++)
        among = among || t->candidates[i].arm == 0;
    if (!among) t->candidates[t->n++] = own;
}

/* Run rung by rung; after each but the last the better third is promoted. */
static diloco_status run_all(tuning *t)
{
    const dl_halving *h = &t->plan->halving;
    for (size_t rung = 0; rung < h->n; rung++) {
        DL_TRY(run_rung(t, rung));
        if (rung + 1 < h->n) promote(t, h->rungs[rung + 1].candidates);
    }
    return DILOCO_OK;
}

/* ---- the result */

/* Return the best candidate that keeps --max-sent, or NULL. Candidates are sorted by loss. */
static const candidate *winner(const tuning *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (affordable(t, &t->candidates[i])) return &t->candidates[i];
    return NULL;
}

/* These are set by each trial, and mean nothing in the user's own run. */
static bool is_of_trials(const char *name)
{
    static const char *const names[] = {"run.store", "run.state_dir", "run.record"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

/* Write the given values and the winner's, for a run of the configuration's length. Defaults and
 * the preset's values are left out, since the preset is named. */
static diloco_status add_settings(dl_buf *out, tuning *t, const candidate *best)
{
    dl_config config, defaults;
    char rounds[24];
    dl_config_init(&defaults);
    DL_TRY(dl_tune_config(&config, t->plan, t->args, best->arm, 0, (uint64_t)t->plan->own.seed));
    snprintf(rounds, sizeof rounds, "%" PRIu64, dl_tune_whole_rounds(t->plan, config.local_steps));
    DL_TRY(dl_config_set(&config, "trainer.rounds", rounds, "tune"));
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        const char *origin = config.origins[i].text;
        const bool given = strcmp(origin, "default") && strncmp(origin, "preset ", 7);
        if (given && !is_of_trials(row->name)) DL_TRY(dl_settings_line(out, row, &config));
    }
    return DILOCO_OK;
}

/* Write a file in the folder of the search, as a whole: an older one is replaced at once. */
static diloco_status write_file(const tuning *t, const char *name, const dl_buf *text)
{
    dl_config_path path;
    const dl_span span = {text->data, text->len};
    DL_TRY(path_in(path, t, name));
    return dl_file_write(path, &span, 1);
}

/* Write tuned.toml, a configuration for `diloco train`, with the winner's values in its head. */
static diloco_status write_settings(tuning *t, const candidate *best)
{
    dl_buf out;
    char text[ARM_TEXT];
    dl_buf_init(&out, FILE_MAX);
    diloco_status status =
        dl_buf_addf(&out,
                    "# Settings that diloco tune found; tune.json beside has every trial.\n"
                    "# %s\n",
                    arm_text(text, t, best->arm));
    if (!status) status = add_settings(&out, t, best);
    if (!status) status = write_file(t, "tuned.toml", &out);
    dl_buf_deinit(&out);
    return status;
}

/* End the list of trials, add the winner's values and numbers, and end the whole object. */
static void finish_evidence(tuning *t, const candidate *best)
{
    dl_json_end(&t->json);
    dl_json_object(&t->json, "best");
    for (size_t k = 0; k < t->plan->grid.n_keys; k++)
        dl_json_str(&t->json, t->plan->grid.keys[k].name,
                    dl_sweep_value(&t->plan->grid, best->arm, k));
    dl_json_end(&t->json);
    dl_json_f64(&t->json, "loss_mean", best->loss);
    dl_json_f64(&t->json, "loss_deviation", best->loss_deviation);
    dl_json_f64(&t->json, "above_own_mean", best->above);
    dl_json_f64(&t->json, "above_own_deviation", best->above_deviation);
    dl_json_f64(&t->json, "bytes_sent_whole_run", best->whole_sent);
    dl_json_end(&t->json);
}

/* Print one candidate: its loss, the difference from the configuration's own, and its traffic. */
static void print_row(const tuning *t, const candidate *c)
{
    char text[ARM_TEXT];
    dl_unit_text sent;
    printf("%.4f ± %.4f  %+.4f ± %.4f  %-9s  %s%s\n", c->loss, c->loss_deviation, c->above,
           c->above_deviation, dl_bytes_text(sent, c->whole_sent), arm_text(text, t, c->arm),
           c->arm ? "" : "  (CONFIG's own)");
}

/* Point out values at the edge of their range: the best may be outside of the values that were
 * tried. */
static void print_edges(const tuning *t, const candidate *best)
{
    for (size_t k = 0; best->arm && k < t->plan->grid.n_keys; k++) {
        const dl_sweep_key *key = &t->plan->grid.keys[k];
        const char *value = dl_sweep_value(&t->plan->grid, best->arm, k);
        size_t below = 0, above = 0;
        for (size_t i = 0; i < key->n_values; i++) {
            below += strtod(key->values[i], NULL) < strtod(value, NULL);
            above += strtod(key->values[i], NULL) > strtod(value, NULL);
        }
        if (key->n_values > 2 && (below == 0) != (above == 0))
            printf("%s=%s is the %s value that was tried: look beyond it with --set-values.\n",
                   key->name, value, above ? "least" : "greatest");
    }
}

/* A gain within the spread of the seeds is reported as no difference. */
static void print_result(const tuning *t, const candidate *best)
{
    char path[sizeof(dl_config_path) + 16], word[2 * sizeof path];
    printf("\nloss               - CONFIG's own     sent       values\n");
    for (size_t i = 0; i < t->n; i++)
        print_row(t, &t->candidates[i]);
    printf("\nloss: validation loss, mean ± standard deviation over %" PRIu64
           " seed%s; sent: by a replica in a run of CONFIG's length\n",
           t->plan->n_seeds, dl_plural(t->plan->n_seeds));
    if (t->n_over || t->plan->n_refused)
        printf(
            "left out: %zu candidates that send more than --max-sent, %zu that a check refuses\n",
            t->n_over, t->plan->n_refused);
    if (best->arm == 0)
        printf("CONFIG's own values are the best that were tried.\n");
    else if (t->plan->n_seeds < 2 || -best->above <= best->above_deviation)
        printf("No difference to CONFIG's own values is shown: %s.\n",
               t->plan->n_seeds < 2 ? "one seed shows no spread"
                                    : "its gain is within the spread of the seeds");
    print_edges(t, best);
    snprintf(path, sizeof path, "%s/tuned.toml", t->out);
    printf("The best settings are in %s; train with them:\n  diloco train %s\n", path,
           dl_shell_word(word, sizeof word, path));
}

/* Write both files before anything is printed, so a printed result can always be found. */
static diloco_status conclude(tuning *t)
{
    const candidate *best = winner(t);
    if (!best) return too_much(t);
    DL_TRY(write_settings(t, best));
    finish_evidence(t, best);
    DL_TRY(dl_json_done(&t->json));
    DL_TRY(write_file(t, "tune.json", &t->evidence));
    if (!dl_args_has(t->args, DL_FLAG_JSON)) {
        print_result(t, best);
        return DILOCO_OK;
    }
    printf("%s\n", dl_buf_str(&t->evidence));
    return DILOCO_OK;
}

/* ---- the command */

/* Room for every rung: the first has n trials, and the last at most FACTOR + 1 candidates with
 * all seeds. */
static diloco_status begin(tuning *t)
{
    DL_TRY(dl_tune_read(t->plan, t->args));
    DL_TRY(choose_out(t));
    t->n = t->plan->n;
    t->candidates = calloc(t->n + 1, sizeof *t->candidates);
    t->results = calloc(dl_size_max(t->n, (DL_HALVING_FACTOR + 1) * (size_t)t->plan->n_seeds),
                        sizeof *t->results);
    if (!t->candidates || !t->results)
        return dl_fail(DILOCO_ENOMEM, "out of memory for the results");
    for (size_t i = 0; i < t->n; i++)
        t->candidates[i].arm = t->plan->arms[i];
    dl_json_object(&t->json, NULL);
    dl_json_str(&t->json, "out", t->out);
    dl_json_u64(&t->json, "whole_steps", t->plan->whole_steps);
    dl_json_array(&t->json, "trials");
    return DILOCO_OK;
}

/* The plan is large, hence the heap. After any error the trials' folders stay, and the same command
 * continues. */
static diloco_status cmd_tune(const dl_args *args)
{
    tuning t = {.args = args, .lines = dl_args_has(args, DL_FLAG_JSON) ? stderr : stdout};
    t.plan = calloc(1, sizeof *t.plan);
    if (!t.plan) return dl_fail(DILOCO_ENOMEM, "out of memory for a search");
    dl_buf_init(&t.evidence, FILE_MAX);
    dl_json_init(&t.json, &t.evidence);
    diloco_status status = begin(&t);
    if (!status) status = run_all(&t);
    if (!status) status = conclude(&t);
    dl_buf_deinit(&t.evidence);
    free(t.results);
    free(t.candidates);
    free(t.plan);
    return status;
}

const dl_command dl_command_tune = {
    .name = "tune",
    .target = "CONFIG",
    .summary = "search for better settings by many short runs",
    .details =
        "Successive halving (arXiv:1502.07943): all candidates train for a few steps, the better "
        "third\n"
        "for three times as many, and the last three and CONFIG itself for --steps and several "
        "seeds.\n"
        "Candidates are the combinations of --set-values. By default the learning rates, the "
        "outer\n"
        "momentum and H (trainer.local_steps_per_round) vary around CONFIG's. Each trial has a "
        "folder\n"
        "under --out: the same command continues where it was stopped. DIR/tuned.toml is the "
        "result,\n"
        "and DIR/tune.json the evidence: every trial. No seed of CONFIG's own is used.\n"
        "  diloco tune run.toml --steps 500 --max-sent 1e9",
    .flags = DL_FLAGS(DL_FLAG_SET_VALUES, DL_FLAG_TRIALS, DL_FLAG_TUNE_STEPS, DL_FLAG_TUNE_SEEDS,
                      DL_FLAG_MAX_SENT, DL_FLAG_TUNE_OUT, DL_FLAG_REPLICAS, DL_FLAG_SEED,
                      DL_FLAG_PRESET, DL_FLAG_SET, DL_FLAG_JSON, DL_FLAG_QUIET, DL_FLAG_VERBOSE),
    .sets = DL_SETS_ALL,
    .run = cmd_tune,
};
