# SPDX-License-Identifier: Apache-2.0
# tests/pauses/test_pauses.sh: `pauses` does nothing to a command but to stop its threads: statuses, signals, stops,
# children and threads are as without it; what it is told is checked. Nothing here depends on time; what is waited for comes.
# Skipped where threads cannot be stopped.
set -eu
: "${PAUSES:?path of the program}" "${SUBJECT:?path of the command that is paused}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# A traced process cannot be searched for leaks.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
checks=0

fail() {
  echo "FAILED: $*" >&2
  [ ! -s err ] || cat err >&2
  exit 1
}

# expect STATUS ARG...: the exit status of `pauses ARG...`.
expect() {
  wanted=$1
  shift
  status=0
  "$PAUSES" "$@" >out 2>err || status=$?
  [ "$status" -eq "$wanted" ] || fail "pauses $*: expected status $wanted, got $status"
  checks=$((checks + 1))
}

# tells TEXT: the last command's standard error has the text.
tells() {
  grep -qF -- "$1" err || fail "expected '$1' on standard error"
  checks=$((checks + 1))
}

# The command line.
expect 125
tells "pauses: a command is missing; see pauses --help"
expect 125 --seed 1
tells "a command is missing"
expect 125 --sede 1 true
tells "unknown option '--sede'"
expect 125 --seed
tells "--seed takes a value"
for value in "" x -1 1x " 1" 18446744073709551616; do
  expect 125 --seed "$value" true
  tells "--seed takes a number from 0 to 18446744073709551615, not '$value'"
done
for value in "" x 0 -3 3x nan inf 1e7; do
  expect 125 --gap-ms "$value" true
  tells "--gap-ms takes milliseconds from 0.01 to 1000000, not '$value'"
done
expect 125 --longest-ms 0.04 true
tells "--longest-ms takes milliseconds from 0.05 to 1000000, not '0.04'"
expect 125 --check true
tells "--check takes no command, not 'true'"
expect 0 --help
grep -q '^usage: pauses ' out || fail "no usage"

status=0
"$PAUSES" --check || status=$?
[ "$status" -ne 77 ] || exit 77
[ "$status" -eq 0 ] || fail "--check: status $status"

# Statuses and streams.
expect 0 true
expect 7 -- sh -c 'exit 7'
expect 143 sh -c 'kill -TERM $$'
expect 137 sh -c 'kill -KILL $$'
expect 127 "$work/absent"
tells "pauses: cannot run '$work/absent': No such file or directory"
expect 126 "$work"
tells "pauses: cannot run '$work': Permission denied"
echo across | "$PAUSES" --loud --seed 7 -- cat >out 2>err
[ "$(cat out)" = across ] || fail "standard input did not come through"
tells "pauses: seed 7: "
# An option behind the command is the command's.
expect 0 echo --loud
[ "$(cat out)" = --loud ] || fail "an option of the command was taken"

# What a tracer can get wrong, each under a few kinds of pauses.
mkfifo told
for seed in 1 2 3; do
  for kind in "0.01 0.05" "0.1 1" "1 20"; do
    set -- --seed "$seed" --gap-ms "${kind% *}" --longest-ms "${kind#* }" -- "$SUBJECT"
    for case in stopped child_stopped signals forwarded followed threads held exec_by_thread first_ends; do
      expect 0 "$@" "$case"
    done
    # It would not end while its child is traced, and the child not tell.
    cat told >heard 2>&1 &
    expect 0 "$@" leaves told
    wait $!
    [ "$(cat heard)" = "let go" ] || fail "what the command leaves running was not let go"
  done
done
"$SUBJECT" ignores "$PAUSES" || fail "the command has other signals than without pauses"
checks=$((checks + 1))
echo "$checks checks passed"
