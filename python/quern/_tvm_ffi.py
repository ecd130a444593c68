# SPDX-License-Identifier: Apache-2.0
"""Functions of quern as objects of tvm-ffi's Python package.

tvm-ffi has no public way from a handle of its C ABI to a `tvm_ffi.Function` but its global table: a function without a name is
there for a moment.
"""
import itertools

_numbers = itertools.count(1)


def function_of(function, name, override):
    """The `tvm_ffi.Function` that calls `function`."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name: expected text or None, got {type(name).__name__}")
    import tvm_ffi  # its library must be in the process
    from tvm_ffi.registry import get_global_func, remove_global_func

    if name is not None:
        function._register_tvm_ffi(name, override)
        return get_global_func(name)
    name = f"quern._as_tvm_ffi.{next(_numbers)}"
    function._register_tvm_ffi(name, True)
    try:
        return get_global_func(name)
    finally:
        remove_global_func(name)
