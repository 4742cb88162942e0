/* peers_test.c - members that read from each other have the same bits as members that read from the
 * store, whatever their peers answer.
 *
 * The "server" of this program shows a member's folder to the other members of this process. The
 * test sets what it then answers. */
#include "exchange/peers.h"

#include "log/signed_beat.h"
#include "run/open.h"
#include "store/kind.h"
#include "toy_run.h"

enum { CREW = 3, SERVERS = 64 };

/* ---- a server without a network --------------------------------------------------------- */

static struct {
    pthread_mutex_t lock; /* guards the rest */
    dl_config_path dirs[SERVERS];
    dl_public keys[SERVERS];
    const dl_peers_service *last;
    size_t n, n_opened;
    dl_faults faults; /* of all lines */
    bool nowhere;     /* lines lead to a folder with nothing in it */
    size_t n_untrusted;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static diloco_status fake_serve(void **out, char address[DL_ADDRESS_MAX + 1],
                                const dl_peers_service *service)
{
    pthread_mutex_lock(&fake.lock);
    const size_t i = fake.n++;
    if (i == SERVERS) abort();
    memcpy(fake.dirs[i], service->dir, strlen(service->dir) + 1);
    fake.keys[i] = *dl_signer_public(service->signer);
    fake.last = service;
    snprintf(address, DL_ADDRESS_MAX + 1, "https://peer:%zu", 1000 + i);
    *out = fake.dirs[i];
    pthread_mutex_unlock(&fake.lock);
    return DILOCO_OK;
}

static void fake_stop(void *self)
{
    (void)self;
}

static uint64_t fake_served(const void *self)
{
    (void)self;
    return 0;
}

static diloco_status fake_open(void *self, dl_store **out, const char *address,
                               const dl_public *key, dl_time patience)
{
    char url[DL_PATH_MAX + 32];
    (void)self, (void)patience;
    pthread_mutex_lock(&fake.lock);
    const size_t i = strtoul(address + strlen("https://peer:"), NULL, 10) - 1000;
    if (i >= fake.n || !dl_public_equal(key, &fake.keys[i])) fake.n_untrusted++;
    snprintf(url, sizeof url, "file://%s/%s", fake.dirs[i], fake.nowhere ? "empty" : "run");
    const dl_faults faults = fake.faults;
    fake.n_opened++;
    pthread_mutex_unlock(&fake.lock);
    dl_store *line;
    DL_TRY(dl_store_open(&line, url, true));
    return dl_store_faulty(out, line, faults);
}

static const dl_peers_kind fakes = {
    .serve = fake_serve, .stop = fake_stop, .served = fake_served, .open = fake_open};

/* Skips a test that needs keys in a build without them. */
static void fresh_fake(void)
{
    if (!DL_CRYPTO) skip();
    dl_peers_use(&fakes);
    fake.n = fake.n_opened = fake.n_untrusted = 0;
    fake.faults = (dl_faults){.seed = 1};
    fake.nowhere = false;
}

/* ---- a run ------------------------------------------------------------------------------ */

typedef struct played {
    float theta[TOY_N];
    uint64_t from_peers, from_store;
    size_t fell_back, absent, gone, stalled, damaged, rejected; /* numbers of lines in the record */
} played;

/* Returns the sum of one JSON member over all commit lines. */
static uint64_t sum_of(const char *record, const char *name)
{
    uint64_t sum = 0;
    char text[64];
    snprintf(text, sizeof text, "\"%s\":", name);
    for (const char *at = record; (at = strstr(at, text));)
        sum += strtoull(at += strlen(text), NULL, 10);
    return sum;
}

static size_t count_of(const char *record, const char *text)
{
    size_t n = 0;
    for (const char *at = record; (at = strstr(at, text)); at += strlen(text))
        n++;
    return n;
}

static void count_lines(played *out, const char *record)
{
    out->fell_back += count_of(record, "\"event\":\"peer\",\"entry\":");
    out->absent += count_of(record, "\"reason\":\"absent\"");
    out->gone += count_of(record, "\"reason\":\"unreachable\"");
    out->stalled += count_of(record, "\"reason\":\"stalled\"");
    out->damaged += count_of(record, "\"reason\":\"checksum\"");
    out->damaged += count_of(record, "\"reason\":\"header\"");
    out->rejected += count_of(record, "\"event\":\"reject\"");
}

/* tau 0: training waits. Else several contributions of the two fragments are in flight. */
static void play_with(const char *tau, played *out, const char *name, const char *peers,
                      const char *patience)
{
    toy all[CREW];
    char store[600];
    snprintf(store, sizeof store, "mem://%s", name);
    toy_keep(store);
    toy_crew(all, CREW, store, scratch_path(name));
    toy_set_all(all, CREW, "run.peers", peers);
    toy_set_all(all, CREW, "run.patience", patience);
    toy_set_all(all, CREW, "trainer.rounds", "3");
    toy_set_all(all, CREW, "trainer.local_steps_per_round", "6");
    toy_set_all(all, CREW, "server.diloco.overlap_steps", tau);
    for (size_t i = 0; i < CREW; i++) {
        all[i].fragments = strcmp(tau, "0") ? 2 : 1;
        toy_keep_record(&all[i]);
    }
    toy_live_all(all, CREW);
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < CREW; i++) {
        TOY_OK(all[i]);
        CHECK_BYTES(all[0].theta, all[i].theta, sizeof all[0].theta);
        out->from_peers += sum_of(all[i].record, "from_peers");
        out->from_store += sum_of(all[i].record, "from_store");
        count_lines(out, all[i].record);
        free(all[i].record);
    }
    memcpy(out->theta, all[0].theta, sizeof out->theta);

