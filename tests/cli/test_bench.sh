# SPDX-License-Identifier: Apache-2.0
# `quern bench`: what its JSON holds, counts that follow from the program, comparisons, drawings,
# interruptions, and what is wrong with a command line. No time is judged.
. "${0%/*}/lib.sh"
softmax=examples/ir/softmax.qn
TMPDIR=$work/tmp
export TMPDIR
mkdir "$TMPDIR"

cat >loops.qn <<'QN'
func product(a: f32[n, k], b: f32[k, m], out c: f32[n, m]) {
  parallel i in 0..n {
    parallel j in 0..m {
      c[i, j] = sum p in 0..k { a[i, p] * b[p, j] };
    }
  }
}
func copy(x: f64[n], out y: f64[n]) {
  parallel i in 0..n {
    y[i] = x[i];
  }
}
func halve(inout x: f32[n]) {
  while x[0] > 1.0 {
    for i in 0..n {
      x[i] = x[i] * 0.5;
    }
  }
}
func scaled(s: i32, t: f32, x: i32[n], out y: i32[n]) {
  parallel i in 0..n {
    y[i] = x[i] * s;
  }
}
func smooth(x: f32[2 * th + 2, n], out y: f32[th]) {
  parallel i in 0..th {
    y[i] = x[2 * i, 0] + x[2 * i + 2, 0];
  }
}
QN

# Every field of a row, and what must agree.
rows='all(r["median_ns"] > 0 and r["min_ns"] <= r["median_ns"] <= r["p90_ns"] <= r["p99_ns"] <= r["max_ns"] and r["samples"] > 0 and r["iterations"] > 0 and sum(r["histogram"]) == r["samples"] and len(r["rounds_ns"]) > 0 and all(t > 0 for q in r["rounds_ns"] for t in q) for r in it["rows"])'
stages='all(abs(sum(r["stages_ns"].values()) - (r["mean_ns"] if r["what"] == "miss" else r["median_ns"])) <= 0.5 * r["median_ns"] + r["max_ns"] - r["min_ns"] for r in it["rows"] if "stages_ns" in r)'
for target in $TARGETS; do
  expect 0 bench loops.qn:product --target "$target" --time 5ms --sizes n=12,m=20,k=30 --json --svg "$target.svg"
  json "$rows"
  json "$stages"
  json 'it["format"] == "quern-bench-1" and it["is_complete"] is True and it["stopped_by"] is None'
  json 'it["function"] == "product" and it["signature"].startswith("product(") and it["machine"]["cores"] >= 1'
  json '{r["what"] for r in it["rows"]} == {"cold", "disk", "miss", "memory", "call"}'
  json '{r["tier"] for r in it["rows"]} == {"fast", "full"}'
  json 'all(r["sizes"] == "n=12 k=30 m=20" for r in it["rows"])'
  # Work that is known: 2 n m k operations; every array once.
  json 'all(r["work"]["flops"] == 2 * 12 * 20 * 30 and r["work"]["moved_bytes"] == 4 * (12 * 30 + 30 * 20 + 12 * 20) and r["work"]["dtype"] == "f32" and r["work"]["is_exact"] for r in it["rows"] if r["what"] == "call")'
  json 'all(abs(r["gops"] * r["median_ns"] / r["work"]["flops"] - 1) < 0.01 for r in it["rows"] if r["what"] == "call")'
  json 'all(r["modules_per_second"] > 0 and abs(r["functions_per_second"] / r["modules_per_second"] - 5) < 1e-9 for r in it["rows"] if r["what"] == "miss")'
  json 'all(r["stages_ns"]["start"] > 0 and r["stages_ns"]["call"] > 0 for r in it["rows"] if r["what"] in ("cold", "disk"))'
  python3 -c "import xml.dom.minidom as d; d.parse('$target.svg')" || fail "the drawing is no XML"
  [ "$target" = cpu ] || continue
  json '{r["threads"] for r in it["roofs"]} == {r["threads"] for r in it["rows"] if r["what"] == "call"} and len(it["roofs"]) <= 2'
  json 'all(r["gops"] > 0 and r["dtype"] == "f32" for r in it["roofs"])'
  json 'all(any(l["name"] == "memory" for l in r["levels"]) and all(l["load_gbs"] > 0 and l["update_gbs"] > 0 for l in r["levels"]) for r in it["roofs"])'
  json 'all(r["of_roof"] > 0 and r["bound"] for r in it["rows"] if r["what"] == "call")'
  json 'all({"open", "passes", "emit", "codegen", "link"} <= set(r["stages_ns"]) for r in it["rows"] if r["what"] == "cold")'
  json 'all("codegen" not in r["stages_ns"] for r in it["rows"] if r["what"] == "disk")'
