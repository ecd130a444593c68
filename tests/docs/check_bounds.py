# SPDX-License-Identifier: Apache-2.0
"""The error bounds of docs/ir.md are those that the sweeps and the conformance suite test, no recorded error is above its
bound, and docs/math.md names every function. Run from the repository's root."""
import re
import sys

bad = []
page = open("docs/ir.md").read()
section = page[page.index("### Error bounds"):page.index("## What the verifier proves")]
rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.split("\n") if line.startswith("| `")]
bounds = {}  # by name: of f32 and f64
for row in rows:
    names = re.findall(r"`(\w+)`", row[0])
    if len(row) != 7 or len(names) > 1 and row[1] != "0" or names[0] in bounds:
        continue  # of the second table
    bounds.update({name: (float(row[1]), float(row[4])) for name in names})
    for bound, found in ((row[1], row[2]), (row[4], row[5])):
        if max(map(float, re.findall(r"[\d.]+", found))) > float(bound):
            bad.append(f"docs/ir.md: {names[0]}: {found} was found, the bound is {bound}")

number = r"([\d.]+)"
swept = re.findall(rf"CASE\(\w+, (\w+), \d, {number}, {number},", open("tests/math_cases.c").read())
suite = re.findall(rf'\{{"(\w+)", \w+, \w+, {number}, {number},', open("conformance/math.c").read())
for path, found in (("tests/math_cases.c", swept), ("conformance/math.c", suite)):
    for name, f32, f64 in found:
        if bounds.get(name) != (float(f32), float(f64)):
            bad.append(f"{path}: {name}: {f32} and {f64}, docs/ir.md has {bounds.get(name)}")
for name in sorted(set(bounds) - {name for name, _, _ in swept}):
    bad.append(f"docs/ir.md: the bound of {name} is not swept")

methods = open("docs/math.md").read()
for name in re.findall(r"^QN_MATH\((\w+), (?!NONE)", open("ir/math/functions.inc").read(), re.M):
    if f"`{name}`" not in methods:
        bad.append(f"docs/math.md: no word on `{name}`")
print("\n".join(bad))
sys.exit(1 if bad or not swept or not suite else 0)
