/* credentials.c - the places where a cloud's own tools look, in their order. */
#include "store/http/credentials.h"

#include "base/file.h"
#include "base/json.h"
#include "store/http/cloud.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FILE_MAX = 1 << 20, RESPONSE_MAX = 64 << 10 };
#define METADATA_HOST "169.254.169.254"
#define METADATA      "http://" METADATA_HOST
#define METADATA_TIME (3 * DL_SECOND) /* outside a cloud its address leads nowhere */

/* ---- ini files */

static char *trim(char *text)
{
    text += strspn(text, " \t");
    for (size_t len = strlen(text); len && strchr(" \t\r", text[len - 1]); len--)
        text[len - 1] = '\0';
    return text;
}

/* Reads one line; *inside follows the sections. Returns true if the line sets the wanted name in
 * the wanted section. A value that does not fit is no value. */
static bool match_line(char *line, bool *inside, const char *section, const char *name, char *out,
                       size_t cap)
{
    line = trim(line);
    size_t len = strlen(line);
    if (*line == '[' && line[len - 1] == ']') {
        line[len - 1] = '\0';
        *inside = !strcmp(trim(line + 1), section);
        return false;
    }
    char *equals = *inside && *line != '#' && *line != ';' ? strchr(line, '=') : NULL;
    if (!equals) return false;
    *equals = '\0';
    return !strcmp(trim(line), name) && snprintf(out, cap, "%s", trim(equals + 1)) < (int)cap &&
           *out;
}

/* Reads one value of an ini file. The file may have secrets, so its buffer is cleared. */
bool dl_ini_read(char *out, size_t cap, const char *path, const char *section, const char *name)
{
    dl_buf file;
    bool found = false, inside = false;
    dl_buf_init(&file, FILE_MAX);
    if (!dl_file_read(&file, path) && dl_buf_str(&file)) {
        char *rest = NULL;
        for (char *line = strtok_r((char *)file.data, "\n", &rest); line && !found;
             line = strtok_r(NULL, "\n", &rest))
            found = match_line(line, &inside, section, name, out, cap);
        OPENSSL_cleanse(file.data, file.len);
    }
    dl_buf_deinit(&file);
    if (!found) *out = '\0';
    return found;
}

/* ---- environment */

static const char *set(const char *name) /* NULL: not set, or empty */
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static bool take(char *out, size_t cap, const char *value)
{
    return value && snprintf(out, cap, "%s", value) < (int)cap;
}

/* Both keys have to be set. A session token belongs to temporary keys. */
static bool from_environment(dl_credentials *out)
{
    const char *token = set("AWS_SESSION_TOKEN");
    return take(out->access, sizeof out->access, set("AWS_ACCESS_KEY_ID")) &&
           take(out->secret, sizeof out->secret, set("AWS_SECRET_ACCESS_KEY")) &&
           (!token || take(out->token, sizeof out->token, token));
}

/* Words the final error: where credentials were looked for, and the reason of the last place. */
static diloco_status none_found(diloco_status status, const char *looked)
{
    char why[256];
    if (status == DILOCO_ECLOSED) return status;
    snprintf(why, sizeof why, "%s", diloco_error_text());
    return dl_fail(DILOCO_EINVAL,
                   "no credentials: %s (%s); docs/stores.md lists the ways to "
                   "give them",
                   looked, why);
}

/* ---- the profile */

static void aws_file(char path[1024], const char *variable, const char *name)
{
    const char *given = set(variable), *home = set("HOME");
    if (given)
        snprintf(path, 1024, "%s", given);
    else
        snprintf(path, 1024, "%s/.aws/%s", home ? home : "", name);
}

static const char *profile(void)
{
    return set("AWS_PROFILE") ? set("AWS_PROFILE") : "default";
}

static void config_section(char section[300])
{
    bool is_default = !strcmp(profile(), "default");
    snprintf(section, 300, "%s%.280s", is_default ? "" : "profile ", profile());
}

