/* user_parts.c - see user_parts.h. */
#include "run/user_parts.h"

#include "base/own.h"
#include "codec/user_codec.h"
#include "combine/user_combiner.h"
#include "outer/user_outer.h"
#include "store/user_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The caller's parts as rows of the same kind as the library's own. config->own refers to them, so
 * the config must not outlive this. */
struct dl_user {
    struct dl_own_rows rows;
    dl_outer_user outer;
    dl_combiner_user combiner;
    dl_codec_user codec;
    char store[DL_OPTION_NAME_MAX + 1]; /* "": the caller gave no store */
};

/* Sets the option to the part's name. Returns DILOCO_EINVAL if the option was set to another. */
static diloco_status name_it(dl_config *config, const char *option, const char *name)
{
    char now[DL_OPTION_NAME_MAX + 1];
    if (!dl_config_given(config, option)) return dl_config_set(config, option, name, "program");
    DL_TRY(diloco_config_get(config, option, now, sizeof now));
    if (strcmp(now, name) == 0) return DILOCO_OK;
    return dl_fail(
        DILOCO_EINVAL,
        "%s is \"%s\" (%s), and the caller gives %s of its own: omit the option or the part",
        option, now, dl_config_origin(config, option), name);
}

/* Checks and copies each part, names it in its option, and enters its row. */
static diloco_status take_rows(dl_user *u, dl_config *config, const diloco_user_parts *parts)
{
    if (parts->outer) {
        DL_TRY(dl_outer_user_init(&u->outer, parts->outer));
        DL_TRY(name_it(config, "server.diloco.outer_optimizer", u->outer.name));
        u->rows.outer = &u->outer.row;
        u->rows.outer_keeping = &u->outer.keeping;
    }
    if (parts->combiner) {
        DL_TRY(dl_combiner_user_init(&u->combiner, parts->combiner));
        DL_TRY(name_it(config, "server.diloco.combiner", u->combiner.name));
        u->rows.combiner = &u->combiner.row;
    }
    if (parts->codec) {
        DL_TRY(dl_codec_user_init(&u->codec, parts->codec));
        DL_TRY(name_it(config, "server.diloco.codec", u->codec.name));
        u->rows.codec = &u->codec.row;
    }
    config->own = &u->rows;
    return DILOCO_OK;
}

/* Registers the store under a URL of its own, and sets run.store to it. A place within that store
 * may be given explicitly. */
static diloco_status take_store(dl_user *u, dl_config *config, const diloco_user_store *store)
{
    char url[64];
    DL_TRY(dl_store_add_user(u->store, store));
    snprintf(url, sizeof url, DL_STORE_USER "%s", u->store);
    if (!config->store[0]) return dl_config_set(config, "run.store", url, "program");
    const size_t len = strlen(url);
    if (!strncmp(config->store, url, len) && (!config->store[len] || config->store[len] == '/'))
        return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "run.store is \"%s\" (%s), and the caller gives a store of its own, which is %s "
                   "or a place in it: leave run.store empty, or omit the part",
                   config->store, dl_config_origin(config, "run.store"), url);
}

/* After an error config->own is NULL again, so no option refers to freed memory. */
diloco_status dl_user_create(dl_user **out, dl_config *config, const diloco_user_parts *parts)
{
    *out = NULL;
    dl_user *u = calloc(1, sizeof *u);
    if (!u) return dl_fail(DILOCO_ENOMEM, "out of memory for the caller's parts");
    diloco_status status = take_rows(u, config, parts);
    if (!status && parts->store) status = take_store(u, config, parts->store);
    if (!status) {
        *out = u;
        return DILOCO_OK;
    }
    config->own = NULL;
    dl_user_destroy(u);
    return status;
}

void dl_user_destroy(dl_user *u)
{
    if (!u) return;
    if (u->store[0]) dl_store_drop_user(u->store);
    free(u);
}
