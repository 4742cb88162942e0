/* view_model.c - see view_model.h.
 *
 * A line of the record is parsed once, and a table of its members is passed to the function for its
 * event. Values of a line are checked before they are used. An entry has to be one that there is or
 * soon will be, a number finite, and a time before LATEST. A lane belongs to a replica's name, so
 * all generations of a replica share one. */
#include "view/view_model.h"

#include "base/hash.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bounds on numbers in untrusted lines: without them one line could make the model reserve memory
 * for any number of entries. */
enum {
    MOST_ENTRIES = 1 << 24,
    AHEAD = 64 /* the record is untrusted: it speaks of entries that there are, or soon will be */
};
#define LATEST 1e11 /* a time after this, in seconds since 1970, is invalid */

void dl_model_init(dl_model *m)
{
    *m = (dl_model){.step_width = 1};
}

void dl_model_deinit(dl_model *m)
{
    for (size_t i = 0; i < m->n_lanes; i++)
        free(m->lanes[i].cells);
    free(m->lanes);
    free(m->marks);
    dl_model_init(m);
}

/* ---- marks and cells */

/* The mark of an entry. Marks up to it are made, since a line may come before its entry. The array
 * grows to twice the size. */
static diloco_status mark_of(dl_mark **out, dl_model *m, uint64_t entry)
{
    if (entry >= MOST_ENTRIES)
        return dl_fail(DILOCO_EINVAL, "entry %llu: a page shows the first %d entries",
                       (unsigned long long)entry, MOST_ENTRIES);
    if (entry >= m->cap_marks) {
        const size_t cap = 2 * (size_t)entry + 64;
        dl_mark *more = realloc(m->marks, cap * sizeof *more);
        if (!more) return dl_fail(DILOCO_ENOMEM, "out of memory for the entries of a run");
        m->marks = more;
        m->cap_marks = cap;
    }
    for (; m->n_marks <= entry; m->n_marks++)
        m->marks[m->n_marks] = (dl_mark){.loss = NAN,
                                         .time = NAN,
                                         .similarity = NAN,
                                         .norm = NAN,
                                         .divergence = NAN,
                                         .eval_loss = NAN,
                                         .eval_loss_after = NAN};
    *out = &m->marks[entry];
    return DILOCO_OK;
}

/* Lines and members usually come in the lanes' order, so the search begins at the last lane found
 * and the one after it. Otherwise it is linear in the lanes. */
const dl_lane *dl_model_lane(const dl_model *m, const char *replica)
{
    const size_t last = m->newest_lane;
    for (size_t i = last; i < last + 2 && i < m->n_lanes; i++)
        if (!strcmp(m->lanes[i].replica, replica)) return &m->lanes[i];
    for (size_t i = 0; i < m->n_lanes; i++)
        if (!strcmp(m->lanes[i].replica, replica)) return &m->lanes[i];
    return NULL;
}

/* Find the lane of a replica, or add one. *out is NULL if there are too many replicas for a
 * page. */
static diloco_status lane_of(dl_lane **out, dl_model *m, const char *replica)
{
    *out = (dl_lane *)(uintptr_t)dl_model_lane(m, replica);
    if (*out) m->newest_lane = (size_t)(*out - m->lanes);
    if (*out || m->n_lanes == DL_MODEL_LANES) return DILOCO_OK;
    dl_lane *more = realloc(m->lanes, (m->n_lanes + 1) * sizeof *more);
    if (!more) return dl_fail(DILOCO_ENOMEM, "out of memory for the replicas of a run");
    m->lanes = more;
    *out = &more[m->n_lanes++];
    **out = (dl_lane){.n = 0};
    snprintf((*out)->replica, sizeof(*out)->replica, "%s", replica);
    return DILOCO_OK;
}

/* Add the numbers of an entry to a cell of earlier ones. Parts are joined, because a rejection in
 * any entry of a bin has to stay visible. */
