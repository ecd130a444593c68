#version 450
// Keeps the device busy: `rounds` steps of a generator, then out[0] = the result.
layout(local_size_x = 1) in;
layout(set = 0, binding = 0, std430) buffer Out { uint data[]; };
layout(push_constant) uniform Push { uint first; uint rounds; };
void main() {
  uint x = data[first];
  for (uint i = 0u; i < rounds; i++) x = x * 1664525u + 1013904223u;
  data[first] = x;
}
