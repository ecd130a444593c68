# SPDX-License-Identifier: Apache-2.0
"""The work that bench/peers/run compares. A case has a name, a group, its floating-point operations and
bytes, and `samples(quern, peers)`: a function for each library that can do it, and a check of quern's result.
"""

import math

import numpy as np


def numbers(*shape, dtype=np.float32, seed=1):
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return values.astype(dtype)


class Case:
    def __init__(self, group, name, flops, make, bytes_=0):
        self.group, self.name, self.flops, self.make, self.bytes = group, name, flops, make, bytes_


def close(actual, expected, tolerance):
    scale = np.abs(expected).max() + 1e-30
    return float(np.abs(actual.astype(np.float64) - expected).max() / scale) <= tolerance


# ---- products. n x m x k; "t": the second operand is stored as a model file has it, [m, k].

SHAPES = {
    "table": ["1 1536 384", "7 1152 384", "12 384 1536", "128 1536 384", "512 512 512", "1024 1024 1024",
              "1000 999 1001"],
    "squares": ["64 64 64", "128 128 128", "256 256 256", "2048 2048 2048"],
    "minilm": ["1 384 384 t", "1 1536 384 t", "7 1152 384 t", "16 384 384 t", "33 1536 384 t", "64 384 1536 t",
               "128 1152 384 t", "128 384 1536 t", "512 1536 384 t", "512 384 1536 t"],
    "bert": ["128 768 768 t", "128 2304 768 t", "128 3072 768 t", "128 768 3072 t", "384 3072 768 t"],
    "llama": ["1 4096 4096 t", "1 11008 4096 t", "1 4096 11008 t", "4 4096 4096 t", "128 4096 4096 t",
              "128 11008 4096 t"],
    "odd": ["1 1 1", "3 3 3", "17 17 17", "1 17 3", "31 37 41", "97 101 103", "251 257 263", "3 1000 17",
            "1000 3 17", "1000 17 1", "17 1000 1000", "1000 1 1000", "1000 1000 3"],
}

PRODUCT = {
    False: "func product(a: f32[n, k], b: f32[k, m], out c: f32[n, m]) {\n"
           "  parallel i in 0..n { parallel j in 0..m { c[i, j] = sum p in 0..k { a[i, p] * b[p, j] }; } }\n}\n",
    True: "func product(a: f32[n, k], b: f32[m, k], out c: f32[n, m]) {\n"
          "  parallel i in 0..n { parallel j in 0..m { c[i, j] = sum p in 0..k { a[i, p] * b[j, p] }; } }\n}\n",
}


def product(n, m, k, is_transposed):
    def make(quern, peers):
        a, c = numbers(n, k), np.zeros((n, m), np.float32)
        b = numbers(m, k, seed=2) if is_transposed else numbers(k, m, seed=2)
        samples = {"quern": quern.sample(peers.helper, PRODUCT[is_transposed], [a, b, c])}
        samples["quern"](1)
        straight = b.T if is_transposed else b
        assert close(c, a.astype(np.float64) @ straight, 1e-5), "quern's result is wrong"
        samples.update(peers.sgemm(n, m, k, is_transposed, a, b, np.zeros_like(c)))
        if is_transposed:
            samples["xla"] = peers.xla(lambda x, y: peers.jax.lax.dot_general(x, y, (((1,), (1,)), ((), ()))), [a, b])
        else:
            samples["xla"] = peers.xla(lambda x, y: x @ y, [a, b])
        samples["onnxruntime"] = peers.onnx([("MatMul", ["a", "b"], "c", {})], {"a": a}, {"b": straight}, ("c", c))
        return samples
    name = f"{n} x {m} x {k}" + (" t" if is_transposed else "")
    return Case("product", name, 2 * n * m * k, make)


# bf16 and i8, over quern's f32 in the same run.
SMALL = {
    "bf16": ("func product(a: bf16[n, k], b: bf16[m, k], out c: f32[n, m]) {\n  parallel i in 0..n { parallel j in 0..m "
             "{ c[i, j] = sum p in 0..k { f32(a[i, p]) * f32(b[j, p]) }; } }\n}\n"),
    "i8": ("func product(a: i8[n, k], b: i8[m, k], out c: i32[n, m]) {\n  parallel i in 0..n { parallel j in 0..m "
           "{ c[i, j] = sum p in 0..k { i32(a[i, p]) * i32(b[j, p]) }; } }\n}\n"),
    "u8 x i8": ("func product(a: u8[n, k], b: i8[m, k], out c: i32[n, m]) {\n  parallel i in 0..n { parallel j in 0..m "
                "{ c[i, j] = sum p in 0..k { i32(a[i, p]) * i32(b[j, p]) }; } }\n}\n"),
}


