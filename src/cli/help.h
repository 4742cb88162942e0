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

#endif
