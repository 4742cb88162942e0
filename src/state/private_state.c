/* private_state.c - <state_dir>/<replica>/local.safetensors and the lock beside it.
 *
 * The metadata begins with "digest", so its 32 digits are always at DIGITS_AT. It is
 * dl_digest_bytes of the whole file with zeros for those digits. So it covers header, facts and
 * tensors, and the file is still plain safetensors. A read maps the file, checks the digest, then
 * every name and size, and only then copies: a damaged file changes nothing.
 *
 * The lock is flock on an open file, so it ends with the process, however that ends. */
#include "state/private_state.h"

#include "base/free_memory.h"
#include "base/safetensors.h"
#include "log/fields.h"
#include "state/local_facts.h"
#include "tensor/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are saved as they are");

static const char format[] = "diloco-local", file_name[] = "local.safetensors";
static const char head[] = "{\"__metadata__\":{\"digest\":\"";
static const char zeros[DL_HASH_HEX + 1] = "00000000000000000000000000000000";
static const char private_prefix[] = "diloco.private.";

enum {
    PREFIX = 8, /* bytes of the header's length */
    DIGITS_AT = PREFIX + sizeof head - 1,
    FACTS_MAX = 4 << 20,
    NAME_MAX_BYTES = DILOCO_NAME_MAX + sizeof private_prefix /* with its zero byte */
};

typedef char part_name[NAME_MAX_BYTES];

/* One replica's folder. `lock` is held from open to close. parts, spans and names describe the file
 * that is written or read, and are kept for the next save. */
struct dl_local {
    int lock;
    char replica[DL_REPLICA_MAX + 1];
    char path[PATH_MAX];
    dl_buf header, facts;
    /* [n_parts]: tensors, then privates; spans has one more at its front */
    size_t n_parts;
    dl_st_tensor *parts;
    dl_span *spans;
    part_name *names;
    unsigned char *copy; /* of all parts, as copied_len places them; NULL: none is reserved */
    size_t copy_len;
};

/* ---- the folder */

/* The file has the owner's pid, for the error text of a second process. It is read without a lock,
 * so only its digits are used. */
static diloco_status take_lock(dl_local *local, const char *folder, const char *replica)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/lock", folder) >= (int)sizeof path)
        return dl_fail_errno(ENAMETOOLONG, "open", folder);
    local->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (local->lock < 0) return dl_fail_errno(errno, "open", path);
    if (flock(local->lock, LOCK_EX | LOCK_NB)) {
        char pid[16] = "";
        if (errno != EWOULDBLOCK) return dl_fail_errno(errno, "lock", path);
        ssize_t n = pread(local->lock, pid, sizeof pid - 1, 0);
        pid[strspn(n > 0 ? pid : "", "0123456789")] = 0;
        return dl_fail(DILOCO_EINVAL,
                       "replica %s already runs here as process %s (%s): give another name or "
                       "another run.state_dir",
                       replica, *pid ? pid : "unknown", path);
    }
    if (ftruncate(local->lock, 0) || dprintf(local->lock, "%ld\n", (long)getpid()) < 0)
        return dl_fail_errno(errno, "write", path);
    return DILOCO_OK;
}

/* Removes half-written files (base/file.c) that a killed process left. This process holds the lock.
 */
static diloco_status remove_leftovers(const char *folder)
{
    DIR *dir = opendir(folder);
    if (!dir) return dl_fail_errno(errno, "open", folder);
    diloco_status status = DILOCO_OK;
    size_t prefix = strlen(file_name);
    for (struct dirent *entry; !status && (entry = readdir(dir));) {
        size_t len = strlen(entry->d_name);
        if (strncmp(entry->d_name, file_name, prefix) != 0 || len < prefix + 4) continue;
        if (strcmp(entry->d_name + len - 4, ".tmp") != 0) continue;
        if (unlinkat(dirfd(dir), entry->d_name, 0))
            status = dl_fail_errno(errno, "remove", entry->d_name);
    }
    closedir(dir);
    return status;
}

