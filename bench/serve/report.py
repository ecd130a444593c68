# SPDX-License-Identifier: Apache-2.0
"""Results of the programs in bench/serve: one JSON format, one table. `run` makes one table and one picture of all.

    rows = report.Report("peers", "peers.json")
    rows.add("1 thread, Triton", "requests at p99 of 20 ms", "1/s", ours=312, theirs=250, at_least=1.15)
    rows.add("overload", "latency of a rejection, p99", "ms", ours=1.2, at_most=5)
    rows.missing("2 threads, infinity", "pip: no matching distribution found for infinity-emb")
    rows.note("model", "all-MiniLM-L6-v2")
    rows.point("p99, Poisson", "load, % of saturation", "ms", "cold", 50, 31.0, low=29.1, high=33.0)  # of a line in a picture

`run` calls a section's program as `PROGRAM MODEL_DIR --build DIR --out DIR [--quick]`; it writes DIR/results.json, ends with
0 if all limits are met, and keeps what it has when SIGINT interrupts it.

The file is {"section", "notes": {name: text}, "rows": [...], "missing": [{"part", "reason"}], "points": [...]}, written anew
after each change, so that an interrupted program leaves what it has. A row:

    case      what is the same for ours and theirs: load, threads, the other program
    what      the quantity
    unit      of ours and theirs
    ours      a number; null: infinite, such as the latency of a request that failed
    theirs    of what it is compared with: a peer, or the same server in another state; null: nothing
    ratio     ours over theirs
    interval  [low, high] of 95 %: of the ratio, or of ours where there is no theirs
    limit     of the ratio, or of ours where there is no theirs
    sense     "at most" or "at least": the side of the limit that is good
    met       true or false; null: no limit, or not shown (then `remark` says why)
    remark    a few words
"""
import json
import math
import os
import pathlib


def finite(value):
    return value if value is None or isinstance(value, str) or math.isfinite(value) else None


def is_met(sense, limit, value, interval):
    """True or false if the whole interval is on one side of the limit, else None."""
    low, high = interval or (value, value)
    if sense == "at most":
        return True if high <= limit else False if low > limit else None
    return True if low >= limit else False if high < limit else None


class Report:
    def __init__(self, section, path):
        self.section = section
        self.path = pathlib.Path(path)
        self.notes, self.rows, self.absent, self.points = {}, [], [], []
        self.write()

    def add(self, case, what, unit, ours, theirs=None, at_most=None, at_least=None, ratio=None, interval=None, met=None,
            remark=""):
        """A row. `ratio` is made from ours and theirs, and `met` from the limit, where they are not given."""
        if ratio is None and theirs:
            ratio = ours / theirs
        limit, sense = (at_most, "at most") if at_most is not None else (at_least, "at least")
        if met is None and limit is not None and not remark:  # a remark without `met` says why it is open
            met = is_met(sense, limit, ours if ratio is None else ratio, interval)
            remark = "not shown" if met is None else ""
        self.rows.append({
            "case": case, "what": what, "unit": unit, "ours": finite(ours), "theirs": finite(theirs), "ratio": finite(ratio),
            "interval": interval and [finite(end) for end in interval], "limit": limit,
            "sense": sense if limit is not None else None,
            "met": met, "remark": remark,
        })
        self.write()

    def missing(self, part, reason):
        """A part that could not run: never left out in silence."""
        self.absent.append({"part": part, "reason": reason})
        self.write()

    def point(self, panel, x_axis, unit, name, x, value, low=None, high=None):
        """A point of the line `name` in a panel of the picture, with its interval."""
        self.points.append({"panel": panel, "x_axis": x_axis, "unit": unit, "name": name, "x": x, "value": finite(value),
                            "low": finite(low), "high": finite(high)})
        self.write()

    def note(self, name, text):
        self.notes[name] = text
        self.write()

    def content(self):
        return {"section": self.section, "notes": self.notes, "rows": self.rows, "missing": self.absent, "points": self.points}

    def write(self):
        beside = self.path.with_name(self.path.name + ".new")
        beside.write_text(json.dumps(self.content(), indent=2) + "\n", encoding="utf-8")
        os.replace(beside, self.path)


class Bad(Exception):
    pass


def read(path):
    """Returns what a Report wrote."""
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        for name, kind in (("section", str), ("notes", dict), ("rows", list), ("missing", list)):
            if not isinstance(content[name], kind):
                raise Bad(f"{path}: '{name}' is no {kind.__name__}")
        for row in content["rows"]:
            missing = {"case", "what", "unit", "ours"} - row.keys()
            if missing:
                raise Bad(f"{path}: a row without '{sorted(missing)[0]}'")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Bad(f"{path}: no results: {error!r}") from error
    content.setdefault("points", [])
    return content


def number(value):
    """Three digits, as people write them; infinite: 'never'."""
    if value is None:
        return "never"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def verdict(row):
    if row.get("met") is not None:
        return "met" if row["met"] else "MISSED"
    return row.get("remark", "")


def cells(row):
    """Texts of a row: what, ours, theirs, ratio, interval, limit, verdict."""
    interval, limit = row.get("interval"), row.get("limit")
    return [
        row["what"] + (f", {row['unit']}" if row["unit"] else ""),
        number(row["ours"]),
        number(row["theirs"]) if row.get("theirs") is not None else "",
        f"{row['ratio']:.2f}" if row.get("ratio") is not None else "",
        " to ".join("never" if end is None else f"{end:.2f}" for end in interval) if interval else "",
        f"{row['sense']} {limit:g}" if limit is not None else "",
        verdict(row),
    ]


def table(content):
    """The lines of a section as a table of Markdown."""
    head = ["case", "what", "ours", "theirs", "ratio", "95 % interval", "limit", ""]
    lines = [[row["case"], *cells(row)] for row in content["rows"]]
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    if lines:
        for line in [head, ["-" * width for width in widths], *lines]:
            yield "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths)) + " |"
    for name, text in content["notes"].items():
        yield f"{name}: {text}"
    for part in content["missing"]:
        yield f"NOT MEASURED: {part['part']}: {part['reason']}"
