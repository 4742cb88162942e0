/* view_model.h - a page's data of a run, in memory. It is built from the run's entries and the
 * lines of its record as they come, in any order between the two.
 *
 * Memory is bounded. There is one mark an entry. Cells (one or several entries of one replica) are
 * merged in pairs when there are more than DL_MODEL_CELLS. Steps are kept in DL_MODEL_STEPS bins
 * that widen. Events are a ring.
 *
 * Entries come from the log. Lines come from replicas and are untrusted: a replica may write any
 * number, and any other replica's name into a list. They inform people, and nothing else depends on
 * them. One thread at a time. */
#ifndef DL_VIEW_VIEW_MODEL_H
#define DL_VIEW_VIEW_MODEL_H

#include "base/json.h"
#include <diloco/inspect.h>

/* Bounds of memory: cells of all lanes (2 million, of 60 bytes), bins of steps, lanes, and events.
 * A replica beyond DL_MODEL_LANES has no lane, and the totals still count it. */
enum {
    DL_MODEL_CELLS = 1 << 21,
    DL_MODEL_STEPS = 2048,
    DL_MODEL_LANES = 1024,
    DL_MODEL_EVENTS = 512,
};

/* One entry as the curves show it. Numbers that were not reported are NAN. */
typedef struct dl_mark {
    /* loss: the mean over the members. time: of the earliest commit line about it, seconds
     * since 1970. */
    double loss, time;
    double bytes, steps, samples;
    double similarity, norm,
        divergence; /* of the combined update; see docs/architecture.md section 9 */
    double eval_loss, eval_loss_after;
    uint64_t position;
    uint32_t fragment;
    uint16_t n_members, n_rejected;
    /* commit: not an abort. chained: the entry names the digest of the entry before it. */
    bool commit, chained;
} dl_mark;

/* A replica's part in an entry, as bits: a cell of several entries has those of all of them. */
typedef enum dl_part {
    DL_PART_NONE = 0,
    DL_PART_MEMBER = 1,
    DL_PART_MISSING = 2,
    DL_PART_REJECTED = 4
} dl_part;

/* One replica at one entry, or at all entries of a bin. Seconds are sums; norm and cosine are the
 * last known ones. */
typedef struct dl_cell {
    double end; /* of the last, seconds since 1970; 0: not known */
    /* Seconds of training, of encoding and uploading the contribution, of waiting for the entry,
     * and of the whole exchange (which includes encoding and uploading). */
    float train_s, encode_s, put_s, wait_s, rest_s;
    float norm;     /* of its contribution; 0: not known */
    float cosine;   /* of it with the combined update, which it is a part of; likewise */
    uint32_t stale; /* steps between the capture and its adoption, the largest */
    uint16_t generation, parts; /* dl_part, of any of them */
} dl_cell;

/* One replica over the whole run: a row of the page's time line, and its sums. */
typedef struct dl_lane {
    char replica[32];
    dl_cell *cells; /* [n] by entry >> shift; owned */
    size_t n, cap;
    double sent, received, writes, reads; /* of its commit lines */
    double tokens, trained_s;             /* of its step lines */
    uint64_t joined; /* 1 + the newest generation whose first line was read; 0: of none */
    bool running;    /* its last line was not */
} dl_lane;

/* Steps of all replicas within a range of positions: the sum of n losses, and the tokens. */
typedef struct dl_step_bin {
    double sum, tokens;
    uint64_t n;
} dl_step_bin;

/* An event of the run, for the page's list. */
typedef struct dl_happening {
    double time;    /* seconds since 1970; 0: not known */
    uint64_t entry; /* UINT64_MAX: of none */
    char kind[12];  /* "join", "end", "death", "abort", "reject", "dispute", "warn", "peer" */
    char replica[48];
    char text[200];
} dl_happening;

typedef struct dl_model_total {
    uint64_t n_commits, n_aborts, n_unchained, n_disputes, n_rejected;
    uint64_t first_unchained;           /* meaningful where n_unchained > 0 */
    double bytes, n_steps_all, samples; /* of all commits */
} dl_model_total;

/* All that is remembered of a run. The arrays are owned. */
typedef struct dl_model {
    dl_mark *marks; /* [n_marks] those from n_entries on have lines of the record only */
    size_t n_marks, n_entries, cap_marks;
    dl_lane *lanes; /* [n_lanes] */
    size_t n_lanes, n_cells;
    size_t newest_lane; /* that was found last: lines and members come in the lanes' order */
    /* A cell is of 1 << shift entries, the same in all lanes. It grows when the cells are too
     * many. */
    unsigned shift;
    dl_step_bin steps[DL_MODEL_STEPS];
    uint64_t step_width, n_steps;             /* of a bin, in positions; bins in use */
    double tokens, step_samples;              /* of all step lines */
    dl_happening happenings[DL_MODEL_EVENTS]; /* a ring: the newest are kept */
    uint64_t n_happenings;
    double began, data_parallel_bytes, utilization; /* began: time of the first "run" line */
    size_t n_utilization;
    dl_model_total total;
} dl_model;

/* init makes an empty model. deinit frees the arrays and leaves an empty model. */
void dl_model_init(dl_model *m);
void dl_model_deinit(dl_model *m);

/* dl_model_entry adds the next entry of the log; entries come in order. `chained` is the follower's
 * judgement of it. Returns DILOCO_ENOMEM, or DILOCO_EINVAL beyond the first 16 million entries.
 * After an error the model may have a part of the entry. */
DL_MUST_CHECK diloco_status dl_model_entry(dl_model *m, const diloco_log_entry *entry,
                                           bool chained);
/* dl_model_line adds a line [len] of the record of `replica`. A damaged line, one of another kind,
 * or one about an entry far beyond the log adds nothing and is no error. Returns DILOCO_ENOMEM. */
DL_MUST_CHECK diloco_status dl_model_line(dl_model *m, const char *replica, const char *line,
                                          size_t len);

const dl_lane *dl_model_lane(const dl_model *m, const char *replica); /* NULL: none */

/* dl_lane_sum returns the sum of a replica's cells for entries [from, to). Where a cell is of
 * several entries, all cells that touch the range count in full. `shift` is the model's. */
dl_cell dl_lane_sum(const dl_lane *lane, unsigned shift, uint64_t from, uint64_t to);

#endif
