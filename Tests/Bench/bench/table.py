"""Measurements as tables of text, which are Markdown too."""

UNITS = {"p50_us": "p50, µs", "p99_us": "p99, µs", "p999_us": "p99.9, µs", "cpu_us": "CPU, µs",
         "cpu_ms": "CPU, ms", "cpu_us_per_s": "CPU, µs/s", "resident_mib": "resident, MiB"}


def number(value):
    """Formats a number with three significant digits, or with its whole integer part."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def render(measurement):
    """Returns the lines of one measurement: rows, commands and targets."""
    extras = measurement.extras()
    ours = measurement.ours if measurement.peers else []
    head = ["", measurement.unit, "min – max", *(f"{one.name} / it" for one in ours),
            *(UNITS.get(name, name.replace("_", " ")) for name in extras)]
    rows = []
    for contender in measurement.contenders:
        spread = measurement.spread(contender.name)
        if contender.name in measurement.failures or spread is None:
            rows.append([contender.name, "failed", "", *("" for _ in ours), *("" for _ in extras)])
            continue
        cells = [contender.name, number(spread.median), f"{number(spread.low)} – {number(spread.high)}"]
        for one in ours:
            ratio = measurement.ratio(one.name, contender.name) if one is not contender else None
            cells.append(f"{ratio.median:.2f} ×" if ratio else "")
        for name in extras:
            extra = measurement.spread(contender.name, name)
            cells.append(number(extra.median) if extra else "")
        rows.append(cells)
    lines = [f"## {measurement.title}", ""]
    if measurement.note:
        lines += [measurement.note, ""]
    lines += grid(head, rows)
    lines.append("")
    for contender in measurement.contenders:
        lines.append(f"- {contender.name}: `{contender.command}`")
        if contender.name in measurement.failures:
            lines.append(f"  FAILED: {measurement.failures[contender.name]}")
    if measurement.targets:
        lines.append("")
    for target in measurement.targets:
        lines.append(f"- {verdict(measurement, target)}")
    return lines + [""]


def verdict(measurement, target):
    """Returns the line of a target."""
    found = measurement.found(target)
    if found is None:
        return f"UNKNOWN: {target.ours}: {target.describe()}: one of them failed"
    word = "reached" if target.is_reached(found.median) else "NOT REACHED"
    return f"{word}: {target.ours}: {target.describe()}; it is {number(found.median)} " \
           f"({number(found.low)} – {number(found.high)})"


def grid(head, rows):
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(cells):
        first = cells[0].ljust(widths[0])
        return "| " + " | ".join([first, *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:]))]) + " |"
    rule = "| " + " | ".join(["-" * widths[0], *("-" * max(1, width - 1) + ":" for width in widths[1:])]) + " |"
    return [line(head), rule, *(line(row) for row in rows)]
