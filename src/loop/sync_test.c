/* sync_test.c - synchronisations between replicas: exchanges and their times, buckets, votes,
 * failures, outer optimizers of the caller's, tensors with copy functions. */
#include "loop_world.h"
#include "scratch.h"

static void each(world *w, void (*what)(world_member *m))
{
    for (int i = 0; i < w->n_members; i++)
        what(&w->members[i]);
}

static void start(world_member *m)
{
    CHECK_OK(diloco_loop_start(m->loop));
}

static void prepare(world_member *m)
{
    CHECK_OK(diloco_loop_prepare(m->loop));
}

static void perform(world_member *m)
{
    bool committed;
    CHECK_OK(diloco_loop_perform(m->loop, &committed));
    CHECK(committed);
}

/* Every replica moves another way, every element differently. */
static void train(world_member *m)
{
    for (int i = 0; i < WORLD_MODEL; i++)
        m->w[i] += 0.01f * (float)((i * 7 + m->index * 5 + (int)m->commits * 3) % 11 - 5);
}

static void add_three(world_member *m)
{
    world_tensor(m, "a", 0, 6, 0);
    world_tensor(m, "b", 6, 6, 0);
    world_tensor(m, "c", 12, 25, 0);
}

/* Replicas with the tensors of 6, 6 and 25 elements. */
static void begin(world *w, int n_members, diloco_loop_options options)
{
    options.size = sizeof options;
    if (!options.sync_every) options.sync_every = 4;
    world_begin(w, n_members, &options);
    each(w, add_three);
    each(w, start);
}

static diloco_loop_fragment view_of(const world_member *m)
{
    diloco_loop_fragment view = {.size = sizeof view};
    CHECK_OK(diloco_loop_view(m->loop, 0, &view));
    return view;
}

/* ---- exchanges and their times */

TEST(lib_15_wait_is_called_only_when_the_result_is_adopted)
{
    world w;
    begin(&w, 1, (diloco_loop_options){.sync_every = 4, .fragment_sync_delay = 2});
    world_member *m = &w.members[0];
    for (int step = 1; step <= 4; step++) {
        train(m);
        CHECK_OK(diloco_loop_step(m->loop));
        CHECK_INT(step < 2 ? 0 : 3, m->begun); /* lib_18: tau > 0 on a CPU */
        CHECK_INT(step < 4 ? 0 : 3, m->waited);
    }
    world_end(&w);
}

TEST(lib_14_lib_16_two_replicas_in_one_thread_meet_by_key_in_any_order)
{
    world w;
    begin(&w, 2, (diloco_loop_options){0});
    world_member *a = &w.members[0], *b = &w.members[1];
    for (int round = 0; round < 4; round++) {
        float before[37], mean_g[37];
        each(&w, train);
        memcpy(before, view_of(a).theta, sizeof before);
        for (int i = 0; i < 37; i++)
            mean_g[i] = ((before[i] - a->w[i]) + (before[i] - b->w[i])) / 2;
        if (round % 2) prepare(b), prepare(a);
        if (round % 2 == 0) prepare(a), prepare(b);
        if (round / 2) perform(b), perform(a);
        if (round / 2 == 0) perform(a), perform(b);
        CHECK_BYTES(a->w, b->w, sizeof before);
        if (round == 0) /* momentum is zero yet: 0.7 (1 + 0.9) g */
            for (int i = 0; i < 37; i++)
                CHECK_NEAR((double)before[i] - 1.33 * (double)mean_g[i], (double)a->w[i], 1e-6);
    }
    world_end(&w);
}

