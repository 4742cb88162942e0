/* node_dir.c - see node_dir.h. The folder is written by this process alone, except for hb/, which
 * others write through the hub. The hub does not see the process's own writes, so this file reports
 * new objects to the hub's listeners. */
#include "gossip/node_dir.h"

#include "base/log.h"
#include "base/rng.h"
#include "gossip/reached.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEEP_MODELS = 2, SPANS_MAX = 3 };

/* ---- opening ------------------------------------------------------------------------------ */

static diloco_status join_path(dl_config_path out, const char *a, const char *b)
{
    const int len = snprintf(out, sizeof(dl_config_path), "%s/%s", a, b);
    if (len < 0 || (size_t)len >= sizeof(dl_config_path))
        return dl_fail(DILOCO_EINVAL, "run.store = \"%s\" is too long a path", a);
    return DILOCO_OK;
}

/* The shared folder of a run without a log is a plain one. */
static const char *folder_of(const dl_config *config)
{
    const char *store = config->store;
    return strncmp(store, "file://", 7) ? store : store + 7;
}

static diloco_status find_paths(dl_home *h, const dl_config *config, const char *name)
{
    DL_TRY(join_path(h->nodes, folder_of(config), "nodes"));
    DL_TRY(join_path(h->dir, h->nodes, name));
    DL_TRY(join_path(h->served, h->dir, "served"));
    DL_TRY(join_path(h->bucket, h->served, "run"));
    DL_TRY(dl_local_open(&h->local, h->nodes, name));
    return dl_store_open(&h->store, h->bucket, true);
}

