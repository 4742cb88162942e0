/* run_names.c - see run_names.h. A name has such characters as names of runs in a hub have. */
#include "cli/run_names.h"

#include <stdio.h>
#include <string.h>

/* The bounds are those of 1024 runs with names and URLs of full length. */
void dl_run_names_init(dl_run_names *n)
{
    dl_buf_init(&n->names, 1 << 20);
    dl_buf_init(&n->urls, 8 << 20);
}

void dl_run_names_deinit(dl_run_names *n)
{
    dl_buf_deinit(&n->names);
    dl_buf_deinit(&n->urls);
}

/* Return the URL of a name, or NULL. Both lists are walked in step, because entries have no fixed
 * length. An empty name without a URL may end the names. */
static const char *find(const dl_run_names *all, const char *name)
{
    const char *n = (const char *)all->names.data, *u = (const char *)all->urls.data;
    for (size_t at = 0, to = 0; at < all->names.len && to < all->urls.len;
         at += strlen(n + at) + 1) { /* offsets of the name and of its URL */
        if (!strcmp(n + at, name)) return u + to;
        to += strlen(u + to) + 1;
    }
    return NULL;
}

/* Returns false for an unknown or an empty name. */
bool dl_run_names_url(const dl_run_names *n, char url[DL_VIEW_URL], const char *name)
{
    const char *found = *name ? find(n, name) : NULL;
    return found && snprintf(url, DL_VIEW_URL, "%s", found) < DL_VIEW_URL;
}

/* Return true if the character may be in the name of a hub's run. A first '.' would hide the
 * run. */
static bool is_fine(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '=' || c == '-' || (c == '.' && !first);
}

/* Take the last component of the URL, without characters that a run's name cannot have. A number
 * makes it unique. */
static void name_of(char out[DL_VIEW_NAME], const dl_run_names *all, const char *url)
{
    char base[64];
    size_t len = strlen(url), n = 0;
    while (len > 1 && url[len - 1] == '/')
        len--;
    size_t begin = len;
    while (begin > 0 && url[begin - 1] != '/')
        begin--;
    for (; begin < len && n + 1 < sizeof base; begin++)
        if (is_fine(url[begin], n == 0)) base[n++] = url[begin];
    base[n] = 0;
    snprintf(out, DL_VIEW_NAME, "%s", n ? base : "run");
    for (int i = 2; find(all, out); i++)
        snprintf(out, DL_VIEW_NAME, "%s-%d", n ? base : "run", i);
}

/* After an error the two lists may differ in length, so the caller gives the page up. */
diloco_status dl_run_names_add(dl_run_names *n, const char *url)
{
    char name[DL_VIEW_NAME];
    name_of(name, n, url);
    DL_TRY(dl_buf_add(&n->names, name, strlen(name) + 1));
    return dl_buf_add(&n->urls, url, strlen(url) + 1);
}
