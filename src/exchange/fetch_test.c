/* fetch_test.c - contributions read several at a time give the same answers, byte for byte, as one
 * after the other, even if some are damaged or missing. Nothing is kept beyond the next requests.
 */
#include "exchange/exec_parts.h"

#include "check.h"
#include "exchange/generations.h"
#include "log/layout.h"
#include "run/open.h"
#include "scratch.h"
#include "store/kind.h"

enum { N = 100, CREW = 6 };

typedef struct world {
    dl_config config;
    dl_store *store;
    dl_runfile file;
    dl_hash digest;
    float w[N];
    diloco_tensor tensor;
    dl_generation generations[CREW];
} world;

static dl_exec *make_exec_with(world *w, const dl_generation *self, int n_fetchers, dl_peers *peers)
{
    dl_exec *exec;
    const dl_exec_args args = {.store = w->store,
                               .run = &w->file,
                               .self = *self,
                               .tensors = &w->tensor,
                               .n_tensors = 1,
                               .max_members = CREW,
                               .n_copies = 2,
                               .n_fetchers = n_fetchers,
                               .peers = peers};
    CHECK_OK(dl_exec_create(&exec, &args));
    CHECK_OK(dl_snapshot_read_newest(dl_exec_state(exec), w->store, &w->file, w->digest, UINT64_MAX,
                                     NULL, DL_NEVER));
    return exec;
}

static dl_exec *make_exec(world *w, const dl_generation *self, int n_fetchers)
{
    return make_exec_with(w, self, n_fetchers, NULL);
}

/* Each member moves its tensor differently, and uploads that for entry 0. */
static dl_exec *contribute(world *w, size_t who)
{
    char name[8];
    dl_reply reply = {.status = DILOCO_OK};
    const dl_train_stats work = {.steps = 1, .samples = 1, .end_sample = 1, .position = 1};
    const dl_request request = {.kind = DL_REQUEST_CONTRIBUTE, .entry = 0};
    snprintf(name, sizeof name, "r%zu", who);
    CHECK_OK(dl_run_claim_generation(&w->generations[who], w->store, name, &w->file,
                                     &w->file.config, NULL));
    dl_exec *exec = make_exec(w, &w->generations[who], 1);
    for (size_t i = 0; i < N; i++)
        w->w[i] = (float)(who + 1) * (float)i;
    CHECK_OK(dl_exec_capture(exec, 0, 0, &work));
    dl_exec_do(exec, &request, &reply, DL_NEVER);
    CHECK_OK(reply.status);
    return exec;
}

/* Makes a run of w->config. */
static void make_run(world *w, const char *url)
{
    CHECK_OK(dl_config_set(&w->config, "run.store", url, "test"));
    w->tensor = (diloco_tensor){.name = "w", .data = w->w, .n_dims = 1, .shape = {N}};
    const dl_run_creation what = {
        .config = &w->config, .tensors = &w->tensor, .n_tensors = 1, .data_digest = ""};
    CHECK_OK(dl_store_open(&w->store, url, true));
    CHECK_OK(dl_run_create_or_read(&w->file, &w->digest, w->store, &what));
}

static void make_world_at(world *w, const char *url)
{
    memset(w, 0, sizeof *w);
    dl_config_init(&w->config);
    make_run(w, url);
    for (size_t i = 0; i < CREW; i++)
        dl_exec_destroy(contribute(w, i));
}

static void make_world(world *w)
{
    static int n;
    char url[32];
    snprintf(url, sizeof url, "mem://fetch-%d", n++);
    make_world_at(w, url);
}

static void end_world(world *w)
{
    dl_runfile_deinit(&w->file);
    dl_store_close(w->store);
}

/* Replaces an object by another. */
static void replace(world *w, size_t who, const char *bytes)
{
    dl_key key;
    const dl_span span = {bytes, strlen(bytes)};
    dl_key_contribution(key, 0, &w->generations[who]);
    CHECK_OK(dl_store_delete(w->store, key, DL_NEVER));
    if (*bytes) CHECK_OK(dl_store_create(w->store, key, &span, 1, NULL, DL_NEVER));
}

