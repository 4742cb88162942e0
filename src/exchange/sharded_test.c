/* sharded_test.c - runs where each member combines a slice for all. They have the bits of an
 * allgather at every entry, for any codec that can be sliced, any number of members, and odd sizes.
 * Further tests: the bytes that each replica moves, a killed owner, a Byzantine owner, and damaged
 * slices. */
#include "volume.h"

#include "base/json.h"
#include "codec/codec.h"
#include "log/entry.h"
#include "log/slices.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { MOST = 8, RESULTS = 16, FLOATS = 5 * DL_BLOCK + 77, COUNTS = 3, FLAGS = 5 };

/* ---- slicing and joining ----------------------------------------------------------------- */

/* Several tensors, none a multiple of anything, so that blocks straddle the cuts. */
static void make_form(dl_codec_form *form, dl_manifest *manifest, const char *codec)
{
    static const size_t sizes[] = {1, 4000, 333, 9001, 5000};
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    diloco_tensor t[5];
    dl_config config;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "server.diloco.codec", codec, "test"));
    for (int i = 0; i < 5; i++)
        t[i] = (diloco_tensor){.name = names[i], .n_dims = 1, .shape = {sizes[i]}};
    CHECK_OK(dl_manifest_init(manifest, t, 5, false));
    CHECK_OK(dl_codec_form_init(form, &config, manifest, 0));
}

TEST(a_slice_has_all_bytes_that_its_elements_are_decoded_from)
{
    for (size_t k = 0; dl_codec_at(k); k++) {
        if (!dl_codec_at(k)->ranges) continue;
        dl_codec_form form;
        dl_manifest manifest;
        make_form(&form, &manifest, dl_codec_at(k)->name);
        float *g = malloc(form.n * sizeof *g), block[DL_BLOCK], want[DL_BLOCK];
        unsigned char *payload = malloc(form.room), *part = malloc(form.room);
        size_t len;
        for (size_t i = 0; i < form.n; i++)
            g[i] = (float)((i * 2654435761u) % 1000) - 500;
        form.codec->encode(&form, payload, &len, g);
        for (size_t replicas = 1; replicas <= MOST; replicas++) {
            const dl_slicing s = dl_slicing_of(&form, manifest.fragments[0], replicas);
            size_t behind = 0;
            for (size_t i = 0; i < s.n; i++) {
                size_t first, count;
                dl_slice_part from[DL_SLICE_SPANS], to[DL_SLICE_SPANS];
                memset(part, 0x5a, form.room);
                const size_t n = dl_slice_parts(from, &s, i, payload, NULL);
                CHECK_INT(n, dl_slice_parts(to, &s, i, part, NULL));
                for (size_t p = 0; p < n; p++)
                    memcpy(to[p].data, from[p].data, from[p].len);
                dl_slice_floats(&first, &count, &s, i);
                CHECK_INT(behind, first);
                CHECK_INT(0, first % DL_BLOCK);
                behind = first + count;
                double norm2;
                CHECK_OK(dl_codec_check_part(&form, part, 1e9f, first, count, &norm2));
                for (size_t at = first; at < behind; at += DL_BLOCK) {
                    const size_t m = dl_size_min(DL_BLOCK, behind - at);
                    form.codec->decode(&form, want, payload, len, at, m);
                    form.codec->decode(&form, block, part, len, at, m);
                    CHECK_BYTES(want, block, m * sizeof *want);
                }
            }
            CHECK_INT(form.n, behind);
        }
        free(g);
        free(payload);
        free(part);
        dl_codec_form_deinit(&form);
        dl_manifest_deinit(&manifest);
    }
}

/* ---- the same states --------------------------------------------------------------------- */

typedef struct extras {
    float big[FLOATS];
    int64_t counts[COUNTS];
    unsigned char flags[FLAGS];
    int number;
} extras;

