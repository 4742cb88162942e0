/* run_events.c - see run_events.h. A line is built in one buffer, handed to the sink, and gathered
 * in another, which goes to the store as one object now and then. */
#include "run/run_events.h"

#include "base/clock.h"
#include "base/log.h"

#include <math.h>
#include <string.h>

/* Bytes: of one line, of gathered lines, from which a part is uploaded, and up to which lines are
 * kept while the store fails. A part that is small is uploaded once it is PART_AGE old. */
enum { LINE_MAX = 4 << 20, PART_MAX = 16 << 20, PART_ENOUGH = 256 << 10, PART_KEPT = 4 << 20 };
static const dl_time PART_AGE = 30 * DL_SECOND;

/* Called by diloco_run_open, on the thread that will own the sink until the join. A record without
 * memory only warns, since a run must not end for it. */
void dl_record_init(dl_record *record)
{
    memset(record, 0, sizeof *record);
    record->owner = pthread_self();
    pthread_mutex_init(&record->lock, NULL);
    dl_buf_init(&record->line, LINE_MAX);
    dl_buf_init(&record->line_beside, LINE_MAX);
    dl_buf_init(&record->late, PART_MAX);
    dl_buf_init(&record->delivering, PART_MAX);
    dl_buf_init(&record->part, PART_MAX);
    dl_buf_init(&record->sending, PART_MAX);
    if (dl_buf_reserve(&record->part, 2 * PART_ENOUGH) ||
        dl_buf_reserve(&record->sending, 2 * PART_ENOUGH) ||
        dl_zipper_create(&record->zipper, 2 * PART_ENOUGH)) /* now, not between steps */
        dl_log(DILOCO_LOG_WARN, "the record: %s", diloco_error_text());
    record->flushed = dl_clock_now();
}

void dl_record_deinit(dl_record *record)
{
    dl_buf_deinit(&record->line);
    dl_buf_deinit(&record->line_beside);
    dl_buf_deinit(&record->late);
    dl_buf_deinit(&record->delivering);
    dl_buf_deinit(&record->part);
    dl_buf_deinit(&record->sending);
    dl_zipper_destroy(record->zipper);
    pthread_mutex_destroy(&record->lock);
}

static bool is_owner(const dl_record *record)
{
    return pthread_equal(record->owner, pthread_self());
}

/* Appends a line and its newline. If the buffer has reached its maximum, the line is lost. */
static void add_line(dl_record *record, dl_buf *to, const char *line, size_t len)
{
    if (dl_buf_reserve(to, to->len + len + 1)) {
        if (!record->warned_full)
            dl_log(DILOCO_LOG_WARN, "lines of the record are lost: %s", diloco_error_text());
        record->warned_full = true;
        return;
    }
    memcpy(to->data + to->len, line, len);
    to->data[to->len + len] = '\n';
    to->len += len + 1;
}

/* The buffers are exchanged under the lock, and the sink is called without it. So a slow sink
 * delays no other thread, and a sink may add lines. */
void dl_record_deliver(dl_record *record)
{
    pthread_mutex_lock(&record->lock);
    const dl_buf late = record->late;
    record->late = record->delivering;
    record->delivering = late;
    pthread_mutex_unlock(&record->lock);
    if (record->delivering.len == 0) return;
    const char *line = (const char *)record->delivering.data;
    const char *end = line + record->delivering.len;
    while (line < end) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        if (record->sink) record->sink(record->user, line, (size_t)(newline - line));
        line = newline + 1;
    }
    dl_buf_clear(&record->delivering);
}

/* The order of lines in the store is that of the calls. The owner delivers the other threads' lines
 * first, which keeps the sink near that order. */
void dl_record_line(dl_record *record, const char *line, size_t len)
{
    const bool owner = is_owner(record);
    if (owner) dl_record_deliver(record);
    pthread_mutex_lock(&record->lock);
    add_line(record, &record->part, line, len);
    if (!owner) add_line(record, &record->late, line, len);
    pthread_mutex_unlock(&record->lock);
    if (owner && record->sink) record->sink(record->user, line, len);
}

