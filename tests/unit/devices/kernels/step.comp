#version 450
// y[i] = 3 y[i] + x[i]: the order of several steps shows in the result.
layout(local_size_x = 64) in;
layout(set = 0, binding = 0, std430) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1, std430) buffer Y { uint y[]; };
layout(push_constant) uniform Push { uint x_first; uint y_first; uint count; };
void main() {
  uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) {
    y[y_first + i] = y[y_first + i] * 3u + x[x_first + i];
  }
}
