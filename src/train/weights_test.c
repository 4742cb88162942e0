/* weights_test.c - a run begins from exactly the values of its file, and a file of another model is
 * refused by name. */
#include "train/weights.h"

#include "state/paths.h"
#include "train_fixture.h"
#include <diloco/inspect.h>
#include <diloco/log.h>

#include <dirent.h>

/* The one file in theta0/ of a run's store; valid until the next but one is asked for. */
static const char *theta0_of(const dl_config *config)
{
    static char paths[2][2 * DL_PATH_MAX];
    static int next;
    char *path = paths[next++ % 2];
    bool found = false;
    char folder[DL_PATH_MAX + 16];
    snprintf(folder, sizeof folder, "%s/theta0", config->store);
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof paths[0], "%s/%s", folder, e->d_name);
            found = true;
        }
    closedir(dir);
    CHECK(found);
    return path;
}

/* Reads theta of an untrained run, as a file's bytes. */
static void read_theta(const dl_config *config, void **bytes, size_t *len)
{
    uint64_t entry;
    CHECK_OK(diloco_theta_read(bytes, len, &entry, config->store, UINT64_MAX));
}

static void same_beginning(const dl_config *a, const dl_config *b, bool expected)
{
    void *x, *y;
    size_t nx, ny;
    read_theta(a, &x, &nx);
    read_theta(b, &y, &ny);
    CHECK_INT(nx, ny);
    CHECK((memcmp(x, y, nx) == 0) == expected);
    diloco_free(x);
    diloco_free(y);
}

static dl_config *created(const char *seed, const char *init_from)
{
    dl_config *config = fixture_config("diloco");
    set(config, "run.seed", seed);
    set(config, "trainer.init_from", init_from);
    CHECK_OK(diloco_train_create(config));
    return config;
}

TEST(a_run_starts_from_the_first_state_of_another)
{
    dl_config *first = created("1", ""), *other = created("2", "");
    same_beginning(first, other, false);
    dl_config *again = created("2", theta0_of(first));
    same_beginning(first, again, true);
    CHECK_STR(strrchr(theta0_of(first), '/'), strrchr(theta0_of(again), '/')); /* the digest */
    free(first), free(other), free(again);
}

/* The parameters, not the outer momentum that is beside them in the file. */
TEST(a_run_starts_from_the_last_state_of_another)
{
    fixture_record record = {0};
    dl_config *first = fixture_config("diloco");
    fixture_train(first, &record, 1);
    void *bytes;
    size_t len, n, m;
    read_theta(first, &bytes, &len);
    dl_config *next = created("2", scratch_write("trained.safetensors", bytes, len));
    float *trained = fixture_theta(first, &n), *begun = fixture_theta(next, &m);
    CHECK_INT(n, m);
    CHECK_BYTES(trained, begun, n * sizeof *trained);
    free(trained), free(begun);
    diloco_free(bytes);
    fixture_record_free(&record);
    free(first), free(next);
}

TEST(a_run_that_is_there_does_not_read_the_file)
{
    fixture_record records[2] = {{0}};
    dl_config *first = created("1", "");
    const char *copy = scratch_path("copy.safetensors");
    CHECK_INT(0, link(theta0_of(first), copy));
    dl_config *run = created("2", copy);
    CHECK_INT(0, unlink(copy));
    CHECK_OK(diloco_train_create(run)); /* the same command again */
    fixture_train(run, records, 1);
    fixture_record_free(&records[0]);
    free(first), free(run);
}

TEST(a_replica_that_is_the_first_reads_the_file_itself)
{
    fixture_record record = {0};
    dl_config *first = created("1", ""), *run = fixture_config("diloco");
    set(run, "run.seed", "2");
    set(run, "trainer.init_from", theta0_of(first));
    fixture_train(run, &record, 1);
    CHECK_STR(strrchr(theta0_of(first), '/'), strrchr(theta0_of(run), '/'));
    fixture_record_free(&record);
    free(first), free(run);
}

/* ---- refusals */

