/* layout.h - the names of a run's objects (docs/protocol.md, Layout), and back.
 *
 * Numbers are zero-padded to 10 digits, generations to 4, so a listing is in order.
 * A replica's name is 1 to 31 of [A-Za-z0-9_-]; a generation is "<replica>.<g>". */
#ifndef DL_LOG_LAYOUT_H
#define DL_LOG_LAYOUT_H

#include "base/hash.h"
#include "store/store.h"

enum { DL_FORMAT_VERSION = 1 }; /* of everything in a run */

enum { DL_REPLICA_MAX = 31, DL_GENERATION_TEXT = DL_REPLICA_MAX + 1 + 10 + 1 };

typedef char dl_key[DL_KEY_MAX + 1];

#define DL_GENERATION_ANY UINT32_MAX /* as a generation: any */

/* Generations of one replica that have ended, oldest first. */
enum { DL_FORMER_GENERATIONS_MAX = 32 };
typedef struct dl_former_generations {
    uint32_t at[DL_FORMER_GENERATIONS_MAX];
    size_t n;
} dl_former_generations;

enum { DL_GENERATION_MAX = 9999999 };

/* One generation of a replica (PROTOCOL: generation). */
typedef struct dl_generation {
    char replica[DL_REPLICA_MAX + 1];
    uint32_t number; /* 0 … DL_GENERATION_MAX */
} dl_generation;

bool dl_replica_name_ok(const char *name);
bool dl_generation_ok(const dl_generation *generation);
void dl_generation_text(char out[DL_GENERATION_TEXT],
                        const dl_generation *generation); /* "r0.0003" */
bool dl_generation_parse(dl_generation *out, const char *text, size_t len);
bool dl_generation_equal(const dl_generation *a, const dl_generation *b);
/* By replica name (numbers inside compare as numbers: r2 < r10), then generation: the order of
 * members in an entry. */
int dl_generation_compare(const void *a, const void *b);
int dl_replica_compare(const char *a, const char *b);
/* The order of their keys in a listing: by bytes, where each name ends with a dot. */
int dl_replica_listed_order(const char *a, const char *b);

#define DL_KEY_RUN "run.json"
void dl_key_gen(dl_key out, const dl_generation *generation);       /* gen/r0.0000 */
void dl_key_end(dl_key out, const dl_generation *generation);       /* end/r0.0000 */
void dl_key_heartbeat(dl_key out, const dl_generation *generation); /* hb/r0.0000 */
void dl_key_entry(dl_key out, uint64_t entry);                      /* log/0000000012.json */
void dl_key_contribution(dl_key out, uint64_t entry,
                         const dl_generation *generation); /* c/0000000012/r0.0000 */
void dl_key_contributions(dl_key out, uint64_t entry);     /* c/0000000012/ */
void dl_key_combined(dl_key out, uint64_t entry,
                     const dl_generation *generation); /* x/0000000012/r0.0000 */
/* Where members combine a slice each: a slice of a contribution, b/0000000012/0003/r0.0000.
 * The planned members, x/0000000012/plan/r0.0000. A combined slice, by its owner,
 * x/0000000012/0003/r1.0000=r0.0000 */
void dl_key_slice(dl_key out, uint64_t entry, size_t slice, const dl_generation *generation);
void dl_key_plan(dl_key out, uint64_t entry, const dl_generation *planner);
void dl_key_combined_of(dl_key out, uint64_t entry); /* x/0000000012/ */
void dl_key_plans(dl_key out, uint64_t entry);       /* x/0000000012/plan/ */
void dl_key_combined_slice(dl_key out, uint64_t entry, size_t slice, const dl_generation *owner,
                           const dl_generation *planner);
/* The owner's measurement of it before, x/0000000012/measured/0003/r1.0000=r0.0000 */
void dl_key_measured_slice(dl_key out, uint64_t entry, size_t slice, const dl_generation *owner,
                           const dl_generation *planner);
void dl_key_snapshot(dl_key out, uint64_t entry, const dl_generation *generation, const char *file);
/* snap/0000000012/r0.0000/<file> */
void dl_key_theta0(dl_key out, dl_hash digest);     /* theta0/<hex>.safetensors */
void dl_key_invite(dl_key out, const char *id);     /* invite/<32 hex digits> */
void dl_key_admit(dl_key out, const char *replica); /* admit/r0 */
void dl_key_record(dl_key out, const dl_generation *generation,
                   uint64_t part); /* rec/r0.0000/0000000000.jsonl.zst */
/* A part of the output of a job of `diloco launch`, whose name is like that of a replica, but
 * longer. `process` counts the processes of the job, from 1:
 * out/diloco-1f0c2ab9-r3-g0/0000000001-0000000000.zst */
enum { DL_OUTPUT_JOB_MAX = 63 };
void dl_key_output(dl_key out, const char *job, uint64_t process, uint64_t part);

/* Read the parts of a listed key, and return false if it is of another kind. */
bool dl_key_parse_generation(dl_generation *out, const char *key,
                             const char *folder); /* "gen/", "hb/", "end/" */
bool dl_key_parse_entry(uint64_t *entry, const char *key);
bool dl_key_parse_contribution(uint64_t *entry, dl_generation *generation, const char *key);
bool dl_key_parse_plan(uint64_t *entry, dl_generation *planner, const char *key);
bool dl_key_parse_snapshot(uint64_t *entry, dl_generation *generation,
                           const char *key); /* manifest.json only */
bool dl_key_parse_record(dl_generation *generation, uint64_t *part, const char *key);
bool dl_key_parse_output(char job[DL_OUTPUT_JOB_MAX + 1], uint64_t *process, uint64_t *part,
                         const char *key);
bool dl_output_job_ok(const char *job); /* 1 to 63 of [A-Za-z0-9_-] */

/* The entry number of any key "<folder>/<e>/…". */
bool dl_key_entry_of(uint64_t *entry, const char *key);

#endif
