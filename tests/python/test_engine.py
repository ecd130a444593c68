# SPDX-License-Identifier: Apache-2.0
"""Engines: the cache, lookups that wait or do not, reports, warming."""
import array
import asyncio
import os
import signal
import subprocess
import threading
import time
import unittest

import support
from support import SAXPY

import quern


def module_of(factor, engine=None):
    """A module that no other test has."""
    return quern.Module(SAXPY.replace("a * x", f"{factor}.0 * a * x"), engine=engine)


def call(module, handle=None):
    y = array.array("f", [0, 0])
    (handle or module["saxpy"])(1.0, array.array("f", [1, 2]), y)
    return list(y)


def slow_module(seed):
    """A module whose compile takes seconds."""
    body = "\n".join(f"  for at{k} in 0..n {{ y[at{k}] = exp(x[at{k}] * {seed}.5) + tanh(y[at{k}] + {k}.0); }}" for k in range(120))
    return quern.Module(f"func slow(x: f32[n], inout y: f32[n]) {{\n{body}\n}}\n")


class Engines(unittest.TestCase):
    def folder(self, name):
        path = os.path.join(support.folder, name)
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def test_cache_and_bundle(self):
        cache = self.folder("persistent")
        with quern.Engine(cache) as engine:
            module = module_of(101, engine)
            self.assertEqual(call(module), [101, 202])
            self.assertEqual(module["saxpy"].info.source, "compiled")
            self.assertGreater(module["saxpy"].info.compile_s, 0)
            self.assertTrue(engine.flush(60))
        # Without a compiler: from the directory, then from a bundle.
        bundle = os.path.join(support.folder, "kernels.qnb")
        with quern.Engine(cache, jit="forbid") as engine:
            module = module_of(101, engine)
            self.assertEqual(call(module), [101, 202])
            self.assertEqual(module["saxpy"].info.source, "disk")
            self.assertEqual(engine.why(module).found_in, "memory")
        if os.environ.get("QUERN_COMMAND"):
            subprocess.run([os.environ["QUERN_COMMAND"], "cache", "export", bundle], check=True, stdout=subprocess.DEVNULL,
                           env=dict(os.environ, QUERN_CACHE_DIR=cache))
            with quern.Engine("", bundles=[bundle], jit="forbid", generator_dir="none") as engine:
                module = module_of(101, engine)
                self.assertEqual(call(module), [101, 202])
                self.assertEqual(module["saxpy"].info.source, "bundle")

    def test_warm_call_maps_no_compiler(self):
        code = "import array, quern\nmodule = quern.Module(support.SAXPY)\ny = array.array('f', [1])\nmodule['saxpy'](1.0, array.array('f', [2]), y)\n" \
               "print(module['saxpy'].info.source, 'libLLVM' in open('/proc/self/maps').read())\nquern.default_engine().flush()\n"
        # The cache of this process, not that of the child.
        code = "import os\nos.environ['QUERN_CACHE_DIR'] = os.environ['SHARED_CACHE']\n" + code
        shared = dict(env={"SHARED_CACHE": self.folder("shared")})
        self.assertIn(support.run(code, **shared).stdout, ("compiled True\n", "compiled False\n"))
        again = support.run(code, **shared)
        self.assertEqual((again.stdout, again.stderr), ("disk False\n", ""))

    def test_forbidden(self):
        engine = quern.Engine("", jit="forbid", ignores_environment=True)
        module = module_of(102, engine)
        with self.assertRaises(quern.CompileForbidden) as caught:
            call(module)
        self.assertIn("saxpy@", str(caught.exception))
        why = engine.why(module)
        self.assertEqual((why.found_in, str(why)), ("", why.text))
        with self.assertRaises(quern.CompileForbidden):
            module_of(102).compile("saxpy", miss="fail")

    def test_options(self):
        for bad, words in ((dict(jit="maybe"), "maybe"), (dict(jot="forbid"), "jit"), (dict(cache_max_size="much"), "much")):
            with self.assertRaises(quern.InvalidArgument) as caught:
                quern.Engine("", **bad)
            self.assertIn(words, str(caught.exception))
        with self.assertRaises(TypeError):
            quern.Engine("", jit=object())
        with self.assertRaises(ValueError):
            quern.Engine("", bundles=["a:b"])
        engine = quern.Engine("", memory_max_entries=7, perf=False, ignores_environment=True)
        self.assertEqual(engine.config()["memory_max_entries"], ("7", "program"))
        self.assertEqual(engine.config()["jit"], ("allow", "default"))
        module = module_of(103)
        for bad in (dict(tier="best"), dict(miss="retry"), dict(timeout=-1)):
            with self.assertRaises(ValueError):
                module.compile("saxpy", **bad)
        with self.assertRaises(TypeError):
            module.compile("saxpy", generic=3)
        with self.assertRaises(quern.NotFound):
            module.compile("saxpy", target="cpux")

    def test_reports(self):
        engine = quern.Engine("", ignores_environment=True)
        call(module_of(104, engine))
        stats = engine.stats()
        self.assertEqual(stats["compiled"] if "compiled" in stats else sum(stats.values()) > 0, 1)
        self.assertEqual(engine.stages()["compile"]["count"], 1)
        self.assertIn("quern_", engine.metrics())

    def test_closed(self):
        engine = quern.Engine("")
        module = module_of(105, engine)
        self.assertEqual(call(module), [105, 210])
        engine.close()
        engine.close()
        self.assertTrue(engine.is_closed)
        # Functions stay valid.
        self.assertEqual(call(module), [105, 210])
        for use in (engine.stats, engine.metrics, engine.stages, engine.config, engine.flush, lambda: engine.why(module),
                    lambda: module.compile("saxpy"), lambda: module.request("saxpy"), lambda: engine.warm([module])):
            with self.assertRaises(quern.FailedPrecondition):
                use()

    def test_closed_while_threads_use_it(self):
        engine = quern.Engine("")
        seen = []

        def look(i):
            try:
                for k in range(20):
                    module_of(1000 + 100 * i + k, engine).compile("saxpy", tier="fast")
            except (quern.FailedPrecondition, quern.Cancelled):
                seen.append(i)

        threads = [threading.Thread(target=look, args=(i,)) for i in range(3)]
        [one.start() for one in threads]
        engine.close()
        [one.join() for one in threads]
        self.assertEqual(sorted(seen), [0, 1, 2])

    def test_tiers_and_fallback(self):
        module = module_of(106)
        fast = module.compile("saxpy", tier="fast")
        self.assertEqual((fast.info.tier, fast.is_fallback), ("fast", False))
        other = module.compile("saxpy", miss="fallback")
        self.assertEqual(call(module, other), [106, 212])
        deadline = time.monotonic() + 600
        while other.is_fallback and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(other.is_fallback)
        generic = module_of(107)
        fixed = generic.specialize(n=2)
        generic.compile("saxpy")
        function = fixed.compile("saxpy", miss="fallback", generic=generic)
        self.assertEqual(call(fixed, function), [107, 214])


