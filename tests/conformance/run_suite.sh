# SPDX-License-Identifier: Apache-2.0
# tests/conformance/run_suite.sh WHAT [least|short|races|no-races]: runs the suite on one device, as a test; 77 where the
# device is missing. `least` takes the least Vulkan target and the areas that ask for integers. `short` leaves out the
# areas whose programs differ in their arithmetic alone (operators, conversions, mathematics), which are most of the
# suite. `races` takes the areas whose programs share memory among threads, or the order of streams and threads;
# `no-races` the others.
# POSIX sh.
set -eu
: "${QUERN:?path of the command}" "${SOURCE:?path of the repository}"
what=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NO_COLOR=1 QUERN_CACHE_DIR="$work/cache"
# The leak checker of gcc 12 misreads the thread-local storage of libraries that were opened at run
# time; drivers and layers leave things behind that are not ours.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}intercept_tls_get_addr=0:allocator_may_return_null=1"
export LSAN_OPTIONS="${LSAN_OPTIONS:+$LSAN_OPTIONS:}print_suppressions=0:suppressions=$SOURCE/tests/lsan.supp"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# only AREAS, leave_out AREAS: chooses areas, as an extended regular expression.
filters=^
arithmetic='operators|dtypes|math'
shares='atomics|exchanges|failures|graphs|grids|products|shapes|statements|streams|threads'
areas() {
  "$QUERN" conformance --list | cut -d/ -f1 | sort -u
}
only() {
  filters=$(areas | grep -xE "$1" | sed 's,.*,^&/,')
}
leave_out() {
  filters=$(areas | grep -vxE "$1" | sed 's,.*,^&/,')
}

# run_filters DEVICE OPTION...: runs what the filters choose; sets $code and $passed, the number of cases of the device
# in all runs.
code=0
run_filters() {
  device=$1
  shift
  for filter in $filters; do
    "$QUERN" conformance "$@" --filter "$filter" >>"$work/out" 2>>"$work/err" || code=$?
  done
  passed=$(sed -n "s/^$device[:0-9]*  *\([0-9]*\) .*/\1/p" "$work/out" | awk '{ sum += $1 } END { print sum + 0 }')
}

case $what in
# A GPU of another maker, on the public planner: what it has not is unsupported, by name. Its threads are slow.
grid)
  filters="attributes memory copies calls failures statements/softmax statements/views statements/matrix statements/cons"
  filters="$filters statements/launches scans/sum"
  filters=$(echo "$filters" | tr ' ' '\n' | sed 's,^,^,')
  run_filters grid --plugin "$GRID_PLUGIN" --device grid
  [ "$code" -eq 0 ] || fail "$(grep '^fail' "$work/out" || cat "$work/err")"
  [ "$passed" -ge 30 ] || fail "only $passed cases pass on grid"
  exit 0
  ;;
