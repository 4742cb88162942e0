/* joining.c - a replica that no entry waits for: it joins, or the log moved on without it.
 *
 * It announces itself (P9), and trains from the others' next due point on (P13). */
#include "protocol/close_rule.h"
#include "protocol/machine_parts.h"

#include <string.h>

/* ---- announcing (P9) ----
 *
 * No entry waits for a replica that is not in the log's rosters. So a replica that is no faster
 * than the others would never count. It uploads an empty contribution to the open entry, and the
 * first entry whose roster is not decided then waits for it. An upload that takes longer than a
 * round arrives after its entry has closed. So each announcement without effect is followed by one
 * that is twice as far ahead. That also makes those of a replica rare that the run dropped because
 * it is too slow for the deadlines.
 *
 * A replica that reads the log more slowly than the log grows would never reach its end. It
 * measures where that is, and announces itself there. The entry that waits for it lets it read the
 * rest. If the rest is too long for that, it waits for a newer snapshot and rejoins from it. */

enum { MAX_ANNOUNCE_DOUBLINGS = 16 };
enum { ENTRIES_TO_READ = 4 }; /* between two measurements of the log, at least */
enum { MOST_UNREAD = 1000 };  /* one page of a listing of S3 */
enum { LATE_AGAIN = 2, ENTRIES_TO_ALIGN = 3 };

static bool is_awaited(const dl_machine *m)
{
    const dl_control *c = m->a.control;
    size_t at;
    bool found = dl_roster_has(&c->roster, m->a.self.replica, &at);
    for (size_t i = 0; i < c->n_later && !found; i++)
        found = dl_roster_has(&c->later[i].roster, m->a.self.replica, &at);
    return found;
}

/* Returns how many entries after the open one the next announcement is for. One that came too late
 * was for an entry that had closed, so the next one is further ahead. */
static uint64_t ahead_of_log(const dl_machine *m)
{
    const unsigned n = m->self.n_announcements;
    return (UINT64_C(1) << (n < MAX_ANNOUNCE_DOUBLINGS ? n : MAX_ANNOUNCE_DOUBLINGS)) - 1;
}

bool dl_joining_has_announced(const dl_machine *m, uint64_t entry)
{
    for (size_t i = 0; i < m->self.n_taken; i++)
        if (m->self.taken[i] == entry) return true;
    return false;
}

static bool may_take_a_name(const dl_machine *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->self.n_taken; i++)
        n += m->self.taken[i] >= dl_open_entry(m);
    return n < DL_MACHINE_TAKEN_MAX;
}

/* Forgets the names in entries before the open one, to which nothing is uploaded any more, also if
 * the replica rejoins from an earlier entry. */
static void take_name(dl_machine *m, uint64_t entry)
{
    const uint64_t open = dl_open_entry(m);
    size_t n = 0;
    if (m->self.n_put < open) m->self.n_put = open;
    for (size_t i = 0; i < m->self.n_taken; i++)
        if (m->self.taken[i] >= open) m->self.taken[n++] = m->self.taken[i];
    DL_ASSERT(n < DL_MACHINE_TAKEN_MAX);
    m->self.taken[n++] = entry;
    m->self.n_taken = n;
}

/* Returns whether an announcement for this entry has an effect if it arrives in time. */
static bool may_announce(const dl_machine *m, uint64_t entry)
{
    const dl_pace *p = m->a.pace;
    const dl_control *c = m->a.control;
    const uint64_t open = dl_open_entry(m), first = entry + c->n_later + 1;
    if (m->a.reader || !dl_machine_mode(m)->announces) return false;
    if (!dl_gather_has_roster(m) || c->roster.n == 0 || is_awaited(m)) return false;
    if (open < m->self.announce_at || m->self.n_put > open || first >= p->entries) return false;
    if (dl_joining_has_announced(m, entry) || !may_take_a_name(m)) return false;
    if (open < dl_bans_until(c->bans, m->a.self.replica)) return false;
    return dl_pace_will_be_whole(
        p, first, dl_schedule_fragment(&p->schedule, first, m->log.n_commits_all + first - open));
}

bool dl_joining_has_to_announce(const dl_machine *m)
{
    return may_announce(m, dl_open_entry(m) + ahead_of_log(m));
}

