/* memory_plan.c - the memory of a replica, computed by the functions that will allocate it.
 *
 *     local, gradient   the model's two arrays
 *     moments           of the inner optimizer
 *     theta, momentum   the run's state as the log has decided it; with run.offload = "disk" that
 *                       of the largest fragment
 *     staging           the state's second copy, where an entry is computed before it is committed;
 *                       the replica's own encoded contribution; memory to combine the members,
 *                       and that of an outer optimizer that steps whole matrices; with overlap or
 *                       error feedback the captures in flight and the residual; with
 *                       run.save_beside a copy of the private state (a second one, which a slow
 *                       disk needs, is made only of free memory)
 *     contributions     a slot for each member of an entry, if they are kept in memory; one for the
 *                       combined update, if one replica combines for all
 *     copies            host copies where the host cannot use the device's memory: the model twice
 *                       (train/staging.h and the run's mirrors), and the moments or, in
 *                       data_parallel, the gradients; with trainer.device_exchange theta,
 *                       movements and a payload on the device, and the payloads in flight
 *     activations       the rest of the model's graph, such as the weights rounded to bf16, and the
 *                       inner optimizer's memory for a step
 *     data              batches, and the mapped pages of the shard and of the validation part
 *     other             this process's resident memory (program, libraries); RESERVE for stacks,
 *                       tables and text; and a 50th of the rest for the matrix library's packing
 *
 * Measured at 0.06 to 7 M parameters, the plan is 1.01 to 1.05 times the high-water mark. */
#include "base/sized.h"
#include "codec/codec.h"
#include "log/contribution.h"
#include "nn/inner.h"
#include "outer/outer.h"
#include "presets/checks.h"
#include "presets/fragments.h"
#include "presets/presets.h"
#include "protocol/logical_clients.h"
#include "protocol/schedule.h"
#include "protocol/topology.h"
#include "state/paths.h"
#include "state/state.h"
#include "train/setup.h"
#include <diloco/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RESERVE = 8 << 20 }; /* bytes; see "other" above */

