/* sim_test.c - nodes without a log in one thread and virtual time: the state machine of node.h and
 * the arithmetic of mix.h. Between them is a network that delays, loses and partitions, and nodes
 * crash and come back. A seed determines all of it; a failing one is printed and replays.
 *
 *  1. no node steps with fewer than min_peers, or counts a node twice, or another round;
 *  2. a round that passes leaves the model bit for bit; every model stays finite;
 *  3. every live node finishes;
 *  4. once the network has healed, an agreement leaves those that hear the same ones with the same
 *     bits; pairs stay within a bound of each other. */
#include "base/rng.h"
#include "gossip/mix.h"

#include "check.h"

#include <inttypes.h>
#include <math.h>

enum { N_MAX = 8, FLOATS = 12, TICK_MS = 10, KEPT = 64 };

static uint64_t current_seed; /* the seed */

#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) CHECK_FAIL("seed %" PRIu64 ": not so: %s", current_seed, #condition);    \
    } while (0)

typedef struct object {
    bool there;
    dl_contribution facts;
    float payload[2 * FLOATS];
    size_t len;
    int64_t integer;
    double norm2;
} object;

typedef struct saved {
    float theta[FLOATS], momentum[FLOATS];
    int64_t integer;
    uint64_t commits, round;
} saved;

typedef struct peer {
    dl_time heard_at, fetch_at; /* when what is in flight arrives; 0: nothing is */
    dl_want want;
    object got;
} peer;

typedef struct sim_node {
    dl_node node;
    dl_state state;
    float local[FLOATS], target[FLOATS];
    int64_t counter;
    bool up, over, gone; /* gone: for good */
    dl_time busy_until;  /* training */
    bool training;
    object contributions[KEPT], models[KEPT];
    saved snapshot, first;
    object own;
    peer peers[N_MAX]; /* by number of the node */
    uint64_t steps, passes;
    dl_time exchange_began, exchange_took;
} sim_node;

typedef struct sim {
    uint64_t seed;
    size_t n;
    dl_rng rng;
    dl_time now, delay;
    double loss;
    dl_time heals; /* from here on nothing goes wrong */
    dl_config config;
    dl_manifest manifest;
    dl_mix *mix;
    uint64_t split; /* bits: the side of each node; 0: none */
    sim_node nodes[N_MAX];
} sim;

static bool chance(sim *s, double p)
{
    return dl_rng_f64(&s->rng) < p;
}

static float noise(sim *s)
{
    return dl_rng_f32(&s->rng) - 0.5f;
}

/* ---- nodes */

static void *data_of(sim_node *x, int i)
{
    return i ? (void *)&x->counter : (void *)x->local;
}

static void adopt(sim_node *x)
{
    void *data[2] = {data_of(x, 0), data_of(x, 1)};
    dl_mix_adopt(&x->state, data);
}

static void keep(sim_node *x, saved *to)
{
    const dl_fragment_state *f = &x->state.now[0];
    memcpy(to->theta, f->theta, sizeof to->theta);
    memcpy(to->momentum, f->outer[0], sizeof to->momentum);
    to->integer = f->integers[0];
    to->commits = f->n_commits;
    to->round = x->node.round;
}

static void take(sim_node *x, const saved *from)
{
    dl_fragment_state *f = &x->state.now[0];
    memcpy(f->theta, from->theta, sizeof from->theta);
    memcpy(f->outer[0], from->momentum, sizeof from->momentum);
    f->integers[0] = from->integer;
    f->n_commits = from->commits;
    dl_state_rehash(&x->state, NULL);
    x->state.control.entry = from->round;
    adopt(x);
}

static void settle(sim_node *x)
{
    x->state.control.entry = x->node.round;
    keep(x, &x->snapshot);
    x->node.self.state = x->node.round;
    x->node.self.digest = x->state.now[0].digest;
}

