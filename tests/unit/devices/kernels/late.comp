#version 450
// The second launch of a function that can fail, in a block whose size is chosen at the launch:
// out[i] = x[i] + 1. It does nothing behind the failure of another launch.
layout(local_size_x_id = 0) in;
layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1, std430) buffer Out { uint data[]; };
layout(set = 0, binding = 2, std430) buffer Record { uint record[]; };
layout(push_constant) uniform Push {
  uint x_first; uint out_first; uint record_first; uint count; uint tag;
};
void main() {
  uint failed = record[record_first];
  if (failed != 0u && failed != tag) return;
  uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) {
    data[out_first + i] = x[x_first + i] + 1u;
  }
}
