#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a new shape costs: the time of a first call beyond that of the second, over shapes in random order.

  stalls.py quern-serve|torch|jax MODEL_DIR --shapes N [--url URL]

torch is torch.compile of transformers' BertModel, with dynamic=True and with the default, which compiles the first shape and
then once more for all others, as far as it can; jax is jax.jit of the same encoder, written below. Each has computed another
shape before. Prints a JSON line for each: name, shapes, p50 and max in milliseconds, and the first calls' own p50 and max.
"""
import argparse
import json
import math
import pathlib
import random
import statistics
import sys
import time
import urllib.request

FIRST = (3, 20)  # sentences, tokens: the shape before all others


def shapes(count):
    draw = random.Random(1)
    every = [(b, s) for b in range(1, 9) for s in range(3, 129) if (b, s) != FIRST]
    return draw.sample(every, count)


def measure(name, call, count):
    """`call` takes ids of sentences and returns when the result is there."""
    draw = random.Random(2)
    make = lambda shape: [[draw.randrange(1000, 20000) for _ in range(shape[1])] for _ in range(shape[0])]
    for _ in range(3):
        call(make(FIRST))
    firsts, stalls = [], []
    for shape in shapes(count):
        times = []
        for _ in range(2):
            ids = make(shape)
            start = time.perf_counter()
            call(ids)
            times.append((time.perf_counter() - start) * 1e3)
        firsts.append(times[0])
        stalls.append(max(0.0, times[0] - times[1]))
    print(json.dumps({"name": name, "shapes": count, "p50": statistics.median(stalls), "max": max(stalls),
                      "first_p50": statistics.median(firsts), "first_max": max(firsts)}), flush=True)


def run_server(options):
    def call(ids):
        body = {"inputs": [{"name": "input_ids", "shape": [len(ids), len(ids[0])], "datatype": "INT64", "data": ids}]}
        request = urllib.request.Request(options.url + "/v2/models/model/infer", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
    measure("quern-serve", call, options.shapes)


def run_torch(options):
    import torch
    import transformers
    torch.set_num_threads(1)
    for name, dynamic in (("torch.compile, dynamic=True", True), ("torch.compile, default", None)):
        torch._dynamo.reset()
        model = transformers.BertModel.from_pretrained(options.model, attn_implementation="sdpa").eval()
        compiled = torch.compile(model, dynamic=dynamic)

        def call(ids, compiled=compiled):
            with torch.no_grad():
                tensor = torch.tensor(ids)
                compiled(input_ids=tensor, attention_mask=torch.ones_like(tensor)).last_hidden_state.mean(1)
        measure(name, call, options.shapes)


def read_weights(path):
    import numpy
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    return {name: numpy.frombuffer(data[slice(*info["data_offsets"])], "<f4").reshape(info["shape"])
            for name, info in header.items() if name != "__metadata__" and info["dtype"] == "F32"}


def run_jax(options):
    import jax
    import jax.numpy as jnp
    config = json.loads((options.model / "config.json").read_text(encoding="utf-8"))
    heads, epsilon = config["num_attention_heads"], config["layer_norm_eps"]
    weights = {name: jnp.asarray(value) for name, value in read_weights(options.model / "model.safetensors").items()}

    def norm(w, x, name):
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + epsilon) * w[name + ".weight"] + w[name + ".bias"]

    def linear(w, x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    @jax.jit
    def encode(w, ids):
        count, length = ids.shape
        split = lambda x: x.reshape(count, length, heads, -1).transpose(0, 2, 1, 3)
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:length]
        x = norm(w, x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(config["num_hidden_layers"]):
            at = f"encoder.layer.{layer}."
            query, key, value = (split(linear(w, x, at + "attention.self." + part)) for part in ("query", "key", "value"))
            scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(query.shape[-1])
            mixed = (jax.nn.softmax(scores) @ value).transpose(0, 2, 1, 3).reshape(count, length, -1)
            x = norm(w, linear(w, mixed, at + "attention.output.dense") + x, at + "attention.output.LayerNorm")
            inner = jax.nn.gelu(linear(w, x, at + "intermediate.dense"), approximate=False)
            x = norm(w, linear(w, inner, at + "output.dense") + x, at + "output.LayerNorm")
        return x.mean(1)

    measure("jax.jit", lambda ids: encode(weights, jnp.asarray(ids)).block_until_ready(), options.shapes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["quern-serve", "torch", "jax"])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--shapes", type=int, default=30)
    parser.add_argument("--url")
    options = parser.parse_args()
    {"quern-serve": run_server, "torch": run_torch, "jax": run_jax}[options.engine](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
