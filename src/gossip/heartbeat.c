/* heartbeat.c - see heartbeat.h.
 *
 * A heartbeat is one line of JSON with a seal (log/fields.h), which detects damage and no forgery.
 * It is read into a copy, so that an invalid one changes nothing. */
#include "gossip/heartbeat.h"

#include "log/fields.h"

#include <stdio.h>
#include <string.h>

static const char format[] = "diloco-beat";

diloco_status dl_beat_write(dl_buf *out, const dl_beat *b)
{
    dl_json j;
    size_t start;
    dl_sealed_begin(&j, &start, out, format);
    dl_json_str(&j, "run", b->run);
    dl_json_generation(&j, "life", &b->generation);
    dl_json_str(&j, "id", b->id);
    dl_json_str(&j, "address", b->address);
    dl_json_u64(&j, "contributed", b->contributed);
    dl_json_u64(&j, "state", b->state);
    dl_json_hash(&j, "digest", b->digest);
    dl_json_u64(&j, "stepped", b->stepped);
    dl_json_u64(&j, "ignored", b->ignored);
    dl_json_u64(&j, "step", b->step);
    dl_json_f64(&j, "divergence", b->divergence);
    dl_json_bool(&j, "done", b->done);
    return dl_sealed_end(&j, start);
}

/* Checks the two texts that are used further: the id identifies a node, and the address is opened.
 * The address must be in its normal form, since lines are compared by it. */
static diloco_status check_texts(const dl_beat *b)
{
    char address[DL_ADDRESS_MAX + 1];
    if (!dl_run_id_ok(b->id)) return dl_fail(DILOCO_EPROTO, "\"id\" is not 32 hexadecimal digits");
    if (dl_peer_address(address, b->address, false) || strcmp(address, b->address) != 0)
        return dl_fail(DILOCO_EPROTO, "\"address\" is no address of a node");
    return DILOCO_OK;
}

static diloco_status read(dl_beat *b, const void *text, size_t len)
{
    dl_json_value root;
    if (len > DL_BEAT_MAX)
        return dl_fail(DILOCO_EPROTO, "a heartbeat of %zu bytes is too long", len);
    DL_TRY(dl_sealed_open(&root, text, len, format));
    DL_TRY(dl_json_read_run(b->run, root));
    DL_TRY(dl_json_read_generation(&b->generation, root, "life"));
    DL_TRY(dl_json_read_str(b->id, sizeof b->id, root, "id"));
    DL_TRY(dl_json_read_str(b->address, sizeof b->address, root, "address"));
    DL_TRY(dl_json_read_u64(&b->contributed, root, "contributed", INT64_MAX));
    DL_TRY(dl_json_read_u64(&b->state, root, "state", INT64_MAX));
    DL_TRY(dl_json_read_hash(&b->digest, root, "digest"));
    DL_TRY(dl_json_read_u64(&b->stepped, root, "stepped", INT64_MAX));
    DL_TRY(dl_json_read_u64(&b->ignored, root, "ignored", INT64_MAX));
    DL_TRY(dl_json_read_u64(&b->step, root, "step", INT64_MAX));
    DL_TRY(dl_json_read_f64_or_nan(&b->divergence, root, "divergence"));
    DL_TRY(dl_json_read_bool(&b->done, root, "done"));
    return check_texts(b);
}

diloco_status dl_beat_read(dl_beat *out, const void *text, size_t len)
{
    dl_beat b = {.run = ""};
    const diloco_status status = read(&b, text, len);
    if (!status) *out = b;
    return status;
}

diloco_status dl_beat_get(dl_beat *out, dl_store *store, const char *key, dl_time until)
{
    dl_buf text;
    dl_buf_init(&text, DL_BEAT_MAX);
    diloco_status status = dl_store_get(store, &text, key, until);
    if (!status) status = dl_beat_read(out, text.data, text.len);
    dl_buf_deinit(&text);
    return status;
}

void dl_key_known(dl_key out, const char *name)
{
    snprintf(out, sizeof(dl_key), "hb/%s", name);
}

typedef struct keys {
    dl_key all[DL_KNOWN_MAX];
    size_t n;
} keys;

/* Notes a key. DILOCO_ECLOSED ends the listing once there are enough, and is not an error then. */
static diloco_status found(void *context, const char *key, size_t len)
{
    keys *k = context;
    if (k->n == DL_KNOWN_MAX) return DILOCO_ECLOSED; /* enough */
    if (len <= DL_BEAT_MAX) snprintf(k->all[k->n++], sizeof(dl_key), "%s", key);
    return DILOCO_OK;
}

/* The time in the caller's functions does not count: it is not the peer's. */
diloco_status dl_beats_known(dl_store *store, size_t first, dl_time most, dl_knows_fn knows,
                             dl_beat_fn fn, void *context)
{
    keys k = {.n = 0};
    dl_beat beat;
    dl_time began = dl_clock_now();
    const diloco_status status =
        dl_store_list(store, "hb/", NULL, found, &k, dl_time_after(began, most));
    if (status && k.n < DL_KNOWN_MAX) return status;
    dl_time left = most - (dl_clock_now() - began);
    bool more = true;
    for (size_t i = 0; i < k.n && more && left > 0; i++) {
        const char *key = k.all[(first + i) % k.n];
        if (knows && knows(context, key + strlen("hb/"))) continue;
        began = dl_clock_now();
        const diloco_status missing = dl_beat_get(&beat, store, key, dl_time_after(began, left));
        left -= dl_clock_now() - began;
        if (!missing) more = fn(context, &beat);
    }
    return DILOCO_OK;
}
