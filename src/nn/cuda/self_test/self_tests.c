/* self_tests.c - see self_tests.h; the cases are in the probe_*.c files. */
#include "nn/cuda/self_test/self_tests.h"

#include "nn/cuda/self_test/self_test_rows.h"

static const struct {
    const char *kernel;
    dl_probe_case run;
    bool bf16;
} rows[] = {
#define ROW(name)      {"dl_" #name, dl_probe_##name, false},
#define ROW_BF16(name) {"dl_" #name "_bf16", dl_probe_##name, true},
    DL_SELF_TESTS(ROW) DL_SELF_TESTS_BF16(ROW_BF16)
#undef ROW
#undef ROW_BF16
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

const char *dl_cuda_self_test_kernel(size_t i)
{
    return i < N_ROWS ? rows[i].kernel : NULL;
}

diloco_status dl_cuda_self_test(dl_backend *backend)
{
    dl_probe probe;
    diloco_status status = dl_probe_open(&probe, backend);
    for (size_t i = 0; !status && i < N_ROWS; i++) {
        probe.kernel = rows[i].kernel;
        probe.bf16 = rows[i].bf16;
        dl_probe_begin(&probe);
        status = rows[i].run(&probe);
    }
    probe.bf16 = false;
    probe.kernel = "dl_muon_blend";
    if (!status && (status = dl_probe_recorded(&probe)))
        status = dl_fail_context(status, "in a recorded sequence");
    probe.kernel = "cublasLtMatmul";
    if (!status) status = dl_probe_library(&probe);
    dl_probe_close(&probe);
    return status;
}
