# SPDX-License-Identifier: Apache-2.0
"""Imports functions of TVM, and runs them with TVM's LLVM build on random arrays.

Usage: reference.py DOOR VARIANT OUTPUT_FOLDER FILE.json...    (with a Python that has TVM)

VARIANT 0 to 3 chooses numbers for symbols, scalars and integers: where a test indexes with them or
divides by them, one of the choices stays in bounds.

Each function gets a folder with its text, its arrays before and after, and ``meta.json``. It is
done in a process of its own, since TVM's code divides by zero or runs away where a test is not
meant to be run.
"""

from __future__ import annotations

import json
import operator
import os
import pathlib
import signal
import sys
import time
import traceback
import zlib
from typing import Any

import numpy as np
import tvm

import package  # noqa: F401, before the next ones: it says where quern is.
import quern.tvm as importer
from quern.tvm.adapter import find
from quern.tvm.stages import has_threads
from quern.tvm.walk import expressions

#: Seconds for one function: TVM's serial code takes minutes for matrices in tests of schedules.
TIMEOUT_S = int(os.environ.get("QUERN_TVM_TIMEOUT", "20"))
SYMBOL_VALUES = ([6, 4, 10, 8, 12, 14], [8] * 6, [16, 32, 64, 8, 4, 2], [8] * 6)
SCALARS = (1, 2, 0, 1)
INTEGERS = ((0, 3), (0, 2), (0, 2), (1, 2))  # The first, and the one after the last.
RAW = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


_OPERATORS = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "FloorDiv": operator.floordiv,
    "FloorMod": operator.mod, "Div": operator.floordiv, "Min": min, "Max": max,
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
    "EQ": operator.eq, "NE": operator.ne, "And": lambda a, b: a and b, "Or": lambda a, b: a or b,
}  # fmt: skip


def extent_of(expr: Any, symbols: list[tuple[Any, int]]) -> int:
    """Returns the value of an extent once its symbols have values."""
    kind = find().kind(expr)
    if isinstance(expr, int):
        return expr
    if kind == "IntImm":
        return int(expr.value)
    if kind in ("Var", "SizeVar"):
        return next(value for var, value in symbols if var.same_as(expr))
    if kind == "Cast":
        return extent_of(expr.value, symbols)
    if kind == "Select" or kind == "Call" and str(expr.op.name).endswith("if_then_else"):
        arms = list(expr.args) if kind == "Call" else [
            expr.condition, expr.true_value, expr.false_value]  # fmt: skip
        return extent_of(arms[1] if extent_of(arms[0], symbols) else arms[2], symbols)
    return int(_OPERATORS[kind](extent_of(expr.a, symbols), extent_of(expr.b, symbols)))


def dtype_of(expr: Any) -> str:
    return find().dtype(expr)


def free_symbols(buffers: list[Any]) -> list[Any]:
    """Returns the variables in the shapes of buffers, in order."""
    adapter, found = find(), []
    for buffer in buffers:
        for extent in [*buffer.shape, *buffer.strides]:
            for part in expressions(adapter, extent):
                if adapter.kind(part) in ("Var", "SizeVar"):
                    if not any(part.same_as(other) for other in found):
                        found.append(part)
    return found


def random_array(
    shape: list[int], dtype: str, variant: int, rng: np.random.Generator
) -> np.ndarray:
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        return rng.integers(*INTEGERS[variant], shape).astype(dtype)
    values = rng.uniform(-1.5, 1.5, shape)
    halves = rng.integers(0, 8, shape) == 0
    values = np.where(halves, np.round(values * 2) / 2, values)
    if dtype in RAW:
        import ml_dtypes

        return values.astype(getattr(ml_dtypes, dtype))
    return values.astype(dtype)


def other_than(array: np.ndarray) -> np.ndarray:
    """Returns an array that differs in every element."""
    if array.dtype == bool:
        return np.asarray(~array)
    return np.asarray(array + np.ones((), array.dtype)).astype(array.dtype)


def save(path: pathlib.Path, array: np.ndarray, dtype: str) -> None:
    np.save(path, array.view(RAW[dtype]) if dtype in RAW else array)


def arguments(func: Any, variant: int, seed: int) -> list[tuple[str, Any]]:
    """Returns dtype and array, or dtype and number, for each parameter."""
    adapter, rng = find(), np.random.default_rng(seed)
    parameters = adapter.parameters(func)
    values, scalar = SYMBOL_VALUES[variant], SCALARS[variant]
    symbols = [(var, scalar) for var, buffer in parameters if buffer is None]
    free = [v for v in free_symbols([b for _, b in parameters if b is not None])
            if not any(v.same_as(s) for s, _ in symbols)]  # fmt: skip
    symbols += [(var, values[at % len(values)]) for at, var in enumerate(free)]
    result: list[tuple[str, Any]] = []
    for var, buffer in parameters:
        if buffer is None:
            dtype = dtype_of(var)
            if dtype == "handle":
                raise TypeError("pointer for a parameter")
            number = bool(scalar) if dtype == "bool" else scalar if "int" in dtype else 0.5
            result.append((dtype, number))
            continue
        shape = [extent_of(extent, symbols) for extent in buffer.shape]
        if np.prod(shape, dtype=float) > 1 << 24:
            raise OverflowError(f"array of {shape}")
        dtype = adapter.elements(buffer)
        result.append((dtype, np.asarray(random_array(shape, dtype, variant, rng))))
    return result


