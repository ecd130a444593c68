# SPDX-License-Identifier: Apache-2.0
"""TVM 0.27: loads are ``ir.TensorLoad``, and predicates are calls of ``masked_load``."""

from __future__ import annotations

from typing import Any

from .adapter import Adapter


class Adapter027(Adapter):
    """Access to the nodes of TVM 0.27."""

    renamed = {"TensorLoad": "BufferLoad"}

    def loaded(self, load: Any) -> Any:
        return load.source