static diloco_status make_path(char out[PATH_MAX], const char *state_dir, const char *replica)
{
    if (snprintf(out, PATH_MAX, "%s/%s/%s", state_dir, replica, file_name) < PATH_MAX)
        return DILOCO_OK;
    return dl_fail_errno(ENAMETOOLONG, "open the state in", state_dir);
}

/* The lock comes before the cleaning: half-written files may belong to a process that is still
 * writing. */
static diloco_status open_folder(dl_local *local, const char *state_dir, const char *replica)
{
    char folder[PATH_MAX];
    DL_TRY(make_path(local->path, state_dir, replica));
    snprintf(folder, sizeof folder, "%s/%s", state_dir, replica);
    DL_TRY(dl_dir_make(folder));
    DL_TRY(take_lock(local, folder, replica));
    return remove_leftovers(folder);
}

/* The assertion guards a path: a replica's name becomes the name of a folder. */
diloco_status dl_local_open(dl_local **out, const char *state_dir, const char *replica)
{
    DL_ASSERT(dl_replica_name_ok(replica));
    *out = NULL;
    dl_local *local = calloc(1, sizeof *local);
    if (!local) return dl_fail(DILOCO_ENOMEM, "out of memory for local state");
    local->lock = -1;
    strcpy(local->replica, replica); /* a valid name fits */
    dl_buf_init(&local->header, DL_ST_HEADER_MAX);
    dl_buf_init(&local->facts, FACTS_MAX);
    diloco_status status = open_folder(local, state_dir, replica);
    if (status)
        dl_local_close(local);
    else
        *out = local;
    return status ? dl_fail_context(status, "local state") : DILOCO_OK;
}

/* The record is an empty file. A failure to write it is ignored, because a later claim finds the
 * same result in the store. */
void dl_local_note_claim(dl_local *local, bool lost)
{
    char path[PATH_MAX];
    if (!local) return;
    const int len = (int)(strlen(local->path) - strlen(file_name));
    if (snprintf(path, sizeof path, "%.*s%s", len, local->path, DL_LOCAL_LOST) >= (int)sizeof path)
        return;
    const int fd = lost ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (fd >= 0) close(fd);
    if (!lost) unlink(path);
}

void dl_local_close(dl_local *local)
{
    if (!local) return;
    if (local->lock >= 0) close(local->lock);
    dl_buf_deinit(&local->header);
    dl_buf_deinit(&local->facts);
    free(local->parts);
    free(local->spans);
    free(local->names);
    free(local->copy);
    free(local);
}

/* ---- contents of the file */

static size_t element_count(const diloco_tensor *t)
{
    size_t n = 1;
    for (int d = 0; d < t->n_dims; d++)
        n *= t->shape[d]; /* no overflow: it is in memory */
    return n;
}

/* The file has the stored type, f32 for a narrower tensor, since the mirror holds the values. */
static void describe_tensor(dl_st_tensor *part, part_name name, const diloco_tensor *t)
{
    snprintf(name, sizeof(part_name), "%s", t->name);
    *part = (dl_st_tensor){
        .name = name, .dtype = dl_dtype_name(dl_dtype_stored(t->dtype)), .n_dims = t->n_dims};
    memcpy(part->shape, t->shape, (size_t)t->n_dims * sizeof *t->shape);
}

/* The prefix keeps private names apart from the model's tensors. */
static void describe_private(dl_st_tensor *part, part_name name, const dl_private *p)
{
    DL_ASSERT(strlen(p->name) <= DILOCO_NAME_MAX && (!p->f32 || p->len % sizeof(float) == 0));
    snprintf(name, sizeof(part_name), "%s%s", private_prefix, p->name);
    *part = (dl_st_tensor){.name = name, .dtype = p->f32 ? "F32" : "U8", .n_dims = 1};
    part->shape[0] = p->f32 ? p->len / sizeof(float) : p->len;
}

