/* page.c - the page of the runs, and what it asks for (docs/hub.md): views as JSON (view/view.h).
 *
 * The page itself holds no data and is open to all; its data takes a token where the hub
 * has any. A browser runs no other script and no other style than ours in it, and sends nothing to
 * anywhere else. */
#include "base/json.h"
#include "base/text.h"
#include "hub/server.h"
#include "view/page_files.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Runs in one reply of the list. A folder of more would make a page that no browser shows well. */
enum { MOST_RUNS = 500 };

/* Write the store's URL of a run in DIR. The name comes from a query, so it has to be a key, and
 * its bucket a real folder and no symbolic link. */
static bool url_in_folder(void *user, char url[DL_VIEW_URL], const char *name)
{
    const dl_hub *hub = user;
    char path[PATH_MAX + DL_BUCKET_MAX + 2];
    struct stat st;
    if (!dl_hub_run_ok(name)) return false;
    snprintf(path, sizeof path, "%s/%.*s", hub->dir, (int)strcspn(name, "/"), name);
    if (lstat(path, &st) || !S_ISDIR(st.st_mode)) return false;
    const int len = snprintf(url, DL_VIEW_URL, "file://%s/%s", hub->dir, name);
    return len > 0 && len < DL_VIEW_URL;
}

diloco_status dl_page_open(dl_hub *hub)
{
    const dl_hub_options *o = &hub->options;
    return o->viewed ? dl_views_create(&hub->views, o->viewed, o->viewed_user)
                     : dl_views_create(&hub->views, url_in_folder, hub);
}

void dl_page_close(dl_hub *hub)
{
    dl_views_destroy(hub->views);
    hub->views = NULL;
}

/* ---- answers */

/* Headers of every reply of the page: nothing is cached, guessed by its content, or read by
 * pages of other sites. */
static void add_headers(dl_response reply)
{
    dl_response_header(reply, "Cache-Control", "no-store");
    dl_response_header(reply, "X-Content-Type-Options", "nosniff");
    dl_response_header(reply, "Referrer-Policy", "no-referrer");
    dl_response_header(reply, "Cross-Origin-Resource-Policy", "same-origin");
}

/* Reply with a file of the page, which the program holds since its build. The policy allows
 * scripts, styles and connections of this server only. */
dl_response dl_page_begin(dl_http_request *r)
{
    const char *name = strrchr(r->target.path, '/') + 1;
    const dl_page_file *file = dl_page_file_find(*name ? name : "index.html");
    if (!file) return dl_refuse(r, 404, "", "this program was built without its page");
    dl_response reply = dl_response_text(200, file->type, file->bytes, file->len);
    add_headers(reply);
    dl_response_header(
        reply, "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'");
    dl_response_header(reply, "Cross-Origin-Opener-Policy", "same-origin");
    return reply;
}

/* Reply with the JSON, or with the failure of making it. Frees `out`. */
static dl_response reply_json(dl_http_request *r, dl_buf *out, diloco_status status)
{
    dl_response reply;
    if (status == DILOCO_ENOENT || status == DILOCO_EDIFFERS)
        reply = dl_refuse(r, 404, "", "there is no such run");
    else if (status == DILOCO_EUNREACHABLE)
        reply = dl_refuse(r, 503, "", "the run's store does not answer");
    else if (status)
        reply = dl_refuse_failed(r, status);
    else
        reply = dl_response_text(200, "application/json", out->data, out->len);
    add_headers(reply);
    dl_buf_deinit(out);
    return reply;
}

/* A number of the request; *value stays where it has none. */
static bool number(uint64_t *value, const dl_http_request *r, const char *name)
{
    const char *text = dl_target_param(&r->target, name);
    return !text || dl_text_to_u64(value, text, strlen(text));
}

static dl_response refuse_number(dl_http_request *r)
{
    return dl_refuse(r, 400, "", "%s: from, to, n, points and bins are numbers", r->target.path);
}

typedef diloco_status (*ask_fn)(dl_buf *out, dl_view *view, const void *what);

/* Find the view of ?run= and let fn write JSON of it. A view is shared by all viewers of the run
 * (view/view.h) and is given back before the reply is sent. */
static dl_response ask(dl_http_request *r, ask_fn fn, const void *what)
{
    const char *name = dl_target_param(&r->target, "run");
    dl_view *view;
    dl_buf out;
    if (!name || !*name)
        return dl_refuse(r, 400, "", "%s?run=RUN names a run: RUN is the path in its URL",
                         r->target.path);
    dl_buf_init(&out, DL_VIEW_JSON_MAX);
    diloco_status status = dl_views_get(&view, r->hub->views, name);
    if (!status) {
        status = fn(&out, view, what);
        dl_view_let_go(view);
    }
    return reply_json(r, &out, status);
}

