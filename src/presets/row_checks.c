/* row_checks.c - refusals and warnings that follow from the conditions of the option table.
 *
 * A value is refused if the .needs of its row does not hold. An option that a person gave has no
 * effect, which is a warning, if the .applies_when of its row does not hold (base/condition.h).
 * So most options need no check of their own: a condition in their row is enough. */
#include "base/condition.h"
#include "presets/checks_parts.h"

/* ---- refusals */

/* Return the reason that an option needs another. Without a log nothing can be decided for all,
 * which is the reason of most. */
static const char *reason_of(const dl_condition *need)
{
    if (is(need->row->name, "trainer.device"))
        return "is an option of a card, and trainer.device is \"cpu\"";
    return is(need->row->name, "swarm.consensus")
               ? "is decided by a log, and a run with swarm.consensus = \"none\" has no log"
               : "does not go with the value of another option";
}

/* A value as in a configuration file: numbers and booleans without quotes. */
static const char *quote_of(const dl_option *row)
{
    const bool bare =
        row->type == DL_OPTION_BOOL || row->type == DL_OPTION_INT || row->type == DL_OPTION_REAL;
    return bare ? "" : "\"";
}

/* The way out is either of the two: the option's default, or a value of the other option that
 * fits. */
static diloco_status refuse(const dl_option *row, const dl_condition *need)
{
    char leave[64] = "empty", take[128];
    const char *quote = quote_of(row);
    if (*row->fallback) snprintf(leave, sizeof leave, "%s%s%s", quote, row->fallback, quote);
    quote = quote_of(need->row);
    if (need->kind == DL_IS_ONE_OF)
        snprintf(take, sizeof take, "%s = %s%s%s", need->row->name, quote, need->values, quote);
    else
        snprintf(take, sizeof take, "another %s", need->row->name);
    return dl_fail(DILOCO_EREFUSED, "%s %s: leave it %s, or take %s", row->name, reason_of(need),
                   leave, take);
}

/* A value that equals the default is never refused, wherever it was written. */
diloco_status dl_check_needs(const dl_config *config)
{
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (!row->needs || dl_option_reads(row, config, row->fallback)) continue;
        const dl_condition need = dl_condition_read(dl_config_table, row->needs);
        if (!dl_condition_holds(&need, config)) return refuse(row, &need);
    }
    return DILOCO_OK;
}

/* ---- warnings */

/* A row whose option has no effect in a configuration. */
typedef struct unused {
    dl_condition unmet;      /* the condition that does not hold */
    const dl_option *holder; /* the row that has it: this one, or one that its condition is about */
    const char *code;        /* of the warning in the record, which programs read */
} unused;

/* Returns the code beside a name; NULL if the list does not have the name. */
static const char *listed(const char *const codes[][2], size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (is(codes[i][0], name)) return codes[i][1];
    return NULL;
}

/* Returns the warning's code: that of the option itself, of the option whose condition does not
 * hold, or of the option that the condition is about. An option of which no list has a code is
 * named by its last component. */
static const char *code_of(const dl_option *row, const unused *u)
{
    static const char *const of_options[][2] = {
        {"server.diloco.outer_learning_rate", "outer_learning_rate"},
        {"server.diloco.outer_lr_schedule", "outer_lr_schedule"},
        {"parameters.learning_rate.rewarm_steps", "rewarm"},
        {"server.diloco.local_mix", "local_mix"},
        {"run.on_uncounted", "on_uncounted"},
        {"run.deadline", "waiting"},
        {"run.close_at", "waiting"},
        {"run.on_missing", "waiting"},
        {"server.diloco.aggregation_weighting", "waiting"},
    };
    static const char *const of_conditions[][2] = {
        {"trainer.optimizer", "inner_options"},
        {"trainer.lr_scheduler", "schedule_options"},
        {"data.sampler", "sampler_options"},
        {"trainer.model_name", "model_options"},
        {"parameters.model.rope_scaling", "rope_options"},
        {"data.tokenizer", "tokenizer_options"},
        {"server.diloco.exchange", "exchange_options"},
        {"run.on_missing", "missing_options"},
        {"swarm.consensus", "swarm_options"},
        {"run.peers", "peers_options"},
        {"clients.total_clients", "clients"},
        {"clients.speed_simulation", "simulation"},
        {"trainer.init_from", "init_as"},
        {"check.ban_after", "bans"},
        {"run.close_at", "grace"},
        {"server.diloco.schedule", "async"},
    };
    enum { N_OPTIONS = sizeof of_options / sizeof of_options[0] };
    enum { N_CONDITIONS = sizeof of_conditions / sizeof of_conditions[0] };
    const char *about = u->unmet.row->name, *dot = strrchr(about, '.');
    const char *code = listed(of_options, N_OPTIONS, row->name);
    if (!code) code = listed(of_options, N_OPTIONS, u->holder->name);
    if (!code) code = listed(of_conditions, N_CONDITIONS, about);
    if (code) return code;
    return dot ? dot + 1 : about;
}

