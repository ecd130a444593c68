# SPDX-License-Identifier: Apache-2.0
"""What the tests of the package share: where it is, a cache of their own, the end with a count.

QUERN_PYTHON_FOLDER holds the package; without it, the installed one is tested. QUERN_PYTHON_PACKAGES is an environment with
NumPy and others; without it, they are those of the interpreter.
"""
import atexit
import glob
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

for folder in glob.glob(os.path.join(os.environ.get("QUERN_PYTHON_PACKAGES") or os.devnull, "lib", "python3*", "site-packages")):
    sys.path.insert(0, folder)
if os.environ.get("QUERN_PYTHON_FOLDER"):
    sys.path.insert(0, os.environ["QUERN_PYTHON_FOLDER"])
# Sanity: no test sees the user's cache.
folder = tempfile.mkdtemp(prefix="quern-python-")
# A child of fork leaves it alone.
atexit.register(lambda owner=os.getpid(): shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
for name in [name for name in os.environ if name.startswith("QUERN_") and not name.startswith(("QUERN_PYTHON_", "QUERN_COMMAND"))]:
    del os.environ[name]
os.environ["QUERN_CACHE_DIR"] = os.path.join(folder, "cache")

SAXPY = """func saxpy(a: f32, x: f32[n], inout y: f32[n]) {
  parallel i in 0..n {
    y[i] = a * x[i] + y[i];
  }
}
"""


def package(name):
    """A package, or None with a reason in `missing`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing[name] = str(error)
        return None


missing = {}


def needs(*names):
    absent = [name for name in names if package(name) is None]
    return unittest.skipIf(absent, f"needs {', '.join(absent)}: tools/dev/get-python-packages installs it")


def libquern():
    """The file of libquern in this process."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return next(match[1] for match in (re.search(r" (/.*/libquern\.so\.\S+)$", line) for line in maps) if match)


def has_compiler():
    import quern

    try:
        quern.Module(SAXPY).compile("saxpy")
    except quern.Unavailable:
        return False
    return True


def run(code, *args, **options):
    """Runs Python code in a process of its own, which finds the package as this one does."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([os.path.dirname(os.path.abspath(__file__))]), **options.pop("env", {}))
    return subprocess.run([sys.executable, "-c", "import support\n" + code, *map(str, args)], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600, **options)


def main():
    if not has_compiler():
        print("skipped: this build has no code generator for the CPU")
        sys.exit(77)
    # From Python 3.12 on unittest.main() itself fails if it skips every test.
    sys.exit(not unittest.main(verbosity=1, exit=False).result.wasSuccessful())
