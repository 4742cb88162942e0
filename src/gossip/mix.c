/* mix.c - see mix.h.
 *
 * A model to agree on has a manifest of its own: the state's float32 array, then each outer vector,
 * all as one region. So the function that combines contributions combines models, too. */
#include "gossip/mix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = DL_NODE_MAX + 1 };

struct dl_mix {
    const dl_config *config;
    const dl_manifest *manifest;
    dl_manifest model; /* owned; of a model to agree on */
    dl_pool *pool;
    const dl_outer *outer;
    bool pairs;
    dl_codec_form form, plain, whole; /* movements; parameters; models */
    dl_outer_scratch *step, *agree;
    float *own;             /* f32 of the model: the encoded values */
    unsigned char *payload; /* of the contribution */
    unsigned char *discrete;
    float *moved; /* pairs: x of two members */
    float *agreed;
    unsigned char *agreed_discrete;
    dl_contribution_data members[MEMBERS];
    dl_member_facts facts[MEMBERS];
    uint64_t raw[MEMBERS];
    float weight[MEMBERS];
};

/* Floats of theta and the averaged buffers. */
static size_t n_floats(const dl_mix *m)
{
    return m->manifest->fragments[0].n_trained + m->manifest->fragments[0].n_averaged;
}

/* Floats of a model to agree on. */
static size_t n_whole(const dl_mix *m)
{
    return n_floats(m) + (size_t)m->outer->n_state * m->manifest->fragments[0].n_trained;
}

static size_t discrete_bytes(const dl_mix *m)
{
    const dl_fragment_shape *s = &m->manifest->fragments[0];
    return s->n_integers * sizeof(int64_t) + s->n_booleans;
}

/* ---- making it ---------------------------------------------------------------------------- */

/* One tensor a region and vector: errors in a model are reported by these names. */
static diloco_status lay_out_model(dl_mix *m)
{
    const dl_fragment_shape *s = &m->manifest->fragments[0];
    static const char *const vectors[DL_OUTER_MAX_STATE] = {"outer vector 1", "outer vector 2",
                                                            "outer vector 3"};
    diloco_tensor t[3 + DL_OUTER_MAX_STATE];
    size_t n = 0;
    t[n++] = (diloco_tensor){.name = "theta", .n_dims = 1, .shape = {n_floats(m)}};
    for (int k = 0; k < m->outer->n_state; k++)
        t[n++] = (diloco_tensor){.name = vectors[k], .n_dims = 1, .shape = {s->n_trained}};
    if (s->n_integers)
        t[n++] = (diloco_tensor){.name = "integers",
                                 .dtype = DILOCO_I64,
                                 .role = DILOCO_BUFFER,
                                 .n_dims = 1,
                                 .shape = {s->n_integers}};
    if (s->n_booleans)
        t[n++] = (diloco_tensor){.name = "booleans",
                                 .dtype = DILOCO_BOOL,
                                 .role = DILOCO_BUFFER,
                                 .n_dims = 1,
                                 .shape = {s->n_booleans}};
    return dl_manifest_init(&m->model, t, n, false);
}

/* Parameters and models are always float32, whatever the run's codec is. */
static diloco_status make_forms(dl_mix *m)
{
    dl_config *plain = malloc(sizeof *plain);
    if (!plain) return dl_fail(DILOCO_ENOMEM, "out of memory for a codec");
    *plain = *m->config;
    snprintf(plain->codec, sizeof plain->codec, "f32");
    diloco_status status = dl_codec_form_init(&m->form, m->config, m->manifest, 0);
    if (!status) status = dl_codec_form_init(&m->plain, plain, m->manifest, 0);
    if (!status) status = dl_codec_form_init(&m->whole, plain, &m->model, 0);
    free(plain);
    return status;
}

/* Takes all memory once. A byte more than needed keeps calloc() from a size of 0. */
static diloco_status take_memory(dl_mix *m)
{
    const size_t n = n_floats(m), whole = n_whole(m), discrete = discrete_bytes(m);
    m->own = calloc(whole, sizeof *m->own);
    m->payload = calloc(1, dl_size_max(m->form.room, m->whole.room));
    m->discrete = calloc(1, discrete + 1);
    m->moved = calloc(m->pairs ? 2 * n : 1, sizeof *m->moved);
    m->agreed = calloc(whole, sizeof *m->agreed);
    m->agreed_discrete = calloc(1, discrete + 1);
    if (!m->own || !m->payload || !m->discrete || !m->moved || !m->agreed || !m->agreed_discrete)
        return dl_fail(DILOCO_ENOMEM, "not enough memory to exchange %zu parameters", n);
    return DILOCO_OK;
}

