#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/serve/soak.py for 20 s on a made-up model. Its memory is not judged: the run is too short.
set -eu
: "${WRITE:?program that writes the model}" "${SOAK:?the script}" "${SERVER:?quern-serve}" "${TARGET:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$WRITE" "$work/model" >"$work/written" 2>&1 || { cat "$work/written"; exit 1; }
python3 "$SOAK" "$SERVER" "$work/model" --seconds 20 --pause 1 --texts 60 --target "$TARGET"
