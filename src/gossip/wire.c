/* wire.c - see wire.h.
 *
 * One lock guards the node, the table of lines and everything in them that is not marked as the
 * thread's own. A line's slots are written by its fetcher while the node wants an object of it. The
 * node's owner reads them in the phases STEP and AGREE, in which nothing is wanted. So they need no
 * lock, and a line is not removed meanwhile.
 *
 * A line ends when its peer was silent for twice `patience`. If another node still names the
 * address, the keeper starts a new line for it in one of its next rounds. */
#include "gossip/wire_parts.h"

#include "base/log.h"
#include "protocol/bans.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dl_wire_lock(dl_wire *w)
{
    pthread_mutex_lock(&w->lock);
}

void dl_wire_unlock(dl_wire *w)
{
    pthread_mutex_unlock(&w->lock);
}

/* Returns true if the fetcher of this line is at an object that would not be taken any more. */
static bool is_in_vain(const dl_line *l)
{
    const dl_line_task *t = &l->task;
    return t->want.object &&
           !(l->member == t->member && dl_generation_equal(&l->generation, &t->generation) &&
             dl_node_still_wants(l->wire->a.node, t->member, t->want));
}

/* A peer's hub may hold a request for an object that will never be there. Only an abort of the
 * store ends the request early; the fetcher then opens the store again. */
void dl_wire_wake(dl_wire *w)
{
    for (size_t k = 0; k < LINES; k++) {
        dl_line *l = &w->lines[k];
        if (!l->used || l->withdrawn || !is_in_vain(l)) continue;
        l->withdrawn = true;
        dl_store_abort(l->store);
    }
    pthread_cond_broadcast(&w->changed);
}

void dl_wire_changed(dl_wire *w)
{
    w->said = false;
    dl_wire_wake(w);
}

void dl_wire_wait(dl_wire *w, dl_time until)
{
    const struct timespec t = {.tv_sec = until / DL_SECOND, .tv_nsec = until % DL_SECOND};
    pthread_cond_timedwait(&w->changed, &w->lock, &t);
}

/* ---- fetching */

/* Returns why an object that was refused as foreign does not count: it may be of another round. */
static dl_ignored why_foreign(dl_line *l, const char *key, const dl_contribution_expect *e)
{
    dl_contribution c;
    if (dl_contribution_look(&c, l->store, key, dl_time_from_now(ASK)) ||
        strcmp(c.run, e->run) != 0 || strcmp(c.generation.replica, e->generation.replica) != 0)
        return DL_IGNORED_FOREIGN;
    if (c.entry == e->entry) return DL_IGNORED_FOREIGN;
    return c.entry < e->entry ? DL_IGNORED_OLD : DL_IGNORED_FUTURE;
}

/* A model to agree on has the key of a contribution, with a/ in place of c/. */
static void key_of(dl_key key, dl_object object, uint64_t round, const dl_generation *generation)
{
    dl_key_contribution(key, round, generation);
    if (object == DL_OBJECT_MODEL) key[0] = 'a';
}

/* A slot is made with the first fetch of its kind, since runs without agreements need only one. */
static diloco_status make_slot(dl_line *l, int which, const dl_contribution_expect *e)
{
    if (l->slot[which]) return DILOCO_OK;
    return dl_slot_create(&l->slot[which], dl_contribution_body_max(e->form, e->shape, false),
                          NULL);
}

/* Returns true for errors of the object itself. After others the fetch is repeated. */
static bool is_ours_to_refuse(diloco_status status)
{
    return status == DILOCO_EPROTO || status == DILOCO_ENUMERIC || status == DILOCO_EDIFFERS;
}

