/* outer.c - the table of outer optimizers. */
#include "outer/rows.h"

#include <string.h>

static const dl_outer *const rows[] = {&dl_outer_nesterov, &dl_outer_momentum, &dl_outer_sgd,
                                       &dl_outer_adamw};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

const dl_outer *dl_outer_at(size_t i)
{
    return i < N_ROWS ? rows[i] : NULL;
}

const dl_outer *dl_outer_find(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i]->name, name) == 0) return rows[i];
    return NULL;
}
