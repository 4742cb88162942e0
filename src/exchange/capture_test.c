/* capture_test.c - captures, contributions, and the residual that error feedback keeps
 * (docs/protocol.md P17): a real dl_exec with a store in memory; the test is its trainer and its
 * machine.
 *
 * Two fragments, "a" of N floats and "b" which also has integers, H = 4, tau = 3: two contributions
 * may be in flight. The outer optimizer is SGD with lr 1 and this replica is the only member. So
 * theta moves by exactly what others decode. */
#include "exchange/exec_parts.h"

#include "check.h"
#include "exchange/generations.h"
#include "run/open.h"

enum { N = 64, N_B = 3, A = 0, B = 1 };

typedef struct world {
    dl_config config;
    dl_store *store;
    dl_runfile file;
    dl_exec *exec;
    dl_state *state;
    float a[N], b[N_B];
    int64_t counts[2];
    diloco_tensor tensors[3];
    dl_entry entry;
    dl_contribution facts; /* of the newest fetched contribution */
    float sent[N];         /* its decoded values */
} world;

static void option(world *w, const char *name, const char *value)
{
    CHECK_OK(dl_config_set(&w->config, name, value, "test"));
}

static void make_exec(world *w)
{
    dl_exec_args args = {.store = w->store,
                         .run = &w->file,
                         .tensors = w->tensors,
                         .n_tensors = 3,
                         .max_members = 2,
                         .beside = w->config.overlap_steps > 0,
                         .n_copies = 2};
    CHECK_OK(dl_run_claim_generation(&args.self, w->store, "r0", &w->file, &w->file.config, NULL));
    CHECK_OK(dl_exec_create(&w->exec, &args));
    w->state = dl_exec_state(w->exec);
}

static void make_world_of(world *w, const char *codec, const char *feedback, const char *schedule)
{
    const bool async = !strcmp(schedule, "async");
    static int n;
    char url[32];
    dl_hash digest;
    memset(w, 0, sizeof *w);
    dl_config_init(&w->config);
    snprintf(url, sizeof url, "mem://take-%d", n++);
    option(w, "run.store", url);
    option(w, "run.state_dir", "none");
    option(w, "trainer.local_steps_per_round", "4");
    option(w, "server.diloco.overlap_steps", async ? "0" : "3");
    option(w, "server.diloco.schedule", schedule);
    option(w, "server.diloco.outer_optimizer", "sgd");
    option(w, "server.diloco.outer_learning_rate", "1");
    option(w, "server.diloco.codec", codec);
    option(w, "server.diloco.error_feedback", feedback);
    w->tensors[0] = (diloco_tensor){.name = "a", .data = w->a, .n_dims = 1, .shape = {N}};
    w->tensors[1] = (diloco_tensor){
        .name = "b", .data = w->b, .n_dims = 1, .shape = {N_B}, .fragment = async ? A : B};
    w->tensors[2] = (diloco_tensor){.name = "counts",
                                    .data = w->counts,
                                    .dtype = DILOCO_I64,
                                    .role = DILOCO_BUFFER,
                                    .n_dims = 1,
                                    .shape = {2},
                                    .fragment = async ? A : B};
    const dl_run_creation what = {
        .config = &w->config, .tensors = w->tensors, .n_tensors = 3, .data_digest = ""};
    CHECK_OK(dl_store_open(&w->store, url, true));
    CHECK_OK(dl_run_create_or_read(&w->file, &digest, w->store, &what));
    CHECK_OK(dl_entry_init(&w->entry, 2));
    make_exec(w);
    CHECK_OK(
        dl_snapshot_read_newest(w->state, w->store, &w->file, digest, UINT64_MAX, NULL, DL_NEVER));
}

static void make_world(world *w, const char *codec, const char *feedback)
{
    make_world_of(w, codec, feedback, "offset");
}

static void end_world(world *w)
{
    dl_exec_destroy(w->exec);
    dl_entry_deinit(&w->entry);
    dl_runfile_deinit(&w->file);
    dl_store_close(w->store);
}

