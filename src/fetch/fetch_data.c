/* fetch_data.c - see fetch_data.h.
 *
 * An address is split into a prefix, which has one folder of the cache, and the name of an object.
 * A lock on that folder makes processes of one machine take turns. An object is received into
 * `part`, its digest is written, and then it is renamed into `files`. So a kill at any moment
 * leaves an object that is whole, or one whose digest does not fit, which is fetched again. Of a
 * web address `part.of` has the object's name, its ETag and the number of bytes that are on the
 * disk, so a later process continues `part`. */
#include "fetch/fetch_data.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "fetch/web_data.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 512, FOLDER_BYTES = DL_PATH_MAX, FILE_BYTES = DL_PATH_MAX + 2 * NAME_BYTES };

/* One address: a prefix of a store or of the web, and what is wanted of it. */
typedef struct source {
    dl_config_path url;        /* of the prefix, with its options */
    char key[NAME_BYTES];      /* one object; "": all of the prefix */
    char label[NAME_BYTES];    /* the prefix without options, for a person */
    char folder[FOLDER_BYTES]; /* of the prefix in the cache */
    dl_store *store;           /* open only in fetch(); NULL for the web */
    dl_web_data *web;          /* the same; NULL for a store */
    /* Decides which objects of a prefix are fetched; NULL: all. */
    bool (*wants)(const char *key);
    size_t n; /* objects looked at, fetched now or found whole */
} source;

/* Returns true if a key, or an address without its options, has this end. */
static bool ends(const char *text, const char *with)
{
    const size_t len = strcspn(text, "?"), tail = strlen(with);
    return len > tail && memcmp(text + len - tail, with, tail) == 0;
}

static bool is_model_file(const char *path)
{
    return strstr(path, "://") && ends(path, ".safetensors");
}

bool dl_fetch_is_needed(const dl_config *config)
{
    return strstr(config->train_path, "://") || strstr(config->test_path, "://") ||
           is_model_file(config->init_from);
}

/* ---- the address */

/* Returns true if the address's store can hold training data. A hub holds only objects of runs. */
static bool has_data(const char *url)
{
    static const char *const schemes[] = {"s3://", "gs://", "az://", "hf://", "file://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (strncmp(url, schemes[i], strlen(schemes[i])) == 0) return true;
    return dl_web_data_has(url);
}

/* Splits URL[?OPTIONS] at the last slash of URL: the prefix keeps the options, because they say how
 * to reach the store. Returns DILOCO_EINVAL if there is no slash after the host or bucket, if the
 * object's name is too long, and for a scheme without data. */
static diloco_status split(source *s, const char *url)
{
    const size_t len = strcspn(url, "?");
    size_t at = len;
    if (!has_data(url))
        return dl_fail(
            DILOCO_EINVAL,
            "%.200s: data and models are read from s3://, gs://, az://, hf://, file:// and "
            "https:// addresses, and from files",
            url);
    while (at && url[at - 1] != '/')
        at--;
    const char *host = strstr(url, "://") + 3;
    if (url + at <= host || len - at >= sizeof s->key)
        return dl_fail(DILOCO_EINVAL, "%.200s: name a prefix with a / at its end, or an object",
                       url);
    snprintf(s->key, sizeof s->key, "%.*s", (int)(len - at), url + at);
    snprintf(s->url, sizeof s->url, "%.*s%s", (int)(at - 1), url, url + len);
    snprintf(s->label, sizeof s->label, "%.*s", (int)(at - 1), url);
    return DILOCO_OK;
}

/* ---- the cache */

/* The cache's folder: data.cache, or the user's cache by the XDG Base Directory Specification,
 * which ignores a relative XDG_CACHE_HOME. 64 bytes remain for the names in it. */
static diloco_status choose_cache(char out[FOLDER_BYTES], const dl_config *config)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = 0;
    if (config->data_cache[0])
        n = snprintf(out, FOLDER_BYTES, "%s", config->data_cache);
    else if (cache && *cache == '/')
        n = snprintf(out, FOLDER_BYTES, "%s/diloco/data", cache);
    else if (home && *home == '/')
        n = snprintf(out, FOLDER_BYTES, "%s/.cache/diloco/data", home);
    if (n > 0 && n < FOLDER_BYTES - 64) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "data.cache: there is no home folder for fetched data, or its "
                                  "path is too long: set data.cache");
}

