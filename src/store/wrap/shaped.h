/* shaped.h - a store seen through a slower link than there is, so that a link can be tried before
 * it is paid for.
 *
 * One shaper is one link: the handles that share it share its bandwidth, up and down apart from
 * each other. What it does to a call, on top of what the store itself takes:
 *
 *   delay       each request (create, put, read, list, delete) begins later by this time
 *   bandwidth   object bytes pass at the rate. Objects up to DL_SHAPED_SMALL go ahead of larger
 *               ones, which give way; larger ones at once share evenly
 *   loss        a request is lost, or its answer after the effect, with equal chance; that is
 *               noticed after 1 s, doubling from try to try, and it is made again, DL_SHAPED_TRIES
 *               times in all: then DILOCO_EUNREACHABLE, the outcome unknown
 *
 * Waiting is not shaped: a change event arrives as soon as without the link. */
#ifndef DL_STORE_WRAP_SHAPED_H
#define DL_STORE_WRAP_SHAPED_H

#include "base/link.h"
#include "store/store.h"

enum { DL_SHAPED_SMALL = 64 << 10, DL_SHAPED_TRIES = 6 };

typedef struct dl_shaper dl_shaper;

/* Time, for tests that have their own. */
typedef struct dl_shaper_clock {
    void *context;
    dl_time (*now)(void *context);
    void (*sleep)(void *context, dl_time duration);
} dl_shaper_clock;

/* A link with nothing on it. `clock` NULL: the real one. Losses come from the seed. DILOCO_ENOMEM.
 * Any thread. Destroyed after the last handle that uses it. */
DL_MUST_CHECK diloco_status dl_shaper_create(dl_shaper **out, const dl_link *link, uint64_t seed,
                                             const dl_shaper_clock *clock);
void dl_shaper_destroy(dl_shaper *shaper); /* NULL is fine */

/* Wrap an open handle; owns it, and closes it when this fails. */
DL_MUST_CHECK diloco_status dl_store_shaped(dl_store **out, dl_store *inner, dl_shaper *shaper);

/* Call after dl_store_open: the handle as it is, or through the link of this process. */
DL_MUST_CHECK diloco_status dl_store_through_link(dl_store **store);

#endif