static void refused(diloco_status status, const char *part, const char *path)
{
    dl_config *config = fixture_config("diloco");
    set(config, "trainer.init_from", path);
    CHECK_STATUS(status, diloco_train_create(config));
    CHECK_CONTAINS("trainer.init_from = ", diloco_error_text());
    CHECK_CONTAINS(part, diloco_error_text());
    dl_config *none = fixture_config("diloco");
    set(none, "run.store", config->store);
    CHECK_STATUS(DILOCO_ENOENT, diloco_run_config(none, config->store)); /* nothing was created */
    free(config), free(none);
}

enum { MISSING, MISSHAPED, MISTYPED, SURPLUS, NOT_FINITE };

/* Writes a file with all tensors of the fixture's model, with one mistake in the second. */
static const char *mistaken(int mistake, const char *file)
{
    dl_setup setup;
    dl_buf header;
    dl_st_tensor tensors[64];
    dl_span spans[65];
    size_t n, at = 0;
    dl_config *config = fixture_config("diloco");
    CHECK_OK(dl_setup_open(&setup, config, 1, 1));
    const diloco_tensor *own = dl_model_tensors(setup.model, &n);
    float *values = fixture_parameters(&setup);
    for (size_t i = 0; i < n; i++) {
        dl_st_tensor *t = &tensors[at];
        size_t count = own[i].shape[0] * (own[i].n_dims == 2 ? own[i].shape[1] : 1);
        *t = (dl_st_tensor){.name = own[i].name, .dtype = "F32", .n_dims = own[i].n_dims};
        memcpy(t->shape, own[i].shape, sizeof own[i].shape);
        if (i == 1 && mistake == MISSING) continue;
        if (i == 1 && mistake == MISSHAPED) t->shape[0] /= 2, t->shape[1] *= 2;
        if (i == 1 && mistake == MISTYPED) t->dtype = "I32";
        spans[1 + at++] = (dl_span){values, count * sizeof(float)};
    }
    if (mistake == NOT_FINITE) values[0] = NAN;
    if (mistake == SURPLUS) {
        tensors[at] = (dl_st_tensor){.name = "lm_head.bias", .dtype = "F32", .n_dims = 1};
        tensors[at].shape[0] = 3;
        spans[1 + at++] = (dl_span){values, 3 * sizeof(float)};
    }
    const char *path = scratch_path(file);
    dl_buf_init(&header, 1 << 20);
    CHECK_OK(dl_st_write(path, &header, spans, tensors, at, NULL, 0));
    dl_buf_deinit(&header);
    dl_setup_close(&setup);
    free(values), free(config);
    return path;
}

TEST(a_file_that_is_not_the_models_is_refused_by_name)
{
    static const char second[] = "model.layers.0.self_attn.q_proj.weight";
    char text[256];
    snprintf(text, sizeof text, "there is no tensor %s, which the model has as F32 [16, 16]",
             second);
    refused(DILOCO_EINVAL, text, mistaken(MISSING, "missing"));
    snprintf(text, sizeof text, "tensor %s is F32 [8, 32], and F32 [16, 16] in the model", second);
    refused(DILOCO_EINVAL, text, mistaken(MISSHAPED, "misshaped"));
    snprintf(text, sizeof text, "tensor %s is I32 [16, 16], and F32 [16, 16] in the model", second);
    refused(DILOCO_EINVAL, text, mistaken(MISTYPED, "mistyped"));
    refused(DILOCO_EINVAL, "tensor lm_head.bias is not one of the model's",
            mistaken(SURPLUS, "surplus"));
}

TEST(a_file_that_cannot_be_read_is_refused)
{
    refused(DILOCO_ENOENT, "no-such-file", "/no-such-file");
    refused(DILOCO_EPROTO, "", scratch_write("text", "not safetensors at all", 22));
    refused(DILOCO_EPROTO, "", scratch_write("empty", "", 0));
}

TEST(values_that_are_not_finite_are_refused)
{
    dl_config *config = fixture_config("diloco");
    set(config, "trainer.init_from", mistaken(NOT_FINITE, "nan"));
    CHECK_STATUS(DILOCO_ENUMERIC, diloco_train_create(config));
    CHECK_CONTAINS("model.embed_tokens.weight[0] is not finite", diloco_error_text());
    free(config);
}

/* ---- a run that continues from another's end (trainer.init_as = "continuation") ----------------
 */

