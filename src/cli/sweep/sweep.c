/* sweep.c - from flags to settings. A trial's settings are the command line's with a --set for
 * each swept value and for the seed, so whatever holds for --set holds here.
 *
 * An arm is a number below n_arms, read as a number in mixed base with a digit for each swept
 * option. So no list of combinations is kept, and equal commands number their arms equally. */
#include "cli/sweep/sweep.h"

#include "cli/settings/settings.h"

#include <inttypes.h>
#include <string.h>

/* A folder's name has to fit every common file system. */
enum { FOLDER_MAX = 200 };

/* ---- reading the flags */

/* Two names are the same option if one is an alias of the other. */
static bool same_option(const char *a, const char *b)
{
    return dl_option_find(dl_config_table, a) == dl_option_find(dl_config_table, b);
}

/* Options that a sweep sets itself would be overwritten, so they are refused by name. */
static diloco_status check_key(const dl_sweep *s, const char *name)
{
    static const char *const own[] = {"run.seed", "run.store", "run.state_dir", "run.record"};
    if (!dl_option_find(dl_config_table, name)) {
        dl_config config; /* whose setter names the nearest */
        dl_config_init(&config);
        return dl_config_set(&config, name, "", "--set-values");
    }
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (same_option(name, own[i]))
            return dl_fail(DILOCO_EINVAL,
                           "--set-values %s: a sweep sets that itself; seeds are --seeds N, and "
                           "every run has its own folder under --out",
                           name);
    for (size_t i = 0; i < s->n_keys; i++)
        if (same_option(name, s->keys[i].name))
            return dl_fail(DILOCO_EINVAL, "--set-values: %s is given twice", name);
    return DILOCO_OK;
}

/* Return the character of a folder's name for one of a value. Characters that some file system
 * refuses become "_". So does the space, because a comma separates keys. */
static char folder_char(char c)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._=+-";
    return c && !strchr(plain, c) ? '_' : c;
}

/* Return true if two values give the same name of a folder. */
static bool same_folder(const char *a, const char *b)
{
    while (*a && folder_char(*a) == folder_char(*b))
        a++, b++;
    return folder_char(*a) == folder_char(*b);
}

/* Values are texts, checked by the option table when a trial's settings are loaded. */
static diloco_status add_value(dl_sweep_key *key, const char *text, size_t len)
{
    if (key->n_values == DL_SWEEP_VALUES || len >= DL_SWEEP_TEXT)
        return dl_fail(DILOCO_EINVAL, "--set-values %s: at most %d values of %d characters",
                       key->name, DL_SWEEP_VALUES, DL_SWEEP_TEXT - 1);
    char *value = key->values[key->n_values];
    memcpy(value, text, len);
    value[len] = '\0';
    for (size_t i = 0; i < key->n_values; i++) {
        if (strcmp(key->values[i], value) == 0)
            return dl_fail(DILOCO_EINVAL, "--set-values %s: %s is given twice", key->name, value);
        if (same_folder(key->values[i], value))
            return dl_fail(DILOCO_EINVAL,
                           "--set-values %s: %s and %s would have the same folder, because signs "
                           "become \"_\" in its name; rename one of them",
                           key->name, key->values[i], value);
    }
    key->n_values++;
    return DILOCO_OK;
}

/* Read "key=v1,v2,…". The product of all numbers of values is bounded while it grows, so it
 * cannot overflow. */
static diloco_status read_key(dl_sweep *s, const char *text)
{
    size_t len = strcspn(text, "=");
    if (s->n_keys == DL_SWEEP_KEYS)
        return dl_fail(DILOCO_EINVAL, "at most %d --set-values", DL_SWEEP_KEYS);
    dl_sweep_key *key = &s->keys[s->n_keys];
    snprintf(key->name, sizeof key->name, "%.*s", (int)dl_size_min(len, sizeof key->name - 1),
             text);
    DL_TRY(check_key(s, key->name));
    /* `at` is at the '=' or at a comma; the value begins one character later. */
    for (const char *at = text + len; *at; at += len) {
        len = strcspn(++at, ",");
        DL_TRY(add_value(key, at, len));
    }
    s->n_keys++;
    s->n_arms *= key->n_values;
    if (s->n_arms <= DL_SWEEP_TRIALS) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "--set-values make more than %d combinations", DL_SWEEP_TRIALS);
}

/* Return true if the option, by any of its names, is swept. */
static bool sweeps(const dl_sweep *s, const char *option)
{
    for (size_t i = 0; i < s->n_keys; i++)
        if (same_option(s->keys[i].name, option)) return true;
    return false;
}

/* A store that is given for all trials would mix their runs. */
static diloco_status check_given(const dl_config *base)
{
    static const char *const own[] = {"run.store", "run.record"};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (strcmp(dl_config_origin(base, own[i]), "--set") == 0)
            return dl_fail(DILOCO_EINVAL,
                           "--set %s: a sweep keeps every run in a folder of its own; name the "
                           "folder of all with --out",
                           own[i]);
    }
    return DILOCO_OK;
}

/* Return true if any two trials may differ in H, or in what may change it. */
static bool may_change_interval(const dl_sweep *s)
{
    return sweeps(s, "trainer.local_steps_per_round") || sweeps(s, "preset");
}

