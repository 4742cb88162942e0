/* cmd_report.c - the curves of one run, or of several side by side, from their records: a table,
 * one JSON object, or a picture (chart.h). It only reads.
 *
 * A curve joins two kinds of record lines: evaluations, and the bytes of each entry. A whole report
 * (HTML, PDF or Markdown) is written by display/report_page.c from views of the runs instead. */
#include "base/file.h"
#include "cli/display/chart.h"
#include "cli/display/report_page.h"
#include "cli/display/units.h"
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include <diloco/config.h>
#include <diloco/inspect.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Runs in one report, which is the number of colours of a chart; bytes of a curve's buffers. */
enum { MOST_RUNS = 8, LONGEST_RECORD = 1 << 26 };

/* One line of a record: an evaluation after that many entries, or a replica's traffic
 * for one entry. */
typedef struct mark {
    uint64_t entry, step;
    double value; /* loss; bytes */
} mark;

/* One run of the report. The buffers are owned; cmd_report frees them. */
typedef struct curve {
    char name[64], label[160];
    uint64_t replicas;        /* run.replicas */
    dl_buf evaluations, sent; /* mark[] */
    dl_buf points;            /* dl_chart_point[]: steps, bytes of all replicas; loss */
} curve;

/* ---- reading */

/* Keep what a line says about the curve. A damaged line, or one of another kind, says nothing
 * here. */
static diloco_status take_line(void *user, const char *line, size_t len)
{
    curve *c = user;
    dl_json_value event;
    mark m = {0};
    if (dl_json_parse(&event, line, len) || dl_json_read_u64(&m.entry, event, "entry", INT64_MAX))
        return DILOCO_OK;
    const dl_json_value kind = dl_json_get(event, "event");
    if (dl_json_is(kind, "commit") && !dl_json_read_f64(&m.value, event, "bytes_sent") &&
        isfinite(m.value) && m.value >= 0)
        return dl_buf_add(&c->sent, &m, sizeof m);
    if (dl_json_is(kind, "eval") && !dl_json_read_f64(&m.value, event, "loss") &&
        isfinite(m.value) && !dl_json_read_u64(&m.step, event, "step", INT64_MAX))
        return dl_buf_add(&c->evaluations, &m, sizeof m);
    return DILOCO_OK;
}

/* Ascending by entry. Records come replica by replica, so marks of one entry are apart at first. */
static int by_entry(const void *a, const void *b)
{
    const mark *x = a, *y = b;
    return (x->entry > y->entry) - (x->entry < y->entry);
}

/* Sort the marks in place and return them, with their number. The array belongs to the buffer. */
static mark *sorted(dl_buf *marks, size_t *n)
{
    *n = marks->len / sizeof(mark);
    mark *all = (mark *)(void *)marks->data;
    if (*n) qsort(all, *n, sizeof *all, by_entry);
    return all;
}

/* Make one point for each evaluated entry, with all bytes that were sent before it. A single
 * replica exchanges nothing, whatever it stored. */
static diloco_status join_marks(curve *c)
{
    size_t n, n_sent, k = 0;
    const mark *evaluations = sorted(&c->evaluations, &n), *sent = sorted(&c->sent, &n_sent);
    double bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && evaluations[i].entry == evaluations[i - 1].entry) continue;
        for (; k < n_sent && sent[k].entry < evaluations[i].entry; k++)
            bytes += sent[k].value;
        const dl_chart_point point = {
            .x = {(double)evaluations[i].step, c->replicas > 1 ? bytes : 0},
            .y = evaluations[i].value};
        DL_TRY(dl_buf_add(&c->points, &point, sizeof point));
    }
    return DILOCO_OK;
}

