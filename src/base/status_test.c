/* status_test.c - names, exit codes and error texts. */
#include "base/status.h"

#include "check.h"

#include <pthread.h>

TEST(exit_codes_are_the_documented_ones)
{
    CHECK_INT(0, diloco_exit_code(DILOCO_OK));
    CHECK_INT(2, diloco_exit_code(DILOCO_EINVAL));
    CHECK_INT(3, diloco_exit_code(DILOCO_EREFUSED));
    CHECK_INT(4, diloco_exit_code(DILOCO_EUNREACHABLE));
    CHECK_INT(130, diloco_exit_code(DILOCO_EINTERRUPTED));
    for (int s = DILOCO_ENOMEM; s < DILOCO_N_STATUS; s++)
        CHECK_INT(1, diloco_exit_code((diloco_status)s));
    CHECK_INT(1, diloco_exit_code((diloco_status)99));
}

TEST(every_status_has_a_name_of_its_own)
{
    for (int s = 0; s < DILOCO_N_STATUS; s++) {
        const char *name = diloco_status_name((diloco_status)s);
        CHECK(name && *name);
        for (int t = 0; t < s; t++)
            CHECK(strcmp(name, diloco_status_name((diloco_status)t)) != 0);
    }
    CHECK_STR("unknown", diloco_status_name((diloco_status)-1));
}

TEST(fail_returns_its_status_and_words_it)
{
    CHECK_INT(DILOCO_EIO, dl_fail(DILOCO_EIO, "open %s: %d", "x", 7));
    CHECK_STR("open x: 7", diloco_error_text());
}

TEST(context_precedes_the_text_which_may_be_its_own_argument)
{
    dl_fail(DILOCO_EIO, "inner");
    CHECK_INT(DILOCO_EIO, dl_fail_context(DILOCO_EIO, "entry %d", 3));
    CHECK_STR("entry 3: inner", diloco_error_text());
    dl_fail(DILOCO_EIO, "again (%s)", diloco_error_text());
    CHECK_STR("again (entry 3: inner)", diloco_error_text());
}

TEST(a_long_text_is_cut_at_2047_bytes)
{
    char long_text[3000];
    memset(long_text, 'a', sizeof long_text);
    long_text[sizeof long_text - 1] = 0;
    dl_fail(DILOCO_EIO, "%s", long_text);
    CHECK_INT(2047, strlen(diloco_error_text()));
    dl_fail_context(DILOCO_EIO, "before");
    CHECK_INT(2047, strlen(diloco_error_text()));
    CHECK_CONTAINS("before: aaa", diloco_error_text());
    dl_fail_context(DILOCO_EIO, "%s", long_text);
    CHECK_INT(2047, strlen(diloco_error_text()));
}

static void *fail_elsewhere(void *first_text)
{
    snprintf(first_text, 64, "%s", diloco_error_text());
    dl_fail(DILOCO_EIO, "theirs");
    return NULL;
}

TEST(the_text_is_the_threads_own)
{
    pthread_t thread;
    char first[64] = "?";
    dl_fail(DILOCO_EIO, "mine");
    CHECK_INT(0, pthread_create(&thread, NULL, fail_elsewhere, first));
    pthread_join(thread, NULL);
    CHECK_STR("", first);
    CHECK_STR("mine", diloco_error_text());
}

static diloco_status try_both(diloco_status first, int *reached)
{
    DL_TRY(first);
    (*reached)++;
    return DILOCO_OK;
}

TEST(try_returns_the_first_failure)
{
    int reached = 0;
    CHECK_STATUS(DILOCO_EFULL, try_both(DILOCO_EFULL, &reached));
    CHECK_INT(0, reached);
    CHECK_OK(try_both(DILOCO_OK, &reached));
    CHECK_INT(1, reached);
}

TEST_MAIN(exit_codes_are_the_documented_ones, every_status_has_a_name_of_its_own,
          fail_returns_its_status_and_words_it,
          context_precedes_the_text_which_may_be_its_own_argument, a_long_text_is_cut_at_2047_bytes,
          the_text_is_the_threads_own, try_returns_the_first_failure)
