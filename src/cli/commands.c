/* commands.c - the table of subcommands, from their list. */
#include "cli/command_rows.h"

#include <string.h>

#define ADDRESS(name) &dl_command_##name,
const dl_command *const dl_commands[] = {DL_COMMANDS(ADDRESS) NULL};

const dl_command *dl_command_find(const char *name)
{
    for (const dl_command *c, *const *at = dl_commands; (c = *at); at++)
        if (strcmp(c->name, name) == 0) return c;
    return NULL;
}
