# SPDX-License-Identifier: Apache-2.0
"""Whole models: functions of relax, ONNX and torch as programs (``quern.Program``).

TVM legalises and fuses the operators. What is left in a function of relax is a list of calls of
``PrimFunc``s, which become kernels, and of reshapes, which become views. See docs/tvm.md.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Optional

from . import adapter as _adapters
from .adapter import Adapter
from .names import Names
from .refuse import Refused
from .values import split_lanes

_BINARY = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "FloorDiv": "//",
    "FloorMod": "%",
    "Min": "min",
    "Max": "max",
}
#: Operators whose result is the memory of their operand, with another shape.
_VIEWS = ("relax.reshape", "relax.flatten", "relax.squeeze", "relax.expand_dims")
_PACKED = ("relax.call_dps_packed", "relax.call_pure_packed", "relax.call_inplace_packed")


def from_relax(
    module: Any,
    function: str = "main",
    params: Optional[dict[str, Any]] = None,
    door: str = "auto",
    **options: Any,
) -> Any:
    """Imports a function of relax as a ``quern.Program``.

    ``params`` gives inputs that are weights, by name. ``door`` is that of :func:`from_module`, and
    ``options`` are those of ``quern.Program``: ``target``, ``tier``, ``engine``. Raises
    :class:`Refused` for what a program does not have, such as branches and packed functions.
    """
    import quern

    from . import _import

    adapter = _adapters.find()
    prepared = _prepare(module, function, params)
    calls = _Calls(adapter, prepared, function)
    calls.read()
    imported = _import({name: _joined(func) for name, func in calls.kernels.items()}, door)
    for name, refused in imported.refused.items():
        raise Refused(refused.reason, f"{name}: {refused.detail}" if refused.detail else name)
    return quern.Program(imported.text, calls.plan(imported.kernels), calls.weights, **options)


def from_onnx(
    model: Any,
    shapes: Optional[dict[str, list[Any]]] = None,
    opset: Optional[int] = None,
    **options: Any,
) -> Any:
    """Imports a model of ONNX, or the file of one, as a ``quern.Program``.

    ``shapes`` gives the shapes of inputs by name; those of the model are the default, where an
    extent with a name is a symbol. ``options`` are those of :func:`from_relax`.
    """
    from tvm.relax.frontend import onnx as frontend

    if isinstance(model, (str, os.PathLike)):
        import onnx

        model = onnx.load(os.fspath(model))
    return from_relax(frontend.from_onnx(model, shape_dict=shapes, opset=opset), **options)


def from_torch(exported: Any, **options: Any) -> Any:
    """Imports a ``torch.export.ExportedProgram`` as a ``quern.Program``.

    Dynamic dimensions are symbols. ``options`` are those of :func:`from_relax`.
    """
    from tvm.relax.frontend.torch import from_exported_program

    return from_relax(from_exported_program(exported, unwrap_unit_return_tuple=True), **options)


def _prepare(module: Any, function: str, params: Optional[dict[str, Any]]) -> Any:
    """Returns the module after the passes of relax."""
    from tvm.relax import transform

    names = {str(var.name_hint): type(func).__name__ for var, func in module.functions.items()}
    if names.get(function) != "Function":
        known = ", ".join(sorted(name for name, kind in names.items() if kind == "Function"))
        raise ValueError(
            f"the module has no function of relax {function!r}; it has {known or 'none'}"
        )
    passes = [
        transform.DecomposeOpsForInference(function),
        transform.ConvertToDataflow(),
        transform.CanonicalizeBindings(),
        transform.LegalizeOps(),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        # Reshapes that move nothing become views again.
        transform.RewriteDataflowReshape(),
    ]
    if params:
        passes.insert(0, transform.BindParams(function, params))
    legal = _run(passes, module)
    last = transform.DeadCodeElimination([function])
    try:
        return _run([transform.FuseOps(), transform.FuseTIR(), last], legal)
    except Refused:
        # 0.26 fails where a fused function has a symbol as a parameter. Operators stay apart then.
        return _run([last], legal)


def _run(passes: list[Any], module: Any) -> Any:
    import tvm

    try:
        with tvm.transform.PassContext(opt_level=3):
            return tvm.ir.transform.Sequential(passes)(module)
    except Exception as error:  # TVM raises many types.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise Refused("TVM does not lower the model", lines[-1][:160] if lines else "") from error


def _joined(func: Any) -> Any:
    """Returns a function whose chains of elementwise blocks are one block each.

    ``FuseTIR`` puts blocks side by side. One that is read by a single block with the same loops is
    computed there, so that no memory lies between them and nothing is computed twice.
    """
    import tvm
    from tvm.s_tir import Schedule

    try:
        schedule = Schedule(tvm.IRModule({"main": func}))
        blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    except Exception:  # TVM raises many types where a body is not of blocks.
        return func
    for block in blocks:
        readers = schedule.get_consumers(block)
        domain = _domain(schedule, block)
        if domain is None or len(readers) != 1 or domain != _domain(schedule, readers[0]):
            continue
        try:
            schedule.compute_inline(block)
        except tvm.s_tir.ScheduleError:
            continue  # A store that is no function of the loops, or that other rules keep apart.
    return schedule.mod["main"]


def _domain(schedule: Any, block: Any) -> Optional[list[str]]:
    """Returns the extents of a block's loops, or None for a reduction."""
    if any(int(axis.iter_type) != 0 for axis in schedule.get(block).iter_vars):
        return None
    return [str(schedule.get(loop).extent) for loop in schedule.get_loops(block)]


