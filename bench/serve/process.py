# SPDX-License-Identifier: Apache-2.0
"""Servers as processes: their start, their address, what they use, and their end."""
import os
import pathlib
import re
import signal
import subprocess
import time


class Process:
    """A server that prints its port, or logs `ready address=...`; its output is the file `log`."""

    def __init__(self, command, log, environment=None, start_s=600):
        self.log = pathlib.Path(log)
        with open(self.log, "w", encoding="utf-8") as output:
            self.child = subprocess.Popen([str(part) for part in command], stdout=output, stderr=output,
                                          env=dict(os.environ, **(environment or {})))
        self.pid = self.child.pid
        end = time.monotonic() + start_s
        while not (found := re.search(r"(?:^|ready address=127\.0\.0\.1:)(\d+)[ \n]", self.log.read_text(encoding="utf-8"))):
            if self.child.poll() is not None or time.monotonic() > end:
                self.kill()
                raise SystemExit(f"{command[0]} did not start:\n{self.log.read_text(encoding='utf-8')}")
            time.sleep(0.02)
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def cpu_s(self):
        """Processor time so far of the threads that live, in nanoseconds' steps."""
        threads = pathlib.Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text(encoding="ascii").split()[0]) for thread in threads) / 1e9

    def rss_mb(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    def stop(self, wait_s=120):
        """Ends it by SIGTERM and returns its exit status; None: it did not end."""
        self.child.send_signal(signal.SIGTERM)
        try:
            return self.child.wait(wait_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
