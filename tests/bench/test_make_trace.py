# SPDX-License-Identifier: Apache-2.0
"""make-trace: the same seed gives the same bytes; requests are as distinct, and arrive as, it says.

usage: test_make_trace.py
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

MAKE = pathlib.Path(__file__).resolve().parents[2] / "bench" / "serve" / "make-trace"


def make(*options):
    return subprocess.run([MAKE, *options], check=True, capture_output=True, text=True).stdout


def requests(text):
    return [json.loads(line) for line in text.splitlines()[1:]]


def gaps(found):
    times = [r["at_us"] for r in found]
    return [b - a for a, b in zip(times, times[1:])]


class MakeTraceTest(unittest.TestCase):
    def test_same_seed_same_bytes(self):
        for arrivals in ("poisson", "bursty", "constant"):
            options = ("--count", "500", "--arrivals", arrivals, "--batch", "1:4")
            self.assertEqual(make(*options, "--seed", "5"), make(*options, "--seed", "5"))
            self.assertNotEqual(requests(make(*options, "--seed", "5")), requests(make(*options, "--seed", "6")))

    def test_known_bytes(self):
        """A trace of another day is the same trace: other Pythons and later versions of the script must keep this."""
        lines = make("--count", "2", "--batch", "1:3", "--clients", "9", "--seed", "1").splitlines()
        self.assertEqual(lines[1:], KNOWN)

    def test_contents_do_not_depend_on_arrivals(self):
        options = ("--count", "200", "--batch", "1:4", "--distinct", "lengths")
        one = requests(make(*options, "--arrivals", "poisson", "--rate", "50"))
        other = requests(make(*options, "--arrivals", "bursty", "--rate", "900"))
        self.assertEqual([(r["lengths"], r["seed"]) for r in one], [(r["lengths"], r["seed"]) for r in other])

    def test_distinct(self):
        shapes = {"lengths": lambda n: (len(n), *sorted(n)), "total": lambda n: (len(n), sum(n)),
                  "padded": lambda n: (len(n), max(n))}
        for name, shape in shapes.items():
            found = requests(make("--count", "8000", "--batch", "1:32", "--lengths", "3:256", "--distinct", name))
            self.assertEqual(len({shape(r["lengths"]) for r in found}), 8000)
            self.assertTrue(all(1 <= len(r["lengths"]) <= 32 for r in found))
            self.assertTrue(all(3 <= n <= 256 for r in found for n in r["lengths"]))
            self.assertEqual(min(n for r in found for n in r["lengths"]), 3)
            self.assertEqual(max(n for r in found for n in r["lengths"]), 256)

    def test_distinct_lists(self):
        """As many lists of few short texts as there nearly are; small batches, of which there are few, come anywhere."""
        found = requests(make("--count", "8000", "--batch", "1:4", "--lengths", "3:12", "--distinct", "ordered"))
        self.assertEqual(len({tuple(r["lengths"]) for r in found}), 8000)
        first = sum(len(r["lengths"]) for r in found[:4000])
        self.assertAlmostEqual(first / sum(len(r["lengths"]) for r in found), 0.5, delta=0.01)

    def test_too_many_distinct(self):
        for name in ("ordered", "lengths", "total", "padded"):
            done = subprocess.run([MAKE, "--count", "300", "--batch", "1", "--distinct", name], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("of 300 distinct requests", done.stderr)

    def test_rates(self):
        """The seed is fixed, so these are facts of one sequence, within five standard errors of the formulas."""
        count = 20000
        for arrivals, spread in (("poisson", 5 / count**0.5), ("constant", 0.001), ("bursty", 0.15)):
            found = gaps(requests(make("--count", str(count), "--rate", "100", "--arrivals", arrivals)))
            mean = sum(found) / len(found)
            self.assertAlmostEqual(mean / 10000, 1, delta=spread)
            variation = (sum((g - mean)**2 for g in found) / len(found))**0.5 / mean
            if arrivals == "poisson":
                self.assertAlmostEqual(variation, 1, delta=0.05)
            elif arrivals == "constant":
                self.assertLess(variation, 0.001)
            else:
                self.assertGreater(variation, 1.3)

    def test_sentences_and_lengths_files(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write('one "quoted" line\n\nKantō\n')
            file.flush()
            found = requests(make("--count", "50", "--sentences", file.name, "--batch", "2"))
            self.assertEqual({t for r in found for t in r["texts"]}, {'one "quoted" line', "Kantō"})
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("7\n7\n9\n")
            file.flush()
            found = requests(make("--count", "300", "--lengths-file", file.name))
            lengths = [r["lengths"][0] for r in found]
            self.assertEqual(set(lengths), {7, 9})
            self.assertGreater(lengths.count(7), lengths.count(9))


KNOWN = [
    '{"at_us":5025,"client":0,"lengths":[244],"seed":196614429}',
    '{"at_us":5717,"client":5,"lengths":[44,247],"seed":2645389720}',
]

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
