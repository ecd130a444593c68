#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden files of the embed example with sentence-transformers on the CPU.

What it is: the independent implementation that `embed` is compared with. It reads the model
directory that `fetch_weights` leaves and `golden/sentences.txt` (one sentence a line), and writes

  golden/ids.npy         i64 [sentences, longest]  token ids, padded with 0
  golden/lengths.npy     i64 [sentences]           how many of them count
  golden/embeddings.npy  f32 [sentences, 384]      unit-length sentence embeddings

What it is not: part of the build. The files are in the repository; run this only after a change of
the sentences:

  python3 -m venv /tmp/golden
  /tmp/golden/bin/pip install 'sentence-transformers==5.1.2' 'transformers<5' 'torch==2.8.0'
  /tmp/golden/bin/python examples/embed/make_golden.py build/embed

Every sentence is encoded alone, so that the reference has no padding in it at all.
"""

import argparse
import os
import pathlib
import sys

# The model directory is local; nothing may be asked of a model hub behind our back.
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import torch
from sentence_transformers import SentenceTransformer

HERE = pathlib.Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(description="make the golden files of the embed example")
    parser.add_argument("model", type=pathlib.Path, help="directory left by fetch_weights")
    parser.add_argument("--golden", type=pathlib.Path, default=HERE / "golden")
    options = parser.parse_args()

    text = (options.golden / "sentences.txt").read_text(encoding="utf-8")
    sentences = [line for line in text.split("\n") if line]
    torch.manual_seed(0)
    model = SentenceTransformer(str(options.model), device="cpu")

    tokens = [model.tokenize([sentence])["input_ids"][0].numpy() for sentence in sentences]
    lengths = numpy.array([len(row) for row in tokens], dtype="<i8")
    ids = numpy.zeros((len(tokens), int(lengths.max())), dtype="<i8")
    for row, values in zip(ids, tokens):
        row[: len(values)] = values

    embeddings = model.encode(sentences, batch_size=1, convert_to_numpy=True).astype("<f4")
    norms = numpy.linalg.norm(embeddings.astype("f8"), axis=1)
    if not numpy.allclose(norms, 1.0, atol=1e-5):
        print(f"make_golden: embeddings are not of unit length: {norms}", file=sys.stderr)
        return 1

    # The same model in double precision says how far the f32 reference itself is from the truth.
    exact = model.double().encode(sentences, batch_size=1, convert_to_numpy=True)
    print(f"reference against float64: largest difference {abs(embeddings - exact).max():.3g}")

    numpy.save(options.golden / "ids.npy", ids)
    numpy.save(options.golden / "lengths.npy", lengths)
    numpy.save(options.golden / "embeddings.npy", embeddings)
    print(f"{len(sentences)} sentences, {lengths.min()} to {lengths.max()} tokens: {lengths.tolist()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