static dl_request announce(dl_machine *m, uint64_t entry)
{
    const uint64_t open = dl_open_entry(m);
    DL_ASSERT(m->self.announce_at <= open && m->self.n_put <= open && entry >= open);
    m->self.n_announcements++;
    m->self.announced = entry + 1;
    take_name(m, entry);
    if (entry == open) m->self.n_put = entry + 1; /* it has given the open entry up */
    dl_request a = dl_gather_request(m, entry, DL_ANNOUNCING);
    a.contribute.announce = true;
    return a;
}

dl_request dl_joining_announce(dl_machine *m)
{
    const uint64_t entry = dl_open_entry(m) + ahead_of_log(m);
    const dl_request a = announce(m, entry);
    m->self.announce_at = entry + 1;
    return a;
}

/* ---- measuring the log (P9) ---- */

void dl_joining_fall_out_of_step(dl_machine *m)
{
    m->self.out_of_step = true;
    m->self.align_until = m->self.untouched = 0;
    m->self.read_from = dl_open_entry(m);
    m->self.read_since = m->now;
    m->self.measure_at = dl_open_entry(m) + ENTRIES_TO_READ;
    m->self.backlog = 0;
}

bool dl_joining_falls_back(const dl_machine *m)
{
    return m->self.out_of_step && dl_open_entry(m) >= m->self.measure_at &&
           dl_joining_has_to_announce(m);
}

/* Returns how many entries this replica reads while the others may wait for it. They wait for a
 * silent replica for run.patience, so a joining one may delay them by as much. With commit_partial
 * they wait for two deadlines, of which the second is left for its training. */
static uint64_t most_unread(const dl_machine *m)
{
    const dl_config *c = m->a.config;
    const double round_s = 1e-9; /* unknown: the shortest deadline of P10 */
    const double deadline_s = dl_seconds(dl_closing_deadline(c, 0, 0, round_s, 0));
    const double wait_s = c->on_missing == DL_MISSING_COMMIT_PARTIAL ? deadline_s : c->patience_s;
    return wait_s < MOST_UNREAD * m->self.entry_s ? (uint64_t)(wait_s / m->self.entry_s)
                                                  : MOST_UNREAD;
}

dl_request dl_joining_measure(dl_machine *m)
{
    dl_request a = dl_machine_request(m, DL_REQUEST_EXTENT, DL_MEASURING);
    a.extent.most = MOST_UNREAD + 1;
    return a;
}

/* Returns whether the last announcement was uploaded before the log reached its entry. */
static bool is_in_time(const dl_machine *m, uint64_t end)
{
    return m->self.announced > end;
}

static bool is_slower_than_log(const dl_machine *m, uint64_t unreadable)
{
    return m->self.backlog && unreadable + 1 >= m->self.backlog;
}

/* Returns whether the replica rejoins from the newest snapshot, since that spares more than half of
 * a backlog that is too long to announce the replica. Anyone with write access can create names of
 * snapshots. So the replica stops rejoining once it has found no newer state. */
static bool spares_most(const dl_machine *m, uint64_t unreadable, uint64_t newest)
{
    return !m->rejoining.stays && unreadable > most_unread(m) &&
           newest > dl_open_entry(m) + unreadable / 2;
}

static dl_request rejoin_from_newest(dl_machine *m)
{
    dl_request a = dl_machine_rejoin(m, UINT64_MAX);
    a.rejoin.newer = true;
    m->rejoining.left_at = dl_open_entry(m) + 1;
    return a;
}

/* Reads on. A replica that gains on the log reads half of the rest before it measures again. */
static dl_request read_on(dl_machine *m, uint64_t unreadable)
{
    const bool gains = m->self.backlog && unreadable / 2 > ENTRIES_TO_READ;
    m->self.measure_at = dl_open_entry(m) + (gains ? unreadable / 2 : ENTRIES_TO_READ);
    m->self.backlog = 1 + unreadable;
    return dl_machine_request(m, DL_REQUEST_READ, DL_CATCHING_UP);
}