def small(kind, n, m, k):
    def make(quern, peers):
        random = np.random.default_rng(3)
        if kind == "bf16":
            import ml_dtypes
            a, b = numbers(n, k).astype(ml_dtypes.bfloat16), numbers(m, k, seed=2).astype(ml_dtypes.bfloat16)
            c, tolerance = np.zeros((n, m), np.float32), 1e-4
        else:
            a = random.integers(0, 127, (n, k)).astype(np.uint8 if kind[0] == "u" else np.int8)
            b = random.integers(-127, 127, (m, k)).astype(np.int8)
            c, tolerance = np.zeros((n, m), np.int32), 0
        samples = {"quern": quern.sample(peers.helper, SMALL[kind], [a, b, c])}
        samples["quern"](1)
        assert close(c, a.astype(np.float64) @ b.astype(np.float64).T, tolerance), "quern's result is wrong"
        x, y = numbers(n, k), numbers(m, k, seed=2)
        samples["quern f32"] = quern.sample(peers.helper, PRODUCT[True], [x, y, np.zeros((n, m), np.float32)])
        wide = np.float32 if kind == "bf16" else np.int32
        samples["xla"] = peers.xla(lambda p, q: peers.jax.lax.dot_general(
            p, q, (((1,), (1,)), ((), ())), preferred_element_type=wide), [a, b if kind[0] != "u" else b.astype(np.int8)]) \
            if kind != "u8 x i8" else None
        samples.update(peers.small(kind, n, m, k, a, b, np.zeros_like(c)))
        if kind != "bf16":
            samples["onnxruntime"] = peers.onnx([("MatMulInteger", ["a", "b"], "c", {})], {"a": a}, {"b": b.T}, ("c", c))
        return samples
    return Case("small", f"{kind} {n} x {m} x {k} t", 2 * n * m * k, make)


# ---- convolutions of ResNet-50: channels, filters, window, stride, size of the input

LAYERS = ["3 64 7 2 224", "64 64 1 1 56", "64 64 3 1 56", "64 256 1 1 56", "128 128 3 1 28", "128 128 3 2 56",
          "256 512 1 2 56", "256 256 3 1 14", "1024 256 1 1 14", "512 512 3 1 7", "512 2048 1 1 7"]


def convolution(c, o, r, stride, size):
    pad = r // 2
    out = (size + 2 * pad - r) // stride + 1
    text = f"""func convolve(x: f32[1, {c}, {size}, {size}], w: f32[{o}, {c}, {r}, {r}], out y: f32[1, {o}, {out}, {out}]) {{
  parallel f in 0..{o} {{ parallel i in 0..{out} {{ parallel j in 0..{out} {{
    y[0, f, i, j] = sum c in 0..{c} {{ sum u in 0..{r} {{ sum v in 0..{r} {{
      let h = i * {stride} + u - {pad};
      let g = j * {stride} + v - {pad};
      (h >= 0 && h < {size} && g >= 0 && g < {size} ? x[0, c, h, g] : 0.0) * w[f, c, u, v]
    }} }} }};
  }} }} }}
}}
"""

    def make(quern, peers):
        x, w, y = numbers(1, c, size, size), numbers(o, c, r, r, seed=2), np.zeros((1, o, out, out), np.float32)
        samples = {"quern": quern.sample(peers.helper, text, [x, w, y])}
        samples["quern"](1)
        padded = np.pad(x[0].astype(np.float64), ((0, 0), (pad, pad), (pad, pad)))
        views = np.lib.stride_tricks.sliding_window_view(padded, (r, r), (1, 2))[:, ::stride, ::stride]
        assert close(y[0], np.einsum("chwuv,fcuv->fhw", views, w, optimize=True), 1e-5), "quern's result is wrong"
        samples["xla"] = peers.xla(lambda p, q: peers.jax.lax.conv_general_dilated(
            p, q, (stride, stride), [(pad, pad), (pad, pad)]), [x, w])
        samples["onnxruntime"] = peers.onnx(
            [("Conv", ["x", "w"], "y", {"pads": [pad] * 4, "strides": [stride] * 2})], {"x": x}, {"w": w}, ("y", y))
        return samples
    return Case("convolution", f"{c} -> {o}, {r} x {r}, stride {stride}, {size} x {size}", 2 * c * o * r * r * out * out, make)


# ---- other loops, against XLA

