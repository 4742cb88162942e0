/* check.h - TEST and CHECK_*, a thin layer over cmocka.
 *
 * A test's name is the sentence it proves. CHECKs run on the main thread only.
 *
 *     TEST(truncated_input_is_refused) { CHECK_STATUS(DILOCO_EPROTO, f(3)); }
 *     TEST_MAIN(truncated_input_is_refused)
 *
 * TEST_MAIN lists every TEST of the file. A test that is not listed is an unused
 * function, which -Werror refuses. */
#ifndef DL_TESTS_CHECK_H
#define DL_TESTS_CHECK_H

#include <fnmatch.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

#define TEST(name) static void name(void **cmocka_state_ __attribute__((unused)))

#define CHECK(condition) assert_true(condition)

/* A failure prints the expected and the actual value, and the numbers or text after them. */
#define CHECK_FAIL(...)                                                                            \
    do {                                                                                           \
        print_error(__VA_ARGS__);                                                                  \
        print_error("\n");                                                                         \
        _fail(__FILE__, __LINE__);                                                                 \
    } while (0)

#define CHECK_STATUS(expected, call)                                                               \
    do {                                                                                           \
        diloco_status want_ = (expected), got_ = (call);                                           \
        if (want_ != got_)                                                                         \
            CHECK_FAIL("%s: expected %s, got %s: %s", #call, diloco_status_name(want_),            \
                       diloco_status_name(got_), diloco_error_text());                             \
    } while (0)
#define CHECK_OK(call) CHECK_STATUS(DILOCO_OK, call)

#define CHECK_INT(expected, value)                                                                 \
    do {                                                                                           \
        long long want_ = (long long)(expected), got_ = (long long)(value);                        \
        if (want_ != got_) CHECK_FAIL("%s: expected %lld, got %lld", #value, want_, got_);         \
    } while (0)

#define CHECK_STR(expected, value)                                                                 \
    do {                                                                                           \
        const char *want_ = (expected), *got_ = (value);                                           \
        if (strcmp(want_, got_) != 0)                                                              \
            CHECK_FAIL("%s: expected \"%s\", got \"%s\"", #value, want_, got_);                    \
    } while (0)

/* The text holds the part: for error messages, whose wording may grow. */
#define CHECK_CONTAINS(part, text)                                                                 \
    do {                                                                                           \
        const char *part_ = (part), *text_ = (text);                                               \
        if (!strstr(text_, part_)) CHECK_FAIL("\"%s\" is not in \"%s\"", part_, text_);            \
    } while (0)

#define CHECK_NEAR(expected, value, tolerance)                                                     \
    do {                                                                                           \
        double want_ = (expected), got_ = (value), tol_ = (tolerance);                             \
        if (!(fabs(want_ - got_) <= tol_))                                                         \
            CHECK_FAIL("%s: expected %.9g within %.3g, got %.9g (off by %.3g)", #value, want_,     \
                       tol_, got_, fabs(want_ - got_));                                            \
    } while (0)

#define CHECK_BYTES(expected, value, n)                                                            \
    do {                                                                                           \
        const unsigned char *want_ = (const void *)(expected), *got_ = (const void *)(value);      \
        size_t n_ = (n);                                                                           \
        for (size_t i_ = 0; i_ < n_; i_++)                                                         \
            if (want_[i_] != got_[i_])                                                             \
                CHECK_FAIL("%s: byte %zu of %zu is %02x, expected %02x", #value, i_, n_, got_[i_], \
                           want_[i_]);                                                             \
    } while (0)

/* Runs the tests whose names match argv[1], a pattern as the shell has them, or all without one. A
 * pattern that names no test is an error. Returns the exit code. */
static inline int check_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n)
{
    size_t matching = argc < 2 ? n : 0;
    for (size_t i = 0; i < n && argc > 1; i++)
        matching += fnmatch(argv[1], tests[i].name, 0) == 0;
    if (!matching) {
        fprintf(stderr, "%s: no test is called %s\n", argv[0], argv[1]);
        return 2;
    }
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests(argv[0], tests, n, NULL, NULL);
}

/* TEST_MAIN(a, b, c): main over cmocka_unit_test(a), … */
#define TEST_MAIN(...)                                                                             \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        static void (*const run_[])(void **) = {__VA_ARGS__};                                      \
        static const char names_[] = #__VA_ARGS__;                                                 \
        static char text_[sizeof names_];                                                          \
        struct CMUnitTest tests_[sizeof run_ / sizeof run_[0]];                                    \
        memcpy(text_, names_, sizeof names_);                                                      \
        char *next_ = text_;                                                                       \
        for (size_t i_ = 0; i_ < sizeof run_ / sizeof run_[0]; i_++) {                             \
            char *name_ = strtok_r(i_ ? NULL : text_, ", \n", &next_);                             \
            tests_[i_] = (struct CMUnitTest){name_, run_[i_], NULL, NULL, NULL};                   \
        }                                                                                          \
        return check_main(argc, argv, tests_, sizeof run_ / sizeof run_[0]);                       \
    }

#endif
