/* topology_leader.c - one replica reads the contributions and uploads the combined update; the
 * others read that (P19). */
#include "protocol/machine_parts.h"

static bool reads_whole(const dl_machine *m)
{
    (void)m;
    return true;
}

static dl_request combine(dl_machine *m)
{
    return dl_propose_of_draft(m, DL_REQUEST_COMBINE, DL_COMBINING);
}

/* A combined update is named once it was read back, or the store has confirmed it (P8). */
static dl_request combined(dl_machine *m, const dl_reply *reply)
{
    if (reply->status == DILOCO_ENUMERIC)
        return dl_propose_draft_abort(m, diloco_error_text()); /* B2 */
    if (reply->status == DILOCO_EEXIST) return dl_propose_compute(m);
    if (reply->status) return dl_machine_fail(m, reply->status);
    m->open.draft.entry.combined = (dl_combined_at){.there = true,
                                                    .generation = m->a.self,
                                                    .body = reply->combined.result,
                                                    .bytes = reply->combined.len};
    m->n_refused_reads = 0;
    return dl_propose_of_draft(m, DL_REQUEST_FETCH_COMBINED, DL_READING_OWN);
}

/* An update that the store does not give back is not named: every replica reads the members. */
static dl_request read_own(dl_machine *m, const dl_reply *reply)
{
    if (reply->status && m->n_refused_reads++ < MAX_REFUSED_READS)
        return dl_propose_of_draft(m, DL_REQUEST_FETCH_COMBINED, DL_READING_OWN);
    if (reply->status) m->open.draft.entry.combined.there = false;
    return dl_propose_compute(m);
}

const dl_topology dl_topology_leader = {
    .reads_whole = reads_whole,
    .look = dl_propose_look_to_close,
    .combine = combine,
    .combined = combined,
    .read_own = read_own,
};
