/* user_outer.c - see user_outer.h. The step is `whole`; the row's block finds what it made in
 * place, and only looks whether it is finite, hashes, and adopts. */
#include "outer/user_outer.h"

#include "base/own.h"
#include "base/sized.h"
#include "outer/outer_tile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the block's part */

static void block0(dl_outer_block *b)
{
    dl_outer_look(b, 0);
}

static void block1(dl_outer_block *b)
{
    dl_outer_look(b, 1);
}

static void block2(dl_outer_block *b)
{
    dl_outer_look(b, 2);
}

/* ---- the step */

enum { LR, MU, N_SCALARS };

static void scalars(float *out, const dl_outer_settings *settings)
{
    out[LR] = (float)settings->lr;
    out[MU] = (float)settings->mu;
}

static diloco_status whole(const dl_outer *row, const dl_outer_whole *given)
{
    const diloco_user_outer *u = row->context;
    diloco_user_step step = {.fragment = given->fragment,
                             .commits = given->n_commits,
                             .learning_rate = given->scalars[LR],
                             .momentum = given->scalars[MU],
                             .n = given->n,
                             .theta = given->theta,
                             .g = given->g};
    for (int k = 0; k < u->n_vectors; k++)
        step.vectors[k] = given->state[k];
    dl_fp_state saved = dl_fp_enter();
    diloco_status status = u->step(u->user, &step);
    dl_fp_leave(saved);
    if (!status) return DILOCO_OK;
    /* A store that cannot be reached is asked again; this is no store. */
    if (status == DILOCO_EUNREACHABLE || (unsigned)status >= DILOCO_N_STATUS) status = DILOCO_EIO;
    return dl_fail(status, "outer optimizer %s failed on fragment %u: %s", row->name,
                   given->fragment, diloco_status_name(status));
}

/* ---- the row */

/* Sets vector k's name in snapshots, "vector0" or "vector1" if the caller gives none. "update" is
 * reserved for the vector that a combiner keeps. */
static diloco_status take_vector_name(dl_outer_user *u, int k)
{
    const char *given = u->given.vector_names[k];
    dl_config_name checked;
    if (!given) {
        snprintf(u->vectors[k], sizeof u->vectors[k], "vector%d", k);
        return DILOCO_OK;
    }
    DL_TRY(dl_own_name(checked, "vector", given));
    snprintf(u->vectors[k], sizeof u->vectors[k], "%s", given);
    const bool taken = !strcmp(given, "update") || (k && !strcmp(given, u->vectors[0]));
    return taken ? dl_fail(DILOCO_EINVAL, "outer optimizer %s: the name of vector %s is taken",
                           u->name, given)
                 : DILOCO_OK;
}

static dl_outer row_of(dl_outer_user *u)
{
    static void (*const blocks[])(dl_outer_block *) = {block0, block1, block2};
    dl_outer row = {.name = u->name,
                    .summary = "the caller's own",
                    .n_state = u->given.n_vectors,
                    .n_scalars = N_SCALARS,
                    .scalar_names = {"lr", "mu"},
                    .scalars = scalars,
                    .block = blocks[u->given.n_vectors],
                    .whole = whole,
                    .counts = true, /* allowed: it gets the commits */
                    .context = &u->given,
                    .options = {DL_OUTER_OPTION("momentum")},
                    .most_lr = (double)INFINITY};
    for (int k = 0; k < row.n_state; k++)
        row.state_names[k] = u->vectors[k];
    return row;
}

diloco_status dl_outer_user_init(dl_outer_user *out, const diloco_user_outer *given)
{
    diloco_user_outer *u = &out->given;
    DL_TRY(dl_sized_in(u, sizeof *u, given, given->size, "diloco_user_outer"));
    DL_TRY(dl_own_name(out->name, "outer optimizer", u->name));
    u->name = out->name;
    if (!u->step) return dl_fail(DILOCO_EINVAL, "outer optimizer %s has no step", out->name);
    if (u->n_vectors < 0 || u->n_vectors > DILOCO_USER_VECTORS)
        return dl_fail(DILOCO_EINVAL, "outer optimizer %s: %d vectors; it may have 0 to %d",
                       out->name, u->n_vectors, DILOCO_USER_VECTORS);
    for (int k = 0; k < u->n_vectors; k++)
        DL_TRY(take_vector_name(out, k));
    out->row = row_of(out);
    out->keeping = dl_outer_keeping(&out->row);
    return DILOCO_OK;
}
