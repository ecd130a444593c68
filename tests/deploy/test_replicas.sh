#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two replicas behind HAProxy that share kernels: what the first one compiled, the second one loads
# from Redis, and a third one from a bundle. Then one of two is drained under load, comes back, and
# the other one is: no request fails, though the proxy repeats none.
# Skips without haproxy and redis-server.
. "${0%/*}/lib.sh"
command -v haproxy >/dev/null || skip "the replicas: haproxy is not installed"
command -v redis-server >/dev/null || skip "the replicas: redis-server is not installed"
[ -e "$BUILD/lib/libquern-redis.so" ] && [ -e "$BUILD/lib/libquern-sodium.so" ] ||
  skip "the replicas: the build has no remote tier"

begin redis redis-server --port 0 --unixsocket "$work/redis.sock" --save '' --appendonly no
await redis 'accept connections\|The server is now ready'
(umask 077 && od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >remote.key)
export QUERN_REMOTE="redis+unix://$work/redis.sock" QUERN_REMOTE_KEY="$work/remote.key"

# Sharing: an own cache directory each, none of which is read by another.
QUERN_REMOTE_ROLE=write QUERN_CACHE_DIR="$work/one" serve first --drain-delay 0
has first.log 'kernels="6 compiled" compiled=6'
kill -TERM "$child"
ends "$child"  # and with it, the kernels are in the store
QUERN_CACHE_DIR="$work/two" serve second --drain-delay 0
has second.log 'kernels="6 from remote" compiled=0'
kill -TERM "$child"
ends "$child"
(unset QUERN_REMOTE && QUERN_CACHE_DIR="$work/one" "$BUILD/bin/quern-serve" tiny --target "$TARGET" \
  --write-bundle kernels.qnb) >bundle.log 2>&1 || fail "the bundle"
has bundle.log 'kernels=6 compiled=0'

# replica NAME PORT: kernels from the bundle alone; Redis is gone.
kill "$(sed -n 's/.*pid=\([0-9]*\),.*/\1/p' redis.log | head -n 1)"
replica() {
  log=$1.log port=$2
  begin "$1" env -u QUERN_CACHE_DIR -u XDG_CACHE_HOME -u HOME "$BUILD/bin/quern-serve" tiny --port "$port" --target "$TARGET" \
    --bundle kernels.qnb --forbid-jit --drain-delay 3 --drain-timeout 30
  await "$1" ' info ready '
  has "$1.log" 'kernels="6 from bundle" compiled=0'
  address=$(sed -n 's/.* info ready address=\([^ ]*\) .*/\1/p' "$1.log")
}
replica a 0
a=$child a_port=${address##*:}
replica b 0
b=$child b_port=${address##*:}

# A check every 100 ms, two that fail take a replica out: well within the drain's delay. `retries 0`:
# a request that the proxy loses is an error of its client.
cat >haproxy.cfg <<CONFIG
global
  maxconn 1000
defaults
  mode http
  timeout connect 5s
  timeout client 120s
  timeout server 120s
  retries 0
frontend entry
  bind unix@$work/entry.sock
  default_backend replicas
backend replicas
  balance roundrobin
  option httpchk GET /v2/health/ready
  default-server check inter 100ms fall 2 rise 2
  server a 127.0.0.1:$a_port
  server b 127.0.0.1:$b_port
CONFIG
begin haproxy haproxy -db -f haproxy.cfg
until [ -S entry.sock ]; do
  kill -0 "$child" 2>/dev/null || fail "haproxy ended"
  sleep 0.05
done

# The load: clients that keep their connections, and clients that do not; each answer is checked.
cat >load.py <<'PYTHON'
import http.client, json, os, socket, sys, threading
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("entry.sock")
questions = {text: None for text in ("a", "b c", "c a b a", "b a d")}
counts, wrong, lock = [0], [], threading.Lock()
def ask(connection, text):
    connection.request("POST", "/embed", json.dumps({"inputs": text}))
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())
def run(keeps):
    connection = None
    while not os.path.exists("over") and not wrong:
        for text in questions:
            try:
                connection = connection or Connection("localhost", timeout=120)
                status, body = ask(connection, text)
                good = status == 200 and max(abs(x - y) for x, y in zip(body[0], questions[text])) < 1e-5
                problem = None if good else f"status {status}: {str(body)[:200]}"
            except Exception as error:
                problem = repr(error)
            with lock:
                counts[0] += 1
                if problem: wrong.append(problem)
            if not keeps and connection:
                connection.close()
                connection = None
for text in questions:
    status, body = ask(Connection("localhost", timeout=120), text)
    assert status == 200, body
    questions[text] = body[0]
threads = [threading.Thread(target=run, args=(i % 2 == 0,)) for i in range(6)]
for thread in threads: thread.start()
def tell():
    while any(thread.is_alive() for thread in threads):
        with open("count.new", "w") as file: file.write(str(counts[0]))
        os.rename("count.new", "count")
        threading.Event().wait(0.05)
tell()
print(f"{counts[0]} requests, {len(wrong)} failed {wrong[:3]}")
sys.exit(bool(wrong))
PYTHON
begin load python3 load.py
load=$child
# more COUNT: waits until so many further requests were answered.
more() {
  before=$(cat count 2>/dev/null || echo 0)
  until [ "$(cat count 2>/dev/null || echo 0)" -ge $((before + $1)) ]; do
    kill -0 "$load" 2>/dev/null || fail "the load ended"
    sleep 0.05
  done
}
served() { curl -sS --fail "127.0.0.1:$1/metrics" | sed -n 's/^nv_inference_request_success{.*} //p'; }
await_served() {
  before=$(served "$1")
  until [ "$(served "$1")" -gt "$before" ]; do sleep 0.05; done
  pass
}
more 200
await_served "$a_port"
await_served "$b_port"
kill -TERM "$a"
ends "$a"
has a.log 'stopped'
more 200
replica a2 "$a_port"
a=$child
await_served "$a_port"
kill -TERM "$b"
ends "$b"
more 200
: >over
child=$load
ends "$load"
has load.log ' 0 failed'
kill -TERM "$a"
ends "$a"
sed 's/^/   /' load.log

done_with
