/* state_test.c - the memory of a state, and its image: written, read back, and refused if it
 * differs from the run's tensors. */
#include "state/state.h"

#include "check.h"
#include "state/image.h"

static const diloco_tensor tensors[] = {
    {"flag", NULL, DILOCO_BOOL, DILOCO_BUFFER, 1, {3}, 0},
    {"embed", NULL, DILOCO_F32, DILOCO_PARAMETER, 2, {7, 3}, 0},
    {"scale", NULL, DILOCO_F32, DILOCO_FROZEN, 1, {5}, 0},
    {"counts", NULL, DILOCO_I64, DILOCO_BUFFER, 1, {2}, 1},
    {"head", NULL, DILOCO_F32, DILOCO_PARAMETER, 1, {3000}, 1},
};
enum { N_TENSORS = sizeof tensors / sizeof *tensors };

typedef struct scene {
    dl_manifest manifest;
    dl_state state;
} scene;

static void scene_begin(scene *s)
{
    CHECK_OK(dl_manifest_init(&s->manifest, tensors, N_TENSORS, false));
    CHECK_OK(dl_state_init(&s->state, &s->manifest, dl_outer_find("nesterov"), 4, 2, 1));
}

static void scene_end(scene *s)
{
    dl_state_deinit(&s->state);
    dl_manifest_deinit(&s->manifest);
}

/* Makes different values everywhere; seed distinguishes states. */
static void fill(dl_state *state, uint32_t seed)
{
    for (int f = 0; f < state->manifest->n_fragments; f++) {
        const dl_fragment_shape *shape = &state->manifest->fragments[f];
        dl_fragment_state *now = &state->now[f];
        uint32_t next = seed + 100 * (uint32_t)f;
        for (size_t i = 0; i < shape->n_trained + shape->n_averaged; i++)
            now->theta[i] = (float)next++ * 0.5f;
        for (size_t i = 0; i < shape->n_trained; i++)
            now->outer[0][i] = -(float)next++;
        for (size_t i = 0; i < shape->n_integers; i++)
            now->integers[i] = (int64_t)next++ << 33;
        for (size_t i = 0; i < shape->n_booleans; i++)
            now->booleans[i] = (uint8_t)(next++ & 1);
        now->n_commits = next;
    }
    dl_state_rehash(state, NULL);
}

/* Returns the image in one piece. */
static dl_buf image_of(const dl_state *state)
{
    dl_buf header, all;
    size_t n, cap = dl_state_image_spans(state);
    dl_span *spans = calloc(cap, sizeof *spans);
    dl_config config;
    dl_config_init(&config);
    dl_buf_init(&header, 1 << 20);
    dl_buf_init(&all, 1 << 20);
    CHECK_OK(dl_state_image(&header, spans, cap, &n, state, &config));
    CHECK(n <= cap);
    for (size_t i = 0; i < n; i++)
        CHECK_OK(dl_buf_add(&all, spans[i].data, spans[i].len));
    dl_buf_deinit(&header);
    free(spans);
    return all;
}

TEST(a_state_begins_zeroed_and_its_copies_take_turns)
{
    scene s;
    scene_begin(&s);
    CHECK_INT(2, s.manifest.n_fragments);
    CHECK_INT(4, s.state.control.roster.cap);
    CHECK(s.state.now[1].theta[2999] == 0 && s.state.next[1].outer[0][0] == 0);
    float *now = s.state.now[1].theta, *next = s.state.next[1].theta, *other = s.state.now[0].theta;
    CHECK(now != next);
    s.state.next[1].n_commits = 5;
    dl_state_swap(&s.state, 1);
    CHECK(s.state.now[1].theta == next && s.state.next[1].theta == now);
    CHECK(s.state.now[0].theta == other);
    CHECK_INT(5, s.state.now[1].n_commits);
    scene_end(&s);
}

TEST(a_reader_has_one_copy_and_half_the_bytes)
{
    scene s;
    dl_state reader;
    scene_begin(&s);
    CHECK_OK(dl_state_init(&reader, &s.manifest, s.state.outer, 4, 1, 1));
    CHECK(reader.next == NULL && reader.now != NULL);
    size_t one = dl_state_bytes(&s.manifest, s.state.outer, 1);
    CHECK_INT(2 * one, dl_state_bytes(&s.manifest, s.state.outer, 2));
    CHECK(one >= (2 * (21 + 3000) + 5) * sizeof(float) + 2 * 8 + 3);
    CHECK(one < (2 * (21 + 3000) + 5) * sizeof(float) + 2048);
    dl_state_deinit(&reader);
    scene_end(&s);
}

