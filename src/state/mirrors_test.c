/* mirrors_test.c - compares tensors of bf16 and f16, and tensors on a device, with the same run on
 * f32 in host memory. The device is that of trap_device.h. */
#include "state/mirrors.h"
#include "tensor/manifest.h"
#include "tensor/widths.h"
#include "toy_run.h"
#include "trap_device.h"

/* ---- a trainer with tensors of any type and place ----------------------------------------- */

enum { N = 11 };

typedef struct trainer {
    diloco_dtype dtype;
    bool on_device;
    trap device;
    unsigned char host[N * sizeof(float)];
    void *at;          /* the N values, on the device or in host */
    float last_pushed; /* w[0] at the beginning of the newest step */
} trainer;

static void get(trainer *r, float *w)
{
    const size_t len = N * dl_dtype_size(r->dtype);
    unsigned char raw[N * sizeof(float)];
    if (r->on_device) trap_set_open(&r->device, true);
    memcpy(raw, r->at, len);
    if (r->on_device) trap_set_open(&r->device, false);
    dl_widen(w, raw, N, dl_dtype_name(r->dtype));
}

static void set(trainer *r, const float *w)
{
    unsigned char raw[N * sizeof(float)];
    dl_narrow(raw, w, N, dl_dtype_name(r->dtype));
    if (r->on_device) trap_set_open(&r->device, true);
    memcpy(r->at, raw, N * dl_dtype_size(r->dtype));
    if (r->on_device) trap_set_open(&r->device, false);
}

static void open_trainer(trainer *r, diloco_dtype dtype, bool on_device)
{
    float w[N];
    *r = (trainer){.dtype = dtype, .on_device = on_device, .at = r->host};
    if (on_device) {
        trap_open(&r->device);
        r->at = r->device.memory;
    }
    for (int i = 0; i < N; i++)
        w[i] = 0.3f * (float)i - 1.7f;
    set(r, w);
}

static diloco_status register_narrow(toy *t, diloco_run *run)
{
    trainer *r = t->user;
    diloco_status status = diloco_run_device(run, r->on_device ? &r->device.device : NULL);
    if (status) return status;
    return diloco_run_tensor(
        run, &(diloco_tensor){
                 .name = "narrow", .data = r->at, .dtype = r->dtype, .n_dims = 1, .shape = {N}});
}

/* Values move by whole eighths, which every type here holds. So all types have the same values as
 * long as theta itself is representable. */
static double step_by_eighths(toy *t, const diloco_run_info *now)
{
    trainer *r = t->user;
    float w[N];
    get(r, w);
    r->last_pushed = w[0];
    for (int i = 0; i < N; i++)
        w[i] += 0.125f * (float)((int)(now->sample % 3) - 1 + now->shard);
    set(r, w);
    return toy_step(t, now);
}

static double stand_still(toy *t, const diloco_run_info *now)
{
    trainer *r = t->user;
    float w[N];
    get(r, w);
    r->last_pushed = w[0];
    return toy_step(t, now);
}

static toy toy_with(trainer *r, const char *name, const char *store)
{
    toy t = toy_of(name, store);
    t.prepare = register_narrow;
    t.step = step_by_eighths;
    t.user = r;
    return t;
}

static void check_same(trainer *r)
{
    float a[N], b[N];
    get(&r[0], a);
    get(&r[1], b);
    CHECK_BYTES(a, b, sizeof a);
}

/* Runs two replicas with tensors of that type, and returns their final values. */
static void live_two(float *w, diloco_dtype dtype, bool on_device, const char *setting,
                     const char *value)
{
    static int n;
    static char store[32];
    toy all[2];
    trainer r[2];
    snprintf(store, sizeof store, "mem://mirrors-%d", n++);
    toy_keep(store);
    toy_crew(all, 2, store, "none");
    for (int i = 0; i < 2; i++) {
        open_trainer(&r[i], dtype, on_device);
        all[i].prepare = register_narrow;
        all[i].step = step_by_eighths;
        all[i].user = &r[i];
        if (setting) toy_set(&all[i], setting, value);
    }
    toy_live_all(all, 2);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    if (!setting) check_same(r); /* with a mix and an overlap they differ */
    get(&r[0], w);
    for (int i = 0; i < 2 && on_device; i++)
        trap_close(&r[i].device);
}