/* ---- one entry after the other ------------------------------------------------------------ */

static dl_reply carry_out(world *w, const dl_request *request)
{
    dl_reply reply = {.status = DILOCO_OK};
    dl_exec_do(w->exec, request, &reply, DL_NEVER);
    CHECK_OK(reply.status);
    return reply;
}

/* With two fragments and H = 4 a due point is every two steps, from 4 on. */
static void capture(world *w, uint64_t entry, uint32_t fragment)
{
    const dl_train_stats work = {
        .steps = 4, .samples = 4, .end_sample = 4, .position = 4 + 2 * entry};
    CHECK_OK(dl_exec_capture(w->exec, entry, fragment, &work));
}

static dl_reply put(world *w, uint64_t entry, uint32_t fragment)
{
    const dl_request request = {
        .kind = DL_REQUEST_CONTRIBUTE, .entry = entry, .fragment = fragment};
    return carry_out(w, &request);
}

/* Reads the contribution back as any replica does. */
static void fetch(world *w, uint64_t entry, uint32_t fragment, uint32_t generation)
{
    const dl_request request = {.kind = DL_REQUEST_FETCH,
                                .entry = entry,
                                .fragment = fragment,
                                .fetch.generation = {.replica = "r0", .number = generation}};
    w->state->control.entry = entry;
    const dl_reply reply = carry_out(w, &request);
    w->facts = *reply.fetch.facts;
}

/* Moves theta by the fetched contribution; `counted`: it was ours. Checks that theta moved by the
 * values that others decode. */
static void commit(world *w, uint64_t entry, uint32_t fragment, bool counted)
{
    static const size_t slot = 0;
    const size_t n = fragment == A ? N : N_B;
    float before[N];
    memcpy(before, w->state->now[fragment].theta, n * sizeof *before);
    w->entry.entry = entry;
    w->entry.commit = true;
    w->entry.n_members = 1;
    w->entry.members[0] = (dl_member){.entry = entry, .weight = 1, .raw = 1};
    w->entry.scalars.value[0] = 1; /* lr */
    dl_request request = {.kind = DL_REQUEST_COMPUTE,
                          .entry = entry,
                          .fragment = fragment,
                          .step = {.draft = &w->entry, .slots = &slot}};
    (void)carry_out(w, &request);
    request = (dl_request){.kind = DL_REQUEST_SWAP,
                           .entry = entry,
                           .fragment = fragment,
                           .swap = {.counted = counted, .own = entry, .body = w->facts.body}};
    (void)carry_out(w, &request);
    for (size_t i = 0; i < n; i++)
        w->sent[i] = before[i] - w->state->now[fragment].theta[i];
}

static void contribute_and_commit(world *w, uint64_t entry, uint32_t fragment)
{
    capture(w, entry, fragment);
    (void)put(w, entry, fragment);
    fetch(w, entry, fragment, 0);
    commit(w, entry, fragment, true);
    dl_exec_adopt(w->exec, fragment, 0);
}

static const float *residual(const world *w)
{
    const dl_exec_private *p = dl_exec_private_at(w->exec, 0);
    CHECK(p != NULL);
    CHECK_STR("diloco.residual", p->name);
    CHECK_INT((N + N_B) * sizeof(float), p->len);
    return p->data;
}

/* Trains: a moves by -g. */
static void move(world *w, const float *g)
{
    for (int i = 0; i < N; i++)
        w->a[i] -= g[i];
}

/* Makes one element of size 1, all others 0.25: top-k of one in 64 sends the largest only. */
static void one_large(float *g)
{
    for (int i = 0; i < N; i++)
        g[i] = i == 5 ? 1 : 0.25f;
}

/* ---- error feedback ----------------------------------------------------------------------- */

