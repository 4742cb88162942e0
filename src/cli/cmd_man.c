/* cmd_man.c - the manual pages, written from the tables as help is: diloco.1, a page for each
 * command (diloco-train.1, diloco-data-prepare.1, …), and diloco_config.5 with every option. For
 * the build, which installs them; not shown by help. */
#include "base/config.h"
#include "base/file.h"
#include "cli/help.h"
#include <diloco/train.h>

#include <ctype.h>
#include <errno.h>
#include <string.h>

static const char date[] = "2026-11-22"; /* when what the pages say was last looked over */

/* ---- roff */

/* Print text in which nothing is a request or an escape, up to its end or len bytes. roff reads
 * a line that begins with '.' or a quote as a request. '-' is escaped, or it would become a
 * hyphen that cannot be copied. */
static void put(FILE *out, const char *text, size_t len)
{
    if (len && strchr(".'", *text)) fputs("\\&", out);
    for (size_t i = 0; i < len && text[i]; i++)
        if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] == '-')
            fputs("\\-", out);
        else
            fputc(text[i], out);
}

/* Print text and end the line. Text that begins with '.' is escaped, as in put(). */
static void put_line(FILE *out, const char *text)
{
    put(out, text, SIZE_MAX);
    fputc('\n', out);
}

/* Print the lines of a help text. Indented lines stay lines of their own, without filling. */
static void put_lines(FILE *out, const char *text)
{
    bool verbatim = false;
    while (*text) {
        const size_t len = strcspn(text, "\n"), indent = strspn(text, " ");
        if ((indent > 0) != verbatim) fputs(verbatim ? ".fi\n.RE\n" : ".RS\n.nf\n", out);
        verbatim = indent > 0;
        put(out, text + indent, len - indent);
        fputc('\n', out);
        text += len + (text[len] == '\n');
    }
    if (verbatim) fputs(".fi\n.RE\n", out);
}

/* Print the head of a page: title line, and the NAME section that `apropos` searches. */
static void begin(FILE *out, const char *title, int section, const char *name, const char *what)
{
    fprintf(out, ".\\\" written by diloco man\n.TH %s %d \"%s\" \"diloco %s\"\n.SH NAME\n", title,
            section, date, diloco_version());
    put(out, name, SIZE_MAX);
    fputs(" \\- ", out);
    put_line(out, what);
}

/* ---- the text of the pages */

/* Write "data prepare" as "data-prepare". */
static void page_name(char out[64], const char *prefix, const dl_command *c)
{
    snprintf(out, 64, "%s%s", prefix, c->name);
    for (char *at = out; *at; at++)
        if (*at == ' ') *at = '-';
}

/* Print the flags of a command as tagged paragraphs (.TP), each with its option if it is short for
 * one. */
static void put_flags(FILE *out, const dl_command *c)
{
    fputs(".SH OPTIONS\n", out);
    for (size_t i = 0; i < DL_N_FLAGS; i++) {
        const dl_flag_row *row = &dl_flag_rows[i];
        if (!dl_command_takes(c, i)) continue;
        fputs(".TP\n.B ", out);
        put(out, row->name, SIZE_MAX);
        if (row->value) fputs(" \\fI", out), put(out, row->value, SIZE_MAX), fputs("\\fR", out);
        fputc('\n', out);
        put(out, row->help, SIZE_MAX);
        if (row->option) fputs(" (", out), put(out, row->option, SIZE_MAX), fputc(')', out);
        fputc('\n', out);
    }
}

/* Write the page of one command. Its title is in capitals, by convention of manual pages. */
static void write_command(FILE *out, const dl_command *c)
{
    char title[64], name[64] = "";
    page_name(name, "diloco-", c);
    for (size_t i = 0; i < sizeof title; i++)
        title[i] = (char)toupper((unsigned char)name[i]);
    begin(out, title, 1, name, c->summary);
    fputs(".SH SYNOPSIS\n.B diloco ", out);
    put_line(out, c->name);
    if (c->target) fputs(".I ", out), put_line(out, c->target);
    if (c->flags) fputs("[options]\n", out);
    if (c->details) fputs(".SH DESCRIPTION\n", out), put_lines(out, c->details);
    put_flags(out, c);
    if (c->sets != DL_SETS_NONE)
        fputs(c->sets == DL_SETS_ALL
                  ? "The settings that \\-\\-set takes are in\n"
                  : "The settings of this machine, which \\-\\-set takes, are in\n",
              out);
    if (c->sets != DL_SETS_NONE) fputs(".BR diloco_config (5).\n", out);
    fputs(".SH SEE ALSO\n.BR diloco (1),\n.BR diloco_config (5)\n", out);
}

