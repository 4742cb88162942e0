/* sync_alloc_test.c - after its first rounds an exchange allocates nothing from the heap. Two
 * replicas and their heartbeats use a folder, and every thread of the process is counted.
 * Snapshots, which are rare and written during training, are postponed to the end of the run. */
#include "count_alloc.h"

#include "toy_run.h"

typedef struct counted {
    size_t at_first, at_last;
} counted;

/* Between entry 2 and entry 10 no replica starts or ends. */
static void on_line(void *user, const char *line, size_t len)
{
    counted *c = user;
    (void)len;
    if (!strstr(line, "\"event\":\"commit\"")) return;
    if (strstr(line, "\"entry\":2,")) c->at_first = count_alloc();
    if (strstr(line, "\"entry\":10,")) c->at_last = count_alloc();
}

static diloco_status hear_without_copies(toy *t, diloco_run *run)
{
    diloco_run_on_record(run, on_line, t->user);
    return DILOCO_OK;
}

TEST(a_sync_allocates_nothing_after_the_first_rounds)
{
    toy all[2];
    counted c[2] = {{0, 0}, {0, 0}};
    if (!count_alloc_works()) {
        print_message("left out: a sanitizer counts allocations itself\n");
        skip();
    }
    toy_crew(all, 2, scratch_path("store"), scratch_path("state"));
    toy_set_all(all, 2, "run.snapshot_every", "1e9");
    toy_set_all(all, 2, "trainer.rounds", "16");
    for (int r = 0; r < 2; r++) {
        all[r].step_us = 3000; /* so that a few heartbeats are in between */
        all[r].prepare = hear_without_copies;
        all[r].user = &c[r];
    }
    toy_live_all(all, 2);
    for (int r = 0; r < 2; r++) {
        TOY_OK(all[r]);
        CHECK(c[r].at_first > 0);
        CHECK_INT(0, c[r].at_last - c[r].at_first);
    }
}

TEST_MAIN(a_sync_allocates_nothing_after_the_first_rounds)
