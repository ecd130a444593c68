// kernel 0, of function saxpy
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer Qb0 { float b0[]; };
layout(set = 0, binding = 1, std430) buffer Qb1 { float b1[]; };
layout(push_constant, std430) uniform Qpush { uint qn_push[5]; };
float qn_exact_add_f32(float a, float b) { precise float r = a + b; return r; }
float qn_exact_mul_f32(float a, float b) { precise float r = a * b; return r; }
void main() {
  const uint b0_at = qn_push[0];
  const uint b1_at = qn_push[1];
  const int v2 = int(qn_push[2]);
  const float v3 = uintBitsToFloat(qn_push[4]);
  const uint qn_thread = gl_LocalInvocationID.x;
  const uint qn_threads = gl_WorkGroupSize.x;
  const uint qn_block_first = uint(gl_WorkGroupID.x);
  const uint qn_block_step = uint(gl_NumWorkGroups.x);
  const int t0 = int(qn_ceildiv_u32(uint(v2), uint(1024)));
  const uint t1 = t0 > 0 ? uint(t0) : 0u;
  for (uint t2 = qn_block_first; t2 < t1; t2 += qn_block_step) {
    const int v4 = int(t2);
    {
      const int v5 = int(qn_thread);
      const int v6 = v4 * 1024;
      for (int v7 = 0; v7 < 4; ++v7) {
        const int v8 = (v6 + (v7 * 256)) + v5;
        if (v8 < v2) {
          b1[uint(v8) + b1_at] = qn_exact_add_f32(qn_exact_mul_f32(v3, b0[uint(v8) + b0_at]), b1[uint(v8) + b1_at]);
        }
      }
    }
  }
}

// kernel 1, of function saxpy
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer Qb0 { float b0[]; };
layout(set = 0, binding = 1, std430) buffer Qb1 { float b1[]; };
layout(push_constant, std430) uniform Qpush { uint qn_push[5]; };
float qn_exact_add_f32(float a, float b) { precise float r = a + b; return r; }
float qn_exact_mul_f32(float a, float b) { precise float r = a * b; return r; }
void main() {
  const uint b0_at = qn_push[0];
  const uint b1_at = qn_push[1];
  const qn_i64 v2 = qn_i64(packUint2x32(uvec2(qn_push[2], qn_push[3])));
  const float v3 = uintBitsToFloat(qn_push[4]);
  const uint qn_thread = gl_LocalInvocationID.x;
  const uint qn_threads = gl_WorkGroupSize.x;
  const qn_i64 qn_block_first = qn_i64(gl_WorkGroupID.x);
  const qn_i64 qn_block_step = qn_i64(gl_NumWorkGroups.x);
  const qn_i64 t0 = qn_i64(qn_ceildiv_u64(qn_u64(v2), qn_u64(1024l)));
  const qn_u64 t1 = t0 > 0l ? qn_u64(t0) : 0ul;
  for (qn_u64 t2 = qn_block_first; t2 < t1; t2 += qn_block_step) {
    const qn_i64 v4 = qn_i64(t2);
    {
      const qn_i64 v5 = qn_i64(qn_thread);
      const qn_i64 v6 = v4 * 1024l;
      for (qn_i64 v7 = 0l; v7 < 4l; ++v7) {
        const qn_i64 v8 = (v6 + (v7 * 256l)) + v5;
        if (v8 < v2) {
          b1[uint(v8) + b1_at] = qn_exact_add_f32(qn_exact_mul_f32(v3, b0[uint(v8) + b0_at]), b1[uint(v8) + b1_at]);
        }
      }
    }
  }
}