/* Allocates space for n parts, unless it has exactly that. The number changes only between runs, so
 * a save allocates nothing after the first. */
static diloco_status reserve_parts(dl_local *local, size_t n)
{
    if (local->spans && n == local->n_parts) return DILOCO_OK;
    free(local->parts);
    free(local->spans);
    free(local->names);
    local->n_parts = 0;
    local->parts = calloc(n + 1, sizeof *local->parts);
    local->spans = calloc(n + 1, sizeof *local->spans);
    local->names = calloc(n + 1, sizeof *local->names);
    if (!local->parts || !local->spans || !local->names)
        return dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", n);
    local->n_parts = n;
    return DILOCO_OK;
}

/* Sets parts, names, and in spans[1 + i] the memory of part i. */
static diloco_status describe_all(dl_local *local, const diloco_tensor *tensors, size_t n_tensors,
                                  const dl_private *privates, size_t n_privates)
{
    DL_TRY(reserve_parts(local, n_tensors + n_privates));
    for (size_t i = 0; i < n_tensors; i++) {
        describe_tensor(&local->parts[i], local->names[i], &tensors[i]);
        local->spans[1 + i] =
            (dl_span){tensors[i].data, element_count(&tensors[i]) *
                                           dl_dtype_size(dl_dtype_stored(tensors[i].dtype))};
    }
    for (size_t i = 0; i < n_privates; i++) {
        size_t k = n_tensors + i;
        describe_private(&local->parts[k], local->names[k], &privates[i]);
        local->spans[1 + k] = (dl_span){privates[i].data, privates[i].len};
    }
    return DILOCO_OK;
}

/* ---- saving */

/* Writes the file's header with zeros for the digest. The header is kept in `local`, so
 * dl_local_write needs no facts. */
static diloco_status make_header(dl_local *local, const dl_local_facts *facts)
{
    DL_TRY(dl_local_facts_write(&local->facts, facts));
    const char *text = dl_buf_str(&local->facts);
    if (!text) return DILOCO_ENOMEM;
    dl_st_meta meta[] = {{"digest", zeros}, {"format", format}, {"version", "1"}, {"facts", text}};
    dl_buf_clear(&local->header);
    DL_TRY(dl_st_header(&local->header, local->parts, local->n_parts, meta,
                        sizeof meta / sizeof *meta));
    local->spans[0] = (dl_span){local->header.data, local->header.len};
    return DILOCO_OK;
}

/* Hashes all parts, writes the digits into the header, and replaces the file atomically
 * (base/file.c). A crash leaves the old file or the new one. Returns DILOCO_EFULL if the disk is
 * full; then the old file is unchanged. */
static diloco_status write_file(dl_local *local)
{
    dl_digest_stream stream;
    char hex[DL_HASH_HEX + 1];
    memcpy(local->header.data + DIGITS_AT, zeros, DL_HASH_HEX); /* again after an error */
    dl_digest_begin(&stream);
    for (size_t i = 0; i <= local->n_parts; i++)
        dl_digest_add(&stream, local->spans[i].data, local->spans[i].len);
    dl_hash_to_hex(hex, dl_digest_end(&stream));
    memcpy(local->header.data + DIGITS_AT, hex, DL_HASH_HEX);
    return dl_file_write(local->path, local->spans, local->n_parts + 1);
}

static diloco_status fill_in_place(const dl_private *privates, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (privates[i].fill) DL_TRY(privates[i].fill(privates[i].user, privates[i].data));
    return DILOCO_OK;
}

diloco_status dl_local_save(dl_local *local, const dl_local_facts *facts,
                            const diloco_tensor *tensors, size_t n_tensors,
                            const dl_private *privates, size_t n_privates, bool restored)
{
    DL_ASSERT(dl_run_id_ok(facts->run));
    diloco_status status = restored ? DILOCO_OK : fill_in_place(privates, n_privates);
    if (!status) status = describe_all(local, tensors, n_tensors, privates, n_privates);
    if (!status) status = make_header(local, facts);
    return status ? dl_fail_context(status, "local state") : dl_local_write(local);
}

