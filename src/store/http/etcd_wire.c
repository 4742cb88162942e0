/* etcd_wire.c - see etcd_wire.h.
 *
 * A host that does not answer is followed by the next. etcd's refusals are recognised by their
 * text: an expired token and a lease that is gone are answers, which the caller handles. */
#include "store/http/etcd_wire.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- base64 */

diloco_status dl_etcd_add_base64(dl_buf *out, const void *data, size_t len)
{
    DL_TRY(dl_buf_reserve(out, out->len + (len + 2) / 3 * 4 + 1)); /* and the zero it writes */
    out->len += (size_t)EVP_EncodeBlock(out->data + out->len, data, (int)len);
    return DILOCO_OK;
}

/* A missing value is an empty one: the gateway leaves empty fields out. *out is overwritten. */
diloco_status dl_etcd_decode(dl_buf *out, dl_json_value value)
{
    if (value.type != DL_JSON_STRING)
        return value.type == DL_JSON_MISSING ? DILOCO_OK
                                             : dl_fail(DILOCO_EPROTO, "etcd: no base64 text");
    const char *at = value.at + 1;
    const size_t len = (size_t)(value.end - value.at) - 2;
    DL_TRY(dl_buf_reserve(out, len / 4 * 3 + 1));
    const int n = len % 4 ? -1 : EVP_DecodeBlock(out->data, (const unsigned char *)at, (int)len);
    if (n < 0) return dl_fail(DILOCO_EPROTO, "etcd: a value is not base64");
    out->len = (size_t)n - (len && at[len - 1] == '=') - (len && at[len - 2] == '=');
    return DILOCO_OK;
}

diloco_status dl_etcd_add_key(dl_buf *out, const dl_etcd *s, const char *name, const char *key,
                              int last)
{
    char whole[DL_ETCD_PREFIX_MAX + DL_KEY_MAX + 4];
    int len = snprintf(whole, sizeof whole - 1, "%s%s", s->prefix, key);
    if (last >= 0) whole[len++] = (char)last;
    DL_TRY(dl_buf_addf(out, "\"%s\":\"", name));
    DL_TRY(dl_etcd_add_base64(out, whole, (size_t)len));
    return dl_buf_addf(out, "\"");
}

/* The end of a prefix is the prefix with its last byte increased. */
diloco_status dl_etcd_add_range_end(dl_buf *out, const dl_etcd *s, const char *folder)
{
    char whole[DL_ETCD_PREFIX_MAX + DL_KEY_MAX + 4];
    size_t len = (size_t)snprintf(whole, sizeof whole, "%s%s", s->prefix, folder);
    DL_TRY(dl_buf_addf(out, "\"range_end\":\""));
    if (len) {
        whole[len - 1]++;
        DL_TRY(dl_etcd_add_base64(out, whole, len));
    } else {
        DL_TRY(dl_etcd_add_base64(out, "", 1)); /* a zero byte: all there are */
    }
    return dl_buf_addf(out, "\"");
}

/* ---- requests */

