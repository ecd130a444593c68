# SPDX-License-Identifier: Apache-2.0
"""The TextMate grammar colours sample lines as expected. Run from the repository's root.

Applies the patterns as an editor does: at each place the one that matches first, and of those the
first in the list.
"""
import json
import re
import sys

grammar = json.load(open("tools/editors/quern.tmLanguage.json"))


def compiled(rules):
    return [(rule, re.compile(rule.get("match") or rule["begin"])) for rule in rules]


top = compiled(grammar["patterns"])


def colours(line):
    """The text and scope of each part of the line that has a scope."""
    parts, at, rules, end = [], 0, top, None
    while at <= len(line):
        found = [(m.start(), i, m, rule) for i, (rule, p) in enumerate(rules) if (m := p.search(line, at))]
        if end and (m := end.search(line, at)):
            found.append((m.start(), -1, m, None))
        if not found:
            break
        _, _, match, rule = min(found, key=lambda f: f[:2])
        if rule is None:
            parts.append((match.group(), "string.quoted.double.quern"))
            rules, end = top, None
        elif "begin" in rule:
            parts.append((match.group(), rule["name"]))
            rules, end = compiled(rule["patterns"]), re.compile(rule["end"])
        elif "name" in rule:
            parts.append((match.group().strip(), rule["name"]))
        else:
            parts += [(match.group(int(i)).strip(), c["name"]) for i, c in rule["captures"].items()
                      if match.group(int(i))]
        at = match.end() + (match.end() == match.start())
    return parts


# Parts and the beginnings of their scopes, in order; operators and punctuation are left out.
SAMPLES = {
    "func f(a: f32, in x: i4[n] align 64, out y: f32[n]) fast {  // why": [
        ("func", "storage.type.function"), ("f", "entity.name.function"), ("f32", "storage.type.dtype"),
        ("in", "storage.modifier.access"), ("i4", "storage.type.dtype"), ("align", "storage.modifier"),
        ("64", "constant.numeric"), ("out", "storage.modifier.access"), ("f32", "storage.type.dtype"),
        ("fast", "storage.modifier"), ("// why", "comment")],
    "parallel i in 0..n // 2 {": [
        ("parallel", "keyword.control.loop"), ("in", "keyword.other"), ("0", "constant.numeric"),
        ("2", "constant.numeric")],
    "thread.x fast in 0x1F..max(n, 1_000) {": [
        ("thread.x", "keyword.control.loop"), ("in", "keyword.other"), ("0x1F", "constant.numeric"),
        ("max", "support.function"), ("1_000", "constant.numeric")],
    "let max = 0.5 * max j in 0..m { exp(x[j] - 1e-3) }; // top": [
        ("let", "storage.type"), ("0.5", "constant.numeric"), ("max", "keyword.control.reduction"),
        ("in", "keyword.other"), ("0", "constant.numeric"), ("exp", "support.function"),
        ("1e-3", "constant.numeric"), ("// top", "comment")],
    "} from (-inf, 0) with (a, b), (c, d) {": [
        ("from", "keyword.other"), ("inf", "constant.language"), ("0", "constant.numeric"),
        ("with", "storage.modifier")],
    "alloc t: f32[2] in shared;": [
        ("alloc", "storage.type"), ("f32", "storage.type.dtype"), ("2", "constant.numeric"),
        ("in", "keyword.other"), ("shared", "storage.modifier.memory")],
    r'assert a[1] // 2 == b, "a \"b\" // c \q";': [
        ("assert", "keyword.other"), ("1", "constant.numeric"), ("2", "constant.numeric"), ('"', "string"),
        (r"\"", "constant.character.escape"), (r"\"", "constant.character.escape"),
        (r"\q", "invalid.illegal"), ('"', "string")],
    "} else // no division": [("else", "keyword.control"), ("// no division", "comment")],
    "atomic_add(count[0], bitcast(i32, v));": [
        ("atomic_add", "support.function.atomic"), ("0", "constant.numeric"), ("bitcast", "support.function"),
        ("i32", "storage.type.dtype")],
}

bad = []
for line, expected in SAMPLES.items():
    found = [(text, scope) for text, scope in colours(line) if not scope.startswith("keyword.operator")]
    is_good = len(found) == len(expected) and all(
        f[0] == e[0] and f[1].startswith(e[1]) for f, e in zip(found, expected))
    if not is_good:
        bad.append(f"{line}\n  found    {found}\n  expected {expected}")
# Whether `//` divides or begins a comment is the only question of context.
for line, divides in {"x // y": 1, "a[0]  // 2": 1, "(a)// 2": 1, "7 // 2": 1, "f32 // 2": 0, "y; // z": 0,
                      "] in // z": 0, "+ // z": 0, "  // z": 0}.items():
    if (("//", "keyword.operator.quern") in colours(line)) != bool(divides):
        bad.append(f"{line}: {colours(line)}")
print("\n".join(bad) or f"{len(SAMPLES)} lines checked")
sys.exit(1 if bad else 0)
