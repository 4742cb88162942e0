/* identity.c - see identity.h. A file of members has "NAME KEY" a line, one of committers "KEY";
 * empty lines and those that begin with '#' are left out. */
#include "log/identity.h"

#include "log/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 20, LIST_MAX = 4096 }; /* bytes of a file; keys in a list */

void dl_identity_deinit(dl_identity *identity)
{
    free(identity->committers);
    free(identity->members);
    free(identity->by_name);
    *identity = (dl_identity){.policy = DL_TRUSTED};
}

/* A binary search. Returns the place of the name in by_name, also if it is missing. */
static size_t place_of(const dl_identity *identity, const char *replica)
{
    size_t low = 0, high = identity->n_members;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(identity->members[identity->by_name[middle]].replica, replica) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const dl_public *dl_identity_member(const dl_identity *identity, const char *replica)
{
    const size_t at = place_of(identity, replica);
    if (at == identity->n_members) return NULL;
    const dl_named_key *member = &identity->members[identity->by_name[at]];
    return strcmp(member->replica, replica) ? NULL : &member->key;
}

/* In a closed run the key has to be the named member's, so a committer cannot act under another
 * member's name. Without a list of committers every member of a closed run may commit. */
bool dl_identity_may_commit(const dl_identity *identity, const dl_public *key, const char *replica)
{
    const dl_public *named = dl_identity_member(identity, replica);
    if (identity->policy == DL_CLOSED && !(named && dl_public_equal(named, key))) return false;
    if (identity->policy == DL_CLOSED && !identity->n_committers) return true;
    for (size_t i = 0; i < identity->n_committers; i++)
        if (dl_public_equal(&identity->committers[i], key)) return true;
    return false;
}

/* ---- adding */

/* The list grows by one: lists are short, and made once. LIST_MAX bounds the memory that a hostile
 * run.json can take. */
static diloco_status add_committer(dl_identity *to, const dl_public *key)
{
    if (to->n_committers == LIST_MAX)
        return dl_fail(DILOCO_EINVAL, "more than %d committers", LIST_MAX);
    dl_public *more = realloc(to->committers, (to->n_committers + 1) * sizeof *more);
    if (!more) return dl_fail(DILOCO_ENOMEM, "out of memory for a committer");
    to->committers = more;
    more[to->n_committers++] = *key;
    return DILOCO_OK;
}

/* A name has one key. A key may have several names, for replicas on one machine. */
static diloco_status add_member(dl_identity *to, const char *name, const dl_public *key)
{
    if (to->n_members == LIST_MAX) return dl_fail(DILOCO_EINVAL, "more than %d members", LIST_MAX);
    if (dl_identity_member(to, name)) return dl_fail(DILOCO_EINVAL, "%s is listed twice", name);
    const size_t n = to->n_members, at = place_of(to, name);
    dl_named_key *members = realloc(to->members, (n + 1) * sizeof *members);
    if (members) to->members = members;
    uint32_t *by_name = realloc(to->by_name, (n + 1) * sizeof *by_name);
    if (by_name) to->by_name = by_name;
    if (!members || !by_name) return dl_fail(DILOCO_ENOMEM, "out of memory for a member");
    members[n] = (dl_named_key){.key = *key};
    snprintf(members[n].replica, sizeof members[n].replica, "%s", name);
    memmove(by_name + at + 1, by_name + at, (n - at) * sizeof *by_name);
    by_name[at] = (uint32_t)n;
    to->n_members++;
    return DILOCO_OK;
}

/* ---- from files */

static diloco_status read_key(dl_public *out, const char *line, size_t len)
{
    if (dl_public_parse(out, line, len)) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "a key is \"ed25519:<64 hex digits>\", as diloco id prints it");
}

static diloco_status add_key_line(void *to, const char *line, size_t len)
{
    dl_public key;
    DL_TRY(read_key(&key, line, len));
    return add_committer(to, &key);
}

/* A line is NAME, blanks, KEY. An error names what a line has to be; dl_file_each_line adds the
 * file and the line. */
static diloco_status add_member_line(void *to, const char *line, size_t len)
{
    char name[DL_REPLICA_MAX + 1] = "";
    dl_public key;
    const size_t n = strcspn(line, " \t\n");
    size_t skip = n;
    while (skip < len && (line[skip] == ' ' || line[skip] == '\t'))
        skip++;
    if (n < sizeof name) memcpy(name, line, n);
    if (!dl_replica_name_ok(name))
        return dl_fail(DILOCO_EINVAL, "a line is \"NAME KEY\", KEY as diloco id prints it");
    DL_TRY(read_key(&key, line + skip, len - skip));
    return add_member(to, name, &key);
}

/* Without a key that may close entries the run would never have an entry. */
static diloco_status check_committers(const dl_identity *identity, const dl_config *config)
{
    if (!identity->n_committers)
        return dl_fail(DILOCO_EINVAL, "%s lists no committer", config->committers);
    for (size_t i = 0; i < identity->n_members; i++)
        if (dl_identity_may_commit(identity, &identity->members[i].key,
                                   identity->members[i].replica))
            return DILOCO_OK;
    return identity->policy != DL_CLOSED
               ? DILOCO_OK
               : dl_fail(DILOCO_EINVAL,
                         "%s lists no key of a member in %s, so no member could close an entry",
                         config->committers, config->members);
}

