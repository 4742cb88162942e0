/* turns.c - see turns.h.
 *
 * Sampled client i belongs to worker i mod n, where n is the number of live workers. A worker that
 * has finished its own waits twice as long as its last client took. Then it takes over missing
 * clients from the other end, where their worker comes last.
 *
 * Turns save work and are not needed for correctness. A client's result is a function of theta, its
 * state and its samples, so two workers that train the same client upload the same bytes. If their
 * arithmetic differs, the first contribution counts. Its digest names the state that is loaded next
 * (client.h). */
#include "clients/turns.h"

#include "base/log.h"
#include "protocol/logical_clients.h"
#include "state/paths.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The shortest wait before other workers' clients are taken over. It also holds for a worker that
 * has not trained a client yet. */
static const dl_time SHORTEST_PATIENCE = 1 * DL_SECOND;

/* The deadline of one operation of the private store that begins now: store.timeout. */
static dl_time limit(const dl_turns *t)
{
    return dl_time_after(dl_clock_now(), dl_time_from_seconds(t->config->store_timeout_s));
}

/* ---- opening ---------------------------------------------------------------------------- */

/* Opens a place for states. A folder that this function makes is readable by its user alone; an
 * existing one keeps its permissions, which may be those of a group of workers. */
static diloco_status open_private_folder(dl_turns *t, const char *place)
{
    const char *path = strncmp(place, "file://", 7) ? place : place + 7;
    const bool makes = !strstr(path, "://") && access(path, F_OK);
    DL_TRY(dl_store_open(&t->private_store, place, true));
    if (makes && chmod(path, 0700)) return dl_fail_errno(errno, "close to other users", path);
    return DILOCO_OK;
}

/* Opens clients.state; if that is empty, the folder `clients` of run.state_dir. */
static diloco_status open_private_store(dl_turns *t)
{
    const dl_config *c = t->config;
    dl_config_path dir;
    char place[sizeof dir + 16];
    if (c->client_state[0]) return open_private_folder(t, c->client_state);
    DL_TRY(dl_run_state_dir(dir, c));
    snprintf(place, sizeof place, "%s/clients", dir);
    return open_private_folder(t, place);
}

/* Leaves `simulated` NULL if clients have real time. */
static diloco_status begin_simulation(dl_turns *t)
{
    const dl_runfile *file = dl_run_file(t->run);
    const size_t n = dl_clients_per_round(&file->config);
    DL_TRY(dl_simulation_init(&t->simulation, &file->config, &file->manifest));
    if (!t->simulation.config) return DILOCO_OK;
    t->simulated = calloc(n, sizeof *t->simulated);
    return t->simulated ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "out of memory for %zu clients", n);
}

diloco_status dl_turns_open(dl_turns *out)
{
    out->entry = UINT64_MAX;
    return open_private_store(out);
}

diloco_status dl_turns_begin(dl_turns *t, const dl_private *vectors, size_t n)
{
    const dl_runfile *file = dl_run_file(t->run);
    const dl_hash layout = dl_client_layout(&file->config, file->manifest.digest, vectors, n);
    dl_client_store_init(&t->clients, t->private_store, file->id, layout, vectors, n);
    return begin_simulation(t);
}

void dl_turns_close(dl_turns *t)
{
    dl_client_store_deinit(&t->clients);
    dl_store_close(t->private_store);
    free(t->simulated);
}

/* ---- whose turn ------------------------------------------------------------------------- */

/* Divides the clients of a newly opened entry. The live workers are counted once an entry, so that
 * a worker's part does not change while it trains. */
static diloco_status begin_entry(dl_turns *t)
{
    if (t->entry == dl_run_open_entry(t->run)) return DILOCO_OK;
    DL_TRY(dl_run_live_workers(t->run, &t->place, &t->n_workers));
    t->entry = dl_run_open_entry(t->run);
    t->idle_since = 0;
    if (t->simulated)
        (void)dl_simulation_round(t->simulated, &t->simulation, t->entry, dl_run_sampled(t->run));
    return DILOCO_OK;
}

/* Returns true if the i-th sampled client needs training. With simulated time a client whose reply
 * would be too late does not: an uncounted result has no effect. */
static bool is_awaited(const dl_turns *t, size_t i)
{
    if (t->simulated && !t->simulated[i].awaited) return false;
    return !dl_run_has_contribution(t->run, dl_run_sampled(t->run)->names[i]);
}

size_t dl_turns_settled(const dl_turns *t)
{
    size_t n = 0;
    for (size_t i = 0; i < dl_run_sampled(t->run)->n; i++)
        n += !is_awaited(t, i);
    return n;
}

/* Returns the next client of this worker, or NULL. */
static const char *own_turn(const dl_turns *t)
{
    const dl_roster *asked = dl_run_sampled(t->run);
    for (size_t i = t->place; i < asked->n; i += t->n_workers)
        if (is_awaited(t, i)) return asked->names[i];
    return NULL;
}

