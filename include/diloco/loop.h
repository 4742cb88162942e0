/* loop.h - the outer loop alone, over a communicator of the caller's: no store, no log.
 *
 *     diloco_loop_options options = {.size = sizeof options, .sync_every = 100};
 *     diloco_loop_create(&loop, &options, &communicator);
 *     diloco_loop_tensor(loop, &weights);          // each tensor, in a fixed order
 *     diloco_loop_start(loop);                     // theta = what the tensors hold now
 *     for (;;) {
 *         ... one optimizer step on weights ...
 *         diloco_loop_step(loop);                  // counts; synchronises when it is time
 *     }
 *     diloco_loop_destroy(loop);
 *
 * Each fragment f of the model has its shared value theta_f. A synchronisation has two halves:
 *
 *     prepare   start_quorum; f = current_step mod P; g = theta_f - local; all_reduce of g begins
 *
 *     perform   wait; should_commit; theta_f, state <- outer(theta_f, state, mean of g);
 *               local <- theta_f + alpha (local - theta_f)
 *
 * The sign is before - after, and outer() steps against it: theta - lr g with plain SGD.
 *
 * Schedule: that of torchft's DiLoCo class. sync_every (H) steps are a whole rotation of the P
 * fragments, so every H/P steps one is due: fragment p first after (p+1) H/P steps, then every H.
 * Its prepare comes fragment_sync_delay steps earlier, so that the all-reduce runs beside them.
 * One fragment is in flight at a time.
 *
 * A refused commit (or one that went wrong: see diloco_loop_perform) leaves theta and the outer
 * state as they were, and puts the fragment's tensors back to theta. The fragment is due again:
 * current_step did not move. Data is not replayed.
 *
 * Float32 in memory, any type through diloco_loop_copy. Equal inputs give equal bits at any number
 * of threads and on any instruction set. After the first synchronisation nothing is allocated, but
 * by save and load. A handle: one thread at a time; any number of handles. */
#ifndef DILOCO_LOOP_H
#define DILOCO_LOOP_H

#include <diloco/config.h>
#include <diloco/tensor.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct diloco_loop diloco_loop;

/* ---- structs of the caller. They point to others and are kept, so each has its own size
 * (status.h): `size` is its sizeof; a member that is 0 or NULL has its default. */

/* One all-reduce. The replicas' calls with equal (entry, fragment, part) belong together, in
 * whatever order they arrive. */
typedef struct diloco_reduce {
    uint64_t entry;     /* current_step at prepare */
    uint32_t fragment;  /* 0 … P-1 */
    uint32_t part;      /* of the fragment: a tensor in registering order, or a bucket */
    const char *tensor; /* its name; NULL: a bucket */
    bool quantize;      /* options.should_quantize */
    float *data;        /* g; shall hold the mean over those who take part when wait returns */
    size_t n;
} diloco_reduce;

typedef struct diloco_communicator {
    size_t size;
    void *user; /* first argument of all */

    /* Begin an all-reduce; *handle is given to wait, once. reduce->data is the communicator's
     * until then; *reduce itself only during the call. */
    diloco_status (*all_reduce)(void *user, const diloco_reduce *reduce, void **handle);
    diloco_status (*wait)(void *user, void *handle);

    /* Agree on the participants, before each prepare. Optional. */
    diloco_status (*start_quorum)(void *user);
    /* Entries committed so far. Optional: NULL counts this handle's commits. */
    uint64_t (*current_step)(void *user);
    /* true: an all-reduce of this entry is known to have failed. Optional. */
    bool (*errored)(void *user);
    /* Vote. `well`: here all went well; with false the answer has to be no. Optional: NULL
     * commits what went well. */
    diloco_status (*should_commit)(void *user, bool well, bool *commit);
} diloco_communicator;

/* Tensors that cannot be read as float32 where they are (on a device, of another type): a copy
 * interface. `tensor` counts registered tensors from 0; elements [first, first + n). On the thread
 * that called the library; the copy is done when the function returns. */
typedef struct diloco_loop_copy {
    size_t size;
    void *user;
    diloco_status (*read)(void *user, float *host, size_t tensor, size_t first, size_t n);
    diloco_status (*write)(void *user, const float *host, size_t tensor, size_t first, size_t n);
    float *staging; /* buffer for the copies, for example pinned; NULL: the loop's own */
    size_t n_staging;
} diloco_loop_copy;

/* One outer step of the caller's own, once per committed fragment: make theta the new one. */
typedef struct diloco_loop_outer {
    uint64_t entry;
    uint32_t fragment;
    size_t n;     /* elements of the fragment: its tensors one after the other */
    float *theta; /* in: before; out: after */
    float *g;     /* the mean of theta - local; may be overwritten */
} diloco_loop_outer;
typedef diloco_status (*diloco_loop_outer_fn)(void *user, const diloco_loop_outer *step);

typedef struct diloco_loop_options {
    size_t size;
    uint32_t fragments;           /* P; 0: 1 */
    uint64_t sync_every;          /* H, a multiple of P; no default */
    uint64_t fragment_sync_delay; /* less than H/P */
    double fragment_update_alpha; /* weight of the local values, 0 … 1 */
    size_t bucket_bytes;          /* all-reduce in pieces of at most this; 0: tensor by tensor */
    bool should_quantize;         /* passed on to all_reduce, and not used otherwise */
    bool keep_local;              /* after a refused commit train on from the local values */
    int n_threads;                /* 0: as many as there are cores */

    /* The outer optimizer: `outer`, or, where it is NULL, one of ours by the server.diloco.outer_*
     * options of `config`, whose NULL is Nesterov, 0.7, 0.9. A cosine's length is its
     * trainer.rounds, in each of which every fragment is synchronised once. Copied. */
    diloco_loop_outer_fn outer;
    void *outer_user;
    const diloco_config *config;

    const diloco_loop_copy *copy; /* for tensors whose data is NULL; copied */
} diloco_loop_options;