typedef struct answer {
    diloco_status status;
    char reason[32];
    dl_hash body, payload;
} answer;

static dl_request fetch_of(const world *w, size_t who, dl_ahead *ahead)
{
    dl_request request = {
        .kind = DL_REQUEST_FETCH,
        .fetch = {.generation = w->generations[who], .slot = who, .ahead = ahead}};
    for (size_t i = who + 1; ahead && i < CREW; i++)
        ahead[request.fetch.n_ahead++] = (dl_ahead){.generation = w->generations[i], .slot = i};
    return request;
}

static answer fetch(dl_exec *exec, const dl_request *request)
{
    dl_reply reply = {.status = DILOCO_OK};
    answer a = {.status = DILOCO_OK};
    dl_exec_do(exec, request, &reply, DL_NEVER);
    a.status = reply.status;
    if (reply.fetch.reason) snprintf(a.reason, sizeof a.reason, "%s", reply.fetch.reason);
    if (a.status) return a;
    a.body = reply.fetch.facts->body;
    a.payload = dl_hash_bytes(exec->collect.held[request->fetch.slot].payload,
                              exec->collect.held[request->fetch.slot].len);
    return a;
}

static void fetch_all(answer out[CREW], world *w, int n_fetchers)
{
    dl_ahead ahead[CREW];
    dl_exec *exec = make_exec(w, &w->generations[0], n_fetchers);
    for (size_t i = 0; i < CREW; i++) {
        const dl_request request = fetch_of(w, i, ahead);
        out[i] = fetch(exec, &request);
    }
    dl_exec_destroy(exec);
}

TEST(parallel_reads_give_the_same_answers_as_serial_ones)
{
    world w;
    answer one[CREW], several[CREW];
    make_world(&w);
    replace(&w, 2, "no contribution");
    replace(&w, 4, "");
    fetch_all(one, &w, 1);
    for (int n = 2; n <= CREW + 1; n++) {
        fetch_all(several, &w, n);
        for (size_t i = 0; i < CREW; i++) {
            CHECK_INT(one[i].status, several[i].status);
            CHECK_STR(one[i].reason, several[i].reason);
            CHECK(dl_hash_equal(one[i].body, several[i].body));
            CHECK(dl_hash_equal(one[i].payload, several[i].payload));
        }
    }
    CHECK_INT(DILOCO_EPROTO, one[2].status);
    CHECK_STR("truncated", one[2].reason);
    CHECK_INT(DILOCO_ENOENT, one[4].status);
    CHECK_OK(one[5].status);
    end_world(&w);
}

/* Each reader opens the store when it first reads. If the folder is missing then, that does not
 * reject a contribution. */
TEST(a_store_that_is_away_is_unreachable_for_its_first_readers_too)
{
    world w;
    dl_ahead ahead[CREW];
    const char *store = scratch_path("store"), *away = scratch_path("away");
    make_world_at(&w, store);
    dl_exec *exec = make_exec(&w, &w.generations[0], CREW);
    CHECK_INT(0, rename(store, away));
    for (size_t i = 0; i < CREW; i++) {
        const dl_request request = fetch_of(&w, i, ahead);
        CHECK_INT(DILOCO_EUNREACHABLE, fetch(exec, &request).status);
    }
    CHECK_INT(0, rename(away, store));
    for (size_t i = 0; i < CREW; i++) {
        const dl_request request = fetch_of(&w, i, ahead);
        CHECK_OK(fetch(exec, &request).status);
    }
    dl_exec_destroy(exec);
    end_world(&w);
}

/* Returns the bounds for a fragment whose state has n commits. `aborts` entries were aborted just
 * before this one. */
