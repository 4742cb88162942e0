/* page_model.c - the server's cost of a page of a very long run (bench/page.md).
 *
 *     page_model STORE ENTRIES REPLICAS
 *
 * STORE is any run with an entry. Its view is filled with ENTRIES entries of REPLICAS replicas and
 * three lines of record for each, as a hub has them in memory once it has read them. Then the
 * answers for a viewer are made. The log and the record are not read: a fake of this length has 6
 * GB. */
#include "view/parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { MOST_REPLICAS = 1024, ANSWERS = 20 };

static void check(diloco_status status)
{
    if (!status) return;
    fprintf(stderr, "page_model: %s\n", diloco_error_text());
    exit(1);
}

static bool url_of(void *user, char url[DL_VIEW_URL], const char *name)
{
    (void)name;
    return snprintf(url, DL_VIEW_URL, "%s", (const char *)user) < DL_VIEW_URL;
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add_line(dl_model *m, const char *replica, const char *line)
{
    check(dl_model_line(m, replica, line, strlen(line)));
}

static void add_records(dl_model *m, const char *replica, uint64_t e)
{
    char line[320];
    snprintf(line, sizeof line,
             "{\"event\":\"step\",\"position\":%" PRIu64 ",\"entry\":%" PRIu64
             ",\"tokens\":1000,\"samples\":10,\"loss\":%.4f,\"tokens_per_s\":300}",
             e, e, 2 + 4 / sqrt(1 + (double)e / 50));
    add_line(m, replica, line);
    snprintf(line, sizeof line,
             "{\"event\":\"contribution\",\"entry\":%" PRIu64
             ",\"pseudo_grad_norm\":1.5,\"encode_s\":0.1,\"put_s\":0.4}",
             e);
    add_line(m, replica, line);
    snprintf(
        line, sizeof line,
        "{\"event\":\"commit\",\"entry\":%" PRIu64
        ",\"missing\":[],\"peer_grad_similarity\":0.5,\"aggregated_grad_norm\":1,"
        "\"own_similarity\":0.7,\"bytes_sent\":1,\"wait_s\":1,\"exchange_s\":0.9,\"time\":%.3f}",
        e, 1e9 + 10 * (double)e);
    add_line(m, replica, line);
}

static void fill(dl_model *m, uint64_t n, size_t replicas)
{
    static char names[MOST_REPLICAS][16], generations[MOST_REPLICAS][24];
    static const char *members[MOST_REPLICAS];
    for (size_t i = 0; i < replicas; i++) {
        snprintf(names[i], sizeof names[i], "r%zu", i);
        snprintf(generations[i], sizeof generations[i], "r%zu.0000", i);
        members[i] = generations[i];
    }
    for (uint64_t e = m->n_entries; e < n; e++) {
        const diloco_log_entry entry = {.entry = e,
                                        .commit = true,
                                        .position = e,
                                        .members = members,
                                        .n_members = replicas,
                                        .loss = 2 + 4 / sqrt(1 + (double)e / 50),
                                        .bytes = 1000000,
                                        .steps = 256,
                                        .samples = 2560};
        check(dl_model_entry(m, &entry, true));
        for (size_t i = 0; i < replicas; i++)
            add_records(m, names[i], e);
    }
}

static void answer(const char *what, dl_view *view, dl_view_part part)
{
    double worst = 0, sum = 0;
    size_t bytes = 0;
    for (int i = 0; i < ANSWERS; i++) {
        dl_buf out;
        dl_buf_init(&out, DL_VIEW_JSON_MAX);
        view->refreshed = dl_clock_now();
        view->more = false;
        const double began = cpu_s();
        check(dl_view_run_json(&out, view, &part));
        const double took = cpu_s() - began;
        sum += took, worst = fmax(worst, took), bytes = out.len;
        dl_buf_deinit(&out);
    }
    printf("%-24s %6.1f ms of CPU, at most %6.1f; %zu kB\n", what, 1e3 * sum / ANSWERS, 1e3 * worst,
           bytes / 1000);
}

int main(int argc, char **argv)
{
    if (argc != 4) return fprintf(stderr, "usage: page_model STORE ENTRIES REPLICAS\n"), 2;
    const uint64_t n = strtoull(argv[2], NULL, 10);
    const size_t replicas = strtoul(argv[3], NULL, 10);
    dl_views *views;
    dl_view *view;
    dl_buf out;
    struct rusage used;
    if (n < 1 || replicas < 1 || replicas > MOST_REPLICAS) return 2;
    check(dl_views_create(&views, url_of, argv[1]));
    check(dl_views_get(&view, views, "run"));
    dl_buf_init(&out, DL_VIEW_JSON_MAX);
    check(dl_view_run_json(&out, view, &(dl_view_part){.to = 0}));
    dl_buf_deinit(&out);
    const double began = cpu_s();
    fill(&view->model, n, replicas);
    getrusage(RUSAGE_SELF, &used);
    printf("%" PRIu64 " entries of %zu replicas: filled in %.0f s of CPU, %.2f us a line; %ld MB\n",
           n, replicas, cpu_s() - began,
           1e6 * (cpu_s() - began) / (3 * (double)n * (double)replicas), used.ru_maxrss / 1000);
    answer("the newest 24 entries", view, (dl_view_part){.to = 0});
    answer("all entries", view, (dl_view_part){.from = 0, .to = n});
    dl_view_let_go(view);
    dl_views_destroy(views);
    return 0;
}
