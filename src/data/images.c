/* images.c - a set is a few runs of images in mapped or unpacked files. Image i is found by walking
 * over the runs, of which there are at most DL_IMAGES_MAX_FILES.
 *
 * Invariant: runs[k].first is the sum of the n before. Every label was looked at when the set was
 * opened, so a target is always below the number of classes. */
#include "data/images.h"

#include "data/corpus.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096 }; /* as PATH_MAX on Linux, with its zero */

diloco_status dl_images_add_file(dl_images *images, const dl_bytes **file, const char *folder,
                                 const char *name)
{
    char path[PATH_BYTES];
    static const char *const endings[] = {"", ".gz"};
    dl_bytes *bytes = &images->files[images->n_files];
    DL_ASSERT(images->n_files < DL_IMAGES_MAX_FILES);
    diloco_status status = DILOCO_ENOENT;
    for (int i = 0; i < 2 && status == DILOCO_ENOENT; i++) {
        int len = snprintf(path, sizeof path, "%s/%s%s", folder, name, endings[i]);
        if (len < 0 || (size_t)len >= sizeof path)
            return dl_fail_errno(ENAMETOOLONG, "open", folder);
        status = dl_bytes_open(bytes, path);
    }
    if (status) return status;
    images->n_files++;
    *file = bytes;
    return DILOCO_OK;
}

diloco_status dl_images_add_run(dl_images *images, dl_image_run run, size_t classes)
{
    for (size_t i = 0; i < run.n; i++)
        if (run.labels[i * run.label_step] >= classes)
            return dl_fail(DILOCO_EPROTO, "image %zu has label %d; there are %zu classes", i,
                           run.labels[i * run.label_step], classes);
    DL_ASSERT(images->n_runs < DL_IMAGES_MAX_FILES);
    run.first = images->n;
    images->runs[images->n_runs++] = run;
    images->n += run.n;
    return DILOCO_OK;
}

/* A missing folder is the usual first error of a new user, so its text says where the set is. */
static diloco_status check_folder(const char *path, const char *option, const dl_image_kind *kind)
{
    struct stat st;
    if (!*path)
        return dl_fail(DILOCO_EINVAL, "%s is not set: name the folder with %s; %s", option,
                       kind->files, kind->fetch);
    if (stat(path, &st) && errno == ENOENT)
        return dl_fail(DILOCO_ENOENT, "%s: there is no folder %s. %s", option, path, kind->fetch);
    if (stat(path, &st)) {
        diloco_status status = dl_fail_errno(errno, "open", path);
        return dl_fail_context(status, "%s", option);
    }
    if (S_ISDIR(st.st_mode)) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s: %s is not a folder; datasource \"%s\" is a folder with %s",
                   option, path, kind->name, kind->files);
}

/* Looks for the files in the folder itself, and then in the folder below it that the set's own
 * tools make. */
static diloco_status add_all(dl_images *out, const dl_image_kind *kind, const char *path, bool test)
{
    char below[PATH_BYTES];
    int len = snprintf(below, sizeof below, "%s/%s", path, kind->folder);
    if (len < 0 || (size_t)len >= sizeof below) return dl_fail_errno(ENAMETOOLONG, "open", path);
    DL_TRY(kind->add(out, path, test));
    return out->n ? DILOCO_OK : kind->add(out, below, test);
}

diloco_status dl_images_open(dl_images *out, const dl_image_kind *kind, const char *path,
                             const char *option, bool test)
{
    *out = (dl_images){.n = 0};
    DL_TRY(check_folder(path, option, kind));
    diloco_status status = add_all(out, kind, path, test);
    if (!status) return DILOCO_OK;
    dl_images_close(out);
    return dl_fail_context(status, "%s", option);
}

void dl_images_close(dl_images *images)
{
    for (size_t i = 0; i < images->n_files; i++)
        dl_bytes_close(&images->files[i]);
    *images = (dl_images){.n = 0};
}

const unsigned char *dl_images_at(const dl_images *images, uint64_t i, int32_t *label)
{
    DL_ASSERT(i < images->n);
    const dl_image_run *run = images->runs;
    while (i - run->first >= run->n)
        run++;
    size_t at = (size_t)(i - run->first);
    *label = run->labels[at * run->label_step];
    return run->pixels + at * run->pixel_step;
}

void dl_images_digest(const dl_images *images, dl_digest_stream *digest)
{
    for (size_t i = 0; i < images->n_files; i++)
        dl_map_digest(&images->files[i].map, digest);
}
