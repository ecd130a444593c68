# SPDX-License-Identifier: Apache-2.0
# `quern run`: arguments, outputs, files, where the code came from, and what is wrong with a call.
. "${0%/*}/lib.sh"
saxpy=examples/ir/saxpy.qn
softmax=examples/ir/softmax.qn

for target in $TARGETS; do
  expect 0 run $saxpy --target "$target" --arg a=2 --arg x=iota:f32[4] --arg y=ones:f32[4]
  says "y: f32[4]"
  grep -qx "  1 3 5 7" out || fail "a row is a line"
  says "saxpy on $target: "
  says "key "
  expect 0 run $saxpy --target "$target" --arg a=2 --arg x=iota:f32[4] --arg y=ones:f32[4] --json
  json 'it["outputs"]["y"] == {"dtype": "f32", "shape": [4], "values": [1, 3, 5, 7], "min": 1, "max": 7, "mean": 4, "nan_count": 0}'
  json 'len(it["key"]) == 32 and set(it["times_ns"]) == {"parse", "lookup", "compile", "load", "run", "run_least", "run_most"}'
  json 'all(type(t) is int and t >= 0 for t in it["times_ns"].values()) and it["times_ns"]["run"] > 0'
  json "it['target']['kind'] == '$target' and it['signature'].startswith('saxpy(')"
  # Each repetition starts from the arguments as given.
  expect 0 run $saxpy --target "$target" --repeat 5 --json --arg a=1 --arg x=ones:f32[3] --arg y=ones:f32[3]
  json 'it["outputs"]["y"]["values"] == [2, 2, 2] and it["repeat"] == 5'
  json 'it["times_ns"]["run_least"] <= it["times_ns"]["run"] <= it["times_ns"]["run_most"]'
done

# Where the code came from: every mode of the cache, in processes of their own.
if $has_cpu; then
  call="run $softmax --target cpu --json --arg x=rand:f32[2,5] --arg y=zeros:f32[2,5]"
  rm -rf "$QUERN_CACHE_DIR"
  expect 0 $call
  json 'it["source"] == "compiled" and it["times_ns"]["compile"] > 0'
  cp out cold.json
  expect 0 $call
  json 'it["source"] == "disk" and it["times_ns"]["compile"] == 0 and it["times_ns"]["load"] > 0'
  python3 "$SOURCE/tests/cli/compare.py" cold.json out || fail "cold and warm differ"
  # A hit opens no compiler: the dynamic linker's own log names none.
  LD_DEBUG=files expect 0 $call
  grep -q libLLVM err && fail "a warm process opened libLLVM"
  QUERN_CACHE=off LD_DEBUG=files expect 0 $call
  grep -q libLLVM err || fail "a cold process does not name libLLVM: this test sees nothing"
  export QUERN_CACHE=off
  expect 0 $call
  json 'it["source"] == "compiled"'
  export QUERN_CACHE=refresh
  expect 0 $call
  json 'it["source"] == "compiled"'
  export QUERN_CACHE=ro
  expect 0 $call
  json 'it["source"] == "disk"'
  rm -rf "$QUERN_CACHE_DIR"
  expect 0 $call
  json 'it["source"] == "compiled"'
  expect 0 $call
  json 'it["source"] == "compiled"'
  [ ! -d "$QUERN_CACHE_DIR" ] || [ -z "$(find "$QUERN_CACHE_DIR" -type f)" ] || fail "ro has written"
  export QUERN_CACHE=refresh
  expect 0 $call
  export QUERN_CACHE=rw
  expect 0 $call
  json 'it["source"] == "disk"'
  # Options that change the code change the key.
  for options in "--tier fast" "--checked"; do
    # shellcheck disable=SC2086
    expect 0 $call $options
    json 'it["source"] == "compiled"'
  done
  unset QUERN_CACHE
  # Renaming and reformatting does not.
  sed -e 's/top/highest/g' -e 's/^  */ /' -e '1i // another comment' $softmax >renamed.qn
  expect 0 run renamed.qn --json --arg x=rand:f32[2,5] --arg y=zeros:f32[2,5]
  json 'it["source"] == "disk"'
  # What a miss does.
  export QUERN_CACHE_NAMESPACE=other
  expect 3 $call --miss fail
  tells "compiling is forbidden"
  tells "quern cache why $softmax --target cpu"
  expect 3 run $saxpy --target 'cpu -vector_width=128' --tier fast --checked --miss fail --arg a=2 --arg x=iota:f32[4] --arg y=ones:f32[4]
  tells "quern cache why $saxpy --target 'cpu -vector_width=128' --tier fast --checked"
  expect 0 $call --miss fallback --timeout 5min
  json 'it["source"] == "compiled" and it["is_fallback"] == (it["tier"] == "fast")'
  expect 0 $call --miss block --timeout 5min
  expect 0 $call --miss fail
  json 'it["source"] == "disk" and not it["is_fallback"]'
  unset QUERN_CACHE_NAMESPACE
