/* saver_test.c - saves on a thread of their own: begin, wait, failures, a full disk, the end. */
#include "run/saver.h"

#include "check.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

/* A disk. A write waits until the test lets it pass. It then finds the disk full, or returns the
 * status that the test has set. */
typedef struct disk {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_passing;     /* guarded by the lock: the first writes, which may pass */
    int n_entered;     /* guarded by the lock: writes that have begun */
    int slots[4];      /* guarded by the lock: the slots of the first ones */
    atomic_int n_full; /* writes that find the disk full */
    atomic_int n_writes, n_writes_of[DL_SAVER_SLOTS];
    atomic_int n_reports, n_replaced, n_released[DL_SAVER_SLOTS];
    diloco_status status;
} disk;

static void disk_begin(disk *d)
{
    memset(d, 0, sizeof *d);
    CHECK(!pthread_mutex_init(&d->lock, NULL) && !pthread_cond_init(&d->changed, NULL));
}

static void let_pass(disk *d, int n)
{
    pthread_mutex_lock(&d->lock);
    d->n_passing = n;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

static void open_gate(disk *d)
{
    let_pass(d, INT_MAX);
}

/* Waits until n writes have begun. */
static void wait_until_n_entered(disk *d, int n)
{
    pthread_mutex_lock(&d->lock);
    while (d->n_entered < n)
        pthread_cond_wait(&d->changed, &d->lock);
    pthread_mutex_unlock(&d->lock);
}

static void wait_until_entered(disk *d)
{
    wait_until_n_entered(d, 1);
}

static void begin(dl_saver *s, uint64_t entry)
{
    dl_saver_begin(s, dl_saver_take(s), entry);
}

static diloco_status wait_for_all(dl_saver *s)
{
    return dl_saver_wait(s, UINT64_MAX, NULL);
}

static diloco_status write_slowly(void *user, int slot)
{
    disk *d = user;
    pthread_mutex_lock(&d->lock);
    if (d->n_entered < 4) d->slots[d->n_entered] = slot;
    const int own = ++d->n_entered;
    pthread_cond_broadcast(&d->changed);
    while (d->n_passing < own)
        pthread_cond_wait(&d->changed, &d->lock);
    pthread_mutex_unlock(&d->lock);
    atomic_fetch_add(&d->n_writes, 1);
    atomic_fetch_add(&d->n_writes_of[slot], 1);
    if (atomic_load(&d->n_full) > 0 && atomic_fetch_sub(&d->n_full, 1) > 0)
        return dl_fail(DILOCO_EFULL, "the disk is full");
    return d->status ? dl_fail(d->status, "the disk is broken") : DILOCO_OK;
}

static void hear_full(void *user, const char *why)
{
    disk *d = user;
    if (strstr(why, "full")) atomic_fetch_add(&d->n_reports, 1);
}

static void hear_replaced(void *user, const char *why)
{
    disk *d = user;
    if (strstr(why, "the disk is")) atomic_fetch_add(&d->n_replaced, 1);
}

static void hear_released(void *user, int slot)
{
    disk *d = user;
    atomic_fetch_add(&d->n_released[slot], 1);
}

static dl_saver *saver_of(disk *d, double patience_s)
{
    dl_saver *s = NULL;
    const dl_saver_args args = {.write = write_slowly,
                                .full = hear_full,
                                .replaced = hear_replaced,
                                .released = hear_released,
                                .user = d,
                                .patience_s = patience_s};
    CHECK_OK(dl_saver_create(&s, &args));
    return s;
}

TEST(a_save_is_written_while_the_caller_continues)
{
    disk d;
    disk_begin(&d);
    dl_saver *s = saver_of(&d, 60);
    CHECK_OK(wait_for_all(s)); /* none is in progress */
    begin(s, 0);
    wait_until_entered(&d); /* begin returned although the write has not */
    CHECK_INT(0, atomic_load(&d.n_writes));
    open_gate(&d);
    CHECK_OK(wait_for_all(s));
    CHECK_INT(1, atomic_load(&d.n_writes));
    dl_saver_destroy(s);
}

TEST(an_interrupt_ends_the_wait_and_not_the_save)
{
    disk d;
    atomic_bool interrupted = true;
    disk_begin(&d);
    dl_saver *s = saver_of(&d, 60);
    begin(s, 0);
    wait_until_entered(&d);
    CHECK_STATUS(DILOCO_EINTERRUPTED, dl_saver_wait(s, UINT64_MAX, &interrupted));
    CHECK(!atomic_load(&interrupted));
    open_gate(&d);
    CHECK_OK(dl_saver_wait(s, UINT64_MAX, &interrupted));
    dl_saver_destroy(s);
}

TEST(a_failure_is_returned_until_the_next_save_begins)
{
    disk d;
    disk_begin(&d);
    d.status = DILOCO_EIO;
    open_gate(&d);
    dl_saver *s = saver_of(&d, 60);
    begin(s, 0);
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(DILOCO_EIO, wait_for_all(s));
        CHECK_CONTAINS("broken", diloco_error_text());
    }
    d.status = DILOCO_OK;
    begin(s, 0);
    CHECK_OK(wait_for_all(s));
    dl_saver_destroy(s);
}

