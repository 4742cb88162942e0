/* etcd.c - "etcd://host:port/prefix", "etcds://…": etcd v3 through its JSON gateway, as the control
 * plane of a run (split.h): small objects, strictly ordered, with change events instead of polling.
 *
 * An object is the key <prefix>/<key>. A create is a transaction that puts it if its version is 0;
 * one whose answer was lost finds its own bytes there, and store.c compares them. Only heartbeats
 * are put instead of created. They belong to a lease of this handle, which each put renews, so
 * heartbeats of dead replicas disappear. An object has at most DL_ETCD_OBJECT_MAX bytes: etcd
 * refuses requests above 1.5 MiB.
 *
 * Several hosts of one cluster are separated by commas; a host that does not answer is followed by
 * the next. From the environment, so that no secret is in a command line or a run:
 *
 *     DILOCO_ETCD_USER, DILOCO_ETCD_PASSWORD   the login
 *     DILOCO_ETCD_HOSTS                        hosts that the login may be sent to, as in the url:
 *                                              a url may come from an untrusted peer
 *     DILOCO_ETCD_CA, DILOCO_ETCD_PIN          as DILOCO_HUB_CA and DILOCO_HUB_PIN (http.c) */
#include "store/http/etcd_wire.h"

#include "base/host_port.h"
#include "base/text.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OBJECT_PIECE = DL_ETCD_OBJECT_MAX / 4,
    PAGE = 64, /* keys of one answer to a listing */
    LEASE_S = 60
};

/* ---- opening */

static diloco_status bad_url(const char *place)
{
    return dl_fail(
        DILOCO_EINVAL,
        "etcd://%.200s is not the url of a run in etcd: etcd://HOST:PORT[,HOST:PORT]/RUN, "
        "RUN of letters, digits and ._=-, perhaps in folders",
        strchr(place, '@') ? "…" : place); /* a password is not repeated */
}

/* All hosts are of one cluster. An '@' is refused, since a password does not belong into a url. */
static diloco_status cut_hosts(dl_etcd *s, const char *scheme, const char *hosts, size_t len)
{
    for (const char *at = hosts, *end = hosts + len; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const size_t n = (size_t)((comma ? comma : end) - at);
        if (n == 0 || s->n_hosts == DL_ETCD_HOSTS_MAX || memchr(at, '@', n))
            return bad_url(s->place);
        if (asprintf(&s->hosts[s->n_hosts], "%s://%.*s", scheme, (int)n, at) < 0) {
            s->hosts[s->n_hosts] = NULL;
            return dl_fail(DILOCO_ENOMEM, "not enough memory to open etcd");
        }
        s->n_hosts++;
        at += n + 1;
    }
    return s->n_hosts ? DILOCO_OK : bad_url(s->place);
}

/* "host:port,…/prefix?lease=60". The prefix gets its '/' here, so that keys of run1 and run10 do
 * not mix. */
static diloco_status cut_place(dl_etcd *s, const char *scheme)
{
    const char *path = strchr(s->place, '/'), *options = strchr(s->place, '?');
    const char *end = options ? options : s->place + strlen(s->place);
    if (!path || path > end) return bad_url(s->place);
    size_t len = (size_t)(end - path) - 1;
    if (len && path[len] == '/') len--; /* one at the end is allowed */
    if (len == 0 || len > DL_ETCD_PREFIX_MAX) return bad_url(s->place);
    memcpy(s->prefix, path + 1, len);
    if (!dl_store_key_ok(s->prefix)) return bad_url(s->place);
    strcpy(s->prefix + len, "/");
    s->lease_s = LEASE_S;
    if (options && (strncmp(options, "?lease=", 7) != 0 ||
                    !dl_text_to_u64(&s->lease_s, options + 7, strlen(options + 7)) ||
                    s->lease_s < 1 || s->lease_s > 86400))
        return dl_fail(DILOCO_EINVAL, "etcd://%s: the one option is lease=SECONDS, 1 to 86400",
                       s->place);
    return cut_hosts(s, scheme, s->place, (size_t)(path - s->place));
}

/* The login goes only where the environment says, encrypted or within this machine. Returns
 * DILOCO_EREFUSED if the url's hosts are not those in the environment, since a url may come from
 * another person. */