static dl_node_rules rules_of(const sim *s)
{
    return (dl_node_rules){.seed = s->seed,
                           .pairs = s->config.swarm_exchange == DL_SWARM_PAIRS,
                           .min_peers = (size_t)s->config.min_peers,
                           .expected = s->n,
                           .rounds = (uint64_t)s->config.rounds,
                           .agree_every = (uint64_t)s->config.agree_every,
                           .start = 60 * DL_SECOND,
                           .patience = 3 * DL_SECOND,
                           .deadline = 4 * DL_SECOND,
                           .grace = DL_SECOND};
}

/* A generation: the first of all, or one that continues from what was saved. */
static void start(sim *s, size_t i, uint32_t generation)
{
    sim_node *x = &s->nodes[i];
    const dl_node_rules rules = rules_of(s);
    dl_beat self = {.run = "0123456789abcdef0123456789abcdef", .divergence = (double)NAN};
    snprintf(self.generation.replica, sizeof self.generation.replica, "r%zu", i);
    self.generation.number = generation;
    snprintf(self.id, sizeof self.id, "%032zx", i + 1);
    snprintf(self.address, sizeof self.address, "http://node:%zu", i + 1);
    take(x, generation ? &x->snapshot : &x->first);
    dl_node_init(&x->node, &rules, &self, x->state.control.entry, s->now);
    x->node.fresh = generation == 0;
    settle(x);
    memset(x->peers, 0, sizeof x->peers);
    x->up = true;
    x->training = false;
}

static void open_sim(sim *s, uint64_t seed, size_t n, const char *exchange)
{
    static const diloco_tensor tensors[] = {
        {.name = "w", .dtype = DILOCO_F32, .n_dims = 1, .shape = {FLOATS}},
        {.name = "steps", .dtype = DILOCO_I64, .role = DILOCO_BUFFER, .n_dims = 1, .shape = {1}}};
    *s = (sim){.seed = seed, .n = n, .delay = 100 * DL_MILLISECOND, .now = DL_SECOND};
    current_seed = seed;
    dl_rng_init(&s->rng, seed, DL_STREAM(DL_STREAM_TEST, 77), 0);
    dl_config_init(&s->config);
    const bool pairs = exchange[0] == 'p';
    CHECK_OK(dl_config_set(&s->config, "swarm.exchange", exchange, "test"));
    CHECK_OK(dl_config_set(&s->config, "trainer.rounds", "20", "test"));
    CHECK_OK(dl_config_set(&s->config, "swarm.min_peers", pairs ? "2" : "3", "test"));
    CHECK_OK(dl_config_set(&s->config, "swarm.agree_every", pairs ? "0" : "4", "test"));
    CHECK_OK(dl_config_set(&s->config, "server.diloco.outer_optimizer", "momentum", "test"));
    CHECK_OK(dl_config_set(&s->config, "server.diloco.outer_momentum", "0.5", "test"));
    if (!pairs && seed % 3 == 0) {
        CHECK_OK(dl_config_set(&s->config, "server.diloco.combiner", "trimmed_mean", "test"));
        CHECK_OK(dl_config_set(&s->config, "server.diloco.robust_fallback", "mean", "test"));
    }
    CHECK_OK(dl_manifest_init(&s->manifest, tensors, 2, false));
    CHECK_OK(dl_mix_create(&s->mix, &s->config, &s->manifest, NULL));
    for (size_t i = 0; i < n; i++) {
        sim_node *x = &s->nodes[i];
        CHECK_OK(
            dl_state_init(&x->state, &s->manifest, dl_outer_find("momentum"), DL_NODE_MAX, 2, 1));
        for (int k = 0; k < FLOATS; k++) {
            x->first.theta[k] = (float)k * 0.1f;
            x->target[k] = noise(s) * 4;
        }
        start(s, i, 0);
    }
}

static void close_sim(sim *s)
{
    for (size_t i = 0; i < s->n; i++)
        dl_state_deinit(&s->nodes[i].state);
    dl_mix_destroy(s->mix);
    dl_manifest_deinit(&s->manifest);
}

/* ---- the actions of a node */

