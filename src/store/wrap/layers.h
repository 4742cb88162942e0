/* layers.h - stores made of other stores, which a run opens by one text (dl_store_open):
 *
 *     "<url> with <url>"   split.c: bulk in the first, what decides in the second, the coord
 *     "<url> unguarded"    unguarded.c: a store that cannot create a name exactly once
 *
 * In both at once "unguarded" follows its url: "s3://b/run unguarded with etcd://h:2379/run".
 * Before each of the two words is a character that no path or url has. Users do not type these:
 * they follow from run.coord and run.single_committer. */
#ifndef DL_STORE_WRAP_LAYERS_H
#define DL_STORE_WRAP_LAYERS_H

#include "store/kind.h"

#define DL_STORE_WITH      "\x1f with "
#define DL_STORE_UNGUARDED "\x1f unguarded"

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
