# SPDX-License-Identifier: Apache-2.0
"""compare-runs on records made here: it must see a claim that holds, one that fails, and one that is not shown.

usage: test_compare_runs.py
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

COMPARE = pathlib.Path(__file__).resolve().parents[2] / "bench" / "serve" / "compare-runs"
HEADER = ("index,client,scheduled_us,sent_us,done_us,unread_us,status,bytes,texts,tokens,first_seen,connection,waited,warm_up,"
          "checksum,error\n")


class CompareRunsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_file(self, name, rng, factor=1.0, count=1000, marks=(), slow=(), error="", lag_us=10.0, unread_us=5.0, tokens=9):
        """Requests 1 ms apart with latencies of 3 ms and an exponential tail; those in `slow` take 50 times as long."""
        path = f"{self.folder.name}/{name}.csv"
        with open(path, "w") as file:
            file.write(HEADER)
            for i in range(count):
                latency = (3000 + rng.expovariate(1 / 500)) * factor * (50 if i in slow else 1)
                file.write(f"{i},0,{i * 1000},{i * 1000 + lag_us},{i * 1000 + latency:.3f},{unread_us},200,99,1,{tokens},"
                           f"{int(i in marks)},0,0,0,0,{error if i == 500 else ''}\n")
        return path

    def compare(self, pairs, *options, status):
        runs, against = zip(*pairs)
        result = f"{self.folder.name}/result.json"
        done = subprocess.run([COMPARE, "--runs", *runs, "--against", *against, "--json", result, "--resamples", "2000", *options],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        if status == 2:
            return done.stderr
        with open(result) as file:
            found = json.load(file)
        self.assertEqual(found["holds"], status == 0)
        return done.stdout, {g["group"]: g for g in found["groups"]}

    def pairs(self, count=10, **cold):
        rng = random.Random(3)
        return [(self.run_file(f"cold{i}", rng, **cold), self.run_file(f"steady{i}", rng)) for i in range(count)]

    def test_holds(self):
        text, groups = self.compare(self.pairs(), status=0)
        self.assertIn("the claim holds", text)
        self.assertEqual(groups["all"]["verdict"], "holds")
        self.assertEqual(groups["all"]["pairs"], 10)
        self.assertLess(groups["all"]["low"], 1.05)
        self.assertGreater(groups["all"]["high"], 0.95)
        self.assertEqual(groups["first-seen"]["verdict"], "no data")

    def test_fails(self):
        """The negative control: a run whose tail is 1.5 times as long."""
        text, groups = self.compare(self.pairs(factor=1.5), status=1)
        self.assertIn("THE CLAIM FAILS", text)
        self.assertAlmostEqual(groups["all"]["ratio"], 1.5, delta=0.1)
        self.assertGreater(groups["all"]["low"], 1.2)

    def test_the_tail_counts_not_the_median(self):
        _, groups = self.compare(self.pairs(slow=range(0, 1000, 50)), status=1)
        self.assertEqual(groups["all"]["verdict"], "FAILS")
        self.compare(self.pairs(slow=range(0, 1000, 50)), "--quantile", "50", status=0)

    def test_not_shown(self):
        text, groups = self.compare(self.pairs(count=4), status=1)
        self.assertEqual(groups["all"]["verdict"], "not shown")
        self.assertIn("needs 10 pairs", text)
        # Half of the pairs at 1.5, half at 1: neither shown nor refuted.
        rng = random.Random(3)
        mixed = [(self.run_file(f"c{i}", rng, factor=1 + i % 2 * 0.45), self.run_file(f"s{i}", rng)) for i in range(10)]
        text, groups = self.compare(mixed, status=1)
        self.assertEqual(groups["all"]["verdict"], "not shown")
        self.assertIn("the claim is not shown", text)

    def test_first_seen_and_bystanders(self):
        """Marked requests are slow for 150 ms each: those within that time are bystanders, and these are not slow."""
        marks = range(100, 1000, 400)
        pairs = self.pairs(marks=marks, slow=marks)
        options = ("--min-requests", "3")
        _, groups = self.compare(pairs, *options, "--must", "bystanders", status=0)
        self.assertEqual(groups["first-seen"]["requests"], 30)
        self.assertEqual(groups["first-seen"]["verdict"], "FAILS")
        self.assertGreater(groups["first-seen"]["ratio"], 20)
        self.assertGreater(groups["bystanders"]["requests"], 10 * 3 * 145)
        self.assertLess(groups["bystanders"]["requests"], 10 * 3 * 250)
        self.compare(pairs, *options, "--must", "first-seen", status=1)
        _, wider = self.compare(pairs, *options, "--after-ms", "100", "--must", "bystanders", status=0)
        self.assertGreater(wider["bystanders"]["requests"], groups["bystanders"]["requests"] + 10 * 2 * 90)

    def test_failures_are_infinitely_late(self):
        _, groups = self.compare(self.pairs(count=10, error="timeout"), "--quantile", "99.95", status=1)
        self.assertEqual(groups["all"]["verdict"], "FAILS")
        self.assertIsNone(groups["all"]["ratio"])
        self.compare(self.pairs(count=10, error="timeout"), status=0)  # one of 1000 is above the 99th percentile

    def test_refuses(self):
        rng = random.Random(3)
        good = self.run_file("good", rng)
        self.assertIn("not runs of the same", self.compare([(good, self.run_file("x", rng, count=999))], status=2))
        self.assertIn("not runs of the same", self.compare([(good, self.run_file("x", rng, tokens=8))], status=2))
        self.assertIn("the generator was the bottleneck", self.compare([(self.run_file("x", rng, lag_us=2000), good)], status=2))
        self.assertIn("the generator was the bottleneck", self.compare([(good, self.run_file("x", rng, unread_us=2000))], status=2))
        self.assertIn("not records", self.compare([(good, __file__)], status=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
