// kernel 0, of function block_norm
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer Qb0 { float b0[]; };
layout(set = 0, binding = 1, std430) coherent buffer Qb1 { float b1[]; };
layout(push_constant, std430) uniform Qpush { uint qn_push[6]; };
shared float b5[256];
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
      const int v6 = int(qn_thread);
      float t2 = 0.0f;
      const int t3 = int(qn_ceildiv_u32(uint(v3), uint(256)));
      for (int v7 = 0; v7 < t3; ++v7) {
        const int v8 = (v7 * 256) + v6;
        const float v9 = (v8 < v3) ? b0[uint(((v4 * v3) + v8)) + b0_at] : 0.0f;
        t2 = qn_exact_add_f32(t2, qn_exact_mul_f32(v9, v9));
      }
      const float v10 = t2;
      float v11 = v10;
      for (uint t4 = 16u; t4 > 0u; t4 >>= 1) {
        const float t5 = subgroupShuffle(v11, gl_SubgroupInvocationID ^ t4);
        v11 = qn_exact_add_f32(v11, t5);
      }
      if ((v6 & 31) == 0) {
        b5[uint(v6 >> 5)] = v11;
      }
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      if (v6 == 0) {
        float t6 = 0.0f;
        for (int v12 = 0; v12 < 8; ++v12) {
          t6 = qn_exact_add_f32(t6, b5[uint(v12)]);
        }
        b1[uint(v4) + b1_at] = qn_sqrt_f32(t6);
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
shared float b5[256];
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
      const qn_i64 v6 = qn_i64(qn_thread);
      float t2 = 0.0f;
      const qn_i64 t3 = qn_i64(qn_ceildiv_u64(qn_u64(v3), qn_u64(256l)));
      for (qn_i64 v7 = 0l; v7 < t3; ++v7) {
        const qn_i64 v8 = (v7 * 256l) + v6;
        const float v9 = (v8 < v3) ? b0[uint(((v4 * v3) + v8)) + b0_at] : 0.0f;
        t2 = qn_exact_add_f32(t2, qn_exact_mul_f32(v9, v9));
      }
      const float v10 = t2;
      float v11 = v10;
      for (uint t4 = 16u; t4 > 0u; t4 >>= 1) {
        const float t5 = subgroupShuffle(v11, gl_SubgroupInvocationID ^ t4);
        v11 = qn_exact_add_f32(v11, t5);
      }
      if ((v6 & 31l) == 0l) {
        b5[uint(v6 >> 5)] = v11;
      }
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      if (v6 == 0l) {
        float t6 = 0.0f;
        for (qn_i64 v12 = 0l; v12 < 8l; ++v12) {
          t6 = qn_exact_add_f32(t6, b5[uint(v12)]);
        }
        b1[uint(v4) + b1_at] = qn_sqrt_f32(t6);
      }
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
  }
}
