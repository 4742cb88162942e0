/* emulated_memory.cc - see emulated_memory.h. */
#include "emulated_memory.h"

#include <cstring>

#include <sys/mman.h>

enum { POISON = 0xff, RED = 0xa5 }; /* bytes */

std::map<uint64_t, piece> pieces;
static uint64_t next_address = EMULATED_BASE + EMULATED_PAGE, bytes_used[EMULATED_MOST_DEVICES];

static uint64_t shown; /* the device that works, or all_devices */

bool is_shown(const piece &p)
{
    return shown == all_devices || p.device == shown;
}

static void protect(uint64_t at, const piece &p)
{
    if (mprotect(at_address(at), p.pages, is_shown(p) ? PROT_READ | PROT_WRITE : PROT_NONE))
        end("mprotect failed");
}

void show(uint64_t device)
{
    if (device == shown) return;
    shown = device;
    for (const auto &p : pieces)
        protect(p.first, p.second);
}

int allocate(uint64_t *at, uint64_t n, uint64_t device)
{
    const uint64_t pages = (n + EMULATED_PAGE - 1) / EMULATED_PAGE * EMULATED_PAGE;
    const uint64_t limit = setup.memory ? setup.memory : 1ull << 30;
    if (n == 0) return INVALID_VALUE;
    if (n > limit || bytes_used[device] + pages > limit ||
        next_address + pages + EMULATED_PAGE > EMULATED_BASE + EMULATED_DEVICE_BYTES)
        return OUT_OF_MEMORY;
    *at = next_address;
    next_address += pages + EMULATED_PAGE;
    show(device);
    pieces[*at] = piece{n, pages, device};
    protect(*at, pieces[*at]);
    memset(at_address(*at), POISON, n);
    memset(at_address(*at) + n, RED, pages - n);
    bytes_used[device] += pages;
    return 0;
}

static void check_red_zone(uint64_t at, const piece &p)
{
    for (uint64_t i = p.bytes; i < p.pages; i++)
        if (static_cast<unsigned char>(at_address(at)[i]) != RED)
            end("byte %llu after the end of an allocation of %llu was overwritten",
                static_cast<unsigned long long>(i - p.bytes + 1),
                static_cast<unsigned long long>(p.bytes));
}

void check_red_zones()
{
    for (const auto &p : pieces)
        if (is_shown(p.second)) check_red_zone(p.first, p.second);
}

int release(uint64_t at)
{
    const auto found = pieces.find(at);
    if (found == pieces.end()) return INVALID_VALUE;
    show(found->second.device);
    check_red_zone(at, found->second);
    mmap(at_address(at), found->second.pages, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    bytes_used[found->second.device] -= found->second.pages;
    pieces.erase(found);
    return 0;
}

bool is_ours(uint64_t at, uint64_t n, uint64_t device)
{
    if (at >= EMULATED_PINNED) return n <= EMULATED_PINNED + EMULATED_PINNED_BYTES - at;
    auto p = pieces.upper_bound(at);
    if (p == pieces.begin()) return false;
    --p;
    return p->second.device == device && at - p->first <= p->second.bytes &&
           n <= p->second.bytes - (at - p->first);
}
