#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Triton as pytriton runs it: texts in, embeddings of ONNX Runtime out. bench/serve/compare-peers starts it.

  triton_server.py GRAPH.onnx MODEL_DIR --port PORT --threads N [--batch N] [--delay-us N] [--spin]

Triton's own batcher makes batches, which the Python function tokenises, sorts by length and runs in calls of sentences of
similar length, as bench/serve/peers/padding.h cuts them.
"""
import argparse
import json
import logging
import os
import sys

import numpy as np
import onnxruntime
import tokenizers
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

CALL_COST = 8  # of a call, in tokens
CALL_TOKENS = 256


def parts(lengths):
    """Yields lists of places, each a call: those of padding_cut."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    costs, cuts = [0], [0]
    for end in range(1, len(order) + 1):
        longest = lengths[order[end - 1]]
        least = None
        for begin in range(end - 1, -1, -1):
            padded = (end - begin) * longest
            if padded > CALL_TOKENS and begin + 1 < end:
                break
            cost = costs[begin] + CALL_COST + padded
            if least is None or cost < least[0]:
                least = cost, begin
        costs.append(least[0])
        cuts.append(least[1])
    end = len(order)
    while end > 0:
        yield order[cuts[end]:end]
        end = cuts[end]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("graph")
    parser.add_argument("model")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--delay-us", type=int, default=0)
    parser.add_argument("--spin", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with open(os.path.join(options.model, "sentence_bert_config.json"), encoding="utf-8") as file:
        longest = json.load(file)["max_seq_length"]
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(options.model, "tokenizer.json"))
    tokenizer.enable_truncation(longest)
    tokenizer.no_padding()
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.add_session_config_entry("session.intra_op.allow_spinning", "1" if options.spin else "0")
    session = onnxruntime.InferenceSession(options.graph, settings, providers=["CPUExecutionProvider"])

    @batch
    def embed(text):
        encodings = tokenizer.encode_batch([value.decode("utf-8") for value in text[:, 0]])
        lengths = [len(encoding.ids) for encoding in encodings]
        result = None
        for places in parts(lengths):
            ids = np.zeros((len(places), lengths[places[-1]]), np.int64)
            mask = np.zeros_like(ids)
            for row, place in enumerate(places):
                ids[row, :lengths[place]] = encodings[place].ids
                mask[row, :lengths[place]] = 1
            inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            rows = session.run(None, inputs)[0]
            if result is None:
                result = np.empty((len(lengths), rows.shape[1]), np.float32)
            result[places] = rows
        return {"embedding": result}

    config = TritonConfig(http_address="127.0.0.1", http_port=options.port, allow_grpc=False, allow_metrics=False,
                          http_thread_count=2, log_verbose=0)
    with Triton(config=config) as triton:
        triton.bind(
            model_name="model", infer_func=embed, inputs=[Tensor(name="text", dtype=bytes, shape=(1,))],
            outputs=[Tensor(name="embedding", dtype=np.float32, shape=(-1,))],
            config=ModelConfig(max_batch_size=options.batch,
                               batcher=DynamicBatcher(max_queue_delay_microseconds=options.delay_us)),
        )
        triton.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