    diloco_verify_report report;
    CHECK_OK(diloco_verify(&report, store, 1, NULL, NULL));
    CHECK(report.complete && report.voids == 0);
}

static void play(played *out, const char *name, const char *peers, const char *patience)
{
    play_with("0", out, name, peers, patience);
}

static void plain(float theta[TOY_N])
{
    static bool there;
    static float known[TOY_N];
    if (!there) {
        played p;
        play(&p, "plain", "false", "60");
        CHECK_INT(0, p.from_peers + p.from_store);
        memcpy(known, p.theta, sizeof known);
        there = true;
    }
    memcpy(theta, known, sizeof known);
}

TEST(members_that_read_from_peers_end_with_the_same_bits)
{
    float theta[TOY_N];
    played p;
    fresh_fake();
    plain(theta);
    play(&p, "direct", "true", "60");
    CHECK_BYTES(theta, p.theta, sizeof theta);
    CHECK_INT(0, fake.n_untrusted);
    CHECK(fake.n_opened > 0 && fake.n_opened <= CREW * (CREW - 1)); /* once per process */
    CHECK(p.from_peers > 0);
    CHECK(p.from_store > 0); /* own contributions are read back */
    /* A reader may be faster than its owner, and at the end of a run an owner stops before its
     * readers. */
    CHECK_INT(p.fell_back, p.absent + p.gone);
}

TEST(pipelined_upload_is_served_after_the_store_has_it)
{
    played beside, direct;
    fresh_fake();
    play_with("5", &beside, "beside", "false", "60");
    play_with("5", &direct, "beside-direct", "true", "60");
    CHECK_BYTES(beside.theta, direct.theta, sizeof beside.theta);
    CHECK(direct.from_peers > 0);
    CHECK_INT(direct.fell_back, direct.absent + direct.gone);
}

TEST(wrong_bytes_under_the_right_name_cost_one_reading_and_the_store_has_the_right_ones)
{
    float theta[TOY_N];
    played p;
    fresh_fake();
    plain(theta);
    fake.faults.p_flip = 1;
    play(&p, "liars", "true", "600");
    CHECK_BYTES(theta, p.theta, sizeof theta);
    CHECK_INT(0, p.from_peers);
    CHECK(p.fell_back > 0 && p.fell_back <= CREW * (CREW - 1)); /* each peer is asked once */
    CHECK_INT(p.fell_back, p.damaged);
    CHECK_INT(0, p.rejected);
}

TEST(a_stalled_member_costs_one_timeout)
{
    float theta[TOY_N];
    played p;
    fresh_fake();
    plain(theta);
    fake.faults.p_delay = 1;
    fake.faults.delay_s = 3600;
    const dl_time began = dl_clock_now();
    play(&p, "stalled", "true", "12");
    CHECK(dl_clock_now() - began < 600 * DL_SECOND); /* patience / 12 each, not an hour */
    CHECK_BYTES(theta, p.theta, sizeof theta);
    CHECK(p.fell_back > 0);
    CHECK(p.stalled > 0);
}

TEST(a_member_that_has_it_not_may_be_asked_again_at_once)
{
    float theta[TOY_N];
    played p;
    fresh_fake();
    plain(theta);
    fake.nowhere = true;
    play(&p, "absent", "true", "60");
    CHECK_BYTES(theta, p.theta, sizeof theta);
    CHECK(p.absent > CREW * (CREW - 1)); /* in three entries */
    CHECK_INT(p.fell_back, p.absent + p.gone);
}

