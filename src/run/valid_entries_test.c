/* valid_entries_test.c - past entries are judged by the states that they name (P7, P24): unreadable
 * ones, copies, and void ones that others have built on. */
#include "run/valid_entries.h"

#include "check.h"
#include "store/store.h"

#include <string.h>

enum { ENTRIES = 6 };

typedef struct world {
    dl_runfile run;
    dl_valid_entries_source from;
    dl_valid_entries found;
    dl_entry scratch;
} world;

static dl_hash state_of(char name)
{
    return dl_hash_bytes(&name, 1);
}

/* Returns the `prev` of the entry after log/<name>. */
static dl_hash prev_after(world *w, uint64_t name)
{
    bool readable;
    dl_hash digest;
    CHECK_OK(dl_past_entry_read(&w->scratch, &readable, &digest, &w->from, name));
    return digest;
}

static void put(const world *w, uint64_t name, const void *text, size_t len)
{
    dl_key key;
    dl_key_entry(key, name);
    CHECK_OK(dl_store_put(w->from.store, key, text, len, DL_NEVER));
}

/* Puts an entry of that number from one state to another at log/<name>. */
static void put_entry(world *w, uint64_t name, uint64_t number, char base, char result)
{
    dl_entry e;
    dl_buf text;
    CHECK_OK(dl_entry_init(&e, 1));
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    memcpy(e.run, w->run.id, sizeof e.run);
    e.entry = number;
    e.base = state_of(base);
    e.result = state_of(result);
    e.abort.emptied = true;
    if (number) e.prev = prev_after(w, number - 1);
    snprintf(e.committer.replica, sizeof e.committer.replica, "r0");
    snprintf(e.abort.reason, sizeof e.abort.reason, "test");
    CHECK_OK(dl_entry_write(&text, &e, dl_outer_of(&w->run.config)));
    put(w, name, text.data, text.len);
    dl_buf_deinit(&text);
    dl_entry_deinit(&e);
}

/* Entries 0, 2 and 5 lead from state a to d. Entry 1 is junk. Entry 3 is void, and its committer
 * has built entry 4 on it. */
static void make_world(world *w)
{
    static int n;
    char url[32];
    memset(w, 0, sizeof *w);
    snprintf(url, sizeof url, "mem://valid-entries-%d", n++);
    dl_config_init(&w->run.config);
    memset(w->run.id, '7', sizeof w->run.id - 1);
    const dl_hash first = state_of('a');
    w->run.theta0 = dl_hash_bytes(first.bytes, sizeof first.bytes);
    w->from = (dl_valid_entries_source){.run = &w->run, .open = ENTRIES, .state = state_of('d')};
    CHECK_OK(dl_store_open(&w->from.store, url, true));
    CHECK_OK(dl_entry_init(&w->scratch, 1));
    put_entry(w, 0, 0, 'a', 'b');
    put(w, 1, "junk", 4);
    put_entry(w, 2, 2, 'b', 'c');
    put_entry(w, 3, 3, 'c', 'x');
    put_entry(w, 4, 4, 'x', 'y');
    put_entry(w, 5, 5, 'c', 'd');
    w->from.prev = prev_after(w, 5);
}

static void end_world(world *w)
{
    dl_valid_entries_deinit(&w->found);
    dl_entry_deinit(&w->scratch);
    dl_store_close(w->from.store);
}

static bool is_valid(world *w, uint64_t entry)
{
    bool valid;
    CHECK_OK(dl_valid_entries_find(&valid, &w->found, &w->scratch, &w->from, entry));
    return valid;
}

static void check_all(world *w, const char *expected)
{
    for (uint64_t e = strlen(expected); e-- > 0;)
        CHECK_INT(expected[e] == '1', is_valid(w, e));
}

TEST(p24_unreadable_and_void_entries_are_told_from_valid_ones)
{
    world w;
    make_world(&w);
    check_all(&w, "101001");
    end_world(&w);
}

TEST(p24_a_copy_of_a_valid_entry_is_not_valid)
{
    world w;
    make_world(&w);
    put_entry(&w, 1, 0, 'a', 'b');
    check_all(&w, "101001");
    end_world(&w);
    make_world(&w);
    put_entry(&w, 1, 5, 'b', 'b');
    check_all(&w, "101001");
    end_world(&w);
}

TEST(p24_unsigned_entry_of_a_run_with_keys_is_not_valid)
{
    world w;
    if (!DL_CRYPTO) skip();
    make_world(&w);
    w.run.identity.policy = DL_OPEN;
    w.from.state = state_of('a');
    w.from.prev = prev_after(&w, ENTRIES - 1);
    check_all(&w, "000000");
    end_world(&w);
}

