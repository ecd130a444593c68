# SPDX-License-Identifier: Apache-2.0
"""Plans of programs: what they may say, shapes as expressions of symbols, and the workspace.

A plan is a dictionary of JSON (docs/python.md, "Programs"). It comes from files and importers, so everything in it is checked
once, here; the other files rely on that. Arguments of calls are checked by the kernels at each call.
"""
from collections import namedtuple
from math import prod

from .errors import InvalidArgument

FORMAT = "quern program"
VERSION = 1
# Bytes of an element. Booleans are bytes.
SIZES = {"bool": 1, "i8": 1, "u8": 1, "f8e4m3fn": 1, "f8e5m2": 1, "i16": 2, "u16": 2, "f16": 2, "bf16": 2, "i32": 4, "u32": 4,
         "f32": 4, "i64": 8, "u64": 8, "f64": 8}
_KINDS = ("input", "weight", "buffer", "view")
ALIGNMENT = 64
# Extents and sizes beyond this are mistakes, and would be no memory of any machine.
_LARGEST = 1 << 48
# Dimensions of a buffer of the language, and of an array in all versions of NumPy.
MAX_RANK = 32

Tensor = namedtuple("Tensor", "name dtype shape")
Tensor.__doc__ = "An input of a program. An extent is a number, the name of a symbol, or an expression of symbols."
Value = namedtuple("Value", "kind name dtype shape of")
Call = namedtuple("Call", "kernel arguments")

_OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
}


class Problem(Exception):
    """A place in a plan, and what is wrong there."""


def evaluate(expression, symbols):
    """The number that an expression has with these values of symbols."""
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return symbols[expression]
    operator, left, right = expression
    left, right = evaluate(left, symbols), evaluate(right, symbols)
    if operator in ("//", "%") and right == 0:
        raise InvalidArgument(f"{text_of(expression)} divides by zero with {bindings_text(symbols)}")
    value = _OPERATORS[operator](left, right)
    if not -1 << 63 <= value < 1 << 63:
        raise InvalidArgument(f"{text_of(expression):.200} does not fit in 64 bits with {bindings_text(symbols)}")
    return value


def text_of(expression):
    """An expression as a person writes it."""
    if isinstance(expression, (int, str)):
        return str(expression)
    operator, left, right = expression
    if operator in ("min", "max"):
        return f"{operator}({text_of(left)}, {text_of(right)})"
    return f"{_operand(left)} {operator} {_operand(right)}"


def _operand(expression):
    return text_of(expression) if isinstance(expression, (int, str)) else f"({text_of(expression)})"


def shape_text(shape):
    return "[" + ", ".join(text_of(extent) for extent in shape) + "]"


def bindings_text(symbols):
    return ", ".join(f"{name}={value}" for name, value in symbols.items()) or "no symbols"


