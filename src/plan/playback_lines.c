/* playback_lines.c - lines of a record to the moves of replicas.
 *
 *     step           STEP    its seconds are tokens / tokens_per_s
 *     contribution   SEND
 *     commit         APPLY, and whether the last SEND counted
 *     run            a generation begins: earlier lines are forgotten
 *
 * Sizes come from a file: everything grows by doubling up to a limit. */
#include "base/json.h"
#include "plan/playback_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bounds on what a record from outside may make the program keep. LOOK_BACK bounds the search
 * for a contribution, so a hostile record costs no quadratic time. */
enum { MAX_REPLICAS = 4096, MAX_MOVES = 1 << 26, LOOK_BACK = 1 << 15 };

/* ---- growing */

/* Make room for `needed` elements of `size` bytes. Returns DILOCO_EPROTO past `max`, and leaves
 * *array as it was after an error. */
static diloco_status grow(void **array, size_t *cap, size_t size, size_t needed, size_t max)
{
    if (needed <= *cap) return DILOCO_OK;
    if (needed > max) return dl_fail(DILOCO_EPROTO, "the record is longer than can be replayed");
    size_t wanted = *cap ? 2 * *cap : 16;
    while (wanted < needed)
        wanted *= 2;
    void *larger = realloc(*array, wanted * size);
    if (!larger) return dl_fail(DILOCO_ENOMEM, "out of memory for the record");
    *array = larger;
    *cap = wanted;
    return DILOCO_OK;
}

diloco_status dl_playback_create(dl_playback **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? DILOCO_OK : dl_fail(DILOCO_ENOMEM, "out of memory for the record");
}

void dl_playback_destroy(dl_playback *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->n; i++)
        free(r->replicas[i].moves);
    free(r->replicas);
    free(r);
}

dl_move *dl_playback_sent(dl_played *p, size_t end, uint64_t entry)
{
    for (size_t i = end; i-- > 0 && end - i <= LOOK_BACK;)
        if (p->moves[i].kind == DL_MOVE_SEND && p->moves[i].entry == entry) return &p->moves[i];
    return NULL;
}

/* ---- lines to moves */

/* A member that no line is from gets a row too; it is counted as absent later. */
static diloco_status find_replica(dl_played **out, dl_playback *r, const char *name)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->replicas[i].name, name) == 0) {
            *out = &r->replicas[i];
            return DILOCO_OK;
        }
    void *array = r->replicas;
    diloco_status status = grow(&array, &r->cap, sizeof *r->replicas, r->n + 1, MAX_REPLICAS);
    r->replicas = array;
    if (status) return status;
    *out = &r->replicas[r->n++];
    **out = (dl_played){.moves = NULL};
    snprintf((*out)->name, DL_PLAYBACK_NAME_CAP, "%s", name);
    return DILOCO_OK;
}

static diloco_status add_move(dl_played *p, const dl_move *m)
{
    void *array = p->moves;
    diloco_status status = grow(&array, &p->cap, sizeof *p->moves, p->n + 1, MAX_MOVES);
    p->moves = array;
    if (status) return status;
    p->moves[p->n++] = *m;
    return DILOCO_OK;
}

/* Seconds, bytes: finite and not below 0. */
static diloco_status amount(double *out, dl_json_value object, const char *key)
{
    DL_TRY(dl_json_read_f64(out, object, key));
    if (isfinite(*out) && *out >= 0) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "%s is %g", key, *out);
}

/* A step's seconds are its tokens over its rate: the record has no duration of its own. */
static diloco_status take_step(dl_played *p, dl_json_value line)
{
    double tokens, rate;
    uint64_t step;
    DL_TRY(amount(&tokens, line, "tokens"));
    DL_TRY(amount(&rate, line, "tokens_per_s"));
    DL_TRY(dl_json_read_u64(&step, line, "step", UINT64_MAX));
    if (!(rate > 0)) return dl_fail(DILOCO_EPROTO, "tokens_per_s is 0");
    if (!p->n_steps++) p->first_step = step;
    p->step_s += tokens / rate;
    return add_move(p,
                    &(dl_move){.kind = DL_MOVE_STEP, .done = p->n_steps, .seconds = tokens / rate});
}

/* Its line may come some steps later than it was taken. */
static diloco_status take_contribution(dl_played *p, dl_json_value line)
{
    dl_move m = {.kind = DL_MOVE_SEND, .done = p->n_steps};
    uint64_t step;
    DL_TRY(dl_json_read_u64(&m.entry, line, "entry", UINT64_MAX));
    DL_TRY(dl_json_read_u64(&step, line, "step", UINT64_MAX));
    DL_TRY(amount(&m.bytes, line, "bytes"));
    DL_TRY(amount(&m.seconds, line, "encode_s"));
    DL_TRY(amount(&m.put_s, line, "put_s"));
    if (step >= p->first_step && step - p->first_step < p->n_steps)
        m.done = step - p->first_step + 1;
    return add_move(p, &m);
}