/* Returns another worker's client that is still missing once this worker has been idle long enough,
 * or NULL. The last clients come first, since their workers reach them last. */
static const char *others_turn(dl_turns *t)
{
    const dl_roster *asked = dl_run_sampled(t->run);
    const dl_time now = dl_clock_now(), twice = 2 * t->client_took;
    if (!t->idle_since) t->idle_since = now;
    if (now - t->idle_since < (twice > SHORTEST_PATIENCE ? twice : SHORTEST_PATIENCE)) return NULL;
    for (size_t i = asked->n; i-- > 0;)
        if (is_awaited(t, i)) return asked->names[i];
    return NULL;
}

diloco_status dl_turns_next(dl_turns *t, const char **client)
{
    DL_TRY(begin_entry(t));
    *client = own_turn(t);
    if (!*client) *client = others_turn(t);
    return DILOCO_OK;
}

/* ---- a client's state ------------------------------------------------------------------- */

static void begin_anew(dl_turns *t, dl_client_facts *f)
{
    for (size_t i = 0; i < t->clients.n_vectors; i++)
        memset(t->clients.vectors[i].data, 0, t->clients.vectors[i].len);
    f->steps = f->next_sample = 0;
    t->fresh = true;
}

/* Finds the newest entry before `before` that counted the client, and its member. Which entries
 * asked the client is computed for each entry; only those are read from the store. */
static diloco_status last_counted(const dl_turns *t, bool *found, dl_member *member,
                                  uint64_t *entry, uint64_t client, uint64_t before)
{
    dl_client_name name;
    dl_client_name_of(name, client);
    *found = false;
    for (uint64_t e = before; e-- > 0 && !*found;) {
        *entry = e;
        if (dl_clients_sampled(t->config, e, client))
            DL_TRY(dl_run_member(t->run, found, member, e, name));
    }
    return DILOCO_OK;
}

/* Handles a state that cannot be loaded (FED-37), as clients.on_lost_state says. The optimizer's
 * moments are lost. Steps and the place in the data are sums over the log's entries, which are read
 * back to the first. Other errors than a lost state are returned as they are. */
static diloco_status reset_or_stop(dl_turns *t, dl_client_facts *f, diloco_status lost)
{
    char why[512], text[768];
    uint64_t entry = t->entry;
    bool found = true;
    if (lost != DILOCO_ENOENT && lost != DILOCO_EPROTO && lost != DILOCO_EDIFFERS) return lost;
    snprintf(why, sizeof why, "%s", lost == DILOCO_ENOENT ? "it is missing" : diloco_error_text());
    if (t->config->on_lost_state != DL_LOST_STATE_RESET)
        return dl_fail(DILOCO_EDIFFERS,
                       "the state of client%" PRIu64 " after entry %" PRIu64
                       " cannot be restored (%s): put it back (clients.state names the place "
                       "where all workers keep it), or set clients.on_lost_state = \"reset\" to "
                       "reset its optimizer",
                       f->client, f->entry, why);
    begin_anew(t, f);
    while (found) {
        dl_member m;
        DL_TRY(last_counted(t, &found, &m, &entry, f->client, entry));
        if (!found) break;
        f->steps += m.stats.steps;
        f->next_sample += m.stats.samples;
    }
    snprintf(text, sizeof text,
             "the state of client%" PRIu64 " after entry %" PRIu64
             " cannot be restored (%s): its optimizer is reset, and its data continues where it "
             "was",
             f->client, f->entry, why);
    dl_log(DILOCO_LOG_WARN, "%s", text);
    return t->warn(t->user, text);
}

/* A missing state is an error only while the entry is open. After its commit another worker may
 * have collected the state (dl_client_collect). */
diloco_status dl_turns_take_up(dl_turns *t, dl_client_facts *f, bool *late)
{
    bool found;
    dl_member member;
    *late = false;
    DL_TRY(last_counted(t, &found, &member, &f->entry, f->client, t->entry));
    begin_anew(t, f);
    if (found) {
        f->body = member.body;
        const diloco_status status = dl_client_load(&t->clients, f, limit(t));
        if (status == DILOCO_ENOENT) DL_TRY(dl_run_is_late(t->run, late));
        if (*late) return DILOCO_OK;
        if (status)
            DL_TRY(reset_or_stop(t, f, status));
        else
            DL_TRY(dl_client_collect(&t->clients, f, limit(t)));
        t->fresh = status != DILOCO_OK;
    }
    if (t->config->stream == DL_STREAM_RESTART) f->next_sample = 0;
    return DILOCO_OK;
}

diloco_status dl_turns_keep(dl_turns *t, dl_client_facts *f, dl_hash body)
{
    f->entry = t->entry;
    f->body = body;
    return dl_client_save(&t->clients, f, limit(t));
}