static diloco_status find_login(dl_etcd *s, const char *scheme)
{
    const char *hosts = getenv("DILOCO_ETCD_HOSTS");
    const size_t len = strcspn(s->place, "/");
    s->options.ca_file = getenv("DILOCO_ETCD_CA");
    s->options.pin = getenv("DILOCO_ETCD_PIN");
    s->user = getenv("DILOCO_ETCD_USER");
    s->password = getenv("DILOCO_ETCD_PASSWORD");
    if (!s->user || !*s->user) {
        s->user = NULL;
        return DILOCO_OK;
    }
    if (!s->password) s->password = "";
    if (!hosts || strlen(hosts) != len || strncmp(hosts, s->place, len) != 0)
        return dl_fail(
            DILOCO_EREFUSED,
            "etcd://%s: DILOCO_ETCD_USER is set, and its password goes only to the hosts "
            "in DILOCO_ETCD_HOSTS, which should be \"%.*s\" if these are right",
            s->place, (int)len, s->place);
    for (size_t i = 0; i < s->n_hosts; i++)
        if (strcmp(scheme, "https") != 0 && !dl_url_is_loopback(s->hosts[i]))
            return dl_fail(DILOCO_EREFUSED, "etcd://%s: a password goes over etcds:// only",
                           s->place);
    return DILOCO_OK;
}

static diloco_status take_whether_any(dl_etcd_call *c, dl_json_value answer)
{
    c->found = dl_json_count(dl_json_get(answer, "kvs")) > 0;
    return DILOCO_OK;
}

static diloco_status add_all(dl_etcd_call *c)
{
    DL_TRY(dl_buf_addf(&c->body, "{\"limit\":1,\"keys_only\":true,"));
    DL_TRY(dl_etcd_add_key(&c->body, c->s, "key", "", -1));
    DL_TRY(dl_buf_addf(&c->body, ","));
    DL_TRY(dl_etcd_add_range_end(&c->body, c->s, ""));
    return dl_buf_addf(&c->body, "}");
}

/* One read of a single key shows whether the prefix exists and whether the login is valid. */
static diloco_status open_place(dl_etcd *s, const char *scheme, const char *place, bool create,
                                const atomic_bool *aborted)
{
    pthread_mutex_init(&s->lock, NULL);
    s->aborted = aborted;
    dl_buf_init(&s->watch, 64 << 10);
    s->place = strdup(place);
    if (!s->place) return dl_fail(DILOCO_ENOMEM, "not enough memory to open etcd");
    DL_TRY(cut_place(s, scheme));
    DL_TRY(find_login(s, scheme));
    DL_TRY(dl_web_create(&s->web, &s->options, aborted));
    if (s->user) DL_TRY(dl_etcd_log_in(s, DL_NEVER));
    dl_etcd_call c = dl_etcd_call_of(s, "kv/range", "");
    c.take = take_whether_any;
    DL_TRY(dl_etcd_send(&c, add_all(&c), DL_NEVER));
    if (!c.found && !create)
        return dl_fail(DILOCO_ENOENT, "nothing is stored under etcd://%s", place);
    return DILOCO_OK;
}

static diloco_status etcd_open(void *self, const char *place, bool create,
                               const atomic_bool *aborted)
{
    return open_place(self, "http", place, create, aborted);
}

static diloco_status etcds_open(void *self, const char *place, bool create,
                                const atomic_bool *aborted)
{
    return open_place(self, "https", place, create, aborted);
}

static void etcd_close(void *self)
{
    dl_etcd *s = self;
    dl_change_stream_destroy(s->stream);
    dl_web_destroy(s->web);
    dl_buf_deinit(&s->watch);
    for (size_t i = 0; i < s->n_hosts; i++)
        free(s->hosts[i]);
    OPENSSL_cleanse(s->token, sizeof s->token);
    pthread_mutex_destroy(&s->lock);
    free(s->place);
}

/* ---- objects */

/* {"key":…,"value":… without the brace that closes it. The length is checked here, because etcd
 * would refuse the request with a less helpful text. */
static diloco_status add_object(dl_buf *out, const dl_etcd *s, const char *key,
                                const dl_span *spans, size_t n_spans)
{
    dl_buf whole;
    diloco_status status = DILOCO_OK;
    dl_buf_init(&whole, DL_ETCD_OBJECT_MAX);
    for (size_t i = 0; i < n_spans && !status; i++)
        if (spans[i].len > DL_ETCD_OBJECT_MAX - whole.len)
            status = dl_fail(DILOCO_EREFUSED,
                             "%s is longer than %d bytes: etcd keeps small objects only; give it "
                             "as --coord to a run with another store",
                             key, DL_ETCD_OBJECT_MAX);
        else
            status = dl_buf_add(&whole, spans[i].data, spans[i].len);
    if (!status) status = dl_buf_addf(out, "{");
    if (!status) status = dl_etcd_add_key(out, s, "key", key, -1);
    if (!status) status = dl_buf_addf(out, ",\"value\":\"");
    if (!status) status = dl_etcd_add_base64(out, whole.data, whole.len);
    if (!status) status = dl_buf_addf(out, "\"");
    dl_buf_deinit(&whole);
    return status;
}