diloco_status dl_local_write(dl_local *local)
{
    const diloco_status status = write_file(local);
    return status ? dl_fail_context(status, "local state") : DILOCO_OK;
}

/* ---- saving beside training */

typedef struct copying {
    unsigned char *to;
    const dl_span *from;
    size_t n, len;
} copying;

/* Bytes of the copy from one part's beginning to the next one's. */
static size_t copied_len(size_t len)
{
    enum { LINE = 64 };
    return (len + LINE - 1) / LINE * LINE;
}

static size_t copied_lens(const dl_span *parts, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        len += copied_len(parts[i].len);
    return len;
}

/* One thread's part of the copy: the bytes [begin, end) of all parts as if they were adjacent. */
static void copy_part(void *context, int part, int n_parts)
{
    enum { GRAIN = 4096 };
    const copying *c = context;
    size_t begin, end, at = 0;
    dl_part_range(&begin, &end, c->len, GRAIN, part, n_parts);
    for (size_t i = 0; i < c->n && at < end; at += copied_len(c->from[i++].len)) {
        const size_t first = dl_size_max(begin, at);
        const size_t last = dl_size_min(end, at + c->from[i].len);
        if (c->from[i].data && first < last)
            memcpy(c->to + first, (const unsigned char *)c->from[i].data + (first - at),
                   last - first);
    }
}

/* Touch each page, so that the first copy is as fast as the next ones. */
static void touch_part(void *context, int part, int n_parts)
{
    enum { PAGE = 4096 };
    const copying *c = context;
    size_t begin, end;
    dl_part_range(&begin, &end, c->len, PAGE, part, n_parts);
    if (begin < end) memset(c->to + begin, 0, end - begin);
}

/* Half of the free memory is the limit, since the trainer's own needs may still grow. */
diloco_status dl_local_reserve(dl_local *local, const diloco_tensor *tensors, size_t n_tensors,
                               const dl_private *privates, size_t n_privates, dl_pool *pool)
{
    DL_TRY(describe_all(local, tensors, n_tensors, privates, n_privates));
    const size_t len = copied_lens(local->spans + 1, local->n_parts);
    if (len > dl_memory_free() / 2 || !(local->copy = aligned_alloc(64, dl_size_max(len, 64))))
        return dl_fail(DILOCO_ENOMEM, "out of memory for a copy of %zu bytes of private state",
                       len);
    local->copy_len = len;
    dl_pool_run(pool, touch_part, &(copying){.to = local->copy, .len = len});
    return DILOCO_OK;
}

/* Afterwards the spans refer to the copy, so the trainer may change its tensors while another
 * thread writes. */
diloco_status dl_local_copy(dl_local *local, const dl_local_facts *facts,
                            const diloco_tensor *tensors, size_t n_tensors,
                            const dl_private *privates, size_t n_privates, bool restored,
                            dl_pool *pool)
{
    DL_ASSERT(dl_run_id_ok(facts->run) && local->copy);
    diloco_status status = describe_all(local, tensors, n_tensors, privates, n_privates);
    if (!status) status = make_header(local, facts);
    if (status) return dl_fail_context(status, "local state");
    dl_span *parts = local->spans + 1;
    for (size_t i = 0; i < n_privates; i++)
        if (privates[i].fill && !restored) parts[n_tensors + i].data = NULL;
    copying c = {local->copy, parts, local->n_parts, local->copy_len};
    DL_ASSERT(copied_lens(c.from, c.n) == c.len);
    dl_pool_run(pool, copy_part, &c);
    unsigned char *at = local->copy;
    for (size_t i = 0; i < local->n_parts; at += copied_len(parts[i++].len)) {
        const dl_private *p = i < n_tensors ? NULL : &privates[i - n_tensors];
        if (p && p->fill && !restored) DL_TRY(p->fill(p->user, at));
        parts[i].data = at;
    }
    return DILOCO_OK;
}