class Waits(unittest.TestCase):
    def test_timeout(self):
        module = slow_module(1)
        with self.assertRaises(TimeoutError) as caught:
            module.compile("slow", timeout=0.01)
        self.assertIsInstance(caught.exception, quern.DeadlineExceeded)

    def test_await(self):
        async def work():
            functions = await asyncio.gather(*(module_of(200 + i).request("saxpy", tier="fast") for i in range(5)))
            hit = await module_of(200).request("saxpy", tier="fast")
            with self.assertRaises(quern.NotFound):
                module_of(200).request("nothing")
            return functions + [hit]

        functions = asyncio.run(work())
        self.assertEqual([call(None, one) for one in functions], [[200 + i, 400 + 2 * i] for i in (0, 1, 2, 3, 4, 0)])

    def test_await_is_cancelled(self):
        async def work():
            task = asyncio.ensure_future(wait_for(slow_module(2).request("slow")))
            await asyncio.sleep(0.05)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        async def wait_for(request):
            return await request

        asyncio.run(work())

    def test_result(self):
        request = module_of(300).request("saxpy")
        self.assertEqual(call(None, request.result()), [300, 600])
        self.assertTrue(request.is_ready)
        self.assertEqual(call(None, request.result(0)), [300, 600])
        slow = slow_module(3).request("slow", timeout=60)
        with self.assertRaises(quern.DeadlineExceeded):
            slow.result(0.01)
        slow.cancel()
        with self.assertRaises(quern.Cancelled):
            slow.result()
        # One that is dropped at once.
        slow_module(4).request("slow")

    def test_interrupt_ends_the_wait(self):
        module = slow_module(5)
        previous = signal.signal(signal.SIGALRM, lambda *unused: (_ for _ in ()).throw(KeyboardInterrupt))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with self.assertRaises(KeyboardInterrupt):
                module.compile("slow")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)


