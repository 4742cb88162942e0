/* launch_options.h - options of [launch] and [job]: how replicas and other commands are started
 * elsewhere (docs/launch.md). */
#ifndef DL_BASE_OPTIONS_LAUNCH_OPTIONS_H
#define DL_BASE_OPTIONS_LAUNCH_OPTIONS_H

#include "base/option_rows.h"

// clang-format off
/* Used by `diloco launch` alone. None of them reaches a replica's arithmetic, so none has to
 * agree. */
#define DL_LAUNCH_OPTIONS(X) \
    X(PATH, launch_executor, "launch.executor", "local", "executor", 0, \
      "Executor that diloco launch starts replicas with; diloco launch executors lists them.") \
    X(PATH, launch_dir, "launch.dir", "", "path", 0, \
      "Folder for logs and exit codes where replicas run. Default: STORE.launch or runs/launch/RUN; on other machines .diloco/launch/RUN.") \
    X(PATH, launch_binary, "launch.binary", "", "path", 0, \
      "Program that replicas run, or a wheel that holds it. Default: the program that launches them; in an image diloco.") \
    X(PATH, launch_image, "launch.image", "", "image", 0, \
      "Container image of replicas; it holds the program diloco, or the one that launch.binary names.") \
    X(PATH, launch_endpoint, "launch.endpoint", "", "URL", 0, \
      "Address of the backend's API instead of its usual one, such as http://127.0.0.1:8001 of kubectl proxy. On slurm that of slurmrestd, instead of Slurm's commands.") \
    X(TEXT(dl_config_path, 63), launch_region, "launch.region", "", "region", 0, \
      "Region of the backend that machines are started in.") \
    X(PATH, launch_project, "launch.project", "", "name", 0, \
      "Project, namespace or workspace of the backend that replicas belong to; default: that of the credentials.") \
    X(TEXT(dl_config_path, 127), launch_machine, "launch.machine", "", "type", 0, \
      "Type of machine in the backend's own words: an instance type, a flavor, a compute target.") \
    X(TEXT(dl_config_path, 127), launch_gpu_type, "launch.gpu_type", "", "type", 0, \
      "Type of GPU in the backend's own words, such as NVIDIA_L4.") \
    X(REAL(0, 1e6), launch_disk_gb, "launch.disk", "0", "GB", 0, \
      "Disk requested for each replica; 0: the backend's default.") \
    X(BOOL, launch_spot, "launch.spot", "false", "", 0, \
      "Whether replicas run on cheaper machines that the backend may take away.") \
    X(PATH, launch_role, "launch.role", "", "name", 0, \
      "Role or service account of the backend that replicas run under.") \
    X(PATH, launch_output, "launch.output", "", "URL", 0, \
      "S3 location that SageMaker requires of each job for its artifacts; replicas write none.") \
    X(TEXT(dl_config_path, 31), launch_gang, "launch.gang", "", "scheduler", 0, \
      "Scheduler that starts all replicas or none on Kubernetes: kueue or volcano; default: each by itself.") \
    X(TEXT(dl_config_path, 127), launch_context, "launch.context", "", "name", 0, \
      "Context of kubectl whose cluster replicas run on. Default: the current one.") \
    X(TEXT(dl_config_path, 31), launch_k8s_kind, "launch.k8s_kind", "", "kind", 0, \
      "Kind of Kubernetes object that replicas are started as: Job or RayJob (of KubeRay). Default: Job.") \
    X(INT(0, 4096), launch_cpus, "launch.cpus", "0", "cores", 0, \
      "Cores requested for each replica; 0: the backend's default.") \
    X(INT(0, 64), launch_gpus, "launch.gpus", "0", "GPUs", 0, \
      "GPUs requested for each replica.") \
    X(REAL(0, 1e6), launch_memory_gb, "launch.memory", "0", "GB", 0, \
      "Memory requested for each replica; 0: the backend's default.") \
    X(TEXT(dl_config_path, 127), launch_queue, "launch.queue", "", "name", 0, \
      "Queue or partition that replicas are submitted to; default: the backend's own.") \
    X(TEXT(dl_config_path, 127), launch_account, "launch.account", "", "name", 0, \
      "Account that is charged; default: the backend's own.") \
    X(REAL(0, 1e9), launch_timeout_s, "launch.timeout", "0", "seconds", 0, \
      "Longest time that a started replica may run; 0: no limit.") \
    X(REAL(0.1, 1e6), launch_grace_s, "launch.grace", "30", "seconds", 0, \
      "Time between asking a replica to stop and killing it.") \
    X(INT(0, 1e6), launch_restarts, "launch.restarts", "3", "", 0, \
      "Times that each lost replica is started again.") \
    X(REAL(0.1, 1e9), launch_lost_after_s, "launch.lost_after", "600", "seconds", 0, \
      "Time without an answer about a replica after which it counts as lost.") \
    X(REAL(0, 3600), launch_poll_s, "launch.poll", "0", "seconds", 0, \
      "Time between two looks at the replicas; 0: the executor's own.") \
    X(PATH, launch_env, "launch.env", "", "names", 0, \
      "Environment variables of replicas, NAME=VALUE with commas between them.") \
    X(PATH, launch_secrets, "launch.secrets", "", "names", 0, \
      "Names of environment variables whose values replicas get as secrets.") \
    X(PATH, launch_prices, "launch.prices", "", "path", 0, \
      "Price table with machine_hour, as of diloco plan --cost. Default: no costs are shown.") \
    X(REAL(0, 1e12), launch_budget, "launch.budget", "0", "", 0, \
      "Cost of machine time and of the store, in the currency of launch.prices, after which no replica is started; 0: no limit.") \
    X(PATH, launch_ssh_config, "launch.ssh_config", "", "path", 0, \
      "Configuration file for ssh; default: ssh's own.") \
    X(PATH, job_command, "job.command", "", "words", 0, \
      "Command that diloco launch job runs for each rank: program and arguments; {rank} becomes the rank.") \
    X(PATH, job_run, "job.run", "", "URL", 0, \
      "URL of the run whose replicas the ranks of diloco launch job are; they get it as DILOCO_STORE. Default: they train no run.")
// clang-format on

DL_OPTION_STRUCT(launch, DL_LAUNCH_OPTIONS)

#endif