/* Name the curve as "b: diloco, 4 replicas", for a run whose URL ends in /b. */
static diloco_status name_curve(curve *c, const char *store)
{
    char preset[48], replicas[32];
    size_t end = strlen(store);
    while (end > 1 && store[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && store[begin - 1] != '/')
        begin--;
    snprintf(c->name, sizeof c->name, "%.*s", (int)fmin((double)(end - begin), 63), store + begin);

    diloco_config *config = diloco_config_create();
    if (!config) return dl_fail(DILOCO_ENOMEM, "out of memory for a configuration");
    diloco_status status = diloco_run_config(config, store);
    if (!status) status = diloco_config_get(config, "preset", preset, sizeof preset);
    if (!status) status = diloco_config_get(config, "run.replicas", replicas, sizeof replicas);
    diloco_config_destroy(config);
    if (status) return status;
    c->replicas = strtoull(replicas, NULL, 10);
    snprintf(c->label, sizeof c->label, "%.63s: %s, %" PRIu64 " replica%s", c->name,
             preset[0] ? preset : "no preset", c->replicas, dl_plural(c->replicas));
    return DILOCO_OK;
}

/* A run without an evaluation has no curve, and the error says how to get one. */
static diloco_status read_curve(curve *c, const char *target)
{
    dl_config_path store;
    DL_TRY(dl_settings_store(store, target));
    DL_TRY(dl_swarm_refuse(store, "report"));
    DL_TRY(name_curve(c, store));
    DL_TRY(diloco_record_walk(store, take_line, c));
    DL_TRY(join_marks(c));
    if (c->points.len) return DILOCO_OK;
    return dl_fail(DILOCO_ENOENT,
                   "%s: its record has no evaluation yet; trainer.eval_every = N evaluates after "
                   "every N rounds, on the part of the data that data.test_fraction keeps back",
                   store);
}

/* ---- answers */

/* Return the points of a curve and their number; valid until the buffer changes. */
static const dl_chart_point *points_of(const curve *c, size_t *n)
{
    *n = c->points.len / sizeof(dl_chart_point);
    return (const dl_chart_point *)(const void *)c->points.data;
}

/* Print the last point of each curve: one line for a run. */
static void print_table(const curve *curves, size_t n)
{
    printf("%-36s %10s %16s %12s\n", "run", "steps", "validation loss", "bytes sent");
    for (size_t i = 0; i < n; i++) {
        size_t k;
        dl_unit_text bytes = "-", steps;
        const dl_chart_point *last = points_of(&curves[i], &k);
        last += k - 1;
        if (last->x[1] > 0) dl_bytes_text(bytes, last->x[1]);
        printf("%-36s %10s %16.4f %12s\n", curves[i].label,
               dl_count_text(steps, (uint64_t)last->x[0]), last->y, bytes);
    }
}

/* Print all points of all curves as one object. */
static diloco_status print_json(const curve *curves, size_t n)
{
    dl_buf out;
    dl_json json;
    dl_buf_init(&out, LONGEST_RECORD);
    dl_json_init(&json, &out);
    dl_json_object(&json, NULL);
    dl_json_array(&json, "runs");
    for (size_t i = 0; i < n; i++) {
        size_t n_points;
        const dl_chart_point *points = points_of(&curves[i], &n_points);
        dl_json_object(&json, NULL);
        dl_json_str(&json, "run", curves[i].name);
        dl_json_str(&json, "label", curves[i].label);
        dl_json_array(&json, "points");
        for (size_t k = 0; k < n_points; k++) {
            dl_json_object(&json, NULL);
            dl_json_f64(&json, "step", points[k].x[0]);
            dl_json_f64(&json, "bytes_sent", points[k].x[1]);
            dl_json_f64(&json, "loss", points[k].y);
            dl_json_end(&json);
        }
        dl_json_end(&json);
        dl_json_end(&json);
    }
    dl_json_end(&json);
    dl_json_end(&json);
    return dl_print_json(&json, &out);
}

/* Write both panels, loss against steps and against bytes, as one SVG file. The x axis of bytes is
 * logarithmic, because methods differ by orders of magnitude there. */
static diloco_status write_picture(const char *path, const curve *curves, size_t n)
{
    dl_buf out;
    dl_chart_series series[MOST_RUNS];
    for (size_t i = 0; i < n; i++) {
        series[i].label = curves[i].label;
        series[i].points = points_of(&curves[i], &series[i].n);
    }
    const dl_chart chart = {.title = "Validation loss against steps, and against bytes sent",
                            .y_title = "validation loss (nats)",
                            .panels = {{.title = "steps of each replica"},
                                       {.title = "bytes sent by all replicas (dashed: none)",
                                        .logarithmic = true,
                                        .bytes = true}},
                            .series = series,
                            .n = n};
    dl_buf_init(&out, LONGEST_RECORD);
    diloco_status status = dl_chart_svg(&out, &chart);
    if (!status) status = dl_file_write(path, &(dl_span){out.data, out.len}, 1);
    dl_buf_deinit(&out);
    return status;
}

/* The end of the name decides the kind of file, before any run is read. */
static diloco_status check_out(const char *path)
{
    const char *dot = path ? strrchr(path, '.') : ".svg";
    if (dot && !strcmp(dot, ".svg")) return DILOCO_OK;
    if (dl_report_page_takes(path)) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "--out %.200s: a report is FILE.html, FILE.pdf or FILE.md, and the curves alone "
                   "FILE.svg",
                   path);
}

