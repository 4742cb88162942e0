/* emulated_block.cc - see emulated_block.h.
 *
 * Threads of a block are fibres of one thread; they change at barriers alone. All threads of a warp
 * or block run to their next barrier, in the setup's order, before the first continues. */
#include "emulated_block.h"

#include "emulated_fibre.h"
#include "emulated_memory.h"

#include <algorithm>
#include <numeric>

#include <sys/mman.h>

emulated_index threadIdx, blockIdx, blockDim, gridDim;
const emulated_kernel *running;
#ifdef __x86_64__
const bool emulated_has_fma = __builtin_cpu_supports("fma");
#endif

extern "C" {
extern char __start_emulated_shared[] __attribute__((weak));
extern char __stop_emulated_shared[] __attribute__((weak));
}

/* The stacks do not begin a power of two apart: their tops would share a few lines of the caches,
 * and each switch would miss. */
enum { POISON = 0xff, WARP = EMULATED_WARP, STACK = (64 << 10) + 17 * 64 };

/* ---- random numbers: splitmix64 */

static uint64_t random_state;

void seed_random(uint64_t seed)
{
    random_state = seed;
}

uint64_t next_random()
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* Fills order[0 .. n - 1]. A random number gives two places: its halves, as fractions of what is
 * left. */
static void put_order(unsigned *order, unsigned n)
{
    uint64_t random = 0;
    std::iota(order, order + n, 0u);
    if (setup.order == EMULATED_DESCENDING) std::reverse(order, order + n);
    if (setup.order != EMULATED_SHUFFLED) return;
    for (unsigned i = n; i > 1; i--) {
        random = (n - i) % 2 ? random << 32 : next_random();
        std::swap(order[i - 1], order[(random >> 32) * i >> 32]);
    }
}

std::vector<unsigned> order_of(unsigned n)
{
    std::vector<unsigned> order(n);
    put_order(order.data(), n);
    return order;
}

/* ---- threads */

enum thread_state : unsigned char { READY, AT_BARRIER, AT_WARP, DONE };
struct thread {
    emulated_fibre fibre;
    thread_state state;
    bool made;
    unsigned n_exchanges; /* in this block */
    int line;             /* where it waits */
    const char *file;
    double slots[2]; /* its value in the last exchanges of its warp, by their numbers */
};
static thread threads[EMULATED_MOST_THREADS];
static emulated_fibre scheduler;
static const void *its_arguments;

static void yield(thread &t)
{
    emulated_fibre_switch(&t.fibre, &scheduler);
}

/* A fibre lasts as long as the process, and runs its thread of one block after the other. */
static void run_thread()
{
    thread &t = threads[threadIdx.x];
    for (;;) {
        running->run(its_arguments);
        t.state = DONE;
        yield(t);
    }
}

static void make(unsigned i)
{
    static char *stacks;
    const size_t bytes = static_cast<size_t>(EMULATED_MOST_THREADS) * STACK;
    if (!stacks) {
        void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) end("no memory for the stacks of a block's threads");
        stacks = static_cast<char *>(at);
    }
    emulated_fibre_make(&threads[i].fibre, stacks + static_cast<size_t>(i) * STACK, STACK,
                        run_thread);
    threads[i].made = true;
}

static void resume(unsigned i)
{
    threadIdx.x = i;
    if (!threads[i].made) make(i);
    emulated_fibre_switch(&scheduler, &threads[i].fibre);
}

void emulated_barrier(bool warp, const char *file, int line)
{
    thread &t = threads[threadIdx.x];
    t.state = warp ? AT_WARP : AT_BARRIER;
    t.file = file;
    t.line = line;
    yield(t);
}

/* One barrier is enough: a lane writes to this slot again after the next exchange's barrier, which
 * all others reach after they have read. */
double emulated_exchange(double value, unsigned from_lane, const char *file, int line)
{
    const unsigned me = threadIdx.x, slot = threads[me].n_exchanges++ % 2;
    threads[me].slots[slot] = value;
    emulated_barrier(true, file, line);
    if (from_lane >= WARP) end("a shuffle reads lane %u", from_lane);
    return threads[me / WARP * WARP + from_lane].slots[slot];
}

void emulated_check_mask(unsigned mask)
{
    if (mask != 0xffffffffu) end("a shuffle or barrier of the warp has a partial mask, %08x", mask);
}

/* ---- a block */

static bool at_one_line(const thread &a, const thread &b)
{
    return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

/* Threads [first, last) wait at one line: they go on. Otherwise the kernel is wrong. */
static void pass_barrier(unsigned first, unsigned last, thread_state kind)
{
    for (unsigned i = first; i < last; i++) {
        if (threads[i].state == kind && at_one_line(threads[i], threads[first])) continue;
        threadIdx.x = i;
        if (threads[i].state != kind)
            end("unequal barriers: this thread is not at line %d of the others",
                threads[first].state == kind ? threads[first].line : 0);
        end("unequal barriers: lines %d and %d", threads[first].line, threads[i].line);
    }
    for (unsigned i = first; i < last; i++)
        threads[i].state = READY;
}

static bool one_waits(unsigned first, unsigned last, thread_state kind)
{
    for (unsigned i = first; i < last; i++)
        if (threads[i].state == kind) return true;
    return false;
}

/* Let the warps of threads [first, last) continue that wait for their own threads. Returns false if
 * none of them waits. */
static bool pass_warps(unsigned first, unsigned last)
{
    bool passed = false;
    for (unsigned warp = first; warp < last; warp += WARP)
        if (one_waits(warp, warp + WARP, AT_WARP)) {
            pass_barrier(warp, warp + WARP, AT_WARP);
            passed = true;
        }
    return passed;
}

/* Let the block continue. Returns false if all threads have ended. */
static bool pass_block(unsigned n)
{
    const bool waits = one_waits(0, n, AT_BARRIER);
    if (waits) pass_barrier(0, n, AT_BARRIER);
    return waits;
}

/* Runs threads [first, last), whole warps, until each waits for the block or has ended. */
static void run_threads(unsigned first, unsigned last)
{
    static unsigned order[EMULATED_MOST_THREADS];
    do {
        put_order(order, last - first);
        for (unsigned k = 0; k < last - first; k++)
            if (threads[first + order[k]].state == READY) resume(first + order[k]);
    } while (pass_warps(first, last));
}

void run_block(unsigned block, unsigned n, const void *arguments)
{
    static unsigned warps[EMULATED_MOST_THREADS / WARP];
    blockIdx.x = block;
    its_arguments = arguments;
    if (__start_emulated_shared)
        memset(__start_emulated_shared, POISON,
               static_cast<size_t>(__stop_emulated_shared - __start_emulated_shared));
    for (unsigned i = 0; i < n; i++) {
        threads[i].state = READY;
        threads[i].n_exchanges = 0;
    }
    /* Either all warps stop at each barrier of a warp, or one runs ahead to the block's barrier
     * before the next begins: a card may do both. */
    const bool together = setup.order == EMULATED_SHUFFLED && next_random() % 2;
    do {
        if (together) {
            run_threads(0, n);
            continue;
        }
        put_order(warps, n / WARP);
        for (unsigned k = 0; k < n / WARP; k++)
            run_threads(warps[k] * WARP, (warps[k] + 1) * WARP);
    } while (pass_block(n));
}
