# SPDX-License-Identifier: Apache-2.0
"""Small models with random weights: a convolutional network of ONNX, and transformers of torch.

Each function returns the model as its framework has it, a function of arrays that gives what is expected, and lists of inputs.
"""
import numpy


def cnn():
    """Convolutions with normalisation, a shortcut, pools and a dense layer, as a model of ONNX for any batch."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    random = numpy.random.default_rng(0)
    weights, nodes = [], []

    def weight(name, *shape, low=-0.2, high=0.2):
        weights.append(numpy_helper.from_array(random.uniform(low, high, shape).astype("f4"), name))
        return name

    def node(kind, inputs, output, **attributes):
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    x, channels = "x", 3
    for i, (count, stride) in enumerate([(16, 1), (32, 2), (32, 1)]):
        y = node("Conv", [x, weight(f"k{i}", count, channels, 3, 3), weight(f"b{i}", count)], f"conv{i}", pads=[1, 1, 1, 1],
                 strides=[stride, stride], kernel_shape=[3, 3])
        norm = [weight(f"g{i}", count, low=0.5, high=1.5), weight(f"s{i}", count), weight(f"m{i}", count), weight(f"v{i}", count, low=0.5, high=1.5)]
        y = node("BatchNormalization", [y, *norm], f"norm{i}")
        if i == 2:
            y = node("Add", [y, x], "shortcut")
        x, channels = node("Relu", [y], f"relu{i}"), count
    x = node("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    x = node("Flatten", [node("GlobalAveragePool", [x], "mean")], "flat")
    x = node("Gemm", [x, weight("dense", 10, channels), weight("bias", 10)], "logits", transB=1)
    node("Softmax", [x], "y", axis=1)
    graph = helper.make_graph(nodes, "cnn", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 32, 32])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 10])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    reference = ReferenceEvaluator(model)
    inputs = [[random.standard_normal((2, 3, 32, 32)).astype("f4")] for _ in range(2)]
    return model, lambda x: reference.run(None, {"x": x})[0], inputs


def bert():
    """Two layers of BERT with their embeddings, as an exported program of torch with a dynamic batch and sequence length."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x, mask):
            batch, length, width = x.shape
            split = lambda y: y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            scores = split(self.query(x)) @ split(self.key(x)).transpose(-1, -2) / (width // self.heads) ** 0.5
            weights = torch.softmax(scores + mask[:, None, None, :], -1)
            x = self.norm1(x + self.out((weights @ split(self.value(x))).transpose(1, 2).reshape(batch, length, width)))
            return self.norm2(x + self.down(nn.functional.gelu(self.up(x))))

    class Bert(nn.Module):
        def __init__(self, words=100, width=64, heads=4, layers=2, longest=64):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
            self.norm = nn.LayerNorm(width)
            self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))

        def forward(self, words, mask):
            x = self.norm(self.words(words) + self.places(torch.arange(words.shape[1]))[None])
            mask = (1.0 - mask) * -10000.0
            for layer in self.layers:
                x = layer(x, mask)
            return x, torch.tanh(x[:, 0])

    return exported(Bert(), lambda random, batch, length: [random.integers(0, 100, (batch, length)),
                                                            (random.random((batch, length)) < 0.8).astype("f4")])


def transformer():
    """A decoder layer with a causal mask, as an exported program of torch with a dynamic batch and sequence length."""
    import torch
    from torch import nn

    class Decoder(nn.Module):
        def __init__(self, width=48, heads=3):
            super().__init__()
            self.heads = heads
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.gate, self.up, self.down = nn.Linear(width, 96, bias=False), nn.Linear(width, 96, bias=False), nn.Linear(96, width, bias=False)
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (y.view(batch, length, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).chunk(3, -1))
            place = torch.arange(length)
            mask = torch.where(place[:, None] >= place[None], 0.0, -1e9)
            weights = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5 + mask, -1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
            y = self.norm2(x)
            return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))

    return exported(Decoder(), lambda random, batch, length: [random.standard_normal((batch, length, 48)).astype("f4")])


def exported(module, make):
    """A module of torch, exported with a dynamic batch and length, which are the first two dimensions of every input."""
    import torch

    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0.0 if parameter.dim() > 1 else 0.5, 0.1)
    module = module.eval()
    random = numpy.random.default_rng(0)
    inputs = [make(random, batch, length) for batch, length in ((2, 7), (3, 16), (1, 5))]
    example = tuple(torch.from_numpy(x) for x in inputs[0])
    dims = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=2, max=64)}
    program = torch.export.export(module, example, dynamic_shapes=tuple(dims for _ in example))

    def expected(*arrays):
        with torch.no_grad():
            found = module(*(torch.from_numpy(x) for x in arrays))
        return tuple(y.numpy() for y in found) if isinstance(found, tuple) else found.numpy()

    return program, expected, inputs