def loops(name, text, arrays, reference, xla, flops, tolerance=1e-4):
    """`arrays`: a function that gives the inputs; `reference` the result of f64; `xla(jnp, lax, ...)` the same there."""
    def make(quern, peers):
        inputs = arrays()
        expected = reference(*[i.astype(np.float64) if i.dtype.kind == "f" else i for i in inputs])
        out = np.zeros(expected.shape, np.float32)
        samples = {"quern": quern.sample(peers.helper, text, inputs + [out])}
        samples["quern"](1)
        assert close(out, expected, tolerance), "quern's result is wrong"
        if peers.jax:
            samples["xla"] = peers.xla(lambda *a: xla(peers.jax, *a), inputs)
        return samples
    total = sum(a.nbytes for a in arrays())
    return Case("loops", name, flops, make, total)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(heads, length, depth):
    text = f"""func attention(q: f32[{heads}, n, {depth}], k: f32[{heads}, n, {depth}], v: f32[{heads}, n, {depth}], out y: f32[{heads}, n, {depth}]) {{
  parallel h in 0..{heads} {{ parallel i in 0..n {{
    alloc p: f32[{length}] in local;
    for j in 0..n {{ p[j] = (sum d in 0..{depth} {{ q[h, i, d] * k[h, j, d] }}) * {depth ** -0.5}; }}
    let top = max j in 0..n {{ p[j] }};
    for j in 0..n {{ p[j] = exp(p[j] - top); }}
    let total = sum j in 0..n {{ p[j] }};
    for d in 0..{depth} {{ y[h, i, d] = (sum j in 0..n {{ p[j] * v[h, j, d] }}) / total; }}
  }} }}
}}
"""
    return loops(f"attention of {heads} heads, {length} x {depth}", text,
                 lambda: [numbers(heads, length, depth, seed=s) for s in (1, 2, 3)],
                 lambda q, k, v: softmax(q @ k.transpose(0, 2, 1) * depth ** -0.5) @ v,
                 lambda jax, q, k, v: jax.nn.softmax(q @ k.transpose(0, 2, 1) * depth ** -0.5) @ v,
                 4 * heads * length * length * depth)


def causal_attention(heads, length, depth):
    text = f"""func attention(q: f32[{heads}, n, {depth}], k: f32[{heads}, n, {depth}], v: f32[{heads}, n, {depth}], out y: f32[{heads}, n, {depth}]) {{
  parallel h in 0..{heads} {{ parallel i in 0..n {{
    alloc p: f32[{length}] in local;
    for j in 0..i + 1 {{ p[j] = (sum d in 0..{depth} {{ q[h, i, d] * k[h, j, d] }}) * {depth ** -0.5}; }}
    let top = max j in 0..i + 1 {{ p[j] }};
    for j in 0..i + 1 {{ p[j] = exp(p[j] - top); }}
    let total = sum j in 0..i + 1 {{ p[j] }};
    for d in 0..{depth} {{ y[h, i, d] = (sum j in 0..i + 1 {{ p[j] * v[h, j, d] }}) / total; }}
  }} }}
}}
"""
    mask = np.where(np.tri(length, dtype=bool), np.float32(0), np.float32(-np.inf))
    return loops(f"causal attention of {heads} heads, {length} x {depth}", text,
                 lambda: [numbers(heads, length, depth, seed=s) for s in (1, 2, 3)],
                 lambda q, k, v: softmax(q @ k.transpose(0, 2, 1) * depth ** -0.5 + mask) @ v,
                 lambda jax, q, k, v: jax.nn.softmax(q @ k.transpose(0, 2, 1) * depth ** -0.5 + mask) @ v,
                 2 * heads * length * (length + 1) * depth)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x ** 3)))


def erf_gelu(x):
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return 0.5 * x * (1 + erf(x * 0.5 ** 0.5))


