# SPDX-License-Identifier: Apache-2.0
# The remote tier through the command: one process compiles, another one on "another machine" (a
# cache directory of its own) compiles nothing and opens no compiler. Roles, passwords that are
# never shown, wrong keys, a server that hangs, a server that is not there.
. "$SOURCE/tests/cli/lib.sh"
server=$(command -v redis-server || true)
[ -n "$server" ] || [ ! -x /usr/bin/redis-server ] || server=/usr/bin/redis-server
[ -n "$server" ] || { echo "no redis-server here: skipped (tools/install-deps check)"; exit 77; }
$has_cpu || { echo "no code generator here: skipped"; exit 77; }

pid=""
finish() {
  if [ -n "$pid" ]; then
    kill -CONT "$pid" 2>/dev/null || true
    kill -KILL "$pid" 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap finish EXIT
mkdir -m 700 redis
cat >redis/acl <<'ACL'
user default off
user reader on >hunter2 ~quern:* +get
user writer on >hunter2 ~quern:* +get +set +eval +del
ACL
"$server" --port 0 --unixsocket "$work/redis/socket" --save "" --appendonly no --dir "$work/redis" \
  --aclfile "$work/redis/acl" --daemonize no >redis/log 2>&1 &
pid=$!
until grep -q "ready to accept connections at" redis/log; do
  kill -0 "$pid" 2>/dev/null || fail "redis-server does not start: $(cat redis/log)"
  sleep 0.05
done

export QUERN_REMOTE_KEY="$work/key"
printf '%064d\n' 7 >key
chmod 600 key
as() { export QUERN_REMOTE="redis+unix://$1:hunter2@$work/redis/socket"; }
# What answers is waited for however slow the machine is; so is another process that compiles.
export QUERN_REMOTE_TIMEOUT=600s QUERN_LOCK_TIMEOUT=600s
call="run examples/ir/softmax.qn --target cpu --json --arg x=rand:f32[2,5] --arg y=zeros:f32[2,5]"
# counter NAME: from the metrics of the last run; 0 when it is not there.
counter() { awk -v name="$1" '$1 ~ "(^|_)" name "(_total)?$" { value = $2 } END { print value + 0 }' metrics; }
count() {
  [ "$(counter "$1")" = "$2" ] || fail "counter $1 is $(counter "$1"), expected $2"
  checks=$((checks + 1))
}

# A reader compiles for itself and puts nothing.
as reader
export QUERN_CACHE_DIR="$work/a" QUERN_REMOTE_ROLE=read
expect 0 $call --metrics metrics
json 'it["source"] == "compiled"'
count remote_misses 1
count remote_put_queued 0
count remote_put_done 0

# A writer compiles and puts.
as writer
export QUERN_CACHE_DIR="$work/b" QUERN_REMOTE_ROLE=write
expect 0 $call
json 'it["source"] == "compiled"'
cp out cold.json

# Another machine: nothing is compiled, no compiler is opened, the bits are the same.
as reader
export QUERN_CACHE_DIR="$work/c" QUERN_REMOTE_ROLE=read
LD_DEBUG=files expect 0 $call --metrics metrics
grep -q libLLVM err && fail "a process with a remote hit opened libLLVM"
json 'it["source"] == "remote" and it["times_ns"]["compile"] == 0'
python3 "$SOURCE/tests/cli/compare.py" cold.json out || fail "compiled and remote differ"
count remote_hits 1

# The directory has kept it: the server is not asked on a local hit.
expect 0 $call --metrics metrics
json 'it["source"] == "disk"'
count remote_hits 0
count remote_connects 0

# A reader with the role of a writer: the server denies, the result is right.
export QUERN_CACHE_DIR="$work/d" QUERN_REMOTE_ROLE=write
softplus="run examples/ir/saxpy.qn --target cpu --json --arg a=2 --arg x=iota:f32[4] --arg y=ones:f32[4]"
expect 0 $softplus
json 'it["source"] == "compiled" and it["outputs"]["y"]["values"] == [1, 3, 5, 7]'
as writer
export QUERN_CACHE_DIR="$work/e" QUERN_REMOTE_ROLE=read
expect 0 $softplus
json 'it["source"] == "compiled"'

# Machines that miss at the same time: one compiles, the others wait for it.
as writer
export QUERN_REMOTE_ROLE=write
matmul="run examples/ir/matmul_tile.qn --target cpu --json --arg a=rand:f32[64,64]:1 --arg b=rand:f32[64,64]:2 --arg c=zeros:f32[64,64]"
started=""
for i in 1 2 3 4; do
  QUERN_CACHE_DIR="$work/fleet$i" "$QUERN" $matmul >"fleet$i.out" 2>"fleet$i.err" &
  started="$started $!"
done
for one in $started; do wait "$one" || fail "a machine of the fleet failed: $(cat fleet*.err)"; done
compiled=$(grep -l '"source": "compiled"' fleet?.out | wc -l)
[ "$compiled" -eq 1 ] || fail "$compiled of 4 machines have compiled"
[ "$(grep -l '"source": "remote"' fleet?.out | wc -l)" -eq 3 ] || fail "3 of 4 should have asked the store"
checks=$((checks + 2))
export QUERN_REMOTE_ROLE=read

# Another key, another domain: compiled.
printf '%064d\n' 8 >other
chmod 600 other
export QUERN_CACHE_DIR="$work/f" QUERN_REMOTE_KEY="$work/other"
expect 0 $call --metrics metrics
json 'it["source"] == "compiled"'
count remote_bad_mac 1
export QUERN_CACHE_DIR="$work/g" QUERN_REMOTE_KEY="$work/key" QUERN_REMOTE_DOMAIN=staging
expect 0 $call --metrics metrics
json 'it["source"] == "compiled"'
count remote_misses 1
unset QUERN_REMOTE_DOMAIN

# Bad settings: a warning that shows no password, and work goes on.
for bad in "redis://u:hunter2@h:0" "rediss://u:hunter2@h" "u:hunter2@h" "redis://hunter2@h"; do
  export QUERN_CACHE_DIR="$work/h" QUERN_REMOTE="$bad"
  expect 0 $call
  tells "remote"
  expect 0 config
  says "***@"
  ! grep -q hunter2 out err || fail "a password is shown"
  expect 0 config --json
  ! grep -q hunter2 out err || fail "a password is shown"
done
chmod 644 key
as writer
expect 0 $call
tells "readable by others"
chmod 600 key

# A server that hangs, and none at all.
as writer
kill -STOP "$pid"
export QUERN_REMOTE_ROLE=write
# On a busy machine the time may be over before the server was asked, which says nothing of the server.
for seconds in 1 4 16 64; do
  export QUERN_CACHE_DIR="$work/i$seconds" QUERN_REMOTE_TIMEOUT=${seconds}s
  expect 0 $call --metrics metrics
  json 'it["source"] == "compiled"'
  count remote_timeouts 1
  ! grep -q "gets are off" err || break
done
tells "gets are off"
! grep -q hunter2 out err || fail "a password is shown"
kill -CONT "$pid"
kill -KILL "$pid"
wait "$pid" 2>/dev/null || true
pid=""
export QUERN_CACHE_DIR="$work/j" QUERN_REMOTE_TIMEOUT=600s
expect 0 $call --metrics metrics
json 'it["source"] == "compiled"'
count remote_errors 1

done_with remote
