# SPDX-License-Identifier: Apache-2.0
"""The libraries that bench/peers/run compares: how each is opened, and a function for each kind of work.

A *sample* is a function of a count that does the work so often and returns the nanoseconds. Work in C
libraries is timed in helper.c; XLA and ONNX Runtime are called from Python, as their users do, with
arguments that are already theirs. A library that cannot be opened is in `missing`, with the reason.
"""

import ctypes
import glob
import os
import time

import numpy as np

I64, P, F = ctypes.c_int64, ctypes.c_void_p, ctypes.c_float
missing = {}


def address(array):
    return ctypes.c_void_p(array.ctypes.data)


def attempt(name, opener, *args):
    try:
        return opener(*args)
    except Exception as error:  # whatever a library raises is its reason to be missing
        missing[name] = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
        return None


class Dtype(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", P), ("device", Device), ("ndim", ctypes.c_int32), ("dtype", Dtype), ("shape", P),
                ("strides", P), ("byte_offset", ctypes.c_uint64)]


class Value(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("padding", ctypes.c_uint32), ("tensor", P)]


KINDS = {"f": 2, "i": 0, "u": 1}
VALUE_TENSOR = 7
CPU = 1


def dtype_of(array):
    if array.dtype.name == "bfloat16":
        return Dtype(4, 16, 1)
    return Dtype(KINDS[array.dtype.kind], array.dtype.itemsize * 8, 1)


class Quern:
    def __init__(self, build, threads, target):
        self.lib = ctypes.CDLL(os.path.join(build, "lib", "libquern.so"))
        lib = self.lib
        for name in ("qn_engine_create", "qn_module_parse", "qn_target_parse", "qn_engine_function"):
            getattr(lib, name).restype = P
        lib.qn_status_message.restype = ctypes.c_char_p
        lib.qn_status_message.argtypes = [P]
        lib.qn_cpu_set_core_budget(threads)
        self.engine, self.target, self.modules = P(), P(), {}
        self.must(lib.qn_engine_create(None, ctypes.byref(self.engine)))
        self.must(lib.qn_target_parse(target.encode(), ctypes.byref(self.target)))

    def must(self, status):
        if status:
            raise RuntimeError(self.lib.qn_status_message(status).decode())

    def function(self, text):
        if text not in self.modules:
            module, function, bytes_ = P(), P(), text.encode()
            self.must(self.lib.qn_module_parse(bytes_, I64(len(bytes_)), None, ctypes.byref(module)))
            self.lib.qn_module_function_name.restype = ctypes.c_char_p
            self.lib.qn_module_function_name.argtypes = [P, ctypes.c_size_t]
            name = self.lib.qn_module_function_name(module, 0)
            self.must(self.lib.qn_engine_function(self.engine, module, self.target, name, None, None,
                                                  ctypes.byref(function)))
            self.modules[text] = function
        return self.modules[text]

    def sample(self, helper, text, arrays):
        function = self.function(text)
        tensors = (Tensor * len(arrays))()
        values = (Value * len(arrays))()
        shapes = [(I64 * max(a.ndim, 1))(*a.shape) for a in arrays]
        for i, array in enumerate(arrays):
            tensors[i] = Tensor(array.ctypes.data, Device(CPU, 0), array.ndim, dtype_of(array),
                                ctypes.cast(shapes[i], P), None, 0)
            values[i] = Value(VALUE_TENSOR, 0, ctypes.addressof(tensors[i]))
        kept = (tensors, values, shapes, arrays)
        call = ctypes.cast(self.lib.qn_function_call, P)

        def run(count, kept=kept):
            spent = helper.helper_quern(call, function, values, I64(len(arrays)), I64(count))
            if spent < 0:
                raise RuntimeError("a call failed")
            return spent
        return run


def timed(work):
    """A sample of a Python function."""
    def run(count):
        begin = time.perf_counter_ns()
        for _ in range(count):
            work()
        return time.perf_counter_ns() - begin
    return run