fi
export QUERN_CACHE=sometimes
expect 1 run $saxpy --target interp --arg a=1 --arg x=ones:f32[1] --arg y=ones:f32[1]
tells "QUERN_CACHE"
unset QUERN_CACHE

# Files: out and back in; the same numbers.
expect 0 run $softmax --target interp --arg x=rand:f32[3,5]:1 --arg y=zeros:f32[3,5] --out y=y.npy --json
json 'it["outputs"]["y"]["file"] == "y.npy"'
expect 0 run examples/ir/two_launches.qn --target interp --arg x=y.npy --arg y=zeros:f32[3,5] --out x=x.npy --json
same x.npy y.npy
head -c 6 y.npy | od -An -c | tr -d ' ' | grep -q 'NUMPY$' || fail "y.npy is no .npy file"

# Outputs without a value have the shape that the inputs give.
expect 0 run $softmax --target interp --arg x=rand:f32[3,5]:1 --out y=z.npy --json
same y.npy z.npy
expect 0 run $saxpy --target interp --arg a=1 --arg x=ones:f32[3] --arg y=ones:f32[3]
expect 1 run $saxpy --target interp --arg a=1 --arg x=ones:f32[3]
tells "parameter 'y' of saxpy"
cat >shapes.qn <<'QN'
func grow(x: f32[n], k: i32, out y: f32[n * k + 1], out z: f32[m]) {
  for i in 0..n * i64(k) + 1 {
    y[i] = f32(i);
  }
}
func turn(x: f32[n, m] strides [1, s], out y: f32[n, m] strides [1, n + 1]) {
  for i in 0..n {
    for j in 0..m {
      y[i, j] = x[i, j];
    }
  }
}
func repeat(x: f32[n, m] strides [0, 1], out y: f32[n, m]) {
}
QN
expect 0 run shapes.qn --func grow --target interp --arg x=ones:f32[2] --arg k=3 --arg z=ones:f32[1] --json
json 'it["outputs"]["y"]["values"] == [0, 1, 2, 3, 4, 5, 6]'
expect 1 run shapes.qn --func grow --target interp --arg x=ones:f32[2] --arg k=3
tells "outputs without --arg: grow(x: f32[n], k: i32, out y: f32[n * k + 1], out z: f32[m]): argument 3 'z': extent 0, 'm', needs 'm'"
# The call gets the strides that a parameter declares; files are in C or Fortran order.
expect 0 run shapes.qn --func turn --target interp --arg x=iota:f32[2,3] --json --repeat 2
json 'it["outputs"]["y"]["values"] == [[0, 1, 2], [3, 4, 5]]'
expect 1 run shapes.qn --func repeat --target interp --arg x=iota:f32[2,3]
tells "the strides of parameter 'x' let elements overlap"
python3 - <<'PYTHON'
import struct
header = b"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }".ljust(117) + b"\n"
open("fortran.npy", "wb").write(b"\x93NUMPY\x01\x00v\x00" + header + struct.pack("<6f", 0, 3, 1, 4, 2, 5))
PYTHON
expect 0 run shapes.qn --func turn --target interp --arg x=fortran.npy --out y=c.npy --json
json 'it["outputs"]["y"]["values"] == [[0, 1, 2], [3, 4, 5]]'
grep -q "'fortran_order': False" c.npy || fail "c.npy is not in C order"

