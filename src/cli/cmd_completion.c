/* cmd_completion.c - completion for bash, zsh and fish, written from the tables of commands, flags,
 * options and presets. The build installs what it prints (cmake/install.cmake).
 *
 * Each script holds the words itself, so that pressing Tab does not run the program. */
#include "base/config.h"
#include "cli/cli.h"
#include <diloco/train.h>

#include <string.h>

static const char shells[] = "bash|zsh|fish";

/* ---- words from the tables */

/* Print the parts of "a|b|c", with one blank between them. */
static void put_parts(const char *list)
{
    for (; *list; list++)
        putchar(*list == '|' ? ' ' : *list);
}

/* Print the names of all presets, with one blank between them. */
static void put_presets(void)
{
    for (size_t i = 0; diloco_preset_at(i); i++)
        printf("%s%s", i ? " " : "", diloco_preset_at(i)->name);
}

/* Return true if the option has a known set of values. */
static bool has_choices(const dl_option *row)
{
    return row->choices || row->type == DL_OPTION_BOOL || strcmp(row->name, "preset") == 0;
}

/* Return value i that the option may have; NULL after the last. */
static const char *choice_at(const dl_option *row, size_t i)
{
    static const char *const booleans[] = {"true", "false", NULL};
    if (row->type == DL_OPTION_BOOL) return booleans[i];
    if (row->choices) return row->choices[i];
    return diloco_preset_at(i) ? diloco_preset_at(i)->name : NULL;
}

/* Print the option's values, with `before` in front of each and one blank between them. */
static void put_values(const dl_option *row, const char *before)
{
    const char *choice;
    for (size_t i = 0; (choice = choice_at(row, i)); i++)
        printf("%s%s%s", i ? " " : "", before, choice);
}

/* Print the option's values without anything in front of them. */
static void put_choices(const dl_option *row)
{
    put_values(row, "");
}

/* The option that a flag is short for if it has a known set of values; otherwise NULL. */
static const dl_option *chosen_option(const dl_flag_row *row)
{
    const dl_option *option = row->option ? dl_option_find(dl_config_table, row->option) : NULL;
    return option && has_choices(option) ? option : NULL;
}

/* --set and --set-values have a key of the option table before their '='. */
static bool takes_key(size_t flag)
{
    return flag == DL_FLAG_SET || flag == DL_FLAG_SET_VALUES;
}

/* Return true if the value is a file or a folder, by the word that stands for it in help. */
static bool takes_path(const dl_flag_row *row)
{
    static const char *const words[] = {"FILE", "DIR", "PATH", "LIST", "URL"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(row->value, words[i])) return true;
    return false;
}

/* Print the keys that --set takes and a person may want to change, with `end` after each.
 * Options with one value only are left out, and with `machine` those that must agree. */
static void put_keys(bool machine, const char *end)
{
    const unsigned not = DL_OPTION_FIXED | (machine ? DL_OPTION_AGREE : 0);
    for (size_t i = 0; i < dl_config_table.n; i++)
        if (!(dl_config_table.rows[i].flags & not ))
            printf("%s%s", dl_config_table.rows[i].name, end);
}

/* Print the first words of all commands that help shows. A blank ends each one. */
static void put_commands(void)
{
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++)
        if (c->summary && !strchr(c->name, ' ')) printf("%s ", c->name);
}

/* Print the second words of commands of two words that begin with this one, as "data prepare". */
static void put_second_words(const dl_command *first)
{
    const size_t len = strlen(first->name);
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++)
        if (strncmp(c->name, first->name, len) == 0 && c->name[len] == ' ')
            printf("%s ", c->name + len + 1);
}

/* Print the words that a command's argument may be; nothing if it is a file, or has none. */
static void put_targets(const dl_command *c)
{
    if (!c->target) return;
    switch (c->words) {
    case DL_COMPLETE_NONE:
        put_second_words(c);
        break;
    case DL_COMPLETE_COMMANDS:
        put_commands();
        break;
    case DL_COMPLETE_OPTIONS:
        put_keys(false, " ");
        break;
    case DL_COMPLETE_PRESETS:
        put_presets();
        break;
    case DL_COMPLETE_SHELLS:
        put_parts(shells);
        break;
    }
}

/* Print text inside single quotes: a backslash before each character of `escaped`, and a quote as
 * `quote`. */
static void put_text(const char *text, const char *escaped, const char *quote)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs(quote, stdout);
        else
            printf("%s%c", strchr(escaped, *text) ? "\\" : "", *text);
}

