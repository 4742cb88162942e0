/* partition_test.c - the promises of each sampler in partition.h, over synthetic classes of uneven
 * sizes, and over MNIST's where DILOCO_DATA names the folder that holds mnist/. */
#include "data/partition.h"

#include "check.h"
#include "data/images.h"

#include <stdio.h>
#include <stdlib.h>

enum { N = 6000, CLASSES = 10, CLIENTS = 50 };

typedef struct labels {
    int32_t *of;
    uint64_t n;
} labels;

static int32_t class_of(const void *user, uint64_t sample)
{
    return ((const labels *)user)->of[sample];
}

/* Class k comes k + 1 times as often as class 0, in no order. */
static labels uneven(void)
{
    static int32_t of[N];
    for (size_t i = 0; i < N; i++) {
        size_t place = i * 3581 % N % 55;
        int32_t k = 0;
        for (size_t end = 1; place >= end; end += (size_t)k + 1)
            k++;
        of[i] = k;
    }
    return (labels){of, N};
}

static dl_config config_of(const char *sampler)
{
    dl_config config;
    dl_config_init(&config);
    CHECK_OK(dl_config_set(&config, "data.sampler", sampler, "test"));
    return config;
}

static void set(dl_config *config, const char *option, const char *value)
{
    CHECK_OK(dl_config_set(config, option, value, "test"));
}

static diloco_status try(dl_partition **out, const dl_config *config, labels all, size_t clients)
{
    const dl_partition_data data = {
        .n = all.n, .n_classes = CLASSES, .class_of = class_of, .user = &all};
    return dl_partition_create(out, config, &data, clients);
}

static dl_partition *make(const dl_config *config, labels all, size_t clients)
{
    dl_partition *p;
    CHECK_OK(try(&p, config, all, clients));
    CHECK(p != NULL);
    return p;
}

/* A client's samples, however they are known; the caller frees them. */
static uint32_t *samples_of(const dl_partition *p, size_t client, uint64_t *n)
{
    *n = dl_partition_size(p, client);
    uint32_t *out = malloc(*n * sizeof *out);
    CHECK(out != NULL && *n > 0);
    if (dl_partition_listed(p)) {
        dl_partition_list(out, p, client);
    } else {
        for (uint64_t i = 0; i < *n; i++)
            out[i] = (uint32_t)dl_partition_at(p, client, i);
    }
    return out;
}

typedef struct summary {
    uint64_t total, least, most; /* samples of clients */
    unsigned most_owners;        /* of a sample */
    uint64_t unowned;            /* samples without an owner */
} summary;

/* Nothing beyond the data, and no sample twice in a client where `once`. */
static summary summarize_all(const dl_partition *p, uint64_t n_samples, size_t clients, bool once)
{
    summary s = {.least = UINT64_MAX};
    unsigned *owners = calloc(n_samples, sizeof *owners);
    size_t *last = calloc(n_samples, sizeof *last);
    CHECK(owners && last);
    for (size_t c = 0; c < clients; c++) {
        uint64_t n;
        uint32_t *mine = samples_of(p, c, &n);
        for (uint64_t i = 0; i < n; i++) {
            CHECK(mine[i] < n_samples && !(once && last[mine[i]] == c + 1));
            last[mine[i]] = c + 1;
            owners[mine[i]]++;
        }
        s.total += n;
        s.least = n < s.least ? n : s.least;
        s.most = n > s.most ? n : s.most;
        free(mine);
    }
    for (uint64_t i = 0; i < n_samples; i++) {
        s.unowned += owners[i] == 0;
        s.most_owners = owners[i] > s.most_owners ? owners[i] : s.most_owners;
    }
    free(owners), free(last);
    return s;
}

static summary summarize(const dl_partition *p, uint64_t n_samples, size_t clients)
{
    return summarize_all(p, n_samples, clients, true);
}

static const char *const assigned[] = {"iid",
                                       "noniid",
                                       "mixed",
                                       "orthogonal",
                                       "label_quantity_noniid",
                                       "sample_quantity_noniid",
                                       "distribution_noniid"};
enum { N_DEALT = sizeof assigned / sizeof assigned[0] };

/* Settings under which a sampler deals n samples to 50 clients. */
static dl_config fitting(const char *sampler, uint64_t n)
{
    dl_config config = config_of(sampler);
    char size[32];
    snprintf(size, sizeof size, "%llu", (unsigned long long)n / CLIENTS / 2);
    set(&config, "data.min_partition_size", size);
    set(&config, "data.partition_size", size);
    set(&config, "data.non_iid_clients", "7");
    set(&config, "algorithm.total_silos", "5");
    return config;
}

