/* export_dcp.c - see export_dcp.h. The state goes to the process as a safetensors file, which it
 * removes.
 *
 * The sequence is: check the dtype and the folder, write the state beside the future checkpoint,
 * run Python, remove the file. A checkpoint exists if its ".metadata" does, which torch writes
 * last. */
#include "cli/export_dcp.h"

#include "base/file.h"
#include "base/safetensors.h"
#include "launch/command.h"
#include <diloco/inspect.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Join a folder and a file name. Returns DILOCO_EINVAL if the path has more than 4095 bytes. */
static diloco_status path_of(char out[4096], const char *folder, const char *file)
{
    const int len = snprintf(out, 4096, "%s/%s", folder, file);
    if (len >= 0 && len < 4096) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL, "%s/%s: the path is too long", folder, file);
}

/* Writes the run's state to `path`. */
static diloco_status write_state(diloco_export_report *out, const dl_config *config,
                                 const char *path)
{
    void *bytes;
    size_t len;
    dl_st st;
    DL_TRY(diloco_theta_read(&bytes, &len, &out->entry, config->store, UINT64_MAX));
    diloco_status status = dl_st_open(&st, bytes, len);
    if (!status) {
        for (size_t i = 0; i < st.n; i++)
            out->tensors += strncmp(st.tensors[i].name, "diloco.", 7) != 0;
        dl_st_close(&st);
        status = dl_file_write(path, &(dl_span){bytes, len}, 1);
    }
    diloco_free(bytes);
    return status;
}

/* Run diloco.dcp on the state. PYTHONSAFEPATH keeps the current folder out of Python's module path.
 * A large model may take long, so there is no time limit. */
static diloco_status convert(const char *state, const char *to)
{
    const char *python = getenv("DILOCO_PYTHON");
    if (!python || !*python) python = "python3";
    const char *const argv[] = {python, "-m", "diloco.dcp", state, to, NULL};
    dl_command_result r = {.exit_code = 0};
    setenv("PYTHONSAFEPATH", "1", 0); /* a module of the current folder is not torch */
    const diloco_status status =
        dl_command_do(&r, &(dl_command_run){.argv = argv, .patience = DL_NEVER});
    if (status)
        return dl_fail(status, "%s; DILOCO_PYTHON names the Python that has diloco and torch",
                       diloco_error_text());
    dl_buf_deinit(&r.out);
    if (!r.exit_code) return DILOCO_OK;
    return dl_fail(DILOCO_EIO,
                   "%s -m diloco.dcp ended with code %d: %s; DILOCO_PYTHON names the Python that "
                   "has diloco and torch",
                   python, r.exit_code, r.err);
}

/* The file of the state is removed after an error, too; the folder stays. */
diloco_status dl_export_dcp(diloco_export_report *out, const dl_config *config, const char *dtype,
                            const char *to)
{
    char path[4096];
    *out = (diloco_export_report){.entry = 0};
    if (strcmp(dtype, "f32") != 0)
        return dl_fail(DILOCO_EREFUSED,
                       "--dtype %.60s: a DCP checkpoint keeps the shared model in f32, so that a "
                       "run can begin from it; torch narrows it when it loads it",
                       dtype);
    DL_TRY(path_of(path, to, ".metadata"));
    if (access(path, F_OK) == 0)
        return dl_fail(DILOCO_EEXIST, "%s has a checkpoint: give --out another folder", to);
    DL_TRY(dl_dir_make(to));
    /* In the folder itself, since a temporary folder may be too small for the state. */
    DL_TRY(path_of(path, to, "state.part"));
    diloco_status status = write_state(out, config, path);
    if (!status) status = convert(path, to);
    unlink(path);
    return status;
}
