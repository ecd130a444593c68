# SPDX-License-Identifier: Apache-2.0
"""Current devices and streams: streams of the CPU, which run calls in the background, and a GPU by Vulkan where there is one."""
import array
import ctypes
import gc
import threading
import unittest
import weakref

import producers
import support
from support import SAXPY

import quern

# Long enough that a call is running while the test goes on: about 30 ms.
SLOW = "func slow(n: i64, inout y: f32[1]) { for i in 0..n { y[0] = y[0] * 0.5 + 1.0; } }"


def library():
    """libquern as the extension has loaded it."""
    return ctypes.CDLL(support.libquern())


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class Copy(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("from_device", Device), ("source", ctypes.c_void_p), ("from_offset", ctypes.c_size_t),
                ("to_device", Device), ("to", ctypes.c_void_p), ("to_offset", ctypes.c_size_t), ("size", ctypes.c_size_t),
                ("is_pinned", ctypes.c_bool)]


class OnDevice(producers.Modern):
    """A vector of f32 in the memory of a device."""

    def __init__(self, type, *values):
        super().__init__(*values)
        self.library = library()
        self.device = Device(type, 0)
        self.pointer = ctypes.c_void_p()
        self.size = ctypes.sizeof(self.memory)
        assert not self.library.qn_device_allocate(self.device, ctypes.c_size_t(self.size), ctypes.c_size_t(0), ctypes.byref(self.pointer))
        self.copy(Device(1, 0), ctypes.addressof(self.memory), self.device, self.pointer)

    def copy(self, *ends):
        copy = Copy(ctypes.sizeof(Copy), ends[0], ends[1], 0, ends[2], ends[3], 0, self.size, False)
        assert not self.library.qn_device_copy(ctypes.byref(copy), None)

    def tensor(self):
        return producers.Tensor(self.pointer.value, self.device.type, 0, 1, 2, 32, 1, self.shape, None, 0)

    def __dlpack_device__(self):
        return (self.device.type, 0)

    def __iter__(self):
        self.copy(self.device, self.pointer, Device(1, 0), ctypes.addressof(self.memory))
        return iter(self.memory)

    def free(self):
        assert not self.library.qn_device_free(self.device, self.pointer)


class Names(unittest.TestCase):
    def test_device(self):
        one = quern.device("cuda:1")
        self.assertEqual((one.name, one.type, one.index, str(one)), ("cuda:1", "cuda", 1, "cuda:1"))
        self.assertEqual(quern.device("cpu"), quern.device("cpu:0"))
        self.assertEqual(quern.device(quern.device("cpu")), quern.device("cpu"))
        self.assertNotEqual(quern.device("cpu"), "cpu:0")

        class OfTorch:
            type, index = "cuda", None

        self.assertEqual(quern.device(OfTorch()).name, "cuda:0")
        self.assertEqual(quern.current_device().name, "cpu:0")

    def test_bad_names(self):
        for name, kind, words in (("gpu:0", quern.NotFound, "gpu"), ("cpu:x", quern.SyntaxError, "cpu:x"), (3, TypeError, "got int")):
            with self.assertRaises(kind) as caught:
                quern.device(name)
            self.assertIn(words, str(caught.exception))
        with self.assertRaises(quern.NotFound):
            with quern.device("cpu:7"):
                self.fail()
        self.assertEqual(quern.current_device().name, "cpu:0")

    def test_bad_streams(self):
        for make, kind, words in ((lambda: quern.Stream("nowhere"), quern.NotFound, "nowhere"), (lambda: quern.Stream(4), TypeError, "got int"),
                                  (lambda: quern.Stream("cpu", native="s"), TypeError, "got str"),
                                  (lambda: quern.Stream("cpu", native=True), TypeError, "got bool"),
                                  (lambda: quern.Stream("cpu", native=64), quern.Unsupported, "cpu"),
                                  (lambda: quern.Stream("cpu").wait(None), TypeError, "got NoneType")):
            with self.assertRaises(kind) as caught:
                make()
            self.assertIn(words, str(caught.exception))


    def test_wrapped_streams_keep_what_they_wrap(self):
        class OfFramework:
            cuda_stream = 0  # the default one

        given = OfFramework()
        gone = weakref.ref(given)
        stream = quern.Stream("cpu", native=given)
        del given
        gc.collect()
        self.assertTrue(stream.is_default)
        self.assertIsNotNone(gone())
        del stream
        gc.collect()
        self.assertIsNone(gone())


