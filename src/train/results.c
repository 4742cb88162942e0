/* results.c - see results.h.
 *
 *     log --walk from the last row--> rows <--merge-- file        under the lock of the folder
 *                                       |
 *                                       +--> file, whole
 *
 * A value that the file has wins over none, so processes that put rows in any order lose nothing.
 */
#include "train/results.h"

#include "base/file.h"
#include "base/text.h"
#include <diloco/inspect.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { FILE_MAX = 64 << 20 }; /* bytes; about a million rounds */

static const dl_results_row nothing = {{NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN}};

/* ---- rows */

/* Adds a row without values, except for its round. */
static diloco_status make_row(dl_results *r)
{
    if (r->n_rows == r->room) {
        size_t room = r->room ? 2 * r->room : 64;
        dl_results_row *rows = realloc(r->rows, room * sizeof *rows);
        if (!rows) return dl_fail(DILOCO_ENOMEM, "out of memory for %zu results", room);
        r->rows = rows, r->room = room;
    }
    r->rows[r->n_rows] = nothing;
    r->rows[r->n_rows].values[DL_RESULTS_ROUND] = (double)(r->n_rows + 1);
    r->n_rows++;
    return DILOCO_OK;
}

/* Adds the log's facts about the next round. */
static diloco_status add_entry(void *user, const diloco_log_entry *e)
{
    dl_results *r = user;
    if (e->entry < r->n_rows) return DILOCO_OK;
    DL_TRY(make_row(r));
    double *now = r->rows[r->n_rows - 1].values;
    const double *last = r->n_rows > 1 ? r->rows[r->n_rows - 2].values : NULL;
    now[DL_RESULTS_CLIENTS] = (double)e->n_members;
    now[DL_RESULTS_TRAIN_LOSS] = e->n_members ? e->loss : NAN;
    now[DL_RESULTS_COMM_OVERHEAD] =
        (last ? last[DL_RESULTS_COMM_OVERHEAD] : 0) + (double)e->bytes / 1e6;
    now[DL_RESULTS_STEPS] = (last ? last[DL_RESULTS_STEPS] : 0) + (double)e->steps;
    if (e->simulated_s > 0)
        now[DL_RESULTS_ELAPSED_TIME] = (last ? last[DL_RESULTS_ELAPSED_TIME] : 0) + e->simulated_s;
    now[DL_RESULTS_SAMPLES] = (last ? last[DL_RESULTS_SAMPLES] : 0) + (double)e->samples;
    return DILOCO_OK;
}

/* ---- the file */

/* Takes the values of a row of the file that this process does not have. */
static void merge(dl_results *r, const dl_results_row *from)
{
    const double round = from->values[DL_RESULTS_ROUND];
    if (!(round >= 1) || round > (double)r->n_rows) return;
    double *to = r->rows[(size_t)round - 1].values;
    for (int i = 0; i < DL_RESULTS_COLUMNS; i++)
        if (isnan(to[i])) to[i] = from->values[i];
}

static bool read_row(dl_results_row *out, const int *columns, size_t n, const char *line)
{
    *out = nothing;
    for (size_t i = 0; i < n; i++) {
        size_t len = strcspn(line, ",\n");
        if (len > 0 && !dl_text_to_f64(&out->values[columns[i]], line, len)) return false;
        line += len;
        if (*line != (i + 1 < n ? ',' : '\n')) return false;
        line++;
    }
    return true;
}

/* Reads the file's rows. Its columns may differ from those of this process, as results.types may
 * have changed. Returns DILOCO_EPROTO for a file of another kind. */
static diloco_status read_rows(dl_results *r, const char *text)
{
    char header[512];
    int columns[DL_RESULTS_COLUMNS];
    size_t n, len = strcspn(text, "\n"), line = 1;
    snprintf(header, sizeof header, "%.*s", (int)dl_size_min(len, sizeof header - 1), text);
    bool ours = text[len] && dl_result_columns_read(columns, &n, header);
    for (text += len + ours; ours && *text; line++) {
        dl_results_row row;
        ours = read_row(&row, columns, n, text);
        if (ours) merge(r, &row);
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    if (ours) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO,
                   "%s: line %zu is not a line of a results file: move the file away, or set "
                   "results.result_path",
                   r->path, line);
}

static diloco_status read_file(dl_results *r)
{
    dl_buf text;
    dl_buf_init(&text, FILE_MAX);
    diloco_status status = dl_file_read(&text, r->path);
    const char *all = status ? NULL : dl_buf_str(&text);
    if (!status && !all) status = dl_fail(DILOCO_ENOMEM, "out of memory for %s", r->path);
    if (!status) status = read_rows(r, all);
    dl_buf_deinit(&text);
    return status == DILOCO_ENOENT ? DILOCO_OK : status;
}

/* Rounds sums to whole bytes and microseconds, since adding floats leaves more digits. */
static double rounded(int column, double value)
{
    const bool sum = column == DL_RESULTS_COMM_OVERHEAD || column == DL_RESULTS_ELAPSED_TIME;
    return sum ? round(value * 1e6) / 1e6 : value;
}

static diloco_status add_value(dl_buf *out, double value, const char *after)
{
    char text[32] = "";
    if (!isnan(value)) dl_text_from_f64(text, value);
    return dl_buf_addf(out, "%s%s", text, after);
}

