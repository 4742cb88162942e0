/* join_line.h - a join line: all that a machine needs to reach a run at a hub (docs/hub.md).
 *
 *     https://HOST:PORT/RUN#<64 hex digits>[.<token>]
 *
 * The digits are SHA-256 of the public key of the hub's certificate, which is then trusted and no
 * other. The part after the # is a secret and never sent as it is. It goes into this process's
 * environment (DILOCO_HUB_PIN, DILOCO_HUB_TOKEN), which the replicas started from it inherit. It is
 * blotted out of the argument that held it. */
#ifndef DL_CLI_JOIN_LINE_H
#define DL_CLI_JOIN_LINE_H

#include "cli/args.h"

/* dl_join_line_take replaces the target and --store of a command. A join line becomes its URL; "-"
 * and "@FILE" become the URL of the first join line that stdin or the file holds. It is called
 * once, before anything prints argv. Returns DILOCO_EINVAL if the text is no join line; the error
 * never holds the part after the #. */
DL_MUST_CHECK diloco_status dl_join_line_take(dl_args *args);

#endif
