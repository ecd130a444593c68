# SPDX-License-Identifier: Apache-2.0
"""The exceptions of quern: one class for each kind of failure, named after the status codes of quern/status.inc.

Each is an `Error`, and also the built-in exception that a Python program expects. The message is quern's, whole.
"""


class Error(Exception):
    """A failure that quern reports."""

    code = "internal error"

    def __init__(self, message):
        super().__init__(message)
        self.message = message

    # KeyError and OSError have texts of their own.
    def __str__(self):
        return self.message


class ModuleError(Error, ValueError):
    """A module or another text that quern refuses. `diagnostics` has its mistakes, in order."""

    diagnostics = ()

    def _repr_html_(self):
        from ._notebook import of_error

        return of_error(self)


class InvalidArgument(Error, ValueError):
    code = "invalid argument"


class OutOfMemory(Error, MemoryError):
    code = "out of memory"


class SyntaxError(ModuleError):
    """A text does not parse."""

    code = "syntax error"


class InvalidModule(ModuleError):
    """A module parses but breaks a rule of the language."""

    code = "invalid module"


class NotFound(Error, KeyError):
    code = "not found"


class ArgumentTypeError(Error, TypeError):
    """An argument of a call has the wrong type, dtype or rank."""

    code = "type error"


class ArgumentValueError(Error, ValueError):
    """An argument of a call has a wrong shape, stride, alignment, device or range, overlaps another one, or is read-only."""

    code = "value error"


class Unsupported(Error, NotImplementedError):
    code = "unsupported"


class Unavailable(Error, RuntimeError):
    """This machine lacks a device, driver or compiler library."""

    code = "unavailable"


class Incompatible(Error, RuntimeError):
    """Code needs an instruction set or ABI that is not here."""

    code = "incompatible"


class DataLoss(Error, ValueError):
    """Bytes from a file or peer are truncated or damaged."""

    code = "data loss"


class InputOutputError(Error, OSError):
    code = "input/output error"


class PermissionDenied(Error, PermissionError):
    code = "permission denied"


class DeadlineExceeded(Error, TimeoutError):
    code = "deadline exceeded"


class Cancelled(Error, RuntimeError):
    code = "cancelled"


class FailedPrecondition(Error, RuntimeError):
    code = "failed precondition"


class AssertionFailed(Error, AssertionError):
    """An assert of the program failed while a function ran."""

    code = "assertion failed"


class OutOfBounds(Error, IndexError):
    """A checked build caught an index outside of its buffer."""

    code = "out of bounds"


class DivisionByZero(Error, ZeroDivisionError):
    """A checked build caught an integer division by zero."""

    code = "division by zero"


class DeviceError(Error, RuntimeError):
    code = "device error"


class CompileForbidden(Error, LookupError):
    """A lookup missed, and its policy forbids compiling."""

    code = "compile forbidden"


class InternalError(Error, RuntimeError):
    """A check inside the library failed. This is a defect of the library."""

    code = "internal error"


_CLASSES = (InvalidArgument, OutOfMemory, SyntaxError, InvalidModule, NotFound, ArgumentTypeError, ArgumentValueError, Unsupported,
            Unavailable, Incompatible, DataLoss, InputOutputError, PermissionDenied, DeadlineExceeded, Cancelled,
            FailedPrecondition, AssertionFailed, OutOfBounds, DivisionByZero, DeviceError, CompileForbidden, InternalError)
BY_CODE = {one.code: one for one in _CLASSES}
__all__ = ["Error", "ModuleError"] + [one.__name__ for one in _CLASSES]
