/* simulated_time.c - see simulated_time.h. A distribution is a function and a row. */
#include "protocol/simulated_time.h"

#include "base/draw.h"
#include "codec/codec.h"
#include "log/contribution.h"
#include "protocol/logical_clients.h"

#include <math.h>

enum { DRAWS = 256 }; /* blocks of random numbers that each client has */
enum { SPEED, LINK }; /* streams by client */
enum { AVAILABLE, ANSWERS, ROUND_DRAWS };

/* ---- distributions: seconds by which a client is slower than the fastest ---- */

static double power(double x, double y)
{
    return dl_draw_exp(y * dl_draw_log(x));
}

static double draw_normal(const dl_config *c, dl_rng *rng)
{
    return c->sleep_mean + c->sleep_sd * dl_draw_normal(rng);
}

static double draw_uniform(const dl_config *c, dl_rng *rng)
{
    return c->sleep_low + dl_rng_f64(rng) * (c->sleep_high - c->sleep_low);
}

/* Lomax's distribution, as numpy's pareto: from 0 on. */
static double draw_pareto(const dl_config *c, dl_rng *rng)
{
    return power(1 - dl_rng_f64(rng), -1 / c->sleep_alpha) - 1;
}

/* Returns the sum of k^-s over all k: the first terms by addition, the rest by the Euler-Maclaurin
 * formula. */
static double zeta(double s)
{
    enum { BY_HAND = 64 };
    double sum = 0;
    for (int k = 1; k < BY_HAND; k++)
        sum += power(k, -s);
    return sum + power(BY_HAND, 1 - s) / (s - 1) + power(BY_HAND, -s) / 2;
}

/* Draws k with probability k^-s / zeta(s). Values above the longest sleep are cut to it anyway. */
static double draw_zipf(const dl_config *c, dl_rng *rng)
{
    const double scale = 1 / zeta(c->sleep_s), u = dl_rng_f64(rng);
    double k = 1, below = scale;
    for (; below <= u && k < c->max_sleep_s; below += scale * power(k, -c->sleep_s))
        k++;
    return k;
}

static double (*const draws[])(const dl_config *config, dl_rng *rng) = {
    [DL_SLEEP_NORMAL] = draw_normal,
    [DL_SLEEP_UNIFORM] = draw_uniform,
    [DL_SLEEP_PARETO] = draw_pareto,
    [DL_SLEEP_ZIPF] = draw_zipf,
};

static double slowness(const dl_config *c, uint64_t client)
{
    dl_rng rng;
    dl_rng_init(&rng, (uint64_t)c->simulation_seed, DL_STREAM(DL_STREAM_SIMULATED_CLIENT, SPEED),
                client * DRAWS);
    DL_ASSERT((size_t)c->sleep_distribution < sizeof draws / sizeof draws[0]);
    return fmin(fmax(draws[c->sleep_distribution](c, &rng), 0), c->max_sleep_s);
}

/* ---- links ---- */

/* Returns bits/s, or INFINITY for no limit: clients.bandwidth times a log-normal factor. */
static double own_link(const dl_config *c, uint64_t client)
{
    dl_rng rng;
    if (c->bandwidth == 0) return INFINITY;
    dl_rng_init(&rng, (uint64_t)c->simulation_seed, DL_STREAM(DL_STREAM_SIMULATED_CLIENT, LINK),
                client * DRAWS);
    return c->bandwidth * 1e6 * dl_draw_exp(c->bandwidth_sigma * dl_draw_normal(&rng));
}

/* The server's link is divided among the sampled clients, as in Plato. */
static double share(const dl_config *c, double mbits)
{
    return mbits == 0 ? INFINITY : mbits * 1e6 / (double)dl_clients_per_round(c);
}

static double transfer_s(const dl_simulation *s, uint64_t client)
{
    const dl_config *c = s->config;
    const double own = own_link(c, client);
    return s->down_bits / fmin(own, share(c, c->server_down)) +
           s->up_bits / fmin(own, share(c, c->server_up));
}

/* ---- a client in a round ---- */

static double chance(const dl_config *c, uint64_t entry, uint64_t client, int which)
{
    dl_rng rng;
    dl_rng_init(&rng, (uint64_t)c->simulation_seed, DL_STREAM(DL_STREAM_SIMULATED_ROUND, entry),
                client * ROUND_DRAWS + (uint64_t)which);
    return dl_rng_f64(&rng);
}

