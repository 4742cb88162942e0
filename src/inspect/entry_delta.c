/* entry_delta.c - include/diloco/inspect.h: the movement of each tensor by one entry.
 *
 * The log is replayed to both sides of the entry, and the states are subtracted. Contributions
 * themselves are not read: the movement is what the outer step made of them. */
#include "inspect/reader.h"
#include "inspect/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Write one tensor's values as doubles. They hold every f32 exactly, and every counter below
 * 2^53. Integers and booleans are in arrays of their own, with offsets of their own. */
static void values_of(double *out, const dl_state *state, const dl_manifest_tensor *t)
{
    const dl_fragment_state *now = &state->now[t->fragment];
    for (size_t i = 0; i < t->count; i++) {
        const size_t at = t->offset + i;
        out[i] = t->dtype == DILOCO_I64    ? (double)now->integers[at]
                 : t->dtype == DILOCO_BOOL ? (double)now->booleans[at]
                                           : (double)now->theta[at];
    }
}

/* Copy all tensors of the state, one after the other in the manifest's order. The caller frees
 * *out, also after an error. */
static diloco_status values_of_all(double **out, const dl_state *state)
{
    const dl_manifest *m = state->manifest;
    size_t n = 0;
    for (size_t i = 0; i < m->n_tensors; i++)
        n += m->tensors[i].count;
    double *all = *out = calloc(dl_size_max(n, 1), sizeof *all);
    if (!all) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu elements", n);
    for (size_t i = 0; i < m->n_tensors; i++) {
        values_of(all, state, &m->tensors[i]);
        all += m->tensors[i].count;
    }
    return DILOCO_OK;
}

/* Subtract and report each tensor. `after` becomes the movement, theta after minus theta before:
 * the opposite sign of a pseudo-gradient. */
static void report(const dl_manifest *m, const double *before, double *after, diloco_movement_fn fn,
                   void *user)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        const dl_manifest_tensor *t = &m->tensors[i];
        diloco_movement reported = {.tensor = t->name, .delta = after, .count = t->count};
        double sum = 0;
        for (size_t k = 0; k < t->count; k++) {
            after[k] -= before[k];
            sum += after[k] * after[k];
            reported.largest = fmax(reported.largest, fabs(after[k]));
        }
        reported.norm = sqrt(sum);
        fn(user, &reported);
        before += t->count;
        after += t->count;
    }
}

/* Copy the state before `entry` and the state after it. Returns DILOCO_ENOENT if the log has no
 * such entry, or if what the replay needs was collected (P25). */
static diloco_status replay_both(dl_reader *r, double **before, double **after, uint64_t entry)
{
    dl_replay_report replayed;
    uint64_t entries;
    DL_TRY(dl_reader_length(&entries, r));
    if (entry >= entries)
        return dl_fail(DILOCO_ENOENT, "the log has %llu entries, and no entry %llu",
                       (unsigned long long)entries, (unsigned long long)entry);
    DL_TRY(dl_reader_exec(r, dl_cores()));
    dl_state *state = dl_exec_state(r->exec);
    /* The newest snapshot at or before the entry makes the replay as short as it can be.
     * Contributions are kept from the second-newest snapshot on, so an old entry may be out of
     * reach. */
    DL_TRY(dl_snapshot_read_newest(state, r->store, &r->file, r->digest, entry, r->pool,
                                   dl_reader_limit()));
    DL_TRY(dl_replay(&replayed, r->exec, &r->file, false, entry, NULL, NULL));
    DL_TRY(values_of_all(before, state));
    DL_TRY(dl_replay(&replayed, r->exec, &r->file, false, entry + 1, NULL, NULL));
    return values_of_all(after, state);
}

/* Memory is that of a replay and twice the model in doubles. */
diloco_status diloco_movement_walk(const char *url, uint64_t entry, diloco_movement_fn fn,
                                   void *user)
{
    dl_reader r;
    double *before = NULL, *after = NULL;
    DL_TRY(dl_reader_open(&r, url));
    const diloco_status status = replay_both(&r, &before, &after, entry);
    if (!status) report(&r.file.manifest, before, after, fn, user);
    free(before);
    free(after);
    dl_reader_close(&r);
    return status;
}
