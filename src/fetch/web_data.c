/* web_data.c - see web_data.h. A data set's files are at <endpoint>/datasets/OWNER/NAME/resolve/
 * REVISION/PATH, which answers with the address of another host; a model's have no "datasets/".
 * Lists are JSON at <endpoint>/api/datasets/OWNER/NAME/tree/REVISION/PATH, or api/models/…, in
 * pages; a header Link names the next. */
#include "fetch/web_data.h"

#include "base/host_port.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a page of a list, of one request for an object, and of the addresses. */
enum { PAGE_MAX = 64 << 20, RANGE = 8 << 20, URL_BYTES = 4096 };
/* Requests at once. Memory of a read is at most WIDTH * RANGE. */
enum { WIDTH = 4 };

#define PATIENCE (60 * DL_SECOND)

/* The kinds of repositories of Hugging Face that are read. */
static const struct {
    const char *scheme, *objects, *lists;
} repositories[] = {
    {"hf://datasets/", "datasets/", "api/datasets/"},
    {"hf://models/", "", "api/models/"},
};
enum { N_REPOSITORIES = sizeof repositories / sizeof *repositories };

struct dl_web_data {
    dl_web *web;
    atomic_bool aborted;
    char objects[URL_BYTES]; /* the address before "/<key>" */
    char query[URL_BYTES];   /* after the key: "" or "?…", as it was given */
    char lists[URL_BYTES];   /* the address of the list; "" if HTTP has none */
    const char *token;       /* borrowed from the environment; NULL: none */

    /* of the call that is running */
    char next[URL_BYTES]; /* the page of a list; "": the last was read */
    const char *key;
    char what[URL_BYTES];
    dl_found_fn found;
    void *context;
};

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Returns the row of the address; N_REPOSITORIES: it names no repository. */
static size_t repository_of(const char *url)
{
    size_t i = 0;
    while (i < N_REPOSITORIES && !begins(url, repositories[i].scheme))
        i++;
    return i;
}

bool dl_web_data_has(const char *url)
{
    return begins(url, "https://") || repository_of(url) < N_REPOSITORIES ||
           (begins(url, "http://") && dl_url_is_loopback(url));
}

