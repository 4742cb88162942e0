/* peer_query.c - requests to nodes by programs that are not nodes themselves: the run that a node
 * takes part in, and the reports of nodes. */
#include "gossip/gossip.h"

#include "base/rng.h"
#include "gossip/heartbeat.h"
#include "run/open.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define ASK (10 * DL_SECOND)

static dl_time soon(void)
{
    return dl_time_after(dl_clock_now(), ASK);
}

static diloco_status open_peer(dl_store **out, const char *peer, bool tls)
{
    char address[DL_ADDRESS_MAX + 1];
    DL_TRY(dl_peer_address(address, peer, tls));
    return dl_store_open_peer(out, address, NULL);
}

diloco_status dl_gossip_take_run(const char *store, const char *peer, bool tls)
{
    dl_store *there = NULL, *here = NULL;
    dl_runfile run;
    dl_buf text;
    dl_buf_init(&text, DL_RUNFILE_MAX);
    diloco_status status = open_peer(&there, peer, tls);
    if (!status) status = dl_store_get(there, &text, DL_KEY_RUN, soon());
    if (!status) status = dl_runfile_read(&run, text.data, text.len);
    if (!status) {
        if (run.config.consensus != DL_CONSENSUS_NONE)
            status = dl_fail(DILOCO_EREFUSED, "the run at %s has a log: diloco join its URL", peer);
        dl_runfile_deinit(&run);
    }
    if (!status) status = dl_store_open(&here, store, true);
    const dl_span span = {text.data, text.len};
    if (!status) status = dl_store_create(here, DL_KEY_RUN, &span, 1, NULL, soon());
    if (status == DILOCO_EEXIST)
        status = dl_fail(DILOCO_EDIFFERS, "%s has another run than %s: give another --store", store,
                         peer);
    dl_store_close(here);
    dl_store_close(there);
    dl_buf_deinit(&text);
    return status;
}

void dl_gossip_name(char out[32])
{
    uint32_t number = 0;
    (void)!dl_random_bytes(&number, sizeof number); /* 0: the name may be in use */
    snprintf(out, 32, "n%08x", (unsigned)number);
}

/* ---- status ------------------------------------------------------------------------------- */

/* Adds a report, or replaces one of the same name that its node did not give itself. */
static void show(dl_gossip_status *out, const dl_beat *b, bool reached)
{
    size_t i = 0;
    while (i < out->n && strcmp(out->peers[i].name, b->generation.replica) != 0)
        i++;
    if (i == DL_GOSSIP_PEERS || (i < out->n && out->peers[i].reached)) return;
    if (i == out->n) out->n++;
    dl_gossip_peer *p = &out->peers[i];
    *p = (dl_gossip_peer){.generation = b->generation.number,
                          .round = b->contributed,
                          .stepped = b->stepped,
                          .step = b->step,
                          .ignored = b->ignored,
                          .divergence = b->divergence,
                          .done = b->done,
                          .reached = reached};
    snprintf(p->name, sizeof p->name, "%s", b->generation.replica);
    snprintf(p->address, sizeof p->address, "%s", b->address);
    dl_hash_to_hex(p->digest, b->digest);
}

/* A heartbeat that was found in a folder or at another node: the node's own report, if it answers.
 * Its port may be another node's by now. */
static bool visit(void *context, const dl_beat *known)
{
    dl_gossip_status *out = context;
    dl_store *store;
    dl_beat beat;
    bool reached = false;
    if (strcmp(known->run, out->run) != 0) return true;
    if (!dl_store_open_peer(&store, known->address, NULL)) {
        reached = !dl_beat_get(&beat, store, DL_KEY_BEAT, soon()) && !strcmp(beat.run, out->run) &&
                  !strcmp(beat.generation.replica, known->generation.replica);
        dl_store_close(store);
    }
    show(out, reached ? &beat : known, reached);
    return true;
}

/* Reads the heartbeat in `store`: the node's own answer if `answers`, else the node's
 * folder, where the heartbeat stays after the node has ended. */
static diloco_status read_node(dl_gossip_status *out, dl_store *store, bool answers, bool others)
{
    dl_beat beat;
    DL_TRY(dl_beat_get(&beat, store, DL_KEY_BEAT, soon()));
    if (answers)
        show(out, &beat, true);
    else
        visit(out, &beat);
    return others ? dl_beats_known(store, 0, ASK, NULL, visit, out) : DILOCO_OK;
}

/* The nodes of a folder of this machine. */
static void read_folder(dl_gossip_status *out, const char *folder)
{
    char path[DL_PATH_MAX + 128];
    snprintf(path, sizeof path, "%s/nodes", folder);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        dl_store *store;
        if (!dl_replica_name_ok(entry->d_name)) continue;
        snprintf(path, sizeof path, "%s/nodes/%.31s/served/run", folder, entry->d_name);
        if (dl_store_open(&store, path, false)) continue;
        const diloco_status silent = read_node(out, store, false, false);
        (void)silent; /* it has said nothing yet */
        dl_store_close(store);
    }
    if (dir) closedir(dir);
}

static diloco_status read_run(dl_gossip_status *out, dl_store *store)
{
    dl_runfile run;
    dl_hash digest;
    DL_TRY(dl_run_read(&run, &digest, store));
    memcpy(out->run, run.id, sizeof out->run);
    out->rounds = (uint64_t)run.config.rounds;
    dl_runfile_deinit(&run);
    return DILOCO_OK;
}

diloco_status dl_gossip_status_read(dl_gossip_status *out, const char *target)
{
    dl_store *store;
    const bool far = !strncmp(target, "http://", 7) || !strncmp(target, "https://", 8);
    const char *folder = strncmp(target, "file://", 7) ? target : target + 7;
    *out = (dl_gossip_status){.n = 0};
    DL_TRY(far ? open_peer(&store, target, false) : dl_store_open(&store, target, false));
    diloco_status status = read_run(out, store);
    if (!status && far) status = read_node(out, store, true, true);
    if (!status && !far && read_node(out, store, false, true))
        read_folder(out, folder); /* no node's */
    dl_store_close(store);
    return status;
}
