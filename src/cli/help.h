/* help.h - help and the options' page, written from the tables. At most 100 columns wide. */
#ifndef DL_CLI_HELP_H
#define DL_CLI_HELP_H

#include "base/option.h"
#include "cli/args.h"

#include <stdio.h>

/* dl_help_program prints the usage: every command that is not hidden, with its summary. */
void dl_help_program(FILE *out);

/* Print the help of a command. It ends with the options of --set: also the advanced ones with
 * `all`, otherwise the basic ones. */
void dl_help_command(FILE *out, const dl_command *command, bool all);

/* dl_help_options prints options by section. With `machine` only those that may differ between
 * replicas, without `all` only the basic ones. Options with one value are never printed here. */
void dl_help_options(FILE *out, bool machine, bool all);
void dl_help_options_page(FILE *out); /* docs/options.md */

/* Bytes of the texts about an option that the functions below write. Longer texts are cut. */
enum { DL_OPTION_TYPE_MAX = 400 };
/* dl_help_option_type writes the type and range of an option: "whole number, 1 to 1024 replicas",
 * "one of wait, abort". */
void dl_help_option_type(char out[DL_OPTION_TYPE_MAX], const dl_option *row);
/* "--set run.replicas=4", of a basic option. Returns out. */
const char *dl_help_option_example(char out[DL_OPTION_TYPE_MAX], const dl_option *row);
/* "Only with run.peers. Needs swarm.consensus = log (the default)."; "" of an option without
 * conditions. Returns out. */
const char *dl_help_option_conditions(char out[DL_OPTION_TYPE_MAX], const dl_option *row);
/* dl_help_section returns how many characters of the option's name are its section's: 3 for
 * "run.seed", 0 without a section. */
int dl_help_section(const dl_option *row);
bool dl_help_begins_section(const dl_option *row, const dl_option *before); /* NULL: none */

/* dl_help_options_with prints the options whose name or alias contains `part`, in any case of
 * letters. If none does, it prints those whose help text does. An exact name, alias or last word of
 * a name explains that option alone and names the others. Returns the number of options found. */
size_t dl_help_options_with(FILE *out, const char *part);

#endif
