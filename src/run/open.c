/* open.c - see open.h. theta0 is uploaded first, under its own digest. run.json is created once and
 * names it. A process whose create comes second reads the existing run.json. */
#include "run/open.h"

#include "base/host_port.h"
#include "base/json.h"
#include "base/log.h"
#include "base/own.h"
#include "base/peer_address.h"
#include "base/rng.h"
#include "base/run_kind.h"
#include "log/fields.h"
#include "protocol/judge.h"
#include "protocol/logical_clients.h"
#include "protocol/simulated_time.h"
#include "protocol/topology.h"
#include "run/extension.h"
#include "state/continuation.h"
#include "store/kind.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const dl_time LIMIT = 3600 * DL_SECOND; /* for objects of the model's size */

/* Returns the time until which one request for such an object may last. */
static dl_time limit(void)
{
    return dl_time_after(dl_clock_now(), LIMIT);
}

/* Checks the combinations of each kind of overlap (PROTOCOL P21). `eager` needs an outer step that
 * is linear in the contributions, with weights that are known before the entry closes. Otherwise a
 * replica cannot compute its own share. */
static diloco_status check_overlap(const dl_config *c)
{
    const bool eager = c->overlap == DL_OVERLAP_EAGER;
    if (eager && !dl_outer_of(c)->linear)
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.overlap = \"eager\" takes a replica's own share at once, "
                       "which is known for outer_optimizer sgd, momentum and nesterov; here it is "
                       "%s: take one of those, or overlap = \"delayed\"",
                       c->outer_optimizer);
    if (eager && strcmp(c->combiner, "mean") != 0)
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.overlap = \"eager\" takes a replica's own share of the "
                       "mean at once, and with combiner %s no replica knows its share before "
                       "the entry closes: take mean, or overlap = \"delayed\"",
                       c->combiner);
    return DILOCO_OK;
}

/* Checks the combinations of the schedule (P20), and of logical clients, which are no processes. */
static diloco_status check_schedule(const dl_config *c)
{
    const dl_run_kind *kind = dl_run_kind_of(c);
    if (kind->one_by_one && strcmp(c->combiner, "mean") != 0)
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.schedule = \"async\" applies each contribution alone: "
                       "combiner %s has nothing to combine; take mean, or schedule \"offset\"",
                       c->combiner);
    const bool gathers = c->exchange == DL_EXCHANGE_AUTO || c->exchange == DL_EXCHANGE_ALLGATHER;
    if (kind->no_exchange && !gathers)
        return dl_fail(DILOCO_EREFUSED, "server.diloco.exchange = \"%s\" %s",
                       dl_exchange_choice_names[c->exchange], kind->no_exchange);
    if (kind->no_drop && c->drop > 0)
        return dl_fail(DILOCO_EREFUSED,
                       "run.drop passes over contributions that are waited for together, and %s: "
                       "leave it 0",
                       kind->no_drop);
    if (kind->one_by_one && c->replicas > 1 && c->on_missing == DL_MISSING_ABORT)
        return dl_fail(DILOCO_EREFUSED,
                       "run.on_missing = \"abort\" is for entries that wait for replicas, and "
                       "with server.diloco.schedule = \"async\" none waits: leave it \"wait\"");
    return DILOCO_OK;
}

/* Checks that the run's length in steps fits an int64_t. */
static diloco_status check_length(const dl_config *c)
{
    if (c->local_steps == 0 && (!dl_run_kind_of(c)->has_epochs || c->epochs == 0))
        return dl_fail(DILOCO_EINVAL,
                       "trainer.local_steps_per_round = 0 leaves the steps of a round to "
                       "trainer.epochs, which logical clients have (clients.total_clients): set "
                       "both, or a number of steps");
    if (c->local_steps == 0 || c->rounds <= INT64_MAX / c->local_steps) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "trainer.rounds x trainer.local_steps_per_round is more steps than can be "
                   "counted: lower one of them");
}

/* A file of tensors has the outer vectors, but not the counts that Adam's bias correction or
 * delayed Nesterov needs. */
static diloco_status check_continuation(const dl_config *c)
{
    if (!dl_continue_is_asked(c)) return DILOCO_OK;
    if (!dl_outer_of(c)->counts) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "trainer.init_as = \"%s\" restores the outer optimizer's vectors. "
                   "%s also counts its commits, which no file of tensors has: take init_as "
                   "\"model\", or an outer optimizer without a count, such as nesterov",
                   dl_init_choice_names[c->init_as], c->outer_optimizer);
}

