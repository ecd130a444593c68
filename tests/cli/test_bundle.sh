# SPDX-License-Identifier: Apache-2.0
# Bundles by the command: export, merge, import, signatures, looking at them, and what is refused.
. "${0%/*}/lib.sh"
run() { echo "run examples/ir/$1.qn --target interp --arg x=ones:f32[2,3] --arg y=zeros:f32[2,3]"; }

expect 1 cache export all.qnb
tells "nothing to export"
# shellcheck disable=SC2046
expect 0 $(run softmax) --json
softmax=$(python3 -c 'import json; print(json.load(open("out"))["key"])')
# shellcheck disable=SC2046
expect 0 $(run two_launches) --json
launches=$(python3 -c 'import json; print(json.load(open("out"))["key"])')

# Everything, and what is chosen.
expect 0 cache export all.qnb
says "all.qnb: 2 entries"
expect 0 cache export all.qnb --json
json 'it["entries"] == 2 and it["not_chosen"] == 0 and it["bad_entries"] == []'
json 'it["size_bytes"] == __import__("os").path.getsize("all.qnb")'
[ "$(stat -c %a all.qnb)" = 644 ] || fail "mode of a bundle: $(stat -c %a all.qnb)"
expect 0 cache export one.qnb --key "$softmax" --json
json 'it["entries"] == 1 and it["not_chosen"] == 1'
expect 0 cache export one.qnb --match interp --match warp_size --json
json 'it["entries"] == 2'
expect 1 cache export none.qnb --match nosuchword
tells "not chosen"
expect 1 cache export none.qnb --older 1d
expect 0 cache export one.qnb --newer 1d --json
json 'it["entries"] == 2'
[ ! -e none.qnb ] || fail "an export that failed left a file"
expect 1 cache export /proc/none.qnb
expect 1 cache export nosuch/none.qnb

# Equal entries give equal bytes, through bundles and a directory made of them, too.
expect 0 cache export one.qnb --key "$softmax"
expect 0 cache export two.qnb --key "$launches"
expect 0 cache merge joined.qnb two.qnb one.qnb all.qnb
same joined.qnb all.qnb
expect 0 cache export grown.qnb --key "$launches"
expect 0 cache export grown.qnb --append --key "$softmax" --json
json 'it["entries"] == 1'
expect 0 cache ls --bundle grown.qnb --json
json "{e['key'] for e in it['entries']} == {'$softmax', '$launches'}"
expect 0 cache merge joined.qnb grown.qnb
same joined.qnb all.qnb
expect 0 cache clear
expect 0 cache import all.qnb --json
json 'it["imported"] == 2 and it["present"] == 0 and it["failed"] == 0'
expect 0 cache import all.qnb
says "0 imported, 2 there already"
expect 0 cache export again.qnb
same again.qnb all.qnb
# shellcheck disable=SC2046
expect 0 $(run softmax) --json
json 'it["source"] == "disk"'
expect 1 cache import all.qnb --dir nosuch
rm -rf "$QUERN_CACHE_DIR"
expect 0 cache import all.qnb --json
json 'it["imported"] == 2'

# Without times, whoever compiled it.
expect 0 cache export first.qnb --no-times
rm -rf "$QUERN_CACHE_DIR"
# shellcheck disable=SC2046
expect 0 $(run two_launches)
# shellcheck disable=SC2046
expect 0 $(run softmax)
expect 0 cache export second.qnb --no-times
same first.qnb second.qnb

