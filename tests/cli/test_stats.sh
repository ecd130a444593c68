# SPDX-License-Identifier: Apache-2.0
# `quern cache stats`: counts by target, generator and tier, ages, place, bundles and remote; and
# `quern run --metrics --trace`, whose files are read by strict readers.
. "${0%/*}/lib.sh"
# shellcheck disable=SC2086
saxpy="run examples/ir/saxpy.qn --target interp --arg a=1 --arg x=ones:f32[2] --arg y=ones:f32[2]"

# Nothing yet: every field is there all the same.
fields="directory exists entries size_bytes temporary_files max_size max_entries full_percent code_bytes compile_ns
  unreadable oldest_s newest_s least_recently_used_s swept_s locks free_bytes total_bytes by_target by_generator
  by_tier bundles remote"
expect 0 cache stats --json
json "set('''$fields'''.split()) == set(it)"
json 'it["entries"] == 0 and it["oldest_s"] is None and it["by_target"] == [] and it["remote"] is None'
expect 0 cache stats
says "not there yet"

# shellcheck disable=SC2086
expect 0 $saxpy
# shellcheck disable=SC2086
expect 0 $saxpy --tier fast
# shellcheck disable=SC2086
expect 0 $saxpy --checked
expect 0 cache stats --json
json "set('''$fields'''.split()) == set(it)"
json 'it["entries"] == 3 and it["unreadable"] == 0 and it["locks"] == 0 and it["temporary_files"] == 0'
json '[(g["name"], g["entries"]) for g in it["by_target"]] == [("interp", 3)]'
json 'sorted((g["name"], g["entries"]) for g in it["by_tier"]) == [("fast", 1), ("full", 1), ("full, checked", 1)]'
json 'len(it["by_generator"]) == 1 and it["by_generator"][0]["name"].startswith("interp ")'
json 'it["compile_ns"] == sum(g["compile_ns"] for g in it["by_tier"]) > 0'
json 'it["size_bytes"] == sum(g["size_bytes"] for g in it["by_target"]) > it["code_bytes"] > 0'
json '1700000000 < it["oldest_s"] <= it["newest_s"] and it["least_recently_used_s"] > 1700000000'
json 'it["total_bytes"] >= it["free_bytes"] > 0 and 0 < it["full_percent"] < 1'
expect 0 cache stats
says "interp: 3 entries"
says "full, checked: 1 entry"
says "0 held now"

# Full, by the bound that is nearer; a file whose beginning is none.
export QUERN_CACHE_MAX_ENTRIES=4
expect 0 cache stats --json
json 'it["max_entries"] == 4 and it["full_percent"] == 75'
unset QUERN_CACHE_MAX_ENTRIES
file=$(find "$QUERN_CACHE_DIR" -name '*.k' | head -n 1)
printf 'nothing' >"$file"
expect 0 cache stats --json
json 'it["entries"] == 3 and it["unreadable"] == 1 and sum(g["entries"] for g in it["by_tier"]) == 2'
expect 0 cache stats
says "unreadable 1"
expect 0 cache verify --heal

# Bundles that are configured, and the remote tier without its password.
expect 0 cache export bundle.qnb
export QUERN_BUNDLES="bundle.qnb:nosuch.qnb" QUERN_REMOTE="redis://user:secret@127.0.0.1:1/0"
expect 0 cache stats --json
json '[b["is_usable"] for b in it["bundles"]] == [True, False] and it["bundles"][0]["entries"] == 2'
json '"nosuch" in it["bundles"][1]["error"] and it["remote"]["role"] == "read"'
json '"secret" not in json.dumps(it)'
expect 0 cache stats
says "2 entries"
says "not used"
says "role read"
! grep -q secret out || fail "the password is shown"
unset QUERN_BUNDLES QUERN_REMOTE

# Metrics and a trace of one run.
# shellcheck disable=SC2086
expect 0 $saxpy --metrics metrics.txt --trace trace.json
python3 "$SOURCE/tests/support/prometheus.py" metrics.txt >out 2>err || fail "not the Prometheus format"
says "families"
grep -q '^quern_lookups_total 1$' metrics.txt || fail "no lookup was counted"
cat >check_trace.py <<'PYTHON'
import json, sys
it = json.load(open(sys.argv[1]))
events = it["traceEvents"]
spans = [e for e in events if e["ph"] == "X"]
names = {e["name"] for e in spans}
assert "directory" in names, names
for e in spans:
    assert e["dur"] >= 0 and e["ts"] > 0 and isinstance(e["args"]["name"], str), e
named = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
assert {(e["pid"], e["tid"]) for e in spans} <= named
assert all(set(e) >= {"ph", "pid", "tid", "name"} for e in events)
PYTHON
python3 check_trace.py trace.json || fail "not a trace"
checks=$((checks + 1))
# By the environment, with the process in the name; an engine that does nothing leaves it alone.
# shellcheck disable=SC2086
QUERN_TRACE="$work/env-%p.json" "$QUERN" $saxpy >out 2>err || fail "with QUERN_TRACE"
[ "$(find . -name 'env-*.json' | wc -l)" -eq 1 ] || fail "expected one trace"
find . -name 'env-*.json' -exec python3 check_trace.py {} \; || fail "not a trace"
QUERN_TRACE=trace.json "$QUERN" config >out 2>err || fail "config"
python3 check_trace.py trace.json || fail "the trace is gone"
# A trace that cannot be written is told beforehand, by the environment only in the log.
# shellcheck disable=SC2086
expect 1 $saxpy --trace nosuch/trace.json
tells "nosuch/trace.json"
# shellcheck disable=SC2086
QUERN_TRACE=nosuch/trace.json "$QUERN" $saxpy >out 2>err || fail "a trace is not worth an error"
tells "nosuch/trace.json"
# shellcheck disable=SC2086
expect 1 $saxpy --metrics nosuch/metrics.txt

done_with stats
