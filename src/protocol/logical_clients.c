/* logical_clients.c - see logical_clients.h.
 *
 * An entry samples the clients at the first `per_round` places of a keyed permutation of all. So
 * nothing is stored, no client is sampled twice, and each entry has another permutation. Clients
 * that are not available (simulated_time.h) are skipped; there may be too few then. */
#include "protocol/logical_clients.h"

#include "base/rng.h"
#include "protocol/simulated_time.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPARE_MEMBERS = 64 };

size_t dl_clients_per_round(const dl_config *c)
{
    return dl_config_federated(c) ? dl_config_per_round(c) : (size_t)c->replicas;
}

size_t dl_clients_max_members(const dl_config *c)
{
    return dl_size_min(dl_clients_per_round(c) + SPARE_MEMBERS, DL_MAX_MEMBERS);
}

size_t dl_clients_shards(const dl_config *c)
{
    return (size_t)(dl_config_federated(c) ? c->total_clients : c->replicas);
}

bool dl_clients_empty_momentum(const dl_config *c)
{
    return dl_config_federated(c) && c->plato_compat;
}

void dl_client_name_of(dl_client_name out, uint64_t client)
{
    snprintf(out, sizeof(dl_client_name), "client%" PRIu64, client);
}

uint64_t dl_client_number(const char *name)
{
    dl_client_name again;
    if (strncmp(name, "client", 6) != 0) return 0;
    const uint64_t client = strtoull(name + 6, NULL, 10);
    dl_client_name_of(again, client);
    return strcmp(name, again) == 0 ? client : 0;
}

static uint64_t asked_at(const dl_config *c, uint64_t entry, uint64_t place)
{
    return 1 + dl_rng_permute(place, (uint64_t)c->total_clients, (uint64_t)c->seed,
                              DL_STREAM(DL_STREAM_CLIENTS, entry));
}

/* Walks over the clients that an entry samples, in the order of the draw. */
typedef struct draw {
    const dl_config *config;
    uint64_t entry, place, n_asked, client;
} draw;

static bool next_asked(draw *d)
{
    const dl_config *c = d->config;
    if (d->n_asked == dl_clients_per_round(c)) return false;
    while (d->place < (uint64_t)c->total_clients) {
        d->client = asked_at(c, d->entry, d->place++);
        if (!dl_simulation_available(c, d->entry, d->client)) continue;
        d->n_asked++;
        return true;
    }
    return false;
}

void dl_clients_sample(dl_roster *out, const dl_config *config, uint64_t entry)
{
    dl_client_name name;
    out->n = 0;
    for (draw d = {config, entry, 0, 0, 0}; next_asked(&d);) {
        dl_client_name_of(name, d.client);
        const bool added = dl_roster_add(out, name, 0);
        DL_ASSERT(added);
    }
}

bool dl_clients_sampled(const dl_config *config, uint64_t entry, uint64_t client)
{
    for (draw d = {config, entry, 0, 0, 0}; next_asked(&d);)
        if (d.client == client) return true;
    return false;
}

static bool asks_all(const dl_config *config, const dl_roster *roster, uint64_t entry)
{
    dl_client_name name;
    draw d = {config, entry, 0, 0, 0};
    while (next_asked(&d)) {
        dl_client_name_of(name, d.client);
        if (!dl_roster_has(roster, name, NULL)) return false;
    }
    return d.n_asked == roster->n;
}

const char *dl_clients_void_reason(const dl_config *config, const dl_entry *entry,
                                   const dl_roster *asked)
{
    for (size_t i = 0; i < entry->n_members; i++)
        if (!dl_roster_has(asked, entry->members[i].generation.replica, NULL))
            return "it counts a client that was not asked";
    return asks_all(config, &entry->roster, entry->entry + 1)
               ? NULL
               : "its roster is not that of the clients that the next entry asks";
}
