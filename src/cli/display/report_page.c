/* report_page.c - see report_page.h.
 *
 * The HTML file is the page of a hub with the answers that it would ask for. It needs no server,
 * and its policy lets it ask none. In its JSON every "<" is written \u003c, so no text of a run
 * can end the script that holds it. */
#include "cli/display/report_page.h"

#include "base/file.h"
#include "cli/display/report_pdf.h"
#include "cli/display/units.h"
#include "cli/run_names.h"
#include "view/page_files.h"
#include "view/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the file, entries with details, and rows of the table of losses. */
enum { LONGEST = 512 << 20, ENTRIES = 200, CURVE_ROWS = 20 };

/* Return true if the path has this ending and a name before it: ".md" alone is no report. */
static bool ends_with(const char *path, const char *end)
{
    const size_t len = strlen(path), n = strlen(end);
    return len > n && !strcmp(path + len - n, end);
}

/* The case of letters counts: FILE.HTML is not taken. */
bool dl_report_page_takes(const char *path)
{
    return ends_with(path, ".html") || ends_with(path, ".pdf") || ends_with(path, ".md");
}

/* ---- runs */

/* Map the name of a run in the report to its URL, for the views. */
static bool url_of(void *user, char url[DL_VIEW_URL], const char *name)
{
    return dl_run_names_url(user, url, name);
}

/* The whole log is read before anything is written, as the file is not updated later. */
static diloco_status read_all(dl_view *view)
{
    uint64_t entries;
    bool grown, more;
    do
        DL_TRY(dl_view_follow(view, &entries, &grown, &more));
    while (more);
    return DILOCO_OK;
}

/* Writes the part of one run. */
typedef diloco_status (*run_fn)(dl_buf *out, dl_view *view, const char *name);

/* Bring each run up to date and give it to fn. The first error ends the walk. */
static diloco_status each_run(dl_buf *out, dl_views *views, const dl_run_names *names, run_fn fn)
{
    const char *all = (const char *)names->names.data;
    for (size_t at = 0; at < names->names.len; at += strlen(all + at) + 1) {
        dl_view *view;
        DL_TRY(dl_views_get(&view, views, all + at));
        diloco_status status = read_all(view);
        if (!status) status = fn(out, view, all + at);
        dl_view_let_go(view);
        DL_TRY(status);
    }
    return DILOCO_OK;
}

/* ---- FILE.html */

/* Strings are the only place in JSON where "<" can occur, so replacing it changes no value. */
static diloco_status add_escaped(dl_buf *out, const dl_buf *json)
{
    size_t from = 0;
    for (size_t i = 0; i < json->len; i++) {
        if (json->data[i] != '<') continue;
        DL_TRY(dl_buf_add(out, json->data + from, i - from));
        DL_TRY(dl_buf_addf(out, "\\u003c"));
        from = i + 1;
    }
    return dl_buf_add(out, json->data + from, json->len - from);
}

/* An answer is a member "what name": JSON, of the object that the page looks its requests up in. */
static diloco_status add_answer(dl_buf *out, const char *what, const char *name, dl_buf *json,
                                diloco_status status)
{
    if (!status) status = dl_buf_addf(out, "\"%s %s\":", what, name); /* a name has no quotes */
    if (!status) status = add_escaped(out, json);
    if (!status) status = dl_buf_addf(out, ",");
    dl_buf_clear(json);
    return status;
}

/* Answers to the three requests that the page makes for a run. */
static diloco_status add_run(dl_buf *out, dl_view *view, const char *name)
{
    dl_buf json;
    const uint64_t n = view->model.n_entries, from = n > ENTRIES ? n - ENTRIES : 0;
    dl_buf_init(&json, DL_VIEW_JSON_MAX);
    const dl_view_part all = {.to = n ? n : 1, .points = 1000, .bins = 96};
    diloco_status status = add_answer(out, "run", name, &json, dl_view_run_json(&json, view, &all));
    if (!status)
        status = add_answer(out, "entries", name, &json,
                            dl_view_entries_json(&json, view, from, ENTRIES));
    if (!status)
        status = add_answer(out, "settings", name, &json, dl_view_settings_json(&json, view));
    dl_buf_deinit(&json);
    return status;
}

/* The row of the run in the page's list. */
static diloco_status add_row(dl_buf *out, dl_view *view, const char *name)
{
    dl_buf json;
    (void)name;
    dl_buf_init(&json, DL_VIEW_JSON_MAX);
    diloco_status status = dl_view_row_json(&json, view);
    if (!status) status = add_escaped(out, &json);
    if (!status) status = dl_buf_addf(out, ",");
    dl_buf_deinit(&json);
    return status;
}

/* Add the script that holds all answers. "runs" is the answer to the list of runs. With `hub` false
 * the page opens a single run at once. */
static diloco_status add_data(dl_buf *out, dl_views *views, const dl_run_names *names)
{
    DL_TRY(dl_buf_addf(out, "window.dilocoReport={answers:{"));
    DL_TRY(each_run(out, views, names, add_run));
    DL_TRY(dl_buf_addf(out, "runs:{hub:false,runs:["));
    DL_TRY(each_run(out, views, names, add_row));
    return dl_buf_addf(out, "]}}};\n");
}

