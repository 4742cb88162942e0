/* sized_test.c - callers of earlier and of later headers than the library's. */
#include "base/sized.h"
#include "check.h"

#include <string.h>

typedef struct known {
    int a, b;
} known;
typedef struct later {
    int a, b, c;
} later;

TEST(members_that_an_earlier_caller_lacks_are_zero)
{
    known k = {7, 7};
    CHECK_OK(dl_sized_in(&k, sizeof k, &(int){3}, sizeof(int), "known"));
    CHECK(k.a == 3 && k.b == 0);
}

TEST(a_later_caller_is_served_until_it_uses_a_new_member)
{
    known k = {7, 7};
    later l = {1, 2, 0};
    CHECK_OK(dl_sized_in(&k, sizeof k, &l, sizeof l, "known"));
    CHECK(k.a == 1 && k.b == 2);
    l.c = 1;
    CHECK_STATUS(DILOCO_EINVAL, dl_sized_in(&k, sizeof k, &l, sizeof l, "known"));
    CHECK_CONTAINS("known of 12 bytes uses a member beyond the 8 bytes that this library",
                   diloco_error_text());
}

TEST(results_fill_the_caller_s_struct_and_no_more)
{
    known k = {1, 2};
    int earlier[2] = {7, 7};
    later l = {7, 7, 7};
    dl_sized_out(earlier, sizeof(int), &k, sizeof k);
    CHECK(earlier[0] == 1 && earlier[1] == 7);
    dl_sized_out(&l, sizeof l, &k, sizeof k);
    CHECK(l.a == 1 && l.b == 2 && l.c == 0);
}

TEST_MAIN(members_that_an_earlier_caller_lacks_are_zero,
          a_later_caller_is_served_until_it_uses_a_new_member,
          results_fill_the_caller_s_struct_and_no_more)
