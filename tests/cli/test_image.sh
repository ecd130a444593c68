# SPDX-License-Identifier: Apache-2.0
# A container image as it should be: bundles, no writable disk, no HOME, and no compiler.
. "${0%/*}/lib.sh"
$has_cpu || { echo "no code generator: no image to make"; exit 0; }
lib=$(dirname "$QUERN")/../lib
[ -e "$lib/libquern-llvm.so" ] || lib=$lib/quern
saxpy="run examples/ir/saxpy.qn --target cpu --arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8]"
softmax="run examples/ir/softmax.qn --target cpu --arg x=rand:f32[3,5]:1 --arg y=zeros:f32[3,5]"

# A second compiler: the same one with another build id, in its file as in memory.
mkdir other empty
python3 - "$lib/libquern-llvm.so" <<'PYTHON'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
at = data.index(b"GNU\0", data.index(struct.pack("<III", 4, 20, 3) + b"GNU\0"))
data[at + 4] ^= 0xFF
open("other/libquern-llvm.so", "wb").write(data)
PYTHON
# shellcheck disable=SC2086
expect 0 $saxpy --json
json 'it["source"] == "compiled"'
saxpy_key=$(python3 -c 'import json; print(json.load(open("out"))["key"])')
expect 0 cache export one.qnb
expect 0 cache clear
# shellcheck disable=SC2086
QUERN_GENERATOR_DIR=$work/other expect 0 $saxpy --json
json "it['source'] == 'compiled' and it['key'] != '$saxpy_key'"
expect 0 cache clear
# shellcheck disable=SC2086
QUERN_GENERATOR_DIR=$work/other expect 0 $softmax --json
softmax_key=$(python3 -c 'import json; print(json.load(open("out"))["key"])')
expect 0 cache export two.qnb
expect 0 cache merge both.qnb one.qnb two.qnb
expect 0 cache ls --bundle both.qnb --json
json 'len(it["generators"]) == 2'

# in_image ARG...: nothing but the bundles; no generators, nowhere to write.
in_image() {
  env -u QUERN_CACHE_DIR -u HOME -u XDG_CACHE_HOME QUERN_GENERATOR_DIR=none \
    QUERN_JIT=forbid "QUERN_BUNDLES=$bundles" "$QUERN" "$@" >out 2>err
}
# from_bundle KEY ARG...
from_bundle() {
  wanted=$1
  shift
  in_image "$@" --json || fail "in the image: $*"
  json "it['source'] == 'bundle' and it['key'] == '$wanted'"
}
for bundles in both.qnb one.qnb:two.qnb two.qnb:one.qnb nosuch.qnb:both.qnb:; do
  # shellcheck disable=SC2086
  from_bundle "$saxpy_key" $saxpy
  # shellcheck disable=SC2086
  from_bundle "$softmax_key" $softmax
done
tells "nosuch.qnb"
# What is in no bundle is an error that names the key, and is over at once.
bundles=one.qnb
code=0
# shellcheck disable=SC2086
in_image $softmax || code=$?
[ "$code" -eq 3 ] || fail "a kernel that no bundle has: expected exit code 3, got $code"
tells "compile forbidden"
# Where the compiler is installed, the code of another one is not used.
bundles=
# shellcheck disable=SC2086
QUERN_CACHE=off QUERN_BUNDLES=two.qnb expect 0 $softmax --json
json 'it["source"] == "compiled"'
# shellcheck disable=SC2086
QUERN_CACHE_DIR=$work/new QUERN_BUNDLES=two.qnb expect 0 $softmax --json
json "it['source'] == 'compiled' and it['key'] != '$softmax_key'"
# shellcheck disable=SC2086
QUERN_CACHE_DIR=$work/new QUERN_BUNDLES=one.qnb expect 0 $saxpy --json
json "it['source'] == 'bundle' and it['key'] == '$saxpy_key'"

# Signed bundles alone, and a file that was changed behind the signature's back.
quern cache keygen release
if [ "$code" -eq 0 ]; then
  expect 0 cache merge signed.qnb both.qnb --sign release.key
  export QUERN_BUNDLE_KEYS=release.pub
  # The modules of the cache are searched where the library is.
  bundles=one.qnb:signed.qnb
  # shellcheck disable=SC2086
  from_bundle "$saxpy_key" $saxpy
  tells "one.qnb"
  bundles=one.qnb
  # shellcheck disable=SC2086
  in_image $saxpy && fail "a bundle that is not signed was used"
  tells "not signed"
  # Keys that cannot be had let nothing in.
  for QUERN_BUNDLE_KEYS in : nosuch.pub release.pub:nosuch.pub; do
    bundles=both.qnb:signed.qnb
    # shellcheck disable=SC2086
    in_image $saxpy && fail "a bundle was used with the keys '$QUERN_BUNDLE_KEYS'"
    checks=$((checks + 1))
  done
  QUERN_BUNDLE_KEYS=release.pub
  python3 - <<'PYTHON'
data = bytearray(open("signed.qnb", "rb").read())
for at in range(64 + 112, 64 + 1200):
    data[at] ^= 1
open("signed.qnb", "wb").write(data)
PYTHON
  bundles=signed.qnb
  code=0
  # shellcheck disable=SC2086
  in_image $saxpy || code=$?
  other=0
  # shellcheck disable=SC2086
  in_image $softmax || other=$?
  [ "$code$other" = 30 ] || [ "$code$other" = 03 ] || fail "one of two entries was changed: $code $other"
  checks=$((checks + 1))
fi

done_with image
