/* bans.c - see bans.h. The tables have a few rows, so every lookup is a walk over them. */
#include "protocol/bans.h"

#include "log/fields.h"

#include <stdlib.h>
#include <string.h>

diloco_status dl_bans_create(dl_bans **out, const dl_config *config, size_t max_members)
{
    size_t bytes;
    *out = NULL;
    if (!config->ban_after && !config->check_repeat) return DILOCO_OK;
    if (!dl_size_mul(&bytes, max_members, sizeof(dl_strikes))) bytes = SIZE_MAX - sizeof **out;
    dl_bans *bans = calloc(1, sizeof *bans + bytes);
    if (!bans) return dl_fail(DILOCO_ENOMEM, "out of memory for the strikes of %zu", max_members);
    bans->repeat = (size_t)config->check_repeat;
    bans->cap_counted = bans->repeat * max_members;
    bans->counted = calloc(dl_size_max(bans->cap_counted, 1), sizeof *bans->counted);
    if (!bans->counted) {
        free(bans);
        return dl_fail(DILOCO_ENOMEM, "out of memory for what %zu have contributed", max_members);
    }
    bans->after = (uint64_t)config->ban_after;
    bans->entries = (uint64_t)config->ban_entries;
    bans->cap = max_members;
    *out = bans;
    return DILOCO_OK;
}

void dl_bans_destroy(dl_bans *bans)
{
    if (bans) free(bans->counted);
    free(bans);
}

void dl_bans_begin(dl_bans *bans)
{
    bans->n = bans->n_counted = 0;
}

void dl_bans_copy(dl_bans *to, const dl_bans *from)
{
    DL_ASSERT(from->n <= to->cap && from->n_counted <= to->cap_counted);
    memcpy(to->counted, from->counted, from->n_counted * sizeof from->counted[0]);
    to->n_counted = from->n_counted;
    memcpy(to->at, from->at, from->n * sizeof from->at[0]);
    to->n = from->n;
}

static const dl_strikes *find(const dl_bans *bans, const char *name)
{
    for (size_t i = 0; bans && i < bans->n; i++)
        if (strcmp(bans->at[i].replica, name) == 0) return &bans->at[i];
    return NULL;
}

uint64_t dl_bans_until(const dl_bans *bans, const char *name)
{
    const dl_strikes *row = find(bans, name);
    return row ? row->until : 0;
}

uint64_t dl_bans_strikes(const dl_bans *bans, const char *name)
{
    const dl_strikes *row = find(bans, name);
    return row ? row->n : 0;
}

bool dl_bans_has(const dl_bans *bans, const char *name)
{
    return dl_bans_until(bans, name) > 0;
}

size_t dl_bans_n(const dl_bans *bans)
{
    size_t n = 0;
    for (size_t i = 0; bans && i < bans->n; i++)
        n += bans->at[i].until > 0;
    return n;
}

bool dl_bans_has_counted(const dl_bans *bans, const char *name, dl_hash body)
{
    for (size_t i = 0; bans && i < bans->n_counted; i++)
        if (dl_hash_equal(bans->counted[i].body, body) && !strcmp(bans->counted[i].replica, name))
            return true;
    return false;
}

static void forget(dl_bans *bans, size_t i)
{
    dl_counted *row = &bans->counted[i];
    memmove(row, row + 1, (--bans->n_counted - i) * sizeof *row);
}

/* Drops its oldest if it has as many as are kept, or the oldest of all if there is no more space.
 */
static void keep(dl_bans *bans, const dl_member *m)
{
    size_t n = 0, oldest = 0;
    for (size_t i = bans->n_counted; i-- > 0;)
        if (!strcmp(bans->counted[i].replica, m->generation.replica)) n++, oldest = i;
    if (n == bans->repeat) forget(bans, oldest);
    if (bans->n_counted == bans->cap_counted) forget(bans, 0);
    dl_counted *row = &bans->counted[bans->n_counted++];
    *row = (dl_counted){.body = m->body};
    memcpy(row->replica, m->generation.replica, strlen(m->generation.replica));
}

static void strike(dl_bans *bans, uint64_t e, const char *replica)
{
    size_t i = 0;
    while (i < bans->n && strcmp(bans->at[i].replica, replica) != 0)
        i++;
    if (i == bans->cap) return;
    dl_strikes *row = &bans->at[i];
    if (i == bans->n) {
        *row = (dl_strikes){.n = 0};
        memcpy(row->replica, replica, strlen(replica));
        bans->n++;
    }
    DL_ASSERT(bans->n <= bans->cap);
    if (++row->n >= bans->after) row->until = e + 1 + bans->entries;
}

static void end_bans(dl_bans *bans, uint64_t open)
{
    size_t left = 0;
    for (size_t i = 0; i < bans->n; i++)
        if (!bans->at[i].until || bans->at[i].until > open) bans->at[left++] = bans->at[i];
    bans->n = left;
}

bool dl_bans_is_strike(const char *reason)
{
    static const char *const words[] = {"norm",   "short",      "zero", "cosine",
                                        "repeat", "non-finite", "bound"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strcmp(words[i], reason)) return true;
    return false;
}

