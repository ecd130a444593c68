#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The image of deploy/Dockerfile without Docker: its root, made by the same script, read-only under a
# process of its own namespaces and of another user, with no environment.
. "${0%/*}/lib.sh"
[ "$(id -u)" = 0 ] || skip "the image: chroot needs root"
unshare --mount --pid --fork true 2>/dev/null || skip "the image: this machine allows no namespaces"

# Docker's instructions of the run stage: `docker_says USER`, and the words of a list as lines.
docker_says() { sed -n "/^FROM scratch/,\$s/^ *$1 \(.*\)/\1/p" "$SOURCE/deploy/Dockerfile"; }
words() { docker_says "$1" | python3 -c 'import json, sys; print("\n".join(json.load(sys.stdin)))'; }
user=$(docker_says USER)
[ "$user" = 65532:65532 ] || fail "the image runs as '$user'"

"$SOURCE/deploy/make-root" root --build "$BUILD" --model tiny --target "$TARGET" >make.log 2>&1 ||
  fail "deploy/make-root"
has make.log "compiled=6"
has make.log "kernels=6"
if find root | grep -E 'llvm|LLVM|/sh$|nvrtc|shaderc|\.a$|include'; then fail "the image has more than it needs"; fi
if find root -perm /022 ! -type l | grep .; then fail "others may write these"; fi
pass

# in_image COMMAND...: as the container's runtime would start it, with process id 1.
cat >in_image <<'SCRIPT'
set -eu
root=$1 user=$2
shift 2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
if touch "$root/x" 2>/dev/null; then
  echo "the root can be written" >&2
  exit 9
fi
cd "$root"
exec env -i QUERN_SERVE_PORT="${PORT:-0}" /usr/sbin/chroot --userspec="$user" "$root" "$@"
SCRIPT
words ENTRYPOINT >entry
words CMD >probe  # that of HEALTHCHECK
grep -qx -- --probe probe || fail "HEALTHCHECK asks no probe"
run_image() {
  file=$1
  set -- unshare --mount --pid --fork --kill-child sh "$work/in_image" "$work/root" "$user"
  while IFS= read -r word; do set -- "$@" "$word"; done <"$file"
  "$@"
}
begin image run_image "$work/entry"
await image '"message":"ready"'
has image.log '"models":"tiny"'
has image.log '"kernels":"6 from bundle","compiled":0'
has image.log '"address":"0.0.0.0:'
port=$(sed -n 's/.*"address":"0.0.0.0:\([0-9]*\)".*/\1/p' image.log)
server=$(pgrep -f '^/usr/bin/quern-serve --config /etc/quern-serve.json /model' | while read -r id; do
  if [ "$(readlink "/proc/$id/root")" = "$work/root" ]; then echo "$id"; fi
done)
[ -n "$server" ] || fail "the server's process is not there"
has "/proc/$server/status" "$(printf 'Uid:\t65532\t65532\t65532\t65532')"
if grep -qE 'libLLVM|libquern-llvm' "/proc/$server/maps"; then fail "a compiler is loaded"; fi

curl -sS --fail "127.0.0.1:$port/embed" -d '{"inputs": ["a b", "c"]}' -o answer || fail "embed"
python3 -c 'import json; x = json.load(open("answer")); assert [len(v) for v in x] == [32, 32]' || fail "the answer"
pass
curl -sS --fail "127.0.0.1:$port/metrics" -o metrics || fail "metrics"
has metrics 'quern_serve_kernels{source="bundle"} 6'
has metrics 'quern_serve_compiles_total{phase="start"} 0'
has metrics 'quern_serve_compiles_total{phase="serving"} 0'

# The health check asks the same server: 0 while it serves, 1 when it drains, which takes its delay.
PORT=$port run_image "$work/probe" || fail "the probe of a ready server"
pass
kill -TERM "$server"
await image '"message":"draining"'
code=0
PORT=$port run_image "$work/probe" >probe.log 2>&1 || code=$?
[ "$code" = 1 ] || fail "the probe of a draining server: exit code $code"
has probe.log "the server is not ready: status 503"
ends "$child"
has image.log '"message":"stopped"'
code=0
PORT=$port run_image "$work/probe" >probe.log 2>&1 || code=$?
[ "$code" = 1 ] || fail "the probe without a server: exit code $code"
has probe.log "no answer within 3 s"

# The same model and compiler give the same bytes.
"$SOURCE/deploy/make-root" again --build "$BUILD" --model tiny --target "$TARGET" >again.log 2>&1 || fail "again"
cmp root/usr/share/quern/kernels.qnb again/usr/share/quern/kernels.qnb || fail "two bundles of one model differ"
pass
# Mistakes are named.
if "$SOURCE/deploy/make-root" root --build "$BUILD" --model tiny 2>err.log; then fail "an old folder was taken"; fi
has err.log "root exists"
if "$SOURCE/deploy/make-root" other --build "$BUILD" --model "$SOURCE/docs" 2>err.log; then fail "no model"; fi
has err.log "has no config.json"
code=0
"$BUILD/bin/quern-serve" tiny --target "$TARGET" --write-bundle nowhere/kernels.qnb >err.log 2>&1 || code=$?
[ "$code" = 1 ] || fail "a bundle in a folder that is missing: exit code $code"
has err.log "nowhere/kernels.qnb"
code=0
QUERN_CACHE=off "$BUILD/bin/quern-serve" tiny --target "$TARGET" --write-bundle kernels.qnb >err.log 2>&1 || code=$?
[ "$code" = 1 ] || fail "a bundle without a directory: exit code $code"
has err.log "there is none; set QUERN_CACHE_DIR"

done_with
