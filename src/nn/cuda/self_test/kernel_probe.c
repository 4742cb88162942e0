/* kernel_probe.c - see kernel_probe.h. */
#include "nn/cuda/self_test/kernel_probe.h"

#include "tensor/cuda/backend_cuda.h"
#include "tensor/widths.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 256, POISON = 0xff };

diloco_status dl_probe_open(dl_probe *p, dl_backend *backend)
{
    void *memory;
    *p = (dl_probe){.backend = backend, .seed = 1};
    DL_TRY(dl_backend_create(&p->cpu, "cpu"));
    DL_TRY(dl_pool_create(&p->pool, 1));
    p->host = malloc(DL_PROBE_BYTES);
    p->got = malloc(DL_PROBE_BYTES);
    if (!p->host || !p->got)
        return dl_fail(DILOCO_ENOMEM, "out of memory for a device's self-test");
    DL_TRY(dl_backend_alloc(backend, &memory, DL_PROBE_BYTES));
    p->on_device = memory;
    return DILOCO_OK;
}

void dl_probe_close(dl_probe *p)
{
    dl_backend_release(p->backend, p->on_device);
    dl_pool_destroy(p->pool);
    dl_backend_destroy(p->cpu);
    free(p->host);
    free(p->got);
    *p = (dl_probe){.n_rooms = 0};
}

void dl_probe_begin(dl_probe *p)
{
    p->used = p->n_rooms = 0;
}

static void *take(dl_probe *p, size_t bytes, double tolerance, bool each)
{
    const size_t begin = p->used, end = begin + bytes, next = dl_size_round_up(end + GAP, 64);
    DL_ASSERT(p->n_rooms < DL_PROBE_ROOMS && next <= DL_PROBE_BYTES);
    memset(p->host + begin, POISON, next - begin);
    p->rooms[p->n_rooms++] = (dl_probe_room){begin, end, tolerance, each, false};
    p->used = next;
    return p->host + begin;
}

void *dl_probe_bytes(dl_probe *p, size_t n)
{
    return take(p, n, 0, false);
}

static void fill(dl_probe *p, float *to, size_t n)
{
    const uint32_t seed = p->seed++ * 40503u;
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)(i + seed) * 2654435761u >> 9;
        to[i] = ((float)bits + 0.5f) / (float)(1 << 22) - 1;
    }
}

float *dl_probe_change(dl_probe *p, size_t n, double tolerance)
{
    float *to = take(p, n * sizeof *to, tolerance, false);
    fill(p, to, n);
    return to;
}

float *dl_probe_input(dl_probe *p, size_t n)
{
    return dl_probe_change(p, n, 0);
}

float *dl_probe_output(dl_probe *p, size_t n, double tolerance)
{
    return take(p, n * sizeof(float), tolerance, false);
}

float *dl_probe_each(dl_probe *p, size_t n, double tolerance)
{
    return take(p, n * sizeof(float), tolerance, true);
}

void dl_probe_round(const dl_probe *p, float *host, size_t n)
{
    if (p->bf16) dl_round_to(host, host, n, "BF16");
}

static float *floats_of(unsigned char *memory, const dl_probe_room *room, size_t *n)
{
    *n = (room->end - room->begin) / sizeof(float);
    return (float *)(void *)(memory + room->begin);
}

float *dl_probe_values(dl_probe *p, float *host)
{
    size_t n;
    for (size_t i = 0; p->bf16 && i < p->n_rooms; i++) {
        dl_probe_room *room = &p->rooms[i];
        if (floats_of(p->host, room, &n) != host) continue;
        room->narrow = true;
        dl_probe_round(p, host, n);
    }
    return host;
}

/* The bytes of all rooms as the device has them, in p->got. The second half of a narrow room keeps
 * bytes that no kernel may change. */
static void pack(dl_probe *p)
{
    size_t n;
    memcpy(p->got, p->host, p->used);
    for (size_t i = 0; i < p->n_rooms; i++) {
        if (!p->rooms[i].narrow) continue;
        const float *from = floats_of(p->host, &p->rooms[i], &n);
        dl_narrow(p->got + p->rooms[i].begin, from, n, "BF16");
        memset(p->got + p->rooms[i].begin + 2 * n, POISON, 2 * n);
    }
}