TEST(a_state_that_does_not_fit_is_an_error)
{
    dl_manifest manifest;
    dl_state state;
    diloco_tensor large[64];
    char names[64][8];
    for (int i = 0; i < 64; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        large[i] =
            (diloco_tensor){names[i], NULL, DILOCO_F32, DILOCO_PARAMETER, 1, {(size_t)1 << 40}, i};
    }
    CHECK_OK(dl_manifest_init(&manifest, large, 64, false));
    CHECK_STATUS(DILOCO_ENOMEM,
                 dl_state_init(&state, &manifest, dl_outer_find("nesterov"), 4, 2, 1));
    CHECK_CONTAINS("state of the run", diloco_error_text());
    dl_state_deinit(&state);
    dl_manifest_deinit(&manifest);
}

TEST(the_digest_of_all_is_the_hash_of_the_fragments_digests)
{
    scene s;
    scene_begin(&s);
    fill(&s.state, 1);
    dl_hash both[2] = {s.state.now[0].digest, s.state.now[1].digest}, before;
    before = dl_state_digest_all(&s.state);
    CHECK(dl_hash_equal(dl_hash_bytes(both, sizeof both), before));
    CHECK(dl_hash_equal(
        both[0], dl_state_digest(&s.state.now[0], s.manifest.fragments[0], s.state.outer, NULL)));
    s.state.now[1].theta[7] += 1;
    dl_state_rehash(&s.state, NULL);
    CHECK(!dl_hash_equal(before, dl_state_digest_all(&s.state)));
    scene_end(&s);
}

TEST(an_image_reads_back_to_the_same_digests)
{
    scene s, other;
    scene_begin(&s);
    scene_begin(&other);
    fill(&s.state, 1);
    dl_buf image = image_of(&s.state);
    for (int f = 0; f < 2; f++)
        other.state.now[f].n_commits = s.state.now[f].n_commits; /* not in the image */
    CHECK_OK(dl_state_load_image(&other.state, image.data, image.len, NULL));
    CHECK(dl_hash_equal(dl_state_digest_all(&s.state), dl_state_digest_all(&other.state)));
    dl_buf_deinit(&image);
    scene_end(&other);
    scene_end(&s);
}

TEST(an_image_is_safetensors_that_others_read)
{
    scene s;
    dl_st st;
    scene_begin(&s);
    fill(&s.state, 9);
    dl_buf image = image_of(&s.state);
    CHECK_OK(dl_st_open(&st, image.data, image.len));
    CHECK_INT(N_TENSORS + 2, st.n);
    const dl_st_tensor *embed = dl_st_find(&st, "embed");
    const dl_st_tensor *momentum = dl_st_find(&st, "diloco.momentum.embed");
    CHECK(embed && momentum && dl_st_find(&st, "diloco.momentum.head"));
    CHECK(!dl_st_find(&st, "diloco.momentum.scale")); /* frozen: averaged */
    CHECK_INT(2, momentum->n_dims);
    CHECK_INT(3, momentum->shape[1]);
    CHECK_BYTES(s.state.now[0].theta, st.data + embed->begin, 21 * sizeof(float));
    CHECK_BYTES(s.state.now[0].outer[0], st.data + momentum->begin, 21 * sizeof(float));
    for (size_t i = 0; i < st.n; i++)
        CHECK_INT(0, st.tensors[i].begin % dl_st_dtype_size(st.tensors[i].dtype));
    dl_st_close(&st);
    dl_buf_deinit(&image);
    scene_end(&s);
}

