/* probe_movement.c - the kernels of an exchange against the CPU's own functions, with equal bits.
 */
#include "nn/cuda/kernel_arguments.h"
#include "nn/cuda/self_test/self_test_rows.h"
#include "nn/movement.h"

enum { N = 517, BLOCKS = 3 }; /* over one block of threads, and not all of the next */

diloco_status dl_probe_form_movement(dl_probe *p)
{
    float *g = dl_probe_output(p, N, 0), *before = dl_probe_input(p, N);
    float *after = dl_probe_input(p, N);
    const dl_cuda_form_arguments a = {DL_PROBE_AT(p, g), DL_PROBE_AT(p, before),
                                      DL_PROBE_AT(p, after), N};
    dl_probe_run(p, N, &a, sizeof a);
    dl_movement_form(p->cpu, g, before, after, N);
    return dl_probe_compare(p);
}

static diloco_status adopt(dl_probe *p, float mix)
{
    dl_probe_begin(p);
    float *local = dl_probe_change(p, N, 0), *theta = dl_probe_input(p, N);
    theta[3] = -0.0f; /* an fma with mix 0 would give 0 */
    const dl_cuda_adopt_arguments a = {
        .local = DL_PROBE_AT(p, local), .theta = DL_PROBE_AT(p, theta), .n = N, .mix = mix};
    dl_probe_run(p, N, &a, sizeof a);
    dl_movement_adopt(p->cpu, local, theta, mix, N);
    return dl_probe_compare(p);
}

diloco_status dl_probe_adopt_theta(dl_probe *p)
{
    DL_TRY(adopt(p, 0.3f));
    return adopt(p, 0);
}

static diloco_status encode(dl_probe *p, const char *codec)
{
    dl_probe_begin(p);
    const dl_block_kind *kind = dl_codec_find(codec)->blocks;
    const size_t words = (N * kind->bits + 31) / 32;
    float *x = dl_probe_input(p, N), *scales = dl_probe_output(p, BLOCKS, 0);
    float *codes = dl_probe_output(p, words, 0);
    const dl_encoding host = {kind, (unsigned char *)codes, (unsigned char *)scales};
    const dl_cuda_encode_arguments a = {.codes = DL_PROBE_AT(p, codes),
                                        .scales = DL_PROBE_AT(p, scales),
                                        .x = DL_PROBE_AT(p, x),
                                        .n = N,
                                        .bits = (int)kind->bits};
    dl_probe_run(p, N, &a, sizeof a);
    dl_movement_encode(p->cpu, &host, x, N);
    return dl_probe_compare(p);
}

diloco_status dl_probe_encode_integers(dl_probe *p)
{
    DL_TRY(encode(p, "int8"));
    DL_TRY(encode(p, "int4"));
    return encode(p, "int2");
}
