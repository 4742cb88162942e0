/* capture_on_device_test.c - a due point whose arithmetic is a device's, beside the same on the
 * host. The device is arrays of the test. The run's own tensors hold NaNs there, so it reads none
 * of them. */
#include "exchange/exec_parts.h"

#include "check.h"
#include "exchange/generations.h"
#include "run/open.h"

#include <math.h>
#include <stdlib.h>

enum { N_A = DL_BLOCK + 5, N_B = 70, N_C = 3, N = N_A + N_B + N_C };

/* "a" and "c" are fragment 0, and "b" between them is fragment 1. */
typedef struct world {
    dl_config config;
    dl_store *store;
    dl_runfile file;
    dl_exec *exec;
    float local[N], device[N], theta[N], movements[4 * N];
    unsigned char payload[4 * N];
    size_t n_puts, n_values, largest, room;
    diloco_status status; /* of the device */
    diloco_tensor tensors[3];
} world;

/* ---- the device */

static const size_t first[] = {0, N_A, N_A + N_B};

static diloco_status prepare(void *user, const dl_device_room *room)
{
    world *w = user;
    CHECK_INT(N, room->theta);
    CHECK(room->movements <= 4 * N && room->movements % room->largest == 0);
    w->largest = room->largest;
    w->room = room->payload;
    return DILOCO_OK;
}

static void put(void *user, size_t at, const float *values, size_t n)
{
    world *w = user;
    memcpy(w->theta + at, values, n * sizeof *values);
    w->n_puts++;
}

static void form(void *user, const dl_device_part *p)
{
    world *w = user;
    dl_delta(w->movements + p->begin, w->theta + p->theta, w->device + first[p->tensor], p->n);
}

static void adopt(void *user, const dl_device_part *p, float mix)
{
    world *w = user;
    dl_adopt(w->device + first[p->tensor], w->theta + p->theta, mix, p->n);
}

static void encode(void *user, const dl_codec_form *form, size_t begin)
{
    world *w = user;
    size_t len;
    CHECK(form->bound <= w->room);
    form->codec->encode(form, w->payload, &len, w->movements + begin);
    CHECK_INT(form->bound, len);
}

static diloco_status collect(void *user, const dl_device_movement *to)
{
    world *w = user;
    CHECK(to->n <= w->largest);
    w->n_values += to->values != NULL;
    if (to->values) memcpy(to->values, w->movements + to->begin, to->n * sizeof *to->values);
    if (to->payload) memcpy(to->payload, w->payload, to->payload_len);
    for (size_t at = 0; at < to->n && to->squares; at += DL_BLOCK)
        to->squares[at / DL_BLOCK] =
            dl_block_norm2(w->movements + to->begin + at, dl_size_min(to->n - at, DL_BLOCK));
    return w->status ? dl_fail(w->status, "the card is lost") : DILOCO_OK;
}

/* ---- a run of one replica */

static void train(world *w, float by)
{
    for (size_t i = 0; i < N; i++) {
        w->device[i] = sinf((float)i) + by * cosf((float)i);
        w->local[i] = w->exec->a.moves ? NAN : w->device[i];
    }
}

/* A codec, and whether contributions stay in flight while training continues. */
typedef struct setting {
    const char *codec;
    bool overlaps;
    const char *feedback, *overlap;
} setting;
static const setting plain = {"f32", true, "0", "steps"};

