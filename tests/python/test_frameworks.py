# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch and arrays of JAX, where they are installed (`tools/check python-peers` does: they are gigabytes)."""
import unittest

import support
from support import SAXPY

import quern

SCALED = "func scaled(a: f32, x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = a * x[i]; } }"
CONVERT = "func convert(x: bf16[n, m] strides [s, t], out y: f32[n, m]) { for i in 0..n { for j in 0..m { y[i, j] = f32(x[i, j]); } } }"


class Refusals:
    def refused(self, kind, words, call, *args):
        with self.assertRaises(kind) as caught:
            call(*args)
        self.assertIsInstance(caught.exception, quern.Error)
        for one in words:
            self.assertIn(one, str(caught.exception))


@support.needs("torch")
class Torch(Refusals, unittest.TestCase):
    def setUp(self):
        import torch

        self.torch = torch
        self.saxpy = quern.Module(SAXPY)["saxpy"]

    def test_calls(self):
        torch = self.torch
        x, y = torch.arange(4.0), torch.ones(4)
        self.saxpy(2.0, x, y)
        self.assertEqual(y.tolist(), [1, 3, 5, 7])
        self.saxpy(torch.tensor(2.0), x, y)  # a number is a tensor of one element
        self.assertEqual(y.tolist(), [1, 5, 9, 13])
        part = torch.zeros(8)[2:6]
        self.saxpy(1.0, x, part)
        self.assertEqual(part.tolist(), [0, 1, 2, 3])

    def test_new(self):
        torch = self.torch
        y = quern.Module(SCALED)["scaled"].new(3.0, torch.arange(3.0))
        self.assertIsInstance(y, torch.Tensor)
        self.assertEqual(y.tolist(), [0, 3, 6])

    def test_dtypes_and_strides(self):
        torch = self.torch
        x = torch.arange(6.0).reshape(2, 3).to(torch.bfloat16)
        convert = quern.Module(CONVERT)["convert"]
        self.assertEqual(convert.new(x).tolist(), [[0, 1, 2], [3, 4, 5]])
        self.assertEqual(convert.new(x.t()).tolist(), [[0, 3], [1, 4], [2, 5]])

    def test_refused(self):
        torch = self.torch
        x, y = torch.ones(4), torch.ones(4)
        self.refused(TypeError, ["argument 1 'x'", "f64"], self.saxpy, 1.0, torch.ones(4, dtype=torch.float64), y)
        self.refused(ValueError, ["argument 2 'y'", "extent 0"], self.saxpy, 1.0, x, torch.ones(3))
        self.refused(ValueError, ["argument 2 'y'", "stride"], self.saxpy, 1.0, x, torch.ones(8)[::2])
        self.refused(ValueError, ["argument 1 'x'"], self.saxpy, 1.0, torch.ones(4).to_sparse(), y)
        self.refused(quern.Error, ["argument 1 'x'"], self.saxpy, 1.0, torch.ones(4, device="meta"), y)

    def test_gradients(self):
        # Torch's interface for C hands such tensors over; its gradients do not know of the call.
        torch = self.torch
        x, y = torch.ones(4, requires_grad=True), torch.zeros(4)
        self.saxpy(2.0, x, y)
        self.assertEqual((y.tolist(), y.requires_grad), ([2] * 4, False))

    def test_streams_of_the_cpu(self):
        torch = self.torch
        y = torch.zeros(4)
        with quern.Stream("cpu") as stream:
            for _ in range(10):
                self.saxpy(1.0, torch.ones(4), y)
        stream.synchronize()
        self.assertEqual(y.tolist(), [10] * 4)


@support.needs("jax", "numpy")
class Jax(Refusals, unittest.TestCase):
    def setUp(self):
        import jax
        import numpy

        self.jax, self.numpy = jax, numpy
        self.saxpy = quern.Module(SAXPY)["saxpy"]

    def test_reads(self):
        y = self.numpy.ones(4, "f4")
        self.saxpy(2.0, self.jax.numpy.arange(4, dtype="float32"), y)
        self.assertEqual(y.tolist(), [1, 3, 5, 7])
        convert = quern.Module(CONVERT)["convert"]
        out = self.numpy.empty((2, 3), "f4")
        convert(self.jax.numpy.arange(6, dtype="bfloat16").reshape(2, 3), out)
        self.assertEqual(out.tolist(), [[0, 1, 2], [3, 4, 5]])

    def test_cannot_be_written_to(self):
        x = self.jax.numpy.ones(4, "float32")
        self.refused(ValueError, ["argument 2 'y'", "read-only"], self.saxpy, 1.0, x, x + 1)
        with self.assertRaises(TypeError) as caught:
            quern.Module(SCALED)["scaled"].new(1.0, x)
        self.assertIn("arrays of JAX cannot be written to", str(caught.exception))

    def test_deleted(self):
        x = self.jax.numpy.ones(4, "float32") + 1
        x.delete()
        self.refused(ValueError, ["argument 1 'x'", "it gives no tensor"], self.saxpy, 1.0, x, self.numpy.ones(4, "f4"))


if __name__ == "__main__":
    support.main()
