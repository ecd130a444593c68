# SPDX-License-Identifier: Apache-2.0
"""tvm-ffi: its tensors as arguments, and functions of quern as functions of tvm-ffi."""
import ctypes
import gc
import sys
import threading
import unittest
import weakref

import support
from support import SAXPY, needs, run

import quern

numpy = support.package("numpy")
tvm_ffi = support.package("tvm_ffi")
SCALARS = """func scalars(a: u64, b: i32, c: f32, d: bool, out y: f64[4]) {
  y[0] = f64(a);
  y[1] = f64(b);
  y[2] = f64(c);
  if d { y[3] = 1.0; } else { y[3] = 0.0; }
}
"""


def tensor(*values):
    array = numpy.array(values, "f4")
    return array, tvm_ffi.from_dlpack(array)


@needs("numpy", "tvm_ffi")
class Tensors(unittest.TestCase):
    def setUp(self):
        self.saxpy = quern.Module(SAXPY)["saxpy"]

    def test_memory_is_shared(self):
        _, x = tensor(1, 2)
        y, ty = tensor(10, 20)
        self.saxpy(2.0, x, ty)
        numpy.testing.assert_array_equal(y, [12, 24])

    def test_strides_and_ranks(self):
        strided = quern.Module("func copy(x: f32[n, m] strides [s, t], out y: f32[n, m]) {\n"
                               "  for i in 0..n { for j in 0..m { y[i, j] = x[i, j]; } }\n}\n")["copy"]
        x = numpy.arange(24, dtype="f4").reshape(4, 6)
        for view in (x, x.T, x[::2], x[:0]):
            y = numpy.zeros(view.shape, "f4")
            strided(tvm_ffi.from_dlpack(view), tvm_ffi.from_dlpack(y))
            numpy.testing.assert_array_equal(y, view)

    def test_refused(self):
        _, x = tensor(1, 2)
        for bad, words in ((tvm_ffi.from_dlpack(numpy.zeros(2, "f8")), "expected dtype f32, got f64"),
                           (tvm_ffi.from_dlpack(numpy.zeros((2, 1), "f4")), "expected rank 1, got 2"),
                           (tvm_ffi.from_dlpack(numpy.zeros(3, "f4")), "extent 0"), (tvm_ffi.Shape((1, 2)), "got Shape")):
            with self.assertRaises(quern.Error) as caught:
                self.saxpy(1.0, x, bad)
            self.assertIn("argument 2 'y'", str(caught.exception))
            self.assertIn(words, str(caught.exception))

    def test_moved_away(self):
        _, x = tensor(1, 2)
        _, y = tensor(0, 0)
        self.saxpy(1.0, x, y)
        tvm_ffi.convert(lambda moved: None)(tvm_ffi.core.ObjectRValueRef(x))
        with self.assertRaisesRegex(ValueError, "argument 1 'x': it gives no tensor: its tensor was moved away"):
            self.saxpy(1.0, x, y)
        # The first tensor of a process.
        result = run("import numpy, quern, tvm_ffi\n"
                     "x, y = tvm_ffi.from_dlpack(numpy.ones(1, 'f4')), tvm_ffi.from_dlpack(numpy.ones(1, 'f4'))\n"
                     "tvm_ffi.convert(lambda moved: None)(tvm_ffi.core.ObjectRValueRef(x))\n"
                     "saxpy = quern.Module(support.SAXPY)['saxpy']\n"
                     "try:\n    saxpy(1.0, x, y)\nexcept ValueError as error:\n    print(error)\n"
                     "saxpy(1.0, y, numpy.ones(1, 'f4'))\n")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "its tensor was moved away\n", ""))


