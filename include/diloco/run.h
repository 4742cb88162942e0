/* run.h - the outer loop for any trainer: open a run, register tensors, call one function
 * after each optimizer step, close.
 *
 *     diloco_run *run;
 *     diloco_run_open(&run, config, "r0");                // run.store and the rest by name
 *     diloco_run_tensor(run, &weights);                   // each tensor, in a fixed order
 *     diloco_run_join(run);                               // create, join or resume the run
 *     while (!diloco_run_done(run)) {
 *         ... one optimizer step on weights ...
 *         diloco_step(run, &(diloco_step_report){.loss = loss, .samples = 8, .tokens = 1024});
 *     }
 *     diloco_run_close(run);
 *
 * A run is a log of commits in a store (docs/architecture.md). diloco_step only counts until H
 * steps are complete. Then it sends how far the tensors moved since the last entry (g = before -
 * after). It waits until the entry is committed, and overwrites the tensors with the new shared
 * model. Inner optimizer state is never touched.
 *
 * A handle: one thread at a time, except diloco_run_interrupt. */
#ifndef DILOCO_RUN_H
#define DILOCO_RUN_H

#include <diloco/config.h>
#include <diloco/tensor.h>
#include <diloco/user.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct diloco_run diloco_run;

/* ---- the core: open, register, join, step, close */

/* diloco_run_open makes a handle for one replica of a run. It copies the configuration; nothing is
 * read or written yet.
 *
 *   config   run.store names the store
 *   replica  name of this replica, the same after every restart
 *
 * Returns DILOCO_EINVAL if an option or the name is invalid; DILOCO_EREFUSED if options cannot be
 * combined, by name; DILOCO_ENOMEM. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_open(diloco_run **out,
                                                           const diloco_config *config,
                                                           const char *replica);

/* diloco_run_tensor registers a tensor of the model. Call it before diloco_run_join. All replicas
 * register the same tensors in the same order.
 *
 *   tensor  name, shape, type and role are copied; `data` stays the caller's, at the same address,
 *           until diloco_run_close. In host memory it is aligned to its type
 *
 * Returns DILOCO_EINVAL if the name or the data is missing, or the data is not aligned;
 * DILOCO_ENOMEM. A name that is invalid or taken, and a shape, type, role or fragment out of range,
 * are errors of diloco_run_join: the handle can only be closed then. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_tensor_sized(diloco_run *run,
                                                                   const diloco_tensor *tensor,
                                                                   size_t size);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_run_tensor(diloco_run *run,
                                                               const diloco_tensor *tensor)
{
    return diloco_run_tensor_sized(run, tensor, sizeof *tensor);
}

/* diloco_run_private registers `len` bytes that belong to this replica alone, such as inner moments
 * and counters. They are saved beside the run, restored on resume, and never sent. `data` stays the
 * caller's, at the same address, until diloco_run_close. It is on the device that was named last
 * (diloco_run_device), and is read there only when it is saved. Before diloco_run_join. Returns
 * DILOCO_EINVAL if the name is invalid or registered before, or `len` is above 2^47;
 * DILOCO_ENOMEM. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_private(diloco_run *run, const char *name,
                                                              void *data, size_t len);

/* diloco_run_private_by is diloco_run_private for bytes that the caller puts together, such as the
 * state of an optimizer. They are written once, to where they are saved from, and only when they
 * are saved.
 *
 *   data  [len] where diloco_run_join restores the bytes, and where they are saved from if there is
 *         no copy for a save beside training. Memory that is not touched before costs nothing. On a
 *         device the bytes are restored there, and never saved from there.
 *   fill  writes all `len` bytes to `to`, which is in host memory, and is `data` or aligned to 64
 *         bytes; on a device it is never `data`, and aligned as by malloc. It is called on the
 * caller's thread, in diloco_step, the halves of it, or diloco_run_save; in diloco_run_join only if
 * nothing was restored. It may not call functions of this run.
 *
 * A status of `fill` other than DILOCO_OK is the result of that call, and nothing is saved. Without
 * a `fill` (NULL) it is diloco_run_private. */
