/* capture.c - the trainer's half of an exchange: a fragment's movement is captured at its due
 * point, and theta is copied into its local tensors.
 *
 * Where the overlap is one round (PROTOCOL P21), a `delayed` round begins from the newest theta. An
 * `eager` round begins from theta after the replica's own share of the entry in flight
 * (2502.12996), theta - lr w (g + mu v). Here v is the momentum of its own shares. Theta changes
 * before the round ends, so its start is kept, and g is measured from there.
 *
 * A tensor that is narrower than f32 begins from theta rounded to its type, and its movement is
 * measured from there: rounding is no movement. `start` holds such tensors rounded.
 *
 * With error feedback beta, a = g + beta e is encoded, and e <- a - decode(encode(a)) once an entry
 * counted it (PROTOCOL P17). Until then `a` is kept. So an abort sends the movement once, and a
 * second encoding gives the same payload. */
#include "exchange/exec_parts.h"
#include "tensor/widths.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Returns the floats of a fragment: its trained region, then its averaged one. */
static size_t n_floats(const dl_exec *x, uint32_t fragment)
{
    return x->forms[fragment].n;
}

dl_capture *dl_exec_captured(const dl_exec *x, uint64_t entry)
{
    if (!x->capture.at) return NULL; /* a reader captures nothing */
    dl_capture *c = &x->capture.at[entry % x->capture.n];
    return c->there && c->entry == entry ? c : NULL;
}

const dl_exec_private *dl_exec_private_at(const dl_exec *x, size_t i)
{
    return i < x->capture.n_privates ? &x->capture.privates[i] : NULL;
}

/* Returns the values from which the fragment's movement is measured. */
static const float *anchor(const dl_exec *x, uint32_t fragment)
{
    return x->capture.start ? x->capture.start + x->capture.f32_at[fragment]
                            : x->state.now[fragment].theta;
}

/* Returns the name of a local tensor's type if it is narrower than f32, else NULL. */
static const char *narrow_type(const dl_exec *x, size_t i)
{
    const diloco_dtype dtype = x->a.run->manifest.tensors[x->capture.tensor_of[i]].dtype;
    return dl_dtype_stored(dtype) != dtype ? dl_dtype_name(dtype) : NULL;
}

/* g = before rounded - after. `before` is rounded as training began from the rounded value, so
 * rounding is not counted as movement. */
static void narrow_delta(float *g, const float *before, const float *after, size_t n,
                         const char *type)
{
    dl_round_to(g, before, n, type);
    dl_delta(g, g, after, n);
}

/* ---- passes over a fragment's floats ----------------------------------------------------
 *
 * The threads of the trainer's pool share a pass. Borders are multiples of DL_BLOCK, all is
 * elementwise, and the norm is a sum of blocks in order: the threads do not show in the bits. A
 * chunk stays in the cache for all that is done with it. */

enum { CHUNK = 8 * DL_BLOCK };

typedef struct pass {
    const dl_exec *x;
    uint32_t fragment;
    float *g;                /* capturing */
    bool formed;             /* g and its norm are there already, by a device */
    bool encoded;            /* so is the payload, and g is not */
    float mix;               /* adopting */
    bool shares;             /* beginning a round, deciding: there is an own share */
    float step;              /* of the own share: the learning rate times this replica's weight */
    size_t bad[DL_POOL_MAX]; /* first bad element that each thread met; SIZE_MAX: none */
} pass;

typedef struct range {
    size_t begin, end;
} range;

static bool is_discrete(const dl_local_tensor *t)
{
    return t->region == DL_INTEGERS || t->region == DL_BOOLEANS;
}

/* Call fn on tensor i's elements [skip, skip + n), for each tensor that has some in the range. */
typedef void (*piece_fn)(const pass *p, size_t i, size_t skip, size_t n);

static void each_piece(const pass *p, range r, piece_fn fn)
{
    const dl_exec *x = p->x;
    for (size_t i = x->capture.first[p->fragment]; i < x->capture.first[p->fragment + 1]; i++) {
        const dl_local_tensor *t = &x->capture.local[i];
        const size_t begin = dl_size_max(r.begin, t->begin);
        const size_t end = dl_size_min(r.end, t->begin + t->count);
        if (!is_discrete(t) && begin < end) fn(p, i, begin - t->begin, end - begin);
    }
}

/* Copies a part of a tensor if it has a place. */
static void copy_piece(const pass *p, size_t i, size_t skip, size_t n)
{
    const dl_capture_part *c = &p->x->capture;
    float *copy = c->copies ? c->copies[c->tensor_of[i]] : NULL;
    if (copy) dl_copy_around(copy + skip, (const float *)c->local[i].data + skip, n * sizeof *copy);
}