plugin)
  code=0
  "$QUERN" conformance --plugin "$PLUGIN" --device echo >"$work/out" || code=$?
  [ "$code" -eq 1 ] || fail "a device that computes nothing gave exit code $code"
  grep -q '^fail echo: statements/store and load' "$work/out" || fail "its kernels pass"
  for area in attributes memory copies; do
    "$QUERN" conformance --plugin "$PLUGIN" --device echo --filter "^$area/" >"$work/out" || {
      cat "$work/out"
      fail "the area $area on the plugin's device"
    }
  done
  "$QUERN" conformance --plugin "$PLUGIN" --target 'echo -volume=11' >"$work/out" 2>&1 &&
    fail "an option beyond its range is taken"
  grep -q "takes 0 to 10, not 11" "$work/out" || fail "$(cat "$work/out")"
  # What is not named is all that is here; the other verbs know the plugin too, also when told twice.
  "$QUERN" conformance --plugin "$PLUGIN" --filter ^attributes/ | grep -q '^echo ' || fail "echo is not here"
  "$QUERN" devices echo:0 --plugin "$PLUGIN" --plugin "$PLUGIN" >"$work/out" || fail "devices: no echo:0"
  "$QUERN" targets 'echo -volume=4' --plugin "$PLUGIN" --json | grep -q '"volume": 4' || fail "targets: no echo"
  for source in compiled disk; do
    "$QUERN" run "$SOURCE/examples/ir/saxpy.qn" --plugin "$PLUGIN" --target echo --arg a=2 --arg x=iota:f32[4] \
      --arg y=ones:f32[4] --json >"$work/out" || fail "echo does not run"
    grep -q "\"source\": \"$source\"" "$work/out" || fail "echo's code is not from $source: $(cat "$work/out")"
  done
  code=0
  "$QUERN" compile "$SOURCE/examples/ir/saxpy.qn" --plugin "$PLUGIN" --target echo >"$work/out" 2>&1 || code=$?
  [ "$code" -eq 1 ] || fail "echo shows a form that it does not have"
  grep -q "echo has the form outline, not 'ir'" "$work/out" || fail "$(cat "$work/out")"
  # The plugin reads every statement and expression with its dtype.
  "$QUERN" compile "$SOURCE/examples/ir/saxpy.qn" --plugin "$PLUGIN" --target echo --emit outline >"$work/outline" ||
    fail "no outline"
  cat >"$work/expected" <<'END'
saxpy(a: f32, x: f32[n], inout y: f32[n])
  loop v2
    i64 0
    i64 v0
    store b1: f32 of rank 1
      i64 v2
      f32 +
        f32 *
          f32 v1
          f32 load b0
            i64 v2
        f32 load b1
          i64 v2
END
  diff "$work/expected" "$work/outline" >&2 || fail "the outline is another one"
  # Random programs find a device that computes nothing, and show that by a statement or a few.
  code=0
  "$QUERN" conformance --plugin "$PLUGIN" --device echo --random 12 --seed 1 >"$work/out" || code=$?
  [ "$code" -eq 1 ] || fail "random programs pass on echo"
  [ "$(grep -c '^fail echo: random/program/' "$work/out")" -eq 12 ] || fail "$(cat "$work/out")"
  [ "$(grep -c ';$' "$work/out")" -le 36 ] || fail "programs are not small: $(cat "$work/out")"
  "$QUERN" conformance --plugin "$PLUGIN" --device echo --random 1 --seed 2 --json >"$work/out" || true
  grep -q '"program": "func f(' "$work/out" || fail "no program in JSON: $(cat "$work/out")"
  "$QUERN" conformance --device interp --random 12 >"$work/out" || fail "the interpreter differs from itself: $(cat "$work/out")"
  code=0
  "$QUERN" conformance --device interp --seed 1 >"$work/out" 2>&1 || code=$?
  [ "$code" -eq 2 ] || fail "a seed of nothing gave exit code $code"
  code=0
  "$QUERN" conformance --plugin "$QUERN" --list >"$work/out" 2>&1 || code=$?
  [ "$code" -eq 3 ] || fail "a file that is no plugin gave exit code $code"
  exit 0
  ;;
document)
  "$QUERN" conformance --list | sed 's,/\([^/]*\)$,/\1,' >"$work/list"
  sh "$SOURCE/tools/dev/conformance-table" --features <"$SOURCE/docs/conformance.md" >"$work/documented"
  "$QUERN" conformance --markdown --device interp --filter nothing-has-this-name |
    sh "$SOURCE/tools/dev/conformance-table" --features >"$work/suite"
  [ -s "$work/suite" ] || fail "the suite has no features"
  cmp -s "$work/documented" "$work/suite" || {
    diff "$work/documented" "$work/suite" | head -20
    fail "docs/conformance.md is stale; run tools/dev/conformance-table QUERN"
  }
  exit 0
  ;;
