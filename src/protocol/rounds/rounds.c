/* rounds.c - the tables of mode.h for rounds and for logical clients, which close their entries in
 * rounds as well. */
#include "protocol/control_apply.h"
#include "protocol/logical_clients.h"
#include "protocol/machine_parts.h"

/* ---- in rounds ---------------------------------------------------------------------------- */

static bool counts_in_flight(const dl_machine *m, const dl_member *own)
{
    (void)m, (void)own;
    return true;
}

static const char *foreign_member(const dl_machine *m)
{
    const dl_entry *e = &m->applying.entry;
    for (size_t i = 0; i < e->n_members; i++)
        if (e->members[i].entry != e->entry) return "it counts a contribution to another entry";
    return NULL;
}

static const char *void_reason(const dl_machine *m)
{
    const dl_ledger *ledger = m->a.control->ledger;
    const char *why = foreign_member(m);
    if (why) return why;
    if (!ledger)
        return m->applying.entry.assignment.there ? "it deals data, and this run deals none" : NULL;
    return dl_ledger_void_reason(ledger, m->open.scratch, &m->applying.entry);
}

static void apply_void(dl_machine *m)
{
    dl_control_apply_void(m->a.control, &m->applying.entry, m->applying.digest);
}

static bool has_put_all(const dl_machine *m)
{
    const dl_pace *p = m->a.pace;
    return (m->self.n_put >= dl_pace_may_put(p) && !m->self.sending) ||
           dl_open_entry(m) >= p->n_captured;
}

static void begin_put(dl_machine *m)
{
    DL_ASSERT(m->self.n_put >= dl_open_entry(m));
    /* one is in flight at a time */
    DL_ASSERT(m->self.n_put == dl_open_entry(m) || !m->self.sending);
}

const dl_mode dl_mode_rounds = {
    .announces = true,
    .cuts_claims = true,
    .has_due_points = true,
    .pipelines = true,
    .reports_late = true,
    .next_roster = dl_draft_next_roster,
    .counts_in_flight = counts_in_flight,
    .void_reason = void_reason,
    .apply_void = apply_void,
    .has_to_put = dl_gather_has_due,
    .has_put_all = has_put_all,
    .begin_put = begin_put,
    .list_from = dl_open_entry,
    .listed = dl_gather_listed_all,
};

/* ---- logical clients ------------------------------------------------------------------------ */

static void first_clients(dl_machine *m)
{
    dl_clients_sample(&m->a.control->roster, m->a.config, 0);
}

static void next_clients(dl_entry *draft, const dl_draft_source *from)
{
    dl_clients_sample(&draft->roster, from->args->config, draft->entry + 1);
}

/* A client that the entry does not sample may not count, since its state would not be found again.
 * The same holds for one whose answer is too late in simulated time. */
static bool is_asked(const dl_machine *m, const char *client)
{
    size_t at;
    if (!dl_roster_has(&m->a.control->roster, client, &at)) return false;
    return !m->open.simulated || m->open.simulated[at].awaited;
}

static const char *clients_void_reason(const dl_machine *m)
{
    const char *why = foreign_member(m);
    return why ? why
               : dl_clients_void_reason(m->a.config, &m->applying.entry, &m->a.control->roster);
}

static void apply_void_of_clients(dl_machine *m)
{
    apply_void(m);
    dl_clients_sample(&m->a.control->roster, m->a.config, dl_open_entry(m));
}

const dl_mode dl_mode_clients = {
    .has_due_points = true,
    .pipelines = true,
    .first_roster = first_clients,
    .next_roster = next_clients,
    .may_count = is_asked,
    .counts_in_flight = counts_in_flight,
    .void_reason = clients_void_reason,
    .apply_void = apply_void_of_clients,
    .has_to_put = dl_gather_has_due,
    .has_put_all = has_put_all,
    .begin_put = begin_put,
    .list_from = dl_open_entry,
    .listed = dl_gather_listed_all,
};
