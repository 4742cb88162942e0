/* lending_test.c - the memory of `next` has one user at a time. */
#include "exchange/exec_parts.h"

#include "check.h"

static float values[16];
static dl_fragment_state next = {.theta = values};
static dl_exec x;
static atomic_bool used;

static void begin(void)
{
    x = (dl_exec){.lending.possible = true};
    x.state.next = &next;
    x.state.copy_len = sizeof values;
    atomic_store(&used, false);
    pthread_mutex_init(&x.lending.lock, NULL);
    dl_cond_init(&x.lending.changed);
}

static void end(void)
{
    pthread_cond_destroy(&x.lending.changed);
    pthread_mutex_destroy(&x.lending.lock);
}

static void *compute(void *context)
{
    (void)context;
    dl_exec_use_next(&x, 0);
    atomic_store(&used, true);
    values[0] = 2;
    return NULL;
}

TEST(an_entry_is_computed_after_the_memory_is_given_back)
{
    pthread_t thread;
    begin();
    CHECK_INT(sizeof values, dl_exec_lendable(&x));
    float *lent = dl_exec_lend(&x, 0);
    CHECK(lent == values);
    CHECK_INT(0, pthread_create(&thread, NULL, compute, NULL));
    for (int i = 0; i < 100; i++) {
        lent[0] = 1;
        sched_yield();
        CHECK(!atomic_load(&used) && lent[0] == 1);
    }
    dl_exec_give_back(&x);
    CHECK_INT(0, pthread_join(thread, NULL));
    CHECK(atomic_load(&used) && values[0] == 2);
    end();
}

TEST(memory_that_is_used_is_not_lent_before_the_entry_is_applied)
{
    begin();
    x.state.control.entry = 3;
    dl_exec_use_next(&x, 3);
    dl_exec_release_applied(&x, false);
    CHECK(dl_exec_lend(&x, 0) == NULL);
    dl_exec_give_back(&x); /* without a loan it changes nothing */
    CHECK(dl_exec_lend(&x, 0) == NULL);
    dl_exec_use_next(&x, 3); /* again, after a lost race */
    x.state.control.entry = 4;
    dl_exec_release_applied(&x, false);
    CHECK(dl_exec_lend(&x, 0) == values);
    x.state.control.entry = 5; /* an abort needs no memory */
    dl_exec_release_applied(&x, false);
    dl_exec_end_use(&x);
    CHECK_INT(DL_NEXT_LENT, x.lending.use); /* none of both ends a loan */
    dl_exec_give_back(&x);
    CHECK_INT(DL_NEXT_FREE, x.lending.use);
    end();
}

TEST(memory_that_is_used_is_lent_after_a_rejoin_or_the_end)
{
    begin();
    dl_exec_use_next(&x, 3);
    dl_exec_end_use(&x);
    CHECK(dl_exec_lend(&x, 0) == values);
    dl_exec_give_back(&x);
    dl_exec_use_next(&x, 0); /* of an older snapshot */
    CHECK(dl_exec_lend(&x, 0) == NULL);
    dl_exec_release_applied(&x, true);
    CHECK(dl_exec_lend(&x, 0) == values);
    end();
}

static void *apply(void *context)
{
    (void)context;
    x.state.control.entry++;
    dl_exec_release_applied(&x, false);
    return NULL;
}

TEST(a_loan_waits_until_the_entry_is_applied)
{
    pthread_t thread;
    begin();
    dl_exec_use_next(&x, 0);
    CHECK_INT(0, pthread_create(&thread, NULL, apply, NULL));
    CHECK(dl_exec_lend(&x, dl_time_after(dl_clock_now(), 100 * DL_SECOND)) == values);
    CHECK_INT(0, pthread_join(thread, NULL));
    end();
}

TEST(memory_that_is_always_in_use_is_not_lendable)
{
    begin();
    x.lending.possible = false;
    CHECK_INT(0, dl_exec_lendable(&x));
    end();
}

TEST_MAIN(an_entry_is_computed_after_the_memory_is_given_back,
          memory_that_is_used_is_not_lent_before_the_entry_is_applied,
          memory_that_is_used_is_lent_after_a_rejoin_or_the_end,
          a_loan_waits_until_the_entry_is_applied, memory_that_is_always_in_use_is_not_lendable)
