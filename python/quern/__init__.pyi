# SPDX-License-Identifier: Apache-2.0
import os
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Type, TypeVar, Union

from . import _quern as _quern
from . import errors as errors
from ._builder import Builder as Builder
from ._device import current_device as current_device
from ._device import current_stream as current_stream
from ._device import device as device
from ._helpers import CacheEntry as CacheEntry
from ._helpers import Diagnostic as Diagnostic
from ._helpers import Explanation as Explanation
from ._helpers import LookupInfo as LookupInfo
from ._helpers import WarmItem as WarmItem
from ._helpers import WarmResult as WarmResult
from ._program import Program as Program
from ._program import load_program as load_program
from ._quern import Function as Function
from ._quern import Request as Request
from ._quern import Stream as Stream
from ._quern import load_plugin as load_plugin
from .errors import *

__version__: str
_Path = Union[str, "os.PathLike[str]"]
_Module = TypeVar("_Module", bound="Module")

def build_info() -> str: ...
def default_engine() -> "Engine": ...

class Module(_quern.Module):
    @classmethod
    def from_file(cls: Type[_Module], path: _Path, set: Optional[str] = ..., engine: Optional[_quern.Engine] = ...) -> _Module: ...
    @property
    def functions(self) -> Dict[str, str]: ...
    def compile(
        self,
        name: str,
        target: Optional[str] = ...,
        *,
        tier: Optional[str] = ...,
        checked: bool = ...,
        miss: str = ...,
        timeout: Optional[float] = ...,
        priority: int = ...,
        generic: Optional[_quern.Module] = ...,
    ) -> Function: ...
    def request(
        self,
        name: str,
        target: Optional[str] = ...,
        *,
        tier: Optional[str] = ...,
        checked: bool = ...,
        timeout: Optional[float] = ...,
        priority: int = ...,
    ) -> Request: ...

class Engine(_quern.Engine):
    def __new__(
        cls,
        cache_dir: Optional[_Path] = ...,
        *,
        bundles: Union[str, Iterable[_Path], None] = ...,
        remote: Optional[str] = ...,
        jit: Optional[str] = ...,
        cache_mode: Optional[str] = ...,
        ignores_environment: bool = ...,
        **settings: Any,
    ) -> "Engine": ...
    def why(self, module: _quern.Module, target: Optional[str] = ..., *, tier: Optional[str] = ..., checked: bool = ...) -> Explanation: ...
    def entries(self) -> List[CacheEntry]: ...
    def write_bundle(
        self, path: _Path, *, keys: Optional[Iterable[str]] = ..., sign: Optional[_Path] = ..., append: bool = ...
    ) -> int: ...
    def warm(
        self,
        items: Iterable[Union[_quern.Module, Tuple[_quern.Module, str], _Path]],
        *,
        targets: Optional[Sequence[str]] = ...,
        tier: Optional[str] = ...,
        jobs: int = ...,
        time_limit: float = ...,
        on_progress: Optional[Callable[[int, int, Optional[WarmItem]], Optional[bool]]] = ...,
        dry_run: bool = ...,
        command: Optional[_Path] = ...,
    ) -> WarmResult: ...
    def __enter__(self) -> "Engine": ...
    def __exit__(self, *unused: object) -> None: ...
