/* prepare.c - makes a list of parts, which threads encode one after the other. The parts follow
 * from the text and the tokenizer alone. So a call that continues makes the same shards, whatever
 * its number of threads is. */
#include "data/prepare.h"

#include "base/json.h"
#include "base/thread.h"
#include "data/corpus.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* PART: bytes of text, which take about 64 MiB of tokens in memory for each thread. HEADER: bytes,
 * as in tokens.c. NARROW: tokens of a vocabulary that fits into 16 bits. */
enum { PART = 16 << 20, HEADER = 1024, MAX_THREADS = 256, NARROW = 65536 };

/* A part of a file's text, in bytes. Its index in the list is the number of its shard. */
typedef struct part {
    const dl_corpus_file *file;
    size_t begin, end;
} part;

typedef struct work {
    const dl_prepare *what;
    dl_corpus corpus;
    part *parts; /* owned */
    size_t n_parts, cap;
    char folder[4096]; /* <out>.part */

    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t moved;
    size_t next;
    int running;
    uint64_t done; /* bytes */
    dl_prepared report;
    diloco_status status; /* the first failure, and its text */
    char error[512];
} work;

/* ---- parts */

static diloco_status add_part(work *w, part p)
{
    if (w->n_parts == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 64;
        part *parts = reallocarray(w->parts, cap, sizeof *parts);
        if (!parts) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu parts", cap);
        w->parts = parts;
        w->cap = cap;
    }
    w->parts[w->n_parts++] = p;
    return DILOCO_OK;
}

/* Returns the first border at or after begin + PART, or the end of the file. */
static size_t part_end(const work *w, const dl_corpus_file *file, size_t begin)
{
    const char *text = (const char *)file->map.data;
    if (file->map.len - begin <= PART || !dl_bpe_may_cut(w->what->bpe)) return file->map.len;
    for (size_t at = begin + PART; at < file->map.len; at++)
        if (dl_word_border(text, at)) return at;
    return file->map.len;
}

/* An empty file has no part. */
static diloco_status list_parts(work *w)
{
    for (size_t i = 0; i < w->corpus.n_files; i++) {
        const dl_corpus_file *file = &w->corpus.files[i];
        for (size_t at = 0, end; at < file->map.len; at = end) {
            end = part_end(w, file, at);
            DL_TRY(add_part(w, (part){file, at, end}));
        }
    }
    return DILOCO_OK;
}

/* ---- a shard */

static void put_u32(unsigned char *to, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(x >> 8 * i);
}

/* Writes the shard's header, and the tokens in its form over the tokens themselves; this is safe
 * since a packed token is never longer. Returns the bytes of the packed tokens. */
static size_t pack(unsigned char header[HEADER], int32_t *tokens, size_t n, bool narrow)
{
    unsigned char *to = (unsigned char *)tokens;
    memset(header, 0, HEADER);
    put_u32(header, narrow ? 20240520 : 20240801);
    put_u32(header + 4, narrow ? 1 : 7);
    put_u32(header + 8, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        uint32_t token = (uint32_t)tokens[i];
        if (narrow)
            to[2 * i] = (unsigned char)token, to[2 * i + 1] = (unsigned char)(token >> 8);
        else
            put_u32(to + 4 * i, token);
    }
    return n * (narrow ? 2 : 4);
}

static diloco_status shard_path(char out[4096], const work *w, size_t i)
{
    int len = snprintf(out, 4096, "%.4000s/%06zu.bin", w->folder, i);
    return len > 0 && len < 4096 ? DILOCO_OK : dl_fail(DILOCO_EINVAL, "%s: too long", w->folder);
}

/* Counts the tokens of an existing shard. It is whole, because it is renamed into place. */
static diloco_status count_shard(uint64_t *n, const char *path)
{
    dl_map map;
    size_t offset, found = 0;
    DL_TRY(dl_map_open(&map, path));
    diloco_status status = dl_source_tokens.find(&offset, &found, &map);
    dl_map_close(&map);
    *n = found;
    return status ? dl_fail_context(status, "a shard made before: %s", path) : DILOCO_OK;
}

/* Encodes a part and writes its shard. */
static diloco_status encode_part(const work *w, dl_bpe_encoder *encoder, uint64_t *n_tokens,
                                 const part *p, const char *path)
{
    unsigned char header[HEADER];
    size_t n, first = 0;
    int32_t end_token = dl_bpe_end_token(w->what->bpe);
    int32_t *tokens = malloc((p->end - p->begin + 1) * sizeof *tokens);
    if (!tokens) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu tokens", p->end - p->begin);
    if (p->begin == 0 && end_token >= 0) tokens[first++] = end_token;
    diloco_status status =
        dl_bpe_encode(encoder, tokens + first, &n, (const char *)p->file->map.data, p->begin,
                      p->end, p->file->map.len);
    if (!status && n + first > INT32_MAX)
        status = dl_fail(DILOCO_EINVAL, "%s has no place at which it can be split", p->file->path);
    if (!status) {
        *n_tokens = n + first;
        size_t bytes = pack(header, tokens, n + first, dl_bpe_n(w->what->bpe) <= NARROW);
        const dl_span spans[] = {{header, sizeof header}, {tokens, bytes}};
        status = dl_file_write(path, spans, 2);
    }
    free(tokens);
    return status;
}

