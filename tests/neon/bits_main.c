/* bits_main.c - the digests that fixed inputs give, on every instruction set of this machine.
 *
 * The numbers below were made by plain C; gcc, clang, AVX2, AVX-512 and NEON must all give
 * them (docs/architecture.md section 2). No test library, so that it can be built for another
 * processor and run under qemu-user; CTest does both. Exit 0: all equal. */
#include "base/rng.h"
#include "outer/outer_step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TRAINED = 300007, N_AVERAGED = 1001, N = N_TRAINED + N_AVERAGED, MEMBERS = 3, MANY = 7 };

static float theta[N], state[DL_OUTER_MAX_STATE][N], g[MANY][N], local[N];
static unsigned char payload[MANY][4 * N];

/* Finite floats: every eighth a denormal, every ninth a zero of either sign. */
static void fill(float *x, size_t n, uint64_t seed)
{
    dl_rng rng;
    dl_rng_init(&rng, seed, DL_STREAM(DL_STREAM_TEST, 5), 0);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = dl_rng_u32(&rng);
        bits = (bits & 0x807fffff) | (96 + (bits >> 23 & 31)) << 23;
        if (i % 8 == 1) bits &= 0x807fffff;
        if (i % 9 == 2) bits &= 0x80000000;
        memcpy(&x[i], &bits, sizeof bits);
    }
}

static const struct golden {
    const char *outer, *state, *adopted; /* digests after the step */
} goldens[] = {
    {"sgd", "edbb33d663e644abc7e7b1adc22075b9", "4944c794660ed0885013e0f9589dee20"},
    {"momentum", "da9e33744efc12ca1991188981d81f2f", "4080dd949a719012c84c34f2000cceec"},
    {"nesterov", "9cd550ae35455c68b53465cacfb7a363", "61f3901881143236107bd74164959289"},
    {"adamw", "cb39c87c6b35dde865f58dd379e0ab1c", "818c82b48a2ca2a987bb3895f41d36f8"},
    {"adam", "19ab6b5b70fe0929ec90560518203478", "59cbadbf387866678e3b91aa9852f13a"},
    {"fedadam", "687d7b66cd57fb37d8716fcae2d2c47d", "9ae5663344f3373d0553ac84d491afc8"},
    {"fedyogi", "3f1613ecfb580b8eeb5f1888d8c5bfc7", "788177ab60d1c633ec46ec507b63812a"},
    {"fedadagrad", "7e9c0d4630b1a4d4d32cd2561feb1a2e", "e4d2af64b749d1e47575beebd36f2af6"},
    {"delayed_nesterov", "2264f753e05e04a9f1329e58d00c204a", "c6b3cbc0085a727fb9dc8dd221ff2a89"},
    {"schedule_free", "5ae49093555e24b1fe57b9edbfd8ca06", "897d5553b1312f3a196a9e276df1739d"},
    {"muon", "d3150b25ef3ba5d2d172021f97e43344", "dbdac4b96aa737638f051f3b494123c7"},
};
enum { N_GOLDENS = sizeof goldens / sizeof goldens[0] };

static const char facts_golden[] =
    "aabc920d438108c2e40ca8c4d642d711"; /* of G alone: the same for every rule */

static int check(const char *what, dl_hash got, const char *want)
{
    char hex[DL_HASH_HEX + 1];
    dl_hash_to_hex(hex, got);
    if (strcmp(hex, want) == 0) return 0;
    printf("%s, %s: expected %s, got %s\n", dl_isa_name(dl_isa_chosen()), what, want, hex);
    return 1;
}

static void fail(void)
{
    printf("%s\n", diloco_error_text());
    exit(1);
}

static int check_kernels(void)
{
    double sums[2];
    fill(theta, N, 1);
    fill(local, N, 2);
    dl_fp_state saved = dl_fp_enter();
    dl_delta(g[0], theta, local, N);
    dl_adopt(local, theta, 0.3f, N);
    sums[0] = dl_norm2(theta, N);
    sums[1] = dl_dot(theta, local, N);
    dl_fp_leave(saved);
    return check("delta", dl_digest_bytes(g[0], sizeof g[0]), "ed7116a9e3df9ce0e20d74036237bc18") +
           check("adopt", dl_digest_bytes(local, sizeof local),
                 "d1e43b840954c900f5dd1c906ad31b3c") +
           check("sums", dl_hash_bytes(sums, sizeof sums), "388f4af4b589835519fbec20f97b6df0");
}

