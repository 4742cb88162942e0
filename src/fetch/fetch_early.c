/* fetch_early.c - see fetch_early.h. The files of a shard are arriving/NAME and blocks/NAME of its
 * origin's folder (origin.h) until all blocks are there; then the first becomes files/NAME. Only a
 * holder of the origin's lock makes, moves or removes them. */
#include "fetch/fetch_early.h"

#include "base/log.h"
#include "data/arrivals.h"
#include "data/corpus.h"
#include "data/tokenizer.h"
#include "fetch/fetch_pool.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes at both ends of a file that its digest is made of (dl_map_digest); connections. */
enum { EDGE = 1 << 20, THREADS = 8 };
/* Bytes of the largest token shard (data/tokens.c). */
#define LARGEST (1024 + 4 * (size_t)INT32_MAX)

bool dl_early_is_possible(const dl_config *config)
{
    return dl_source_is_shards(config->datasource) &&
           (config->vocab > 0 || dl_tokenizer_has_file(config->tokenizer));
}

/* ---- where a pool reads from; its context is the origin */

static diloco_status open_origin(void *context, void **handle)
{
    dl_data_origin *o = *handle = malloc(sizeof *o);
    if (!o) return dl_fail(DILOCO_ENOMEM, "out of memory for a connection");
    *o = *(const dl_data_origin *)context;
    o->store = NULL;
    o->web = NULL;
    const diloco_status status = dl_origin_connect(o);
    if (status) free(o);
    return status;
}

static diloco_status read_origin(void *handle, const char *key, dl_store_part *part, dl_sink sink)
{
    dl_data_origin *o = handle;
    const diloco_status status = dl_origin_read_part(o, key, part, sink);
    return status ? dl_fail_context(status, "fetch %s/%s into %s", o->label, key, o->folder)
                  : DILOCO_OK;
}

static void abort_origin(void *handle)
{
    dl_origin_abort(handle);
}

static void close_origin(void *handle)
{
    dl_origin_disconnect(handle);
    free(handle);
}

static void remove_files(const dl_data_origin *o, const char *key)
{
    char path[DL_ORIGIN_PATH];
    dl_origin_path(path, o, "blocks", key);
    unlink(path);
    dl_origin_path(path, o, "arriving", key);
    unlink(path);
}

/* Moves a file whose blocks are all there into `files`. A damaged one is removed. */
static diloco_status finish(const dl_data_origin *o, const char *key, dl_arriving *a)
{
    char path[DL_ORIGIN_PATH];
    dl_hash digest;
    diloco_status status = dl_arriving_finish(&digest, a);
    dl_origin_path(path, o, "arriving", key);
    if (!status) status = dl_origin_keep(o, key, path, digest, dl_arriving_map(a)->len);
    if (status == DILOCO_EPROTO) dl_arriving_spoil(a);
    if (!status || status == DILOCO_EPROTO) remove_files(o, key);
    return status;
}

/* If another process holds the lock, or has replaced the file, the next one that fetches finishes
 * it. */
static diloco_status finish_arrived(void *context, const char *key, dl_arriving *a)
{
    const dl_data_origin *o = context;
    char path[DL_ORIGIN_PATH];
    const int lock = dl_origin_try_lock(o);
    if (lock < 0) return DILOCO_OK;
    dl_origin_path(path, o, "arriving", key);
    const diloco_status status = dl_arriving_is_at(a, path) ? finish(o, key, a) : DILOCO_OK;
    close(lock);
    return status;
}

static dl_fetch_from from_origin(dl_data_origin *o)
{
    return (dl_fetch_from){.context = o,
                           .open = open_origin,
                           .read = read_origin,
                           .abort = abort_origin,
                           .close = close_origin};
}

/* ---- making an object ready */

struct dl_early {
    dl_data_origin *origin;
    dl_fetch_pool *pool;
};

