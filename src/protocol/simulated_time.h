/* simulated_time.h - simulated heterogeneity of logical clients (docs/federated.md, "Simulated
 * time"): who can be asked in a round, who never answers, how long each of the others takes, and so
 * whom a round waits for and what it takes. Nobody sleeps: an answer that would come too late is
 * not trained at all.
 *
 *     seconds = clients.avg_training_time + slowness          by client, from a distribution
 *             + bits down / link + bits up / link             the slower of its own and its share
 *                                                             of the server's
 *
 * All of it follows from the settings, clients.random_seed, the entry and the client, to the same
 * bits on every machine (base/draw.h). Pure. */
#ifndef DL_PROTOCOL_SIMULATED_TIME_H
#define DL_PROTOCOL_SIMULATED_TIME_H

#include "base/config.h"
#include "log/entry.h"
#include "tensor/manifest.h"

typedef struct dl_simulation {
    const dl_config *config;   /* borrowed; NULL: nothing is simulated */
    double down_bits, up_bits; /* of a round: the model's values; a contribution at its longest */
} dl_simulation;

/* Of clients.speed_simulation, else of nothing. DILOCO_EINVAL, DILOCO_ENOMEM: of the codec. */
DL_MUST_CHECK diloco_status dl_simulation_init(dl_simulation *out, const dl_config *config,
                                               const dl_manifest *manifest);

typedef struct dl_simulated {
    double seconds; /* from the round's begin to its answer */
    bool answers;   /* false: it drops out */
    bool awaited;   /* its answer is there when the round closes */
} dl_simulated;

/* By itself, before it is known when the round closes: awaited is false. */
dl_simulated dl_simulation_client(const dl_simulation *s, uint64_t entry, uint64_t client);

/* clients[i] is of roster->names[i]. Returns what the round takes in simulated seconds: until the
 * last answer, or until it closes without the rest: run.grace behind the answer that makes
 * run.close_at, and where run.on_missing does not wait, run.deadline at the latest. */
double dl_simulation_round(dl_simulated *clients, const dl_simulation *s, uint64_t entry,
                           const dl_roster *roster);

/* Can this client be asked at that entry (clients.availability)? True where nothing is simulated.
 */
bool dl_simulation_available(const dl_config *config, uint64_t entry, uint64_t client);

/* Do the distribution's values fit together, and does a round end? DILOCO_EINVAL,
 * DILOCO_EREFUSED. */
DL_MUST_CHECK diloco_status dl_simulation_check(const dl_config *config);

#endif
