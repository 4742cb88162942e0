/* Charts as SVG: where points are drawn, what a label may contain. */
#include "cli/display/chart.h"

#include "check.h"

#include <string.h>

static const dl_chart_point falling[] = {{{0, 1e6}, 4}, {{50, 1e7}, 3}, {{100, 1e8}, 2}};
static const dl_chart_point alone[] = {{{0, 0}, 4}, {{100, 0}, 3}};

static dl_chart chart_of(const dl_chart_series *series, size_t n)
{
    return (dl_chart){
        .title = "title",
        .y_title = "loss",
        .panels = {{.title = "steps"}, {.title = "bytes", .logarithmic = true, .bytes = true}},
        .series = series,
        .n = n};
}

static const char *draw(dl_buf *out, const dl_chart *chart)
{
    dl_buf_init(out, 1 << 20);
    CHECK_OK(dl_chart_svg(out, chart));
    return dl_buf_str(out);
}

TEST(points_are_drawn_between_the_ends_of_both_axes)
{
    dl_buf out;
    const dl_chart_series series[] = {{"a", falling, 3}};
    const dl_chart chart = chart_of(series, 1);
    const char *svg = draw(&out, &chart);
    /* y: 2 to 4 over 240 pixels from 82 on. x: 0 to 100, then 1 MB to 100 MB in decades. */
    CHECK_CONTAINS("d=\"M64.0 82.0L264.0 202.0L464.0 322.0\"", svg);
    CHECK_CONTAINS("d=\"M562.0 82.0L762.0 202.0L962.0 322.0\"", svg);
    CHECK_CONTAINS(">100 MB<", svg);
    dl_buf_deinit(&out);
}

TEST(series_without_bytes_is_a_dashed_line_at_its_last_value)
{
    dl_buf out;
    const dl_chart_series series[] = {{"a", falling, 3}, {"b", alone, 2}};
    const dl_chart chart = chart_of(series, 2);
    const char *svg = draw(&out, &chart);
    CHECK_CONTAINS("stroke-dasharray=\"6 5\" d=\"M562.0 220.0h400\"", svg);
    dl_buf_deinit(&out);
}

TEST(equal_values_are_drawn_on_an_axis_with_a_width)
{
    dl_buf out;
    const dl_chart_point one[] = {{{0, 0}, 1}};
    const dl_chart_series series[] = {{"a", one, 1}};
    const dl_chart chart = chart_of(series, 1);
    const char *svg = draw(&out, &chart);
    CHECK(!strstr(svg, "nan") && !strstr(svg, "inf"));
    dl_buf_deinit(&out);
}

TEST(label_with_markup_is_escaped)
{
    dl_buf out;
    const dl_chart_series series[] = {{"</text><script>&\n", falling, 3}};
    const dl_chart chart = chart_of(series, 1);
    const char *svg = draw(&out, &chart);
    CHECK_CONTAINS("&lt;/text&gt;&lt;script&gt;&amp;?<", svg);
    dl_buf_deinit(&out);
}

TEST_MAIN(points_are_drawn_between_the_ends_of_both_axes,
          series_without_bytes_is_a_dashed_line_at_its_last_value,
          equal_values_are_drawn_on_an_axis_with_a_width, label_with_markup_is_escaped)
