# SPDX-License-Identifier: Apache-2.0
"""The servers that compare-peers compares: how each is started, asked and stopped, and what processor time it took."""
import os
import pathlib
import signal
import socket
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
START_S = 60
TICKS = os.sysconf("SC_CLK_TCK")
FRONT_END = ("--address", "127.0.0.1", "--drain-delay", "0")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def quern(options, threads, port):
    return [options.build / "bin" / "quern-serve", f"model={options.model}", "--port", str(port), "--threads", str(threads),
            *FRONT_END], {}


def onnxruntime(*flags):
    def command(options, threads, port):
        return [options.build / "bin" / "serve_onnxruntime", options.peers / "minilm.onnx", *flags, "--", options.model,
                "--port", str(port), "--threads", str(threads), *FRONT_END], {}
    return command


def triton(*flags):
    def command(options, threads, port):
        # The program needs the library of the Python that made its environment.
        return [options.peers / "triton" / "bin" / "python", HERE / "triton_server.py", options.peers / "minilm.onnx",
                options.model, "--port", str(port), "--threads", str(threads), *flags], {
                    "LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR")}
    return command


def infinity(batch):
    def command(options, threads, port):
        del threads  # as many as it has cores
        # The graph is fused already; what is asked for from outside would only delay the start.
        return [options.peers / "infinity" / "bin" / "infinity_emb", "v2", "--model-id", options.peers / "infinity-model",
                "--served-model-name", "model", "--engine", "optimum", "--device", "cpu", "--batch-size", str(batch), "--host",
                "127.0.0.1", "--port", str(port), "--url-prefix", "/v1", "--no-bettertransformer",
                "--pooling-method", "mean"], {
                    "INFINITY_ONNX_DISABLE_OPTIMIZE": "1", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
    return command


TEI = ("tei", "/v2/health/ready", ())
OIP = ("oip-binary", "/v2/health/ready", ("--model", "model", "--column", "--output", "embedding"))
OPENAI = ("openai", "/health", ("--model", "model"))

# name: command, (protocol, path of health, flags of serve_load). Of a program with several settings the best is compared.
SERVERS = {
    "quern": (quern, TEI),
    "onnxruntime sorted": (onnxruntime(), TEI),
    "onnxruntime sorted, no pattern": (onnxruntime("--no-pattern"), TEI),
    "onnxruntime sorted, spinning": (onnxruntime("--spin"), TEI),
    "onnxruntime padded": (onnxruntime("--pad"), TEI),
    "triton": (triton(), OIP),
    "triton, 2 ms": (triton("--delay-us", "2000"), OIP),
    "infinity 32": (infinity(32), OPENAI),
    "infinity 8": (infinity(8), OPENAI),
}


class Missing(Exception):
    """A server that does not start; the text says why."""


class Server:
    def __init__(self, name, options, threads, cpus):
        make, (self.protocol, self.health, self.flags) = SERVERS[name]
        self.name = name
        port = free_port()
        command, more = make(options, threads, port)
        self.url = f"http://127.0.0.1:{port}"
        self.log = options.out / f"{name.replace(' ', '-').replace(',', '')}-{threads}.log"
        environment = dict(os.environ, QUERN_CACHE_DIR=str(options.out / "cache"), **more)
        try:
            with open(self.log, "w", encoding="utf-8") as log:
                self.process = subprocess.Popen(["taskset", "-c", cpus, *map(str, command)], stdout=log, stderr=log,
                                                env=environment, start_new_session=True)
        except OSError as error:
            raise Missing(str(error)) from error
        try:
            self.wait_until_ready()
        except Missing:
            self.stop()
            raise

    def wait_until_ready(self):
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
                raise Missing(next((line for line in reversed(lines) if line.strip()), "it ended without a word"))
            try:
                with urllib.request.urlopen(self.url + self.health, timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise Missing(f"not ready after {START_S} s; see {self.log}")

    def cpu_seconds(self):
        """Of all processes of its session."""
        total = 0
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text(encoding="utf-8").rsplit(") ", 1)[1].split()
            except OSError:
                continue  # ended meanwhile
            if int(fields[3]) == self.process.pid:
                total += int(fields[11]) + int(fields[12])
        return total / TICKS

    def stop(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(timeout=15)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self.process.wait()
