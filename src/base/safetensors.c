/* safetensors.c - the header is JSON; everything in a file that was not written here is
 * checked before it is believed:
 *
 * 1. The header's length is within the file and DL_ST_HEADER_MAX; it is one JSON object
 *    (no key twice: json_parse.c).
 * 2. Each tensor has a known type, and as many bytes as its shape says.
 * 3. Sorted by their place, each tensor begins where the one before ended, the first at 0
 *    and the last ending with the file. */
#include "base/safetensors.h"

#include <stdlib.h>
#include <string.h>

enum { PREFIX = 8, ALIGN = 64 };
static const char metadata_key[] = "__metadata__";

/* A row is a type of the format and the bytes of an element. A type without a row cannot be read or
 * written. */
static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8},     {"I64", 8},
    {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
    {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

size_t dl_st_dtype_size(const char *dtype)
{
    for (size_t i = 0; i < N_DTYPES; i++)
        if (strcmp(dtypes[i].name, dtype) == 0) return dtypes[i].size;
    return 0;
}

/* Bytes of a tensor of known type; false when they overflow. */
static bool size_of(size_t *bytes, const dl_st_tensor *t)
{
    *bytes = dl_st_dtype_size(t->dtype);
    for (int i = 0; i < t->n_dims; i++)
        if (!dl_size_mul(bytes, *bytes, t->shape[i])) return false;
    return true;
}

/* ---- writing */

/* Sets the tensor's place after the one before it. Overflow is checked, since shapes may come from
 * a caller. */
static diloco_status place(dl_st_tensor *t, size_t begin)
{
    size_t bytes;
    if (strcmp(t->name, metadata_key) == 0)
        return dl_fail(DILOCO_EINVAL, "a tensor cannot be called %s", t->name);
    if (dl_st_dtype_size(t->dtype) == 0)
        return dl_fail(DILOCO_EINVAL, "tensor %s: dtype %s is not known", t->name, t->dtype);
    if (t->n_dims < 0 || t->n_dims > DL_ST_DIMS)
        return dl_fail(DILOCO_EINVAL, "tensor %s: %d dimensions; at most %d may be", t->name,
                       t->n_dims, DL_ST_DIMS);
    t->begin = begin;
    if (!size_of(&bytes, t) || !dl_size_add(&t->end, begin, bytes))
        return dl_fail(DILOCO_EINVAL, "tensor %s: its size overflows", t->name);
    return DILOCO_OK;
}

static void put_tensor(dl_json *j, const dl_st_tensor *t)
{
    dl_json_object(j, t->name);
    dl_json_str(j, "dtype", t->dtype);
    dl_json_array(j, "shape");
    for (int i = 0; i < t->n_dims; i++)
        dl_json_u64(j, NULL, t->shape[i]);
    dl_json_end(j);
    dl_json_array(j, "data_offsets");
    dl_json_u64(j, NULL, t->begin);
    dl_json_u64(j, NULL, t->end);
    dl_json_end(j);
    dl_json_end(j);
}

/* Metadata comes first, so that its place in the file is fixed (state/private_state.c relies on
 * it). */
static diloco_status put_json(dl_buf *out, const dl_st_tensor *tensors, size_t n,
                              const dl_st_meta *meta, size_t n_meta)
{
    dl_json j;
    dl_json_init(&j, out);
    dl_json_object(&j, NULL);
    if (n_meta) dl_json_object(&j, metadata_key);
    for (size_t i = 0; i < n_meta; i++)
        dl_json_str(&j, meta[i].key, meta[i].value);
    if (n_meta) dl_json_end(&j);
    for (size_t i = 0; i < n; i++)
        put_tensor(&j, &tensors[i]);
    dl_json_end(&j);
    return dl_json_done(&j);
}

/* The padded JSON after room for its length, then the length. The padding makes the data begin at a
 * multiple of ALIGN. The written JSON is parsed once, which finds a name that is used twice. */
static diloco_status put_header(dl_buf *out, const dl_st_tensor *tensors, size_t n,
                                const dl_st_meta *meta, size_t n_meta)
{
    static const char blank[ALIGN + 1] =
        "                                                                ";
    size_t start = out->len;
    dl_json_value written;
    DL_TRY(dl_buf_add(out, blank, PREFIX));
    DL_TRY(put_json(out, tensors, n, meta, n_meta));
    size_t used = out->len - start;
    if (dl_json_parse(&written, out->data + start + PREFIX, used - PREFIX)) /* finds a name twice */
        return dl_fail_context(DILOCO_EINVAL, "safetensors header");
    DL_TRY(dl_buf_add(out, blank, dl_size_round_up(used, ALIGN) - used));

    uint64_t length = out->len - start - PREFIX;
    if (length > DL_ST_HEADER_MAX)
        return dl_fail(DILOCO_EINVAL, "a safetensors header of %zu bytes is too long",
                       (size_t)length);
    for (int i = 0; i < PREFIX; i++)
        out->data[start + (size_t)i] = (unsigned char)(length >> 8 * i);
    return DILOCO_OK;
}

diloco_status dl_st_header(dl_buf *out, dl_st_tensor *tensors, size_t n, const dl_st_meta *meta,
                           size_t n_meta)
{
    size_t before = out->len, end = 0;
    for (size_t i = 0; i < n; i++) {
        DL_TRY(place(&tensors[i], end));
        end = tensors[i].end;
    }
    diloco_status status = put_header(out, tensors, n, meta, n_meta);
    if (status) out->len = before;
    return status;
}

/* Each span's length has to be the one that its tensor's shape says. */
diloco_status dl_st_write(const char *path, dl_buf *header, dl_span *spans, dl_st_tensor *tensors,
                          size_t n, const dl_st_meta *meta, size_t n_meta)
{
    dl_buf_clear(header);
    DL_TRY(dl_st_header(header, tensors, n, meta, n_meta));
    for (size_t i = 0; i < n; i++)
        if (spans[1 + i].len != tensors[i].end - tensors[i].begin)
            return dl_fail(DILOCO_EINVAL, "tensor %s: %zu bytes given, its shape says %zu",
                           tensors[i].name, spans[1 + i].len, tensors[i].end - tensors[i].begin);
    spans[0] = (dl_span){header->data, header->len};
    return dl_file_write(path, spans, n + 1);
}

/* ---- reading */

/* The length is compared with the file and with the maximum before the header is parsed. */
static diloco_status open_header(dl_json_value *header, dl_st *st, const unsigned char *bytes,
                                 size_t len)
{
    uint64_t length = 0;
    if (len < PREFIX) return dl_fail(DILOCO_EPROTO, "%zu bytes cannot hold a header", len);
    for (int i = 0; i < PREFIX; i++)
        length |= (uint64_t)bytes[i] << 8 * i;
    if (length > DL_ST_HEADER_MAX || length > len - PREFIX)
        return dl_fail(DILOCO_EPROTO, "a header of %llu bytes does not fit into %zu",
                       (unsigned long long)length, len);
    if (length == 0 || bytes[PREFIX] != '{')
        return dl_fail(DILOCO_EPROTO, "the header does not begin with {");
    st->data = bytes + PREFIX + length;
    st->data_len = len - PREFIX - (size_t)length;
    return dl_json_parse(header, bytes + PREFIX, (size_t)length);
}

/* The format allows only texts there. */
static diloco_status check_metadata(dl_json_value metadata)
{
    if (metadata.type == DL_JSON_MISSING) return DILOCO_OK;
    bool good = metadata.type == DL_JSON_OBJECT;
    for (dl_json_iter it = dl_json_each(metadata); good && dl_json_next(&it);)
        good = it.value.type == DL_JSON_STRING;
    return good ? DILOCO_OK : dl_fail(DILOCO_EPROTO, "%s is not an object of texts", metadata_key);
}

/* Up to `max` sizes of an array; how many there are. The number of elements is checked before any
 * is stored. */
static diloco_status read_sizes(size_t *out, int *n, int max, dl_json_value object, const char *key)
{
    dl_json_value array = dl_json_get(object, key);
    if (array.type != DL_JSON_ARRAY || dl_json_count(array) > (size_t)max)
        return dl_fail(DILOCO_EPROTO, "\"%s\" is not an array of at most %d", key, max);
    *n = 0;
    for (dl_json_iter it = dl_json_each(array); dl_json_next(&it);) {
        uint64_t value;
        DL_TRY(dl_json_as_u64(&value, it.value, SIZE_MAX));
        out[(*n)++] = (size_t)value;
    }
    return DILOCO_OK;
}

/* *out is the table's own text, so it stays valid after the file is closed. */
static diloco_status read_dtype(const char **out, dl_json_value object)
{
    char name[16];
    DL_TRY(dl_json_read_str(name, sizeof name, object, "dtype"));
    for (size_t i = 0; i < N_DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            *out = dtypes[i].name;
            return DILOCO_OK;
        }
    return dl_fail(DILOCO_EPROTO, "dtype %s is not known", name);
}

/* All but the name. Shape, type and offsets have to agree, so later code needs only one of them. */
static diloco_status read_tensor(dl_st_tensor *t, dl_json_value object)
{
    size_t offsets[2], bytes;
    int n_offsets;
    if (object.type != DL_JSON_OBJECT) return dl_fail(DILOCO_EPROTO, "it is not an object");
    DL_TRY(read_dtype(&t->dtype, object));
    DL_TRY(read_sizes(t->shape, &t->n_dims, DL_ST_DIMS, object, "shape"));
    DL_TRY(read_sizes(offsets, &n_offsets, 2, object, "data_offsets"));
    if (n_offsets != 2 || offsets[0] > offsets[1])
        return dl_fail(DILOCO_EPROTO, "\"data_offsets\" are not begin and end");
    if (!size_of(&bytes, t) || bytes != offsets[1] - offsets[0])
        return dl_fail(DILOCO_EPROTO, "%zu bytes are not what its shape and type say",
                       offsets[1] - offsets[0]);
    t->begin = offsets[0];
    t->end = offsets[1];
    return DILOCO_OK;
}

/* Tensors without bytes come before the one at the same place. */
static int by_place(const void *a, const void *b)
{
    const dl_st_tensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Without holes and overlaps, every byte of the data belongs to one tensor. */
static diloco_status check_places(const dl_st *st)
{
    size_t at = 0;
    for (size_t i = 0; i < st->n; i++) {
        const dl_st_tensor *t = &st->tensors[i];
        if (t->begin != at)
            return dl_fail(DILOCO_EPROTO, "tensor %.100s begins at %zu, where %zu was expected",
                           t->name, t->begin, at);
        at = t->end;
    }
    if (at == st->data_len) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "the tensors end at %zu of %zu bytes of data", at, st->data_len);
}

/* Count, allocate, fill. A name needs no more bytes than its key has with its quotes. */
static diloco_status read_table(dl_st *st, dl_json_value header)
{
    size_t name_bytes = 0, table_bytes;
    for (dl_json_iter it = dl_json_each(header); dl_json_next(&it);) {
        if (dl_json_is(it.key, metadata_key)) continue;
        name_bytes += (size_t)(it.key.end - it.key.at);
        st->n++;
    }
    table_bytes = st->n * sizeof *st->tensors; /* both are bounded by the header's length */
    DL_TRY(dl_arena_init(&st->arena, table_bytes + name_bytes + 2 * DL_ARENA_ALIGN));
    st->tensors = DL_ARENA_ARRAY(&st->arena, dl_st_tensor, st->n);
    char *name = dl_arena_take(&st->arena, name_bytes);
    dl_st_tensor *t = st->tensors;
    for (dl_json_iter it = dl_json_each(header); dl_json_next(&it);) {
        if (dl_json_is(it.key, metadata_key)) continue;
        size_t cap = (size_t)(it.key.end - it.key.at);
        DL_TRY(dl_json_as_str(name, cap, it.key));
        diloco_status status = read_tensor(t, it.value);
        if (status) return dl_fail_context(status, "tensor %.100s", name);
        t++->name = name;
        name += cap;
    }
    qsort(st->tensors, st->n, sizeof *st->tensors, by_place);
    return check_places(st);
}

/* The tensors refer to `bytes`, which must stay valid. Names are copied, since JSON may have them
 * escaped. */
diloco_status dl_st_open(dl_st *out, const void *bytes, size_t len)
{
    dl_json_value header;
    *out = (dl_st){0};
    diloco_status status = open_header(&header, out, bytes, len);
    if (!status) {
        out->metadata = dl_json_get(header, metadata_key);
        status = check_metadata(out->metadata);
    }
    if (!status) status = read_table(out, header);
    if (!status) return DILOCO_OK;
    dl_st_close(out);
    return dl_fail_context(status, "safetensors");
}

void dl_st_close(dl_st *st)
{
    dl_arena_deinit(&st->arena);
    *st = (dl_st){0};
}

/* Maps the file while fn runs; the tensors are not valid afterwards. */
diloco_status dl_st_with_file(const char *path, dl_st_fn fn, void *context)
{
    dl_map map;
    dl_st st;
    DL_TRY(dl_map_open(&map, path));
    diloco_status status = dl_st_open(&st, map.data, map.len);
    if (!status) {
        status = fn(context, &st);
        dl_st_close(&st);
    }
    dl_map_close(&map);
    return status;
}

/* A linear search, since tensors are sorted by place and not by name. */
const dl_st_tensor *dl_st_find(const dl_st *st, const char *name)
{
    for (size_t i = 0; i < st->n; i++)
        if (strcmp(st->tensors[i].name, name) == 0) return &st->tensors[i];
    return NULL;
}
