/* peers.c - see peers.h.
 *
 * Each member has a row: its key, and the line to its newest generation. A thread that reads over a
 * line has marked the row busy, and needs no lock for it. A thread that finds it busy reads from
 * the store. `lock` guards everything else in the rows, and the counts.
 *
 *     not known  --heartbeat has an address-->  line  --error-->  paused  --time-->  line
 *
 * 1. A contribution is served after the same bytes were created in the store (dl_peers_show follows
 *    the create). So a reader that saw it in a listing reads the stored bytes here.
 * 2. A reader asks only for what it has seen in the store or in an entry.
 * 3. Bytes from a peer never reject a contribution; only the store's bytes can. */
#include "exchange/peers.h"

#include "base/log.h"
#include "base/size.h"
#include "base/thread.h"
#include "log/signed_beat.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* BEAT_MAX: bytes of a heartbeat. PAUSES: the longest pause of a line, in units of run.patience.
 * SLOWER: how many times slower than the link an owner may send. LOOKS: attempts for an object that
 * its owner does not show yet. */
enum { BEAT_MAX = 4096, PAUSES = 16, SLOWER = 4, LOOKS = 4 };

static const dl_time WELCOME_WAIT = DL_SECOND / 2, BEAT_LIMIT = 5 * DL_SECOND;
static const dl_time STALL_LEAST = DL_SECOND, STALL_MOST = 10 * DL_SECOND;
static const dl_time LOOK_AGAIN = 2 * DL_MILLISECOND; /* times 4 before each further attempt */
static const double UNMEASURED_BPS = 8e6;             /* until the link was measured */

typedef struct row {
    char replica[DL_REPLICA_MAX + 1];
    uint32_t generation; /* of the line */
    bool has_key, busy;
    dl_public key;
    dl_store *line; /* NULL: its address is not known */
    uint64_t entry; /* of its heartbeat, when that was read */
    dl_time ask_at; /* not earlier */
    dl_time pause;  /* the last one; 0: it answered since */
    uint64_t used;  /* when it was last used, in dl_peers.n_looks */
} row;

struct dl_peers {
    dl_peers_args a;
    dl_peers_service service;
    const dl_peers_kind *kind;
    void *server;
    dl_signer *own; /* NULL: the run's signer */
    char address[DL_ADDRESS_MAX + 1];
    dl_key shown[DL_PEERS_KEPT]; /* a ring */
    size_t n_shown;

    pthread_mutex_t lock;
    pthread_cond_t known; /* signalled when a key is added */
    bool stopping;
    row *rows; /* [n_rows of max_members] */
    size_t n_rows;
    uint64_t n_looks;
    dl_peers_counts counts; /* of closed lines, and everything else */
};

static _Atomic(const dl_peers_kind *) program;

void dl_peers_use(const dl_peers_kind *kind)
{
    atomic_store(&program, kind);
}

/* ---- the folder ------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type;
    return at->level > 0 && remove(path) ? -1 : 0;
}

/* Files of an earlier process are removed: this process shows only what it has uploaded itself.
 * Symbolic links are not followed. */
static diloco_status empty_folder(const dl_peers *p)
{
    dl_config_path run;
    const int len = snprintf(run, sizeof run, "%s/run", p->a.dir);
    if (len < 0 || (size_t)len + sizeof(dl_key) >= sizeof run)
        return dl_fail(DILOCO_EINVAL, "run.state_dir is too long for run.peers");
    DL_TRY(dl_dir_make(p->a.dir));
    if (nftw(p->a.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS))
        return dl_fail_errno(errno, "empty", p->a.dir);
    return dl_dir_make(run);
}

static void path_of(dl_config_path out, const dl_peers *p, const char *key)
{
    snprintf(out, sizeof(dl_config_path), "%s/run/%s", p->a.dir, key);
}

/* Removes a file, and the folder of its entry if that is empty. */
static void remove_shown(const dl_peers *p, const char *key)
{
    dl_config_path path;
    path_of(path, p, key);
    (void)!remove(path);
    *strrchr(path, '/') = '\0';
    (void)!rmdir(path);
}

/* The path of a contribution that is not shown yet. Each entry has one, since several may be in
 * flight. */
static void made_of(dl_config_path out, const dl_peers *p, uint64_t entry)
{
    snprintf(out, sizeof(dl_config_path), "%s/made.%" PRIu64, p->a.dir, entry);
}

/* The file is not synced: the store has the bytes, and after a crash a new process keeps none. A
 * failure is no error, since the store has the contribution; then it is not served. */
