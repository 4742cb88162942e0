/* planes.c - the places of a window's taps (planes.h). A forward sum lists taps by output place, a
 * gradient by input place: so each result is written by one loop, without atomic additions. */
#include "nn/planes.h"

size_t dl_window_list(dl_tap taps[DL_WINDOW_MAX_TAPS], const dl_window *w, size_t out)
{
    uint32_t y = (uint32_t)(out / w->out_width), x = (uint32_t)(out % w->out_width);
    uint32_t top, bottom, left, right;
    size_t n = 0;
    dl_window_inside(&top, &bottom, w, y, w->in_height);
    dl_window_inside(&left, &right, w, x, w->in_width);
    for (uint32_t i = top; i < bottom; i++) {
        uint32_t row = (y * w->stride + i - w->pad) * w->in_width;
        for (uint32_t j = left; j < right; j++)
            taps[n++] = (dl_tap){i * w->size + j, row + x * w->stride + j - w->pad};
    }
    return n;
}

/* Sets *out to the output coordinate whose tap `tap` is at input coordinate `at`: it solves
 * at = out * stride + tap - pad. Returns false if there is no such coordinate below n. */
static bool comes_from(uint32_t *out, const dl_window *w, uint32_t at, uint32_t tap, uint32_t n)
{
    if (at + w->pad < tap || (at + w->pad - tap) % w->stride != 0) return false;
    *out = (at + w->pad - tap) / w->stride;
    return *out < n;
}

size_t dl_window_list_back(dl_tap taps[DL_WINDOW_MAX_TAPS], const dl_window *w, size_t in)
{
    uint32_t y = (uint32_t)(in / w->in_width), x = (uint32_t)(in % w->in_width), row, column;
    size_t n = 0;
    for (uint32_t i = 0; i < w->size; i++) {
        if (!comes_from(&row, w, y, i, w->out_height)) continue;
        for (uint32_t j = 0; j < w->size; j++)
            if (comes_from(&column, w, x, j, w->out_width))
                taps[n++] = (dl_tap){i * w->size + j, row * w->out_width + column};
    }
    return n;
}
