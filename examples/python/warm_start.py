#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A warm start, measured: three processes run softmax. The first compiles it, the others find it in the cache directory.

    python3 examples/python/warm_start.py

Each line has the time from `import quern` to the first result, and where the code came from. A process that finds its code loads
no compiler.
"""
import pathlib
import subprocess
import sys
import tempfile
import time

SOFTMAX = pathlib.Path(__file__).resolve().parents[1] / "ir/softmax.qn"


def serve(cache):
    import numpy

    start = time.perf_counter()
    import quern

    softmax = quern.Module.from_file(SOFTMAX, engine=quern.Engine(cache))["softmax"]
    y = softmax.new(numpy.ones((4, 64), "f4"))
    seconds = time.perf_counter() - start
    assert numpy.allclose(y, 1 / 64)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        compiler = "a compiler" if "libquern-llvm" in maps.read() else "no compiler"
    print(f"{softmax.info.source}: first result after {seconds * 1e3:.1f} ms, compiling took {softmax.info.compile_s * 1e3:.1f} ms, "
          f"{compiler} is loaded", flush=True)


if len(sys.argv) > 1:
    serve(sys.argv[1])
else:
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(3):
            subprocess.run([sys.executable, __file__, folder + "/cache"], check=True)
