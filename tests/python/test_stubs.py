# SPDX-License-Identifier: Apache-2.0
"""The stubs name what there is: every public name and parameter, and no other."""
import ast
import inspect
import pathlib
import unittest

import support

import quern
import quern._helpers
import quern._quern

FOLDER = pathlib.Path(quern.__file__).resolve().parent


def stub_of(name):
    return ast.parse((FOLDER / name).read_text(encoding="utf-8")).body


def names_of(body):
    return {one.name: one for one in body if isinstance(one, (ast.ClassDef, ast.FunctionDef)) and not one.name.startswith("_")}


def parameters(node):
    args = node.args
    return [one.arg for one in args.posonlyargs + args.args + args.kwonlyargs if one.arg not in ("self", "cls")]


class Stubs(unittest.TestCase):
    def check_class(self, kind, node):
        stated = {name for name in names_of(node.body)}
        stated |= {one.target.id for one in node.body if isinstance(one, ast.AnnAssign)}
        self.assertEqual(stated, {name for name in vars(kind) if not name.startswith("_")}, kind)
        for name, method in names_of(node.body).items():
            there = inspect.getattr_static(kind, name)
            if isinstance(there, (property, type(quern._quern.Function.name))):
                self.assertIn("property", [ast.unparse(one) for one in method.decorator_list])
                continue
            there = getattr(kind, name)
            expected = [one.name for one in inspect.signature(there).parameters.values()
                        if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) and one.name not in ("self", "cls")]
            self.assertEqual(parameters(method), expected, (kind, name))

    def test_extension(self):
        stated = names_of(stub_of("_quern.pyi"))
        self.assertEqual(set(stated), {name for name in vars(quern._quern) if not name.startswith("_")})
        for name, node in stated.items():
            if isinstance(node, ast.ClassDef):
                self.check_class(getattr(quern._quern, name), node)

    def test_package(self):
        body = stub_of("__init__.pyi")
        stated = names_of(body)
        imported = {one.asname or one.name for node in body if isinstance(node, ast.ImportFrom) and node.level for one in node.names}
        self.assertEqual((set(stated) | imported) - {"_quern", "errors", "*"}, set(quern.__all__) - set(quern.errors.__all__))
        for name in ("Module", "Engine"):
            self.check_class(getattr(quern, name), stated[name])

    def test_builder(self):
        self.assertIs(quern.Builder, quern._builder.Builder)
        self.check_class(quern.Builder, names_of(stub_of("_builder.pyi"))["Builder"])
        stated = {one.name for one in names_of(stub_of("_builder.pyi"))["Expr"].body}
        hidden = {"__init__", "__bool__", "__iter__", "__hash__", "__repr__", "__slots__", "__array_ufunc__", "__module__", "__doc__",
                  "__firstlineno__", "__static_attributes__"}  # the last two are new in Python 3.13
        self.assertEqual(stated, {name for name in vars(quern._builder.Expr) if name.startswith("__")} - hidden)

    def test_errors(self):
        self.assertEqual(set(names_of(stub_of("errors.pyi"))), set(quern.errors.__all__))

    def test_tuples(self):
        stated = {one.name: one for one in stub_of("_helpers.pyi") if isinstance(one, ast.ClassDef)}
        for name, kind in (("_Diagnostic", quern.Diagnostic), ("LookupInfo", quern.LookupInfo),
                           ("CacheEntry", quern.CacheEntry), ("Explanation", quern.Explanation), ("WarmItem", quern.WarmItem), ("WarmResult", quern.WarmResult)):
            self.assertEqual([one.target.id for one in stated[name].body], list(kind._fields))

    def test_typed(self):
        self.assertTrue((FOLDER / "py.typed").exists())


if __name__ == "__main__":
    support.main()
