/* lending.c - the memory of `next` between two entries.
 *
 *     FREE --lend--> LENT --give back--> FREE
 *     FREE --before COMPUTE--> USED --entry applied, REJOIN, or the end--> FREE
 *
 * Between two entries `next` has a state that nothing reads. A copy of the private state may be
 * there while it is written. The contribution waits for that save (P16), so this replica's own
 * entry is computed later anyway. If other replicas commit an entry meanwhile, COMPUTE waits. That
 * wait ends: a saver gives up a full disk when the exchange is stopped (driver_exchange.c). */
#include "exchange/exec_parts.h"

size_t dl_exec_lendable(const dl_exec *x)
{
    return x->lending.possible ? x->state.copy_len : 0;
}

/* The two copies of the state alternate, so the address differs between entries. */
void *dl_exec_lend(dl_exec *x, dl_time until)
{
    dl_lending *l = &x->lending;
    const struct timespec t = {until / DL_SECOND, until % DL_SECOND};
    void *memory = NULL;
    int error = 0;
    pthread_mutex_lock(&l->lock);
    DL_ASSERT(l->possible && l->use != DL_NEXT_LENT);
    while (l->use != DL_NEXT_FREE && !error)
        error = pthread_cond_timedwait(&l->changed, &l->lock, &t);
    if (l->use == DL_NEXT_FREE) {
        l->use = DL_NEXT_LENT;
        memory = x->state.next[0].theta;
    }
    pthread_mutex_unlock(&l->lock);
    return memory;
}

/* Sets the use to FREE if it is `from`, and of an entry before `open`. */
static void end_use(dl_lending *l, dl_next_use from, uint64_t open)
{
    pthread_mutex_lock(&l->lock);
    if (l->use == from && l->entry < open) l->use = DL_NEXT_FREE;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

void dl_exec_give_back(dl_exec *x)
{
    end_use(&x->lending, DL_NEXT_LENT, UINT64_MAX);
}

void dl_exec_use_next(dl_exec *x, uint64_t entry)
{
    dl_lending *l = &x->lending;
    pthread_mutex_lock(&l->lock);
    while (l->use == DL_NEXT_LENT)
        pthread_cond_wait(&l->changed, &l->lock);
    l->use = DL_NEXT_USED;
    l->entry = entry;
    pthread_mutex_unlock(&l->lock);
}

void dl_exec_end_use(dl_exec *x)
{
    end_use(&x->lending, DL_NEXT_USED, UINT64_MAX);
}

void dl_exec_release_applied(dl_exec *x, bool ended)
{
    end_use(&x->lending, DL_NEXT_USED, ended ? UINT64_MAX : x->state.control.entry);
}