static void merge(dl_cell *to, const dl_cell *with)
{
    to->end = fmax(to->end, with->end);
    to->train_s += with->train_s;
    to->encode_s += with->encode_s;
    to->put_s += with->put_s;
    to->wait_s += with->wait_s;
    to->rest_s += with->rest_s;
    if (with->norm > 0) to->norm = with->norm;
    if (with->cosine != 0) to->cosine = with->cosine;
    if (with->stale > to->stale) to->stale = with->stale;
    if (with->generation > to->generation) to->generation = with->generation;
    to->parts |= with->parts;
}

/* Merge pairs of cells in all lanes. Each halving doubles the entries of a cell, so a run of n
 * entries has at most log2(n) of them. */
static void halve(dl_model *m)
{
    m->n_cells = 0;
    m->shift++;
    for (size_t l = 0; l < m->n_lanes; l++) {
        dl_lane *lane = &m->lanes[l];
        for (size_t i = 0; 2 * i < lane->n; i++) {
            dl_cell both = lane->cells[2 * i];
            if (2 * i + 1 < lane->n) merge(&both, &lane->cells[2 * i + 1]);
            lane->cells[i] = both;
        }
        lane->n = (lane->n + 1) / 2;
        m->n_cells += lane->n;
    }
}

/* The cell of a lane at an entry. Halving changes `shift`, so it comes before the index is
 * computed. */
static diloco_status cell_of(dl_cell **out, dl_model *m, dl_lane *lane, uint64_t entry)
{
    if (m->n_cells > DL_MODEL_CELLS) halve(m);
    const size_t at = (size_t)(entry >> m->shift);
    if (at >= lane->cap) {
        const size_t cap = 2 * at + 16;
        dl_cell *more = realloc(lane->cells, cap * sizeof *more);
        if (!more) return dl_fail(DILOCO_ENOMEM, "out of memory for what a replica did");
        lane->cells = more;
        lane->cap = cap;
    }
    for (; lane->n <= at; lane->n++, m->n_cells++)
        lane->cells[lane->n] = (dl_cell){.end = 0};
    *out = &lane->cells[at];
    return DILOCO_OK;
}

/* The cell of a replica ("r0"), or of a generation ("r0.0001"), at an entry. *out is NULL if the
 * name is too long or there is no lane for it. A generation is remembered in the cell. */
static diloco_status find_cell(dl_cell **out, dl_model *m, const char *generation, uint64_t entry)
{
    char replica[32];
    dl_lane *lane;
    const char *dot = strrchr(generation, '.');
    const size_t len = dot ? (size_t)(dot - generation) : strlen(generation);
    *out = NULL;
    if (len == 0 || len >= sizeof replica || entry >= MOST_ENTRIES) return DILOCO_OK;
    snprintf(replica, sizeof replica, "%.*s", (int)len, generation);
    DL_TRY(lane_of(&lane, m, replica));
    if (!lane) return DILOCO_OK;
    DL_TRY(cell_of(out, m, lane, entry));
    if (dot) {
        const unsigned long number = strtoul(dot + 1, NULL, 10);
        if (number > (*out)->generation && number < UINT16_MAX)
            (*out)->generation = (uint16_t)number;
    }
    return DILOCO_OK;
}

dl_cell dl_lane_sum(const dl_lane *lane, unsigned shift, uint64_t from, uint64_t to)
{
    dl_cell sum = {.end = 0};
    for (size_t i = (size_t)(from >> shift); i < lane->n && ((uint64_t)i << shift) < to; i++)
        merge(&sum, &lane->cells[i]);
    return sum;
}

/* ---- the log */

/* Add an event; the oldest one is overwritten when the ring is full. The pointer is valid until
 * DL_MODEL_EVENTS more have been added. */
static dl_happening *happening(dl_model *m, const char *kind, uint64_t entry, double time)
{
    dl_happening *h = &m->happenings[m->n_happenings++ % DL_MODEL_EVENTS];
    *h = (dl_happening){.time = time > 0 ? time : 0, .entry = entry};
    snprintf(h->kind, sizeof h->kind, "%s", kind);
    return h;
}

static diloco_status mark_part(dl_model *m, const char *generation, uint64_t entry, dl_part part)
{
    dl_cell *cell;
    DL_TRY(find_cell(&cell, m, generation, entry));
    if (cell) cell->parts |= (uint16_t)part;
    return DILOCO_OK;
}