/* Returns true if the row has no effect: its own condition fails, or that of the option which its
 * condition is about. Only an option that a person gave is worth a warning. */
static bool is_unused(unused *out, const dl_option *row, const dl_config *config)
{
    if (!row->applies_when || !by_hand(config, row->name)) return false;
    for (out->holder = row; out->holder->applies_when; out->holder = out->unmet.row) {
        out->unmet = dl_condition_read(dl_config_table, out->holder->applies_when);
        if (dl_condition_holds(&out->unmet, config)) continue;
        out->code = code_of(row, out);
        return true;
    }
    return false;
}

static bool same_warning(const unused *a, const unused *b)
{
    return a->unmet.row == b->unmet.row && is(a->code, b->code);
}

/* Return true if two or more options of the group have one reason, which is then given once. */
static bool shares_reason(const dl_config *config, const unused *group)
{
    size_t n = 0;
    for (size_t i = 0; i < dl_config_table.n; i++) {
        unused u;
        if (!is_unused(&u, &dl_config_table.rows[i], config) || !same_warning(&u, group)) continue;
        if (!u.holder->why || !group->holder->why || !is(u.holder->why, group->holder->why))
            return false;
        n++;
    }
    return n > 1;
}

/* Add the row's name, with the values that it needs and the reason: "name (needs a|b; why)". */
static void add_unused(option_names *names, const dl_option *row, const unused *u, bool with_reason)
{
    char needs[160] = "", name[320];
    const char *why = with_reason && u->holder->why ? u->holder->why : "";
    if (u->unmet.kind == DL_IS_ONE_OF) snprintf(needs, sizeof needs, "needs %s", u->unmet.values);
    const bool noted = *needs || *why;
    snprintf(name, sizeof name, "%s%s%s%s%s%s", row->name, noted ? " (" : "", needs,
             *needs && *why ? "; " : "", why, noted ? ")" : "");
    add_name(names, name);
}

/* Warn of all unused options with the same code whose condition is about the same option, in one
 * sentence. So changing one option gives one warning, and not ten. */
static void warn_group(const dl_config *config, const unused *group, dl_warn_fn fn, void *user)
{
    const dl_option *about = group->unmet.row;
    const char *quote = quote_of(about);
    const bool shared = shares_reason(config, group);
    warning out = {""};
    option_names names = {""};
    dl_buf value;
    for (size_t i = 0; i < dl_config_table.n; i++) {
        unused u;
        const dl_option *row = &dl_config_table.rows[i];
        if (is_unused(&u, row, config) && same_warning(&u, group))
            add_unused(&names, row, &u, !shared);
    }
    const char *before = shared ? " (" : "", *why = shared ? group->holder->why : "",
               *after = shared ? ")" : "";
    dl_buf_init(&value, 2 * DL_PATH_MAX);
    if (group->unmet.kind == DL_IS_SET)
        say(&out, "no effect without %s: %s%s%s%s", about->name, names.text, before, why, after);
    else if (!dl_option_text(&value, about, config))
        say(&out, "no effect with %s = %s%s%s: %s%s%s%s", about->name, quote, dl_buf_str(&value),
            quote, names.text, before, why, after);
    dl_buf_deinit(&value);
    fn(user, group->code, out.text);
}

/* Each group is warned about at its first row. */
void dl_warn_unused(const dl_config *config, dl_warn_fn fn, void *user)
{
    unused groups[DL_CONFIG_MAX_OPTIONS];
    size_t n = 0;
    for (size_t i = 0; i < dl_config_table.n; i++) {
        size_t g = 0;
        if (!is_unused(&groups[n], &dl_config_table.rows[i], config)) continue;
        while (!same_warning(&groups[g], &groups[n]))
            g++;
        if (g == n) warn_group(config, &groups[n++], fn, user);
    }
}
