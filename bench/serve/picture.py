# SPDX-License-Identifier: Apache-2.0
"""A picture of the results of report.py as SVG: no script, no fonts or files of others, for light and dark pages.

Panels from left to right and down: lines with intervals (points), pairs of bars for rates (rows in 1/s with both sides), and
all ratios that have a limit, on a logarithmic axis with the limit as a tick.
"""
import html
import math

WIDTH, MARGIN, GAP = 960, 24, 36
PANEL_HEIGHT, BAR, ROW = 220, 16, 22
# Colours that differ in lightness as well; Okabe and Ito's, and grey.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
STYLE = """
  svg { font: 12px system-ui, sans-serif; background: #fff; color: #1f2328; }
  text { fill: currentColor; } .dim { opacity: .65; } .title { font-size: 15px; font-weight: 600; }
  .panel { font-weight: 600; } .grid { stroke: currentColor; opacity: .15; } .axis { stroke: currentColor; opacity: .5; }
  .limit { stroke: currentColor; stroke-width: 2; }
  @media (prefers-color-scheme: dark) { svg { background: #0d1117; color: #e6edf3; } }
"""


def escape(text):
    return html.escape(str(text), quote=True)


def nice(low, high, count):
    """Round numbers between two, about `count` of them."""
    step = 10 ** math.floor(math.log10(max(high - low, 1e-9) / count))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= count)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def text(x, y, content, anchor="start", kind=""):
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(content)}</text>'


def line(x1, y1, x2, y2, kind="", style=""):
    kind = f' class="{kind}"' if kind else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{kind}{style and " " + style}/>'


def group(items, key):
    found = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def lines_panel(points, left, top, width):
    """One panel: a line for each name, with intervals. Values that are missing (never) are left out."""
    points = [p for p in points if p["value"] is not None]
    if not points:
        return []
    names = list(group(points, lambda p: p["name"]))
    xs = sorted({p["x"] for p in points})
    high = max(p["high"] if p["high"] is not None else p["value"] for p in points) * 1.08
    x0, x1, y0, y1 = left + 48, left + width - 12, top + PANEL_HEIGHT - 40, top + 44
    span = (xs[-1] - xs[0]) or 1
    at_x = lambda x: x0 + 24 + (x1 - x0 - 48) * (0.5 if len(xs) == 1 else (x - xs[0]) / span)
    at_y = lambda y: y0 - (y0 - y1) * y / high
    out = [text(left, top + 14, f"{points[0]['panel']}, {points[0]['unit']}", kind="panel")]
    for value in nice(0, high, 5):
        out += [line(x0, at_y(value), x1, at_y(value), "grid"), text(x0 - 6, at_y(value) + 4, f"{value:g}", "end", "dim")]
    out += [line(x0, y0, x1, y0, "axis")] + [text(at_x(x), y0 + 16, f"{x:g}", "middle", "dim") for x in xs]
    out.append(text((x0 + x1) / 2, y0 + 32, points[0]["x_axis"], "middle", "dim"))
    for i, name in enumerate(names):
        colour = COLOURS[i % len(COLOURS)]
        mine = sorted((p for p in points if p["name"] == name), key=lambda p: p["x"])
        shift = (i - (len(names) - 1) / 2) * 5
        path = " ".join(f"{at_x(p['x']) + shift:.1f},{at_y(p['value']):.1f}" for p in mine)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for p in mine:
            x, y = at_x(p["x"]) + shift, at_y(p["value"])
            if p["low"] is not None and p["high"] is not None:
                out.append(line(x, at_y(p["low"]), x, at_y(p["high"]), style=f'stroke="{colour}" stroke-width="1.5"'))
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')
        out += [f'<circle cx="{x0 + 8 + i * 110:.1f}" cy="{top + 30:.1f}" r="4" fill="{colour}"/>',
                text(x0 + 16 + i * 110, top + 34, name)]
    return out


def label(row):
    return f"{row['case']}: {row['what']}"


