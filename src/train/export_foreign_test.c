/* export_foreign_test.c - a run whose trainer was not this program (PyTorch, C) may have any
 * tensors under the default model's name: formats that describe a model refuse it. */
#include "toy_run.h"

#include "base/config.h"
#include "base/file.h"
#include <diloco/train.h>

TEST(model_of_another_trainer_is_refused_by_the_tensor_that_differs)
{
    static toy t;
    diloco_export_report report;
    dl_config config;
    const char *store = scratch_path("run"), *out = scratch_path("out");
    t = toy_of("r0", store);
    toy_set(&t, "run.replicas", "1");
    toy_live(&t);
    TOY_OK(t);
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "run.store", store, "test"));
    static const char *const formats[] = {"hf", "gguf"};
    for (size_t i = 0; i < 2; i++) {
        CHECK_STATUS(DILOCO_EREFUSED, diloco_export(&report, &config, formats[i], "f32", out));
        CHECK_CONTAINS("tensor w is not in model gpt", diloco_error_text());
        CHECK_CONTAINS("export it to npz", diloco_error_text());
        CHECK(!dl_file_exists(out));
    }
    CHECK_OK(diloco_export(&report, &config, "npz", "f32", out));
    CHECK_INT(1, report.tensors);
}

TEST_MAIN(model_of_another_trainer_is_refused_by_the_tensor_that_differs)
