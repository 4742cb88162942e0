/* unreadable_base_test.c - an asynchronous run in which a writer without a key has put an object at
 * log/1. A contribution to base 1 still counts, because state 1 did not change. Replicas and audits
 * agree on that, whatever the object holds when they read it (P7, P20). */
#include "toy_keys.h"

#if DL_CRYPTO

enum { OBJECT_IS_JUNK, OBJECT_IS_COPY, OBJECT_IS_UNSIGNED, N_OBJECTS };

static const char *const at_1 = "log/0000000001.json";

/* Appends log/0. As OBJECT_IS_UNSIGNED it is an abort that fits the log in all but its signature.
 */
static void make_object(dl_buf *text, dl_store *store, int object)
{
    dl_entry e;
    const dl_outer *outer = dl_outer_find("nesterov");
    CHECK_OK(dl_store_get(store, text, "log/0000000000.json", DL_NEVER));
    if (object != OBJECT_IS_UNSIGNED) return;
    CHECK_OK(dl_entry_init(&e, 128));
    CHECK_OK(dl_entry_read(&e, text->data, text->len, outer));
    e.prev = dl_hash_bytes(text->data, text->len);
    e.base = e.result;
    e.entry = 1;
    e.commit = e.last = false;
    e.n_members = e.n_rejected = 0;
    snprintf(e.abort.reason, sizeof e.abort.reason, "forged");
    dl_buf_clear(text);
    CHECK_OK(dl_entry_write(text, &e, outer));
    dl_entry_deinit(&e);
}

static void put_object(dl_store *store, int object)
{
    dl_buf text;
    if (object == OBJECT_IS_JUNK) {
        CHECK_OK(dl_store_put(store, at_1, "junk", 4, DL_NEVER));
        return;
    }
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    make_object(&text, store, object);
    CHECK_OK(dl_store_put(store, at_1, text.data, text.len, DL_NEVER));
    dl_buf_deinit(&text);
}

typedef struct watcher {
    diloco_run *run;
    dl_store *store;
    pthread_t thread;
} watcher;

/* Interrupts the run once r1's contribution to base 1 exists. */
static void *interrupt_when_there(void *user)
{
    watcher *w = user;
    dl_buf object;
    dl_buf_init(&object, 1 << 20);
    while (dl_store_get(w->store, &object, "c/0000000001/r1.0000", DL_NEVER))
        usleep(1000);
    diloco_run_interrupt(w->run);
    dl_buf_deinit(&object);
    return NULL;
}

/* The process of r1 ends before an entry counts its contribution. */
static void contribute_to_base_1(toy *r1, const char *url)
{
    CHECK_OK(toy_open(r1));
    watcher w = {.run = r1->run, .store = store_of(url)};
    if (pthread_create(&w.thread, NULL, interrupt_when_there, &w)) abort();
    CHECK_OK(diloco_run_join(r1->run));
    const diloco_status status = toy_train(r1);
    pthread_join(w.thread, NULL);
    CHECK_STATUS(DILOCO_EINTERRUPTED, status);
    toy_close(r1);
    dl_store_close(w.store);
}

static diloco_status count_r1(void *user, const diloco_log_entry *e)
{
    size_t *n = user;
    for (size_t i = 0; i < e->n_members; i++)
        *n += e->commit && !strcmp(e->members[i], "r1.0000");
    return DILOCO_OK;
}

/* Returns how often an entry counts r1's contribution. */
static size_t times_counted(const char *url)
{
    size_t n = 0;
    CHECK_OK(diloco_log_walk(url, 0, count_r1, &n));
    return n;
}

/* r0 is the only committer. It resumes after the object was put, and completes the run. */
static void run_with(int object)
{
    toy all[CREW];
    char url[64], again[64];
    snprintf(url, sizeof url, "mem://unreadable-base-%d", object);
    snprintf(again, sizeof again, "unreadable-base-%d", object);
    crew_of(all, url, "open");
    toy_set_all(all, CREW, "server.diloco.schedule", "async");
    toy_set(&all[0], "run.state_dir", scratch_folder(again));
    all[0].stop_after = 4;
    CHECK_OK(toy_live(&all[0]));
    contribute_to_base_1(&all[1], url);
    dl_store *store = store_of(url);
    put_object(store, object);
    all[0].stop_after = 0;
    CHECK_OK(toy_live(&all[0]));
    const diloco_verify_report report = verified(url);
    CHECK_INT(1, report.voids);
    CHECK_INT(1, times_counted(url));
    for (int other = 0; other < N_OBJECTS; other++) {
        put_object(store, other);
        CHECK_STR(report.digest, verified(url).digest);
        CHECK_INT(1, verified(url).voids);
    }
    dl_store_close(store);
}

TEST(p20_contribution_whose_base_has_an_unreadable_entry_counts_for_all)
{
    for (int object = 0; object < N_OBJECTS; object++)
        run_with(object);
}

TEST_MAIN(p20_contribution_whose_base_has_an_unreadable_entry_counts_for_all)

#else

TEST(unreadable_bases_need_keys)
{
    CHECK(!DL_CRYPTO);
}

TEST_MAIN(unreadable_bases_need_keys)

#endif
