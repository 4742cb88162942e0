/* keyring.c - see keyring.h. Each object is sealed, signed JSON. Its contents are checked against
 * its name, so that no object can replace another. An invalid object yields a reason, not an error;
 * only the store's failures are errors. */
#include "log/keyring.h"

#include "base/clock.h"
#include "base/log.h"
#include "log/fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 16384, CACHED_MAX = 4096, FILE_MAX = 1 << 16, WHY_MAX = 512 };

/* One thread uses it at a time. `cached` has the keys that were found valid; it starts again when
 * it is full. `found` and `why` belong to the newest look-up. */
struct dl_keyring {
    dl_store *store;
    const dl_runfile *run;
    const dl_signer *signer;
    bool admits;
    dl_named_key *cached; /* [n], with space for CACHED_MAX */
    size_t n;
    dl_buf text;
    size_t refused; /* how many names in gen/ without a key here were looked at */
    dl_public found;
    char why[WHY_MAX];
};

static dl_generation first_generation(const char *replica)
{
    dl_generation generation = {.number = 0};
    snprintf(generation.replica, sizeof generation.replica, "%s", replica);
    return generation;
}

/* Returns whether the object is invalid, as opposed to a store that does not answer. */
static bool is_bad(diloco_status status)
{
    return status == DILOCO_EPROTO || status == DILOCO_ENOENT || status == DILOCO_EDIFFERS;
}

/* ---- objects ---------------------------------------------------------------------------- */

/* Reads a sealed, signed object about a replica of this run, and the key that signed it. Returns
 * DILOCO_EPROTO if it is no such object, another run's or another replica's, or if the signature is
 * wrong. `text` holds the object, to which *root refers, until its next use. */
static diloco_status read_object_of(dl_json_value *root, dl_public *signer, dl_buf *text,
                                    dl_store *store, const char *key, const char *format,
                                    const char *kind, const dl_runfile *run,
                                    const dl_generation *generation, dl_time until)
{
    char theirs[DL_HASH_HEX + 1], name[DL_REPLICA_MAX + 1];
    const dl_statement what = {.kind = kind, .run = run->id, .generation = generation};
    dl_buf_clear(text);
    DL_TRY(dl_store_get(store, text, key, until));
    DL_TRY(dl_sealed_open(root, text->data, text->len, format));
    DL_TRY(dl_json_read_run(theirs, *root));
    DL_TRY(dl_json_read_str(name, sizeof name, *root, "replica"));
    if (strcmp(theirs, run->id) != 0 || strcmp(name, generation->replica) != 0)
        return dl_fail(DILOCO_EPROTO, "it is another run's or replica's");
    return dl_sealed_signer(signer, text->data, text->len, &what);
}

static diloco_status read_object(dl_json_value *root, dl_public *signer, dl_buf *text,
                                 dl_store *store, const char *key, const char *format,
                                 const char *kind, const dl_runfile *run, const char *replica,
                                 dl_time until)
{
    const dl_generation generation = first_generation(replica);
    return read_object_of(root, signer, text, store, key, format, kind, run, &generation, until);
}

/* A store that does not answer is an error. An object that is invalid or missing gives false. */
diloco_status dl_members_has_generation(bool *out, dl_store *store, const dl_runfile *run,
                                        const dl_generation *generation, const dl_public *key,
                                        dl_time until)
{
    dl_key name;
    dl_json_value root;
    dl_public by;
    dl_buf text;
    dl_key_gen(name, generation);
    dl_buf_init(&text, TEXT_MAX);
    const diloco_status status = read_object_of(&root, &by, &text, store, name, "diloco-life",
                                                "life", run, generation, until);
    dl_buf_deinit(&text);
    *out = !status && dl_public_equal(&by, key);
    return status && !is_bad(status) ? status : DILOCO_OK;
}

/* Reads gen/<replica>.0000: the key that has the name, and the invitation that it used ("": none).
 * The first generation binds the name to a key for the whole run: gen/ is never deleted. The id is
 * checked for its form, since it becomes part of an object's name. */
