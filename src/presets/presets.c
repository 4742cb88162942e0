/* presets.c - named algorithms as rows of values.
 *
 * A row has a name, a summary, its citation and its values. A new algorithm is a new row, here
 * and nowhere else. Values are those of the cited paper where it gives any; a comment above a
 * row says where it gives none. A row sets only what the algorithm defines: whatever it leaves
 * out keeps the default of the option. */
#include "presets/presets.h"

#include "presets/choices.h"

#include <stdio.h>
#include <string.h>

/* The values end with a NULL name. */
#define VALUES(...) ((const diloco_preset_value[]){__VA_ARGS__, {NULL, NULL}})

static const diloco_preset presets[] = {
    {"diloco", "local steps with AdamW, then one Nesterov step on the mean movement",
     "Douillard et al. 2023, arXiv:2311.08105, algorithm 1 and section 3; the outer learning rate "
     "by "
     "replicas, H and size of the model: Charles et al. 2025, arXiv:2503.09799 (diloco plan "
     "--advice)",
     VALUES({"trainer.local_steps_per_round", "500"}, {"trainer.optimizer", "adamw"},
            {"server.diloco.outer_optimizer", "nesterov"},
            {"server.diloco.outer_learning_rate", "0.7"}, {"server.diloco.outer_momentum", "0.9"},
            {"server.diloco.combiner", "mean"}, {"server.diloco.aggregation_weighting", "uniform"},
            {"server.diloco.codec", "f32"})},
    /* The outer values are the paper's. Inner values that it leaves open are as in the authors'
     * code (facebookresearch/MuLoCo, config/diloco). Muon's scale is src/nn/inner_muon.c's, not
     * theirs: docs/algorithms.md, "Inner optimizers". */
    {"muloco", "DiLoCo with Muon inside for the matrices, AdamW for the rest",
     "Therien et al. 2025, arXiv:2505.23725",
     VALUES({"trainer.local_steps_per_round", "30"}, {"trainer.optimizer", "muon"},
            {"parameters.optimizer.muon_momentum", "0.9"},
            {"parameters.optimizer.muon_nesterov", "false"},
            {"parameters.optimizer.muon_steps", "5"}, {"parameters.optimizer.beta2", "0.99"},
            {"server.diloco.outer_optimizer", "nesterov"},
            {"server.diloco.outer_learning_rate", "0.7"}, {"server.diloco.outer_momentum", "0.6"},
            {"server.diloco.combiner", "mean"}, {"server.diloco.aggregation_weighting", "uniform"},
            {"server.diloco.codec", "f32"})},
    /* fragments = 0 leaves their number to the model: one for three blocks each, and one for the
     * rest. */
    {"streaming", "DiLoCo one fragment at a time, during training, in four bits",
     "Douillard et al. 2025, arXiv:2501.18512, sections 2 and 3",
     VALUES({"trainer.local_steps_per_round", "100"}, {"trainer.optimizer", "adamw"},
            {"server.diloco.fragments", "0"}, {"server.diloco.fragment_layers", "3"},
            {"server.diloco.fragment_pattern", "strided"}, {"server.diloco.schedule", "offset"},
            {"server.diloco.overlap", "steps"}, {"server.diloco.overlap_steps", "1"},
            {"server.diloco.local_mix", "0"}, {"server.diloco.outer_optimizer", "nesterov"},
            {"server.diloco.outer_learning_rate", "0.4"}, {"server.diloco.outer_momentum", "0.9"},
            {"server.diloco.combiner", "mean"}, {"server.diloco.aggregation_weighting", "uniform"},
            {"server.diloco.codec", "e3m0"})},
    /* The outer values are streaming's: the paper gives none of its own for this H. */
    {"eager", "DiLoCo with a round's exchange during the next round; own share at once",
     "Kale et al. 2025, arXiv:2502.12996, algorithm 2",
     VALUES({"trainer.local_steps_per_round", "30"}, {"trainer.optimizer", "adamw"},
            {"server.diloco.overlap", "eager"}, {"server.diloco.outer_optimizer", "nesterov"},
            {"server.diloco.outer_learning_rate", "0.4"}, {"server.diloco.outer_momentum", "0.9"},
            {"server.diloco.combiner", "mean"}, {"server.diloco.aggregation_weighting", "uniform"},
            {"server.diloco.codec", "f32"})},
    {"delayed", "eager without the own share, as the baseline to compare with",
     "the baseline of Kale et al. 2025, arXiv:2502.12996, algorithm 1",
     VALUES({"trainer.local_steps_per_round", "30"}, {"trainer.optimizer", "adamw"},
            {"server.diloco.overlap", "delayed"}, {"server.diloco.outer_optimizer", "nesterov"},
            {"server.diloco.outer_learning_rate", "0.4"}, {"server.diloco.outer_momentum", "0.9"},
            {"server.diloco.combiner", "mean"}, {"server.diloco.aggregation_weighting", "uniform"},
            {"server.diloco.codec", "f32"})},
    /* dynamic_local_steps gives each replica a number of steps by its speed (the paper's DyLU). */
    {"async", "each replica on its own; its movement is applied when it arrives",
     "Liu et al. 2024, arXiv:2401.09135, algorithms 3 and 4",
     VALUES({"trainer.local_steps_per_round", "50"}, {"trainer.optimizer", "adamw"},
            {"server.diloco.schedule", "async"}, {"server.diloco.dynamic_local_steps", "true"},
            {"server.diloco.outer_optimizer", "delayed_nesterov"},
            {"server.diloco.outer_learning_rate", "0.7"}, {"server.diloco.outer_momentum", "0.9"},
            {"server.diloco.outer_c", "0"}, {"server.diloco.combiner", "mean"},
            {"server.diloco.aggregation_weighting", "uniform"}, {"server.diloco.codec", "f32"})},
    /* Neither outer values nor a codec are published with it: streaming's, and the four bits that
     * it calls the floor. */
    {"decoupled", "an entry closes with the contributions that have arrived",
     "Douillard et al. 2026, arXiv:2604.21428, algorithm 1",
     VALUES({"trainer.local_steps_per_round", "24"}, {"trainer.optimizer", "adamw"},
            {"server.diloco.fragments", "24"}, {"server.diloco.fragment_pattern", "balanced"},
            {"server.diloco.schedule", "offset"}, {"server.diloco.overlap", "steps"},
            {"server.diloco.overlap_steps", "2"}, {"server.diloco.local_mix", "0"},
            {"run.close_at", "1"}, {"run.grace_slack", "0.5"},
            {"server.diloco.outer_optimizer", "nesterov"},
            {"server.diloco.outer_learning_rate", "0.4"}, {"server.diloco.outer_momentum", "0.9"},
            {"server.diloco.combiner", "rda"},
            {"server.diloco.aggregation_weighting", "tokens2_per_step"},
            {"server.diloco.codec", "int4"})},
    /* codec_keep is 1/64. The outer step is plain SGD with learning rate 1, and the memory is in
     * the error feedback. */
    {"sparse", "a sixty-fourth of the movement in two bits, the rest remembered",
     "Sarfi et al. 2025, arXiv:2508.15706 (SparseLoCo); clipping as in arXiv:2603.08163",
     VALUES({"trainer.local_steps_per_round", "30"}, {"trainer.optimizer", "adamw"},
            {"parameters.optimizer.beta2", "0.95"}, {"server.diloco.outer_optimizer", "sgd"},
            {"server.diloco.outer_learning_rate", "1"}, {"server.diloco.outer_momentum", "0"},
            {"server.diloco.combiner", "clipped_mean"},
            {"server.diloco.aggregation_weighting", "uniform"}, {"server.diloco.codec", "topk"},
            {"server.diloco.codec_keep", "0.015625"}, {"server.diloco.codec_values", "2bit"},
            {"server.diloco.error_feedback", "0.95"})},
    /* Plato's contract. Values that a Plato file leaves out are as in Plato: PyTorch's defaults, no
     * clipping, all of the test set after every round. A file that names no preset gets this one.
     */
    {"federated", "DiLoCo over logical clients that are sampled each round (Plato's contract)",
     "Douillard et al. 2023, arXiv:2311.08105, as a federated server: docs/contract.md",
     VALUES({"clients.total_clients", "50"}, {"trainer.local_steps_per_round", "500"},
            {"trainer.optimizer", "adamw"}, {"parameters.optimizer.lr", "0.001"},
            {"parameters.optimizer.weight_decay", "0.01"}, {"parameters.optimizer.decay_of", "all"},
            {"trainer.lr_scheduler", "constant"}, {"trainer.gradient_clip", "0"},
            {"trainer.eval_batches", "0"}, {"data.sampler", "iid"},
            {"server.diloco.outer_optimizer", "nesterov"},
            {"server.diloco.outer_learning_rate", "0.7"}, {"server.diloco.outer_momentum", "0.9"},
            {"server.diloco.combiner", "mean"}, {"server.diloco.aggregation_weighting", "uniform"},
            {"server.diloco.codec", "f32"}, {"run.on_missing", "wait"})},
    {"fedavg", "the mean of the replicas, weighted by the samples they trained on",
     "McMahan et al. 2016, arXiv:1602.05629, algorithm 1",
     VALUES({"server.diloco.outer_optimizer", "sgd"}, {"server.diloco.outer_learning_rate", "1"},
            {"server.diloco.outer_momentum", "0"}, {"server.diloco.combiner", "mean"},
            {"server.diloco.aggregation_weighting", "num_samples"},
            {"server.diloco.codec", "f32"})},
    {"fedavgm", "fedavg with momentum at the server", "Hsu, Qi, Brown 2019, arXiv:1909.06335",
     VALUES(
         {"server.diloco.outer_optimizer", "momentum"}, {"server.diloco.outer_learning_rate", "1"},
         {"server.diloco.outer_momentum", "0.9"}, {"server.diloco.combiner", "mean"},
         {"server.diloco.aggregation_weighting", "num_samples"}, {"server.diloco.codec", "f32"})},
    /* Its mu is to be tuned, in {0.001 … 1}; its weights are fedavg's, which its code has too. */
    {"fedprox", "fedavg whose clients are held near the shared model",
     "Li et al. 2018, arXiv:1812.06127, algorithm 2",
     VALUES({"trainer.proximal_mu", "0.01"}, {"server.diloco.outer_optimizer", "sgd"},
            {"server.diloco.outer_learning_rate", "1"}, {"server.diloco.outer_momentum", "0"},
            {"server.diloco.combiner", "mean"},
            {"server.diloco.aggregation_weighting", "num_samples"},
            {"server.diloco.codec", "f32"})},
    /* eps is their tau, and 0.1 the usual learning rate of federated programs with it. */
    {"fedadam", "Adam at the server, on the mean of the replicas",
     "Reddi et al. 2020, arXiv:2003.00295, algorithm 2",
     VALUES(
         {"server.diloco.outer_optimizer", "fedadam"}, {"server.diloco.outer_learning_rate", "0.1"},
         {"server.diloco.outer_beta1", "0.9"}, {"server.diloco.outer_beta2", "0.99"},
         {"server.diloco.outer_eps", "0.001"}, {"server.diloco.combiner", "mean"},
         {"server.diloco.aggregation_weighting", "num_samples"}, {"server.diloco.codec", "f32"})},
    {"fedyogi", "Yogi at the server, on the mean of the replicas",
     "Reddi et al. 2020, arXiv:2003.00295, algorithm 2",
     VALUES(
         {"server.diloco.outer_optimizer", "fedyogi"}, {"server.diloco.outer_learning_rate", "0.1"},
         {"server.diloco.outer_beta1", "0.9"}, {"server.diloco.outer_beta2", "0.99"},
         {"server.diloco.outer_eps", "0.001"}, {"server.diloco.combiner", "mean"},
         {"server.diloco.aggregation_weighting", "num_samples"}, {"server.diloco.codec", "f32"})},
    {"fedadagrad", "Adagrad at the server, on the mean of the replicas",
     "Reddi et al. 2020, arXiv:2003.00295, algorithm 2",
     VALUES({"server.diloco.outer_optimizer", "fedadagrad"},
            {"server.diloco.outer_learning_rate", "0.1"}, {"server.diloco.outer_beta1", "0"},
            {"server.diloco.outer_beta2", "0.99"}, {"server.diloco.outer_eps", "0.001"},
            {"server.diloco.combiner", "mean"},
            {"server.diloco.aggregation_weighting", "num_samples"},
            {"server.diloco.codec", "f32"})},
    /* The baseline. Each replica clips its own gradient to trainer.gradient_clip before it is
     * sent; the mean of such gradients then is within that norm, too. (A trainer with all gradients
     * would clip the mean itself, which no replica has before the entry. AdamW divides by the
     * gradient's own size, so a factor between the two has little effect.) */
    {"data_parallel", "AdamW on the mean gradient after every step: the baseline DiLoCo saves from",
     "synchronous data-parallel AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101); each "
     "replica clips its own gradient",
     VALUES({"trainer.local_steps_per_round", "1"}, {"trainer.optimizer", "adamw"},
            {"trainer.eval_every", "0"}, {"server.diloco.outer_optimizer", "adamw"},
            {"server.diloco.combiner", "mean"}, {"server.diloco.aggregation_weighting", "uniform"},
            {"server.diloco.codec", "f32"})},
    {"swarm", "no log: each node keeps a model and applies the trimmed mean of all",
     "docs/swarm.md; the outer step is arXiv:2311.08105's, the trimmed mean Yin et al. 2018, "
     "arXiv:1803.01498",
     VALUES({"swarm.consensus", "none"}, {"swarm.exchange", "all"}, {"swarm.min_peers", "4"},
            {"swarm.agree_every", "10"}, {"run.replicas", "5"},
            {"trainer.local_steps_per_round", "500"}, {"trainer.optimizer", "adamw"},
            {"server.diloco.outer_optimizer", "nesterov"},
            {"server.diloco.outer_learning_rate", "0.1"}, {"server.diloco.outer_momentum", "0.9"},
            {"server.diloco.combiner", "trimmed_mean"}, {"server.diloco.trim", "0.25"},
            {"server.diloco.aggregation_weighting", "uniform"}, {"server.diloco.codec", "int8"})},
    /* With the paper's alpha as momentum and its beta, which is its gamma too, as learning rate:
     * src/gossip/mix.h. */
    {"noloco", "no log and no global step: nodes exchange in random pairs each round",
     "Kolehmainen et al. 2025, arXiv:2506.10911, with the sign of the authors' code",
     VALUES({"swarm.consensus", "none"}, {"swarm.exchange", "pairs"}, {"swarm.min_peers", "2"},
            {"swarm.agree_every", "0"}, {"run.replicas", "2"},
            {"trainer.local_steps_per_round", "50"}, {"trainer.optimizer", "adamw"},
            {"server.diloco.outer_optimizer", "momentum"},
            {"server.diloco.outer_learning_rate", "0.7"}, {"server.diloco.outer_momentum", "0.5"},
            {"server.diloco.combiner", "mean"}, {"server.diloco.aggregation_weighting", "uniform"},
            {"server.diloco.codec", "f32"})},
    {"single", "one replica that trains alone; its log is its checkpoints",
     "plain training: outer SGD with learning rate 1 adopts what the replica has",
     VALUES({"run.replicas", "1"}, {"server.diloco.outer_optimizer", "sgd"},
            {"server.diloco.outer_learning_rate", "1"}, {"server.diloco.outer_momentum", "0"},
            {"server.diloco.combiner", "mean"}, {"server.diloco.aggregation_weighting", "uniform"},
            {"server.diloco.codec", "f32"})},
};
enum { N_PRESETS = sizeof presets / sizeof presets[0] };

