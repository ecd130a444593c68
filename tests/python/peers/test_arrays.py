# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch and arrays of JAX as arguments: what tests/python does with stand-ins, with the frameworks themselves.

    PYTHONPATH=build/python PYTHON test_arrays.py      # PYTHON has torch and JAX; `tools/check python-peers` installs them
"""
import os
import tempfile
import unittest

FOLDER = tempfile.TemporaryDirectory(prefix="quern-peers-")
os.environ["QUERN_CACHE_DIR"] = os.path.join(FOLDER.name, "cache")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy
import numpy
import torch

import quern

TEXT = """
func saxpy(a: f32, x: f32[n], inout y: f32[n]) { parallel i in 0..n { y[i] = a * x[i] + y[i]; } }
func twice(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = 2.0 * x[i]; } }
func widen(x: bf16[n], out y: f32[n]) { parallel i in 0..n { y[i] = f32(x[i]); } }
"""


class Arrays(unittest.TestCase):
    def setUp(self):
        self.module = quern.Module(TEXT)

    def test_torch(self):
        x, y = torch.arange(4.0), torch.ones(4)
        self.module["saxpy"](2.0, x, y)
        self.assertEqual(y.tolist(), [1, 3, 5, 7])
        self.module["saxpy"](torch.tensor(2.0), x[1:], y[1:])
        self.assertEqual(y.tolist(), [1, 5, 9, 13])
        new = self.module["twice"].new(x)
        self.assertIsInstance(new, torch.Tensor)
        self.assertEqual(new.tolist(), [0, 2, 4, 6])
        self.assertEqual(self.module["widen"].new(x.to(torch.bfloat16)).tolist(), x.tolist())
        for bad, kind in ((x.double(), quern.ArgumentTypeError), (x.reshape(2, 2), quern.ArgumentTypeError), (x[::2], quern.ArgumentValueError)):
            with self.assertRaises(kind):
                self.module["twice"](bad, torch.empty(bad.shape[0]))

    def test_jax(self):
        x = jax.numpy.arange(4.0)
        y = numpy.ones(4, "f4")
        self.module["saxpy"](2.0, x, y)
        self.assertEqual(y.tolist(), [1, 3, 5, 7])
        with self.assertRaises(quern.Error):
            self.module["saxpy"](2.0, y, x)
        with self.assertRaises(TypeError):
            self.module["twice"].new(x)
        self.assertEqual(x.tolist(), [0, 1, 2, 3])

    def test_programs(self):
        plan = {"format": "quern program", "version": 1, "name": "twice", "results": 1,
                "values": [{"kind": "input", "name": "x", "dtype": "f32", "shape": ["n"]}, {"kind": "buffer", "dtype": "f32", "shape": ["n"]}],
                "calls": [{"kernel": "twice", "arguments": [0, 1]}]}
        program = quern.Program(TEXT, plan, {})
        found = program(torch.arange(6.0)[::2])
        self.assertIsInstance(found, torch.Tensor)
        self.assertEqual(found.tolist(), [0, 4, 8])
        found = program(jax.numpy.arange(3.0))
        self.assertIsInstance(found, numpy.ndarray)
        self.assertEqual(found.tolist(), [0, 2, 4])
        for bad in (torch.ones(3, requires_grad=True), torch.ones(3, dtype=torch.bfloat16), torch.ones(2, 2)):
            with self.assertRaises(quern.ArgumentTypeError):
                program(bad)
        same = {"kind": "input", "name": "x", "dtype": "bf16", "shape": ["n"]}
        copy = quern.Program("", dict(plan, values=[same], calls=[], results=[0, [0]]), {})
        given = torch.arange(4.0).to(torch.bfloat16)
        found, (again,) = copy(given)
        self.assertEqual((found.dtype, found.tolist()), (torch.bfloat16, given.tolist()))
        self.assertTrue(torch.equal(again, given))


if __name__ == "__main__":
    unittest.main(verbosity=1)
