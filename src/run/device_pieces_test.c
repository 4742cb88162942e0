/* device_pieces_test.c - compares private pieces and gradients on a device with the same ones in
 * host memory. The device is that of trap_device.h. */
#include "toy_run.h"
#include "trap_device.h"

/* The moments or the gradient of a toy, on its device or in host memory. The device is named as
 * host memory is, so that both runs save the same facts. */
typedef struct placed {
    bool on_device, is_gradient;
    trap device;
    float host[TOY_N];
} placed;

static float *at(placed *p)
{
    return p->on_device ? (float *)(void *)p->device.memory : p->host;
}

/* The trainer's own access to its device. Every pair of calls surrounds one. */
static float *enter(placed *p)
{
    if (p->on_device) trap_set_open(&p->device, true);
    return at(p);
}

static void leave(placed *p)
{
    if (p->on_device) trap_set_open(&p->device, false);
}

static void open_placed(placed *p, bool on_device, bool is_gradient)
{
    *p = (placed){.on_device = on_device, .is_gradient = is_gradient};
    trap_open(&p->device);
    p->device.device.name = "cpu";
}

static void close_placed(placed *p)
{
    CHECK_INT(0, p->device.n_copies); /* all were waited for */
    trap_close(&p->device);
}

static diloco_status register_moments(toy *t, diloco_run *run)
{
    placed *p = t->user;
    diloco_status status = diloco_run_device(run, p->on_device ? &p->device.device : NULL);
    if (!status) status = diloco_run_private(run, "placed", at(p), sizeof p->host);
    if (!status) status = diloco_run_private(run, "none", NULL, 0);
    return status;
}

static double step_by_moments(toy *t, const diloco_run_info *now)
{
    double loss = 0;
    placed *p = t->user;
    float *moment = enter(p);
    for (int i = 0; i < TOY_N; i++) {
        const float g = t->w[i] - toy_target((uint64_t)now->shard, now->sample, i);
        loss += (double)g * (double)g;
        moment[i] = t->mu * moment[i] + g;
        t->w[i] -= t->inner_lr * moment[i];
        t->moment[i] = g; /* a piece in host memory */
    }
    leave(p);
    return loss / TOY_N;
}

static diloco_status register_gradient(toy *t, diloco_run *run)
{
    placed *p = t->user;
    diloco_status status = diloco_run_device(run, p->on_device ? &p->device.device : NULL);
    if (!status) status = diloco_run_gradient(run, "w", at(p));
    return status;
}

static double step_by_gradient(toy *t, const diloco_run_info *now)
{
    placed *p = t->user;
    float *gradient = enter(p);
    for (int i = 0; i < TOY_N; i++)
        gradient[i] = t->w[i] - toy_target((uint64_t)now->shard, now->sample, i);
    leave(p);
    return 1;
}

/* Of gradients: preset data_parallel is these options with an optimizer of its own. */
static void use(toy *t, placed *p)
{
    t->user = p;
    t->gradients = p->is_gradient;
    t->prepare = t->gradients ? register_gradient : register_moments;
    t->step = t->gradients ? step_by_gradient : step_by_moments;
    if (!t->gradients) return;
    toy_set(t, "server.diloco.outer_optimizer", "sgd");
    toy_set(t, "server.diloco.outer_learning_rate", "0.1");
    toy_set(t, "trainer.local_steps_per_round", "1");
    toy_set(t, "trainer.rounds", "10");
}

typedef struct result {
    float w[2][TOY_N], placed[2][TOY_N];
} result;

