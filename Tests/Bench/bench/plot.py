"""Plot of a suite's measurements as SVG: a bar for each contender's median, a whisker from minimum to maximum."""

from xml.sax.saxutils import escape

from bench.table import number

WIDTH, LEFT, RIGHT = 760, 230, 110
BAR, GAP, TITLE, BETWEEN = 18, 8, 34, 16
OURS, PEER = "#2a6f97", "#a9b4bd"


def draw(title, measurements):
    """Returns the SVG text."""
    parts = [_text(12, 24, title, "bold 16px")]
    top = 40
    for measurement in measurements:
        drawn, height = _panel(measurement, top)
        parts += drawn
        top += height + BETWEEN
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}">',
        f'<rect width="{WIDTH}" height="{top}" fill="white"/>', *parts, "</svg>", ""])


def _panel(measurement, top):
    better = "more is better" if measurement.is_rate else "less is better"
    parts = [_text(12, top + 18, f"{measurement.title} ({measurement.unit}, {better})", "13px")]
    spreads = {contender.name: measurement.spread(contender.name) for contender in measurement.contenders
               if contender.name not in measurement.failures}
    most = max((spread.high for spread in spreads.values() if spread), default=0) or 1
    scale = (WIDTH - LEFT - RIGHT) / most
    y = top + TITLE
    for contender in measurement.contenders:
        middle = y + BAR / 2
        parts.append(_text(LEFT - 8, middle + 4, contender.name, "12px", "end"))
        spread = spreads.get(contender.name)
        if spread:
            color = OURS if contender.is_ours else PEER
            low, median, high = (LEFT + max(0, value) * scale for value in (spread.low, spread.median, spread.high))
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{median - LEFT:.1f}" height="{BAR}" fill="{color}"/>')
            parts.append(f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8" '
                         'stroke="black" fill="none"/>')
            parts.append(_text(max(high, median) + 6, middle + 4, number(spread.median), "12px"))
        else:
            parts.append(_text(LEFT, middle + 4, "failed", "italic 12px"))
        y += BAR + GAP
    return parts, y - top


def _text(x, y, text, font, anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" style="font: {font} sans-serif" text-anchor="{anchor}">{escape(text)}</text>'