/* Checks the combinations of rosters of keys. Logical clients have no signatures. A name that can
 * be created twice binds no key. A replica that combines for all has to be trusted (P19). */
static diloco_status check_roster(const dl_config *c)
{
    const dl_policy policy = c->roster;
    const char *what = NULL;
    if (c->members[0] && policy != DL_CLOSED)
        return dl_fail(DILOCO_EREFUSED,
                       "run.members lists the keys that may take part, and run.roster = \"%s\" "
                       "admits others, too: set run.roster = \"closed\", or omit the list",
                       dl_policy_names[policy]);
    if (c->committers[0] && policy == DL_TRUSTED)
        return dl_fail(
            DILOCO_EREFUSED,
            "run.committers lists the keys that may close entries, and with "
            "run.roster = \"trusted\" no replica signs: set run.roster, or omit the list");
    if (policy == DL_TRUSTED) return DILOCO_OK;
    if (c->total_clients) what = "logical clients (clients.total_clients), which have no keys";
    if (c->single_committer[0])
        what = "run.single_committer: its store may create a name twice, so no replica owns a "
               "name";
    if (c->exchange != DL_EXCHANGE_AUTO &&
        !dl_topology_fits_roster(dl_topology_named(c->exchange), policy))
        what = "that server.diloco.exchange, in which members combine for others: set it to "
               "allgather";
    if (what)
        return dl_fail(DILOCO_EREFUSED, "run.roster = \"%s\" does not go with %s",
                       dl_policy_names[policy], what);
    return DILOCO_OK;
}

/* Checks that the combiner, optimizers and codecs exist that the options name. */
static diloco_status check_rows(const dl_config *c)
{
    dl_combine_rule rule;
    DL_TRY(dl_outer_check(c));
    if (!dl_codec_of(c)) return dl_no_row("codec", c->codec);
    return dl_combine_rule_of(&rule, c);
}

/* A wrong address fails here, not when the run has begun and a replica joins it. */
static diloco_status check_addresses(const dl_config *c)
{
    dl_address listen;
    char address[DL_ADDRESS_MAX + 1];
    if (dl_address_parse(&listen, c->peers_listen))
        return dl_fail_context(DILOCO_EINVAL, "run.peers_listen");
    if (*c->peers_address && dl_peer_address(address, c->peers_address, true))
        return dl_fail_context(DILOCO_EINVAL, "run.peers_address");
    return DILOCO_OK;
}

/* Peers serve whole contributions from a folder. Their members exist as long as a process does. */
static diloco_status check_peers(const dl_config *c)
{
    const char *what = NULL;
    if (!c->peers) return DILOCO_OK;
    if (c->total_clients)
        what = "clients.total_clients, because no process stays to serve a client's contributions: "
               "leave it false";
    if (c->exchange != DL_EXCHANGE_ALLGATHER && c->exchange != DL_EXCHANGE_AUTO)
        what = "that server.diloco.exchange, in which members combine for others: set it to "
               "allgather";
    if (!strcmp(c->state_dir, "none"))
        what = "run.state_dir = \"none\", because other members read contributions from it: name a "
               "folder";
    if (what) return dl_fail(DILOCO_EREFUSED, "run.peers = true does not go with %s", what);
    return check_addresses(c);
}

/* The checks need no store, so wrong options fail before anything is created. Each names the
 * option, the reason and what to set. A new check of one area goes into the function of that
 * area. */
