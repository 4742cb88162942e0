/* images_test.c - both kinds of set, read back image by image; every way in which their files can
 * be wrong; and the real sets, where they are in ../shared/data. */
#include "data/images.h"

#include "image_files.h"

#include <unistd.h>

static void check_mnist(const char *folder, bool test, size_t n, size_t seed)
{
    dl_images images;
    CHECK_OK(dl_images_open(&images, &dl_images_mnist, folder, "data.train_path", test));
    CHECK_INT(n, images.n);
    for (size_t i = 0; i < n; i++) {
        int32_t label;
        const unsigned char *pixels = dl_images_at(&images, i, &label);
        CHECK_INT(image_label(i, seed), label);
        for (size_t k = 0; k < MNIST_PIXELS; k += 13)
            CHECK_INT(image_pixel(i, k, 28, seed), pixels[k]);
    }
    dl_images_close(&images);
}

TEST(mnist_is_read_from_its_folder_and_from_torchvisions)
{
    char *folder = scratch_folder("mnist"), *outer = scratch_folder("torchvision");
    image_name below;
    mnist_files(folder, "train", 23, 1);
    mnist_files(folder, "t10k", 7, 5);
    check_mnist(folder, false, 23, 1);
    check_mnist(folder, true, 7, 5);
    image_path(below, outer, "MNIST");
    CHECK_INT(0, mkdir(below, 0777));
    image_path(below, outer, "MNIST/raw");
    CHECK_INT(0, mkdir(below, 0777));
    mnist_files(below, "train", 4, 2);
    check_mnist(outer, false, 4, 2);
    check_mnist(outer, true, 0, 0); /* none is not an error */
}

TEST(cifar10_is_read_over_its_batches)
{
    dl_images images;
    char *folder = scratch_folder("cifar");
    cifar_file(folder, "data_batch_1.bin", 3, 0);
    cifar_file(folder, "data_batch_4.bin", 5, 2);
    cifar_file(folder, "test_batch.bin", 2, 7);
    CHECK_OK(dl_images_open(&images, &dl_images_cifar10, folder, "data.train_path", false));
    CHECK_INT(8, images.n);
    for (size_t i = 0; i < 8; i++) {
        int32_t label;
        size_t at = i < 3 ? i : i - 3, seed = i < 3 ? 0 : 2;
        const unsigned char *pixels = dl_images_at(&images, i, &label);
        CHECK_INT(image_label(at, seed), label);
        for (size_t k = 0; k < CIFAR_PIXELS; k += 101)
            CHECK_INT(image_pixel(at, k, 32, seed), pixels[k]);
    }
    dl_images_close(&images);
    CHECK_OK(dl_images_open(&images, &dl_images_cifar10, folder, "data.test_path", true));
    CHECK_INT(2, images.n);
    dl_images_close(&images);
}

static void check_wrong(const dl_image_kind *kind, diloco_status status, const char *path,
                        const char *text)
{
    dl_images images;
    CHECK_STATUS(status, dl_images_open(&images, kind, path, "data.train_path", false));
    CHECK_CONTAINS("data.train_path", diloco_error_text());
    CHECK_CONTAINS(text, diloco_error_text());
    CHECK(images.n == 0 && images.n_files == 0);
}

TEST(a_path_that_is_no_folder_is_named)
{
    char *file = scratch_write("file", "x", 1);
    check_wrong(&dl_images_mnist, DILOCO_EINVAL, "", "is not set");
    check_wrong(&dl_images_mnist, DILOCO_ENOENT, scratch_path("nowhere"), "nowhere");
    check_wrong(&dl_images_cifar10, DILOCO_EINVAL, file, "is not a folder");
}

/* A folder with one byte changed, or some cut off (a negative number of bytes: put on). */
static void check_damaged(const char *name, size_t at, int byte, long cut, const char *text)
{
    static int n;
    char folder_name[32];
    image_name path;
    snprintf(folder_name, sizeof folder_name, "damaged%d", n++);
    char *folder = scratch_folder(folder_name);
    mnist_files(folder, "train", 5, 0);
    image_path(path, folder, name);
    FILE *f = fopen(path, "r+b");
    CHECK(f != NULL);
    if (byte >= 0) CHECK(fseek(f, (long)at, SEEK_SET) == 0 && fputc(byte, f) == byte);
    CHECK_INT(0, fseek(f, 0, SEEK_END));
    long len = ftell(f);
    CHECK_INT(0, fclose(f));
    CHECK_INT(0, truncate(path, len - cut));
    check_wrong(&dl_images_mnist, DILOCO_EPROTO, folder, text);
    CHECK_CONTAINS(name, diloco_error_text());
}

