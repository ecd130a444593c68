# SPDX-License-Identifier: Apache-2.0
"""Programs: calls of kernels in order, with weights, symbols and a workspace. A whole model is one.

    program = quern.tvm.from_onnx("model.onnx")
    y = program(x)
    program.save("model")                  # text, plan, weights, compiled kernels
    quern.load_program("model")(x)         # without TVM, and without a compiler

A program runs on memory of the CPU. docs/python.md has the plan's members. Read next: _plan.py.
"""
import json
import os
import shutil
import sys
import tempfile
from math import prod
from operator import itemgetter

from . import Engine, Module, _tensors, errors
from ._allocate import numpy_dtype
from ._plan import ALIGNMENT, SIZES, Plan, Tensor, bindings_text, evaluate, shape_text, text_of

# Sets of values of symbols whose workspaces are kept.
_MAX_BINDINGS = 8
# Names of dtypes, those of torch and of ml_dtypes, that NumPy has no DLPack for.
_BEYOND_NUMPY = {"bfloat16": "bf16", "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2"}
_FILES = _PLAN, _TEXT, _WEIGHTS, _BUNDLE = "program.json", "kernels.qn", "weights.safetensors", "kernels.qnb"


class _Frame:
    """What one call needs with certain values of symbols. Calls at the same time have a frame each."""

    def __init__(self, program, symbols):
        import numpy

        plan = program._plan
        offsets, size = plan.workspace(symbols)
        memory = numpy.empty(size + ALIGNMENT, "u1")
        start = -memory.ctypes.data % ALIGNMENT
        shapes = [plan.shape(i, symbols) for i in range(len(plan.values))]
        self.values = [None] * len(plan.values)
        #: (number, shape, dtype) of results, which each call allocates, and (number, of, shape) of views of these and of inputs.
        self.fresh, self.views = [], []
        for i, value in enumerate(plan.values):
            shape = shapes[i]
            if value.kind == "view":
                if prod(shape) != prod(shapes[value.of]):
                    raise errors.InvalidArgument(f"{plan.name}: values[{i}] is a view {list(shape)} of {list(shapes[value.of])} with "
                                                 f"{bindings_text(symbols)}")
                if self.values[value.of] is None:
                    self.views.append((i, value.of, shape))
                else:
                    self.values[i] = self.values[value.of].reshape(shape)
            elif value.kind == "weight":
                self.values[i] = program._arrays[i]
            elif i in offsets:
                first = start + offsets[i]
                part = memory[first:first + prod(shape) * SIZES[value.dtype]]
                self.values[i] = part.view(numpy_dtype(value.dtype)).reshape(shape)
            elif value.kind == "buffer":
                self.fresh.append((i, shape, numpy_dtype(value.dtype)))
        #: Places that hold arrays of a caller during a call.
        self.borrowed = plan.inputs + [i for i, *_ in self.fresh] + [i for i, *_ in self.views]
        numbers = {}
        self.calls = []
        for call in plan.calls:
            places = []
            for kind, argument in call.arguments:
                if kind == "number":
                    number = argument if isinstance(argument, float) else evaluate(argument, symbols)
                    argument = numbers.setdefault(repr(number), len(self.values))  # 1 and 1.0, 0.0 and -0.0 are not the same
                    if argument == len(self.values):
                        self.values.append(number)
                places.append(argument)
            self.calls.append((program._functions[call.kernel], places))
        # itemgetter of one place gives the item, not a tuple.
        self.calls = [(function, itemgetter(*places) if len(places) > 1 else lambda values, p=places: [values[i] for i in p])
                      for function, places in self.calls]


