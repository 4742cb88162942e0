/* chart.h - line charts as one SVG file: panels side by side, the same series in each.
 *
 * The file needs nothing beside it, and follows the viewer's dark or light colours. */
#ifndef DL_CLI_DISPLAY_CHART_H
#define DL_CLI_DISPLAY_CHART_H

#include "base/buf.h"

enum { DL_CHART_PANELS = 2 };

/* One point of a series, with an x for each panel and one y. */
typedef struct dl_chart_point {
    double x[DL_CHART_PANELS]; /* one for each panel */
    double y;
} dl_chart_point;

/* In a panel whose axis is logarithmic a series without a positive x has no place. Its last y is
 * drawn there as a dashed line across the panel. */
typedef struct dl_chart_series {
    const char *label;            /* in the legend */
    const dl_chart_point *points; /* by ascending x; at least one */
    size_t n;
} dl_chart_series;

/* One panel: its x axis. The y axis is the same in all panels. */
typedef struct dl_chart_panel {
    const char *title; /* of the x axis */
    bool logarithmic;  /* base 10 */
    bool bytes;        /* x counts bytes: "10 MB", not "10M" */
} dl_chart_panel;

/* The whole picture. Everything is borrowed until dl_chart_svg returns. */
typedef struct dl_chart {
    const char *title, *y_title; /* above the chart; above the panels */
    dl_chart_panel panels[DL_CHART_PANELS];
    const dl_chart_series *series; /* [n], borrowed */
    size_t n;                      /* 1 to 8 */
} dl_chart;

/* dl_chart_svg appends the SVG to `out`. Labels and titles may be any text: they are escaped.
 * Returns DILOCO_ENOMEM, or DILOCO_EPROTO at out->max; `out` then has a part of the picture. */
DL_MUST_CHECK diloco_status dl_chart_svg(dl_buf *out, const dl_chart *chart);

#endif
