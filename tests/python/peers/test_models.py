# SPDX-License-Identifier: Apache-2.0
"""Whole models of ONNX and torch by way of TVM: compared with their own frameworks, at once and from a saved folder.

    PYTHONPATH=build/python PYTHON test_models.py      # PYTHON has apache-tvm, onnx and torch; `tools/check python-peers` installs them

The saved folder runs in a process that finds neither TVM nor torch nor a code generator. Results agree with the frameworks within
1e-5 of the largest element: sums have another order.
"""
import os
import subprocess
import sys
import tempfile
import time
import unittest

FOLDER = tempfile.TemporaryDirectory(prefix="quern-peers-")
os.environ["QUERN_CACHE_DIR"] = os.path.join(FOLDER.name, "cache")

import numpy
import tvm
from tvm import relax

import models
import quern
import quern.tvm

TOLERANCE = 1e-5

# What runs a saved folder: arguments are the folder, a file of inputs, and a file for results.
SHIPPED = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tvm", "tvm_ffi", "torch", "onnx"):
            raise ImportError(name)
sys.meta_path.insert(0, Finder())
import numpy, quern
program = quern.load_program(sys.argv[1], jit="forbid")
given = numpy.load(sys.argv[2])
results = {}
for call in range(len(given) // len(program.inputs)):
    found = program(*(given[f"{call}_{i}"] for i in range(len(program.inputs))))
    for i, one in enumerate(found if isinstance(found, tuple) else (found,)):
        results[f"{call}_{i}"] = one
with open("/proc/self/maps") as maps:
    text = maps.read()
assert "libLLVM" not in text and "quern-llvm" not in text and "libtvm" not in text, "a compiler is mapped"
numpy.savez(sys.argv[3], **results)
"""


def tensor(name, shape, dtype="float32"):
    return relax.Var(name, (getattr(relax, "TensorStructInfo", None) or relax.TensorType)(shape, dtype))


def built(params, make):
    """A module whose main function returns what `make` emits."""
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(make(builder))
    return builder.get()


class Models(unittest.TestCase):
    def close(self, found, expected, what):
        found, expected = (one if isinstance(one, tuple) else (one,) for one in (found, expected))
        self.assertEqual(len(found), len(expected), what)
        for one, other in zip(found, expected):
            self.assertEqual((one.shape, one.dtype), (other.shape, other.dtype), what)
            self.assertTrue(numpy.isfinite(one).all(), what)
            worst = float(abs(one - other).max()) / float(abs(other).max())
            self.assertLessEqual(worst, TOLERANCE, what)

    def check_model(self, name, importer):
        model, expected, inputs = getattr(models, name)()
        began = time.monotonic()
        program = importer(model)
        imported = time.monotonic()
        program.compile()
        compiled = time.monotonic()
        wanted = [expected(*one) for one in inputs]
        for arrays, result in zip(inputs, wanted):
            self.close(program(*arrays), result, name)
        folder = os.path.join(FOLDER.name, name)
        program.save(folder)
        empty = os.path.join(FOLDER.name, "empty")
        os.makedirs(empty, exist_ok=True)
        given, results = (os.path.join(FOLDER.name, f"{name}-{end}.npz") for end in ("in", "out"))
        numpy.savez(given, **{f"{call}_{i}": one for call, arrays in enumerate(inputs) for i, one in enumerate(arrays)})
        environment = dict(os.environ, QUERN_GENERATOR_DIR=empty, QUERN_CACHE_DIR="")
        subprocess.run([sys.executable, "-c", SHIPPED, folder, given, results], env=environment, check=True)
        shipped = numpy.load(results)
        for call, result in enumerate(wanted):
            count = len(result) if isinstance(result, tuple) else 1
            found = tuple(shipped[f"{call}_{i}"] for i in range(count))
            self.close(found if isinstance(result, tuple) else found[0], result, f"{name} from its folder")
        print(f"{name}: {len(program.plan['calls'])} calls, {len(program.weights)} weights; imported in {imported - began:.1f} s, compiled in "
              f"{compiled - imported:.1f} s; a call takes {least(program, inputs[0])} ms, the framework's {least(expected, inputs[0])} ms", flush=True)

    def test_cnn(self):
        self.check_model("cnn", quern.tvm.from_onnx)

    def test_bert(self):
        self.check_model("bert", quern.tvm.from_torch)

    def test_transformer(self):
        self.check_model("transformer", quern.tvm.from_torch)


def least(function, arrays):
    """The least time of five calls, as text: a loaded machine is slow, and the frameworks have threads of their own."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        function(*arrays)
        times.append(time.perf_counter() - began)
    return f"{min(times) * 1e3:.2f}"


class Relax(unittest.TestCase):
    def setUp(self):
        self.n = tvm.tirx.Var("n", "int64")

    def test_symbols_views_and_tuples(self):
        n = self.n
        x, w = tensor("x", (n, 64)), tensor("w", (64, 32))

        def make(builder):
            with builder.dataflow():
                y = builder.emit(relax.op.nn.softmax(builder.emit(relax.op.matmul(x, w))))
                pairs = builder.emit(relax.op.reshape(y, (n * 2, 16)))
                half = builder.emit(relax.op.split(pairs, 2, axis=1))
                more = builder.emit(relax.op.add(builder.emit(half[0]), relax.const(1.0, "float32")))
                twos = builder.emit(relax.op.full((n, 16), relax.const(2.0, "float32"), "float32"))
                out = builder.emit_output((more, y, twos, pairs))
            return out

        module = built([x, w], make)
        random = numpy.random.default_rng(0)
        weight = random.standard_normal((64, 32)).astype("f4")
        program = quern.tvm.from_relax(module, params={"w": weight})
        self.assertEqual((program.symbols, [one.name for one in program.inputs]), (("n",), ["x"]))
        self.assertIn("view", [one["kind"] for one in program.plan["values"]])
        for rows in (1, 6):
            value = random.standard_normal((rows, 64)).astype("f4")
            y = numpy.exp(value @ weight)
            y /= y.sum(1, keepdims=True)
            more, softmax, twos, pairs = program(value)
            numpy.testing.assert_allclose(softmax, y, rtol=1e-4, atol=1e-6)
            numpy.testing.assert_array_equal(pairs, softmax.reshape(-1, 16))
            numpy.testing.assert_array_equal(more, pairs[:, :8] + 1)
            numpy.testing.assert_array_equal(twos, numpy.full((rows, 16), 2, "f4"))

    def refused(self, module, reason, **options):
        with self.assertRaises(quern.tvm.Refused) as caught:
            quern.tvm.from_relax(module, **options)
        self.assertEqual(caught.exception.reason, reason, caught.exception)
        return caught.exception.detail

    def test_refused(self):
        x = tensor("x", (4,))
        flag = tensor("flag", (), "bool")

        def packed(builder):
            kind = getattr(relax, "TensorStructInfo", None) or relax.TensorType
            return builder.emit(relax.call_dps_packed("my.function", (x,), kind((4,), "float32")))

        self.assertEqual(self.refused(built([x], packed), "call of a packed function"), "my.function")
        same = relax.SeqExpr([], x)
        out = tensor("out", (4,))
        body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(out, relax.If(flag, same, same))])], out)
        branch = relax.Function([flag, x], body, getattr(out, "struct_info", None) or out.ty)
        self.refused(tvm.IRModule({"main": branch.with_attr("global_symbol", "main")}), "branch")
        loose = tensor("loose", (self.n * 2,))
        self.refused(built([loose], lambda builder: builder.emit(relax.op.exp(loose))), "symbol that is no extent of an input")
        unknown = relax.Var("unknown", (getattr(relax, "TensorStructInfo", None) or relax.TensorType)(ndim=2, dtype="float32"))
        self.refused(built([unknown], lambda builder: unknown), "value that is no tensor of known rank")
        with self.assertRaises(ValueError) as caught:
            quern.tvm.from_relax(built([x], lambda builder: x), function="other")
        self.assertIn("it has main", str(caught.exception))


if __name__ == "__main__":
    unittest.main(verbosity=1)