/* ---- bash: functions with a `case` for each table, then the code that uses them */

/* The word that is being completed decides: a command, a flag, the value of a flag, or a target.
 * COMP_WORDBREAKS contains '=', hence the three words. */
static const char bash_functions[] =
    "# COMP_WORDS has NAME=VALUE as three words.\n"
    "_diloco() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local command=${COMP_WORDS[1]} second=${COMP_WORDS[2]-} named= kind=1 words=\n"
    "    COMPREPLY=()\n"
    "    if [[ $cur == = ]]; then\n"
    "        cur= named=yes\n"
    "    elif [[ $before == = ]]; then\n"
    "        before=${COMP_WORDS[COMP_CWORD - 2]} named=yes\n"
    "    fi\n"
    "    if [[ $COMP_CWORD -gt 2 && $(_diloco_flags \"$command $second\") ]]; then\n"
    "        command=\"$command $second\"\n"
    "    fi\n"
    "    if [[ $COMP_CWORD -eq 1 ]]; then\n"
    "        words=\"$_diloco_commands --version --help\"\n"
    "    elif [[ $named && $before != -* ]]; then\n"
    "        words=$(_diloco_choices \"$before\") kind=0\n"
    "    else\n"
    "        words=$(_diloco_value \"$before\" \"$command\")\n"
    "        kind=$?\n"
    "        if [[ $kind -eq 1 && $cur == -* ]]; then\n"
    "            words=$(_diloco_flags \"$command\")\n"
    "        elif [[ $kind -eq 1 ]]; then\n"
    "            words=$(_diloco_targets \"$command\")\n"
    "        fi\n"
    "    fi\n"
    "    [[ $kind -ne 0 ]] || compopt +o default 2>/dev/null # no names of files\n"
    "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
    "    [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null\n"
    "}\n"
    "complete -o default -F _diloco diloco\n";

/* Print a function that echoes the flags of command $1. --help is first, as every command has
 * it. */
static void bash_flags(void)
{
    puts("_diloco_flags() {\n    case $1 in");
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++) {
        if (!c->summary) continue;
        printf("    '%s') echo '--help", c->name);
        for (size_t i = 0; i < DL_N_FLAGS; i++)
            if (i != DL_FLAG_HELP && dl_command_takes(c, i)) printf(" %s", dl_flag_rows[i].name);
        puts("' ;;");
    }
    puts("    esac\n}");
}

/* Print a function that echoes the words which the argument of command $1 may be. */
static void bash_targets(void)
{
    puts("_diloco_targets() {\n    case $1 in");
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++) {
        if (!c->summary) continue;
        printf("    '%s') echo '", c->name);
        put_targets(c);
        puts("' ;;");
    }
    puts("    esac\n}");
}

/* Print a function that echoes the keys which --set of command $1 takes. join and its like take
 * those of the machine alone. */
static void bash_keys(void)
{
    puts("_diloco_keys_of() {\n    case $1 in");
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++)
        if (c->sets == DL_SETS_MACHINE)
            printf("    '%s') echo \"$_diloco_machine_keys\" ;;\n", c->name);
    puts("    *) echo \"$_diloco_keys\" ;;\n    esac\n}");
}

/* Print a function for the value of a flag. Flags of one name in two rows have the first row's
 * values, because `case` takes the first pattern that matches. */
static void bash_values(void)
{
    puts("# The values of flag $1 of command $2. Returns 1 if it takes none, 2 if they are files.\n"
         "_diloco_value() {\n    case $1 in");
    for (size_t i = 0; i < DL_N_FLAGS; i++) {
        const dl_flag_row *row = &dl_flag_rows[i];
        const dl_option *option = chosen_option(row);
        if (!row->value) continue;
        printf("    %s) ", row->name);
        if (takes_key(i)) {
            puts("_diloco_keys_of \"$2\" ;;");
        } else if (option) {
            fputs("echo '", stdout);
            put_choices(option);
            puts("' ;;");
        } else {
            puts(takes_path(row) ? "return 2 ;;" : ";;");
        }
    }
    puts("    *) return 1 ;;\n    esac\n}");
}

/* Print a function that echoes the values of option $1, for the word after "--set KEY=". */
static void bash_choices(void)
{
    puts("_diloco_choices() {\n    case $1 in");
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (!has_choices(row)) continue;
        printf("    %s) echo '", row->name);
        put_choices(row);
        puts("' ;;");
    }
    puts("    esac\n}");
}

