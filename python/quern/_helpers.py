# SPDX-License-Identifier: Apache-2.0
"""What the extension calls: values that it hands out, exceptions, and the work that is easier in Python."""
from collections import namedtuple

from . import errors


class Diagnostic(namedtuple("Diagnostic", "severity code message help file line column end_column text")):
    """One message about a text: its place (`line` and `column` from 1; 0: it has none) and the line there (`text`)."""

    __slots__ = ()

    @property
    def caret(self):
        """The line of the text, and below it carets under the place. "" without a place."""
        if self.line == 0:
            return ""
        before = "".join("\t" if c == "\t" else " " for c in self.text[: self.column - 1])
        return f"{self.text}\n{before}{'^' * max(1, self.end_column - self.column)}"

    def __str__(self):
        code = f"[{self.code}]" if self.code else ""
        place = f"{self.file}:{self.line}:{self.column}: " if self.line else ""
        return f"{place}{self.severity}{code}: {self.message}"


LookupInfo = namedtuple("LookupInfo", "source key lookup_s compile_s load_s is_fallback tier")
LookupInfo.__doc__ = "Where the code of a function came from, and how long that took, in seconds."
CacheEntry = namedtuple("CacheEntry", "key target options size_bytes code_bytes compile_s created used generator")
CacheEntry.__doc__ = "One entry of a cache directory. `created` and `used` are Unix times, the latter to the day; texts are \"\" if it is damaged."
Explanation = namedtuple("Explanation", "text key found_in nearest_key section wanted cached")
Explanation.__doc__ = "Why a lookup would hit or miss."
Explanation.__str__ = lambda self: self.text
WarmItem = namedtuple("WarmItem", "name key outcome compile_s attempts error")
WarmItem.__doc__ = "One key of a warm-up, and how it ended."
WarmResult = namedtuple("WarmResult", "total done counts elapsed_s is_warm is_cancelled items problems")
WarmResult.__doc__ = "What a warm-up has done. `counts` is by outcome; `problems` are lines that were left out."


def make_error(code, message, found):
    """The exception of a status. `found` is () or (diagnostics, text)."""
    error = errors.BY_CODE.get(code, errors.InternalError)(message)
    if found:
        lines = found[1].split("\n")
        error.diagnostics = tuple(
            Diagnostic(*one, lines[one[5] - 1].rstrip("\r") if 0 < one[5] <= len(lines) else "") for one in found[0])
    return error


def make_info(*values):
    return LookupInfo(*values)


def make_warm_item(*values):
    return WarmItem(*values)


def make_warm_result(total, done, counts, elapsed, is_warm, is_cancelled, items, problems):
    return WarmResult(total, done, counts, elapsed, is_warm, is_cancelled, tuple(items), tuple(problems))


def default_engine():
    from . import default_engine as of_package

    return of_package()


def await_request(request):
    from ._asyncio import wait

    return wait(request).__await__()


def call_new(function, args, names):
    from ._allocate import call

    return call(function, args, names or {})


def as_tvm_ffi(function, name, override):
    from ._tvm_ffi import function_of

    return function_of(function, name, override)