static dl_train_bounds bounds(const char *option, const char *value, uint64_t P, uint64_t entry,
                              uint64_t n, uint64_t aborts)
{
    static int at;
    char url[32];
    world w = {.w = {0}};
    dl_config_init(&w.config);
    CHECK_OK(dl_config_set(&w.config, "trainer.local_steps_per_round", "10", "test"));
    CHECK_OK(dl_config_set(&w.config, option, value, "test"));
    snprintf(url, sizeof url, "mem://bounds-%d", at++);
    make_run(&w, url);
    dl_exec *x = make_exec(&w, &(dl_generation){.replica = "r0"}, 1);
    x->schedule.n_fragments = P;
    x->state.control.entry = entry;
    x->state.control.n_aborts = aborts;
    x->state.now[0].n_commits = n;
    dl_train_bounds b = {.due = 0};
    if (x->mode->bounds) b = x->mode->bounds(x, entry, 0);
    dl_exec_destroy(x);
    end_world(&w);
    return b;
}

static void check_bounds(dl_train_bounds b, uint64_t since, uint64_t due, uint64_t steps)
{
    CHECK_INT(since, b.since);
    CHECK_INT(due, b.due);
    CHECK_INT(steps, b.steps);
}

TEST(p9_16_steps_are_bounded_by_those_since_the_base)
{
    check_bounds(bounds("run.on_uncounted", "adopt", 1, 5, 3, 1), 40, 60, 20);
    check_bounds(bounds("run.on_uncounted", "adopt", 1, 5, 0, 5), 0, 60, 60);
    check_bounds(bounds("run.on_uncounted", "keep", 1, 5, 3, 1), 0, 60, 60);
    check_bounds(bounds("server.diloco.overlap", "delayed", 1, 5, 3, 1), 20, 60, 40);
    check_bounds(bounds("server.diloco.overlap", "delayed", 1, 5, 1, 1), 0, 60, 60);
    check_bounds(bounds("run.on_uncounted", "adopt", 2, 6, 2, 0), 20, 40, 20);
    check_bounds(bounds("trainer.local_steps_phases", "2x4", 1, 3, 3, 0), 18, 28, 10);
    check_bounds(bounds("server.diloco.schedule", "async", 1, 5, 5, 0), 0, UINT64_MAX, 10);
    check_bounds(bounds("clients.total_clients", "2", 1, 5, 5, 0), 0, 0, 0);
}

TEST(prefetched_contribution_is_not_read_again)
{
    world w;
    dl_ahead ahead[CREW];
    make_world(&w);
    dl_exec *exec = make_exec(&w, &w.generations[0], 3);
    const uint64_t before = dl_exec_traffic(exec).n_get;
    for (size_t i = 0; i < CREW; i++) {
        const dl_request request = fetch_of(&w, i, ahead);
        CHECK_OK(fetch(exec, &request).status);
        CHECK_INT(i < 3 ? 3 : 6, dl_exec_traffic(exec).n_get - before);
    }
    dl_exec_destroy(exec);
    end_world(&w);
}

/* After a snapshot or an entry between two requests, nothing from before is answered. */
TEST(other_request_drops_prefetched_contributions)
{
    world w;
    dl_ahead ahead[CREW];
    make_world(&w);
    dl_exec *exec = make_exec(&w, &w.generations[0], CREW);
    const dl_request read = {.kind = DL_REQUEST_READ}, first = fetch_of(&w, 0, ahead);
    dl_reply reply = {.status = DILOCO_OK};
    CHECK_OK(fetch(exec, &first).status);
    replace(&w, 1, "no contribution");
    dl_request second = fetch_of(&w, 1, NULL);
    CHECK_OK(fetch(exec, &second).status); /* as it was */
    CHECK_OK(fetch(exec, &first).status);
    dl_exec_do(exec, &read, &reply, DL_NEVER);
    CHECK_OK(reply.status);
    CHECK_INT(DILOCO_EPROTO, fetch(exec, &second).status);
    dl_exec_destroy(exec);
    end_world(&w);
}

