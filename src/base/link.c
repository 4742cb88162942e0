/* link.c - see link.h. A part is a number and its unit; the unit identifies the part. */
#include "base/link.h"

#include "base/text.h"

#include <string.h>

static const double DELAY_MAX_S = 60;

typedef struct unit {
    const char *name;
    double factor;
} unit;

/* Units by the part that they identify. A new unit is an element before the NULL. */
static const unit rates[] = {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {NULL, 0}};
static const unit times[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {NULL, 0}};
static const unit shares[] = {{"%", 1e-2}, {NULL, 0}};

/* The number and unit that all len bytes of text are. The unit has to be the whole rest of the
 * text. Negative numbers are refused. */
static bool read_with_unit(double *out, const char *text, size_t len, const unit *units)
{
    double value;
    const size_t digits = dl_number_len(text, len);
    if (!dl_text_to_f64(&value, text, digits) || !(value >= 0)) return false;
    for (const unit *u = units; u->name; u++)
        if (strlen(u->name) == len - digits && !strncmp(u->name, text + digits, len - digits)) {
            *out = value * u->factor;
            return true;
        }
    return false;
}

/* "up/down", or one rate for both directions. A rate of 0 would be no link. */
static bool read_rates(dl_link *out, const char *text, size_t len)
{
    const char *slash = memchr(text, '/', len);
    const size_t up = slash ? (size_t)(slash - text) : len;
    if (!read_with_unit(&out->up_bps, text, up, rates)) return false;
    out->down_bps = out->up_bps;
    if (slash && !read_with_unit(&out->down_bps, slash + 1, len - up - 1, rates)) return false;
    return out->up_bps > 0 && out->down_bps > 0;
}

/* 0, 1, 2: rate, delay, loss; -1: none of them. */
static int read_part(dl_link *out, const char *text, size_t len)
{
    if (read_rates(out, text, len)) return 0;
    if (read_with_unit(&out->delay_s, text, len, times) && out->delay_s <= DELAY_MAX_S) return 1;
    if (read_with_unit(&out->loss, text, len, shares) && out->loss <= 1) return 2;
    return -1;
}

/* Each part has to come after the ones before it, so none is given twice. *out is unchanged after
 * an error. */
diloco_status dl_link_parse(dl_link *out, const char *what, const char *text)
{
    dl_link link = {0};
    int before = -1;
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const size_t len = strcspn(at, ",");
        const int part = read_part(&link, at, len);
        if (part <= before)
            return dl_fail(DILOCO_EINVAL,
                           "%s %.80s: \"%.*s\" is not a link. Write a rate, a delay up to 60 s "
                           "and a loss, such as 10mbit,100ms,1%% or 10mbit/50mbit,20ms; each "
                           "may be left out. Units: kbit, mbit, gbit; us, ms, s",
                           what, text, (int)(len < 40 ? len : 40), at);
        before = part;
    }
    *out = link;
    return DILOCO_OK;
}
