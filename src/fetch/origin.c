/* origin.c - see origin.h.
 *
 * A lock on the folder makes processes of one machine take turns. An object is received into
 * `part`, its digest is written, and then it is renamed into `files`. So a kill at any moment
 * leaves an object that is whole, or one whose digest does not fit, which is fetched again. Of a
 * web address `part.of` has the object's name, its ETag and the number of bytes that are on the
 * disk, so a later process continues `part`. */
#include "fetch/origin.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = DL_ORIGIN_NAME, FOLDER_BYTES = DL_PATH_MAX, FILE_BYTES = DL_ORIGIN_PATH };

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
static diloco_status split(dl_data_origin *o, const char *url)
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
    if (url + at <= host || len - at >= sizeof o->key)
        return dl_fail(DILOCO_EINVAL, "%.200s: name a prefix with a / at its end, or an object",
                       url);
    snprintf(o->key, sizeof o->key, "%.*s", (int)(len - at), url + at);
    snprintf(o->url, sizeof o->url, "%.*s%s", (int)(at - 1), url, url + len);
    snprintf(o->label, sizeof o->label, "%.*s", (int)(at - 1), url);
    return DILOCO_OK;
}

bool dl_origin_next(char out[sizeof(dl_config_path)], const char **list)
{
    const size_t len = strcspn(*list, ","), blank = strspn(*list, " ");
    if (!**list) return false;
    snprintf(out, sizeof(dl_config_path), "%.*s", (int)(len > blank ? len - blank : 0),
             *list + blank);
    *list += len + ((*list)[len] == ',');
    return true;
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

void dl_origin_path(char out[FILE_BYTES], const dl_data_origin *o, const char *kind,
                    const char *key)
{
    snprintf(out, FILE_BYTES, "%s/%s%s%s", o->folder, kind, *key ? "/" : "", key);
}

diloco_status dl_origin_init(dl_data_origin *out, const char *url, const dl_config *config)
{
    char cache[FOLDER_BYTES], hex[DL_HASH_HEX + 1];
    *out = (dl_data_origin){.store = NULL};
    DL_TRY(split(out, url));
    DL_TRY(choose_cache(cache, config));
    dl_hash_to_hex(hex, dl_hash_bytes(out->url, strlen(out->url)));
    snprintf(out->folder, sizeof out->folder, "%.*s/%.16s", FOLDER_BYTES - 32, cache, hex);
    return DILOCO_OK;
}

/* An open file description lock ends with its process, so a killed one never blocks the next. */
diloco_status dl_origin_lock(dl_data_origin *o, int *lock)
{
    static const char *const folders[] = {"files", "digests", "arriving", "blocks", "filling"};
    char path[FILE_BYTES];
    struct flock whole = {.l_type = F_WRLCK};
    *lock = -1;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        dl_origin_path(path, o, folders[i], "");
        DL_TRY(dl_dir_make(path));
    }
    dl_origin_path(path, o, "lock", "");
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*lock < 0) return dl_fail_errno(errno, "open", path);
    int failed;
    while ((failed = fcntl(*lock, F_OFD_SETLKW, &whole)) && errno == EINTR)
        ;
    return failed ? dl_fail_errno(errno, "lock", path) : DILOCO_OK;
}

int dl_origin_try_lock(const dl_data_origin *o)
{
    char path[FILE_BYTES];
    struct flock whole = {.l_type = F_WRLCK};
    dl_origin_path(path, o, "lock", "");
    const int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0 || !fcntl(lock, F_OFD_SETLK, &whole)) return lock;
    close(lock);
    return -1;
}

