# SPDX-License-Identifier: Apache-2.0
"""Records of serve_load: reading them, quantiles, and the ratio of a quantile over pairs of runs, with its interval.

A pair is the unit of the bootstrap, because latencies within a run depend on each other. A failed request counts as
infinitely late.
"""
import bisect
import csv
import math
import random

GROUPS = ("all", "first-seen", "bystanders")


class Bad(Exception):
    pass


def read_run(path):
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [r for r in csv.DictReader(file) if r["warm_up"] == "0" and r["error"] != "unsent"]
            run = []
            for r in rows:
                at = float(r["scheduled_us"])
                end = float(r["done_us"]) if r["done_us"] else math.inf
                run.append({"same": (r["index"], r["texts"], r["tokens"]), "at": at, "end": end,
                            "latency": math.inf if r["error"] else end - at, "first_seen": r["first_seen"] == "1",
                            "sent": float(r["sent_us"]) if r["sent_us"] else None, "waited": r["waited"] == "1",
                            "unread": float(r["unread_us"] or 0)})
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise Bad(f"{path}: not records of serve_load: {error!r}") from error
    if not run:
        raise Bad(f"{path}: no requests")
    return run


def quantile(values, level):
    """The nearest rank, as serve_load's."""
    values = sorted(values)
    return values[max(0, math.ceil(level * len(values) * (1 - 1e-15)) - 1)]


def check_lag(path, run, limit_ms):
    lags = [r["sent"] - r["at"] for r in run if r["sent"] is not None and not r["waited"]]
    lag_ms = max(quantile(values, 0.99) / 1000 for values in (lags or [0], [r["unread"] for r in run]))
    allowed = limit_ms or max(1.0, 0.05 * quantile([r["latency"] for r in run], 0.5) / 1000)
    if lag_ms > allowed:
        raise Bad(f"{path}: the generator was the bottleneck: p99 of its lag is {lag_ms:.3f} ms, above {allowed:.3f} ms")


def bystanders(run, after_us):
    """Places of requests without the mark that overlap the time from a marked request's sending to after its end."""
    spans = sorted((r["at"] if r["sent"] is None else r["sent"], r["end"] + after_us) for r in run if r["first_seen"])
    starts = [s for s, _ in spans]
    latest = []  # the latest end of the spans so far
    for _, end in spans:
        latest.append(max(end, latest[-1]) if latest else end)
    found = []
    for place, r in enumerate(run):
        before = bisect.bisect_right(starts, r["end"])
        if not r["first_seen"] and before > 0 and latest[before - 1] >= r["at"]:
            found.append(place)
    return found


def members(run, after_us):
    return {"all": list(range(len(run))), "first-seen": [i for i, r in enumerate(run) if r["first_seen"]],
            "bystanders": bystanders(run, after_us)}


def bootstrap(values, resamples=10000, seed=1):
    """Geometric mean of positive values, and its 95 % percentile interval: mean, low, high."""
    if any(math.isinf(value) for value in values):
        return math.inf, math.inf, math.inf
    logs = [math.log(value) for value in values]
    count = len(logs)
    draw = random.Random(f"bootstrap {seed}").random
    means = sorted(sum(logs[int(draw() * count)] for _ in range(count)) / count for _ in range(resamples))
    low, high = means[int(0.025 * resamples)], means[min(resamples - 1, int(0.975 * resamples))]
    return math.exp(sum(logs) / count), math.exp(low), math.exp(high)


def compare(group, pairs, level, claim, min_pairs=10, min_requests=100, resamples=10000, seed=1):
    """One row of the result. `pairs` has (run, run it is compared with, members of the groups)."""
    ratios = []
    sizes = []
    for run, against, places in pairs:
        if len(places[group]) < min_requests:
            continue
        mine = quantile([run[i]["latency"] for i in places[group]], level)
        base = quantile([against[i]["latency"] for i in places[group]], level)
        sizes.append(len(places[group]))
        # Both failed: no evidence for the claim either.
        ratios.append(math.inf if math.isinf(mine) or math.isinf(base) else mine / base)
    row = {"group": group, "pairs": len(ratios), "requests": sum(sizes), "ratios": ratios}
    if not ratios:
        return {**row, "verdict": "no data"}
    mean, low, high = bootstrap(ratios, resamples, seed)
    row.update(ratio=mean, low=low, high=high)
    if math.isinf(mean):
        verdict = "FAILS"
    elif len(ratios) < min_pairs:
        verdict = "not shown"
    elif high <= claim:
        verdict = "holds"
    else:
        verdict = "FAILS" if low > claim else "not shown"
    return {**row, "verdict": verdict}
