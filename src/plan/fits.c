/* fits.c - tables 7, 9 and 10 and appendix A of arXiv:2503.09799. */
#include "plan/fits.h"

#include <math.h>

/* factor * n ^ exponent, n being the number of parameters. */
typedef struct power {
    double factor, exponent;
} power;

static const struct {
    uint32_t replicas; /* 0: data-parallel */
    power loss, lr, batch;
} fits[] = {
    /* the paper's tables 7, 9 and 10, by number of replicas */
    {0, {18.129, -0.0953}, {16319.2, -0.819}, {462.68, 0.281}},
    {1, {18.363, -0.0961}, {74620.6, -0.945}, {27.873, 0.435}},
    {2, {18.768, -0.0969}, {3978.82, -0.780}, {15.749, 0.479}},
    {4, {19.762, -0.0992}, {4512.99, -0.789}, {10.957, 0.510}},
    {8, {21.051, -0.1018}, {618986, -1.102}, {38.072, 0.455}},
};

static double at(power p, double n)
{
    return p.factor * pow(n, p.exponent);
}

dl_fit dl_fit_for(double n, uint32_t replicas)
{
    for (size_t i = 0; i < sizeof fits / sizeof fits[0]; i++)
        if (fits[i].replicas == replicas)
            return (dl_fit){.loss = at(fits[i].loss, n),
                            .inner_lr = at(fits[i].lr, n),
                            .batch_tokens = at(fits[i].batch, n)};
    /* Other numbers of replicas take the joint fit over N and M. */
    return (dl_fit){.loss = 19.226 * pow(n, -0.0985) * pow(replicas, 0.0116),
                    .inner_lr = 22256 * pow(n, -0.8827) * pow(replicas, 0.2929),
                    .batch_tokens = 14.521 * pow(n, 0.4695) * pow(replicas, 0.3399)};
}

/* ---- idealised wall clock */

/* Constants of appendix A: a chip, and the network within a replica. */
static const double CHIP_FLOPS = 300e12, INNER_BITS_PER_S = 400e9, INNER_LATENCY_S = 1e-4;

/* Twice the bf16 parameters over the link, as the ring among that part of the chips asks. */
static double all_reduce(double parameters, double bits_per_s, double part, double latency_s)
{
    return 2 * 16 * parameters / bits_per_s * part + latency_s;
}

dl_ideal_time dl_ideal_wall_clock(const dl_ideal *i)
{
    double steps = i->tokens / i->batch_tokens;
    double whole = 1 - 1 / i->chips, within = 1 - (double)i->replicas / i->chips;
    double across = all_reduce(i->parameters, i->gbit * 1e9, whole, i->latency_s);
    dl_ideal_time t = {.compute_s = 6 * i->parameters * i->tokens / (i->chips * CHIP_FLOPS)};
    if (i->replicas < 2) { /* every step goes over the link between; M = 1 adds one in H */
        t.inner_s = steps * across;
        t.outer_s = i->replicas ? t.inner_s / i->sync_every : 0;
        return t;
    }
    t.inner_s = steps * all_reduce(i->parameters, INNER_BITS_PER_S, within, INNER_LATENCY_S);
    t.outer_s = steps / i->sync_every * across;
    return t;
}
