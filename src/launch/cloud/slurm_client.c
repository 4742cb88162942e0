/* slurm_client.c - see slurm_client.h.
 *
 * The token is only in a header. slurmrestd answers 500 to most refusals. It answers to a token
 * that is not valid as it does while the controller is away. So the end of the token's validity is
 * read from the token itself. */
#include "launch/cloud/slurm_client.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/host_port.h"
#include "launch/slurm_calls.h"

#include <openssl/evp.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The controller's refusals of a job are errors of these numbers (slurm_errno.h). */
enum { REFUSED_FROM = 2000, REFUSED_TO = 3000 };

/* Slurm 23.11 to 25.05; 22.05 to 23.11; then later ones. The form of requests is that of the
 * sources of Slurm 22.05, 23.11, 24.05, 24.11 and 25.05. */
static const dl_slurm_version versions[] = {{"v0.0.40", false},
                                            {"v0.0.38", true},
                                            {"v0.0.42", false},
                                            {"v0.0.43", false},
                                            {"v0.0.41", false}};
enum { N_VERSIONS = sizeof versions / sizeof *versions };

/* ---- the place of the token */

/* The path in SLURM_JWT_FILE, or NULL: then the token is in SLURM_JWT. */
static const char *token_file(void)
{
    const char *path = getenv("SLURM_JWT_FILE");
    return path && *path ? path : NULL;
}

/* The end of an error about a token that is not valid. */
static const char *way_to_token(void)
{
    return token_file() ? "write a new one to the file, as by  scontrol token lifespan=SECONDS; "
                          "jobs continue meanwhile"
                        : "set SLURM_JWT to a new token, as by  "
                          "export $(scontrol token lifespan=SECONDS)";
}

/* Has the server accepted a token of this process? It outlives the client, which is closed after a
 * poll. */
static atomic_bool accepted;

/* ---- errors */

bool dl_slurm_number(uint64_t *out, dl_json_value object, const char *path)
{
    dl_json_value value = dl_rest_at(object, path);
    if (value.type == DL_JSON_OBJECT) {
        bool set = false, infinite = false;
        if (dl_json_read_bool(&set, value, "set") || !set) return false;
        if (!dl_json_read_bool(&infinite, value, "infinite") && infinite) return false;
        value = dl_json_get(value, "number");
    }
    return value.type == DL_JSON_NUMBER && !dl_json_as_u64(out, value, UINT32_MAX);
}

/* v0.0.38 has two names for the number. */
uint64_t dl_slurm_error(const dl_rest_response *response)
{
    uint64_t code = 0;
    dl_json_iter it = dl_json_each(dl_json_get(response->json, "errors"));
    if (dl_json_next(&it) && !dl_slurm_number(&code, it.value, "error_number"))
        (void)dl_slurm_number(&code, it.value, "error_code");
    return code;
}

/* Slurm's other errors are those of its connections, so they may pass. A token in a file may be
 * replaced, so its refusal may pass as well, once another was accepted. Before that it is a
 * mistake. */
diloco_status dl_slurm_failed(const dl_slurm_client *c, const dl_rest_call *call,
                              const dl_rest_response *response)
{
    const uint64_t code = dl_slurm_error(response);
    if (response->status == 401) {
        const diloco_status refused = dl_rest_refused(&c->rest, call, response);
        return dl_fail(token_file() && accepted ? DILOCO_EUNREACHABLE : refused, "%s: %s",
                       diloco_error_text(), way_to_token());
    }
    if (response->status < 500 || (code >= REFUSED_FROM && code < REFUSED_TO)) {
        const diloco_status refused = dl_rest_refused(&c->rest, call, response);
        return dl_fail(refused, "%s%s", diloco_error_text(), dl_slurm_way_out(response->why));
    }
    return dl_fail(DILOCO_EUNREACHABLE,
                   "%s: slurmrestd answered %d: %.300s; check that slurmctld answers, and that the "
                   "token of %s is valid",
                   call->what, response->status, response->why,
                   token_file() ? "SLURM_JWT_FILE" : "SLURM_JWT");
}

void dl_slurm_begin(dl_rest_call *call, const char *method, const char *what)
{
    dl_rest_call_init(call, method, what);
    call->keeps = 500;
}

/* ---- the token */

/* Decode the second part of a JSON Web Token, base64url without padding (RFC 7515), into out.
 * Returns false if the token has no such part. */