/* The path of `key` in the folder `kind` of the prefix; the folder itself if `key` is "". */
static void path_of(char out[FILE_BYTES], const source *s, const char *kind, const char *key)
{
    snprintf(out, FILE_BYTES, "%s/%s%s%s", s->folder, kind, *key ? "/" : "", key);
}

/* Makes the prefix's folder and locks it; waits while another process holds the lock. An open file
 * description lock ends with its process, so a killed one never blocks the next. *lock is the
 * descriptor to close, or -1; it is also set when the lock fails. */
static diloco_status open_folder(source *s, int *lock, const dl_config *config)
{
    char cache[FOLDER_BYTES], path[FILE_BYTES], hex[DL_HASH_HEX + 1];
    struct flock whole = {.l_type = F_WRLCK};
    DL_TRY(choose_cache(cache, config));
    dl_hash_to_hex(hex, dl_hash_bytes(s->url, strlen(s->url)));
    snprintf(s->folder, sizeof s->folder, "%.*s/%.16s", FOLDER_BYTES - 32, cache, hex);
    path_of(path, s, "files", "");
    DL_TRY(dl_dir_make(path));
    path_of(path, s, "digests", "");
    DL_TRY(dl_dir_make(path));
    path_of(path, s, "lock", "");
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*lock < 0) return dl_fail_errno(errno, "open", path);
    int failed;
    while ((failed = fcntl(*lock, F_OFD_SETLKW, &whole)) && errno == EINTR)
        ;
    return failed ? dl_fail_errno(errno, "lock", path) : DILOCO_OK;
}

/* Returns true if the cache has this object and its bytes have the digest that was written when it
 * was fetched. The store is not asked: an object of the same name is assumed not to change. */
static bool is_whole(const source *s, const char *key)
{
    char path[FILE_BYTES], hex[DL_HASH_HEX + 1], text[DL_HASH_HEX + 32];
    dl_buf noted;
    dl_map map;
    path_of(path, s, "digests", key);
    dl_buf_init(&noted, sizeof text);
    const bool has_note = dl_file_exists(path) && !dl_file_read(&noted, path);
    const char *want = has_note ? dl_buf_str(&noted) : NULL;
    path_of(path, s, "files", key);
    bool whole = want && dl_file_exists(path) && !dl_map_open(&map, path);
    if (whole) {
        dl_hash_to_hex(hex, dl_digest_bytes(map.data, map.len));
        snprintf(text, sizeof text, "%s %zu\n", hex, map.len);
        whole = strcmp(text, want) == 0;
        dl_map_close(&map);
    }
    dl_buf_deinit(&noted);
    return whole;
}

/* ---- one object */

typedef struct arriving {
    int fd;
    const char *path;
    size_t len;              /* bytes received */
    dl_digest_stream digest; /* of these bytes, so that the file is not read again */
    /* Of the web: the position and version that the read begins at, the name of part.of, and the
     * bytes that it says are on the disk. */
    dl_web_position at;
    const char *note, *key;
    size_t noted;
} arriving;

/* Bytes between two notes. Each waits for the disk. */
#define NOTE_EVERY ((size_t)8 << 20)

/* Write down how much of the object is on the disk. A part of an object without an ETag cannot be
 * continued later, so it gets no note. */
static diloco_status note_part(arriving *a)
{
    char text[sizeof a->at.etag + NAME_BYTES + 32];
    if (!a->note || !a->at.etag[0]) return DILOCO_OK;
    if (fsync(a->fd)) return dl_fail_errno(errno, "write", a->path);
    const int n = snprintf(text, sizeof text, "%s\n%s\n%zu\n", a->key, a->at.etag, a->len);
    const dl_span span = {text, (size_t)n};
    a->noted = a->len;
    return dl_file_write(a->note, &span, 1);
}

