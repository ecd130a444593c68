# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for TVM's nodes, so that the importer is tested where TVM is not installed.

They have the classes' names and members that the importer reads, as TVM 0.26 has them. That TVM's
own nodes look like this is what tools/dev/tvm-corpus checks, with each release.
"""

from __future__ import annotations

import importlib
import pathlib
import sys
import types
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[3]


def load_importer() -> Any:
    """Imports ``quern.tvm`` from the tree; it needs nothing of the extension."""
    package = types.ModuleType("quern")
    package.__path__ = [str(ROOT / "python/quern")]
    sys.modules.setdefault("quern", package)
    return importlib.import_module("quern.tvm")


load_importer()
from quern.tvm.adapter import Adapter  # noqa: E402


class Node:
    """A node with any members."""

    def __init__(self, **members: Any) -> None:
        self.__dict__.update(members)

    def __repr__(self) -> str:
        name = self.__dict__.get("name")
        return name if name else f"{type(self).__name__}{list(self.__dict__.values())}"

    def same_as(self, other: Any) -> bool:
        return self is other

    def scope(self) -> str:
        return self.__dict__["storage"]


def make(kind: str, /, **members: Any) -> Node:
    """Returns a node whose class has the name ``kind``."""
    return type(kind, (Node,), {})(**members)


class StandIns(Adapter):
    """The adapter of these nodes."""

    def dtype(self, expr: Any) -> str:
        return expr.dtype

    def parameters(self, func: Any) -> list[tuple[Any, Any]]:
        return [(p, p if type(p).__name__ == "Buffer" else None) for p in func.params]

    def elements(self, buffer: Any) -> str:
        return buffer.dtype


def var(name: str, dtype: str = "int64") -> Node:
    return make("Var", name=name, dtype=dtype)


def lit(value: Any, dtype: str = "int64") -> Node:
    return make("FloatImm" if "float" in dtype else "IntImm", value=value, dtype=dtype)


def buffer(name: str, shape: list[Any], dtype: str = "float32", scope: str = "global") -> Node:
    extents = [lit(extent) if isinstance(extent, int) else extent for extent in shape]
    return make("Buffer", name=name, shape=extents, dtype=dtype, storage=scope, strides=[])


def load(source: Node, *indices: Any) -> Node:
    return make("BufferLoad", buffer=source, indices=list(indices), dtype=source.dtype)


def store(target: Node, value: Node, *indices: Any) -> Node:
    return make("BufferStore", buffer=target, value=value, indices=list(indices))


def binary(kind: str, a: Node, b: Node, dtype: str | None = None) -> Node:
    return make(kind, a=a, b=b, dtype=dtype or a.dtype)


def call(name: str, *args: Any, dtype: str = "float32") -> Node:
    return make("Call", op=make("Op", name=name), args=list(args), dtype=dtype)


def loop(variable: Node, extent: Any, body: Node, kind: int = 0, low: Any = 0) -> Node:
    bounds = [lit(e, variable.dtype) if isinstance(e, int) else e for e in (low, extent)]
    return make("For", loop_var=variable, min=bounds[0], extent=bounds[1], kind=kind, body=body,
                thread_binding=None, annotations={}, step=None)  # fmt: skip


def seq(*parts: Node) -> Node:
    return make("SeqStmt", seq=list(parts))


def axis(variable: Node, extent: Any, kind: int) -> Node:
    extent = lit(extent) if isinstance(extent, int) else extent
    return make(
        "IterVar", var=variable, iter_type=kind, dom=make("Range", min=lit(0), extent=extent)
    )


def block(
    axes: list[Node], bound: list[Node], body: Node, init: Any = None, allocs: Any = ()
) -> Node:
    inner = make("SBlock", iter_vars=axes, body=body, init=init, alloc_buffers=list(allocs),
                 match_buffers=[], annotations={}, name_hint="block")  # fmt: skip
    return make("SBlockRealize", iter_values=bound, predicate=lit(True, "bool"), block=inner)


def threads(tag: str, variable: Node, extent: int, body: Node) -> Node:
    axis_node = make("IterVar", var=variable, thread_tag=tag)
    return make("AttrStmt", node=axis_node, attr_key="thread_extent", value=lit(extent), body=body)


def func(params: list[Node], body: Node) -> Node:
    return make("PrimFunc", params=params, body=body)
