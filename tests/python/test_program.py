# SPDX-License-Identifier: Apache-2.0
"""Programs: plans that are written by hand, run, saved and loaded. Those of TVM are for tests/python/peers."""
import json
import os
import sys
import threading
import unittest

import support

import quern

numpy = support.package("numpy")

TEXT = """
func product(x: f32[n, k], w: f32[k, m], out y: f32[n, m]) {
  parallel i in 0..n {
    for j in 0..m { y[i, j] = sum l in 0..k { x[i, l] * w[l, j] }; }
  }
}
func relu(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = max(x[i], 0.0); } }
func scale(a: i64, x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i] * f32(a); } }
"""


def plan(**changes):
    """x [n, 4] times w [4, 6], relu over all, times 2n, and relu's result as [n * 3, 2]."""
    wide = ["*", "n", 6]
    data = {
        "format": "quern program", "version": 1, "name": "model",
        "values": [
            {"kind": "input", "name": "x", "dtype": "f32", "shape": ["n", 4]},
            {"kind": "weight", "name": "w", "dtype": "f32", "shape": [4, 6]},
            {"kind": "buffer", "dtype": "f32", "shape": ["n", 6]},
            {"kind": "view", "of": 2, "shape": [wide]},
            {"kind": "buffer", "dtype": "f32", "shape": [wide]},
            {"kind": "buffer", "dtype": "f32", "shape": [wide]},
            {"kind": "view", "of": 4, "shape": [["*", "n", 3], 2]},
        ],
        "calls": [
            {"kernel": "product", "arguments": [0, 1, 2]},
            {"kernel": "relu", "arguments": [3, 4]},
            {"kernel": "scale", "arguments": [{"number": ["*", 2, "n"]}, 4, 5]},
        ],
        "results": [5, 6],
    }
    return dict(data, **changes)


def changed(group, index, **members):
    data = plan()
    data[group][index] = dict(data[group][index], **members)
    return data


