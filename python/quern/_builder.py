# SPDX-License-Identifier: Apache-2.0
"""`Builder`: makes a module from Python, without writing text.

It writes the text of the language (docs/ir.md), one line for each statement, and remembers the line of Python that made it: what
the parser and the verifier say of a line is said of that one. Expressions are trees of text, which Python's operators join. What
would change its meaning on the way is refused where it is used: a variable outside of its block, and an element that was stored
to after it was loaded.
"""
import sys

from ._grammar import ATOMICS, DTYPES, OPERATORS, RESERVED
from ._values import AND, OR, PRIMARY, TERNARY, UNARY, Buffer, Expr, Load
from .errors import ModuleError

_AXES = ("thread.x", "thread.y", "thread.z")
_ACCESSES = ("in", "out", "inout")
_REDUCTIONS = ("sum", "prod", "min", "max", "argmin", "argmax")
_SCOPES = ("local", "shared", "global")


class _Block:
    """A part of the text between braces, as a context manager."""

    __slots__ = ("builder", "kind", "value", "names", "is_open", "loads", "lets", "line")

    def __init__(self, builder, kind, value=None):
        self.builder, self.kind, self.value = builder, kind, value
        self.names = set()
        self.is_open = True
        self.loads = set()  # roots of buffers that were loaded before the loop, and are used in it
        self.lets = []  # of the value of a reduction
        self.line = None  # where the signature of a function goes

    def __enter__(self):
        return self.value

    def __exit__(self, kind, *unused):
        if kind is None:
            self.builder._leave(self)


