# SPDX-License-Identifier: Apache-2.0
"""`Function.new`: allocates `out` buffers as the framework of the first tensor does, and calls the function."""
import sys
from math import prod

_FORMATS = {"bool": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "f32": "f",
            "f64": "d"}
# Names of dtypes in NumPy and in the array API; those of ml_dtypes.
_NAMES = {"bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16",
          "u32": "uint32", "u64": "uint64", "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16",
          "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
_PLAIN = (bytes, bytearray, memoryview)


def numpy_dtype(dtype):
    """The dtype of NumPy (or ml_dtypes) with the name of quern's."""
    import numpy

    if dtype in ("bf16", "f8e4m3fn", "f8e5m2"):
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, _NAMES[dtype]))
    return numpy.dtype(_NAMES[dtype])


def _numpy(shape, dtype):
    import numpy

    return numpy.empty(shape, numpy_dtype(dtype))


def _memory(shape, dtype):
    if dtype not in _FORMATS:
        raise TypeError(f"memoryview has no format for {dtype}; pass an array of NumPy")
    view = memoryview(bytearray(max(1, prod(shape)) * memoryview(b"").cast(_FORMATS[dtype]).itemsize))
    view = view.cast(_FORMATS[dtype])
    # A memoryview cannot be cast to a shape without elements, nor to rank 0.
    if not shape:
        return view.cast("B").cast(_FORMATS[dtype], ())
    if prod(shape) == 0:
        raise ValueError(f"memoryview cannot have shape {tuple(shape)}; pass an array of NumPy")
    return view.cast("B").cast(_FORMATS[dtype], shape)


def _torch(like, shape, dtype):
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=getattr(torch, _NAMES[dtype]), device=like.device)


def _array_api(like, shape, dtype):
    space = like.__array_namespace__()
    kind = getattr(space, _NAMES[dtype], None)
    if kind is None:
        raise TypeError(f"{space.__name__} has no dtype {_NAMES[dtype]}")
    return space.empty(shape, dtype=kind, device=like.device)


def _on_current_device():
    """The allocator of a call without tensors."""
    from ._device import current_device

    device = current_device()
    torch = sys.modules.get("torch")
    if device.type == "cpu":
        return _numpy
    if device.type == "cuda" and torch:
        return lambda shape, dtype: torch.empty(shape, dtype=getattr(torch, _NAMES[dtype]), device=device.name)
    raise TypeError(f"no framework here allocates on {device}; pass the outputs")


def _allocator(like):
    """A function of shape and dtype."""
    package = type(like).__module__.partition(".")[0]
    if package == "numpy" or isinstance(like, _memory_types()):
        return _numpy if package == "numpy" else _memory
    if package == "torch":
        return lambda shape, dtype: _torch(like, shape, dtype)
    if package in ("jax", "jaxlib"):
        raise TypeError("arrays of JAX cannot be written to; pass arrays of NumPy as outputs")
    if hasattr(like, "__array_namespace__"):
        return lambda shape, dtype: _array_api(like, shape, dtype)
    raise TypeError(f"cannot allocate as {type(like).__module__}.{type(like).__qualname__} does; pass the outputs")


def _memory_types():
    array = sys.modules.get("array")
    return _PLAIN + ((array.array,) if array else ())


def _is_tensor(value):
    return not isinstance(value, (int, float)) and (
        hasattr(value, "__dlpack__") or hasattr(value, "__array_namespace__") or isinstance(value, _memory_types()))


def call(function, args, names):
    plan = function._outputs(*args, **names)
    outputs = []
    allocate = None
    values = []
    for one in plan:
        if len(one) == 1:
            values.append(one[0])
            continue
        if allocate is None:
            tensors = [given[0] for given in plan if len(given) == 1 and _is_tensor(given[0])]
            allocate = _allocator(tensors[0]) if tensors else _on_current_device()
        name, shape, dtype = one
        if dtype not in _NAMES:
            raise TypeError(f"{function.signature}: '{name}' has dtype {dtype}, which no framework allocates; pass it")
        outputs.append(allocate(shape, dtype))
        values.append(outputs[-1])
    if not outputs:
        raise TypeError(f"{function.signature}: there is no `out` buffer; call the function itself")
    function(*values)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)
