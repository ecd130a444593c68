# SPDX-License-Identifier: Apache-2.0
"""Walks over TVM's statements and expressions that look for something and change nothing."""

from __future__ import annotations

from typing import Any, Iterator

from .adapter import Adapter

_BODIES = ("body", "block", "then_case", "else_case", "init")
_OPERANDS = (
    "a", "b", "value", "condition", "true_value", "false_value", "base", "stride", "body",
)  # fmt: skip


def statements(node: Any) -> Iterator[Any]:
    """Yields a statement and all statements and blocks in it, in order."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        parts = list(getattr(current, "seq", None) or [])
        if not parts:
            parts = [getattr(current, name, None) for name in _BODIES]
        stack.extend(part for part in reversed(parts) if part is not None)


def expressions(adapter: Adapter, node: Any) -> Iterator[Any]:
    """Yields an expression and all of its operands."""
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, (int, float, str)) or adapter.kind(current) in ("Var", "StringImm"):
            if not isinstance(current, (int, float, str)):
                yield current
            continue
        yield current
        for name in ("indices", "args"):
            stack.extend(getattr(current, name, None) or [])
        for name in _OPERANDS:
            operand = getattr(current, name, None)
            if (
                operand is not None
                and adapter.kind(current) != "IntImm"
                and hasattr(operand, "same_as")
            ):
                stack.append(operand)


def expressions_of(adapter: Adapter, statement: Any) -> Iterator[Any]:
    """Yields the expressions that one statement evaluates itself."""
    for name in ("value", "condition", "min", "extent"):
        part = getattr(statement, name, None)
        if part is not None:
            yield from expressions(adapter, part)
    for part in getattr(statement, "indices", None) or []:
        yield from expressions(adapter, part)
