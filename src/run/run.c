/* run.c - the public handle of run.h: registering, counting steps, ending. join.c joins a run,
 * machine.c is the protocol, and driver.c drives it. */
#include "run/handle.h"
#include "run/open.h"
#include "run/run_moves.h"

#include "base/log.h"
#include "base/sized.h"
#include "tensor/kernels.h"
#include "tensor/widths.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- registration ----------------------------------------------------------------------- */

/* Checks everything that needs no store: the machine, the name, the caller's own parts and the
 * combination of options. The parts come before dl_run_check, because they set the options that
 * name them. */
static diloco_status open_run(diloco_run *run, const char *replica, const diloco_user_parts *parts)
{
    DL_TRY(dl_isa_check());
    if (!dl_replica_name_ok(replica))
        return dl_fail(DILOCO_EINVAL,
                       "a replica's name is 1 to %d of letters, digits, _ and -: \"%s\" is not",
                       DL_REPLICA_MAX, replica);
    memcpy(run->replica, replica, strlen(replica) + 1);
    DL_TRY(dl_user_create(&run->user, &run->config, parts));
    if (!run->config.store[0])
        return dl_fail(DILOCO_EINVAL, "run.store is not set: name a folder for the run's log");
    DL_TRY(dl_run_check(&run->config));
    dl_run_name_coord(&run->config);
    return run->config.link[0] ? dl_store_set_link(run->config.link) : DILOCO_OK;
}

/* Creates a handle for one replica (public, run.h). `size` is the caller's sizeof of
 * diloco_user_parts, so that an older program may pass a shorter struct. The configuration is
 * copied. After an error *out is NULL. */
diloco_status diloco_run_open_with_sized(diloco_run **out, const diloco_config *config,
                                         const char *replica, const diloco_user_parts *parts,
                                         size_t size)
{
    diloco_user_parts seen;
    *out = NULL;
    if (!parts)
        return dl_fail(DILOCO_EINVAL, "diloco_run_open_with without parts: take diloco_run_open");
    DL_TRY(dl_sized_in(&seen, sizeof seen, parts, size, "diloco_user_parts"));
    diloco_run *run = calloc(1, sizeof *run);
    if (!run) return dl_fail(DILOCO_ENOMEM, "out of memory for a run");
    run->config = *config;
    run->traffic.kind_of = dl_traffic_kind;
    dl_record_init(&run->record);
    const diloco_status status = open_run(run, replica, &seen);
    if (status)
        diloco_run_close(run);
    else
        *out = run;
    return status;
}

diloco_status diloco_run_open(diloco_run **out, const diloco_config *config, const char *replica)
{
    return diloco_run_open_with(out, config, replica, &(diloco_user_parts){.outer = NULL});
}

static diloco_status must_be_open(const diloco_run *run, const char *what)
{
    if (!run->created) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s has to come before diloco_run_create and diloco_run_join",
                   what);
}

static diloco_status must_be_joined(const diloco_run *run, const char *what)
{
    if (run->join.joined) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s needs diloco_run_join first", what);
}

/* Registers a tensor of the model (public, run.h). The name is copied; the data stays the caller's.
 * Host memory must be aligned to its type, while a device address is opaque. If one of the arrays
 * cannot grow, the others keep their new size and n_tensors stays, so the handle is unchanged. */
diloco_status diloco_run_tensor_sized(diloco_run *run, const diloco_tensor *given, size_t size)
{
    diloco_tensor seen, *const tensor = &seen;
    DL_TRY(must_be_open(run, "diloco_run_tensor"));
    DL_TRY(dl_sized_in(&seen, sizeof seen, given, size, "diloco_tensor"));
    if (!tensor->name || !tensor->data)
        return dl_fail(DILOCO_EINVAL, "a tensor needs a name and memory (data)");
    const size_t align = run->model.device ? 0 : dl_dtype_size(tensor->dtype);
    if (align && (uintptr_t)tensor->data % align)
        return dl_fail(DILOCO_EINVAL, "tensor %s: its place is not aligned to its type",
                       tensor->name);
    const size_t n = run->model.n_tensors + 1;
    diloco_tensor *t = realloc(run->model.tensors, n * sizeof *t);
    if (t) run->model.tensors = t;
    const float **g = realloc(run->model.gradients, n * sizeof *g);
    if (g) run->model.gradients = g;
    const diloco_device **d = realloc(run->model.devices, n * sizeof *d);
    if (d) run->model.devices = d;
    const diloco_device **of_g = realloc(run->model.gradient_devices, n * sizeof *of_g);
    if (of_g) run->model.gradient_devices = of_g;
    char *name = strdup(tensor->name);
    if (!t || !g || !d || !of_g || !name) {
        free(name);
        return dl_fail(DILOCO_ENOMEM, "out of memory for tensor %s", tensor->name);
    }
    t[n - 1] = *tensor;
    t[n - 1].name = name;
    g[n - 1] = NULL;
    d[n - 1] = run->model.device;
    of_g[n - 1] = NULL;
    run->model.n_tensors = n;
    return DILOCO_OK;
}