/* ---- the loop */

/* Returns DILOCO_EINVAL, with the option's name, if sync_every is below the number of fragments or
 * not a multiple of it. The same if fragment_sync_delay is not below sync_every / fragments, alpha
 * is not in 0 … 1, or a bucket is smaller than one element. The same if a function is missing, or
 * the outer optimizer does not exist or steps whole matrices. DILOCO_ENOMEM. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_loop_create(
    diloco_loop **out, const diloco_loop_options *options, const diloco_communicator *communicator);

/* Register a float32 parameter of tensor->fragment, before start; all replicas register the same
 * ones in the same order. Its data stays the caller's, at the same place, until destroy; data NULL:
 * reached by options.copy under the number of tensors registered before. DILOCO_EINVAL: another
 * type or role, a fragment that is not, a shape that overflows; or a name that was there, or that
 * is not printable ASCII. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_loop_tensor_sized(diloco_loop *loop,
                                                                    const diloco_tensor *tensor,
                                                                    size_t size);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_loop_tensor(diloco_loop *loop,
                                                                const diloco_tensor *tensor)
{
    return diloco_loop_tensor_sized(loop, tensor, sizeof *tensor);
}

/* diloco_loop_start allocates theta, the outer optimizer's vectors and one g of the largest
 * fragment, and takes the tensors' present values as theta. Returns DILOCO_EINVAL if a fragment has
 * no tensors; DILOCO_ENOMEM. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_loop_start(diloco_loop *loop);

/* diloco_loop_step counts one completed optimizer step, and prepares and performs when they are
 * due. Returns their errors; after an error of prepare the next step tries again. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_loop_step(diloco_loop *loop);

/* diloco_loop_prepare and diloco_loop_perform replace diloco_loop_step for callers that choose
 * where to wait. They do not change its counting.
 *
 * prepare returns the status of start_quorum, or DILOCO_EINVAL if one is prepared already.
 *
 * perform sets *committed to the vote (NULL: not wanted). Returns DILOCO_EINVAL if nothing is
 * prepared. If the exchange failed here (all_reduce, wait, errored, or DILOCO_ENUMERIC for a mean
 * that is not finite), the vote is no. The state is then that after a refused commit, the error is
 * returned, and the loop may continue. After DILOCO_ENUMERIC of the outer step itself, or an error
 * of options.outer, *committed is true and this replica's state is to be loaded from elsewhere. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_loop_prepare(diloco_loop *loop);
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_loop_perform(diloco_loop *loop, bool *committed);

typedef struct diloco_loop_info {
    size_t size;      /* set by the caller */
    uint64_t step;    /* steps since the last synchronisation was due, below H/P */
    uint64_t entry;   /* of the last prepare */
    int fragment;     /* prepared and not performed; -1: none */
    uint64_t commits; /* since start or as loaded */
    uint64_t refused; /* since start */
} diloco_loop_info;
DILOCO_API void diloco_loop_now(const diloco_loop *loop, diloco_loop_info *info);

/* diloco_loop_backup sets theta to the tensors' values, diloco_loop_restore the tensors' values to
 * theta, for all fragments. Both return DILOCO_EINVAL before start or while an exchange is in
 * flight. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_loop_backup(diloco_loop *loop);
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_loop_restore(diloco_loop *loop);

/* diloco_loop_view gives a fragment's state in place, valid from start until destroy, to store it
 * elsewhere or to bring a joining replica up to date. It may be written while nothing is in flight.
 * With options.outer there are no vectors. */
enum { DILOCO_LOOP_VECTORS = 3 };
typedef struct diloco_loop_fragment {
    size_t size; /* set by the caller */
    size_t n;    /* elements: the fragment's tensors one after the other */
    float *theta;
    int n_vectors;
    float *vectors[DILOCO_LOOP_VECTORS];
    const char *names[DILOCO_LOOP_VECTORS]; /* "momentum" */
    uint64_t *commits;                      /* outer steps taken on it */
} diloco_loop_fragment;
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_loop_view(diloco_loop *loop, uint32_t fragment,
                                                            diloco_loop_fragment *view);

/* 32 hex digits and a zero byte: equal on two replicas exactly if their theta is, over all
 * fragments. For a communicator that wants to see that all started from one model. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_loop_digest(const diloco_loop *loop,
                                                              char hex[33]);

/* Save or load the outer state (theta, vectors, counters) in one file (docs/formats.md), which is
 * replaced as a whole. A loop that loads it continues bitwise, once the caller has restored its own
 * state: the registered tensors are not touched. Nothing may be in flight. load returns
 * DILOCO_EDIFFERS if the file is of other tensors, another optimizer or another schedule, and
 * DILOCO_EPROTO if it is damaged. It also returns DILOCO_ENOENT and DILOCO_EIO. After an error all
 * is as it was.
 */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_loop_save(const diloco_loop *loop,
                                                            const char *path);
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_loop_load(diloco_loop *loop, const char *path);

/* Waits for what is in flight, since the communicator writes to it. NULL is fine. */
DILOCO_API void diloco_loop_destroy(diloco_loop *loop);

#ifdef __cplusplus
}
#endif
#endif