/* Moves gathered lines to `sending` if there are enough. Lines that could not be sent before go
 * first. */
static bool take_part(dl_record *record, bool all)
{
    const dl_time now = dl_clock_now();
    pthread_mutex_lock(&record->lock);
    const size_t len = record->sending.len + record->part.len;
    const bool enough = all || len >= PART_ENOUGH || now - record->flushed >= PART_AGE;
    if (enough && record->sending.len == 0) {
        const dl_buf part = record->part;
        record->part = record->sending;
        record->sending = part;
        record->warned_full = false;
    }
    record->flushed = enough ? now : record->flushed;
    pthread_mutex_unlock(&record->lock);
    return enough && record->sending.len > 0;
}

/* Uploads `sending` as one compressed object. The name has the part's number, so a repeated upload
 * cannot create a second part. */
static diloco_status put_part(const dl_record *record, dl_store *store,
                              const dl_generation *generation, dl_time until)
{
    dl_key key;
    dl_span frame;
    if (!record->zipper) return dl_fail(DILOCO_ENOMEM, "not enough memory to compress it");
    dl_key_record(key, generation, record->n_parts);
    DL_TRY(dl_zip(record->zipper, &frame, record->sending.data, record->sending.len));
    return dl_store_create(store, key, &frame, 1, NULL, until);
}

/* With `all` it repeats until nothing is left. n_parts advances only once a part exists, so that
 * parts have no gaps. */
void dl_record_flush(dl_record *record, dl_store *store, const dl_generation *generation, bool all,
                     dl_time until)
{
    while (take_part(record, all)) {
        const diloco_status status = put_part(record, store, generation, until);
        /* EEXIST: an upload with an unknown outcome has created the part. */
        if (!status || status == DILOCO_EEXIST) record->n_parts++;
        if (status && record->sending.len < PART_KEPT) return;
        if (status)
            dl_log(DILOCO_LOG_WARN, "%zu bytes of the record are not in the store: %s",
                   record->sending.len, diloco_error_text());
        dl_buf_clear(&record->sending);
        if (!all) return;
    }
}

/* ---- lines ------------------------------------------------------------------------------ */

/* Each of the two threads builds its line in a buffer of its own. */
static dl_buf *own_line(dl_record *r)
{
    return is_owner(r) ? &r->line : &r->line_beside;
}

/* Begins a line with its event's name; finish adds the time and hands it over. A new event is a
 * function between these two, a declaration in run_events.h, and a row in docs/architecture.md
 * section 9. */
static dl_json begin(dl_record *r, const char *event)
{
    dl_json j;
    dl_buf_clear(own_line(r));
    dl_json_init(&j, own_line(r));
    dl_json_object(&j, NULL);
    dl_json_str(&j, "event", event);
    return j;
}

static void finish(dl_record *r, dl_json *j)
{
    dl_json_f64(j, "time", dl_clock_wall());
    dl_json_end(j);
    if (dl_json_done(j))
        dl_log(DILOCO_LOG_WARN, "a line of the record is lost: %s", diloco_error_text());
    else
        dl_record_line(r, (const char *)own_line(r)->data, own_line(r)->len);
}

static void put_generation(dl_json *j, const char *key, const dl_generation *generation)
{
    char text[DL_GENERATION_TEXT];
    dl_generation_text(text, generation);
    dl_json_str(j, key, text);
}

static void put_hash(dl_json *j, const char *key, dl_hash hash)
{
    char hex[DL_HASH_HEX + 1];
    dl_hash_to_hex(hex, hash);
    dl_json_str(j, key, hex);
}

static void put_members(dl_json *j, const char *key, const dl_entry *entry)
{
    dl_json_array(j, key);
    for (size_t i = 0; i < entry->n_members; i++)
        dl_json_str(j, NULL, entry->members[i].generation.replica);
    dl_json_end(j);
}

static bool is_member(const dl_entry *entry, const char *replica)
{
    for (size_t i = 0; i < entry->n_members; i++)
        if (!strcmp(entry->members[i].generation.replica, replica)) return true;
    return false;
}

