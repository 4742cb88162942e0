/* sim_count.c - what happens to a simulated cluster is counted (SIM_HAPPENINGS in sim.h): a check
 * that cannot fail is a defect. */
#include "exchange/exec_parts.h"
#include "protocol/void/unreadable.h"
#include "sim.h"

#include <string.h>

void sim_count(sim_happening what, bool happened)
{
    sim_happened[what] += happened;
}

/* ---- the last moves of each machine ---- */

void sim_on_move(void *user, const dl_transition *move)
{
    replica *r = user;
    r->trace.moves[r->trace.n++ % SIM_MOVES] = *move;
}

void sim_print_moves(const sim *s)
{
    char text[DL_TRANSITION_TEXT];
    for (size_t i = 0; i < s->n_slots; i++) {
        const replica *r = &s->replicas[i];
        for (size_t k = r->trace.n < SIM_MOVES ? 0 : r->trace.n - SIM_MOVES; k < r->trace.n; k++) {
            dl_transition_text(text, sizeof text, &r->trace.moves[k % SIM_MOVES]);
            fprintf(stderr, "  %s.%u %s\n", r->name, (unsigned)r->generation.number, text);
        }
    }
}

/* ---- the counts ------- */

static bool is_partial(const sim *s, const dl_control *control, const dl_entry *entry)
{
    if (control->entry <= control->n_later) return false;
    if (s->config.on_missing != DL_MISSING_COMMIT_PARTIAL) return false;
    for (size_t i = 0; i < control->roster.n; i++) {
        bool there = false;
        for (size_t k = 0; k < entry->n_members; k++)
            there |= !strcmp(entry->members[k].generation.replica, control->roster.names[i]);
        if (!there) return true;
    }
    return false;
}

static bool is_out_of_turn(const dl_control *control, const dl_entry *entry)
{
    const dl_roster *roster = &control->roster;
    if (control->entry <= control->n_later || !entry->combined.there || !roster->n) return false;
    return strcmp(roster->names[entry->entry % roster->n], entry->committer.replica) != 0;
}

static void count_commit(const replica *r, const dl_entry *entry)
{
    sim_count_shared_slot(r, entry);
    sim_count(SIM_OUT_OF_TURN, is_out_of_turn(&dl_exec_state(r->exec)->control, entry));
    sim_count(SIM_EARLY_START, entry->entry == 0 && entry->n_members < r->sim->n);
    sim_count(SIM_BY_ALL,
              dl_exec_topology_kind(r->exec) == DL_TOPOLOGY_SHARDED && !entry->combined.there);
    sim_count(SIM_PARTIAL, is_partial(r->sim, &dl_exec_state(r->exec)->control, entry));
    r->sim->count.commits++;
}

static void count_abort(sim *s, const dl_entry *entry)
{
    sim_count(SIM_NO_QUORUM, strstr(entry->abort.reason, "no quorum") != NULL);
    sim_count(SIM_ABORT_RULE, strstr(entry->abort.reason, "not all") != NULL);
    sim_count(SIM_SILENT, strstr(entry->abort.reason, "silent:") != NULL);
    s->count.aborts++;
}

void sim_on_note(void *user, const dl_note *n)
{
    replica *r = user;
    sim *s = r->sim;
    const bool keep = s->config.on_uncounted == DL_UNCOUNTED_KEEP;
    switch (n->kind) {
    case DL_NOTE_COMMIT:
        count_commit(r, n->entry);
        break;
    case DL_NOTE_ABORT:
        count_abort(s, n->entry);
        break;
    case DL_NOTE_VOID:
        sim_count(SIM_VOID, true);
        sim_count(SIM_UNREADABLE, !strcmp(n->text, DL_UNREADABLE_VOID));
        break;
    case DL_NOTE_REJECT:
        sim_count(SIM_REJECT, true);
        break;
    case DL_NOTE_DISPUTE:
        sim_count(SIM_DISPUTE, true);
        break;
    case DL_NOTE_LATE:
        sim_count(keep ? SIM_LATE_KEEP : SIM_LATE_ADOPT, true);
        break;
    case DL_NOTE_JUDGED:
        sim_count(SIM_JUDGED, true);
        break;
    case DL_NOTE_BANNED:
        sim_count(SIM_BANNED, true);
        break;
    case DL_NOTE_PROBED:
        sim_count(SIM_PROBED, true);
        break;
    case DL_NOTE_DEADLINE:
    case DL_NOTE_SILENT:
    case DL_NOTE_CUT:
        break;
    }
}

/* Of a request that was carried out, and of its answer. */
void sim_count_answer(const replica *r, const dl_reply *reply)
{
    const dl_request *a = &r->request;
    sim_count(SIM_UNREACHABLE, reply->status == DILOCO_EUNREACHABLE);
    sim_count(SIM_READ_AFRESH, a->kind == DL_REQUEST_FETCH && a->fetch.fresh);
    if (reply->status) return;
    sim_count(SIM_PASSED_OVER, a->kind == DL_REQUEST_LIST && dl_exec_passed_over(r->exec));
    const bool combine = a->kind == DL_REQUEST_COMBINE, took = a->kind == DL_REQUEST_FETCH_COMBINED;
    sim_count(SIM_COMBINED, combine && a->step.put);
    sim_count(SIM_RECOMBINED, combine && !a->step.put);
    sim_count(SIM_TOOK_COMBINED,
              took && !dl_generation_equal(&a->step.draft->combined.generation, &r->generation));
    const bool put = a->kind == DL_REQUEST_CONTRIBUTE;
    sim_count(SIM_TAKEOVER, put && reply->contribute.taken);
    sim_count(SIM_ANNOUNCED, put && a->contribute.announce);
    const dl_capture *taken = put ? dl_exec_captured(r->exec, a->entry) : NULL;
    sim_count(SIM_HELD, taken && taken->assigned.n > 1);
    sim_count(SIM_AHEAD, put && a->entry > dl_exec_state(r->exec)->control.entry);
    sim_count(SIM_APPLIED_BESIDE, a->kind == DL_REQUEST_SWAP && reply->sending);
    sim_count(SIM_LOST_RACE, a->kind == DL_REQUEST_CREATE && reply->create.taken);
}

/* Of what a machine asks for next. */
void sim_count_request(const replica *r)
{
    const dl_request *a = &r->request;
    sim_count(SIM_REJOIN_GONE,
              a->kind == DL_REQUEST_REJOIN && a->entry == UINT64_MAX && !a->rejoin.newer);
    sim_count(SIM_REJOIN_BASE, a->kind == DL_REQUEST_REJOIN && a->entry != UINT64_MAX);
}