void dl_run_set_moves(diloco_run *run, const dl_device_moves *moves)
{
    run->model.moves = *moves;
}

/* Sets the device of what is registered next; NULL means host memory (public, run.h). The functions
 * are copied into a block of their own, since mirrors keep a pointer to it. alloc and release are
 * optional together. */
diloco_status diloco_run_device_sized(diloco_run *run, const diloco_device *device, size_t size)
{
    diloco_device seen;
    DL_TRY(must_be_open(run, "diloco_run_device"));
    run->model.device = NULL;
    if (!device) return DILOCO_OK;
    DL_TRY(dl_sized_in(&seen, sizeof seen, device, size, "diloco_device"));
    if (!seen.copy_in || !seen.copy_out || !seen.synchronise)
        return dl_fail(DILOCO_EINVAL, "a device needs copy_in, copy_out and synchronise");
    if (!seen.alloc != !seen.release)
        return dl_fail(DILOCO_EINVAL, "a device needs both alloc and release, or neither");
    if (run->model.n_devices == DL_MAX_DEVICES)
        return dl_fail(DILOCO_EINVAL, "more than %d devices", DL_MAX_DEVICES);
    diloco_device *copy = malloc(sizeof *copy);
    if (!copy) return dl_fail(DILOCO_ENOMEM, "out of memory for a device");
    *copy = seen;
    run->model.device = run->model.known_devices[run->model.n_devices++] = copy;
    return DILOCO_OK;
}

/* Registers where a tensor's gradient is, so that the replica contributes gradients instead of
 * movements (P22). The tensor must be registered before. `gradient` is f32 with the tensor's shape
 * and is borrowed. */
diloco_status diloco_run_gradient(diloco_run *run, const char *tensor, const float *gradient)
{
    DL_TRY(must_be_open(run, "diloco_run_gradient"));
    for (size_t i = 0; i < run->model.n_tensors; i++) {
        if (strcmp(run->model.tensors[i].name, tensor) != 0) continue;
        if (dl_dtype_stored(run->model.tensors[i].dtype) != DILOCO_F32)
            return dl_fail(DILOCO_EINVAL, "tensor %s is of whole numbers: it has no gradient",
                           tensor);
        run->model.gradients[i] = gradient;
        run->model.gradient_devices[i] = gradient ? run->model.device : NULL;
        run->model.has_gradients = true;
        return DILOCO_OK;
    }
    return dl_fail(DILOCO_EINVAL, "register tensor %s before its gradient", tensor);
}

/* The name becomes a tensor's name in a safetensors file, hence printable ASCII. The memory is
 * borrowed until the run is closed, and a resume overwrites it. The limit of a length is far beyond
 * any memory: a caller's -1 must not reach the sums of lengths. */
