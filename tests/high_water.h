/* high_water.h - the most memory that this process has had, in bytes, as the kernel reports it;
 * 0 where it does not. Such a measurement runs in a process of its own: the mark never falls. */
#ifndef DL_TESTS_HIGH_WATER_H
#define DL_TESTS_HIGH_WATER_H

#include <stdint.h>
#include <stdio.h>

static inline uint64_t high_water(void)
{
    char line[128];
    unsigned long long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %llu kB", &kb) == 1) break;
    if (f) fclose(f);
    return (uint64_t)kb << 10;
}

#endif
