/* help.h - help and the options' page, written from the tables. At most 100 columns wide. */
#ifndef DL_CLI_HELP_H
#define DL_CLI_HELP_H

#include "base/option.h"
#include "cli/cli.h"

void dl_help_program(FILE *out);
void dl_help_command(FILE *out, const dl_command *command);

/* Options by section; `machine`: only those that may differ between replicas. */
void dl_help_options(FILE *out, bool machine);
void dl_help_options_page(FILE *out); /* docs/options.md */

/* Of an option: "whole number, 1 to 1024 replicas", "one of wait, abort"; and how many characters
 * of its name are its section's. */
enum { DL_OPTION_TYPE_MAX = 400 };
void dl_help_option_type(char out[DL_OPTION_TYPE_MAX], const dl_option *row);
int dl_help_section(const dl_option *row);
bool dl_help_begins_section(const dl_option *row, const dl_option *before); /* NULL: none */

/* Print the options whose name or alias holds `part`, of any case; where there are none, those
 * whose help does. Of an exact name or alias only that one is explained; the others are named.
 * Returns how many were found. */
size_t dl_help_options_with(FILE *out, const char *part);

#endif
