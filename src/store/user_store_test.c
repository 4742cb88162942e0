/* user_store_test.c - stores of the caller's own: the suite over one that has its objects in
 * memory, and what is believed of one that misbehaves. */
#include "check.h"
#include "store/user_store.h"
#include "store_suite.h"
#include "toy_store.h"

static void add(const diloco_user_store *s)
{
    char name[DL_STORE_USER_NAME];
    CHECK_OK(dl_store_add_user(name, s));
    CHECK_STR(s->name, name);
}

/* ---- the suite */

static void make_user(char url[512])
{
    const diloco_user_store s = user_store();
    add(&s);
    strcpy(url, "user://mine/suite");
}

static dl_store *open_user(const char *url)
{
    dl_store *store;
    CHECK_OK(dl_store_open(&store, url, true));
    return store;
}

static void destroy_user(const char *url)
{
    (void)url;
    CHECK_INT(0, atomic_load(&user_store_handles)); /* every handle that was opened is closed */
    dl_store_drop_user("mine");
}

static const store_row row_user = {"user", make_user, open_user, destroy_user, false};

/* ---- the known kinds, and their names */

TEST(a_user_s_store_is_found_by_its_name_while_registered)
{
    dl_store *store;
    const diloco_user_store s = user_store();
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_open(&store, "user://mine", true));
    CHECK_CONTAINS("user://mine is a store that a program supplies", diloco_error_text());
    add(&s);
    add(&s); /* by two runs */
    dl_store_drop_user("mine");
    CHECK_OK(dl_store_open(&store, "user://mine/a", true));
    dl_store_drop_user("mine");
    store_must_create(store, "k", "still there"); /* an open handle continues */
    store_must_hold(store, "k", "still there");
    dl_store_close(store);
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_open(&store, "user://mine/a", true));
}

TEST(addresses_within_one_store_are_distinguished)
{
    dl_store *a, *b;
    const diloco_user_store s = user_store();
    add(&s);
    CHECK_OK(dl_store_open(&a, "user://mine/a", true));
    CHECK_OK(dl_store_open(&b, "user://mine/b", true));
    store_must_create(a, "k", "of a");
    store_must_create(b, "k", "of b");
    store_must_hold(a, "k", "of a");
    dl_store_close(a);
    dl_store_close(b);
    CHECK_STATUS(DILOCO_ENOENT, dl_store_open(&a, "user://mine/c", false));
    CHECK_CONTAINS("mine/c is not in user://mine", diloco_error_text());
    dl_store_drop_user("mine");
}

TEST(a_store_that_cannot_be_one_is_refused_by_name)
{
    char name[DL_STORE_USER_NAME];
    static const char *const bad[] = {
        NULL, "", "a/b", ".hidden", "a b", "a=b", "twenty-seven-letters-long.x"};
    diloco_user_store s = user_store(), other = s;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        s.name = bad[i];
        CHECK_STATUS(DILOCO_EINVAL, dl_store_add_user(name, &s));
        CHECK_STR("", name);
    }
    s = user_store();
    s.list = NULL;
    CHECK_STATUS(DILOCO_EINVAL, dl_store_add_user(name, &s));
    CHECK_CONTAINS("store mine needs open, close", diloco_error_text());

    add(&other);
    other.user = name;
    CHECK_STATUS(DILOCO_EINVAL, dl_store_add_user(name, &other));
    CHECK_CONTAINS("another store of the name mine", diloco_error_text());
    dl_store_drop_user("mine");
}

/* ---- a store that misbehaves */

static diloco_status read_wrong(void *user, void *handle, const char *key,
                                const diloco_user_reader *reader, double timeout_s)
{
    (void)user, (void)handle, (void)timeout_s;
    if (!strcmp(key, "before")) return reader->piece(reader->context, "x", 1);
    if (!strcmp(key, "twice")) {
        DL_TRY(reader->begin(reader->context, 1));
        return reader->begin(reader->context, 1);
    }
    if (!strcmp(key, "odd")) return (diloco_status)77;
    DL_TRY(reader->begin(reader->context, 2));
    return reader->piece(reader->context, "xyz", !strcmp(key, "short") ? 1 : 3);
}

static diloco_status found_one(void *context, const char *key, size_t len)
{
    (void)context, (void)key, (void)len;
    return dl_fail(DILOCO_ECLOSED, "seen enough");
}

TEST(a_wrong_answer_of_a_store_is_an_error_that_names_it)
{
    static const struct {
        const char *key;
        diloco_status status;
        const char *says;
    } rows[] = {{"before", DILOCO_EPROTO, "a piece came before the length"},
                {"twice", DILOCO_EPROTO, "its length was given twice"},
                {"short", DILOCO_EPROTO, "ended after 1 of 2 bytes"},
                {"long", DILOCO_EPROTO, "longer than the 2 bytes announced"},
                {"odd", DILOCO_EIO, "odd in user://mine: its read says"}};
    diloco_user_store s = user_store();
    dl_store *store;
    dl_buf out;
    s.read = read_wrong;
    add(&s);
    CHECK_OK(dl_store_open(&store, "user://mine/wrong", true));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dl_buf_init(&out, 100);
        CHECK_STATUS(rows[i].status, dl_store_get(store, &out, rows[i].key, DL_NEVER));
        CHECK_CONTAINS(rows[i].says, diloco_error_text());
        dl_buf_deinit(&out);
    }
    store_must_create(store, "k", "v");
    CHECK_STATUS(DILOCO_ECLOSED, dl_store_list(store, "", NULL, found_one, NULL, DL_NEVER));
    CHECK_STR("seen enough", diloco_error_text()); /* our own sentence comes back */
    dl_store_close(store);
    dl_store_drop_user("mine");
}

/* Continues whatever status it gets, and in the wrong order. */
static diloco_status list_deaf(void *user, void *handle, const char *prefix, const char *after,
                               diloco_user_found_fn found, void *context, double timeout_s)
{
    static const char *const keys[] = {"b", "a", "c"};
    (void)user, (void)handle, (void)prefix, (void)after, (void)timeout_s;
    for (int i = 0; i < 3; i++)
        (void)!found(context, keys[i], 1);
    return DILOCO_OK;
}

static diloco_status count_found(void *context, const char *key, size_t len)
{
    (void)key, (void)len;
    ++*(int *)context;
    return DILOCO_OK;
}

TEST(a_store_that_ignores_its_arguments_is_refused)
{
    diloco_user_store s = user_store();
    dl_store *store;
    int n = 0;
    s.list = list_deaf;
    add(&s);
    CHECK_OK(dl_store_open(&store, "user://mine/deaf", true));
    CHECK_STATUS(DILOCO_EPROTO, dl_store_list(store, "", NULL, count_found, &n, DL_NEVER));
    CHECK_CONTAINS("lists \"a\" under  after \"b\"", diloco_error_text());
    CHECK_INT(1, n);
    dl_store_close(store);
    dl_store_drop_user("mine");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_user_s_store_is_found_by_its_name_while_registered),
        cmocka_unit_test(addresses_within_one_store_are_distinguished),
        cmocka_unit_test(a_store_that_cannot_be_one_is_refused_by_name),
        cmocka_unit_test(a_wrong_answer_of_a_store_is_an_error_that_names_it),
        cmocka_unit_test(a_store_that_ignores_its_arguments_is_refused),
    };
    if (argc > 1) return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
    return cmocka_run_group_tests(tests, NULL, NULL) + store_suite_run(&row_user);
}
