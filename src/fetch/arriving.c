/* arriving.c - see arriving.h. The record is
 *
 *     offset 0      text, then zeros: "diloco arriving 1\n<length>\n<bytes of a
 * block>\n<version>\n"
 *
 *            1016   u64: 0; anything else: spoiled
 *
 *            1024   u64[blocks]: the first 8 bytes of each block's digest, 1 for 0
 *
 * in the machine's byte order: the cache belongs to one machine. Words are written with pwrite, so
 * a full disk is an error and no signal, and read from a shared mapping. */
#include "fetch/arriving.h"

#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD = 1024, SPOILED = 1016, WORD = 8 };

#define MAGIC "diloco arriving 1"

/* A file that is mapped. No descriptor is kept, since there may be thousands of shards. */
typedef struct mapped {
    char *path; /* owned */
    dl_map map; /* shared */
    dev_t dev;  /* of the file, which may lose its path */
    ino_t ino;
} mapped;

struct dl_arriving {
    mapped data, record;
    size_t n_blocks;
    char version[DL_ARRIVING_VERSION];
};

static size_t blocks_of(size_t len)
{
    return len / DL_ARRIVING_BLOCK + (len % DL_ARRIVING_BLOCK != 0);
}

/* ---- making */

static diloco_status write_data(const char *path, size_t len)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return dl_fail_errno(errno, "open", path);
    const int error = ftruncate(fd, (off_t)len) ? errno : 0;
    close(fd);
    return error ? dl_fail_errno(error, "write", path) : DILOCO_OK;
}

/* Zeros are written for the words, so that their space is taken. */
static diloco_status write_record(const char *record, size_t len, const char *version)
{
    char head[HEAD] = "";
    const size_t words = blocks_of(len) * WORD;
    void *zeros = calloc(1, dl_size_max(words, 1));
    if (!zeros) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu blocks", blocks_of(len));
    snprintf(head, SPOILED, MAGIC "\n%zu\n%d\n%s\n", len, DL_ARRIVING_BLOCK, version);
    const dl_span spans[] = {{head, sizeof head}, {zeros, words}};
    const diloco_status status = dl_file_write(record, spans, 2);
    free(zeros);
    return status;
}

/* The record appears last, and an older one goes first: it is about other bytes. A process that
 * uses older files keeps them. */
diloco_status dl_arriving_create(const char *path, const char *record, size_t len,
                                 const char *version)
{
    DL_ASSERT(len > 0 && *version && strlen(version) < DL_ARRIVING_VERSION);
    unlink(record);
    unlink(path);
    DL_TRY(write_data(path, len));
    return write_record(record, len, version);
}

/* ---- opening */

static diloco_status map_file(mapped *m, int fd)
{
    struct stat st = {.st_size = 0};
    if (fstat(fd, &st)) return dl_fail_errno(errno, "open", m->path);
    if (st.st_size <= 0) return dl_fail(DILOCO_EPROTO, "%s is empty", m->path);
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return dl_fail_errno(errno, "map", m->path);
    m->map = (dl_map){data, (size_t)st.st_size};
    m->dev = st.st_dev;
    m->ino = st.st_ino;
    return DILOCO_OK;
}

static diloco_status open_mapped(mapped *m, const char *path)
{
    m->path = strdup(path);
    if (!m->path) return dl_fail(DILOCO_ENOMEM, "out of memory for a file's path");
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return dl_fail_errno(errno, "open", path);
    const diloco_status status = map_file(m, fd);
    close(fd);
    return status;
}

static void close_mapped(mapped *m)
{
    dl_map_close(&m->map);
    free(m->path);
}

static bool is_same(const mapped *m, const struct stat *st)
{
    return st->st_dev == m->dev && st->st_ino == m->ino;
}

/* Opens the file for writing. Another process may have moved or replaced it: then it is not there,
 * and the file that has its path now is not touched. */
