/* batch.c - see batch.h. Of two launchers that create a batch at once the store chooses one; the
 * other reads its object, and compares it as if it had come later. */
#include "launch/batch.h"

#include "base/json.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of the object. job.command has at most DL_PATH_MAX bytes, and JSON may write each of them
 * as six. */
enum { OBJECT_MAX = 8 * DL_PATH_MAX };

/* Bytes of the names of a book. */
enum { KEYS_MAX = 1 << 24 };

/* For one request to the store. */
#define PATIENCE (60 * DL_SECOND)

static dl_time soon(void)
{
    return dl_time_after(dl_clock_now(), PATIENCE);
}

/* calloc leaves NULL after the words that were read, so that dl_argv_free works after an error. */
static diloco_status read_words(char ***out, dl_json_value list)
{
    size_t n = 0;
    dl_json_iter it = dl_json_each(list);
    char **words = *out = calloc(dl_json_count(list) + 1, sizeof *words);
    if (!words) return dl_fail(DILOCO_ENOMEM, "out of memory for the command");
    while (dl_json_next(&it)) {
        const size_t cap = (size_t)(it.value.end - it.value.at) + 1;
        words[n] = calloc(1, cap);
        if (!words[n]) return dl_fail(DILOCO_ENOMEM, "out of memory for the command");
        DL_TRY(dl_json_as_str(words[n++], cap, it.value));
    }
    return n && *words[0] ? DILOCO_OK : dl_fail(DILOCO_EPROTO, "it has no program");
}

diloco_status dl_batch_words(char ***out, const char *command)
{
    dl_json_value list;
    *out = NULL;
    diloco_status status = dl_json_parse(&list, command, strlen(command));
    if (!status && list.type != DL_JSON_ARRAY) status = DILOCO_EPROTO;
    if (!status) status = read_words(out, list);
    if (!status) return DILOCO_OK;
    dl_argv_free(*out);
    *out = NULL;
    if (status == DILOCO_ENOMEM) return status;
    return dl_fail(DILOCO_EINVAL,
                   "job.command = %.200s: write a list of words, such as [\"python\", \"job.py\", "
                   "\"{rank}\"]",
                   *command ? command : "\"\"");
}

/* ---- the object */

static diloco_status parse(dl_batch *out, dl_json_value value)
{
    uint64_t format, ranks;
    DL_TRY(dl_json_read_u64(&format, value, "format", UINT32_MAX));
    if (format != 1)
        return dl_fail(DILOCO_EPROTO, "its format is %llu, and this program knows 1",
                       (unsigned long long)format);
    DL_TRY(dl_json_read_str(out->id, sizeof out->id, value, "id"));
    DL_TRY(dl_json_read_u64(&ranks, value, "ranks", DL_JOBS_MAX));
    out->ranks = (uint32_t)ranks;
    out->run[0] = '\0';
    if (dl_json_get(value, "run").type != DL_JSON_MISSING)
        DL_TRY(dl_json_read_str(out->run, sizeof out->run, value, "run"));
    /* The id becomes a part of names of folders. */
    if (strlen(out->id) == 32 && strspn(out->id, "0123456789abcdef") == 32) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "its id is not 32 hex digits");
}

static bool same_words(dl_json_value list, char *const *words)
{
    dl_json_iter it = dl_json_each(list);
    for (; *words; words++)
        if (!dl_json_next(&it) || !dl_json_is(it.value, *words)) return false;
    return !dl_json_next(&it);
}

/* Read the object, and compare its command with `words` unless that is NULL. */
static diloco_status get(dl_batch *out, dl_store *store, char *const *words)
{
    dl_buf text;
    dl_json_value value;
    dl_buf_init(&text, OBJECT_MAX);
    diloco_status status = dl_store_get(store, &text, DL_BATCH_KEY, soon());
    if (!status) {
        status = dl_json_parse(&value, text.data, text.len);
        if (!status) status = parse(out, value);
        if (status) status = dl_fail_context(status, "%s in %s", DL_BATCH_KEY, dl_store_url(store));
    }
    if (!status && words && !same_words(dl_json_get(value, "command"), words))
        status = dl_fail(DILOCO_EREFUSED,
                         "%s holds a batch of another command: name another store for this one "
                         "(--store)",
                         dl_store_url(store));
    dl_buf_deinit(&text);
    return status;
}

/* Write a new batch into `text`, under an id that no other batch has. */
static diloco_status make(dl_buf *text, uint32_t ranks, char *const *words, const char *run)
{
    unsigned char random[16];
    char id[33];
    dl_json j;
    DL_TRY(dl_random_bytes(random, sizeof random));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(id + 2 * i, 3, "%02x", random[i]);
    dl_json_init(&j, text);
    dl_json_object(&j, NULL);
    dl_json_u64(&j, "format", 1);
    dl_json_str(&j, "id", id);
    dl_json_u64(&j, "ranks", ranks);
    dl_json_array(&j, "command");
    for (; *words; words++)
        dl_json_str(&j, NULL, *words);
    dl_json_end(&j);
    if (*run) dl_json_str(&j, "run", run);
    dl_json_end(&j);
    return dl_json_done(&j);
}