@support.needs("numpy")
class Programs(unittest.TestCase):
    def setUp(self):
        random = numpy.random.default_rng(1)
        self.w = random.standard_normal((4, 6), "f4")
        self.program = quern.Program(TEXT, plan(), {"w": self.w})
        self.random = random

    def x(self, n):
        return self.random.standard_normal((n, 4), "f4")

    def check(self, program, x):
        big, pairs = program(x)
        relu = numpy.maximum(x @ self.w, 0)
        numpy.testing.assert_allclose(big, (relu * 2 * len(x)).reshape(-1), rtol=1e-5, atol=1e-5)
        numpy.testing.assert_allclose(pairs, relu.reshape(-1, 2), rtol=1e-5, atol=1e-5)
        return big, pairs

    def test_call(self):
        self.assertEqual(self.program.symbols, ("n",))
        self.assertEqual(self.program.inputs, (("x", "f32", ("n", 4)),))
        self.assertEqual(repr(self.program), "<quern.Program model(x: f32[n, 4]) of 3 calls>")
        first = self.check(self.program, self.x(3))
        kept = [one.copy() for one in first]
        for n in list(range(12)) + [3, 3]:
            self.check(self.program, self.x(n))
        # Later calls leave results alone.
        for before, after in zip(kept, first):
            numpy.testing.assert_array_equal(before, after)
        numpy.testing.assert_array_equal(self.program(x=numpy.zeros((1, 4), "f4"))[0], numpy.zeros(6))

    def test_strided_and_memory(self):
        x = self.x(6)
        numpy.testing.assert_array_equal(self.program(x[::2])[0], self.program(x[::2].copy())[0])
        numpy.testing.assert_array_equal(self.program(memoryview(x))[0], self.program(x)[0])

    def test_threads(self):
        wrong = []

        def work(seed):
            x = numpy.random.default_rng(seed).standard_normal((2 + seed % 2, 4), "f4")
            for _ in range(50):
                try:
                    self.check(self.program, x)
                except Exception as error:
                    wrong.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.assertEqual(wrong, [])

    def test_workspace(self):
        def chain(count, results):
            """Buffers of n floats, each made of the one before."""
            buffer = {"kind": "buffer", "dtype": "f32", "shape": ["n"]}
            values = [{"kind": "input", "name": "x", "dtype": "f32", "shape": ["n"]}] + [buffer] * count
            calls = [{"kernel": "relu", "arguments": [i, i + 1]} for i in range(count)]
            return quern.Program(TEXT, plan(values=values, calls=calls, results=results), {})

        # Two are alive at a time, each at a multiple of 64 bytes; the last one is the result.
        self.assertEqual(chain(9, 9).workspace_bytes(n=16), 2 * 64)
        self.assertEqual(chain(9, 9).workspace_bytes(n=17), 128 + 17 * 4)
        self.assertEqual(chain(9, [8, 9]).workspace_bytes(n=16), 2 * 64)
        self.assertEqual(chain(1, 1).workspace_bytes(n=16), 0)
        x = numpy.arange(-2, 3, dtype="f4")
        numpy.testing.assert_array_equal(chain(9, 9)(x), [0, 0, 0, 1, 2])
        for bad in ({}, {"m": 3}, {"n": 3, "m": 3}):
            with self.assertRaises(TypeError):
                chain(1, 1).workspace_bytes(**bad)

    def test_results_are_the_callers(self):
        data = plan(values=plan()["values"][:2] + [{"kind": "view", "of": 1, "shape": [24]}], calls=[], results=[0, [1, 2], 0])
        program = quern.Program("", data, {"w": self.w})
        x = self.x(2)
        same, (w, flat), _ = program(x)
        for one in (same, w, flat):
            one += 1
        again, (w, flat), _ = program(x)
        numpy.testing.assert_array_equal(again, x)
        numpy.testing.assert_array_equal(w, self.w)
        numpy.testing.assert_array_equal(flat, self.w.reshape(-1))

    def test_bad_arguments(self):
        x = self.x(2)
        for kind, args, words in (
                (TypeError, (), "'x' is missing"), (TypeError, (x, x), "expected 1 inputs (x), got 2"),
                (quern.ArgumentTypeError, (x.astype("f8"),), "input 'x': expected f32[n, 4], got f64[2, 4]"),
                (quern.ArgumentTypeError, (x.astype(">f4"),), "got >f4[2, 4]"), (quern.ArgumentTypeError, (x[0],), "got f32[4]"),
                (quern.ArgumentTypeError, ([1.0],), "NumPy does not take the builtins.list"),
                (quern.ArgumentValueError, (x[:, :3],), "model: input 'x': axis 1 has 3 elements, expected 4")):
            with self.assertRaises(kind) as caught:
                self.program(*args)
            self.assertIn(words, str(caught.exception))
        for names, words in ((dict(y=x), "no input 'y'"), (dict(x=x), "given twice")):
            with self.assertRaises(TypeError) as caught:
                self.program(x, **names) if "x" in names else self.program(**names)
            self.assertIn(words, str(caught.exception))
        values = [{"kind": "input", "name": name, "dtype": "f32", "shape": shape} for name, shape in (("a", ["n"]), ("b", [["+", "n", 1]]))]
        pair = quern.Program("", plan(values=values, calls=[], results=[]), {})
        self.assertEqual(pair(numpy.zeros(2, "f4"), numpy.zeros(3, "f4")), ())
        with self.assertRaises(quern.ArgumentValueError) as caught:
            pair(numpy.zeros(2, "f4"), numpy.zeros(2, "f4"))
        self.assertIn("input 'b': axis 0 has 2 elements, expected n + 1 = 3 with n=2", str(caught.exception))

    def test_bad_plans(self):
        deep = "n"
        for _ in range(80):
            deep = ["+", deep, 1]
        for data, words in (
                (None, "expected a dictionary"), ({}, "format"), (plan(version=2), "version: expected 1, got 2"),
                (plan(extra=1), "unknown member 'extra'"), (plan(name=3), "plan: name: expected a name of printable characters, got 3"), (plan(values={}), "values: expected a list"),
                (changed("values", 0, kind="output"), "kind: expected one of input, weight, buffer, view, got 'output'"),
                (changed("values", 0, dtype="f80"), "values[0]: unknown dtype 'f80'"),
                (changed("values", 0, dtype=[1]), "unknown dtype"),
                (plan(values=plan()["values"] + plan()["values"][1:2]), "values[7]: there is another weight 'w'"),
                (changed("values", 2, shape=["m", 6]), "values[2]: the symbol 'm' is no extent of an input"),
                (changed("values", 1, shape=["n", 6]), "values[1]: the symbol 'n'"),
                (changed("values", 2, shape=[["^", "n", 6]]), "[operator, a, b]"), (changed("values", 2, shape=[True]), "got True"),
                (changed("values", 2, shape=[1 << 60]), "too large"), (changed("values", 2, shape=[deep]), "64 levels"),
                (changed("values", 3, of=3), "values[3]: of: expected the number of an earlier value, got 3"),
                (changed("calls", 0, kernel="matmul"), "no function 'matmul'"), (changed("calls", 0, kernel=None), "calls[0]: kernel"),
                (changed("calls", 0, kernel="\ud800"), "printable characters, got '\\ud800'"), (changed("values", 1, name="w\0"), "printable"),
                (changed("values", 2, shape=[1] * 33), "values[2]: shape: expected at most 32 extents, got 33"),
                (changed("calls", 0, arguments=[0, 1, 7]), "calls[0]: arguments[2]: expected the number of a value, got 7"),
                (changed("calls", 0, arguments=[0, {"number": "q"}]), "the symbol 'q'"), (plan(results=-1), "results: expected"),
                (plan(digest="0" * 32), "the plan is for a module of digest")):
            with self.assertRaises(quern.InvalidArgument, msg=words) as caught:
                quern.Program(TEXT, data, {"w": self.w})
            self.assertIn(words, str(caught.exception))
        for weights, words in (({}, "there is no weight 'w'"), ({"w": self.w.T}, "expected f32[4, 6], got f32[6, 4]"),
                               ({"w": self.w.astype("f8")}, "got f64[4, 6]")):
            with self.assertRaises(quern.InvalidArgument) as caught:
                quern.Program(TEXT, plan(), weights)
            self.assertIn(words, str(caught.exception))
        # Mistakes that the values of symbols decide.
        square = 1 << 48
        for _ in range(9):
            square = ["*", square, square]
        for data, words in ((changed("values", 5, shape=[square]), "281474976710656 * 281474976710656 does not fit in 64 bits with n=2"),
                            (changed("values", 5, shape=["n", 1 << 47]), "is [2, 140737488355328] with n=2; expected no negative extent and at most"),
                            (changed("values", 5, shape=[0, 1 << 48, 1 << 48]), "expected no negative extent and at most 281474976710656 bytes"),
                            (changed("values", 3, shape=["n"]), "values[3] is a view [2] of [2, 6] with n=2"),
                            (changed("values", 2, shape=[["-", "n", 9], 6]), "the shape [n - 9, 6] is [-7, 6]"),
                            (changed("values", 2, shape=[["//", 3, ["-", "n", 2]], 6]), "3 // (n - 2) divides by zero with n=2")):
            with self.assertRaises(quern.InvalidArgument) as caught:
                quern.Program(TEXT, data, {"w": self.w})(self.x(2))
            self.assertIn(words, str(caught.exception))
        # A call that does not fit is the kernel's to refuse; so is one that writes to an input or a weight.
        values = plan()["values"]
        x = self.x(2)
        before = x.copy()
        for kind, name in (("input", "x"), ("weight", "w")):
            same = dict(values[0 if kind == "input" else 1])
            data = plan(values=[same, dict(same, kind="buffer")], results=[], calls=[{"kernel": "flat", "arguments": [1, 0]}])
            flat = "func flat(x: f32[n, m], out y: f32[n, m]) { for i in 0..n { for j in 0..m { y[i, j] = x[i, j]; } } }"
            with self.assertRaises(quern.ArgumentValueError) as caught:
                quern.Program(flat, data, {"w": self.w})(*[x] * (kind == "input"))
            self.assertIn("read-only", str(caught.exception))
        numpy.testing.assert_array_equal(x, before)
        with self.assertRaises(quern.ArgumentTypeError):
            quern.Program(TEXT, changed("calls", 1, arguments=[2, 4]), {"w": self.w})(self.x(2))

    def test_numbers(self):
        text = "func inverse(a: f32, out y: f32[n]) { parallel i in 0..n { y[i] = 1.0 / a; } }"
        values = plan()["values"][:1] + [{"kind": "buffer", "dtype": "f32", "shape": ["n"]}] * 3
        calls = [{"kernel": "inverse", "arguments": [{"number": number}, i]} for i, number in ((1, 0.0), (2, -0.0), (3, "n"))]
        found = quern.Program(text, plan(values=values, calls=calls, results=[1, 2, 3]), {})(self.x(1))
        self.assertEqual([float(one[0]) for one in found], [numpy.inf, -numpy.inf, 1])

    def test_saved(self):
        folder = os.path.join(support.folder, "model")
        os.mkdir(folder)  # an empty one may be there
        self.program.save(folder)
        self.assertEqual(sorted(os.listdir(folder)), ["kernels.qn", "kernels.qnb", "program.json", "weights.safetensors"])
        with self.assertRaises(FileExistsError):
            self.program.save(folder)
        self.check(quern.load_program(folder), self.x(3))
        code = f"""
import sys, numpy, quern
program = quern.load_program({folder!r}, jit="forbid")
y, _ = program(numpy.ones((2, 4), "f4"))
print(float(y[0]), program.module["relu"].name, "libLLVM" in open("/proc/self/maps").read(), "tvm" in sys.modules)
"""
        empty = os.path.join(support.folder, "empty")
        os.mkdir(empty)
        code = f"import os\nos.environ.update(QUERN_CACHE_DIR='', QUERN_GENERATOR_DIR={empty!r})\n" + code
        done = support.run(code)
        self.assertEqual(done.stderr, "")
        expected = self.program(numpy.ones((2, 4), "f4"))[0][0]
        number, *words = done.stdout.split()
        self.assertEqual(words, ["relu", "False", "False"])
        self.assertAlmostEqual(float(number), expected, places=4)
        # Weights of every dtype come back, mapped.
        with self.assertRaises(ValueError):
            quern.load_program(folder).weights["w"][0] = 1

    def test_damaged(self):
        folder = os.path.join(support.folder, "damaged")
        self.program.save(folder)

        def damage(name, change):
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                whole = file.read()
            with open(path, "wb") as file:
                file.write(change(whole))
            with self.assertRaises(quern.DataLoss, msg=name) as caught:
                quern.load_program(folder)
            self.assertIn(folder, str(caught.exception))
            with open(path, "wb") as file:
                file.write(whole)
            return str(caught.exception)

        for cut in (0, 7, 8, 40, 200):
            damage("weights.safetensors", lambda whole: whole[:cut])
        damage("weights.safetensors", lambda whole: b"\xff" * 8 + whole[8:])
        for before, after, words in ((b'"F32"', b'"F33"', "unknown dtype 'F33'"), (b'"F32"', b'"F64"', "96 bytes for F64"),
                                     (b"[4, 6]", b"[4,-6]", "list of numbers"), (b"[0, 96]", b"[9,105]", "are not in the 96 bytes"),
                                     (b'"w"', b'"v"', "there is no weight 'w'"), (b"{", b"[", "header is no")):
            self.assertIn(words, damage("weights.safetensors", lambda whole: whole.replace(before, after, 1)))
        damage("program.json", lambda whole: whole[:50])
        damage("program.json", lambda whole: b"[" * 100000)
        damage("program.json", lambda whole: b"\xff")
        self.assertIn("kind", damage("program.json", lambda whole: whole.replace(b'"input"', b'"other"')))
        damage("kernels.qn", lambda whole: whole[:50])
        self.assertIn("digest", damage("kernels.qn", lambda whole: whole.replace(b"0.0", b"1.0")))
        # A damaged bundle is a miss.
        with open(os.path.join(folder, "kernels.qnb"), "wb") as file:
            file.write(b"nothing")
        with self.assertRaises(quern.CompileForbidden):
            quern.load_program(folder, engine=quern.Engine("", jit="forbid", bundles=[os.path.join(folder, "kernels.qnb")]))(self.x(2))
        with self.assertRaises(FileNotFoundError):
            quern.load_program(os.path.join(support.folder, "absent"))
        with self.assertRaises(TypeError):
            quern.load_program(folder, engine=quern.default_engine(), jit="forbid")

    def test_impossible_shapes(self):
        from quern import _tensors

        path = os.path.join(support.folder, "impossible.safetensors")
        for shape in ([1] * 33, [0, 1 << 47, 2], [1 << 47, 1 << 47], [1 << 40] * 20):
            header = json.dumps({"t": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
            with open(path, "wb") as file:
                file.write(len(header).to_bytes(8, "little") + header)
            with self.assertRaises(quern.DataLoss) as caught:
                _tensors.read(path)
            self.assertIn("tensor 't': the shape [", str(caught.exception))
            self.assertIn("is too large", str(caught.exception))

    @support.needs("ml_dtypes")
    def test_weights_of_every_dtype(self):
        from quern import _plan, _tensors

        arrays = {f"{dtype}{rank}": numpy.ones((3,) * rank, _tensors.numpy_dtype(dtype)) for dtype in _plan.SIZES for rank in (0, 1, 2)}
        arrays["none"] = numpy.ones((0, 4), "f4")
        path = os.path.join(support.folder, "all.safetensors")
        _tensors.write(path, arrays)
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        ends = sorted(one["data_offsets"] for one in header.values())
        self.assertTrue(all(before[1] == after[0] for before, after in zip(ends, ends[1:])))
        again = _tensors.read(path)
        self.assertEqual(set(again), set(arrays))
        for name, array in arrays.items():
            self.assertEqual((again[name].dtype, again[name].shape, again[name].tobytes()), (array.dtype, array.shape, array.tobytes()))

    def test_import_is_light(self):
        done = support.run("import sys, quern\nprint('json' in sys.modules, 'numpy' in sys.modules)")
        self.assertEqual(done.stdout, "False False\n")


if __name__ == "__main__":
    support.main()
