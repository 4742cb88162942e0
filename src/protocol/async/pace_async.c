/* pace_async.c - the pace of an asynchronous run (PROTOCOL P20): a replica captures H steps after
 * its own last adoption, has one contribution in flight, and waits for its entry. */
#include "protocol/pace_parts.h"

static bool is_in_flight(const dl_pace *p)
{
    return p->n_captured > p->next_adopt;
}

static dl_pace_capture *capture_of(const dl_pace *p, uint64_t entry)
{
    return is_in_flight(p) && p->captures[0].entry == entry ? &p->captures[0] : NULL;
}

static dl_stop next(const dl_pace *p)
{
    const bool over = p->applied >= p->entries;
    if (p->fragments[0].behind || (over && !p->finished))
        return (dl_stop){DL_STOP_JUMP, p->applied};
    if (is_in_flight(p)) return (dl_stop){DL_STOP_ADOPT, p->captures[0].entry};
    if (!over && p->position >= p->fragments[0].since + p->own_interval)
        return (dl_stop){DL_STOP_CAPTURE, p->base};
    return (dl_stop){DL_STOP_NONE, 0};
}

static bool may_adopt(const dl_pace *p, uint64_t entry)
{
    (void)entry;
    return p->settled || !is_in_flight(p); /* it was dropped meanwhile */
}

static bool participates(const dl_pace *p, uint64_t entry)
{
    (void)entry;
    return is_in_flight(p) && !p->settled;
}

static uint64_t train_until(const dl_pace *p)
{
    return p->finished ? UINT64_MAX : p->fragments[0].since + p->own_interval;
}

static bool done(const dl_pace *p)
{
    return p->finished && !p->reading;
}

static uint64_t entry_of(const dl_pace *p, uint64_t n)
{
    (void)n;
    return p->base;
}

static bool is_mute(const dl_pace *p, const dl_pace_capture *capture, bool awaited)
{
    (void)p, (void)capture, (void)awaited;
    return false;
}

/* The local tensors are theta now. */
static void begin_from_theta(dl_pace *p)
{
    p->base = p->applied;
    p->fragments[0].since = p->position;
    p->next_adopt = p->n_captured;
    p->settled = false;
    p->finished = p->applied >= p->entries;
}

static void adopted(dl_pace *p, const dl_pace_capture *capture, dl_adoption how)
{
    (void)capture, (void)how;
    begin_from_theta(p);
}

static void jumped(dl_pace *p)
{
    p->fragments[0].behind = false;
    begin_from_theta(p);
}

static void apply(dl_pace *p, uint64_t entry, uint32_t fragment, bool commit, bool counted)
{
    (void)entry;
    if (!is_in_flight(p) || !counted) return;
    p->captures->fragment = fragment;
    p->captures->commit = commit;
    p->captures->counted = counted;
}

static void resumed(dl_pace *p)
{
    if (is_in_flight(p)) dl_pace_let_go(p); /* a resume does not take up what was in flight */
}

/* Otherwise nothing would be uploaded, and the replica would wait for it. */
static void restarted(dl_pace *p)
{
    p->next_adopt = p->n_captured;
}

/* Training on another state is useless without that state. */
static void caught_up(dl_pace *p)
{
    if (p->reading && !is_in_flight(p) && p->base != p->applied) p->fragments[0].behind = true;
}

/* Its own contribution is stored under its base. */
static uint64_t needed_from(const dl_pace *p, uint64_t open)
{
    return p->base < open ? p->base : open;
}

void dl_pace_settle(dl_pace *p)
{
    DL_ASSERT(p->schedule.async);
    p->settled = true;
}

void dl_pace_let_go(dl_pace *p)
{
    DL_ASSERT(p->schedule.async);
    p->next_adopt = p->n_captured;
    p->fragments[0].behind = true;
}

const dl_pace_rules dl_pace_async = {
    .counts_own = true,
    .capture = capture_of,
    .next = next,
    .may_adopt = may_adopt,
    .participates = participates,
    .train_until = train_until,
    .done = done,
    .entry_of = entry_of,
    .is_mute = is_mute,
    .adopted = adopted,
    .jumped = jumped,
    .apply = apply,
    .needed_from = needed_from,
    .resumed = resumed,
    .restarted = restarted,
    .caught_up = caught_up,
};
