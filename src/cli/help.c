/* help.c - every line comes from a row of a table: commands, flags, options. A section of
 * options is the name up to its last dot.
 *
 * A text is wrapped at the terminal's width, at most WIDTH columns. Options are printed in the
 * order of the table, and the page docs/options.md is made by the same functions, so help and page
 * agree. */
#include "cli/help.h"

#include "base/condition.h"
#include "base/config.h"
#include "base/text.h"
#include <diloco/train.h>

#include <string.h>
#include <sys/ioctl.h>

/* Columns: of a page without a terminal, and of the narrowest terminal that lines are wrapped for.
 * Bytes of the texts about an option. */
enum { WIDTH = 100, NARROWEST = 30, RANGE_MAX = DL_OPTION_TYPE_MAX };

/* Return the columns of the terminal that is written to, at most WIDTH. A file or a pipe has
 * WIDTH. */
static int width_of(FILE *out)
{
    struct winsize size;
    const int fd = fileno(out);
    if (fd < 0 || ioctl(fd, TIOCGWINSZ, &size) || size.ws_col == 0) return WIDTH;
    return size.ws_col < NARROWEST ? NARROWEST : size.ws_col < WIDTH ? size.ws_col : WIDTH;
}

/* Print the words of the text, wrapped, every line indented. A word that is longer than the line
 * stays whole. */