def run_tvm(func: Any, runs: list[list[tuple[str, Any]]]) -> list[list[Any]]:
    """Calls TVM's LLVM build with each list of arguments; returns the arrays after each call."""
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    built = tvm.compile(module, target="llvm")
    results = []
    for args in runs:
        passed = [
            tvm.runtime.tensor(value) if isinstance(value, np.ndarray) else value
            for _, value in args
        ]
        built["main"](*passed)
        results.append([p.numpy() if hasattr(p, "numpy") else p for p in passed])
    return results


def imported_by(door: str, func: Any) -> importer.Imported:
    """Imports a function by a door of the importer; ``dlight``: scheduled for a GPU before."""
    if door != "dlight":
        return importer.from_primfunc(func, "main", door=door)
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    return importer.from_module(module, target="nvidia/geforce-rtx-4090")


def work(path: pathlib.Path, folder: pathlib.Path, door: str, variant: int) -> dict[str, Any]:
    """Does one function; returns what ``meta.json`` says."""
    test = path.with_suffix(".test")
    meta: dict[str, Any] = {"test": test.read_text().strip() if test.exists() else ""}
    func = tvm.ir.load_json(path.read_text())
    start = time.perf_counter()
    imported = imported_by(door, func)
    meta["import_s"] = time.perf_counter() - start
    if imported.refused:
        reason = imported.refused["main"]
        return {**meta, "refused": reason.reason, "detail": reason.detail}
    kernel = imported.kernels["main"]
    (folder / "module.qn").write_text(imported.text)
    meta["function"], meta["outputs"] = kernel.name, kernel.outputs
    if has_threads(find(), func.body):
        return {**meta, "no_reference": "code of a GPU"}
    try:
        meta["arguments"] = record(func, kernel, folder, variant, zlib.crc32(path.name.encode()))
    except Exception as error:
        lines = str(error).strip().splitlines()
        meta["no_reference"] = f"TVM: {lines[-1][:160]}" if lines else type(error).__name__
    return meta


def record(func: Any, kernel: Any, folder: pathlib.Path, variant: int, seed: int) -> list[Any]:
    """Saves arrays before and after TVM's code, and which elements it does not write.

    It runs twice, with other contents in the buffers that it only writes: what differs then is
    left from before, for example by a reduction over nothing.
    """
    args = arguments(func, variant, seed)
    saved = [np.copy(v) if isinstance(v, np.ndarray) else v for _, v in args]
    outs = [name in kernel.only_written for name in kernel.parameters]
    second = [
        (dtype, other_than(v) if out else np.copy(v) if isinstance(v, np.ndarray) else v)
        for (dtype, v), out in zip(args, outs)
    ]
    after, again = run_tvm(func, [args, second])
    entries = []
    for at, name in enumerate(kernel.parameters):
        dtype, entry = args[at][0], {"name": name, "dtype": args[at][0]}
        if isinstance(saved[at], np.ndarray):
            save(folder / f"{name}.before.npy", saved[at], dtype)
            if name in kernel.outputs:
                save(folder / f"{name}.after.npy", after[at], dtype)
                save(folder / f"{name}.again.npy", again[at], dtype)
        else:
            entry["value"] = int(saved[at]) if dtype == "bool" else saved[at]
        entries.append(entry)
    return entries


def child(path: pathlib.Path, folder: pathlib.Path, door: str, variant: int) -> None:
    signal.alarm(TIMEOUT_S)
    os.dup2(os.open(folder / "log", os.O_WRONLY | os.O_CREAT), 2)
    try:
        meta = work(path, folder, door, variant)
    except BaseException:
        meta = {"failed": traceback.format_exc()}
    (folder / "meta.json").write_text(json.dumps(meta))


def main() -> int:
    door, variant, output = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
    for name in sys.argv[4:]:
        path = pathlib.Path(name)
        folder = output / path.stem
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "meta.json").unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            child(path, folder, door, variant)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status != 0 or not (folder / "meta.json").exists():
            test = path.with_suffix(".test")
            meta = {"no_reference": f"TVM ended with signal {status & 127}",
                    "test": test.read_text().strip() if test.exists() else ""}  # fmt: skip
            (folder / "meta.json").write_text(json.dumps(meta))
    return 0


if __name__ == "__main__":
    sys.exit(main())