static void publish(sim *s, sim_node *x, dl_object kind)
{
    object *o = &(kind == DL_OBJECT_MODEL ? x->models : x->contributions)[x->node.round % KEPT];
    void *data[2] = {data_of(x, 0), data_of(x, 1)};
    dl_mix_input input;
    dl_span spans[3];
    size_t n_spans;
    *o = (object){.there = true,
                  .facts = {.entry = x->node.round, .stats.steps = 5, .stats.samples = 10}};
    o->facts.generation = x->node.self.generation;
    CHECK_OK(dl_mix_own(s->mix, kind, &x->state, data, &o->facts, &input, spans, &n_spans));
    HOLDS(input.data.len <= sizeof o->payload);
    memcpy(o->payload, input.data.payload, input.data.len);
    memcpy(&o->integer, input.data.integers, sizeof o->integer);
    o->len = input.data.len;
    o->norm2 = input.data.norm2;
    x->own = *o;
}

static dl_mix_input input_of(const object *o)
{
    return (dl_mix_input){&o->facts,
                          {.payload = (const unsigned char *)o->payload,
                           .len = o->len,
                           .integers = (const unsigned char *)&o->integer,
                           .booleans = (const unsigned char *)&o->integer,
                           .norm2 = o->norm2}};
}

static size_t number_of(const char *name)
{
    return (size_t)strtoul(name + 1, NULL, 10);
}

/* Invariant 1. */
static size_t gather(const sim *s, const sim_node *x, dl_mix_input *inputs)
{
    size_t set[DL_NODE_MAX + 1];
    uint64_t seen = 0;
    const size_t n = dl_node_set(&x->node, set);
    for (size_t i = 0; i < n; i++) {
        const object *o = &x->own;
        size_t who = number_of(x->node.self.generation.replica);
        if (set[i] != DL_NODE_MAX) {
            who = number_of(x->node.members[set[i]].beat.generation.replica);
            o = &x->peers[who].got;
        }
        HOLDS(!(seen >> who & 1));
        seen |= (uint64_t)1 << who;
        HOLDS(x->node.round == o->facts.entry);
        inputs[i] = input_of(o);
    }
    HOLDS(n >= (size_t)s->config.min_peers);
    return n;
}

static void step(sim *s, sim_node *x, bool agree)
{
    dl_mix_input inputs[DL_NODE_MAX + 1];
    dl_mix_facts facts;
    const size_t n = gather(s, x, inputs);
    if (agree)
        CHECK_OK(dl_mix_agree(s->mix, &x->state, inputs, n, 0, x->node.round, &facts));
    else
        CHECK_OK(dl_mix_step(s->mix, &x->state, inputs, n, 0, x->node.round, &facts));
    HOLDS(dl_first_bad(x->state.now[0].theta, FLOATS, 1e6f) == FLOATS);
    x->steps += !agree;
    adopt(x);
    x->exchange_took = s->now - x->exchange_began;
    if (agree)
        dl_node_agreed(&x->node, true, s->now);
    else
        dl_node_stepped(&x->node, true, s->now);
    if (x->node.phase != DL_PHASE_PUBLISH) settle(x);
}

/* Invariant 2. */
static void pass(sim *s, sim_node *x, bool agree)
{
    const dl_hash before = x->state.now[0].digest;
    x->passes++;
    if (agree)
        dl_node_agreed(&x->node, false, s->now);
    else
        dl_node_stepped(&x->node, false, s->now);
    if (x->node.phase != DL_PHASE_PUBLISH) settle(x);
    HOLDS(dl_hash_equal(before, x->state.now[0].digest));
}

static void train(sim *s, sim_node *x)
{
    if (!x->training) {
        x->training = true;
        x->busy_until = s->now + (300 + (dl_time)dl_rng_below(&s->rng, 300)) * DL_MILLISECOND;
    }
    if (s->now < x->busy_until) return;
    x->training = false;
    for (int k = 0; k < FLOATS; k++)
        x->local[k] += 0.3f * (x->target[k] - x->local[k]) + 0.05f * noise(s);
    x->counter++;
    publish(s, x, DL_OBJECT_CONTRIBUTION);
    x->exchange_began = s->now;
    dl_node_trained(&x->node, s->now);
}

static bool reaches(const sim *s, size_t a, size_t b)
{
    return s->nodes[a].up && s->nodes[b].up && (s->split >> a & 1) == (s->split >> b & 1);
}

