/* schedule.c - see schedule.h. */
#include "protocol/schedule.h"

#include <inttypes.h>

static diloco_status check_delay(const dl_schedule *s)
{
    if (s->overlap != DL_OVERLAP_STEPS || s->delay < s->interval) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "server.diloco.overlap_steps = %" PRIu64 " is not below "
                   "trainer.local_steps_per_round = %" PRIu64
                   ": a fragment would be due again before its result is there; take fewer, or "
                   "server.diloco.overlap = \"eager\" for an overlap of a whole round",
                   s->delay, s->interval);
}

static diloco_status check_async(const dl_schedule *s)
{
    if (!s->async || (s->n_fragments == 1 && s->delay == 0)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "server.diloco.schedule = \"async\" is of one fragment without overlap "
                   "(2401.09135): set server.diloco.fragments = 1, overlap = \"steps\" and "
                   "overlap_steps = 0, or take schedule \"offset\"");
}

static diloco_status check_torchft(const dl_schedule *s)
{
    const uint64_t slice = s->interval / s->n_fragments;
    if (!s->torchft) return DILOCO_OK;
    if (s->overlap != DL_OVERLAP_STEPS)
        return dl_fail(DILOCO_EREFUSED, "server.diloco.schedule = \"torchft\" has one entry in "
                                        "flight: an overlap of a whole round needs \"offset\"");
    if (s->interval % s->n_fragments)
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.schedule = \"torchft\" needs as many steps between any two "
                       "of its %" PRIu64 " fragments, and trainer.local_steps_per_round = %" PRIu64
                       " is no multiple of that: change one, or take schedule \"offset\"",
                       s->n_fragments, s->interval);
    if (s->delay >= slice)
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.overlap_steps = %" PRIu64
                       " with schedule \"torchft\" has to be below the %" PRIu64
                       " steps from one fragment to the next: it has one entry in flight; take "
                       "fewer, or schedule \"offset\"",
                       s->delay, slice);
    return DILOCO_OK;
}

static diloco_status check_own_delay(dl_schedule *s, int64_t own)
{
    if (own < 0) return DILOCO_OK;
    if (s->torchft || s->async || s->overlap != DL_OVERLAP_STEPS)
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.own_overlap_steps = %" PRId64
                       " needs schedule \"offset\" and "
                       "overlap \"steps\": elsewhere every replica adopts at the same position; "
                       "leave it -1",
                       own);
    if ((uint64_t)own > s->delay)
        return dl_fail(DILOCO_EREFUSED,
                       "server.diloco.own_overlap_steps = %" PRId64
                       " is above server.diloco.overlap_steps = %" PRIu64
                       ", the most of any replica: take fewer, or begin a run with more",
                       own, s->delay);
    s->early = s->delay - (uint64_t)own;
    return DILOCO_OK;
}

diloco_status dl_schedule_of(dl_schedule *out, const dl_config *config, int n_fragments)
{
    *out = (dl_schedule){.interval = (uint64_t)(config->local_steps ? config->local_steps : 1),
                         .n_fragments = (uint64_t)n_fragments,
                         .delay = (uint64_t)config->overlap_steps,
                         .overlap = config->overlap,
                         .torchft = config->schedule == DL_SCHEDULE_TORCHFT,
                         .async = config->schedule == DL_SCHEDULE_ASYNC,
                         .replicas = (uint64_t)config->replicas};
    if (out->overlap != DL_OVERLAP_STEPS) out->delay = out->interval;
    DL_TRY(check_async(out));
    DL_TRY(check_delay(out));
    DL_TRY(check_torchft(out));
    return check_own_delay(out, config->own_overlap_steps);
}

uint64_t dl_schedule_take(const dl_schedule *s, uint64_t entry)
{
    const uint64_t P = s->n_fragments, H = s->interval;
    if (s->torchft) return (entry + 1) * (H / P) - s->delay;
    return (entry / P + 1) * H + entry % P * H / P;
}

uint64_t dl_schedule_adopt(const dl_schedule *s, uint64_t entry)
{
    return dl_schedule_take(s, entry) + s->delay - s->early;
}

uint32_t dl_schedule_fragment(const dl_schedule *s, uint64_t entry, uint64_t n_commits)
{
    DL_ASSERT(s->n_fragments > 0);
    return (uint32_t)((s->torchft ? n_commits : entry) % s->n_fragments);
}

size_t dl_schedule_ahead(const dl_schedule *s)
{
    size_t most = 1;
    if (s->torchft) return most;
    for (uint64_t e = 0; e < s->n_fragments; e++) { /* the pattern repeats every P entries */
        size_t n = 1;
        while (dl_schedule_take(s, e + n) <= dl_schedule_take(s, e) + s->delay)
            n++;
        if (n > most) most = n;
    }
    return most;
}

uint64_t dl_schedule_entries(const dl_schedule *s, uint64_t rounds)
{
    return rounds * (s->async ? s->replicas : s->n_fragments);
}

uint64_t dl_schedule_round(const dl_schedule *s, uint64_t entry)
{
    DL_ASSERT(dl_schedule_entries(s, 1) > 0);
    return entry / dl_schedule_entries(s, 1);
}

uint64_t dl_schedule_end(const dl_schedule *s, uint64_t entries)
{
    if (s->async) return entries / s->replicas * s->interval;
    return entries ? dl_schedule_take(s, entries - 1) : 0;
}
