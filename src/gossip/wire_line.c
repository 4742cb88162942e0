/* wire_line.c - a line's listener and its short requests: heartbeats and addresses. Requests are
 * made without the lock, which is taken only to use their results. */
#include "gossip/wire_parts.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

bool dl_wire_in_a_hurry(const dl_node *n)
{
    return n->phase == DL_PHASE_START || n->phase == DL_PHASE_LINGER;
}

/* Makes this line the one that reaches member i, unless another line has brought an object of the
 * member that the exchange still needs. */
static void take_over(dl_line *l, size_t i)
{
    dl_wire *w = l->wire;
    for (size_t k = 0; k < LINES; k++) {
        dl_line *other = &w->lines[k];
        if (!other->used || other == l || other->member != i) continue;
        if (w->a.node->members[i].got) return;
        other->member = NOBODY;
    }
    l->member = i;
}

/* Returns true if another node answers at the address that a member's object came from. The object
 * is read from this line until the exchange is over, so the line stays that member's until then. */
static bool is_held(const dl_line *l, const dl_beat *beat)
{
    const dl_node *n = l->wire->a.node;
    if (l->member == NOBODY || !n->members[l->member].got) return false;
    const dl_beat *its = &n->members[l->member].beat;
    return strcmp(its->id, beat->id) || strcmp(its->run, beat->run) ||
           strcmp(its->generation.replica, beat->generation.replica) ||
           its->generation.number > beat->generation.number;
}

static bool same_node(const dl_beat *a, const dl_beat *b)
{
    return !strcmp(a->id, b->id) && !strcmp(a->run, b->run) &&
           dl_generation_equal(&a->generation, &b->generation);
}

/* Each node that answers in a member's place counts once, however often it is heard. */
static void count_impostor(dl_line *l, const dl_beat *beat)
{
    if (same_node(&l->impostor, beat)) return;
    l->impostor = *beat;
    dl_node_ignored(l->wire->a.node, DL_IGNORED_FOREIGN);
}

/* Gives the peer's heartbeat to the node, which says whose line this is. */
static void take_beat(dl_line *l, const dl_beat *beat)
{
    dl_wire *w = l->wire;
    dl_wire_lock(w);
    if (is_held(l, beat)) {
        count_impostor(l, beat);
        dl_wire_unlock(w);
        return;
    }
    const size_t i = dl_node_heard(w->a.node, beat, dl_clock_now());
    l->untrusted = i == NOBODY;
    l->generation = beat->generation;
    if (l->untrusted)
        l->member = NOBODY;
    else if (l->member != i)
        l->member = NOBODY, take_over(l, i), l->met = true, l->beat = *beat;
    dl_wire_wake(w);
    dl_wire_unlock(w);
}

/* Announces this node to the peer, under hb/ there. */
static void make_known(dl_line *l)
{
    dl_wire *w = l->wire;
    unsigned char text[DL_BEAT_MAX];
    dl_key key;
    dl_wire_lock(w);
    const size_t len = w->beat.len;
    if (len) memcpy(text, w->beat.data, len);
    dl_key_known(key, w->a.node->self.generation.replica);
    dl_wire_unlock(w);
    if (len && dl_store_put(l->ear, key, text, len, dl_time_from_now(ASK)))
        dl_log(DILOCO_LOG_DEBUG, "%s does not take our address: %s", l->address,
               diloco_error_text());
}

static bool learn_of(void *context, const dl_beat *known)
{
    dl_wire_add_line(context, known->address);
    return true;
}

/* Returns true for this node, and for a live member: it has a line already. So a peer's list costs
 * one request, and one more for each name that is new. */
static bool has_line(void *context, const char *name)
{
    dl_wire *w = context;
    dl_node *n = w->a.node;
    dl_wire_lock(w);
    bool has = !strcmp(n->self.generation.replica, name);
    for (size_t i = 0; i < n->n_members && !has; i++)
        has = !strcmp(n->members[i].beat.generation.replica, name) &&
              dl_node_is_live(n, i, dl_clock_now());
    dl_wire_unlock(w);
    return has;
}

/* Adds lines to the addresses under hb/ of a store. They are unconfirmed; the node at the address
 * confirms them by its own heartbeat. own: the store is this node's, which announced nodes write.
 */
void dl_line_learn(dl_wire *w, dl_store *store, size_t first, bool own)
{
    if (dl_beats_known(store, first, ASK, own ? NULL : has_line, learn_of, w))
        dl_log(DILOCO_LOG_DEBUG, "addresses from other nodes: %s", diloco_error_text());
}

/* Others end once they have read that this node is done. It serves them for as long as the slowest
 * line takes to read a heartbeat twice. took: how long this line took. Returns true if this node
 * waits for others to be done, and needs no more addresses. */
static bool lets_others_end(const dl_line *l, dl_time took)
{
    dl_node *n = l->wire->a.node;
    dl_wire_lock(l->wire);
    if (n->rules.grace < 2 * (QUICK + took)) n->rules.grace = 2 * (QUICK + took);
    const bool lingers = n->phase >= DL_PHASE_LINGER;
    dl_wire_unlock(l->wire);
    return lingers;
}

/* Announces this node, and takes the peer's addresses, with every fourth heartbeat. Each time it
 * begins with another name: a slow peer's list may not be read to its end. */
static void meet_others(dl_line *l)
{
    if (l->n_heard % KNOW_EVERY == 0) make_known(l);
    if (l->n_heard % KNOW_EVERY == 0 || l->n_heard == 1)
        dl_line_learn(l->wire, l->ear, l->n_heard, false);
    l->n_heard++;
}

/* Reads the peer's heartbeat. Returns false if the peer was silent for too long. A line whose peer
 * is no member asks again after `patience` only. */
static bool hear(dl_line *l)
{
    dl_beat beat;
    dl_wire *w = l->wire;
    const dl_time now = dl_clock_now(), patience = w->a.node->rules.patience;
    if (!dl_beat_get(&beat, l->ear, DL_KEY_BEAT, dl_time_from_now(ASK))) {
        take_beat(l, &beat);
        l->heard = dl_clock_now();
        if (!lets_others_end(l, l->heard - now)) meet_others(l);
    }
    dl_wire_lock(w);
    dl_time every = dl_wire_in_a_hurry(w->a.node) ? QUICK : w->a.heartbeat;
    if (every > w->a.heartbeat) every = w->a.heartbeat;
    if (l->untrusted) every = patience;
    dl_line_count(l, 1, l->ear);
    dl_wire_unlock(w);
    l->hear_at = dl_time_after(now, every);
    return now - l->heard < 2 * patience;
}

/* Waits until the next heartbeat is due. Returns false if the line is over. */
static bool sleep_until_due(dl_line *l)
{
    dl_wire *w = l->wire;
    dl_wire_lock(w);
    while (!l->over && dl_clock_now() < l->hear_at) {
        if (dl_wire_in_a_hurry(w->a.node) && l->hear_at > dl_time_from_now(QUICK))
            l->hear_at = dl_time_from_now(QUICK);
        dl_wire_wait(w, l->hear_at);
    }
    const bool over = l->over;
    dl_wire_unlock(w);
    return !over;
}

void *dl_line_listen(void *line)
{
    dl_line *l = line;
    l->heard = dl_clock_now();
    if (!dl_line_open(l, &l->ear, false))
        while (sleep_until_due(l) && hear(l)) {
        }
    dl_wire_lock(l->wire);
    l->over = true;
    if (l->store) dl_store_abort(l->store);
    pthread_cond_broadcast(&l->wire->changed);
    dl_wire_unlock(l->wire);
    return NULL;
}