/* Of seven members; the state after an sgd step. */
static const struct combined {
    const char *combiner, *plain, *mixed; /* mixed: after nnm; NULL: it uses weights */
} combined[] = {
    {"mean", "ee9742c21a384854d0bcd9da09543c34", NULL},
    {"clipped_mean", "bfad492b5e12226d42c1897b41d1115f", NULL},
    {"rda", "293b919a83f68844cf09553bf1bd2d0b", NULL},
    {"median", "f175eefe0fe7fe0fc259dc3a246ee4d9", "43ada671d488a747266492178613e734"},
    {"trimmed_mean", "cf1e273f9304ffed2903d8cc2f80a043", "1a4de08ed7d90645918081751673c43f"},
    {"krum", "7a466722fcababd316f9bcc111facaa4", "43ada671d488a747266492178613e734"},
    {"multi_krum", "43ada671d488a747266492178613e734", "fc54f1d9284e2c6bdb613b5932234120"},
    {"bulyan", "f40013d67caea2aa574ea8c7f1f4ddde", "91de2f4b697f549549e894c977ef6d9c"},
    {"geometric_median", "45e0f62e6ba4d70c87e08cb3b4d2daae", "43ada671d488a747266492178613e734"},
    {"centered_clip", "cbd130cc8fa687d1297b23445f1e5d67", "20420e3c1d9dd4111580eb1efd084a4c"},
};
enum { N_COMBINED = sizeof combined / sizeof combined[0] };

static const struct codec_golden {
    const char *codec, *values, *payload, *decoded; /* digests */
} codecs[] = {
    {"f32", "f32", "51854a392d11d0e21a27bb061e8b7f4b", "51854a392d11d0e21a27bb061e8b7f4b"},
    {"bf16", "f32", "f014ff6d51ac8d185a8d8f2781b2425a", "9dbc66a70d334332ee06593a53903f6a"},
    {"f16", "f32", "bda6317a678e8b81b4410b8bdaab6a78", "0ea77db2c5b9f212bda7db918db7dc0f"},
    {"int8", "f32", "492e8625506a6658b279c4dd81831971", "951d76138a8ffb4e9449437a1b7565ef"},
    {"int4", "f32", "a756975a11e7a18f643eae205c7326c9", "86cf7da1019d62b98b99fe4cb5f0beda"},
    {"int2", "f32", "4cdec5686e9af3c03113cd008d7aebb3", "3a938024722e4c1e084c92b9e6db1353"},
    {"e3m0", "f32", "a26bace06a284704910624d194a1cb2c", "4a8187da1e7e7674bbb94928c6db87c0"},
    {"sign", "f32", "bf9f119606c9e881dc31b69c73e9954a", "7d3353eae226e5ab6e9894426cdc8351"},
    {"prune", "f32", "9422f4577c69631c26ff5cb8def559b0", "31917c320dfb473535a30788876df2e1"},
    {"topk", "f32", "db1708cd2267e32a12d5d3d18d5730fa", "1cbf93b5f8d6a715c7c42f7d490c2760"},
    {"topk", "int8", "731ae0c37e167065e522bca3996e095e", "3f1e3c306060785f0f737d728eaac74e"},
    {"topk", "2bit", "2ec349936220efa55a77139c2a6879ab", "e6d86d01bb7b025b890614558dbc3248"},
};

/* 1, and a line about it, where no row has this name, which is its first member. */
static int lacks_golden(const char *name, const void *rows, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(*(const char *const *)((const char *)rows + i * size), name)) return 0;
    printf("no golden for %s\n", name);
    return 1;
}
#define LACKS_GOLDEN(name, rows) lacks_golden(name, rows, sizeof rows / sizeof *rows, sizeof *rows)

/* Every outer optimizer, combiner and codec has its golden. */
static int check_complete(void)
{
    int missing = 0;
    for (size_t i = 0; dl_outer_at(i); i++)
        missing += LACKS_GOLDEN(dl_outer_at(i)->name, goldens);
    for (size_t i = 0; dl_combiner_at(i); i++)
        missing += LACKS_GOLDEN(dl_combiner_at(i)->name, combined);
    for (size_t i = 0; dl_codec_at(i); i++)
        missing += LACKS_GOLDEN(dl_codec_at(i)->name, codecs);
    return missing;
}

