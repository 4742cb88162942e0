/* rest.c - see rest.h. An exchange joins a call with its answer while the web client works on it.
 * The client calls prepare for each try, gives the body in pieces to a sink or keeps it as text,
 * and calls finish at the end. */
#include "launch/cloud/rest.h"

#include "base/clock.h"
#include "base/text.h"
#include "launch/lines.h"
#include "store/http/sigv4.h"
#include "store/http/trust.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a path and of an answer, and texts of dl_rest.headers. The largest answer is the list of
 * the pods of a Kubernetes Job, which has some KB for each of up to DL_JOBS_MAX replicas. */
enum { PATH_MAX_BYTES = DL_WEB_URL, RESPONSE_MAX = 16 << 20, N_HEADERS = 2 };
/* Bytes of a text that is not JSON in which secrets are searched. Fewer than QUOTED are shown. */
enum { QUOTE_FROM = 1 << 16, QUOTED = 201 };
/* The longest time of a call with all its tries. */
#define CALL_TIME (120 * DL_SECOND)
/* Silence after which a log that is not followed counts as complete. */
#define LOG_DONE (5 * DL_SECOND)
/* Silence after which a followed log fails. A replica may print nothing for a long time. */
#define LOG_QUIET (24 * 3600 * DL_SECOND)

/* ---- client */

/* The address must not hold credentials, a query or a fragment: they would appear in error
 * texts. */
diloco_status dl_rest_init_at(dl_rest *rest, const dl_launch_spec *spec, const char *name,
                              const char *url)
{
    *rest = (dl_rest){.name = name, .spec = spec, .ca_file = dl_trust_file()};
    dl_buf_init(&rest->cert, 1 << 20);
    dl_buf_init(&rest->key, 1 << 20);
    size_t len = strlen(url);
    while (len && url[len - 1] == '/')
        len--;
    if (len >= sizeof rest->base || strpbrk(url, "@?# \r\n") ||
        (strncmp(url, "https://", 8) && strncmp(url, "http://", 7)))
        return dl_fail(DILOCO_EINVAL, "%s = \"%.100s\": write it as https://HOST[:PORT][/PATH]",
                       url == spec->config->launch_endpoint ? "launch.endpoint" : name, url);
    memcpy(rest->base, url, len);
    return DILOCO_OK;
}

/* Any other character could move the host's name to another domain. */
diloco_status dl_rest_check_region(const char *region)
{
    if (*region && strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(region))
        return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "launch.region = \"%.63s\": a region has lower-case letters, digits and hyphens",
                   region);
}

diloco_status dl_rest_init(dl_rest *rest, const dl_launch_spec *spec, const char *name,
                           const char *base)
{
    const char *given = spec->config->launch_endpoint;
    return dl_rest_init_at(rest, spec, name, *given ? given : base);
}

/* Overwrite and free. explicit_bzero is not removed by the compiler. */
static void wipe(dl_buf *buf)
{
    if (buf->data) explicit_bzero(buf->data, buf->cap);
    dl_buf_deinit(buf);
}

/* Everything that may hold a credential is overwritten. */
void dl_rest_deinit(dl_rest *rest)
{
    dl_web_destroy(rest->web);
    dl_web_destroy(rest->once);
    wipe(&rest->cert);
    wipe(&rest->key);
    explicit_bzero(&rest->who, sizeof rest->who);
    explicit_bzero(rest->headers, sizeof rest->headers);
    rest->web = rest->once = NULL;
}

/* Open a client at its first use. `tries` 0 is the client's default. The abort flag is never set: a
 * launcher is interrupted between calls, not within one. */
static diloco_status open_web(dl_web **web, dl_rest *rest, int tries)
{
    static const atomic_bool never;
    if (*web) return DILOCO_OK;
    const dl_web_options options = {
        .ca_file = rest->ca_file,
        .cert = rest->cert.len ? dl_buf_str(&rest->cert) : NULL,
        .key = rest->key.len ? dl_buf_str(&rest->key) : NULL,
        .tries = tries,
    };
    return dl_web_create(web, &options, &never);
}

/* ---- calls */

