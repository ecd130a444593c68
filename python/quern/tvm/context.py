# SPDX-License-Identifier: Apache-2.0
"""What is known while one function is emitted: names, buffers, and the lines written so far."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Iterator, Optional

from .adapter import Adapter, constants
from .names import Names
from .refuse import Refused
from .values import Value, split_lanes


class Lines:
    """Lines of a program, indented as they are written."""

    def __init__(self, depth: int = 1) -> None:
        self.lines: list[str] = []
        self.depth = depth

    def add(self, text: str) -> None:
        """Adds a line."""
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Adds ``head {``, then what the caller adds, one level deeper, and ``}``."""
        self.add(head + " {")
        self.depth += 1
        yield
        self.depth -= 1
        self.add("}")


@dataclass
class Buffer:
    """A buffer: its name in quern, and how the function uses it."""

    name: str
    dtype: str
    lanes: int
    shape: list[str]
    is_parameter: bool = False
    tvm: Any = None
    is_written: bool = False
    is_read: bool = False
    is_read_first: bool = False
    stored_at: set[str] = field(default_factory=set)
    source: Optional["Buffer"] = None

    def note_load(self, at: str) -> None:
        """Records a load; one of an element that no store before has named makes it an input."""
        self.is_read = True
        if self.source is not None:
            self.source.note_load("view")
        if at not in self.stored_at:
            self.is_read_first = True

    def note_store(self, at: str) -> None:
        """Records a store."""
        self.is_written = True
        if self.source is not None:
            self.source.is_written = True
        self.stored_at.add(at)

    def access(self) -> str:
        """Returns the word for a parameter: empty, ``out `` or ``inout ``."""
        if not self.is_written:
            return ""
        return "inout " if self.is_read_first else "out "


@dataclass
class Lane:
    """The vector loop that stands for the lanes of the statement being emitted."""

    name: str
    count: int


class Context:
    """The state of one function."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.names = Names()
        self.out = Lines()
        self.top: list[str] = []
        self.thread_locals: list[tuple[str, str]] = []
        self.values: dict[int, Value] = {}
        self.buffers: dict[int, Buffer] = {}
        self.order: list[Buffer] = []
        self.lane: Optional[Lane] = None
        self.is_lazy = False
        self.loads: list[tuple[Buffer, str]] = []
        self.concurrent_depth = 0
        self.vector_depth = 0
        self.loop_depth = 0
        self.has_threads = False
        self.kernel: Any = None
        self._nodes: list[Any] = []

    def keep(self, node: Any) -> int:
        """Returns the identity of a node, and keeps the node alive so that it stays unique."""
        self._nodes.append(node)
        return self.adapter.key(node)

    def define(self, var: Any, value: Value) -> None:
        """Says what a variable stands for from here on."""
        self.values[self.keep(var)] = value

    def add_buffer(self, tvm: Any, hint: Optional[str] = None, shape: Any = None) -> Buffer:
        """Names a buffer of TVM. Its shape is given as texts, or taken from TVM's literals."""
        dtype, lanes = split_lanes(self.adapter.elements(tvm))
        if shape is None:
            extents = constants(self.adapter, tvm.shape)
            if extents is None:
                raise Refused("allocation of symbolic shape inside of a loop", str(tvm.name))
            shape = [str(extent) for extent in extents]
        if lanes > 1:
            shape = [*shape, str(lanes)]
        buffer = Buffer(self.names.fresh(hint or str(tvm.name)), dtype, lanes, list(shape), tvm=tvm)
        self.buffers[self.keep(tvm)] = buffer
        self.order.append(buffer)
        return buffer

    def buffer(self, tvm: Any) -> Buffer:
        """Returns the buffer of TVM's, which a parameter or an allocation has declared."""
        found = self.buffers.get(self.adapter.key(tvm))
        if found is None:
            raise Refused("buffer without an allocation", str(tvm.name))
        return found

    def same_storage(self, storage: int) -> Optional[Buffer]:
        """Returns the first buffer whose memory has this identity."""
        for buffer in self.order:
            if buffer.tvm is not None and self.adapter.storage(buffer.tvm) == storage:
                return buffer
        return None

    @contextmanager
    def lazily(self) -> Iterator[None]:
        """While it is open, values are put where they are used, not into lets before."""
        before, self.is_lazy = self.is_lazy, True
        yield
        self.is_lazy = before
