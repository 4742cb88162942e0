/* data_test.c - the cut into shards and windows, their order, and the validation part.
 *
 * The corpus counts: the four bytes at 4 j are j. So two tokens in a row differ at any
 * two places that matter, and place_of finds a window's place from its content. */
#include "data/data.h"

#include "image_files.h"

enum { T = 8, MAX_ROWS = 512 };

static char *counting(const char *name, size_t n)
{
    unsigned char *text = malloc(n);
    CHECK(text != NULL);
    for (size_t i = 0; i < n; i++)
        text[i] = (unsigned char)(i / 4 >> (8 * (i % 4)));
    char *path = scratch_write(name, text, n);
    free(text);
    return path;
}

/* Where in the counting corpus a run of at least 7 tokens was taken from. */
static size_t place_of(const int32_t *tokens)
{
    for (size_t shift = 0; shift < 4; shift++) {
        size_t number = 0; /* the top two bytes are 0 in corpora of less than 2^18 bytes */
        for (size_t k = 0; k < 4; k++)
            number |= (size_t)tokens[shift + k] << (8 * k);
        if (tokens[shift + 2] || tokens[shift + 3]) continue;
        size_t place = 4 * number - shift;
        bool same = 4 * number >= shift;
        for (size_t i = 0; i < 7 && same; i++)
            same = (size_t)tokens[i] == ((place + i) / 4 >> (8 * ((place + i) % 4)) & 255);
        if (same) return place;
    }
    CHECK_FAIL("these tokens are not from the corpus");
    return 0;
}

static dl_config config_of(const char *train)
{
    dl_config config;
    dl_config_init(&config);
    config.context = T;
    config.test_fraction = 0;
    snprintf(config.train_path, sizeof config.train_path, "%s", train);
    return config;
}

static dl_data *open_data(const dl_config *config, size_t n_shards)
{
    dl_data *data;
    CHECK_OK(dl_data_open(&data, config, n_shards));
    return data;
}

static void check_refused(const dl_config *config, size_t n_shards, const char *part)
{
    dl_data *data;
    CHECK_STATUS(DILOCO_EINVAL, dl_data_open(&data, config, n_shards));
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK(data == NULL);
}

/* Places of samples first … first+n-1 of a shard, each checked to be shifted by one. */
static void places(size_t *out, const dl_data *data, size_t shard, uint64_t first, size_t n)
{
    int32_t inputs[MAX_ROWS * T], targets[MAX_ROWS * T];
    CHECK(n <= MAX_ROWS);
    dl_data_batch(data, inputs, targets, shard, first, n);
    for (size_t row = 0; row < n; row++) {
        out[row] = place_of(inputs + row * T);
        CHECK_INT(out[row] + 1, place_of(targets + row * T));
        CHECK_BYTES(inputs + row * T + 1, targets + row * T, (T - 1) * sizeof *inputs);
    }
}

TEST(every_window_is_read_once_an_epoch_and_shards_are_disjoint)
{
    enum { SHARDS = 3, LENGTH = 163 }; /* of a shard; 162 / 8 = 20 windows */
    dl_config config = config_of(counting("epoch", SHARDS * LENGTH + 2));
    dl_data *data = open_data(&config, SHARDS);
    CHECK_INT(20, dl_data_samples(data, 0));
    CHECK_INT(SHARDS * LENGTH + 2, dl_data_train_items(data));
    for (size_t shard = 0; shard < SHARDS; shard++) {
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            size_t at[20];
            int seen[20] = {0};
            places(at, data, shard, 20 * epoch, 20);
            for (size_t i = 0; i < 20; i++) {
                size_t in_shard = at[i] - shard * LENGTH;
                CHECK(in_shard % T == 0 && in_shard / T < 20);
                seen[in_shard / T]++;
            }
            for (size_t i = 0; i < 20; i++)
                CHECK_INT(1, seen[i]);
        }
    }
    dl_data_close(data);
}

