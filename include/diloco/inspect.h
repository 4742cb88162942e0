/* inspect.h - reading a run: its settings, members, log, records, model and verification. */
#ifndef DILOCO_INSPECT_H
#define DILOCO_INSPECT_H

#include <diloco/run.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One entry of the log. It and its pointers are valid during the call. */
typedef struct diloco_log_entry {
    uint64_t entry;
    bool commit;
    uint32_t fragment;
    uint64_t position;
    const char *committer; /* "r0.0000" */
    const char *reason;    /* of an abort */
    size_t n_members;
    const char *const *members; /* lives */
    const float *weights;
    const char *const *roster; /* awaited at the next entry */
    size_t n_roster;
    double loss;
    uint64_t bytes;                   /* of the members' contributions */
    const char *combined_by;          /* replica that combined them for all; "": every replica */
    uint64_t combined_bytes;          /* size of the combined update */
    uint64_t steps, samples;          /* that the members took for it */
    double simulated_s;               /* that its round took in simulated time; 0: time is real */
    const char *base, *result, *prev; /* digests, hex */
    size_t n_rejected;                /* contributions that the entry does not use (check.*): */
    const char *const *rejected;      /* their generations, */
    const char *const *rejected_for;  /* and for each a word: "norm", "cosine", "non-finite", … */
} diloco_log_entry;

/* A status other than OK stops the walk and is returned. */
typedef diloco_status (*diloco_log_entry_fn)(void *user, const diloco_log_entry *entry);

/* diloco_log_walk calls `fn` for each entry from number `from` on, in order. It reads no entry
 * before `from`. Returns DILOCO_ENOENT if no run is at `url`, or the first status of `fn` other
 * than DILOCO_OK. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_log_walk(const char *url, uint64_t from,
                                                           diloco_log_entry_fn fn, void *user);

/* diloco_log_length sets *n to the number of entries of the log. It searches for the end from the
 * newest snapshot on, so its time does not grow with the log. If the store has lost an entry after
 * that snapshot, the count may end there. Returns DILOCO_ENOENT if no run is at `url`. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_log_length(uint64_t *n, const char *url);

/* diloco_log_check_gap looks for a lost entry. A log has no gaps, so a reader takes the first entry
 * that is not there, `next`, for the log's end. Costs one listing of log/ after the entry before
 * it. Returns DILOCO_EPROTO if an entry from `next` on is missing and a later one of the run
 * exists; the error names both. Returns DILOCO_ENOENT if no run is at `url`. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_log_check_gap(const char *url, uint64_t next);

/* The record that replicas left in the store (docs/architecture.md section 9), one line of JSON a
 * call, without its newline: one generation after the other, each in its order. A generation's last
 * lines may be missing: they are put there in parts; a part that is damaged is left out, with a
 * warning. A status other than OK stops the walk and is returned. DILOCO_ENOENT: no run there, or
 * no record of it. */
typedef diloco_status (*diloco_record_line_fn)(void *user, const char *line, size_t len);
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_record_walk(const char *url,
                                                              diloco_record_line_fn fn, void *user);

/* Contributions that commits have rejected (check.*), by the word that they give for it. */
typedef struct diloco_rejection {
    char reason[16]; /* "norm", "cosine", "non-finite", … */
    uint64_t n;
} diloco_rejection;
typedef struct diloco_rejections {
    uint64_t n;
    size_t n_reasons;
    diloco_rejection reasons[16];
} diloco_rejections;

/* In a run with keys only heartbeats and ends count that the replica's key has signed, and the
 * generation is the newest that has signed a heartbeat. */
typedef struct diloco_replica_status {
    char replica[32];
    uint32_t generation;
    bool ended; /* said that it leaves, or finished */
    bool alive; /* its heartbeat changed while we watched */
    bool seen;  /* it has a heartbeat */
    uint64_t step, entry, position;
    double steps_per_s;
    char host[64];
    /* After its last contribution (0 before the first): the deadline that the replica derived,
     * after which an entry may close without missing replicas. Then its link as it measured it
     * (docs/protocol.md, Deadlines): bits/s, seconds of a request. */
    double deadline_s, up_bps, down_bps, request_s;
    diloco_rejections rejected;
    uint64_t strikes;      /* of these, towards check.ban_after */
    uint64_t banned_until; /* it counts again from this entry on; 0: it is not banned */
    /* With run.peers: where others read its contributions ("": nowhere but in the store), and how
     * many bytes of contributions it read from others and from the store. */
    char address[288];
    uint64_t from_peers, from_store;
    double entry_s;   /* mean seconds of its last entries, with waits; 0: not known */
    double beat_time; /* when its heartbeat was written, by its own clock: seconds since 1970 */
} diloco_replica_status;

