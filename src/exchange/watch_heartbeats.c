/* watch_heartbeats.c - the request WATCH: heartbeats and ends of all replicas, which show the
 * silent ones (P11). */
#include "exchange/exec_parts.h"

#include "log/fields.h"

#include <string.h>

bool dl_exec_is_watched(const dl_exec *x, const dl_generation *generation)
{
    const dl_watch_request *w = &x->collect.watched;
    size_t at;
    return !w->roster || !dl_roster_has(w->roster, generation->replica, &at) || !w->present[at];
}

/* Adds a row. Two rows stay reserved for each awaited replica, for its heartbeat and its end. So
 * other keys that sort first displace no member (P11). */
static void add_seen(dl_exec *x, const dl_seen *s)
{
    dl_collect_part *c = &x->collect;
    const bool awaited = dl_exec_is_awaited(x, &s->generation);
    const size_t reserved = dl_size_min(c->cap_seen, 2 * dl_exec_n_awaited(x));
    if (c->n_seen == c->cap_seen || (!awaited && c->n_seen_other >= c->cap_seen - reserved)) return;
    c->n_seen_other += !awaited;
    c->seen[c->n_seen++] = *s;
}

/* Keeps the newest generation of each replica; a listing has them one after the other. */
static diloco_status found_heartbeat(void *context, const char *key, size_t len)
{
    dl_exec *x = context;
    dl_seen s = {.ended = false};
    (void)len;
    if (!dl_key_parse_generation(&s.generation, key, "hb/")) return DILOCO_OK;
    if (!dl_exec_is_watched(x, &s.generation)) return DILOCO_OK;
    dl_seen *last = x->collect.n_seen ? &x->collect.seen[x->collect.n_seen - 1] : NULL;
    if (!last || strcmp(last->generation.replica, s.generation.replica) != 0) {
        add_seen(x, &s);
    } else if (s.generation.number > last->generation.number) {
        *last = s;
    }
    return DILOCO_OK;
}

/* Ends are listed in the order of the heartbeats' rows, which come first. */
typedef struct ends {
    dl_exec *x;
    size_t n_beats, at;
} ends;

/* An ended generation without a listed heartbeat gets a row of its own. */
static diloco_status found_end(void *context, const char *key, size_t len)
{
    ends *e = context;
    dl_seen *seen = e->x->collect.seen, s = {.ended = true};
    (void)len;
    if (!dl_key_parse_generation(&s.generation, key, "end/")) return DILOCO_OK;
    if (!dl_exec_is_watched(e->x, &s.generation)) return DILOCO_OK;
    const char *replica = s.generation.replica;
    while (e->at < e->n_beats &&
           dl_replica_listed_order(seen[e->at].generation.replica, replica) < 0)
        e->at++;
    if (e->at < e->n_beats && dl_generation_equal(&seen[e->at].generation, &s.generation))
        seen[e->at].ended = true;
    else
        add_seen(e->x, &s);
    return DILOCO_OK;
}

/* Reads the newest heartbeat of each watched replica, whose hash shows a change (P11.1). */
diloco_status dl_exec_watch(dl_exec *x, const dl_request *request, dl_reply *reply, dl_time until)
{
    x->collect.watched = request->watch;
    if (x->ring) return dl_exec_watch_signed(x, reply, until);
    x->collect.n_seen = x->collect.n_seen_other = 0;
    DL_TRY(dl_store_list(x->a.store, "hb/", NULL, found_heartbeat, x, until));
    for (size_t i = 0; i < x->collect.n_seen; i++) {
        dl_key key;
        dl_key_heartbeat(key, &x->collect.seen[i].generation);
        dl_buf_clear(&x->text);
        const diloco_status status = dl_store_get(x->a.store, &x->text, key, until);
        if (status && status != DILOCO_ENOENT && status != DILOCO_EPROTO) return status;
        x->collect.seen[i].content = dl_hash_bytes(x->text.data, x->text.len);
        dl_json_value beat;
        if (x->mode->reads_speeds && !dl_json_parse(&beat, x->text.data, x->text.len))
            (void)!dl_json_read_f64_or_nan(&x->collect.seen[i].steps_per_s, beat, "steps_per_s");
    }
    ends e = {.x = x, .n_beats = x->collect.n_seen};
    DL_TRY(dl_store_list(x->a.store, "end/", NULL, found_end, &e, until));
    reply->watch.seen = x->collect.seen;
    reply->watch.n_seen = x->collect.n_seen;
    return DILOCO_OK;
}
