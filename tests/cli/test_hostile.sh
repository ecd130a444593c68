# SPDX-License-Identifier: Apache-2.0
# Names and texts from outside reach a terminal escaped: of files, functions, assertions, targets, lists
# and worker processes, on both streams. JSON stays JSON.
. "${0%/*}/lib.sh"

# clean FILE: valid UTF-8 without control characters but line ends and tabs, C1 and the controls of the
# direction of writing among them.
clean() {
  python3 - "$1" <<'PYTHON' || fail "controls in $1: $(od -c "$1" | head -n 20)"
import sys
text = open(sys.argv[1], "rb").read().decode("utf-8")
bad = [c for c in text if (ord(c) < 0xA0 and c not in "\n\t" and not 0x20 <= ord(c) < 0x7F)
       or ord(c) in (0x61C, 0x200E, 0x200F) or 0x2028 <= ord(c) <= 0x202E or 0x2066 <= ord(c) <= 0x2069]
sys.exit(1 if bad else 0)
PYTHON
  checks=$((checks + 1))
}
# hostile CODE ARG...: as expect, with both streams clean.
hostile() {
  expect "$@"
  clean out
  clean err
}

esc=$(printf '\033[31m')
c1=$(printf '\302\233')
bidi=$(printf '\342\200\256')
raw=$(printf '\377\233')
every="$esc$c1$bidi$raw$(printf '\177')"

# ---- names of files
for name in "$esc" "$c1" "$bidi" "$raw" "$(printf 'a\nquern: ok')"; do
  hostile 1 check "missing$name.qn"
  hostile 1 run "missing$name.qn" --target interp
  hostile 1 check "missing$name.qn" --json
  json 'it'
  echo 'func f(out y: i32[n]) { y[0] = 1; }' >"there$name.qn"
  hostile 0 check "there$name.qn"
  echo 'func f(' >"cut$name.qn"
  hostile 1 check "cut$name.qn"
  hostile 1 warm "missing$name.list"
  hostile 1 cache ls --dir "missing$name"
  hostile 1 cache stats --dir "missing$name"
done
hostile 1 check "missing$esc.qn"
tells 'missing\x1b[31m.qn'
hostile 1 check "missing$bidi.qn"
tells 'missing\u202e.qn'

# ---- texts of programs, and snippets of them
printf 'func f(x: f32[n]) { assert n < 2, "no%s\\x1b[31m"; }\n' "$esc$c1$bidi" >assert.qn
hostile 1 run assert.qn --target interp --arg x=zeros:f32[4]
tells 'no\x1b[31m\u009b\u202e\x1b[31m'
hostile 1 run assert.qn --target interp --arg x=zeros:f32[4] --json
json '"no" in it["error"]["message"]'
for text in "$esc" "$c1" "$bidi" "$raw" "$(printf '\200\200')" "$(printf '\342\200')"; do
  printf 'func f(%s) { y = "%s"; } // %s\n' "$text" "$text" "$text" >snippet.qn
  hostile 1 check snippet.qn
  tells '^'
  hostile 1 check snippet.qn --json
done

# ---- targets and options
hostile 1 targets "cpu -mcpu=$every"
hostile 1 targets "cpu -$every=1"
hostile 1 targets "$every"
hostile 1 targets "{\"kind\": \"cpu\", \"mcpu\": \"\\u001b[31m\\u009b\\u202e\"}"
hostile 1 compile there"$esc".qn --target "cpu -mcpu=$every"
hostile 2 "$every"
hostile 2 run --"$every"
hostile 2 run assert.qn --tier "$every"
QUERN_LOG="$every" hostile 0 version
QUERN_CACHE="$every" hostile 1 config
QUERN_CACHE_DIR="$work/dir$every" hostile 0 config
QUERN_CACHE_DIR="$work/dir$every" hostile 0 config --json

# ---- lists: lines of people, and recorded modules whose names are anything
printf '%s.qn\n%s %s\nthere.qn --target %s\n{"version":1,"%s\n' "$every" "$every" "$every" "$every" "$every" >bad.list
hostile 1 warm bad.list --target interp
hostile 1 warm bad.list --target interp --json
json 'len(it["problems"]) == 4'
echo 'func abcdefghij(out y: i32[n]) { for i in 0..n { y[i] = 1; } }' >plain.qn
QUERN_RECORD="$work/good.list" expect 0 run plain.qn --target interp --arg y=zeros:i32[2]
python3 - <<'PYTHON'
import base64, json
line = json.loads(open("good.list").readline())
name = b"\x1b[31m\xc2\x9b\xff\n\x7f"
module = base64.b64decode(line["module"])
assert module.count(b"abcdefghij") == 1 and len(name) == 10
line["module"] = base64.b64encode(module.replace(b"abcdefghij", name)).decode()
line["name"] = "\x1b[31m\x9b\u202e"
open("named.list", "w").write(json.dumps(line) + "\n")
line["module"] = "AAAA"
open("broken.list", "w").write(json.dumps(line) + "\n")
PYTHON
quern warm named.list --dry-run
clean out
clean err
quern warm named.list --json
clean out
clean err
json 'it["total"] <= 1'
hostile 1 warm broken.list
tells '\x1b[31m\u009b\u202e'

done_with hostile