void dl_peers_keep(dl_peers *p, uint64_t entry, const dl_span *spans, size_t n)
{
    dl_config_path made;
    made_of(made, p, entry);
    const int fd = open(made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    diloco_status status =
        fd < 0 ? dl_fail_errno(errno, "create", made) : dl_fd_write(fd, spans, n, made);
    if (fd >= 0) close(fd);
    if (!status) return;
    (void)!remove(made);
    dl_log(DILOCO_LOG_WARN, "others read this contribution from the store: %s",
           diloco_error_text());
}

/* A contribution that could not be kept is not shown. The rename makes it visible whole. The folder
 * keeps the newest DL_PEERS_KEPT contributions. */
void dl_peers_show(dl_peers *p, uint64_t entry, const dl_generation *generation)
{
    dl_key key;
    dl_config_path path, folder, made;
    char *oldest = p->shown[p->n_shown % DL_PEERS_KEPT];
    made_of(made, p, entry);
    if (access(made, F_OK)) return;
    dl_key_contribution(key, entry, generation);
    path_of(path, p, key);
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    diloco_status status = dl_dir_make(folder);
    if (!status && rename(made, path)) status = dl_fail_errno(errno, "rename", made);
    if (status) {
        dl_log(DILOCO_LOG_WARN, "others read this contribution from the store: %s",
               diloco_error_text());
        return;
    }
    if (p->n_shown >= DL_PEERS_KEPT && strcmp(oldest, key) != 0) remove_shown(p, oldest);
    memcpy(oldest, key, sizeof key);
    p->n_shown++;
}

/* ---- rows; call with the lock held ------------------------------------------------------- */

static void close_line(dl_peers *p, row *r)
{
    if (!r->line) return;
    const dl_store_counters c = dl_store_counts(r->line);
    p->counts.sent += c.bytes_sent;
    p->counts.received += c.bytes_received;
    dl_store_close(r->line);
    r->line = NULL;
}

/* Members leave and others join. A new one takes the row that was unused for longest. A row that is
 * busy belongs to a reading thread, and is left. */
static row *free_row(dl_peers *p)
{
    row *oldest = NULL;
    if (p->n_rows < p->a.max_members) return &p->rows[p->n_rows++];
    for (size_t i = 0; i < p->n_rows; i++) {
        row *r = &p->rows[i];
        if (!r->busy && (!oldest || r->used < oldest->used)) oldest = r;
    }
    if (!oldest) return NULL;
    close_line(p, oldest);
    *oldest = (row){.line = NULL};
    return oldest;
}

/* Returns NULL if all rows are busy with other members. */
static row *row_of(dl_peers *p, const char *replica)
{
    row *r = NULL;
    for (size_t i = 0; i < p->n_rows && !r; i++)
        if (!strcmp(p->rows[i].replica, replica)) r = &p->rows[i];
    if (!r) r = free_row(p);
    if (!r) return NULL;
    snprintf(r->replica, sizeof r->replica, "%s", replica);
    r->used = ++p->n_looks;
    return r;
}

static void set_key(dl_peers *p, row *r, const dl_public *key)
{
    r->key = *key;
    r->has_key = true;
    pthread_cond_broadcast(&p->known);
}

void dl_peers_know(dl_peers *p, const char *replica, const dl_public *key)
{
    pthread_mutex_lock(&p->lock);
    row *r = row_of(p, replica);
    if (r && !(r->has_key && dl_public_equal(&r->key, key))) set_key(p, r, key);
    pthread_mutex_unlock(&p->lock);
}

static bool is_known(const dl_peers *p, const dl_public *key)
{
    for (size_t i = 0; i < p->n_rows; i++)
        if (p->rows[i].has_key && dl_public_equal(&p->rows[i].key, key)) return true;
    return false;
}

/* A member that reads our contribution has uploaded its own, or soon will; then we learn its key.
 * So wait a little for an unknown key. The server's threads call it with a client's key. Returns
 * true if the key is a member's. */
static bool welcome(void *user, const dl_public *key)
{
    dl_peers *p = user;
    const dl_time until = dl_time_after(dl_clock_now(), WELCOME_WAIT);
    const struct timespec t = {until / DL_SECOND, until % DL_SECOND};
    pthread_mutex_lock(&p->lock);
    int late = 0;
    while (!is_known(p, key) && !p->stopping && !late)
        late = pthread_cond_timedwait(&p->known, &p->lock, &t);
    const bool is = is_known(p, key);
    pthread_mutex_unlock(&p->lock);
    return is;
}

/* Returns the row of the owner, marked busy, or NULL if it cannot be asked now. NULL if the reader
 * must use the store, the owner's line is busy or paused, or the owner has dropped the entry by
 * now. */
static row *begin_asking(dl_peers *p, const dl_peers_want *w)
{
    row *found = NULL;
    if (!p->a.reads || w->store_only || !strcmp(w->generation.replica, p->a.replica)) return NULL;
    pthread_mutex_lock(&p->lock);
    row *r = row_of(p, w->generation.replica);
    if (r && !r->busy && w->generation.number > r->generation) { /* the old line is useless */
        close_line(p, r);
        r->generation = w->generation.number;
        r->ask_at = r->pause = 0;
    }
    if (r && !r->busy && w->generation.number == r->generation && dl_clock_now() >= r->ask_at &&
        !(r->line && r->entry > w->entry + DL_PEERS_KEPT))
        found = r;
    if (found) found->busy = true;
    pthread_mutex_unlock(&p->lock);
    return found;
}

/* ---- requests; without the lock, the row is busy ----------------------------------------- */

/* Returns the time in which a line may be silent: a twelfth of run.patience, within bounds. */
static dl_time stall_of(const dl_peers *p)
{
    const dl_time t = dl_time_from_seconds(p->a.config->patience_s / 12);
    return t < STALL_LEAST ? STALL_LEAST : t > STALL_MOST ? STALL_MOST : t;
}

/* Returns when a contribution should have arrived. Half of the remaining time is kept for the
 * store, which is asked next. */
static dl_time limit_of(const dl_peers *p, const dl_peers_want *w)
{
    const dl_contribution_expect *e = w->expect;
    const double bytes = (double)dl_contribution_body_max(e->form, e->shape, e->packer != NULL);
    const double bps = w->down_bps > 0 ? w->down_bps : UNMEASURED_BPS;
    const dl_time limit = stall_of(p) + dl_time_from_seconds(SLOWER * 8 * bytes / bps);
    const dl_time now = dl_clock_now(), half = (w->until - now) / 2;
    return dl_time_after(now, limit < half ? limit : half);
}

typedef struct beat {
    char address[DL_ADDRESS_MAX + 1];
    dl_public key;
    uint64_t entry;
} beat;

/* Returns false if no address can be taken from it. A heartbeat is untrusted: the address has to be
 * an https:// address that this member may call, with a valid key. */
static bool parse_beat(beat *out, dl_json_value json)
{
    char key[DL_PUBLIC_TEXT], address[DL_ADDRESS_MAX + 1];
    return !dl_json_read_str(address, sizeof address, json, "address") &&
           !dl_json_read_str(key, sizeof key, json, "peer_key") &&
           !dl_json_read_u64(&out->entry, json, "entry", UINT64_MAX) &&
           dl_public_parse(&out->key, key, strlen(key)) &&
           !dl_peer_address(out->address, address, true) &&
           strncmp(out->address, "https://", 8) == 0;
}

/* In a run with keys its replica's key has signed it. */
static bool is_beat(dl_json_value *json, const dl_buf *text, const dl_peers_want *w)
{
    const dl_contribution_expect *e = w->expect;
    if (!e->key) return !dl_json_parse(json, text->data, text->len);
    return dl_heartbeat_read(json, text, &dl_heartbeat_alive, e->key, e->run, &w->generation);
}

/* Reads the owner's heartbeat from the store, at most BEAT_MAX bytes. Returns DILOCO_ENOENT if it
 * has no address, or the store's error. A missing or forged one is UNREACHABLE and not ENOENT,
 * since the owner may write another. */
static diloco_status read_beat(beat *out, const dl_peers_want *w)
{
    dl_key key;
    dl_buf text;
    dl_json_value json;
    dl_time until = dl_time_after(dl_clock_now(), BEAT_LIMIT);
    dl_key_heartbeat(key, &w->generation);
    dl_buf_init(&text, BEAT_MAX);
    diloco_status status = dl_store_get(w->store, &text, key, until < w->until ? until : w->until);
    if (status == DILOCO_ENOENT || (!status && !is_beat(&json, &text, w)))
        status = dl_fail(DILOCO_EUNREACHABLE, "no heartbeat yet");
    if (!status && !parse_beat(out, json))
        status = dl_fail(DILOCO_ENOENT, "its heartbeat has no address");
    dl_buf_deinit(&text);
    return status;
}

/* Opens the line to a member. Returns false if it has no address, or none yet. Among trusted
 * members its heartbeat names its key; a key that the run knows takes precedence. The key pins the
 * connection, so a server with another key is refused. */
static bool open_line(dl_peers *p, row *r, const dl_peers_want *w)
{
    beat b;
    dl_store *line = NULL;
    const dl_public *key = w->expect->key ? w->expect->key : &b.key;
    diloco_status status = read_beat(&b, w);
    const bool never = status == DILOCO_ENOENT; /* a process never changes its address */
    if (!status) status = p->kind->open(p->server, &line, b.address, key, stall_of(p));
    pthread_mutex_lock(&p->lock);
    r->line = line;
    if (!status) r->entry = b.entry;
    if (!status) set_key(p, r, key);
    if (status)
        r->ask_at =
            never ? DL_NEVER
                  : dl_time_after(dl_clock_now(), dl_time_from_seconds(p->a.config->heartbeat_s));
    pthread_mutex_unlock(&p->lock);
    return line != NULL;
}

static const char *why_not(diloco_status status, const char *reason)
{
    switch (status) {
    case DILOCO_ENOENT:
        return "absent";
    case DILOCO_ETIMEDOUT:
        return "stalled";
    case DILOCO_EUNREACHABLE:
        return "unreachable";
    case DILOCO_EREFUSED:
        return "refused";
    default:
        return *reason ? reason : "damaged";
    }
}

/* After `absent` it may be asked again at once. A member that refuses us may not know our key yet,
 * so its first pause is one heartbeat. A pause is at least as long as the request took, or a slow
 * member would cost that each time. */
static void pause_line(const dl_peers *p, row *r, diloco_status status, dl_time took)
{
    const dl_time patience = dl_time_from_seconds(p->a.config->patience_s);
    const dl_time most = patience < DL_NEVER / PAUSES ? PAUSES * patience : DL_NEVER;
    if (status == DILOCO_ENOENT) return;
    if (r->pause)
        r->pause = r->pause < most / 2 ? 2 * r->pause : most;
    else
        r->pause =
            status == DILOCO_EREFUSED ? dl_time_from_seconds(p->a.config->heartbeat_s) : patience;
    if (r->pause < took) r->pause = took;
    r->ask_at = dl_time_after(dl_clock_now(), r->pause);
}

/* Called without the lock while the row is busy. A success forgets the pause. */
static void end_asking(dl_peers *p, row *r, const dl_peers_want *w, diloco_status status,
                       const char *why, dl_time took)
{
    if (status)
        dl_log(DILOCO_LOG_DEBUG, "entry %llu: %s's contribution comes from the store (%s): %s",
               (unsigned long long)w->entry, w->generation.replica, why, diloco_error_text());
    pthread_mutex_lock(&p->lock);
    if (status)
        pause_line(p, r, status, took);
    else
        r->pause = 0;
    pthread_mutex_unlock(&p->lock);
}

static uint64_t bytes_of(const dl_contribution *c)
{
    const uint64_t head = DL_CONTRIBUTION_HEADER + (c->is_signed ? DL_CONTRIBUTION_PROOF : 0);
    return head + c->payload_len + c->n_integers * sizeof(int64_t) + c->n_booleans;
}

/* A contribution may appear in a listing a moment before its owner's create returns and the owner
 * shows it. */
static diloco_status ask(dl_peers *p, const row *r, dl_contribution *facts,
                         dl_contribution_data *data, const char **reason, const dl_peers_want *w,
                         const char *key)
{
    const dl_time until = limit_of(p, w);
    dl_time pause = LOOK_AGAIN;
    diloco_status status = DILOCO_ENOENT;
    for (int i = 0; status == DILOCO_ENOENT && i < LOOKS; i++, pause *= 4) {
        if (i) dl_clock_sleep(pause);
        status =
            dl_contribution_fetch(facts, data, reason, w->slot, r->line, key, w->expect, until);
    }
    return status;
}

/* Returns true if the contribution was read. *why is NULL if the owner was not asked, so that the
 * record names only real failures. */
static bool read_from_owner(dl_peers *p, dl_contribution *facts, dl_contribution_data *data,
                            const char **why, const dl_peers_want *w, const char *key)
{
    const char *reason = "";
    row *r = begin_asking(p, w);
    *why = NULL;
    if (!r) return false;
    const bool asked = r->line || open_line(p, r, w);
    diloco_status status = DILOCO_ENOENT;
    if (asked) {
        const dl_time began = dl_clock_now();
        status = ask(p, r, facts, data, &reason, w, key);
        if (status) *why = why_not(status, reason);
        end_asking(p, r, w, status, *why, dl_clock_now() - began);
    }
    pthread_mutex_lock(&p->lock);
    r->busy = false;
    p->counts.from_peers += status ? 0 : bytes_of(facts);
    p->counts.fell_back += asked && status;
    pthread_mutex_unlock(&p->lock);
    return !status;
}

/* Whatever happens with the owner, the store decides: bytes from a peer never reject a contribution
 * (P8.7). */
diloco_status dl_peers_read(dl_peers *p, dl_contribution *facts, dl_contribution_data *data,
                            const char **reason, const char **why, const dl_peers_want *w)
{
    dl_key key;
    dl_key_contribution(key, w->entry, &w->generation);
    *reason = "";
    if (read_from_owner(p, facts, data, why, w, key)) return DILOCO_OK;
    DL_TRY(dl_contribution_fetch(facts, data, reason, w->slot, w->store, key, w->expect, w->until));
    pthread_mutex_lock(&p->lock);
    p->counts.from_store += bytes_of(facts);
    pthread_mutex_unlock(&p->lock);
    return DILOCO_OK;
}

/* ---- the heartbeat's members ------------------------------------------------------------- */

/* The counters of a busy line belong to the thread that reads. They are counted once the line is
 * free. */
dl_peers_counts dl_peers_count(dl_peers *p)
{
    pthread_mutex_lock(&p->lock);
    dl_peers_counts all = p->counts;
    for (size_t i = 0; i < p->n_rows; i++) {
        if (!p->rows[i].line || p->rows[i].busy) continue;
        const dl_store_counters c = dl_store_counts(p->rows[i].line);
        all.sent += c.bytes_sent;
        all.received += c.bytes_received;
    }
    pthread_mutex_unlock(&p->lock);
    all.sent += p->kind->served(p->server);
    return all;
}

static const dl_signer *signer_of(const dl_peers *p)
{
    return p->own ? p->own : p->a.signer;
}

/* Adds this member's address, key and counts to its heartbeat. The text is public: it has no
 * secrets. */
void dl_peers_report(dl_peers *p, dl_json *j)
{
    char key[DL_PUBLIC_TEXT];
    dl_public_text(key, dl_signer_public(signer_of(p)));
    pthread_mutex_lock(&p->lock);
    const dl_peers_counts c = p->counts;
    pthread_mutex_unlock(&p->lock);
    dl_json_str(j, "address", p->address);
    dl_json_str(j, "peer_key", key);
    dl_json_u64(j, "from_peers", c.from_peers);
    dl_json_u64(j, "from_store", c.from_store);
}

/* ---- create and destroy ------------------------------------------------------------------ */

static void init_lock(dl_peers *p)
{
    pthread_mutex_init(&p->lock, NULL);
    dl_cond_init(&p->known);
}

/* A run without keys gets a key for this process alone, which its heartbeat names. The server
 * starts last, when the folder is empty. */
static diloco_status start(dl_peers *p)
{
    p->rows = calloc(p->a.max_members, sizeof *p->rows);
    if (!p->rows) return dl_fail(DILOCO_ENOMEM, "out of memory for peers");
    DL_TRY(empty_folder(p));
    if (!p->a.signer) DL_TRY(dl_signer_generate(&p->own));
    p->service = (dl_peers_service){.config = p->a.config,
                                    .dir = p->a.dir,
                                    .signer = signer_of(p),
                                    .welcome = welcome,
                                    .user = p};
    DL_TRY(p->kind->serve(&p->server, p->address, &p->service));
    dl_log(DILOCO_LOG_INFO, "members read from here at %s", p->address);
    return DILOCO_OK;
}

diloco_status dl_peers_create(dl_peers **out, const dl_peers_args *args)
{
    const dl_peers_kind *kind = atomic_load(&program);
    *out = NULL;
    if (!kind)
        return dl_fail(DILOCO_EREFUSED,
                       "run.peers = true serves other members, and this program has no server: "
                       "leave it false, or use the diloco program (built with DILOCO_CLOUD)");
    dl_peers *p = calloc(1, sizeof *p);
    if (!p) return dl_fail(DILOCO_ENOMEM, "out of memory for peers");
    p->a = *args;
    p->kind = kind;
    init_lock(p);
    const diloco_status status = start(p);
    if (status) {
        dl_peers_destroy(p);
        return status;
    }
    *out = p;
    return DILOCO_OK;
}

/* Threads in `welcome` are woken before the server stops, since stopping waits for them. */
void dl_peers_destroy(dl_peers *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->known);
    pthread_mutex_unlock(&p->lock);
    if (p->server) p->kind->stop(p->server);
    for (size_t i = 0; i < p->n_rows; i++)
        dl_store_close(p->rows[i].line);
    (void)!nftw(p->a.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    (void)!rmdir(p->a.dir);
    dl_signer_close(p->own);
    pthread_cond_destroy(&p->known);
    pthread_mutex_destroy(&p->lock);
    free(p->rows);
    free(p);
}