class Program:
    """A model: the text of its kernels, a plan of calls, and weights.

    `Program(text, plan, weights, *, target="cpu", tier=None, engine=None)`: `weights` are arrays of NumPy by name. A plan that
    is refused raises `InvalidArgument`. The kernels compile at the first call, or by `compile()`.

    `program(x, y)` takes the inputs in order or by name, and returns new arrays: those of torch if the first input is one, else
    of NumPy. Threads may share a program.
    """

    def __init__(self, text, plan, weights, *, target="cpu", tier=None, engine=None):
        self._plan = Plan(plan)
        self.module = Module(text, engine=engine)
        self.target = target
        self._tier = tier
        if plan.get("digest", self.module.digest) != self.module.digest:
            raise errors.InvalidArgument(f"{self.name}: the plan is for a module of digest {plan['digest']!r:.60}, not {self.module.digest}")
        unknown = [call.kernel for call in self._plan.calls if call.kernel not in self.module]
        if unknown:
            raise errors.InvalidArgument(f"{self.name}: the module has no function {unknown[0]!r}")
        self._arrays = {i: self._weight(self._plan.values[i], weights, self._plan.shape(i, {})) for i in self._plan.weights}
        self._names = [self._plan.values[i].name for i in self._plan.inputs]
        self._functions = None
        self._frames = {}

    def _weight(self, value, weights, shape):
        import numpy

        if value.name not in weights:
            raise errors.InvalidArgument(f"{self.name}: there is no weight {value.name!r}")
        array = numpy.asarray(weights[value.name], order="C").view()
        if _tensors.dtype_of(array) != value.dtype or array.shape != shape:
            raise errors.InvalidArgument(f"{self.name}: weight {value.name!r}: expected {value.dtype}{shape_text(shape)}, got "
                                         f"{_kind_text(array)}")
        array.flags.writeable = False
        return array

    @property
    def name(self):
        """The name of the function that the program was made from."""
        return self._plan.name

    @property
    def plan(self):
        """The plan as a dictionary, which is not to be changed."""
        return self._plan.data

    @property
    def symbols(self):
        """Names of the symbols, which the shapes of the inputs bind."""
        return tuple(self._plan.symbols)

    @property
    def inputs(self):
        """The inputs in order: name, dtype and shape."""
        values = [self._plan.values[i] for i in self._plan.inputs]
        return tuple(Tensor(one.name, one.dtype, tuple(e if isinstance(e, int) else text_of(e) for e in one.shape)) for one in values)

    @property
    def weights(self):
        """The weights by name, read-only."""
        return {self._plan.values[i].name: array for i, array in self._arrays.items()}

    def workspace_bytes(self, **symbols):
        """The bytes of memory that calls of these values of symbols share, without inputs, weights and results."""
        if set(symbols) != set(self.symbols):
            raise TypeError(f"{self.name}: expected the symbols {', '.join(self.symbols) or '(none)'}, got {', '.join(symbols) or '(none)'}")
        return self._plan.workspace(symbols)[1]

    def compile(self):
        """Looks up the code of the kernels, so that the first call does not."""
        if self._functions is None:
            names = {call.kernel for call in self._plan.calls}
            self._functions = {name: self.module.compile(name, self.target, tier=self._tier) for name in sorted(names)}

    def __call__(self, *args, **names):
        given = self._given(args, names) if names or len(args) != len(self._names) else args
        arrays = [self._array(i, value) for i, value in zip(self._plan.inputs, given)]
        symbols = self._bind(arrays)
        if self._functions is None:
            self.compile()
        key = tuple(symbols.values())
        ready = self._frames.get(key)
        if ready is None:
            # Of two threads, one sees the other's list.
            ready = self._frames.setdefault(key, [])
            if len(self._frames) > _MAX_BINDINGS:
                self._frames.pop(list(self._frames)[0], None)
        try:
            frame = ready.pop()
        except IndexError:
            frame = _Frame(self, symbols)
        results = self._run(frame, arrays)
        ready.append(frame)
        return _like_torch(results) if given and _is_torch(given[0]) else results

    def _run(self, frame, arrays):
        import numpy

        values = frame.values
        for i, array in zip(self._plan.inputs, arrays):
            values[i] = array
        for i, shape, dtype in frame.fresh:
            values[i] = numpy.empty(shape, dtype)
        for i, of, shape in frame.views:
            values[i] = values[of].reshape(shape)
        for function, choose in frame.calls:
            function(*choose(values))
        # What a caller or the next call could change is copied.
        kinds = self._plan.values
        flat = {i: values[i] if kinds[self._plan.base(i)].kind == "buffer" else values[i].copy() for i in self._plan.flat_results}
        for i in frame.borrowed:
            values[i] = None
        return _build(self._plan.results, flat)

    def _given(self, args, names):
        if len(args) > len(self._names):
            raise TypeError(f"{self.name}: expected {len(self._names)} inputs ({', '.join(self._names)}), got {len(args)}")
        given = dict(zip(self._names, args))
        for name, value in names.items():
            if name not in self._names or name in given:
                raise TypeError(f"{self.name}: {'input given twice' if name in given else 'there is no input'} {name!r}")
            given[name] = value
        missing = [name for name in self._names if name not in given]
        if missing:
            raise TypeError(f"{self.name}: expected {len(self._names)} inputs, {missing[0]!r} is missing")
        return [given[name] for name in self._names]

    def _array(self, index, value):
        """An input as a row-major array of NumPy that no kernel may write to. Only strided memory is copied."""
        import numpy

        expected = self._plan.values[index]
        if isinstance(value, numpy.ndarray):
            array = value
        else:
            try:
                array = _from_dlpack(value) if hasattr(value, "__dlpack__") else numpy.asarray(memoryview(value))
            except (TypeError, ValueError, RuntimeError, BufferError) as error:
                kind = f"{type(value).__module__}.{type(value).__qualname__}"
                raise errors.ArgumentTypeError(f"{self.name}: input {expected.name!r}: NumPy does not take the {kind}: {error}") from None
        if _tensors.dtype_of(array) != expected.dtype or array.ndim != len(expected.shape):
            raise errors.ArgumentTypeError(f"{self.name}: input {expected.name!r}: expected {expected.dtype}{shape_text(expected.shape)}, got "
                                           f"{_kind_text(array)}")
        array = array.view() if array.flags.c_contiguous else numpy.ascontiguousarray(array)
        array.flags.writeable = False
        return array

    def _bind(self, arrays):
        symbols = {name: arrays[number].shape[axis] for name, (number, axis) in self._plan.bound_by.items()}
        for number, axis, extent in self._plan.checks:
            wanted = evaluate(extent, symbols)
            if arrays[number].shape[axis] != wanted:
                says = f"{text_of(extent)} = {wanted} with {bindings_text(symbols)}" if symbols else wanted
                raise errors.ArgumentValueError(f"{self.name}: input {self._names[number]!r}: axis {axis} has {arrays[number].shape[axis]} "
                                                f"elements, expected {says}")
        return symbols

    def save(self, folder, *, targets=None):
        """Writes the program into a new folder: plan, text, weights, and a bundle with its code for the targets.

        `targets` are those of the program by default. The folder appears whole or not at all; one that is there must be empty.
        """
        folder = os.path.abspath(os.fspath(folder))
        if os.path.lexists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
            raise FileExistsError(f"{folder} is there, and no empty folder")
        made = f"{folder}.{os.getpid()}.tmp"
        os.mkdir(made)
        try:
            plan = dict(self._plan.data, digest=self.module.digest)
            for name, text in ((_PLAN, json.dumps(plan, indent=1) + "\n"), (_TEXT, self.module.text)):
                with open(os.path.join(made, name), "w", encoding="utf-8") as file:
                    file.write(text)
            _tensors.write(os.path.join(made, _WEIGHTS), self.weights)
            if self._plan.calls:
                self._write_bundle(os.path.join(made, _BUNDLE), (self.target,) if targets is None else targets)
            os.rename(made, folder)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise

    def _write_bundle(self, path, targets):
        cache = tempfile.mkdtemp(prefix="quern-save-")
        try:
            # A refresh compiles whatever other caches have.
            with Engine(cache, cache_mode="refresh", remote="", bundles="", jit="allow") as engine:
                module = Module(self.module.text, engine=engine)
                for target in targets:
                    module.compile(self._plan.calls[0].kernel, target, tier=self._tier)
                engine.write_bundle(path)
        finally:
            shutil.rmtree(cache, ignore_errors=True)

    def __repr__(self):
        inputs = ", ".join(f"{one.name}: {one.dtype}{shape_text(one.shape)}" for one in self.inputs)
        return f"<quern.Program {self.name}({inputs}) of {len(self._plan.calls)} calls>"


