/* follower.c - see follower.h.
 *
 * A generation's parts of the record have consecutive numbers, so the first that is missing is
 * the end. A generation that has ended, or has a successor, is read to its end once more and
 * then left alone. dl_follower_look finds replicas; dl_follower_read reads entries and records. */
#include "inspect/follower.h"

#include "base/log.h"
#include "log/zstd_text.h"
#include "run/open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of one part of a record, packed and unpacked, and generations that are followed. A store
 * is untrusted, so both are bounded. */
enum { PART_MAX = 64 << 20, MOST_GENERATIONS = 65536 };

/* One generation of a replica, and how far its record was read. */
typedef struct followed {
    dl_generation generation;
    uint64_t next; /* part */
    dl_time asked; /* when its next part was last missing; 0: never */
    bool over;     /* nothing of it comes any more */
} followed;

/* The follower owns all of it. Buffers are kept between reads, so following allocates little. */
struct dl_follower {
    dl_reader reader;      /* owned */
    dl_status_book *book;  /* owned: counts of what was read */
    uint64_t next;         /* entry */
    dl_hash before;        /* digest of the text before it; of run.json at first */
    followed *generations; /* [n_generations], owned, by name and number; a look may move them */
    size_t n_generations, cap_generations;
    size_t most_generations; /* in a full table */
    dl_generation fullest;   /* of the replica that had most when the table was last counted */
    bool fullest_is_new;     /* it was counted after the last change of a full table */
    bool none_to_spare;      /* no generation can be given up before the next read */
    bool log_is_read;        /* the last read reached its end */
    dl_buf frame, part;      /* a part as stored, and unpacked */
};

/* Open the run and an empty status. Nothing of the log is read yet. */
diloco_status dl_follower_open(dl_follower **out, const char *url)
{
    *out = NULL;
    dl_follower *f = calloc(1, sizeof *f);
    if (!f) return dl_fail(DILOCO_ENOMEM, "not enough memory to follow %s", url);
    f->most_generations = MOST_GENERATIONS;
    dl_buf_init(&f->frame, PART_MAX);
    dl_buf_init(&f->part, PART_MAX);
    diloco_status status = dl_reader_open(&f->reader, url);
    if (status) {
        free(f);
        return status;
    }
    f->before = f->reader.digest;
    status = dl_status_book_create(&f->book, &f->reader);
    if (status)
        dl_follower_close(f);
    else
        *out = f;
    return status;
}

/* Members that were not made are zero, which each of these calls accepts. */
void dl_follower_close(dl_follower *f)
{
    if (!f) return;
    dl_status_book_destroy(f->book);
    dl_reader_close(&f->reader);
    dl_buf_deinit(&f->frame);
    dl_buf_deinit(&f->part);
    free(f->generations);
    free(f);
}

const diloco_run_status *dl_follower_status(const dl_follower *f)
{
    return dl_status_book_run(f->book);
}

bool dl_follower_has_log(const dl_follower *f)
{
    return f->log_is_read;
}

const dl_runfile *dl_follower_run(const dl_follower *f)
{
    return &f->reader.file;
}

/* ---- the log */

/* One call of dl_follower_read. */
typedef struct reading {
    dl_follower *f;
    const dl_follower_sink *sink; /* of the caller */
    dl_time until;                /* when to stop */
} reading;

/* Called for each new entry. It returns DILOCO_ECLOSED once the time is over, which ends the
 * walk without an error. The count is raised first, so the same entry is not given twice. */
static diloco_status take_entry(void *user, const dl_entry *raw, const diloco_log_entry *entry)
{
    const reading *r = user;
    dl_follower *f = r->f;
    const bool chained = !raw || dl_hash_equal(raw->prev, f->before);
    DL_TRY(dl_status_book_entry(f->book, raw, entry));
    f->before = f->reader.text;
    f->next = entry->entry + 1;
    DL_TRY(r->sink->entry(r->sink->user, entry, chained));
    return dl_clock_now() >= r->until ? DILOCO_ECLOSED : DILOCO_OK;
}

