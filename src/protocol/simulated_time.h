/* simulated_time.h - simulated differences between logical clients (docs/federated.md, "Simulated
 * time"). It determines which clients are available in a round, which never answer, and how long
 * the others take. So it determines which clients a round waits for, and the round's length. No
 * process sleeps: a client whose answer would be too late is not trained.
 *
 *     seconds = clients.avg_training_time + slowness          by client, from a distribution
 *             + bits down / link + bits up / link             the slower of its own and its share
 *                                                             of the server's
 *
 * All of it follows from the settings, clients.random_seed, the entry and the client, with the same
 * bits on every machine (base/draw.h). Pure. */
#ifndef DL_PROTOCOL_SIMULATED_TIME_H
#define DL_PROTOCOL_SIMULATED_TIME_H

#include "base/config.h"
#include "log/entry.h"
#include "tensor/manifest.h"

typedef struct dl_simulation {
    const dl_config *config;   /* borrowed; NULL: not simulated */
    double down_bits, up_bits; /* of a round: the model's values; the longest contribution */
} dl_simulation;

/* Initializes from clients.speed_simulation; without it nothing is simulated. Returns DILOCO_EINVAL
 * or DILOCO_ENOMEM of the codec. */
DL_MUST_CHECK diloco_status dl_simulation_init(dl_simulation *out, const dl_config *config,
                                               const dl_manifest *manifest);

typedef struct dl_simulated {
    double seconds; /* from the beginning of the round to its answer */
    bool answers;   /* false: it drops out */
    bool awaited;   /* its answer arrives before the round closes */
} dl_simulated;

/* Computes a client by itself, before the end of the round is known: awaited is false. */
dl_simulated dl_simulation_client(const dl_simulation *s, uint64_t entry, uint64_t client);

/* Computes a round; clients[i] is of roster->names[i]. Returns its simulated seconds: until the
 * last answer, or until it closes without the rest. It closes run.grace after the answer that makes
 * run.close_at. If run.on_missing does not wait, it closes after run.deadline at the latest. */
double dl_simulation_round(dl_simulated *clients, const dl_simulation *s, uint64_t entry,
                           const dl_roster *roster);

/* Returns whether this client is available at that entry (clients.availability); true if nothing is
 * simulated. */
bool dl_simulation_available(const dl_config *config, uint64_t entry, uint64_t client);

/* Checks that the distribution's values are consistent, and that a round ends. Returns
 * DILOCO_EINVAL or DILOCO_EREFUSED. */
DL_MUST_CHECK diloco_status dl_simulation_check(const dl_config *config);

#endif
