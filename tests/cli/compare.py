# SPDX-License-Identifier: Apache-2.0
"""compare.py A.json B.json: do two runs of `quern run --json` have equal outputs, within 1e-5?"""
import json
import math
import sys

BOUND = 1e-5


def numbers(value):
    if isinstance(value, list):
        for item in value:
            yield from numbers(item)
    else:
        yield float(value)


a, b = (json.load(open(path))["outputs"] for path in sys.argv[1:3])
assert a.keys() == b.keys(), (a.keys(), b.keys())
assert a, "there are no outputs"
for name in a:
    assert a[name]["dtype"] == b[name]["dtype"] and a[name]["shape"] == b[name]["shape"], name
    x, y = list(numbers(a[name]["values"])), list(numbers(b[name]["values"]))
    assert len(x) == len(y) == math.prod(a[name]["shape"]), name
    assert any(x), name + " is all zeros"
    for i, (p, q) in enumerate(zip(x, y)):
        is_same = (math.isnan(p) and math.isnan(q)) or abs(p - q) <= BOUND * max(1.0, abs(p))
        assert is_same, f"{name}: element {i}: {p} and {q}"
