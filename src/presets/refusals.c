/* refusals.c - refusals of replicas with a log, before training; see checks.c. */
#include "base/condition.h"
#include "base/run_kind.h"
#include "combine/combine.h"
#include "nn/inner.h"
#include "outer/outer.h"
#include "presets/checks_parts.h"
#include "protocol/schedule.h"
#include "state/paths.h"
#include "store/store.h"
#include "tensor/backend.h"

#include <inttypes.h>

/* A run in a folder has a default place for a replica's own state. With another kind of store the
 * option run.state_dir is needed. */
static diloco_status check_store(const dl_config *config)
{
    dl_config_path dir;
    if (!config->store[0])
        return dl_fail(DILOCO_EINVAL, "run.store is empty: name the folder of the log, for example "
                                      "run.store = \"runs/first\" or --store runs/first");
    DL_TRY(dl_store_check_url(config->store));
    return dl_run_state_dir(dir, config);
}

/* Resetting the optimizer would be another algorithm than the one that papers report. */
static diloco_status check_faithful(const dl_config *config)
{
    if (config->preserve_optimizer_state) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "trainer.preserve_optimizer_state = false would reset the inner optimizer at "
                   "every entry; DiLoCo (arXiv:2311.08105) keeps it, and so does every number "
                   "published for it: leave it true");
}

/* The number of members is bounded by the format of an entry. */
static diloco_status check_counts(const dl_config *config)
{
    if (config->local_replicas > config->replicas && dl_run_kind_of(config)->processes)
        return dl_fail(DILOCO_EINVAL,
                       "run.local_replicas = %" PRId64 " is more than run.replicas = %" PRId64
                       ": a machine cannot run more replicas than there are shards for; raise "
                       "run.replicas",
                       config->local_replicas, config->replicas);
    if (config->replicas > DL_MAX_MEMBERS)
        return dl_fail(DILOCO_EREFUSED,
                       "run.replicas = %" PRId64 ": an entry has at most %d members; take fewer",
                       config->replicas, DL_MAX_MEMBERS);
    return DILOCO_OK;
}

static diloco_status check_quorum(const dl_config *config)
{
    if (config->on_missing != DL_MISSING_COMMIT_PARTIAL || config->quorum > 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "run.quorum = 0 with run.on_missing = \"commit_partial\" would commit "
                   "entries without contributions: set a quorum above 0, such as 0.5");
}

/* PROTOCOL P22: preset data_parallel applies gradients by the inner optimizer as an outer row. Rows
 * that are for gradients alone are refused with other presets. The row's name was checked. */
static diloco_status check_outer_row(const dl_config *config)
{
    const bool gradients = dl_outer_of(config)->gradients;
    if (!dl_preset_is(config, "data_parallel")) {
        if (!gradients) return DILOCO_OK;
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.outer_optimizer = \"%s\" is the optimizer of preset "
                       "data_parallel and takes gradients, not movements: use nesterov, momentum "
                       "or sgd, or that preset",
                       config->outer_optimizer);
    }
    const bool applies = gradients || is(config->outer_optimizer, "sgd");
    if (applies && is(config->outer_optimizer, config->optimizer)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "preset data_parallel trains with adamw, muon or sgd. Here trainer.optimizer is "
                   "\"%s\" and server.diloco.outer_optimizer is \"%s\": set both to the same one "
                   "of these",
                   config->optimizer, config->outer_optimizer);
}