/* Algorithms: a = g + beta e; send C(a); e = a - C(a). */
TEST(p17_residual_is_added_to_the_next_contribution)
{
    world w;
    float g[N];
    make_world(&w, "topk", "0.5");
    one_large(g);
    move(&w, g);
    contribute_and_commit(&w, 0, A);
    for (int i = 0; i < N; i++) {
        CHECK_NEAR(i == 5 ? 1 : 0, (double)w.sent[i], 0);
        CHECK_NEAR(i == 5 ? 0 : 0.25, (double)residual(&w)[i], 0);
    }
    move(&w, g); /* a = g + e / 2: 1 at 5, 0.375 elsewhere */
    contribute_and_commit(&w, 2, A);
    for (int i = 0; i < N; i++)
        CHECK_NEAR(i == 5 ? 0 : 0.375, (double)residual(&w)[i], 1e-7);
    for (int i = N; i < N + N_B; i++) /* of the other fragment */
        CHECK_NEAR(0, (double)residual(&w)[i], 0);
    end_world(&w);
}

TEST(p17_an_entry_that_does_not_count_it_leaves_the_residual)
{
    world w;
    float g[N], was[N];
    make_world(&w, "topk", "0.5");
    one_large(g);
    move(&w, g);
    contribute_and_commit(&w, 0, A);
    memcpy(was, residual(&w), sizeof was);
    move(&w, g);
    capture(&w, 2, A);
    (void)put(&w, 2, A);
    fetch(&w, 2, A, 0);
    CHECK_BYTES(was, residual(&w), sizeof was); /* captured, uploaded, and not decided */
    commit(&w, 2, A, false);
    CHECK_BYTES(was, residual(&w), sizeof was);
    end_world(&w);
}

/* Nothing moved since, so the same bytes are sent again. */
TEST(p17_after_an_abort_the_same_movement_is_sent_once_more_and_not_twice_as_much)
{
    world w;
    float g[N];
    make_world(&w, "topk", "0.5");
    one_large(g);
    move(&w, g);
    contribute_and_commit(&w, 0, A);
    move(&w, g);
    capture(&w, 2, A);
    (void)put(&w, 2, A);
    fetch(&w, 2, A, 0);
    const dl_hash first = w.facts.body; /* entry 2 aborts: no SWAP, no adoption */
    capture(&w, 4, A);
    (void)put(&w, 4, A);
    fetch(&w, 4, A, 0);
    CHECK(dl_hash_equal(first, w.facts.body));
    commit(&w, 4, A, true);
    for (int i = 0; i < N; i++)
        CHECK_NEAR(i == 5 ? 0 : 0.375, (double)residual(&w)[i], 1e-7);
    end_world(&w);
}

TEST(p17_a_counted_contribution_that_is_not_known_here_zeroes_the_residual)
{
    world w;
    float g[N];
    make_world(&w, "topk", "0.5");
    one_large(g);
    for (int other = 0; other < 2; other++) {
        move(&w, g);
        contribute_and_commit(&w, 4 * (uint64_t)other, A);
        CHECK(residual(&w)[0] > 0);
        move(&w, g);
        const uint64_t entry = 4 * (uint64_t)other + 2;
        capture(&w, entry, A);
        (void)put(&w, entry, A);
        fetch(&w, entry, A, 0);
        const dl_request rejoin = {.kind = DL_REQUEST_REJOIN, .entry = 0};
        if (other)
            w.facts.body.bytes[0] ^= 1; /* an earlier generation's, with other bytes */
        else
            (void)carry_out(&w, &rejoin); /* the capture's state is not in the log */
        commit(&w, entry, A, true);
        for (int i = 0; i < N; i++)
            CHECK_NEAR(0, (double)residual(&w)[i], 0);
        dl_exec_adopt(w.exec, A, 0);
    }
    end_world(&w);
}