TEST(place_of_a_tensor_changes_no_bit)
{
    static const diloco_dtype types[] = {DILOCO_F32, DILOCO_BF16, DILOCO_F16};
    static const char *const settings[][2] = {{NULL, NULL},
                                              {"server.diloco.local_mix", "0.25"},
                                              {"server.diloco.overlap_steps", "1"},
                                              {"server.diloco.overlap", "delayed"},
                                              {"server.diloco.overlap", "eager"},
                                              {"server.diloco.codec", "int8"}};
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++)
        for (size_t s = 0; s < sizeof settings / sizeof settings[0]; s++) {
            float host[N], device[N];
            live_two(host, types[k], false, settings[s][0], settings[s][1]);
            live_two(device, types[k], true, settings[s][0], settings[s][1]);
            CHECK_BYTES(host, device, sizeof host);
        }
}

/* theta after the run is that of f32 tensors, rounded, as long as every step is exact. The outer
 * learning rate is 1 without momentum, and two replicas halve eighths. */
TEST(a_narrow_run_ends_where_the_wide_one_does_rounded)
{
    float wide[N], narrow[N];
    live_two(wide, DILOCO_F32, false, "server.diloco.outer_optimizer", "sgd");
    live_two(narrow, DILOCO_F16, false, "server.diloco.outer_optimizer", "sgd");
    for (int i = 0; i < N; i++)
        CHECK(fabsf(wide[i] - narrow[i]) <= 0x1p-8f * fmaxf(1, fabsf(wide[i])));
}

/* Momentum moves theta of one replica off the narrow grid. The replica trains from theta rounded
 * and does not move, so the next entry moves theta by momentum alone. If rounding counted as
 * movement, theta would drift. */
TEST(rounding_is_no_movement)
{
    float last[2];
    for (int narrow = 0; narrow < 2; narrow++) {
        trainer r;
        toy t = toy_with(&r, "r0", narrow ? "mem://still-bf16" : "mem://still-f32");
        open_trainer(&r, narrow ? DILOCO_BF16 : DILOCO_F32, false);
        float w[N];
        for (int i = 0; i < N; i++)
            w[i] = 1;
        set(&r, w);
        toy_set(&t, "run.state_dir", "none");
        toy_set(&t, "trainer.rounds", "6");
        CHECK_OK(toy_open(&t));
        CHECK_OK(diloco_run_join(t.run));
        while (!diloco_run_done(t.run)) {
            const diloco_run_info now = diloco_run_now(t.run);
            t.step = now.entry == 0 && now.position == 0 ? step_by_eighths : stand_still;
            const double loss = t.step(&t, &now);
            CHECK_OK(diloco_step(t.run, &(diloco_step_report){.loss = loss, .samples = 1}));
        }
        last[narrow] = 0;
        float whole[TOY_N], theta[N];
        unsigned char raw[N * sizeof(float)];
        void *places[] = {whole, raw};
        CHECK_OK(diloco_run_theta(t.run, places, 2));
        dl_widen(theta, raw, N, dl_dtype_name(r.dtype));
        last[narrow] = theta[0];
        get(&r, w);
        CHECK_BYTES(w, theta, sizeof w); /* training continues from theta, rounded */
        toy_close(&t);
    }
    float rounded;
    dl_round_to(&rounded, &last[0], 1, "BF16");
    CHECK(last[1] == rounded && last[1] != last[0]);
}

TEST(a_narrow_replica_resumes_to_the_bit)
{
    float whole[N], resumed[N];
    for (int cut = 0; cut < 2; cut++) {
        trainer r;
        toy t = toy_with(&r, "r0", scratch_folder(cut ? "narrow-cut" : "narrow-whole"));
        open_trainer(&r, DILOCO_F16, true);
        t.stop_after = cut ? 5 : 0;
        CHECK_OK(toy_live(&t));
        if (cut) {
            float lost[N] = {0};
            set(&r, lost);
            t.stop_after = 0;
            CHECK_OK(toy_live(&t));
            CHECK(t.end.resumed);
        }
        get(&r, cut ? resumed : whole);
        trap_close(&r.device);
    }
    CHECK_BYTES(whole, resumed, sizeof whole);

    /* The log and the exported model are f32. */
    diloco_verify_report report;
    void *bytes;
    size_t len;
    uint64_t entry;
    CHECK_OK(diloco_verify(&report, scratch_path("narrow-cut"), 1, NULL, NULL));
    CHECK(report.complete && report.replayed > 0);
    CHECK_OK(diloco_theta_read(&bytes, &len, &entry, scratch_path("narrow-cut"), UINT64_MAX));
    CHECK(memmem(bytes, len, "\"narrow\":{\"dtype\":\"F32\"", 23) != NULL);
    diloco_free(bytes);
}

