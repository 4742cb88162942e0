/* schedule.c - the learning rate of a step, as a factor of the configured one.
 *
 * Warm-up ends when step = warmup_steps; the decays see x, the part of what follows that is
 * over, in [0, 1]. */
#include "nn/inner.h"

#include <math.h>
#include <string.h>

typedef struct span {
    double step, total, warmup, decay; /* steps */
} span;

static double constant(const span *s)
{
    (void)s;
    return 1;
}

static double part(double step, double begin, double end)
{
    return end <= begin ? 1 : fmin(fmax((step - begin) / (end - begin), 0), 1);
}

/* Each gives 1 at the start of its decay and 0 at its end; min_ratio is applied outside. */
static double linear(const span *s)
{
    return 1 - part(s->step, s->warmup, s->total);
}
static double cosine(const span *s)
{
    return 0.5 * (1 + cos(3.14159265358979323846 * part(s->step, s->warmup, s->total)));
}
static double wsd(const span *s)
{
    return 1 - sqrt(part(s->step, s->total - s->decay, s->total));
}

static const struct {
    const char *name;
    double (*factor)(const span *s);
} rows[] = {{"constant", constant}, {"linear", linear}, {"cosine", cosine}, {"wsd", wsd}};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

const char *dl_schedule_name_at(size_t i)
{
    return i < N_ROWS ? rows[i].name : NULL;
}

diloco_status dl_schedule_lr(double *lr, const dl_config *config, uint64_t step, uint64_t total)
{
    span s = {(double)step, (double)total, (double)config->warmup_steps,
              config->decay_steps ? (double)config->decay_steps : (double)total / 10};
    for (size_t i = 0; i < N_ROWS; i++) {
        if (strcmp(rows[i].name, config->lr_scheduler) != 0) continue;
        if (s.step < s.warmup) {
            *lr = config->lr * (s.step + 1) / s.warmup;
        } else {
            double low = config->min_lr_ratio;
            *lr = config->lr * (low + (1 - low) * rows[i].factor(&s));
        }
        return DILOCO_OK;
    }
    return dl_fail(DILOCO_EINVAL,
                   "trainer.lr_scheduler: there is no \"%s\"; use constant, linear, cosine or wsd",
                   config->lr_scheduler);
}
