/* about_test.c - the project and the headers have the same version. */
#include "check.h"
#include <diloco/diloco.h>

#include <stdio.h>

TEST(the_librarys_version_is_that_of_its_headers)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", DILOCO_VERSION_MAJOR, DILOCO_VERSION_MINOR,
             DILOCO_VERSION_PATCH);
    CHECK_STR(text, diloco_version());
    CHECK_INT(DILOCO_VERSION_NUMBER, diloco_version_number());
}

TEST_MAIN(the_librarys_version_is_that_of_its_headers)