void dl_event_put_outer(dl_json *j, const dl_config *config)
{
    dl_json_i64(j, "local_steps", config->local_steps);
    dl_json_str(j, "outer_optimizer", config->outer_optimizer);
    dl_json_f64(j, "outer_learning_rate", config->outer_lr);
    dl_json_f64(j, "outer_momentum", config->outer_mu);
}

void dl_event_run(dl_record *r, const dl_runfile *run, const dl_generation *generation,
                  uint64_t entry, dl_topology_kind topology)
{
    dl_json j = begin(r, "run");
    dl_json_str(&j, "run", run->id);
    put_hash(&j, "config_digest", run->config_digest);
    dl_json_str(&j, "preset", run->config.preset);
    dl_json_u64(&j, "params", run->manifest.n_parameters);
    dl_json_i64(&j, "fragments", run->manifest.n_fragments);
    dl_event_put_outer(&j, &run->config);
    dl_json_str(&j, "exchange", dl_topology_names[topology]);
    put_generation(&j, "life", generation);
    dl_json_u64(&j, "entry", entry);
    dl_json_str(&j, "isa", dl_isa_name(dl_isa_chosen()));
    if (*dl_store_link()) dl_json_str(&j, "link", dl_store_link());
    finish(r, &j);
}

void dl_event_contribution(dl_record *r, const dl_event_context *c, uint64_t entry,
                           const dl_own_facts *facts)
{
    dl_json j = begin(r, "contribution");
    dl_json_str(&j, "replica", c->replica);
    dl_json_u64(&j, "entry", entry);
    dl_json_u64(&j, "fragment", facts->fragment);
    dl_json_u64(&j, "step", facts->stats.step);
    dl_json_u64(&j, "position", facts->stats.position);
    dl_json_f64(&j, "pseudo_grad_norm", facts->norm);
    dl_json_u64(&j, "bytes", facts->bytes);
    dl_json_f64(&j, "encode_s", facts->encode_s);
    dl_json_f64(&j, "put_s", facts->put_s);
    dl_json_str(&j, "codec", c->codec);
    finish(r, &j);
}

/* Written for each applied commit by every replica. `missing` are replicas that the entry waited
 * for and did not count. Norms are NaN, written as null, where this replica did not read the
 * members. Facts about the run come from the entry, and facts about this machine from the
 * context. */
void dl_event_commit(dl_record *r, const dl_event_context *c, const dl_entry *entry,
                     const dl_roster *roster, const dl_exec_facts *facts, bool counted)
{
    dl_json j = begin(r, "commit");
    dl_json_str(&j, "replica", c->replica);
    dl_json_u64(&j, "entry", entry->entry);
    dl_json_u64(&j, "fragment", entry->fragment);
    put_members(&j, "members", entry);
    dl_json_array(&j, "missing");
    for (size_t i = 0; i < roster->n; i++)
        if (!is_member(entry, roster->names[i])) dl_json_str(&j, NULL, roster->names[i]);
    dl_json_end(&j);
    dl_json_array(&j, "weights");
    for (size_t i = 0; i < entry->n_members; i++)
        dl_json_f64(&j, NULL, (double)entry->members[i].weight);
    dl_json_end(&j);
    dl_json_array(&j, "norms");
    for (size_t i = 0; i < entry->n_members; i++)
        dl_json_f64(&j, NULL, c->norms ? c->norms[i] : NAN);
    dl_json_end(&j);
    dl_json_bool(&j, "counted", counted);
    dl_json_f64(&j, "inner_loss", entry->loss);
    dl_json_f64(&j, "outer_lr", (double)c->lr);
    dl_json_str(&j, "combiner", facts->outer.combiner);
    dl_json_bool(&j, "combiner_fallback", facts->outer.fell_back);
    dl_json_u64(&j, "tolerated", facts->outer.tolerated);
    dl_json_f64(&j, "aggregated_grad_norm", facts->outer.aggregated_norm);
    dl_json_f64(&j, "peer_grad_similarity", facts->outer.similarity);
    dl_json_f64(&j, "weight_divergence", facts->outer.divergence);
    dl_json_f64(&j, "own_similarity", facts->outer.own_cosine);
    dl_json_u64(&j, "bytes_sent", c->bytes_sent);
    dl_json_u64(&j, "bytes_received", c->bytes_received);
    dl_json_u64(&j, "requests_read", c->requests_read);
    dl_json_u64(&j, "requests_write", c->requests_write);
    if (c->peers) dl_json_u64(&j, "from_peers", c->from_peers);
    if (c->peers) dl_json_u64(&j, "from_store", c->from_store);
    if (entry->simulated_s > 0) dl_json_f64(&j, "simulated_s", entry->simulated_s);
    dl_json_f64(&j, "wait_s", c->wait_s);
    dl_json_f64(&j, "exchange_s", c->exchange_s);
    dl_json_f64(&j, "outer_s", facts->compute_s);
    dl_json_f64(&j, "deadline_s", c->deadline_s);
    dl_json_f64(&j, "up_bps", c->speed.up_bps);
    dl_json_f64(&j, "down_bps", c->speed.down_bps);
    dl_json_f64(&j, "request_s", c->speed.request_s);
    put_generation(&j, "committer", &entry->committer);
    if (entry->combined.there) put_generation(&j, "combined_by", &entry->combined.generation);
    put_hash(&j, "digest", entry->result);
    finish(r, &j);
}

