/* logged_names.c - see logged_names.h. */
#include "inspect/logged_names.h"

#include <stdio.h>
#include <string.h>

/* Return the row of the name, or the row that it would have. */
static size_t row_of(const dl_logged_names *l, const char *name, bool *there)
{
    size_t low = 0, high = l->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (dl_replica_compare(l->names[middle], name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *there = low < l->n && !strcmp(l->names[low], name);
    return low;
}

static void move_rows(dl_logged_names *l, size_t to, size_t from)
{
    memmove(l->names + to, l->names + from, (l->n - from) * sizeof *l->names);
    memmove(l->since + to, l->since + from, (l->n - from) * sizeof *l->since);
}

static void remove_oldest(dl_logged_names *l)
{
    size_t oldest = 0;
    for (size_t i = 1; i < l->n; i++)
        if (l->since[i] < l->since[oldest]) oldest = i;
    move_rows(l, oldest, oldest + 1);
    l->n--;
}

void dl_logged_names_add(dl_logged_names *l, const char *name, uint64_t entry)
{
    bool there;
    size_t at = row_of(l, name, &there);
    if (!there) {
        if (l->n == DL_LOGGED_NAMES_MAX) remove_oldest(l);
        at = row_of(l, name, &there);
        move_rows(l, at + 1, at);
        l->n++;
        snprintf(l->names[at], sizeof l->names[at], "%s", name);
        l->since[at] = 0;
    }
    if (l->since[at] <= entry) l->since[at] = entry + 1;
}

void dl_logged_names_add_commit(dl_logged_names *l, const dl_entry *entry)
{
    for (size_t i = 0; i < entry->n_members; i++)
        dl_logged_names_add(l, entry->members[i].generation.replica, entry->entry);
    for (size_t i = 0; i < entry->roster.n; i++)
        dl_logged_names_add(l, entry->roster.names[i], entry->entry);
}

uint64_t dl_logged_names_since(const dl_logged_names *l, const char *name)
{
    bool there;
    const size_t at = row_of(l, name, &there);
    return there ? l->since[at] : 0;
}