/* A name becomes that of a file in the cache. */
static bool is_name(const char *key)
{
    static const char fine[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._=-";
    return *key && *key != '.' && strspn(key, fine) == strlen(key);
}

/* ---- addresses */

/* "OWNER/NAME[@REVISION][/FOLDER]". Every part becomes a part of a URL as it is. */
static diloco_status open_repository(dl_web_data *d, const char *url, size_t row)
{
    const char *scheme = repositories[row].scheme, *place = url + strlen(scheme);
    const char *endpoint = getenv("HF_ENDPOINT"), *slash = strchr(place, '/');
    const char *name = slash ? slash + 1 : "";
    const size_t named = strcspn(name, "@/"), end = strcspn(name, "/");
    const char *folder = name + end; /* "" or "/FOLDER" */
    if (!slash || slash == place || !named || end == named + 1 || strpbrk(place, "?#% "))
        return dl_fail(DILOCO_EINVAL, "%s%.200s: write %sOWNER/NAME/ or %sOWNER/NAME@REVISION/FILE",
                       scheme, place, scheme, scheme);
    const char *revision = end > named ? name + named + 1 : "main";
    const int len = end > named ? (int)(end - named - 1) : 4, repo = (int)(name + named - place);
    if (!endpoint || !*endpoint) endpoint = "https://huggingface.co";
    d->token = getenv("HF_TOKEN");
    if (d->token && !*d->token) d->token = NULL;
    if (d->token && !begins(endpoint, "https://") && !dl_url_is_loopback(endpoint))
        return dl_fail(DILOCO_EREFUSED, "HF_ENDPOINT is no https:// address, so HF_TOKEN was not "
                                        "sent to it");
    const int objects = snprintf(d->objects, URL_BYTES, "%s/%s%.*s/resolve/%.*s%s", endpoint,
                                 repositories[row].objects, repo, place, len, revision, folder);
    const int lists = snprintf(d->lists, URL_BYTES, "%s/%s%.*s/tree/%.*s%s", endpoint,
                               repositories[row].lists, repo, place, len, revision, folder);
    return objects < URL_BYTES && lists < URL_BYTES
               ? DILOCO_OK
               : dl_fail(DILOCO_EINVAL, "HF_ENDPOINT: the address is too long");
}

static diloco_status open_address(dl_web_data *d, const char *url)
{
    const size_t len = strcspn(url, "?");
    if (strlen(url) >= URL_BYTES)
        return dl_fail(DILOCO_EINVAL, "%.200s…: the address is too long", url);
    snprintf(d->objects, URL_BYTES, "%.*s", (int)len, url);
    snprintf(d->query, URL_BYTES, "%s", url + len);
    return DILOCO_OK;
}

diloco_status dl_web_data_open(dl_web_data **out, const char *url)
{
    dl_web_data *d = *out = calloc(1, sizeof *d);
    if (!d) return dl_fail(DILOCO_ENOMEM, "out of memory for an address");
    const dl_web_options options = {.patience = PATIENCE};
    const size_t row = repository_of(url);
    diloco_status status =
        row < N_REPOSITORIES ? open_repository(d, url, row) : open_address(d, url);
    if (!status) status = dl_web_create(&d->web, &options, &d->aborted);
    if (!status) return DILOCO_OK;
    dl_web_data_close(d);
    *out = NULL;
    return status;
}

void dl_web_data_close(dl_web_data *d)
{
    if (d) dl_web_destroy(d->web);
    free(d);
}

void dl_web_data_abort(dl_web_data *d)
{
    atomic_store(&d->aborted, true);
}

/* ---- a list */

static diloco_status prepare_list(void *context, dl_web_exchange *x)
{
    dl_web_data *d = context;
    x->method = "GET";
    x->what = d->what;
    x->lists = true;
    if (d->token) DL_TRY(dl_web_header(x, "Authorization: Bearer %s", d->token));
    return dl_buf_addf(&x->url, "%s", d->next);
}

/* "<https://…>; rel="next"". A page on another server is refused, since it would get the token. */
static diloco_status take_next(dl_web_data *d, const char *link)
{
    const char *end = link ? strstr(link, ">; rel=\"next\"") : NULL;
    const char *start = end;
    d->next[0] = '\0';
    while (start && start > link && *start != '<')
        start--;
    if (!start || *start++ != '<') return DILOCO_OK;
    const size_t host = strcspn(strstr(d->lists, "://") + 3, "/") + 3;
    const size_t same = (size_t)(strstr(d->lists, "://") - d->lists) + host;
    if ((size_t)(end - start) >= URL_BYTES || strncmp(start, d->lists, same) || start[same] != '/')
        return dl_fail(DILOCO_EPROTO, "%s: the next page is at another server", d->what);
    snprintf(d->next, URL_BYTES, "%.*s", (int)(end - start), start);
    return DILOCO_OK;
}

static diloco_status finish_list(void *context, dl_web_exchange *x)
{
    dl_web_data *d = context;
    dl_json_value page;
    char path[URL_BYTES];
    uint64_t size;
    if (x->status != 200) return dl_web_unexpected(x);
    diloco_status status = dl_json_parse(&page, x->text.data, x->text.len);
    dl_json_iter it = dl_json_each(page);
    while (!status && dl_json_next(&it)) {
        if (!dl_json_is(dl_json_get(it.value, "type"), "file")) continue;
        status = dl_json_read_str(path, sizeof path, it.value, "path");
        if (!status) status = dl_json_read_u64(&size, it.value, "size", SIZE_MAX);
        const char *slash = status ? NULL : strrchr(path, '/');
        const char *name = slash ? slash + 1 : path;
        if (!status && is_name(name)) status = d->found(d->context, name, (size_t)size);
    }
    if (status) return dl_fail_context(status, "%s", d->what);
    return take_next(d, dl_web_response_header(x, "Link"));
}

diloco_status dl_web_data_list(dl_web_data *d, dl_found_fn found, void *context)
{
    const dl_web_batch batch = {.n = 1,
                                .width = 1,
                                .max_text = PAGE_MAX,
                                .context = d,
                                .prepare = prepare_list,
                                .finish = finish_list};
    if (!d->lists[0])
        return dl_fail(DILOCO_EINVAL, "%.200s/: HTTP has no listing, so name one object",
                       d->objects);
    d->found = found;
    d->context = context;
    snprintf(d->what, sizeof d->what, "the list at %.1000s", d->lists);
    snprintf(d->next, sizeof d->next, "%s", d->lists);
    while (d->next[0])
        DL_TRY(dl_web_run(d->web, &batch, DL_NEVER));
    return DILOCO_OK;
}

/* ---- an object */

static diloco_status prepare_read(void *context, dl_web_exchange *x, const char *range,
                                  const char *if_match)
{
    dl_web_data *d = context;
    x->method = "GET";
    x->what = d->what;
    x->follows = true;
    if (d->token) DL_TRY(dl_web_header(x, "Authorization: Bearer %s", d->token));
    if (range) DL_TRY(dl_web_header(x, "Range: %s", range));
    if (if_match) DL_TRY(dl_web_header(x, "If-Match: %s", if_match));
    return dl_buf_addf(&x->url, "%s/%s%s", d->objects, d->key, d->query);
}

static diloco_status refused(void *context, dl_web_exchange *x)
{
    (void)context;
    return dl_web_unexpected(x);
}

diloco_status dl_web_data_read(dl_web_data *d, const char *key, dl_web_position *at, dl_sink sink)
{
    const dl_web_source source = {.range = RANGE,
                                  .width = WIDTH,
                                  .context = d,
                                  .prepare = prepare_read,
                                  .refused = refused,
                                  .at = at};
    if (!is_name(key))
        return dl_fail(DILOCO_EINVAL,
                       "%.200s: the name of a file has letters, digits and ._=- only", key);
    d->key = key;
    snprintf(d->what, sizeof d->what, "%.300s", key);
    return dl_web_read(d->web, &source, sink, DL_NEVER);
}