TEST(a_shard_of_exactly_one_sequence_will_do)
{
    dl_config config = config_of(counting("exact", 2 * (T + 1)));
    dl_data *data = open_data(&config, 2);
    size_t at[2];
    CHECK_INT(1, dl_data_samples(data, 0));
    places(at, data, 1, 0, 2);
    CHECK(at[0] == T + 1 && at[1] == T + 1);
    dl_data_close(data);
}

/* The order is 100 windows; that two of 100! orders agree by chance cannot happen. */
static bool same_order(const dl_data *a, size_t shard_a, uint64_t epoch_a, const dl_data *b,
                       size_t shard_b, uint64_t epoch_b)
{
    size_t x[100], y[100];
    CHECK_INT(100, dl_data_samples(a, 0));
    places(x, a, shard_a, 100 * epoch_a, 100);
    places(y, b, shard_b, 100 * epoch_b, 100);
    for (size_t i = 1; i < 100; i++) /* steps between places: shards begin elsewhere */
        if (x[i] - x[i - 1] != y[i] - y[i - 1]) return false;
    return true;
}

TEST(the_order_differs_by_epoch_shard_and_seed_and_repeats_otherwise)
{
    dl_config config = config_of(counting("order", 2 * (100 * T + 1)));
    dl_data *a = open_data(&config, 2), *again = open_data(&config, 2);
    config.seed = 2;
    dl_data *seeded = open_data(&config, 2);
    CHECK(same_order(a, 0, 0, again, 0, 0));
    CHECK(same_order(a, 1, 7, again, 1, 7));
    CHECK(!same_order(a, 0, 0, a, 0, 1));
    CHECK(!same_order(a, 0, 0, a, 1, 0));
    CHECK(!same_order(a, 0, 0, seeded, 0, 0));
    CHECK(!same_order(a, 0, 0, a, 0, (uint64_t)1 << 32)); /* epochs are not cut to 32 bits */
    dl_data_close(a), dl_data_close(again), dl_data_close(seeded);
}

TEST(a_position_is_all_that_is_needed)
{
    dl_config config = config_of(counting("position", 50 * T + 1));
    dl_data *data = open_data(&config, 1);
    size_t all[120], part[7];
    places(all, data, 0, 0, 120);
    dl_data_close(data);
    data = open_data(&config, 1);
    for (size_t first = 0; first + 7 <= 120; first += 7) { /* over the border of an epoch */
        places(part, data, 0, first, 7);
        CHECK_BYTES(all + first, part, sizeof part);
    }
    dl_data_close(data);
}

TEST(partition_whole_gives_all_to_each_shard_in_an_order_of_its_own)
{
    dl_config config = config_of(counting("whole", 100 * T + 1));
    strcpy(config.sampler, "whole");
    dl_data *data = open_data(&config, 1000); /* more shards than sequences */
    CHECK(!same_order(data, 0, 0, data, 999, 0));
    for (size_t shard = 0; shard < 1000; shard += 999) {
        size_t at[100], sum = 0;
        places(at, data, shard, 0, 100);
        for (size_t i = 0; i < 100; i++)
            sum += at[i];
        CHECK_INT(99 * 100 / 2 * T, sum);
    }
    dl_data_close(data);
}

TEST(validation_is_cut_from_the_end_and_its_last_window_is_short)
{
    dl_config config = config_of(counting("test", 1000));
    config.test_fraction = 0.1; /* 100 tokens, 99 targets: 12 windows and 3 targets */
    dl_data *data = open_data(&config, 1);
    CHECK_INT(900, dl_data_train_items(data));
    CHECK_INT(100, dl_data_test_items(data));
    CHECK_INT(13, dl_data_test_samples(data));
    int32_t inputs[20 * T], targets[20 * T];
    CHECK_INT(13, dl_data_test_batch(data, inputs, targets, 0, 20));
    for (size_t i = 0; i < 99; i++) {
        CHECK_INT((900 + i) / 4 >> (8 * ((900 + i) % 4)) & 255, inputs[i]);
        CHECK_INT((901 + i) / 4 >> (8 * ((901 + i) % 4)) & 255, targets[i]);
    }
    for (size_t i = 99; i < 13 * T; i++)
        CHECK(inputs[i] == 0 && targets[i] == -1);

    int32_t again[2 * T], shifted[2 * T];
    CHECK_INT(1, dl_data_test_batch(data, again, shifted, 12, 2));
    CHECK_BYTES(targets + 12 * T, shifted, T * sizeof *again);
    CHECK_INT(0, dl_data_test_batch(data, again, shifted, 13, 2));

    size_t at[2];
    places(at, data, 0, 0, 2);
    for (uint64_t i = 0; i < dl_data_samples(data, 0); i++) { /* training never reads after 900 */
        places(at, data, 0, i, 1);
        CHECK(at[0] + T < 900);
    }
    dl_data_close(data);
}