/* Sums over the log are kept here, since a page does not read the log again. Losses and bytes count
 * for commits only: an abort has no members. */
diloco_status dl_model_entry(dl_model *m, const diloco_log_entry *e, bool chained)
{
    dl_mark *mark;
    DL_TRY(mark_of(&mark, m, e->entry));
    mark->commit = e->commit;
    mark->chained = chained;
    mark->fragment = e->fragment;
    mark->position = e->position;
    mark->n_members = (uint16_t)e->n_members;
    mark->n_rejected = (uint16_t)e->n_rejected;
    m->n_entries = (size_t)e->entry + 1;
    if (!chained && !m->total.n_unchained++) m->total.first_unchained = e->entry;
    m->total.n_rejected += e->n_rejected;
    if (e->commit) {
        mark->loss = e->loss;
        mark->bytes = (double)e->bytes + (double)e->combined_bytes;
        mark->steps = (double)e->steps;
        mark->samples = (double)e->samples;
        m->total.bytes += mark->bytes;
        m->total.n_steps_all += mark->steps;
        m->total.samples += mark->samples;
        m->total.n_commits++;
    } else {
        dl_happening *h = happening(m, "abort", e->entry, 0);
        m->total.n_aborts++;
        snprintf(h->text, sizeof h->text, "%s", e->reason ? e->reason : "");
    }
    for (size_t i = 0; e->commit && i < e->n_members; i++)
        DL_TRY(mark_part(m, e->members[i], e->entry, DL_PART_MEMBER));
    for (size_t i = 0; i < e->n_rejected; i++) {
        dl_happening *h = happening(m, "reject", e->entry, 0);
        snprintf(h->replica, sizeof h->replica, "%s", e->rejected[i]);
        snprintf(h->text, sizeof h->text, "%s", e->rejected_for[i]);
        DL_TRY(mark_part(m, e->rejected[i], e->entry, DL_PART_REJECTED));
    }
    return DILOCO_OK;
}

/* ---- the record */

/* The members of a line that count here. They are found in one pass: a line is short, lines are
 * many, and a look-up of each would walk the line again. */
typedef enum field {
    F_EVENT,
    F_ENTRY,
    F_POSITION,
    F_TOKENS,
    F_TOKENS_PER_S,
    F_SAMPLES,
    F_LOSS,
    F_ENCODE_S,
    F_PUT_S,
    F_PSEUDO_GRAD_NORM,
    F_MISSING,
    F_PEER_GRAD_SIMILARITY,
    F_AGGREGATED_GRAD_NORM,
    F_WEIGHT_DIVERGENCE,
    F_OWN_SIMILARITY,
    F_WAIT_S,
    F_EXCHANGE_S,
    F_BYTES_SENT,
    F_BYTES_RECEIVED,
    F_REQUESTS_WRITE,
    F_REQUESTS_READ,
    F_TAKEN_AT,
    F_LOSS_AFTER_SYNC,
    F_TIME,
    F_GENERATION,
    F_DATA_PARALLEL_BYTES,
    F_UTILIZATION,
    F_TEXT,
    F_OF,
    N_FIELDS
} field;

static const char *const field_names[N_FIELDS] = {
    [F_EVENT] = "event",
    [F_ENTRY] = "entry",
    [F_POSITION] = "position",
    [F_TOKENS] = "tokens",
    [F_TOKENS_PER_S] = "tokens_per_s",
    [F_SAMPLES] = "samples",
    [F_LOSS] = "loss",
    [F_ENCODE_S] = "encode_s",
    [F_PUT_S] = "put_s",
    [F_PSEUDO_GRAD_NORM] = "pseudo_grad_norm",
    [F_MISSING] = "missing",
    [F_PEER_GRAD_SIMILARITY] = "peer_grad_similarity",
    [F_AGGREGATED_GRAD_NORM] = "aggregated_grad_norm",
    [F_WEIGHT_DIVERGENCE] = "weight_divergence",
    [F_OWN_SIMILARITY] = "own_similarity",
    [F_WAIT_S] = "wait_s",
    [F_EXCHANGE_S] = "exchange_s",
    [F_BYTES_SENT] = "bytes_sent",
    [F_BYTES_RECEIVED] = "bytes_received",
    [F_REQUESTS_WRITE] = "requests_write",
    [F_REQUESTS_READ] = "requests_read",
    [F_TAKEN_AT] = "taken_at",
    [F_LOSS_AFTER_SYNC] = "loss_after_sync",
    [F_TIME] = "time",
    [F_GENERATION] = "life",
    [F_DATA_PARALLEL_BYTES] = "data_parallel_bytes",
    [F_UTILIZATION] = "utilization",
    [F_TEXT] = "text",
    [F_OF] = "of",
};

