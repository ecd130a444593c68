// kernel 0, of function fir
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer Qb0 { uint b0[]; };
int b0_get(uint at) { return bitfieldExtract(int(b0[at >> 1]), int(((at & 1u) << 4)), 16); }
layout(set = 0, binding = 1, std430) buffer Qb1 { uint b1[]; };
int b1_get(uint at) { return bitfieldExtract(int(b1[at >> 1]), int(((at & 1u) << 4)), 16); }
void b1_set(uint at, uint value) {
  atomicAnd(b1[at >> 1], ~(0xffffu << ((at & 1u) << 4)));
  atomicOr(b1[at >> 1], (value & 0xffffu) << ((at & 1u) << 4));
}
layout(push_constant, std430) uniform Qpush { uint qn_push[4]; };
void main() {
  const uint b0_at = qn_push[0];
  const uint b1_at = qn_push[1];
  const qn_i64 v2 = qn_i64(packUint2x32(uvec2(qn_push[2], qn_push[3])));
  const uint qn_thread = gl_LocalInvocationID.x;
  const uint qn_threads = gl_WorkGroupSize.x;
  const uint qn_block_first = uint(gl_WorkGroupID.x);
  const uint qn_block_step = uint(gl_NumWorkGroups.x);
  const int t0 = int(qn_ceildiv_u32(uint(int(qn_max_i64(v2, 0l))), uint(1024)));
  const uint t1 = t0 > 0 ? uint(t0) : 0u;
  for (uint t2 = qn_block_first; t2 < t1; t2 += qn_block_step) {
    const int v3 = int(t2);
    {
      const int v4 = int(qn_thread);
      const int v5 = v3 * 1024;
      const int v6 = int(qn_max_i64(v2, 0l));
      for (int v7 = 0; v7 < 4; ++v7) {
        const int v8 = (v5 + (v7 * 256)) + v4;
        if (v8 < v6) {
          const int v9 = (int(b0_get(uint(v8) + b0_at)) * 64) + (int(b0_get(uint(2 + v8) + b0_at)) * 64);
          const int v10 = (v9 + (int(b0_get(uint(v8 + 1) + b0_at)) * 128)) + 128;
          b1_set(uint(v8) + b1_at, uint(int(uint(v10 >> 8) << 16) >> 16));
        }
      }
    }
  }
}

// kernel 1, of function fir
layout(local_size_x = 256) in;
layout(set = 0, binding = 0, std430) readonly buffer Qb0 { uint b0[]; };
int b0_get(uint at) { return bitfieldExtract(int(b0[at >> 1]), int(((at & 1u) << 4)), 16); }
layout(set = 0, binding = 1, std430) buffer Qb1 { uint b1[]; };
int b1_get(uint at) { return bitfieldExtract(int(b1[at >> 1]), int(((at & 1u) << 4)), 16); }
void b1_set(uint at, uint value) {
  atomicAnd(b1[at >> 1], ~(0xffffu << ((at & 1u) << 4)));
  atomicOr(b1[at >> 1], (value & 0xffffu) << ((at & 1u) << 4));
}
layout(push_constant, std430) uniform Qpush { uint qn_push[4]; };
void main() {
  const uint b0_at = qn_push[0];
  const uint b1_at = qn_push[1];
  const qn_i64 v2 = qn_i64(packUint2x32(uvec2(qn_push[2], qn_push[3])));
  const uint qn_thread = gl_LocalInvocationID.x;
  const uint qn_threads = gl_WorkGroupSize.x;
  const qn_i64 qn_block_first = qn_i64(gl_WorkGroupID.x);
  const qn_i64 qn_block_step = qn_i64(gl_NumWorkGroups.x);
  const qn_i64 t0 = qn_i64(qn_ceildiv_u64(qn_u64(qn_max_i64(v2, 0l)), qn_u64(1024l)));
  const qn_u64 t1 = t0 > 0l ? qn_u64(t0) : 0ul;
  for (qn_u64 t2 = qn_block_first; t2 < t1; t2 += qn_block_step) {
    const qn_i64 v3 = qn_i64(t2);
    {
      const qn_i64 v4 = qn_i64(qn_thread);
      const qn_i64 v5 = v3 * 1024l;
      const qn_i64 v6 = qn_max_i64(v2, 0l);
      for (qn_i64 v7 = 0l; v7 < 4l; ++v7) {
        const qn_i64 v8 = (v5 + (v7 * 256l)) + v4;
        if (v8 < v6) {
          const int v9 = (int(b0_get(uint(v8) + b0_at)) * 64) + (int(b0_get(uint(2l + v8) + b0_at)) * 64);
          const int v10 = (v9 + (int(b0_get(uint(v8 + 1l) + b0_at)) * 128)) + 128;
          b1_set(uint(v8) + b1_at, uint(int(uint(v10 >> 8) << 16) >> 16));
        }
      }
    }
  }
}
