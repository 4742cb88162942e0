/* volume.h - the bytes that replicas write and read in a run of their own, compared with the
 * formulas of topology.h. They are counted by their handles, so over the wire where there is one,
 * requests included.
 */
#ifndef DL_TESTS_VOLUME_H
#define DL_TESTS_VOLUME_H

#include "protocol/topology.h"
#include "toy_run.h"

enum { VOLUME_CREW = 4, VOLUME_ENTRIES = 6, VOLUME_FLOATS = 200000 };

static inline diloco_status volume_add(toy *t, diloco_run *run)
{
    const diloco_tensor w = {.name = "big", .data = t->user, .n_dims = 1, .shape = {VOLUME_FLOATS}};
    return diloco_run_tensor(run, &w);
}

/* Of all commits but the first, before which the replica has joined. */
static inline double volume_moved(const char *record, const char *field)
{
    static const char head[] = "{\"event\":\"commit\"";
    double sum = 0;
    const char *at = strstr(record, head);
    CHECK(at != NULL);
    while ((at = strstr(at + 1, head))) {
        const char *value = strstr(at, field);
        CHECK(value != NULL);
        sum += strtod(value + strlen(field), NULL);
    }
    return sum;
}

static inline diloco_status volume_add_bytes(void *user, const diloco_log_entry *e)
{
    CHECK(e->commit);
    CHECK_INT(VOLUME_CREW, e->n_members);
    *(double *)user += (double)e->bytes;
    return DILOCO_OK;
}

/* Within 2 %. */
static inline void check_volume(const char *store, dl_topology_kind way, const char *codec)
{
    static toy all[VOLUME_CREW];
    double sent = 0, received = 0, contributions = 0;
    toy_crew(all, VOLUME_CREW, store, "none");
    toy_set_all(all, VOLUME_CREW, "server.diloco.exchange", dl_topology_names[way]);
    toy_set_all(all, VOLUME_CREW, "server.diloco.codec", codec);
    toy_set_all(all, VOLUME_CREW, "trainer.rounds", "6");
    toy_set_all(all, VOLUME_CREW, "run.retain", "all");
    for (int i = 0; i < VOLUME_CREW; i++) {
        all[i].prepare = volume_add;
        all[i].user = calloc(VOLUME_FLOATS, sizeof(float));
        toy_keep_record(&all[i]);
    }
    toy_live_all(all, VOLUME_CREW);
    for (int i = 0; i < VOLUME_CREW; i++) {
        TOY_OK(all[i]);
        sent += volume_moved(all[i].record, "\"bytes_sent\":");
        received += volume_moved(all[i].record, "\"bytes_received\":");
        free(all[i].record);
        free(all[i].user);
    }
    CHECK_OK(diloco_log_walk(store, 0, volume_add_bytes, &contributions));
    const double S = contributions / (VOLUME_ENTRIES * VOLUME_CREW);
    const double F = 4.0 * (VOLUME_FLOATS + TOY_N), n = VOLUME_ENTRIES - 1;
    const bool reads_back = strncmp(store, "http", 4) != 0; /* P8 */
    const dl_volume want = dl_topology_volume(way, VOLUME_CREW, S, F, reads_back);
    CHECK_NEAR(n * want.written, sent, 0.02 * n * want.written);
    CHECK_NEAR(n * want.read, received, 0.02 * n * want.read);
}

#endif
