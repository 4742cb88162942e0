/* step_world.h - a fragment of random numbers, what members contribute to it, and all that
 * dl_outer_step needs, for tests of the fused pass. */
#ifndef DL_TESTS_STEP_WORLD_H
#define DL_TESTS_STEP_WORLD_H

#include "base/rng.h"
#include "outer/outer_step.h"

#include "check.h"

enum { MAX_MEMBERS = 7 };

typedef struct world {
    dl_manifest manifest;
    dl_codec_form form;
    dl_fragment_shape shape;
    size_t n_f32;
    dl_arena arena;
    dl_fragment_state in, out;
    dl_outer_scratch *scratch;
    dl_pool *pool;
    float *g[MAX_MEMBERS]; /* the encoded values */
    unsigned char *payload[MAX_MEMBERS], *integers[MAX_MEMBERS], *booleans[MAX_MEMBERS];
    dl_contribution_data members[MAX_MEMBERS];
    float weight[MAX_MEMBERS];
    uint64_t raw[MAX_MEMBERS];
    dl_outer_step_args args;
    dl_outer_step_facts facts;
} world;

static inline void random_floats(float *x, size_t n, uint64_t seed)
{
    dl_rng rng;
    dl_rng_init(&rng, seed, DL_STREAM(DL_STREAM_TEST, 4), 0);
    for (size_t i = 0; i < n; i++)
        x[i] = dl_rng_f32(&rng) - 0.5f;
}

static inline void lay_out(world *w, dl_arena *arena)
{
    dl_state_layout(&w->in, arena, w->shape, w->args.outer);
    dl_state_layout(&w->out, arena, w->shape, w->args.outer);
    for (int m = 0; m < MAX_MEMBERS; m++) {
        w->g[m] = DL_ARENA_ARRAY(arena, float, w->n_f32);
        w->payload[m] = DL_ARENA_ARRAY(arena, unsigned char, 4 * w->n_f32 + 1);
        w->integers[m] = DL_ARENA_ARRAY(arena, unsigned char, 8 * w->shape.n_integers);
        w->booleans[m] = DL_ARENA_ARRAY(arena, unsigned char, w->shape.n_booleans);
    }
}

/* A fragment of these tensors with random contents; weights uniform. */
static inline void open_world_of(world *w, const diloco_tensor *tensors, size_t n,
                                 const char *outer, int threads, const dl_combine_rule *rule)
{
    static dl_config config;
    dl_arena measure = {0};
    *w = (world){0};
    CHECK_OK(dl_manifest_init(&w->manifest, tensors, n, false));
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "combiner", rule->combiner->name, "test"));
    CHECK_OK(dl_config_set(&config, "server.diloco.outer_optimizer", outer, "test"));
    CHECK_OK(dl_codec_form_init(&w->form, &config, &w->manifest, 0));
    w->form.slices = dl_cut_count(w->form.n, rule->most_slices);
    w->shape = w->manifest.fragments[0];
    w->n_f32 = w->shape.n_trained + w->shape.n_averaged;
    w->args = (dl_outer_step_args){.manifest = &w->manifest,
                                   .form = &w->form,
                                   .outer = dl_outer_of(&config),
                                   .members = w->members,
                                   .weight = w->weight,
                                   .raw = w->raw};
    lay_out(w, &measure);
    CHECK_OK(dl_arena_init(&w->arena, measure.used));
    lay_out(w, &w->arena);
    CHECK_OK(dl_pool_create(&w->pool, threads));
    CHECK_OK(dl_outer_scratch_create(&w->scratch, &w->manifest, rule, MAX_MEMBERS, threads));
    CHECK_OK(dl_outer_scratch_reserve(w->scratch, &w->manifest, w->args.outer));
    random_floats(w->in.theta, w->n_f32, 1);
    for (int k = 0; k < w->args.outer->n_state; k++) {
        random_floats(w->in.outer[k], w->shape.n_trained, 2 + (uint64_t)k);
        for (size_t i = 0; i < w->shape.n_trained && k == 1; i++)
            w->in.outer[k][i] = fabsf(w->in.outer[k][i]); /* a second moment */
    }
    for (uint64_t m = 0; m < MAX_MEMBERS; m++)
        random_floats(w->g[m], w->n_f32, 10 + m);
    dl_outer_settings settings = {.lr = 0.7,
                                  .mu = 0.9,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .weight_decay = 0.1,
                                  .muon_momentum = 0.95,
                                  .muon_nesterov = true,
                                  .muon_steps = 5,
                                  .n_commits = 3};
    w->in.n_commits = 3;
    w->args.outer->scalars(w->args.scalars, &settings);
}

static inline void open_world(world *w, const diloco_tensor *tensors, size_t n, const char *outer,
                              int threads)
{
    dl_combine_rule mean = dl_combine_mean();
    open_world_of(w, tensors, n, outer, threads, &mean);
}

static inline void close_world(world *w)
{
    dl_outer_scratch_destroy(w->scratch);
    dl_pool_destroy(w->pool);
    dl_arena_deinit(&w->arena);
    dl_codec_form_deinit(&w->form);
    dl_manifest_deinit(&w->manifest);
}

/* Encode g of the first n members, whose raw weights are given; shift 1: not aligned. */
static inline void contribute(world *w, size_t n, const uint64_t *raw, size_t shift)
{
    double sum = 0;
    w->args.n_members = n;
    for (size_t m = 0; m < n; m++)
        sum += (double)raw[m];
    for (size_t m = 0; m < n; m++) {
        dl_contribution_data *c = &w->members[m];
        size_t index;
        *c = (dl_contribution_data){.payload = w->payload[m] + shift,
                                    .integers = w->integers[m],
                                    .booleans = w->booleans[m]};
        w->form.codec->encode(&w->form, w->payload[m] + shift, &c->len, w->g[m]);
        CHECK_OK(dl_codec_check(&w->form, c->payload, c->len, INFINITY, &index, &c->norm2));
        w->raw[m] = raw[m];
        w->weight[m] = (float)((double)raw[m] / sum);
    }
}

static inline diloco_status step(world *w, dl_fragment_state *out)
{
    return dl_outer_step(out, &w->in, &w->args, &w->facts, w->scratch, w->pool);
}

static inline float mean_at(const world *w, size_t i)
{
    float acc = 0;
    for (size_t m = 0; m < w->args.n_members; m++)
        acc = fmaf(w->weight[m], w->g[m][i] + 0.0f, acc);
    return acc;
}

static inline diloco_tensor vector_of(size_t n, diloco_role role, const char *name)
{
    return (diloco_tensor){.name = name, .role = role, .n_dims = 1, .shape = {n}};
}

static const uint64_t uneven[] = {3, 1, 7, 2, 5, 4, 6}, even[] = {1, 1, 1, 1, 1, 1, 1};

#endif
