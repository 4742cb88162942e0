/* remote.h - requests of a launcher to `diloco host` on another machine: one JSON object on its
 * stdin, one on its stdout.
 *
 *     {"format":1,"do":"start","dir":…,"timeout":…,"grace":…,
 *      "jobs":[{"name":…,"argv":[…],"env":[…]}]}          start each, unless its name was started
 *     {"format":1,"do":"poll"|"cancel","dir":…,"jobs":[{"name":…}]}
 *     {"format":1,"do":"logs","dir":…,"follow":…,"jobs":[{"name":…}]}    the output itself follows
 *
 *     {"format":1,"jobs":[{"name":…,"state":"RUNNING","code":-1,"message":…}]}
 *
 * Nothing is given in arguments, because every user of a machine can read those. Arguments of a
 * replica begin after its program, which is the one that serves. A relative folder is below the one
 * that it is started in. */
#ifndef DL_LAUNCH_REMOTE_H
#define DL_LAUNCH_REMOTE_H

#include "launch/executor.h"

/* dl_remote_request appends a request to do `what` ("start", "poll", "cancel", "logs") with n jobs.
 * With "start" each job gets argv, env and secrets of the spec; `hide` writes "***" for the values
 * of secrets. `follow` concerns "logs". Returns DILOCO_ENOMEM or DILOCO_EPROTO. */
DL_MUST_CHECK diloco_status dl_remote_request(dl_buf *out, const dl_launch_spec *spec,
                                              const char *what, const dl_job *jobs, size_t n,
                                              bool follow, bool hide);

/* dl_remote_reply sets the states of n jobs from the reply [len]. Returns DILOCO_EPROTO if it is no
 * reply, has another job, or lacks one. The text comes from another machine, so it is untrusted. */
DL_MUST_CHECK diloco_status dl_remote_reply(dl_job *jobs, size_t n, const void *text, size_t len);

/* dl_remote_serve reads one request from the descriptor `in` until its end, does it, and writes the
 * reply to `out`. Returns DILOCO_EPROTO for an invalid request, or the error of the job that
 * failed. Jobs before that one were done. */
DL_MUST_CHECK diloco_status dl_remote_serve(int in, FILE *out);

#endif
