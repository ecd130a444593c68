# SPDX-License-Identifier: Apache-2.0
from typing import Dict, NamedTuple, Tuple

class _Diagnostic(NamedTuple):
    severity: str
    code: str
    message: str
    help: str
    file: str
    line: int
    column: int
    end_column: int
    text: str

class Diagnostic(_Diagnostic):
    @property
    def caret(self) -> str: ...

class LookupInfo(NamedTuple):
    source: str
    key: str
    lookup_s: float
    compile_s: float
    load_s: float
    is_fallback: bool
    tier: str

class CacheEntry(NamedTuple):
    key: str
    target: str
    options: str
    size_bytes: int
    code_bytes: int
    compile_s: float
    created: int
    used: int
    generator: str

class Explanation(NamedTuple):
    text: str
    key: str
    found_in: str
    nearest_key: str
    section: str
    wanted: str
    cached: str

class WarmItem(NamedTuple):
    name: str
    key: str
    outcome: str
    compile_s: float
    attempts: int
    error: str

class WarmResult(NamedTuple):
    total: int
    done: int
    counts: Dict[str, int]
    elapsed_s: float
    is_warm: bool
    is_cancelled: bool
    items: Tuple[WarmItem, ...]
    problems: Tuple[Tuple[str, int, str], ...]
