/* google_auth_test.c - the token of a machine of Google Cloud, by a script in place of its metadata
 * server. */
#include "launch/cloud/google_auth.h"

#include "check.h"
#include "http_script.h"
#include "scratch.h"

#include <stdlib.h>
#include <string.h>

static const char *const none[] = {NULL};

TEST(machine_with_keys_of_a_bucket_has_a_token)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 46\r\n\r\n"
                                 "{\"access_token\":\"ya29.test\",\"expires_in\":3599}";
    static dl_config config;
    const char *const answers[] = {answer};
    char host[64];
    http_script script;
    dl_rest rest;
    const dl_launch_spec spec = {.config = &config, .secrets = none};
    dl_config_init(&config);
    script_start(&script, answers, 1);
    snprintf(host, sizeof host, "127.0.0.1:%d", script.port);
    CHECK_INT(0, unsetenv("GOOGLE_APPLICATION_CREDENTIALS"));
    CHECK_INT(0, setenv("HOME", scratch_folder("home"), 1));
    CHECK_INT(0, setenv("GCE_METADATA_HOST", host, 1));
    CHECK_INT(0, setenv("GS_ACCESS_KEY_ID", "GOOGTEST", 1)); /* of a gs:// store, and no token */
    CHECK_INT(0, setenv("GS_SECRET_ACCESS_KEY", "swordfish", 1));
    CHECK_OK(dl_rest_init_at(&rest, &spec, "a test", "https://example.com"));
    CHECK_OK(dl_google_token(&rest));
    CHECK_STR("ya29.test", rest.who.token);
    CHECK_STR("", rest.who.access);
    dl_rest_deinit(&rest);
    script_stop(&script);
}

TEST_MAIN(machine_with_keys_of_a_bucket_has_a_token)
