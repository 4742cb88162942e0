/* own_names.c - include/diloco/inspect.h: which names of a closed roster a key has, and which of
 * them a process runs as.
 *
 * Only a generation that the key itself has signed shows that a name has begun. Only a signed
 * heartbeat with a higher number shows that it is alive: anyone who can write may create objects
 * and write old ones again. */
#include "exchange/generations.h"
#include "inspect/reader.h"
#include "log/beating.h"

#include <diloco/inspect.h>
#include <stdlib.h>

/* A name of the roster that belongs to the key. */
typedef struct own_name {
    const char *replica; /* of the run file */
    dl_beating of;       /* its newest generation, if it has begun */
    bool begun, beats;
    uint64_t seen; /* the number of its heartbeat at the first look; 0: none */
} own_name;

typedef struct own_names {
    own_name *all; /* [n] */
    size_t n;
} own_names;

/* Look for the newest generation that the key has signed. Names in gen/ that it has not signed
 * show nothing (P6.4). */
static diloco_status begin(own_name *name, const dl_reader *r, const dl_public *key)
{
    const diloco_status status =
        dl_run_newest_signed(&name->of.generation, r->store, name->replica, &r->file, key);
    name->begun = name->of.signed_once = !status;
    return status == DILOCO_ENOENT ? DILOCO_OK : status;
}

/* Collect the names that the roster gives to this key. One key may have several. */
static diloco_status find(own_names *out, const dl_reader *r, const dl_public *key)
{
    const dl_identity *identity = &r->file.identity;
    if (identity->policy != DL_CLOSED)
        return dl_fail(DILOCO_EREFUSED, "this run's roster is %s: only a closed one lists names",
                       dl_policy_names[identity->policy]);
    out->all = calloc(dl_size_max(identity->n_members, 1), sizeof *out->all);
    if (!out->all) return dl_fail(DILOCO_ENOMEM, "out of memory for the names of a roster");
    for (size_t i = 0; i < identity->n_members; i++) {
        if (!dl_public_equal(&identity->members[i].key, key)) continue;
        out->all[out->n].replica = identity->members[i].replica;
        DL_TRY(begin(&out->all[out->n++], r, key));
    }
    return DILOCO_OK;
}

/* Look at each name that has begun and has not changed its heartbeat yet. *left is how many may
 * still do so. The first look only notes the number. Returns only that the store cannot be reached.
 */
static diloco_status look_at_all(size_t *left, own_names *names, dl_beat_reader *r, bool first)
{
    *left = 0;
    for (size_t i = 0; i < names->n; i++) {
        own_name *name = &names->all[i];
        bool there;
        if (!name->begun || name->beats) continue;
        const diloco_status status = dl_beating_read_again(&there, &name->of, r);
        if (status == DILOCO_EUNREACHABLE) return status;
        const uint64_t now = status || !there ? 0 : r->beat;
        if (first) name->seen = now;
        name->beats = now > name->seen;
        *left += !name->beats;
    }
    return DILOCO_OK;
}

/* Watch for run.patience seconds, the time after which a replica counts as silent (P11). It ends
 * early once every name has shown itself alive. */
static diloco_status watch(own_names *names, const dl_reader *r, const dl_public *key)
{
    const dl_time patience = dl_time_from_seconds(r->file.config.patience_s);
    const dl_time until = dl_time_after(dl_clock_now(), patience);
    dl_beat_reader beats = {
        .store = r->store, .run = r->file.id, .key = key, .until = dl_reader_limit()};
    size_t left;
    diloco_status status = look_at_all(&left, names, &beats, true);
    while (!status && left > 0 && dl_clock_now() < until) {
        dl_clock_sleep(50 * DL_MILLISECOND);
        status = look_at_all(&left, names, &beats, false);
    }
    return status;
}

/* `key` is a file's path, or NULL for this machine's own key. The key is only compared here;
 * nothing is signed. */
static diloco_status walk(dl_reader *r, const char *key, bool watches, diloco_own_name_fn fn,
                          void *user)
{
    char path[DL_PATH_MAX + 1];
    own_names names = {.n = 0};
    dl_signer *signer;
    if (!key || !*key) DL_TRY(dl_signer_path(path, sizeof path));
    DL_TRY(dl_signer_open(&signer, key && *key ? key : path));
    diloco_status status = find(&names, r, dl_signer_public(signer));
    if (!status && watches) status = watch(&names, r, dl_signer_public(signer));
    for (size_t i = 0; i < names.n && !status; i++)
        status = fn(user, names.all[i].replica, names.all[i].begun, names.all[i].beats);
    free(names.all);
    dl_signer_close(signer);
    return status;
}

diloco_status diloco_own_names(const char *url, const char *key, bool watch_them,
                               diloco_own_name_fn fn, void *user)
{
    dl_reader r;
    DL_TRY(dl_reader_open(&r, url));
    const diloco_status status = walk(&r, key, watch_them, fn, user);
    dl_reader_close(&r);
    return status;
}
