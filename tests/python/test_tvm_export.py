# SPDX-License-Identifier: Apache-2.0
"""Libraries of `quern export --tvm-ffi`: loaded by tvm-ffi where there is neither a generator nor a compiler."""
import os
import pathlib
import subprocess
import tempfile
import unittest

import support
from support import SAXPY, needs, run

import quern

COMMAND = os.environ.get("QUERN_COMMAND")
PROGRAM = SAXPY + """func softmax(x: f32[n, m], out y: f32[n, m]) {
  parallel i in 0..n {
    let top = max j in 0..m { x[i, j] };
    let total = sum j in 0..m { exp(x[i, j] - top) };
    for j in 0..m { y[i, j] = exp(x[i, j] - top) / total; }
  }
}
func third(n: u64, x: f32[4], out y: f32[4]) {
  for i in 0..4 { y[i] = x[i] + f32(n); }
}
"""
# What a process of users does: nothing of quern but the library, which may not compile.
BEGIN = """import numpy, os, sys, tvm_ffi
assert "quern" not in sys.modules
library = tvm_ffi.load_module(sys.argv[1])
x, y = numpy.arange(6, dtype="f4").reshape(2, 3), numpy.zeros((2, 3), "f4")
def expected(x):
    e = numpy.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)
def error_of(name, *values):
    try:
        library[name](*values)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""


@unittest.skipUnless(COMMAND, "needs the command quern")
@needs("numpy", "tvm_ffi")
class Libraries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory(prefix="quern-export-")
        cls.addClassCleanup(holder.cleanup)
        cls.folder = pathlib.Path(holder.name)
        (cls.folder / "empty").mkdir()
        (cls.folder / "program.qn").write_text(PROGRAM, encoding="utf-8")
        cls.library = cls.export("library.so")

    @classmethod
    def export(cls, name, *options, program="program.qn"):
        path = cls.folder / name
        done = subprocess.run([COMMAND, "export", "--tvm-ffi", cls.folder / program, "-o", path, "--run-path",
                               os.path.dirname(support.libquern()), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise AssertionError(done.stdout)
        return path

    def use(self, code, path=None, begin=BEGIN, **environment):
        """Runs code with the library, in a process that must not compile; returns what it prints."""
        given = {"QUERN_GENERATOR_DIR": f"{self.folder}/empty:none", "QUERN_JIT": "forbid", "QUERN_CACHE_DIR": f"{self.folder}/program.qn/none", **environment}
        with_packages = ("import os, sys\nfor folder in os.environ['PACKAGES'].split(':'):\n    sys.path.append(folder)\n" + begin + code)
        packages = ":".join(folder for folder in support.sys.path if "site-packages" in folder)
        done = subprocess.run([support.sys.executable, "-c", with_packages, str(path or self.library)], cwd=self.folder, text=True,
                              env={**os.environ, **given, "PACKAGES": packages}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=600)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_arrays(self):
        self.use("library['softmax'](x, y)\n"
                 "numpy.testing.assert_allclose(y, expected(x), rtol=1e-6)\n"
                 "for n, m in ((0, 3), (1, 1), (7, 129), (64, 33)):\n"  # shapes are bound anew
                 "    x, y = numpy.random.default_rng(n).random((n, m), 'f4'), numpy.zeros((n, m), 'f4')\n"
                 "    library.softmax(x, y)\n"
                 "    numpy.testing.assert_allclose(y, expected(x), rtol=1e-5)\n")

    def test_tensors_and_scalars(self):
        # Tensors of tvm-ffi, and what a framework gives by DLPack.
        self.use("tx, ty = tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y)\n"
                 "library['softmax'](tx, ty)\n"
                 "numpy.testing.assert_allclose(y, expected(x), rtol=1e-6)\n"
                 "class Foreign:\n"
                 "    def __init__(self, array): self.array = array\n"
                 "    def __dlpack__(self, **options): return self.array.__dlpack__(**options)\n"
                 "    def __dlpack_device__(self): return self.array.__dlpack_device__()\n"
                 "a, b = numpy.ones(5, 'f4'), numpy.ones(5, 'f4')\n"
                 "library['saxpy'](2, Foreign(a), Foreign(b))\n"
                 "assert list(b) == [3] * 5\n"
                 "z = numpy.zeros(4, 'f4')\n"
                 "library['third'](7, numpy.ones(4, 'f4'), z)\n"
                 "assert list(z) == [8] * 4\n")

    def test_nothing_else_is_loaded(self):
        printed = self.use("library['softmax'](x, y)\n"
                           "print({line.split('/')[-1].strip() for line in open('/proc/self/maps') if 'LLVM' in line or 'libquern-' in line})\n"
                           "print(os.listdir('empty'))\n")
        self.assertEqual(printed, "set()\n[]\n")

    def test_errors(self):
        printed = self.use("print(error_of('softmax', x))\n"
                           "print(error_of('softmax', x, y[:1]))\n"
                           "print(error_of('softmax', x, y.astype('f8')))\n"
                           "print(error_of('softmax', x, x))\n"
                           "print(error_of('third', -1, numpy.ones(4, 'f4'), numpy.ones(4, 'f4')))\n"
                           "print(error_of('nosuch', x))\n"
                           "library['softmax'](x, y)\n").splitlines()
        signature = "softmax(x: f32[n, m], out y: f32[n, m]): "
        self.assertEqual(printed[0], f"TypeError: {signature}expected 2 arguments, got 1")
        self.assertEqual(printed[1], f"ValueError: {signature}argument 1 'y': extent 0: expected n = 2 (bound by argument 0 'x'), got 1")
        self.assertEqual(printed[2], f"TypeError: {signature}argument 1 'y': expected dtype f32, got f64")
        self.assertIn("overlaps", printed[3])
        self.assertIn("ValueError: third(", printed[4])
        self.assertIn("AttributeError", printed[5])

    def test_beside_the_package(self):
        # The package's libquern is the library's, and both work from one process; a link and a relative path do.
        self.export("plain.so")
        os.symlink("plain.so", self.folder / "link.so")
        result = run("import os, sys, numpy, quern, tvm_ffi\n"
                     "os.chdir(sys.argv[1])\n"
                     "library = tvm_ffi.load_module('./link.so')\n"
                     "os.chdir('/')\n"
                     "y = numpy.ones(2, 'f4')\n"
                     "library['saxpy'](2.0, numpy.ones(2, 'f4'), y)\n"
                     "quern.Module(support.SAXPY)['saxpy'](2.0, numpy.ones(2, 'f4'), y)\n"
                     "print(y[0], len({line.split()[-1] for line in open('/proc/self/maps') if 'libquern.so' in line}))\n", self.folder)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "5.0 1\n", ""))

    def test_two_libraries_and_threads(self):
        (self.folder / "other.qn").write_text("func saxpy(x: f32[n], out y: f32[n]) { parallel i in 0..n { y[i] = x[i] * 3.0; } }",
                                              encoding="utf-8")
        other = self.export("other.so", program="other.qn")
        self.use("import threading\n"
                 f"other = tvm_ffi.load_module({str(other)!r})\n"
                 "arrays = [numpy.zeros(4, 'f4') for _ in range(8)]\n"
                 "start = threading.Barrier(8)\n"
                 "def work(z, i):\n"
                 "    start.wait()\n"
                 "    for _ in range(100):\n"
                 "        if i % 2: other['saxpy'](numpy.ones(4, 'f4'), z)\n"
                 "        else: library['saxpy'](1.0, numpy.ones(4, 'f4'), z)\n"
                 "threads = [threading.Thread(target=work, args=(z, i)) for i, z in enumerate(arrays)]\n"
                 "for t in threads: t.start()\n"
                 "for t in threads: t.join()\n"
                 "assert all(list(z) == [3.0 if i % 2 else 100.0] * 4 for i, z in enumerate(arrays)), arrays\n"
                 "f = library['saxpy']\n"
                 "del library, other\n"
                 "f(1.0, numpy.ones(4, 'f4'), arrays[0])\n"  # a function holds its module
                 "assert arrays[0][0] == 101\n")

    def test_targets_in_order(self):
        if os.uname().machine != "x86_64":
            self.skipTest("the tags are those of x86-64")
        path = self.export("targets.so", "--target", "cpu -mcpu=sapphirerapids", "--target", "cpu/x86-64")
        self.use("library['softmax'](x, y)\nnumpy.testing.assert_allclose(y, expected(x), rtol=1e-6)\n", path)

    def test_interpreter_and_options(self):
        path = self.export("checked.so", "--target", "interp", "--tier", "fast", "--checked")
        self.use("library['softmax'](x, y)\nnumpy.testing.assert_allclose(y, expected(x), rtol=1e-6)\n", path)

    def test_damaged(self):
        whole = self.library.read_bytes()
        bundle = self.bundle_of(self.library)
        # The part that the system's loader maps stays whole.
        cuts = (1, 100, 256, 257, (len(whole) - bundle) // 2, len(whole) - bundle)
        for cut in cuts:
            (self.folder / f"cut{cut}.so").write_bytes(whole[:-cut])
        changes = range(bundle, len(whole), max(1, (len(whole) - bundle) // 40))
        for at in changes:
            changed = bytearray(whole)
            changed[at] ^= 0xFF
            (self.folder / f"changed{at}.so").write_bytes(changed)
        (self.folder / "open.so").write_bytes(whole)
        (self.folder / "open.so").chmod(0o666)
        names = [f"cut{cut}.so" for cut in cuts] + [f"changed{at}.so" for at in changes] + ["open.so"]
        printed = self.use(f"for name in {names}:\n"
                           "    library = tvm_ffi.load_module(os.path.abspath(name))\n"
                           "    print(error_of('softmax', x, y), numpy.allclose(y, expected(x), rtol=1e-6) if y.any() else '')\n"
                           "    y[:] = 0\n").splitlines()
        for line, name in zip(printed[:len(cuts)], names):
            self.assertIn(f"{name}' does not end with a bundle of version 1; was it cut or stripped?", line)
        for line, name in zip(printed[len(cuts):-1], names[len(cuts):]):
            # What one entry does not need may change unnoticed; a result is never a wrong one.
            self.assertRegex(line, f"^(None True|RuntimeError: .*{name}.*)$", name)
        self.assertIn("is writable by others; chmod go-w it", printed[-1])
        self.assertEqual(len(printed), len(names))

    def test_gone_and_elsewhere(self):
        path = self.export("gone.so")
        printed = self.use("os.unlink(sys.argv[1])\nprint(error_of('softmax', x, y))\n", path)
        self.assertIn("gone.so", printed)
        colon = self.folder / "a:b"
        colon.mkdir()
        (colon / "library.so").write_bytes(self.library.read_bytes())
        self.assertIn("a path with a colon", self.use("print(error_of('softmax', x, y))\n", colon / "library.so"))

    def test_a_miss_compiles_where_it_may(self):
        # A library whose bundle has other code: what it lacks is looked up as elsewhere.
        path = self.folder / "mixed.so"
        other = self.export("interpreted.so", "--target", "interp").read_bytes()
        path.write_bytes(self.library.read_bytes()[:self.bundle_of(self.library)] + other[self.bundle_of("interpreted.so"):])
        self.assertIn("is not cached, and compiling is forbidden", self.use("print(error_of('softmax', x, y))\n", path))
        generators = {"QUERN_GENERATOR_DIR": "", "QUERN_JIT": "", "QUERN_CACHE_DIR": str(self.folder / "cache")}
        self.use("library['softmax'](x, y)\nnumpy.testing.assert_allclose(y, expected(x), rtol=1e-6)\n", path, **generators)

    def bundle_of(self, path):
        """Where the bundle begins in a library."""
        merged = self.folder / "merged.qnb"
        subprocess.run([COMMAND, "cache", "merge", merged, self.folder / path], check=True, stdout=subprocess.DEVNULL)
        return (self.folder / path).read_bytes().index(merged.read_bytes()[:64])


if __name__ == "__main__":
    support.main()
