/* node_parts.h - shared by the files of a node, and by no other file:
 *
 *     gossip.c       its course
 *     node_copy.c    copies a neighbour's model
 *     node_state.c   saves a node, and resumes it
 *     node_record.c  writes its record */
#ifndef DL_GOSSIP_NODE_PARTS_H
#define DL_GOSSIP_NODE_PARTS_H

#include "gossip/node_dir.h"
#include "gossip/wire.h"
#include "run/divergence.h"
#include "train/replica_loop.h"

/* The model of a node, in memory. */
typedef struct dl_gossip_model {
    void **data; /* [n_tensors] of the model, in the manifest's order, in host places */
    const diloco_tensor *tensors;
    size_t n_tensors;
    dl_private privates[DL_HOME_PRIVATES];
    size_t n_privates;
} dl_gossip_model;

/* The training of a node. */
typedef struct dl_gossip_trained {
    uint64_t position;           /* of the run */
    uint64_t steps;              /* completed by this node in all its generations */
    uint64_t next_sample, shard; /* of its stream */
    dl_local_fragment work;      /* since theta */
    dl_divergence divergence;    /* is the model far worse after the last round? */
    uint64_t tokens;             /* of this generation */
} dl_gossip_trained;

/* The exchange of one round. */
typedef struct dl_gossip_exchange {
    dl_contribution own, own_model;      /* to the round in flight */
    dl_mix_input input;                  /* the newest of the two, as dl_mix_step takes it */
    dl_time trained_at;                  /* when the exchange in flight began */
    double train_s;                      /* the last round's steps took */
    uint64_t bytes_sent, bytes_received; /* as of the last round */
} dl_gossip_exchange;

typedef struct dl_gossip_process {
    dl_replica base;
    dl_runfile run;
    dl_hash run_digest;

    dl_home home;
    dl_state state;
    dl_mix *mix;
    dl_node node;
    dl_wire *wire;
    bool resumed;
    bool over; /* the node has no further action */

    dl_gossip_model model;
    dl_gossip_trained trained;
    dl_gossip_exchange exchange;
} dl_gossip_process;

static inline const dl_config *dl_gossip_config(const dl_gossip_process *l)
{
    return &l->base.setup.config;
}

static inline uint64_t dl_gossip_round_steps(const dl_gossip_process *l)
{
    return (uint64_t)dl_gossip_config(l)->local_steps;
}

/* gossip.c: dl_gossip_progress reports this node's phase to the hooks. dl_gossip_start_round makes
 * the tensors theta, before the first step of a round. */
void dl_gossip_progress(dl_gossip_process *l, const char *phase);
void dl_gossip_start_round(dl_gossip_process *l);

/* node_copy.c: copies the model of the node that l->node has chosen. A source that fails is a
 * warning, and the node chooses again. */
DL_MUST_CHECK diloco_status dl_gossip_copy(dl_gossip_process *l);

/* node_state.c: lists the arrays of the private state. Call it after the step is made and before
 * the other functions. */
DL_MUST_CHECK diloco_status dl_gossip_list_privates(dl_gossip_process *l);
/* The model's values into the host places that `data` and `tensors` name. */
DL_MUST_CHECK diloco_status dl_gossip_pull_tensors(dl_gossip_process *l);
/* theta and buffers of the state into the model. */
void dl_gossip_adopt(dl_gossip_process *l);
/* Read the saved state of an earlier generation, with the model that it rests on: *resumed. Returns
 * DILOCO_EPROTO or DILOCO_EDIFFERS if it cannot be used; the text says what to do. */
DL_MUST_CHECK diloco_status dl_gossip_resume(dl_gossip_process *l, bool *resumed);
/* The run's first model, into the tensors too. *blank: this machine does not have it. */
DL_MUST_CHECK diloco_status dl_gossip_begin(dl_gossip_process *l, bool *blank);
DL_MUST_CHECK diloco_status dl_gossip_save_private(dl_gossip_process *l);
/* The state before l->state.control.entry: made durable, then announced. */
DL_MUST_CHECK diloco_status dl_gossip_save_round(dl_gossip_process *l);

/* node_record.c */
DL_MUST_CHECK diloco_status dl_gossip_record_begin(dl_gossip_process *l);
/* The result of an exchange: "round" of contributions, "agreement" of models. With the lock, while
 * the node knows the members that came. */
DL_MUST_CHECK diloco_status dl_gossip_record_exchange(dl_gossip_process *l, const char *event,
                                                      bool stepped, const dl_mix_facts *facts,
                                                      double outer_s);
DL_MUST_CHECK diloco_status dl_gossip_record_end(dl_gossip_process *l);

#endif