static diloco_status begin_as(world *w, const dl_device_moves *moves, diloco_dtype dtype,
                              const setting *s)
{
    static int n;
    char url[32];
    dl_hash digest;
    memset(w, 0, sizeof *w);
    dl_config_init(&w->config);
    snprintf(url, sizeof url, "mem://moves-%d", n++);
    CHECK_OK(dl_config_set(&w->config, "run.store", url, "test"));
    CHECK_OK(dl_config_set(&w->config, "run.state_dir", "none", "test"));
    CHECK_OK(dl_config_set(&w->config, "trainer.local_steps_per_round", "4", "test"));
    CHECK_OK(dl_config_set(&w->config, "server.diloco.codec", s->codec, "test"));
    CHECK_OK(dl_config_set(&w->config, "server.diloco.error_feedback", s->feedback, "test"));
    if (s->overlap)
        CHECK_OK(dl_config_set(&w->config, "server.diloco.overlap", s->overlap, "test"));
    if (s->overlaps)
        CHECK_OK(dl_config_set(&w->config, "server.diloco.overlap_steps", "3", "test"));
    for (size_t i = 0; i < N; i++)
        w->local[i] = sinf((float)i);
    w->tensors[0] = (diloco_tensor){.name = "a", .data = w->local, .n_dims = 1, .shape = {N_A}};
    w->tensors[1] = (diloco_tensor){
        .name = "b", .data = w->local + first[1], .n_dims = 1, .shape = {N_B}, .fragment = 1};
    w->tensors[2] = (diloco_tensor){.name = "c",
                                    .data = w->local + first[2],
                                    .dtype = dtype,
                                    .role = DILOCO_FROZEN,
                                    .n_dims = 1,
                                    .shape = {N_C}};
    const dl_run_creation what = {
        .config = &w->config, .tensors = w->tensors, .n_tensors = 3, .data_digest = ""};
    CHECK_OK(dl_store_open(&w->store, url, true));
    CHECK_OK(dl_run_create_or_read(&w->file, &digest, w->store, &what));
    dl_exec_args args = {.store = w->store,
                         .run = &w->file,
                         .tensors = w->tensors,
                         .moves = moves,
                         .n_tensors = 3,
                         .max_members = 2,
                         .beside = s->overlaps,
                         .n_copies = 2};
    CHECK_OK(dl_run_claim_generation(&args.self, w->store, "r0", &w->file, &w->file.config, NULL));
    DL_TRY(dl_exec_create(&w->exec, &args));
    return dl_snapshot_read_newest(dl_exec_state(w->exec), w->store, &w->file, digest, UINT64_MAX,
                                   NULL, DL_NEVER);
}

static diloco_status begin(world *w, const dl_device_moves *moves, diloco_dtype dtype)
{
    return begin_as(w, moves, dtype, &plain);
}

static void end(world *w)
{
    dl_exec_destroy(w->exec);
    dl_runfile_deinit(&w->file);
    dl_store_close(w->store);
}

static dl_device_moves moves_of(world *w)
{
    return (dl_device_moves){.user = w,
                             .prepare = prepare,
                             .put = put,
                             .form = form,
                             .adopt = adopt,
                             .encode = encode,
                             .collect = collect};
}

static diloco_status capture(world *w, uint64_t entry, uint32_t fragment)
{
    const dl_train_stats work = {.steps = 4, .samples = 4, .end_sample = 4, .position = 4};
    return dl_exec_capture(w->exec, entry, fragment, &work);
}

TEST(movement_and_adoption_on_a_device_are_those_of_the_host)
{
    static world host, on;
    const dl_device_moves moves = moves_of(&on);
    CHECK_OK(begin(&host, NULL, DILOCO_F32));
    CHECK_OK(begin(&on, &moves, DILOCO_F32));
    CHECK_INT(N_A + N_C, on.largest);
    for (uint32_t f = 0; f < 2; f++) {
        train(&host, 0.25f), train(&on, 0.25f);
        CHECK_OK(capture(&host, f, f));
        CHECK_OK(capture(&on, f, f));
        const dl_capture *a = dl_exec_captured(host.exec, f), *b = dl_exec_captured(on.exec, f);
        CHECK_BYTES(a->g, b->g, (f ? N_B : N_A + N_C) * sizeof(float));
        CHECK(a->norm == b->norm && a->norm > 0);
        for (size_t i = 0; i < 2; i++) {
            dl_exec_adopt(host.exec, f, i ? 0 : 0.3f);
            dl_exec_adopt(on.exec, f, i ? 0 : 0.3f);
            CHECK_BYTES(host.local, on.device, sizeof host.local);
        }
    }
    end(&host), end(&on);
}

TEST(theta_is_copied_to_the_device_once_for_each_state)
{
    static world w;
    const dl_device_moves moves = moves_of(&w);
    CHECK_OK(begin(&w, &moves, DILOCO_F32));
    dl_exec_adopt(w.exec, 0, 0);
    train(&w, 0.5f);
    CHECK_OK(capture(&w, 0, 0));
    dl_exec_adopt(w.exec, 0, 0.5f);
    CHECK_INT(1, w.n_puts);
    w.exec->state.now[0].theta[1] = 8;
    dl_state_rehash(&w.exec->state, NULL);
    dl_exec_adopt(w.exec, 0, 0);
    CHECK_INT(2, w.n_puts);
    CHECK(w.device[1] == 8);
    dl_exec_adopt(w.exec, 1, 0);
    CHECK_INT(3, w.n_puts);
    end(&w);
}

