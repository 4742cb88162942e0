/* loop_image.c - the outer state as a safetensors file (include/diloco/loop.h; docs/formats.md).
 *
 * The file has one tensor for each vector of each registered tensor, "theta.<name>" first, and
 * three metadata:
 *
 *     format   "diloco-loop-1"
 *     facts    a JSON object as text: the values that have to be equal, and the counters
 *     digest   of the facts and the data
 *
 * The bytes of a file are untrusted. A load checks all of it before it changes anything. */
#include "base/hash.h"
#include "base/safetensors.h"
#include "loop/loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char format[] = "diloco-loop-1";

enum {
    NAME_MAX_HERE = DILOCO_NAME_MAX + 32, /* with "momentum." */
    /* Bounds of the buffers in bytes: of a tensor in the header, and of the facts without and for
     * each fragment. A tensor has its name, of which JSON writes at most 6 bytes for one
     * ("\u0001"), its type, and up to 6 numbers of 20 digits: 4 of the shape and 2 offsets. */
    HEADER_PER_TENSOR = 6 * NAME_MAX_HERE + 256,
    FACTS_FIXED = 256,
    FACTS_PER_FRAGMENT = 24
};

/* Vectors in the file: theta, then those of the outer optimizer. With options.outer theta is the
 * only one, since the caller's optimizer keeps its own state. */
static int n_vectors(const diloco_loop *loop)
{
    return 1 + (loop->outer ? loop->outer->n_state : 0);
}

static const char *vector_name(const diloco_loop *loop, int v)
{
    return v == 0 ? "theta" : loop->outer->state_names[v - 1];
}

/* The place of tensor t in vector v, in the loop's memory. */
static float *vector_of(const diloco_loop *loop, int v, const dl_loop_tensor *t)
{
    float *all = v == 0 ? loop->theta : loop->vectors[v - 1];
    return all + loop->fragments[t->about.fragment].begin + t->begin;
}

static size_t facts_max(const diloco_loop *loop)
{
    return FACTS_FIXED + (size_t)loop->options.fragments * FACTS_PER_FRAGMENT;
}

/* "outer", "sync_every" and the number of "commits" have to be equal at a load. "step" and
 * "commits" are the counters that a load restores. */
static diloco_status write_facts(dl_buf *out, const diloco_loop *loop)
{
    dl_json j;
    dl_json_init(&j, out);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "outer", loop->outer ? loop->outer->name : "user");
    dl_json_u64(&j, "sync_every", loop->options.sync_every);
    dl_json_u64(&j, "step", loop->step);
    dl_json_array(&j, "commits");
    for (uint32_t f = 0; f < loop->options.fragments; f++)
        dl_json_u64(&j, NULL, loop->fragments[f].commits);
    dl_json_end(&j);
    dl_json_end(&j);
    return dl_json_done(&j);
}

/* ---- save */

/* A file before it is written: a list of tensors and where their bytes are. The data itself is not
 * copied; the spans point into theta and the vectors. */
typedef struct image {
    dl_st_tensor *tensors;
    char (*names)[NAME_MAX_HERE];
    dl_span *spans; /* [0]: the header */
    size_t n;
    dl_buf header, facts;
} image;

static diloco_status image_init(image *im, const diloco_loop *loop)
{
    size_t n = loop->n_tensors * (size_t)n_vectors(loop);
    *im = (image){.n = n};
    dl_buf_init(&im->facts, facts_max(loop));
    dl_buf_init(&im->header, 1024 + 2 * facts_max(loop) + n * HEADER_PER_TENSOR);
    im->tensors = calloc(n, sizeof *im->tensors);
    im->names = calloc(n, sizeof *im->names);
    im->spans = calloc(n + 1, sizeof *im->spans);
    if (!im->tensors || !im->names || !im->spans)
        return dl_fail(DILOCO_ENOMEM, "out of memory for the list of %zu tensors", n);
    return DILOCO_OK;
}

static void image_deinit(image *im)
{
    dl_buf_deinit(&im->header);
    dl_buf_deinit(&im->facts);
    free(im->tensors);
    free(im->names);
    free(im->spans);
}

/* The order is that of the file, and the digest depends on it: all of theta, then vector by
 * vector. */