static void put_generation(const world *w, void (*name)(dl_key, const dl_generation *),
                           const char *replica)
{
    dl_key key;
    dl_generation generation = {.number = 0};
    snprintf(generation.replica, sizeof generation.replica, "%s", replica);
    name(key, &generation);
    CHECK_OK(dl_store_create(w->store, key, &(dl_span){"beat", 4}, 1, NULL, DL_NEVER));
}

/* 200 names that sort first are more than the rows of a watch. */
TEST(p11_unlisted_heartbeats_do_not_silence_members)
{
    world w;
    char name[16];
    bool beats[2] = {false}, ended = false;
    make_world(&w);
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "a%03d", i);
        put_generation(&w, dl_key_heartbeat, name);
        put_generation(&w, dl_key_end, name);
    }
    put_generation(&w, dl_key_heartbeat, w.generations[0].replica);
    put_generation(&w, dl_key_heartbeat, "zz");
    put_generation(&w, dl_key_end, "zz");
    dl_exec *exec = make_exec(&w, &w.generations[0], 1);
    dl_roster *roster = &dl_exec_state(exec)->control.roster;
    strcpy(roster->names[0], "zz");
    roster->n = 1;
    const dl_request watch = {.kind = DL_REQUEST_WATCH};
    dl_reply reply = {.status = DILOCO_OK};
    dl_exec_do(exec, &watch, &reply, DL_NEVER);
    CHECK_OK(reply.status);
    for (size_t i = 0; i < reply.watch.n_seen; i++) {
        const dl_seen *s = &reply.watch.seen[i];
        beats[0] |= !strcmp(s->generation.replica, w.generations[0].replica);
        beats[1] |= !strcmp(s->generation.replica, "zz");
        ended |= !strcmp(s->generation.replica, "zz") && s->ended;
    }
    CHECK(beats[0] && beats[1] && ended);
    const bool present = true;
    const dl_request others = {.kind = DL_REQUEST_WATCH,
                               .watch = {.roster = roster, .present = &present}};
    dl_exec_do(exec, &others, &reply, DL_NEVER);
    CHECK_OK(reply.status);
    CHECK(reply.watch.n_seen > 0);
    for (size_t i = 0; i < reply.watch.n_seen; i++)
        CHECK(strcmp(reply.watch.seen[i].generation.replica, "zz") != 0);
    dl_exec_destroy(exec);
    end_world(&w);
}

/* In a listing "r-1.0000" is before "r.0000", since a hyphen sorts before a dot. */
TEST(p11_an_end_marks_the_heartbeat_of_its_generation)
{
    static const char *const names[] = {"q", "r", "r-1", "r0", "s"};
    world w;
    size_t n_ended = 0;
    make_world(&w);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (i != 3) put_generation(&w, dl_key_heartbeat, names[i]);
    for (size_t i = 1; i < 4; i++)
        put_generation(&w, dl_key_end, names[i]);
    dl_exec *exec = make_exec(&w, &w.generations[0], 1);
    const dl_request watch = {.kind = DL_REQUEST_WATCH};
    dl_reply reply = {.status = DILOCO_OK};
    dl_exec_do(exec, &watch, &reply, DL_NEVER);
    CHECK_OK(reply.status);
    CHECK_INT(5, reply.watch.n_seen);
    for (size_t i = 0; i < reply.watch.n_seen; i++) {
        const dl_seen *s = &reply.watch.seen[i];
        CHECK_INT(s->generation.replica[0] == 'r', s->ended);
        n_ended += s->ended;
    }
    CHECK_INT(3, n_ended);
    dl_exec_destroy(exec);
    end_world(&w);
}

TEST(a_fresh_reading_is_one)
{
    world w;
    dl_ahead ahead[CREW];
    make_world(&w);
    dl_exec *exec = make_exec(&w, &w.generations[0], CREW);
    const dl_request first = fetch_of(&w, 0, ahead);
    dl_request second = fetch_of(&w, 1, NULL);
    CHECK_OK(fetch(exec, &first).status);
    replace(&w, 1, "no contribution");
    second.fetch.fresh = true;
    CHECK_INT(DILOCO_EPROTO, fetch(exec, &second).status);
    dl_exec_destroy(exec);
    end_world(&w);
}