typedef struct fields {
    dl_json_value at[N_FIELDS]; /* MISSING where it is absent */
} fields;

/* Names without escapes are compared, as a record's writer never escapes them. Of two equal members
 * the last one counts. */
static fields gather(dl_json_value object)
{
    fields f = {0};
    for (dl_json_iter it = dl_json_each(object); dl_json_next(&it);) {
        const size_t len = (size_t)(it.key.end - it.key.at) - 2; /* without its quotes */
        for (int i = 0; it.key.type == DL_JSON_STRING && i < N_FIELDS; i++)
            if (!strncmp(field_names[i], it.key.at + 1, len) && !field_names[i][len]) {
                f.at[i] = it.value;
                break;
            }
    }
    return f;
}

/* The two functions differ in the value of a member that is absent or not finite: 0 adds nothing to
 * a sum, and NAN leaves a gap in a curve. */
static double number(const fields *f, field which)
{
    double value = 0;
    return !dl_json_as_f64(&value, f->at[which]) && isfinite(value) ? value : 0;
}

static double number_or_nan(const fields *f, field which)
{
    double value;
    return !dl_json_as_f64(&value, f->at[which]) && isfinite(value) ? value : NAN;
}

static double time_of(const fields *f)
{
    const double time = number(f, F_TIME);
    return time > 0 && time < LATEST ? time : 0;
}

/* The entry that a line is about; false: it is about none that could be. */
static bool entry_of(uint64_t *out, const dl_model *m, const fields *f)
{
    return !dl_json_as_u64(out, f->at[F_ENTRY], (uint64_t)m->n_entries + AHEAD);
}

static void text_of(char *out, size_t cap, const fields *f, field which)
{
    if (dl_json_as_str(out, cap, f->at[which])) out[0] = 0;
}

/* Merge the bins of steps in pairs, in place: bin i is written after bins 2i and 2i + 1 were
 * read. */
static void widen_steps(dl_model *m)
{
    for (size_t i = 0; i < DL_MODEL_STEPS / 2; i++) {
        const dl_step_bin *a = &m->steps[2 * i], *b = a + 1;
        m->steps[i] = (dl_step_bin){a->sum + b->sum, a->tokens + b->tokens, a->n + b->n};
    }
    memset(m->steps + DL_MODEL_STEPS / 2, 0, sizeof m->steps / 2);
    m->step_width *= 2;
    m->n_steps = (m->n_steps + 1) / 2;
}

/* A step counts in the bin of its position and in the replica's cell. The bound of 2^40 on a
 * position keeps the widening short. */
static diloco_status take_step(dl_model *m, const char *replica, const fields *f)
{
    uint64_t position, entry;
    dl_cell *cell;
    if (dl_json_as_u64(&position, f->at[F_POSITION], (uint64_t)1 << 40) || !entry_of(&entry, m, f))
        return DILOCO_OK;
    const double tokens = number(f, F_TOKENS), rate = number(f, F_TOKENS_PER_S);
    const double loss = number_or_nan(f, F_LOSS), s = rate > 0 ? tokens / rate : 0;
    while (position / m->step_width >= DL_MODEL_STEPS)
        widen_steps(m);
    const size_t bin = (size_t)(position / m->step_width);
    if (bin >= m->n_steps) m->n_steps = bin + 1;
    if (isfinite(loss)) m->steps[bin].sum += loss, m->steps[bin].n++;
    m->steps[bin].tokens += tokens;
    m->tokens += tokens;
    m->step_samples += number(f, F_SAMPLES);
    DL_TRY(find_cell(&cell, m, replica, entry));
    if (!cell) return DILOCO_OK;
    cell->train_s += (float)s;
    dl_lane *lane = (dl_lane *)(uintptr_t)dl_model_lane(m, replica);
    lane->tokens += tokens;
    lane->trained_s += s;
    return DILOCO_OK;
}

