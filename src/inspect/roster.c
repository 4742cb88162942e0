/* roster.c - include/diloco/inspect.h: the owner of a run, the keys of its names, and inviting.
 * Keys are public; an invitation is a secret. */
#include "base/clock.h"
#include "inspect/reader.h"
#include "log/keyring.h"

#include <diloco/inspect.h>
#include <stdio.h>
#include <string.h>

/* Bytes of all names that are walked. */
enum { LIST_MAX = 1 << 22 };

/* One walk; the names are collected before their keys are read. */
typedef struct walk {
    const char *roster;         /* of run.roster */
    char owner[DL_PUBLIC_TEXT]; /* "": a trusted run */
    diloco_roster_fn fn;
    void *user;
    dl_buf names; /* names that have begun, a zero byte after each */
} walk;

static diloco_status report(const walk *w, const char *replica, const dl_public *key)
{
    char text[DL_PUBLIC_TEXT];
    dl_public_text(text, key);
    return w->fn(w->user, w->roster, w->owner, replica, text);
}

/* Generation 0 stands for its name, so each name is kept once. */
static diloco_status found_generation(void *context, const char *key, size_t len)
{
    walk *w = context;
    dl_generation generation;
    (void)len;
    if (!dl_key_parse_generation(&generation, key, "gen/") || generation.number) return DILOCO_OK;
    return dl_buf_add(&w->names, generation.replica, strlen(generation.replica) + 1);
}

/* Report the key of each name that has begun. Keys are looked up once the listing is over, since
 * both use the store. A name without a valid key is left out. */
static diloco_status walk_generations(walk *w, dl_reader *r)
{
    dl_keyring *ring;
    DL_TRY(dl_store_list(r->store, "gen/", NULL, found_generation, w, dl_reader_limit()));
    DL_TRY(dl_keyring_create(&ring, r->store, &r->file, NULL));
    diloco_status status = DILOCO_OK;
    for (size_t at = 0; at < w->names.len && !status;) {
        const char *name = (const char *)w->names.data + at, *why;
        const dl_public *key;
        status = dl_keyring_find(&key, &why, ring, name, dl_reader_limit());
        if (!status && key) status = report(w, name, key);
        at += strlen(name) + 1;
    }
    dl_keyring_destroy(ring);
    return status;
}

/* Call fn once for the run, then for each name. A closed roster lists its members; open and
 * invited ones grow, so their names are in gen/. */
static diloco_status walk_roster(walk *w, dl_reader *r)
{
    const dl_identity *identity = &r->file.identity;
    w->roster = dl_policy_names[identity->policy];
    if (identity->policy != DL_TRUSTED) dl_public_text(w->owner, &identity->owner);
    DL_TRY(w->fn(w->user, w->roster, w->owner, NULL, NULL));
    if (identity->policy == DL_OPEN || identity->policy == DL_INVITED)
        return walk_generations(w, r);
    for (size_t i = 0; i < identity->n_members; i++)
        DL_TRY(report(w, identity->members[i].replica, &identity->members[i].key));
    return DILOCO_OK;
}

diloco_status diloco_roster_walk(const char *url, diloco_roster_fn fn, void *user)
{
    dl_reader r;
    walk w = {.fn = fn, .user = user};
    DL_TRY(dl_reader_open(&r, url));
    dl_buf_init(&w.names, LIST_MAX);
    const diloco_status status = walk_roster(&w, &r);
    dl_buf_deinit(&w.names);
    dl_reader_close(&r);
    return status;
}

/* Only the owner of the run may sign an invitation. It is valid for `seconds` of this machine's
 * clock. */
static diloco_status invite(char *out, const dl_reader *r, const dl_signer *signer,
                            uint64_t seconds)
{
    const dl_identity *identity = &r->file.identity;
    if (identity->policy != DL_INVITED)
        return dl_fail(
            DILOCO_EREFUSED,
            "this run's roster is %s: only a run with run.roster = \"invited\" has invitations",
            dl_policy_names[identity->policy]);
    if (!dl_public_equal(dl_signer_public(signer), &identity->owner))
        return dl_fail(DILOCO_EREFUSED, "only the run's owner invites, and this is another key: "
                                        "give the owner's with --key");
    return dl_invitation_make(out, r->file.id, (uint64_t)dl_clock_wall() + seconds, signer);
}

/* `out` is a secret: it admits its holder. Nothing is written to the store. */
diloco_status diloco_invite(char *out, size_t cap, const char *url, const char *key,
                            uint64_t seconds)
{
    dl_reader r;
    dl_signer *signer = NULL;
    char path[DL_PATH_MAX + 1];
    if (cap < DL_INVITATION_TEXT || seconds > UINT32_MAX)
        return dl_fail(DILOCO_EINVAL, "an invitation needs %d bytes, and at most 136 years",
                       DL_INVITATION_TEXT);
    if (!key || !*key) DL_TRY(dl_signer_path(path, sizeof path));
    DL_TRY(dl_reader_open(&r, url));
    diloco_status status = dl_signer_open(&signer, key && *key ? key : path);
    if (!status) status = invite(out, &r, signer, seconds);
    dl_signer_close(signer);
    dl_reader_close(&r);
    return status;
}
