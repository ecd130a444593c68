# SPDX-License-Identifier: Apache-2.0
"""Devices and streams as context managers: what is current in the calling thread, and what `with` replaces.

The engine keeps the current device, and a current stream for each device, for each thread. Here is the thread's stack of what
to make current again. It holds the streams, so that none ends while it is current.
"""
import _thread

from . import _quern

_local = _thread._local()


def _entered():
    try:
        return _local.entered
    except AttributeError:
        _local.entered = []
        return _local.entered


class device:
    """A device by name, such as `"cuda:1"` or `"cpu"`. `with quern.device("cuda:1"):` makes it the thread's current one: for
    lookups without a target, calls without a tensor, and streams without a device. Its current stream stays.
    """

    __slots__ = ("name", "type", "index")

    def __init__(self, name):
        self.name = _quern._device_name(_name_of(name))
        self.type, _, index = self.name.rpartition(":")
        self.index = int(index)

    def __enter__(self):
        before = _quern._active_device()
        _quern._set_active_device(self.name)
        _entered().append((self, before, None))
        return self

    def __exit__(self, *unused):
        leave(self)

    def __eq__(self, other):
        return self.name == other.name if isinstance(other, device) else NotImplemented

    def __hash__(self):
        return hash(self.name)

    def __str__(self):
        return self.name

    def __repr__(self):
        return f"quern.device({self.name!r})"


def _name_of(given):
    """The name of a device that a caller gave: text, a device, or one of torch."""
    if isinstance(given, str):
        return given
    if isinstance(given, device):
        return given.name
    kind = getattr(given, "type", None)
    if isinstance(kind, str) and hasattr(given, "index"):
        return kind if given.index is None else f"{kind}:{given.index}"
    raise TypeError(f"device: expected a name such as 'cuda:0' or a quern.device, got {type(given).__name__}")


def current_device():
    """The calling thread's current device. A new thread has `cpu:0`."""
    return device(_quern._active_device())


def current_stream(device=None):
    """The calling thread's current stream on a device (None: on the current one)."""
    return _quern._active_stream(_quern._active_device() if device is None else _name_of(device))


def target_of_current():
    """The target of lookups that name none: the kinds of targets have the names of the types of devices."""
    now = current_device()
    return now.type if now.index == 0 else f"{now.type} -from_device={now.index}"


# ------------------------------------------------------------------------------------ what the extension calls


def _native_of(given):
    """The address of a stream: a number, or a stream of torch, CuPy or cuda.core."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    for name in ("cuda_stream", "ptr"):
        address = getattr(given, name, None)
        if isinstance(address, int):
            return address
    if hasattr(type(given), "__cuda_stream__"):
        return given.__cuda_stream__()[1]
    raise TypeError(f"native: expected the address of a stream, or a stream of torch or CuPy, got {type(given).__name__}")


def stream_arguments(device, native):
    name = _quern._active_device() if device is None else _name_of(device)
    return name, None if native is None else _native_of(native)


def as_stream(device, given):
    return given if isinstance(given, _quern.Stream) else _quern.Stream(device, _native_of(given))


def enter_stream(stream):
    before = _quern._active_device()
    stream_before = _quern._active_stream(stream.device)
    _quern._set_active_device(stream.device)
    _quern._set_active_stream(stream)
    _entered().append((stream, before, stream_before))


def leave(entered):
    stack = _entered()
    if not stack or stack[-1][0] is not entered:
        raise RuntimeError(f"{entered!r} was not the last that this thread entered: leave devices and streams in the reverse order, "
                           "in the thread that entered them")
    _, device_before, stream_before = stack[-1]
    if stream_before is not None:
        _quern._set_active_stream(stream_before)
    _quern._set_active_device(device_before)
    stack.pop()
