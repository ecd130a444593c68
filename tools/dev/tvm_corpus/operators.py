# SPDX-License-Identifier: Apache-2.0
"""Writes the functions of common operators of relax, as TVM's LegalizeOps makes them.

Usage: operators.py OUTPUT_FOLDER    (with a Python that has TVM)

The names are the same for every release of TVM, so that the texts of several can be compared.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any, Callable

import tvm
from tvm import relax

R = relax.op
NN = relax.op.nn


def _tensor(name: str, shape: tuple[Any, ...], dtype: str = "float32") -> Any:
    info = getattr(relax, "TensorStructInfo", None) or relax.TensorType
    return relax.Var(name, info(shape, dtype))


def _symbol() -> Any:
    return tvm.tirx.Var("n", "int64")


def _x(*shape: Any, dtype: str = "float32") -> Any:
    return _tensor("x", shape, dtype)


def _y(*shape: Any, dtype: str = "float32") -> Any:
    return _tensor("y", shape, dtype)


def _z(*shape: Any, dtype: str = "float32") -> Any:
    return _tensor("z", shape, dtype)


def _number(value: float) -> Any:
    number = tvm.tirx.FloatImm("float32", value)
    return relax.PrimValue(number) if hasattr(relax, "PrimValue") else number


#: The operators: parameters and what is applied to them.
Case = tuple[list[Any], Callable[..., Any]]


def cases() -> dict[str, Case]:
    """Returns the operators by name; each call makes new variables."""
    n, m, k = _symbol(), _symbol(), _symbol()
    unary = {
        name: ([_x(8, 16)], getattr(R, name))
        for name in (
            "exp erf tanh sqrt rsqrt log sigmoid sin cos tan sinh cosh atan floor ceil round abs "
            "negative sign"
        ).split()
    }
    binary = {
        name: ([_x(4, 1, 8), _y(3, 8)], getattr(R, name))
        for name in "add subtract multiply divide maximum minimum power floor_divide".split()
    }
    return {
        **unary, **binary,
        "matmul": ([_x(32, 48), _y(48, 24)], R.matmul),
        "matmul_symbolic": ([_x(n, k), _y(k, m)], R.matmul),
        "matmul_f16": ([_x(32, 64, dtype="float16"), _y(64, 32, dtype="float16")],
                       lambda x, y: R.matmul(x, y, out_dtype="float32")),
        "matmul_batch": ([_x(4, 16, 24), _y(4, 24, 8)], R.matmul),
        "softmax": ([_x(n, 64)], NN.softmax),
        "log_softmax": ([_x(8, 64)], NN.log_softmax),
        "layer_norm": ([_x(8, 64), _y(64), _z(64)], lambda x, y, z: NN.layer_norm(x, y, z, axes=[-1])),
        "rms_norm": ([_x(8, 64), _y(64)], lambda x, y: NN.rms_norm(x, y, axes=[-1])),
        "group_norm": ([_x(2, 8, 6, 6), _y(8), _z(8)],
                       lambda x, y, z: NN.group_norm(x, y, z, num_groups=4, channel_axis=1, axes=[2, 3])),
        "gelu": ([_x(8, 32)], NN.gelu),
        "silu": ([_x(8, 32)], NN.silu),
        "relu": ([_x(n, 32)], NN.relu),
        "leakyrelu": ([_x(8, 32)], NN.leakyrelu),
        "conv2d": ([_x(1, 8, 14, 14), _y(16, 8, 3, 3)], lambda x, y: NN.conv2d(x, y, padding=1)),
        "conv2d_strided": ([_x(1, 8, 15, 15), _y(16, 8, 3, 3)], lambda x, y: NN.conv2d(x, y, strides=2)),
        "conv1d": ([_x(1, 8, 30), _y(16, 8, 3)], NN.conv1d),
        "conv2d_transpose": ([_x(1, 4, 7, 7), _y(4, 6, 3, 3)], NN.conv2d_transpose),
        "max_pool2d": ([_x(1, 8, 14, 14)], lambda x: NN.max_pool2d(x, pool_size=2, strides=2)),
        "avg_pool2d": ([_x(1, 8, 14, 14)], lambda x: NN.avg_pool2d(x, pool_size=2, strides=2)),
        "adaptive_avg_pool2d": ([_x(1, 8, 14, 14)], lambda x: NN.adaptive_avg_pool2d(x, [2, 2])),
        "attention": ([_x(1, 16, 4, 8), _y(1, 16, 4, 8), _z(1, 16, 4, 8)], NN.attention),
        "sum": ([_x(n, 32)], lambda x: R.sum(x, axis=[1])),
        "mean": ([_x(8, 32)], lambda x: R.mean(x, axis=[1])),
        "variance": ([_x(8, 32)], lambda x: R.variance(x, axis=[1])),
        "max": ([_x(8, 32)], lambda x: R.max(x, axis=[1])),
        "prod": ([_x(8, 6)], lambda x: R.prod(x, axis=[1])),
        "argmax": ([_x(8, 32)], lambda x: R.argmax(x, axis=1)),
        "argmin": ([_x(8, 32)], lambda x: R.argmin(x, axis=1)),
        "cumsum": ([_x(8, 32)], lambda x: R.cumsum(x, axis=1)),
        "permute_dims": ([_x(4, 6, 8)], lambda x: R.permute_dims(x, [2, 0, 1])),
        "reshape": ([_x(4, 6, 8)], lambda x: R.reshape(x, (24, 8))),
        "concat": ([_x(4, 6), _y(4, 10)], lambda x, y: R.concat([x, y], axis=1)),
        "split": ([_x(4, 12)], lambda x: R.split(x, 3, axis=1)),
        "strided_slice": ([_x(8, 12)], lambda x: R.strided_slice(x, [0, 1], [1, 2], [7, 10], [2, 1])),
        "take": ([_x(8, 12), _y(5, dtype="int64")], lambda x, y: R.take(x, y, axis=0)),
        "where": ([_x(8, 12, dtype="bool"), _y(8, 12), _z(8, 12)], R.where),
        "clip": ([_x(8, 12)], lambda x: R.clip(x, -0.5, 0.5)),
        "astype_bf16": ([_x(8, 12)], lambda x: R.astype(x, "bfloat16")),
        "one_hot": ([_x(6, dtype="int64")], lambda x: R.one_hot(
            x, _number(1.0), _number(0.0), 8)),
        "broadcast_to": ([_x(1, 12)], lambda x: R.broadcast_to(x, (8, 12))),
        "scatter_elements": ([_x(4, 6), _y(2, 6, dtype="int64"), _z(2, 6)],
                             lambda x, y, z: R.scatter_elements(x, y, z, axis=0)),
        "resize2d": ([_x(1, 3, 8, 8)], lambda x: R.image.resize2d(x, (16, 16))),
        "quantize": ([_x(8, 12), _y(12), _z(12, dtype="int8")],
                     lambda x, y, z: R.quantize(x, y, z, axis=1, out_dtype="int8")),
        "tril": ([_x(8, 8)], R.tril),
        "add_scalars": ([_x(), _y()], R.add),
        "add_bf16": ([_x(8, 12, dtype="bfloat16"), _y(12, dtype="bfloat16")], R.add),
        "softmax_f16": ([_x(8, 64, dtype="float16")], NN.softmax),
        "matvec": ([_x(1, 64), _y(64, 48)], R.matmul),
        "attention_bias": ([_x(1, 16, 4, 8), _y(1, 16, 4, 8), _z(1, 16, 4, 8),
                            _tensor("bias", (1, 4, 16, 16))], NN.attention_bias),
        "batch_norm": ([_x(2, 4, 6, 6), _y(4), _z(4), _tensor("mean", (4,)), _tensor("var", (4,))],
                       lambda x, y, z, mean, var: NN.batch_norm(x, y, z, mean, var, axis=1)),
        "instance_norm": ([_x(2, 4, 6, 6), _y(4), _z(4)], lambda x, y, z: NN.instance_norm(
            x, y, z, channel_axis=1, axes=[2, 3])),
        "max_pool1d": ([_x(1, 8, 14)], lambda x: NN.max_pool1d(x, pool_size=2, strides=2)),
        "cumsum": ([_x(8, 32)], lambda x: R.cumsum(x, axis=1)),
        "cumprod": ([_x(8, 12)], lambda x: R.cumprod(x, axis=1)),
        "gather_elements": ([_x(4, 6), _y(2, 6, dtype="int64")],
                            lambda x, y: R.gather_elements(x, y, axis=0)),
        "scatter_nd": ([_x(8), _y(3, 1, dtype="int64"), _z(3)], R.scatter_nd),
        "dequantize": ([_x(8, 12, dtype="int8"), _y(12), _z(12, dtype="int8")],
                       lambda x, y, z: R.dequantize(x, y, z, axis=1, out_dtype="float32")),
        "flip": ([_x(8, 8)], lambda x: R.flip(x, axis=1)),
    }  # fmt: skip


def legalised(params: list[Any], build: Callable[..., Any]) -> list[Any]:
    """Returns the functions that TVM makes of one operator."""
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(build(*params)))
    module = builder.get()
    with tvm.target.Target("llvm"):  # Scans are no operators of LegalizeOps.
        module = relax.backend.DispatchSortScan()(module)
        module = relax.transform.LegalizeOps()(module)
    return [f for f in module.functions.values() if type(f).__name__ == "PrimFunc"]


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    missing = []
    for name, (params, build) in cases().items():
        try:
            functions = legalised(params, build)
        except Exception as error:  # A release that lacks the operator, or wants other arguments.
            missing.append(f"{name}: {str(error).strip().splitlines()[-1][:120]}")
            continue
        for at, func in enumerate(functions):
            stem = name if len(functions) == 1 else f"{name}_{at}"
            (folder / f"{stem}.json").write_text(tvm.ir.save_json(func))
            (folder / f"{stem}.test").write_text(f"operator {name}\n")
    for line in missing:
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
