# SPDX-License-Identifier: Apache-2.0
"""Arrays of NumPy, dtypes of ml_dtypes, tensors of tvm-ffi."""
import unittest

import support
from support import SAXPY, needs

import quern

numpy = support.package("numpy")
DTYPES = {"bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32",
          "u64": "uint64", "f16": "float16", "f32": "float32", "f64": "float64"}


def copy_of(dtype):
    return quern.Module(f"func copy(x: {dtype}[n], out y: {dtype}[n]) {{ parallel i in 0..n {{ y[i] = x[i]; }} }}")["copy"]


@needs("numpy")
class NumPy(unittest.TestCase):
    def setUp(self):
        self.saxpy = quern.Module(SAXPY)["saxpy"]

    def test_saxpy(self):
        for size in (0, 1, 1000):
            x, y = numpy.arange(size, dtype="f4"), numpy.ones(size, "f4")
            self.saxpy(2.0, x, y)
            numpy.testing.assert_array_equal(y, 2 * x + 1)
        x = numpy.ones(1000, "f4")
        y = numpy.zeros(1000, "f4")
        for scalar in (numpy.float32(2), numpy.float64(2), numpy.int64(2), numpy.array(2.0, "f4")):
            self.saxpy(scalar, x, y)
        self.assertEqual(y[3], 8)

    def test_dtypes(self):
        for dtype, name in DTYPES.items():
            copy = copy_of(dtype)
            x = numpy.array([0, 1, 1], name)
            y = copy.new(x)
            self.assertEqual((y.dtype, y.shape), (x.dtype, x.shape))
            numpy.testing.assert_array_equal(x, y)
        for wrong in ("complex64", "datetime64[s]", "U4", "O", ">f4", [("a", "f4")]):
            with self.assertRaises(TypeError if wrong != "O" and wrong != "datetime64[s]" else quern.Error) as caught:
                copy_of("f32")(numpy.zeros(3, wrong), numpy.zeros(3, "f4"))
            self.assertIn("argument 0 'x'", str(caught.exception))

    def test_read_only(self):
        x = numpy.ones(3, "f4")
        x.flags.writeable = False
        y = numpy.zeros(3, "f4")
        self.saxpy(1.0, x, y)
        self.assertEqual(y[0], 1)
        with self.assertRaisesRegex(ValueError, "argument 2 'y': expected memory that can be written to"):
            self.saxpy(1.0, y, x)

    def test_strides(self):
        strided = quern.Module("func copy(x: f32[n, m] strides [s, t], out y: f32[n, m]) {\n"
                               "  for i in 0..n { for j in 0..m { y[i, j] = x[i, j]; } }\n}\n")["copy"]
        x = numpy.arange(24, dtype="f4").reshape(4, 6)
        for view in (x, x.T, x[::2], x[:, ::3], numpy.asfortranarray(x), x[1:2], x[:0], x[:, :1]):
            numpy.testing.assert_array_equal(strided.new(view), view)
        with self.assertRaisesRegex(ValueError, "argument 0 'x'"):
            strided.new(x[::-1])
        with self.assertRaisesRegex(ValueError, "stride 0: expected a multiple of 4 bytes, got 5"):
            packed = numpy.zeros(4, [("a", "i1"), ("b", "f4")])
            strided(packed["b"].reshape(4, 1), numpy.zeros((4, 1), "f4"))
        with self.assertRaisesRegex(ValueError, "argument 0 'x'"):
            quern.Module("func copy(x: f32[n, m], out y: f32[n, m]) { for i in 0..n { for j in 0..m { y[i, j] = x[i, j]; } } }")["copy"].new(x.T)

    def test_subclasses(self):
        class Derived(numpy.ndarray):
            pass

        x = numpy.ones(3, "f4").view(Derived)
        y = numpy.memmap(support.folder + "/memmap", "f4", "w+", shape=(3,))
        self.saxpy(1.0, x, y)
        self.assertEqual(list(y), [1, 1, 1])

    def test_new(self):
        softmax = quern.Module("func softmax(x: f32[n, m], out y: f32[n, m]) {\n  parallel i in 0..n {\n    let total = sum j in 0..m { exp(x[i, j]) };\n"
                               "    for j in 0..m { y[i, j] = exp(x[i, j]) / total; }\n  }\n}\n")["softmax"]
        x = numpy.random.default_rng(1).random((3, 5), "f4")
        numpy.testing.assert_allclose(softmax.new(x), numpy.exp(x) / numpy.exp(x).sum(1, keepdims=True), rtol=1e-6)
        self.assertEqual(softmax.new(x[:0]).shape, (0, 5))
        with self.assertRaises(quern.Error):
            softmax.new(x[0])

    def test_many_dimensions(self):
        x = numpy.zeros((1,) * 40, "f4")
        with self.assertRaises(TypeError):
            self.saxpy(1.0, x, x)
        with self.assertRaises(TypeError):
            self.saxpy(1.0, x[::-1], x)

    @needs("ml_dtypes")
    def test_ml_dtypes(self):
        import ml_dtypes

        for dtype, kind in (("bf16", ml_dtypes.bfloat16), ("f8e4m3fn", ml_dtypes.float8_e4m3fn), ("f8e5m2", ml_dtypes.float8_e5m2)):
            copy = copy_of(dtype)
            x = numpy.array([0.5, 1, -2, 8], kind)
            y = copy.new(x)
            self.assertEqual(y.dtype, x.dtype)
            self.assertEqual(y.tobytes(), x.tobytes())
            x.flags.writeable = False
            copy(x, y)
            with self.assertRaisesRegex(ValueError, "written to"):
                copy(y, x)
            with self.assertRaisesRegex(TypeError, "expected dtype"):
                copy(x, numpy.zeros(4, "u1"))
        with self.assertRaisesRegex(TypeError, "one element a byte"):
            copy_of("bf16")(numpy.zeros(4, ml_dtypes.int4), numpy.zeros(4, ml_dtypes.bfloat16))
        with self.assertRaises(quern.Error):
            copy_of("bf16")(numpy.zeros(4, ml_dtypes.float8_e3m4), numpy.zeros(4, ml_dtypes.bfloat16))

    @needs("tvm_ffi")
    def test_tvm_ffi(self):
        import tvm_ffi

        x, y = numpy.array([1, 2], "f4"), numpy.zeros(2, "f4")
        self.saxpy(3.0, tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y))
        self.assertEqual(list(y), [3, 6])


if __name__ == "__main__":
    support.main()
