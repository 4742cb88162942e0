/* cmd_host.c - requests of launch from another machine to this one (launch/remote.h). The
 * request comes over ssh on stdin, so no secret of it is in the list of processes. */
#include "cli/cli.h"
#include "launch/remote.h"

#include <unistd.h>

/* The reply is one JSON object on stdout; the output of a replica follows it if logs are
 * requested. */
static diloco_status cmd_host(const dl_args *args)
{
    (void)args;
    return dl_remote_serve(STDIN_FILENO, stdout);
}

const dl_command dl_command_host = {
    .name = "host",
    .details = "Started by launch over ssh; reads a request on stdin.",
    .run = cmd_host,
};
