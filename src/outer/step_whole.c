/* step_whole.c - the part of an outer step that an optimizer with `whole` takes (outer.h). */
#include "outer/outer_step_parts.h"

#include <string.h>

diloco_status dl_walk_whole(dl_fragment_state *out, const dl_fragment_state *in,
                            const dl_outer_step_args *args, dl_outer_scratch *scratch,
                            dl_pool *pool)
{
    const dl_outer *outer = args->outer;
    const size_t n = args->manifest->fragments[args->fragment].n_trained;
    dl_outer_whole given = {.theta = out->theta,
                            .g = args->combined->g,
                            .n = n,
                            .scalars = args->scalars,
                            .fragment = (uint32_t)args->fragment,
                            .n_commits = in->n_commits,
                            .manifest = args->manifest,
                            .pool = pool,
                            .room = scratch->room};
    if (out != in) memcpy(out->theta, in->theta, n * sizeof *out->theta);
    for (int k = 0; k < outer->n_state - outer->keeps; k++) {
        given.state[k] = out->outer[k];
        if (out != in) memcpy(out->outer[k], in->outer[k], n * sizeof *out->theta);
    }
    return outer->whole(outer, &given);
}
