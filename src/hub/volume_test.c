/* volume_test.c - a run's traffic through a hub is as in P19, HTTP included, and needs no
 * additional requests. */
#include "volume.h"

#include "hub/server.h"
#include <diloco/log.h>

#include <inttypes.h>

/* The hub's requests, from its log: contributions and combined updates, and slices of either, by
 * entry. */
typedef struct asked {
    pthread_mutex_t lock;
    unsigned puts[VOLUME_ENTRIES][VOLUME_CREW], gets[VOLUME_ENTRIES];
    unsigned combined_puts[VOLUME_ENTRIES], combined_gets[VOLUME_ENTRIES];
    unsigned slice_puts[VOLUME_ENTRIES], slice_gets[VOLUME_ENTRIES];
    unsigned combined_slice_puts[VOLUME_ENTRIES], combined_slice_gets[VOLUME_ENTRIES];
} asked;

static asked requests = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Slice i of something that a replica has contributed or combined. */
static void note_slice(asked *a, const char *line)
{
    char method[8], path[300], folder;
    unsigned slice, status;
    uint64_t e;
    if (sscanf(line, "%7s %299s %u", method, path, &status) != 3 ||
        sscanf(path, "/run/%c/%10" SCNu64 "/%u/r", &folder, &e, &slice) != 3 ||
        e >= VOLUME_ENTRIES || status > 299) /* the planner asks for objects that are not there
                                              * yet */
        return;
    pthread_mutex_lock(&a->lock);
    const bool puts = !strcmp(method, "PUT"), gets = !strcmp(method, "GET");
    if (folder == 'b') a->slice_puts[e] += puts, a->slice_gets[e] += gets;
    if (folder == 'x') a->combined_slice_puts[e] += puts, a->combined_slice_gets[e] += gets;
    pthread_mutex_unlock(&a->lock);
}

static void note_request(void *user, diloco_log_level level, const char *line)
{
    asked *a = user;
    char method[8], folder;
    unsigned replica, status;
    uint64_t e;
    (void)level;
    note_slice(a, line);
    if (sscanf(line, "%7s /run/%c/%10" SCNu64 "/r%u.%*u %u", method, &folder, &e, &replica,
               &status) != 5 ||
        e >= VOLUME_ENTRIES || replica >= VOLUME_CREW)
        return;
    pthread_mutex_lock(&a->lock);
    const bool puts = !strcmp(method, "PUT"), gets = !strcmp(method, "GET");
    if (folder == 'c') {
        a->puts[e][replica] += puts;
        a->gets[e] += gets;
    } else if (folder == 'x') {
        a->combined_puts[e] += puts;
        a->combined_gets[e] += gets;
    }
    pthread_mutex_unlock(&a->lock);
}

/* Of each entry but the first, before which replicas join, each replica uploads once. With
 * allgather it downloads all others' contributions. With a leader it downloads one update, and the
 * leader all contributions. Uploads that the hub confirms are not read back (P8). */
static void check_requests(const asked *a, dl_topology_kind topology)
{
    const unsigned n = VOLUME_CREW;
    for (int e = 1; e < VOLUME_ENTRIES; e++) {
        for (int i = 0; i < VOLUME_CREW; i++)
            CHECK_INT(1, a->puts[e][i]);
        CHECK_INT(topology == DL_TOPOLOGY_LEADER ? n - 1 : n * (n - 1), a->gets[e]);
        CHECK_INT(topology == DL_TOPOLOGY_LEADER ? 1 : 0, a->combined_puts[e]);
        CHECK_INT(topology == DL_TOPOLOGY_LEADER ? n - 1 : 0, a->combined_gets[e]);
    }
}

/* There are as many slices as replicas. Each replica puts all its slices, and a slice's owner reads
 * that slice of all others. The owner puts the combined slice, and all others read it (P8). */
static void check_slices(const asked *a)
{
    const unsigned n = VOLUME_CREW;
    for (int e = 1; e < VOLUME_ENTRIES; e++) {
        for (int i = 0; i < VOLUME_CREW; i++)
            CHECK_INT(1, a->puts[e][i]); /* the table */
        CHECK_INT(n * n, a->slice_puts[e]);
        CHECK_INT(n * (n - 1), a->slice_gets[e]);
        CHECK_INT(n, a->combined_slice_puts[e]);
        CHECK_INT(n * (n - 1), a->combined_slice_gets[e]);
    }
}

static void check_through_hub(dl_topology_kind topology)
{
    dl_hub *hub;
    char url[300];
    const dl_hub_options options = {.dir = scratch_path(dl_topology_names[topology]),
                                    .listen = "127.0.0.1:0"};
    requests = (asked){.lock = PTHREAD_MUTEX_INITIALIZER};
    diloco_log_set(note_request, &requests, DILOCO_LOG_DEBUG);
    CHECK_OK(dl_hub_start(&hub, &options));
    snprintf(url, sizeof url, "%s/run", dl_hub_url(hub));
    check_volume(url, topology, "f32");
    dl_hub_stop(hub, dl_time_after(dl_clock_now(), DL_SECOND), NULL);
    diloco_log_set(NULL, NULL, DILOCO_LOG_ERROR);
    if (topology == DL_TOPOLOGY_SHARDED)
        check_slices(&requests);
    else
        check_requests(&requests, topology);
}

/* STO-11 */
TEST(p19_replicas_move_the_bytes_of_the_formula_through_a_hub)
{
    check_through_hub(DL_TOPOLOGY_ALLGATHER);
}

TEST(p19_a_leader_saves_the_bytes_of_the_formula)
{
    check_through_hub(DL_TOPOLOGY_LEADER);
}

