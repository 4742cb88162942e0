"""A picture of the front: loss gap over bytes that a replica sends, logarithmic. SVG as text."""
import math
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 420, 60, 20, 34, 40
COLOURS = ("#1f5fa8", "#b3362b", "#2a7f4f", "#8a5fb0", "#c98a1b", "#3a9aa6", "#777777", "#d0679d")


def draw(title, rows, front):
    """rows: [(arm, bytes, times fewer, Interval)]; front: the names of arms that none beats."""
    rows = [row for row in rows if math.isfinite(row[3].mean)]  # the others diverged
    xs = [math.log10(row[2]) for row in rows]
    gaps = [row[3].mean for row in rows]
    low, high = min(gaps + [0.0]), max(gaps + [1.0])
    left, right = math.floor(min(xs + [0])), math.ceil(max(xs + [1]))

    def x(fewer):
        return LEFT + (math.log10(fewer) - left) / (right - left) * (WIDTH - LEFT - RIGHT)

    def y(gap):
        return TOP + (high - gap) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="10" y="18" font-size="13" font-weight="bold">{escape(title)}: loss gap (%) '
           'over times fewer bytes</text>']
    for power in range(left, right + 1):
        at = x(10 ** power)
        out += [f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}" '
                'stroke="#ddd"/>',
                f'<text x="{at:.1f}" y="{HEIGHT - 22}" text-anchor="middle">{10 ** power:,}</text>']
    for gap in (0, 1, 2, 5, 10, 20):
        if low <= gap <= high:
            out += [f'<line x1="{LEFT}" y1="{y(gap):.1f}" x2="{WIDTH - RIGHT}" y2="{y(gap):.1f}" '
                    f'stroke="{"#444" if gap == 0 else "#ddd"}"/>',
                    f'<text x="{LEFT - 6}" y="{y(gap) + 4:.1f}" text-anchor="end">{gap}</text>']
    methods = list(dict.fromkeys(row[0].split(", H")[0] for row in rows))
    for name, _, fewer, gap in rows:
        colour = COLOURS[methods.index(name.split(", H")[0]) % len(COLOURS)]
        size, fill = (5, colour) if name in front else (3, "white")
        out.append(f'<circle cx="{x(fewer):.1f}" cy="{y(gap.mean):.1f}" r="{size}" fill="{fill}" '
                   f'stroke="{colour}"><title>{escape(name)}: {gap}</title></circle>')
    for i, method in enumerate(methods):
        out.append(f'<text x="{LEFT + 8 + 100 * i}" y="{HEIGHT - 6}" '
                   f'fill="{COLOURS[i % len(COLOURS)]}">{escape(method)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
