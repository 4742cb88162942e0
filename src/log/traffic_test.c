/* traffic_test.c - each key of docs/formats.md belongs to one kind. */
#include "log/traffic.h"

#include "check.h"
#include "log/layout.h"

TEST(a_key_and_its_folder_are_of_one_kind)
{
    static const struct {
        const char *key;
        dl_traffic kind;
    } rows[] = {
        {"probe/0123.4", DL_TRAFFIC_PROBE},
        {"theta0/00.safetensors", DL_TRAFFIC_FIRST_MODEL},
        {"c/0000000001/r0.0000", DL_TRAFFIC_CONTRIBUTIONS},
        {"c/0000000001/", DL_TRAFFIC_CONTRIBUTIONS},
        {"b/0000000001/0000/r0.0000", DL_TRAFFIC_CONTRIBUTIONS},
        {"x/0000000001/plan/", DL_TRAFFIC_CONTRIBUTIONS},
        {"log/0000000001.json", DL_TRAFFIC_LOG},
        {"log/", DL_TRAFFIC_LOG},
        {"hb/r0.0000", DL_TRAFFIC_HEARTBEATS},
        {"rec/r0.0000/0000000000.jsonl.zst", DL_TRAFFIC_RECORDS},
        {"snap/0000000001/r0.0000/manifest.json", DL_TRAFFIC_SNAPSHOTS},
        {DL_KEY_RUN, DL_TRAFFIC_OTHER},
        {"gen/r0.0000", DL_TRAFFIC_OTHER},
        {"end/r0.0000", DL_TRAFFIC_OTHER},
        {"out/diloco-1f0c2ab9-r3-g0/0000000001-0000000000.zst", DL_TRAFFIC_OTHER},
        {"", DL_TRAFFIC_OTHER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_INT(rows[i].kind, dl_traffic_kind(rows[i].key));
    for (int i = 0; i < DL_N_TRAFFIC; i++)
        CHECK(dl_traffic_names[i] != NULL);
}

TEST_MAIN(a_key_and_its_folder_are_of_one_kind)