const diloco_preset *diloco_preset_at(size_t i)
{
    return i < N_PRESETS ? &presets[i] : NULL;
}

/* Return the row, or NULL for an unknown name. */
static const diloco_preset *find(const char *name)
{
    for (size_t i = 0; i < N_PRESETS; i++)
        if (strcmp(presets[i].name, name) == 0) return &presets[i];
    return NULL;
}

static const char *name_at(size_t i)
{
    return i < N_PRESETS ? presets[i].name : NULL;
}

diloco_status dl_preset_check(const char *name)
{
    return dl_choice_in(name_at, "preset", name);
}

/* An unknown preset counts as one without values, because the check of its name reports it
 * better. */
const char *dl_preset_gives(const dl_config *config, const char *option)
{
    const diloco_preset *preset = find(config->preset);
    for (const diloco_preset_value *v = preset ? preset->values : NULL; v && v->name; v++)
        if (strcmp(v->name, option) == 0) return v->value;
    return dl_option_find(dl_config_table, option)->fallback;
}

bool dl_preset_is(const dl_config *config, const char *name)
{
    return strcmp(config->preset, name) == 0;
}

/* Each value gets the origin "preset NAME", from which checks see that no person wrote it. */
diloco_status diloco_preset_apply(diloco_config *config, const char *name)
{
    char origin[64];
    DL_TRY(dl_preset_check(name));
    snprintf(origin, sizeof origin, "preset %s", name);
    DL_TRY(dl_config_set(config, "preset", name, origin));
    for (const diloco_preset_value *v = find(name)->values; v->name; v++)
        DL_TRY(dl_config_set(config, v->name, v->value, origin));
    return DILOCO_OK;
}