/* In pieces of every size up to beyond the header. */
TEST(the_size_of_the_pieces_does_not_matter)
{
    scene s, other;
    scene_begin(&s);
    scene_begin(&other);
    fill(&s.state, 1);
    dl_buf image = image_of(&s.state);
    static const size_t sizes[] = {1, 3, 7, 8, 9, 64, 1000, 1024, 4099};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        dl_image_reader r;
        dl_hash digest;
        fill(&other.state, 5);
        dl_image_reader_init(&r, &other.state);
        dl_sink sink = dl_image_sink(&r);
        CHECK_OK(sink.begin(sink.context, image.len));
        for (size_t at = 0; at < image.len; at += sizes[k])
            CHECK_OK(
                sink.piece(sink.context, image.data + at, dl_size_min(sizes[k], image.len - at)));
        CHECK_OK(dl_image_reader_end(&r, &digest));
        dl_image_reader_deinit(&r);
        CHECK(dl_hash_equal(dl_digest_bytes(image.data, image.len), digest));
        for (int f = 0; f < 2; f++)
            other.state.now[f].n_commits = s.state.now[f].n_commits;
        dl_state_rehash(&other.state, NULL);
        CHECK(dl_hash_equal(dl_state_digest_all(&s.state), dl_state_digest_all(&other.state)));
    }
    dl_buf_deinit(&image);
    scene_end(&other);
    scene_end(&s);
}

TEST(every_truncation_is_refused)
{
    scene s;
    scene_begin(&s);
    fill(&s.state, 1);
    dl_buf image = image_of(&s.state);
    for (size_t len = 0; len < image.len; len += len < 2000 ? 1 : 97)
        CHECK_STATUS(DILOCO_EPROTO, dl_state_load_image(&s.state, image.data, len, NULL));
    CHECK_STATUS(DILOCO_EPROTO, dl_state_load_image(&s.state, image.data, image.len - 1, NULL));
    dl_buf_deinit(&image);
    scene_end(&s);
}

TEST(a_header_longer_than_the_runs_can_be_is_refused_before_memory_is_taken)
{
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 40, 200000, 0};
    scene s;
    scene_begin(&s);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        dl_image_reader r;
        unsigned char start[16] = {0};
        memcpy(start, &lengths[i], 8);
        dl_image_reader_init(&r, &s.state);
        dl_sink sink = dl_image_sink(&r);
        CHECK_OK(sink.begin(sink.context, SIZE_MAX / 2)); /* as long as an object may be */
        CHECK_STATUS(DILOCO_EPROTO, sink.piece(sink.context, start, sizeof start));
        CHECK(r.header.cap < 100000);
        dl_image_reader_deinit(&r);
    }
    scene_end(&s);
}

TEST(an_object_that_grows_or_ends_early_is_refused)
{
    scene s;
    scene_begin(&s);
    fill(&s.state, 1);
    dl_buf image = image_of(&s.state);
    dl_image_reader r;
    dl_hash digest;
    dl_image_reader_init(&r, &s.state);
    dl_sink sink = dl_image_sink(&r);
    CHECK_OK(sink.begin(sink.context, image.len));
    CHECK_OK(sink.piece(sink.context, image.data, image.len - 1));
    CHECK_STATUS(DILOCO_EPROTO, dl_image_reader_end(&r, &digest));
    CHECK_CONTAINS("truncated", diloco_error_text());
    CHECK_STATUS(DILOCO_EPROTO, sink.piece(sink.context, image.data, 2));
    dl_image_reader_deinit(&r);
    dl_buf_deinit(&image);
    scene_end(&s);
}

/* Replaces the first `from` in the header by `to`, of the same length. */
static void check_edited(const char *from, const char *to, const char *part)
{
    scene s;
    scene_begin(&s);
    fill(&s.state, 1);
    dl_buf image = image_of(&s.state);
    unsigned char *at = memmem(image.data, image.len, from, strlen(from));
    CHECK(at && strlen(from) == strlen(to));
    memcpy(at, to, strlen(to));
    CHECK_STATUS(DILOCO_EPROTO, dl_state_load_image(&s.state, image.data, image.len, NULL));
    CHECK_CONTAINS(part, diloco_error_text());
    dl_buf_deinit(&image);
    scene_end(&s);
}

TEST(tensors_that_are_not_the_runs_are_refused)
{
    check_edited("\"embed\"", "\"embex\"", "embed is missing");
    check_edited("\"diloco.momentum.head\"", "\"diloco.momentun.head\"", "momentum.head");
    check_edited("[7,3]", "[3,7]", "embed");
    check_edited("\"dtype\":\"F32\",\"shape\":[5]", "\"dtype\":\"I32\",\"shape\":[5]", "scale");
    check_edited("\"format\":\"diloco\"", "\"format\":\"pytorc\"", "pytorc");
    check_edited("\"version\":\"1\"", "\"version\":\"2\"", "version 2");
    check_edited("\"version\"", "\"versiom\"", "version");
    check_edited("{\"__metadata__\"", "[\"__metadata__\"", "safetensors");
}

