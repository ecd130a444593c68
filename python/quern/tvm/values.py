# SPDX-License-Identifier: Apache-2.0
"""Texts of quern expressions, with what is needed to combine them.

TVM computes indices in int32 or int64 as loops were written; quern's loop variables are ``i64``.
A value of loop variables, symbols and literals alone is therefore kept in ``i64``, and ``narrow``
remembers the dtype that TVM gives it. It is converted where it meets other values of that dtype.
TVM's index arithmetic may not overflow, so both are the same number.
"""

from __future__ import annotations

import math
import operator
import struct
from dataclasses import dataclass, replace
from typing import Optional

from .refuse import Refused

TERNARY, OR, AND, COMPARE, BITOR, BITXOR, BITAND, SHIFT, SUM, TERM, UNARY, PRIMARY = range(12)

DTYPES = {
    "bool": "bool", "uint1": "bool",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2",
}  # fmt: skip

STORED = frozenset(["f8e4m3fn", "f8e5m2"])
_FOLDED = {"+": operator.add, "-": operator.sub, "*": operator.mul}
FLOATS = frozenset(["f16", "bf16", "f32", "f64"])
INTEGERS = frozenset(["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])


def split_lanes(text: str) -> tuple[str, int]:
    """Returns quern's dtype of an element, and the lanes, of a TVM dtype like ``float32x4``."""
    base, _, lanes = text.partition("x")
    if base not in DTYPES:
        raise Refused("dtype", text)
    if lanes and not lanes.isdigit():
        raise Refused("scalable vector", text)
    return DTYPES[base], int(lanes) if lanes else 1


@dataclass(frozen=True)
class Value:
    """An expression: its text, its dtype in quern and how tightly its last operator binds.

    ``may_fail`` is set where checked builds stop for some operands: loads and divisions.
    """

    text: str
    dtype: str
    level: int = PRIMARY
    is_literal: bool = False
    narrow: Optional[str] = None
    may_fail: bool = False

    def at(self, level: int) -> str:
        """Returns the text as an operand that must bind at least as tightly as ``level``."""
        return self.text if self.level >= level else f"({self.text})"

    def typed(self) -> "Value":
        """Returns the value with its dtype written out, for places that give a literal none."""
        if not self.is_literal or self.dtype == "bool":
            return self
        return replace(self, text=f"{self.dtype}({self.text})", level=PRIMARY, is_literal=False)

    def exact(self) -> "Value":
        """Returns the value in TVM's own dtype."""
        if self.narrow is None:
            return self
        text = f"{self.narrow}({self.text})"
        return replace(self, text=text, dtype=self.narrow, narrow=None, level=PRIMARY)

    def wide(self) -> "Value":
        """Returns an integer value as ``i64``."""
        if self.narrow is not None or self.dtype == "i64":
            return replace(self, narrow=None)
        if self.is_literal:
            return replace(self, dtype="i64")
        return replace(self, text=f"i64({self.text})", dtype="i64", level=PRIMARY)

    def typed_as(self) -> str:
        """Returns the dtype that TVM gives the value."""
        return self.narrow or self.dtype


def literal(number: float | int | bool, dtype: str) -> Value:
    """Returns a literal of a dtype."""
    if dtype == "bool":
        return Value("true" if number else "false", "bool")
    if dtype in INTEGERS:
        text = str(int(number))
        return Value(text, dtype, UNARY if text[0] == "-" else PRIMARY, is_literal=True)
    number = float(number)
    if dtype == "f32":
        try:
            struct.pack("<f", number)
        except OverflowError:
            number = math.copysign(math.inf, number)
    text = repr(number)
    if math.isnan(number):
        text = "nan"
    return Value(text, dtype, UNARY if text[0] == "-" else PRIMARY, is_literal=True)


def index(name: str, narrow: Optional[str]) -> Value:
    """Returns a loop variable or symbol, which TVM has as ``narrow``."""
    return Value(name, "i64", narrow=None if narrow == "i64" else narrow)


def _unify(a: Value, b: Value, is_comparison: bool) -> tuple[Value, Value, Optional[str]]:
    """Returns both operands in one dtype, and what ``narrow`` of the result is."""
    if a.is_literal and b.is_literal:
        a = a.typed()
    if a.is_literal and b.narrow is not None or b.is_literal and a.narrow is not None:
        return a, b, a.narrow or b.narrow
    if a.narrow is not None and b.narrow is not None:
        return a, b, a.narrow
    if a.narrow is None and b.narrow is None:
        return a, b, None
    if is_comparison:
        return a.wide(), b.wide(), None
    return a.exact(), b.exact(), None


def _fold(sign: str, a: Value, b: Value) -> Optional[Value]:
    """Returns the sum, difference or product of two integer literals if its dtype holds it."""
    if not a.is_literal or not b.is_literal or a.dtype != b.dtype or a.dtype not in INTEGERS:
        return None
    if sign not in _FOLDED:
        return None
    number, width = _FOLDED[sign](int(a.text), int(b.text)), int(a.dtype[1:])
    low, high = (-1 << width - 1, 1 << width - 1) if a.dtype[0] == "i" else (0, 1 << width)
    return literal(number, a.dtype) if low <= number < high else None


def infix(sign: str, level: int, a: Value, b: Value, result: Optional[str] = None) -> Value:
    """Returns ``a sign b``; ``result`` is the dtype if it is not that of the operands."""
    folded = _fold(sign, a, b)
    if folded is not None:
        return folded
    a, b, narrow = _unify(a, b, result == "bool")
    dtype = b.dtype if a.is_literal else a.dtype
    if result is None and dtype in STORED:
        raise Refused("arithmetic on float8", f"{a.text} {sign} {b.text}")
    left = level + 1 if level == COMPARE else level
    text = f"{a.at(left)} {sign} {b.at(level + 1)}"
    may_fail = a.may_fail or b.may_fail
    if result is not None:
        return Value(text, result, level, may_fail=may_fail)
    return Value(text, dtype, level, narrow=narrow, may_fail=may_fail)


def truth(a: Value) -> Value:
    """Returns whether ``a`` is not 0."""
    if a.dtype == "bool":
        return a
    if a.is_literal:
        return literal(float(a.text) != 0, "bool")
    return infix("!=", COMPARE, a, literal(0, a.dtype), "bool")


def bits(sign: str, level: int, a: Value, b: Value) -> Value:
    """Returns ``a sign b`` for operators on bits, which see TVM's own width."""
    return infix(sign, level, a.exact(), b.exact())


def complement(a: Value) -> Value:
    """Returns ``~a``."""
    a = a.exact().typed()
    return Value("~" + a.at(UNARY), a.dtype, UNARY, may_fail=a.may_fail)


def prefix(name: str, a: Value, b: Value) -> Value:
    """Returns ``name(a, b)`` with the dtype of the operands."""
    a, b, narrow = _unify(a, b, False)
    dtype = b.dtype if a.is_literal else a.dtype
    if dtype in STORED:
        raise Refused("arithmetic on float8", name)
    return Value(f"{name}({a.text}, {b.text})", dtype, narrow=narrow,
                 may_fail=a.may_fail or b.may_fail)  # fmt: skip


def choose(condition: Value, a: Value, b: Value, is_lazy: bool) -> Value:
    """Returns ``condition ? a : b``, or ``select``, which evaluates both."""
    a, b, narrow = _unify(a, b, False)
    dtype = b.dtype if a.is_literal else a.dtype
    may_fail = condition.may_fail or a.may_fail or b.may_fail
    if is_lazy:
        text = f"{condition.at(OR)} ? {a.at(OR)} : {b.at(OR)}"
        return Value(text, dtype, TERNARY, narrow=narrow, may_fail=may_fail)
    text = f"select({condition.text}, {a.text}, {b.text})"
    return Value(text, dtype, narrow=narrow, may_fail=may_fail)


def convert(value: Value, dtype: str) -> Value:
    """Returns ``value`` converted as TVM's ``Cast`` does."""
    if value.narrow is not None and dtype == "i64":
        return replace(value, narrow=None)
    if value.narrow == dtype:
        return value
    if value.is_literal:
        value = value.typed()
    else:
        value = value.exact()
    if value.dtype == dtype:
        return value
    return Value(f"{dtype}({value.text})", dtype, may_fail=value.may_fail)


def call(name: str, operands: list[Value], result: Optional[str] = None) -> Value:
    """Returns ``name(operands)`` of operands that have one dtype."""
    operands = [operand.exact() for operand in operands]
    if all(operand.is_literal for operand in operands):
        operands[0] = operands[0].typed()
    dtype = next((o.dtype for o in operands if not o.is_literal), operands[0].dtype)
    if dtype in STORED:
        raise Refused("arithmetic on float8", name)
    text = f"{name}({', '.join(operand.text for operand in operands)})"
    return Value(text, result or dtype, may_fail=any(operand.may_fail for operand in operands))
