/* remote.h - requests of a launcher to `diloco host` on another machine: one JSON object on its
 * stdin, one on its stdout.
 *
 *     {"format":1,"do":"start","dir":…,"timeout":…,"grace":…,
 *      "jobs":[{"name":…,"argv":[…],"env":[…]}]}          start each, unless its name was started
 *     {"format":1,"do":"poll"|"cancel","dir":…,"jobs":[{"name":…}]}
 *     {"format":1,"do":"logs","dir":…,"follow":…,"jobs":[{"name":…}]}    the output itself follows
 *
 *     {"format":1,"jobs":[{"name":…,"state":"RUNNING","code":-1,"message":…}],"error":…}
 *
 * "error" is there if a job failed: that job is left out of the reply. After a start that failed no
 * further job is started. A poll and a cancel handle the other jobs as well.
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

/* dl_remote_reply sets the states of n jobs from the reply [len], and marks those that it lacks as
 * silent. Returns DILOCO_EIO with the text of the reply's "error". Returns DILOCO_EPROTO if it is
 * no reply, has another job or one twice, or lacks one without an "error". The text comes from
 * another machine, so it is untrusted. */
DL_MUST_CHECK diloco_status dl_remote_reply(dl_job *jobs, size_t n, const void *text, size_t len);

/* dl_remote_serve reads one request from the descriptor `in` until its end, does it, and writes the
 * reply to `out`. Returns DILOCO_EPROTO for an invalid request. The error of a job is in the reply.
 */
DL_MUST_CHECK diloco_status dl_remote_serve(int in, FILE *out);

#endif