static diloco_status on_piece(void *context, const void *data, size_t len)
{
    arriving *a = context;
    const dl_span span = {data, len};
    dl_digest_add(&a->digest, data, len);
    a->len += len;
    DL_TRY(dl_fd_write(a->fd, &span, 1, a->path));
    return a->len - a->noted >= NOTE_EVERY ? note_part(a) : DILOCO_OK;
}

/* The store's reads need this function; the length is not used. */
static diloco_status on_begin(void *context, size_t len)
{
    (void)context, (void)len;
    return DILOCO_OK;
}

/* Find out how much of this object an earlier process has received, and add it to the digest. The
 * last byte is read again, so that there is always one to read. */
static void find_part(arriving *a)
{
    char want[NAME_BYTES + 2];
    dl_buf note;
    dl_map map;
    uint64_t there;
    dl_buf_init(&note, sizeof a->at.etag + NAME_BYTES + 32);
    const bool has_note = dl_file_exists(a->note) && !dl_file_read(&note, a->note);
    const char *text = has_note ? dl_buf_str(&note) : NULL;
    const int n = snprintf(want, sizeof want, "%s\n", a->key);
    const char *etag = text && strncmp(text, want, (size_t)n) == 0 ? text + n : "";
    const size_t len = strcspn(etag, "\n");
    const char *number = etag[len] ? etag + len + 1 : "";
    if (len && len < sizeof a->at.etag && dl_text_to_u64(&there, number, strcspn(number, "\n")) &&
        there > 1 && dl_file_exists(a->path) && !dl_map_open(&map, a->path)) {
        if (there <= map.len) {
            a->at.begin = a->len = a->noted = (size_t)there - 1;
            memcpy(a->at.etag, etag, len);
            dl_digest_add(&a->digest, map.data, a->len);
        }
        dl_map_close(&map);
    }
    dl_buf_deinit(&note);
}

/* Read an object of the web into a->fd, from where an earlier process has stopped. */
static diloco_status receive_web(source *s, arriving *a, const char *key)
{
    const dl_sink sink = {.context = a, .begin = on_begin, .piece = on_piece};
    find_part(a);
    if (!a->at.begin) unlink(a->note); /* it is about other bytes */
    if (ftruncate(a->fd, (off_t)a->at.begin) || lseek(a->fd, 0, SEEK_END) < 0)
        return dl_fail_errno(errno, "write", a->path);
    const diloco_status status = dl_web_data_read(s->web, key, &a->at, sink);
    /* The part is of another version of the object, so the next try reads all of it. */
    if (status == DILOCO_EPROTO) unlink(a->note);
    return status;
}

/* Reads one object into a->path. The bytes are on the disk before it returns, since the rename of
 * fetch_one() must not reach the disk before them. */
static diloco_status receive(source *s, arriving *a, const char *key)
{
    a->fd = open(a->path, O_WRONLY | O_CREAT | O_CLOEXEC | (s->web ? 0 : O_TRUNC), 0666);
    if (a->fd < 0) return dl_fail_errno(errno, "open", a->path);
    dl_digest_begin(&a->digest);
    diloco_status status =
        s->web ? receive_web(s, a, key)
               : dl_store_read(s->store, key, (dl_sink){.context = a, .piece = on_piece}, DL_NEVER);
    if (!status && fsync(a->fd)) status = dl_fail_errno(errno, "write", a->path);
    close(a->fd);
    return status;
}

/* Fetches an object unless the cache has it whole. The digest is written before the rename: a file
 * in `files` with another digest counts as damaged, and a digest without a file does no harm. */