static diloco_status read_first_generation(dl_public *key, char id[DL_HASH_HEX + 1], dl_buf *text,
                                           dl_store *store, const dl_runfile *run,
                                           const char *replica, dl_time until)
{
    dl_key name;
    dl_json_value root;
    const dl_generation generation = first_generation(replica);
    dl_key_gen(name, &generation);
    DL_TRY(read_object(&root, key, text, store, name, "diloco-life", "life", run, replica, until));
    id[0] = '\0';
    if (dl_json_get(root, "invitation").type == DL_JSON_MISSING) return DILOCO_OK;
    DL_TRY(dl_json_read_str(id, DL_HASH_HEX + 1, root, "invitation"));
    return dl_run_id_ok(id) ? DILOCO_OK : dl_fail(DILOCO_EPROTO, "\"invitation\" is no id");
}

/* An invitation names the run and its owner, so one for another run cannot be used here. */
static bool fits_run(const dl_invitation *i, const dl_runfile *run)
{
    return !strcmp(i->run, run->id) && dl_public_equal(&i->owner, &run->identity.owner);
}

/* Reads invite/<id> and checks that it is this replica's, signed by this key. */
static diloco_status read_invite(dl_invitation *out, dl_buf *text, dl_store *store,
                                 const dl_runfile *run, const char *id, const char *replica,
                                 const dl_public *key, dl_time until)
{
    dl_key name;
    dl_json_value root;
    dl_public signer;
    char invitation[DL_INVITATION_TEXT];
    dl_key_invite(name, id);
    DL_TRY(read_object(&root, &signer, text, store, name, "diloco-invite", "invite", run, replica,
                       until));
    DL_TRY(dl_json_read_str(invitation, sizeof invitation, root, "invitation"));
    DL_TRY(dl_invitation_read(out, invitation, strlen(invitation)));
    if (!dl_public_equal(&signer, key) || !fits_run(out, run) || strcmp(out->id, id) != 0)
        return dl_fail(DILOCO_EPROTO, "another replica used its invitation");
    return DILOCO_OK;
}

/* The owner and the listed members need no admission. */
static bool is_trusted(const dl_identity *identity, const dl_public *key)
{
    if (dl_public_equal(key, &identity->owner)) return true;
    for (size_t i = 0; i < identity->n_committers; i++)
        if (dl_public_equal(key, &identity->committers[i])) return true;
    return false;
}

/* ---- admission -------------------------------------------------------------------------- */

/* Checks that admit/<replica> is of this run, names the key that was found, and is signed by the
 * owner or a committer. */
static diloco_status read_admission(const dl_keyring *r, dl_buf *text, const char *replica,
                                    dl_time until)
{
    dl_key name;
    dl_json_value root;
    dl_public by;
    char key[DL_PUBLIC_TEXT], reported[DL_PUBLIC_TEXT];
    dl_key_admit(name, replica);
    DL_TRY(read_object(&root, &by, text, r->store, name, "diloco-admission", "admission", r->run,
                       replica, until));
    DL_TRY(dl_json_read_str(reported, sizeof reported, root, "key"));
    dl_public_text(key, &r->found);
    if (!is_trusted(&r->run->identity, &by) || strcmp(key, reported) != 0)
        return dl_fail(DILOCO_EPROTO, "its admission is not signed by a key that may admit");
    return DILOCO_OK;
}

/* Creates admit/<replica>, which makes the admission durable: after the invitation has expired,
 * other committers find it there. An invalid object under that name does not keep the replica
 * out. */
