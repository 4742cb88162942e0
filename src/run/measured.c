/* measured.c - the first of two exchanges where each member combines a slice and the rule measures
 * whole contributions (docs/protocol.md P19):
 *
 *     owner   of a slice: reads it of every member, and puts x/<e>/measured/<slice>/:
 *             what the members' norms and dot products come to over that slice
 *     owner   reads those of all slices, adds them in order, combines its slice with
 *             what the sums say of which members count, and how much
 *
 * The sums are taken by slices wherever a run's contributions are combined (tensor/cut.h), so these
 * are the bits of who reads everything. All find the same coefficients, for all read the same
 * objects: a name is created once. What an owner has measured is sealed with a digest, and a number
 * that is not finite is as good as none. */
#include "run/service.h"

#include <math.h>
#include <stdlib.h>

static dl_outer_step_args facts_of(const dl_exec *x, size_t fragment, size_t n_members)
{
    return (dl_outer_step_args){.manifest = &x->a.run->manifest,
                                .fragment = (int)fragment,
                                .form = &x->forms[fragment],
                                .outer = x->state.outer,
                                .n_members = n_members};
}

/* Where the numbers of slice i begin: behind those of the slices before it. */
static size_t place_of(dl_exec *x, size_t fragment, size_t n_members, size_t slice)
{
    const dl_outer_step_args facts = facts_of(x, fragment, n_members);
    size_t n = 0;
    for (size_t i = 0; i < slice; i++)
        n += dl_outer_n_measures(&facts, x->scratch, i);
    return n;
}

diloco_status dl_measures_prepare(dl_exec *x)
{
    dl_combine_rule rule;
    size_t most = 0;
    DL_TRY(dl_combine_rule_of(&rule, &x->a.run->config));
    if (dl_outer_cutting(&rule) != DL_CUT_MEASURED) return DILOCO_OK;
    for (size_t f = 0; f < (size_t)x->a.run->manifest.n_fragments; f++)
        most = dl_size_max(most, place_of(x, f, x->a.max_members, x->slices[f]));
    x->measures = calloc(most, sizeof *x->measures);
    return x->measures ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "no memory for the exchange");
}

diloco_status dl_measures_put(dl_service *v)
{
    dl_exec *x = v->x;
    DL_TRY(dl_service_read(v));
    const dl_outer_step_args args = dl_service_args(v);
    const size_t len = dl_outer_n_measures(&args, x->scratch, v->slice) * sizeof *x->measures;
    DL_TRY(dl_outer_measure(x->measures, &x->state.now[v->plan->fragment], &args, x->scratch,
                            x->a.pool));
    dl_span spans[2] = {{x->measures, len}};
    return dl_service_put(v, dl_key_measured_slice, spans, 1, dl_digest_bytes(x->measures, len));
}

typedef struct gathering {
    const dl_service *v;
    bool differ[DL_SLICES_MAX]; /* its owners */
    size_t place[DL_SLICES_MAX + 1];
} gathering;

static diloco_status gather(void *context, dl_store *store, size_t i)
{
    gathering *g = context;
    const dl_service *v = g->v;
    double *numbers = v->x->measures + g->place[i];
    const size_t n = g->place[i + 1] - g->place[i];
    const size_t owner = dl_slice_owner(i, 0, v->plan->entry, v->plan->n_members);
    const dl_slice_part part = {(unsigned char *)numbers, n * sizeof *numbers};
    const char *reason;
    dl_hash got;
    dl_key key;
    dl_key_measured_slice(key, v->plan->entry, i, &v->plan->members[owner].life, v->planner);
    DL_TRY(dl_slice_read(&part, 1, NULL, &got, &reason, store, key, v->until));
    for (size_t k = 0; k < n; k++)
        if (!isfinite(numbers[k])) return dl_fail(DILOCO_EPROTO, "%s: number %zu", key, k);
    return dl_witnesses_agree(&g->differ[i], v->x, v->plan, v->planner, i, dl_key_measured_slice,
                              got, store, v->until);
}

diloco_status dl_measures_gather(bool *there, dl_service *v)
{
    gathering g = {.v = v};
    for (size_t i = 0; i <= v->s.n; i++)
        g.place[i] = place_of(v->x, v->plan->fragment, v->plan->n_members, i);
    const diloco_status status = dl_fetchers_run(v->x, v->s.n, gather, &g);
    *there = !status;
    for (size_t i = 0; status == DILOCO_EPROTO && i < v->s.n; i++)
        if (g.differ[i]) return dl_exec_dispute(v->x, v->plan->entry, v->planner);
    return status == DILOCO_ENOENT || status == DILOCO_EPROTO ? DILOCO_OK : status;
}
