/* sim_net.c - the way between a simulated replica and the store, in virtual time.
 *
 * Around the handle of each replica; above it only bytes are damaged (src/store/wrap/faulty.c).
 * The simulation's seed decides the faults. A request is lost, or its answer is. It arrives long
 * after its sender gave it up, after later requests, or it arrives twice. A listing shows the store
 * as it was a while ago. A replica is cut off from the store for some time, together with others. A
 * malicious replica puts contributions that do not fit their digest. It reads some of these as if
 * they did, so that the entries it creates count them. A replica that waits gets change events, or
 * looks. */
#include "sim.h"
#include "store/kind.h"

#include <string.h>

typedef struct net {
    dl_store *inner; /* owned */
    replica *r;
} net;

enum { CREATE, PUT, REMOVE };
static const double P_LOST = 0.015, P_UNKNOWN = 0.015, P_LATE = 0.01, P_TWICE = 0.02;
static const double P_STALE = 0.05, P_LIE = 0.3, P_LIE_SLICE = 0.8, P_CUT = 0.5;

/* ---- writes that arrive later ------------------------------------------------------------- */

static diloco_status later(replica *r, int kind, double delay, const char *key,
                           const dl_span *spans, size_t n_spans)
{
    sim *s = r->sim;
    if (s->net.n_late == SIM_MAX_LATE) return DILOCO_OK; /* as good as lost */
    sim_late *l = &s->net.late[s->net.n_late++];
    *l = (sim_late){.at = s->now + delay, .kind = kind, .writer = r, .n_writes = r->count.writes};
    snprintf(l->key, sizeof l->key, "%s", key);
    dl_buf_init(&l->bytes, SIZE_MAX / 2);
    for (size_t i = 0; i < n_spans; i++)
        DL_TRY(dl_buf_add(&l->bytes, spans[i].data, spans[i].len));
    return DILOCO_OK;
}

static void arrive(sim *s, const sim_late *l)
{
    const dl_span span = {l->bytes.data, l->bytes.len};
    bool taken = false;
    diloco_status status = DILOCO_OK;
    if (l->kind == CREATE)
        status = dl_store_create(s->store, l->key, &span, 1, &taken, DL_NEVER);
    else if (l->kind == PUT)
        status = dl_store_put(s->store, l->key, span.data, span.len, DL_NEVER);
    else
        status = dl_store_delete(s->store, l->key, DL_NEVER);
    if (status && status != DILOCO_EEXIST) DIE(s, "a late write: %s", diloco_error_text());
    sim_happened[SIM_REORDERED] += l->writer->count.writes > l->n_writes;
    sim_happened[SIM_LATE_CREATED] += l->kind == CREATE && !taken;
    sim_notify(s, l->key);
}

void sim_deliver(sim *s)
{
    for (size_t i = 0; i < s->net.n_late;) {
        sim_late l = s->net.late[i];
        if (l.at > s->now) {
            i++;
            continue;
        }
        s->net.late[i] = s->net.late[--s->net.n_late];
        arrive(s, &l);
        dl_buf_deinit(&l.bytes);
    }
}

void sim_drop_late(sim *s)
{
    while (s->net.n_late)
        dl_buf_deinit(&s->net.late[--s->net.n_late].bytes);
}

/* ---- cutting off -------------------------------------------------------------------------- */

void sim_cut(sim *s)
{
    if (s->now < s->net.next_cut) return;
    s->net.next_cut = s->now + sim_uniform(s, 20, 300);
    const double until = s->now + sim_uniform(s, 2, 90);
    for (size_t i = 0; i < s->n_slots; i++)
        if (sim_chance(s, P_CUT)) s->replicas[i].fault.cut_until = until;
}

/* ---- one request -------------------------------------------------------------------------- */

static diloco_status unanswered(const net *n, const char *key, sim_happening how)
{
    sim_happened[how]++;
    return dl_fail(DILOCO_EUNREACHABLE, "%s of %s: no answer, by the simulation", key, n->r->name);
}

static diloco_status way_there(const net *n, const char *key)
{
    sim *s = n->r->sim;
    if (n->r->fault.cut_until > s->now) return unanswered(n, key, SIM_CUT);
    return sim_chance(s, P_LOST) ? unanswered(n, key, SIM_LOST) : DILOCO_OK;
}