class Plan:
    """A checked plan. It never changes."""

    def __init__(self, data):
        try:
            self._read(data)
        except Problem as problem:
            raise InvalidArgument(f"plan: {problem}") from None

    def _read(self, data):
        _expect(isinstance(data, dict), f"expected a dictionary, got {type(data).__name__}")
        _expect(data.get("format") == FORMAT, f"format: expected {FORMAT!r}, got {data.get('format')!r:.60}")
        _expect(data.get("version") == VERSION, f"version: expected {VERSION}, got {data.get('version')!r:.60}")
        unknown = sorted(set(data) - {"format", "version", "name", "digest", "values", "calls", "results"}, key=str)
        _expect(not unknown, f"unknown member {unknown[0]!r:.60}" if unknown else "")
        self.name = _name(data, "name")
        self.symbols = []
        # What the shape of an input says: (input, axis) that binds a symbol, and (input, axis, expression) to check.
        self.bound_by, self.checks = {}, []
        self.values = []
        for i, one in enumerate(_list(data, "values")):
            self.values.append(self._value(one, f"values[{i}]", i))
        self._bind_symbols()
        for i, value in enumerate(self.values):
            _check_symbols(value.shape, () if value.kind == "weight" else self.symbols, f"values[{i}]")
        self.inputs = [i for i, value in enumerate(self.values) if value.kind == "input"]
        self.weights = [i for i, value in enumerate(self.values) if value.kind == "weight"]
        seen = set()
        for i in self.inputs + self.weights:
            value = self.values[i]
            _expect((value.kind, value.name) not in seen, f"values[{i}]: there is another {value.kind} {value.name!r}")
            seen.add((value.kind, value.name))
        self.calls = [self._call(one, f"calls[{i}]") for i, one in enumerate(_list(data, "calls"))]
        _expect("results" in data, "there is no member 'results'")
        self.results = self._result(data["results"], "results")
        self._find_lives()
        self.data = data

    def _value(self, one, place, index):
        _expect(isinstance(one, dict), f"{place}: expected a dictionary, got {type(one).__name__}")
        kind = one.get("kind")
        _expect(kind in _KINDS, f"{place}: kind: expected one of {', '.join(_KINDS)}, got {kind!r:.60}")
        shape = one.get("shape")
        _expect(isinstance(shape, list), f"{place}: shape: expected a list, got {type(shape).__name__}")
        _expect(len(shape) <= MAX_RANK, f"{place}: shape: expected at most {MAX_RANK} extents, got {len(shape)}")
        shape = tuple(_expression(extent, f"{place}: shape") for extent in shape)
        if kind == "view":
            of = one.get("of")
            _expect(_is_int(of) and 0 <= of < index, f"{place}: of: expected the number of an earlier value, got {of!r:.60}")
            return Value(kind, "", self.values[of].dtype, shape, of)
        dtype = one.get("dtype")
        _expect(isinstance(dtype, str) and dtype in SIZES, f"{place}: unknown dtype {dtype!r:.60}")
        name = _name(one, "name", place) if kind != "buffer" else ""
        return Value(kind, name, dtype, shape, None)

    def _bind_symbols(self):
        """Finds the extent of an input that binds each symbol, the first one that is the symbol itself."""
        number = 0
        for value in self.values:
            if value.kind != "input":
                continue
            for axis, extent in enumerate(value.shape):
                if isinstance(extent, str) and extent not in self.bound_by:
                    self.bound_by[extent] = (number, axis)
                    self.symbols.append(extent)
                else:
                    self.checks.append((number, axis, extent))
            number += 1

    def _call(self, one, place):
        _expect(isinstance(one, dict), f"{place}: expected a dictionary, got {type(one).__name__}")
        kernel = _name(one, "kernel", place)
        arguments = []
        for i, argument in enumerate(_list(one, "arguments", place)):
            at = f"{place}: arguments[{i}]"
            if isinstance(argument, dict) and set(argument) == {"number"}:
                number = argument["number"]
                if not isinstance(number, float):
                    number = _expression(number, at)
                    _check_symbols([number], self.symbols, at)
                arguments.append(("number", number))
            else:
                arguments.append(("value", self._index(argument, at)))
        return Call(kernel, tuple(arguments))

    def _result(self, one, place, depth=0):
        if not isinstance(one, list):
            return self._index(one, place)
        _expect(depth < 8, f"{place}: more than 8 levels")
        return tuple(self._result(part, f"{place}[{i}]", depth + 1) for i, part in enumerate(one))

    def _index(self, index, place):
        _expect(_is_int(index) and 0 <= index < len(self.values), f"{place}: expected the number of a value, got {index!r:.60}")
        return index

    def base(self, index):
        """The value whose memory a value is."""
        while self.values[index].kind == "view":
            index = self.values[index].of
        return index

    def _find_lives(self):
        """Finds which buffers are workspace, and the first and last call that uses each."""
        #: Values of results in order, without the structure of tuples.
        self.flat_results = list(_flatten(self.results))
        self.result_bases = {self.base(i) for i in self.flat_results}
        self.lives = {}
        for at, call in enumerate(self.calls):
            for kind, argument in call.arguments:
                index = self.base(argument) if kind == "value" else None
                if index is not None and self.values[index].kind == "buffer" and index not in self.result_bases:
                    first, _ = self.lives.get(index, (at, at))
                    self.lives[index] = (first, at)

    def shape(self, index, symbols):
        """The shape of a value with these values of symbols."""
        value = self.values[index]
        shape = tuple(evaluate(extent, symbols) for extent in value.shape)
        if not is_possible(shape, value.dtype):
            raise InvalidArgument(f"{self.name}: the shape {shape_text(value.shape)} is {list(shape)} with {bindings_text(symbols)}; "
                                  f"expected no negative extent and at most {_LARGEST} bytes")
        return shape

    def workspace(self, symbols):
        """Places the buffers that calls share. Returns their offsets by number, and the bytes in all.

        Buffers whose lives overlap get memory of their own. The largest one is placed first, each at the lowest offset that is
        free during its life.
        """
        sizes = {i: prod(self.shape(i, symbols)) * SIZES[self.values[i].dtype] for i in self.lives}
        placed, offsets, end = [], {}, 0
        for i in sorted(sizes, key=lambda i: (-sizes[i], i)):
            first, last = self.lives[i]
            offset = 0
            for start, stop in sorted((o, o + s) for o, s, f, l in placed if f <= last and first <= l):
                if offset + sizes[i] <= start:
                    break
                offset = max(offset, -(-stop // ALIGNMENT) * ALIGNMENT)
            offsets[i] = offset
            placed.append((offset, sizes[i], first, last))
            end = max(end, offset + sizes[i])
        if end > _LARGEST:
            raise InvalidArgument(f"{self.name}: the workspace has {end} bytes with {bindings_text(symbols)}")
        return offsets, end


def is_possible(shape, dtype):
    """Whether NumPy takes an array of the shape: one without elements has a size by its other extents, too."""
    return all(extent >= 0 for extent in shape) and prod(max(1, extent) for extent in shape) * SIZES[dtype] <= _LARGEST


def _flatten(result):
    if isinstance(result, int):
        yield result
        return
    for part in result:
        yield from _flatten(part)


def _expect(is_right, problem):
    if not is_right:
        raise Problem(problem)


def _is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _list(data, name, place=""):
    value = data.get(name)
    _expect(isinstance(value, list), f"{place + ': ' if place else ''}{name}: expected a list, got {type(value).__name__}")
    return value


def _name(data, name, place=""):
    value = data.get(name)
    _expect(isinstance(value, str) and value != "" and value.isprintable(),
            f"{place + ': ' if place else ''}{name}: expected a name of printable characters, got {value!r:.60}")
    return value


def _expression(value, place, depth=0):
    if _is_int(value):
        _expect(abs(value) <= _LARGEST, f"{place}: {value} is too large")
        return value
    if isinstance(value, str) and value.isidentifier():
        return value
    _expect(isinstance(value, list) and len(value) == 3 and isinstance(value[0], str) and value[0] in _OPERATORS,
            f"{place}: expected a number, a symbol or [operator, a, b], got {value!r:.60}")
    _expect(depth < 64, f"{place}: an expression of more than 64 levels")
    return (value[0], _expression(value[1], place, depth + 1), _expression(value[2], place, depth + 1))


def _check_symbols(expressions, symbols, place):
    for one in expressions:
        if isinstance(one, str):
            _expect(one in symbols, f"{place}: the symbol {one!r} is no extent of an input, so that nothing binds it")
        elif not isinstance(one, int):
            _check_symbols(one[1:], symbols, place)
