# SPDX-License-Identifier: Apache-2.0
"""Statements of TVM as lines of quern."""

from __future__ import annotations

import math
from typing import Any, Callable, Optional

from . import values
from .adapter import constant
from .blocks import Blocks
from .context import Buffer, Context, Lane
from .expressions import Expressions
from .refuse import Refused
from .threads import Threads
from .walk import expressions, statements

SERIAL, PARALLEL, VECTORIZED, UNROLLED, THREAD_BINDING = range(5)

#: Attributes that say how to compile, not what to compute.
_HINTS = frozenset(
    (
        "volatile_scope double_buffer_scope double_buffer_write device_id device_type target "
        "compute_scope async_scope async_commit_queue_scope async_wait_queue_scope hand_threaded"
    ).split()
)
_IMPORTS = frozenset(["pragma_import_llvm", "pragma_import_c"])

#: Calls that TVM evaluates for hints alone.
_DROPPED = frozenset("assume prefetch start_profile_intrinsic end_profile_intrinsic".split())

_LARGEST_VECTOR = 64
_LARGEST_UNROLL = 64
_LARGEST_LOCAL = 32 << 10
_SMALL_LOCAL = 4 << 10

_BYTES = {"bool": 1, "bf16": 2, "f8e4m3fn": 1, "f8e5m2": 1}


def size_of(buffer: Buffer) -> Optional[int]:
    """Returns the bytes of a buffer whose shape is constant, or None."""
    width = _BYTES.get(buffer.dtype) or int(buffer.dtype[1:]) // 8
    if not all(extent.isdigit() for extent in buffer.shape):
        return None
    return width * math.prod(int(extent) for extent in buffer.shape)


