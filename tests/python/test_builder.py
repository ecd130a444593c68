# SPDX-License-Identifier: Apache-2.0
"""The builder: it makes the modules of the texts in examples/ir, and says which line of Python made a mistake."""
import array
import inspect
import os
import pathlib
import unittest

import support

import quern

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/ir"
INF = float("inf")


def saxpy(b):
    with b.func("saxpy"):
        a = b.scalar("a", "f32")
        n = b.symbol("n")
        x, y = b.buffer("x", "f32", [n]), b.buffer("y", "f32", [n], "inout")
        with b.parallel("i", n) as i:
            y[i] += a * x[i]


def softmax(b):
    with b.func("softmax"):
        n, m = b.symbol("n"), b.symbol("m")
        x, y = b.buffer("x", "f32", [n, m]), b.buffer("y", "f32", [n, m], "out")
        with b.parallel("i", n) as i:
            top = b.let("top", b.max(m, lambda j: x[i, j]))
            total = b.let("total", b.sum(m, lambda j: b.exp(x[i, j] - top)))
            with b.for_("j", m) as j:
                y[i, j] = b.exp(x[i, j] - top) / total


def argmax(b):
    with b.func("argmax"):
        n, v = b.symbol("n"), b.symbol("v")
        logits = b.buffer("logits", "f32", (n, v))
        token, score = b.buffer("token", "i64", [n], "out"), b.buffer("score", "f32", [n], "out")
        with b.parallel("i", n) as i:
            best, at = b.argmax(v, lambda j: logits[i, j])
            token[i] = at
            score[i] = best


def histogram(b):
    with b.func("histogram"):
        n = b.symbol("n")
        x = b.buffer("x", "u8", [n])
        counts, largest = b.buffer("counts", "i32", [256], "inout"), b.buffer("largest", "i32", [], "inout")
        with b.parallel("i", n) as i:
            old = b.atomic_add(counts, [x[i]], 1)
            b.assert_(old >= 0, "counts overflowed, or were not cleared")
        with b.parallel("bin", 256) as bin:
            b.atomic_max(largest, (), counts[bin], result=None)


def gelu(b):
    with b.func("dense_gelu"):
        n, k, m = map(b.symbol, "nkm")
        x, w, bias = b.buffer("x", "f32", [n, k]), b.buffer("w", "f32", [k, m]), b.buffer("b", "f32", [m])
        y = b.buffer("y", "f32", [n, m], "out")
        with b.parallel("i", n) as i, b.for_("j", m) as j:
            y[i, j] = b.call("gelu", bias[j] + b.sum(k, lambda p: x[i, p] * w[p, j]))
    with b.func("gelu", returns="f32"):
        x = b.scalar("x", "f32")
        inner = b.let("inner", 0.7978845608 * (x + 0.044715 * b.call("cube", x)))
        b.return_(0.5 * x * (1.0 + b.tanh(inner)))
    with b.func("cube", returns="f32"):
        x = b.scalar("x", "f32")
        b.return_(x * x * x)


