/* credentials.h - our identity in a cloud, read from the places that its own tools read. It never
 * comes from a url, the command line or a file of ours, and is never in a text. */
#ifndef DL_STORE_HTTP_CREDENTIALS_H
#define DL_STORE_HTTP_CREDENTIALS_H

#include "store/http/web.h"

typedef struct dl_credentials {
    char access[256], secret[256]; /* of AWS and HMAC keys; "" */
    char token[8192];              /* session token, bearer token; "" */
    int64_t expires;               /* seconds since 1970; 0: never, or not known */
} dl_credentials;

/* AWS, in this order. The environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN.
 * The profile AWS_PROFILE (or "default") of ~/.aws/credentials, then of ~/.aws/config
 * (AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE). The container's endpoint:
 * AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI, with AWS_CONTAINER_AUTHORIZATION_TOKEN or
 * its _FILE. The instance's metadata, version 2: AWS_EC2_METADATA_SERVICE_ENDPOINT,
 * AWS_EC2_METADATA_DISABLED. Returns DILOCO_EINVAL if no place has any; the text names the places.
 *
 * Each provider's metadata address is asked only on its machines (cloud.h), or where the variable
 * in brackets names a server; Amazon's also where AWS_EC2_METADATA_DISABLED is "false". */
DL_MUST_CHECK diloco_status dl_credentials_aws(dl_credentials *out, dl_web *web, dl_time until);

/* Google, the first of: HMAC keys in the environment (GS_ACCESS_KEY_ID, GS_SECRET_ACCESS_KEY), in
 * [Credentials] of ~/.boto (BOTO_CONFIG); the bearer token of the instance's service account
 * (GCE_METADATA_HOST), in `token`, access "" then. */
DL_MUST_CHECK diloco_status dl_credentials_google(dl_credentials *out, dl_web *web, dl_time until);

/* The last of these alone: keys of a bucket give no token for other services of Google. Returns
 * DILOCO_EINVAL if this is no machine of Google Cloud, or an error of its metadata server. */
DL_MUST_CHECK diloco_status dl_credentials_google_token(dl_credentials *out, dl_web *web,
                                                        dl_time until);

/* Azure: the bearer token of the managed identity (IDENTITY_ENDPOINT with IDENTITY_HEADER, or
 * the instance's metadata, AZURE_POD_IDENTITY_AUTHORITY_HOST), in `token`. Keys and SAS tokens
 * are az.c's. */
DL_MUST_CHECK diloco_status dl_credentials_azure(dl_credentials *out, dl_web *web, dl_time until);

/* A setting of the AWS profile in ~/.aws/config ("region", "endpoint_url"); false: none. */
bool dl_credentials_aws_setting(char *out, size_t cap, const char *name);

/* `name = value` of [section] of an ini file; false: not there, or no such file. */
bool dl_ini_read(char *out, size_t cap, const char *path, const char *section, const char *name);

#endif