TEST(replicas_of_another_type_are_refused_by_name)
{
    trainer r[2];
    toy a = toy_with(&r[0], "r0", "mem://types"), b = toy_with(&r[1], "r1", "mem://types");
    toy_keep("mem://types");
    open_trainer(&r[0], DILOCO_F16, false);
    open_trainer(&r[1], DILOCO_BF16, false);
    toy_set(&a, "run.state_dir", "none");
    toy_set(&b, "run.state_dir", "none");
    CHECK_OK(toy_live(&a));
    CHECK_INT(DILOCO_EDIFFERS, toy_live(&b));
    CHECK_CONTAINS("narrow F16", b.text);
}

TEST(adoption_reads_the_device_only_for_a_mix)
{
    for (size_t mixes = 0; mixes < 2; mixes++) {
        trainer r;
        toy t = toy_with(&r, "r0", mixes ? "mem://mixed" : "mem://replaced");
        open_trainer(&r, DILOCO_F32, true);
        toy_set(&t, "run.state_dir", "none");
        if (mixes) toy_set(&t, "server.diloco.local_mix", "0.25");
        CHECK_OK(toy_open(&t));
        CHECK_OK(diloco_run_join(t.run));
        r.device.n_in = 0;
        while (diloco_run_now(t.run).entry == 0)
            CHECK_OK(diloco_step(t.run, &(diloco_step_report){.loss = 1, .samples = 1}));
        CHECK_INT(1 + mixes, r.device.n_in); /* the capture reads it as well */
        toy_close(&t);
        trap_close(&r.device);
    }
}

TEST(failed_device_is_named_and_stays_failed)
{
    trainer r;
    toy t = toy_with(&r, "r0", "mem://failing");
    open_trainer(&r, DILOCO_F32, true);
    toy_set(&t, "run.state_dir", "none");
    CHECK_OK(toy_open(&t));
    CHECK_OK(diloco_run_join(t.run));
    r.device.fail = true;
    const diloco_step_report one = {.loss = 1, .samples = 1};
    CHECK_OK(diloco_step(t.run, &one)); /* nothing is due */
    CHECK_OK(diloco_step(t.run, &one));
    CHECK_STATUS(DILOCO_EIO, diloco_step(t.run, &one));
    CHECK_CONTAINS("tensor narrow", diloco_error_text());
    r.device.fail = false;
    CHECK_STATUS(DILOCO_EIO, diloco_step(t.run, NULL));
    toy_close(&t);
    trap_close(&r.device);
}

TEST(copies_queued_before_a_failure_are_waited_for)
{
    trap d;
    dl_mirrors *m;
    trap_open(&d);
    const diloco_device *devices[2] = {&d.device, &d.device};
    for (int out = 0; out < 2; out++) {
        diloco_tensor tensors[2] = {
            {.name = "a", .data = d.memory, .n_dims = 1, .shape = {N}},
            {.name = "b", .data = d.memory + 4096, .n_dims = 1, .shape = {N}}};
        CHECK_OK(dl_mirrors_create(&m, tensors, devices, 2));
        d.fail_at = 2;
        if (out)
            dl_mirrors_push(m, DL_ALL_FRAGMENTS, NULL);
        else
            CHECK_STATUS(DILOCO_EIO, dl_mirrors_pull(m, DL_ALL_FRAGMENTS, NULL));
        CHECK_STATUS(DILOCO_EIO, dl_mirrors_check(m));
        CHECK_INT(0, d.n_copies); /* no copy writes to the memory that is freed now */
        dl_mirrors_destroy(m);
    }
    trap_close(&d);
}

