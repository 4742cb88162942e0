/* emulated_device.cc - the process of the emulated device. emulated.h says what it is for.
 *
 * It is started with the requests' socket and the file of pinned memory; nothing else of the
 * starting process is mapped here, so a kernel that reads host memory dies. It ends with the
 * socket.
 *
 *   memory   of each device alone (emulated_memory.h)
 *   streams  a queue each (emulated_when)
 *   blocks   one after the other (emulated_block.h) */
#include "emulated_block.h"
#include "emulated_memory.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <vector>

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

emulated_kernel *emulated_kernel::first;
emulated_setup setup;

/* ---- the end */

static char *last_words()
{
    return reinterpret_cast<emulated_last_words *>(EMULATED_PINNED)->text;
}

void end(const char *format, ...)
{
    char what[EMULATED_TEXT / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (running)
        snprintf(last_words(), EMULATED_TEXT, "kernel %s, block %u, thread %u: %s", running->name,
                 blockIdx.x, threadIdx.x, what);
    else
        snprintf(last_words(), EMULATED_TEXT, "%s", what);
    _exit(3);
}

static void on_fault(int, siginfo_t *info, void *)
{
    end("memory at %p is not the device's", info->si_addr);
}

extern "C" const char *__ubsan_default_options();
extern "C" const char *__ubsan_default_options()
{
    return "abort_on_error=1";
}

/* UndefinedBehaviorSanitizer has printed the place by then. */
static void on_abort(int)
{
    end("undefined behaviour (the text is on stderr)");
}

/* ---- launches */

/* A copy of all allocations of the device. */
static std::vector<uint32_t> words()
{
    std::vector<uint32_t> all;
    for (const auto &p : pieces) {
        if (!is_shown(p.second)) continue;
        const uint32_t *at = reinterpret_cast<const uint32_t *>(p.first);
        all.insert(all.end(), at, at + p.second.bytes / 4);
    }
    return all;
}

/* A float that is nearly 0 is a rounding of the kernel's sums, and may be any such value. */
static bool is_noise(uint32_t word)
{
    float value;
    memcpy(&value, &word, sizeof value);
    return std::fabs(value) < 1e-4f;
}

/* Alters one of the words that are not as they were: a float if there is one that is not noise. */
static void flip_bit(const std::vector<uint32_t> &before)
{
    std::vector<uint32_t *> changed, noise;
    size_t i = 0;
    for (const auto &p : pieces) {
        if (!is_shown(p.second)) continue;
        uint32_t *at = reinterpret_cast<uint32_t *>(p.first);
        for (uint64_t k = 0; k < p.second.bytes / 4; k++, i++)
            if (at[k] != before[i]) (is_noise(at[k]) ? noise : changed).push_back(&at[k]);
    }
    if (changed.empty()) changed.swap(noise);
    if (!changed.empty()) *changed[next_random() % changed.size()] ^= 1u << 22;
}

static void launch(const emulated_request &r)
{
    running = reinterpret_cast<const emulated_kernel *>(r.kernel);
    const bool faulty = setup.fault && strcmp(setup.fault_in, running->name) == 0;
    const emulated_fault fault = faulty ? setup.fault : EMULATED_SOUND;
    const std::vector<uint32_t> before =
        fault == EMULATED_BIT_FLIPPED ? words() : std::vector<uint32_t>();
    blockDim = emulated_index{r.block, 1, 1};
    gridDim = emulated_index{r.grid, 1, 1};
    for (unsigned block : order_of(r.grid))
        if (fault != EMULATED_IDLE && (fault != EMULATED_BLOCK_LOST || block + 1 < r.grid))
            run_block(block, r.block, r.arguments);
    if (fault == EMULATED_BIT_FLIPPED) flip_bit(before);
    check_red_zones();
    running = nullptr;
}

/* ---- streams */

static std::map<uint64_t, std::deque<emulated_request>> streams;
static std::map<uint64_t, uint64_t> device_of; /* by stream */
static std::map<uint64_t, uint64_t> recorded;  /* times, by event */
static std::map<uint64_t, bool> is_lazy;       /* by stream, for EMULATED_RANDOM */
static uint64_t next_stream = 1;

static void work(const emulated_request &r)
{
    show(r.device);
    switch (r.op) {
    case EMULATED_COPY:
        memmove(at_address(r.to), at_address(r.from), r.n);
        break;
    case EMULATED_RECORD:
        recorded[r.to] = r.n;
        break;
    case EMULATED_AWAIT:
        break;
    case EMULATED_FILL:
        memset(at_address(r.to), static_cast<int>(r.from), r.n);
        break;
    default:
        launch(r);
        break;
    }
}

static bool meet(const emulated_request &one);
static bool reach(const emulated_request &one);

/* Stops at a collective that other ranks have not called yet, or at an event after one. */
static void work_off(std::deque<emulated_request> &queue, size_t n)
{
    for (; n > 0 && !queue.empty(); n--) {
        const emulated_request r = queue.front();
        if (r.op == EMULATED_COLLECTIVE) {
            if (!meet(r)) return;
            continue;
        }
        if (r.op == EMULATED_AWAIT && !reach(r)) return;
        queue.pop_front();
        work(r);
    }
}

static const emulated_receive *receives_of(const emulated_request &r)
{
    return reinterpret_cast<const emulated_receive *>(r.arguments);
}

static void carry_out(const std::vector<emulated_request> &ranks)
{
    show(all_devices);
    for (const auto &r : ranks)
        if (r.size == EMULATED_BROADCAST)
            memmove(at_address(r.to), at_address(ranks[0].from), r.n);
        else
            for (uint64_t i = 0; i < r.n; i++)
                memmove(at_address(receives_of(r)[i].to), at_address(receives_of(r)[i].from),
                        receives_of(r)[i].bytes);
}

/* Does one piece of a queue's work. Returns false if it waits for other ranks. */
static bool advance(std::deque<emulated_request> &queue)
{
    const size_t before = queue.size();
    work_off(queue, 1);
    return queue.size() < before;
}

/* Brings the stream that records an event to it. Returns false if it does not come to it. An event
 * is recorded by an earlier call than the wait for it, so no two streams wait for each other. */
static bool reach(const emulated_request &one)
{
    for (auto &s : streams)
        for (size_t i = 0; i < s.second.size() && recorded[one.to] < one.n; i++)
            if (s.second[i].op == EMULATED_RECORD && s.second[i].to == one.to &&
                s.second[i].n == one.n)
                while (recorded[one.to] < one.n)
                    if (!advance(s.second)) return false;
    return recorded[one.to] >= one.n;
}

/* Brings each stream that has this collective to it, and does it. Returns false if a rank has not
 * called it yet. Streams have their collectives in one order, so the earlier ones are complete. */
static bool meet(const emulated_request &one)
{
    std::map<uint32_t, std::deque<emulated_request> *> by_rank;
    std::vector<emulated_request> ranks;
    for (auto &s : streams)
        for (const auto &r : s.second)
            if (r.op == EMULATED_COLLECTIVE && r.kernel == one.kernel) by_rank[r.block] = &s.second;
    if (by_rank.size() != one.grid) return false;
    for (const auto &r : by_rank) {
        auto &queue = *r.second;
        while (queue.front().op != EMULATED_COLLECTIVE || queue.front().kernel != one.kernel)
            if (!advance(queue)) return false;
        ranks.push_back(queue.front());
    }
    carry_out(ranks);
    for (const auto &r : by_rank)
        r.second->pop_front();
    return true;
}

/* A wait for a collective that a rank does not call would last for ever. */
static void wait_for(std::deque<emulated_request> &queue)
{
    work_off(queue, SIZE_MAX);
    if (!queue.empty()) end("a collective of several devices waits for ever");
}

static void some_work()
{
    for (auto &s : streams)
        if (setup.when == EMULATED_EAGER ||
            (setup.when == EMULATED_RANDOM && !is_lazy[s.first] && next_random() % 2))
            work_off(s.second, setup.when == EMULATED_EAGER
                                   ? SIZE_MAX
                                   : next_random() % (s.second.size() + 1));
}

static void all_work()
{
    for (auto &s : streams)
        work_off(s.second, SIZE_MAX);
}

/* A release waits for its device, as the driver's does. */
static int release_after_work(const emulated_request &r)
{
    all_work();
    for (auto &s : streams)
        if (device_of[s.first] == r.device) wait_for(s.second);
    return release(r.to);
}

/* A lost device forgets its work, and gets no more. */
static std::map<uint64_t, bool> is_lost;

static void lose(uint64_t device)
{
    is_lost[device] = true;
    for (auto &s : streams)
        if (device_of[s.first] == device) s.second.clear();
}

static void close_communicator(const emulated_request &r)
{
    all_work();
    for (const auto &s : streams)
        for (const auto &one : s.second)
            if (one.op == EMULATED_COLLECTIVE && one.clique == r.clique && one.device == r.device)
                end("a communicator is closed while its collective waits for ever");
}

static void abort_collectives(const emulated_request &r)
{
    for (auto &s : streams) {
        std::deque<emulated_request> rest;
        for (const auto &one : s.second)
            if (one.op != EMULATED_COLLECTIVE || one.clique != r.clique || one.device != r.device)
                rest.push_back(one);
        s.second.swap(rest);
    }
}

static bool receives_fit(const emulated_request &r)
{
    for (uint64_t i = 0; i < r.n; i++) {
        const emulated_receive &x = receives_of(r)[i];
        if (!is_ours(x.to, x.bytes, r.device) || !is_ours(x.from, x.bytes, x.device)) return false;
    }
    return true;
}

/* Returns whether a request's arrays are memory of its device. */
static bool has_memory(const emulated_request &r)
{
    switch (r.op) {
    case EMULATED_COLLECTIVE:
        if (r.size == EMULATED_EXCHANGE) return receives_fit(r);
        return is_ours(r.to, r.n, r.device) && is_ours(r.from, r.n, r.device);
    case EMULATED_COPY:
        return is_ours(r.to, r.n, r.device) && is_ours(r.from, r.n, r.device);
    case EMULATED_FILL:
        return is_ours(r.to, r.n, r.device);
    default:
        return true;
    }
}

static int enqueue(const emulated_request &r)
{
    if (!streams.count(r.stream) || device_of[r.stream] != r.device) return INVALID_VALUE;
    if (!has_memory(r)) return INVALID_VALUE;
    if (is_lost[r.device]) return 0;
    if (r.op == EMULATED_LAUNCH) {
        const emulated_kernel *k = reinterpret_cast<const emulated_kernel *>(r.kernel);
        if (k->size != r.size || r.block == 0 || r.block % EMULATED_WARP ||
            r.block > EMULATED_MOST_THREADS || r.grid == 0)
            return INVALID_VALUE;
    }
    streams[r.stream].push_back(r);
    return 0;
}

/* ---- requests */

static int name_kernel(uint64_t i)
{
    const emulated_kernel *k = emulated_kernel::first;
    while (k && i--)
        k = k->next;
    if (k) snprintf(last_words(), EMULATED_TEXT, "%s", k->name);
    return k ? 0 : NOT_FOUND;
}

static emulated_kernel *find(const char *name)
{
    emulated_kernel *k = emulated_kernel::first;
    while (k && strcmp(k->name, name) != 0)
        k = k->next;
    return k;
}

static int answer(const emulated_request &r, uint64_t *value)
{
    switch (r.op) {
    case EMULATED_CONFIGURE:
        setup = r.setup;
        seed_random(r.setup.seed);
        return 0;
    case EMULATED_ALLOC:
        return allocate(value, r.n, r.device);
    case EMULATED_RELEASE:
        return release_after_work(r);
    case EMULATED_LOSE:
        lose(r.device);
        return 0;
    case EMULATED_CLOSE:
        close_communicator(r);
        return 0;
    case EMULATED_ABORT:
        abort_collectives(r);
        return 0;
    case EMULATED_COPY:
    case EMULATED_FILL:
    case EMULATED_LAUNCH:
    case EMULATED_COLLECTIVE:
    case EMULATED_RECORD:
    case EMULATED_AWAIT:
        return enqueue(r);
    case EMULATED_FIND:
        *value = reinterpret_cast<uint64_t>(find(reinterpret_cast<const char *>(r.arguments)));
        return *value ? 0 : NOT_FOUND;
    case EMULATED_NAME:
        return name_kernel(r.n);
    case EMULATED_STREAM_CREATE:
        *value = next_stream++;
        streams[*value];
        device_of[*value] = r.device;
        is_lazy[*value] = next_random() % 3 == 0;
        return 0;
    case EMULATED_STREAM_DESTROY:
        if (!streams.count(r.stream)) return INVALID_VALUE;
        work_off(streams[r.stream], SIZE_MAX);
        streams.erase(r.stream);
        return 0;
    case EMULATED_WAIT:
        if (!streams.count(r.stream)) return INVALID_VALUE;
        wait_for(streams[r.stream]);
        return 0;
    case EMULATED_QUERY:
        if (!streams.count(r.stream)) return INVALID_VALUE;
        work_off(streams[r.stream], 1);
        return streams[r.stream].empty() ? 0 : NOT_READY;
    default:
        return INVALID_VALUE;
    }
}

/* All of n bytes; false at the end of the file. */
static bool transfer(bool out, void *data, size_t n)
{
    for (size_t done = 0; done < n;) {
        char *at = static_cast<char *>(data) + done;
        const ssize_t got =
            out ? write(EMULATED_SOCKET, at, n - done) : read(EMULATED_SOCKET, at, n - done);
        if (got <= 0) return false;
        done += static_cast<size_t>(got);
    }
    return true;
}

static void map_all()
{
    const int fixed = MAP_FIXED_NOREPLACE;
    void *device = mmap(at_address(EMULATED_BASE), EMULATED_DEVICE_BYTES, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
    void *pinned = mmap(at_address(EMULATED_PINNED), EMULATED_PINNED_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED | fixed, EMULATED_FILE, 0);
    if (device == MAP_FAILED || pinned == MAP_FAILED) {
        perror("emulated_device: mmap");
        _exit(2);
    }
}

static void catch_signals()
{
    static char own_stack[1 << 16]; /* a fibre's may be what ran over */
    const stack_t stack = {.ss_sp = own_stack, .ss_flags = 0, .ss_size = sizeof own_stack};
    struct sigaction fault = {}, undefined = {};
    sigaltstack(&stack, nullptr);
    fault.sa_sigaction = on_fault;
    fault.sa_flags = SA_SIGINFO | SA_ONSTACK;
    undefined.sa_handler = on_abort;
    undefined.sa_flags = SA_ONSTACK;
    sigaction(SIGSEGV, &fault, nullptr);
    sigaction(SIGBUS, &fault, nullptr);
    sigaction(SIGFPE, &fault, nullptr);
    sigaction(SIGABRT, &undefined, nullptr);
    sigaction(SIGILL, &undefined, nullptr);
}

int main()
{
    static emulated_request request;
    map_all();
    catch_signals();
    while (transfer(false, &request, sizeof request)) {
        emulated_reply reply = {};
        reply.result = answer(request, &reply.value);
        some_work();
        if (!transfer(true, &reply, sizeof reply)) break;
    }
    return 0;
}