static diloco_status add_extras(toy *t, diloco_run *run)
{
    extras *e = t->user;
    const diloco_tensor big = {.name = "big", .data = e->big, .n_dims = 1, .shape = {FLOATS}};
    const diloco_tensor counts = {.name = "counts",
                                  .data = e->counts,
                                  .dtype = DILOCO_I64,
                                  .role = DILOCO_BUFFER,
                                  .n_dims = 1,
                                  .shape = {COUNTS}};
    const diloco_tensor flags = {.name = "flags",
                                 .data = e->flags,
                                 .dtype = DILOCO_BOOL,
                                 .role = DILOCO_BUFFER,
                                 .n_dims = 1,
                                 .shape = {FLAGS}};
    diloco_status status = diloco_run_tensor(run, &big);
    if (!status) status = diloco_run_tensor(run, &counts);
    return status ? status : diloco_run_tensor(run, &flags);
}

/* Moves every tensor, each replica differently. */
static double move(toy *t, const diloco_run_info *now)
{
    extras *e = t->user;
    const float by = 1e-3f * (float)(1 + e->number);
    for (size_t i = 0; i < FLOATS; i++)
        e->big[i] += by * (float)((int)((i * 31 + now->step * 7) % 13) - 6);
    for (size_t i = 0; i < COUNTS; i++)
        e->counts[i] += (int64_t)i + e->number;
    for (size_t i = 0; i < FLAGS; i++)
        e->flags[i] = (unsigned char)((i + (size_t)e->number) % 2);
    return toy_step(t, now);
}

typedef struct results {
    size_t n, n_combined;
    char digest[RESULTS][33];
} results;

static diloco_status on_entry(void *user, const diloco_log_entry *e)
{
    results *r = user;
    CHECK(r->n < RESULTS && e->commit);
    r->n_combined += e->combined_by[0] != 0;
    strcpy(r->digest[r->n++], e->result);
    return DILOCO_OK;
}

static results log_of(const char *store)
{
    results r = {.n = 0};
    diloco_verify_report report;
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
    CHECK(report.complete);
    CHECK_INT(0, report.voids);
    CHECK_OK(diloco_log_walk(store, 0, on_entry, &r));
    return r;
}

static toy crew[MOST];
static extras extra[MOST];

static void make_crew(int n, const char *store, const char *topology,
                      const char *const (*settings)[2])
{
    toy_crew(crew, n, store, "none");
    toy_set_all(crew, n, "run.retain", "all");
    toy_set_all(crew, n, "run.on_missing", "wait");
    toy_set_all(crew, n, "trainer.rounds", "3");
    toy_set_all(crew, n, "server.diloco.exchange", topology);
    for (; settings && (*settings)[0]; settings++)
        toy_set_all(crew, n, (*settings)[0], (*settings)[1]);
    memset(extra, 0, sizeof extra);
    for (int i = 0; i < n; i++) {
        extra[i].number = i;
        crew[i].user = &extra[i];
        crew[i].prepare = add_extras;
        crew[i].step = move;
    }
}

static results run_of(int n, const char *name, const char *topology,
                      const char *const (*settings)[2])
{
    char store[96];
    snprintf(store, sizeof store, "mem://sharded.%s.%d.%s", name, n, topology);
    toy_keep(store);
    make_crew(n, store, topology, settings);
    toy_live_all(crew, n);
    for (int i = 0; i < n; i++)
        TOY_OK(crew[i]);
    return log_of(store);
}

static void check_same(int n, const char *name, const char *const (*settings)[2])
{
    const results want = run_of(n, name, "allgather", settings),
                  got = run_of(n, name, "sharded", settings);
    CHECK_INT(want.n, got.n);
    CHECK_INT(0, want.n_combined);
    CHECK_INT(got.n, got.n_combined);
    for (size_t e = 0; e < want.n; e++)
        if (strcmp(want.digest[e], got.digest[e]) != 0)
            CHECK_FAIL("%s with %d members: entry %zu is another", name, n, e);
}

TEST(p19_every_entry_has_the_bits_of_an_allgather_with_any_codec_that_can_be_cut)
{
    for (size_t i = 0; dl_codec_at(i); i++) {
        const char *name = dl_codec_at(i)->name;
        const char *const settings[][2] = {{"server.diloco.codec", name}, {NULL, NULL}};
        if (dl_codec_at(i)->ranges) check_same(3, name, settings);
    }
}

