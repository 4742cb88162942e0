/* manifest.c - copy the descriptions, check them, then assign offsets.
 *
 * Both ways in (the caller's array, an untrusted peer's JSON) fill the same array and go through
 * lay_out, so they refuse the same things. A size is checked where it grows: no fragment
 * has more than MAX_ELEMENTS elements, so no sum or product after that overflows. */
#include "tensor/manifest.h"

#include <stdlib.h>
#include <string.h>

/* Of a tensor, and of a fragment: 4 TiB of f32. In bytes it is far from overflow. */
#define MAX_ELEMENTS ((size_t)1 << 40)

size_t dl_dtype_size(diloco_dtype dtype)
{
    switch (dtype) {
    case DILOCO_F32:
        return 4;
    case DILOCO_I64:
        return 8;
    case DILOCO_BOOL:
        return 1;
    case DILOCO_BF16:
    case DILOCO_F16:
        return 2;
    }
    return 0;
}

diloco_dtype dl_dtype_stored(diloco_dtype dtype)
{
    return dtype == DILOCO_BF16 || dtype == DILOCO_F16 ? DILOCO_F32 : dtype;
}

/* In the order of diloco_dtype and diloco_role; the names are part of the format. */
static const char *const dtype_names[] = {"F32", "I64", "BOOL", "BF16", "F16"};
static const char *const role_names[] = {"parameter", "frozen", "buffer"};
enum { N_DTYPES = 5, N_ROLES = 3 };

const char *dl_dtype_name(diloco_dtype dtype)
{
    return dtype_names[dtype];
}
const char *dl_role_name(diloco_role role)
{
    return role_names[role];
}

/* ---- checks */

/* Names go to the log, file names and terminals, so they are printable ASCII: no control sequence
 * of an untrusted peer reaches a terminal. `index` is the tensor's place, for the message. */
static diloco_status check_name(const char *name, size_t index)
{
    size_t len = strlen(name);
    if (len == 0 || len > DILOCO_NAME_MAX)
        return dl_fail(DILOCO_EINVAL, "tensor %zu: a name has 1 to %d characters, this one has %zu",
                       index, DILOCO_NAME_MAX, len);
    for (size_t i = 0; i < len; i++)
        if (name[i] < ' ' || name[i] > '~')
            return dl_fail(DILOCO_EINVAL, "tensor %zu: byte %zu of its name is not printable ASCII",
                           index, i);
    return DILOCO_OK;
}

/* Checks type, role, shape and fragment, and sets t->count. The enums are compared as unsigned,
 * because a caller of the C interface may pass any number. */
static diloco_status check_kind(dl_manifest_tensor *t)
{
    if ((unsigned)t->dtype >= N_DTYPES)
        return dl_fail(DILOCO_EINVAL, "tensor %s: no dtype has number %d", t->name, (int)t->dtype);
    if ((unsigned)t->role >= N_ROLES)
        return dl_fail(DILOCO_EINVAL, "tensor %s: no role has number %d", t->name, (int)t->role);
    if (t->role == DILOCO_PARAMETER && dl_dtype_stored(t->dtype) != DILOCO_F32)
        return dl_fail(DILOCO_EINVAL, "tensor %s: a parameter is F32, BF16 or F16, not %s", t->name,
                       dl_dtype_name(t->dtype));
    if (t->n_dims < 0 || t->n_dims > DILOCO_MAX_DIMS)
        return dl_fail(DILOCO_EINVAL, "tensor %s: %d dimensions; at most %d", t->name, t->n_dims,
                       DILOCO_MAX_DIMS);
    if (t->fragment < 0 || t->fragment >= DL_MAX_FRAGMENTS)
        return dl_fail(DILOCO_EINVAL, "tensor %s: fragment %d is not in 0 to %d", t->name,
                       t->fragment, DL_MAX_FRAGMENTS - 1);
    t->count = 1;
    for (int d = 0; d < t->n_dims; d++) {
        if (!dl_size_mul(&t->count, t->count, t->shape[d]) || t->count > MAX_ELEMENTS)
            return dl_fail(DILOCO_EINVAL, "tensor %s: dimension %d of %zu is too large", t->name, d,
                           t->shape[d]);
    }
    return DILOCO_OK;
}