static diloco_status create(dl_mix *m)
{
    dl_combine_rule rule;
    DL_TRY(lay_out_model(m));
    DL_TRY(make_forms(m));
    DL_TRY(take_memory(m));
    DL_TRY(dl_combine_rule_of(&rule, m->config));
    DL_TRY(dl_outer_scratch_create(&m->step, m->manifest, &rule, m->pairs ? 2 : MEMBERS,
                                   dl_pool_size(m->pool)));
    rule.rescale = false; /* that is of movements */
    return dl_outer_scratch_create(&m->agree, &m->model, &rule, MEMBERS, dl_pool_size(m->pool));
}

diloco_status dl_mix_create(dl_mix **out, const dl_config *config, const dl_manifest *manifest,
                            dl_pool *pool)
{
    *out = NULL;
    DL_ASSERT(manifest->n_fragments == 1);
    dl_mix *m = calloc(1, sizeof *m);
    if (!m) return dl_fail(DILOCO_ENOMEM, "not enough memory to exchange");
    m->config = config;
    m->manifest = manifest;
    m->pool = pool;
    m->outer = dl_outer_find(config->outer_optimizer);
    m->pairs = config->swarm_exchange == DL_SWARM_PAIRS;
    DL_ASSERT(m->outer);
    for (size_t i = 0; i < manifest->n_tensors; i++) /* nodes train the program's own models */
        DL_ASSERT(dl_dtype_stored(manifest->tensors[i].dtype) == manifest->tensors[i].dtype);
    const diloco_status status = create(m);
    if (status)
        dl_mix_destroy(m);
    else
        *out = m;
    return status;
}

void dl_mix_destroy(dl_mix *m)
{
    if (!m) return;
    dl_outer_scratch_destroy(m->step);
    dl_outer_scratch_destroy(m->agree);
    dl_codec_form_deinit(&m->form);
    dl_codec_form_deinit(&m->plain);
    dl_codec_form_deinit(&m->whole);
    dl_manifest_deinit(&m->model);
    free(m->own);
    free(m->payload);
    free(m->discrete);
    free(m->moved);
    free(m->agreed);
    free(m->agreed_discrete);
    free(m);
}

/* ---- tensors and states ------------------------------------------------------------------- */

/* Returns the address of a tensor of the manifest in a state. */
static void *place(const dl_fragment_state *s, const dl_manifest_tensor *t)
{
    if (t->region == DL_INTEGERS) return s->integers + t->offset;
    if (t->region == DL_BOOLEANS) return s->booleans + t->offset;
    return s->theta + t->offset;
}

void dl_mix_adopt(const dl_state *state, void *const *data)
{
    for (size_t i = 0; i < state->manifest->n_tensors; i++) {
        const dl_manifest_tensor *t = &state->manifest->tensors[i];
        memcpy(data[i], place(&state->now[0], t), t->count * dl_dtype_size(t->dtype));
    }
}

void dl_mix_begin(dl_state *state, void *const *data)
{
    for (size_t i = 0; i < state->manifest->n_tensors; i++) {
        const dl_manifest_tensor *t = &state->manifest->tensors[i];
        memcpy(place(&state->now[0], t), data[i], t->count * dl_dtype_size(t->dtype));
    }
    dl_state_rehash(state, NULL);
    state->now[0].before = state->now[0].digest;
}

/* ---- this node's own ---------------------------------------------------------------------- */

static diloco_status must_be_finite(const dl_mix *m, const dl_manifest *manifest, size_t n)
{
    size_t index;
    const size_t bad = dl_first_bad(m->own, n, DL_MIX_BOUND);
    if (bad == n) return DILOCO_OK;
    const dl_manifest_tensor *t = dl_manifest_locate(manifest, 0, bad, &index);
    return dl_fail(DILOCO_ENUMERIC,
                   "%s[%zu] is %g: this node's parameters are not usable; remove its folder to "
                   "join again from a neighbour's model",
                   t->name, index, (double)m->own[bad]);
}

/* Writes the movement into m->own and the values of integers and booleans into m->discrete. With
 * pairs m->own then gets the parameters themselves; *norm is that of the movement in both cases. */
