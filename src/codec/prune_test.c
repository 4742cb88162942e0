/* prune_test.c - which elements of a neuron are sent, and what is refused. */
#include "codec_form.h"

#define PRUNE(fraction) ((const char *const[]){"server.diloco.codec_prune", fraction, NULL})

TEST(a_neuron_drops_its_minority_first_and_the_smallest_of_each)
{
    float x[] = {1,  -2, 3,  -0.5f, 0.25f,  0,            /* mass 4.25 to 2.5: plus */
                 -1, 2,  -3, 0.5f,  -0.25f, 0.125f};      /* minus */
    static const float want[] = {1,  0, 3,  0, 0.25f,  0, /* drops 0, -.5, -2 */
                                 -1, 0, -3, 0, -0.25f, 0};
    static const float less[] = {1,  -2, 3,  0, 0.25f,  0, /* a third: 0 and -.5 */
                                 -1, 2,  -3, 0, -0.25f, 0};
    codec_form half = form_open("prune", NULL, 2, 6);
    codec_form third = form_open("prune", PRUNE("0.34"), 2, 6);
    CHECK_BYTES(want, form_pass(&half, x), sizeof want);
    CHECK_BYTES(less, form_pass(&third, x), sizeof less);
    form_close(&half), form_close(&third);
}

TEST(a_half_of_the_elements_is_a_half_of_the_bytes)
{
    enum { ROWS = 100, COLS = 101, N = ROWS * COLS };
    static float x[N];
    size_t kept = 0;
    codec_form f = form_open("prune", NULL, ROWS, COLS);
    fill_uniform(x, N, 1);
    const float *y = form_pass(&f, x);
    for (size_t i = 0; i < N; i++) {
        CHECK(y[i] == 0 || y[i] == x[i]);
        kept += y[i] != 0;
    }
    CHECK_INT(ROWS * 51, kept); /* of an odd number the larger half */
    CHECK_INT(3 * 8 + (N + 7) / 8 + 4 * ROWS * 51, f.len);
    form_close(&f);
}

TEST(of_equal_ones_the_first_are_sent)
{
    float x[] = {2, 2, 2, 2, 2};
    static const float want[] = {2, 2, 2, 0, 0};
    codec_form f = form_open("prune", NULL, 1, 5);
    CHECK_BYTES(want, form_pass(&f, x), sizeof want);
    form_close(&f);
}

TEST(starts_maps_and_values_that_contradict_are_refused)
{
    float x[] = {1, 2, 3, 4, -1, -2};
    codec_form f = form_open("prune", NULL, 1, 6);
    form_pass(&f, x);
    static const unsigned char want[] = {0, 0, 0, 0, 0, 0, 0, 0, 0x0e, 0, 0, 0, 0x40};
    CHECK_INT(8 + 1 + 12, f.len);
    CHECK_BYTES(want, f.payload, sizeof want);
    form_refuses(&f, 0, 1, "start 0");
    form_refuses(&f, 7, 0x80, "start 0");
    form_refuses(&f, 8, 0x0f, "4 of 3");
    form_refuses(&f, 8, 0x0c, "2 of 3");
    form_refuses(&f, 8, 0x8c, "after the map's last");
    put_float(f.payload + 13, -INFINITY);
    CHECK_STATUS(DILOCO_ENUMERIC, form_check(&f));
    CHECK_INT(2, f.index);
    form_close(&f);
}

TEST_MAIN(a_neuron_drops_its_minority_first_and_the_smallest_of_each,
          a_half_of_the_elements_is_a_half_of_the_bytes, of_equal_ones_the_first_are_sent,
          starts_maps_and_values_that_contradict_are_refused)