/* PROTOCOL P22: the gradient of every step is sent. */
static diloco_status check_data_parallel(const dl_config *config)
{
    if (!dl_preset_is(config, "data_parallel")) return DILOCO_OK;
    if (config->zero_stage)
        return dl_fail(DILOCO_EREFUSED, "trainer.zero_stage = 1 divides the inner optimizer, and "
                                        "preset data_parallel has none: leave it 0");
    if (config->local_steps != 1 || config->local_steps_phases[0])
        return dl_fail(DILOCO_EREFUSED,
                       "preset data_parallel exchanges after every step, and "
                       "trainer.local_steps_per_round is %" PRId64
                       ", its phases \"%s\": leave them "
                       "1 and empty, or take preset diloco",
                       config->local_steps, config->local_steps_phases);
    if (overlaps(config) || dl_run_kind_of(config)->one_by_one)
        return dl_fail(DILOCO_EREFUSED,
                       "preset data_parallel exchanges the whole gradient and waits for it: "
                       "server.diloco.fragments, overlap and schedule are DiLoCo's; leave them, or "
                       "take preset diloco or streaming");
    if (is(config->optimizer, "sgd") && (config->momentum > 0 || config->weight_decay > 0))
        return dl_fail(DILOCO_EREFUSED,
                       "preset data_parallel with sgd has the plain rule: set "
                       "parameters.optimizer.momentum and weight_decay to 0, or take adamw");
    if (config->decayed == DL_DECAYED_ALL && config->weight_decay > 0)
        return dl_fail(DILOCO_EREFUSED,
                       "preset data_parallel decays tensors of two or more dimensions alone: leave "
                       "parameters.optimizer.decay_of \"matrices\", or set weight_decay 0");
    if (config->local_mix > 0 || config->on_uncounted == DL_UNCOUNTED_KEEP)
        return dl_fail(DILOCO_EREFUSED,
                       "preset data_parallel moves only the shared parameters, so a replica has "
                       "none of its own to keep: leave server.diloco.local_mix 0 and "
                       "run.on_uncounted \"adopt\", or take preset diloco");
    if (config->check_probe > 0)
        return dl_fail(DILOCO_EREFUSED,
                       "check.probe moves the shared model as a contribution says, and those of "
                       "preset data_parallel are gradients, not movements: leave check.probe 0");
    return DILOCO_OK;
}

/* PROTOCOL P20: the members come from the log, or are not asked for. */
static diloco_status check_synchronous(const dl_config *config)
{
    const bool async = config->schedule == DL_SCHEDULE_ASYNC;
    if (!config->synchronous && !async)
        return dl_fail(DILOCO_EREFUSED,
                       "server.synchronous = false asks for asynchronous membership, and "
                       "server.diloco.schedule = \"%s\" is synchronous DiLoCo, whose entries wait "
                       "for their members: leave it true, or take preset async",
                       dl_schedule_choice_names[config->schedule]);
    if (config->synchronous && async && written(config, "server.synchronous"))
        return dl_fail(DILOCO_EREFUSED,
                       "server.synchronous = true, and with server.diloco.schedule = \"async\" "
                       "no replica waits for another: omit server.synchronous, or take "
                       "schedule \"offset\"");
    return DILOCO_OK;
}

/* P as the configuration has it; with fragments = 0 the model says (dl_check_model). */
static diloco_status check_schedule(const dl_config *config)
{
    dl_schedule schedule;
    int fragments = config->fragments ? (int)config->fragments : 1;
    if (config->fragments == 0 && config->fragment_pattern == DL_PATTERN_BALANCED)
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.fragment_pattern = \"balanced\" fills a number of fragments, "
                       "and server.diloco.fragments = 0 leaves it to the blocks: set a number, or "
                       "take \"strided\"");
    if (config->fragments == 0 && dl_run_kind_of(config)->one_by_one) fragments = 2; /* or more */
    return dl_schedule_of(&schedule, config, fragments);
}

static diloco_status check_single(const dl_config *config)
{
    if (!dl_preset_is(config, "single") || config->replicas == 1) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "preset single is one replica, and run.replicas is %" PRId64
                   ": leave it 1, or take preset diloco",
                   config->replicas);
}

/* A momentum that another optimizer does not read would be lost without a word. */
static diloco_status check_optimizer(const dl_config *config)
{
    const dl_condition reads =
        dl_condition_read(dl_config_table, "trainer.optimizer = sgd|rmsprop");
    if (config->momentum == 0 || dl_condition_holds(&reads, config)) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "parameters.optimizer.momentum = %g is of sgd and rmsprop, and "
                   "trainer.optimizer is \"%s\", which has %s: set that, or take sgd",
                   config->momentum, config->optimizer,
                   is(config->optimizer, "muon") ? "muon_momentum" : "beta1");
}

static diloco_status check_muon(const dl_config *config)
{
    if (config->muon_lr == 0 || config->lr > 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "parameters.optimizer.muon_lr = %g follows the schedule of "
                   "parameters.optimizer.lr, which is 0: set that above 0",
                   config->muon_lr);
}

