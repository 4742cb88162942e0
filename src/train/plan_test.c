/* plan_test.c - the plan of a replica's memory, before it is taken. */
#include "train_fixture.h"

TEST(the_plan_adds_up_and_keeps_to_24_bytes_a_parameter)
{
    diloco_memory_plan p;
    dl_config *config = fixture_config("diloco");
    CHECK_OK(diloco_train_plan(&p, config));
    CHECK(p.parameters > 0 && p.threads == 1);
    CHECK_INT(24 * p.parameters, p.local + p.gradient + p.moments + p.theta + p.momentum);
    CHECK_INT(p.total, p.local + p.gradient + p.moments + p.theta + p.momentum + p.activations +
                           p.staging + p.contributions + p.data + p.other);
    CHECK(p.flops_per_token >= 6.0 * (double)p.parameters * 0.5);

    set(config, "trainer.optimizer", "sgd");
    CHECK_OK(diloco_train_plan(&p, config));
    CHECK_INT(0, p.moments);
    set(config, "run.spool", "disk");
    CHECK_OK(diloco_train_plan(&p, config));
    CHECK_INT(0, p.contributions);
    set(config, "trainer.optimizer", "adamv");
    CHECK_STATUS(DILOCO_EINVAL, diloco_train_plan(&p, config));
    free(config);
}

TEST(the_library_says_what_it_is)
{
    CHECK(strlen(diloco_version()) > 0);
    CHECK(strlen(diloco_isa()) > 0);
    CHECK(diloco_cores() >= 1);
}

TEST_MAIN(the_plan_adds_up_and_keeps_to_24_bytes_a_parameter, the_library_says_what_it_is)
