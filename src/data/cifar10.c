/* cifar10.c - CIFAR-10's binary version (A. Krizhevsky 2009; cs.toronto.edu/~kriz/cifar.html):
 * data_batch_1.bin to data_batch_5.bin, of which some may be missing, and test_batch.bin, plain or
 * packed with gzip, each a row of records
 *
 *     0  u8            label
 *     1  u8[3][32][32] red, green, blue
 *
 * and not a byte more. Mean and deviation of the channels are those that Plato normalises by. */
#include "data/images.h"

#include <stdio.h>

enum { SIDE = 32, CHANNELS = 3, CLASSES = 10, BATCHES = 5 };
enum { PIXELS = CHANNELS * SIDE * SIDE, RECORD = 1 + PIXELS };

/* Adds a file of records, if it exists. Label and pixels of a record follow one another. */
static diloco_status add_batch(dl_images *images, const char *folder, const char *name)
{
    const dl_bytes *file;
    diloco_status status = dl_images_add_file(images, &file, folder, name);
    if (status) return status == DILOCO_ENOENT ? DILOCO_OK : status;
    if (file->len == 0 || file->len % RECORD != 0)
        status = dl_fail(DILOCO_EPROTO,
                         "%zu bytes are not a whole number of records of %d bytes: the file is cut "
                         "short, or not CIFAR-10's binary version",
                         file->len, RECORD);
    else
        status = dl_images_add_run(images,
                                   (dl_image_run){.pixels = file->data + 1,
                                                  .labels = file->data,
                                                  .pixel_step = RECORD,
                                                  .label_step = RECORD,
                                                  .n = file->len / RECORD},
                                   CLASSES);
    return status ? dl_fail_context(status, "%s/%s", folder, name) : DILOCO_OK;
}

static diloco_status add(dl_images *images, const char *folder, bool test)
{
    if (test) return add_batch(images, folder, "test_batch.bin");
    for (int i = 1; i <= BATCHES; i++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        DL_TRY(add_batch(images, folder, name));
    }
    return DILOCO_OK;
}

const dl_image_kind dl_images_cifar10 = {
    .name = "CIFAR10",
    .folder = "cifar-10-batches-bin", /* the folder in its archive */
    .files = "data_batch_1.bin, test_batch.bin and the like (.gz as well)",
    .fetch = "Fetch https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz and unpack it in that "
             "folder; the Python version of the set is not read",
    .sample = {.kind = DL_IMAGES,
               .length = 1,
               .classes = CLASSES,
               .channels = CHANNELS,
               .height = SIDE,
               .width = SIDE,
               .mean = {0.485f, 0.456f, 0.406f},
               .deviation = {0.229f, 0.224f, 0.225f}},
    .crop_pad = 4,
    .mirror = true,
    .add = add,
};