/* Reports the result of a fetch to the node. The line may have another member by now. */
static void settle(dl_line *l, const dl_line_task *t, diloco_status status, dl_ignored why,
                   bool struck, const dl_contribution *facts, const dl_contribution_data *data)
{
    dl_wire *w = l->wire;
    const int which = t->want.object == DL_OBJECT_MODEL;
    dl_wire_lock(w);
    l->task.want.object = DL_OBJECT_NONE;
    const bool same = l->member == t->member && dl_generation_equal(&l->generation, &t->generation);
    if (same && !status) {
        l->facts[which] = *facts;
        l->data[which] = *data;
        dl_node_got(w->a.node, l->member, t->want);
    } else if (same) {
        dl_node_refused(w->a.node, l->member, t->want, why, struck);
    }
    dl_wire_wake(w);
    dl_wire_unlock(w);
}

/* An object that is not there was waited for at the peer. If the reply came all the same at once,
 * the peer does not wait, or cannot be reached: wait here, so that requests are not made without a
 * pause. */
static void pause_after(dl_line *l, dl_time asked)
{
    const dl_time until = dl_time_after(asked, QUICK);
    dl_wire_lock(l->wire);
    while (!l->over && dl_clock_now() < until)
        dl_wire_wait(l->wire, until);
    dl_wire_unlock(l->wire);
}

/* Fetches and checks a wanted object, without the lock. A contribution of no samples is refused: it
 * would count as a member and move nothing. */
static void fetch(dl_line *l, const dl_line_task *t, const char *run)
{
    dl_wire *w = l->wire;
    const dl_time asked = dl_clock_now();
    const int which = t->want.object == DL_OBJECT_MODEL;
    dl_contribution facts;
    dl_contribution_data data;
    const char *reason = "";
    dl_key key;
    dl_contribution_expect e = dl_mix_expect(w->a.mix, t->want.object);
    e.run = run;
    e.entry = t->want.round;
    e.generation = t->generation;
    key_of(key, t->want.object, t->want.round, &t->generation);
    diloco_status status = make_slot(l, which, &e);
    if (!status)
        status = dl_contribution_fetch(&facts, &data, &reason, l->slot[which], l->store, key, &e,
                                       t->want.until);
    if (!status && facts.stats.samples == 0 && t->want.object == DL_OBJECT_CONTRIBUTION)
        status = dl_fail(DILOCO_EPROTO, "%s: it reports no samples", key);
    if (!status) {
        settle(l, t, DILOCO_OK, 0, false, &facts, &data);
    } else if (is_ours_to_refuse(status)) {
        char text[512];
        snprintf(text, sizeof text, "%s", diloco_error_text());
        const dl_ignored why =
            strcmp(reason, "foreign") ? DL_IGNORED_DAMAGED : why_foreign(l, key, &e);
        dl_log(DILOCO_LOG_WARN, "not counted (%s): %s", dl_ignored_names[why], text);
        settle(l, t, status, why, dl_bans_is_strike(reason), NULL, NULL);
    } else {
        pause_after(l, asked);
    }
}

/* ---- a line */

/* The store is published under the lock, because others abort it. */
diloco_status dl_line_open(dl_line *l, dl_store **out, bool holds)
{
    const dl_peer_access access = {.holds = holds};
    dl_store *store;
    DL_TRY(dl_store_open_peer(&store, l->address, &access));
    dl_wire_lock(l->wire);
    *out = store;
    if (l->over) dl_store_abort(store);
    dl_wire_unlock(l->wire);
    return DILOCO_OK;
}

void dl_line_count(dl_line *l, int which, const dl_store *store)
{
    const dl_store_counters counts = dl_store_counts(store);
    l->sent[which] = counts.bytes_sent;
    l->received[which] = counts.bytes_received;
}

/* Sets *t to the next object to fetch, once there is one. Returns false if the line is over. With
 * an object of DL_OBJECT_NONE nothing was wanted for WARM. */
static bool next_task(dl_line *l, dl_line_task *t)
{
    dl_wire *w = l->wire;
    const dl_time until = dl_time_from_now(WARM);
    *t = (dl_line_task){.want.object = DL_OBJECT_NONE};
    dl_wire_lock(w);
    dl_line_count(l, 0, l->store);
    while (!l->over && dl_clock_now() < until) {
        t->member = l->member;
        t->generation = l->generation;
        if (l->member != NOBODY) t->want = dl_node_wants(w->a.node, l->member, dl_clock_now());
        if (t->want.object) break;
        dl_wire_wait(w, until);
    }
    l->task = *t;
    const bool over = l->over;
    dl_wire_unlock(w);
    return !over;
}