def bars_panel(title, rows, left, top, width):
    """Rates of ours and theirs, two bars for each row, on one axis for each unit."""
    out = [text(left, top + 14, title, kind="panel")]
    middle = left + width * 0.5
    high = max(max(row["ours"] or 0, row["theirs"]) for row in rows) or 1
    for i, row in enumerate(rows):
        y = top + 24 + i * (2 * BAR + 14)
        out.append(text(middle - 8, y + BAR + 5, label(row), "end"))
        for k, (name, value) in enumerate((("ours", row["ours"] or 0), ("theirs", row["theirs"]))):
            size = (left + width - 110 - middle) * value / high
            out.append(f'<rect x="{middle:.1f}" y="{y + k * (BAR + 1):.1f}" width="{max(size, 1):.1f}" height="{BAR}" '
                       f'fill="{COLOURS[k]}"/>')
            out.append(text(middle + size + 6, y + k * (BAR + 1) + 12, f"{value:,.0f} {row['unit']}, {name}"))
    return out


def bars_height(rows):
    return 30 + len(rows) * (2 * BAR + 14)


def ratios_panel(sections, left, top, width):
    """Ratios of [(section, rows)] with intervals and limits on a logarithmic axis."""
    rows = [row for _, mine in sections for row in mine]
    ends = [value for row in rows for value in (row["ratio"], row["limit"], *(row["interval"] or [])) if value]
    low, high = math.log(min(*ends, 0.8)) - 0.05, math.log(max(*ends, 1.25)) + 0.05
    x0, x1 = left + width * 0.5, left + width - 70
    at = lambda value: x0 + (x1 - x0) * (math.log(value) - low) / (high - low)
    bottom = top + 28 + (len(rows) + len(sections)) * ROW
    title = "ratios that have a limit (the thick tick): ours over theirs, with 95 % intervals"
    out = [text(left, top + 14, title, kind="panel")]
    marks = [m for m in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 0.8, 1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000)
             if low <= math.log(m) <= high]
    placed = -100.0
    for mark in marks:
        if at(mark) - placed < 30:
            continue
        placed = at(mark)
        out += [line(at(mark), top + 24, at(mark), bottom, "grid"), text(at(mark), bottom + 14, f"{mark:g}", "middle", "dim")]
    places = iter(range(len(rows) + len(sections)))
    for row in (item for name, mine in sections for item in (name, *mine)):
        y = top + 38 + next(places) * ROW
        if isinstance(row, str):
            out.append(text(x0 - 10, y + 4, row, "end", "panel"))
            continue
        is_good = row["met"]
        colour = COLOURS[2] if is_good else COLOURS[1] if is_good is False else "#888"
        out.append(text(x0 - 10, y + 4, label(row), "end"))
        if row["interval"] and None not in row["interval"]:
            out.append(line(at(row["interval"][0]), y, at(row["interval"][1]), y, style=f'stroke="{colour}" stroke-width="2"'))
        out.append(line(at(row["limit"]), y - 7, at(row["limit"]), y + 7, "limit"))
        out.append(f'<circle cx="{at(row["ratio"]):.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        out.append(text(x1 + 10, y + 4, "met" if is_good else "missed" if is_good is False else "open"))
    return out


def ratios_height(sections):
    return 50 + sum(1 + len(rows) for _, rows in sections) * ROW


def draw(title, sections):
    """Returns the SVG of the contents of report files."""
    inner = WIDTH - 2 * MARGIN
    out, top = [text(MARGIN, 30, title, kind="title")], 48
    panels = list(group([p for s in sections for p in s["points"]], lambda p: p["panel"]).values())
    width = (inner - GAP) / 2
    for i in range(0, len(panels), 2):
        for k, points in enumerate(panels[i:i + 2]):
            out += lines_panel(points, MARGIN + k * (width + GAP), top, width)
        top += PANEL_HEIGHT + 16
    for section in sections:
        rates = [row for row in section["rows"] if row["unit"] == "1/s" and row.get("theirs")]
        if rates:
            out += bars_panel(f"{section['section']}: rates", rates, MARGIN, top, inner)
            top += bars_height(rates) + 16
    ratios = [(s["section"], [row for row in s["rows"] if row.get("limit") and row.get("ratio")]) for s in sections]
    ratios = [(name, rows) for name, rows in ratios if rows]
    if ratios:
        out += ratios_panel(ratios, MARGIN, top, inner)
        top += ratios_height(ratios) + 8
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:.0f}" width="{WIDTH}" height="{top:.0f}" '
            'role="img">')
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>",
                      f'<rect width="{WIDTH}" height="{top:.0f}" fill="none"/>', *out, "</svg>"]) + "\n"
