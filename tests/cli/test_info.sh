# SPDX-License-Identifier: Apache-2.0
# `quern devices`, `quern targets`, `quern conformance --json`, `quern config`, `quern version` and
# `quern help`.
. "${0%/*}/lib.sh"

# ---- devices
expect 0 devices
says "cpu:0"
says "warp_size                    none"
expect 0 devices --json
json 'it["devices"][0]["name"] == "cpu:0" and it["devices"][0]["type"] == 1'
json 'it["devices"][0]["attributes"]["exist"] is True and it["devices"][0]["attributes"]["warp_size"] is None'
json 'it["devices"][0]["attributes"]["total_global_memory"] > 1 << 20'
# All of the table, in every device.
rows=$(grep -c '^QN_ATTRIBUTE(' "$SOURCE/include/quern/attributes.inc")
json "all(len(d['attributes']) == $rows for d in it['devices'])"
expect 0 devices cpu:0 --json
json 'len(it["devices"]) == 1'
expect 3 devices cpu:7
tells "cpu:7"
expect 1 devices cpuu
tells "cpuu"

# ---- targets
expect 0 targets
says "interp"
says "nvidia/h200"
expect 0 targets --json
json '{"cpu", "interp", "cuda", "vulkan"} <= {k["name"] for k in it["kinds"]}'
json 'all(o["type"] in ("bool", "int", "string", "list") and o["class"] in ("isa", "tuning") and o["doc"] for k in it["kinds"] for o in k["options"])'
json 'all(t["kind"] for t in it["tags"].values())'
expect 0 help target
for kind in cpu cuda vulkan interp null; do says "$kind"; done
expect 0 targets --host --json
json 'it["runs_here"] is True and it["target"]["kind"] == "cpu"'
expect 2 targets --host cpu
expect 0 targets cpu
says "vector_width"
expect 0 targets cpu --json
json 'it["name"] == "cpu" and it["runs_here"] is True and it["target"]["kind"] == "cpu"'
# The canonical form is a fixed point that can be fed back.
expect 0 targets 'cpu -mcpu=x86-64-v3 -vector_width=256'
json 'it["kind"] == "cpu" and it["vector_width"] == 256 and it["mcpu"] == "x86-64-v3"'
cp out canonical
expect 0 targets "$(cat canonical)"
same out canonical
expect 0 targets '{"kind": "interp"}' --json
json 'it["runs_here"] is True and it["lacks"] is None'
expect 0 targets cpu/neoverse-n1 --json
[ "$(uname -m)" = aarch64 ] || json 'it["runs_here"] is False and "aarch64" in it["lacks"]'
expect 1 targets cqu
tells "did you mean 'cpu'"
expect 1 targets 'cpu -vector_widht=256'
tells "did you mean 'vector_width'"
expect 1 targets '{"kind": "cpu", "vector_width": "wide"}' --json
json 'it["error"]["exit_code"] == 1 and "vector_width" in it["error"]["message"]'
expect 1 targets '{"kind": '
tells "syntax error"

# ---- conformance: only what ran is told; a list has all
expect 0 conformance --device interp --filter ^attributes/ --json
json 'it["features"] and all(f["area"] == "attributes" and "interp" in f["results"] for f in it["features"])'
json 'it["devices"][0]["pass"] + it["devices"][0]["unsupported"] == len(it["features"])'
expect 0 conformance --list --json
json 'len({f["area"] for f in it["features"]}) > 5 and not it["devices"]'