/* Opens the store again if the last fetch was withdrawn. Returns false if it cannot: the line is
 * over then. */
static bool end_task(dl_line *l)
{
    dl_wire *w = l->wire;
    dl_store *old = NULL;
    dl_wire_lock(w);
    l->task.want.object = DL_OBJECT_NONE;
    if (l->withdrawn && !l->over) {
        dl_line_count(l, 0, l->store);
        w->sent += l->sent[0];
        w->received += l->received[0];
        l->sent[0] = l->received[0] = 0;
        old = l->store;
        l->store = NULL;
    }
    l->withdrawn = false;
    dl_wire_unlock(w);
    if (!old) return true;
    dl_store_close(old);
    if (!dl_line_open(l, &l->store, true)) return true;
    dl_log(DILOCO_LOG_WARN, "%s: %s", l->address, diloco_error_text());
    dl_wire_lock(w);
    l->over = true;
    dl_wire_unlock(w);
    return false;
}

/* Makes the connection, and keeps it. So a fetch takes one round trip, and no handshake. */
static void keep_warm(dl_line *l)
{
    dl_beat beat;
    if (dl_beat_get(&beat, l->store, DL_KEY_BEAT, dl_time_from_now(ASK)))
        dl_log(DILOCO_LOG_DEBUG, "%s: %s", l->address, diloco_error_text());
}

/* The thread of a line's fetcher. It starts the listener and outlives it. */
static void *live(void *context)
{
    dl_line *l = context;
    dl_wire *w = l->wire;
    pthread_t listener;
    dl_line_task t;
    diloco_status status = dl_line_open(l, &l->store, true);
    const bool listens = !status && !dl_thread_start(&listener, dl_line_listen, l);
    if (listens) keep_warm(l);
    bool more = listens;
    while (more && next_task(l, &t)) {
        if (t.want.object)
            fetch(l, &t, w->a.node->self.run);
        else
            keep_warm(l);
        more = end_task(l);
    }
    if (listens) pthread_join(listener, NULL);
    dl_wire_lock(w);
    l->ended = true;
    pthread_cond_broadcast(&w->changed);
    dl_wire_unlock(w);
    return NULL;
}

/* Call it with the lock, after the thread was joined. */
static void free_line(dl_line *l)
{
    l->wire->sent += l->sent[0] + l->sent[1];
    l->wire->received += l->received[0] + l->received[1];
    dl_store_close(l->store);
    dl_store_close(l->ear);
    dl_slot_destroy(l->slot[0]);
    dl_slot_destroy(l->slot[1]);
    *l = (dl_line){.used = false};
}

void dl_wire_add_line(dl_wire *w, const char *address)
{
    dl_line *room = NULL;
    dl_wire_lock(w);
    bool there = w->stopping || !strcmp(address, w->a.node->self.address);
    for (size_t k = 0; k < LINES; k++) {
        there |= w->lines[k].used && !strcmp(w->lines[k].address, address);
        if (!w->lines[k].used) room = &w->lines[k];
    }
    if (!there && room) {
        *room = (dl_line){.wire = w, .used = true, .member = NOBODY};
        snprintf(room->address, sizeof room->address, "%s", address);
        if (dl_thread_start(&room->thread, live, room)) *room = (dl_line){.used = false};
    }
    dl_wire_unlock(w);
}

/* ---- the keeper --------------------------------------------------------------------------- */

/* Frees lines whose thread has ended, unless the node's owner may read their slots. */
static void sweep(dl_wire *w)
{
    dl_wire_lock(w);
    const dl_phase phase = w->a.node->phase;
    const bool in_use = phase == DL_PHASE_STEP || phase == DL_PHASE_AGREE;
    for (size_t k = 0; k < LINES && !in_use; k++) {
        dl_line *l = &w->lines[k];
        if (!l->used || !l->ended) continue;
        if (l->member != NOBODY && w->a.node->members[l->member].got) continue;
        pthread_join(l->thread, NULL);
        free_line(l);
    }
    dl_wire_unlock(w);
}