static diloco_status format(dl_buf *out, const dl_results *r)
{
    for (size_t i = 0; i < r->n_columns; i++)
        DL_TRY(dl_buf_addf(out, "%s%s", i ? "," : "", dl_result_names[r->columns[i]]));
    DL_TRY(dl_buf_addf(out, "\n"));
    for (size_t k = 0; k < r->n_rows; k++)
        for (size_t i = 0; i < r->n_columns; i++)
            DL_TRY(add_value(out, rounded(r->columns[i], r->rows[k].values[r->columns[i]]),
                             i + 1 < r->n_columns ? "," : "\n"));
    return DILOCO_OK;
}

static diloco_status write_file(const dl_results *r)
{
    dl_buf text;
    dl_buf_init(&text, FILE_MAX);
    diloco_status status = format(&text, r);
    if (!status) status = dl_file_write(r->path, &(dl_span){text.data, text.len}, 1);
    dl_buf_deinit(&text);
    return status;
}

/* Takes the folder's lock; close() releases it. */
static diloco_status lock(int *fd, const dl_results *r)
{
    dl_config_path folder;
    snprintf(folder, sizeof folder, "%s", r->path);
    *strrchr(folder, '/') = '\0';
    DL_TRY(dl_dir_make(folder[0] ? folder : "/"));
    *fd = open(folder[0] ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0) return dl_fail_errno(errno, "open", folder);
    while (flock(*fd, LOCK_EX))
        if (errno != EINTR) {
            close(*fd);
            return dl_fail_errno(errno, "lock", folder);
        }
    return DILOCO_OK;
}

/* ---- the path: results.result_path, or beside a folder of the log, and named after the run */

static diloco_status choose_path(dl_results *r)
{
    dl_config_path store;
    const char *given = r->config->result_path, *from = r->config->store;
    if (strncmp(from, "file://", 7) == 0) from += 7;
    const bool is_url = strstr(from, "://") != NULL;
    snprintf(store, sizeof store, "%s", from);
    for (size_t n = strlen(store); n > 1 && store[n - 1] == '/';)
        store[--n] = '\0';
    char *slash = strrchr(store, '/');
    const char *name = slash ? slash + 1 : store, *folder = ".";
    if (slash) *slash = '\0';
    if (is_url) folder = r->config->base_path;
    if (slash && !is_url) folder = *store ? store : "/";
    if (*given) folder = given;
    int n = snprintf(r->path, sizeof r->path, "%s/%s.csv", *folder ? folder : ".", name);
    return n >= 0 && (size_t)n < sizeof r->path
               ? DILOCO_OK
               : dl_fail(DILOCO_EINVAL, "results.result_path: the path is too long");
}

/* ---- */

/* Reads the rows of the log and of the file. A run that begins has none; its new file replaces one
 * of an earlier run only, and no file of another kind. */
static diloco_status take_up(dl_results *r, uint64_t entries)
{
    int fd;
    if (entries > 0) DL_TRY(diloco_log_walk(r->config->store, 0, add_entry, r));
    DL_TRY(lock(&fd, r));
    diloco_status status = read_file(r);
    if (!status && entries == 0) status = write_file(r);
    close(fd);
    for (size_t i = 0; i < r->n_rows; i++)
        r->before = fmax(r->before, r->rows[i].values[DL_RESULTS_ELAPSED_TIME]);
    return status;
}

diloco_status dl_results_open(dl_results *out, const dl_config *config, uint64_t entries)
{
    *out = (dl_results){.config = config, .begin = dl_clock_now()};
    diloco_status status = dl_result_columns_choose(out->columns, &out->n_columns, config);
    if (!status) status = choose_path(out);
    if (!status) status = take_up(out, entries);
    if (status) dl_results_close(out);
    return status;
}

void dl_results_close(dl_results *r)
{
    free(r->rows);
    *r = (dl_results){.config = NULL};
}

double dl_results_accuracy(const dl_results *r, uint64_t round)
{
    return round >= 1 && round <= r->n_rows ? r->rows[round - 1].values[DL_RESULTS_ACCURACY] : NAN;
}

/* Sets the measured values. A time that another process has set first stays. */
static void fill(dl_results *r, uint64_t round, const dl_score *score)
{
    double *row = r->rows[round - 1].values;
    if (isnan(row[DL_RESULTS_ELAPSED_TIME]))
        row[DL_RESULTS_ELAPSED_TIME] =
            r->before + floor(dl_seconds(dl_clock_now() - r->begin) * 1e3) / 1e3;
    if (!score) return;
    row[DL_RESULTS_ACCURACY] = score->accuracy;
    row[DL_RESULTS_TEST_LOSS] = score->loss;
}

diloco_status dl_results_put(dl_results *r, uint64_t round, const dl_score *score)
{
    int fd;
    DL_TRY(diloco_log_walk(r->config->store, r->n_rows, add_entry, r));
    if (round < 1 || round > r->n_rows)
        return dl_fail(DILOCO_EINVAL, "the log of %s has no entry of round %" PRIu64,
                       r->config->store, round);
    DL_TRY(lock(&fd, r));
    diloco_status status = read_file(r);
    if (!status) {
        fill(r, round, score);
        status = write_file(r);
    }
    close(fd);
    return status;
}