/* ---- loading */

/* Checks the file before any of it is parsed. The stored digits count as zeros, as they did when it
 * was written. */
static bool digest_fits(const dl_map *map)
{
    dl_hash stored;
    dl_digest_stream stream;
    if (map->len < DIGITS_AT + DL_HASH_HEX) return false;
    if (memcmp(map->data + PREFIX, head, sizeof head - 1) != 0) return false;
    const unsigned char *digits = map->data + DIGITS_AT, *rest = digits + DL_HASH_HEX;
    if (!dl_hash_from_hex(&stored, (const char *)digits, DL_HASH_HEX)) return false;
    dl_digest_begin(&stream);
    dl_digest_add(&stream, map->data, DIGITS_AT);
    dl_digest_add(&stream, zeros, DL_HASH_HEX);
    dl_digest_add(&stream, rest, map->len - DIGITS_AT - DL_HASH_HEX);
    return dl_hash_equal(stored, dl_digest_end(&stream));
}

/* The text is copied out first, because it is a JSON string inside the metadata and has to be
 * unescaped. */
static diloco_status read_facts_text(dl_local_facts *facts, dl_json_value metadata)
{
    const size_t cap = FACTS_MAX;
    char *text = malloc(cap);
    if (!text) return dl_fail(DILOCO_ENOMEM, "out of memory for the facts of local state");
    diloco_status status = dl_json_read_str(text, cap, metadata, "facts");
    if (!status) status = dl_local_facts_read(facts, text, strlen(text));
    free(text);
    return status;
}

static diloco_status check_format(dl_json_value metadata)
{
    char word[32];
    DL_TRY(dl_json_read_str(word, sizeof word, metadata, "format"));
    if (strcmp(word, format) != 0)
        return dl_fail(DILOCO_EPROTO, "it holds %s, not %s", word, format);
    DL_TRY(dl_json_read_str(word, sizeof word, metadata, "version"));
    if (strcmp(word, "1") != 0)
        return dl_fail(DILOCO_EDIFFERS, "it has format version %s, this program (%s) reads %d",
                       word, DILOCO_VERSION, DL_FORMAT_VERSION);
    return DILOCO_OK;
}

static diloco_status read_metadata(dl_local_facts *facts, dl_json_value metadata)
{
    DL_TRY(check_format(metadata));
    return read_facts_text(facts, metadata);
}

/* Opens and checks the file; close both. The checks have this order: digest, safetensors header,
 * format, facts. Only a whole file is parsed. */
static diloco_status open_file(dl_map *map, dl_st *st, dl_local_facts *facts, const char *path)
{
    *st = (dl_st){0};
    DL_TRY(dl_map_open(map, path));
    diloco_status status = DILOCO_OK;
    if (!digest_fits(map))
        status =
            dl_fail(DILOCO_EPROTO, "%s is truncated or damaged: its digest does not fit", path);
    if (!status) status = dl_st_open(st, map->data, map->len);
    if (!status) status = read_metadata(facts, st->metadata);
    if (!status) return DILOCO_OK;
    dl_st_close(st);
    dl_map_close(map);
    return dl_fail_context(status, "local state");
}

/* Checks that parts [first, n_parts) are all in the file, with the same type and shape. */
static diloco_status check_parts(const dl_local *local, const dl_st *st, size_t first)
{
    for (size_t i = first; i < local->n_parts; i++) {
        const dl_st_tensor *want = &local->parts[i], *found = dl_st_find(st, want->name);
        if (!found) return dl_fail(DILOCO_EDIFFERS, "local state has no %s", want->name);
        if (strcmp(found->dtype, want->dtype) != 0 || found->n_dims != want->n_dims ||
            memcmp(found->shape, want->shape, (size_t)want->n_dims * sizeof *want->shape) != 0)
            return dl_fail(DILOCO_EDIFFERS,
                           "local state has %zu bytes of %s in %s; %zu bytes of another type or "
                           "shape are expected",
                           found->end - found->begin, found->dtype, want->name,
                           local->spans[1 + i].len);
    }
    return DILOCO_OK;
}

