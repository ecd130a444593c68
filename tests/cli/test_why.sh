# SPDX-License-Identifier: Apache-2.0
# `quern cache why`: found and where; each section by which a lookup can miss; damage; nothing there.
. "${0%/*}/lib.sh"
args="--arg a=1 --arg x=ones:f32[2] --arg y=ones:f32[2]"
saxpy="examples/ir/saxpy.qn"
# The same module under another name, and another module.
cp examples/ir/saxpy.qn renamed.qn
sed 's/saxpy/other/; s/a \* x/a + x/' examples/ir/saxpy.qn >other.qn
cmp -s other.qn examples/ir/saxpy.qn && fail "the other module is the same one"

# No directory: none is made by asking.
expect 0 cache why $saxpy --target interp
says "found in   -"
says "not there yet"
says "neither a cache directory nor a bundle"
[ ! -e "$QUERN_CACHE_DIR" ] || fail "asking made the directory"
expect 0 cache why $saxpy --target interp --json
json 'set(it) == {"file", "target", "tier", "is_checked", "directory", "exists", "key", "found_in",
  "nearest_key", "section", "wanted", "cached", "text"}'
json 'it["found_in"] is None and it["exists"] is False and it["section"] is None and len(it["key"]) == 32'

# shellcheck disable=SC2086
expect 0 run $saxpy --target interp $args --json
key=$(python3 -c 'import json; print(json.load(open("out"))["key"])')
find "$QUERN_CACHE_DIR" -type f -exec ls -l --full-time {} + >before
expect 0 cache why renamed.qn --target interp
says "key        $key"
says "found in   disk"
says "cached, in the directory '$QUERN_CACHE_DIR'"
expect 0 cache why renamed.qn --target interp --json
json "it['key'] == '$key' and it['found_in'] == 'disk' and it['target']['kind'] == 'interp'"

# The sections, in words.
expect 0 cache why $saxpy --target interp --tier fast
says "not cached: options: tier=fast, cached tier=full (entry $(echo "$key" | cut -c1-12) in the directory"
says "nearest    $key"
expect 0 cache why $saxpy --target interp --checked --json
json "it['section'] == 'options' and it['wanted'] == 'options: checked=1'"
json "it['cached'] == 'options: checked=0' and it['nearest_key'] == '$key' and it['is_checked'] is True"
expect 0 cache why $saxpy --target null
says "not cached: target.kind: null, cached interp"
expect 0 cache why $saxpy
says "target.kind: cpu, cached interp"
expect 0 cache why other.qn --target interp
says "module: no entry of this module (other, "
says "the nearest has another (saxpy, "
QUERN_CACHE_NAMESPACE=mine
export QUERN_CACHE_NAMESPACE
expect 0 cache why $saxpy --target interp
says "namespace: 'mine', cached ''"
unset QUERN_CACHE_NAMESPACE
QUERN_GENERATOR_DIR=none
export QUERN_GENERATOR_DIR
expect 0 cache why $saxpy --target 'cpu -mtriple=x86_64 -mcpu=x86-64-v2'
says "generator 'llvm' is not installed"
unset QUERN_GENERATOR_DIR
QUERN_JIT=forbid
export QUERN_JIT
expect 0 cache why $saxpy --target interp --checked
says "compiling is forbidden"
unset QUERN_JIT
find "$QUERN_CACHE_DIR" -type f -exec ls -l --full-time {} + >after
same before after

# Bundles, with and without a directory.
expect 0 cache export kernels.qnb
QUERN_BUNDLES=kernels.qnb
export QUERN_BUNDLES
expect 0 cache why $saxpy --target interp --dir "$work/nosuch"
says "found in   bundle"
says "kernels.qnb"
expect 0 cache why $saxpy --target interp --checked --dir "$work/nosuch"
says "in the bundle 'kernels.qnb'"
unset QUERN_BUNDLES

# Damage is told, and left alone.
file=$(find "$QUERN_CACHE_DIR" -name '*.k')
python3 -c 'import sys; open(sys.argv[1], "r+b").truncate(200)' "$file"
expect 0 cache why $saxpy --target interp
says "damaged"
[ "$(wc -c <"$file")" -eq 200 ] || fail "asking changed the file"
expect 0 cache clear
expect 0 cache why $saxpy --target interp
says "there is no entry in '$QUERN_CACHE_DIR'"

# Modes: nothing is read where nothing would be.
QUERN_CACHE=off
export QUERN_CACHE
expect 0 cache why $saxpy --target interp
says "neither a cache directory nor a bundle"
unset QUERN_CACHE

# Mistakes.
expect 2 cache why
expect 2 cache why $saxpy --tier slow
expect 2 cache stats --target interp
expect 1 cache why nosuch.qn
expect 1 cache why $saxpy --target nosuch
tells "nosuch"

done_with why
