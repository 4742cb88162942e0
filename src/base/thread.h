/* thread.h - a pool of threads that split one piece of work evenly.
 *
 * The split depends only on the size and the number of threads, so whatever is summed
 * per part and then in part order is the same in every run. With one thread no thread
 * is started and the work runs on the caller. */
#ifndef DL_BASE_THREAD_H
#define DL_BASE_THREAD_H

#include "base/size.h"
#include "base/status.h"

#include <pthread.h>

typedef struct dl_pool dl_pool;

/* n_threads counts the caller; 1 to 256. DILOCO_ENOMEM, DILOCO_EINVAL. Workers block all
 * signals. Idle workers spin briefly (about 20 us, only when the machine has as many
 * cores as the pool has threads), then sleep. */
DL_MUST_CHECK diloco_status dl_pool_create(dl_pool **out, int n_threads);
void dl_pool_destroy(dl_pool *pool);   /* NULL is fine */
int dl_pool_size(const dl_pool *pool); /* NULL: 1 */

/* Call fn(context, part, n_parts) once for each part 0 … n_threads-1, each on its own
 * thread, part 0 on the caller; return when all are done. NULL pool: one part. One
 * caller at a time; fn must not call back into the same pool. Allocates nothing. */
typedef void (*dl_part_fn)(void *context, int part, int n_parts);
void dl_pool_run(dl_pool *pool, dl_part_fn fn, void *context);

/* Part `part` of n items in n_parts pieces whose borders are multiples of `grain`. */
void dl_part_range(size_t *begin, size_t *end, size_t n, size_t grain, int part, int n_parts);

/* pthread_create, but for signals: they are the caller's business, so the thread blocks all. Gives
 * what pthread_create gives. */
DL_MUST_CHECK int dl_thread_start(pthread_t *out, void *(*body)(void *context), void *context);

/* pthread_cond_init, but for the clock: timed waits are until a time of dl_clock_now. */
void dl_cond_init(pthread_cond_t *out);

/* Cores this process may run on (its affinity mask and cgroup quota), at least 1, at most as many
 * as a pool may have threads. */
enum { DL_POOL_MAX = 256 };
int dl_cores(void);

#endif