/* Reads the two keys and the optional token of one section. */
static bool from_file(dl_credentials *out, const char *path, const char *section)
{
    dl_ini_read(out->token, sizeof out->token, path, section, "aws_session_token");
    return dl_ini_read(out->access, sizeof out->access, path, section, "aws_access_key_id") &&
           dl_ini_read(out->secret, sizeof out->secret, path, section, "aws_secret_access_key");
}

/* The credentials file comes before the config file, as in the provider's own tools. */
static bool from_profile(dl_credentials *out)
{
    char path[1024], section[300];
    aws_file(path, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
    if (from_file(out, path, profile())) return true;
    aws_file(path, "AWS_CONFIG_FILE", "config");
    config_section(section);
    return from_file(out, path, section);
}

bool dl_credentials_aws_setting(char *out, size_t cap, const char *name)
{
    char path[1024], section[300];
    aws_file(path, "AWS_CONFIG_FILE", "config");
    config_section(section);
    return dl_ini_read(out, cap, path, section, name);
}

/* ---- endpoints that hand them out */

typedef struct asking {
    const char *method, *url, *header; /* header: "Name: value" or NULL */
    dl_buf *out;
} asking;

static diloco_status prepare(void *context, dl_web_exchange *x)
{
    const asking *a = context;
    x->method = a->method;
    x->what = "the credentials' endpoint";
    if (a->header) DL_TRY(dl_web_header(x, "%s", a->header));
    return dl_buf_addf(&x->url, "%s", a->url);
}

static diloco_status finish(void *context, dl_web_exchange *x)
{
    const asking *a = context;
    if (x->status != 200)
        return dl_fail(DILOCO_EREFUSED, "the credentials' endpoint answered %d", x->status);
    dl_buf_clear(a->out);
    return dl_buf_add(a->out, x->text.data, x->text.len);
}

/* Requests are short: outside the cloud the address leads nowhere, and the caller waits. */
static diloco_status fetch(dl_web *web, dl_buf *out, const char *method, const char *url,
                           const char *header, dl_time until)
{
    asking a = {method, url, header, out};
    dl_web_batch batch = {.n = 1, .width = 1, .context = &a, .prepare = prepare, .finish = finish};
    dl_time soon = dl_time_after(dl_clock_now(), METADATA_TIME);
    DL_TRY(dl_web_run(web, &batch, soon < until ? soon : until));
    return dl_buf_str(out) ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "out of memory for credentials");
}

/* The names are those of the metadata service. Expiration is a date; 0 would mean that the
 * credentials never expire. */
static diloco_status parse_aws(dl_credentials *out, const dl_buf *json)
{
    dl_json_value v;
    char expiration[64] = "";
    DL_TRY(dl_json_parse(&v, json->data, json->len));
    DL_TRY(dl_json_read_str(out->access, sizeof out->access, v, "AccessKeyId"));
    DL_TRY(dl_json_read_str(out->secret, sizeof out->secret, v, "SecretAccessKey"));
    DL_TRY(dl_json_read_str(out->token, sizeof out->token, v, "Token"));
    DL_TRY(dl_json_read_str(expiration, sizeof expiration, v, "Expiration"));
    out->expires = dl_web_time(expiration);
    return DILOCO_OK;
}

