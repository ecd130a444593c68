# SPDX-License-Identifier: Apache-2.0
# Colour appears on a terminal alone, never with NO_COLOR; binary output never goes to a terminal.
. "${0%/*}/lib.sh"
# A machine without pseudo-terminals (no /dev/pts) cannot ask this question.
python3 -c "import os; os.openpty()" 2>/dev/null || exit 77

# on_terminal ARG...: runs the command with its streams on a terminal; all of it lands in out.
on_terminal() {
  python3 - "$QUERN" "$@" >out 2>err <<'PYTHON' || fail "no terminal"
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    try:
        data = os.read(fd, 65536)
    except OSError:
        break
    if not data:
        break
    sys.stdout.buffer.write(data)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.stdout.buffer.flush()
open("code", "w").write(str(status))
PYTHON
}
has_colour() { grep -q "$(printf '\033')\[" "$1"; }

printf 'func f(\n' >cut.qn
expect 1 check cut.qn
has_colour err && fail "colour in a file"
unset NO_COLOR
expect 1 check cut.qn
has_colour err && fail "colour in a file"
export TERM=xterm
for verb in "check cut.qn" "help run" "devices" "config" "targets cpu"; do
  # shellcheck disable=SC2086
  on_terminal $verb
  has_colour out || fail "no colour on a terminal: $verb"
  # shellcheck disable=SC2086
  NO_COLOR=1 on_terminal $verb
  has_colour out && fail "colour despite NO_COLOR: $verb"
  # shellcheck disable=SC2086
  TERM=dumb on_terminal $verb
  has_colour out && fail "colour on a dumb terminal: $verb"
  checks=$((checks + 3))
done
on_terminal version --json
has_colour out && fail "colour in JSON"
on_terminal compile examples/ir/saxpy.qn --emit image
[ "$(cat code)" -eq 2 ] || fail "binary output on a terminal: expected exit code 2, got $(cat code)"
says "name a file with -o"

done_with terminal