typedef diloco_status (*diloco_fill_fn)(void *user, void *to);
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_private_by(diloco_run *run, const char *name,
                                                                 void *data, size_t len,
                                                                 diloco_fill_fn fill, void *user);

/* diloco_copy copies `len` bytes between places that do not overlap. It goes around the processor's
 * caches, so it is faster than memcpy for much memory that is not read soon, such as in a fill. Any
 * thread, and several at the same time. */
DILOCO_API void diloco_copy(void *to, const void *from, size_t len);

/* diloco_run_join creates the run, with the tensors' present values as its first state, or joins
 * it. To join it reads the newest snapshot, applies the entries after it, and restores this
 * replica's saved private state. The tensors then hold the values to train from.
 *
 * Returns DILOCO_EDIFFERS if the store holds another run, and names the difference. Returns
 * DILOCO_EUNREACHABLE if the store does not answer within run.store_timeout, and DILOCO_EREFUSED if
 * the store or the roster does not admit this replica. Returns DILOCO_EINVAL if no tensor is
 * registered, and DILOCO_EINTERRUPTED after diloco_run_interrupt. After an error nothing is held
 * and the call may be repeated; the tensors' values are unspecified. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_join(diloco_run *run);

typedef struct diloco_step_report {
    double loss;      /* mean loss of the step; NAN: not known. After an infinite one the
                       contribution has no loss */
    uint64_t samples; /* samples the step was trained on; at least 1 to be eligible, 2^40 at most */
    uint64_t tokens;  /* likewise */
} diloco_step_report;

/* diloco_step counts one completed optimizer step. At a due point it exchanges: it sends how far
 * the tensors moved, waits for the entry, and overwrites the tensors with the shared model.
 *
 *   report  what the step trained on; NULL repeats a call that was interrupted
 *
 * Returns DILOCO_EINTERRUPTED if it was interrupted while it waited: call again with NULL, or close
 * and resume. DILOCO_EFENCED if a later generation of this replica exists: stop.
 * DILOCO_EUNREACHABLE or DILOCO_EFULL if the store did not come back within run.store_timeout:
 * close, and resume from the saved state. DILOCO_ENUMERIC if a tensor's value is not finite. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_step_sized(diloco_run *run,
                                                             const diloco_step_report *report,
                                                             size_t size);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_step(diloco_run *run,
                                                         const diloco_step_report *report)
{
    return diloco_step_sized(run, report, sizeof *report);
}

/* diloco_run_done returns true once all entries of the run are applied. diloco_run_theta gives the
 * result; the tensors hold it too with one fragment, no overlap and local_mix 0. */
DILOCO_API bool diloco_run_done(const diloco_run *run);

typedef struct diloco_run_info {
    char run[33];        /* id */
    uint32_t generation; /* of this process */
    uint64_t entry;      /* next entry */
    uint64_t entries;    /* of the whole run */
    uint64_t position;   /* t of this replica */
    uint64_t positions;  /* t at the end of the run */
    uint64_t next_stop;  /* position at which something is exchanged or adopted next */
    uint32_t fragments;  /* P: entries of a round */
    uint64_t step;       /* optimizer steps this replica completed, in all its generations */
    uint64_t sample;     /* next sample of its stream, counted over all its generations */
    int shard;           /* which shard of the data is this replica's; data.deal = "log": none, but
                          * `sample` is of all the data */
    bool resumed;        /* diloco_run_join took up saved private state */
    bool interrupted;    /* diloco_run_interrupt was called */
    uint64_t bytes_sent, bytes_received;
    double loss_mean; /* over the members of the last commit; NAN before */
} diloco_run_info;
DILOCO_API void diloco_run_now_sized(const diloco_run *run, diloco_run_info *out, size_t size);
DILOCO_SIZED diloco_run_info diloco_run_now(const diloco_run *run)
{
    diloco_run_info info;
    diloco_run_now_sized(run, &info, sizeof info);
    return info;
}

