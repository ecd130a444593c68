# SPDX-License-Identifier: Apache-2.0
# Every command that a help text, docs/cli.md or the README shows as an example runs and gives 0.
. "${0%/*}/lib.sh"
$has_cpu || { echo "no code generator: the examples need one"; exit 0; }

PATH=$(dirname "$QUERN"):$PATH
for verb in run bench check fmt compile devices targets cache warm export conformance config version help; do
  "$QUERN" help $verb | sed -n 's/^  quern /quern /p' >>commands
done
"$QUERN" help | sed -n '/first steps/,$ s/^  quern /quern /p' >>commands
sed -n 's/^    quern /quern /p' "$SOURCE/docs/cli.md" >>commands
# One is there to show an error.
grep '^quern ' "$SOURCE/README.md" | grep -v broken.qn >>commands
grep '^QUERN_CACHE=refresh quern ' "$SOURCE/docs/metrics.md" >>commands
[ "$(wc -l <commands)" -gt 60 ] || fail "only $(wc -l <commands) examples were found"
# How long an example may take is not said for a machine that is busy with other things.
sed -i 's/--timeout [0-9]*s/--timeout 600s/' commands
# What a build was made without is said in so many words, too.
words='needs libnvrtc\|no device vulkan:0'
for generator in nvrtc shaderc; do
  [ -e "$(dirname "$QUERN")/../lib/libquern-$generator.so" ] || words="$words\|code generator '$generator' is not installed"
done
while IFS= read -r line; do
  # The function of lib.sh must not stand in for the program.
  sh -c "$line" >out 2>err </dev/null || {
    # Without a GPU's driver, or NVIDIA's compiler, the word is clear and that is all there is to see.
    grep -q "$words" err || fail "example: $line"
  }
  checks=$((checks + 1))
done <commands

done_with examples
