# SPDX-License-Identifier: Apache-2.0
# `quern export`: a library for tvm-ffi with its bundle. tests/python calls such libraries.
. "${0%/*}/lib.sh"
target=${TARGETS##* }
library() {
  expect 0 export --tvm-ffi examples/ir/softmax.qn --target "$target" -o "$@"
}

# What is written: twice the same bytes, a shared object, and a bundle for every tool.
library first.so
says "first.so: 1 function for 1 target, "
library second.so --json
json 'it["output"] == "second.so" and it["functions"] == ["softmax"] and it["targets"] == 1'
same first.so second.so
expect 0 cache ls --bundle first.so --json
expect 0 cache verify --bundle first.so
says "1 good, 0 bad"
expect 0 cache export all.qnb --no-times
expect 0 cache merge merged.qnb first.so
same all.qnb merged.qnb
expect 0 export --tvm-ffi examples/ir/saxpy.qn --target interp --target interp --tier fast --checked -o both.so
says "both.so: 1 function for 2 targets"
expect 0 cache ls --bundle both.so
umask 002
library third.so
umask 022
expect 0 cache verify --bundle third.so

# Symbols and tables are those that the system's own tools read.
python3 - first.so <<'PYTHON' || fail "the tables of the shared object"
import ctypes, os, struct, sys
data = open(sys.argv[1], "rb").read()
assert data[:6] == b"\x7fELF\2\1" and struct.unpack_from("<H", data, 16) == (3,)
sections, = struct.unpack_from("<Q", data, 40)
count, titles = struct.unpack_from("<HH", data, 60)
headers = [struct.unpack_from("<IIQQQQIIQQ", data, sections + 64 * i) for i in range(count)]
def text(table, at):
    start = headers[table][4] + at
    return data[start:data.index(b"\0", start)].decode()
named = {text(titles, one[0]): one for one in headers}
symbols = named[".dynsym"]
names = [text(symbols[6], struct.unpack_from("<I", data, symbols[4] + at)[0]) for at in range(0, symbols[5], 24)]
assert names == ["", "qn_tvm_ffi_library_call", "__tvm_ffi_softmax"], names
# No part is both written and run.
segments = [struct.unpack_from("<II", data, 64 + 56 * i) for i in range(struct.unpack_from("<H", data, 56)[0])]
assert all(flags & 3 != 3 for _, flags in segments), segments
PYTHON
checks=$((checks + 1))

# The loader takes it. Without tvm-ffi in the process a call fails, and no more.
libraries=$(cd "$(dirname "$QUERN")/../lib" && pwd) || fail "where libquern lies"
library loaded.so --run-path "$libraries"
if python3 -c 'import ctypes, glob, sys; ctypes.CDLL(glob.glob(sys.argv[1] + "/libquern.so.*.*")[0])' "$libraries" 2>err; then
  python3 - <<'PYTHON' || fail "a call without tvm-ffi"
import ctypes
library = ctypes.CDLL("./loaded.so")
assert library.__tvm_ffi_softmax(None, None, 0, None) == -1
assert library.__tvm_ffi_softmax(None, None, 3, None) == -1
assert not hasattr(library, "__tvm_ffi_other")
PYTHON
  checks=$((checks + 1))
fi

# Another architecture gives another code.
if $has_cpu; then
  expect 0 export --tvm-ffi examples/ir/softmax.qn --target cpu/neoverse-n1 -o arm.so
  python3 -c 'import sys; sys.exit(open("arm.so", "rb").read()[18] != 183)' || fail "the machine of arm.so"
  expect 1 export --tvm-ffi examples/ir/softmax.qn --target cpu/neoverse-n1 --target cpu/x86-64 -o wrong.so
  tells "a library is for one architecture, but its targets are of aarch64 and x86_64"
  [ ! -e wrong.so ] || fail "a file of a failed export"
fi

# A library that was cut, or changed, is no bundle.
size=$(wc -c <first.so)
for cut in 1 255 256 1000; do
  head -c $((size - cut)) first.so >cut.so
  quern cache ls --bundle cut.so
  [ "$code" -eq 1 ] || fail "a library without its last $cut bytes: exit code $code"
  tells "cut.so' does not end with a bundle of version 1; was it cut or stripped?"
done
for kept in 0 3 4 63 64 4096 12288; do
  head -c $kept first.so >cut.so
  quern cache ls --bundle cut.so
  [ "$code" -eq 1 ] || fail "the first $kept bytes of a library: exit code $code"
done
{ cat first.so; printf 'x'; } >longer.so
quern cache ls --bundle longer.so
[ "$code" -eq 1 ] || fail "a library with a byte more: exit code $code"

# Mistakes.
expect 2 export examples/ir/softmax.qn -o x.so
tells "say for what: --tvm-ffi"
expect 2 export --tvm-ffi examples/ir/softmax.qn
tells "-o is missing"
expect 2 export --tvm-ffi examples/ir/softmax.qn -o -
expect 2 export --tvm-ffi -o x.so
expect 1 export --tvm-ffi nosuch.qn -o x.so
expect 1 export --tvm-ffi examples/ir/softmax.qn --target nosuch -o x.so
tells "nosuch"
expect 1 export --tvm-ffi examples/ir/softmax.qn --target interp -o nosuch/x.so
QUERN_CACHE=off
export QUERN_CACHE
expect 1 export --tvm-ffi examples/ir/softmax.qn --target interp -o x.so
tells "needs a cache directory"
unset QUERN_CACHE
[ ! -e x.so ] || fail "a file of a failed export"
[ -z "$(ls ./*.qnb.* ./*.so.* 2>/dev/null)" ] || fail "temporary files: $(ls)"

done_with export
