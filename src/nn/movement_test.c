/* movement_test.c - the operations of an exchange on the CPU's backend and on the trap backend,
 * which has memory apart. tests/cuda_emu compares a card's with them. */
#include "nn/movement.h"

#include "check.h"
#include "nn/gradient.h"
#include "tensor/kernels.h"

#include <math.h>
#include <stdlib.h>

enum { N = DL_BLOCK + 77 };

/* Device memory with values, which the caller releases. */
static float *put(dl_backend *b, const float *values)
{
    void *memory;
    CHECK_OK(dl_backend_alloc(b, &memory, N * sizeof(float)));
    dl_backend_copy_in(b, memory, values, N * sizeof(float));
    return memory;
}

static void check(const char *backend, float mix)
{
    static float theta[N], local[N], g[N], want[N], got[N];
    double squares[2], sums[2] = {0};
    dl_backend *b;
    void *on_device;
    CHECK_OK(dl_backend_create(&b, backend));
    for (size_t i = 0; i < N; i++) {
        theta[i] = sinf((float)i);
        local[i] = want[i] = theta[i] + 1 / (float)(i + 1);
    }
    float *t = put(b, theta), *l = put(b, local), *m = put(b, g);
    CHECK_OK(dl_backend_alloc(b, &on_device, dl_gradient_blocks(N) * sizeof *squares));
    const dl_fp_state fp = dl_fp_enter();
    dl_delta(g, theta, local, N);
    dl_adopt(want, theta, mix, N);
    sums[0] = dl_block_norm2(g, DL_BLOCK);
    sums[1] = dl_block_norm2(g + DL_BLOCK, N - DL_BLOCK);
    dl_fp_leave(fp);
    dl_movement_form(b, m, t, l, N);
    dl_movement_squares(b, on_device, m, N);
    dl_movement_adopt(b, l, t, mix, N);
    dl_backend_copy_out(b, got, m, sizeof got);
    CHECK_BYTES(g, got, sizeof got);
    dl_backend_copy_out(b, got, l, sizeof got);
    CHECK_BYTES(want, got, sizeof got);
    dl_backend_copy_out(b, squares, on_device, sizeof squares);
    CHECK_BYTES(sums, squares, sizeof squares);
    CHECK_OK(dl_backend_sync(b));
    dl_backend_release(b, t), dl_backend_release(b, l), dl_backend_release(b, m);
    dl_backend_release(b, on_device);
    dl_backend_destroy(b);
}

TEST(movement_norm_and_adoption_are_those_of_the_host)
{
    static const float mixes[] = {0, 0.25f, 1};
    for (size_t i = 0; dl_backend_name_at(i); i++)
        for (size_t k = 0; k < sizeof mixes / sizeof mixes[0]; k++)
            check(dl_backend_name_at(i), mixes[k]);
}

static void check_encoding(const char *backend, const char *codec)
{
    static float x[N];
    static unsigned char want[4 * N], got[4 * N];
    dl_backend *b;
    void *payload;
    const dl_block_kind *kind = dl_codec_find(codec)->blocks;
    const size_t scales = (N + DL_CODEC_BLOCK - 1) / DL_CODEC_BLOCK * sizeof(float);
    const size_t codes = (N * kind->bits + 31) / 32 * 4;
    CHECK_OK(dl_backend_create(&b, backend));
    for (size_t i = 0; i < N; i++)
        x[i] = sinf((float)i) * expf((float)(i % 50));
    const dl_fp_state fp = dl_fp_enter();
    dl_isa_call(kind->encode)(want + scales, want, x, N);
    dl_fp_leave(fp);
    float *on_device = put(b, x);
    CHECK_OK(dl_backend_alloc(b, &payload, scales + codes));
    const dl_encoding to = {kind, (unsigned char *)payload + scales, payload};
    dl_movement_encode(b, &to, on_device, N);
    dl_backend_copy_out(b, got, payload, scales + codes);
    CHECK_OK(dl_backend_sync(b));
    CHECK_BYTES(want, got, scales + codes);
    dl_backend_release(b, on_device), dl_backend_release(b, payload);
    dl_backend_destroy(b);
}

TEST(codes_and_scales_are_those_of_the_host)
{
    for (size_t i = 0; dl_backend_name_at(i); i++)
        for (size_t k = 0; dl_codec_at(k); k++)
            if (dl_codec_has_integers(dl_codec_at(k)))
                check_encoding(dl_backend_name_at(i), dl_codec_at(k)->name);
}

TEST_MAIN(movement_norm_and_adoption_are_those_of_the_host, codes_and_scales_are_those_of_the_host)