diloco_status dl_run_check(const dl_config *c)
{
    DL_TRY(check_rows(c));
    DL_TRY(dl_judge_check(c));
    if (!dl_weighting_find(c->weighting))
        return dl_fail(DILOCO_EINVAL, "there is no weighting \"%s\"", c->weighting);
    DL_TRY(check_length(c));
    DL_TRY(check_overlap(c));
    DL_TRY(check_schedule(c));
    DL_TRY(check_continuation(c));
    DL_TRY(dl_run_check_extension(c));
    DL_TRY(check_roster(c));
    DL_TRY(check_peers(c));
    if (c->offload == DL_OFFLOAD_MEMORY)
        return dl_fail(DILOCO_EREFUSED,
                       "run.offload = \"memory\" moves outer state off a device, and outer state "
                       "is in host memory with every trainer.device: leave it \"none\", or take "
                       "\"disk\"");
    DL_TRY(dl_simulation_check(c));
    if (c->heartbeat_s > c->patience_s / 3)
        return dl_fail(DILOCO_EINVAL,
                       "run.heartbeat is %g s, run.patience %g s: a live replica would be called "
                       "silent; set the heartbeat to at most a third of the patience",
                       c->heartbeat_s, c->patience_s);
    if (c->single_committer[0] && !dl_replica_name_ok(c->single_committer))
        return dl_fail(DILOCO_EINVAL, "run.single_committer = \"%s\" is no name of a replica",
                       c->single_committer);
    if (c->coord[0]) DL_TRY(dl_store_check_url(c->coord));
    if (c->min_replicas > c->replicas)
        return dl_fail(DILOCO_EINVAL,
                       "run.min_replicas is %lld, more than run.replicas (%lld): lower it",
                       (long long)c->min_replicas, (long long)c->replicas);
    DL_TRY(dl_combine_check(c));
    return c->exchange != DL_EXCHANGE_SHARDED ? DILOCO_OK : dl_topology_can_shard(c);
}

/* ---- the store ------------------------------------------------------------------------------ */

/* etcd deletes a heartbeat when its lease ends. Its replica is silent by then, since the lease is
 * at least run.patience. */
static int lease_s(const dl_config *c)
{
    return (int)fmin(fmax(60, ceil(c->patience_s)), 86400);
}

/* A coordination store in etcd gets a lease for heartbeats, unless its URL has parameters of its
 * own. */
dl_store_address dl_run_address(dl_run_coord coord, const char *store, const dl_config *c)
{
    const bool leases = !strncmp(c->coord, "etcd", 4) && !strchr(c->coord, '?');
    char lease[32] = "";
    if (leases) snprintf(lease, sizeof lease, "?lease=%d", lease_s(c));
    snprintf(coord, sizeof(dl_run_coord), "%s%s", c->coord, lease);
    return (dl_store_address){.url = store,
                              .coord = c->coord[0] ? coord : NULL,
                              .unguarded = c->single_committer[0] != '\0'};
}

enum { NAMED_MAX = 16 };
static pthread_mutex_t named_lock = PTHREAD_MUTEX_INITIALIZER;
/* a ring of servers that this program's own options named */
static char named[NAMED_MAX][DL_STORE_SERVER];
static size_t n_named;

/* Returns whether this program's own options named the server. Several runs of one process may ask
 * on different threads, hence the lock. */
static bool is_named(const char *server)
{
    bool found = false;
    pthread_mutex_lock(&named_lock);
    for (size_t i = 0; i < NAMED_MAX; i++)
        found |= !strcmp(server, named[i]);
    pthread_mutex_unlock(&named_lock);
    return found;
}

/* Records the server of run.coord as one that the operator chose. The ring keeps the newest
 * NAMED_MAX servers; an older one would only be asked about again. */
void dl_run_name_coord(const dl_config *c)
{
    char server[DL_STORE_SERVER];
    dl_store_server(server, sizeof server, c->coord);
    if (!server[0] || is_named(server)) return;
    pthread_mutex_lock(&named_lock);
    memcpy(named[n_named++ % NAMED_MAX], server, sizeof server);
    pthread_mutex_unlock(&named_lock);
}

/* Returns whether `text` is one of the items of a list that is separated by commas. */
static bool is_listed(const char *text, const char *list)
{
    const size_t len = strlen(text);
    for (; list && *list; list += strcspn(list, ",") + (list[strcspn(list, ",")] == ','))
        if (strcspn(list, ",") == len && !strncmp(list, text, len)) return true;
    return false;
}

/* The variable may list a server or a whole URL. A reader takes this decision before it opens the
 * coordination store, because opening already sends credentials. */
diloco_status dl_run_may_ask_coord(const char *store, const dl_config *c)
{
    char server[DL_STORE_SERVER], of_store[DL_STORE_SERVER];
    const char *list = getenv("DILOCO_COORDS");
    dl_store_server(server, sizeof server, c->coord);
    dl_store_server(of_store, sizeof of_store, store);
    if (!server[0] || !strcmp(server, of_store) || is_named(server)) return DILOCO_OK;
    if (is_listed(server, list) || is_listed(c->coord, list)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "the run in %s has its coordination store at %s, which would get this machine's "
                   "credentials: set DILOCO_COORDS=%s if you trust it",
                   store, server, server);
}

