/* link.h - a link in words, the same wherever one is given: of a plan, of a run that is tried on
 * a slower link than it has.
 *
 *     10mbit,100ms,1%     rate, delay, loss: any of them left out, but not all, in this order
 *     10mbit/50mbit       up / down, seen from the replica; one rate is that of each direction
 *
 * Rates in kbit, mbit, gbit a second (powers of 1000), delays in us, ms, s, loss in %. */
#ifndef DL_BASE_LINK_H
#define DL_BASE_LINK_H

#include "base/status.h"

typedef struct dl_link {
    double up_bps, down_bps; /* bits a second, both > 0; both 0: not given */
    double delay_s;          /* of a request, there and back; at most 60 */
    double loss;             /* share of requests that fail, in [0, 1] */
} dl_link;

/* DILOCO_EINVAL names the part and its error; `what` is the flag or option that has the text.
 */
DL_MUST_CHECK diloco_status dl_link_parse(dl_link *out, const char *what, const char *text);

#endif