void dl_rest_call_init(dl_rest_call *call, const char *method, const char *what)
{
    *call = (dl_rest_call){.method = method};
    snprintf(call->what, sizeof call->what, "%s", what);
    dl_buf_init(&call->path, PATH_MAX_BYTES);
    dl_buf_init(&call->body, DL_REST_BODY);
    dl_json_init(&call->json, &call->body);
}

void dl_rest_call_deinit(dl_rest_call *call)
{
    dl_buf_deinit(&call->path);
    wipe(&call->body);
}

diloco_status dl_rest_path(dl_rest_call *call, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text)
        return dl_fail(DILOCO_EINVAL, "%s: the address is too long", call->what);
    return dl_buf_add(&call->path, text, (size_t)n);
}

diloco_status dl_rest_segment(dl_rest_call *call, const char *text)
{
    return dl_web_escape(&call->path, text, false);
}

/* ---- an exchange */

/* A call that is being made. */
typedef struct exchange {
    dl_rest *rest;
    dl_rest_call *call;
    dl_rest_response *response;
    dl_span body;       /* call->body, as the web client takes it */
    dl_lines *lines;    /* NULL: the body is kept in response->text */
    dl_web_exchange *x; /* of lines */
    bool began;         /* of lines: some have arrived */
} exchange;

/* Add the headers of AWS Signature Version 4. Signed are the host, the date, and the headers that
 * begin with x-amz-. libcurl itself sends the first of them, Host, so it is signed and not added.
 * AWS refuses a date that is minutes off, so the clock of this machine has to be right. */
static diloco_status sign(const dl_rest *rest, dl_web_exchange *x, dl_rest_call *call,
                          const dl_span *body)
{
    char host[DL_REST_BASE], date[DL_SIGV4_DATE], sha[DL_SHA256_HEX];
    const char *rest_of = strstr(rest->base, "://") + 3;
    snprintf(host, sizeof host, "%.*s", (int)strcspn(rest_of, "/"), rest_of);
    dl_sigv4_date(date, (int64_t)dl_clock_wall());
    DL_TRY(dl_sha256_hex(sha, body, body->len ? 1 : 0));
    const char *path = dl_buf_str(&call->path);
    dl_pair headers[4] = {{"host", host}, {"x-amz-date", date}};
    size_t n = 2;
    if (call->target) headers[n++] = (dl_pair){"x-amz-target", call->target};
    if (rest->who.token[0]) headers[n++] = (dl_pair){"x-amz-security-token", rest->who.token};
    for (size_t i = 1; i < n; i++)
        DL_TRY(dl_web_header(x, "%s: %s", headers[i].name, headers[i].value));
    const dl_sigv4_scope scope = {.vendor = "AWS4",
                                  .access = rest->who.access,
                                  .secret = rest->who.secret,
                                  .region = rest->region,
                                  .service = call->service ? call->service : rest->service};
    const dl_sigv4_request request = {.method = call->method,
                                      .path = path ? path : "/",
                                      .headers = headers,
                                      .n_headers = n,
                                      .payload = sha,
                                      .date = date};
    dl_buf value;
    dl_buf_init(&value, 4096);
    diloco_status status = dl_sigv4_sign(&value, &scope, &request);
    const char *text = status ? NULL : dl_buf_str(&value);
    if (!status)
        status = text ? dl_web_header(x, "Authorization: %s", text)
                      : dl_fail(DILOCO_ENOMEM, "out of memory for a signature");
    dl_buf_deinit(&value);
    return status;
}

/* The backend's Date is read at the first piece, when the headers have arrived. */
static diloco_status give_piece(void *context, const void *data, size_t len)
{
    exchange *e = context;
    if (!e->began) e->call->date = dl_web_date(e->x);
    e->began = true;
    return dl_lines_add(e->lines, data, len);
}

/* Describe the request. The web client clears the exchange before each try. A try has its own date,
 * so a repeated call is signed again. */