/* ---- own contributions, where the store confirms uploads (P8) ------------------------------ */

/* Uses a store that confirms uploads, like a hub or a bucket, or one that does not, like a folder.
 */
static void make_world_of_nobody(world *w, const char *compression, bool vouches)
{
    memset(w, 0, sizeof *w);
    dl_config_init(&w->config);
    CHECK_OK(dl_config_set(&w->config, "server.diloco.compression", compression, "test"));
    CHECK_OK(dl_config_set(&w->config, "server.diloco.codec", "bf16", "test"));
    make_run(w, vouches ? scratch_path(compression) : scratch_path("folder"));
    CHECK_OK(dl_store_faulty(&w->store, w->store, (dl_faults){.vouch = vouches}));
}

/* Uploads a contribution that the store then loses, while the process continues. */
static dl_exec *put_and_lose(world *w, answer *stored)
{
    dl_exec *exec = contribute(w, 0);
    dl_exec *other = make_exec(w, &w->generations[0], 1);
    const dl_request request = fetch_of(w, 0, NULL);
    *stored = fetch(other, &request);
    CHECK_OK(stored->status);
    dl_exec_destroy(other);
    replace(w, 0, "");
    return exec;
}

TEST(p8_confirmed_upload_is_not_read_back)
{
    static const char *const packings[] = {"none", "zstd"};
    for (size_t i = 0; i < 2; i++) {
        world w;
        answer stored;
        make_world_of_nobody(&w, packings[i], true);
        dl_exec *exec = put_and_lose(&w, &stored);
        dl_request request = fetch_of(&w, 0, NULL);
        const answer own = fetch(exec, &request);
        CHECK_OK(own.status);
        CHECK(dl_hash_equal(stored.body, own.body));
        CHECK(dl_hash_equal(stored.payload, own.payload));
        request.fetch.fresh = true; /* a doubt is settled by the store alone (P7) */
        CHECK_INT(DILOCO_ENOENT, fetch(exec, &request).status);
        dl_exec_destroy(exec);
        end_world(&w);
    }
}

static void damage_payload(dl_exec *exec)
{
    exec->upload.payload[exec->upload.gap + N / 2] ^= 1;
}

/* The sent bytes or the capture that they were made from: either is enough. */
TEST(p8_sent_bytes_or_capture_are_enough_without_reading)
{
    for (int payload = 0; payload < 2; payload++) {
        world w;
        answer stored;
        make_world_of_nobody(&w, "none", true);
        dl_exec *exec = put_and_lose(&w, &stored);
        const dl_request request = fetch_of(&w, 0, NULL);
        if (payload)
            damage_payload(exec);
        else
            dl_exec_captured(exec, 0)->g[N / 2] += 1;
        const answer own = fetch(exec, &request);
        CHECK_OK(own.status);
        CHECK(dl_hash_equal(stored.body, own.body));
        CHECK(dl_hash_equal(stored.payload, own.payload));
        dl_exec_destroy(exec);
        end_world(&w);
    }
}

/* Both may be overwritten when the next are made; and a folder confirms no upload. */
TEST(p8_overwritten_or_unconfirmed_contribution_is_read_back)
{
    for (int vouches = 0; vouches < 2; vouches++) {
        world w;
        answer stored;
        make_world_of_nobody(&w, "none", vouches);
        dl_exec *exec = put_and_lose(&w, &stored);
        const dl_request request = fetch_of(&w, 0, NULL);
        if (vouches) dl_exec_captured(exec, 0)->g[N / 2] += 1;
        if (vouches) damage_payload(exec);
        CHECK_INT(DILOCO_ENOENT, fetch(exec, &request).status);
        dl_exec_destroy(exec);
        end_world(&w);
    }
}

/* ---- from their owners (peers.h) --------------------------------------------------------- */

/* Whatever the address, the peer serves the objects of this store. */
static const world *served;

