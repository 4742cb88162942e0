/* device_code.c - the device code as bytes of the program (device_code.h). The build writes the
 * list of images, DL_DEVICE_CODE: a line X(name) for each file name.fatbin in the assembler's path.
 * The assembler includes a file as it is, which is faster than a C array of megabytes. */
#include "nn/cuda/device_code.h"

#ifdef DL_DEVICE_CODE

_Static_assert(DL_DEVICE_CODE_FIRST == DL_DEVICE_CODE_OLDEST, "that of cmake/device_code.cmake");

// clang-format off
#define X(name) \
    __asm__(".pushsection .rodata\n" \
            ".balign 64\n" \
            "dl_image_" #name ":\n" \
            ".incbin \"" #name ".fatbin\"\n" \
            "dl_image_end_" #name ":\n" \
            ".byte 0\n" \
            ".popsection\n"); \
    extern const unsigned char dl_image_##name[] __attribute__((visibility("hidden"))); \
    extern const unsigned char dl_image_end_##name[] __attribute__((visibility("hidden")));
// clang-format on
#include DL_DEVICE_CODE
#undef X

static const struct {
    const unsigned char *begin, *end;
} images[] = {
#define X(name) {dl_image_##name, dl_image_end_##name},
#include DL_DEVICE_CODE
#undef X
};

size_t dl_device_code(dl_span *out, size_t most)
{
    const size_t n = sizeof images / sizeof images[0];
    DL_ASSERT(n <= most);
    for (size_t i = 0; i < n; i++)
        out[i] = (dl_span){images[i].begin, (size_t)(images[i].end - images[i].begin)};
    return n;
}

#else

size_t dl_device_code(dl_span *out, size_t most)
{
    (void)out, (void)most;
    return 0;
}

#endif