diloco_status dl_etcd_add_token(dl_etcd *s, dl_web_exchange *x)
{
    pthread_mutex_lock(&s->lock);
    diloco_status status = *s->token ? dl_web_header(x, "Authorization: %s", s->token) : DILOCO_OK;
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* A second attempt goes to the next host. */
static diloco_status prepare(void *context, dl_web_exchange *x)
{
    dl_etcd_call *c = context;
    dl_etcd *s = c->s;
    x->method = "POST";
    x->what = c->what;
    x->body = &c->span;
    x->n_body = 1;
    if (x->attempt) s->host = (s->host + 1) % s->n_hosts;
    DL_TRY(dl_buf_addf(&x->url, "%s/v3/%s", s->hosts[s->host], c->path));
    return dl_etcd_add_token(s, x);
}

/* The server's text is shown, since etcd has no codes for most refusals. */
static diloco_status refused(const dl_etcd_call *c, const dl_web_exchange *x, dl_json_value answer)
{
    char said[200] = "";
    uint64_t code = 0;
    if (dl_json_read_str(said, sizeof said, answer, "message") ||
        dl_json_read_u64(&code, answer, "code", 100))
        return dl_web_unexpected(x);
    if (strstr(said, "user name is empty"))
        return dl_fail(DILOCO_EREFUSED,
                       "%s: etcd asks for a login: set DILOCO_ETCD_USER, "
                       "DILOCO_ETCD_PASSWORD and DILOCO_ETCD_HOSTS",
                       c->what);
    const bool login =
        x->status == 401 || x->status == 403 || strstr(said, "authentication failed");
    return dl_fail(login ? DILOCO_EREFUSED : DILOCO_EIO, "%s: etcd says: %s", c->what, said);
}

/* An expired token and a lost lease are flags and no errors, because the caller can mend them. */
static diloco_status finish(void *context, dl_web_exchange *x)
{
    dl_etcd_call *c = context;
    dl_json_value answer = {.type = DL_JSON_MISSING};
    const bool good = x->status >= 200 && x->status < 300;
    const diloco_status unread = dl_json_parse(&answer, x->text.data, x->text.len);
    if (good && unread) return dl_fail_context(unread, "%s", c->what);
    if (good) return c->take ? c->take(c, answer) : DILOCO_OK;
    char said[80] = "";
    (void)!dl_json_read_str(said, sizeof said, answer, "message");
    c->unauthorized = strstr(said, "auth token") || strstr(said, "auth: revision");
    c->no_lease = strstr(said, "lease not found") != NULL;
    return c->unauthorized || c->no_lease ? DILOCO_OK : refused(c, x, answer);
}

/* The flags are cleared for each attempt, since the answer sets them. */
static diloco_status run(dl_etcd_call *c, dl_time until)
{
    const dl_web_batch batch = {.n = 1,
                                .width = 1,
                                .max_text = DL_ETCD_RESPONSE_MAX,
                                .context = c,
                                .prepare = prepare,
                                .finish = finish};
    c->span = (dl_span){c->body.data, c->body.len};
    c->unauthorized = c->no_lease = false;
    return dl_web_run(c->s->web, &batch, until);
}

dl_etcd_call dl_etcd_call_of(dl_etcd *s, const char *path, const char *key)
{
    dl_etcd_call c = {.s = s, .path = path};
    dl_buf_init(&c.body, 2 * DL_ETCD_OBJECT_MAX);
    snprintf(c.what, sizeof c.what, "%s%setcd://%.150s", key, *key ? " in " : "", s->place);
    return c;
}

/* ---- login */

static diloco_status take_token(dl_etcd_call *c, dl_json_value answer)
{
    dl_etcd *s = c->s;
    pthread_mutex_lock(&s->lock);
    diloco_status status = dl_json_read_str(s->token, sizeof s->token, answer, "token");
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* The body has the password and is cleared afterwards. The token is guarded, since the listening
 * thread uses it too. */
diloco_status dl_etcd_log_in(dl_etcd *s, dl_time until)
{
    dl_etcd_call c = dl_etcd_call_of(s, "auth/authenticate", "");
    dl_json j;
    c.take = take_token;
    pthread_mutex_lock(&s->lock);
    *s->token = '\0';
    pthread_mutex_unlock(&s->lock);
    dl_json_init(&j, &c.body);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "name", s->user);
    dl_json_str(&j, "password", s->password);
    dl_json_end(&j);
    diloco_status status = dl_json_done(&j);
    if (!status) status = run(&c, until);
    if (c.body.data) OPENSSL_cleanse(c.body.data, c.body.len);
    dl_buf_deinit(&c.body);
    return status;
}

/* Frees the request's body in every case. `made` is the status of building it, so callers need no
 * check of their own. */
diloco_status dl_etcd_send(dl_etcd_call *c, diloco_status made, dl_time until)
{
    diloco_status status = made ? made : run(c, until);
    if (!status && c->unauthorized) {
        status = c->s->user ? dl_etcd_log_in(c->s, until) : DILOCO_OK;
        if (!status) status = run(c, until);
        if (!status && c->unauthorized)
            status = dl_fail(DILOCO_EREFUSED, "%s: etcd refuses the login", c->what);
    }
    dl_buf_deinit(&c->body);
    return status;
}