diloco_status diloco_run_private_by(diloco_run *run, const char *name, void *data, size_t len,
                                    diloco_fill_fn fill, void *user)
{
    const size_t most = (size_t)1 << 47;
    if (run->join.joined) return dl_fail(DILOCO_EINVAL, "register %s before diloco_run_join", name);
    const size_t name_len = name ? strlen(name) : 0;
    if (!name_len || name_len > DILOCO_NAME_MAX || (len && !data))
        return dl_fail(DILOCO_EINVAL, "a private piece needs a place and a name of 1 to %d bytes",
                       DILOCO_NAME_MAX);
    if (len > most)
        return dl_fail(DILOCO_EINVAL, "private piece %s has %zu bytes, which is beyond any memory",
                       name, len);
    for (size_t i = 0; i < name_len; i++)
        if (name[i] < ' ' || name[i] > '~')
            return dl_fail(DILOCO_EINVAL, "a private piece's name is printable ASCII");
    for (size_t i = 0; i < run->model.n_privates; i++)
        if (strcmp(run->model.privates[i].name, name) == 0)
            return dl_fail(DILOCO_EINVAL, "private piece %s is registered twice", name);
    if (run->model.n_privates == DL_MAX_PRIVATES)
        return dl_fail(DILOCO_EINVAL, "more than %d private pieces", DL_MAX_PRIVATES);
    char *copy = strdup(name);
    if (!copy) return dl_fail(DILOCO_ENOMEM, "out of memory for %s", name);
    const size_t i = run->model.n_privates;
    run->model.privates[i] =
        (dl_private){.name = copy, .data = data, .len = len, .fill = fill, .user = user};
    const diloco_status status = dl_run_place_private(run, i);
    if (status)
        free(copy);
    else
        run->model.n_privates++;
    return status;
}

/* Registers bytes that are saved with the local state and never sent (public, run.h). */
diloco_status diloco_run_private(diloco_run *run, const char *name, void *data, size_t len)
{
    return diloco_run_private_by(run, name, data, len, NULL, NULL);
}

void diloco_copy(void *to, const void *from, size_t len)
{
    dl_copy_around(to, from, len);
}

/* Registers a tensor that is not exchanged but must be equal everywhere, such as a frozen base
 * under an adapter. Only its digest is kept. */
diloco_status diloco_run_base(diloco_run *run, const char *name, const char *kind, const void *data,
                              size_t len)
{
    DL_TRY(must_be_open(run, "diloco_run_base"));
    if (!name || !kind || (len && !data))
        return dl_fail(DILOCO_EINVAL, "a base tensor needs a name, a kind and its values");
    for (size_t i = 0; i < run->model.n_tensors; i++)
        if (strcmp(run->model.tensors[i].name, name) == 0)
            return dl_fail(DILOCO_EINVAL, "tensor %s is exchanged: it is no base tensor", name);
    return dl_base_add(&run->model.base, name, kind, dl_digest_bytes(data, len));
}

diloco_status diloco_run_data_digest(diloco_run *run, const char *hex)
{
    dl_hash ignored;
    DL_TRY(must_be_open(run, "diloco_run_data_digest"));
    if (!dl_hash_from_hex(&ignored, hex, strlen(hex)))
        return dl_fail(DILOCO_EINVAL, "a data digest is %d hex digits", DL_HASH_HEX);
    memcpy(run->data_digest, hex, DL_HASH_HEX + 1);
    return DILOCO_OK;
}

void diloco_run_on_record(diloco_run *run, diloco_record_fn fn, void *user)
{
    run->record.sink = fn;
    run->record.user = user;
}

void diloco_run_record(diloco_run *run, const char *line, size_t len)
{
    dl_record_line(&run->record, line, len);
}

void diloco_run_on_lr(diloco_run *run, double (*fn)(void *user, uint64_t entry), void *user)
{
    run->hooks.lr = fn;
    run->hooks.lr_user = user;
}

void diloco_run_on_wait(diloco_run *run, double after_s, diloco_wait_fn fn, void *user)
{
    run->hooks.wait = (dl_wait_hook){.fn = fn, .user = user, .after_s = after_s};
}

void diloco_run_on_probe(diloco_run *run, diloco_probe_fn fn, void *user)
{
    run->hooks.probe = fn;
    run->hooks.probe_user = user;
}

/* Ends the current blocking call, or the next one, with DILOCO_EINTERRUPTED. The first flag is kept
 * for diloco_run_now; the call that it ends clears the second. */
void diloco_run_interrupt(diloco_run *run)
{
    atomic_store(&run->calls.interrupted, true);
    atomic_store(&run->calls.stop, true);
}

/* ---- stepping --------------------------------------------------------------------------- */

/* The range of samples then begins at the next sample, since adopted training drops its samples
 * (P18.1). */
void dl_run_fresh(void *user, uint32_t fragment)
{
    diloco_run *run = user;
    run->trained.work[fragment] = (dl_train_stats){.shard = run->trained.at.shard,
                                                   .step = run->trained.at.step,
                                                   .first_sample = run->trained.at.next_sample,
                                                   .end_sample = run->trained.at.next_sample};
    run->trained.loss_sum[fragment] = 0;
}

