/* link.c - a link as people write it: "50mbit,100ms". */
#include "base/text.h"
#include "plan/forecast.h"

#include <string.h>

typedef struct unit {
    const char *name;
    double factor;
} unit;

/* The number and unit that all len bytes of text are. */
static bool read_with_unit(double *out, const char *text, size_t len, const unit *units)
{
    size_t digits = dl_number_len(text, len);
    if (!dl_text_to_f64(out, text, digits) || !(*out >= 0)) return false;
    for (const unit *u = units; u->name; u++)
        if (strlen(u->name) == len - digits && !strncmp(u->name, text + digits, len - digits)) {
            *out *= u->factor;
            return true;
        }
    return false;
}

diloco_status dl_plan_link_parse(dl_plan_link *out, const char *flag, const char *text)
{
    static const unit rates[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {NULL, 0}};
    static const unit times[] = {{"ms", 1e-3}, {"s", 1}, {NULL, 0}};
    size_t len = strcspn(text, ",");
    const char *latency = text[len] ? text + len + 1 : NULL;
    *out = (dl_plan_link){.up_bps = 0};
    bool ok = read_with_unit(&out->up_bps, text, len, rates) && out->up_bps > 0;
    if (latency) ok = ok && read_with_unit(&out->latency_s, latency, strlen(latency), times);
    out->down_bps = out->up_bps;
    if (ok) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "%s %.60s: write a rate and a latency, like 50mbit,100ms (kbit, mbit, gbit; "
                   "ms, s)",
                   flag, text);
}