TEST(an_image_of_another_model_is_refused)
{
    scene s;
    dl_manifest fewer;
    dl_state state;
    scene_begin(&s);
    fill(&s.state, 1);
    dl_buf image = image_of(&s.state);
    CHECK_OK(dl_manifest_init(&fewer, tensors, 2, false));
    CHECK_OK(dl_state_init(&state, &fewer, s.state.outer, 4, 1, 1));
    CHECK_STATUS(DILOCO_EPROTO, dl_state_load_image(&state, image.data, image.len, NULL));
    CHECK_CONTAINS("7 tensors, the run's state has 3", diloco_error_text());
    dl_state_deinit(&state);
    dl_manifest_deinit(&fewer);
    dl_buf_deinit(&image);
    scene_end(&s);
}

static void check_values(void (*spoil)(dl_state *), const char *part)
{
    scene s, other;
    scene_begin(&s);
    scene_begin(&other);
    fill(&s.state, 1);
    spoil(&s.state);
    dl_buf image = image_of(&s.state);
    CHECK_STATUS(DILOCO_EPROTO, dl_state_load_image(&other.state, image.data, image.len, NULL));
    CHECK_CONTAINS(part, diloco_error_text());
    dl_buf_deinit(&image);
    scene_end(&other);
    scene_end(&s);
}

static void spoil_head(dl_state *state)
{
    state->now[1].theta[2999] = NAN;
}
static void spoil_scale(dl_state *state)
{
    state->now[0].theta[23] = -INFINITY;
}
static void spoil_momentum(dl_state *state)
{
    state->now[0].outer[0][4] = INFINITY;
}
static void spoil_flag(dl_state *state)
{
    state->now[0].booleans[1] = 2;
}

TEST(values_that_may_not_be_are_named)
{
    check_values(spoil_head, "element 2999 of head is not finite");
    check_values(spoil_scale, "element 2 of scale is not finite");
    check_values(spoil_momentum, "element 4 of an outer vector of embed is not finite");
    check_values(spoil_flag, "a boolean is 2");
}

/* A piece of the private state that is placed there takes whole lines of 64 bytes. */
TEST(a_copy_of_a_fragment_has_the_bytes_that_are_to_be_lent)
{
    enum { LENT = 100001 };
    dl_manifest manifest;
    dl_state plain, state;
    CHECK_OK(dl_manifest_init(&manifest, tensors + 1, 1, false));
    dl_state_args args = {.manifest = &manifest,
                          .outer = dl_outer_find("nesterov"),
                          .max_members = 1,
                          .n_copies = 2,
                          .ahead = 1};
    CHECK_OK(dl_state_init_as(&plain, &args));
    args.copy_len = LENT;
    CHECK_OK(dl_state_init_as(&state, &args));
    CHECK(plain.copy_len >= 2 * 21 * sizeof(float) && plain.copy_len < LENT);
    CHECK(state.copy_len >= LENT && state.copy_len % DL_ARENA_ALIGN == 0);
    memset(state.now[0].theta, 1, state.copy_len);
    CHECK(state.next[0].theta[0] == 0);
    memset(state.next[0].theta, 1, state.copy_len);
    dl_state_deinit(&plain);
    dl_state_deinit(&state);
    dl_manifest_deinit(&manifest);
}

TEST_MAIN(a_state_begins_zeroed_and_its_copies_take_turns, a_reader_has_one_copy_and_half_the_bytes,
          a_state_that_does_not_fit_is_an_error,
          the_digest_of_all_is_the_hash_of_the_fragments_digests,
          an_image_reads_back_to_the_same_digests, an_image_is_safetensors_that_others_read,
          the_size_of_the_pieces_does_not_matter, every_truncation_is_refused,
          a_header_longer_than_the_runs_can_be_is_refused_before_memory_is_taken,
          an_object_that_grows_or_ends_early_is_refused, tensors_that_are_not_the_runs_are_refused,
          an_image_of_another_model_is_refused, values_that_may_not_be_are_named,
          a_copy_of_a_fragment_has_the_bytes_that_are_to_be_lent)
