/* mnist.c - MNIST in the IDX format of its authors (LeCun, Cortes, Burges; yann.lecun.com), in two
 * files, each plain or packed with gzip:
 *
 *     images   0  u32  magic 0x00000803       labels   0  u32  magic 0x00000801
 *              4  u32  n                               4  u32  n
 *              8  u32  28 rows                         8  u8[n]
 *             12  u32  28 columns
 *             16  u8[n][28][28]
 *
 * big-endian, and not a byte more. Sets of the same form (Fashion-MNIST, …) are read as well. */
#include "data/images.h"

#include <inttypes.h>

enum { SIDE = 28, CLASSES = 10, IMAGES_HEAD = 16, LABELS_HEAD = 8 };
enum { IMAGES_MAGIC = 0x803, LABELS_MAGIC = 0x801 };

static uint32_t u32_at(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static diloco_status check_head(uint32_t *n, const dl_bytes *file, size_t head, uint32_t magic,
                                const char *what)
{
    if (file->len < head)
        return dl_fail(DILOCO_EPROTO, "%zu bytes are too few for an IDX header of %zu", file->len,
                       head);
    if (u32_at(file->data) != magic)
        return dl_fail(DILOCO_EPROTO,
                       "not IDX %s: it begins with 0x%08" PRIx32 ", not with 0x%08" PRIx32, what,
                       u32_at(file->data), magic);
    *n = u32_at(file->data + 4);
    return DILOCO_OK;
}

/* Compares the header's count with the file's length, before anything is read by it. */
static diloco_status check_length(const dl_bytes *file, size_t head, uint32_t n, size_t each,
                                  const char *what)
{
    size_t held = (file->len - head) / each;
    if (held == n && (file->len - head) % each == 0) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO,
                   "the file is damaged: its header says %" PRIu32 " %s, its %zu bytes hold %zu", n,
                   what, file->len, held);
}

static diloco_status read_images(uint32_t *n, const dl_bytes *file)
{
    DL_TRY(check_head(n, file, IMAGES_HEAD, IMAGES_MAGIC, "images"));
    uint32_t height = u32_at(file->data + 8), width = u32_at(file->data + 12);
    if (height != SIDE || width != SIDE)
        return dl_fail(DILOCO_EPROTO, "images of %" PRIu32 " x %" PRIu32 "; MNIST's are %d x %d",
                       height, width, SIDE, SIDE);
    return check_length(file, IMAGES_HEAD, *n, (size_t)SIDE * SIDE, "images");
}

static diloco_status read_labels(uint32_t *n, const dl_bytes *file)
{
    DL_TRY(check_head(n, file, LABELS_HEAD, LABELS_MAGIC, "labels"));
    return check_length(file, LABELS_HEAD, *n, 1, "labels");
}

/* Checks both headers, and that they have the same number; then adds the images. */
static diloco_status add_pair(dl_images *images, const dl_bytes *pixels, const dl_bytes *labels,
                              const char *folder, const char *pixel_name, const char *label_name)
{
    uint32_t n, n_labels;
    diloco_status status = read_images(&n, pixels);
    if (status) return dl_fail_context(status, "%s/%s", folder, pixel_name);
    status = read_labels(&n_labels, labels);
    if (!status && n_labels != n)
        status = dl_fail(DILOCO_EPROTO, "%" PRIu32 " labels for the %" PRIu32 " images of %s",
                         n_labels, n, pixel_name);
    if (!status)
        status = dl_images_add_run(images,
                                   (dl_image_run){.pixels = pixels->data + IMAGES_HEAD,
                                                  .labels = labels->data + LABELS_HEAD,
                                                  .pixel_step = (size_t)SIDE * SIDE,
                                                  .label_step = 1,
                                                  .n = n},
                                   CLASSES);
    return status ? dl_fail_context(status, "%s/%s", folder, label_name) : DILOCO_OK;
}

/* Adds both files. Images without labels are an error; neither of them is not. */
static diloco_status add(dl_images *images, const char *folder, bool test)
{
    const dl_bytes *pixels, *labels;
    const char *pixel_name = test ? "t10k-images-idx3-ubyte" : "train-images-idx3-ubyte";
    const char *label_name = test ? "t10k-labels-idx1-ubyte" : "train-labels-idx1-ubyte";
    diloco_status status = dl_images_add_file(images, &pixels, folder, pixel_name);
    if (status) return status == DILOCO_ENOENT ? DILOCO_OK : status;
    DL_TRY(dl_images_add_file(images, &labels, folder, label_name));
    return add_pair(images, pixels, labels, folder, pixel_name, label_name);
}

const dl_image_kind dl_images_mnist = {
    .name = "MNIST",
    .folder = "MNIST/raw", /* torchvision's */
    .files = "train-images-idx3-ubyte, train-labels-idx1-ubyte and the like (.gz as well)",
    .fetch = "Fetch train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, "
             "t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz from "
             "https://ossci-datasets.s3.amazonaws.com/mnist/ into that folder, or its MNIST/raw",
    .sample = {.kind = DL_IMAGES,
               .length = 1,
               .classes = CLASSES,
               .channels = 1,
               .height = SIDE,
               .width = SIDE,
               .mean = {0.1307f},
               .deviation = {0.3081f}},
    .add = add,
};