static void wrap(FILE *out, int indent, const char *text)
{
    const int width = width_of(out);
    int column = fprintf(out, "%*s", indent, "");
    for (bool first = true; *text; first = false) {
        int len = (int)strcspn(text, " ");
        if (!first && column + 1 + len > width)
            fprintf(out, "\n%*s", indent, ""), column = indent;
        else if (!first)
            fputc(' ', out), column++;
        fprintf(out, "%.*s", len, text);
        column += len;
        text += len;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

/* ---- options */

/* A name without a dot, such as "preset", is in no section: 0. */
int dl_help_section(const dl_option *row)
{
    const char *dot = strrchr(row->name, '.');
    return dot ? (int)(dot - row->name) : 0;
}

/* Rows of one section are neighbours in the table, so two neighbours are compared and nothing is
 * sorted. */
bool dl_help_begins_section(const dl_option *row, const dl_option *before)
{
    int len = dl_help_section(row);
    return !before || len != dl_help_section(before) ||
           strncmp(row->name, before->name, (size_t)len);
}

/* Append to a text of at most RANGE_MAX bytes. A longer text is cut. */
static void add_text(char *out, const char *text)
{
    size_t used = strlen(out);
    snprintf(out + used, RANGE_MAX - used, "%s", text);
}

/* Append the values, with commas. A row with no list of its own has the names of a table of the
 * library, such as the models. */
static void add_choices(char *out, const dl_option *row)
{
    const char *c;
    for (size_t i = 0; (c = row->choices ? row->choices[i] : diloco_choice_at(row->name, i)); i++) {
        if (i) add_text(out, ", ");
        add_text(out, c);
    }
}

/* Append "1 to 1024 replicas". The bounds are doubles, and are written as short as reads back. */
static void add_range(char *out, const dl_option *row)
{
    char min[32], max[32];
    size_t used = strlen(out);
    dl_text_from_f64(min, row->min);
    dl_text_from_f64(max, row->max);
    snprintf(out + used, RANGE_MAX - used, "%s to %s%s%s", min, max, *row->unit ? " " : "",
             row->unit);
}

/* Write the type of an option with its range or its values: "whole number, 1 to 1024 replicas",
 * "one of wait, abort", … */
void dl_help_option_type(char out[RANGE_MAX], const dl_option *row)
{
    out[0] = '\0';
    switch (row->type) {
    case DL_OPTION_BOOL:
        add_text(out, "true or false");
        break;
    case DL_OPTION_INT:
        add_text(out, "whole number, ");
        add_range(out, row);
        break;
    case DL_OPTION_REAL:
        add_text(out, "number, ");
        add_range(out, row);
        break;
    case DL_OPTION_TEXT:
        add_text(out, *row->unit ? row->unit : "text");
        break;
    case DL_OPTION_NAME:
    case DL_OPTION_CHOICE:
        add_text(out, "one of ");
        add_choices(out, row);
        if (out[strlen(out) - 1] == ' ') snprintf(out, RANGE_MAX, "only %s", row->fallback);
        break;
    }
}

/* Only basic options have an example; the caller checks that row->example is not NULL. */
const char *dl_help_option_example(char out[RANGE_MAX], const dl_option *row)
{
    snprintf(out, RANGE_MAX, "--set %s=%s", row->name, row->example);
    return out;
}

/* A condition that holds by default is marked, since it needs no action. */
static diloco_status add_condition(dl_buf *out, const char *before, const char *text)
{
    if (!text) return DILOCO_OK;
    const dl_condition condition = dl_condition_read(dl_config_table, text);
    DL_TRY(dl_buf_addf(out, "%s%s ", out->len ? " " : "", before));
    DL_TRY(dl_condition_text(out, &condition));
    const bool by_default =
        condition.kind == DL_IS_ONE_OF && strcmp(condition.values, condition.row->fallback) == 0;
    return dl_buf_addf(out, by_default ? " (the default)." : ".");
}

/* After an error the text is "": help without a condition is better than no help. */
const char *dl_help_option_conditions(char out[RANGE_MAX], const dl_option *row)
{
    dl_buf text;
    dl_buf_init(&text, RANGE_MAX - 1);
    diloco_status status = add_condition(&text, "Only with", row->applies_when);
    if (!status) status = add_condition(&text, "Needs", row->needs);
    snprintf(out, RANGE_MAX, "%s", status || !text.len ? "" : dl_buf_str(&text));
    dl_buf_deinit(&text);
    return out;
}

/* The full text of one option. Only basic options have an example. */
static void print_option(FILE *out, const dl_option *row)
{
    char text[RANGE_MAX], line[RANGE_MAX + 256];
    fprintf(out, "  %s", row->name);
    if (row->alias) fprintf(out, " (also %s)", row->alias);
    fprintf(out, "%s\n", row->flags & DL_OPTION_AGREE ? "" : "   [this machine]");
    wrap(out, 6, row->help);
    if (*dl_help_option_conditions(text, row)) wrap(out, 6, text);
    dl_help_option_type(text, row);
    snprintf(line, sizeof line, "%s; default %s", text, *row->fallback ? row->fallback : "empty");
    wrap(out, 6, line);
    if (!row->example) return;
    snprintf(line, sizeof line, "example: %s", dl_help_option_example(text, row));
    wrap(out, 6, line);
}

/* With `all` every option but those with one value is printed, otherwise the basic ones. */
void dl_help_options(FILE *out, bool machine, bool all)
{
    const dl_option *before = NULL;
    fprintf(out,
            machine ? "%s of this machine, for --set:\n"
                    : "%s, for CONFIG and --set; equal on every replica, except those marked "
                      "[this machine]:\n",
            all ? "Options" : "Basic options");
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (machine && row->flags & DL_OPTION_AGREE) continue;
        if (all ? row->flags & DL_OPTION_FIXED : !row->example) continue;
        if (dl_help_begins_section(row, before) && dl_help_section(row))
            fprintf(out, "\n[%.*s]\n", dl_help_section(row), row->name);
        print_option(out, row);
        before = row;
    }
}

/* Return true if the text contains the part, in any case of letters. NULL contains nothing. */
static bool holds(const char *text, const char *part)
{
    return text && strcasestr(text, part);
}

/* Return true if the option's name or its alias contains the part. */
static bool is_named(const dl_option *row, const char *part)
{
    return holds(row->name, part) || holds(row->alias, part);
}

/* Print the names of other options with this part, after the one that is explained. Returns their
 * number. */
static size_t name_others(FILE *out, const dl_option *but, const char *part)
{
    size_t n = 0;
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (row == but || !is_named(row, part)) continue;
        if (n == 0) fprintf(out, "\nalso with \"%s\" in their names:\n", part);
        fprintf(out, "  %s\n", row->name);
        n++;
    }
    return n;
}

