/* image_files.h - small MNIST and CIFAR-10 folders for tests. Image i of a set has label
 * (i + seed) % 10 and pixels by a formula, brighter in a stripe that its label says, so that there
 * is something to learn. */
#ifndef DL_TESTS_IMAGE_FILES_H
#define DL_TESTS_IMAGE_FILES_H

#include "check.h"
#include "scratch.h"

enum { MNIST_PIXELS = 784, CIFAR_PIXELS = 3072, CIFAR_RECORD = 3073 };

static inline uint8_t image_label(size_t i, size_t seed)
{
    return (uint8_t)((i + seed) % 10);
}

/* side: 28 or 32 */
static inline uint8_t image_pixel(size_t i, size_t k, size_t side, size_t seed)
{
    size_t row = k / side % side, noise = (i * 97 + k * 31 + k * k % 61 + seed * 13) % 64;
    return (uint8_t)(row / 3 == image_label(i, seed) ? 190 + noise : noise);
}

static inline void put_u32(unsigned char *to, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(x >> (24 - 8 * i));
}

typedef char image_name[1024];
static inline void image_path(image_name out, const char *folder, const char *name)
{
    CHECK(snprintf(out, sizeof(image_name), "%s/%s", folder, name) < (int)sizeof(image_name));
}

static inline void image_file(const char *folder, const char *name, const void *data, size_t len)
{
    image_name path;
    image_path(path, folder, name);
    FILE *f = fopen(path, "wb");
    CHECK(f != NULL);
    CHECK(fwrite(data, 1, len, f) == len);
    CHECK_INT(0, fclose(f));
}

/* prefix: "train" or "t10k". */
static inline void mnist_files(const char *folder, const char *prefix, size_t n, size_t seed)
{
    char name[64];
    unsigned char *images = malloc(16 + n * MNIST_PIXELS), *labels = malloc(8 + n);
    put_u32(images, 0x803), put_u32(images + 4, (uint32_t)n);
    put_u32(images + 8, 28), put_u32(images + 12, 28);
    put_u32(labels, 0x801), put_u32(labels + 4, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        labels[8 + i] = image_label(i, seed);
        for (size_t k = 0; k < MNIST_PIXELS; k++)
            images[16 + i * MNIST_PIXELS + k] = image_pixel(i, k, 28, seed);
    }
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", prefix);
    image_file(folder, name, images, 16 + n * MNIST_PIXELS);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", prefix);
    image_file(folder, name, labels, 8 + n);
    free(images), free(labels);
}

static inline void cifar_file(const char *folder, const char *name, size_t n, size_t seed)
{
    unsigned char *records = malloc(n * CIFAR_RECORD);
    for (size_t i = 0; i < n; i++) {
        records[i * CIFAR_RECORD] = image_label(i, seed);
        for (size_t k = 0; k < CIFAR_PIXELS; k++)
            records[i * CIFAR_RECORD + 1 + k] = image_pixel(i, k, 32, seed);
    }
    image_file(folder, name, records, n * CIFAR_RECORD);
    free(records);
}

#endif