static void check_disjoint(labels all)
{
    for (size_t k = 0; k < N_DEALT; k++) {
        dl_config config = fitting(assigned[k], all.n);
        dl_partition *p = make(&config, all, CLIENTS);
        summary s = summarize(p, all.n, CLIENTS);
        CHECK(s.most_owners == 1 || dl_sampler_overlaps(assigned[k]));
        dl_partition_destroy(p);
    }
}

static uint64_t digest(const dl_config *config, labels all, size_t client)
{
    dl_partition *p = make(config, all, CLIENTS);
    uint64_t n, sum = 0;
    uint32_t *mine = samples_of(p, client, &n);
    for (uint64_t i = 0; i < n; i++)
        sum = sum * 1000003 + mine[i];
    free(mine);
    dl_partition_destroy(p);
    return sum;
}

static void check_reproducible(labels all)
{
    for (size_t k = 0; k < N_DEALT; k++) {
        dl_config config = fitting(assigned[k], all.n), other = config;
        set(&other, "data.random_seed", "2");
        CHECK(digest(&config, all, 3) == digest(&config, all, 3));
        CHECK(digest(&config, all, 3) != digest(&config, all, 4));
        CHECK(digest(&config, all, 3) != digest(&other, all, 3));
    }
}

TEST(clients_have_no_sample_in_common_where_the_sampler_says_so)
{
    check_disjoint(uneven());
}

TEST(fed_28_the_same_key_assigns_the_same_data_and_another_key_or_client_other_data)
{
    check_reproducible(uneven());
}

TEST(both_hold_for_the_labels_of_mnist)
{
    const char *data = getenv("DILOCO_DATA");
    char path[1024];
    dl_images images;
    snprintf(path, sizeof path, "%s/mnist", data ? data : "");
    if (!data || dl_images_open(&images, &dl_images_mnist, path, "DILOCO_DATA", false)) {
        print_message("left out: MNIST's labels, which need DILOCO_DATA (a folder with mnist/)\n");
        skip();
    }
    labels all = {calloc(images.n, sizeof(int32_t)), images.n};
    for (uint64_t i = 0; i < all.n; i++)
        (void)dl_images_at(&images, i, &all.of[i]);
    check_disjoint(all);
    check_reproducible(all);
    free(all.of);
    dl_images_close(&images);
}

TEST(iid_assigns_all_samples_and_repeats_where_data_is_short)
{
    dl_config config = config_of("iid");
    dl_partition *p = make(&config, uneven(), CLIENTS);
    summary s = summarize(p, N, CLIENTS);
    CHECK_INT(N, s.total);
    CHECK_INT(1, s.most_owners);
    CHECK_INT(0, s.unowned);
    dl_partition_destroy(p);

    set(&config, "data.partition_size", "300");
    p = make(&config, uneven(), CLIENTS);
    s = summarize_all(p, N, CLIENTS, false);
    CHECK_INT(15000, s.total);
    CHECK_INT(3, s.most_owners); /* 2.5 shuffles */
    CHECK_INT(0, s.unowned);
    dl_partition_destroy(p);
}

/* How much of a client's samples its largest class has, on the mean. */
static double largest_share(const dl_config *config, size_t first, size_t end)
{
    labels all = uneven();
    dl_partition *p = make(config, all, CLIENTS);
    double sum = 0;
    for (size_t c = first; c < end; c++) {
        uint64_t n, times[CLASSES] = {0}, most = 0;
        uint32_t *mine = samples_of(p, c, &n);
        for (uint64_t i = 0; i < n; i++)
            times[all.of[mine[i]]]++;
        for (size_t k = 0; k < CLASSES; k++)
            most = times[k] > most ? times[k] : most;
        sum += (double)most / (double)n;
        free(mine);
    }
    dl_partition_destroy(p);
    return sum / (double)(end - first);
}

TEST(noniid_is_as_skewed_as_its_concentration_says)
{
    dl_config config = config_of("noniid");
    set(&config, "data.partition_size", "60"); /* class 0 has 109 samples */
    set(&config, "data.concentration", "0.01");
    CHECK(largest_share(&config, 0, CLIENTS) > 0.9);
    set(&config, "data.concentration", "1000");
    double even = largest_share(&config, 0, CLIENTS);
    CHECK(even > 0.18 && even < 0.3); /* class 9 has 10 of 55 */
}