TEST(p19_and_with_2_to_8_members)
{
    static const char *const settings[][2] = {{"server.diloco.codec", "int4"}, {NULL, NULL}};
    for (int n = 2; n <= MOST; n++)
        check_same(n, "members", settings);
}

TEST(p19_and_with_any_rule_that_goes_element_by_element)
{
    static const char *const median[][2] = {
        {"server.diloco.combiner", "median"}, {"run.min_replicas", "4"}, {NULL, NULL}};
    static const char *const trimmed[][2] = {{"server.diloco.combiner", "trimmed_mean"},
                                             {"server.diloco.trim", "0.25"},
                                             {"run.min_replicas", "4"},
                                             {NULL, NULL}};
    static const char *const adam[][2] = {{"server.diloco.outer_optimizer", "fedadam"},
                                          {"server.diloco.aggregation_weighting", "num_samples"},
                                          {NULL, NULL}};
    static const char *const feedback[][2] = {
        {"server.diloco.codec", "sign"}, {"server.diloco.error_feedback", "0.9"}, {NULL, NULL}};
    static const char *const overlap[][2] = {
        {"trainer.local_steps_per_round", "8"}, {"server.diloco.overlap_steps", "2"}, {NULL, NULL}};
    check_same(4, "median", median);
    check_same(4, "trimmed", trimmed);
    check_same(4, "adam", adam);
    check_same(4, "feedback", feedback);
    check_same(4, "overlap", overlap);
}

