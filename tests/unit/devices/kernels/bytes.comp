#version 450
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
// out[i] = uint8_t(i + value): elements of one byte.
layout(local_size_x = 64) in;
layout(set = 0, binding = 0, std430) buffer Out { uint8_t data[]; };
layout(push_constant) uniform Push { uint first; uint count; uint value; };
void main() {
  uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  for (uint i = gl_GlobalInvocationID.x; i < count; i += stride) {
    data[first + i] = uint8_t(value + i);
  }
}