/* Write the picture before the table, so an error of the disk leaves no output on stdout. */
static diloco_status answer(const dl_args *args, const curve *curves, size_t n)
{
    const char *path = args->flags[DL_FLAG_REPORT_OUT];
    if (path) DL_TRY(write_picture(path, curves, n));
    if (dl_args_has(args, DL_FLAG_JSON)) return print_json(curves, n);
    print_table(curves, n);
    if (path) printf("picture: %s\n", path);
    return DILOCO_OK;
}

/* Write a whole report. FILE.html and FILE.md need no evaluation, and have everything else. */
static diloco_status write_page(const dl_args *args, size_t n)
{
    const char *path = args->flags[DL_FLAG_REPORT_OUT], *urls[MOST_RUNS];
    dl_config_path stores[MOST_RUNS];
    if (dl_args_has(args, DL_FLAG_JSON))
        return dl_fail(DILOCO_EINVAL,
                       "--json prints curves, and --out %.200s is a whole report: ask "
                       "for one of them",
                       path);
    for (size_t i = 0; i < n; i++) {
        DL_TRY(dl_settings_store(stores[i], i ? args->compared[i - 1] : args->target));
        DL_TRY(dl_swarm_refuse(stores[i], "report"));
        urls[i] = stores[i];
    }
    DL_TRY(dl_report_page_write(path, urls, n));
    printf("report: %s\n", path);
    return DILOCO_OK;
}

/* The kind of the output file decides what is read: a whole report opens views of the runs, and
 * curves need the records alone. Each curve is freed in any case. */
static diloco_status cmd_report(const dl_args *args)
{
    curve curves[MOST_RUNS];
    const size_t n = 1 + args->n_compared;
    diloco_status status = DILOCO_OK;
    DL_TRY(check_out(args->flags[DL_FLAG_REPORT_OUT]));
    if (n > MOST_RUNS)
        return dl_fail(DILOCO_EINVAL, "--compare: at most %d runs fit one report", MOST_RUNS);
    if (args->flags[DL_FLAG_REPORT_OUT] && dl_report_page_takes(args->flags[DL_FLAG_REPORT_OUT]))
        return write_page(args, n);
    for (size_t i = 0; i < n; i++) {
        curves[i] = (curve){0};
        dl_buf_init(&curves[i].evaluations, LONGEST_RECORD);
        dl_buf_init(&curves[i].sent, LONGEST_RECORD);
        dl_buf_init(&curves[i].points, LONGEST_RECORD);
    }
    for (size_t i = 0; i < n && !status; i++)
        status = read_curve(&curves[i], i ? args->compared[i - 1] : args->target);
    if (!status) status = answer(args, curves, n);
    for (size_t i = 0; i < n; i++) {
        dl_buf_deinit(&curves[i].evaluations);
        dl_buf_deinit(&curves[i].sent);
        dl_buf_deinit(&curves[i].points);
    }
    return status;
}

const dl_command dl_command_report = {
    .name = "report",
    .target = "URL",
    .summary = "a run's validation loss against steps and bytes, beside other runs'",
    .details =
        "Reads the records that replicas leave in the store. It prints one line for each run;\n"
        "--json prints the points of the curves. --out FILE.html is the page of the run in one "
        "file\n"
        "that needs no server, FILE.md the same as text, and FILE.svg the curves alone. FILE.pdf "
        "is\n"
        "FILE.html printed by Chromium or Chrome; DILOCO_BROWSER names another program.\n"
        "  diloco report runs/a --compare runs/b --out loss.svg",
    .flags = DL_FLAGS(DL_FLAG_COMPARE, DL_FLAG_REPORT_OUT, DL_FLAG_JSON),
    .run = cmd_report,
};
