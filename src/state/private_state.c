/* private_state.c - <state_dir>/<replica>/local.safetensors and the lock beside it.
 *
 * The metadata begins with "digest", so its 32 digits are always at DIGITS_AT. It is
 * dl_digest_bytes of the whole file with zeros for those digits. So it covers header, facts and
 * tensors, and the file is still plain safetensors. A read maps the file, checks the digest, then
 * every name and size, and only then copies: a damaged file changes nothing.
 *
 * The lock is flock on an open file, so it ends with the process, however that ends. */
#include "state/private_state_parts.h"

#include "log/fields.h"
#include "state/local_facts.h"
#include "tensor/kernels.h"
#include "tensor/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
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

enum {
    PREFIX = 8, /* bytes of the header's length */
    DIGITS_AT = PREFIX + sizeof head - 1,
    FACTS_MAX = 4 << 20
};

/* ---- the folder */

/* A replica whose `diloco train` was killed takes seconds to leave. The same command, given again
 * at once, waits for it. */
static const dl_time LOCK_PATIENCE = 5 * DL_SECOND;
enum { LOCK_LOOK_US = 20000 };

/* The file has the owner's pid, for the error text of a second process. It is read without a lock,
 * so only its digits are used. */
static diloco_status take_lock(dl_local *local, const char *folder, const char *replica)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/lock", folder) >= (int)sizeof path)
        return dl_fail_errno(ENAMETOOLONG, "open", folder);
    local->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (local->lock < 0) return dl_fail_errno(errno, "open", path);
    const dl_time until = dl_time_after(dl_clock_now(), LOCK_PATIENCE);
    while (flock(local->lock, LOCK_EX | LOCK_NB)) {
        char pid[16] = "";
        if (errno != EWOULDBLOCK) return dl_fail_errno(errno, "lock", path);
        ssize_t n = pread(local->lock, pid, sizeof pid - 1, 0);
        pid[strspn(n > 0 ? pid : "", "0123456789")] = 0;
        if (strtol(pid, NULL, 10) == (long)getpid())
            return dl_fail(DILOCO_EINVAL,
                           "replica %s already runs in this process, or as process %s of another "
                           "container (%s): close it first, or give another name or another "
                           "run.state_dir",
                           replica, pid, path);
        if (dl_clock_now() >= until)
            return dl_fail(DILOCO_EINVAL,
                           "replica %s already runs here as process %s (%s): wait until that has "
                           "ended, or give another name or another run.state_dir",
                           replica, *pid ? pid : "unknown", path);
        usleep(LOCK_LOOK_US);
    }
    local->owner = getpid();
    if (ftruncate(local->lock, 0) || dprintf(local->lock, "%ld\n", (long)getpid()) < 0)
        return dl_fail_errno(errno, "write", path);
    return DILOCO_OK;
}

/* A forked process has a copy of the descriptor, and closing ours would leave the lock with it. The
 * forked process itself must not release it. */
static void give_lock(const dl_local *local)
{
    if (local->lock < 0) return;
    if (local->owner == getpid()) (void)flock(local->lock, LOCK_UN);
    close(local->lock);
}

/* Returns as access(2) does of the lock's file. */
static int access_lock(const char *state_dir, const char *replica, int mode)
{
    char path[PATH_MAX];
    errno = ENAMETOOLONG;
    if (snprintf(path, sizeof path, "%s/%s/lock", state_dir, replica) >= (int)sizeof path)
        return -1;
    return access(path, mode);
}

bool dl_local_exists(const char *state_dir, const char *replica)
{
    return access_lock(state_dir, replica, F_OK) == 0;
}

