/* link.c - an object to a store and back, over however many connections the store takes.
 *
 *     bench_link URL MB    prints "MB up_s down_s", seconds of each direction */
#include "store/store.h"

#include <diloco/status.h>
#include <stdio.h>
#include <stdlib.h>

static diloco_status forget(void *context, const void *data, size_t len)
{
    (void)context, (void)data, (void)len;
    return DILOCO_OK;
}

static diloco_status there_and_back(const char *url, size_t len, double s[2])
{
    dl_store *store;
    const dl_sink sink = {.piece = forget};
    unsigned char *data = malloc(len);
    if (!data) return dl_fail(DILOCO_ENOMEM, "no memory");
    for (size_t i = 0; i < len; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 24);
    diloco_status status = dl_store_open(&store, url, true);
    if (!status) {
        const dl_time t0 = dl_clock_now();
        status = dl_store_put(store, "hb/bench.0000", data, len, DL_NEVER);
        const dl_time t1 = dl_clock_now();
        if (!status) status = dl_store_read(store, "hb/bench.0000", sink, DL_NEVER);
        s[0] = dl_seconds(t1 - t0);
        s[1] = dl_seconds(dl_clock_now() - t1);
        dl_store_close(store);
    }
    free(data);
    return status;
}

int main(int argc, char **argv)
{
    const double mb = argc == 3 ? atof(argv[2]) : 0;
    double s[2] = {0};
    if (!(mb > 0)) {
        fprintf(stderr, "usage: bench_link URL MB\n");
        return 2;
    }
    if (there_and_back(argv[1], (size_t)(mb * 1e6), s)) {
        fprintf(stderr, "%s\n", diloco_error_text());
        return 1;
    }
    printf("%g %.2f %.2f\n", mb, s[0], s[1]);
    return 0;
}
