/* book.c - see book.h.
 *
 * The fold_… functions apply one record each to the book's state, also a record that this launcher
 * wrote. So a launcher that wrote it and one that only read it agree. Records come from a store
 * that others may write, so all their numbers are bounded. */
#include "launch/book.h"

#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Bytes of a record. The largest is a "handle" with 1024 ids of at most 255 bytes. */
enum { RECORD_MAX = 1 << 18, KEY_BYTES = 40 };

/* For one request to the store. */
#define PATIENCE (60 * DL_SECOND)

static const char folder[] = "launch/";

/* The end of the time for one request to the store, from now on. */
static dl_time soon(void)
{
    return dl_time_after(dl_clock_now(), PATIENCE);
}

/* Ten digits keep the order of names that of numbers. */
static void key_of(char out[KEY_BYTES], uint64_t number)
{
    snprintf(out, KEY_BYTES, "%s%010llu.json", folder, (unsigned long long)number);
}

/* ---- reading */

/* Options are replaced as a whole. Only those of [launch] are accepted: a record must not change an
 * option that concerns training. */
static diloco_status fold_options(dl_book *book, dl_json_value record)
{
    char text[DL_PATH_MAX + 1], name[64];
    dl_config_init(book->options);
    dl_json_iter it = dl_json_each(dl_json_get(record, "options"));
    while (dl_json_next(&it)) {
        DL_TRY(dl_json_as_str(name, sizeof name, it.key));
        DL_TRY(dl_json_as_str(text, sizeof text, it.value));
        if (strncmp(name, "launch.", 7) != 0)
            return dl_fail(DILOCO_EPROTO, "%.60s is no option of [launch]", name);
        DL_TRY(dl_config_set(book->options, name, text, "the launch"));
    }
    return DILOCO_OK;
}

/* The bound keeps every rank below max within ranks[]. */
static diloco_status fold_numbers(dl_book *book, dl_json_value record)
{
    uint64_t min, max;
    DL_TRY(dl_json_read_u64(&min, record, "min", DL_JOBS_MAX));
    DL_TRY(dl_json_read_u64(&max, record, "max", DL_JOBS_MAX));
    book->min = (uint32_t)min;
    book->max = (uint32_t)max;
    return DILOCO_OK;
}

/* ---- ids */

/* Would the executor give this id to the job? Without an executor no id is accepted. */
static bool accepts(const dl_book *book, const dl_job *job, const char *id)
{
    dl_job named = *job;
    snprintf(named.id, sizeof named.id, "%s", id);
    return book->judge && book->judge->is_id(&named);
}

/* Drop the ids that another executor gave. */
static void drop_ids(const dl_book *book)
{
    for (size_t i = 0; i < DL_JOBS_MAX; i++) {
        dl_book_rank *r = &book->ranks[i];
        if (*r->job.id && !accepts(book, &r->job, r->job.id)) r->job.id[0] = '\0';
        if (*r->orphan.id && !accepts(book, &r->orphan, r->orphan.id)) r->orphan.id[0] = '\0';
    }
}

void dl_book_bind(dl_book *book, const dl_executor *executor)
{
    book->judge = executor;
    book->bound = true;
    drop_ids(book);
}

/* An executor that this version does not know accepts no id. */
static void judge_by_begin(dl_book *book)
{
    const char *on;
    if (book->bound) return;
    if (dl_executor_find(&book->judge, &on, book->executor)) book->judge = NULL;
    drop_ids(book);
}

/* ---- applying records */

/* A new "begin" gives lost ranks all their restarts again, and lets replicas that have failed or
 * were cancelled start once more. */
static diloco_status fold_begin(dl_book *book, dl_json_value record)
{
    DL_TRY(dl_json_read_str(book->executor, sizeof book->executor, record, "executor"));
    DL_TRY(dl_json_read_str(book->dir, sizeof book->dir, record, "dir"));
    DL_TRY(fold_numbers(book, record));
    DL_TRY(fold_options(book, record));
    /* Earlier versions do not write it. */
    if (dl_json_read_str(book->found, sizeof book->found, record, "found")) *book->found = '\0';
    judge_by_begin(book);
    book->begun = true;
    book->cancelled = false;
    for (size_t i = 0; i < DL_JOBS_MAX; i++) {
        dl_book_rank *r = &book->ranks[i];
        r->lost = 0;
        r->again = r->started && dl_job_is_over(r->job.state) && r->job.state != DL_JOB_SUCCEEDED;
    }
    return DILOCO_OK;
}