TEST(movement_on_a_device_that_is_not_finite_names_its_tensor)
{
    static world w;
    const dl_device_moves moves = moves_of(&w);
    CHECK_OK(begin(&w, &moves, DILOCO_F32));
    train(&w, 0.5f);
    w.device[first[1] + 7] = NAN;
    CHECK_STATUS(DILOCO_ENUMERIC, capture(&w, 1, 1));
    CHECK_CONTAINS("the movement of b[7]", diloco_error_text());
    end(&w);
}

/* Returns the body of the contribution to an entry. */
static dl_hash contribute(world *w, uint64_t entry, uint32_t fragment)
{
    const dl_request request = {
        .kind = DL_REQUEST_CONTRIBUTE, .entry = entry, .fragment = fragment};
    dl_reply reply = {.status = DILOCO_OK};
    dl_exec_do(w->exec, &request, &reply, DL_NEVER);
    CHECK_OK(reply.status);
    return dl_exec_captured(w->exec, entry)->body;
}

TEST(contribution_that_a_device_encodes_has_the_bytes_of_the_host)
{
    static world host, on;
    static const setting settings[] = {{"int8", false, "0", NULL},
                                       {"int4", false, "0", NULL},
                                       {"int2", false, "0", NULL},
                                       {"int4", true, "0", NULL}};
    const dl_device_moves moves = moves_of(&on);
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(begin_as(&host, NULL, DILOCO_F32, &settings[i]));
        CHECK_OK(begin_as(&on, &moves, DILOCO_F32, &settings[i]));
        for (uint32_t f = 0; f < 2; f++) {
            train(&host, 0.25f), train(&on, 0.25f);
            CHECK_OK(capture(&host, f, f));
            CHECK_OK(capture(&on, f, f));
            CHECK(dl_exec_captured(on.exec, f)->encoded);
            CHECK(dl_exec_captured(host.exec, f)->norm == dl_exec_captured(on.exec, f)->norm);
            CHECK(dl_hash_equal(contribute(&host, f, f), contribute(&on, f, f)));
        }
        CHECK_INT(0, on.n_values);
        end(&host), end(&on);
    }
}

TEST(values_come_to_the_host_where_something_else_needs_them)
{
    static world w;
    static const setting settings[] = {
        {"int8", false, "0.9", NULL}, {"e3m0", false, "0", NULL}, {"topk", true, "0", NULL}};
    const dl_device_moves moves = moves_of(&w);
    for (size_t i = 0; i < 3; i++) {
        CHECK_OK(begin_as(&w, &moves, DILOCO_F32, &settings[i]));
        train(&w, 0.25f);
        CHECK_OK(capture(&w, 0, 0));
        CHECK(!dl_exec_captured(w.exec, 0)->encoded);
        CHECK_INT(1, w.n_values);
        CHECK_INT(0, w.room);
        end(&w);
    }
}

/* Two captures are in flight, and the values of the first are still those of its due point. */
TEST(values_in_flight_are_copied_to_the_host_when_they_are_saved)
{
    static world host, on;
    static const setting overlapping = {"int4", true, "0", NULL};
    const dl_device_moves moves = moves_of(&on);
    CHECK_OK(begin_as(&host, NULL, DILOCO_F32, &overlapping));
    CHECK_OK(begin_as(&on, &moves, DILOCO_F32, &overlapping));
    for (uint32_t f = 0; f < 2; f++) {
        train(&host, 0.25f + (float)f), train(&on, 0.25f + (float)f);
        CHECK_OK(capture(&host, f, f));
        CHECK_OK(capture(&on, f, f));
    }
    CHECK_INT(0, on.n_values);
    CHECK_OK(dl_exec_pack_in_flight(on.exec, 0));
    CHECK_OK(dl_exec_pack_in_flight(on.exec, 0));
    CHECK_INT(2, on.n_values); /* once each */
    for (uint32_t f = 0; f < 2; f++)
        CHECK_BYTES(dl_exec_captured(host.exec, f)->g, dl_exec_captured(on.exec, f)->g,
                    (f ? N_B : N_A + N_C) * sizeof(float));
    const dl_hash body = contribute(&host, 0, 0);
    CHECK_OK(dl_exec_unpack_in_flight(on.exec)); /* the values are encoded again */
    CHECK(dl_hash_equal(body, dl_exec_captured(on.exec, 0)->body));
    train(&on, 3);
    CHECK_OK(capture(&on, 2, 0));
    on.status = DILOCO_EIO;
    CHECK_STATUS(DILOCO_EIO, dl_exec_pack_in_flight(on.exec, 2));
    end(&host), end(&on);
}