static void copy(sim *s, sim_node *x, size_t i)
{
    const size_t from = number_of(x->node.members[x->node.source].beat.generation.replica);
    const bool can = reaches(s, i, from) && s->nodes[from].snapshot.round >= x->node.round;
    if (can) {
        take(x, &s->nodes[from].snapshot);
        dl_node_copied(&x->node, true, s->nodes[from].snapshot.round, s->now);
        settle(x);
    } else {
        dl_node_copied(&x->node, false, 0, s->now);
    }
}

static void act(sim *s, size_t i)
{
    sim_node *x = &s->nodes[i];
    for (int turns = 0; turns < 8; turns++) {
        const dl_todo todo = dl_node_next(&x->node, s->now);
        switch (todo) {
        case DL_TODO_WAIT:
            return;
        case DL_TODO_COPY:
            copy(s, x, i);
            break;
        case DL_TODO_TRAIN:
            train(s, x);
            if (x->training) return;
            break;
        case DL_TODO_STEP:
            step(s, x, false);
            break;
        case DL_TODO_PASS:
            pass(s, x, false);
            break;
        case DL_TODO_PUBLISH:
            publish(s, x, DL_OBJECT_MODEL);
            dl_node_published(&x->node, s->now);
            break;
        case DL_TODO_AGREE:
            step(s, x, true);
            break;
        case DL_TODO_APART:
            pass(s, x, true);
            break;
        case DL_TODO_END:
            x->over = true;
            return;
        case DL_TODO_ALONE:
            HOLDS(!"somebody was there to begin with");
        }
    }
}

/* ---- the network */

static size_t member_of(const sim_node *x, size_t j)
{
    for (size_t m = 0; m < x->node.n_members; m++)
        if (number_of(x->node.members[m].beat.generation.replica) == j) return m;
    return DL_NODE_MAX;
}

static void arrive(sim *s, size_t i, size_t j)
{
    sim_node *x = &s->nodes[i];
    peer *p = &x->peers[j];
    const size_t m = member_of(x, j);
    const object *kept =
        p->want.object == DL_OBJECT_MODEL ? s->nodes[j].models : s->nodes[j].contributions;
    const object *o = &kept[p->want.round % KEPT];
    p->fetch_at = 0;
    if (!reaches(s, i, j) || (s->now < s->heals && chance(s, s->loss))) return;
    if (!o->there || o->facts.entry != p->want.round || m == DL_NODE_MAX) return;
    p->got = *o;
    dl_node_got(&x->node, m, p->want);
}

static void carry(sim *s, size_t i, size_t j)
{
    sim_node *x = &s->nodes[i];
    peer *p = &x->peers[j];
    if (s->now >= p->heard_at && reaches(s, i, j)) {
        dl_node_heard(&x->node, &s->nodes[j].node.self, s->now);
        p->heard_at = s->now + 500 * DL_MILLISECOND;
    }
    if (p->fetch_at && s->now >= p->fetch_at) arrive(s, i, j);
    const size_t m = member_of(x, j);
    if (p->fetch_at || m == DL_NODE_MAX) return;
    const dl_want want = dl_node_wants(&x->node, m, s->now);
    if (!want.object) return;
    p->want = want;
    p->fetch_at = s->now + s->delay;
}

/* A few times a minute a node is killed or comes back, or the network is partitioned or heals. */
static void harm(sim *s)
{
    const size_t i = (size_t)dl_rng_below(&s->rng, s->n);
    sim_node *x = &s->nodes[i];
    size_t up = 0;
    for (size_t k = 0; k < s->n; k++)
        up += s->nodes[k].up;
    if (s->now >= s->heals) return;
    if (chance(s, 0.004) && x->up && !x->over && up > 3) x->up = false, x->gone = chance(s, 0.1);
    if (chance(s, 0.004)) s->split = s->split ? 0 : dl_rng_u64(&s->rng);
}

static void revive(sim *s)
{
    for (size_t i = 0; i < s->n; i++) {
        sim_node *x = &s->nodes[i];
        if (!x->up && !x->gone && (s->now >= s->heals || chance(s, 0.005)))
            start(s, i, x->node.self.generation.number + 1);
    }
    if (s->now >= s->heals) s->split = 0;
}

