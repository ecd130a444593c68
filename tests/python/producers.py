# SPDX-License-Identifier: Apache-2.0
"""Tensors that come by DLPack, made with ctypes: what frameworks hand over, and what they might do wrong."""
import ctypes
from ctypes import POINTER, PYFUNCTYPE, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, py_object


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8),
                ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p), ("flags", c_uint64), ("tensor", Tensor)]


class Exchange(ctypes.Structure):
    pass


BORROW = PYFUNCTYPE(c_int, py_object, POINTER(Tensor))
Exchange._fields_ = [("major", c_uint32), ("minor", c_uint32), ("previous", POINTER(Exchange)), ("allocate", c_void_p), ("from_object", c_void_p),
                     ("to_object", c_void_p), ("borrow", BORROW), ("current_stream", c_void_p)]
# A capsule borrows its name.
EXCHANGE_NAME = b"dlpack_exchange_api"
DELETER = PYFUNCTYPE(None, c_void_p)
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = py_object
new_capsule.argtypes = [c_void_p, c_char_p, c_void_p]


class Floats:
    """A vector of f32 with the memory of a ctypes array."""

    def __init__(self, *values):
        self.memory = (ctypes.c_float * len(values))(*values)
        self.shape = (c_int64 * 1)(len(values))
        self.deleted = 0
        self.asked = []
        self.kept = []

    def __iter__(self):
        return iter(self.memory)

    def tensor(self):
        return Tensor(ctypes.addressof(self.memory), 1, 0, 1, 2, 32, 1, self.shape, None, 0)

    def deleter(self):
        def delete(_):
            self.deleted += 1

        callback = DELETER(delete)
        self.kept.append(callback)
        return ctypes.cast(callback, c_void_p)

    def capsule(self, flags=None, version=(1, 1)):
        if flags is None:
            managed, name = Managed(self.tensor(), None, self.deleter()), b"dltensor"
        else:
            managed, name = Versioned(*version, None, self.deleter(), flags, self.tensor()), b"dltensor_versioned"
        self.kept.append(managed)
        return new_capsule(ctypes.addressof(managed), name, None)


class Modern(Floats):
    flags = 0
    version = (1, 1)

    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked.append((stream, max_version))
        return self.capsule(self.flags, self.version)

    def __dlpack_device__(self):
        return (1, 0)


class Old(Floats):
    def __dlpack__(self, stream=None):
        self.asked.append(stream)
        return self.capsule()

    def __dlpack_device__(self):
        return (1, 0)


def borrow(object, out):
    object.borrowed += 1
    out[0] = object.tensor()
    return 0


_borrow = BORROW(borrow)
exchange = Exchange(1, 3, None, None, None, None, _borrow, None)


class Exchanged(Modern):
    """As torch.Tensor: its type has the exchange interface."""

    borrowed = 0
    __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(exchange), EXCHANGE_NAME, None)


# An interface of a later major version, behind which there is one that is known.
_later = Exchange(2, 0, ctypes.pointer(exchange), None, None, None, BORROW(lambda object, out: 1 // 0), None)


class ExchangedLater(Exchanged):
    __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(_later), EXCHANGE_NAME, None)
