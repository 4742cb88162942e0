/* schedule.c - the learning rate of a step, as a factor of the configured one.
 *
 * Warm-up ends when step = warmup_steps; the decays see x, the part of what follows that is
 * over, in [0, 1]. */
#include "nn/inner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct span {
    double step, total, warmup, decay; /* steps */
} span;

/* The next of "1000it, 2000"; false at the end, and at what is no number of steps. */
static bool next_milestone(const char **at, uint64_t *step)
{
    char *end;
    const char *begin = *at + strspn(*at, ", ");
    if (*begin < '0' || *begin > '9') return false;
    *step = strtoull(begin, &end, 10);
    if (strncmp(end, "it", 2) == 0) end += 2;
    *at = end;
    return true;
}

diloco_status dl_schedule_check(const dl_config *config)
{
    const char *at = config->milestones;
    for (uint64_t step; next_milestone(&at, &step) && (*at == ',' || *at == '\0');)
        continue;
    if (*at == '\0') return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "parameters.learning_rate.milestone_steps = \"%s\": give steps with commas "
                   "between, as in \"1000it, 2000it\"; epochs (\"5ep\") are counted in steps here, "
                   "batches of a client times epochs",
                   config->milestones);
}

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

/* Plato's, all by itself: min(1, k / warm-up) gamma^(milestones passed), so step 0 of a warm-up has
 * the learning rate 0. */
static double lambda(const dl_config *config, uint64_t step)
{
    double warmup = (double)config->warmup_steps, factor = 1;
    const char *at = config->milestones;
    for (uint64_t milestone; config->gamma > 0 && next_milestone(&at, &milestone);)
        if (milestone <= step) factor *= config->gamma;
    return (double)step < warmup ? factor * (double)step / warmup : factor;
}

static const struct {
    const char *name;
    double (*factor)(const span *s);
    double (*alone)(const dl_config *config, uint64_t step); /* warm-up and all */
} rows[] = {{"constant", constant, NULL},
            {"linear", linear, NULL},
            {"cosine", cosine, NULL},
            {"wsd", wsd, NULL},
            {"LambdaLR", NULL, lambda}};
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
        if (rows[i].alone) {
            *lr = config->lr * rows[i].alone(config, step);
        } else if (s.step < s.warmup) {
            *lr = config->lr * (s.step + 1) / s.warmup;
        } else {
            double low = config->min_lr_ratio;
            *lr = config->lr * (low + (1 - low) * rows[i].factor(&s));
        }
        return DILOCO_OK;
    }
    return dl_fail(
        DILOCO_EINVAL,
        "trainer.lr_scheduler: there is no \"%s\"; use constant, linear, cosine, wsd or LambdaLR",
        config->lr_scheduler);
}