static diloco_status reopen(int *fd, const mapped *m)
{
    struct stat st;
    *fd = open(m->path, O_WRONLY | O_CLOEXEC);
    if (*fd < 0) return dl_fail_errno(errno, "open", m->path);
    if (!fstat(*fd, &st) && is_same(m, &st)) return DILOCO_OK;
    close(*fd);
    return dl_fail(DILOCO_ENOENT, "%s was replaced by another process", m->path);
}

static diloco_status write_at(const mapped *m, size_t begin, const void *data, size_t len)
{
    int fd;
    diloco_status status = DILOCO_OK;
    DL_TRY(reopen(&fd, m));
    for (size_t at = 0; !status && at < len;) {
        const ssize_t n = pwrite(fd, (const char *)data + at, len - at, (off_t)(begin + at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) status = dl_fail_errno(n < 0 ? errno : ENOSPC, "write", m->path);
        at += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    return status;
}

/* Copies the next line of the head. Returns NULL if it is too long. */
static const char *take_line(char *out, size_t cap, const char *text)
{
    const size_t len = strcspn(text, "\n");
    if (!text[len] || len >= cap) return NULL;
    snprintf(out, cap, "%.*s", (int)len, text);
    return text + len + 1;
}

/* The record may be damaged: every value of it is compared with the sizes of the files. */
static bool read_head(dl_arriving *a)
{
    char head[HEAD + 1] = "", magic[32], len[32], block[32];
    uint64_t n, size;
    if (a->record.map.len < HEAD) return false;
    memcpy(head, a->record.map.data, SPOILED);
    const char *at = take_line(magic, sizeof magic, head);
    if (at) at = take_line(len, sizeof len, at);
    if (at) at = take_line(block, sizeof block, at);
    if (at) at = take_line(a->version, sizeof a->version, at);
    if (!at || strcmp(magic, MAGIC) != 0 || !*a->version) return false;
    if (!dl_text_to_u64(&n, len, strlen(len)) || !dl_text_to_u64(&size, block, strlen(block)))
        return false;
    a->n_blocks = blocks_of(a->data.map.len);
    return n == a->data.map.len && size == DL_ARRIVING_BLOCK &&
           a->record.map.len == HEAD + a->n_blocks * WORD;
}

static diloco_status open_files(dl_arriving *a, const char *path, const char *record)
{
    DL_TRY(open_mapped(&a->record, record));
    DL_TRY(open_mapped(&a->data, path));
    if (!read_head(a)) return dl_fail(DILOCO_EPROTO, "%s is no record of %s", record, path);
    return dl_arriving_is_spoiled(a) ? dl_fail(DILOCO_EPROTO, "%s must be fetched again", path)
                                     : DILOCO_OK;
}

diloco_status dl_arriving_open(dl_arriving **out, const char *path, const char *record)
{
    dl_arriving *a = *out = calloc(1, sizeof *a);
    if (!a) return dl_fail(DILOCO_ENOMEM, "out of memory for a file");
    const diloco_status status = open_files(a, path, record);
    if (!status) return DILOCO_OK;
    dl_arriving_close(a);
    *out = NULL;
    return status;
}

void dl_arriving_close(dl_arriving *a)
{
    if (!a) return;
    close_mapped(&a->data);
    close_mapped(&a->record);
    free(a);
}

/* ---- blocks that have arrived */

const dl_map *dl_arriving_map(const dl_arriving *a)
{
    return &a->data.map;
}

const char *dl_arriving_version(const dl_arriving *a)
{
    return a->version;
}

size_t dl_arriving_blocks(const dl_arriving *a)
{
    return a->n_blocks;
}

size_t dl_arriving_block_len(const dl_arriving *a, size_t block)
{
    return dl_size_min(a->data.map.len - block * DL_ARRIVING_BLOCK, DL_ARRIVING_BLOCK);
}

/* The word at this byte of the record. Bytes that were put before it are seen after it. */
static uint64_t word_at(const dl_arriving *a, size_t at)
{
    return __atomic_load_n((const uint64_t *)(const void *)(a->record.map.data + at),
                           __ATOMIC_ACQUIRE);
}

static uint64_t word_of(const dl_arriving *a, size_t block)
{
    return word_at(a, HEAD + block * WORD);
}

bool dl_arriving_has(const dl_arriving *a, size_t block)
{
    DL_ASSERT(block < a->n_blocks);
    return word_of(a, block) != 0;
}

size_t dl_arriving_bytes(const dl_arriving *a)
{
    size_t bytes = 0;
    for (size_t i = 0; i < a->n_blocks; i++)
        if (word_of(a, i)) bytes += dl_arriving_block_len(a, i);
    return bytes;
}

bool dl_arriving_is_spoiled(const dl_arriving *a)
{
    return word_at(a, SPOILED) != 0;
}

/* ---- blocks */

static diloco_status write_word(const dl_arriving *a, size_t at, uint64_t word)
{
    return write_at(&a->record, at, &word, sizeof word);
}

static uint64_t digest_of(const void *data, size_t len)
{
    uint64_t word;
    const dl_hash hash = dl_hash_bytes(data, len);
    memcpy(&word, hash.bytes, sizeof word);
    return word ? word : 1;
}

static uint64_t digest_at(const dl_arriving *a, size_t block)
{
    return digest_of(a->data.map.data + block * DL_ARRIVING_BLOCK, dl_arriving_block_len(a, block));
}

/* A file that another process has finished meanwhile needs the block no more, if that one has the
 * same. */
diloco_status dl_arriving_put(dl_arriving *a, size_t block, const void *data)
{
    const size_t len = dl_arriving_block_len(a, block);
    DL_ASSERT(block < a->n_blocks);
    diloco_status status = write_at(&a->data, block * DL_ARRIVING_BLOCK, data, len);
    if (!status) status = write_word(a, HEAD + block * WORD, digest_of(data, len));
    if (status != DILOCO_ENOENT || !dl_arriving_has(a, block)) return status;
    if (word_of(a, block) == digest_of(data, len)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "%s was finished with other bytes", a->data.path);
}

bool dl_arriving_check(dl_arriving *a, size_t block)
{
    const uint64_t word = word_of(a, block);
    if (word && word == digest_at(a, block)) return true;
    if (word && write_word(a, HEAD + block * WORD, 0)) dl_arriving_spoil(a);
    return false;
}

diloco_status dl_arriving_verify(dl_arriving *a)
{
    for (size_t i = 0; i < a->n_blocks; i++)
        if (word_of(a, i) && word_of(a, i) != digest_at(a, i))
            DL_TRY(write_word(a, HEAD + i * WORD, 0));
    return DILOCO_OK;
}

diloco_status dl_arriving_finish(dl_hash *out, const dl_arriving *a)
{
    int fd;
    DL_TRY(reopen(&fd, &a->data));
    const int error = fsync(fd) ? errno : 0;
    close(fd);
    if (error) return dl_fail_errno(error, "write", a->data.path);
    for (size_t i = 0; i < a->n_blocks; i++)
        if (word_of(a, i) != digest_at(a, i))
            return dl_fail(DILOCO_EPROTO,
                           "%s: the bytes from %zu on are not those that arrived; look for errors "
                           "of the disk, then start the command again, which fetches the file "
                           "again",
                           a->data.path, i * DL_ARRIVING_BLOCK);
    *out = dl_digest_bytes(a->data.map.data, a->data.map.len);
    return DILOCO_OK;
}

/* A record that cannot be written is removed, unless the one at its path is another one. */
void dl_arriving_spoil(dl_arriving *a)
{
    const diloco_status status = write_word(a, SPOILED, 1);
    if (status && status != DILOCO_ENOENT) unlink(a->record.path);
}

bool dl_arriving_is_at(const dl_arriving *a, const char *path)
{
    struct stat there;
    return !stat(path, &there) && is_same(&a->data, &there);
}