def block_norm(b):
    with b.func("block_norm"):
        n, m = b.symbol("n"), b.symbol("m")
        x, y = b.buffer("x", "f32", [n, m]), b.buffer("y", "f32", [n], "out")
        with b.block("x", "row", n) as row:
            partial = b.alloc("partial", "f32", [256], "shared")
            with b.thread("x", "t", 256) as t:
                def square(k):
                    j = b.let("j", k * 256 + t)
                    e = b.let("e", b.where(j < m, x[row, j], 0.0))
                    return e * e

                own = b.let("own", b.sum(b.ceildiv(m, 256), square))
                warp = b.let("warp", b.warp_sum(own))
                with b.if_(t % b.warp_size() == 0):
                    partial[t // b.warp_size()] = warp
                b.barrier()
                with b.if_(t == 0):
                    y[row] = b.sqrt(b.sum(b.ceildiv(256, b.warp_size()), lambda w: partial[w]))


def transpose_shared(b):
    with b.func("transpose"):
        n, m = b.symbol("n"), b.symbol("m")
        x, y = b.buffer("x", "f32", [n, m]), b.buffer("y", "f32", [m, n], "out")
        with b.block("y", "by", b.ceildiv(n, 32)) as by, b.block("x", "bx", b.ceildiv(m, 32)) as bx:
            tile = b.alloc("tile", "f32", [32, 33], "shared")
            with b.thread("y", "ty", 8) as ty, b.thread("x", "tx", 32) as tx:
                with b.unroll("r", 4) as r:
                    i, j = b.let("i", by * 32 + ty + r * 8), b.let("j", bx * 32 + tx)
                    with b.if_(b.and_(i < n, j < m)):
                        tile[ty + r * 8, tx] = x[i, j]
                b.barrier()
                with b.unroll("r", 4) as r:
                    i, j = b.let("i", bx * 32 + ty + r * 8), b.let("j", by * 32 + tx)
                    with b.if_(b.and_(i < m, j < n)):
                        y[i, j] = tile[tx, ty + r * 8]


def conv_transpose(b):
    with b.func("conv_transpose"):
        n, c, h, w, f = (b.symbol(name) for name in "bchwf")
        x, taps = b.buffer("x", "f32", [n, c, h + 2, w + 2]), b.buffer("taps", "f32", [c, f, 4, 4])
        bias, y = b.buffer("bias", "f32", [f]), b.buffer("y", "f32", [n, f, 2 * h, 2 * w], "out")
        with b.parallel("a", n) as a, b.parallel("o", f) as o, b.for_("i", 2 * h) as i, b.for_("j", 2 * w) as j:
            y[a, o, i, j] = bias[o] + b.sum(c, lambda p: b.sum(2, lambda u: b.sum(2, lambda v: (
                x[a, p, (i + 1) // 2 + u, (j + 1) // 2 + v] * taps[p, o, 3 - i % 2 - 2 * u, 3 - j % 2 - 2 * v]))))


def nms(b):
    with b.func("nms"):
        images, n = b.symbol("b"), b.symbol("n")
        boxes, scores = b.buffer("boxes", "f32", [images, n, 4]), b.buffer("scores", "f32", [images, n])
        limit, k = b.scalar("limit", "f32"), b.symbol("k")
        kept, count = b.buffer("kept", "i64", [images, k], "out"), b.buffer("count", "i64", [images], "out")
        left = b.alloc("left", "f32", [images, n], "global")
        with b.parallel("i", images) as i:
            with b.for_("j", n) as j:
                left[i, j] = scores[i, j]
            with b.for_("r", k) as r:
                kept[i, r] = -1
            count[i] = 0
            with b.for_("r", k) as r:
                best, at = b.argmax(n, lambda j: left[i, j])
                with b.if_(best == -INF):
                    b.break_()
                kept[i, r] = at
                count[i] = r + 1
                left[i, at] = -INF
                with b.for_("j", n) as j:
                    with b.if_(left[i, j] == -INF):
                        b.continue_()
                    width = b.let("width", b.call("overlap", boxes[i, j, 0], boxes[i, j, 2], boxes[i, at, 0], boxes[i, at, 2]))
                    height = b.let("height", b.call("overlap", boxes[i, j, 1], boxes[i, j, 3], boxes[i, at, 1], boxes[i, at, 3]))
                    own = b.let("own", b.call("area", *(boxes[i, j, c] for c in range(4))))
                    other = b.let("other", b.call("area", *(boxes[i, at, c] for c in range(4))))
                    with b.if_(width * height > limit * (own + other - width * height)):
                        left[i, j] = -INF
    with b.func("overlap", returns="f32"):
        a0, a1, b0, b1 = (b.scalar(name, "f32") for name in ("a0", "a1", "b0", "b1"))
        b.return_(b.max(b.min(a1, b1) - b.max(a0, b0), 0))
    with b.func("area", returns="f32"):
        x0, y0, x1, y1 = (b.scalar(name, "f32") for name in ("x0", "y0", "x1", "y1"))
        b.return_((x1 - x0) * (y1 - y0))


class Programs(unittest.TestCase):
    def test_they_are_those_of_the_texts(self):
        if not EXAMPLES.exists():
            self.skipTest("there is no examples/ir")
        for make in (saxpy, softmax, argmax, histogram, gelu, block_norm, transpose_shared, conv_transpose, nms):
            builder = quern.Builder()
            make(builder)
            expected = quern.Module.from_file(EXAMPLES / f"{make.__name__}.qn")
            with self.subTest(make.__name__):
                # y[i] += a * x[i] has its operands in another order.
                text = expected.text.replace("a * x[i] + y[i]", "y[i] + a * x[i]")
                self.assertEqual(builder.module().text, text)
                self.assertEqual(builder.module().digest, quern.Module(text).digest)
                self.assertEqual(builder.module().text, quern.Module(builder.text).text)

    def test_it_runs(self):
        builder = quern.Builder()
        saxpy(builder)
        y = array.array("f", [1, 2])
        builder.module()["saxpy"](2.0, array.array("f", [10, 20]), y)
        self.assertEqual(list(y), [21, 42])


class Values(unittest.TestCase):
    """What operators, literals and names become."""

    def setUp(self):
        self.b = b = quern.Builder()
        self.block = b.func("f")
        self.n = b.symbol("n")
        self.x = b.buffer("x", "f32", [self.n])
        self.k = b.buffer("k", "i64", [self.n])
        self.y = b.buffer("y", "f32", [self.n], "inout")

    def check(self, expected):
        """The statements so far are these lines, and parse."""
        self.b._leave(self.block)
        lines = quern.Module(self.b.text).text.splitlines()
        first = next(i for i, line in enumerate(lines) if line.endswith("{"))
        self.assertEqual([line.strip() for line in lines[first + 1:-1]], expected.strip().split("\n"))

    def test_precedence(self):
        b, n, k = self.b, self.n, self.k
        for name, value in (("a", (n + 1) * 2 - (3 - n)), ("c", -(n + 1)), ("d", n - (n - 1)), ("e", (n << 1) + (1 << n) * 2),
                            ("g", 7 // (n % 5)), ("h", (n & 3 | n ^ 1) >> 1), ("o", ~n), ("p", abs(-1 - n)),
                            ("q", b.sum(n, lambda j: k[j]) // 2), ("r", b.where(n == 0, 1, b.where(n < 3, 2, n))), ("s", (n < 3) == (n > 1)),
                            ("u", b.or_(b.and_(n > 1, 4 >= n), ~(n != 2))), ("v", b.where(n > 1, n, 2) * 2), ("w", -1 * n), ("z", +n)):
            b.let(name, value)
        b.let("t", self.x[0] ** 2.0 - 2 ** self.x[1])
        self.check("""
let a = (n + 1) * 2 - (3 - n);
let c = -(n + 1);
let d = n - (n - 1);
let e = (n << 1) + (1 << n) * 2;
let g = 7 // (n % 5);
let h = (n & 3 | n ^ 1) >> 1;
let o = ~n;
let p = abs(-1 - n);
let q = (sum j in 0..n { k[j] }) // 2;
let r = n == 0 ? 1 : n < 3 ? 2 : n;
let s = (n < 3) == (n > 1);
let u = n > 1 && n <= 4 || ~(n != 2);
let v = (n > 1 ? n : 2) * 2;
let w = -1 * n;
let z = n;
let t = pow(x[0], 2.0) - pow(2.0, x[1]);""")

    def test_literals(self):
        b, x = self.b, self.x
        b.let("a", x[0] * 1e-5 + 1e300)
        b.let("c", b.select(x[0] > -INF, INF, float("nan")) + x[1])
        b.let("d", b.where(True, b.f16(0.5), b.f16(2)))
        b.let("e", b.bitcast("u32", x[0]) + b.u32(7))
        numpy = support.package("numpy")
        if numpy:
            b.let("g", numpy.float64(0.5) * x[0] + numpy.int64(2))
        with self.assertRaises(TypeError):
            b.let("h", x[0] + "text")
        with self.assertRaises(TypeError):
            x[0] = None

    def test_names_get_numbers(self):
        b, y = self.b, self.y
        outer = b.let("t", self.n + 1)
        with b.for_("i", self.n) as i:
            with b.for_("i", outer) as j:
                inner = b.let("t", i * j)
                y[i] = b.f32(inner + outer) + b.sum(self.n, lambda i: self.x[i])
        with b.for_("i", self.n) as i:
            y[i] = 0.0
        self.check("""
let t = n + 1;
for i in 0..n {
for i_1 in 0..t {
let t_1 = i * i_1;
y[i] = f32(t_1 + t) + (sum i_2 in 0..n { x[i_2] });
}
}
for i in 0..n {
y[i] = 0.0;
}""")

    def test_statements(self):
        b, x, y = self.b, self.x, self.y
        table = b.const("table", "f32", [2, 2], [[1, 2], [3, 4.5]])
        row = b.view("row", table, [1, 0], [2])
        memory = b.alloc("memory", "f32", [])
        memory[()] = row[1]
        with b.while_(memory[()] < 9.0):
            memory[()] += 1.0
        with b.if_(x[0] > 0.0):
            y[0] = memory[()]
        with b.else_():
            with b.if_(x[0] < 0.0):
                y[0] = 1.0
        with b.vector("v", 4) as v:
            y[v] = 2.0
        best, where = b.argmin(1, self.n, lambda j: x[j], names=("low", "where"))
        y[where] = best + b.prod(2, lambda j: b.let("twice", x[j] * 2.0) + 1.0)
        b.assert_(best < 1.0, 'a "quoted"\n\\ text\x07')
        b.return_()
        self.check(r"""
const table: f32[2, 2] = [1.0, 2.0, 3.0, 4.5];
view row: f32[2] = table[1, 0];
alloc memory: f32[] in local;
memory[] = row[1];
while memory[] < 9.0 {
memory[] = memory[] + 1.0;
}
if x[0] > 0.0 {
y[0] = memory[];
} else if x[0] < 0.0 {
y[0] = 1.0;
}
vector v in 0..4 {
y[v] = 2.0;
}
let low, where = argmin j in 1..n { x[j] };
y[where] = low + (prod j in 0..2 {
let twice = x[j] * 2.0;
twice + 1.0
});
assert low < 1.0, "a \"quoted\"\n\\ text\x07";
return;""")


class Mistakes(unittest.TestCase):
    def setUp(self):
        self.b = quern.Builder()

    def refused(self, kind, words, call, *args, **names):
        with self.assertRaises(kind) as caught:
            call(*args, **names)
        self.assertIn(words, str(caught.exception))

    def test_the_line_of_python(self):
        b = self.b
        with b.func("f"):
            x = b.buffer("x", "f32", [b.symbol("n")], "inout")
            with b.parallel("i", 4) as i:
                x[i] = i * 2
                line = inspect.currentframe().f_lineno - 1
        with self.assertRaises(quern.ModuleError) as caught:
            b.module()
        self.assertIn("i * 2", str(caught.exception))
        self.assertIn(f"\nbuilt at {__file__}:{line}\n", str(caught.exception))
        self.assertEqual(caught.exception.diagnostics[0].file, "<builder>")

    def test_variables_outside_of_their_block(self):
        b = self.b
        kept = []
        with b.func("f"):
            n = b.symbol("n")
            x = b.buffer("x", "f32", [n], "out")
            with b.for_("i", n) as i:
                local = b.alloc("t", "f32", [1])
                name = b.let("name", i + 1)
            for value in (i, name, i + 1):
                self.refused(ValueError, "outside of it", x.__setitem__, 0, b.f32(value))
            self.refused(ValueError, "t of a block 'for'", local.__getitem__, 0)
            b.sum(n, lambda j: kept.append(j) or x[j])
            self.refused(ValueError, "of a block 'sum'", x.__setitem__, kept[0], 0.0)

    def test_elements_that_changed(self):
        b = self.b
        with b.func("f"):
            n = b.symbol("n")
            x, y = b.buffer("x", "f32", [n], "inout"), b.buffer("y", "f32", [n], "inout")
            before = x[0]
            y[0] = before
            total = b.sum(n, lambda j: x[j])
            kept = b.let("kept", x[0])
            x[0] = 1.0
            self.refused(ValueError, "'x' was stored to after", y.__setitem__, 1, before)
            self.refused(ValueError, "'x' was stored to after", y.__setitem__, 1, total)
            y[1] = kept
            before = b.sum(n, lambda j: x[j])
            with b.for_("i", n) as i:
                y[i] = before
                self.refused(ValueError, "in a loop that uses a value loaded from it before", x.__setitem__, i, 2.0)
            view = b.view("v", x, [0], [1])
            before = x[0]
            view[0] = 4.0
            self.refused(ValueError, "'x' was stored to after", y.__setitem__, 1, before)
            before = x[0]
            b.atomic_add(x, [0], 1.0)
            self.refused(ValueError, "'x' was stored to after", y.__setitem__, 1, before)

    def test_values_have_no_truth(self):
        b = self.b
        with b.func("f"):
            n = b.symbol("n")
            self.refused(TypeError, "'n > 1' is a value of the program", bool, n > 1)
            self.refused(TypeError, "not iterable", iter, n)
            x = b.buffer("x", "f32", [n])
            self.refused(TypeError, "not iterable", iter, x)
            self.refused(IndexError, "'x' has rank 1, got 2 indices", x.__getitem__, (0, 0))
            self.refused(TypeError, "got slice", x.__getitem__, slice(1))

    def test_order(self):
        b = self.b
        self.refused(RuntimeError, "open a function", b.symbol, "n")
        self.refused(RuntimeError, "stands in a function", b.barrier)
        block = b.func("f")
        self.refused(RuntimeError, "do not nest", b.func, "g")
        self.refused(RuntimeError, "'func' is still open", b.module)
        x = b.buffer("x", "f32", [4], "out")
        self.refused(ValueError, "'x' is declared twice", b.scalar, "x", "f32")
        self.refused(ValueError, "'x' is declared twice", b.symbol, "x")
        self.refused(RuntimeError, "else_: there is no", b.else_)
        with b.if_(x[0] > 0.0):
            pass
        b.barrier()
        self.refused(RuntimeError, "else_: there is no", b.else_)
        self.refused(RuntimeError, "come before statements", b.scalar, "late", "f32")
        self.refused(RuntimeError, "come before statements", b.symbol, "late")
        self.refused(RuntimeError, "only lets do", b.sum, 4, lambda j: x.__setitem__(j, 1.0))
        loop = b.for_("i", 4)
        self.refused(RuntimeError, "leave the others first", block.__exit__, None)
        self.refused(TypeError, "a range is (end) or (begin, end)", b.for_, "i", 1, 2, 3)
        self.refused(TypeError, "expected a function of the index", b.sum, 4)
        loop.__exit__(None)
        block.__exit__(None)

    def test_names_and_dtypes(self):
        b = self.b
        for name in ("for", "f32", "1x", "a b", "", "x;y", "größe"):
            self.refused(ValueError, "expected a name", b.func, name)
        self.refused(TypeError, "got int", b.func, 3)
        self.refused(AttributeError, "no attribute, operator or dtype 'f33'", getattr, b, "f33")
        with b.func("f"):
            self.refused(ValueError, "dtype: expected one of bool", b.scalar, "x", "float32")
            self.refused(ValueError, "access: expected one of", b.buffer, "x", "f32", [1], "inoutt")
            self.refused(ValueError, "scope: expected one of", b.alloc, "x", "f32", [1], "heap")
            self.refused(ValueError, "axis: expected", b.block, "w", "i", 4)
            other = quern.Builder()
            with other.func("g"):
                self.refused(ValueError, "of another builder", b.let, "x", other.symbol("n"))

    def test_size(self):
        b = self.b
        with b.func("f"):
            value = b.symbol("n")
            with self.assertRaises(ValueError) as caught:
                for _ in range(60):
                    value = value * value
            self.assertIn("give its parts names with `let`", str(caught.exception))

    def test_an_exception_passes(self):
        with self.assertRaises(ZeroDivisionError):
            with self.b.func("f"), self.b.for_("i", 4):
                1 // 0
        self.assertIn("exp", dir(self.b))
        self.assertEqual(os.path.basename(self.b._lines[0][1].rpartition(":")[0]), os.path.basename(__file__))


if __name__ == "__main__":
    support.main()
