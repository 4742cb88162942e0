/* credentials_test.c - where credentials are looked for, in which order. The container's and the
 * instance's endpoints are a scripted server here, never real ones. */
#include "store/http/credentials.h"

#include "base/file.h"
#include "check.h"
#include "http_script.h"
#include "store/http/cloud.h"

#include <unistd.h>

static atomic_bool aborted;
static char folder[64];

static void write_file(const char *name, const char *text)
{
    char path[128];
    dl_span span = {text, strlen(text)};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_OK(dl_file_write(path, &span, 1));
}

static int set_up(void **state)
{
    static const char *const names[] = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_PROFILE",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                                        "GS_ACCESS_KEY_ID",
                                        "GS_SECRET_ACCESS_KEY",
                                        "GCE_METADATA_HOST",
                                        "IDENTITY_ENDPOINT",
                                        "IDENTITY_HEADER",
                                        "AZURE_POD_IDENTITY_AUTHORITY_HOST"};
    char path[128];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    strcpy(folder, "/tmp/diloco-credentials-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/credentials", folder);
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    snprintf(path, sizeof path, "%s/config", folder);
    setenv("AWS_CONFIG_FILE", path, 1);
    snprintf(path, sizeof path, "%s/boto", folder);
    setenv("BOTO_CONFIG", path, 1);
    dl_cloud_read_from(folder); /* which names no provider yet */
    return 0;
}

static int tear_down(void **state)
{
    static const char *const names[] = {"credentials",  "config",           "token",
                                        "sys_vendor",   "bios_vendor",      "board_vendor",
                                        "product_name", "chassis_asset_tag"};
    char path[128];
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static diloco_status find(dl_credentials *out)
{
    dl_web *web;
    CHECK_OK(dl_web_create(&web, NULL, &aborted));
    diloco_status status = dl_credentials_aws(out, web, DL_NEVER);
    dl_web_destroy(web);
    return status;
}

static void check_found(const char *access, const char *secret, const char *token)
{
    dl_credentials found;
    CHECK_OK(find(&found));
    CHECK_STR(access, found.access);
    CHECK_STR(secret, found.secret);
    CHECK_STR(token, found.token);
}

TEST(the_environment_comes_first_then_the_profile)
{
    write_file("credentials", "# comment\n[other]\naws_access_key_id = O\n"
                              "aws_secret_access_key=o/=\n[default]\r\naws_access_key_id =  D \r\n"
                              "aws_secret_access_key = d+1\r\naws_session_token = t\r\n");
    write_file("config", "[profile third]\naws_access_key_id=T\naws_secret_access_key=x\n"
                         "region = eu-west-9\n[default]\nregion=us-west-2\n");
    char region[32];
    check_found("D", "d+1", "t");
    setenv("AWS_PROFILE", "other", 1);
    check_found("O", "o/=", "");
    setenv("AWS_PROFILE", "third", 1);
    check_found("T", "x", "");
    CHECK(dl_credentials_aws_setting(region, sizeof region, "region"));
    CHECK_STR("eu-west-9", region);
    unsetenv("AWS_PROFILE");
    CHECK(dl_credentials_aws_setting(region, sizeof region, "region"));
    CHECK_STR("us-west-2", region);
    CHECK(!dl_credentials_aws_setting(region, sizeof region, "endpoint_url"));
    setenv("AWS_ACCESS_KEY_ID", "E", 1);
    check_found("D", "d+1", "t"); /* half of a pair is invalid */
    setenv("AWS_SECRET_ACCESS_KEY", "e", 1);
    check_found("E", "e", "");
}

TEST(without_any_the_error_says_where_it_looked)
{
    dl_credentials found;
    setenv("AWS_PROFILE", "mine", 1);
    CHECK_STATUS(DILOCO_EINVAL, find(&found));
    CHECK_CONTAINS("AWS_ACCESS_KEY_ID", diloco_error_text());
    CHECK_CONTAINS("\"mine\"", diloco_error_text());
    CHECK_CONTAINS("AWS_EC2_METADATA_DISABLED is true", diloco_error_text());
}

typedef diloco_status (*find_fn)(dl_credentials *out, dl_web *web, dl_time until);

/* Credentials are not found, and no request is made: the address would not be loopback. */
static void check_asks_nobody(find_fn find_them, const char *why)
{
    dl_web *web;
    dl_credentials found;
    CHECK_OK(dl_web_create(&web, NULL, &aborted));
    CHECK_STATUS(DILOCO_EINVAL, find_them(&found, web, DL_NEVER));
    CHECK_CONTAINS(why, diloco_error_text());
    CHECK_INT(0, dl_web_counts(web).n_requests);
    dl_web_destroy(web);
}

TEST(a_machine_that_is_no_clouds_asks_no_metadata_address)
{
    unsetenv("AWS_EC2_METADATA_DISABLED");
    check_asks_nobody(dl_credentials_aws, "AWS_EC2_METADATA_DISABLED=false");
    check_asks_nobody(dl_credentials_google, "GCE_METADATA_HOST");
    check_asks_nobody(dl_credentials_azure, "AZURE_POD_IDENTITY_AUTHORITY_HOST");
    write_file("sys_vendor", "Google\n"); /* a laptop */
    write_file("product_name", "Eve\n");
    check_asks_nobody(dl_credentials_google, "GCE_METADATA_HOST");
    write_file("sys_vendor", "Microsoft Corporation\n"); /* a guest of Hyper-V */
    check_asks_nobody(dl_credentials_azure, "AZURE_POD_IDENTITY_AUTHORITY_HOST");
}

TEST(metadata_is_not_asked_where_it_is_disabled_even_on_an_instance)
{
    write_file("sys_vendor", "Amazon EC2\n");
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "True", 1);
    check_asks_nobody(dl_credentials_aws, "AWS_EC2_METADATA_DISABLED is true");
}

