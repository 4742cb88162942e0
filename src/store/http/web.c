/* web.c - exchanges over one curl multi handle, on the caller's thread.
 *
 * A batch keeps up to `width` slots. A slot's generation:
 *
 *     free --begin--> due --start--> running --settle--> free (finished), or due again, later
 *
 *  1. exchanges begin in order, and number i only when all below i - width + 1 are finished;
 *  2. the first failure of any exchange (web->failure) is the batch's: no sink, prepare or finish
 *     is called after it, so its text remains;
 *  3. the loop looks at `until` and the abort flag at least every DL_STORE_SLICE. */
#include "store/http/web_parts.h"

#include "base/host_port.h"
#include "base/log.h"
#include "store/http/tcp_pacing.h"
#include "store/http/trust.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define PAUSE_MIN       (100 * DL_MILLISECOND)
#define PAUSE_MAX       (5 * DL_SECOND)
#define RETRY_AFTER_MAX 30
#define PATIENCE        (30 * DL_SECOND)
#define NO_NAME         "a request" /* of an exchange that is not prepared yet */

enum { CONNECT_TIMEOUT_S = 10, SEND_BYTES = 512 << 10, RECEIVE_BYTES = 256 << 10 };
/* ---- making and unmaking */

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_ready;

static void init_curl(void)
{
    curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT);
}

static bool keep(char **copy, const char *text)
{
    return !text || (*copy = strdup(text));
}

static diloco_status fill(dl_web *web, const dl_web_options *options)
{
    if (options && !(keep(&web->ca_file, options->ca_file) && keep(&web->pin, options->pin) &&
                     keep(&web->cert, options->cert) && keep(&web->key, options->key)))
        return dl_fail(DILOCO_ENOMEM, "out of memory for an HTTP client");
    web->tries = options && options->tries ? options->tries : DL_WEB_TRIES;
    web->patience = options && options->patience ? options->patience : PATIENCE;
    pthread_once(&curl_once, init_curl);
    if (curl_ready || !(web->multi = curl_multi_init()))
        return dl_fail(DILOCO_ENOMEM, "libcurl cannot be started");
    curl_multi_setopt(web->multi, CURLMOPT_MAXCONNECTS, (long)DL_WEB_WIDTH);
    for (int i = 0; i < DL_WEB_WIDTH; i++) {
        dl_web_slot *s = &web->slots[i];
        s->web = web;
        s->x.slot = s;
        dl_buf_init(&s->x.url, DL_WEB_URL);
        dl_buf_init(&s->elsewhere, DL_WEB_URL);
        if (!(s->easy = curl_easy_init())) return dl_fail(DILOCO_ENOMEM, "libcurl: no memory");
    }
    return DILOCO_OK;
}

diloco_status dl_web_create(dl_web **out, const dl_web_options *options, const atomic_bool *aborted)
{
    dl_web *web = *out = calloc(1, sizeof *web);
    if (!web) return dl_fail(DILOCO_ENOMEM, "out of memory for an HTTP client");
    web->aborted = aborted;
    dl_rng_init(&web->jitter, (uint64_t)dl_clock_now() ^ (uintptr_t)web,
                DL_STREAM(DL_STREAM_JITTER, 0), 0);
    diloco_status status = fill(web, options);
    if (status) {
        dl_web_destroy(web);
        *out = NULL;
    }
    return status;
}

void dl_web_destroy(dl_web *web)
{
    if (!web) return;
    for (int i = 0; i < DL_WEB_WIDTH; i++) {
        dl_web_slot *s = &web->slots[i];
        curl_easy_cleanup(s->easy);
        curl_slist_free_all(s->headers);
        dl_buf_deinit(&s->x.url);
        dl_buf_deinit(&s->elsewhere);
        dl_buf_deinit(&s->x.text);
    }
    curl_multi_cleanup(web->multi);
    free(web->ca_file);
    free(web->pin);
    free(web->cert);
    if (web->key) OPENSSL_cleanse(web->key, strlen(web->key));
    free(web->key);
    free(web);
}

