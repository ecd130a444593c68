# SPDX-License-Identifier: Apache-2.0
"""Calls with what the standard library has: numbers, memoryview, array, bytes."""
import array
import ctypes
import gc
import struct
import sys
import threading
import unittest

import support
from support import SAXPY

import quern

SCALARS = """func scalars(a: f32, i: i32, u: u64, b: bool, out y: f64[4]) {
  y[0] = f64(a);
  y[1] = f64(i);
  y[2] = f64(u);
  y[3] = b ? 1.0 : 0.0;
}
"""


def floats(*values):
    return array.array("f", values)


class Calls(unittest.TestCase):
    def setUp(self):
        self.saxpy = quern.Module(SAXPY)["saxpy"]

    def test_memory(self):
        for x in (floats(1, 2), memoryview(floats(1, 2)), struct.pack("2f", 1, 2), (ctypes.c_float * 2)(1, 2)):
            y = memoryview(bytearray(8)).cast("f")
            if isinstance(x, bytes):
                x = memoryview(x).cast("f")
            self.assertIsNone(self.saxpy(2.0, x, y))
            self.assertEqual(y.tolist(), [2.0, 4.0])
        self.assertIn(self.saxpy.info.source, ("compiled", "disk", "memory"))
        self.assertEqual(len(self.saxpy.info.key), 32)

    def test_names(self):
        y = floats(0, 0)
        self.saxpy(a=1, y=y, x=floats(5, 6))
        self.saxpy(1, y=y, x=floats(5, 6))
        self.assertEqual(list(y), [10, 12])
        x = floats(5, 6)
        for args, names, words in (((1, x), {}, "argument 'y' is missing"), ((1, x, y, y), {}, "expected 3 arguments, got 4"),
                                   ((1, x), {"z": y}, "no argument 'z'"), ((1, x), {"x": y}, "'x' is given twice"), ((), {}, "'a' is missing")):
            with self.assertRaises(TypeError) as caught:
                self.saxpy(*args, **names)
            self.assertIn(words, str(caught.exception))
            self.assertIn("saxpy(a: f32, x: f32[n], inout y: f32[n])", str(caught.exception))

    def test_scalars(self):
        function = quern.Module(SCALARS)["scalars"]

        class Index:
            def __index__(self):
                return 7

        class Float:
            def __float__(self):
                return 0.5

        class Item:
            def item(self):
                return 3

        y = array.array("d", [0] * 4)
        function(1.5, -3, 2**64 - 1, True, y)
        self.assertEqual(list(y), [1.5, -3, float(2**64 - 1), 1])
        function(Float(), Index(), Item(), 1, y)
        self.assertEqual(list(y), [0.5, 7, 3, 1])
        for args, kind, words in (((1.0, 2**40, 0, True), ValueError, "i32"), ((1.0, 0, -1, True), ValueError, "u64"),
                                  ((1.0, 2**70, 0, True), ValueError, "does not fit in 64 bits"), ((1e300, 0, 0, True), ValueError, "f32"),
                                  ((1.0, 1.5, 0, True), TypeError, "argument 1 'i'"), (("a", 0, 0, True), TypeError, "expected f32, got str"),
                                  ((None, 0, 0, True), TypeError, "NoneType"), ((1.0, 0, 0, 2), (TypeError, ValueError), "argument 3 'b'")):
            with self.assertRaises(kind) as caught:
                function(*args, y)
            self.assertIn(words, str(caught.exception))

    def test_refused(self):
        x, y = floats(1, 2), floats(0, 0)
        cases = (((2.0, x, floats(1)), ValueError, "expected n = 2"), ((2.0, array.array("d", [1, 2]), y), TypeError, "expected dtype f32, got f64"),
                 ((2.0, [1.0, 2.0], y), TypeError, "got list"), ((2.0, 3.0, y), TypeError, "got float"), ((2.0, None, y), TypeError, "got NoneType"),
                 ((2.0, x, x), ValueError, "overlaps"), ((2.0, x, memoryview(struct.pack("2f", 0, 0)).cast("f")), ValueError, "read-only"),
                 ((2.0, memoryview(floats(1, 2, 3, 4))[::2], y), ValueError, "argument 1 'x'"), ((2.0, b"12345678", y), TypeError, "u8"),
                 ((2.0, memoryview(floats(1, 2, 3, 4)).cast("B").cast("f", (2, 2)), y), TypeError, "rank"))
        for args, kind, words in cases:
            with self.assertRaises(kind) as caught:
                self.saxpy(*args)
            self.assertIsInstance(caught.exception, quern.Error)
            self.assertIn(words, str(caught.exception))
        self.assertEqual(list(y), [0, 0])

    def test_strides(self):
        function = quern.Module("func copy(x: f32[n] strides [s], out y: f32[n]) {\n  for i in 0..n { y[i] = x[i]; }\n}\n")["copy"]
        y = floats(0, 0)
        function(memoryview(floats(1, 2, 3, 4))[::2], y)
        self.assertEqual(list(y), [1, 3])
        with self.assertRaises(ValueError):
            function(memoryview(floats(1, 2, 3, 4))[::-2], y)

    def test_many_arguments(self):
        count = 20
        text = f"func many({', '.join(f'a{i}: f64' for i in range(count))}, out y: f64[1]) {{ y[0] = {' + '.join(f'a{i}' for i in range(count))}; }}"
        function = quern.Module(text)["many"]
        y = array.array("d", [0])
        function(*range(count), y)
        self.assertEqual(y[0], sum(range(count)))
        function(**{f"a{i}": 1 for i in range(count)}, y=y)
        self.assertEqual(y[0], count)
        self.assertEqual(function.new(*range(count))[0], sum(range(count))) if support.package("numpy") else None
        with self.assertRaises(TypeError):
            function(*range(count - 1), "text", y)

    def test_no_arguments(self):
        quern.Module("func nothing() { }")["nothing"]()

    def test_new(self):
        function = quern.Module("func both(x: f32[n, m], out a: f32[n], out b: f64[m, n]) {\n  for i in 0..n { a[i] = x[i, 0]; for j in 0..m { b[j, i] = f64(x[i, j]); } }\n}\n")["both"]
        x = memoryview(floats(1, 2, 3, 4, 5, 6)).cast("B").cast("f", (2, 3))
        a, b = function.new(x)
        self.assertEqual((a.tolist(), b.tolist()), ([1, 4], [[1, 4], [2, 5], [3, 6]]))
        a, b = function.new(x=x)
        self.assertEqual((a.format, b.format, b.shape), ("f", "d", (3, 2)))
        for bad in (lambda: function.new(), lambda: function.new(x, x), lambda: function.new(x, a=a), lambda: function.new([1]),
                    lambda: self.saxpy.new(1.0, floats(1), floats(1))):
            with self.assertRaises(TypeError):
                bad()
        with self.assertRaises(TypeError):
            quern.Module("func half(x: f32[n], out y: bf16[n]) { for i in 0..n { y[i] = bf16(x[i]); } }")["half"].new(floats(1))

    def test_errors_of_the_work(self):
        text = "func pick(i: i64, x: f32[n], out y: f32[1]) {\n  assert i != 7, \"seven\";\n  y[0] = x[i];\n}\n"
        module = quern.Module(text)
        checked = module.compile("pick", checked=True)
        y = floats(0)
        checked(1, floats(1, 2), y)
        self.assertEqual(y[0], 2)
        with self.assertRaises(IndexError) as caught:
            checked(5, floats(1, 2), y)
        self.assertIsInstance(caught.exception, quern.OutOfBounds)
        with self.assertRaises(AssertionError) as caught:
            module["pick"](7, floats(1, 2), y)
        self.assertIn("seven", str(caught.exception))

    def test_interpreter(self):
        bound = quern.Module(SAXPY).compile("saxpy", target="interp")
        y = floats(1, 1)
        bound(3.0, floats(1, 2), y)
        self.assertEqual(list(y), [4, 7])
        self.assertEqual(bound.info.tier, "full")

    def test_nothing_leaks(self):
        x, y, text = floats(1, 2), floats(0, 0), "wrong"
        view = memoryview(y)

        def work():
            self.saxpy(1.0, x, view)
            for bad in ((1.0, x, b"12345678"), (text, x, y), (1.0, x), (1.0, [1], y), (1.0, memoryview(floats(1)), view)):
                try:
                    self.saxpy(*bad)
                except (TypeError, ValueError):
                    pass

        work()
        gc.collect()
        before = [sys.getrefcount(one) for one in (x, y, view, text, self.saxpy)]
        for _ in range(200):
            work()
        after = [sys.getrefcount(one) for one in (x, y, view, text, self.saxpy)]
        self.assertEqual(after, before)
        # No buffer is held: an array with a view cannot grow.
        view.release()
        y.append(1)
        x.append(1)

    def test_threads(self):
        module = quern.Module(SAXPY)
        errors = []

        def work():
            try:
                x, y = floats(*range(1000)), floats(*[0] * 1000)
                for _ in range(200):
                    module["saxpy"](1.0, x, y)
                if y[999] != 200 * 999:
                    errors.append(y[999])
            except Exception as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        [one.start() for one in threads]
        [one.join() for one in threads]
        self.assertEqual(errors, [])

    def test_long_calls_let_other_threads_run(self):
        # One thread is in a call of which it is not known that it is short; the other one counts meanwhile.
        function = quern.Module("func slow(n: i64, inout y: f32[1]) { for i in 0..n { y[0] = y[0] * 0.999 + 1.0; } }")["slow"]
        y = floats(0)
        function(1, y)
        counts = []
        ended = threading.Event()

        def count():
            while not ended.is_set():
                counts.append(0)

        thread = threading.Thread(target=count)
        thread.start()
        while not counts:
            pass
        before = len(counts)
        function(200_000_000, y)
        between = len(counts) - before
        ended.set()
        thread.join()
        self.assertGreater(between, 0)


if __name__ == "__main__":
    support.main()