/* Tensors of two fragments, of which the threads' borders cut some. */
TEST(threads_convert_to_the_bits_of_one_thread)
{
    enum { TENSORS = 5, LONGEST = 9001 };
    static const int64_t counts[TENSORS] = {4096, 1, LONGEST, 4095, 300};
    static const diloco_dtype dtypes[TENSORS] = {DILOCO_BF16, DILOCO_F16, DILOCO_BF16, DILOCO_F32,
                                                 DILOCO_F16};
    static unsigned char host[2][TENSORS][LONGEST * sizeof(float)];
    const diloco_device *devices[TENSORS] = {NULL};
    for (size_t threads = 1; threads <= 7; threads += 3) {
        dl_pool *pool;
        dl_mirrors *m[2];
        diloco_tensor tensors[2][TENSORS];
        CHECK_OK(dl_pool_create(&pool, (int)threads));
        for (size_t way = 0; way < 2; way++) {
            for (size_t i = 0; i < TENSORS; i++) {
                static const char *const names[TENSORS] = {"a", "b", "c", "d", "e"};
                for (size_t k = 0; k < sizeof host[way][i] / 2; k++)
                    ((uint16_t *)(void *)host[way][i])[k] = (uint16_t)(k * 40503 + i);
                tensors[way][i] = (diloco_tensor){.name = names[i],
                                                  .data = host[way][i],
                                                  .dtype = dtypes[i],
                                                  .n_dims = 1,
                                                  .shape = {counts[i]},
                                                  .fragment = i == 3};
            }
            CHECK_OK(dl_mirrors_create(&m[way], tensors[way], devices, TENSORS));
            CHECK_OK(dl_mirrors_pull(m[way], 0, way ? pool : NULL));
        }
        for (size_t i = 0; i < TENSORS; i++) {
            const size_t n = (size_t)counts[i];
            CHECK_BYTES(tensors[0][i].data, tensors[1][i].data, n * sizeof(float));
            for (size_t way = 0; way < 2 && dtypes[i] != DILOCO_F32; way++)
                for (size_t k = 0; k < n; k++)
                    ((float *)tensors[way][i].data)[k] = (float)k / 7 + (float)i;
        }
        for (size_t way = 0; way < 2; way++)
            dl_mirrors_push(m[way], 0, way ? pool : NULL);
        for (size_t i = 0; i < TENSORS; i++)
            CHECK_BYTES(host[0][i], host[1][i], sizeof host[0][i]);
        for (size_t way = 0; way < 2; way++)
            dl_mirrors_destroy(m[way]);
        dl_pool_destroy(pool);
    }
}

/* A device of another program sets no text, and the thread's may be of an older failure. */
TEST(reason_of_a_failed_copy_is_the_devices_own_if_it_gives_one)
{
    static const char *const reasons[] = {NULL, "card 7 is lost"};
    for (size_t k = 0; k < 2; k++) {
        trap d;
        dl_mirrors *m;
        trap_open(&d);
        const diloco_device *devices[1] = {&d.device};
        diloco_tensor tensor = {.name = "a", .data = d.memory, .n_dims = 1, .shape = {N}};
        CHECK_OK(dl_mirrors_create(&m, &tensor, devices, 1));
        d.fail = true;
        d.reason = reasons[k];
        CHECK_STATUS(DILOCO_EINVAL, dl_fail(DILOCO_EINVAL, "an older failure"));
        CHECK_STATUS(DILOCO_EIO, dl_mirrors_pull(m, DL_ALL_FRAGMENTS, NULL));
        CHECK_STR(k ? "the device of tensor a failed to copy to the host: card 7 is lost"
                    : "the device of tensor a failed to copy to the host",
                  diloco_error_text());
        dl_mirrors_destroy(m);
        trap_close(&d);
    }
}

