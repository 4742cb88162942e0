/* upload_after_save_test.c - an exchange with its own thread works on while the private state of a
 * contribution is saved, and uploads that contribution only afterwards (PROTOCOL P16). */
#include "toy_run.h"

#include "private_sync.h"
#include "toy_store.h"

enum { CREW = 2, LONGEST_MS = 30000 };

/* A save of r0 is synced only once it may be. */
static struct disk {
    atomic_bool shut;     /* saves wait */
    atomic_int n_entered; /* saves that were written, and wait or are synced */
    atomic_int n_synced;
    atomic_bool late; /* a wait ended without its condition */
} disk;

static struct seen {
    int n_passed;                     /* r0 trained on while its save was held */
    atomic_int n_encoded, n_too_soon; /* too soon: uploads of r0 before their save */
} seen;

/* Waits until *what is at least `least`. */
static void wait_for(atomic_int *what, int least)
{
    for (int ms = 0; atomic_load(what) < least && !atomic_load(&disk.late); ms++) {
        if (ms == LONGEST_MS) atomic_store(&disk.late, true);
        dl_clock_sleep(DL_MILLISECOND);
    }
}

static void wait_until_open(void)
{
    for (int ms = 0; atomic_load(&disk.shut) && !atomic_load(&disk.late); ms++) {
        if (ms == LONGEST_MS) atomic_store(&disk.late, true);
        dl_clock_sleep(DL_MILLISECOND);
    }
}

/* Replaces the C library's function. */
__attribute__((visibility("default"))) int fsync(int fd)
{
    const bool state = is_private_state(fd, "/r0/local.safetensors");
    if (state) atomic_fetch_add(&disk.n_entered, 1);
    if (state) wait_until_open();
    const int result = real_fsync(fd);
    if (state) atomic_fetch_add(&disk.n_synced, 1);
    return result;
}

static void begin(void)
{
    disk = (struct disk){.shut = false};
    seen = (struct seen){.n_passed = 0};
}

/* ---- several entries in flight ----------------------------------------------------------
 *
 * Two replicas, two fragments, H = 6, an overlap of 4 steps. Entry 1 is captured at step 9 and
 * adopted at 13. Entry 2 is captured at 12, with the second save of r0. */

static const char held_key[] = "c/0000000002/r0.0000", other_key[] = "c/0000000001/r1.0000";

/* r1 contributes to entry 1 only when r0 is saving for entry 2. */
static diloco_status create(void *user, void *handle, const char *key,
                            const diloco_user_bytes *parts, size_t n, bool *taken, double timeout_s)
{
    if (!strcmp(key, other_key)) wait_for(&disk.n_entered, 2);
    if (!strcmp(key, held_key) && atomic_load(&disk.n_synced) < 2)
        atomic_fetch_add(&seen.n_too_soon, 1);
    return user_store_create(user, handle, key, parts, n, taken, timeout_s);
}

/* The first save is durable when entry 0 is adopted, at step 10. */
static double step_with_slow_disk(toy *t, const diloco_run_info *now)
{
    if (now->position == 10) atomic_store(&disk.shut, true);
    if (now->position == 13) {
        seen.n_passed += atomic_load(&disk.n_synced) == 1;
        atomic_store(&disk.shut, false);
    }
    return toy_step(t, now);
}

static void live(toy all[CREW], const char *place, bool slow)
{
    char url[64], kept[64];
    diloco_user_store store = user_store();
    if (slow) store.create = create;
    begin();
    snprintf(url, sizeof url, "user://mine/%s", place);
    snprintf(kept, sizeof kept, "mem://user.%s", place);
    toy_keep(kept);
    toy_crew(all, CREW, url, scratch_path(place));
    toy_set_all(all, CREW, "trainer.local_steps_per_round", "6");
    toy_set_all(all, CREW, "server.diloco.overlap_steps", "4");
    toy_set_all(all, CREW, "run.min_replicas", "2");
    for (int r = 0; r < CREW; r++) {
        all[r].parts = (diloco_user_parts){.store = &store};
        all[r].fragments = 2;
    }
    if (slow) all[0].step = step_with_slow_disk;
    toy_live_all(all, CREW);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK(!atomic_load(&disk.late));
}

TEST(an_entry_is_adopted_while_the_state_of_a_later_one_is_saved)
{
    toy plain[CREW], all[CREW];
    live(plain, "plain", false);
    live(all, "slow", true);
    CHECK_INT(1, seen.n_passed);
    CHECK_INT(0, atomic_load(&seen.n_too_soon));
    CHECK_BYTES(plain[0].theta, all[0].theta, sizeof plain[0].theta);
    CHECK_BYTES(plain[0].w, all[0].w, sizeof plain[0].w);
}

/* ---- the contribution is made meanwhile -------------------------------------------------- */

static size_t bound(void *user, size_t n)
{
    (void)user;
    return n * sizeof(float);
}

/* The first save may end now. */
static size_t encode(void *user, unsigned char *out, const float *g, size_t n)
{
    (void)user;
    memcpy(out, g, n * sizeof *g);
    atomic_fetch_add(&seen.n_encoded, 1);
    wait_for(&disk.n_entered, 1);
    seen.n_passed += atomic_load(&disk.n_synced) == 0;
    atomic_store(&disk.shut, false);
    return n * sizeof *g;
}

static bool check(void *user, const unsigned char *payload, size_t len, size_t n)
{
    (void)user, (void)payload;
    return len == n * sizeof(float);
}

static void decode(void *user, float *out, const unsigned char *payload, size_t len, size_t n,
                   size_t first, size_t count)
{
    (void)user, (void)len, (void)n;
    memcpy(out, payload + first * sizeof *out, count * sizeof *out);
}

TEST(a_contribution_is_encoded_while_its_state_is_saved)
{
    const diloco_user_codec codec = {.size = sizeof codec,
                                     .name = "plain",
                                     .bound = bound,
                                     .encode = encode,
                                     .check = check,
                                     .decode = decode};
    begin();
    toy t = toy_of("r0", scratch_path("encoded"));
    toy_set(&t, "run.state_dir", scratch_path("encoded.state"));
    toy_set(&t, "server.diloco.overlap_steps", "1");
    t.parts.codec = &codec;
    atomic_store(&disk.shut, true);
    toy_live(&t);
    TOY_OK(t);
    CHECK(!atomic_load(&disk.late));
    CHECK_INT(1, seen.n_passed);
}

TEST_MAIN(an_entry_is_adopted_while_the_state_of_a_later_one_is_saved,
          a_contribution_is_encoded_while_its_state_is_saved)