/* ---- creating --------------------------------------------------------------------------- */

/* Makes the identity of a new run: 128 random bits as 32 hex digits. It is in every header, so that
 * objects of two runs in one store cannot be confused. */
static diloco_status random_id(char id[33])
{
    unsigned char bytes[16];
    DL_TRY(dl_random_bytes(bytes, sizeof bytes));
    for (int i = 0; i < 16; i++)
        snprintf(id + 2 * i, 3, "%02x", bytes[i]);
    return DILOCO_OK;
}

/* Copies the registered tensors into the regions of their fragments. A bf16 or f16 tensor arrives
 * as its f32 mirror. */
static void tensors_to_state(dl_state *state, const diloco_tensor *tensors, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const dl_manifest_tensor *t = &state->manifest->tensors[i];
        dl_fragment_state *f = &state->now[t->fragment];
        void *to = t->region == DL_INTEGERS   ? (void *)(f->integers + t->offset)
                   : t->region == DL_BOOLEANS ? (void *)(f->booleans + t->offset)
                                              : (void *)(f->theta + t->offset);
        memcpy(to, tensors[i].data, t->count * dl_dtype_size(dl_dtype_stored(t->dtype)));
    }
}

/* Fills the outer vectors from the state that the new run continues, and logs advice if its H
 * differs. */
static diloco_status continue_outer(dl_state *state, const dl_config *c)
{
    dl_continue_text pace;
    if (!dl_continue_is_asked(c)) return DILOCO_OK;
    if (dl_continue_pace(pace, c)) dl_log(DILOCO_LOG_WARN, "%s", pace);
    return dl_continue_outer(state, c->init_from);
}

/* Refuses a model with a NaN or an infinity: every replica would start from it. */
static diloco_status must_be_finite(const dl_state *state)
{
    for (int f = 0; f < state->manifest->n_fragments; f++) {
        const dl_fragment_shape *s = &state->manifest->fragments[f];
        const size_t n = s->n_trained + s->n_averaged;
        const size_t bad = dl_first_bad(state->now[f].theta, n, 3e38f);
        if (bad == n) continue;
        size_t index;
        const dl_manifest_tensor *t = dl_manifest_locate(state->manifest, f, bad, &index);
        return dl_fail(DILOCO_ENUMERIC, "the first value of %s[%zu] is not finite", t->name, index);
    }
    return DILOCO_OK;
}

/* Computes what run.json records of theta0's bytes. The cryptographic hash is only needed in a run
 * with keys, where the owner signs it with run.json. */
static diloco_status hash_theta0(dl_runfile *file, const dl_span *spans, size_t n)
{
    dl_digest_stream digest;
    dl_strong_stream *strong;
    dl_digest_begin(&digest);
    for (size_t i = 0; i < n; i++)
        dl_digest_add(&digest, spans[i].data, spans[i].len);
    file->theta0_file = dl_digest_end(&digest);
    if (file->identity.policy == DL_TRUSTED) return DILOCO_OK;
    DL_TRY(dl_strong_begin(&strong));
    for (size_t i = 0; i < n; i++)
        dl_strong_add(strong, spans[i].data, spans[i].len);
    file->identity.theta0 = dl_strong_end(strong);
    return DILOCO_OK;
}

/* Uploads theta0 under the digest of its bytes. Two processes that create the same run upload the
 * same object, or two objects of which run.json names one. The image is sent from the state's own
 * memory; only the header is built. */
static diloco_status put_theta0(dl_runfile *file, dl_store *store, const dl_state *state)
{
    dl_buf header;
    const size_t cap = dl_state_image_spans(state);
    dl_span *spans = calloc(cap, sizeof *spans);
    if (!spans) return dl_fail(DILOCO_ENOMEM, "out of memory for theta0's list of tensors");
    dl_buf_init(&header, DL_RUNFILE_MAX);
    size_t n = 0;
    diloco_status status = dl_state_image(&header, spans, cap, &n, state, &file->config);
    if (!status) status = hash_theta0(file, spans, n);
    if (!status) {
        file->theta0 = dl_state_digest_all(state);
        dl_key key;
        dl_key_theta0(key, file->theta0_file);
        status = dl_store_create(store, key, spans, n, NULL, limit());
    }
    dl_buf_deinit(&header);
    free(spans);
    return status;
}

