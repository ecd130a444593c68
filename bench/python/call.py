#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of a call from Python: saxpy on four elements, beside what else computes it.

    python3 bench/python/call.py [--package FOLDER]    FOLDER: build/python; else the installed package

NumPy is needed; numba, tvm-ffi, torch and JAX are measured where they are installed. The rows take turns, round after round,
so that a loaded machine slows all of them, and a round is short enough to fall between two interruptions. A row has the least time of all rounds, and its ratio to numpy.add.
"""
import argparse
import ctypes
import importlib
import sys
import timeit

SAXPY = "func saxpy(a: f32, x: f32[n], inout y: f32[n]) { parallel i in 0..n { y[i] = a * x[i] + y[i]; } }"


def optional(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def rows(quern, numpy):
    x, y = numpy.ones(4, "f4"), numpy.ones(4, "f4")
    saxpy = quern.Module(SAXPY)["saxpy"]
    yield "quern, NumPy", lambda: saxpy(2.0, x, y)
    mx, my = memoryview(x), memoryview(y)
    yield "quern, memoryview", lambda: saxpy(2.0, mx, my)
    yield "numpy.add(out=)", lambda: numpy.add(x, y, out=y)
    # A call of C by ctypes with the arguments made beforehand: of the cheapest function that there is.
    labs = ctypes.CDLL(None).labs
    one = ctypes.c_long(1)
    yield "ctypes, nothing converted", lambda: labs(one)
    numba = optional("numba")
    if numba:
        @numba.njit("void(f4, f4[::1], f4[::1])")
        def compiled(a, x, y):
            for i in range(x.shape[0]):
                y[i] = a * x[i] + y[i]

        yield "numba", lambda: compiled(2.0, x, y)
    tvm_ffi = optional("tvm_ffi")
    if tvm_ffi:
        function = tvm_ffi.convert(lambda a, x, y: None)
        tx, ty = tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y)
        yield "quern, tvm-ffi tensors", lambda: saxpy(2.0, tx, ty)
        yield "tvm-ffi, a function of Python", lambda: function(2.0, tx, ty)
        of_ffi = saxpy.as_tvm_ffi()
        yield "quern by tvm-ffi, its tensors", lambda: of_ffi(2.0, tx, ty)
        yield "quern by tvm-ffi, NumPy", lambda: of_ffi(2.0, x, y)
        echo = tvm_ffi.get_global_func("testing.nop", allow_missing=True)
        if echo:
            yield "tvm-ffi, an empty function of C++", lambda: echo(2.0, tx, ty)
    torch = optional("torch")
    if torch:
        px, py = torch.ones(4), torch.ones(4)
        yield "quern, torch", lambda: saxpy(2.0, px, py)
        yield "torch.add(out=)", lambda: torch.add(px, py, out=py)
    jax = optional("jax")
    if jax:
        jx, jy = jax.numpy.ones(4), jax.numpy.ones(4)
        jitted = jax.jit(lambda a, x, y: a * x + y)
        yield "jax.jit", lambda: jitted(2.0, jx, jy)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", help="folder of the package")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--calls", type=int, default=300)
    args = parser.parse_args()
    if args.package:
        sys.path.insert(0, args.package)
    import numpy
    import quern

    empty = timeit.Timer(lambda: None)
    measured = [(name, timeit.Timer(call)) for name, call in rows(quern, numpy)]
    least = {name: float("inf") for name, _ in measured}
    overhead = float("inf")
    for _ in range(args.rounds):
        overhead = min(overhead, empty.timeit(args.calls) / args.calls)
        for name, timer in measured:
            least[name] = min(least[name], timer.timeit(args.calls) / args.calls)
    base = least["numpy.add(out=)"] - overhead
    print(f"{'ns a call':>10}  {'of numpy.add':>12}")
    for name, seconds in least.items():
        print(f"{(seconds - overhead) * 1e9:10.0f}  {(seconds - overhead) / base:12.2f}  {name}")


if __name__ == "__main__":
    main()
