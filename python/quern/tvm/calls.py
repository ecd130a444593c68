# SPDX-License-Identifier: Apache-2.0
"""Calls of TVM's operators in expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from . import values
from .refuse import Refused
from .values import Value

if TYPE_CHECKING:
    from .expressions import Expressions

#: Operators of floats that quern has, by TVM's name. TVM's ``round`` takes halves to even.
SAME = {
    name: name
    for name in (
        "exp exp2 exp10 log log2 log10 log1p sqrt rsqrt tanh sigmoid erf sin cos tan sinh cosh "
        "asin acos atan asinh acosh atanh floor ceil trunc pow atan2 hypot fmod copysign "
        "nextafter fma popcount"
    ).split()
}
SAME.update(round="roundeven", nearbyint="roundeven", fabs="abs", ctpop="popcount")

TESTS = {"isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite"}

BITS = {
    "bitwise_and": ("&", values.BITAND),
    "bitwise_or": ("|", values.BITOR),
    "bitwise_xor": ("^", values.BITXOR),
    "shift_left": ("<<", values.SHIFT),
    "shift_right": (">>", values.SHIFT),
}

SHUFFLES = {
    "tvm_warp_shuffle": "shuffle",
    "tvm_warp_shuffle_up": "shuffle_up",
    "tvm_warp_shuffle_down": "shuffle_down",
    "tvm_warp_shuffle_xor": "shuffle_xor",
}

#: Functions of C that TVM code calls by name, and the operator of the same meaning.
EXTERN = {
    name + suffix: name
    for name in "exp log sqrt tanh sin cos tan erf floor ceil trunc pow fmod".split()
    for suffix in ("", "f")
}
EXTERN.update(fabsf="abs", fabs="abs")


def _same(self: "Expressions", call: Any, name: str) -> Value:
    return values.call(SAME[name], [self.value(arg) for arg in call.args])


def _test(self: "Expressions", call: Any, name: str) -> Value:
    return values.call(TESTS[name], [self.value(arg) for arg in call.args], "bool")


def _bits(self: "Expressions", call: Any, name: str) -> Value:
    sign, level = BITS[name]
    a, b = (self.value(arg) for arg in call.args)
    return values.bits(sign, level, a, b)


def _not(self: "Expressions", call: Any, name: str) -> Value:
    return values.complement(self.value(call.args[0]))


def _choose(self: "Expressions", call: Any, name: str) -> Value:
    condition = self.condition(call.args[0])
    with self.ctx.lazily():
        a, b = self.value(call.args[1]), self.value(call.args[2])
    return values.choose(condition, a, b, is_lazy=True)


def _itself(self: "Expressions", call: Any, name: str) -> Value:
    return self.value(call.args[0])


def _reinterpret(self: "Expressions", call: Any, name: str) -> Value:
    dtype, lanes = values.split_lanes(self.ctx.adapter.dtype(call))
    value = self.value(call.args[0]).exact().typed()
    source, source_lanes = values.split_lanes(self.ctx.adapter.dtype(call.args[0]))
    if lanes != source_lanes:
        raise Refused("reinterpret of other lanes", self.ctx.adapter.dtype(call))
    if dtype == source:
        return value
    return Value(f"bitcast({dtype}, {value.text})", dtype, may_fail=value.may_fail)


def _abs(self: "Expressions", call: Any, name: str) -> Value:
    a = self.value(call.args[0])
    return values.prefix("max", a, a) if a.is_literal else values.call("abs", [a])


def _clz(self: "Expressions", call: Any, name: str) -> Value:
    # TVM's result is int32, or int64 on some of its devices; quern's has the operand's dtype.
    value = values.call("clz", [self.value(call.args[0])])
    return values.convert(value, values.split_lanes(self.ctx.adapter.dtype(call))[0])


def _large(self: "Expressions", call: Any, name: str) -> Value:
    low, high = (int(arg.value) for arg in call.args)
    return values.literal((high << 32) + low, "u64")


def _ldexp(self: "Expressions", call: Any, name: str) -> Value:
    x, n = self.value(call.args[0]).exact().typed(), self.value(call.args[1])
    n = values.convert(n, "i32").exact()
    return Value(f"ldexp({x.text}, {n.text})", x.dtype, may_fail=x.may_fail or n.may_fail)


def _shuffle(self: "Expressions", call: Any, name: str) -> Value:
    # The arguments are mask, value, lane, width and the size of a warp.
    value, lane = self.value(call.args[1]).exact().typed(), self.value(call.args[2]).wide()
    width = self.ctx.adapter
    sizes = [int(arg.value) for arg in call.args[3:5] if width.kind(arg) == "IntImm"]
    if sizes != [32, 32]:
        raise Refused("shuffle of a part of a warp", f"width {sizes}")
    self.ctx.kernel.needs_warp_of_32 = True
    return Value(f"{SHUFFLES[name]}({value.text}, {lane.text})", value.dtype, may_fail=True)


def _extern(self: "Expressions", call: Any, name: str) -> Value:
    called = str(getattr(call.args[0], "value", call.args[0]))
    operands = [self.value(arg) for arg in call.args[1:]]
    if called not in EXTERN or any(o.dtype not in values.FLOATS for o in operands):
        raise Refused("call of a foreign function", called)
    return values.call(EXTERN[called], operands)


def _multiply_shift(self: "Expressions", call: Any, name: str) -> Value:
    """The fixed-point product of TVM's ``q_multiply_shift``: round(x * y * 2^(s - q))."""
    x, y, q, s = call.args[:4]
    if any(self.ctx.adapter.kind(arg) != "IntImm" for arg in (q, s)):
        raise Refused("q_multiply_shift by a value", "the shift is no literal")
    left, right = max(int(s.value), 0), max(-int(s.value), 0)
    a = values.convert(self.value(x).exact(), "i64")
    b = values.convert(self.value(y).exact(), "i64")
    shift = int(q.value) + right
    left_text = f"({a.at(values.SHIFT)} << {left})" if left else a.at(values.TERM)
    text = f"i32(({left_text} * {b.at(values.UNARY)} + {1 << (shift - 1)}) >> {shift})"
    return Value(text, "i32", may_fail=a.may_fail or b.may_fail)


HANDLERS: dict[str, Callable[["Expressions", Any, str], Value]] = {
    **dict.fromkeys(SAME, _same),
    **dict.fromkeys(TESTS, _test),
    **dict.fromkeys(BITS, _bits),
    **dict.fromkeys(SHUFFLES, _shuffle),
    "bitwise_not": _not,
    "if_then_else": _choose,
    "likely": _itself,
    "tvm_thread_invariant": _itself,
    "ignore_loop_partition": _itself,
    "reinterpret": _reinterpret,
    "abs": _abs,
    "clz": _clz,
    "large_uint_imm": _large,
    "ldexp": _ldexp,
    "call_pure_extern": _extern,
    "q_multiply_shift": _multiply_shift,
}


def emit(self: "Expressions", call: Any) -> Value:
    """Returns the value of a call of an operator, or refuses it by name."""
    full = self.ctx.adapter.call_operator(call)
    space, _, name = full.rpartition(".")
    handler = HANDLERS.get(name) if space in ("tirx", "prim", "tir", "ir.prim") else None
    if handler is None:
        raise Refused(f"operator {full}")
    return handler(self, call, name)