TEST(lib_20_two_replicas_of_4_steps_and_2_entries_end_in_the_same_parameters_which_moved)
{
    world w;
    float before[37];
    begin(&w, 2, (diloco_loop_options){.sync_every = 4, .fragment_sync_delay = 1});
    memcpy(before, w.members[0].w, sizeof before);
    for (int step = 1; step <= 8; step++) /* the replica that prepares later steps first */
        for (int i = 0; i < 2; i++) {
            train(&w.members[i]);
            CHECK_OK(diloco_loop_step(w.members[i].loop));
        }
    for (int i = 0; i < 2; i++) {
        diloco_loop_info now = {.size = sizeof now};
        diloco_loop_now(w.members[i].loop, &now);
        CHECK_INT(2, now.commits);
        CHECK_INT(2, w.members[i].commits); /* 2 entries */
        CHECK_INT(1, view_of(&w.members[i]).n_vectors);
        CHECK_STR("momentum", view_of(&w.members[i]).names[0]);
    }
    CHECK_BYTES(w.members[0].w, w.members[1].w, sizeof before);
    CHECK(memcmp(before, w.members[0].w, sizeof before) != 0);
    world_end(&w);
}

static void lib_17_with_cap(size_t cap, int n_all_reduces, const float *want, float *got)
{
    world w;
    begin(&w, 2, (diloco_loop_options){.bucket_bytes = cap * sizeof(float)});
    for (int round = 0; round < 3; round++) {
        each(&w, train);
        each(&w, prepare);
        each(&w, perform);
    }
    CHECK_INT(3 * n_all_reduces, w.members[0].begun);
    memcpy(got, w.members[0].w, 37 * sizeof *got);
    if (want) CHECK_BYTES(want, got, 37 * sizeof *got);
    world_end(&w);
}

TEST(lib_17_buckets_that_do_not_divide_give_the_result_without_buckets)
{
    float plain[37], bucketed[37];
    lib_17_with_cap(0, 3, NULL, plain); /* 6, 6, 25 */
    lib_17_with_cap(10, 4, plain, bucketed);
    lib_17_with_cap(4, 10, plain, bucketed);
    lib_17_with_cap(37, 1, plain, bucketed);
    lib_17_with_cap(50, 1, plain, bucketed);
}

/* ---- a quorum that fails */

TEST(a_step_without_a_quorum_is_due_again_and_can_be_saved)
{
    diloco_loop_info now = {.size = sizeof now};
    world w;
    begin(&w, 1, (diloco_loop_options){.fragments = 1, .sync_every = 3});
    world_member *m = &w.members[0];
    m->quorum = DILOCO_EIO;
    for (int step = 1; step <= 4; step++) {
        train(m);
        CHECK_STATUS(step < 3 ? DILOCO_OK : DILOCO_EIO, diloco_loop_step(m->loop));
        diloco_loop_now(m->loop, &now);
        CHECK_INT(step < 3 ? step : 2, now.step); /* below H/P */
    }
    const char *path = scratch_path("loop");
    CHECK_OK(diloco_loop_save(m->loop, path));
    CHECK_OK(diloco_loop_load(m->loop, path));
    m->quorum = DILOCO_OK;
    CHECK_OK(diloco_loop_step(m->loop));
    CHECK_INT(1, m->commits);
    world_end(&w);
}

/* ---- votes */

TEST(lib_19_a_refused_commit_puts_back_the_parameters_and_is_due_again)
{
    world w;
    float theta[37], momentum[37];
    bool committed = true;
    begin(&w, 1, (diloco_loop_options){.fragments = 1});
    world_member *m = &w.members[0];
    train(m), prepare(m), perform(m);
    memcpy(theta, view_of(m).theta, sizeof theta);
    memcpy(momentum, view_of(m).vectors[0], sizeof momentum);
    m->refuse = true;
    train(m), prepare(m);
    CHECK_OK(diloco_loop_perform(m->loop, &committed));
    CHECK(!committed && m->well);
    CHECK_BYTES(theta, view_of(m).theta, sizeof theta);
    CHECK_BYTES(momentum, view_of(m).vectors[0], sizeof momentum);
    CHECK_BYTES(theta, m->w, sizeof theta); /* discard_local */
    m->refuse = false;
    diloco_loop_info now = {.size = sizeof now};
    train(m), prepare(m);
    diloco_loop_now(m->loop, &now);
    CHECK_INT(1, now.entry); /* the same entry again */
    CHECK_INT(0, now.fragment);
    CHECK_INT(1, now.refused);
    perform(m);
    CHECK_INT(2, m->commits);
    world_end(&w);
}