static diloco_status admit(dl_keyring *r, const char *replica, dl_time until)
{
    dl_key name;
    dl_json j;
    size_t start;
    char key[DL_PUBLIC_TEXT];
    const dl_generation generation = first_generation(replica);
    const dl_statement what = {.kind = "admission", .run = r->run->id, .generation = &generation};
    dl_public_text(key, &r->found);
    dl_buf_clear(&r->text);
    dl_sealed_begin(&j, &start, &r->text, "diloco-admission");
    dl_json_str(&j, "run", r->run->id);
    dl_json_str(&j, "replica", replica);
    dl_json_str(&j, "key", key);
    dl_json_f64(&j, "time", dl_clock_wall());
    DL_TRY(dl_sealed_end(&j, start));
    DL_TRY(dl_sealed_sign(&r->text, start, r->signer, &what));
    dl_key_admit(name, replica);
    const dl_span span = {r->text.data, r->text.len};
    const diloco_status status = dl_store_create(r->store, name, &span, 1, NULL, until);
    if (!status) dl_log(DILOCO_LOG_INFO, "%s is admitted: its invitation is used", replica);
    if (status != DILOCO_EEXIST) return status;
    /* Another committer admitted it first, or the object is not a valid admission. */
    const diloco_status there = read_admission(r, &r->text, replica, until);
    if (!is_bad(there)) return there;
    dl_log(DILOCO_LOG_WARN,
           "admit/%s is not a valid admission (%s): this committer admits the replica, and others "
           "decide for themselves",
           replica, diloco_error_text());
    return DILOCO_OK;
}

/* An invalid admission keeps no replica out, since anyone with write access can create one. */
static diloco_status must_be_admitted(dl_keyring *r, const dl_invitation *invitation,
                                      const char *replica, dl_time until)
{
    const diloco_status status = read_admission(r, &r->text, replica, until);
    if (!is_bad(status)) return status;
    if (dl_clock_wall() >= (double)invitation->expires)
        return dl_fail(DILOCO_EPROTO, "its invitation had expired when it was first seen");
    return admit(r, replica, until);
}

/* ---- the keyring ------------------------------------------------------------------------ */

diloco_status dl_keyring_create(dl_keyring **out, dl_store *store, const dl_runfile *run,
                                const dl_signer *signer)
{
    dl_keyring *r = *out = calloc(1, sizeof *r);
    if (r) r->cached = calloc(CACHED_MAX, sizeof *r->cached);
    if (!r || !r->cached) {
        dl_keyring_destroy(r);
        *out = NULL;
        return dl_fail(DILOCO_ENOMEM, "out of memory for the members' keys");
    }
    r->store = store;
    r->run = run;
    r->signer = signer;
    r->admits = dl_members_admits(run, signer);
    dl_buf_init(&r->text, TEXT_MAX);
    return DILOCO_OK;
}

void dl_keyring_destroy(dl_keyring *r)
{
    if (!r) return;
    dl_buf_deinit(&r->text);
    free(r->cached);
    free(r);
}

/* Finds a replica's key in r->found, by gen/, then invite/, then admit/. Returns DILOCO_EPROTO with
 * the reason if it may not take part. Only a replica that admits looks at the expiry; others follow
 * its decisions in the log. */
static diloco_status look_up(dl_keyring *r, const char *replica, dl_time until)
{
    char id[DL_HASH_HEX + 1];
    dl_invitation invitation;
    DL_TRY(read_first_generation(&r->found, id, &r->text, r->store, r->run, replica, until));
    if (r->run->identity.policy == DL_OPEN || is_trusted(&r->run->identity, &r->found))
        return DILOCO_OK;
    if (!id[0]) return dl_fail(DILOCO_EPROTO, "it came without an invitation");
    DL_TRY(read_invite(&invitation, &r->text, r->store, r->run, id, replica, &r->found, until));
    return r->admits ? must_be_admitted(r, &invitation, replica, until) : DILOCO_OK;
}

/* A replica that is refused is not cached, since it may be admitted later. *out is valid until the
 * next call, because a full cache starts again. */
diloco_status dl_keyring_find(const dl_public **out, const char **why, dl_keyring *r,
                              const char *replica, dl_time until)
{
    *why = "it is not a member that run.json lists";
    *out = NULL;
    if (r->run->identity.policy == DL_CLOSED) {
        *out = dl_identity_member(&r->run->identity, replica);
        return DILOCO_OK;
    }
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->cached[i].replica, replica)) {
            *out = &r->cached[i].key;
            return DILOCO_OK;
        }
    const diloco_status status = look_up(r, replica, until);
    if (status) {
        snprintf(r->why, sizeof r->why, "%s", diloco_error_text());
        *why = r->why;
        return is_bad(status) ? DILOCO_OK : status;
    }
    if (r->n == CACHED_MAX) r->n = 0; /* more than any entry counts: begin with none */
    dl_named_key *known = &r->cached[r->n++];
    *known = (dl_named_key){.key = r->found};
    snprintf(known->replica, sizeof known->replica, "%s", replica);
    *out = &known->key;
    return DILOCO_OK;
}