TEST(each_entry_is_read_once)
{
    world w;
    make_world(&w);
    uint64_t before = dl_store_counts(w.from.store).n_get;
    CHECK(is_valid(&w, 5));
    CHECK_INT(4, dl_store_counts(w.from.store).n_get - before); /* entry 2 confirms it */
    CHECK(is_valid(&w, 2));
    CHECK_INT(6, dl_store_counts(w.from.store).n_get - before);
    put_entry(&w, 6, 6, 'd', 'e');
    w.from.open = 7;
    w.from.state = state_of('e');
    w.from.prev = prev_after(&w, 6);
    before = dl_store_counts(w.from.store).n_get;
    check_all(&w, "1010011");
    CHECK_INT(1, dl_store_counts(w.from.store).n_get - before);
    end_world(&w);
}

/* The process has rejoined, and entry 5 is void by an operator's decision. */
TEST(another_state_after_the_same_entries_is_judged_again)
{
    world w;
    make_world(&w);
    check_all(&w, "101001");
    w.from.state = state_of('c');
    check_all(&w, "101000");
    w.from.open = 4;
    w.from.prev = prev_after(&w, 3);
    check_all(&w, "1010");
    end_world(&w);
}

/* Puts entry 6 with another `prev` than that of entry 5. */
static void put_void(world *w, char base, char result)
{
    const dl_hash digest = w->from.prev;
    put_entry(w, 5, 5, 'q', 'q');
    put_entry(w, 6, 6, base, result);
    put_entry(w, 5, 5, 'c', 'd');
    CHECK(dl_hash_equal(digest, prev_after(w, 5)));
    w->from.open = 7;
    w->from.prev = prev_after(w, 6);
}

TEST(p24_void_entry_with_the_state_before_it_as_its_result_is_not_valid)
{
    static const char bases[] = {'x', 'b', 'a'};
    for (size_t i = 0; i < sizeof bases; i++) {
        world w;
        make_world(&w);
        if (i) check_all(&w, "101001"); /* those before it are known */
        put_void(&w, bases[i], 'd');
        check_all(&w, "1010010");
        end_world(&w);
    }
}

/* No state and no client depends on whether that entry is valid. */
TEST(void_abort_hides_no_valid_entry)
{
    world w;
    make_world(&w);
    put_void(&w, 'd', 'd');
    check_all(&w, "101001");
    end_world(&w);
}

static void check_damage(world *w, const char *part)
{
    bool valid;
    CHECK_STATUS(DILOCO_EPROTO, dl_valid_entries_find(&valid, &w->found, &w->scratch, &w->from, 0));
    CHECK_CONTAINS(part, diloco_error_text());
    end_world(w);
}

/* No client's state is taken for lost, or for one that was never there. */
TEST(p7_10_valid_entry_that_was_damaged_later_is_an_error)
{
    world w;
    make_world(&w);
    put(&w, 5, "junk", 4);
    check_damage(&w, "log/0000000005.json was damaged");
    make_world(&w);
    put_entry(&w, 4, 4, 'x', 'z');
    check_damage(&w, "log/0000000004.json was damaged");
    make_world(&w); /* an unreadable one follows */
    put(&w, 0, "junk", 4);
    check_damage(&w, "does not lead back to the run's first state");
}

TEST(missing_entry_is_an_error_and_the_next_call_continues)
{
    world w;
    bool valid;
    dl_key key;
    make_world(&w);
    dl_key_entry(key, 2);
    CHECK_OK(dl_store_delete(w.from.store, key, DL_NEVER));
    CHECK_STATUS(DILOCO_ENOENT, dl_valid_entries_find(&valid, &w.found, &w.scratch, &w.from, 0));
    put_entry(&w, 2, 2, 'b', 'c');
    check_all(&w, "101001");
    end_world(&w);
}

TEST_MAIN(p24_unreadable_and_void_entries_are_told_from_valid_ones,
          p24_a_copy_of_a_valid_entry_is_not_valid,
          p24_unsigned_entry_of_a_run_with_keys_is_not_valid, each_entry_is_read_once,
          p24_void_entry_with_the_state_before_it_as_its_result_is_not_valid,
          void_abort_hides_no_valid_entry, p7_10_valid_entry_that_was_damaged_later_is_an_error,
          another_state_after_the_same_entries_is_judged_again,
          missing_entry_is_an_error_and_the_next_call_continues)
