/* outer_schedule.c - the outer learning rate of an entry (declared in outer.h). The committer asks,
 * and the answer is in the log (PROTOCOL P2), so a math library's cos will do. */
#include "outer/outer.h"

#include <math.h>

double dl_outer_lr(const dl_config *config, uint64_t entry)
{
    const double pi = 3.14159265358979323846, ratio = config->outer_min_ratio;
    if (config->outer_lr_schedule == DL_OUTER_LR_CONSTANT || config->rounds < 2)
        return config->outer_lr;
    double last = (double)config->rounds - 1, done = fmin((double)entry / last, 1);
    return config->outer_lr * (ratio + (1 - ratio) * (1 + cos(pi * done)) / 2);
}
