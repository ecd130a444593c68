# SPDX-License-Identifier: Apache-2.0
"""Imports ``quern.tvm`` from this tree, without the extension of the package around it.

TVM's Python need not be the one that the extension is built for, and writing texts needs none.
"""

from __future__ import annotations

import pathlib
import sys
import types

_package = types.ModuleType("quern")
_package.__path__ = [str(pathlib.Path(__file__).resolve().parents[3] / "python/quern")]
sys.modules.setdefault("quern", _package)