/* The replicas that the open entry waits for. */
typedef struct diloco_run_wait {
    uint64_t entry, position; /* of its due point; position: 0 in asynchronous runs */
    size_t n_awaited;         /* its roster; before there is one run.replicas; asynchronous: 1 */
    size_t n_there;           /* contributions to it in the store; asynchronous: not known, 0 */
    size_t n_missing;         /* of the roster */
    char missing[64][32];     /* the first of them */
} diloco_run_wait;

typedef struct diloco_run_status {
    char run[33], preset[32], program[32], config_digest[33], model[32];
    uint64_t parameters;
    uint64_t entries, entries_total; /* folded; the run's length */
    uint64_t commits, aborts;
    uint64_t snapshot; /* newest */
    char exchange[16]; /* how contributions are moved: "allgather", "leader" */
    /* Of the newest commit, of all replicas together, by the formulas of docs/protocol.md P19;
     * entry_read is less where the store confirms what is put (P8). */
    uint64_t entry_written, entry_read;
    bool done;
    diloco_run_wait *wait; /* NULL when it is done */
    size_t n_replicas;
    /* The newest generation of each, by name; at most 256, those first that the log names. */
    diloco_replica_status **replicas;
    void *memory;               /* memory of the two arrays */
    diloco_rejections rejected; /* of all replicas */
    size_t n_banned;            /* replicas that are banned now */
    double alive_s; /* seconds within which a live replica's heartbeat changes: 2 run.heartbeat + 1,
                       at least 11 */
    size_t n_left_out; /* further names that have begun, for which `replicas` has no room */
} diloco_run_status;

/* diloco_run_status_read reads a run's state. It watches heartbeats for watch_s seconds to see
 * which replicas are alive. The caller frees *out with diloco_run_status_free; after an error *out
 * is empty. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_status_read_sized(diloco_run_status *out,
                                                                        size_t size,
                                                                        const char *url,
                                                                        double watch_s);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_run_status_read(diloco_run_status *out,
                                                                    const char *url, double watch_s)
{
    return diloco_run_status_read_sized(out, sizeof *out, url, watch_s);
}
DILOCO_API void diloco_run_status_free(diloco_run_status *status); /* again is fine */

/* diloco_roster_walk reports the owner of a run and the keys of its names (docs/security.md). It
 * calls `fn` first with `replica` and `key` NULL, then for each name with a key: all members of a
 * closed roster, else the names that have begun. `roster` is run.roster. A trusted run has no keys,
 * and `owner` is "". Keys are "ed25519:" and 64 hex digits. A status other than OK stops the walk
 * and is returned. */
typedef diloco_status (*diloco_roster_fn)(void *user, const char *roster, const char *owner,
                                          const char *replica, const char *key);
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_roster_walk(const char *url, diloco_roster_fn fn,
                                                              void *user);

/* The names that a closed roster gives to the key of that file (NULL or "": the default key file),
 * in the roster's order. `begun`: the key has signed a generation of that name. `beats`: the
 * heartbeat of that generation changed within run.patience. It is set only with `watch`, which
 * waits that long where a heartbeat does not change. Forged end/ and gen/ objects change nothing.
 * Returns DILOCO_EREFUSED if the roster is not closed. A status of fn other than OK stops the
 * walk. */
typedef diloco_status (*diloco_own_name_fn)(void *user, const char *replica, bool begun,
                                            bool beats);
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_own_names(const char *url, const char *key,
                                                            bool watch, diloco_own_name_fn fn,
                                                            void *user);

/* diloco_invite makes an invitation to a run with run.roster = "invited". It admits one replica,
 * once, and is secret until it is used.
 *
 *   out      [cap] a line of text without its newline; cap is at least 320
 *   key      file of the owner's key; NULL or "": the usual place
 *   seconds  until it expires
 *
 * Returns DILOCO_EREFUSED if the run has no invitations, or the key is not its owner's;
 * DILOCO_EINVAL if cap is less than 320. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_invite(char *out, size_t cap, const char *url,
                                                         const char *key, uint64_t seconds);

/* diloco_base_walk calls fn with each tensor of the run's base (diloco_run_base), in the order of
 * registration. The texts are valid during the call. Returns the first status of fn that is not
 * DILOCO_OK, or the errors of diloco_run_config. */
