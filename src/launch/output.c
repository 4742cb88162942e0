/* output.c - see output.h. */
#include "launch/output.h"

#include "base/log.h"
#include "launch/lines.h"
#include "launch/shipper.h"
#include "log/layout.h"
#include "log/zstd_text.h"

#include <string.h>

/* Bytes of the object of one part: text that does not shrink is a little longer as a frame. */
enum { FRAME_MAX = DL_OUTPUT_TEXT + (64 << 10) };

/* Parts of one listing: far more than a job keeps, for forged ones may be among them. */
enum { LISTED_MAX = 1 << 20 };

/* For one request to the store; between two looks, unless launch.poll is shorter. */
static const dl_time PATIENCE = 60 * DL_SECOND, PERIOD = 5 * DL_SECOND;

typedef struct part {
    uint64_t process, number;
    bool is_read;
} part;

typedef struct reading {
    dl_store *store;
    const dl_job *job;
    dl_buf parts;  /* part[], in ascending order: of the newest listing */
    dl_buf listed; /* part[], of the listing in progress */
    bool begun;    /* text was read, of a part of the process `process` at last */
    uint64_t process;
    dl_buf frame, text;
    dl_lines lines;
} reading;

static dl_time soon(void)
{
    return dl_time_after(dl_clock_now(), PATIENCE);
}

static diloco_status on_found(void *context, const char *key, size_t len)
{
    reading *r = context;
    char job[DL_OUTPUT_JOB_MAX + 1];
    part found = {.is_read = false};
    (void)len;
    if (!dl_key_parse_output(job, &found.process, &found.number, key)) return DILOCO_OK;
    if (r->listed.len == LISTED_MAX * sizeof found)
        return dl_fail(DILOCO_EPROTO,
                       "out/%s/ in %s has more than %d objects: delete those of other programs",
                       r->job->name, dl_store_url(r->store), LISTED_MAX);
    return dl_buf_add(&r->listed, &found, sizeof found);
}

static part *parts_of(const dl_buf *list, size_t *n)
{
    *n = list->len / sizeof(part);
    return (part *)list->data;
}

static bool is_before(const part *a, const part *b)
{
    return a->process != b->process ? a->process < b->process : a->number < b->number;
}

/* Mark those parts of the new listing that were read after the previous one. */
static void carry_over(reading *r)
{
    size_t n, n_old, k = 0;
    part *parts = parts_of(&r->listed, &n), *old = parts_of(&r->parts, &n_old);
    for (size_t i = 0; i < n; i++) {
        while (k < n_old && is_before(&old[k], &parts[i]))
            k++;
        if (k < n_old && !is_before(&parts[i], &old[k])) parts[i].is_read = old[k].is_read;
    }
}

/* Set `parts` to those that there are now. Each listing has the whole folder, since a new part may
 * come before a forged one that was read. */
static diloco_status list(reading *r)
{
    char folder[DL_OUTPUT_JOB_MAX + 8];
    snprintf(folder, sizeof folder, "out/%s/", r->job->name);
    dl_buf_clear(&r->listed);
    DL_TRY(dl_store_list(r->store, folder, NULL, on_found, r, soon()));
    carry_over(r);
    const dl_buf old = r->parts;
    r->parts = r->listed;
    r->listed = old;
    return DILOCO_OK;
}

/* The oldest parts are removed while the output grows. Another process of the job begins a line. */
static diloco_status note_place(reading *r, const part *p)
{
    const bool first = !r->begun;
    if (first && (p->process > 1 || p->number > 0))
        dl_log(DILOCO_LOG_WARN, "the store keeps the end of the output of %s, and no longer all",
               r->job->name);
    if (!first && p->process != r->process && r->lines.line.len)
        return dl_lines_add(&r->lines, "\n", 1);
    return DILOCO_OK;
}

/* Set `text` to that of a part. The bytes are untrusted. Returns DILOCO_ENOENT for a part that was
 * removed since the listing, and DILOCO_EPROTO for an object that is no part. */
static diloco_status fetch(reading *r, const char *key)
{
    dl_buf_clear(&r->frame);
    dl_buf_clear(&r->text);
    DL_TRY(dl_store_get(r->store, &r->frame, key, soon()));
    return dl_unzip(&r->text, r->frame.data, r->frame.len);
}

static diloco_status read_part(reading *r, part *p)
{
    dl_key key;
    dl_key_output(key, r->job->name, p->process, p->number);
    const diloco_status status = fetch(r, key);
    if (status && status != DILOCO_ENOENT && status != DILOCO_EPROTO) return status;
    if (status == DILOCO_EPROTO)
        dl_log(DILOCO_LOG_WARN, "%s in %s is left out: %s", key, dl_store_url(r->store),
               diloco_error_text());
    if (!status) DL_TRY(note_place(r, p));
    if (!status) DL_TRY(dl_lines_add(&r->lines, (const char *)r->text.data, r->text.len));
    if (!status) r->process = p->process;
    if (!status) r->begun = true;
    p->is_read = true;
    return DILOCO_OK;
}

/* Read the parts that there are now and that were not read before. */
static diloco_status read_parts(reading *r)
{
    size_t n;
    DL_TRY(list(r));
    part *parts = parts_of(&r->parts, &n);
    for (size_t i = 0; i < n; i++)
        if (!parts[i].is_read) DL_TRY(read_part(r, &parts[i]));
    return DILOCO_OK;
}

static void pause_between(const dl_config *config)
{
    const dl_time poll = dl_time_from_seconds(config->launch_poll_s);
    dl_clock_sleep(poll && poll < PERIOD ? poll : PERIOD);
}

/* One more read follows after the job is over, for the last part. */
static diloco_status follow_parts(reading *r, const dl_executor *executor,
                                  const dl_launch_spec *spec)
{
    dl_job now = *r->job;
    bool over = false;
    while (!over) {
        over = dl_job_is_over(now.state);
        pause_between(spec->config);
        diloco_status status = over ? DILOCO_OK : executor->poll(spec, &now, 1);
        if (!status) status = read_parts(r);
        if (status && status != DILOCO_EUNREACHABLE && status != DILOCO_ETIMEDOUT) return status;
        if (status) over = false;
    }
    return DILOCO_OK;
}

diloco_status dl_output_read(const dl_executor *executor, const dl_launch_spec *spec,
                             dl_store *store, const dl_job *job, bool follow, dl_job_line_fn fn,
                             void *user)
{
    if (!dl_output_is_shipped(executor)) return executor->logs(spec, job, follow, fn, user);
    reading r = {.store = store, .job = job};
    dl_buf_init(&r.parts, LISTED_MAX * sizeof(part));
    dl_buf_init(&r.listed, LISTED_MAX * sizeof(part));
    dl_buf_init(&r.frame, FRAME_MAX);
    dl_buf_init(&r.text, DL_OUTPUT_TEXT);
    dl_lines_init(&r.lines, fn, user);
    diloco_status status = read_parts(&r);
    if (!status && follow) status = follow_parts(&r, executor, spec);
    status = dl_lines_end(&r.lines, status);
    dl_buf_deinit(&r.parts);
    dl_buf_deinit(&r.listed);
    dl_buf_deinit(&r.frame);
    dl_buf_deinit(&r.text);
    return status;
}