static bool decode_claims(dl_buf *out, const char *token)
{
    const char *begin = strchr(token, '.');
    const size_t len = begin ? strcspn(begin + 1, ".") : 0, padded = (len + 3) / 4 * 4;
    char text[sizeof((dl_credentials *)0)->token + 4];
    if (!len || padded >= sizeof text || dl_buf_reserve(out, padded)) return false;
    for (size_t i = 0; i < padded; i++) {
        const char c = i < len ? begin[1 + i] : '=';
        text[i] = (char)(c == '-' ? '+' : c == '_' ? '/' : c);
    }
    const int n = EVP_DecodeBlock(out->data, (unsigned char *)text, (int)padded);
    if (n < 0 || (size_t)n < padded - len) return false;
    out->len = (size_t)n - (padded - len);
    return true;
}

/* Read the claims of Slurm's tokens: `exp`, the end of the validity, and `sun`, the user's name.
 * *has_identity: it also has `id`, the user's identity. A token in another form is left to the
 * server. */
static diloco_status read_claims(char user[256], bool *has_identity, const char *token)
{
    dl_buf text;
    dl_json_value claims;
    uint64_t expires = 0;
    dl_buf_init(&text, 1 << 16);
    if (decode_claims(&text, token) && !dl_json_parse(&claims, text.data, text.len)) {
        dl_rest_text(user, 256, claims, "sun");
        *has_identity = dl_json_get(claims, "id").type != DL_JSON_MISSING;
        (void)dl_slurm_number(&expires, claims, "exp");
    }
    if (text.data) explicit_bzero(text.data, text.cap);
    dl_buf_deinit(&text);
    if (!expires || (double)expires > dl_clock_wall()) return DILOCO_OK;
    const char *path = token_file();
    return dl_fail(DILOCO_EREFUSED,
                   "slurm: the token %s %.300s%shas expired by this machine's clock: %s",
                   path ? "in" : "of", path ? path : "SLURM_JWT", path ? " (SLURM_JWT_FILE) " : " ",
                   way_to_token());
}

/* Read the token of SLURM_JWT_FILE: the first line, or as scontrol prints it, SLURM_JWT=TOKEN. */
static diloco_status read_token(char *token, size_t cap, const char *path)
{
    static const char name[] = "SLURM_JWT=";
    dl_buf text;
    dl_buf_init(&text, cap + sizeof name);
    diloco_status status = dl_file_read(&text, path);
    const bool is_read = !status;
    const char *line = is_read ? dl_buf_str(&text) : NULL;
    if (is_read && !line) status = dl_fail(DILOCO_ENOMEM, "slurm: out of memory for a token");
    if (line && strncmp(line, name, strlen(name)) == 0) line += strlen(name);
    const size_t len = line ? strcspn(line, " \t\r\n") : 0;
    if (len < cap) snprintf(token, cap, "%.*s", (int)len, line ? line : "");
    if (text.data) explicit_bzero(text.data, text.cap);
    dl_buf_deinit(&text);
    if (!is_read)
        return dl_fail(DILOCO_EINVAL,
                       "slurm: SLURM_JWT_FILE is set, and its file gives no token: %s",
                       diloco_error_text());
    if (status || (len && len < cap)) return status;
    return dl_fail(DILOCO_EINVAL, "slurm: the file %.300s (SLURM_JWT_FILE) has no token%s", path,
                   len ? " of a possible length" : "");
}

/* Copy the token of SLURM_JWT. */
static diloco_status copy_token(char *token, size_t cap)
{
    const char *given = getenv("SLURM_JWT");
    if (!given || !*given)
        return dl_fail(DILOCO_EINVAL,
                       "slurm: launch.endpoint is set and SLURM_JWT is not: set it to a token, as "
                       "by  export $(scontrol token lifespan=SECONDS), or set SLURM_JWT_FILE to a "
                       "file that has one");
    if (strlen(given) >= cap)
        return dl_fail(DILOCO_EINVAL, "slurm: the token of SLURM_JWT has more than %zu bytes",
                       cap - 1);
    strcpy(token, given);
    return DILOCO_OK;
}

/* Find the token, for the user that it names, or else for the user of this process. That of a file
 * is read for each client, since it may be renewed while a launcher runs. AWS PCS takes a token
 * with the user's identity alone, as a bearer token and without a user's name beside it. */
static diloco_status find_token(dl_rest *rest)
{
    const struct passwd *own = getpwuid(geteuid());
    const char *path = token_file();
    char *token = rest->who.token, user[256] = "";
    bool has_identity = false;
    DL_TRY(path ? read_token(token, sizeof rest->who.token, path)
                : copy_token(token, sizeof rest->who.token));
    DL_TRY(read_claims(user, &has_identity, token));
    if (has_identity) return DILOCO_OK; /* Authorization: Bearer */
    rest->token_header = "X-SLURM-USER-TOKEN";
    snprintf(rest->headers[0], sizeof rest->headers[0], "X-SLURM-USER-NAME: %s",
             *user ? user
             : own ? own->pw_name
                   : "");
    return DILOCO_OK;
}

