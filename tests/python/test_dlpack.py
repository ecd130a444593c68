# SPDX-License-Identifier: Apache-2.0
"""Tensors by DLPack: the exchange interface of a type, and the method __dlpack__."""
import gc
import sys
import unittest
import weakref

import support
from producers import Exchanged, ExchangedLater, Modern, Old, new_capsule
from support import SAXPY

import quern


class Producers(unittest.TestCase):
    def setUp(self):
        self.saxpy = quern.Module(SAXPY)["saxpy"]

    def test_method(self):
        x, y = Modern(1, 2), Modern(10, 20)
        self.saxpy(2.0, x, y)
        self.assertEqual(list(y), [12, 24])
        # The CPU has no streams to wait for.
        self.assertEqual(y.asked, [(None, (1, 3))])
        self.assertEqual((x.deleted, y.deleted), (1, 1))

    def test_method_from_before_versions(self):
        x, y = Old(1, 2), Old(10, 20)
        self.saxpy(2.0, x, y)
        self.assertEqual(list(y), [12, 24])
        self.assertEqual((x.deleted, y.deleted), (1, 1))

    def test_read_only_and_copies(self):
        class ReadOnly(Modern):
            flags = 1

        class Copied(Modern):
            flags = 2

        class Padded(Modern):
            flags = 4

        y = Modern(0, 0)
        self.saxpy(1.0, ReadOnly(1, 2), y)
        self.saxpy(1.0, Copied(1, 2), y)
        self.assertEqual(list(y), [2, 4])
        for bad, kind, words in ((ReadOnly, ValueError, "read-only"), (Copied, ValueError, "a copy"), (Padded, TypeError, "not packed")):
            with self.assertRaises(kind) as caught:
                self.saxpy(1.0, y, bad(0, 0))
            self.assertIn("argument 2 'y'", str(caught.exception))
            self.assertIn(words, str(caught.exception))

    def test_refused(self):
        class Later(Modern):
            version = (2, 0)

        class Wrong(Modern):
            def __dlpack__(self, **unused):
                return 3

        class Foreign(Modern):
            def __dlpack__(self, **unused):
                return new_capsule(1, b"something", None)

        class Raises(Modern):
            def __dlpack__(self, **unused):
                raise BufferError("this one does not export")

        class NoDevice(Modern):
            def __dlpack_device__(self):
                return ()

        y = Modern(0, 0)
        for bad, words in ((Later, "version 2.0"), (Wrong, "no capsule"), (Foreign, "no capsule"), (Raises, "this one does not export"),
                           (NoDevice, "no tensor")):
            with self.assertRaises(quern.Error) as caught:
                self.saxpy(1.0, bad(1, 2), y)
            self.assertIn("argument 1 'x'", str(caught.exception))
            self.assertIn(words, str(caught.exception))

    def test_interrupts_pass(self):
        class Interrupted(Modern):
            def __dlpack__(self, **unused):
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.saxpy(1.0, Interrupted(1), Modern(1))

    def test_exchange(self):
        for kind in (Exchanged, ExchangedLater):
            x, y = kind(1, 2), kind(10, 20)
            self.saxpy(2.0, x, y)
            self.assertEqual(list(y), [12, 24])
            self.assertEqual((x.borrowed, x.asked, x.deleted), (1, [], 0))

    def test_exchange_that_is_none(self):
        class Other(Modern):
            __dlpack_c_exchange_api__ = "no capsule"

        y = Other(1, 2)
        self.saxpy(1.0, Modern(1, 2), y)
        self.assertEqual(list(y), [2, 4])

    def test_types_are_remembered_right(self):
        # More types than the table has places, which come and go: each is taken as what it is.
        for i in range(300):
            kind = type(f"Kind{i}", (Modern,) if i % 2 else (Exchanged,), {})
            y = kind(0, 0)
            self.saxpy(1.0, Modern(1, 2), y)
            self.assertEqual(list(y), [1, 2])
        gone = weakref.ref(type("Plain", (), {})())
        self.assertIsNone(gone())
        gc.collect()

    def test_errors_release_what_is_held(self):
        x = Modern(1, 2)
        count = sys.getrefcount(x)
        for _ in range(50):
            with self.assertRaises(TypeError):
                self.saxpy(1.0, x, "no tensor")
        self.assertEqual(x.deleted, 50)
        x.kept.clear()
        gc.collect()
        self.assertEqual(sys.getrefcount(x), count)


if __name__ == "__main__":
    support.main()
