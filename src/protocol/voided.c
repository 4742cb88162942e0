/* voided.c - see voided.h. A replica keeps one decision in mind: while it reads the log up to it.
 */
#include "protocol/voided.h"

#include <stdio.h>
#include <string.h>

static void keep_in_mind(dl_machine *m, uint64_t first, uint64_t end)
{
    m->void_first = first;
    m->void_end = end;
    m->unread[dl_machine_fragment(m)] = (dl_unread){.after = 0};
}

bool dl_voided_is(const dl_machine *m)
{
    return dl_open_entry(m) >= m->void_first && dl_open_entry(m) < m->void_end;
}

static dl_ask look_on(dl_machine *m)
{
    dl_ask a = dl_machine_ask(m, DL_ASK_READ, DL_FINDING_VOID);
    a.entry = ++m->void_look;
    return a;
}

dl_ask dl_voided_look(dl_machine *m, diloco_status status)
{
    m->lost = status;
    snprintf(m->lost_text, sizeof m->lost_text, "%s", diloco_error_text());
    m->void_look = dl_open_entry(m);
    m->computed = false; /* later entries are read into the draft */
    return look_on(m);
}

dl_ask dl_voided_looked(dl_machine *m, const dl_event *event)
{
    dl_entry *later = &m->draft.entry;
    if (!event->text)
        return dl_machine_fail(
            m, dl_fail(m->lost,
                       "%s; if that cannot be restored, stop every replica, and \"diloco void\" "
                       "records that the run goes on without this entry",
                       m->lost_text));
    if (dl_entry_read_of(later, event->text, event->text_len, m->a.outer, m->a.identity) ||
        later->entry != m->void_look || later->voids != dl_open_entry(m) + 1)
        return look_on(m);
    keep_in_mind(m, dl_open_entry(m), m->void_look);
    return dl_follow_void(m, DL_VOIDED);
}

bool dl_voided_sets_back(const dl_machine *m)
{
    const dl_entry *e = &m->entry;
    return e->voids && !m->a.reader && e->entry == dl_open_entry(m) && e->voids <= e->entry &&
           m->void_end != e->entry && strcmp(e->run, m->a.run) == 0 &&
           dl_hash_equal(e->prev, m->a.control->prev) &&
           !dl_hash_equal(e->base, m->digest[dl_machine_fragment(m)]) &&
           dl_unread_is_operators(m->a.config, m->a.identity);
}

dl_ask dl_voided_go_back(dl_machine *m)
{
    keep_in_mind(m, m->entry.voids - 1, dl_open_entry(m));
    dl_ask a = dl_machine_ask(m, DL_ASK_REJOIN, DL_OVER);
    a.entry = m->void_first;
    a.voided = true;
    return a;
}