static void run_two(result *out, bool is_gradient, bool on_device, const char *const setting[2])
{
    static int n;
    char store[64];
    toy all[2];
    placed places[2];
    snprintf(store, sizeof store, "mem://pieces-%d", n++);
    toy_keep(store);
    toy_crew(all, 2, store, scratch_folder(store + strlen("mem://")));
    for (size_t i = 0; i < 2; i++) {
        open_placed(&places[i], on_device, is_gradient);
        if (setting[0]) toy_set(&all[i], setting[0], setting[1]);
        use(&all[i], &places[i]);
    }
    toy_live_all(all, 2);
    for (size_t i = 0; i < 2; i++) {
        TOY_OK(all[i]);
        memcpy(out->w[i], all[i].w, sizeof out->w[i]);
        memcpy(out->placed[i], enter(&places[i]), sizeof out->placed[i]);
        leave(&places[i]);
        CHECK(!on_device || places[i].device.n_in > 0);
        close_placed(&places[i]);
    }
}

static void compare(bool is_gradient, const char *const setting[2])
{
    result host, device;
    run_two(&host, is_gradient, false, setting);
    run_two(&device, is_gradient, true, setting);
    CHECK_BYTES(&host, &device, sizeof host);
}

TEST(place_of_a_private_piece_changes_no_bit)
{
    static const char *const settings[][2] = {{NULL, NULL},
                                              {"run.save_beside", "false"},
                                              {"server.diloco.overlap_steps", "1"},
                                              {"server.diloco.overlap", "eager"},
                                              {"server.diloco.local_mix", "0.25"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        compare(false, settings[i]);
}

TEST(place_of_a_gradient_changes_no_bit)
{
    static const char *const settings[][2] = {{NULL, NULL}, {"server.diloco.codec", "int8"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        compare(true, settings[i]);
}

/* ---- a stop and a resume ------------------------------------------------------------------ */

enum { STOP = 5, LATER = 3 };

/* A run of one replica that is stopped and resumed. */
typedef struct course {
    const char *store, *state;
    const char *const *setting;
    bool is_gradient;
    diloco_status (*prepare)(toy *t, diloco_run *run); /* NULL: as use() has it */
} course;

static const char *const beside[][2] = {{"server.diloco.overlap_steps", "0"},
                                        {"server.diloco.overlap_steps", "1"}};
enum { N_BESIDE = sizeof beside / sizeof *beside };

static void set_up(toy *t, placed *p, const course *c)
{
    *t = toy_of("r0", c->store);
    toy_set(t, "run.state_dir", c->state);
    toy_set(t, c->setting[0], c->setting[1]);
    use(t, p);
    if (c->prepare) t->prepare = c->prepare;
}

/* Runs a process of the replica until `stop` steps; 0: the end. */
static diloco_status live(toy *t, placed *p, const course *c, uint64_t stop)
{
    set_up(t, p, c);
    t->stop_after = stop;
    return toy_live(t);
}

static void stop_at(const course *c, bool on_device, uint64_t stop)
{
    placed p;
    toy t;
    open_placed(&p, on_device, c->is_gradient);
    CHECK_OK(live(&t, &p, c, stop));
    close_placed(&p);
}

/* Resumes to the end, in memory that has nothing of the process before. */
static result end_of(const course *c, bool on_device)
{
    placed p;
    toy t;
    result end = {0};
    open_placed(&p, on_device, c->is_gradient);
    CHECK_OK(live(&t, &p, c, 0));
    CHECK(t.end.resumed);
    memcpy(end.w[0], t.w, sizeof t.w);
    memcpy(end.placed[0], enter(&p), sizeof t.w);
    leave(&p);
    close_placed(&p);
    return end;
}

static size_t read_state(unsigned char *bytes, size_t cap, const char *state)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/r0/local.safetensors", state);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    const size_t len = fread(bytes, 1, cap, file);
    fclose(file);
    CHECK(len > 0 && len < cap);
    return len;
}

/* The run is copied while it is stopped, since two runs differ by their random ids. */
static course copy_of(const course *c, const char *name)
{
    char command[4 * PATH_MAX];
    course copy = *c;
    char state[PATH_MAX];
    copy.store = scratch_path(name);
    snprintf(state, sizeof state, "%s.state", name);
    copy.state = scratch_path(state);
    snprintf(command, sizeof command, "cp -r '%s' '%s' && cp -r '%s' '%s'", c->store, copy.store,
             c->state, copy.state);
    CHECK_INT(0, system(command));
    return copy;
}

TEST(device_piece_resumes_to_the_bit_and_saves_the_same_file)
{
    static unsigned char files[2][1 << 16];
    static const char *const names[2 * N_BESIDE] = {"alone", "beside", "alone.state",
                                                    "beside.state"};
    for (size_t k = 0; k < N_BESIDE; k++) {
        size_t len[2];
        result ends[2];
        const course first = {.store = scratch_folder(names[k]),
                              .state = scratch_folder(names[k + N_BESIDE]),
                              .setting = beside[k]};
        stop_at(&first, false, STOP);
        for (size_t on_device = 0; on_device < 2; on_device++) {
            char name[32];
            snprintf(name, sizeof name, "%s-%s", names[k], on_device ? "device" : "host");
            const course c = copy_of(&first, name);
            stop_at(&c, on_device, LATER);
            len[on_device] = read_state(files[on_device], sizeof files[0], c.state);
            ends[on_device] = end_of(&c, on_device);
        }
        CHECK_INT(len[0], len[1]);
        CHECK_BYTES(files[0], files[1], len[0]);
        CHECK_BYTES(&ends[0], &ends[1], sizeof ends[0]);
    }
}

/* ---- devices that fail -------------------------------------------------------------------- */

static course new_course(const char *const setting[2], bool is_gradient)
{
    static int n;
    static char store[32];
    snprintf(store, sizeof store, "mem://fails-%d", n++);
    toy_keep(store);
    const course c = {.store = store,
                      .state = scratch_folder(store + strlen("mem://")),
                      .setting = setting,
                      .is_gradient = is_gradient};
    stop_at(&c, false, STOP);
    return c;
}

/* Fails each call of the device in turn, until a run has fewer calls. Each failure names what was
 * to be copied, and its device. A process after it ends as one without failures does. */
static void fail_each_call(bool is_gradient, const char *const setting[2], const char *what)
{
    course c = new_course(setting, is_gradient);
    const result expected = end_of(&c, false);
    size_t call = 1;
    for (bool failed = true; failed; call++) {
        placed p;
        toy t;
        c = new_course(setting, is_gradient);
        open_placed(&p, true, is_gradient);
        p.device.fail_call = call;
        p.device.reason = "it fell off the bus";
        failed = live(&t, &p, &c, 0) != DILOCO_OK;
        if (failed) {
            CHECK_INT(DILOCO_EIO, t.status);
            CHECK_CONTAINS(what, t.text);
            CHECK_CONTAINS("(cpu) failed to ", t.text);
            CHECK_CONTAINS("it fell off the bus", t.text);
        }
        close_placed(&p);
        const result end = failed ? end_of(&c, true) : expected;
        CHECK_BYTES(&expected, &end, sizeof end);
    }
    CHECK(call > 6); /* two at the resume, and two at each save or step */
}

TEST(failed_copy_of_a_private_piece_names_it_and_loses_nothing)
{
    for (size_t k = 0; k < N_BESIDE; k++)
        fail_each_call(false, beside[k], "the device of private piece placed");
}

TEST(failed_copy_of_a_gradient_names_its_tensor_and_loses_nothing)
{
    fail_each_call(true, beside[0], "the device of the gradient of tensor w");
}

/* Training never begins from a piece that was not restored. */
TEST(join_fails_if_a_piece_cannot_be_restored)
{
    placed p;
    toy t;
    const course c = new_course(beside[0], false);
    for (size_t call = 1; call <= 2; call++) { /* the copy, and the wait for it */
        open_placed(&p, true, false);
        p.device.fail_call = call;
        set_up(&t, &p, &c);
        CHECK_OK(toy_open(&t));
        CHECK_STATUS(DILOCO_EIO, diloco_run_join(t.run));
        CHECK_CONTAINS("private piece placed", diloco_error_text());
        toy_close(&t);
        close_placed(&p);
    }
}

/* The second entry is not saved, so it copies nothing from the device. */
TEST(failed_device_of_a_private_piece_stays_failed)
{
    placed p;
    toy t = toy_of("r0", scratch_folder("stays-failed"));
    const diloco_step_report one = {.loss = 1, .samples = 1};
    toy_set(&t, "run.save_every", "9");
    open_placed(&p, true, false);
    use(&t, &p);
    CHECK_OK(toy_open(&t));
    CHECK_OK(diloco_run_join(t.run));
    while (diloco_run_now(t.run).entry == 0)
        CHECK_OK(diloco_step(t.run, &one));
    p.device.fail = true;
    CHECK_STATUS(DILOCO_EIO, diloco_run_save(t.run));
    CHECK_CONTAINS("private piece placed", diloco_error_text());
    p.device.fail = false;
    CHECK_STATUS(DILOCO_EIO, diloco_run_save(t.run));
    CHECK_OK(diloco_step(t.run, &one)); /* nothing is due */
    CHECK_OK(diloco_step(t.run, &one));
    CHECK_STATUS(DILOCO_EIO, diloco_step(t.run, &one));
    CHECK_CONTAINS("private piece placed", diloco_error_text());
    toy_close(&t);
    close_placed(&p);
}

/* ---- registration ------------------------------------------------------------------------- */

static diloco_status fill_placed(void *user, void *to)
{
    placed *p = user;
    if (to == at(p)) return DILOCO_EINVAL; /* the host may not touch it */
    memcpy(to, enter(p), sizeof p->host);
    leave(p);
    return DILOCO_OK;
}

static diloco_status register_filled(toy *t, diloco_run *run)
{
    placed *p = t->user;
    diloco_status status = diloco_run_device(run, &p->device.device);
    if (!status)
        status = diloco_run_private_by(run, "placed", at(p), sizeof p->host, fill_placed, p);
    if (!status) status = diloco_run_private(run, "none", NULL, 0);
    return status;
}

/* The caller's function copies from the device, and a resume copies to it. */
TEST(piece_with_a_fill_is_written_to_host_memory_and_restored_on_its_device)
{
    course c = new_course(beside[0], false);
    const result expected = end_of(&c, false);
    c = new_course(beside[0], false);
    c.prepare = register_filled;
    placed p;
    toy t;
    open_placed(&p, true, false);
    CHECK_OK(live(&t, &p, &c, LATER));
    CHECK_INT(0, p.device.n_in);
    CHECK_INT(1, p.device.n_out);
    close_placed(&p);
    const result end = end_of(&c, true);
    CHECK_BYTES(&expected, &end, sizeof end);
}

TEST(piece_belongs_to_the_device_that_was_named_before_it)
{
    placed p;
    float after[4] = {1, 2, 3, 4};
    toy t = toy_of("r0", scratch_folder("named-before"));
    open_placed(&p, true, false);
    CHECK_OK(toy_open(&t)); /* with "moment" in host memory */
    CHECK_OK(diloco_run_device(t.run, &p.device.device));
    CHECK_OK(diloco_run_private(t.run, "placed", at(&p), sizeof p.host));
    CHECK_OK(diloco_run_device(t.run, NULL));
    CHECK_OK(diloco_run_private(t.run, "after", after, sizeof after));
    CHECK_OK(diloco_run_join(t.run));
    CHECK_OK(diloco_run_save(t.run));
    CHECK_INT(1, p.device.n_in);
    toy_close(&t);
    close_placed(&p);
}

TEST_MAIN(place_of_a_private_piece_changes_no_bit, place_of_a_gradient_changes_no_bit,
          device_piece_resumes_to_the_bit_and_saves_the_same_file,
          failed_copy_of_a_private_piece_names_it_and_loses_nothing,
          failed_copy_of_a_gradient_names_its_tensor_and_loses_nothing,
          join_fails_if_a_piece_cannot_be_restored, failed_device_of_a_private_piece_stays_failed,
          piece_with_a_fill_is_written_to_host_memory_and_restored_on_its_device,
          piece_belongs_to_the_device_that_was_named_before_it)