static diloco_status ask_run(dl_buf *out, dl_view *view, const void *what)
{
    return dl_view_run_json(out, view, what);
}

/* Without a parameter a zero is passed on, which view.h reads as its default. */
dl_response dl_page_run_begin(dl_http_request *r)
{
    uint64_t from = 0, to = 0, points = 0, bins = 0;
    if (!number(&from, r, "from") || !number(&to, r, "to") || !number(&points, r, "points") ||
        !number(&bins, r, "bins"))
        return refuse_number(r);
    const dl_view_part part = {from, to, (size_t)points, (size_t)bins};
    return ask(r, ask_run, &part);
}

typedef struct range {
    uint64_t from, n;
} range;

static diloco_status ask_entries(dl_buf *out, dl_view *view, const void *what)
{
    const range *asked = what;
    return dl_view_entries_json(out, view, asked->from, asked->n);
}

dl_response dl_page_entries_begin(dl_http_request *r)
{
    range asked = {0, 50};
    if (!number(&asked.from, r, "from") || !number(&asked.n, r, "n")) return refuse_number(r);
    return ask(r, ask_entries, &asked);
}

static diloco_status ask_settings(dl_buf *out, dl_view *view, const void *what)
{
    (void)what;
    return dl_view_settings_json(out, view);
}

dl_response dl_page_settings_begin(dl_http_request *r)
{
    return ask(r, ask_settings, NULL);
}

/* ---- the list of runs */

/* Add the row of one run. A run that cannot be read has a row that says so, instead of failing
 * the whole list. */
static diloco_status add_row(dl_buf *out, dl_views *views, const char *name)
{
    dl_view *view;
    const size_t before = out->len;
    diloco_status status = dl_views_get(&view, views, name);
    if (!status) {
        status = dl_view_row_json(out, view);
        dl_view_let_go(view);
    }
    if (!status || status == DILOCO_ENOMEM) return status;
    /* A half-written row is removed before the substitute is written. */
    out->len = before;
    dl_json j;
    dl_json_init(&j, out);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "name", name);
    dl_json_str(&j, "state", status == DILOCO_ENOENT ? "gone" : "unreadable");
    dl_json_end(&j);
    return dl_json_done(&j);
}

/* At most MOST_RUNS rows; the name list ends with its length, or at an empty name. */
static diloco_status add_rows(dl_buf *out, dl_hub *hub, const dl_buf *names)
{
    const char *all = (const char *)names->data;
    size_t n = 0;
    DL_TRY(dl_buf_addf(out, "{\"runs\":["));
    for (size_t at = 0; at < names->len && all[at] && n < MOST_RUNS; at += strlen(all + at) + 1) {
        if (n++) DL_TRY(dl_buf_add(out, ",", 1));
        DL_TRY(add_row(out, hub->views, all + at));
    }
    return dl_buf_addf(out, "],\"hub\":%s}", hub->options.viewed ? "false" : "true");
}

/* The names that the caller gives, or those that the hub has counted. No folder is walked for a
 * list. */
static diloco_status gather_names(dl_buf *names, dl_hub *hub)
{
    const char *given = hub->options.names;
    if (!hub->options.viewed) return dl_holdings_names(names, &hub->tally);
    for (; given && *given; given += strlen(given) + 1)
        DL_TRY(dl_buf_add(names, given, strlen(given) + 1));
    return DILOCO_OK;
}

dl_response dl_page_runs_begin(dl_http_request *r)
{
    dl_buf out, names;
    dl_buf_init(&out, DL_VIEW_JSON_MAX);
    dl_buf_init(&names, DL_VIEW_JSON_MAX);
    diloco_status status = gather_names(&names, r->hub);
    if (!status) status = add_rows(&out, r->hub, &names);
    dl_buf_deinit(&names);
    return reply_json(r, &out, status);
}

/* ---- events of a hub that only shows runs */

/* Report a new entry of the run as if its object had been written through this hub. So the page
 * uses the same events for both. */
static void announce_run(dl_hub *hub, const char *name)
{
    dl_view *view;
    uint64_t entries;
    bool more, grown;
    char path[DL_VIEW_NAME + 64];
    if (dl_views_get(&view, hub->views, name)) return;
    const diloco_status status = dl_view_follow(view, &entries, &grown, &more);
    dl_view_let_go(view);
    if (status || !grown) return;
    snprintf(path, sizeof path, "%s/log/%010llu.json", name,
             (unsigned long long)(entries ? entries - 1 : 0));
    dl_events_report(&hub->events, path);
}

/* Only runs that a page shows are looked at, and none while no page waits for events. */
void dl_page_report(dl_hub *hub)
{
    if (dl_events_count(&hub->events) == 0) return;
    for (const char *name = hub->options.names; name && *name; name += strlen(name) + 1)
        if (dl_views_is_watched(hub->views, name)) announce_run(hub, name);
}
