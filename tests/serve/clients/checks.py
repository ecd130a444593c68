# SPDX-License-Identifier: Apache-2.0
"""What the scripts of this folder share: checks that are counted, and refusals."""
import json
import pathlib
import sys

count = 0


def fail(what):
    sys.exit(f"{pathlib.Path(sys.argv[0]).stem}: {what}")


def check(condition, what):
    global count
    count += 1
    if not condition:
        fail(what)


def refused(kind, call, part):
    """The call raises an error of this kind, which names the part."""
    try:
        call()
    except kind as error:
        check(part in str(error), f"no {part!r} in {error}")
        return
    fail(f"no {kind.__name__} with {part!r}")


def read_reference():
    """Where the server is and which embeddings are right: the file that `run` names."""
    with open(sys.argv[1], encoding="utf-8") as file:
        return json.load(file)