void dl_event_adopt(dl_record *r, const char *replica, const dl_adopt_facts *facts)
{
    dl_json j = begin(r, "adopt");
    dl_json_str(&j, "replica", replica);
    dl_json_u64(&j, "entry", facts->entry);
    dl_json_u64(&j, "fragment", facts->fragment);
    dl_json_u64(&j, "taken_at", facts->taken_at);
    dl_json_u64(&j, "position", facts->position);
    dl_json_str(&j, "takes", facts->takes);
    dl_json_f64(&j, "wait_s", facts->wait_s);
    dl_json_u64(&j, "overlap_steps", facts->overlap);
    dl_json_u64(&j, "overlap_proposed", facts->proposed);
    finish(r, &j);
}

void dl_event_abort(dl_record *r, const dl_event_context *c, const dl_entry *entry)
{
    dl_json j = begin(r, "abort");
    dl_json_str(&j, "replica", c->replica);
    dl_json_u64(&j, "entry", entry->entry);
    dl_json_u64(&j, "fragment", entry->fragment);
    dl_json_str(&j, "reason", entry->abort.reason);
    put_members(&j, "present", entry);
    finish(r, &j);
}

void dl_event_dispute(dl_record *r, const dl_event_context *c, uint64_t entry, dl_hash claimed,
                      dl_hash computed, const dl_generation *committer, const char *what)
{
    dl_json j = begin(r, "dispute");
    dl_json_str(&j, "replica", c->replica);
    dl_json_u64(&j, "entry", entry);
    dl_json_str(&j, "of", what);
    put_hash(&j, "claimed", claimed);
    put_hash(&j, "computed", computed);
    put_generation(&j, "committer", committer);
    finish(r, &j);
}

/* Writes an event about another replica's contribution, as this replica sees it. */
static void seen_of(dl_record *r, const dl_event_context *c, const char *event, uint64_t entry,
                    const dl_generation *generation, const char *reason)
{
    dl_json j = begin(r, event);
    dl_json_u64(&j, "entry", entry);
    put_generation(&j, "replica", generation);
    dl_json_str(&j, "reason", reason);
    dl_json_str(&j, "by", c->replica);
    finish(r, &j);
}

void dl_event_reject(dl_record *r, const dl_event_context *c, uint64_t entry,
                     const dl_generation *generation, const char *reason)
{
    seen_of(r, c, "reject", entry, generation, reason);
}

void dl_event_peer(dl_record *r, const dl_event_context *c, uint64_t entry,
                   const dl_generation *generation, const char *reason)
{
    seen_of(r, c, "peer", entry, generation, reason);
}