/* SWM-25: 0.1 a step stays below the threshold for ever, or is ten times that after a while. */
static bool is_ever_sent(const char *feedback)
{
    world w;
    float g[N];
    bool sent = false;
    make_world(&w, "topk", feedback);
    for (int i = 0; i < N; i++)
        g[i] = i == 5 ? 1 : i == 40 ? 0.1f : 0;
    for (uint64_t e = 0; e < 200; e++) {
        move(&w, g);
        contribute_and_commit(&w, 2 * e, A);
        sent |= w.sent[40] != 0;
    }
    end_world(&w);
    return sent;
}

TEST(error_feedback_sends_a_component_below_the_threshold_in_the_end)
{
    CHECK(is_ever_sent("0.95"));
    CHECK(!is_ever_sent("0"));
}

/* SWM-26: theta moves by what others decode, and the residual is the rest. */
TEST(a_replica_takes_its_own_contribution_as_others_decode_it)
{
    for (size_t c = 0; dl_codec_at(c); c++) {
        world w;
        float g[N];
        make_world(&w, dl_codec_at(c)->name, "1");
        for (int i = 0; i < N; i++)
            g[i] = 0.01f * (float)(i * i % 37 - 18);
        move(&w, g);
        contribute_and_commit(&w, 0, A);
        for (int i = 0; i < N; i++) {
            CHECK_NEAR((double)g[i], (double)w.sent[i] + (double)residual(&w)[i], 1e-6);
            CHECK_NEAR((double)w.state->now[A].theta[i], (double)w.a[i], 0);
        }
        end_world(&w);
    }
}

/* Where replicas do not wait for each other, other replicas' entries come between capture and
 * upload. */
TEST(p20_capture_survives_the_computation_of_anothers_entry)
{
    world w;
    float g[N];
    make_world_of(&w, "f32", "0", "async");
    for (int i = 0; i < N; i++)
        g[i] = 0.5f * (float)(i + 1);
    move(&w, g);
    capture(&w, 0, A); /* the other replica's, committed below */
    (void)put(&w, 0, A);
    fetch(&w, 0, A, 0);
    move(&w, g);
    capture(&w, 1, A);
    commit(&w, 0, A, false);
    const dl_capture *taken = dl_exec_captured(w.exec, 1);
    CHECK(taken != NULL);
    for (int i = 0; i < N; i++)
        CHECK_NEAR(2 * (double)g[i], (double)taken->g[i], 0); /* from theta as it was */
    end_world(&w);
}

/* ---- captures ------------------------------------------------------------------------------- */

TEST(capture_does_not_change_with_further_training)
{
    world w;
    make_world(&w, "f32", "0");
    for (int i = 0; i < N; i++)
        w.a[i] = -1;
    capture(&w, 0, A);
    for (int i = 0; i < N; i++)
        w.a[i] = -7;
    (void)put(&w, 0, A);
    fetch(&w, 0, A, 0);
    commit(&w, 0, A, true);
    for (int i = 0; i < N; i++)
        CHECK_NEAR(1, (double)w.sent[i], 0);
    end_world(&w);
}

TEST(missing_capture_is_an_empty_contribution_and_changes_no_other)
{
    world w;
    make_world(&w, "f32", "0");
    w.counts[0] = 7, w.counts[1] = -8;
    w.b[1] = -2;
    capture(&w, 2, B); /* in the first capture, as entry 0 would be */
    (void)put(&w, 1, B);
    fetch(&w, 1, B, 0);
    CHECK_INT(0, w.facts.stats.samples);
    (void)put(&w, 2, B);
    fetch(&w, 2, B, 0);
    CHECK_INT(4, w.facts.stats.samples);
    commit(&w, 2, B, true);
    CHECK_INT(7, w.state->now[B].integers[0]);
    CHECK_INT(-8, w.state->now[B].integers[1]);
    CHECK_NEAR(2, (double)w.sent[1], 0);
    end_world(&w);
}

