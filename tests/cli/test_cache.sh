# SPDX-License-Identifier: Apache-2.0
# `quern cache`: an empty cache, entries, damage and healing, and directories that cannot be used.
. "${0%/*}/lib.sh"
saxpy="run examples/ir/saxpy.qn --target interp --arg a=1 --arg x=ones:f32[2] --arg y=ones:f32[2]"

# Not there yet: empty, and no error.
for action in stats ls verify clear; do
  expect 0 cache $action
  expect 0 cache $action --json
  json "it['directory'] == '$QUERN_CACHE_DIR'"
done
expect 0 cache stats --json
json 'it["exists"] is False and it["entries"] == 0 and it["max_size"] == "2GiB"'
expect 1 cache show 0123
tells "there is no cache"
expect 1 cache stats --dir "$work/nosuch"
tells "nosuch"

# shellcheck disable=SC2086
expect 0 $saxpy --json
key=$(python3 -c 'import json; print(json.load(open("out"))["key"])')
expect 0 cache stats --json
json 'it["exists"] and it["entries"] == 1 and it["size_bytes"] > 0 and it["temporary_files"] == 0'
expect 0 cache ls --json
json "[e['key'] for e in it['entries']] == ['$key'] and it['entries'][0]['created_s'] > 1700000000"
expect 0 cache ls
says "$key"
expect 0 cache show "$key"
says "interp"
short=$(echo "$key" | cut -c1-6)
expect 0 cache show "$short" --json
json "it['key'] == '$key' and {'module', 'target', 'payload'} <= {s['name'] for s in it['sections']}"
expect 1 cache show 000000000000
tells "000000000000"
expect 1 cache show xyzw
tells "hexadecimal"
expect 1 cache show "$(echo "$key" | cut -c1-3)"
expect 0 cache verify --json
json 'it["good"] == 1 and it["bad"] == 0 and it["bad_entries"] == []'

# Damage: seen, told with its reason, left alone, healed; and a program never notices.
file=$(find "$QUERN_CACHE_DIR" -type f -name "*${key#??}*" | head -n 1)
[ -n "$file" ] || file=$(find "$QUERN_CACHE_DIR" -type f -size +100c | head -n 1)
size=$(wc -c <"$file")
python3 - "$file" <<'PYTHON'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[len(data) // 2] ^= 1
open(sys.argv[1], "r+b").write(data)
PYTHON
expect 1 cache verify
says "$key: "
says "0 good, 1 bad, 0 removed"
says "--heal"
expect 1 cache show "$key"
tells "data loss"
expect 1 cache verify --json
json "it['bad'] == 1 and it['bad_entries'][0]['key'] == '$key' and it['bad_entries'][0]['reason']"
expect 0 cache verify --heal --json
json 'it["bad"] == 1 and it["removed"] == 1'
expect 0 cache verify --json
json 'it["good"] == 0 and it["bad"] == 0'
# shellcheck disable=SC2086
expect 0 $saxpy --json
json 'it["source"] == "compiled"'
python3 -c 'import sys; open(sys.argv[1], "r+b").truncate(int(sys.argv[2]) // 2)' "$file" "$size"
# shellcheck disable=SC2086
expect 0 $saxpy --json
json 'it["source"] == "compiled"'
# shellcheck disable=SC2086
expect 0 $saxpy --json
json 'it["source"] == "disk"'

# Clearing leaves what quern did not make.
echo mine >"$QUERN_CACHE_DIR/mine.txt"
expect 0 cache clear --json
json 'it["removed"] == 1'
[ -e "$QUERN_CACHE_DIR/mine.txt" ] || fail "clear removed a foreign file"
expect 0 cache ls --json
json 'it["entries"] == []'

# Named, and not trusted: others may write it.
mkdir shared
chmod 0777 shared
expect 3 cache stats --dir shared
tells "shared"
expect 3 cache clear --dir shared --json
json 'it["error"]["kind"] == "permission denied" and it["error"]["exit_code"] == 3'
expect 0 cache stats --dir "$QUERN_CACHE_DIR" --json

# Nowhere to be.
code=0
env -u QUERN_CACHE_DIR -u XDG_CACHE_HOME -u HOME "$QUERN" cache stats >out 2>err || code=$?
[ "$code" -eq 3 ] || fail "without a directory: expected exit code 3, got $code"
tells "no cache directory"

done_with cache