/* diloco_run_theta copies the shared model, as it is to be evaluated: theta, or the values that the
 * outer optimizer evaluates instead.
 *
 *   data  [n] host memory for each registered tensor, in order and in its type; NULL: skipped
 *
 * Returns DILOCO_EINVAL if n is not the number of tensors. After diloco_run_join; between steps. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_theta(const diloco_run *run,
                                                            void *const *data, size_t n);

/* diloco_run_interrupt makes the call that waits, or the next one that would wait, return
 * DILOCO_EINTERRUPTED soon. It acts on one call. Any thread; async-signal-safe. */
DILOCO_API void diloco_run_interrupt(diloco_run *run);

/* diloco_run_save saves the private state as it is now, so that a resume is bitwise. Returns
 * DILOCO_EFULL or DILOCO_EIO if the state folder cannot be written. Returns DILOCO_ENUMERIC if a
 * tensor has a value that is not finite. The state that was saved before is kept then. Returns
 * DILOCO_EINTERRUPTED if diloco_run_interrupt is called while this call waits for a save beside
 * training, for example on a full disk. An earlier interrupt does not end it. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_save(diloco_run *run);

/* diloco_run_leave reports that this process ends, so that entries wait for its replica until their
 * deadline only. A later process of the replica may rejoin. Optional, before diloco_run_close. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_leave(diloco_run *run);

/* diloco_run_close stops the run's threads and frees everything. It does not save. NULL is allowed.
 */
DILOCO_API void diloco_run_close(diloco_run *run);

/* ---- more: devices, gradients, records, hooks, parts of the caller's own */

/* diloco_run_open_with is diloco_run_open with parts of the caller's own (user.h). Returns also
 * DILOCO_EINVAL if there are no parts, or if a part lacks its name or a function that it needs. The
 * same if an option names another part, or if another open store has that name. */
DILOCO_API DILOCO_MUST_CHECK diloco_status
diloco_run_open_with_sized(diloco_run **out, const diloco_config *config, const char *replica,
                           const diloco_user_parts *parts, size_t size);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_run_open_with(diloco_run **out,
                                                                  const diloco_config *config,
                                                                  const char *replica,
                                                                  const diloco_user_parts *parts)
{
    return diloco_run_open_with_sized(out, config, replica, parts, sizeof *parts);
}

/* diloco_run_device names the device of the tensors, gradients and private pieces that are
 * registered after it. NULL means host memory, as before the first call. The struct is copied,
 * without what its members point at. At most 16 devices; before diloco_run_create and
 * diloco_run_join. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_device_sized(diloco_run *run,
                                                                   const diloco_device *device,
                                                                   size_t size);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_run_device(diloco_run *run,
                                                               const diloco_device *device)
{
    return diloco_run_device_sized(run, device, sizeof *device);
}

/* diloco_run_gradient names the gradient of a registered parameter, f32 of its shape, on the device
 * that was named last (diloco_run_device), which need not be the tensor's. With preset
 * data_parallel each diloco_step reads it instead of the tensor's movement. It must follow from the
 * tensors and diloco_run_now alone: a step that a stop interrupted is taken again on resume. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_gradient(diloco_run *run, const char *tensor,
                                                               const float *gradient);

/* diloco_run_base registers a tensor that the model has and that is never exchanged, such as a
 * frozen weight under an adapter. The run keeps its name, its kind (type and shape in the caller's
 * words, at most 127 bytes) and a digest of its values. The values are in host memory, and are read
 * during this call only, at about memory speed. All replicas register the same ones in the same
 * order: diloco_run_join returns DILOCO_EDIFFERS and names the first that differs. Call it before
 * diloco_run_join. Returns DILOCO_EINVAL if the name is invalid, registered before, or that of a
 * diloco_run_tensor; DILOCO_ENOMEM. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_base(diloco_run *run, const char *name,
                                                           const char *kind, const void *data,
                                                           size_t len);

/* diloco_run_data_digest sets a digest of the training data, 32 hex digits. A replica with another
 * one gets a warning. Optional; before diloco_run_join. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_data_digest(diloco_run *run, const char *hex);

/* One event of the record (docs/architecture.md section 9) as one line of JSON without a newline,
 * valid during the call; on the thread that called the library. */