TEST(validation_may_have_files_of_its_own)
{
    dl_config config = config_of(counting("own", 100));
    config.test_fraction = 0.1;
    snprintf(config.test_path, sizeof config.test_path, "%s",
             scratch_write("own.test", "012345678", T + 1));
    dl_data *data = open_data(&config, 1);
    CHECK_INT(100, dl_data_train_items(data));
    CHECK_INT(9, dl_data_test_items(data));
    int32_t inputs[T], targets[T];
    CHECK_INT(1, dl_data_test_batch(data, inputs, targets, 0, 1));
    CHECK(inputs[0] == '0' && targets[0] == '1' && targets[T - 1] == '8');
    dl_data_close(data);
}

TEST(no_fraction_and_no_file_is_no_validation)
{
    dl_config config = config_of(counting("without", 100));
    dl_data *data = open_data(&config, 1);
    int32_t inputs[T], targets[T];
    CHECK_INT(0, dl_data_test_samples(data));
    CHECK_INT(0, dl_data_test_batch(data, inputs, targets, 0, 1));
    dl_data_close(data);
}

TEST(a_shard_shorter_than_a_sequence_is_refused_with_both_lengths)
{
    dl_config config = config_of(counting("short", 4 * (T + 1) - 1));
    check_refused(&config, 4, "short has 35 tokens for training, 8 for each of 4 shards");
    check_refused(&config, 4, "needs 9");
    check_refused(&config, 4, "data.train_path");
    config = config_of(counting("too little", T));
    CHECK_OK(dl_config_set(&config, "data.sampler", "iid", "test"));
    CHECK_OK(
        dl_config_set(&config, "data.partition_size", "10", "test")); /* of what is not there */
    check_refused(&config, 2, "too little has 8 tokens for training");
}

TEST(validation_shorter_than_a_sequence_is_refused_with_both_lengths)
{
    dl_config config = config_of(counting("long", 80));
    config.test_fraction = 0.1;
    check_refused(&config, 1, "data.test_fraction");
    check_refused(&config, 1, "long has 8 tokens for validation, but one sequence needs 9");
    snprintf(config.test_path, sizeof config.test_path, "%s", scratch_write("tiny", "12345678", 8));
    check_refused(&config, 1, "data.test_path");
    check_refused(&config, 1, "tiny has 8 tokens for validation, but one sequence needs 9");
}

TEST(unknown_names_are_refused_and_the_known_ones_listed)
{
    dl_config config = config_of(counting("names", 100));
    strcpy(config.datasource, "txet");
    check_refused(&config, 1,
                  "data.datasource: \"txet\" is unknown; there is: text, tokens, MNIST, CIFAR10");
    config = config_of(counting("names", 100));
    strcpy(config.tokenizer, "bqe");
    check_refused(&config, 1, "data.tokenizer: \"bqe\" is unknown; there is: byte, bpe");
    CHECK_STR("text", dl_datasource_name_at(0));
    CHECK_STR("tokens", dl_datasource_name_at(1));
    CHECK_STR("MNIST", dl_datasource_name_at(2));
    CHECK_STR("CIFAR10", dl_datasource_name_at(3));
    CHECK(dl_datasource_name_at(4) == NULL);
    CHECK(dl_datasource_has_images("MNIST") && !dl_datasource_has_images("text"));
    CHECK_STR("byte", dl_tokenizer_name_at(0));
    CHECK_STR("bpe", dl_tokenizer_name_at(1));
    CHECK(dl_tokenizer_name_at(2) == NULL);
}

