# SPDX-License-Identifier: Apache-2.0
"""Every function that docs/tour.md names together with a file is in that file: `file.c: function` and
`function` (file.c). Run from the repository's root."""
import glob
import os
import re
import sys

PAGE = "docs/tour.md"


def files_named(name):
    """The sources that a page means by `lookup.c` or `jit/engine/lookup.c`."""
    if "/" in name:
        return [name] if os.path.exists(name) else []
    roots = ("base", "cache", "conformance", "devices", "ir", "jit", "target", "tools")
    return [path for root in roots for path in glob.glob(f"{root}/**/{name}", recursive=True)]


def defines(path, function):
    """Whether a source defines the function, its name after a type and before a body; a header need only declare it."""
    text = open(path).read()
    if path.endswith(".h"):
        return re.search(r"\b%s\(" % re.escape(function), text) is not None
    return re.search(r"^[a-z][^\n;=(]*\b%s\([^;{]*\)\s*\{" % re.escape(function), text, re.M) is not None


text = " ".join(open(PAGE).read().split())
pairs = re.findall(r"`([\w/]+\.[ch]): (\w+)`", text)
pairs += [(path, name) for name, path in re.findall(r"`(\w+)` \(`?([\w/]+\.[ch])`?\)", text)]
bad = []
for name, function in pairs:
    places = files_named(name)
    if not places:
        bad.append(f"{PAGE}: there is no file '{name}'")
    elif not any(defines(place, function) for place in places):
        bad.append(f"{PAGE}: {' or '.join(places)} has no '{function}'")
print("\n".join(bad) or f"{len(pairs)} functions checked")
sys.exit(1 if bad or len(pairs) < 20 else 0)
