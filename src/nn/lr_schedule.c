/* lr_schedule.c - the learning rate of a step, as a factor of the configured one.
 *
 * Warm-up ends when step = warmup_steps; the decays see x, the part of what follows that is
 * over, in [0, 1]. */
#include "base/run_kind.h"
#include "nn/inner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A step's place in the run. */
typedef struct span {
    double step, total, warmup, decay; /* steps */
} span;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads the next item of "1000it, 2000, 5ep, 5ep20it", in Plato's units: iterations, or epochs of
 * `epoch` steps. Returns false at the end and at an invalid item, and leaves *at before it. */
static bool next_milestone(const char **at, double *step, uint64_t epoch)
{
    char *end;
    const char *begin = *at + strspn(*at, ", ");
    if (!is_digit(*begin)) return false;
    *step = (double)strtoull(begin, &end, 10);
    if (strncmp(end, "ep", 2) == 0) {
        *step *= (double)epoch;
        end += 2;
        if (is_digit(*end)) {
            *step += (double)strtoull(end, &end, 10);
            if (strncmp(end, "it", 2) != 0) return false;
        }
    }
    if (strncmp(end, "it", 2) == 0) end += 2;
    *at = end;
    return true;
}

/* An epoch is a pass over a client's data, so only runs with logical clients define it. */
static diloco_status check_epochs(const dl_config *config)
{
    const char *counts = config->warmup_epochs > 0          ? "warmup_epochs"
                         : strstr(config->milestones, "ep") ? "milestone_steps"
                         : strstr(config->step_size, "ep")  ? "step_size"
                                                            : NULL;
    if (!counts || dl_run_kind_of(config)->has_epochs) return DILOCO_OK;
    return dl_fail(
        DILOCO_EINVAL,
        "parameters.learning_rate.%s counts epochs, which are a client's passes over its "
        "data, and there are no logical clients: give steps",
        counts);
}

/* One item, of more than no step. */
static diloco_status check_step_size(const dl_config *config)
{
    const char *at = config->step_size;
    double step = 0;
    if (!*at || (next_milestone(&at, &step, 1) && !*at && step > 0)) return DILOCO_OK;
    return dl_fail(
        DILOCO_EINVAL,
        "parameters.learning_rate.step_size = \"%s\": give a number of steps above 0, as "
        "in \"1000it\", or epochs of clients, as in \"5ep\" or \"5ep20it\"",
        config->step_size);
}

/* A valid list is read to its end with nothing but a comma after each item. */
static diloco_status check_milestones(const dl_config *config)
{
    const char *at = config->milestones;
    for (double step; next_milestone(&at, &step, 1) && (*at == ',' || *at == '\0');)
        continue;
    if (*at == '\0') return DILOCO_OK;
    return dl_fail(
        DILOCO_EINVAL,
        "parameters.learning_rate.milestone_steps = \"%s\": give steps with commas "
        "between, as in \"1000it, 2000it\", or epochs of clients, as in \"5ep, 5ep20it\"",
        config->milestones);
}

static diloco_status need_milestones(const dl_config *config)
{
    if (config->milestones[0]) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "trainer.lr_scheduler = \"MultiStepLR\" needs its milestones: set "
                   "parameters.learning_rate.milestone_steps, as in \"1000it, 2000it\"");
}

static diloco_status need_step_size(const dl_config *config)
{
    if (config->step_size[0]) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "trainer.lr_scheduler = \"StepLR\" needs its period: set "
                                  "parameters.learning_rate.step_size, as in \"1000it\"");
}

static double constant(const span *s)
{
    (void)s;
    return 1;
}

/* Returns the part of [begin, end) that is over at `step`, from 0 to 1; an empty one is over. */
static double part(double step, double begin, double end)
{
    return end <= begin ? 1 : fmin(fmax((step - begin) / (end - begin), 0), 1);
}

/* Each returns 1 at the start of its decay and 0 at its end; dl_schedule_lr applies min_lr_ratio.
 * wsd is the 1-sqrt cooldown of Haegele et al. 2024 (arXiv:2405.18392). */
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

