# SPDX-License-Identifier: Apache-2.0
"""Nothing leaks: what is done over and over leaves as many references, objects and bytes as before.

Each case runs in rounds, until one leaves nothing: references of the objects it uses, blocks of Python, and bytes of malloc, among
which are those of libquern. The first rounds fill caches, and threads of the engine come and go; a leak shows in every round.
"""
import array
import asyncio
import ctypes
import gc
import sys
import unittest

import producers
import support
from support import SAXPY

import quern

COUNT = 50
MAX_ROUNDS = 40


class MallocInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
                                                     "fordblks", "keepcost")]


def malloc_bytes():
    """Bytes that malloc has given out; 0 where the C library does not say."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return 0
    mallinfo.restype = MallocInfo
    info = mallinfo()
    return info.uordblks + info.hblkhd


class Leaks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.module = quern.Module(SAXPY)
        cls.saxpy = cls.module["saxpy"]
        cls.x, cls.y = array.array("f", [1, 2]), array.array("f", [0, 0])
        cls.saxpy(1.0, cls.x, cls.y)

    def check(self, action, *watched, per_action=0):
        """`per_action`: bytes of malloc that each action may leave."""
        growth = []
        while len(growth) < MAX_ROUNDS:
            gc.collect()
            before = [sys.getrefcount(one) for one in watched] + [sys.getallocatedblocks(), malloc_bytes()]
            for _ in range(COUNT):
                action()
            gc.collect()
            after = [sys.getrefcount(one) for one in watched] + [sys.getallocatedblocks(), malloc_bytes()]
            growth.append([new - old for new, old in zip(after, before)])
            *counts, size = growth[-1]
            if max(counts) < COUNT // 2 and size < COUNT * (8 + per_action):
                return
        self.fail(f"each round leaves references (of {watched!r}), blocks of Python or bytes of malloc: {growth}")

    def refused(self, action, kind=Exception):
        def run():
            try:
                action()
            except kind:
                return
            self.fail("it is taken")

        return run

    def test_calls(self):
        saxpy, x, y = self.saxpy, self.x, self.y
        self.check(lambda: saxpy(2.0, x, y), x, y, saxpy)
        self.check(lambda: saxpy(y=y, x=x, a=2), x, y, saxpy)
        self.check(lambda: saxpy(2.0, memoryview(x), memoryview(y)), x, y)

    def test_refused_calls(self):
        saxpy, x, y = self.saxpy, self.x, self.y
        for args in ((2.0, x), (2.0, x, y, y), ("2", x, y), (2.0, None, y), (2.0, x, bytes(8)), (2.0, x, array.array("d", [1, 2])),
                     (2.0, x, array.array("f", [1])), (1 << 80, x, y), (2.0, x, x)):
            self.check(self.refused(lambda args=args: saxpy(*args)), x, y, None)
        self.check(self.refused(lambda: saxpy(2.0, x=x, z=y)), x, y)

    def test_producers(self):
        saxpy, y = self.saxpy, self.y

        class Wrong(producers.Modern):
            def __dlpack__(self, **unused):
                raise BufferError("no")

        for kind in (producers.Modern, producers.Old, producers.Exchanged):
            self.check(lambda kind=kind: saxpy(2.0, kind(1, 2), y), y, kind)
        self.check(self.refused(lambda: saxpy(2.0, Wrong(1, 2), y)), y, Wrong)

    def test_numpy(self):
        numpy = support.package("numpy")
        if not numpy:
            self.skipTest("needs NumPy")
        saxpy = self.saxpy
        x, y = numpy.ones(4, "f4"), numpy.ones(4, "f4")
        module = quern.Module("func f(x: f32[n], out y: f32[n], out z: f64[n]) { parallel i in 0..n { y[i] = x[i]; z[i] = 1.0; } }")
        self.check(lambda: saxpy(2.0, x, y), x, y, x.dtype)
        self.check(lambda: saxpy(2.0, x[::1], y), x, y, x.dtype)
        self.check(lambda: module["f"].new(x), x, x.dtype)
        y.flags.writeable = False
        self.check(self.refused(lambda: saxpy(2.0, x, y)), x, y, x.dtype)

    def test_modules(self):
        module = self.module
        self.check(lambda: quern.Module(SAXPY)["saxpy"], quern.Module, quern.Function)
        self.check(lambda: quern.Module.decode(module.bytes), module)
        self.check(lambda: module.specialize(n=4), module)
        self.check(self.refused(lambda: quern.Module("func f(x: f33[n]) {}", "name"), quern.ModuleError), quern.Module)
        self.check(self.refused(lambda: quern.Module.decode(b"none"), quern.Error))
        self.check(self.refused(lambda: module["nothing"], KeyError), module)
        self.check(lambda: (module.text, module.bytes, module.digest, module.functions, module._repr_html_()), module)

    def test_lookups(self):
        module = self.module
        self.check(lambda: module.compile("saxpy"), module)
        self.check(lambda: module.compile("saxpy").info, module)
        self.check(self.refused(lambda: module.compile("saxpy", "cpu -mcpu=none"), quern.Error), module)
        self.check(lambda: module.request("saxpy").result(), module)

        async def wait():
            return await module.request("saxpy")

        self.check(lambda: asyncio.run(wait()), module, per_action=64)

    def test_engines(self):
        def use():
            with quern.Engine("") as engine:
                engine.stats(), engine.metrics(), engine.config(), engine.stages()

        self.check(use, quern.Engine, per_action=64)
        self.check(self.refused(lambda: quern.Engine("", jit="maybe"), quern.Error), quern.Engine)
        engine = quern.default_engine()
        self.check(lambda: (engine.why(self.module), engine.entries(), engine._repr_html_()), engine, self.module)

    def test_streams(self):
        saxpy, x, y = self.saxpy, self.x, self.y
        stream = quern.Stream("cpu")

        def call():
            with stream:
                saxpy(1.0, x, y)
            stream.synchronize()

        self.check(call, stream, x, y)

        def make():
            with quern.Stream("cpu"), quern.device("cpu"):
                saxpy(1.0, x, producers.Modern(1, 2))

        self.check(make, x, y)
        self.check(self.refused(lambda: quern.Stream("nowhere"), quern.Error))

    def test_builder(self):
        def make():
            b = quern.Builder()
            with b.func("f"):
                n = b.symbol("n")
                y = b.buffer("y", "f32", [n], "out")
                with b.parallel("i", n) as i:
                    y[i] = b.sum(n, lambda j: b.f32(j) * 2.0)
            return b.module()

        self.check(make)


if __name__ == "__main__":
    support.main()
