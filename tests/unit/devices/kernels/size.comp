#version 450
// The block's size is chosen at the launch: out[thread] = size of the block.
layout(local_size_x_id = 0) in;
layout(set = 0, binding = 0, std430) buffer Out { uint data[]; };
layout(push_constant) uniform Push { uint first; };
void main() { data[first + gl_GlobalInvocationID.x] = gl_WorkGroupSize.x; }
