"""A picture of the checks of a row: each difference as a dot in its 95 % interval, zero and the
band marked. SVG written as text."""
from html import escape

WIDTH, LEFT, LINE, TOP = 860, 430, 26, 34
COLOURS = {"holds": "#2a7f4f", "does not hold": "#b3362b", "inconclusive": "#8a8a8a"}


def draw(title, lines):
    """lines: [(text, verdict, Interval, band or None)]"""
    ends = [0.0]
    for _, _, d, band in lines:
        finite = [v for v in (d.low, d.high) if abs(v) < 1e6]
        ends += [d.mean, *finite] + ([band] if band else [])
    low, high = min(ends), max(ends)
    span = (high - low) or 1.0
    low, high = low - 0.05 * span, high + 0.05 * span

    def x(value):
        value = min(max(value, low), high)
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - 20)

    height = TOP + LINE * len(lines) + 30
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
           f'<text x="10" y="18" font-size="13" font-weight="bold">{escape(title)}</text>',
           f'<line x1="{x(0):.1f}" y1="{TOP - 8}" x2="{x(0):.1f}" y2="{height - 24}" '
           'stroke="#444" stroke-dasharray="2 3"/>']
    for i, (text, verdict, d, band) in enumerate(lines):
        y, colour = TOP + LINE * i + 10, COLOURS[verdict]
        out.append(f'<text x="10" y="{y + 4}">{escape(text)}</text>')
        if band:
            out.append(f'<line x1="{x(band):.1f}" y1="{y - 9}" x2="{x(band):.1f}" y2="{y + 9}" '
                       'stroke="#c98a1b" stroke-width="2"/>')
        out.append(f'<line x1="{x(d.low):.1f}" y1="{y}" x2="{x(d.high):.1f}" y2="{y}" '
                   f'stroke="{colour}" stroke-width="2"/>')
        out.append(f'<circle cx="{x(d.mean):.1f}" cy="{y}" r="4" fill="{colour}"/>')
    out.append(f'<text x="{LEFT}" y="{height - 8}">{low:+.2f} %</text>')
    out.append(f'<text x="{WIDTH - 20}" y="{height - 8}" text-anchor="end">{high:+.2f} %</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
