/* hf_folder.c - a folder's safetensors, one or several, as one table of tensors by name.
 *
 * 1. A file that an index names is in the folder itself: its name has no slash and does not
 *    begin with a dot. (The folder's entries may be links, as they are in Hugging Face's cache.)
 * 2. A name is in one file only, the one that the index says; every tensor of the index is
 *    there. */
#include "model/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bounds of untrusted input: bytes of an index, files, and bytes of a tensor's name. */
enum { INDEX_MAX = 64 << 20, MAX_SHARDS = 4096, TENSOR_NAME_MAX = 255 };
static const char single_file[] = "model.safetensors";
static const char index_file[] = "model.safetensors.index.json";

/* ---- the index */

/* Returns true for a name in the folder itself. It excludes "..", hidden files, and a backslash,
 * which some systems read as a slash. */
static bool is_plain_name(const char *file)
{
    return file[0] && file[0] != '.' && !strchr(file, '/') && !strchr(file, '\\');
}

static diloco_status read_entry(dl_json_iter *it, dl_hf_index_fn fn, void *user)
{
    char tensor[TENSOR_NAME_MAX + 1], file[256];
    DL_TRY(dl_json_as_str(tensor, sizeof tensor, it->key));
    DL_TRY(dl_json_as_str(file, sizeof file, it->value));
    if (!is_plain_name(file))
        return dl_fail(DILOCO_EPROTO, "\"%s\" is not the name of a file in the folder", file);
    return fn(user, tensor, file);
}

diloco_status dl_hf_index_read(const void *text, size_t len, dl_hf_index_fn fn, void *user)
{
    dl_json_value root, map;
    DL_TRY(dl_json_parse(&root, text, len));
    map = dl_json_get(root, "weight_map");
    if (map.type != DL_JSON_OBJECT)
        return dl_fail(DILOCO_EPROTO, "\"weight_map\" is not an object");
    for (dl_json_iter it = dl_json_each(map); dl_json_next(&it);)
        DL_TRY(read_entry(&it, fn, user));
    return DILOCO_OK;
}

/* ---- files */

static diloco_status join(char *out, size_t cap, const char *folder, const char *file)
{
    int len = snprintf(out, cap, "%s/%s", folder, file);
    if (len >= 0 && (size_t)len < cap) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s/%s: the path is too long", folder, file);
}

typedef struct opening {
    dl_hf_weights *weights;
    const char *folder;
} opening;

static diloco_status map_shard(dl_hf_shard *shard, const char *folder)
{
    char path[4096];
    DL_TRY(join(path, sizeof path, folder, shard->name));
    DL_TRY(dl_map_open(&shard->map, path));
    diloco_status status = dl_st_open(&shard->st, shard->map.data, shard->map.len);
    return status ? dl_fail_context(status, "%s", path) : DILOCO_OK;
}

/* Maps a file unless it is mapped already. The search begins at the newest file, because an index
 * names the tensors of a file one after the other. A shard that cannot be mapped stays in the list,
 * zeroed, and close accepts it. */
static diloco_status add_shard(const opening *o, const char *file)
{
    dl_hf_weights *w = o->weights;
    for (size_t i = w->n_shards; i-- > 0;)
        if (strcmp(w->shards[i].name, file) == 0) return DILOCO_OK;
    if (w->n_shards == MAX_SHARDS)
        return dl_fail(DILOCO_EPROTO, "more than %d files of weights", MAX_SHARDS);
    dl_hf_shard *shards = reallocarray(w->shards, w->n_shards + 1, sizeof *shards);
    if (!shards) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu files", w->n_shards + 1);
    w->shards = shards;
    dl_hf_shard *shard = &shards[w->n_shards++];
    *shard = (dl_hf_shard){{0}, {0}, {0}};
    snprintf(shard->name, sizeof shard->name, "%s", file);
    return map_shard(shard, o->folder);
}

