/* command_rows.h - the list of subcommands, in the order that help shows them. A new one is a file
 * that defines dl_command_<name>, and its line here.
 *
 * The list is an X macro: commands.c makes the table of it, and this file declares each command.
 * The order is by task: begin a run, take part, look at it, repair it, use its model, prepare data,
 * compare settings. Help does not show man, host, exec, ship and replica, which programs
 * start. */
#ifndef DL_CLI_COMMAND_ROWS_H
#define DL_CLI_COMMAND_ROWS_H

#include "cli/cli.h"

// clang-format off
#define DL_COMMANDS(X) \
    X(init) \
    X(train) \
    X(join) \
    X(launch) \
    X(launch_job) \
    X(launch_status) \
    X(launch_logs) \
    X(launch_cancel) \
    X(launch_collect) \
    X(launch_scale) \
    X(launch_executors) \
    X(serve) \
    X(id) \
    X(invite) \
    X(status) \
    X(log) \
    X(verify) \
    X(ui) \
    X(watch) \
    X(track) \
    X(report) \
    X(takeover) \
    X(rm) \
    X(void) \
    X(eval) \
    X(sample) \
    X(import) \
    X(export) \
    X(presets) \
    X(doctor) \
    X(data) \
    X(data_tokenizer) \
    X(data_prepare) \
    X(sweep) \
    X(tune) \
    X(plan) \
    X(options) \
    X(completion) \
    X(man) \
    X(help) \
    X(host) \
    X(exec) \
    X(ship) \
    X(replica)
// clang-format on

#define DL_DECLARE(name) extern const dl_command dl_command_##name;
DL_COMMANDS(DL_DECLARE)
#undef DL_DECLARE

#endif
