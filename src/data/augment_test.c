/* augment_test.c - the result is a shifted, perhaps mirrored copy with zeros around it; every
 * shift comes; and the draw is that of its numbers. */
#include "data/augment.h"

#include "check.h"

enum { C = 2, H = 3, W = 4, N = C * H * W, PAD = 2 };
static const dl_sample sample = {.kind = DL_IMAGES, .channels = C, .height = H, .width = W};

static void fill(unsigned char *image)
{
    for (int i = 0; i < N; i++)
        image[i] = (unsigned char)(i + 1);
}

/* The image shifted by (down, right) - PAD, and mirrored. */
static void shifted(unsigned char *to, const unsigned char *from, int down, int right, bool mirror)
{
    for (int c = 0; c < C; c++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) {
                int row = y + down - PAD, column = x + right - PAD;
                bool inside = row >= 0 && row < H && column >= 0 && column < W;
                to[(c * H + y) * W + (mirror ? W - 1 - x : x)] =
                    inside ? from[(c * H + row) * W + column] : 0;
            }
}

TEST(every_shift_and_both_sides_come_and_nothing_else)
{
    enum { SIDE = 2 * PAD + 1, KINDS = SIDE * SIDE * 2, DRAWS = 2000 };
    unsigned char image[N], got[N], want[KINDS][N];
    int times[KINDS] = {0};
    fill(image);
    for (int k = 0; k < KINDS; k++)
        shifted(want[k], image, k / 2 / SIDE, k / 2 % SIDE, k % 2);
    for (uint64_t i = 0; i < DRAWS; i++) {
        int k = 0;
        dl_augment(got, image, &sample, PAD, true, 7, 3, i);
        while (k < KINDS && memcmp(got, want[k], N) != 0)
            k++;
        CHECK(k < KINDS);
        times[k]++;
    }
    for (int k = 0; k < KINDS; k++) /* 40 expected of each; 10 is 5 deviations away */
        CHECK(times[k] > 10);
}

TEST(the_draw_is_that_of_seed_shard_and_number)
{
    unsigned char image[N], a[N], b[N];
    int differ[3] = {0};
    fill(image);
    for (uint64_t i = 0; i < 100; i++) {
        dl_augment(a, image, &sample, PAD, true, 7, 3, i);
        dl_augment(b, image, &sample, PAD, true, 7, 3, i);
        CHECK_BYTES(a, b, N);
        dl_augment(b, image, &sample, PAD, true, 8, 3, i);
        differ[0] += memcmp(a, b, N) != 0;
        dl_augment(b, image, &sample, PAD, true, 7, 4, i);
        differ[1] += memcmp(a, b, N) != 0;
        dl_augment(b, image, &sample, PAD, true, 7, 3, i + 1);
        differ[2] += memcmp(a, b, N) != 0;
    }
    CHECK(differ[0] > 80 && differ[1] > 80 && differ[2] > 80);
}

TEST(without_margin_and_mirror_it_is_a_copy)
{
    unsigned char image[N], got[N];
    fill(image);
    dl_augment(got, image, &sample, 0, false, 1, 2, 3);
    CHECK_BYTES(image, got, N);
}

TEST_MAIN(every_shift_and_both_sides_come_and_nothing_else,
          the_draw_is_that_of_seed_shard_and_number, without_margin_and_mirror_it_is_a_copy)