static diloco_status add_entry(void *user, const char *tensor, const char *file)
{
    (void)tensor;
    return add_shard(user, file);
}

/* ---- the table */

static int by_name(const void *a, const void *b)
{
    const dl_hf_tensor *x = a, *y = b;
    return strcmp(x->tensor->name, y->tensor->name);
}

/* Makes the sorted table. No shard may be added afterwards: the tensors point into the shards'
 * headers. Equal names are neighbors after sorting. */
static diloco_status list_tensors(dl_hf_weights *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n_shards; i++)
        n += w->shards[i].st.n;
    w->tensors = calloc(dl_size_max(n, 1), sizeof *w->tensors);
    if (!w->tensors) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu tensors", n);
    for (size_t i = 0; i < w->n_shards; i++) {
        const dl_st *st = &w->shards[i].st;
        for (size_t k = 0; k < st->n; k++)
            w->tensors[w->n++] =
                (dl_hf_tensor){&st->tensors[k], st->data + st->tensors[k].begin, i};
    }
    qsort(w->tensors, w->n, sizeof *w->tensors, by_name);
    for (size_t i = 1; i < w->n; i++)
        if (by_name(&w->tensors[i - 1], &w->tensors[i]) == 0)
            return dl_fail(DILOCO_EPROTO, "tensor %s is in %s and in %s",
                           w->tensors[i].tensor->name, w->shards[w->tensors[i - 1].shard].name,
                           w->shards[w->tensors[i].shard].name);
    return DILOCO_OK;
}

const dl_hf_tensor *dl_hf_weights_find(const dl_hf_weights *w, const char *name)
{
    const dl_st_tensor key = {.name = name};
    const dl_hf_tensor wanted = {.tensor = &key};
    return bsearch(&wanted, w->tensors, w->n, sizeof *w->tensors, by_name);
}

static diloco_status check_entry(void *user, const char *tensor, const char *file)
{
    const dl_hf_weights *w = user;
    const dl_hf_tensor *found = dl_hf_weights_find(w, tensor);
    if (found && strcmp(w->shards[found->shard].name, file) == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "it says that %s is in %s, which does not have it", tensor, file);
}

/* ---- opening */

/* Reads the index twice: first to map its files, then to check each tensor against the table. */
static diloco_status open_index(const opening *o, const char *path)
{
    dl_buf text;
    dl_buf_init(&text, INDEX_MAX);
    diloco_status status = dl_file_read(&text, path);
    if (!status) {
        status = dl_hf_index_read(text.data, text.len, add_entry, (void *)(uintptr_t)o);
        if (!status) status = list_tensors(o->weights);
        if (!status) status = dl_hf_index_read(text.data, text.len, check_entry, o->weights);
        if (status) status = dl_fail_context(status, "%s", path);
    }
    dl_buf_deinit(&text);
    return status;
}

static diloco_status open_either(const opening *o)
{
    char path[4096];
    DL_TRY(join(path, sizeof path, o->folder, single_file));
    if (dl_file_exists(path)) {
        DL_TRY(add_shard(o, single_file));
        return list_tensors(o->weights);
    }
    DL_TRY(join(path, sizeof path, o->folder, index_file));
    if (dl_file_exists(path)) return open_index(o, path);
    return dl_fail(DILOCO_ENOENT, "%s has neither %s nor %s", o->folder, single_file, index_file);
}

diloco_status dl_hf_weights_open(dl_hf_weights *out, const char *folder)
{
    *out = (dl_hf_weights){.n = 0};
    opening o = {out, folder};
    diloco_status status = open_either(&o);
    if (status) dl_hf_weights_close(out);
    return status;
}

void dl_hf_weights_close(dl_hf_weights *w)
{
    for (size_t i = 0; i < w->n_shards; i++) {
        dl_st_close(&w->shards[i].st);
        dl_map_close(&w->shards[i].map);
    }
    free(w->shards);
    free(w->tensors);
    *w = (dl_hf_weights){.n = 0};
}