TEST(missing_data_is_refused_by_the_option_that_names_it)
{
    dl_config config = config_of("");
    check_refused(&config, 1, "data.train_path is not set");
    config = config_of(counting("there", 100));
    strcpy(config.test_path, "/nowhere");
    dl_data *data;
    CHECK_STATUS(DILOCO_ENOENT, dl_data_open(&data, &config, 1));
    CHECK_CONTAINS("data.test_path", diloco_error_text());
}

static size_t token_text(const dl_data *data, char out[64], int32_t token)
{
    char room[16];
    size_t len;
    const char *text = dl_data_token_text(data, &len, room, token);
    CHECK(len <= 64);
    memcpy(out, text, len);
    return len;
}

static size_t encoded(const dl_data *data, int32_t *tokens, const char *text)
{
    size_t n;
    CHECK_OK(dl_data_encode(data, tokens, &n, text, strlen(text)));
    return n;
}

TEST(bytes_have_a_vocabulary_of_256_that_may_be_padded_but_not_cut)
{
    dl_config config = config_of(counting("vocab", 100));
    dl_data *data = open_data(&config, 1);
    CHECK_INT(256, dl_data_sample(data)->classes);
    dl_data_close(data);
    config.vocab = 320;
    data = open_data(&config, 1);
    CHECK_INT(320, dl_data_sample(data)->classes);
    char text[64];
    CHECK_INT(5, token_text(data, text, 319));
    CHECK_BYTES("<319>", text, 5);
    dl_data_close(data);
    config.vocab = 255;
    check_refused(&config, 1, "parameters.model.vocab is 255");
}

TEST(text_survives_the_byte_tokenizer)
{
    dl_config config = config_of(counting("bytes", 100));
    dl_data *data = open_data(&config, 1);
    int32_t tokens[4] = {0, 0, 0, 42};
    CHECK_INT(3, encoded(data, tokens, "\xffyz"));
    CHECK(tokens[0] == 255 && tokens[1] == 'y' && tokens[2] == 'z' && tokens[3] == 42);
    CHECK_INT(2, encoded(data, tokens, "ab"));
    char text[64];
    for (int32_t i = 0; i < 256; i++) {
        CHECK_INT(1, token_text(data, text, i));
        CHECK_INT(i, (unsigned char)text[0]);
    }
    dl_data_close(data);
}

/* A shard of n tokens in llm.c's format, all 3 but the last. */
static char *token_shard(const char *name, size_t n, uint16_t last)
{
    unsigned char bytes[1024 + 2 * 100] = {0x88, 0xd8, 0x34, 0x01, 1};
    CHECK(n <= 100);
    bytes[8] = (unsigned char)n;
    for (size_t i = 0; i < n; i++)
        bytes[1024 + 2 * i] = 3;
    bytes[1024 + 2 * n - 2] = (unsigned char)last;
    bytes[1024 + 2 * n - 1] = (unsigned char)(last >> 8);
    return scratch_write(name, bytes, 1024 + 2 * n);
}

TEST(token_shards_are_a_source_whose_vocabulary_is_in_the_data)
{
    dl_config config = config_of(token_shard("a.bin", 60, 9));
    strcpy(config.datasource, "tokens");
    snprintf(config.test_path, sizeof config.test_path, "%s", token_shard("b.bin", 20, 1000));
    dl_data *data = open_data(&config, 2);
    CHECK_INT(1001, dl_data_sample(data)->classes); /* validation counts too */
    CHECK_INT(60, dl_data_train_items(data));
    int32_t inputs[T], targets[T];
    dl_data_batch(data, inputs, targets, 1, 0, 1);
    CHECK(inputs[0] == 3 && targets[0] == 3);
    char text[64];
    CHECK_INT(3, token_text(data, text, 3)); /* not the byte 3 */
    CHECK_BYTES("<3>", text, 3);
    CHECK_INT(0, encoded(data, inputs, "abc"));
    dl_data_close(data);

    config.vocab = 1001;
    data = open_data(&config, 2);
    CHECK_INT(1001, dl_data_sample(data)->classes);
    dl_data_close(data);
    config.vocab = 1000;
    check_refused(&config, 2, "b.bin");
}

