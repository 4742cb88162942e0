/* executor_rows.h - the list of executors. A new one is a file that defines dl_executor_<name>, and
 * its line here; one that needs libcurl is a file of cloud/. The order is that of `diloco launch
 * executors`. DL_EXECUTORS(X) calls X with each name: the declarations below and the table in
 * executor.c are made of it. DL_CLOUD is 0 in a build without cloud/. */
#ifndef DL_LAUNCH_EXECUTOR_ROWS_H
#define DL_LAUNCH_EXECUTOR_ROWS_H

#include "launch/executor.h"

// clang-format off
#if DL_CLOUD
#define DL_CLOUD_EXECUTORS(X) \
    X(k8s) \
    X(hf_jobs) \
    X(sagemaker) \
    X(vertex) \
    X(runpod) \
    X(azureml) \
    X(skypilot) \
    X(modal)
#else
#define DL_CLOUD_EXECUTORS(X)
#endif

#define DL_EXECUTORS(X) \
    X(local) \
    X(ssh) \
    X(slurm) \
    DL_CLOUD_EXECUTORS(X)
// clang-format on

#define DL_DECLARE(name) extern const dl_executor dl_executor_##name;
DL_EXECUTORS(DL_DECLARE)
#undef DL_DECLARE

#endif