TEST(wrong_idx_files_are_refused_with_the_reason)
{
    const char *images = "train-images-idx3-ubyte", *labels = "train-labels-idx1-ubyte";
    check_damaged(images, 3, 1, 0, "not IDX images: it begins with 0x00000801");
    check_damaged(labels, 2, 0, 0, "not IDX labels");
    check_damaged(images, 11, 30, 0, "images of 30 x 28; MNIST's are 28 x 28");
    check_damaged(images, 7, 6, 0, "its header says 6 images, its 3936 bytes hold 5");
    check_damaged(images, 4, 255, 0, "its header says 4278190085 images");
    check_damaged(images, 0, -1, 1, "hold 4");
    check_damaged(images, 0, -1, -1, "the file is damaged");
    check_damaged(images, 0, -1, 3936 - 15, "15 bytes are too few for an IDX header of 16");
    check_damaged(labels, 0, -1, 13 - 7, "7 bytes are too few for an IDX header of 8");
    check_damaged(labels, 0, -1, 2, "its header says 5 labels");
    check_damaged(labels, 10, 10, 0, "image 2 has label 10; there are 10 classes");
}

TEST(labels_that_are_missing_or_another_number_are_refused)
{
    char *folder = scratch_folder("alone");
    image_name path;
    mnist_files(folder, "train", 5, 0);
    image_path(path, folder, "train-labels-idx1-ubyte");
    CHECK_INT(0, unlink(path));
    check_wrong(&dl_images_mnist, DILOCO_ENOENT, folder, "train-labels-idx1-ubyte");
    const unsigned char four[12] = {0, 0, 8, 1, 0, 0, 0, 4};
    image_file(folder, "train-labels-idx1-ubyte", four, sizeof four);
    check_wrong(&dl_images_mnist, DILOCO_EPROTO, folder, "4 labels for the 5 images");
}

TEST(wrong_cifar_files_are_refused_with_the_reason)
{
    unsigned char records[2 * CIFAR_RECORD] = {[CIFAR_RECORD] = 10};
    char *folder = scratch_folder("wrong");
    image_file(folder, "data_batch_1.bin", records, CIFAR_RECORD + 5);
    check_wrong(&dl_images_cifar10, DILOCO_EPROTO, folder, "3078 bytes are not a whole number");
    image_file(folder, "data_batch_1.bin", records, 0);
    check_wrong(&dl_images_cifar10, DILOCO_EPROTO, folder, "0 bytes are not a whole number");
    image_file(folder, "data_batch_1.bin", records, sizeof records);
    check_wrong(&dl_images_cifar10, DILOCO_EPROTO, folder, "image 1 has label 10");
}

/* A folder of data that is not the project's; NULL: not there. */
static const char *real(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "../shared/data/%s", name);
    if (access(path, R_OK) == 0) return path;
    print_message("left out: there is no %s to read\n", path);
    return NULL;
}

static void check_real(const dl_image_kind *kind, const char *folder, bool test, size_t n)
{
    dl_images images;
    size_t of_class[10] = {0};
    int32_t label;
    CHECK_OK(dl_images_open(&images, kind, folder, "data.train_path", test));
    CHECK_INT(n, images.n);
    for (size_t i = 0; i < n; i++) {
        (void)dl_images_at(&images, i, &label);
        of_class[label]++;
    }
    for (int c = 0; c < 10; c++)
        CHECK(of_class[c] > n / 12 && of_class[c] < n / 8);
    dl_images_close(&images);
}

TEST(the_real_mnist_is_read)
{
    const char *folder = real("mnist");
    if (!folder) skip();
    check_real(&dl_images_mnist, folder, false, 60000);
    check_real(&dl_images_mnist, folder, true, 10000);
}

TEST(the_real_cifar10_is_read)
{
    const char *folder = real("cifar10");
    if (!folder) skip();
    check_real(&dl_images_cifar10, folder, false, 4000);
    check_real(&dl_images_cifar10, folder, true, 1000);
}

TEST_MAIN(mnist_is_read_from_its_folder_and_from_torchvisions, cifar10_is_read_over_its_batches,
          a_path_that_is_no_folder_is_named, wrong_idx_files_are_refused_with_the_reason,
          labels_that_are_missing_or_another_number_are_refused,
          wrong_cifar_files_are_refused_with_the_reason, the_real_mnist_is_read,
          the_real_cifar10_is_read)