/* The second slot has the newest copy. Contributions wait for the copies that they need, also if a
 * newer one has replaced theirs. */
TEST(newest_copy_waits_while_the_former_one_is_written)
{
    disk d;
    disk_begin(&d);
    atomic_bool interrupted = true; /* ends each wait that would block */
    dl_saver *s = saver_of(&d, 60);
    CHECK(!dl_saver_writes(s));
    begin(s, 1);
    wait_until_entered(&d);
    CHECK(dl_saver_writes(s));
    for (uint64_t entry = 2; entry < 5; entry++) {
        const int slot = dl_saver_take(s);
        CHECK(slot != d.slots[0]);
        dl_saver_begin(s, slot, entry);
    }
    CHECK_OK(dl_saver_wait(s, 0, &interrupted)); /* needs none of them */
    for (uint64_t entry = 1; entry < 5; entry++) {
        atomic_store(&interrupted, true);
        CHECK_STATUS(DILOCO_EINTERRUPTED, dl_saver_wait(s, entry, &interrupted));
    }
    open_gate(&d);
    CHECK_OK(dl_saver_wait(s, 2, NULL)); /* its own copy was dropped */
    CHECK_INT(2, atomic_load(&d.n_writes));
    CHECK_INT(!d.slots[0], d.slots[1]);
    dl_saver_destroy(s);
}

TEST(a_save_after_a_failed_one_covers_its_contributions)
{
    disk d;
    disk_begin(&d);
    atomic_store(&d.n_full, 1);
    dl_saver *s = saver_of(&d, 0);
    begin(s, 1);
    wait_until_entered(&d);
    begin(s, 5);
    open_gate(&d);
    CHECK_OK(dl_saver_wait(s, 1, NULL));
    CHECK_INT(2, atomic_load(&d.n_writes));
    CHECK_INT(0, atomic_load(&d.n_reports)); /* no patience */
    dl_saver_destroy(s);
    CHECK_INT(1, atomic_load(&d.n_replaced));
}

TEST(a_failed_save_that_another_replaces_fails_no_older_contribution)
{
    disk d;
    disk_begin(&d);
    atomic_bool interrupted = true; /* ends each wait that would block */
    atomic_store(&d.n_full, 1);
    dl_saver *s = saver_of(&d, 0);
    begin(s, 1);
    wait_until_entered(&d);
    begin(s, 5);
    let_pass(&d, 1);
    wait_until_n_entered(&d, 2); /* the first save has failed */
    CHECK_OK(dl_saver_wait(s, 0, NULL));
    CHECK_STATUS(DILOCO_EINTERRUPTED, dl_saver_wait(s, 1, &interrupted));
    open_gate(&d);
    CHECK_OK(dl_saver_wait(s, 1, NULL));
    dl_saver_destroy(s);
}

