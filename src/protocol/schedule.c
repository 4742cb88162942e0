/* schedule.c - see schedule.h. */
#include "protocol/schedule.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Reads a number of at most eight digits, above 0. */
static bool read_count(const char **at, uint64_t *out)
{
    char *end;
    const size_t digits = strspn(*at, "0123456789");
    if (digits == 0 || digits > 8) return false;
    *out = strtoull(*at, &end, 10);
    *at = end;
    return *out > 0;
}

static bool read_phases(dl_schedule *s, const char *at)
{
    while (*at) {
        dl_round_phase phase;
        at += strspn(at, " ");
        if (s->n_phases == DL_ROUND_PHASES || !read_count(&at, &phase.rounds) || *at++ != 'x' ||
            !read_count(&at, &phase.steps))
            return false;
        s->phases[s->n_phases++] = phase;
        at += strspn(at, " ");
        if (*at && *at++ != ',') return false;
    }
    return true;
}

static diloco_status check_phases(dl_schedule *s, const char *text)
{
    if (!read_phases(s, text))
        return dl_fail(
            DILOCO_EINVAL,
            "trainer.local_steps_phases = \"%s\": give ROUNDSxSTEPS with commas between, "
            "at most %d, as in \"12x10, 8x100\"",
            text, DL_ROUND_PHASES);
    if (s->n_phases == 0 || (s->overlap == DL_OVERLAP_STEPS && !s->torchft)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "trainer.local_steps_phases needs server.diloco.schedule \"offset\" and overlap "
                   "\"steps\": elsewhere every round has the same length; leave it empty");
}

static diloco_status check_delay(const dl_schedule *s)
{
    uint64_t shortest = s->interval;
    const char *option = "trainer.local_steps_per_round";
    for (size_t i = 0; i < s->n_phases; i++)
        if (s->phases[i].steps < shortest)
            shortest = s->phases[i].steps,
            option = "the shortest round of trainer.local_steps_phases";
    if (s->overlap != DL_OVERLAP_STEPS || s->delay < shortest) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "server.diloco.overlap_steps = %" PRIu64 " is not below %s = %" PRIu64
                   ": a fragment would be due again before its result has arrived; take fewer, or "
                   "server.diloco.overlap = \"eager\" for an overlap of a whole round",
                   s->delay, option, shortest);
}

static diloco_status check_async(const dl_schedule *s)
{
    if (!s->async || (s->n_fragments == 1 && s->delay == 0 && s->n_phases == 0)) return DILOCO_OK;
    return dl_fail(DILOCO_EREFUSED,
                   "server.diloco.schedule = \"async\" is of one fragment without overlap "
                   "(2401.09135): set server.diloco.fragments = 1, overlap = \"steps\" and "
                   "overlap_steps = 0, leave trainer.local_steps_phases empty, or take schedule "
                   "\"offset\"");
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
    DL_TRY(check_phases(out, config->local_steps_phases));
    DL_TRY(check_async(out));
    DL_TRY(check_delay(out));
    DL_TRY(check_torchft(out));
    return check_own_delay(out, config->own_overlap_steps);
}

/* Returns the steps of this round, and in *before those of all earlier rounds. */
static uint64_t steps_of(const dl_schedule *s, uint64_t round, uint64_t *before)
{
    *before = 0;
    for (size_t i = 0; i < s->n_phases; i++) {
        const dl_round_phase *phase = &s->phases[i];
        if (round < phase->rounds) {
            *before += round * phase->steps;
            return phase->steps;
        }
        *before += phase->rounds * phase->steps;
        round -= phase->rounds;
    }
    *before += round * s->interval;
    return s->interval;
}

uint64_t dl_schedule_steps(const dl_schedule *s, uint64_t rounds)
{
    uint64_t before;
    (void)steps_of(s, rounds, &before);
    return before;
}

uint64_t dl_schedule_capture(const dl_schedule *s, uint64_t entry)
{
    const uint64_t P = s->n_fragments;
    uint64_t before;
    if (s->torchft) return (entry + 1) * (s->interval / P) - s->delay;
    const uint64_t next = steps_of(s, entry / P + 1, &before);
    return before + entry % P * next / P;
}

uint64_t dl_schedule_interval(const dl_schedule *s, uint64_t entry)
{
    const uint64_t P = s->n_fragments;
    uint64_t before;
    if (s->n_phases == 0) return s->interval;
    if (entry < P) return steps_of(s, 0, &before);
    return dl_schedule_capture(s, entry) - dl_schedule_capture(s, entry - P);
}

uint64_t dl_schedule_adopt(const dl_schedule *s, uint64_t entry)
{
    return dl_schedule_capture(s, entry) + s->delay - s->early;
}

uint32_t dl_schedule_fragment(const dl_schedule *s, uint64_t entry, uint64_t n_commits)
{
    DL_ASSERT(s->n_fragments > 0);
    return (uint32_t)((s->torchft ? n_commits : entry) % s->n_fragments);
}

/* Returns the most due points within tau of one in this round. */
static size_t ahead_in(const dl_schedule *s, uint64_t round)
{
    size_t most = 1;
    for (uint64_t e = round * s->n_fragments; e < (round + 1) * s->n_fragments; e++) {
        size_t n = 1;
        while (dl_schedule_capture(s, e + n) <= dl_schedule_capture(s, e) + s->delay)
            n++;
        if (n > most) most = n;
    }
    return most;
}

size_t dl_schedule_ahead(const dl_schedule *s)
{
    if (s->torchft) return 1;
    size_t most = ahead_in(s, 0);
    uint64_t begin = 0; /* of a phase: within one, all rounds but the last two are alike */
    for (size_t i = 0; i < s->n_phases; i++) {
        begin += s->phases[i].rounds;
        for (uint64_t round = begin > 2 ? begin - 2 : 0; round <= begin; round++) {
            const size_t n = ahead_in(s, round);
            if (n > most) most = n;
        }
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
    return entries ? dl_schedule_capture(s, entries - 1) : 0;
}