static diloco_status serve(void **out, char address[DL_ADDRESS_MAX + 1],
                           const dl_peers_service *service)
{
    (void)service;
    snprintf(address, DL_ADDRESS_MAX + 1, "https://owner:1");
    *out = address;
    return DILOCO_OK;
}
static void stop(void *self)
{
    (void)self;
}
static uint64_t bytes_served(const void *self)
{
    (void)self;
    return 0;
}
static diloco_status open_line(void *self, dl_store **out, const char *address,
                               const dl_public *key, dl_time patience)
{
    (void)self, (void)address, (void)key, (void)patience;
    return dl_store_open(out, dl_store_url(served->store), false);
}

/* Publishes in each member's heartbeat that it serves its contributions. */
static void report_all(const world *w, dl_peers *p)
{
    for (size_t i = 0; i < CREW; i++) {
        dl_buf text;
        dl_json j;
        dl_key key;
        dl_buf_init(&text, 4096);
        dl_json_init(&j, &text);
        dl_json_object(&j, NULL);
        dl_json_u64(&j, "entry", 0);
        dl_peers_report(p, &j);
        dl_json_end(&j);
        CHECK_OK(dl_json_done(&j));
        dl_key_heartbeat(key, &w->generations[i]);
        CHECK_OK(dl_store_put(w->store, key, text.data, text.len, DL_NEVER));
        dl_buf_deinit(&text);
    }
}

static dl_peers *make_peers(world *w, const char *dir, bool reads)
{
    static const dl_peers_kind kind = {
        .serve = serve, .stop = stop, .served = bytes_served, .open = open_line};
    const dl_peers_args args = {
        .config = &w->config, .dir = dir, .replica = "r0", .max_members = CREW, .reads = reads};
    dl_peers *p;
    served = w;
    dl_peers_use(&kind);
    CHECK_OK(dl_peers_create(&p, &args));
    report_all(w, p);
    return p;
}

/* Returns how many bytes of all members' contributions are read from their owners. */
static uint64_t from_owners(dl_exec *exec, const world *w, dl_peers *p, bool fresh)
{
    const uint64_t before = dl_peers_count(p).from_peers;
    for (size_t i = 0; i < CREW; i++) {
        dl_request request = fetch_of(w, i, NULL);
        request.fetch.fresh = fresh;
        CHECK_OK(fetch(exec, &request).status);
    }
    return dl_peers_count(p).from_peers - before;
}

TEST(doubtful_contribution_is_read_from_the_store_alone)
{
    world w;
    if (!DL_CRYPTO) skip();
    make_world(&w);
    dl_peers *p = make_peers(&w, scratch_path("doubted"), true);
    dl_exec *exec = make_exec_with(&w, &w.generations[0], 3, p);
    const dl_request rejoin = {.kind = DL_REQUEST_REJOIN, .entry = UINT64_MAX};
    dl_reply reply = {.status = DILOCO_OK};
    dl_exec_do(exec, &rejoin, &reply, DL_NEVER); /* a process begins */
    CHECK_OK(reply.status);
    CHECK(from_owners(exec, &w, p, false) > 0);
    CHECK_INT(0, from_owners(exec, &w, p, true));
    CHECK(from_owners(exec, &w, p, false) > 0);
    /* it rejoins, perhaps because of bytes that it had read */
    dl_exec_do(exec, &rejoin, &reply, DL_NEVER);
    CHECK_OK(reply.status);
    CHECK_INT(0, from_owners(exec, &w, p, false));
    dl_exec_destroy(exec);
    dl_peers_destroy(p);
    end_world(&w);
}

TEST(committer_in_a_roster_of_keys_reads_from_the_store_alone)
{
    world w;
    if (!DL_CRYPTO) skip();
    make_world(&w);
    dl_peers *p = make_peers(&w, scratch_path("committer"), false);
    dl_exec *exec = make_exec_with(&w, &w.generations[0], 3, p);
    CHECK_INT(0, from_owners(exec, &w, p, false));
    CHECK(dl_peers_count(p).from_store > 0);
    dl_exec_destroy(exec);
    dl_peers_destroy(p);
    end_world(&w);
}