void dl_event_probe(dl_record *r, const dl_event_context *c, const dl_entry *entry,
                    const double *probed)
{
    dl_json j = begin(r, "probe");
    dl_json_str(&j, "replica", c->replica);
    dl_json_u64(&j, "entry", entry->entry);
    dl_json_f64(&j, "loss", probed[0]);
    put_members(&j, "members", entry);
    dl_json_array(&j, "losses");
    for (size_t i = 0; i < entry->n_members; i++)
        dl_json_f64(&j, NULL, probed[1 + i]);
    dl_json_end(&j);
    finish(r, &j);
}

/* Unlike dl_event_reject it reports the committed verdict, with the committer as its author. */
void dl_event_judged(dl_record *r, const dl_entry *entry, const dl_generation *generation,
                     const char *reason)
{
    dl_json j = begin(r, "reject");
    dl_json_u64(&j, "entry", entry->entry);
    put_generation(&j, "replica", generation);
    dl_json_str(&j, "reason", reason);
    put_generation(&j, "by", &entry->committer);
    dl_json_bool(&j, "committed", true);
    finish(r, &j);
}

void dl_event_warn(dl_record *r, const dl_event_context *c, const char *code, const char *text)
{
    dl_log(DILOCO_LOG_WARN, "%s", text);
    dl_json j = begin(r, "warn");
    dl_json_str(&j, "replica", c->replica);
    dl_json_str(&j, "code", code);
    dl_json_str(&j, "text", text);
    finish(r, &j);
}

static void put_kinds(dl_json *j, const char *key, const uint64_t bytes[DL_N_TRAFFIC])
{
    dl_json_object(j, key);
    for (int i = 0; i < DL_N_TRAFFIC; i++)
        dl_json_u64(j, dl_traffic_names[i], bytes[i]);
    dl_json_end(j);
}

static uint64_t sum_of(const uint64_t bytes[DL_N_TRAFFIC])
{
    uint64_t sum = 0;
    for (int i = 0; i < DL_N_TRAFFIC; i++)
        sum += bytes[i];
    return sum;
}

void dl_event_traffic(dl_record *r, const char *replica, const uint64_t sent[DL_N_TRAFFIC],
                      const uint64_t received[DL_N_TRAFFIC])
{
    dl_json j = begin(r, "traffic");
    dl_json_str(&j, "replica", replica);
    dl_json_u64(&j, "bytes_sent", sum_of(sent));
    dl_json_u64(&j, "bytes_received", sum_of(received));
    put_kinds(&j, "sent", sent);
    put_kinds(&j, "received", received);
    finish(r, &j);
}

/* data_parallel_bytes is the traffic of a per-step all-reduce in float32, one way. reduction
 * compares it with what this generation has sent, and so uses the steps of this generation
 * alone. */
void dl_event_end(dl_record *r, const dl_event_context *c, const dl_end_facts *f)
{
    const double per_step = 4.0 * (double)f->n_floats,
                 here = per_step * (double)f->generation_steps;
    dl_json j = begin(r, "end");
    dl_json_str(&j, "replica", c->replica);
    dl_json_u64(&j, "entry", f->entry);
    dl_json_u64(&j, "steps", f->steps);
    dl_json_u64(&j, "tokens", f->tokens);
    dl_json_u64(&j, "bytes_sent", f->bytes_sent);
    dl_json_u64(&j, "bytes_received", f->bytes_received);
    dl_json_u64(&j, "background_bytes_sent", f->background_sent);
    dl_json_u64(&j, "background_bytes_received", f->background_received);
    dl_json_u64(&j, "heartbeats", f->heartbeats);
    dl_json_f64(&j, "heartbeat_s_max", f->heartbeat_s_max);
    dl_json_f64(&j, "data_parallel_bytes", per_step * (double)f->steps);
    dl_json_f64(&j, "reduction", f->bytes_sent ? here / (double)f->bytes_sent : NAN);
    dl_json_f64(&j, "utilization", f->utilization);
    if (f->throughput_ratio > 0) dl_json_f64(&j, "throughput_ratio", f->throughput_ratio);
    put_hash(&j, "digest", f->digest);
    finish(r, &j);
}