diloco_status dl_early_begin(dl_early **out, dl_data_origin *o)
{
    const dl_fetch_from from = from_origin(o);
    dl_early *early = *out = calloc(1, sizeof *early);
    if (!early) return dl_fail(DILOCO_ENOMEM, "out of memory for a list of objects");
    early->origin = o;
    const diloco_status status =
        dl_fetch_pool_create(&early->pool, &from, &(dl_fetch_options){.threads = THREADS});
    if (!status) return DILOCO_OK;
    free(early);
    *out = NULL;
    return status;
}

/* The first bytes of an object, and its length. */
typedef struct probe {
    unsigned char *bytes; /* [EDGE], owned */
    size_t n, len;
} probe;

static diloco_status on_begin(void *context, size_t len)
{
    ((probe *)context)->len = len;
    return DILOCO_OK;
}

static diloco_status on_piece(void *context, const void *data, size_t len)
{
    probe *p = context;
    if (len > EDGE - p->n) return dl_fail(DILOCO_EPROTO, "more came than was asked for");
    memcpy(p->bytes + p->n, data, len);
    p->n += len;
    return DILOCO_OK;
}

static diloco_status open_file(dl_arriving **out, const dl_data_origin *o, const char *key)
{
    char path[DL_ORIGIN_PATH], record[DL_ORIGIN_PATH];
    dl_origin_path(path, o, "arriving", key);
    dl_origin_path(record, o, "blocks", key);
    return dl_arriving_open(out, path, record);
}

static diloco_status create_file(dl_arriving **out, const dl_data_origin *o, const char *key,
                                 const probe *p, const char *version)
{
    char path[DL_ORIGIN_PATH], record[DL_ORIGIN_PATH];
    dl_origin_path(path, o, "arriving", key);
    dl_origin_path(record, o, "blocks", key);
    DL_TRY(dl_arriving_create(path, record, p->len, version));
    DL_TRY(dl_arriving_open(out, path, record));
    diloco_status status = DILOCO_OK;
    for (size_t at = 0; !status && at + DL_ARRIVING_BLOCK <= p->n; at += DL_ARRIVING_BLOCK)
        status = dl_arriving_put(*out, at / DL_ARRIVING_BLOCK, p->bytes + at);
    if (!status) return DILOCO_OK;
    dl_arriving_close(*out);
    *out = NULL;
    return status;
}

/* Looks at an object that the cache has nothing of. *out stays NULL if it does not suit: the store
 * cannot read a part or does not say which version it has read, or the object is small. */
static diloco_status look_at(dl_arriving **out, dl_data_origin *o, const char *key)
{
    probe p = {.bytes = malloc(EDGE)};
    dl_store_part part = {.end = EDGE};
    if (!p.bytes) return dl_fail(DILOCO_ENOMEM, "out of memory for the beginning of an object");
    const dl_sink sink = {.context = &p, .begin = on_begin, .piece = on_piece};
    diloco_status status = read_origin(o, key, &part, sink);
    const bool suits =
        !status && *part.version && p.len > 2 * EDGE && p.len <= LARGEST && p.n == EDGE;
    if (suits) status = create_file(out, o, key, &p, part.version);
    free(p.bytes);
    const bool whole = status == DILOCO_EREFUSED || (status == DILOCO_EPROTO && !*part.version);
    return whole ? DILOCO_OK : status;
}

/* Opens what an earlier process has begun. *out is NULL if it cannot be used. */
static diloco_status reopen(dl_arriving **out, const dl_data_origin *o, const char *key)
{
    diloco_status status = open_file(out, o, key);
    if (status == DILOCO_ENOENT || status == DILOCO_EPROTO) return DILOCO_OK;
    if (!status) status = dl_arriving_verify(*out);
    if (!status) return DILOCO_OK;
    dl_arriving_close(*out);
    *out = NULL;
    return status;
}

static bool is_complete(const dl_arriving *a)
{
    return dl_arriving_bytes(a) == dl_arriving_map(a)->len;
}