dl_web_traffic dl_web_counts(const dl_web *web)
{
    return web->traffic;
}

void dl_web_add_traffic(dl_store_counters *counts, const dl_web *web)
{
    counts->bytes_sent = web->traffic.sent;
    counts->bytes_received = web->traffic.received;
    counts->billed_reads = web->traffic.n_reads;
    counts->billed_writes = web->traffic.n_writes;
}

dl_time dl_web_trip(const dl_web *web)
{
    return web->trip;
}

/* ---- bytes in both directions; curl calls these */

static bool good(const dl_web_exchange *x)
{
    return x->status >= 200 && x->status <= 299;
}

static void note_status(dl_web_slot *s)
{
    long code = 0;
    curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &code);
    s->x.status = (int)code;
}

static diloco_status begin_sink(dl_web_slot *s)
{
    curl_off_t len = -1;
    if (s->begun || !s->x.sink.begin) return DILOCO_OK;
    s->begun = true;
    curl_easy_getinfo(s->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &len);
    if (len < 0) return dl_fail(DILOCO_EPROTO, "%s: the server gives no length", s->x.what);
    return s->x.sink.begin(s->x.sink.context, (size_t)len);
}

static diloco_status receive(dl_web_slot *s, const void *data, size_t len)
{
    dl_web_exchange *x = &s->x;
    note_status(s);
    if (good(x) && x->sink.piece) {
        DL_TRY(begin_sink(s));
        x->delivered += len;
        return x->sink.piece(x->sink.context, data, len);
    }
    size_t room = x->text.max - x->text.len;
    if (len > room && good(x))
        return dl_fail(DILOCO_EPROTO, "%s: the answer is longer than %zu bytes", x->what,
                       x->text.max);
    return dl_buf_add(&x->text, data, dl_size_min(len, room));
}

static size_t on_receive(char *data, size_t size, size_t n, void *context)
{
    dl_web_slot *s = context;
    dl_web *web = s->web; /* much may come in one turn of the loop: look at the flag here, too */
    if (!web->failure) web->failure = dl_store_check(web->aborted, DL_NEVER, s->x.what);
    if (!web->failure) web->failure = receive(s, data, size * n);
    return s->web->failure ? 0 : size * n;
}

static size_t on_send(char *out, size_t size, size_t n, void *context)
{
    dl_web_slot *s = context;
    size_t room = size * n, used = 0;
    while (used < room && s->span < s->x.n_body) {
        const dl_span *span = &s->x.body[s->span];
        size_t len = dl_size_min(room - used, span->len - s->offset);
        if (len) memcpy(out + used, (const char *)span->data + s->offset, len);
        used += len;
        s->offset += len;
        if (s->offset == span->len) s->span++, s->offset = 0;
    }
    return used;
}