/* The lists of words are variables and functions, so the code that uses them is the same text for
 * every version of the program. */
static void print_bash(void)
{
    fputs("# bash completion for diloco, written by: diloco completion bash\n_diloco_commands='",
          stdout);
    put_commands();
    fputs("'\n_diloco_keys='", stdout);
    put_keys(false, "=\n");
    fputs("'\n_diloco_machine_keys='", stdout);
    put_keys(true, "=\n");
    puts("'");
    bash_flags();
    bash_targets();
    bash_keys();
    bash_values();
    bash_choices();
    fputs(bash_functions, stdout);
}

/* ---- zsh: one _arguments call for each command */

/* Print the function that completes KEY=VALUE. `compset -P` removes the key from the word, and the
 * removed part then chooses the values. */
static void zsh_choices(void)
{
    puts("# KEY, or after its = the values that it may have. The last argument names the keys.\n"
         "_diloco_set() {\n"
         "    if ! compset -P '*='; then\n"
         "        compadd -q -S = -- ${(P)argv[-1]}\n"
         "        return\n"
         "    fi\n"
         "    case ${${IPREFIX%=}##*=} in");
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (!has_choices(row)) continue;
        printf("    %s) compadd -- ", row->name);
        put_choices(row);
        puts(" ;;");
    }
    puts("    *) _files ;;\n    esac\n}");
}

/* Print a flag as _arguments reads it: '--replicas=[help]:N: '. '*' before it marks a flag that
 * may be repeated. */
static void zsh_flag(const dl_command *c, size_t flag)
{
    const dl_flag_row *row = &dl_flag_rows[flag];
    const dl_option *option = chosen_option(row);
    printf(" \\\n        '%s%s%s[", takes_key(flag) || flag == DL_FLAG_COMPARE ? "*" : "",
           row->name, row->value ? "=" : "");
    put_text(row->help, "[]\\", "'\\''");
    putchar(']');
    if (row->value) {
        putchar(':');
        put_text(row->value, ":\\", "'\\''");
        putchar(':');
    }
    if (takes_key(flag)) {
        printf("_diloco_set _diloco_%skeys", c->sets == DL_SETS_MACHINE ? "machine_" : "");
    } else if (option) {
        putchar('(');
        put_choices(option);
        putchar(')');
    } else if (row->value) {
        fputs(takes_path(row) ? "_files" : " ", stdout);
    }
    putchar('\'');
}

/* Print the call of _arguments for one command: its flags, then its argument. An argument without a
 * list of words is completed with second words of commands and with files. */
static void zsh_command(const dl_command *c)
{
    printf("    '%s') _arguments", c->name);
    for (size_t i = 0; i < DL_N_FLAGS; i++)
        if (dl_command_takes(c, i)) zsh_flag(c, i);
    if (c->target) {
        printf(" \\\n        '1:");
        put_text(c->target, ":\\", "'\\''");
        fputs(c->words ? ":(" : ":{ compadd -- ", stdout);
        put_targets(c);
        fputs(c->words ? ")'" : "; _files }'", stdout);
    }
    puts(" ;;");
}

/* Commands of two words are found after the first word was read, by shifting the words once
 * more. */
static void print_zsh(void)
{
    fputs("#compdef diloco\n# zsh completion for diloco, written by: diloco completion zsh\n"
          "typeset -ga _diloco_keys _diloco_machine_keys\n_diloco_keys=(",
          stdout);
    put_keys(false, " ");
    fputs(")\n_diloco_machine_keys=(", stdout);
    put_keys(true, " ");
    puts(")");
    zsh_choices();
    puts("_diloco() {\n    local -a commands\n    local command\n    commands=(");
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++) {
        if (!c->summary || strchr(c->name, ' ')) continue;
        printf("        '%s:", c->name);
        put_text(c->summary, "\\", "'\\''");
        puts("'");
    }
    puts("    )\n"
         "    if (( CURRENT == 2 )); then\n"
         "        _describe command commands\n"
         "        return\n"
         "    fi\n"
         "    shift words\n"
         "    (( CURRENT-- ))\n"
         "    command=$words[1]\n"
         "    case \"$command $words[2]\" in");
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++)
        if (c->summary && strchr(c->name, ' '))
            printf("    '%s') (( CURRENT > 2 )) && { command='%s'; shift words; (( CURRENT-- )) } "
                   ";;\n",
                   c->name, c->name);
    puts("    esac\n    case $command in");
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++)
        if (c->summary) zsh_command(c);
    puts("    esac\n}\n_diloco \"$@\"");
}