/* Bytes of this process in memory now; 0 where the system does not report it. */
static uint64_t resident(void)
{
    unsigned long long total, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    if (fscanf(f, "%llu %llu", &total, &pages) != 2) pages = 0;
    fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Largest values over all fragments: the payload, its encoder's memory, the number of floats. */
typedef struct largest {
    size_t payload, room, floats, all_floats;
} largest;

/* Finds the largest values over the fragments, since memory for one is reused for the others. */
static diloco_status find_largest(largest *out, const dl_config *config,
                                  const dl_manifest *manifest)
{
    *out = (largest){0};
    for (int f = 0; f < manifest->n_fragments; f++) {
        dl_codec_form form;
        DL_TRY(dl_codec_form_init(&form, config, manifest, f));
        const size_t payload = dl_contribution_body_max(&form, (dl_fragment_shape){0},
                                                        config->compression != DL_COMPRESSION_NONE);
        out->payload = dl_size_max(out->payload, payload);
        out->room = dl_size_max(out->room, form.room + payload - form.bound);
        out->floats = dl_size_max(out->floats, form.n);
        out->all_floats += form.n;
        dl_codec_form_deinit(&form);
    }
    return DILOCO_OK;
}

/* The memory of overlap, async and error feedback beside the state (exec.c). It has captures
 * in flight, the residual, the start of the round, and eager's own momentum and share. */
static size_t kept_beside(const dl_config *config, const dl_schedule *s, const largest *most)
{
    const bool feedback = config->error_feedback > 0, eager = s->overlap == DL_OVERLAP_EAGER;
    const size_t ahead = dl_schedule_ahead(s);
    size_t floats = 0;
    if (ahead > 1 || s->delay > 0 || s->async || feedback) floats += ahead * most->floats;
    if (feedback) floats += most->all_floats;
    if (s->overlap != DL_OVERLAP_STEPS) floats += most->all_floats;
    if (eager) floats += most->all_floats + most->floats;
    return floats * sizeof(float) + (eager ? most->room : 0);
}

/* The copy of the private state that is saved beside training (run.save_beside). A due point finds
 * captures in flight only if several may be in flight at a time. */
static uint64_t saved_copy(const diloco_memory_plan *out, const dl_config *config,
                           const dl_schedule *s, const largest *most)
{
    const bool waits = s->delay == 0 || !config->save_beside;
    if (waits || strcmp(config->state_dir, "none") == 0) return 0;
    const size_t beside = kept_beside(config, s, most);
    const size_t captures = dl_schedule_ahead(s) > 1 ? 0 : most->floats * sizeof(float);
    return out->local + out->moments + beside - captures;
}

/* trainer.device_exchange. A device that encodes keeps the movements in flight (exchange/
 * capture_on_device.c). */
static uint64_t on_device(const diloco_memory_plan *out, const dl_config *config,
                          const dl_schedule *s, const largest *most)
{
    const dl_codec *codec = dl_codec_of(config);
    const bool encodes = codec && dl_codec_has_integers(codec) && config->error_feedback == 0;
    const uint64_t in_flight = encodes && s->delay > 0 ? dl_schedule_ahead(s) : 1;
    const uint64_t payloads = encodes ? (1 + in_flight) * most->payload : 0;
    return 4 * out->parameters + in_flight * sizeof(float) * most->floats + payloads;
}

/* Plans theta, momentum, staging and contributions, with a schedule, a topology and a combiner that
 * are chosen as the run chooses them. */
static diloco_status plan_exchange(diloco_memory_plan *out, const dl_config *config,
                                   const dl_manifest *manifest)
{
    const dl_outer *outer = dl_outer_of(config);
    largest most;
    dl_schedule schedule;
    DL_TRY(dl_schedule_of(&schedule, config, manifest->n_fragments));
    DL_TRY(find_largest(&most, config, manifest));
    /* on disk: one fragment of the state is in memory at a time, in both copies */
    const bool on_disk = config->offload == DL_OFFLOAD_DISK;
    const uint64_t copy = on_disk ? most.floats : out->parameters;
    const uint64_t state = on_disk ? 2 * 4 * copy * (1 + (uint64_t)outer->n_state)
                                   : dl_state_bytes(manifest, outer, 2);
    out->theta = 4 * copy;
    out->momentum = 4 * copy * (uint64_t)outer->n_state;
    dl_combine_rule rule;
    DL_TRY(dl_combine_rule_of(&rule, config));
    const size_t beside = kept_beside(config, &schedule, &most);
    const size_t members = (size_t)dl_clients_per_round(config);
    out->staging = state - out->theta - out->momentum + most.room + beside +
                   saved_copy(out, config, &schedule, &most) +
                   dl_outer_scratch_bytes(manifest, &rule, members, out->threads) +
                   dl_outer_whole_bytes(manifest, outer, out->threads);
    dl_topology_kind topology;
    DL_TRY(dl_topology_choose(&topology, config, manifest));
    if (config->device_exchange) out->copies += on_device(out, config, &schedule, &most);
    snprintf(out->exchange, sizeof out->exchange, "%s", dl_topology_names[topology]);
    uint64_t slots = (uint64_t)members * (DL_CONTRIBUTION_HEADER + most.payload);
    if (topology == DL_TOPOLOGY_LEADER) slots += most.floats * sizeof(float);
    out->contributions = dl_run_spools(config, (double)slots) ? 0 : slots;
    return DILOCO_OK;
}

static diloco_status plan_state(diloco_memory_plan *out, const dl_config *config,
                                const dl_sample *sample)
{
    dl_manifest manifest;
    DL_TRY(dl_fragments_manifest(&manifest, config, sample));
    const diloco_status status = plan_exchange(out, config, &manifest);
    dl_manifest_deinit(&manifest);
    return status;
}

/* Plans a batch and the data that a replica reads: pages of a mapped file that are read once remain
 * resident. A set of images is held whole. */
static void plan_data(diloco_memory_plan *out, const dl_config *config, const dl_data *data)
{
    const dl_sample *sample = dl_data_sample(data);
    uint64_t batch = dl_sample_bytes(sample) + sample->length * sizeof(int32_t);
    uint64_t token_bytes = strcmp(config->datasource, "tokens") == 0 ? 2 : 1;
    uint64_t held = dl_data_train_items(data) + dl_data_test_items(data); /* of images all */
    uint64_t read = dl_data_samples(data, 0) * sample->length + dl_data_test_items(data);
    out->data =
        sample->kind == DL_IMAGES ? held * (dl_sample_bytes(sample) + 1) : read * token_bytes;
    out->data += batch * (uint64_t)config->batch_size;
}

/* find_device says which device runs the graph and whether the host can use its memory. A card is
 * not opened: the plan may be for another machine. Of several cards the plan is the first one's,
 * which needs most: the others have no moments. */
static diloco_status find_device(dl_device *device, bool *in_host_memory, const dl_config *config)
{
    dl_device_list list;
    dl_backend *backend;
    *in_host_memory = false;
    DL_TRY(dl_device_of_name(&list, config->device));
    *device = list.kind;
    if (*device != DL_DEVICE_CPU) return DILOCO_OK;
    DL_TRY(dl_backend_create(&backend, "cpu"));
    *device = backend->ops->device;
    *in_host_memory = backend->ops->in_host_memory;
    dl_backend_destroy(backend);
    return DILOCO_OK;
}

/* Plans the model's arrays, its activations, and the inner optimizer. */
static diloco_status plan_model(diloco_memory_plan *out, const dl_config *config,
                                const dl_sample *sample)
{
    dl_model_plan model;
    bool in_host_memory;
    dl_graph_target target = {.max_rows = (size_t)config->batch_size, .n_threads = out->threads};
    DL_TRY(find_device(&target.device, &in_host_memory, config));
    target.element = dl_model_element(config, target.device);
    DL_TRY(dl_model_plan_for(&model, config, sample, &target));
    out->parameters = model.n_parameters;
    out->local = model.parameter_bytes;
    out->gradient = model.gradient_bytes;
    out->activations = model.activation_bytes;
    out->flops_per_token = model.flops_per_token;
    if (!dl_preset_is(config, "data_parallel")) {
        dl_inner_bytes inner = dl_inner_plan(config, &model.inner, out->threads);
        out->moments = inner.vectors;
        out->copies = inner.vectors;
        if (config->proximal_mu > 0) out->moments += 4 * out->parameters; /* the anchor */
        out->activations += inner.scratch;
    } else {
        out->copies = out->gradient;
    }
    out->copies = in_host_memory ? 0 : out->copies + 2 * out->local;
    return DILOCO_OK;
}

/* Plans everything. Without data.train_path the data has no size, so that a plan can be made before
 * there is any. */
static diloco_status plan_replica(diloco_memory_plan *out, const diloco_config *config)
{
    dl_data *data;
    DL_TRY(dl_check_config(config));
    DL_TRY(config->train_path[0] ? dl_data_open(&data, config, dl_clients_shards(config))
                                 : dl_data_open_words(&data, config));
    out->threads = dl_setup_threads(config);
    out->steps = dl_positions(config);
    diloco_status status = dl_check_model(config, dl_data_sample(data));
    if (!status) status = plan_model(out, config, dl_data_sample(data));
    if (!status) status = plan_state(out, config, dl_data_sample(data));
    if (!status) plan_data(out, config, data);
    dl_data_close(data);
    uint64_t known = out->local + out->gradient + out->moments + out->theta + out->momentum +
                     out->activations + out->staging + out->contributions + out->copies + out->data;
    out->other = resident() + RESERVE + known / 50;
    out->total = known + out->other;
    return status;
}

diloco_status diloco_train_plan_sized(diloco_memory_plan *out, size_t size,
                                      const diloco_config *config)
{
    diloco_memory_plan plan = {.total = 0};
    const diloco_status status = plan_replica(&plan, config);
    dl_sized_out(out, size, &plan, sizeof plan);
    return status;
}