/* Seconds of several lines about one entry add up: a contribution may be encoded again. */
static diloco_status take_contribution(dl_model *m, const char *replica, const fields *f,
                                       uint64_t entry)
{
    dl_cell *cell;
    DL_TRY(find_cell(&cell, m, replica, entry));
    if (!cell) return DILOCO_OK;
    cell->encode_s += (float)number(f, F_ENCODE_S);
    cell->put_s += (float)number(f, F_PUT_S);
    cell->norm = (float)number(f, F_PSEUDO_GRAD_NORM);
    return DILOCO_OK;
}

/* Only replicas that have a lane are marked. A forged list of names must not make lanes. */
static diloco_status take_missing(dl_model *m, const fields *f, uint64_t entry)
{
    dl_json_iter it = dl_json_each(f->at[F_MISSING]);
    while (dl_json_next(&it)) {
        char replica[32];
        if (!dl_json_as_str(replica, sizeof replica, it.value) && dl_model_lane(m, replica))
            DL_TRY(mark_part(m, replica, entry, DL_PART_MISSING));
    }
    return DILOCO_OK;
}

/* Every replica writes a line about each entry. The measures of the combined update are equal in
 * all of them, so the first ones are kept. Seconds and traffic are the replica's own. */
static diloco_status take_commit(dl_model *m, const char *replica, const fields *f, uint64_t entry)
{
    dl_mark *mark;
    dl_cell *cell;
    const double time = time_of(f);
    DL_TRY(mark_of(&mark, m, entry));
    if (isnan(mark->similarity)) {
        mark->similarity = number_or_nan(f, F_PEER_GRAD_SIMILARITY);
        mark->norm = number_or_nan(f, F_AGGREGATED_GRAD_NORM);
        mark->divergence = number_or_nan(f, F_WEIGHT_DIVERGENCE);
    }
    if (time > 0 && !(mark->time <= time)) mark->time = time;
    DL_TRY(take_missing(m, f, entry));
    DL_TRY(find_cell(&cell, m, replica, entry));
    if (!cell) return DILOCO_OK;
    cell->wait_s += (float)number(f, F_WAIT_S);
    cell->rest_s += (float)number(f, F_EXCHANGE_S);
    cell->cosine = (float)number(f, F_OWN_SIMILARITY);
    cell->end = fmax(cell->end, time);
    dl_lane *lane = (dl_lane *)(uintptr_t)dl_model_lane(m, replica);
    lane->sent += number(f, F_BYTES_SENT);
    lane->received += number(f, F_BYTES_RECEIVED);
    lane->writes += number(f, F_REQUESTS_WRITE);
    lane->reads += number(f, F_REQUESTS_READ);
    return DILOCO_OK;
}

/* Staleness is the number of steps between the capture and the adoption. */
static diloco_status take_adopt(dl_model *m, const char *replica, const fields *f, uint64_t entry)
{
    dl_cell *cell;
    const double stale = number(f, F_POSITION) - number(f, F_TAKEN_AT);
    DL_TRY(find_cell(&cell, m, replica, entry));
    if (cell && stale > cell->stale && stale < 1e9) cell->stale = (uint32_t)stale;
    return DILOCO_OK;
}

static diloco_status take_eval(dl_model *m, const fields *f, uint64_t entry)
{
    dl_mark *mark;
    const double loss = number_or_nan(f, F_LOSS);
    if (entry == 0 || isnan(loss)) return DILOCO_OK;
    DL_TRY(mark_of(&mark, m, entry - 1)); /* "entry" counts the entries that came before */
    mark->eval_loss = loss;
    mark->eval_loss_after = number_or_nan(f, F_LOSS_AFTER_SYNC);
    return DILOCO_OK;
}

