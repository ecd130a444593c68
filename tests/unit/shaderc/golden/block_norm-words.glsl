// kernel 0, of function block_norm
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer Qb0 { float b0[]; };
layout(set = 0, binding = 1, std430) coherent buffer Qb1 { float b1[]; };
layout(push_constant, std430) uniform Qpush { uint qn_push[6]; };
shared float b5[8];
shared float b6[256];
float qn_exact_add_f32(float a, float b) { precise float r = a + b; return r; }
float qn_exact_mul_f32(float a, float b) { precise float r = a * b; return r; }
void main() {
  const uint b0_at = qn_push[0];
  const uint b1_at = qn_push[1];
  const int v2 = int(qn_push[2]);
  const int v3 = int(qn_push[4]);
  const uint qn_thread = gl_LocalInvocationID.x;
  const uint qn_threads = gl_WorkGroupSize.x;
  const uint qn_block_first = uint(gl_WorkGroupID.x);
  const uint qn_block_step = uint(gl_NumWorkGroups.x);
  const uint t0 = v2 > 0 ? uint(v2) : 0u;
  for (uint t1 = qn_block_first; t1 < t0; t1 += qn_block_step) {
    const int v4 = int(t1);
    {
      const int v7 = int(qn_thread);
      float t2 = 0.0f;
      const int t3 = int(qn_ceildiv_u32(uint(v3), uint(256)));
      for (int v8 = 0; v8 < t3; ++v8) {
        const int v9 = (v8 * 256) + v7;
        const float v10 = (v9 < v3) ? b0[uint(((v4 * v3) + v9)) + b0_at] : 0.0f;
        t2 = qn_exact_add_f32(t2, qn_exact_mul_f32(v10, v10));
      }
      const float v11 = t2;
      b6[uint(v7)] = v11;
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      const int v12 = v7 & 31;
      const int v13 = v12 ^ 16;
      const float v14 = b6[uint((((v13 >= 0) && (v13 < 32)) && (((v7 - v12) + v13) < 256)) ? ((v7 - v12) + v13) : v7)];
      const float v15 = qn_exact_add_f32(v11, v14);
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      b6[uint(v7)] = v15;
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      const int v16 = v7 & 31;
      const int v17 = v16 ^ 8;
      const float v18 = b6[uint((((v17 >= 0) && (v17 < 32)) && (((v7 - v16) + v17) < 256)) ? ((v7 - v16) + v17) : v7)];
      const float v19 = qn_exact_add_f32(v15, v18);
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      b6[uint(v7)] = v19;
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      const int v20 = v7 & 31;
      const int v21 = v20 ^ 4;
      const float v22 = b6[uint((((v21 >= 0) && (v21 < 32)) && (((v7 - v20) + v21) < 256)) ? ((v7 - v20) + v21) : v7)];
      const float v23 = qn_exact_add_f32(v19, v22);
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      b6[uint(v7)] = v23;
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      const int v24 = v7 & 31;
      const int v25 = v24 ^ 2;
      const float v26 = b6[uint((((v25 >= 0) && (v25 < 32)) && (((v7 - v24) + v25) < 256)) ? ((v7 - v24) + v25) : v7)];
      const float v27 = qn_exact_add_f32(v23, v26);
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      b6[uint(v7)] = v27;
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      const int v28 = v7 & 31;
      const int v29 = v28 ^ 1;
      const float v30 = b6[uint((((v29 >= 0) && (v29 < 32)) && (((v7 - v28) + v29) < 256)) ? ((v7 - v28) + v29) : v7)];
      const float v31 = qn_exact_add_f32(v27, v30);
      if ((v7 & 31) == 0) {
        b5[uint(v7 >> 5)] = v31;
      }
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      if (v7 == 0) {
        float t4 = 0.0f;
        for (int v32 = 0; v32 < 8; ++v32) {
          t4 = qn_exact_add_f32(t4, b5[uint(v32)]);
        }
        b1[uint(v4) + b1_at] = qn_sqrt_f32(t4);
      }
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
  }
}

// kernel 1, of function block_norm
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer Qb0 { float b0[]; };
layout(set = 0, binding = 1, std430) coherent buffer Qb1 { float b1[]; };
layout(push_constant, std430) uniform Qpush { uint qn_push[6]; };
shared float b5[8];
shared float b6[256];
float qn_exact_add_f32(float a, float b) { precise float r = a + b; return r; }
float qn_exact_mul_f32(float a, float b) { precise float r = a * b; return r; }
void main() {
  const uint b0_at = qn_push[0];
  const uint b1_at = qn_push[1];
  const qn_i64 v2 = qn_i64(packUint2x32(uvec2(qn_push[2], qn_push[3])));
  const qn_i64 v3 = qn_i64(packUint2x32(uvec2(qn_push[4], qn_push[5])));
  const uint qn_thread = gl_LocalInvocationID.x;
  const uint qn_threads = gl_WorkGroupSize.x;
  const qn_i64 qn_block_first = qn_i64(gl_WorkGroupID.x);
  const qn_i64 qn_block_step = qn_i64(gl_NumWorkGroups.x);
  const qn_u64 t0 = v2 > 0l ? qn_u64(v2) : 0ul;
  for (qn_u64 t1 = qn_block_first; t1 < t0; t1 += qn_block_step) {
    const qn_i64 v4 = qn_i64(t1);
    {
      const qn_i64 v7 = qn_i64(qn_thread);
      float t2 = 0.0f;
      const qn_i64 t3 = qn_i64(qn_ceildiv_u64(qn_u64(v3), qn_u64(256l)));
      for (qn_i64 v8 = 0l; v8 < t3; ++v8) {
        const qn_i64 v9 = (v8 * 256l) + v7;
        const float v10 = (v9 < v3) ? b0[uint(((v4 * v3) + v9)) + b0_at] : 0.0f;
        t2 = qn_exact_add_f32(t2, qn_exact_mul_f32(v10, v10));
      }
      const float v11 = t2;
      b6[uint(v7)] = v11;
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      const qn_i64 v12 = v7 & 31l;
      const qn_i64 v13 = v12 ^ 16l;
      const float v14 = b6[uint((((v13 >= 0l) && (v13 < 32l)) && (((v7 - v12) + v13) < 256l)) ? ((v7 - v12) + v13) : v7)];
      const float v15 = qn_exact_add_f32(v11, v14);
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      b6[uint(v7)] = v15;
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      const qn_i64 v16 = v7 & 31l;
      const qn_i64 v17 = v16 ^ 8l;
      const float v18 = b6[uint((((v17 >= 0l) && (v17 < 32l)) && (((v7 - v16) + v17) < 256l)) ? ((v7 - v16) + v17) : v7)];
      const float v19 = qn_exact_add_f32(v15, v18);
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      b6[uint(v7)] = v19;
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      const qn_i64 v20 = v7 & 31l;
      const qn_i64 v21 = v20 ^ 4l;
      const float v22 = b6[uint((((v21 >= 0l) && (v21 < 32l)) && (((v7 - v20) + v21) < 256l)) ? ((v7 - v20) + v21) : v7)];
      const float v23 = qn_exact_add_f32(v19, v22);
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      b6[uint(v7)] = v23;
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      const qn_i64 v24 = v7 & 31l;
      const qn_i64 v25 = v24 ^ 2l;
      const float v26 = b6[uint((((v25 >= 0l) && (v25 < 32l)) && (((v7 - v24) + v25) < 256l)) ? ((v7 - v24) + v25) : v7)];
      const float v27 = qn_exact_add_f32(v23, v26);
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      b6[uint(v7)] = v27;
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      const qn_i64 v28 = v7 & 31l;
      const qn_i64 v29 = v28 ^ 1l;
      const float v30 = b6[uint((((v29 >= 0l) && (v29 < 32l)) && (((v7 - v28) + v29) < 256l)) ? ((v7 - v28) + v29) : v7)];
      const float v31 = qn_exact_add_f32(v27, v30);
      if ((v7 & 31l) == 0l) {
        b5[uint(v7 >> 5)] = v31;
      }
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      if (v7 == 0l) {
        float t4 = 0.0f;
        for (qn_i64 v32 = 0l; v32 < 8l; ++v32) {
          t4 = qn_exact_add_f32(t4, b5[uint(v32)]);
        }
        b1[uint(v4) + b1_at] = qn_sqrt_f32(t4);
      }
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
  }
}