/* Keep a generation that was lost as the orphan: its process may still run. Without an id it was
 * not launched, as far as is known. */
static void keep_orphan(dl_book_rank *r)
{
    if (r->job.state != DL_JOB_LOST || !*r->job.id) return;
    r->orphan = r->job;
    r->orphan_asked = false;
}

/* How the orphan fares beside the new generation is not known yet. */
static diloco_status fold_start(dl_book *book, dl_json_value record)
{
    uint64_t generation, rank;
    double at;
    char by[33];
    DL_TRY(dl_json_read_u64(&generation, record, "generation", UINT32_MAX));
    DL_TRY(dl_json_read_f64(&at, record, "at"));
    DL_TRY(dl_json_read_str(by, sizeof by, record, "by"));
    dl_json_iter it = dl_json_each(dl_json_get(record, "ranks"));
    while (dl_json_next(&it)) {
        DL_TRY(dl_json_as_u64(&rank, it.value, DL_JOBS_MAX - 1));
        dl_book_rank *r = &book->ranks[rank];
        r->orphan_runs = r->orphan_ran = false;
        r->processes_before = -1;
        r->started = true;
        r->again = r->waits_long = r->unnamed_said = false;
        r->waits_since = 0;
        r->started_at = at;
        r->ended_at = 0;
        r->start_seen = dl_clock_now();
        memcpy(r->by, by, sizeof by);
        dl_job_init(&r->job, book->run, (uint32_t)rank, (uint32_t)generation);
    }
    return DILOCO_OK;
}

/* The rank that a record is about; NULL if the record is about an earlier generation of it. Such a
 * record came late, and changes nothing. */
static dl_book_rank *newest(dl_book *book, uint64_t rank, uint64_t generation)
{
    dl_book_rank *r = &book->ranks[rank];
    return r->started && r->job.generation == generation ? r : NULL;
}

/* The record that is read now has ids that were refused. */
static void warn_of_ids(const dl_book *book, size_t n)
{
    char key[KEY_BYTES];
    key_of(key, book->next);
    dl_log(DILOCO_LOG_WARN,
           "%s in %s: %zu id%s refused: the executor %.40s gives no such id to this replica", key,
           dl_store_url(book->store), n, n > 1 ? "s" : "",
           book->judge ? book->judge->name : book->executor);
}

/* Read the two elements of a pair [rank, id]. An id that cannot be one, such as a text that is too
 * long, reads as "". */
static diloco_status read_pair(uint64_t *rank, char id[DL_JOB_ID_MAX + 1], dl_json_value pair)
{
    dl_json_iter it = dl_json_each(pair);
    if (!dl_json_next(&it)) return dl_fail(DILOCO_EPROTO, "ids holds an empty pair");
    DL_TRY(dl_json_as_u64(rank, it.value, DL_JOBS_MAX - 1));
    if (!dl_json_next(&it)) return dl_fail(DILOCO_EPROTO, "ids holds half a pair");
    if (dl_json_as_str(id, DL_JOB_ID_MAX + 1, it.value)) id[0] = '\0';
    return DILOCO_OK;
}

/* "ids" is a list of pairs [rank, id]. Executors run commands with ids, so an id that the executor
 * would not give is left out. A generation that was LOST before its id was recorded
 * becomes an orphan now, since it can be asked to stop. */
static diloco_status fold_handle(dl_book *book, dl_json_value record)
{
    uint64_t generation, rank = 0;
    char id[DL_JOB_ID_MAX + 1];
    size_t refused = 0;
    DL_TRY(dl_json_read_u64(&generation, record, "generation", UINT32_MAX));
    dl_json_iter all = dl_json_each(dl_json_get(record, "ids"));
    while (dl_json_next(&all)) {
        DL_TRY(read_pair(&rank, id, all.value));
        dl_book_rank *r = newest(book, rank, generation);
        if (!r) continue;
        if (!accepts(book, &r->job, id)) {
            refused++;
            continue;
        }
        memcpy(r->job.id, id, sizeof id);
        r->ran = true;
        keep_orphan(r);
    }
    if (refused) warn_of_ids(book, refused);
    return DILOCO_OK;
}

