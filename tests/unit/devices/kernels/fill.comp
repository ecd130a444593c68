#version 450
// out[i] = value + i, striding over blocks.
layout(local_size_x = 64) in;
layout(set = 0, binding = 0, std430) buffer Out { uint data[]; };
layout(push_constant) uniform Push { uint first; uint count; uint value; };
void main() {
  uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) data[first + i] = value + i;
}