done
expect 0 bench loops.qn:copy --target interp --tier full --time 5ms --sizes n=100 --sizes n=1000 --json
json 'sorted(r["work"]["moved_bytes"] for r in it["rows"] if r["what"] == "call") == [1600, 16000]'
json 'all(r["work"]["flops"] == 0 and "gops" in r for r in it["rows"] if r["what"] == "call")'
json '[r["what"] for r in it["rows"]].count("cold") == 1'
json 'any("limits of the machine" in n["what"] and n["why"] for n in it["not_measured"])'
# Work that only the call knows is reported as such.
expect 0 bench loops.qn:halve --target interp --tier full --time 5ms --sizes n=8 --json
json 'all(r["work"] is None and "gops" not in r for r in it["rows"] if r["what"] == "call")'
json 'any("operations" in n["what"] and "while" in n["why"] for n in it["not_measured"])'
# Scalars are sizes too; arguments win, and give their symbols to the others.
expect 0 bench loops.qn:scaled --target interp --tier full --time 5ms --sizes s=3 --arg x=iota:i32[17] --json
json 'all(r["sizes"] == "n=17 s=3" and r["work"]["integer_ops"] == 17 for r in it["rows"] if r["what"] == "call")'
expect 0 bench loops.qn:smooth --target interp --tier full --time 5ms --arg x=rand:f32[12,3] --json
json 'all(r["sizes"] == "th=5 n=3" for r in it["rows"])'
# Sizes are chosen.
expect 0 bench $softmax --target interp --tier full --time 5ms
says "new process, empty cache"
says "compile in a running process"
says "where the time goes"
says "speed of the code"
says "limits of the machine"
# Comparisons: an older run, a tier, a target, a file.
call="bench loops.qn:product --target interp --sizes n=4,m=4,k=4 --time 20ms"
whole='it["comparison"] and all(c["low"] <= c["high"] and c["ratio"] > 0 and c["base_ns"] > 0 and c["verdict"] in ("faster", "slower", "no difference shown") for c in it["comparison"])'
expect 0 $call --tier full --save older.json
expect 0 $call --tier full --compare older.json --json
json "$whole"
json 'it["comparison_note"] and all(c["base"] == "loops.qn" for c in it["comparison"])'
expect 0 $call --tier full --compare older.json
says "comparison"
expect 0 $call --compare fast --json
json "$whole"
json 'all(c["tier"] == "full" and c["base"] == "fast" for c in it["comparison"])'
sed 's/func product/func other/' loops.qn >other.qn
expect 0 $call --tier full --compare other.qn:other --json
json "$whole"
json 'all(c["function"] == "product" and c["base"] == "other.qn" for c in it["comparison"])'
if $has_cpu; then
  # A module of one short function, which every new process compiles.
  sed -n '/func copy/,/^}/p' loops.qn >copy.qn
  expect 0 bench copy.qn --target interp --sizes n=16 --time 20ms --tier full --threads 1 --compare cpu --json
  json 'len(it["roofs"]) == 1'
  json "$whole"
  json 'all(c["target"] == "interp" and c["base"] == "cpu" for c in it["comparison"])'