TEST(p19_same_states_with_any_rule_or_check_that_measures_members)
{
    static const char *const rules[][2] = {
        {"krum", "none"},          {"multi_krum", "none"},  {"geometric_median", "none"},
        {"centered_clip", "none"}, {"rda", "none"},         {"clipped_mean", "none"},
        {"median", "nnm"},         {"median", "bucketing"}, {"geometric_median", "nnm"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const char *const settings[][2] = {{"server.diloco.combiner", rules[i][0]},
                                           {"server.diloco.pre_aggregation", rules[i][1]},
                                           {"run.min_replicas", "5"},
                                           {"trainer.rounds", "2"},
                                           {NULL, NULL}};
        char name[64];
        snprintf(name, sizeof name, "%s.%s", rules[i][0], rules[i][1]);
        check_same(5, name, settings);
    }
    static const char *const bulyan[][2] = {
        {"server.diloco.combiner", "bulyan"}, {"run.min_replicas", "7"}, {NULL, NULL}};
    static const char *const rescaled[][2] = {
        {"server.diloco.combiner", "krum"}, {"server.diloco.rescale", "median_norm"},
        {"server.diloco.codec", "int4"},    {"run.min_replicas", "5"},
        {"check.short", "0.001"}, /* and checks, too */
        {"check.cosine", "-0.99"},          {NULL, NULL}};
    static const char *const normed[][2] = {{"check.norm", "100"}, {NULL, NULL}};
    static const char *const copied[][2] = {
        {"server.diloco.codec", "int8"}, {"check.copy", "0.99999"}, {NULL, NULL}};
    check_same(7, "bulyan", bulyan);
    check_same(5, "rescaled", rescaled);
    check_same(3, "normed", normed);
    check_same(4, "copied", copied);
}

TEST(p19_and_with_several_owners_of_each_slice)
{
    static const char *const mean[][2] = {{"server.diloco.slice_owners", "3"}, {NULL, NULL}};
    static const char *const krum[][2] = {{"server.diloco.combiner", "krum"},
                                          {"server.diloco.slice_owners", "5"},
                                          {"run.min_replicas", "5"},
                                          {NULL, NULL}};
    check_same(4, "owners", mean);
    check_same(5, "krum.owners", krum);
}

/* ---- traffic ----------------------------------------------------------------------------- */

TEST(p19_each_replica_writes_and_reads_the_bytes_of_the_formulas)
{
    check_volume(scratch_path("sharded"), DL_TOPOLOGY_SHARDED, "f32");
    check_volume(scratch_path("sharded8"), DL_TOPOLOGY_SHARDED, "int8");
}

/* ---- an owner that is killed ------------------------------------------------------------- */

/* Dies once it has contributed to entry 1, of which it owns a slice. */
static void *watch_and_die(void *context)
{
    char c[300];
    struct stat s;
    snprintf(c, sizeof c, "%s/c/0000000001/r2.0000", (const char *)context);
    while (stat(c, &s))
        usleep(50);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* Waits after entry 1 for the kill: watch_and_die's thread may be scheduled late. */
static double move_until_killed(toy *t, const diloco_run_info *now)
{
    while (now->entry >= 2)
        pause();
    return move(t, now);
}

static pid_t start(const char *store, int number, const char *dies)
{
    static const char *const settings[][2] = {
        {"run.deadline", "1"}, {"run.patience", "1"}, {NULL, NULL}};
    pthread_t thread;
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid) return pid;
    make_crew(3, store, "sharded", settings);
    if (dies) crew[number].step = move_until_killed;
    if (dies && pthread_create(&thread, NULL, watch_and_die, (void *)(uintptr_t)dies)) _exit(2);
    _exit(toy_live(&crew[number]) ? 1 : 0);
}

TEST(p19_an_owner_that_is_killed_delays_the_run_and_nothing_else)
{
    const char *store = scratch_path("killed");
    int status;
    pid_t pids[4];
    for (int i = 0; i < 3; i++)
        pids[i] = start(store, i, i == 2 ? store : NULL);
    CHECK_INT(pids[2], waitpid(pids[2], &status, 0));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    pids[2] = start(store, 2, NULL);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(pids[i], waitpid(pids[i], &status, 0));
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    diloco_verify_report report;
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
    CHECK(report.complete);
    CHECK_INT(0, report.voids);
}

/* ---- a Byzantine owner ------------------------------------------------------------------- */

enum { FORGED_MAX = 1 << 18 };
#define WHAT_R1_PUTS "x/0000000000/0001/r1.0000=r0.0000"
#define WHAT_R1_SAYS "x/0000000000/measured/0001/r1.0000=r0.0000"

/* Makes r1's object of an honest run, with one bit wrong and a digest that matches. */
static size_t make_forged(unsigned char *forged, const char *name, const char *const (*settings)[2],
                          const char *key)
{
    char store[96];
    snprintf(store, sizeof store, "mem://forged.%s", name);
    toy_keep(store);
    make_crew(3, store, "sharded", settings);
    toy_live_all(crew, 3);
    dl_store *from;
    dl_buf bytes;
    dl_buf_init(&bytes, FORGED_MAX);
    CHECK_OK(dl_store_open(&from, store, false));
    CHECK_OK(dl_store_get(from, &bytes, key, DL_NEVER));
    dl_store_close(from);
    const size_t len = bytes.len;
    memcpy(forged, bytes.data, len);
    dl_buf_deinit(&bytes);
    forged[2] ^= 0x40;
    const dl_hash digest = dl_digest_bytes(forged, len - sizeof digest);
    memcpy(forged + len - sizeof digest, digest.bytes, sizeof digest);
    return len;
}

/* Runs a crew in whose first entry r1's slice is forged: its name is created before r1 does. */
static const char *run_with_forged(const char *name, const char *const (*settings)[2],
                                   const char *key)
{
    static unsigned char forged[FORGED_MAX];
    static char store[96];
    const dl_span span = {forged, make_forged(forged, name, settings, key)};
    dl_store *to;
    snprintf(store, sizeof store, "mem://lied.%s", name);
    toy_keep(store);
    make_crew(3, store, "sharded", settings);
    CHECK_OK(dl_store_open(&to, store, true));
    CHECK_OK(dl_store_create(to, key, &span, 1, NULL, DL_NEVER));
    dl_store_close(to);
    toy_live_all(crew, 3);
    for (int i = 0; i < 3; i++)
        TOY_OK(crew[i]);
    return store;
}

TEST(p19_single_malicious_owner_is_found_by_an_audit_only)
{
    static const char *const alone[][2] = {{"server.diloco.slice_owners", "1"}, {NULL, NULL}};
    diloco_verify_report report;
    const char *store = run_with_forged("alone", alone, WHAT_R1_PUTS);
    CHECK_STATUS(DILOCO_EPROTO, diloco_verify(&report, store, 1, NULL, NULL));
    CHECK_CONTAINS("was wrong or malicious", diloco_error_text());
}

/* Only the first entry is read and combined by every replica, with the same result. */
static void check_forged_is_found(const char *name, const char *const (*settings)[2],
                                  const char *key)
{
    const results want = run_of(3, name, "allgather", settings),
                  got = log_of(run_with_forged(name, settings, key));
    CHECK_INT(want.n, got.n);
    CHECK_INT(got.n - 1, got.n_combined);
    for (size_t e = 0; e < want.n; e++)
        CHECK_STR(want.digest[e], got.digest[e]);
}

TEST(p19_differing_owners_of_a_slice_make_every_replica_read_all_members)
{
    static const char *const mean[][2] = {{"server.diloco.slice_owners", "2"}, {NULL, NULL}};
    static const char *const measured[][2] = {
        {"server.diloco.combiner", "geometric_median"}, {"run.min_replicas", "3"}, {NULL, NULL}};
    check_forged_is_found("slice", mean, WHAT_R1_PUTS);
    check_forged_is_found("combined", measured, WHAT_R1_PUTS);
    check_forged_is_found("measured", measured, WHAT_R1_SAYS);
}

/* ---- damaged and missing slices ---------------------------------------------------------- */

static void flip(const char *store, const char *key)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", store, key);
    FILE *f = fopen(path, "r+b");
    CHECK(f != NULL);
    const int byte = fgetc(f);
    rewind(f);
    CHECK(fputc(byte ^ 1, f) != EOF && fclose(f) == 0);
}

