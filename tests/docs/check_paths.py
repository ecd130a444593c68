# SPDX-License-Identifier: Apache-2.0
"""Every path, link, variable and option of the build that the pages name is there, and every option of the build is in
docs/options.md. Run from the repository's root."""
import glob
import os
import re
import sys

FOLDERS = "base|bench|cache|cmake|devices|docs|examples|include|ir|jit|target|tests|tools"
# Variables of programs other than the library, and of the build, by the page that names them.
OTHERS = {"QUERN_FAULTS_FULL", "QUERN_PYTHONS", "QUERN_SOAK_SECONDS", "QUERN_SOAK_SEED", "QUERN"}


def build_options():
    texts = [open(path).read() for path in ("CMakeLists.txt", "tests/CMakeLists.txt")]
    forms = r"option\((QUERN_[A-Z_]+) ", r"set\((QUERN_[A-Z_]+) [^)]* CACHE "
    return {name for text in texts for form in forms for name in re.findall(form, text)}


def anchors(page):
    """Of its headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", open(page).read(), flags=re.M | re.S)
    lines = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^a-z0-9 _-]", "", line.lower()).replace(" ", "-") for line in lines}


def bad_links(page, text):
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        place = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(place):
            yield f"{page}: there is no '{path}'"
        elif anchor and anchor not in anchors(place):
            yield f"{page}: {place} has no heading '#{anchor}'"


of_build = build_options()
options = set(re.findall(r'"(QUERN_[A-Z_]+)"', open("include/quern/options.inc").read()))
bad = []
checked = 0
for page in ["README.md", "CHANGELOG.md", "examples/README.md", *sorted(glob.glob("docs/*.md"))]:
    text = open(page).read()
    for path in set(re.findall(r"`((?:%s)/[A-Za-z0-9_./*-]+)`" % FOLDERS, text)):
        checked += 1
        # Tests and benchmarks are named without their suffix, unit tests without their root, too.
        place = path.replace("COMPONENT", "*")
        if not any(glob.glob(form) for form in (place, place + ".*", f"tests/unit/{place}.c")):
            bad.append(f"{page}: there is no '{path}'")
    bad += bad_links(page, text)
    for name in set(re.findall(r"\b(?:D(?=QUERN_))?(QUERN_[A-Z_]+[A-Z])\b", text)) - OTHERS - of_build:
        checked += 1
        if not any(option.startswith(name) for option in options):
            bad.append(f"{page}: there is no option '{name}'")
table = open("docs/options.md").read()
bad += [f"docs/options.md: '{name}' is not there" for name in sorted(of_build) if f"`{name}`" not in table]
print("\n".join(bad) or f"{checked} names checked")
sys.exit(1 if bad or checked < 100 else 0)
