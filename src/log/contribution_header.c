/* contribution_header.c - writes and reads the header field by field with one list of fields, so
 * that the two cannot differ. */
#include "log/contribution.h"

#include "log/fields.h"

#include <math.h>
#include <string.h>

static const char magic[8] = {'D', 'L', 'C', 'O', 'N', 'T', 'R', '1'};

enum {
    SIGNED_HEADER = DL_CONTRIBUTION_HEADER + DL_CONTRIBUTION_PROOF,
    NAME = DL_REPLICA_MAX + 1, /* bytes of a name, padded with zeros */
    AT_SEAL = DL_CONTRIBUTION_HEADER - 16
};

typedef struct cursor {
    unsigned char *at;
    bool write; /* else read */
} cursor;

/* Each walk_ function writes its field or reads it, and moves the cursor on. One list of calls is
 * the format. */
static void walk_bytes(cursor *c, void *field, size_t n)
{
    if (c->write)
        memcpy(c->at, field, n);
    else
        memcpy(field, c->at, n);
    c->at += n;
}

/* Numbers are little-endian on every machine. */
static void walk_number(cursor *c, uint64_t *value, int n)
{
    if (!c->write) *value = 0;
    for (int i = 0; i < n; i++) {
        if (c->write)
            c->at[i] = (unsigned char)(*value >> 8 * i);
        else
            *value |= (uint64_t)c->at[i] << 8 * i;
    }
    c->at += n;
}

static void walk_u32(cursor *c, uint32_t *field)
{
    uint64_t value = *field;
    walk_number(c, &value, 4);
    *field = (uint32_t)value;
}

static void walk_u64(cursor *c, uint64_t *field)
{
    walk_number(c, field, 8);
}

static void walk_f64(cursor *c, double *field)
{
    uint64_t bits;
    memcpy(&bits, field, sizeof bits);
    walk_number(c, &bits, 8);
    memcpy(field, &bits, sizeof bits);
}

/* docs/formats.md has the offsets of the fields. A new field goes to the end of this list, into
 * what was reserved: old readers refuse bytes there that are not zero. */
static void walk_fields(cursor *c, dl_contribution *f, uint32_t *version, uint32_t *header_len)
{
    char start[sizeof magic];
    memcpy(start, magic, sizeof magic);
    walk_bytes(c, start, sizeof start);
    walk_u32(c, version);
    walk_u32(c, header_len);
    walk_bytes(c, f->run, DL_HASH_HEX);
    walk_bytes(c, f->generation.replica, NAME);
    walk_u32(c, &f->generation.number);
    walk_u32(c, &f->fragment);
    walk_u64(c, &f->entry);
    walk_bytes(c, f->codec, NAME);
    walk_u64(c, &f->stats.position);
    walk_u64(c, &f->stats.step);
    walk_u64(c, &f->stats.steps);
    walk_u64(c, &f->stats.samples);
    walk_u64(c, &f->stats.tokens);
    walk_u64(c, &f->stats.shard);
    walk_u64(c, &f->stats.first_sample);
    walk_u64(c, &f->stats.end_sample);
    walk_f64(c, &f->stats.loss);
    walk_f64(c, &f->norm);
    walk_bytes(c, f->base.bytes, sizeof f->base.bytes);
    walk_bytes(c, f->manifest.bytes, sizeof f->manifest.bytes);
    walk_u64(c, &f->n_floats);
    walk_u64(c, &f->n_integers);
    walk_u64(c, &f->n_booleans);
    walk_u64(c, &f->payload_len);
    walk_bytes(c, f->body.bytes, sizeof f->body.bytes);
    walk_u64(c, &f->packing);
    walk_u64(c, &f->unpacked_len);
    walk_u64(c, &f->assigned.n);
    walk_u64(c, &f->assigned.len);
    for (size_t i = 0; i < DL_ASSIGNED_MAX; i++)
        walk_u64(c, &f->assigned.first[i]);
    walk_u64(c, &f->stats.holds);
    walk_bytes(c, f->strong.bytes, sizeof f->strong.bytes);
    walk_u64(c, &f->slices);
}

/* The rest of the header, up to the seal, is zero. */
void dl_contribution_write_header(unsigned char out[DL_CONTRIBUTION_HEADER],
                                  const dl_contribution *c)
{
    DL_ASSERT(dl_run_id_ok(c->run) && dl_generation_ok(&c->generation) && *c->codec);
    dl_contribution copy = *c;
    uint32_t version = DL_FORMAT_VERSION;
    uint32_t header_len = c->is_signed ? SIGNED_HEADER : DL_CONTRIBUTION_HEADER;
    /* only zeros follow the end of a name */
    memset(copy.generation.replica, 0, NAME);
    memset(copy.codec, 0, NAME);
    memcpy(copy.generation.replica, c->generation.replica, strlen(c->generation.replica));
    memcpy(copy.codec, c->codec, strnlen(c->codec, NAME - 1));

    memset(out, 0, DL_CONTRIBUTION_HEADER);
    walk_fields(&(cursor){out, true}, &copy, &version, &header_len);
    dl_hash seal = dl_hash_bytes(out, AT_SEAL);
    memcpy(out + AT_SEAL, seal.bytes, sizeof seal.bytes);
}

