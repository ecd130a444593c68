// kernel 0, of function softmax
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer Qb0 { float b0[]; };
layout(set = 0, binding = 1, std430) coherent buffer Qb1 { float b1[]; };
layout(push_constant, std430) uniform Qpush { uint qn_push[6]; };
shared float b5[8];
float qn_exact_add_f32(float a, float b) { precise float r = a + b; return r; }
float qn_exact_sub_f32(float a, float b) { precise float r = a - b; return r; }
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
      float t2 = QN_F32_FROM(0xff800000u);
      const int t3 = qn_ceildiv_i32((v3 - v6), 256);
      for (int v7 = 0; v7 < t3; ++v7) {
        const int v8 = (v7 * 256) + v6;
        t2 = qn_max_f32(t2, b0[uint(((v4 * v3) + v8)) + b0_at]);
      }
      const float v9 = t2;
      float v10 = v9;
      for (uint t4 = 16u; t4 > 0u; t4 >>= 1) {
        const float t5 = subgroupShuffle(v10, gl_SubgroupInvocationID ^ t4);
        v10 = qn_max_f32(v10, t5);
      }
      if ((v6 & 31) == 0) {
        b5[uint(v6 >> 5)] = v10;
      }
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      float t6 = QN_F32_FROM(0xff800000u);
      for (int v11 = 0; v11 < 8; ++v11) {
        t6 = qn_max_f32(t6, b5[uint(v11)]);
      }
      const float v12 = t6;
      float t7 = 0.0f;
      const int t8 = qn_ceildiv_i32((v3 - v6), 256);
      for (int v13 = 0; v13 < t8; ++v13) {
        const int v14 = (v13 * 256) + v6;
        t7 = qn_exact_add_f32(t7, qn_exp_f32(qn_exact_sub_f32(b0[uint(((v4 * v3) + v14)) + b0_at], v12)));
      }
      const float v15 = t7;
      float v16 = v15;
      for (uint t9 = 16u; t9 > 0u; t9 >>= 1) {
        const float t10 = subgroupShuffle(v16, gl_SubgroupInvocationID ^ t9);
        v16 = qn_exact_add_f32(v16, t10);
      }
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      if ((v6 & 31) == 0) {
        b5[uint(v6 >> 5)] = v16;
      }
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      float t11 = 0.0f;
      for (int v17 = 0; v17 < 8; ++v17) {
        t11 = qn_exact_add_f32(t11, b5[uint(v17)]);
      }
      const float v18 = t11;
      const int t12 = qn_ceildiv_i32((v3 - v6), 256);
      for (int v19 = 0; v19 < t12; ++v19) {
        const int v20 = (v19 * 256) + v6;
        b1[uint(((v4 * v3) + v20)) + b1_at] = qn_div_f32(qn_exp_f32(qn_exact_sub_f32(b0[uint(((v4 * v3) + v20)) + b0_at], v12)), v18);
      }
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
  }
}

// kernel 1, of function softmax
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer Qb0 { float b0[]; };
layout(set = 0, binding = 1, std430) coherent buffer Qb1 { float b1[]; };
layout(push_constant, std430) uniform Qpush { uint qn_push[6]; };
shared float b5[8];
float qn_exact_add_f32(float a, float b) { precise float r = a + b; return r; }
float qn_exact_sub_f32(float a, float b) { precise float r = a - b; return r; }
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
      float t2 = QN_F32_FROM(0xff800000u);
      const qn_i64 t3 = qn_ceildiv_i64((v3 - v6), 256l);
      for (qn_i64 v7 = 0l; v7 < t3; ++v7) {
        const qn_i64 v8 = (v7 * 256l) + v6;
        t2 = qn_max_f32(t2, b0[uint(((v4 * v3) + v8)) + b0_at]);
      }
      const float v9 = t2;
      float v10 = v9;
      for (uint t4 = 16u; t4 > 0u; t4 >>= 1) {
        const float t5 = subgroupShuffle(v10, gl_SubgroupInvocationID ^ t4);
        v10 = qn_max_f32(v10, t5);
      }
      if ((v6 & 31l) == 0l) {
        b5[uint(v6 >> 5)] = v10;
      }
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      float t6 = QN_F32_FROM(0xff800000u);
      for (qn_i64 v11 = 0l; v11 < 8l; ++v11) {
        t6 = qn_max_f32(t6, b5[uint(v11)]);
      }
      const float v12 = t6;
      float t7 = 0.0f;
      const qn_i64 t8 = qn_ceildiv_i64((v3 - v6), 256l);
      for (qn_i64 v13 = 0l; v13 < t8; ++v13) {
        const qn_i64 v14 = (v13 * 256l) + v6;
        t7 = qn_exact_add_f32(t7, qn_exp_f32(qn_exact_sub_f32(b0[uint(((v4 * v3) + v14)) + b0_at], v12)));
      }
      const float v15 = t7;
      float v16 = v15;
      for (uint t9 = 16u; t9 > 0u; t9 >>= 1) {
        const float t10 = subgroupShuffle(v16, gl_SubgroupInvocationID ^ t9);
        v16 = qn_exact_add_f32(v16, t10);
      }
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      if ((v6 & 31l) == 0l) {
        b5[uint(v6 >> 5)] = v16;
      }
      controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
      float t11 = 0.0f;
      for (qn_i64 v17 = 0l; v17 < 8l; ++v17) {
        t11 = qn_exact_add_f32(t11, b5[uint(v17)]);
      }
      const float v18 = t11;
      const qn_i64 t12 = qn_ceildiv_i64((v3 - v6), 256l);
      for (qn_i64 v19 = 0l; v19 < t12; ++v19) {
        const qn_i64 v20 = (v19 * 256l) + v6;
        b1[uint(((v4 * v3) + v20)) + b1_at] = qn_div_f32(qn_exp_f32(qn_exact_sub_f32(b0[uint(((v4 * v3) + v20)) + b0_at], v12)), v18);
      }
    }
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsShared | gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
  }
}
