# SPDX-License-Identifier: Apache-2.0
"""Blocks of TVM's tensor programs that no schedule has touched.

Loops over spatial axes become ``parallel``, and updates of an element over reduction axes become
``sum``, ``prod``, ``min`` or ``max``, so that quern maps one text to every device. Blocks that do
not have this form become loops with conditions, as TVM lowers them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Optional

from . import values
from .adapter import constant
from .context import Context
from .refuse import Refused
from .values import Value
from .walk import expressions, expressions_of, statements

if TYPE_CHECKING:
    from .statements import Statements

SPATIAL, REDUCTION = 0, 2

_COMBINED = {"Add": "sum", "Mul": "prod", "Min": "min", "Max": "max"}


class Blocks:
    """Writes blocks, and loops that a block gives a meaning."""

    def __init__(self, ctx: Context, owner: "Statements") -> None:
        self.ctx = ctx
        self.owner = owner
        self._parallel: set[int] = set()

    def analyse(self, body: Any) -> None:
        """Finds the loops that hold one block and are one of its spatial axes each."""
        kind = self.ctx.adapter.kind
        for node in statements(body):
            if kind(node) != "For":
                continue
            inner = node.body
            while kind(inner) == "For":
                inner = inner.body
            if kind(inner) == "SBlockRealize" and self._is_axis(node, inner):
                self._parallel.add(self.ctx.keep(node))

    def _is_axis(self, loop: Any, realize: Any) -> bool:
        key = self.ctx.adapter.key
        bound = 0
        for axis, value in zip(realize.block.iter_vars, realize.iter_values):
            if any(key(part) == key(loop.loop_var) for part in self._parts(value)):
                bound += 1
                if int(axis.iter_type) != SPATIAL or key(value) != key(loop.loop_var):
                    return False
        if bound != 1:
            return False
        is_single = constant(self.ctx.adapter, loop.extent) == 1
        return is_single or self._is_independent(realize, key(loop.loop_var))

    def _parts(self, expr: Any) -> Iterator[Any]:
        return expressions(self.ctx.adapter, expr)

    def _is_independent(self, realize: Any, loop_var: int) -> bool:
        """Returns whether iterations of a spatial axis neither write nor read the same elements.

        A block may declare an axis spatial that it does not have in the indices it stores to; TVM
        runs it in order. Every store must name the axis, by no loaded index, and what the block
        reads of the buffers that it writes must be the written element.
        """
        kind, key = self.ctx.adapter.kind, self.ctx.adapter.key
        written: dict[int, list[str]] = {}
        parts = list(statements(realize))
        if sum(kind(part) == "SBlockRealize" for part in parts) > 1:
            return False
        own = {key(buffer) for buffer in realize.block.alloc_buffers}
        axes = {
            key(axis.var)
            for axis, value in zip(realize.block.iter_vars, realize.iter_values)
            if key(value) == loop_var
        } | {loop_var}
        for part in parts:
            if kind(part) == "Bind":
                of = list(self._parts(part.value))
                is_load = any(kind(expr) == "BufferLoad" for expr in of)
                if not is_load and any(key(expr) in axes for expr in of):
                    axes.add(key(part.var))
            if kind(part) != "BufferStore" or key(part.buffer) in own:
                continue
            written.setdefault(key(part.buffer), []).append(str(list(part.indices)))
            at = [expr for index in part.indices for expr in self._parts(index)]
            if any(kind(expr) == "BufferLoad" for expr in at):
                return False
            if not any(key(expr) in axes for expr in at):
                return False
        for part in parts:
            for expr in expressions_of(self.ctx.adapter, part):
                if kind(expr) != "BufferLoad":
                    continue
                stores = written.get(key(self.ctx.adapter.loaded(expr)))
                if stores is not None and set(stores) != {str(list(expr.indices))}:
                    return False
        return True

    def is_parallel(self, loop: Any) -> bool:
        """Returns whether the iterations of a loop are those of a spatial axis."""
        return self.ctx.adapter.key(loop) in self._parallel

    def realize(self, node: Any) -> None:
        """Writes a block."""
        block = node.block
        if len(block.match_buffers):
            raise Refused("matched region of a buffer", str(block.name_hint))
        for axis, value in zip(block.iter_vars, node.iter_values):
            self.owner.let(axis.var, self.owner.expressions.value(value))
        predicate = self.owner.expressions.condition(node.predicate)
        if predicate.text == "true":
            self._body(block)
            return
        with self.ctx.out.block(f"if {predicate.text}"):
            self._body(block)

    def _body(self, block: Any) -> None:
        for buffer in block.alloc_buffers:
            self.owner.allocate(buffer)
        if block.init is not None:
            self._init(block)
        self.owner.emit(block.body)

    def _init(self, block: Any) -> None:
        """Writes the start of a reduction, for its first iteration."""
        first: Optional[Value] = None
        for axis in block.iter_vars:
            if int(axis.iter_type) != REDUCTION or constant(self.ctx.adapter, axis.dom.extent) == 1:
                continue
            var = self.owner.expressions.value(axis.var)
            low = self.owner.expressions.value(axis.dom.min)
            is_first = values.infix("==", values.COMPARE, var, low, "bool")
            first = (
                is_first
                if first is None
                else values.infix("&&", values.AND, first, is_first, "bool")
            )
        if first is None:
            self.owner.emit(block.init)
            return
        with self.ctx.out.block(f"if {first.text}"):
            self.owner.emit(block.init)

    def reduction(self, loop: Any) -> bool:
        """Writes loops over all reduction axes of a block as one reduction, if they are that."""
        kind, key = self.ctx.adapter.kind, self.ctx.adapter.key
        loops = [loop]
        while kind(loops[-1].body) == "For":
            loops.append(loops[-1].body)
        realize = loops[-1].body
        if kind(realize) != "SBlockRealize" or realize.block.init is None:
            return False
        block = realize.block
        name = self._combiner(block)
        if name is None or constant(self.ctx.adapter, realize.predicate) != 1:
            return False
        axes = {}
        for axis, value in zip(block.iter_vars, realize.iter_values):
            if (
                int(axis.iter_type) == REDUCTION
                and constant(self.ctx.adapter, axis.dom.extent) != 1
            ):
                axes[key(value)] = axis
        if set(axes) != {key(each.loop_var) for each in loops} or len(axes) != len(loops):
            return False
        if any(
            constant(self.ctx.adapter, each.min) != 0 or each.step is not None for each in loops
        ):
            return False
        self._write_reduction(name, loops, realize)
        return True

    def _combiner(self, block: Any) -> Optional[str]:
        """Returns the reduction that a block's update is, or None."""
        kind, key = self.ctx.adapter.kind, self.ctx.adapter.key
        store, init = block.body, block.init
        if kind(store) != "BufferStore" or kind(init) != "BufferStore":
            return None
        if key(store.buffer) != key(init.buffer) or len(block.alloc_buffers):
            return None
        if str(list(store.indices)) != str(list(init.indices)):
            return None
        if kind(store.value) not in _COMBINED or self._operand(store) is None:
            return None
        if "x" in self.ctx.adapter.dtype(store.value):
            return None
        return _COMBINED[kind(store.value)]

    def _operand(self, store: Any) -> Any:
        """Returns what an update combines with the element that it stores, or None."""
        kind, key, loaded = self.ctx.adapter.kind, self.ctx.adapter.key, self.ctx.adapter.loaded
        own = str(list(store.indices))
        for element, operand in ((store.value.a, store.value.b), (store.value.b, store.value.a)):
            if kind(element) != "BufferLoad" or key(loaded(element)) != key(store.buffer):
                continue
            if str(list(element.indices)) != own:
                continue
            reads = [part for part in self._parts(operand) if kind(part) == "BufferLoad"]
            if all(key(loaded(part)) != key(store.buffer) for part in reads):
                return operand
        return None

    def _write_reduction(self, name: str, loops: list[Any], realize: Any) -> None:
        block, store = realize.block, realize.block.body
        heads = []
        for loop in loops:
            variable = self.ctx.names.fresh(str(loop.loop_var.name))
            extent = self.owner.expressions.bound(loop.extent)
            heads.append(f"{name} {variable} in 0..{extent.at(values.SUM)}")
            narrow = values.split_lanes(self.ctx.adapter.dtype(loop.loop_var))[0]
            self.ctx.define(loop.loop_var, values.index(variable, narrow))
        for axis, value in zip(block.iter_vars, realize.iter_values):
            bound = self.owner.expressions.value(value)
            if int(axis.iter_type) == REDUCTION:
                self.ctx.define(axis.var, bound)
            else:
                self.owner.let(axis.var, bound)
        buffer = self.ctx.buffer(store.buffer)
        start = self.owner.expressions.value(block.init.value)
        with self.ctx.lazily():
            operand = self.owner.expressions.value(self._operand(store)).exact().typed()
        at = self.owner.expressions.indices(store.indices, buffer)
        text = f"{' { '.join(heads)} {{ {operand.text} {'} ' * len(loops)}".rstrip()
        self.ctx.out.add(f"{buffer.name}[{at}] = {self._started(name, start, text)};")
        buffer.note_store(at)

    def _started(self, name: str, start: Value, text: str) -> str:
        """Returns the reduction with the value that TVM starts with, unless that is neutral."""
        if name in ("sum", "prod"):
            neutral = 0.0 if name == "sum" else 1.0
            if start.is_literal and float(start.text) == neutral:
                return text
            return f"{start.at(values.SUM)} {'+' if name == 'sum' else '*'} ({text})"
        return f"{name}({start.text}, {text})"
