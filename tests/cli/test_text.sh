# SPDX-License-Identifier: Apache-2.0
# `quern check`, `quern fmt` and `quern compile`.
. "${0%/*}/lib.sh"

# ---- check
expect 0 check examples/ir/*.qn
says "examples/ir/softmax.qn: ok"
says "softmax(x: f32[n, m], out y: f32[n, m])"
cat >wrong.qn <<'QN'
func f(x: f32[n], out y: f32[n]) {
  for i in 0..n {
    y[i] = alhpa * x[i];
    z[i] = 1.0;
  }
}
QN
expect 1 check wrong.qn
tells "error[QN0103]: unknown name 'alhpa'"
tells " --> wrong.qn:3:12"
tells "^^^^^"
tells "quern: wrong.qn: 2 errors"
expect 1 check wrong.qn examples/ir/saxpy.qn --json
json 'not it["is_ok"] and [f["is_ok"] for f in it["files"]] == [False, True]'
json 'it["files"][0]["diagnostics"][0]["severity"] == "error" and it["files"][0]["diagnostics"][0]["code"] == "QN0103"'
json '[it["files"][0]["diagnostics"][0][k] for k in ("line", "column", "end_column")] == [3, 12, 17]'
json 'it["files"][0]["functions"] == [] and it["files"][0]["digest"] is None'
json 'len(it["files"][1]["digest"]) == 32 and it["files"][1]["diagnostics"] == []'
[ ! -s err ] || fail "check --json wrote to standard error"
expect 1 check nosuch.qn --json
json '"nosuch.qn" in it["files"][0]["error"]'
expect 1 check nosuch.qn
tells "quern: not found: cannot open 'nosuch.qn'"
printf 'func f(' >cut.qn
expect 1 check cut.qn
printf '\377\376\000' >bytes.qn
expect 1 check bytes.qn
tells "bytes.qn"
: >empty.qn
quern check empty.qn
[ "$code" -le 1 ] || fail "an empty file: exit code $code"
expect 1 check wrong.qn nosuch.qn
expect 1 run wrong.qn --target interp
tells "error[QN0103]"

# ---- fmt
printf '// top\nfunc   f( x:f32[n],out y : f32[n] ){\nfor i in 0..n{ y[i]=x[i]*2.50; // twice\n}}\n' >ugly.qn
expect 0 fmt ugly.qn
says "// twice"
says "2.50"
cp out pretty.qn
expect 1 fmt --check ugly.qn pretty.qn
says "ugly.qn: not formatted"
grep -q pretty out && fail "pretty.qn is formatted"
expect 1 fmt --check ugly.qn pretty.qn --json
json '[f["is_changed"] for f in it["files"]] == [True, False]'
chmod 640 ugly.qn
ln -s ugly.qn link.qn
expect 0 fmt --in-place link.qn pretty.qn
says "link.qn: formatted"
[ -L link.qn ] || fail "the link was replaced"
[ "$(stat -c %a ugly.qn)" = 640 ] || fail "the mode changed"
same ugly.qn pretty.qn
expect 0 fmt --check ugly.qn link.qn pretty.qn examples/ir/*.qn
"$QUERN" fmt - <ugly.qn >out 2>err || fail "fmt -"
same out pretty.qn
cp wrong.qn kept.qn
printf 'func f(' >cut.qn
cp cut.qn cut.before
expect 1 fmt --in-place cut.qn
same cut.qn cut.before
expect 1 fmt cut.qn --json
json '"error" in it["files"][0]'
# Text that parses but is not valid can be formatted.
cat >invalid.qn <<'QN'
func f(x: f32[n], out y: f32[n]) {
  parallel i in 0..n {
    y[0] = x[i];
  }
}
QN
expect 1 check invalid.qn
expect 0 fmt --check invalid.qn
# So can text with unknown names, operators and dtypes; mistakes of grammar are reported alone.
cp wrong.qn loose.qn
sed -i -e 's|1\.0|foo(x[i,1], zap)+true//2|' -e 's/n\], out/n], t : f33, out/' loose.qn
expect 0 fmt loose.qn
says "z[i] = foo(x[i, 1], zap) + true // 2;"
says "t: f33"
sed -i 's/zap)/zap]/' loose.qn
expect 1 fmt loose.qn
tells "error[QN0108]"
tells " --> loose.qn:4:27"
tells "quern: loose.qn: 1 error"
grep -q QN0103 err && fail "fmt judged a name"
# Dtypes are written where there are none, and need a text without mistakes.
expect 0 fmt --types examples/ir/softmax.qn
says "let top: f32 = max j"
cp out typed.qn
expect 0 fmt --types --check typed.qn
expect 0 fmt --check typed.qn
expect 1 fmt --types wrong.qn
tells "error[QN0103]"
# Formatting keeps the digest.
cp examples/ir/softmax.qn s.qn
sed -i -e 's/^  *//' -e 's/{ exp/{\nexp/' s.qn
expect 0 check examples/ir/softmax.qn --json
cp out before.json
expect 0 fmt --in-place s.qn
expect 0 check s.qn --json
json 'it["files"][0]["digest"] == json.load(open("before.json"))["files"][0]["digest"]'
expect 0 check typed.qn --json
json 'it["files"][0]["digest"] == json.load(open("before.json"))["files"][0]["digest"]'

# ---- compile
softmax=examples/ir/softmax.qn
if $has_cpu; then
  for form in ir llvm-raw llvm asm; do
    expect 0 compile $softmax --target cpu --emit $form
    says "softmax"
    expect 0 compile $softmax --target cpu --emit $form --json
    json "it['form'] == '$form' and it['size_bytes'] == len(it['text'].encode()) > 0"
  done
  for form in obj image; do
    expect 0 compile $softmax --target cpu --emit $form -o code.$form --json
    json "it['output'] == 'code.$form' and it['size_bytes'] > 0 and 'text' not in it"
    [ "$(wc -c <code.$form)" -eq "$(python3 -c 'import json; print(json.load(open("out"))["size_bytes"])')" ] ||
      fail "code.$form has another size"
    expect 0 compile $softmax --target cpu --emit $form
    same out code.$form
  done
  # Equal bytes in every process, other ones for another target, tier, or checks.
  expect 0 compile $softmax --target 'cpu -mcpu=x86-64-v2' --emit image -o v2.image
  expect 0 compile $softmax --target 'cpu -mcpu=x86-64-v2' --emit image -o again.image
  same v2.image again.image
  cmp -s v2.image code.image && fail "two targets give equal code"
  expect 0 compile $softmax --target cpu --tier fast --emit asm
  expect 0 compile $softmax --target cpu --checked --emit asm
  # For a machine that this one is not.
  expect 0 compile $softmax --target cpu/neoverse-n1 --emit asm
  expect 1 compile $softmax --target cpu --emit wasm
  tells "there are ir, "
  expect 1 compile $softmax --target cpu --emit asm -o nosuch/x.s
  tells "nosuch/x.s"
  [ ! -d "$QUERN_CACHE_DIR" ] || [ -z "$(find "$QUERN_CACHE_DIR" -type f)" ] || fail "compile filled the cache"
fi
expect 1 compile wrong.qn
tells "error[QN0103]"

# ---- passes
expect 0 compile --emit passes
says "scalar: "
says "gpu: "
says "no function of mathematics is left but fmod"
expect 0 compile --emit passes --target vulkan --json
json '[p["name"] for p in it["pipelines"]] == ["gpu"]'
json 'all(p["doc"] and p["tier"] == "any" for p in it["pipelines"][0]["passes"])'
expect 0 compile --emit passes --json
json '[p["name"] for p in it["pipelines"]] == ["scalar", "cpu", "gpu"]'
json '{p["tier"] for p in it["pipelines"][1]["passes"]} == {"any", "full"}'
# A module after each pass that may stand alone, and after each one of each pipeline.
for name in $(python3 -c 'import json
for line in json.load(open("out"))["pipelines"]: print(*(p["name"] for p in line["passes"] if p["alone"]))'); do
  quern compile $softmax --passes "$name"
  [ "$code" -eq 0 ] || fail "--passes $name: exit code $code"
done
for name in scalar cpu gpu; do
  expect 0 compile $softmax --passes $name --after simplify
  says "softmax"
done
expect 0 compile $softmax --passes cpu,lower_math --target 'cpu -mcpu=x86-64-v3' --json
json '"lanes" in it["text"] and "exp(" not in it["text"] and it["form"] == "ir"'
expect 0 compile $softmax --passes gpu --after cooperative
says "thread.x"
expect 1 compile $softmax --passes scalr
tells "pipelines: scalar, cpu, gpu"
expect 1 compile $softmax --passes scalar --after vectorize
tells "pipeline 'scalar' has lower_leaves, "
if $has_cpu; then
  expect 0 compile $softmax --target cpu --emit ir --after simplify
  says "exp("
  expect 0 compile $softmax --target cpu --after vectorize
  says "lanes"
  expect 1 compile $softmax --target cpu --after cooperative
  tells "pipeline 'cpu' has lower_leaves, "
fi
expect 2 compile
tells "FILE.qn is missing"
expect 2 compile $softmax --emit passes
expect 2 compile $softmax --emit asm --after hoist
tells "show the form ir, not asm"

# ---- targets
expect 1 compile $softmax --target 'cpu -nosuch=1'
tells "nosuch"

done_with text