uint64_t dl_run_samples_a_step(const diloco_run *run)
{
    return (uint64_t)(run->config.batch_size * run->config.accumulation);
}

/* If the log deals the data, it names the next sample itself. Otherwise each skipped position skips
 * the samples of one step, so that they follow from the position (P18). Fragments with no training
 * get the new beginning of their range; others keep theirs. */
void dl_run_skip(diloco_run *run)
{
    const uint64_t to = dl_driver_position(run->driver);
    const bool assigned = dl_driver_sample(run->driver, &run->trained.at.next_sample);
    if (to == run->trained.position && !assigned) return;
    if (!assigned)
        run->trained.at.next_sample += (to - run->trained.position) * dl_run_samples_a_step(run);
    for (uint32_t f = 0; f < run->trained.n_fragments; f++)
        if (run->trained.work[f].steps == 0) dl_run_fresh(run, f);
    run->trained.position = to;
}

void dl_run_go_on(diloco_run *run)
{
    dl_run_skip(run);
    run->trained.trained_since = dl_clock_now();
}

static bool deals(const diloco_run *run)
{
    return run->config.deal == DL_DEAL_LOG;
}

/* Adds one completed step to all counters. Every fragment counts it, since a step trains the whole
 * model. The driver is called last: it moves the position that the exchange reads. */
static void count(diloco_run *run, const diloco_step_report *report)
{
    dl_progress *p = &run->trained.at;
    run->trained.last = *report;
    run->trained.generation_steps++;
    run->trained.generation_tokens += report->tokens;
    run->trained.position++;
    p->step++;
    p->next_sample += report->samples;
    for (size_t f = 0; f < run->trained.n_fragments; f++) {
        dl_train_stats *w = &run->trained.work[f];
        run->trained.loss_sum[f] += report->loss;
        w->step = p->step;
        w->steps++;
        w->samples += report->samples;
        w->tokens += report->tokens;
        w->end_sample = p->next_sample;
        w->position = run->trained.position;
        w->loss = dl_mean_loss(run->trained.loss_sum[f], w->steps);
    }
    dl_driver_count_step(run->driver, p->step, report->loss);
}

/* Begins a stop: ends the measured training time, and marks an exchange as in progress. A stop that
 * was interrupted is already begun. Returns DILOCO_EINVAL if no sample was reported, because a
 * contribution without samples does not count (P14.2). */
static diloco_status begin_stop(diloco_run *run)
{
    if (run->trained.due) return DILOCO_OK;
    if (run->trained.last.samples == 0 && run->trained.work[0].samples == 0)
        return dl_fail(DILOCO_EINVAL,
                       "no samples were reported since the last entry: a contribution without "
                       "samples does not count, and the other replicas would wait for it");
    run->trained.training += dl_clock_now() - run->trained.trained_since;
    run->trained.due = true;
    return DILOCO_OK;
}

/* Carries out all that is due here, and returns once training may continue. `due` stays set after
 * an error or an interrupt, so the next call resumes the same stop. A copy to a device returns no
 * status, so its failure is read here. */
static diloco_status stop(diloco_run *run)
{
    DL_TRY(begin_stop(run));
    DL_TRY(dl_driver_stop(run->driver));
    DL_TRY(dl_run_check_devices(run));
    run->trained.due = false;
    dl_run_go_on(run);
    if (diloco_run_done(run)) dl_run_end_line(run);
    return DILOCO_OK;
}

/* Samples or tokens of a step. A contribution counts them over all steps of the run. */
static const uint64_t MOST_OF_STEP = UINT64_C(1) << 40;

/* Counts a step, unless `given` is NULL. *is_due: something is due at this position. Common part of
 * diloco_step and diloco_run_prepare, which `what` names in errors. A report is refused while a
 * stop is in progress: the capture of that position is already made. A step of another size is
 * refused if the log deals the data, since positions count samples there (P18.8). */