/* The snapshot of entry 3 has no manifest yet, and that of entry 9 is beyond the log. */
TEST(extent_of_the_log_ends_at_the_first_gap_and_at_the_bound)
{
    static const uint64_t there[] = {0, 1, 2, 3, 5, 1000000}, snapshots[] = {1, 2, 9};
    const dl_span span = {"x", 1};
    dl_key key;
    world w;
    make_world(&w);
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) {
        dl_key_entry(key, there[i]);
        CHECK_OK(dl_store_create(w.store, key, &span, 1, NULL, DL_NEVER));
    }
    for (size_t i = 0; i < sizeof snapshots / sizeof *snapshots; i++) {
        dl_key_snapshot(key, snapshots[i], &w.generations[1], "manifest.json");
        CHECK_OK(dl_store_create(w.store, key, &span, 1, NULL, DL_NEVER));
    }
    dl_key_snapshot(key, 3, &w.generations[1], "state.safetensors");
    CHECK_OK(dl_store_create(w.store, key, &span, 1, NULL, DL_NEVER));
    dl_exec *exec = make_exec(&w, &w.generations[0], 1);
    static const struct {
        uint64_t entry, most, n, newest;
    } cases[] = {{0, 10, 4, 2}, {1, 10, 3, 2}, {1, 2, 2, 9}, {2, 10, 2, 0},
                 {4, 10, 0, 0}, {5, 10, 1, 0}, {7, 10, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dl_reply reply = {.status = DILOCO_OK};
        const dl_request request = {
            .kind = DL_REQUEST_EXTENT, .entry = cases[i].entry, .extent.most = cases[i].most};
        dl_exec_do(exec, &request, &reply, DL_NEVER);
        CHECK_OK(reply.status);
        CHECK_INT(cases[i].n, reply.extent.n);
        CHECK_INT(cases[i].newest, reply.extent.newest);
    }
    dl_exec_destroy(exec);
    end_world(&w);
}

/* Of each replica the two newest generations, as their keys are sorted: "a-b" is before "a.0001",
 * and "a.10000" before "a.9999". */
TEST(contributions_are_listed_in_the_order_of_their_keys)
{
    static const char *const there[] = {"b.0000",  "a1.0003",  "a.0001",  "a.9999",
                                        "a.10000", "a-b.0002", "a1.0004", "a1.0005"};
    static const char *const listed[] = {"a-b.0002", "a.10000", "a.9999",
                                         "a1.0004",  "a1.0005", "b.0000"};
    const dl_span span = {"bytes", 5};
    world w = {0};
    dl_reply reply = {.status = DILOCO_OK};
    dl_key key;
    dl_config_init(&w.config);
    make_run(&w, "mem://fetch-listing");
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) {
        snprintf(key, sizeof key, "c/0000000000/%s", there[i]);
        CHECK_OK(dl_store_create(w.store, key, &span, 1, NULL, DL_NEVER));
    }
    dl_exec *exec = make_exec(&w, &(dl_generation){.replica = "b"}, 1);
    dl_exec_do(exec, &(dl_request){.kind = DL_REQUEST_LIST}, &reply, DL_NEVER);
    CHECK_OK(reply.status);
    CHECK_INT(sizeof listed / sizeof *listed, reply.list.n_listed);
    for (size_t i = 0; i < reply.list.n_listed; i++) {
        dl_key_contribution(key, 0, &reply.list.listed[i].generation);
        CHECK_STR(listed[i], key + strlen("c/0000000000/"));
    }
    dl_exec_destroy(exec);
    end_world(&w);
}

/* ---- bases in an asynchronous run (P20) --------------------------------------------------- */

enum { OPEN = 3 }; /* the open entry; the contributions are to base 0 */

