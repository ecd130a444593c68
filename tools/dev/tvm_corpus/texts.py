# SPDX-License-Identifier: Apache-2.0
"""Imports saved functions, and runs none.

Usage: texts.py DOOR OUTPUT_FOLDER FILE.json...    (with a Python that has TVM)

Writes a text for each, and prints one JSON object: names with the reasons of refusals.
"""

from __future__ import annotations

import json
import pathlib
import sys
import traceback

import tvm

from reference import imported_by


def main() -> int:
    door, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    refused = {}
    for name in sys.argv[3:]:
        path = pathlib.Path(name)
        try:
            func = tvm.ir.load_json(path.read_text())
            imported = imported_by(door, func)
        except Exception:
            refused[path.stem] = "failed: " + traceback.format_exc()
            continue
        if imported.refused:
            refused[path.stem] = str(imported.refused["main"])
        else:
            (folder / f"{path.stem}.qn").write_text(imported.text)
    print(json.dumps(refused))
    return 0


if __name__ == "__main__":
    sys.exit(main())
