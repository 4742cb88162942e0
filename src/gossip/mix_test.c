/* mix_test.c - a node's arithmetic against its definition: NoLoCo's rule as its authors' code has
 * it, the outer step of docs/architecture.md, and agreement. */
#include "gossip/mix.h"

#include "check.h"

#include <float.h>

enum { N = 7 };

typedef struct scene {
    dl_config config;
    dl_manifest manifest;
    dl_mix *mix;
    dl_state a, b; /* two nodes */
    float local_a[N], local_b[N];
    int64_t steps_a, steps_b;
} scene;

static void node(dl_state *state, const dl_manifest *manifest, const char *outer, int seed,
                 float *local)
{
    CHECK_OK(dl_state_init(state, manifest, dl_outer_find(outer), 8, 2, 1));
    for (int i = 0; i < N; i++) {
        state->now[0].theta[i] = (float)(i + seed) * 0.25f;
        state->now[0].outer[0][i] = (float)(i * seed) * 0.125f - 0.5f;
        local[i] = state->now[0].theta[i] + (float)((i * 5 + seed) % 4) * 0.0625f - 0.1f;
    }
    dl_state_rehash(state, NULL);
}

static void begin_with(scene *s, const char *exchange, const char *outer, const char *combiner)
{
    static const diloco_tensor tensors[] = {
        {.name = "w", .dtype = DILOCO_F32, .n_dims = 1, .shape = {N}},
        {.name = "steps", .dtype = DILOCO_I64, .role = DILOCO_BUFFER, .n_dims = 1, .shape = {1}}};
    *s = (scene){.steps_a = 10, .steps_b = 13};
    dl_config_init(&s->config);
    CHECK_OK(dl_config_set(&s->config, "swarm.exchange", exchange, "test"));
    CHECK_OK(dl_config_set(&s->config, "server.diloco.outer_optimizer", outer, "test"));
    CHECK_OK(dl_config_set(&s->config, "server.diloco.outer_momentum", "0.5", "test"));
    CHECK_OK(dl_config_set(&s->config, "server.diloco.combiner", combiner, "test"));
    CHECK_OK(dl_manifest_init(&s->manifest, tensors, 2, false));
    CHECK_OK(dl_mix_create(&s->mix, &s->config, &s->manifest, NULL));
    node(&s->a, &s->manifest, outer, 1, s->local_a);
    node(&s->b, &s->manifest, outer, 3, s->local_b);
}

static void begin(scene *s, const char *exchange, const char *outer)
{
    begin_with(s, exchange, outer, "mean");
}

static void end(scene *s)
{
    dl_state_deinit(&s->a);
    dl_state_deinit(&s->b);
    dl_mix_destroy(s->mix);
    dl_manifest_deinit(&s->manifest);
}

typedef struct sent {
    dl_contribution facts;
    float floats[2 * N];
    int64_t integer;
    dl_mix_input input;
} sent;

static void send_it(scene *s, sent *out, dl_object object, dl_state *state, float *local,
                    int64_t *steps)
{
    void *data[2] = {local, steps};
    dl_span spans[3];
    size_t n;
    out->facts = (dl_contribution){.stats.samples = 4, .stats.steps = 2};
    CHECK_OK(dl_mix_own(s->mix, object, state, data, &out->facts, &out->input, spans, &n));
    memcpy(out->floats, out->input.data.payload, out->input.data.len);
    memcpy(&out->integer, out->input.data.integers, sizeof out->integer);
    out->input.data.payload = (const unsigned char *)out->floats;
    out->input.data.integers = (const unsigned char *)&out->integer;
    out->input.data.booleans = (const unsigned char *)(&out->integer + 1);
}

TEST(pairs_make_nolocos_step_with_the_sign_of_its_code)
{
    scene s;
    sent a, b;
    dl_mix_facts facts;
    begin(&s, "pairs", "momentum");
    float phi[N], v[N];
    memcpy(phi, s.a.now[0].theta, sizeof phi);
    memcpy(v, s.a.now[0].outer[0], sizeof v);
    send_it(&s, &a, DL_OBJECT_CONTRIBUTION, &s.a, s.local_a, &s.steps_a);
    send_it(&s, &b, DL_OBJECT_CONTRIBUTION, &s.b, s.local_b, &s.steps_b);
    CHECK_OK(dl_mix_step(s.mix, &s.a, (dl_mix_input[]){a.input, b.input}, 2, 0, 0, &facts));
    for (int i = 0; i < N; i++) {
        /* m = a m - b mean g + b (mean phi - phi_i), phi += m, with m = -b v */
        const double alpha = 0.5, beta = 0.7, other = (double)s.b.now[0].theta[i];
        const double g = (phi[i] - s.local_a[i] + other - s.local_b[i]) / 2;
        const double m = alpha * (-beta * v[i]) - beta * g + beta * ((phi[i] + other) / 2 - phi[i]);
        CHECK_NEAR(phi[i] + m, s.a.now[0].theta[i], 1e-6);
        CHECK_NEAR(m, -beta * (double)s.a.now[0].outer[0][i], 1e-6);
    }
    CHECK_INT(1, facts.n_alike);
    CHECK(facts.outer.divergence > 0);
    end(&s);
}

