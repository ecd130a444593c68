# SPDX-License-Identifier: Apache-2.0
import os
from typing import Any, Dict, Iterable, Mapping, NamedTuple, Optional, Tuple, Union

from . import Engine, Module

class Tensor(NamedTuple):
    name: str
    dtype: str
    shape: Tuple[Union[int, str], ...]

class Program:
    module: Module
    target: str
    def __init__(
        self,
        text: str,
        plan: Mapping[str, Any],
        weights: Mapping[str, Any],
        *,
        target: str = ...,
        tier: Optional[str] = ...,
        engine: Optional[Engine] = ...,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def plan(self) -> Dict[str, Any]: ...
    @property
    def symbols(self) -> Tuple[str, ...]: ...
    @property
    def inputs(self) -> Tuple[Tensor, ...]: ...
    @property
    def weights(self) -> Dict[str, Any]: ...
    def workspace_bytes(self, **symbols: int) -> int: ...
    def compile(self) -> None: ...
    def __call__(self, *args: Any, **names: Any) -> Any: ...
    def save(self, folder: Union[str, "os.PathLike[str]"], *, targets: Optional[Iterable[str]] = ...) -> None: ...

def load_program(
    folder: Union[str, "os.PathLike[str]"],
    *,
    target: str = ...,
    tier: Optional[str] = ...,
    engine: Optional[Engine] = ...,
    jit: Optional[str] = ...,
) -> Program: ...
