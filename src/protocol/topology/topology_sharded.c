/* topology_sharded.c - each member combines a slice for all (P19). The replica whose turn it is
 * plans an entry, waits for the slices, and names them. If they do not come, every replica combines
 * the entry, `by_all`, as with allgather. */
#include "protocol/machine_parts.h"

static bool reads_whole(const dl_machine *m)
{
    return m->open.by_all || m->phase == DL_APPLY_FETCHING;
}

/* If it is combined by all, the members are in the slots that slices would be read into. */
static dl_request look(dl_machine *m)
{
    if (m->open.by_all) return dl_propose_look_to_close(m);
    return dl_machine_request(m, DL_REQUEST_SERVE, DL_SERVING);
}

static dl_request combine(dl_machine *m)
{
    if (m->open.by_all) return dl_propose_compute(m);
    return dl_propose_of_draft(m, DL_REQUEST_COMBINE, DL_COMBINING);
}

/* Slices are absent or cannot be used: every replica reads all of the members, and judges them. */
static dl_request go_by_all(dl_machine *m)
{
    DL_ASSERT(!m->open.by_all);
    m->open.by_all = true;
    m->open.draft.entry.combined.there = false;
    dl_candidate_read_whole(&m->open.known);
    return dl_gather_list(m);
}

/* The plan and this replica's own slices are in the store. */
static dl_request planned(dl_machine *m, const dl_reply *reply)
{
    DL_ASSERT(!m->open.by_all);
    if (reply->status) return go_by_all(m);
    m->open.draft.entry.combined = (dl_combined_at){
        .there = true, .generation = m->a.self, .slices = reply->combined.n_slices};
    m->n_refused_reads = 0;
    m->open.slices_until = dl_time_after(m->now, dl_gather_deadline(m) - m->timing.due_at);
    return dl_propose_of_draft(m, DL_REQUEST_FETCH_COMBINED, DL_READING_OWN);
}

static dl_request read_slices(dl_machine *m, const dl_reply *reply)
{
    if (!reply->status) {
        m->open.draft.entry.combined.body = reply->combined.result;
        m->open.draft.entry.combined.bytes = reply->combined.len;
        return dl_propose_compute(m);
    }
    const bool damaged = reply->status != DILOCO_ENOENT;
    if (m->now >= m->open.slices_until || (damaged && m->n_refused_reads++ >= MAX_REFUSED_READS))
        return go_by_all(m);
    if (damaged) return dl_propose_of_draft(m, DL_REQUEST_FETCH_COMBINED, DL_READING_OWN);
    dl_request a = dl_machine_request(m, DL_REQUEST_WAIT, DL_AWAITING);
    a.wait.until = m->open.slices_until;
    a.wait.log_only = true;
    return a;
}

/* Another replica may create the entry meanwhile, and plans of others may wait for this replica. */
dl_request dl_propose_awaited(dl_machine *m, const dl_reply *reply)
{
    (void)reply;
    return dl_machine_request(m, DL_REQUEST_READ, DL_AWAITING_LOOK);
}

dl_request dl_propose_awaited_look(dl_machine *m, const dl_reply *reply)
{
    if (reply->read.text) return dl_apply_text(m, reply);
    return dl_machine_request(m, DL_REQUEST_SERVE, DL_AWAITING_SERVE);
}

dl_request dl_propose_awaited_serve(dl_machine *m, const dl_reply *reply)
{
    (void)reply;
    return dl_propose_of_draft(m, DL_REQUEST_FETCH_COMBINED, DL_READING_OWN);
}

const dl_topology dl_topology_sharded = {
    .reads_whole = reads_whole,
    .look = look,
    .combine = combine,
    .combined = planned,
    .read_own = read_slices,
};