/* Scripts are inline, so the policy names them; it allows no request at all. */
static diloco_status add_html(dl_buf *out, dl_views *views, const dl_run_names *names)
{
    const dl_page_file *css = dl_page_file_find("page.css"), *js = dl_page_file_find("page.js");
    if (!css || !js) return dl_fail(DILOCO_EREFUSED, "this program was built without its page");
    /* The head of web/'s page, with the style and the script inside. */
    DL_TRY(dl_buf_addf(out,
                       "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                       "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                       "script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">\n"
                       "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                       "<title>diloco</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n"));
    DL_TRY(dl_buf_add(out, css->bytes, css->len));
    DL_TRY(dl_buf_addf(out,
                       "</style>\n</head>\n<body>\n"
                       "<a class=\"skip\" href=\"#main\">Skip to the content</a>\n"
                       "<header><nav aria-label=\"Pages\"><a class=\"home\" href=\"#/\">diloco"
                       "</a> <span id=\"where\"></span></nav><span id=\"live\"></span>"
                       "<button id=\"theme\" type=\"button\">Dark or light</button></header>\n"
                       "<main id=\"main\" tabindex=\"-1\"></main>\n"
                       "<noscript><p>This report needs JavaScript.</p></noscript>\n<script>\n"));
    /* The data come before the script that reads them. */
    DL_TRY(add_data(out, views, names));
    DL_TRY(dl_buf_addf(out, "</script>\n<script>\n"));
    DL_TRY(dl_buf_add(out, js->bytes, js->len));
    return dl_buf_addf(out, "</script>\n</body>\n</html>\n");
}

/* ---- FILE.md: text for a terminal or a wiki */

/* Add text of a run. Characters that Markdown or HTML would interpret are written as
 * entities. */
static diloco_status add_text(dl_buf *out, const char *text)
{
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c < ' ' || c == 0x7f)
            DL_TRY(dl_buf_add(out, " ", 1));
        else if (strchr("\\`*_{}[]<>()#+!|&", c))
            DL_TRY(dl_buf_addf(out, "&#%d;", c));
        else
            DL_TRY(dl_buf_add(out, text, 1));
    }
    return DILOCO_OK;
}

/* Add a cell of a table; a number that is not known is a dash. */
static diloco_status add_number(dl_buf *out, double x)
{
    return isfinite(x) ? dl_buf_addf(out, " %.6g |", x) : dl_buf_addf(out, " – |");
}

/* At most CURVE_ROWS rows at equal distances, and the last entry. Bytes are summed over all
 * entries. */
static diloco_status add_curve(dl_buf *out, const dl_model *m)
{
    const size_t n = m->n_entries;
    double bytes = 0;
    DL_TRY(dl_buf_addf(out, "\n## Loss\n\n| entry | step | loss | validation loss | bytes sent |\n"
                            "|---:|---:|---:|---:|---:|\n"));
    for (size_t e = 0, row = 0; e < n; e++) {
        const dl_mark *mark = &m->marks[e];
        dl_unit_text sent;
        bytes += mark->bytes;
        /* Rows at equal distances over the log, and the last entry always. */
        if (e + 1 < n && e < row * n / CURVE_ROWS) continue;
        row++;
        DL_TRY(dl_buf_addf(out, "| %zu | %" PRIu64 " |", e, mark->position));
        DL_TRY(add_number(out, mark->loss));
        DL_TRY(add_number(out, mark->eval_loss));
        DL_TRY(dl_buf_addf(out, " %s |\n", dl_bytes_text(sent, bytes)));
    }
    return DILOCO_OK;
}

/* Times are of the whole run, from the replicas' records. */
static diloco_status add_replicas(dl_buf *out, const dl_view *view)
{
    const diloco_run_status *run = dl_follower_status(view->follower);
    DL_TRY(dl_buf_addf(
        out, "\n## Replicas\n\n| replica | host | generation | steps | train | upload | wait "
             "| sent | received |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n"));
    for (size_t i = 0; i < run->n_replicas; i++) {
        const diloco_replica_status *r = run->replicas[i];
        const dl_lane *lane = dl_model_lane(&view->model, r->replica), none = {.n = 0};
        /* A replica without a record has a row of zeros. */
        const dl_lane *l = lane ? lane : &none;
        const dl_cell sum = dl_lane_sum(l, view->model.shift, 0, UINT64_MAX);
        dl_unit_text train, put, wait, sent, received;
        DL_TRY(dl_buf_addf(out, "| %s | ", r->replica));
        DL_TRY(add_text(out, r->host));
        DL_TRY(dl_buf_addf(
            out, " | %u | %" PRIu64 " | %s | %s | %s | %s | %s |\n", (unsigned)r->generation,
            r->step, dl_time_text(train, (double)sum.train_s), dl_time_text(put, (double)sum.put_s),
            dl_time_text(wait, (double)sum.wait_s), dl_bytes_text(sent, l->sent),
            dl_bytes_text(received, l->received)));
    }
    return DILOCO_OK;
}

