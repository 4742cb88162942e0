/* kinds.h - sums of the record's "traffic" lines: the bytes that processes have moved, by kind of
 * object. */
#ifndef DL_CLI_DISPLAY_KINDS_H
#define DL_CLI_DISPLAY_KINDS_H

#include "base/json.h"

/* More than the kinds of a record (docs/architecture.md section 9), with room for later ones. */
enum { DL_KINDS_MAX = 16 };

/* Sums by kind, in the order in which kinds were first seen. All zero at first; one thread. */
typedef struct dl_kinds {
    size_t n, lines; /* kinds; "traffic" lines that were added */
    struct {
        char name[24]; /* "first model" */
        uint64_t sent, received;
    } at[DL_KINDS_MAX];
} dl_kinds;

/* dl_kinds_add adds a "traffic" line. A member that is no number counts as 0. After DL_KINDS_MAX
 * kinds further kinds are left out. */
void dl_kinds_add(dl_kinds *kinds, dl_json_value traffic);

uint64_t dl_kinds_sent(const dl_kinds *kinds); /* of all kinds */
uint64_t dl_kinds_received(const dl_kinds *kinds);

/* The most text that dl_kinds_text writes. */
enum { DL_KINDS_TEXT = DL_KINDS_MAX * 80 };
/* "contributions 29.9 kB sent, 29.9 kB received; log …": the kinds that moved anything, the largest
 * first. Returns out. */
const char *dl_kinds_text(char out[DL_KINDS_TEXT], const dl_kinds *kinds);

/* Members "sent" and "received" of the open object, as the record has them. */
void dl_kinds_json(dl_json *j, const dl_kinds *kinds);

#endif
