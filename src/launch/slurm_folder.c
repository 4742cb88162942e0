/* slurm_folder.c - see slurm_folder.h. */
#include "launch/slurm_folder.h"

#include "base/log.h"

typedef char folder_path[DL_PATH_MAX + DL_JOB_NAME_MAX + 16];

/* The path of a file of the folder, or with "" of the folder. Returns out. */
static const char *path_of(folder_path out, const dl_launch_spec *spec, const dl_job *job,
                           const char *file)
{
    snprintf(out, sizeof(folder_path), "%s/%s/%s", spec->dir, job->name, file);
    return out;
}

bool dl_slurm_has_folder(const dl_launch_spec *spec, const dl_job *job)
{
    folder_path path;
    return dl_file_exists(path_of(path, spec, job, ""));
}

bool dl_slurm_has_begun(const dl_launch_spec *spec, const dl_job *job)
{
    folder_path path;
    return dl_file_exists(path_of(path, spec, job, "log"));
}

bool dl_slurm_was_stopped(const dl_launch_spec *spec, const dl_job *job)
{
    folder_path path;
    return dl_file_exists(path_of(path, spec, job, "cancelled"));
}

int dl_slurm_exit_of(const dl_launch_spec *spec, const dl_job *job, int restart)
{
    int of = 0;
    folder_path path;
    int code = -1;
    FILE *file = fopen(path_of(path, spec, job, "exit"), "re");
    if (!file) return -1;
    if (fscanf(file, "exit %d %d", &code, &of) != 2) code = -1;
    fclose(file);
    return code >= 0 && code < 256 && (restart < 0 || of == restart) ? code : -1;
}

void dl_slurm_record_stop(const dl_launch_spec *spec, const dl_job *jobs, size_t n,
                          const char *const *ids, size_t found)
{
    folder_path path;
    for (size_t i = 0, k = 0; i < n && k < found; i++) {
        if (ids[k] != jobs[i].id) continue;
        k++;
        if (!dl_slurm_has_folder(spec, &jobs[i])) continue;
        if (dl_file_write(path_of(path, spec, &jobs[i], "cancelled"), NULL, 0))
            dl_log(DILOCO_LOG_WARN, "%s was stopped, and may be shown as LOST: %s", jobs[i].name,
                   diloco_error_text());
    }
}
