#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes what the peers load: the fused graph of the model, and a folder as infinity-emb wants it.

  folder.py MODEL_DIR FOLDER      with the Python of FOLDER/venv; writes FOLDER/minilm.onnx and FOLDER/infinity-model

The second graph ends at the rows of the tokens, which infinity-emb averages itself.
"""
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "peers"))

import minilm_graph
import onnx
from onnx import TensorProto, helper

COPIED = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def cut_at_rows(model):
    """Keeps what computes the last normalisation, as 'last_hidden_state'."""
    graph = model.graph
    makers = {name: node for node in graph.node for name in node.output}
    # The nodes are in no order: the last normalisation is the first one on the way back from the result.
    way = [makers[graph.output[0].name]]
    while way[0].op_type not in ("LayerNormalization", "SkipLayerNormalization"):
        way += [makers[name] for name in way.pop(0).input if name in makers]
    last = way[0]
    kept, todo = [], [last]
    while todo:
        node = todo.pop()
        if node not in kept:
            kept.append(node)
            todo += [makers[name] for name in node.input if name in makers]
    nodes = [node for node in graph.node if node in kept]
    nodes.append(helper.make_node("Identity", [last.output[0]], ["last_hidden_state"], name="rows"))
    used = {name for node in nodes for name in node.input}
    constants = [value for value in graph.initializer if value.name in used]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["sentences", "tokens", minilm_graph.WIDTH])
    del graph.node[:], graph.initializer[:], graph.output[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(constants)
    graph.output.append(output)
    return model


def main():
    model, folder = (pathlib.Path(argument) for argument in sys.argv[1:3])
    graph = folder / "minilm.onnx"
    if not graph.exists():
        minilm_graph.write(str(model / "model.safetensors"), str(graph))
    target = folder / "infinity-model"
    if not (target / "onnx" / "model.onnx").exists():
        (target / "onnx").mkdir(parents=True, exist_ok=True)
        for name in COPIED:
            shutil.copy(model / name, target / name)
        onnx.save(cut_at_rows(onnx.load(str(graph))), str(target / "onnx" / "model.onnx"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
