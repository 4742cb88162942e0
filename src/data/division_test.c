/* division_test.c - diloco_division: data.sampler over a caller's classes, by every sampler. */
#include <diloco/train.h>

#include "check.h"
#include "data/partition.h"

#include <stdlib.h>

enum { N = 600, CLASSES = 6, CLIENTS = 20 };

static int32_t classes[N];

static diloco_config *config_of(const char *sampler)
{
    diloco_config *c = diloco_config_create();
    CHECK(c != NULL);
    CHECK_OK(diloco_config_set(c, "data.sampler", sampler, "test"));
    CHECK_OK(diloco_config_set(c, "data.min_partition_size", "5", "test"));
    CHECK_OK(diloco_config_set(c, "data.non_iid_clients", "3", "test"));
    for (int32_t i = 0; i < N; i++)
        classes[i] = i * 7 % CLASSES;
    return c;
}

static int32_t class_of(const void *user, uint64_t sample)
{
    return ((const int32_t *)user)[sample];
}

/* The numbers are those of the partition that the program's own data has. */
static void check_as_the_program(const diloco_division *d, const diloco_config *c)
{
    dl_partition *p;
    uint64_t got[N];
    uint32_t list[N];
    const dl_partition_data data = {
        .n = N, .n_classes = CLASSES, .class_of = class_of, .user = classes};
    CHECK_OK(dl_partition_create(&p, c, &data, CLIENTS));
    for (size_t k = 0; k < CLIENTS && p; k++) {
        CHECK_INT(dl_partition_size(p, k), diloco_division_size(d, k + 1));
        CHECK_OK(diloco_division_list(got, d, k + 1));
        if (dl_partition_listed(p)) dl_partition_list(list, p, k);
        for (uint64_t i = 0; i < dl_partition_size(p, k); i++)
            CHECK_INT(dl_partition_listed(p) ? list[i] : dl_partition_at(p, k, i), got[i]);
    }
    dl_partition_destroy(p);
}

TEST(every_sampler_divides_as_in_the_program)
{
    const char *sampler;
    for (size_t i = 0; (sampler = dl_sampler_name_at(i)); i++) {
        diloco_config *c = config_of(sampler);
        diloco_division *d;
        uint64_t got[N];
        CHECK_OK(diloco_division_create(&d, c, classes, N, CLIENTS));
        check_as_the_program(d, c);
        for (uint64_t client = 1; client <= CLIENTS; client++) {
            const uint64_t n = diloco_division_size(d, client);
            CHECK(n > 0 && n <= N);
            CHECK_OK(diloco_division_list(got, d, client));
            for (uint64_t k = 0; k < n; k++)
                CHECK(got[k] < N);
        }
        diloco_division_destroy(d);
        diloco_config_destroy(c);
    }
}

TEST(contiguous_gives_equal_pieces_and_whole_gives_everything)
{
    diloco_config *c = config_of("contiguous"), *whole = config_of("whole");
    diloco_division *d;
    uint64_t got[N];
    CHECK_OK(diloco_division_create(&d, c, NULL, 61, 3));
    CHECK_INT(20, diloco_division_size(d, 3));
    CHECK_OK(diloco_division_list(got, d, 3));
    CHECK_INT(40, got[0]);
    CHECK_INT(59, got[19]);
    diloco_division_destroy(d);
    CHECK_OK(diloco_division_create(&d, whole, NULL, 61, 3));
    CHECK_INT(61, diloco_division_size(d, 2));
    CHECK_OK(diloco_division_list(got, d, 2));
    CHECK_INT(0, got[0]);
    CHECK_INT(60, got[60]);
    diloco_division_destroy(d);
    diloco_config_destroy(whole);
    diloco_config_destroy(c);
}

static void check_refused(diloco_status status, const char *sampler, const int32_t *of,
                          uint64_t n_samples, uint64_t n_clients, const char *part)
{
    diloco_config *c = config_of(sampler);
    diloco_division *d;
    CHECK_STATUS(status, diloco_division_create(&d, c, of, n_samples, n_clients));
    CHECK(d == NULL);
    CHECK_CONTAINS(part, diloco_error_text());
    diloco_config_destroy(c);
}

TEST(division_that_cannot_be_made_is_refused)
{
    static const int32_t negative[3] = {0, -2, 1};
    check_refused(DILOCO_EINVAL, "iid", negative, 3, 1, "sample 1 has class -2");
    check_refused(DILOCO_EINVAL, "iid", NULL, 0, 1, "0 samples are too few for 1 clients");
    check_refused(DILOCO_EINVAL, "contiguous", NULL, 3, 4, "3 samples are too few for 4 clients");
    check_refused(DILOCO_EINVAL, "iid", NULL, 3, 0, "at least one client");
    check_refused(DILOCO_EINVAL, "orthogonal", NULL, 600, 4, "goes by the classes of samples");
    check_refused(DILOCO_EINVAL, "sideways", NULL, 600, 4, "there is no \"sideways\"");
}

TEST(client_that_does_not_exist_has_no_samples)
{
    diloco_config *c = config_of("iid");
    diloco_division *d;
    uint64_t got[N];
    CHECK_OK(diloco_division_create(&d, c, classes, N, CLIENTS));
    CHECK_INT(0, diloco_division_size(d, 0));
    CHECK_INT(0, diloco_division_size(d, CLIENTS + 1));
    CHECK_STATUS(DILOCO_EINVAL, diloco_division_list(got, d, 0));
    CHECK_CONTAINS("clients are 1 to 20", diloco_error_text());
    diloco_division_destroy(d);
    diloco_division_destroy(NULL);
    diloco_config_destroy(c);
}

TEST_MAIN(every_sampler_divides_as_in_the_program,
          contiguous_gives_equal_pieces_and_whole_gives_everything,
          division_that_cannot_be_made_is_refused, client_that_does_not_exist_has_no_samples)
