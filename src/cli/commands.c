/* commands.c - the table of subcommands, from their list.
 *
 * command_rows.h is expanded twice: there into declarations, here into addresses. So a command that
 * is listed and not defined fails to link, and no command registers itself at run time. */
#include "cli/command_rows.h"

#include <string.h>

#define ADDRESS(name) &dl_command_##name,
const dl_command *const dl_commands[] = {DL_COMMANDS(ADDRESS) NULL};

/* Some forty names are compared one by one; the search runs once or twice in a process. */
const dl_command *dl_command_find(const char *name)
{
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++)
        if (strcmp(c->name, name) == 0) return c;
    return NULL;
}
