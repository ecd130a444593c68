#version 450
// More scalars than fit into 128 bytes of push constants: out[0] = their weighted sum.
layout(local_size_x = 1) in;
layout(set = 0, binding = 0, std430) buffer Out { uint data[]; };
layout(set = 0, binding = 1, std430) readonly buffer Push { uint words[]; };
void main() {
  uint sum = 0u;
  for (uint i = 0u; i < 40u; i++) sum = sum * 31u + words[1u + i];
  data[words[0]] = sum;
}
