/* google_auth.c - see google_auth.h.
 *
 * A service account's key signs an assertion (a JSON Web Token, RFC 7523), which the token service
 * exchanges for an access token. A user's file holds a refresh token, which is exchanged directly.
 * Both are forms of OAuth 2.0. */
#include "launch/cloud/google_auth.h"

#include "base/clock.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes of a file of credentials and of the PEM key in it. An assertion is valid for VALID_S
 * seconds, the longest that Google accepts. A token is renewed EARLY_S seconds before its end,
 * longer than a call takes. */
enum { FILE_BYTES = 1 << 20, KEY_BYTES = 1 << 14, VALID_S = 3600, EARLY_S = 60 };
/* The scope covers all services of Google Cloud; the roles of the account decide which calls are
 * permitted. TOKEN_URI is for files that name no token service. */
#define SCOPE     "https://www.googleapis.com/auth/cloud-platform"
#define TOKEN_URI "https://oauth2.googleapis.com/token"
#define FORM      "application/x-www-form-urlencoded"

/* ---- a signed assertion */

/* Append base64 with the alphabet of URLs, without padding (RFC 4648, section 5). EVP_EncodeBlock
 * writes a zero byte after the text, hence the one byte more. */
static diloco_status add_base64url(dl_buf *out, const void *data, size_t len)
{
    const size_t at = out->len;
    DL_TRY(dl_buf_reserve(out, at + 4 * (len / 3 + 1) + 1));
    const int n = EVP_EncodeBlock(out->data + at, data, (int)len);
    out->len = at + (size_t)n;
    while (out->len > at && out->data[out->len - 1] == '=')
        out->len--;
    for (size_t i = at; i < out->len; i++)
        out->data[i] = out->data[i] == '+' ? '-' : out->data[i] == '/' ? '_' : out->data[i];
    return DILOCO_OK;
}

/* The claims of the assertion. Times depend on this machine's clock, so a wrong clock is
 * refused. */
static diloco_status add_claims(dl_buf *out, const char *issuer, const char *audience)
{
    dl_buf claims;
    dl_json j;
    const int64_t now = (int64_t)dl_clock_wall();
    dl_buf_init(&claims, FILE_BYTES);
    dl_json_init(&j, &claims);
    dl_json_object(&j, NULL);
    dl_json_str(&j, "iss", issuer);
    dl_json_str(&j, "scope", SCOPE);
    dl_json_str(&j, "aud", audience);
    dl_json_i64(&j, "iat", now);
    dl_json_i64(&j, "exp", now + VALID_S);
    dl_json_end(&j);
    diloco_status status = dl_json_done(&j);
    if (!status) status = add_base64url(out, claims.data, claims.len);
    dl_buf_deinit(&claims);
    return status;
}

/* Append the RS256 signature of the text in `out`, and a dot before it. 1024 bytes hold the
 * signature of a key of up to 8192 bits. */
static diloco_status add_signature(dl_buf *out, const char *pem)
{
    unsigned char signature[1024];
    size_t n = sizeof signature;
    BIO *memory = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key = memory ? PEM_read_bio_PrivateKey(memory, NULL, NULL, NULL) : NULL;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const bool ok = key && context && EVP_PKEY_is_a(key, "RSA") &&
                    EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key) == 1 &&
                    EVP_DigestSign(context, signature, &n, out->data, out->len) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    BIO_free(memory);
    if (!ok) return dl_fail(DILOCO_EINVAL, "Google: private_key of the credentials is no RSA key");
    DL_TRY(dl_buf_add(out, ".", 1));
    return add_base64url(out, signature, n);
}

/* header.claims.signature, each in base64url (RFC 7519). `pem` holds the private key, so it is
 * overwritten before it is freed. */
static diloco_status add_assertion(dl_buf *out, dl_json_value file, const char *audience)
{
    static const char header[] = "{\"alg\":\"RS256\",\"typ\":\"JWT\"}";
    char issuer[512], *pem = malloc(KEY_BYTES);
    if (!pem) return dl_fail(DILOCO_ENOMEM, "out of memory for a key");
    dl_rest_text(issuer, sizeof issuer, file, "client_email");
    dl_rest_text(pem, KEY_BYTES, file, "private_key");
    diloco_status status = add_base64url(out, header, sizeof header - 1);
    if (!status) status = dl_buf_add(out, ".", 1);
    if (!status) status = add_claims(out, issuer, audience);
    if (!status) status = add_signature(out, pem);
    explicit_bzero(pem, KEY_BYTES);
    free(pem);
    return status;
}

/* ---- the token's request */

/* Append name=value to a form, with the value escaped. */
static diloco_status add_field(dl_buf *body, const char *name, const char *value)
{
    DL_TRY(dl_buf_addf(body, "%s%s=", body->len ? "&" : "", name));
    return dl_web_escape(body, value, false);
}