/* ---- fish: one `complete` line for each flag of each command */

/* Print the start of a `complete` line with its condition: the words of this command were given. */
static void fish_begin(const dl_command *c)
{
    const size_t len = strcspn(c->name, " ");
    printf("complete -c diloco -n '__fish_seen_subcommand_from %.*s", (int)len, c->name);
    if (c->name[len]) printf("; and __fish_seen_subcommand_from %s", c->name + len + 1);
    fputs("' ", stdout);
}

/* fish has no '=' in its words' borders, so each value is printed with its key before it. */
static void fish_choices(void)
{
    puts("# The keys of its arguments, or after KEY= the values that it may have.\n"
         "function _diloco_set\n    switch (commandline -ct)");
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (!has_choices(row)) continue;
        char before[128];
        snprintf(before, sizeof before, "%s=", row->name);
        printf("    case '%s*' '*=%s*'\n        printf '%%s\\n' ", before, before);
        put_values(row, before);
        putchar('\n');
    }
    puts("    case '*'\n        string split -n ' ' -- $argv\n    end\nend");
}

/* -x: the flag needs a value that is no file; -r: one that may be. */
static void fish_flag(const dl_command *c, size_t flag)
{
    const dl_flag_row *row = &dl_flag_rows[flag];
    const dl_option *option = chosen_option(row);
    fish_begin(c);
    printf("-l %s ", row->name + 2);
    if (row->value) fputs(takes_path(row) ? "-r " : "-x ", stdout);
    if (takes_key(flag)) {
        printf("-a '(_diloco_set $_diloco_%skeys)' ", c->sets == DL_SETS_MACHINE ? "machine_" : "");
    } else if (option) {
        fputs("-a '", stdout);
        put_choices(option);
        fputs("' ", stdout);
    }
    fputs("-d '", stdout);
    put_text(row->help, "\\", "\\'");
    puts("'");
}

/* Print the lines of one command. Its own name is offered only while no command was given (-f: and
 * no file). */
static void fish_command(const dl_command *c)
{
    if (!strchr(c->name, ' ')) {
        printf("complete -c diloco -n __fish_use_subcommand -f -a '%s' -d '", c->name);
        put_text(c->summary, "\\", "\\'");
        puts("'");
    }
    for (size_t i = 0; i < DL_N_FLAGS; i++)
        if (dl_command_takes(c, i)) fish_flag(c, i);
    fish_begin(c);
    fputs(c->words ? "-f -a '" : "-a '", stdout);
    put_targets(c);
    puts("'");
}

/* Keys are printed with "=" after them, so that fish completes the key and the user types the
 * value. */
static void print_fish(void)
{
    fputs("# fish completion for diloco, written by: diloco completion fish\n"
          "set -g _diloco_keys '",
          stdout);
    put_keys(false, "= ");
    fputs("'\nset -g _diloco_machine_keys '", stdout);
    put_keys(true, "= ");
    puts("'");
    fish_choices();
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++)
        if (c->summary) fish_command(c);
}

/* The script goes to stdout. The build redirects it into a file, and a user may source it. */
static diloco_status cmd_completion(const dl_args *args)
{
    if (strcmp(args->target, "bash") == 0)
        print_bash();
    else if (strcmp(args->target, "zsh") == 0)
        print_zsh();
    else if (strcmp(args->target, "fish") == 0)
        print_fish();
    else
        return dl_fail(DILOCO_EINVAL,
                       "completion for the shell %.60s is not available; give bash, zsh or fish",
                       args->target);
    return DILOCO_OK;
}

const dl_command dl_command_completion = {
    .name = "completion",
    .target = "SHELL",
    .words = DL_COMPLETE_SHELLS,
    .summary = "completion of commands, flags and settings for bash, zsh or fish",
    .details =
        "Prints a script for the shell. `make install` and the Debian package install it; "
        "otherwise:\n"
        "  source <(diloco completion bash)                                      # in ~/.bashrc\n"
        "  diloco completion zsh >~/.zfunc/_diloco          # in a folder of fpath, before "
        "compinit\n"
        "  diloco completion fish >~/.config/fish/completions/diloco.fish",
    .run = cmd_completion,
};
