# SPDX-License-Identifier: Apache-2.0
"""Arrays of NumPy in one file, in the layout of safetensors: 8 bytes with the size of a header, the header (JSON), the data.

The layout is plain enough to be mapped: a process that loads a program reads the pages that it uses, and processes share them.
Every tool of that format reads the files. The elements of `.npz` cannot be mapped, and its dtypes end at those of NumPy.
"""
import json
import os
from math import prod

from ._allocate import _NAMES, numpy_dtype
from ._plan import MAX_RANK, SIZES, is_possible
from .errors import DataLoss

_CODES = {"bool": "BOOL", "i8": "I8", "u8": "U8", "f8e4m3fn": "F8_E4M3", "f8e5m2": "F8_E5M2", "i16": "I16", "u16": "U16",
          "f16": "F16", "bf16": "BF16", "i32": "I32", "u32": "U32", "f32": "F32", "i64": "I64", "u64": "U64", "f64": "F64"}
_DTYPES = {code: dtype for dtype, code in _CODES.items()}
_BY_NAME = {name: dtype for dtype, name in _NAMES.items()}
_ALIGNMENT = 64


def dtype_of(array):
    """The dtype of an array of NumPy as quern spells it, or None."""
    return _BY_NAME.get(array.dtype.name) if array.dtype.isnative else None


def write(path, arrays):
    """Writes row-major arrays by name."""
    # Elements of eight bytes are first, so that all are aligned without holes, which the format forbids.
    order = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    header, end = {}, 0
    for name in order:
        size = arrays[name].nbytes
        header[name] = {"dtype": _CODES[dtype_of(arrays[name])], "shape": list(arrays[name].shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(arrays[name].reshape(-1).view("u1").data)
        file.flush()
        os.fsync(file.fileno())


def read(path):
    """The arrays of a file by name, mapped and read-only. Raises `DataLoss` for a file that is damaged."""
    import numpy

    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise DataLoss(f"{path}: a header of {length} bytes in a file of {size}")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise DataLoss(f"{path}: the header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise DataLoss(f"{path}: the header is no dictionary")
    start = 8 + length
    # A plain array: the type of mapped ones has no quick way into a call.
    data = numpy.asarray(numpy.memmap(path, "u1", "r"))
    arrays = {}
    for name, entry in header.items():
        if name != "__metadata__":
            arrays[name] = _view(path, name, entry, data[start:])
    return arrays


def _view(path, name, entry, data):
    def check(is_right, problem):
        if not is_right:
            raise DataLoss(f"{path}: tensor {name!r:.80}: {problem}")

    check(isinstance(entry, dict) and set(entry) == {"dtype", "shape", "data_offsets"}, "members differ from dtype, shape, data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    check(isinstance(code, str) and code in _DTYPES, f"unknown dtype {code!r:.60}")
    for numbers in (shape, offsets):
        check(isinstance(numbers, list) and all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 48 for n in numbers),
              f"expected a list of numbers, got {numbers!r:.60}")
    dtype = _DTYPES[code]
    check(len(shape) <= MAX_RANK and is_possible(shape, dtype), f"the shape {shape!r:.60} is too large")
    size = prod(shape) * SIZES[dtype]
    check(len(offsets) == 2 and offsets[0] <= offsets[1] <= len(data), f"the offsets {offsets!r:.60} are not in the {len(data)} bytes of data")
    check(offsets[1] - offsets[0] == size, f"{offsets[1] - offsets[0]} bytes for {code} {shape}, expected {size}")
    part = data[offsets[0]:offsets[1]]
    check(part.ctypes.data % SIZES[dtype] == 0 or size == 0, "its elements are not aligned")
    array = part.view(numpy_dtype(dtype)).reshape(shape)
    array.flags.writeable = False
    return array
