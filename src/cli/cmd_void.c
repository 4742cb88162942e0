/* cmd_void.c - an operator's decision that an entry is void (PROTOCOL P7). Without --replica it
 * only says what it would do.
 *
 * diloco_void finds the entry that cannot be read, and with a replica's name creates the abort.
 * This file prints what is lost by it. The check that no replica is alive is the library's. */
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include <diloco/inspect.h>

#include <inttypes.h>

/* Without --replica this is a dry run, because the decision cannot be taken back: an abort in the
 * log is as final as any entry. */
static diloco_status cmd_void(const dl_args *args)
{
    dl_config_path store;
    diloco_void_report report;
    const char *replica = args->flags[DL_FLAG_REPLICA];
    DL_TRY(dl_settings_store(store, args->target));
    DL_TRY(dl_swarm_refuse(store, "void an entry"));
    DL_TRY(diloco_void(&report, store, replica));
    char why[sizeof report.why];
    dl_printable_line(why, sizeof why, report.why);
    printf("entry %" PRIu64 " cannot be read: %s\n", report.entry, why);
    if (replica) {
        printf("entries %" PRIu64 " to %" PRIu64 " are void, because entry %" PRIu64
               " by %s voids them; start the replicas again\n",
               report.entry, report.at - 1, report.at, report.by);
        return DILOCO_OK;
    }
    printf("Entry %" PRIu64 " would be an abort that voids entries %" PRIu64 " to %" PRIu64
           ": the run resumes from the state before them, and the contributions that they counted "
           "are lost.\n"
           "If the store can be restored, restore it instead. Stop all replicas first.\n"
           "Nothing was done: name the replica in whose name it is decided, with --replica.\n",
           report.at, report.entry, report.at - 1);
    return DILOCO_OK;
}

const dl_command dl_command_void = {
    .name = "void",
    .target = "URL",
    .summary = "let a run continue without an entry that no replica can read",
    .details = "For runs of two replicas, or of one committer. If the store lacks a contribution\n"
               "that an entry counts, or holds it damaged, every replica stops there. Only you\n"
               "can know whether the store lost it. First restore it if you can. Otherwise stop\n"
               "all replicas. This command then writes an abort at the log's end, as the newest\n"
               "process of --replica, which declares that entry and all later ones void. The run\n"
               "continues from the state before them.",
    .flags = DL_FLAGS(DL_FLAG_REPLICA),
    .run = cmd_void,
};