/* The first final state of a generation counts. Two launchers may both report the end. Machine time
 * is added once, from the clocks of the launchers that started it and saw its end. A clock that was
 * set back adds nothing. */
static diloco_status fold_state(dl_book *book, dl_json_value record)
{
    uint64_t generation, rank;
    int64_t code;
    double at;
    char state[16], message[DL_JOB_MESSAGE_MAX + 1];
    dl_job_state value;
    DL_TRY(dl_json_read_u64(&rank, record, "rank", DL_JOBS_MAX - 1));
    DL_TRY(dl_json_read_u64(&generation, record, "generation", UINT32_MAX));
    DL_TRY(dl_json_read_i64(&code, record, "code", -1, 255));
    DL_TRY(dl_json_read_f64(&at, record, "at"));
    DL_TRY(dl_json_read_str(state, sizeof state, record, "state"));
    DL_TRY(dl_json_read_str(message, sizeof message, record, "message"));
    if (!dl_job_state_of(&value, state))
        return dl_fail(DILOCO_EPROTO, "there is no state %.16s", state);
    dl_book_rank *r = newest(book, rank, generation);
    if (!r || dl_job_is_over(r->job.state)) return DILOCO_OK;
    dl_job_set(&r->job, value, (int)code, "%s", message);
    if (!dl_job_is_over(value)) return DILOCO_OK;
    keep_orphan(r);
    r->end_seen = dl_clock_now();
    r->ended_at = at;
    /* A refused restart counts, too: the end of a rank's restarts must come. */
    const bool refused = value == DL_JOB_FAILED && !*r->job.id;
    r->lost += dl_job_may_be_restarted(&r->job) || (refused && r->ran);
    if (at > r->started_at) book->machine_s += at - r->started_at;
    return DILOCO_OK;
}

/* A record of an unknown kind or format is an error: a later version may have meant a thing that
 * this one must not ignore. */
static diloco_status fold(dl_book *book, dl_json_value record)
{
    uint64_t format;
    dl_json_value what = dl_json_get(record, "what");
    DL_TRY(dl_json_read_u64(&format, record, "format", UINT32_MAX));
    if (format != 1)
        return dl_fail(DILOCO_EPROTO, "its format is %llu, and this program knows 1",
                       (unsigned long long)format);
    if (dl_json_is(what, "begin")) return fold_begin(book, record);
    if (dl_json_is(what, "start")) return fold_start(book, record);
    if (dl_json_is(what, "handle")) return fold_handle(book, record);
    if (dl_json_is(what, "state")) return fold_state(book, record);
    if (dl_json_is(what, "scale")) return fold_numbers(book, record);
    if (!dl_json_is(what, "cancel")) return dl_fail(DILOCO_EPROTO, "it records an unknown action");
    book->cancelled = true;
    return DILOCO_OK;
}

/* Records are numbered without gaps, so the first name that does not exist is the end. */
diloco_status dl_book_read(dl_book *book)
{
    char key[KEY_BYTES];
    dl_buf text;
    dl_json_value record;
    diloco_status status;
    dl_buf_init(&text, RECORD_MAX);
    for (;;) {
        key_of(key, book->next);
        dl_buf_clear(&text);
        status = dl_store_get(book->store, &text, key, soon());
        if (status) break;
        status = dl_json_parse(&record, text.data, text.len);
        if (!status) status = fold(book, record);
        if (status) {
            status = dl_fail_context(status, "%s in %s", key, dl_store_url(book->store));
            break;
        }
        book->next++;
    }
    dl_buf_deinit(&text);
    return status == DILOCO_ENOENT ? DILOCO_OK : status;
}

/* The random name distinguishes two launchers on one machine as well, which a host name would
 * not. */