/* ---- new replicas ------------------------------------------------------------------------ */

enum { NEW_MAX = 64 }; /* names looked at in one call */

typedef struct newcomers {
    const dl_keyring *ring;
    size_t skip, n;
    char names[NEW_MAX][DL_REPLICA_MAX + 1];
} newcomers;

static bool is_cached(const dl_keyring *r, const char *replica)
{
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->cached[i].replica, replica)) return true;
    return false;
}

/* Collects up to NEW_MAX names that have no key here, after the `skip` first ones. */
static diloco_status found_first_generation(void *context, const char *key, size_t len)
{
    newcomers *c = context;
    dl_generation generation;
    (void)len;
    if (!dl_key_parse_generation(&generation, key, "gen/") || generation.number != 0)
        return DILOCO_OK;
    if (is_cached(c->ring, generation.replica) || c->n == NEW_MAX) return DILOCO_OK;
    if (c->skip > 0)
        c->skip--;
    else
        strcpy(c->names[c->n++], generation.replica);
    return DILOCO_OK;
}

bool dl_members_admits(const dl_runfile *run, const dl_signer *signer)
{
    return signer && run->identity.policy == DL_INVITED &&
           is_trusted(&run->identity, dl_signer_public(signer));
}

/* Anyone may create names in gen/. So a call looks at NEW_MAX names, and the next call skips those
 * that were refused. Every name has its turn, at a bounded cost for each call. */
diloco_status dl_keyring_meet(dl_keyring *r, dl_time until)
{
    newcomers c = {.ring = r, .skip = r->refused};
    DL_TRY(dl_store_list(r->store, "gen/", NULL, found_first_generation, &c, until));
    if (c.n < NEW_MAX) r->refused = 0; /* the next call begins with the first */
    for (size_t i = 0; i < c.n; i++) {
        const dl_public *key;
        const char *why;
        DL_TRY(dl_keyring_find(&key, &why, r, c.names[i], until));
        r->refused += !key && c.n == NEW_MAX;
    }
    return DILOCO_OK;
}

/* ---- joining ---------------------------------------------------------------------------- */

/* Returns DILOCO_EREFUSED and the reason if the invitation cannot be used any more. The expiry is
 * judged by this machine's clock here, and by a committer's clock at admission. */
static diloco_status is_usable(const dl_invitation *i, dl_buf *text, dl_store *store,
                               const dl_runfile *run, dl_time until)
{
    dl_key name;
    if (!fits_run(i, run)) return dl_fail(DILOCO_EREFUSED, "the invitation is to another run");
    if (dl_clock_wall() >= (double)i->expires)
        return dl_fail(
            DILOCO_EREFUSED,
            "the invitation expired %.0f s ago by this machine's clock: ask the run's owner "
            "for another",
            dl_clock_wall() - (double)i->expires);
    dl_key_invite(name, i->id);
    dl_buf_clear(text);
    const diloco_status status = dl_store_get(store, text, name, until);
    if (status == DILOCO_ENOENT) return DILOCO_OK;
    if (status && !is_bad(status)) return status;
    return dl_fail(DILOCO_EREFUSED, "the invitation was used already: each lets in one replica; "
                                    "ask the run's owner for another");
}

/* If the first generation of a name uses an invitation, the name can have no other. */
static const char lost[] = "this replica began with an invitation that is no longer valid, so its "
                           "name cannot be used. Move its folder out of run.state_dir, and join "
                           "again by another name with an unused invitation";

/* Picks the first usable line of the file. `id`: only that invitation, whose use was interrupted. A
 * line is an invitation; empty lines and those that begin with # are comments. Spaces and a
 * carriage return at the end are ignored. The reason of the last refused line is returned if no
 * line is usable. */