TEST(a_save_that_fails_while_a_copy_is_made_is_replaced_unless_that_is_cancelled)
{
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        disk d;
        disk_begin(&d);
        atomic_bool interrupted = true; /* ends each wait that would block */
        atomic_store(&d.n_full, 1);
        dl_saver *s = saver_of(&d, 0);
        begin(s, 1);
        wait_until_entered(&d);
        const int slot = dl_saver_take(s);
        open_gate(&d);
        while (dl_saver_writes(s))
            sched_yield();
        CHECK_OK(dl_saver_wait(s, 0, NULL));
        CHECK_STATUS(DILOCO_EINTERRUPTED, dl_saver_wait(s, 1, &interrupted));
        if (cancelled) {
            dl_saver_cancel(s);
            CHECK_STATUS(DILOCO_EFULL, dl_saver_wait(s, 1, NULL));
            CHECK_STATUS(DILOCO_EFULL, wait_for_all(s));
        } else {
            dl_saver_begin(s, slot, 5);
            CHECK_OK(dl_saver_wait(s, 1, NULL));
            CHECK_OK(wait_for_all(s));
        }
        dl_saver_destroy(s);
        CHECK_INT(1, atomic_load(&d.n_replaced));
    }
}

/* The second copy is written once: the patience began with the first one. */
TEST(two_saves_on_a_full_disk_share_one_patience)
{
    disk d;
    disk_begin(&d);
    atomic_store(&d.n_full, INT_MAX);
    dl_saver *s = saver_of(&d, 0.01);
    begin(s, 1);
    wait_until_entered(&d);
    begin(s, 2);
    open_gate(&d);
    CHECK_STATUS(DILOCO_EFULL, dl_saver_wait(s, 1, NULL));
    CHECK_INT(1, atomic_load(&d.n_writes_of[!d.slots[0]]));
    dl_saver_destroy(s);
    CHECK_INT(1, atomic_load(&d.n_replaced));
}

TEST(a_save_by_the_caller_ends_a_failure)
{
    disk d;
    disk_begin(&d);
    d.status = DILOCO_EIO;
    open_gate(&d);
    dl_saver *s = saver_of(&d, 60);
    begin(s, 1);
    CHECK_STATUS(DILOCO_EIO, dl_saver_wait(s, 1, NULL));
    CHECK_OK(dl_saver_wait(s, 0, NULL)); /* does not need it */
    dl_saver_saved(s);
    CHECK_OK(dl_saver_wait(s, 1, NULL));
    CHECK_OK(wait_for_all(s));
    dl_saver_destroy(s);
    dl_saver_saved(NULL);
}

TEST(a_waiting_copy_is_not_written_if_the_caller_saves_a_newer_state)
{
    disk d;
    disk_begin(&d);
    atomic_bool interrupted = true; /* ends each wait that would block */
    dl_saver *s = saver_of(&d, 60);
    begin(s, 1);
    wait_until_entered(&d);
    begin(s, 2);
    dl_saver_hold(s);
    dl_saver_hold(NULL);
    open_gate(&d);
    CHECK_OK(wait_for_all(s));
    CHECK_INT(1, atomic_load(&d.n_writes));
    CHECK_OK(dl_saver_wait(s, 1, NULL));
    CHECK_STATUS(DILOCO_EINTERRUPTED, dl_saver_wait(s, 2, &interrupted));
    dl_saver_saved(s);
    CHECK_OK(dl_saver_wait(s, 2, NULL));
    dl_saver_destroy(s);
    CHECK_INT(1, atomic_load(&d.n_writes));
}

