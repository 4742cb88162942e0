/* config.h - every setting of a run, once: the struct the option table fills.
 *
 * Adding an option is a field here and a row in config.c. Names follow the field's own
 * tools (docs/architecture.md section 6): Plato's sections, torchft's aliases. */
#ifndef DL_BASE_CONFIG_H
#define DL_BASE_CONFIG_H

#include "base/option.h"
#include "base/options/clients_options.h"
#include "base/options/combine_options.h"
#include "base/options/data_options.h"
#include "base/options/model_options.h"
#include "base/options/outer_options.h"
#include "base/options/run_options.h"
#include "base/options/schedule_options.h"
#include "base/options/swarm_options.h"
#include "base/options/trainer_options.h"
#include "base/options/wire_options.h"
#include <diloco/config.h>

enum { DL_PATH_MAX = 1023, DL_CONFIG_MAX_OPTIONS = 256 };

typedef char dl_config_path[DL_PATH_MAX + 1];
typedef char dl_config_name[DL_OPTION_NAME_MAX + 1];

typedef struct diloco_config {
    dl_config_name preset;

    /* [run] the log, its store, who takes part */
    dl_config_path store, coord, state_dir, record, track, notify, link;
    dl_config_path members, committers, key, invitation;
    bool first_life; /* no option, but of one start: the name was free when it was chosen */
    bool peers, trace_protocol;
    dl_config_path peers_listen, peers_address;
    int64_t seed, replicas, min_replicas, threads, local_replicas, restarts, fetchers;
    double start_timeout_s, deadline_s, quorum, patience_s, heartbeat_s, snapshot_s,
        store_timeout_s, grace_s, grace_slack, drop;
    double alone_tokens_per_s;
    int64_t close_at, max_staleness;
    bool dylu;
    dl_config_name single_committer;
    dl_missing_choice on_missing;
    dl_uncounted_choice on_uncounted;
    dl_retain_choice retain;
    dl_spool_choice spool;
    dl_offload_choice offload;
    dl_policy roster;
    int64_t spool_mb;

    /* [clients] logical clients; total_clients > 0 is what makes a run federated */
    dl_config_name client_type;
    dl_config_path outbound, inbound;
    int64_t total_clients, per_round;
    dl_config_path client_state;
    /* … simulated: seconds, Mbit/s */
    bool speed_simulation;
    int64_t simulation_seed;
    double training_s, max_sleep_s, availability, dropout, bandwidth, bandwidth_sigma;
    dl_sleep_choice sleep_distribution;
    double sleep_mean, sleep_sd, sleep_s, sleep_alpha, sleep_low, sleep_high;
    double server_down, server_up;
    dl_role_choice role;
    dl_lost_state_choice on_lost_state;
    dl_payload_choice payload;

    /* [swarm] who meets without a log, and how */
    dl_consensus_choice consensus;
    dl_swarm_exchange_choice swarm_exchange;
    int64_t min_peers, agree_every;
    dl_config_path bootstrap, listen, address, cert, cert_key;
    bool insecure;

    /* [server], [algorithm], [results], [general] */
    dl_config_name algorithm_type;
    dl_server_choice server_type;
    bool synchronous, server_test, plato_compat;
    int64_t total_silos;
    dl_config_path result_types, result_path, base_path;

    /* [server.diloco] the outer step */
    dl_config_name outer_optimizer, weighting, combiner, codec;
    dl_apply_choice apply_to;
    dl_codec_values_choice codec_values;
    dl_compression_choice compression;
    dl_exchange_choice exchange;
    double codec_keep, codec_prune, error_feedback;
    double outer_lr, outer_mu, outer_beta1, outer_beta2, outer_eps, outer_c, outer_beta;
    int64_t outer_buffer;
    dl_outer_lr_choice outer_lr_schedule;
    double outer_min_ratio;
    int64_t fragments, fragment_layers, overlap_steps, own_overlap_steps;
    dl_pattern_choice fragment_pattern;
    dl_schedule_choice schedule;
    dl_overlap overlap;
    double local_mix;
    double trim, clip_radius;
    double check_norm, check_short, check_element, check_cosine, check_copy, check_probe;
    int64_t check_repeat;
    int64_t ban_after, ban_entries;
    int64_t byzantine, bucket_size, slice_owners;
    dl_mixing pre_aggregation;
    dl_fallback_choice robust_fallback;
    dl_rescale_choice rescale;

    /* [trainer] the inner loop */
    dl_config_name trainer_type, model, optimizer, lr_scheduler;
    int64_t rounds, epochs, local_steps, batch_size, accumulation, eval_every, eval_batches;
    double gradient_clip, target_accuracy, proximal_mu;
    dl_config_path init_from;
    dl_init_choice init_as;
    bool preserve_optimizer_state;

    /* [parameters.optimizer], [parameters.learning_rate] */
    double lr, weight_decay, beta1, beta2, eps, momentum, momentum_weight, muon_lr, muon_momentum;
    bool muon_nesterov;
    int64_t muon_steps;
    dl_decayed_choice decayed;
    int64_t warmup_steps, warmup_epochs, decay_steps, rewarm_steps;
    double min_lr_ratio, gamma;
    dl_config_path milestones, local_steps_phases;

    /* [parameters.model] */
    int64_t layers, heads, kv_heads, head_dim, channels, ffn, context, vocab, num_classes,
        in_channels;
    dl_config_path hidden, frozen;
    bool tied, qk_norm;
    dl_rope_scaling rope_scaling;
    double rope_theta, rope_factor, rope_low, rope_high, norm_eps, z_loss;
    int64_t rope_original;

    /* [data] */
    dl_config_name datasource, tokenizer, sampler;
    dl_deal_choice deal;
    dl_stream_choice stream;
    dl_labels_choice label_distribution;
    int64_t partition_size, data_seed, min_partition_size, per_client_classes;
    double concentration, label_concentration, quantity_concentration;
    dl_config_path institution_classes, non_iid_clients;
    dl_config_path train_path, test_path, tokenizer_path;
    char tokenizer_digest[33];
    double test_fraction;
    bool augment;

    /* [launch] how replicas are started elsewhere (docs/launch.md) */
    dl_config_path launch_executor, launch_dir, launch_binary, launch_env, launch_secrets;
    dl_config_path launch_ssh_config, launch_queue, launch_account, launch_prices;
    int64_t launch_restarts, launch_cpus, launch_gpus;
    double launch_memory_gb, launch_timeout_s, launch_grace_s, launch_lost_after_s, launch_poll_s;
    double launch_budget;

    dl_origin origins[DL_CONFIG_MAX_OPTIONS]; /* by row */

    const struct dl_own_rows *own; /* no option: base/own.h; borrowed, NULL: none */
} dl_config;

extern const dl_option_table dl_config_table;

void dl_config_init(dl_config *config); /* all defaults */

/* Set by name or alias (DILOCO_EINVAL as dl_option_set). */
DL_MUST_CHECK diloco_status dl_config_set(dl_config *config, const char *name, const char *text,
                                          const char *origin);
const char *dl_config_origin(const dl_config *config, const char *name);
/* Set by anything but the default? */
bool dl_config_given(const dl_config *config, const char *name);

/* Are contributions compared with each other by their directions? */
static inline bool dl_config_checks_directions(const dl_config *config)
{
    return config->check_cosine > -1 || (config->check_copy > 0 && config->check_copy < 1);
}
/* Replicas that this machine runs. */
static inline int64_t dl_local_replicas(const dl_config *config)
{
    return config->local_replicas ? config->local_replicas : config->replicas;
}
/* Do logical clients train (docs/federated.md), and not the replicas themselves? */
static inline bool dl_config_federated(const dl_config *config)
{
    return config->total_clients > 0;
}
/* How many of them a round asks. */
static inline size_t dl_config_per_round(const dl_config *config)
{
    return (size_t)(config->per_round ? config->per_round : config->total_clients);
}

#endif