typedef diloco_status (*diloco_base_fn)(void *user, const char *name, const char *kind);
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_base_walk(const char *url, diloco_base_fn fn,
                                                            void *user);

/* diloco_run_config sets the options of a run that all its replicas share, with origin "run". If
 * `config` has a run.coord before the call, its server is trusted as the caller's choice: see
 * DILOCO_COORDS in docs/stores.md. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_config(diloco_config *config,
                                                             const char *url);

/* diloco_run_position sets *position to the due point of the log's last entry: the optimizer steps
 * of a replica since the run's first one. 0: the log is empty. In an asynchronous run: (entries
 * / run.replicas) * H. Aborted entries count, since replicas train during them. Returns the errors
 * of diloco_run_config. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_position(uint64_t *position, const char *url);

typedef struct diloco_verify_report {
    uint64_t entries;        /* in the log */
    uint64_t chained;        /* whose prev was checked */
    uint64_t first_replayed; /* the snapshot it began from */
    uint64_t replayed;       /* recomputed from their contributions */
    uint64_t commits, aborts;
    uint64_t voids; /* entries that every replica treats as aborts, because their bytes are wrong */
    bool complete;  /* the run has ended */
    char digest[33];        /* of the state after the last entry */
    uint64_t first_chained; /* diloco_verify_from_snapshot checked no entry before it; else 0 */
} diloco_verify_report;
typedef void (*diloco_verify_fn)(void *user, uint64_t done, uint64_t total);

/* diloco_verify checks the chain of the whole log, applies again every entry that can be applied,
 * and compares every digest. Returns DILOCO_EPROTO if one does not match; the text names the entry
 * and the reason. A void entry is such an error if its committer claims what its members do not
 * give, or if it is the last entry: the store may have damaged it. Any other is only counted. Logs
 * a warning for each void entry, and for contributions that are gone. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_verify_sized(diloco_verify_report *out,
                                                               size_t size, const char *url,
                                                               int n_threads,
                                                               diloco_verify_fn progress,
                                                               void *user);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_verify(diloco_verify_report *out,
                                                           const char *url, int n_threads,
                                                           diloco_verify_fn progress, void *user)
{
    return diloco_verify_sized(out, sizeof *out, url, n_threads, progress, user);
}

/* diloco_verify_from_snapshot does the same from the oldest snapshot of the run on. Earlier entries
 * are not read, except the last of them, with which the snapshot is compared. So the time is that
 * of the entries since that snapshot, which run.retain = "recent" bounds. The state of the snapshot
 * is trusted (docs/security.md). If no replay can begin at a snapshot, or no entry follows it, the
 * whole log is verified. */
DILOCO_API DILOCO_MUST_CHECK diloco_status
diloco_verify_from_snapshot_sized(diloco_verify_report *out, size_t size, const char *url,
                                  int n_threads, diloco_verify_fn progress, void *user);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_verify_from_snapshot(diloco_verify_report *out,
                                                                         const char *url,
                                                                         int n_threads,
                                                                         diloco_verify_fn progress,
                                                                         void *user)
{
    return diloco_verify_from_snapshot_sized(out, sizeof *out, url, n_threads, progress, user);
}

/* The same of the run that a handle was opened for, with the parts that its caller supplies
 * (user.h): others cannot replay their log. Before or after diloco_run_join; by store handles of
 * its own. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_verify_sized(const diloco_run *run,
                                                                   diloco_verify_report *out,
                                                                   size_t size, int n_threads);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_run_verify(const diloco_run *run,
                                                               diloco_verify_report *out,
                                                               int n_threads)
{
    return diloco_run_verify_sized(run, out, sizeof *out, n_threads);
}

/* diloco_run_remove removes every object of a run, run.json first and the log last, and leaves
 * other objects in its store alone. *n_objects is the number removed, also after an error; the same
 * call continues. It also removes the rest of a run, a log without run.json. The caller ensures
 * that no replica of the run is alive. DILOCO_ENOENT: neither is there. DILOCO_EREFUSED: the store
 * does not let this machine delete, as a hub lets no client remove a log; or a heartbeat of such a
 * rest changes within 11 seconds. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_run_remove(uint64_t *n_objects, const char *url);

/* diloco_takeover makes the newest generation of `replica` the committer of a run with
 * run.single_committer, by an abort at the log's end. `replica` NULL means that of the option. With
 * `really` false it only reports the change. Ensure that the previous committer has ended. Returns
 * DILOCO_EINVAL if there is nothing to take over; DILOCO_ENOENT if no such replica has ever begun;
 * DILOCO_EEXIST if the committer is alive. */
