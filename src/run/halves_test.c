/* halves_test.c - diloco_run_prepare and diloco_run_perform: called one after the other they are
 * diloco_step, to the bit. Nothing waits between them. With diloco_run_split the exchange continues
 * in between. */
#include "toy_run.h"

enum { CREW = 2 };

/* toy_live, with the two halves of each step. */
static void *run_by_halves(void *context)
{
    toy *t = context;
    bool due;
    t->status = toy_open(t);
    if (!t->status && t->user) t->status = diloco_run_split(t->run);
    if (!t->status) t->status = diloco_run_join(t->run);
    while (!t->status && !diloco_run_done(t->run)) {
        const diloco_run_info now = diloco_run_now(t->run);
        const diloco_step_report report = {.loss = toy_step(t, &now), .samples = 1, .tokens = 10};
        t->status = diloco_run_prepare(t->run, &report, &due);
        if (!t->status && due) t->status = diloco_run_perform(t->run);
    }
    if (t->status) snprintf(t->text, sizeof t->text, "%s", diloco_error_text());
    toy_close(t);
    return NULL;
}

static void crew_of(toy *all, const char *store, const char *overlap, int fragments)
{
    static const char *const counts[] = {"1", "1", "2"};
    toy_keep(store);
    toy_crew(all, CREW, store, "none");
    toy_set_all(all, CREW, "run.min_replicas", "2");
    toy_set_all(all, CREW, "server.diloco.fragments", counts[fragments]);
    toy_set_all(all, CREW, "server.diloco.overlap_steps", overlap);
    for (int i = 0; i < CREW; i++)
        all[i].fragments = fragments;
}

static void check_same(const char *name, const char *overlap, int fragments, bool split)
{
    char store[64];
    toy whole[CREW], halves[CREW];
    snprintf(store, sizeof store, "mem://whole-%s", name);
    crew_of(whole, store, overlap, fragments);
    toy_live_all(whole, CREW);
    char other[64];
    snprintf(other, sizeof other, "mem://halves-%s", name);
    crew_of(halves, other, overlap, fragments);
    for (int i = 0; i < CREW; i++) {
        halves[i].user = split ? &halves[i] : NULL;
        CHECK(!pthread_create(&halves[i].thread, NULL, run_by_halves, &halves[i]));
    }
    for (int i = 0; i < CREW; i++)
        pthread_join(halves[i].thread, NULL);
    for (int i = 0; i < CREW; i++) {
        TOY_OK(whole[i]);
        TOY_OK(halves[i]);
        CHECK(!memcmp(whole[i].theta, halves[i].theta, sizeof whole[i].theta));
        CHECK(!memcmp(whole[i].w, halves[i].w, sizeof whole[i].w));
    }
}

TEST(the_two_halves_of_a_step_are_a_step_to_the_bit)
{
    check_same("plain", "0", 1, false);
    check_same("split", "0", 1, true);
    check_same("overlapped", "1", 2, false);
    check_same("split-fragments", "0", 2, true);
}

static diloco_status found_any(void *context, const char *key, size_t len)
{
    (void)key, (void)len;
    *(bool *)context = true;
    return DILOCO_OK;
}

static bool is_put(dl_store *store)
{
    bool found = false;
    for (int i = 0; i < 3000 && !found; i++) {
        CHECK_OK(dl_store_list(store, "c/", NULL, found_any, &found, DL_NEVER));
        if (!found) usleep(10000);
    }
    return found;
}

/* r0 alone waits for r1, which is absent: prepare returns, and its capture is uploaded. */
TEST(prepared_capture_is_uploaded_before_perform)
{
    const diloco_step_report report = {.loss = 1, .samples = 1};
    dl_store *store;
    toy t = toy_of("r0", "mem://between");
    bool due = false;
    CHECK_OK(dl_store_open(&store, "mem://between", true));
    toy_set(&t, "run.state_dir", "none");
    toy_set(&t, "run.replicas", "2");
    toy_set(&t, "run.min_replicas", "2");
    CHECK_OK(toy_open(&t));
    CHECK_OK(diloco_run_split(t.run));
    CHECK_OK(diloco_run_join(t.run));
    for (int i = 0; i < 3; i++) {
        CHECK(!due);
        CHECK_OK(diloco_run_prepare(t.run, &report, &due));
    }
    CHECK(due);
    CHECK(is_put(store));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_prepare(t.run, &report, NULL));
    CHECK_CONTAINS("diloco_run_perform", diloco_error_text());
    CHECK_INT(3, (int)diloco_run_now(t.run).position); /* and that step was not counted */
    diloco_run_interrupt(t.run);
    CHECK_STATUS(DILOCO_EINTERRUPTED, diloco_run_perform(t.run));
    diloco_run_interrupt(t.run);
    CHECK_STATUS(DILOCO_EINTERRUPTED, diloco_run_perform(t.run)); /* it may be called again */
    diloco_run_close(t.run);
    dl_store_close(store);
}

TEST(halves_out_of_order_are_refused_or_nothing)
{
    const diloco_step_report report = {.loss = 1, .samples = 1}, none = {.loss = 1};
    toy t = toy_of("r0", "mem://out-of-order");
    bool due = true;
    toy_set(&t, "run.state_dir", "none");
    CHECK_OK(toy_open(&t));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_prepare(t.run, &report, &due));
    CHECK(!due);
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_perform(t.run));
    CHECK_CONTAINS("needs diloco_run_join first", diloco_error_text());
    CHECK_OK(diloco_run_join(t.run));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_split(t.run));
    CHECK_OK(diloco_run_perform(t.run)); /* nothing is prepared */
    CHECK_OK(diloco_run_prepare(t.run, &none, &due));
    CHECK_OK(diloco_run_prepare(t.run, &none, &due));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_prepare(t.run, &none, &due));
    CHECK_CONTAINS("no samples were reported", diloco_error_text());
    CHECK(!due);
    diloco_run_close(t.run);
}

TEST_MAIN(the_two_halves_of_a_step_are_a_step_to_the_bit,
          prepared_capture_is_uploaded_before_perform, halves_out_of_order_are_refused_or_nothing)