void dl_probe_copy_in(dl_probe *p)
{
    pack(p);
    dl_backend_copy_in(p->backend, p->on_device, p->got, p->used);
}

void dl_probe_run(dl_probe *p, size_t n, const void *arguments, size_t size)
{
    dl_probe_copy_in(p);
    dl_backend_cuda_launch(p->backend, &(dl_cuda_launch){p->kernel, n, arguments, size});
}

/* ---- comparison */

static diloco_status differs(const dl_probe *p, const char *what, double want, double got)
{
    return dl_fail(
        DILOCO_EREFUSED,
        "kernel %s gives a wrong result on the %s device: %s is %.9g, on the CPU %.9g"
        " (card %d, %s). Set trainer.device = \"cpu\", and report the card and its driver",
        p->kernel, p->backend->ops->name, what, got, want, dl_backend_cuda_index(p->backend),
        dl_backend_card(p->backend));
}

static diloco_status compare_bytes(const dl_probe *p, size_t begin, size_t end, const char *what)
{
    char place[64];
    for (size_t i = begin; i < end; i++) {
        if (p->host[i] == p->got[i]) continue;
        snprintf(place, sizeof place, "byte %zu of %s", i - begin, what);
        return differs(p, place, p->host[i], p->got[i]);
    }
    return DILOCO_OK;
}

/* A result that was rounded to bf16 may be the number after the right one: two numbers that follow
 * each other differ by at most 2^-7 of the smaller. */
static const double BETWEEN_BF16 = 1.0 / 128;

static diloco_status compare_floats(const dl_probe *p, const dl_probe_room *room)
{
    size_t n;
    const float *want = floats_of(p->host, room, &n), *got = floats_of(p->got, room, &n);
    const double step = room->narrow && room->tolerance > 0 ? BETWEEN_BF16 : 0;
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)want[i])); /* not of NaN */
    for (size_t i = 0; i < n; i++) {
        const double x = (double)want[i], y = (double)got[i];
        char place[64];
        const size_t at = room->begin + i * sizeof *want; /* equal bits are equal, a NaN too */
        if (memcmp(p->host + at, p->got + at, sizeof *want) == 0) continue;
        if (fabs(x - y) <= room->tolerance * (room->each ? fabs(x) : largest) + step * fabs(x))
            continue;
        snprintf(place, sizeof place, "element %zu of %zu", i, n);
        return differs(p, place, x, y);
    }
    return DILOCO_OK;
}

/* Makes floats of a narrow room's results, and rounds the CPU's. */
static diloco_status unpack(dl_probe *p, const dl_probe_room *room)
{
    size_t n;
    float *got = floats_of(p->got, room, &n);
    const unsigned char *rest = p->got + room->begin + 2 * n;
    for (size_t i = 0; i < 2 * n; i++)
        if (rest[i] != POISON) return differs(p, "memory after bf16", POISON, rest[i]);
    for (size_t i = n; i-- > 0;) { /* from the back, so that no element is overwritten before */
        unsigned char element[2];
        memcpy(element, p->got + room->begin + 2 * i, sizeof element);
        dl_widen(got + i, element, 1, "BF16");
    }
    dl_probe_round(p, floats_of(p->host, room, &n), n);
    return DILOCO_OK;
}

diloco_status dl_probe_compare(dl_probe *p)
{
    dl_backend_copy_out(p->backend, p->got, p->on_device, p->used);
    const diloco_status status = dl_backend_sync(p->backend);
    if (status) return dl_fail_context(status, "kernel %s", p->kernel);
    for (size_t i = 0; i < p->n_rooms; i++) {
        const dl_probe_room *room = &p->rooms[i];
        const size_t next = i + 1 < p->n_rooms ? p->rooms[i + 1].begin : p->used;
        if (room->narrow) DL_TRY(unpack(p, room));
        DL_TRY(room->tolerance > 0 ? compare_floats(p, room)
                                   : compare_bytes(p, room->begin, room->end, "a result"));
        DL_TRY(compare_bytes(p, room->end, next, "memory after a result"));
    }
    return DILOCO_OK;
}