enum { RESHAPED = 1, RETYPED = 3, VANISHED = 5, FORGOTTEN = 7 };
#define LEFT "model.layers.9.bias" /* a tensor of a layer that the next model does not have */

static bool is_of(const char *name, const char *tensor)
{
    return !strcmp(name, tensor) ||
           (!strncmp(name, "diloco.momentum.", 16) && !strcmp(name + 16, tensor));
}

/* A run's last state as another model would have left it. One tensor and its momentum have another
 * shape, one has another type, one is missing, one lacks its momentum, and one is new. */
static const char *changed(const dl_st *st, const diloco_tensor *own)
{
    dl_buf header;
    dl_st_tensor tensors[128];
    dl_span spans[129];
    size_t n = 0;
    CHECK(st->n < 100);
    for (size_t i = 0; i < st->n; i++) {
        dl_st_tensor t = st->tensors[i];
        const size_t len = t.end - t.begin;
        if (is_of(t.name, own[VANISHED].name)) continue;
        if (is_of(t.name, own[FORGOTTEN].name) && !strncmp(t.name, "diloco.", 7)) continue;
        if (is_of(t.name, own[RESHAPED].name)) t.shape[0] /= 2, t.shape[1] *= 2;
        if (is_of(t.name, own[RETYPED].name)) t.dtype = "I32";
        tensors[n] = t;
        spans[1 + n++] = (dl_span){st->data + st->tensors[i].begin, len};
    }
    tensors[n] = (dl_st_tensor){.name = LEFT, .dtype = "F32", .n_dims = 1, .shape = {3}};
    spans[1 + n++] = (dl_span){st->data, 12};
    const char *path = scratch_path("changed.safetensors");
    dl_buf_init(&header, 1 << 20);
    CHECK_OK(dl_st_write(path, &header, spans, tensors, n, NULL, 0));
    dl_buf_deinit(&header);
    return path;
}

typedef struct image {
    void *bytes;
    size_t len;
    dl_st st;
} image;

static void image_open(image *out, const dl_config *config)
{
    read_theta(config, &out->bytes, &out->len);
    CHECK_OK(dl_st_open(&out->st, out->bytes, out->len));
}

static void image_close(image *i)
{
    dl_st_close(&i->st);
    diloco_free(i->bytes);
}

static const float *floats_of(const image *i, const char *name)
{
    return (const void *)(i->st.data + dl_st_find(&i->st, name)->begin);
}

static bool all_zero(const image *i, const char *name)
{
    const dl_st_tensor *t = dl_st_find(&i->st, name);
    for (size_t at = t->begin; at < t->end; at++)
        if (i->st.data[at]) return false;
    return true;
}

static bool same_bytes(const image *a, const image *b, const char *name)
{
    const dl_st_tensor *t = dl_st_find(&a->st, name);
    return memcmp(floats_of(a, name), floats_of(b, name), t->end - t->begin) == 0;
}

static char lines_logged[8192];
static void keep_line(void *user, diloco_log_level level, const char *line)
{
    (void)user, (void)level;
    strncat(lines_logged, line, sizeof lines_logged - strlen(lines_logged) - 2);
    strcat(lines_logged, "\n");
}

static int count_lines(void)
{
    int n = 0;
    for (const char *c = lines_logged; *c; c++)
        n += *c == '\n';
    return n;
}

static dl_config *continued_with(const char *path, const char *const (*settings)[2])
{
    dl_config *config = fixture_config("diloco");
    set(config, "run.seed", "2");
    set(config, "trainer.init_from", path);
    set(config, "trainer.init_as", "continuation");
    for (; settings && (*settings)[0]; settings++)
        set(config, (*settings)[0], (*settings)[1]);
    lines_logged[0] = 0;
    diloco_log_set(keep_line, NULL, DILOCO_LOG_WARN);
    CHECK_OK(diloco_train_create(config));
    diloco_log_set(NULL, NULL, DILOCO_LOG_WARN);
    return config;
}

static dl_config *continued(const char *path)
{
    return continued_with(path, NULL);
}

