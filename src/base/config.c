/* config.c - the option table. One row an option, in the order --help shows them.
 *
 * Values that must agree between replicas go into run.json and its digest; a replica
 * takes them from there. Rows without AGREE belong to a machine or to a moment. */
#include "base/config.h"

#include <string.h>

#define AT(field) offsetof(dl_config, field)
#define AGREE     DL_OPTION_AGREE
#define LIVE      DL_OPTION_LIVE
#define BOOL      DL_OPTION_BOOL
#define INT       DL_OPTION_INT
#define REAL      DL_OPTION_REAL
#define TEXT      DL_OPTION_TEXT
#define NAME      DL_OPTION_NAME
#define BIG       1e15

/* clang-format off */
static const dl_option rows[] = {
{"preset", NULL, NAME, AT(preset), "diloco", 0, 0, "", NULL, AGREE,
 "row of values to start from; see 'diloco presets'"},

{"run.store", NULL, TEXT, AT(store), "", 0, DL_PATH_MAX, "url", NULL, 0,
 "where the log lives: a folder's path or file:///shared/run, or http://HOST:PORT/RUN at a hub"},
{"run.state_dir", NULL, TEXT, AT(state_dir), "", 0, DL_PATH_MAX, "path", NULL, 0,
 "where replicas keep their private state; empty: <store>.local/<host>, of a url under runs/"},
{"run.record", NULL, TEXT, AT(record), "", 0, DL_PATH_MAX, "path", NULL, 0,
 "also append the record (JSON lines) of local replicas to this file"},
{"run.seed", "server.random_seed", INT, AT(seed), "1", 0, 9e15, "", NULL, AGREE,
 "key of every random draw: initial parameters, order of samples, sampling"},
{"run.replicas", NULL, INT, AT(replicas), "1", 1, 65536, "replicas", NULL, AGREE,
 "replicas the first entries wait for; the text is cut into as many shards"},
{"run.local_replicas", NULL, INT, AT(local_replicas), "0", 0, 1024, "replicas", NULL, 0,
 "replicas to run on this machine; 0: all of run.replicas"},
{"run.min_replicas", NULL, INT, AT(min_replicas), "1", 1, 65536, "replicas", NULL, AGREE,
 "fewest that may begin once run.start_timeout is over"},
{"run.start_timeout", NULL, REAL, AT(start_timeout_s), "600", 0, 1e9, "seconds", NULL, AGREE,
 "how long the first entry waits for run.replicas before run.min_replicas will do"},
{"run.deadline", NULL, REAL, AT(deadline_s), "0", 0, 1e9, "seconds", NULL, AGREE,
 "how long an entry waits after a replica's own upload; 0: derived from measured times"},
{"run.quorum", NULL, REAL, AT(quorum), "0.5", 0, 1, "of the roster", NULL, AGREE,
 "contributions needed to commit past the deadline with on_missing = commit_partial"},
{"run.close_at", NULL, INT, AT(close_at), "0", 0, 65536, "contributions", NULL, AGREE,
 "an entry closes with so many, without waiting for the rest; 0: all of the roster"},
{"run.grace", NULL, REAL, AT(grace_s), "0", 0, 1e9, "seconds", NULL, AGREE,
 "once run.close_at are there, wait so long for more"},
{"run.grace_slack", NULL, REAL, AT(grace_slack), "0", 0, 0.999, "of the slack", NULL, AGREE,
 "likewise, so much of the time that the overlap leaves (2604.21428's gamma)"},
{"run.patience", NULL, REAL, AT(patience_s), "60", 0.05, 1e9, "seconds", NULL, AGREE,
 "a heartbeat unchanged for this long, as watched by one replica, means silent"},
{"run.heartbeat", NULL, REAL, AT(heartbeat_s), "5", 0.01, 1e6, "seconds", NULL, AGREE,
 "time between heartbeats; at most a third of run.patience"},
{"run.on_missing", NULL, NAME, AT(on_missing), "wait", 0, 0, "", "wait|commit_partial|abort", AGREE,
 "past the deadline: wait for the slow, commit with who is there, or abort the entry"},
{"run.on_uncounted", NULL, NAME, AT(on_uncounted), "adopt", 0, 0, "", "adopt|keep", AGREE,
 "a replica that an entry did not count adopts the result, or trains on from its own"},
{"run.retain", NULL, NAME, AT(retain), "recent", 0, 0, "", "recent|all", AGREE,
 "keep every contribution and snapshot for a full audit, or only what joins need"},
{"run.snapshot_every", NULL, REAL, AT(snapshot_s), "600", 0, 1e9, "seconds", NULL, AGREE,
 "longest time between snapshots; also due when contributions exceed twice one"},
{"run.store_timeout", NULL, REAL, AT(store_timeout_s), "600", 0, 1e9, "seconds", NULL, 0,
 "how long a store that does not answer is asked again before the replica stops"},
{"run.link", NULL, TEXT, AT(link), "", 0, 63, "rate,delay,loss", NULL, 0,
 "see the store through a slower link than there is: 10mbit,100ms,1%; empty: as it is"},
{"run.threads", NULL, INT, AT(threads), "0", 0, 256, "threads", NULL, 0,
 "threads of each replica; 0: cores / local replicas, at least 1"},
{"run.restarts", NULL, INT, AT(restarts), "3", 0, 1e6, "times", NULL, 0,
 "how often a local replica that was killed is started again"},
{"run.spool", NULL, NAME, AT(spool), "auto", 0, 0, "", "auto|memory|disk", 0,
 "where contributions of others are kept until the outer step"},
{"run.spool_mb", NULL, INT, AT(spool_mb), "1024", 1, 1e9, "MiB", NULL, 0,
 "with run.spool = auto: more than this for all members goes to disk"},

{"server.synchronous", NULL, BOOL, AT(synchronous), "true", 0, 0, "", NULL, AGREE,
 "false asks for members that come and go by themselves, which is server.diloco.schedule = async"},
{"server.diloco.outer_optimizer", NULL, NAME, AT(outer_optimizer), "nesterov", 0, 0, "", NULL, AGREE,
 "what moves the shared model"},
{"server.diloco.outer_learning_rate", "outer_lr", REAL, AT(outer_lr), "0.7", 0, 1e6, "", NULL, AGREE | LIVE,
 "outer learning rate; .7 in 2311.08105"},
{"server.diloco.outer_momentum", "outer_momentum", REAL, AT(outer_mu), "0.9", 0, 0.999999, "", NULL, AGREE | LIVE,
 "outer momentum; .9 in 2311.08105"},
{"server.diloco.outer_beta1", "outer_beta1", REAL, AT(outer_beta1), "0.9", 0, 0.999999, "", NULL, AGREE,
 "decay of the first moment, for adam and the fedopt optimizers"},
{"server.diloco.outer_beta2", "outer_beta2", REAL, AT(outer_beta2), "0.99", 0, 0.999999, "", NULL, AGREE,
 "decay of the second moment, for adam, fedadam and fedyogi"},
{"server.diloco.outer_eps", "outer_eps", REAL, AT(outer_eps), "0.1", 1e-12, 1e6, "", NULL, AGREE,
 "added to the root of the second moment; far below 0.1 is unstable in 2311.08105"},
{"server.diloco.outer_buffer", "outer_buffer", INT, AT(outer_buffer), "4", 1, 1e6, "commits", NULL, AGREE,
 "N: delayed_nesterov moves its momentum once in so many commits"},
{"server.diloco.outer_c", "outer_c", REAL, AT(outer_c), "0", 0, 1, "", NULL, AGREE,
 "share of the momentum that delayed_nesterov applies between, at most 1 / N"},
{"server.diloco.outer_beta", "outer_beta", REAL, AT(outer_beta), "0.1", 0, 0.999999, "", NULL, AGREE,
 "b of schedule_free: how far replicas start from z towards the mean x"},
{"server.diloco.outer_lr_schedule", "outer_lr_schedule", NAME, AT(outer_lr_schedule), "constant", 0, 0, "",
 "constant|cosine", AGREE, "outer learning rate over the entries of the run"},
{"server.diloco.outer_min_ratio", "outer_min_ratio", REAL, AT(outer_min_ratio), "0.1", 0, 1, "", NULL, AGREE,
 "the cosine's end, at the last entry, as a part of the outer learning rate"},
{"server.diloco.aggregation_weighting", NULL, NAME, AT(weighting), "uniform", 0, 0, "", NULL, AGREE,
 "how much each member counts"},
{"server.diloco.apply_outer_optimizer_to", NULL, NAME, AT(apply_to), "parameters", 0, 0, "",
 "parameters|all_floating", AGREE, "tensors that the outer optimizer moves; the others are averaged"},
{"server.diloco.combiner", "combiner", NAME, AT(combiner), "mean", 0, 0, "", NULL, AGREE,
 "how contributions become one update"},
{"server.diloco.trim", "trim", REAL, AT(trim), "0.2", 0, 0.499999999, "of the members", NULL, AGREE,
 "trimmed_mean drops floor(trim x members) values at either end of each element"},
{"server.diloco.byzantine", "byzantine", INT, AT(byzantine), "1", 0, 1365, "members", NULL, AGREE,
 "f: how many members may be hostile, for krum, multi_krum, bulyan, nnm; others need 2 f + 1"},
{"server.diloco.pre_aggregation", "pre_aggregation", NAME, AT(pre_aggregation), "none", 0, 0, "",
 "none|nnm|bucketing", AGREE, "before a robust combiner: means of nearest members, or of shuffled buckets"},
{"server.diloco.bucket_size", "bucket_size", INT, AT(bucket_size), "2", 1, 4096, "members", NULL, AGREE,
 "members of a bucket of pre_aggregation = bucketing"},
{"server.diloco.robust_fallback", "robust_fallback", NAME, AT(robust_fallback), "refuse", 0, 0, "",
 "refuse|mean", AGREE, "an entry with fewer members than its combiner needs: abort it, or take the mean"},
{"server.diloco.codec", "codec", NAME, AT(codec), "f32", 0, 0, "", NULL, AGREE,
 "how a pseudo-gradient is written on the wire"},
{"server.diloco.codec_keep", NULL, REAL, AT(codec_keep), "0.015625", 0.000244140625, 1, "", NULL, AGREE,
 "topk: fraction of each chunk that is sent; 64 of 4096 in 2508.15706"},
{"server.diloco.codec_values", NULL, NAME, AT(codec_values), "f32", 0, 0, "", "f32|int8|2bit", AGREE,
 "topk: how the values that are sent are written"},
{"server.diloco.codec_prune", NULL, REAL, AT(codec_prune), "0.5", 0, 0.999, "", NULL, AGREE,
 "prune: fraction of each neuron's row that is not sent"},
{"server.diloco.compression", "compression", NAME, AT(compression), "none", 0, 0, "", "none|zstd", AGREE,
 "make contributions smaller on the wire, without loss"},
{"server.diloco.error_feedback", NULL, REAL, AT(error_feedback), "0", 0, 1, "", NULL, AGREE,
 "how much of what a lossy codec left out is added to the next contribution; 0.95 in 2508.15706"},

{"server.diloco.fragments", NULL, INT, AT(fragments), "1", 0, 4096, "fragments", NULL, AGREE,
 "P: parts of the model that are synchronised one after the other; 0: by fragment_layers"},
{"server.diloco.fragment_layers", NULL, INT, AT(fragment_layers), "0", 0, 4096, "blocks", NULL, AGREE,
 "blocks of a fragment where fragments = 0; what is in no block is one fragment more"},
{"server.diloco.fragment_pattern", NULL, NAME, AT(fragment_pattern), "strided", 0, 0, "", "strided|sequential|balanced", AGREE,
 "which blocks go together: every P-th, neighbours, or tensors so that fragments are of a size"},
{"server.diloco.schedule", NULL, NAME, AT(schedule), "offset", 0, 0, "", "offset|torchft|async", AGREE,
 "a fragment is due H after its offset p H / P; every H / P with one in flight; or each replica alone"},
{"server.diloco.dynamic_local_steps", "dylu", BOOL, AT(dylu), "false", 0, 0, "", NULL, AGREE,
 "async: slower replicas take fewer steps, so that all contribute as often (2401.09135)"},
{"server.diloco.max_staleness", NULL, INT, AT(max_staleness), "0", 0, BIG, "entries", NULL, AGREE,
 "async: a contribution that is older than so many entries does not count; 0: any does"},
{"server.diloco.overlap", NULL, NAME, AT(overlap), "steps", 0, 0, "", "steps|delayed|eager", AGREE,
 "results are adopted overlap_steps later, or a whole round later; eager: own share at once"},
{"server.diloco.overlap_steps", "fragment_sync_delay", INT, AT(overlap_steps), "0", 0, BIG, "steps", NULL, AGREE,
 "tau: inner steps taken while contributions move; 0 waits"},
{"server.diloco.local_mix", "fragment_update_alpha", REAL, AT(local_mix), "0", 0, 1, "", NULL, AGREE,
 "share of its own parameters that a replica keeps when it adopts; 0 takes the shared model"},

{"trainer.model_name", NULL, NAME, AT(model), "gpt", 0, 0, "", NULL, AGREE, "the model; one file of src/model each"},
{"trainer.rounds", NULL, INT, AT(rounds), "8", 1, BIG, "rounds", NULL, AGREE, "each synchronises every fragment once; the run ends after them"},
{"trainer.local_steps_per_round", "sync_every", INT, AT(local_steps), "500", 1, BIG, "steps", NULL, AGREE,
 "H: completed optimizer steps between entries"},
{"trainer.batch_size", NULL, INT, AT(batch_size), "8", 1, 1e9, "samples", NULL, AGREE, "samples of a micro-batch"},
{"trainer.gradient_accumulation_steps", NULL, INT, AT(accumulation), "1", 1, 1e9, "micro-batches", NULL, AGREE,
 "micro-batches of a step"},
{"trainer.optimizer", NULL, NAME, AT(optimizer), "adamw", 0, 0, "", NULL, AGREE, "inner optimizer"},
{"trainer.lr_scheduler", NULL, NAME, AT(lr_scheduler), "cosine", 0, 0, "", NULL, AGREE,
 "inner learning-rate schedule, over completed steps, continued across entries"},
{"trainer.gradient_clip", NULL, REAL, AT(gradient_clip), "1", 0, 1e9, "", NULL, AGREE,
 "largest norm of a step's gradient; 0: no clipping"},
{"trainer.preserve_optimizer_state", NULL, BOOL, AT(preserve_optimizer_state), "true", 0, 0, "", NULL, AGREE,
 "keep inner moments across entries; false is refused as unfaithful"},
{"trainer.init_from", NULL, TEXT, AT(init_from), "", 0, DL_PATH_MAX, "path", NULL, 0,
 "safetensors file that a new run begins from; empty: random values. Joining needs none"},
{"trainer.eval_every", NULL, INT, AT(eval_every), "1", 0, BIG, "rounds", NULL, AGREE,
 "evaluate the shared model after every so many rounds; 0: only at the end"},
{"trainer.eval_batches", NULL, INT, AT(eval_batches), "16", 0, BIG, "batches", NULL, AGREE,
 "batches of the validation data in one evaluation; 0: all of it"},

{"parameters.optimizer.lr", "lr", REAL, AT(lr), "4e-4", 0, 1e6, "", NULL, AGREE, "inner learning rate"},
{"parameters.optimizer.weight_decay", NULL, REAL, AT(weight_decay), "0.1", 0, 1e3, "", NULL, AGREE,
 "decoupled weight decay, of matrices only"},
{"parameters.optimizer.beta1", NULL, REAL, AT(beta1), "0.9", 0, 0.999999, "", NULL, AGREE, "first moment's decay"},
{"parameters.optimizer.beta2", NULL, REAL, AT(beta2), "0.999", 0, 0.9999999, "", NULL, AGREE, "second moment's decay"},
{"parameters.optimizer.eps", NULL, REAL, AT(eps), "1e-8", 1e-20, 1, "", NULL, AGREE, "added to the root of the second moment"},
{"parameters.optimizer.momentum", NULL, REAL, AT(momentum), "0", 0, 0.999999, "", NULL, AGREE, "momentum of inner sgd"},
{"parameters.optimizer.muon_lr", NULL, REAL, AT(muon_lr), "0", 0, 1e6, "", NULL, AGREE,
 "muon: learning rate of hidden matrices, under the same schedule; 0: parameters.optimizer.lr"},
{"parameters.optimizer.muon_momentum", NULL, REAL, AT(muon_momentum), "0.95", 0, 0.999999, "", NULL, AGREE, "muon: momentum"},
{"parameters.optimizer.muon_nesterov", NULL, BOOL, AT(muon_nesterov), "true", 0, 0, "", NULL, AGREE, "muon: look-ahead of the momentum"},
{"parameters.optimizer.muon_steps", NULL, INT, AT(muon_steps), "5", 1, 99, "", NULL, AGREE, "muon: Newton-Schulz iterations"},
{"parameters.learning_rate.warmup_steps", NULL, INT, AT(warmup_steps), "0", 0, BIG, "steps", NULL, AGREE,
 "steps over which the learning rate rises from 0"},
{"parameters.learning_rate.decay_steps", NULL, INT, AT(decay_steps), "0", 0, BIG, "steps", NULL, AGREE,
 "length of wsd's last phase; 0: a tenth of the run"},
{"parameters.learning_rate.rewarm_steps", NULL, INT, AT(rewarm_steps), "0", 0, BIG, "steps", NULL, AGREE,
 "own steps over which the learning rate of a replica that joined without moments rises from 0"},
{"parameters.learning_rate.min_ratio", NULL, REAL, AT(min_lr_ratio), "0.1", 0, 1, "of lr", NULL, AGREE,
 "where linear, cosine and wsd end"},

{"parameters.model.layers", NULL, INT, AT(layers), "4", 1, 4096, "", NULL, AGREE, "transformer blocks"},
{"parameters.model.heads", NULL, INT, AT(heads), "4", 1, 4096, "", NULL, AGREE, "attention heads"},
{"parameters.model.kv_heads", NULL, INT, AT(kv_heads), "0", 0, 4096, "", NULL, AGREE, "heads of keys and values; 0: as many as heads"},
{"parameters.model.channels", NULL, INT, AT(channels), "128", 1, 1e6, "", NULL, AGREE, "width of the residual stream"},
{"parameters.model.ffn", NULL, INT, AT(ffn), "0", 0, 1e7, "", NULL, AGREE, "width of SwiGLU; 0: 8/3 of channels, rounded up to 32"},
{"parameters.model.context", NULL, INT, AT(context), "128", 1, 1e6, "tokens", NULL, AGREE, "T: length of a training sequence"},
{"parameters.model.vocab", NULL, INT, AT(vocab), "0", 0, 1e7, "tokens", NULL, AGREE, "0: what the tokenizer has"},
{"parameters.model.tied", NULL, BOOL, AT(tied), "true", 0, 0, "", NULL, AGREE, "the head uses the embedding's matrix"},
{"parameters.model.rope_theta", NULL, REAL, AT(rope_theta), "10000", 1, 1e9, "", NULL, AGREE, "base of the rotary positions"},
{"parameters.model.norm_eps", NULL, REAL, AT(norm_eps), "1e-5", 1e-12, 1, "", NULL, AGREE, "added under RMSNorm's root"},
{"parameters.model.qk_norm", NULL, BOOL, AT(qk_norm), "false", 0, 0, "", NULL, AGREE,
 "RMSNorm of each head's queries and keys, with a learned scale, before the rotary positions"},
{"parameters.model.z_loss", NULL, REAL, AT(z_loss), "0", 0, 1, "", NULL, AGREE,
 "weight of the squared log-sum-exp of the logits beside the loss; 1e-4 in 2501.18512"},
{"parameters.model.num_classes", NULL, INT, AT(num_classes), "0", 0, 1e6, "classes", NULL, AGREE,
 "of a classifier; 0: what the data has"},
{"parameters.model.in_channels", NULL, INT, AT(in_channels), "0", 0, 4, "", NULL, AGREE,
 "of a classifier's images; 0: what the data has"},
{"parameters.model.hidden", NULL, TEXT, AT(hidden), "128", 0, 255, "widths", NULL, AGREE,
 "widths of mlp's hidden layers, with commas; empty: none"},
{"parameters.model.frozen", NULL, TEXT, AT(frozen), "", 0, DL_PATH_MAX, "names", NULL, AGREE,
 "beginnings of the names of tensors that do not train, with commas"},

{"data.datasource", NULL, NAME, AT(datasource), "text", 0, 0, "", NULL, AGREE, "kind of the training data"},
{"data.train_path", NULL, TEXT, AT(train_path), "", 0, DL_PATH_MAX, "paths", NULL, 0,
 "files or folders with commas, or the folder of an image set; this machine's place of the data"},
{"data.test_path", NULL, TEXT, AT(test_path), "", 0, DL_PATH_MAX, "paths", NULL, 0,
 "validation data; empty: the test files beside the training images, or data.test_fraction"},
{"data.test_fraction", NULL, REAL, AT(test_fraction), "0.1", 0, 0.9, "", NULL, AGREE, "held out from the end of the training data where there is no validation data"},
{"data.augment", NULL, BOOL, AT(augment), "true", 0, 0, "", NULL, AGREE,
 "training images of CIFAR10 are shifted by up to 4 pixels and mirrored at random"},
{"data.tokenizer", NULL, NAME, AT(tokenizer), "byte", 0, 0, "", NULL, AGREE, "how text becomes tokens"},
{"data.partition", NULL, NAME, AT(partition), "contiguous", 0, 0, "", "contiguous|whole", AGREE,
 "disjoint shards in order of the data, or all of it for every replica"},
};
/* clang-format on */

_Static_assert(sizeof rows / sizeof rows[0] <= DL_CONFIG_MAX_OPTIONS, "grow origins");

const dl_option_table dl_config_table = {rows, sizeof rows / sizeof rows[0]};

void dl_config_init(dl_config *config)
{
    memset(config, 0, sizeof *config);
    dl_options_defaults(dl_config_table, config, config->origins);
}

diloco_status dl_config_set(dl_config *config, const char *name, const char *text,
                            const char *origin)
{
    return dl_option_set(dl_config_table, config, config->origins, name, text, origin);
}

const char *dl_config_origin(const dl_config *config, const char *name)
{
    const dl_option *row = dl_option_find(dl_config_table, name);
    return row ? config->origins[row - rows].text : "";
}

bool dl_config_given(const dl_config *config, const char *name)
{
    return strcmp(dl_config_origin(config, name), "default") != 0;
}