/* A file that is complete and damaged was removed; it is looked at again. A damaged file in `files`
 * would be taken for a whole one. */
diloco_status dl_early_add(dl_early *early, bool *suits, const char *key)
{
    char damaged[DL_ORIGIN_PATH];
    dl_arriving *a = NULL;
    dl_origin_path(damaged, early->origin, "files", key);
    *suits = true;
    DL_TRY(reopen(&a, early->origin, key));
    if (a && is_complete(a)) {
        const diloco_status status = finish(early->origin, key, a);
        dl_arriving_close(a);
        a = NULL;
        if (status != DILOCO_EPROTO) return status;
    }
    if (!a) DL_TRY(look_at(&a, early->origin, key));
    *suits = a;
    if (a) unlink(damaged);
    return a ? dl_fetch_pool_add(early->pool, key, a) : DILOCO_OK;
}

/* All ends are asked for before the first is waited for. */
static diloco_status await_edges(dl_fetch_pool *pool)
{
    const size_t n = dl_fetch_pool_files(pool);
    for (size_t i = 0; i < n; i++) {
        dl_fetch_file *file = dl_fetch_pool_file(pool, i);
        dl_fetch_file_want(file, 0, EDGE, true);
        dl_fetch_file_want(file, dl_fetch_file_map(file)->len - EDGE, EDGE, true);
    }
    for (size_t i = 0; i < n; i++) {
        dl_fetch_file *file = dl_fetch_pool_file(pool, i);
        DL_TRY(dl_fetch_file_await(file, 0, EDGE));
        DL_TRY(dl_fetch_file_await(file, dl_fetch_file_map(file)->len - EDGE, EDGE));
    }
    return DILOCO_OK;
}

/* The text of the error is saved: ending the threads may replace it. */
static diloco_status end(dl_early *early, diloco_status status)
{
    char why[1024];
    snprintf(why, sizeof why, "%s", status ? diloco_error_text() : "");
    dl_fetch_pool_destroy(early->pool);
    free(early);
    return status ? dl_fail(status, "%s", why) : DILOCO_OK;
}

diloco_status dl_early_end(dl_early *early, diloco_status status)
{
    return end(early, status ? status : await_edges(early->pool));
}

/* ---- completing an object that is wanted whole */

static diloco_status await_all(dl_fetch_pool *pool)
{
    dl_fetch_file *file = dl_fetch_pool_file(pool, 0);
    const size_t len = dl_fetch_file_map(file)->len;
    diloco_status status = DILOCO_OK;
    for (size_t at = 0; !status && at < len; at += DL_ARRIVING_BLOCK) {
        dl_fetch_file_want(file, at, dl_size_min(len - at, 64 * DL_ARRIVING_BLOCK), false);
        status = dl_fetch_file_await(file, at, 1);
    }
    return status;
}

diloco_status dl_early_complete(dl_data_origin *o, bool *done, const char *key)
{
    dl_early *early;
    dl_arriving *a = NULL;
    *done = false;
    DL_TRY(reopen(&a, o, key));
    if (!a) return DILOCO_OK;
    diloco_status status = dl_early_begin(&early, o);
    if (status) {
        dl_arriving_close(a);
        return status;
    }
    status = dl_fetch_pool_add(early->pool, key, a);
    if (!status) status = await_all(early->pool);
    if (!status) status = finish(o, key, a);
    *done = !status;
    if (status == DILOCO_EPROTO) { /* it is fetched whole instead */
        remove_files(o, key);
        status = DILOCO_OK;
    }
    return end(early, status);
}

/* ---- the data that this process reads */

/* A file of an address; `reader` is NULL if it is whole. */
typedef struct shard {
    char *name, *path; /* owned */
    dl_fetch_file *reader;
} shard;

typedef struct address {
    dl_data_origin origin;
    char path[DL_ORIGIN_PATH]; /* data.train_path has it instead */
    shard *shards;             /* owned */
    size_t n, cap;
    dl_fetch_pool *pool;
    size_t tenths; /* of the last report, and 1 */
} address;

