# SPDX-License-Identifier: Apache-2.0
"""At which stage of TVM's lowering a function is taken.

Functions of blocks that no schedule has touched are taken as they are. All others go through
TVM's passes up to ``LowerOpaqueBlock``: there are no blocks any more, but shapes, symbols and
kinds of loops are whole. Code of GPUs also has its barriers then.
"""

from __future__ import annotations

from typing import Any

from .adapter import Adapter
from .refuse import Refused
from .walk import statements

_LOWERING = (
    "CanonicalizeLoop LowerCrossThreadReduction LowerInitBlock "
    "PlanAndUpdateBufferAllocationLocation ConvertBlocksToOpaque LiftThreadBinding "
    "ManifestSharedMemoryLocalStage CompactBufferAllocation LowerAutoCopy UnifyThreadBinding "
    "LowerMatchBuffer StmtSimplify InjectPermutedLayout AnnotateIrregularLoop "
    "InjectSoftwarePipeline TransformMmaBufferLayout LowerOpaqueBlock"
).split()

_THREAD_BINDING = 4


def _find(name: str) -> Any:
    """Returns a pass by name; passes move between these modules from release to release."""
    import tvm

    for module in (tvm.s_tir.transform, tvm.tirx.transform):
        if hasattr(module, name):
            return getattr(module, name)
    raise Refused("pass that this TVM does not have", name)


def has_threads(adapter: Adapter, body: Any) -> bool:
    """Returns whether a schedule has bound loops to blocks and threads of a GPU."""
    for node in statements(body):
        kind = adapter.kind(node)
        if kind == "For" and int(node.kind) == _THREAD_BINDING:
            return True
        if kind == "AttrStmt" and str(node.attr_key) in ("thread_extent", "virtual_thread"):
            return True
    return False


def has_blocks(adapter: Adapter, body: Any) -> bool:
    """Returns whether a function still has blocks."""
    return any(adapter.kind(node) == "SBlockRealize" for node in statements(body))


def is_plain(adapter: Adapter, body: Any) -> bool:
    """Returns whether blocks are as an operator's definition made them."""
    depth_one = True
    for node in statements(body):
        kind = adapter.kind(node)
        if kind == "For" and (int(node.kind) != 0 or len(node.annotations)):
            return False
        if kind == "SBlock":
            if len(node.match_buffers) or (len(node.alloc_buffers) and not depth_one):
                return False
            if any(adapter.scope(buffer) not in ("global", "") for buffer in node.alloc_buffers):
                return False
            depth_one = False
    return True


def lower(adapter: Adapter, func: Any, name: str) -> Any:
    """Returns the function behind ``LowerOpaqueBlock``, with barriers if it has threads."""
    import tvm

    module = tvm.IRModule({name: func.with_attr("global_symbol", name)})
    lowered = _run([_find(each)() for each in _LOWERING], module)
    if has_threads(adapter, func.body):
        try:
            lowered = _run([_find("InjectVirtualThread")()], lowered)
        except Refused:
            pass  # It wants flat memory in some cases; virtual threads are loops then.
        scopes = ("shared", "shared.dyn", "warp")
        lowered = _run([_find("ThreadSync")(scope) for scope in scopes], lowered)
        lowered = _run([_find("StmtSimplify")()], lowered)
    functions = list(lowered.functions.values())
    if len(functions) != 1:
        raise Refused("TVM lowers the function to several", name)
    return functions[0]


def _run(passes: list[Any], module: Any) -> Any:
    """Returns the module after passes of TVM."""
    import tvm

    try:
        with tvm.transform.PassContext(opt_level=0):
            return tvm.ir.transform.Sequential(passes)(module)
    except Exception as error:  # TVM raises many types; all say that its own lowering failed.
        line = next((part for part in reversed(str(error).splitlines()) if part.strip()), "")
        raise Refused("TVM does not lower the function", line.strip()[:160]) from error


def take(adapter: Adapter, func: Any, name: str, door: str) -> Any:
    """Returns the function at the stage that ``door`` names."""
    if not has_blocks(adapter, func.body) and not has_threads(adapter, func.body):
        return func
    if door == "auto":
        plain = is_plain(adapter, func.body) and not has_threads(adapter, func.body)
        door = "blocks" if plain else "lowered"
    if door == "blocks":
        return func
    return lower(adapter, func, name)