/* The body of a request by a service account (RFC 7523, section 2.1). */
static diloco_status write_account(dl_buf *body, dl_json_value file, const char *audience)
{
    dl_buf assertion;
    dl_buf_init(&assertion, FILE_BYTES);
    diloco_status status = add_assertion(&assertion, file, audience);
    const char *text = status ? NULL : dl_buf_str(&assertion);
    if (!status && !text) status = dl_fail(DILOCO_ENOMEM, "out of memory for an assertion");
    if (!status)
        status = add_field(body, "grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer");
    if (!status) status = add_field(body, "assertion", text);
    dl_buf_deinit(&assertion);
    return status;
}

/* The body of a request by a user's refresh token (RFC 6749, section 6). */
static diloco_status write_user(dl_buf *body, dl_json_value file)
{
    static const char *const fields[] = {"client_id", "client_secret", "refresh_token"};
    char value[2048];
    diloco_status status = add_field(body, "grant_type", "refresh_token");
    for (size_t i = 0; !status && i < sizeof fields / sizeof *fields; i++)
        status = add_field(body, fields[i], dl_rest_text(value, sizeof value, file, fields[i]));
    explicit_bzero(value, sizeof value);
    return status;
}

/* The token service is the one that the file names. launch.endpoint does not apply to it. */
static diloco_status request_token(dl_credentials *out, const dl_launch_spec *spec,
                                   dl_json_value file)
{
    char uri[512], type[64];
    dl_rest rest;
    dl_rest_call call;
    if (!*dl_rest_text(uri, sizeof uri, file, "token_uri")) strcpy(uri, TOKEN_URI);
    dl_rest_text(type, sizeof type, file, "type");
    const bool account = strcmp(type, "service_account") == 0;
    if (!account && strcmp(type, "authorized_user") != 0)
        return dl_fail(DILOCO_EINVAL,
                       "Google: credentials of type \"%s\" are not known here; use the key of a "
                       "service account, or gcloud auth application-default login",
                       type);
    DL_TRY(dl_rest_init_at(&rest, spec, "Google's token service", uri));
    dl_rest_call_init(&call, "POST", "a token");
    call.type = FORM;
    diloco_status status =
        account ? write_account(&call.body, file, uri) : write_user(&call.body, file);
    if (!status) status = dl_rest_token(out, &rest, &call);
    dl_rest_call_deinit(&call);
    dl_rest_deinit(&rest);
    return status;
}

/* ---- where credentials are */

/* Returns the path in `out`, or NULL if there is no file. A file that the variable names has to
 * exist; the other one may be absent. */
static const char *file_of_credentials(char out[DL_PATH_MAX + 1])
{
    const char *named = getenv("GOOGLE_APPLICATION_CREDENTIALS"), *home = getenv("HOME");
    if (named && *named)
        snprintf(out, DL_PATH_MAX + 1, "%s", named);
    else
        snprintf(out, DL_PATH_MAX + 1, "%.900s/.config/gcloud/application_default_credentials.json",
                 home ? home : "");
    return (named && *named) || access(out, R_OK) == 0 ? out : NULL;
}

/* The project is project_id in a key's file, and quota_project_id in a user's. */
static diloco_status read_file(dl_credentials *out, dl_rest *rest, const char *path)
{
    dl_buf text;
    dl_json_value file;
    dl_buf_init(&text, FILE_BYTES);
    diloco_status status = dl_file_read(&text, path);
    if (!status) status = dl_json_parse(&file, text.data, text.len);
    if (!status && !rest->project[0]) {
        dl_rest_text(rest->project, sizeof rest->project, file, "project_id");
        if (!rest->project[0])
            dl_rest_text(rest->project, sizeof rest->project, file, "quota_project_id");
    }
    if (!status) status = request_token(out, rest->spec, file);
    if (text.data) explicit_bzero(text.data, text.cap);
    dl_buf_deinit(&text);
    return status;
}

/* The metadata server of a machine of Google Cloud has a token of its service account. It answers
 * at once or not at all, so the time is short. */
static diloco_status ask_machine(dl_credentials *out)
{
    static const atomic_bool never;
    dl_web *web = NULL;
    diloco_status status = dl_web_create(&web, NULL, &never);
    if (!status)
        status =
            dl_credentials_google_token(out, web, dl_time_after(dl_clock_now(), 30 * DL_SECOND));
    dl_web_destroy(web);
    if (!status && out->token[0]) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "Google: no credentials: GOOGLE_APPLICATION_CREDENTIALS names no "
                                  "file, and this machine has no service account. Run  gcloud auth "
                                  "application-default login");
}

/* The project is remembered with the token, because later calls read no file. Both are shared by
 * all clients of the process. */
diloco_status dl_google_token(dl_rest *rest)
{
    static dl_credentials known;
    static char project[DL_REST_BASE];
    char path[DL_PATH_MAX + 1];
    if (!known.token[0] || (int64_t)dl_clock_wall() > known.expires - EARLY_S) {
        const char *file = file_of_credentials(path);
        known = (dl_credentials){.expires = 0};
        const bool named = rest->project[0];
        const diloco_status status = file ? read_file(&known, rest, file) : ask_machine(&known);
        if (status) {
            explicit_bzero(&known, sizeof known);
            return status;
        }
        if (!named) memcpy(project, rest->project, sizeof project);
    }
    if (!rest->project[0]) memcpy(rest->project, project, sizeof project);
    rest->who = known;
    return DILOCO_OK;
}
