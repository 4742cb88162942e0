/* config.h - every setting of a run, once: the struct the option table fills.
 *
 * Adding an option is a field here and a row in config.c. Names follow the field's own
 * tools (docs/design.md section 6): Plato's sections, torchft's aliases. */
#ifndef DL_BASE_CONFIG_H
#define DL_BASE_CONFIG_H

#include "base/option.h"
#include <diloco/config.h>

enum { DL_PATH_MAX = 1023, DL_CONFIG_MAX_OPTIONS = 256 };

typedef char dl_config_path[DL_PATH_MAX + 1];
typedef char dl_config_name[DL_OPTION_NAME_MAX + 1];

typedef struct diloco_config {
    dl_config_name preset;

    /* [run] the log, its store, who takes part */
    dl_config_path store, state_dir, record, link;
    int64_t seed, replicas, min_replicas, threads, local_replicas, restarts;
    double start_timeout_s, deadline_s, quorum, patience_s, heartbeat_s, snapshot_s,
        store_timeout_s, grace_s, grace_slack;
    int64_t close_at, max_staleness;
    bool dylu;
    dl_config_name on_missing, on_uncounted, retain, spool;
    int64_t spool_mb;

    bool synchronous;

    /* [server.diloco] the outer step */
    dl_config_name outer_optimizer, weighting, apply_to, combiner, codec, codec_values, compression;
    double codec_keep, codec_prune, error_feedback;
    double outer_lr, outer_mu, outer_beta1, outer_beta2, outer_eps, outer_c, outer_beta;
    int64_t outer_buffer;
    dl_config_name outer_lr_schedule;
    double outer_min_ratio;
    int64_t fragments, fragment_layers, overlap_steps;
    dl_config_name fragment_pattern, schedule, overlap;
    double local_mix;
    double trim;
    int64_t byzantine, bucket_size;
    dl_config_name pre_aggregation, robust_fallback;

    /* [trainer] the inner loop */
    dl_config_name model, optimizer, lr_scheduler;
    int64_t rounds, local_steps, batch_size, accumulation, eval_every, eval_batches;
    double gradient_clip;
    dl_config_path init_from;
    bool preserve_optimizer_state;

    /* [parameters.optimizer], [parameters.learning_rate] */
    double lr, weight_decay, beta1, beta2, eps, momentum, muon_lr, muon_momentum;
    bool muon_nesterov;
    int64_t muon_steps;
    int64_t warmup_steps, decay_steps, rewarm_steps;
    double min_lr_ratio;

    /* [parameters.model] */
    int64_t layers, heads, kv_heads, channels, ffn, context, vocab, num_classes, in_channels;
    dl_config_path hidden, frozen;
    bool tied, qk_norm;
    double rope_theta, norm_eps, z_loss;

    /* [data] */
    dl_config_name datasource, tokenizer, partition;
    dl_config_path train_path, test_path;
    double test_fraction;
    bool augment;

    dl_origin origins[DL_CONFIG_MAX_OPTIONS]; /* by row */
} dl_config;

extern const dl_option_table dl_config_table;

void dl_config_init(dl_config *config); /* all defaults */

/* Set by name or alias (DILOCO_EINVAL as dl_option_set). */
DL_MUST_CHECK diloco_status dl_config_set(dl_config *config, const char *name, const char *text,
                                          const char *origin);
const char *dl_config_origin(const dl_config *config, const char *name);
/* Set by anything but the default? */
bool dl_config_given(const dl_config *config, const char *name);

#endif
