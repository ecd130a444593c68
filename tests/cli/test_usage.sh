# SPDX-License-Identifier: Apache-2.0
# Command lines that are wrong by themselves: code 2, one line that names the thing, and a hint.
. "${0%/*}/lib.sh"
saxpy=examples/ir/saxpy.qn

usage() {
  part=$1
  shift
  expect 2 "$@"
  tells "quern: usage: "
  tells "$part"
  tells "quern: hint: "
  [ ! -s out ] || fail "a usage error printed to standard output"
}
usage "unknown verb 'rnu'; did you mean 'run'?" rnu
usage "unknown verb 'zzz'" zzz
usage "unknown verb '--jsn'" --jsn
usage "expected FILE.qn" run
usage "unexpected 'more.qn'" run $saxpy more.qn
usage "unknown option '--targt'; did you mean '--target'?" run $saxpy --targt cpu
usage "unknown option '-z'" run $saxpy -z
usage "option '--target' needs a value" run $saxpy --target
usage "option '--target' was given twice" run $saxpy --target cpu --target interp
usage "option '--checked' takes no value" run $saxpy --checked=yes
usage "--repeat is '0'" run $saxpy --repeat 0
usage "--repeat is 'x'" run $saxpy --repeat x
usage "--repeat is '99999999999999999999'" run $saxpy --repeat 99999999999999999999
usage "--tier is 'best'" run $saxpy --tier best
usage "--miss is 'maybe'" run $saxpy --miss maybe
usage "--timeout is 'soon'" run $saxpy --timeout soon
usage "expected NAME=VALUE" run $saxpy --arg x
usage "expected NAME=VALUE" run $saxpy --arg =1
usage "expected NAME=FILE.npy" run $saxpy --out y=
usage "did you mean 'zeros:'" run $saxpy --arg x=zero:f32[2]
usage "unknown dtype 'f33'" run $saxpy --arg x=zeros:f33[2]
usage "not understood" run $saxpy --arg x=many
usage "beyond 64-bit" run $saxpy --arg x=99999999999999999999
usage "expected FILE.qn" check
usage "exclude each other" fmt --check --in-place $saxpy
usage "standard input" fmt --in-place -
usage "expected ACTION" cache
usage "did you mean 'stats'" cache stast
usage "unknown action 'zzz'" cache zzz
usage "cache show: expected KEY" cache show
usage "unexpected 'x'" cache ls x
usage "--heal belongs to 'cache verify'" cache ls --heal
usage "--bundle belongs to 'cache ls', 'cache show', 'cache verify'" cache clear --bundle x.qnb
usage "no help on 'rnu'; did you mean 'run'?" help rnu
expect 2 compile $saxpy --emit image --json
tells "--emit image is binary"
json 'it["error"]["kind"] == "usage" and it["error"]["exit_code"] == 2'

# Without a verb, help is shown, and it counts as a usage error.
expect 2
says "usage: quern VERB"
# A file whose name begins with a dash.
cp "$SOURCE/$saxpy" ./-x.qn
expect 0 check -- -x.qn
# A full disk is no success.
code=0
"$QUERN" help >/dev/full 2>err || code=$?
[ "$code" -eq 3 ] || fail "help to a full disk: expected exit code 3, got $code"
tells "standard output"

done_with usage