TEST(lib_19_the_fragment_refused_is_the_next_one_again)
{
    diloco_loop_options options = {.size = sizeof options, .fragments = 2, .sync_every = 2};
    world w;
    world_begin(&w, 1, &options);
    world_member *m = &w.members[0];
    world_tensor(m, "a", 0, 3, 0);
    world_tensor(m, "b", 3, 3, 1);
    start(m);
    m->refuse = true;
    for (int step = 0; step < 2; step++) {
        train(m);
        CHECK_OK(diloco_loop_step(m->loop));
        CHECK_NEAR(0, (double)m->w[0], 0); /* back */
        CHECK(m->w[4] != 0);               /* continues */
    }
    m->refuse = false;
    train(m);
    CHECK_OK(diloco_loop_step(m->loop));
    CHECK(m->w[0] != 0);
    world_end(&w);
}

TEST(lib_19_keep_local_trains_on_from_the_replica_s_own_parameters)
{
    world w;
    float local[37];
    bool committed = true;
    begin(&w, 1, (diloco_loop_options){.keep_local = true});
    world_member *m = &w.members[0];
    m->refuse = true;
    train(m);
    memcpy(local, m->w, sizeof local);
    prepare(m);
    CHECK_OK(diloco_loop_perform(m->loop, &committed));
    CHECK(!committed);
    CHECK_BYTES(local, m->w, sizeof local);
    CHECK_NEAR(0, (double)view_of(m).theta[3], 0);
    world_end(&w);
}

/* ---- failures */

/* Prepare and perform with something broken: it is voted down, reported, and gone the next time. */
static void check_survives(world *w, diloco_status expected, const char *words)
{
    world_member *m = &w->members[0];
    bool committed = true;
    float theta[37];
    memcpy(theta, view_of(m).theta, sizeof theta);
    prepare(m);
    CHECK_STATUS(expected, diloco_loop_perform(m->loop, &committed));
    CHECK_CONTAINS(words, diloco_error_text());
    CHECK(!committed && !m->well);
    CHECK_INT(1, m->votes);
    CHECK_BYTES(theta, view_of(m).theta, sizeof theta);
    CHECK_BYTES(theta, m->w, sizeof theta);
    for (int i = 0; i < WORLD_BOXES; i++) { /* all that began was waited for */
        CHECK(!m->pending[i]);
        w->boxes[i].used = false; /* the communicator forgets the entry that failed */
    }
    train(m), prepare(m), perform(m);
}

TEST(an_all_reduce_that_cannot_start_is_voted_down_and_reported_by_perform)
{
    world w;
    begin(&w, 1, (diloco_loop_options){0});
    train(&w.members[0]);
    w.members[0].fail_begin = 2;
    check_survives(&w, DILOCO_EUNREACHABLE, "entry 0, fragment 0: all-reduce of part 1");
    world_end(&w);
}

TEST(a_failed_wait_is_voted_down_and_reported)
{
    world w;
    begin(&w, 1, (diloco_loop_options){0});
    train(&w.members[0]);
    w.members[0].fail_wait = 2;
    check_survives(&w, DILOCO_ETIMEDOUT, "entry 0, fragment 0: waiting for part 1 failed");
    world_end(&w);
}

TEST(a_nan_in_the_mean_is_voted_down_and_named)
{
    world w;
    begin(&w, 1, (diloco_loop_options){0});
    train(&w.members[0]);
    w.members[0].w[13] = NAN;
    check_survives(&w, DILOCO_ENUMERIC, "the mean of tensor c, element 1,");
    world_end(&w);
}

TEST(a_step_that_the_communicator_knows_failed_is_voted_down)
{
    world w;
    bool committed;
    begin(&w, 1, (diloco_loop_options){0});
    train(&w.members[0]);
    w.members[0].says_errored = true;
    prepare(&w.members[0]);
    CHECK_STATUS(DILOCO_EIO, diloco_loop_perform(w.members[0].loop, &committed));
    CHECK(!committed && !w.members[0].well);
    world_end(&w);
}

