/* sampler_orthogonal.c - silos that own classes: client c is of silo c mod n_silos and sees nothing
 * of the others'. Two silos may name the same class; then they share it. */
#include "base/draw.h"
#include "data/samplers.h"

#include <stdlib.h>

static diloco_status wrong_classes(const dl_partition *p)
{
    return dl_fail(DILOCO_EINVAL,
                   "data.institution_class_ids = \"%s\": name the classes of each of %zu silos, "
                   "from 0 to %zu, with ',' between classes and ';' between silos "
                   "(\"0, 1; 2, 3\")",
                   p->config.institution_classes, p->n_silos, p->n_classes - 1);
}

/* The silos that data.institution_class_ids names. */
static size_t count_silos(const dl_partition *p)
{
    size_t n = 1;
    for (const char *c = p->config.institution_classes; *c; c++)
        n += *c == ';';
    return n;
}

/* Reads data.institution_class_ids: a ';' begins the next silo. */
static diloco_status read_classes(dl_partition *p)
{
    const char *text = p->config.institution_classes;
    uint64_t number;
    char after;
    bool wrong = false;
    for (size_t silo = 0; dl_next_number(&text, &number, &after, &wrong);) {
        silo += after == ';';
        if (silo >= p->n_silos || number >= p->n_classes) return wrong_classes(p);
        p->silo_has[silo * p->n_classes + number] = true;
    }
    return wrong ? wrong_classes(p) : DILOCO_OK;
}

/* Divides the classes among the silos if no option names them: neighbouring classes go together. */
static void share_out(dl_partition *p)
{
    for (size_t k = 0; k < p->n_classes; k++)
        p->silo_has[k * p->n_silos / p->n_classes * p->n_classes + k] = true;
}

/* The samples of all classes of a silo. */
static uint64_t silo_samples(const dl_partition *p, size_t silo)
{
    uint64_t n = 0;
    for (size_t k = 0; k < p->n_classes; k++)
        if (p->silo_has[silo * p->n_classes + k]) n += dl_class_size(p, k);
    return n;
}

/* Each silo must have as many samples as a client draws, as no client draws one twice. */
static diloco_status plan(dl_partition *p)
{
    bool named = p->config.institution_classes[0] != 0;
    size_t silos = (size_t)p->config.total_silos, n_named = count_silos(p);
    p->n_silos = silos ? silos : named ? n_named : dl_size_min(p->n_clients, p->n_classes);
    if (named && n_named != p->n_silos) return wrong_classes(p);
    if (!named && p->n_silos > p->n_classes)
        return dl_fail(DILOCO_EINVAL,
                       "algorithm.total_silos: %zu silos cannot share %zu classes so that each "
                       "has one: take fewer, or name their data.institution_class_ids",
                       p->n_silos, p->n_classes);
    p->silo_has = calloc(p->n_silos * p->n_classes, sizeof *p->silo_has);
    if (!p->silo_has) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu silos", p->n_silos);
    if (named)
        DL_TRY(read_classes(p));
    else
        share_out(p);
    for (size_t silo = 0; silo < p->n_silos; silo++)
        DL_TRY(dl_check_size(p, silo_samples(p, silo)));
    return DILOCO_OK;
}

/* Draws the weights of a silo's own classes; the others' are -1. The draw is over these classes
 * only: with a small concentration one class has nearly all of the weight, which may be another
 * silo's. */
static void draw_parts(double *weights, const dl_partition *p, const bool *has, dl_rng *rng)
{
    double parts[DL_SAMPLER_MAX_CLASSES];
    size_t n = 0;
    for (size_t k = 0; k < p->n_classes; k++)
        n += has[k];
    for (size_t k = 0; k < n; k++)
        parts[k] = 1;
    if (p->config.label_distribution == DL_LABELS_NONIID)
        dl_draw_dirichlet(parts, n, p->config.concentration, rng);
    for (size_t k = p->n_classes; k-- > 0;)
        weights[k] = has[k] ? parts[--n] : -1;
}

static void draw(uint32_t *out, const dl_partition *p, size_t client)
{
    double weights[DL_SAMPLER_MAX_CLASSES];
    dl_rng rng = dl_client_rng(p, client);
    draw_parts(weights, p, p->silo_has + client % p->n_silos * p->n_classes, &rng);
    dl_draw_samples(out, dl_equal_size(p, client), p, weights, &rng);
}

const dl_sampler dl_sampler_orthogonal = {.name = "orthogonal",
                                          .classes = true,
                                          .overlaps = true,
                                          .plan = plan,
                                          .size = dl_equal_size,
                                          .list = draw};