/* A run without a list of committers has its owner as the only one, unless the roster is closed. */
static diloco_status make(dl_identity *out, const dl_config *config, const dl_signer *owner)
{
    out->policy = config->roster;
    if (out->policy == DL_TRUSTED) return DILOCO_OK;
    out->owner = *dl_signer_public(owner);
    if (out->policy == DL_CLOSED && !config->members[0])
        return dl_fail(DILOCO_EINVAL, "run.roster = \"closed\" needs run.members: a file with "
                                      "\"NAME KEY\" a line, KEY as diloco id prints it");
    if (out->policy == DL_CLOSED)
        DL_TRY(dl_file_each_line(config->members, FILE_MAX, add_member_line, out));
    if (out->policy == DL_CLOSED && !out->n_members)
        return dl_fail(DILOCO_EINVAL, "%s lists no member", config->members);
    if (!config->committers[0])
        return out->policy == DL_CLOSED ? DILOCO_OK : add_committer(out, &out->owner);
    DL_TRY(dl_file_each_line(config->committers, FILE_MAX, add_key_line, out));
    return check_committers(out, config);
}

diloco_status dl_identity_make(dl_identity *out, const dl_config *config, const dl_signer *owner)
{
    *out = (dl_identity){.policy = DL_TRUSTED};
    const diloco_status status = make(out, config, owner);
    if (status) dl_identity_deinit(out);
    return status;
}

/* ---- in run.json */

static void write_key(dl_json *j, const char *name, const dl_public *key)
{
    char text[DL_PUBLIC_TEXT];
    dl_public_text(text, key);
    dl_json_str(j, name, text);
}

/* Lists keep the order of their files. run.json is signed by the owner, so the lists are, too. */
void dl_identity_write(dl_json *j, const dl_identity *identity)
{
    char hex[DL_STRONG_HEX + 1];
    if (identity->policy == DL_TRUSTED) return;
    dl_json_object(j, "identity");
    dl_json_str(j, "roster", dl_policy_names[identity->policy]);
    write_key(j, "owner", &identity->owner);
    dl_hex(hex, identity->theta0.bytes, sizeof identity->theta0.bytes);
    dl_json_str(j, "theta0", hex);
    dl_json_array(j, "committers");
    for (size_t i = 0; i < identity->n_committers; i++)
        write_key(j, NULL, &identity->committers[i]);
    dl_json_end(j);
    dl_json_object(j, "members");
    for (size_t i = 0; i < identity->n_members; i++)
        write_key(j, identity->members[i].replica, &identity->members[i].key);
    dl_json_end(j);
    dl_json_end(j);
}

static diloco_status as_key(dl_public *out, dl_json_value value)
{
    char text[DL_PUBLIC_TEXT];
    DL_TRY(dl_json_as_str(text, sizeof text, value));
    if (dl_public_parse(out, text, strlen(text))) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "a key is not ed25519: and 64 hex digits");
}

/* The counterpart of dl_identity_write. Every key and name is checked, since the text may be
 * forged. */
static diloco_status read_lists(dl_identity *out, dl_json_value object)
{
    const dl_json_value committers = dl_json_get(object, "committers"),
                        members = dl_json_get(object, "members");
    dl_public key;
    char name[DL_REPLICA_MAX + 1];
    if (committers.type != DL_JSON_ARRAY || members.type != DL_JSON_OBJECT)
        return dl_fail(DILOCO_EPROTO, "\"committers\" or \"members\" is no list");
    for (dl_json_iter it = dl_json_each(committers); dl_json_next(&it);) {
        DL_TRY(as_key(&key, it.value));
        DL_TRY(add_committer(out, &key));
    }
    for (dl_json_iter it = dl_json_each(members); dl_json_next(&it);) {
        DL_TRY(dl_json_as_str(name, sizeof name, it.key));
        if (!dl_replica_name_ok(name)) return dl_fail(DILOCO_EPROTO, "a member has no name");
        DL_TRY(as_key(&key, it.value));
        DL_TRY(add_member(out, name, &key));
    }
    return DILOCO_OK;
}

/* An unknown roster word belongs to a later program, hence DILOCO_EDIFFERS and not damage. */
static diloco_status read(dl_identity *out, dl_json_value object)
{
    char policy[16], hex[DL_STRONG_HEX + 1];
    if (object.type != DL_JSON_OBJECT) return dl_fail(DILOCO_EPROTO, "it is not an object");
    DL_TRY(dl_json_read_str(policy, sizeof policy, object, "roster"));
    for (int p = DL_OPEN; p < DL_N_POLICIES; p++)
        if (!strcmp(policy, dl_policy_names[p])) out->policy = (dl_policy)p;
    if (out->policy == DL_TRUSTED)
        return dl_fail(DILOCO_EDIFFERS, "this program knows no roster \"%s\"", policy);
    DL_TRY(as_key(&out->owner, dl_json_get(object, "owner")));
    DL_TRY(dl_json_read_str(hex, sizeof hex, object, "theta0"));
    if (!dl_unhex(out->theta0.bytes, sizeof out->theta0.bytes, hex, strlen(hex)))
        return dl_fail(DILOCO_EPROTO, "\"theta0\" is not %d hex digits", DL_STRONG_HEX);
    return read_lists(out, object);
}

/* Errors of the lists (DILOCO_EINVAL) become DILOCO_EPROTO here: the text is at fault, and not the
 * caller. */
diloco_status dl_identity_read(dl_identity *out, dl_json_value root)
{
    const dl_json_value object = dl_json_get(root, "identity");
    *out = (dl_identity){.policy = DL_TRUSTED};
    if (object.type == DL_JSON_MISSING) return DILOCO_OK;
    diloco_status status = read(out, object);
    if (!status) return DILOCO_OK;
    dl_identity_deinit(out);
    return status == DILOCO_ENOMEM
               ? status
               : dl_fail_context(status == DILOCO_EINVAL ? DILOCO_EPROTO : status, "\"identity\"");
}