TEST(fed_18_a_tensor_without_a_change_moves_by_its_momentum)
{
    fixture_record record = {0};
    image end, begin;
    dl_config *first = fixture_config("diloco");
    fixture_train(first, &record, 1);
    image_open(&end, first);
    dl_config *next = continued(scratch_write("end.safetensors", end.bytes, end.len));
    image_open(&begin, next);
    CHECK_STR("", lines_logged);
    CHECK_INT(end.len, begin.len);
    CHECK_BYTES(end.bytes, begin.bytes, end.len);
    image_close(&end), image_close(&begin);
    fixture_record_free(&record);
    free(first), free(next);
}

TEST(
    fed_18_only_the_momentum_of_a_tensor_that_changed_restarts_and_that_of_one_that_vanished_is_dropped)
{
    static const size_t anew[] = {RESHAPED, RETYPED, VANISHED, FORGOTTEN};
    fixture_record record = {0};
    image end, begin, initial;
    dl_setup setup;
    size_t n;
    dl_config *first = fixture_config("diloco"), *other = created("2", "");
    fixture_train(first, &record, 1);
    image_open(&end, first);
    image_open(&initial, other);
    CHECK_OK(dl_setup_open(&setup, first, 1, 1));
    const diloco_tensor *own = dl_model_tensors(setup.model, &n);
    CHECK(n > FORGOTTEN);
    dl_config *next = continued(changed(&end.st, own));
    image_open(&begin, next);
    for (size_t i = 0; i < n; i++) {
        char momentum[256];
        snprintf(momentum, sizeof momentum, "diloco.momentum.%s", own[i].name);
        bool restarts = false;
        for (size_t k = 0; k < 4; k++)
            restarts |= anew[k] == i;
        CHECK(all_zero(&begin, momentum) == restarts);
        if (!restarts) CHECK(same_bytes(&begin, &end, momentum));
        if (restarts) CHECK_CONTAINS(own[i].name, lines_logged);
        CHECK(same_bytes(&begin, restarts && i != FORGOTTEN ? &initial : &end, own[i].name));
    }
    CHECK_CONTAINS("1 tensor (" LEFT "): not in this model, and left out", lines_logged);
    CHECK_CONTAINS("4 tensors (", lines_logged); /* one warning of all whose momentum restarts */
    CHECK_CONTAINS("3 tensors (", lines_logged); /* and one of all that start again */
    CHECK_INT(3, count_lines());
    CHECK(!dl_st_find(&begin.st, LEFT));
    image_close(&end), image_close(&begin), image_close(&initial);
    dl_setup_close(&setup);
    fixture_record_free(&record);
    free(first), free(next), free(other);
}

/* The fixture's H is 4, its outer rule nesterov with .7 and .9, so of a gain of 7. */
TEST(other_h_than_the_continued_runs_warns_with_matching_momentum)
{
#define H     "trainer.local_steps_per_round"
#define LR    "server.diloco.outer_learning_rate"
#define MU    "server.diloco.outer_momentum"
#define OUTER "server.diloco.outer_optimizer"
    static const struct {
        const char *settings[4][2];
        const char *said; /* NULL: nothing */
    } cases[] = {
        {{{H, "2"}}, LR " = 0.3592 and " MU " = 0.9487"},
        {{{H, "2"}, {LR, "0.3592"}, {MU, "0.9487"}}, NULL},
        {{{H, "40"}}, LR " = 1 and " MU " = 0.8571"}, /* 4.6 would overshoot */
        {{{H, "2"}, {OUTER, "sgd"}}, NULL},
        {{{H, "4"}, {LR, "0.4"}}, NULL},
    };
    fixture_record first_record = {0}, record = {0};
    image end;
    dl_config *first = fixture_config("diloco");
    fixture_train(first, &first_record, 1);
    image_open(&end, first);
    const char *path = scratch_write("pace.safetensors", end.bytes, end.len);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dl_config *next = continued_with(path, cases[i].settings);
        if (!cases[i].said) CHECK(!strstr(lines_logged, "continues here"));
        if (cases[i].said) CHECK_CONTAINS("was 4 in the run that continues here", lines_logged);
        if (cases[i].said) CHECK_CONTAINS(cases[i].said, lines_logged);
        if (i == 0) {
            fixture_train(next, &record, 1);
            const dl_json_value warned = fixture_nth(&record, "warn", 0);
            CHECK(dl_json_is(dl_json_get(warned, "code"), "continuation"));
        }
        free(next);
    }
    image_close(&end);
    fixture_record_free(&first_record), fixture_record_free(&record);
    free(first);
}