static diloco_status prepare(void *context, dl_web_exchange *x)
{
    exchange *e = context;
    const dl_rest *rest = e->rest;
    dl_rest_call *call = e->call;
    x->method = call->method;
    x->what = call->what;
    x->keeps = call->keeps;
    DL_TRY(dl_buf_addf(&x->url, "%s", rest->base));
    DL_TRY(dl_buf_add(&x->url, call->path.data, call->path.len));
    e->body = (dl_span){call->body.data, call->body.len};
    if (call->body.len) {
        x->body = &e->body;
        x->n_body = 1;
        DL_TRY(dl_web_header(x, "Content-Type: %s", call->type ? call->type : "application/json"));
    }
    if (e->lines) {
        e->x = x;
        x->sink = (dl_sink){.context = e, .piece = give_piece};
        x->patience = call->quiet ? call->quiet : call->quiet_ends ? LOG_DONE : LOG_QUIET;
    }
    for (int i = 0; i < N_HEADERS; i++)
        if (rest->headers[i][0]) DL_TRY(dl_web_header(x, "%s", rest->headers[i]));
    if (rest->who.access[0]) return sign(rest, x, call, &e->body);
    if (!rest->who.token[0]) return DILOCO_OK;
    return rest->token_header ? dl_web_header(x, "%s: %s", rest->token_header, rest->who.token)
                              : dl_web_header(x, "Authorization: Bearer %s", rest->who.token);
}

/* Does the text of a 429 name a quota of machines? Google also calls a rate of requests a quota,
 * and names its period. A rate passes by itself. */
static bool names_quota(dl_buf *text)
{
    const char *words = text->len ? dl_buf_str(text) : NULL;
    return words && strcasestr(words, "quota") && !strcasestr(words, "per minute") &&
           !strstr(words, "RATE_LIMIT");
}

/* Does a 400 say that requests come too fast, by the kind in AWS's __type? A namespace may come
 * before it. The kinds are those that botocore repeats in its mode "standard", without the ones of
 * single services. AWS answers so where others answer 429. */
static bool is_throttled(const dl_web_exchange *x)
{
    static const char kinds[] = "|Throttling|ThrottlingException|ThrottledException|SlowDown|"
                                "RequestThrottled|RequestThrottledException|RequestLimitExceeded|"
                                "TooManyRequestsException|BandwidthLimitExceeded|";
    char type[128], word[131];
    dl_json_value answer;
    if (x->status != 400 || !x->text.len || dl_json_parse(&answer, x->text.data, x->text.len))
        return false;
    dl_rest_text(type, sizeof type, answer, "__type");
    const char *mark = strrchr(type, '#');
    snprintf(word, sizeof word, "|%s|", mark ? mark + 1 : type);
    return strstr(kinds, word) != NULL;
}

/* The last try counts: its status and its text. A 429 arrives here only with call->keeps. The text
 * is taken and not copied, since it may be large. */
static diloco_status finish(void *context, dl_web_exchange *x)
{
    const exchange *e = context;
    if ((x->status == 429 && !names_quota(&x->text)) || is_throttled(x)) {
        x->again = true;
        return DILOCO_OK;
    }
    e->response->status = x->status;
    const int64_t date = dl_web_date(x);
    if (date) e->response->ahead_s = (int64_t)dl_clock_wall() - date;
    const dl_buf none = e->response->text;
    e->response->text = x->text;
    x->text = none; /* the web client uses its memory again */
    return DILOCO_OK;
}

/* ---- the backend's words */

/* Each part is looked up in the object that the part before it gave; MISSING has no members. */
dl_json_value dl_rest_at(dl_json_value object, const char *path)
{
    char key[64];
    while (*path) {
        const size_t len = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)len, path);
        object = dl_json_get(object, key);
        path += len + (path[len] == '.');
    }
    return object;
}

/* A number is copied as it is written, since ids may have more digits than a double. */
const char *dl_rest_text(char *out, size_t cap, dl_json_value object, const char *path)
{
    const dl_json_value value = dl_rest_at(object, path);
    out[0] = '\0';
    if (value.type == DL_JSON_STRING && dl_json_as_str(out, cap, value)) out[0] = '\0';
    if (value.type == DL_JSON_NUMBER)
        snprintf(out, cap, "%.*s", (int)(value.end - value.at), value.at);
    return out;
}

/* A text has at most as many bytes as it is written with, its quotes included. */
char *dl_rest_copy(dl_json_value object, const char *path)
{
    const dl_json_value value = dl_rest_at(object, path);
    if (value.type != DL_JSON_STRING) return NULL;
    const size_t cap = (size_t)(value.end - value.at) + 1;
    char *text = malloc(cap);
    if (text && !dl_json_as_str(text, cap, value)) return text;
    free(text);
    return NULL;
}