bool dl_local_is_read_only(const char *state_dir, const char *replica)
{
    return access_lock(state_dir, replica, W_OK) && errno == EROFS;
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
    dl_buf_init(&local->facts, FACTS_MAX);
    dl_local_file_init(&local->here);
    for (int i = 0; i < DL_LOCAL_COPIES; i++)
        dl_local_file_init(&local->copies[i].file);
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
    if (local->owner == getpid()) dl_file_freed(&local->freeing); /* a fork has no such thread */
    give_lock(local);
    dl_buf_deinit(&local->facts);
    dl_local_file_deinit(&local->here);
    for (int i = 0; i < DL_LOCAL_COPIES; i++) {
        dl_local_file_deinit(&local->copies[i].file);
        dl_arena_deinit(&local->copies[i].memory);
        free(local->copies[i].places);
    }
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
static void describe_tensor(dl_st_tensor *part, dl_part_name name, const diloco_tensor *t)
{
    snprintf(name, sizeof(dl_part_name), "%s", t->name);
    *part = (dl_st_tensor){
        .name = name, .dtype = dl_dtype_name(dl_dtype_stored(t->dtype)), .n_dims = t->n_dims};
    memcpy(part->shape, t->shape, (size_t)t->n_dims * sizeof *t->shape);
}

/* The prefix keeps private names apart from the model's tensors. */
static void describe_private(dl_st_tensor *part, dl_part_name name, const dl_private *p)
{
    DL_ASSERT(strlen(p->name) <= DILOCO_NAME_MAX && (!p->f32 || p->len % sizeof(float) == 0));
    snprintf(name, sizeof(dl_part_name), "%s%s", DL_PRIVATE_PREFIX, p->name);
    *part = (dl_st_tensor){.name = name, .dtype = p->f32 ? "F32" : "U8", .n_dims = 1};
    part->shape[0] = p->f32 ? p->len / sizeof(float) : p->len;
}

void dl_local_file_init(dl_local_file *file)
{
    *file = (dl_local_file){0};
    dl_buf_init(&file->header, DL_ST_HEADER_MAX);
}

void dl_local_file_deinit(dl_local_file *file)
{
    dl_buf_deinit(&file->header);
    free(file->parts);
    free(file->spans);
    free(file->names);
    free(file->privates);
}

/* Allocates space for n parts, unless it has exactly that. The number changes only between runs, so
 * a save allocates nothing after the first. */
static diloco_status reserve_parts(dl_local_file *file, size_t n)
{
    if (file->spans && n == file->cap_parts) return DILOCO_OK;
    free(file->parts);
    free(file->spans);
    free(file->names);
    free(file->privates);
    file->cap_parts = file->n_parts = 0;
    file->parts = calloc(n + 1, sizeof *file->parts);
    file->spans = calloc(n + 1, sizeof *file->spans);
    file->names = calloc(n + 1, sizeof *file->names);
    file->privates = calloc(n + 1, sizeof *file->privates);
    if (!file->parts || !file->spans || !file->names || !file->privates)
        return dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", n);
    file->cap_parts = n;
    return DILOCO_OK;
}

static size_t add_part(dl_local_file *file, dl_span memory, const dl_private *private)
{
    const size_t k = file->n_parts++;
    file->spans[1 + k] = memory;
    file->privates[k] = private;
    return k;
}

diloco_status dl_local_describe(dl_local_file *file, const diloco_tensor *tensors, size_t n_tensors,
                                const dl_private *privates, size_t n_privates, bool all)
{
    DL_TRY(reserve_parts(file, n_tensors + n_privates));
    file->n_parts = 0;
    for (size_t i = 0; i < n_tensors; i++) {
        const size_t size = dl_dtype_size(dl_dtype_stored(tensors[i].dtype));
        const dl_span memory = {tensors[i].data, element_count(&tensors[i]) * size};
        const size_t k = add_part(file, memory, NULL);
        describe_tensor(&file->parts[k], file->names[k], &tensors[i]);
    }
    for (size_t i = 0; i < n_privates; i++) {
        if (!all && privates[i].in_use && !*privates[i].in_use) continue;
        const size_t k = add_part(file, (dl_span){privates[i].data, privates[i].len}, &privates[i]);
        describe_private(&file->parts[k], file->names[k], &privates[i]);
    }
    return DILOCO_OK;
}

/* ---- saving */

diloco_status dl_local_make_header(dl_local *local, dl_local_file *file,
                                   const dl_local_facts *facts)
{
    DL_TRY(dl_local_facts_write(&local->facts, facts));
    const char *text = dl_buf_str(&local->facts);
    if (!text) return DILOCO_ENOMEM;
    dl_st_meta meta[] = {{"digest", zeros}, {"format", format}, {"version", "1"}, {"facts", text}};
    dl_buf_clear(&file->header);
    DL_TRY(
        dl_st_header(&file->header, file->parts, file->n_parts, meta, sizeof meta / sizeof *meta));
    file->spans[0] = (dl_span){file->header.data, file->header.len};
    return DILOCO_OK;
}

static size_t first_not_finite(const float *values, size_t n)
{
    const dl_fp_state fp = dl_fp_enter();
    const size_t bad = dl_first_bad(values, n, FLT_MAX);
    dl_fp_leave(fp);
    return bad;
}

/* A state with such a value would replace the last one from which training can resume. */
static diloco_status check_finite(const dl_st_tensor *part, const float *values, size_t from,
                                  size_t n)
{
    const size_t bad = first_not_finite(values + from, n);
    if (bad == n) return DILOCO_OK;
    return dl_fail(DILOCO_ENUMERIC,
                   "%s[%zu] is %g, so the state is not saved, and an earlier one stays. "
                   "Lower the learning rate or clip gradients, and start the replica "
                   "again: it resumes from its last saved state",
                   part->name, from + bad, (double)values[from + bad]);
}

/* A file that is being written, and its digest so far. */
typedef struct digested {
    dl_local_file *file;
    dl_digest_stream stream;
} digested;

/* Bytes are checked and hashed while the processor's cache has them. Span 0 is the header. */
static diloco_status check_and_hash(void *context, size_t span, size_t from, size_t len)
{
    digested *d = context;
    const dl_local_file *file = d->file;
    const dl_st_tensor *part = span ? &file->parts[span - 1] : NULL;
    const void *data = file->spans[span].data;
    if (part && !file->privates[span - 1] && strcmp(part->dtype, "F32") == 0)
        DL_TRY(check_finite(part, data, from / sizeof(float), len / sizeof(float)));
    dl_digest_add(&d->stream, (const unsigned char *)data + from, len);
    return DILOCO_OK;
}

static void write_digits(void *context)
{
    digested *d = context;
    char hex[DL_HASH_HEX + 1];
    dl_hash_to_hex(hex, dl_digest_end(&d->stream));
    memcpy(d->file->header.data + DIGITS_AT, hex, DL_HASH_HEX);
}

/* Hashes all parts, writes the digits into the header, and replaces the file atomically
 * (base/file.c). A crash leaves the old file or the new one. Returns DILOCO_EFULL if the disk is
 * full; then the old file is unchanged. */
static diloco_status write_file(dl_local *local, dl_local_file *file)
{
    digested d = {.file = file};
    memcpy(file->header.data + DIGITS_AT, zeros, DL_HASH_HEX); /* again after an error */
    dl_digest_begin(&d.stream);
    const dl_file_viewer viewer = {check_and_hash, write_digits, &d};
    return dl_file_write_once(local->path, file->spans, file->n_parts + 1, &viewer,
                              &local->freeing);
}

diloco_status dl_local_write_file(dl_local *local, dl_local_file *file)
{
    const diloco_status status = write_file(local, file);
    return status ? dl_fail_context(status, "local state") : DILOCO_OK;
}

diloco_status dl_local_fill_in_place(const dl_private *privates, size_t n)
{
    diloco_status status = DILOCO_OK;
    for (size_t i = 0; i < n && !status; i++)
        if (privates[i].fill) status = privates[i].fill(privates[i].user, privates[i].data);
    return status ? dl_fail_context(status, "local state") : DILOCO_OK;
}

diloco_status dl_local_save(dl_local *local, const dl_local_facts *facts,
                            const diloco_tensor *tensors, size_t n_tensors,
                            const dl_private *privates, size_t n_privates)
{
    DL_ASSERT(dl_run_id_ok(facts->run));
    dl_local_file *file = &local->here;
    diloco_status status = dl_local_describe(file, tensors, n_tensors, privates, n_privates, false);
    if (!status) status = dl_local_make_header(local, file, facts);
    return status ? dl_fail_context(status, "local state") : dl_local_write_file(local, file);
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

static diloco_status check_part(const dl_st_tensor *want, const dl_st_tensor *found, size_t len)
{
    if (strcmp(found->dtype, want->dtype) == 0 && found->n_dims == want->n_dims &&
        memcmp(found->shape, want->shape, (size_t)want->n_dims * sizeof *want->shape) == 0)
        return DILOCO_OK;
    return dl_fail(DILOCO_EDIFFERS,
                   "local state has %zu bytes of %s in %s; %zu bytes of another type or shape are "
                   "expected",
                   found->end - found->begin, found->dtype, want->name, len);
}

/* Checks that parts [first, n_parts) are all in the file, with the same type and shape. */
static diloco_status check_parts(const dl_local_file *file, const dl_st *st, size_t first)
{
    size_t n_found = 0, n_missing = 0; /* of those that a save may leave out */
    for (size_t i = first; i < file->n_parts; i++) {
        const dl_st_tensor *want = &file->parts[i], *found = dl_st_find(st, want->name);
        const bool may_miss = file->privates[i] && file->privates[i]->in_use;
        if (found) DL_TRY(check_part(want, found, file->spans[1 + i].len));
        n_found += may_miss && found;
        n_missing += !found;
        if (!found && (!may_miss || n_found)) /* they are there together, or not at all */
            return dl_fail(DILOCO_EDIFFERS, "local state has no %s", want->name);
        if (may_miss && found && n_missing)
            return dl_fail(DILOCO_EDIFFERS, "local state has %s without what belongs to it",
                           want->name);
    }
    return DILOCO_OK;
}

/* Runs only after every part was checked, so it cannot fail halfway. A part that the save has left
 * out is zeros. */
static void copy_parts(const dl_local_file *file, const dl_st *st, size_t first)
{
    for (size_t i = first; i < file->n_parts; i++) {
        const dl_st_tensor *found = dl_st_find(st, file->parts[i].name);
        void *to = (void *)(uintptr_t)file->spans[1 + i].data; /* the caller gave it as void * */
        if (!found)
            memset(to, 0, file->spans[1 + i].len);
        else if (found->end > found->begin)
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
    dl_local_file *file = &local->here;
    DL_TRY(dl_local_describe(file, tensors, n_tensors, privates, n_privates, true));
    DL_TRY(open_file(&map, &st, &read, local->path));
    diloco_status status = check_owner(local, &read, run, manifest);
    if (!status) status = check_parts(file, &st, first);
    if (!status) {
        copy_parts(file, &st, first);
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
    dl_part_name name;
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
