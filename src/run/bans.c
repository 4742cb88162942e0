/* bans.c - see bans.h. A few rows: every question is a walk over the table. */
#include "run/bans.h"

#include "run/judge.h"

#include <stdlib.h>
#include <string.h>

diloco_status dl_bans_create(dl_bans **out, const dl_config *config, size_t max_members)
{
    size_t bytes;
    *out = NULL;
    if (!config->ban_after) return DILOCO_OK;
    if (!dl_size_mul(&bytes, max_members, sizeof(dl_strikes))) bytes = SIZE_MAX - sizeof **out;
    dl_bans *bans = calloc(1, sizeof *bans + bytes);
    if (!bans) return dl_fail(DILOCO_ENOMEM, "no memory for the strikes of %zu", max_members);
    bans->after = (uint64_t)config->ban_after;
    bans->entries = (uint64_t)config->ban_entries;
    bans->cap = max_members;
    *out = bans;
    return DILOCO_OK;
}

void dl_bans_destroy(dl_bans *bans)
{
    free(bans);
}

void dl_bans_copy(dl_bans *to, const dl_bans *from)
{
    DL_ASSERT(from->n <= to->cap);
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
    if (++row->n >= bans->after) row->until = e + 1 + bans->entries;
}

static void end_bans(dl_bans *bans, uint64_t open)
{
    size_t left = 0;
    for (size_t i = 0; i < bans->n; i++)
        if (!bans->at[i].until || bans->at[i].until > open) bans->at[left++] = bans->at[i];
    bans->n = left;
}

void dl_bans_fold(dl_bans *bans, uint64_t e, const dl_entry *entry)
{
    for (size_t i = 0; entry && i < entry->n_rejected; i++)
        if (dl_judge_strikes(entry->rejected[i].reason))
            strike(bans, e, entry->rejected[i].life.replica);
    end_bans(bans, e + 1);
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
    return dl_digest_end(&stream);
}

const char *dl_bans_void_reason(const dl_bans *bans, dl_bans *scratch, const dl_entry *entry)
{
    if (!bans) return entry->bans.there ? "it tells of bans, and this run bans nobody" : NULL;
    for (size_t i = 0; i < entry->n_members; i++)
        if (entry->commit && dl_bans_has(bans, entry->members[i].life.replica))
            return "it counts a replica that is banned";
    for (size_t i = 0; i < entry->n_rejected; i++)
        if (dl_bans_has(bans, entry->rejected[i].life.replica))
            return "it rejects a replica that is banned";
    dl_bans_copy(scratch, bans);
    dl_bans_fold(scratch, entry->entry, entry);
    if (entry->bans.there && dl_hash_equal(entry->bans.digest, dl_bans_digest(scratch)))
        return NULL;
    return "its bans are not what follows from it";
}

void dl_bans_write(dl_json *j, const dl_bans *bans)
{
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

static diloco_status read_row(dl_strikes *out, dl_json_value object)
{
    *out = (dl_strikes){.n = 0};
    if (object.type != DL_JSON_OBJECT) return dl_fail(DILOCO_EPROTO, "a ban is not an object");
    DL_TRY(dl_json_read_str(out->replica, sizeof out->replica, object, "replica"));
    if (!dl_replica_name_ok(out->replica))
        return dl_fail(DILOCO_EPROTO, "a ban of what is no name of a replica");
    DL_TRY(dl_json_read_u64(&out->n, object, "strikes", UINT64_MAX));
    return dl_json_read_u64(&out->until, object, "until", UINT64_MAX);
}

diloco_status dl_bans_read(dl_bans *bans, dl_json_value root)
{
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
