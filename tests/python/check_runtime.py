# SPDX-License-Identifier: Apache-2.0
"""What the two distributions do together, and what quern-runtime does alone. python/make-wheels runs it.

    check_runtime.py make FOLDER     with generators: compiles a kernel, which the next process finds on disk, and exports it
    check_runtime.py check FOLDER    without: runs the kernel of the bundle, and refuses to compile others
"""
import array
import ctypes
import glob
import os
import subprocess
import sys

import support

import quern

COMMAND = os.environ["QUERN_COMMAND"]


def command(*args, **environment):
    return subprocess.run([COMMAND, *args], check=True, text=True, stdout=subprocess.PIPE, env=dict(os.environ, **environment)).stdout


def is_mapped(name):
    with open("/proc/self/maps", encoding="utf-8") as file:
        return name in file.read()


def saxpy(engine):
    """Calls saxpy, and returns where its code came from."""
    y = array.array("f", [1, 2])
    function = quern.Module(support.SAXPY, engine=engine)["saxpy"]
    function(2.0, array.array("f", [10, 20]), y)
    assert list(y) == [21, 42], y
    return function.info.source


def make(folder):
    cache = os.path.join(folder, "cache")
    with quern.Engine(cache) as engine:
        source = saxpy(engine)
        assert source == "compiled", source
        assert engine.flush(60)
    # LLVM lies in the generator, not beside it.
    assert is_mapped("libquern-llvm.so") and not is_mapped("libLLVM")
    subprocess.run([sys.executable, __file__, "again", folder], check=True)
    command("cache", "export", os.path.join(folder, "kernels.qnb"), QUERN_CACHE_DIR=cache)


def again(folder):
    """The identity that keys name is the one that the opened generator had: this is a hit, and opens none."""
    with quern.Engine(os.path.join(folder, "cache")) as engine:
        source = saxpy(engine)
        assert source == "disk", source
    assert not is_mapped("libquern-llvm.so")


def check(folder):
    modules = glob.glob(os.path.join(os.path.dirname(quern.__file__), "lib", "quern", "*.so"))
    names = sorted(os.path.basename(one) for one in modules)
    assert names == ["libquern-redis.so", "libquern-sodium.so"], names
    assert quern.__version__ in command("version")
    with quern.Engine("", bundles=[os.path.join(folder, "kernels.qnb")]) as engine:
        source = saxpy(engine)
        assert source == "bundle", source
        try:
            quern.Module(support.SAXPY.replace("a * x", "3.0 * a * x"), engine=engine).compile("saxpy")
        except quern.Unavailable as error:
            assert "libquern-llvm.so" in str(error), error
        else:
            raise AssertionError("a kernel was compiled without a code generator")
    # The modules of the cache find libsodium and hiredis.
    for one in modules:
        ctypes.CDLL(one, os.RTLD_NOW)


if __name__ == "__main__":
    {"make": make, "again": again, "check": check}[sys.argv[1]](sys.argv[2])
