/* deliver.c - see deliver.h. A command is run by launch/command.h, a webhook by the HTTP client of
 * the stores. A program without HTTP (DILOCO_CLOUD=OFF) can only run commands. */
#include "notify/deliver.h"

#include "base/json.h"
#include "launch/command.h"
#if DL_CLOUD
#include "store/http/web.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For one notice. A receiver that hangs must not keep a run from ending for longer than that. */
#define PATIENCE (20 * DL_SECOND)

static bool starts_with(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

diloco_status dl_deliver_init(dl_deliver *d, const char *where)
{
    const char *value = where;
    *d = (dl_deliver){.webhook = false};
    if (starts_with(where, "env:")) {
        value = getenv(where + 4);
        if (!value || !*value)
            return dl_fail(DILOCO_EINVAL, "run.notify = \"%.200s\": the variable is not set",
                           where);
    }
    if (strlen(value) >= sizeof d->where)
        return dl_fail(DILOCO_EINVAL, "run.notify is longer than %d bytes", DL_DELIVER_WHERE - 1);
    snprintf(d->where, sizeof d->where, "%s", value);
    d->webhook = starts_with(value, "https://") || starts_with(value, "http://");
    d->token = getenv("DILOCO_NOTIFY_TOKEN");
#if !DL_CLOUD
    if (d->webhook)
        return dl_fail(DILOCO_EREFUSED, "run.notify: this program was built without HTTP "
                                        "(DILOCO_CLOUD=OFF); give a command");
#endif
    if (d->webhook || dl_command_exists(d->where)) return DILOCO_OK;
    if (value != where)
        return dl_fail(DILOCO_EINVAL,
                       "run.notify = \"%.200s\": the variable has neither a URL nor "
                       "the path of a program",
                       where);
    return dl_fail(DILOCO_EINVAL,
                   "run.notify = \"%.200s\": there is no such program; give the path of a program, "
                   "which gets the notice on its standard input, or the URL of a webhook",
                   where);
}

/* Write the notice as JSON. The writer escapes all texts, so a peer's text cannot add members. */
static diloco_status build(dl_buf *out, const dl_notice *n, const char *run, const char *name)
{
    dl_json j;
    dl_json_init(&j, out);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "event", dl_notice_event_name(n->event));
    dl_json_str(&j, "run", run);
    dl_json_str(&j, "name", name);
    dl_json_str(&j, "replica", n->replica);
    dl_json_str(&j, "text", n->text);
    dl_json_u64(&j, "withheld", n->withheld);
    dl_json_f64(&j, "time", dl_clock_wall());
    dl_json_end(&j);
    return dl_json_done(&j);
}

static diloco_status run_command(const dl_deliver *d, const dl_buf *text)
{
    const char *argv[] = {d->where, NULL};
    dl_command_result result;
    DL_TRY(dl_command_do(
        &result, &(dl_command_run){
                     .argv = argv, .in = text->data, .in_len = text->len, .patience = PATIENCE}));
    dl_buf_deinit(&result.out);
    if (!result.exit_code) return DILOCO_OK;
    return dl_fail(DILOCO_EIO, "%.200s ended with code %d: %s", d->where, result.exit_code,
                   result.err);
}

#if DL_CLOUD

/* A request in the making, for the web client's callback. */
typedef struct post {
    const dl_deliver *deliver;
    dl_span body;
} post;

/* Describe the POST. The client calls this once for each try, with an empty exchange. */
static diloco_status prepare(void *context, dl_web_exchange *x)
{
    const post *p = context;
    x->method = "POST";
    x->what = "the webhook";
    x->body = &p->body;
    x->n_body = 1;
    DL_TRY(dl_buf_addf(&x->url, "%s", p->deliver->where));
    if (p->deliver->token) DL_TRY(dl_web_header(x, "Authorization: Bearer %s", p->deliver->token));
    return dl_web_header(x, "Content-Type: application/json");
}

/* Two tries of half the patience each. `aborted` ends them earlier. */
static diloco_status post_it(dl_deliver *d, const dl_buf *text)
{
    dl_web *web;
    post p = {d, {text->data, text->len}};
    DL_TRY(
        dl_web_create(&web, &(dl_web_options){.tries = 2, .patience = PATIENCE / 2}, &d->aborted));
    const diloco_status status =
        dl_web_run(web, &(dl_web_batch){.n = 1, .width = 1, .context = &p, .prepare = prepare},
                   dl_time_after(dl_clock_now(), PATIENCE));
    dl_web_destroy(web);
    return status;
}

#else

static diloco_status post_it(dl_deliver *d, const dl_buf *text)
{
    (void)d, (void)text;
    return DILOCO_EREFUSED;
}

#endif

diloco_status dl_deliver_send(dl_deliver *d, const dl_notice *notice, const char *run,
                              const char *name)
{
    dl_buf text;
    dl_buf_init(&text, 1 << 16);
    diloco_status status = build(&text, notice, run, name);
    if (!status) status = d->webhook ? post_it(d, &text) : run_command(d, &text);
    dl_buf_deinit(&text);
    return status;
}
