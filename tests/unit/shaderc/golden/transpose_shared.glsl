// kernel 0, of function transpose
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer Qb0 { float b0[]; };
layout(set = 0, binding = 1, std430) coherent buffer Qb1 { float b1[]; };
layout(push_constant, std430) uniform Qpush { uint qn_push[6]; };
shared float b6[1056];
void main() {
  const uint b0_at = qn_push[0];
  const uint b1_at = qn_push[1];
  const int v2 = int(qn_push[2]);
  const int v3 = int(qn_push[4]);
  const uint qn_thread = gl_LocalInvocationID.x;
  const uint qn_threads = gl_WorkGroupSize.x;
  const uint qn_block_first = uint(gl_WorkGroupID.x);
  const uint qn_block_step = uint(gl_NumWorkGroups.x);
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
        b6[uint(((v8 * 33) + v7))] = b0[uint(((v9 * v3) + v10)) + b0_at];
      }
      const int v11 = ((v5 * 32) + v8) + 8;
      const int v12 = (v4 * 32) + v7;
      if ((v11 < v2) && (v12 < v3)) {
        b6[uint((((v8 + 8) * 33) + v7))] = b0[uint(((v11 * v3) + v12)) + b0_at];
      }
      const int v13 = ((v5 * 32) + v8) + 16;
      const int v14 = (v4 * 32) + v7;
      if ((v13 < v2) && (v14 < v3)) {
        b6[uint((((v8 + 16) * 33) + v7))] = b0[uint(((v13 * v3) + v14)) + b0_at];
      }
      const int v15 = ((v5 * 32) + v8) + 24;
      const int v16 = (v4 * 32) + v7;
      if ((v15 < v2) && (v16 < v3)) {
        b6[uint((((v8 + 24) * 33) + v7))] = b0[uint(((v15 * v3) + v16)) + b0_at];
      }
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      const int v17 = (v4 * 32) + v8;
      const int v18 = (v5 * 32) + v7;
      if ((v17 < v3) && (v18 < v2)) {
        b1[uint(((v17 * v2) + v18)) + b1_at] = b6[uint(((v7 * 33) + v8))];
      }
      const int v19 = ((v4 * 32) + v8) + 8;
      const int v20 = (v5 * 32) + v7;
      if ((v19 < v3) && (v20 < v2)) {
        b1[uint(((v19 * v2) + v20)) + b1_at] = b6[uint(((v7 * 33) + (v8 + 8)))];
      }
      const int v21 = ((v4 * 32) + v8) + 16;
      const int v22 = (v5 * 32) + v7;
      if ((v21 < v3) && (v22 < v2)) {
        b1[uint(((v21 * v2) + v22)) + b1_at] = b6[uint(((v7 * 33) + (v8 + 16)))];
      }
      const int v23 = ((v4 * 32) + v8) + 24;
      const int v24 = (v5 * 32) + v7;
      if ((v23 < v3) && (v24 < v2)) {
        b1[uint(((v23 * v2) + v24)) + b1_at] = b6[uint(((v7 * 33) + (v8 + 24)))];
      }
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
  }
}

// kernel 1, of function transpose
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer Qb0 { float b0[]; };
layout(set = 0, binding = 1, std430) coherent buffer Qb1 { float b1[]; };
layout(push_constant, std430) uniform Qpush { uint qn_push[6]; };
shared float b6[1056];
void main() {
  const uint b0_at = qn_push[0];
  const uint b1_at = qn_push[1];
  const qn_i64 v2 = qn_i64(packUint2x32(uvec2(qn_push[2], qn_push[3])));
  const qn_i64 v3 = qn_i64(packUint2x32(uvec2(qn_push[4], qn_push[5])));
  const uint qn_thread = gl_LocalInvocationID.x;
  const uint qn_threads = gl_WorkGroupSize.x;
  const qn_i64 qn_block_first = qn_i64(gl_WorkGroupID.x);
  const qn_i64 qn_block_step = qn_i64(gl_NumWorkGroups.x);
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
        b6[uint(((v8 * 33l) + v7))] = b0[uint(((v9 * v3) + v10)) + b0_at];
      }
      const qn_i64 v11 = ((v5 * 32l) + v8) + 8l;
      const qn_i64 v12 = (v4 * 32l) + v7;
      if ((v11 < v2) && (v12 < v3)) {
        b6[uint((((v8 + 8l) * 33l) + v7))] = b0[uint(((v11 * v3) + v12)) + b0_at];
      }
      const qn_i64 v13 = ((v5 * 32l) + v8) + 16l;
      const qn_i64 v14 = (v4 * 32l) + v7;
      if ((v13 < v2) && (v14 < v3)) {
        b6[uint((((v8 + 16l) * 33l) + v7))] = b0[uint(((v13 * v3) + v14)) + b0_at];
      }
      const qn_i64 v15 = ((v5 * 32l) + v8) + 24l;
      const qn_i64 v16 = (v4 * 32l) + v7;
      if ((v15 < v2) && (v16 < v3)) {
        b6[uint((((v8 + 24l) * 33l) + v7))] = b0[uint(((v15 * v3) + v16)) + b0_at];
      }
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      const qn_i64 v17 = (v4 * 32l) + v8;
      const qn_i64 v18 = (v5 * 32l) + v7;
      if ((v17 < v3) && (v18 < v2)) {
        b1[uint(((v17 * v2) + v18)) + b1_at] = b6[uint(((v7 * 33l) + v8))];
      }
      const qn_i64 v19 = ((v4 * 32l) + v8) + 8l;
      const qn_i64 v20 = (v5 * 32l) + v7;
      if ((v19 < v3) && (v20 < v2)) {
        b1[uint(((v19 * v2) + v20)) + b1_at] = b6[uint(((v7 * 33l) + (v8 + 8l)))];
      }
      const qn_i64 v21 = ((v4 * 32l) + v8) + 16l;
      const qn_i64 v22 = (v5 * 32l) + v7;
      if ((v21 < v3) && (v22 < v2)) {
        b1[uint(((v21 * v2) + v22)) + b1_at] = b6[uint(((v7 * 33l) + (v8 + 16l)))];
      }
      const qn_i64 v23 = ((v4 * 32l) + v8) + 24l;
      const qn_i64 v24 = (v5 * 32l) + v7;
      if ((v23 < v3) && (v24 < v2)) {
        b1[uint(((v23 * v2) + v24)) + b1_at] = b6[uint(((v7 * 33l) + (v8 + 24l)))];
      }
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
  }
}
