/* plan_link.c - a plan's link: base/link.h's words, with a rate and without loss. */
#include "base/link.h"
#include "plan/forecast.h"

diloco_status dl_plan_link_parse(dl_plan_link *out, const char *flag, const char *text)
{
    dl_link link;
    DL_TRY(dl_link_parse(&link, flag, text));
    if (!(link.up_bps > 0))
        return dl_fail(DILOCO_EINVAL, "%s %.80s: a plan needs a rate, like 50mbit,100ms", flag,
                       text);
    if (link.loss > 0)
        return dl_fail(DILOCO_EINVAL,
                       "%s %.80s: a plan counts no losses; leave them out, or plan with the rate "
                       "that they leave",
                       flag, text);
    *out = (dl_plan_link){link.up_bps, link.down_bps, link.delay_s};
    return DILOCO_OK;
}