/* A connection kept from before turned out to be dead: the body goes out once more. */
static int on_rewind(void *context, curl_off_t offset, int origin)
{
    dl_web_slot *s = context;
    if (offset != 0 || origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
    s->span = s->offset = 0;
    return CURL_SEEKFUNC_OK;
}

/* Counts the bytes of a request that libcurl has given to the connection, the head and the body.
 * CURLINFO_REQUEST_SIZE is of no use for it: with some versions of libcurl it includes the body. */
static int on_debug(CURL *easy, curl_infotype type, char *data, size_t len, void *context)
{
    dl_web_slot *s = context;
    (void)easy, (void)data;
    if (type == CURLINFO_HEADER_OUT || type == CURLINFO_DATA_OUT) s->web->traffic.sent += len;
    return 0;
}

/* ---- starting one */

static void set_tls(const dl_web_slot *s)
{
    const dl_web *web = s->web;
    const char *ca_file = web->ca_file ? web->ca_file : dl_trust_file();
    if (ca_file) curl_easy_setopt(s->easy, CURLOPT_CAINFO, ca_file);
    if (web->cert) {
        struct curl_blob cert = {web->cert, strlen(web->cert), CURL_BLOB_NOCOPY};
        struct curl_blob key = {web->key, strlen(web->key), CURL_BLOB_NOCOPY};
        curl_easy_setopt(s->easy, CURLOPT_SSLCERT_BLOB, &cert);
        curl_easy_setopt(s->easy, CURLOPT_SSLKEY_BLOB, &key);
    }
    if (!web->pin) return; /* then curl verifies chain and name */
    curl_easy_setopt(s->easy, CURLOPT_PINNEDPUBLICKEY, web->pin);
    curl_easy_setopt(s->easy, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(s->easy, CURLOPT_SSL_VERIFYHOST, 0L);
}

static void set_body(dl_web_slot *s)
{
    const curl_off_t total = (curl_off_t)dl_spans_len(s->x.body, s->x.n_body);
    curl_easy_setopt(s->easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(s->easy, CURLOPT_INFILESIZE_LARGE, total);
    curl_easy_setopt(s->easy, CURLOPT_READFUNCTION, on_send);
    curl_easy_setopt(s->easy, CURLOPT_READDATA, s);
    curl_easy_setopt(s->easy, CURLOPT_SEEKFUNCTION, on_rewind);
    curl_easy_setopt(s->easy, CURLOPT_SEEKDATA, s);
    curl_easy_setopt(s->easy, CURLOPT_UPLOAD_BUFFERSIZE, (long)SEND_BYTES);
}

static int on_socket(void *context, curl_socket_t fd, curlsocktype purpose)
{
    (void)context, (void)purpose;
    dl_line_pace(fd);
    return CURL_SOCKOPT_OK;
}

static int on_near_socket(void *context, curl_socket_t fd, curlsocktype purpose)
{
    (void)context, (void)purpose;
    dl_line_unpace(fd);
    return CURL_SOCKOPT_OK;
}

static void set_options(dl_web_slot *s, const char *url)
{
    CURL *easy = s->easy;
    const char *method = s->x.method;
    const dl_time patience = s->x.patience ? s->x.patience : s->web->patience;
    const long patience_s = (long)((patience + DL_SECOND - 1) / DL_SECOND);
    bool uploads = !strcmp(method, "PUT") || !strcmp(method, "POST") || s->x.n_body;

    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT,
                     patience_s < CONNECT_TIMEOUT_S ? patience_s : (long)CONNECT_TIMEOUT_S);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, patience_s);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "diloco/" DILOCO_VERSION);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)RECEIVE_BYTES);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, s->error);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, s);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_receive);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(easy, CURLOPT_VERBOSE, 1L); /* for the debug function, which prints nothing */
    curl_easy_setopt(easy, CURLOPT_DEBUGFUNCTION, on_debug);
    curl_easy_setopt(easy, CURLOPT_DEBUGDATA, s);
    const bool near = dl_url_is_near(url); /* proxies of the environment are for other hosts */
    if (near) curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, near ? on_near_socket : on_socket);
    s->ease_at = near ? DL_NEVER : 0;
    set_tls(s);
    if (uploads) set_body(s);
    if (!strcmp(method, "HEAD")) curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, s->headers);
}

/* As a new one, but for what lasts from try to try. */
static void clear(dl_web_slot *s)
{
    dl_web_exchange *x = &s->x;
    dl_buf url = x->url, text = x->text;
    dl_buf_clear(&url);
    dl_buf_clear(&text);
    text.max = s->web->batch->max_text ? s->web->batch->max_text : DL_WEB_TEXT;
    *x = (dl_web_exchange){.url = url,
                           .text = text,
                           .what = NO_NAME,
                           .delivered = x->delivered,
                           .index = x->index,
                           .attempt = x->attempt,
                           .slot = s};
    curl_slist_free_all(s->headers);
    s->headers = NULL;
    s->span = s->offset = 0;
    s->error[0] = '\0';
    curl_easy_reset(s->easy);
}

