/* divergence.c - see divergence.h. */
#include "run/divergence.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A good outer step leaves the loss about unchanged. Noise, and data of another kind, may raise it
 * by some tenths. Above this, the step has ruined the model. */
static const double FACTOR = 0.5, MORE = 0.5;

void dl_divergence_norm(dl_divergence *s, const char *replica, double norm)
{
    const size_t len = strlen(s->norms);
    if (isfinite(norm))
        snprintf(s->norms + len, sizeof s->norms - len, " %s %.3g", replica, norm);
    else
        snprintf(s->norms + len, sizeof s->norms - len, " %s ?", replica);
}

/* A comparison that has begun is finished first, so that frequent adoptions cannot restart it for
 * ever. */
void dl_divergence_adopt(dl_divergence *s, const dl_divergence *now)
{
    if (s->warned || s->left || !isfinite(now->inner)) return;
    *s = *now;
    s->sum = s->n_finite = 0;
    s->left = DL_DIVERGENCE_STEPS;
}

/* The bound has a relative and an absolute part, because losses near zero vary by more than a
 * fraction of themselves. A NaN loss warns too: the comparison below is false for it. */
bool dl_divergence_step(dl_divergence *s, double loss, char *text, size_t cap)
{
    if (!s->left) return false;
    if (!isinf(loss)) s->sum += loss, s->n_finite++;
    if (--s->left) return false;
    const double after = s->n_finite ? s->sum / s->n_finite : INFINITY;
    if (after <= s->inner + FACTOR * fabs(s->inner) + MORE) return false;
    s->warned = true;
    snprintf(text, cap,
             "entry %llu: the loss is %.3g after it (the mean of %d steps), and its members had "
             "%.3g: its outer step is too long, or one member's contribution is bad. Lower the "
             "outer learning rate. server.diloco.outer_learning_rate was %g, outer_momentum %g; "
             "its members moved by:%s",
             (unsigned long long)s->entry, after, DL_DIVERGENCE_STEPS, s->inner, s->lr, s->mu,
             s->norms);
    return true;
}