diloco_status dl_rest_give_line(dl_json_value text, dl_job_line_fn fn, void *user)
{
    if (text.type != DL_JSON_STRING) return DILOCO_OK;
    const size_t cap = (size_t)(text.end - text.at) + 1;
    char *line = malloc(cap);
    if (!line) return dl_fail(DILOCO_ENOMEM, "out of memory for a line of output");
    diloco_status status = dl_json_as_str(line, cap, text);
    if (!status) status = fn(user, line, strcspn(line, "\n"));
    free(line);
    return status;
}

/* Copy a text and cut it between two characters of UTF-8. */
static void put_begin(char *out, size_t cap, const char *text)
{
    size_t len = dl_size_min(strlen(text), cap - 1);
    while (len && ((unsigned char)text[len] & 0xC0) == 0x80)
        len--;
    memcpy(out, text, len);
    out[len] = '\0';
}

const char *dl_rest_message(char *out, size_t cap, dl_json_value object, const char *path)
{
    char *text = dl_rest_copy(object, path);
    put_begin(out, cap, text ? text : "");
    free(text);
    return out;
}

/* Replace every occurrence of a secret by ***. Secrets of fewer than four bytes are left, as they
 * would occur in ordinary words. */
static void hide(char *text, const char *secret)
{
    const size_t len = strlen(secret);
    if (len < 4) return;
    for (char *at = text; (at = strstr(at, secret)); at += 3) {
        memcpy(at, "***", 3);
        memmove(at + 3, at + len, strlen(at + len) + 1);
    }
}

/* A backend's words are shown in a terminal: no control characters, and no secrets that it
 * repeats. */
static void clean(const dl_rest *rest, char *text)
{
    /* Secrets first: one may have control characters itself. */
    for (const char *const *s = rest->spec->secrets; *s; s++)
        if (getenv(*s)) hide(text, getenv(*s));
    if (rest->who.token[0]) hide(text, rest->who.token);
    if (rest->who.secret[0]) hide(text, rest->who.secret);
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127) *at = ' ';
}

/* Copy the begin of a text to why[cap], and free the text. It is cut after the secrets in it are
 * hidden, since the cut may be within one. NULL leaves `why` as it is. */
static void quote(const dl_rest *rest, char *why, size_t cap, char *text)
{
    if (!text) return;
    clean(rest, text);
    put_begin(why, cap, text);
    dl_text_clause(why);
    free(text);
}

/* Slurm has an array of errors. The first one has the cause, and a later one only its place. */
static void find_first_error(const dl_rest *rest, dl_rest_response *a)
{
    dl_json_iter it = dl_json_each(dl_json_get(a->json, "errors"));
    if (!dl_json_next(&it)) return;
    quote(rest, a->why, sizeof a->why, dl_rest_copy(it.value, "description"));
    const size_t used = strlen(a->why);
    if (used + 4 < sizeof a->why) {
        if (used) strcat(a->why, ": ");
        const size_t from = strlen(a->why);
        quote(rest, a->why + from, sizeof a->why - from, dl_rest_copy(it.value, "error"));
    }
}

/* The backend's own words, from the members in which the known backends put them. Google and Azure
 * have error.message, Kubernetes and AWS message or Message, and Hugging Face error. OAuth 2.0 has
 * error_description, and problem details (RFC 9457) have detail and title. RunPod has an array of
 * such objects. A text that is no JSON is quoted itself. JSON never is: a secret in it may be
 * escaped, and would not be found. */
static void find_why(const dl_rest *rest, dl_rest_response *a)
{
    static const char *const places[] = {"error.message", "message", "Message", "error_description",
                                         "error",         "msg",     "detail",  "title"};
    dl_json_value from = a->json;
    dl_json_iter it = dl_json_each(from);
    if (from.type == DL_JSON_ARRAY && dl_json_next(&it)) from = it.value;
    a->why[0] = '\0';
    for (size_t i = 0; !a->why[0] && i < sizeof places / sizeof *places; i++)
        quote(rest, a->why, sizeof a->why, dl_rest_copy(from, places[i]));
    if (!a->why[0]) find_first_error(rest, a);
    if (!a->why[0] && a->text.len && from.type == DL_JSON_MISSING)
        quote(rest, a->why, QUOTED,
              strndup((const char *)a->text.data, dl_size_min(a->text.len, QUOTE_FROM)));
}