void dl_bans_apply(dl_bans *bans, uint64_t e, const dl_entry *entry)
{
    for (size_t i = 0; entry && entry->commit && bans->repeat && i < entry->n_members; i++)
        keep(bans, &entry->members[i]);
    for (size_t i = 0; bans->after && entry && i < entry->n_rejected; i++)
        if (dl_bans_is_strike(entry->rejected[i].reason))
            strike(bans, e, entry->rejected[i].generation.replica);
    end_bans(bans, e + 1);
    DL_ASSERT(bans->n <= bans->cap);
    DL_ASSERT(bans->n_counted <= bans->cap_counted);
}

dl_hash dl_bans_digest(const dl_bans *bans)
{
    dl_digest_stream stream;
    dl_digest_begin(&stream);
    for (size_t i = 0; i < bans->n; i++) {
        unsigned char numbers[16];
        const dl_strikes *row = &bans->at[i];
        for (int k = 0; k < 8; k++) {
            numbers[k] = (unsigned char)(row->n >> 8 * k);
            numbers[8 + k] = (unsigned char)(row->until >> 8 * k);
        }
        dl_digest_add(&stream, row->replica, strlen(row->replica) + 1);
        dl_digest_add(&stream, numbers, sizeof numbers);
    }
    for (size_t i = 0; i < bans->n_counted; i++) {
        const dl_counted *row = &bans->counted[i];
        dl_digest_add(&stream, row->replica, strlen(row->replica) + 1);
        dl_digest_add(&stream, row->body.bytes, sizeof row->body.bytes);
    }
    return dl_digest_end(&stream);
}

const char *dl_bans_void_reason(const dl_bans *bans, dl_bans *scratch, const dl_entry *entry)
{
    if (!bans) return entry->bans.there ? "it names bans, and this run has none" : NULL;
    for (size_t i = 0; i < entry->n_members; i++)
        if (entry->commit && dl_bans_has(bans, entry->members[i].generation.replica))
            return "it counts a replica that is banned";
    for (size_t i = 0; i < entry->n_rejected; i++)
        if (dl_bans_has(bans, entry->rejected[i].generation.replica))
            return "it rejects a replica that is banned";
    dl_bans_copy(scratch, bans);
    dl_bans_apply(scratch, entry->entry, entry);
    if (entry->bans.there && dl_hash_equal(entry->bans.digest, dl_bans_digest(scratch)))
        return NULL;
    return "its bans are not what follows from it";
}

static void write_counted(dl_json *j, const dl_bans *bans)
{
    dl_json_array(j, "counted");
    for (size_t i = 0; i < bans->n_counted; i++) {
        dl_json_object(j, NULL);
        dl_json_str(j, "replica", bans->counted[i].replica);
        dl_json_hash(j, "body", bans->counted[i].body);
        dl_json_end(j);
    }
    dl_json_end(j);
}

void dl_bans_write(dl_json *j, const dl_bans *bans)
{
    if (bans->repeat) write_counted(j, bans);
    dl_json_array(j, "bans");
    for (size_t i = 0; i < bans->n; i++) {
        dl_json_object(j, NULL);
        dl_json_str(j, "replica", bans->at[i].replica);
        dl_json_u64(j, "strikes", bans->at[i].n);
        dl_json_u64(j, "until", bans->at[i].until);
        dl_json_end(j);
    }
    dl_json_end(j);
}

static diloco_status read_name(char out[DL_REPLICA_MAX + 1], dl_json_value object)
{
    if (object.type != DL_JSON_OBJECT) return dl_fail(DILOCO_EPROTO, "a ban is not an object");
    DL_TRY(dl_json_read_str(out, DL_REPLICA_MAX + 1, object, "replica"));
    if (dl_replica_name_ok(out)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "a ban names no valid replica");
}

static diloco_status read_row(dl_strikes *out, dl_json_value object)
{
    *out = (dl_strikes){.n = 0};
    DL_TRY(read_name(out->replica, object));
    DL_TRY(dl_json_read_u64(&out->n, object, "strikes", UINT64_MAX));
    return dl_json_read_u64(&out->until, object, "until", UINT64_MAX);
}

static diloco_status read_counted(dl_bans *bans, dl_json_value root)
{
    const dl_json_value array = dl_json_get(root, "counted");
    if (array.type != DL_JSON_ARRAY) return dl_fail(DILOCO_EPROTO, "\"counted\" is not an array");
    bans->n_counted = 0;
    for (dl_json_iter it = dl_json_each(array); dl_json_next(&it); bans->n_counted++) {
        if (bans->n_counted == bans->cap_counted)
            return dl_fail(DILOCO_EPROTO, "more than %zu have counted", bans->cap_counted);
        dl_counted *row = &bans->counted[bans->n_counted];
        *row = (dl_counted){.body = {{0}}};
        DL_TRY(read_name(row->replica, it.value));
        DL_TRY(dl_json_read_hash(&row->body, it.value, "body"));
    }
    return DILOCO_OK;
}

diloco_status dl_bans_read(dl_bans *bans, dl_json_value root)
{
    if (bans->repeat) DL_TRY(read_counted(bans, root));
    const dl_json_value array = dl_json_get(root, "bans");
    if (array.type != DL_JSON_ARRAY) return dl_fail(DILOCO_EPROTO, "\"bans\" is not an array");
    bans->n = 0;
    for (dl_json_iter it = dl_json_each(array); dl_json_next(&it); bans->n++) {
        if (bans->n == bans->cap)
            return dl_fail(DILOCO_EPROTO, "strikes of more than %zu replicas", bans->cap);
        DL_TRY(read_row(&bans->at[bans->n], it.value));
    }
    return DILOCO_OK;
}
