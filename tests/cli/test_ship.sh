# SPDX-License-Identifier: Apache-2.0
# The way into an image as examples/ship.sh shows it, and what a miss there tells.
. "${0%/*}/lib.sh"
if ! "$QUERN" cache keygen probe 2>err; then
  grep -q "libquern-sodium.so" err || fail "keygen"
  echo "no cryptography: no signed bundle"
  exit 77
fi
export QUERN
for target in $TARGETS; do
  sh "$SOURCE/examples/ship.sh" "$target" >out 2>err || fail "examples/ship.sh $target"
  says "1 compiled"
  says "1 good, 0 bad"
  says "directory  none is configured"
  says "kernels.qnb: 1 entry"
  says "the nearest has another (softmax, "
  says "options: tier=fast, cached tier=full"
  says "in the bundle '"
  says "compiling is forbidden: bundles: no entry (key "
  says "shipped"
done

# A directory into which a bundle without times was unpacked is as readable as any.
expect 0 run examples/ir/saxpy.qn --target interp --arg a=2 --arg x=iota:f32[8] --arg y=ones:f32[8]
expect 0 cache export kernels.qnb --no-times
expect 0 cache clear
expect 0 cache import kernels.qnb
expect 0 cache stats --json
json 'it["entries"] == 1 and it["unreadable"] == 0 and it["by_tier"][0]["name"] == "full"'
expect 0 cache why examples/ir/saxpy.qn --target interp --checked
says "options: checked=1, cached checked=0"
if grep -q "1970" out; then fail "an entry without times has no year"; fi

# Without any directory there is still something to tell, but nothing to list.
unset QUERN_CACHE_DIR XDG_CACHE_HOME HOME
export QUERN_BUNDLES=kernels.qnb:nosuch.qnb
expect 0 cache stats --json
json 'it["directory"] is None and it["exists"] is False and len(it["bundles"]) == 2'
unset QUERN_BUNDLES
expect 3 cache stats
tells "no cache directory"
expect 3 cache ls
tells "no cache directory"
if grep -q "code generator" err; then fail "a hint that does not belong here"; fi

done_with ship
