/* emulated_parts.h - functions that the files of the emulated driver share. */
#ifndef DL_TESTS_CUDA_EMU_EMULATED_PARTS_H
#define DL_TESTS_CUDA_EMU_EMULATED_PARTS_H

#include "emulated.h"
#include "tensor/cuda/cuda_api.h"

#include <stdbool.h>

/* The driver's symbols. */
#define SHOWN                            __attribute__((visibility("default")))
#define DECLARE(name, symbol, arguments) SHOWN int symbol arguments;
DL_CUDA_FUNCTIONS(DECLARE)
#undef DECLARE

/* emulated_enter takes the driver's lock and counts a call. A result other than 0 is the call's,
 * which then returns emulated_leave of it. emulated_leave gives the lock back, and its argument. */
int emulated_enter(bool needs_context);
int emulated_leave(int code);

/* One call of the driver that is one request to the device process. A stream that captures refuses
 * all but kernels. */
int emulated_ask(emulated_request *request, uint64_t *value);

/* One request to the device process, under the lock. */
int emulated_exchange_request(emulated_request *request, uint64_t *value);
const emulated_setup *emulated_setup_now(void);

/* The arguments of a launch, of a kernel or of a graph's node. */
typedef struct emulated_launch_call {
    void *function;
    unsigned grid[3], block[3], shared_bytes;
    void **parameters, **extra;
} emulated_launch_call;

/* Makes the request of a launch, without its stream. Returns false for what kernels do not use:
 * more than one struct of arguments, more than one dimension, dynamic shared memory. */
bool emulated_launch_request(emulated_request *out, const emulated_launch_call *call);

/* emulated_capture adds a launch to the graph that its stream captures. Returns false if the stream
 * captures none. emulated_capture_refuses returns the result of work of another kind on such a
 * stream, after which the capture is invalid; or that of any work of an invalid capture; or 0.
 * Under the lock. */
bool emulated_capture(const emulated_request *launch);
int emulated_capture_refuses(uint64_t stream, bool is_kernel);

/* Graphs and executable graphs that are not destroyed. */
uint64_t emulated_graphs(void);
void emulated_forget_graphs(void);

uint64_t emulated_events(void); /* that are not destroyed */
void emulated_forget_events(void);

#endif