static diloco_status take_step(bool *is_due, diloco_run *run, const diloco_step_report *given,
                               size_t size, const char *what)
{
    diloco_step_report seen;
    const diloco_step_report *report = given ? &seen : NULL;
    *is_due = false;
    DL_TRY(must_be_joined(run, what));
    if (given) DL_TRY(dl_sized_in(&seen, sizeof seen, given, size, "diloco_step_report"));
    if (diloco_run_done(run)) return DILOCO_OK;
    if (report && (report->samples > MOST_OF_STEP || report->tokens > MOST_OF_STEP))
        return dl_fail(DILOCO_EINVAL,
                       "a step of %llu samples and %llu tokens was reported: at most %llu of each",
                       (unsigned long long)report->samples, (unsigned long long)report->tokens,
                       (unsigned long long)MOST_OF_STEP);
    if (report && deals(run) && report->samples != dl_run_samples_a_step(run))
        return dl_fail(DILOCO_EINVAL,
                       "data.deal = \"log\" deals %llu samples a step (trainer.batch_size x "
                       "trainer.gradient_accumulation_steps), and a step of %llu was reported: "
                       "set these to what a step takes, or data.deal to \"local\"",
                       (unsigned long long)dl_run_samples_a_step(run),
                       (unsigned long long)report->samples);
    if (report && run->trained.due)
        return dl_fail(DILOCO_EINVAL, "an exchange is in flight: call diloco_step with NULL, or "
                                      "diloco_run_perform");
    if (report) count(run, report);
    dl_record_deliver(&run->record);
    *is_due = run->trained.position >= dl_driver_train_until(run->driver);
    return DILOCO_OK;
}

diloco_status diloco_step_sized(diloco_run *run, const diloco_step_report *given, size_t size)
{
    bool is_due;
    DL_TRY(take_step(&is_due, run, given, size, "diloco_step"));
    return is_due ? stop(run) : DILOCO_OK;
}

/* The part of diloco_step that does not wait (public, run.h): counts the step, and captures what is
 * due. Training may continue until diloco_run_perform. */
diloco_status diloco_run_prepare_sized(diloco_run *run, const diloco_step_report *given,
                                       size_t size, bool *due)
{
    bool is_due;
    if (due) *due = false;
    DL_TRY(take_step(&is_due, run, given, size, "diloco_run_prepare"));
    if (!is_due) return DILOCO_OK;
    DL_TRY(begin_stop(run));
    if (due) *due = true;
    return dl_driver_capture(run->driver);
}

diloco_status diloco_run_perform(diloco_run *run)
{
    DL_TRY(must_be_joined(run, "diloco_run_perform"));
    return run->trained.due ? stop(run) : DILOCO_OK;
}

diloco_status diloco_run_split(diloco_run *run)
{
    if (run->join.joined)
        return dl_fail(DILOCO_EINVAL, "diloco_run_split has to come before diloco_run_join");
    run->join.split = true;
    return DILOCO_OK;
}

bool diloco_run_done(const diloco_run *run)
{
    return run->join.joined && dl_driver_done(run->driver);
}

/* Returns the position at the run's end, and its number of entries. Both are 0 or the option's
 * value before the manifest is known. */
static uint64_t positions_of(const diloco_run *run, uint64_t *entries)
{
    dl_schedule s;
    const int n = run->file.manifest.n_fragments;
    *entries = (uint64_t)run->config.rounds;
    if (n == 0 || dl_schedule_of(&s, &run->config, n)) return 0; /* refused at creation */
    *entries = dl_schedule_entries(&s, (uint64_t)run->config.rounds);
    return dl_schedule_end(&s, *entries);
}

/* Before the join only the trainer's own fields are known. Afterwards the driver's facts are read
 * under its lock. */
static diloco_run_info now(const diloco_run *run)
{
    diloco_run_info info = {.position = run->trained.position,
                            .step = run->trained.at.step,
                            .sample = run->trained.at.next_sample,
                            .generation = run->self.number,
                            .shard = (int)run->trained.at.shard,
                            .resumed = run->join.resumed,
                            .interrupted = atomic_load(&run->calls.interrupted),
                            .fragments = (uint32_t)run->trained.n_fragments,
                            .loss_mean = NAN};
    info.positions = positions_of(run, &info.entries);
    memcpy(info.run, run->file.id, sizeof info.run);
    if (!run->join.joined) return info;
    const dl_driver_facts f = dl_driver_facts_now(run->driver);
    info.entry = f.entry;
    info.generation = f.generation;
    info.next_stop = f.next_stop;
    info.bytes_sent = f.bytes_sent;
    info.bytes_received = f.bytes_received;
    info.loss_mean = f.loss;
    return info;
}

