# SPDX-License-Identifier: Apache-2.0
# tests/cli/lib.sh: what the tests of the command share: a folder and a cache of their own, and
# checks that say what was expected. Read by test_*.sh; POSIX sh.
set -eu
: "${QUERN:?path of the command}" "${SOURCE:?path of the repository}" "${TARGETS:=interp}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
ln -s "$SOURCE/examples" examples
export QUERN_CACHE_DIR="$work/cache"
export NO_COLOR=1
unset QUERN_CACHE QUERN_CACHE_MAX_SIZE QUERN_LOG QUERN_DUMP QUERN_DUMP_DIR 2>/dev/null || true
# The leak checker of gcc 12 misreads the thread-local storage of libraries that were opened at run
# time, and crashes at exit.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}intercept_tls_get_addr=0"
export LSAN_OPTIONS="${LSAN_OPTIONS:+$LSAN_OPTIONS:}print_suppressions=0"
has_cpu=false
case " $TARGETS " in *" cpu "*) has_cpu=true ;; esac
checks=0

fail() {
  echo "FAILED: $*" >&2
  [ ! -e out ] || { echo "-- stdout" >&2; cat out >&2; }
  [ ! -e err ] || { echo "-- stderr" >&2; cat err >&2; }
  exit 1
}

# quern ARG...: runs the command; its streams are in the files out and err, its exit code in $code.
quern() {
  code=0
  "$QUERN" "$@" >out 2>err || code=$?
  [ "$code" -lt 128 ] || fail "quern $* ended by signal $((code - 128))"
  [ -z "$(LC_ALL=C tr -d '\011\012\040-\176\200-\377' <err)" ] || fail "controls on standard error: quern $*"
}

# expect CODE ARG...: the exit code of `quern ARG...`.
expect() {
  wanted=$1
  shift
  quern "$@"
  [ "$code" -eq "$wanted" ] || fail "quern $*: expected exit code $wanted, got $code"
  checks=$((checks + 1))
}

# says TEXT, tells TEXT: the last command's standard output, or standard error, has the text.
says() {
  grep -qF -- "$1" out || fail "expected '$1' on standard output"
  checks=$((checks + 1))
}
tells() {
  grep -qF -- "$1" err || fail "expected '$1' on standard error"
  checks=$((checks + 1))
}

# json EXPRESSION: the last command's output is JSON (`it`) for which the Python expression holds.
json() {
  python3 -m json.tool out >/dev/null || fail "not JSON"
  python3 - "$1" <<'PYTHON' || fail "expected of the JSON: $1"
import json, sys
it = json.load(open("out"))
sys.exit(0 if eval(sys.argv[1]) else 1)
PYTHON
  checks=$((checks + 1))
}

# same FILE FILE: equal bytes.
same() {
  cmp -s "$1" "$2" || fail "'$1' and '$2' differ: $(diff "$1" "$2" | head -n 5)"
  checks=$((checks + 1))
}

done_with() { echo "$1: $checks checks passed"; }
