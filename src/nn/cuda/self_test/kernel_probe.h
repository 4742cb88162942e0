/* kernel_probe.h - one kernel run on a device, its memory compared with what the CPU computes.
 *
 * A case takes rooms, which are pieces of one array on the host and of one at equal offsets on the
 * device. It fills the inputs, runs the kernel, computes the same into the host's array, and
 * compares. All memory is compared, so a write outside of the outputs is found, too. An output
 * begins as NaN patterns.
 *
 * A kernel for bf16 has the case of the one for f32. Its rooms of values are narrow: the host has
 * them as floats and the device as bf16, in the first half of the room. */
#ifndef DL_NN_SELF_TEST_KERNEL_PROBE_H
#define DL_NN_SELF_TEST_KERNEL_PROBE_H

#include "base/thread.h"
#include "tensor/backend.h"

enum { DL_PROBE_BYTES = 2 << 20, DL_PROBE_ROOMS = 16 };

typedef struct dl_probe_room {
    size_t begin, end; /* bytes of the arrays; a gap after it has to stay as it is */
    double tolerance;  /* 0: equal bits; else floats */
    bool each;         /* relative to the element itself, not to the largest of the room */
    bool narrow;       /* bf16 on the device */
} dl_probe_room;

typedef struct dl_probe {
    dl_backend *backend, *cpu; /* the device, and the definition */
    dl_pool *pool;
    const char *kernel;        /* of the case */
    bool bf16;                 /* the kernel's values are bf16 */
    unsigned char *host, *got; /* [DL_PROBE_BYTES]; got: the device's after the kernel */
    unsigned char *on_device;  /* [DL_PROBE_BYTES] */
    size_t used;
    dl_probe_room rooms[DL_PROBE_ROOMS];
    size_t n_rooms;
    unsigned seed; /* of the next input */
} dl_probe;

/* A case of self_test_rows.h. It returns DILOCO_EREFUSED if a result differs. */
typedef diloco_status (*dl_probe_case)(dl_probe *probe);

/* dl_probe_open allocates the memory. Returns DILOCO_ENOMEM; dl_probe_close is needed then too. */
DL_MUST_CHECK diloco_status dl_probe_open(dl_probe *probe, dl_backend *backend);
void dl_probe_close(dl_probe *probe);

/* Forgets all rooms, for another run of the same kernel. */
void dl_probe_begin(dl_probe *probe);

/* A room of n bytes, or of n floats. They give the host's address. Inputs hold values between -1
 * and 1 other than 0. */
void *dl_probe_bytes(dl_probe *probe, size_t n);
float *dl_probe_input(dl_probe *probe, size_t n);
/* tolerance 0: equal bits. Else relative to the largest element, or with `each` to its own. */
float *dl_probe_output(dl_probe *probe, size_t n, double tolerance);
float *dl_probe_each(dl_probe *probe, size_t n, double tolerance);
/* An input that the kernel changes. */
float *dl_probe_change(dl_probe *probe, size_t n, double tolerance);

/* Makes the room at `host` narrow if the kernel is for bf16, and rounds what it holds. Returns
 * host. Calls that fill the room come before. */
float *dl_probe_values(dl_probe *probe, float *host);
/* Rounds n floats of a narrow room, where the kernel reads again what it has stored. */
void dl_probe_round(const dl_probe *probe, float *host, size_t n);

/* The device's address of a room's. */
#define DL_PROBE_AT(probe, host_address)                                                           \
    ((void *)((probe)->on_device + ((const unsigned char *)(host_address) - (probe)->host)))

/* Copies all rooms to the device. */
void dl_probe_copy_in(dl_probe *probe);

/* Copies all rooms to the device, and queues the case's kernel over n threads. */
void dl_probe_run(dl_probe *probe, size_t n, const void *arguments, size_t size);

/* Waits for the device and compares all memory. Returns DILOCO_EREFUSED with the kernel, the
 * element and both values, or DILOCO_EIO if the device failed. */
DL_MUST_CHECK diloco_status dl_probe_compare(dl_probe *probe);

#endif