static diloco_status fetch_one(source *s, const char *key)
{
    char part[FILE_BYTES], path[FILE_BYTES], hex[DL_HASH_HEX + 1], text[DL_HASH_HEX + 32];
    char note[FILE_BYTES];
    s->n++;
    if (is_whole(s, key)) return DILOCO_OK;
    path_of(part, s, "part", "");
    path_of(note, s, "part.of", "");
    arriving a = {.path = part, .note = s->web ? note : NULL, .key = key};
    diloco_status status = receive(s, &a, key);
    if (status == DILOCO_EPROTO && a.at.begin) {
        a = (arriving){.path = part, .note = note, .key = key};
        status = receive(s, &a, key);
    }
    if (status) return dl_fail_context(status, "fetch %s/%s into %s", s->label, key, s->folder);
    dl_hash_to_hex(hex, dl_digest_end(&a.digest));
    const int n = snprintf(text, sizeof text, "%s %zu\n", hex, a.len);
    path_of(path, s, "digests", key);
    const dl_span span = {text, (size_t)n};
    DL_TRY(dl_file_write(path, &span, 1));
    path_of(path, s, "files", key);
    unlink(note);
    if (rename(part, path)) return dl_fail_errno(errno, "rename into", path);
    dl_log(DILOCO_LOG_INFO, "%s/%s: %zu bytes fetched", s->label, key, a.len);
    return DILOCO_OK;
}

/* ---- one address */

typedef struct names {
    dl_buf text; /* each with its zero */
    bool (*wants)(const char *key);
} names;

/* Notes an object directly below the prefix. One in a folder further down is not training data of
 * this address, and its name could not be a file's. */
static diloco_status on_found(void *context, const char *key, size_t len)
{
    names *found = context;
    (void)len;
    return strchr(key, '/') || (found->wants && !found->wants(key))
               ? DILOCO_OK
               : dl_buf_add(&found->text, key, strlen(key) + 1);
}

static bool is_listed(const dl_buf *found, const char *key)
{
    const char *at = (const char *)found->data, *end = at ? at + found->len : NULL;
    while (at && at < end && strcmp(at, key) != 0)
        at += strlen(at) + 1;
    return at && at < end;
}

/* Removes files whose objects are gone. The caller passes the whole folder to training, which reads
 * every file in it. */
static diloco_status remove_others(const source *s, const dl_buf *found)
{
    char path[FILE_BYTES];
    diloco_status status = DILOCO_OK;
    path_of(path, s, "files", "");
    DIR *dir = opendir(path);
    if (!dir) return dl_fail_errno(errno, "read", path);
    for (const struct dirent *entry; !status && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || is_listed(found, entry->d_name)) continue;
        path_of(path, s, "files", entry->d_name);
        if (unlink(path)) status = dl_fail_errno(errno, "remove", path);
    }
    closedir(dir);
    return status;
}

/* Fetches all objects of a prefix. An empty list removes nothing: a wrong address or a listing that
 * is late must not empty the cache. The names have at most 64 MiB. */
static diloco_status fetch_all(source *s)
{
    names found = {.wants = s->wants};
    dl_buf_init(&found.text, 64 << 20);
    diloco_status status = s->web ? dl_web_data_list(s->web, on_found, &found)
                                  : dl_store_list(s->store, "", NULL, on_found, &found, DL_NEVER);
    const char *at = (const char *)found.text.data, *end = at ? at + found.text.len : NULL;
    for (; !status && at && at < end; at += strlen(at) + 1)
        status = fetch_one(s, at);
    /* The rest of a prefix may be the training data of another command. */
    if (!status && s->n && !s->wants) status = remove_others(s, &found.text);
    dl_buf_deinit(&found.text);
    if (!status && !s->n)
        status = dl_fail(DILOCO_ENOENT, "%s/: no object is directly below this prefix", s->label);
    return status;
}

/* Fetches what the address names, and appends its path in the cache to `out`. The lock is held
 * until all of it is there. */
