# SPDX-License-Identifier: Apache-2.0
"""Processes of the benchmarks: a server of quern's, and replays of traces against it."""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build"
LATE = 3  # serve_load's status for a generator that was the bottleneck
IDLE_S = 2.0


class Failed(Exception):
    """A part cannot run; the message is the reason."""


def end_on_signals():
    """SIGTERM ends a program as Ctrl-C does: it keeps what it has, and ends its servers."""

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def program(build, name):
    path = pathlib.Path(build) / "bin" / name
    if not path.exists():
        raise Failed(f"{path} is missing; build the target {name.replace('-', '_')}")
    return path


class Server:
    """A process of quern-serve, or of a program with its arguments, with a cache directory of its own.

    As root it has a real-time priority from ready on, below the generator's: with other work on the machine, its threads are
    woken late otherwise, and nice values hardly help. Its thread in the background keeps the lowest priority.
    """

    def __init__(self, build, model, cache, *flags, name="quern-serve"):
        command = [program(build, name), f"model={model}", "--port", "0", "--drain-delay", "0", *flags]
        self.log = open(cache.parent / "server.log", "a+", encoding="utf-8")
        start = self.log.tell()
        environment = dict(os.environ, QUERN_CACHE_DIR=str(cache))
        self.process = subprocess.Popen(command, stderr=self.log, env=environment)
        self.url = None
        while self.url is None:
            time.sleep(0.05)
            self.log.seek(start)
            text = self.log.read()
            found = re.search(r" info ready address=(\S+) ", text)
            self.url = found and f"http://{found[1]}"
            if self.process.poll() is not None:
                raise Failed(f"{name} ended with {self.process.returncode}: {text.strip().splitlines()[-1:]}")
        if os.geteuid() == 0:
            self.raise_priority()

    def raise_priority(self):
        """Not from the start: after real-time compiles the kernel gives other work its turn, during the first requests."""
        for thread in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            if os.sched_getscheduler(int(thread.name)) == os.SCHED_OTHER:
                os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def metrics(self):
        """Returns a function from a name to the sum of its samples."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return lambda name: sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{")))

    def wait_until_idle(self):
        """Waits until nothing was compiled for IDLE_S."""
        count, since = None, time.monotonic()
        while time.monotonic() - since < IDLE_S:
            now = self.metrics()("quern_compiles_total")
            if now != count:
                count, since = now, time.monotonic()
            time.sleep(0.1)


def make_trace(path, **arguments):
    flags = [text for name, value in arguments.items() for text in (f"--{name}", str(value))]
    done = subprocess.run([HERE / "make-trace", *flags, "--out", path], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(done.stderr.strip())


def mean_tokens(path):
    lengths = [sum(json.loads(line)["lengths"]) for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    return sum(lengths) / len(lengths)


def replay(build, server, trace, name, *flags, run_with=""):
    """Sends a trace; the records are NAME.csv. Returns whether the generator was late, and the summary."""
    command = [program(build, "serve_load"), "--url", server.url, "--protocol", "tei", "--trace", trace]
    command += ["--records", f"{name}.csv", "--json", f"{name}.json", *flags]
    if os.geteuid() == 0 and shutil.which("chrt"):
        command = ["chrt", "-f", "2", *command]
    command = [*shlex.split(run_with), *command]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, LATE):
        raise Failed(f"serve_load ended with {done.returncode}: {done.stderr.strip() or name}")
    return done.returncode == LATE, json.loads(pathlib.Path(f"{name}.json").read_text(encoding="utf-8"))
