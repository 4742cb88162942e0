/* run_keys_test.c - every pattern of docs/formats.md is an object, and what is above it a folder.
 */
#include "store/run_keys.h"

#include "check.h"

#include <string.h>

static const char *const objects[] = {
    "run.json",
    "theta0/00112233445566778899aabbccddeeff.safetensors",
    "gen/r0.0000",
    "hb/r0.0000",
    "end/r0.0000",
    "invite/00112233445566778899aabbccddeeff",
    "admit/r0",
    "log/0000000012.json",
    "c/0000000012/r0.0000",
    "x/0000000012/r0.0000",
    "b/0000000012/0003/r0.0000",
    "x/0000000012/plan/r0.0000",
    "x/0000000012/0003/r1.0000=r0.0000",
    "x/0000000012/measured/0003/r1.0000=r0.0000",
    "snap/0000000012/r0.0000/state.safetensors",
    "snap/0000000012/r0.0000/manifest.json",
    "rec/r0.0000/0000000000.jsonl.zst",
    "rec/_create.0000/0000000000.jsonl.zst",
    "out/diloco-1f0c2ab9-r3-g0/0000000001-0000000000.zst",
};

TEST(each_name_of_a_run_is_an_object)
{
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        if (dl_run_key_shape(objects[i]) != DL_KEY_OBJECT) CHECK_FAIL("%s", objects[i]);
    }
}

TEST(a_prefix_of_a_run_s_names_is_a_folder)
{
    char above[128];
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        strcpy(above, objects[i]);
        for (char *slash; (slash = strrchr(above, '/'));) {
            *slash = '\0';
            if (dl_run_key_shape(above) != DL_KEY_FOLDER) CHECK_FAIL("%s", above);
        }
    }
}

TEST(a_key_below_a_name_of_a_run_is_invalid)
{
    char below[128];
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        snprintf(below, sizeof below, "%s/x", objects[i]);
        if (dl_run_key_shape(below) != DL_KEY_WRONG) CHECK_FAIL("%s", below);
    }
    CHECK_INT(DL_KEY_WRONG, dl_run_key_shape("x/0000000012/other"));
    CHECK_INT(DL_KEY_WRONG, dl_run_key_shape("x/0000000012/other/r0.0000"));
}

TEST(other_names_are_free)
{
    CHECK_INT(DL_KEY_FREE, dl_run_key_shape("notes"));
    CHECK_INT(DL_KEY_FREE, dl_run_key_shape("logs/0000000012.json/x"));
    CHECK_INT(DL_KEY_FREE, dl_run_key_shape("me/id"));
    CHECK_INT(DL_KEY_FREE, dl_run_key_shape("st/run/client/0.x"));
}

TEST_MAIN(each_name_of_a_run_is_an_object, a_prefix_of_a_run_s_names_is_a_folder,
          a_key_below_a_name_of_a_run_is_invalid, other_names_are_free)
