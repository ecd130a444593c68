# SPDX-License-Identifier: Apache-2.0
"""prometheus.py FILE: is FILE text in the Prometheus exposition format 0.0.4, as strict as promtool?

Checks: the grammar of every line, names, escapes and label names; HELP and TYPE once per family, in front of its
samples, with samples of a family in one run; counters end in _total and are not negative; times are in seconds;
histograms have rising `le`, cumulative counts, +Inf, _sum, _count equal to +Inf; no sample twice.
"""
import math
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"')
SAMPLE = re.compile(rf"^({NAME})(?:\{{(.*)\}})? ([^ ]+)$")
VALUE = re.compile(r"^(?:[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?Inf|NaN)$")
HELP = re.compile(rf"^# HELP ({NAME}) ((?:[^\\\n]|\\[\\n])*)$")
TYPE = re.compile(rf"^# TYPE ({NAME}) (counter|gauge|histogram|summary|untyped)$")


def fail(number, message):
    sys.exit(f"line {number}: {message}")


def parse_labels(number, text):
    labels, at = {}, 0
    while at < len(text):
        match = LABEL.match(text, at)
        if not match:
            fail(number, f"labels do not parse at '{text[at:]}'")
        if match[1] in labels or match[1].startswith("__"):
            fail(number, f"label '{match[1]}' twice or reserved")
        labels[match[1]] = match[2]
        at = match.end()
        if at < len(text):
            if text[at] != ",":
                fail(number, "expected a comma between labels")
            at += 1
    return labels


def check(text):
    if not text.endswith("\n"):
        sys.exit("the last line does not end")
    families, closed, samples, current = {}, set(), {}, None
    for number, line in enumerate(text[:-1].split("\n"), 1):
        if line.startswith("# HELP "):
            match = HELP.match(line) or fail(number, "HELP does not parse")
            if match[1] in families:
                fail(number, f"family '{match[1]}' twice")
            if not match[2].strip():
                fail(number, "HELP says nothing")
            if current:
                closed.add(current)
            current = match[1]
            families[current] = {"type": None, "samples": []}
        elif line.startswith("# TYPE "):
            match = TYPE.match(line) or fail(number, "TYPE does not parse")
            if match[1] != current or families[current]["type"] or families[current]["samples"]:
                fail(number, "TYPE is not behind the HELP of its family")
            families[current]["type"] = match[2]
        else:
            match = SAMPLE.match(line) or fail(number, f"no sample: '{line}'")
            if not VALUE.match(match[3]):
                fail(number, f"'{match[3]}' is no number")
            name, labels = match[1], parse_labels(number, match[2] or "")
            kind = families[current]["type"] if current else None
            if not kind:
                fail(number, "a sample without TYPE")
            suffixes = ["_bucket", "_sum", "_count"] if kind == "histogram" else [""]
            if name not in [current + suffix for suffix in suffixes]:
                fail(number, f"'{name}' is not of the family '{current}'")
            identity = (name, tuple(sorted(labels.items())))
            if identity in samples:
                fail(number, f"the sample {identity} twice")
            samples[identity] = float(match[3].replace("Inf", "inf"))
            families[current]["samples"].append((name, labels, samples[identity]))
    for name, family in families.items():
        check_family(name, family)
    return families


def check_family(name, family):
    kind = family["type"]
    if not kind or not family["samples"]:
        sys.exit(f"{name}: no type or no samples")
    if not name.startswith("quern_"):
        sys.exit(f"{name}: without our prefix")
    if (kind == "counter") != name.endswith("_total"):
        sys.exit(f"{name}: _total is for counters, and for all of them")
    if re.search(r"_(ns|us|ms|nanoseconds|kilobytes)(_|$)", name):
        sys.exit(f"{name}: not in base units")
    if kind == "counter" and any(not 0 <= value < math.inf for _, _, value in family["samples"]):
        sys.exit(f"{name}: a counter below zero or without end")
    if kind == "histogram":
        check_histogram(name, family["samples"])


def check_histogram(name, samples):
    series = {}
    for sample, labels, value in samples:
        if ("le" in labels) != sample.endswith("_bucket"):
            sys.exit(f"{name}: le belongs to buckets")
        rest = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        one = series.setdefault(rest, {"buckets": [], "sum": None, "count": None})
        if "le" in labels:
            one["buckets"].append((float(labels["le"].replace("Inf", "inf")), value))
        else:
            one[sample[len(name) + 1:]] = value
    for rest, one in series.items():
        bounds = [bound for bound, _ in one["buckets"]]
        counts = [count for _, count in one["buckets"]]
        if one["sum"] is None or one["count"] is None or not bounds:
            sys.exit(f"{name}{rest}: a histogram needs buckets, _sum and _count")
        if bounds != sorted(set(bounds)) or bounds[-1] != math.inf:
            sys.exit(f"{name}{rest}: bounds do not rise to +Inf")
        if counts != sorted(counts) or counts[-1] != one["count"]:
            sys.exit(f"{name}{rest}: counts are not cumulative, or +Inf is not _count")
        if one["count"] == 0 and one["sum"] != 0:
            sys.exit(f"{name}{rest}: a sum of nothing")


if __name__ == "__main__":
    families = check(open(sys.argv[1], encoding="utf-8", newline="").read())
    print(f"{len(families)} families, {sum(len(f['samples']) for f in families.values())} samples")