@unittest.skipUnless(os.environ.get("QUERN_COMMAND") or not os.environ.get("QUERN_PYTHON_FOLDER"), "this build has no command to start workers")
class Warming(unittest.TestCase):
    def warm(self, engine, items, **options):
        return engine.warm(items, jobs=1, command=os.environ.get("QUERN_COMMAND"), **options)

    def test_warm(self):
        cache = os.path.join(support.folder, "warm")
        engine = quern.Engine(cache)
        modules = [module_of(400 + i) for i in range(3)]
        listed = os.path.join(support.folder, "list")
        with open(os.path.join(support.folder, "listed.qn"), "w", encoding="utf-8") as file:
            file.write(module_of(403).text)
        with open(listed, "w", encoding="utf-8") as file:
            file.write("listed.qn --target interp\nmissing.qn\n")
        seen = []
        result = self.warm(engine, [*modules[:2], (modules[2], "interp"), listed], tier="fast", on_progress=lambda *args: seen.append(args))
        self.assertEqual((result.total, result.done, result.is_warm, result.is_cancelled), (4, 4, True, False))
        self.assertEqual(result.counts["compiled"], 4)
        self.assertEqual(len([item for _, _, item in seen if item]), 4)
        self.assertEqual({item.outcome for item in result.items}, {"compiled"})
        self.assertEqual([(problem[0], problem[1]) for problem in result.problems], [(listed, 2)])
        again = self.warm(engine, modules[:2], tier="fast", dry_run=True)
        self.assertEqual(again.counts["cached"], 2)

    def test_progress_ends_it(self):
        engine = quern.Engine(os.path.join(support.folder, "cancelled"))
        result = self.warm(engine, [module_of(410), module_of(411)], on_progress=lambda *unused: False)
        self.assertTrue(result.is_cancelled)

        def fails(*unused):
            raise RuntimeError("in the callback")

        with self.assertRaisesRegex(RuntimeError, "in the callback"):
            self.warm(engine, [module_of(412)], on_progress=fails)
        for bad in ([3], [(3, "cpu")], [(module_of(412), 3)]):
            with self.assertRaises(TypeError):
                self.warm(engine, bad)

    def test_needs_a_directory(self):
        with self.assertRaises(quern.FailedPrecondition):
            self.warm(quern.Engine(""), [module_of(413)])


class Bundles(unittest.TestCase):
    def test_write(self):
        folder = os.path.join(support.folder, "of-bundles")
        path = os.path.join(support.folder, "some.qnb")
        with quern.Engine(folder) as engine:
            keys = [quern.Module(SAXPY.replace("a * x", f"{i}.0 * x"), engine=engine).compile("saxpy", tier="fast").info.key for i in range(3)]
            self.assertEqual(engine.write_bundle(path), 3)
            self.assertEqual(engine.write_bundle(path, keys=keys[:1]), 1)
            self.assertEqual(engine.write_bundle(path, keys=iter(keys[1:2]), append=True), 1)
            self.assertRaises(quern.NotFound, engine.write_bundle, path, keys=["0" * 32])
            self.assertRaises(quern.NotFound, engine.write_bundle, os.path.join(support.folder, "nowhere", "some.qnb"))
            self.assertRaises(TypeError, engine.write_bundle, path, keys=[3])
            self.assertRaises(TypeError, engine.write_bundle, path, keys=keys[0])
            self.assertRaises(quern.Error, engine.write_bundle, path, sign=os.path.join(support.folder, "no.key"))
        with quern.Engine("", bundles=[path], jit="forbid") as engine:
            for i in range(2):
                module = quern.Module(SAXPY.replace("a * x", f"{i}.0 * x"), engine=engine)
                self.assertEqual(module.compile("saxpy", tier="fast").info.source, "bundle")
            with self.assertRaises(ValueError) as caught:
                engine.write_bundle(path)
            self.assertIn("no cache directory", str(caught.exception))


if __name__ == "__main__":
    support.main()
