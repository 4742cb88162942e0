/* store_open.c - opening a store by its url, over the table of kinds. */
#include "store/store_parts.h"

#include "base/text.h"
#include "store/store.h"
#include "store/wrap/layers.h"
#include "store/wrap/shaped.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_MIN (20 * DL_MILLISECOND)
#define PAUSE_MAX DL_SECOND

#define ROW(scheme) &dl_store_##scheme,
/* The table of kinds. kind.h has the list that fills it, so a new kind adds no line here. */
static const dl_store_kind *const kinds[] = {DL_LOCAL_STORES(ROW)
#if DL_CLOUD
                                                 DL_NETWORK_STORES(ROW)
#endif
};

/* The kinds that -DDILOCO_CLOUD=OFF leaves out, refused by name. */
#define NAME(scheme) #scheme,
static const char *const network_schemes[] = {DL_NETWORK_STORES(NAME)};

static bool is_scheme(const char *scheme, const char *url, size_t len)
{
    return strlen(scheme) == len && !memcmp(scheme, url, len);
}

/* A scheme that this build leaves out, or that no store can have, is refused with its own reason.
 * Any other text gets the list of known schemes. */
static diloco_status unknown_scheme(const char *url, size_t len)
{
    for (size_t i = 0; i < sizeof network_schemes / sizeof *network_schemes; i++)
        if (is_scheme(network_schemes[i], url, len))
            return dl_fail(DILOCO_EREFUSED,
                           "%s:// stores are left out of this program, which was built with "
                           "-DDILOCO_CLOUD=OFF",
                           network_schemes[i]);
    char known[256];
    size_t used = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s://, ", kinds[i]->scheme);
    return dl_fail(
        DILOCO_EINVAL,
        "store %.*s…: there are no %.*s:// stores; known are %sand the plain path of a folder",
        (int)len + 3, url, (int)len, url, known);
}

/* Splits "scheme://place". A text without a scheme is a path. *place points into the url. */
static diloco_status find_kind(const dl_store_kind **kind, const char **place, const char *url)
{
    const char *separator = strstr(url, "://");
    *kind = separator ? NULL : &dl_store_file;
    *place = separator ? separator + 3 : url;
    size_t scheme_len = separator ? (size_t)(separator - url) : 0;
    for (size_t i = 0; !*kind && i < sizeof kinds / sizeof *kinds; i++)
        if (is_scheme(kinds[i]->scheme, url, scheme_len)) *kind = kinds[i];

    if (!*kind) return unknown_scheme(url, scheme_len);
    if (!**place) return dl_fail(DILOCO_EINVAL, "store \"%s\" names no place", url);
    if (*kind == &dl_store_file && separator && **place != '/')
        return dl_fail(DILOCO_EINVAL,
                       "store %s: file:// needs an absolute path; leave file:// out for a "
                       "relative one",
                       url);
    return DILOCO_OK;
}

diloco_status dl_store_check_url(const char *url)
{
    const dl_store_kind *kind;
    const char *place;
    return find_kind(&kind, &place, url);
}

/* Copies the value of a bucket's option with its %-escapes decoded. Returns false if the url does
 * not have it. A value that is too long or has an invalid escape is "": opening refuses it. */
static bool option_of(char *out, size_t cap, const char *url, const char *name)
{
    const size_t len = strlen(name);
    const char *at = strchr(url, '?');
    while (at && (strncmp(at + 1, name, len) != 0 || at[1 + len] != '='))
        at = strchr(at + 1, '&');
    if (!at) return false;
    at += 2 + len;
    const size_t value = strcspn(at, "&");
    *out = '\0';
    if (value >= cap) return true;
    memcpy(out, at, value);
    out[value] = '\0';
    if (!dl_text_unescape(out, false)) *out = '\0';
    return true;
}

/* Only the url's text is looked at. A bucket without an endpoint has its provider's server, which
 * the caller need not allow. */
void dl_store_server(char *out, size_t cap, const char *url)
{
    char place[DL_STORE_SERVER];
    const bool hub = !strncmp(url, "http://", 7) || !strncmp(url, "https://", 8);
    *out = '\0';
    if (hub)
        snprintf(place, sizeof place, "%s", url);
    else if (!option_of(place, sizeof place, url, "endpoint"))
        return;
    const char *host = strstr(place, "://");
    if (host && host[3]) place[host + 3 - place + (long)strcspn(host + 3, "/?#")] = '\0';
    snprintf(out, cap, "%s", *place ? place : "nowhere");
}

/* Allocates the handle and the kind's state in one block. The kind's defaults for pauses and sizes
 * are set here. */
diloco_status dl_store_wrap(dl_store **out, const dl_store_kind *kind, const char *url, void **self,
                            const atomic_bool **aborted)
{
    *out = NULL;
    *self = NULL;
    *aborted = NULL;
    dl_store *store = calloc(1, sizeof *store + kind->size);
    char *copy = strdup(url);
    if (!store || !copy) {
        free(store), free(copy);
        return dl_fail(DILOCO_ENOMEM, "not enough memory to open store %s", url);
    }
    store->kind = kind;
    store->url = copy;
    store->address.url = copy;
    store->least = kind->pause_min ? kind->pause_min : PAUSE_MIN;
    store->most = kind->pause_max ? kind->pause_max : PAUSE_MAX;
    store->max_object = kind->max_object ? kind->max_object : SIZE_MAX;
    store->io_may_pass = kind->io_may_pass;
    atomic_init(&store->aborted, false);
    *self = store->self;
    *aborted = &store->aborted;
    *out = store;
    return DILOCO_OK;
}

/* close runs even after a failed open, so a kind releases what it has. */
static diloco_status open_one(dl_store **out, const char *url, bool create)
{
    const dl_store_kind *kind;
    const char *place;
    void *self;
    const atomic_bool *aborted;
    DL_TRY(find_kind(&kind, &place, url));
    DL_TRY(dl_store_wrap(out, kind, url, &self, &aborted));
    diloco_status status = kind->open(self, place, create, aborted);
    if (!status) return dl_store_through_link(out);
    dl_store_close(*out);
    *out = NULL;
    return status;
}

/* A store that is marked as unguarded is wrapped after it was opened. */
static diloco_status open_bulk(dl_store **out, const dl_store_address *address, bool create)
{
    dl_store *inner;
    DL_TRY(open_one(out, address->url, create));
    if (!address->unguarded) return DILOCO_OK;
    inner = *out;
    *out = NULL;
    DL_TRY(dl_store_unguarded(out, inner));
    (*out)->address.unguarded = true;
    return DILOCO_OK;
}

/* Each layer is wrapped around the ones inside it, which it owns with their urls. */
diloco_status dl_store_open_at(dl_store **out, const dl_store_address *address, bool create)
{
    dl_store *bulk = NULL, *coord = NULL;
    *out = NULL;
    if (!address->coord) return open_bulk(out, address, create);
    DL_TRY(open_bulk(&bulk, address, create));
    const diloco_status status = open_one(&coord, address->coord, create);
    if (status) {
        dl_store_close(bulk);
        return status;
    }
    const char *url = dl_store_url(coord);
    DL_TRY(dl_store_split(out, bulk, coord));
    (*out)->address.coord = url;
    return DILOCO_OK;
}

diloco_status dl_store_open(dl_store **out, const char *url, bool create)
{
    return dl_store_open_at(out, &(dl_store_address){.url = url}, create);
}
