# SPDX-License-Identifier: Apache-2.0
"""Names of quern programs, made from TVM's."""

from __future__ import annotations

import re

_DTYPES = (
    "bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3fn f8e5m2 i4 u4 f4e2m1fn"
).split()

RESERVED = frozenset(
    (
        "func in out inout let if else for parallel vector unroll while alloc const view barrier "
        "assert bitcast true false inf nan return break continue fence scan exclusive_scan reduce"
    ).split()
    + _DTYPES
)


_LONGEST = 40  # Names of fused loops have hundreds of characters in TVM.


def identifier(hint: str) -> str:
    """Returns ``hint`` as a name: other characters become ``_``, and long ones are cut."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", hint)[:_LONGEST] or "v"
    return "v" + name if name[0].isdigit() else name


class Names:
    """Hands out names of one function, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set(RESERVED)

    def fresh(self, hint: str) -> str:
        """Returns a new name like ``hint``, with a number if that is taken."""
        base = identifier(hint)
        name = base
        number = 0
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name