/* Writes this node's heartbeat if it has changed. The text is copied, since the lock is not held
 * while the store is written. */
static void publish_heartbeat(dl_wire *w)
{
    unsigned char text[DL_BEAT_MAX];
    dl_wire_lock(w);
    const bool new = !w->said;
    dl_buf_clear(&w->beat);
    const diloco_status status = dl_beat_write(&w->beat, &w->a.node->self);
    const size_t len = status ? 0 : w->beat.len;
    if (len) memcpy(text, w->beat.data, len);
    w->said = true;
    dl_wire_unlock(w);
    if (!len || !new) return;
    if (dl_store_put(w->home, DL_KEY_BEAT, text, len, DL_NEVER))
        dl_log(DILOCO_LOG_WARN, "this node's heartbeat: %s", diloco_error_text());
    else
        w->a.report(w->a.user, DL_KEY_BEAT);
}

/* Finds the next member that is not noted yet under this node's hb/. */
static bool next_met(dl_beat *out, dl_wire *w)
{
    bool found = false;
    dl_wire_lock(w);
    for (size_t k = 0; k < LINES && !found; k++) {
        dl_line *l = &w->lines[k];
        if (!l->used || !l->met) continue;
        l->met = false;
        *out = l->beat;
        found = w->noted++ < DL_KNOWN_MAX; /* untrusted peers may take ever new names */
    }
    dl_wire_unlock(w);
    return found;
}

/* Notes the members that this node has met, so that it finds them when it starts again. Its
 * bootstrap address may be gone by then, and they need not have announced themselves here. */
static void note(dl_wire *w)
{
    dl_beat beat;
    dl_buf text;
    dl_buf_init(&text, DL_BEAT_MAX);
    while (next_met(&beat, w)) {
        dl_key key;
        dl_key_known(key, beat.generation.replica);
        dl_buf_clear(&text);
        if (dl_beat_write(&text, &beat) ||
            dl_store_put(w->home, key, text.data, text.len, dl_time_from_now(ASK)))
            dl_log(DILOCO_LOG_WARN, "the address of %s: %s", beat.generation.replica,
                   diloco_error_text());
    }
    dl_buf_deinit(&text);
}