static struct {
    address **addresses;
    size_t n;
    dl_config_path train, test; /* as they were given to dl_early_open */
    dl_early_hooks hooks;
} table;

static diloco_status each(void *self, bool *known, const char *path, dl_arrival_fn found,
                          void *context)
{
    (void)self;
    *known = false;
    for (size_t i = 0; i < table.n && !*known; i++) {
        const address *a = table.addresses[i];
        *known = strcmp(a->path, path) == 0;
        for (size_t k = 0; *known && k < a->n; k++) {
            dl_arrival arrival = {.path = a->shards[k].path, .file = a->shards[k].reader};
            if (arrival.file) arrival.map = *dl_fetch_file_map(a->shards[k].reader);
            DL_TRY(found(context, &arrival));
        }
    }
    return DILOCO_OK;
}

static void want(void *file, size_t begin, size_t len, bool now)
{
    dl_fetch_file_want(file, begin, len, now);
}

static diloco_status await(void *file, size_t begin, size_t len)
{
    return dl_fetch_file_await(file, begin, len);
}

/* ---- opening it */

static void free_address(address *a)
{
    dl_fetch_pool_destroy(a->pool);
    for (size_t i = 0; i < a->n; i++)
        free(a->shards[i].name), free(a->shards[i].path);
    free(a->shards);
    free(a);
}

void dl_early_close(void)
{
    dl_arrivals_set(NULL);
    for (size_t i = 0; i < table.n; i++)
        free_address(table.addresses[i]);
    free(table.addresses);
    table.addresses = NULL;
    table.n = 0;
}

/* One thread of the pool at a time calls it. */
static void report(void *context, size_t bytes, size_t of)
{
    address *a = context; /* its first member is the origin */
    const size_t tenths = (size_t)((double)bytes / (double)of * 10) + 1;
    if (tenths == a->tenths) return;
    a->tenths = tenths;
    table.hooks.progress(table.hooks.user, bytes, of);
}

static diloco_status add_shard(address *a, const char *name)
{
    if (a->n == a->cap) {
        const size_t cap = a->cap ? 2 * a->cap : 16;
        shard *shards = reallocarray(a->shards, cap, sizeof *shards);
        if (!shards) return dl_fail(DILOCO_ENOMEM, "out of memory for a list of shards");
        a->shards = shards;
        a->cap = cap;
    }
    a->shards[a->n] = (shard){.name = strdup(name)};
    if (!a->shards[a->n].name) return dl_fail(DILOCO_ENOMEM, "out of memory for a list of shards");
    a->n++;
    return DILOCO_OK;
}

static bool has_shard(const address *a, const char *name)
{
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->shards[i].name, name) == 0) return true;
    return false;
}

/* Adds the shards in a folder of the origin. */
static diloco_status list_folder(address *a, const char *kind)
{
    char path[DL_ORIGIN_PATH];
    diloco_status status = DILOCO_OK;
    dl_origin_path(path, &a->origin, kind, "");
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && !status && (e = readdir(dir));) {
        const size_t len = strlen(e->d_name);
        if (e->d_name[0] == '.' || len < 5 || strcmp(e->d_name + len - 4, ".bin") != 0) continue;
        if (!has_shard(a, e->d_name)) status = add_shard(a, e->d_name);
    }
    if (dir) closedir(dir);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const shard *)a)->name, ((const shard *)b)->name);
}

/* Opens a shard. It may become whole at any moment, so it is looked for in `files` before and
 * after. */
