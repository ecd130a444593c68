# SPDX-License-Identifier: Apache-2.0
"""What a wheel may have inside: its size, the symbols that its objects export, the libraries that auditwheel took in, and the
licences of everything that is linked. python/make-wheels runs it.

    check_wheel.py WHEEL...
"""
import os
import re
import subprocess
import sys
import tempfile
import zipfile

# The objects of each distribution, with the symbols that they export. * : and others of this beginning.
RUNTIME = {
    "quern/_quern.so": ["PyInit__quern"],
    "quern/lib/libquern.so": ["qn_*", "__jit_debug_descriptor", "__jit_debug_register_code"],
    "quern/lib/libquern-warm.so": ["qn_*"],
    "quern/lib/quern/libquern-redis.so": ["qn_store_entry"],
    "quern/lib/quern/libquern-sodium.so": ["qn_crypto_entry"],
}
GENERATORS = {f"quern/lib/quern/libquern-{name}.so": ["qn_codegen_entry"] for name in ("llvm", "nvrtc", "shaderc")}
# The notices of what is linked into our objects: name by object.
LINKED = {
    "quern/lib/quern/libquern-llvm.so": ["libllvm19", "gcc-12-base"],
    "quern/lib/quern/libquern-shaderc.so": ["libshaderc-dev", "glslang-dev", "spirv-tools"],
}
# The libraries that may be taken in, with their notices.
TAKEN = {
    "libhiredis": "libhiredis-dev",
    "libjansson": "libjansson-dev",
    "libsodium": "libsodium-dev",
    "libxxhash": "libxxhash-dev",
    "libzstd": "libzstd1",
}
DISTRIBUTIONS = {"quern_runtime": ("runtime", RUNTIME, 3_000_000), "quern": ("generators", GENERATORS, 25_000_000)}


def fail(wheel, message):
    sys.exit(f"{os.path.basename(wheel)}: {message}")


def exported(path):
    """The names that an object gives to others, without their versions."""
    lines = subprocess.run(["nm", "-D", "--defined-only", path], check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
    fields = [line.split() for line in lines]
    return {name.split("@")[0] for _, kind, name in fields if kind != "A"}


def needed(path):
    text = subprocess.run(["readelf", "-d", path], check=True, text=True, stdout=subprocess.PIPE).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def plain(name):
    """The name of an object without what depends on versions: of the interpreter, or of the library."""
    return re.sub(r"(_quern)\..*so$", r"\1.so", re.sub(r"\.so[.0-9]*$", ".so", name))


def check(wheel):
    part, objects, limit = DISTRIBUTIONS[os.path.basename(wheel).split("-")[0]]
    size = os.path.getsize(wheel)
    if size > limit:
        fail(wheel, f"has {size} bytes, more than {limit}")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        names = [name for name in archive.namelist() if not name.endswith("/")]
        found = {plain(name): name for name in names if re.search(r"\.so[.0-9]*$", name) and not name.split("/")[0].endswith(".libs")}
        if sorted(found) != sorted(objects):
            fail(wheel, f"expected the objects {sorted(objects)}, found {sorted(found)}")
        notices = {"quern"}
        for name, wanted in objects.items():
            path = os.path.join(folder, found[name])
            symbols = exported(path)
            pattern = "|".join(re.escape(one).replace(r"\*", ".*") for one in wanted)
            others = [one for one in sorted(symbols) if not re.fullmatch(pattern, one)]
            if others or not symbols:
                fail(wheel, f"{found[name]} exports {', '.join(others[:5]) or 'nothing'}; expected {', '.join(wanted)}")
            notices.update(LINKED.get(name, []))
            for library in needed(path):
                if re.match("libLLVM|libpython", library):
                    fail(wheel, f"{found[name]} needs {library}")
        for name in names:
            if name.split("/")[0].endswith(".libs"):
                stem = re.split(r"[-.]", os.path.basename(name))[0]
                if stem not in TAKEN:
                    fail(wheel, f"{name} was taken in, and is not one of {', '.join(TAKEN)}")
                notices.add(TAKEN[stem])
        present = {os.path.basename(name) for name in names if name.startswith(f"quern/licenses/{part}/")}
        if present != notices:
            fail(wheel, f"licences: expected {sorted(notices)}, found {sorted(present)}")
    print(f"   {os.path.basename(wheel)}: {size:,} bytes, {len(objects)} objects, {len(notices)} licences")


if __name__ == "__main__":
    for one in sys.argv[1:]:
        check(one)