TEST(a_failed_quorum_is_reported_at_once_and_the_next_step_retries)
{
    world w;
    begin(&w, 1, (diloco_loop_options){.sync_every = 2, .fragment_sync_delay = 1});
    world_member *m = &w.members[0];
    m->quorum = DILOCO_EUNREACHABLE;
    train(m);
    CHECK_STATUS(DILOCO_EUNREACHABLE, diloco_loop_step(m->loop));
    CHECK_CONTAINS("start_quorum failed", diloco_error_text());
    CHECK_INT(0, m->begun);
    m->quorum = DILOCO_OK;
    train(m);
    CHECK_OK(diloco_loop_step(m->loop));
    CHECK_INT(1, m->commits);
    world_end(&w);
}

TEST(a_mean_beyond_all_bounds_is_voted_down)
{
    world w;
    begin(&w, 1, (diloco_loop_options){0});
    train(&w.members[0]);
    w.members[0].w[6] = 2e18f;
    check_survives(&w, DILOCO_ENUMERIC, "the mean of tensor b, element 0,");
    world_end(&w);
}

TEST(a_non_finite_outer_step_is_reported_after_the_commit)
{
    world w;
    bool committed;
    begin(&w, 1, (diloco_loop_options){0});
    world_member *m = &w.members[0];
    view_of(m).vectors[0][7] = NAN; /* as a caller may have loaded it */
    train(m), prepare(m);
    CHECK_STATUS(DILOCO_ENUMERIC, diloco_loop_perform(m->loop, &committed));
    CHECK(committed && m->well);
    CHECK_CONTAINS("the outer step of tensor b, element 1,", diloco_error_text());
    world_end(&w);
}

/* ---- where replicas begin */

static diloco_status compare_models(void *user)
{
    const world_member *m = user;
    char ours[33], theirs[33];
    CHECK_OK(diloco_loop_digest(m->loop, ours));
    CHECK_OK(diloco_loop_digest(m->world->members[1 - m->index].loop, theirs));
    return strcmp(ours, theirs) == 0 ? DILOCO_OK : DILOCO_EDIFFERS;
}

TEST(lib_21_replicas_from_different_theta_are_refused_by_a_communicator_that_compares)
{
    world w = {.n_members = 2};
    diloco_loop_options options = {.size = sizeof options, .sync_every = 1};
    for (int i = 0; i < 2; i++) {
        world_member *m = &w.members[i];
        m->world = &w, m->index = i;
        diloco_communicator c = world_communicator(m);
        c.start_quorum = compare_models;
        CHECK_OK(diloco_loop_create(&m->loop, &options, &c));
        add_three(m);
        m->w[0] = (float)i;
        start(m);
    }
    CHECK_STATUS(DILOCO_EDIFFERS, diloco_loop_step(w.members[0].loop));
    memcpy(w.members[1].w, w.members[0].w, sizeof w.members[1].w); /* to one source */
    CHECK_OK(diloco_loop_backup(w.members[1].loop));
    each(&w, prepare);
    each(&w, perform);
    world_end(&w);
}

TEST(lib_24_a_replica_leaves_another_joins_with_the_state_and_the_rest_continue)
{
    world w;
    begin(&w, 3, (diloco_loop_options){0});
    each(&w, train);
    each(&w, prepare);
    each(&w, perform);
    w.n_members = 2; /* the third is gone */
    each(&w, train);
    each(&w, prepare);
    each(&w, perform);
    world_member *joiner = &w.members[2]; /* its loop is two entries late: brought up to date */
    diloco_loop_fragment from = view_of(&w.members[0]), to = view_of(joiner);
    memcpy(to.theta, from.theta, from.n * sizeof(float));
    memcpy(to.vectors[0], from.vectors[0], from.n * sizeof(float));
    *to.commits = *from.commits;
    joiner->commits = w.members[0].commits;
    CHECK_OK(diloco_loop_restore(joiner->loop));
    w.n_members = 3;
    each(&w, train);
    each(&w, prepare);
    each(&w, perform);
    CHECK_BYTES(w.members[0].w, joiner->w, 37 * sizeof(float));
    CHECK_INT(3, joiner->commits);
    world_end(&w);
}

/* ---- the caller's outer optimizer */