dl_request dl_joining_measured(dl_machine *m, const dl_reply *reply)
{
    const uint64_t open = dl_open_entry(m), unreadable = reply->extent.n, end = open + unreadable;
    const double took_s = dl_seconds(m->now - m->self.read_since);
    DL_ASSERT(open > m->self.read_from);
    if (m->self.announced <= open) m->self.entry_s = took_s / (double)(open - m->self.read_from);
    if (is_in_time(m, end)) {
        m->self.announce_at = m->self.announced;
        return read_on(m, unreadable);
    }
    if (is_slower_than_log(m, unreadable) && unreadable <= most_unread(m) &&
        may_announce(m, end + ahead_of_log(m)))
        return announce(m, end + ahead_of_log(m));
    return spares_most(m, unreadable, reply->extent.newest) ? rejoin_from_newest(m)
                                                            : read_on(m, unreadable);
}

/* ---- aligning (P13) ----
 *
 * A replica that was passed over would train from the due point that it missed. It would reach each
 * later one as long after the others. If no entry waits for it, it waits until another replica has
 * contributed to the open entry, and trains from that due point.
 *
 * Another may have contributed long before this one looks. So a replica that is late at due point
 * after due point aligns itself to an entry that it has seen without a contribution. If entries
 * close faster than it looks, it does not find one. It does so even while entries wait for it, if
 * these close at a deadline. */

static bool is_late_again(const dl_machine *m)
{
    return m->self.n_late >= LATE_AGAIN;
}

bool dl_joining_has_to_align(const dl_machine *m)
{
    if (!m->self.out_of_step || m->a.reader || !dl_machine_mode(m)->announces) return false;
    if (!dl_gather_has_roster(m) || m->a.control->roster.n == 0) return false;
    const bool have_deadlines = m->a.config->on_missing != DL_MISSING_WAIT;
    if (is_awaited(m) && !(is_late_again(m) && have_deadlines)) return false;
    if (dl_pace_participates(m->a.pace, dl_open_entry(m))) return false;
    return !m->self.align_until || m->now < m->self.align_until;
}

dl_request dl_joining_align(dl_machine *m)
{
    if (dl_joining_has_to_announce(m)) return dl_joining_announce(m);
    /* If no other replica is left, this one continues the run. */
    if (!m->self.align_until) {
        m->self.align_until = dl_time_after(m->now, dl_time_from_seconds(m->a.config->patience_s));
        m->self.align_from = dl_open_entry(m);
    }
    dl_request a = dl_machine_request(m, DL_REQUEST_LIST, DL_SOUNDING);
    a.list.own = dl_machine_mode(m)->list_from(m);
    return a;
}

static bool others_are_due(const dl_machine *m, const dl_reply *reply)
{
    for (size_t i = 0; i < reply->list.n_listed; i++) {
        const char *name = reply->list.listed[i].generation.replica;
        if (strcmp(name, m->a.self.replica) != 0 &&
            dl_roster_has(&m->a.control->roster, name, NULL))
            return true;
    }
    return false;
}

dl_request dl_joining_sounded(dl_machine *m, const dl_reply *reply)
{
    const dl_generation *newer = dl_gather_newer(m, reply);
    if (newer) return dl_gather_fenced(m, newer);
    const bool due = others_are_due(m, reply);
    if (!due) m->self.untouched = dl_open_entry(m) + 1;
    if (due && (!is_late_again(m) || m->self.untouched == dl_open_entry(m) + 1)) {
        dl_pace_align(m->a.pace, dl_open_entry(m));
        return dl_machine_caught_up(m);
    }
    dl_request a = dl_machine_request(m, DL_REQUEST_WAIT, DL_ALIGNING);
    a.wait.until = m->self.align_until;
    return a;
}

void dl_joining_passes_entry(dl_machine *m)
{
    if (!m->self.align_until) return;
    if (is_late_again(m) && dl_open_entry(m) + 1 < m->self.align_from + ENTRIES_TO_ALIGN) return;
    m->self.out_of_step = false;
    if (is_late_again(m)) m->self.n_late = 0;
}

dl_request dl_joining_aligned(dl_machine *m, const dl_reply *reply)
{
    (void)reply;
    return dl_machine_request(m, DL_REQUEST_READ, DL_CATCHING_UP);
}
