# SPDX-License-Identifier: Apache-2.0
"""What notebooks show, and that nothing in it is markup of others."""
import html.parser
import os
import pathlib
import unittest

import support
from support import SAXPY

import quern
from quern import _notebook

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/ir"


class Reader(html.parser.HTMLParser):
    """The text of a page, its tags, and the cells of its tables. Every tag is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.open, self.cells = "", [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


class Modules(unittest.TestCase):
    def test_colours(self):
        page = quern.Module(SAXPY)._repr_html_()
        self.assertEqual(Reader(page).text, SAXPY.rstrip("\n"))
        self.assertIn('keyword-color, #008000)">parallel</span>', page)
        self.assertIn('variable-3-color, #7d5b00)">f32</span>', page)
        self.assertIn('def-color, #0000c0)">saxpy</span>', page)
        self.assertIn('number-color, #666666)">0</span>', page)

    def test_the_text_is_whole(self):
        for path in sorted(EXAMPLES.glob("*.qn")):
            text = path.read_text(encoding="utf-8")
            self.assertEqual(Reader(_notebook.of_text(text)).text, "\n".join(text.splitlines()), path)

    def test_parts(self):
        for line in ('assert a, "x // \\" y"; // z', '"', 'assert c, "unterminated', "x // y", "  ", "", "\t@#$", "é = 1;"):
            self.assertEqual("".join(text for text, _ in _notebook.parts(line)), line)
        self.assertEqual([one for one in _notebook.parts('assert c, "a";  // <b>') if one[1].startswith(("comment", "string"))],
                         [('"', "string.quoted.double.quern"), ("a", "string"), ('"', "string"), ("// <b>", "comment.line.double-slash.quern")])

    def test_hostile_text(self):
        module = quern.Module('func f(inout x: f32[1]) { assert x[0] < 1.0 && true, "<script>alert(1)</script>&amp;"; x[0] = 1.0; }')
        page = module._repr_html_()
        self.assertEqual(set(Reader(page).tags), {"pre", "span"})
        self.assertIn("<script>alert(1)</script>&amp;", Reader(page).text)

    def test_long_text(self):
        page = _notebook.of_text("x;\n" * 5000)
        self.assertIn("... 4000 more lines", page)
        self.assertLess(len(page), 100_000)


class Errors(unittest.TestCase):
    def test_carets(self):
        with self.assertRaises(quern.ModuleError) as caught:
            quern.Module("func f(inout x: f32[n]) {\n  x[0] = <script>;\n}\n", "<img src=x>.qn")
        page = caught.exception._repr_html_()
        self.assertTrue(page.startswith("<pre style="))
        self.assertIn("monospace", page)
        self.assertEqual(Reader(page).text, str(caught.exception))
        self.assertEqual(Reader(page).tags, ["pre"])


class Engines(unittest.TestCase):
    def test_table(self):
        folder = os.path.join(support.folder, "<b>cache&")
        with quern.Engine(folder) as engine:
            self.assertEqual(engine.entries(), [])
            self.assertIn("0 entries", engine._repr_html_())
            module = quern.Module(SAXPY, engine=engine)
            key = module.compile("saxpy").info.key
            module.compile("saxpy", tier="fast")
            self.assertTrue(engine.flush())
            entries = engine.entries()
            self.assertEqual(len(entries), 2)
            entry = next(one for one in entries if one.key == key)
            self.assertIn("tier=full", entry.options)
            self.assertIn('"kind":"cpu"', entry.target.replace(" ", ""))
            self.assertGreater(entry.size_bytes, entry.code_bytes)
            self.assertGreater(entry.code_bytes, 0)
            self.assertGreater(entry.compile_s, 0)
            self.assertGreater(entry.created, 1_700_000_000)
            read = Reader(engine._repr_html_())
            self.assertIn(key[:12], read.cells)
            self.assertIn(folder, read.text)
            self.assertNotIn("b", read.tags)
            self.assertEqual(read.cells[7:13], ["2", "0", "0", "0", "0", "2"])

    def test_without_a_directory(self):
        with quern.Engine("") as engine:
            self.assertEqual(engine.entries(), [])
            self.assertIn("no cache directory", engine._repr_html_())
        self.assertIn("the engine is closed", engine._repr_html_())

    def test_damaged(self):
        folder = os.path.join(support.folder, "damaged")
        with quern.Engine(folder) as engine:
            quern.Module(SAXPY, engine=engine).compile("saxpy")
            engine.flush()
            path = next(pathlib.Path(folder).rglob("*.k"))
            os.chmod(path, 0o600)
            path.write_bytes(b"<b>" * 10)
            self.assertEqual([(one.target, one.compile_s) for one in engine.entries()], [("", 0.0)])
            self.assertIn("1 entries", engine._repr_html_())

    def test_many(self):
        with quern.Engine(os.path.join(support.folder, "many")) as engine:
            for i in range(23):
                quern.Module(SAXPY.replace("a * x", f"{i}.0 * x"), engine=engine).compile("saxpy", tier="fast")
            engine.flush()
            self.assertIn("23 entries", engine._repr_html_())
            self.assertIn("the newest 20", engine._repr_html_())


if __name__ == "__main__":
    support.main()
