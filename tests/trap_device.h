/* trap_device.h - a device of a run (diloco_device) for tests. It checks accesses: its memory can
 * be touched only in its own copies and between trap_set_open's two calls. A queued copy is done
 * when the stream is synchronized, not before. */
#ifndef DL_TESTS_TRAP_DEVICE_H
#define DL_TESTS_TRAP_DEVICE_H

#include "base/status.h"
#include "check.h"
#include <diloco/tensor.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { TRAP_ARENA = 1 << 16, TRAP_MAX_COPIES = 16 };

typedef struct trap_copy {
    void *to;
    const void *from;
    size_t len;
} trap_copy;

typedef struct trap {
    unsigned char *memory; /* PROT_NONE except in trap_done and after trap_set_open */
    size_t n_copies, n_done, n_in, n_out, n_calls, pinned;
    trap_copy copies[TRAP_MAX_COPIES];
    bool fail;
    size_t fail_at;     /* this queued copy, counted from 1, fails; 0: no copy does */
    size_t fail_call;   /* this call of any function, counted from 1, fails; 0: none does */
    const char *reason; /* that a failing copy gives; NULL: none */
    diloco_device device;
} trap;

static inline void trap_set_open(const trap *d, bool open)
{
    if (mprotect(d->memory, TRAP_ARENA, open ? PROT_READ | PROT_WRITE : PROT_NONE)) abort();
}

static inline diloco_status trap_fail(const trap *d)
{
    return d->reason ? dl_fail(DILOCO_EIO, "%s", d->reason) : DILOCO_EIO;
}

static inline diloco_status trap_queue(trap *d, void *to, const void *from, size_t len)
{
    const bool fails = ++d->n_calls == d->fail_call;
    if (fails || d->fail || (d->fail_at && d->n_copies + 1 == d->fail_at)) return trap_fail(d);
    if (d->n_copies == TRAP_MAX_COPIES) abort();
    d->copies[d->n_copies++] = (trap_copy){to, from, len};
    return DILOCO_OK;
}

static inline diloco_status trap_in(void *user, void *stream, void *host, const void *device,
                                    size_t len)
{
    if (stream != (char *)user + 1) abort();
    ((trap *)user)->n_in++;
    return trap_queue(user, host, device, len);
}

static inline diloco_status trap_out(void *user, void *stream, void *device, const void *host,
                                     size_t len)
{
    if (stream != (char *)user + 1) abort();
    ((trap *)user)->n_out++;
    return trap_queue(user, device, host, len);
}

static inline diloco_status trap_done(void *user, void *stream)
{
    trap *d = user;
    (void)stream;
    if (++d->n_calls == d->fail_call) {
        d->n_copies = 0; /* a device that is lost does no work */
        return trap_fail(d);
    }
    trap_set_open(d, true);
    for (size_t i = 0; i < d->n_copies; i++)
        memcpy(d->copies[i].to, d->copies[i].from, d->copies[i].len);
    trap_set_open(d, false);
    d->n_done += d->n_copies;
    d->n_copies = 0;
    return DILOCO_OK;
}

static inline void *trap_alloc(void *user, size_t len)
{
    ((trap *)user)->pinned++;
    return malloc(len);
}

static inline void trap_release(void *user, void *memory)
{
    ((trap *)user)->pinned--;
    free(memory);
}

static inline void trap_open(trap *d)
{
    *d = (trap){.memory = mmap(NULL, TRAP_ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)};
    if (d->memory == MAP_FAILED) abort();
    d->device = (diloco_device){.user = d,
                                .stream = (char *)d + 1,
                                .copy_in = trap_in,
                                .copy_out = trap_out,
                                .synchronise = trap_done,
                                .alloc = trap_alloc,
                                .release = trap_release};
}

static inline void trap_close(trap *d)
{
    CHECK_INT(0, d->pinned);
    munmap(d->memory, TRAP_ARENA);
}

#endif