/* Makes a shard, or counts one that an earlier call has made. */
static diloco_status make_shard(work *w, dl_bpe_encoder *encoder, size_t i)
{
    char path[4096];
    uint64_t n = 0;
    const part *p = &w->parts[i];
    DL_TRY(shard_path(path, w, i));
    bool found = dl_file_exists(path);
    DL_TRY(found ? count_shard(&n, path) : encode_part(w, encoder, &n, p, path));
    pthread_mutex_lock(&w->lock);
    w->done += p->end - p->begin;
    w->report.tokens += n;
    w->report.shards++;
    w->report.found += found;
    pthread_cond_signal(&w->moved);
    pthread_mutex_unlock(&w->lock);
    return DILOCO_OK;
}

/* ---- threads */

/* Takes the next part. Returns false after the last one, or if a thread has failed. */
static bool take(work *w, size_t *i)
{
    pthread_mutex_lock(&w->lock);
    *i = w->next++;
    bool more = *i < w->n_parts && !w->status;
    pthread_mutex_unlock(&w->lock);
    return more;
}

/* Encodes parts until none is left. The first failure of any thread ends all of them, and its text
 * is kept, because an error's text belongs to its thread. */
static void *work_thread(void *user)
{
    work *w = user;
    dl_bpe_encoder *encoder;
    diloco_status status = dl_bpe_encoder_create(&encoder, w->what->bpe);
    for (size_t i; !status && take(w, &i);)
        status = make_shard(w, encoder, i);
    dl_bpe_encoder_destroy(encoder);
    pthread_mutex_lock(&w->lock);
    if (status && !w->status) {
        w->status = status;
        snprintf(w->error, sizeof w->error, "%s", diloco_error_text());
    }
    w->running--;
    pthread_cond_signal(&w->moved);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Reports progress until all threads have ended. The callback runs without the lock. */
static void watch(work *w)
{
    pthread_mutex_lock(&w->lock);
    while (w->running > 0) {
        uint64_t done = w->done;
        pthread_mutex_unlock(&w->lock);
        if (w->what->on_progress) w->what->on_progress(w->what->user, done, w->corpus.n);
        pthread_mutex_lock(&w->lock);
        while (w->running > 0 && w->done == done)
            pthread_cond_wait(&w->moved, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
}

/* Starts the threads and waits for them. If the system refuses some, the others do the work. */
static diloco_status run_threads(work *w)
{
    pthread_t threads[MAX_THREADS];
    int wanted = w->what->n_threads < MAX_THREADS ? w->what->n_threads : MAX_THREADS, n = 0;
    w->running = wanted;
    while (n < wanted && dl_thread_start(&threads[n], work_thread, w) == 0)
        n++;
    pthread_mutex_lock(&w->lock);
    w->running -= wanted - n; /* fewer will do */
    pthread_mutex_unlock(&w->lock);
    if (n == 0) return dl_fail(DILOCO_ENOMEM, "no thread could be started");
    watch(w);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    return w->status ? dl_fail(w->status, "%s", w->error) : DILOCO_OK;
}

/* ---- the folder */

/* Computes a digest of every byte, unlike dl_corpus_digest(): shards of two texts must never be in
 * one folder, and every byte is read for its tokens anyway. */
static void put_text_digest(char out[DL_HASH_HEX + 1], const dl_corpus *corpus)
{
    dl_digest_stream stream;
    dl_digest_begin(&stream);
    for (size_t i = 0; i < corpus->n_files; i++) {
        const dl_map *map = &corpus->files[i].map;
        uint64_t len = map->len;
        dl_digest_add(&stream, &len, sizeof len);
        if (len) dl_digest_add(&stream, map->data, map->len);
    }
    dl_hash_to_hex(out, dl_digest_end(&stream));
}

static diloco_status put_manifest(dl_buf *out, const work *w)
{
    char tokenizer[DL_HASH_HEX + 1], text[DL_HASH_HEX + 1];
    dl_json j;
    put_text_digest(text, &w->corpus);
    dl_hash_to_hex(tokenizer, dl_bpe_digest(w->what->bpe));
    dl_json_init(&j, out);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "format", "diloco-prepare");
    dl_json_i64(&j, "version", 2);
    dl_json_str(&j, "tokenizer_digest", tokenizer);
    dl_json_i64(&j, "vocab", dl_bpe_n(w->what->bpe));
    dl_json_str(&j, "text_digest", text);
    dl_json_u64(&j, "files", w->corpus.n_files);
    dl_json_u64(&j, "bytes", w->corpus.n);
    dl_json_u64(&j, "shards", w->n_parts);
    dl_json_end(&j);
    DL_TRY(dl_json_done(&j));
    return dl_buf_add(out, "\n", 1);
}

/* Sets *there if the folder has a manifest. Returns DILOCO_EDIFFERS if it is another one. */
static diloco_status check_manifest(bool *there, const char *folder, const dl_buf *manifest)
{
    char path[4200];
    dl_buf found;
    snprintf(path, sizeof path, "%.4095s/prepare.json", folder);
    *there = dl_file_exists(path);
    if (!*there) return DILOCO_OK;
    dl_buf_init(&found, 1 << 16);
    diloco_status status = dl_file_read(&found, path);
    if (!status && (found.len != manifest->len || memcmp(found.data, manifest->data, found.len)))
        status = dl_fail(DILOCO_EDIFFERS,
                         "%s holds tokens of another text or tokenizer: take another folder, or "
                         "remove it",
                         folder);
    dl_buf_deinit(&found);
    return status;
}

/* Remove the leftovers of a killed writer beside the shards. */
static void remove_halves(const char *folder)
{
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        size_t len = strlen(e->d_name);
        if (len > 4 && strcmp(e->d_name + len - 4, ".tmp") == 0) unlinkat(dirfd(dir), e->d_name, 0);
    }
    if (dir) closedir(dir);
}

/* Makes or continues <out>.part. The manifest is written before the first shard. */
static diloco_status begin_folder(const work *w, const dl_buf *manifest)
{
    char path[4200];
    bool there;
    DL_TRY(check_manifest(&there, w->folder, manifest));
    remove_halves(w->folder);
    if (there) return DILOCO_OK;
    snprintf(path, sizeof path, "%.4095s/prepare.json", w->folder);
    DL_TRY(dl_dir_make(w->folder));
    return dl_file_write(path, &(dl_span){manifest->data, manifest->len}, 1);
}

/* Counts the shards of a folder that is complete. */
static diloco_status count_all(work *w)
{
    for (size_t i = 0; i < w->n_parts; i++) {
        char path[4096];
        uint64_t n;
        DL_TRY(shard_path(path, w, i));
        DL_TRY(count_shard(&n, path));
        w->report.tokens += n;
    }
    w->report.shards = w->report.found = w->n_parts;
    return DILOCO_OK;
}

/* Makes the folder unless it is complete. It gets its name last, and the rename is made durable. */
static diloco_status make_all(work *w, const dl_buf *manifest)
{
    bool there;
    DL_TRY(check_manifest(&there, w->what->out, manifest));
    if (there) {
        snprintf(w->folder, sizeof w->folder, "%s", w->what->out);
        return count_all(w);
    }
    if (dl_file_exists(w->what->out))
        return dl_fail(
            DILOCO_EDIFFERS,
            "%s exists already, and diloco data prepare did not write it: give another folder",
            w->what->out);
    DL_TRY(begin_folder(w, manifest));
    DL_TRY(run_threads(w));
    if (rename(w->folder, w->what->out)) return dl_fail_errno(errno, "rename", w->folder);
    return dl_dir_sync(w->what->out);
}

/* Checks the paths, lists the parts, and makes the shards. A comma is refused here, where it can
 * still be changed: data.train_path could not name the folder. */
static diloco_status prepare(work *w)
{
    dl_buf manifest;
    int len = snprintf(w->folder, sizeof w->folder, "%s.part", w->what->out);
    if (len < 0 || len > 4000) return dl_fail(DILOCO_EINVAL, "%s: too long", w->what->out);
    if (strchr(w->what->out, ','))
        return dl_fail(DILOCO_EINVAL,
                       "%s: a list of paths has commas between them, so that no folder of shards "
                       "can have one in its name",
                       w->what->out);
    DL_TRY(dl_corpus_open(&w->corpus, &dl_source_text, w->what->text, "the text"));
    DL_TRY(list_parts(w));
    w->report.bytes = w->corpus.n;
    dl_buf_init(&manifest, 1 << 16);
    diloco_status status = put_manifest(&manifest, w);
    if (!status) status = make_all(w, &manifest);
    dl_buf_deinit(&manifest);
    return status;
}

diloco_status dl_prepare_run(dl_prepared *out, const dl_prepare *what)
{
    work *w = calloc(1, sizeof *w);
    *out = (dl_prepared){0};
    if (!w) return dl_fail(DILOCO_ENOMEM, "not enough memory to prepare data");
    w->what = what;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->moved, NULL);
    diloco_status status = prepare(w);
    *out = w->report;
    dl_corpus_close(&w->corpus);
    pthread_cond_destroy(&w->moved);
    pthread_mutex_destroy(&w->lock);
    free(w->parts);
    free(w);
    return status;
}