static bool all_over(const sim *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (!s->nodes[i].over && !s->nodes[i].gone) return false;
    return true;
}

/* Invariant 3: within the virtual time given. */
static void run(sim *s, dl_time most)
{
    while (!all_over(s) && s->now < most) {
        s->now += TICK_MS * DL_MILLISECOND;
        harm(s);
        revive(s);
        for (size_t i = 0; i < s->n; i++)
            for (size_t j = 0; j < s->n; j++)
                if (i != j && s->nodes[i].up) carry(s, i, j);
        for (size_t i = 0; i < s->n; i++)
            if (s->nodes[i].up && !s->nodes[i].over) act(s, i);
    }
    HOLDS(all_over(s));
}

static double distance(const sim_node *a, const sim_node *b)
{
    double sum = 0;
    for (int k = 0; k < FLOATS; k++) {
        const double d = (double)a->state.now[0].theta[k] - (double)b->state.now[0].theta[k];
        sum += d * d;
    }
    return sqrt(sum);
}

/* ---- tests */

static dl_hash end_of(uint64_t seed, const char *exchange, double *apart)
{
    static sim s; /* large */
    dl_hash all[N_MAX] = {{{0}}};
    uint64_t steps = 0;
    open_sim(&s, seed, 5 + seed % 4, exchange);
    s.loss = 0.05;
    s.heals = 9 * DL_SECOND;
    run(&s, 600 * DL_SECOND);
    *apart = 0;
    for (size_t i = 0; i < s.n; i++) {
        all[i] = s.nodes[i].state.now[0].digest;
        steps += s.nodes[i].steps;
        for (size_t j = 0; j < i; j++)
            if (!s.nodes[i].gone && !s.nodes[j].gone)
                *apart = fmax(*apart, distance(&s.nodes[i], &s.nodes[j]));
    }
    HOLDS(steps > s.n * 5);
    close_sim(&s);
    return dl_hash_bytes(all, sizeof all);
}

TEST(with_all_an_agreement_after_the_last_round_leaves_one_model)
{
    for (uint64_t seed = 1; seed <= 150; seed++) {
        double apart;
        end_of(seed, "all", &apart);
        HOLDS(apart == 0);
    }
}

/* Each node is drawn to a target of its own, up to 13.8 from another's. Of 2,000 seeds the median
 * is 2.2 and the largest 4.04. */
TEST(pairs_stay_within_a_bound_of_each_other)
{
    for (uint64_t seed = 1001; seed <= 1100; seed++) {
        double apart;
        end_of(seed, "pairs", &apart);
        HOLDS(apart < 6);
    }
}

TEST(the_same_arrivals_give_the_same_bits)
{
    for (uint64_t seed = 2001; seed <= 2010; seed++) {
        double apart;
        const char *exchange = seed % 2 ? "pairs" : "all";
        const dl_hash first = end_of(seed, exchange, &apart);
        HOLDS(dl_hash_equal(first, end_of(seed, exchange, &apart)));
    }
}

TEST(eight_nodes_with_one_delay_each_exchange_in_about_one_delay)
{
    static sim s;
    open_sim(&s, 7, 8, "all");
    run(&s, 600 * DL_SECOND);
    for (size_t i = 0; i < 8; i++) /* the last one to train does not wait */
        HOLDS(s.nodes[i].exchange_took < 2 * s.delay + 300 * DL_MILLISECOND);
    dl_time least = DL_NEVER;
    for (size_t i = 0; i < 8; i++)
        if (s.nodes[i].exchange_took < least) least = s.nodes[i].exchange_took;
    HOLDS(least <= 2 * s.delay + 2 * TICK_MS * DL_MILLISECOND);
    close_sim(&s);
}

TEST_MAIN(with_all_an_agreement_after_the_last_round_leaves_one_model,
          pairs_stay_within_a_bound_of_each_other, the_same_arrivals_give_the_same_bits,
          eight_nodes_with_one_delay_each_exchange_in_about_one_delay)