typedef void (*diloco_record_fn)(void *user, const char *line, size_t len);
DILOCO_API void diloco_run_on_record(diloco_run *run, diloco_record_fn fn, void *user);

/* diloco_run_record adds a line of the caller's to the record: `len` bytes of JSON without a
 * newline, for the sink and the store. After diloco_run_join. */
DILOCO_API void diloco_run_record(diloco_run *run, const char *line, size_t len);

/* diloco_run_on_lr sets a function that returns the outer learning rate of an entry (with preset
 * data_parallel, the inner one). It is called when this replica creates the entry before, and must
 * return the same value on all replicas. NULL means the option's constant. Before join. */
DILOCO_API void diloco_run_on_lr(diloco_run *run, double (*fn)(void *user, uint64_t entry),
                                 void *user);

/* diloco_run_on_wait sets a function that is called during a long wait of diloco_step for other
 * replicas. Its first call comes when a wait has lasted after_s seconds. The next one comes when a
 * wait has lasted twice as long as that of the call before. `entry` is the missing one. It is
 * called on the thread of diloco_step, and may call nothing of the run. It is not called for the
 * workers of a federated run. Before join. */
typedef void (*diloco_wait_fn)(void *user, uint64_t entry, double waited_s);
DILOCO_API void diloco_run_on_wait(diloco_run *run, double after_s, diloco_wait_fn fn, void *user);

/* Where check.probe is set: the function returns the loss of a model on samples that no replica
 * trains on. The model's tensors come in registered order, each in its type, in host memory, during
 * the call; they are no replica's. The replica that closes an entry calls it once for the shared
 * model and once for each contribution. The call is inside diloco_run_join, diloco_step and
 * diloco_run_perform, on their thread (so not after diloco_run_split). The registered tensors have
 * to be unchanged afterwards. Any measure of which less is better; the fewer samples, the more
 * noise. An error ends the call it is made from. Before join. */
typedef diloco_status (*diloco_probe_fn)(void *user, double *loss, const void *const *data,
                                         size_t n);
DILOCO_API void diloco_run_on_probe(diloco_run *run, diloco_probe_fn fn, void *user);

/* diloco_run_create creates the run if the store holds none, and never joins it. Errors are those
 * of diloco_run_join. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_create(diloco_run *run);

/* diloco_run_prepare and diloco_run_perform are diloco_step in two calls, for callers that choose
 * where to wait:
 *
 *     diloco_run_prepare(run, &report, &due);       // counts; captures and sends what is due
 *     ... evaluate, load data: leave the tensors alone
 *     if (due) diloco_run_perform(run);             // waits for the entry; overwrites the tensors
 *
 * prepare waits for no other replica. A thread of the run sends and exchanges its capture with
 * server.diloco.overlap_steps or after diloco_run_split; otherwise perform does. If *due is true,
 * perform must be called before the next step; otherwise it does nothing. `due` may be NULL. Both
 * return the errors of diloco_step. After DILOCO_EINTERRUPTED call perform again. */
DILOCO_API DILOCO_MUST_CHECK diloco_status
diloco_run_prepare_sized(diloco_run *run, const diloco_step_report *report, size_t size, bool *due);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_run_prepare(diloco_run *run,
                                                                const diloco_step_report *report,
                                                                bool *due)
{
    return diloco_run_prepare_sized(run, report, sizeof *report, due);
}
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_perform(diloco_run *run);

/* diloco_run_split gives the exchange a thread of its own even if no steps overlap it. Call it
 * before diloco_run_join; returns DILOCO_EINVAL after. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_split(diloco_run *run);

#ifdef __cplusplus
}
#endif
#endif
