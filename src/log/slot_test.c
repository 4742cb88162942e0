/* slot_test.c - the memory, or the file, of a contribution that waits. */
#include "log/contribution.h"

#include "check.h"
#include "scratch.h"

#include <signal.h>
#include <sys/resource.h>

TEST(a_spool_folder_that_is_not_there_is_an_error)
{
    dl_slot *slot;
    CHECK_STATUS(DILOCO_ENOENT, dl_slot_create(&slot, 4096, scratch_path("nowhere")));
    CHECK(slot == NULL);
}

TEST(a_spool_file_that_cannot_have_its_space_is_an_error_and_leaves_nothing)
{
    dl_slot *slot;
    char *folder = scratch_folder("limited");
    struct rlimit kept, small;
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(0, getrlimit(RLIMIT_FSIZE, &kept));
    small = kept;
    small.rlim_cur = 4096;
    CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &small));
    diloco_status status = dl_slot_create(&slot, 1 << 20, folder);
    CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &kept));
    CHECK_INT(DILOCO_EIO, status);
    CHECK_CONTAINS("spool", diloco_error_text());
    CHECK(slot == NULL);
    CHECK_INT(0, rmdir(folder));
}

/* The small ones share pages, the large ones are mapped. */
TEST(slots_of_any_size_are_aligned_zero_and_as_large_as_asked_for)
{
    static const size_t sizes[] = {1, 63, 64, 2047, 2048, 2049, 4096, 100000};
    enum { MANY = sizeof sizes / sizeof *sizes };
    dl_slot *slots[MANY];
    for (size_t i = 0; i < MANY; i++) {
        CHECK_OK(dl_slot_create(&slots[i], sizes[i], NULL));
        CHECK_INT(sizes[i], dl_slot_size(slots[i]));
        CHECK_INT(0, (uintptr_t)dl_slot_bytes(slots[i]) % 64);
        for (size_t b = 0; b < sizes[i]; b++)
            CHECK(dl_slot_bytes(slots[i])[b] == 0);
        memset(dl_slot_bytes(slots[i]), 0xFF, sizes[i]); /* which a sanitizer watches */
    }
    for (size_t i = 0; i < MANY; i++)
        dl_slot_destroy(slots[i]);
}

TEST(small_slots_do_not_take_a_page_each)
{
    enum { MANY = 64 };
    dl_slot *slots[MANY];
    size_t at_page = 0;
    for (size_t i = 0; i < MANY; i++) {
        CHECK_OK(dl_slot_create(&slots[i], 1024, NULL));
        at_page += (uintptr_t)dl_slot_bytes(slots[i]) % 4096 == 0;
    }
    CHECK(at_page < MANY);
    for (size_t i = 0; i < MANY; i++)
        dl_slot_destroy(slots[i]);
}

TEST(a_slot_of_nothing_and_no_slot_are_fine)
{
    dl_slot *slot;
    CHECK_OK(dl_slot_create(&slot, 0, NULL));
    dl_slot_destroy(slot);
    dl_slot_destroy(NULL);
    CHECK_STATUS(DILOCO_ENOMEM, dl_slot_create(&slot, (size_t)1 << 62, NULL));
    CHECK(slot == NULL);
}

TEST_MAIN(a_spool_folder_that_is_not_there_is_an_error,
          a_spool_file_that_cannot_have_its_space_is_an_error_and_leaves_nothing,
          slots_of_any_size_are_aligned_zero_and_as_large_as_asked_for,
          small_slots_do_not_take_a_page_each, a_slot_of_nothing_and_no_slot_are_fine)