typedef struct diloco_takeover_report {
    uint64_t entry; /* that says so */
    char from[48],
        to[48]; /* lives; from: the replica's name where no generation of it has decided yet */
} diloco_takeover_report;
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_takeover_sized(diloco_takeover_report *out,
                                                                 size_t size, const char *url,
                                                                 const char *replica, bool really);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_takeover(diloco_takeover_report *out,
                                                             const char *url, const char *replica,
                                                             bool really)
{
    return diloco_takeover_sized(out, sizeof *out, url, replica, really);
}

/* diloco_void lets a run continue without an entry that counts an unreadable contribution, and at
 * which every replica stops (two replicas, or one committer; docs/protocol.md P7). The newest
 * generation of `replica` creates an abort at the log's end, which declares that entry and those
 * after it void. The run continues from the state before it. With `replica` NULL it only reports
 * the change. Stop all replicas first. Returns DILOCO_EINVAL if there is nothing to void, and
 * DILOCO_ENOENT if no such replica has ever begun. Returns DILOCO_EEXIST if a replica is alive, and
 * DILOCO_EREFUSED if this machine's key may not create entries. */
typedef struct diloco_void_report {
    uint64_t entry; /* that cannot be read; those from it up to `at` are void */
    uint64_t at;    /* the entry that says so */
    char by[48];    /* the generation that decides; "" where `replica` is NULL */
    char why[256];  /* it cannot be read */
} diloco_void_report;
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_void_sized(diloco_void_report *out, size_t size,
                                                             const char *url, const char *replica);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_void(diloco_void_report *out, const char *url,
                                                         const char *replica)
{
    return diloco_void_sized(out, sizeof *out, url, replica);
}

/* The shared model after the last entry (or after `entries` of them) as safetensors bytes. It has
 * the model's tensors under their names, as they are to be evaluated: theta, or the vector that the
 * outer optimizer evaluates in its place (schedule_free: the mean). It also has the outer
 * optimizer's vectors as "diloco.<vector>.<name>", say "diloco.momentum.embed", for a run that
 * continues from there. For the model alone skip names that begin with "diloco.". The caller frees
 * *bytes with diloco_free. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_theta_read(void **bytes, size_t *len,
                                                             uint64_t *entry, const char *url,
                                                             uint64_t entries);
DILOCO_API void diloco_free(void *bytes);

/* diloco_movement_walk reports how an entry moved the shared model, tensor by tensor: after -
 * before, elementwise. Tensors that it left alone, and all tensors of an abort, have zeros. The log
 * is replayed from the newest snapshot before the entry. DILOCO_ENOENT: no run, no such entry, or
 * the contributions in between are gone (run.retain = "recent"). */
typedef struct diloco_movement {
    const char *tensor;
    const double *delta; /* [count], during the call; integers and booleans as numbers */
    size_t count;
    double norm, largest; /* of delta: root of the sum of squares, and absolute value */
} diloco_movement;
typedef void (*diloco_movement_fn)(void *user, const diloco_movement *movement);
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_movement_walk(const char *url, uint64_t entry,
                                                                diloco_movement_fn fn, void *user);

/* diloco_store_link makes this process see every store that it opens from now on through one slower
 * link: "10mbit,100ms,1%" is rate, delay of a request, and loss (docs/stores.md). A run with the
 * option run.link does so when it is opened. Returns DILOCO_EINVAL if the link is invalid, or the
 * process has another one already. */
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_store_link(const char *link);

/* diloco_store_check measures a store: it writes a few objects under probe/ and removes them.
 * DILOCO_ENOENT: the store is a folder that does not exist; it is not created. */
typedef struct diloco_store_report {
    double create_ms, read_ms, write_mb_per_s, read_mb_per_s;
    int winners; /* of 8 concurrent creates of one name: 1 is right */
} diloco_store_report;
DILOCO_API DILOCO_MUST_CHECK diloco_status diloco_store_check_sized(diloco_store_report *out,
                                                                    size_t size, const char *url);
DILOCO_MUST_CHECK DILOCO_SIZED diloco_status diloco_store_check(diloco_store_report *out,
                                                                const char *url)
{
    return diloco_store_check_sized(out, sizeof *out, url);
}

#ifdef __cplusplus
}
#endif
#endif
