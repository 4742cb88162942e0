/* pace_parts.h - the differences between the paces of rounds and of asynchronous runs: one table
 * each, in pace.c and pace_async.c, which alone use this file. */
#ifndef DL_PROTOCOL_PACE_PARTS_H
#define DL_PROTOCOL_PACE_PARTS_H

#include "protocol/pace.h"

typedef struct dl_pace_rules {
    bool counts_own; /* captures are counted by this replica, not by entries of the log */
    dl_pace_capture *(*capture)(const dl_pace *p, uint64_t entry);
    dl_stop (*next)(const dl_pace *p);
    bool (*may_adopt)(const dl_pace *p, uint64_t entry);
    bool (*participates)(const dl_pace *p, uint64_t entry);
    uint64_t (*train_until)(const dl_pace *p);
    bool (*done)(const dl_pace *p);
    /* the entry of this replica's capture number n */
    uint64_t (*entry_of)(const dl_pace *p, uint64_t n);
    bool (*is_mute)(const dl_pace *p, const dl_pace_capture *capture, bool awaited);
    void (*adopted)(dl_pace *p, const dl_pace_capture *capture, dl_adoption how);
    void (*jumped)(dl_pace *p);
    void (*apply)(dl_pace *p, uint64_t entry, uint32_t fragment, bool commit, bool counted);
    /* optional; NULL: from the open entry on */
    uint64_t (*needed_from)(const dl_pace *p, uint64_t open);
    /* optional: a saved pace was loaded; the log is read again; it was read to its end */
    void (*resumed)(dl_pace *p);
    void (*restarted)(dl_pace *p);
    void (*caught_up)(dl_pace *p);
} dl_pace_rules;

extern const dl_pace_rules dl_pace_async;

#endif