static void count_request(dl_web_traffic *t, const dl_web_exchange *x)
{
    const bool reads = !strcmp(x->method, "GET") || !strcmp(x->method, "HEAD");
    t->n_requests++;
    if (reads && !x->lists)
        t->n_reads++;
    else if (strcmp(x->method, "DELETE") != 0)
        t->n_writes++;
}

static diloco_status start(dl_web_slot *s)
{
    dl_web *web = s->web;
    clear(s);
    DL_TRY(web->batch->prepare(web->batch->context, &s->x));
    DL_TRY(dl_web_apply_redirect(s));
    const char *url = dl_buf_str(&s->x.url);
    if (!url) return dl_fail(DILOCO_ENOMEM, "%s: out of memory for a request", s->x.what);
    DL_TRY(dl_web_add_header(s, s->x.expect ? "Expect: 100-continue" : "Expect:"));
    set_options(s, url);
    if (curl_multi_add_handle(web->multi, s->easy))
        return dl_fail(DILOCO_ENOMEM, "%s: libcurl takes no more requests", s->x.what);
    s->state = RUNNING;
    count_request(&web->traffic, &s->x);
    return DILOCO_OK;
}

static diloco_status start_those_due(dl_web *web)
{
    dl_time now = dl_clock_now();
    for (size_t i = 0; i < web->batch->width; i++) {
        dl_web_slot *s = &web->slots[i];
        if (s->state == FREE && web->next < web->batch->n &&
            web->next < web->lowest + web->batch->width) {
            s->x.index = web->next++;
            s->x.what = NO_NAME;
            s->x.attempt = 0;
            s->x.delivered = 0;
            s->begun = false;
            dl_web_forget_redirect(s);
            s->trouble[0] = '\0';
            s->state = DUE;
            s->due = now;
        }
        if (s->state == DUE && s->due <= now) DL_TRY(start(s));
    }
    return DILOCO_OK;
}

/* ---- ending one */

static void finished(dl_web_slot *s)
{
    dl_web *web = s->web;
    web->done[s->x.index % DL_WEB_WIDTH] = true;
    s->x.what = NO_NAME;
    while (web->lowest < web->next && web->done[web->lowest % DL_WEB_WIDTH])
        web->done[web->lowest++ % DL_WEB_WIDTH] = false;
    s->state = FREE;
}

/* How long until the next try: 0.1 s doubling, times 0.5 to 1; or what the server asks. */
static dl_time pause_before(dl_web_slot *s)
{
    dl_time pause = PAUSE_MIN << (s->x.attempt < 6 ? s->x.attempt : 6);
    if (pause > PAUSE_MAX) pause = PAUSE_MAX;
    pause = (dl_time)((double)pause * (0.5 + 0.5 * dl_rng_f64(&s->web->jitter)));
    const char *asked = s->x.status ? dl_web_response_header(&s->x, "Retry-After") : NULL;
    long seconds = asked ? strtol(asked, NULL, 10) : 0;
    if (seconds > RETRY_AFTER_MAX) seconds = RETRY_AFTER_MAX;
    return seconds > 0 && seconds * DL_SECOND > pause ? seconds * DL_SECOND : pause;
}

/* s->trouble says why. */
static diloco_status try_again(dl_web_slot *s)
{
    dl_web_exchange *x = &s->x;
    bool last = x->attempt + 1 >= s->web->tries;
    if (last || (x->delivered && !x->resumes))
        return dl_fail(DILOCO_EUNREACHABLE, "%s: %s, in %d %s", x->what, s->trouble, x->attempt + 1,
                       x->attempt ? "tries" : "try");
    dl_time pause = pause_before(s);
    dl_log(DILOCO_LOG_DEBUG, "%s: %s; trying again in %.1f s", x->what, s->trouble,
           dl_seconds(pause));
    x->attempt++;
    dl_web_forget_redirect(s);
    s->due = dl_time_after(dl_clock_now(), pause);
    s->state = DUE;
    return DILOCO_OK;
}