class Peers:
    """Opens all peers for `threads` threads. The environment and the affinity are set before."""

    def __init__(self, directory, threads):
        self.threads = threads
        lib = os.path.join(directory, "usr/lib/x86_64-linux-gnu")
        self.helper = ctypes.CDLL(os.path.join(directory, "helper.so"))
        for name in ("quern", "blas", "dnnl_sgemm", "dnnl_i8", "dnnl_run", "xsmm"):
            if hasattr(self.helper, "helper_" + name):
                getattr(self.helper, "helper_" + name).restype = I64
        self.helper.helper_peak.restype = ctypes.c_double
        self.blas = []  # name, address of cblas_sgemm, whether its integers have 64 bits
        attempt("openblas", self.open_openblas, lib)
        attempt("numpy", self.open_numpy)
        self.jax = attempt("xla", self.open_jax)
        self.ort = attempt("onnxruntime", self.open_ort)
        if not hasattr(self.helper, "helper_dnnl_sgemm"):
            missing["onednn"] = "not in this folder (libdnnl-dev)"
        else:
            self.helper.helper_dnnl_bf16.restype = P
        if not hasattr(self.helper, "helper_xsmm"):
            missing["libxsmm"] = "not in this folder (libxsmm-dev)"

    def open_openblas(self, lib):
        paths = glob.glob(os.path.join(lib, "openblas-pthread", "libopenblas.so.0"))
        library = ctypes.CDLL(paths[0] if paths else "libopenblas.so.0")
        library.openblas_set_num_threads(self.threads)
        self.blas.append(("openblas", ctypes.cast(library.cblas_sgemm, P), 0))

    def open_numpy(self):
        root = os.path.join(os.path.dirname(np.__file__), os.pardir, "numpy.libs")
        library = ctypes.CDLL(glob.glob(os.path.join(root, "libscipy_openblas64_*.so"))[0])
        library.scipy_openblas_set_num_threads64_(self.threads)
        self.blas.append(("numpy", ctypes.cast(library.scipy_cblas_sgemm64_, P), 1))

    def open_jax(self):
        import jax
        jax.config.update("jax_platforms", "cpu")
        jax.devices()
        return jax

    def open_ort(self):
        import onnxruntime
        return onnxruntime

    # ---- samples by library

    def xla(self, function, arrays):
        if not self.jax:
            return None
        held = [self.jax.device_put(array) for array in arrays]
        compiled = self.jax.jit(function).lower(*held).compile()
        return timed(lambda: compiled(*held).block_until_ready())

    def onnx(self, nodes, inputs, weights, output):
        """A graph of (operator, inputs, output, attributes) with constant weights."""
        if not self.ort:
            return None
        import onnx
        from onnx import helper as h, numpy_helper as nh
        kind = lambda array: h.np_dtype_to_tensor_dtype(array.dtype)
        graph = h.make_graph(
            [h.make_node(op, ins, [out], **attributes) for op, ins, out, attributes in nodes], "g",
            [h.make_tensor_value_info(name, kind(array), array.shape) for name, array in inputs.items()],
            [h.make_tensor_value_info(output[0], kind(output[1]), output[1].shape)],
            [nh.from_array(np.ascontiguousarray(array), name) for name, array in weights.items()])
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9)
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 4
        session = self.ort.InferenceSession(model.SerializeToString(), options,
                                            providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        binding.bind_output(output[0])
        return timed(lambda: session.run_with_iobinding(binding))

    def sgemm(self, n, m, k, is_transposed, a, b, c):
        """Samples by name of all libraries in C."""
        sizes = (I64(n), I64(m), I64(k))
        arrays = (address(a), address(b), address(c))
        samples = {}
        for name, symbol, is_wide in self.blas:
            samples[name] = (lambda count, s=symbol, w=is_wide, kept=(a, b, c): self.helper.helper_blas(
                s, w, is_transposed, *sizes, *arrays, I64(count)))
        if "onednn" not in missing:
            samples["onednn"] = lambda count: self.helper.helper_dnnl_sgemm(
                is_transposed, *sizes, *arrays, I64(count))
        if "libxsmm" not in missing and not is_transposed and n * m * k <= 64**3 and self.threads == 1:
            samples["libxsmm"] = lambda count: self.helper.helper_xsmm(*sizes, *arrays, I64(count))
        return samples

    def small(self, kind, n, m, k, a, b, c):
        """The same for bf16 and i8; the second operand is [m, k]."""
        if "onednn" in missing:
            return {}
        sizes = (I64(n), I64(m), I64(k))
        arrays = (address(a), address(b), address(c))
        if kind != "bf16":
            return {"onednn": lambda count, kept=(a, b, c): self.helper.helper_dnnl_i8(
                int(kind[0] == "u"), 1, *sizes, *arrays, I64(count))}
        made = P(self.helper.helper_dnnl_bf16(1, *sizes, *arrays))
        if not made:
            return {}
        return {"onednn": lambda count, kept=(a, b, c): self.helper.helper_dnnl_run(made, I64(count))}