TEST(firmware_names_the_provider)
{
    CHECK(!dl_cloud_is_here(DL_CLOUD_AMAZON));
    write_file("sys_vendor", "Amazon EC2\n");
    CHECK(dl_cloud_is_here(DL_CLOUD_AMAZON));
    write_file("sys_vendor", "Xen\n");
    CHECK(!dl_cloud_is_here(DL_CLOUD_AMAZON));
    write_file("bios_vendor", "amazon\n");
    CHECK(dl_cloud_is_here(DL_CLOUD_AMAZON));
    write_file("product_name", "Google Compute Engine\n");
    CHECK(dl_cloud_is_here(DL_CLOUD_GOOGLE));
    CHECK(!dl_cloud_is_here(DL_CLOUD_AZURE));
    write_file("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n");
    CHECK(dl_cloud_is_here(DL_CLOUD_AZURE));
}

#define JSON(expiration)                                                                           \
    "HTTP/1.1 200 OK\r\nContent-Length: 92\r\n\r\n"                                                \
    "{\"AccessKeyId\":\"IA\",\"SecretAccessKey\":\"IS\",\"Token\":\"IT\",\"Expiration\":"          \
    "\"" expiration "\"}"

TEST(an_instance_is_asked_in_version_two)
{
    static const char *const responses[] = {"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsession",
                                            "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nmy-role\n",
                                            JSON("2030-01-31T12:00:00Z")};
    http_script server;
    dl_credentials found;
    char at[64];
    script_start(&server, responses, 3);
    snprintf(at, sizeof at, "http://127.0.0.1:%d", server.port);
    unsetenv("AWS_EC2_METADATA_DISABLED");
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", at, 1);
    CHECK_OK(find(&found));
    CHECK_STR("IA", found.access);
    CHECK_STR("IS", found.secret);
    CHECK_STR("IT", found.token);
    CHECK_INT(1896091200, found.expires);
    CHECK_CONTAINS("PUT /latest/api/token ", server.requests[0]);
    CHECK_CONTAINS("X-aws-ec2-metadata-token-ttl-seconds: ", server.requests[0]);
    CHECK_CONTAINS("GET /latest/meta-data/iam/security-credentials/ ", server.requests[1]);
    CHECK_CONTAINS("GET /latest/meta-data/iam/security-credentials/my-role ", server.requests[2]);
    CHECK_CONTAINS("X-aws-ec2-metadata-token: session\r\n", server.requests[2]);
    script_stop(&server);
}

TEST(a_container_hands_out_credentials_against_its_token)
{
    static const char *const responses[] = {JSON("2030-01-31T12:00:00Z"),
                                            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
                                            "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"};
    http_script server;
    dl_credentials found;
    char url[64], path[128];
    script_start(&server, responses, 3);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/creds?id=1", server.port);
    write_file("token", "from-file\n");
    snprintf(path, sizeof path, "%s/token", folder);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path, 1);
    CHECK_OK(find(&found));
    CHECK_STR("IA", found.access);
    CHECK_CONTAINS("GET /creds?id=1 ", server.requests[0]);
    CHECK_CONTAINS("Authorization: from-file\r\n", server.requests[0]);
    CHECK_STATUS(DILOCO_EINVAL, find(&found)); /* no keys in it */
    CHECK_CONTAINS("AccessKeyId", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, find(&found));
    CHECK_CONTAINS("answered 403", diloco_error_text());
    script_stop(&server);
}

