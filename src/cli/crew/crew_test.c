/* crew_test.c - the checks of crew.h before the replicas start. */
#include "check.h"
#include "cli/crew/crew.h"

static diloco_status checked(const char *listen, const char *peers, const char *all,
                             const char *here)
{
    static dl_config config; /* too large for some stacks */
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "run.peers_listen", listen, "--set"));
    CHECK_OK(dl_config_set(&config, "run.peers", peers, "test"));
    CHECK_OK(dl_config_set(&config, "run.replicas", all, "test"));
    CHECK_OK(dl_config_set(&config, "run.local_replicas", here, "test"));
    return dl_crew_check(&config);
}

TEST(several_replicas_of_a_machine_with_one_fixed_port_are_refused_with_a_way_out)
{
    CHECK_STATUS(DILOCO_EINVAL, checked("127.0.0.1:8800", "true", "2", "0"));
    CHECK_CONTAINS("run.peers_listen = \"127.0.0.1:8800\" (--set): 2 replicas",
                   diloco_error_text());
    CHECK_CONTAINS("set port 0", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, checked("[::1]:8800", "true", "8", "3"));
    CHECK_CONTAINS("3 replicas", diloco_error_text());
}

TEST(one_replica_a_free_port_and_no_peers_are_accepted)
{
    CHECK_OK(checked("127.0.0.1:8800", "true", "2", "1"));
    CHECK_OK(checked("127.0.0.1:0", "true", "2", "0"));
    CHECK_OK(checked("127.0.0.1:8800", "false", "2", "0"));
}

TEST_MAIN(several_replicas_of_a_machine_with_one_fixed_port_are_refused_with_a_way_out,
          one_replica_a_free_port_and_no_peers_are_accepted)