/* Forms how far a part of a tensor moved, or takes its gradient, and copies the part if it has a
 * place. The sign is before minus after, everywhere (docs/architecture.md section 2). */
static void form_piece(const pass *p, size_t i, size_t skip, size_t n)
{
    const dl_exec *x = p->x;
    const dl_local_tensor *t = &x->capture.local[i];
    const float *gradient = x->a.gradients ? x->a.gradients[x->capture.tensor_of[i]] : NULL;
    const float *before = anchor(x, p->fragment) + t->begin + skip;
    const float *after = (const float *)t->data + skip;
    float *g = p->g + t->begin + skip;
    if (gradient)
        memcpy(g, gradient + skip, n * sizeof *g);
    else if (narrow_type(x, i))
        narrow_delta(g, before, after, n, narrow_type(x, i));
    else
        dl_delta(g, before, after, n);
    copy_piece(p, i, skip, n);
}

void dl_exec_copy_to(dl_exec *x, void **places)
{
    x->capture.copies = places;
}

/* Copies the integers and booleans of the fragment to their places, and ends the copies. Its floats
 * were copied in the pass over them. */
static void finish_copies(dl_exec *x, uint32_t fragment)
{
    void **places = x->capture.copies;
    for (size_t i = x->capture.first[fragment]; places && i < x->capture.first[fragment + 1]; i++) {
        const dl_local_tensor *t = &x->capture.local[i];
        void *place = places[x->capture.tensor_of[i]];
        const size_t size = t->region == DL_INTEGERS ? sizeof(int64_t) : 1;
        if (place && is_discrete(t)) memcpy(place, t->data, t->count * size);
        places[x->capture.tensor_of[i]] = NULL;
    }
    x->capture.copies = NULL;
}

/* Copies the fragment's integers and booleans in the manifest's order. They are sent as values, not
 * as differences. */
static void copy_discrete(const dl_exec *x, uint32_t fragment, unsigned char *out)
{
    for (size_t i = x->capture.first[fragment]; i < x->capture.first[fragment + 1]; i++) {
        const dl_local_tensor *t = &x->capture.local[i];
        if (t->region != DL_INTEGERS && t->region != DL_BOOLEANS) continue;
        const size_t len = t->count * (t->region == DL_INTEGERS ? sizeof(int64_t) : 1);
        memcpy(out, t->data, len);
        out += len;
    }
}

/* Returns DILOCO_ENUMERIC and names the tensor of the first bad element. Nothing of such a capture
 * is sent, since the other replicas would reject it. */
static diloco_status check_g(const dl_exec *x, uint32_t fragment, const float *g, size_t bad)
{
    if (bad == SIZE_MAX) return DILOCO_OK;
    size_t index;
    const dl_manifest_tensor *t =
        dl_manifest_locate(&x->a.run->manifest, (int)fragment, bad, &index);
    return dl_fail(DILOCO_ENUMERIC,
                   "the movement of %s[%zu] since entry %" PRIu64 " is %g: these parameters are "
                   "not usable, and nothing of them is sent; a replica without logical clients "
                   "joins again from the shared model if its state folder is removed",
                   t->name, index, x->state.control.entry, (double)g[bad]);
}

/* a = g + beta e, with one rounding (fma). The norm in the record was taken before, so it is that
 * of the movement alone. */
static void add_residual(const pass *p, range r)
{
    const float beta = (float)p->x->a.run->config.error_feedback;
    const float *e = p->x->capture.residual + p->x->capture.f32_at[p->fragment];
    for (size_t i = r.begin; i < r.end; i++)
        p->g[i] = fmaf(beta, e[i], p->g[i]);
}

/* One thread's part of a capture. Formation, norm, residual and check of a chunk follow each other
 * while it is in the cache. An element beyond DL_ELEMENT_BOUND counts as bad, too. */
