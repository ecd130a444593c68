# SPDX-License-Identifier: Apache-2.0
# Parts that a build was made without: each verb names the part and says what to do. In a whole build the
# generators are hidden instead, and the words are about where they are looked for.
. "${0%/*}/lib.sh"

modules=$(dirname "$QUERN")/../lib
[ -d "$modules" ] || modules=$(dirname "$QUERN")/../lib64
has_module() { [ -n "$(find "$modules/" -name "libquern-$1.so" | head -n 1)" ]; }
rebuild="quern was built without it: build it with"
mkdir nothing
saxpy="examples/ir/saxpy.qn --arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8]"

# without GENERATOR OPTION TARGET: what takes that generator says that it is not there.
without() {
  if has_module "$1"; then
    advice="set QUERN_GENERATOR_DIR, or use --target interp"
    export QUERN_GENERATOR_DIR=none
  else
    advice="$rebuild $2=ON"
  fi
  expect 3 compile examples/ir/saxpy.qn --target "$3"
  tells "code generator '$1' is not installed: no "
  tells "$advice"
  expect 3 compile examples/ir/saxpy.qn --target "$3" --json
  json 'it["error"]["kind"] == "unavailable" and "is not installed" in it["error"]["message"]'
  # A machine that lacks something fails no case.
  expect 0 conformance --target "$3" --emit ir --filter ^statements/let
  says "unsupported "
  says "code generator '$1' is not installed"
  # What a target means is known without its generator.
  expect 0 targets "$3" --json
  unset QUERN_GENERATOR_DIR
}
without llvm QUERN_LLVM 'cpu -mcpu=x86-64-v3'
without nvrtc QUERN_CUDA 'cuda -arch=sm_90a'
without shaderc QUERN_VULKAN 'vulkan -warp_size=32'

# ---- the CPU is here, its generator is not
if ! has_module llvm; then
  # shellcheck disable=SC2086
  expect 3 run $saxpy
  tells "$rebuild QUERN_LLVM=ON (needs llvm-19-dev), or use --target interp"
  expect 0 conformance --device cpu --filter ^dtypes/storage/f32
  says "unsupported cpu: dtypes/storage/f32: code generator 'llvm' is not installed"
  expect 1 warm examples/warm.list
  tells "$rebuild QUERN_LLVM=ON"
fi

# ---- GPUs whose devices were left out: quern/config.h says so in the generator's place
for kind in cuda vulkan; do
  option=QUERN_$(echo $kind | tr '[:lower:]' '[:upper:]')
  quern devices $kind:0
  grep -qF "$rebuild" err || continue
  tells "no device $kind:0; there are 0 of that type: $rebuild $option=ON"
  [ "$code" -eq 3 ] || fail "quern devices $kind:0: code $code"
  expect 0 devices --json
  json "'$rebuild $option=ON' in it['absent']['$kind']"
  # shellcheck disable=SC2086
  expect 3 run $saxpy --target $kind
  tells "$rebuild $option=ON"
  expect 3 conformance --device $kind:0
  tells "$rebuild $option=ON"
  expect 0 targets $kind
  says "not on this machine: no device of kind '$kind' is here: $rebuild $option=ON"
  expect 3 targets "$kind -from_device=0"
  tells "no device 0 of kind '$kind' on this machine, which has 0: $rebuild $option=ON"
done

# ---- cryptography and the remote tier
if ! has_module sodium; then
  expect 3 cache keygen mine
  tells "module 'sodium' is not installed: no "
  tells "$rebuild QUERN_REMOTE=ON (needs libsodium-dev)"
fi
if ! has_module redis; then
  printf '%064d\n' 1 >key
  chmod 600 key
  # shellcheck disable=SC2086
  QUERN_REMOTE=redis://127.0.0.1:1 QUERN_REMOTE_KEY=$work/key expect 0 run $saxpy --target interp
  tells "the remote tier is not used: remote tier: no store for redis://127.0.0.1:1: module 'redis' is not installed: no "
  tells "$rebuild QUERN_REMOTE=ON (needs libhiredis-dev)"
fi

# ---- what needs none of them
# shellcheck disable=SC2086
expect 0 run $saxpy --target interp --json
json 'it["outputs"]["y"]["values"] == [1, 3, 5, 7, 9, 11, 13, 15]'
expect 0 conformance --device interp --filter ^memory/
expect 0 check examples/ir/softmax.qn
expect 0 version

done_with parts