# Looking.
expect 0 cache ls --bundle all.qnb
says "$softmax"
says "made by interp"
expect 0 cache ls --bundle all.qnb --json
json 'it["bundle"] == "all.qnb" and len(it["entries"]) == 2 and it["signer"] is None and not it["is_truncated"]'
json 'len(it["generators"]) == 1 and it["generators"][0].startswith("interp")'
expect 0 cache show "$(echo "$softmax" | cut -c1-8)" --bundle all.qnb --json
json "it['key'] == '$softmax' and 'payload' in {s['name'] for s in it['sections']}"
expect 1 cache show ffffffffffff --bundle all.qnb
expect 0 cache verify --bundle all.qnb
says "2 good, 0 bad"
expect 1 cache ls --bundle nosuch.qnb
printf 'no bundle' >no.qnb
expect 1 cache ls --bundle no.qnb
tells "not a bundle"
ln -s all.qnb link.qnb
expect 3 cache ls --bundle link.qnb
tells "symbolic link"
cp all.qnb open.qnb
chmod 666 open.qnb
expect 3 cache ls --bundle open.qnb
tells "writable by others"

# Damage: seen by verify; the tail is restored by a merge.
cp all.qnb bad.qnb
python3 - <<'PYTHON'
data = bytearray(open("bad.qnb", "rb").read())
data[64 + 200] ^= 1
open("bad.qnb", "wb").write(data)
PYTHON
expect 1 cache verify --bundle bad.qnb --json
json 'it["good"] == 1 and it["bad"] == 1 and it["bad_entries"][0]["reason"]'
expect 0 cache merge left.qnb bad.qnb --json
json 'it["entries"] == 1 and it["bad"] == 1 and len(it["bad_entries"]) == 1'
expect 0 cache merge joined.qnb all.qnb bad.qnb
expect 0 cache verify --bundle joined.qnb --json
json 'it["good"] == 2'
cp all.qnb cut.qnb
truncate -s -10 cut.qnb
expect 1 cache verify --bundle cut.qnb
says "2 good, 0 bad"
says "tail"
expect 0 cache ls --bundle cut.qnb --json
json 'it["is_truncated"] and len(it["entries"]) == 2'
expect 0 cache merge whole.qnb cut.qnb
same whole.qnb all.qnb
expect 1 cache export cut.qnb --append
tells "not whole"

# Signatures.
quern cache keygen release --json
if [ "$code" -eq 3 ]; then
  tells "libquern-sodium.so"
else
  json 'it["secret_key"] == "release.key"'
  [ "$(stat -c %a release.key)" = 600 ] || fail "mode of a secret key: $(stat -c %a release.key)"
  expect 1 cache keygen release
  tells "exists"
  expect 0 cache keygen stranger
  expect 0 cache export signed.qnb --sign release.key
  expect 0 cache verify --bundle signed.qnb --signed-by stranger.pub --signed-by release.pub --json
  json 'it["is_verified"] and it["good"] == 2 and it["signer"] == open("release.pub").read().strip()'
  expect 0 cache ls --bundle signed.qnb
  says "not checked"
  expect 3 cache ls --bundle signed.qnb --signed-by stranger.pub
  tells "another key"
  expect 3 cache ls --bundle all.qnb --signed-by release.pub
  tells "not signed"
  expect 3 cache import all.qnb --signed-by release.pub
  expect 3 cache merge x.qnb signed.qnb all.qnb --signed-by release.pub
  expect 0 cache import signed.qnb --signed-by release.pub
  chmod 644 release.key
  expect 3 cache export x.qnb --sign release.key
  tells "readable by others"
  cp release.pub short.key
  chmod 600 short.key
  expect 1 cache export x.qnb --sign short.key
  tells "hexadecimal"
  [ ! -e x.qnb ] || fail "an export that failed left a file"
fi

# Command lines that are wrong by themselves.
usage() {
  part=$1
  shift
  expect 2 "$@"
  tells "$part"
}
usage "expected FILE" cache export
usage "expected OUT IN..." cache merge out.qnb
usage "exclude each other" cache ls --bundle all.qnb --dir .
usage "exclude each other" cache verify --bundle all.qnb --heal
usage "--bundle belongs to" cache clear --bundle all.qnb
usage "--key is 'XY'" cache export x.qnb --key XY
usage "--newer is '3w'" cache export x.qnb --newer 3w

done_with bundle