# Standard input is a file too.
"$QUERN" run - --target interp --arg a=1 --arg x=ones:f32[2] --arg y=ones:f32[2] <$saxpy >out 2>err || fail "run -"
says "2 2"

# bf16 comes and goes as uint16.
cat >bf16.qn <<'QN'
func twice(x: bf16[n], out y: bf16[n]) {
  parallel i in 0..n {
    y[i] = x[i] + x[i];
  }
}
func same(x: u16[n], out y: u16[n]) {
  parallel i in 0..n {
    y[i] = x[i];
  }
}
QN
expect 0 run bf16.qn --func twice --target interp --arg x=iota:bf16[4] --arg y=zeros:bf16[4] --out y=bf16.npy
expect 0 run bf16.qn --func twice --target interp --arg x=bf16.npy --arg y=zeros:bf16[4] --json
json 'it["outputs"]["y"]["values"] == [0, 4, 8, 12] and it["outputs"]["y"]["dtype"] == "bf16"'
expect 0 run bf16.qn --func same --target interp --arg x=bf16.npy --arg y=zeros:u16[4] --json
json 'it["outputs"]["y"]["values"] == [0, 0x4000, 0x4080, 0x40C0]'

# 8-bit floats come and go as uint8.
cat >fp8.qn <<'QN'
func narrow(x: f32[n], out y: f8e4m3fn[n]) {
  parallel i in 0..n {
    y[i] = f8e4m3fn(x[i] * 100);
  }
}
func widen(x: f8e4m3fn[n], out y: f32[n]) {
  parallel i in 0..n {
    y[i] = f32(x[i]);
  }
}
QN
expect 0 run fp8.qn --func narrow --target interp --arg x=iota:f32[6] --arg y=zeros:f8e4m3fn[6] --out y=fp8.npy
expect 0 run fp8.qn --func widen --target interp --arg x=fp8.npy --arg y=zeros:f32[6] --json
json 'it["outputs"]["y"]["values"] == [0, 96, 192, 288, 384, "nan"]'

# What JSON has no numbers for.
cat >odd.qn <<'QN'
func odd(x: f32, out y: f32[2], out z: u64[1], out b: bool[2]) {
  y[0] = x / x;
  y[1] = 1.0 / x;
  z[0] = ~u64(0);
  b[0] = true;
  b[1] = false;
}
QN
expect 0 run odd.qn --target interp --arg x=0 --arg y=zeros:f32[2] --arg z=zeros:u64[1] --arg b=zeros:bool[2] --json
json 'it["outputs"]["y"]["values"] == ["nan", "inf"] and it["outputs"]["y"]["nan_count"] == 1'
json 'it["outputs"]["z"]["values"] == ["18446744073709551615"]'
json 'it["outputs"]["b"]["values"] == [True, False]'
# Large outputs are summarised, empty ones are empty.
expect 0 run $saxpy --target interp --arg a=1 --arg x=zeros:f32[5000] --arg y=ones:f32[5000] --json
json '"values" not in it["outputs"]["y"] and it["outputs"]["y"]["mean"] == 1'
expect 0 run $saxpy --target interp --arg a=1 --arg x=zeros:f32[0] --arg y=ones:f32[0] --json
json 'it["outputs"]["y"]["values"] == []'

