/* wire_test.c - a node's lines to peers over real hubs on loopback, one of which serves what it
 * should not: SWM-14, each kind ignored and counted. */
#include "gossip/wire.h"

#include "gossip/node_dir.h"
#include "hub/server.h"
#include "log/runfile.h"

#include "check.h"
#include "scratch.h"

enum { N = 5 };

#define RUN "0123456789abcdef0123456789abcdef"

static const diloco_tensor tensors[] = {
    {.name = "w", .dtype = DILOCO_F32, .n_dims = 1, .shape = {N}}};

/* A peer: its hub, and a store of what it serves. */
typedef struct peer {
    dl_hub *hub;
    dl_store *store;
    dl_beat beat;
    char root[PATH_MAX], bucket[PATH_MAX];
} peer;

typedef struct scene {
    dl_config config;
    dl_manifest manifest;
    dl_mix *mix;
    dl_state state;
    float local[N];
    peer self, other;
    dl_node node;
    dl_wire *wire;
} scene;

static void put_beat(peer *p)
{
    dl_buf text;
    dl_buf_init(&text, DL_BEAT_MAX);
    CHECK_OK(dl_beat_write(&text, &p->beat));
    CHECK_OK(dl_store_put(p->store, DL_KEY_BEAT, text.data, text.len, DL_NEVER));
    dl_buf_deinit(&text);
}

static void open_peer(peer *p, const char *name, int number)
{
    static int n_peers;
    char folder[32];
    snprintf(folder, sizeof folder, "%s%d", name, n_peers++);
    snprintf(p->root, sizeof p->root, "%s", scratch_path(folder));
    CHECK(snprintf(p->bucket, sizeof p->bucket, "%s/run", p->root) < (int)sizeof p->bucket);
    CHECK_OK(dl_store_open(&p->store, p->bucket, true));
    const dl_hub_options options = {.dir = p->root, .listen = "127.0.0.1:0", .node = name};
    CHECK_OK(dl_hub_start(&p->hub, &options));
    p->beat = (dl_beat){.run = RUN};
    snprintf(p->beat.generation.replica, sizeof p->beat.generation.replica, "%s", name);
    snprintf(p->beat.id, sizeof p->beat.id, "%032x", (unsigned)number);
    CHECK_OK(dl_peer_address(p->beat.address, dl_hub_url(p->hub), false));
    put_beat(p);
}

static void close_peer(peer *p)
{
    dl_hub_stop(p->hub, 0, NULL);
    dl_store_close(p->store);
}

static void report(void *user, const char *key)
{
    (void)user, (void)key;
}

static void begin(scene *s)
{
    memset(s, 0, sizeof *s);
    dl_config_init(&s->config);
    CHECK_OK(dl_manifest_init(&s->manifest, tensors, 1, false));
    CHECK_OK(dl_mix_create(&s->mix, &s->config, &s->manifest, NULL));
    CHECK_OK(dl_state_init(&s->state, &s->manifest, dl_outer_find("nesterov"), 4, 2, 1));
    open_peer(&s->self, "me", 1);
    open_peer(&s->other, "other", 2);
    dl_node_init(&s->node,
                 &(dl_node_rules){.min_peers = 2,
                                  .expected = 2,
                                  .rounds = 9,
                                  .start = 60 * DL_SECOND,
                                  .patience = 60 * DL_SECOND,
                                  .deadline = 60 * DL_SECOND},
                 &s->self.beat, 3, dl_clock_now());
    const dl_wire_args args = {.node = &s->node,
                               .mix = s->mix,
                               .home = s->self.bucket,
                               .beside = s->self.root,
                               .bootstrap = s->other.beat.address,
                               .heartbeat = 100 * DL_MILLISECOND,
                               .link = "",
                               .report = report};
    CHECK_OK(dl_wire_create(&s->wire, &args));
}

static void end(scene *s)
{
    dl_wire_destroy(s->wire);
    close_peer(&s->self);
    close_peer(&s->other);
    dl_state_deinit(&s->state);
    dl_mix_destroy(s->mix);
    dl_manifest_deinit(&s->manifest);
}