fi
# Text from an older file is no danger.
for text in '[' '[]' '{"rows": 3}' '{"rows": [3, {"what": "call"}, {"rounds_ns": [[-1, "x", null]]}]}'; do
  printf '%s' "$text" >odd.json
  quern $call --tier full --compare odd.json --json
  [ "$code" -le 1 ] || fail "code $code for $text"
done

# What is wrong, in so many words.
expect 2 bench $softmax --tier slow
expect 2 bench $softmax --threads 0
expect 2 bench $softmax --threads 1,x
expect 2 bench $softmax --threads 100000
tells "cores of this process"
expect 2 bench $softmax --time 0
expect 2 bench $softmax --tier fast --compare fast
expect 1 bench loops.qn
tells "choose one as loops.qn:product"
expect 1 bench loops.qn:produkt
tells "did you mean 'product'"
expect 1 bench -
tells "standard input"
expect 1 bench missing.qn
expect 1 bench $softmax --sizes n
tells "expected NAME=NUMBER"
expect 1 bench $softmax --sizes q=3
tells "neither a symbol nor a scalar"
expect 1 bench $softmax --sizes n=1,m=2,n=3
tells "--sizes: 'n' was given twice"
expect 1 bench loops.qn:scaled --sizes s=1,s=2
tells "--sizes: 's' was given twice"
expect 1 bench loops.qn:scaled --sizes s=1 --arg s=2
tells "--sizes: 's' was given twice"
expect 1 bench loops.qn:scaled --arg s=1 --arg s=2
tells "--arg s was given twice"
expect 1 bench loops.qn:smooth --arg x=rand:f32[13,3]
tells "13 is 2 * th + 2 for no th; expected 12 or 14"
expect 1 bench loops.qn:smooth --arg x=rand:f32[12]
tells "argument 0 'x': expected rank 2, got 1"
expect 1 bench $softmax --arg q=3
tells "no such parameter"
expect 1 bench $softmax --target nonsense
expect 1 bench $softmax --compare missing.json
expect 1 bench $softmax --compare odd.qn
expect 1 bench $softmax --target interp --time 5ms --save missing/it.json
# A device that is missing is a finding beside others, and an error alone.
QUERN_CUDA_LIBRARY=$work/none
export QUERN_CUDA_LIBRARY
expect 0 bench $softmax --target interp --target cuda --tier full --time 5ms --json
json 'any(n["what"] == "cuda" and n["why"] for n in it["not_measured"])'
expect 3 bench $softmax --target cuda --json
json 'it["error"]["exit_code"] == 3'

# A signal ends the measurement, and what was measured stays.
cat >interrupt.py <<'PYTHON'
import json, os, signal, subprocess, sys, time
number, wants_rows = signal.Signals[sys.argv[1]], sys.argv[2] == "late"
command = [os.environ["QUERN"], "bench", "loops.qn:product", "--target", "interp", "--tier", "full",
           "--sizes", "n=4,m=4,k=4", "--threads", "1", "--time", "200" if not wants_rows else "1",
           "--save", "kept.json", "--json"]
if os.path.exists("kept.json"):
    os.remove("kept.json")
process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
while process.poll() is None:
    try:
        kept = json.load(open("kept.json"))
        if kept.get("rows") if wants_rows else kept == {}:
            break
    except (OSError, ValueError):
        pass
    time.sleep(0.01)
process.send_signal(number)
out, err = process.communicate()
assert process.returncode == 3, (process.returncode, err)
assert f"stopped by {number.name}".encode() in err, err
shown, kept = json.loads(out), json.load(open("kept.json"))
assert shown == kept and kept["is_complete"] is False and kept["stopped_by"] == number.name, kept
assert kept["rows"] or not wants_rows
PYTHON
for number in SIGINT SIGTERM; do
  for when in early late; do
    python3 interrupt.py $number $when || fail "interrupted $when by $number"
    checks=$((checks + 1))
  done
done
[ -z "$(ls "$TMPDIR")" ] || fail "left in TMPDIR: $(ls "$TMPDIR")"
[ ! -e "$QUERN_CACHE_DIR" ] || fail "the user's own cache was touched"

done_with bench