TEST(all_make_the_outer_step_of_a_log_from_the_nodes_own_model)
{
    scene s;
    sent a, b;
    dl_mix_facts facts;
    begin(&s, "all", "nesterov");
    float theta[N], v[N];
    memcpy(theta, s.a.now[0].theta, sizeof theta);
    memcpy(v, s.a.now[0].outer[0], sizeof v);
    send_it(&s, &a, DL_OBJECT_CONTRIBUTION, &s.a, s.local_a, &s.steps_a);
    send_it(&s, &b, DL_OBJECT_CONTRIBUTION, &s.b, s.local_b, &s.steps_b);
    CHECK_OK(dl_mix_step(s.mix, &s.a, (dl_mix_input[]){a.input, b.input}, 2, 0, 0, &facts));
    for (int i = 0; i < N; i++) {
        const float G = fmaf(0.5f, b.floats[i], 0.5f * a.floats[i]), u = fmaf(0.5f, v[i], G);
        CHECK(s.a.now[0].theta[i] == fmaf(-0.7f, fmaf(0.5f, u, G), theta[i]));
    }
    CHECK_INT(12, s.a.now[0].integers[0]); /* 11.5, rounded half up */
    CHECK_INT(1, s.a.now[0].n_commits);
    end(&s);
}

/* The trimmed mean of 5 members needs 5; the fifth sent what is not finite and is out. */
TEST(a_struck_member_leaves_a_robust_step_of_the_others)
{
    scene s;
    sent x[4];
    dl_mix_facts facts;
    dl_mix_input inputs[4];
    begin_with(&s, "all", "nesterov", "trimmed_mean");
    for (int i = 0; i < 4; i++) {
        s.local_a[0] += 0.25f;
        send_it(&s, &x[i], DL_OBJECT_CONTRIBUTION, &s.a, s.local_a, &s.steps_a);
        inputs[i] = x[i].input;
    }
    CHECK_STATUS(DILOCO_ENUMERIC, dl_mix_step(s.mix, &s.a, inputs, 4, 0, 0, &facts));
    CHECK_OK(dl_mix_step(s.mix, &s.a, inputs, 4, 1, 0, &facts));
    CHECK_STR("trimmed_mean", facts.outer.combiner);
    CHECK(!facts.outer.fell_back);
    end(&s);
}

TEST(an_agreement_leaves_the_same_bits_at_both)
{
    scene s;
    sent a, b;
    dl_mix_facts facts;
    begin(&s, "all", "nesterov");
    send_it(&s, &a, DL_OBJECT_MODEL, &s.a, s.local_a, &s.steps_a);
    send_it(&s, &b, DL_OBJECT_MODEL, &s.b, s.local_b, &s.steps_b);
    const float mean = (s.a.now[0].theta[2] + s.b.now[0].theta[2]) / 2;
    CHECK_OK(dl_mix_agree(s.mix, &s.a, (dl_mix_input[]){a.input, b.input}, 2, 0, 4, &facts));
    CHECK_OK(dl_mix_agree(s.mix, &s.b, (dl_mix_input[]){a.input, b.input}, 2, 0, 4, &facts));
    CHECK(dl_hash_equal(s.a.now[0].digest, s.b.now[0].digest));
    CHECK(s.a.now[0].theta[2] == mean);
    CHECK_BYTES(s.a.now[0].outer[0], s.b.now[0].outer[0], N * sizeof(float));
    end(&s);
}

TEST(non_finite_values_are_not_sent_and_their_tensor_is_named)
{
    scene s;
    sent a = {.integer = 0};
    dl_span spans[3];
    size_t n;
    begin(&s, "all", "nesterov");
    void *data[2] = {s.local_a, &s.steps_a};
    s.local_a[3] = NAN;
    CHECK_STATUS(DILOCO_ENUMERIC, dl_mix_own(s.mix, DL_OBJECT_CONTRIBUTION, &s.a, data, &a.facts,
                                             &a.input, spans, &n));
    CHECK_CONTAINS("w[3]", diloco_error_text());
    end(&s);
}

TEST(a_step_that_overflows_is_refused_and_leaves_the_model)
{
    scene s;
    sent a, b;
    dl_mix_facts facts;
    begin(&s, "all", "nesterov");
    send_it(&s, &a, DL_OBJECT_CONTRIBUTION, &s.a, s.local_a, &s.steps_a);
    send_it(&s, &b, DL_OBJECT_CONTRIBUTION, &s.b, s.local_b, &s.steps_b);
    const dl_hash before = s.a.now[0].digest;
    b.floats[0] = FLT_MAX;
    CHECK_STATUS(DILOCO_OK, dl_mix_step(s.mix, &s.b, &a.input, 1, 0, 0, &facts));
    a.floats[0] = FLT_MAX;
    s.a.now[0].outer[0][0] = FLT_MAX;
    CHECK_STATUS(DILOCO_ENUMERIC,
                 dl_mix_step(s.mix, &s.a, (dl_mix_input[]){a.input, b.input}, 2, 0, 0, &facts));
    CHECK(dl_hash_equal(before, s.a.now[0].digest));
    end(&s);
}

TEST_MAIN(pairs_make_nolocos_step_with_the_sign_of_its_code,
          all_make_the_outer_step_of_a_log_from_the_nodes_own_model,
          a_struck_member_leaves_a_robust_step_of_the_others,
          an_agreement_leaves_the_same_bits_at_both,
          non_finite_values_are_not_sent_and_their_tensor_is_named,
          a_step_that_overflows_is_refused_and_leaves_the_model)