static int check_codec(const dl_manifest *manifest, const struct codec_golden *want)
{
    static dl_config config;
    static unsigned char room[5 * N];
    dl_codec_form form;
    size_t len, index;
    double norm2;
    char name[64];
    dl_config_init(&config);
    if (dl_config_set(&config, "codec", want->codec, "bits") ||
        dl_config_set(&config, "server.diloco.codec_values", want->values, "bits") ||
        dl_codec_form_init(&form, &config, manifest, 0) || form.room > sizeof room)
        fail();
    fill(g[0], N, 20);
    form.codec->encode(&form, room, &len, g[0]);
    if (dl_codec_check(&form, room, len, 100, &index, &norm2)) fail();
    dl_codec_round_trip(&form, g[1], room, len);
    dl_codec_form_deinit(&form);
    snprintf(name, sizeof name, "%s %s, payload", want->codec, want->values);
    int wrong = check(name, dl_digest_bytes(room, len), want->payload);
    snprintf(name, sizeof name, "%s %s, decoded", want->codec, want->values);
    return wrong + check(name, dl_digest_bytes(g[1], sizeof g[1]), want->decoded);
}

/* The first n members, encoded. */
static void contribute(const dl_codec_form *form, dl_contribution_data *members, size_t n)
{
    for (size_t m = 0; m < n; m++) {
        size_t len, index;
        double norm2;
        fill(g[m], N, 10 + m);
        form->codec->encode(form, payload[m], &len, g[m]);
        if (dl_codec_check(form, payload[m], len, INFINITY, &index, &norm2)) fail();
        members[m] = (dl_contribution_data){.payload = payload[m], .len = len, .norm2 = norm2};
    }
}

/* The whole step: state, local tensors and facts. */
static int check_step(const dl_manifest *manifest, const dl_codec_form *form,
                      const struct golden *want)
{
    dl_outer_scratch *scratch;
    const dl_combine_rule mean = dl_combine_mean();
    static const uint64_t raw[MEMBERS] = {3, 1, 7};
    static const float weight[MEMBERS] = {(float)(3.0 / 11), (float)(1.0 / 11), (float)(7.0 / 11)};
    dl_contribution_data members[MEMBERS];
    dl_local_tensor where = {local, 0, N, DL_TRAINED};
    dl_fragment_state s = {.theta = theta, .n_commits = 3};
    dl_outer_step_facts facts;
    dl_outer_settings settings = {.lr = 0.7,
                                  .mu = 0.9,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .weight_decay = 0.1,
                                  .muon_momentum = 0.95,
                                  .muon_nesterov = true,
                                  .muon_steps = 5,
                                  .outer_beta1 = 0.9,
                                  .outer_beta2 = 0.99,
                                  .outer_eps = 0.1,
                                  .outer_c = 0.05,
                                  .outer_beta = 0.1,
                                  .outer_buffer = 4,
                                  .n_commits = 3};
    dl_outer_step_args args = {.manifest = manifest,
                               .form = form,
                               .outer = dl_outer_find(want->outer),
                               .n_members = MEMBERS,
                               .members = members,
                               .weight = weight,
                               .raw = raw,
                               .local = &where,
                               .n_local = 1,
                               .local_mix = 0.25f};
    fill(theta, N, 1);
    fill(local, N, 2);
    for (int k = 0; k < args.outer->n_state; k++) {
        fill(state[k], N, 3 + (uint64_t)k);
        for (size_t i = 0; i < N && k == 1; i++)
            state[k][i] = fabsf(state[k][i]); /* a second moment */
        s.outer[k] = state[k];
    }
    contribute(form, members, MEMBERS);
    args.outer->scalars(args.scalars, &settings);
    if (dl_outer_scratch_create(&scratch, manifest, &mean, MEMBERS, 1) ||
        dl_outer_scratch_reserve(scratch, manifest, args.outer))
        fail();
    if (dl_outer_step(&s, &s, &args, &facts, scratch, NULL)) fail();
    dl_outer_scratch_destroy(scratch);
    double numbers[] = {facts.aggregated_norm, facts.similarity, facts.divergence};
    char name[64];
    snprintf(name, sizeof name, "%s, state", want->outer);
    int wrong = check(name, s.digest, want->state);
    snprintf(name, sizeof name, "%s, adopted", want->outer);
    wrong += check(name, dl_digest_bytes(local, sizeof local), want->adopted);
    snprintf(name, sizeof name, "%s, facts", want->outer);
    return wrong + check(name, dl_hash_bytes(numbers, sizeof numbers), facts_golden);
}

