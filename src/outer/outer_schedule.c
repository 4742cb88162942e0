/* outer_schedule.c - the outer learning rate of an entry (declared in outer.h). Only the committer
 * computes it, and other replicas read it from the log (PROTOCOL P2). So a math library's cos is
 * allowed, although its last bit differs between libraries. */
#include "outer/outer.h"

#include <math.h>

/* Cosine from outer_lr in round 0 to outer_lr * outer_min_ratio in the last round, constant after
 * it. A run of one round keeps outer_lr. */
double dl_outer_lr(const dl_config *config, uint64_t entry)
{
    const double pi = 3.14159265358979323846, ratio = config->outer_min_ratio;
    if (config->outer_lr_schedule == DL_OUTER_LR_CONSTANT || config->rounds < 2)
        return config->outer_lr;
    double last = (double)config->rounds - 1, done = fmin((double)entry / last, 1);
    return config->outer_lr * (ratio + (1 - ratio) * (1 + cos(pi * done)) / 2);
}