TEST(token_shards_within_bytes_are_spoken_by_the_byte_tokenizer)
{
    dl_config config = config_of(token_shard("c.bin", 60, 'x'));
    strcpy(config.datasource, "tokens");
    dl_data *data = open_data(&config, 1);
    char text[64];
    CHECK_INT(1, token_text(data, text, 'x'));
    CHECK_INT('x', text[0]);
    dl_data_close(data);
}

TEST(a_damaged_shard_is_refused)
{
    dl_config config = config_of(counting("not-a-shard", 2000));
    strcpy(config.datasource, "tokens");
    dl_data *data;
    CHECK_STATUS(DILOCO_EPROTO, dl_data_open(&data, &config, 1));
    CHECK_CONTAINS("not-a-shard", diloco_error_text());
}

TEST(the_digest_tells_other_data_apart)
{
    const char *one = counting("d1", 1000);
    dl_config config = config_of(one);
    dl_data *a = open_data(&config, 1), *b = open_data(&config, 4);
    CHECK_INT(DL_HASH_HEX, strlen(dl_data_digest(a)));
    CHECK_STR(dl_data_digest(a), dl_data_digest(b)); /* the data, not its cut */
    dl_data_close(b);
    strcpy(config.test_path, one);
    b = open_data(&config, 1);
    CHECK(strcmp(dl_data_digest(a), dl_data_digest(b)) != 0);
    dl_data_close(b);
    config = config_of(counting("d2", 1001));
    b = open_data(&config, 1);
    CHECK(strcmp(dl_data_digest(a), dl_data_digest(b)) != 0);
    dl_data_close(a), dl_data_close(b), dl_data_close(NULL);
}

TEST(words_alone_need_no_files)
{
    dl_config config;
    dl_data *data;
    char text[64];
    int32_t tokens[4];
    dl_config_init(&config);
    CHECK_OK(dl_data_open_words(&data, &config));
    CHECK_INT(256, dl_data_sample(data)->classes);
    CHECK_INT(1, token_text(data, text, 'x'));
    CHECK_INT('x', text[0]);
    CHECK_INT(2, encoded(data, tokens, "ab"));
    dl_data_close(data);
    CHECK_OK(dl_config_set(&config, "data.tokenizer", "nobody", "test"));
    CHECK_STATUS(DILOCO_EINVAL, dl_data_open_words(&data, &config));
    CHECK_CONTAINS("byte", diloco_error_text());
}

/* ---- images */

static dl_config image_config(const char *source, const char *folder)
{
    dl_config config = config_of(folder);
    snprintf(config.datasource, sizeof config.datasource, "%s", source);
    return config;
}

TEST(images_are_cut_into_shards_each_of_which_comes_once_an_epoch)
{
    char *folder = scratch_folder("images");
    mnist_files(folder, "train", 47, 3);
    dl_config config = image_config("MNIST", folder);
    dl_data *data = open_data(&config, 2);
    int times[47] = {0};
    unsigned char image[MNIST_PIXELS];
    int32_t label;
    CHECK_INT(DL_IMAGES, dl_data_sample(data)->kind);
    CHECK_INT(47, dl_data_train_items(data));
    CHECK_INT(23, dl_data_samples(data, 1));
    for (size_t shard = 0; shard < 2; shard++)
        for (uint64_t i = 0; i < 23; i++) {
            size_t which = 0;
            dl_data_batch(data, image, &label, shard, 23 + i, 1); /* the second epoch */
            while (which < 47 &&
                   (image_pixel(which, 0, 28, 3) != image[0] ||
                    image_pixel(which, 700, 28, 3) != image[700] ||
                    image_label(which, 3) != label || times[which] > 0 || which / 23 != shard))
                which++;
            CHECK(which < 46);
            for (size_t k = 0; k < MNIST_PIXELS; k++)
                CHECK_INT(image_pixel(which, k, 28, 3), image[k]);
            times[which]++;
        }
    dl_data_close(data);
}