static int by_name(const void *a, const void *b)
{
    const dl_manifest_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Sorts pointers to the names, O(n log n): a quadratic search of 65,536 names takes seconds. */
static diloco_status check_unique(const dl_manifest *m)
{
    diloco_status status = DILOCO_OK;
    const dl_manifest_tensor **sorted = malloc(m->n_tensors * sizeof *sorted);
    if (!sorted) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensor names", m->n_tensors);
    for (size_t i = 0; i < m->n_tensors; i++)
        sorted[i] = &m->tensors[i];
    qsort(sorted, m->n_tensors, sizeof *sorted, by_name);
    for (size_t i = 1; i < m->n_tensors && !status; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status = dl_fail(DILOCO_EINVAL, "two tensors are named %s", sorted[i]->name);
    free(sorted);
    return status;
}

bool dl_manifest_is_embedding(const dl_manifest_tensor *tensor)
{
    const char *name = tensor->name;
    if (strcasestr(name, "embed")) return true;
    for (size_t n; *name; name += n, name += *name == '.') {
        n = strcspn(name, ".");
        if (n == 3 && (strncmp(name, "wte", n) == 0 || strncmp(name, "wpe", n) == 0)) return true;
    }
    return false;
}

size_t dl_manifest_block_len(const char *name)
{
    for (const char *part = name; part; part = strchr(part, '.') ? strchr(part, '.') + 1 : NULL) {
        const size_t digits = strspn(part, "0123456789");
        if (digits && (part[digits] == '.' || !part[digits])) return (size_t)(part - name) + digits;
    }
    return 0;
}

/* ---- layout */

static dl_region region_of(const dl_manifest_tensor *t, bool all_floating)
{
    switch (t->dtype) {
    case DILOCO_I64:
        return DL_INTEGERS;
    case DILOCO_BOOL:
        return DL_BOOLEANS;
    case DILOCO_F32:
    case DILOCO_BF16:
    case DILOCO_F16:
        break;
    }
    return all_floating || t->role == DILOCO_PARAMETER ? DL_TRAINED : DL_AVERAGED;
}

/* Returns the member of *shape that counts a region's elements. */
static size_t *region_size(dl_fragment_shape *shape, dl_region region)
{
    switch (region) {
    case DL_TRAINED:
        return &shape->n_trained;
    case DL_AVERAGED:
        return &shape->n_averaged;
    case DL_INTEGERS:
        return &shape->n_integers;
    default:
        return &shape->n_booleans;
    }
}

/* Assigns each tensor its region and offset, and sums the fragments' sizes. The offsets of averaged
 * tensors are known only once all trained ones of their fragment are counted, hence two loops. */
static diloco_status place(dl_manifest *m, bool all_floating)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        dl_manifest_tensor *t = &m->tensors[i];
        size_t *size =
            region_size(&m->fragments[t->fragment], t->region = region_of(t, all_floating));
        if (t->count > MAX_ELEMENTS - *size)
            return dl_fail(DILOCO_EINVAL, "tensor %s: fragment %d has more than 2^40 elements",
                           t->name, t->fragment);
        t->offset = *size;
        *size += t->count;
        if (t->role == DILOCO_PARAMETER) m->n_parameters += t->count;
    }
    for (size_t i = 0; i < m->n_tensors; i++) { /* averaged follows trained in the f32 array */
        dl_manifest_tensor *t = &m->tensors[i];
        if (t->region == DL_AVERAGED) t->offset += m->fragments[t->fragment].n_trained;
    }
    for (int f = 0; f < m->n_fragments; f++) {
        const dl_fragment_shape *s = &m->fragments[f];
        if (s->n_trained + s->n_averaged > MAX_ELEMENTS)
            return dl_fail(DILOCO_EINVAL, "fragment %d has more than 2^40 elements", f);
        if (!(s->n_trained | s->n_averaged | s->n_integers | s->n_booleans))
            return dl_fail(DILOCO_EINVAL, "fragment %d of %d has no tensors with elements", f,
                           m->n_fragments);
    }
    return DILOCO_OK;
}