TEST(members_without_it_are_read_from_the_store)
{
    toy all[2];
    fresh_fake();
    toy_keep("mem://mixed");
    toy_crew(all, 2, "mem://mixed", scratch_path("mixed"));
    toy_set(&all[0], "run.peers", "true");
    toy_keep_record(&all[0]);
    toy_live_all(all, 2);
    TOY_OK(all[0]);
    TOY_OK(all[1]);
    CHECK_BYTES(all[0].theta, all[1].theta, sizeof all[0].theta);
    CHECK_INT(0, fake.n_opened);
    CHECK_INT(0, sum_of(all[0].record, "from_peers"));
    CHECK_INT(0, count_of(all[0].record, "\"event\":\"peer\""));
    free(all[0].record);
}

/* ---- permission to read, and kept contributions ----------------------------------------- */

static dl_peers *peers_of(dl_config *config, const char *dir)
{
    dl_peers *p;
    dl_config_init(config);
    const dl_peers_args args = {
        .config = config, .dir = dir, .replica = "r0", .max_members = 2, .reads = true};
    CHECK_OK(dl_peers_create(&p, &args));
    return p;
}

TEST(a_key_is_welcome_once_it_is_a_members)
{
    dl_config config;
    dl_signer *member;
    fresh_fake();
    dl_peers *p = peers_of(&config, scratch_path("welcome"));
    CHECK_OK(dl_signer_generate(&member));
    const dl_public *key = dl_signer_public(member);
    CHECK(!fake.last->welcome(fake.last->user, key));
    dl_peers_know(p, "r1", key);
    CHECK(fake.last->welcome(fake.last->user, key));
    dl_peers_destroy(p);
    dl_signer_close(member);
}

/* There is space for two at a time. */
TEST(member_that_joins_after_many_others_is_known)
{
    dl_config config;
    dl_signer *members[4];
    char name[8];
    fresh_fake();
    dl_peers *p = peers_of(&config, scratch_path("many"));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(dl_signer_generate(&members[i]));
        snprintf(name, sizeof name, "r%d", i + 1);
        if (i == 2) dl_peers_know(p, "r1", dl_signer_public(members[0])); /* still known */
        dl_peers_know(p, name, dl_signer_public(members[i]));
        CHECK(fake.last->welcome(fake.last->user, dl_signer_public(members[i])));
        if (i == 2) CHECK(fake.last->welcome(fake.last->user, dl_signer_public(members[0])));
    }
    dl_peers_destroy(p);
    for (int i = 0; i < 4; i++)
        dl_signer_close(members[i]);
}

TEST(the_last_contributions_are_shown_and_no_others)
{
    dl_config config;
    char dir[600], path[700];
    const dl_generation generation = {.replica = "r0", .number = 3};
    const dl_span span = {"bytes", 5};
    fresh_fake();
    snprintf(dir, sizeof dir, "%s", scratch_path("kept"));
    dl_peers *p = peers_of(&config, dir);
    for (uint64_t e = 0; e < DL_PEERS_KEPT + 2; e++) {
        snprintf(path, sizeof path, "%s/run/c/%010llu/r0.0003", dir, (unsigned long long)e);
        dl_peers_keep(p, e, &span, 1);
        CHECK(!dl_file_exists(path)); /* the store does not have it yet */
        dl_peers_show(p, e, &generation);
        CHECK(dl_file_exists(path));
    }
    for (uint64_t e = 0; e < DL_PEERS_KEPT + 2; e++) {
        snprintf(path, sizeof path, "%s/run/c/%010llu/r0.0003", dir, (unsigned long long)e);
        CHECK_INT(e >= 2, dl_file_exists(path));
    }
    dl_peers_destroy(p);
    CHECK(!dl_file_exists(dir));
}

/* ---- heartbeats -------------------------------------------------------------------------- */

static void put_beat(dl_store *store, const dl_generation *generation, const dl_signer *signer,
                     const char *address)
{
    char key[DL_PUBLIC_TEXT];
    dl_key at;
    dl_buf text;
    dl_heartbeat_writer w;
    dl_key_heartbeat(at, generation);
    dl_public_text(key, dl_signer_public(signer));
    dl_buf_init(&text, 2048);
    dl_heartbeat_begin(&w, &text, &dl_heartbeat_alive, signer, "the-run", generation);
    dl_json_str(&w.json, "address", address);
    dl_json_str(&w.json, "peer_key", key);
    dl_json_u64(&w.json, "entry", 1);
    CHECK_OK(dl_heartbeat_end(&w));
    CHECK_OK(dl_store_put(store, at, text.data, text.len, DL_NEVER));
    dl_buf_deinit(&text);
}

/* In a run with keys anyone who can write may overwrite a heartbeat. A forged address is not
 * called, and a forged heartbeat without one does not keep its owner from being asked later. */
