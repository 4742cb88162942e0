/* program.c - see program.h. The copy is written under another name and renamed, so that no replica
 * starts half of a program. */
#include "launch/program.h"

#include "launch/command.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = DL_PATH_MAX + DL_PROGRAM_DIGEST + 32 };

/* sha256sum writes a backslash before the digest if the name has one, or a newline. */
diloco_status dl_program_digest(char out[DL_PROGRAM_DIGEST + 1], const char *path)
{
    const char *const argv[] = {"sha256sum", "--", path, NULL};
    dl_command_result result;
    const dl_command_run run = {.argv = argv};
    DL_TRY(dl_command_do(&result, &run));
    const size_t skip = result.out.len && result.out.data[0] == '\\';
    const bool good = result.exit_code == 0 && result.out.len > skip + DL_PROGRAM_DIGEST;
    if (good) snprintf(out, DL_PROGRAM_DIGEST + 1, "%.64s", (const char *)result.out.data + skip);
    dl_buf_deinit(&result.out);
    return good ? DILOCO_OK : dl_fail(DILOCO_EIO, "sha256sum %s: %s", path, result.err);
}

/* A file of the right name and the wrong digest is replaced: an earlier copy may have been
 * damaged. */
diloco_status dl_program_install(const dl_launch_spec *spec, const char *digest)
{
    char folder[PATH_BYTES], path[PATH_BYTES + 16], there[DL_PROGRAM_DIGEST + 1];
    dl_map map;
    snprintf(folder, sizeof folder, "%s/bin/%s", spec->dir, digest);
    snprintf(path, sizeof path, "%s/diloco", folder);
    if (dl_file_exists(path) && !dl_program_digest(there, path) && strcmp(there, digest) == 0)
        return DILOCO_OK;
    DL_TRY(dl_dir_make(folder));
    DL_TRY(dl_map_open(&map, spec->program));
    const dl_span span = {map.data, map.len};
    diloco_status status = dl_file_write(path, &span, 1);
    dl_map_close(&map);
    if (!status && chmod(path, 0700)) status = dl_fail_errno(errno, "make executable", path);
    return status;
}