typedef struct user_outer {
    int calls;
    uint64_t entry;
    float v[37]; /* its own momentum */
    diloco_status status;
} user_outer;

/* Nesterov, 0.7, 0.9, in the words of docs/architecture.md. */
static diloco_status nesterov_of_user(void *user, const diloco_loop_outer *step)
{
    user_outer *u = user;
    u->calls++;
    u->entry = step->entry;
    CHECK_INT(37, step->n);
    for (size_t i = 0; i < step->n; i++) {
        u->v[i] = fmaf(0.9f, u->v[i], step->g[i]);
        step->theta[i] = fmaf(-0.7f, fmaf(0.9f, u->v[i], step->g[i]), step->theta[i]);
    }
    return u->status;
}

TEST(lib_10_the_caller_s_outer_optimizer_is_called_once_per_committed_fragment)
{
    user_outer u = {0};
    world ours, theirs;
    begin(&ours, 1, (diloco_loop_options){.fragment_update_alpha = 0.25});
    begin(&theirs, 1,
          (diloco_loop_options){
              .fragment_update_alpha = 0.25, .outer = nesterov_of_user, .outer_user = &u});
    for (int round = 0; round < 6; round++) {
        bool refuse = round == 2;
        for (int k = 0; k < 2; k++) {
            world_member *m = &(k ? &theirs : &ours)->members[0];
            m->refuse = refuse;
            train(m), prepare(m);
            CHECK_OK(diloco_loop_perform(m->loop, NULL));
        }
        CHECK_INT(round + (round < 2), u.calls);
        CHECK_BYTES(ours.members[0].w, theirs.members[0].w, 37 * sizeof(float));
    }
    CHECK_INT(4, u.entry);
    CHECK_INT(0, view_of(&theirs.members[0]).n_vectors);
    u.status = DILOCO_ENOMEM;
    bool committed;
    prepare(&theirs.members[0]);
    CHECK_STATUS(DILOCO_ENOMEM, diloco_loop_perform(theirs.members[0].loop, &committed));
    CHECK(committed);
    CHECK_CONTAINS("options.outer failed", diloco_error_text());
    world_end(&ours);
    world_end(&theirs);
}

/* ---- tensors with copy functions */

typedef struct far_away {
    double x[37]; /* as if on a device, and of another type */
    size_t begins[3];
    diloco_status status;
} far_away;

static diloco_status far_read(void *user, float *host, size_t tensor, size_t first, size_t n)
{
    far_away *f = user;
    CHECK(n <= 5);
    for (size_t i = 0; i < n; i++)
        host[i] = (float)f->x[f->begins[tensor] + first + i];
    return f->status;
}

static diloco_status far_write(void *user, const float *host, size_t tensor, size_t first, size_t n)
{
    far_away *f = user;
    for (size_t i = 0; i < n; i++)
        f->x[f->begins[tensor] + first + i] = (double)host[i];
    return f->status;
}

TEST(tensors_with_copy_functions_move_like_those_in_memory)
{
    float staging[5];
    far_away f = {.begins = {12, 0, 6}};
    diloco_loop_copy copy = {.size = sizeof copy,
                             .user = &f,
                             .read = far_read,
                             .write = far_write,
                             .staging = staging,
                             .n_staging = 5};
    diloco_loop_options options = {
        .size = sizeof options, .sync_every = 1, .fragment_update_alpha = 0.25, .copy = &copy};
    world near, far;
    begin(&near, 1, (diloco_loop_options){.fragment_update_alpha = 0.25});
    world_begin(&far, 1, &options);
    world_member *a = &near.members[0], *b = &far.members[0];
    diloco_tensor c = {.name = "c", .n_dims = 1, .shape = {25}};
    diloco_tensor t = {.name = "a", .n_dims = 1, .shape = {6}};
    CHECK_OK(diloco_loop_tensor(b->loop, &c)); /* another order of registering: other numbers */
    CHECK_OK(diloco_loop_tensor(b->loop, &t));
    world_tensor(b, "b", 6, 6, 0); /* and one in memory between */
    start(b);
    for (int round = 0; round < 4; round++) {
        train(a);
        for (int i = 0; i < 37; i++)
            f.x[i] = (double)a->w[i];
        memcpy(b->w + 6, a->w + 6, 6 * sizeof(float));
        a->refuse = b->refuse = round == 1;
        prepare(a), prepare(b);
        CHECK_OK(diloco_loop_perform(a->loop, NULL));
        CHECK_OK(diloco_loop_perform(b->loop, NULL));
        for (int i = 0; i < 37; i++)
            CHECK_NEAR((double)a->w[i], i >= 6 && i < 12 ? (double)b->w[i] : f.x[i], 0);
    }
    f.status = DILOCO_EIO;
    prepare(b);
    CHECK_STATUS(DILOCO_EIO, diloco_loop_perform(b->loop, NULL));
    CHECK_CONTAINS("options.copy failed", diloco_error_text());
    world_end(&near);
    world_end(&far);
}

