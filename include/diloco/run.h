/* run.h - the outer loop for any trainer: open a run, register tensors, call one function
 * after each optimizer step, close.
 *
 *     diloco_run *run;
 *     diloco_run_open(&run, config);                      // run.store and the rest by name
 *     diloco_run_tensor(run, &weights);                   // each tensor, in a fixed order
 *     diloco_run_join(run);                               // create, join or resume the run
 *     while (!diloco_run_done(run)) {
 *         ... one optimizer step on weights ...
 *         diloco_step(run, &(diloco_step_report){.loss = loss, .samples = 8, .tokens = 1024});
 *     }
 *     diloco_run_close(run);
 *
 * A run is a log of commits in a store (docs/architecture.md). diloco_step does nothing but count
 * until H steps are complete; then it sends how far the tensors moved since the last entry
 * (g = before - after), waits until the entry stands, and overwrites the tensors with the
 * new shared model. Inner optimizer state is never touched.
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

/* Copies the configuration, whose run.store names the store; `replica` is this replica's name
 * and stays the same through all its lives. Nothing is read or written yet. DILOCO_EINVAL,
 * DILOCO_EREFUSED: a combination that cannot be faithful, by name. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_open(diloco_run **out,
                                                           const diloco_config *config,
                                                           const char *replica);

/* The same with parts of the caller's own (user.h). Also DILOCO_EINVAL: no parts, a part without a
 * name or a function that it needs, an option that names another than the part that was given, or a
 * store whose name another one has; DILOCO_ENOMEM. */
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

/* Register a tensor, before diloco_run_join. All replicas register the same ones in the same
 * order. The data stays the caller's, at the same place, until close; in host memory it is aligned
 * to its type. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_tensor_sized(diloco_run *run,
                                                                   const diloco_tensor *tensor,
                                                                   size_t size);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_run_tensor(diloco_run *run,
                                                               const diloco_tensor *tensor)
{
    return diloco_run_tensor_sized(run, tensor, sizeof *tensor);
}

/* Where the tensors lie that are registered next; NULL: in host memory, as they do before the first
 * call. Copied, but for what its members point at. At most 16. Before diloco_run_join. Gradients
 * and private pieces are always in host memory. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_device_sized(diloco_run *run,
                                                                   const diloco_device *device,
                                                                   size_t size);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_run_device(diloco_run *run,
                                                               const diloco_device *device)
{
    return diloco_run_device_sized(run, device, sizeof *device);
}

/* Preset data_parallel: the gradient of a registered parameter, f32 of its shape, read at
 * each diloco_step instead of the tensor's movement. It has to follow from the tensors and
 * diloco_run_now alone: a step that was under way at a stop is taken again on resume. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_gradient(diloco_run *run, const char *tensor,
                                                               const float *gradient);

/* Register bytes that belong to this replica alone (inner moments, counters): saved beside the
 * run, given back on resume, never sent. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_private(diloco_run *run, const char *name,
                                                              void *data, size_t len);

/* Register a tensor that the model has and that is never exchanged, such as a frozen weight under
 * an adapter. The run keeps its name, its kind (type and shape in the caller's words, at most 127
 * bytes) and a digest of its values; the values are read during this call only, at about memory
 * speed. All replicas register the same ones in the same order: diloco_run_join returns
 * DILOCO_EDIFFERS and names the first that differs. Before diloco_run_join. Returns DILOCO_EINVAL
 * if the name is invalid, registered before, or that of a diloco_run_tensor; DILOCO_ENOMEM. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_base(diloco_run *run, const char *name,
                                                           const char *kind, const void *data,
                                                           size_t len);

/* What data_digest is compared: replicas on other data are warned about. Optional. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_data_digest(diloco_run *run, const char *hex);

/* One event of the record (docs/architecture.md section 9) as one line of JSON without a newline,
 * valid during the call; on the thread that called the library. */
typedef void (*diloco_record_fn)(void *user, const char *line, size_t len);
DILOCO_API void diloco_run_on_record(diloco_run *run, diloco_record_fn fn, void *user);

/* One line of the caller's own for the same record, as JSON without a newline: it goes to the
 * sink and to the store. After join. */
DILOCO_API void diloco_run_record(diloco_run *run, const char *line, size_t len);

/* The outer learning rate of an entry, where it follows a schedule (preset data_parallel: the
 * inner one). Asked when this replica creates the entry before; all replicas must agree. NULL: the
 * option's constant. Before join. */
DILOCO_API void diloco_run_on_lr(diloco_run *run, double (*fn)(void *user, uint64_t entry),
                                 void *user);

/* Where check.probe is set: the loss, on samples that no replica trains on, of a model that is no
 * replica's: the tensors in registered order, each in its type, in host memory, during the call.
 * Called by the replica that closes an entry, once for the shared model and once for each
 * contribution, inside diloco_run_join, diloco_step and diloco_run_perform, on their thread (so not
 * after diloco_run_split); the registered tensors have to be afterwards as they were. Any measure
 * of which less is better; the fewer samples, the more noise. An error ends the call it is made
 * from. Before join. */