/* The first line of a process. The earliest one is the begin of the run. */
static void take_run(dl_model *m, const fields *f, uint64_t entry)
{
    const double time = time_of(f);
    dl_happening *h = happening(m, "join", entry, time);
    text_of(h->replica, sizeof h->replica, f, F_GENERATION);
    if (time > 0 && (m->began == 0 || time < m->began)) m->began = time;
}

/* The generation of a "run" line; 0 if it has none. */
static uint64_t generation_of(const fields *f)
{
    char generation[48];
    text_of(generation, sizeof generation, f, F_GENERATION);
    const char *dot = strrchr(generation, '.');
    return dot ? strtoul(dot + 1, NULL, 10) : 0;
}

/* A process that is killed writes no last line, and none at all if it is killed before its record
 * reaches the store. The first line of the replica's next process shows that: there was no last
 * line, or a generation was skipped. */
static diloco_status take_join(dl_model *m, const char *replica, const fields *f, uint64_t entry)
{
    dl_lane *lane;
    DL_TRY(lane_of(&lane, m, replica));
    const uint64_t generation = generation_of(f);
    if (lane && (lane->running || (generation > 0 && lane->joined != generation))) {
        dl_happening *h = happening(m, "death", entry, 0);
        snprintf(h->replica, sizeof h->replica, "%s", replica);
        snprintf(h->text, sizeof h->text,
                 "an earlier process of it ended without the last line of its record");
    }
    if (lane) lane->running = true, lane->joined = generation + 1;
    take_run(m, f, entry);
    return DILOCO_OK;
}

/* The first of a process's last lines counts: "end" of a run that is complete, "traffic" of any
 * process. */
static void take_leave(dl_model *m, const char *replica, const fields *f, uint64_t entry)
{
    dl_lane *lane = (dl_lane *)(uintptr_t)dl_model_lane(m, replica);
    if (!lane || !lane->running) return;
    lane->running = false;
    dl_happening *h = happening(m, "end", entry, time_of(f));
    snprintf(h->replica, sizeof h->replica, "%s", replica);
}

static void take_end(dl_model *m, const char *replica, const fields *f, uint64_t entry)
{
    take_leave(m, replica, f, entry);
    m->data_parallel_bytes += number(f, F_DATA_PARALLEL_BYTES);
    m->utilization += number(f, F_UTILIZATION);
    m->n_utilization++;
}

/* An event whose text the line holds. It is kept even if its entry is unknown. */
static void take_note(dl_model *m, const char *replica, const fields *f, const char *kind,
                      field text)
{
    uint64_t entry;
    if (!entry_of(&entry, m, f)) entry = UINT64_MAX;
    dl_happening *h = happening(m, kind, entry, time_of(f));
    snprintf(h->replica, sizeof h->replica, "%s", replica);
    text_of(h->text, sizeof h->text, f, text);
}

/* A line that cannot be parsed is often the last one of a process that was killed while writing
 * it. */
diloco_status dl_model_line(dl_model *m, const char *replica, const char *line, size_t len)
{
    dl_json_value event;
    uint64_t entry;
    if (dl_json_parse(&event, line, len)) return DILOCO_OK;
    const fields all = gather(event), *f = &all;
    const dl_json_value kind = f->at[F_EVENT];
    if (dl_json_is(kind, "step")) return take_step(m, replica, f);
    if (dl_json_is(kind, "warn")) {
        take_note(m, replica, f, "warn", F_TEXT);
        return DILOCO_OK;
    }
    if (dl_json_is(kind, "traffic")) take_leave(m, replica, f, UINT64_MAX);
    if (!entry_of(&entry, m, f)) return DILOCO_OK;
    if (dl_json_is(kind, "commit")) return take_commit(m, replica, f, entry);
    if (dl_json_is(kind, "contribution")) return take_contribution(m, replica, f, entry);
    if (dl_json_is(kind, "adopt")) return take_adopt(m, replica, f, entry);
    if (dl_json_is(kind, "eval")) return take_eval(m, f, entry);
    if (dl_json_is(kind, "run")) return take_join(m, replica, f, entry);
    if (dl_json_is(kind, "end")) take_end(m, replica, f, entry);
    if (dl_json_is(kind, "dispute"))
        m->total.n_disputes++, take_note(m, replica, f, "dispute", F_OF);
    return DILOCO_OK;
}