static void capture_part(void *context, int part, int n_parts)
{
    pass *p = context;
    size_t begin, end;
    dl_part_range(&begin, &end, n_floats(p->x, p->fragment), DL_BLOCK, part, n_parts);
    dl_fp_state fp = dl_fp_enter();
    for (range r = {.begin = begin}; r.begin < end; r.begin = r.end) {
        r.end = dl_size_min(end, r.begin + CHUNK);
        each_piece(p, r, p->formed ? copy_piece : form_piece);
        if (p->encoded) continue;
        for (size_t at = r.begin; at < r.end && !p->formed; at += DL_BLOCK)
            p->x->capture.norm2[at / DL_BLOCK] =
                dl_block_norm2(p->g + at, dl_size_min(r.end - at, DL_BLOCK));
        if (p->x->capture.residual) add_residual(p, r);
        const size_t bad = dl_first_bad(p->g + r.begin, r.end - r.begin, DL_ELEMENT_BOUND);
        if (r.begin + bad < r.end) p->bad[part] = dl_size_min(p->bad[part], r.begin + bad);
    }
    dl_fp_leave(fp);
}

/* g of a fragment with its residual, and the norm without it. Returns the index of the first
 * element that is not usable; SIZE_MAX: none. The block sums are added in index order after the
 * threads have ended. So the norm has the same bits for every number of threads (B3). Of a capture
 * that a device has encoded, only the copy for a save and the norm are left to do. */
static size_t form_g(const dl_exec *x, uint32_t fragment, dl_capture *c)
{
    pass p = {.x = x,
              .fragment = fragment,
              .g = c->g,
              .formed = x->a.moves != NULL,
              .encoded = c->encoded};
    size_t bad = SIZE_MAX;
    double norm2 = 0;
    for (int part = 0; part < DL_POOL_MAX; part++)
        p.bad[part] = SIZE_MAX;
    if (!c->encoded || x->capture.copies) dl_pool_run(x->a.trainer_pool, capture_part, &p);
    for (size_t at = 0; at < n_floats(x, fragment); at += DL_BLOCK)
        norm2 += x->capture.norm2[at / DL_BLOCK];
    for (int part = 0; part < DL_POOL_MAX; part++)
        bad = dl_size_min(bad, p.bad[part]);
    c->norm = sqrt(norm2);
    return bad;
}

/* The base is recorded before the log moves on: with overlap the entry is committed later, on
 * another state (P3). Where the log deals the data, the capture lists the chunks that were used
 * (P18.10). */
diloco_status dl_exec_capture(dl_exec *x, uint64_t entry, uint32_t fragment,
                              const dl_train_stats *stats)
{
    dl_capture *c = &x->capture.at[entry % x->capture.n];
    if (!x->capture.copies && !x->a.moves)
        DL_TRY(dl_mirrors_pull(x->a.mirrors, (int)fragment, x->a.trainer_pool));
    DL_TRY(dl_mirrors_pull(x->a.gradient_mirrors, (int)fragment, x->a.trainer_pool));
    /* The free copy of the state serves as memory. The two copies alternate, so its address differs
     * between entries. */
    if (x->capture.shares_next) c->g = x->state.next[fragment].theta;
    if (x->a.moves) DL_TRY(dl_exec_form_on_device(x, fragment, c));
    const size_t bad = form_g(x, fragment, c);
    copy_discrete(x, fragment, c->discrete);
    finish_copies(x, fragment);
    c->entry = entry;
    c->fragment = fragment;
    c->restored = c->confirmed = false;
    c->stats = *stats;
    c->assigned = (dl_assigned){.n = 0};
    if (x->state.control.ledger)
        dl_ledger_list(x->state.control.ledger, entry, x->a.self.replica, stats->samples,
                       &c->assigned);
    c->base = x->capture.start ? x->capture.start_base[fragment] : x->state.now[fragment].digest;
    c->there = true;
    if (!x->capture.shares_next) dl_state_put_out(&x->state, (int)fragment);
    return check_g(x, fragment, c->g, bad);
}

/* ---- adopting --------------------------------------------------------------------------- */

/* A narrow tensor is rounded to its type after mixing. Training then begins from a value that the
 * tensor can hold. */
static void adopt_piece(const pass *p, size_t i, size_t skip, size_t n)
{
    const dl_local_tensor *t = &p->x->capture.local[i];
    float *local = (float *)t->data + skip;
    dl_adopt(local, p->x->state.now[p->fragment].theta + t->begin + skip, p->mix, n);
    if (narrow_type(p->x, i)) dl_round_to(local, local, n, narrow_type(p->x, i));
}

static void adopt_part(void *context, int part, int n_parts)
{
    const pass *p = context;
    range r;
    dl_part_range(&r.begin, &r.end, n_floats(p->x, p->fragment), DL_BLOCK, part, n_parts);
    dl_fp_state fp = dl_fp_enter();
    each_piece(p, r, adopt_piece);
    dl_fp_leave(fp);
}

