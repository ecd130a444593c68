#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The golden check of examples/embed: the sentence embedding model all-MiniLM-L6-v2 on six kernels of plain loops.

    examples/embed/fetch_weights && python3 examples/python/embed.py build/embed
    python3 examples/python/embed.py --seeded        # made-up weights, compared with NumPy in double precision

The network is `embed`, ten lines. It ends with 1 unless the embeddings are those of sentence-transformers, within 1e-4.
"""
import json
import math
import pathlib
import sys

import numpy

import quern

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ("embed_layernorm", "query_key_value", "attention", "linear_residual_norm", "linear_gelu", "mean_pool")
entrance, project, attend, residual_norm, gelu, pool = (
    quern.Module.from_file(ROOT / f"serve/bert/kernels/{name}.qn", set="d=32" if name == "attention" else None)[name].new
    for name in NAMES)
EPSILON, HEADS, LAYERS = 1e-12, 12, 6


def embed(ids, lengths, weights):
    """The embeddings of sentences whose tokens lie one after another."""
    w = lambda name, *parts: [weights[f"{name}.{part}"] for part in parts or ("weight", "bias")]  # noqa: E731
    offsets = numpy.concatenate([[0], numpy.cumsum(lengths)])
    positions = numpy.concatenate([numpy.arange(length) for length in lengths])
    tables = w("embeddings", "word_embeddings.weight", "position_embeddings.weight", "token_type_embeddings.weight")
    x = entrance(ids, positions, *tables, *w("embeddings.LayerNorm"), EPSILON)
    for layer in (f"encoder.layer.{i}." for i in range(LAYERS)):
        heads = [one.reshape(len(x), HEADS, -1) for one in project(x, *sum((w(layer + "attention.self." + n) for n in ("query", "key", "value")), []))]
        context = attend(*heads, offsets, int(max(lengths)), 1 / math.sqrt(heads[0].shape[2])).reshape(x.shape)
        x = residual_norm(context, *w(layer + "attention.output.dense"), x, *w(layer + "attention.output.LayerNorm"), EPSILON)
        x = residual_norm(gelu(x, *w(layer + "intermediate.dense")), *w(layer + "output.dense"), x, *w(layer + "output.LayerNorm"), EPSILON)
    pooled = pool(x, offsets)
    return pooled / numpy.linalg.norm(pooled, axis=1, keepdims=True)


def read_safetensors(path):
    data = numpy.memmap(path, mode="r")
    size = int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8:8 + size]))
    types = {"F32": "<f4", "I64": "<i8"}
    return {name: data[8 + size + one["data_offsets"][0]:8 + size + one["data_offsets"][1]].view(types[one["dtype"]]).reshape(one["shape"])
            for name, one in header.items() if name != "__metadata__"}


def seeded(width=384, inner=1536, words=2000):
    random = numpy.random.default_rng(7)
    make = lambda *shape: (random.standard_normal(shape) * 0.05).astype("f4")  # noqa: E731
    weights = {f"embeddings.{name}_embeddings.weight": make(count, width) for name, count in (("word", words), ("position", 128), ("token_type", 2))}
    layers = [(f"encoder.layer.{i}.{name}", *shape) for i in range(LAYERS) for name, *shape in (
        ("attention.self.query", width, width), ("attention.self.key", width, width), ("attention.self.value", width, width),
        ("attention.output.dense", width, width), ("intermediate.dense", inner, width), ("output.dense", width, inner))]
    weights.update({f"{name}.weight": make(*shape) for name, *shape in layers})
    weights.update({f"{name}.bias": make(shape[0]) for name, *shape in layers})
    for name in ["embeddings"] + [f"encoder.layer.{i}.{part}" for i in range(LAYERS) for part in ("attention.output", "output")]:
        weights[f"{name}.LayerNorm.weight"], weights[f"{name}.LayerNorm.bias"] = 1 + make(width), make(width)
    return weights


def reference(ids, lengths, weights):
    """The same network by NumPy in double precision, a sentence at a time."""
    w = {name: one.astype("f8") for name, one in weights.items()}
    erf = numpy.vectorize(math.erf)
    linear = lambda x, name: x @ w[name + ".weight"].T + w[name + ".bias"]  # noqa: E731

    def norm(x, name):
        d = x - x.mean(1, keepdims=True)
        return d / numpy.sqrt((d * d).mean(1, keepdims=True) + EPSILON) * w[name + ".weight"] + w[name + ".bias"]

    def sentence(ids):
        x = norm(w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:len(ids)]
                 + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in (f"encoder.layer.{i}." for i in range(LAYERS)):
            q, k, v = (linear(x, layer + "attention.self." + name).reshape(len(ids), HEADS, -1).swapaxes(0, 1) for name in ("query", "key", "value"))
            scores = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[2])
            scores = numpy.exp(scores - scores.max(2, keepdims=True))
            context = (scores / scores.sum(2, keepdims=True) @ v).swapaxes(0, 1).reshape(x.shape)
            x = norm(linear(context, layer + "attention.output.dense") + x, layer + "attention.output.LayerNorm")
            z = linear(x, layer + "intermediate.dense")
            x = norm(linear(z / 2 * (1 + erf(z / math.sqrt(2))), layer + "output.dense") + x, layer + "output.LayerNorm")
        pooled = x.mean(0)
        return pooled / numpy.linalg.norm(pooled)

    return numpy.stack([sentence(one) for one in numpy.split(ids, numpy.cumsum(lengths)[:-1])])


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/embed"
    golden = ROOT / "examples/embed/golden"
    if str(folder) == "--seeded":
        lengths = numpy.array([3, 7, 5])
        weights, ids = seeded(), numpy.random.default_rng(8).integers(0, 2000, lengths.sum())
        expected = reference(ids, lengths, weights)
    elif not (folder / "model.safetensors").exists():
        sys.exit(f"{folder} has no model.safetensors: run examples/embed/fetch_weights, or use --seeded")
    else:
        weights = read_safetensors(folder / "model.safetensors")
        padded, lengths, expected = (numpy.load(golden / f"{name}.npy") for name in ("ids", "lengths", "embeddings"))
        ids = numpy.concatenate([row[:length] for row, length in zip(padded, lengths)])
    found = embed(ids, lengths, weights)
    cosine, difference = (found * expected).sum(1).min(), abs(found - expected).max()
    print(f"{len(lengths)} sentences: smallest cosine {cosine:.7f}, largest difference {difference:.2g}")
    return 0 if cosine > 0.9999 and difference < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