static void list_tensors(image *im, const diloco_loop *loop)
{
    size_t i = 0;
    for (int v = 0; v < n_vectors(loop); v++)
        for (size_t k = 0; k < loop->n_tensors; k++, i++) {
            const dl_loop_tensor *t = &loop->tensors[k];
            snprintf(im->names[i], sizeof im->names[i], "%s.%s", vector_name(loop, v), t->name);
            im->tensors[i] =
                (dl_st_tensor){.name = im->names[i], .dtype = "F32", .n_dims = t->about.n_dims};
            memcpy(im->tensors[i].shape, t->about.shape, sizeof t->about.shape);
            im->spans[1 + i] = (dl_span){vector_of(loop, v, t), t->count * sizeof(float)};
        }
}

/* The digest covers the facts, too: a file whose counters were changed is refused. */
static void digest_of(char hex[DL_HASH_HEX + 1], const char *facts, const dl_span *spans, size_t n)
{
    dl_digest_stream stream;
    dl_digest_begin(&stream);
    dl_digest_add(&stream, facts, strlen(facts));
    for (size_t i = 0; i < n; i++)
        dl_digest_add(&stream, spans[i].data, spans[i].len);
    dl_hash_to_hex(hex, dl_digest_end(&stream));
}

static diloco_status write_image(image *im, const diloco_loop *loop, const char *path)
{
    char digest[DL_HASH_HEX + 1];
    DL_TRY(write_facts(&im->facts, loop));
    const char *facts = dl_buf_str(&im->facts);
    if (!facts) return dl_fail(DILOCO_ENOMEM, "out of memory for the facts of a loop");
    list_tensors(im, loop);
    digest_of(digest, facts, im->spans + 1, im->n);
    const dl_st_meta meta[] = {{"format", format}, {"facts", facts}, {"digest", digest}};
    return dl_st_write(path, &im->header, im->spans, im->tensors, im->n, meta,
                       sizeof meta / sizeof meta[0]);
}

/* dl_st_write replaces the file as a whole. A save that is interrupted leaves the earlier file. */
diloco_status diloco_loop_save(const diloco_loop *loop, const char *path)
{
    DL_TRY(dl_loop_idle(loop, "save"));
    image im;
    diloco_status status = image_init(&im, loop);
    if (!status) status = write_image(&im, loop, path);
    image_deinit(&im);
    return status;
}

/* ---- load */

/* Find the tensor of the file that belongs to vector v of t. Returns DILOCO_EDIFFERS if the file
 * has none, or if its type or shape differs. */
static diloco_status find_tensor(const dl_st_tensor **found, const diloco_loop *loop,
                                 const dl_st *st, int v, const dl_loop_tensor *t)
{
    char name[NAME_MAX_HERE];
    snprintf(name, sizeof name, "%s.%s", vector_name(loop, v), t->name);
    const dl_st_tensor *x = *found = dl_st_find(st, name);
    if (!x) return dl_fail(DILOCO_EDIFFERS, "there is no %s in it", name);
    bool same = strcmp(x->dtype, "F32") == 0 && x->n_dims == t->about.n_dims;
    for (int k = 0; same && k < x->n_dims; k++)
        same = x->shape[k] == t->about.shape[k];
    return same ? DILOCO_OK : dl_fail(DILOCO_EDIFFERS, "%s has another type or shape", name);
}

/* Read the facts, and compare those that have to be equal. *step is below H/P, as the loop's own
 * counter is. The bound of each commit counter keeps their sum from overflowing. */
static diloco_status read_facts(char *facts, diloco_loop *loop, uint64_t *step, uint64_t *commits)
{
    dl_json_value v;
    char outer[64];
    uint64_t sync_every;
    DL_TRY(dl_json_parse(&v, facts, strlen(facts)));
    DL_TRY(dl_json_read_str(outer, sizeof outer, v, "outer"));
    DL_TRY(dl_json_read_u64(&sync_every, v, "sync_every", UINT64_MAX));
    const char *ours = loop->outer ? loop->outer->name : "user";
    dl_json_value list = dl_json_get(v, "commits");
    if (strcmp(outer, ours) != 0 || sync_every != loop->options.sync_every ||
        dl_json_count(list) != loop->options.fragments)
        return dl_fail(DILOCO_EDIFFERS,
                       "it was saved with outer optimizer %s, sync_every %llu and %zu fragments; "
                       "this loop has %s, %llu and %u",
                       outer, (unsigned long long)sync_every, dl_json_count(list), ours,
                       (unsigned long long)loop->options.sync_every, loop->options.fragments);
    DL_TRY(dl_json_read_u64(step, v, "step", loop->interval - 1));
    dl_json_iter it = dl_json_each(list);
    while (dl_json_next(&it))
        DL_TRY(dl_json_as_u64(&commits[it.index], it.value, UINT64_MAX / loop->options.fragments));
    return DILOCO_OK;
}

