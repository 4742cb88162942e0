/* emulated_self_test.c - the self-test of a device. Each kernel passes on a sound device in every
 * order. Each fault of a device in any kernel is found by that kernel's name. */
#include "emulated_backend.h"

#include "nn/cuda/self_test/self_tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static diloco_status self_test(const emulated_setup *setup)
{
    dl_backend *b;
    CHECK_OK(emulated_open(&b, setup));
    const diloco_status status = dl_cuda_self_test(b);
    dl_backend_destroy(b);
    CHECK_INT(0, emulated_leaked());
    return status;
}

TEST(sound_device_passes_however_it_orders_its_work)
{
    for (size_t i = 0; i < emulated_seeds(1) * EMULATED_WAYS; i++) {
        const emulated_setup setup = emulated_way(i);
        CHECK_OK(self_test(&setup));
    }
}

/* The kernels of tests begin otherwise. */
TEST(every_kernel_of_the_program_is_tested)
{
    char name[64];
    dl_backend *b;
    size_t n = 0, n_tested = 0;
    CHECK_OK(emulated_open(&b, &(emulated_setup){.seed = 1}));
    for (size_t i = 0; emulated_kernel_name(name, sizeof name, i); i++) {
        size_t k = 0;
        if (strncmp(name, "dl_", 3) != 0) continue;
        while (dl_cuda_self_test_kernel(k) && strcmp(dl_cuda_self_test_kernel(k), name) != 0)
            k++;
        if (!dl_cuda_self_test_kernel(k)) CHECK_FAIL("%s has no self-test", name);
        n++;
    }
    while (dl_cuda_self_test_kernel(n_tested))
        n_tested++;
    CHECK_INT(n, n_tested);
    dl_backend_destroy(b);
}

static void check_fault(const char *kernel, emulated_fault fault, uint64_t seed)
{
    char expected[96];
    emulated_setup setup = {.seed = seed, .fault = fault};
    snprintf(setup.fault_in, sizeof setup.fault_in, "%s", kernel);
    snprintf(expected, sizeof expected, "kernel %s gives a wrong result", kernel);
    if (self_test(&setup) != DILOCO_EREFUSED)
        CHECK_FAIL("fault %d of %s, seed %d, was not found", (int)fault, kernel, (int)seed);
    CHECK_CONTAINS(expected, diloco_error_text());
    CHECK_CONTAINS("(card 0, emulated device)", diloco_error_text());
    CHECK_CONTAINS("on the emulated device", diloco_error_text());
}

/* The first two faults do not depend on the seed. */
TEST(every_fault_in_every_kernel_is_found_by_name)
{
    const uint64_t first = emulated_first_seed(), seeds = emulated_seeds(2);
    for (size_t k = 0; dl_cuda_self_test_kernel(k); k++) {
        if (first == 1) {
            check_fault(dl_cuda_self_test_kernel(k), EMULATED_IDLE, 1);
            check_fault(dl_cuda_self_test_kernel(k), EMULATED_BLOCK_LOST, 1);
        }
        for (uint64_t seed = first; seed < first + seeds; seed++)
            check_fault(dl_cuda_self_test_kernel(k), EMULATED_BIT_FLIPPED, seed);
    }
}

TEST(failure_of_the_driver_is_reported_with_the_kernel)
{
    dl_backend *b;
    emulated_setup setup = {.seed = 1};
    CHECK_OK(self_test(&setup));
    setup.fail_at = emulated_calls() / 2;
    setup.fail_with = 719;
    CHECK_OK(emulated_open(&b, &setup));
    CHECK_STATUS(DILOCO_EIO, dl_cuda_self_test(b));
    CHECK_CONTAINS("kernel dl_", diloco_error_text());
    CHECK_CONTAINS("error 719", diloco_error_text());
    dl_backend_destroy(b);
    CHECK_INT(0, emulated_leaked());
}

TEST_MAIN(sound_device_passes_however_it_orders_its_work, every_kernel_of_the_program_is_tested,
          every_fault_in_every_kernel_is_found_by_name,
          failure_of_the_driver_is_reported_with_the_kernel)
