/* run_base_test.c - diloco_run_base: a replica joins only if its base is the run's. */
#include <diloco/run.h>

#include "check.h"

static float adapter[4] = {1, 2, 3, 4};
static const float weights[6] = {1, 2, 3, 4, 5, 6}, others[6] = {1, 2, 3, 4, 5, 7};

static diloco_run *opened(const char *replica, const float *base)
{
    diloco_config *c = diloco_config_create();
    diloco_run *run;
    CHECK(c != NULL);
    CHECK_OK(diloco_config_set(c, "run.store", "mem://base", "test"));
    CHECK_OK(diloco_config_set(c, "run.state_dir", "none", "test"));
    CHECK_OK(diloco_run_open(&run, c, replica));
    diloco_config_destroy(c);
    const diloco_tensor t = {"adapter", adapter, DILOCO_F32, DILOCO_PARAMETER, 1, {4}, 0};
    CHECK_OK(diloco_run_tensor(run, &t));
    if (base) CHECK_OK(diloco_run_base(run, "weights", "F32 [6]", base, 6 * sizeof *base));
    return run;
}

TEST(replica_with_the_same_base_joins_and_one_with_another_is_refused)
{
    diloco_run *first = opened("r0", weights), *same = opened("r1", weights);
    diloco_run *other = opened("r2", others), *none = opened("r3", NULL);
    CHECK_OK(diloco_run_create(first));
    CHECK_OK(diloco_run_create(same));
    CHECK_STATUS(DILOCO_EDIFFERS, diloco_run_join(other));
    CHECK_CONTAINS("base tensor weights (F32 [6]) has other values on replica r2 than in the run "
                   "that replica r0 created",
                   diloco_error_text());
    CHECK_CONTAINS("mem://base", diloco_error_text());
    CHECK_STATUS(DILOCO_EDIFFERS, diloco_run_join(none));
    CHECK_CONTAINS("there are 1 base tensors", diloco_error_text());
    CHECK_CONTAINS("and 0 on replica r3", diloco_error_text());
    diloco_run_close(none);
    diloco_run_close(other);
    diloco_run_close(same);
    diloco_run_close(first);
}

TEST(base_tensor_that_is_exchanged_too_or_comes_late_is_refused)
{
    diloco_run *run = opened("r0", NULL);
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_base(run, "adapter", "F32 [4]", adapter, 16));
    CHECK_CONTAINS("adapter is exchanged", diloco_error_text());
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_base(run, NULL, "F32 [4]", adapter, 16));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_base(run, "b", "F32 [4]", NULL, 16));
    CHECK_OK(diloco_run_create(run));
    CHECK_STATUS(DILOCO_EINVAL, diloco_run_base(run, "b", "F32 [4]", adapter, 16));
    CHECK_CONTAINS("diloco_run_base has to come before", diloco_error_text());
    diloco_run_close(run);
}

TEST_MAIN(replica_with_the_same_base_joins_and_one_with_another_is_refused,
          base_tensor_that_is_exchanged_too_or_comes_late_is_refused)