/* gamma^(milestones passed) */
static double stairs(const dl_config *config, const span *s, uint64_t epoch, double gamma)
{
    double factor = 1;
    const char *at = config->milestones;
    for (double milestone; next_milestone(&at, &milestone, epoch);)
        if (milestone <= s->step) factor *= gamma;
    return factor;
}

/* Plato's, all by itself: min(1, k / warm-up) gamma^(milestones passed), so step 0 of a warm-up has
 * the learning rate 0. */
static double lambda(const dl_config *config, const span *s, uint64_t epoch)
{
    double factor = config->gamma > 0 ? stairs(config, s, epoch, config->gamma) : 1;
    return s->step < s->warmup ? factor * s->step / s->warmup : factor;
}

/* torch.optim.lr_scheduler.MultiStepLR, whose own gamma is 0.1; without a warm-up. */
static double multi_step(const dl_config *config, const span *s, uint64_t epoch)
{
    return stairs(config, s, epoch, config->gamma > 0 ? config->gamma : 0.1);
}

/* torch.optim.lr_scheduler.StepLR, whose own gamma is 0.1; without a warm-up. An epoch of no step
 * is as if the period never ended. */
static double step_lr(const dl_config *config, const span *s, uint64_t epoch)
{
    const char *at = config->step_size;
    double period;
    if (!next_milestone(&at, &period, epoch) || period <= 0) return 1;
    return pow(config->gamma > 0 ? config->gamma : 0.1, floor(s->step / period));
}

typedef struct row {
    const char *name;
    double (*factor)(const span *s); /* after the warm-up */
    /* of the whole run, in place of `factor` */
    double (*alone)(const dl_config *config, const span *s, uint64_t epoch);
    bool no_warmup;
    diloco_status (*need)(const dl_config *config); /* an option that has to be given; or NULL */
} row;

static const row rows[] = {
    {"constant", .factor = constant},
    {"linear", .factor = linear},
    {"cosine", .factor = cosine},
    {"wsd", .factor = wsd},
    {"LambdaLR", .alone = lambda},
    {"MultiStepLR", .alone = multi_step, .no_warmup = true, .need = need_milestones},
    {"StepLR", .alone = step_lr, .no_warmup = true, .need = need_step_size}};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

/* Returns NULL for an unknown name. */
static const row *find(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

bool dl_schedule_warms_up(const dl_config *config)
{
    const row *r = find(config->lr_scheduler);
    return r && !r->no_warmup;
}

diloco_status dl_schedule_check(const dl_config *config)
{
    const row *r = find(config->lr_scheduler);
    if (r && r->need) DL_TRY(r->need(config));
    DL_TRY(check_step_size(config));
    DL_TRY(check_milestones(config));
    return check_epochs(config);
}

const char *dl_schedule_name_at(size_t i)
{
    return i < N_ROWS ? rows[i].name : NULL;
}

diloco_status dl_schedule_lr(double *lr, const dl_config *config, uint64_t step, uint64_t total,
                             uint64_t epoch)
{
    const double first = (double)config->first_step; /* an extended run: on the longer schedule */
    span s = {first + (double)step, first + (double)total,
              (double)config->warmup_steps + (double)config->warmup_epochs * (double)epoch,
              config->decay_steps ? (double)config->decay_steps : (first + (double)total) / 10};
    const row *r = find(config->lr_scheduler);
    if (!r)
        return dl_fail(
            DILOCO_EINVAL,
            "trainer.lr_scheduler: there is no \"%s\"; use constant, linear, cosine, wsd, "
            "LambdaLR, MultiStepLR or StepLR",
            config->lr_scheduler);
    const double low = config->min_lr_ratio;
    if (r->alone)
        *lr = config->lr * r->alone(config, &s, epoch);
    else if (s.step < s.warmup)
        *lr = config->lr * (s.step + 1) / s.warmup;
    else
        *lr = config->lr * (low + (1 - low) * r->factor(&s));
    return DILOCO_OK;
}