static diloco_status pick(char out[DL_INVITATION_TEXT], const char *lines, const char *id,
                          dl_buf *text, dl_store *store, const dl_runfile *run, dl_time until)
{
    diloco_status status = dl_fail(DILOCO_EREFUSED, "run.invitation names a file without one");
    for (size_t len; *lines && status; lines += len + (lines[len] == '\n')) {
        dl_invitation i;
        len = strcspn(lines, "\n");
        size_t used = len;
        while (used && (lines[used - 1] == '\r' || lines[used - 1] == ' '))
            used--;
        if (!used || *lines == '#') continue;
        status = dl_invitation_read(&i, lines, used);
        if (!status && id[0] && strcmp(i.id, id) != 0)
            status = dl_fail(DILOCO_EREFUSED, "%s", lost);
        if (!status) status = is_usable(&i, text, store, run, until);
        if (status && status != DILOCO_EREFUSED && status != DILOCO_EPROTO) return status;
        if (status == DILOCO_EREFUSED && id[0]) status = dl_fail(status, "%s", lost);
        if (!status) snprintf(out, DL_INVITATION_TEXT, "%.*s", (int)used, lines);
    }
    return status == DILOCO_EPROTO ? dl_fail(DILOCO_EREFUSED, "%s", diloco_error_text()) : status;
}

/* Reads the file of run.invitation, at most FILE_MAX bytes. Returns DILOCO_EREFUSED if there is no
 * file or no usable line. */
static diloco_status find_invitation(char out[DL_INVITATION_TEXT], const char *id, dl_buf *text,
                                     dl_store *store, const dl_runfile *run,
                                     const dl_config *config, dl_time until)
{
    if (!config->invitation[0])
        return dl_fail(DILOCO_EREFUSED,
                       "this run takes part by invitation only (run.roster = invited): ask its "
                       "owner for one (diloco invite), and give it with run.invitation = FILE");
    dl_buf lines;
    dl_buf_init(&lines, FILE_MAX);
    diloco_status status = dl_file_read(&lines, config->invitation);
    const char *all = status ? NULL : dl_buf_str(&lines);
    if (!status && !all) status = dl_fail(DILOCO_ENOMEM, "out of memory for an invitation");
    if (!status) status = pick(out, all, id, text, store, run, until);
    dl_buf_deinit(&lines);
    return status;
}

/* A replica that no committer met before its invitation expired is never admitted. */
static diloco_status is_in_time(const dl_invitation *used, dl_buf *text, dl_store *store,
                                const char *replica, dl_time until)
{
    dl_key name;
    if (dl_clock_wall() < (double)used->expires) return DILOCO_OK;
    dl_key_admit(name, replica);
    dl_buf_clear(text);
    const diloco_status status = dl_store_get(store, text, name, until);
    if (status != DILOCO_ENOENT) return is_bad(status) ? DILOCO_OK : status;
    return dl_fail(DILOCO_EREFUSED,
                   "%s began with an invitation that expired before a committer read it, so no "
                   "committer admits it. Move its folder out of run.state_dir, and join again by "
                   "another name with a new invitation",
                   replica);
}

/* Checks a replica of an open or invited run before it claims a generation. The name must be free
 * or belong to this key. A name that used an invitation before may only continue with that
 * invitation. Otherwise an unused invitation is picked into `invitation`. */
static diloco_status may_join(char invitation[DL_INVITATION_TEXT], dl_buf *text, dl_store *store,
                              const dl_runfile *run, const dl_config *config, const dl_public *ours,
                              const char *replica, dl_time until)
{
    dl_public key;
    dl_invitation used;
    char id[DL_HASH_HEX + 1] = "";
    const diloco_status status = read_first_generation(&key, id, text, store, run, replica, until);
    if (status && status != DILOCO_ENOENT && !is_bad(status)) return status;
    if (status != DILOCO_ENOENT && (status || !dl_public_equal(&key, ours)))
        return dl_fail(DILOCO_EREFUSED,
                       "the name %s belongs to another key in this run: take part under another "
                       "name, or with the key that it began with (run.key)",
                       replica);
    if (run->identity.policy == DL_OPEN || is_trusted(&run->identity, ours)) return DILOCO_OK;
    if (!status && id[0]) {
        const diloco_status there = read_invite(&used, text, store, run, id, replica, ours, until);
        if (is_bad(there) && there != DILOCO_ENOENT) return dl_fail(DILOCO_EREFUSED, "%s", lost);
        if (!there) return is_in_time(&used, text, store, replica, until);
        if (there != DILOCO_ENOENT) return there;
    }
    return find_invitation(invitation, id, text, store, run, config, until);
}

