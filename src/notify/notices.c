/* notices.c - see notices.h. A condition that ended keeps its slot. One that comes and goes is
 * therefore sent again only after DL_NOTICE_AGAIN. */
#include "notify/notices.h"

#include <stdio.h>
#include <string.h>

#define HOUR (3600 * DL_SECOND)

const char *dl_notice_event_name(dl_notice_event event)
{
    static const char *const names[] = {
#define NAME(name, text) [DL_NOTICE_##name] = text,
        DL_NOTICE_EVENTS(NAME)
#undef NAME
    };
    return names[event];
}

/* The slot of a condition, or a new one for it: an unused slot, or else the one whose condition
 * ended and was sent longest ago. Returns NULL if all slots hold other conditions. */
static struct dl_notice_slot *slot_of(dl_notices *t, const dl_notice *condition)
{
    struct dl_notice_slot *free_slot = NULL;
    for (size_t i = 0; i < DL_NOTICES; i++) {
        struct dl_notice_slot *s = &t->slots[i];
        if (s->used && s->event == condition->event && !strcmp(s->replica, condition->replica))
            return s;
        if (!s->used ||
            (!s->holds && (!free_slot || (free_slot->used && s->sent < free_slot->sent))))
            free_slot = free_slot && !free_slot->used ? free_slot : s;
    }
    if (!free_slot) return NULL;
    *free_slot = (struct dl_notice_slot){.event = condition->event, .used = true};
    snprintf(free_slot->replica, sizeof free_slot->replica, "%s", condition->replica);
    return free_slot;
}

/* The limits. recent[] is a ring, so the place of the next notice holds the time of the oldest of
 * the last DL_NOTICES_HOURLY. */
static bool is_due(const dl_notices *t, const struct dl_notice_slot *s, dl_time now)
{
    const dl_time oldest = t->recent[t->n_sent % DL_NOTICES_HOURLY];
    if (s->event == DL_NOTICE_RUN_COMPLETE) return true;
    if (s->sent && now - s->sent < DL_NOTICE_AGAIN) return false;
    return t->n_sent < DL_NOTICES_HOURLY || now - oldest >= HOUR;
}

/* Linear in n, which is at most a few dozen. */
static bool is_held(const struct dl_notice_slot *s, const dl_notice *holding, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s->event == holding[i].event && !strcmp(s->replica, holding[i].replica)) return true;
    return false;
}

size_t dl_notices_take(dl_notices *t, dl_notice *out, const dl_notice *holding, size_t n,
                       dl_time now)
{
    size_t n_out = 0;
    for (size_t i = 0; i < DL_NOTICES; i++) {
        struct dl_notice_slot *s = &t->slots[i];
        if (!s->used || is_held(s, holding, n)) continue;
        s->holds = s->reported = s->withheld = false;
    }
    for (size_t i = 0; i < n; i++) {
        struct dl_notice_slot *s = slot_of(t, &holding[i]);
        if (!s) continue;
        s->holds = true;
        if (s->reported) continue;
        if (!is_due(t, s, now)) {
            t->withheld += !s->withheld;
            s->withheld = true;
            continue;
        }
        out[n_out] = holding[i];
        out[n_out++].withheld = t->withheld;
        t->withheld = 0;
        t->recent[t->n_sent++ % DL_NOTICES_HOURLY] = now;
        s->reported = true;
        s->sent = now;
    }
    return n_out;
}
