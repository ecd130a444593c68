# SPDX-License-Identifier: Apache-2.0
"""Imported functions that quern's verifier refuses: they leave the others' text valid. TVM is not needed."""
import unittest
from unittest import mock

import support

import quern
import quern.tvm
from quern.tvm import emit

TEXTS = {
    "good": "func good(out y: f32[4]) {\n  parallel i in 0..4 {\n    y[i] = 1.0;\n  }\n}\n",
    "racy": "func racy(out y: f32[4]) {\n  parallel i in 0..4 {\n    y[0] = 1.0;\n  }\n}\n",
    "rank": "func rank(out y: f32[4]) {\n  y[0, 0] = 1.0;\n}\n",
}


def function(adapter, func, name, door, names):
    return emit.Kernel(name, ("y",), ("y",), ("y",)), TEXTS[name]


class Refusals(unittest.TestCase):
    def test_invalid_functions_are_refused_by_name(self):
        with mock.patch.object(quern.tvm._adapters, "find"), mock.patch.object(emit, "function", function):
            imported = quern.tvm._import(TEXTS, "auto")
        self.assertEqual(list(imported.kernels), ["good"])
        self.assertEqual(list(quern.Module(imported.text)), ["good"])
        self.assertEqual(sorted(imported.refused), ["racy", "rank"])
        self.assertEqual(imported.refused["racy"].reason, "not valid in quern (QN0228)")
        self.assertIn("two iterations of 'parallel'", imported.refused["racy"].detail)
        self.assertEqual(imported.refused["rank"].reason, "not valid in quern (QN0119)")


if __name__ == "__main__":
    support.main()
