# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that saves the functions which TVM's tests compare.

TVM's tests compare what a pass made with what it should have made, by
``tvm.ir.assert_structural_equal``. The plugin saves every ``PrimFunc`` of both sides once: as
JSON of this TVM, in ``$QUERN_TVM_CORPUS/made`` (left side) or ``.../expected`` (right side),
beside a text with the name of the test. Whether the test passes does not matter.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
from typing import Any

import tvm

_FOLDER = pathlib.Path(os.environ["QUERN_TVM_CORPUS"])
_current = {"test": ""}


def _functions(side: Any) -> list[Any]:
    if type(side).__name__ == "PrimFunc":
        return [side]
    if type(side).__name__ == "IRModule":
        return [f for f in side.functions.values() if type(f).__name__ == "PrimFunc"]
    return []


def _save(func: Any, place: str) -> None:
    try:
        digest = hashlib.sha256(func.script().encode()).hexdigest()[:16]
        path = _FOLDER / place / f"{digest}.json"
        if path.exists():
            return
        text = tvm.ir.save_json(func)
    except Exception:  # Functions with free variables, for example, have no script.
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".test").write_text(_current["test"] + "\n")
    path.write_text(text)


def pytest_runtest_setup(item: Any) -> None:
    _current["test"] = item.nodeid


def pytest_configure(config: Any) -> None:
    original = tvm.ir.assert_structural_equal

    def compare(lhs: Any, rhs: Any, *args: Any, **kwargs: Any) -> Any:
        for side, place in ((lhs, "made"), (rhs, "expected")):
            for func in _functions(side):
                _save(func, place)
        return original(lhs, rhs, *args, **kwargs)

    tvm.ir.assert_structural_equal = compare
    tvm.ir.base.assert_structural_equal = compare
