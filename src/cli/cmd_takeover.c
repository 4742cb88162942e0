/* cmd_takeover.c - another process becomes the single committer of a run (PROTOCOL P26). Without
 * --replica it only says what it would do.
 *
 * The library finds the newest generation of the replica and creates the abort at the log's end.
 * This file prints the consequences first, and acts only if a replica is named. */
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include <diloco/inspect.h>

#include <inttypes.h>

/* The consequences are said before anything is done, since this program cannot know whether the
 * committer is over. */
static void print_consequences(const diloco_takeover_report *r)
{
    printf("entry %" PRIu64
           " would be an abort with which %s replaces %s as the single committer of this run.\n"
           "Contributions to that entry are not lost: their replicas continue to train. First make "
           "sure that %s has ended and cannot start again:\n"
           "this store lets two committers overwrite each other, and a replica that has read an "
           "overwritten entry stops.\n",
           r->entry, r->to, r->from, r->from);
}

/* Without --replica the report names the replica of run.single_committer, which is the usual
 * choice. */
static diloco_status cmd_takeover(const dl_args *args)
{
    dl_config_path store;
    diloco_takeover_report report;
    const char *replica = args->flags[DL_FLAG_REPLICA];
    DL_TRY(dl_settings_store(store, args->target));
    DL_TRY(dl_swarm_refuse(store, "take over"));
    DL_TRY(diloco_takeover(&report, store, replica, replica != NULL));
    if (replica) {
        printf("%s decides from entry %" PRIu64 " on\n", report.to, report.entry + 1);
        return DILOCO_OK;
    }
    print_consequences(&report);
    puts("Nothing was done: name the replica that takes over, with --replica.");
    return DILOCO_OK;
}

const dl_command dl_command_takeover = {
    .name = "takeover",
    .target = "URL",
    .summary = "make another replica process the single committer of a run",
    .details = "For runs with run.single_committer, in stores that cannot create a name exactly\n"
               "once. Replicas accept entries only from the process (generation) that the\n"
               "previous entry names. This command adds an abort to the log that names the\n"
               "newest generation of --replica instead. Only you can know that the committer\n"
               "before is over: if it is not, both write, and a replica that has read an\n"
               "overwritten entry stops. A committer that is started again where its state\n"
               "folder is takes over by itself.",
    .flags = DL_FLAGS(DL_FLAG_REPLICA),
    .run = cmd_takeover,
};