/* The token is enough to submit jobs as its user, so it is not sent over a network in clear text.
 */
static diloco_status open_rest(dl_rest *rest, const dl_launch_spec *spec)
{
    DL_TRY(dl_rest_init(rest, spec, "slurmrestd", ""));
    if (strncmp(rest->base, "https://", 8) == 0 || dl_url_is_loopback(rest->base)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "launch.endpoint = \"%.100s\": http:// would send the token in clear text. "
                   "Use https://, or forward a port:  ssh -L 6820:HOST:6820 LOGIN  and "
                   "http://127.0.0.1:6820",
                   rest->base);
}

/* ---- the version */

/* Does the server have this version? */
static diloco_status try_version(bool *has, dl_slurm_client *c, const dl_slurm_version *version)
{
    dl_rest_call call;
    dl_rest_response response;
    dl_slurm_begin(&call, "GET", "slurm");
    diloco_status status = dl_rest_path(&call, "/slurm/%s/ping", version->name);
    if (!status) status = dl_rest_do(&c->rest, &call, &response);
    if (!status) {
        *has = response.status != 404;
        if (dl_rest_is_good(&response))
            accepted = true;
        else if (*has)
            status = dl_slurm_failed(c, &call, &response);
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    return status;
}

/* Append the version in a path of the server's description, "/slurm/v0.0.40/ping", to the list
 * out[cap], unless it is there. */
static void add_version(char *out, size_t cap, const char *path)
{
    static const char before[] = "/slurm/";
    char name[32];
    if (strncmp(path, before, strlen(before)) != 0) return;
    const char *begin = path + strlen(before);
    const size_t len = strspn(begin, "v.0123456789"); /* the server's text may be anything */
    if (begin[len] != '/') return;
    snprintf(name, sizeof name, "%.*s", (int)len, begin);
    const size_t used = strlen(out);
    if (!strstr(out, name)) snprintf(out + used, cap - used, "%s%s", used ? ", " : "", name);
}

/* The error that names the versions of the server and of this program. */
static diloco_status no_version(dl_slurm_client *c)
{
    char theirs[256] = "", ours[128] = "";
    dl_rest_call call;
    dl_rest_response response;
    dl_slurm_begin(&call, "GET", "slurm");
    if (!dl_rest_path(&call, "/openapi/v3") && !dl_rest_do(&c->rest, &call, &response)) {
        const dl_json_value paths = dl_json_get(response.json, "paths");
        for (dl_json_iter it = dl_json_each(paths); dl_json_next(&it);) {
            char path[256];
            if (!dl_json_as_str(path, sizeof path, it.key))
                add_version(theirs, sizeof theirs, path);
        }
        dl_buf_deinit(&response.text);
    }
    dl_rest_call_deinit(&call);
    for (size_t i = 0; i < N_VERSIONS; i++) {
        const size_t used = strlen(ours);
        snprintf(ours + used, sizeof ours - used, "%s%s", i ? ", " : "", versions[i].name);
    }
    return dl_fail(
        DILOCO_EREFUSED,
        "launch.endpoint = \"%.100s\": the server has the versions %s of Slurm's API, and "
        "this program knows %s",
        c->rest.base, *theirs ? theirs : "(none)", ours);
}

diloco_status dl_slurm_open(dl_slurm_client *c, const dl_launch_spec *spec)
{
    bool has = false;
    *c = (dl_slurm_client){.version = versions};
    DL_TRY(open_rest(&c->rest, spec));
    if (spec->dry) return DILOCO_OK;
    const diloco_status status = find_token(&c->rest);
    if (status)
        return token_file() ? dl_fail(DILOCO_EUNREACHABLE, "%s", diloco_error_text()) : status;
    for (size_t i = 0; i < N_VERSIONS && !has; i++) {
        c->version = &versions[i];
        DL_TRY(try_version(&has, c, c->version));
    }
    return has ? DILOCO_OK : no_version(c);
}

diloco_status dl_slurm_check(const dl_launch_spec *spec)
{
    dl_rest rest = {.name = NULL};
    diloco_status status = open_rest(&rest, spec);
    if (!status && !spec->dry) status = find_token(&rest);
    dl_rest_deinit(&rest);
    return status;
}