static int check_combiner(const dl_manifest *manifest, const dl_codec_form *form,
                          const struct combined *want, dl_mixing mixing)
{
    static const uint64_t raw[MANY] = {1, 1, 1, 1, 1, 1, 1};
    dl_contribution_data members[MANY];
    dl_combine_rule rule = {.combiner = dl_combiner_find(want->combiner),
                            .mixing = mixing,
                            .trim = 200000000,
                            .byzantine = 1,
                            .clip_radius = 1};
    dl_outer_scratch *scratch;
    dl_outer_step_facts facts;
    dl_fragment_state s = {.theta = theta, .outer = {state[0]}};
    float weight[MANY];
    char name[64];
    fill(theta, N, 1);
    fill(state[0], N, 3);
    for (size_t m = 0; m < MANY; m++)
        weight[m] = (float)((double)(m + 1) / 28);
    contribute(form, members, MANY);
    dl_outer_step_args args = {.manifest = manifest,
                               .form = form,
                               .outer = dl_outer_beside("sgd", rule.combiner),
                               .scalars = {0.7f},
                               .n_members = MANY,
                               .members = members,
                               .weight = weight,
                               .raw = raw};
    if (dl_outer_scratch_create(&scratch, manifest, &rule, MANY, 1) ||
        dl_outer_step(&s, &s, &args, &facts, scratch, NULL))
        fail();
    dl_outer_scratch_destroy(scratch);
    snprintf(name, sizeof name, "%s%s", mixing ? "nnm, " : "", want->combiner);
    return check(name, s.digest, mixing ? want->mixed : want->plain);
}

int main(void)
{
    diloco_tensor tensors[] = {
        {.name = "b", .n_dims = 1, .shape = {7}},
        {.name = "w", .n_dims = 2, .shape = {300, 1000}},
        {.name = "f", .role = DILOCO_FROZEN, .n_dims = 1, .shape = {N_AVERAGED}}};
    /* The same elements in several matrices, of which muon steps the two in the middle whole. */
    diloco_tensor layers[] = {
        tensors[0],
        {.name = "in", .n_dims = 2, .shape = {90, 1000}},
        {.name = "wide", .n_dims = 2, .shape = {30, 1000}},
        {.name = "tall", .n_dims = 2, .shape = {600, 50}},
        {.name = "out", .n_dims = 2, .shape = {150, 1000}},
        tensors[2],
    };
    static dl_config config;
    dl_manifest manifest, deep;
    dl_codec_form form;
    int wrong = check_complete();
    dl_config_init(&config);
    if (dl_manifest_init(&manifest, tensors, 3, false) ||
        dl_manifest_init(&deep, layers, 6, false) ||
        dl_codec_form_init(&form, &config, &manifest, 0))
        fail();
    for (int isa = 0; isa < DL_N_ISA; isa++) {
        if (!dl_isa_available((dl_isa)isa)) continue;
        dl_isa_use((dl_isa)isa);
        wrong += check_kernels();
        for (size_t k = 0; k < N_GOLDENS; k++)
            wrong += check_step(&deep, &form, &goldens[k]);
        for (size_t k = 0; k < sizeof codecs / sizeof codecs[0]; k++)
            wrong += check_codec(&manifest, &codecs[k]);
        for (size_t k = 0; k < N_COMBINED; k++) {
            wrong += check_combiner(&manifest, &form, &combined[k], DL_MIX_NONE);
            if (combined[k].mixed)
                wrong += check_combiner(&manifest, &form, &combined[k], DL_MIX_NNM);
        }
        printf("%s: %s\n", dl_isa_name((dl_isa)isa), wrong ? "wrong" : "the bits of the goldens");
    }
    dl_codec_form_deinit(&form);
    dl_manifest_deinit(&deep);
    dl_manifest_deinit(&manifest);
    return wrong != 0;
}