/* Only settings that are equal on every replica, without secrets: the file may be published. */
static diloco_status add_settings(dl_buf *out, const dl_config *config)
{
    DL_TRY(dl_buf_addf(out, "\n## Settings that differ from the defaults\n\n"
                            "| setting | value | default |\n|---|---|---|\n"));
    for (size_t i = 0; i < dl_config_table.n; i++) {
        const dl_option *row = &dl_config_table.rows[i];
        dl_buf text;
        /* Options of a machine, secrets and defaults are left out. */
        if (!(row->flags & DL_OPTION_AGREE) || row->flags & DL_OPTION_SECRET ||
            dl_option_reads(row, config, row->fallback))
            continue;
        dl_buf_init(&text, 1 << 16);
        diloco_status status = dl_option_text(&text, row, config);
        const char *value = status ? NULL : dl_buf_str(&text);
        if (!status && !value) status = dl_fail(DILOCO_ENOMEM, "out of memory for a setting");
        /* Names and defaults are of this program, so only the value is escaped. */
        if (!status) status = dl_buf_addf(out, "| %s | ", row->name);
        if (!status) status = add_text(out, value);
        if (!status) status = dl_buf_addf(out, " | %s |\n", row->fallback);
        dl_buf_deinit(&text);
        DL_TRY(status);
    }
    return DILOCO_OK;
}

/* State, model and volumes of the run, then the result of following its chain. */
static diloco_status add_head(dl_buf *out, const dl_view *view)
{
    const diloco_run_status *run = dl_follower_status(view->follower);
    const dl_model *m = &view->model;
    dl_unit_text sent, parallel, parameters;
    DL_TRY(dl_buf_addf(out, "%s: %zu of %" PRIu64 " entries, %" PRIu64 " aborted, %zu replica%s.",
                       dl_view_state(view), m->n_entries, run->entries_total, m->total.n_aborts,
                       run->n_replicas, run->n_replicas == 1 ? "" : "s"));
    DL_TRY(dl_buf_addf(out, " Model "));
    DL_TRY(add_text(out, run->model));
    DL_TRY(
        dl_buf_addf(out, ", %s parameters, preset ", dl_count_text(parameters, run->parameters)));
    DL_TRY(add_text(out, run->preset[0] ? run->preset : "none"));
    DL_TRY(dl_buf_addf(out, ", made by diloco "));
    DL_TRY(add_text(out, run->program));
    DL_TRY(dl_buf_addf(out, ".\n"));
    DL_TRY(dl_buf_addf(out,
                       "\nContributions had %s in all; a float32 all-reduce after each step "
                       "would have sent %s.\n",
                       dl_bytes_text(sent, m->total.bytes),
                       dl_bytes_text(parallel, dl_view_data_parallel(view))));
    return dl_buf_addf(out,
                       "\nThe chain of %" PRIu64 " entries is %s, and %" PRIu64
                       " results are disputed. `diloco verify` computes every result again.\n",
                       (uint64_t)m->n_entries, m->total.n_unchained ? "BROKEN" : "whole",
                       m->total.n_disputes);
}

/* The functions below read the view, which needs its lock. */
static diloco_status add_markdown(dl_buf *out, dl_view *view, const char *name)
{
    dl_finding findings[DL_FINDINGS];
    /* Runs in one file are separated by an empty line. */
    DL_TRY(dl_buf_addf(out, "%s# %s\n\n", out->len ? "\n" : "", name));
    pthread_mutex_lock(&view->lock);
    diloco_status status = add_head(out, view);
    const size_t n = dl_view_findings(findings, view);
    for (size_t i = 0; i < n && !status; i++) {
        status = dl_buf_addf(out, "\n- ");
        if (!status) status = add_text(out, findings[i].text);
        if (!status && i + 1 == n) status = dl_buf_addf(out, "\n");
    }
    if (!status) status = add_curve(out, &view->model);
    if (!status) status = add_replicas(out, view);
    if (!status) status = add_settings(out, &dl_follower_run(view->follower)->config);
    pthread_mutex_unlock(&view->lock);
    return status;
}

/* The browser for FILE.pdf is looked for first, before the runs are read. */
diloco_status dl_report_page_write(const char *path, const char *const *stores, size_t n)
{
    dl_views *views = NULL;
    dl_run_names names;
    dl_buf out;
    diloco_status status = DILOCO_OK;
    if (ends_with(path, ".pdf")) DL_TRY(dl_report_pdf_check());
    dl_run_names_init(&names);
    dl_buf_init(&out, LONGEST);
    for (size_t i = 0; i < n && !status; i++)
        status = dl_run_names_add(&names, stores[i]);
    if (!status) status = dl_views_create(&views, url_of, &names);
    if (!status)
        status = ends_with(path, ".md") ? each_run(&out, views, &names, add_markdown)
                                        : add_html(&out, views, &names);
    const dl_span text = {out.data, out.len};
    if (!status)
        status = ends_with(path, ".pdf") ? dl_report_pdf_write(path, text)
                                         : dl_file_write(path, &text, 1);
    dl_views_destroy(views);
    dl_run_names_deinit(&names);
    dl_buf_deinit(&out);
    return status;
}
