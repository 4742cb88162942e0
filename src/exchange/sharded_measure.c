/* sharded_measure.c - the first of two exchanges where each member combines a slice, and the
 * combiner or a check measures whole contributions (docs/protocol.md P19):
 *
 *     owner   reads its slice of every member, and creates x/<e>/measured/<slice>/. This holds the
 *             members' norms and dot products over that slice, first those for the combiner, then
 *             those for the checks.
 *     owner   reads those of all slices, adds them in order, and combines its slice with the
 *             members and weights that follow from the sums
 *
 * Every combination sums by slices (tensor/cut.h), so these sums have the same bits as those of a
 * replica that reads everything. All owners find the same coefficients, since they read the same
 * objects: a name is created once. An owner's measures are sealed with a digest, and a number that
 * is not finite counts as missing.
 *
 * If the sums show that a check rejects a member, no slice is combined. Every replica then reads
 * all members and judges them itself, so no verdict depends on an owner's measures. */
#include "exchange/sharded_parts.h"

#include <math.h>
#include <stdlib.h>

enum { RULES, CHECKS, N_KINDS }; /* numbers for the combiner, and for check.* */

static dl_outer_step_args facts_of(const dl_exec *x, size_t fragment, size_t n_members)
{
    return (dl_outer_step_args){.manifest = &x->a.run->manifest,
                                .fragment = (int)fragment,
                                .form = &x->forms[fragment],
                                .outer = x->state.outer,
                                .n_members = n_members};
}

static double *numbers_of(const dl_exec *x, int kind)
{
    return kind == RULES ? x->combine.measures : x->combine.compared.numbers;
}

/* Returns how many numbers a slice has. It depends on the number of members and on the slice alone,
 * so every owner uses one layout. */
static size_t n_numbers(dl_exec *x, int kind, const dl_outer_step_args *args, size_t slice)
{
    return kind == RULES ? dl_outer_n_measures(args, x->apply.scratch, slice)
                         : dl_outer_n_compared(args, x->apply.scratch, slice);
}

/* Returns where the numbers of slice i begin: after those of the slices before it. */
static size_t place_of(dl_exec *x, int kind, size_t fragment, size_t n_members, size_t slice)
{
    const dl_outer_step_args facts = facts_of(x, fragment, n_members);
    size_t n = 0;
    for (size_t i = 0; i < slice; i++)
        n += n_numbers(x, kind, &facts, i);
    return n;
}

/* Allocates the largest number that any entry may need, so measuring allocates nothing. */
static double *make_numbers(dl_exec *x, int kind)
{
    size_t most = 0;
    for (size_t f = 0; f < (size_t)x->a.run->manifest.n_fragments; f++)
        most = dl_size_max(most, place_of(x, kind, f, x->a.max_members, x->combine.slices[f]));
    return calloc(most, sizeof(double));
}

static diloco_status make_court(dl_exec *x)
{
    dl_compared *c = &x->combine.compared;
    dl_arena measure = {0};
    dl_judge_layout(&c->judge, &measure, x->a.max_members);
    DL_TRY(dl_arena_init(&c->arena, measure.used));
    dl_judge_layout(&c->judge, &c->arena, x->a.max_members);
    c->rows = calloc(x->a.max_members, sizeof *c->rows);
    c->numbers = make_numbers(x, CHECKS);
    return c->rows && c->numbers ? DILOCO_OK
                                 : dl_fail(DILOCO_ENOMEM, "out of memory for the exchange");
}

diloco_status dl_measures_prepare(dl_exec *x)
{
    dl_combine_rule rule;
    DL_TRY(dl_combine_rule_of(&rule, &x->a.run->config));
    if (dl_judge_compares(&x->a.run->config)) DL_TRY(make_court(x));
    if (dl_outer_cutting(&rule) != DL_CUT_MEASURED) return DILOCO_OK;
    x->combine.measures = make_numbers(x, RULES);
    return x->combine.measures ? DILOCO_OK
                               : dl_fail(DILOCO_ENOMEM, "out of memory for the exchange");
}

void dl_measures_deinit(dl_exec *x)
{
    free(x->combine.measures);
    free(x->combine.compared.numbers);
    free(x->combine.compared.rows);
    dl_arena_deinit(&x->combine.compared.arena);
}

bool dl_measures_are_wanted(const dl_exec *x)
{
    return x->combine.measures || x->combine.compared.numbers;
}

bool dl_exec_measures_slices(const dl_exec *x)
{
    return dl_measures_are_wanted(x);
}