/* A save copies the parameters during the capture, from the host's copy of them. */
TEST(capture_that_a_device_encodes_is_copied_for_a_save)
{
    static world w;
    static const setting settings[] = {{"f32", true, "0", NULL}, {"int4", true, "0", NULL}};
    const dl_device_moves moves = moves_of(&w);
    for (size_t i = 0; i < 2; i++) {
        float copy[N] = {0};
        void *places[] = {copy, copy + first[1], copy + first[2]};
        CHECK_OK(begin_as(&w, &moves, DILOCO_F32, &settings[i]));
        train(&w, 0.25f);
        memcpy(w.local, w.device, sizeof w.local);
        dl_exec_copy_to(w.exec, places);
        CHECK_OK(capture(&w, 0, 0));
        CHECK_INT(i, dl_exec_captured(w.exec, 0)->encoded);
        CHECK_BYTES(w.local, copy, N_A * sizeof *copy);
        CHECK_BYTES(w.local + first[2], copy + first[2], N_C * sizeof *copy);
        CHECK(!places[0] && places[1] && !places[2]); /* the rest is copied later */
        end(&w);
    }
}

/* A sum of squares above the bound's square may be of many elements. */
TEST(encoded_movement_that_is_not_usable_names_its_tensor)
{
    static world w;
    static const setting int8 = {"int8", false, "0", NULL};
    const dl_device_moves moves = moves_of(&w);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(begin_as(&w, &moves, DILOCO_F32, &int8));
        train(&w, 0.5f);
        w.device[first[1] + 7] = i == 0 ? NAN : i == 1 ? 2e18f : 0.9e18f;
        w.device[first[1] + 9] = 0.9e18f;
        CHECK_STATUS(i < 2 ? DILOCO_ENUMERIC : DILOCO_OK, capture(&w, 1, 1));
        if (i < 2) CHECK_CONTAINS("the movement of b[7]", diloco_error_text());
        CHECK_INT(1, w.n_values);
        end(&w);
    }
}

TEST(lost_device_fails_the_capture)
{
    static world w;
    const dl_device_moves moves = moves_of(&w);
    CHECK_OK(begin(&w, &moves, DILOCO_F32));
    train(&w, 0.5f);
    w.status = DILOCO_EIO;
    CHECK_STATUS(DILOCO_EIO, capture(&w, 0, 0));
    CHECK(!dl_exec_captured(w.exec, 0));
    end(&w);
}

TEST(tensor_that_is_not_f32_is_refused_by_name)
{
    static world w;
    const dl_device_moves moves = moves_of(&w);
    CHECK_STATUS(DILOCO_EREFUSED, begin(&w, &moves, DILOCO_BF16));
    CHECK_CONTAINS("c is BF16: leave it false", diloco_error_text());
    end(&w);
}

/* Such a run may be there only when the replica joins. */
TEST(run_whose_rounds_overlap_is_refused)
{
    static world w;
    static const setting eager = {"f32", false, "0", "eager"};
    const dl_device_moves moves = moves_of(&w);
    CHECK_STATUS(DILOCO_EREFUSED, begin_as(&w, &moves, DILOCO_F32, &eager));
    CHECK_CONTAINS("trainer.device_exchange", diloco_error_text());
    end(&w);
}

TEST_MAIN(movement_and_adoption_on_a_device_are_those_of_the_host,
          theta_is_copied_to_the_device_once_for_each_state,
          contribution_that_a_device_encodes_has_the_bytes_of_the_host,
          values_come_to_the_host_where_something_else_needs_them,
          values_in_flight_are_copied_to_the_host_when_they_are_saved,
          encoded_movement_that_is_not_usable_names_its_tensor,
          movement_on_a_device_that_is_not_finite_names_its_tensor, lost_device_fails_the_capture,
          capture_that_a_device_encodes_is_copied_for_a_save, run_whose_rounds_overlap_is_refused,
          tensor_that_is_not_f32_is_refused_by_name)
