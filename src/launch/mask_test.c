/* mask_test.c - values are masked however the bytes are cut, and nothing else is. */
#include "launch/mask.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>

/* The text, masked in pieces of this size. */
static void masked_in_pieces(char *out, size_t cap, const char *names, const char *text,
                             size_t piece)
{
    dl_mask mask;
    dl_buf got;
    dl_buf_init(&got, 1 << 16);
    CHECK_OK(dl_mask_init(&mask, names));
    for (size_t at = 0; at < strlen(text); at += piece) {
        const size_t left = strlen(text) - at;
        CHECK_OK(dl_mask_add(&mask, &got, text + at, left < piece ? left : piece, false));
    }
    CHECK_OK(dl_mask_add(&mask, &got, "", 0, true));
    snprintf(out, cap, "%s", dl_buf_str(&got));
    dl_mask_deinit(&mask);
    dl_buf_deinit(&got);
}

TEST(values_are_masked_in_pieces_of_any_size)
{
    static const char text[] = "key swordfish, swordfishes; sword, swordfis\nswordfishswordfish s";
    char got[256];
    setenv("TEST_KEY", "swordfish", 1);
    setenv("TEST_PLURAL", "swordfishes", 1);
    setenv("TEST_EMPTY", "", 1);
    for (size_t piece = 1; piece <= sizeof text; piece++) {
        masked_in_pieces(got, sizeof got, "TEST_KEY,TEST_EMPTY,TEST_PLURAL,TEST_UNSET", text,
                         piece);
        CHECK_STR("key ***, ***; sword, swordfis\n****** s", got);
    }
}

TEST(a_text_without_secrets_stays_as_it_is)
{
    char got[256];
    masked_in_pieces(got, sizeof got, "", "swordfish\n", 3);
    CHECK_STR("swordfish\n", got);
}

TEST(too_many_names_are_refused)
{
    char names[4 * 70] = "";
    dl_mask mask;
    setenv("A", "x", 1);
    for (int i = 0; i < 70; i++)
        strcat(names, "A,");
    CHECK_STATUS(DILOCO_EINVAL, dl_mask_init(&mask, names));
    dl_mask_deinit(&mask);
}

TEST(a_name_that_is_too_long_is_refused)
{
    char name[DL_MASK_NAME_MAX + 2];
    dl_mask mask;
    memset(name, 'N', sizeof name);
    name[DL_MASK_NAME_MAX + 1] = '\0';
    CHECK_STATUS(DILOCO_EINVAL, dl_mask_init(&mask, name));
    dl_mask_deinit(&mask);
    name[DL_MASK_NAME_MAX] = '\0';
    CHECK_OK(dl_mask_init(&mask, name));
    dl_mask_deinit(&mask);
}

TEST_MAIN(values_are_masked_in_pieces_of_any_size, a_text_without_secrets_stays_as_it_is,
          too_many_names_are_refused, a_name_that_is_too_long_is_refused)