TEST(mixed_draws_for_the_named_clients_or_for_their_number)
{
    dl_config config = config_of("mixed");
    set(&config, "data.partition_size", "60");
    set(&config, "data.concentration", "0.001");
    set(&config, "data.non_iid_clients", "5");
    CHECK(largest_share(&config, 0, 5) > 0.9);
    CHECK(largest_share(&config, 5, CLIENTS) < 0.3);
    set(&config, "data.non_iid_clients", "3, 4");
    CHECK(largest_share(&config, 0, 2) < 0.4);
    CHECK(largest_share(&config, 2, 4) > 0.9);
    CHECK(largest_share(&config, 4, CLIENTS) < 0.3);
    set(&config, "data.non_iid_clients", "50,");
    CHECK(largest_share(&config, 0, 49) < 0.3);
    CHECK(largest_share(&config, 49, 50) > 0.9);
}

static unsigned classes_of(const dl_partition *p, labels all, size_t client)
{
    uint64_t n;
    unsigned set = 0;
    uint32_t *mine = samples_of(p, client, &n);
    for (uint64_t i = 0; i < n; i++)
        set |= 1u << all.of[mine[i]];
    free(mine);
    return set;
}

TEST(orthogonal_gives_each_class_a_silo_where_no_number_is_set)
{
    labels all = uneven();
    dl_config config = config_of("orthogonal");
    set(&config, "data.partition_size", "100");
    dl_partition *p = make(&config, all, CLIENTS);
    for (size_t c = 0; c < CLIENTS; c++)
        CHECK_INT(1 << c % CLASSES, classes_of(p, all, c));
    dl_partition_destroy(p);
}

TEST(orthogonal_silos_see_their_own_classes_only)
{
    labels all = uneven();
    dl_config config = config_of("orthogonal");
    set(&config, "data.partition_size", "90");
    set(&config, "data.institution_class_ids", "0, 1; 2,3 ;9");
    dl_partition *p = make(&config, all, CLIENTS);
    for (size_t c = 0; c < CLIENTS; c++)
        CHECK_INT(c % 3 == 0 ? 3 : c % 3 == 1 ? 12 : 512, classes_of(p, all, c));
    dl_partition_destroy(p);

    set(&config, "data.institution_class_ids", "");
    set(&config, "algorithm.total_silos", "5");
    p = make(&config, all, CLIENTS);
    for (size_t c = 0; c < CLIENTS; c++)
        CHECK_INT(3 << (c % 5 * 2), classes_of(p, all, c));
    dl_partition_destroy(p);

    set(&config, "data.label_distribution", "noniid");
    set(&config, "data.concentration", "0.01");
    CHECK(largest_share(&config, 0, CLIENTS) > 0.8);
    set(&config, "data.concentration", "0.001"); /* nearly all to one class, and be it another's */
    for (size_t c = 0; c < CLIENTS; c++)
        CHECK(largest_share(&config, c, c + 1) > 0.7);
}

TEST(label_quantity_gives_each_client_n_classes_and_assigns_all_samples)
{
    labels all = uneven();
    dl_config config = config_of("label_quantity_noniid");
    for (int each = 1; each <= 10; each += 3) {
        char text[8];
        snprintf(text, sizeof text, "%d", each);
        set(&config, "data.per_client_classes_size", text);
        dl_partition *p = make(&config, all, CLIENTS);
        summary s = summarize(p, N, CLIENTS);
        CHECK_INT(N, s.total);
        CHECK_INT(0, s.unowned);
        for (size_t c = 0; c < CLIENTS; c++) {
            unsigned set = classes_of(p, all, c);
            CHECK_INT(each, __builtin_popcount(set));
            CHECK(set >> (c % CLASSES) & 1);
        }
        dl_partition_destroy(p);
    }
}

TEST(sample_quantity_assigns_all_samples_and_leaves_no_client_below_the_minimum)
{
    dl_config config = config_of("sample_quantity_noniid");
    set(&config, "data.min_partition_size", "10");
    set(&config, "data.client_quantity_concentration", "0.1");
    dl_partition *p = make(&config, uneven(), CLIENTS);
    summary s = summarize(p, N, CLIENTS);
    CHECK_INT(N, s.total);
    CHECK_INT(1, s.most_owners);
    CHECK(s.least >= 10 && s.least < 20 && s.most > 500);
    dl_partition_destroy(p);

    set(&config, "data.client_quantity_concentration", "100000");
    p = make(&config, uneven(), CLIENTS);
    s = summarize(p, N, CLIENTS);
    CHECK(s.least > 110 && s.most < 130);
    dl_partition_destroy(p);
}

TEST(distribution_has_uneven_sizes_and_uneven_classes)
{
    dl_config config = config_of("distribution_noniid");
    set(&config, "data.min_partition_size", "30");
    set(&config, "data.label_concentration", "0.01");
    dl_partition *p = make(&config, uneven(), CLIENTS);
    summary s = summarize(p, N, CLIENTS);
    CHECK_INT(N, s.total);
    CHECK(s.least >= 30 && s.most > 200);
    dl_partition_destroy(p);
    CHECK(largest_share(&config, 0, CLIENTS) > 0.6);
}

