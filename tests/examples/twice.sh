# SPDX-License-Identifier: Apache-2.0
# tests/examples/twice.sh PROGRAM [ARG...]: runs the program twice on one cache directory, which is new and
# nobody else's: `PROGRAM DIRECTORY ARG...`. POSIX sh.
set -eu
program=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$program" "$work/cache" "$@"
"$program" "$work/cache" "$@"
