/* slurm_client.h - a client of Slurm's REST API: its token, its version, its errors and numbers. */
#ifndef DL_LAUNCH_CLOUD_SLURM_CLIENT_H
#define DL_LAUNCH_CLOUD_SLURM_CLIENT_H

#include "launch/cloud/rest.h"

/* Errors of Slurm that end a request without harm: a job that it does not have, or that is over
 * (slurm_errno.h). */
enum { DL_SLURM_INVALID_JOB_ID = 2017, DL_SLURM_ALREADY_DONE = 2021 };

/* A version of the API. */
typedef struct dl_slurm_version {
    const char *name; /* "v0.0.40" */
    /* Plain numbers, and DELETE of one task. From v0.0.40 on, DELETE of a task stops the whole
     * array, and tasks are stopped by a list. v0.0.39 has only the former, so it is not known. */
    bool plain;
} dl_slurm_version;

/* A client, and the version that its server has. */
typedef struct dl_slurm_client {
    dl_rest rest;
    const dl_slurm_version *version;
} dl_slurm_client;

/* dl_slurm_open opens a client of launch.endpoint with the token of SLURM_JWT, or with that of the
 * file SLURM_JWT_FILE. With spec->dry no request is made, and the first known version is assumed.
 * Returns DILOCO_EREFUSED for http:// to another machine, a token that has expired, and a server
 * without a known version. Returns DILOCO_EUNREACHABLE if the token is in a file and has expired,
 * or is refused after one was accepted, since the file may get another one. The caller closes
 * c->rest by dl_rest_deinit, also after an error. */
DL_MUST_CHECK diloco_status dl_slurm_open(dl_slurm_client *c, const dl_launch_spec *spec);
/* dl_slurm_check returns the errors of dl_slurm_open that need no request, as those of a mistake:
 * DILOCO_EINVAL without a token, and DILOCO_EREFUSED if it has expired. */
DL_MUST_CHECK diloco_status dl_slurm_check(const dl_launch_spec *spec);

/* dl_slurm_begin initializes a call. `what` describes its object. The caller deinits the call. */
void dl_slurm_begin(dl_rest_call *call, const char *method, const char *what);
/* Returns the error of an answer that is no success: DILOCO_EREFUSED if Slurm refuses the request,
 * and DILOCO_EUNREACHABLE if it may succeed later. */
diloco_status dl_slurm_failed(const dl_slurm_client *c, const dl_rest_call *call,
                              const dl_rest_response *response);
/* Returns the number of an answer's first error; 0: it has none, or a negative one. */
uint64_t dl_slurm_error(const dl_rest_response *response);
/* dl_slurm_number reads a number of Slurm, which is 5 or {"set":true,"infinite":false,"number":5}.
 * Returns false if it is absent, not set, infinite, or of more than 32 bits. */
bool dl_slurm_number(uint64_t *out, dl_json_value object, const char *path);

#endif