class Statements:
    """Writes TVM's statements within a function."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.expressions = Expressions(ctx)
        self.blocks = Blocks(ctx, self)
        self.threads = Threads(ctx, self)
        self._handlers: dict[str, Callable[[Any], None]] = {
            "SeqStmt": self._sequence,
            "Bind": self._bind,
            "BufferStore": self._store,
            "For": self._for,
            "While": self._while,
            "IfThenElse": self._if,
            "AllocBuffer": lambda node: self.allocate(node.buffer),
            "DeclBuffer": self._declare,
            "AssertStmt": self._assert,
            "AttrStmt": self._attribute,
            "Evaluate": self._evaluate,
            "Break": lambda node: self.ctx.out.add("break;"),
            "Continue": lambda node: self.ctx.out.add("continue;"),
            "Return": self._return,
            "SBlockRealize": self.blocks.realize,
        }

    def emit(self, node: Any) -> None:
        """Writes a statement."""
        kind = self.ctx.adapter.kind(node)
        handler = self._handlers.get(kind)
        if handler is None:
            raise Refused(f"statement {kind}", str(node)[:80])
        handler(node)

    def _sequence(self, node: Any) -> None:
        for part in node.seq:
            self.emit(part)

    def _bind(self, node: Any) -> None:
        if self.ctx.adapter.dtype(node.var) == "handle":
            raise Refused("pointer", f"{node.var.name} = {node.value}"[:80])
        self.let(node.var, self.expressions.value(node.value))

    def let(self, var: Any, value: values.Value) -> None:
        """Names a value: writes a ``let``, unless the value is a name or literal already."""
        if value.text.isidentifier() or value.is_literal:
            self.ctx.define(var, value)
            return
        name = self.ctx.names.fresh(str(var.name))
        self.ctx.out.add(f"let {name} = {value.text};")
        self.ctx.define(var, values.Value(name, value.dtype, narrow=value.narrow))

    def _store(self, node: Any) -> None:
        value = node.value
        if self._is_call_of(value, "undef"):
            return
        _, lanes = values.split_lanes(self.ctx.adapter.dtype(value))
        buffer = self.ctx.buffer(node.buffer)
        if lanes == 1 and buffer.lanes == 1:
            self._store_element(node, buffer)
            return
        name = self.ctx.names.fresh("lane")
        self.ctx.lane = Lane(name, max(lanes, buffer.lanes))
        with self.ctx.out.block(f"vector {name} in 0..{self.ctx.lane.count}"), self.ctx.lazily():
            self._store_element(node, buffer, in_lanes=True)
        self.ctx.lane = None

    def _store_element(self, node: Any, buffer: Buffer, in_lanes: bool = False) -> None:
        predicate = self.ctx.adapter.predicate(node)
        self.ctx.loads.clear()
        value = self.expressions.value(node.value).exact()
        loads = list(self.ctx.loads)
        at = self.expressions.indices(node.indices, buffer)
        if in_lanes and any(b is buffer and where != at for b, where in loads):
            raise Refused("vector store that reads other lanes", f"{buffer.name}[{at}]")
        if value.dtype != buffer.dtype:
            raise Refused("store of another dtype", f"{value.dtype} in {buffer.name}")
        line = f"{buffer.name}[{at}] = {value.text};"
        if predicate is None:
            self.ctx.out.add(line)
        else:
            with self.ctx.out.block(f"if {self.expressions.condition(predicate).text}"):
                self.ctx.out.add(line)
        buffer.note_store(at)

    def _is_call_of(self, node: Any, name: str) -> bool:
        adapter = self.ctx.adapter
        return adapter.kind(node) == "Call" and adapter.call_operator(node).endswith("." + name)

    def _for(self, node: Any) -> None:
        kind = int(node.kind)
        if kind == THREAD_BINDING:
            tag = str(node.thread_binding.thread_tag)
            self.threads.bind(tag, node.loop_var, node.extent, node.body, node)
            return
        if self.blocks.reduction(node):
            return
        word = self._word(node, kind)
        low, extent = self.expressions.bound(node.min), self.expressions.bound(node.extent)
        step = constant(self.ctx.adapter, node.step) if node.step is not None else 1
        if step is None:
            raise Refused("loop with a step that is no literal", str(node.step))
        name = self.ctx.names.fresh(str(node.loop_var.name))
        narrow = values.split_lanes(self.ctx.adapter.dtype(node.loop_var))[0]
        if step != 1:
            rounds = values.prefix("ceildiv", extent, values.literal(step, "i64"))
            head = f"{word} {name} in 0..{rounds.text}"
        else:
            head = f"{word} {name} in {low.at(values.SUM)}..{self._end(low, extent)}"
        with self.ctx.out.block(head):
            value = values.index(name, narrow)
            if step != 1:
                scaled = values.infix("*", values.TERM, value, values.literal(step, "i64"))
                value = values.infix("+", values.SUM, low, scaled) if low.text != "0" else scaled
                self.let(node.loop_var, value)
            else:
                self.ctx.define(node.loop_var, value)
            self._inside(node.body, word)

    def _end(self, low: values.Value, extent: values.Value) -> str:
        if low.text == "0":
            return extent.at(values.SUM)
        if low.is_literal and extent.is_literal:
            return str(int(low.text) + int(extent.text))
        return values.infix("+", values.SUM, low, extent).at(values.SUM)

    def _inside(self, body: Any, word: str) -> None:
        is_concurrent = word in ("parallel", "vector")
        self.ctx.loop_depth += 1
        self.ctx.concurrent_depth += is_concurrent
        self.ctx.vector_depth += word == "vector"
        self.emit(body)
        self.ctx.vector_depth -= word == "vector"
        self.ctx.concurrent_depth -= is_concurrent
        self.ctx.loop_depth -= 1

    def _word(self, node: Any, kind: int) -> str:
        """Returns the loop's word. A hint that quern does not take there becomes a ``for``."""
        is_fixed = constant(self.ctx.adapter, node.min) is not None
        count = constant(self.ctx.adapter, node.extent) if is_fixed else None
        is_inner = self.ctx.kernel is not None or self.ctx.vector_depth > 0
        if kind == PARALLEL or self.blocks.is_parallel(node):
            return "for" if is_inner else "parallel"
        if kind == VECTORIZED and count is not None and count <= _LARGEST_VECTOR:
            is_vector = self.ctx.vector_depth == 0 and not self._meets(node.body)
            return "vector" if is_vector and self._names_its_lanes(node) else "for"
        if kind == UNROLLED and count is not None and count <= _LARGEST_UNROLL:
            return "unroll"
        if kind not in (SERIAL, PARALLEL, VECTORIZED, UNROLLED):
            raise Refused("loop kind", str(kind))
        return "for"

    def _names_its_lanes(self, loop: Any) -> bool:
        """Returns whether each store in a loop is to an element of the iteration's own."""
        kind, key = self.ctx.adapter.kind, self.ctx.adapter.key
        names = {key(loop.loop_var)}
        for node in statements(loop.body):
            if kind(node) == "Bind" and self._mentions(node.value, names):
                names.add(key(node.var))
            if kind(node) == "BufferStore":
                if not any(self._mentions(index, names) for index in node.indices):
                    return False
        return True

    def _mentions(self, expr: Any, names: set[int]) -> bool:
        adapter = self.ctx.adapter
        return any(adapter.key(part) in names for part in expressions(adapter, expr))

    def _meets(self, body: Any) -> bool:
        """Returns whether threads wait for each other in a statement."""
        names = ("tvm_storage_sync", "tvm_thread_allreduce")
        return any(
            self.ctx.adapter.kind(node) == "Evaluate" and self._is_call_of(node.value, name)
            for node in statements(body)
            for name in names
        )

    def _while(self, node: Any) -> None:
        with self.ctx.lazily():
            condition = self.expressions.condition(node.condition)
        with self.ctx.out.block(f"while {condition.text}"):
            self._inside(node.body, "while")

    def _if(self, node: Any) -> None:
        condition = self.expressions.condition(node.condition)
        with self.ctx.out.block(f"if {condition.text}"):
            self.emit(node.then_case)
        if node.else_case is not None:
            self.ctx.out.lines.pop()
            with self.ctx.out.block("} else"):
                self.emit(node.else_case)

    def allocate(self, tvm: Any) -> None:
        """Declares a buffer of the function, in the memory that TVM's scope names."""
        scope = self.ctx.adapter.scope(tvm)
        if scope in ("shared", "shared.dyn") and self.ctx.has_threads:
            self.threads.allocate_shared(tvm)
            return
        # Without threads, shared memory is memory as TVM's code for CPUs has it.
        if scope not in ("global", "local", "shared", "shared.dyn", ""):
            raise Refused("memory scope", scope)
        is_inside = self.ctx.kernel is not None or self.ctx.concurrent_depth > 0
        extents = [self.expressions.bound(extent).text for extent in tvm.shape]
        buffer = self.ctx.add_buffer(tvm, shape=self.padded(tvm, extents))
        size = size_of(buffer)
        text = f"alloc {buffer.name}: {buffer.dtype}[{', '.join(buffer.shape)}]"
        if scope == "local" and self.ctx.has_threads and self.ctx.kernel is None:
            self.ctx.thread_locals.append((buffer.name, f"{text} in local;"))
            return
        is_small = size is not None and size <= _SMALL_LOCAL and self.ctx.loop_depth > 0
        if is_inside or is_small:
            if size is None or size > _LARGEST_LOCAL:
                raise Refused("large allocation inside of a concurrent loop", text)
            self.ctx.out.add(f"{text} in local;")
            return
        self.ctx.top.append(f"{text} in global;")

    def padded(self, tvm: Any, extents: list[str]) -> list[str]:
        """Returns the shape of a row-major buffer that holds the strides of ``tvm``."""
        strides = [constant(self.ctx.adapter, stride) for stride in tvm.strides]
        if not strides:
            return extents
        if len(strides) != len(extents):
            raise Refused("allocation with strides of another rank", str(list(tvm.strides)))
        rest = [extents[0]]
        for before, after in zip(strides, strides[1:]):
            if before is None or not after or before % after != 0:
                raise Refused("allocation with strides", str(list(tvm.strides)))
            rest.append(str(before // after))
        if strides[-1] != 1:
            raise Refused("allocation with strides", str(list(tvm.strides)))
        return rest

    def _declare(self, node: Any) -> None:
        tvm = node.buffer
        if self.ctx.adapter.key(tvm) in self.ctx.buffers:  # A parameter, by its pointer.
            return
        source_id = self.ctx.adapter.declared_source(node)
        source = None if source_id is None else self.ctx.same_storage(source_id)
        if source is None:
            raise Refused("buffer over a pointer", str(tvm.name))
        offset = self.expressions.bound(tvm.elem_offset)
        if offset.text != "0" and len(source.shape) != 1:
            raise Refused("view at an offset of a buffer with several dimensions", str(tvm.name))
        start = ", ".join(["0"] * (len(source.shape) - 1) + [offset.text]) if source.shape else ""
        extents = [self.expressions.bound(extent).text for extent in tvm.shape]
        view = self.ctx.add_buffer(tvm, shape=extents)
        strides = [self.expressions.bound(stride).text for stride in tvm.strides]
        suffix = f" strides [{', '.join(strides)}]" if strides else ""
        shape = ", ".join(view.shape)
        declared = f"{view.name}: {view.dtype}[{shape}]{suffix}"
        self.ctx.out.add(f"view {declared} = {source.name}[{start}];")
        view.source = source

    def _assert(self, node: Any) -> None:
        condition = self.expressions.condition(node.condition)
        parts = getattr(node, "message_parts", None)
        parts = [node.message] if parts is None else parts
        message = "".join(str(getattr(part, "value", part)) for part in parts)
        escaped = "".join(c if c.isprintable() and c not in '"\\' else "'" for c in message)
        self.ctx.out.add(f'assert {condition.text}, "{escaped}";')

    def _attribute(self, node: Any) -> None:
        key = str(node.attr_key)
        if key == "thread_extent":
            axis = self.ctx.adapter.attribute_node(node)
            self.threads.bind(str(axis.thread_tag), axis.var, node.value, node.body, node)
        elif key == "virtual_thread":
            self._virtual_thread(node)
        elif key == "reduce_scope":
            self.threads.reducers.append(self.ctx.adapter.attribute_node(node))
            self.emit(node.body)
            self.threads.reducers.pop()
        elif key in _HINTS or key.startswith("pragma_") and key not in _IMPORTS:
            self.emit(node.body)
        else:
            raise Refused(f"attribute {key}")

    def _virtual_thread(self, node: Any) -> None:
        """Writes a virtual thread as a loop; so it may share nothing with the others."""
        if self._meets(node.body):
            raise Refused("virtual thread with a barrier")
        axis = self.ctx.adapter.attribute_node(node)
        extent = constant(self.ctx.adapter, node.value)
        if extent is None or extent > _LARGEST_UNROLL:
            raise Refused("virtual thread without a small constant extent", str(node.value))
        name = self.ctx.names.fresh(str(axis.var.name))
        with self.ctx.out.block(f"unroll {name} in 0..{extent}"):
            narrow = values.split_lanes(self.ctx.adapter.dtype(axis.var))[0]
            self.ctx.define(axis.var, values.index(name, narrow))
            self._inside(node.body, "unroll")

    def _return(self, node: Any) -> None:
        if constant(self.ctx.adapter, node.value) != 0:
            raise Refused("function that returns a value", str(node.value)[:80])
        self.ctx.out.add("return;")

    def _evaluate(self, node: Any) -> None:
        value = node.value
        adapter = self.ctx.adapter
        if adapter.kind(value) != "Call":
            self.expressions.value(value)
            return
        name = adapter.call_operator(value).rpartition(".")[2]
        if name in _DROPPED:
            return
        if name == "tvm_storage_sync":
            self.ctx.out.add("barrier;")
        elif name in ("break_loop", "continue_loop"):
            self.ctx.out.add(f"{name[:-5]};")
        elif name in ("ret", "thread_return"):
            self._check_result(value)
            self.ctx.out.add("return;")
        elif name == "tvm_thread_allreduce":
            self.threads.allreduce(value)
        elif name == "atomic_add":
            self._atomic(value)
        else:
            self.expressions.value(value)

    def _check_result(self, call: Any) -> None:
        if len(call.args) and constant(self.ctx.adapter, call.args[0]) != 0:
            raise Refused("function that returns a value", str(call)[:80])

    def _atomic(self, call: Any) -> None:
        pointer, operand = call.args[0], self.expressions.value(call.args[1]).exact()
        if not self._is_call_of(pointer, "address_of"):
            raise Refused("atomic at a pointer", str(pointer)[:80])
        load = pointer.args[0]
        buffer = self.ctx.buffer(self.ctx.adapter.loaded(load))
        at = self.expressions.indices(load.indices, buffer)
        buffer.note_load(at)
        buffer.note_store(at)
        self.ctx.out.add(f"atomic_add({buffer.name}[{at}], {operand.text});")
