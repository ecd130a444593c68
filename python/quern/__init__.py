# SPDX-License-Identifier: Apache-2.0
"""quern: a JIT execution engine with a kernel cache.

    import numpy, quern
    module = quern.Module('''
    func saxpy(a: f32, x: f32[n], inout y: f32[n]) {
      parallel i in 0..n { y[i] = a * x[i] + y[i]; }
    }''')
    module["saxpy"](2.0, x, y)

docs/python.md is the manual.
"""
import _thread
import atexit as _atexit
import os as _os
import time as _time
import weakref as _weakref

from . import _quern
from ._helpers import CacheEntry, Diagnostic, Explanation, LookupInfo, WarmItem, WarmResult
from ._device import current_device, current_stream, device, target_of_current as _target_of_current
from ._quern import Function, Request, Stream, load_plugin
from .errors import *  # noqa: F401,F403
from . import errors

__version__ = _quern.version()[0]
__all__ = ["Builder", "CacheEntry", "Diagnostic", "Engine", "Explanation", "Function", "LookupInfo", "Module", "Program", "Request",
           "Stream", "WarmItem", "WarmResult", "build_info", "current_device", "current_stream", "default_engine", "device",
           "load_plugin", "load_program"] + errors.__all__


def __getattr__(name):
    # Builders and programs need what an import of the package should not pay for.
    if name == "Builder":
        from ._builder import Builder as value
    elif name in ("Program", "load_program"):
        from . import _program

        value = getattr(_program, name)
    else:
        raise AttributeError(f"module 'quern' has no attribute {name!r}")
    globals()[name] = value
    return value


_TIERS = {None: 0, "full": 1, "fast": 2}
_MISSES = {"block": 0, "fallback": 1, "fail": 2}


def build_info():
    """One line with the version, the build id and the code generators of the build."""
    return _quern.version()[1]


def _choice(name, value, choices):
    if value not in choices:
        known = ", ".join(repr(one) for one in choices)
        raise ValueError(f"{name}: expected one of {known}, got {value!r}")
    return choices[value]


def _options(tier=None, checked=False, miss="block", timeout=None, priority=0, generic=None):
    if timeout is not None and timeout < 0:
        raise ValueError(f"timeout: expected seconds or None, got {timeout!r}")
    return (_choice("tier", tier, _TIERS), checked, _choice("miss", miss, _MISSES), -1.0 if timeout is None else float(timeout),
            priority, generic)


class Module(_quern.Module):
    """A checked program. It never changes, so threads may share it.

    `Module(text, source=None, set=None, engine=None)`: `source` names the text in messages, `set` fixes symbols and integer
    scalars first ("d=128,attention.k=4"), `engine` does its lookups (None: the default one). A text that is refused raises
    `SyntaxError` or `InvalidModule`, with `diagnostics`.

    `module["name"]` is a function that finds its code by the device of its arguments.
    """

    __slots__ = ()

    @classmethod
    def from_file(cls, path, set=None, engine=None):
        """Reads the text of a file."""
        with open(path, encoding="utf-8", newline="") as file:
            return cls(file.read(), _os.fspath(path), set, engine)

    @property
    def functions(self):
        """The signatures of the functions, by name."""
        return {name: self[name].signature for name in self}

    def compile(self, name, target=None, *, tier=None, checked=False, miss="block", timeout=None, priority=0, generic=None):
        """Looks up the code of a function for one target (None: the current device), and returns the function bound to it.

        `miss` says what to do if no tier of the cache has it: "block" compiles, "fallback" takes a ready variant and compiles
        in the background, "fail" raises `CompileForbidden`. `timeout` is in seconds: `DeadlineExceeded` then, and the compile
        goes on into the cache.
        """
        return self._lookup_engine()._lookup(self, name, target or _target_of_current(), _options(tier, checked, miss, timeout, priority, generic))

    def request(self, name, target=None, *, tier=None, checked=False, timeout=None, priority=0):
        """Starts a lookup in the background. Await the result, or ask it for its `result()`."""
        options = _options(tier, checked, "block", timeout, priority)
        return self._lookup_engine()._request(self, name, target or _target_of_current(), options)

    def _lookup_engine(self):
        return self.engine if self.engine is not None else default_engine()

    def __repr__(self):
        return f"<quern.Module {self.digest[:12]} of {', '.join(self)}>"

    def _repr_html_(self):
        from ._notebook import of_text

        return of_text(self.text)


