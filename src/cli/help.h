/* help.h - help and the options' page, written from the tables. At most 100 columns wide. */
#ifndef DL_CLI_HELP_H
#define DL_CLI_HELP_H

#include "cli/cli.h"

void dl_help_program(FILE *out);
void dl_help_command(FILE *out, const dl_command *command);

/* Options by section; `machine`: only those that may differ between replicas. */
void dl_help_options(FILE *out, bool machine);
void dl_help_options_page(FILE *out); /* docs/options.md */

#endif