/* Return the only option whose name is `word` after its last dot; NULL if no option or several
 * have it. */
static const dl_option *find_last_word(const char *word)
{
    const dl_option *found = NULL;
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const char *dot = strrchr(dl_config_table.rows[i].name, '.');
        if (!dot || strcmp(dot + 1, word) != 0) continue;
        if (found) return NULL;
        found = &dl_config_table.rows[i];
    }
    return found;
}

/* Names are searched before help texts, so a part of a name does not find half of the table. */
size_t dl_help_options_with(FILE *out, const char *part)
{
    const dl_option *exact = dl_option_find(dl_config_table, part);
    if (!exact) exact = find_last_word(part);
    size_t n = 0;
    if (exact) {
        print_option(out, exact);
        return 1 + name_others(out, exact, part);
    }
    for (int in_help = 0; in_help < 2 && n == 0; in_help++)
        for (size_t i = 0; i < dl_config_table.n; i++) {
            const dl_option *row = &dl_config_table.rows[i];
            if (in_help ? !holds(row->help, part) : !is_named(row, part)) continue;
            print_option(out, row);
            n++;
        }
    return n;
}

/* Print text in a table of Markdown, with its special characters escaped. */
static void put_markdown(FILE *out, const char *text)
{
    for (; *text; text++)
        if (strchr("<|*_", *text))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
}

/* One row of docs/options.md; a test compares that page with this output. */
static void page_row(FILE *out, const dl_option *row)
{
    char type[RANGE_MAX];
    dl_help_option_type(type, row);
    fprintf(out, "| `%s`", row->name);
    if (row->alias) fprintf(out, " (`%s`)", row->alias);
    fputs(" | ", out);
    put_markdown(out, type);
    fprintf(out, " | `%s` | ", *row->fallback ? row->fallback : "\"\"");
    put_markdown(out, row->help);
    if (*dl_help_option_conditions(type, row)) fputc(' ', out), put_markdown(out, type);
    if (row->example) fprintf(out, " | `%s`", dl_help_option_example(type, row));
    fprintf(out, " | %s%s%s%s |\n", row->flags & DL_OPTION_AGREE ? "every replica" : "this machine",
            row->flags & DL_OPTION_TRAINER ? ", own trainer" : "",
            row->flags & DL_OPTION_LIVE ? ", live" : "",
            row->flags & DL_OPTION_SECRET ? ", secret" : "");
}

/* Print the head of a Markdown table. Basic options have one more column, an example. */
static void page_head(FILE *out, bool basic)
{
    fprintf(out, "\n| option | values | default | meaning | %sagree |\n|%s\n",
            basic ? "example | " : "", basic ? "---|---|---|---|---|---|" : "---|---|---|---|---|");
}

/* Basic options, then the others by section, then those with one value. */
void dl_help_options_page(FILE *out)
{
    const dl_option *before = NULL;
    fputs(
        "# Options\n"
        "\n"
        "Every setting of a run, as `key = value` in the TOML file (dots are tables) or with\n"
        "`--set key=value`. *Agree*: equal on every replica, and a replica that joins takes it\n"
        "from the run; otherwise it is of this machine alone. *Own trainer*: only the program's\n"
        "own trainer reads it, and a loop in C or Python does not. *Live*: may change during the\n"
        "run. *Only with*: without this the option has no effect, which is a warning.\n"
        "*Needs*: without this a value other than the default is refused.\n"
        "`diloco options NAME` explains one option; NAME may be a part of its name.\n"
        "\n"
        "This page is `diloco options --markdown`, written from the lists in\n"
        "src/base/options; a test compares the two.\n"
        "\n"
        "## Basic options\n"
        "\n"
        "Most runs set some of these. `diloco train --help` shows them, and\n"
        "`diloco train --help=all` shows every option but the last ones of this page.\n",
        out);
    page_head(out, true);
    for (size_t i = 0; i < dl_config_table.n; i++)
        if (dl_config_table.rows[i].example) page_row(out, &dl_config_table.rows[i]);
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (row->example || row->flags & DL_OPTION_FIXED) continue;
        if (dl_help_begins_section(row, before)) {
            if (dl_help_section(row)) fprintf(out, "\n## %.*s\n", dl_help_section(row), row->name);
            page_head(out, false);
        }
        page_row(out, row);
        before = row;
    }
    fputs("\n## Options with one value\n\n"
          "Each accepts one value only, or the program fills it in. A configuration file may name\n"
          "them, such as one of Plato or one of `--print-config`.\n",
          out);
    page_head(out, false);
    for (size_t i = 0; i < dl_config_table.n; i++)
        if (dl_config_table.rows[i].flags & DL_OPTION_FIXED)
            page_row(out, &dl_config_table.rows[i]);
}