bool dl_simulation_available(const dl_config *c, uint64_t entry, uint64_t client)
{
    return !c->speed_simulation || c->availability >= 1 ||
           chance(c, entry, client, AVAILABLE) < c->availability;
}

dl_simulated dl_simulation_client(const dl_simulation *s, uint64_t entry, uint64_t client)
{
    const dl_config *c = s->config;
    return (dl_simulated){.seconds = c->training_s + slowness(c, client) + transfer_s(s, client),
                          .answers =
                              c->dropout == 0 || chance(c, entry, client, ANSWERS) >= c->dropout};
}

/* ---- a round ---- */

static bool in_time(const dl_simulated *client, double limit)
{
    return client->answers && client->seconds <= limit;
}

/* Returns when the n-th answer arrives, or INFINITY. */
static double nth_answer(const dl_simulated *clients, size_t n_clients, size_t n, double limit)
{
    double first = INFINITY;
    for (size_t i = 0; i < n_clients; i++) {
        size_t until = 0;
        if (!in_time(&clients[i], limit) || clients[i].seconds >= first) continue;
        for (size_t k = 0; k < n_clients; k++)
            until += in_time(&clients[k], clients[i].seconds);
        if (until >= n) first = clients[i].seconds;
    }
    return first;
}

static double closes_at(const dl_config *c, const dl_simulated *clients, size_t n)
{
    const double limit = c->on_missing != DL_MISSING_WAIT ? c->deadline_s : INFINITY;
    if (c->close_at == 0) return limit;
    const size_t wanted = (size_t)c->close_at < n ? (size_t)c->close_at : n;
    return fmin(limit, nth_answer(clients, n, wanted, limit) + c->grace_s);
}

double dl_simulation_round(dl_simulated *clients, const dl_simulation *s, uint64_t entry,
                           const dl_roster *roster)
{
    size_t n_awaited = 0;
    double last = 0;
    /* no client was available: the round is lost */
    if (roster->n == 0) return s->config->training_s;
    for (size_t i = 0; i < roster->n; i++)
        clients[i] = dl_simulation_client(s, entry, dl_client_number(roster->names[i]));
    const double limit = closes_at(s->config, clients, roster->n);
    for (size_t i = 0; i < roster->n; i++) {
        clients[i].awaited = in_time(&clients[i], limit);
        if (!clients[i].awaited) continue;
        n_awaited++;
        last = fmax(last, clients[i].seconds);
    }
    DL_ASSERT(last >= 0 && last <= limit);
    return n_awaited == roster->n ? last : limit;
}

/* ---- opening, checking ---- */

diloco_status dl_simulation_init(dl_simulation *out, const dl_config *config,
                                 const dl_manifest *manifest)
{
    *out = (dl_simulation){.config = NULL};
    if (!dl_config_federated(config) || !config->speed_simulation) return DILOCO_OK;
    dl_codec_form form;
    const dl_fragment_shape shape = manifest->fragments[0];
    const size_t others = shape.n_integers * sizeof(int64_t) + shape.n_booleans;
    DL_TRY(dl_codec_form_init(&form, config, manifest, 0));
    out->down_bits = 8 * (double)((shape.n_trained + shape.n_averaged) * sizeof(float) + others);
    out->up_bits = 8 * (double)(DL_CONTRIBUTION_HEADER + form.bound + others);
    dl_codec_form_deinit(&form);
    out->config = config;
    return DILOCO_OK;
}

diloco_status dl_simulation_check(const dl_config *c)
{
    const dl_sleep_choice d = c->sleep_distribution;
    if (!dl_config_federated(c) || !c->speed_simulation) return DILOCO_OK;
    if (d == DL_SLEEP_ZIPF && c->sleep_s <= 1)
        return dl_fail(DILOCO_EINVAL,
                       "clients.simulation_distribution.s = %g: Zipf's distribution needs more "
                       "than 1",
                       c->sleep_s);
    if (d == DL_SLEEP_UNIFORM && c->sleep_low > c->sleep_high)
        return dl_fail(DILOCO_EINVAL,
                       "clients.simulation_distribution.low = %g is above high = %g: exchange them",
                       c->sleep_low, c->sleep_high);
    if (c->dropout > 0 && c->on_missing == DL_MISSING_WAIT)
        return dl_fail(DILOCO_EREFUSED,
                       "clients.dropout = %g with run.on_missing = \"wait\" waits for clients that "
                       "never answer: set \"commit_partial\" and run.deadline, in simulated "
                       "seconds, or leave dropout 0",
                       c->dropout);
    return DILOCO_OK;
}