/* Copies integers and booleans from the newest state. */
static void discrete_to_local(const dl_exec *x, uint32_t fragment)
{
    const dl_fragment_state *s = &x->state.now[fragment];
    for (size_t i = x->capture.first[fragment]; i < x->capture.first[fragment + 1]; i++) {
        const dl_local_tensor *t = &x->capture.local[i];
        if (t->region == DL_INTEGERS)
            memcpy(t->data, s->integers + t->begin, t->count * sizeof(int64_t));
        else if (t->region == DL_BOOLEANS)
            memcpy(t->data, s->booleans + t->begin, t->count);
    }
}

/* Integers and booleans have no mix: unless mix is 1, they are copied. With mix 0 every element is
 * overwritten, so the trainer's values are not copied from the device. */
void dl_exec_adopt(dl_exec *x, uint32_t fragment, float mix)
{
    if (x->capture.start) {
        dl_exec_begin_round(x, fragment, DL_NO_ENTRY, 0);
        return;
    }
    if (x->a.moves) {
        dl_exec_adopt_on_device(x, fragment, mix);
        dl_state_put_out(&x->state, (int)fragment);
        return;
    }
    if (mix == 0 ? dl_mirrors_check(x->a.mirrors)
                 : dl_mirrors_pull(x->a.mirrors, (int)fragment, x->a.trainer_pool))
        return; /* the caller of dl_mirrors_check gets the error */
    dl_pool_run(x->a.trainer_pool, adopt_part, &(pass){.x = x, .fragment = fragment, .mix = mix});
    if (mix != 1) discrete_to_local(x, fragment);
    dl_mirrors_push(x->a.mirrors, (int)fragment, x->a.trainer_pool);
    dl_state_put_out(&x->state, (int)fragment);
}

/* Decodes the encoded capture of an entry (docs/architecture.md section 2). Decoding gives the
 * values that every reader of the contribution uses, not the captured ones. Returns false if the
 * capture does not exist any more, or if the codec refuses it. */
static bool decode_share(const dl_exec *x, uint64_t entry, uint32_t fragment)
{
    const dl_capture *c = dl_exec_captured(x, entry);
    const dl_codec_form *form = &x->forms[fragment];
    size_t len; /* beyond the bound: the exchange reports it */
    if (!c || dl_codec_encode(form, x->capture.share_payload, &len, c->g, NULL)) return false;
    dl_codec_round_trip(form, x->capture.share, x->capture.share_payload, len);
    return true;
}

/* Moves theta by a share g with momentum v as the outer optimizer does: lr g; lr v; lr (g + mu v).
 * It uses the fma operations of the outer step, in the same order (P21.2). `step` is the learning
 * rate times this replica's weight. */
static void take_share(const pass *p, range r)
{
    const dl_exec *x = p->x;
    const char *outer = x->state.outer->name;
    const float mu = x->state.control.mu, step = p->step;
    const bool nesterov = !strcmp(outer, "nesterov"), plain = !strcmp(outer, "sgd");
    const float *own = x->capture.own_momentum + x->capture.f32_at[p->fragment];
    float *start = x->capture.start + x->capture.f32_at[p->fragment];
    const size_t n = x->a.run->manifest.fragments[p->fragment].n_trained;
    for (size_t i = r.begin; i < dl_size_min(r.end, n); i++) {
        const float g = x->capture.share[i], v = fmaf(mu, own[i], g);
        const float d = plain ? g : nesterov ? fmaf(mu, v, g) : v;
        start[i] = fmaf(-step, d, start[i]);
    }
}

/* Rounds the start of a narrow tensor, since training begins from rounded values, and copies it
 * into the local tensor. */
static void begin_piece(const pass *p, size_t i, size_t skip, size_t n)
{
    const dl_exec *x = p->x;
    const dl_local_tensor *t = &x->capture.local[i];
    float *start = x->capture.start + x->capture.f32_at[p->fragment] + t->begin + skip;
    if (narrow_type(x, i)) dl_round_to(start, start, n, narrow_type(x, i));
    memcpy((float *)t->data + skip, start, n * sizeof *start);
}

/* One thread's part of a begin: theta, then the own share, then rounding, then the copy, chunk by
 * chunk while it is in the cache. */