class Builder:
    """Makes a module. A function is opened with `func`, gets its parameters, then its statements.

        b = quern.Builder()
        with b.func("saxpy"):
            a = b.scalar("a", "f32")
            n = b.symbol("n")
            x, y = b.buffer("x", "f32", [n]), b.buffer("y", "f32", [n], "inout")
            with b.parallel("i", n) as i:
                y[i] = a * x[i] + y[i]
        module = b.module()

    Operators of docs/ir.md are methods (`b.exp(x)`), and so are conversions (`b.f32(n)`) and atomics
    (`old = b.atomic_add(count, [bin], 1)`; `result=None` gives no value). Names that are taken get a number.
    """

    def __init__(self):
        self._lines = []  # pairs of text and place
        self._blocks = []
        self._symbols = set()  # of the open function
        self._closed_if = None  # the count of lines after an `if_` was closed

    # -------------------------------------------------------------------------------- the whole

    @property
    def text(self):
        """The text so far; that of a whole module when all functions are closed."""
        return "".join(text + "\n" for text, _ in self._lines)

    def module(self, engine=None):
        """Verifies, and makes the module. Errors name the lines of Python that made what is wrong."""
        from . import Module

        if self._blocks:
            raise RuntimeError(f"'{self._blocks[-1].kind}' is still open: leave its `with` first")
        try:
            return Module(self.text, "<builder>", None, engine)
        except ModuleError as error:
            lines = dict.fromkeys(one.line for one in error.diagnostics if 0 < one.line <= len(self._lines))
            places = dict.fromkeys(self._lines[line - 1][1] for line in lines)
            error.message += "".join(f"\nbuilt at {place}" for place in places)
            raise

    # -------------------------------------------------------------------------------- functions

    def func(self, name, *, fast=False, returns=None):
        """A function, for `with`. One with a value has the dtype `returns`, scalars as parameters, lets, and ends with `return_`."""
        if self._blocks:
            raise RuntimeError(f"func: '{self._blocks[-1].kind}' is still open: functions do not nest")
        self._check_name(name)
        end = ") fast {" if fast else ") {" if returns is None else f") -> {self._dtype(returns)} {{"
        block = self._open("func")
        self._symbols = set()
        self._write(f"func {name}(", is_inside=False)
        block.line = len(self._lines)
        self._write(end, is_inside=False)
        return block

    def symbol(self, name):
        """A size that the arguments of a call bind; an i64. It is declared by its use in a shape or strides."""
        self._check_name(name)
        function = self._function("symbol")
        if name not in self._symbols:
            self._check_signature(name)
            self._symbols.add(name)
        return Expr(self, name, PRIMARY, frozenset([function]))

    def scalar(self, name, dtype, value=None):
        """A scalar parameter; one that each call must pass as `value`, if there is one."""
        self._parameter(name, f"{self._dtype(dtype)}" + ("" if value is None else f" = {int(value)}"))
        return Expr(self, name, PRIMARY, frozenset([self._blocks[0]]))

    def buffer(self, name, dtype, shape, access="in", *, strides=None, align=None):
        """A buffer parameter. Extents are integers, symbols or expressions of them."""
        if access not in _ACCESSES:
            raise ValueError(f"access: expected one of {', '.join(_ACCESSES)}, got {access!r}")
        kind = self._buffer_type(dtype, shape) + self._strides(strides) + ("" if align is None else f" align {int(align)}")
        self._parameter(name, kind, "" if access == "in" else access + " ")
        return Buffer(self, name, dtype, tuple(shape))

    def _parameter(self, name, kind, access=""):
        self._check_name(name)
        function = self._function("parameters")
        self._check_signature(name)
        self._lines.insert(function.line, (f"  {access}{name}: {kind},", self._caller()))
        function.line += 1

    def _check_signature(self, name):
        function = self._blocks[0]
        if len(self._blocks) > 1 or function.line + 1 != len(self._lines):
            raise RuntimeError(f"'{name}': parameters and symbols come before statements")
        if name in function.names:
            raise ValueError(f"'{name}' is declared twice")
        function.names.add(name)

    def return_(self, value=None):
        """Ends the function; gives the value of one that has `returns`."""
        if value is None:
            return self._statement("return;")
        value = self._expr(value)
        self._statement(f"return {value._text};", value._needs)

    # -------------------------------------------------------------------------------- loops and conditions

    def for_(self, name, *range):
        """A loop, one iteration after another, for `with ... as i`: `for_("i", n)` or `for_("i", begin, end)`."""
        return self._loop("for", name, range)

    def parallel(self, name, *range):
        """A loop of independent iterations; an outermost one is a launch."""
        return self._loop("parallel", name, range)

    def vector(self, name, *range):
        """A loop of independent iterations in lanes; the extent is constant."""
        return self._loop("vector", name, range)

    def unroll(self, name, *range):
        """A loop that is written out; the extent is constant."""
        return self._loop("unroll", name, range)

    def block(self, axis, name, *range):
        """Blocks of a grid along the axis "x", "y" or "z"."""
        return self._loop(f"block.{self._axis(axis)}", name, range)

    def thread(self, axis, name, *range):
        """Threads of a block along the axis "x", "y" or "z"."""
        return self._loop(f"thread.{self._axis(axis)}", name, range)

    def while_(self, condition):
        """A loop that runs as long as the condition, which is computed before each round, holds."""
        condition = self._expr(condition)
        self._statement(f"while {condition._text} {{", condition._needs)
        return self._open("while")

    def if_(self, condition):
        """Statements for one outcome of a condition."""
        condition = self._expr(condition)
        self._statement(f"if {condition._text} {{", condition._needs)
        return self._open("if")

    def else_(self):
        """Statements for the other outcome of the `if_` that has just been closed."""
        if self._closed_if != len(self._lines):
            raise RuntimeError("else_: there is no `if_` right before it")
        self._lines.pop()
        self._write("} else {")
        return self._open("else")

    def break_(self):
        """Ends the innermost loop."""
        self._statement("break;")

    def continue_(self):
        """Ends this iteration of the innermost loop."""
        self._statement("continue;")

    def _loop(self, kind, name, range):
        begin, end, needs = self._range(range)
        fresh = self._fresh(name)
        self._statement(f"{kind} {fresh} in {begin}..{end} {{", needs)
        block = self._open(kind)
        block.names.add(fresh)
        block.value = Expr(self, fresh, PRIMARY, frozenset([block]))
        return block

    def _range(self, range):
        if len(range) not in (1, 2):
            raise TypeError(f"a range is (end) or (begin, end), got {len(range)} values")
        values = [self._expr(one) for one in (range if len(range) == 2 else (0, *range))]
        # `..` binds least, but a bound ends where the brace of the body begins.
        return values[0]._in(OR), values[1]._in(OR), values[0]._needs | values[1]._needs

    # -------------------------------------------------------------------------------- statements

    def let(self, name, value):
        """Names a value for the rest of the block: it is computed once, here."""
        value = self._expr(value)
        return self._bind([name], value._text, value._needs)[0]

    def alloc(self, name, dtype, shape, scope="local"):
        """Memory of one iteration or thread ("local"), of a block ("shared") or of the call ("global")."""
        if scope not in _SCOPES:
            raise ValueError(f"scope: expected one of {', '.join(_SCOPES)}, got {scope!r}")
        return self._declare("alloc", name, dtype, shape, f" in {scope};")

    def const(self, name, dtype, shape, values):
        """A read-only table. The values are numbers, nested or not, or an array."""
        flat = []
        pending = [values.tolist() if hasattr(values, "tolist") else values]
        while pending:
            one = pending.pop()
            if isinstance(one, (list, tuple)):
                pending.extend(reversed(one))
            else:
                flat.append(self._expr(one)._text)
        return self._declare("const", name, dtype, shape, f" = [{', '.join(flat)}];")

    def view(self, name, base, index, shape, *, dtype=None, strides=None):
        """Another shape over the elements of a buffer, from the element at `index` on."""
        place, needs = base._place(tuple(index))
        return self._declare("view", name, dtype or base.dtype, shape, f"{self._strides(strides)} = {place};", needs, base)

    def barrier(self):
        """Lets all threads of a block wait for each other."""
        self._statement("barrier;")

    def fence(self):
        """Orders memory between blocks."""
        self._statement("fence;")

    def assert_(self, condition, message=None):
        """Ends the call with an error of that message when the condition does not hold."""
        condition = self._expr(condition)
        self._statement(f"assert {condition._text}{'' if message is None else ', ' + _quoted(message)};", condition._needs)

    def _declare(self, kind, name, dtype, shape, end, needs=frozenset(), root=None):
        fresh = self._fresh(name)
        self._statement(f"{kind} {fresh}: {self._buffer_type(dtype, shape)}{end}", needs)
        self._blocks[-1].names.add(fresh)
        return Buffer(self, fresh, dtype, tuple(shape), root)

    def _bind(self, names, text, needs):
        """`let names = text;`"""
        fresh = []
        for name in names:
            fresh.append(self._fresh(name))
            self._blocks[-1].names.add(fresh[-1])
        self._statement(f"let {', '.join(fresh)} = {text};", needs, is_let=True)
        return tuple(Expr(self, one, PRIMARY, frozenset([self._blocks[-1]])) for one in fresh)

    # -------------------------------------------------------------------------------- expressions

    def where(self, condition, chosen, other):
        """`condition ? chosen : other`, which computes only the operand that is chosen."""
        values = [self._expr(one) for one in (condition, chosen, other)]
        text = f"{values[0]._in(OR)} ? {values[1]._in(TERNARY)} : {values[2]._in(TERNARY)}"
        return Expr(self, text, TERNARY, frozenset().union(*(one._needs for one in values)))

    def and_(self, first, second):
        """Both; the second is computed only if the first holds."""
        return self._expr(first)._join("&&", second, AND)

    def or_(self, first, second):
        """One of both; the second is computed only if the first does not hold."""
        return self._expr(first)._join("||", second, OR)

    def bitcast(self, dtype, value):
        """The bits of a value as another dtype of the same size."""
        value = self._expr(value)
        return Expr(self, f"bitcast({self._dtype(dtype)}, {value._text})", PRIMARY, value._needs)

    def call(self, name, *args):
        """Calls a function with a value."""
        self._check_name(name)
        values = [self._expr(one) for one in args]
        return Expr(self, f"{name}({', '.join(one._text for one in values)})", PRIMARY,
                    frozenset().union(*(one._needs for one in values)))

    def sum(self, *range_and_value):
        """`sum(n, lambda j: x[j])` or `sum(begin, end, lambda j: x[j])`: a sum, in no order. Lets may stand in the lambda."""
        return self._reduction("sum", range_and_value)

    def prod(self, *range_and_value):
        """A product, as `sum`."""
        return self._reduction("prod", range_and_value)

    def min(self, *values):
        """The smaller of two values, or the smallest of a range, as `sum`."""
        return self._reduction("min", values) if callable(values[-1]) else self._operator("min", *values)

    def max(self, *values):
        """The larger of two values, or the largest of a range, as `sum`."""
        return self._reduction("max", values) if callable(values[-1]) else self._operator("max", *values)

    def argmin(self, *range_and_value, names=("best", "at")):
        """The smallest value of a range and its lowest index, as two values with these names."""
        text, needs = self._reduced("argmin", range_and_value)
        return self._bind(names, text, needs)

    def argmax(self, *range_and_value, names=("best", "at")):
        """The largest value of a range and its lowest index, as two values with these names."""
        text, needs = self._reduced("argmax", range_and_value)
        return self._bind(names, text, needs)

    def _reduction(self, kind, range_and_value):
        text, needs = self._reduced(kind, range_and_value)
        return Expr(self, text, TERNARY, needs)

    def _reduced(self, kind, range_and_value):
        *range, value = range_and_value
        if not callable(value):
            raise TypeError(f"{kind}: expected a function of the index as the last argument, got {type(value).__name__}")
        begin, end, needs = self._range(range)
        block = _Block(self, kind)
        names = value.__code__.co_varnames[:value.__code__.co_argcount] if hasattr(value, "__code__") else ()
        fresh = self._fresh(names[0] if names else "j")
        block.names.add(fresh)
        self._blocks.append(block)
        try:
            result = self._expr(value(Expr(self, fresh, PRIMARY, frozenset([block]))))
            self._check(result._needs)
        finally:
            block.is_open = False
            self._blocks.remove(block)
        # Loads of the value now stand where the reduction does.
        depth = len(self._blocks)
        inner = needs | {Load(one.buffer, one.store_count, depth) if isinstance(one, Load) and one.depth > depth else one
                         for one in result._needs if one is not block}
        return f"{kind} {fresh} in {begin}..{end} {{ {' '.join(block.lets + [result._text])} }}", frozenset(inner)

    def _operator(self, name, *args):
        values = [one if one in _AXES else self._expr(one) for one in args] if name.startswith("axis_") else map(self._expr, args)
        values = list(values)
        needs = frozenset().union(*(one._needs for one in values if isinstance(one, Expr)))
        return Expr(self, f"{name}({', '.join(one if isinstance(one, str) else one._text for one in values)})", PRIMARY, needs)

    def _atomic(self, name, buffer, index, *values, result="old"):
        place, needs = buffer._place(tuple(index))
        values = [self._expr(one) for one in values]
        text = f"{name}({', '.join([place] + [one._text for one in values])})"
        needs = needs.union({buffer._block}, *(one._needs for one in values))
        if name == "atomic_store" or result is None:
            self._statement(text + ";", needs)
            old = None
        else:
            old = self._bind([result], text, needs)[0]
        self._count_store(buffer)
        return old

    def __getattr__(self, name):
        if name in OPERATORS or name in DTYPES:
            method = lambda *args: self._operator(name, *args)  # noqa: E731
        elif name in ATOMICS:
            method = lambda buffer, index, *values, **names: self._atomic(name, buffer, index, *values, **names)  # noqa: E731
        else:
            raise AttributeError(f"'Builder' has no attribute, operator or dtype '{name}'")
        method.__name__ = name
        return method

    def __dir__(self):
        return sorted({*super().__dir__(), *OPERATORS, *DTYPES, *ATOMICS})

    # -------------------------------------------------------------------------------- the text

    @property
    def _block(self):
        self._function("a buffer")
        return self._blocks[-1]

    def _expr(self, value, or_none=False):
        """An expression of a value: a number becomes a literal."""
        if isinstance(value, Expr):
            if value._builder is not self:
                raise ValueError(f"'{value._text}' is of another builder")
            return value
        if not isinstance(value, (bool, int, float, str)) and hasattr(value, "item"):
            value = value.item()  # a number of NumPy
        if isinstance(value, bool):
            return Expr(self, "true" if value else "false")
        if isinstance(value, int):
            return Expr(self, str(value), PRIMARY if value >= 0 else UNARY)
        if isinstance(value, float):
            return Expr(self, repr(value), UNARY if repr(value).startswith("-") else PRIMARY)
        if or_none:
            return None
        raise TypeError(f"expected a value of the program or a number, got {type(value).__name__}")

    def _check(self, needs):
        """Refuses what no longer means what it meant when it was made."""
        for one in needs:
            if isinstance(one, _Block):
                self._check_open(one, "a variable")
                continue
            if one.store_count != one.buffer._root._stores:
                raise ValueError(f"'{one.buffer.name}' was stored to after this value was loaded from it: name the value with `let` "
                                 "to keep it, or load it again")
            for block in self._blocks[one.depth:]:
                block.loads.add(one.buffer._root)

    def _check_open(self, block, name):
        if not block.is_open:
            raise ValueError(f"{name} of a block '{block.kind}' is used outside of it")

    def _count_store(self, buffer):
        root = buffer._root
        for block in self._blocks:
            if root in block.loads and block.kind not in ("if", "else"):
                raise ValueError(f"'{buffer.name}' is stored to in a loop that uses a value loaded from it before the loop: name the value "
                                 "with `let` to keep it, or load it in the loop")
        root._stores += 1

    def _statement(self, text, needs=frozenset(), is_let=False):
        if not self._blocks:
            raise RuntimeError("a statement stands in a function: open one with `func`")
        self._check(needs)
        if self._blocks[-1].kind in _REDUCTIONS:
            if not is_let:
                raise RuntimeError(f"'{text}' stands inside of a '{self._blocks[-1].kind}': only lets do")
            self._blocks[-1].lets.append(text)
            return
        self._write(text)

    def _write(self, text, is_inside=True):
        indent = "  " * (len(self._blocks) if is_inside else len(self._blocks) - 1)
        self._lines.append((indent + text, self._caller()))

    def _caller(self):
        """The line of Python outside of the builder that is running."""
        frame = sys._getframe(1)
        while frame.f_back and frame.f_globals.get("__name__") in (__name__, Expr.__module__):
            frame = frame.f_back
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def _open(self, kind):
        block = _Block(self, kind)
        self._blocks.append(block)
        return block

    def _leave(self, block):
        if not self._blocks or self._blocks[-1] is not block:
            raise RuntimeError(f"'{block.kind}' is not the innermost open block: leave the others first")
        self._blocks.pop()
        block.is_open = False
        self._write("}")
        self._closed_if = len(self._lines) if block.kind == "if" else None

    def _function(self, what):
        if not self._blocks:
            raise RuntimeError(f"{what}: open a function with `func` first")
        return self._blocks[0]

    def _fresh(self, name):
        """The name, or with a number where that is taken."""
        self._check_name(name)
        taken = set().union(*(block.names for block in self._blocks))
        fresh, count = name, 1
        while fresh in taken:
            fresh, count = f"{name}_{count}", count + 1
        return fresh

    def _check_name(self, name):
        if not isinstance(name, str):
            raise TypeError(f"expected a name, got {type(name).__name__}")
        if not name.isidentifier() or not name.isascii() or name in RESERVED or name in DTYPES:
            raise ValueError(f"expected a name of letters, digits and _ that is not reserved, got {name!r}")

    def _dtype(self, dtype):
        if dtype not in DTYPES:
            raise ValueError(f"dtype: expected one of {', '.join(DTYPES)}, got {dtype!r}")
        return dtype

    def _axis(self, axis):
        if axis not in ("x", "y", "z"):
            raise ValueError(f"axis: expected 'x', 'y' or 'z', got {axis!r}")
        return axis

    def _extents(self, shape):
        values = [self._expr(one) for one in shape]
        self._check(frozenset().union(*(one._needs for one in values)))
        return ", ".join(one._text for one in values)

    def _buffer_type(self, dtype, shape):
        return f"{self._dtype(dtype)}[{self._extents(shape)}]"

    def _strides(self, strides):
        return "" if strides is None else f" strides [{self._extents(strides)}]"


def _quoted(text):
    """A string of the language: UTF-8, with other characters than printable ones as bytes."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
    return '"' + "".join(escapes.get(c) or (c if c.isprintable() else "".join(f"\\x{byte:02x}" for byte in c.encode())) for c in text) + '"'
