/* tune.c - from flags to candidates and rungs.
 *
 * Begin with dl_tune_read. A search is a sweep whose first arm is the configuration itself; its
 * other arms are the neighbours of that. */
#include "cli/sweep/tune.h"

#include "base/rng.h"
#include "cli/settings/settings.h"
#include <diloco/train.h>

#include <inttypes.h>
#include <string.h>

/* Bytes of one key with its values. */
enum { KEY_TEXT = 1024 };

typedef char key_text[KEY_TEXT]; /* "key=v,v", as --set-values has it */

/* ---- the values to look among */

/* Write "name=own". The values that follow are those that are not the configuration's own. */
static diloco_status begin_key(key_text out, const char *name, const dl_config *own)
{
    const dl_option *row = dl_option_find(dl_config_table, name);
    dl_buf text;
    dl_buf_init(&text, KEY_TEXT);
    diloco_status status = dl_option_text(&text, row, own);
    if (!status) snprintf(out, KEY_TEXT, "%s=%s", name, dl_buf_str(&text));
    dl_buf_deinit(&text);
    return status;
}

/* The same value in another spelling counts as the own one and is left out, so no candidate is
 * trained twice. */
static diloco_status add_value(key_text out, const dl_config *own, const char *value, size_t len)
{
    const dl_option *row;
    char name[128], text[DL_SWEEP_TEXT];
    const size_t used = strlen(out);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(out, "="), out);
    snprintf(text, sizeof text, "%.*s", (int)dl_size_min(len, sizeof text - 1), value);
    row = dl_option_find(dl_config_table, name);
    if (row && dl_option_reads(row, own, text)) return DILOCO_OK;
    if (used + len + 2 <= KEY_TEXT) {
        snprintf(out + used, KEY_TEXT - used, ",%.*s", (int)len, value);
        return DILOCO_OK;
    }
    return dl_fail(DILOCO_EINVAL, "--set-values %s: all values together have more than %d bytes",
                   name, KEY_TEXT - 1);
}

/* Add a value with four digits, which is more than a search can distinguish. */
static diloco_status add_number(key_text out, const dl_config *own, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.4g", value);
    return add_value(out, own, text, strlen(text));
}

/* Learning rates by factors of two, as their effect is on a logarithmic scale. */
static diloco_status rates(key_text out, const dl_config *own)
{
    static const double factors[] = {0.25, 0.5, 2, 4};
    DL_TRY(begin_key(out, "lr", own));
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++)
        DL_TRY(add_number(out, own, factors[i] * own->lr));
    return DILOCO_OK;
}

/* Values from the papers, for outer options that do not scale with the model. */
static diloco_status outer_values(key_text out, const dl_config *own, const char *name,
                                  const char *values)
{
    DL_TRY(begin_key(out, name, own));
    for (size_t len; *values; values += len + (values[len] == ' ')) {
        len = strcspn(values, " ");
        DL_TRY(add_value(out, own, values, len));
    }
    return DILOCO_OK;
}

/* Half of H only where it is a whole number. */
static diloco_status intervals(key_text out, const dl_config *own)
{
    DL_TRY(begin_key(out, "sync_every", own));
    if (own->local_steps % 2 == 0) DL_TRY(add_number(out, own, (double)own->local_steps / 2));
    return add_number(out, own, 2 * (double)own->local_steps);
}

/* Choose the keys of the default grid. A configuration that exchanges after every step, or not
 * at all, has an inner rate alone. */
static diloco_status default_keys(key_text keys[4], size_t *n, const dl_config *own)
{
    const bool momentum =
        !strcmp(own->outer_optimizer, "nesterov") || !strcmp(own->outer_optimizer, "momentum");
    *n = 0;
    DL_TRY(rates(keys[(*n)++], own));
    if (!strcmp(own->preset, "data_parallel") || !strcmp(own->preset, "single")) return DILOCO_OK;
    if (!own->local_steps_phases[0]) DL_TRY(intervals(keys[(*n)++], own));
    if (!momentum) return DILOCO_OK;
    DL_TRY(outer_values(keys[(*n)++], own, "outer_lr", "0.4 0.7 1"));
    return outer_values(keys[(*n)++], own, "outer_momentum", "0.6 0.8 0.9");
}

/* Write "key=v,v" of the command line with the configuration's own value before the others. */
static diloco_status given_key(key_text out, const dl_config *own, const char *text)
{
    char name[128];
    size_t len = strcspn(text, "=");
    snprintf(name, sizeof name, "%.*s", (int)dl_size_min(len, sizeof name - 1), text);
    if (!dl_option_find(dl_config_table, name)) { /* dl_sweep_read names the nearest */
        snprintf(out, KEY_TEXT, "%.*s", KEY_TEXT - 1, text);
        return DILOCO_OK;
    }
    DL_TRY(begin_key(out, name, own));
    for (const char *at = text + len; *at; at += len) {
        len = strcspn(++at, ",");
        DL_TRY(add_value(out, own, at, len));
    }
    return DILOCO_OK;
}