static void gather(dl_mix *m, const dl_state *state, void *const *data, double *norm)
{
    const dl_fragment_state *s = &state->now[0];
    unsigned char *booleans = m->discrete + m->manifest->fragments[0].n_integers * sizeof(int64_t);
    const dl_fp_state fp = dl_fp_enter();
    for (size_t i = 0; i < m->manifest->n_tensors; i++) {
        const dl_manifest_tensor *t = &m->manifest->tensors[i];
        if (t->region == DL_INTEGERS)
            memcpy(m->discrete + t->offset * sizeof(int64_t), data[i], t->count * sizeof(int64_t));
        else if (t->region == DL_BOOLEANS)
            memcpy(booleans + t->offset, data[i], t->count);
        else
            dl_delta(m->own + t->offset, s->theta + t->offset, data[i], t->count);
    }
    *norm = sqrt(dl_norm2(m->own, n_floats(m)));
    for (size_t i = 0; m->pairs && i < m->manifest->n_tensors; i++) {
        const dl_manifest_tensor *t = &m->manifest->tensors[i];
        if (t->region <= DL_AVERAGED)
            memcpy(m->own + t->offset, data[i], t->count * sizeof *m->own);
    }
    dl_fp_leave(fp);
}

static void gather_model(dl_mix *m, const dl_state *state)
{
    const dl_fragment_shape *s = &m->manifest->fragments[0];
    const dl_fragment_state *now = &state->now[0];
    const size_t n = n_floats(m), integers = s->n_integers * sizeof(int64_t);
    memcpy(m->own, now->theta, n * sizeof *m->own);
    for (int k = 0; k < m->outer->n_state; k++)
        memcpy(m->own + n + (size_t)k * s->n_trained, now->outer[k], s->n_trained * sizeof *m->own);
    if (integers) memcpy(m->discrete, now->integers, integers);
    if (s->n_booleans) memcpy(m->discrete + integers, now->booleans, s->n_booleans);
}

dl_contribution_expect dl_mix_expect(const dl_mix *m, dl_object object)
{
    const bool model = object == DL_OBJECT_MODEL;
    const dl_manifest *manifest = model ? &m->model : m->manifest;
    return (dl_contribution_expect){.manifest = m->manifest->digest,
                                    .shape = manifest->fragments[0],
                                    .form = model      ? &m->whole
                                            : m->pairs ? &m->plain
                                                       : &m->form,
                                    .codec = model      ? DL_CODEC_MODEL
                                             : m->pairs ? "parameters"
                                                        : NULL,
                                    .any_base = true,
                                    .bound = DL_MIX_BOUND,
                                    .tensors = manifest};
}

diloco_status dl_mix_own(dl_mix *m, dl_object object, const dl_state *state, void *const *data,
                         dl_contribution *facts, dl_mix_input *input, dl_span spans[3],
                         size_t *n_spans)
{
    const dl_contribution_expect e = dl_mix_expect(m, object);
    const char *codec = e.codec ? e.codec : e.form->codec->name;
    const size_t discrete = discrete_bytes(m);
    size_t len, index;
    if (object == DL_OBJECT_MODEL)
        gather_model(m, state);
    else
        gather(m, state, data, &facts->norm);
    DL_TRY(must_be_finite(m, e.tensors, e.form->n));
    DL_TRY(dl_codec_encode(e.form, m->payload, &len, m->own, NULL));
    dl_digest_stream digest;
    dl_digest_begin(&digest);
    dl_digest_add(&digest, m->payload, len);
    if (discrete) dl_digest_add(&digest, m->discrete, discrete);
    facts->body = dl_digest_end(&digest);
    facts->base = state->now[0].digest;
    facts->manifest = m->manifest->digest;
    facts->n_floats = e.form->n;
    facts->n_integers = e.shape.n_integers;
    facts->n_booleans = e.shape.n_booleans;
    facts->payload_len = len;
    memcpy(facts->codec, codec, strlen(codec) + 1);
    *input = (dl_mix_input){facts,
                            {.payload = m->payload,
                             .len = len,
                             .integers = m->discrete,
                             .booleans = m->discrete + e.shape.n_integers * sizeof(int64_t)}};
    spans[0] = (dl_span){m->payload, len};
    spans[1] = (dl_span){m->discrete, discrete};
    *n_spans = discrete ? 2 : 1;
    return dl_codec_check(e.form, m->payload, len, DL_MIX_BOUND, &index, &input->data.norm2);
}

/* ---- steps -------------------------------------------------------------------------------- */

/* Fills m->members, m->facts and the weights by the run's weighting. */
static diloco_status weigh(dl_mix *m, const dl_mix_input *inputs, size_t n, dl_mix_facts *facts,
                           const dl_state *state)
{
    facts->n_alike = 0;
    for (size_t i = 0; i < n; i++) {
        const dl_contribution *c = inputs[i].facts;
        m->facts[i] = (dl_member_facts){.samples = c->stats.samples,
                                        .steps = c->stats.steps,
                                        .tokens = c->stats.tokens,
                                        .norm2 = inputs[i].data.norm2};
        m->members[i] = inputs[i].data;
        facts->n_alike += dl_hash_equal(c->base, state->now[0].digest);
    }
    return dl_weights(m->raw, m->weight, dl_weighting_find(m->config->weighting), m->facts, n);
}

