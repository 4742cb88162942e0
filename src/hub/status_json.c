/* status_json.c - see status_json.h. Names of fields are an interface: none is renamed. */
#include "hub/status_json.h"

#include <stdio.h>
#include <string.h>

/* Called once for each name of the roster, or once with `replica` NULL if no name has a key.
 * Names beyond the table are left out. */
static diloco_status take_key(void *user, const char *roster, const char *owner,
                              const char *replica, const char *key)
{
    dl_roster_view *v = user;
    snprintf(v->roster, sizeof v->roster, "%s", roster);
    snprintf(v->owner, sizeof v->owner, "%s", owner);
    if (!replica || v->n_keys == sizeof v->keys / sizeof v->keys[0]) return DILOCO_OK;
    dl_roster_key *k = &v->keys[v->n_keys++];
    snprintf(k->replica, sizeof k->replica, "%s", replica);
    snprintf(k->key, sizeof k->key, "%s", key);
    return DILOCO_OK;
}

diloco_status dl_roster_view_read(dl_roster_view *out, const char *url)
{
    memset(out, 0, sizeof *out);
    return diloco_roster_walk(url, take_key, out);
}

const char *dl_replica_state(const diloco_replica_status *r)
{
    return r->ended ? "ended" : r->alive ? "alive" : r->seen ? "silent" : "not seen";
}

/* "norm": 3, … */
static void add_rejections(dl_json *json, const diloco_rejections *r)
{
    dl_json_object(json, "rejected");
    for (size_t i = 0; i < r->n_reasons; i++)
        dl_json_u64(json, r->reasons[i].reason, r->reasons[i].n);
    dl_json_end(json);
}

/* One replica. Rates are in bytes per second, times in seconds, positions in steps. */
static void add_replica(dl_json *json, const diloco_replica_status *r)
{
    dl_json_object(json, NULL);
    dl_json_str(json, "replica", r->replica);
    dl_json_u64(json, "generation", r->generation);
    dl_json_str(json, "state", dl_replica_state(r));
    dl_json_bool(json, "alive", r->alive);
    dl_json_bool(json, "ended", r->ended);
    dl_json_u64(json, "step", r->step);
    dl_json_u64(json, "entry", r->entry);
    dl_json_u64(json, "position", r->position);
    dl_json_f64(json, "steps_per_s", r->steps_per_s);
    dl_json_str(json, "host", r->host);
    dl_json_f64(json, "deadline_s", r->deadline_s);
    dl_json_f64(json, "up_bps", r->up_bps);
    dl_json_f64(json, "down_bps", r->down_bps);
    dl_json_f64(json, "request_s", r->request_s);
    add_rejections(json, &r->rejected);
    dl_json_u64(json, "strikes", r->strikes);
    if (r->banned_until) dl_json_u64(json, "banned_until", r->banned_until);
    dl_json_str(json, "address", r->address);
    dl_json_u64(json, "from_peers", r->from_peers);
    dl_json_u64(json, "from_store", r->from_store);
    dl_json_end(json);
}

/* The open entry and the replicas that it waits for. `missing` may be shorter than n_missing,
 * since the status keeps a bounded number of names. */
static void add_wait(dl_json *json, const diloco_run_wait *w)
{
    const size_t reported = sizeof w->missing / sizeof w->missing[0];
    dl_json_object(json, "waits_for");
    dl_json_u64(json, "entry", w->entry);
    dl_json_u64(json, "position", w->position);
    dl_json_u64(json, "awaited", w->n_awaited);
    dl_json_u64(json, "there", w->n_there);
    dl_json_u64(json, "n_missing", w->n_missing);
    dl_json_array(json, "missing");
    for (size_t i = 0; i < w->n_missing && i < reported; i++)
        dl_json_str(json, NULL, w->missing[i]);
    dl_json_end(json);
    dl_json_end(json);
}

/* A trusted run has no keys, so the members are missing. */
static void add_roster(dl_json *json, const dl_roster_view *r)
{
    dl_json_str(json, "roster", r->roster);
    if (!r->owner[0]) return;
    dl_json_str(json, "owner", r->owner);
    dl_json_object(json, "keys");
    for (size_t i = 0; i < r->n_keys; i++)
        dl_json_str(json, r->keys[i].replica, r->keys[i].key);
    dl_json_end(json);
}

/* The order of the members is for people; programs find them by name. */
void dl_status_json(dl_json *json, const diloco_run_status *run, const dl_roster_view *roster,
                    const char *store)
{
    dl_json_object(json, NULL);
    dl_json_str(json, "run", run->run);
    dl_json_str(json, "store", store);
    dl_json_str(json, "preset", run->preset);
    dl_json_str(json, "program", run->program);
    dl_json_str(json, "model", run->model);
    dl_json_u64(json, "parameters", run->parameters);
    dl_json_str(json, "config_digest", run->config_digest);
    dl_json_u64(json, "entries", run->entries);
    dl_json_u64(json, "entries_total", run->entries_total);
    dl_json_u64(json, "commits", run->commits);
    dl_json_u64(json, "aborts", run->aborts);
    dl_json_u64(json, "snapshot", run->snapshot);
    dl_json_str(json, "exchange", run->exchange);
    dl_json_u64(json, "entry_written", run->entry_written);
    dl_json_u64(json, "entry_read", run->entry_read);
    dl_json_bool(json, "done", run->done);
    add_rejections(json, &run->rejected);
    dl_json_u64(json, "banned", run->n_banned);
    add_roster(json, roster);
    if (run->wait) add_wait(json, run->wait);
    dl_json_array(json, "replicas");
    for (size_t i = 0; i < run->n_replicas; i++)
        add_replica(json, run->replicas[i]);
    dl_json_end(json);
    dl_json_u64(json, "n_left_out", run->n_left_out);
    dl_json_end(json);
}