TEST(the_test_files_beside_the_training_files_are_the_validation_part)
{
    char *folder = scratch_folder("beside"), *elsewhere = scratch_folder("elsewhere");
    unsigned char images[9 * MNIST_PIXELS];
    int32_t labels[9];
    mnist_files(folder, "train", 20, 0);
    dl_config config = image_config("MNIST", folder);
    config.test_fraction = 0.25;
    dl_data *data = open_data(&config, 1); /* none: the end of the training part */
    CHECK_INT(15, dl_data_train_items(data));
    CHECK_INT(5, dl_data_test_samples(data));
    CHECK_INT(5, dl_data_test_batch(data, images, labels, 0, 9));
    for (size_t i = 0; i < 5; i++)
        CHECK_INT(image_label(15 + i, 0), labels[i]);
    dl_data_close(data);

    mnist_files(folder, "t10k", 7, 4);
    mnist_files(elsewhere, "t10k", 3, 8);
    data = open_data(&config, 1);
    CHECK_INT(20, dl_data_train_items(data));
    CHECK_INT(2, dl_data_test_batch(data, images, labels, 5, 9));
    CHECK_INT(image_label(5, 4), labels[0]);
    CHECK_INT(image_pixel(6, 100, 28, 4), images[MNIST_PIXELS + 100]);
    CHECK_INT(0, dl_data_test_batch(data, images, labels, 7, 9));
    dl_data_close(data);

    snprintf(config.test_path, sizeof config.test_path, "%s", elsewhere);
    data = open_data(&config, 1);
    CHECK_INT(3, dl_data_test_samples(data));
    dl_data_close(data);
    snprintf(config.test_path, sizeof config.test_path, "%s", scratch_folder("nothing"));
    check_refused(&config, 1, "data.test_path");
    config = image_config("MNIST", elsewhere);
    check_refused(&config, 1, "has no training images");
}

TEST(too_few_images_are_refused)
{
    char *folder = scratch_folder("few");
    mnist_files(folder, "train", 3, 0);
    dl_config config = image_config("MNIST", folder);
    check_refused(&config, 4, "3 images for training, too few for 4 shards");
    config.test_fraction = 0.1;
    check_refused(&config, 1, "data.test_fraction");
}

/* Augmented as a stream is: equal however far it had come, and not where it is turned off or the
 * images are for validation. */
TEST(training_images_of_cifar10_are_augmented_by_their_place_in_the_stream)
{
    enum { ROWS = 6 };
    static unsigned char all[ROWS * CIFAR_PIXELS], one[CIFAR_PIXELS], plain[CIFAR_PIXELS];
    char *folder = scratch_folder("cifar");
    int32_t labels[ROWS], label, changed = 0;
    cifar_file(folder, "data_batch_1.bin", 12, 0);
    cifar_file(folder, "test_batch.bin", 2, 5);
    dl_config config = image_config("CIFAR10", folder), off = config;
    off.augment = false;
    dl_data *data = open_data(&config, 1), *without = open_data(&off, 1);
    dl_data_batch(data, all, labels, 0, 20, ROWS);
    for (size_t row = 0; row < ROWS; row++) {
        dl_data_batch(data, one, &label, 0, 20 + row, 1);
        CHECK_BYTES(all + row * CIFAR_PIXELS, one, CIFAR_PIXELS);
        dl_data_batch(without, plain, &label, 0, 20 + row, 1);
        CHECK_INT(labels[row], label);
        changed += memcmp(one, plain, CIFAR_PIXELS) != 0;
    }
    CHECK(changed >= ROWS - 1); /* of 162 kinds one is the image itself */
    CHECK_INT(2, dl_data_test_batch(data, all, labels, 0, 2));
    for (size_t k = 0; k < CIFAR_PIXELS; k++)
        CHECK_INT(image_pixel(1, k, 32, 5), all[CIFAR_PIXELS + k]);
    dl_data_close(data), dl_data_close(without);
}

/* ---- shards by samplers */

