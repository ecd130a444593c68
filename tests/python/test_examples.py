# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/python run, each in a process of its own, with what is installed."""
import os
import pathlib
import subprocess
import sys
import unittest

import support

import quern

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/python"
COMMAND = os.environ.get("QUERN_COMMAND") or os.path.join(os.path.dirname(quern.__file__), "bin/quern")


@support.needs("numpy")
@unittest.skipUnless(EXAMPLES.exists(), "there is no examples/python")
class Examples(unittest.TestCase):
    def run_example(self, *args):
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(one for one in sys.path if one), QUERN_COMMAND=COMMAND)
        done = subprocess.run([sys.executable, EXAMPLES / args[0], *args[1:]], env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=600)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def test_saxpy(self):
        out = self.run_example("saxpy.py")
        self.assertIn("numpy: [1.0, 3.0, 5.0, 7.0] [0.0, 10.0, 20.0, 30.0]", out)
        for name in ("torch", "jax"):  # each runs, or says why it does not
            self.assertIn(f"{name}: ", out)

    def test_warm_start(self):
        lines = self.run_example("warm_start.py").splitlines()
        self.assertEqual([line.partition(":")[0] for line in lines], ["compiled", "disk", "disk"])
        self.assertEqual([line.rpartition(", ")[2] for line in lines],
                         ["a compiler is loaded", "no compiler is loaded", "no compiler is loaded"])

    @unittest.skipUnless(os.path.exists(COMMAND), "the build has no command quern, which compiles ahead")
    def test_ship(self):
        out = self.run_example("ship.py")
        self.assertIn("entries in the bundle: 2", out)
        self.assertIn("by code from the bundle", out)
        self.assertIn("compiling is forbidden", out)

    def test_embed(self):
        self.assertIn("3 sentences: smallest cosine", self.run_example("embed.py", "--seeded"))

    def test_embed_without_a_model(self):
        done = subprocess.run([sys.executable, EXAMPLES / "embed.py", support.folder], text=True, stderr=subprocess.PIPE, timeout=600,
                              env=dict(os.environ, PYTHONPATH=os.pathsep.join(one for one in sys.path if one)))
        self.assertEqual(done.returncode, 1)
        self.assertIn("has no model.safetensors", done.stderr)


if __name__ == "__main__":
    support.main()