/* Makes state 0 from the caller's tensors, checks and hashes it, and uploads it. One copy of the
 * state suffices, since nothing is computed here. The memory is released before the run's own state
 * is allocated. */
static diloco_status put_first_state(dl_runfile *file, dl_store *store, const dl_run_creation *what)
{
    dl_state state;
    DL_TRY(dl_state_init(&state, &file->manifest, dl_outer_of(what->config), 1, 1, 1));
    tensors_to_state(&state, what->tensors, what->n_tensors);
    diloco_status status = continue_outer(&state, what->config);
    if (!status) status = must_be_finite(&state);
    if (!status) {
        dl_state_rehash(&state, NULL);
        status = put_theta0(file, store, &state);
    }
    dl_state_deinit(&state);
    return status;
}

static void log_probe(const char *url, const dl_probe *p)
{
    char speed[64] = "";
    if (p->write_mb_per_s > 0)
        snprintf(speed, sizeof speed, ", %.3g MB/s out, %.3g MB/s in", p->write_mb_per_s,
                 p->read_mb_per_s);
    dl_log(DILOCO_LOG_INFO, "store %s: create %.1f ms, read %.1f ms%s", url, p->create_ms,
           p->read_ms, speed);
}

/* The probe's objects are no longer than the objects of the run. A store that could let two
 * replicas decide one entry is refused (P26). */
static diloco_status must_create_once(dl_store *store, const dl_run_creation *what,
                                      const dl_manifest *manifest)
{
    dl_probe probe;
    size_t largest;
    const dl_time until = dl_time_after(dl_clock_now(), 120 * DL_SECOND);
    DL_TRY(dl_topology_max_contribution(&largest, what->config, manifest));
    const diloco_status status =
        what->probe
            ? dl_store_probe_handles(&probe, what->probe, largest, until)
            : dl_store_probe(&probe, dl_store_address_of(store), largest, what->tally, until);
    if (!status) log_probe(dl_store_url(store), &probe);
    return status;
}

/* Writes run.json. In a run with keys its owner signs the whole text, so no reader can be given
 * other options. */
static diloco_status write_runfile(dl_buf *out, const dl_runfile *file, const dl_signer *owner)
{
    const dl_statement what = dl_runfile_statement(file);
    DL_TRY(dl_runfile_write(out, file));
    return file->identity.policy == DL_TRUSTED ? DILOCO_OK : dl_sealed_sign(out, 0, owner, &what);
}

/* theta0 is uploaded first, so a run.json never names an object that does not exist. */
static diloco_status put_run(dl_runfile *file, dl_store *store, const dl_run_creation *what)
{
    dl_buf text;
    DL_TRY(put_first_state(file, store, what));
    DL_TRY(dl_run_extend(&file->config, what->data_digest)); /* its state was read meanwhile */
    dl_buf_init(&text, DL_RUNFILE_MAX);
    diloco_status status = write_runfile(&text, file, what->signer);
    const dl_span span = {text.data, text.len};
    if (!status) status = dl_store_create(store, DL_KEY_RUN, &span, 1, NULL, limit());
    dl_buf_deinit(&text);
    /* another replica created it: that one is read */
    return status == DILOCO_EEXIST ? DILOCO_OK : status;
}

/* Creates the run from this process's options. With run.single_committer the store need not create
 * a name once, so the probe is left out. With a coordination store as well, that store decides
 * names, and is probed. */
static diloco_status create(dl_store *store, const dl_run_creation *what,
                            const dl_manifest *manifest)
{
    dl_runfile file = {.manifest = *manifest}; /* borrowed: not freed here, nor is the base */
    if (what->base) file.base = *what->base;
    if (!what->config->single_committer[0] || what->config->coord[0])
        DL_TRY(must_create_once(store, what, manifest));
    DL_TRY(random_id(file.id));
    snprintf(file.program, sizeof file.program, "%s", DILOCO_VERSION);
    if (what->replica) snprintf(file.creator, sizeof file.creator, "%s", what->replica);
    snprintf(file.data_digest, sizeof file.data_digest, "%s", what->data_digest);
    file.config = *what->config;
    DL_TRY(dl_run_extend(&file.config, what->data_digest));
    DL_TRY(dl_options_digest(&file.config_digest, dl_config_table, &file.config));
    DL_TRY(dl_identity_make(&file.identity, what->config, what->signer));
    const diloco_status status = put_run(&file, store, what);
    dl_identity_deinit(&file.identity);
    return status;
}