static void add_u64(dl_digest_stream *stream, uint64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    dl_digest_add(stream, bytes, sizeof bytes);
}

/* Returns the digest of all descriptions. Lengths precede names and shapes, so that no two
 * manifests give the same bytes. */
static dl_hash digest_of(const dl_manifest *m)
{
    dl_digest_stream stream;
    dl_digest_begin(&stream);
    for (size_t i = 0; i < m->n_tensors; i++) {
        const dl_manifest_tensor *t = &m->tensors[i];
        add_u64(&stream, strlen(t->name));
        dl_digest_add(&stream, t->name, strlen(t->name));
        add_u64(&stream, (uint64_t)t->dtype);
        add_u64(&stream, (uint64_t)t->role);
        add_u64(&stream, (uint64_t)t->fragment);
        add_u64(&stream, (uint64_t)t->n_dims);
        for (int d = 0; d < t->n_dims; d++)
            add_u64(&stream, t->shape[d]);
    }
    return dl_digest_end(&stream);
}

/* From filled descriptions (name to fragment of each tensor) to the whole manifest. */
static diloco_status lay_out(dl_manifest *m, bool all_floating)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        dl_manifest_tensor *t = &m->tensors[i];
        DL_TRY(check_kind(t));
        if (t->fragment >= m->n_fragments) m->n_fragments = t->fragment + 1;
    }
    DL_TRY(check_unique(m));
    m->fragments = calloc((size_t)m->n_fragments, sizeof *m->fragments);
    if (!m->fragments)
        return dl_fail(DILOCO_ENOMEM, "out of memory for %d fragments", m->n_fragments);
    DL_TRY(place(m, all_floating));
    m->digest = digest_of(m);
    return DILOCO_OK;
}

/* Zeroes *m and allocates n descriptions. n may come from an untrusted peer, so it is checked
 * before the allocation. */
static diloco_status make_room(dl_manifest *m, size_t n)
{
    *m = (dl_manifest){0};
    if (n == 0 || n > DL_MAX_TENSORS)
        return dl_fail(DILOCO_EINVAL, "%zu tensors; a run has 1 to %d", n, DL_MAX_TENSORS);
    m->tensors = calloc(n, sizeof *m->tensors);
    if (!m->tensors) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", n);
    m->n_tensors = n;
    return DILOCO_OK;
}

static diloco_status copy_tensors(dl_manifest *m, const diloco_tensor *tensors)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        const diloco_tensor *from = &tensors[i];
        dl_manifest_tensor *to = &m->tensors[i];
        if (!from->name) return dl_fail(DILOCO_EINVAL, "tensor %zu has no name", i);
        DL_TRY(check_name(from->name, i));
        strcpy(to->name, from->name); /* its length was just checked */
        to->dtype = from->dtype;
        to->role = from->role;
        to->n_dims = from->n_dims;
        to->fragment = from->fragment;
        memcpy(to->shape, from->shape, sizeof to->shape);
    }
    return DILOCO_OK;
}

diloco_status dl_manifest_init(dl_manifest *out, const diloco_tensor *tensors, size_t n,
                               bool all_floating)
{
    diloco_status status = make_room(out, n);
    if (!status) status = copy_tensors(out, tensors);
    if (!status) status = lay_out(out, all_floating);
    if (status) dl_manifest_deinit(out);
    return status;
}

void dl_manifest_deinit(dl_manifest *manifest)
{
    free(manifest->tensors);
    free(manifest->fragments);
    *manifest = (dl_manifest){0};
}

/* ---- JSON */

