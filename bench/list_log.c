/* list_log.c - time of listing the log of a run, by the library's own store.
 *
 *     list_log URL
 *
 * Lists all of log/ once, as a reader without a snapshot does. Prints the keys, the seconds without
 * opening the store, and the requests. It also prints its own largest resident memory. */
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static diloco_status count(void *context, const char *key, size_t len)
{
    uint64_t *n = context;
    (void)key, (void)len;
    ++*n;
    return DILOCO_OK;
}

/* Returns VmHWM in MB. The resource usage of a process has its parent's, too. */
static double memory_mb(void)
{
    char line[256];
    long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %ld", &kb) == 1) break;
    if (f) fclose(f);
    return (double)kb / 1024;
}

static int failed(void)
{
    fprintf(stderr, "list_log: %s\n", diloco_error_text());
    return 1;
}

int main(int argc, char **argv)
{
    dl_store *store;
    uint64_t n = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: list_log URL   (bench/scale.md)\n");
        return 2;
    }
    if (dl_store_open(&store, argv[1], false)) return failed();
    const uint64_t before = dl_store_counts(store).billed_writes; /* listings count as these */
    const dl_time begun = dl_clock_now();
    if (dl_store_list(store, "log/", NULL, count, &n, DL_NEVER)) return failed();
    const double seconds = dl_seconds(dl_clock_now() - begun);
    printf("%" PRIu64 " keys in %.3f s, %" PRIu64 " requests, memory %.1f MB\n", n, seconds,
           dl_store_counts(store).billed_writes - before, memory_mb());
    dl_store_close(store);
    return 0;
}