/* ---- the record */

/* Return the place of a generation in the sorted array, or the place to insert it. */
static size_t place_of(const dl_follower *f, const dl_generation *generation)
{
    size_t low = 0, high = f->n_generations;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const dl_generation *g = &f->generations[middle].generation;
        const int order = strcmp(g->replica, generation->replica);
        if (order < 0 || (!order && g->number < generation->number))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Return how many generations of a replica are followed, and the place of the first. */
static size_t n_of(const dl_follower *f, size_t *first, const dl_generation *generation)
{
    dl_generation bound = *generation;
    bound.number = 0;
    *first = place_of(f, &bound);
    bound.number = UINT32_MAX;
    const size_t end = place_of(f, &bound);
    const bool has_last =
        end < f->n_generations && dl_generation_equal(&f->generations[end].generation, &bound);
    return end + has_last - *first;
}

static void find_fullest(dl_follower *f)
{
    size_t most = 0, first;
    for (size_t i = 0, n; i < f->n_generations; i += n) {
        const dl_generation *generation = &f->generations[i].generation;
        n = n_of(f, &first, generation);
        if (n > most) f->fullest = *generation;
        if (n > most) most = n;
    }
    f->fullest_is_new = true;
}

/* Make room in a full table, and return true if there is some now. The replica with most
 * generations gives up one of which no record was found. So the forged generations of one replica
 * hide no other. A replica with about as many gets no room, or each look would displace the same
 * ones again. */
static bool make_room(dl_follower *f, const dl_generation *generation)
{
    size_t first, n = n_of(f, &first, &f->fullest);
    if (f->none_to_spare) return false;
    const size_t own = n_of(f, &first, generation);
    if (n < own + 2 && !f->fullest_is_new) find_fullest(f);
    n = n_of(f, &first, &f->fullest);
    if (n < own + 2) return false;
    for (size_t i = first; i < first + n; i++) {
        if (f->generations[i].next || !f->generations[i].asked) continue;
        f->n_generations--;
        memmove(f->generations + i, f->generations + i + 1,
                (f->n_generations - i) * sizeof *f->generations);
        f->fullest_is_new = false;
        return true;
    }
    f->none_to_spare = true;
    return false;
}

/* Follow one more generation, unless it is followed already, or the table is full. A replica's
 * numbers may be far apart (P26), so they are listed and not counted up. */
static diloco_status add_generation(void *user, const dl_generation *generation)
{
    dl_follower *f = user;
    size_t at = place_of(f, generation);
    if (at < f->n_generations && dl_generation_equal(&f->generations[at].generation, generation))
        return DILOCO_OK;
    if (f->n_generations == f->most_generations && !make_room(f, generation)) return DILOCO_OK;
    const size_t n = f->n_generations;
    at = place_of(f, generation); /* room may have moved it */
    if (n == f->cap_generations) {
        const size_t cap = n ? 2 * n : 16;
        followed *more = realloc(f->generations, cap * sizeof *more);
        if (!more) return dl_fail(DILOCO_ENOMEM, "out of memory for a replica's record");
        f->generations = more;
        f->cap_generations = cap;
    }
    memmove(f->generations + at + 1, f->generations + at, (n - at) * sizeof *f->generations);
    f->generations[at] = (followed){.generation = *generation};
    f->n_generations++;
    return DILOCO_OK;
}

void dl_follower_set_most(dl_follower *f, size_t n)
{
    f->most_generations = n;
}

/* Return true if the generation has a successor or has written end/. Its record then grows no
 * more. */
static bool is_past(const dl_follower *f, const dl_generation *generation)
{
    const diloco_run_status *run = dl_follower_status(f);
    for (size_t i = 0; i < run->n_replicas; i++)
        if (!strcmp(run->replicas[i]->replica, generation->replica))
            return run->replicas[i]->generation > generation->number || run->replicas[i]->ended;
    return false;
}

/* Give each line to the sink. The last one may lack its newline. */
static diloco_status give_lines(const reading *r, const dl_generation *generation)
{
    const char *at = (const char *)r->f->part.data, *end = at + r->f->part.len;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        if (stop > at) DL_TRY(r->sink->line(r->sink->user, generation, at, (size_t)(stop - at)));
        at = newline ? newline + 1 : end;
    }
    return DILOCO_OK;
}