void dl_manifest_write(dl_json *j, const char *key, const dl_manifest *manifest)
{
    dl_json_array(j, key);
    for (size_t i = 0; i < manifest->n_tensors; i++) {
        const dl_manifest_tensor *t = &manifest->tensors[i];
        dl_json_object(j, NULL);
        dl_json_str(j, "name", t->name);
        dl_json_str(j, "dtype", dl_dtype_name(t->dtype));
        dl_json_str(j, "role", dl_role_name(t->role));
        dl_json_array(j, "shape");
        for (int d = 0; d < t->n_dims; d++)
            dl_json_u64(j, NULL, t->shape[d]);
        dl_json_end(j);
        dl_json_i64(j, "fragment", t->fragment);
        dl_json_end(j);
    }
    dl_json_end(j);
}

/* The number of the word that `key` of `object` holds. */
static diloco_status read_word(int *out, dl_json_value object, const char *key,
                               const char *const *words, int n_words)
{
    char word[16];
    DL_TRY(dl_json_read_str(word, sizeof word, object, key));
    for (*out = 0; *out < n_words; ++*out)
        if (strcmp(word, words[*out]) == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "no %s is called %s", key, word);
}

/* Reads dimensions of untrusted JSON. Their product is checked later, by check_kind. */
static diloco_status read_shape(dl_manifest_tensor *t, dl_json_value object)
{
    dl_json_value shape = dl_json_get(object, "shape");
    if (shape.type != DL_JSON_ARRAY)
        return dl_fail(DILOCO_EPROTO, "tensor %s: shape is not an array", t->name);
    for (dl_json_iter it = dl_json_each(shape); dl_json_next(&it); t->n_dims++) {
        uint64_t size;
        if (t->n_dims == DILOCO_MAX_DIMS)
            return dl_fail(DILOCO_EPROTO, "tensor %s: more than %d dimensions", t->name,
                           DILOCO_MAX_DIMS);
        DL_TRY(dl_json_as_u64(&size, it.value, MAX_ELEMENTS));
        t->shape[t->n_dims] = (size_t)size;
    }
    return DILOCO_OK;
}

static diloco_status read_tensor(dl_manifest_tensor *t, dl_json_value object, size_t index)
{
    int dtype, role;
    int64_t fragment;
    DL_TRY(dl_json_read_str(t->name, sizeof t->name, object, "name"));
    DL_TRY(check_name(t->name, index));
    DL_TRY(read_word(&dtype, object, "dtype", dtype_names, N_DTYPES));
    DL_TRY(read_word(&role, object, "role", role_names, N_ROLES));
    DL_TRY(read_shape(t, object));
    DL_TRY(dl_json_read_i64(&fragment, object, "fragment", 0, DL_MAX_FRAGMENTS - 1));
    t->dtype = (diloco_dtype)dtype;
    t->role = (diloco_role)role;
    t->fragment = (int)fragment;
    return DILOCO_OK;
}

static diloco_status read_tensors(dl_manifest *m, dl_json_value array)
{
    for (dl_json_iter it = dl_json_each(array); dl_json_next(&it);)
        DL_TRY(read_tensor(&m->tensors[it.index], it.value, it.index));
    return DILOCO_OK;
}

diloco_status dl_manifest_read(dl_manifest *out, dl_json_value array, bool all_floating)
{
    diloco_status status = make_room(out, array.type == DL_JSON_ARRAY ? dl_json_count(array) : 0);
    if (!status) status = read_tensors(out, array);
    if (!status) status = lay_out(out, all_floating);
    if (status) dl_manifest_deinit(out);
    if (status == DILOCO_EINVAL) status = DILOCO_EPROTO; /* the bytes are an untrusted peer's */
    return status ? dl_fail_context(status, "manifest") : DILOCO_OK;
}

const dl_manifest_tensor *dl_manifest_locate(const dl_manifest *manifest, int fragment, size_t i,
                                             size_t *index_in_tensor)
{
    for (size_t k = 0; k < manifest->n_tensors; k++) {
        const dl_manifest_tensor *t = &manifest->tensors[k];
        if (t->fragment != fragment || dl_dtype_stored(t->dtype) != DILOCO_F32) continue;
        if (i < t->offset || i - t->offset >= t->count) continue;
        *index_in_tensor = i - t->offset;
        return t;
    }
    DL_ASSERT(!"the element is in a tensor");
    return NULL;
}