TEST(a_waiting_copy_is_written_after_all_if_the_callers_save_fails)
{
    disk d;
    disk_begin(&d);
    dl_saver *s = saver_of(&d, 60);
    begin(s, 1);
    wait_until_entered(&d);
    begin(s, 2);
    dl_saver_hold(s);
    open_gate(&d);
    CHECK_OK(wait_for_all(s));
    dl_saver_release(s);
    dl_saver_release(NULL);
    CHECK_OK(dl_saver_wait(s, 2, NULL));
    CHECK_INT(2, atomic_load(&d.n_writes));
    CHECK_INT(!d.slots[0], d.slots[1]);
    dl_saver_destroy(s);
}

/* The contributions of the failed save wait until the caller has saved, or has failed, too. */
TEST(a_failed_save_fails_no_contribution_while_the_caller_saves)
{
    for (int saved = 0; saved < 2; saved++) {
        disk d;
        disk_begin(&d);
        atomic_bool interrupted = true; /* ends each wait that would block */
        atomic_store(&d.n_full, 1);
        dl_saver *s = saver_of(&d, 0);
        begin(s, 1);
        dl_saver_hold(s);
        open_gate(&d);
        CHECK_OK(wait_for_all(s));
        CHECK_INT(1, atomic_load(&d.n_writes));
        CHECK_OK(dl_saver_wait(s, 0, NULL));
        CHECK_STATUS(DILOCO_EINTERRUPTED, dl_saver_wait(s, 1, &interrupted));
        if (saved) {
            dl_saver_saved(s);
            CHECK_OK(dl_saver_wait(s, 1, NULL));
        } else {
            dl_saver_release(s);
            CHECK_STATUS(DILOCO_EFULL, dl_saver_wait(s, 1, NULL));
        }
        dl_saver_destroy(s);
    }
}

TEST(a_save_by_the_caller_ends_the_patience_with_a_full_disk)
{
    disk d;
    disk_begin(&d);
    atomic_store(&d.n_full, 1);
    dl_saver *s = saver_of(&d, 0);
    begin(s, 1);
    wait_until_entered(&d);
    begin(s, 2); /* replaces the first one, which fails */
    dl_saver_hold(s);
    let_pass(&d, 1);
    CHECK_OK(wait_for_all(s));
    dl_saver_saved(s);
    atomic_store(&d.n_full, 1);
    begin(s, 3);
    wait_until_n_entered(&d, 2);
    begin(s, 4);
    open_gate(&d);
    CHECK_OK(dl_saver_wait(s, 4, NULL));
    dl_saver_destroy(s);
    CHECK_INT(2, atomic_load(&d.n_replaced)); /* a second series, with its own warning */
}

/* The trainer may make the copy again. Until then the contributions of a copy that was dropped for
 * it wait, and the others do not. */
TEST(a_copy_that_is_cancelled_leaves_its_contributions_to_the_next)
{
    for (int again = 0; again < 2; again++) {
        disk d;
        atomic_bool interrupted = true; /* ends each wait that would block */
        disk_begin(&d);
        dl_saver *s = saver_of(&d, 60);
        dl_saver_take(s);
        dl_saver_cancel(s);
        CHECK_OK(dl_saver_wait(s, 9, &interrupted)); /* nothing needed it */
        begin(s, 1);
        wait_until_entered(&d);
        begin(s, 2);
        dl_saver_take(s); /* instead of 2 */
        dl_saver_cancel(s);
        open_gate(&d);
        CHECK_OK(dl_saver_wait(s, 1, NULL));
        CHECK_OK(wait_for_all(s));
        CHECK_STATUS(DILOCO_EINTERRUPTED, dl_saver_wait(s, 2, &interrupted));
        if (again) {
            begin(s, 3);
            CHECK_OK(dl_saver_wait(s, 2, NULL));
        } else {
            dl_saver_give_up(s);
            CHECK_STATUS(DILOCO_EINTERRUPTED, dl_saver_wait(s, 2, NULL));
        }
        CHECK_INT(1 + again, atomic_load(&d.n_writes));
        dl_saver_destroy(s);
    }
}