def load_program(folder, *, target="cpu", tier=None, engine=None, jit=None):
    """Reads a program that `Program.save` wrote. Weights are mapped, not read.

    Without `engine` it has one of its own, which finds the code in the folder's bundle. `jit="forbid"` never compiles. Files
    that are damaged raise `DataLoss`.
    """
    folder = os.fspath(folder)
    plan, text, weights, bundle = (os.path.join(folder, name) for name in _FILES)
    try:
        with open(plan, encoding="utf-8") as file:
            data = json.load(file)
        with open(text, encoding="utf-8", newline="") as file:
            source = file.read()
    except (ValueError, RecursionError) as error:
        raise errors.DataLoss(f"{folder}: {_PLAN} or {_TEXT} is damaged: {error}") from None
    arrays = _tensors.read(weights)
    if engine is None:
        engine = Engine(bundles=[bundle] if os.path.exists(bundle) else [], jit=jit)
    elif jit is not None:
        raise TypeError("jit goes with an engine of the program's own; the engine that was passed has its own option")
    try:
        return Program(source, data, arrays, target=target, tier=tier, engine=engine)
    except (errors.InvalidArgument, errors.ModuleError) as error:
        raise errors.DataLoss(f"{folder}: {error}") from error


def _kind_text(array):
    return f"{_tensors.dtype_of(array) or array.dtype}{shape_text(array.shape)}"


def _build(result, flat):
    return flat[result] if isinstance(result, int) else tuple(_build(part, flat) for part in result)


def _is_torch(value):
    return type(value).__module__.partition(".")[0] == "torch"


def _from_dlpack(tensor):
    """An array of NumPy on a tensor's memory. NumPy takes no bf16 by DLPack: torch hands it over as integers."""
    import numpy

    name = str(tensor.dtype).partition(".")[2] if _is_torch(tensor) else ""
    if name not in _BEYOND_NUMPY:
        return numpy.from_dlpack(tensor)
    carrier = getattr(sys.modules["torch"], f"uint{8 * tensor.element_size()}")
    return numpy.from_dlpack(tensor.view(carrier)).view(numpy_dtype(_BEYOND_NUMPY[name]))


def _like_torch(results):
    """Results as tensors of torch on the same memory."""
    if isinstance(results, tuple):
        return tuple(_like_torch(part) for part in results)
    torch, name = sys.modules["torch"], results.dtype.name
    if name not in _BEYOND_NUMPY:
        return torch.from_dlpack(results)
    return torch.from_dlpack(results.view(f"u{results.dtype.itemsize}")).view(getattr(torch, name))
