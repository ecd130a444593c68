# SPDX-License-Identifier: Apache-2.0
"""serve_load against fake_server.py. No upper bound of a time is asserted: only what holds on a busy machine as well.

usage: test_load.py SERVE_LOAD
"""
import contextlib
import csv
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "bench" / "serve"
LOAD = sys.argv.pop(1) if len(sys.argv) > 1 else None


@contextlib.contextmanager
def server(*options):
    process = subprocess.Popen([sys.executable, HERE / "fake_server.py", *options], stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class LoadTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return f"{self.folder.name}/{name}"

    def trace(self, *options):
        subprocess.run([SCRIPTS / "make-trace", "--out", self.path("trace"), *options], check=True)
        return self.path("trace")

    def load(self, url, *options, protocol="tei", status=0):
        """Returns records and summary. Lag is no failure here: the machine may be busy."""
        done = subprocess.run([LOAD, "--url", url, "--protocol", protocol, "--model", "m", "--trace", self.path("trace"),
                               "--records", self.path("records"), "--json", self.path("json"), "--lag-limit", "100000",
                               *options], capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.table = done.stdout
        if status == 2:
            return done.stderr
        with open(self.path("records"), newline="") as file:
            records = list(csv.DictReader(file))
        with open(self.path("json")) as file:
            return records, json.load(file)

    def test_protocols_agree(self):
        self.trace("--count", "40", "--rate", "400", "--batch", "1:5", "--lengths", "3:40")
        sums = {}
        with server() as url:
            for protocol, options in (("tei", []), ("openai", []), ("openai", ["--floats"]), ("oip", []), ("oip-binary", []),
                                      ("oip", ["--ids"]), ("oip-binary", ["--ids"]), ("openai", ["--ids"])):
                with self.subTest(protocol=protocol, options=options):
                    records, summary = self.load(url + "/prefix", *options, "--embeddings", self.path("e.npy"),
                                                 protocol=protocol)
                    self.assertEqual(summary["embedding_width"], 4)
                    self.assertTrue(all(r["status"] == "200" and r["error"] == "" for r in records))
                    found = [r["checksum"] for r in records]
                    self.assertGreater(len(set(found)), 30)
                    kind = "ids" if "--ids" in options else "texts"
                    self.assertEqual(sums.setdefault(kind, found), found)
                    if kind == "texts":
                        pathlib.Path(self.path("e.npy")).rename(self.path(f"{protocol}.npy"))
        compare = [SCRIPTS / "compare-embeddings", self.path("tei.npy")]
        self.assertEqual(subprocess.run([*compare, self.path("oip-binary.npy")], capture_output=True).returncode, 0)
        values = bytearray(pathlib.Path(self.path("tei.npy")).read_bytes())
        values[-1] ^= 0x80  # the sign of the last value
        pathlib.Path(self.path("changed.npy")).write_bytes(values)
        done = subprocess.run([*compare, self.path("changed.npy")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("; 1 below", done.stdout)

    def test_records_and_order(self):
        self.trace("--count", "100", "--rate", "500", "--clients", "7")
        with server("--mark", "4") as url:
            records, summary = self.load(url, "--connections", "3", "--warm-up", "10")
        self.assertEqual([int(r["index"]) for r in records], list(range(100)))
        for r in records:
            self.assertLessEqual(float(r["scheduled_us"]), float(r["sent_us"]))
            self.assertLess(float(r["sent_us"]), float(r["done_us"]))
            self.assertGreaterEqual(float(r["unread_us"]), 0)
            self.assertLess(int(r["client"]), 7)
        self.assertEqual(sum(r["first_seen"] == "1" for r in records), 25)
        self.assertEqual(summary["warm_up"], 10)
        self.assertEqual(summary["latency_ms"]["count"], 90)
        marked = sum(r["first_seen"] == "1" for r in records[10:])
        self.assertEqual(summary["latency_first_seen_ms"]["count"], marked)
        self.assertEqual(summary["latency_others_ms"]["count"], 90 - marked)
        # The summary's p99 and p50 are those of the records.
        latencies = sorted(float(r["done_us"]) - float(r["scheduled_us"]) for r in records[10:])
        self.assertAlmostEqual(summary["latency_ms"]["p99"]["value"], latencies[89] / 1e3, places=2)
        self.assertAlmostEqual(summary["latency_ms"]["p50"]["value"], latencies[44] / 1e3, places=2)

    def test_stall_is_seen_on_one_connection(self):
        """A closed loop would send nothing during the stall, and record one slow request. Here all are slow."""
        self.trace("--count", "150", "--rate", "200", "--arrivals", "constant")
        with server("--stall", "50:0.3") as url:
            records, summary = self.load(url, "--connections", "1", "--max-connections", "1")
        stalled = records[50]
        end = float(stalled["done_us"])
        self.assertGreaterEqual(end - float(stalled["sent_us"]), 300e3)
        during = [r for r in records[51:] if float(r["scheduled_us"]) < end]
        self.assertGreaterEqual(len(during), 55)
        for r in during:
            self.assertGreaterEqual(float(r["done_us"]), end)
        # Those that were due while serve_load itself was kept from running found the connection free again.
        self.assertGreaterEqual(sum(r["waited"] == "1" for r in during), 20)
        # From its instant, each shows the rest of the stall; so the median of all does as well.
        self.assertGreaterEqual(sum(float(r["done_us"]) - float(r["scheduled_us"]) >= 100e3 for r in records), 40)
        self.assertGreaterEqual(summary["latency_ms"]["p90"]["value"], 100)
        self.assertEqual(summary["waited_for_connection"], sum(r["waited"] == "1" for r in records))

    def test_stall_is_seen_on_many_connections(self):
        self.trace("--count", "150", "--rate", "200", "--arrivals", "constant")
        with server("--stall", "50:0.3") as url:
            records, summary = self.load(url, "--connections", "2")
        self.assertGreater(summary["connections"], 2)
        self.assertGreaterEqual(sum(float(r["done_us"]) - float(r["scheduled_us"]) >= 100e3 for r in records), 30)

    def test_closed_loop_says_so(self):
        self.trace("--count", "60", "--rate", "1")
        with server() as url:
            records, summary = self.load(url, "--closed", "3")
            self.assertEqual(summary["loop"], "closed")
            self.assertIn("CLOSED", self.table)
            self.assertEqual(len({r["connection"] for r in records}), 3)
            self.assertEqual(summary["connections"], 3)
            self.assertTrue(all(r["scheduled_us"] == r["sent_us"] for r in records))

    def test_duration_and_speed(self):
        self.trace("--count", "100", "--rate", "100", "--arrivals", "constant")
        with server() as url:
            records, summary = self.load(url, "--speed", "4", "--duration", "0.1")
        self.assertEqual([float(r["scheduled_us"]) for r in records[:3]], [0, 2500, 5000])
        self.assertEqual(summary["requests"], 40)
        self.assertEqual(sum(r["error"] == "unsent" for r in records), 60)
        self.assertAlmostEqual(summary["offered_per_s"], 400, places=3)

    def test_answers_in_other_forms(self):
        self.trace("--count", "40", "--rate", "400")
        for fault in ("chunks", "no-length", "last"):
            with self.subTest(fault=fault), server("--fault", fault, "--every", "2") as url:
                records, summary = self.load(url, "--connections", "2")
                self.assertEqual(summary["latency_ms"]["count"], 40)
                if fault != "chunks":
                    self.assertGreaterEqual(summary["connections"], 20)

    def test_failures_are_counted(self):
        self.trace("--count", "40", "--rate", "400")
        for fault, word in (("close", "closed"), ("truncated", "closed"), ("garbage", "protocol"), ("extra", "protocol"),
                            ("status", "status"), ("count", "body"), ("not-json", "body"), ("never", "timeout")):
            with self.subTest(fault=fault), server("--fault", fault, "--every", "4") as url:
                # Right answers may take longer than the time-out on a busy machine: only this fault has a short one.
                timeout = ["--timeout", "2"] if fault == "never" else []
                records, summary = self.load(url, *timeout, status=1)
                self.assertGreaterEqual(summary["failed"][word], 10)
                if fault != "never":
                    self.assertEqual(summary["failed"][word], 10)
                    self.assertEqual(summary["latency_ms"]["count"], 30)
                self.assertEqual(sum(r["error"] == word for r in records), summary["failed"][word])
                # A quarter failed: the 90th percentile of all requests never came.
                self.assertEqual(summary["latency_failed_as_never_ms"]["count"], 40)
                self.assertIsNone(summary["latency_failed_as_never_ms"]["p90"]["value"])
                if fault == "never":
                    late = [r for r in records if r["error"] == "timeout"]
                    self.assertTrue(all(float(r["done_us"]) - float(r["scheduled_us"]) >= 2e6 for r in late))

    def test_server_that_goes(self):
        self.trace("--count", "100", "--rate", "200")
        with server("--fault", "die", "--every", "30") as url:
            records, summary = self.load(url, "--connections", "2", status=1)
            failed = summary["failed"]
            self.assertEqual(summary["latency_ms"]["count"] + failed["closed"] + failed["connect"], 100)
            self.assertGreater(failed["connect"], 0)
            self.assertIn("cannot connect", self.load(url, status=2))

    def test_lag_is_a_failure_of_its_own(self):
        self.trace("--count", "50", "--rate", "500")
        with server() as url:
            records, summary = self.load(url, "--lag-limit", "0.000001", status=3)
        self.assertTrue(summary["is_bottleneck"])
        self.assertIn("BOTTLENECK", self.table)
        self.assertEqual(summary["latency_ms"]["count"], 50)

    def test_key(self):
        self.trace("--count", "10", "--rate", "500")
        with server("--key", "sesame") as url:
            records, summary = self.load(url, status=1)
            self.assertEqual({r["status"] for r in records}, {"401"})
            self.assertEqual(summary["failed"]["status"], 10)
            self.assertEqual(summary["first_refusal"], "status 401: no??entry")
            self.load(url, "--key", "sesame")

    def test_texts_and_wrong_traces(self):
        trace = pathlib.Path(self.path("trace"))
        with server() as url:
            trace.write_text('{"at_us":0,"texts":["a \\"quoted\\" text","Kant\\u014d"]}\n', encoding="utf-8")
            sums = {self.load(url, protocol=p)[0][0]["checksum"] for p in ("tei", "openai", "oip", "oip-binary")}
            self.assertEqual(len(sums), 1)
            self.assertIn("needs a trace of lengths", self.load(url, "--ids", protocol="oip", status=2))
            for text, message in (("", "no requests"), ("{", "trace:1:"), ('{"at_us":1}', "needs either"),
                                  ('{"at_us":1,"lengths":[2]}', "a length is not"), ('{"trace":2}', "another version"),
                                  ('{"at_us":5,"lengths":[3]}\n{"at_us":4,"lengths":[3]}', "trace:2: times do not ascend")):
                trace.write_text(text)
                self.assertIn(message, self.load(url, status=2))


if __name__ == "__main__":
    unittest.main()
