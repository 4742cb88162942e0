/* chart.c - the SVG of a chart (chart.h). Lengths are in the file's own units, pixels at first.
 *
 * Begin with dl_chart_svg. Each panel has a frame: its place, and its two axes. Numbers are
 * written with one decimal, which is below a pixel. */
#include "cli/display/chart.h"

#include <math.h>
#include <stdio.h>

enum {
    PANEL_WIDTH = 400,
    PANEL_HEIGHT = 240,
    LEFT = 64,   /* of each panel, for the numbers of its y axis */
    TOP = 64,    /* the title and the legend's first line */
    LEGEND = 18, /* a line of the legend */
    BOTTOM = 48,
    RIGHT = 34,
    MOST_TICKS = 12,
};

/* By Okabe and Ito: colours that people with any colour vision can distinguish. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f"};
enum { N_COLOURS = sizeof colours / sizeof *colours };

/* The range of an axis: from low to high, or their logarithms. */
typedef struct axis {
    double low, high; /* ends, in values */
    bool logarithmic;
    int n;                    /* ticks */
    double ticks[MOST_TICKS]; /* ascending, in values */
} axis;

/* ---- axes */

/* Return the smallest of 1, 2 and 5 times a power of ten that is at least `least`. The small
 * allowance is for rounding. */
static double nice_step(double least)
{
    const double power = pow(10, floor(log10(least)));
    for (int i = 0; i < 3; i++) {
        const double step = power * (double[]){1, 2, 5}[i];
        if (step >= least * (1 - 1e-9)) return step;
    }
    return 10 * power;
}

/* Values that have no place on the axis are left out. */
static void widen(axis *a, double value)
{
    if (!isfinite(value) || (a->logarithmic && value <= 0)) return;
    a->low = fmin(a->low, value);
    a->high = fmax(a->high, value);
}

/* Round the axis outwards to its ticks. An axis without a value, or with a single one, gets a
 * width. */
static void finish(axis *a)
{
    if (a->low > a->high) a->low = a->high = 1;
    if (a->logarithmic) {
        /* A logarithmic axis has ticks at powers of ten, and skips some if there would be too
         * many. */
        const double low = floor(log10(a->low)), high = fmax(ceil(log10(a->high)), low + 1);
        const double every = ceil((high - low) / (MOST_TICKS - 1));
        a->low = pow(10, low), a->high = pow(10, high);
        for (a->n = 0; low + a->n * every <= high + 1e-9 && a->n < MOST_TICKS; a->n++)
            a->ticks[a->n] = pow(10, low + a->n * every);
        return;
    }
    if (a->low == a->high) a->high = a->low + fmax(fabs(a->low), 1);
    /* About five ticks; the loop always reaches the end, since the steps are rounded up. */
    const double step = nice_step((a->high - a->low) / 5);
    a->low = floor(a->low / step + 1e-9) * step;
    for (a->n = 0; a->n < MOST_TICKS; a->n++) {
        a->ticks[a->n] = a->low + a->n * step;
        if (a->ticks[a->n] >= a->high - step * 1e-9) {
            a->high = a->ticks[a->n++];
            return;
        }
    }
}

/* Return where a value is between the ends, from 0 to 1. */
static double place(const axis *a, double value)
{
    if (!a->logarithmic) return (value - a->low) / (a->high - a->low);
    return log10(value / a->low) / log10(a->high / a->low);
}

/* A series may have no positive value for a logarithmic axis. */
static bool has_place(const axis *a, double x)
{
    return !a->logarithmic || x > 0;
}

/* ---- writing */

/* Add text from outside as XML text. Control characters are replaced, as XML 1.0 has no form for
 * them. */
static diloco_status add_text(dl_buf *out, const char *text)
{
    for (const char *c = text; *c; c++) {
        const char *as = *c == '&' ? "&amp;" : *c == '<' ? "&lt;" : *c == '>' ? "&gt;" : NULL;
        if (as)
            DL_TRY(dl_buf_addf(out, "%s", as));
        else
            DL_TRY(dl_buf_add(out, (unsigned char)*c < ' ' ? "?" : c, 1));
    }
    return DILOCO_OK;
}

static diloco_status add_label(dl_buf *out, double x, double y, const char *anchor,
                               const char *text)
{
    DL_TRY(dl_buf_addf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor));
    DL_TRY(add_text(out, text));
    return dl_buf_addf(out, "</text>\n");
}

/* Write a tick's number. Ticks are round, so few digits say all of them: "200", "5k", "10 MB". */
static void tick_text(char *out, size_t cap, const dl_chart_panel *panel, double value)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    size_t unit = 0;
    for (; fabs(value) >= 1000 * (1 - 1e-9) && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1000;
    snprintf(out, cap, "%.6g%s%s%s", value, panel->bytes ? " " : "", units[unit],
             panel->bytes ? "B" : "");
}

/* The place of a panel, and its axes. */
typedef struct frame {
    double left, top; /* of the panel's plotting area */
    axis x, y;
} frame;

static double x_of(const frame *f, double x)
{
    return f->left + PANEL_WIDTH * place(&f->x, x);
}
static double y_of(const frame *f, double y)
{
    return f->top + PANEL_HEIGHT * (1 - place(&f->y, y));
}