cubins)
  # Compiles the programs of the suite to machine code of one architecture, by the true NVRTC and without a
  # GPU: the toolkit's, or what tools/dev/get-nvrtc has put into the build folder. The CUDA text is the same for all
  # architectures and tiers (tests/unit/nvrtc/test_compile.c), so that one of them compiles all of the suite, and what is
  # more than arithmetic with NVRTC's own optimisations, which take four fifths of the time.
  export VIRTUAL_ENV="${VIRTUAL_ENV:-$BUILD/nvrtc}"
  target="cuda -arch=$2"
  "$QUERN" compile "$SOURCE/examples/ir/saxpy.qn" --target "$target" --emit cubin -o "$work/saxpy.cubin" 2>"$work/why" || {
    cat "$work/why"
    grep -q 'needs libnvrtc' "$work/why" && exit 77
    fail "saxpy does not compile for $2"
  }
  leave_out "$arithmetic"
  least=200
  if [ "${3:-}" = short ]; then
    run_filters cuda --target "$target" --emit cubin --tier fast
  else
    run_filters cuda --target "$target" --emit cubin
    only "$arithmetic"
    least=700
    run_filters cuda --target "$target" --emit cubin --tier fast
  fi
  cat "$work/out" "$work/err"
  [ "$code" -eq 0 ] || fail "exit code $code"
  [ "$passed" -gt $least ] || fail "only $passed programs compile"
  exit 0
  ;;
vulkan)
  # With the validation layer where it is installed, which must stay silent.
  for place in /usr/share /usr/local/share /etc; do
    [ -e "$place/vulkan/explicit_layer.d/VkLayer_khronos_validation.json" ] || continue
    cat >"$work/vk_layer_settings.txt" <<END
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.report_flags = error,warn,perf
khronos_validation.log_filename = $work/validation.log
END
    export VK_LAYER_SETTINGS_PATH="$work/vk_layer_settings.txt"
    export VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation
  done
  ;;
esac

# A device of a plugin, for all verbs.
if [ "${2:-}" = plugin ]; then
  export QUERN_PLUGINS="${C_PLUGIN:?path of the plugin}"
fi
if [ "$what" = cuda ] && [ ! -e /proc/self/fd ]; then
  # Each of 850 programs would be refused as part of its module and compiled alone.
  echo "the fake driver opens what it has compiled by /proc/self/fd, which is not here"
  exit 77
fi
if [ "$what" != interp ] && [ "$what" != cpu ]; then
  "$QUERN" devices "$what:0" >/dev/null 2>"$work/why" || {
    cat "$work/why"
    exit 77
  }
fi
least=700
case ${2:-} in
least)
  # No 64-bit integers, no doubles, no small elements: what needs them is unsupported, and only that.
  least=250
  filters="^operators/ ^grids/ ^memory/ ^statements/"
  run_filters "$what" --device "$what:0" --target "$what -max_threads_per_block=128"
  ;;
short)
  least=400
  leave_out 'operators|math'
  run_filters "$what" --device "$what"
  ;;
plugin)
  # What differs in arithmetic alone takes a C compiler minutes; a part of it is run.
  least=200
  leave_out 'math|dtypes|operators|products|cache|exchanges|shapes|grids'
  filters="$filters ^operators/min ^operators/// ^dtypes/conversion/f64"
  run_filters "$what" --device "$what"
  ;;
races)
  least=200
  only "$shares"
  run_filters "$what" --device "$what"
  ;;
no-races)
  least=700
  leave_out "$shares"
  run_filters "$what" --device "$what"
  ;;
*)
  run_filters "$what" --device "$what"
  ;;
esac
cat "$work/err" >&2
grep -v '^unsupported' "$work/out" || true
[ "$code" -eq 0 ] || fail "exit code $code"
# Most of it must really have run.
[ "$passed" -gt "$least" ] || fail "only $passed cases pass"
# The fake driver's word for a race, or for a rule of the driver's that was broken.
if grep -q '^fake driver: ' "$work/err"; then
  fail "the fake driver speaks"
fi
if [ -s "$work/validation.log" ]; then
  head -50 "$work/validation.log"
  fail "the validation layer speaks"
fi