/* ---- doing it */

/* Make the call with the client for its kind: one repeats calls, the other never does. The number
 * of tries is a property of a web client, so there are two of them. */
static diloco_status run(dl_rest *rest, exchange *e, dl_time until)
{
    dl_web **web = e->call->once ? &rest->once : &rest->web;
    DL_TRY(open_web(web, rest, e->call->once ? 1 : 0));
    if (e->call->json.not_first) DL_TRY(dl_json_done(&e->call->json)); /* the body is JSON */
    const dl_web_batch batch = {.n = 1,
                                .width = 1,
                                .max_text = e->call->most ? e->call->most : RESPONSE_MAX,
                                .context = e,
                                .prepare = prepare,
                                .finish = finish};
    e->response->text.len = 0;
    return dl_web_run(*web, &batch, until);
}

/* Return `status`, with launch.region in the error's text if the host's name was made of it and
 * does not resolve. A region that does not exist looks like an outage otherwise. libcurl's words
 * are the only sign of that. */
static diloco_status name_region(const dl_rest *rest, diloco_status status)
{
    if (status != DILOCO_EUNREACHABLE || !strcasestr(diloco_error_text(), "resolve host"))
        return status;
    const dl_config *config = rest->spec->config;
    if (!config->launch_region[0] || config->launch_endpoint[0] ||
        !strstr(rest->base, config->launch_region))
        return status;
    return dl_fail(status, "%s; check launch.region = \"%.63s\"", diloco_error_text(),
                   config->launch_region);
}

/* A body that is no JSON is not an error: some backends answer with an empty one, and proxies with
 * HTML. */
diloco_status dl_rest_do(dl_rest *rest, dl_rest_call *call, dl_rest_response *response)
{
    exchange e = {.rest = rest, .call = call, .response = response};
    *response = (dl_rest_response){.status = 0};
    dl_buf_init(&response->text, call->most ? call->most : RESPONSE_MAX);
    const dl_time most = dl_time_after(dl_clock_now(), CALL_TIME);
    diloco_status status = run(rest, &e, call->until && call->until < most ? call->until : most);
    if (status == DILOCO_ETIMEDOUT)
        status = dl_fail(DILOCO_EUNREACHABLE, "%s: %s does not answer", call->what, rest->name);
    if (status) {
        dl_buf_deinit(&response->text);
        return name_region(rest, status);
    }
    if (!response->text.len ||
        dl_json_parse(&response->json, response->text.data, response->text.len))
        response->json = (dl_json_value){.type = DL_JSON_MISSING};
    if (!dl_rest_is_good(response)) find_why(rest, response);
    return DILOCO_OK;
}

/* The status of an error and advice about it, by the status of HTTP. A 404 and a 409 have statuses
 * of their own, because callers handle them. */
static const struct {
    int response;
    diloco_status status;
    const char *advice;
} meanings[] = {
    {401, DILOCO_EREFUSED, "; check the credentials"},
    {402, DILOCO_EREFUSED, "; the account has no credit"},
    {403, DILOCO_EREFUSED, "; check the credentials and what they permit"},
    {404, DILOCO_ENOENT, ""},
    {409, DILOCO_EEXIST, ""},
};

/* Google answers 403 or 429 to a request beyond a quota, AWS 400 with the kind in __type, and Azure
 * with error.code (QuotaExceeded). The words are the only difference from another 403; those of a
 * 429 are judged by `finish`. */
static bool is_quota(const dl_rest_response *response)
{
    char type[128], code[128];
    dl_rest_text(type, sizeof type, response->json, "__type");
    if (response->status == 400 && *dl_rest_text(code, sizeof code, response->json, "error.code"))
        return strcasestr(code, "quota") != NULL;
    if (response->status == 400) return strstr(type, "ResourceLimitExceeded") != NULL;
    if (response->status == 429) return true;
    return response->status == 403 &&
           (strcasestr(response->why, "quota") || strcasestr(response->why, "limit exceeded"));
}

/* Backends refuse signatures and tokens of another time, by statuses and words of their own. So a
 * clock that differs by more than CLOCK_S is the likely cause of a refusal by one of these. */
