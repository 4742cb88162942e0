/* stop.c - a thread that looks at the flag every 50 ms. A signal handler can do little more than
 * set a flag, and does not know the run. diloco_run_interrupt is called without the lock. */
#include "train/stop.h"

#include "base/clock.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct dl_stop {
    const volatile int *flag;
    diloco_run *run;
    pthread_t thread;
    pthread_mutex_t lock; /* guards over */
    pthread_cond_t end;
    bool over;
};

static struct timespec after(dl_time duration)
{
    dl_time t = dl_clock_now() + duration;
    return (struct timespec){.tv_sec = t / DL_SECOND, .tv_nsec = t % DL_SECOND};
}

/* The thread. It ends after it has interrupted the run once. */
static void *watch(void *user)
{
    dl_stop *stop = user;
    pthread_mutex_lock(&stop->lock);
    while (!stop->over && !dl_stop_asked(stop->flag)) {
        struct timespec until = after(50 * DL_MILLISECOND);
        pthread_cond_timedwait(&stop->end, &stop->lock, &until);
    }
    bool interrupt = !stop->over;
    pthread_mutex_unlock(&stop->lock);
    if (interrupt) diloco_run_interrupt(stop->run);
    return NULL;
}

diloco_status dl_stop_create(dl_stop **out, const volatile int *flag, diloco_run *run)
{
    *out = NULL;
    if (!flag) return DILOCO_OK;
    dl_stop *stop = calloc(1, sizeof *stop);
    if (!stop) return dl_fail(DILOCO_ENOMEM, "out of memory for a thread");
    stop->flag = flag;
    stop->run = run;

    dl_cond_init(&stop->end);
    pthread_mutex_init(&stop->lock, NULL);
    if (dl_thread_start(&stop->thread, watch, stop) != 0) {
        pthread_cond_destroy(&stop->end);
        pthread_mutex_destroy(&stop->lock);
        free(stop);
        return dl_fail(DILOCO_ENOMEM, "the system cannot start another thread");
    }
    *out = stop;
    return DILOCO_OK;
}

void dl_stop_destroy(dl_stop *stop)
{
    if (!stop) return;
    pthread_mutex_lock(&stop->lock);
    stop->over = true;
    pthread_cond_signal(&stop->end);
    pthread_mutex_unlock(&stop->lock);
    pthread_join(stop->thread, NULL);
    pthread_cond_destroy(&stop->end);
    pthread_mutex_destroy(&stop->lock);
    free(stop);
}
