/* base.c - see base.h. The order of the tensors is part of the base, as it is of the manifest. */
#include "log/base.h"

#include "log/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dl_base_deinit(dl_base *base)
{
    free(base->tensors);
    *base = (dl_base){0};
}

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~') return false;
    return true;
}

/* Names and kinds reach run.json and error texts of other machines, hence printable ASCII with a
 * maximum. */
static diloco_status check_name(const dl_base *base, const char *name, const char *kind)
{
    const size_t len = strlen(name);
    if (len == 0 || len > DILOCO_NAME_MAX || !is_printable(name))
        return dl_fail(DILOCO_EINVAL, "the name of a base tensor is 1 to %d printable ASCII bytes",
                       DILOCO_NAME_MAX);
    if (strlen(kind) > DL_BASE_KIND_MAX || !is_printable(kind))
        return dl_fail(DILOCO_EINVAL, "the kind of base tensor %s is at most %d printable bytes",
                       name, DL_BASE_KIND_MAX);
    if (base->n == DL_BASE_MAX)
        return dl_fail(DILOCO_EINVAL, "more than %d base tensors", DL_BASE_MAX);
    return DILOCO_OK;
}

/* The search is linear: a base has thousands of tensors at most, and is made once. */
diloco_status dl_base_add(dl_base *base, const char *name, const char *kind, dl_hash digest)
{
    DL_TRY(check_name(base, name, kind));
    for (size_t i = 0; i < base->n; i++)
        if (strcmp(base->tensors[i].name, name) == 0)
            return dl_fail(DILOCO_EINVAL, "base tensor %s is registered twice", name);
    if ((base->n & (base->n - 1)) == 0) { /* full: the capacity doubles at powers of two */
        const size_t room = base->n ? 2 * base->n : 1;
        dl_base_tensor *grown = realloc(base->tensors, room * sizeof *grown);
        if (!grown) return dl_fail(DILOCO_ENOMEM, "out of memory for base tensor %s", name);
        base->tensors = grown;
    }
    dl_base_tensor *t = &base->tensors[base->n++];
    memset(t, 0, sizeof *t);
    strcpy(t->name, name);
    strcpy(t->kind, kind);
    t->digest = digest;
    return DILOCO_OK;
}

void dl_base_write(dl_json *j, const dl_base *base)
{
    if (base->n == 0) return;
    dl_json_array(j, "base");
    for (size_t i = 0; i < base->n; i++) {
        dl_json_object(j, NULL);
        dl_json_str(j, "name", base->tensors[i].name);
        dl_json_str(j, "kind", base->tensors[i].kind);
        dl_json_hash(j, "digest", base->tensors[i].digest);
        dl_json_end(j);
    }
    dl_json_end(j);
}

static diloco_status read_tensor(dl_base *out, dl_json_value object)
{
    char name[DILOCO_NAME_MAX + 1], kind[DL_BASE_KIND_MAX + 1];
    dl_hash digest;
    DL_TRY(dl_json_read_str(name, sizeof name, object, "name"));
    DL_TRY(dl_json_read_str(kind, sizeof kind, object, "kind"));
    DL_TRY(dl_json_read_hash(&digest, object, "digest"));
    return dl_base_add(out, name, kind, digest);
}

/* DL_BASE_MAX bounds the memory that a hostile run.json can make it take. */
diloco_status dl_base_read(dl_base *out, dl_json_value array)
{
    diloco_status status = DILOCO_OK;
    *out = (dl_base){0};
    if (array.type == DL_JSON_MISSING) return DILOCO_OK;
    if (array.type != DL_JSON_ARRAY || dl_json_count(array) == 0)
        return dl_fail(DILOCO_EPROTO, "\"base\" is not an array of tensors");
    for (dl_json_iter it = dl_json_each(array); !status && dl_json_next(&it);)
        status = read_tensor(out, it.value);
    if (status) dl_base_deinit(out);
    if (status == DILOCO_EINVAL) status = DILOCO_EPROTO; /* the bytes are untrusted */
    return status ? dl_fail_context(status, "base") : DILOCO_OK;
}

dl_sides dl_sides_of(const char *creator, const char *replica)
{
    dl_sides sides = {"in the run", "here"};
    if (creator && *creator)
        snprintf(sides.run, sizeof sides.run, "in the run that replica %s created", creator);
    if (replica && *replica) snprintf(sides.here, sizeof sides.here, "on replica %s", replica);
    return sides;
}

/* The first difference is reported by name; a difference in number only if all common tensors are
 * equal. */
diloco_status dl_base_matches(const dl_base *run, const dl_base *here, const dl_sides *sides)
{
    for (size_t i = 0; i < dl_size_min(run->n, here->n); i++) {
        const dl_base_tensor *a = &run->tensors[i], *b = &here->tensors[i];
        char in_run[DL_HASH_HEX + 1], in_here[DL_HASH_HEX + 1];
        if (strcmp(a->name, b->name) != 0 || strcmp(a->kind, b->kind) != 0)
            return dl_fail(DILOCO_EDIFFERS,
                           "base tensor %zu is %s %s %s, %s %s %s: load the base model "
                           "that the run began with, and freeze the same tensors",
                           i, a->name, a->kind, sides->run, b->name, b->kind, sides->here);
        if (dl_hash_equal(a->digest, b->digest)) continue;
        dl_hash_to_hex(in_run, a->digest);
        dl_hash_to_hex(in_here, b->digest);
        return dl_fail(DILOCO_EDIFFERS,
                       "base tensor %s (%s) has other values %s than %s (digests %s and %s): load "
                       "the base model that the run began with",
                       b->name, b->kind, sides->here, sides->run, in_here, in_run);
    }
    if (run->n == here->n) return DILOCO_OK;
    return dl_fail(DILOCO_EDIFFERS,
                   "there are %zu base tensors, which are frozen and not exchanged, %s, and %zu %s",
                   run->n, sides->run, here->n, sides->here);
}