static bool is_of_clock(const dl_rest_response *response)
{
    enum { CLOCK_S = 120 };
    const int status = response->status;
    return (status == 400 || status == 401 || status == 403) &&
           (response->ahead_s > CLOCK_S || response->ahead_s < -CLOCK_S);
}

/* Set *status, and return the advice about the refusal, or "". `clock` may hold it. A status
 * without a row is a plain refusal. */
static const char *advise(diloco_status *status, char clock[96], const dl_rest_response *response)
{
    const char *advice = "";
    *status = DILOCO_EREFUSED;
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (meanings[i].response == response->status) {
            *status = meanings[i].status;
            advice = meanings[i].advice;
        }
    if (is_quota(response)) advice = "; ask for a higher quota, or take another machine or region";
    if (!is_of_clock(response)) return advice;
    const long long ahead = (long long)response->ahead_s;
    snprintf(clock, 96, "; set the clock of this machine, which is %lld s %s",
             ahead < 0 ? -ahead : ahead, ahead < 0 ? "behind" : "ahead");
    return clock;
}

bool dl_rest_has_advice(const dl_rest_response *response)
{
    diloco_status status;
    char clock[96];
    return *advise(&status, clock, response) != '\0';
}

diloco_status dl_rest_refused(const dl_rest *rest, const dl_rest_call *call,
                              const dl_rest_response *response)
{
    diloco_status status;
    char clock[96];
    const char *advice = advise(&status, clock, response);
    return dl_fail(status, "%s: %s answered %d%s%.300s%s", call->what, rest->name, response->status,
                   response->why[0] ? ": " : "", response->why, advice);
}

diloco_status dl_rest_must(dl_rest *rest, dl_rest_call *call, dl_rest_response *response)
{
    DL_TRY(dl_rest_do(rest, call, response));
    if (dl_rest_is_good(response)) return DILOCO_OK;
    const diloco_status status = dl_rest_refused(rest, call, response);
    dl_buf_deinit(&response->text);
    return status;
}

diloco_status dl_rest_token(dl_credentials *out, dl_rest *rest, dl_rest_call *call)
{
    dl_rest_response response;
    uint64_t seconds = 0;
    DL_TRY(dl_rest_must(rest, call, &response));
    diloco_status status =
        dl_json_read_str(out->token, sizeof out->token, response.json, "access_token");
    if (!status) status = dl_json_read_u64(&seconds, response.json, "expires_in", 86400);
    out->expires = (int64_t)dl_clock_wall() + (int64_t)seconds;
    wipe(&response.text);
    return status;
}

/* A log that is not followed may end by silence, which the web client reports as unreachable. The
 * answer's text is used only if there was a refusal. */
diloco_status dl_rest_lines(dl_rest *rest, dl_rest_call *call, dl_job_line_fn fn, void *user)
{
    dl_lines lines;
    dl_rest_response response = {.status = 0};
    exchange e = {.rest = rest, .call = call, .response = &response, .lines = &lines};
    dl_lines_init(&lines, fn, user);
    dl_buf_init(&response.text, RESPONSE_MAX);
    diloco_status status = run(rest, &e, call->until ? call->until : DL_NEVER);
    if (status == DILOCO_EUNREACHABLE && call->quiet_ends && e.began)
        status = DILOCO_OK;
    else if (!status && !dl_rest_is_good(&response)) {
        if (!response.text.len ||
            dl_json_parse(&response.json, response.text.data, response.text.len))
            response.json = (dl_json_value){.type = DL_JSON_MISSING};
        find_why(rest, &response);
        status = dl_rest_refused(rest, call, &response);
    }
    dl_buf_deinit(&response.text);
    return dl_lines_end(&lines, status);
}

/* A body that a row wrote for spec->dry has *** in place of secrets (dl_cloud_secrets). */
diloco_status dl_rest_print(const dl_rest *rest, dl_rest_call *call)
{
    fprintf(rest->spec->dry, "%s %s%.*s\n", call->method, rest->base, (int)call->path.len,
            (const char *)call->path.data);
    if (call->target) fprintf(rest->spec->dry, "X-Amz-Target: %s\n", call->target);
    if (!call->body.len) return DILOCO_OK;
    DL_TRY(dl_json_done(&call->json));
    fprintf(rest->spec->dry, "%.*s\n", (int)call->body.len, (const char *)call->body.data);
    return DILOCO_OK;
}
