#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves under load while things break, and compares every answer with the right one.

  bench/serve/soak.py SERVER MODEL_DIR [--seconds 600] [--target cpu] [--out FOLDER]

Clients send texts over three protocols, whose right answers a first pass has recorded, one request at a time. Meanwhile
the model is reloaded, redis-server (where it is installed) is killed and started again, the cache directory is wiped, and
clients send rubbish, leave in the middle of a request or of an answer. Right is: status 200 and a cosine above 0.9999
for each text, exit status 0 after SIGTERM (LeakSanitizer has another one), and no growth of the resident memory: its
middle in the last quarter over that in the second. Prints one JSON object; the exit status is 0 if all is right.
"""
import argparse
import array
import base64
import http.client
import json
import math
import os
import pathlib
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import process  # noqa: E402

WORDS = "a b c the mill grinds grain into flour rain falls on stone and water turns wheels 42 times, slowly".split()
CLIENTS = 4
LEAST_COSINE = 0.9999


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


# ---- the protocols: from texts to a path and a body, and from an answer to vectors


def tei(texts):
    return "/embed", json.dumps({"inputs": texts}), {}


def read_tei(body, _):
    return json.loads(body)


def openai(texts):
    return "/v1/embeddings", json.dumps({"input": texts, "encoding_format": "base64"}), {}


def floats(data):
    values = array.array("f")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return list(values)


def read_openai(body, _):
    return [floats(base64.b64decode(row["embedding"])) for row in json.loads(body)["data"]]


def oip(texts):
    data = b"".join(len(text.encode()).to_bytes(4, "little") + text.encode() for text in texts)
    head = json.dumps({"inputs": [{"name": "text", "shape": [len(texts)], "datatype": "BYTES",
                                   "parameters": {"binary_data_size": len(data)}}],
                       "outputs": [{"name": "embedding", "parameters": {"binary_data": True}}]}).encode()
    return "/v2/models/model/infer", head + data, {"Inference-Header-Content-Length": str(len(head))}


def read_oip(body, headers):
    size = int(headers["Inference-Header-Content-Length"])
    rows, width = json.loads(body[:size])["outputs"][0]["shape"]
    values = floats(body[size:])
    if len(values) != rows * width:
        raise ValueError("the answer does not fill its shape")
    # This protocol gives unit vectors as the others do.
    return [values[i * width:(i + 1) * width] for i in range(rows)]


PROTOCOLS = [(tei, read_tei), (openai, read_openai), (oip, read_oip)]


def ask(connection, protocol, texts):
    make, read = protocol
    path, body, headers = make(texts)
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise ValueError(f"{path}: status {answer.status}: {content[:200]!r}")
    vectors = read(content, answer.headers)
    if len(vectors) != len(texts):
        raise ValueError(f"{path}: {len(vectors)} vectors for {len(texts)} texts")
    return vectors


def cosine(x, y):
    dot = sum(a * b for a, b in zip(x, y))
    return dot / math.sqrt(sum(a * a for a in x) * sum(b * b for b in y)) if len(x) == len(y) else 0.0


class Soak:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.random = random.Random(options.seed)
        self.stopped = threading.Event()
        self.lock = threading.Lock()
        self.answers, self.texts, self.events, self.rss = 0, 0, {}, []
        self.wrong, self.least = [], 1.0
        self.table = {}
        self.redis, self.redis_port = None, free_port()
        environment = {"QUERN_CACHE_DIR": str(folder / "cache")}
        if shutil.which("redis-server"):
            self.start_redis()
            # A key of its own makes entries of the store trusted.
            key = folder / "key"
            key.write_text("5a" * 32 + "\n", encoding="ascii")
            key.chmod(0o600)
            environment |= {"QUERN_REMOTE": f"redis://127.0.0.1:{self.redis_port}", "QUERN_REMOTE_ROLE": "write",
                            "QUERN_REMOTE_KEY": str(key)}
        self.server = self.start_server(environment)

    def start_server(self, environment):
        for attempts_left in range(9, -1, -1):  # another program may take the port that was free
            self.admin_port = free_port()
            command = [self.options.server, f"model={self.options.model}", "--port", "0", "--target", self.options.target,
                       "--drain-delay", "0", "--admin-port", str(self.admin_port), "--receive-timeout", "30"]
            try:
                return process.Process(command, self.folder / "server.log", environment)
            except SystemExit as error:
                if not attempts_left or "cannot listen" not in str(error):
                    raise
        return None

    def start_redis(self):
        self.redis = subprocess.Popen(["redis-server", "--port", str(self.redis_port), "--save", "", "--bind", "127.0.0.1"],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)

    def count(self, event):
        with self.lock:
            self.events[event] = self.events.get(event, 0) + 1

    def fault(self, text):
        with self.lock:
            self.wrong.append(text)

    # ---- threads

    def record(self):
        """Fills the table of right answers, one request at a time."""
        connection = self.connect()
        for _ in range(self.options.texts):
            text = " ".join(self.random.choices(WORDS, k=self.random.choice([0, 1, 2, 5, 11, 40])))
            if text not in self.table:
                self.table[text] = ask(connection, PROTOCOLS[0], [text])[0]
        connection.close()

    def load(self, seed):
        choose = random.Random(seed)
        texts, connection = list(self.table), self.connect()
        while not self.stopped.is_set():
            chosen = choose.choices(texts, k=choose.choice([1, 1, 2, 7]))
            try:
                vectors = ask(connection, choose.choice(PROTOCOLS), chosen)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                self.fault(repr(error))
                connection.close()
                connection = self.connect()
                continue
            least = min(cosine(vector, self.table[text]) for text, vector in zip(chosen, vectors))
            with self.lock:
                self.answers += 1
                self.texts += len(chosen)
                self.least = min(self.least, least)
            if not least > LEAST_COSINE:
                self.fault(f"cosine {least} for {chosen}")
        connection.close()

    def misbehave(self):
        """Sends rubbish, and leaves in the middle."""
        choose = random.Random(self.options.seed + 1)
        _, body, _ = tei(list(self.table)[:16])
        request = f"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        while not self.stopped.wait(0.02):
            kind = choose.choice(["leaves after a request", "leaves in a request", "rubbish", "wrong body"])
            data = {"leaves after a request": request, "leaves in a request": request[:choose.randrange(len(request))],
                    "rubbish": choose.randbytes(choose.randrange(1, 600)),
                    "wrong body": request.replace(b'"inputs"', b'"inputz"')}[kind]
            try:
                with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as client:
                    client.sendall(data)
                    if kind == "wrong body":
                        answer = client.recv(4096)
                        if not answer.startswith(b"HTTP/1.1 400 "):
                            self.fault(f"a wrong body got {answer[:80]!r}")
                self.count(kind)
            except OSError as error:
                self.fault(f"{kind}: {error!r}")

    def reload(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=120)
        connection.request("POST", "/v2/repository/models/model/load", "{}")
        answer = connection.getresponse()
        if answer.status != 200:
            self.fault(f"reload: status {answer.status}: {answer.read()[:300]!r}")
        connection.close()

    def wipe(self):
        for entry in (self.folder / "cache").iterdir():
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)

    def restart_redis(self):
        self.redis.kill()
        self.redis.wait()
        self.stopped.wait(self.options.pause)
        self.start_redis()

    def disturb(self):
        kinds = {"reload": self.reload, "wiped cache directory": self.wipe, "reload with an empty cache": self.reload}
        if self.redis:
            kinds["kill and restart of redis-server"] = self.restart_redis
        while not self.stopped.is_set():
            for kind, action in kinds.items():
                if self.stopped.wait(self.options.pause):
                    return
                try:
                    action()
                    self.count(kind)
                except (OSError, http.client.HTTPException) as error:
                    self.fault(f"{kind}: {error!r}")

    def watch(self):
        while not self.stopped.wait(0.25):
            self.rss.append(self.server.rss_mb())

    # ---- the run

    def run(self):
        self.record()
        threads = [threading.Thread(target=self.load, args=(seed,)) for seed in range(CLIENTS)]
        threads += [threading.Thread(target=work) for work in (self.misbehave, self.disturb, self.watch)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + self.options.seconds
        while time.monotonic() < end and self.server.child.poll() is None:
            time.sleep(0.1)
        if self.server.child.poll() is not None:
            self.fault(f"the server ended with {self.server.child.returncode}")
        self.stopped.set()
        for thread in threads:
            thread.join()
        status = self.server.stop()
        if status != 0:
            self.fault(f"exit status {status}: {self.server.log.read_text(encoding='utf-8', errors='replace')[-2000:]}")
        quarter = len(self.rss) // 4
        early = statistics.median(self.rss[quarter:2 * quarter]) if quarter else 0.0
        late = statistics.median(self.rss[-quarter:]) if quarter else 0.0
        return {"seconds": self.options.seconds, "answers": self.answers, "texts": self.texts, "wrong": len(self.wrong),
                "faults": self.wrong[:10], "least_cosine": self.least, "events": self.events, "exit_status": status,
                "rss_mb": {"second quarter": early, "last quarter": late, "highest": max(self.rss, default=0.0)},
                "rss_samples": self.rss[::max(1, len(self.rss) // 60)]}

    def end(self):
        self.stopped.set()
        self.server.kill()
        if self.redis:
            self.redis.kill()
            self.redis.wait()


def soak(options):
    folder = pathlib.Path(options.out or tempfile.mkdtemp(prefix="quern-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    run = None
    try:
        run = Soak(options, folder)
        return run.run()
    finally:
        if run and hasattr(run, "server"):
            run.end()
        if not options.out:
            shutil.rmtree(folder, ignore_errors=True)


def parser():
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("server", type=pathlib.Path, help="the program quern-serve")
    result.add_argument("model", metavar="MODEL_DIR", type=pathlib.Path)
    result.add_argument("--seconds", type=float, default=600)
    result.add_argument("--target", default="cpu")
    result.add_argument("--texts", type=int, default=200, help="of the table of right answers (200)")
    result.add_argument("--pause", type=float, default=2, help="seconds between two disturbances (2)")
    result.add_argument("--seed", type=int, default=1)
    result.add_argument("--out", help="folder of the log and the cache, which is kept")
    return result


def main():
    for name in [name for name in os.environ if name.startswith("QUERN_")]:
        del os.environ[name]
    result = soak(parser().parse_args())
    print(json.dumps(result, indent=1))
    return 0 if result["wrong"] == 0 and result["answers"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
