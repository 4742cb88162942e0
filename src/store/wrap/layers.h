/* layers.h - stores made of other stores, which dl_store_open_at opens by the fields of an address:
 *
 *     coord        split.c: bulk in the url's store, what decides in the coord's
 *     unguarded    unguarded.c: the url's store cannot create a name exactly once
 *
 * Users set them by run.coord and run.single_committer. */
#ifndef DL_STORE_WRAP_LAYERS_H
#define DL_STORE_WRAP_LAYERS_H

#include "store/kind.h"
#include "store/store.h"

/* split.c: names and bytes of a run in two stores.
 *
 *     both     run.json, first in the coord, which decides; then in the bulk, where a reader finds
 *              which coord it is
 *     coord    gen/ hb/ end/ log/, and the race of a probe
 *     named    c/ x/: the bytes in the bulk, then an announcement (their length, as text) in the
 *              coord, which listings and waits see
 *     bulk     everything else
 *
 * So no replica lists the bulk in a round, and the bulk need not create exactly once: all names
 * that several writers may want are in coord. Bytes that were never announced (a writer was killed
 * between) stay in the bulk unused. Returns DILOCO_EDIFFERS if the two hold different runs. Owns
 * both handles, and closes them when it fails. */
DL_MUST_CHECK diloco_status dl_store_split(dl_store **out, dl_store *bulk, dl_store *coord);

/* unguarded.c: a create looks whether the name is free, writes (with the condition, where the store
 * takes it), and reads small objects back. Two
 * writers at once may both win: for runs with a single committer only (PROTOCOL P26). Owns `inner`,
 * and closes it when it fails. */
DL_MUST_CHECK diloco_status dl_store_unguarded(dl_store **out, dl_store *inner);

#endif