# ---- config
expect 0 config
says "QUERN_CACHE_DIR"
rows=$(grep -c '^QN_OPTION(' "$SOURCE/include/quern/options.inc")
expect 0 config --json
json "len(it['options']) == $rows"
json '{o["name"]: (o["value"], o["origin"]) for o in it["options"]}["cache_mode"] == ("rw", "default")'
json "{o['name']: (o['value'], o['origin']) for o in it['options']}['cache_dir'] == ('$QUERN_CACHE_DIR', 'environment')"
directory=$QUERN_CACHE_DIR home=$HOME
unset QUERN_CACHE_DIR
HOME=/nowhere XDG_CACHE_HOME='' expect 0 config --json
json "{o['name']: (o['value'], o['origin']) for o in it['options']}['cache_dir'] == ('/nowhere/.cache/quern', 'HOME')"
HOME=/nowhere XDG_CACHE_HOME=/else expect 0 config --json
json "{o['name']: (o['value'], o['origin']) for o in it['options']}['cache_dir'] == ('/else/quern', 'XDG_CACHE_HOME')"
HOME='' XDG_CACHE_HOME='' expect 0 config --json
json "{o['name']: (o['value'], o['origin']) for o in it['options']}['cache_dir'] == ('', 'default')"
[ "$(grep -c "no cache directory" err)" -eq 1 ] || fail "the lack of a cache directory is said once"
export QUERN_CACHE_DIR="$directory" HOME="$home"
export QUERN_CACHE=ro
expect 0 config --json
json '{o["name"]: (o["value"], o["origin"]) for o in it["options"]}["cache_mode"] == ("ro", "environment")'
export QUERN_CACHE=sometimes
expect 1 config
tells "off, ro, rw or refresh"
unset QUERN_CACHE

# ---- docs/options.md and docs/cli.md are current
expect 0 config --markdown
python3 - "$SOURCE/docs/options.md" <<'PYTHON' || fail "docs/options.md: replace the table by the output of 'quern config --markdown'"
import sys
sys.exit(0 if open("out").read() in open(sys.argv[1]).read() else 1)
PYTHON
checks=$((checks + 1))
expect 0 help --json
python3 - "$SOURCE/docs/cli.md" <<'PYTHON' || fail "docs/cli.md lacks what is named above"
import json, sys
text = open(sys.argv[1]).read()
lacking = []
for verb in json.load(open("out"))["verbs"]:
    wanted = ["## " + verb["name"]] if verb["name"] != "help" else []
    wanted += ["--" + option["name"] for option in verb["options"]]
    lacking += [w for w in wanted if w not in text]
print(*lacking, file=sys.stderr)
sys.exit(1 if lacking else 0)
PYTHON
checks=$((checks + 1))
# Every status code is in the table of exit codes, with the code that the command gives.
python3 - "$SOURCE" <<'PYTHON' || fail "docs/cli.md: the table of exit codes differs from tools/cli/report.c"
import re, sys
source = sys.argv[1]
codes = {"EXIT_DONE": 0, "EXIT_WRONG": 1, "EXIT_USAGE": 2, "EXIT_MACHINE": 3}
texts = dict(re.findall(r'^QN_STATUS_CODE\((\w+), \d+, "([^"]*)"', open(source + "/include/quern/status.inc").read(), re.M))
made = {texts[n]: codes[c] for n, c in re.findall(r"^#define EXIT_OF_(\w+) (\w+)", open(source + "/tools/cli/report.c").read(), re.M)}
del made["ok"]
told = {}
for code, names in re.findall(r"^\| (\d) \| ([^|]*) \|", open(source + "/docs/cli.md").read(), re.M):
    told.update({name.strip(): int(code) for name in names.split(",") if name.strip() in texts.values()})
print({n: (made.get(n), told.get(n)) for n in made.keys() | told.keys() if made.get(n) != told.get(n)}, file=sys.stderr)
sys.exit(0 if made == told else 1)
PYTHON
checks=$((checks + 1))

# ---- version, help
expect 0 version
says "quern "
expect 0 --version
expect 0 -V
expect 0 version --json
json 'it["version"] == it["headers"] and it["build"]'
expect 0 help
says "quern help VERB"
for verb in run check fmt compile devices targets cache config version help; do
  expect 0 help $verb
  says "usage: quern $verb"
  says "examples"
  cp out help.txt
  expect 0 $verb --help
  same out help.txt
  expect 0 $verb -h
  expect 0 help $verb --json
  json "it['verbs'][0]['name'] == '$verb'"
  "$QUERN" help $verb | awk 'length > 100 && !/^usage:/ && !/^  quern/ { exit 1 }' || fail "help $verb has lines over 100 columns"
done
for topic in values exit target; do
  expect 0 help $topic
  expect 0 help $topic --json
  json "it['topic'] == '$topic'"
done

done_with info
