/* collect.c - what may go is older than `floor`, the smaller of the second-newest verified
 * snapshot and every live heartbeat's entry. run.json, gen/ and log/ never go: a deleted log
 * name could be decided twice by a sleeper. */
#include "run/collect.h"

#include "base/json.h"
#include "base/log.h"

#include <string.h>

enum { HEARTBEAT_MAX = 4096 };

typedef struct sweep {
    dl_collector     *collector;
    dl_store         *store;
    const dl_runfile *run;
    dl_time           until;
    uint64_t          newest, second; /* snapshots' entries; second 0: none */
    uint64_t          floor;
    dl_key           *keys; /* a batch to delete */
    size_t            n_keys;
} sweep;

static diloco_status found_snapshot(void *context, const char *key, size_t len)
{
    sweep   *s = context;
    uint64_t entry;
    dl_life  life;
    (void)len;
    if (dl_key_parse_snapshot(&entry, &life, key) && entry < s->newest && entry > s->second)
        s->second = entry;
    return DILOCO_OK;
}

typedef struct lives {
    dl_life life[DL_COLLECTOR_LIVES];
    size_t  n;
} lives;

static diloco_status found_life(void *context, const char *key, size_t len)
{
    lives *l = context;
    (void)len;
    if (l->n < DL_COLLECTOR_LIVES && dl_key_parse_life(&l->life[l->n], key, "hb/")) l->n++;
    return DILOCO_OK;
}

/* Has this heartbeat changed since the last collection? Remembers it. */
static bool is_live(dl_collector *c, const dl_life *life, dl_hash content)
{
    for (size_t i = 0; i < c->n_seen; i++) {
        if (!dl_life_equal(&c->seen[i].life, life)) continue;
        const bool changed = !dl_hash_equal(c->seen[i].content, content);
        c->seen[i].content = content;
        return changed;
    }
    if (c->n_seen < DL_COLLECTOR_LIVES) {
        c->seen[c->n_seen].life      = *life;
        c->seen[c->n_seen++].content = content;
    }
    return true;
}

static diloco_status lower_floor_to_heartbeats(sweep *s, lives *l)
{
    unsigned char bytes[HEARTBEAT_MAX];
    dl_buf        text = {.data = bytes, .cap = sizeof bytes, .max = sizeof bytes};
    l->n               = 0;
    DL_TRY(dl_store_list(s->store, "hb/", NULL, found_life, l, s->until));
    for (size_t i = 0; i < l->n; i++) {
        dl_key key;
        dl_key_heartbeat(key, &l->life[i]);
        dl_buf_clear(&text);
        const diloco_status status = dl_store_get(s->store, &text, key, s->until);
        if (status == DILOCO_ENOENT) continue;
        DL_TRY(status);
        dl_json_value json;
        uint64_t      entry = 0; /* not readable: protect everything */
        if (!is_live(s->collector, &l->life[i], dl_hash_bytes(text.data, text.len))) continue;
        if (dl_json_parse(&json, text.data, text.len) == DILOCO_OK)
            (void)!dl_json_read_u64(&entry, json, "entry", UINT64_MAX);
        if (entry < s->floor) s->floor = entry;
    }
    return DILOCO_OK;
}

enum { BATCH = 64 };

/* The objects of an old entry; the walk stops at the first that stays, since keys ascend. */
static diloco_status found_old(void *context, const char *key, size_t len)
{
    sweep   *s = context;
    uint64_t entry;
    (void)len;
    if (!dl_key_entry_of(&entry, key)) return DILOCO_OK;
    if (entry >= s->floor || s->n_keys == BATCH) return DILOCO_ECLOSED;
    memcpy(s->keys[s->n_keys++], key, strlen(key) + 1);
    return DILOCO_OK;
}

static diloco_status remove_below(sweep *s, const char *prefix)
{
    dl_key keys[BATCH];
    s->keys = keys;
    do {
        s->n_keys                  = 0;
        const diloco_status status = dl_store_list(s->store, prefix, NULL, found_old, s, s->until);
        if (status && status != DILOCO_ECLOSED) return status;
        for (size_t i = 0; i < s->n_keys; i++)
            DL_TRY(dl_store_delete(s->store, keys[i], s->until));
    } while (s->n_keys == BATCH);
    return DILOCO_OK;
}

static diloco_status collect(sweep *s, lives *l)
{
    DL_TRY(dl_store_list(s->store, "snap/", NULL, found_snapshot, s, s->until));
    if (s->second == 0) return DILOCO_OK;
    s->floor = s->second;
    DL_TRY(lower_floor_to_heartbeats(s, l));
    /* Snapshots first: one that stands has the contributions behind it. */
    DL_TRY(remove_below(s, "snap/"));
    return remove_below(s, "c/");
}

diloco_status dl_snapshot_and_collect(dl_collector *collector, dl_store *store,
                                      const dl_state *state, const dl_runfile *run,
                                      const dl_life *life, dl_time until)
{
    const uint64_t entry = state->control.entry;
    DL_TRY(dl_snapshot_write(store, state, run->id, life, until));
    DL_TRY(dl_snapshot_verify(store, entry, life, &run->manifest, run->id, until));
    if (strcmp(run->config.retain, "all") == 0) return DILOCO_OK;

    lives l;
    sweep s = {.collector = collector, .store = store, .run = run, .until = until, .newest = entry};
    if (collect(&s, &l))
        dl_log(DILOCO_LOG_WARN, "old objects stay in the store for now: %s", diloco_error_text());
    return DILOCO_OK;
}