/* The grid is read by the same function as a sweep's. trainer.rounds belongs to the rungs. */
static diloco_status read_grid(dl_tune *t, const dl_args *args)
{
    key_text keys[DL_SWEEP_KEYS];
    dl_args with = *args;
    if (args->n_values > DL_SWEEP_KEYS)
        return dl_fail(DILOCO_EINVAL, "at most %d --set-values", DL_SWEEP_KEYS);
    for (size_t i = 0; i < args->n_values; i++)
        DL_TRY(given_key(keys[i], &t->own, args->values[i]));
    if (!args->n_values) DL_TRY(default_keys(keys, &with.n_values, &t->own));
    for (size_t i = 0; i < with.n_values; i++)
        with.values[i] = keys[i];
    with.flags[DL_FLAG_SEEDS] = NULL; /* of the last rung alone */
    DL_TRY(dl_sweep_read(&t->grid, &with));
    for (size_t i = 0; i < t->grid.n_keys; i++)
        if (dl_option_find(dl_config_table, t->grid.keys[i].name) ==
            dl_option_find(dl_config_table, "trainer.rounds"))
            return dl_fail(DILOCO_EINVAL, "--set-values trainer.rounds: the rungs of the search "
                                          "have steps of their own; --steps sets the last rung's");
    return DILOCO_OK;
}

/* ---- candidates */

/* Return arm i in the order in which arms become candidates. The configuration's own is first,
 * then a permutation by the seed. So more --trials add candidates and change none. */
static size_t drawn(const dl_tune *t, size_t i)
{
    return i ? 1 + (size_t)dl_rng_permute(i - 1, t->grid.n_arms - 1, t->seed,
                                          DL_STREAM(DL_STREAM_TUNE, 0))
             : 0;
}

/* Euclid's algorithm; a product that overflows is UINT64_MAX, which no number of steps reaches. */
static uint64_t common_multiple(uint64_t a, uint64_t b)
{
    uint64_t x = a, y = b;
    DL_ASSERT(a && b);
    while (y) {
        const uint64_t rest = x % y;
        x = y, y = rest;
    }
    return a / x > UINT64_MAX / b ? UINT64_MAX : a / x * b;
}

/* Choose the candidates: arms that no check refuses. *multiple is the common multiple of their
 * H, so rungs have whole rounds for each of them. */
static diloco_status choose(dl_tune *t, const dl_args *args, size_t most, uint64_t *multiple)
{
    const bool given = args->n_values > 0;
    *multiple = 1;
    t->grid.steps = 0;
    for (size_t i = 0; i < t->grid.n_arms && t->n < most; i++) {
        char text[DL_SWEEP_TEXT];
        dl_config config;
        const size_t arm = drawn(t, i);
        DL_TRY(dl_sweep_config(&config, &t->grid, args, arm, t->seed));
        diloco_status status = config.local_steps
                                   ? diloco_train_check(&config)
                                   : dl_fail(DILOCO_EREFUSED, "a round without a number of steps");
        if (status && (given || arm == 0)) {
            dl_sweep_arm_text(text, sizeof text, &t->grid, arm);
            return dl_fail_context(status, "%s", text);
        }
        if (status) {
            t->n_refused++;
            continue;
        }
        t->arms[t->n++] = arm;
        *multiple = common_multiple(*multiple, (uint64_t)config.local_steps);
    }
    return DILOCO_OK;
}

/* Seeds of the search are far from the configuration's own, so the result is not fitted to the
 * user's seed. */
diloco_status dl_tune_read(dl_tune *t, const dl_args *args)
{
    uint64_t most, steps, multiple;
    memset(t, 0, sizeof *t);
    DL_TRY(dl_args_u64(&most, args, DL_FLAG_TRIALS, DL_TUNE_CANDIDATES, DL_TUNE_MAX_CANDIDATES));
    DL_TRY(dl_args_u64(&t->n_seeds, args, DL_FLAG_TUNE_SEEDS, DL_TUNE_SEEDS, 1000));
    DL_TRY(dl_args_f64(&t->max_sent, args, DL_FLAG_MAX_SENT, 0, 1e18));
    if (most < 2 || t->n_seeds < 1)
        return dl_fail(DILOCO_EINVAL, "--trials needs at least 2, and --seeds at least 1");
    DL_TRY(dl_settings_load(&t->own, args));
    if (t->own.local_steps_phases[0])
        return dl_fail(DILOCO_EREFUSED,
                       "tune divides the steps of each trial into rounds of one length, and "
                       "trainer.local_steps_phases = \"%s\" has others: leave it empty",
                       t->own.local_steps_phases);
    if (t->own.local_steps == 0)
        return dl_fail(DILOCO_EREFUSED,
                       "tune gives every candidate equally many steps, and trainer.epochs sets the "
                       "length of a round: set trainer.local_steps_per_round");
    t->seed = (uint64_t)t->own.seed + DL_TUNE_SEED_OFFSET;
    t->whole_steps = (uint64_t)t->own.rounds * (uint64_t)t->own.local_steps;
    DL_TRY(dl_args_u64(&steps, args, DL_FLAG_TUNE_STEPS, t->whole_steps, INT64_MAX));
    DL_TRY(read_grid(t, args));
    DL_TRY(choose(t, args, (size_t)most, &multiple));
    return dl_halving_plan(&t->halving, t->n, steps, multiple);
}

/* The grid's number of steps is changed for this trial; that is why the plan is not const. */
diloco_status dl_tune_config(dl_config *out, dl_tune *t, const dl_args *args, size_t arm,
                             uint64_t steps, uint64_t seed)
{
    t->grid.steps = steps;
    return dl_sweep_config(out, &t->grid, args, arm, seed);
}

/* Rounded up, so no candidate trains for fewer steps than the configuration. */
uint64_t dl_tune_whole_rounds(const dl_tune *t, int64_t local_steps)
{
    return (t->whole_steps + (uint64_t)local_steps - 1) / (uint64_t)local_steps;
}
