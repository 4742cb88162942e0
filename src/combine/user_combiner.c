/* user_combiner.c - see user_combiner.h. A combiner with coefficients is a linear row. One with
 * elements is a row by element, which ignores weights as those do. Nothing is known of how many
 * hostile members it bears.
 */
#include "combine/user_combiner.h"

#include "base/own.h"
#include "base/sized.h"

static size_t needed(const dl_combine_rule *rule)
{
    const diloco_user_combiner *u = rule->combiner->context;
    return u->needed ? u->needed : 1;
}

/* The record of an entry claims nothing for a rule that this library cannot judge. */
static size_t tolerated(const dl_combine_rule *rule, size_t n)
{
    (void)rule, (void)n;
    return 0;
}

/* The caller's code runs with the control word of the other combiners, so the result has the same
 * bits in every process (PROTOCOL B1). */
static void coefficients(double *c, const dl_combine_view *view)
{
    const diloco_user_combiner *u = view->rule->combiner->context;
    const diloco_user_members members = {
        .n = view->n, .weights = view->weight, .norm2 = view->norm2, .dots = view->gram};
    dl_fp_state saved = dl_fp_enter();
    u->coefficients(u->user, c, &members);
    dl_fp_leave(saved);
}

/* x counts as x + 0.0f (combine.h), which is G's matter: no member is copied for it. */
static void elements(float *G, const float *const *x, size_t n_inputs, const dl_combine_rule *rule,
                     float *room, size_t n)
{
    const diloco_user_combiner *u = rule->combiner->context;
    (void)room;
    u->elements(u->user, G, x, n_inputs, n);
    for (size_t i = 0; i < n; i++)
        G[i] += 0.0f;
}

/* The struct is copied, and u->name then refers to the copy. Exactly one of the two functions
 * decides the kind. */
diloco_status dl_combiner_user_init(dl_combiner_user *out, const diloco_user_combiner *given)
{
    diloco_user_combiner *u = &out->given;
    DL_TRY(dl_sized_in(u, sizeof *u, given, given->size, "diloco_user_combiner"));
    DL_TRY(dl_own_name(out->name, "combiner", u->name));
    u->name = out->name;
    if (!u->coefficients == !u->elements)
        return dl_fail(DILOCO_EINVAL, "combiner %s needs one of coefficients and elements",
                       out->name);
    if (u->needed > DL_MAX_MEMBERS)
        return dl_fail(DILOCO_EINVAL, "combiner %s needs %zu members: an entry has at most %d",
                       out->name, u->needed, DL_MAX_MEMBERS);
    out->row = (dl_combiner){.name = out->name,
                             .summary = "the caller's own",
                             .options = {"server.diloco.robust_fallback"},
                             .ignores_weights = u->elements != NULL,
                             .by_itself = u->elements != NULL,
                             .measure = u->measures ? DL_MEASURE_WHOLE : DL_MEASURE_NOTHING,
                             .needed = needed,
                             .tolerated = tolerated,
                             .coefficients = u->coefficients ? coefficients : NULL,
                             .elements = u->elements ? elements : NULL,
                             .context = u};
    return DILOCO_OK;
}
