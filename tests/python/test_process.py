# SPDX-License-Identifier: Apache-2.0
"""The ends and copies of processes: fork, exit while compiles and threads run, other interpreters, import."""
import array
import os
import unittest

import support
from support import SAXPY

import quern

SLOW = """
import quern
def slow(seed):
    body = "\\n".join(f"  for at{k} in 0..n {{ y[at{k}] = exp(x[at{k}] * {seed}.5) + tanh(y[at{k}] + {k}.0); }}" for k in range(60))
    return quern.Module(f"func slow(x: f32[n], inout y: f32[n]) {{\\n{body}\\n}}\\n")
"""


class Processes(unittest.TestCase):
    def check(self, code, *args, **options):
        done = support.run(code, *args, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def test_fork(self):
        module = quern.Module(SAXPY)
        y = array.array("f", [1])
        module["saxpy"](1.0, array.array("f", [2]), y)
        child = os.fork()
        if child == 0:
            result = 1
            try:
                # What the parent looked up, and a new lookup that compiles.
                module["saxpy"](1.0, array.array("f", [2]), y)
                quern.Module(SAXPY.replace("a * x", "77.0 * x"))["saxpy"](1.0, array.array("f", [1]), y)
                result = 0 if y[0] == 5 + 77 else 2
            finally:
                os._exit(result)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(y[0], 3)

    def test_fork_while_threads_look_up(self):
        self.check(SLOW + """
import os, threading, warnings
# From 3.12 on os.fork() warns of other threads.
warnings.simplefilter("ignore", DeprecationWarning)
threads = [threading.Thread(target=lambda i=i: slow(i).compile("slow", tier="fast")) for i in range(2)]
[one.start() for one in threads]
children = []
for i in range(5):
    child = os.fork()
    if child == 0:
        quern.Module(support.SAXPY)["saxpy"](1.0, memoryview(bytearray(4)).cast("f"), memoryview(bytearray(4)).cast("f"))
        os._exit(0)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
[one.join() for one in threads]
""")

    def test_exit_while_a_compile_runs(self):
        self.check(SLOW + "request = slow(1).request('slow', tier='fast')\n")

    def test_exit_while_threads_wait(self):
        # Threads that the interpreter does not wait for are ended inside the extension.
        for delay in (0, 0.1, 0.3):
            self.exit_while_threads_wait(delay)

    def exit_while_threads_wait(self, delay):
        self.check(SLOW + """
import sys, threading, time
def work(i, **options):
    try:
        slow(i).compile("slow", tier="fast", **options)
    except quern.Error:
        pass  # the end of the engine cancels it
for i in range(3):
    threading.Thread(target=work, args=(i,), daemon=True).start()
threading.Thread(target=work, args=(9,), kwargs=dict(miss="fallback"), daemon=True).start()
time.sleep(float(sys.argv[1]))
""", delay)

    def test_exit_while_threads_call(self):
        self.check("""
import quern, threading, time, array
f = quern.Module("func slow(n: i64, inout y: f32[1]) { for i in 0..n { y[0] = y[0] * 0.999 + 1.0; } }")["slow"]
f(1, array.array("f", [0]))
threading.Thread(target=f, args=(100_000_000, array.array("f", [0])), daemon=True).start()
time.sleep(0.05)
""")

    def test_exit_with_engines_alive(self):
        self.check("import quern, sys\nsys.kept = [quern.Engine(''), quern.Module(support.SAXPY, engine=quern.Engine('')).compile('saxpy')]\n")

    def test_other_interpreter(self):
        out = self.check("""
import quern
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
code = '''
import sys
sys.path[:] = %r
try:
    import quern
    print("imported")
except ImportError as error:
    print("refused")
''' % support.sys.path
one = interpreters.create()
interpreters.run_string(one, code) if hasattr(interpreters, "run_string") else interpreters.exec(one, code)
interpreters.destroy(one)
""")
        self.assertEqual(out.strip(), "refused")

    def test_import_is_light(self):
        out = self.check("import sys\nbefore = set(sys.modules)\nimport quern\nprint(*sorted(set(sys.modules) - before))\n"
                         "print('libLLVM' in open('/proc/self/maps').read())\n")
        loaded, has_compiler = out.splitlines()
        self.assertFalse({"asyncio", "numpy", "typing", "ctypes"} & set(loaded.split()) - {"typing"}, loaded)
        self.assertEqual(has_compiler, "False")


if __name__ == "__main__":
    support.main()
