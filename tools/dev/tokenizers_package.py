# SPDX-License-Identifier: Apache-2.0
"""The Python package `tokenizers`, which is the reference of serve/: in a folder of its own, at one version.

`require(folder)` makes a virtual environment in the folder, if it is not there, and runs the calling script again with its
Python. Nothing else of the machine changes. Exit status 3 where PyPI gives no package.
"""
import os
import pathlib
import subprocess
import sys

VERSION = "0.23.3"
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "build" / "tokenizers"


def version():
    try:
        import tokenizers
    except ImportError:
        return None
    return tokenizers.__version__


def require(folder=FOLDER):
    """Returns when `tokenizers` can be imported at VERSION; else starts the script again where it can be."""
    if version() == VERSION:
        return
    python = pathlib.Path(folder) / "bin" / "python3"
    if os.environ.get("QUERN_TOKENIZERS_REQUIRED"):
        sys.exit(f"{python} has tokenizers {version()}, expected {VERSION}; remove {folder}")
    if not python.exists() or subprocess.run([python, "-c", "import tokenizers"], capture_output=True, check=False).returncode:
        print(f"getting tokenizers {VERSION} into {folder}", file=sys.stderr)
        commands = ([sys.executable, "-m", "venv", folder],
                    [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", f"tokenizers=={VERSION}"])
        for command in commands:
            if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
                print(f"cannot get tokenizers {VERSION}: no python3-venv, or no PyPI", file=sys.stderr)
                sys.exit(3)
    os.execve(python, [str(python), *sys.argv], {**os.environ, "QUERN_TOKENIZERS_REQUIRED": "1"})