static void begin_part(void *context, int part, int n_parts)
{
    const pass *p = context;
    const dl_exec *x = p->x;
    size_t begin, end;
    dl_part_range(&begin, &end, n_floats(x, p->fragment), DL_BLOCK, part, n_parts);
    dl_fp_state fp = dl_fp_enter();
    for (range r = {.begin = begin}; r.begin < end; r.begin = r.end) {
        r.end = dl_size_min(end, r.begin + CHUNK);
        memcpy(x->capture.start + x->capture.f32_at[p->fragment] + r.begin,
               x->state.now[p->fragment].theta + r.begin, (r.end - r.begin) * sizeof(float));
        if (p->shares) take_share(p, r);
        each_piece(p, r, begin_piece);
    }
    dl_fp_leave(fp);
}

/* A second call for the same round gives the same start. */
void dl_exec_begin_round(dl_exec *x, uint32_t fragment, uint64_t entry, float weight)
{
    pass p = {.x = x, .fragment = fragment, .step = x->state.control.lr * weight};
    x->capture.start_base[fragment] = x->state.now[fragment].digest;
    p.shares = x->capture.own_momentum && entry != DL_NO_ENTRY && decode_share(x, entry, fragment);
    dl_pool_run(x->a.trainer_pool, begin_part, &p);
    discrete_to_local(x, fragment);
    dl_mirrors_push(x->a.mirrors, (int)fragment, x->a.trainer_pool);
}

static void decided_part(void *context, int part, int n_parts)
{
    const pass *p = context;
    const dl_exec *x = p->x;
    const float mu = x->state.control.mu;
    float *own = x->capture.own_momentum + x->capture.f32_at[p->fragment];
    size_t begin, end;
    dl_part_range(&begin, &end, x->a.run->manifest.fragments[p->fragment].n_trained, DL_BLOCK, part,
                  n_parts);
    dl_fp_state fp = dl_fp_enter();
    for (size_t i = begin; i < end; i++)
        own[i] = p->shares ? fmaf(mu, own[i], x->capture.share[i]) : mu * own[i];
    dl_fp_leave(fp);
}

/* v <- mu v + g if the entry counted the share, mu v if not; an abort leaves v. The share can be
 * decoded again, since its capture is unchanged until the adoption. An uncounted share only decays
 * (P21.5). */
void dl_exec_decided(dl_exec *x, uint64_t entry, uint32_t fragment, bool commit, bool counted)
{
    if (!x->capture.own_momentum || !commit) return;
    pass p = {.x = x, .fragment = fragment};
    p.shares = counted && decode_share(x, entry, fragment);
    dl_pool_run(x->a.trainer_pool, decided_part, &p);
}

void dl_exec_forget(dl_exec *x)
{
    for (size_t i = 0; i < x->capture.n && x->capture.at; i++)
        x->capture.at[i].there = false;
}

void dl_exec_clear_residual(dl_exec *x)
{
    const size_t n = x->capture.f32_at ? x->capture.f32_at[x->a.run->manifest.n_fragments] : 0;
    if (x->capture.residual) memset(x->capture.residual, 0, n * sizeof *x->capture.residual);
}

float *dl_exec_residual(const dl_exec *x, size_t *n)
{
    *n = x->capture.residual ? x->capture.f32_at[x->a.run->manifest.n_fragments] : 0;
    return x->capture.residual;
}

/* The encoding is repeated, since the payload's memory may have been used for another contribution.
 * The subtraction is a single rounding for each element. */
void dl_exec_leave_out(dl_exec *x, const dl_capture *c)
{
    if (!x->capture.residual) return;
    const dl_codec_form *form = &x->forms[c->fragment];
    float *e = x->capture.residual + x->capture.f32_at[c->fragment];
    size_t len; /* beyond the bound: the exchange reports it */
    x->upload.made.entry_and_1 = 0;
    if (dl_codec_encode(form, x->upload.payload, &len, c->g, NULL)) return;
    dl_codec_round_trip(form, e, x->upload.payload, len);
    dl_fp_state fp = dl_fp_enter();
    for (size_t i = 0; i < form->n; i++)
        e[i] = c->g[i] - e[i];
    dl_fp_leave(fp);
}

/* The entry names the body that it counted. If our capture made the same body, the residual is what
 * that encoding left out. */
void dl_exec_settle(dl_exec *x, const dl_request *swap)
{
    if (!x->capture.residual) return;
    const size_t n = n_floats(x, swap->fragment);
    float *e = x->capture.residual + x->capture.f32_at[swap->fragment];
    const dl_capture *c = dl_exec_captured(x, swap->swap.own);
    if (!c || !dl_hash_equal(c->body, swap->swap.body)) {
        /* an earlier generation's capture: the part that it left out is unknown here */
        memset(e, 0, n * sizeof *e);
        return;
    }
    dl_exec_leave_out(x, c);
}
