/* emulated.h - how a test sets up the emulated device, and what the two processes say to each
 * other.
 *
 * The library of emulated_driver.c has the symbols of a GPU's driver. It starts the program
 * emulated_device, which runs kernels compiled by g++. That process alone can read and write device
 * memory: here its addresses are reserved without access. Pinned memory is shared at one address,
 * and copies accept no other host memory. */
#ifndef DL_TESTS_CUDA_EMU_EMULATED_H
#define DL_TESTS_CUDA_EMU_EMULATED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* When does a stream work? */
typedef enum emulated_when {
    EMULATED_LAZY,  /* only when it is waited for, and then no more than that wait needs */
    EMULATED_EAGER, /* at once */
    EMULATED_RANDOM /* some of its work after any call; a stream in three is lazy, by seed */
} emulated_when;

/* In which order do the blocks of a launch run, and the threads of a block between barriers? Each
 * pair of threads without a barrier in between is first once in two opposite orders. */
typedef enum emulated_order {
    EMULATED_ASCENDING,
    EMULATED_DESCENDING,
    EMULATED_SHUFFLED
} emulated_order;

/* A mistake of a device, in each launch of one kernel. */
typedef enum emulated_fault {
    EMULATED_SOUND,
    EMULATED_IDLE,       /* the kernel does not run */
    EMULATED_BLOCK_LOST, /* its last block does not run */
    EMULATED_BIT_FLIPPED /* bit 22 of one of the 4-byte words that it changed, by seed */
} emulated_fault;

typedef struct emulated_setup {
    uint64_t seed;
    emulated_when when;
    emulated_order order;
    uint64_t devices; /* 0: EMULATED_DEVICES of the environment, or 1 */
    uint64_t memory;  /* bytes of each device; 0: 1 GiB */
    int capability;   /* 10 major + minor; 0: 90 */
    uint64_t fail_at; /* the call that fails, from 1; 0: none */
    int fail_with;    /* its result */
    int loses_device; /* not 0: the device of that call does no more work, and its calls fail */
    emulated_fault fault;
    char fault_in[64]; /* kernel */
} emulated_setup;

/* emulated_configure counts calls from 0 again. A device process that died is started again. */
void emulated_configure(const emulated_setup *setup);
uint64_t emulated_calls(void);  /* of the driver and the libraries since then */
uint64_t emulated_leaked(void); /* bytes of device and pinned memory that are allocated now */
int emulated_has_ended(void);   /* whether the device process has, for example at a mistake */
/* Name of kernel i of the device program. Returns false after the last. The device is open. */
int emulated_kernel_name(char *out, size_t size, size_t i);

/* ---- between the processes: one request, one reply */

enum { EMULATED_ARGUMENTS = 1024, EMULATED_TEXT = 512 };

typedef enum emulated_op {
    EMULATED_CONFIGURE,
    EMULATED_ALLOC,
    EMULATED_RELEASE,
    EMULATED_COPY,
    EMULATED_FILL,
    EMULATED_FIND,
    EMULATED_NAME, /* of kernel n, to the last words */
    EMULATED_LAUNCH,
    EMULATED_STREAM_CREATE,
    EMULATED_STREAM_DESTROY,
    EMULATED_WAIT,
    EMULATED_RECORD,     /* event `to`, for the time n */
    EMULATED_AWAIT,      /* until event `to` has been recorded n times */
    EMULATED_QUERY,      /* one item of the stream's work; more may remain */
    EMULATED_COLLECTIVE, /* one rank's part */
    EMULATED_LOSE,       /* the device */
    EMULATED_CLOSE,      /* a communicator: its collectives must end */
    EMULATED_ABORT       /* the collectives of a clique that are queued on a device */
} emulated_op;

typedef struct emulated_request {
    uint32_t op, grid, block, size; /* size: of the arguments */
    uint64_t to, from, n, stream, kernel;
    uint64_t device; /* of the context */
    uint64_t clique; /* of a collective: the communicators that were made together */
    emulated_setup setup;
    unsigned char arguments[EMULATED_ARGUMENTS];
} emulated_request;

typedef struct emulated_reply {
    int32_t result, zero;
    uint64_t value;
} emulated_reply;

/* A collective between devices: a request for each rank, in the order of the ranks. `to` and `from`
 * are arrays of n bytes, `stream` and `device` are the rank's, `size` is an emulated_meeting. In an
 * exchange the arguments are instead an array of n emulated_receive. A collective is done on all
 * streams at once, after the earlier work of each. Returns the driver's result. The call that fails
 * (emulated_setup) has queued it on half of the ranks, which then wait until they are aborted. */
typedef enum emulated_meeting { EMULATED_BROADCAST, EMULATED_EXCHANGE } emulated_meeting;
typedef struct emulated_receive {
    uint64_t to, from, bytes, device; /* device: whose memory `from` is */
} emulated_receive;
enum { EMULATED_MOST_RECEIVES = EMULATED_ARGUMENTS / sizeof(emulated_receive) };
int emulated_collective(emulated_request *requests, size_t n);
/* The end of a clique's communicator on a device. Collectives that still wait there are removed if
 * it is aborted. Otherwise they are awaited. Neither counts a call, or fails. */
void emulated_close(uint64_t clique, uint64_t device, int is_aborted);
/* Counts a call of a library that uses the driver. Returns whether it is the call that fails. */
int emulated_library_call(void);

/* The first page of pinned memory: why the device process ended. */
typedef struct emulated_last_words {
    char text[EMULATED_TEXT];
} emulated_last_words;

/* Where both processes map the memory: above AddressSanitizer's shadow and below its heap. */
#ifndef EMULATED_BASE
#define EMULATED_BASE 0x300000000000ull
#endif
#define EMULATED_DEVICE_BYTES (16ull << 30) /* addresses, none is used twice */
#define EMULATED_PINNED       (EMULATED_BASE + EMULATED_DEVICE_BYTES)
#define EMULATED_PINNED_BYTES (256ull << 20)
enum { EMULATED_PAGE = 4096, EMULATED_SOCKET = 3, EMULATED_FILE = 4, EMULATED_MOST_DEVICES = 8 };

#ifdef __cplusplus
}
#endif

#endif
