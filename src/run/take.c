/* take.c - the trainer's side of an exec: what a fragment moved by is taken at its due point, and
 * theta is put into its local tensors.
 *
 * With error feedback beta, what is encoded is a = g + beta e, and e <- a - decode(encode(a)) once
 * an entry counted it (PROTOCOL P17): until then `a` is kept, so that an abort sends the same
 * movement once, and encoding again gives the same payload. */
#include "run/exec_parts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static size_t n_floats(const dl_exec *x, uint32_t fragment)
{
    return x->forms[fragment].n;
}

dl_capture *dl_exec_captured(const dl_exec *x, uint64_t entry)
{
    dl_capture *c = &x->captures[entry % x->n_captures];
    return c->there && c->entry == entry ? c : NULL;
}

float *dl_exec_residual(dl_exec *x, size_t *n)
{
    *n = x->residual ? x->residual_at[x->a.run->manifest.n_fragments] : 0;
    return x->residual;
}

/* How far the fragment's tensors moved, or their gradients. */
static void form_g(const dl_exec *x, uint32_t fragment, float *g)
{
    const float *theta = x->state.now[fragment].theta;
    for (size_t i = x->first[fragment]; i < x->first[fragment + 1]; i++) {
        const dl_local_tensor *t = &x->local[i];
        const float *gradient = x->a.gradients ? x->a.gradients[x->tensor_of[i]] : NULL;
        if (t->region == DL_INTEGERS || t->region == DL_BOOLEANS) continue;
        if (gradient)
            memcpy(g + t->begin, gradient, t->count * sizeof *g);
        else
            dl_delta(g + t->begin, theta + t->begin, t->data, t->count);
    }
}

static void copy_discrete(const dl_exec *x, uint32_t fragment, unsigned char *out)
{
    for (size_t i = x->first[fragment]; i < x->first[fragment + 1]; i++) {
        const dl_local_tensor *t = &x->local[i];
        if (t->region != DL_INTEGERS && t->region != DL_BOOLEANS) continue;
        const size_t len = t->count * (t->region == DL_INTEGERS ? sizeof(int64_t) : 1);
        memcpy(out, t->data, len);
        out += len;
    }
}

static diloco_status check_g(const dl_exec *x, uint32_t fragment, const float *g, size_t n)
{
    const size_t bad = dl_first_bad(g, n, DL_ELEMENT_BOUND);
    if (bad == n) return DILOCO_OK;
    size_t index;
    const dl_manifest_tensor *t =
        dl_manifest_locate(&x->a.run->manifest, (int)fragment, bad, &index);
    return dl_fail(DILOCO_ENUMERIC,
                   "the movement of %s[%zu] since entry %" PRIu64 " is %g: this replica's "
                   "parameters are not usable; remove its state folder to join again from the "
                   "shared model",
                   t->name, index, x->state.control.entry, (double)g[bad]);
}

static void add_residual(const dl_exec *x, uint32_t fragment, float *g, size_t n)
{
    const float beta = (float)x->a.run->config.error_feedback;
    const float *e = x->residual + x->residual_at[fragment];
    for (size_t i = 0; i < n; i++)
        g[i] = fmaf(beta, e[i], g[i]);
}

diloco_status dl_exec_take(dl_exec *x, uint64_t entry, uint32_t fragment, const dl_exec_work *work)
{
    const size_t n = n_floats(x, fragment);
    dl_capture *c = &x->captures[entry % x->n_captures];
    if (x->shares_next) c->g = x->state.next[fragment].theta;
    dl_fp_state fp = dl_fp_enter();
    form_g(x, fragment, c->g);
    c->norm = sqrt(dl_norm2(c->g, n));
    if (x->residual) add_residual(x, fragment, c->g, n);
    dl_fp_leave(fp);
    copy_discrete(x, fragment, c->discrete);
    c->entry = entry;
    c->work = *work;
    c->base = x->state.now[fragment].digest;
    c->there = true;
    return check_g(x, fragment, c->g, n);
}

void dl_exec_adopt(dl_exec *x, uint32_t fragment, float mix)
{
    const dl_fragment_state *s = &x->state.now[fragment];
    dl_fp_state fp = dl_fp_enter();
    for (size_t i = x->first[fragment]; i < x->first[fragment + 1]; i++) {
        const dl_local_tensor *t = &x->local[i];
        if (t->region == DL_TRAINED || t->region == DL_AVERAGED)
            dl_adopt(t->data, s->theta + t->begin, mix, t->count);
        else if (mix != 1 && t->region == DL_INTEGERS)
            memcpy(t->data, s->integers + t->begin, t->count * sizeof(int64_t));
        else if (mix != 1)
            memcpy(t->data, s->booleans + t->begin, t->count);
    }
    dl_fp_leave(fp);
}

void dl_exec_settle(dl_exec *x, uint64_t entry, uint32_t fragment)
{
    if (!x->residual) return;
    const size_t n = n_floats(x, fragment);
    float *e = x->residual + x->residual_at[fragment];
    const dl_capture *c = dl_exec_captured(x, entry);
    if (!c) { /* a former life's: what it left behind is not known any more */
        memset(e, 0, n * sizeof *e);
        return;
    }
    const dl_codec_form *form = &x->forms[fragment];
    size_t len;
    form->codec->encode(form, x->payload, &len, c->g);
    dl_codec_round_trip(form, e, x->payload, len);
    dl_fp_state fp = dl_fp_enter();
    for (size_t i = 0; i < n; i++)
        e[i] = c->g[i] - e[i];
    dl_fp_leave(fp);
}
