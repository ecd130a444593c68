# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch and arrays of JAX as inputs of programs. Those of functions are for tests/python/test_frameworks.py.

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
func twice(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = 2.0 * x[i]; } }
"""


class Arrays(unittest.TestCase):
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
