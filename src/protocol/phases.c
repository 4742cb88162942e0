/* phases.c - the phases of the machine: the request that each waits for, the handler of its reply,
 * and the phases that this handler may enter.
 *
 * tests/phases_test.py compares the last column with the calls in src/protocol, and the rows with
 * the table in docs/protocol.md. */
#include "protocol/machine_parts.h"
#include "protocol/void/voided.h"

#include <stdio.h>

#define TO(phase)  (UINT64_C(1) << (phase))
#define ASKS(kind) (UINT32_C(1) << (DL_REQUEST_##kind))

/* Failures of a request that its handler handles. All others stop the machine. */
enum { ABSENT = 1, DAMAGED = 2, NUMERIC = 4, EXISTS = 8, ANY = 16 };
#define UNREADABLE (ABSENT | DAMAGED | NUMERIC)

/* The choices of dl_machine_go_on. */
#define GO_ON                                                                                      \
    (TO(DL_CATCHING_UP) | TO(DL_TRAINING) | TO(DL_TIMING) | TO(DL_LATE_CHECK) |                    \
     TO(DL_ANNOUNCING) | TO(DL_MEASURING) | TO(DL_ENDING))
/* The choices of dl_gather_collect. */
#define COLLECT                                                                                    \
    (TO(DL_CONTRIBUTING) | TO(DL_PIPELINING) | TO(DL_CONFIRMING) | TO(DL_LISTING) | TO(DL_LOOKING))
#define COMMIT (TO(DL_JUDGING) | TO(DL_COMBINING) | TO(DL_DRAFTING) | TO(DL_CREATING))
/* The phases after a verdict of close_rule.h. */
#define CLOSE (COMMIT | TO(DL_WAITING) | TO(DL_WATCHING) | TO(DL_CONTRIBUTING) | TO(DL_PIPELINING))
/* The phases that check a commit before it is applied. */
#define VERIFY                                                                                     \
    (TO(DL_APPLY_FETCHING) | TO(DL_APPLY_JUDGING) | TO(DL_APPLY_COMBINED) |                        \
     TO(DL_APPLY_COMBINING) | TO(DL_APPLY_COMPUTING))
/* The choices of dl_apply_text. */
#define APPLY (GO_ON | VERIFY | TO(DL_SWAPPING) | TO(DL_READING_BACK) | TO(DL_HALF_READ))

typedef struct phase_row {
    const char *name;
    uint32_t requests; /* ASKS: the request that is open in this phase */
    dl_request (*handle)(dl_machine *m, const dl_reply *reply); /* NULL: no reply comes */
    unsigned handles;                                           /* failures */
    uint64_t leads_to; /* TO: besides DL_OVER, which any phase may enter */
} phase_row;

