/* program_test.c - the digest of a program's file. */
#include "launch/program.h"

#include "check.h"
#include "scratch.h"

TEST(digest_is_that_of_the_bytes_whatever_the_name_of_the_file)
{
    static const char *const names[] = {"plain", "back\\slash", "new\nline", "-dash"};
    char digest[DL_PROGRAM_DIGEST + 1];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK_OK(dl_program_digest(digest, scratch_write(names[i], "abc", 3)));
        CHECK_STR("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", digest);
    }
    CHECK_STATUS(DILOCO_EIO, dl_program_digest(digest, scratch_path("none")));
}

TEST_MAIN(digest_is_that_of_the_bytes_whatever_the_name_of_the_file)