/* Adds lines to the other nodes of this machine, by the heartbeats in their folders. */
static void look_beside(dl_wire *w)
{
    DIR *dir = opendir(w->a.beside);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[DL_PATH_MAX + 64 + DL_REPLICA_MAX];
        dl_buf text;
        dl_beat beat;
        if (!dl_replica_name_ok(entry->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s/served/run/" DL_KEY_BEAT, w->a.beside, entry->d_name);
        dl_buf_init(&text, DL_BEAT_MAX);
        if (!dl_file_read(&text, path) && !dl_beat_read(&beat, text.data, text.len))
            dl_wire_add_line(w, beat.address);
        dl_buf_deinit(&text);
    }
    closedir(dir);
}

/* Each address of swarm.bootstrap; the first that is invalid is an error. */
static diloco_status bootstrap(dl_wire *w, bool check)
{
    dl_config_path all;
    char address[DL_ADDRESS_MAX + 1], *rest = NULL;
    snprintf(all, sizeof all, "%s", w->a.bootstrap);
    for (char *one = strtok_r(all, ", ", &rest); one; one = strtok_r(NULL, ", ", &rest)) {
        DL_TRY(dl_peer_address(address, one, w->a.tls));
        if (!check) dl_wire_add_line(w, address);
    }
    return DILOCO_OK;
}

/* The keeper's thread: one round in each heartbeat, and sooner if the node has changed. */
static void *keep(void *context)
{
    dl_wire *w = context;
    bool over = false;
    while (!over) {
        publish_heartbeat(w);
        note(w);
        sweep(w);
        dl_line_learn(w, w->home, 0, true);
        look_beside(w);
        if (bootstrap(w, false)) dl_log(DILOCO_LOG_WARN, "%s", diloco_error_text());
        dl_wire_lock(w);
        dl_time until = dl_time_from_now(w->a.heartbeat);
        if (dl_wire_in_a_hurry(w->a.node) && until > dl_time_from_now(QUICK))
            until = dl_time_from_now(QUICK);
        while (!w->stopping && w->said && dl_clock_now() < until)
            dl_wire_wait(w, until);
        over = w->stopping;
        dl_wire_unlock(w);
    }
    publish_heartbeat(w); /* that it is done, perhaps */
    return NULL;
}

/* ---- making and ending -------------------------------------------------------------------- */

static void init_condition(dl_wire *w)
{
    pthread_mutex_init(&w->lock, NULL);
    dl_cond_init(&w->changed);
}

static diloco_status start(dl_wire *w)
{
    DL_TRY(bootstrap(w, true));
    DL_TRY(dl_store_open(&w->home, w->a.home, false));
    if (*w->a.link) DL_TRY(dl_store_set_link(w->a.link));
    if (dl_thread_start(&w->keeper, keep, w))
        return dl_fail(DILOCO_ENOMEM, "the system cannot start another thread");
    return DILOCO_OK;
}

static void release(dl_wire *w)
{
    dl_store_close(w->home);
    dl_buf_deinit(&w->beat);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

diloco_status dl_wire_create(dl_wire **out, const dl_wire_args *args)
{
    *out = NULL;
    dl_wire *w = calloc(1, sizeof *w);
    if (!w) return dl_fail(DILOCO_ENOMEM, "out of memory for lines to %d nodes", DL_NODE_MAX);
    w->a = *args;
    dl_buf_init(&w->beat, DL_BEAT_MAX);
    init_condition(w);
    const diloco_status status = start(w);
    if (status)
        release(w);
    else
        *out = w;
    return status;
}

/* Ends the threads of a line. With the lock. */
static void end_line(dl_line *l)
{
    l->over = true;
    if (l->store) dl_store_abort(l->store);
    if (l->ear) dl_store_abort(l->ear);
}

void dl_wire_destroy(dl_wire *w)
{
    if (!w) return;
    dl_wire_lock(w);
    w->stopping = true;
    for (size_t k = 0; k < LINES; k++)
        if (w->lines[k].used) end_line(&w->lines[k]);
    pthread_cond_broadcast(&w->changed);
    dl_wire_unlock(w);
    pthread_join(w->keeper, NULL);
    for (size_t k = 0; k < LINES; k++)
        if (w->lines[k].used) pthread_join(w->lines[k].thread, NULL), free_line(&w->lines[k]);
    release(w);
}

/* ---- the lines' objects ------------------------------------------------------------------- */

/* At most one line has a member. */
static const dl_line *line_of(const dl_wire *w, size_t member)
{
    for (size_t k = 0; k < LINES; k++)
        if (w->lines[k].used && w->lines[k].member == member) return &w->lines[k];
    return NULL;
}

dl_mix_input dl_wire_input(const dl_wire *w, size_t member)
{
    const dl_line *l = line_of(w, member);
    const int which = w->a.node->phase == DL_PHASE_AGREE;
    DL_ASSERT(l); /* received objects stay until the step is over */
    return (dl_mix_input){&l->facts[which], l->data[which]};
}

void dl_wire_address(char out[DL_ADDRESS_MAX + 1], const dl_wire *w, size_t member)
{
    const dl_line *l = line_of(w, member);
    snprintf(out, DL_ADDRESS_MAX + 1, "%s", l ? l->address : "");
}

void dl_wire_traffic(const dl_wire *w, uint64_t *sent, uint64_t *received)
{
    *sent = w->sent;
    *received = w->received;
    for (size_t k = 0; k < LINES; k++) {
        *sent += w->lines[k].sent[0] + w->lines[k].sent[1];
        *received += w->lines[k].received[0] + w->lines[k].received[1];
    }
}
