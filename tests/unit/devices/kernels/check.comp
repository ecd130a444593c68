#version 450
// A launch that can fail: where x[i] > limit it fails at site 7 with index i and extent limit;
// otherwise out[i] = x[i]. It does nothing behind the failure of another launch.
layout(local_size_x = 64) in;
layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1, std430) buffer Out { uint data[]; };
layout(set = 0, binding = 2, std430) buffer Record { uint record[]; };
layout(push_constant) uniform Push {
  uint x_first; uint out_first; uint record_first; uint count; uint limit; uint tag;
};
void main() {
  uint failed = record[record_first];
  if (failed != 0u && failed != tag) return;
  uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) {
    uint value = x[x_first + i];
    if (value > limit) {
      if (atomicCompSwap(record[record_first], 0u, tag) == 0u) {
        record[record_first + 1] = 7u;
        record[record_first + 2] = i;
        record[record_first + 3] = 0u;
        record[record_first + 4] = limit;
        record[record_first + 5] = 0u;
      }
      return;
    }
    data[out_first + i] = value;
  }
}