/* ---- commands */

/* Hidden commands (no summary) are left out, such as `host`, `replica` and `man`: programs start
 * them. */
void dl_help_program(FILE *out)
{
    fprintf(out,
            "diloco %s: training on machines that can barely talk to each other\n\n"
            "usage: diloco COMMAND …\n\n",
            diloco_version());
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++)
        if (c->summary)
            fprintf(out, "  %-14s %-13s %s\n", c->name, c->target ? c->target : "", c->summary);
    fputs("\n"
          "diloco COMMAND --help says more. A URL is a folder's path, http(s)://HOST:PORT/RUN,\n"
          "an s3://, gs:// or az:// path, or a hub's join line. @FILE and - (stdin) are read for\n"
          "a join line. A CONFIG file means the run that it names.\n"
          "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 refused as unfaithful\n"
          "or unsupported, 4 store or peer out of reach or a run's disk full, 130 interrupted\n"
          "(the same command resumes).\n",
          out);
}

/* Write "--replicas N", or "--json" for a switch. */
static void flag_name(char out[64], const dl_flag_row *row)
{
    snprintf(out, 64, "%s%s%s", row->name, row->value ? " " : "", row->value ? row->value : "");
}

/* Print the flags of a command in a column that is as wide as the longest of them. */
static void print_flags(FILE *out, const dl_command *command)
{
    char name[64];
    int width = 18;
    for (size_t i = 0; i < DL_N_FLAGS; i++) {
        flag_name(name, &dl_flag_rows[i]);
        if (dl_command_takes(command, i) && (int)strlen(name) > width) width = (int)strlen(name);
    }
    fputs("\nFlags:\n", out);
    for (size_t i = 0; i < DL_N_FLAGS; i++) {
        const dl_flag_row *row = &dl_flag_rows[i];
        if (!dl_command_takes(command, i)) continue;
        flag_name(name, row);
        fprintf(out, "  %-*s %s%s%s%s\n", width, name, row->help, row->option ? " (" : "",
                row->option ? row->option : "", row->option ? ")" : "");
    }
}

/* A command without --set has no options to print, and then the text ends with its flags. */
void dl_help_command(FILE *out, const dl_command *command, bool all)
{
    fprintf(out, "usage: diloco %s%s%s", command->name, command->target ? " " : "",
            command->target ? command->target : "");
    if (command->second) fprintf(out, " [%s]", dl_flag_rows[command->second].value);
    fprintf(out, "%s\n\n%s\n", command->flags ? " [FLAGS]" : "",
            command->summary ? command->summary : "");
    if (command->details) fprintf(out, "\n%s\n", command->details);
    print_flags(out, command);
    if (command->sets == DL_SETS_NONE) return;
    fputc('\n', out);
    dl_help_options(out, command->sets == DL_SETS_MACHINE, all);
    if (!all)
        fprintf(out,
                "\ndiloco %s --help=all also shows the advanced options; diloco options NAME "
                "explains one.\n",
                command->name);
}