void diloco_run_now_sized(const diloco_run *run, diloco_run_info *out, size_t size)
{
    const diloco_run_info info = now(run);
    dl_sized_out(out, size, &info, sizeof info);
}

/* The destination of diloco_run_theta: one place for each tensor, in order of registration; NULL
 * skips it. */
typedef struct theta_copy {
    const diloco_run *run;
    void *const *data;
} theta_copy;

/* Copies the shared model while the driver holds the state. Trained tensors come from the outer
 * optimizer's view for evaluation, which may differ from theta. A bf16 or f16 tensor is rounded
 * from its float32 state. The state may be offloaded to disk, so the pages that were read are
 * released at the end. */
static void copy_theta(void *user, const dl_state *state)
{
    const theta_copy *c = user;
    for (size_t i = 0; i < c->run->model.n_tensors; i++) {
        const dl_manifest_tensor *t = &c->run->file.manifest.tensors[i];
        const dl_fragment_state *f = &state->now[t->fragment];
        const void *from = t->region == DL_INTEGERS   ? (const void *)(f->integers + t->offset)
                           : t->region == DL_BOOLEANS ? (const void *)(f->booleans + t->offset)
                           : t->region == DL_TRAINED
                               ? (const void *)(dl_state_evaluated(state, t->fragment) + t->offset)
                               : (const void *)(f->theta + t->offset);
        if (!c->data[i]) continue;
        if (dl_dtype_stored(t->dtype) != t->dtype)
            dl_narrow(c->data[i], from, t->count, dl_dtype_name(t->dtype));
        else
            memcpy(c->data[i], from, t->count * dl_dtype_size(t->dtype));
    }
    dl_state_put_out_all(state);
}

diloco_status diloco_run_theta(const diloco_run *run, void *const *data, size_t n)
{
    DL_TRY(must_be_joined(run, "diloco_run_theta"));
    if (n != run->model.n_tensors)
        return dl_fail(DILOCO_EINVAL, "%zu places for %zu tensors", n, run->model.n_tensors);
    theta_copy copy = {run, data};
    dl_driver_read_state(run->driver, copy_theta, &copy);
    return DILOCO_OK;
}

/* ---- ending ----------------------------------------------------------------------------- */

/* Saves for a clean stop (public, run.h). Captures are uploaded first, as far as the store answers
 * soon (P16.4). A stop calls this after an interrupt, which is then still pending and has to reach
 * the next call that waits. Only an interrupt during the save ends the save. */
diloco_status diloco_run_save(diloco_run *run)
{
    DL_TRY(must_be_joined(run, "diloco_run_save"));
    const bool pending = atomic_exchange(&run->calls.stop, false);
    dl_driver_settle(run->driver);
    const diloco_status status = dl_run_save_local(run);
    if (pending) atomic_store(&run->calls.stop, true);
    return status;
}

diloco_status diloco_run_leave(diloco_run *run)
{
    DL_TRY(must_be_joined(run, "diloco_run_leave"));
    return dl_driver_leave(run->driver);
}

/* Ends the exchange, uploads the record and frees everything (public, run.h). The driver halts
 * first, because it still writes record lines. The record needs the store. The store's handles may
 * be those of the caller's own part, so the parts go last. A handle that failed to open may be
 * closed too. */
void diloco_run_close(diloco_run *run)
{
    if (!run) return;
    if (run->driver) dl_driver_halt(run->driver);
    dl_record_deliver(&run->record);
    if (run->created) dl_run_end_record(run);
    dl_run_unjoin(run);
    dl_store_close(run->store);
    dl_runfile_deinit(&run->file);
    dl_signer_close(run->signer);
    dl_record_deinit(&run->record);
    for (size_t i = 0; i < run->model.n_tensors; i++)
        free((void *)(uintptr_t)run->model.tensors[i].name);
    for (size_t i = 0; i < run->model.n_privates; i++)
        free((void *)(uintptr_t)run->model.privates[i].name);
    free(run->workers.watch.at);
    free(run->model.tensors);
    free(run->model.gradients);
    dl_base_deinit(&run->model.base);
    dl_run_release_devices(run);
    free(run->trained.work);
    free(run->trained.loss_sum);
    free(run->room.saved);
    free(run->room.bases);
    free(run->room.captures);
    free(run->room.paces);
    free(run->room.places);
    dl_user_destroy(run->user); /* after the store's handles */
    free(run);
}
