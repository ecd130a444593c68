# SPDX-License-Identifier: Apache-2.0
# tests/deploy/lib.sh: what the tests of operating the server share: a folder of their own with a
# small model, servers that are started, awaited and ended. Read by test_*.sh; POSIX sh.
set -eu
: "${BUILD:?folder of the build}" "${SOURCE:?path of the repository}" "${TARGET:=interp}"

name=${0##*/test_}
name=${name%.sh}
work=$(mktemp -d)
children=""
at_end() {
  for child in $children; do kill -9 "$child" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap at_end EXIT
trap 'exit 1' INT TERM
cd "$work"
export QUERN_CACHE_DIR="$work/cache"
for variable in $(env | sed -n 's/^\(QUERN_SERVE_[A-Z_]*\)=.*/\1/p'); do unset "$variable"; done
unset QUERN_REMOTE QUERN_BUNDLES QUERN_JIT http_proxy HTTP_PROXY all_proxy ALL_PROXY 2>/dev/null || true
checks=0

say() { printf '%s\n' "$*"; }
fail() {
  echo "FAILED: $*" >&2
  for file in "$work"/*.log; do
    [ ! -e "$file" ] || { echo "-- ${file##*/}" >&2; tail -n 20 "$file" >&2; }
  done
  exit 1
}
skip() {
  echo "skipped: $*"
  exit 77
}
pass() { checks=$((checks + 1)); }
done_with() { echo "$name: $checks checks passed"; }

"$BUILD/bin/serve_write_folder" "$work/tiny" >model.log 2>&1 || fail "the model"

# begin NAME COMMAND...: starts a process whose output is NAME.log; its id is in $child.
begin() {
  log=$1.log
  shift
  "$@" >"$log" 2>&1 &
  child=$!
  children="$children $child"
}

# await NAME TEXT: waits until the log of the last process has the text.
await() {
  until grep -q "$2" "$1.log" 2>/dev/null; do
    kill -0 "$child" 2>/dev/null || fail "$1 ended before '$2'"
    sleep 0.05
  done
}

# serve NAME ARG...: starts a server and waits until it is ready; its address is in $address.
serve() {
  server=$1
  shift
  begin "$server" "$BUILD/bin/quern-serve" "$work/tiny" --port 0 --target "$TARGET" "$@"
  await "$server" ' info ready '
  address=$(sed -n 's/.* info ready address=\([^ ]*\) .*/\1/p' "$server.log")
}

# has FILE TEXT: the file has the text.
has() {
  grep -qF -- "$2" "$1" || fail "expected '$2' in $1"
  pass
}

# ends CHILD [CODE]: waits for the end of a process, with this exit code.
ends() {
  code=0
  wait "$1" || code=$?
  [ "$code" -eq "${2:-0}" ] || fail "process $1: exit code $code, expected ${2:-0}"
  pass
}
