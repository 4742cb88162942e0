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

/* The warning's code in the record, by the option that the conditions are about. Of an option that
 * is not listed it is the option's last component. */
static const char *code_of(const dl_option *about)
{
    static const char *const codes[][2] = {
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
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (is(codes[i][0], about->name)) return codes[i][1];
    const char *dot = strrchr(about->name, '.');
    return dot ? dot + 1 : about->name;
}

/* Return true, with the condition that does not hold, if the row has no effect. Either its own
 * condition fails, or that of the option which its condition is about. */
static bool is_unmet(dl_condition *out, const dl_option *row, const dl_config *config)
{
    for (; row->applies_when; row = out->row) {
        *out = dl_condition_read(dl_config_table, row->applies_when);
        if (!dl_condition_holds(out, config)) return true;
    }
    return false;
}

/* Only an option that a person gave is worth a warning. */
static bool is_unused(dl_condition *out, const dl_option *row, const dl_config *config)
{
    return row->applies_when && by_hand(config, row->name) && is_unmet(out, row, config);
}

/* The reason of the row's own condition; "" if the unmet one is of another row. */
static const char *why_of(const dl_option *row, const dl_condition *unmet)
{
    const dl_condition own = dl_condition_read(dl_config_table, row->applies_when);
    return row->why && own.row == unmet->row ? row->why : "";
}

/* Add the row's name, with the values that it needs and the reason: "name (needs a|b; why)". */
static void add_unused(option_names *names, const dl_option *row, const dl_condition *unmet)
{
    char needs[160] = "", name[320];
    const char *why = why_of(row, unmet);
    if (unmet->kind == DL_IS_ONE_OF) snprintf(needs, sizeof needs, "needs %s", unmet->values);
    const bool noted = *needs || *why;
    snprintf(name, sizeof name, "%s%s%s%s%s%s", row->name, noted ? " (" : "", needs,
             *needs && *why ? "; " : "", why, noted ? ")" : "");
    add_name(names, name);
}

/* Warn of all unused options from row `first` on whose condition is about the same option, in
 * one sentence. So changing one option gives one warning, and not ten. */
static void warn_group(const dl_config *config, size_t first, const dl_condition *unmet,
                       dl_warn_fn fn, void *user)
{
    const dl_option *about = unmet->row;
    const char *quote = quote_of(about);
    warning out = {""};
    option_names names = {""};
    dl_buf value;
    for (size_t i = first; i < dl_config_table.n; i++) {
        dl_condition c;
        const dl_option *row = &dl_config_table.rows[i];
        if (is_unused(&c, row, config) && c.row == about) add_unused(&names, row, &c);
    }
    dl_buf_init(&value, 2 * DL_PATH_MAX);
    if (unmet->kind == DL_IS_SET)
        say(&out, "no effect without %s: %s", about->name, names.text);
    else if (!dl_option_text(&value, about, config))
        say(&out, "no effect with %s = %s%s%s: %s", about->name, quote, dl_buf_str(&value), quote,
            names.text);
    dl_buf_deinit(&value);
    fn(user, code_of(about), out.text);
}

/* `done` marks the options that were warned about, since a group is found at its first row. */
void dl_warn_unused(const dl_config *config, dl_warn_fn fn, void *user)
{
    bool done[DL_CONFIG_MAX_OPTIONS] = {false}; /* by row that conditions are about */
    for (size_t i = 0; i < dl_config_table.n; i++) {
        dl_condition unmet;
        if (!is_unused(&unmet, &dl_config_table.rows[i], config)) continue;
        bool *about = &done[unmet.row - dl_config_table.rows];
        if (!*about) warn_group(config, i, &unmet, fn, user);
        *about = true;
    }
}