diloco_status dl_book_open(dl_book *book, const char *url, const char *run,
                           const dl_executor *executor)
{
    unsigned char random[16];
    memset(book, 0, sizeof *book);
    DL_TRY(dl_random_bytes(random, sizeof random));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(book->by + 2 * i, 3, "%02x", random[i]);
    snprintf(book->run, sizeof book->run, "%s", run);
    book->ranks = calloc(DL_JOBS_MAX, sizeof *book->ranks);
    book->options = calloc(1, sizeof *book->options);
    diloco_status status = book->ranks && book->options
                               ? dl_store_open(&book->store, url, false)
                               : dl_fail(DILOCO_ENOMEM, "out of memory for the book of launches");
    if (!status) {
        dl_config_init(book->options);
        for (size_t i = 0; i < DL_JOBS_MAX; i++)
            book->ranks[i].processes = book->ranks[i].processes_before = -1;
        if (executor) dl_book_bind(book, executor);
        status = dl_book_read(book);
    }
    if (status) dl_book_close(book);
    return status;
}

void dl_book_close(dl_book *book)
{
    dl_store_close(book->store);
    free(book->ranks);
    free(book->options);
    memset(book, 0, sizeof *book);
}

/* ---- writing */

/* A record that is being written. */
typedef struct record {
    dl_buf text;
    dl_json json;
} record;

/* The members that every record has. append frees the record; a caller that fails earlier has
 * to. */
static void begin_record(record *r, const dl_book *book, const char *what)
{
    dl_buf_init(&r->text, RECORD_MAX);
    dl_json_init(&r->json, &r->text);
    dl_json_object(&r->json, NULL);
    dl_json_u64(&r->json, "format", 1);
    dl_json_str(&r->json, "what", what);
    dl_json_f64(&r->json, "at", dl_clock_wall());
    dl_json_str(&r->json, "by", book->by);
}

/* Create the record under the next number. The store creates a name once, so of two launchers one
 * succeeds. With `insist` the other one tries the next number, else it gets DILOCO_EEXIST. In both
 * cases the book is read up to its end, by which the own record takes effect. Frees the record. */
static diloco_status append(dl_book *book, record *r, bool insist)
{
    char key[KEY_BYTES];
    bool taken = false;
    dl_json_end(&r->json);
    diloco_status status = dl_json_done(&r->json);
    while (!status) {
        const dl_span span = {r->text.data, r->text.len};
        key_of(key, book->next);
        status = dl_store_create(book->store, key, &span, 1, &taken, soon());
        const bool other = status == DILOCO_EEXIST;
        if (!status || other) {
            const diloco_status read = dl_book_read(book);
            if (read) status = read;
        }
        if (!status || !other || !insist) break;
        if (status == DILOCO_EEXIST) status = DILOCO_OK; /* once more, after it */
    }
    dl_buf_deinit(&r->text);
    return status;
}

/* Only options that a person gave: defaults may differ in a later version. */
static diloco_status put_options(record *r, const dl_config *config)
{
    dl_buf text;
    diloco_status status = DILOCO_OK;
    dl_buf_init(&text, RECORD_MAX);
    dl_json_object(&r->json, "options");
    for (size_t i = 0; !status && i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (strncmp(row->name, "launch.", 7) != 0 || !dl_config_given(config, row->name)) continue;
        const char *value = dl_option_string(row, config);
        dl_buf_clear(&text);
        if (!value) {
            status = dl_option_text(&text, row, config);
            value = status ? "" : dl_buf_str(&text);
        }
        dl_json_str(&r->json, row->name, value);
    }
    dl_json_end(&r->json);
    dl_buf_deinit(&text);
    return status;
}

double dl_book_machine_seconds(const dl_book *book)
{
    double sum = book->machine_s;
    const double now = dl_clock_wall();
    for (size_t i = 0; i < DL_JOBS_MAX; i++) {
        const dl_book_rank *r = &book->ranks[i];
        if (r->started && !dl_job_is_over(r->job.state) && now > r->started_at)
            sum += now - r->started_at;
    }
    return sum;
}

