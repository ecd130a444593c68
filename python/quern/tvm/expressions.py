# SPDX-License-Identifier: Apache-2.0
"""Expressions of TVM as texts of quern."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Sequence

from . import calls, values
from .context import Buffer, Context
from .refuse import Refused
from .values import Value

_SIGNS = {
    "Add": ("+", values.SUM), "Sub": ("-", values.SUM), "Mul": ("*", values.TERM),
}  # fmt: skip
_BITS = {
    "LShift": ("<<", values.SHIFT), "RShift": (">>", values.SHIFT),
    "BitwiseAnd": ("&", values.BITAND), "BitwiseOr": ("|", values.BITOR),
    "BitwiseXor": ("^", values.BITXOR),
}  # fmt: skip
_COMPARISONS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_LOGIC = {"And": ("&&", values.AND), "Or": ("||", values.OR)}


class Expressions:
    """Gives the text of TVM's expressions within a function."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self._handlers: dict[str, Callable[[Any], Value]] = {
            "IntImm": self._literal,
            "FloatImm": self._literal,
            "Var": self._var,
            "SizeVar": self._var,
            "Cast": self._cast,
            "Not": self._not,
            "BitwiseNot": lambda node: values.complement(self.value(node.a)),
            "Select": self._select,
            "Let": self._let,
            "BufferLoad": self._load,
            "Ramp": self._ramp,
            "Broadcast": lambda node: self.value(node.value),
            "Call": lambda node: calls.emit(self, node),
            "Div": self._div,
            "Mod": self._mod,
            "FloorDiv": lambda node: self._floor(node, "//"),
            "FloorMod": lambda node: self._floor(node, "%"),
            "Min": lambda node: self._pair(node, "min"),
            "Max": lambda node: self._pair(node, "max"),
        }
        for name, (sign, level) in _SIGNS.items():
            self._handlers[name] = self._infix(sign, level)
        for name, (sign, level) in _BITS.items():
            self._handlers[name] = self._bits(sign, level)
        for name, sign in _COMPARISONS.items():
            self._handlers[name] = self._infix(sign, values.COMPARE, "bool")
        for name, (sign, level) in _LOGIC.items():
            self._handlers[name] = self._logic(sign, level)

    def value(self, node: Any) -> Value:
        """Returns the text and dtype of an expression."""
        kind = self.ctx.adapter.kind(node)
        handler = self._handlers.get(kind)
        if handler is None:
            raise Refused(f"expression {kind}", str(node)[:80])
        return handler(node)

    def bound(self, node: Any) -> Value:
        """Returns an expression as ``i64``, for bounds of loops and extents."""
        return self.value(node).wide()

    def condition(self, node: Any) -> Value:
        """Returns an expression as ``bool``: TVM takes a number that is not 0 as true."""
        return values.truth(self.value(node))

    def indices(self, nodes: Sequence[Any], buffer: Buffer) -> str:
        """Returns the text between the brackets of an access."""
        texts = [self.value(node).text for node in nodes]
        if buffer.lanes > 1:
            if self.ctx.lane is None or self.ctx.lane.count != buffer.lanes:
                raise Refused("vector elements outside of a vector statement", buffer.name)
            texts.append(self.ctx.lane.name)
        return ", ".join(texts)

    def _literal(self, node: Any) -> Value:
        return values.literal(node.value, values.split_lanes(self.ctx.adapter.dtype(node))[0])

    def _var(self, node: Any) -> Value:
        found = self.ctx.values.get(self.ctx.adapter.key(node))
        if found is None:
            raise Refused("free variable", f"{node.name} of {self.ctx.adapter.dtype(node)}")
        return found

    def _cast(self, node: Any) -> Value:
        dtype, _ = values.split_lanes(self.ctx.adapter.dtype(node))
        return values.convert(self.value(node.value), dtype)

    def _not(self, node: Any) -> Value:
        a = self.condition(node.a)
        return Value("!" + a.at(values.UNARY), "bool", values.UNARY, may_fail=a.may_fail)

    def _select(self, node: Any) -> Value:
        """Evaluates one operand where the other could fail, as TVM's RewriteUnsafeSelect does."""
        condition = self.condition(node.condition)
        with self.ctx.lazily():
            a, b = self.value(node.true_value), self.value(node.false_value)
        return values.choose(condition, a, b, is_lazy=a.may_fail or b.may_fail)

    def _let(self, node: Any) -> Value:
        value = self.value(node.value)
        if not self.ctx.is_lazy and value.level != values.PRIMARY:
            name = self.ctx.names.fresh(str(node.var.name))
            self.ctx.out.add(f"let {name} = {value.typed().text};")
            value = Value(name, value.dtype, narrow=value.narrow, may_fail=value.may_fail)
        self.ctx.define(node.var, value)
        return self.value(node.body)

    def _load(self, node: Any) -> Value:
        if self.ctx.adapter.predicate(node) is not None:
            raise Refused("predicated load", str(node)[:80])
        buffer = self.ctx.buffer(self.ctx.adapter.loaded(node))
        at = self.indices(node.indices, buffer)
        buffer.note_load(at)
        self.ctx.loads.append((buffer, at))
        return Value(f"{buffer.name}[{at}]", buffer.dtype, may_fail=True)

    def _ramp(self, node: Any) -> Value:
        lane = self.ctx.lane
        count = self.ctx.adapter.kind(node.lanes) == "IntImm" and int(node.lanes.value)
        if lane is None or lane.count != count:
            raise Refused("ramp outside of a vector statement", str(node)[:80])
        base = self.value(node.base)
        step = values.infix("*", values.TERM, values.index(lane.name, base.narrow),
                            self.value(node.stride))  # fmt: skip
        if step.text == f"{lane.name} * 1":
            step = values.index(lane.name, base.narrow)
        return step if base.text == "0" else values.infix("+", values.SUM, base, step)

    def _infix(self, sign: str, level: int, result: str | None = None) -> Callable[[Any], Value]:
        def handler(node: Any) -> Value:
            return values.infix(sign, level, self.value(node.a), self.value(node.b), result)

        return handler

    def _bits(self, sign: str, level: int) -> Callable[[Any], Value]:
        return lambda node: values.bits(sign, level, self.value(node.a), self.value(node.b))

    def _logic(self, sign: str, level: int) -> Callable[[Any], Value]:
        def handler(node: Any) -> Value:
            a = self.condition(node.a)
            with self.ctx.lazily():
                b = self.condition(node.b)
            return values.infix(sign, level, a, b, "bool")

        return handler

    def _pair(self, node: Any, name: str) -> Value:
        return values.prefix(name, self.value(node.a), self.value(node.b))

    def _div(self, node: Any) -> Value:
        a, b = self.value(node.a), self.value(node.b)
        if (b if a.is_literal else a).dtype in values.FLOATS:
            return values.infix("/", values.TERM, a, b)
        return replace(values.prefix("truncdiv", a, b), may_fail=True)

    def _mod(self, node: Any) -> Value:
        a, b = self.value(node.a), self.value(node.b)
        is_float = (b if a.is_literal else a).dtype in values.FLOATS
        return replace(values.prefix("fmod" if is_float else "truncmod", a, b), may_fail=True)

    def _floor(self, node: Any, sign: str) -> Value:
        a, b = self.value(node.a), self.value(node.b)
        if (b if a.is_literal else a).dtype not in values.FLOATS:
            return replace(values.infix(sign, values.TERM, a, b), may_fail=True)
        quotient = values.call("floor", [values.infix("/", values.TERM, a, b)])
        if sign == "//":
            return quotient
        return values.infix("-", values.SUM, a, values.infix("*", values.TERM, quotient, b))