static void check_assigned(const dl_data *data, size_t shard, int times[60])
{
    unsigned char image[MNIST_PIXELS];
    int32_t label;
    for (uint64_t i = 0; i < 20; i++) { /* the second epoch */
        size_t which = 0;
        dl_data_batch(data, image, &label, shard, 20 + i, 1);
        while (which < 60 && (dl_data_class(data, which) != label ||
                              image[300] != image_pixel(which, 300, 28, 3) ||
                              image[301] != image_pixel(which, 301, 28, 3)))
            which++;
        CHECK(which < 60);
        times[which]++;
    }
}

TEST(a_sampler_assigns_images_and_a_shard_that_it_draws_has_to_be_taken)
{
    static const char *const samplers[] = {"iid", "noniid"};
    char *folder = scratch_folder("dealt");
    mnist_files(folder, "train", 60, 3);
    for (size_t k = 0; k < 2; k++) {
        dl_config config = image_config("MNIST", folder);
        int times[60] = {0};
        CHECK_OK(dl_config_set(&config, "data.sampler", samplers[k], "test"));
        dl_data *data = open_data(&config, 3);
        for (size_t shard = 0; shard < 3; shard++) {
            int before[60];
            memcpy(before, times, sizeof before);
            CHECK_INT(20, dl_data_samples(data, shard));
            CHECK_OK(dl_data_take(data, shard));
            check_assigned(data, shard, times);
            for (size_t i = 0; i < 60; i++)
                CHECK(times[i] - before[i] <= 1); /* none twice in an epoch */
        }
        for (size_t i = 0; i < 60; i++)
            CHECK(k == 1 || times[i] == 1);
        dl_data_close(data);
    }
}

TEST(a_sampler_assigns_windows_of_tokens_unless_it_goes_by_class)
{
    dl_config config = config_of(counting("dealt windows", 99 * T + 1));
    bool seen[99] = {false};
    CHECK_OK(dl_config_set(&config, "data.sampler", "iid", "test"));
    dl_data *data = open_data(&config, 3);
    for (size_t shard = 0; shard < 3; shard++) {
        size_t place[33];
        CHECK_INT(33, dl_data_samples(data, shard));
        places(place, data, shard, 0, 33);
        for (size_t i = 0; i < 33; i++) {
            CHECK(place[i] % T == 0 && place[i] / T < 99 && !seen[place[i] / T]);
            seen[place[i] / T] = true;
        }
    }
    dl_data_close(data);
    CHECK_OK(dl_config_set(&config, "data.sampler", "noniid", "test"));
    check_refused(&config, 3, "goes by the classes of samples");
    CHECK_OK(dl_config_set(&config, "data.sampler", "idd", "test"));
    check_refused(&config, 3, "data.sampler: there is no \"idd\"");
}

TEST_MAIN(words_alone_need_no_files, every_window_is_read_once_an_epoch_and_shards_are_disjoint,
          a_shard_of_exactly_one_sequence_will_do,
          the_order_differs_by_epoch_shard_and_seed_and_repeats_otherwise,
          a_position_is_all_that_is_needed,
          partition_whole_gives_all_to_each_shard_in_an_order_of_its_own,
          validation_is_cut_from_the_end_and_its_last_window_is_short,
          validation_may_have_files_of_its_own, no_fraction_and_no_file_is_no_validation,
          a_shard_shorter_than_a_sequence_is_refused_with_both_lengths,
          validation_shorter_than_a_sequence_is_refused_with_both_lengths,
          unknown_names_are_refused_and_the_known_ones_listed,
          missing_data_is_refused_by_the_option_that_names_it,
          bytes_have_a_vocabulary_of_256_that_may_be_padded_but_not_cut,
          text_survives_the_byte_tokenizer,
          token_shards_are_a_source_whose_vocabulary_is_in_the_data,
          token_shards_within_bytes_are_spoken_by_the_byte_tokenizer, a_damaged_shard_is_refused,
          the_digest_tells_other_data_apart,
          images_are_cut_into_shards_each_of_which_comes_once_an_epoch,
          the_test_files_beside_the_training_files_are_the_validation_part,
          too_few_images_are_refused,
          training_images_of_cifar10_are_augmented_by_their_place_in_the_stream,
          a_sampler_assigns_images_and_a_shard_that_it_draws_has_to_be_taken,
          a_sampler_assigns_windows_of_tokens_unless_it_goes_by_class)
