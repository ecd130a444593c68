# SPDX-License-Identifier: Apache-2.0
"""The results of bench/serve: rows and their verdicts, the table, the picture, what never-seen concludes from records that
are made here, and how `run` puts sections together that work, fail, are missing or are interrupted.

usage: test_serve_run.py
"""
import importlib.machinery
import importlib.util
import json
import math
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
import xml.etree.ElementTree

SERVE = pathlib.Path(__file__).resolve().parents[2] / "bench" / "serve"
sys.path.insert(0, str(SERVE))
sys.dont_write_bytecode = True

import picture  # noqa: E402
import report  # noqa: E402
import runs  # noqa: E402

HEADER = ("index,client,scheduled_us,sent_us,done_us,unread_us,status,bytes,texts,tokens,first_seen,connection,waited,warm_up,"
          "checksum,error\n")


def load(name):
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(SERVE / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class ReportTest(Folder):
    def test_verdicts(self):
        rows = report.Report("s", self.folder / "r.json")
        rows.add("a", "ratio", "1/s", ours=120, theirs=100, at_least=1.15)
        rows.add("b", "ratio", "1/s", ours=110, theirs=100, at_least=1.15)
        rows.add("c", "interval", "ms", ours=11, theirs=10, at_most=1.2, interval=[1.0, 1.3])
        rows.add("d", "alone", "ms", ours=4, at_most=5)
        rows.add("e", "no limit", "ms", ours=4)
        rows.add("f", "few", "ms", ours=1, theirs=1, at_most=1.2, remark="not shown: 3 of 10 pairs")
        rows.add("g", "never", "ms", ours=math.inf, theirs=10, at_most=1.2)
        content = report.read(self.folder / "r.json")
        self.assertEqual([r["met"] for r in content["rows"]], [True, False, None, True, None, None, False])
        self.assertEqual(content["rows"][0]["ratio"], 1.2)
        self.assertIsNone(content["rows"][6]["ours"])
        lines = list(report.table(content))
        self.assertIn("at least 1.15", lines[2])
        self.assertTrue(lines[2].rstrip(" |").endswith("met"))
        self.assertIn("MISSED", lines[3])
        self.assertIn("not shown", lines[4])
        self.assertIn("never", lines[8])
        self.assertEqual(len({len(line) for line in lines}), 1)

    def test_missing_parts_are_named(self):
        rows = report.Report("s", self.folder / "r.json")
        rows.missing("Triton", "no such package")
        self.assertEqual(list(report.table(report.read(self.folder / "r.json"))), ["NOT MEASURED: Triton: no such package"])

    def test_refuses(self):
        path = self.folder / "r.json"
        for text in ("", "{}", "[]", '{"section": "s", "notes": {}, "rows": [{}], "missing": []}',
                     '{"section": "s", "notes": {}, "rows": {}, "missing": []}'):
            path.write_text(text)
            self.assertRaises(report.Bad, report.read, path)
        self.assertRaises(report.Bad, report.read, self.folder / "none")

    def test_numbers(self):
        texts = {1234.6: "1,235", 12.34: "12.3", 0.01234: "0.0123", 0: "0", None: "never"}
        self.assertEqual({value: report.number(value) for value in texts}, texts)


class BootstrapTest(unittest.TestCase):
    def test_covers(self):
        """95 % intervals of 20 values around 1: nearly all cover 1. The seeds are fixed, so this is no matter of chance."""
        rng = random.Random(7)
        covered = 0
        for _ in range(40):
            values = [math.exp(rng.gauss(0, 0.1)) for _ in range(20)]
            mean, low, high = runs.bootstrap(values, 1000)
            self.assertTrue(low < mean < high)
            covered += low <= 1 <= high
        self.assertGreaterEqual(covered, 34)

    def test_one_value_and_infinity(self):
        self.assertEqual([round(x, 9) for x in runs.bootstrap([1.5])], [1.5] * 3)
        self.assertEqual(runs.bootstrap([1.0, math.inf]), (math.inf,) * 3)


class PictureTest(Folder):
    def content(self, **changes):
        rows = report.Report("peers <&>", self.folder / "r.json")
        rows.add("1 thread", 'requests at "p99"', "1/s", ours=120, theirs=100, at_least=1.15, interval=[1.1, 1.3])
        rows.add("1 thread", "first <script>", "ms", ours=8, theirs=10, at_most=1.2)
        rows.add("1 thread", "never", "ms", ours=math.inf, theirs=10, at_most=1.2)
        for load in (30, 50):
            rows.point("p99, poisson", "load", "ms", "cold", load, load * 1.0, load - 2.0, load + 3.0)
        rows.point("p99, poisson", "load", "ms", "cold", 85, math.inf)
        return report.read(self.folder / "r.json")

    def test_is_a_picture(self):
        text = picture.draw("a title", [self.content()])
        root = xml.etree.ElementTree.fromstring(text)
        names = [element.tag.split("}")[1] for element in root.iter()]
        self.assertNotIn("script", names)
        self.assertEqual(names.count("polyline"), 1)
        self.assertEqual(names.count("rect"), 3)  # the ground, ours and theirs
        self.assertIn("prefers-color-scheme: dark", text)
        texts = "\n".join(element.text or "" for element in root.iter())
        for part in ("a title", "p99, poisson, ms", "peers <&>: rates", '1 thread: requests at "p99"', "120 1/s, ours", "met"):
            self.assertIn(part, texts)
        width, height = (float(x) for x in root.get("viewBox").split()[2:])
        for element in root.iter():
            for x, limit in (("x", width), ("y", height), ("cx", width), ("cy", height), ("y2", height)):
                self.assertTrue(0 <= float(element.get(x, 0)) <= limit, element.attrib)

    def test_of_nothing(self):
        empty = report.Report("s", self.folder / "r.json").content()
        xml.etree.ElementTree.fromstring(picture.draw("t", [empty]))

    def test_marks(self):
        self.assertEqual(picture.nice(0, 10, 5), [0, 2, 4, 6, 8, 10])
        self.assertEqual(picture.nice(0, 0.07, 5), [0, 0.02, 0.04, 0.06])


class NeverSeenTest(Folder):
    def records(self, path, factor, seed):
        """Requests 1 ms apart, a fifth of them marked; latencies of 3 ms and a tail."""
        rng = random.Random(seed)
        with open(path, "w", encoding="utf-8") as file:
            file.write(HEADER)
            for i in range(1000):
                latency = (3000 + rng.expovariate(1 / 500)) * factor
                file.write(f"{i},0,{i * 1000},{i * 1000},{i * 1000 + latency:.3f},0,200,9,1,9,{int(i % 5 == 0)},0,0,0,0,\n")

    def rows(self, pairs=10, cold=1.0, warm=1.0, is_control=False, lookups=0):
        module = load("never-seen")
        folders = []
        for i in range(pairs):
            folder = self.folder / str(i)
            folder.mkdir()
            for state, factor in (("cold", cold), ("steady", 1.0), ("warm", warm)):
                self.records(folder / f"{state}.csv", factor, f"{state} {i}")
            folders.append(folder)
        counts = {"compiles": 3, "compile seconds": 0.5, "compiles while steady": 0, "first-seen batches": 0.5,
                  "compiles of warm": 0, "lookups by requests": lookups}
        rows = report.Report("never-seen", self.folder / "r.json")
        module.describe(types.SimpleNamespace(control=is_control), rows, module.Case("poisson", 50), folders, [counts] * pairs)
        return {row["what"]: row for row in rows.rows}, rows

    def test_holds(self):
        found, rows = self.rows()
        self.assertTrue(found["p99, cold over steady"]["met"])
        self.assertTrue(found["p99, warm over steady"]["met"])
        self.assertTrue(found["lookups, so compiles, by requests"]["met"])
        self.assertAlmostEqual(found["p99 of first-seen requests, cold over steady"]["ratio"], 1, delta=0.1)
        self.assertIn("p99 of bystanders, cold over steady", found)
        self.assertEqual({p["name"] for p in rows.points}, {"cold", "steady", "warm"})

    def test_fails(self):
        found, _ = self.rows(cold=1.5, warm=1.3, lookups=2)
        self.assertIs(found["p99, cold over steady"]["met"], False)
        self.assertAlmostEqual(found["p99, cold over steady"]["ratio"], 1.5, delta=0.1)
        self.assertIs(found["p99, warm over steady"]["met"], False)
        self.assertIs(found["lookups, so compiles, by requests"]["met"], False)

    def test_control(self):
        found, _ = self.rows(cold=3, is_control=True)
        self.assertTrue(found["p99, cold over steady"]["met"])

    def test_control_that_sees_nothing(self):
        found, _ = self.rows(cold=1.05, is_control=True)
        self.assertIs(found["p99, cold over steady"]["met"], False)

    def test_few_pairs_show_nothing(self):
        found, _ = self.rows(pairs=3)
        self.assertIsNone(found["p99, cold over steady"]["met"])
        self.assertIn("3 of 10", found["p99, cold over steady"]["remark"])


SECTION = """#!/usr/bin/env python3
import os, pathlib, sys, time
sys.path.insert(0, {serve!r})
import report
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
rows = report.Report({name!r}, out / {file!r})
rows.add("case", "what", "ms", ours=1, at_most=2)
rows.note("arguments", " ".join(sys.argv[2:]))
{rest}
"""


class RunTest(Folder):
    def setUp(self):
        super().setUp()
        self.programs = self.folder / "a" / "b"
        self.programs.mkdir(parents=True)
        for name in ("run", "report.py", "picture.py", "servers.py"):
            shutil.copy(SERVE / name, self.programs / name)

    def section(self, name, file="results.json", rest=""):
        path = self.programs / name
        path.write_text(SECTION.format(serve=str(SERVE), name=name, file=file, rest=rest))
        path.chmod(0o755)

    def start(self, *options):
        command = [self.programs / "run", "model", "--out", self.folder / "out", *options]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def results(self):
        return {s["section"]: s for s in json.loads((self.folder / "out" / "results.json").read_text())["sections"]}

    def test_sections(self):
        """One that works, twice; one that ends before it has anything; one that is not there."""
        self.section("never-seen")
        self.section("stress", "stress.json", "sys.exit(1)")
        (self.programs / "stress").write_text("#!/bin/sh\nexit 7\n")
        process = self.start("--quick")
        text, _ = process.communicate()
        self.assertEqual(process.returncode, 1, text)
        found = self.results()
        self.assertIn("--quick", found["never-seen"]["notes"]["arguments"])
        self.assertIn("--control", found["never-seen"]["notes"]["arguments"])  # the last of the two
        self.assertEqual(found["peers"]["missing"][0]["reason"], "bench/serve/compare-peers is not there")
        self.assertEqual(found["stress"]["missing"][0]["reason"], "stress ended with 7")
        self.assertIn("NOT MEASURED: all of it: stress ended with 7", text)
        self.assertEqual((self.folder / "out" / "table.md").read_text().count("| case"), 4)
        xml.etree.ElementTree.parse(self.folder / "out" / "picture.svg")

    def test_all_met(self):
        self.section("never-seen")
        self.section("compare-peers")
        self.section("stress", "stress.json")
        process = self.start()
        text, _ = process.communicate()
        self.assertEqual(process.returncode, 0, text)

    def test_interrupted(self):
        self.section("never-seen", rest="""
try:
    (out / "waits").write_text("")
    time.sleep(600)
except KeyboardInterrupt:
    rows.missing("the rest", "interrupted")
""")
        self.section("stress", "stress.json")
        process = self.start()
        while not (self.folder / "out" / "never-seen" / "waits").exists() and process.poll() is None:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGTERM)
        text, _ = process.communicate()
        self.assertEqual(process.returncode, 1, text)
        found = self.results()
        self.assertEqual(len(found["never-seen"]["rows"]), 1)
        self.assertEqual(found["never-seen"]["missing"][0]["reason"], "interrupted")
        self.assertEqual(found["stress"]["missing"][0]["reason"], "not run yet")

    def test_options_of_a_section(self):
        self.section("never-seen")
        process = self.start("--only", "never-seen", "--", "--loads", "50")
        process.communicate()
        self.assertIn("--loads 50", self.results()["never-seen"]["notes"]["arguments"])
        process = self.start("--", "--loads", "50")
        process.communicate()
        self.assertEqual(process.returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
