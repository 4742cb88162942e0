/* config_public_test.c - the settings of a run by name, as a program that embeds the library
 * sees them. */
#include "check.h"
#include <diloco/config.h>

TEST(a_value_that_was_set_is_given_back_with_its_origin)
{
    diloco_config *c = diloco_config_create();
    char value[64];
    CHECK(c != NULL);
    CHECK_OK(diloco_config_get(c, "trainer.rounds", value, sizeof value));
    CHECK_STR("8", value);
    CHECK_STR("default", diloco_config_origin(c, "trainer.rounds"));
    CHECK_OK(diloco_config_set(c, "trainer.rounds", "12", NULL));
    CHECK_OK(diloco_config_get(c, "trainer.rounds", value, sizeof value));
    CHECK_STR("12", value);
    CHECK_STR("program", diloco_config_origin(c, "trainer.rounds"));
    CHECK_OK(diloco_config_set(c, "sync_every", "30", "run.toml:3:1")); /* an alias */
    CHECK_OK(diloco_config_get(c, "trainer.local_steps_per_round", value, sizeof value));
    CHECK_STR("30", value);
    CHECK_STR("run.toml:3:1", diloco_config_origin(c, "trainer.local_steps_per_round"));
    diloco_config_destroy(c);
    diloco_config_destroy(NULL);
}

TEST(a_wrong_value_changes_nothing_and_names_the_nearest)
{
    diloco_config *c = diloco_config_create();
    char value[64];
    CHECK_STATUS(DILOCO_EINVAL, diloco_config_set(c, "trainer.round", "12", NULL));
    CHECK_CONTAINS("trainer.rounds", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, diloco_config_set(c, "trainer.rounds", "twelve", NULL));
    CHECK_STATUS(DILOCO_EINVAL, diloco_config_set(c, "trainer.local_steps_per_round", "-1", NULL));
    CHECK_OK(diloco_config_get(c, "trainer.rounds", value, sizeof value));
    CHECK_STR("8", value);
    CHECK_STATUS(DILOCO_EINVAL, diloco_config_get(c, "trainer.round", value, sizeof value));
    CHECK_CONTAINS("trainer.round", diloco_error_text());
    diloco_config_destroy(c);
}

TEST(a_value_that_does_not_fit_is_refused_and_not_cut)
{
    diloco_config *c = diloco_config_create();
    char value[4] = "abc";
    CHECK_OK(diloco_config_set(c, "run.store", "/a/long/path", NULL));
    CHECK_STATUS(DILOCO_EINVAL, diloco_config_get(c, "run.store", value, sizeof value));
    CHECK_CONTAINS("12 bytes, there is room for 4", diloco_error_text());
    CHECK_STR("abc", value);
    diloco_config_destroy(c);
}

TEST_MAIN(a_value_that_was_set_is_given_back_with_its_origin,
          a_wrong_value_changes_nothing_and_names_the_nearest,
          a_value_that_does_not_fit_is_refused_and_not_cut)