/* Returns whether the field is a name padded with zeros. */
static bool padded(const char field[NAME])
{
    size_t len = strnlen(field, NAME);
    for (size_t i = len; i < NAME; i++)
        if (field[i]) return false;
    return len > 0 && len < NAME;
}

/* Returns whether it is the name of a codec row, or "user:" and the name of the caller's codec
 * (base/own.h). */
static bool is_codec_name(const char *name)
{
    for (; *name; name++) {
        const char one[2] = {*name, 0};
        if (*name != ':' && *name != '.' && !dl_replica_name_ok(one)) return false;
    }
    return true;
}

/* Checks what a field can hold at all; contribution.c compares with the run. A field's last fault
 * is reported, and any fault refuses the header. */
static diloco_status check_fields(const dl_contribution *f)
{
    const char *bad = NULL;
    if (!dl_run_id_ok(f->run)) bad = "run";
    if (!padded(f->generation.replica) || !dl_replica_name_ok(f->generation.replica))
        bad = "replica";
    if (f->generation.number > DL_GENERATION_MAX) bad = "generation";
    if (!padded(f->codec) || !is_codec_name(f->codec)) bad = "codec";
    if (f->fragment >= DL_MAX_FRAGMENTS) bad = "fragment";
    if (isinf(f->stats.loss)) bad = "loss";
    if (!isfinite(f->norm) || f->norm < 0) bad = "norm";
    if (f->packing > DL_PACKING_ZSTD) bad = "packing";
    if (f->packing == DL_PACKING_NONE && f->unpacked_len) bad = "unpacked_len";
    if (f->stats.end_sample < f->stats.first_sample) bad = "end_sample";
    for (size_t i = f->is_signed ? sizeof f->strong.bytes : 0; i < sizeof f->strong.bytes; i++)
        if (f->strong.bytes[i]) bad = "hash";
    if (f->slices > DL_SLICES_MAX) bad = "slices";
    if (f->assigned.n > DL_ASSIGNED_MAX || (f->assigned.n == 0 && f->assigned.len)) bad = "dealt";
    for (size_t i = bad ? DL_ASSIGNED_MAX : f->assigned.n; i < DL_ASSIGNED_MAX; i++)
        if (f->assigned.first[i]) bad = "dealt";
    return bad ? dl_fail(DILOCO_EPROTO, "contribution header: %s has no possible value", bad)
               : DILOCO_OK;
}

/* The bytes are untrusted: magic and seal are checked before any field is read. *out is unchanged
 * after an error. */
diloco_status dl_contribution_read_header(dl_contribution *out, const unsigned char *bytes,
                                          size_t len)
{
    if (len < DL_CONTRIBUTION_HEADER)
        return dl_fail(DILOCO_EPROTO, "%zu bytes are no contribution's header", len);
    if (memcmp(bytes, magic, sizeof magic) != 0)
        return dl_fail(DILOCO_EPROTO, "it is no contribution: it does not begin with DLCONTR1");
    dl_hash seal = dl_hash_bytes(bytes, AT_SEAL);
    if (memcmp(seal.bytes, bytes + AT_SEAL, sizeof seal.bytes) != 0)
        return dl_fail(DILOCO_EPROTO, "contribution header: damaged");

    unsigned char copy[DL_CONTRIBUTION_HEADER];
    memcpy(copy, bytes, sizeof copy);
    cursor c = {copy, false};
    dl_contribution read = {.entry = 0};
    uint32_t version = 0, header_len = 0;
    walk_fields(&c, &read, &version, &header_len);
    if (version != DL_FORMAT_VERSION)
        return dl_fail(DILOCO_EDIFFERS,
                       "a contribution of format version %u; this program reads %d",
                       (unsigned)version, DL_FORMAT_VERSION);
    read.is_signed = header_len == SIGNED_HEADER;
    if (!read.is_signed && header_len != DL_CONTRIBUTION_HEADER)
        return dl_fail(DILOCO_EPROTO, "contribution header: %u bytes long", (unsigned)header_len);
    for (const unsigned char *rest = c.at; rest < copy + AT_SEAL; rest++)
        if (*rest)
            return dl_fail(DILOCO_EPROTO, "contribution header: reserved bytes are not zero");
    DL_TRY(check_fields(&read));
    *out = read;
    return DILOCO_OK;
}

/* A combined update and a node's model have the same form, but no samples. */
bool dl_contribution_is_empty(const dl_contribution *c)
{
    return c->stats.samples == 0 && strcmp(c->codec, DL_CODEC_COMBINED) != 0 &&
           strcmp(c->codec, DL_CODEC_MODEL) != 0;
}
