/* cmd_host.c - what launch has done on this machine from another one (launch/remote.h). */
#include "cli/cli.h"
#include "launch/remote.h"

#include <unistd.h>

diloco_status dl_cmd_host(const dl_args *args)
{
    (void)args;
    return dl_remote_serve(STDIN_FILENO, stdout);
}
