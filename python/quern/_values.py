# SPDX-License-Identifier: Apache-2.0
"""What a `Builder` hands out: expressions, which Python's operators join, and buffers, whose elements they load.

An expression is a text, how tight it binds, and what it needs: the blocks whose variables it names, which must be open where it is
used, and the elements that it loads, which must not have been stored to since. Next: _builder.py.
"""

# How tight operators bind, as in the table of docs/ir.md; an operand that binds less gets parentheses.
TERNARY, OR, AND, COMPARE, BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, TERM, UNARY, PRIMARY = range(12)
MAX_TEXT = 100_000


class Load:
    """One element that an expression loads: of which buffer, after how many stores to it, in which block."""

    __slots__ = ("buffer", "store_count", "depth")

    def __init__(self, buffer, store_count, depth):
        self.buffer, self.store_count, self.depth = buffer, store_count, depth


class Expr:
    """A value of the program that is built. Python's operators, numbers and indices make larger ones of it."""

    __slots__ = ("_builder", "_text", "_level", "_needs")

    def __init__(self, builder, text, level=PRIMARY, needs=frozenset()):
        if len(text) > MAX_TEXT:
            raise ValueError(f"an expression of more than {MAX_TEXT} characters: give its parts names with `let`")
        self._builder, self._text, self._level, self._needs = builder, text, level, needs

    def _in(self, level):
        return self._text if self._level >= level else f"({self._text})"

    def _join(self, sign, other, level, is_reflected=False, is_chained=True):
        other = self._builder._expr(other, or_none=True)
        if other is None:
            return NotImplemented
        left, right = (other, self) if is_reflected else (self, other)
        text = f"{left._in(level if is_chained else level + 1)} {sign} {right._in(level + 1)}"
        return Expr(self._builder, text, level, self._needs | other._needs)

    def _prefix(self, sign):
        return Expr(self._builder, f"{sign}({self._text})", UNARY, self._needs)

    def __bool__(self):
        raise TypeError(f"'{self._text}' is a value of the program, which has none while it is built: use `if_`, `where` or `select`, "
                        "and & | ~ for and, or, not")

    __iter__ = None
    __array_ufunc__ = None  # numbers of NumPy leave operators to this class

    def __repr__(self):
        return f"<quern value {self._text if len(self._text) < 200 else self._text[:200] + '...'}>"

    def __neg__(self):
        return self._prefix("-")

    def __invert__(self):
        return self._prefix("~")

    def __pos__(self):
        return self

    def __abs__(self):
        return self._builder.abs(self)

    def __pow__(self, other):
        return self._builder.pow(self, other)

    def __rpow__(self, other):
        return self._builder.pow(other, self)


def _add_operators():
    for name, sign, level in (("add", "+", SUM), ("sub", "-", SUM), ("mul", "*", TERM), ("truediv", "/", TERM),
                              ("floordiv", "//", TERM), ("mod", "%", TERM), ("lshift", "<<", SHIFT), ("rshift", ">>", SHIFT),
                              ("and", "&", BIT_AND), ("or", "|", BIT_OR), ("xor", "^", BIT_XOR)):
        setattr(Expr, f"__{name}__", lambda self, other, sign=sign, level=level: self._join(sign, other, level))
        setattr(Expr, f"__r{name}__", lambda self, other, sign=sign, level=level: self._join(sign, other, level, is_reflected=True))
    for name, sign in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
        setattr(Expr, f"__{name}__", lambda self, other, sign=sign: self._join(sign, other, COMPARE, is_chained=False))
    Expr.__hash__ = object.__hash__


_add_operators()


class Buffer:
    """A buffer of the program that is built: `x[i, j]` loads an element, `x[i, j] = value` stores one; `t[()]` is that of rank 0."""

    __slots__ = ("_builder", "name", "dtype", "shape", "_root", "_block", "_stores")

    def __init__(self, builder, name, dtype, shape, root=None):
        self._builder, self.name, self.dtype, self.shape = builder, name, dtype, shape
        self._root = root._root if root is not None else self  # whose elements a view names
        self._block = builder._block
        self._stores = 0  # so far, of the root

    __iter__ = None

    def _place(self, index):
        index = index if isinstance(index, tuple) else (index,)
        if len(index) != len(self.shape):
            raise IndexError(f"'{self.name}' has rank {len(self.shape)}, got {len(index)} indices")
        self._builder._check_open(self._block, self.name)
        index = [self._builder._expr(one) for one in index]
        needs = frozenset().union(*(one._needs for one in index))
        return f"{self.name}[{', '.join(one._text for one in index)}]", needs

    def __getitem__(self, index):
        text, needs = self._place(index)
        load = Load(self, self._root._stores, len(self._builder._blocks))
        return Expr(self._builder, text, PRIMARY, needs | {load, self._block})

    def __setitem__(self, index, value):
        text, needs = self._place(index)
        value = self._builder._expr(value)
        self._builder._statement(f"{text} = {value._text};", needs | value._needs | {self._block})
        self._builder._count_store(self)

    def __repr__(self):
        return f"<quern buffer {self.name}: {self.dtype}[{', '.join(str(one) for one in self.shape)}]>"