class _Calls:
    """The values and calls of one function, as a plan has them.

    A value of relax is the number of a value of the plan, or a tuple of such.
    """

    def __init__(self, adapter: Adapter, module: Any, function: str) -> None:
        self.adapter = adapter
        self.module = module
        self.name = function
        self.function = module[function]
        self.values: list[dict[str, Any]] = []
        self.calls: list[tuple[str, list[Any]]] = []
        self.results: Any = []
        self.weights: dict[str, Any] = {}
        #: The functions that are called, by name.
        self.kernels: dict[str, Any] = {}
        self._known: dict[int, Any] = {}
        self._symbols: dict[int, Any] = {}
        self._names = Names()
        self._same: dict[bytes, int] = {}

    def read(self) -> None:
        """Walks the function."""
        input_names = Names()
        for var in self.function.params:
            dtype, shape = self._tensor(_type(var), f"parameter {_name(var)}", binds=True)
            name = input_names.fresh(_name(var))
            self._define(
                var, self._add({"kind": "input", "name": name, "dtype": dtype, "shape": shape})
            )
        body = self.function.body
        for block in body.blocks:
            for binding in block.bindings:
                if type(binding).__name__ == "MatchCast":
                    self._define(binding.var, self._match_cast(binding))
                else:
                    self._define(binding.var, self._expression(binding.value))
        self.results = _listed(self._expression(body.body))

    def plan(self, kernels: dict[str, Any]) -> dict[str, Any]:
        """Returns the plan; ``kernels`` are the interfaces of the kernels by TVM's names."""
        calls = []
        for name, arguments in self.calls:
            kernel = kernels[name]
            if len(kernel.parameters) != len(arguments):
                count = f"{name} has {len(kernel.parameters)} parameters, the call {len(arguments)}"
                raise Refused("call whose arguments do not fit its function", count)
            for parameter, argument in zip(kernel.parameters, arguments):
                is_buffer = not isinstance(argument, dict)
                if parameter in kernel.outputs and not (
                    is_buffer and self.values[argument]["kind"] == "buffer"
                ):
                    raise Refused("function that writes what it is passed to read", name)
            calls.append({"kernel": kernel.name, "arguments": arguments})
        return {
            "format": "quern program",
            "version": 1,
            "name": self.name,
            "values": self.values,
            "calls": calls,
            "results": self.results,
        }

    def _add(self, value: dict[str, Any]) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _define(self, var: Any, value: Any) -> None:
        self._known[self.adapter.key(var)] = value

    def _expression(self, expr: Any) -> Any:
        """Returns the value of an expression of relax."""
        kind = type(expr).__name__
        if kind in ("Var", "DataflowVar"):
            return self._known[self.adapter.key(expr)]
        if kind in ("Constant", "GenericConst"):
            return self._constant(expr)
        if kind == "Tuple":
            return tuple(self._expression(field) for field in expr.fields)
        if kind == "TupleGetItem":
            value = self._expression(expr.tuple_value)
            return value[int(expr.index)]
        if kind == "Call":
            return self._call(expr)
        if kind == "If":
            raise Refused("branch", "If")
        raise Refused("expression of relax", kind)

    def _call(self, call: Any) -> Any:
        kind = type(call.op).__name__
        if kind == "ExternFunc":
            raise Refused("call of a packed function", str(call.op.global_symbol))
        if kind != "Op":
            raise Refused(
                "call of another function of relax", str(getattr(call.op, "name_hint", kind))
            )
        operator = str(call.op.name)
        if operator == "relax.call_tir":
            return self._call_tir(call)
        if operator in _VIEWS:
            return self._view(self._expression(call.args[0]), _type(call), operator)
        if operator in _PACKED:
            raise Refused(
                "call of a packed function", str(getattr(call.args[0], "global_symbol", operator))
            )
        raise Refused("operator that relax does not legalise", operator)

    def _call_tir(self, call: Any) -> Any:
        name = str(call.args[0].name_hint)
        self.kernels[name] = self.module[call.args[0]]
        arguments = []
        for argument in call.args[1].fields:
            number = self._number(argument)
            value = {"number": number} if number is not None else self._expression(argument)
            if isinstance(value, tuple):
                raise Refused("tuple as an argument of a function", name)
            arguments.append(value)
        outputs = self._outputs(_type(call), name)
        arguments += outputs if isinstance(outputs, tuple) else [outputs]
        if len(call.args) > 2:
            arguments += [{"number": self._extent(one)} for one in call.args[2].values]
        self.calls.append((name, arguments))
        return outputs

    def _outputs(self, info: Any, name: str) -> Any:
        if _is_tuple(info):
            return tuple(self._outputs(field, name) for field in info.fields)
        dtype, shape = self._tensor(info, f"result of {name}")
        return self._add({"kind": "buffer", "dtype": dtype, "shape": shape})

    def _view(self, value: Any, info: Any, operator: str) -> int:
        dtype, shape = self._tensor(info, operator)
        if self.values[value]["shape"] == shape:
            return int(value)
        return self._add({"kind": "view", "of": value, "shape": shape})

    def _match_cast(self, binding: Any) -> Any:
        """A cast to a shape with new symbols says what these are; others must be the same."""
        import tvm

        value = self._expression(binding.value)
        before, after = _type(binding.value), _type(binding.var)
        if isinstance(value, tuple) or _extents(before) is None or _extents(after) is None:
            raise Refused("match_cast of what has no shape", _name(binding.var))
        for was, now in zip(_extents(before), _extents(after)):
            if (
                self.adapter.kind(now) in ("Var", "SizeVar")
                and self.adapter.key(now) not in self._symbols
            ):
                self._symbols[self.adapter.key(now)] = self._extent(was)
            elif not tvm.arith.Analyzer().can_prove_equal(was, now):
                raise Refused("match_cast that only a run can check", f"{was} as {now}")
        return value

    def _constant(self, constant: Any) -> int:
        tensor = constant.data if hasattr(constant, "data") else constant.value
        array = tensor.numpy()
        dtype, shape = self._tensor(_type(constant), "constant")
        key = hashlib.blake2b(
            array.tobytes(), digest_size=16, key=f"{dtype}{shape}".encode()[:64]
        ).digest()
        if key not in self._same:
            name = f"w{len(self.weights)}"
            self.weights[name] = array
            self._same[key] = self._add(
                {"kind": "weight", "name": name, "dtype": dtype, "shape": shape}
            )
        return self._same[key]

    def _tensor(self, info: Any, what: str, binds: bool = False) -> tuple[str, list[Any]]:
        """Returns dtype and shape of a type. With ``binds``, its variables become symbols."""
        extents = _extents(info)
        if extents is None:
            raise Refused("value that is no tensor of known rank", f"{what}: {type(info).__name__}")
        dtype, lanes = split_lanes(str(info.dtype))
        if lanes != 1:
            raise Refused("tensor of vectors", f"{what}: {info.dtype}")
        for extent in extents:
            is_var = self.adapter.kind(extent) in ("Var", "SizeVar")
            if binds and is_var and self.adapter.key(extent) not in self._symbols:
                self._symbols[self.adapter.key(extent)] = self._names.fresh(str(extent.name))
        return dtype, [self._extent(extent) for extent in extents]

    def _extent(self, expr: Any) -> Any:
        """Returns an integer expression of symbols as a plan has it."""
        literal = _adapters.constant(self.adapter, expr)
        if literal is not None:
            return literal
        kind = self.adapter.kind(expr)
        if kind in ("Var", "SizeVar"):
            if self.adapter.key(expr) not in self._symbols:
                raise Refused("symbol that is no extent of an input", str(expr.name))
            return self._symbols[self.adapter.key(expr)]
        if kind == "Cast":
            return self._extent(expr.value)
        if kind not in _BINARY:
            raise Refused("extent of this kind", kind)
        return [_BINARY[kind], self._extent(expr.a), self._extent(expr.b)]

    def _number(self, argument: Any) -> Any:
        """Returns an argument that is a number, or None for tensors."""
        if type(argument).__name__ == "PrimValue":
            argument = argument.value
        if self.adapter.kind(argument) == "FloatImm":
            return float(argument.value)
        if (
            self.adapter.kind(argument) in ("IntImm", "Cast", *_BINARY)
            or self.adapter.key(argument) in self._symbols
        ):
            return self._extent(argument)
        return None


def _type(expr: Any) -> Any:
    """Returns the type of an expression; TVM 0.25 calls it a structure's information."""
    return expr.struct_info if hasattr(expr, "struct_info") else expr.ty


def _name(var: Any) -> str:
    return str(getattr(var, "name_hint", None) or var.name)


def _is_tuple(info: Any) -> bool:
    return type(info).__name__ in ("TupleStructInfo", "TupleType")


def _extents(info: Any) -> Optional[list[Any]]:
    """Returns the extents of a tensor's type, or None if it is none or has no shape."""
    if type(info).__name__ not in ("TensorStructInfo", "TensorType"):
        return None
    return list(info.shape.values) if type(info.shape).__name__ == "ShapeExpr" else None


def _listed(result: Any) -> Any:
    return [_listed(part) for part in result] if isinstance(result, tuple) else result