/* Equal steps are the default where H differs, since trials of equal rounds would not compare. */
diloco_status dl_sweep_read(dl_sweep *out, const dl_args *args)
{
    dl_config base;
    memset(out, 0, sizeof *out);
    out->n_arms = 1;
    for (size_t i = 0; i < args->n_values; i++)
        DL_TRY(read_key(out, args->values[i]));
    DL_TRY(dl_args_u64(&out->n_seeds, args, DL_FLAG_SEEDS, 1, 1000));
    DL_TRY(dl_args_u64(&out->steps, args, DL_FLAG_EQUAL_STEPS, 0, INT64_MAX));
    if (out->n_seeds == 0) return dl_fail(DILOCO_EINVAL, "--seeds 0: at least one is needed");
    DL_TRY(dl_settings_load(&base, args));
    DL_TRY(check_given(&base));
    if (out->n_arms * out->n_seeds > DL_SWEEP_TRIALS)
        return dl_fail(DILOCO_EINVAL, "%zu combinations of %" PRIu64 " seeds are more than %d runs",
                       out->n_arms, out->n_seeds, DL_SWEEP_TRIALS);
    out->first_seed = (uint64_t)base.seed;
    if (sweeps(out, "trainer.rounds")) {
        if (!out->steps) return DILOCO_OK;
        return dl_fail(DILOCO_EINVAL,
                       "--equal-steps sets trainer.rounds, which is swept: omit one of them");
    }
    if (!out->steps && may_change_interval(out))
        out->steps = (uint64_t)base.rounds * (uint64_t)base.local_steps;
    return DILOCO_OK;
}

/* ---- an arm */

/* Arms are numbers in a mixed base, with a digit for each key. */
const char *dl_sweep_value(const dl_sweep *s, size_t arm, size_t k)
{
    for (size_t i = s->n_keys - 1; i > k; i--)
        arm /= s->keys[i].n_values;
    return s->keys[k].values[arm % s->keys[k].n_values];
}

/* A text that does not fit is cut. Names are written as the user has given them, aliases
 * included. */
void dl_sweep_arm_text(char *out, size_t cap, const dl_sweep *s, size_t arm)
{
    *out = '\0';
    for (size_t k = 0, used = 0; k < s->n_keys && used < cap; k++)
        used += (size_t)snprintf(out + used, cap - used, "%s%s=%s", k ? " " : "", s->keys[k].name,
                                 dl_sweep_value(s, arm, k));
}

/* ---- a trial */

/* trainer.rounds = steps / H has to be whole. */
static diloco_status equal_steps(dl_config *config, uint64_t steps)
{
    char text[24];
    uint64_t h = (uint64_t)config->local_steps;
    if (steps == 0) return DILOCO_OK;
    if (h == 0)
        return dl_fail(DILOCO_EREFUSED,
                       "equal steps need rounds of a known length, and trainer.epochs sets the "
                       "length of this one: set trainer.local_steps_per_round");
    if (config->local_steps_phases[0])
        return dl_fail(DILOCO_EREFUSED,
                       "a sweep with equal steps divides them into rounds of one length, and "
                       "trainer.local_steps_phases = \"%s\" has others: leave it empty, or sweep "
                       "trainer.rounds too",
                       config->local_steps_phases);
    if (steps % h)
        return dl_fail(DILOCO_EINVAL,
                       "%" PRIu64 " steps cannot be cut into entries of "
                       "trainer.local_steps_per_round = %" PRIu64 ": give --equal-steps %" PRIu64
                       ", or another multiple of every value",
                       steps, h, steps / h ? steps / h * h : h);
    snprintf(text, sizeof text, "%" PRIu64, steps / h);
    return dl_config_set(config, "trainer.rounds", text, "equal steps");
}

/* A trial's settings are those of the command line with some --set more. Flags that a swept
 * option replaces are taken away. */
diloco_status dl_sweep_config(dl_config *out, const dl_sweep *s, const dl_args *args, size_t arm,
                              uint64_t seed)
{
    char texts[DL_SWEEP_KEYS + 1][sizeof s->keys[0].name + DL_SWEEP_TEXT + 1];
    dl_args with = *args;
    if (with.n_sets + s->n_keys + 1 > DL_ARGS_MAX_SETS)
        return dl_fail(DILOCO_EINVAL, "too many --set beside --set-values; put them into a file");
    for (size_t k = 0; k < s->n_keys; k++) {
        snprintf(texts[k], sizeof texts[k], "%s=%s", s->keys[k].name, dl_sweep_value(s, arm, k));
        with.sets[with.n_sets++] = texts[k];
    }
    snprintf(texts[s->n_keys], sizeof texts[0], "run.seed=%" PRIu64, seed);
    with.sets[with.n_sets++] = texts[s->n_keys];
    /* --seed would contradict the trial's own --set run.seed. */
    with.flags[DL_FLAG_SEED] = NULL;
    if (sweeps(s, "preset")) with.flags[DL_FLAG_PRESET] = NULL;
    DL_TRY(dl_settings_load(out, &with));
    return equal_steps(out, s->steps);
}

/* Values of one key have different names (add_value), and a key's name has no comma. So two trials
 * never have one folder. */
diloco_status dl_sweep_folder(char *out, size_t cap, const dl_sweep *s, size_t arm, uint64_t seed)
{
    char text[DL_SWEEP_KEYS * (sizeof s->keys[0].name + DL_SWEEP_TEXT)] = "";
    for (size_t k = 0, used = 0; k < s->n_keys; k++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s=%s,", s->keys[k].name,
                                 dl_sweep_value(s, arm, k));
    /* Values were split at commas, so each comma is one of the format above. */
    for (char *c = text; *c; c++)
        if (*c != ',') *c = folder_char(*c);
    int n = snprintf(out, cap, "%sseed=%" PRIu64, text, seed);
    if (n < 0 || (size_t)n >= dl_size_min(cap, FOLDER_MAX))
        return dl_fail(DILOCO_EINVAL, "\"%.60s…\" is too long for a folder's name", text);
    return DILOCO_OK;
}