TEST(p19_slices_move_the_bytes_of_the_formula_through_a_hub)
{
    check_through_hub(DL_TOPOLOGY_SHARDED);
}

/* ---- by kind */

/* The number after "key": in the line's object `which`. */
static double kind_of_line(const char *line, const char *which, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\":{", which);
    const char *object = strstr(line, name);
    CHECK(object != NULL);
    snprintf(name, sizeof name, "\"%s\":", key);
    const char *value = strstr(object, name);
    CHECK(value != NULL);
    return strtod(value + strlen(name), NULL);
}

static const char *traffic_line_of(const toy *t)
{
    const char *line = strstr(t->record, "{\"event\":\"traffic\"");
    CHECK(line != NULL);
    return line;
}

TEST(all_bytes_of_a_run_are_counted_by_kind)
{
    static toy all[2];
    char url[300];
    const double model = 4.0 * (VOLUME_FLOATS + TOY_N);
    dl_hub *hub;
    const dl_hub_options options = {.dir = scratch_path("kinds"), .listen = "127.0.0.1:0"};
    CHECK_OK(dl_hub_start(&hub, &options));
    snprintf(url, sizeof url, "%s/run", dl_hub_url(hub));
    toy_crew(all, 2, url, "none");
    toy_set_all(all, 2, "server.diloco.codec", "topk");
    toy_set_all(all, 2, "trainer.rounds", "3");
    double sent[8] = {0}, received[8] = {0};
    static const char *const kinds[8] = {"probe",      "first_model", "contributions", "log",
                                         "heartbeats", "records",     "snapshots",     "other"};
    for (int i = 0; i < 2; i++) {
        all[i].prepare = volume_add;
        all[i].user = calloc(VOLUME_FLOATS, sizeof(float));
        toy_keep_record(&all[i]);
    }
    toy_live_all(all, 2);
    for (int i = 0; i < 2; i++) {
        TOY_OK(all[i]);
        for (int k = 0; k < 8; k++) {
            sent[k] += kind_of_line(traffic_line_of(&all[i]), "sent", kinds[k]);
            received[k] += kind_of_line(traffic_line_of(&all[i]), "received", kinds[k]);
        }
        free(all[i].record);
        free(all[i].user);
    }
    CHECK(sent[1] > model && received[1] > 2 * model); /* by the creator; to all that join */
    CHECK(sent[6] > model);                            /* a snapshot */
    for (int k = 0; k < 8; k++)
        CHECK(sent[k] > 0 && received[k] > 0);
    CHECK(sent[0] > 1000 && sent[0] < 2 * model); /* not 8 MiB: contributions are shorter */
    dl_hub_stop(hub, dl_time_after(dl_clock_now(), DL_SECOND), NULL);
}

/* ---- between two entries */

typedef struct between {
    dl_hub *hub;
    atomic_uint n;        /* requests that have ended, heartbeats apart */
    unsigned at_first;    /* the value when the first step of the round began */
    unsigned steps, seen; /* of this generation; rounds that were looked at */
} between;

static void count_request(void *user, diloco_log_level level, const char *line)
{
    between *b = user;
    (void)level;
    if (strstr(line, " /run") && !strstr(line, "/hb/")) atomic_fetch_add(&b->n, 1);
}

/* An answered request of the exchange may not have ended yet. */
static unsigned counted(between *b)
{
    while (atomic_load(&b->hub->in_flight))
        usleep(1000);
    return atomic_load(&b->n);
}

enum { BETWEEN_STEPS = 5, BETWEEN_ROUNDS = 3 };

static double look_and_step(toy *t, const diloco_run_info *now)
{
    between *b = t->user;
    const unsigned k = b->steps++ % BETWEEN_STEPS, n = counted(b);
    if (k == 0) b->at_first = n;
    CHECK_INT(b->at_first, n); /* nothing since the last entry */
    b->seen += k == BETWEEN_STEPS - 1;
    return toy_step(t, now);
}

/* STO-10 */
TEST(between_two_entries_a_blocking_run_requests_only_heartbeats)
{
    static toy one;
    static between b;
    char url[300];
    const dl_hub_options options = {.dir = scratch_path("between"), .listen = "127.0.0.1:0"};
    diloco_log_set(count_request, &b, DILOCO_LOG_DEBUG);
    CHECK_OK(dl_hub_start(&b.hub, &options));
    snprintf(url, sizeof url, "%s/run", dl_hub_url(b.hub));
    toy_crew(&one, 1, url, "none");
    toy_set_all(&one, 1, "trainer.local_steps_per_round", "5");
    toy_set_all(&one, 1, "trainer.rounds", "3");
    one.step = look_and_step;
    one.step_us = 30000; /* heartbeats come in between */
    one.user = &b;
    toy_live(&one);
    TOY_OK(one);
    CHECK_INT(BETWEEN_ROUNDS, b.seen);
    CHECK(b.n > 3 * BETWEEN_ROUNDS); /* and asks when an entry is due */
    dl_hub_stop(b.hub, dl_time_after(dl_clock_now(), DL_SECOND), NULL);
    diloco_log_set(NULL, NULL, DILOCO_LOG_ERROR);
}

TEST_MAIN(p19_replicas_move_the_bytes_of_the_formula_through_a_hub,
          p19_a_leader_saves_the_bytes_of_the_formula,
          p19_slices_move_the_bytes_of_the_formula_through_a_hub,
          all_bytes_of_a_run_are_counted_by_kind,
          between_two_entries_a_blocking_run_requests_only_heartbeats)