/* The id is made once: a node with this name and another id is another node. */
static diloco_status find_id(dl_home *h)
{
    unsigned char bytes[16];
    char id[DL_HASH_HEX + 1];
    dl_buf text;
    DL_TRY(dl_random_bytes(bytes, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(id + 2 * i, 3, "%02x", bytes[i]);
    const dl_span span = {id, DL_HASH_HEX};
    bool taken;
    const diloco_status made = dl_store_create(h->store, "me/id", &span, 1, &taken, DL_NEVER);
    if (made && made != DILOCO_EEXIST) return made;
    dl_buf_init(&text, DL_HASH_HEX);
    diloco_status status = dl_store_get(h->store, &text, "me/id", DL_NEVER);
    if (!status && text.len != DL_HASH_HEX)
        status = dl_fail(DILOCO_EPROTO, "%s/me/id is damaged", h->bucket);
    if (!status) memcpy(h->id, text.data, DL_HASH_HEX);
    dl_buf_deinit(&text);
    return status;
}

/* Others read run.json at this node's address. A later start creates the same bytes, which
 * succeeds; the folder of another run is DILOCO_EEXIST. */
static diloco_status copy_run(dl_home *h, const dl_config *config)
{
    dl_store *shared;
    dl_buf text;
    DL_TRY(dl_store_open(&shared, config->store, false));
    dl_buf_init(&text, DL_RUNFILE_MAX);
    diloco_status status = dl_store_get(shared, &text, DL_KEY_RUN, DL_NEVER);
    const dl_span span = {text.data, text.len};
    if (!status) status = dl_store_create(h->store, DL_KEY_RUN, &span, 1, NULL, DL_NEVER);
    dl_buf_deinit(&text);
    dl_store_close(shared);
    return status;
}

diloco_status dl_home_open(dl_home *out, const dl_config *config, const char *name)
{
    *out = (dl_home){.local = NULL};
    snprintf(out->generation.replica, sizeof out->generation.replica, "%s", name);
    diloco_status status = find_paths(out, config, name);
    if (!status) status = find_id(out);
    if (!status) status = copy_run(out, config);
    if (status) dl_home_close(out);
    return status;
}

diloco_status dl_home_serve(dl_home *h, const dl_config *config)
{
    const char *tokens = getenv("DILOCO_HUB_TOKEN_FILE");
    if (getenv("DILOCO_HUB_TOKEN") && !tokens)
        return dl_fail(DILOCO_EINVAL,
                       "a node serves others and asks them for the token that it shows: give it by "
                       "DILOCO_HUB_TOKEN_FILE, not by DILOCO_HUB_TOKEN");
    const dl_hub_options options = {.dir = h->served,
                                    .listen = config->listen,
                                    .cert_file = config->cert[0] ? config->cert : NULL,
                                    .key_file = config->cert_key[0] ? config->cert_key : NULL,
                                    .token_file = tokens,
                                    .insecure = config->insecure,
                                    .node = h->generation.replica};
    const diloco_status status = dl_hub_start(&h->hub, &options);
    if (status == DILOCO_EREFUSED)
        return dl_fail(
            status,
            "swarm.listen = \"%s\" can be reached from other machines: set swarm.cert and "
            "swarm.key (diloco serve --make-cert makes them), or swarm.insecure",
            config->listen);
    DL_TRY(status);
    const dl_reached reached = {.listen = config->listen,
                                .listen_option = "swarm.listen",
                                .address = config->address,
                                .address_option = "swarm.address",
                                .url = dl_hub_url(h->hub),
                                .tls = config->cert[0] != '\0'};
    return dl_reached_by(h->address, &reached);
}

void dl_home_close(dl_home *h)
{
    dl_hub_stop(h->hub, dl_time_after(dl_clock_now(), DL_SECOND), NULL);
    dl_store_close(h->store);
    dl_local_close(h->local);
    *h = (dl_home){.local = NULL};
}

void dl_home_report(void *home, const char *key)
{
    dl_home *h = home;
    char path[sizeof "run/" + DL_KEY_MAX];
    snprintf(path, sizeof path, "run/%s", key);
    if (h->hub) dl_hub_report(h->hub, path);
}

/* ---- objects ------------------------------------------------------------------------------ */

diloco_status dl_home_put(dl_home *h, dl_object object, uint64_t round,
                          const dl_contribution *facts, const dl_span *spans, size_t n_spans)
{
    unsigned char header[DL_CONTRIBUTION_HEADER];
    dl_span all[1 + SPANS_MAX];
    dl_key key;
    DL_ASSERT(n_spans <= SPANS_MAX);
    dl_contribution_write_header(header, facts);
    all[0] = (dl_span){header, sizeof header};
    memcpy(all + 1, spans, n_spans * sizeof *spans);
    dl_key_contribution(key, round, &h->generation);
    if (object == DL_OBJECT_MODEL) key[0] = 'a';
    DL_TRY(dl_store_create(h->store, key, all, n_spans + 1, NULL, DL_NEVER));
    dl_home_report(h, key);
    return DILOCO_OK;
}

typedef struct old {
    dl_buf keys; /* with their zeros */
    uint64_t before;
} old;

static diloco_status found_old(void *context, const char *key, size_t len)
{
    old *o = context;
    uint64_t round;
    (void)len;
    if (!dl_key_entry_of(&round, key) || round >= o->before) return DILOCO_OK;
    return dl_buf_add(&o->keys, key, strlen(key) + 1);
}

static diloco_status remove_old(dl_home *h, const char *folder, uint64_t before)
{
    old o = {.before = before};
    dl_buf_init(&o.keys, 1 << 20);
    diloco_status status = dl_store_list(h->store, folder, NULL, found_old, &o, DL_NEVER);
    for (size_t at = 0; !status && at < o.keys.len;) {
        const char *key = (const char *)o.keys.data + at;
        status = dl_store_delete(h->store, key, DL_NEVER);
        at += strlen(key) + 1;
    }
    dl_buf_deinit(&o.keys);
    return status;
}

/* round - n, and at least 0. */
static uint64_t less(uint64_t round, uint64_t n)
{
    return round > n ? round - n : 0;
}

diloco_status dl_home_put_model(dl_home *h, const dl_state *state, const dl_runfile *run)
{
    const uint64_t round = state->control.entry;
    DL_TRY(dl_snapshot_write(NULL, h->store, state, run, &h->generation, NULL, DL_NEVER));
    DL_TRY(remove_old(h, "snap/", less(round, KEEP_MODELS - 1)));
    DL_TRY(remove_old(h, "c/", less(round, DL_NODE_KEEP)));
    return remove_old(h, "a/", less(round, DL_NODE_KEEP));
}