/* Write diloco.1: the commands, each with a reference to its page, and the exit codes. */
static void write_program(FILE *out)
{
    char name[64];
    begin(out, "DILOCO", 1, "diloco", "training on machines that can barely talk to each other");
    fputs(".SH SYNOPSIS\n.B diloco\n.I COMMAND\n[options]\n.SH COMMANDS\n", out);
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++) {
        if (!c->summary) continue;
        page_name(name, "diloco-", c);
        fputs(".TP\n.BR ", out);
        put(out, name, SIZE_MAX);
        fputs(" (1)\n", out);
        put_line(out, c->summary);
    }
    fputs(".SH EXIT STATUS\n"
          "0 done, 1 failed, 2 wrong usage or configuration, 3 refused as unfaithful or\n"
          "unsupported, 4 store or peer out of reach or a run's disk full, 130 interrupted (the\n"
          "same command resumes).\n"
          ".SH SEE ALSO\n.BR diloco_config (5)\n",
          out);
}

/* Print one option as a tagged paragraph: meaning, conditions, type, default, and the scope of its
 * value. */
static void put_option(FILE *out, const dl_option *row)
{
    char type[DL_OPTION_TYPE_MAX], example[DL_OPTION_TYPE_MAX];
    fputs(".TP\n.B ", out);
    put_line(out, row->name);
    if (row->alias) fputs("Also ", out), put(out, row->alias, SIZE_MAX), fputs(".\n", out);
    put_line(out, row->help);
    if (*dl_help_option_conditions(type, row)) put_line(out, type);
    dl_help_option_type(type, row);
    fputs(".br\n", out);
    if (row->example) {
        fputs("Example: ", out);
        put(out, dl_help_option_example(example, row), SIZE_MAX);
        fputs("\n.br\n", out);
    }
    put(out, type, SIZE_MAX);
    fputs("; default ", out);
    put(out, *row->fallback ? row->fallback : "empty", SIZE_MAX);
    fprintf(out, "; %s%s%s.\n",
            row->flags & DL_OPTION_AGREE ? "equal on every replica" : "of this machine",
            row->flags & DL_OPTION_LIVE ? "; may change during the run" : "",
            row->flags & DL_OPTION_SECRET ? "; never printed" : "");
}

/* Write diloco_config.5. Basic options come first and are not repeated in their sections. */
static void write_options(FILE *out)
{
    const dl_option *before = NULL;
    begin(out, "DILOCO_CONFIG", 5, "diloco_config", "the settings of a run");
    fputs(".SH DESCRIPTION\n"
          "Every setting, as key = value in the TOML file (dots are tables) or with \\-\\-set\n"
          "key=value. A replica that joins takes those that are equal on every replica from the "
          "run.\n"
          ".SH OPTIONS THAT MOST RUNS SET\n",
          out);
    for (size_t i = 0; i < dl_config_table.n; i++)
        if (dl_config_table.rows[i].example) put_option(out, &dl_config_table.rows[i]);
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (row->example) continue;
        if (dl_help_begins_section(row, before))
            fprintf(out, ".SH %.*s\n", dl_help_section(row), row->name);
        put_option(out, row);
        before = row;
    }
    fputs(".SH SEE ALSO\n.BR diloco (1)\n", out);
}

/* ---- files */

/* `command` NULL: the page of the program (section 1) or of the options (section 5). */
static diloco_status write_page(const char *folder, const char *name, int section,
                                const dl_command *command)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s.%d", folder, name, section) >= (int)sizeof path)
        return dl_fail(DILOCO_EINVAL, "%s is longer than a path", folder);
    FILE *out = fopen(path, "w");
    if (!out) return dl_fail(DILOCO_EIO, "open %s: %s", path, strerror(errno));
    if (command)
        write_command(out, command);
    else if (section == 5)
        write_options(out);
    else
        write_program(out);
    const bool bad = ferror(out);
    if (fclose(out) || bad) return dl_fail(DILOCO_EIO, "write %s: %s", path, strerror(errno));
    return DILOCO_OK;
}

/* Hidden commands have no page. Existing pages in the folder are overwritten. */
static diloco_status cmd_man(const dl_args *args)
{
    char name[64];
    DL_TRY(dl_dir_make(args->target));
    DL_TRY(write_page(args->target, "diloco", 1, NULL));
    DL_TRY(write_page(args->target, "diloco_config", 5, NULL));
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++) {
        if (!c->summary) continue;
        page_name(name, "diloco-", c);
        DL_TRY(write_page(args->target, name, 1, c));
    }
    return DILOCO_OK;
}

const dl_command dl_command_man = {
    .name = "man",
    .target = "DIR",
    .run = cmd_man,
};
