/* save_beside_test.c - when the private state of a replica is saved, and what waits for it. */
#include "toy_run.h"

static char folder[PATH_MAX], file[PATH_MAX + 32];

static toy toy_with(const char *name, const char *overlap)
{
    static char store[PATH_MAX], state[PATH_MAX];
    snprintf(store, sizeof store, "%s", scratch_path(name));
    snprintf(state, sizeof state, "%s.state", store);
    snprintf(folder, sizeof folder, "%s/r0", state);
    snprintf(file, sizeof file, "%s/local.safetensors", folder);
    toy t = toy_of("r0", store);
    toy_set(&t, "run.state_dir", state);
    toy_set(&t, "server.diloco.overlap_steps", overlap);
    return t;
}

/* The folder of the private state is gone, so no save can be written. */
static double step_without_folder(toy *t, const diloco_run_info *now)
{
    char lock[PATH_MAX + 32];
    snprintf(lock, sizeof lock, "%s/lock", folder);
    unlink(lock);
    unlink(file);
    rmdir(folder);
    return toy_step(t, now);
}

static diloco_status count_key(void *context, const char *key, size_t len)
{
    (void)key, (void)len;
    ++*(int *)context;
    return DILOCO_OK;
}

static int n_contributions(const toy *t)
{
    int n = 0;
    dl_store *store;
    CHECK_OK(dl_store_open(&store, t->settings[0][1], false));
    CHECK_OK(dl_store_list(store, "c/", NULL, count_key, &n, DL_NEVER));
    dl_store_close(store);
    return n;
}

/* PROTOCOL P16.2 */
static void check_nothing_is_put(const char *name, const char *save_beside)
{
    toy t = toy_with(name, "1");
    toy_set(&t, "run.save_beside", save_beside);
    t.step = step_without_folder;
    toy_live(&t);
    CHECK(t.status != DILOCO_OK);
    CHECK_CONTAINS("local state", t.text);
    CHECK_INT(0, n_contributions(&t));
}

TEST(p16_no_contribution_is_put_before_the_state_is_saved)
{
    check_nothing_is_put("stopped", "false");
    check_nothing_is_put("beside", "true");
}

/* Count the saves that a run makes while it trains. */
static double step_and_count(toy *t, const diloco_run_info *now)
{
    if (!unlink(file)) ++*(int *)t->user;
    return toy_step(t, now);
}

static int n_saves(const char *name, const char *every)
{
    int n = 0;
    toy t = toy_with(name, "0");
    toy_set(&t, "run.save_every", every);
    t.step = step_and_count;
    t.user = &n;
    toy_live(&t);
    TOY_OK(t);
    return n;
}

TEST(save_every_skips_entries)
{
    CHECK_INT(3, n_saves("each", "1")); /* of 4: no step follows the last */
    CHECK_INT(2, n_saves("second", "2"));
    CHECK_INT(1, n_saves("first", "9"));
}

/* ---- a piece that is put together when it is saved */

static struct {
    int n_fills, n_direct; /* direct: to the place that was registered */
    bool fails;
    toy *toy;
} filled;

static unsigned char piece[sizeof((toy *)0)->moment];

static diloco_status fill_moment(void *user, void *to)
{
    CHECK(user == &filled);
    if (filled.fails) return DILOCO_EREFUSED;
    CHECK((uintptr_t)to % 64 == 0 || to == piece);
    filled.n_fills++;
    filled.n_direct += to == piece;
    memcpy(to, filled.toy->moment, sizeof filled.toy->moment);
    return DILOCO_OK;
}

static diloco_status register_piece(toy *t, diloco_run *run)
{
    filled.toy = t;
    return diloco_run_private_by(run, "packed", piece, sizeof piece, fill_moment, &filled);
}

/* The first step after a resume has the bytes that were filled. */
static double step_and_compare(toy *t, const diloco_run_info *now)
{
    if (now->resumed && !*(int *)t->user) {
        ++*(int *)t->user;
        CHECK_BYTES(t->moment, piece, sizeof piece);
    }
    return toy_step(t, now);
}

static void check_fills(const char *name, const char *save_beside, bool direct)
{
    int n_compared = 0;
    toy t = toy_with(name, "1");
    toy_set(&t, "run.save_beside", save_beside);
    toy_set(&t, "run.save_every", "2");
    t.prepare = register_piece;
    t.stop_after = 9; /* steps of 3 entries: the first and the third one are saved, and the end */
    filled.n_fills = filled.n_direct = 0;
    toy_live(&t);
    TOY_OK(t);
    CHECK_INT(3, filled.n_fills);
    CHECK_INT(direct ? 3 : 1, filled.n_direct);
    memset(piece, 0, sizeof piece);
    t.stop_after = 0;
    t.step = step_and_compare;
    t.user = &n_compared;
    toy_live(&t);
    TOY_OK(t);
    CHECK_INT(1, n_compared);
}

TEST(a_piece_is_filled_once_for_each_save_and_restored)
{
    check_fills("filled_beside", "true", false);
    check_fills("filled_in_place", "false", true);
}

static void check_failure(const char *name, const char *save_beside)
{
    toy t = toy_with(name, "1");
    toy_set(&t, "run.save_beside", save_beside);
    t.prepare = register_piece;
    filled.fails = true;
    toy_live(&t);
    filled.fails = false;
    CHECK_INT(DILOCO_EREFUSED, t.status);
    CHECK_INT(0, n_contributions(&t));
    CHECK(access(file, F_OK) != 0);
}

TEST(a_piece_that_cannot_be_filled_fails_the_step_and_saves_nothing)
{
    check_failure("unfilled_beside", "true");
    check_failure("unfilled_in_place", "false");
}

TEST_MAIN(p16_no_contribution_is_put_before_the_state_is_saved, save_every_skips_entries,
          a_piece_is_filled_once_for_each_save_and_restored,
          a_piece_that_cannot_be_filled_fails_the_step_and_saves_nothing)