/* Compares run.json with this process's options, tensors and name. The step at which an extension
 * begins is the run's. */
static diloco_status compare_with(const dl_runfile *file, const dl_run_creation *what,
                                  const dl_manifest *manifest)
{
    dl_config *ours = malloc(sizeof *ours);
    if (!ours) return dl_fail(DILOCO_ENOMEM, "out of memory for the settings");
    *ours = *what->config;
    dl_run_take_first_step(ours, &file->config);
    const diloco_status status = dl_runfile_matches(file, ours, manifest, what->replica);
    free(ours);
    return status;
}

/* Reads run.json and compares it with what this process would have created: options, tensors and
 * base tensors. Data that differs is an error where the log assigns the data, since a sample's
 * number must mean the same sample everywhere (P18.3). Elsewhere a warning suffices, because
 * replicas may have private data. After an error *out is empty. */
static diloco_status read_and_match(dl_runfile *out, dl_hash *digest, dl_store *store,
                                    const dl_run_creation *what, const dl_manifest *manifest)
{
    DL_TRY(dl_run_read(out, digest, store));
    diloco_status status = compare_with(out, what, manifest);
    if (status)
        status =
            dl_fail_context(status, "%s holds another run (take its values, or another run.store)",
                            dl_store_url(store));
    const dl_base none = {0};
    if (!status) {
        const dl_sides sides = dl_sides_of(out->creator, what->replica);
        status = dl_base_matches(&out->base, what->base ? what->base : &none, &sides);
        if (status) status = dl_fail_context(status, "%s", dl_store_url(store));
    }
    out->config.own = what->config->own;
    if (!status) status = check_rows(&out->config);
    if (status) {
        dl_runfile_deinit(out);
        return status;
    }
    const bool differs = what->data_digest[0] && out->data_digest[0] &&
                         strcmp(what->data_digest, out->data_digest) != 0;
    if (differs && out->config.deal == DL_DEAL_LOG) {
        status = dl_fail(DILOCO_EDIFFERS,
                         "this machine's data is not the data that the log assigns (digests %s "
                         "and %s). Give every replica the same files in the same order, or set "
                         "data.deal = \"local\"",
                         what->data_digest, out->data_digest);
        dl_runfile_deinit(out);
        return status;
    }
    if (differs)
        dl_log(DILOCO_LOG_WARN,
               "this machine's data is not the data the run began with (digests %s and %s)",
               what->data_digest, out->data_digest);
    return DILOCO_OK;
}

/* It reads first, since most processes find a run. After creating it reads back what the store has,
 * because another process may have won the race. */
diloco_status dl_run_create_or_read(dl_runfile *out, dl_hash *digest, dl_store *store,
                                    const dl_run_creation *what)
{
    dl_manifest manifest;
    const bool all = what->config->apply_to == DL_APPLY_ALL_FLOATING;
    memset(out, 0, sizeof *out);
    DL_TRY(dl_manifest_init(&manifest, what->tensors, what->n_tensors, all));

    dl_schedule schedule;
    diloco_status status = dl_schedule_of(&schedule, what->config, manifest.n_fragments);
    if (!status) status = read_and_match(out, digest, store, what, &manifest);
    if (status == DILOCO_ENOENT) {
        status = create(store, what, &manifest);
        if (!status) status = read_and_match(out, digest, store, what, &manifest);
    }
    dl_manifest_deinit(&manifest);
    return status;
}

/* ---- this machine's key ----------------------------------------------------------------- */

/* A key that is named by run.key must exist. Only the user's default key is created, so that a
 * wrong path does not make a new identity. */
diloco_status dl_run_signer(dl_signer **out, const dl_config *config)
{
    dl_config_path path;
    *out = NULL;
    if (config->key[0]) return dl_signer_open(out, config->key);
    DL_TRY(dl_signer_path(path, sizeof path));
    diloco_status status = dl_signer_open(out, path);
    if (status != DILOCO_ENOENT) return status;
    status = dl_signer_make(path);
    /* another replica on this machine created it first */
    if (status && status != DILOCO_EEXIST) return status;
    dl_log(DILOCO_LOG_INFO, "made this machine's key, %s", path);
    return dl_signer_open(out, path);
}