/* "r0" of the generation "r0.0000". */
static diloco_status replica_of(char out[DL_PLAYBACK_NAME_CAP], dl_json_value line, const char *key)
{
    DL_TRY(dl_json_read_str(out, DL_PLAYBACK_NAME_CAP, line, key));
    char *dot = strrchr(out, '.');
    if (dot) *dot = '\0';
    return DILOCO_OK;
}

/* `p` may move when a member is new, so it is found again by its index. */
static diloco_status take_commit(dl_playback *r, dl_played *p, dl_json_value line)
{
    dl_move m = {.kind = DL_MOVE_APPLY, .done = p->n_steps};
    char name[DL_PLAYBACK_NAME_CAP];
    DL_TRY(dl_json_read_u64(&m.entry, line, "entry", UINT64_MAX));
    DL_TRY(amount(&m.recorded_bytes, line, "bytes_received"));
    DL_TRY(amount(&m.seconds, line, "outer_s"));
    DL_TRY(replica_of(name, line, "committer"));
    m.committer = strcmp(name, p->name) == 0;
    size_t self = (size_t)(p - r->replicas);
    dl_json_iter members = dl_json_each(dl_json_get(line, "members"));
    while (dl_json_next(&members)) {
        dl_played *member;
        DL_TRY(dl_json_as_str(name, sizeof name, members.value));
        DL_TRY(find_replica(&member, r, name));
        m.n_members++;
        p = &r->replicas[self]; /* the array may have moved */
        dl_move *sent = member == p ? dl_playback_sent(p, p->n, m.entry) : NULL;
        if (sent) sent->counted = true;
    }
    return add_move(p, &m);
}

/* The end line has the replica's totals, from which settle_bytes takes what belongs to no entry. */
static diloco_status take_end(dl_played *p, dl_json_value line)
{
    DL_TRY(amount(&p->utilization, line, "utilization"));
    DL_TRY(amount(&p->end_up, line, "bytes_sent"));
    DL_TRY(amount(&p->end_down, line, "bytes_received"));
    DL_TRY(amount(&p->background_up, line, "background_bytes_sent"));
    return amount(&p->background_down, line, "background_bytes_received");
}

/* The link that a run was tried on. One with losses is not a plan's: then it is estimated. */
static void take_link(dl_playback *r, dl_json_value line)
{
    char text[128];
    if (dl_json_get(line, "link").type != DL_JSON_STRING) return;
    r->names_link = !dl_json_read_str(text, sizeof text, line, "link") &&
                    !dl_plan_link_parse(&r->link, "link", text);
}

/* Of a replica that begins another generation, what the last one did is not part of this run's
 * time. */
static diloco_status take_run(dl_playback *r, dl_json_value line)
{
    char name[DL_PLAYBACK_NAME_CAP];
    dl_played *p;
    take_link(r, line);
    if (dl_json_get(line, "life").type != DL_JSON_STRING) return DILOCO_OK;
    DL_TRY(replica_of(name, line, "life"));
    DL_TRY(find_replica(&p, r, name));
    dl_played fresh = {.moves = p->moves, .cap = p->cap};
    memcpy(fresh.name, p->name, sizeof fresh.name);
    *p = fresh;
    return DILOCO_OK;
}

/* Unknown events are skipped: later versions may add some (docs/architecture.md, section 9). */
static diloco_status take_event(dl_playback *r, dl_json_value line)
{
    char event[32], name[DL_PLAYBACK_NAME_CAP];
    dl_played *p;
    DL_TRY(dl_json_read_str(event, sizeof event, line, "event"));
    if (strcmp(event, "run") == 0) return take_run(r, line);
    bool step = !strcmp(event, "step"), commit = !strcmp(event, "commit");
    bool contribution = !strcmp(event, "contribution"), end = !strcmp(event, "end");
    if (!step && !commit && !contribution && !end) return DILOCO_OK;
    DL_TRY(dl_json_read_str(name, sizeof name, line, "replica"));
    DL_TRY(find_replica(&p, r, name));
    if (step) return take_step(p, line);
    if (contribution) return take_contribution(p, line);
    if (commit) return take_commit(r, p, line);
    return take_end(p, line);
}

/* An error names the line by its number. */
diloco_status dl_playback_line(dl_playback *r, const char *line, size_t len)
{
    dl_json_value value;
    r->line++;
    diloco_status status = dl_json_parse(&value, line, len);
    if (!status) status = take_event(r, value);
    if (status == DILOCO_EPROTO)
        return dl_fail_context(status, "line %llu of the record", (unsigned long long)r->line);
    return status;
}