/* The other's contribution to a round, made for `entry` of `run` by `name`. */
static void serve_at(scene *s, uint64_t round, const char *run, uint64_t entry, const char *name,
                     bool damaged)
{
    dl_contribution facts = {
        .entry = entry, .stats.samples = 4, .stats.steps = 2, .stats.position = 40};
    dl_mix_input input;
    dl_span spans[3], all[4];
    unsigned char header[DL_CONTRIBUTION_HEADER];
    size_t n;
    dl_key key;
    void *data[1] = {s->local};
    snprintf(facts.run, sizeof facts.run, "%s", run);
    snprintf(facts.generation.replica, sizeof facts.generation.replica, "%s", name);
    for (int i = 0; i < N; i++)
        s->local[i] = (float)i;
    CHECK_OK(
        dl_mix_own(s->mix, DL_OBJECT_CONTRIBUTION, &s->state, data, &facts, &input, spans, &n));
    dl_contribution_write_header(header, &facts);
    all[0] = (dl_span){header, sizeof header};
    memcpy(all + 1, spans, n * sizeof *spans);
    if (damaged) all[1].len--;
    dl_key_contribution(key, round, &s->other.beat.generation);
    CHECK_OK(dl_store_create(s->other.store, key, all, n + 1, NULL, DL_NEVER));
}

static void serve(scene *s, const char *run, uint64_t entry, const char *name, bool damaged)
{
    serve_at(s, 3, run, entry, name, damaged);
}

static bool over(const scene *s)
{
    return s->node.n_members && (s->node.members[0].got || s->node.members[0].refuse);
}

/* The other's model after round 3, as a node sends it after its step: of no samples since then. */
static void serve_model(scene *s)
{
    dl_contribution facts = {.entry = 3, .stats.position = 40};
    dl_mix_input input;
    dl_span spans[3], all[4];
    unsigned char header[DL_CONTRIBUTION_HEADER];
    size_t n;
    dl_key key;
    void *data[1] = {s->local};
    memcpy(facts.run, RUN, sizeof facts.run);
    snprintf(facts.generation.replica, sizeof facts.generation.replica, "other");
    CHECK_OK(dl_mix_own(s->mix, DL_OBJECT_MODEL, &s->state, data, &facts, &input, spans, &n));
    dl_contribution_write_header(header, &facts);
    all[0] = (dl_span){header, sizeof header};
    memcpy(all + 1, spans, n * sizeof *spans);
    dl_key_contribution(key, 3, &s->other.beat.generation);
    key[0] = 'a';
    CHECK_OK(dl_store_create(s->other.store, key, all, n + 1, NULL, DL_NEVER));
}

/* Until the other is known, and then until what it has was taken or refused. */
static void exchange(scene *s)
{
    dl_wire_lock(s->wire);
    while (s->node.n_members == 0)
        dl_wire_wait(s->wire, dl_clock_now() + DL_SECOND);
    CHECK_INT(DL_TODO_TRAIN, dl_node_next(&s->node, dl_clock_now()));
    dl_node_trained(&s->node, dl_clock_now());
    dl_wire_changed(s->wire);
    while (!over(s))
        dl_wire_wait(s->wire, dl_clock_now() + DL_SECOND);
    dl_wire_unlock(s->wire);
}

static void check_refused(const char *run, uint64_t entry, const char *name, bool damaged,
                          dl_ignored why)
{
    scene s;
    begin(&s);
    serve(&s, run, entry, name, damaged);
    exchange(&s);
    CHECK(s.node.members[0].refuse && !s.node.members[0].got);
    for (int i = 0; i < DL_N_IGNORED; i++)
        CHECK_INT(i == (int)why, s.node.ignored[i]);
    CHECK_INT(DL_TODO_WAIT, dl_node_next(&s.node, dl_clock_now())); /* still alone */
    end(&s);
}

TEST(a_contribution_comes_whole_and_makes_two)
{
    scene s;
    size_t set[DL_NODE_MAX + 1];
    begin(&s);
    serve(&s, RUN, 3, "other", false);
    exchange(&s);
    dl_wire_lock(s.wire);
    CHECK_INT(DL_TODO_STEP, dl_node_next(&s.node, dl_clock_now()));
    CHECK_INT(2, dl_node_set(&s.node, set));
    const dl_mix_input input = dl_wire_input(s.wire, 0);
    CHECK_INT(4, input.facts->stats.samples);
    CHECK_INT(N * sizeof(float), input.data.len);
    dl_wire_unlock(s.wire);
    end(&s);
}

