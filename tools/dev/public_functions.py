# SPDX-License-Identifier: Apache-2.0
"""Reads the public functions from the headers: name, return type, parameters and docstring."""
import pathlib
import re
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclass
class Parameter:
    type: str
    name: str

    @property
    def is_pointer(self):
        return "*" in self.type or self.type.endswith("_fn_t") or "(" in self.type


@dataclass
class Function:
    header: str
    line: int
    returns: str
    name: str
    doc: str
    parameters: list = field(default_factory=list)


def split_parameters(text):
    """Splits at commas outside of parentheses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [" ".join(p.split()) for p in parts]


def parameter_of(text):
    pointer = re.match(r"(.*\(\*)(\w+)(\)\(.*)$", text)
    if pointer:
        return Parameter(pointer[1] + pointer[3], pointer[2])
    array = re.match(r"(.*?)(\w+)\[\w*\]$", text)
    if array:
        return Parameter(array[1].strip() + "*", array[2])
    name = re.match(r"(.*?)(\w+)$", text)
    return Parameter(name[1].strip(), name[2])


def functions_of(path):
    text = path.read_text()
    for match in re.finditer(r"^QN_API\s([^;{]*?)\b(qn_\w+)\(", text, re.M):
        depth, end = 1, match.end()
        while depth:
            depth += (text[end] == "(") - (text[end] == ")")
            end += 1
        doc = []
        for line in reversed(text[:match.start()].splitlines()):
            if not line.startswith("//"):
                break
            doc.insert(0, line[2:].strip())
        inside = text[match.end():end - 1].strip()
        parameters = [] if inside in ("", "void") else [
            parameter_of(p) for p in split_parameters(inside) if p != "..."]
        returns = " ".join(match[1].replace("QN_MUST_USE", "").split())
        yield Function(path.name, text[:match.start()].count("\n") + 1, returns, match[2],
                       "\n".join(doc).strip(), parameters)


def all_functions():
    for path in sorted((ROOT / "include" / "quern").glob("*.h")):
        yield from functions_of(path)