/* EEXIST: another launcher was quicker. */
static diloco_status create(dl_store *store, uint32_t ranks, char *const *words, const char *run)
{
    dl_buf text;
    dl_buf_init(&text, OBJECT_MAX);
    diloco_status status = make(&text, ranks, words, run);
    const dl_span span = {text.data, text.len};
    if (!status) status = dl_store_create(store, DL_BATCH_KEY, &span, 1, NULL, soon());
    dl_buf_deinit(&text);
    return status == DILOCO_EEXIST ? DILOCO_OK : status;
}

diloco_status dl_batch_open(dl_batch *out, const char *url, uint32_t ranks, char *const *words,
                            const char *run)
{
    dl_store *store;
    DL_TRY(dl_store_open(&store, url, true));
    diloco_status status = get(out, store, words);
    if (status == DILOCO_ENOENT) {
        status = create(store, ranks, words, run);
        if (!status) status = get(out, store, words);
    }
    dl_store_close(store);
    DL_TRY(status);
    if (strcmp(out->run, run) != 0)
        return dl_fail(DILOCO_EREFUSED,
                       "%s holds a batch whose ranks train %s%.300s: name another store for this "
                       "one (--store), or set job.run to that run",
                       url, *out->run ? "the run in " : "no run", out->run);
    if (out->ranks == ranks) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "%s holds a batch of %u ranks, which divide its work, so their number is fixed: "
                   "use --replicas %u, or another store",
                   url, out->ranks, out->ranks);
}

/* A hub has objects of runs only, and may refuse the name instead of not knowing it. */
diloco_status dl_batch_read(dl_batch *out, const char *url)
{
    dl_store *store;
    if (strncmp(url, "http", 4) == 0) return dl_fail(DILOCO_ENOENT, "%s holds no batch", url);
    DL_TRY(dl_store_open(&store, url, false));
    const diloco_status status = get(out, store, NULL);
    dl_store_close(store);
    return status;
}

/* Bytes of scheme and authority, "s3://bucket" of "s3://bucket/run"; 0 for a path. */
static size_t authority_of(const char *url)
{
    const char *host = strstr(url, "://");
    if (!host || strncmp(url, "file://", 7) == 0) return 0;
    return (size_t)(host + 3 - url) + strcspn(host + 3, "/?");
}

bool dl_batch_run_is_near(const char *run, const char *url)
{
    const size_t len = authority_of(run);
    if (len != authority_of(url) || memcmp(run, url, len) != 0) return false;
    const char *mine = strchr(run + len, '?'), *theirs = strchr(url + len, '?');
    return !len || strcmp(mine ? mine : "", theirs ? theirs : "") == 0;
}

/* ---- removal */

/* Copies of the names that were found below launch/, each with its zero byte. */
static diloco_status on_key(void *context, const char *key, size_t len)
{
    (void)len;
    return dl_buf_add(context, key, strlen(key) + 1);
}

/* The batch is deleted last: a call that is repeated finds the rest by it. */
static diloco_status delete_all(uint64_t *n, const char *url)
{
    dl_store *store;
    dl_buf keys;
    DL_TRY(dl_store_open(&store, url, false));
    dl_buf_init(&keys, KEYS_MAX);
    diloco_status status = dl_store_list(store, "launch/", NULL, on_key, &keys, soon());
    for (size_t at = 0; !status && at < keys.len;) {
        const char *key = (const char *)keys.data + at;
        at += strlen(key) + 1;
        status = dl_store_delete(store, key, soon());
        *n += !status;
    }
    if (!status) status = dl_store_delete(store, DL_BATCH_KEY, soon());
    *n += !status;
    dl_buf_deinit(&keys);
    dl_store_close(store);
    return status;
}

diloco_status dl_batch_remove(uint64_t *n, const char *url)
{
    dl_batch batch;
    dl_book book;
    uint32_t running = 0;
    *n = 0;
    DL_TRY(dl_batch_read(&batch, url));
    DL_TRY(dl_book_open(&book, url, batch.id, NULL));
    for (size_t i = 0; i < DL_JOBS_MAX; i++)
        running += book.ranks[i].started && !dl_job_is_over(book.ranks[i].job.state);
    dl_book_close(&book);
    if (!running) return delete_all(n, url);
    return dl_fail(DILOCO_EREFUSED,
                   "%u rank%s of the batch in %s may still run: stop them with  diloco launch "
                   "cancel, and wait with  diloco launch collect",
                   running, running > 1 ? "s" : "", url);
}

/* A book without a "begin" has no ranks, and is not complete. */
bool dl_batch_is_complete(const dl_book *book)
{
    for (uint32_t i = 0; i < book->max; i++)
        if (!book->ranks[i].started || book->ranks[i].job.state != DL_JOB_SUCCEEDED) return false;
    return book->begun;
}