TEST(a_model_of_a_node_that_just_stepped_comes_whole_and_is_agreed_on)
{
    scene s;
    begin(&s);
    serve(&s, RUN, 3, "other", false);
    serve_model(&s);
    exchange(&s);
    dl_wire_lock(s.wire);
    s.node.rules.agree_every = 1;
    CHECK_INT(DL_TODO_STEP, dl_node_next(&s.node, dl_clock_now()));
    dl_node_stepped(&s.node, true, dl_clock_now());
    CHECK_INT(DL_TODO_PUBLISH, dl_node_next(&s.node, dl_clock_now()));
    dl_node_published(&s.node, dl_clock_now());
    dl_wire_changed(s.wire);
    while (!over(&s))
        dl_wire_wait(s.wire, dl_clock_now() + DL_SECOND);
    CHECK(s.node.members[0].got);
    CHECK_INT(0, s.node.ignored[DL_IGNORED_DAMAGED]);
    CHECK_INT(DL_TODO_AGREE, dl_node_next(&s.node, dl_clock_now()));
    CHECK_INT(0, dl_wire_input(s.wire, 0).facts->stats.samples);
    CHECK_INT(2 * N * sizeof(float), dl_wire_input(s.wire, 0).data.len); /* theta and momentum */
    dl_wire_unlock(s.wire);
    end(&s);
}

TEST(a_received_contribution_counts_whoever_has_the_address_before_the_step)
{
    size_t set[DL_NODE_MAX + 1];
    for (int k = 0; k < 4; k++) {
        scene s;
        begin(&s);
        serve(&s, RUN, 3, "other", false);
        exchange(&s);
        dl_beat *beat = &s.other.beat;
        if (k == 0) beat->id[0] = 'f';
        if (k == 1) beat->run[0] = 'f';
        if (k == 2) strcpy(beat->generation.replica, "another");
        if (k == 3) memcpy(beat->id, s.self.beat.id, sizeof beat->id);
        put_beat(&s.other);
        dl_wire_lock(s.wire);
        while (s.node.ignored[DL_IGNORED_FOREIGN] == 0)
            dl_wire_wait(s.wire, dl_clock_now() + DL_SECOND);
        dl_wire_unlock(s.wire);
        dl_clock_sleep(DL_SECOND); /* ten more heartbeats */
        dl_wire_lock(s.wire);
        CHECK_INT(DL_TODO_STEP, dl_node_next(&s.node, dl_clock_now()));
        CHECK_INT(2, dl_node_set(&s.node, set));
        CHECK_INT(4, dl_wire_input(s.wire, 0).facts->stats.samples);
        CHECK_INT(1, s.node.ignored[DL_IGNORED_FOREIGN]); /* however often it was heard */
        dl_wire_unlock(s.wire);
        end(&s);
    }
}

/* The node has met the other, and has trained for its round. */
static void reach_a_due_point(scene *s)
{
    dl_wire_lock(s->wire);
    while (s->node.n_members == 0)
        dl_wire_wait(s->wire, dl_clock_now() + DL_SECOND);
    dl_node_next(&s->node, dl_clock_now());
    dl_node_trained(&s->node, dl_clock_now());
    dl_wire_changed(s->wire);
    dl_wire_unlock(s->wire);
}

TEST(a_contribution_that_comes_later_is_heard_of_and_taken)
{
    scene s;
    begin(&s);
    reach_a_due_point(&s);
    serve(&s, RUN, 3, "other", false);
    dl_hub_report(s.other.hub, "run/c/0000000003/other.0000");
    dl_wire_lock(s.wire);
    while (!over(&s))
        dl_wire_wait(s.wire, dl_clock_now() + DL_SECOND);
    CHECK(s.node.members[0].got);
    dl_wire_unlock(s.wire);
    end(&s);
}

/* Until the other's hub holds this node's request. */
static void await_hold(const scene *s)
{
    while (atomic_load(&s->other.hub->metrics.held) == 0)
        dl_clock_sleep(20 * DL_MILLISECOND);
}

/* The other skips round 3. Its hub would hold the request for 20 s, and the next one has to be
 * there before that. */
TEST(a_held_request_of_a_round_that_is_over_does_not_delay_the_next)
{
    scene s;
    begin(&s);
    reach_a_due_point(&s);
    await_hold(&s);
    const dl_time began = dl_clock_now();
    serve_at(&s, 4, RUN, 4, "other", false);
    dl_wire_lock(s.wire);
    CHECK_INT(DL_TODO_PASS, dl_node_next(&s.node, s.node.until));
    dl_node_stepped(&s.node, false, dl_clock_now());
    CHECK_INT(DL_TODO_TRAIN, dl_node_next(&s.node, dl_clock_now()));
    dl_node_trained(&s.node, dl_clock_now());
    dl_wire_changed(s.wire);
    while (!over(&s))
        dl_wire_wait(s.wire, dl_clock_now() + DL_SECOND);
    CHECK(s.node.members[0].got);
    CHECK_INT(4, s.node.round);
    CHECK(dl_clock_now() - began < 15 * DL_SECOND);
    dl_wire_unlock(s.wire);
    end(&s);
}

TEST(an_old_round_is_ignored_and_counted)
{
    check_refused(RUN, 2, "other", false, DL_IGNORED_OLD);
}

