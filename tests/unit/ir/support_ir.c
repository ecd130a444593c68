// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/support_ir.c: samples, parsing, comparing bytes.
#include "tests/unit/ir/support_ir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"

char* qn_sample_text(const char* name, size_t* out_size) {
  char path[512];
  (void)snprintf(path, sizeof path, QN_SOURCE_DIR "/examples/ir/%s.qn", name);
  uint8_t* data = NULL;
  qn_status_t status =
      qn__fs_read_file(qn_allocator_default(), path, (size_t)1 << 20, &data, out_size);
  if (!qn_ok(status)) {
    (void)fprintf(stderr, "%s\n", qn_status_message(status));
    abort();
  }
  return (char*)data;
}

void qn_sample_text_free(char* text, size_t size) {
  qn__free(qn_allocator_default(), text, size + 1);
}

bool qn_same_bytes(const qn_module_t* a, const qn_module_t* b) {
  size_t a_size;
  size_t b_size;
  const void* a_bytes = qn_module_bytes(a, &a_size);
  const void* b_bytes = qn_module_bytes(b, &b_size);
  return a_size == b_size && memcmp(a_bytes, b_bytes, a_size) == 0;
}

const char qn_all_constructs[] =
    "func all(a: i32, b: f32, c: bool, x: f32[n, m] strides [s, 1] align 64, ids: i64[n], out y: "
    "f32[n * m], inout z: u32[4], h: f16[n], g: bf16[n], d: f64[], u: u8[n], w: i16[n]) fast {\n"
    "  assert n > 0, \"empty \\\"x\\\"\";\n"
    "  assert m % 2 == 0;\n"
    "  let k = min(n, 4) + i64(a);\n"
    "  alloc work: f32[n, k + 8] in global;\n"
    "  const table: f32[2, 3] = [1.0, -2.5, inf, nan, 1e-40, 3.0];\n"
    "  const bits: u64[2] = [0xffff_ffff_ffff_ffff, 3];\n"
    "  const flags: bool[2] = [true, false];\n"
    "  const small: f16[2] = [0.5, 6e-8];\n"
    "  parallel i in 0..n {\n"
    "    view row: f32[m] = x[i, 0];\n"
    "    view odd: f32[m // 2] strides [2] = row[1];\n"
    "    let t = c ? b : table[0, 1];\n"
    "    let v = sum j in 0..m { let q = row[j] * t; q + select(flags[0], q, 1.0) };\n"
    "    let low, at = argmin j in 0..m { let q = row[j]; q };\n"
    "    let count, top = reduce j in at..m { 1, row[j] } from (0, low) with (e, f), (p, q) {\n"
    "      let larger = max(f, q);\n"
    "      e + p, larger\n"
    "    };\n"
    "    scan j in 0..m { row[j] } from (0.0) with (e), (f) { e + f } as (so_far) {\n"
    "      work[i, j] = so_far;\n"
    "    }\n"
    "    exclusive_scan j in 2..m { row[j], j > 5 } from (0.0, false) with (e, f), (p, q) {\n"
    "      let sum_or_new = q ? p : e + p;\n"
    "      sum_or_new, f || q\n"
    "    } as (before, any) {\n"
    "      if any {\n"
    "        continue;\n"
    "      }\n"
    "      work[i, j] = before;\n"
    "    }\n"
    "    if v > 1.0 && !c || isnan(v) || count > 3 && top < low {\n"
    "      work[i, 0] = v;\n"
    "    } else if v < -1.0 {\n"
    "      work[i, 0] = -v;\n"
    "    } else {\n"
    "      for j in 0..4 {\n"
    "        if j == k {\n"
    "          continue;\n"
    "        }\n"
    "        work[i, j] = fma(v, t, f32(h[i]) + f32(g[i])) + f32(d[]);\n"
    "      }\n"
    "    }\n"
    "    let old = atomic_add(z[i % 4], 1);\n"
    "    let o2 = atomic_cas(z[0], old, 7);\n"
    "    atomic_xor(z[o2], 3);\n"
    "    alloc st: i32[1] in local;\n"
    "    st[0] = 0;\n"
    "    while st[0] < 10 {\n"
    "      if st[0] == 5 {\n"
    "        break;\n"
    "      }\n"
    "      st[0] = st[0] + (i32(u[i]) << 2 >> 1 | 3 & ~a ^ 5);\n"
    "    }\n"
    "    unroll j in 0..2 {\n"
    "      vector l in 0..8 {\n"
    "        work[i, j * 4 + l] = exp(odd[l]) / pow(2.0, t) + bitcast(f32, u32(w[i])) + "
    "f32(ceildiv(l, 3) - -1);\n"
    "      }\n"
    "    }\n"
    "    y[i] = squares(max j in 0..m { squares(row[j]) });\n"
    "  }\n"
    "  if n > 100 {\n"
    "    return;\n"
    "  }\n"
    "  block.y by in 0..4 {\n"
    "    block.x bx in 0..ceildiv(n, 32) {\n"
    "      alloc tile: f32[32] in shared;\n"
    "      thread.x tx in 0..32 {\n"
    "        tile[tx] = x[0, tx];\n"
    "        barrier;\n"
    "        atomic_store(z[1], 2);\n"
    "        fence;\n"
    "        let seen = atomic_load(z[2]);\n"
    "        let p = warp_sum(tile[tx]) + shuffle_xor(tile[31 - tx], 1) + block_max(b) +\n"
    "                axis_sum(b, thread.x);\n"
    "        if tx == 0 {\n"
    "          y[bx * 4 + by] = p + f32(popcount(seen)) + f32(truncdiv(a, 3) % 5 // 2);\n"
    "        }\n"
    "      }\n"
    "    }\n"
    "  }\n"
    "}\n"
    "func squares(v: f32) -> f32 {\n"
    "  let w = sum j in 0..2 { let f = f32(j) * v; f * v };\n"
    "  return twice(w) + v;\n"
    "}\n"
    "func twice(v: f32) -> f32 {\n"
    "  return v + v;\n"
    "}\n"
    "func empty() {\n"
    "}\n";
