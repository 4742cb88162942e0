/* voided.c - see voided.h. A replica remembers all decisions that it meets. If it goes back for
 * one, it may have to read the log from before another. */
#include "protocol/void/voided.h"

#include <stdio.h>
#include <string.h>

static void remove_at(dl_decisions *all, size_t i)
{
    memmove(&all->at[i], &all->at[i + 1], (--all->n - i) * sizeof *all->at);
}

void dl_decisions_add(dl_decisions *all, uint64_t first, uint64_t end)
{
    for (size_t i = all->n; i-- > 0;)
        if (all->at[i].first >= first && all->at[i].end <= end) remove_at(all, i);
    if (all->n == DL_DECISIONS) remove_at(all, 0);
    all->at[all->n].first = first;
    all->at[all->n++].end = end;
}

bool dl_decisions_void(const dl_decisions *all, uint64_t entry)
{
    for (size_t i = 0; i < all->n; i++)
        if (entry >= all->at[i].first && entry < all->at[i].end) return true;
    return false;
}

bool dl_decisions_undo(const dl_decisions *all, uint64_t entries)
{
    for (size_t i = 0; i < all->n; i++)
        if (entries > all->at[i].first && entries <= all->at[i].end) return true;
    return false;
}

static bool is_in_mind(const dl_decisions *all, uint64_t end)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->at[i].end == end) return true;
    return false;
}

/* Returns the entries of the newest state that no decision has undone, at most `entries`. */
static uint64_t before_undone(const dl_decisions *all, uint64_t entries)
{
    for (size_t i = 0; i < all->n; i++)
        if (entries > all->at[i].first && entries <= all->at[i].end)
            return before_undone(all, all->at[i].first);
    return entries;
}

static void keep_in_mind(dl_machine *m, uint64_t first, uint64_t end)
{
    DL_ASSERT(first < end);
    dl_decisions_add(&m->voiding.decisions, first, end);
    m->rejoining.unreadable[dl_machine_fragment(m)] = (dl_unreadable){.after = 0};
}

bool dl_voided_is(const dl_machine *m)
{
    return dl_decisions_void(&m->voiding.decisions, dl_open_entry(m));
}

static dl_request look_on(dl_machine *m)
{
    dl_request a = dl_machine_request(m, DL_REQUEST_READ, DL_FINDING_VOID);
    a.entry = ++m->voiding.look;
    return a;
}

dl_request dl_voided_look(dl_machine *m, diloco_status status)
{
    m->voiding.lost = status;
    snprintf(m->voiding.lost_text, sizeof m->voiding.lost_text, "%s", diloco_error_text());
    m->voiding.look = dl_open_entry(m);
    m->open.computed = false; /* later entries are read into the draft */
    return look_on(m);
}

dl_request dl_voided_looked(dl_machine *m, const dl_reply *reply)
{
    dl_entry *later = &m->open.draft.entry;
    DL_ASSERT(m->voiding.lost && m->voiding.look > dl_open_entry(m));
    if (!reply->read.text)
        return dl_machine_fail(
            m, dl_fail(m->voiding.lost,
                       "%s; if that cannot be restored, stop every replica, and \"diloco void\" "
                       "records that the run continues without this entry",
                       m->voiding.lost_text));
    const dl_entry_place place = dl_machine_place(m, m->voiding.look);
    if (dl_entry_read_at(later, reply->read.text, reply->read.text_len, &place) ||
        later->scalars.wrong || later->abort.voids != dl_open_entry(m) + 1)
        return look_on(m);
    keep_in_mind(m, dl_open_entry(m), m->voiding.look);
    return dl_apply_void(m, DL_VOIDED);
}

/* Returns true if the decision is new, or if this machine began from a state that it has undone, as
 * a snapshot's may be. Going back ends, since each time it begins earlier. */
static bool goes_back_for(const dl_machine *m, uint64_t first, uint64_t end)
{
    return !is_in_mind(&m->voiding.decisions, end) ||
           (m->voiding.began_at > first && m->voiding.began_at <= end);
}

bool dl_voided_sets_back(const dl_machine *m)
{
    const dl_entry *e = &m->applying.entry;
    return e->abort.voids && !m->a.reader && e->entry == dl_open_entry(m) &&
           e->abort.voids <= e->entry && goes_back_for(m, e->abort.voids - 1, e->entry) &&
           strcmp(e->run, m->a.run) == 0 && dl_hash_equal(e->prev, m->a.control->prev) &&
           !dl_hash_equal(e->base, m->log.digest[dl_machine_fragment(m)]) &&
           dl_unreadable_may_void(m->a.config, m->a.identity);
}

dl_request dl_voided_go_back(dl_machine *m)
{
    DL_ASSERT(m->applying.entry.abort.voids > 0 &&
              m->applying.entry.abort.voids <= dl_open_entry(m));
    keep_in_mind(m, m->applying.entry.abort.voids - 1, dl_open_entry(m));
    const uint64_t before = before_undone(&m->voiding.decisions, m->applying.entry.abort.voids - 1);
    dl_request a = dl_machine_rejoin(m, before);
    a.rejoin.voided = true;
    return a;
}