/* Version 0 means that the key does not exist. etcd decides the transaction as a whole, so one
 * creator wins. */
static diloco_status add_transaction(dl_etcd_call *c, const char *key, const dl_span *spans,
                                     size_t n_spans)
{
    DL_TRY(dl_buf_addf(&c->body, "{\"compare\":[{\"target\":\"VERSION\",\"result\":\"EQUAL\","
                                 "\"version\":\"0\","));
    DL_TRY(dl_etcd_add_key(&c->body, c->s, "key", key, -1));
    DL_TRY(dl_buf_addf(&c->body, "}],\"success\":[{\"request_put\":"));
    DL_TRY(add_object(&c->body, c->s, key, spans, n_spans));
    return dl_buf_addf(&c->body, "}}]}");
}

static diloco_status take_outcome(dl_etcd_call *c, dl_json_value answer)
{
    if (dl_json_get(answer, "succeeded").type == DL_JSON_MISSING) return DILOCO_OK; /* false */
    return dl_json_read_bool(&c->succeeded, answer, "succeeded");
}

/* The transaction's answer decides. A lost answer leads to a second transaction, which finds the
 * own bytes. */
static diloco_status etcd_create(void *self, const char *key, const dl_span *spans, size_t n_spans,
                                 bool *taken, dl_time until)
{
    dl_etcd_call c = dl_etcd_call_of(self, "kv/txn", key);
    c.take = take_outcome;
    DL_TRY(dl_etcd_send(&c, add_transaction(&c, key, spans, n_spans), until));
    *taken = !c.succeeded;
    return DILOCO_OK;
}

static diloco_status take_lease(dl_etcd_call *c, dl_json_value answer)
{
    char id[24];
    DL_TRY(dl_json_read_str(id, sizeof id, answer, "ID"));
    return dl_text_to_u64(&c->lease, id, strlen(id)) && c->lease
               ? DILOCO_OK
               : dl_fail(DILOCO_EPROTO, "%s: etcd grants no lease", c->what);
}

static diloco_status grant(dl_etcd *s, dl_time until)
{
    dl_etcd_call c = dl_etcd_call_of(s, "lease/grant", "");
    c.take = take_lease;
    DL_TRY(dl_etcd_send(
        &c, dl_buf_addf(&c.body, "{\"TTL\":\"%llu\"}", (unsigned long long)s->lease_s), until));
    s->lease = c.lease;
    s->renewed = dl_clock_now();
    return DILOCO_OK;
}

/* A third of the lease is the interval, so two renewals may be lost. */
static diloco_status renew(dl_etcd *s, dl_time until)
{
    dl_etcd_call c = dl_etcd_call_of(s, "lease/keepalive", "");
    const dl_time third = (dl_time)s->lease_s * DL_SECOND / 3;
    if (dl_clock_now() - s->renewed < third) return DILOCO_OK;
    DL_TRY(dl_etcd_send(&c, dl_buf_addf(&c.body, "{\"ID\":\"%llu\"}", (unsigned long long)s->lease),
                        until));
    s->renewed = dl_clock_now();
    return DILOCO_OK;
}

/* *expired is set if etcd does not know the lease any more; then nothing was written. */
static diloco_status put_leased(dl_etcd *s, const char *key, const dl_span *span, bool *expired,
                                dl_time until)
{
    dl_etcd_call c = dl_etcd_call_of(s, "kv/put", key);
    diloco_status made = add_object(&c.body, s, key, span, 1);
    if (!made) made = dl_buf_addf(&c.body, ",\"lease\":\"%llu\"}", (unsigned long long)s->lease);
    DL_TRY(dl_etcd_send(&c, made, until));
    *expired = c.no_lease;
    return DILOCO_OK;
}

