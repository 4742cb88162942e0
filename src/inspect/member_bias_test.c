/* member_bias_test.c - how a member of a run of keys can change what the run learns. A member that
 * may not commit moves a mean as far as it contributes, and the checks reject it by name (P27). A
 * committer may leave a member out, which the records and the log show. */
#include "toy_run.h"

#if DL_CRYPTO

#include "toy_keys.h"
#include "toy_store.h"

/* r2 moves this far in a step of entry 0, and the others 1. */
enum { FAR = 1000 };

/* r0 alone may commit. An entry is one step, and the model moves by the mean of its members. */
static void crew_that_adds(toy *all, const char *url, const char *policy)
{
    crew_of(all, url, policy);
    toy_set_all(all, CREW, "run.committers", committers_file(1));
    toy_set_all(all, CREW, "server.diloco.outer_optimizer", "sgd");
    toy_set_all(all, CREW, "server.diloco.outer_learning_rate", "1");
    toy_set_all(all, CREW, "trainer.local_steps_per_round", "1");
}

static void fall(toy *t, float by)
{
    for (int i = 0; i < TOY_N; i++)
        t->w[i] -= by;
}

static double fall_or_boast(toy *t, const diloco_run_info *now)
{
    fall(t, t->name[1] == '2' && !now->entry ? FAR : 1);
    return 0;
}

static diloco_status count_rejected(void *n_rejected, const diloco_log_entry *e)
{
    for (size_t i = 0; i < e->n_rejected; i++) {
        CHECK_STR("r2.0000", e->rejected[i]);
        CHECK_STR("norm", e->rejected_for[i]);
        ++*(size_t *)n_rejected;
    }
    return DILOCO_OK;
}

/* Returns how many of r2's contributions the log rejects. */
static size_t run_with_boaster(const char *policy, const char *norm, double want)
{
    toy all[CREW];
    char url[64];
    size_t n_rejected = 0;
    snprintf(url, sizeof url, "mem://boaster-%s-%s", policy, norm);
    crew_that_adds(all, url, policy);
    toy_set_all(all, CREW, "check.norm", norm);
    create_and_invite(all, url, policy);
    for (int r = 0; r < CREW; r++)
        all[r].step = fall_or_boast;
    toy_live_all(all, CREW);
    for (int r = 0; r < CREW; r++) {
        TOY_OK(all[r]);
        CHECK_NEAR(want, (double)all[r].w[0], 1e-3);
    }
    CHECK_INT(4, verified(url).commits);
    CHECK_OK(diloco_log_walk(url, 0, count_rejected, &n_rejected));
    return n_rejected;
}

TEST(p27_a_member_moves_a_mean_and_a_check_rejects_it_in_each_roster)
{
    for (size_t p = 0; p < 3; p++) {
        CHECK_INT(0, run_with_boaster(policies[p], "0", -(FAR + 2) / 3.0 - 3));
        CHECK_INT(1, run_with_boaster(policies[p], "3", -4));
    }
}

/* ---- a committer that leaves a member out ------------------------------------------------- */

/* Contributions of r2 to entries after 0. */
static bool is_hidden(const char *key)
{
    return !strncmp(key, "c/", 2) && strcmp(key, "c/0000000001") >= 0 && strstr(key, "/r2.");
}

typedef struct filter {
    diloco_user_found_fn found;
    void *context;
} filter;

static diloco_status pass_unless_hidden(void *context, const char *key, size_t len)
{
    const filter *f = context;
    return is_hidden(key) ? DILOCO_OK : f->found(f->context, key, len);
}

static diloco_status list_without_r2(void *user, void *handle, const char *prefix,
                                     const char *after, diloco_user_found_fn found, void *context,
                                     double timeout_s)
{
    filter f = {found, context};
    return user_store_list(user, handle, prefix, after, pass_unless_hidden, &f, timeout_s);
}

static diloco_status read_without_r2(void *user, void *handle, const char *key,
                                     const diloco_user_reader *reader, double timeout_s)
{
    if (is_hidden(key)) return dl_fail(DILOCO_ENOENT, "%s is left out", key);
    return user_store_read(user, handle, key, reader, timeout_s);
}