/* Refuses an invitation for another run before the replica creates anything, so a wrong run.store
 * shows at once. */
diloco_status dl_members_fits(const dl_runfile *run, const dl_config *config)
{
    dl_buf lines;
    if (!config->invitation[0]) return DILOCO_OK;
    dl_buf_init(&lines, FILE_MAX);
    diloco_status status = dl_file_read(&lines, config->invitation);
    const char *text = status ? NULL : dl_buf_str(&lines);
    bool fits = false;
    for (size_t len; text && *text; text += len + (text[len] == '\n')) {
        dl_invitation i;
        len = strcspn(text, "\n");
        fits |= !dl_invitation_read(&i, text, strcspn(text, " \r\n")) && fits_run(&i, run);
    }
    dl_buf_deinit(&lines);
    /* An admitted replica needs the file no more, and may have removed it. */
    if (status == DILOCO_ENOENT && run->identity.policy == DL_INVITED) return DILOCO_OK;
    if (status) return dl_fail_context(status, "run.invitation");
    return fits ? DILOCO_OK
                : dl_fail(DILOCO_EREFUSED, "run.invitation is for another run, or by another "
                                           "owner, than the run in this store");
}

/* With a closed roster the list of run.json decides alone, and nothing is read. */
diloco_status dl_members_may_join(char invitation[DL_INVITATION_TEXT], dl_store *store,
                                  const dl_runfile *run, const dl_config *config,
                                  const dl_signer *signer, const char *replica, dl_time until)
{
    invitation[0] = '\0';
    const dl_public *ours = dl_signer_public(signer);
    if (run->identity.policy == DL_CLOSED) {
        char key[DL_PUBLIC_TEXT];
        const dl_public *listed = dl_identity_member(&run->identity, replica);
        if (listed && dl_public_equal(listed, ours)) return DILOCO_OK;
        dl_public_text(key, ours);
        return dl_fail(DILOCO_EREFUSED,
                       "%s with the key %s is not among this run's members (run.roster = closed): "
                       "%s",
                       replica, key,
                       listed ? "the name belongs to another key; give that one with run.key"
                              : "the list is made when a run is created, so a new run is needed");
    }
    dl_buf text;
    dl_buf_init(&text, TEXT_MAX);
    const diloco_status status =
        may_join(invitation, &text, store, run, config, ours, replica, until);
    dl_buf_deinit(&text);
    return status;
}

/* Creates invite/<id>, which uses the invitation up. The store creates the name once, so of two
 * replicas with one invitation only the first is admitted. */
diloco_status dl_members_use_invitation(dl_store *store, const dl_runfile *run,
                                        const dl_signer *signer, const char *replica,
                                        const char *invitation, dl_time until)
{
    dl_key name;
    dl_buf text;
    dl_json j;
    size_t start;
    dl_invitation i;
    const dl_generation generation = first_generation(replica);
    const dl_statement what = {.kind = "invite", .run = run->id, .generation = &generation};
    DL_TRY(dl_invitation_read(&i, invitation, strlen(invitation)));
    dl_buf_init(&text, TEXT_MAX);
    dl_sealed_begin(&j, &start, &text, "diloco-invite");
    dl_json_str(&j, "run", run->id);
    dl_json_str(&j, "replica", replica);
    dl_json_str(&j, "invitation", invitation);
    diloco_status status = dl_sealed_end(&j, start);
    if (!status) status = dl_sealed_sign(&text, start, signer, &what);
    dl_key_invite(name, i.id);
    const dl_span span = {text.data, text.len};
    if (!status) status = dl_store_create(store, name, &span, 1, NULL, until);
    dl_buf_deinit(&text);
    if (status != DILOCO_EEXIST) return status;
    return dl_fail(DILOCO_EREFUSED, "the invitation was used already, in this moment: each lets in "
                                    "one replica; ask the run's owner for another");
}