/* An expired lease is granted again, and the put is repeated once. */
static diloco_status etcd_put(void *self, const char *key, const void *data, size_t len,
                              dl_time until)
{
    dl_etcd *s = self;
    const dl_span span = {data, len};
    bool expired = false;
    if (!s->lease) DL_TRY(grant(s, until));
    DL_TRY(renew(s, until));
    DL_TRY(put_leased(s, key, &span, &expired, until));
    if (!expired) return DILOCO_OK;
    DL_TRY(grant(s, until)); /* we were away for longer than it lasts */
    DL_TRY(put_leased(s, key, &span, &expired, until));
    return expired ? dl_fail(DILOCO_EUNREACHABLE, "%s: etcd's leases expire at once", key)
                   : DILOCO_OK;
}

static diloco_status etcd_remove(void *self, const char *key, dl_time until)
{
    dl_etcd_call c = dl_etcd_call_of(self, "kv/deleterange", key);
    diloco_status made = dl_buf_addf(&c.body, "{");
    if (!made) made = dl_etcd_add_key(&c.body, self, "key", key, -1);
    if (!made) made = dl_buf_addf(&c.body, "}");
    return dl_etcd_send(&c, made, until);
}

/* Gives the value in pieces, and looks at the abort flag in between. */
static diloco_status give(const dl_etcd_call *c, const dl_buf *value)
{
    DL_TRY(c->sink.begin(c->sink.context, value->len));
    for (size_t at = 0, n; at < value->len; at += n) {
        n = dl_size_min(value->len - at, OBJECT_PIECE);
        DL_TRY(dl_store_check(c->s->aborted, DL_NEVER, c->what));
        DL_TRY(c->sink.piece(c->sink.context, value->data + at, n));
    }
    return DILOCO_OK;
}

/* c->found is false if the key does not exist. Otherwise the decoded value goes to the sink. */
static diloco_status take_value(dl_etcd_call *c, dl_json_value answer)
{
    dl_json_iter it = dl_json_each(dl_json_get(answer, "kvs"));
    dl_buf value;
    c->found = dl_json_next(&it);
    if (!c->found) return DILOCO_OK;
    dl_buf_init(&value, DL_ETCD_RESPONSE_MAX);
    diloco_status status = dl_etcd_decode(&value, dl_json_get(it.value, "value"));
    if (!status) status = give(c, &value);
    dl_buf_deinit(&value);
    return status;
}

static diloco_status etcd_read(void *self, const char *key, dl_sink sink, dl_time until)
{
    dl_etcd_call c = dl_etcd_call_of(self, "kv/range", key);
    c.take = take_value;
    c.sink = sink;
    diloco_status made = dl_buf_addf(&c.body, "{");
    if (!made) made = dl_etcd_add_key(&c.body, self, "key", key, -1);
    if (!made) made = dl_buf_addf(&c.body, "}");
    DL_TRY(dl_etcd_send(&c, made, until));
    return c.found ? DILOCO_OK : dl_fail(DILOCO_ENOENT, "%s is not in etcd://%s", key, c.s->place);
}

/* ---- listing */

/* Bytes that a base64 text stands for. */
static size_t decoded_len(dl_json_value value)
{
    const size_t len = value.type == DL_JSON_STRING ? (size_t)(value.end - value.at) - 2 : 0;
    if (len < 4) return 0; /* of an empty object there is no value at all */
    return len / 4 * 3 - (value.end[-2] == '=') - (value.end[-3] == '=');
}

/* Keys come from the server: a key outside the prefix, or too long, ends the listing. */
static diloco_status take_key(dl_etcd_call *c, dl_json_value kv, dl_buf *key)
{
    const size_t prefix = strlen(c->s->prefix);
    dl_buf_clear(key);
    DL_TRY(dl_etcd_decode(key, dl_json_get(kv, "key")));
    if (key->len < prefix || memcmp(key->data, c->s->prefix, prefix) != 0 ||
        key->len - prefix > DL_KEY_MAX)
        return dl_fail(DILOCO_EPROTO, "%s: etcd lists another key than was asked for", c->what);
    memcpy(c->last, key->data + prefix, key->len - prefix);
    c->last[key->len - prefix] = '\0';
    return c->on_key(c->context, c->last, decoded_len(dl_json_get(kv, "value")));
}

/* etcd leaves `more` out if it is false. */
static diloco_status take_page(dl_etcd_call *c, dl_json_value answer)
{
    dl_buf key;
    diloco_status status = DILOCO_OK;
    const dl_json_value more = dl_json_get(answer, "more");
    c->more = false;
    if (more.type != DL_JSON_MISSING) DL_TRY(dl_json_read_bool(&c->more, answer, "more"));
    dl_buf_init(&key, 2 * (DL_ETCD_PREFIX_MAX + DL_KEY_MAX));
    for (dl_json_iter it = dl_json_each(dl_json_get(answer, "kvs")); !status && dl_json_next(&it);)
        status = take_key(c, it.value, &key);
    dl_buf_deinit(&key);
    return status;
}

