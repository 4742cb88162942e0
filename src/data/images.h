/* images.h - sets of labelled images, and the list of kinds. A kind's file finds the set's files in
 * a folder and says where pixels and labels are in them; images.c reads them. */
#ifndef DL_DATA_IMAGES_H
#define DL_DATA_IMAGES_H

#include "base/hash.h"
#include "base/sample.h"
#include "data/bytes.h"

enum { DL_IMAGES_MAX_FILES = 8 };

/* Images of one file and their labels, each at a fixed distance in bytes from the next. */
typedef struct dl_image_run {
    const unsigned char *pixels, *labels;
    size_t pixel_step, label_step;
    uint64_t first; /* number of the first one in the set */
    size_t n;
} dl_image_run;

typedef struct dl_images {
    dl_bytes files[DL_IMAGES_MAX_FILES];
    size_t n_files;
    dl_image_run runs[DL_IMAGES_MAX_FILES];
    size_t n_runs;
    uint64_t n; /* images; 0: there is no such set */
} dl_images;

/* One kind of set; a row of data.c. */
typedef struct dl_image_kind {
    const char *name;   /* data.datasource */
    const char *folder; /* where its own tools put it below the folder named, or "" */
    const char *files;  /* for the text of errors */
    const char *fetch;  /* likewise: where they can be had, and where they belong */
    dl_sample sample;
    size_t crop_pad; /* augmentation: largest shift in pixels, with zeros around it */
    bool mirror;     /* and mirrored half of the time */

    /* Adds the training or test files of a folder, which may have none. Errors have the path. */
    diloco_status (*add)(dl_images *images, const char *folder, bool test);
} dl_image_kind;

/* The list of sets of images. A new one is a file that defines dl_images_<name>, and its line here.
 */
// clang-format off
#define DL_IMAGE_SETS(X) \
    X(mnist) \
    X(cifar10)
// clang-format on

#define DL_DECLARE(name) extern const dl_image_kind dl_images_##name;
DL_IMAGE_SETS(DL_DECLARE)
#undef DL_DECLARE

/* Opens the training or test images in the folder `path`. If it has none, out->n is 0. `option` is
 * for the text of errors. Returns DILOCO_EINVAL if `path` is not a folder, and DILOCO_EPROTO if a
 * file is damaged or of another kind, or has a label beyond the kind's. Also returns DILOCO_ENOENT,
 * DILOCO_EIO and DILOCO_ENOMEM. After an error nothing needs to be closed. */
DL_MUST_CHECK diloco_status dl_images_open(dl_images *out, const dl_image_kind *kind,
                                           const char *path, const char *option, bool test);
void dl_images_close(dl_images *images); /* zeroed is fine */

/* Returns the pixels u8[channels][height][width] of image i < n, and its label. Any thread. */
const unsigned char *dl_images_at(const dl_images *images, uint64_t i, int32_t *label);

/* Add the sizes and the first and last MiB of every file on disk. */
void dl_images_digest(const dl_images *images, dl_digest_stream *digest);

/* ---- for kinds */

/* Opens folder/name, or else folder/name.gz, as the next file. *file is owned by `images`. Returns
 * DILOCO_ENOENT if neither exists. */
DL_MUST_CHECK diloco_status dl_images_add_file(dl_images *images, const dl_bytes **file,
                                               const char *folder, const char *name);
/* Adds the next run.n images. Returns DILOCO_EPROTO if a label is not below `classes`. */
DL_MUST_CHECK diloco_status dl_images_add_run(dl_images *images, dl_image_run run, size_t classes);

#endif
