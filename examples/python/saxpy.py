#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""saxpy on arrays of NumPy, torch and JAX, without copying them. What is not installed is said.

    python3 examples/python/saxpy.py
"""
import importlib

import quern

module = quern.Module("""
func saxpy(a: f32, x: f32[n], inout y: f32[n]) {
  parallel i in 0..n { y[i] = a * x[i] + y[i]; }
}
func scaled(a: f32, x: f32[n], out y: f32[n]) {
  parallel i in 0..n { y[i] = a * x[i]; }
}
""")


def on_numpy(numpy):
    x, y = numpy.arange(4, dtype="f4"), numpy.ones(4, "f4")
    module["saxpy"](2.0, x, y)
    return y, module["scaled"].new(10.0, x)  # `new` makes the `out` array


def on_torch(torch):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = torch.arange(4, dtype=torch.float32, device=device), torch.ones(4, device=device)
    module["saxpy"](2.0, x, y)  # on torch's current stream
    return y.cpu(), module["scaled"].new(10.0, x).cpu()


def on_jax(jax):
    import numpy

    # Arrays of JAX never change: quern reads them, and writes to arrays of NumPy.
    x, y = jax.numpy.arange(4, dtype="float32"), numpy.ones(4, "f4")
    module["saxpy"](2.0, x, y)
    out = numpy.empty(4, "f4")
    module["scaled"](10.0, x, out)
    return y, out


for name, run in (("numpy", on_numpy), ("torch", on_torch), ("jax", on_jax)):
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        print(f"{name}: not run: {error}")
        continue
    y, scaled = run(package)
    print(f"{name}: {[float(one) for one in y]} {[float(one) for one in scaled]}")
    assert [float(one) for one in y] == [1, 3, 5, 7] and [float(one) for one in scaled] == [0, 10, 20, 30]
print("the code came from:", module["saxpy"].info.source)
