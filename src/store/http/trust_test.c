/* trust_test.c - the choice of the file of certificate authorities. */
#include "store/http/trust.h"

#include "check.h"

#define HERE   "/dev/null"
#define ABSENT "/nonexistent/ca.pem"

static const char *const places[] = {ABSENT, HERE, NULL}, *const nowhere[] = {ABSENT, NULL};

TEST(a_given_file_wins_even_if_it_cannot_be_read)
{
    CHECK_STR(ABSENT, dl_trust_pick(ABSENT, HERE, places));
}

TEST(libcurls_own_file_is_used_where_it_exists)
{
    CHECK(!dl_trust_pick(NULL, HERE, places));
    CHECK(!dl_trust_pick("", HERE, places));
    CHECK(!dl_trust_pick(NULL, NULL, places));
}

TEST(the_first_place_that_exists_replaces_an_absent_file_of_libcurl)
{
    CHECK_STR(HERE, dl_trust_pick(NULL, ABSENT, places));
    CHECK(!dl_trust_pick(NULL, ABSENT, nowhere));
}

TEST_MAIN(a_given_file_wins_even_if_it_cannot_be_read, libcurls_own_file_is_used_where_it_exists,
          the_first_place_that_exists_replaces_an_absent_file_of_libcurl)