/* Grid lines and numbers of both axes; y has its title above the panels. */
static diloco_status add_axes(dl_buf *out, const frame *f, const dl_chart_panel *panel)
{
    const double right = f->left + PANEL_WIDTH, bottom = f->top + PANEL_HEIGHT;
    /* y: lines across, numbers to the left. */
    for (int i = 0; i < f->y.n; i++) {
        char text[32];
        const double y = y_of(f, f->y.ticks[i]);
        snprintf(text, sizeof text, "%.6g", f->y.ticks[i]);
        DL_TRY(
            dl_buf_addf(out, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", f->left, y, right));
        DL_TRY(add_label(out, f->left - 6, y + 4, "end", text));
    }
    /* x: lines down, numbers below. */
    for (int i = 0; i < f->x.n; i++) {
        char text[32];
        const double x = x_of(f, f->x.ticks[i]);
        tick_text(text, sizeof text, panel, f->x.ticks[i]);
        DL_TRY(
            dl_buf_addf(out, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>\n", x, f->top, bottom));
        DL_TRY(add_label(out, x, bottom + 16, "middle", text));
    }
    return add_label(out, f->left + PANEL_WIDTH / 2.0, bottom + 36, "middle", panel->title);
}

/* Draw series i in panel p: a line, and a dot at its last point. Points that are not finite are
 * left out. A series without a place is a dashed line at its last y. */
static diloco_status add_series(dl_buf *out, const frame *f, const dl_chart_series *s, size_t i,
                                int p)
{
    const char *colour = colours[i % N_COLOURS];
    const dl_chart_point *last = &s->points[s->n - 1];
    /* No place on this axis: a dashed line at the last value. */
    if (!has_place(&f->x, last->x[p]))
        return dl_buf_addf(out,
                           "<path class=\"line\" stroke=\"%s\" stroke-dasharray=\"6 5\" "
                           "d=\"M%.1f %.1fh%d\"/>\n",
                           colour, f->left, y_of(f, last->y), PANEL_WIDTH);
    DL_TRY(dl_buf_addf(out, "<path class=\"line\" stroke=\"%s\" d=\"", colour));
    /* The first point moves the pen, the others draw. */
    char step = 'M';
    for (const dl_chart_point *at = s->points; at <= last; at++) {
        if (!has_place(&f->x, at->x[p]) || !isfinite(at->y)) continue;
        DL_TRY(dl_buf_addf(out, "%c%.1f %.1f", step, x_of(f, at->x[p]), y_of(f, at->y)));
        step = 'L';
    }
    DL_TRY(dl_buf_addf(out, "\"/>\n"));
    if (!isfinite(last->y)) return DILOCO_OK;
    return dl_buf_addf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n",
                       x_of(f, last->x[p]), y_of(f, last->y), colour);
}

/* The x axis begins at 0 unless it is logarithmic; y does not, because losses are compared in
 * their range. */
static diloco_status add_panel(dl_buf *out, const dl_chart *chart, int p, double top)
{
    frame f = {
        .left = LEFT + p * (double)(LEFT + PANEL_WIDTH + RIGHT),
        .top = top,
        .x = {.low = INFINITY, .high = -INFINITY, .logarithmic = chart->panels[p].logarithmic},
        .y = {.low = INFINITY, .high = -INFINITY}};
    /* The range of the panel is that of all its series, so they compare. */
    for (size_t i = 0; i < chart->n; i++) {
        for (size_t k = 0; k < chart->series[i].n; k++) {
            widen(&f.x, chart->series[i].points[k].x[p]);
            widen(&f.y, chart->series[i].points[k].y);
        }
    }
    /* Steps and bytes begin at 0. */
    if (!f.x.logarithmic) widen(&f.x, 0);
    finish(&f.x);
    finish(&f.y);
    DL_TRY(add_axes(out, &f, &chart->panels[p]));
    for (size_t i = 0; i < chart->n; i++)
        DL_TRY(add_series(out, &f, &chart->series[i], i, p));
    return DILOCO_OK;
}

/* Title and legend come first, then the panels side by side. The colours follow the viewer's
 * dark or light mode. */
diloco_status dl_chart_svg(dl_buf *out, const dl_chart *chart)
{
    const double top = TOP + LEGEND * (double)chart->n, height = top + PANEL_HEIGHT + BOTTOM,
                 width = DL_CHART_PANELS * (double)(LEFT + PANEL_WIDTH + RIGHT);
    DL_TRY(dl_buf_addf(out,
                       "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                       "viewBox=\"0 0 %.0f %.0f\" role=\"img\" font-family=\"sans-serif\" "
                       "font-size=\"12\">\n<title>",
                       width, height, width, height));
    DL_TRY(add_text(out, chart->title));
    /* The style is in the file itself; media queries follow the viewer's settings. */
    DL_TRY(dl_buf_addf(out, "</title>\n<style>\n"
                            "rect{fill:#fff}text{fill:#222}.grid{stroke:#ddd;fill:none}\n"
                            ".line{stroke-width:2;fill:none;stroke-linejoin:round}\n"
                            "@media(prefers-color-scheme:dark){rect{fill:#16181c}text{fill:#ddd}"
                            ".grid{stroke:#3a3d42}}\n"
                            "</style>\n<rect width=\"100%%\" height=\"100%%\"/>\n"
                            "<g font-size=\"15\" font-weight=\"bold\">\n"));
    DL_TRY(add_label(out, LEFT, 26, "start", chart->title));
    DL_TRY(dl_buf_addf(out, "</g>\n"));
    /* One line of the legend for each series. */
    for (size_t i = 0; i < chart->n; i++) {
        const double y = 44 + LEGEND * (double)i;
        DL_TRY(dl_buf_addf(out, "<path class=\"line\" stroke=\"%s\" d=\"M%d %.1fh22\"/>\n",
                           colours[i % N_COLOURS], LEFT, y));
        DL_TRY(add_label(out, LEFT + 30, y + 4, "start", chart->series[i].label));
    }
    DL_TRY(add_label(out, LEFT, top - 8, "start", chart->y_title));
    for (int p = 0; p < DL_CHART_PANELS; p++)
        DL_TRY(add_panel(out, chart, p, top));
    return dl_buf_addf(out, "</svg>\n");
}
