/* mode.h - the differences for the machine between runs of replicas in rounds, asynchronous runs
 * (PROTOCOL P20) and runs of logical clients (docs/federated.md): one table each.
 *
 *     rounds.c         in rounds; logical clients
 *     async_phases.c   asynchronous
 *
 * The pace has a table of its own (pace_parts.h). dl_mode_of chooses the table. */
#ifndef DL_PROTOCOL_MODE_H
#define DL_PROTOCOL_MODE_H

#include "protocol/proposal.h"

typedef struct dl_mode {
    bool announces;      /* a replica that no entry awaits announces itself (P9) */
    bool cuts_claims;    /* claims of a member are compared with those of the others */
    bool has_due_points; /* the log says which position an entry belongs to */
    bool pipelines;    /* a later contribution may be uploaded while the open entry is looked at */
    bool chooses_one;  /* LIST chooses the one contribution that is read next */
    bool reports_late; /* an entry that skips this replica is noted */

    /* ---- the roster and the members ---- */
    void (*first_roster)(dl_machine *m); /* optional: sets a roster for the entries before L */
    void (*next_roster)(dl_entry *draft, const dl_draft_source *from);
    /* optional; NULL: every replica may */
    bool (*may_count)(const dl_machine *m, const char *replica);
    bool (*counts_in_flight)(const dl_machine *m, const dl_member *own);
    const char *(*void_reason)(const dl_machine *m); /* of the entry that is being applied */
    void (*apply_void)(dl_machine *m);

    /* ---- contributing and collecting ---- */
    bool (*has_to_put)(dl_machine *m);
    bool (*has_put_all)(const dl_machine *m);
    void (*begin_put)(dl_machine *m); /* sets self.n_put to the entry that is contributed to */
    uint64_t (*list_from)(const dl_machine *m);
    /* optional: the next request of a replica that has read the whole log */
    dl_request (*go_on)(dl_machine *m);
    dl_request (*listed)(dl_machine *m, const dl_reply *reply);
    dl_request (*looked)(dl_machine *m); /* optional: log/<e> is absent */
} dl_mode;

extern const dl_mode dl_mode_rounds, dl_mode_async, dl_mode_clients;

const dl_mode *dl_mode_of(const dl_machine_args *args);

#endif