static diloco_status broken(dl_web_slot *s, CURLcode code)
{
    const char *what = s->x.what, *why = s->error[0] ? s->error : curl_easy_strerror(code);
    switch (code) {
    case CURLE_URL_MALFORMAT:
        return dl_fail(DILOCO_EINVAL, "%s: %s", what, why);
    case CURLE_OUT_OF_MEMORY:
        return dl_fail(DILOCO_ENOMEM, "%s: %s", what, why);
    case CURLE_SSL_CACERT_BADFILE:
        return dl_fail(DILOCO_EINVAL, "%s: %s", what, why);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH:
        return dl_fail(DILOCO_EREFUSED, "%s: the server's certificate is not trusted: %s", what,
                       why);
    case CURLE_UNSUPPORTED_PROTOCOL: /* HTTP/0.9, that is, anything */
    case CURLE_WEIRD_SERVER_REPLY:
        return dl_fail(DILOCO_EPROTO, "%s: the server does not speak HTTP: %s", what, why);
    default:
        snprintf(s->trouble, sizeof s->trouble, "%s", why);
        return try_again(s);
    }
}

/* Of the 5xx those that say what the server cannot do do not pass; proxies have numbers of their
 * own (520 to 530). */
static bool passing(int status)
{
    if (status == 408 || status == 429) return true;
    return status >= 500 && status != 501 && status != 505 && status != 507;
}

static diloco_status answered(dl_web_slot *s)
{
    dl_web_exchange *x = &s->x;
    const dl_web_batch *batch = s->web->batch;
    char said[TROUBLE_MAX];
    bool elsewhere;
    note_status(s);
    DL_TRY(dl_web_note_redirect(s, &elsewhere));
    if (elsewhere) {
        s->due = dl_clock_now();
        s->state = DUE;
        return DILOCO_OK;
    }
    if (!passing(x->status) || x->status == x->keeps) {
        if (good(x) && x->sink.piece) DL_TRY(begin_sink(s)); /* of an empty body */
        diloco_status status = batch->finish ? batch->finish(batch->context, x)
                               : good(x)     ? DILOCO_OK
                                             : dl_web_unexpected(x);
        if (status) return status;
        if (!x->again) {
            finished(s);
            return DILOCO_OK;
        }
    }
    dl_web_excerpt(said, x);
    snprintf(s->trouble, sizeof s->trouble, "the server answered %d (%.300s)", x->status, said);
    return try_again(s);
}

static void count_answer(dl_web_slot *s)
{
    long head = 0;
    curl_off_t body = 0;
    curl_easy_getinfo(s->easy, CURLINFO_HEADER_SIZE, &head);
    curl_easy_getinfo(s->easy, CURLINFO_SIZE_DOWNLOAD_T, &body);
    s->web->traffic.received += (uint64_t)head + (uint64_t)body;
}

static curl_socket_t socket_of(const dl_web_slot *s)
{
    curl_socket_t fd = CURL_SOCKET_BAD;
    curl_easy_getinfo(s->easy, CURLINFO_ACTIVESOCKET, &fd);
    return fd;
}

static void measure(dl_web_slot *s)
{
    const curl_socket_t fd = socket_of(s);
    struct tcp_info line = {0};
    socklen_t len = sizeof line;
    if (fd == CURL_SOCKET_BAD || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &line, &len)) return;
    const dl_time trip = (dl_time)line.tcpi_rtt * (DL_MILLISECOND / 1000);
    if (trip > 0 && (trip < s->web->trip || !s->web->trip)) s->web->trip = trip;
}