TEST(a_future_round_is_ignored_and_counted)
{
    check_refused(RUN, 4, "other", false, DL_IGNORED_FUTURE);
}

TEST(another_run_is_ignored_and_counted)
{
    check_refused("ffffffffffffffffffffffffffffffff", 3, "other", false, DL_IGNORED_FOREIGN);
}

TEST(anothers_name_is_ignored_and_counted)
{
    check_refused(RUN, 3, "somebody", false, DL_IGNORED_FOREIGN);
}

TEST(a_cut_one_is_ignored_and_counted)
{
    check_refused(RUN, 3, "other", true, DL_IGNORED_DAMAGED);
}

/* hb/<name> there then has the address. */
static void check_known(dl_store *store, const char *name, const char *address)
{
    dl_buf text;
    dl_beat beat;
    dl_key key;
    dl_key_known(key, name);
    dl_buf_init(&text, DL_BEAT_MAX);
    while (dl_store_get(store, &text, key, DL_NEVER))
        dl_clock_sleep(20 * DL_MILLISECOND);
    CHECK_OK(dl_beat_read(&beat, text.data, text.len));
    CHECK_STR(address, beat.address);
    dl_buf_deinit(&text);
}

TEST(a_node_makes_itself_known_to_its_peer)
{
    scene s;
    begin(&s);
    check_known(s.other.store, "me", s.self.beat.address);
    end(&s);
}

/* The other says nothing here of itself, and may be killed before it does. */
TEST(a_restarted_node_finds_the_peers_that_it_met)
{
    scene s;
    begin(&s);
    check_known(s.self.store, "other", s.other.beat.address);
    end(&s);
}

/* Others only read a node's objects, and may put only another node's heartbeat. */
TEST(a_nodes_hub_takes_nothing_but_heartbeats_of_others)
{
    scene s;
    dl_store *store;
    char big[DL_HUB_KNOWN_BYTES + 1] = {0};
    begin(&s);
    CHECK_OK(dl_store_open_peer(&store, s.other.beat.address, NULL));
    const dl_time until = dl_clock_now() + 20 * DL_SECOND;
    const dl_span span = {"x", 1};
    CHECK_OK(dl_store_put(store, "hb/third", "x", 1, until));
    CHECK_OK(dl_store_put(store, "hb/third", "y", 1, until));
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_put(store, "hb/other", "x", 1, until));
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_put(store, DL_KEY_BEAT, "x", 1, until));
    CHECK_STATUS(DILOCO_EREFUSED,
                 dl_store_create(store, "c/0000000003/x.0000", &span, 1, NULL, until));
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_create(store, "hb/fourth", &span, 1, NULL, until));
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_delete(store, "hb/third", until));
    CHECK(dl_store_put(store, "hb/fourth", big, sizeof big, until) != DILOCO_OK);
    dl_store_close(store);
    end(&s);
}

/* A reader of the node's folder sees afterwards that it has ended. */
TEST(a_last_change_is_sent_before_the_end)
{
    for (int i = 0; i < 5; i++) {
        scene s;
        dl_buf text;
        dl_beat last;
        begin(&s);
        dl_clock_sleep(150 * DL_MILLISECOND); /* it mostly waits then, and is woken by both */
        dl_wire_lock(s.wire);
        s.node.self.done = true;
        dl_wire_changed(s.wire);
        dl_wire_unlock(s.wire);
        dl_wire_destroy(s.wire);
        s.wire = NULL;
        dl_buf_init(&text, DL_BEAT_MAX);
        CHECK_OK(dl_store_get(s.self.store, &text, DL_KEY_BEAT, DL_NEVER));
        CHECK_OK(dl_beat_read(&last, text.data, text.len));
        CHECK(last.done);
        dl_buf_deinit(&text);
        end(&s);
    }
}

TEST_MAIN(a_contribution_comes_whole_and_makes_two,
          a_model_of_a_node_that_just_stepped_comes_whole_and_is_agreed_on,
          a_received_contribution_counts_whoever_has_the_address_before_the_step,
          a_last_change_is_sent_before_the_end, a_restarted_node_finds_the_peers_that_it_met,
          a_contribution_that_comes_later_is_heard_of_and_taken,
          a_held_request_of_a_round_that_is_over_does_not_delay_the_next,
          an_old_round_is_ignored_and_counted, a_future_round_is_ignored_and_counted,
          another_run_is_ignored_and_counted, anothers_name_is_ignored_and_counted,
          a_cut_one_is_ignored_and_counted, a_node_makes_itself_known_to_its_peer,
          a_nodes_hub_takes_nothing_but_heartbeats_of_others)
