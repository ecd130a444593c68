# SPDX-License-Identifier: Apache-2.0
# --set: one text as a generic and as special modules, in every verb that reads one.
. "${0%/*}/lib.sh"

cat >rows.qn <<'QN'
func scaled(x: f32[n, d], k: i32, out y: f32[n, d]) {
  parallel i in 0..n {
    for j in 0..d { y[i, j] = x[i, j] * f32(k) + f32(d); }
  }
}
QN
sed 's/f32(d)/8.0/; s/\bd\b/8/g' rows.qn >pasted.qn
# A text that is a module only where d is set.
cat >template.qn <<'QN'
func reversed(x: f32[n, d], out y: f32[n, d]) {
  parallel i in 0..n {
    alloc row: f32[d] in local;
    for j in 0..d { row[j] = x[i, j]; }
    for j in 0..d { y[i, j] = row[d - 1 - j]; }
  }
}
QN

# The same digest as the text with the number, so the same keys.
expect 0 check pasted.qn --json
json 'it["files"][0]["functions"] == ["scaled(x: f32[n, 8], k: i32, out y: f32[n, 8])"]'
python3 -c 'import json; print(json.load(open("out"))["files"][0]["digest"])' >digest
expect 0 check rows.qn --set d=8 --json
json 'it["files"][0]["digest"] == open("digest").read().strip()'
expect 0 check rows.qn --set d=8,k=-2 --set n=3
says "scaled(x: f32[3, 8], k: i32 = -2, out y: f32[3, 8])"
expect 0 check rows.qn --set scaled.d=4
says "scaled(x: f32[n, 4]"

expect 1 check template.qn
tells "the shape of 'row' in local must be constant: set d"
expect 0 check template.qn --set d=4
expect 1 check template.qn --set d=100000
tells "'row' in local exceeds the limit"
expect 1 check template.qn --set e=4
tells "quern: not found: 'e' cannot be set: no symbol or integer scalar has this name; there are 'n', 'd'"
expect 1 check template.qn --set reversd.d=4
tells "'reversd.d' cannot be set: the module has no function 'reversd'"
expect 1 check rows.qn --set d=4 --set d=5
tells "'d' is set twice"
expect 1 check rows.qn --set k=3000000000
tells "'k' of 'scaled' cannot be 3000000000: it is i32"
expect 1 check rows.qn --set d
tells "set: expected NAME=NUMBER, with commas between, got 'd'"

for target in $TARGETS; do
  for checked in "" --checked; do
    # shellcheck disable=SC2086
    expect 0 run template.qn --set d=4 --target "$target" $checked --arg x=iota:f32[2,4] --arg y=zeros:f32[2,4] --json
    json 'it["outputs"]["y"]["values"] == [[3, 2, 1, 0], [7, 6, 5, 4]]'
    # A fixed scalar needs no --arg, and takes its own value alone.
    # shellcheck disable=SC2086
    expect 0 run rows.qn --set d=2,k=3 --target "$target" $checked --arg x=ones:f32[1,2] --arg y=zeros:f32[1,2] --json
    json 'it["outputs"]["y"]["values"] == [[5, 5]]'
    json 'it["signature"] == "scaled(x: f32[n, 2], k: i32 = 3, out y: f32[n, 2])"'
    # shellcheck disable=SC2086
    expect 0 run rows.qn --set d=2,k=3 --target "$target" $checked --arg k=3 --arg x=ones:f32[1,2] --arg y=zeros:f32[1,2]
    # shellcheck disable=SC2086
    expect 1 run rows.qn --set d=2,k=3 --target "$target" $checked --arg k=4 --arg x=ones:f32[1,2] --arg y=zeros:f32[1,2]
    tells "argument 1 'k': expected 3, got 4"
    # shellcheck disable=SC2086
    expect 1 run rows.qn --set d=2,k=3 --target "$target" $checked --arg x=ones:f32[1,3] --arg y=zeros:f32[1,3]
    tells "argument 0 'x': extent 1: expected 2, got 3"
  done
  # The key is that of the text with the number.
  expect 0 run rows.qn --set d=8 --target "$target" --arg k=1 --arg x=ones:f32[1,8] --arg y=zeros:f32[1,8]
  expect 0 cache why pasted.qn --target "$target" --json
  json 'it["found_in"] == "disk"'
  expect 0 cache why rows.qn --set d=8 --target "$target" --json
  json 'it["found_in"] == "disk"'
  expect 0 cache why rows.qn --set d=9 --target "$target" --json
  json 'it["found_in"] is None'
  # A list warms the keys of special modules.
  echo "template.qn --set d=3 --target '$target'" >keys.list
  expect 0 warm keys.list
  expect 0 cache why template.qn --set d=3 --target "$target" --json
  json 'it["found_in"] == "disk"'
done
echo "template.qn --set" >keys.list
expect 1 warm keys.list
tells "expected such as d=128,k=4 after --set"

if $has_cpu; then
  expect 0 compile rows.qn --set d=8,k=3 --emit ir
  says "8.0"
  expect 0 compile template.qn --set d=8 --emit llvm
  # The sizes of calls, and a scalar that is fixed.
  expect 0 bench rows.qn --set d=8,k=3 --sizes n=64 --tier fast --threads 1 --time 20ms --json
  json 'it["is_complete"] and it["signature"].startswith("scaled(x: f32[n, 8], k: i32 = 3")'
  json 'all(row["sizes"] == "n=64" for row in it["rows"]) and not it["not_measured"]'
  expect 1 bench rows.qn --set d=8 --sizes d=9 --time 20ms
  tells "'d' is neither a symbol nor a scalar"
fi
expect 0 help set
says "--set attention.d=32"

done_with set