typedef diloco_status (*diloco_probe_fn)(void *user, double *loss, const void *const *data,
                                         size_t n);
DILOCO_API void diloco_run_on_probe(diloco_run *run, diloco_probe_fn fn, void *user);

/* Create the run (its first state is the tensors' present values) or join it: read the newest
 * snapshot, replay the entries after it, take up this replica's saved private state. The
 * tensors then hold what training goes on from. DILOCO_EDIFFERS: the store holds another run,
 * and how it differs. DILOCO_EINVAL, DILOCO_EREFUSED, DILOCO_EUNREACHABLE, DILOCO_EINTERRUPTED.
 * After an error nothing is held and join may be called again; the tensors are unspecified. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_join(diloco_run *run);

/* Only create the run if the store holds none; never join. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_create(diloco_run *run);

typedef struct diloco_step_report {
    double loss;      /* mean loss of the step; NAN when not known */
    uint64_t samples; /* samples the step was trained on; at least 1 to be eligible */
    uint64_t tokens;
} diloco_step_report;

/* One optimizer step is complete. At a due point: exchange, and wait for the entry.
 * DILOCO_EINTERRUPTED: interrupted while waiting; call again (with NULL) or close and resume.
 * DILOCO_EFENCED: a later life of this replica exists: stop. DILOCO_EUNREACHABLE: the store did
 * not come back within run.store_timeout; the saved state allows to resume. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_step_sized(diloco_run *run,
                                                             const diloco_step_report *report,
                                                             size_t size);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_step(diloco_run *run,
                                                         const diloco_step_report *report)
{
    return diloco_step_sized(run, report, sizeof *report);
}

/* The two halves of diloco_step, for who places the wait himself:
 *
 *     diloco_run_prepare(run, &report, &due);       // counts; what is due is taken and sent
 *     ... whatever leaves the tensors alone: evaluate, load data
 *     if (due) diloco_run_perform(run);             // waits for the entry; overwrites the tensors
 *
 * diloco_step is one behind the other. prepare waits for no other replica. What it took is sent and
 * exchanged by a thread of the run's where contributions move beside training
 * (server.diloco.overlap_steps, or after diloco_run_split), else by perform. With *due (NULL: not
 * asked) perform has to come before the next step; without, it does nothing. Errors are
 * diloco_step's; DILOCO_EINTERRUPTED of perform: call it again. */
DILOCO_API DILOCO_MUST_CHECK diloco_status
diloco_run_prepare_sized(diloco_run *run, const diloco_step_report *report, size_t size, bool *due);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_run_prepare(diloco_run *run,
                                                                const diloco_step_report *report,
                                                                bool *due)
{
    return diloco_run_prepare_sized(run, report, sizeof *report, due);
}
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_perform(diloco_run *run);

/* The exchange has a thread of its own also where no steps overlap it. Before diloco_run_join;
 * DILOCO_EINVAL after. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_split(diloco_run *run);

/* All entries of the run are folded. diloco_run_theta gives its result; the tensors hold it too
 * where there is one fragment, no overlap and local_mix 0. */
DILOCO_API bool diloco_run_done(const diloco_run *run);

typedef struct diloco_run_info {
    char run[33];        /* id */
    uint32_t generation; /* this life */
    uint64_t entry;      /* next entry */
    uint64_t entries;    /* of the whole run */
    uint64_t position;   /* t of this replica */
    uint64_t positions;  /* t at the end of the run */
    uint64_t next_stop;  /* position at which something is exchanged or adopted next */
    uint32_t fragments;  /* P: entries of a round */
    uint64_t step;       /* optimizer steps this replica completed, in all its lives */
    uint64_t sample;     /* next sample of its stream, counted over all its lives */
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

/* The shared model as it is now and is to be evaluated (theta, or what the outer optimizer
 * evaluates in its place): copied into data[i], host memory, for each registered tensor in order
 * and in its type (NULL: skipped). After join; between steps. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_theta(const diloco_run *run,
                                                            void *const *data, size_t n);

/* Make the blocking call under way, or the next one that waits, return DILOCO_EINTERRUPTED soon;
 * then it is spent. Any thread; async-signal-safe. */
DILOCO_API void diloco_run_interrupt(diloco_run *run);

/* Save the private state as it is now, so that a resume is bitwise. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_save(diloco_run *run);

/* Say that this replica leaves for good (others stop waiting for it). Optional, before close. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_leave(diloco_run *run);

/* Stop the helpers and free everything. Does not save. NULL is fine. */
DILOCO_API void diloco_run_close(diloco_run *run);

#ifdef __cplusplus
}
#endif
#endif