size_t dl_book_alive(const dl_book *book)
{
    size_t n = 0;
    for (size_t i = 0; i < DL_JOBS_MAX; i++) {
        const dl_book_rank *r = &book->ranks[i];
        n += r->started && *r->job.id && !dl_job_is_over(r->job.state);
    }
    return n;
}

/* All options of [launch] are compared, also those that were left out. */
bool dl_book_agrees(const dl_book *book, const dl_launch_spec *spec, const char *executor,
                    uint32_t min, uint32_t max)
{
    bool same = book->begun && !book->cancelled && strcmp(book->executor, executor) == 0 &&
                strcmp(book->dir, spec->dir) == 0 && book->min == min && book->max == max;
    for (size_t i = 0; same && i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        if (strncmp(row->name, "launch.", 7) == 0)
            same = dl_option_equal(row, book->options, spec->config);
    }
    return same;
}

/* The record names the secrets, for a launcher elsewhere that has to supply them, and has no
 * values. */
diloco_status dl_book_begin(dl_book *book, const dl_launch_spec *spec, const char *executor,
                            uint32_t min, uint32_t max)
{
    record r;
    char found[DL_FOUND_MAX + 1] = "";
    begin_record(&r, book, "begin");
    dl_json_str(&r.json, "executor", executor);
    dl_json_str(&r.json, "dir", spec->dir);
    dl_json_u64(&r.json, "min", min);
    dl_json_u64(&r.json, "max", max);
    if (book->judge && book->judge->found) book->judge->found(found, spec);
    if (*found) dl_json_str(&r.json, "found", found);
    const diloco_status status = put_options(&r, spec->config);
    if (status) {
        dl_buf_deinit(&r.text);
        return status;
    }
    dl_json_array(&r.json, "secrets");
    for (const char *const *name = spec->secrets; *name; name++)
        dl_json_str(&r.json, NULL, *name);
    dl_json_end(&r.json);
    return append(book, &r, false);
}

diloco_status dl_book_start(dl_book *book, const uint32_t *ranks, size_t n, uint32_t generation,
                            const char *why)
{
    record r;
    begin_record(&r, book, "start");
    dl_json_u64(&r.json, "generation", generation);
    dl_json_array(&r.json, "ranks");
    for (size_t i = 0; i < n; i++)
        dl_json_u64(&r.json, NULL, ranks[i]);
    dl_json_end(&r.json);
    dl_json_str(&r.json, "why", why);
    return append(book, &r, false);
}

diloco_status dl_book_handles(dl_book *book, const dl_job *jobs, size_t n)
{
    record r;
    size_t named = 0;
    for (size_t i = 0; i < n; i++)
        named += *jobs[i].id != '\0';
    if (named == 0) return DILOCO_OK;
    begin_record(&r, book, "handle");
    dl_json_u64(&r.json, "generation", jobs[0].generation);
    dl_json_array(&r.json, "ids");
    for (size_t i = 0; i < n; i++) {
        if (!*jobs[i].id) continue;
        dl_json_array(&r.json, NULL);
        dl_json_u64(&r.json, NULL, jobs[i].rank);
        dl_json_str(&r.json, NULL, jobs[i].id);
        dl_json_end(&r.json);
    }
    dl_json_end(&r.json);
    return append(book, &r, true);
}

diloco_status dl_book_state(dl_book *book, const dl_job *job)
{
    record r;
    begin_record(&r, book, "state");
    dl_json_u64(&r.json, "rank", job->rank);
    dl_json_u64(&r.json, "generation", job->generation);
    dl_json_str(&r.json, "state", dl_job_state_name(job->state));
    dl_json_i64(&r.json, "code", job->exit_code);
    dl_json_str(&r.json, "message", job->message);
    return append(book, &r, true);
}

diloco_status dl_book_scale(dl_book *book, uint32_t min, uint32_t max)
{
    record r;
    begin_record(&r, book, "scale");
    dl_json_u64(&r.json, "min", min);
    dl_json_u64(&r.json, "max", max);
    return append(book, &r, true);
}

diloco_status dl_book_cancel(dl_book *book)
{
    record r;
    begin_record(&r, book, "cancel");
    return append(book, &r, true);
}