static diloco_status way_back(const net *n, const char *key, diloco_status status)
{
    if (status || !sim_chance(n->r->sim, P_UNKNOWN)) return status;
    return unanswered(n, key, SIM_UNKNOWN);
}

/* True: it is not now that it arrives. A copy of it may come too. */
static bool is_late(const net *n, int kind, const char *key, const dl_span *spans, size_t n_spans)
{
    sim *s = n->r->sim;
    const bool late = sim_chance(s, P_LATE), twice = !late && sim_chance(s, P_TWICE);
    const double longest = sim_chance(s, 0.5) ? 2 : 100;
    if ((late || twice) && later(n->r, kind, sim_uniform(s, 0.1, longest), key, spans, n_spans))
        DIE(s, "%s", diloco_error_text());
    sim_happened[SIM_DELAYED] += late;
    sim_happened[SIM_TWICE] += twice;
    n->r->count.writes++;
    return late;
}

/* ---- the store ---------------------------------------------------------------------------- */

/* A slice for all, sealed as if it were right: its owner leaves something out (P19). */
static void forge_slice(sim *s, dl_buf *whole)
{
    const size_t len = whole->len - sizeof(dl_hash);
    whole->data[1] ^= 1;
    const dl_hash seal = dl_digest_bytes(whole->data, len);
    memcpy(whole->data + len, &seal, sizeof seal);
    s->lies.bodies[s->lies.n_told++ % MAX_LIES] = dl_digest_bytes(&seal, sizeof seal);
}

/* A malicious replica's contribution, or a slice of it, whose body does not fit its header: no
 * replica may count it. */
static void damage(dl_buf *whole)
{
    whole->data[whole->len - 1] ^= 1;
    sim_happened[SIM_LIE]++;
}

/* It accepts every other one of these itself, and continues from the result. */
static bool is_believed(const net *n, const char *key)
{
    const sim *s = n->r->sim;
    const dl_hash hash = dl_hash_bytes(key, strlen(key));
    if (!n->r->kind.byzantine || s->now >= SIM_QUIET || hash.bytes[0] % 2) return false;
    for (size_t i = 0; i < MAX_LIES && i < s->lies.n_damaged; i++)
        if (dl_hash_equal(s->lies.damaged[i], hash)) return true;
    return false;
}

static bool is_slice_for_all(const char *key)
{
    return !strncmp(key, "x/", 2) && strchr(key, '=') && !strstr(key, "/measured/");
}

/* Then the entry's digest is as wrong as before. */
static bool is_whole_update(const sim *s)
{
    return N_FLOATS / s->n_fragments <= DL_BLOCK;
}

static diloco_status create_damaged(const net *n, const char *key, const dl_span *spans,
                                    size_t n_spans, bool *taken, dl_time until)
{
    dl_buf whole;
    diloco_status status = DILOCO_OK;
    dl_buf_init(&whole, SIZE_MAX / 2);
    for (size_t i = 0; i < n_spans && !status; i++)
        status = dl_buf_add(&whole, spans[i].data, spans[i].len);
    if (!status) {
        if (is_slice_for_all(key) && is_whole_update(n->r->sim))
            forge_slice(n->r->sim, &whole);
        else
            damage(&whole);
        const dl_span span = {whole.data, whole.len};
        status = dl_store_create(n->inner, key, &span, 1, taken, until);
    }
    sim *s = n->r->sim;
    if (!status && !*taken && !is_slice_for_all(key))
        s->lies.damaged[s->lies.n_damaged++ % MAX_LIES] = dl_hash_bytes(key, strlen(key));
    dl_buf_deinit(&whole);
    return status;
}

static diloco_status net_create(void *self, const char *key, const dl_span *spans, size_t n_spans,
                                bool *taken, dl_time until)
{
    const net *n = self;
    sim *s = n->r->sim;
    DL_TRY(way_there(n, key));
    if (is_late(n, CREATE, key, spans, n_spans)) return unanswered(n, key, SIM_LOST);
    const bool own = !strncmp(key, "c/", 2) || !strncmp(key, "b/", 2) || is_slice_for_all(key);
    const bool forged =
        n->r->kind.byzantine && own && sim_chance(s, is_slice_for_all(key) ? P_LIE_SLICE : P_LIE);
    diloco_status status = forged ? create_damaged(n, key, spans, n_spans, taken, until)
                                  : dl_store_create(n->inner, key, spans, n_spans, taken, until);
    if (*taken) status = DILOCO_OK; /* the bytes are compared once more above us */
    if (!status && !*taken) sim_notify(s, key);
    return way_back(n, key, status);
}