/* Read the next part and give its lines. *there is false if the part does not exist yet. A
 * damaged part is logged and skipped, as the rest of the record is still good. */
static diloco_status read_part(const reading *r, followed *one, bool *there)
{
    dl_follower *f = r->f;
    dl_key key;
    dl_key_record(key, &one->generation, one->next);
    dl_buf_clear(&f->frame);
    dl_buf_clear(&f->part);
    diloco_status status = dl_store_get(f->reader.store, &f->frame, key, dl_reader_limit());
    *there = status != DILOCO_ENOENT;
    if (status == DILOCO_ENOENT) return DILOCO_OK;
    if (!status) status = dl_unzip(&f->part, f->frame.data, f->frame.len);
    if (status && status != DILOCO_EPROTO) return status;
    if (status) dl_log(DILOCO_LOG_WARN, "%s: %s", key, diloco_error_text());
    one->next++;
    return status ? DILOCO_OK : give_lines(r, &one->generation);
}

/* Read what is new of one generation. `past` is taken before reading: parts that were written
 * before the end are then found, and one that is missing afterwards never comes. */
static diloco_status read_generation(const reading *r, size_t i)
{
    const dl_time now = dl_clock_now();
    followed *one = &r->f->generations[i];
    const bool due = !one->asked || dl_seconds(now - one->asked) >= DL_FOLLOWER_RECORD_S;
    if (one->over || !due) return DILOCO_OK;
    const bool past = is_past(r->f, &one->generation);
    bool there = true;
    while (there && dl_clock_now() < r->until)
        DL_TRY(read_part(r, one, &there));
    if (there) return DILOCO_OK;
    one->asked = now;
    one->over = past;
    return DILOCO_OK;
}

/* The log comes first, since people look at the curve before the records. Each of the two stops
 * at `until`, and the next call continues there. */
diloco_status dl_follower_read(dl_follower *f, bool *more, const dl_follower_sink *sink,
                               dl_time until)
{
    reading r = {.f = f, .sink = sink, .until = until};
    *more = true;
    f->log_is_read = f->none_to_spare = false;
    const diloco_status status = dl_reader_walk(&f->reader, f->next, take_entry, &r);
    if (status == DILOCO_ECLOSED) return DILOCO_OK;
    DL_TRY(status);
    f->log_is_read = true;
    for (size_t i = 0; i < f->n_generations; i++) {
        DL_TRY(read_generation(&r, i));
        if (dl_clock_now() >= until) return DILOCO_OK;
    }
    *more = false;
    return DILOCO_OK;
}

/* Return DILOCO_EDIFFERS if another run has taken this one's place. A run that was removed and
 * made again is another. */
static diloco_status check_run(dl_follower *f)
{
    dl_hash digest;
    dl_runfile *file = calloc(1, sizeof *file); /* too large for a small stack */
    if (!file) return dl_fail(DILOCO_ENOMEM, "not enough memory to read run.json");
    diloco_status status = dl_run_read(file, &digest, f->reader.store);
    if (!status) dl_runfile_deinit(file);
    free(file);
    if (!status && !dl_hash_equal(digest, f->reader.digest))
        status = dl_fail(DILOCO_EDIFFERS, "another run has taken the place of run %s",
                         f->reader.file.id);
    return status;
}

diloco_status dl_follower_look(dl_follower *f)
{
    DL_TRY(check_run(f));
    dl_status_book_listen(f->book, add_generation, f);
    return dl_status_book_look(f->book, &f->reader, -1);
}
