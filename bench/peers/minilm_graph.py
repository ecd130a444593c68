# SPDX-License-Identifier: Apache-2.0
"""all-MiniLM-L6-v2 as an ONNX graph, fused by ONNX Runtime's own optimiser for transformers.

The graph is the one that exporters make: token ids, mask and token types in, one unit vector per
sentence out. Of the optimised graph the attention, the layer norms with their residuals and the GELU
with its bias are one operator each. Needs numpy, onnx, onnxruntime and sympy.
"""

import json
import os
import sys
import types

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, HEADS, WIDTH = 6, 12, 384
EPSILON = 1e-12


def read_weights(path):
    """The f32 tensors of a safetensors file by name."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    return {name: np.frombuffer(data[slice(*info["data_offsets"])], "<f4").reshape(info["shape"])
            for name, info in header.items() if name != "__metadata__" and info["dtype"] == "F32"}


class Graph:
    """Appends nodes and constants; each method returns the name of its result."""

    def __init__(self, weights):
        self.weights, self.nodes, self.constants = weights, [], {}

    def constant(self, name, value):
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def ints(self, *values):
        return self.constant("ints_" + "_".join(map(str, values)), np.array(values, np.int64))

    def number(self, value):
        return self.constant(f"number_{value}", np.array(value, np.float32))

    def weight(self, name):
        return self.constant(name, self.weights[name])

    def op(self, kind, *inputs, **attributes):
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def linear(self, x, prefix):
        matrix = self.constant(prefix + ".transposed", self.weights[prefix + ".weight"].T)
        return self.op("Add", self.weight(prefix + ".bias"), self.op("MatMul", x, matrix))

    def norm(self, x, prefix):
        return self.op("LayerNormalization", x, self.weight(prefix + ".LayerNorm.weight"),
                       self.weight(prefix + ".LayerNorm.bias"), axis=-1, epsilon=EPSILON)

    def heads(self, x, order):
        split = self.op("Reshape", x, self.ints(0, 0, HEADS, WIDTH // HEADS))
        return self.op("Transpose", split, perm=order)


def embeddings(graph):
    words = graph.op("Gather", graph.weight("embeddings.word_embeddings.weight"), "input_ids")
    kinds = graph.op("Gather", graph.weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
    length = graph.op("Slice", graph.op("Shape", "input_ids"), graph.ints(1), graph.ints(2))
    places = graph.op("Slice", graph.weight("embeddings.position_embeddings.weight"), graph.ints(0), length, graph.ints(0))
    return graph.norm(graph.op("Add", graph.op("Add", words, kinds), places), "embeddings")


def attention(graph, x, bias, prefix):
    query = graph.heads(graph.linear(x, prefix + ".self.query"), [0, 2, 1, 3])
    key = graph.heads(graph.linear(x, prefix + ".self.key"), [0, 2, 3, 1])
    value = graph.heads(graph.linear(x, prefix + ".self.value"), [0, 2, 1, 3])
    score = graph.op("Div", graph.op("MatMul", query, key), graph.number((WIDTH // HEADS) ** 0.5))
    share = graph.op("Softmax", graph.op("Add", score, bias), axis=-1)
    mixed = graph.op("Transpose", graph.op("MatMul", share, value), perm=[0, 2, 1, 3])
    joined = graph.op("Reshape", mixed, graph.ints(0, 0, WIDTH))
    return graph.norm(graph.op("Add", graph.linear(joined, prefix + ".output.dense"), x), prefix + ".output")


def feed_forward(graph, x, prefix):
    inner = graph.linear(x, prefix + ".intermediate.dense")
    erf = graph.op("Erf", graph.op("Div", inner, graph.number(2.0**0.5)))
    gelu = graph.op("Mul", graph.op("Mul", inner, graph.op("Add", erf, graph.number(1.0))), graph.number(0.5))
    outer = graph.linear(gelu, prefix + ".output.dense")
    return graph.norm(graph.op("Add", outer, x), prefix + ".output")


def build(weights):
    graph = Graph(weights)
    x = embeddings(graph)
    # Two steps, for the optimiser to recognise the mask.
    mask = graph.op("Unsqueeze", graph.op("Unsqueeze", "attention_mask", graph.ints(1)), graph.ints(2))
    mask = graph.op("Cast", mask, to=TensorProto.FLOAT)
    bias = graph.op("Mul", graph.op("Sub", graph.number(1.0), mask), graph.number(float(np.finfo(np.float32).min)))
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}"
        x = attention(graph, x, bias, prefix + ".attention")
        x = feed_forward(graph, x, prefix)
    mask = graph.op("Cast", graph.op("Unsqueeze", "attention_mask", graph.ints(2)), to=TensorProto.FLOAT)
    total = graph.op("ReduceSum", graph.op("Mul", x, mask), graph.ints(1), keepdims=0)
    mean = graph.op("Div", total, graph.op("ReduceSum", mask, graph.ints(1), keepdims=0))
    square = graph.op("ReduceSum", graph.op("Mul", mean, mean), graph.ints(1), keepdims=1)
    graph.nodes.append(helper.make_node("Div", [mean, graph.op("Sqrt", square)], ["embedding"], name="unit"))
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["sentences", "tokens"])
              for name in ("input_ids", "attention_mask", "token_type_ids")]
    output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["sentences", WIDTH])
    model = helper.make_model(helper.make_graph(graph.nodes, "minilm", inputs, [output], list(graph.constants.values())),
                              opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def write(weights_path, path):
    """Writes the fused graph; raises an error if the optimiser did not fuse all attentions."""
    plain = path + ".plain"
    onnx.save(build(read_weights(weights_path)), plain)
    if "torch" not in sys.modules:
        # The optimiser of this model asks torch for nothing but its version.
        torch = types.ModuleType("torch")
        torch.version = types.ModuleType("torch.version")
        torch.version.__version__ = torch.__version__ = "0"
        sys.modules["torch"], sys.modules["torch.version"] = torch, torch.version
    from onnxruntime.transformers import optimizer
    fused = optimizer.optimize_model(plain, model_type="bert", num_heads=HEADS, hidden_size=WIDTH, opt_level=1)
    os.remove(plain)
    count = fused.get_fused_operator_statistics().get("Attention")
    if count != LAYERS:
        raise RuntimeError(f"{count} of {LAYERS} attentions were fused")
    fused.save_model_to_file(path)