TEST(google_takes_hmac_keys_or_the_instances_token)
{
    static const char *const responses[] = {"HTTP/1.1 200 OK\r\nContent-Length: 43\r\n\r\n"
                                            "{\"access_token\":\"ya29.x\",\"expires_in\":3599}"};
    http_script server;
    dl_credentials found;
    dl_web *web;
    char host[64], path[128];
    script_start(&server, responses, 1);
    snprintf(host, sizeof host, "127.0.0.1:%d", server.port);
    setenv("GCE_METADATA_HOST", host, 1);
    snprintf(path, sizeof path, "%s/config", folder);
    setenv("BOTO_CONFIG", path, 1);
    CHECK_OK(dl_web_create(&web, NULL, &aborted));
    CHECK_OK(dl_credentials_google(&found, web, DL_NEVER));
    CHECK_STR("", found.access);
    CHECK_STR("ya29.x", found.token);
    CHECK_NEAR(dl_clock_wall() + 3599, (double)found.expires, 60);
    CHECK_CONTAINS("GET /computeMetadata/v1/instance/service-accounts/default/token ",
                   server.requests[0]);
    CHECK_CONTAINS("Metadata-Flavor: Google\r\n", server.requests[0]);
    write_file("config", "[Credentials]\ngs_access_key_id = GB\ngs_secret_access_key = sb\n");
    CHECK_OK(dl_credentials_google(&found, web, DL_NEVER));
    CHECK_STR("GB", found.access);
    CHECK_STR("sb", found.secret);
    setenv("GS_ACCESS_KEY_ID", "GE", 1);
    setenv("GS_SECRET_ACCESS_KEY", "se", 1);
    CHECK_OK(dl_credentials_google(&found, web, DL_NEVER));
    CHECK_STR("GE", found.access);
    CHECK_INT(0, found.expires);
    CHECK_INT(1, server.n_requests);
    dl_web_destroy(web);
    script_stop(&server);
}

TEST(azures_identity_is_a_token_of_the_machine)
{
    static const char *const responses[] = {"HTTP/1.1 200 OK\r\nContent-Length: 41\r\n\r\n"
                                            "{\"access_token\":\"eyJ0\",\"expires_in\":\"60\"}",
                                            "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n"};
    http_script server;
    dl_credentials found;
    dl_web *web;
    char at[64];
    script_start(&server, responses, 2);
    snprintf(at, sizeof at, "http://127.0.0.1:%d", server.port);
    setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", at, 1);
    CHECK_OK(dl_web_create(&web, NULL, &aborted));
    CHECK_OK(dl_credentials_azure(&found, web, DL_NEVER));
    CHECK_STR("eyJ0", found.token);
    CHECK_CONTAINS("GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F"
                   "%2Fstorage.azure.com%2F ",
                   server.requests[0]);
    CHECK_CONTAINS("Metadata: true\r\n", server.requests[0]);
    setenv("IDENTITY_ENDPOINT", at, 1);
    setenv("IDENTITY_HEADER", "h1", 1);
    CHECK_STATUS(DILOCO_EINVAL, dl_credentials_azure(&found, web, DL_NEVER));
    CHECK_CONTAINS("AZURE_STORAGE_KEY", diloco_error_text());
    CHECK_CONTAINS("X-IDENTITY-HEADER: h1\r\n", server.requests[1]);
    dl_web_destroy(web);
    script_stop(&server);
}

#define ONE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        ONE(the_environment_comes_first_then_the_profile),
        ONE(without_any_the_error_says_where_it_looked),
        ONE(a_machine_that_is_no_clouds_asks_no_metadata_address),
        ONE(metadata_is_not_asked_where_it_is_disabled_even_on_an_instance),
        ONE(firmware_names_the_provider),
        ONE(an_instance_is_asked_in_version_two),
        ONE(a_container_hands_out_credentials_against_its_token),
        ONE(google_takes_hmac_keys_or_the_instances_token),
        ONE(azures_identity_is_a_token_of_the_machine),
    };
    return check_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