static diloco_status open_shard(address *a, shard *s)
{
    char path[DL_ORIGIN_PATH];
    dl_arriving *arriving = NULL;
    dl_origin_path(path, &a->origin, "files", s->name);
    if (!dl_file_exists(path)) {
        const diloco_status status = open_file(&arriving, &a->origin, s->name);
        if (status && !dl_file_exists(path)) return status;
        if (!status) dl_origin_path(path, &a->origin, "arriving", s->name);
    }
    s->path = strdup(path);
    if (s->path && !arriving) return DILOCO_OK;
    if (!s->path) {
        dl_arriving_close(arriving);
        return dl_fail(DILOCO_ENOMEM, "out of memory for a path");
    }
    DL_TRY(dl_fetch_pool_add(a->pool, s->name, arriving));
    s->reader = dl_fetch_pool_file(a->pool, dl_fetch_pool_files(a->pool) - 1);
    return DILOCO_OK;
}

static diloco_status open_address(address *a, const char *url, const dl_config *config)
{
    char lock[DL_ORIGIN_PATH], hex[DL_HASH_HEX + 1];
    DL_TRY(dl_origin_init(&a->origin, url, config));
    dl_origin_path(a->path, &a->origin, "files", a->origin.key);
    /* Objects of one prefix that are named one by one are filled side by side. */
    dl_hash_to_hex(hex, dl_hash_bytes(a->origin.key, strlen(a->origin.key)));
    hex[16] = '\0';
    dl_origin_path(lock, &a->origin, "filling", hex);
    dl_fetch_from from = from_origin(&a->origin);
    from.finish = finish_arrived;
    if (table.hooks.progress) from.progress = report;
    const dl_fetch_options options = {
        .lock_path = table.hooks.fills ? lock : NULL, .stop = table.hooks.stop, .threads = THREADS};
    DL_TRY(dl_fetch_pool_create(&a->pool, &from, &options));
    if (*a->origin.key) {
        DL_TRY(add_shard(a, a->origin.key));
    } else {
        DL_TRY(list_folder(a, "arriving"));
        DL_TRY(list_folder(a, "files"));
        if (a->n) qsort(a->shards, a->n, sizeof *a->shards, by_name);
    }
    for (size_t i = 0; i < a->n; i++)
        DL_TRY(open_shard(a, &a->shards[i]));
    return DILOCO_OK;
}

/* An address whose files are all whole needs no entry: its path is that of a folder or file. */
static diloco_status add_address(const char *url, const dl_config *config)
{
    address **addresses = reallocarray(table.addresses, table.n + 1, sizeof(address *));
    if (!addresses) return dl_fail(DILOCO_ENOMEM, "out of memory for an address");
    table.addresses = addresses;
    address *a = calloc(1, sizeof *a);
    if (!a) return dl_fail(DILOCO_ENOMEM, "out of memory for an address");
    const diloco_status status = open_address(a, url, config);
    if (!status && dl_fetch_pool_files(a->pool) > 0) {
        table.addresses[table.n++] = a;
        return DILOCO_OK;
    }
    free_address(a);
    return status;
}

diloco_status dl_early_open(const dl_config_path train, const dl_config_path test,
                            const dl_config *config, const dl_early_hooks *hooks)
{
    static const dl_arrivals arrivals = {.each = each, .want = want, .await = await};
    char one[sizeof(dl_config_path)];
    diloco_status status = DILOCO_OK;
    dl_early_close();
    if (!dl_early_is_possible(config)) return DILOCO_OK;
    table.hooks = *hooks;
    memmove(table.train, train, sizeof table.train);
    memmove(table.test, test, sizeof table.test);
    const char *const lists[] = {table.train, table.test};
    for (size_t i = 0; i < 2; i++)
        for (const char *at = lists[i]; !status && dl_origin_next(one, &at);)
            if (strstr(one, "://")) status = add_address(one, config);
    if (status) {
        dl_early_close();
        return status;
    }
    if (table.n) dl_arrivals_set(&arrivals);
    return DILOCO_OK;
}

void dl_early_addresses(dl_config *config)
{
    if (!table.n) return;
    memcpy(config->train_path, table.train, sizeof table.train);
    memcpy(config->test_path, table.test, sizeof table.test);
}
