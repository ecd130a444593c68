// kernel 0, of function transpose
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer Qb0 { float b0[]; };
layout(set = 0, binding = 1, std430) coherent buffer Qb1 { float b1[]; };
layout(set = 0, binding = 2, std430) buffer Qrecord { uint qn_record[]; };
layout(push_constant, std430) uniform Qpush { uint qn_push[9]; };
shared float b6[1056];
void qn_fail(uint site, uvec2 index, uvec2 extent) {
  const uint at = qn_push[2];
  if (atomicCompSwap(qn_record[at], 0u, qn_push[8]) != 0u) return;
  qn_record[at + 1u] = site;
  qn_record[at + 2u] = index.x;
  qn_record[at + 3u] = index.y;
  qn_record[at + 4u] = extent.x;
  qn_record[at + 5u] = extent.y;
}
void main() {
  const uint b0_at = qn_push[0];
  const uint b1_at = qn_push[1];
  const int v2 = int(qn_push[4]);
  const int v3 = int(qn_push[6]);
  const uint qn_record_at = qn_push[2];
  const uint qn_tag = qn_push[8];
  const uint qn_failed = qn_record[qn_record_at];
  if (qn_failed != 0u && qn_failed != qn_tag) return;
  const uint qn_thread = gl_LocalInvocationID.x;
  const uint qn_threads = gl_WorkGroupSize.x;
  const uint qn_block_first = uint(gl_WorkGroupID.x);
  const uint qn_block_step = uint(gl_NumWorkGroups.x);
  bool qn_alive = true;
  const int t0 = int(qn_ceildiv_u32(uint(v3), uint(32)));
  const uint t1 = t0 > 0 ? uint(t0) : 0u;
  const int t2 = int(qn_ceildiv_u32(uint(v2), uint(32)));
  const uint t3 = t2 > 0 ? uint(t2) : 0u;
  const uint t4 = t1 * t3;
  for (uint t5 = qn_block_first; t5 < t4; t5 += qn_block_step) {
    const int v4 = int(t5 % t1);
    const uint t6 = t5 / t1;
    const int v5 = int(t6);
    {
      const int v7 = int(qn_thread % 32u);
      const uint t7 = qn_thread / 32u;
      const int v8 = int(t7);
      const int v9 = (v5 * 32) + v8;
      const int v10 = (v4 * 32) + v7;
      if ((v9 < v2) && (v10 < v3)) {
        if (qn_alive && !(uint(v8) < uint(32))) {
          qn_fail(0u, uvec2(v8, (v8) >> 31), uvec2(32, (32) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v7) < uint(33))) {
          qn_fail(1u, uvec2(v7, (v7) >> 31), uvec2(33, (33) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v9) < uint(v2))) {
          qn_fail(2u, uvec2(v9, (v9) >> 31), uvec2(v2, (v2) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v10) < uint(v3))) {
          qn_fail(3u, uvec2(v10, (v10) >> 31), uvec2(v3, (v3) >> 31));
          qn_alive = false;
        }
        if (qn_alive) {
          b6[uint(((v8 * 33) + v7))] = qn_alive ? b0[uint(((v9 * v3) + v10)) + b0_at] : 0.0f;
        }
      }
      const int v11 = ((v5 * 32) + v8) + 8;
      const int v12 = (v4 * 32) + v7;
      if ((v11 < v2) && (v12 < v3)) {
        const int t8 = v8 + 8;
        if (qn_alive && !(uint(t8) < uint(32))) {
          qn_fail(0u, uvec2(t8, (t8) >> 31), uvec2(32, (32) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v7) < uint(33))) {
          qn_fail(1u, uvec2(v7, (v7) >> 31), uvec2(33, (33) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v11) < uint(v2))) {
          qn_fail(2u, uvec2(v11, (v11) >> 31), uvec2(v2, (v2) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v12) < uint(v3))) {
          qn_fail(3u, uvec2(v12, (v12) >> 31), uvec2(v3, (v3) >> 31));
          qn_alive = false;
        }
        if (qn_alive) {
          b6[uint(((t8 * 33) + v7))] = qn_alive ? b0[uint(((v11 * v3) + v12)) + b0_at] : 0.0f;
        }
      }
      const int v13 = ((v5 * 32) + v8) + 16;
      const int v14 = (v4 * 32) + v7;
      if ((v13 < v2) && (v14 < v3)) {
        const int t9 = v8 + 16;
        if (qn_alive && !(uint(t9) < uint(32))) {
          qn_fail(0u, uvec2(t9, (t9) >> 31), uvec2(32, (32) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v7) < uint(33))) {
          qn_fail(1u, uvec2(v7, (v7) >> 31), uvec2(33, (33) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v13) < uint(v2))) {
          qn_fail(2u, uvec2(v13, (v13) >> 31), uvec2(v2, (v2) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v14) < uint(v3))) {
          qn_fail(3u, uvec2(v14, (v14) >> 31), uvec2(v3, (v3) >> 31));
          qn_alive = false;
        }
        if (qn_alive) {
          b6[uint(((t9 * 33) + v7))] = qn_alive ? b0[uint(((v13 * v3) + v14)) + b0_at] : 0.0f;
        }
      }
      const int v15 = ((v5 * 32) + v8) + 24;
      const int v16 = (v4 * 32) + v7;
      if ((v15 < v2) && (v16 < v3)) {
        const int t10 = v8 + 24;
        if (qn_alive && !(uint(t10) < uint(32))) {
          qn_fail(0u, uvec2(t10, (t10) >> 31), uvec2(32, (32) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v7) < uint(33))) {
          qn_fail(1u, uvec2(v7, (v7) >> 31), uvec2(33, (33) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v15) < uint(v2))) {
          qn_fail(2u, uvec2(v15, (v15) >> 31), uvec2(v2, (v2) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v16) < uint(v3))) {
          qn_fail(3u, uvec2(v16, (v16) >> 31), uvec2(v3, (v3) >> 31));
          qn_alive = false;
        }
        if (qn_alive) {
          b6[uint(((t10 * 33) + v7))] = qn_alive ? b0[uint(((v15 * v3) + v16)) + b0_at] : 0.0f;
        }
      }
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      const int v17 = (v4 * 32) + v8;
      const int v18 = (v5 * 32) + v7;
      if ((v17 < v3) && (v18 < v2)) {
        if (qn_alive && !(uint(v17) < uint(v3))) {
          qn_fail(4u, uvec2(v17, (v17) >> 31), uvec2(v3, (v3) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v18) < uint(v2))) {
          qn_fail(5u, uvec2(v18, (v18) >> 31), uvec2(v2, (v2) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v7) < uint(32))) {
          qn_fail(6u, uvec2(v7, (v7) >> 31), uvec2(32, (32) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v8) < uint(33))) {
          qn_fail(7u, uvec2(v8, (v8) >> 31), uvec2(33, (33) >> 31));
          qn_alive = false;
        }
        if (qn_alive) {
          b1[uint(((v17 * v2) + v18)) + b1_at] = qn_alive ? b6[uint(((v7 * 33) + v8))] : 0.0f;
        }
      }
      const int v19 = ((v4 * 32) + v8) + 8;
      const int v20 = (v5 * 32) + v7;
      if ((v19 < v3) && (v20 < v2)) {
        if (qn_alive && !(uint(v19) < uint(v3))) {
          qn_fail(4u, uvec2(v19, (v19) >> 31), uvec2(v3, (v3) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v20) < uint(v2))) {
          qn_fail(5u, uvec2(v20, (v20) >> 31), uvec2(v2, (v2) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v7) < uint(32))) {
          qn_fail(6u, uvec2(v7, (v7) >> 31), uvec2(32, (32) >> 31));
          qn_alive = false;
        }
        const int t11 = v8 + 8;
        if (qn_alive && !(uint(t11) < uint(33))) {
          qn_fail(7u, uvec2(t11, (t11) >> 31), uvec2(33, (33) >> 31));
          qn_alive = false;
        }
        if (qn_alive) {
          b1[uint(((v19 * v2) + v20)) + b1_at] = qn_alive ? b6[uint(((v7 * 33) + t11))] : 0.0f;
        }
      }
      const int v21 = ((v4 * 32) + v8) + 16;
      const int v22 = (v5 * 32) + v7;
      if ((v21 < v3) && (v22 < v2)) {
        if (qn_alive && !(uint(v21) < uint(v3))) {
          qn_fail(4u, uvec2(v21, (v21) >> 31), uvec2(v3, (v3) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v22) < uint(v2))) {
          qn_fail(5u, uvec2(v22, (v22) >> 31), uvec2(v2, (v2) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v7) < uint(32))) {
          qn_fail(6u, uvec2(v7, (v7) >> 31), uvec2(32, (32) >> 31));
          qn_alive = false;
        }
        const int t12 = v8 + 16;
        if (qn_alive && !(uint(t12) < uint(33))) {
          qn_fail(7u, uvec2(t12, (t12) >> 31), uvec2(33, (33) >> 31));
          qn_alive = false;
        }
        if (qn_alive) {
          b1[uint(((v21 * v2) + v22)) + b1_at] = qn_alive ? b6[uint(((v7 * 33) + t12))] : 0.0f;
        }
      }
      const int v23 = ((v4 * 32) + v8) + 24;
      const int v24 = (v5 * 32) + v7;
      if ((v23 < v3) && (v24 < v2)) {
        if (qn_alive && !(uint(v23) < uint(v3))) {
          qn_fail(4u, uvec2(v23, (v23) >> 31), uvec2(v3, (v3) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v24) < uint(v2))) {
          qn_fail(5u, uvec2(v24, (v24) >> 31), uvec2(v2, (v2) >> 31));
          qn_alive = false;
        }
        if (qn_alive && !(uint(v7) < uint(32))) {
          qn_fail(6u, uvec2(v7, (v7) >> 31), uvec2(32, (32) >> 31));
          qn_alive = false;
        }
        const int t13 = v8 + 24;
        if (qn_alive && !(uint(t13) < uint(33))) {
          qn_fail(7u, uvec2(t13, (t13) >> 31), uvec2(33, (33) >> 31));
          qn_alive = false;
        }
        if (qn_alive) {
          b1[uint(((v23 * v2) + v24)) + b1_at] = qn_alive ? b6[uint(((v7 * 33) + t13))] : 0.0f;
        }
      }
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
  }
}

// kernel 1, of function transpose
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer Qb0 { float b0[]; };
layout(set = 0, binding = 1, std430) coherent buffer Qb1 { float b1[]; };
layout(set = 0, binding = 2, std430) buffer Qrecord { uint qn_record[]; };
layout(push_constant, std430) uniform Qpush { uint qn_push[9]; };
shared float b6[1056];
void qn_fail(uint site, uvec2 index, uvec2 extent) {
  const uint at = qn_push[2];
  if (atomicCompSwap(qn_record[at], 0u, qn_push[8]) != 0u) return;
  qn_record[at + 1u] = site;
  qn_record[at + 2u] = index.x;
  qn_record[at + 3u] = index.y;
  qn_record[at + 4u] = extent.x;
  qn_record[at + 5u] = extent.y;
}
void main() {
  const uint b0_at = qn_push[0];
  const uint b1_at = qn_push[1];
  const qn_i64 v2 = qn_i64(packUint2x32(uvec2(qn_push[4], qn_push[5])));
  const qn_i64 v3 = qn_i64(packUint2x32(uvec2(qn_push[6], qn_push[7])));
  const uint qn_record_at = qn_push[2];
  const uint qn_tag = qn_push[8];
  const uint qn_failed = qn_record[qn_record_at];
  if (qn_failed != 0u && qn_failed != qn_tag) return;
  const uint qn_thread = gl_LocalInvocationID.x;
  const uint qn_threads = gl_WorkGroupSize.x;
  const qn_i64 qn_block_first = qn_i64(gl_WorkGroupID.x);
  const qn_i64 qn_block_step = qn_i64(gl_NumWorkGroups.x);
  bool qn_alive = true;
  const qn_i64 t0 = qn_i64(qn_ceildiv_u64(qn_u64(v3), qn_u64(32l)));
  const qn_u64 t1 = t0 > 0l ? qn_u64(t0) : 0ul;
  const qn_i64 t2 = qn_i64(qn_ceildiv_u64(qn_u64(v2), qn_u64(32l)));
  const qn_u64 t3 = t2 > 0l ? qn_u64(t2) : 0ul;
  const qn_u64 t4 = t1 * t3;
  for (qn_u64 t5 = qn_block_first; t5 < t4; t5 += qn_block_step) {
    const qn_i64 v4 = qn_i64(t5 % t1);
    const qn_u64 t6 = t5 / t1;
    const qn_i64 v5 = qn_i64(t6);
    {
      const qn_i64 v7 = qn_i64(qn_thread % 32u);
      const uint t7 = qn_thread / 32u;
      const qn_i64 v8 = qn_i64(t7);
      const qn_i64 v9 = (v5 * 32l) + v8;
      const qn_i64 v10 = (v4 * 32l) + v7;
      if ((v9 < v2) && (v10 < v3)) {
        if (qn_alive && !(qn_u64(v8) < qn_u64(32l))) {
          qn_fail(0u, uvec2(v8, (v8) >> 32), uvec2(32l, (32l) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v7) < qn_u64(33l))) {
          qn_fail(1u, uvec2(v7, (v7) >> 32), uvec2(33l, (33l) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v9) < qn_u64(v2))) {
          qn_fail(2u, uvec2(v9, (v9) >> 32), uvec2(v2, (v2) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v10) < qn_u64(v3))) {
          qn_fail(3u, uvec2(v10, (v10) >> 32), uvec2(v3, (v3) >> 32));
          qn_alive = false;
        }
        if (qn_alive) {
          b6[uint(((v8 * 33l) + v7))] = qn_alive ? b0[uint(((v9 * v3) + v10)) + b0_at] : 0.0f;
        }
      }
      const qn_i64 v11 = ((v5 * 32l) + v8) + 8l;
      const qn_i64 v12 = (v4 * 32l) + v7;
      if ((v11 < v2) && (v12 < v3)) {
        const qn_i64 t8 = v8 + 8l;
        if (qn_alive && !(qn_u64(t8) < qn_u64(32l))) {
          qn_fail(0u, uvec2(t8, (t8) >> 32), uvec2(32l, (32l) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v7) < qn_u64(33l))) {
          qn_fail(1u, uvec2(v7, (v7) >> 32), uvec2(33l, (33l) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v11) < qn_u64(v2))) {
          qn_fail(2u, uvec2(v11, (v11) >> 32), uvec2(v2, (v2) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v12) < qn_u64(v3))) {
          qn_fail(3u, uvec2(v12, (v12) >> 32), uvec2(v3, (v3) >> 32));
          qn_alive = false;
        }
        if (qn_alive) {
          b6[uint(((t8 * 33l) + v7))] = qn_alive ? b0[uint(((v11 * v3) + v12)) + b0_at] : 0.0f;
        }
      }
      const qn_i64 v13 = ((v5 * 32l) + v8) + 16l;
      const qn_i64 v14 = (v4 * 32l) + v7;
      if ((v13 < v2) && (v14 < v3)) {
        const qn_i64 t9 = v8 + 16l;
        if (qn_alive && !(qn_u64(t9) < qn_u64(32l))) {
          qn_fail(0u, uvec2(t9, (t9) >> 32), uvec2(32l, (32l) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v7) < qn_u64(33l))) {
          qn_fail(1u, uvec2(v7, (v7) >> 32), uvec2(33l, (33l) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v13) < qn_u64(v2))) {
          qn_fail(2u, uvec2(v13, (v13) >> 32), uvec2(v2, (v2) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v14) < qn_u64(v3))) {
          qn_fail(3u, uvec2(v14, (v14) >> 32), uvec2(v3, (v3) >> 32));
          qn_alive = false;
        }
        if (qn_alive) {
          b6[uint(((t9 * 33l) + v7))] = qn_alive ? b0[uint(((v13 * v3) + v14)) + b0_at] : 0.0f;
        }
      }
      const qn_i64 v15 = ((v5 * 32l) + v8) + 24l;
      const qn_i64 v16 = (v4 * 32l) + v7;
      if ((v15 < v2) && (v16 < v3)) {
        const qn_i64 t10 = v8 + 24l;
        if (qn_alive && !(qn_u64(t10) < qn_u64(32l))) {
          qn_fail(0u, uvec2(t10, (t10) >> 32), uvec2(32l, (32l) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v7) < qn_u64(33l))) {
          qn_fail(1u, uvec2(v7, (v7) >> 32), uvec2(33l, (33l) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v15) < qn_u64(v2))) {
          qn_fail(2u, uvec2(v15, (v15) >> 32), uvec2(v2, (v2) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v16) < qn_u64(v3))) {
          qn_fail(3u, uvec2(v16, (v16) >> 32), uvec2(v3, (v3) >> 32));
          qn_alive = false;
        }
        if (qn_alive) {
          b6[uint(((t10 * 33l) + v7))] = qn_alive ? b0[uint(((v15 * v3) + v16)) + b0_at] : 0.0f;
        }
      }
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      const qn_i64 v17 = (v4 * 32l) + v8;
      const qn_i64 v18 = (v5 * 32l) + v7;
      if ((v17 < v3) && (v18 < v2)) {
        if (qn_alive && !(qn_u64(v17) < qn_u64(v3))) {
          qn_fail(4u, uvec2(v17, (v17) >> 32), uvec2(v3, (v3) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v18) < qn_u64(v2))) {
          qn_fail(5u, uvec2(v18, (v18) >> 32), uvec2(v2, (v2) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v7) < qn_u64(32l))) {
          qn_fail(6u, uvec2(v7, (v7) >> 32), uvec2(32l, (32l) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v8) < qn_u64(33l))) {
          qn_fail(7u, uvec2(v8, (v8) >> 32), uvec2(33l, (33l) >> 32));
          qn_alive = false;
        }
        if (qn_alive) {
          b1[uint(((v17 * v2) + v18)) + b1_at] = qn_alive ? b6[uint(((v7 * 33l) + v8))] : 0.0f;
        }
      }
      const qn_i64 v19 = ((v4 * 32l) + v8) + 8l;
      const qn_i64 v20 = (v5 * 32l) + v7;
      if ((v19 < v3) && (v20 < v2)) {
        if (qn_alive && !(qn_u64(v19) < qn_u64(v3))) {
          qn_fail(4u, uvec2(v19, (v19) >> 32), uvec2(v3, (v3) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v20) < qn_u64(v2))) {
          qn_fail(5u, uvec2(v20, (v20) >> 32), uvec2(v2, (v2) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v7) < qn_u64(32l))) {
          qn_fail(6u, uvec2(v7, (v7) >> 32), uvec2(32l, (32l) >> 32));
          qn_alive = false;
        }
        const qn_i64 t11 = v8 + 8l;
        if (qn_alive && !(qn_u64(t11) < qn_u64(33l))) {
          qn_fail(7u, uvec2(t11, (t11) >> 32), uvec2(33l, (33l) >> 32));
          qn_alive = false;
        }
        if (qn_alive) {
          b1[uint(((v19 * v2) + v20)) + b1_at] = qn_alive ? b6[uint(((v7 * 33l) + t11))] : 0.0f;
        }
      }
      const qn_i64 v21 = ((v4 * 32l) + v8) + 16l;
      const qn_i64 v22 = (v5 * 32l) + v7;
      if ((v21 < v3) && (v22 < v2)) {
        if (qn_alive && !(qn_u64(v21) < qn_u64(v3))) {
          qn_fail(4u, uvec2(v21, (v21) >> 32), uvec2(v3, (v3) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v22) < qn_u64(v2))) {
          qn_fail(5u, uvec2(v22, (v22) >> 32), uvec2(v2, (v2) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v7) < qn_u64(32l))) {
          qn_fail(6u, uvec2(v7, (v7) >> 32), uvec2(32l, (32l) >> 32));
          qn_alive = false;
        }
        const qn_i64 t12 = v8 + 16l;
        if (qn_alive && !(qn_u64(t12) < qn_u64(33l))) {
          qn_fail(7u, uvec2(t12, (t12) >> 32), uvec2(33l, (33l) >> 32));
          qn_alive = false;
        }
        if (qn_alive) {
          b1[uint(((v21 * v2) + v22)) + b1_at] = qn_alive ? b6[uint(((v7 * 33l) + t12))] : 0.0f;
        }
      }
      const qn_i64 v23 = ((v4 * 32l) + v8) + 24l;
      const qn_i64 v24 = (v5 * 32l) + v7;
      if ((v23 < v3) && (v24 < v2)) {
        if (qn_alive && !(qn_u64(v23) < qn_u64(v3))) {
          qn_fail(4u, uvec2(v23, (v23) >> 32), uvec2(v3, (v3) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v24) < qn_u64(v2))) {
          qn_fail(5u, uvec2(v24, (v24) >> 32), uvec2(v2, (v2) >> 32));
          qn_alive = false;
        }
        if (qn_alive && !(qn_u64(v7) < qn_u64(32l))) {
          qn_fail(6u, uvec2(v7, (v7) >> 32), uvec2(32l, (32l) >> 32));
          qn_alive = false;
        }
        const qn_i64 t13 = v8 + 24l;
        if (qn_alive && !(qn_u64(t13) < qn_u64(33l))) {
          qn_fail(7u, uvec2(t13, (t13) >> 32), uvec2(33l, (33l) >> 32));
          qn_alive = false;
        }
        if (qn_alive) {
          b1[uint(((v23 * v2) + v24)) + b1_at] = qn_alive ? b6[uint(((v7 * 33l) + t13))] : 0.0f;
        }
      }
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
  }
}