class Streams(unittest.TestCase):
    def setUp(self):
        self.slow = quern.Module(SLOW)["slow"]
        self.slow(1, array.array("f", [0]))
        self.saxpy = quern.Module(SAXPY)["saxpy"]
        self.saxpy(1.0, array.array("f", [0]), array.array("f", [0]))

    def test_order(self):
        stream = quern.Stream("cpu")
        y = array.array("f", [0])
        with stream:
            self.assertEqual(quern.current_stream(), stream)
            self.slow(10_000_000, y)
            self.saxpy(1.0, array.array("f", [0]), y)
            self.saxpy(10.0, array.array("f", [1]), y)
        self.assertTrue(quern.current_stream().is_default)
        stream.synchronize()
        self.assertTrue(stream.is_idle)
        self.assertAlmostEqual(y[0], 12, delta=1e-3)
        self.assertEqual((stream.device, stream.native), ("cpu:0", None))

    def test_arguments_stay(self):
        stream = quern.Stream("cpu")
        x = producers.Modern(1.0)
        gone = weakref.ref(x)
        y = array.array("f", [0])
        plain = bytearray(4)
        with stream:
            self.slow(10_000_000, y)
            self.saxpy(3.0, x, y)
            self.slow(1, memoryview(plain).cast("f"))
            deleted = x.deleted
            del x
            with self.assertRaises(BufferError):  # its memory is in use
                plain.extend(b"more")
        gc.collect()
        self.assertTrue(deleted == 1 or gone() is not None or stream.is_idle)
        stream.synchronize()
        gc.collect()
        self.assertIsNone(gone())
        plain.extend(b"more")
        self.assertAlmostEqual(y[0], 5, delta=1e-3)

    def test_many_calls(self):
        y = array.array("f", [0])
        with quern.Stream("cpu") as stream:
            for _ in range(5000):
                self.saxpy(1.0, array.array("f", [1]), y)
        stream.synchronize()
        self.assertEqual(y[0], 5000)

    def test_threads_share_a_stream(self):
        # Some wait for the stream and find it idle, while others call.
        stream = quern.Stream("cpu")
        sums = [array.array("f", [0]) for _ in range(3)]

        def work(y):
            for i in range(300):
                with stream:
                    self.saxpy(1.0, producers.Modern(1), y)
                if i % 3 == 0:
                    stream.synchronize()

        threads = [threading.Thread(target=work, args=(y,)) for y in sums]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        stream.synchronize()
        self.assertEqual([y[0] for y in sums], [300] * 3)

    def test_the_end_of_a_stream_waits(self):
        y = array.array("f", [0])
        with quern.Stream("cpu"):
            self.slow(10_000_000, y)
        gc.collect()
        self.assertAlmostEqual(y[0], 2, delta=1e-3)

    def test_wait(self):
        one, two = quern.Stream("cpu"), quern.Stream("cpu")
        y = array.array("f", [0])
        with one:
            self.slow(10_000_000, y)
        two.wait(one)
        with two:
            self.saxpy(1.0, array.array("f", [5]), y)
        two.synchronize()
        self.assertAlmostEqual(y[0], 7, delta=1e-3)
        one.synchronize()

    def test_errors_come_with_synchronize(self):
        module = quern.Module('func fails(inout y: f32[1]) { assert y[0] > 0.0, "not so"; y[0] = 1.0; }')
        with quern.Stream("cpu") as stream:
            module["fails"](array.array("f", [-1]))
            with self.assertRaises(ValueError):  # what a call checks, it raises itself
                module["fails"](array.array("f", [1, 2]))
        with self.assertRaises(quern.AssertionFailed) as caught:
            stream.synchronize()
        self.assertIn("not so", str(caught.exception))
        stream.synchronize()

    def test_new(self):
        module = quern.Module("func fill(n: i64, v: f32, out y: f32[n]) { parallel i in 0..n { y[i] = v; } }")
        if support.package("numpy"):
            with quern.device("cpu"):
                self.assertEqual(module["fill"].new(2, 3.0).tolist(), [3, 3])

    def test_nesting(self):
        one, two = quern.Stream("cpu"), quern.Stream("cpu")
        with one, one, two:
            self.assertEqual(quern.current_stream(), two)
            with quern.device("cpu"):
                self.assertEqual(quern.current_stream(), two)  # as frameworks have it: the device keeps its stream
            with quern.current_stream("cpu"):
                self.assertEqual(quern.current_stream(), two)
        self.assertTrue(quern.current_stream().is_default)
        with self.assertRaises(ZeroDivisionError):
            with one:
                1 // 0
        self.assertTrue(quern.current_stream().is_default)
        one.__enter__()
        two.__enter__()
        with self.assertRaises(RuntimeError) as caught:
            one.__exit__(None, None, None)
        self.assertIn("reverse order", str(caught.exception))
        self.assertEqual(quern.current_stream(), two)
        two.__exit__(None, None, None)
        one.__exit__(None, None, None)
        self.assertRaises(RuntimeError, one.__exit__, None, None, None)

    def test_threads_have_their_own(self):
        seen = []
        with quern.Stream("cpu") as stream:
            thread = threading.Thread(target=lambda: seen.append((quern.current_stream(), quern.current_device().name)))
            thread.start()
            thread.join()
            self.assertTrue(seen[0][0].is_default)
            self.assertNotEqual(seen[0][0], stream)
            self.assertEqual(seen[0][1], "cpu:0")

    def test_exit_while_a_stream_runs(self):
        done = support.run(f"""
import array, quern, sys
slow = quern.Module({SLOW!r})["slow"]
slow(1, array.array("f", [0]))
sys.kept = quern.Stream("cpu")
sys.kept.__enter__()
slow(100_000_000, array.array("f", [0]))
""")
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Vulkan(unittest.TestCase):
    def setUp(self):
        if library().qn_device_count(7) == 0:
            self.skipTest("there is no Vulkan device")
        self.x, self.y = OnDevice(7, 1, 2, 3), OnDevice(7, 10, 20, 30)
        self.saxpy = quern.Module(SAXPY)["saxpy"]

    def tearDown(self):
        self.x.free()
        self.y.free()

    def test_streams(self):
        with quern.device("vulkan"):
            self.assertEqual(quern.current_device().name, "vulkan:0")
            stream = quern.Stream()
            bound = quern.Module(SAXPY).compile("saxpy")
        self.assertEqual(stream.device, "vulkan:0")
        with stream:
            self.saxpy(2.0, self.x, self.y)
            bound(1.0, self.x, self.y)
        stream.synchronize()
        self.assertEqual(list(self.y), [13, 26, 39])
        # A host that is not in the `with` is on the default stream, which is ordered by `wait`.
        default = quern.current_stream("vulkan")
        default.wait(stream)
        self.saxpy(1.0, self.x, self.y)
        default.synchronize()
        self.assertEqual(list(self.y), [14, 28, 42])

    def test_nothing_allocates(self):
        module = quern.Module("func fill(n: i64, out y: f32[n]) { parallel i in 0..n { y[i] = 1.0; } }")
        with quern.device("vulkan"):
            with self.assertRaises(TypeError) as caught:
                module["fill"].new(4)
        self.assertIn("no framework here allocates on vulkan:0", str(caught.exception))


if __name__ == "__main__":
    support.main()
