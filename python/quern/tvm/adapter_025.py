# SPDX-License-Identifier: Apache-2.0
"""TVM 0.25: buffers are objects beside variables, and expressions carry a dtype."""

from __future__ import annotations

from typing import Any, Optional

from .adapter import Adapter


class Adapter025(Adapter):
    """Access to the nodes of TVM 0.25."""

    def dtype(self, expr: Any) -> str:
        return str(expr.dtype)

    def parameters(self, func: Any) -> list[tuple[Any, Optional[Any]]]:
        buffers = {self.key(var): buffer for var, buffer in func.buffer_map.items()}
        return [(var, buffers.get(self.key(var))) for var in func.params]

    def is_buffer(self, var: Any) -> bool:
        return type(var).__name__ == "Buffer"

    def storage(self, buffer: Any) -> int:
        return self.key(buffer.data)

    def declared_pointer(self, declaration: Any) -> Optional[int]:
        return self.key(declaration.buffer.data)

    def declared_source(self, declaration: Any) -> Optional[int]:
        return self.key(declaration.buffer.data)
