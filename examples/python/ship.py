#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A cache shipped as a bundle: a build machine compiles and writes one file, with which another process runs without a compiler.

    python3 examples/python/ship.py
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import quern

IR = pathlib.Path(__file__).resolve().parents[1] / "ir"


def build(folder):
    """On the build machine: compiles what the service needs, in worker processes, and writes the bundle."""
    with quern.Engine(folder / "cache", ignores_environment=True) as engine:
        modules = [quern.Module.from_file(IR / name, engine=engine) for name in ("softmax.qn", "gelu.qn")]
        warm = engine.warm(modules, on_progress=lambda done, total, item: item and print(f"{done}/{total} {item.name} {item.outcome}"),
                           command=os.environ.get("QUERN_COMMAND"))
        assert not warm.problems and all(not item.error for item in warm.items), warm
        keys = [module.compile(name).info.key for module in modules for name in module]
        print("entries in the bundle:", engine.write_bundle(folder / "kernels.qnb", keys=keys))


def serve(bundle):
    """In the image: nowhere to write, and no compiler is allowed."""
    import numpy

    engine = quern.Engine("", bundles=[bundle], jit="forbid", ignores_environment=True)
    softmax = quern.Module.from_file(IR / "softmax.qn", engine=engine)["softmax"]
    print("the sum of a row:", softmax.new(numpy.ones((1, 8), "f4")).sum(), "by code from the", softmax.info.source)
    assert softmax.info.source == "bundle"
    saxpy = quern.Module.from_file(IR / "saxpy.qn", engine=engine)
    try:
        saxpy.compile("saxpy")
    except quern.CompileForbidden as error:
        print("what is not in it is an error at once:", str(error)[:100])
    print("and why:", str(engine.why(saxpy)).splitlines()[0])


if len(sys.argv) > 1:
    serve(sys.argv[1])
else:
    with tempfile.TemporaryDirectory() as name:
        build(pathlib.Path(name))
        subprocess.run([sys.executable, __file__, name + "/kernels.qnb"], check=True)
