# SPDX-License-Identifier: Apache-2.0
"""Programs from Apache TVM, as texts of quern.

::

    imported = quern.tvm.from_module(irmodule)
    imported.text       # a module of quern
    imported.kernels    # names of TVM's functions -> name and parameters in the text
    imported.refused    # names of TVM's functions -> why they are not in the text

TVM is imported when a function is, and needed then alone: the text is the program, and caches and
bundles know it by its content. See docs/tvm.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from . import adapter as _adapters
from . import emit as _emit
from .emit import Kernel
from .names import Names
from .refuse import Refused
from .relax import from_onnx, from_relax, from_torch

__all__ = [
    "Imported", "Kernel", "Refused", "from_module", "from_onnx", "from_primfunc", "from_relax", "from_torch",
]  # fmt: skip


@dataclass
class Imported:
    """What :func:`from_module` and :func:`from_primfunc` return."""

    #: The module of quern. It may have no functions, if all were refused.
    text: str = ""
    #: The functions in the text, by TVM's names.
    kernels: dict[str, Kernel] = field(default_factory=dict)
    #: TVM's names of the functions that are not in the text, and the reasons.
    refused: dict[str, Refused] = field(default_factory=dict)


def from_primfunc(func: Any, name: Optional[str] = None, door: str = "auto") -> Imported:
    """Imports one ``PrimFunc``.

    ``name`` is by default its ``global_symbol``, else ``main``. ``door`` is the stage at which it
    is taken: ``blocks`` as it is, ``lowered`` after TVM's ``LowerOpaqueBlock``, ``auto`` the
    first for functions that no schedule has touched.
    """
    if name is None:
        symbol = (
            func.attrs["global_symbol"] if func.attrs and "global_symbol" in func.attrs else None
        )
        name = str(symbol) if symbol is not None else "main"
    return _import({name: func}, door)


def from_module(module: Any, target: Any = None, door: str = "auto") -> Imported:
    """Imports every ``PrimFunc`` of an ``IRModule``; functions of relax are passed over.

    ``target`` is a ``tvm.target.Target`` for which TVM schedules the functions first, with the
    default rules of dlight for GPUs. Without one they are taken as they are.
    """
    if target is not None:
        module = _schedule(module, target)
    functions = {
        str(var.name_hint): func
        for var, func in module.functions.items()
        if type(func).__name__ == "PrimFunc"
    }
    return _import(functions, door)


def _import(functions: dict[str, Any], door: str) -> Imported:
    if door not in ("auto", "blocks", "lowered"):
        raise ValueError(f"door is {door!r}, expected 'auto', 'blocks' or 'lowered'")
    adapter = _adapters.find()
    imported = Imported()
    names = Names()
    texts = []
    for name in sorted(functions):
        try:
            kernel, text = _emit.function(adapter, functions[name], name, door, names)
            _verify(text)
        except Refused as reason:
            imported.refused[name] = reason
            continue
        imported.kernels[name] = kernel
        texts.append(text)
    imported.text = "\n".join(texts)
    return imported


def _verify(text: str) -> None:
    """Refuses a function that breaks a rule of the language: it would spoil the text of all.

    TVM allows, for example, that all threads store one shared element.
    """
    try:
        from .. import Module, errors
    except ImportError:  # Without the extension beside it, the importer writes texts alone.
        return
    try:
        Module(text)
    except errors.ModuleError as error:
        first = error.diagnostics[0]
        raise Refused(f"not valid in quern ({first.code})", first.message) from error


def _schedule(module: Any, target: Any) -> Any:
    import tvm
    from tvm.s_tir import dlight

    rules = (
        dlight.gpu.Matmul(),
        dlight.gpu.GEMV(),
        dlight.gpu.Reduction(),
        dlight.gpu.GeneralReduction(),
        dlight.gpu.Fallback(),
    )
    with tvm.target.Target(target):
        return dlight.ApplyDefaultSchedule(*rules)(module)