static diloco_status net_put(void *self, const char *key, const void *data, size_t len,
                             dl_time until)
{
    const net *n = self;
    const dl_span span = {data, len};
    DL_TRY(way_there(n, key));
    if (is_late(n, PUT, key, &span, 1)) return unanswered(n, key, SIM_LOST);
    return way_back(n, key, dl_store_put(n->inner, key, data, len, until));
}

static diloco_status net_remove(void *self, const char *key, dl_time until)
{
    const net *n = self;
    sim_check_removal(n->r->sim, key);
    DL_TRY(way_there(n, key));
    if (is_late(n, REMOVE, key, NULL, 0)) return unanswered(n, key, SIM_LOST);
    return way_back(n, key, dl_store_delete(n->inner, key, until));
}

/* As if it had not been damaged. */
static diloco_status read_believed(const net *n, const char *key, dl_sink sink, dl_time until)
{
    dl_buf whole;
    dl_buf_init(&whole, SIZE_MAX / 2);
    diloco_status status = dl_store_get(n->inner, &whole, key, until);
    if (!status) whole.data[whole.len - 1] ^= 1;
    if (!status && sink.begin) status = sink.begin(sink.context, whole.len);
    if (!status) status = sink.piece(sink.context, whole.data, whole.len);
    dl_buf_deinit(&whole);
    return status;
}

static diloco_status net_read(void *self, const char *key, dl_sink sink, dl_time until)
{
    const net *n = self;
    DL_TRY(way_there(n, key));
    if (is_believed(n, key)) return way_back(n, key, read_believed(n, key, sink, until));
    return way_back(n, key, dl_store_read(n->inner, key, sink, until));
}

typedef struct stale { /* leaves out what is younger than `since` */
    const sim *s;
    double since;
    dl_found_fn found;
    void *context;
} stale;

static diloco_status found_stale(void *context, const char *key, size_t len)
{
    const stale *v = context;
    const dl_hash hash = dl_hash_bytes(key, strlen(key));
    for (size_t i = 0; i < SIM_RECENT; i++) {
        const sim_recent *young = &v->s->net.recent[i];
        if (young->at <= v->since || !dl_hash_equal(young->key, hash)) continue;
        sim_happened[SIM_STALE]++;
        return DILOCO_OK;
    }
    return v->found(v->context, key, len);
}

static diloco_status net_list(void *self, const char *prefix, const char *after, dl_found_fn found,
                              void *context, dl_time until)
{
    const net *n = self;
    sim *s = n->r->sim;
    DL_TRY(way_there(n, prefix));
    stale v = {.s = s, .found = found, .context = context};
    const bool is_stale = sim_chance(s, P_STALE);
    if (is_stale) v.since = s->now - sim_uniform(s, 0.5, SIM_STALEST);
    const diloco_status status =
        is_stale ? dl_store_list_unchecked(n->inner, prefix, after, found_stale, &v, until)
                 : dl_store_list_unchecked(n->inner, prefix, after, found, context, until);
    return way_back(n, prefix, status);
}

static void net_close(void *self)
{
    dl_store_close(((net *)self)->inner);
}

static const dl_store_kind kind = {.scheme = "net", /* has no row in store.c: no url opens it */
                                   .size = sizeof(net),
                                   .close = net_close,
                                   .create = net_create,
                                   .put = net_put,
                                   .read = net_read,
                                   .list = net_list,
                                   .remove = net_remove};

diloco_status sim_net(dl_store **out, dl_store *inner, replica *r)
{
    void *self;
    const atomic_bool *aborted;
    const diloco_status status = dl_store_wrap(out, &kind, dl_store_url(inner), &self, &aborted);
    if (status) {
        dl_store_close(inner);
        return status;
    }
    *(net *)self = (net){.inner = inner, .r = r};
    return DILOCO_OK;
}