TEST(the_moments_of_an_adaptive_outer_optimizer_are_said_to_be_of_other_movements)
{
    static const char *const before[][2] = {{OUTER, "fedadam"}, {NULL, NULL}};
    static const char *const after[][2] = {{OUTER, "fedadam"}, {H, "2"}, {NULL, NULL}};
    image end;
    dl_config *initial = created("1", ""); /* its image only has the tensors */
    image_open(&end, initial);
    dl_config *first = continued_with(scratch_write("a.st", end.bytes, end.len), before);
    image_close(&end);
    image_open(&end, first);
    dl_config *next = continued_with(scratch_write("b.st", end.bytes, end.len), after);
    CHECK_CONTAINS("The moments of fedadam are of movements about 2 times as long", lines_logged);
    image_close(&end);
    free(initial), free(first), free(next);
#undef H
#undef LR
#undef MU
#undef OUTER
}

static diloco_status read_inner_steps(void *context, const dl_st *st)
{
    const dl_st_tensor *t = dl_st_find(st, "diloco.private.inner.steps");
    CHECK(t != NULL);
    memcpy(context, st->data + t->begin, sizeof(uint64_t));
    return DILOCO_OK;
}

/* The inner optimizer's count of steps that a run's replica has saved. */
static uint64_t saved_steps(const dl_config *config)
{
    dl_config_path folder;
    char path[2 * DL_PATH_MAX];
    uint64_t steps = 0;
    CHECK_OK(dl_run_state_dir(folder, config));
    snprintf(path, sizeof path, "%s/r0/local.safetensors", folder);
    CHECK_OK(dl_st_with_file(path, read_inner_steps, &steps));
    return steps;
}

/* Train a continuation, whose first warning contains `said`. */
static void check_continued(dl_config *next, const char *said, uint64_t steps)
{
    char text[512];
    fixture_record record = {0};
    fixture_train(next, &record, 1);
    const dl_json_value warned = fixture_nth(&record, "warn", 0);
    CHECK(dl_json_is(dl_json_get(warned, "code"), "continuation"));
    CHECK_OK(dl_json_read_str(text, sizeof text, warned, "text"));
    CHECK_CONTAINS(said, text);
    CHECK_INT(steps, saved_steps(next));
    fixture_record_free(&record);
}

/* A run's folder and its URL stand for its newest model and outer vectors. */
TEST(a_run_named_by_its_store_is_continued_with_the_moments_that_its_replica_left)
{
    fixture_record record = {0};
    image end, begin;
    char url[DL_PATH_MAX + 16], local[DL_PATH_MAX + 16];
    dl_config *first = fixture_config("diloco");
    fixture_train(first, &record, 1);
    image_open(&end, first);
    snprintf(url, sizeof url, "file://%s", first->store);
    snprintf(local, sizeof local, "%s.local", first->store);
    for (int by_url = 0; by_url < 2; by_url++) {
        dl_config *next = continued(by_url ? url : first->store);
        image_open(&begin, next);
        CHECK_STR("", lines_logged);
        CHECK_INT(end.len, begin.len);
        CHECK_BYTES(end.bytes, begin.bytes, end.len);
        image_close(&begin);
        check_continued(next, "begins with the moments that this replica has left", 8 + 8);
        free(next);
    }
    CHECK_INT(0, rename(local, scratch_path("moved-away")));
    dl_config *next = continued(first->store);
    check_continued(next, "begins without moments", 8);
    image_close(&end);
    fixture_record_free(&record);
    free(first), free(next);
}

TEST(a_folder_that_holds_no_run_is_named_as_such)
{
    dl_config *config = fixture_config("diloco");
    set(config, "trainer.init_from", "/");
    set(config, "trainer.init_as", "continuation");
    CHECK(diloco_train_create(config) != DILOCO_OK);
    CHECK_CONTAINS("trainer.init_from = \"/\"", diloco_error_text());
    CHECK_CONTAINS("run", diloco_error_text());
    free(config);
}

