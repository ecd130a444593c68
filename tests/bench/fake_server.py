# SPDX-License-Identifier: Apache-2.0
"""A server of embeddings for tests: all four protocols, one thread, and failures on demand.

  python3 fake_server.py [--stall PLACE:SECONDS] [--fault NAME] [--every N] [--mark N] [--key KEY]

Prints its port. An embedding depends on the text alone: four numbers that f32 holds exactly. --stall sleeps once, when the
request at that place (from 0) has been read, and with it the whole server. --fault spoils every N-th answer; the
others are right. --mark sends x-quern-first-seen: 1 with every N-th. --key refuses requests without this bearer.
"""
import argparse
import asyncio
import base64
import json
import os
import struct
import sys
import time
import zlib

WIDTH = 4


def embedding(text):
    code = zlib.crc32(text.encode() if isinstance(text, str) else struct.pack(f"<{len(text)}q", *text))
    return [((code >> 8 * i) & 255) / 8 - 16 for i in range(WIDTH)]


def texts_of_tensor(data):
    texts = []
    while data:
        size = int.from_bytes(data[:4], "little")
        texts.append(data[4:4 + size].decode())
        data = data[4 + size:]
    return texts


def rows_of_ids(width, ids, mask):
    """The unpadded ids of each row."""
    rows = [ids[i:i + width] for i in range(0, len(ids), width)]
    masks = [mask[i:i + width] for i in range(0, len(mask), width)]
    return [[x for x, m in zip(row, row_mask) if m] for row, row_mask in zip(rows, masks)]


def oip(head, body):
    size = head.get("inference-header-content-length")
    request = json.loads(body[:int(size)] if size else body)
    rest = body[int(size):] if size else b""
    tensors = []
    for tensor in request["inputs"]:
        if "data" in tensor:
            tensors.append(tensor["data"])
            continue
        count = tensor["parameters"]["binary_data_size"]
        part, rest = rest[:count], rest[count:]
        tensors.append(texts_of_tensor(part) if tensor["datatype"] == "BYTES" else list(struct.unpack(f"<{count // 8}q", part)))
    assert not rest
    first = request["inputs"][0]
    texts = tensors[0] if first["datatype"] == "BYTES" else rows_of_ids(first["shape"][1], *tensors[:2])
    assert len(texts) == first["shape"][0]
    return request, [embedding(t) for t in texts]


def answer_oip(head, body):
    request, rows = oip(head, body)
    flat = [x for row in rows for x in row]
    output = {"name": "embedding", "datatype": "FP32", "shape": [len(rows), WIDTH]}
    reply = {"model_name": "m", "id": request["id"], "outputs": [output]}
    if not request.get("parameters", {}).get("binary_data_output"):
        output["data"] = flat
        return json.dumps(reply).encode(), ""
    tensor = struct.pack(f"<{len(flat)}f", *flat)
    output["parameters"] = {"binary_data_size": len(tensor)}
    text = json.dumps(reply).encode()
    return text + tensor, f"Inference-Header-Content-Length: {len(text)}\r\n"


def answer(path, head, body):
    if path.endswith("/infer"):
        return answer_oip(head, body)
    request = json.loads(body)
    if path.endswith("/embed"):
        return json.dumps([embedding(t) for t in request["inputs"]]).encode(), ""
    assert path.endswith("/v1/embeddings")
    rows = [embedding(t) for t in request["input"]]
    if request["encoding_format"] == "base64":
        rows = [base64.b64encode(struct.pack("<4f", *row)).decode() for row in rows]
    data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
    return json.dumps({"object": "list", "data": data}).encode(), ""


async def send(writer, args, place, body, headers, is_allowed):
    """Returns whether the connection goes on."""
    if not is_allowed:
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 9\r\n\r\nno\t\xffentry")
        return True
    spoils = args.fault and place % args.every == args.every - 1
    fault = args.fault if spoils else ""
    if fault == "die":
        os._exit(0)
    if fault == "never":
        await asyncio.sleep(3600)
    if fault == "close":
        return False
    status = "500 Oops" if fault == "status" else "200 OK"
    if fault == "count":
        body = json.dumps(json.loads(body)[1:] + [[0] * WIDTH] * 2).encode()
    if fault == "not-json":
        body = b"embeddings"
    if fault == "garbage":
        writer.write(b"\x00\xff garbage \r\n\r\n" * 100)
        return True
    if args.mark and place % args.mark == 0:
        headers += "x-quern-first-seen: 1\r\n"
    if fault == "chunks":
        writer.write(f"HTTP/1.1 {status}\r\n{headers}Transfer-Encoding: chunked\r\n\r\n".encode())
        for i in range(0, len(body), 7):
            part = body[i:i + 7]
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
        writer.write(b"0\r\n\r\n")
        return True
    if fault == "no-length":
        writer.write(f"HTTP/1.1 {status}\r\n{headers}\r\n".encode() + body)
        return False
    if fault == "last":
        headers += "Connection: close\r\n"
    size = len(body) + (100 if fault == "truncated" else 0)
    body += b"HTTP/1.1 200 OK\r\n" if fault == "extra" else b""
    writer.write(f"HTTP/1.1 {status}\r\n{headers}Content-Length: {size}\r\n\r\n".encode() + body)
    return fault not in ("last", "truncated")


class Server:
    def __init__(self, args):
        self.args = args
        self.place = 0

    async def talk(self, reader, writer):
        try:
            while True:
                start = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                head = dict(line.lower().split(": ", 1) for line in start[1:] if line)
                body = await reader.readexactly(int(head["content-length"]))
                place, self.place = self.place, self.place + 1
                if self.args.stall and place == int(self.args.stall.split(":")[0]):
                    time.sleep(float(self.args.stall.split(":")[1]))
                is_allowed = not self.args.key or head.get("authorization") == f"bearer {self.args.key}"
                if not await send(writer, self.args, place, *answer(start[0].split()[1], head, body), is_allowed):
                    break
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stall")
    parser.add_argument("--fault", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--key", default="")
    parser.add_argument("--mark", type=int, default=0)
    server = await asyncio.start_server(Server(parser.parse_args()).talk, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