/* Memory of a partition does not grow with the samples of clients. Only the table of
 * samplers.h is kept, and a list is drawn when it is asked for. */
TEST(ten_thousand_clients_are_dealt_to)
{
    for (size_t k = 0; k < N_DEALT; k++) {
        dl_config config = fitting(assigned[k], N);
        set(&config, "data.partition_size", "40");
        set(&config, "data.min_partition_size", "1");
        labels all = uneven();
        dl_partition *p;
        if (strstr(assigned[k], "quantity") || strstr(assigned[k], "distribution")) {
            CHECK_STATUS(DILOCO_EINVAL, try(&p, &config, all, 10000)); /* 6000 samples */
            continue;
        }
        p = make(&config, all, 10000);
        summary s = summarize_all(p, N, 10000, strcmp(assigned[k], "iid") != 0);
        CHECK_INT(400000, s.total);
        dl_partition_destroy(p);
    }
}

static void check_refused(const char *sampler, const char *option, const char *value,
                          const char *part)
{
    dl_config config = fitting(sampler, N);
    dl_partition *p;
    set(&config, option, value);
    CHECK_STATUS(DILOCO_EINVAL, try(&p, &config, uneven(), CLIENTS));
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK(p == NULL);
}

TEST(an_impossible_partition_is_refused_by_its_option)
{
    check_refused("noniid", "data.partition_size", "6001", "from 6000 samples, none twice");
    check_refused("orthogonal", "data.partition_size", "400", "from 330 samples, none twice");
    check_refused("orthogonal", "algorithm.total_silos", "11", "algorithm.total_silos: 11 silos");
    check_refused("orthogonal", "data.institution_class_ids", "1;2", "of each of 5 silos");
    check_refused("orthogonal", "data.institution_class_ids", "0;1;2;3;10", "from 0 to 9");
    check_refused("orthogonal", "data.institution_class_ids", "0;1;2;3;", "from 0 to 9");
    check_refused("orthogonal", "data.institution_class_ids", "0;1;2;x;4", "from 0 to 9");
    check_refused("mixed", "data.non_iid_clients", "51", "clients from 1 to 50");
    check_refused("mixed", "data.non_iid_clients", "0, 1", "clients from 1 to 50");
    check_refused("mixed", "data.non_iid_clients", "", "clients from 1 to 50");
    check_refused("mixed", "data.non_iid_clients", "1; 2", "clients from 1 to 50");
    check_refused("label_quantity_noniid", "data.per_client_classes_size", "11", "10 classes");
    check_refused("sample_quantity_noniid", "data.min_partition_size", "121", "lower it");
    check_refused("distribution_noniid", "data.min_partition_size", "121", "lower it");
    dl_config config = config_of("iid");
    dl_partition *p;
    CHECK_STATUS(DILOCO_EINVAL, try(&p, &config, uneven(), N + 1));
    CHECK_CONTAINS("less than one each", diloco_error_text());
}

/* iid needs out of memory for the samples. With a partition size of 2 a client needs little, too.
 */
TEST(samples_are_at_most_2_to_the_32nd)
{
    dl_config config = config_of("iid");
    dl_partition *p;
    dl_partition_data data = {.n = UINT64_C(1) << 32};
    set(&config, "data.partition_size", "2");
    CHECK_OK(dl_partition_create(&p, &config, &data, CLIENTS));
    CHECK(dl_partition_at(p, 0, 1) < data.n);
    dl_partition_destroy(p);
    data.n++;
    CHECK_STATUS(DILOCO_EREFUSED, dl_partition_create(&p, &config, &data, CLIENTS));
    CHECK_CONTAINS("at most 2^32 samples, and there are 4294967297", diloco_error_text());
}

TEST_MAIN(clients_have_no_sample_in_common_where_the_sampler_says_so,
          fed_28_the_same_key_assigns_the_same_data_and_another_key_or_client_other_data,
          both_hold_for_the_labels_of_mnist,
          iid_assigns_all_samples_and_repeats_where_data_is_short,
          noniid_is_as_skewed_as_its_concentration_says,
          mixed_draws_for_the_named_clients_or_for_their_number,
          orthogonal_gives_each_class_a_silo_where_no_number_is_set,
          orthogonal_silos_see_their_own_classes_only,
          label_quantity_gives_each_client_n_classes_and_assigns_all_samples,
          sample_quantity_assigns_all_samples_and_leaves_no_client_below_the_minimum,
          distribution_has_uneven_sizes_and_uneven_classes, ten_thousand_clients_are_dealt_to,
          an_impossible_partition_is_refused_by_its_option, samples_are_at_most_2_to_the_32nd)