/* pairs: x_j = theta_i - local_j, in float32. */
static void measure_from_here(dl_mix *m, const dl_state *state, size_t n)
{
    const size_t floats = n_floats(m);
    for (size_t i = 0; i < n; i++) {
        float *x = m->moved + i * floats;
        const dl_fp_state fp = dl_fp_enter();
        dl_codec_round_trip(&m->plain, x, m->members[i].payload, m->members[i].len);
        dl_delta(x, state->now[0].theta, x, floats);
        m->members[i].norm2 = dl_norm2(x, floats);
        dl_fp_leave(fp);
        m->members[i].payload = (const unsigned char *)x;
        m->members[i].len = floats * sizeof *x;
    }
}

diloco_status dl_mix_step(dl_mix *m, dl_state *state, const dl_mix_input *inputs, size_t n,
                          size_t n_rejected, uint64_t round, dl_mix_facts *facts)
{
    dl_outer_settings settings = dl_outer_settings_of(m->config);
    settings.lr = dl_outer_lr(m->config, round);
    settings.n_commits = state->now[0].n_commits;
    DL_TRY(weigh(m, inputs, n, facts, state));
    if (m->pairs) measure_from_here(m, state, n);
    dl_outer_step_args args = {.manifest = m->manifest,
                               .form = m->pairs ? &m->plain : &m->form,
                               .outer = m->outer,
                               .n_members = n,
                               .n_rejected = n_rejected,
                               .members = m->members,
                               .weight = m->weight,
                               .raw = m->raw};
    m->outer->scalars(args.scalars, &settings);
    DL_TRY(dl_outer_step(&state->next[0], &state->now[0], &args, &facts->outer, m->step, m->pool));
    dl_state_swap(state, 0);
    return DILOCO_OK;
}

/* Copies the agreed values into the state's other copy, after a check that they are finite. The
 * bound is just below the largest float. */
static diloco_status take_agreed(dl_mix *m, dl_state *state, uint64_t round)
{
    const dl_fragment_shape *s = &m->manifest->fragments[0];
    dl_fragment_state *next = &state->next[0];
    const size_t n = n_floats(m), whole = n_whole(m), integers = s->n_integers * sizeof(int64_t);
    const size_t bad = dl_first_bad(m->agreed, whole, 3e38f);
    if (bad < whole) return dl_fail(DILOCO_ENUMERIC, "the agreed model is not finite");
    memcpy(next->theta, m->agreed, n * sizeof *m->agreed);
    for (int k = 0; k < m->outer->n_state; k++)
        memcpy(next->outer[k], m->agreed + n + (size_t)k * s->n_trained,
               s->n_trained * sizeof *m->agreed);
    if (integers) memcpy(next->integers, m->agreed_discrete, integers);
    if (s->n_booleans) memcpy(next->booleans, m->agreed_discrete + integers, s->n_booleans);
    next->n_commits = round + 1; /* at every node the same */
    return DILOCO_OK;
}

diloco_status dl_mix_agree(dl_mix *m, dl_state *state, const dl_mix_input *inputs, size_t n,
                           size_t n_rejected, uint64_t round, dl_mix_facts *facts)
{
    /* Without a digest of its own: every node draws alike. */
    const dl_fragment_state nobody = {.n_commits = 0};
    facts->n_alike = 0;
    for (size_t i = 0; i < n; i++) {
        m->members[i] = inputs[i].data;
        m->raw[i] = 1;
        m->weight[i] = (float)(1.0 / (double)n);
        facts->n_alike += dl_hash_equal(inputs[i].facts->base, state->now[0].digest);
    }
    const dl_outer_step_args args = {.manifest = &m->model,
                                     .form = &m->whole,
                                     .outer = m->outer,
                                     .n_members = n,
                                     .n_rejected = n_rejected,
                                     .members = m->members,
                                     .weight = m->weight,
                                     .raw = m->raw};
    dl_combined combined = {m->agreed, m->agreed_discrete,
                            m->agreed_discrete +
                                m->manifest->fragments[0].n_integers * sizeof(int64_t)};
    DL_TRY(dl_outer_combine(&combined, &nobody, &args, &facts->outer, m->agree, m->pool));
    DL_TRY(take_agreed(m, state, round));
    dl_state_swap(state, 0);
    dl_state_rehash(state, m->pool);
    return DILOCO_OK;
}