TEST(a_file_of_which_nothing_fits_is_no_run_to_continue)
{
    static const dl_st_meta none = {"format", "pt"};
    dl_buf header;
    dl_span spans[2] = {{NULL, 0}, {"abcdefghijkl", 12}};
    dl_st_tensor tensor = {.name = LEFT, .dtype = "F32", .n_dims = 1, .shape = {3}};
    const char *path = scratch_path("nothing.safetensors");
    dl_buf_init(&header, 1 << 20);
    CHECK_OK(dl_st_write(path, &header, spans, &tensor, 1, &none, 1));
    dl_buf_deinit(&header);
    dl_config *config = fixture_config("diloco");
    set(config, "trainer.init_from", path);
    set(config, "trainer.init_as", "continuation");
    CHECK_STATUS(DILOCO_EINVAL, diloco_train_create(config));
    CHECK_CONTAINS("no tensor of the file is one of the model's", diloco_error_text());
    set(config, "trainer.init_from", "/no-such-file");
    CHECK_STATUS(DILOCO_ENOENT, diloco_train_create(config));
    free(config);
}

TEST(an_outer_optimizer_that_counts_commits_cannot_be_continued)
{
    dl_config *config = fixture_config("diloco");
    set(config, "trainer.init_from", "/no-such-file");
    set(config, "trainer.init_as", "continuation");
    set(config, "server.diloco.outer_optimizer", "adam");
    CHECK_STATUS(DILOCO_EREFUSED, diloco_train_create(config));
    CHECK_CONTAINS("adam also counts its commits", diloco_error_text());
    free(config);
}

/* There are no adapter models, so no name can be mapped. A file of an adapter is recognized; a name
 * that only resembles one is an unknown tensor. */
TEST(fed_19_an_adapters_tensors_are_refused_and_a_name_that_only_resembles_one_is_just_unknown)
{
    static const struct {
        const char *name, *said;
    } files[] = {
        {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", "is of an adapter"},
        {"model.layers.0.self_attn.q_proj.lora_B.default.weight", "is of an adapter"},
        {"model.layers.0.lora_Amplifier.weight", "is not one of the model's"},
    };
    for (size_t i = 0; i < 3; i++) {
        dl_st_tensor tensors[128];
        dl_span spans[129];
        dl_buf header;
        image whole;
        dl_config *run = created("1", "");
        image_open(&whole, run);
        for (size_t k = 0; k < whole.st.n; k++) {
            tensors[k] = whole.st.tensors[k];
            spans[1 + k] =
                (dl_span){whole.st.data + tensors[k].begin, tensors[k].end - tensors[k].begin};
        }
        size_t n = whole.st.n;
        tensors[n] =
            (dl_st_tensor){.name = files[i].name, .dtype = "F32", .n_dims = 1, .shape = {3}};
        spans[1 + n++] = (dl_span){whole.st.data, 12};
        const char *path = scratch_path("adapter.safetensors");
        dl_buf_init(&header, 1 << 20);
        CHECK_OK(dl_st_write(path, &header, spans, tensors, n, NULL, 0));
        dl_buf_deinit(&header);
        refused(DILOCO_EINVAL, files[i].said, path);
        image_close(&whole);
        free(run);
    }
}

TEST_MAIN(
    fed_18_a_tensor_without_a_change_moves_by_its_momentum,
    fed_18_only_the_momentum_of_a_tensor_that_changed_restarts_and_that_of_one_that_vanished_is_dropped,
    other_h_than_the_continued_runs_warns_with_matching_momentum,
    the_moments_of_an_adaptive_outer_optimizer_are_said_to_be_of_other_movements,
    a_run_named_by_its_store_is_continued_with_the_moments_that_its_replica_left,
    a_folder_that_holds_no_run_is_named_as_such, a_file_of_which_nothing_fits_is_no_run_to_continue,
    an_outer_optimizer_that_counts_commits_cannot_be_continued,
    fed_19_an_adapters_tensors_are_refused_and_a_name_that_only_resembles_one_is_just_unknown,
    a_run_starts_from_the_first_state_of_another, a_run_starts_from_the_last_state_of_another,
    a_run_that_is_there_does_not_read_the_file, a_replica_that_is_the_first_reads_the_file_itself,
    a_file_that_is_not_the_models_is_refused_by_name, a_file_that_cannot_be_read_is_refused,
    values_that_are_not_finite_are_refused)