/* clang-format off */
static const phase_row rows[] = {
[DL_CATCHING_UP]    = {"catching up", ASKS(READ), dl_machine_read_on, 0,
                       APPLY | COLLECT | TO(DL_SOUNDING)},
[DL_TRAINING]       = {"training", ASKS(TRAIN), dl_machine_trained, 0, GO_ON},
[DL_SOUNDING]       = {"sounding", ASKS(LIST), dl_joining_sounded, 0,
                       COLLECT | TO(DL_TRAINING) | TO(DL_TIMING) | TO(DL_LATE_CHECK) |
                           TO(DL_ANNOUNCING) | TO(DL_ALIGNING)},
[DL_ALIGNING]       = {"aligning", ASKS(WAIT), dl_joining_aligned, 0, TO(DL_CATCHING_UP)},
[DL_TIMING]         = {"timing", ASKS(WATCH), dl_async_timed, 0, TO(DL_TRAINING)},
[DL_LATE_CHECK]     = {"late check", ASKS(READ), dl_machine_late_checked, 0, APPLY | COLLECT},
[DL_CONTRIBUTING]   = {"contributing", ASKS(CONTRIBUTE), dl_gather_contributed, 0, COLLECT},
[DL_PIPELINING]  = {"pipelining", ASKS(CONTRIBUTE), dl_gather_pipeline, 0, COLLECT},
[DL_CONFIRMING]     = {"confirming", ASKS(CONTRIBUTE), dl_gather_confirmed, 0, COLLECT},
[DL_LISTING]        = {"listing", ASKS(LIST), dl_gather_listed, 0,
                       COMMIT | TO(DL_FETCHING) | TO(DL_LOOKING)},
[DL_FETCHING]       = {"fetching", ASKS(FETCH), dl_gather_fetched, UNREADABLE,
                       COMMIT | TO(DL_FETCHING) | TO(DL_LOOKING) | TO(DL_LISTING)},
[DL_ANNOUNCING]       = {"announcing", ASKS(CONTRIBUTE), dl_machine_announced, 0,
                       TO(DL_TRAINING) | TO(DL_CATCHING_UP) | TO(DL_MEASURING)},
[DL_MEASURING]      = {"measuring", ASKS(EXTENT), dl_joining_measured, 0,
                       TO(DL_CATCHING_UP) | TO(DL_ANNOUNCING)},
[DL_LOOKING]        = {"looking", ASKS(READ), dl_propose_looked, 0,
                       APPLY | CLOSE | TO(DL_SERVING)},
[DL_WATCHING]       = {"watching", ASKS(WATCH), dl_propose_watched, 0, CLOSE},
[DL_WAITING]        = {"waiting", ASKS(WAIT), dl_gather_waited, 0, COLLECT},
[DL_JUDGING]        = {"judging", ASKS(JUDGE), dl_propose_judged, 0,
                       TO(DL_COMBINING) | TO(DL_DRAFTING) | TO(DL_CREATING)},
[DL_SERVING]        = {"serving", ASKS(SERVE), dl_propose_served, 0, CLOSE},
[DL_COMBINING]      = {"combining", ASKS(COMBINE), dl_propose_combined, UNREADABLE | EXISTS,
                       TO(DL_READING_OWN) | TO(DL_DRAFTING) | TO(DL_CREATING) | TO(DL_LISTING)},
[DL_READING_OWN]    = {"reading own", ASKS(FETCH_COMBINED), dl_propose_read_own, UNREADABLE,
                       TO(DL_READING_OWN) | TO(DL_AWAITING) | TO(DL_DRAFTING) | TO(DL_LISTING)},
[DL_AWAITING]       = {"awaiting", ASKS(WAIT), dl_propose_awaited, 0, TO(DL_AWAITING_LOOK)},
[DL_AWAITING_LOOK]  = {"awaiting, look", ASKS(READ), dl_propose_awaited_look, 0,
                       APPLY | TO(DL_AWAITING_SERVE)},
[DL_AWAITING_SERVE] = {"awaiting, serve", ASKS(SERVE), dl_propose_awaited_serve, 0,
                       TO(DL_READING_OWN)},
[DL_DRAFTING]       = {"drafting", ASKS(COMPUTE), dl_propose_drafted, NUMERIC, TO(DL_CREATING)},
[DL_CREATING]       = {"creating", ASKS(CREATE), dl_propose_created, 0, TO(DL_READING_BACK)},
[DL_READING_BACK]   = {"reading back", ASKS(READ), dl_propose_read_back, 0, APPLY},
[DL_HALF_READ]      = {"half read", ASKS(WAIT), dl_machine_waited_for_rest, 0, TO(DL_READING_BACK)},
[DL_FINDING_VOID]   = {"finding void", ASKS(READ), dl_voided_looked, 0,
                       GO_ON | TO(DL_FINDING_VOID)},
[DL_APPLY_FETCHING]  = {"apply, fetching", ASKS(FETCH), dl_apply_fetched, UNREADABLE,
                       GO_ON | VERIFY | TO(DL_FINDING_VOID)},
[DL_APPLY_JUDGING]   = {"apply, judging", ASKS(JUDGE), dl_apply_judged, 0, GO_ON | VERIFY},
[DL_APPLY_COMBINED]  = {"apply, combined", ASKS(FETCH_COMBINED), dl_apply_fetched_combined,
                       UNREADABLE, GO_ON | VERIFY | TO(DL_FINDING_VOID)},
[DL_APPLY_COMBINING] = {"apply, combining", ASKS(COMBINE), dl_apply_combined, NUMERIC,
                       GO_ON | VERIFY | TO(DL_FINDING_VOID)},
[DL_APPLY_COMPUTING] = {"apply, computing", ASKS(COMPUTE), dl_apply_computed, NUMERIC,
                       GO_ON | VERIFY | TO(DL_SWAPPING)},
[DL_SWAPPING]       = {"swapping", ASKS(SWAP), dl_apply_swapped, 0, GO_ON | TO(DL_SNAPSHOTTING)},
[DL_SNAPSHOTTING]   = {"snapshotting", ASKS(SNAPSHOT), dl_apply_snapshotted, ANY, GO_ON},
[DL_ENDING]         = {"ending", ASKS(DONE), NULL, 0, 0},
[DL_OVER]           = {"over", ASKS(FAIL) | ASKS(REJOIN), NULL, 0, 0},
};
/* clang-format on */