/* Witnesses measure, too, and upload only the digest (dl_service_put). */
diloco_status dl_measures_put(dl_service *v)
{
    dl_exec *x = v->x;
    dl_slice_part parts[N_KINDS];
    dl_span spans[N_KINDS + 1];
    size_t n = 0;
    DL_TRY(dl_service_read(v));
    const dl_outer_step_args args = dl_service_args(v);
    if (x->combine.measures)
        DL_TRY(dl_outer_measure(x->combine.measures, &x->state.now[v->plan->fragment], &args,
                                x->apply.scratch, x->a.pool));
    if (x->combine.compared.numbers)
        dl_outer_compare(x->combine.compared.numbers, &args, x->apply.scratch, x->a.pool);
    for (int kind = 0; kind < N_KINDS; kind++) {
        double *numbers = numbers_of(x, kind);
        if (!numbers) continue;
        const size_t len = n_numbers(x, kind, &args, v->slice) * sizeof *numbers;
        parts[n] = (dl_slice_part){(unsigned char *)numbers, len};
        spans[n++] = (dl_span){numbers, len};
    }
    const dl_hash digest = dl_slice_digest(parts, n);
    return dl_service_put(v, dl_key_measured_slice, spans, n, &digest);
}

typedef struct gathering {
    const dl_service *v;
    bool differ[DL_SLICES_MAX]; /* the owners of a slice differ */
    size_t place[N_KINDS][DL_SLICES_MAX + 1];
} gathering;

static diloco_status all_finite(const dl_slice_part *part, const char *key)
{
    const double *numbers = (const double *)(const void *)part->data;
    for (size_t k = 0; k < part->len / sizeof *numbers; k++)
        if (!isfinite(numbers[k])) return dl_fail(DILOCO_EPROTO, "%s: number %zu", key, k);
    return DILOCO_OK;
}

/* Reads the measures of one slice. A number that is not finite would decide the verdicts of every
 * replica, so such an object counts as missing. */
static diloco_status gather(void *context, dl_store *store, size_t i)
{
    gathering *g = context;
    const dl_service *v = g->v;
    const size_t owner = dl_slice_owner(i, 0, v->plan->entry, v->plan->n_members);
    dl_slice_part parts[N_KINDS];
    size_t n = 0;
    const char *reason;
    dl_hash got;
    dl_key key;
    for (int kind = 0; kind < N_KINDS; kind++) {
        double *numbers = numbers_of(v->x, kind);
        const size_t *place = g->place[kind] + i;
        if (numbers)
            parts[n++] = (dl_slice_part){(unsigned char *)(numbers + place[0]),
                                         (place[1] - place[0]) * sizeof *numbers};
    }
    dl_key_measured_slice(key, v->plan->entry, i, &v->plan->members[owner].generation, v->planner);
    DL_TRY(dl_slice_read(parts, n, NULL, &got, &reason, store, key, v->until));
    for (size_t k = 0; k < n; k++)
        DL_TRY(all_finite(&parts[k], key));
    return dl_witnesses_agree(&g->differ[i], v->x, v->plan, v->planner, i, dl_key_measured_slice,
                              got, store, v->until);
}

/* The places are computed before the fetchers start, since they share the scratch memory. */
diloco_status dl_measures_gather(bool *there, dl_service *v)
{
    gathering g = {.v = v};
    for (int kind = 0; kind < N_KINDS; kind++)
        for (size_t i = 0; numbers_of(v->x, kind) && i <= v->s.n; i++)
            g.place[kind][i] = place_of(v->x, kind, v->plan->fragment, v->plan->n_members, i);
    const diloco_status status = dl_fetchers_run(v->x, v->s.n, gather, &g);
    *there = !status;
    for (size_t i = 0; status == DILOCO_EPROTO && i < v->s.n; i++)
        if (g.differ[i]) return dl_exec_dispute(v->x, v->plan->entry, v->planner);
    return status == DILOCO_ENOENT || status == DILOCO_EPROTO ? DILOCO_OK : status;
}

/* Checks that need no vector were applied before the plan. Verdicts are the same in every replica,
 * because the sums are. They only drop the plan: the verdicts in the entry come from whole
 * contributions (P19.18). */
diloco_status dl_measures_judge(dl_service *v)
{
    dl_compared *c = &v->x->combine.compared;
    dl_candidate_table known = {.at = c->rows, .cap = v->x->a.max_members};
    dl_outer_step_args args = facts_of(v->x, v->plan->fragment, v->plan->n_members);
    const double *norm2;
    args.measured = c->numbers;
    const double *gram = dl_outer_compared(&norm2, &args, v->x->apply.scratch);
    for (size_t m = 0; m < v->plan->n_members; m++) {
        const dl_member *member = &v->plan->members[m];
        dl_candidate *k = dl_candidate_add(&known, &member->generation, v->plan->entry, 0);
        DL_ASSERT(k);
        k->validity = DL_VALID;
        k->whole = true;
        k->facts.body = member->body;
        k->norm2 = norm2[m];
        c->judge.slots[m] = dl_candidate_slot(&known, k);
    }
    c->judge.n = known.n;
    DL_ASSERT(known.n == v->plan->n_members); /* entry.c: no replica is in a plan twice */
    dl_judge_all(&c->judge, &v->x->a.run->config, NULL, &known, gram);
    for (size_t m = 0; m < known.n; m++)
        if (c->rows[m].refused)
            return dl_fail(DILOCO_EPROTO,
                           "the measurements of %s by the owners of slices "
                           "reject it as %s",
                           c->rows[m].generation.replica, c->rows[m].refused);
    return DILOCO_OK;
}
