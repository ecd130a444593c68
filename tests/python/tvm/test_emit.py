# SPDX-License-Identifier: Apache-2.0
"""The texts that the importer of TVM programs writes, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import tempfile
import unittest
from typing import Any

from nodes import (
    StandIns,
    axis,
    binary,
    block,
    buffer,
    call,
    func,
    lit,
    load,
    loop,
    make,
    seq,
    store,
    threads,
    var,
)  # isort: skip
from quern.tvm.emit import Function
from quern.tvm.refuse import Refused

COMMAND = os.environ.get("QUERN_COMMAND", "")


class Emit(unittest.TestCase):
    """Every text that is expected here is also verified by ``quern check``."""

    maxDiff = None

    def text(self, function: Any) -> str:
        written = Function(StandIns(), function, "main").text()
        if COMMAND:
            with tempfile.NamedTemporaryFile("w", suffix=".qn") as file:
                file.write(written)
                file.flush()
                done = subprocess.run([COMMAND, "check", file.name], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, written + done.stderr)
        return written

    def body(self, function: Any) -> list[str]:
        return [line.strip() for line in self.text(function).splitlines()[1:-1]]

    def refused(self, function: Any) -> Refused:
        with self.assertRaises(Refused) as caught:
            Function(StandIns(), function, "main").text()
        return caught.exception

    def store_of(self, value: Any, dtype: str = "float32", extra: tuple[Any, ...] = ()) -> str:
        """Returns the text of an expression, stored at ``y[i]``."""
        i, y = var("i"), buffer("y", [8], dtype)
        lines = self.body(func([*extra, y], loop(i, 8, store(y, value(i), i))))
        return lines[1].removeprefix("y[i] = ").removesuffix(";")

    def test_symbols_scalars_and_access(self) -> None:
        n, i, a = var("n"), var("i"), var("a", "float32")
        x, y = buffer("x", [n]), buffer("y", [n])
        value = binary("Add", binary("Mul", a, load(x, i)), load(y, i))
        self.assertEqual(
            self.text(func([a, x, y], loop(i, n, store(y, value, i), kind=1))),
            "func main(a: f32, x: f32[n], inout y: f32[n]) {\n"
            "  parallel i in 0..n {\n    y[i] = a * x[i] + y[i];\n  }\n}\n",
        )

    def test_reduction_blocks(self) -> None:
        n, i, k, vi, vk = var("n"), var("i"), var("k"), var("vi"), var("vk")
        x, y = buffer("x", [n, 16]), buffer("y", [n])
        update = store(y, binary("Add", load(y, vi), load(x, vi, vk)), vi)
        init = store(y, lit(0.0, "float32"), vi)
        nest = loop(
            i, n, loop(k, 16, block([axis(vi, n, 0), axis(vk, 16, 2)], [i, k], update, init))
        )
        self.assertEqual(
            self.body(func([x, y], nest)),
            ["parallel i in 0..n {", "y[i] = sum k in 0..16 { x[i, k] };", "}"],
        )

    def test_start_that_is_not_neutral(self) -> None:
        i, k, vi, vk = var("i"), var("k"), var("vi"), var("vk")
        x, y = buffer("x", [4, 16]), buffer("y", [4])
        update = store(y, binary("Max", load(y, vi), load(x, vi, vk)), vi)
        init = store(y, lit(-1.5, "float32"), vi)
        nest = loop(
            i, 4, loop(k, 16, block([axis(vi, 4, 0), axis(vk, 16, 2)], [i, k], update, init))
        )
        self.assertIn(
            "y[i] = max(-1.5, max k in 0..16 { x[i, k] });", self.body(func([x, y], nest))
        )

    def test_update_of_two_buffers_has_its_start_in_a_condition(self) -> None:
        i, k, vi, vk = var("i"), var("k"), var("vi"), var("vk")
        x, y, z = buffer("x", [4, 16]), buffer("y", [4]), buffer("z", [4])
        update = seq(store(y, binary("Add", load(y, vi), load(x, vi, vk)), vi),
                     store(z, binary("Max", load(z, vi), load(x, vi, vk)), vi))  # fmt: skip
        init = seq(store(y, lit(0.0, "float32"), vi), store(z, lit(0.0, "float32"), vi))
        nest = loop(
            i, 4, loop(k, 16, block([axis(vi, 4, 0), axis(vk, 16, 2)], [i, k], update, init))
        )
        self.assertEqual(
            self.body(func([x, y, z], nest))[:4],
            ["parallel i in 0..4 {", "for k in 0..16 {", "if k == 0 {", "y[i] = 0.0;"],
        )

    def test_blocks_that_read_neighbours_are_not_parallel(self) -> None:
        i, vi = var("i"), var("vi")
        y = buffer("y", [8])
        value = load(y, binary("Sub", vi, lit(1)))
        nest = loop(i, 7, block([axis(vi, 7, 0)], [i], store(y, value, vi)), low=1)
        self.assertEqual(self.body(func([y], nest))[0], "for i in 1..8 {")

    def test_axes_that_no_store_names_are_not_parallel(self) -> None:
        i, j, vi, vj = var("i"), var("j"), var("vi"), var("vj")
        x, y = buffer("x", [8, 8]), buffer("y", [8])
        value = binary("Add", load(y, vi), load(x, vi, vj))
        inner = block([axis(vi, 8, 0), axis(vj, 8, 0)], [i, j], store(y, value, vi))
        lines = self.body(func([x, y], loop(i, 8, loop(j, 8, inner))))
        self.assertEqual(lines[:2], ["parallel i in 0..8 {", "for j in 0..8 {"])

    def test_axes_of_loaded_indices_are_not_parallel(self) -> None:
        i, vi = var("i"), var("vi")
        at, x, y = buffer("at", [8], "int64"), buffer("x", [8]), buffer("y", [8])
        where = load(at, vi)
        nest = loop(i, 8, block([axis(vi, 8, 0)], [i], store(y, load(x, vi), where)))
        self.assertEqual(self.body(func([at, x, y], nest))[0], "for i in 0..8 {")

    def test_numbers_as_conditions(self) -> None:
        i, y = var("i"), buffer("y", [8], "int32")
        text = self.body(func([y], loop(i, 8, make(
            "IfThenElse", condition=binary("And", load(y, i), binary("LT", i, lit(4))),
            then_case=store(y, lit(1, "int32"), i), else_case=None))))[1]  # fmt: skip
        self.assertEqual(text, "if y[i] != 0 && i < 4 {")
        always = make("IfThenElse", condition=lit(1), then_case=store(y, lit(1, "int32"), lit(0)),
                      else_case=None)  # fmt: skip
        self.assertEqual(self.body(func([y], always))[0], "if true {")

    def test_sums_of_literals_are_literals(self) -> None:
        y = buffer("y", [8], "int8")
        where = binary("Add", binary("Mul", lit(3), lit(2)), lit(1))
        self.assertEqual(self.body(func([y], store(y, lit(1, "int8"), where))), ["y[7] = 1;"])
        wraps = binary("Add", lit(127, "int8"), lit(1, "int8"))
        self.assertEqual(self.body(func([y], store(y, wraps, lit(0)))), ["y[0] = i8(127) + 1;"])

    def test_vectors_that_store_one_element_are_loops(self) -> None:
        i, x, y = var("i"), buffer("x", [4]), buffer("y", [1])
        nest = loop(i, 4, store(y, load(x, i), lit(0)), kind=2)
        self.assertEqual(self.body(func([x, y], nest))[0], "for i in 0..4 {")

    def test_buffers_over_pointers_are_parameters(self) -> None:
        i, x, y = var("i"), buffer("x", [8]), buffer("y", [8])
        pointers = [var("x_ptr", "handle"), var("y_ptr", "handle")]
        for one in (x, y):
            one.elem_offset = lit(0)
        declared = [make("DeclBuffer", buffer=b, data=p) for b, p in zip((x, y), pointers)]
        body = seq(*declared, loop(i, 8, store(y, load(x, i), i)))
        self.assertEqual(
            self.text(func(pointers, body)).splitlines()[0],
            "func main(x: f32[8], out y: f32[8]) {",
        )
        again = make("DeclBuffer", buffer=buffer("z", [4]), data=pointers[1])
        again.buffer.elem_offset = lit(0)
        refused = self.refused(func(pointers, seq(again, body)))
        self.assertEqual((refused.reason, refused.detail), ("pointer", "parameter y_ptr"))

    def test_indices_are_wide_and_values_exact(self) -> None:
        i, y, x = var("i", "int32"), buffer("y", [8], "int32"), buffer("x", [9], "int32")
        sum_ = binary("Add", load(x, binary("Add", i, lit(1, "int32"))), i)
        self.assertEqual(
            self.body(func([x, y], loop(i, 8, store(y, sum_, i))))[1], "y[i] = x[i + 1] + i32(i);"
        )

    def test_precedence(self) -> None:
        a = lambda i: lit(2.0, "float32")  # noqa: E731
        text = self.store_of(lambda i: binary(
            "Sub", a(i), binary("Sub", a(i),
                                call("tirx.exp", a(i)))))  # fmt: skip
        self.assertEqual(text, "2.0 - (2.0 - exp(f32(2.0)))")

    def test_operators(self) -> None:
        x = lit(0.5, "float32")
        self.assertEqual(self.store_of(lambda i: call("tirx.round", x)), "roundeven(f32(0.5))")
        self.assertEqual(self.store_of(lambda i: call("tirx.fabs", x)), "abs(f32(0.5))")
        seven = lambda i: make("Cast", value=i, dtype="int32")  # noqa: E731
        three = lit(3, "int32")
        for kind, expected in (("Div", "truncdiv(i32(i), 3)"), ("Mod", "truncmod(i32(i), 3)"),
                               ("FloorDiv", "i32(i) // 3"), ("FloorMod", "i32(i) % 3"),
                               ("BitwiseAnd", "i32(i) & 3"), ("LShift", "i32(i) << 3")):  # fmt: skip
            value = lambda i: binary(kind, seven(i), three)  # noqa: E731,B023
            self.assertEqual(self.store_of(value, "int32"), expected)

    def test_floats_beyond_their_dtype_are_infinite(self) -> None:
        self.assertEqual(self.store_of(lambda i: lit(1e39, "float32")), "inf")

    def test_select_of_loads_evaluates_one(self) -> None:
        x = buffer("x", [4])
        value = lambda i: make(  # noqa: E731
            "Select", condition=binary("LT", i, lit(4), "bool"), true_value=load(x, i),
            false_value=lit(0.0, "float32"), dtype="float32")  # fmt: skip
        self.assertEqual(self.store_of(value, extra=(x,)), "i < 4 ? x[i] : 0.0")

    def test_grid_with_shared_memory(self) -> None:
        b, t = var("bx"), var("tx")
        x, y, tile = (
            buffer("x", [4, 32]),
            buffer("y", [4, 32]),
            buffer("tile", [32], scope="shared"),
        )
        sync = make("Evaluate", value=call("tirx.tvm_storage_sync"))
        inner = seq(make("AllocBuffer", buffer=tile), store(tile, load(x, b, t), t), sync,
                    store(y, load(tile, binary("Sub", lit(31), t)), b, t))  # fmt: skip
        grid = threads("blockIdx.x", b, 4, threads("threadIdx.x", t, 32, inner))
        self.assertEqual(
            self.body(func([x, y], grid)),
            ["block.x block_x in 0..4 {", "alloc tile: f32[32] in shared;",
             "thread.x thread_x in 0..32 {", "tile[thread_x] = x[block_x, thread_x];", "barrier;",
             "y[block_x, thread_x] = tile[31 - thread_x];", "}", "}"],
        )  # fmt: skip

    def test_shared_memory_without_threads_is_memory(self) -> None:
        x, y, tile, i = (
            buffer("x", [8]),
            buffer("y", [8]),
            buffer("t", [8], scope="shared"),
            var("i"),
        )
        parts = seq(make("AllocBuffer", buffer=tile), loop(i, 8, store(tile, load(x, i), i)),
                    loop(i, 8, store(y, load(tile, i), i)))  # fmt: skip
        self.assertEqual(self.body(func([x, y], parts))[0], "alloc t: f32[8] in global;")

    def test_virtual_threads_are_loops_unless_they_meet(self) -> None:
        v, y = var("vx"), buffer("y", [4])
        node = make("IterVar", var=v, thread_tag="vthread.x")
        body = store(y, lit(1.0, "float32"), v)
        attribute = make("AttrStmt", node=node, attr_key="virtual_thread", value=lit(4), body=body)
        self.assertEqual(self.body(func([y], attribute))[0], "unroll vx in 0..4 {")
        attribute.body = seq(body, make("Evaluate", value=call("tirx.tvm_storage_sync")))
        reason = self.refused(func([y], attribute)).reason
        self.assertEqual(reason, "virtual thread with a barrier")

    def test_predicates_of_reductions_stay_conditions(self) -> None:
        i, k, vi, vk = var("i"), var("k"), var("vi"), var("vk")
        x, y = buffer("x", [4, 16]), buffer("y", [4])
        update = store(y, binary("Add", load(y, vi), load(x, vi, vk)), vi)
        init = store(y, lit(0.0, "float32"), vi)
        realize = block([axis(vi, 4, 0), axis(vk, 16, 2)], [i, k], update, init)
        realize.predicate = binary("LT", k, lit(12), "bool")
        lines = self.body(func([x, y], loop(i, 4, loop(k, 16, realize))))
        self.assertEqual(lines[1:4], ["for k in 0..16 {", "if k < 12 {", "if k == 0 {"])

    def test_lanes(self) -> None:
        x, y = buffer("x", [8]), buffer("y", [8])
        ramp = lambda: make("Ramp", base=lit(4), stride=lit(1), lanes=lit(4), dtype="int64x4")  # noqa: E731
        value = make("BufferLoad", buffer=x, indices=[ramp()], dtype="float32x4")
        lines = self.body(func([x, y], store(y, value, ramp())))
        self.assertEqual(lines, ["vector lane in 0..4 {", "y[4 + lane] = x[4 + lane];", "}"])

    def test_names(self) -> None:
        i, y = var("if"), buffer("out", [8])
        text = self.text(func([y], loop(i, 8, store(y, lit(1.0, "float32"), i))))
        self.assertIn("for if_1 in 0..8 {", text)
        self.assertIn("out out_1: f32[8]", text)

    def test_refusals_name_the_construct(self) -> None:
        y, i = buffer("y", [8]), var("i")
        self.assertEqual(self.refused(func([y], make("Frobnicate"))).reason, "statement Frobnicate")
        one = store(y, make("Shuffle2", dtype="float32"), lit(0))
        self.assertEqual(self.refused(func([y], one)).reason, "expression Shuffle2")
        one = store(y, call("tirx.ptx_mma"), lit(0))
        self.assertEqual(self.refused(func([y], one)).reason, "operator tirx.ptx_mma")
        self.assertEqual(self.refused(func([y], store(y, load(y, i), i))).reason, "free variable")
        self.assertEqual(self.refused(func([var("p", "handle")], seq())).reason, "pointer")
        one = buffer("w", [8], scope="wmma.accumulator")
        self.assertEqual(
            self.refused(func([y], make("AllocBuffer", buffer=one))).reason, "memory scope"
        )
        one = func([buffer("q", [8], "float4_e2m1fn")], seq())
        self.assertEqual(self.refused(one).reason, "dtype")
        pragma = make("AttrStmt", node=None, attr_key="pragma_import_c", value=None, body=seq())
        self.assertEqual(self.refused(func([y], pragma)).reason, "attribute pragma_import_c")


if __name__ == "__main__":
    unittest.main()