@needs("numpy", "tvm_ffi")
class Functions(unittest.TestCase):
    def setUp(self):
        self.module = quern.Module(SAXPY)
        self.function = self.module["saxpy"].as_tvm_ffi()

    def test_arrays_and_tensors(self):
        self.assertIsInstance(self.function, tvm_ffi.Function)
        x, tx = tensor(1, 2)
        y, ty = tensor(10, 20)
        self.assertIsNone(self.function(2.0, tx, ty))
        numpy.testing.assert_array_equal(y, [12, 24])
        self.function(2, x, y)  # NumPy's, by tvm-ffi; an int for a float
        numpy.testing.assert_array_equal(y, [14, 28])
        for size in (0, 1, 1000):  # a symbol is bound anew at each call
            x, y = numpy.arange(size, dtype="f4"), numpy.ones(size, "f4")
            self.function(2.0, x, y)
            numpy.testing.assert_array_equal(y, 2 * x + 1)

    def test_moved_tensor(self):
        _, x = tensor(1, 2)
        y, ty = tensor(10, 20)
        self.function(1.0, tvm_ffi.core.ObjectRValueRef(x), ty)
        numpy.testing.assert_array_equal(y, [11, 22])

    def test_scalars(self):
        function = quern.Module(SCALARS)["scalars"].as_tvm_ffi()
        y = numpy.zeros(4)
        function(2**63 - 1, -(2**31), 0.5, True, y)
        numpy.testing.assert_array_equal(y, [2.0**63, -(2.0**31), 0.5, 1])
        try:
            function(2**64 - 1, 0, 0.5, True, y)
        except OverflowError:
            self.skipTest("this tvm-ffi has no big integers")
        self.assertEqual(y[0], 2.0**64)
        function(2**63, 2**31 - 1, 2**63, False, y)
        numpy.testing.assert_array_equal(y, [2.0**63, 2**31 - 1, 2.0**63, 0])
        for bad, argument, words in ((2**64, "0 'a'", "an integer beyond 64 bits"), (-(2**63) - 1, "0 'a'", "beyond 64 bits"),
                                     (-1, "0 'a'", r"expected a value of u64 in \[0, 18446744073709551615\], got -1"),
                                     (2**31, "1 'b'", "got 2147483648"), (2**63, "1 'b'", "got 9223372036854775808"),
                                     (2**700, "1 'b'", "an integer beyond 64 bits"), (2**64, "2 'c'", "an integer beyond 64 bits")):
            values = [0, 0, 0.0, True, y]
            values[int(argument[0])] = bad
            with self.assertRaisesRegex(ValueError, f"argument {argument}: .*{words}"):
                function(*values)

    def test_errors(self):
        x, y = numpy.ones(2, "f4"), numpy.ones(2, "f4")
        text = r"saxpy\(a: f32, x: f32\[n\], inout y: f32\[n\]\): "
        for values, kind, words in (((1.0, x, numpy.ones(3, "f4")), ValueError, "argument 2 'y': extent 0: expected n = 2"),
                                    ((1.0, x, numpy.ones(2)), TypeError, "argument 2 'y': expected dtype f32, got f64"),
                                    ((1.0, x, x), ValueError, "overlaps"), ((1.0, x), TypeError, "expected 3 arguments, got 2"),
                                    ((1.0,) * 200, TypeError, "expected 3 arguments, got 200"), ((), TypeError, "got 0"),
                                    (("one", x, y), TypeError, "argument 0 'a': expected a float .f32., got"),
                                    ((1.0, "a longer text", y), TypeError, "argument 1 'x': expected a tensor of f32, got a string"),
                                    ((1.0, None, y), TypeError, "got nothing"), ((1.0, [x], y), TypeError, "got an array"),
                                    ((1.0, {"x": x}, y), TypeError, "got a map"), ((1.0, object(), y), TypeError, "got a Python object"),
                                    ((1.0, lambda: 1, y), TypeError, "got a function"), ((1.0, 3, y), TypeError, "got an int"),
                                    ((1.0, tvm_ffi.device("cpu", 0), y), TypeError, "got a device")):
            with self.assertRaisesRegex(kind, text + ".*" + words):
                self.function(*values)
        trap = quern.Module("func fail(n: i64, out y: f32[n]) { assert n < 3, \"too many\"; y[0] = 1.0; }")["fail"].as_tvm_ffi()
        with self.assertRaisesRegex(AssertionError, "too many"):
            trap(3, numpy.ones(3, "f4"))

    def test_errors_of_lookups(self):
        with quern.Engine("", jit="forbid") as engine:
            function = quern.Module(SAXPY, engine=engine)["saxpy"].as_tvm_ffi()
            with self.assertRaisesRegex(RuntimeError, "is not cached, and compiling is forbidden"):
                function(1.0, numpy.ones(1, "f4"), numpy.ones(1, "f4"))
        with self.assertRaisesRegex(RuntimeError, "the engine is closed"):
            function(1.0, numpy.ones(1, "f4"), numpy.ones(1, "f4"))

    def test_names(self):
        function = self.module["saxpy"].as_tvm_ffi("quern.test.saxpy")
        try:
            y = numpy.ones(1, "f4")
            tvm_ffi.get_global_func("quern.test.saxpy")(1.0, numpy.ones(1, "f4"), y)
            self.assertEqual(y[0], 2)
            with self.assertRaisesRegex(quern.Error, "does not register 'quern.test.saxpy'; is the name taken?"):
                self.module["saxpy"].as_tvm_ffi("quern.test.saxpy")
            self.module["saxpy"].as_tvm_ffi("quern.test.saxpy", override=True)
        finally:
            tvm_ffi.registry.remove_global_func("quern.test.saxpy")
        function(1.0, numpy.ones(1, "f4"), y)
        self.assertEqual(y[0], 3)
        for bad, kind in ((3, TypeError), ("", quern.Error)):
            with self.assertRaises(kind):
                self.module["saxpy"].as_tvm_ffi(bad)
        self.assertFalse([name for name in tvm_ffi.registry.list_global_func_names() if name.startswith("quern.")])

    def test_bound_function(self):
        bound = self.module.compile("saxpy", tier="fast", checked=True).as_tvm_ffi()
        y = numpy.ones(2, "f4")
        bound(1.0, numpy.ones(2, "f4"), y)
        self.assertEqual(y[1], 2)

    def test_from_other_languages(self):
        # By the C ABI, as C++ and Rust call.
        library = tvm_ffi.libinfo.find_libtvm_ffi() if hasattr(tvm_ffi.libinfo, "find_libtvm_ffi") else None
        if library is None:
            self.skipTest("this tvm-ffi does not say where its library is")
        ffi = ctypes.CDLL(library)

        class Value(ctypes.Structure):
            _fields_ = [("type", ctypes.c_int32), ("padding", ctypes.c_uint32), ("bits", ctypes.c_int64)]

        _, tx = tensor(1, 2)
        y, ty = tensor(1, 1)
        two = ctypes.c_int64.from_buffer(ctypes.c_double(2.0)).value
        values = (Value * 3)(Value(3, 0, two), Value(70, 0, tx.__chandle__()), Value(70, 0, ty.__chandle__()))
        result = Value()
        code = ffi.TVMFFIFunctionCall(ctypes.c_void_p(self.function.__chandle__()), values, 3, ctypes.byref(result))
        self.assertEqual((code, result.type), (0, 0))
        numpy.testing.assert_array_equal(y, [3, 5])
        # Tags that tvm-ffi does not have today: 63 is quern's own.
        for tag in (63, 9, 13, 64, 127, 1000, -1):
            values[0] = Value(tag, 0, 3)
            code = ffi.TVMFFIFunctionCall(ctypes.c_void_p(self.function.__chandle__()), values, 3, ctypes.byref(result))
            self.assertEqual(code, -1, tag)
            error = ctypes.c_void_p()
            ffi.TVMFFIErrorMoveFromRaised(ctypes.byref(error))
            ffi.TVMFFIObjectDecRef(error)

    def test_lifetime(self):
        with quern.Engine("") as engine:
            function = quern.Module(SAXPY, engine=engine)["saxpy"].as_tvm_ffi()
            gc.collect()
            y = numpy.ones(1, "f4")
            function(1.0, numpy.ones(1, "f4"), y)
            self.assertEqual(y[0], 2)
            gone = weakref.ref(engine)
        del engine
        gc.collect()
        self.assertIsNotNone(gone())
        function(1.0, numpy.ones(1, "f4"), y)  # code that is loaded outlives the end of its engine
        self.assertEqual(y[0], 3)
        # The last holder may be another thread.
        held = [function]
        del function
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        gc.collect()
        self.assertIsNone(gone())

    def test_threads(self):
        # The first calls at once, and then many; each thread has arrays of its own.
        function = quern.Module(SAXPY)["saxpy"].as_tvm_ffi()
        arrays = [numpy.zeros(8, "f4") for _ in range(8)]
        start = threading.Barrier(len(arrays))

        def work(y):
            x = numpy.ones(8, "f4")
            start.wait()
            for _ in range(200):
                function(1.0, x, y)

        threads = [threading.Thread(target=work, args=(y,)) for y in arrays]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for y in arrays:
            numpy.testing.assert_array_equal(y, [200.0] * 8)

    def test_no_leak(self):
        handle = self.module["saxpy"]
        count = sys.getrefcount(handle)
        for _ in range(100):
            handle.as_tvm_ffi()
        gc.collect()
        self.assertEqual(sys.getrefcount(handle), count)


class Processes(unittest.TestCase):
    @needs("numpy", "tvm_ffi")
    def test_end_of_the_interpreter(self):
        # A function in the global table, and one in a module, outlive the interpreter.
        result = run("import sys, numpy, quern, tvm_ffi\n"
                     "sys.kept = quern.Module(support.SAXPY)['saxpy'].as_tvm_ffi('quern.kept')\n"
                     "y = numpy.ones(2, 'f4')\n"
                     "sys.kept(1.0, numpy.ones(2, 'f4'), y)\n"
                     "print(y[0])\n")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "2.0\n", ""))

    def test_without_tvm_ffi(self):
        # An interpreter in which it cannot be imported, and one in which it is not loaded.
        result = run("import sys, quern\n"
                     "sys.modules['tvm_ffi'] = None\n"
                     "handle = quern.Module(support.SAXPY)['saxpy']\n"
                     "try:\n    handle.as_tvm_ffi()\nexcept ImportError:\n    print('no package')\n"
                     "try:\n    handle._register_tvm_ffi('name', False)\nexcept quern.Unavailable as error:\n    print(error)\n")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout, "no package\ntvm-ffi is not in this process; load it first (Python: import tvm_ffi)\n")


if __name__ == "__main__":
    support.main()
