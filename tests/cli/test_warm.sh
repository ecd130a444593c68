# SPDX-License-Identifier: Apache-2.0
# `quern warm`: lists, outcomes, workers that crash or hang, interrupts, what is left behind; and
# `quern cache verify --recompile`.
. "${0%/*}/lib.sh"
: "${FAULTY:?folder of the faulty generator}"

# Modules whose names tell the faulty generator what to do.
mkdir lists
module() { echo "func $1(out y: i32[n]) { for i in 0..n { y[i] = ${2:-1}; } }" >"lists/$1.qn"; }
for name in fine good crash killed abort leave hang once refuse slow; do module $name; done

# workers: the processes of this test's command, whose working directory nobody else has.
workers() {
  for link in /proc/[0-9]*/cwd; do
    pid=${link#/proc/}
    pid=${pid%/cwd}
    [ "$(readlink "$link" 2>/dev/null)" = "$work" ] || continue
    ! tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q 'warm --worker' || echo "$pid"
  done
}
# until_none COMMAND...: waits until it prints nothing; fails after minutes, which no slow machine takes.
until_none() {
  tries=0
  while [ -n "$("$@")" ]; do
    tries=$((tries + 1))
    [ $tries -lt 6000 ] || fail "$* still gives: $("$@")"
    sleep 0.1
  done
}
# alone: no worker stays. One that was killed may be a while in going where others have the processor.
alone() {
  until_none workers
  checks=$((checks + 1))
}

# ---- lists

cat >lists/text.list <<'LIST'
# a comment, and an empty line

fine.qn --target interp
  fine.qn   --target=interp      # the same key
"fine.qn" --tier fast --target 'interp'
good.qn --checked --target interp
missing.qn --target interp
fine.qn --target intrep
fine.qn --speed 3
fine.qn --tier slow
fine.qn 'unclosed
fine.qn good.qn
{"version":1,"key":"torn
{"version":2}
LIST
printf 'fine.qn --target interp' >>lists/text.list
expect 1 warm lists/text.list --json
json 'it["total"] == 3 and it["compiled"] == 3 and it["is_warm"]'
json '[p["line"] for p in it["problems"]] == [7, 8, 9, 10, 11, 12, 13, 14]'
json 'all(p["source"] == "lists/text.list" for p in it["problems"])'
json '"missing.qn" in it["problems"][0]["message"] and "interp" in it["problems"][1]["message"]'
json 'len(set(k["key"] for k in it["keys"])) == 3'
json 'sorted((k["tier"], k["is_checked"]) for k in it["keys"]) == [("fast", False), ("full", False), ("full", True)]'
tells "lists/text.list:9: expected --target T, --set D=N, --tier fast|full or --checked, got '--speed'"
tells "lists/text.list:11: expected a closing quote"
tells "lists/text.list:13: expected a whole JSON object (the line may be torn)"

# All is there now, for whichever list names it, from whichever folder; the cache is asked alone.
echo "$work/lists/fine.qn --target interp" >absolute.list
expect 0 warm absolute.list - --json <<'LIST'
lists/good.qn --checked --target interp
LIST
json 'it["total"] == 2 and it["cached"] == 2 and it["workers"] == 0'
expect 0 warm absolute.list
says "1 key: 1 cached"

# Bytes that are no list at all.
head -c 5000 /dev/urandom >lists/noise.list
quern warm lists/noise.list --target interp
[ "$code" -eq 1 ] || fail "noise: exit code $code"
expect 1 warm lists/missing.list
tells "cannot open 'lists/missing.list'"
expect 2 warm
expect 2 warm absolute.list --jobs 0
expect 2 warm absolute.list --timeout never
expect 2 warm absolute.list --tier best

# Without a directory that can be written there is nothing to warm.
export QUERN_CACHE=ro
expect 1 warm absolute.list
tells "may only read"
export QUERN_CACHE=off
expect 1 warm absolute.list
tells "needs a cache directory"
unset QUERN_CACHE

# What a service records becomes a list, for any number of processes at once.
for i in 1 2 3 4; do
  QUERN_RECORD="$work/recorded" QUERN_CACHE=off "$QUERN" run examples/ir/saxpy.qn --target interp \
    --arg a=$i --arg x=iota:f32[8] --arg y=ones:f32[8] >/dev/null &
  pids="${pids:-} $!"
done
for pid in $pids; do wait "$pid" || fail "a recording process failed"; done
[ "$(wc -l <recorded)" -eq 4 ] || fail "expected 4 recorded lines"
echo '{"version":1,"torn' >>recorded
QUERN_CACHE_DIR="$work/recorded.cache" expect 1 warm recorded --json
json 'it["total"] == 1 and it["compiled"] == 1 and len(it["problems"]) == 1'
QUERN_CACHE_DIR="$work/recorded.cache" expect 0 run examples/ir/saxpy.qn --target interp --json \
  --arg a=1 --arg 'x=iota:f32[8]' --arg 'y=ones:f32[8]'
json 'it["source"] == "disk"'

# Instead of the targets and tiers in the list.
echo "good.qn --target cpu --tier fast" >lists/other.list
expect 0 warm lists/other.list --target interp --tier full --json
json 'it["total"] == 1 and it["keys"][0]["target"]["kind"] == "interp" and it["keys"][0]["tier"] == "full"'
expect 0 warm lists/other.list --target interp --tier fast --dry-run
says "good@"
says "1 key: 1 to compile"
expect 0 cache stats --json
json 'it["entries"] == 4'

# A thousand keys, and what a list made of the directory has.
python3 - >lists/many.list <<'PYTHON'
for i in range(1000):
    with open(f"lists/k{i}.qn", "w") as file:
        file.write(f"func k{i}(out y: i32[n]) {{ for i in 0..n {{ y[i] = {i}; }} }}")
    print(f"k{i}.qn --target interp")
PYTHON
expect 0 warm lists/many.list --jobs 2 --json
json 'it["total"] == 1000 and it["compiled"] == 1000 and it["workers"] <= 2'
expect 0 warm --from-cache --json
json 'it["from_cache"]["entries"] == 1004 and it["from_cache"]["taken"] == 1004'
json 'it["total"] == 1004 and it["cached"] == 1004'
expect 0 warm --from-cache --tier fast --jobs 2 --json
json 'it["compiled"] > 1000'
QUERN_CACHE_NAMESPACE=other expect 0 warm --from-cache --json
json 'it["total"] == 0 and it["from_cache"]["other_namespace"] > 2000'

# ---- workers that crash, hang and refuse

export QUERN_GENERATOR_DIR="$FAULTY"
export QUERN_CACHE_DIR="$work/faulty"
printf '%s.qn\n' crash fine killed abort leave once refuse good >lists/faulty.list
expect 1 warm lists/faulty.list --jobs 2 --json
json 'it["total"] == 8 and not it["is_warm"]'
json '{k["name"].split("@")[0]: k["outcome"] for k in it["keys"]} == {"crash": "crashed", "killed": "crashed", "abort": "crashed", "leave": "crashed", "fine": "compiled", "good": "compiled", "once": "compiled", "refuse": "failed"}'
json '{k["name"].split("@")[0]: k["attempts"] for k in it["keys"]} == {"crash": 2, "killed": 2, "abort": 2, "leave": 2, "fine": 1, "good": 1, "once": 2, "refuse": 1}'
json '[k["signal"] for k in it["keys"] if k["name"].startswith("crash")] == [11]'
json '["no luck" in k["error"] and k["signal"] == 6 for k in it["keys"] if k["name"].startswith("abort")] == [True]'
json '["the last exited with code 7" in k["error"] for k in it["keys"] if k["name"].startswith("leave")] == [True]'
json 'all(len(k["key"]) == 32 for k in it["keys"])'
tells "crash@"
tells "SIGSEGV"
tells "'refuse' is not to this generator's liking"
alone
expect 0 cache stats --json
json 'it["entries"] == 3'

# What hangs is given up after its time, and nothing else is. A machine may be so slow that one second is
# not enough for the keys that do not hang, of which one is slow, and the other is found by its worker alone:
# what this generator calls itself cannot be told before it is open. Twice the time is, or twice that.
printf '%s.qn\n' hang fine slow >lists/hang.list
for seconds in 1 2 4 8 16 32 64; do
  expect 1 warm lists/hang.list --timeout $seconds --json
  json '[k["outcome"] for k in it["keys"] if k["name"].startswith("hang")] == ["timed_out"]'
  tells "hang@"
  tells "timed out: its worker was killed after $seconds s"
  alone
  [ "$(grep -c '"outcome": "timed_out"' out)" -gt 1 ] || break
done
# A round that was too short for one may have been enough for the other.
json '[k["outcome"] for k in it["keys"] if k["name"].startswith("fine")] == ["cached"]'
json '[k["outcome"] for k in it["keys"] if k["name"].startswith("slow")][0] in ["compiled", "cached"]'

# Keys that nobody can make do not starve the others: more crashes than workers.
for i in 1 2 3 4 5 6; do
  module "crash$i" $i
  module "fine$i" $i
  echo "crash$i.qn"
  echo "fine$i.qn"
done >lists/many_crashes.list
expect 1 warm lists/many_crashes.list --jobs 2 --json
json 'it["crashed"] == 6 and it["compiled"] == 6'
alone

# ---- the end of the coordinator

# hanging: waits until both workers have got keys that hang.
hanging() { until_none missing_marks; }
missing_marks() { [ "$(cat hang.marks 2>/dev/null | wc -l)" -ge 2 ] || echo "workers without keys"; }

# An interrupt ends the work, but not the summary.
module hang2 2
printf '%s.qn\n' hang fine hang2 >lists/interrupted.list
rm -f hang.marks
"$QUERN" warm lists/interrupted.list --jobs 2 --timeout 3600 --json >out 2>err &
pid=$!
hanging
kill -TERM $pid
code=0
wait $pid || code=$?
[ "$code" -eq 143 ] || fail "interrupted: exit code $code"
json 'it["is_cancelled"] and it["cached"] == 1 and it["skipped"] == 2'
alone

# Nor do workers outlive one that is killed.
rm hang.marks
"$QUERN" warm lists/interrupted.list --jobs 2 --timeout 3600 >out 2>err &
pid=$!
hanging
kill -KILL $pid
wait $pid || true
until_none workers

# ---- a command that cannot work as a worker ends the run instead of failing key by key

export QUERN_GENERATOR_DIR=none
printf '%s.qn\n' fine good >lists/plain.list
expect 1 warm lists/plain.list --json
json 'it["failed"] == 2 and "not installed" in it["keys"][0]["error"]'
unset QUERN_GENERATOR_DIR

# ---- a bundle of what is warm

export QUERN_CACHE_DIR="$work/cache"
echo 'good.qn --target interp --tier fast' >lists/bundle.list
expect 0 warm absolute.list lists/bundle.list --bundle first.qb --json
json 'it["total"] == 2 and it["is_warm"] and it["bundle"]["entries"] == 2'
expect 0 warm absolute.list lists/bundle.list --bundle again.qb
says "again.qb: 2 entries"
same first.qb again.qb
# Where the bundle is, nothing needs to be compiled; a bundle of that has its keys all the same.
QUERN_BUNDLES="$work/first.qb" QUERN_CACHE_DIR="$work/empty" \
  expect 0 warm absolute.list lists/bundle.list --bundle third.qb --json
json 'it["cached"] == 2 and it["bundle"]["entries"] == 2'
same first.qb third.qb
expect 2 warm absolute.list --sign key
expect 1 warm absolute.list --bundle "$work/missing/out.qb"
export QUERN_CACHE_DIR="$work/faulty"

# ---- compiled again

expect 0 cache verify --dir "$work/cache" --recompile 20 --seed 7 --json
json 'it["same"] == 20 and it["different"] == 0 and it["seed"] == 7 and it["entries"] > 2000'
expect 0 cache verify --dir "$work/cache" --recompile all
says "the same, 0 different, 0 failed"
# What the faulty generator made is another one's.
expect 0 cache verify --recompile all --json
json 'it["same"] == 0 and it["other_codegen"] == it["entries"] > 3'
QUERN_GENERATOR_DIR="$FAULTY" expect 0 cache verify --recompile all --json
json 'it["same"] == it["entries"] and it["other_codegen"] == 0'
# A generator that is not deterministic is found out.
module coin
echo coin.qn >lists/coin.list
QUERN_GENERATOR_DIR="$FAULTY" expect 0 warm lists/coin.list
QUERN_GENERATOR_DIR="$FAULTY" expect 1 compile lists/coin.qn --target cpu --emit asm
tells "generator 'llvm' has no intermediate forms"
QUERN_GENERATOR_DIR="$FAULTY" expect 1 cache verify --recompile all --json
json 'it["different"] == 1 and it["same"] + 1 == it["entries"]'
json '[(d["section"], 8 <= d["offset"] < 24, d["made_size"]) for d in it["differences"]] == [("payload", True, 64)]'
json 'it["differences"][0]["cached"] != it["differences"][0]["made"]'
QUERN_GENERATOR_DIR="$FAULTY" expect 1 cache verify --recompile all
says "payload differs from byte"
expect 2 cache verify --recompile some
expect 2 cache verify --seed 3
expect 2 cache verify --heal --recompile 3
expect 2 cache verify --bundle first.qb --recompile 3
if $has_cpu; then
  export QUERN_CACHE_DIR="$work/cpu"
  expect 0 warm "$SOURCE/examples/warm.list" --target cpu --target 'cpu -mcpu=x86-64' --jobs 2
  expect 0 cache verify --recompile all --json
  json 'it["same"] == it["entries"] == 10'
fi

done_with warm
