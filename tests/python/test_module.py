# SPDX-License-Identifier: Apache-2.0
"""Modules, their diagnostics, and the exceptions."""
import gc
import os
import pathlib
import unittest

import support
from support import SAXPY

import quern

TWO = SAXPY + "func fill(value: f32, out y: f32[n]) {\n  parallel i in 0..n { y[i] = value; }\n}\n"


class Modules(unittest.TestCase):
    def test_functions(self):
        module = quern.Module(TWO)
        self.assertEqual(list(module), ["saxpy", "fill"])
        self.assertEqual(len(module), 2)
        self.assertIn("fill", module)
        self.assertNotIn("nothing", module)
        self.assertNotIn(3, module)
        self.assertEqual(module.functions["fill"], "fill(value: f32, out y: f32[n])")
        self.assertIs(module["fill"], module["fill"])
        self.assertIs(module["fill"].module, module)
        self.assertEqual(module["fill"].name, "fill")
        self.assertIsNone(module["fill"].info)
        self.assertIn("saxpy", repr(module))
        self.assertIn("fill(value", repr(module["fill"]))

    def test_unknown_function(self):
        module = quern.Module(TWO)
        for ask in (lambda: module["fil"], lambda: module.compile("fil")):
            with self.assertRaises(KeyError) as caught:
                ask()
            self.assertIsInstance(caught.exception, quern.NotFound)
            self.assertIn("no function 'fil' in the module, which has ('saxpy', 'fill')", str(caught.exception))
        with self.assertRaises(quern.NotFound):
            module[7]

    def test_identity(self):
        module = quern.Module(TWO)
        self.assertEqual(len(module.digest), 32)
        again = quern.Module(module.text, "canonical")
        self.assertEqual(again.digest, module.digest)
        decoded = quern.Module.decode(module.bytes)
        self.assertIs(type(decoded), quern.Module)
        self.assertEqual(decoded.digest, module.digest)
        with self.assertRaises(quern.DataLoss):
            quern.Module.decode(b"not a module")

    def test_specialize(self):
        module = quern.Module(TWO)
        fixed = module.specialize(n=4)
        self.assertEqual(fixed.functions["fill"], "fill(value: f32, out y: f32[4])")
        self.assertEqual(module.specialize({"fill.n": 8}).functions["saxpy"], module.functions["saxpy"])
        self.assertEqual(quern.Module(TWO, set="n=4").digest, fixed.digest)
        with self.assertRaises(quern.NotFound):
            module.specialize(k=3)
        for bad in (lambda: module.specialize(n="4"), lambda: module.specialize({}, {}), lambda: module.specialize({3: 4})):
            with self.assertRaises(TypeError):
                bad()

    def test_file(self):
        path = pathlib.Path(support.folder) / "broken.qn"
        path.write_text("func f() {\n  x[0] = 1;\n}\n")
        with self.assertRaises(quern.ModuleError) as caught:
            quern.Module.from_file(path)
        self.assertEqual(caught.exception.diagnostics[0].file, os.fspath(path))
        path.write_text(SAXPY)
        self.assertEqual(list(quern.Module.from_file(path)), ["saxpy"])

    def test_arguments(self):
        for bad in (lambda: quern.Module(3), lambda: quern.Module(SAXPY, engine=3), lambda: quern.Module()):
            with self.assertRaises(TypeError):
                bad()

    def test_cycle_is_collected(self):
        import weakref

        class Derived(quern.Module):
            pass

        module = Derived(SAXPY)
        module.handle = module["saxpy"]
        seen = weakref.ref(module)
        del module
        gc.collect()
        self.assertIsNone(seen())


class Diagnostics(unittest.TestCase):
    def test_place_and_caret(self):
        text = "func f(inout y: f32[n]) {\n\tassert n > 0, \"é\"; y[0] = valeu;\n}\n"
        with self.assertRaises(ValueError) as caught:
            quern.Module(text, source="program.qn")
        error = caught.exception
        self.assertIsInstance(error, quern.ModuleError)
        one = error.diagnostics[0]
        self.assertEqual((one.severity, one.file, one.line), ("error", "program.qn", 2))
        self.assertEqual(one.text, "\tassert n > 0, \"é\"; y[0] = valeu;")
        line, marks = one.caret.split("\n")
        self.assertEqual(line, one.text)
        self.assertEqual(line[marks.index("^"):len(marks)], "valeu")
        self.assertTrue(one.code.startswith("QN"))
        self.assertIn(f"program.qn:2:{one.column}: error[{one.code}]", str(one))
        # The message is quern's, whole: with the line and the caret.
        self.assertIn("--> program.qn:2:", str(error))
        self.assertIn("^^^^^", str(error))

    def test_syntax_and_rules(self):
        with self.assertRaises(quern.SyntaxError) as caught:
            quern.Module("func f(")
        self.assertEqual(caught.exception.code, "syntax error")
        self.assertTrue(caught.exception.diagnostics)
        with self.assertRaises(quern.InvalidModule) as caught:
            quern.Module("func f(inout y: f32[n]) {\n  parallel i in 0..n { barrier; y[i] = 1.0; }\n}\n")
        self.assertEqual(caught.exception.diagnostics[0].line, 2)

    def test_any_text(self):
        for text in ("", "\0", "func\0", "\ud7ff", "é" * 1000, "\r\n\r\nfunc"):
            try:
                quern.Module(text)
            except quern.ModuleError as error:
                [one.caret for one in error.diagnostics]
        with self.assertRaises(UnicodeEncodeError):
            quern.Module("\ud800")


class Exceptions(unittest.TestCase):
    def test_every_code_has_a_class(self):
        codes = quern._quern.status_codes()
        self.assertEqual(set(codes.values()) - {"ok"}, set(quern.errors.BY_CODE))
        for one in quern.errors.BY_CODE.values():
            self.assertTrue(issubclass(one, quern.Error))
            self.assertEqual(str(one("a message")), "a message")
            self.assertIs(getattr(quern, one.__name__), one)

    def test_what_people_expect(self):
        for one, expected in ((quern.ArgumentTypeError, TypeError), (quern.ArgumentValueError, ValueError),
                              (quern.NotFound, KeyError), (quern.DeadlineExceeded, TimeoutError),
                              (quern.PermissionDenied, PermissionError), (quern.OutOfMemory, MemoryError)):
            self.assertTrue(issubclass(one, expected))


if __name__ == "__main__":
    support.main()