static void stop(dl_web_slot *s)
{
    count_answer(s);
    measure(s);
    curl_multi_remove_handle(s->web->multi, s->easy);
}

static void settle(dl_web *web, CURL *easy, CURLcode code)
{
    dl_web_slot *s;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &s);
    stop(s);
    if (!web->failure) web->failure = code ? broken(s, code) : answered(s);
}

/* ---- the loop */

/* Lines that we send much over. */
static void ease_lines(dl_web *web)
{
    const dl_time now = dl_clock_now();
    for (size_t i = 0; i < web->batch->width; i++) {
        dl_web_slot *s = &web->slots[i];
        if (s->state != RUNNING || !s->x.n_body || now < s->ease_at) continue;
        const curl_socket_t fd = socket_of(s);
        if (fd != CURL_SOCKET_BAD) s->ease_at = dl_time_after(now, dl_line_ease(fd));
    }
}

/* Out of time, with what was the matter. */
static diloco_status check(const dl_web *web, dl_time until)
{
    const dl_web_slot *s = NULL; /* one that says why, or else any */
    for (size_t i = 0; i < web->batch->width && !(s && s->trouble[0]); i++)
        if (web->slots[i].state != FREE) s = &web->slots[i];
    diloco_status status = dl_store_check(web->aborted, until, s ? s->x.what : NO_NAME);
    return status == DILOCO_ETIMEDOUT && s && s->trouble[0]
               ? dl_fail(status, "%s: out of time; the last error: %s", s->x.what, s->trouble)
               : status;
}

static void wait_a_while(dl_web *web, dl_time until)
{
    dl_time now = dl_clock_now(), wake = now + DL_STORE_SLICE;
    if (until < wake) wake = until;
    for (size_t i = 0; i < web->batch->width; i++)
        if (web->slots[i].state == DUE && web->slots[i].due < wake) wake = web->slots[i].due;
    dl_time left = wake - now;
    if (left > 0)
        curl_multi_poll(web->multi, NULL, 0, (int)((left + DL_MILLISECOND - 1) / DL_MILLISECOND),
                        NULL);
}

static void turn(dl_web *web, dl_time until)
{
    int running, queued;
    if ((web->failure = check(web, until)) || (web->failure = start_those_due(web))) return;
    curl_multi_perform(web->multi, &running);
    ease_lines(web);
    bool settled = false;
    for (CURLMsg *m; (m = curl_multi_info_read(web->multi, &queued));)
        if (m->msg == CURLMSG_DONE) {
            settle(web, m->easy_handle, m->data.result);
            settled = true;
        }
    if (!settled && !web->failure) wait_a_while(web, until);
}

/* A peer that closes while TLS writes must not kill the program that embeds us. */
static bool hold_sigpipe(sigset_t *before)
{
    sigset_t pipe, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, before);
    sigpending(&pending);
    return sigismember(&pending, SIGPIPE);
}

static void release_sigpipe(const sigset_t *before, bool was_pending)
{
    sigset_t pipe;
    struct timespec now = {0, 0};
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    while (!was_pending && sigtimedwait(&pipe, NULL, &now) == SIGPIPE)
        ;
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

diloco_status dl_web_run(dl_web *web, const dl_web_batch *batch, dl_time until)
{
    DL_ASSERT(batch->width >= 1 && batch->width <= DL_WEB_WIDTH);
    sigset_t before;
    bool was_pending = hold_sigpipe(&before);
    web->batch = batch;
    web->failure = DILOCO_OK;
    web->next = web->lowest = 0;
    memset(web->done, 0, sizeof web->done);
    while (web->lowest < batch->n && !web->failure)
        turn(web, until);
    for (size_t i = 0; i < batch->width; i++) {
        if (web->slots[i].state == RUNNING) stop(&web->slots[i]);
        web->slots[i].state = FREE;
        web->slots[i].trouble[0] = '\0';
    }
    release_sigpipe(&before, was_pending);
    return web->failure;
}
