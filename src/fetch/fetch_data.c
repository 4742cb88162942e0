/* fetch_data.c - see fetch_data.h. origin.h has addresses and the cache. */
#include "fetch/fetch_data.h"

#include "base/log.h"
#include "fetch/fetch_early.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The objects that are fetched from an address. */
typedef struct source {
    dl_data_origin origin;
    /* Decides which objects of a prefix are fetched; NULL: all. */
    bool (*wants)(const char *key);
    bool may_arrive; /* token shards need not be whole (fetch_early.h) */
    dl_early *early; /* of the objects that are not whole; NULL: all are */
    size_t n;        /* objects looked at, fetched now or found whole */
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

/* Fetches an object, or its ends, unless the cache has it whole. */
static diloco_status fetch_one(source *s, const char *key)
{
    bool done;
    s->n++;
    if (dl_origin_is_whole(&s->origin, key)) return DILOCO_OK;
    if (s->may_arrive && (*s->origin.key || ends(key, ".bin"))) {
        if (!s->early) DL_TRY(dl_early_begin(&s->early, &s->origin));
        DL_TRY(dl_early_add(s->early, &done, key));
    } else {
        DL_TRY(dl_early_complete(&s->origin, &done, key));
    }
    return done ? DILOCO_OK : dl_origin_fetch(&s->origin, key);
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
static diloco_status remove_others(const dl_data_origin *o, const char *kind, const dl_buf *found)
{
    char path[DL_ORIGIN_PATH];
    diloco_status status = DILOCO_OK;
    dl_origin_path(path, o, kind, "");
    DIR *dir = opendir(path);
    if (!dir) return dl_fail_errno(errno, "read", path);
    for (const struct dirent *entry; !status && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || is_listed(found, entry->d_name)) continue;
        dl_origin_path(path, o, kind, entry->d_name);
        if (unlink(path)) status = dl_fail_errno(errno, "remove", path);
    }
    closedir(dir);
    return status;
}

/* Fetches all objects of a prefix. An empty list removes nothing: a wrong address or a listing that
 * is late must not empty the cache. The names have at most 64 MiB. */
static diloco_status fetch_all(source *s)
{
    static const char *const kinds[] = {"files", "blocks", "arriving"};
    const dl_data_origin *o = &s->origin;
    names found = {.wants = s->wants};
    dl_buf_init(&found.text, 64 << 20);
    diloco_status status = o->web ? dl_web_data_list(o->web, on_found, &found)
                                  : dl_store_list(o->store, "", NULL, on_found, &found, DL_NEVER);
    const char *at = (const char *)found.text.data, *end = at ? at + found.text.len : NULL;
    for (; !status && at && at < end; at += strlen(at) + 1)
        status = fetch_one(s, at);
    /* The rest of a prefix may be the training data of another command. */
    for (size_t i = 0; !status && s->n && !s->wants && i < sizeof kinds / sizeof *kinds; i++)
        status = remove_others(o, kinds[i], &found.text);
    dl_buf_deinit(&found.text);
    if (!status && !s->n)
        status = dl_fail(DILOCO_ENOENT, "%s/: no object is directly below this prefix", o->label);
    return status;
}

/* Fetches what the address names, and appends its path in the cache to `out`. The lock is held
 * until all of it is ready. */
static diloco_status fetch(source *s, dl_buf *out)
{
    char path[DL_ORIGIN_PATH];
    dl_data_origin *o = &s->origin;
    int lock = -1;
    DL_TRY(dl_origin_connect(o));
    diloco_status status = dl_origin_lock(o, &lock);
    if (!status) status = *o->key ? fetch_one(s, o->key) : fetch_all(s);
    if (s->early) status = dl_early_end(s->early, status);
    dl_origin_disconnect(o);
    if (lock >= 0) close(lock);
    DL_TRY(status);
    dl_origin_path(path, o, "files", o->key);
    return dl_buf_add(out, path, strlen(path));
}

/* Appends the path in the cache of what an address names. */
static diloco_status add_path(dl_buf *out, const char *url, const dl_config *config, bool ready)
{
    char path[DL_ORIGIN_PATH];
    source s = {.may_arrive = dl_early_is_possible(config)};
    DL_TRY(dl_origin_init(&s.origin, url, config));
    if (!ready) return fetch(&s, out);
    dl_origin_path(path, &s.origin, "files", s.origin.key);
    return dl_buf_add(out, path, strlen(path));
}

/* Replaces the addresses of a comma-separated list by paths in the cache; files stay as written.
 * `list` changes only if all of them succeed. `ready`: another process has fetched them. */
static diloco_status fetch_list(dl_config_path list, const dl_config *config, const char *option,
                                bool ready)
{
    char one[sizeof(dl_config_path)];
    dl_buf out;
    diloco_status status = DILOCO_OK;
    if (!strstr(list, "://")) return DILOCO_OK;
    dl_buf_init(&out, sizeof(dl_config_path) - 1);
    for (const char *at = list; !status && dl_origin_next(one, &at);) {
        if (out.len) status = dl_buf_add(&out, ",", 1);
        if (!status)
            status = strstr(one, "://") ? add_path(&out, one, config, ready)
                                        : dl_buf_add(&out, one, strlen(one));
    }
    if (!status && out.len) {
        memcpy(list, out.data, out.len);
        list[out.len] = '\0';
    }
    dl_buf_deinit(&out);
    return status ? dl_fail_context(status, "%s", option) : DILOCO_OK;
}

static diloco_status fetch_lists(dl_config *config, const dl_early_hooks *hooks, bool ready)
{
    dl_config_path train, test;
    memcpy(train, config->train_path, sizeof train);
    memcpy(test, config->test_path, sizeof test);
    DL_TRY(fetch_list(config->train_path, config, "data.train_path", ready));
    DL_TRY(fetch_list(config->test_path, config, "data.test_path", ready));
    if (strcmp(train, config->train_path) == 0 && strcmp(test, config->test_path) == 0)
        return DILOCO_OK;
    return dl_early_open(train, test, config, hooks);
}

diloco_status dl_fetch_data(dl_config *config)
{
    return fetch_lists(config, &(dl_early_hooks){.fills = false}, false);
}

diloco_status dl_fetch_ready(dl_config *config, const dl_early_hooks *hooks)
{
    return fetch_lists(config, hooks, true);
}

/* Replace an address by the path of its file in the cache. A comma is a part of the address. */
static diloco_status fetch_file(dl_config_path address, const dl_config *config)
{
    dl_buf out;
    source s = {.n = 0};
    dl_buf_init(&out, sizeof(dl_config_path) - 1);
    diloco_status status = dl_origin_init(&s.origin, address, config);
    if (!status) status = fetch(&s, &out);
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
    diloco_status status = dl_origin_init(&s.origin, url, config);
    if (!status && *s.origin.key)
        status = dl_fail(DILOCO_EINVAL, "%.200s: a model is a folder, with a / at its end", url);
    if (!status) status = fetch(&s, &out);
    if (!status) memcpy(folder, out.data, out.len), folder[out.len] = '\0';
    dl_buf_deinit(&out);
    return status;
}