/* Runs only after every part was checked, so it cannot fail halfway. */
static void copy_parts(const dl_local *local, const dl_st *st, size_t first)
{
    for (size_t i = first; i < local->n_parts; i++) {
        const dl_st_tensor *found = dl_st_find(st, local->parts[i].name);
        void *to = (void *)(uintptr_t)local->spans[1 + i].data; /* the caller gave it as void * */
        if (found->end > found->begin)
            memcpy(to, st->data + found->begin, found->end - found->begin);
    }
}

/* A folder that was copied from another replica or run would pass the digest, and must not be
 * resumed from. */
static diloco_status check_owner(const dl_local *local, const dl_local_facts *facts,
                                 const char *run, dl_hash manifest)
{
    if (strcmp(facts->replica, local->replica) != 0)
        return dl_fail(DILOCO_EDIFFERS, "local state of %s is replica %s's", local->replica,
                       facts->replica);
    if (strcmp(facts->run, run) != 0)
        return dl_fail(DILOCO_EDIFFERS, "local state belongs to run %s, this is run %s", facts->run,
                       run);
    if (!dl_hash_equal(facts->manifest, manifest))
        return dl_fail(DILOCO_EDIFFERS, "local state was saved with another model");
    return DILOCO_OK;
}

/* *facts and the tensors change only at the end, so they are unchanged after any error. */
diloco_status dl_local_load(dl_local *local, dl_local_facts *facts, const char *run,
                            dl_hash manifest, const diloco_tensor *tensors, size_t n_tensors,
                            const dl_private *privates, size_t n_privates, bool load_tensors)
{
    dl_map map;
    dl_st st;
    dl_local_facts read = {
        .pace = {.captures = facts->pace.captures, .fragments = facts->pace.fragments},
        .fragments = facts->fragments,
        .n_fragments = facts->n_fragments};
    size_t first = load_tensors ? 0 : n_tensors;
    DL_TRY(describe_all(local, tensors, n_tensors, privates, n_privates));
    DL_TRY(open_file(&map, &st, &read, local->path));
    diloco_status status = check_owner(local, &read, run, manifest);
    if (!status) status = check_parts(local, &st, first);
    if (!status) {
        copy_parts(local, &st, first);
        *facts = read;
    }
    dl_st_close(&st);
    dl_map_close(&map);
    return status;
}

/* ---- of another run */

/* Returns the private of that name with the same type and length, or NULL. */
static const dl_st_tensor *find_private(const dl_st *st, const dl_private *p)
{
    dl_st_tensor want;
    part_name name;
    describe_private(&want, name, p);
    const dl_st_tensor *found = dl_st_find(st, name);
    const bool fits = found && !strcmp(found->dtype, want.dtype) && found->n_dims == 1 &&
                      found->shape[0] == want.shape[0];
    return fits ? found : NULL;
}

/* All are looked up before the first is copied: the privates belong together. */
static bool take_privates(const dl_st *st, const dl_private *privates, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!find_private(st, &privates[i])) return false;
    for (size_t i = 0; i < n; i++)
        memcpy(privates[i].data, st->data + find_private(st, &privates[i])->begin, privates[i].len);
    return true;
}

/* Used by a run that continues from another one: moments may be taken over, tensors come from the
 * shared model. */
bool dl_local_inherit(const char *state_dir, const char *replica, const dl_private *privates,
                      size_t n)
{
    char path[PATH_MAX];
    dl_map map;
    dl_st st;
    if (make_path(path, state_dir, replica) || dl_map_open(&map, path)) return false;
    bool taken = false;
    if (digest_fits(&map) && !dl_st_open(&st, map.data, map.len)) {
        taken = !check_format(st.metadata) && take_privates(&st, privates, n);
        dl_st_close(&st);
    }
    dl_map_close(&map);
    return taken;
}
