"""Every path and every variable that the pages name is there. Run from the repository's root."""
import glob
import re
import sys

FOLDERS = "base|bench|cache|cmake|devices|docs|examples|include|ir|jit|target|tests|tools"
# Variables of programs other than the library, and of the build, by the page that names them.
OTHERS = {"QUERN_FAULTS_FULL", "QUERN_SOAK_SECONDS", "QUERN_SOAK_SEED", "QUERN_TEST_TIMEOUT", "QUERN"}

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
    for name in set(re.findall(r"\bQUERN_[A-Z_]+[A-Z]\b", text)) - OTHERS:
        checked += 1
        if not any(option.startswith(name) for option in options):
            bad.append(f"{page}: there is no option '{name}'")
print("\n".join(bad) or f"{checked} names checked")
sys.exit(1 if bad or checked < 100 else 0)
