/* arrivals.c - see arrivals.h. */
#include "data/arrivals.h"

static const dl_arrivals *now;

void dl_arrivals_set(const dl_arrivals *arrivals)
{
    now = arrivals;
}

const dl_arrivals *dl_arrivals_now(void)
{
    return now;
}
