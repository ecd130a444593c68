# SPDX-License-Identifier: Apache-2.0
"""compare-peers without servers: its bisection, its choice of peers, its rows from made-up loads; processor time of a session.

usage: test_compare_peers.py
"""
import argparse
import importlib.machinery
import importlib.util
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "bench" / "serve"
sys.dont_write_bytecode = True


def load(path):
    loader = importlib.machinery.SourceFileLoader(path.name.replace("-", "_"), str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


peers = load(FOLDER / "compare-peers")


class MadeUpLoads:
    """A server that answers `speed` requests/s at most, and whose p99 grows as that of a queue."""

    def __init__(self, speeds):
        self.speeds = speeds
        self.asked = []

    def closed(self, server, case):
        rate = self.speeds[server]
        return {"answered_per_s": rate, "tokens_per_s": rate * 10, "seconds": 2, "cpu_s": 2.0}

    def p99(self, server, case, rate):
        self.asked.append((server, rate))
        speed = self.speeds[server]
        return math.inf if rate >= speed else 1000 / (speed - rate)


class CompareTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name) / "rows.json"
        self.rows = peers.report.Report("peers", self.path)
        self.options = argparse.Namespace(rounds=3, steps=12)

    def compare(self, speeds):
        loads = MadeUpLoads(speeds)
        running = {name: name for name in speeds}
        saturation = peers.compare_closed(self.options, self.rows, loads, running, "short", "title")
        self.assertEqual(saturation, speeds)
        peers.compare_open(self.options, self.rows, loads, running, "short", "title", saturation)
        rows = json.loads(self.path.read_text(encoding="utf-8"))["rows"]
        return loads, [row for row in rows if row["limit"] is not None]

    def test_best_peer_decides(self):
        """p99 reaches the bound at a rate that is as far below the speed for both."""
        gap = 1000 / peers.CASES["short"][2]
        _, rows = self.compare({"quern": 200.0, "onnxruntime sorted": 150.0, "triton": 90.0})
        self.assertEqual([row["case"] for row in rows], ["title, the best: onnxruntime sorted"] * 3)
        self.assertAlmostEqual(rows[0]["ratio"], (200 - gap) / (150 - gap), delta=0.02)
        self.assertEqual([row["met"] for row in rows], [True] * 3)
        self.assertAlmostEqual(rows[1]["ratio"], (150 - 75) / (200 - 75), places=6)
        self.assertAlmostEqual(rows[2]["ratio"], (150 - 105) / (200 - 105), places=6)

    def test_slower_server_misses(self):
        _, rows = self.compare({"quern": 100.0, "onnxruntime sorted": 98.0, "triton": 99.0})
        self.assertEqual([row["met"] for row in rows], [False] * 3)

    def test_settings_of_one_program(self):
        """Only the best settings of a program go on to schedules."""
        loads, _ = self.compare({"quern": 200.0, "onnxruntime sorted": 150.0, "onnxruntime padded": 151.0})
        self.assertEqual({name for name, _ in loads.asked}, {"quern", "onnxruntime padded"})
        self.assertEqual(peers.best_settings({"a, x": 3, "a, y": 4, "b 1": 9, "b 2": 1}), ["b 1", "a, y"])

    def test_bisection(self):
        asked = []

        def probe(rate):
            asked.append(rate)
            return rate ** 2
        self.assertAlmostEqual(peers.rate_within(probe, 1, 100, 400, 6), 20, delta=0.01)  # exact on a power
        self.assertEqual(len(asked), 8)
        self.assertEqual(peers.rate_within(lambda rate: math.inf, 1, 100, 400, 6), 0)
        self.assertEqual(peers.rate_within(lambda rate: 1, 1, 100, 400, 6), 100)
        self.assertLess(peers.rate_within(lambda rate: 1 if rate < 30 else math.inf, 1, 100, 400, 8), 30)

    def test_interval(self):
        mean, (low, high) = peers.interval([1.0, 2.0, 4.0])
        self.assertAlmostEqual(mean, 2.0)
        self.assertTrue(1.0 <= low < 2.0 < high <= 4.0)
        self.assertEqual(peers.interval([1.0, 4.0]), (2.0, None))
        self.assertEqual(peers.interval([1.0, math.inf]), (None, None))

    def test_no_peer(self):
        """Without peers nothing is claimed."""
        _, rows = self.compare({"quern": 100.0})
        self.assertEqual(rows, [])


class ServersTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.options = argparse.Namespace(out=pathlib.Path(self.folder.name))
        self.names = peers.peer_servers.SERVERS
        self.addCleanup(self.names.pop, "made up", None)

    def start(self, *command):
        self.names["made up"] = (lambda options, threads, port: ([*command, str(port)], {}), ("tei", "/", ()))
        cores = subprocess.run(["taskset", "-cp", str(peers.os.getpid())], capture_output=True, text=True, check=True)
        return peers.peer_servers.Server("made up", self.options, 1, cores.stdout.split()[-1])

    def test_missing_program(self):
        with self.assertRaises(peers.peer_servers.Missing) as caught:
            self.start("/no/such/server")
        self.assertIn("/no/such/server", str(caught.exception))

    def test_program_that_ends(self):
        with self.assertRaises(peers.peer_servers.Missing) as caught:
            self.start(sys.executable, "-c", "import sys; sys.exit('no model here')")
        self.assertEqual(str(caught.exception), "no model here")

    def test_time_of_a_session(self):
        """Children count, and stop() ends them."""
        code = ("import http.server, subprocess, sys\n"
                "subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n"
                "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()")
        server = self.start(sys.executable, "-c", code)
        before = server.cpu_seconds()
        while server.cpu_seconds() < before + 0.2:
            time.sleep(0.02)
        server.stop()
        while server.cpu_seconds() > 0:  # the child is not ours to wait for
            time.sleep(0.02)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