static diloco_status add_page(dl_etcd_call *c, const char *after)
{
    DL_TRY(dl_buf_addf(&c->body, "{\"limit\":%d,", PAGE));
    DL_TRY(dl_etcd_add_key(&c->body, c->s, "key", after ? after : c->prefix, after ? 0 : -1));
    DL_TRY(dl_buf_addf(&c->body, ","));
    DL_TRY(dl_etcd_add_range_end(&c->body, c->s, c->prefix));
    return dl_buf_addf(&c->body, "}");
}

/* Each page begins after the last key of the page before. The answer has keys and values, so a page
 * is short. */
static diloco_status etcd_list(void *self, const char *prefix, const char *after, dl_found_fn found,
                               void *context, dl_time until)
{
    char from[DL_KEY_MAX + 1] = "";
    bool more = true;
    if (after && strncmp(after, prefix, strlen(prefix)) != 0) {
        if (strcmp(after, prefix) > 0) return DILOCO_OK;
        after = NULL;
    }
    if (after) strcpy(from, after);
    while (more) {
        dl_etcd_call c = dl_etcd_call_of(self, "kv/range", prefix);
        c.take = take_page;
        c.prefix = prefix;
        c.on_key = found;
        c.context = context;
        DL_TRY(dl_etcd_send(&c, add_page(&c, *from ? from : NULL), until));
        more = c.more && *c.last;
        strcpy(from, c.last);
    }
    return DILOCO_OK;
}

/* ---- waiting */

/* One request of the stream: all keys of a folder, from now on. */
static diloco_status add_watch(dl_buf *out, const dl_etcd *s, const char *folder)
{
    DL_TRY(dl_buf_addf(out, "{\"create_request\":{"));
    DL_TRY(dl_etcd_add_key(out, s, "key", folder, -1));
    DL_TRY(dl_buf_addf(out, ","));
    DL_TRY(dl_etcd_add_range_end(out, s, folder));
    return dl_buf_addf(out, "}}\n");
}

/* One stream, on which the gateway reads as many requests as its body has. */
static diloco_status prepare_watch(void *context, dl_web_exchange *x, const char *folders,
                                   size_t len)
{
    dl_etcd *s = context;
    x->method = "POST";
    x->what = "etcd's watch";
    x->patience = 300 * DL_SECOND; /* nothing happens for as long as nothing happens */
    dl_buf_clear(&s->watch);
    if (len == 0) DL_TRY(add_watch(&s->watch, s, ""));
    for (size_t at = 0; at < len; at += strlen(folders + at) + 1)
        DL_TRY(add_watch(&s->watch, s, folders + at));
    s->watch_span = (dl_span){s->watch.data, s->watch.len};
    x->body = &s->watch_span;
    x->n_body = 1;
    DL_TRY(dl_buf_addf(&x->url, "%s/v3/watch", s->hosts[s->stream_host++ % s->n_hosts]));
    return dl_etcd_add_token(s, x);
}

static diloco_status etcd_wait(void *self, const char *const *prefixes, size_t n, dl_time until)
{
    dl_etcd *s = self;
    const dl_change_stream_args args = {
        .web = &s->options, .aborted = s->aborted, .context = s, .prepare = prepare_watch};
    if (!s->stream) DL_TRY(dl_change_stream_create(&s->stream, &args));
    return dl_change_stream_wait(s->stream, prefixes, n, until);
}

static void etcd_traffic(const void *self, dl_store_counters *counts)
{
    dl_web_add_traffic(counts, ((const dl_etcd *)self)->web);
}

#define OF(name, opener)                                                                           \
    {                                                                                              \
        .scheme = name, .size = sizeof(dl_etcd), .max_object = DL_ETCD_OBJECT_MAX,                 \
        .pause_min = DL_SECOND, .pause_max = 10 * DL_SECOND, .open = opener, .close = etcd_close,  \
        .create = etcd_create, .put = etcd_put, .read = etcd_read, .list = etcd_list,              \
        .remove = etcd_remove, .wait = etcd_wait, .traffic = etcd_traffic                          \
    }
const dl_store_kind dl_store_etcd = OF("etcd", etcd_open);
const dl_store_kind dl_store_etcds = OF("etcds", etcds_open);
