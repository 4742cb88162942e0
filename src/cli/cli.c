/* cli.c - from the command line to a command, and from its status to the exit code.
 *
 * Begin with dl_cli_main. Commands are in cmd_*.c, one a file; command_rows.h lists them. */
#include "cli/cli.h"

#include "base/file.h"
#include "base/text.h"
#include "cli/help.h"
#include "cli/join_line.h"
#include "fetch/fetch_early.h"
#include <diloco/log.h>
#include <diloco/train.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* More than there are commands. */
enum { NAMES_MAX = 64 };

/* Return the number of bytes of the first character, 1 if it is not UTF-8. *harmless is false for
 * bytes that are not UTF-8 and for control characters that are not in `allowed`. C1 controls (0x80
 * to 0x9F) count too, as some terminals obey them. */
static size_t first_char(bool *harmless, const char *text, size_t len, const char *allowed)
{
    uint32_t code = 0;
    const size_t n = dl_utf8_char(&code, text, len);
    const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
    *harmless = n && (!control || (code && strchr(allowed, (int)code)));
    return dl_size_max(n, 1);
}

/* Bytes that are no UTF-8 are replaced one by one, so later text stays readable. */
static void make_printable(char *out, size_t cap, const char *text, const char *allowed)
{
    const size_t len = strlen(text);
    size_t used = 0, n;
    for (size_t at = 0; at < len; at += n) {
        bool harmless;
        n = first_char(&harmless, text + at, len - at, allowed);
        if (used + n >= cap) break;
        if (harmless)
            memcpy(out + used, text + at, n), used += n;
        else
            out[used++] = '?';
    }
    out[used] = '\0';
}

void dl_printable(char *out, size_t cap, const char *text)
{
    make_printable(out, cap, text, "\n");
}

void dl_printable_line(char *out, size_t cap, const char *text)
{
    make_printable(out, cap, text, "");
}

/* Harmless characters are written in runs that are as long as possible. */
void dl_print_foreign(const char *text, size_t len)
{
    if (isatty(STDOUT_FILENO) != 1) {
        fwrite(text, 1, len, stdout);
        return;
    }
    size_t from = 0, n;
    for (size_t at = 0; at < len; at += n) {
        bool harmless;
        n = first_char(&harmless, text + at, len - at, "\n\t");
        if (harmless) continue;
        fwrite(text + from, 1, at - from, stdout);
        putchar('?');
        from = at + n;
    }
    fwrite(text + from, 1, len - from, stdout);
}

/* The text is printed only if it is complete: after an error stdout gets nothing. */
diloco_status dl_print_json(dl_json *json, dl_buf *buf)
{
    diloco_status status = dl_json_done(json);
    if (!status) printf("%.*s\n", (int)buf->len, (const char *)buf->data);
    dl_buf_deinit(buf);
    return status;
}

/* The library calls this from any thread. One fprintf is one line, since stderr is locked during
 * it. */
static void log_line(void *user, diloco_log_level level, const char *line)
{
    (void)user;
    fprintf(stderr, "diloco: %s%s\n", level == DILOCO_LOG_WARN ? "warning: " : "", line);
}

void dl_log_to_stderr(const dl_args *args)
{
    /* A hub has no record that keeps its warnings. */
    const bool quiet =
        dl_args_has(args, DL_FLAG_QUIET) && !dl_flags_have(args->command->flags, DL_FLAG_LISTEN);
    diloco_log_set(log_line, NULL,
                   dl_args_has(args, DL_FLAG_VERBOSE) ? DILOCO_LOG_DEBUG
                   : quiet                            ? DILOCO_LOG_ERROR
                                                      : DILOCO_LOG_WARN);
}

/* Compose the error for a command that does not exist. Hidden commands are not suggested. */
static diloco_status unknown_command(const char *name)
{
    const char *names[NAMES_MAX], *nearest;
    size_t n = 0;
    for (const dl_command *c, *const *at = dl_commands; (c = *at) && n < NAMES_MAX; at++)
        if (c->summary) names[n++] = c->name;
    nearest = dl_nearest(names, n, name);
    if (nearest)
        return dl_fail(DILOCO_EINVAL, "there is no command %.60s; did you mean %s?", name, nearest);
    return dl_fail(DILOCO_EINVAL, "there is no command %.60s; see diloco help", name);
}

