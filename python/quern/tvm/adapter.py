# SPDX-License-Identifier: Apache-2.0
"""Access to TVM's nodes where releases of TVM differ.

An adapter is the only part that knows the release. Nodes are told apart by the name of their
class (``kind``), since modules and bases of these classes move between releases.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

from .refuse import Refused


class Adapter:
    """What TVM 0.26 and later agree on; the adapters of releases change the rest."""

    #: Names of nodes that this release spells differently.
    renamed: dict[str, str] = {}

    def kind(self, node: Any) -> str:
        """Returns the name of the node's class, as TVM 0.26 has it."""
        name = type(node).__name__
        return self.renamed.get(name, name)

    def key(self, node: Any) -> int:
        """Returns the identity of a node. It is valid while the function exists."""
        return hash(node)

    def dtype(self, expr: Any) -> str:
        """Returns the dtype of an expression as TVM's text, such as ``float32x4``."""
        ty = expr.ty
        return str(ty.dtype) if type(ty).__name__ == "PrimType" else "handle"

    def parameters(self, func: Any) -> list[tuple[Any, Optional[Any]]]:
        """Returns the parameters: each variable with its buffer, or with None for a scalar."""
        return [(var, var if self.is_buffer(var) else None) for var in func.params]

    def is_buffer(self, var: Any) -> bool:
        """Returns whether a variable is a buffer."""
        return type(getattr(var, "ty", None)).__name__ == "BufferType"

    def loaded(self, load: Any) -> Any:
        """Returns the buffer that a load reads."""
        return load.buffer

    def predicate(self, node: Any) -> Optional[Any]:
        """Returns the predicate of a load or store, or None."""
        return getattr(node, "predicate", None)

    def storage(self, buffer: Any) -> int:
        """Returns the identity of a buffer's memory."""
        return self.key(buffer)

    def declared_source(self, declaration: Any) -> Optional[int]:
        """Returns the identity of the memory that a ``DeclBuffer`` names, or None."""
        data = declaration.data
        if self.kind(data) == "Call" and str(data.op.name).endswith("buffer_data"):
            return self.key(data.args[0])
        return None

    def declared_pointer(self, declaration: Any) -> Optional[int]:
        """Returns the identity of the pointer over which a ``DeclBuffer`` is, or None."""
        return self.key(declaration.data) if self.kind(declaration.data) == "Var" else None

    def elements(self, buffer: Any) -> str:
        """Returns the dtype of a buffer's elements as TVM's text."""
        return str(buffer.dtype)

    def scope(self, buffer: Any) -> str:
        """Returns the memory scope of a buffer."""
        return str(buffer.scope())

    def call_operator(self, call: Any) -> str:
        """Returns the name of the operator that a call applies, such as ``tirx.exp``."""
        if self.kind(call.op) != "Op":
            return f"{self.kind(call.op)} {getattr(call.op, 'name_hint', '')}".strip()
        return str(call.op.name)

    def attribute_node(self, attribute: Any) -> Any:
        """Returns the node that an ``AttrStmt`` is about."""
        return attribute.node


def version() -> tuple[int, int]:
    """Returns major and minor version of the TVM that is installed."""
    import tvm

    major, minor = str(tvm.__version__).split(".")[:2]
    return int(major), int("".join(c for c in minor if c.isdigit()))


def find() -> Adapter:
    """Returns the adapter of the TVM that is installed.

    A release that is newer than all adapters gets the newest one: nodes that it does not know are
    refused by name.
    """
    found = version()
    if found < (0, 25):
        raise Refused("old TVM", f"version {found[0]}.{found[1]}, expected 0.25 or later")
    if found == (0, 25):
        from .adapter_025 import Adapter025

        return Adapter025()
    if found == (0, 26):
        return Adapter()
    from .adapter_027 import Adapter027

    return Adapter027()


def constant(adapter: Adapter, expr: Any) -> Optional[int]:
    """Returns the value of an integer literal, or None."""
    if isinstance(expr, int):
        return expr
    return int(expr.value) if adapter.kind(expr) == "IntImm" else None


def constants(adapter: Adapter, exprs: Sequence[Any]) -> Optional[list[int]]:
    """Returns the values of integer literals, or None if one is something else."""
    values = [constant(adapter, expr) for expr in exprs]
    return None if any(value is None for value in values) else [v for v in values if v is not None]
