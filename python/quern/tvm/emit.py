# SPDX-License-Identifier: Apache-2.0
"""Whole functions: parameters, symbols and the order of the parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import stages, values
from .adapter import Adapter, constant
from .context import Buffer, Context
from .names import Names
from .refuse import Refused
from .statements import Statements
from .walk import expressions, statements


@dataclass(frozen=True)
class Kernel:
    """A function in the text: its name, and its parameters in the order of TVM's."""

    name: str
    parameters: tuple[str, ...]
    #: Names of the parameters that the function writes.
    outputs: tuple[str, ...]
    #: Names of those whose contents before do not matter.
    only_written: tuple[str, ...]


class Function:
    """Writes one function."""

    def __init__(self, adapter: Adapter, func: Any, name: str) -> None:
        self.ctx = Context(adapter)
        self.func = func
        self.name = name
        self.statements = Statements(self.ctx)
        self._parameters: list[tuple[str, Buffer | None, str]] = []

    def text(self) -> str:
        """Returns the function as a text of quern."""
        self._declare()
        self.ctx.has_threads = stages.has_threads(self.ctx.adapter, self.func.body)
        self.statements.blocks.analyse(self.func.body)
        self.statements.emit(self.func.body)
        lines = self.ctx.out.lines
        if lines and lines[-1] == "  return;":
            lines.pop()
        head = ", ".join(self._parameter(*parameter) for parameter in self._parameters)
        top = ["  " + line for line in self.ctx.top]
        return "\n".join([f"func {self.name}({head}) {{", *top, *lines, "}", ""])

    def kernel(self) -> Kernel:
        """Returns the function's interface, once its text has been made."""
        names = tuple(name for name, _, _ in self._parameters)
        access = {name: b.access() for name, b, _ in self._parameters if b is not None}
        written = tuple(name for name, word in access.items() if word)
        only = tuple(name for name, word in access.items() if word == "out ")
        return Kernel(self.name, names, written, only)

    def _declare(self) -> None:
        adapter = self.ctx.adapter
        pointers = self._over_pointers()
        parameters = [
            (var, pointers.get(adapter.key(var)) if buffer is None else buffer)
            for var, buffer in adapter.parameters(self.func)
        ]
        for var, buffer in parameters:
            if buffer is None:
                self._scalar(var)
        for _, buffer in parameters:
            if buffer is not None:
                self._symbols(buffer)
        for var, buffer in parameters:
            if buffer is None:
                value = self.ctx.values[adapter.key(var)]
                self._parameters.append((value.text, None, value.dtype))
            else:
                self._buffer(buffer)

    def _over_pointers(self) -> dict[int, Any]:
        """Returns the buffers that the body declares over pointers, where it declares one."""
        adapter = self.ctx.adapter
        found: dict[int, list[Any]] = {}
        for node in statements(self.func.body):
            if adapter.kind(node) == "DeclBuffer":
                pointer = adapter.declared_pointer(node)
                if pointer is not None:
                    found.setdefault(pointer, []).append(node.buffer)
        return {
            pointer: buffers[0]
            for pointer, buffers in found.items()
            if len(buffers) == 1 and constant(adapter, buffers[0].elem_offset) == 0
        }

    def _scalar(self, var: Any) -> None:
        dtype = self.ctx.adapter.dtype(var)
        if dtype == "handle":
            raise Refused("pointer", f"parameter {var.name}")
        quern, lanes = values.split_lanes(dtype)
        if lanes != 1 or quern in values.STORED:
            raise Refused("scalar parameter of this dtype", dtype)
        self.ctx.define(var, values.Value(self.ctx.names.fresh(str(var.name)), quern))

    def _symbols(self, buffer: Any) -> None:
        adapter = self.ctx.adapter
        for extent in [*buffer.shape, *buffer.strides]:
            for part in expressions(adapter, extent):
                is_var = adapter.kind(part) in ("Var", "SizeVar")
                if is_var and adapter.key(part) not in self.ctx.values:
                    narrow = values.split_lanes(adapter.dtype(part))[0]
                    name = self.ctx.names.fresh(str(part.name))
                    self.ctx.define(part, values.index(name, narrow))

    def _buffer(self, tvm: Any) -> None:
        # A scalar parameter in a shape counts as i64 there, without a conversion.
        before = dict(self.ctx.values)
        for key, value in before.items():
            self.ctx.values[key] = values.index(value.text, None)
        extents = [self.statements.expressions.bound(extent).text for extent in tvm.shape]
        strides = [self.statements.expressions.bound(stride).text for stride in tvm.strides]
        self.ctx.values.update(before)
        buffer = self.ctx.add_buffer(tvm, shape=extents)
        if buffer.lanes != 1:
            raise Refused("parameter with vector elements", str(tvm.name))
        buffer.is_parameter = True
        self._parameters.append((buffer.name, buffer, ", ".join(strides)))

    def _parameter(self, name: str, buffer: Buffer | None, suffix: str) -> str:
        if buffer is None:
            return f"{name}: {suffix}"
        strides = f" strides [{suffix}]" if suffix else ""
        return f"{buffer.access()}{name}: {buffer.dtype}[{', '.join(buffer.shape)}]{strides}"


def function(adapter: Adapter, func: Any, name: str, door: str, names: Names) -> tuple[Kernel, str]:
    """Returns a function of TVM as a text, and its interface; raises :class:`Refused`."""
    if type(func).__name__ != "PrimFunc":
        raise Refused(f"function {type(func).__name__}", name)
    taken = stages.take(adapter, func, name, door)
    written = Function(adapter, taken, names.fresh(name))
    text = written.text()
    return written.kernel(), text