/* PROTOCOL P18: the log assigns samples of all the data, so a sampler that splits the data
 * contradicts it. A sampler that no person chose is ignored. */
static diloco_status check_deal(const dl_config *config)
{
    if (config->deal != DL_DEAL_LOG) return DILOCO_OK;
    const char *no_deal = dl_run_kind_of(config)->no_deal;
    if (no_deal) return dl_fail(DILOCO_EREFUSED, "%s", no_deal);
    const bool whole = is(config->sampler, "whole") || is(config->sampler, "all_inclusive");
    if (whole || !written(config, "data.sampler")) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "data.sampler gives each replica data of its own, and data.deal = \"log\" deals "
                   "the samples of all the data to all: omit one of them");
}

/* run.track begins with the name of a tracker; train/tracker.h has the list and opens it. */
static diloco_status check_tracker(const dl_config *config)
{
#define BEGIN(name, place) #name ":",
    static const char *const begins[] = {DL_TRACKERS(BEGIN)};
    const char *where = config->track;
    if (!*where) return DILOCO_OK;
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++) {
        const size_t len = strlen(begins[i]);
        if (strncmp(where, begins[i], len) == 0 && where[len]) return DILOCO_OK;
    }
    return dl_fail(DILOCO_EINVAL,
                   "run.track: \"%.200s\" names no tracker; give" DL_TRACKERS(
                       DL_TRACKER_FORM) " or leave it empty",
                   where);
}

static diloco_status check_device(const dl_config *config)
{
    dl_device_list list;
    DL_TRY(dl_device_of_name(&list, config->device)); /* this machine may not train */
    if ((uint64_t)config->accumulation % list.n == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "trainer.device = \"%s\" names %zu cards, which share the "
                   "trainer.gradient_accumulation_steps = %lld micro-batches of a step equally: "
                   "set a multiple of %zu",
                   config->device, list.n, (long long)config->accumulation, list.n);
}

/* Options of several cards. */
static diloco_status check_cards(const dl_config *config)
{
    dl_device_list list;
    DL_TRY(dl_device_of_name(&list, config->device));
    if (config->zero_stage && list.n == 1)
        return dl_fail(
            DILOCO_EREFUSED,
            "trainer.zero_stage = 1 divides the optimizer among several cards, and "
            "trainer.device = \"%s\" names one device: leave it 0, or name several cards",
            config->device);
    if (config->gradient_bucket_bytes == 0 || list.n > 1) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "trainer.gradient_bucket_bytes = %lld is for adding the gradients of several "
                   "cards, and trainer.device = \"%s\" names one device: leave it 0, or name "
                   "several cards",
                   (long long)config->gradient_bucket_bytes, config->device);
}

/* Runs whose exchange has no functions on a card (exchange/device_moves.h). */
static diloco_status check_device_exchange(const dl_config *config)
{
    static const struct {
        const char *needs, *reason;
    } rows[] = {
        {"preset != data_parallel", "preset data_parallel exchanges gradients"},
        {"server.diloco.overlap = steps",
         "a server.diloco.overlap of one round begins the next round on the host"},
        {"clients.total_clients = 0", "the clients of clients.total_clients begin on the host"},
        {"swarm.consensus = log", "swarm.consensus = \"none\" mixes parameters on the host"},
    };
    for (size_t i = 0; config->device_exchange && i < sizeof rows / sizeof rows[0]; i++) {
        const dl_condition need = dl_condition_read(dl_config_table, rows[i].needs);
        if (!dl_condition_holds(&need, config))
            return dl_fail(DILOCO_EREFUSED,
                           "trainer.device_exchange = true computes movements on the card, and "
                           "%s: leave it false",
                           rows[i].reason);
    }
    return DILOCO_OK;
}

const refusal dl_refusals[] = {
    check_device,        check_cards,     check_device_exchange,
    check_tracker,       check_store,     check_faithful,
    check_counts,        check_quorum,    check_outer_row,
    check_data_parallel, check_single,    check_synchronous,
    check_schedule,      check_optimizer, check_muon,
    dl_schedule_check,   check_deal,      NULL,
};
