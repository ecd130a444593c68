# SPDX-License-Identifier: Apache-2.0
"""Imports saved functions, and runs none.

Usage: texts.py DOOR OUTPUT_FOLDER FILE...    (with a Python that has TVM; JSON or TVMScript)

Writes a text for each, and prints one JSON object: names with the reasons of refusals, or with
``unread`` and ``failed`` and what TVM or the importer says.
"""

from __future__ import annotations

import json
import pathlib
import sys
import traceback

import scripts
from reference import imported_by


def text_of(path: pathlib.Path, door: str) -> tuple[str, str]:
    """Returns the text of a function, or "" and why there is none."""
    try:
        func = scripts.read(path)
    except Exception as error:
        return "", "unread: " + (str(error).strip() or type(error).__name__)
    try:
        imported = imported_by(door, func)
    except Exception:
        return "", "failed: " + traceback.format_exc()
    return imported.text, str(imported.refused["main"]) if imported.refused else ""


def main() -> int:
    door, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    refused = {}
    for name in sys.argv[3:]:
        path = pathlib.Path(name)
        written = folder / f"{path.stem}.qn"
        written.unlink(missing_ok=True)
        text, reason = text_of(path, door)
        if reason:
            refused[path.stem] = reason
        else:
            written.write_text(text)
    print(json.dumps(refused))
    return 0


if __name__ == "__main__":
    sys.exit(main())