class Engine(_quern.Engine):
    """Turns modules into loaded code: from memory, a directory, bundles, a remote store, or by a compile.

    `cache_dir` None takes QUERN_CACHE_DIR and the rules of XDG, "" works from memory. `bundles` are paths. `jit="forbid"` never
    compiles. Other options of docs/options.md are keyword arguments. What is not set here comes from the environment, unless
    `ignores_environment`.
    """

    __slots__ = ("__weakref__",)

    def __new__(cls, cache_dir=None, *, bundles=None, remote=None, jit=None, cache_mode=None, ignores_environment=False, **settings):
        settings = dict(settings, bundles=_paths("bundles", bundles), remote=remote, jit=jit, cache_mode=cache_mode)
        texts = {name: _setting(name, value) for name, value in settings.items() if value is not None}
        self = super().__new__(cls, cache_dir if cache_dir is None else _os.fspath(cache_dir), ignores_environment, texts)
        _engines.add(self)
        if _is_ending:  # a thread that the interpreter does not wait for
            self.close()
        return self

    def why(self, module, target=None, *, tier=None, checked=False):
        """Explains whether a lookup would hit, and how the nearest entry differs. Compiles nothing."""
        return Explanation(*self._why(module, target or _target_of_current(), _options(tier, checked)))

    def entries(self):
        """The entries of the cache directory, as a list of `CacheEntry`, in no order. [] without a directory."""
        path = self.config()["cache_dir"][0]
        return [CacheEntry(*one) for one in _quern._cache_entries(path)] if path else []

    def write_bundle(self, path, *, keys=None, sign=None, append=False):
        """Writes a bundle of the entries of the cache directory (those of `keys` alone), and returns how many it wrote.

        `sign` is the file of a secret key. `append` adds to the bundle that is at the path. Waits for entries that are not
        written yet.
        """
        if isinstance(keys, str):
            raise TypeError(f"write_bundle: keys: expected several keys, such as a list, got the text {keys!r:.60}")
        keys = None if keys is None else tuple(keys)
        for key in keys or ():
            if not isinstance(key, str):
                raise TypeError(f"write_bundle: keys: expected each as text, got {type(key).__name__}")
        self.flush()
        directory = self.config()["cache_dir"][0]
        if not directory:
            raise ValueError("write_bundle: the engine has no cache directory")
        return _quern._write_bundle(directory, _os.fspath(path), keys, None if sign is None else _os.fspath(sign), append)

    def warm(self, items, *, targets=None, tier=None, jobs=0, time_limit=60.0, on_progress=None, dry_run=False, command=None):
        """Compiles ahead, in worker processes that may crash, what the cache does not have. Returns a `WarmResult`.

        An item is a module, a pair of a module and a target, or the path of a list that QUERN_RECORD or a person wrote.
        `targets` ("cpu" by default) are those of modules that stand alone. `on_progress(done, total, item)` is called for each
        key and five times a second (`item` None); False ends the warm-up.
        """
        keys = []
        options = _options(tier)
        for item in items:
            if isinstance(item, _quern.Module):
                keys += [("key", item, target, options) for target in targets or ("cpu",)]
            elif isinstance(item, tuple):
                keys.append(("key", item[0], item[1], options))
            else:
                path = _os.fspath(item)
                with open(path, encoding="utf-8", errors="surrogateescape") as file:
                    keys.append(("list", file.read(), path, _os.path.dirname(path) or None))
        return self._warm(keys, on_progress, jobs, time_limit, dry_run, None if command is None else _os.fspath(command))

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def _repr_html_(self):
        from ._notebook import of_engine

        return of_engine(self)


def _setting(name, value):
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (str, int, float, _os.PathLike)):
        return str(value)
    raise TypeError(f"{name}: expected text, a number or a path, got {type(value).__name__}")


def _paths(name, paths):
    """Paths as one text of settings."""
    if paths is None or isinstance(paths, str):
        return paths
    texts = [_os.fspath(path) for path in paths]
    for text in texts:
        if ":" in text:
            raise ValueError(f"{name}: a path must not have a colon, got {text!r}")
    return ":".join(texts)


_engines = _weakref.WeakSet()
_is_ending = False
_default = None
_default_lock = _thread.allocate_lock()


def default_engine():
    """The engine of modules that have none of their own. It is made from the environment at its first use."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = Engine()
    return _default


# The most seconds that the end of the interpreter waits for threads inside an engine.
_PATIENCE_S = 5.0


def _close_all():
    """Ends all engines, and so their compiles: a compiler must not run while the process destroys its static objects."""
    global _is_ending
    _is_ending = True
    deadline = _time.monotonic() + _PATIENCE_S
    engines = list(_engines)
    for engine in engines:
        engine.close()
    for engine in engines:
        while not engine._has_ended and _time.monotonic() < deadline:
            _time.sleep(0.001)


_atexit.register(_close_all)
# A child of fork must not wait for a lock that a thread of its parent held.
_os.register_at_fork(after_in_child=lambda: globals().__setitem__("_default_lock", _thread.allocate_lock()))
