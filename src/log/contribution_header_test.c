/* contribution_header_test.c - a header reads back equal, and each broken one is refused. */
#include "contribution_scene.h"

TEST(a_header_reads_back_equal)
{
    scene s;
    dl_contribution back;
    scene_begin(&s, "mem://header", NULL);
    CHECK_OK(dl_contribution_read_header(&back, s.object, DL_CONTRIBUTION_HEADER));
    check_equal(&s.facts, &back);
    CHECK(back.stats.tokens == UINT64_MAX && back.stats.loss == 3.25 &&
          back.stats.end_sample == 48000);
    CHECK_STR("r7", back.generation.replica);
    CHECK_STR("f32", back.codec);
    s.facts.stats.loss = NAN;
    make_object(&s);
    CHECK_OK(dl_contribution_read_header(&back, s.object, DL_CONTRIBUTION_HEADER));
    CHECK(isnan(back.stats.loss));
    scene_end(&s);
}

/* The offsets of docs/formats.md: a change here is a new format version. */
TEST(fields_are_where_the_format_says)
{
    scene s;
    scene_begin(&s, "mem://offsets", NULL);
    CHECK_BYTES("DLCONTR1\1\0\0\0\0\2\0\0" RUN "r7\0", s.object, 51);
    CHECK_BYTES("\3\0\0\0\0\0\0\0\14\0\0\0\0\0\0\0f32\0", s.object + 80, 20);
    CHECK_BYTES("\x70\x17\0\0", s.object + 128, 4);         /* position 6000 */
    CHECK_BYTES("\0\0\0\0\0\0\x0a\x40", s.object + 192, 8); /* loss 3.25 */
    CHECK_BYTES(s.facts.base.bytes, s.object + 208, 16);
    CHECK_BYTES("\x1a\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\3", s.object + 240, 17);
    CHECK_BYTES(s.facts.body.bytes, s.object + 272, 16);
    for (size_t i = 288; i < SEAL_AT; i++)
        CHECK_INT(0, s.object[i]);
    scene_end(&s);
}

TEST(every_flipped_bit_of_a_header_is_found)
{
    scene s;
    dl_contribution back;
    scene_begin(&s, "mem://bits", NULL);
    for (size_t bit = 0; bit < 8 * DL_CONTRIBUTION_HEADER; bit++) {
        s.object[bit / 8] ^= (unsigned char)(1 << bit % 8);
        CHECK_STATUS(DILOCO_EPROTO,
                     dl_contribution_read_header(&back, s.object, DL_CONTRIBUTION_HEADER));
        s.object[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t len = 0; len < DL_CONTRIBUTION_HEADER; len++)
        CHECK_STATUS(DILOCO_EPROTO, dl_contribution_read_header(&back, s.object, len));
    scene_end(&s);
}

/* Breaks one byte of the header. */
static void check_broken(scene *s, size_t at, unsigned char value, diloco_status expected,
                         const char *part)
{
    dl_contribution back = {.entry = 77};
    make_object(s);
    s->object[at] = value;
    reseal(s->object);
    CHECK_STATUS(expected, dl_contribution_read_header(&back, s->object, DL_CONTRIBUTION_HEADER));
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK_INT(77, back.entry);
}

TEST(a_header_that_cannot_be_is_refused)
{
    scene s;
    scene_begin(&s, "mem://impossible", NULL);
    check_broken(&s, 0, 'd', DILOCO_EPROTO, "DLCONTR1");
    check_broken(&s, 8, 2, DILOCO_EDIFFERS, "version 2");
    check_broken(&s, 13, 4, DILOCO_EPROTO, "1024 bytes long");
    check_broken(&s, 16, 'x', DILOCO_EPROTO, "run");
    check_broken(&s, 48, '/', DILOCO_EPROTO, "replica");
    check_broken(&s, 48, 0, DILOCO_EPROTO, "replica"); /* an empty name, and then bytes */
    check_broken(&s, 60, 'x', DILOCO_EPROTO, "replica");
    check_broken(&s, 83, 1, DILOCO_EPROTO, "generation"); /* as a name it could not be written */
    check_broken(&s, 87, 1, DILOCO_EPROTO, "fragment");
    check_broken(&s, 96, 0x1b, DILOCO_EPROTO, "codec");
    check_broken(&s, 127, 'x', DILOCO_EPROTO, "codec");
    check_broken(&s, 182, 1, DILOCO_EPROTO, "end_sample"); /* first_sample's high byte */
    check_broken(&s, 207, 0x80, DILOCO_EPROTO, "norm");    /* negative */
    check_broken(&s, 288, 2, DILOCO_EPROTO, "packing");
    check_broken(&s, 296, 1, DILOCO_EPROTO, "unpacked_len"); /* without packing */
    check_broken(&s, 304, 17, DILOCO_EPROTO, "dealt");
    check_broken(&s, 312, 1, DILOCO_EPROTO, "dealt"); /* chunks of a length, but zero of them */
    check_broken(&s, 320, 1, DILOCO_EPROTO, "dealt");
    check_broken(&s, 456, 1, DILOCO_EPROTO, "hash"); /* of a body that is not signed */
    check_broken(&s, 488, 65, DILOCO_EPROTO, "slices");
    check_broken(&s, 495, 1, DILOCO_EPROTO, "slices");
    s.facts.stats.loss = INFINITY;
    check_broken(&s, 288, 0, DILOCO_EPROTO, "loss");
    scene_end(&s);
}

TEST_MAIN(a_header_reads_back_equal, fields_are_where_the_format_says,
          every_flipped_bit_of_a_header_is_found, a_header_that_cannot_be_is_refused)