static diloco_status fetch(source *s, dl_buf *out, const dl_config *config)
{
    char path[FILE_BYTES];
    int lock = -1;
    if (dl_web_data_has(s->url))
        DL_TRY(dl_web_data_open(&s->web, s->url));
    else
        DL_TRY(dl_store_open(&s->store, s->url, false));
    diloco_status status = open_folder(s, &lock, config);
    if (!status) status = *s->key ? fetch_one(s, s->key) : fetch_all(s);
    dl_store_close(s->store);
    dl_web_data_close(s->web);
    if (lock >= 0) close(lock);
    DL_TRY(status);
    path_of(path, s, "files", s->key);
    return dl_buf_add(out, path, strlen(path));
}

/* Replaces the addresses of a comma-separated list by paths in the cache; files stay as written.
 * `list` changes only if all of them succeed. */
static diloco_status fetch_list(dl_config_path list, const dl_config *config, const char *option)
{
    char one[sizeof(dl_config_path)];
    dl_buf out;
    diloco_status status = DILOCO_OK;
    if (!strstr(list, "://")) return DILOCO_OK;
    dl_buf_init(&out, sizeof(dl_config_path) - 1);
    for (const char *at = list; !status && *at;) {
        const size_t len = strcspn(at, ",");
        const size_t blank = strspn(at, " ");
        snprintf(one, sizeof one, "%.*s", (int)(len > blank ? len - blank : 0), at + blank);
        if (out.len) status = dl_buf_add(&out, ",", 1);
        if (!status && strstr(one, "://")) {
            source s = {.n = 0};
            status = split(&s, one);
            if (!status) status = fetch(&s, &out, config);
        } else if (!status) {
            status = dl_buf_add(&out, one, strlen(one));
        }
        at += len + (at[len] == ',');
    }
    if (!status && out.len) {
        memcpy(list, out.data, out.len);
        list[out.len] = '\0';
    }
    dl_buf_deinit(&out);
    return status ? dl_fail_context(status, "%s", option) : DILOCO_OK;
}

diloco_status dl_fetch_data(dl_config *config)
{
    DL_TRY(fetch_list(config->train_path, config, "data.train_path"));
    return fetch_list(config->test_path, config, "data.test_path");
}

/* Replace an address by the path of its file in the cache. A comma is a part of the address. */
static diloco_status fetch_file(dl_config_path address, const dl_config *config)
{
    dl_buf out;
    source s = {.n = 0};
    dl_buf_init(&out, sizeof(dl_config_path) - 1);
    diloco_status status = split(&s, address);
    if (!status) status = fetch(&s, &out, config);
    if (!status) memcpy(address, out.data, out.len), address[out.len] = '\0';
    dl_buf_deinit(&out);
    return status ? dl_fail_context(status, "trainer.init_from") : DILOCO_OK;
}

diloco_status dl_fetch_model(dl_config *config)
{
    if (is_model_file(config->init_from)) return fetch_file(config->init_from, config);
    if (strncmp(config->init_from, "hf://models/", 12) != 0) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "trainer.init_from = \"%.200s\": a model of Hugging Face is converted first: "
                   "diloco import %.200s --out DIR",
                   config->init_from, config->init_from);
}

/* The weights and the texts beside them. A repository may have the same weights in other formats,
 * which would be fetched for nothing. */
static bool is_of_import(const char *key)
{
    return ends(key, ".safetensors") || ends(key, ".json") || ends(key, ".txt") ||
           ends(key, ".model");
}

diloco_status dl_fetch_import(dl_config_path folder, const char *url, const dl_config *config)
{
    dl_buf out;
    source s = {.wants = is_of_import};
    dl_buf_init(&out, sizeof(dl_config_path) - 1);
    diloco_status status = split(&s, url);
    if (!status && *s.key)
        status = dl_fail(DILOCO_EINVAL, "%.200s: a model is a folder, with a / at its end", url);
    if (!status) status = fetch(&s, &out, config);
    if (!status) memcpy(folder, out.data, out.len), folder[out.len] = '\0';
    dl_buf_deinit(&out);
    return status;
}
