# SPDX-License-Identifier: Apache-2.0
# GPU targets from the command: forms of code, devices that are not here, bundles made for others.
. "${0%/*}/lib.sh"

# ---- what needs neither device nor driver
export QUERN_CUDA_LIBRARY=/nonexistent/libcuda.so.1
expect 0 targets cuda --json
json 'it["target"]["arch"] == "sm_80" and it["runs_here"] is False'
expect 0 targets 'cuda -arch=sm_90a -index_bits=64' --json
json 'it["target"]["arch"] == "sm_90a" and it["target"]["index_bits"] == 64'
expect 1 targets 'cuda -index_bits=8'
tells "0, 32 or 64, not 8"
expect 3 targets 'cuda -from_device=0'
tells "no device 0 of kind 'cuda'"
expect 3 devices cuda:0
expect 3 run examples/ir/saxpy.qn --target cuda --arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8]
expect 3 conformance --device cuda:0
modules=$(dirname "$QUERN")/../lib
has_module() { [ -e "$modules/libquern-$1.so" ]; }
why="the driver cannot be opened: /nonexistent/libcuda.so.1"
has_module nvrtc || why="quern was built without it: build it with QUERN_CUDA=ON"
tells "no device cuda:0; there are 0 of that type: $why"
expect 0 devices --json
json "'$why' in it['absent']['cuda']"
expect 3 conformance --plugin /nonexistent/plugin.so
tells "plugin '/nonexistent/plugin.so'"

# ---- CUDA C, with whatever NVRTC there is; without one the word is clear
if has_module nvrtc; then
  QUERN_NVRTC_LIBRARY=/nonexistent/libnvrtc.so
  export QUERN_NVRTC_LIBRARY
  expect 3 compile examples/ir/softmax.qn --target cuda
  tells "needs libnvrtc"
  expect 2 compile examples/ir/softmax.qn --target cuda --emit cubin --json
  tells "is binary; name a file with -o"
  unset QUERN_NVRTC_LIBRARY
  [ -z "${FAKE_CUDA:-}" ] || export QUERN_NVRTC_LIBRARY="$FAKE_CUDA/libnvrtc.so"
  quern compile examples/ir/softmax.qn --target 'cuda -arch=sm_90a'
  if [ "$code" -eq 0 ]; then
    says "__global__"
    expect 1 compile examples/ir/softmax.qn --target cuda --emit asm
    tells "there are ir, cuda, ptx, cubin and sass"
  fi
  unset QUERN_NVRTC_LIBRARY
fi

# ---- Vulkan: shaders without a device, then on one if it is here
if has_module shaderc; then
  expect 0 compile examples/ir/softmax.qn --target 'vulkan -warp_size=32'
  says "void main()"
  expect 0 compile examples/ir/softmax.qn --target 'vulkan -warp_size=32' --emit spirv -o softmax.spv
  [ "$(od -An -tx4 -N4 softmax.spv | tr -d ' ')" = 07230203 ] || fail "softmax.spv is no SPIR-V"
  expect 0 compile examples/ir/softmax.qn --target 'vulkan -warp_size=32' --emit spirv-asm
  says "OpEntryPoint GLCompute"
  quern devices vulkan:0
  if [ "$code" -eq 0 ]; then
    expect 0 run examples/ir/saxpy.qn --target vulkan --arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8] --json
    json 'it["outputs"]["y"]["values"] == [1, 3, 5, 7, 9, 11, 13, 15]'
    # A bundle runs where there is no generator.
    echo "examples/ir/saxpy.qn --target vulkan" >list
    expect 0 warm list --bundle kernels.qnb
    QUERN_CACHE_DIR= QUERN_CACHE=ro QUERN_BUNDLES=$work/kernels.qnb QUERN_GENERATOR_DIR=none \
      expect 0 run examples/ir/saxpy.qn --target vulkan --arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8] --json
    json 'it["source"] == "bundle" and it["outputs"]["y"]["values"] == [1, 3, 5, 7, 9, 11, 13, 15]'
    QUERN_CACHE_DIR= QUERN_CACHE=ro QUERN_GENERATOR_DIR=none \
      expect 3 run examples/ir/saxpy.qn --target vulkan --arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8]
    tells "code generator 'shaderc' is not installed"
  fi
fi

# ---- no Vulkan loader at all
export QUERN_VULKAN_LIBRARY=/nonexistent/libvulkan.so.1
expect 3 devices vulkan:0
expect 3 run examples/ir/saxpy.qn --target vulkan --arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8]
expect 0 run examples/ir/saxpy.qn --target interp --arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8]

# ---- a cubin in a bundle on the fake driver
if [ -n "${FAKE_CUDA:-}" ] && [ -e "$FAKE_CUDA/libcuda.so.1" ] && has_module nvrtc; then
  export QUERN_CUDA_LIBRARY=$FAKE_CUDA/libcuda.so.1
  export QUERN_NVRTC_LIBRARY=$FAKE_CUDA/libnvrtc.so
  expect 0 run examples/ir/saxpy.qn --target cuda --arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8] --json
  json 'it["outputs"]["y"]["values"] == [1, 3, 5, 7, 9, 11, 13, 15]'
  echo "examples/ir/saxpy.qn --target cuda" >list
  expect 0 warm list --bundle cuda.qnb
  mkdir -p nothing
  export QUERN_NVRTC_LIBRARY=/nonexistent/libnvrtc.so
  QUERN_CACHE_DIR= QUERN_CACHE=ro QUERN_BUNDLES=$work/cuda.qnb \
    expect 0 run examples/ir/saxpy.qn --target cuda --arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8] --json
  json 'it["source"] == "bundle" and it["outputs"]["y"]["values"] == [1, 3, 5, 7, 9, 11, 13, 15]'
fi
done_with gpu