TEST(an_address_that_its_key_has_not_signed_is_not_called)
{
    dl_config config;
    dl_store *store;
    dl_signer *owner, *other;
    dl_contribution facts;
    dl_contribution_data data;
    const char *reason, *why;
    fresh_fake();
    dl_peers *p = peers_of(&config, scratch_path("forged"));
    CHECK_OK(dl_config_set(&config, "run.heartbeat", "0.1", "test"));
    CHECK_OK(dl_store_open(&store, "mem://forged", true));
    CHECK_OK(dl_signer_generate(&owner));
    CHECK_OK(dl_signer_generate(&other));
    const diloco_tensor tensor = {.name = "w", .n_dims = 1, .shape = {4}};
    dl_manifest manifest;
    dl_codec_form form;
    dl_slot *slot;
    CHECK_OK(dl_manifest_init(&manifest, &tensor, 1, false));
    CHECK_OK(dl_codec_form_init(&form, &config, &manifest, 0));
    const dl_contribution_expect expect = {.run = "the-run",
                                           .key = dl_signer_public(owner),
                                           .shape = manifest.fragments[0],
                                           .form = &form,
                                           .tensors = &manifest};
    CHECK_OK(dl_slot_create(&slot, dl_contribution_body_max(&form, expect.shape, false), NULL));
    dl_peers_want want = {.slot = slot, .store = store, .expect = &expect, .until = DL_NEVER};
    const struct {
        dl_generation generation;
        const char *address;
    } forged[] = {{{.replica = "r1"}, "https://peer:1000"}, {{.replica = "r2"}, "none"}};
    for (int i = 0; i < 2; i++) {
        want.generation = forged[i].generation;
        put_beat(store, &want.generation, other, forged[i].address);
        CHECK_STATUS(DILOCO_ENOENT, dl_peers_read(p, &facts, &data, &reason, &why, &want));
        CHECK(!why && fake.n_opened == 0);
    }
    put_beat(store, &want.generation, owner, "https://peer:1000");
    while (fake.n_opened == 0)
        CHECK_STATUS(DILOCO_ENOENT, dl_peers_read(p, &facts, &data, &reason, &why, &want));
    dl_peers_destroy(p);
    dl_slot_destroy(slot);
    dl_codec_form_deinit(&form);
    dl_manifest_deinit(&manifest);
    dl_store_close(store);
    dl_signer_close(owner);
    dl_signer_close(other);
}

/* ---- refusals --------------------------------------------------------------------------- */

TEST(a_program_without_a_server_is_refused_by_name)
{
    toy t = toy_of("r0", scratch_path("serverless"));
    dl_peers_use(NULL);
    toy_set(&t, "run.peers", "true");
    CHECK_INT(DILOCO_EREFUSED, toy_live(&t));
    CHECK_CONTAINS("run.peers = true serves other members, and this program has no server", t.text);
}

static void refuses(const char *name, const char *value, const char *says)
{
    dl_config c;
    dl_config_init(&c);
    CHECK_OK(dl_config_set(&c, "run.store", "mem://refused", "test"));
    CHECK_OK(dl_config_set(&c, "run.peers", "true", "test"));
    CHECK_OK(dl_run_check(&c));
    CHECK_OK(dl_config_set(&c, name, value, "test"));
    CHECK_STATUS(DILOCO_EREFUSED, dl_run_check(&c));
    CHECK_CONTAINS("run.peers = true does not go with", diloco_error_text());
    CHECK_CONTAINS(says, diloco_error_text());
}

TEST(run_that_moves_nothing_between_members_refuses_peers)
{
    refuses("server.diloco.exchange", "leader", "allgather");
    refuses("server.diloco.exchange", "sharded", "allgather");
    refuses("run.state_dir", "none", "name a folder");
}

TEST(a_run_that_was_made_to_combine_for_all_is_refused)
{
    toy first = toy_of("r0", scratch_path("led")), second = toy_of("r1", scratch_path("led"));
    fresh_fake();
    toy_set(&first, "server.diloco.exchange", "leader");
    toy_set(&second, "run.peers", "true");
    toy_live(&first);
    TOY_OK(first);
    CHECK_INT(DILOCO_EREFUSED, toy_live(&second));
    CHECK_CONTAINS("combines them by \"leader\"", second.text);
}

TEST_MAIN(members_that_read_from_peers_end_with_the_same_bits,
          pipelined_upload_is_served_after_the_store_has_it,
          wrong_bytes_under_the_right_name_cost_one_reading_and_the_store_has_the_right_ones,
          a_stalled_member_costs_one_timeout, a_member_that_has_it_not_may_be_asked_again_at_once,
          members_without_it_are_read_from_the_store, a_key_is_welcome_once_it_is_a_members,
          member_that_joins_after_many_others_is_known,
          the_last_contributions_are_shown_and_no_others,
          an_address_that_its_key_has_not_signed_is_not_called,
          a_program_without_a_server_is_refused_by_name,
          run_that_moves_nothing_between_members_refuses_peers,
          a_run_that_was_made_to_combine_for_all_is_refused)
