# SPDX-License-Identifier: Apache-2.0
# Plugins by --plugin and QUERN_PLUGINS: every verb that meets targets, workers too; a generator that
# is opened at a miss alone, and whose code depends on a file outside.
. "${0%/*}/lib.sh"
: "${LAZY:?path of the plugin}"
args="--arg a=1 --arg x=ones:f32[2] --arg y=ones:f32[2]"
saxpy="examples/ir/saxpy.qn"
mkdir bin
PATH="$work/bin:$PATH"
compiler() {
  printf '#!/bin/sh\n# version %s\n' "$1" >bin/lazy-compiler
  chmod +x bin/lazy-compiler
}
compiler 1

# Without the plugin there is no such kind; a list with a wrong path is an error of verbs that use it.
expect 1 cache why $saxpy --target lazy
tells "lazy"
QUERN_PLUGINS="$LAZY:$work/none.so" expect 3 targets
tells "plugin '$work/none.so'"
QUERN_PLUGINS="$work/none.so" expect 0 check $saxpy
expect 0 cache why $saxpy --target lazy --plugin "$LAZY"
expect 0 targets lazy --plugin "$LAZY" --json
json 'it["name"] == "lazy"'

QUERN_PLUGINS="$LAZY"
export QUERN_PLUGINS
expect 0 targets --json
says '"lazy"'

# A miss opens the generator, a hit does not.
# shellcheck disable=SC2086
expect 0 run $saxpy --target lazy $args --json
json 'it["source"] == "compiled"'
# shellcheck disable=SC2086
LD_DEBUG=files LD_DEBUG_OUTPUT="$work/debug" expect 0 run $saxpy --target lazy $args --json
json 'it["source"] == "disk"'
cat debug.* >opened
grep -q 'lazy_plugin.so' opened || fail "the plugin was not opened"
! grep -q 'lazy_generator.so' opened || fail "a hit opened the generator"
expect 0 cache why $saxpy --target lazy --json
json 'it["found_in"] == "disk"'
expect 0 cache verify --recompile all --json
json 'it["same"] == it["entries"] == 1'

# Another compiler is another key, and without one the error names it.
compiler 2
expect 0 cache why $saxpy --target lazy --json
json 'it["found_in"] is None and it["section"] == "generator"'
# shellcheck disable=SC2086
expect 0 run $saxpy --target lazy $args --json
json 'it["source"] == "compiled"'
rm bin/lazy-compiler
# shellcheck disable=SC2086
expect 3 run $saxpy --target lazy $args
tells "code generator 'lazy' needs 'lazy-compiler': not found"

# A plugin that was copied without its generator: the error names the place where it belongs.
compiler 4
cp "$LAZY" alone.so
# shellcheck disable=SC2086
QUERN_PLUGINS="$work/alone.so" expect 3 run $saxpy --target lazy $args
tells "no $work/lazy_generator.so; it belongs beside its plugin"

# Workers of a warm-up know what the command was told.
compiler 3
unset QUERN_PLUGINS
echo "$saxpy --target lazy" >lazy.list
expect 0 warm lazy.list --plugin "$LAZY" --json
json 'it["compiled"] == 1 and it["is_warm"]'
expect 0 warm lazy.list --plugin "$LAZY" --json
json 'it["cached"] == 1 and it["compiled"] == 0'
done_with plugins