/* ---- threads */

enum { MANY = 100003 };

static diloco_status alone_all_reduce(void *user, const diloco_reduce *r, void **handle)
{
    (void)user, (void)r, (void)handle;
    return DILOCO_OK;
}

static diloco_status alone_wait(void *user, void *handle)
{
    (void)user, (void)handle;
    return DILOCO_OK;
}

static void train_many(float *x, int n_threads)
{
    diloco_communicator c = {.size = sizeof c, .all_reduce = alone_all_reduce, .wait = alone_wait};
    diloco_loop_options options = {.size = sizeof options,
                                   .sync_every = 1,
                                   .fragment_update_alpha = 0.3,
                                   .n_threads = n_threads};
    diloco_loop *loop;
    CHECK_OK(diloco_loop_create(&loop, &options, &c));
    diloco_tensor t[] = {{.name = "a", .data = x, .n_dims = 1, .shape = {70001}},
                         {.name = "none", .data = x, .n_dims = 1, .shape = {0}},
                         {.name = "b", .data = x + 70001, .n_dims = 1, .shape = {MANY - 70001}}};
    for (int i = 0; i < 3; i++)
        CHECK_OK(diloco_loop_tensor(loop, &t[i]));
    CHECK_OK(diloco_loop_start(loop));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++)
            x[i] += sinf((float)(i + round));
        CHECK_OK(diloco_loop_step(loop));
    }
    diloco_loop_destroy(loop);
}

TEST(equal_bits_at_any_number_of_threads)
{
    static float one[MANY], five[MANY];
    train_many(one, 1);
    train_many(five, 5);
    CHECK_BYTES(one, five, sizeof one);
    CHECK(one[MANY - 1] != 0);
}

TEST_MAIN(lib_15_wait_is_called_only_when_the_result_is_adopted,
          lib_14_lib_16_two_replicas_in_one_thread_meet_by_key_in_any_order,
          lib_20_two_replicas_of_4_steps_and_2_entries_end_in_the_same_parameters_which_moved,
          lib_17_buckets_that_do_not_divide_give_the_result_without_buckets,
          a_step_without_a_quorum_is_due_again_and_can_be_saved,
          lib_19_a_refused_commit_puts_back_the_parameters_and_is_due_again,
          lib_19_the_fragment_refused_is_the_next_one_again,
          lib_19_keep_local_trains_on_from_the_replica_s_own_parameters,
          an_all_reduce_that_cannot_start_is_voted_down_and_reported_by_perform,
          a_failed_wait_is_voted_down_and_reported, a_nan_in_the_mean_is_voted_down_and_named,
          a_step_that_the_communicator_knows_failed_is_voted_down,
          a_failed_quorum_is_reported_at_once_and_the_next_step_retries,
          a_mean_beyond_all_bounds_is_voted_down,
          a_non_finite_outer_step_is_reported_after_the_commit,
          lib_21_replicas_from_different_theta_are_refused_by_a_communicator_that_compares,
          lib_24_a_replica_leaves_another_joins_with_the_state_and_the_rest_continue,
          lib_10_the_caller_s_outer_optimizer_is_called_once_per_committed_fragment,
          tensors_with_copy_functions_move_like_those_in_memory,
          equal_bits_at_any_number_of_threads)