static void check_released(disk *d, int first, int second)
{
    CHECK_INT(first, atomic_load(&d->n_released[0]));
    CHECK_INT(second, atomic_load(&d->n_released[1]));
}

TEST(a_copy_is_released_once_it_is_written_dropped_cancelled_or_given_up)
{
    disk d;
    disk_begin(&d);
    dl_saver *s = saver_of(&d, 60);
    begin(s, 0); /* in slot 0 */
    wait_until_entered(&d);
    begin(s, 1); /* in slot 1, where it waits */
    check_released(&d, 0, 0);
    CHECK_INT(1, dl_saver_take(s)); /* it is dropped */
    check_released(&d, 0, 1);
    dl_saver_cancel(s);
    check_released(&d, 0, 2);
    begin(s, 2);
    dl_saver_hold(s);
    let_pass(&d, 1);
    CHECK_OK(wait_for_all(s)); /* the copy that waits is kept */
    check_released(&d, 1, 2);
    dl_saver_saved(s);
    check_released(&d, 1, 3);
    d.status = DILOCO_EIO;
    open_gate(&d);
    begin(s, 3);
    CHECK_STATUS(DILOCO_EIO, wait_for_all(s));
    check_released(&d, 2, 3);
    dl_saver_destroy(s);
    check_released(&d, 2, 3);
}

TEST(a_full_disk_is_reported_once_and_written_again)
{
    disk d;
    disk_begin(&d);
    atomic_store(&d.n_full, 3);
    open_gate(&d);
    dl_saver *s = saver_of(&d, 600);
    begin(s, 0);
    CHECK_OK(wait_for_all(s));
    CHECK_INT(4, atomic_load(&d.n_writes));
    CHECK_INT(1, atomic_load(&d.n_reports));
    dl_saver_destroy(s);
}

TEST(a_full_disk_is_given_up_at_the_end_of_the_run)
{
    disk d;
    disk_begin(&d);
    atomic_store(&d.n_full, INT_MAX);
    open_gate(&d);
    dl_saver *s = saver_of(&d, 1e9);
    begin(s, 0);
    dl_saver_give_up(s);
    CHECK_STATUS(DILOCO_EFULL, wait_for_all(s));
    dl_saver_destroy(s);
}

TEST(destroying_waits_for_the_write)
{
    disk d;
    disk_begin(&d);
    open_gate(&d);
    dl_saver *s = saver_of(&d, 60);
    begin(s, 0);
    dl_saver_destroy(s);
    CHECK_INT(1, atomic_load(&d.n_writes));
    dl_saver_destroy(NULL);
    CHECK_OK(dl_saver_wait(NULL, 0, NULL));
}

TEST_MAIN(a_save_is_written_while_the_caller_continues, an_interrupt_ends_the_wait_and_not_the_save,
          a_failure_is_returned_until_the_next_save_begins,
          newest_copy_waits_while_the_former_one_is_written,
          a_save_after_a_failed_one_covers_its_contributions,
          a_failed_save_that_another_replaces_fails_no_older_contribution,
          a_save_that_fails_while_a_copy_is_made_is_replaced_unless_that_is_cancelled,
          two_saves_on_a_full_disk_share_one_patience, a_save_by_the_caller_ends_a_failure,
          a_waiting_copy_is_not_written_if_the_caller_saves_a_newer_state,
          a_waiting_copy_is_written_after_all_if_the_callers_save_fails,
          a_failed_save_fails_no_contribution_while_the_caller_saves,
          a_save_by_the_caller_ends_the_patience_with_a_full_disk,
          a_copy_that_is_cancelled_leaves_its_contributions_to_the_next,
          a_copy_is_released_once_it_is_written_dropped_cancelled_or_given_up,
          a_full_disk_is_reported_once_and_written_again,
          a_full_disk_is_given_up_at_the_end_of_the_run, destroying_waits_for_the_write)
