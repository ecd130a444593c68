#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ids of requests and traces in the server's log, as JSON and as text.
. "${0%/*}/lib.sh"
trace=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01

# ask ID TRACE: one request with these headers; the answer repeats the id.
ask() {
  curl -sS --fail -D head -H "x-request-id: $1" -H "traceparent: $2" "$address/embed" -d '{"inputs": "a b"}' -o answer ||
    fail "embed"
  grep -qi "^x-request-id: $1" head || fail "the answer has not the id $1"
  pass
}
# A line of the log appears when the exchange has ended, which may be after the answer.
await_line() {
  until grep -q "$1" "$server.log"; do sleep 0.02; done
}

serve text --log-requests
ask one "$trace"
await_line 'request_id=one '
has text.log "request_id=one traceparent=$trace client=127.0.0.1 method=POST path=/embed status=200"

begin json "$BUILD/bin/quern-serve" "$work/tiny" --port 0 --target "$TARGET" --log-requests --log-json
server=json
await json '"message":"ready"'
address=$(sed -n 's/.*"address":"\([^"]*\)".*/\1/p' json.log)
ask two "$trace"
# Ids that are no ids of traces are left out: of another form, zero, upper case, of a version that is none.
ask wrong-1 nonsense
ask wrong-2 00-00000000000000000000000000000000-00f067aa0ba902b7-01
ask wrong-3 00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01
ask wrong-4 00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01
ask wrong-5 "ff${trace#00}"
ask wrong-6 "$trace-more"
ask later "cc${trace#00}-more"
curl -sS "$address/nothing" -H 'x-request-id: a"b' -H "traceparent: $trace" -o answer || fail "nothing"
await_line '/nothing'
await_line '"later"'
python3 - "$trace" <<'PYTHON' || fail "the lines of the log"
import json, sys
lines = [json.loads(line) for line in open("json.log")]
by_id = {line["request_id"]: line for line in lines if line["message"] == "request"}
assert by_id["two"]["traceparent"] == sys.argv[1] and by_id["two"]["status"] == 200, by_id
for i in range(1, 7):
    assert "traceparent" not in by_id[f"wrong-{i}"], by_id[f"wrong-{i}"]
assert by_id["later"]["traceparent"].endswith("-more")
assert by_id['a"b']["status"] == 404 and by_id['a"b']["error"] == "there is no /nothing", by_id
assert all({"time", "level", "message"} <= line.keys() for line in lines)
PYTHON
pass
done_with