/* The last entry's planner is r0: entry 2 of 2 members. */
static const char *make_run(const char *name)
{
    const char *store = scratch_path(name);
    make_crew(2, store, "sharded", NULL);
    toy_live_all(crew, 2);
    TOY_OK(crew[0]);
    TOY_OK(crew[1]);
    return store;
}

TEST(p19_a_slice_for_all_that_is_damaged_is_combined_again_from_the_members)
{
    const char *store = make_run("damaged");
    void *theta;
    size_t len;
    uint64_t entry;
    flip(store, "x/0000000002/0001/r1.0000=r0.0000");
    CHECK_OK(diloco_theta_read(&theta, &len, &entry, store, 3));
    CHECK_INT(3, entry);
    diloco_free(theta);
    CHECK_INT(3, log_of(store).n);
}

TEST(p19_member_with_a_damaged_slice_is_needed_by_audits_only)
{
    const char *store = make_run("member");
    void *theta;
    size_t len;
    uint64_t entry;
    diloco_verify_report report;
    flip(store, "b/0000000002/0001/r1.0000");
    CHECK_OK(diloco_theta_read(&theta, &len, &entry, store, 3));
    diloco_free(theta);
    CHECK_STATUS(DILOCO_EPROTO, diloco_verify(&report, store, 1, NULL, NULL));
    CHECK_CONTAINS("the contribution of r1, which is damaged", diloco_error_text());
}

TEST_MAIN(a_slice_has_all_bytes_that_its_elements_are_decoded_from,
          p19_every_entry_has_the_bits_of_an_allgather_with_any_codec_that_can_be_cut,
          p19_and_with_2_to_8_members, p19_and_with_any_rule_that_goes_element_by_element,
          p19_same_states_with_any_rule_or_check_that_measures_members,
          p19_and_with_several_owners_of_each_slice,
          p19_each_replica_writes_and_reads_the_bytes_of_the_formulas,
          p19_single_malicious_owner_is_found_by_an_audit_only,
          p19_differing_owners_of_a_slice_make_every_replica_read_all_members,
          p19_an_owner_that_is_killed_delays_the_run_and_nothing_else,
          p19_a_slice_for_all_that_is_damaged_is_combined_again_from_the_members,
          p19_member_with_a_damaged_slice_is_needed_by_audits_only)