/* A run of CREW contributions to base 0, and entries without objects. */
static dl_exec *make_async(world *w)
{
    static int n;
    char url[32];
    snprintf(url, sizeof url, "mem://fetch-async-%d", n++);
    memset(w, 0, sizeof *w);
    dl_config_init(&w->config);
    CHECK_OK(dl_config_set(&w->config, "server.diloco.schedule", "async", "test"));
    make_run(w, url);
    for (size_t i = 0; i < CREW; i++)
        dl_exec_destroy(contribute(w, i));
    dl_exec *exec = make_exec(w, &w->generations[0], 1);
    dl_exec_state(exec)->control.entry = OPEN;
    return exec;
}

static void put_log(const world *w, uint64_t name, const void *text, size_t len)
{
    dl_key key;
    dl_key_entry(key, name);
    CHECK_OK(dl_store_put(w->store, key, text, len, DL_NEVER));
}

/* Puts an abort of that number and base at log/<name>. */
static void put_abort(const world *w, uint64_t name, uint64_t number, dl_hash base)
{
    dl_entry e;
    dl_buf text;
    CHECK_OK(dl_entry_init(&e, 1));
    dl_buf_init(&text, DL_ENTRY_TEXT_MAX);
    memcpy(e.run, w->file.id, sizeof e.run);
    e.entry = number;
    e.base = e.result = base;
    snprintf(e.committer.replica, sizeof e.committer.replica, "r0");
    snprintf(e.abort.reason, sizeof e.abort.reason, "test");
    CHECK_OK(dl_entry_write(&text, &e, dl_outer_of(&w->config)));
    put_log(w, name, text.data, text.len);
    dl_buf_deinit(&text);
    dl_entry_deinit(&e);
}

/* Checks the contribution of r1, which the replica has to read from the store. */
static void check_base(dl_exec *exec, const world *w, bool fits)
{
    dl_request request = fetch_of(w, 1, NULL);
    request.fetch.fresh = true;
    const answer a = fetch(exec, &request);
    CHECK_INT(fits ? DILOCO_OK : DILOCO_EPROTO, a.status);
    if (!fits) CHECK_STR("base", a.reason);
}

TEST(p20_base_of_an_unreadable_entry_is_that_of_the_next_readable_one)
{
    world w;
    dl_exec *exec = make_async(&w);
    dl_fragment_state *now = &dl_exec_state(exec)->now[0];
    const dl_hash base = now->digest, other = dl_hash_bytes("other", 5);
    put_log(&w, 0, "junk", 4);
    put_abort(&w, 1, 0, other); /* a copy of another entry */
    put_log(&w, 2, "", 0);
    check_base(exec, &w, true); /* the newest state */
    put_abort(&w, 2, 2, base);
    now->digest = now->before = other;
    check_base(exec, &w, true);
    put_log(&w, 0, "changed", 7);
    put_log(&w, 1, "junk", 4);
    check_base(exec, &w, true);
    put_abort(&w, 2, 2, other);
    check_base(exec, &w, false);
    put_abort(&w, 0, 0, base);
    check_base(exec, &w, true);
    dl_exec_destroy(exec);
    end_world(&w);
}

TEST_MAIN(extent_of_the_log_ends_at_the_first_gap_and_at_the_bound,
          parallel_reads_give_the_same_answers_as_serial_ones,
          a_store_that_is_away_is_unreachable_for_its_first_readers_too,
          contributions_are_listed_in_the_order_of_their_keys,
          p9_16_steps_are_bounded_by_those_since_the_base,
          prefetched_contribution_is_not_read_again, other_request_drops_prefetched_contributions,
          p11_unlisted_heartbeats_do_not_silence_members,
          p11_an_end_marks_the_heartbeat_of_its_generation, a_fresh_reading_is_one,
          p8_confirmed_upload_is_not_read_back, p8_sent_bytes_or_capture_are_enough_without_reading,
          p8_overwritten_or_unconfirmed_contribution_is_read_back,
          doubtful_contribution_is_read_from_the_store_alone,
          committer_in_a_roster_of_keys_reads_from_the_store_alone,
          p20_base_of_an_unreadable_entry_is_that_of_the_next_readable_one)