/* Check that the file has exactly the tensors of this loop, and then its digest. The number is
 * compared first, so that no unknown tensor remains. */
static diloco_status check_data(const diloco_loop *loop, const dl_st *st, const char *facts)
{
    char found[DL_HASH_HEX + 1], said[DL_HASH_HEX + 1];
    const dl_span data = {st->data, st->data_len};
    const dl_st_tensor *x;
    if (st->n != loop->n_tensors * (size_t)n_vectors(loop))
        return dl_fail(DILOCO_EDIFFERS, "it has %zu tensors, not %zu", st->n,
                       loop->n_tensors * (size_t)n_vectors(loop));
    for (int v = 0; v < n_vectors(loop); v++)
        for (size_t k = 0; k < loop->n_tensors; k++)
            DL_TRY(find_tensor(&x, loop, st, v, &loop->tensors[k]));
    DL_TRY(dl_json_read_str(said, sizeof said, st->metadata, "digest"));
    digest_of(found, facts, &data, 1);
    return strcmp(found, said) == 0 ? DILOCO_OK
                                    : dl_fail(DILOCO_EPROTO, "its digest does not fit its bytes");
}

/* Copy everything into the loop. All checks have passed, so no find_tensor can fail here: the loop
 * never holds half of a file. */
static diloco_status adopt_image(diloco_loop *loop, const dl_st *st, uint64_t step,
                                 const uint64_t *commits)
{
    const dl_st_tensor *x;
    for (int v = 0; v < n_vectors(loop); v++)
        for (size_t k = 0; k < loop->n_tensors; k++) {
            const dl_loop_tensor *t = &loop->tensors[k];
            DL_TRY(find_tensor(&x, loop, st, v, t));
            memcpy(vector_of(loop, v, t), st->data + x->begin, x->end - x->begin);
        }
    loop->step = step;
    loop->commits = 0;
    for (uint32_t f = 0; f < loop->options.fragments; f++)
        loop->commits += loop->fragments[f].commits = commits[f];
    return DILOCO_OK;
}

static diloco_status read_image(diloco_loop *loop, const dl_st *st, char *facts, uint64_t *commits)
{
    char kind[sizeof format];
    uint64_t step;
    DL_TRY(dl_json_read_str(kind, sizeof kind, st->metadata, "format"));
    if (strcmp(kind, format) != 0) return dl_fail(DILOCO_EPROTO, "it is no %s file", format);
    DL_TRY(dl_json_read_str(facts, facts_max(loop), st->metadata, "facts"));
    DL_TRY(read_facts(facts, loop, &step, commits));
    DL_TRY(check_data(loop, st, facts));
    return adopt_image(loop, st, step, commits);
}

/* `facts` has the size that this loop's own facts can have. A longer text in the file is an
 * error. */
diloco_status dl_loop_load_image(diloco_loop *loop, const void *bytes, size_t len)
{
    dl_st st = {0};
    char *facts = malloc(facts_max(loop));
    uint64_t *commits = calloc(loop->options.fragments, sizeof *commits);
    diloco_status status = facts && commits ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "no memory");
    if (!status) status = dl_st_open(&st, bytes, len);
    if (!status) status = read_image(loop, &st, facts, commits);
    dl_st_close(&st);
    free(facts);
    free(commits);
    return status;
}

diloco_status diloco_loop_load(diloco_loop *loop, const char *path)
{
    dl_map map = {0};
    DL_TRY(dl_loop_idle(loop, "load"));
    DL_TRY(dl_map_open(&map, path));
    diloco_status status = dl_loop_load_image(loop, map.data, map.len);
    dl_map_close(&map);
    return status ? dl_fail_context(status, "%s", path) : DILOCO_OK;
}