bool dl_origin_is_whole(const dl_data_origin *o, const char *key)
{
    char path[FILE_BYTES], hex[DL_HASH_HEX + 1], text[DL_HASH_HEX + 32];
    dl_buf noted;
    dl_map map;
    dl_origin_path(path, o, "digests", key);
    dl_buf_init(&noted, sizeof text);
    const bool has_note = dl_file_exists(path) && !dl_file_read(&noted, path);
    const char *want = has_note ? dl_buf_str(&noted) : NULL;
    dl_origin_path(path, o, "files", key);
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

/* ---- connections */

diloco_status dl_origin_connect(dl_data_origin *o)
{
    return dl_web_data_has(o->url) ? dl_web_data_open(&o->web, o->url)
                                   : dl_store_open(&o->store, o->url, false);
}

void dl_origin_abort(dl_data_origin *o)
{
    if (o->store) dl_store_abort(o->store);
    if (o->web) dl_web_data_abort(o->web);
}

void dl_origin_disconnect(dl_data_origin *o)
{
    dl_store_close(o->store);
    dl_web_data_close(o->web);
    o->store = NULL;
    o->web = NULL;
}

diloco_status dl_origin_read_part(dl_data_origin *o, const char *key, dl_store_part *part,
                                  dl_sink sink)
{
    if (o->store && !dl_store_reads_parts(o->store))
        return dl_fail(DILOCO_EREFUSED, "%s: objects are read only whole", o->label);
    if (o->store) return dl_store_read_part(o->store, key, part, sink, DL_NEVER);
    dl_web_position at = {.begin = part->begin, .end = part->end};
    memcpy(at.etag, part->version, sizeof at.etag);
    const diloco_status status = dl_web_data_read(o->web, key, &at, sink);
    memcpy(part->version, at.etag, sizeof at.etag);
    return status;
}

/* ---- one object */

typedef struct receiving {
    int fd;
    const char *path;
    size_t len;              /* bytes received */
    dl_digest_stream digest; /* of these bytes, so that the file is not read again */
    /* Of the web: the position and version that the read begins at, the name of part.of, and the
     * bytes that it says are on the disk. */
    dl_web_position at;
    const char *note, *key;
    size_t noted;
} receiving;

/* Bytes between two notes. Each waits for the disk. */
#define NOTE_EVERY ((size_t)8 << 20)

/* Write down how much of the object is on the disk. A part of an object without an ETag cannot be
 * continued later, so it gets no note. */
static diloco_status note_part(receiving *a)
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
    receiving *a = context;
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
static void find_part(receiving *a)
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
static diloco_status receive_web(dl_data_origin *o, receiving *a, const char *key)
{
    const dl_sink sink = {.context = a, .begin = on_begin, .piece = on_piece};
    find_part(a);
    if (!a->at.begin) unlink(a->note); /* it is about other bytes */
    if (ftruncate(a->fd, (off_t)a->at.begin) || lseek(a->fd, 0, SEEK_END) < 0)
        return dl_fail_errno(errno, "write", a->path);
    const diloco_status status = dl_web_data_read(o->web, key, &a->at, sink);
    /* The part is of another version of the object, so the next try reads all of it. */
    if (status == DILOCO_EPROTO) unlink(a->note);
    return status;
}

/* Reads one object into a->path. The bytes are on the disk before it returns, since the rename of
 * fetch_one() must not reach the disk before them. */
static diloco_status receive(dl_data_origin *o, receiving *a, const char *key)
{
    a->fd = open(a->path, O_WRONLY | O_CREAT | O_CLOEXEC | (o->web ? 0 : O_TRUNC), 0666);
    if (a->fd < 0) return dl_fail_errno(errno, "open", a->path);
    dl_digest_begin(&a->digest);
    diloco_status status =
        o->web ? receive_web(o, a, key)
               : dl_store_read(o->store, key, (dl_sink){.context = a, .piece = on_piece}, DL_NEVER);
    if (!status && fsync(a->fd)) status = dl_fail_errno(errno, "write", a->path);
    close(a->fd);
    return status;
}

/* The digest is written before the rename: a file in `files` with another digest counts as damaged,
 * and a digest without a file does no harm. */
diloco_status dl_origin_keep(const dl_data_origin *o, const char *key, const char *path,
                             dl_hash digest, size_t len)
{
    char to[FILE_BYTES], hex[DL_HASH_HEX + 1], text[DL_HASH_HEX + 32];
    dl_hash_to_hex(hex, digest);
    const int n = snprintf(text, sizeof text, "%s %zu\n", hex, len);
    const dl_span span = {text, (size_t)n};
    dl_origin_path(to, o, "digests", key);
    DL_TRY(dl_file_write(to, &span, 1));
    dl_origin_path(to, o, "files", key);
    if (rename(path, to)) return dl_fail_errno(errno, "rename into", to);
    dl_log(DILOCO_LOG_INFO, "%s/%s: %zu bytes fetched", o->label, key, len);
    return DILOCO_OK;
}

diloco_status dl_origin_fetch(dl_data_origin *o, const char *key)
{
    char part[FILE_BYTES], note[FILE_BYTES];
    dl_origin_path(part, o, "part", "");
    dl_origin_path(note, o, "part.of", "");
    receiving a = {.path = part, .note = o->web ? note : NULL, .key = key};
    diloco_status status = receive(o, &a, key);
    if (status == DILOCO_EPROTO && a.at.begin) {
        a = (receiving){.path = part, .note = note, .key = key};
        status = receive(o, &a, key);
    }
    if (status) return dl_fail_context(status, "fetch %s/%s into %s", o->label, key, o->folder);
    unlink(note);
    return dl_origin_keep(o, key, part, dl_digest_end(&a.digest), a.len);
}