def all_loops():
    matrix = lambda: [numbers(2048, 1024)]
    yield attention(12, 128, 32)
    yield attention(12, 512, 64)
    yield causal_attention(12, 128, 32)
    yield causal_attention(12, 512, 64)
    yield loops("sum of columns, 2048 x 1024", "func f(x: f32[n, m], out y: f32[m]) {\n  parallel j in 0..m { y[j] = sum i in 0..n { x[i, j] }; }\n}\n",
                matrix, lambda x: x.sum(0), lambda jax, x: x.sum(0), 2048 * 1024)
    yield loops("sum of rows, 2048 x 1024", "func f(x: f32[n, m], out y: f32[n]) {\n  parallel i in 0..n { y[i] = sum j in 0..m { x[i, j] }; }\n}\n",
                matrix, lambda x: x.sum(1), lambda jax, x: x.sum(1), 2048 * 1024)
    yield loops("sum of all, 2048 x 1024", "func f(x: f32[n, m], out y: f32[1]) {\n  parallel i in 0..1 { y[i] = sum p in 0..n { sum j in 0..m { x[p, j] } }; }\n}\n",
                matrix, lambda x: x.sum().reshape(1), lambda jax, x: x.sum().reshape(1), 2048 * 1024, 1e-2)
    yield loops("transpose, 2048 x 1024", "func f(x: f32[n, m], out y: f32[m, n]) {\n  parallel i in 0..n { parallel j in 0..m { y[j, i] = x[i, j]; } }\n}\n",
                matrix, lambda x: x.T, lambda jax, x: x.T, 0)
    yield loops("transpose, 16 x 128 x 12 x 64 to 16 x 12 x 128 x 64",
                "func f(x: f32[b, n, h, d], out y: f32[b, h, n, d]) {\n  parallel i in 0..b { parallel j in 0..h { parallel p in 0..n { parallel q in 0..d { y[i, j, p, q] = x[i, p, j, q]; } } } }\n}\n",
                lambda: [numbers(16, 128, 12, 64)], lambda x: x.transpose(0, 2, 1, 3), lambda jax, x: x.transpose(0, 2, 1, 3), 0)
    yield loops("softmax, 2048 x 1024", "func f(x: f32[n, m], out y: f32[n, m]) {\n  parallel i in 0..n {\n    let top = max j in 0..m { x[i, j] };\n    let total = sum j in 0..m { exp(x[i, j] - top) };\n    for j in 0..m { y[i, j] = exp(x[i, j] - top) / total; }\n  }\n}\n",
                matrix, softmax, lambda jax, x: jax.nn.softmax(x), 4 * 2048 * 1024)
    yield loops("layer norm, 2048 x 1024", "func f(x: f32[n, m], out y: f32[n, m]) {\n  parallel i in 0..n {\n    let mean = (sum j in 0..m { x[i, j] }) / f32(m);\n    let spread = (sum j in 0..m { let d = x[i, j] - mean; d * d }) / f32(m);\n    let scale = 1.0 / sqrt(spread + 0.00001);\n    for j in 0..m { y[i, j] = (x[i, j] - mean) * scale; }\n  }\n}\n",
                matrix, lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
                lambda jax, x: (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5), 8 * 2048 * 1024)
    yield loops("gelu, 2048 x 1024", "func f(x: f32[n, m], out y: f32[n, m]) {\n  parallel i in 0..n { for j in 0..m {\n    let v = x[i, j];\n    y[i, j] = 0.5 * v * (1.0 + tanh(0.7978845608 * (v + 0.044715 * v * v * v)));\n  } }\n}\n",
                matrix, gelu, lambda jax, x: jax.nn.gelu(x, approximate=True), 8 * 2048 * 1024)
    yield loops("gelu with erf, 2048 x 1024", "func f(x: f32[n, m], out y: f32[n, m]) {\n  parallel i in 0..n { for j in 0..m {\n    let v = x[i, j];\n    y[i, j] = 0.5 * v * (1.0 + erf(v * 0.7071067811865476));\n  } }\n}\n",
                matrix, erf_gelu, lambda jax, x: jax.nn.gelu(x, approximate=False), 8 * 2048 * 1024)
    yield loops("chain of seven operations, 2048 x 1024", "func f(x: f32[n, m], z: f32[n, m], out y: f32[n, m]) {\n  parallel i in 0..n { for j in 0..m {\n    let v = x[i, j] * 2.0 + z[i, j];\n    y[i, j] = max(v, 0.0) * z[i, j] - x[i, j] / (v * v + 1.0);\n  } }\n}\n",
                lambda: [numbers(2048, 1024), numbers(2048, 1024, seed=2)],
                lambda x, z: np.maximum(x * 2 + z, 0) * z - x / ((x * 2 + z) ** 2 + 1),
                lambda jax, x, z: jax.numpy.maximum(x * 2 + z, 0) * z - x / ((x * 2 + z) * (x * 2 + z) + 1), 7 * 2048 * 1024)


def all_cases():
    for texts in SHAPES.values():
        for text in texts:
            parts = text.split()
            yield product(*map(int, parts[:3]), len(parts) > 3)
    for text in LAYERS:
        yield convolution(*map(int, text.split()))
    for kind in SMALL:
        for shape in ((512, 512, 512), (128, 3072, 768), (1, 4096, 4096)):
            yield small(kind, *shape)
    yield from all_loops()
