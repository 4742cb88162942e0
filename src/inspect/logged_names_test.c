/* logged_names_test.c - the names that the log names. */
#include "inspect/logged_names.h"

#include "check.h"

#include <stdio.h>

static dl_logged_names names;

TEST(a_name_has_the_newest_entry_that_names_it)
{
    names = (dl_logged_names){.n = 0};
    CHECK_INT(0, dl_logged_names_since(&names, "r1"));
    dl_logged_names_add(&names, "r10", 0);
    dl_logged_names_add(&names, "r2", 0);
    dl_logged_names_add(&names, "r10", 7);
    dl_logged_names_add(&names, "r10", 5);
    CHECK_INT(8, dl_logged_names_since(&names, "r10"));
    CHECK_INT(1, dl_logged_names_since(&names, "r2"));
    CHECK_INT(0, dl_logged_names_since(&names, "r1"));
}

TEST(a_full_list_forgets_the_name_that_was_named_least_recently)
{
    char name[16];
    names = (dl_logged_names){.n = 0};
    for (uint64_t i = 0; i < DL_LOGGED_NAMES_MAX; i++) {
        snprintf(name, sizeof name, "r%d", (int)i);
        dl_logged_names_add(&names, name, i);
    }
    dl_logged_names_add(&names, "r0", DL_LOGGED_NAMES_MAX);
    dl_logged_names_add(&names, "a", DL_LOGGED_NAMES_MAX);
    CHECK_INT(DL_LOGGED_NAMES_MAX, names.n);
    CHECK_INT(0, dl_logged_names_since(&names, "r1"));
    CHECK_INT(3, dl_logged_names_since(&names, "r2"));
    CHECK_INT(DL_LOGGED_NAMES_MAX + 1, dl_logged_names_since(&names, "r0"));
    CHECK_INT(DL_LOGGED_NAMES_MAX + 1, dl_logged_names_since(&names, "a"));
}

TEST_MAIN(a_name_has_the_newest_entry_that_names_it,
          a_full_list_forgets_the_name_that_was_named_least_recently)