/* A gradient is f32, whatever its tensor's type. */
TEST(gradients_and_private_pieces_are_read_and_named)
{
    trap d;
    dl_mirrors *gradients, *privates = NULL;
    size_t index[2];
    void *host[2];
    float values[N], read[N] = {0};
    trap_open(&d);
    d.device.name = "card 7";
    float *at = (float *)(void *)d.memory;
    const diloco_tensor tensors[2] = {
        {.name = "a", .n_dims = 1, .shape = {N}},
        {.name = "b", .dtype = DILOCO_BF16, .n_dims = 1, .shape = {N}}};
    const float *places[2] = {NULL, at};
    const diloco_device *devices[2] = {NULL, &d.device};
    for (int i = 0; i < N; i++)
        values[i] = 1 + 0x1p-20f * (float)i;
    trap_set_open(&d, true);
    memcpy(at, values, sizeof values);
    trap_set_open(&d, false);
    CHECK_OK(dl_mirrors_create_gradients(&gradients, places, tensors, devices, 2));
    CHECK(places[0] == NULL && places[1] != at);
    CHECK_OK(dl_mirrors_pull(gradients, DL_ALL_FRAGMENTS, NULL));
    CHECK_BYTES(values, places[1], sizeof values);
    CHECK_OK(dl_mirrors_add_private(&privates, &index[0], &host[0], "m", at, 4, &d.device));
    CHECK_OK(dl_mirrors_add_private(&privates, &index[1], &host[1], "v", at + 1, sizeof values - 4,
                                    &d.device));
    CHECK_OK(dl_mirrors_read(privates, index[1], read + 1));
    CHECK_OK(dl_mirrors_read(privates, index[0], read));
    CHECK_BYTES(values, read, sizeof values);
    memset(host[0], 9, 4); /* a restored piece */
    memcpy(host[1], read + 1, sizeof values - 4);
    dl_mirrors_push(privates, DL_ALL_FRAGMENTS, NULL);
    CHECK_OK(dl_mirrors_read(privates, index[0], read));
    CHECK_BYTES("\11\11\11\11", read, 4);
    d.fail = true;
    CHECK_STATUS(DILOCO_EIO, dl_mirrors_pull(gradients, DL_ALL_FRAGMENTS, NULL));
    CHECK_STR("the device of the gradient of tensor b (card 7) failed to copy to the host",
              diloco_error_text());
    CHECK_STATUS(DILOCO_EIO, dl_mirrors_read(privates, index[1], read));
    CHECK_STR("the device of private piece v (card 7) failed to copy to the host",
              diloco_error_text());
    dl_mirrors_destroy(gradients);
    dl_mirrors_destroy(privates);
    trap_close(&d);
}

/* Trains one replica for some steps where `device` says: NULL is host memory. Returns whether it
 * resumed with a warning about its machine. */
static bool warns_on(const char *device, const char *store, uint64_t stop_after)
{
    trainer r;
    toy t = toy_with(&r, "r0", store);
    open_trainer(&r, DILOCO_F32, device != NULL);
    if (device) r.device.device.name = *device ? device : NULL;
    t.stop_after = stop_after;
    toy_keep_record(&t);
    CHECK_OK(toy_live(&t));
    const bool warns = strstr(t.record, "\"code\":\"machine\"") != NULL;
    if (warns && device) CHECK(strstr(t.record, device) != NULL);
    free(t.record);
    if (device) trap_close(&r.device);
    return warns;
}

TEST(resume_on_another_device_is_reported)
{
    static const struct {
        const char *saved, *resumed;
        bool warns;
    } rows[] = {{"card a", "card a", false}, {"card a", "card b", true}, {"card a", NULL, true},
                {NULL, "card a", true},      {NULL, NULL, false},        {"card a", "", false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "moved-%zu", i);
        const char *store = scratch_folder(name);
        CHECK(!warns_on(rows[i].saved, store, 5));
        CHECK_INT(rows[i].warns, warns_on(rows[i].resumed, store, 0));
    }
}

TEST(a_device_without_its_functions_is_refused)
{
    toy t = toy_of("r0", "mem://deviceless");
    toy_set(&t, "run.state_dir", "none");
    CHECK_OK(toy_open(&t));
    diloco_device d = {.copy_in = trap_in, .copy_out = trap_out};
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_device(t.run, &d));
    CHECK_CONTAINS("synchronise", diloco_error_text());
    d.synchronise = trap_done;
    d.alloc = trap_alloc;
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_device(t.run, &d));
    CHECK_CONTAINS("release", diloco_error_text());
    d.alloc = NULL;
    for (int i = 0; i < 16; i++)
        CHECK_OK(diloco_run_device(t.run, &d));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_device(t.run, &d));
    toy_close(&t);
}

TEST_MAIN(place_of_a_tensor_changes_no_bit, a_narrow_run_ends_where_the_wide_one_does_rounded,
          rounding_is_no_movement, a_narrow_replica_resumes_to_the_bit,
          replicas_of_another_type_are_refused_by_name, adoption_reads_the_device_only_for_a_mix,
          copies_queued_before_a_failure_are_waited_for, threads_convert_to_the_bits_of_one_thread,
          reason_of_a_failed_copy_is_the_devices_own_if_it_gives_one,
          gradients_and_private_pieces_are_read_and_named, failed_device_is_named_and_stays_failed,
          resume_on_another_device_is_reported, a_device_without_its_functions_is_refused)