# Calls that are wrong: code 1, and the message names the thing.
bad() {
  part=$1
  shift
  expect 1 run "$@" --target interp
  tells "$part"
  expect 1 run "$@" --target interp --json
  json 'it["error"]["exit_code"] == 1 and it["error"]["message"]'
}
bad "parameter 'x' of saxpy(a: f32" $saxpy --arg a=1
bad "add --arg y=zeros:f32[4]" $saxpy --arg a=1 --arg x=ones:f32[2]
bad "no parameter 'b'" $saxpy --arg b=1
bad "--arg a was given twice" $saxpy --arg a=1 --arg a=2
bad "expected dtype f32, got f64" $saxpy --arg a=1 --arg x=ones:f32[2] --arg y=ones:f64[2]
bad "expected n = 2" $saxpy --arg a=1 --arg x=ones:f32[2] --arg y=ones:f32[3]
bad "expected rank 1" $saxpy --arg a=1 --arg x=ones:f32[2] --arg y=ones:f32[2,2]
bad "expected a tensor" $saxpy --arg a=1 --arg x=1 --arg y=ones:f32[2]
bad "'a'" $saxpy --arg a=ones:f32[1] --arg x=ones:f32[2] --arg y=ones:f32[2]
bad "did you mean 'saxpy'" $saxpy --func saxpi --arg a=1
bad "choose one with --func: twice, same" bf16.qn --arg x=zeros:u16[1]
bad "scalar" $saxpy --arg a=1 --arg x=ones:f32[2] --arg y=ones:f32[2] --out a=a.npy
bad "nosuch.npy" $saxpy --arg a=1 --arg x=nosuch.npy --arg y=ones:f32[2]
bad "cannot open 'nosuch.qn'" nosuch.qn
bad "Is a directory" "$work"
bad "nosuch/y.npy" $saxpy --arg a=1 --arg x=ones:f32[2] --arg y=ones:f32[2] --out y=nosuch/y.npy
bad "longer than the position table" examples/ir/embed_layernorm.qn --arg ids=zeros:i64[1,3] \
  --arg words=zeros:f32[2,2] --arg positions=zeros:f32[2,2] --arg gamma=zeros:f32[2] \
  --arg beta=zeros:f32[2] --arg eps=1 --arg y=zeros:f32[1,3,2]
expect 1 run $saxpy --target cqu --arg a=1
tells "did you mean 'cpu'"
expect 1 run $saxpy --target 'cpu -mcpv=x' --arg a=1
tells "did you mean 'mcpu'"

# An unsigned scalar beyond 2^63 - 1, which only u64 takes.
cat >unsigned.qn <<'QN'
func add(k: u64, out y: u64[n]) { parallel i in 0..n { y[i] = k - u64(i); } }
func scale(k: i64, out y: i64[n]) { parallel i in 0..n { y[i] = k; } }
QN
for target in $TARGETS; do
  expect 0 run unsigned.qn --func add --target "$target" --arg k=18446744073709551615 --arg y=zeros:u64[2] --json
  json 'it["outputs"]["y"]["values"] == ["18446744073709551615", "18446744073709551614"]'
done
bad "got 9223372036854775808" unsigned.qn --func scale --arg k=9223372036854775808 --arg y=zeros:i64[1]
expect 2 run unsigned.qn --func add --arg k=18446744073709551616 --arg y=zeros:u64[1] --target interp
tells "beyond 64-bit"

# Index out of bounds in a checked build.
cat >beyond.qn <<'QN'
func beyond(k: i64, out y: f32[n]) {
  y[k] = 1.0;
}
QN
for target in $TARGETS; do
  expect 1 run beyond.qn --target "$target" --checked --arg k=9 --arg y=zeros:f32[4]
  tells "'y'"
  tells "outside of extent 4, at beyond.qn:2:3: y[k]"
done

# What the machine lacks: code 3.
expect 3 run $saxpy --target interp --arg a=1 --arg x=zeros:f32[1000000,1000000,1000] --arg y=ones:f32[1]
tells "out of memory"
if [ "$("$QUERN" devices --json | grep -c '"cuda:')" -eq 0 ]; then
  expect 3 run $saxpy --target cuda --arg a=1 --arg x=ones:f32[1] --arg y=ones:f32[1]
  tells "no device cuda:0"
fi
if $has_cpu; then
  case $(uname -m) in x86_64) foreign=aarch64 ;; *) foreign=x86_64 ;; esac
  expect 3 run $saxpy --target "cpu -mtriple=$foreign" --arg a=1 --arg x=ones:f32[1] --arg y=ones:f32[1]
  tells "hint:"
fi
expect 3 run $saxpy --target interp --arg a=1 --arg x=ones:f32[2] --arg y=ones:f32[2] --out y=/dev/full
tells "/dev/full"

# The library's log.
QUERN_LOG=debug expect 0 run $saxpy --target interp --arg a=1 --arg x=ones:f32[2] --arg y=ones:f32[2]
QUERN_LOG=loud expect 0 run $saxpy --target interp --arg a=1 --arg x=ones:f32[2] --arg y=ones:f32[2]
tells "QUERN_LOG is 'loud'"

done_with run
