/* clients.h - logical clients of the caller's own (docs/federated.md): a federated run whose
 * clients are trained by a function of the caller's, in place of the project's own trainer.
 *
 *     diloco_run_open(&run, config, "r0");        // clients.total_clients and the rest by name
 *     diloco_run_tensor(run, &weights);           // the shared model
 *     diloco_run_private(run, "moments", m, len); // a client's private state, in host memory
 *     diloco_clients_run(run, &(diloco_clients){.fit = fit});
 *     diloco_run_close(run);
 *
 * Sampling, the assignment of clients to workers, saved state and contributions are as in every
 * federated run. */
#ifndef DILOCO_CLIENTS_H
#define DILOCO_CLIENTS_H

#include <diloco/run.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One client's turn in a round. */
typedef struct diloco_client_turn {
    uint64_t client;      /* 1 to clients.total_clients; client k has shard k - 1 of the data */
    uint64_t entry;       /* of the log: the round */
    uint64_t steps;       /* that the client completed before, in all rounds that counted it */
    uint64_t next_sample; /* of its stream: samples that it was trained on before */
    bool fresh;           /* it has no private state: the registered pieces are zero */
} diloco_client_turn;

/* The result of a client's turn. */
typedef struct diloco_client_report {
    uint64_t holds; /* samples that it has: its weight; 0: it has none, and the others are 0 too */
    uint64_t steps; /* trainer.local_steps_per_round of them, or any number where that is 0 */
    uint64_t samples, tokens; /* that it was trained on */
    double loss;              /* mean of its steps; NAN: not known */
} diloco_client_report;

typedef struct diloco_clients {
    void *user;
    /* Train one client. Before the call the registered tensors are the shared model and the private
     * pieces are the client's; after it they are what the client made of them. The result has to
     * follow from these and the client's data alone, because another worker may train the same
     * client of the same round. An error ends diloco_clients_run with it. Not called in a process
     * with run.role = "server", where it may be NULL. */
    diloco_status (*fit)(void *user, const diloco_client_turn *turn, diloco_client_report *report);
    /* Entry `entry` is decided, and the tensors are the shared model; or NULL. May change the
     * tensors: they are filled again before they are read. */
    diloco_status (*round)(void *user, uint64_t entry);
} diloco_clients;

/* Join the run and stay until its end: train clients (run.role "worker"), close rounds ("server"),
 * or both. Returns DILOCO_EINVAL if the run has no clients (clients.total_clients), or if a report
 * does not fit the run (the text names the client). Returns DILOCO_EREFUSED as for every federated
 * run, DILOCO_EDIFFERS if a client's state is lost (clients.on_lost_state), and DILOCO_EINTERRUPTED
 * after diloco_run_interrupt. It also returns the errors of diloco_run_join and diloco_step. After
 * an error close the run; the same calls on a new handle resume. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_clients_run_sized(diloco_run *run,
                                                                    const diloco_clients *clients,
                                                                    size_t size);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_clients_run(diloco_run *run,
                                                                const diloco_clients *clients)
{
    return diloco_clients_run_sized(run, clients, sizeof *clients);
}

#ifdef __cplusplus
}
#endif
#endif