/* `diloco help COMMAND` prints the same text as `diloco COMMAND --help`. */
static diloco_status cmd_help(const dl_args *args)
{
    const dl_command *command = args->target ? dl_command_find(args->target) : NULL;
    if (args->target && !command) return unknown_command(args->target);
    if (command)
        dl_help_command(stdout, command, false);
    else
        dl_help_program(stdout);
    return DILOCO_OK;
}

const dl_command dl_command_help = {
    .name = "help",
    .target = "[COMMAND]",
    .words = DL_COMPLETE_COMMANDS,
    .summary = "this text, or the help of a command",
    .run = cmd_help,
};

/* Return the command of two words, such as "data prepare", or NULL. */
static const dl_command *find_two(const char *first, const char *second)
{
    char name[64];
    int len = snprintf(name, sizeof name, "%s %s", first, second);
    return len > 0 && (size_t)len < sizeof name ? dl_command_find(name) : NULL;
}

/* Find the command and run it. Two words are tried before one, so "data prepare" is not "data"
 * with a target. A join line is taken out of argv before the command sees it. Errors of the parsing
 * come earlier, and may quote the first 100 bytes of an argument. */
static diloco_status run(int argc, char **argv)
{
    const char *name = argv[1];
    char why[4096];
    dl_args args;
    if (strcmp(name, "--version") == 0) {
        printf("diloco %s\n", diloco_version());
        return DILOCO_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";

    const dl_command *one = dl_command_find(name), *two = find_two(name, argc > 2 ? argv[2] : "");
    const dl_command *command = two ? two : one;
    if (!command) return unknown_command(name);
    DL_TRY(dl_args_parse(&args, command, argc, argv, two ? 3 : 2));
    DL_TRY(dl_join_line_take(&args));
    const bool all = dl_args_has(&args, DL_FLAG_HELP_ALL);
    if (all || dl_args_has(&args, DL_FLAG_HELP)) {
        dl_help_command(stdout, command, all);
        return DILOCO_OK;
    }
    dl_log_to_stderr(&args);
    const diloco_status status = command->run(&args);
    snprintf(why, sizeof why, "%s", status ? diloco_error_text() : "");
    dl_early_close(); /* its threads must not run while the process ends */
    return status ? dl_fail(status, "%s", why) : DILOCO_OK;
}

/* Return true if stdout is a pipe without a reader, such as a `head` that has ended. */
static bool output_is_closed(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && out.revents & POLLERR;
}

static bool closed; /* seen by dl_flush_output */

/* Flush stdout. An error sticks to the stream, so a loss in an earlier flush is reported here,
 * too. */
diloco_status dl_flush_output(void)
{
    const int error = fflush(stdout) ? errno : ferror(stdout) ? EIO : 0;
    closed = closed || (error && output_is_closed());
    return error ? dl_fail(DILOCO_EIO, "writing the output: %s", strerror(error)) : DILOCO_OK;
}

/* After the usage, say where a newcomer begins. */
static void print_first_steps(FILE *out)
{
    fputs(dl_file_exists("run.toml")
              ? "\nHere is a run.toml: diloco train run.toml starts its run, or resumes it.\n"
              : "\nTo begin: diloco init --text FILE writes run.toml, a configuration to train on "
                "that\n"
                "text; diloco train run.toml then starts the run.\n",
          out);
}

/* Without arguments the usage is shown, which counts as wrong usage. An error is one line on
 * stderr, with no control characters. A parent that ignores SIGCHLD passes that on, and the system
 * would drop the exit codes of children. A file that reaches its limit (ulimit -f) is an error of
 * its write, and not the end of this process or of a replica. */
int dl_cli_main(int argc, char **argv)
{
    signal(SIGCHLD, SIG_DFL);
    signal(SIGXFSZ, SIG_IGN);
    if (argc < 2) {
        dl_help_program(stderr);
        print_first_steps(stderr);
        return diloco_exit_code(DILOCO_EINVAL);
    }
    diloco_status status = run(argc, argv);
    if (!status) status = dl_flush_output();
    if (closed) return 128 + SIGPIPE; /* as if SIGPIPE, which a parent may ignore, had ended us */
    if (status) {
        char text[2048];
        dl_printable(text, sizeof text, diloco_error_text());
        fprintf(stderr, "diloco: %s\n", text);
    }
    return diloco_exit_code(status);
}
