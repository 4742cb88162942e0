/* slurm_calls.c - see slurm_calls.h. */
#include "launch/slurm_calls.h"

#include <stdlib.h>
#include <string.h>

/* HOME, PATH and LANG of the launcher. No secret is in the environment of the request. */
const char *const dl_slurm_variables[] = {"HOME", "PATH", "LANG", NULL};

dl_slurm_task *dl_slurm_add(dl_slurm_tasks *tasks)
{
    if (tasks->n == tasks->cap) {
        const size_t cap = tasks->cap ? 2 * tasks->cap : 64;
        dl_slurm_task *at = realloc(tasks->at, cap * sizeof *at);
        if (!at) return NULL;
        tasks->at = at;
        tasks->cap = cap;
    }
    dl_slurm_task *task = &tasks->at[tasks->n++];
    memset(task, 0, sizeof *task);
    return task;
}

void dl_slurm_tasks_free(dl_slurm_tasks *tasks)
{
    free(tasks->at);
    *tasks = (dl_slurm_tasks){.at = NULL};
}

/* Slurm filters by this name, so that other jobs cost nothing. */
void dl_slurm_job_name(char out[DL_JOB_NAME_MAX + 1], const dl_launch_spec *spec,
                       uint32_t generation)
{
    snprintf(out, DL_JOB_NAME_MAX + 1, "diloco-%.8s-g%u", spec->run, generation);
}

/* The words of ESLURM_ACCOUNTING_POLICY, ESLURM_INVALID_ACCOUNT and ESLURM_INVALID_PARTITION_NAME.
 * A first letter is left out, because messages begin with either case. */
const char *dl_slurm_way_out(const char *words)
{
    if (strstr(words, "accounting/QOS policy") && strstr(words, "PerJob"))
        return "; a job exceeds a limit that sacctmgr show qos or show assoc has: ask for a higher "
               "one, or for less by launch.cpus, launch.gpus, launch.memory or launch.timeout";
    if (strstr(words, "accounting/QOS policy"))
        return "; sacctmgr show assoc, or show qos, has the limits: ask for higher ones, start "
               "fewer replicas (--replicas), or set launch.account or launch.queue";
    if (strstr(words, "nvalid account"))
        return "; set launch.account to an account that may use launch.queue: sacctmgr show assoc "
               "lists yours";
    return strstr(words, "nvalid partition") ? "; check launch.queue: sinfo lists the partitions"
                                             : "";
}

/* Slurm's words for limits begin with the owner's, as QOSMaxJobsPerUserLimit. A limit of one job,
 * or a least amount, does not depend on other jobs. */
void dl_slurm_set_waiting(dl_job *job, dl_job_state state, const char *reason)
{
    static const char *const kinds[] = {"Max", "Grp", "Min"};
    const bool qos = strncmp(reason, "QOS", 3) == 0, assoc = strncmp(reason, "Assoc", 5) == 0;
    const char *kind = reason + (qos ? 3 : 5), *owner = qos ? "QOS" : "association";
    const char *where = qos ? "qos" : "assoc";
    bool limit = false;
    for (size_t i = 0; (qos || assoc) && i < sizeof kinds / sizeof *kinds; i++)
        limit = limit || strncmp(kind, kinds[i], 3) == 0;
    if (!limit)
        dl_job_set(job, state, -1, "%.100s", reason);
    else if (strstr(kind, "PerJob") || strstr(kind, "PerNode") || strncmp(kind, "Min", 3) == 0)
        dl_job_set(job, state, -1,
                   "%.60s: it does not fit a limit of the %s, and waits until that is changed "
                   "(sacctmgr show %s)",
                   reason, owner, where);
    else
        dl_job_set(job, state, -1,
                   "%.60s, a limit of the %s: it starts once other jobs end or the limit is raised "
                   "(sacctmgr show %s)",
                   reason, owner, where);
}

int64_t dl_slurm_minutes(const dl_config *config)
{
    return (int64_t)((config->launch_timeout_s + 59.999) / 60);
}

int64_t dl_slurm_megabytes(const dl_config *config)
{
    return (int64_t)(config->launch_memory_gb * 1000 + 0.5);
}

int64_t dl_slurm_notice(const dl_config *config)
{
    return (int64_t)(config->launch_grace_s + 0.999);
}
