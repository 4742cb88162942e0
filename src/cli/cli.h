/* cli.h - the program: a table of subcommands, a table of flags, and what commands share.
 *
 * The program speaks to the libraries through include/diloco, and uses src/base and the program's
 * other rooms, such as src/hub and src/launch. A subcommand is a file cmd_*.c and a line in
 * command_rows.h; a flag is a row in args.c. dl_cli_main parses the command line into dl_args,
 * which a command gets as its only argument. A command returns a status, and the exit code follows
 * from that. */
#ifndef DL_CLI_CLI_H
#define DL_CLI_CLI_H

#include "base/json.h"
#include "cli/args.h"

#include <stdio.h>

/* ---- the program */

/* dl_cli_main runs the command line and returns the exit code of the process (diloco_exit_code). An
 * error is one line on stderr. It is called once in a process, by the main thread. */
int dl_cli_main(int argc, char **argv);

/* ---- output */

/* dl_flush_output writes out what stdout has buffered. Returns DILOCO_EIO if it did not take all
 * that was written, also in an earlier flush. A pipe without a reader makes dl_cli_main end with
 * the exit code of SIGPIPE. */
DL_MUST_CHECK diloco_status dl_flush_output(void);

/* dl_print_json ends the JSON and writes it to stdout as one line. It frees `buf` in any case.
 * Returns the first error of the writer (DILOCO_ENOMEM, DILOCO_EPROTO); then nothing is printed. */
DL_MUST_CHECK diloco_status dl_print_json(dl_json *json, dl_buf *buf);

/* dl_printable copies text from outside for a terminal or for JSON. Control characters except
 * newlines become '?', and so do bytes that are not UTF-8. The copy is cut to `cap` bytes with its
 * zero byte, between two characters. */
void dl_printable(char *out, size_t cap, const char *text);

/* dl_printable_line does the same for text within a line: newlines become '?' too. */
void dl_printable_line(char *out, size_t cap, const char *text);

/* dl_print_foreign writes foreign bytes to stdout. On a terminal, control characters except newline
 * and tab become '?', and so do bytes that are not UTF-8. Elsewhere the bytes stay as they are. */
void dl_print_foreign(const char *text, size_t len);

/* dl_log_to_stderr sends the library's log to stderr: warnings and errors by default, everything
 * with --verbose, errors alone with --quiet. Warnings of serve are always printed, as a hub has no
 * record. */
void dl_log_to_stderr(const dl_args *args);

#endif