/* Returns false if the environment names no container endpoint. */
static bool container_url(char url[1024])
{
    const char *relative = set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = set("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (relative)
        snprintf(url, 1024, "http://169.254.170.2%s", relative);
    else if (full)
        snprintf(url, 1024, "%s", full);
    return relative || full;
}

/* The token file is read at each call, because its contents may be renewed. */
static diloco_status from_container(dl_credentials *out, dl_web *web, const char *url, dl_buf *buf,
                                    dl_time until)
{
    const char *file = set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = set("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    char header[DL_WEB_URL];
    if (file) {
        dl_buf_clear(buf);
        DL_TRY(dl_file_read(buf, file));
        token = dl_buf_str(buf);
    }
    int len = token ? snprintf(header, sizeof header, "Authorization: %.*s",
                               (int)strcspn(token, "\r\n"), token)
                    : 0;
    if (len >= (int)sizeof header)
        return dl_fail(DILOCO_EINVAL, "the container's token is too long");
    DL_TRY(fetch(web, buf, "GET", url, token ? header : NULL, until));
    return parse_aws(out, buf);
}

/* Where a provider's machines answer. `given` (NULL: nothing) was named by the environment; else
 * the address is only asked on the provider's machines. Returns DILOCO_EINVAL if it is no such
 * address. */
static diloco_status metadata_at(const char **at, const char *given, dl_cloud cloud,
                                 const char *whose, const char *how)
{
    *at = given ? given : cloud == DL_CLOUD_GOOGLE ? METADATA_HOST : METADATA;
    if (given || dl_cloud_is_here(cloud)) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "this machine's firmware does not name %s, so %s is not asked; %s asks it all "
                   "the same",
                   whose, METADATA_HOST, how);
}

/* Version 2: a token for the session first, then the role's name, then its credentials. */
static diloco_status from_instance(dl_credentials *out, dl_web *web, dl_buf *buf, dl_time until)
{
    const char *at = set("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *off = set("AWS_EC2_METADATA_DISABLED");
    char url[1024], header[1024];
    if (!at && off && !strcasecmp(off, "false")) at = METADATA;
    DL_TRY(metadata_at(&at, at, DL_CLOUD_AMAZON, "Amazon EC2", "AWS_EC2_METADATA_DISABLED=false"));
    snprintf(url, sizeof url, "%.400s/latest/api/token", at);
    DL_TRY(fetch(web, buf, "PUT", url, "X-aws-ec2-metadata-token-ttl-seconds: 300", until));
    snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %.900s", dl_buf_str(buf));
    snprintf(url, sizeof url, "%.400s/latest/meta-data/iam/security-credentials/", at);
    DL_TRY(fetch(web, buf, "GET", url, header, until));
    const char *role = dl_buf_str(buf);
    snprintf(url, sizeof url, "%.400s/latest/meta-data/iam/security-credentials/%.*s", at,
             (int)dl_size_min(strcspn(role, "\r\n"), 400), role);
    DL_TRY(fetch(web, buf, "GET", url, header, until));
    return parse_aws(out, buf);
}

/* A container's endpoint is named by its environment, and comes before the machine's own. */
static diloco_status from_endpoints(dl_credentials *out, dl_web *web, dl_buf *buf, dl_time until)
{
    char url[1024];
    const char *off = set("AWS_EC2_METADATA_DISABLED");
    if (container_url(url)) return from_container(out, web, url, buf, until);
    if (off && !strcasecmp(off, "true"))
        return dl_fail(DILOCO_EINVAL, "AWS_EC2_METADATA_DISABLED is true");
    return from_instance(out, web, buf, until);
}

/* *out is cleared between the places, so that it never mixes two identities. */
diloco_status dl_credentials_aws(dl_credentials *out, dl_web *web, dl_time until)
{
    dl_buf buf;
    *out = (dl_credentials){.expires = 0};
    if (from_environment(out)) return DILOCO_OK;
    *out = (dl_credentials){.expires = 0};
    if (from_profile(out)) return DILOCO_OK;
    *out = (dl_credentials){.expires = 0};
    dl_buf_init(&buf, RESPONSE_MAX);
    diloco_status status = from_endpoints(out, web, &buf, until);
    if (buf.data) OPENSSL_cleanse(buf.data, buf.len);
    dl_buf_deinit(&buf);
    char looked[256];
    snprintf(
        looked, sizeof looked,
        "not in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, not in profile \"%.80s\" of ~/.aws, "
        "not from a container or an instance",
        profile());
    return status ? none_found(status, looked) : DILOCO_OK;
}

/* ---- Google */

/* {"access_token":"…","expires_in":3599}; Azure writes the number as a text. The expiry is computed
 * by our clock; the answer has only a duration. */
static diloco_status parse_token(dl_credentials *out, const dl_buf *json)
{
    dl_json_value v, lasts;
    uint64_t seconds = 0;
    char text[24];
    DL_TRY(dl_json_parse(&v, json->data, json->len));
    DL_TRY(dl_json_read_str(out->token, sizeof out->token, v, "access_token"));
    lasts = dl_json_get(v, "expires_in");
    if (lasts.type == DL_JSON_STRING) {
        DL_TRY(dl_json_as_str(text, sizeof text, lasts));
        seconds = strtoull(text, NULL, 10);
    } else {
        DL_TRY(dl_json_as_u64(&seconds, lasts, INT32_MAX));
    }
    out->expires = (int64_t)dl_clock_wall() + (int64_t)seconds;
    return DILOCO_OK;
}

/* The answer is a secret, so its buffer is cleared. */
static diloco_status fetch_token(dl_credentials *out, dl_web *web, const char *url,
                                 const char *header, dl_time until)
{
    dl_buf buf;
    dl_buf_init(&buf, RESPONSE_MAX);
    diloco_status status = fetch(web, &buf, "GET", url, header, until);
    if (!status) status = parse_token(out, &buf);
    if (buf.data) OPENSSL_cleanse(buf.data, buf.len);
    dl_buf_deinit(&buf);
    return status;
}

static bool from_boto(dl_credentials *out)
{
    char path[1024];
    const char *given = set("BOTO_CONFIG"), *home = set("HOME");
    snprintf(path, sizeof path, "%s%s", given ? given : home ? home : "", given ? "" : "/.boto");
    return dl_ini_read(out->access, sizeof out->access, path, "Credentials", "gs_access_key_id") &&
           dl_ini_read(out->secret, sizeof out->secret, path, "Credentials",
                       "gs_secret_access_key");
}

diloco_status dl_credentials_google_token(dl_credentials *out, dl_web *web, dl_time until)
{
    char url[512];
    const char *host;
    *out = (dl_credentials){.expires = 0};
    DL_TRY(metadata_at(&host, set("GCE_METADATA_HOST"), DL_CLOUD_GOOGLE, "Google Compute Engine",
                       "GCE_METADATA_HOST=" METADATA_HOST));
    snprintf(url, sizeof url,
             "http://%.200s/computeMetadata/v1/instance/service-accounts/default/token", host);
    return fetch_token(out, web, url, "Metadata-Flavor: Google", until);
}

/* HMAC keys come first. Without them the instance's service account gives a bearer token. */
diloco_status dl_credentials_google(dl_credentials *out, dl_web *web, dl_time until)
{
    *out = (dl_credentials){.expires = 0};
    if (take(out->access, sizeof out->access, set("GS_ACCESS_KEY_ID")) &&
        take(out->secret, sizeof out->secret, set("GS_SECRET_ACCESS_KEY")))
        return DILOCO_OK;
    if (from_boto(out)) return DILOCO_OK;
    const diloco_status status = dl_credentials_google_token(out, web, until);
    return status ? none_found(status, "not in GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, not in "
                                       "~/.boto, not from the instance")
                  : DILOCO_OK;
}

/* ---- Azure */

/* App services name an endpoint and a secret header in the environment. Other machines have the
 * metadata address. */
diloco_status dl_credentials_azure(dl_credentials *out, dl_web *web, dl_time until)
{
    static const char resource[] = "resource=https%3A%2F%2Fstorage.azure.com%2F";
    char url[1024], header[1024] = "Metadata: true";
    const char *app = set("IDENTITY_ENDPOINT"), *secret = set("IDENTITY_HEADER");
    const char *at;
    diloco_status status = DILOCO_OK;
    *out = (dl_credentials){.expires = 0};
    if (app && secret) {
        snprintf(url, sizeof url, "%.900s?api-version=2019-08-01&%s", app, resource);
        snprintf(header, sizeof header, "X-IDENTITY-HEADER: %.900s", secret);
    } else {
        status = metadata_at(&at, set("AZURE_POD_IDENTITY_AUTHORITY_HOST"), DL_CLOUD_AZURE, "Azure",
                             "AZURE_POD_IDENTITY_AUTHORITY_HOST=" METADATA);
        snprintf(url, sizeof url, "%.400s/metadata/identity/oauth2/token?api-version=2018-02-01&%s",
                 at, resource);
    }
    if (!status) status = fetch_token(out, web, url, header, until);
    return status ? none_found(status, "not in AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or "
                                       "AZURE_STORAGE_CONNECTION_STRING, not from a managed "
                                       "identity")
                  : DILOCO_OK;
}
