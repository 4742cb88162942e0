/* playback_fuzz.c - whatever lines a record has, the replay ends, and says a time or an error. */
#include "plan/playback.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool take_lines(dl_playback *playback, const char *at, const char *end)
{
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        if (dl_playback_line(playback, at, (size_t)(stop - at))) return false;
        at = newline ? newline + 1 : end;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dl_playback *playback;
    dl_playback_result r;
    dl_plan_link recorded = {1e6, 1e6, 0};
    dl_playback_args args = {
        .link = {1e6, 1e6, 0.1}, .recorded = size & 1 ? &recorded : NULL, .tau = size % 5 - 1};
    if (dl_playback_create(&playback)) return 0;
    if (take_lines(playback, (const char *)data, (const char *)data + size) &&
        !dl_playback_predict(&r, playback, &args) && !(r.predicted_s >= 0))
        abort();
    dl_playback_destroy(playback);
    return 0;
}