_Static_assert(sizeof rows / sizeof *rows == DL_OVER + 1, "a phase has no row");
_Static_assert(DL_OVER < 64, "a set of phases has 64 bits");

static const phase_row *row_of(dl_phase phase)
{
    DL_ASSERT((size_t)phase < sizeof rows / sizeof *rows);
    return &rows[phase];
}

const char *dl_phase_name(dl_phase phase)
{
    return row_of(phase)->name;
}

bool dl_phase_waits_for(dl_phase phase, dl_request_kind kind)
{
    return row_of(phase)->requests >> kind & 1;
}

bool dl_phase_leads_to(dl_phase from, dl_phase to)
{
    return to == DL_OVER || (row_of(from)->leads_to & TO(to));
}

static bool handles_failure(dl_phase phase, diloco_status status)
{
    const unsigned handles = row_of(phase)->handles;
    switch (status) {
    case DILOCO_ENOENT:
        return handles & (ABSENT | ANY);
    case DILOCO_EPROTO:
        return handles & (DAMAGED | ANY);
    case DILOCO_ENUMERIC:
        return handles & (NUMERIC | ANY);
    case DILOCO_EEXIST:
        return handles & (EXISTS | ANY);
    default:
        return handles & ANY;
    }
}

dl_request dl_phase_handle(dl_machine *m, const dl_reply *reply)
{
    const phase_row *row = row_of(m->phase);
    DL_ASSERT(row->handle); /* only an open request gets a reply */
    if (reply->status && !handles_failure(m->phase, reply->status))
        return dl_machine_fail(m, reply->status);
    return row->handle(m, reply);
}

/* ---- the trace --------------------------------------------------------------------------- */

const char *dl_request_name(dl_request_kind kind)
{
    static const char *const names[] = {
        [DL_REQUEST_TRAIN] = "TRAIN",
        [DL_REQUEST_READ] = "READ",
        [DL_REQUEST_EXTENT] = "EXTENT",
        [DL_REQUEST_CONTRIBUTE] = "CONTRIBUTE",
        [DL_REQUEST_LIST] = "LIST",
        [DL_REQUEST_FETCH] = "FETCH",
        [DL_REQUEST_JUDGE] = "JUDGE",
        [DL_REQUEST_COMBINE] = "COMBINE",
        [DL_REQUEST_FETCH_COMBINED] = "FETCH_COMBINED",
        [DL_REQUEST_SERVE] = "SERVE",
        [DL_REQUEST_COMPUTE] = "COMPUTE",
        [DL_REQUEST_CREATE] = "CREATE",
        [DL_REQUEST_SWAP] = "SWAP",
        [DL_REQUEST_WATCH] = "WATCH",
        [DL_REQUEST_WAIT] = "WAIT",
        [DL_REQUEST_SNAPSHOT] = "SNAPSHOT",
        [DL_REQUEST_REJOIN] = "REJOIN",
        [DL_REQUEST_DONE] = "DONE",
        [DL_REQUEST_FAIL] = "FAIL",
    };
    _Static_assert(sizeof names / sizeof *names == DL_REQUEST_FAIL + 1, "a request has no name");
    DL_ASSERT((size_t)kind < sizeof names / sizeof *names);
    return names[kind];
}

const char *dl_reply_text(const dl_reply *reply)
{
    if (reply->status) return diloco_status_name(reply->status);
    switch (reply->kind) {
    case DL_REQUEST_READ:
        return reply->read.text ? "found" : "absent";
    case DL_REQUEST_CREATE:
        return reply->create.taken ? "taken" : "done";
    case DL_REQUEST_CONTRIBUTE:
        return reply->contribute.taken ? "taken" : "done";
    default:
        return "done";
    }
}

void dl_transition_text(char *out, size_t cap, const dl_transition *t)
{
    snprintf(out, cap, "entry %llu: %s -> %s; %s %s, then %s", (unsigned long long)t->entry,
             t->from, t->to, dl_request_name(t->replied), t->reply, dl_request_name(t->requested));
}
