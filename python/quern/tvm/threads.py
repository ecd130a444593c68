# SPDX-License-Identifier: Apache-2.0
"""GPU code of TVM: grids of blocks and threads, shared memory and reductions among threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from . import values
from .context import Buffer, Context, Lines
from .refuse import Refused
from .walk import statements

if TYPE_CHECKING:
    from .statements import Statements

_AXES = ("z", "y", "x")
_REDUCTIONS = {"Add": "sum", "Min": "min", "Max": "max"}
THREAD_BINDING = 4


class Kernel:
    """One grid: its axes, and what must stand before its thread loops."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.extents: dict[str, str] = {}
        self.shared: list[str] = []
        self.needs_warp_of_32 = False


class Threads:
    """Writes the parts of a function that run in threads."""

    def __init__(self, ctx: Context, owner: "Statements") -> None:
        self.ctx = ctx
        self.owner = owner
        self.reducers: list[Any] = []

    def bind(self, tag: str, var: Any, extent: Any, body: Any, node: Any) -> None:
        """Writes what runs for each index of a thread axis; the outermost axis makes the grid."""
        if tag.startswith(("vthread", "cthread")):
            raise Refused("virtual thread", tag)
        if self.ctx.kernel is None:
            self._grid(node)
            return
        axis = self._axis(tag)
        narrow = values.split_lanes(self.ctx.adapter.dtype(var))[0]
        self.ctx.define(var, values.index(self.ctx.kernel.names[axis], narrow))
        self.owner.emit(body)

    def _axis(self, tag: str) -> str:
        place, _, dimension = tag.partition(".")
        if place not in ("blockIdx", "threadIdx") or dimension not in _AXES:
            raise Refused("thread axis", tag)
        return ("block." if place == "blockIdx" else "thread.") + dimension

    def _binding(self, node: Any) -> Optional[tuple[str, Any]]:
        kind = self.ctx.adapter.kind(node)
        if kind == "AttrStmt" and str(node.attr_key) == "thread_extent":
            return str(self.ctx.adapter.attribute_node(node).thread_tag), node.value
        if kind == "For" and int(node.kind) == THREAD_BINDING:
            return str(node.thread_binding.thread_tag), node.extent
        return None

    def _grid(self, node: Any) -> None:
        if self.ctx.concurrent_depth > 0:
            raise Refused("grid inside of a concurrent loop")
        kernel = Kernel()
        for part in statements(node):
            binding = self._binding(part)
            if binding is None:
                continue
            axis = self._axis(binding[0])
            text = self.owner.expressions.bound(binding[1]).text
            if kernel.extents.setdefault(axis, text) != text:
                raise Refused("thread axis of two extents", f"{axis}: {text}")
        if not any(axis.startswith("block") for axis in kernel.extents):
            kernel.extents["block.x"] = "1"
        if not any(axis.startswith("thread") for axis in kernel.extents):
            kernel.extents["thread.x"] = "1"
        for axis in kernel.extents:
            hint = ("block_" if axis.startswith("block") else "thread_") + axis[-1]
            kernel.names[axis] = self.ctx.names.fresh(hint)
        self._write(kernel, node)

    def _write(self, kernel: Kernel, node: Any) -> None:
        outside = self.ctx.out
        grid = [axis for place in ("block.", "thread.") for d in _AXES
                if (axis := place + d) in kernel.extents]  # fmt: skip
        blocks = sum(axis.startswith("block") for axis in grid)
        self.ctx.out = Lines(outside.depth + len(grid))
        self.ctx.kernel = kernel
        self.owner.emit(node)
        body, self.ctx.out, self.ctx.kernel = self.ctx.out.lines, outside, None
        # Memory of threads that TVM has allocated before the grid.
        indent = "  " * (outside.depth + len(grid))
        for name, text in self.ctx.thread_locals:
            if any(f"{name}[" in line for line in body):
                body.insert(0, indent + text)
        if kernel.needs_warp_of_32:
            outside.add('assert warp_size() == 32, "the program exchanges values in warps of 32";')
        for at, axis in enumerate(grid):
            if at == blocks:
                for line in kernel.shared:
                    outside.add(line)
            outside.add(f"{axis} {kernel.names[axis]} in 0..{kernel.extents[axis]} {{")
            outside.depth += 1
        outside.lines.extend(body)
        for _ in grid:
            outside.depth -= 1
            outside.add("}")

    def allocate_shared(self, tvm: Any) -> None:
        """Declares a buffer that the threads of a block share."""
        if self.ctx.kernel is None:
            raise Refused("shared memory outside of a grid", str(tvm.name))
        extents = [self.owner.expressions.bound(extent).text for extent in tvm.shape]
        buffer = self.ctx.add_buffer(tvm, shape=self.owner.padded(tvm, extents))
        self._shared(buffer)

    def _shared(self, buffer: Buffer) -> None:
        if not all(extent.isdigit() for extent in buffer.shape):
            raise Refused("shared memory of symbolic shape", buffer.name)
        shape = ", ".join(buffer.shape)
        self.ctx.kernel.shared.append(f"alloc {buffer.name}: {buffer.dtype}[{shape}] in shared;")

    def allreduce(self, call: Any) -> None:
        """Writes ``tvm_thread_allreduce(count, values, condition, results, axes)``."""
        count = int(call.args[0].value)
        args = list(call.args[1:])
        operands, condition = args[:count], args[count]
        results, axes = args[count + 1 : 2 * count + 1], args[2 * count + 1 :]
        if not self.reducers:
            raise Refused("reduction among threads without a reducer")
        reducer = self.reducers[-1]
        names = self._names_of(axes)
        kind = self.ctx.adapter.kind(reducer.result[0])
        if count == 1 and kind in _REDUCTIONS and self._is_plain(reducer):
            value = self._guarded(operands[0], condition, reducer.identity_element[0])
            if not names:  # Every axis has one thread.
                self._store(results[0], value.text)
                return
            text = f"axis_{_REDUCTIONS[kind]}({value.text}, {', '.join(names)})"
            self._store(results[0], text)
            return
        self._through_memory(reducer, operands, condition, results, names)

    def _is_plain(self, reducer: Any) -> bool:
        """Returns whether the reducer is its operator applied to both of its variables."""
        key, body = self.ctx.adapter.key, reducer.result[0]
        sides = {key(body.a), key(body.b)}
        return sides == {key(reducer.lhs[0]), key(reducer.rhs[0])}

    def _names_of(self, axes: list[Any]) -> list[str]:
        by_name = {name: axis for axis, name in self.ctx.kernel.names.items()}
        found = []
        for axis in axes:
            value = self.owner.expressions.value(axis)
            if value.is_literal:
                continue
            if value.text not in by_name:
                raise Refused("reduction over something that is no thread axis", value.text)
            found.append(by_name[value.text])
        return found

    def _guarded(self, operand: Any, condition: Any, identity: Any) -> values.Value:
        value = self.owner.expressions.value(operand).exact()
        cond = self.owner.expressions.condition(condition)
        if cond.text == "true":
            return value
        other = self.owner.expressions.value(identity)
        return values.choose(cond, value, other, is_lazy=False)

    def _store(self, result: Any, text: str) -> None:
        buffer = self.ctx.buffer(self.ctx.adapter.loaded(result))
        at = self.owner.expressions.indices(result.indices, buffer)
        self.ctx.out.add(f"{buffer.name}[{at}] = {text};")
        buffer.note_store(at)

    def _through_memory(
        self,
        reducer: Any,
        operands: list[Any],
        condition: Any,
        results: list[Any],
        names: list[str],
    ) -> None:
        """Reduces several values together: threads store theirs, then each combines all."""
        kernel, out = self.ctx.kernel, self.ctx.out
        if not names:
            raise Refused("reduction of several values over one thread")
        threads = [axis for axis in ("thread.z", "thread.y", "thread.x") if axis in kernel.extents]
        extents = [kernel.extents[axis] for axis in threads]
        own = ", ".join(kernel.names[axis] for axis in threads)
        parts = []
        for operand, identity in zip(operands, reducer.identity_element):
            value = self._guarded(operand, condition, identity).typed()
            part = Buffer(self.ctx.names.fresh("part"), value.dtype, 1, extents)
            self._shared(part)
            out.add(f"{part.name}[{own}] = {value.text};")
            parts.append(part)
        out.add("barrier;")
        counters = {axis: self.ctx.names.fresh("k") for axis in names}
        total, at, first = self._linear(counters, names, threads)
        left = [self._variable(var, part) for var, part in zip(reducer.lhs, parts)]
        right = [self._variable(var, part) for var, part in zip(reducer.rhs, parts)]
        with self.ctx.lazily():
            combined = [self.owner.expressions.value(r).exact().text for r in reducer.result]
            start = [self.owner.expressions.value(i).typed().text for i in reducer.identity_element]
        loads = ", ".join(f"{part.name}[{at}]" for part in parts)
        sums = [self.ctx.names.fresh("combined") for _ in parts]
        out.add(
            f"let {', '.join(sums)} = reduce {first} in 0..{total} {{ {loads} }} "
            f"from ({', '.join(start)}) with ({', '.join(left)}), ({', '.join(right)}) "
            f"{{ {', '.join(combined)} }};"
        )
        for result, name in zip(results, sums):
            self._store(result, name)
        out.add("barrier;")

    def _variable(self, var: Any, part: Buffer) -> str:
        name = self.ctx.names.fresh(str(var.name))
        self.ctx.define(var, values.Value(name, part.dtype))
        return name

    def _linear(
        self, counters: dict[str, str], names: list[str], threads: list[str]
    ) -> tuple[str, str, str]:
        """Returns extent, indices and variable of one loop over the threads along ``names``."""
        kernel = self.ctx.kernel
        first = next(iter(counters.values()))
        where, rest, total = {}, first, 1
        for axis in reversed(names):
            extent = kernel.extents[axis]
            if not extent.isdigit():
                raise Refused("reduction over threads of symbolic extent", axis)
            where[axis] = rest if len(names) == 1 else f"{rest} % {extent}"
            rest = f"({rest}) // {extent}"
            total *= int(extent)
        at = ", ".join(where.get(axis, kernel.names[axis]) for axis in threads)
        return str(total), at, first