/* r0 does not end its step of entry 1 before both others have contributed to that entry. */
static void await_others(const char *url)
{
    static const char *const keys[] = {"c/0000000001/r1.0000", "c/0000000001/r2.0000"};
    dl_store *store = store_of(url);
    dl_buf text;
    dl_buf_init(&text, 1 << 16);
    for (int i = 0; i < 2; i++)
        while (dl_store_get(store, &text, keys[i], DL_NEVER))
            usleep(1000);
    dl_buf_deinit(&text);
    dl_store_close(store);
}

/* r2 moves four times as far as the others, so the model shows whether it counted. */
static double fall_at_each_pace(toy *t, const diloco_run_info *now)
{
    if (t->user && now->entry == 1) await_others(t->user);
    fall(t, t->name[1] == '2' ? 4 : 1);
    return 0;
}

static diloco_status see_members(void *n_omitting, const diloco_log_entry *e)
{
    bool counts = false;
    for (size_t i = 0; i < e->n_members; i++)
        counts = counts || !strcmp(e->members[i], "r2.0000");
    CHECK(e->commit && counts == (e->entry == 0));
    *(size_t *)n_omitting += !counts;
    return DILOCO_OK;
}

/* Each `commit` line names the replicas that its entry waited for and did not count. */
static bool names_as_missing(const toy *t, const char *entry, const char *replica)
{
    char line[64], name[16];
    snprintf(line, sizeof line, "\"event\":\"commit\",\"replica\":\"%s\",\"entry\":%s,", t->name,
             entry);
    snprintf(name, sizeof name, "\"%s\"", replica);
    const char *at = strstr(t->record, line), *from = at ? strstr(at, "\"missing\":[") : NULL;
    const char *to = from ? strchr(from, ']') : NULL, *found = from ? strstr(from, name) : NULL;
    return found && found < to;
}

static void check_omission(const char *policy)
{
    toy all[CREW];
    char url[64], theirs[64];
    size_t n_omitting = 0;
    diloco_user_store without_r2 = user_store();
    without_r2.list = list_without_r2;
    without_r2.read = read_without_r2;
    snprintf(url, sizeof url, "mem://user.omission-%s", policy);
    snprintf(theirs, sizeof theirs, "user://mine/omission-%s", policy);
    crew_that_adds(all, url, policy);
    toy_set_all(all, CREW, "run.on_missing", "commit_partial");
    toy_set_all(all, CREW, "run.quorum", "0.1"); /* a slow r1 may be missing, too */
    toy_set_all(all, CREW, "run.deadline", "0.05");
    toy_set_all(all, CREW, "run.patience", "600");
    toy_set(&all[0], "run.store", theirs);
    all[0].parts.store = &without_r2;
    all[0].user = url;
    create_and_invite(all, url, policy);
    for (int r = 0; r < CREW; r++) {
        all[r].step = fall_at_each_pace;
        toy_keep_record(&all[r]);
    }
    toy_live_all(all, CREW);
    for (int r = 0; r < CREW; r++) {
        TOY_OK(all[r]);
        CHECK_NEAR(-2 - 3, (double)all[r].w[0], 1e-3);
        CHECK(names_as_missing(&all[r], "1", "r2"));
    }
    CHECK_CONTAINS("entry 1 did not count this replica", all[2].record);
    CHECK_OK(diloco_log_walk(url, 0, see_members, &n_omitting));
    CHECK_INT(3, n_omitting);
    CHECK_INT(0, verified(url).voids);
    for (int r = 0; r < CREW; r++)
        free(all[r].record);
}

TEST(p27_a_committer_leaves_a_member_out_and_every_record_names_it)
{
    for (size_t p = 0; p < 3; p++)
        check_omission(policies[p]);
}

TEST_MAIN(p27_a_member_moves_a_mean_and_a_check_rejects_it_in_each_roster,
          p27_a_committer_leaves_a_member_out_and_every_record_names_it)

#else

TEST(runs_of_keys_need_openssl)
{
    skip();
}

TEST_MAIN(runs_of_keys_need_openssl)

#endif