TEST(p15_earlier_generations_contribution_is_not_replaced_by_an_empty_one)
{
    world w;
    make_world(&w, "f32", "0");
    w.a[0] = -1;
    capture(&w, 0, A);
    CHECK(!put(&w, 0, A).contribute.taken);
    dl_exec_destroy(w.exec);
    make_exec(&w); /* theta is zero again, as it was */
    dl_state_rehash(w.state, NULL);
    const dl_reply reply = put(&w, 0, A);
    CHECK(reply.contribute.taken);
    CHECK_INT(0, reply.contribute.takes_over.number);
    CHECK(!put(&w, 1, A).contribute.taken); /* the earlier generation had not uploaded it */
    end_world(&w);
}

/* The second encoding after an unknown outcome gives the same bytes, or the store would fence us.
 */
TEST(a_contribution_may_be_put_again)
{
    world w;
    float g[N];
    make_world(&w, "topk", "0.5");
    one_large(g);
    move(&w, g);
    capture(&w, 0, A);
    (void)put(&w, 0, A);
    (void)put(&w, 0, A);
    end_world(&w);
}

TEST(a_movement_that_is_not_finite_is_refused_by_name)
{
    world w;
    make_world(&w, "f32", "0");
    w.a[17] = NAN;
    CHECK_STATUS(DILOCO_ENUMERIC, dl_exec_capture(w.exec, 0, A, &(dl_train_stats){.steps = 1}));
    CHECK_CONTAINS("a[17]", diloco_error_text());
    end_world(&w);
}

/* ---- the copy for a save beside training */

TEST(capture_copies_the_tensors_of_its_fragment_in_the_same_pass)
{
    world w;
    make_world(&w, "f32", "0");
    for (int i = 0; i < N_B; i++)
        w.b[i] = (float)i / 8;
    w.counts[1] = 1 << 20;
    float b[N_B] = {0}, unused[N] = {0};
    int64_t counts[2] = {0};
    void *places[3] = {unused, b, counts};
    dl_exec_copy_to(w.exec, places);
    capture(&w, 1, B);
    CHECK_BYTES(w.b, b, sizeof b);
    CHECK_BYTES(w.counts, counts, sizeof counts);
    CHECK(places[0] == unused && !places[1] && !places[2]); /* the rest is the caller's */
    CHECK(0 == unused[0]);
    w.b[0] = 7;
    places[1] = b;
    capture(&w, 1, B); /* the copies have ended */
    CHECK(0 == b[0]);
    end_world(&w);
}

/* The floats of the captures, and what belongs to them, are saved only if one is in flight. */
TEST(captures_are_in_use_while_one_of_them_is_in_flight)
{
    world w;
    make_world(&w, "f32", "0");
    const dl_exec_private *p = dl_exec_private_at(w.exec, 0);
    CHECK(p && p->in_use);
    CHECK_OK(dl_exec_pack_in_flight(w.exec, 0));
    CHECK(!*p->in_use);
    capture(&w, 0, A);
    CHECK_OK(dl_exec_pack_in_flight(w.exec, 0));
    CHECK(*p->in_use);
    CHECK_OK(dl_exec_pack_in_flight(w.exec, 1)); /* entry 0 is adopted */
    CHECK(!*p->in_use);
    end_world(&w);
}

TEST_MAIN(capture_copies_the_tensors_of_its_fragment_in_the_same_pass,
          captures_are_in_use_while_one_of_them_is_in_flight,
          p20_capture_survives_the_computation_of_anothers_entry,
          p17_residual_is_added_to_the_next_contribution,
          p17_an_entry_that_does_not_count_it_leaves_the_residual,
          p17_after_an_abort_the_same_movement_is_sent_once_more_and_not_twice_as_much,
          p17_a_counted_contribution_that_is_not_known_here_zeroes_the_residual,
          error_feedback_sends_a_component_below_the_threshold_in_the_end,
          a_replica_takes_its_own_contribution_as_others_decode_it,
          capture_does_not_change_with_further_training,
          missing_capture_is_an_empty_contribution_and_changes_no_other,
          p15_earlier_generations_contribution_is_not_replaced_by_an_empty_one,
          a_contribution_may_be_put_again, a_movement_that_is_not_finite_is_refused_by_name)
