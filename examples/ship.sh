#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/ship.sh: from a service that compiles to an image that need not: record, warm, sign, run
# from the bundle with no writable disk and no compiler allowed, and ask why a kernel is missing.
#
#   examples/ship.sh [TARGET]         # default cpu; QUERN names the command, default quern
#
# It works in a folder of its own and ends with 1 at the first step that does not do as it should.
# The tests run it. Read next: docs/warm.md, docs/bundles.md.
set -eu
quern=${QUERN:-quern}
case $quern in */*) quern=$(cd "$(dirname "$quern")" && pwd)/${quern##*/} ;; esac
target=${1:-cpu}
ir=$(cd "$(dirname "$0")/ir" && pwd)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
export QUERN_CACHE_DIR="$work/cache"

serve() { # a request of the service
  "$quern" run "$ir/$1" --target "$target" --arg 'x=rand:f32[4,64]:7' \
    --arg 'y=zeros:f32[4,64]' --json
}
step() { echo "== $*"; }

step 1. the service records what it looks up
QUERN_RECORD=$work/keys.list serve softmax.qn >compiled.json

step 2. a build machine compiles it ahead, and puts it into a signed bundle
rm -r cache
"$quern" cache keygen release
"$quern" warm keys.list --bundle kernels.qnb --sign release.key
"$quern" cache verify --bundle kernels.qnb --signed-by release.pub

step 3. the image: the bundle, its public key, and nowhere to write
mkdir image
cp kernels.qnb release.pub image/
chmod 444 image/*
chmod 555 image
unset QUERN_CACHE_DIR XDG_CACHE_HOME HOME
export QUERN_BUNDLES="$work/image/kernels.qnb" QUERN_BUNDLE_KEYS="$work/image/release.pub"
export QUERN_JIT=forbid
serve softmax.qn >shipped.json
grep -q '"source": "bundle"' shipped.json
"$quern" cache stats

step 4. what is not in it is an error at once, which names the key and says what the tiers answered
if "$quern" run "$ir/saxpy.qn" --target "$target" --arg a=2 --arg 'x=iota:f32[8]' \
  --arg 'y=ones:f32[8]' 2>refused; then
  echo "compiled although it is forbidden" >&2
  exit 1
fi
grep 'compiling is forbidden' refused | cut -c1-120

step 5. and why
"$quern" cache why "$ir/saxpy.qn" --target "$target"
"$quern" cache why "$ir/softmax.qn" --target "$target" --tier fast
echo "shipped"
